// SPDX-License-Identifier: Apache-2.0
// ir/call_place.c: see call_place.h.
#include "ir/call_place.h"

// Texts are shorter (module.c).
#define FIRST_NUMBER UINT32_C(0x80000000)

// Returns an array of the arena with room for one more item, or NULL.
static void* grow(qn__arena_t* arena, void* items, uint32_t count, uint32_t* capacity,
                  size_t size_bytes) {
  if (count < *capacity) return items;
  uint32_t larger = *capacity ? 2 * *capacity : 8;
  void* grown = qn__arena_alloc_array(arena, larger, size_bytes);
  if (!grown) return NULL;
  if (count > 0) memcpy(grown, items, count * size_bytes);
  *capacity = larger;
  return grown;
}

bool qn__places_add_call(qn__ir_places_t* places, qn__arena_t* arena, const char* name,
                         qn__ir_loc_t loc) {
  qn__ir_call_t* calls =
      grow(arena, places->calls, places->call_count, &places->call_capacity, sizeof *calls);
  if (!calls) return false;
  places->calls = calls;
  calls[places->call_count++] = (qn__ir_call_t){name, loc};
  return true;
}

qn__ir_loc_t qn__places_add(qn__ir_places_t* places, qn__arena_t* arena, qn__ir_loc_t text,
                            uint32_t call) {
  qn__ir_place_t* items =
      grow(arena, places->items, places->count, &places->capacity, sizeof *items);
  if (!items) return text;
  places->items = items;
  items[places->count] = (qn__ir_place_t){text, call};
  return (qn__ir_loc_t){FIRST_NUMBER + places->count++, text.size};
}

const qn__ir_place_t* qn__places_find(const qn__ir_places_t* places, qn__ir_loc_t loc) {
  if (!places || loc.begin < FIRST_NUMBER || loc.begin - FIRST_NUMBER >= places->count) return NULL;
  return &places->items[loc.begin - FIRST_NUMBER];
}

const qn__ir_call_t* qn__places_resolve(const qn__ir_places_t* places, qn__ir_loc_t* loc) {
  const qn__ir_place_t* place = qn__places_find(places, *loc);
  if (!place) return NULL;
  *loc = place->text;
  return &places->calls[place->call];
}

bool qn__places_copy(const qn__ir_places_t* from, qn__arena_t* arena, qn__ir_places_t* out_places) {
  qn__ir_places_t to = {.count = from->count,
                        .capacity = from->count,
                        .call_count = from->call_count,
                        .call_capacity = from->call_count};
  to.items = qn__arena_alloc_array(arena, to.count, sizeof *to.items);
  to.calls = qn__arena_alloc_array(arena, to.call_count, sizeof *to.calls);
  if (!to.items || !to.calls) return false;
  if (to.count > 0) memcpy(to.items, from->items, to.count * sizeof *to.items);
  for (uint32_t i = 0; i < to.call_count; i++) {
    to.calls[i] = from->calls[i];
    to.calls[i].name = qn__arena_cstr(arena, qn__str(from->calls[i].name));
    if (!to.calls[i].name) return false;
  }
  *out_places = to;
  return true;
}
