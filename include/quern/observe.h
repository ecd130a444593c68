// quern/observe.h: looking into an engine: intermediate forms, counters, times, traces, the reason
// of a miss, the options in force. docs/metrics.md lists the counters and times.
#ifndef QUERN_OBSERVE_H_
#define QUERN_OBSERVE_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes an intermediate form of what the lookup would compile: "ir", "llvm", "asm", "image", ...
// Always runs the generator, in the calling thread. Errors: NOT_FOUND lists the forms; those of the
// generator and of the sink.
QN_API QN_MUST_USE qn_status_t qn_engine_emit(qn_engine_t* engine, qn_module_t* module,
                                              qn_target_t* target,
                                              const qn_lookup_options_t* options, const char* form,
                                              qn_sink_t sink);

// Counters of an engine and its cache, by table (counters.inc files; docs/metrics.md). Calls back
// name, value, doc, of static storage, in the calling thread. They begin at 0 with the engine and
// never go down; names stay. Any thread.
QN_API void qn_engine_counters(qn_engine_t* engine,
                               void (*on_counter)(void* self, const char* name, uint64_t value,
                                                  const char* doc),
                               void* self);

// How long the stages of lookups took, by table (jit/observe/stages.inc). Names and docs are of
// static storage. Any thread.
typedef struct qn_stage_info {
  size_t struct_size;  // of the library
  const char* name;
  const char* doc;
  uint64_t count;
  int64_t total_ns;
  int64_t max_ns;
  int64_t p50_ns, p90_ns, p99_ns;  // upper ends of buckets: at most an eighth too large
} qn_stage_info_t;
// Calls back for each stage, in the calling thread.
QN_API void qn_engine_stages(qn_engine_t* engine,
                             void (*on_stage)(void* self, const qn_stage_info_t* stage),
                             void* self);
// All counters, gauges and histograms in the text format of Prometheus (version 0.0.4), names
// "quern_...". Any thread. Errors: those of the sink, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_metrics(qn_engine_t* engine, qn_sink_t sink);
// The spans that are kept (option `trace`), as JSON for chrome://tracing and Perfetto. Errors:
// those of the sink; FAILED_PRECONDITION when the engine keeps none.
QN_API QN_MUST_USE qn_status_t qn_engine_trace(qn_engine_t* engine, qn_sink_t sink);

// Why a lookup would hit or miss. Strings are owned by the explanation.
typedef struct qn_explanation {
  size_t struct_size;  // of the library
  qn_cache_key_t key;
  // "memory", "disk", "bundle", or "" when no local tier has the key.
  const char* found_in;
  // The nearest entry (the one whose key agrees in the most sections, the module counting most), or
  // "" when there is none to compare with; and the first section that differs.
  qn_cache_key_t nearest_key;
  const char* section;  // "target", "module", ...
  const char* wanted;   // what the lookup has: "target.cpu: znver3"
  const char* cached;   // what the entry has
  const char* text;     // the whole in one sentence for people
} qn_explanation_t;
// Looks, compiles nothing, opens no compiler, asks no network. Of `options` (may be NULL) tier and
// is_checked count. It reads the beginnings of entries: milliseconds for a thousand, at most about
// two seconds. Any thread. Owned: qn_explanation_free. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_explain(qn_engine_t* engine, qn_module_t* module,
                                                 qn_target_t* target,
                                                 const qn_lookup_options_t* options,
                                                 qn_explanation_t** out_explanation);
// Frees an explanation.
QN_API void qn_explanation_free(qn_explanation_t* explanation);

// The options in force, with where each came from ("default", "environment", "program"). Strings
// are borrowed for the callback; credentials are shown as ***. Any thread.
QN_API void qn_engine_config(qn_engine_t* engine,
                             void (*on_option)(void* self, const char* name,
                                               const char* environment, const char* value,
                                               const char* origin, const char* doc),
                             void* self);

// Calls back with the options in force as settings that make another engine like this one, in
// another process too: credentials are whole, and `cache_dir` is the directory in use, "" when
// there is none. Strings are borrowed until the engine is destroyed.
QN_API void qn_engine_settings(qn_engine_t* engine,
                               void (*on_setting)(void* self, const qn_setting_t* setting),
                               void* self);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_OBSERVE_H_
