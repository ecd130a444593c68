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

static void touch(collect_t* self, const qn__ir_buffer_t* buffer, bool is_write) {
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  if (root->scope == QN__SCOPE_CONST || root->scope == QN__SCOPE_LOCAL) return;
  if (root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN) return;
  const qn__ir_buffer_set_t** set = is_write ? &self->accesses.writes : &self->accesses.reads;
  *set = add_root(self->arena, *set, root);
}

static bool collect_slot(void* self, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_LOAD) touch(self, (*slot)->load.buffer, false);
  return qn__expr_each_child(*slot, collect_slot, self);
}

static void collect_own(collect_t* self, qn__ir_stmt_t* stmt) {
  (void)qn__stmt_each_expr(stmt, collect_slot, self);
  if (stmt->kind == QN__STMT_STORE) touch(self, stmt->store.buffer, true);
  if (stmt->kind == QN__STMT_ATOMIC) touch(self, stmt->atomic.buffer, true);
}

static void collect_block(collect_t* self, qn__ir_block_t* block);

static void collect_stmt(collect_t* self, qn__ir_stmt_t* stmt) {
  collect_own(self, stmt);
  QN__EACH_BLOCK(stmt, inner) collect_block(self, inner);
}

static void collect_block(collect_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) collect_stmt(self, stmt);
}

qn__ir_accesses_t qn__accesses_of_own(qn__arena_t* arena, qn__ir_stmt_t* stmt) {
  collect_t self = {arena, {NULL, NULL}};
  collect_own(&self, stmt);
  return self.accesses;
}

qn__ir_accesses_t qn__accesses_of_stmt(qn__arena_t* arena, qn__ir_stmt_t* stmt) {
  collect_t self = {arena, {NULL, NULL}};
  collect_stmt(&self, stmt);
  return self.accesses;
}

qn__ir_accesses_t qn__accesses_of_block(qn__arena_t* arena, qn__ir_block_t* block) {
  collect_t self = {arena, {NULL, NULL}};
  collect_block(&self, block);
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
