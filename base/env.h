// base/env.h: the one place that reads the environment (secure_getenv: nothing for setuid
// programs).
//
// Called when an engine or the command line is configured, never on a hot path.
#ifndef QUERN_BASE_ENV_H_
#define QUERN_BASE_ENV_H_

#include <stdbool.h>

// NULL when unset, empty or when the process is setuid. Borrowed from the environment.
const char* qn__env_get(const char* name);
// Whether the process has user or group rights that its caller has not (set-user-id,
// set-group-id): what it runs must not come from a place that the caller chose.
bool qn__has_borrowed_rights(void);
// All of it, for a process that is started. Borrowed from the environment.
char* const* qn__env_block(void);

#endif  // QUERN_BASE_ENV_H_
