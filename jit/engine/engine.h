// SPDX-License-Identifier: Apache-2.0
// jit/engine/engine.h: the members of an engine. The only place that knows IR, targets, devices,
// cache and generators at once.
//
// Read next: lookup.c.
#ifndef QUERN_JIT_ENGINE_H_
#define QUERN_JIT_ENGINE_H_

#include <stdatomic.h>

#include "base/counter.h"
#include "cache/bundle.h"
#include "cache/disk.h"
#include "jit/call/executable.h"
#include "jit/codegen/generator.h"
#include "jit/engine/background.h"
#include "jit/engine/config.h"
#include "jit/engine/driver_cache.h"
#include "jit/engine/in_flight.h"
#include "jit/engine/pool.h"
#include "jit/engine/request.h"
#include "jit/engine/tier.h"
#include "jit/observe/record.h"
#include "jit/observe/watch.h"

// Members are made in this order and ended in the inverse one. A fork takes their locks in the
// order in which they were made, so a lock that is taken under another one belongs to an older
// member.
struct qn_engine {
  // Of the memory: the owner's, and one for each thread, lookup and future that may outlive it.
  _Atomic uint32_t reference_count;
  // Of the open tiers: the owner's, and one for each lookup in flight. The last user closes them.
  _Atomic uint32_t tier_user_count;
  qn_allocator_t allocator;
  qn__config_t config;
  qn__watch_t* watch;
  qn__generators_t generators;
  qn__table_t table;
  qn__pool_t pool;
  qn__in_flight_t in_flight;
  qn__driver_cache_t* driver_cache;  // how devices put their drivers' data into the directory
  qn__tier_t tiers[QN__TIER_COUNT];  // in the order of the search
  qn__record_t* record;              // NULL: nothing is recorded
  qn__background_t background;       // makes variants of adaptive functions
  bool reads_tiers;                  // all cache modes but off and refresh
  bool writes_tiers;                 // rw and refresh
  bool is_forbidden;                 // QUERN_JIT=forbid
  int64_t lock_timeout_ns;           // the longest wait for another process that makes a key
  int64_t compile_grace_ns;          // how long the destroy waits for compiles that run
  int64_t close_grace_ns;            // and for publishes
  void (*on_compile)(void* self, const qn_compile_event_t* event);
  void* on_compile_self;
  // Destroyed while a compile continues. The objects that callbacks use may be gone.
  _Atomic bool is_left_behind;
  _Atomic uint64_t counters[QN__COUNTER_COUNT];
  _Atomic uint64_t dump_number;
};

void qn__engine_retain(qn_engine_t* engine);
void qn__engine_release(qn_engine_t* engine);
// In a child of fork: for a thread that only the parent has. Frees nothing.
void qn__engine_forget(qn_engine_t* engine);

static inline void qn__count(qn_engine_t* engine, qn__counter_t counter, uint64_t amount) {
  qn__counter_add(&engine->counters[counter], amount);
}

// The cache directory, or NULL. For what other tiers cannot have: data of this machine's drivers
// (driver_cache.c), and tools that list or fill a directory (jit/warm).
static inline qn__disk_t* qn__engine_disk(const qn_engine_t* engine) {
  return engine->tiers[QN__TIER_disk].self;
}

// Keeps the tiers open; the last leave closes them, with record and driver data. Entries that wait
// to be written get a bounded time.
void qn__engine_use_tiers(qn_engine_t* engine);
void qn__engine_leave_tiers(qn_engine_t* engine);
// In a child of fork: for a user that only the parent has. Closes nothing.
void qn__engine_forget_tier_user(qn_engine_t* engine);

#endif  // QUERN_JIT_ENGINE_H_
