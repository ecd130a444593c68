// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_wide_find.c: finds the runs of a loop: consecutive elements that can be moved by
// wide accesses without changing a value. print_wide.c lists the rules.
//
// Not here: printing them (print_wide.c).
#include <assert.h>

#include "ir/passes/lanes.h"
#include "jit/gpu/print_wide.h"

typedef struct wide_search {
  qn__lanes_t lanes;
  qn__gpu_wide_t* wide;
  const qn__ir_block_t* body;
  const qn__ir_expr_t* value;  // of a reduction, or NULL
} wide_search_t;

static bool is_same_element(const qn__ir_buffer_t* a, qn__ir_expr_t* const* a_indices,
                            const qn__ir_buffer_t* b, qn__ir_expr_t* const* b_indices) {
  if (a != b) return false;
  for (uint32_t i = 0; i < a->rank; ++i) {
    if (!qn__expr_equal(a_indices[i], b_indices[i])) return false;
  }
  return true;
}

qn__gpu_run_t* qn__kwide_run(qn__gpu_wide_t* wide, const qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* const* indices) {
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    qn__gpu_run_t* run = &wide->runs[i];
    if (is_same_element(run->buffer, run->indices, buffer, indices)) return run;
  }
  return NULL;
}

// Returns whether the lanes access consecutive elements of memory, wherever the first one is.
static bool is_run(const wide_search_t* self, const qn__ir_buffer_t* buffer,
                   qn__ir_expr_t* const* indices) {
  qn__ir_scope_t scope = qn__buf_root(buffer)->scope;
  if (scope != QN__SCOPE_PARAM && scope != QN__SCOPE_GLOBAL && scope != QN__SCOPE_SHARED) {
    return false;
  }
  if (qn__lanes_reach(&self->lanes, buffer, indices) != QN__REACH_CONTIGUOUS) return false;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    if (qn__lanes_of(&self->lanes, indices[i]).has_inner) return false;
  }
  return true;
}

static qn__gpu_run_t* add_run(wide_search_t* self, const qn__ir_buffer_t* buffer,
                              qn__ir_expr_t* const* indices) {
  qn__gpu_run_t* run = qn__kwide_run(self->wide, buffer, indices);
  if (run) return run;
  if (self->wide->run_count == QN__KWIDE_RUNS) return NULL;
  assert(self->wide->run_count < QN__KWIDE_RUNS);
  run = &self->wide->runs[self->wide->run_count++];
  *run = (qn__gpu_run_t){.buffer = buffer, .indices = indices, .root = qn__buf_root(buffer)};
  return run;
}

// ---- stores

// The search for an access that forbids moving a store to the loop's end (rule 3).
typedef struct wide_conflict {
  const qn__ir_stmt_t* store;
  const qn__ir_buffer_t* root;
  bool is_behind;  // the walk has passed the store
  bool is_found;
} wide_conflict_t;

static bool find_late_load(void* context, qn__ir_expr_t** slot) {
  wide_conflict_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD && qn__buf_root(expr->load.buffer) == self->root) {
    self->is_found |= !is_same_element(expr->load.buffer, expr->load.indices,
                                       self->store->store.buffer, self->store->store.indices);
  }
  return qn__expr_each_child(*slot, find_late_load, self);
}

static void find_conflict(wide_conflict_t* self, const qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt && !self->is_found; stmt = stmt->next) {
    if (stmt == self->store) {
      self->is_behind = true;
      continue;
    }
    if (self->is_behind) (void)qn__stmt_each_expr(stmt, find_late_load, self);
    if (stmt->kind == QN__STMT_STORE && qn__buf_root(stmt->store.buffer) == self->root) {
      self->is_found = true;
    }
    QN__EACH_BLOCK(stmt, inner) find_conflict(self, inner);
  }
}

static bool can_store_late(const wide_search_t* self, const qn__ir_stmt_t* store) {
  const qn__ir_buffer_t* root = qn__buf_root(store->store.buffer);
  if (!is_run(self, store->store.buffer, store->store.indices)) return false;
  wide_conflict_t conflict = {store, root, false, false};
  find_conflict(&conflict, self->body);
  return !conflict.is_found;
}

static bool has_store_to(const qn__ir_block_t* block, const qn__ir_buffer_t* root) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE && qn__buf_root(stmt->store.buffer) == root) return true;
    QN__EACH_BLOCK(stmt, inner) {
      if (has_store_to(inner, root)) return true;
    }
  }
  return false;
}

// Returns whether a run of this buffer may be loaded before the first lane: the loop has no store
// to it, or one that may happen after the last lane.
static bool can_load_early(const wide_search_t* self, const qn__ir_buffer_t* root) {
  if (!has_store_to(self->body, root)) return true;
  for (const qn__ir_stmt_t* stmt = self->body->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE && qn__buf_root(stmt->store.buffer) == root) {
      return can_store_late(self, stmt);
    }
  }
  return false;
}

// ---- runs

// Adds the loads of an expression that every lane evaluates (rule 1).
static bool collect_loads(void* context, qn__ir_expr_t** slot) {
  wide_search_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) return true;
  if (qn__expr_is_lazy(expr)) return collect_loads(self, &expr->args[0]);
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* buffer = expr->load.buffer;
    if (is_run(self, buffer, expr->load.indices) && can_load_early(self, qn__buf_root(buffer))) {
      qn__gpu_run_t* run = add_run(self, buffer, expr->load.indices);
      // After its store the array already has the element.
      if (run && !run->is_stored) run->is_loaded = true;
    }
  }
  return qn__expr_each_child(expr, collect_loads, self);
}

static bool is_plain(const qn__ir_stmt_t* stmt) {
  if (stmt->kind != QN__STMT_IF) {
    return stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_STORE;
  }
  const qn__ir_block_t* blocks[] = {&stmt->if_.then_block, &stmt->if_.else_block};
  for (size_t i = 0; i < QN_COUNT_OF(blocks); ++i) {
    for (const qn__ir_stmt_t* inner = blocks[i]->first; inner; inner = inner->next) {
      if (!is_plain(inner)) return false;
    }
  }
  return true;
}

static void collect(wide_search_t* self) {
  for (qn__ir_stmt_t* stmt = self->body->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, collect_loads, self);
    if (stmt->kind == QN__STMT_STORE && can_store_late(self, stmt)) {
      qn__gpu_run_t* run = add_run(self, stmt->store.buffer, stmt->store.indices);
      if (run) run->is_stored = true;
    }
  }
  qn__ir_expr_t* value = qn__gpu_walked_expr(self->value);
  if (value) (void)collect_loads(self, &value);
}

// Drops the loaded runs of a buffer whose store did not fit into the full table. That store would
// happen in its lane, before other lanes read the array.
static void drop_what_is_lost(wide_search_t* self) {
  qn__gpu_wide_t* wide = self->wide;
  if (wide->run_count < QN__KWIDE_RUNS) return;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    bool is_stored_apart = !wide->runs[i].is_stored;
    for (uint32_t k = 0; k < wide->run_count && is_stored_apart; ++k) {
      is_stored_apart = !(wide->runs[k].is_stored && wide->runs[k].root == wide->runs[i].root);
    }
    if (is_stored_apart && has_store_to(self->body, wide->runs[i].root)) continue;
    wide->runs[kept++] = wide->runs[i];
  }
  wide->run_count = kept;
}

// ---- all

static bool is_lane_count(int64_t count) {
  return count > 1 && count <= QN__KWIDE_LANES && (count & (count - 1)) == 0;
}

qn__gpu_wide_t* qn__kwide_find(qn__gpu_printer_t* p, qn__ir_var_t* var, const qn__ir_expr_t* first,
                               const qn__ir_expr_t* last, qn__ir_block_t* body,
                               const qn__ir_expr_t* value) {
  if (first->kind != QN__EXPR_INT || first->int_value != 0 || last->kind != QN__EXPR_INT ||
      !is_lane_count(last->int_value)) {
    return NULL;
  }
  for (const qn__ir_stmt_t* stmt = body->first; stmt; stmt = stmt->next) {
    if (!is_plain(stmt)) return NULL;
  }
  qn__gpu_wide_t* wide = QN__ARENA_NEW(p->arena, qn__gpu_wide_t);
  wide_search_t search = {.wide = wide, .body = body, .value = value};
  if (!wide || !qn__lanes_init(&search.lanes, p->arena, p->kernel->function)) {
    qn__kprint_no_memory(p);
    return NULL;
  }
  qn__lanes_enter(&search.lanes, var, body);
  wide->count = (uint32_t)last->int_value;
  collect(&search);
  drop_what_is_lost(&search);
  assert(wide->run_count <= QN__KWIDE_RUNS);
  return wide->run_count > 0 ? wide : NULL;
}
