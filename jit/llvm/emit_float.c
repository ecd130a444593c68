// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_float.c: emits float operators, comparisons, and rounding to f16 and bf16.
//
// A value of f16 or bf16 is held as the f32 that is equal. Every result is computed in f32 and
// rounded once more, to nearest even: by instructions where the target has them, else by integer
// arithmetic that gives the same bits.
// Not here: mathematical functions (math.h), conversions between dtypes (emit_cast.c).
#include "jit/llvm/emit_inner.h"
#include "jit/llvm/math_builder.h"

// The fast-math flags of a `fast` function. They do not assume that there is no NaN or infinity:
// that gains little, and turns one that occurs into a poison value.
static LLVMValueRef with_flags(qn__llvm_emit_t* e, LLVMValueRef value) {
  if (e->function->is_fast && LLVMIsAInstruction(value) && LLVMCanValueUseFastMathFlags(value)) {
    LLVMSetFastMathFlags(value, LLVMFastMathAllowReassoc | LLVMFastMathNoSignedZeros |
                                    LLVMFastMathAllowReciprocal | LLVMFastMathAllowContract);
  }
  return value;
}

static LLVMValueRef compute(qn__llvm_emit_t* e, qn_op_t op, qn_dtype_t dtype, LLVMValueRef* args) {
  LLVMBuilderRef b = e->fn->builder;
  if (op == QN_OP_NEG) return with_flags(e, LLVMBuildFNeg(b, args[0], ""));
  LLVMValueRef simple = qn__llvm_binary(b, op, dtype, args[0], args[1]);
  if (simple) return with_flags(e, simple);
  qn__llvm_math_t math = {.context = e->context,
                          .module = e->module,
                          .builder = b,
                          .arena = e->arena,
                          .has_fma = e->options->has_fma,
                          .has_round = e->options->has_round,
                          .has_avx2 = e->options->has_avx2,
                          .has_avx512 = e->options->has_avx512 && e->options->vector_bytes >= 64,
                          .fast = e->function->is_fast};
  LLVMValueRef result = qn__llvm_math_emit(&math, op, dtype, args);
  return QN_NEVER(!result) ? args[0] : result;
}

// Returns an integer that is ordered as the f32 of these bits is, -0 before +0. It is its own
// inverse.
static LLVMValueRef order_key(LLVMBuilderRef b, LLVMValueRef bits) {
  LLVMTypeRef type = LLVMTypeOf(bits);
  LLVMValueRef sign = LLVMBuildAShr(b, bits, qn__llvm_int(type, 31), "");
  LLVMValueRef flips = LLVMBuildAnd(b, sign, qn__llvm_int(type, INT32_MAX), "");
  return LLVMBuildXor(b, bits, flips, "");
}

// Emits the minimum or maximum of two f16 values, held as f32. It compares integers: LLVM 19
// combines llvm.minimum, llvm.maximum and selects by comparisons of floats with the conversions
// into operations on half, whose code (with F16C, without AVX512-FP16) loses a NaN if the other
// operand is zero, or calls fmaxf.
static LLVMValueRef half_extreme(qn__llvm_emit_t* e, bool is_min, LLVMValueRef x, LLVMValueRef y) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef float_type = LLVMTypeOf(x);
  LLVMTypeRef int_type = qn__llvm_like(float_type, e->i32);
  LLVMValueRef x_key = order_key(b, LLVMBuildBitCast(b, x, int_type, ""));
  LLVMValueRef y_key = order_key(b, LLVMBuildBitCast(b, y, int_type, ""));
  LLVMValueRef takes_x = LLVMBuildICmp(b, is_min ? LLVMIntSLT : LLVMIntSGT, x_key, y_key, "");
  LLVMValueRef result = order_key(b, LLVMBuildSelect(b, takes_x, x_key, y_key, ""));
  LLVMValueRef has_nan = LLVMBuildFCmp(b, LLVMRealUNO, x, y, "");
  LLVMValueRef quiet = LLVMBuildBitCast(b, LLVMBuildFAdd(b, x, y, ""), int_type, "");
  return LLVMBuildBitCast(b, LLVMBuildSelect(b, has_nan, quiet, result, ""), float_type, "");
}

LLVMValueRef qn__emit_float_op(qn__llvm_emit_t* e, qn_op_t op, qn_dtype_t dtype,
                               LLVMValueRef* args) {
  bool is_half_extreme = dtype == QN_DTYPE_F16 && (op == QN_OP_MIN || op == QN_OP_MAX);
  LLVMValueRef result = is_half_extreme ? half_extreme(e, op == QN_OP_MIN, args[0], args[1])
                                        : compute(e, op, dtype, args);
  bool is_test = qn__op_info(op)->rule == QN__RULE_TEST;
  return is_test ? result : qn__emit_round(e, dtype, result);
}

// ------------------------------------------------------------------------------------ f16

// Returns a builder for f32 and its bits, with the lanes of `type`. It calls no functions.
static qn__llvm_math_builder_t f32_like(const qn__llvm_emit_t* e, LLVMTypeRef type) {
  return (qn__llvm_math_builder_t){.builder = e->fn->builder,
                                   .f = qn__llvm_like(type, e->f32),
                                   .i = qn__llvm_like(type, e->i32),
                                   .lanes = qn__llvm_lane_count(type)};
}
static LLVMValueRef and_(const qn__llvm_math_builder_t* k, LLVMValueRef a, uint32_t mask) {
  return LLVMBuildAnd(k->builder, a, ki(k, mask), "");
}
static LLVMValueRef shr(const qn__llvm_math_builder_t* k, LLVMValueRef a, uint32_t count) {
  return LLVMBuildLShr(k->builder, a, ki(k, count), "");
}
static LLVMValueRef shl(const qn__llvm_math_builder_t* k, LLVMValueRef a, uint32_t count) {
  return LLVMBuildShl(k->builder, a, ki(k, count), "");
}
static LLVMValueRef is(const qn__llvm_math_builder_t* k, LLVMIntPredicate how, LLVMValueRef a,
                       uint32_t b) {
  return LLVMBuildICmp(k->builder, how, a, ki(k, b), "");
}

// Emits the 16 bits of the nearest f16, in an i32.
static LLVMValueRef f16_from_f32(const qn__llvm_math_builder_t* k, LLVMValueRef value) {
  LLVMValueRef all = kbits(k, value);
  LLVMValueRef x = and_(k, all, 0x7FFFFFFFu);
  LLVMValueRef sign = shr(k, and_(k, all, 0x80000000u), 16);
  // 65536 and more become infinity. A NaN becomes quiet and keeps the upper bits of its payload.
  LLVMValueRef payload = kor(k, and_(k, shr(k, x, 13), 0x3FFu), ki(k, 0x7E00u));
  LLVMValueRef big = kselect(k, is(k, LLVMIntUGT, x, 0x7F800000u), payload, ki(k, 0x7C00u));
  // Below 2^-14 the sum with 0.5 rounds to the spacing of denormal f16 numbers.
  LLVMValueRef half = LLVMConstBitCast(ki(k, 0x3F000000u), k->f);
  LLVMValueRef sum = LLVMBuildFAdd(k->builder, kfrom_bits(k, x), half, "");
  LLVMValueRef small = LLVMBuildSub(k->builder, kbits(k, sum), ki(k, 0x3F000000u), "");
  // Between the two, change the exponent's bias and round to even by an addition.
  LLVMValueRef odd = and_(k, shr(k, x, 13), 1);
  LLVMValueRef middle = kiadd(k, kiadd(k, x, ki(k, 0xC8000FFFu)), odd);
  middle = shr(k, middle, 13);
  LLVMValueRef result = kselect(k, is(k, LLVMIntULT, x, 0x38800000u), small, middle);
  result = kselect(k, is(k, LLVMIntUGE, x, 0x47800000u), big, result);
  return kor(k, result, sign);
}

static LLVMValueRef f32_from_f16(const qn__llvm_math_builder_t* k, LLVMValueRef bits) {
  LLVMValueRef x = shl(k, and_(k, bits, 0x7FFFu), 13);
  LLVMValueRef sign = shl(k, and_(k, bits, 0x8000u), 16);
  LLVMValueRef exponent = and_(k, x, 0x0F800000u);
  LLVMValueRef normal = kiadd(k, x, ki(k, 0x38000000u));
  LLVMValueRef special = kiadd(k, x, ki(k, 0x70000000u));
  LLVMValueRef magic = LLVMConstBitCast(ki(k, 0x38800000u), k->f);
  LLVMValueRef denormal = kfrom_bits(k, kiadd(k, x, ki(k, 0x38800000u)));
  denormal = kbits(k, LLVMBuildFSub(k->builder, denormal, magic, ""));
  LLVMValueRef result = kselect(k, is(k, LLVMIntEQ, exponent, 0), denormal, normal);
  result = kselect(k, is(k, LLVMIntEQ, exponent, 0x0F800000u), special, result);
  return kfrom_bits(k, kor(k, result, sign));
}

// ------------------------------------------------------------------------------------ bf16

// Rounds f32 bits to even and clears their lower half.
static LLVMValueRef bf16_round(const qn__llvm_math_builder_t* k, LLVMValueRef value) {
  LLVMValueRef x = kbits(k, value);
  LLVMValueRef odd = and_(k, shr(k, x, 16), 1);
  LLVMValueRef rounded = kiadd(k, kiadd(k, x, ki(k, 0x7FFFu)), odd);
  LLVMValueRef quiet = kor(k, x, ki(k, 0x00400000u));
  LLVMValueRef is_nan = LLVMBuildFCmp(k->builder, LLVMRealUNO, value, value, "");
  return and_(k, kselect(k, is_nan, quiet, rounded), 0xFFFF0000u);
}

// ------------------------------------------------------------------------------------ 8 and 4 bits

// What rounds f32 to a small float, in bits of f32.
typedef struct small_format {
  uint32_t bits;
  uint32_t cut;         // bits of the fraction that are lost
  uint32_t bias;        // the difference of the exponents' biases, in place
  uint32_t min_normal;  // the smallest normal number
  uint32_t magic;       // a number whose spacing is that of denormal numbers
  uint32_t limit;       // larger numbers are beyond the format
  uint32_t beyond;      // what those become
  uint32_t nan;
} small_format_t;

static small_format_t small_format(qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_F8E4M3FN) {
    return (small_format_t){8, 20, 120u << 23, 0x3C800000u, 0x46800000u, 0x43E80000u, 0x7F, 0x7F};
  }
  if (dtype == QN_DTYPE_F8E5M2) {
    return (small_format_t){8, 21, 112u << 23, 0x38800000u, 0x43000000u, 0x476FFFFFu, 0x7C, 0x7E};
  }
  return (small_format_t){4, 22, 126u << 23, 0x3F800000u, 0x4A800000u, 0x40C00000u, 7, 8};
}

LLVMValueRef qn__emit_stored_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value) {
  small_format_t format = small_format(dtype);
  qn__llvm_math_builder_t builder = f32_like(e, LLVMTypeOf(value));
  const qn__llvm_math_builder_t* k = &builder;
  LLVMValueRef all = kbits(k, value);
  LLVMValueRef x = and_(k, all, 0x7FFFFFFFu);
  LLVMValueRef sign = shr(k, and_(k, all, 0x80000000u), 32 - format.bits);
  LLVMValueRef magic = LLVMConstBitCast(ki(k, format.magic), k->f);
  LLVMValueRef sum = LLVMBuildFAdd(k->builder, kfrom_bits(k, x), magic, "");
  LLVMValueRef small = kisub(k, kbits(k, sum), ki(k, format.magic));
  LLVMValueRef odd = and_(k, shr(k, x, format.cut), 1);
  uint32_t below_half = (1u << (format.cut - 1)) - 1;
  LLVMValueRef middle = kiadd(k, kiadd(k, x, ki(k, below_half - format.bias)), odd);
  middle = shr(k, middle, format.cut);
  LLVMValueRef result = kselect(k, is(k, LLVMIntULT, x, format.min_normal), small, middle);
  result = kselect(k, is(k, LLVMIntUGT, x, format.limit), ki(k, format.beyond), result);
  if (format.nan != format.beyond) {
    result = kselect(k, is(k, LLVMIntUGT, x, 0x7F800000u), ki(k, format.nan), result);
  }
  LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(value), e->i8);
  return LLVMBuildTrunc(k->builder, kor(k, result, sign), type, "");
}

LLVMValueRef qn__emit_stored_value(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef bits) {
  LLVMBuilderRef b = e->fn->builder;
  if (dtype == QN_DTYPE_F8E5M2) {  // the upper half of an f16
    LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(bits), e->i16);
    LLVMValueRef wide = LLVMBuildZExt(b, bits, type, "");
    return qn__emit_widen_bits(e, QN_DTYPE_F16, LLVMBuildShl(b, wide, qn__llvm_int(type, 8), ""));
  }
  small_format_t format = small_format(dtype);
  qn__llvm_math_builder_t builder = f32_like(e, LLVMTypeOf(bits));
  const qn__llvm_math_builder_t* k = &builder;
  LLVMValueRef wide = LLVMBuildZExt(b, bits, k->i, "");
  uint32_t magnitude = (1u << (format.bits - 1)) - 1;
  LLVMValueRef x = shl(k, and_(k, wide, magnitude), format.cut);
  LLVMValueRef sign = shl(k, and_(k, wide, magnitude + 1), 32 - format.bits);
  LLVMValueRef normal = kiadd(k, x, ki(k, format.bias));
  LLVMValueRef least = LLVMConstBitCast(ki(k, format.min_normal), k->f);
  LLVMValueRef denormal = kfrom_bits(k, kiadd(k, x, ki(k, format.min_normal)));
  denormal = kbits(k, LLVMBuildFSub(b, denormal, least, ""));
  LLVMValueRef result = kselect(k, is(k, LLVMIntULT, x, 1u << 23), denormal, normal);
  if (dtype == QN_DTYPE_F8E4M3FN) {
    result = kselect(k, is(k, LLVMIntEQ, x, 0x7Fu << format.cut), ki(k, 0x7FC00000u), result);
  }
  return kfrom_bits(k, kor(k, result, sign));
}

// ------------------------------------------------------------------------------------ interface

static LLVMValueRef to_half(qn__llvm_emit_t* e, LLVMValueRef value) {
  LLVMTypeRef half = qn__llvm_like(LLVMTypeOf(value), LLVMHalfTypeInContext(e->context));
  return LLVMBuildFPTrunc(e->fn->builder, value, half, "");
}

LLVMValueRef qn__emit_round(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value) {
  if (!qn__emit_is_narrow_float(dtype)) return value;
  LLVMTypeRef type = LLVMTypeOf(value);
  qn__llvm_math_builder_t k = f32_like(e, type);
  if (dtype == QN_DTYPE_BF16) return kfrom_bits(&k, bf16_round(&k, value));
  if (e->options->has_f16c) return LLVMBuildFPExt(e->fn->builder, to_half(e, value), type, "");
  return f32_from_f16(&k, f16_from_f32(&k, value));
}

LLVMValueRef qn__emit_narrow_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value) {
  LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(value), e->i16);
  qn__llvm_math_builder_t k = f32_like(e, type);
  if (dtype == QN_DTYPE_BF16) {
    // The value is representable, so its lower half is zero.
    return LLVMBuildTrunc(k.builder, shr(&k, kbits(&k, value), 16), type, "");
  }
  if (e->options->has_f16c) return LLVMBuildBitCast(k.builder, to_half(e, value), type, "");
  return LLVMBuildTrunc(k.builder, f16_from_f32(&k, value), type, "");
}

LLVMValueRef qn__emit_widen_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef bits) {
  LLVMTypeRef type = LLVMTypeOf(bits);
  qn__llvm_math_builder_t k = f32_like(e, type);
  if (dtype == QN_DTYPE_F16 && e->options->has_f16c) {
    LLVMTypeRef half = qn__llvm_like(type, LLVMHalfTypeInContext(e->context));
    return LLVMBuildFPExt(k.builder, LLVMBuildBitCast(k.builder, bits, half, ""), k.f, "");
  }
  LLVMValueRef wide = LLVMBuildZExt(k.builder, bits, k.i, "");
  if (dtype == QN_DTYPE_F16) return f32_from_f16(&k, wide);
  return kfrom_bits(&k, shl(&k, wide, 16));
}
