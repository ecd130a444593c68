// jit/gpu/needs.h: the needs of a narrow kernel (conditions that must hold at a launch), and the
// guard, which is the host expression that tests them.
//
// Not here: where needs come from (narrow.c).
#ifndef QUERN_JIT_GPU_NEEDS_H_
#define QUERN_JIT_GPU_NEEDS_H_

#include "jit/gpu/bounds.h"

typedef struct qn__gpu_need {
  const qn__gpu_bound_t* bound;
  struct qn__gpu_need* next;
} qn__gpu_need_t;

typedef struct qn__gpu_needs {
  qn__gpu_bounds_t* bounds;
  qn__gpu_need_t* most;   // at most INT32_MAX
  qn__gpu_need_t* least;  // at least INT32_MIN
  qn__gpu_need_t* signs;  // variables that are not negative
  bool has_no_memory;
} qn__gpu_needs_t;

static inline bool qn__gpu_is_within_32_bits(int64_t value) {
  return value >= INT32_MIN && value <= INT32_MAX;
}
// Add a need. Bounds must not be constants, which are checked when they arise.
void qn__gpu_needs_add_most(qn__gpu_needs_t* self, const qn__gpu_bound_t* bound);
void qn__gpu_needs_add_least(qn__gpu_needs_t* self, const qn__gpu_bound_t* bound);
void qn__gpu_needs_add_sign(qn__gpu_needs_t* self, const qn__gpu_bound_t* variable);
// Appends the guard; nothing if there is no need. Returns false if it would be too long to evaluate
// at every launch.
bool qn__gpu_needs_put_guard(qn__gpu_needs_t* self, const qn__gpu_host_t* host, qn__gpu_ops_t* out);

#endif  // QUERN_JIT_GPU_NEEDS_H_
