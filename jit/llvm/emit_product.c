// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_product.c: emits calls of compiled kernels (prepared.h).
//
// The kernels are constant bytes in the module: the code generator copies them into the object,
// and the linker places them in the image, which is executable as a whole.
#include "jit/llvm/emit_inner.h"

// Returns the bytes of an image, and the offsets of its forms, once a module.
static void declare_image(qn__llvm_emit_t* e, bool is_across, LLVMValueRef out_globals[2]) {
  static const char* const names[2][2] = {{"prepared.along", "prepared.along.offsets"},
                                          {"prepared.across", "prepared.across.offsets"}};
  const qn__llvm_prepared_image_t* image = &e->options->prepared->images[!is_across];
  for (int i = 0; i < 2; ++i) out_globals[i] = LLVMGetNamedGlobal(e->module, names[is_across][i]);
  if (out_globals[0]) return;
  LLVMValueRef offsets[qn__product_forms];
  for (int form = 0; form < qn__product_forms; ++form) {
    offsets[form] = LLVMConstInt(e->i32, image->offsets[form], false);
  }
  LLVMValueRef values[] = {
      LLVMConstStringInContext2(e->context, (const char*)image->bytes, image->size, true),
      LLVMConstArray2(e->i32, offsets, qn__product_forms),
  };
  for (int i = 0; i < 2; ++i) {
    out_globals[i] = LLVMAddGlobal(e->module, LLVMTypeOf(values[i]), names[is_across][i]);
    LLVMSetInitializer(out_globals[i], values[i]);
    LLVMSetGlobalConstant(out_globals[i], true);
    LLVMSetLinkage(out_globals[i], LLVMInternalLinkage);
    LLVMSetAlignment(out_globals[i], i == 0 ? 64 : 4);
  }
}

// Returns the address of the kernel of a form, which may be known only at the call.
static LLVMValueRef find_kernel(qn__llvm_emit_t* e, bool is_across, LLVMValueRef form) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef globals[2];
  declare_image(e, is_across, globals);
  LLVMValueRef place = LLVMBuildGEP2(b, e->i32, globals[1], &form, 1, "");
  LLVMValueRef offset = LLVMBuildLoad2(b, e->i32, place, "");
  LLVMSetAlignment(offset, 4);
  offset = LLVMBuildZExt(b, offset, e->i64, "");
  return LLVMBuildGEP2(b, e->i8, globals[0], &offset, 1, "");
}

void qn__emit_product(qn__llvm_emit_t* e, const qn__ir_tensor_t* tensor) {
  static const uint32_t operands[] = {2, 0, 1};  // places of c, a, b among the words
  static const uint32_t strides[] = {QN__PREPARED_C_STRIDE, QN__PREPARED_A_STRIDE,
                                     QN__PREPARED_B_STRIDE};
  static const uint32_t extents[] = {QN__PREPARED_ROWS, QN__PREPARED_COLUMNS, QN__PREPARED_STEPS};
  LLVMBuilderRef b = e->fn->builder;
  assert(e->fn->lanes == 0 && tensor->ref_count == QN__TENSOR_REFS && e->options->prepared);
  LLVMValueRef values[QN__PREPARED_WORDS];
  for (uint32_t i = 0; i < QN__TENSOR_REFS; ++i) {
    const qn__ir_tensor_ref_t* ref = &tensor->refs[i];
    values[operands[i]] = qn__emit_address(e, ref->buffer, ref->indices).pointer;
    values[strides[i]] = qn__emit_stride(e, ref->buffer, tensor->dims[i]);
    values[extents[i]] = qn__emit_scalar(e, tensor->extents[i]);
  }
  LLVMValueRef words = qn__emit_alloca(e, LLVMArrayType2(e->i64, QN__PREPARED_WORDS), 16);
  for (int64_t i = 0; i < QN__PREPARED_WORDS; ++i) {
    LLVMValueRef index = qn__emit_i64(e, i);
    LLVMValueRef place = LLVMBuildGEP2(b, e->i64, words, &index, 1, "");
    LLVMSetAlignment(LLVMBuildStore(b, values[i], place), 8);
  }
  // The kernels have neither launches nor workspaces, and cannot fail.
  LLVMValueRef args[] = {e->fn->env, words};
  LLVMValueRef kernel = find_kernel(e, tensor->is_across[1], qn__emit_scalar(e, tensor->operand));
  (void)LLVMBuildCall2(b, e->kernel_type, kernel, args, 2, "");
  int64_t bytes = e->options->prepared->stack_bytes;
  assert(e->fn->stack_bytes + bytes <= QN__EMIT_MAX_STACK_BYTES);
  if (bytes > e->fn->callee_bytes) e->fn->callee_bytes = bytes;
}
