// SPDX-License-Identifier: Apache-2.0
// jit/engine/table.c: see table.h.
//
// Requirements:
//  1. Each executable is found from its ident: no fresh slot precedes it in its probe sequence.
//  2. Half of the slots or more are fresh, so that a probe ends.
//  3. Counts and bytes are those of the slots; the held ones among them, too.
//
// Why stripes: threads must not contend at one lock or one counter, and an executable must not be
// released before its finder has counted a reference. A reader takes the lock of its CPU's stripe,
// counts its hit there, and counts its reference on a stripe of the executable (base/refcount.h).
// So threads on different CPUs write to no common cache line, also when they look for one key. A
// writer takes all stripes, which is rare. An uncontended lock is one atomic operation each way;
// epochs would save that and need far more care.
//
// Why a clock, not a list in the order of use: moving an entry within a list is a write that all
// readers share. A hit sets a flag that is nearly always set already. Beyond the bounds, the hand
// of the clock clears the flags and drops executables that were not used since its last visit.
//
// Only executables that others do not hold count against the bounds. A striped count gives no
// signal when it falls to one, so the hand records what it saw. As long as all entries together are
// beyond the bounds, each put visits a few more slots, and so finds released executables in time.
// Running operations can mislead the hand: then it drops a held executable, which costs a load
// later, or keeps a released one until its next visit.
#include "jit/engine/table.h"

#include "base/alloc.h"
#include "jit/call/executable.h"

// Slots that a put visits even if nothing must be dropped.
#define REFRESH_STEPS 64u

// The digests are uniform: eight bytes of each are hash enough.
static inline size_t ident_hash(const qn__ident_t* ident) {
  uint64_t module, target;
  memcpy(&module, ident->module_digest.bytes, sizeof module);
  memcpy(&target, ident->target_digest.bytes, sizeof target);
  return (size_t)(module ^ (target * 0x9E3779B97F4A7C15u) ^ (ident->options << 7));
}

static void lock_all(qn__table_t* table) {
  for (uint32_t i = 0; i < QN__TABLE_STRIPES; i++) qn__short_lock(&table->stripes[i].lock);
}
static void unlock_all(qn__table_t* table) {
  for (uint32_t i = QN__TABLE_STRIPES; i-- > 0;) qn__short_unlock(&table->stripes[i].lock);
}

static void make_locks(qn__table_t* table) {
  for (uint32_t i = 0; i < QN__TABLE_STRIPES; i++) qn__short_lock_init(&table->stripes[i].lock);
}

static void fork_prepare(void* self) {
  lock_all(self);
}
static void fork_parent(void* self) {
  unlock_all(self);
}
static void fork_child(void* self) {
  make_locks(self);
}

qn_status_t qn__table_init(qn__table_t* table, uint64_t max_bytes, uint64_t max_entries,
                           qn_allocator_t allocator) {
  memset(table, 0, sizeof *table);
  table->allocator = allocator;
  table->max_bytes = max_bytes;
  table->max_entries = max_entries;
  make_locks(table);
  table->fork_node = (qn__fork_node_t){
      .self = table, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  if (!qn__fork_register(&table->fork_node)) return qn__out_of_memory("a fork handler");
  return QN_OK;
}

// ---------------------------------------------------------------------------------- reading

// Finds the slot of `ident`, or the fresh one where its probe ends; NULL in an empty table.
static qn__table_slot_t* find(qn__table_slot_t* slots, size_t capacity, const qn__ident_t* ident) {
  if (capacity == 0) return NULL;
  for (size_t i = ident_hash(ident) & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
    if (!slots[i].is_used || qn__ident_equal(&slots[i].ident, ident)) return &slots[i];
  }
}

static inline qn_executable_t* get(qn__table_t* table, const qn__ident_t* ident,
                                   uint64_t counted_as) {
  const uint32_t cpu = qn__stripe(), stripe = cpu % QN__TABLE_STRIPES;
  qn__short_lock(&table->stripes[stripe].lock);
  qn__table_slot_t* slot = find(table->slots, table->capacity, ident);
  qn_executable_t* executable = slot ? slot->executable : NULL;
  if (executable) {
    qn__refcount_retain(&executable->references, cpu);
    table->stripes[stripe].hit_count += counted_as;
    if (!atomic_load_explicit(&slot->is_recent, memory_order_relaxed)) {
      atomic_store_explicit(&slot->is_recent, true, memory_order_relaxed);
    }
  }
  qn__short_unlock(&table->stripes[stripe].lock);
  return executable;
}

// The lock that a hit takes anyway guards its count. An atomic counter that all threads share would
// cost one more atomic operation, and far more under contention (bench/bench_hits.c).
qn_executable_t* qn__table_get(qn__table_t* table, const qn__ident_t* ident) {
  return get(table, ident, 1);
}

qn_executable_t* qn__table_peek(qn__table_t* table, const qn__ident_t* ident) {
  return get(table, ident, 0);
}

qn__table_stats_t qn__table_stats(qn__table_t* table) {
  qn__table_stats_t stats = {.hit_count = 0};
  for (uint32_t i = 0; i < QN__TABLE_STRIPES; i++) {
    qn__short_lock(&table->stripes[i].lock);
    stats.hit_count += table->stripes[i].hit_count;
    // Any one of the locks keeps writers away.
    stats.evicted_count = table->evicted_count;
    stats.bytes = table->bytes;
    stats.entry_count = table->entry_count;
    qn__short_unlock(&table->stripes[i].lock);
  }
  return stats;
}

bool qn__table_check(const qn__table_t* table) {
  size_t used_count = 0, entry_count = 0, held_count = 0;
  uint64_t bytes = 0, held_bytes = 0;
  for (size_t i = 0; i < table->capacity; i++) {
    const qn__table_slot_t* slot = &table->slots[i];
    used_count += slot->is_used;
    if (!slot->executable) {
      if (slot->is_held) return false;
      continue;
    }
    entry_count++;
    bytes += slot->executable->size_bytes;
    if (slot->is_held) {
      held_count++;
      held_bytes += slot->executable->size_bytes;
    }
    if (find(table->slots, table->capacity, &slot->ident) != slot) return false;
  }
  return (table->capacity & (table->capacity - 1)) == 0 && used_count * 2 <= table->capacity &&
         used_count == table->used_count && entry_count == table->entry_count &&
         bytes == table->bytes && held_count == table->held_count &&
         held_bytes == table->held_bytes && (table->hand < table->capacity || table->hand == 0);
}

// Debug builds check small tables at each change; a check of a large one takes too long.
#define ASSERT_RIGHT(table) assert((table)->capacity > 1024 || qn__table_check(table))

// ---------------------------------------------------------------------------------- writing
//
// The caller holds all stripes. Dropped executables are chained and released after the unlock:
// unloading takes other locks and may be slow.

static void note_held(qn__table_t* table, qn__table_slot_t* slot, bool is_held) {
  if (slot->is_held == is_held) return;
  slot->is_held = is_held;
  if (is_held) {
    table->held_count++;
    table->held_bytes += slot->executable->size_bytes;
  } else {
    table->held_count--;
    table->held_bytes -= slot->executable->size_bytes;
  }
}

static void drop(qn__table_t* table, qn__table_slot_t* slot, qn_executable_t** dropped) {
  qn_executable_t* executable = slot->executable;
  note_held(table, slot, false);
  slot->executable = NULL;
  table->entry_count--;
  table->bytes -= executable->size_bytes;
  qn__refcount_close(&executable->references);
  executable->next_dropped = *dropped;
  *dropped = executable;
}

static void release_all(qn_executable_t* dropped) {
  while (dropped) {
    qn_executable_t* next = dropped->next_dropped;
    qn_executable_release(dropped);
    dropped = next;
  }
}

static bool is_beyond(const qn__table_t* table, uint64_t bytes, uint64_t entry_count) {
  return bytes > table->max_bytes || entry_count > table->max_entries;
}

// Notes whether others hold the slot's executable, and drops it if it may go.
static void visit(qn__table_t* table, qn__table_slot_t* slot, bool has_too_much,
                  qn_executable_t** dropped) {
  if (!slot->executable) return;
  note_held(table, slot, qn__refcount_estimate(&slot->executable->references) > 1);
  if (slot->is_held || !has_too_much) return;
  if (atomic_exchange_explicit(&slot->is_recent, false, memory_order_relaxed)) return;
  drop(table, slot, dropped);
  table->evicted_count++;
}

// `fresh` was just put: its caller holds it, but not for long, so it counts against the bounds.
static void keep_bounds(qn__table_t* table, const qn__table_slot_t* fresh,
                        qn_executable_t** dropped) {
  if (!is_beyond(table, table->bytes, table->entry_count)) return;
  // Two rounds are enough: the first clears the flags of use, the second drops.
  for (size_t step = 0; step <= 2 * table->capacity; step++) {
    bool has_too_much =
        is_beyond(table, table->bytes - table->held_bytes, table->entry_count - table->held_count);
    if (!has_too_much && step >= REFRESH_STEPS) break;
    qn__table_slot_t* slot = &table->slots[table->hand];
    if (slot != fresh) visit(table, slot, has_too_much, dropped);
    table->hand = (table->hand + 1) & (table->capacity - 1);
  }
}

// Makes room for one more entry, and forgets removed slots.
static qn_status_t reserve(qn__table_t* table) {
  if (table->used_count + 1 <= table->capacity / 2) return QN_OK;
  size_t capacity = 64;
  while (capacity < (table->entry_count + 1) * 4) capacity *= 2;
  qn__table_slot_t* slots = qn__alloc_zero(table->allocator, capacity, sizeof *slots);
  if (!slots) return qn__out_of_memory("the table of executables");
  for (size_t i = 0; i < table->capacity; i++) {
    qn__table_slot_t* from = &table->slots[i];
    if (!from->executable) continue;
    qn__table_slot_t* to = find(slots, capacity, &from->ident);
    to->ident = from->ident;
    to->executable = from->executable;
    to->is_used = true;
    to->is_held = from->is_held;
    atomic_init(&to->is_recent, atomic_load_explicit(&from->is_recent, memory_order_relaxed));
  }
  qn__free(table->allocator, table->slots, table->capacity * sizeof *table->slots);
  table->slots = slots;
  table->capacity = capacity;
  table->used_count = table->entry_count;
  table->hand &= capacity - 1;
  return QN_OK;
}

static void fill(qn__table_t* table, qn__table_slot_t* slot, const qn__ident_t* ident,
                 qn_executable_t* executable) {
  if (!slot->is_used) table->used_count++;
  slot->is_used = true;
  slot->ident = *ident;
  slot->executable = executable;
  atomic_store_explicit(&slot->is_recent, true, memory_order_relaxed);
  table->entry_count++;
  table->bytes += executable->size_bytes;
  qn_executable_retain(executable);
  qn__refcount_open(&executable->references);
}

qn_status_t qn__table_put(qn__table_t* table, const qn__ident_t* ident,
                          qn_executable_t* executable) {
  qn_executable_t* dropped = NULL;
  lock_all(table);
  qn_status_t status = reserve(table);
  if (qn_ok(status)) {
    qn__table_slot_t* slot = find(table->slots, table->capacity, ident);
    if (slot->executable != executable) {
      if (slot->executable) drop(table, slot, &dropped);
      fill(table, slot, ident, executable);
      keep_bounds(table, slot, &dropped);
    }
  }
  ASSERT_RIGHT(table);
  unlock_all(table);
  release_all(dropped);
  return status;
}

bool qn__table_remove(qn__table_t* table, const qn__ident_t* ident) {
  qn_executable_t* dropped = NULL;
  lock_all(table);
  qn__table_slot_t* slot = find(table->slots, table->capacity, ident);
  if (slot && slot->executable) drop(table, slot, &dropped);
  ASSERT_RIGHT(table);
  unlock_all(table);
  bool was_there = dropped != NULL;
  release_all(dropped);
  return was_there;
}

void qn__table_deinit(qn__table_t* table) {
  // An engine that was only half made has neither locks nor entries.
  if (!table->fork_node.self) return;
  qn_executable_t* dropped = NULL;
  lock_all(table);  // for a fork in another thread
  for (size_t i = 0; i < table->capacity; i++) {
    if (table->slots[i].executable) drop(table, &table->slots[i], &dropped);
  }
  unlock_all(table);
  qn__fork_unregister(&table->fork_node);
  release_all(dropped);
  qn__free(table->allocator, table->slots, table->capacity * sizeof *table->slots);
}
