// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_cast.c: emits conversions between dtypes, reinterpretation of bits, and conversions
// between registers and memory.
//
//  1. Float to integer truncates and saturates; NaN gives 0. Integers wrap.
//  2. A conversion to f16 or bf16 goes through f32, and still rounds once: the source is first cut
//     to the bits that f32 holds, with a sticky last bit that stands for those cut off.
//  3. Stored dtypes are their bits in an i8, those of 4 bits in its lower half. Conversions from
//     floats of 8 and 4 bits give f32; those to them begin as those to f16 do.
#include "jit/llvm/emit_inner.h"

// Clears the `count` lowest bits. The lowest remaining bit is set if any of them was (a sticky
// bit). For a negative number in two's complement this is also the odd one of the two neighbours.
static LLVMValueRef jam(LLVMBuilderRef b, LLVMValueRef value, uint32_t count) {
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMValueRef rest = qn__llvm_int(type, (UINT64_C(1) << count) - 1);
  LLVMValueRef carry = LLVMBuildAdd(b, LLVMBuildAnd(b, value, rest, ""), rest, "");
  return LLVMBuildAnd(b, LLVMBuildOr(b, value, carry, ""), LLVMBuildNot(b, rest, ""), "");
}

// Converts an f64 to an f32 that rounds to the same f16 and bf16. Keeps 16 bits: three more than
// f16 has, eight more than bf16, and no more than f32 has near bf16's smallest denormal number.
static LLVMValueRef f32_to_round(qn__llvm_emit_t* e, LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMValueRef bits = LLVMBuildBitCast(b, value, qn__llvm_like(type, e->i64), "");
  value = LLVMBuildBitCast(b, jam(b, bits, 52 - 15), type, "");
  return LLVMBuildFPTrunc(b, value, qn__llvm_like(type, e->f32), "");
}

static LLVMValueRef float_to_float(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to,
                                   LLVMValueRef value) {
  if (to == QN_DTYPE_F64 || to == QN_DTYPE_F32) {
    LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(value), qn__emit_type(e, to));
    return qn__llvm_convert(e->fn->builder, from, value, type);
  }
  if (from == to) return value;
  return qn__emit_round(e, to, from == QN_DTYPE_F64 ? f32_to_round(e, value) : value);
}

static LLVMValueRef float_to_int(qn__llvm_emit_t* e, qn_dtype_t to, LLVMValueRef value) {
  LLVMTypeRef types[] = {qn__llvm_like(LLVMTypeOf(value), qn__emit_type(e, to)), LLVMTypeOf(value)};
  const char* name = qn__llvm_is_signed(to) ? "llvm.fptosi.sat" : "llvm.fptoui.sat";
  return qn__llvm_intrinsic(e->fn->builder, name, types, 2, &value, 1);
}

// Cuts an integer of 32 or 64 bits to one that f64 holds and that rounds to the same bf16. A 64-bit
// integer loses 11 bits; bf16 has 8.
static LLVMValueRef int_to_round(qn__llvm_emit_t* e, qn_dtype_t from, LLVMValueRef value) {
  if (qn__dtype_bits(from) < 64) return value;
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = LLVMTypeOf(value);
  uint64_t most = UINT64_C(1) << 53;
  LLVMValueRef place = value;
  if (qn__llvm_is_signed(from)) {
    place = LLVMBuildAdd(b, value, qn__llvm_int(type, most), "");
    most *= 2;
  }
  LLVMValueRef is_held = LLVMBuildICmp(b, LLVMIntULT, place, qn__llvm_int(type, most), "");
  return LLVMBuildSelect(b, is_held, value, jam(b, value, 11), "");
}

static LLVMValueRef int_to_float(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to,
                                 LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  // f32 holds 24 bits. Larger integers are infinite in f16.
  bool is_wide = to == QN_DTYPE_BF16 && from != QN_DTYPE_BOOL && qn__dtype_bits(from) > 16;
  if (is_wide) value = int_to_round(e, from, value);
  LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(value), is_wide ? e->f64 : qn__emit_type(e, to));
  LLVMValueRef result = qn__llvm_convert(b, from, value, type);
  return qn__emit_round(e, to, is_wide ? f32_to_round(e, result) : result);
}

// Converts from a stored dtype: integers of 4 bits to those of 8, then to any dtype.
static LLVMValueRef from_stored(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to,
                                LLVMValueRef value) {
  if (qn__dtype_is_real(from)) {
    return qn__emit_cast(e, QN_DTYPE_F32, to, qn__emit_stored_value(e, from, value));
  }
  if (from == QN_DTYPE_U4) return qn__emit_cast(e, QN_DTYPE_U8, to, value);
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef four = qn__llvm_int(LLVMTypeOf(value), 4);
  value = LLVMBuildAShr(b, LLVMBuildShl(b, value, four, ""), four, "");
  return qn__emit_cast(e, QN_DTYPE_I8, to, value);
}

// Converts to an integer of 4 bits. Those of 8 bits saturate as well, so a second bound suffices.
static LLVMValueRef to_stored_int(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to,
                                  LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  bool is_signed = to == QN_DTYPE_I4;
  value = qn__emit_cast(e, from, is_signed ? QN_DTYPE_I8 : QN_DTYPE_U8, value);
  LLVMTypeRef type = LLVMTypeOf(value);
  if (qn__dtype_is_float(from)) {
    LLVMValueRef most[] = {value, qn__llvm_int(type, is_signed ? 7 : 15)};
    value = qn__llvm_intrinsic(b, is_signed ? "llvm.smin" : "llvm.umin", &type, 1, most, 2);
    LLVMValueRef least[] = {value, qn__llvm_int(type, (uint64_t)-8)};
    if (is_signed) value = qn__llvm_intrinsic(b, "llvm.smax", &type, 1, least, 2);
  }
  return LLVMBuildAnd(b, value, qn__llvm_int(type, 15), "");
}

// Converts to a stored dtype. An integer that f32 does not hold is beyond the largest numbers of
// its floats.
static LLVMValueRef to_stored(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to,
                              LLVMValueRef value) {
  if (!qn__dtype_is_real(to)) return to_stored_int(e, from, to, value);
  value =
      from == QN_DTYPE_F64 ? f32_to_round(e, value) : qn__emit_cast(e, from, QN_DTYPE_F32, value);
  return qn__emit_stored_bits(e, to, value);
}

LLVMValueRef qn__emit_cast(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to, LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  if (from == to) return value;
  if (qn__dtype_is_stored(from)) return from_stored(e, from, to, value);
  if (qn__dtype_is_stored(to)) return to_stored(e, from, to, value);
  bool is_from_float = qn__dtype_is_float(from);
  if (to == QN_DTYPE_BOOL) {
    if (from == QN_DTYPE_BOOL) return value;
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(value));
    return is_from_float ? LLVMBuildFCmp(b, LLVMRealUNE, value, zero, "")
                         : LLVMBuildICmp(b, LLVMIntNE, value, zero, "");
  }
  if (is_from_float) {
    return qn__dtype_is_float(to) ? float_to_float(e, from, to, value) : float_to_int(e, to, value);
  }
  if (qn__dtype_is_float(to)) return int_to_float(e, from, to, value);
  LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(value), qn__emit_type(e, to));
  return qn__llvm_convert(b, from, value, type);
}

LLVMValueRef qn__emit_from_memory(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef bits) {
  if (qn__emit_is_narrow_float(dtype)) return qn__emit_widen_bits(e, dtype, bits);
  if (dtype != QN_DTYPE_BOOL) return bits;
  return LLVMBuildICmp(e->fn->builder, LLVMIntNE, bits, LLVMConstNull(LLVMTypeOf(bits)), "");
}

LLVMValueRef qn__emit_to_memory(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value) {
  if (qn__emit_is_narrow_float(dtype)) return qn__emit_narrow_bits(e, dtype, value);
  if (dtype != QN_DTYPE_BOOL) return value;
  return LLVMBuildZExt(e->fn->builder, value, qn__llvm_like(LLVMTypeOf(value), e->i8), "");
}

LLVMValueRef qn__emit_bitcast(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to,
                              LLVMValueRef value) {
  LLVMValueRef bits = qn__emit_to_memory(e, from, value);
  LLVMTypeRef type = qn__llvm_like(LLVMTypeOf(value), qn__emit_memory_type(e, to));
  return qn__emit_from_memory(e, to, LLVMBuildBitCast(e->fn->builder, bits, type, ""));
}
