// SPDX-License-Identifier: Apache-2.0
// jit/report/why_nearest.c: finds the entry whose key is nearest to a missed one.
//
// Reads only the heads of entries (cache/entry_head.h). Sections are compared byte by byte; the key
// is their hash, so it proves them undamaged. Nothing is counted, touched or removed.
#include "base/alloc.h"
#include "cache/entry_head.h"
#include "jit/codegen/artifact.h"
#include "jit/engine/engine.h"
#include "jit/report/why.h"

// The weight of an equal module: more than that of all other sections together.
#define SCORE_MODULE 64u
#define SHOWN_FUNCTIONS 3u
// The search reads this many entries even after its deadline. They take little time, and a process
// that was suspended until the deadline would otherwise find nothing.
#define LEAST_ENTRIES 100u

typedef struct search {
  qn_span_t preimage;
  qn_hash128_t key;
  uint64_t max_entries;
  int64_t deadline_ns;
  qn__entry_head_t* head;
  qn__neighbour_t* best;
} search_t;

static bool is_equal(qn_span_t a, qn_span_t b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static unsigned score_of(qn_span_t wanted, qn_span_t other) {
  static const uint32_t tags[] = {
#define QN_SECTION(name, tag, text, is_text, doc) tag,
#include "cache/sections.inc"
#undef QN_SECTION
  };
  unsigned score = 0;
  for (size_t i = 0; i < QN_COUNT_OF(tags); i++) {
    if (!is_equal(qn__preimage_section(wanted, tags[i]), qn__preimage_section(other, tags[i]))) {
      continue;
    }
    score += tags[i] == QN__SECTION_MODULE ? SCORE_MODULE : 1;
  }
  return score;
}

// Returns whether the limits allow one more entry, and counts it.
static bool has_time(void* self) {
  search_t* search = self;
  qn__neighbour_t* best = search->best;
  bool is_late = best->looked_count >= LEAST_ENTRIES && qn__now_ns() > search->deadline_ns;
  best->was_stopped = best->looked_count >= search->max_entries || is_late;
  if (!best->was_stopped) best->looked_count++;
  return !best->was_stopped;
}

// Keeps the entry whose head was read, if it is nearer than the best one.
static void consider(void* self, const qn__tier_t* tier, size_t part) {
  search_t* search = self;
  const qn__entry_head_t* head = search->head;
  if (qn__preimage_has(head->preimage, QN__SECTION_DRIVER)) return;  // no code
  qn__neighbour_t* best = search->best;
  unsigned score = score_of(search->preimage, head->preimage);
  bool is_nearer = !best->is_set || score > best->score ||
                   (score == best->score && head->header.created_ns > best->created_ns);
  if (!is_nearer || qn__hash128_equal(head->header.key, search->key)) return;
  qn__buffer_clear(&best->preimage);
  qn__buffer_bytes(&best->preimage, head->preimage.data, head->preimage.size);
  best->score = score;
  best->created_ns = head->header.created_ns;
  best->key = head->header.key;
  best->tier = &tier->engine->tiers[tier->id];
  best->part = part;
  best->is_set = true;
}

qn_status_t qn__neighbour_find(qn_engine_t* engine, qn_span_t preimage, qn_hash128_t key,
                               uint64_t max_entries, int64_t deadline_ns,
                               qn__neighbour_t* neighbour) {
  search_t search = {.preimage = preimage,
                     .key = key,
                     .max_entries = max_entries,
                     .deadline_ns = deadline_ns,
                     .best = neighbour};
  search.head = qn__alloc(engine->allocator, sizeof *search.head);
  if (!search.head) return qn__out_of_memory("an explanation");
  qn__tier_scan_t scan = {
      .head = search.head, .has_time = has_time, .on_entry = consider, .self = &search};
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    if (tier->table->scan && !neighbour->was_stopped) tier->table->scan(tier, &scan);
  }
  qn__free(engine->allocator, search.head, sizeof *search.head);
  return qn__buffer_status(&neighbour->preimage, "an explanation");
}

static void put_functions(const qn_engine_t* engine, const qn__entry_t* entry, qn__buffer_t* out) {
  qn__arena_t arena;
  qn__arena_init(&arena, engine->allocator);
  qn_artifact_t artifact;
  qn_status_t status = qn__artifact_decode(entry->metadata, entry->payload, &arena, &artifact);
  if (qn_ok(status)) {
    for (size_t i = 0; i < artifact.function_count && i < SHOWN_FUNCTIONS; i++) {
      qn__buffer_format(out, "%s, ", artifact.functions[i].name);
    }
  }
  qn_status_free(status);
  qn__arena_deinit(&arena);
}

void qn__neighbour_functions(const qn_engine_t* engine, const qn__neighbour_t* neighbour,
                             qn__buffer_t* out) {
  qn__tier_t* tier = neighbour->tier;
  qn__hit_t hit;
  if (tier->table->inspect(tier, neighbour->part, neighbour->key, &hit) != QN__GET_HIT) return;
  put_functions(engine, &hit.entry, out);
  tier->table->release(tier, neighbour->part, &hit);
}
