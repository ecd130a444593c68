// SPDX-License-Identifier: Apache-2.0
// jit/engine/adaptive.c: the evidence of an adaptive function: which values calls have, how long
// they take, and what trials say.
//
// Requirements:
//  1. Evidence comes from samples alone, each of which stands for as many calls as the period of
//     the samples. It is halved each minute.
//  2. Banned values stay, so that "for good" holds; the table is bounded, and rare values make room
//     for others. A table full of banned ones takes no more.
//  3. A trial ends by its turns alone: pairs of one call of each code, in the order of the calls.
//     The variant is kept if it was faster in so many pairs that chance does not explain it (three
//     standard deviations of a fair coin), and its median is at least a 32nd shorter. It is banned
//     if it was faster in at most half of them, or after the last turn.
//  4. A change of the dispatch that is refused (calls hold old tables) is tried again at the next
//     update: states change after the dispatch does.
// Read next: candidate.c.
#include "jit/engine/adaptive.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/log.h"
#include "jit/engine/engine.h"

#define MINUTE_NS INT64_C(60000000000)

// ------------------------------------------------------------------------------------ the object

static void end_special(qn__adaptive_t* adaptive, qn__tuple_t* tuple) {
  qn_allocator_t allocator = adaptive->engine->allocator;
  if (tuple->trial) qn__free(allocator, tuple->trial, sizeof *tuple->trial);
  qn_function_release(tuple->special);
  qn_module_release(tuple->module);
  if (tuple->special) {
    adaptive->slots &= ~(1u << tuple->slot);
    adaptive->engine->background.variant_count--;
  }
  tuple->trial = NULL;
  tuple->special = NULL;
  tuple->module = NULL;
}

static void free_tuple(qn__adaptive_t* adaptive, qn__tuple_t* tuple) {
  end_special(adaptive, tuple);
  qn__free(adaptive->engine->allocator, tuple, sizeof *tuple);
}

void qn__adaptive_destroy(qn__adaptive_t* adaptive) {
  if (!adaptive) return;
  qn_allocator_t allocator = adaptive->engine->allocator;
  for (size_t i = 0; i < adaptive->tuple_count; i++) free_tuple(adaptive, adaptive->tuples[i]);
  qn__free(allocator, adaptive->tuples, adaptive->tuple_capacity * sizeof *adaptive->tuples);
  for (uint32_t i = 0; i < QN__DISPATCH_MAX_NAMES; i++) {
    qn__adaptive_name_t* name = &adaptive->names[i];
    qn__free_cstr(allocator, name->name);
    qn__free_cstr(allocator, name->qualified);
    qn__free(allocator, name->values, name->value_count * sizeof *name->values);
  }
  qn__free_cstr(allocator, adaptive->name);
  qn__dispatch_release(adaptive->dispatch);
  qn_module_release(adaptive->request.module);
  qn_target_release(adaptive->request.target);
  qn__free(allocator, adaptive, sizeof *adaptive);
}

// ---------------------------------------------------------------------------------------- tuples

static bool is_in_family(const qn__adaptive_name_t* name, int64_t value) {
  // A u64 beyond 2^63 - 1 cannot be fixed.
  if (name->dtype == QN_DTYPE_U64 && value < 0) return false;
  if (!name->values) return value >= name->min_value && value <= name->max_value;
  for (size_t i = 0; i < name->value_count; i++) {
    if (name->values[i] == value) return true;
  }
  return false;
}

// Makes room for a tuple: forgets the rarest one without a variant. False if there is none.
static bool forget_rarest(qn__adaptive_t* adaptive) {
  size_t rarest = adaptive->tuple_count;
  for (size_t i = 0; i < adaptive->tuple_count; i++) {
    const qn__tuple_t* tuple = adaptive->tuples[i];
    if (tuple->state != QN_VARIANT_SEEN) continue;
    if (rarest < adaptive->tuple_count &&
        adaptive->tuples[rarest]->call_count <= tuple->call_count) {
      continue;
    }
    rarest = i;
  }
  if (rarest == adaptive->tuple_count) return false;
  free_tuple(adaptive, adaptive->tuples[rarest]);
  adaptive->tuples[rarest] = adaptive->tuples[--adaptive->tuple_count];
  return true;
}

// Returns the tuple of these words, a new one if there is none yet; NULL outside of the family, and
// without room.
static qn__tuple_t* find_tuple(qn__adaptive_t* adaptive, const uint64_t* words) {
  size_t size = adaptive->name_count * sizeof *words;
  for (size_t i = 0; i < adaptive->tuple_count; i++) {
    if (memcmp(adaptive->tuples[i]->words, words, size) == 0) return adaptive->tuples[i];
  }
  int64_t values[QN__DISPATCH_MAX_NAMES];
  for (uint32_t n = 0; n < adaptive->name_count; n++) {
    values[n] = qn__wrap_int(adaptive->names[n].dtype, (int64_t)words[n]);
    if (!is_in_family(&adaptive->names[n], values[n])) return NULL;
  }
  if (adaptive->tuple_count == QN__ADAPTIVE_MAX_TUPLES && !forget_rarest(adaptive)) return NULL;
  qn_allocator_t allocator = adaptive->engine->allocator;
  void* tuples = adaptive->tuples;
  bool has_room = qn__grow(allocator, &tuples, &adaptive->tuple_capacity, adaptive->tuple_count + 1,
                           sizeof *adaptive->tuples);
  adaptive->tuples = tuples;
  qn__tuple_t* tuple = has_room ? qn__alloc_zero(allocator, 1, sizeof *tuple) : NULL;
  if (!tuple) return NULL;
  memcpy(tuple->words, words, size);
  memcpy(tuple->values, values, adaptive->name_count * sizeof *values);
  tuple->state = QN_VARIANT_SEEN;
  adaptive->tuples[adaptive->tuple_count++] = tuple;
  return tuple;
}

static void halve(qn__adaptive_t* adaptive, int64_t now_ns) {
  if (adaptive->halved_ns == 0) adaptive->halved_ns = now_ns;
  if (now_ns - adaptive->halved_ns < MINUTE_NS) return;
  adaptive->halved_ns = now_ns;
  for (size_t i = 0; i < adaptive->tuple_count;) {
    qn__tuple_t* tuple = adaptive->tuples[i];
    tuple->call_count /= 2;
    tuple->time_ns /= 2;
    if (tuple->state != QN_VARIANT_SEEN || tuple->call_count > 0) {
      i++;
      continue;
    }
    free_tuple(adaptive, tuple);
    adaptive->tuples[i] = adaptive->tuples[--adaptive->tuple_count];
  }
}

// ---------------------------------------------------------------------------------------- samples

static void add_turn(qn__trial_t* trial, bool is_special, int64_t duration_ns) {
  uint32_t* count = is_special ? &trial->special_count : &trial->generic_count;
  int64_t* times = is_special ? trial->special_ns : trial->generic_ns;
  if (*count < QN__TRIAL_MAX_TURNS) times[(*count)++] = duration_ns;
}

static void take_samples(qn__adaptive_t* adaptive) {
  uint64_t weight = qn__dispatch_period(adaptive->dispatch);
  void (*on_sample)(qn__dispatch_sample_t*) = adaptive->engine->background.on_sample;
  qn__dispatch_sample_t sample;
  while (qn__dispatch_take(adaptive->dispatch, &sample)) {
    if (on_sample) on_sample(&sample);
    qn__tuple_t* tuple = find_tuple(adaptive, sample.words);
    if (!tuple) continue;
    bool is_special = sample.slot != QN__DISPATCH_MAX_CASES;
    if (tuple->state == QN_VARIANT_TRIAL && sample.is_turn) {
      add_turn(tuple->trial, is_special, sample.duration_ns);
    } else if (tuple->state == QN_VARIANT_SEEN) {
      tuple->call_count += weight;
      if (sample.duration_ns > 0 && sample.duration_ns < MINUTE_NS) {
        tuple->time_ns += sample.duration_ns * (int64_t)weight;
      }
    }
  }
}

// Notes which variants calls have used.
static void count_calls(qn__adaptive_t* adaptive, int64_t now_ns) {
  for (size_t i = 0; i < adaptive->tuple_count; i++) {
    qn__tuple_t* tuple = adaptive->tuples[i];
    if (!tuple->special) continue;
    uint64_t calls = qn__dispatch_calls(adaptive->dispatch, tuple->slot);
    uint64_t fresh = calls - adaptive->calls[tuple->slot];
    adaptive->calls[tuple->slot] = calls;
    if (fresh == 0) continue;
    tuple->used_ns = now_ns;
    tuple->served_count += fresh;
    qn__count(adaptive->engine, QN__COUNTER_variant_calls, fresh);
  }
}

// ---------------------------------------------------------------------------------------- trials

static int compare_times(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

static int64_t median(const int64_t* times, uint32_t count) {
  int64_t sorted[QN__TRIAL_MAX_TURNS];
  memcpy(sorted, times, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, compare_times);
  return sorted[count / 2];
}

// Decides about a trial of requirement 3. QN_VARIANT_TRIAL: more turns are needed.
static qn_variant_state_t judge(qn__tuple_t* tuple) {
  const qn__trial_t* trial = tuple->trial;
  uint32_t count =
      trial->generic_count < trial->special_count ? trial->generic_count : trial->special_count;
  // Looks at 32, 64 and 128 pairs: each look more would make an error more likely.
  uint32_t look = count >= 128 ? 128 : count >= 64 ? 64 : 32;
  if (count < look) return QN_VARIANT_TRIAL;
  int64_t wins = 0;
  for (uint32_t i = 0; i < look; i++) wins += trial->special_ns[i] < trial->generic_ns[i];
  tuple->generic_ns = median(trial->generic_ns, look);
  tuple->special_ns = median(trial->special_ns, look);
  int64_t lead = 2 * wins - look;
  bool is_shorter = tuple->special_ns <= tuple->generic_ns - tuple->generic_ns / 32;
  if (lead > 0 && lead * lead >= 9 * (int64_t)look && is_shorter) return QN_VARIANT_KEPT;
  if (lead > 0 && look < QN__TRIAL_MAX_TURNS) return QN_VARIANT_TRIAL;
  (void)snprintf(tuple->reason, sizeof tuple->reason,
                 "not faster: %" PRId64 " ns against %" PRId64
                 " ns of the generic code, and "
                 "faster in %" PRId64 " of %u turns",
                 tuple->special_ns, tuple->generic_ns, wins, look);
  return QN_VARIANT_BANNED;
}

// Removes a variant from calls and memory; false: to be tried again.
static bool remove_special(qn__adaptive_t* adaptive, qn__tuple_t* tuple) {
  qn_status_t status = qn__dispatch_clear(adaptive->dispatch, tuple->slot);
  bool is_removed = qn_ok(status);
  qn_status_free(status);
  if (!is_removed) return false;
  qn__request_t request = adaptive->request;
  request.module = tuple->module;
  qn__ident_t ident = qn__request_ident(&request);
  (void)qn__table_remove(&adaptive->engine->table, &ident);
  end_special(adaptive, tuple);
  return true;
}

static void record(const qn__adaptive_t* adaptive, const qn__tuple_t* tuple, qn_hash128_t key) {
  qn__request_t request = adaptive->request;
  request.module = tuple->module;
  char hex[33], name[128];
  qn__key_describe(&request, key, hex, name);
  qn_compile_request_t compile = qn__compile_request(&request);
  qn__record_note(adaptive->engine->record, key, &compile, name);
}

void qn__adaptive_keep(qn__adaptive_t* adaptive, qn__tuple_t* tuple) {
  qn_engine_t* engine = adaptive->engine;
  if (tuple->trial) {
    qn_status_t status =
        qn__dispatch_set(adaptive->dispatch, tuple->slot, tuple->words, tuple->special, false);
    bool is_set = qn_ok(status);
    qn_status_free(status);
    if (!is_set) return;
    qn__free(engine->allocator, tuple->trial, sizeof *tuple->trial);
    tuple->trial = NULL;
  }
  tuple->state = QN_VARIANT_KEPT;
  tuple->reason[0] = '\0';
  qn__count(engine, QN__COUNTER_variants_kept, 1);
  qn_hash128_t key;
  if (qn__hash128_parse(qn__str(tuple->key.hex), &key)) record(adaptive, tuple, key);
}

void qn__adaptive_ban(qn__adaptive_t* adaptive, qn__tuple_t* tuple) {
  tuple->state = QN_VARIANT_BANNED;
  qn__count(adaptive->engine, QN__COUNTER_variants_banned, 1);
}

bool qn__adaptive_drop(qn__adaptive_t* adaptive, qn__tuple_t* tuple) {
  if (!remove_special(adaptive, tuple)) return false;
  tuple->state = QN_VARIANT_SEEN;
  tuple->call_count = 0;
  tuple->time_ns = 0;
  (void)snprintf(tuple->reason, sizeof tuple->reason, "its variant was dropped: no call used it");
  qn__count(adaptive->engine, QN__COUNTER_variants_dropped, 1);
  return true;
}

void qn__adaptive_update(qn__adaptive_t* adaptive, int64_t now_ns) {
  qn__dispatch_sweep(adaptive->dispatch);
  take_samples(adaptive);
  count_calls(adaptive, now_ns);
  for (size_t i = 0; i < adaptive->tuple_count; i++) {
    qn__tuple_t* tuple = adaptive->tuples[i];
    qn_variant_state_t verdict = tuple->state == QN_VARIANT_TRIAL ? judge(tuple) : QN_VARIANT_TRIAL;
    if (verdict == QN_VARIANT_KEPT) {
      qn__adaptive_keep(adaptive, tuple);
    } else if (verdict == QN_VARIANT_BANNED) {
      if (remove_special(adaptive, tuple)) qn__adaptive_ban(adaptive, tuple);
    } else if (tuple->special && now_ns - tuple->used_ns > MINUTE_NS) {
      (void)qn__adaptive_drop(adaptive, tuple);
    }
  }
  halve(adaptive, now_ns);
}
