// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_value.c: types, constants, and conversions between the three shapes.
//
// Not here: operators (emit_int.c, emit_float.c), values of variables (emit_function.c).
#include "jit/llvm/emit_inner.h"

LLVMTypeRef qn__emit_type(const qn__llvm_emit_t* e, qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_BOOL) return e->i1;
  if (qn__dtype_is_float(dtype)) return dtype == QN_DTYPE_F64 ? e->f64 : e->f32;
  if (qn__dtype_is_packed(dtype)) return e->i8;
  return LLVMIntTypeInContext(e->context, qn__dtype_bits(dtype));
}

LLVMTypeRef qn__emit_memory_type(const qn__llvm_emit_t* e, qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_BOOL) return e->i8;
  if (qn__emit_is_narrow_float(dtype)) return e->i16;
  return qn__emit_type(e, dtype);
}

LLVMTypeRef qn__emit_wide(const qn__llvm_emit_t* e, LLVMTypeRef element) {
  return qn__llvm_vector(element, e->fn->lanes);
}

// ------------------------------------------------------------------------------------ constants

LLVMValueRef qn__emit_i64(const qn__llvm_emit_t* e, int64_t value) {
  return LLVMConstInt(e->i64, (uint64_t)value, true);
}

bool qn__emit_const_int(LLVMValueRef value, int64_t* out) {
  if (!LLVMIsAConstantInt(value)) return false;
  *out = LLVMConstIntGetSExtValue(value);
  return true;
}

bool qn__emit_const_trips(LLVMValueRef begin, LLVMValueRef end, int64_t* out_first,
                          int64_t* out_trips) {
  int64_t last;
  if (!qn__emit_const_int(begin, out_first) || !qn__emit_const_int(end, &last) ||
      __builtin_sub_overflow(last, *out_first, out_trips)) {
    return false;
  }
  if (*out_trips < 0) *out_trips = 0;
  return true;
}

LLVMValueRef qn__emit_literal(const qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  LLVMTypeRef type = qn__emit_type(e, expr->dtype);
  if (qn__dtype_is_stored(expr->dtype)) {
    qn__ir_scalar_t value = {.i = expr->int_value};
    if (expr->kind == QN__EXPR_FLOAT) value.f = expr->float_value;
    return LLVMConstInt(type, qn__scalar_to_bits(expr->dtype, value), false);
  }
  if (expr->kind == QN__EXPR_INT) return LLVMConstInt(type, (uint64_t)expr->int_value, true);
  if (expr->float_value == expr->float_value) return LLVMConstReal(type, expr->float_value);
  // A NaN keeps its sign and payload.
  qn_dtype_t wide = expr->dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
  uint64_t bits = qn__scalar_to_bits(wide, (qn__ir_scalar_t){.f = expr->float_value});
  LLVMValueRef pattern = LLVMConstInt(wide == QN_DTYPE_F64 ? e->i64 : e->i32, bits, false);
  return LLVMConstBitCast(pattern, type);
}

LLVMValueRef qn__emit_undefined(const qn__llvm_emit_t* e, qn_dtype_t dtype) {
  return LLVMConstNull(qn__emit_type(e, dtype));
}

// ------------------------------------------------------------------------------------ shapes

LLVMValueRef qn__emit_splat(qn__llvm_emit_t* e, LLVMValueRef scalar, uint32_t lanes) {
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), lanes);
  if (LLVMIsConstant(scalar)) return qn__llvm_splat(type, scalar);
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef one =
      LLVMBuildInsertElement(b, LLVMGetPoison(type), scalar, LLVMConstInt(e->i64, 0, false), "");
  LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(e->i32, lanes));
  return LLVMBuildShuffleVector(b, one, LLVMGetPoison(type), zeros, "");
}

qn__llvm_value_t qn__emit_uniform(qn_dtype_t dtype, LLVMValueRef v) {
  return (qn__llvm_value_t){v, NULL, dtype, QN__LLVM_SHAPE_UNIFORM};
}

qn__llvm_value_t qn__emit_varying(qn_dtype_t dtype, LLVMValueRef v) {
  return (qn__llvm_value_t){v, NULL, dtype, QN__LLVM_SHAPE_VARYING};
}

qn__llvm_value_t qn__emit_linear(qn_dtype_t dtype, LLVMValueRef v, LLVMValueRef stride) {
  assert(qn__dtype_is_int(dtype) && LLVMTypeOf(v) == LLVMTypeOf(stride));
  int64_t constant;
  if (qn__emit_const_int(stride, &constant) && constant == 0) return qn__emit_uniform(dtype, v);
  return (qn__llvm_value_t){v, stride, dtype, QN__LLVM_SHAPE_LINEAR};
}

// Emits the vector 0, s, 2s, ...
static LLVMValueRef steps(qn__llvm_emit_t* e, LLVMValueRef stride, uint32_t lanes) {
  LLVMTypeRef element = LLVMTypeOf(stride);
  int64_t constant = 0;
  bool is_constant = qn__emit_const_int(stride, &constant);
  LLVMValueRef elements[QN__EMIT_MAX_LANES];
  assert(lanes <= QN__EMIT_MAX_LANES);
  for (uint32_t i = 0; i < lanes; ++i) {
    uint64_t step = is_constant ? (uint64_t)constant * i : i;
    elements[i] = LLVMConstInt(element, step, false);
  }
  LLVMValueRef result = LLVMConstVector(elements, lanes);
  if (is_constant) return result;
  return LLVMBuildMul(e->fn->builder, qn__emit_splat(e, stride, lanes), result, "");
}

LLVMValueRef qn__emit_widen(qn__llvm_emit_t* e, qn__llvm_value_t value) {
  uint32_t lanes = e->fn->lanes;
  assert(value.shape != QN__LLVM_SHAPE_VARYING ||
         qn__llvm_lane_count(LLVMTypeOf(value.v)) == lanes);  // requirement 2
  if (lanes == 0 || value.shape == QN__LLVM_SHAPE_VARYING) return value.v;
  LLVMValueRef splat = qn__emit_splat(e, value.v, lanes);
  if (value.shape == QN__LLVM_SHAPE_UNIFORM) return splat;
  return LLVMBuildAdd(e->fn->builder, splat, steps(e, value.stride, lanes), "");
}
