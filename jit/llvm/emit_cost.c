// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_cost.c: emits an estimate of the time of one iteration of a launch.
//
// The estimate only decides whether a launch uses other threads, and how large their shares are.
// Extents that are known before the launch count as they are; others are guessed.
#include "ir/math/math.h"
#include "jit/llvm/emit_inner.h"

// Nanoseconds of one scalar operation; vectors run several at once.
#define NS_MEMORY 0.4
#define NS_SIMPLE 0.2
#define NS_DIVISION 2.0
#define NS_TILE 0.05
#define NS_FUNCTION 4.0
#define NS_ATOMIC 10.0
#define GUESSED_TRIPS 16.0

enum { MAX_LETS = 32 };

typedef struct cost {
  qn__llvm_emit_t* e;
  uint32_t mark;  // of variables that the launch declares
  // The first lets of integers in the launch.
  const qn__ir_stmt_t* lets[MAX_LETS];
  uint32_t let_count;
} cost_t;

static LLVMValueRef cost_block(cost_t* self, const qn__ir_block_t* block, double share);

static LLVMValueRef constant(const cost_t* self, double ns) {
  return LLVMConstReal(self->e->f64, ns);
}

static LLVMValueRef plus(const cost_t* self, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFAdd(self->e->fn->builder, a, b, "");
}

static bool visit_known(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  const cost_t* self = walker->self;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return true;
    case QN__EXPR_VAR:
      return ((const qn__llvm_var_slot_t*)expr->var->user)->mark != self->mark;
    case QN__EXPR_CAST:
      return qn__dtype_is_int(expr->args[0]->dtype);
    case QN__EXPR_OP: {
      qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
      return rule == QN__RULE_NUMERIC || rule == QN__RULE_INTEGER;
    }
    default:
      return false;
  }
}

// Returns whether the expression can be evaluated before the launch.
static bool is_known(cost_t* self, qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {.on_expr = visit_known, .self = self};
  return qn__walk_expr(&walker, expr);
}

// Returns the value of a variable that a let of the launch declares, or the expression itself.
static qn__ir_expr_t* resolved(const cost_t* self, qn__ir_expr_t* expr) {
  for (uint32_t i = 0; expr->kind == QN__EXPR_VAR && i < self->let_count; ++i) {
    if (self->lets[i]->let.var == expr->var) return self->lets[i]->let.value;
  }
  return expr;
}

// Returns the length of a range from `begin` to the smaller of `begin + length` and another bound,
// as a tile has, if it can be evaluated before the launch; else NULL.
static qn__ir_expr_t* tile_length(cost_t* self, qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  end = resolved(self, end);
  if (end->kind != QN__EXPR_OP || end->op != QN_OP_MIN) return NULL;
  for (int side = 0; side < 2; ++side) {
    qn__ir_expr_t* sum = resolved(self, end->args[side]);
    if (sum->kind != QN__EXPR_OP || sum->op != QN_OP_ADD) continue;
    if (qn__expr_equal(sum->args[0], begin) && is_known(self, sum->args[1])) return sum->args[1];
  }
  return NULL;
}

static LLVMValueRef trips(cost_t* self, qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  qn__llvm_emit_t* e = self->e;
  LLVMBuilderRef b = e->fn->builder;
  qn__ir_expr_t* length = NULL;
  if (!is_known(self, begin) || !is_known(self, end)) {
    length = tile_length(self, begin, end);
    if (!length) return constant(self, GUESSED_TRIPS);
  }
  bool was_unchecked = e->fn->is_unchecked;
  e->fn->is_unchecked = true;
  LLVMValueRef count =
      length ? qn__emit_scalar(e, length)
             : LLVMBuildSub(b, qn__emit_scalar(e, end), qn__emit_scalar(e, begin), "");
  e->fn->is_unchecked = was_unchecked;
  count = qn__emit_int_min_max(e, QN_DTYPE_I64, false, count, qn__emit_i64(e, 0));
  return LLVMBuildSIToFP(b, count, e->f64, "");
}

// Returns the fraction of the scalar cost that remains with this number of lanes.
static double lane_share(const cost_t* self, uint32_t lanes) {
  if (lanes <= 1 || self->e->options->is_scalar_only) return 1;
  uint32_t width = self->e->options->vector_bytes / 4;
  if (width == 0) width = 4;
  return 1.0 / (lanes < width ? lanes : width);
}

// Emits the cost of a loop or reduction: that of an iteration, `each`, as often as it runs.
static LLVMValueRef times(cost_t* self, qn__ir_expr_t* begin, qn__ir_expr_t* end,
                          LLVMValueRef each) {
  return LLVMBuildFMul(self->e->fn->builder, trips(self, begin, end), each, "");
}

static LLVMValueRef cost_expr(cost_t* self, const qn__ir_expr_t* expr, double share);

static LLVMValueRef plus_all(cost_t* self, LLVMValueRef sum, qn__ir_expr_t* const* exprs,
                             uint32_t count, double share) {
  for (uint32_t i = 0; i < count; ++i) sum = plus(self, sum, cost_expr(self, exprs[i], share));
  return sum;
}

static LLVMValueRef cost_expr(cost_t* self, const qn__ir_expr_t* expr, double share) {
  double ns = NS_SIMPLE;
  qn__math_id_t id;
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
      return constant(self, 0);
    case QN__EXPR_LOAD:
      // Indices stay scalars.
      return plus_all(self, constant(self, NS_MEMORY * share), expr->load.indices,
                      expr->load.buffer->rank, share);
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return plus_all(self, constant(self, NS_SIMPLE * share), expr->args, 1, share);
    case QN__EXPR_COND:
      return plus_all(self, cost_expr(self, expr->args[0], share), expr->args + 1, 2, share);
    case QN__EXPR_REDUCE: {
      double inner = share * lane_share(self, expr->reduce.lane_count);
      LLVMValueRef each =
          plus(self, constant(self, NS_SIMPLE * inner), cost_expr(self, expr->reduce.value, inner));
      each = plus(self, each, cost_block(self, &expr->reduce.lets, inner));
      return times(self, expr->reduce.begin, expr->reduce.end, each);
    }
    case QN__EXPR_OP:
      break;
  }
  if (expr->op >= QN_OP_DIV && expr->op <= QN_OP_CEILDIV) ns = NS_DIVISION;
  bool is_root = expr->op == QN_OP_SQRT || expr->op == QN_OP_RSQRT;
  if (is_root || qn__math_find(expr->op, expr->dtype, &id)) ns = NS_FUNCTION;
  return plus_all(self, constant(self, ns * share), expr->args, qn__op_info(expr->op)->arity,
                  share);
}

static LLVMValueRef cost_loop(cost_t* self, const qn__ir_stmt_t* stmt, double share) {
  double inner = share * lane_share(self, stmt->loop.lane_count);
  LLVMValueRef each =
      plus(self, constant(self, NS_SIMPLE * inner), cost_block(self, &stmt->loop.body, inner));
  return times(self, stmt->loop.begin, stmt->loop.end, each);
}

// Notes an integer that the launch declares. If it can be evaluated before the launch, so can
// extents that depend on it.
static void note_let(cost_t* self, const qn__ir_stmt_t* stmt) {
  qn__llvm_emit_t* e = self->e;
  if (is_known(self, stmt->let.value)) {
    bool was_unchecked = e->fn->is_unchecked;
    e->fn->is_unchecked = true;
    qn__llvm_var_slot_t* slot = stmt->let.var->user;
    slot->mark = 0;
    slot->is_nonnegative = qn__emit_is_nonnegative(stmt->let.value);
    qn__emit_bind(e, stmt->let.var, qn__emit_expr(e, stmt->let.value));
    e->fn->is_unchecked = was_unchecked;
  } else if (self->let_count < MAX_LETS) {
    self->lets[self->let_count++] = stmt;
  }
}

// Emits the cost of a product. Its extents are those of a task, `min(left, most)`: most count. Each
// is a multiplication, or in tiles one of a word by the columns of a panel.
static LLVMValueRef cost_product(cost_t* self, const qn__ir_tensor_t* tensor, double share) {
  qn__ir_expr_t zero = {.kind = QN__EXPR_INT, .dtype = QN_DTYPE_I64};
  uint32_t lanes = self->e->options->vector_bytes / 4;
  bool is_tiles = tensor->kind == QN__TENSOR_TILES;
  LLVMValueRef each =
      constant(self, share * (is_tiles ? NS_TILE : NS_SIMPLE * lane_share(self, lanes)));
  for (uint32_t i = 0; i < QN__TENSOR_REFS; ++i) {
    qn__ir_expr_t* extent = resolved(self, tensor->extents[i]);
    bool is_part = extent->kind == QN__EXPR_OP && extent->op == QN_OP_MIN;
    if (is_part && is_known(self, extent->args[1])) extent = extent->args[1];
    each = times(self, &zero, extent, each);
  }
  return each;
}

static LLVMValueRef cost_stmt(cost_t* self, const qn__ir_stmt_t* stmt, double share) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      if (stmt->let.var->dtype == QN_DTYPE_I64) note_let(self, stmt);
      return cost_expr(self, stmt->let.value, share);
    case QN__STMT_STORE:
      return plus(self, constant(self, NS_MEMORY * share),
                  cost_expr(self, stmt->store.value, share));
    case QN__STMT_ATOMIC:
      return constant(self, NS_ATOMIC);
    case QN__STMT_IF:
      return plus(self, cost_block(self, &stmt->if_.then_block, share),
                  cost_block(self, &stmt->if_.else_block, share));
    case QN__STMT_LOOP:
      return cost_loop(self, stmt, share);
    case QN__STMT_WHILE:
      return LLVMBuildFMul(self->e->fn->builder, constant(self, GUESSED_TRIPS),
                           cost_block(self, &stmt->while_.body, share), "");
    case QN__STMT_ASSERT:
      return cost_expr(self, stmt->assert_.condition, share);
    case QN__STMT_TENSOR:
      return cost_product(self, stmt->tensor, share);
    case QN__STMT_ALLOC:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
    case QN__STMT_REDUCE:
    case QN__STMT_LEAVE:
      break;
  }
  return constant(self, 0);
}

static LLVMValueRef cost_block(cost_t* self, const qn__ir_block_t* block, double share) {
  LLVMValueRef sum = constant(self, 0);
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    sum = plus(self, sum, cost_stmt(self, stmt, share));
  }
  return sum;
}

LLVMValueRef qn__emit_cost(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop) {
  cost_t self = {.e = e, .mark = qn__emit_mark(e, loop)};
  double share = lane_share(&self, loop->loop.lane_count);
  return plus(&self, LLVMConstReal(e->f64, NS_SIMPLE), cost_block(&self, &loop->loop.body, share));
}
