// SPDX-License-Identifier: Apache-2.0
// ir/verify_race.c: finds races that are certain: two iterations of a concurrent loop that access
// one element, at least one of them by a store.
//
// The walk keeps, for each value, the set of loops between whose iterations it may differ (its
// *levels*). With `parallel i { for j { let a = i * 2; x[j] = a; } }` the level of `i` is in the
// levels of `a` and not in those of `j`; so all iterations of `i` store to the same x[j].
//
// Requirements:
//
// R1. Report only what is certain. Where a fact is unknown, assume that there is no race.
//
// R2. A loop is concurrent if it is parallel, vector, block.*, thread.* or a scan, and is not known
//     to have fewer than two iterations. An allocation inside of it is private to the iteration.
//
// R3. A store to the same element in every iteration is a race. The element is the same if no index
//     depends on the loop's variable or on a value that may differ between iterations. Loads from
//     buffers that are written, old values of atomics and exchanges among threads may always
//     differ.
//
// R4. A condition around an access (`if`, `while`, `?`, `&&`, the bounds of an inner loop) makes it
//     uncertain if the condition may differ between the iterations. Any other condition makes it
//     uncertain too, unless the loop's extent is constant: the condition may hold only if there is
//     one iteration (`if n == 1 { ... }`).
//
// R5. Two accesses, one of them a store, are a race if their indices are equal sums except for a
//     distance of d iterations, with the same d in every dimension and d not 0: x[i] and x[i + 2]
//     access one element two iterations apart. Thread loops that contain a barrier are skipped,
//     since the barrier may separate the accesses, and so are all loops that order memory.
//
// Not here: the comparisons of R3 and R5 (verify_race_check.c).
#include "base/alloc.h"
#include "ir/race.h"

// Holds facts about a variable.
typedef struct race_known {
  qn__race_levels_t levels;
  qn__ir_affine_t value;  // of an integer let; otherwise not valid
} race_known_t;

static void visit_block(qn__race_t* r, const qn__ir_block_t* block);

static const qn__race_levels_t all_levels = UINT64_MAX;

static const race_known_t* known_of(const qn__race_t* r, const qn__ir_var_t* var) {
  return qn__ptrmap_get(&r->known, var);
}

static race_known_t* declare(qn__race_t* r, const qn__ir_var_t* var, qn__race_levels_t levels) {
  race_known_t* known = QN__ARENA_NEW(&r->v->scratch, race_known_t);
  if (!known || !qn__ptrmap_put(&r->known, var, known)) {
    qn__verify_out_of_memory(r->v);
    return NULL;
  }
  known->levels = levels;
  return known;
}

static const qn__ir_affine_t* value_of(const qn__ir_affine_lets_t* lets, const qn__ir_var_t* var) {
  const race_known_t* known = known_of(lets->self, var);
  return known && known->value.is_valid ? &known->value : NULL;
}

// ------------------------------------------------------------------------------------ conditions

typedef struct condition_state {
  qn__race_levels_t guards;
  uint32_t count;
} condition_state_t;

static condition_state_t enter_condition(qn__race_t* r, qn__race_levels_t levels) {
  condition_state_t before = {r->guards, r->condition_count};
  r->guards |= levels;
  r->condition_count++;
  return before;
}

static void leave_condition(qn__race_t* r, condition_state_t before) {
  r->guards = before.guards;
  r->condition_count = before.count;
}

// Records an access for the comparison at the end of its loops (R5).
static void record(qn__race_t* r, const qn__ir_buffer_t* buffer, qn__ir_expr_t* const* indices,
                   qn__ir_loc_t loc, bool is_store) {
  if (r->level == 0) return;
  void* items = r->accesses;
  if (!qn__grow(r->v->scratch.allocator, &items, &r->access_capacity, r->access_count + 1,
                sizeof *r->accesses)) {
    qn__verify_out_of_memory(r->v);
    return;
  }
  r->accesses = items;
  r->accesses[r->access_count++] =
      (qn__race_access_t){buffer, indices, loc, is_store, r->guards, r->condition_count};
}

// ------------------------------------------------------------------------------------ expressions

static qn__race_levels_t visit_all(qn__race_t* r, qn__ir_expr_t* const* exprs, size_t count) {
  qn__race_levels_t levels = 0;
  for (size_t i = 0; i < count; i++) levels |= qn__race_visit(r, exprs[i]);
  return levels;
}

// Visits operands under a condition with these levels (R4). The result may differ wherever the
// condition may differ.
static qn__race_levels_t visit_guarded(qn__race_t* r, qn__race_levels_t condition,
                                       qn__ir_expr_t* const* exprs, size_t count) {
  condition_state_t before = enter_condition(r, condition);
  condition |= visit_all(r, exprs, count);
  leave_condition(r, before);
  return condition;
}

// Visits a load. From a buffer that is written, it may differ between any two iterations (R3).
static qn__race_levels_t visit_load(qn__race_t* r, const qn__ir_expr_t* expr) {
  const qn__ir_buffer_t* buffer = expr->load.buffer;
  qn__race_levels_t levels = visit_all(r, expr->load.indices, buffer->rank);
  record(r, buffer, expr->load.indices, expr->loc, false);
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  bool is_constant = root->scope == QN__SCOPE_CONST ||
                     (root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN);
  if (!is_constant) return all_levels;
  levels |= qn__race_place_of(r, buffer).levels;
  return levels;
}

// Visits a reduction. Its bounds are a condition around its lets and value (R4).
static qn__race_levels_t visit_reduce(qn__race_t* r, const qn__ir_expr_t* expr) {
  qn__race_levels_t levels = qn__race_visit(r, expr->reduce.begin);
  levels |= qn__race_visit(r, expr->reduce.end);
  (void)declare(r, expr->reduce.reduce_var, levels);
  qn__race_levels_t guards = r->guards;
  r->guards |= levels;
  visit_block(r, &expr->reduce.lets);
  levels |= qn__race_visit(r, expr->reduce.value);
  r->guards = guards;
  return levels;
}

qn__race_levels_t qn__race_visit(qn__race_t* r, const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
      break;
    case QN__EXPR_VAR: {
      const race_known_t* known = known_of(r, expr->var);
      return known ? known->levels : 0;
    }
    case QN__EXPR_LOAD:
      return visit_load(r, expr);
    case QN__EXPR_OP: {
      if (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR) {
        return visit_guarded(r, qn__race_visit(r, expr->args[0]), expr->args + 1, 1);
      }
      qn__race_levels_t levels = visit_all(r, expr->args, qn__op_info(expr->op)->arity);
      return qn__expr_is_exchange(expr) ? all_levels : levels;
    }
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return qn__race_visit(r, expr->args[0]);
    case QN__EXPR_COND:
      return visit_guarded(r, qn__race_visit(r, expr->args[0]), expr->args + 1, 2);
    case QN__EXPR_REDUCE:
      return visit_reduce(r, expr);
  }
  return 0;
}

// ------------------------------------------------------------------------------------ statements

static void visit_let(qn__race_t* r, const qn__ir_stmt_t* stmt) {
  const qn__ir_expr_t* value = stmt->let.value;
  qn__race_levels_t levels = qn__race_visit(r, value);
  race_known_t* known = declare(r, stmt->let.var, levels);
  if (known && value->dtype == QN_DTYPE_I64) known->value = qn__affine_of(value, &r->lets);
}

static bool is_concurrent(qn_loop_kind_t kind) {
  return kind != QN_LOOP_SERIAL && kind != QN_LOOP_UNROLL;
}

// Opens a level for a loop, and saves the position of the body's first record.
static void enter_loop(qn__race_t* r, qn__race_loop_t loop, const qn__ir_expr_t* from,
                       const qn__ir_expr_t* to) {
  qn__ir_affine_t begin = qn__affine_of(from, &r->lets), end = qn__affine_of(to, &r->lets);
  qn__ir_affine_t extent = qn__affine_add(&end, &begin, -1);
  bool is_constant = qn__affine_is_constant(&extent);
  assert(r->level < QN__RACE_LOOPS);
  loop.is_single = is_constant && extent.constant <= 1;
  loop.is_constant = is_constant;
  loop.extent = extent.constant;
  loop.condition_count = r->condition_count;
  loop.barrier_count = r->barrier_count;
  loop.order_count = r->order_count;
  loop.access_count = r->access_count;
  r->loops[r->level++] = loop;
}

// Closes the innermost level, after comparing its accesses.
static void leave_level(qn__race_t* r) {
  if (!qn__verify_stopped(r->v)) qn__race_check_pairs(r, r->level - 1);
  r->level--;
  if (r->level == 0) r->access_count = 0;
}

// Visits the body of a loop. If iterations may end early, what they run depends on a condition.
static void visit_rounds(qn__race_t* r, const qn__ir_block_t* body) {
  if (!qn__block_leaves(body)) {
    visit_block(r, body);
    return;
  }
  condition_state_t before = enter_condition(r, all_levels);
  visit_block(r, body);
  leave_condition(r, before);
}

static void visit_loop(qn__race_t* r, const qn__ir_stmt_t* stmt) {
  qn__race_levels_t levels = qn__race_visit(r, stmt->loop.begin);
  levels |= qn__race_visit(r, stmt->loop.end);
  qn__race_levels_t guards = r->guards;
  // Only some iterations of the outer loops may enter this one: its bounds are a condition (R4).
  r->guards |= levels;
  bool is_open = is_concurrent(stmt->loop.kind) && r->level < QN__RACE_LOOPS;
  if (is_open) {
    qn__race_loop_t loop = {.var = stmt->loop.var,
                            .text = qn__loop_kind_text(stmt->loop.kind),
                            .is_thread = qn__loop_is_thread(stmt->loop.kind)};
    enter_loop(r, loop, stmt->loop.begin, stmt->loop.end);
    levels |= qn__race_level_bit(r->level - 1);
  }
  (void)declare(r, stmt->loop.var, levels);
  visit_rounds(r, &stmt->loop.body);
  if (is_open) leave_level(r);
  r->guards = guards;
}

// Visits a declaration. A view has the place of its buffer, and differs wherever its origin or
// strides differ.
static void visit_alloc(qn__race_t* r, const qn__ir_buffer_t* buffer) {
  qn__race_place_t* place = QN__ARENA_NEW(&r->v->scratch, qn__race_place_t);
  if (!place || !qn__ptrmap_put(&r->known, buffer, place)) {
    qn__verify_out_of_memory(r->v);
    return;
  }
  place->level = r->level;
  (void)visit_all(r, buffer->shape, buffer->rank);
  if (buffer->scope != QN__SCOPE_VIEW) return;
  *place = qn__race_place_of(r, buffer->base);
  place->levels |= visit_all(r, buffer->base_indices, buffer->base->rank);
  if (buffer->strides) place->levels |= visit_all(r, buffer->strides, buffer->rank);
  place->levels |= visit_all(r, buffer->shape, buffer->rank);
}

// Visits a reduction of several values, or a scan, which is a concurrent loop. Its bounds are a
// condition around all of it (R4), and its results may differ wherever a part of it may.
static void visit_several(qn__race_t* r, const qn__ir_several_t* several) {
  qn__race_levels_t levels = qn__race_visit(r, several->begin) | qn__race_visit(r, several->end);
  levels |= visit_all(r, several->initial, several->merged_count);
  qn__race_levels_t guards = r->guards;
  r->guards |= levels;
  bool is_open = qn__several_is_scan(several->kind) && r->level < QN__RACE_LOOPS;
  if (is_open) {
    qn__race_loop_t loop = {.var = several->var, .text = qn__several_text(several->kind)};
    enter_loop(r, loop, several->begin, several->end);
    levels |= qn__race_level_bit(r->level - 1);
  }
  (void)declare(r, several->var, levels);
  visit_block(r, &several->lets);
  levels |= visit_all(r, several->values, several->count);
  for (uint32_t i = 0; i < several->merged_count; i++) {
    (void)declare(r, several->left[i], levels);
    (void)declare(r, several->right[i], levels);
  }
  visit_block(r, &several->merge_lets);
  levels |= visit_all(r, several->merged, several->merged_count);
  for (uint32_t i = 0; i < several->result_count; i++) {
    (void)declare(r, several->results[i], levels);
  }
  visit_rounds(r, &several->body);
  if (is_open) leave_level(r);
  r->guards = guards;
}

static void visit_stmt(qn__race_t* r, const qn__ir_stmt_t* stmt) {
  r->order_count += qn__stmt_orders_memory(stmt);
  switch (stmt->kind) {
    case QN__STMT_LET:
      visit_let(r, stmt);
      return;
    case QN__STMT_STORE: {
      const qn__ir_buffer_t* buffer = stmt->store.buffer;
      qn__race_levels_t levels = visit_all(r, stmt->store.indices, buffer->rank);
      (void)qn__race_visit(r, stmt->store.value);
      qn__race_check_store(r, stmt, buffer, levels);
      record(r, buffer, stmt->store.indices, stmt->loc, true);
      return;
    }
    case QN__STMT_ATOMIC:
      (void)visit_all(r, stmt->atomic.indices, stmt->atomic.buffer->rank);
      if (stmt->atomic.operand) (void)qn__race_visit(r, stmt->atomic.operand);
      if (stmt->atomic.operand2) (void)qn__race_visit(r, stmt->atomic.operand2);
      if (stmt->atomic.result) (void)declare(r, stmt->atomic.result, all_levels);
      return;
    case QN__STMT_IF: {
      condition_state_t before = enter_condition(r, qn__race_visit(r, stmt->if_.condition));
      visit_block(r, &stmt->if_.then_block);
      visit_block(r, &stmt->if_.else_block);
      leave_condition(r, before);
      return;
    }
    case QN__STMT_LOOP:
      visit_loop(r, stmt);
      return;
    case QN__STMT_WHILE: {
      condition_state_t before = enter_condition(r, qn__race_visit(r, stmt->while_.condition));
      visit_rounds(r, &stmt->while_.body);
      leave_condition(r, before);
      return;
    }
    case QN__STMT_ALLOC:
      visit_alloc(r, stmt->alloc.buffer);
      return;
    case QN__STMT_BARRIER:
      r->barrier_count++;
      return;
    case QN__STMT_LEAVE:
    case QN__STMT_FENCE:
      return;
    case QN__STMT_ASSERT:
      (void)qn__race_visit(r, stmt->assert_.condition);
      return;
    case QN__STMT_REDUCE:
      visit_several(r, stmt->several);
      return;
    case QN__STMT_TENSOR:
      // Nothing is proven of what it accesses: the fake driver looks for its races.
      for (uint32_t i = 0; i < stmt->tensor->ref_count; ++i) {
        (void)visit_all(r, stmt->tensor->refs[i].indices, stmt->tensor->refs[i].buffer->rank);
      }
      if (stmt->tensor->operand) (void)qn__race_visit(r, stmt->tensor->operand);
      return;
  }
}

static void visit_block(qn__race_t* r, const qn__ir_block_t* block) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt && !qn__verify_stopped(r->v);
       stmt = stmt->next) {
    visit_stmt(r, stmt);
  }
}

void qn__verify_races(qn__verifier_t* v, const qn__ir_func_t* function) {
  qn__race_t r = {.v = v, .pairs_left = QN__RACE_PAIRS};
  r.lets = (qn__ir_affine_lets_t){value_of, &r};
  qn__ptrmap_init(&r.known, v->scratch.allocator);
  visit_block(&r, &function->body);
  assert(r.level == 0 && r.condition_count == 0 && r.guards == 0);
  qn__free(v->scratch.allocator, r.accesses, r.access_capacity * sizeof *r.accesses);
  qn__ptrmap_deinit(&r.known);
}
