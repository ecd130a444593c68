// jit/table.c: see table.h.
//
// Why stripes: a lookup must not meet other lookups at one lock, and what it finds must not be
// released before it has counted its reference. A reader takes the lock of its thread's stripe, so
// readers on different stripes never touch one cache line of lock; a writer takes all stripes,
// which is rare. An uncontended lock costs about 10 ns; schemes without one (epochs) save that and
// cost far more care.
#include "jit/table.h"

#include <stdatomic.h>

#include "base/alloc.h"

// The digests are uniform: eight bytes of each are hash enough.
static inline size_t ident_hash(const qn__ident_t* ident) {
  uint64_t module, target;
  memcpy(&module, ident->module_digest.bytes, sizeof module);
  memcpy(&target, ident->target_digest.bytes, sizeof target);
  return (size_t)(module ^ (target * 0x9E3779B97F4A7C15u) ^ (ident->options << 7));
}

static inline uint32_t own_stripe(void) {
  static _Atomic uint32_t counter;
  static _Thread_local uint32_t stripe;  // 0: not chosen yet
  if (stripe == 0) {
    stripe = 1 + atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed) % QN__TABLE_STRIPES;
  }
  return stripe - 1;
}

static void lock_all(qn__table_t* table) {
  for (uint32_t i = 0; i < QN__TABLE_STRIPES; i++) qn__mutex_lock(&table->stripes[i].mutex);
}
static void unlock_all(qn__table_t* table) {
  for (uint32_t i = QN__TABLE_STRIPES; i-- > 0;) qn__mutex_unlock(&table->stripes[i].mutex);
}

static qn_status_t make_locks(qn__table_t* table) {
  for (uint32_t i = 0; i < QN__TABLE_STRIPES; i++) {
    QN_TRY(qn__mutex_init(&table->stripes[i].mutex));
  }
  return QN_OK;
}

static void fork_prepare(void* self) {
  lock_all(self);
}
static void fork_parent(void* self) {
  unlock_all(self);
}
static void fork_child(void* self) {
  qn_status_free(make_locks(self));
}

qn_status_t qn__table_init(qn__table_t* table, qn_allocator_t allocator) {
  memset(table, 0, sizeof *table);
  table->allocator = allocator;
  QN_TRY(make_locks(table));
  table->fork_node = (qn__fork_node_t){
      .self = table, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  if (!qn__fork_register(&table->fork_node)) return qn__out_of_memory("a fork handler");
  return QN_OK;
}

void qn__table_deinit(qn__table_t* table) {
  if (table->fork_node.self) qn__fork_unregister(&table->fork_node);
  for (size_t i = 0; i < table->capacity; i++) qn_executable_release(table->slots[i].executable);
  qn__free(table->allocator, table->slots, table->capacity * sizeof *table->slots);
  for (uint32_t i = 0; i < QN__TABLE_STRIPES; i++) qn__mutex_deinit(&table->stripes[i].mutex);
}

// The slot of `ident`, or the fresh one where its probe sequence ends; NULL in an empty table.
static qn__table_slot_t* find(qn__table_slot_t* slots, size_t capacity, const qn__ident_t* ident) {
  if (capacity == 0) return NULL;
  for (size_t i = ident_hash(ident) & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
    if (!slots[i].is_used || qn__ident_equal(&slots[i].ident, ident)) return &slots[i];
  }
}

static inline qn_executable_t* get(qn__table_t* table, const qn__ident_t* ident,
                                   uint64_t counted_as) {
  uint32_t stripe = own_stripe();
  qn__mutex_lock(&table->stripes[stripe].mutex);
  qn__table_slot_t* slot = find(table->slots, table->capacity, ident);
  qn_executable_t* executable = slot ? slot->executable : NULL;
  if (executable) {
    qn_executable_retain(executable);
    table->stripes[stripe].hit_count += counted_as;
  }
  qn__mutex_unlock(&table->stripes[stripe].mutex);
  return executable;
}

// The lock that a hit takes anyway guards its count: an atomic counter that all threads share would
// cost a third of a lookup, and more when they meet.
qn_executable_t* qn__table_get(qn__table_t* table, const qn__ident_t* ident) {
  return get(table, ident, 1);
}

qn_executable_t* qn__table_peek(qn__table_t* table, const qn__ident_t* ident) {
  return get(table, ident, 0);
}

uint64_t qn__table_hit_count(qn__table_t* table) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < QN__TABLE_STRIPES; i++) {
    qn__mutex_lock(&table->stripes[i].mutex);
    count += table->stripes[i].hit_count;
    qn__mutex_unlock(&table->stripes[i].mutex);
  }
  return count;
}

// Makes room for one more; drops removed slots on the way. The caller holds all stripes.
static qn_status_t reserve(qn__table_t* table) {
  if (table->used_count + 1 <= table->capacity / 2) return QN_OK;
  size_t live_count = 0;
  for (size_t i = 0; i < table->capacity; i++) live_count += table->slots[i].executable != NULL;
  size_t capacity = 64;
  while (capacity < (live_count + 1) * 4) capacity *= 2;
  qn__table_slot_t* slots = qn__alloc_zero(table->allocator, capacity, sizeof *slots);
  if (!slots) return qn__out_of_memory("the table of executables");
  for (size_t i = 0; i < table->capacity; i++) {
    if (!table->slots[i].executable) continue;
    *find(slots, capacity, &table->slots[i].ident) = table->slots[i];
  }
  qn__free(table->allocator, table->slots, table->capacity * sizeof *table->slots);
  table->slots = slots;
  table->capacity = capacity;
  table->used_count = live_count;
  return QN_OK;
}

qn_status_t qn__table_put(qn__table_t* table, const qn__ident_t* ident,
                          qn_executable_t* executable) {
  qn_executable_t* old = NULL;
  lock_all(table);
  qn_status_t status = reserve(table);
  if (qn_ok(status)) {
    qn__table_slot_t* slot = find(table->slots, table->capacity, ident);
    if (!slot->is_used) table->used_count++;
    slot->is_used = true;
    slot->ident = *ident;
    old = slot->executable;
    qn_executable_retain(executable);
    slot->executable = executable;
  }
  unlock_all(table);
  qn_executable_release(old);
  return status;
}

bool qn__table_remove(qn__table_t* table, const qn__ident_t* ident) {
  qn_executable_t* old = NULL;
  lock_all(table);
  qn__table_slot_t* slot = find(table->slots, table->capacity, ident);
  if (slot) {
    old = slot->executable;
    slot->executable = NULL;
  }
  unlock_all(table);
  qn_executable_release(old);
  return old != NULL;
}
