// SPDX-License-Identifier: Apache-2.0
// ir/passes/lanes.c: classifies the values of a loop's body as uniform, linear or varying.
//
// Integer arithmetic wraps, so a step is a difference modulo the width; narrowing and widening
// casts end linearity, because a wrap in the narrow type is no step. Loads are uniform only when
// their indices are and nothing in the loop stores to the buffer.
//
// The iterations of `for i in 0..n { y[i, 0] = x[i]; y[i, 1] = y[i, 0] * 2.0; }` are independent:
// each accesses row i of y alone. The proof, for each buffer that the loop stores to:
// 1. All accesses use the same buffer, not views of it with other shapes.
// 2. There is a dimension in which all accesses have the same index.
// 3. That index changes by a constant other than 0 from one iteration to the next.
// 4. It depends on no load and on no variable of an inner loop.
// 5. If the buffer has strides, that dimension's stride is a constant other than 0, and the other
//    indices are equal and uniform.
// Different parameters are different memory: the call checks that.
#include "ir/passes/lanes.h"

static const qn__ir_lane_t uniform = {false, false, 0};

bool qn__lanes_init(qn__lanes_t* lanes, qn__arena_t* arena, const qn__ir_func_t* function) {
  lanes->var_count = function->var_count;
  lanes->buffer_count = function->buffer_count;
  lanes->vars = qn__arena_alloc_array(arena, function->var_count + 1U, sizeof(qn__ir_lane_t));
  lanes->is_stored = qn__arena_alloc_array(arena, function->buffer_count + 1U, sizeof(bool));
  lanes->is_private = qn__arena_alloc_array(arena, function->buffer_count + 1U, sizeof(bool));
  return lanes->vars && lanes->is_stored && lanes->is_private;
}

static qn__ir_lane_t varying(bool has_inner) {
  return (qn__ir_lane_t){true, has_inner, 0};
}

typedef struct join {
  const qn__lanes_t* lanes;
  bool is_uniform;
  bool has_inner;
} join_t;

static bool join_child(void* self, qn__ir_expr_t** slot) {
  join_t* join = self;
  qn__ir_lane_t lane = qn__lanes_of(join->lanes, *slot);
  if (!qn__lane_is_uniform(lane)) join->is_uniform = false;
  if (lane.has_inner) join->has_inner = true;
  return true;
}

static qn__ir_lane_t of_op(const qn__lanes_t* lanes, qn__ir_expr_t* expr) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (qn__expr_is_exchange(expr)) return varying(true);
  if (qn__dtype_is_int(expr->dtype) && info->rule == QN__RULE_NUMERIC && info->arity <= 2 &&
      expr->op != QN_OP_MIN && expr->op != QN_OP_MAX && expr->op != QN_OP_ABS) {
    qn__ir_lane_t a = qn__lanes_of(lanes, expr->args[0]);
    qn__ir_lane_t b = expr->args[1] ? qn__lanes_of(lanes, expr->args[1]) : uniform;
    bool has_inner = a.has_inner || b.has_inner;
    if (a.is_varying || b.is_varying) return varying(has_inner);
    int64_t step = 0;
    bool overflows = false;
    switch (expr->op) {
      case QN_OP_ADD:
        overflows = __builtin_add_overflow(a.step, b.step, &step);
        break;
      case QN_OP_SUB:
        overflows = __builtin_sub_overflow(a.step, b.step, &step);
        break;
      case QN_OP_NEG:
        overflows = __builtin_sub_overflow((int64_t)0, a.step, &step);
        break;
      case QN_OP_MUL: {
        int64_t factor;
        if (a.step == 0 && b.step == 0) break;
        if (a.step == 0 && qn__expr_const_int(expr->args[0], &factor)) {
          overflows = __builtin_mul_overflow(b.step, factor, &step);
        } else if (b.step == 0 && qn__expr_const_int(expr->args[1], &factor)) {
          overflows = __builtin_mul_overflow(a.step, factor, &step);
        } else {
          overflows = true;
        }
        break;
      }
      default:
        overflows = a.step != 0 || b.step != 0;
        break;
    }
    return overflows ? varying(has_inner) : (qn__ir_lane_t){false, has_inner, step};
  }
  join_t join = {lanes, true, false};
  (void)qn__expr_each_child(expr, join_child, &join);
  return join.is_uniform ? (qn__ir_lane_t){false, join.has_inner, 0} : varying(join.has_inner);
}

qn__ir_lane_t qn__lanes_of(const qn__lanes_t* lanes, qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
      return uniform;
    case QN__EXPR_VAR:
      assert(expr->var->id < lanes->var_count);
      return lanes->vars[expr->var->id];
    case QN__EXPR_OP:
      return of_op(lanes, expr);
    case QN__EXPR_LOAD: {
      join_t join = {lanes, true, false};
      (void)qn__expr_each_child(expr, join_child, &join);
      bool is_stored = lanes->is_stored[qn__buf_root(expr->load.buffer)->id];
      return join.is_uniform && !is_stored ? (qn__ir_lane_t){false, true, 0} : varying(true);
    }
    case QN__EXPR_REDUCE: {
      // Its variable and lets were classified when the reduction was entered.
      join_t join = {lanes, true, false};
      (void)qn__expr_each_child(expr, join_child, &join);
      return join.is_uniform ? (qn__ir_lane_t){false, true, 0} : varying(true);
    }
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
    case QN__EXPR_COND: {
      join_t join = {lanes, true, false};
      (void)qn__expr_each_child(expr, join_child, &join);
      return join.is_uniform ? (qn__ir_lane_t){false, join.has_inner, 0} : varying(join.has_inner);
    }
  }
  return varying(true);
}

void qn__lanes_let(qn__lanes_t* lanes, const qn__ir_stmt_t* let) {
  assert(let->kind == QN__STMT_LET && let->let.var->id < lanes->var_count);
  lanes->vars[let->let.var->id] = qn__lanes_of(lanes, let->let.value);
}

// Classifies the variables of reductions inside an expression, outermost first.
static bool enter_reductions(void* self, qn__ir_expr_t** slot) {
  qn__lanes_t* lanes = self;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    lanes->vars[expr->reduce.reduce_var->id] = (qn__ir_lane_t){false, true, 0};
    for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      if (!enter_reductions(lanes, &let->let.value)) return false;
      qn__lanes_let(lanes, let);
    }
  }
  return qn__expr_each_child(expr, enter_reductions, self);
}

static void enter_block(qn__lanes_t* lanes, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, enter_reductions, lanes);
    if (stmt->kind == QN__STMT_LET) qn__lanes_let(lanes, stmt);
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_LOCAL) {
      lanes->is_private[stmt->alloc.buffer->id] = true;
    }
    if (stmt->kind == QN__STMT_ATOMIC && stmt->atomic.result) {
      lanes->vars[stmt->atomic.result->id] = varying(true);
    }
    if (stmt->kind == QN__STMT_LOOP) {
      bool is_uniform = qn__lane_is_uniform(qn__lanes_of(lanes, stmt->loop.begin));
      lanes->vars[stmt->loop.var->id] =
          is_uniform ? (qn__ir_lane_t){false, true, 0} : varying(true);
    }
    QN__EACH_BLOCK(stmt, inner) enter_block(lanes, inner);
  }
}

static bool find_store(void* self, const qn__ir_ref_t* ref) {
  const qn__lanes_t* lanes = self;
  bool is_write = ref->kind == QN__REF_STORE || ref->kind == QN__REF_ATOMIC;
  assert(qn__buf_root(*ref->buffer)->id < lanes->buffer_count);
  if (is_write) lanes->is_stored[qn__buf_root(*ref->buffer)->id] = true;
  return true;
}

void qn__lanes_enter(qn__lanes_t* lanes, qn__ir_var_t* var, qn__ir_block_t* body) {
  memset(lanes->vars, 0, lanes->var_count * sizeof *lanes->vars);
  memset(lanes->is_stored, 0, lanes->buffer_count * sizeof *lanes->is_stored);
  memset(lanes->is_private, 0, lanes->buffer_count * sizeof *lanes->is_private);
  assert(var->id < lanes->var_count);
  lanes->vars[var->id] = (qn__ir_lane_t){false, false, 1};
  if (body) qn__lanes_add(lanes, body);
}

void qn__lanes_add(qn__lanes_t* lanes, qn__ir_block_t* body) {
  (void)qn__block_each_ref(body, find_store, lanes);
  enter_block(lanes, body);
}

qn__lanes_reach_t qn__lanes_reach(const qn__lanes_t* lanes, const qn__ir_buffer_t* buffer,
                                  qn__ir_expr_t* const* indices) {
  bool is_contiguous = false;
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    qn__ir_lane_t lane = qn__lanes_of(lanes, indices[d]);
    if (qn__lane_is_uniform(lane)) continue;
    if (lane.is_varying || lane.step != 1 || is_contiguous) return QN__REACH_SCATTERED;
    bool has_unit_stride = buffer->strides ? qn__expr_is_int(buffer->strides[d], 1) : true;
    for (uint32_t after = d + 1; !buffer->strides && after < buffer->rank; ++after) {
      if (!qn__expr_is_int(buffer->shape[after], 1)) has_unit_stride = false;
    }
    if (!has_unit_stride) return QN__REACH_SCATTERED;
    is_contiguous = true;
  }
  return is_contiguous ? QN__REACH_CONTIGUOUS : QN__REACH_UNIFORM;
}

// ---- independence

typedef struct slice {
  const qn__lanes_t* lanes;
  qn__ir_block_t* body;
  const qn__ir_buffer_t* buffer;  // that is stored to
  qn__ir_expr_t* const* indices;  // of that store
  uint32_t dim;
} slice_t;

// Returns false for an access outside of the iteration's slice.
static bool is_in_slice(void* context, const qn__ir_ref_t* ref) {
  const slice_t* self = context;
  const qn__ir_buffer_t* buffer = *ref->buffer;
  if (ref->kind == QN__REF_BASE || qn__buf_root(buffer) != qn__buf_root(self->buffer)) return true;
  if (buffer != self->buffer) return false;  // requirement 1
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    // With strides of the caller's choice only steps along a single known stride are told apart.
    if (d != self->dim && !buffer->strides) continue;
    qn__ir_lane_t lane = qn__lanes_of(self->lanes, (*ref->indices)[d]);
    if (lane.is_varying || lane.has_inner || (lane.step == 0) == (d == self->dim) ||
        !qn__expr_equal((*ref->indices)[d], self->indices[d])) {
      return false;
    }
    int64_t stride;
    if (d == self->dim && buffer->strides &&
        (!qn__expr_const_int(buffer->strides[d], &stride) || stride == 0)) {
      return false;
    }
  }
  return true;
}

static bool has_slice(void* context, const qn__ir_stmt_t* store) {
  slice_t* self = context;
  self->buffer = store->store.buffer;
  self->indices = store->store.indices;
  for (self->dim = 0; self->dim < self->buffer->rank; ++self->dim) {
    if (qn__block_each_ref(self->body, is_in_slice, self)) return true;
  }
  return false;
}

bool qn__lanes_all_stores(const qn__lanes_t* lanes, qn__ir_block_t* block, int* inout_budget,
                          bool (*has_proof)(void* self, const qn__ir_stmt_t* store), void* self) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_shared =
        stmt->kind == QN__STMT_STORE && !lanes->is_private[qn__buf_root(stmt->store.buffer)->id];
    if (is_shared && (--*inout_budget < 0 || !has_proof(self, stmt))) return false;
    QN__EACH_BLOCK(stmt, inner) {
      if (!qn__lanes_all_stores(lanes, inner, inout_budget, has_proof, self)) return false;
    }
  }
  return true;
}

bool qn__lanes_is_independent(const qn__lanes_t* lanes, qn__ir_block_t* body) {
  slice_t self = {.lanes = lanes, .body = body};
  int budget = 128;
  return qn__lanes_all_stores(lanes, body, &budget, has_slice, &self);
}
