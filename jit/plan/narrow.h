// SPDX-License-Identifier: Apache-2.0
// jit/plan/narrow.h: the search for 32-bit arithmetic in a kernel, shared by its two files:
// narrow.c walks the kernel, narrow_interval.c bounds values.
#ifndef QUERN_JIT_PLAN_NARROW_H_
#define QUERN_JIT_PLAN_NARROW_H_

#include "jit/plan/needs.h"
#include "jit/plan/split.h"
#include "jit/plan/widths.h"

typedef struct qn__gpu_narrow {
  qn__gpu_split_t* split;
  qn__arena_t* arena;
  qn__gpu_widths_t* widths;
  qn__gpu_bounds_t bounds;
  qn__gpu_interval_t* intervals;  // of the kernel's variables, by id
  bool* is_inside;                // variables of the kernel, by id
  bool* is_buffer_seen;           // by id
  uint8_t* host_signs;            // of values of the host, by id; used by narrow_interval.c only
  qn__gpu_needs_t needs;
  bool is_checked;
  bool is_impossible;
  bool has_no_memory;
} qn__gpu_narrow_t;

// ---- narrow_interval.c

// Returns bounds of an i64 expression, UNKNOWN for any other. Assumes that values of the host are
// not negative where that helps, and adds each assumption to the needs.
qn__gpu_interval_t qn__gpu_narrow_interval(qn__gpu_narrow_t* self, const qn__ir_expr_t* expr);
// Returns bounds of the linear index of a buffer or view, if each extent is at least 1. NULL:
// unknown.
void qn__gpu_narrow_span(qn__gpu_narrow_t* self, const qn__ir_buffer_t* buffer,
                         const qn__gpu_bound_t** out_lo, const qn__gpu_bound_t** out_hi);

// Returns whether values of this interval can be proven to fit 32 bits, and adds the needs of that
// proof.
bool qn__gpu_narrow_prove(qn__gpu_narrow_t* self, const qn__gpu_interval_t* interval);
// Adds the need that a bound is at most INT32_MAX (NEED_MAX), or at least INT32_MIN (NEED_MIN).
// Without a bound (NULL) there can be no narrow kernel.
void qn__gpu_narrow_need(qn__gpu_narrow_t* self, qn__gpu_need_kind_t kind,
                         const qn__gpu_bound_t* bound);

#endif  // QUERN_JIT_PLAN_NARROW_H_
