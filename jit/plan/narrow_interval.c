// SPDX-License-Identifier: Apache-2.0
// jit/plan/narrow_interval.c: bounds the values and buffers of a kernel for narrow.c.
//
// Each i64 expression gets an interval of two symbolic bounds, or none. A bound consists of symbols
// and host values, so the host can compute it at each launch. Bounds may rest on an assumption, for
// example that a symbol is not negative; each assumption is a need, which the guard tests.
//
// Not here: how bounds are computed (bounds.c), and where values count (narrow.c).
#include "jit/plan/narrow.h"

// ---- needs

// Returns whether the bound may fit 32 bits: it is known, and not a constant that does not.
static bool may_fit(qn__gpu_need_kind_t kind, const qn__gpu_bound_t* bound) {
  if (!bound) return false;
  if (!qn__gpu_bound_is_const(bound)) return true;
  return kind == QN__GPU_NEED_MAX ? bound->value <= INT32_MAX : bound->value >= INT32_MIN;
}

void qn__gpu_narrow_need(qn__gpu_narrow_t* self, qn__gpu_need_kind_t kind,
                         const qn__gpu_bound_t* bound) {
  if (!may_fit(kind, bound)) {
    self->is_impossible = true;
  } else if (!qn__gpu_bound_is_const(bound)) {
    qn__gpu_needs_add(&self->needs, kind, bound);
  }
}

bool qn__gpu_narrow_prove(qn__gpu_narrow_t* self, const qn__gpu_interval_t* interval) {
  if (!may_fit(QN__GPU_NEED_MIN, interval->lo) || !may_fit(QN__GPU_NEED_MAX, interval->hi)) {
    return false;
  }
  qn__gpu_narrow_need(self, QN__GPU_NEED_MAX, interval->hi);
  // The upper bound of a single value that is not negative says it all.
  bool is_same = interval->is_nonnegative && qn__gpu_interval_is_point(interval);
  if (!is_same) qn__gpu_narrow_need(self, QN__GPU_NEED_MIN, interval->lo);
  return true;
}

// ---- expressions

// Signs of host lets are cached: without that, a chain of n lets that each use the one before twice
// would take 2^n steps.
typedef enum sign { SIGN_UNASKED, SIGN_ANY, SIGN_NONNEGATIVE } sign_t;

// The interval of a host value is the value itself. A symbol, an unsigned value, or one whose
// expression has no negative part is assumed to be not negative; the guard tests that.
static qn__gpu_interval_t interval_of_host(qn__gpu_narrow_t* self, const qn__ir_var_t* var) {
  const qn__gpu_bound_t* bound = qn__gpu_bound_var(&self->bounds, var);
  if (!bound) return QN__GPU_INTERVAL_UNKNOWN;
  uint8_t* sign = &self->host_signs[var->id];
  if (*sign == SIGN_UNASKED) {
    const qn__ir_expr_t* value = self->split->values[var->id];
    bool is_believed = var->kind == QN__VAR_SYMBOL ||
                       qn__dtype_class(var->dtype) == QN__CLASS_UNSIGNED ||
                       (value && qn__gpu_narrow_interval(self, value).is_nonnegative);
    *sign = is_believed ? SIGN_NONNEGATIVE : SIGN_ANY;
  }
  bool is_nonnegative = *sign == SIGN_NONNEGATIVE;
  if (is_nonnegative) qn__gpu_needs_add(&self->needs, QN__GPU_NEED_SIGN, bound);
  return (qn__gpu_interval_t){bound, bound, is_nonnegative};
}

static qn__gpu_interval_t interval_of_var(qn__gpu_narrow_t* self, const qn__ir_var_t* var) {
  if (self->is_inside[var->id]) return self->intervals[var->id];
  if (!qn__gpu_host_knows_var(&self->split->host, var)) return QN__GPU_INTERVAL_UNKNOWN;
  return interval_of_host(self, var);
}

static qn__gpu_interval_t interval_of_cast(qn__gpu_narrow_t* self, const qn__ir_expr_t* from) {
  bool is_plain = from->kind == QN__EXPR_VAR && !self->is_inside[from->var->id] &&
                  qn__gpu_host_knows_var(&self->split->host, from->var);
  if (is_plain && qn__dtype_bits(from->dtype) == 32) return interval_of_host(self, from->var);
  switch (from->dtype) {
    case QN_DTYPE_BOOL:
      return qn__gpu_interval_range(&self->bounds, 0, 1);
    case QN_DTYPE_I8:
      return qn__gpu_interval_range(&self->bounds, INT8_MIN, INT8_MAX);
    case QN_DTYPE_I16:
      return qn__gpu_interval_range(&self->bounds, INT16_MIN, INT16_MAX);
    case QN_DTYPE_I32:
      return qn__gpu_interval_range(&self->bounds, INT32_MIN, INT32_MAX);
    case QN_DTYPE_U8:
      return qn__gpu_interval_range(&self->bounds, 0, UINT8_MAX);
    case QN_DTYPE_U16:
      return qn__gpu_interval_range(&self->bounds, 0, UINT16_MAX);
    case QN_DTYPE_U32:
      return qn__gpu_interval_range(&self->bounds, 0, UINT32_MAX);
    default:
      return QN__GPU_INTERVAL_UNKNOWN;
  }
}

static qn__gpu_interval_t interval_of_choice(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr) {
  qn__gpu_interval_t b = qn__gpu_narrow_interval(self, expr->args[2]);
  qn__gpu_interval_t a = qn__gpu_narrow_interval(self, expr->args[1]);
  return qn__gpu_interval_hull(&self->bounds, a, b);
}

qn__gpu_interval_t qn__gpu_narrow_interval(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr) {
  if (expr->dtype != QN_DTYPE_I64) return QN__GPU_INTERVAL_UNKNOWN;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return qn__gpu_interval_range(&self->bounds, expr->int_value, expr->int_value);
    case QN__EXPR_VAR:
      return interval_of_var(self, expr->var);
    case QN__EXPR_CAST:
      return interval_of_cast(self, expr->args[0]);
    case QN__EXPR_COND:
      return interval_of_choice(self, expr);
    case QN__EXPR_OP: {
      if (expr->op == QN_OP_SELECT) return interval_of_choice(self, expr);
      uint32_t arity = qn__op_info(expr->op)->arity;
      qn__gpu_interval_t a = qn__gpu_narrow_interval(self, expr->args[0]);
      qn__gpu_interval_t b =
          arity > 1 ? qn__gpu_narrow_interval(self, expr->args[1]) : QN__GPU_INTERVAL_UNKNOWN;
      return qn__gpu_interval_op(&self->bounds, expr->op, a, b);
    }
    default:
      return QN__GPU_INTERVAL_UNKNOWN;
  }
}

// ---- buffers

void qn__gpu_narrow_span(qn__gpu_narrow_t* self, const qn__ir_buffer_t* buffer,
                         const qn__gpu_bound_t** out_lo, const qn__gpu_bound_t** out_hi) {
  qn__gpu_bounds_t* bounds = &self->bounds;
  const qn__gpu_bound_t *lo = qn__gpu_bound_const(bounds, 0), *hi = lo;
  const qn__gpu_bound_t *minus_one = qn__gpu_bound_const(bounds, -1), *zero = lo;
  if (!buffer->strides) {
    // Extents are not negative: the call, or the allocation, has checked them.
    hi = qn__gpu_bound_const(bounds, 1);
    for (uint32_t i = 0; i < buffer->rank; i++) {
      hi = qn__gpu_bound_op(bounds, QN_OP_MUL, hi,
                            qn__gpu_narrow_interval(self, buffer->shape[i]).hi);
    }
    *out_lo = lo;
    *out_hi = qn__gpu_bound_op(bounds, QN_OP_ADD, hi, minus_one);
    return;
  }
  for (uint32_t i = 0; i < buffer->rank; i++) {
    const qn__gpu_bound_t* reach = qn__gpu_bound_op(
        bounds, QN_OP_ADD, qn__gpu_narrow_interval(self, buffer->shape[i]).hi, minus_one);
    qn__gpu_interval_t stride = qn__gpu_narrow_interval(self, buffer->strides[i]);
    const qn__gpu_bound_t* up = stride.hi;
    if (!stride.is_nonnegative) {
      up = qn__gpu_bound_op(bounds, QN_OP_MAX, stride.hi, zero);
      const qn__gpu_bound_t* down = qn__gpu_bound_op(bounds, QN_OP_MIN, stride.lo, zero);
      lo =
          qn__gpu_bound_op(bounds, QN_OP_ADD, lo, qn__gpu_bound_op(bounds, QN_OP_MUL, reach, down));
    }
    hi = qn__gpu_bound_op(bounds, QN_OP_ADD, hi, qn__gpu_bound_op(bounds, QN_OP_MUL, reach, up));
  }
  *out_lo = lo;
  *out_hi = hi;
}
