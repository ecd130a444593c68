// SPDX-License-Identifier: Apache-2.0
// quern/observe.h: looking into an engine: intermediate forms, counters, times, traces, the reason
// of a miss, the options in force. docs/metrics.md lists the counters and times.
#ifndef QUERN_OBSERVE_H_
#define QUERN_OBSERVE_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ forms
//
// An intermediate form shows a compile from inside: the module after the passes, the generator's
// text, the machine code.

// Writes an intermediate form of the code that a lookup would compile: "ir", "llvm", "asm",
// "image",
// ... Always runs the generator, in the calling thread. `options` may be NULL. Errors: NOT_FOUND
// (no such form; lists the forms), INVALID_ARGUMENT (options), OUT_OF_MEMORY; those of compiles
// (qn_engine_executable) and of the sink.
QN_API QN_MUST_USE qn_status_t qn_engine_emit(qn_engine_t* engine, qn_module_t* module,
                                              qn_target_t* target,
                                              const qn_lookup_options_t* options, const char* form,
                                              qn_sink_t sink);

// ------------------------------------------------------------------------------------ metrics
//
// Names and docs are of static storage. Callbacks run in the calling thread.

// Calls back for each counter of the engine and its cache (docs/metrics.md). A counter begins at 0
// with the engine and never goes down. Names stay.
QN_API void qn_engine_counters(qn_engine_t* engine,
                               void (*on_counter)(void* self, const char* name, uint64_t value,
                                                  const char* doc),
                               void* self);

// How long one stage of lookups took. Borrowed for the callback.
typedef struct qn_stage_info {
  size_t struct_size;  // of the library
  const char* name;    // "compile"; docs/metrics.md
  const char* doc;     // one line
  uint64_t count;      // how often it ran
  int64_t total_ns;    // of all runs
  int64_t max_ns;      // of the longest
  // The times that 50, 90 and 99 of 100 runs did not exceed: at most an eighth too large.
  int64_t p50_ns, p90_ns, p99_ns;
} qn_stage_info_t;
// Calls back for each stage.
QN_API void qn_engine_stages(qn_engine_t* engine,
                             void (*on_stage)(void* self, const qn_stage_info_t* stage),
                             void* self);
// Writes all counters, gauges and histograms in the text format of Prometheus (version 0.0.4), with
// names that begin with "quern_". Errors: OUT_OF_MEMORY, those of the sink.
QN_API QN_MUST_USE qn_status_t qn_engine_metrics(qn_engine_t* engine, qn_sink_t sink);
// Writes the spans that the engine keeps (option `trace`), as JSON for chrome://tracing and
// Perfetto. Errors: FAILED_PRECONDITION (the engine keeps none), OUT_OF_MEMORY, those of the sink.
QN_API QN_MUST_USE qn_status_t qn_engine_trace(qn_engine_t* engine, qn_sink_t sink);

// ------------------------------------------------------------------------------------ misses
//
// An explanation compares the key of a lookup with the entries that the cache has.

// Why a lookup would hit or miss. It owns its strings.
typedef struct qn_explanation {
  size_t struct_size;    // of the library
  qn_cache_key_t key;    // of the lookup
  const char* found_in;  // "memory", "disk", "bundle"; "" if no local tier has the key
  // The nearest entry: the one whose key agrees in the most sections, where the module counts most.
  // "" if there is none.
  qn_cache_key_t nearest_key;
  const char* section;  // the first section that differs: "target", "module", ...
  const char* wanted;   // what the lookup has there: "target.cpu: znver3"
  const char* cached;   // what the entry has there
  const char* text;     // the whole in one sentence for people
} qn_explanation_t;
// Explains a lookup. Compiles nothing, opens no compiler, asks no network. Of `options` (may be
// NULL) tier and is_checked are used. Reads the beginnings of entries: milliseconds for a thousand,
// about two seconds at most. `*out_explanation` is owned: qn_explanation_free. Errors:
// INVALID_ARGUMENT (options), UNSUPPORTED (the engine knows eight other generators already),
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_explain(qn_engine_t* engine, qn_module_t* module,
                                                 qn_target_t* target,
                                                 const qn_lookup_options_t* options,
                                                 qn_explanation_t** out_explanation);
// Frees an explanation.
QN_API void qn_explanation_free(qn_explanation_t* explanation);

// ------------------------------------------------------------------------------------ options
//
// The options in force come from the program, the environment or their defaults (docs/options.md).

// Calls back for each option in force, in the calling thread, with its origin: "default",
// "environment" or "program"; "XDG_CACHE_HOME" or "HOME" if a cache directory follows from one of
// them. Strings are borrowed for the callback. Credentials are shown as ***.
QN_API void qn_engine_config(qn_engine_t* engine,
                             void (*on_option)(void* self, const char* name,
                                               const char* environment, const char* value,
                                               const char* origin, const char* doc),
                             void* self);

// Calls back in the calling thread with the options in force as settings that make another engine
// like this one, in another process too. Credentials are whole. `cache_dir` is the directory in
// use, or "". Strings are borrowed until the engine is destroyed.
QN_API void qn_engine_settings(qn_engine_t* engine,
                               void (*on_setting)(void* self, const qn_setting_t* setting),
                               void* self);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_OBSERVE_H_
