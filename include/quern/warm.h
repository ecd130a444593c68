// quern/warm.h: compiles a list of (module, target) into the cache directory before lookups need
// them. A library of its own: libquern-warm.
//
//   qn_warm_list_create(&list);
//   qn_warm_list_read(list, text, size, NULL);          // recorded, or written by hand
//   qn_warm(engine, list, NULL, &result);
//   if (!result.is_warm) ...
//
// The work is done by worker processes (`quern warm --worker`), so that a compiler that crashes or
// hangs on one key harms neither the caller nor the other keys. docs/warm.md describes lists,
// outcomes and the protocol. Lists and calls belong to one thread at a time; different ones may be
// used by different threads.
#ifndef QUERN_WARM_H_
#define QUERN_WARM_H_

#include "quern/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ the list

typedef struct qn_warm_list qn_warm_list_t;

// Owned: qn_warm_list_destroy. Errors: OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm_list_create(qn_warm_list_t** out_list);
// Destroys a list.
QN_API void qn_warm_list_destroy(qn_warm_list_t* list);
// Returns how many different keys the list holds.
QN_API size_t qn_warm_list_count(const qn_warm_list_t* list);

// Adds one key. Module and target are retained. Of `options` (may be NULL) tier and is_checked
// count. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
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

typedef struct qn_warm_read_options {
  size_t struct_size;       // sizeof(qn_warm_read_options_t)
  const char* source_name;  // of the list, in messages. NULL: "<list>"
  const char* directory;    // of relative FILE.qn. NULL: the working directory
  // Replace the targets of the list: each key is added once for each of these. Borrowed for the
  // call.
  qn_target_t* const* targets;
  size_t target_count;
  qn_tier_t tier;  // replaces the tiers of the list; 0: as the list says
  // Called for each line that is left out. May be NULL.
  void (*on_problem)(void* self, const qn_warm_problem_t* problem);
  void* on_problem_self;
} qn_warm_read_options_t;

// Adds the keys of a text: lines that QUERN_RECORD wrote, and lines written by hand,
// `FILE.qn [--target T] [--tier fast|full] [--checked]`, with comments from `#` on. A bad line is
// reported to `on_problem`, counted in `*out_problem_count` (may be NULL) and left out. Any bytes
// are safe. `options` may be NULL. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm_list_read(qn_warm_list_t* list, const char* text,
                                                 size_t size, const qn_warm_read_options_t* options,
                                                 size_t* out_problem_count);

// Adds the entries of the engine's cache directory, whichever compiler made them, so that the
// compiler that is installed now makes them again. Of `options` (may be NULL) targets and tier
// count. Errors: FAILED_PRECONDITION when the engine has no directory, IO, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm_list_add_cache(qn_warm_list_t* list, qn_engine_t* engine,
                                                      const qn_warm_read_options_t* options,
                                                      qn_cached_report_t* out_report);

// ------------------------------------------------------------------------------------ warming

typedef enum qn_warm_outcome {
  QN_WARM_COMPILED = 1,   // and the entry is in the directory
  QN_WARM_CACHED = 2,     // it was there already, in the directory or in a bundle
  QN_WARM_FAILED = 3,     // the generator said no, or the entry could not be written
  QN_WARM_CRASHED = 4,    // two workers died of it
  QN_WARM_TIMED_OUT = 5,  // its worker was killed
  QN_WARM_SKIPPED = 6,    // not tried: cancelled, or no worker can be had
} qn_warm_outcome_t;
#define QN_WARM_OUTCOME_COUNT 7
// "compiled", "cached", "failed", "crashed", "timed_out", "skipped". Static storage.
QN_API const char* qn_warm_outcome_text(qn_warm_outcome_t outcome);

// One key of the list, done. Borrowed for the callback.
typedef struct qn_warm_item {
  size_t struct_size;  // of the library
  const char* name;    // "softmax@0123456789ab": the first function and the key
  qn_cache_key_t key;
  const char* target_json;
  qn_tier_t tier;
  bool is_checked;
  qn_warm_outcome_t outcome;
  int64_t compile_ns;      // COMPILED
  uint32_t attempt_count;  // workers that had it
  int signal;              // CRASHED: the number of the signal; 0: the worker exited
  qn_status_code_t code;   // FAILED
  const char* error;       // "" for COMPILED and CACHED
} qn_warm_item_t;

// What was done until now: to on_progress, and in the end from qn_warm.
typedef struct qn_warm_result {
  size_t struct_size;  // sizeof(qn_warm_result_t); for on_progress that of the library
  size_t total;
  size_t done;
  size_t counts[16];  // by outcome, of which there are QN_WARM_OUTCOME_COUNT
  double rate_per_s;  // of keys that workers made; 0 before the first
  int64_t elapsed_ns;
  int64_t eta_ns;  // negative: not known yet
  bool is_warm;    // in the end: every key is COMPILED or CACHED
  bool is_cancelled;
  uint32_t worker_count;  // processes that were started, those in place of dead ones too
} qn_warm_result_t;

typedef struct qn_warm_options {
  size_t struct_size;  // sizeof(qn_warm_options_t)
  // Of the coordinator. Zero-initialised: the default.
  qn_allocator_t allocator;
  uint32_t jobs;          // worker processes; 0: one per core that this process may use
  int64_t time_limit_ns;  // for one key; 0: 60 s
  // A program that calls qn_warm_worker when it is started as `COMMAND warm --worker`. NULL: the
  // command `quern` beside the library, or in PATH. It must be of this version of the library.
  const char* command;
  // Asks only: nothing is compiled and no worker started; keys that are not cached come out as
  // SKIPPED.
  bool is_dry_run;
  // Called in the calling thread for every key that is done (`item`) and at least five times a
  // second (`item` NULL). False cancels: workers are ended and the rest is SKIPPED. May be NULL.
  bool (*on_progress)(void* self, const qn_warm_result_t* so_far, const qn_warm_item_t* item);
  void* on_progress_self;
} qn_warm_options_t;

// Compiles what the list holds and the engine's cache does not, in worker processes that have the
// engine's options (its directory, namespace, bundles, remote tier, generators), and returns when
// all is done or given up. A key for another processor is compiled and stored, but not loaded. A
// worker that dies is replaced, and its key tried once more; one that takes longer than the timeout
// is killed. All workers have ended when the call returns, and end by themselves when the caller
// dies.
//
// Safe in a program with threads: processes are spawned, never forked alone; no signal handler is
// changed, no SIGPIPE raised, and only the processes that it started are waited for. `options` may
// be NULL. What goes wrong with single keys is an outcome, not an error. Errors: INVALID_ARGUMENT;
// FAILED_PRECONDITION when the engine has no cache directory that it may write; UNAVAILABLE when no
// worker can be started, with what it said (keys done until then are in `*out_result`);
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_warm(qn_engine_t* engine, const qn_warm_list_t* list,
                                       const qn_warm_options_t* options,
                                       qn_warm_result_t* out_result);

// Serves the coordinator at the other end of the socket `fd` (borrowed) until it closes the socket.
// Asks the system to kill this process when the thread that started it has ended. For a process
// that does nothing else. Errors: another version, bad options, a lost coordinator; the first two
// are sent to the coordinator as well.
QN_API QN_MUST_USE qn_status_t qn_warm_worker(int fd);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_WARM_H_
