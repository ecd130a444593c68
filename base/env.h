// SPDX-License-Identifier: Apache-2.0
// base/env.h: the only place that reads the environment (by secure_getenv: nothing in set-user-id
// programs).
//
// Called when an engine or the command line is configured, never on a hot path.
#ifndef QUERN_BASE_ENV_H_
#define QUERN_BASE_ENV_H_

#include <stdbool.h>

// Returns NULL when the variable is unset or empty, or in a set-user-id process. Borrowed from the
// environment.
const char* qn__env_get(const char* name);
// True when the process has user or group rights that its caller does not have (set-user-id,
// set-group-id). Such a process must not run code from a place that its caller chose.
bool qn__has_borrowed_rights(void);
// Returns the whole environment, for a child process. Borrowed from the environment.
char* const* qn__env_block(void);

#endif  // QUERN_BASE_ENV_H_
