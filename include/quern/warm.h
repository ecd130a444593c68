// SPDX-License-Identifier: Apache-2.0
// quern/warm.h: compiling lists of (module, target) into the cache directory ahead of lookups. A
// library of its own: libquern-warm.
//
//   qn_warm_list_create(&list);
//   qn_warm_list_read(list, text, size, NULL);          // recorded, or written by hand
//   qn_warm(engine, list, NULL, &result);
//   if (!result.is_warm) ...
//
// Worker processes (`quern warm --worker`) do the work, so that a compiler that crashes or hangs on
// one key harms neither the caller nor the other keys. docs/warm.md describes lists, outcomes and
// the protocol. One thread at a time may use a list.
#ifndef QUERN_WARM_H_
#define QUERN_WARM_H_

#include "quern/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ the list
//
// A list holds each key once: a module, a target, a tier and whether the code is checked.

// A list of keys.
typedef struct qn_warm_list qn_warm_list_t;

// Makes an empty list. `*out_list` is owned: qn_warm_list_destroy. Errors: OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm_list_create(qn_warm_list_t** out_list);
// Destroys a list.
QN_API void qn_warm_list_destroy(qn_warm_list_t* list);
// Returns how many different keys the list holds.
QN_API size_t qn_warm_list_count(const qn_warm_list_t* list);

// Adds one key. Module and target are retained. Of `options` (may be NULL) tier and is_checked are
// used. Errors: INVALID_ARGUMENT (options), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm_list_add(qn_warm_list_t* list, qn_module_t* module,
                                                qn_target_t* target,
                                                const qn_lookup_options_t* options);

// A line that was left out. Borrowed for the callback.
typedef struct qn_warm_problem {
  size_t struct_size;       // of the library
  const char* source_name;  // as the options name it
  uint32_t line;            // from 1
  const char* message;      // what was expected; a module's diagnostics are rendered
} qn_warm_problem_t;

// How a list is read.
typedef struct qn_warm_read_options {
  size_t struct_size;       // sizeof(qn_warm_read_options_t)
  const char* source_name;  // of the list, in messages. NULL: "<list>"
  const char* directory;    // of relative FILE.qn. NULL: the working directory
  // Replace the targets of the list: each key is added once for each of these. Borrowed for the
  // call.
  qn_target_t* const* targets;
  size_t target_count;  // of `targets`; 0: as the list says
  qn_tier_t tier;       // replaces the tiers of the list; 0: as the list says
  // Called for each line that is left out. May be NULL.
  void (*on_problem)(void* self, const qn_warm_problem_t* problem);
  void* on_problem_self;  // passed to on_problem
} qn_warm_read_options_t;

// Adds the keys of a text: lines that QUERN_RECORD wrote, and lines written by hand,
// `FILE.qn [--target T] [--tier fast|full] [--checked]`, with comments from `#` on. A bad line is
// reported to `on_problem`, counted in `*out_problem_count` (may be NULL) and left out; so is a
// file that cannot be read. Any bytes are safe. `options` may be NULL. Errors: INVALID_ARGUMENT
// (options), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm_list_read(qn_warm_list_t* list, const char* text,
                                                 size_t size, const qn_warm_read_options_t* options,
                                                 size_t* out_problem_count);

// Adds the entries of the engine's cache directory, whichever compiler made them, so that the
// compiler that is installed now makes them again. Of `options` (may be NULL) targets and tier are
// used. `out_report` may be NULL. Errors: INVALID_ARGUMENT (options); those of qn_engine_cached
// (cache.h).
QN_API QN_MUST_USE qn_status_t qn_warm_list_add_cache(qn_warm_list_t* list, qn_engine_t* engine,
                                                      const qn_warm_read_options_t* options,
                                                      qn_cached_report_t* out_report);

// ------------------------------------------------------------------------------------ warming
//
// A warm-up ends with an outcome for each key of the list.

// How warming a key ended.
typedef enum qn_warm_outcome {
  QN_WARM_COMPILED = 1,   // and the entry is in the directory
  QN_WARM_CACHED = 2,     // it was there already, in the directory or in a bundle
  QN_WARM_FAILED = 3,     // the generator said no, or the entry could not be written
  QN_WARM_CRASHED = 4,    // two workers died of it
  QN_WARM_TIMED_OUT = 5,  // its worker was killed
  QN_WARM_SKIPPED = 6,    // not tried: cancelled, or no worker can be had
} qn_warm_outcome_t;
// One more than the last outcome.
#define QN_WARM_OUTCOME_COUNT 7
// Returns "compiled", "cached", "failed", "crashed", "timed_out" or "skipped"; "none" for other
// values. Static storage.
QN_API const char* qn_warm_outcome_text(qn_warm_outcome_t outcome);

// One key of the list, done. Borrowed for the callback.
typedef struct qn_warm_item {
  size_t struct_size;         // of the library
  const char* name;           // "softmax@0123456789ab": the first function and the key
  qn_cache_key_t key;         // of the entry
  const char* target_json;    // the target's canonical form
  qn_tier_t tier;             // of the lookup
  bool is_checked;            // of the lookup
  qn_warm_outcome_t outcome;  // how it ended
  int64_t compile_ns;         // COMPILED
  uint32_t attempt_count;     // workers that had it
  int signal;                 // CRASHED: the number of the signal; 0: the worker exited
  qn_status_code_t code;      // FAILED
  const char* error;          // "" for COMPILED and CACHED
} qn_warm_item_t;

// What a warm-up has done: until now for on_progress, in the end from qn_warm.
typedef struct qn_warm_result {
  size_t struct_size;     // sizeof(qn_warm_result_t); for on_progress that of the library
  size_t total;           // keys of the list
  size_t done;            // keys that have an outcome
  size_t counts[16];      // by outcome, of which there are QN_WARM_OUTCOME_COUNT
  double rate_per_s;      // of keys that workers compiled; 0 before the first
  int64_t elapsed_ns;     // since the call began
  int64_t eta_ns;         // the time that is left; negative: not known yet
  bool is_warm;           // in the end: every key is COMPILED or CACHED
  bool is_cancelled;      // on_progress returned false
  uint32_t worker_count;  // processes that were started, those in place of dead ones too
} qn_warm_result_t;

// How a list is warmed.
typedef struct qn_warm_options {
  size_t struct_size;  // sizeof(qn_warm_options_t)
  // Of the coordinator. Zero-initialised: the default.
  qn_allocator_t allocator;
  uint32_t jobs;          // worker processes; 0: one per core that this process may use
  int64_t time_limit_ns;  // for one key; 0: 60 s
  // A program that calls qn_warm_worker when it is started as `COMMAND warm --worker`. NULL: the
  // command `quern` beside the library, or in PATH. It must be of this version of the library.
  const char* command;
  // Only asks: compiles nothing and starts no worker. Keys that are not cached are SKIPPED.
  bool is_dry_run;
  // Called in the calling thread for every key that is done (`item`) and at least five times a
  // second (`item` NULL). False cancels: workers end, and the other keys are SKIPPED. May be NULL.
  bool (*on_progress)(void* self, const qn_warm_result_t* so_far, const qn_warm_item_t* item);
  void* on_progress_self;  // passed to on_progress
} qn_warm_options_t;

// Compiles the keys of the list that the engine's cache does not have, in worker processes that
// have the engine's options (its directory, namespace, bundles, remote tier, generators). Returns
// when every key has an outcome. A key for another processor is compiled and stored, but not
// loaded. A worker that dies is replaced, and its key tried once more; one that exceeds the time
// limit is killed. All workers have ended when the call returns, and end by themselves if the
// caller dies.
//
// Safe in a program with threads: it spawns processes and never forks alone, changes no signal
// handler, raises no SIGPIPE, and waits only for its own processes. `options` and `out_result` may
// be NULL. A key that cannot be compiled is an outcome, not an error. Errors: INVALID_ARGUMENT
// (options, a path beyond the system's limit), FAILED_PRECONDITION (the engine has no cache
// directory that it may write), UNAVAILABLE, NOT_FOUND, PERMISSION_DENIED and IO (no worker can be
// started, with its own message; `*out_result` has the keys that were done before), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm(qn_engine_t* engine, const qn_warm_list_t* list,
                                       const qn_warm_options_t* options,
                                       qn_warm_result_t* out_result);

// Serves the coordinator at the other end of the socket `fd` (borrowed) until it closes the socket,
// in a process that does nothing else. Asks the system to kill this process when the thread that
// started it has ended. Errors: FAILED_PRECONDITION (the coordinator is of another version), those
// of qn_engine_create with its options, DATA_LOSS (it sent malformed bytes), IO (it is gone),
// OUT_OF_MEMORY. The first two are sent to the coordinator too.
QN_API QN_MUST_USE qn_status_t qn_warm_worker(int fd);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_WARM_H_
