// SPDX-License-Identifier: Apache-2.0
// jit/gpu/prelude.h: helper functions that kernels call: integer division that rounds down,
// saturating conversions, f16 and bf16, and the mathematical functions with their documented
// bounds.
//
// The text is written in the common subset of CUDA C and GLSL, and uses macros that each dialect
// defines. Each helper is a row of a table. A kernel's text contains only the helpers that it uses.
// Names are qn_NAME_TYPE, such as qn_exp_f32, qn_floordiv_i32, qn_f32_from_f16.
//
// Types of the subset: int (also for i8, i16), uint (also for u8, u16), float (also for f16, bf16),
// double, bool, qn_i64, qn_u64.
//
// The helpers, where T is i32 u32 i64 u64, and F is f32 f64. Each takes and returns its type, if
// nothing else is said:
//
//   qn_add_T qn_sub_T qn_mul_T qn_neg_T   wrap (i32 and i64 only: C leaves overflow undefined)
//   qn_floordiv_T qn_floormod_T qn_truncdiv_T qn_truncmod_T qn_ceildiv_T   never trap
//   qn_shl_T qn_shr_T        counts modulo the width; shr of a signed type is arithmetic
//   qn_popcount_T qn_clz_T qn_ctz_T qn_abs_T (i32, i64) qn_min_T qn_max_T qn_mulhi_T qn_rotl_T
//   qn_DST_from_F            DST i8 i16 i32 i64 u8 u16 u32 u64: truncates, saturates, NaN is 0
//   qn_F_from_T              nearest, ties to even
//   qn_f32_from_f64 qn_f64_from_f32
//   qn_f32_from_f16(uint) qn_f32_from_bf16(uint)     from the low 16 bits
//   qn_f16_from_f32(float) qn_bf16_from_f32(float)   the bits in a uint; nearest even, NaN is quiet
//   qn_f16_from_f64(double) qn_bf16_from_f64(double) qn_bf16_from_T(T)   likewise, rounded once
//   qn_f8e4m3fn_from_f32(float) qn_f32_from_f8e4m3fn(uint)   the bits; so for f8e5m2 and
//   f4e2m1fn, and from f64
//   qn_roundto_f16(float) qn_roundto_bf16(float)     the nearest such value, as a float
//   qn_min_F qn_max_F qn_abs_F qn_copysign_F qn_floor_F qn_ceil_F qn_trunc_F qn_round_F
//   qn_roundeven_F qn_div_F qn_sqrt_F qn_rsqrt_F qn_fma_F
//   qn_NAME_F                each function of ir/math/functions.inc
//   qn_isnan_F qn_isinf_F qn_isfinite_F   bool
//
// Macros of the subset are QN_F32_BITS, QN_MAD_f32 and others. Every text has the common ones
// (prelude.c). The others are rows of the table, as helpers are (prelude_words.inc).
#ifndef QUERN_JIT_GPU_PRELUDE_H_
#define QUERN_JIT_GPU_PRELUDE_H_

#include "base/buffer.h"
#include "ir/math/math.h"

enum { QN__GPU_PRELUDE_MAX = 384 };

// Returns the dtype of the type that computes values of `dtype`: i32, u32, i64, u64, f32, f64 or
// bool.
qn_dtype_t qn__gpu_compute_dtype(qn_dtype_t dtype);
// Returns the name of that type in the subset: "int", "float", ...
const char* qn__gpu_type_text(qn_dtype_t dtype);

// Which helpers a text uses.
typedef struct qn__gpu_prelude_use {
  bool is_used[QN__GPU_PRELUDE_MAX];
} qn__gpu_prelude_use_t;

// Returns the index of a helper; -1: there is none, which is a bug of the caller.
int qn__gpu_prelude_find(const char* name);
// Returns whether GLSL targets without 64-bit integers have the helper, and all that it uses.
bool qn__gpu_prelude_is_without_int64(const char* name);
// Returns the name of the helper that computes `op` on operands of `dtype`, in its compute type.
// NULL: the language's own operator or function is right on every device.
const char* qn__gpu_prelude_op(qn_op_t op, qn_dtype_t dtype);
// Writes the macros of the dialect, and the used helpers with their dependencies. `has_int64` and
// `has_float64` are features of a GLSL target; helpers that need a missing one are not written.
void qn__gpu_prelude_write(const qn__gpu_prelude_use_t* use, bool is_glsl, bool has_native_fma,
                           bool has_int64, bool has_float64, qn__buffer_t* out);

// Writes a function of ir/math (prelude_math.c).
void qn__gpu_prelude_write_function(qn__math_id_t id, qn_dtype_t dtype, bool has_fma,
                                    qn__buffer_t* out);

#endif  // QUERN_JIT_GPU_PRELUDE_H_
