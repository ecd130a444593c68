// SPDX-License-Identifier: Apache-2.0
// jit/gpu/cuda_lanes.c: exchanges among the threads of a warp or block in CUDA C.
//
// 1. Warps have 32 lanes. If the number of threads is not a multiple of 32, the last warp is
//    smaller. Its lanes are counted at run time, so that no missing lane is read.
// 2. A reduction of a full warp is a butterfly, which gives each lane the result. A smaller warp
//    reduces by a tree down to lane 0, which broadcasts the result.
// 3. A reduction of a block stores one value of each warp in shared memory; then all threads reduce
//    these. Each operator has memory of its own, so a barrier before the next use is needed only in
//    loops.
#include "jit/gpu/cuda.h"

#include <assert.h>

enum { WARP_SIZE = 32 };

static bool has_whole_warps(const qn__gpu_printer_t* p) {
  uint32_t threads = p->kernel->plan->thread_count;
  return threads > 0 && threads % WARP_SIZE == 0;
}

static const char* mask_text(qn__gpu_printer_t* p) {
  if (has_whole_warps(p)) return "0xffffffffu";
  p->dialect_bits |= QN__CUDA_USES_LANES;
  return "qn_lane_mask(qn_thread, qn_threads)";
}

// Convert a value to a type that shuffles accept, and back.
static const char* to_lane(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  return dtype == QN_DTYPE_BOOL ? qn__kprint_text(p, "int(%s)", value) : value;
}
static const char* from_lane(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  return dtype == QN_DTYPE_BOOL ? qn__kprint_text(p, "(%s != 0)", value) : value;
}

// ---- lanes

// Prints a shuffle as one instruction. Returns NULL unless warps are full and `lane` is a constant
// below 32.
static const char* direct_shuffle(qn__gpu_printer_t* p, qn_op_t op, const char* value,
                                  const char* lane) {
  if (!has_whole_warps(p)) return NULL;
  uint32_t number = 0;
  size_t digits = strspn(lane, "0123456789");
  if (digits == 0 || digits > 2 || lane[digits] != '\0') return NULL;
  for (size_t i = 0; i < digits; ++i) number = 10 * number + (uint32_t)(lane[i] - '0');
  if (number >= WARP_SIZE) return NULL;
  const char* form = qn__op_info(op)->text + strlen("shuffle");  // "", "_up", "_down" or "_xor"
  return qn__kprint_text(p, "__shfl%s_sync(0xffffffffu, %s, %u)", form, value, number);
}

static void print_shuffle(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* value,
                          const char* lane, const char* result) {
  const char* type = qn__kprint_type(dtype, false);
  value = to_lane(p, dtype, value);
  const char* taken = direct_shuffle(p, op, value, lane);
  if (!taken) {
    p->dialect_bits |= QN__CUDA_USES_LANES;
    const char* kind = op == QN_OP_SHUFFLE ? "at" : qn__op_info(op)->text + strlen("shuffle_");
    const char* source = qn__kprint_text(p, "qn_lane_%s(qn_thread, qn_threads, %s)", kind, lane);
    taken = qn__kprint_text(p, "__shfl_sync(%s, %s, %s)", mask_text(p), value, source);
  }
  qn__kprint_line(p, "const %s %s = %s;", type, result, from_lane(p, dtype, taken));
}

// ---- reductions

static const char* neutral_of(qn__gpu_printer_t* p, qn_op_t step, qn_dtype_t dtype) {
  qn_reduce_kind_t kind = step == QN_OP_MIN   ? QN_REDUCE_MIN
                          : step == QN_OP_MAX ? QN_REDUCE_MAX
                                              : QN_REDUCE_SUM;
  return qn__kprint_literal(p, dtype, false, qn__reduce_neutral(kind, dtype));
}

// Prints the reduction of the variable `name` over the first `lanes` lanes of the warp, into all of
// them.
static void butterfly(qn__gpu_printer_t* p, qn_op_t step, qn_dtype_t dtype, uint32_t lanes,
                      const char* name) {
  assert((lanes & (lanes - 1)) == 0 && lanes <= WARP_SIZE);
  for (uint32_t distance = lanes / 2; distance > 0; distance /= 2) {
    const char* other = qn__kprint_text(p, "__shfl_xor_sync(0xffffffffu, %s, %u)", name, distance);
    qn__kprint_line(p, "%s = %s;", name, qn__kprint_step(p, step, dtype, false, name, other));
  }
}

// Prints the same reduction for a warp that may be smaller.
static void tree(qn__gpu_printer_t* p, qn_op_t step, qn_dtype_t dtype, const char* name) {
  p->dialect_bits |= QN__CUDA_USES_LANES;
  const char* type = qn__kprint_type(dtype, false);
  const char* mask = qn__kprint_name(p, "uint", mask_text(p));
  const char* count = qn__kprint_name(p, "uint", "qn_lane_count(qn_thread, qn_threads)");
  for (uint32_t distance = WARP_SIZE / 2; distance > 0; distance /= 2) {
    const char* other = qn__kprint_name(
        p, type, qn__kprint_text(p, "__shfl_down_sync(%s, %s, %u)", mask, name, distance));
    qn__kprint_line(p, "if ((qn_thread & 31u) + %uu < %s) %s = %s;", distance, count, name,
                    qn__kprint_step(p, step, dtype, false, name, other));
  }
  qn__kprint_line(p, "%s = __shfl_sync(%s, %s, 0);", name, mask, name);
}

static void reduce_warp(qn__gpu_printer_t* p, qn_op_t step, qn_dtype_t dtype, const char* name) {
  if (has_whole_warps(p)) {
    butterfly(p, step, dtype, WARP_SIZE, name);
  } else {
    tree(p, step, dtype, name);
  }
}

// Returns the smallest power of two that is at least `count`.
static uint32_t power_from(uint32_t count) {
  uint32_t power = 1;
  while (power < count) power *= 2;
  return power;
}

// Prints the reduction of the variable `name` over the block (rule 3). If the number of warps is
// known, each warp reduces the warps' values by a butterfly. Otherwise each thread loops over them.
static void reduce_block(qn__gpu_printer_t* p, qn_op_t step, qn_dtype_t dtype, const char* name) {
  uint32_t threads = p->kernel->plan->thread_count;
  reduce_warp(p, step, dtype, name);
  if (threads > 0 && threads <= WARP_SIZE) return;
  const char* type = qn__kprint_type(dtype, false);
  const char* scratch = qn__kprint_temp(p);
  qn__gpu_lines_t* at = p->at;
  uint32_t indent = p->indent;
  p->at = &p->extra;
  p->indent = 1;
  qn__kprint_line(p, "__shared__ %s %s[%d];", type, scratch, WARP_SIZE);
  p->extra_shared_bytes += (uint32_t)WARP_SIZE * (qn_dtype_size_bytes(dtype) == 8 ? 8U : 4U);
  p->at = at;
  p->indent = indent;
  if (p->loop_depth > 0) qn__kprint_barrier(p);
  qn__kprint_line(p, "if ((qn_thread & 31u) == 0u) %s[qn_thread >> 5] = %s;", scratch, name);
  qn__kprint_barrier(p);
  if (has_whole_warps(p)) {
    uint32_t warps = threads / WARP_SIZE;
    uint32_t lanes = power_from(warps);
    assert(warps > 0 && lanes <= WARP_SIZE);  // each warp has its value in `scratch`
    const char* lane = qn__kprint_text(p, "(qn_thread & %uu)", lanes - 1);
    if (lanes == warps) {
      qn__kprint_line(p, "%s = %s[%s];", name, scratch, lane);
    } else {
      qn__kprint_line(p, "%s = %s < %uu ? %s[%s] : %s;", name, lane, warps, scratch, lane,
                      neutral_of(p, step, dtype));
    }
    butterfly(p, step, dtype, lanes, name);
    return;
  }
  const char* warp = qn__kprint_temp(p);
  qn__kprint_line(p, "%s = %s[0];", name, scratch);
  qn__kprint_open(p, "for (uint %s = 1u; %s < (qn_threads + 31u) / 32u; ++%s)", warp, warp, warp);
  const char* other = qn__kprint_text(p, "%s[%s]", scratch, warp);
  qn__kprint_line(p, "%s = %s;", name, qn__kprint_step(p, step, dtype, false, name, other));
  qn__kprint_close(p);
}

void qn__cuda_exchange(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* value,
                       const char* lane, bool is_narrow_lane, const char* result) {
  (void)is_narrow_lane;  // functions of both types have one name
  if (lane) {
    print_shuffle(p, op, dtype, value, lane, result);
    return;
  }
  qn__kprint_line(p, "%s %s = %s;", qn__kprint_type(dtype, false), result, value);
  (qn__kprint_is_block_op(op) ? reduce_block : reduce_warp)(p, qn__kprint_group_step(op), dtype,
                                                            result);
}
