// SPDX-License-Identifier: Apache-2.0
// base/map.c: open addressing with linear probing, at most three quarters full. Removal shifts
// later keys back, so there are no tombstones.
#include "base/map.h"

#include <xxhash.h>

#include "base/alloc.h"

void qn__map_init(qn__map_t* map, qn_allocator_t allocator) {
  *map = (qn__map_t){.allocator = allocator};
}

void qn__map_deinit(qn__map_t* map) {
  if (map->slots) qn__free(map->allocator, map->slots, map->capacity * sizeof *map->slots);
  qn__map_init(map, map->allocator);
}

static size_t home_of(const qn__map_t* map, qn_str_t key) {
  assert(map->count < map->capacity);  // a search ends at an empty slot
  return (size_t)XXH3_64bits(key.data, key.size) & (map->capacity - 1);
}

// Returns the slot of `key`, or the empty slot where it belongs. The map must have an empty slot.
static qn__map_slot_t* find(const qn__map_t* map, qn_str_t key) {
  size_t i = home_of(map, key);
  while (map->slots[i].value && !qn__str_equal(map->slots[i].key, key)) {
    i = (i + 1) & (map->capacity - 1);
  }
  return &map->slots[i];
}

void* qn__map_get(const qn__map_t* map, qn_str_t key) {
  return map->count ? find(map, key)->value : NULL;
}

bool qn__map_check(const qn__map_t* map) {
  if (QN_NEVER((map->capacity & (map->capacity - 1)) != 0)) return false;
  if (QN_NEVER(map->count > map->capacity / 4 * 3)) return false;
  size_t count = 0;
  for (size_t i = 0; i < map->capacity; i++) {
    if (!map->slots[i].value) continue;
    count++;
    if (QN_NEVER(find(map, map->slots[i].key) != &map->slots[i])) return false;
  }
  return !QN_NEVER(count != map->count);
}

static bool enlarge(qn__map_t* map) {
  size_t capacity = 16;
  if (map->capacity && !qn__size_mul(map->capacity, 2, &capacity)) return false;
  qn__map_t larger = {.allocator = map->allocator, .capacity = capacity, .count = map->count};
  larger.slots = qn__alloc_zero(map->allocator, capacity, sizeof *larger.slots);
  if (!larger.slots) return false;
  for (size_t i = 0; i < map->capacity; i++) {
    if (map->slots[i].value) *find(&larger, map->slots[i].key) = map->slots[i];
  }
  qn__map_deinit(map);
  *map = larger;
  assert(qn__map_check(map));
  return true;
}

bool qn__map_put(qn__map_t* map, qn_str_t key, void* value) {
  if (QN_NEVER(!value)) return false;
  if (map->count) {
    qn__map_slot_t* slot = find(map, key);
    if (slot->value) {
      // Replaces the key, too: the memory of the old one may end soon.
      *slot = (qn__map_slot_t){key, value};
      return true;
    }
  }
  if (map->count >= map->capacity / 4 * 3 && !enlarge(map)) return false;
  *find(map, key) = (qn__map_slot_t){key, value};
  map->count++;
  return true;
}

bool qn__map_remove(qn__map_t* map, qn_str_t key) {
  if (!map->count) return false;
  qn__map_slot_t* slot = find(map, key);
  if (!slot->value) return false;
  // Moves each later member of the run into the hole, unless that would put it before its home
  // slot.
  size_t mask = map->capacity - 1;
  size_t hole = (size_t)(slot - map->slots);
  for (size_t i = (hole + 1) & mask; map->slots[i].value; i = (i + 1) & mask) {
    size_t distance = (i - home_of(map, map->slots[i].key)) & mask;
    if (distance >= ((i - hole) & mask)) {
      map->slots[hole] = map->slots[i];
      hole = i;
    }
  }
  map->slots[hole] = (qn__map_slot_t){{NULL, 0}, NULL};
  map->count--;
  assert(qn__map_check(map));
  return true;
}
