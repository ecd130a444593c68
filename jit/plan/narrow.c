// SPDX-License-Identifier: Apache-2.0
// jit/plan/narrow.c: finds the i64 expressions of a kernel that can be computed in 32 bits.
//
// Indices are i64 in the IR, and small in most calls; GPUs compute in 32 bits much faster. For each
// kernel a second, *narrow* one is printed, in which a set of expressions has 32 bits. This file
// finds that set, and collects the *needs*: bounds that must fit 32 bits for the set to be right.
// The host tests them at each launch (the *guard*), and launches the wide kernel where they fail.
//
//  1. A linear index lies within its buffer. If the buffer has at most 2^31 - 1 elements, the low
//  32
//     bits of the index are the whole index. The low bits of sums, products, negations, bitwise
//     operations and left shifts follow from the low bits of their operands. So all operands of an
//     index, down to other operators, are narrow without a need.
//  2. Elsewhere the value itself counts: comparisons, divisions, bounds of loops, conversions,
//     stores. There an expression is narrow only if it has symbolic bounds (bounds.h) that the
//     guard proves to fit. Its operands then follow rule 1.
//  3. A variable is narrow if its value, or both bounds of its loop, are proven to fit. Any other
//     loop counts in 64 bits, and its variable is cut to 32 bits where rule 1 allows that.
//  4. The numbers of blocks and threads of a nest are products of extents, computed in 32 bits. So
//     the products are needs. Each factor is raised to at least 0 first, as in the kernel.
//  5. Bounds in the body of a loop assume that the loop runs. If it does not run, they may be
//  wrong,
//     but then no value of the body is computed, and either kernel is right.
//  6. A checked build compares each index with its extent, so indices count as values (rule 2). An
//     offset through a view must not wrap around into the buffer below either.
//  7. The narrow kernel is an optimisation only. If a proof fails, there is none.
//
// Scalar parameters keep their width: a scalar that is merely stored should not decide the guard.
//
// Not here: bounds of values (narrow_interval.c), the set that is found (widths.c).
#include "jit/plan/narrow.h"

#include <assert.h>

#include "base/alloc.h"
#include "jit/plan/nest.h"

// ---- expressions

static void mark(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr) {
  assert(expr->dtype == QN_DTYPE_I64);
  if (!qn__gpu_widths_add(self->widths, self->arena, expr)) self->has_no_memory = true;
}

// Visits an expression and marks the narrow parts. `is_low`: only the low 32 bits of the value
// count (rule 1).
static void visit(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr, bool is_low);
static void visit_buffer(qn__gpu_narrow_t* self, const qn__ir_buffer_t* buffer);
static void visit_loop(qn__gpu_narrow_t* self, const qn__ir_var_t* var, const qn__ir_expr_t* begin,
                       const qn__ir_expr_t* end, bool is_needed);
static void visit_let(qn__gpu_narrow_t* self, const qn__ir_stmt_t* stmt);

static void visit_access(qn__gpu_narrow_t* self, const qn__ir_buffer_t* buffer,
                         qn__ir_expr_t* const* indices) {
  visit_buffer(self, buffer);
  for (uint32_t i = 0; i < buffer->rank; i++) visit(self, indices[i], !self->is_checked);
}

static void visit_reduce(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr) {
  visit_loop(self, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end, false);
  for (const qn__ir_stmt_t* stmt = expr->reduce.lets.first; stmt; stmt = stmt->next) {
    visit_let(self, stmt);
  }
  visit(self, expr->reduce.value, false);
}

static bool is_proven(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr) {
  qn__gpu_interval_t interval = qn__gpu_narrow_interval(self, expr);
  return qn__gpu_narrow_prove(self, &interval);
}

// Returns whether an i64 expression is narrow.
static bool is_narrow_value(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr, bool is_low) {
  switch (expr->kind) {
    case QN__EXPR_INT:
      return is_low || qn__gpu_is_within_32_bits(expr->int_value);
    case QN__EXPR_VAR:
      // A narrow variable of the kernel is proven. A variable of the host needs the guard where its
      // value counts.
      return is_low || (qn__gpu_is_narrow_var(self->widths, expr->var) &&
                        (self->is_inside[expr->var->id] || is_proven(self, expr)));
    case QN__EXPR_CAST: {
      qn_dtype_t from = expr->args[0]->dtype;
      bool is_small = !qn__dtype_is_real(from) && qn__dtype_bits(from) <= 32;
      return is_small && (is_low || from != QN_DTYPE_U32);
    }
    case QN__EXPR_COND:
      return is_low || is_proven(self, expr);
    case QN__EXPR_OP:
      return !qn__expr_is_exchange(expr) && (is_low || is_proven(self, expr));
    default:
      return false;
  }
}

// Returns whether only the low bits of an operand count, for an operator whose result is narrow or
// not.
static bool is_operand_low(const qn__ir_expr_t* expr, uint32_t operand, bool is_narrow) {
  // The language takes a shift count modulo the width, so the low bits of a literal are enough.
  bool is_shift = expr->op == QN_OP_SHL || expr->op == QN_OP_SHR;
  if (is_shift && operand == 1 && expr->args[1]->kind == QN__EXPR_INT) return true;
  return is_narrow && (expr->op == QN_OP_SELECT ? operand > 0 : qn__gpu_is_low_bits_op(expr));
}

static void visit(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr, bool is_low) {
  bool is_narrow = expr->dtype == QN_DTYPE_I64 && is_narrow_value(self, expr, is_low);
  if (is_narrow) mark(self, expr);
  switch (expr->kind) {
    case QN__EXPR_LOAD:
      visit_access(self, expr->load.buffer, expr->load.indices);
      break;
    case QN__EXPR_CAST:
      // A conversion to 32 bits or fewer takes the low bits.
      visit(self, expr->args[0],
            qn__dtype_is_int(expr->dtype) && qn__dtype_bits(expr->dtype) <= 32);
      break;
    case QN__EXPR_BITCAST:
      visit(self, expr->args[0], false);
      break;
    case QN__EXPR_COND:
      for (uint32_t i = 0; i < 3; i++) visit(self, expr->args[i], is_narrow && i > 0);
      break;
    case QN__EXPR_OP:
      for (uint32_t i = 0; i < qn__op_info(expr->op)->arity; i++) {
        visit(self, expr->args[i], is_operand_low(expr, i, is_narrow));
      }
      break;
    case QN__EXPR_REDUCE:
      visit_reduce(self, expr);
      break;
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
      break;
  }
}

// ---- buffers

// Adds the needs of a buffer's span. The number of elements must fit, not just the last index,
// since loops compare with it.
static void need_span(qn__gpu_narrow_t* self, const qn__gpu_bound_t* lo,
                      const qn__gpu_bound_t* hi) {
  qn__gpu_bounds_t* bounds = &self->bounds;
  qn__gpu_narrow_need(self, QN__GPU_NEED_MIN, lo);
  qn__gpu_narrow_need(self, QN__GPU_NEED_MAX,
                      qn__gpu_bound_op(bounds, QN_OP_ADD, hi, qn__gpu_bound_const(bounds, 1)));
}

// Visits the expressions that each access of the buffer computes besides its indices: extents,
// strides, and the origin of a view.
static void visit_buffer(qn__gpu_narrow_t* self, const qn__ir_buffer_t* buffer) {
  if (self->is_buffer_seen[buffer->id]) return;
  self->is_buffer_seen[buffer->id] = true;
  bool is_low = !self->is_checked;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    visit(self, buffer->shape[i], is_low);
    if (buffer->strides) visit(self, buffer->strides[i], true);
  }
  const qn__gpu_bound_t *lo, *hi;
  if (buffer->scope != QN__SCOPE_VIEW) {
    qn__gpu_narrow_span(self, buffer, &lo, &hi);
    need_span(self, lo, hi);
    return;
  }
  visit_access(self, buffer->base, buffer->base_indices);
  if (!self->is_checked) return;
  // No offset that the view's extents allow may wrap around (rule 6).
  qn__gpu_narrow_span(self, buffer, &lo, &hi);
  for (const qn__ir_buffer_t* base = buffer->base;; base = base->base) {
    const qn__gpu_bound_t *base_lo, *base_hi;
    qn__gpu_narrow_span(self, base, &base_lo, &base_hi);
    lo = qn__gpu_bound_op(&self->bounds, QN_OP_ADD, lo, base_lo);
    hi = qn__gpu_bound_op(&self->bounds, QN_OP_ADD, hi, base_hi);
    if (base->scope != QN__SCOPE_VIEW) break;
  }
  need_span(self, lo, hi);
}

// ---- statements

// Bounds the variable of a loop: [begin, end - 1], which assumes that the loop runs (rule 5).
// `is_needed`: the loop must be counted in 32 bits (rule 4).
static void visit_loop(qn__gpu_narrow_t* self, const qn__ir_var_t* var, const qn__ir_expr_t* begin,
                       const qn__ir_expr_t* end, bool is_needed) {
  qn__gpu_interval_t from = qn__gpu_narrow_interval(self, begin),
                     to = qn__gpu_narrow_interval(self, end);
  assert(var->id < self->widths->var_count && var->dtype == QN_DTYPE_I64);
  self->is_inside[var->id] = true;
  bool is_narrow = qn__gpu_narrow_prove(self, &from) && qn__gpu_narrow_prove(self, &to);
  if (is_narrow) {
    self->intervals[var->id] = (qn__gpu_interval_t){
        from.lo,
        qn__gpu_bound_op(&self->bounds, QN_OP_ADD, to.hi, qn__gpu_bound_const(&self->bounds, -1)),
        from.is_nonnegative};
    if (!self->intervals[var->id].hi) self->intervals[var->id] = QN__GPU_INTERVAL_UNKNOWN;
  }
  self->widths->vars[var->id] = is_narrow;
  if (!is_narrow && is_needed) self->is_impossible = true;
  visit(self, begin, false);
  visit(self, end, false);
}

static void visit_let(qn__gpu_narrow_t* self, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->let.var;
  self->is_inside[var->id] = true;
  bool is_narrow = false;
  if (var->dtype == QN_DTYPE_I64) {
    self->intervals[var->id] = qn__gpu_narrow_interval(self, stmt->let.value);
    is_narrow = qn__gpu_narrow_prove(self, &self->intervals[var->id]);
    self->widths->vars[var->id] = is_narrow;
  }
  visit(self, stmt->let.value, is_narrow);
}

// Adds the need that the product of a nest's extents fits (rule 4).
static void need_count(qn__gpu_narrow_t* self, const qn__ir_stmt_t* loop) {
  qn__gpu_bounds_t* bounds = &self->bounds;
  const qn__gpu_bound_t *product = qn__gpu_bound_const(bounds, 1),
                        *zero = qn__gpu_bound_const(bounds, 0);
  // Bounds of inner loops may use outer variables. So take the upper bound of `end` and the lower
  // bound of `begin`, which hold for all values of these variables.
  assert(qn__loop_is_block(loop->loop.kind) || qn__loop_is_thread(loop->loop.kind));
  for (; loop; loop = qn__gpu_nest_inner(loop)) {
    qn__gpu_interval_t from = qn__gpu_narrow_interval(self, loop->loop.begin);
    qn__gpu_interval_t to = qn__gpu_narrow_interval(self, loop->loop.end);
    const qn__gpu_bound_t* extent = qn__gpu_bound_op(bounds, QN_OP_SUB, to.hi, from.lo);
    bool is_plain = to.is_nonnegative && from.lo == zero;
    if (!is_plain) extent = qn__gpu_bound_op(bounds, QN_OP_MAX, extent, zero);
    product = qn__gpu_bound_op(bounds, QN_OP_MUL, product, extent);
  }
  qn__gpu_narrow_need(self, QN__GPU_NEED_MAX, product);
}

static void visit_block(qn__gpu_narrow_t* self, const qn__ir_block_t* block,
                        const qn__ir_stmt_t* parent);

static void visit_stmt(qn__gpu_narrow_t* self, const qn__ir_stmt_t* stmt,
                       const qn__ir_stmt_t* parent) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      visit_let(self, stmt);
      break;
    case QN__STMT_STORE:
      visit_access(self, stmt->store.buffer, stmt->store.indices);
      visit(self, stmt->store.value, false);
      break;
    case QN__STMT_ATOMIC:
      visit_access(self, stmt->atomic.buffer, stmt->atomic.indices);
      if (stmt->atomic.operand) visit(self, stmt->atomic.operand, false);
      if (stmt->atomic.operand2) visit(self, stmt->atomic.operand2, false);
      if (stmt->atomic.result) self->is_inside[stmt->atomic.result->id] = true;
      break;
    case QN__STMT_IF:
      visit(self, stmt->if_.condition, false);
      visit_block(self, &stmt->if_.then_block, stmt);
      visit_block(self, &stmt->if_.else_block, stmt);
      break;
    case QN__STMT_LOOP: {
      bool is_block = qn__loop_is_block(stmt->loop.kind);
      bool is_thread = qn__loop_is_thread(stmt->loop.kind);
      visit_loop(self, stmt->loop.var, stmt->loop.begin, stmt->loop.end, is_block || is_thread);
      visit_block(self, &stmt->loop.body, stmt);
      bool is_inner =
          parent && parent->kind == QN__STMT_LOOP &&
          (is_block ? qn__loop_is_block(parent->loop.kind) : qn__loop_is_thread(parent->loop.kind));
      // After the body, when the variables of inner loops have their intervals.
      if ((is_block || is_thread) && !is_inner) need_count(self, stmt);
      break;
    }
    case QN__STMT_WHILE:
      visit(self, stmt->while_.condition, false);
      visit_block(self, &stmt->while_.body, stmt);
      break;
    case QN__STMT_ALLOC:
      if (stmt->alloc.buffer->scope != QN__SCOPE_CONST) visit_buffer(self, stmt->alloc.buffer);
      break;
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
      break;
    case QN__STMT_ASSERT:
      visit(self, stmt->assert_.condition, false);
      break;
    case QN__STMT_TENSOR:
      for (uint32_t i = 0; i < stmt->tensor->ref_count; ++i) {
        visit_access(self, stmt->tensor->refs[i].buffer, stmt->tensor->refs[i].indices);
      }
      if (stmt->tensor->operand) visit(self, stmt->tensor->operand, false);
      break;
    case QN__STMT_REDUCE:
    case QN__STMT_LEAVE:
      break;  // passes replace them
  }
}

static void visit_block(qn__gpu_narrow_t* self, const qn__ir_block_t* block,
                        const qn__ir_stmt_t* parent) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    visit_stmt(self, stmt, parent);
  }
}

// ---- all

// Marks the variables of the host: symbols and lets of the host are narrow, scalar parameters keep
// their width.
static void note_outside(qn__gpu_narrow_t* self) {
  const qn__gpu_split_t* split = self->split;
  for (size_t i = 0; i < split->function->symbol_count; i++) {
    self->widths->vars[split->function->symbols[i]->id] = true;
  }
  for (uint32_t i = 0; i < split->function->var_count; i++) {
    if (split->locals[i] != QN__GPU_NO_PLACE) self->widths->vars[i] = true;
  }
}

bool qn__gpu_narrow(qn__gpu_split_t* split, qn__ir_stmt_t* root,
                    const qn__gpu_widths_t** out_widths, qn__gpu_ops_t* out_guard) {
  *out_widths = NULL;
  qn__arena_t* arena = split->arena;
  uint32_t var_count = split->function->var_count;
  uint32_t buffer_count = split->function->buffer_count;
  qn__gpu_narrow_t self = {.split = split,
                           .arena = arena,
                           .bounds = {.arena = arena},
                           .is_checked = split->options->passes.is_checked};
  self.needs.bounds = &self.bounds;
  self.widths = QN__ARENA_NEW(arena, qn__gpu_widths_t);
  self.intervals = qn__arena_alloc_array(arena, var_count + 1U, sizeof *self.intervals);
  self.is_inside = qn__arena_alloc(arena, var_count + 1U);
  self.is_buffer_seen = qn__arena_alloc(arena, buffer_count + 1U);
  self.host_signs = qn__arena_alloc(arena, var_count + 1U);
  bool* vars = qn__arena_alloc(arena, var_count + 1U);
  if (!self.widths || !self.intervals || !self.is_inside || !self.is_buffer_seen ||
      !self.host_signs || !vars) {
    return false;
  }
  self.widths->vars = vars;
  self.widths->var_count = var_count;
  note_outside(&self);
  visit_stmt(&self, root, NULL);
  if (self.has_no_memory || self.needs.has_no_memory || arena->is_exhausted) return false;
  if (self.is_impossible || !qn__gpu_needs_put_guard(&self.needs, &split->host, out_guard)) {
    *out_guard = (qn__gpu_ops_t){.arena = arena};
    return true;
  }
  assert(qn__gpu_widths_check(self.widths));
  *out_widths = self.widths;
  return !out_guard->has_failed;
}
