// base/env.h: the one place that reads the environment (secure_getenv: nothing for setuid
// programs).
//
// Called when an engine or the command line is configured, never on a hot path.
#ifndef QUERN_BASE_ENV_H_
#define QUERN_BASE_ENV_H_

// NULL when unset, empty or when the process is setuid. Borrowed from the environment.
const char* qn__env_get(const char* name);
// All of it, for a process that is started. Borrowed from the environment.
char* const* qn__env_block(void);

#endif  // QUERN_BASE_ENV_H_
