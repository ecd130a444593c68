// SPDX-License-Identifier: Apache-2.0
// jit/engine/tier.h: the tiers below the memory table: an array in the engine, and one table of
// functions for all of them.
//
// A tier keeps verified entries: the cache directory, bundles, a remote store. Lookups, `why`,
// gauges, counters and warm-up loop over the array and know no tier by name. To add one, write
// tier_x.c with its table and add X(x) to QN__TIERS; lookups search in that order.
//
// Requirements:
//  1. A failure in a tier is never an error of a lookup: it is a miss and a counter.
//  2. A tier that cannot be opened is logged and counted, and the engine works without it.
//  3. Only the engine opens and closes tiers. A lookup in flight keeps them open (engine.h).
// Not here: the lookup itself (lookup_task.c). Read next: tiers.c, tier_disk.c.
#ifndef QUERN_JIT_TIER_H_
#define QUERN_JIT_TIER_H_

#include "base/counter.h"
#include "cache/entry_head.h"
#include "cache/hit.h"
#include "jit/observe/counters.h"
#include "jit/observe/gauges.h"
#include "jit/observe/watch.h"

#define QN__TIERS(X) \
  X(disk)            \
  X(bundles)         \
  X(remote)

typedef enum qn__tier_id {
#define X(name) QN__TIER_##name,
  QN__TIERS(X)
#undef X
      QN__TIER_COUNT
} qn__tier_id_t;

typedef struct qn__tier qn__tier_t;

// What all tiers need to open.
typedef struct qn__tier_options {
  const uid_t* owners;  // users besides this one whose files count
  size_t owner_count;
} qn__tier_options_t;

// The right to make one key. Advisory: without one, two may compile the same key.
typedef struct qn__claim {
  bool is_held;
  void* disk;  // the claim in the directory: owned
} qn__claim_t;

// Receives the entries of a tier (qn__tier_table_t.scan).
typedef struct qn__tier_scan {
  qn__entry_head_t* head;        // of the entry
  bool (*has_time)(void* self);  // before each entry; false ends the scan
  void (*on_entry)(void* self, const qn__tier_t* tier, size_t part);
  void* self;
} qn__tier_scan_t;

// Functions may be NULL where the comment says so. `part` is below the tier's part_count.
typedef struct qn__tier_table {
  const char* name;        // in messages: "directory"
  qn_source_t source;      // what a lookup reports that hit here
  qn__stage_t stage;       // of the time that gets take
  qn__counter_t hits;      // lookups answered here
  qn__counter_t rejected;  // verified entries that the engine or the device did not accept
  qn__counter_t claimed;   // lookups answered while they claimed the key
  bool is_remote;          // waits for a network: searched last, once, if a caller allows it

  // Opens the tier as the configuration says: sets `self` and `part_count`, or leaves them zero.
  // Errors: OUT_OF_MEMORY.
  qn_status_t (*open)(qn__tier_t* tier, const qn__tier_options_t* options);
  // Lets queued puts continue for at most `grace_ns`. Does nothing if `self` is NULL.
  void (*close)(qn__tier_t* tier, int64_t grace_ns);

  // Only QN__GET_HIT leaves something to release.
  qn__get_result_t (*get)(qn__tier_t* tier, size_t part, const qn__expectation_t* expected,
                          qn__hit_t* out_hit);
  void (*release)(qn__tier_t* tier, size_t part, qn__hit_t* hit);
  // Copies the entry and writes it later; the claim ends with it. NULL: the tier is read only.
  void (*put)(qn__tier_t* tier, const qn__entry_t* entry, qn__claim_t* claim);
  // Waits until `deadline_ns` at most for another process or machine that makes the key. HIT: it
  // has put the entry, to be released as part 0. Else the caller makes it, with or without a claim.
  // NULL: no claims.
  qn__get_result_t (*claim)(qn__tier_t* tier, const qn__expectation_t* expected,
                            int64_t deadline_ns, qn__claim_t* claim, qn__hit_t* out_hit);
  // Releases a held claim without an entry. NULL if `claim` is.
  void (*give_back)(qn__tier_t* tier, qn_hash128_t key, qn__claim_t* claim);
  // From now on no claim waits: the engine ends. May be NULL.
  void (*end_claims)(qn__tier_t* tier);
  // Waits until every put is done or abandoned; false on a timeout. May be NULL.
  bool (*flush)(qn__tier_t* tier, int64_t timeout_ns);

  // The counters of one part; those of all parts are summed.
  qn__counter_set_t (*counters)(const qn__tier_t* tier, size_t part);
  void (*gauges)(const qn__tier_t* tier, qn__gauge_values_t* values);
  // Names a part, "the directory '/x'", and the tier in a list of places to look, "2 bundles".
  void (*describe)(const qn__tier_t* tier, size_t part, qn__buffer_t* out);
  void (*describe_all)(const qn__tier_t* tier, qn__buffer_t* out);
  // Reads an entry by its key without counting or touching it. NULL: `why` skips the tier.
  qn__get_result_t (*inspect)(qn__tier_t* tier, size_t part, qn_hash128_t key, qn__hit_t* out_hit);
  // Reads the beginnings of all entries. NULL where `inspect` is.
  void (*scan)(qn__tier_t* tier, const qn__tier_scan_t* scan);
} qn__tier_table_t;

struct qn__tier {
  const qn__tier_table_t* table;  // NULL before the open
  qn__tier_id_t id;
  qn_engine_t* engine;
  void* self;         // what the tier works with
  size_t part_count;  // 0: the engine has no such tier; else 1, or the number of bundles
  bool has_claims;
};

// The open tiers in their order; NULL after the last.
qn__tier_t* qn__tier_first(qn_engine_t* engine);
qn__tier_t* qn__tier_next(const qn__tier_t* tier);

// Opens the tiers as the configuration says; closes them in the inverse order. Errors:
// OUT_OF_MEMORY.
qn_status_t qn__tiers_open(qn_engine_t* engine);
void qn__tiers_close(qn_engine_t* engine);

// Hands an entry of the artifact to every tier that is written; `claims` has one per tier, which
// the put ends. All inputs are borrowed for the call. Errors: OUT_OF_MEMORY.
qn_status_t qn__tiers_put(qn_engine_t* engine, qn_hash128_t key, qn_span_t preimage,
                          const qn_module_t* module, const qn_artifact_t* artifact,
                          int64_t compile_ns, qn__claim_t claims[QN__TIER_COUNT]);

// ---- for tiers (tiers.c)

// Logs and counts an error of an open, and forgets it, but for OUT_OF_MEMORY.
qn_status_t qn__tier_unusable(const qn__tier_t* tier, qn__counter_t counter, const char* what,
                              qn_status_t status);
// Where the plugin lies if not beside the library: the folder of the generators, or "".
const char* qn__tier_plugin_directory(const qn__tier_t* tier, const char* plugin);

#endif  // QUERN_JIT_TIER_H_
