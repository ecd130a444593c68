// jit/llvm/emit_float.c: emits float operators, comparisons, and rounding to f16 and bf16.
//
// A value of f16 or bf16 is held as the f32 that is equal. Every result is computed in f32 and
// rounded once more, to nearest even: by instructions where the target has them, else by integer
// arithmetic that gives the same bits.
// Not here: mathematical functions (math.h), conversions between dtypes (emit_cast.c).
#include "jit/llvm/emit_inner.h"
#include "jit/llvm/math.h"

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
                          .has_avx512 = e->options->has_avx512 && e->options->vector_bytes >= 64,
                          .fast = e->function->is_fast};
  LLVMValueRef result = qn__llvm_math_emit(&math, op, dtype, args);
  return QN_NEVER(!result) ? args[0] : result;
}

// Emits the minimum or maximum of two f16 values, held as f32. It does not use llvm.minimum and
// llvm.maximum: LLVM 19 combines them with the conversions into an operation on half, whose code
// (with F16C, without AVX512-FP16) loses a NaN if the other operand is zero.
static LLVMValueRef half_extreme(qn__llvm_emit_t* e, bool is_min, LLVMValueRef x, LLVMValueRef y) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef float_type = LLVMTypeOf(x);
  LLVMTypeRef int_type = qn__llvm_like(float_type, e->i32);
  LLVMValueRef x_bits = LLVMBuildBitCast(b, x, int_type, "");
  LLVMValueRef y_bits = LLVMBuildBitCast(b, y, int_type, "");
  // Equal numbers have equal bits, except zeros. Of these the sign decides.
  LLVMValueRef both =
      is_min ? LLVMBuildOr(b, x_bits, y_bits, "") : LLVMBuildAnd(b, x_bits, y_bits, "");
  LLVMValueRef takes_x = LLVMBuildFCmp(b, is_min ? LLVMRealOLT : LLVMRealOGT, x, y, "");
  LLVMValueRef is_equal = LLVMBuildFCmp(b, LLVMRealOEQ, x, y, "");
  LLVMValueRef has_nan = LLVMBuildFCmp(b, LLVMRealUNO, x, y, "");
  LLVMValueRef result = LLVMBuildSelect(b, takes_x, x_bits, y_bits, "");
  result = LLVMBuildSelect(b, is_equal, both, result, "");
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

// The 32-bit integer and float types of one shape.
typedef struct bits_kit {
  LLVMBuilderRef b;
  LLVMTypeRef i;
  LLVMTypeRef f;
} bits_kit_t;

static bits_kit_t kit_like(qn__llvm_emit_t* e, LLVMTypeRef type) {
  return (bits_kit_t){e->fn->builder, qn__llvm_like(type, e->i32), qn__llvm_like(type, e->f32)};
}
static LLVMValueRef c(const bits_kit_t* k, uint32_t value) {
  return qn__llvm_int(k->i, value);
}
static LLVMValueRef as_int(const bits_kit_t* k, LLVMValueRef v) {
  return LLVMBuildBitCast(k->b, v, k->i, "");
}
static LLVMValueRef as_float(const bits_kit_t* k, LLVMValueRef v) {
  return LLVMBuildBitCast(k->b, v, k->f, "");
}
static LLVMValueRef and_(const bits_kit_t* k, LLVMValueRef a, uint32_t mask) {
  return LLVMBuildAnd(k->b, a, c(k, mask), "");
}
static LLVMValueRef shr(const bits_kit_t* k, LLVMValueRef a, uint32_t count) {
  return LLVMBuildLShr(k->b, a, c(k, count), "");
}
static LLVMValueRef shl(const bits_kit_t* k, LLVMValueRef a, uint32_t count) {
  return LLVMBuildShl(k->b, a, c(k, count), "");
}
static LLVMValueRef add(const bits_kit_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildAdd(k->b, a, b, "");
}
static LLVMValueRef or_(const bits_kit_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildOr(k->b, a, b, "");
}
static LLVMValueRef choose(const bits_kit_t* k, LLVMValueRef condition, LLVMValueRef a,
                           LLVMValueRef b) {
  return LLVMBuildSelect(k->b, condition, a, b, "");
}
static LLVMValueRef is(const bits_kit_t* k, LLVMIntPredicate how, LLVMValueRef a, uint32_t b) {
  return LLVMBuildICmp(k->b, how, a, c(k, b), "");
}

// Emits the 16 bits of the nearest f16, in an i32.
static LLVMValueRef f16_from_f32(const bits_kit_t* k, LLVMValueRef value) {
  LLVMValueRef all = as_int(k, value);
  LLVMValueRef x = and_(k, all, 0x7FFFFFFFu);
  LLVMValueRef sign = shr(k, and_(k, all, 0x80000000u), 16);
  // 65536 and more become infinity. A NaN becomes quiet and keeps the upper bits of its payload.
  LLVMValueRef payload = or_(k, and_(k, shr(k, x, 13), 0x3FFu), c(k, 0x7E00u));
  LLVMValueRef big = choose(k, is(k, LLVMIntUGT, x, 0x7F800000u), payload, c(k, 0x7C00u));
  // Below 2^-14 the sum with 0.5 rounds to the spacing of denormal f16 numbers.
  LLVMValueRef half = LLVMConstBitCast(c(k, 0x3F000000u), k->f);
  LLVMValueRef sum = LLVMBuildFAdd(k->b, as_float(k, x), half, "");
  LLVMValueRef small = LLVMBuildSub(k->b, as_int(k, sum), c(k, 0x3F000000u), "");
  // Between the two, change the exponent's bias and round to even by an addition.
  LLVMValueRef odd = and_(k, shr(k, x, 13), 1);
  LLVMValueRef middle = add(k, add(k, x, c(k, 0xC8000FFFu)), odd);
  middle = shr(k, middle, 13);
  LLVMValueRef result = choose(k, is(k, LLVMIntULT, x, 0x38800000u), small, middle);
  result = choose(k, is(k, LLVMIntUGE, x, 0x47800000u), big, result);
  return or_(k, result, sign);
}

static LLVMValueRef f32_from_f16(const bits_kit_t* k, LLVMValueRef bits) {
  LLVMValueRef x = shl(k, and_(k, bits, 0x7FFFu), 13);
  LLVMValueRef sign = shl(k, and_(k, bits, 0x8000u), 16);
  LLVMValueRef exponent = and_(k, x, 0x0F800000u);
  LLVMValueRef normal = add(k, x, c(k, 0x38000000u));
  LLVMValueRef special = add(k, x, c(k, 0x70000000u));
  LLVMValueRef magic = LLVMConstBitCast(c(k, 0x38800000u), k->f);
  LLVMValueRef denormal = as_float(k, add(k, x, c(k, 0x38800000u)));
  denormal = as_int(k, LLVMBuildFSub(k->b, denormal, magic, ""));
  LLVMValueRef result = choose(k, is(k, LLVMIntEQ, exponent, 0), denormal, normal);
  result = choose(k, is(k, LLVMIntEQ, exponent, 0x0F800000u), special, result);
  return as_float(k, or_(k, result, sign));
}

// ------------------------------------------------------------------------------------ bf16

// Rounds f32 bits to even and clears their lower half.
static LLVMValueRef bf16_round(const bits_kit_t* k, LLVMValueRef value) {
  LLVMValueRef x = as_int(k, value);
  LLVMValueRef odd = and_(k, shr(k, x, 16), 1);
  LLVMValueRef rounded = add(k, add(k, x, c(k, 0x7FFFu)), odd);
  LLVMValueRef quiet = or_(k, x, c(k, 0x00400000u));
  LLVMValueRef is_nan = LLVMBuildFCmp(k->b, LLVMRealUNO, value, value, "");
  return and_(k, choose(k, is_nan, quiet, rounded), 0xFFFF0000u);
}

// ------------------------------------------------------------------------------------ interface

static LLVMValueRef to_half(qn__llvm_emit_t* e, LLVMValueRef value) {
  LLVMTypeRef half = qn__llvm_like(LLVMTypeOf(value), LLVMHalfTypeInContext(e->context));
  return LLVMBuildFPTrunc(e->fn->builder, value, half, "");
}

LLVMValueRef qn__emit_round(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value) {
  if (!qn__emit_is_narrow_float(dtype)) return value;
  LLVMTypeRef type = LLVMTypeOf(value);
  bits_kit_t k = kit_like(e, type);
  if (dtype == QN_DTYPE_BF16) return as_float(&k, bf16_round(&k, value));
  if (e->options->has_f16c) return LLVMBuildFPExt(e->fn->builder, to_half(e, value), type, "");
  return f32_from_f16(&k, f16_from_f32(&k, value));
}

LLVMValueRef qn__emit_narrow_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value) {
  LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(value), e->i16);
  bits_kit_t k = kit_like(e, type);
  if (dtype == QN_DTYPE_BF16) {
    // The value is representable, so its lower half is zero.
    return LLVMBuildTrunc(k.b, shr(&k, as_int(&k, value), 16), type, "");
  }
  if (e->options->has_f16c) return LLVMBuildBitCast(k.b, to_half(e, value), type, "");
  return LLVMBuildTrunc(k.b, f16_from_f32(&k, value), type, "");
}

LLVMValueRef qn__emit_widen_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef bits) {
  LLVMTypeRef type = LLVMTypeOf(bits);
  bits_kit_t k = kit_like(e, type);
  if (dtype == QN_DTYPE_F16 && e->options->has_f16c) {
    LLVMTypeRef half = qn__llvm_like(type, LLVMHalfTypeInContext(e->context));
    return LLVMBuildFPExt(k.b, LLVMBuildBitCast(k.b, bits, half, ""), k.f, "");
  }
  LLVMValueRef wide = LLVMBuildZExt(k.b, bits, k.i, "");
  if (dtype == QN_DTYPE_F16) return f32_from_f16(&k, wide);
  return as_float(&k, shl(&k, wide, 16));
}
