// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs.h: the verbs, and the table of them (main.c).
#ifndef QUERN_TOOLS_CLI_VERBS_H_
#define QUERN_TOOLS_CLI_VERBS_H_

#include "tools/cli/args.h"

extern const verb_t verb_run;
extern const verb_t verb_bench;
extern const verb_t verb_check;
extern const verb_t verb_fmt;
extern const verb_t verb_compile;
extern const verb_t verb_devices;
extern const verb_t verb_targets;
extern const verb_t verb_cache;
extern const verb_t verb_warm;
extern const verb_t verb_export;
extern const verb_t verb_conformance;
extern const verb_t verb_config;
extern const verb_t verb_version;
extern const verb_t verb_help;

// Returns the verbs in the order of help; NULL beyond the last.
const verb_t* verb_at(size_t index);
// Returns a verb by name, or NULL.
const verb_t* verb_find(const char* name);

#endif  // QUERN_TOOLS_CLI_VERBS_H_
