// SPDX-License-Identifier: Apache-2.0
// ir/ptrmap.c: open addressing with linear probing, at most half full. Keys are never removed.
#include "ir/ptrmap.h"

#include <assert.h>

#include "base/alloc.h"

void qn__ptrmap_init(qn__ptrmap_t* map, qn_allocator_t allocator) {
  *map = (qn__ptrmap_t){.allocator = allocator};
}

void qn__ptrmap_deinit(qn__ptrmap_t* map) {
  qn__free(map->allocator, map->slots, map->capacity * sizeof *map->slots);
  qn__ptrmap_init(map, map->allocator);
}

// Returns the slot of `key`, or the empty slot for it. Addresses are multiples of 16, so their low
// bits are always 0. The multiplier, from the golden ratio, mixes the other bits.
static qn__ptrmap_slot_t* find(const qn__ptrmap_t* map, const void* key) {
  uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15);
  size_t i = (size_t)(hash >> 32) & (map->capacity - 1);
  while (map->slots[i].key && map->slots[i].key != key) i = (i + 1) & (map->capacity - 1);
  return &map->slots[i];
}

bool qn__ptrmap_check(const qn__ptrmap_t* map) {
  if (QN_NEVER((map->capacity & (map->capacity - 1)) != 0 || map->count > map->capacity / 2)) {
    return false;
  }
  size_t count = 0;
  for (size_t i = 0; i < map->capacity; i++) {
    if (!map->slots[i].key) continue;
    if (QN_NEVER(find(map, map->slots[i].key) != &map->slots[i])) return false;
    count++;
  }
  return !QN_NEVER(count != map->count);
}

void* qn__ptrmap_get(const qn__ptrmap_t* map, const void* key) {
  return map->count ? find(map, key)->value : NULL;
}

bool qn__ptrmap_put(qn__ptrmap_t* map, const void* key, void* value) {
  if (QN_NEVER(!key)) return false;
  if (map->count >= map->capacity / 2) {
    size_t capacity = 32;
    if (map->capacity && !qn__size_mul(map->capacity, 2, &capacity)) return false;
    qn__ptrmap_t larger = {.allocator = map->allocator, .capacity = capacity, .count = map->count};
    larger.slots = qn__alloc_zero(map->allocator, capacity, sizeof *larger.slots);
    if (!larger.slots) return false;
    for (size_t i = 0; i < map->capacity; i++) {
      if (map->slots[i].key) *find(&larger, map->slots[i].key) = map->slots[i];
    }
    qn__ptrmap_deinit(map);
    *map = larger;
    assert(qn__ptrmap_check(map));
  }
  qn__ptrmap_slot_t* slot = find(map, key);
  if (!slot->key) map->count++;
  *slot = (qn__ptrmap_slot_t){key, value};
  return true;
}
