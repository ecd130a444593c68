// SPDX-License-Identifier: Apache-2.0
// jit/observe/keyset.c: a set of keys by open addressing. Keys are hashes, so their first bytes
// give the slot.
#include "jit/observe/keyset.h"

#include "base/alloc.h"

static bool is_empty(const qn_hash128_t* slot) {
  static const qn_hash128_t zeros = {{0}};
  return qn__hash128_equal(*slot, zeros);
}

// Returns the slot of the key, or the empty slot to store it in.
static qn_hash128_t* find_slot(qn_hash128_t* slots, size_t capacity, qn_hash128_t key) {
  size_t at;
  memcpy(&at, key.bytes, sizeof at);
  at &= capacity - 1;
  while (!is_empty(&slots[at]) && !qn__hash128_equal(slots[at], key)) {
    at = (at + 1) & (capacity - 1);
  }
  return &slots[at];
}

static bool grow(qn__keyset_t* set) {
  size_t capacity = set->capacity ? 2 * set->capacity : 64;
  qn_hash128_t* slots = qn__alloc_zero(set->allocator, capacity, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < set->capacity; i++) {
    if (is_empty(&set->slots[i])) continue;
    *find_slot(slots, capacity, set->slots[i]) = set->slots[i];
  }
  qn__free(set->allocator, set->slots, set->capacity * sizeof *slots);
  set->slots = slots;
  set->capacity = capacity;
  return true;
}

void qn__keyset_init(qn__keyset_t* set, qn_allocator_t allocator) {
  *set = (qn__keyset_t){.allocator = allocator};
}

void qn__keyset_deinit(qn__keyset_t* set) {
  qn__free(set->allocator, set->slots, set->capacity * sizeof *set->slots);
  qn__keyset_init(set, set->allocator);
}

bool qn__keyset_has(const qn__keyset_t* set, qn_hash128_t key) {
  if (is_empty(&key)) return true;
  return set->capacity && !is_empty(find_slot(set->slots, set->capacity, key));
}

qn__keyset_answer_t qn__keyset_add(qn__keyset_t* set, qn_hash128_t key) {
  if (qn__keyset_has(set, key)) return QN__KEYSET_KNOWN;
  if (2 * (set->count + 1) > set->capacity && !grow(set)) return QN__KEYSET_NO_MEMORY;
  *find_slot(set->slots, set->capacity, key) = key;
  set->count++;
  assert(2 * set->count <= set->capacity);  // so that find_slot ends
  return QN__KEYSET_NEW;
}
