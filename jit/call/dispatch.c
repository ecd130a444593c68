// SPDX-License-Identifier: Apache-2.0
// jit/call/dispatch.c: see dispatch.h.
//
// Requirements:
//  1. A call takes no lock, allocates nothing and never waits. It writes one counter before and one
//     after the kernel, of the stripe of its CPU.
//  2. A table does not change. A change makes a new one, which an exchange of the pointer
//  publishes.
//  3. An old table is released when no call holds it. A call adds to `entered` before it loads the
//     pointer, both sequentially consistent; the owner exchanges the pointer before it reads the
//     counters. So a call that loaded the old pointer is in `entered` when the owner reads it. The
//     owner reads the sum of `left` first: if `entered` then equals it, all calls that entered
//     before have left. A stripe that was seen so once holds the table no more.
//  4. There are no more old tables than MAX_RETIRED: changes are refused until calls end.
//  5. Samples lie in a ring with a sequence per place. A writer that finds it full, or loses a race
//     for a place, drops its sample.
//  6. A queued launch retains the cell of its special function, so a table need not.
#include "jit/call/dispatch.h"

#include "base/alloc.h"
#include "base/stripe.h"
#include "devices/cpu/cpu.h"
#include "jit/call/bind.h"

#define MAX_STRIPES 256u
#define MAX_RETIRED 8u
#define GENERIC QN__DISPATCH_MAX_CASES
#define DEFAULT_PERIOD 16u

// One case. Immutable.
typedef struct entry {
  uint64_t words[QN__DISPATCH_MAX_NAMES];
  qn_function_t* function;  // retained
  qn__variant_t* variant;   // its variant
  uint32_t slot;
  bool is_trial;
  // Symbol i of the special function is symbol symbols[i] of the generic one, and i <= symbols[i].
  uint32_t symbol_count;
  uint8_t symbols[QN__MAX_WORDS];
} entry_t;

typedef struct table table_t;
struct table {
  uint32_t count;
  // The first word of each entry, in one cache line: most calls compare nothing else.
  uint64_t first_words[QN__DISPATCH_MAX_CASES];
  entry_t entries[QN__DISPATCH_MAX_CASES];
  table_t* next;                       // the list of old ones
  uint64_t drained[MAX_STRIPES / 64];  // stripes that hold it no more
};

// The calls of the threads of one CPU. Two cache lines, which the prefetcher takes together.
typedef struct stripe {
  _Atomic uint64_t entered;
  _Atomic uint64_t left[QN__DISPATCH_MAX_CASES + 1];  // by what ran
  uint64_t padding[6];
} stripe_t;

typedef struct ring_place {
  _Atomic uint64_t sequence;
  qn__dispatch_sample_t sample;
} ring_place_t;

struct qn__dispatch {
  _Atomic uint32_t reference_count;
  _Atomic bool is_closed;
  qn_allocator_t allocator;
  qn_function_t* generic;  // retained
  bool is_timed_device;    // the default stream returns when the work is done
  uint32_t word_count;
  uint32_t words[QN__DISPATCH_MAX_NAMES];  // indices in the words of a call
  uint32_t stripe_mask;
  _Atomic uint32_t sample_mask;  // UINT32_MAX: no samples
  _Atomic(table_t*) table;
  _Atomic uint32_t turns[QN__DISPATCH_MAX_CASES];
  stripe_t* stripes;
  ring_place_t* places;
  _Atomic uint64_t next_write;
  uint64_t next_read;  // the owner's
  table_t* retired;    // the owner's
  uint32_t retired_count;
};

_Static_assert(sizeof(stripe_t) == 128, "a stripe is two cache lines");

// ------------------------------------------------------------------------------------ the object

static uint32_t count_stripes(void) {
  uint32_t cores = (uint32_t)qn__affinity_cores(), count = 1;
  if (cores == 0 || cores > MAX_STRIPES) cores = MAX_STRIPES;
  while (count < cores) count *= 2;
  return count;
}

static void free_table(qn__dispatch_t* dispatch, table_t* table) {
  if (!table) return;
  for (uint32_t i = 0; i < table->count; i++) qn_function_release(table->entries[i].function);
  qn__free(dispatch->allocator, table, sizeof *table);
}

qn_status_t qn__dispatch_create(qn_function_t* generic, const uint32_t* words, uint32_t count,
                                qn__dispatch_t** out_dispatch) {
  *out_dispatch = NULL;
  assert(count > 0 && count <= QN__DISPATCH_MAX_NAMES);
  qn_allocator_t allocator = generic->allocator;
  qn__dispatch_t* dispatch = qn__alloc_zero(allocator, 1, sizeof *dispatch);
  if (!dispatch) return qn__out_of_memory("an adaptive function");
  atomic_init(&dispatch->reference_count, 1);
  dispatch->allocator = allocator;
  qn_function_retain(generic);
  dispatch->generic = generic;
  dispatch->is_timed_device = generic->device.type == QN_DEVICE_CPU;
  dispatch->word_count = count;
  memcpy(dispatch->words, words, count * sizeof *words);
  dispatch->stripe_mask = count_stripes() - 1;
  atomic_init(&dispatch->sample_mask, DEFAULT_PERIOD - 1);
  dispatch->stripes = qn__alloc_zero(allocator, dispatch->stripe_mask + 1, sizeof(stripe_t));
  dispatch->places = qn__alloc_zero(allocator, QN__DISPATCH_SAMPLES, sizeof(ring_place_t));
  table_t* table = qn__alloc_zero(allocator, 1, sizeof *table);
  atomic_init(&dispatch->table, table);
  if (!dispatch->stripes || !dispatch->places || !table) {
    qn__dispatch_release(dispatch);
    return qn__out_of_memory("an adaptive function");
  }
  for (uint32_t i = 0; i < QN__DISPATCH_SAMPLES; i++) {
    atomic_init(&dispatch->places[i].sequence, i);
  }
  *out_dispatch = dispatch;
  return QN_OK;
}

void qn__dispatch_retain(qn__dispatch_t* dispatch) {
  atomic_fetch_add_explicit(&dispatch->reference_count, 1, memory_order_relaxed);
}

void qn__dispatch_release(qn__dispatch_t* dispatch) {
  if (!dispatch) return;
  if (atomic_fetch_sub_explicit(&dispatch->reference_count, 1, memory_order_acq_rel) != 1) return;
  free_table(dispatch, atomic_load(&dispatch->table));
  while (dispatch->retired) {
    table_t* table = dispatch->retired;
    dispatch->retired = table->next;
    free_table(dispatch, table);
  }
  qn_allocator_t allocator = dispatch->allocator;
  if (dispatch->stripes) {
    qn__free(allocator, dispatch->stripes, (dispatch->stripe_mask + 1) * sizeof(stripe_t));
  }
  if (dispatch->places) {
    qn__free(allocator, dispatch->places, QN__DISPATCH_SAMPLES * sizeof(ring_place_t));
  }
  qn_function_release(dispatch->generic);
  qn__free(allocator, dispatch, sizeof *dispatch);
}

qn_function_t* qn__dispatch_generic(const qn__dispatch_t* dispatch) {
  return dispatch->generic;
}
void qn__dispatch_close(qn__dispatch_t* dispatch) {
  atomic_store_explicit(&dispatch->is_closed, true, memory_order_release);
}
bool qn__dispatch_is_closed(const qn__dispatch_t* dispatch) {
  return atomic_load_explicit(&dispatch->is_closed, memory_order_acquire);
}

// ---------------------------------------------------------------------------------------- tables

static bool is_drained(const qn__dispatch_t* dispatch, uint32_t i) {
  const stripe_t* stripe = &dispatch->stripes[i];
  uint64_t left = 0;
  for (uint32_t slot = 0; slot <= GENERIC; slot++) {
    left += atomic_load_explicit(&stripe->left[slot], memory_order_acquire);
  }
  return atomic_load(&stripe->entered) == left;
}

void qn__dispatch_sweep(qn__dispatch_t* dispatch) {
  for (table_t** at = &dispatch->retired; *at;) {
    table_t* table = *at;
    bool is_held = false;
    for (uint32_t i = 0; i <= dispatch->stripe_mask; i++) {
      uint64_t bit = UINT64_C(1) << (i % 64);
      if (!(table->drained[i / 64] & bit) && is_drained(dispatch, i)) table->drained[i / 64] |= bit;
      is_held |= !(table->drained[i / 64] & bit);
    }
    if (is_held) {
      at = &table->next;
      continue;
    }
    *at = table->next;
    dispatch->retired_count--;
    free_table(dispatch, table);
  }
}

// Publishes a table without the entry of `slot` and, if it is not NULL, with `added`.
static qn_status_t replace(qn__dispatch_t* dispatch, uint32_t slot, const entry_t* added) {
  table_t* old = atomic_load_explicit(&dispatch->table, memory_order_relaxed);
  qn__dispatch_sweep(dispatch);
  if (dispatch->retired_count == MAX_RETIRED) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "calls that run still hold %u old tables of variants", MAX_RETIRED);
  }
  table_t* table = qn__alloc_zero(dispatch->allocator, 1, sizeof *table);
  if (!table) return qn__out_of_memory("a table of variants");
  for (uint32_t i = 0; i < old->count; i++) {
    if (old->entries[i].slot != slot) table->entries[table->count++] = old->entries[i];
  }
  if (added) table->entries[table->count++] = *added;
  assert(table->count <= QN__DISPATCH_MAX_CASES);
  for (uint32_t i = 0; i < table->count; i++) {
    table->first_words[i] = table->entries[i].words[0];
    qn_function_retain(table->entries[i].function);
  }
  (void)atomic_exchange(&dispatch->table, table);
  old->next = dispatch->retired;
  dispatch->retired = old;
  dispatch->retired_count++;
  qn__dispatch_sweep(dispatch);
  return QN_OK;
}

// Finds each symbol of the special function among those of the generic one.
static bool map_symbols(const qn__ir_func_t* generic, const qn__ir_func_t* special,
                        entry_t* out_entry) {
  uint32_t at = 0;
  for (size_t i = 0; i < special->symbol_count; i++, at++) {
    while (at < generic->symbol_count &&
           strcmp(generic->symbols[at]->name, special->symbols[i]->name) != 0) {
      at++;
    }
    if (at >= generic->symbol_count || at >= QN__MAX_WORDS) return false;
    out_entry->symbols[i] = (uint8_t)at;
  }
  out_entry->symbol_count = (uint32_t)special->symbol_count;
  return special->param_count == generic->param_count;
}

static qn__variant_t* variant_of(const qn_function_t* function) {
  return atomic_load_explicit(&function->variant, memory_order_acquire);
}

qn_status_t qn__dispatch_set(qn__dispatch_t* dispatch, uint32_t slot, const uint64_t* words,
                             qn_function_t* special, bool is_trial) {
  assert(slot < QN__DISPATCH_MAX_CASES);
  entry_t entry = {
      .function = special, .variant = variant_of(special), .slot = slot, .is_trial = is_trial};
  memcpy(entry.words, words, dispatch->word_count * sizeof *words);
  const qn__ir_func_t* generic = dispatch->generic->ir;
  if (!map_symbols(generic, special->ir, &entry)) {
    return qn_status_make(QN_STATUS_INTERNAL, "'%s' has other symbols than '%s'",
                          special->ir->signature, generic->signature);
  }
  // Calls are checked by the generic plan alone.
  if (entry.variant->plan->has_32_bit_indices &&
      !variant_of(dispatch->generic)->plan->has_32_bit_indices) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "the special code takes at most 2^31 elements, the generic code more");
  }
  return replace(dispatch, slot, &entry);
}

qn_status_t qn__dispatch_clear(qn__dispatch_t* dispatch, uint32_t slot) {
  return replace(dispatch, slot, NULL);
}

void qn__dispatch_freeze(qn__dispatch_t* dispatch) {
  atomic_store_explicit(&dispatch->sample_mask, UINT32_MAX, memory_order_relaxed);
}

// ---------------------------------------------------------------------------------------- samples

static void write_sample(qn__dispatch_t* dispatch, const qn__dispatch_sample_t* sample) {
  uint64_t number = atomic_load_explicit(&dispatch->next_write, memory_order_relaxed);
  ring_place_t* place = &dispatch->places[number % QN__DISPATCH_SAMPLES];
  if (atomic_load_explicit(&place->sequence, memory_order_acquire) != number) return;
  if (!atomic_compare_exchange_strong_explicit(&dispatch->next_write, &number, number + 1,
                                               memory_order_relaxed, memory_order_relaxed)) {
    return;
  }
  place->sample = *sample;
  atomic_store_explicit(&place->sequence, number + 1, memory_order_release);
}

bool qn__dispatch_take(qn__dispatch_t* dispatch, qn__dispatch_sample_t* out_sample) {
  ring_place_t* place = &dispatch->places[dispatch->next_read % QN__DISPATCH_SAMPLES];
  uint64_t sequence = atomic_load_explicit(&place->sequence, memory_order_acquire);
  if (sequence != dispatch->next_read + 1) return false;
  *out_sample = place->sample;
  atomic_store_explicit(&place->sequence, dispatch->next_read + QN__DISPATCH_SAMPLES,
                        memory_order_release);
  dispatch->next_read++;
  return true;
}

uint64_t qn__dispatch_calls(const qn__dispatch_t* dispatch, uint32_t slot) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i <= dispatch->stripe_mask; i++) {
    sum += atomic_load_explicit(&dispatch->stripes[i].left[slot], memory_order_relaxed);
  }
  return sum;
}

void qn__dispatch_set_period(qn__dispatch_t* dispatch, uint32_t period) {
  assert(period > 0 && (period & (period - 1)) == 0);
  atomic_store_explicit(&dispatch->sample_mask, period - 1, memory_order_relaxed);
}

uint32_t qn__dispatch_period(const qn__dispatch_t* dispatch) {
  return atomic_load_explicit(&dispatch->sample_mask, memory_order_relaxed) + 1;
}

void qn__dispatch_hold(qn__dispatch_t* dispatch) {
  (void)atomic_fetch_add(&dispatch->stripes[0].entered, 1);
}

void qn__dispatch_unhold(qn__dispatch_t* dispatch) {
  (void)atomic_fetch_add(&dispatch->stripes[0].left[GENERIC], 1);
}

void qn__dispatch_forget_calls(qn__dispatch_t* dispatch) {
  for (uint32_t i = 0; i <= dispatch->stripe_mask; i++) {
    stripe_t* stripe = &dispatch->stripes[i];
    uint64_t entered = atomic_load(&stripe->entered);
    for (uint32_t slot = 0; slot <= GENERIC; slot++) entered -= atomic_load(&stripe->left[slot]);
    (void)atomic_fetch_add(&stripe->left[GENERIC], entered);
  }
  for (uint32_t i = 0; i < QN__DISPATCH_SAMPLES; i++) {
    atomic_store(&dispatch->places[i].sequence, i);
  }
  atomic_store(&dispatch->next_write, 0);
  dispatch->next_read = 0;
}

// ---------------------------------------------------------------------------------------- the call

static bool is_frozen(const qn__dispatch_t* dispatch) {
  return atomic_load_explicit(&dispatch->sample_mask, memory_order_relaxed) == UINT32_MAX;
}

// Multiples of the golden ratio visit every residue evenly, so that shapes which alternate are all
// sampled, which a count of calls would not do.
static inline bool is_sampled(const qn__dispatch_t* dispatch, uint64_t number) {
  uint32_t mask = atomic_load_explicit(&dispatch->sample_mask, memory_order_relaxed);
  return ((uint32_t)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask) == 0 &&
         mask != UINT32_MAX;
}

// Returns the entry whose words the call has, or NULL.
static inline const entry_t* find(const qn__dispatch_t* dispatch, const table_t* table,
                                  const uint64_t* words) {
  const uint64_t first_word = words[dispatch->words[0]];
  for (uint32_t i = 0; i < table->count; i++) {
    if (QN__LIKELY(table->first_words[i] != first_word)) continue;
    const entry_t* entry = &table->entries[i];
    uint64_t difference = 0;
    for (uint32_t n = 1; n < dispatch->word_count; n++) {
      difference |= words[dispatch->words[n]] ^ entry->words[n];
    }
    if (difference == 0) return entry;
  }
  return NULL;
}

static inline qn_status_t run(qn__variant_t* variant, qn_stream_t* stream, qn__words_t* all) {
  if (QN__LIKELY(!stream && variant->entry)) {
    qn__cpu_call_t state;
    qn__cpu_call_init(&state);
    if (QN__LIKELY(variant->entry(&state.env, all->words) == 0)) return QN_OK;
    return qn__variant_describe(variant, &state.failure);
  }
  return qn__variant_launch(variant, stream, all->words, all->words + QN__MAX_WORDS);
}

// Runs the special kernel: its words are those of the generic one without the fixed symbols.
static inline qn_status_t run_special(const entry_t* entry, qn_stream_t* stream, uint32_t arg_count,
                                      qn__words_t* all) {
  uint64_t* symbols = all->words + arg_count;
  for (uint32_t i = 0; i < entry->symbol_count; i++) symbols[i] = symbols[entry->symbols[i]];
  return run(entry->variant, stream, all);
}

// Runs a call and writes its sample. A trial takes turns where the host can time them.
static __attribute__((noinline)) qn_status_t run_sampled(qn__dispatch_t* dispatch,
                                                         qn__variant_t* generic,
                                                         const entry_t* entry, qn_stream_t* stream,
                                                         qn__words_t* all, uint32_t* out_slot) {
  bool is_timed = dispatch->is_timed_device && !stream;
  bool is_turn = entry && entry->is_trial && is_timed && !is_frozen(dispatch);
  if (is_turn) {
    _Atomic uint32_t* turn = &dispatch->turns[entry->slot];
    if ((atomic_fetch_add_explicit(turn, 1, memory_order_relaxed) & 1) == 0) entry = NULL;
  } else if (entry && entry->is_trial) {
    entry = NULL;
  }
  qn__dispatch_sample_t sample = {
      .duration_ns = -1, .slot = entry ? entry->slot : GENERIC, .is_turn = is_turn};
  for (uint32_t n = 0; n < dispatch->word_count; n++) {
    sample.words[n] = all->words[dispatch->words[n]];
  }
  *out_slot = sample.slot;
  int64_t start_ns = is_timed ? qn__now_ns() : 0;
  qn_status_t status =
      entry ? run_special(entry, stream, generic->plan->arg_count, all) : run(generic, stream, all);
  if (is_timed) sample.duration_ns = qn__now_ns() - start_ns;
  // A call that failed did other work.
  if (qn_ok(status) && !is_frozen(dispatch)) write_sample(dispatch, &sample);
  return status;
}

qn_status_t qn__dispatch_call(qn__dispatch_t* dispatch, qn_stream_t* stream, const qn_value_t* args,
                              size_t count) {
  qn__words_t all;
  qn__variant_t* generic = variant_of(dispatch->generic);
  bool is_bound = !generic->needs_more && qn__bind_plain(generic->plan, args, count, all.words);
  // Another module serves for the generic one (FALLBACK), or the call needs more checks.
  if (QN__UNLIKELY(!is_bound) &&
      (generic->guard || !qn__bind_any(generic->plan, args, count, &all))) {
    return qn__variant_call(generic, stream, args, count);
  }
  stripe_t* stripe = &dispatch->stripes[qn__stripe() & dispatch->stripe_mask];
  uint64_t number = atomic_fetch_add(&stripe->entered, 1);
  const table_t* table = atomic_load(&dispatch->table);
  const entry_t* entry = find(dispatch, table, all.words);
  uint32_t slot = entry ? entry->slot : GENERIC;
  qn_status_t status;
  if (QN__UNLIKELY(is_sampled(dispatch, number)) || QN__UNLIKELY(entry && entry->is_trial)) {
    status = run_sampled(dispatch, generic, entry, stream, &all, &slot);
  } else if (entry) {
    status = run_special(entry, stream, generic->plan->arg_count, &all);
  } else {
    status = run(generic, stream, &all);
  }
  (void)atomic_fetch_add_explicit(&stripe->left[slot], 1, memory_order_release);
  return status;
}
