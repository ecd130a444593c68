// SPDX-License-Identifier: Apache-2.0
// jit/engine/table.h: the memory tier: executables by (module, target, build options).
//
// Bounded: executables that only the table holds are unloaded, least recently used first, so that a
// process with ever new modules does not grow. A later lookup finds them in the cache directory.
//
// Not here: lookups in flight (in_flight.h). A lookup takes one lock that only threads on its own
// CPU share; inserting takes all of them. Read next: table.c.
#ifndef QUERN_JIT_TABLE_H_
#define QUERN_JIT_TABLE_H_

#include <stdatomic.h>

#include "base/digest.h"
#include "base/fork.h"
#include "base/short_lock.h"
#include "base/stripe.h"
#include "ir/ir.h"
#include "quern/backend.h"
#include "quern/observe.h"

// Identifies an executable within an engine, whose generators and namespace do not change.
typedef struct qn__ident {
  qn_hash128_t module_digest;
  qn_hash128_t target_digest;
  qn__sha256_t module_second_digest;
  uint64_t options;  // tier and checks
} qn__ident_t;
static inline bool qn__ident_equal(const qn__ident_t* a, const qn__ident_t* b) {
  return memcmp(a, b, sizeof *a) == 0;
}

#define QN__TABLE_STRIPES QN__MAX_STRIPES

typedef struct qn__table_slot {
  qn__ident_t ident;
  qn_executable_t* executable;  // retained; NULL: empty or removed
  bool is_used;                 // also after removal, so that probing goes on
  // Found since the hand's last visit. Readers of any stripe set it, but only when it is not set,
  // so that a hit costs a load.
  _Atomic bool is_recent;
  bool is_held;  // by others too, at the hand's last visit
} qn__table_slot_t;

typedef struct qn__table_stats {
  uint64_t hit_count;      // of qn__table_get
  uint64_t evicted_count;  // to keep the bounds
  uint64_t bytes;          // of all executables in the table, held by others or not
  uint64_t entry_count;
} qn__table_stats_t;

typedef struct qn__table {
  qn_allocator_t allocator;
  // Padded, not aligned: allocators promise an alignment of 16 bytes only.
  struct {
    qn__short_lock_t lock;
    uint64_t hit_count;  // of lookups on its CPU; under its lock
    char padding[128 - 2 * sizeof(uint64_t)];
  } stripes[QN__TABLE_STRIPES];
  // All below: written under all locks, read under one.
  qn__table_slot_t* slots;
  size_t capacity;    // a power of two, or 0
  size_t used_count;  // slots that are not fresh
  size_t entry_count;
  uint64_t bytes;
  // Of those slots whose `is_held` is set.
  size_t held_count;
  uint64_t held_bytes;
  uint64_t evicted_count;
  uint64_t max_bytes;
  uint64_t max_entries;
  size_t hand;  // the slot to be visited next
  qn__fork_node_t fork_node;
} qn__table_t;

// The bounds count executables that only the table holds; each put keeps them. The table must not
// move afterwards.
qn_status_t qn__table_init(qn__table_t* table, uint64_t max_bytes, uint64_t max_entries,
                           qn_allocator_t allocator);
// Drops the table's references; executables that others hold stay alive.
void qn__table_deinit(qn__table_t* table);
// Finds an executable and retains it, or NULL. Counts a hit.
qn_executable_t* qn__table_get(qn__table_t* table, const qn__ident_t* ident);
// The same without counting.
qn_executable_t* qn__table_peek(qn__table_t* table, const qn__ident_t* ident);
qn__table_stats_t qn__table_stats(qn__table_t* table);
// Retains the executable and replaces that of the same ident. Beyond the bounds, drops executables
// that only the table holds, least recently used first. Errors: OUT_OF_MEMORY (nothing changed).
qn_status_t qn__table_put(qn__table_t* table, const qn__ident_t* ident,
                          qn_executable_t* executable);
// Drops the table's reference. True if there was one.
bool qn__table_remove(qn__table_t* table, const qn__ident_t* ident);
// Checks the requirements of table.c. The caller holds all locks, or is the only thread.
bool qn__table_check(const qn__table_t* table);

#endif  // QUERN_JIT_TABLE_H_
