#define _GNU_SOURCE  // secure_getenv, environ
// base/env.c: the one place that reads the environment.
//
// Thread rule: as getenv: no thread may change the environment meanwhile. Read next: log.c.
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
