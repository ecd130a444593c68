// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // secure_getenv, environ
// base/env.c: see env.h. As for getenv, no thread may change the environment meanwhile.
#include "base/env.h"

#include <stdlib.h>
#include <unistd.h>

const char* qn__env_get(const char* name) {
  const char* value = secure_getenv(name);
  return value && value[0] ? value : NULL;
}

bool qn__has_borrowed_rights(void) {
  return geteuid() != getuid() || getegid() != getgid();
}

char* const* qn__env_block(void) {
  return environ;
}
