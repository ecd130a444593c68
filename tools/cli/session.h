// tools/cli/session.h: what several verbs begin with: an engine that logs, a module, a target.
//
// Thread rule: any thread may call the log sink.
#ifndef QUERN_TOOLS_CLI_SESSION_H_
#define QUERN_TOOLS_CLI_SESSION_H_

#include "quern/quern.h"
#include "tools/cli/args.h"
#include "tools/cli/file.h"

// An engine by the environment; the library's log goes to standard error as QUERN_LOG says.
// Owned: qn_engine_destroy.
qn_status_t session_engine(qn_engine_t** out_engine);
// The same with options of options.inc that win over the environment. Borrowed for the call.
qn_status_t session_engine_with(const qn_setting_t* settings, size_t count,
                                qn_engine_t** out_engine);
// An engine that looks and changes nothing: the directory is only read, and not made; nothing is
// recorded or traced. `directory` NULL: that of the environment. `*out_directory` is owned (free),
// "" when there is none; `*out_is_there`: whether it exists. Owned: qn_engine_destroy.
qn_status_t session_reading_engine(const char* directory, qn_engine_t** out_engine,
                                   char** out_directory, bool* out_is_there);
// An engine that makes no cache directory: for looking at options. Owned: qn_engine_destroy.
qn_status_t session_idle_engine(qn_engine_t** out_engine);
// The value of an engine's option by its name in options.inc. Owned: free. NULL without memory.
char* session_option(qn_engine_t* engine, const char* name);

// Reads and parses a file. `on_diagnostic` may be NULL.
qn_status_t session_module(const char* path,
                           void (*on_diagnostic)(void* self, const qn_diagnostic_t* diagnostic),
                           void* self, qn_module_t** out_module);

// That there is such a device. Errors: UNAVAILABLE, with the reason that its driver gave.
qn_status_t session_device_here(qn_device_t device);

// --tier and --checked. False after a usage error that has been reported.
bool session_lookup_options(const args_t* args, qn_lookup_options_t* out_options);
// "90", "90s", "1.5ms", "2min", "1h"; a number alone is in seconds. False unless above 0.
bool session_time(const char* text, int64_t* out_ns);

#endif  // QUERN_TOOLS_CLI_SESSION_H_
