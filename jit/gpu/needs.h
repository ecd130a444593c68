// jit/gpu/needs.h: the needs of a narrow kernel (what must hold at a launch), and the guard, the
// host expression that tests them.
//
// Not here: where needs come from (narrow.c).
#ifndef QUERN_JIT_GPU_NEEDS_H_
#define QUERN_JIT_GPU_NEEDS_H_

#include "jit/gpu/bounds.h"

typedef struct qn__need {
  const qn__bound_t* bound;
  struct qn__need* next;
} qn__need_t;

typedef struct qn__needs {
  qn__bounds_t* bounds;
  qn__need_t* most;   // at most INT32_MAX
  qn__need_t* least;  // at least INT32_MIN
  qn__need_t* signs;  // variables that are not negative
  bool has_no_memory;
} qn__needs_t;

static inline bool qn__is_within_32_bits(int64_t value) {
  return value >= INT32_MIN && value <= INT32_MAX;
}
// Add a need. Bounds must not be constants, which are checked when they arise.
void qn__needs_add_most(qn__needs_t* self, const qn__bound_t* bound);
void qn__needs_add_least(qn__needs_t* self, const qn__bound_t* bound);
void qn__needs_add_sign(qn__needs_t* self, const qn__bound_t* variable);
// Appends the guard; nothing if there is no need. Returns false if it would be too long to evaluate
// at every launch.
bool qn__needs_put_guard(qn__needs_t* self, const qn__gpu_host_t* host, qn__gpu_ops_t* out);

#endif  // QUERN_JIT_GPU_NEEDS_H_
