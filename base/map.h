// SPDX-License-Identifier: Apache-2.0
// base/map.h: a hash map from text to a pointer, for symbol tables and registries.
//
// Keys are borrowed and must outlive the map. Thread rule: one thread at a time.
#ifndef QUERN_BASE_MAP_H_
#define QUERN_BASE_MAP_H_

#include "base/base.h"

typedef struct qn__map_slot {
  qn_str_t key;
  void* value;  // NULL: the slot is empty
} qn__map_slot_t;

typedef struct qn__map {
  qn_allocator_t allocator;
  qn__map_slot_t* slots;
  size_t capacity;  // a power of two, or 0
  size_t count;
} qn__map_t;

void qn__map_init(qn__map_t* map, qn_allocator_t allocator);
void qn__map_deinit(qn__map_t* map);
// Returns NULL when the key is absent.
void* qn__map_get(const qn__map_t* map, qn_str_t key);
// Inserts or replaces; `value` must not be NULL. False without memory.
bool qn__map_put(qn__map_t* map, qn_str_t key, void* value);
bool qn__map_remove(qn__map_t* map, qn_str_t key);
// Tests that the count is right, that a slot is free, and that every key is found. For tests and
// for debug builds.
bool qn__map_check(const qn__map_t* map);

#endif  // QUERN_BASE_MAP_H_
