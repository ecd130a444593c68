// jit/llvm/emit_cast.c: conversions between dtypes, reinterpretation of bits, and the way between
// registers and memory.
//
// Float to integer truncates and saturates, a NaN gives 0; integers wrap; conversions to a narrow
// float go through f32, as the interpreter's do. Threads: as emit.h. Next: emit_check.c.
#include "jit/llvm/emit_inner.h"

static LLVMValueRef float_to_float(qn__emit_t* e, qn_dtype_t from, qn_dtype_t to,
                                   LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = qn__emit_like(LLVMTypeOf(value), qn__emit_type(e, to));
  if (to == QN_DTYPE_F64) {
    return from == QN_DTYPE_F64 ? value : LLVMBuildFPExt(b, value, type, "");
  }
  if (from == QN_DTYPE_F64) value = LLVMBuildFPTrunc(b, value, type, "");
  return from == to ? value : qn__emit_round(e, to, value);
}

static LLVMValueRef float_to_int(qn__emit_t* e, qn_dtype_t to, LLVMValueRef value) {
  LLVMTypeRef types[] = {qn__emit_like(LLVMTypeOf(value), qn__emit_type(e, to)), LLVMTypeOf(value)};
  const char* name = qn__emit_is_signed(to) ? "llvm.fptosi.sat" : "llvm.fptoui.sat";
  return qn__emit_intrinsic(e, name, types, 2, &value, 1);
}

static LLVMValueRef int_to_float(qn__emit_t* e, qn_dtype_t from, qn_dtype_t to,
                                 LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = qn__emit_like(LLVMTypeOf(value), qn__emit_type(e, to));
  LLVMValueRef result = qn__emit_is_signed(from) ? LLVMBuildSIToFP(b, value, type, "")
                                                 : LLVMBuildUIToFP(b, value, type, "");
  return qn__emit_round(e, to, result);
}

static LLVMValueRef int_to_int(qn__emit_t* e, qn_dtype_t from, qn_dtype_t to, LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = qn__emit_like(LLVMTypeOf(value), qn__emit_type(e, to));
  uint32_t from_bits = from == QN_DTYPE_BOOL ? 1 : qn__dtype_bits(from);
  uint32_t to_bits = qn__dtype_bits(to);
  if (from_bits == to_bits) return value;
  if (from_bits > to_bits) return LLVMBuildTrunc(b, value, type, "");
  return qn__emit_is_signed(from) ? LLVMBuildSExt(b, value, type, "")
                                  : LLVMBuildZExt(b, value, type, "");
}

LLVMValueRef qn__emit_cast(qn__emit_t* e, qn_dtype_t from, qn_dtype_t to, LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
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
  return qn__dtype_is_float(to) ? int_to_float(e, from, to, value) : int_to_int(e, from, to, value);
}

LLVMValueRef qn__emit_from_memory(qn__emit_t* e, qn_dtype_t dtype, LLVMValueRef bits) {
  if (qn__emit_is_narrow_float(dtype)) return qn__emit_widen_bits(e, dtype, bits);
  if (dtype != QN_DTYPE_BOOL) return bits;
  return LLVMBuildICmp(e->fn->builder, LLVMIntNE, bits, LLVMConstNull(LLVMTypeOf(bits)), "");
}

LLVMValueRef qn__emit_to_memory(qn__emit_t* e, qn_dtype_t dtype, LLVMValueRef value) {
  if (qn__emit_is_narrow_float(dtype)) return qn__emit_narrow_bits(e, dtype, value);
  if (dtype != QN_DTYPE_BOOL) return value;
  return LLVMBuildZExt(e->fn->builder, value, qn__emit_like(LLVMTypeOf(value), e->i8), "");
}

LLVMValueRef qn__emit_bitcast(qn__emit_t* e, qn_dtype_t from, qn_dtype_t to, LLVMValueRef value) {
  LLVMValueRef bits = qn__emit_to_memory(e, from, value);
  LLVMTypeRef type = qn__emit_like(LLVMTypeOf(value), qn__emit_memory_type(e, to));
  return qn__emit_from_memory(e, to, LLVMBuildBitCast(e->fn->builder, bits, type, ""));
}
