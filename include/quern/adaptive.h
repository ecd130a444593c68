// SPDX-License-Identifier: Apache-2.0
// quern/adaptive.h: adaptive functions: one handle that serves every call with generic code, and
// the values that many calls have with code that is special for them.
//
//   qn_adaptive_name_t rows = {.name = "rows", .min_value = 1, .max_value = 8};
//   qn_adaptive_options_t options = {.struct_size = sizeof options, .names = &rows,
//                                    .name_count = 1};
//   qn_engine_adaptive_function(engine, module, target, "f", &options, NULL, &function);
//   qn_function_call(function, args, count, NULL);
//
// The engine samples calls. For values that are frequent it makes a variant: the module with these
// values fixed (qn_module_specialize), looked up in memory and all tiers of the cache and, if calls
// spend enough time there, compiled. A variant is on trial at first: calls with its values take
// turns between it and the generic code, and are timed. It is kept if it proves faster, else it is
// banned for good. docs/specialize.md has the rules and their numbers.
//
// The work is done by one thread of the engine with the lowest priority, within the processor time
// of the option `special_budget`, and begins no variant while the program is busy
// (qn_engine_busy_begin). There are at most `special_limit` variants in an engine. A call never
// waits for that thread: it takes no lock, allocates nothing, reads no file and compiles nothing.
#ifndef QUERN_ADAPTIVE_H_
#define QUERN_ADAPTIVE_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// A symbol or an integer scalar that variants fix, and the values for which there may be variants.
typedef struct qn_adaptive_name {
  const char* name;       // of the function's signature
  int64_t min_value;      // both bounds 0: every value
  int64_t max_value;      // at least min_value
  const int64_t* values;  // NULL: all within the bounds; else these alone, and no bounds are set
  size_t value_count;     // of `values`
} qn_adaptive_name_t;

// What may be special, and by what evidence.
typedef struct qn_adaptive_options {
  size_t struct_size;                 // sizeof(qn_adaptive_options_t)
  const qn_adaptive_name_t* names;    // borrowed for the call
  size_t name_count;                  // 1 to 8; a variant fixes all of them
  const qn_lookup_options_t* lookup;  // of the generic code; NULL: the defaults
  uint32_t max_variants;              // at a time; 0: 4; at most 8
  uint32_t min_calls;                 // within about a minute, before a variant is looked up; 0: 32
  // The program has measured that variants are faster: they are used without a trial. This is the
  // only way to variants where the host cannot time calls: on streams other than the CPU's default
  // one, so on all GPUs. They are compiled after ten times `min_calls`.
  bool keeps_unmeasured;
} qn_adaptive_options_t;

// Looks up the generic code of a function, as qn_engine_function does, and makes an adaptive
// function of it. `module` should have this function alone, because a variant compiles all of them.
// `out_info` (may be NULL) is about the generic code. The function retains module and target. It
// serves calls also after the engine is destroyed, with the variants that it has. A child of fork
// has its variants, too, and makes others after its first qn_engine_adaptive_function or
// qn_engine_busy_end. `*out_function` is owned: qn_function_release. Errors: those of
// qn_engine_function; NOT_FOUND (a name that is neither symbol nor scalar of the function),
// INVALID_ARGUMENT (no name or more than eight, a name that is given twice, a scalar that is fixed
// or no integer, bounds without a value, more than eight variants), UNAVAILABLE (the thread cannot
// be started).
QN_API QN_MUST_USE qn_status_t qn_engine_adaptive_function(qn_engine_t* engine, qn_module_t* module,
                                                           qn_target_t* target, const char* name,
                                                           const qn_adaptive_options_t* options,
                                                           qn_lookup_info_t* out_info,
                                                           qn_function_t** out_function);

// Tells the engine that the program has more urgent work, such as requests in a queue: no variant
// is begun. One that is being compiled goes on, at the lowest priority. Calls nest, and each needs
// a qn_engine_busy_end. Takes no lock.
QN_API void qn_engine_busy_begin(qn_engine_t* engine);
// Ends one qn_engine_busy_begin.
QN_API void qn_engine_busy_end(qn_engine_t* engine);

// What became of values that calls had.
typedef enum qn_variant_state {
  QN_VARIANT_SEEN = 1,    // the generic code serves them; `reason` says what is missing
  QN_VARIANT_TRIAL = 2,   // calls take turns
  QN_VARIANT_KEPT = 3,    // the variant serves them
  QN_VARIANT_BANNED = 4,  // refused for good; `reason` says why
} qn_variant_state_t;
// Returns "seen", "trial", "kept" or "banned"; "unknown" for other values. Static storage.
QN_API const char* qn_variant_state_text(qn_variant_state_t state);

// Values of an adaptive function. Borrowed for the callback.
typedef struct qn_variant_info {
  size_t struct_size;        // of the library
  const char* values;        // "rows=4,columns=384", as qn_parse_options_t.set takes them
  qn_variant_state_t state;  // what became of them
  const char* reason;        // why no variant serves them; "" for KEPT
  qn_cache_key_t key;        // of the variant's cache entry; "" before one is there
  uint64_t call_count;       // SEEN: an estimate, which halves each minute; KEPT: served by it
  int64_t generic_ns;        // median of the trial; 0: none
  int64_t special_ns;        // median of the trial; 0: none
} qn_variant_info_t;

// Calls back for the values of an adaptive function that the engine knows: up to 128, of which the
// rare ones are forgotten. Callbacks run in the calling thread and must not call this engine.
// Errors: INVALID_ARGUMENT (the function is not an adaptive one of this engine).
QN_API QN_MUST_USE qn_status_t
qn_engine_variants(qn_engine_t* engine, const qn_function_t* function,
                   void (*on_variant)(void* self, const qn_variant_info_t* variant), void* self);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_ADAPTIVE_H_
