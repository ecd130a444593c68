// SPDX-License-Identifier: Apache-2.0
// ir/ptrmap.h: a hash map from the address of a node to a pointer, for facts about nodes that must
// not be written to (clone, verifier, builder).
//
// Not here: maps keyed by text (base/map.h).
#ifndef QUERN_IR_PTRMAP_H_
#define QUERN_IR_PTRMAP_H_

#include "base/base.h"

typedef struct qn__ptrmap_slot {
  const void* key;  // NULL: the slot is empty
  void* value;
} qn__ptrmap_slot_t;

typedef struct qn__ptrmap {
  qn_allocator_t allocator;
  qn__ptrmap_slot_t* slots;
  size_t capacity;  // a power of two, or 0
  size_t count;
} qn__ptrmap_t;

// Allocates nothing.
void qn__ptrmap_init(qn__ptrmap_t* map, qn_allocator_t allocator);
void qn__ptrmap_deinit(qn__ptrmap_t* map);
// NULL when absent.
void* qn__ptrmap_get(const qn__ptrmap_t* map, const void* key);
// Inserts or replaces. `key` must not be NULL. False when out of memory.
bool qn__ptrmap_put(qn__ptrmap_t* map, const void* key, void* value);

// Checks the invariants: the capacity is a power of two, at most half of the slots are taken, and
// each key is found. For assertions and tests.
bool qn__ptrmap_check(const qn__ptrmap_t* map);

#endif  // QUERN_IR_PTRMAP_H_
