// jit/gpu/prelude.h: helper functions that kernels call: integer division that rounds down,
// saturating conversions, f16 and bf16, and the mathematical functions with their documented
// bounds.
//
// The text is in the common subset of CUDA C and GLSL, on the words below, which each dialect
// defines as macros. Every helper is a row of a table with what it needs, so that a kernel gets
// what it uses and no more. Names: qn_NAME_TYPE, such as qn_exp_f32, qn_floordiv_i32,
// qn_f32_from_f16.
//
//   Types of the subset: int, uint, qn_i64, qn_u64, float, double, bool.
//   QN_FN                 in front of a function (CUDA: static __device__ __forceinline__; GLSL:
//   nothing) QN_F32_BITS(x) QN_F32_FROM(u)  float <-> uint; QN_F64_BITS(x) QN_F64_FROM(u): double
//   <-> qn_u64 QN_FMA_F32 QN_FMA_F64          fused; QN_MULHI_U32(a, b); QN_F64(1.5): a double
//   literal QN_SQRT_F32 QN_SQRT_F64 QN_DIV_F32(a, b) QN_DIV_F64  correctly rounded QN_EXACT in
//   front of a float declaration whose operations must not be contracted or
//                         reassociated (GLSL: precise; CUDA is compiled with --fmad=false)
//
// Thread rule: constant. Read next: prelude.c.
#ifndef QUERN_JIT_GPU_PRELUDE_H_
#define QUERN_JIT_GPU_PRELUDE_H_

#include "base/buffer.h"
#include "quern/ir.h"

enum { QN__PRELUDE_MAX = 256 };

// Which helpers a text uses.
typedef struct qn__prelude_use {
  bool is_used[QN__PRELUDE_MAX];
} qn__prelude_use_t;

// The position of the helper of this name; -1: there is none (a defect of the caller).
int qn__prelude_find(const char* name);
// The name of the helper that computes `op` on operands of `dtype` (compute types: f32 for f16 and
// bf16), NULL when the language's own operator or built-in function is right on every device.
const char* qn__prelude_op(qn_op_t op, qn_dtype_t dtype);
// Writes the macros of the dialect and all used helpers with what they need, in order. `has_int64`
// and `has_float64` say what the GLSL target has; a helper that needs more is not written.
void qn__prelude_write(const qn__prelude_use_t* use, bool is_glsl, bool has_native_fma,
                       bool has_int64, bool has_float64, qn__buffer_t* out);

#endif  // QUERN_JIT_GPU_PRELUDE_H_
