// SPDX-License-Identifier: Apache-2.0
// jit/llvm/math_builder.c: math builders, rounding, AVX-512, functions of the module.
#include "jit/llvm/math_builder.h"

#include <stdio.h>
#include <string.h>

bool qn__llvm_math_builder_init(qn__llvm_math_builder_t* k, qn__llvm_math_t* math,
                                LLVMBuilderRef builder, LLVMTypeRef type) {
  LLVMTypeKind kind = LLVMGetTypeKind(qn__llvm_element(type));
  if (kind != LLVMFloatTypeKind && kind != LLVMDoubleTypeKind) return false;
  bool is_f64 = kind == LLVMDoubleTypeKind;
  LLVMTypeRef integer =
      is_f64 ? LLVMInt64TypeInContext(math->context) : LLVMInt32TypeInContext(math->context);
  *k = (qn__llvm_math_builder_t){
      .math = math,
      .builder = builder,
      .f = type,
      .i = qn__llvm_like(type, integer),
      .lanes = qn__llvm_lane_count(type),
      .is_f64 = is_f64,
  };
  return true;
}

static qn__llvm_math_builder_t with_type(const qn__llvm_math_builder_t* k, LLVMTypeRef type) {
  qn__llvm_math_builder_t other = *k;
  (void)QN_NEVER(!qn__llvm_math_builder_init(&other, k->math, k->builder, type));
  return other;
}

qn__llvm_math_builder_t qn__llvm_math_with(const qn__llvm_math_builder_t* k, bool is_f64) {
  LLVMContextRef context = k->math->context;
  LLVMTypeRef element = is_f64 ? LLVMDoubleTypeInContext(context) : LLVMFloatTypeInContext(context);
  return with_type(k, qn__llvm_like(k->f, element));
}

qn__llvm_math_builder_t qn__llvm_math_scalar(const qn__llvm_math_builder_t* k) {
  return with_type(k, qn__llvm_element(k->f));
}

// Rounds without an instruction for it. Adding and subtracting 2^23 (2^52) rounds to the nearest
// integer, which is at most one away from the result. Larger values are integral already.
static LLVMValueRef round_by_magic(const qn__llvm_math_builder_t* k, LLVMValueRef x, char toward) {
  LLVMValueRef magnitude = kabs(k, x);
  LLVMValueRef limit = kf(k, k->is_f64 ? 0x1p52 : 0x1p23);
  LLVMValueRef zero = kf(k, 0.0), one = kf(k, 1.0);
  LLVMValueRef nearest = ksub(k, kadd(k, magnitude, limit), limit);
  LLVMValueRef result;
  if (toward == 'e') {
    result = nearest;
  } else if (toward == 'z') {
    LLVMValueRef above = kcmp(k, LLVMRealOGT, nearest, magnitude);
    result = ksub(k, nearest, kselect(k, above, one, zero));
  } else {
    nearest = kcopysign(k, nearest, x);
    LLVMValueRef off = kcmp(k, toward == 'd' ? LLVMRealOGT : LLVMRealOLT, nearest, x);
    LLVMValueRef step = kselect(k, off, one, zero);
    result = toward == 'd' ? ksub(k, nearest, step) : kadd(k, nearest, step);
  }
  // The comparison is false for a NaN, which then comes back as it is.
  return kselect(k, kcmp(k, LLVMRealOLT, magnitude, limit), kcopysign(k, result, x), x);
}

LLVMValueRef qn__llvm_math_round(const qn__llvm_math_builder_t* k, LLVMValueRef x, char toward) {
  if (!k->math->has_round) return round_by_magic(k, x, toward);
  const char* name = toward == 'z'   ? "llvm.trunc"
                     : toward == 'd' ? "llvm.floor"
                     : toward == 'u' ? "llvm.ceil"
                                     : "llvm.roundeven";
  return qn__llvm_math_intrinsic(k, name, &x, 1);
}

static unsigned width_bits(const qn__llvm_math_builder_t* k) {
  return k->lanes * (k->is_f64 ? 64 : 32);
}

bool qn__llvm_math_has_avx512(const qn__llvm_math_builder_t* k) {
  return k->math->has_avx512 &&
         (width_bits(k) == 512 || width_bits(k) == 256 || width_bits(k) == 128);
}

LLVMValueRef qn__llvm_math_avx512(const qn__llvm_math_builder_t* k, const char* name,
                                  LLVMValueRef* args, unsigned count) {
  enum { MAX_ARGS = 5, CURRENT_ROUNDING = 4, SMALLEST_MASK = 8 };
  LLVMContextRef context = k->math->context;
  unsigned bits = width_bits(k);
  assert(qn__llvm_math_has_avx512(k) && count + 3 <= MAX_ARGS);
  char full_name[64];
  snprintf(full_name, sizeof(full_name), "llvm.x86.avx512.mask.%s.%s.%u", name,
           k->is_f64 ? "pd" : "ps", bits);
  // Behind the arguments: what masked lanes keep, a mask of all lanes, for 512 bits the rounding.
  LLVMValueRef all[MAX_ARGS] = {NULL};
  for (unsigned i = 0; i < count; i++) all[i] = args[i];
  all[count++] = LLVMConstNull(k->f);
  unsigned mask_bits = k->lanes < SMALLEST_MASK ? SMALLEST_MASK : k->lanes;
  all[count++] = LLVMConstAllOnes(LLVMIntTypeInContext(context, mask_bits));
  if (bits == 512)
    all[count++] = LLVMConstInt(LLVMInt32TypeInContext(context), CURRENT_ROUNDING, false);
  LLVMTypeRef parameters[MAX_ARGS];
  for (unsigned i = 0; i < count; i++) parameters[i] = LLVMTypeOf(all[i]);
  LLVMTypeRef type = LLVMFunctionType(k->f, parameters, count, false);
  LLVMValueRef callee = LLVMGetNamedFunction(k->math->module, full_name);
  if (callee == NULL) callee = LLVMAddFunction(k->math->module, full_name, type);
  return LLVMBuildCall2(k->builder, type, callee, all, count, "");
}

// The attributes that decide which instructions may be used must be the caller's, or the two would
// disagree about how vectors are passed.
static void take_attributes(LLVMValueRef to, LLVMValueRef from) {
  static const char* const NAMES[] = {
      "target-cpu",          "target-features",        "tune-cpu",
      "prefer-vector-width", "min-legal-vector-width", "frame-pointer"};
  for (size_t i = 0; i < QN_COUNT_OF(NAMES); i++) {
    LLVMAttributeRef attribute = LLVMGetStringAttributeAtIndex(from, QN__LLVM_OF_FUNCTION, NAMES[i],
                                                               (unsigned)strlen(NAMES[i]));
    if (attribute != NULL) LLVMAddAttributeAtIndex(to, QN__LLVM_OF_FUNCTION, attribute);
  }
}

LLVMValueRef qn__llvm_math_call(const qn__llvm_math_builder_t* k, const char* name,
                                qn__llvm_math_body_t body, unsigned id, LLVMValueRef* args,
                                unsigned count) {
  enum { FASTCC = 8, MAX_ARGS = 3 };
  static const char* const ATTRIBUTES[] = {"nounwind", "willreturn", "memory"};  // memory: none
  assert(count <= MAX_ARGS);
  qn__llvm_math_t* math = k->math;
  LLVMTypeRef parameters[MAX_ARGS] = {NULL};
  for (unsigned i = 0; i < count; i++) parameters[i] = LLVMTypeOf(args[i]);
  LLVMTypeRef type = LLVMFunctionType(k->f, parameters, count, false);
  LLVMValueRef function = LLVMGetNamedFunction(math->module, name);
  assert(function == NULL || LLVMGlobalGetValueType(function) == type);
  if (function == NULL) {
    function = LLVMAddFunction(math->module, name, type);
    LLVMSetLinkage(function, LLVMInternalLinkage);
    LLVMSetFunctionCallConv(function, FASTCC);
    take_attributes(function, LLVMGetBasicBlockParent(LLVMGetInsertBlock(k->builder)));
    for (size_t i = 0; i < QN_COUNT_OF(ATTRIBUTES); i++) {
      qn__llvm_add_attribute(function, QN__LLVM_OF_FUNCTION, ATTRIBUTES[i]);
    }
    qn__llvm_math_builder_t inner = *k;
    inner.builder = LLVMCreateBuilderInContext(math->context);
    LLVMPositionBuilderAtEnd(inner.builder,
                             LLVMAppendBasicBlockInContext(math->context, function, "entry"));
    LLVMValueRef values[MAX_ARGS] = {NULL};
    for (unsigned i = 0; i < count; i++) values[i] = LLVMGetParam(function, i);
    LLVMBuildRet(inner.builder, body(&inner, id, values));
    LLVMDisposeBuilder(inner.builder);
  }
  LLVMValueRef call = LLVMBuildCall2(k->builder, type, function, args, count, "");
  LLVMSetInstructionCallConv(call, FASTCC);
  return call;
}
