// SPDX-License-Identifier: Apache-2.0
// jit/plan/bounds.h: symbolic bounds of i64 values: expressions that the host evaluates at a
// launch.
//
// An interval [lo, hi] holds every value that its expression takes, if both bounds are computed
// without overflow and no symbol is negative. The guard of a narrow kernel tests both conditions.
// Bounds are unique: equal expressions are one pointer.
#ifndef QUERN_JIT_PLAN_BOUNDS_H_
#define QUERN_JIT_PLAN_BOUNDS_H_

#include "jit/plan/host.h"

typedef struct qn__gpu_bound qn__gpu_bound_t;
struct qn__gpu_bound {
  qn_op_t op;  // NONE: `var`, or where that is NULL `value`
  const qn__gpu_bound_t* args[2];
  const qn__ir_var_t* var;
  int64_t value;
  uint32_t size;   // number of operations to evaluate it
  uint32_t depth;  // number of values on the stack
  qn__gpu_bound_t* next;
};

enum { QN__GPU_BOUND_BUCKETS = 64 };
typedef struct qn__gpu_bounds {
  qn__arena_t* arena;
  qn__gpu_bound_t* buckets[QN__GPU_BOUND_BUCKETS];
} qn__gpu_bounds_t;

// The range of a value. Both bounds are NULL if it is unknown.
typedef struct qn__gpu_interval {
  const qn__gpu_bound_t* lo;
  const qn__gpu_bound_t* hi;
  bool is_nonnegative;  // a fact of its own, since `lo` may be weaker
} qn__gpu_interval_t;
#define QN__GPU_INTERVAL_UNKNOWN ((qn__gpu_interval_t){NULL, NULL, false})

static inline bool qn__gpu_interval_is_point(const qn__gpu_interval_t* interval) {
  return interval->lo && interval->lo == interval->hi;
}
static inline bool qn__gpu_bound_is_const(const qn__gpu_bound_t* bound) {
  return bound->op == QN_OP_NONE && !bound->var;
}

const qn__gpu_bound_t* qn__gpu_bound_const(qn__gpu_bounds_t* bounds, int64_t value);
const qn__gpu_bound_t* qn__gpu_bound_var(qn__gpu_bounds_t* bounds, const qn__ir_var_t* var);
// Makes a bound of two others. `op` is ADD, SUB, MUL, MIN, MAX, a division, AND, OR, XOR, SHL or
// SHR. Returns NULL if an operand is NULL, the result is too large, or a constant overflows.
const qn__gpu_bound_t* qn__gpu_bound_op(qn__gpu_bounds_t* bounds, qn_op_t op,
                                        const qn__gpu_bound_t* a, const qn__gpu_bound_t* b);
void qn__gpu_bound_put(const qn__gpu_host_t* host, qn__gpu_ops_t* ops,
                       const qn__gpu_bound_t* bound);

qn__gpu_interval_t qn__gpu_interval_range(qn__gpu_bounds_t* bounds, int64_t lo, int64_t hi);
// Returns the smallest interval that holds both.
qn__gpu_interval_t qn__gpu_interval_hull(qn__gpu_bounds_t* bounds, qn__gpu_interval_t a,
                                         qn__gpu_interval_t b);
// Returns the interval of an integer operator on i64 values. Unary operators ignore `b`.
qn__gpu_interval_t qn__gpu_interval_op(qn__gpu_bounds_t* bounds, qn_op_t op, qn__gpu_interval_t a,
                                       qn__gpu_interval_t b);

#endif  // QUERN_JIT_PLAN_BOUNDS_H_
