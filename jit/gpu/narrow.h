// jit/gpu/narrow.h: what the two files that look for 32-bit arithmetic in a kernel share: the state
// of the search, and what is known of a value.
//
// Thread rule: one thread per kernel. Read next: narrow.c.
#ifndef QUERN_JIT_GPU_NARROW_H_
#define QUERN_JIT_GPU_NARROW_H_

#include "jit/gpu/needs.h"
#include "jit/gpu/split.h"
#include "jit/gpu/widths.h"

typedef struct qn__narrow {
  qn__gpu_split_t* split;
  qn__arena_t* arena;
  qn__gpu_widths_t* widths;
  qn__bounds_t bounds;
  qn__interval_t* intervals;  // of the kernel's variables, by id
  bool* is_inside;            // variables of the kernel, by id
  bool* is_buffer_seen;       // by id
  uint8_t* host_signs;        // of values of the host, by id; of narrow_interval.c alone
  qn__needs_t needs;
  bool is_checked;
  bool is_impossible;
  bool has_no_memory;
} qn__narrow_t;

// ---- narrow_interval.c

// Of which nothing is known.
#define QN__INTERVAL_UNKNOWN ((qn__interval_t){NULL, NULL, false})

// The bounds of an i64 expression; UNKNOWN for any other. That values of the host are not negative
// is believed and noted in the needs.
qn__interval_t qn__narrow_interval(qn__narrow_t* self, const qn__ir_expr_t* expr);
// The least and the greatest linear index of a buffer or view, each extent at least 1; NULL:
// unknown.
void qn__narrow_span(qn__narrow_t* self, const qn__ir_buffer_t* buffer, const qn__bound_t** out_lo,
                     const qn__bound_t** out_hi);

// Is a value of this interval one of 32 bits? Adds what must hold for it.
bool qn__narrow_prove(qn__narrow_t* self, const qn__interval_t* interval);
// At most INT32_MAX, at least INT32_MIN; a bound that there is not makes the kernel impossible.
void qn__narrow_need_most(qn__narrow_t* self, const qn__bound_t* bound);
void qn__narrow_need_least(qn__narrow_t* self, const qn__bound_t* bound);

#endif  // QUERN_JIT_GPU_NARROW_H_
