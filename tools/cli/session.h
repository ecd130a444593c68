// SPDX-License-Identifier: Apache-2.0
// tools/cli/session.h: engines that log, modules and targets for several verbs.
//
// Thread rule: any thread may call the log sink.
#ifndef QUERN_TOOLS_CLI_SESSION_H_
#define QUERN_TOOLS_CLI_SESSION_H_

#include "quern/quern.h"
#include "quern/target.h"
#include "tools/cli/args.h"
#include "tools/cli/file.h"

// Loads the plugins of QUERN_PLUGINS and of --plugin, for verbs that have this option, and hands
// them on to child processes.
qn_status_t session_plugins(const args_t* args);
// Makes an engine from the environment, and logs to standard error at the level of QUERN_LOG.
// Owned: qn_engine_destroy.
qn_status_t session_engine(qn_engine_t** out_engine);
// The same, with settings (borrowed for the call) that override the environment.
qn_status_t session_engine_with(const qn_setting_t* settings, size_t count,
                                qn_engine_t** out_engine);
// Makes an engine that changes nothing: it reads the directory without creating it, and records and
// traces nothing. `directory` NULL: that of the environment. `*out_directory` is owned (free), ""
// when there is none; `*out_is_there`: whether it exists. Owned: qn_engine_destroy.
qn_status_t session_reading_engine(const char* directory, qn_engine_t** out_engine,
                                   char** out_directory, bool* out_is_there);
// Makes an engine without a cache directory, to read its options. Owned: qn_engine_destroy.
qn_status_t session_idle_engine(qn_engine_t** out_engine);
// Returns the value of an option by its name in options.inc. Owned: free.
char* session_option(qn_engine_t* engine, const char* name);

// Reads and parses a file with the values of --set. `on_diagnostic` may be NULL.
qn_status_t session_module(const args_t* args, const char* path,
                           void (*on_diagnostic)(void* self, const qn_diagnostic_t* diagnostic),
                           void* self, qn_module_t** out_module);

// Returns ok if the device exists, else UNAVAILABLE with the driver's reason.
qn_status_t session_device_here(qn_device_t device);

// Returns a target kind by name, or NULL.
const qn_target_kind_info_t* session_kind(const char* name);

// Reads --tier and --checked. Reports a usage error and returns false.
bool session_lookup_options(const args_t* args, qn_lookup_options_t* out_options);
// Reads "90", "90s", "1.5ms", "2min" or "1h"; a number alone is in seconds. False unless above 0.
bool session_time(const char* text, int64_t* out_ns);

#endif  // QUERN_TOOLS_CLI_SESSION_H_
