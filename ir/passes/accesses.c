// SPDX-License-Identifier: Apache-2.0
// ir/passes/accesses.c: sets of buffers that code reads and writes (accesses.h).
#include "ir/passes/accesses.h"

typedef struct collect {
  qn__arena_t* arena;
  qn__ir_accesses_t accesses;
} collect_t;

static bool has_root(const qn__ir_buffer_set_t* set, const qn__ir_buffer_t* root) {
  while (set && set->root != root) set = set->next;
  return set != NULL;
}

static const qn__ir_buffer_set_t* add_root(qn__arena_t* arena, const qn__ir_buffer_set_t* set,
                                           const qn__ir_buffer_t* root) {
  if (has_root(set, root)) return set;
  qn__ir_buffer_set_t* node = QN__ARENA_NEW(arena, qn__ir_buffer_set_t);
  if (!node) return set;
  *node = (qn__ir_buffer_set_t){root, set};
  return node;
}

static bool touch(void* context, const qn__ir_ref_t* ref) {
  collect_t* self = context;
  const qn__ir_buffer_t* root = qn__buf_root(*ref->buffer);
  if (ref->kind == QN__REF_BASE || root->scope == QN__SCOPE_LOCAL || qn__buf_is_constant(root)) {
    return true;
  }
  bool is_read = ref->kind == QN__REF_LOAD;
  const qn__ir_buffer_set_t** set = is_read ? &self->accesses.reads : &self->accesses.writes;
  *set = add_root(self->arena, *set, root);
  return true;
}

qn__ir_accesses_t qn__accesses_of_own(qn__arena_t* arena, qn__ir_stmt_t* stmt) {
  collect_t self = {arena, {NULL, NULL}};
  (void)qn__stmt_each_ref(stmt, touch, &self);
  return self.accesses;
}

qn__ir_accesses_t qn__accesses_of_stmt(qn__arena_t* arena, qn__ir_stmt_t* stmt) {
  collect_t self = {arena, {NULL, NULL}};
  (void)qn__stmt_each_ref(stmt, touch, &self);
  QN__EACH_BLOCK(stmt, inner) (void)qn__block_each_ref(inner, touch, &self);
  return self.accesses;
}

qn__ir_accesses_t qn__accesses_of_block(qn__arena_t* arena, qn__ir_block_t* block) {
  collect_t self = {arena, {NULL, NULL}};
  (void)qn__block_each_ref(block, touch, &self);
  return self.accesses;
}

bool qn__buffer_sets_meet(const qn__ir_buffer_set_t* a, const qn__ir_buffer_set_t* b) {
  for (; a; a = a->next) {
    if (has_root(b, a->root)) return true;
  }
  return false;
}

static const qn__ir_buffer_set_t* join(qn__arena_t* arena, const qn__ir_buffer_set_t* a,
                                       const qn__ir_buffer_set_t* b) {
  for (; b; b = b->next) a = add_root(arena, a, b->root);
  return a;
}

qn__ir_accesses_t qn__accesses_join(qn__arena_t* arena, qn__ir_accesses_t a, qn__ir_accesses_t b) {
  return (qn__ir_accesses_t){join(arena, a.reads, b.reads), join(arena, a.writes, b.writes)};
}

bool qn__accesses_conflict(qn__ir_accesses_t a, qn__ir_accesses_t b) {
  return qn__buffer_sets_meet(a.writes, b.reads) || qn__buffer_sets_meet(a.writes, b.writes) ||
         qn__buffer_sets_meet(a.reads, b.writes);
}
