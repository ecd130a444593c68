// SPDX-License-Identifier: Apache-2.0
// jit/plan/bounds.c: arithmetic on symbolic bounds and intervals.
//
// Example: for `i` in [0, n - 1] and `j` in [0, m - 1], the interval of `i * m + j` is
// [0, (n - 1) * m + m - 1]. The guard then tests at each launch that this upper bound fits 32 bits.
//
// Requirements, which narrow.c relies on:
//
//  1. If the intervals of the operands hold, so does the interval of the result, over the integers.
//     The IR's arithmetic wraps, so this is true only where nothing wrapped. Hence the guard
//     evaluates both bounds, with overflow checks (constants need none). A rule that drops a bound
//     of an operand must hold for every value of that operand, since the dropped bound is never
//     evaluated.
//  2. A bound has a limited size, since guards are evaluated at every launch. Beyond it there is no
//     bound.
//  3. A division by zero is a bug of the program. Its result is an operand or 0, as in the
//  generated
//     code, and no rule assumes more.
#include "jit/plan/bounds.h"

#include <assert.h>

enum { MAX_SIZE = 64, MAX_DEPTH = 24 };

// ---- bounds

static const qn__gpu_bound_t* intern(qn__gpu_bounds_t* bounds, const qn__gpu_bound_t* wanted) {
  assert(wanted->size <= MAX_SIZE && wanted->depth <= MAX_DEPTH);
  uint64_t hash = (uint64_t)wanted->value * 31 + (uint64_t)wanted->op * 7 +
                  ((uintptr_t)wanted->var >> 4) + ((uintptr_t)wanted->args[0] >> 4) * 3 +
                  ((uintptr_t)wanted->args[1] >> 4) * 5;
  qn__gpu_bound_t** bucket = &bounds->buckets[(hash ^ hash >> 17) % QN__GPU_BOUND_BUCKETS];
  for (qn__gpu_bound_t* bound = *bucket; bound; bound = bound->next) {
    if (bound->op == wanted->op && bound->var == wanted->var && bound->value == wanted->value &&
        bound->args[0] == wanted->args[0] && bound->args[1] == wanted->args[1]) {
      return bound;
    }
  }
  qn__gpu_bound_t* bound = QN__ARENA_NEW(bounds->arena, qn__gpu_bound_t);
  if (!bound) return NULL;
  *bound = *wanted;
  bound->next = *bucket;
  *bucket = bound;
  return bound;
}

const qn__gpu_bound_t* qn__gpu_bound_const(qn__gpu_bounds_t* bounds, int64_t value) {
  return intern(bounds, &(qn__gpu_bound_t){.value = value, .size = 1, .depth = 1});
}

const qn__gpu_bound_t* qn__gpu_bound_var(qn__gpu_bounds_t* bounds, const qn__ir_var_t* var) {
  return intern(bounds, &(qn__gpu_bound_t){.var = var, .size = 1, .depth = 1});
}

// Returns whether the bound is x + c with a constant c.
static bool is_shifted(const qn__gpu_bound_t* bound) {
  return bound->op == QN_OP_ADD && qn__gpu_bound_is_const(bound->args[1]);
}

static bool is_commutative(qn_op_t op) {
  return op == QN_OP_ADD || op == QN_OP_MUL || op == QN_OP_MIN || op == QN_OP_MAX ||
         op == QN_OP_AND || op == QN_OP_OR || op == QN_OP_XOR;
}

static const qn__gpu_bound_t* fold(qn__gpu_bounds_t* bounds, qn_op_t op, const qn__gpu_bound_t* a,
                                   const qn__gpu_bound_t* b) {
  qn__gpu_op_t ops[] = {{.kind = QN__GPU_CONST, .value = a->value},
                        {.kind = QN__GPU_CONST, .value = b->value},
                        {.kind = QN__GPU_APPLY, .op = op}};
  qn__gpu_expr_t expr = {3, ops};
  int64_t value;
  if (!qn__gpu_eval(&expr, NULL, NULL, &value)) return NULL;
  return qn__gpu_bound_const(bounds, value);
}

// Simplifies an operation whose constant operand, if any, is `b`: identities, and sums of
// constants. Sets `*is_done` to false if there is no simpler form.
static const qn__gpu_bound_t* simplify(qn__gpu_bounds_t* bounds, qn_op_t op,
                                       const qn__gpu_bound_t* a, const qn__gpu_bound_t* b,
                                       bool* is_done) {
  *is_done = true;
  if (a == b && (op == QN_OP_MIN || op == QN_OP_MAX)) return a;
  if (a == b && op == QN_OP_SUB) return qn__gpu_bound_const(bounds, 0);
  if (qn__gpu_bound_is_const(b)) {
    if (op == QN_OP_ADD && b->value == 0) return a;
    if (op == QN_OP_SUB && b->value != INT64_MIN) {
      return qn__gpu_bound_op(bounds, QN_OP_ADD, a, qn__gpu_bound_const(bounds, -b->value));
    }
    if (op == QN_OP_ADD && is_shifted(a)) {
      return qn__gpu_bound_op(bounds, QN_OP_ADD, a->args[0],
                              fold(bounds, QN_OP_ADD, a->args[1], b));
    }
    if (op == QN_OP_MUL && b->value == 0) return b;
    if (op == QN_OP_MUL && b->value == 1) return a;
    if (op == QN_OP_MUL && is_shifted(a)) {
      const qn__gpu_bound_t* product = qn__gpu_bound_op(bounds, QN_OP_MUL, a->args[0], b);
      return qn__gpu_bound_op(bounds, QN_OP_ADD, product, fold(bounds, QN_OP_MUL, a->args[1], b));
    }
    if ((op == QN_OP_FLOORDIV || op == QN_OP_CEILDIV || op == QN_OP_TRUNCDIV) && b->value == 1) {
      return a;
    }
  }
  // Constants of sums move outwards, where they are added up.
  if (op == QN_OP_ADD && is_shifted(a)) {
    return qn__gpu_bound_op(bounds, QN_OP_ADD, qn__gpu_bound_op(bounds, QN_OP_ADD, a->args[0], b),
                            a->args[1]);
  }
  if (op == QN_OP_ADD && is_shifted(b)) {
    return qn__gpu_bound_op(bounds, QN_OP_ADD, qn__gpu_bound_op(bounds, QN_OP_ADD, a, b->args[0]),
                            b->args[1]);
  }
  *is_done = false;
  return NULL;
}

const qn__gpu_bound_t* qn__gpu_bound_op(qn__gpu_bounds_t* bounds, qn_op_t op,
                                        const qn__gpu_bound_t* a, const qn__gpu_bound_t* b) {
  if (!a || !b) return NULL;
  assert(qn__gpu_op_arity(op) == 2);
  if (qn__gpu_bound_is_const(a) && qn__gpu_bound_is_const(b)) return fold(bounds, op, a, b);
  if (is_commutative(op) && qn__gpu_bound_is_const(a)) {
    const qn__gpu_bound_t* other = a;
    a = b;
    b = other;
  }
  bool is_done;
  const qn__gpu_bound_t* simple = simplify(bounds, op, a, b, &is_done);
  if (is_done) return simple;
  qn__gpu_bound_t wanted = {.op = op, .args = {a, b}, .size = a->size + b->size + 1};
  wanted.depth = a->depth > b->depth + 1 ? a->depth : b->depth + 1;
  if (wanted.size > MAX_SIZE || wanted.depth > MAX_DEPTH) return NULL;
  return intern(bounds, &wanted);
}

void qn__gpu_bound_put(const qn__gpu_host_t* host, qn__gpu_ops_t* ops,
                       const qn__gpu_bound_t* bound) {
  if (bound->op != QN_OP_NONE) {
    qn__gpu_bound_put(host, ops, bound->args[0]);
    qn__gpu_bound_put(host, ops, bound->args[1]);
    qn__gpu_put_apply(ops, bound->op);
  } else if (bound->var) {
    qn__gpu_put_var(host, ops, bound->var);
  } else {
    qn__gpu_put_const(ops, bound->value);
  }
}

// ---- intervals

qn__gpu_interval_t qn__gpu_interval_range(qn__gpu_bounds_t* bounds, int64_t lo, int64_t hi) {
  return (qn__gpu_interval_t){qn__gpu_bound_const(bounds, lo), qn__gpu_bound_const(bounds, hi),
                              lo >= 0};
}

qn__gpu_interval_t qn__gpu_interval_hull(qn__gpu_bounds_t* bounds, qn__gpu_interval_t a,
                                         qn__gpu_interval_t b) {
  return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, QN_OP_MIN, a.lo, b.lo),
                              qn__gpu_bound_op(bounds, QN_OP_MAX, a.hi, b.hi),
                              a.is_nonnegative && b.is_nonnegative};
}

static const qn__gpu_bound_t* negated(qn__gpu_bounds_t* bounds, const qn__gpu_bound_t* bound) {
  return qn__gpu_bound_op(bounds, QN_OP_SUB, qn__gpu_bound_const(bounds, 0), bound);
}

// Returns a bound of the magnitude of every value.
static const qn__gpu_bound_t* magnitude(qn__gpu_bounds_t* bounds, const qn__gpu_interval_t* a) {
  if (a->is_nonnegative) return a->hi;
  return qn__gpu_bound_op(bounds, QN_OP_MAX, a->hi, negated(bounds, a->lo));
}

static qn__gpu_interval_t around_zero(qn__gpu_bounds_t* bounds, const qn__gpu_bound_t* max) {
  return (qn__gpu_interval_t){negated(bounds, max), max, false};
}

static qn__gpu_interval_t up_to(qn__gpu_bounds_t* bounds, const qn__gpu_bound_t* max) {
  return (qn__gpu_interval_t){qn__gpu_bound_const(bounds, 0), max, true};
}

static qn__gpu_interval_t multiply(qn__gpu_bounds_t* bounds, qn__gpu_interval_t a,
                                   qn__gpu_interval_t b) {
  if (a.is_nonnegative && b.is_nonnegative) {
    return up_to(bounds, qn__gpu_bound_op(bounds, QN_OP_MUL, a.hi, b.hi));
  }
  // Put a constant, or else an operand that is not negative, on the right.
  bool is_left = qn__gpu_interval_is_point(&a) && qn__gpu_bound_is_const(a.lo);
  bool is_right = qn__gpu_interval_is_point(&b) && qn__gpu_bound_is_const(b.lo);
  if (is_left ? !is_right : (a.is_nonnegative && !is_right)) {
    qn__gpu_interval_t other = a;
    a = b;
    b = other;
    is_right = is_left;
  }
  if (is_right) {
    assert(qn__gpu_bound_is_const(b.lo) && b.lo == b.hi);
    const qn__gpu_bound_t* x = qn__gpu_bound_op(bounds, QN_OP_MUL, a.lo, b.lo);
    const qn__gpu_bound_t* y = qn__gpu_bound_op(bounds, QN_OP_MUL, a.hi, b.lo);
    return b.lo->value >= 0 ? (qn__gpu_interval_t){x, y, false} : (qn__gpu_interval_t){y, x, false};
  }
  if (b.is_nonnegative) {
    const qn__gpu_bound_t* zero = qn__gpu_bound_const(bounds, 0);
    return (qn__gpu_interval_t){
        qn__gpu_bound_op(bounds, QN_OP_MUL, qn__gpu_bound_op(bounds, QN_OP_MIN, a.lo, zero), b.hi),
        qn__gpu_bound_op(bounds, QN_OP_MUL, qn__gpu_bound_op(bounds, QN_OP_MAX, a.hi, zero), b.hi),
        false};
  }
  return around_zero(
      bounds, qn__gpu_bound_op(bounds, QN_OP_MUL, magnitude(bounds, &a), magnitude(bounds, &b)));
}

// Bounds a quotient, which never exceeds the magnitude of the dividend.
static qn__gpu_interval_t divide(qn__gpu_bounds_t* bounds, qn_op_t op, qn__gpu_interval_t a,
                                 qn__gpu_interval_t b) {
  bool is_const = qn__gpu_interval_is_point(&b) && qn__gpu_bound_is_const(b.lo);
  if (is_const && b.lo->value > 0) {
    return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, op, a.lo, b.lo),
                                qn__gpu_bound_op(bounds, op, a.hi, b.lo), a.is_nonnegative};
  }
  // This drops the bounds of b (rule 1): only a plain variable is certain to have its own value.
  bool is_var = qn__gpu_interval_is_point(&b) && b.lo->op == QN_OP_NONE;
  if (a.is_nonnegative && b.is_nonnegative && is_var) return up_to(bounds, a.hi);
  return around_zero(bounds, magnitude(bounds, &a));
}

static qn__gpu_interval_t remainder_of(qn__gpu_bounds_t* bounds, qn_op_t op, qn__gpu_interval_t a,
                                       qn__gpu_interval_t b) {
  const qn__gpu_bound_t* minus_one = qn__gpu_bound_const(bounds, -1);
  if (op == QN_OP_TRUNCMOD) {
    return a.is_nonnegative ? up_to(bounds, a.hi) : around_zero(bounds, magnitude(bounds, &a));
  }
  if (b.is_nonnegative) return up_to(bounds, qn__gpu_bound_op(bounds, QN_OP_ADD, b.hi, minus_one));
  return around_zero(bounds, magnitude(bounds, &b));
}

static qn__gpu_interval_t bits(qn__gpu_bounds_t* bounds, qn_op_t op, qn__gpu_interval_t a,
                               qn__gpu_interval_t b) {
  if (op == QN_OP_AND && (a.is_nonnegative || b.is_nonnegative)) {
    bool takes_b = b.is_nonnegative && (!a.is_nonnegative || qn__gpu_bound_is_const(b.hi));
    return up_to(bounds, takes_b ? b.hi : a.hi);
  }
  if (op != QN_OP_AND && a.is_nonnegative && b.is_nonnegative) {
    return up_to(bounds, qn__gpu_bound_op(bounds, QN_OP_ADD, a.hi, b.hi));
  }
  return QN__GPU_INTERVAL_UNKNOWN;
}

// Bounds shifts by counts in a constant range below the width.
static qn__gpu_interval_t shift(qn__gpu_bounds_t* bounds, qn_op_t op, qn__gpu_interval_t a,
                                qn__gpu_interval_t b) {
  if (!b.lo || !b.hi || !qn__gpu_bound_is_const(b.lo) || !qn__gpu_bound_is_const(b.hi))
    return QN__GPU_INTERVAL_UNKNOWN;
  int64_t min = b.lo->value, max = b.hi->value;
  if (min == max) min = max = min & 63;
  if (min < 0 || max > 63 || min > max) return QN__GPU_INTERVAL_UNKNOWN;
  if (op == QN_OP_SHR) {
    const qn__gpu_bound_t* by = qn__gpu_bound_const(bounds, min);
    if (min != max) return a.is_nonnegative ? up_to(bounds, a.hi) : QN__GPU_INTERVAL_UNKNOWN;
    return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, op, a.lo, by),
                                qn__gpu_bound_op(bounds, op, a.hi, by), a.is_nonnegative};
  }
  if (max > 31) return QN__GPU_INTERVAL_UNKNOWN;
  // A left shift is bounded as a product, because the host detects the overflow of products.
  qn__gpu_interval_t by = qn__gpu_interval_range(bounds, INT64_C(1) << min, INT64_C(1) << max);
  return qn__gpu_interval_op(bounds, QN_OP_MUL, a, by);
}

static qn__gpu_interval_t by_rule(qn__gpu_bounds_t* bounds, qn_op_t op, qn__gpu_interval_t a,
                                  qn__gpu_interval_t b) {
  switch (op) {
    case QN_OP_ADD:
      return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, op, a.lo, b.lo),
                                  qn__gpu_bound_op(bounds, op, a.hi, b.hi),
                                  a.is_nonnegative && b.is_nonnegative};
    case QN_OP_SUB:
      return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, op, a.lo, b.hi),
                                  qn__gpu_bound_op(bounds, op, a.hi, b.lo), false};
    case QN_OP_NEG:
      return (qn__gpu_interval_t){negated(bounds, a.hi), negated(bounds, a.lo), false};
    case QN_OP_MUL:
      return multiply(bounds, a, b);
    case QN_OP_FLOORDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_CEILDIV:
      return divide(bounds, op, a, b);
    case QN_OP_FLOORMOD:
    case QN_OP_TRUNCMOD:
      return remainder_of(bounds, op, a, b);
    case QN_OP_MIN:
      return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, op, a.lo, b.lo),
                                  qn__gpu_bound_op(bounds, op, a.hi, b.hi),
                                  a.is_nonnegative && b.is_nonnegative};
    case QN_OP_MAX:
      return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, op, a.lo, b.lo),
                                  qn__gpu_bound_op(bounds, op, a.hi, b.hi),
                                  a.is_nonnegative || b.is_nonnegative};
    case QN_OP_ABS: {
      const qn__gpu_bound_t* max = magnitude(bounds, &a);
      return max ? up_to(bounds, max) : QN__GPU_INTERVAL_UNKNOWN;
    }
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
      return bits(bounds, op, a, b);
    case QN_OP_NOT: {
      const qn__gpu_bound_t* minus_one = qn__gpu_bound_const(bounds, -1);
      return (qn__gpu_interval_t){qn__gpu_bound_op(bounds, QN_OP_SUB, minus_one, a.hi),
                                  qn__gpu_bound_op(bounds, QN_OP_SUB, minus_one, a.lo), false};
    }
    case QN_OP_SHL:
    case QN_OP_SHR:
      return shift(bounds, op, a, b);
    case QN_OP_POPCOUNT:
    case QN_OP_CLZ:
    case QN_OP_CTZ:
      return qn__gpu_interval_range(bounds, 0, 64);
    default:
      return QN__GPU_INTERVAL_UNKNOWN;
  }
}

// Returns whether a bound may use the operator. For these the host computes the same value as the
// IR, or detects an overflow. A left shift loses bits without an overflow, so it is not among them.
static bool is_bound_op(qn_op_t op) {
  switch (op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
    case QN_OP_CEILDIV:
    case QN_OP_MIN:
    case QN_OP_MAX:
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
    case QN_OP_SHR:
      return true;
    default:
      return false;
  }
}

qn__gpu_interval_t qn__gpu_interval_op(qn__gpu_bounds_t* bounds, qn_op_t op, qn__gpu_interval_t a,
                                       qn__gpu_interval_t b) {
  qn__gpu_interval_t out = by_rule(bounds, op, a, b);
  if (is_bound_op(op) && qn__gpu_interval_is_point(&a) && qn__gpu_interval_is_point(&b)) {
    const qn__gpu_bound_t* point = qn__gpu_bound_op(bounds, op, a.lo, b.lo);
    if (point) out.lo = out.hi = point;
  }
  if (!out.lo || !out.hi) return QN__GPU_INTERVAL_UNKNOWN;
  if (qn__gpu_bound_is_const(out.lo) && out.lo->value >= 0) out.is_nonnegative = true;
  return out;
}
