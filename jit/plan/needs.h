// SPDX-License-Identifier: Apache-2.0
// jit/plan/needs.h: the needs of a narrow kernel (conditions that must hold at a launch), and the
// guard, which is the host expression that tests them.
//
// Not here: where needs come from (narrow.c).
#ifndef QUERN_JIT_PLAN_NEEDS_H_
#define QUERN_JIT_PLAN_NEEDS_H_

#include "jit/plan/bounds.h"

typedef struct qn__gpu_need {
  const qn__gpu_bound_t* bound;
  struct qn__gpu_need* next;
} qn__gpu_need_t;

typedef enum qn__gpu_need_kind {
  QN__GPU_NEED_MAX,   // at most INT32_MAX
  QN__GPU_NEED_MIN,   // at least INT32_MIN
  QN__GPU_NEED_SIGN,  // a variable that is not negative
  QN__GPU_NEED_KINDS,
} qn__gpu_need_kind_t;

typedef struct qn__gpu_needs {
  qn__gpu_bounds_t* bounds;
  qn__gpu_need_t* lists[QN__GPU_NEED_KINDS];
  bool has_no_memory;
} qn__gpu_needs_t;

static inline bool qn__gpu_is_within_32_bits(int64_t value) {
  return value >= INT32_MIN && value <= INT32_MAX;
}
// Adds a need. The bound must not be a constant, which is checked when it arises.
void qn__gpu_needs_add(qn__gpu_needs_t* self, qn__gpu_need_kind_t kind,
                       const qn__gpu_bound_t* bound);
// Appends the guard; nothing if there is no need. Returns false if it would be too long to evaluate
// at every launch.
bool qn__gpu_needs_put_guard(qn__gpu_needs_t* self, const qn__gpu_host_t* host, qn__gpu_ops_t* out);

#endif  // QUERN_JIT_PLAN_NEEDS_H_
