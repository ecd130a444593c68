// SPDX-License-Identifier: Apache-2.0
// jit/llvm/build.h: types, constants and instructions on scalars and vectors alike, for the emitter
// (emit_*.c) and the mathematical functions (math_*.c).
//
// A vector type has a fixed number of lanes; a scalar has none. Constants and intrinsics follow the
// type of their operands. The builder stands in a block of a function of the module.
#ifndef QN_JIT_LLVM_BUILD_H_
#define QN_JIT_LLVM_BUILD_H_

#include <llvm-c/Core.h>

#include "ir/ir.h"

unsigned qn__llvm_lane_count(LLVMTypeRef type);  // 0 for a scalar
LLVMTypeRef qn__llvm_element(LLVMTypeRef type);
// Returns the vector type; for no lanes the element type.
LLVMTypeRef qn__llvm_vector(LLVMTypeRef element, unsigned lanes);
// Returns a type of the same lanes with another element type.
LLVMTypeRef qn__llvm_like(LLVMTypeRef type, LLVMTypeRef element);

// Return a constant of the type, equal in all lanes.
LLVMValueRef qn__llvm_splat(LLVMTypeRef type, LLVMValueRef constant);
LLVMValueRef qn__llvm_int(LLVMTypeRef type, uint64_t value);
LLVMValueRef qn__llvm_real(LLVMTypeRef type, double value);

LLVMValueRef qn__llvm_intrinsic(LLVMBuilderRef b, const char* name, LLVMTypeRef* overloads,
                                unsigned overload_count, LLVMValueRef* args, unsigned count);
// Calls llvm.ctlz, llvm.cttz or llvm.abs so that the result is defined for each value.
LLVMValueRef qn__llvm_total(LLVMBuilderRef b, const char* name, LLVMValueRef value);

static inline bool qn__llvm_is_signed(qn_dtype_t dtype) {
  return qn__dtype_class(dtype) == QN__CLASS_SIGNED;
}
// Emits an operator of the IR that is one instruction with two operands of `dtype`. Shift counts
// must be below the width. Returns NULL for any other operator.
LLVMValueRef qn__llvm_binary(LLVMBuilderRef b, qn_op_t op, qn_dtype_t dtype, LLVMValueRef x,
                             LLVMValueRef y);
// Emits a comparison, QN_OP_EQ to QN_OP_GE.
LLVMValueRef qn__llvm_compare(LLVMBuilderRef b, qn_op_t op, qn_dtype_t dtype, LLVMValueRef x,
                              LLVMValueRef y);
// Converts between integers, from them to floats, and between f32 and f64. Integers wrap.
LLVMValueRef qn__llvm_convert(LLVMBuilderRef b, qn_dtype_t from, LLVMValueRef value,
                              LLVMTypeRef type);
// Returns whether any lane of an i1 value is true.
LLVMValueRef qn__llvm_any(LLVMBuilderRef b, LLVMValueRef mask);

// Emits the value of two paths that join at the builder's block.
LLVMValueRef qn__llvm_join(LLVMBuilderRef b, LLVMValueRef x, LLVMBasicBlockRef from_x,
                           LLVMValueRef y, LLVMBasicBlockRef from_y);

// The index of a function's own attributes, as opposed to those of its parameters.
#define QN__LLVM_OF_FUNCTION ((LLVMAttributeIndex)LLVMAttributeFunctionIndex)
LLVMAttributeRef qn__llvm_attribute(LLVMContextRef context, const char* name, uint64_t value);
void qn__llvm_add_attribute(LLVMValueRef function, LLVMAttributeIndex index, const char* name);
void qn__llvm_add_text_attribute(LLVMValueRef function, const char* key, const char* value);

#endif  // QN_JIT_LLVM_BUILD_H_
