// SPDX-License-Identifier: Apache-2.0
// jit/gpu/glsl_lanes.c: barriers, exchanges, exact arithmetic and failures in GLSL.
//
// 1. A barrier is one control barrier of the workgroup that orders shared memory and buffers. The
//    barrier() of GLSL orders shared memory alone.
// 2. Exchanges are subgroup shuffles. They need full subgroups of the target's size that hold the
//    threads of a block in order, which the option supports_subgroup_shuffle promises. A block
//    whose threads do not fill its subgroups is refused here; the generator then lowers the module
//    again without shuffles. Reductions are butterflies of shuffles, because subgroup reductions
//    promise nothing about NaN and the sign of zero.
// 3. GLSL has `precise` for variables only. So an operation that must not be contracted becomes a
//    call of a function with a precise variable.
#include <assert.h>

#include "jit/gpu/glsl.h"

void qn__glsl_barrier(qn__gpu_printer_t* p) {
  qn__kprint_line(
      p,
      "controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | "
      "gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);");
}

// ---- exchanges

static const char* shuffled(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value,
                            const char* lane) {
  if (qn__dtype_bits(dtype) < 64) return qn__kprint_text(p, "subgroupShuffle(%s, %s)", value, lane);
  const char* pair = dtype == QN_DTYPE_I64   ? "Int2x32"
                     : dtype == QN_DTYPE_U64 ? "Uint2x32"
                                             : "Double2x32";
  return qn__kprint_text(p, "pack%s(subgroupShuffle(unpack%s(%s), %s))", pair, pair, value, lane);
}

static void reduce(qn__gpu_printer_t* p, qn_op_t step, qn_dtype_t dtype, uint32_t warp_size,
                   const char* value, const char* result) {
  const char* type = qn__kprint_type(dtype, false);
  const char* mask = qn__kprint_temp(p);
  qn__kprint_line(p, "%s %s = %s;", type, result, value);
  qn__kprint_open(p, "for (uint %s = %uu; %s > 0u; %s >>= 1)", mask, warp_size / 2, mask, mask);
  const char* lane = qn__kprint_text(p, "gl_SubgroupInvocationID ^ %s", mask);
  const char* other = qn__kprint_name(p, type, shuffled(p, dtype, result, lane));
  qn__kprint_line(p, "%s = %s;", result, qn__kprint_step(p, step, dtype, false, result, other));
  qn__kprint_close(p);
}

void qn__glsl_exchange(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* value,
                       const char* lane, bool is_narrow_lane, const char* result) {
  uint32_t warp_size = (uint32_t)qn__glsl_number(p, "warp_size");
  uint32_t threads = p->kernel->plan->thread_count;
  bool is_power = warp_size > 0 && (warp_size & (warp_size - 1)) == 0;
  if (!qn__glsl_has(p, "supports_subgroup_shuffle") || !is_power || threads == 0 ||
      threads % warp_size != 0) {
    qn__kprint_unsupported(p,
                           "%s needs full subgroups of %u threads, with option "
                           "supports_subgroup_shuffle; a block has %u threads",
                           qn__op_info(op)->text, warp_size, threads);
    return;
  }
  const char* type = qn__kprint_type(dtype, false);
  value = qn__kprint_name(p, type, value);
  if (!lane) {
    assert(!qn__kprint_is_block_op(op));  // the passes lower these (has_block_reductions)
    reduce(p, qn__kprint_group_step(op), dtype, warp_size, value, result);
    return;
  }
  const char* wide = is_narrow_lane ? "int" : "qn_i64";
  const char* target = lane;
  if (op != QN_OP_SHUFFLE) {
    const char* sign = op == QN_OP_SHUFFLE_UP ? "-" : op == QN_OP_SHUFFLE_DOWN ? "+" : "^";
    target = qn__kprint_text(p, "%s(gl_SubgroupInvocationID) %s (%s)", wide, sign, lane);
  }
  // Every thread shuffles. A thread whose source lane does not exist keeps its own value.
  target = qn__kprint_name(p, wide, target);
  const char* other = qn__kprint_name(
      p, type,
      shuffled(p, dtype, value, qn__kprint_text(p, "uint(%s) & %uu", target, warp_size - 1)));
  qn__kprint_line(p, "const %s %s = %s >= 0 && %s < %u ? %s : %s;", type, result, target, target,
                  warp_size, other, value);
}

// ---- exact arithmetic

static const char* const exact_names[] = {"qn_exact_add_f32", "qn_exact_sub_f32",
                                          "qn_exact_mul_f32", "qn_exact_add_f64",
                                          "qn_exact_sub_f64", "qn_exact_mul_f64"};

const char* qn__glsl_arithmetic(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* a,
                                const char* b) {
  assert(op == QN_OP_ADD || op == QN_OP_SUB || op == QN_OP_MUL);
  uint32_t index = op == QN_OP_ADD ? 0 : op == QN_OP_SUB ? 1 : 2;
  if (dtype == QN_DTYPE_F64) index += 3;
  p->dialect_bits |= UINT64_C(1) << index;
  return qn__kprint_text(p, "%s(%s, %s)", exact_names[index], a, b);
}

void qn__glsl_exact_helpers(qn__gpu_printer_t* p) {
  static const char operators[] = {'+', '-', '*'};
  for (uint32_t i = 0; i < QN_COUNT_OF(exact_names); ++i) {
    if (!(p->dialect_bits >> i & 1)) continue;
    const char* type = i < 3 ? "float" : "double";
    qn__kprint_line(p, "%s %s(%s a, %s b) { precise %s r = a %c b; return r; }", type,
                    exact_names[i], type, type, type, operators[i % 3]);
  }
}

// ---- failures

// Writes the function that fills the error record: the site, then index and extent, each with the
// low half first.
void qn__glsl_fail_helper(qn__gpu_printer_t* p, uint32_t record_at, uint32_t tag_at) {
  qn__kprint_open(p, "void qn_fail(uint site, uvec2 index, uvec2 extent)");
  qn__kprint_line(p, "const uint at = qn_push[%u];", record_at);
  qn__kprint_line(p, "if (atomicCompSwap(qn_record[at], 0u, qn_push[%u]) != 0u) return;", tag_at);
  static const char* const values[] = {"site", "index.x", "index.y", "extent.x", "extent.y"};
  for (uint32_t i = 0; i < QN_COUNT_OF(values); ++i) {
    qn__kprint_line(p, "qn_record[at + %uu] = %s;", i + 1, values[i]);
  }
  qn__kprint_close(p);
}

void qn__glsl_fail(qn__gpu_printer_t* p, uint32_t site, const char* index, const char* extent,
                   bool is_wide) {
  uint32_t shift = is_wide ? 32 : 31;
  qn__kprint_line(p, "qn_fail(%uu, uvec2(%s, (%s) >> %u), uvec2(%s, (%s) >> %u));", site, index,
                  index, shift, extent, extent, shift);
}
