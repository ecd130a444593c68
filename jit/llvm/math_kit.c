// The larger words of the vocabulary of math_kit.h.
//
// What it is: kits, splats, rounding to integral values, instructions of AVX-512, functions of the
// module.
// What it is not: an approximation of anything; those are in ir/math.
// Threads: as the builder.
#include "jit/llvm/math_kit.h"

#include <stdio.h>
#include <string.h>

bool qn__kit_init(qn__kit_t* kit, qn__math_t* math, LLVMBuilderRef builder, LLVMTypeRef type) {
  LLVMTypeKind kind = LLVMGetTypeKind(type);
  unsigned lanes = 0;
  if (kind == LLVMVectorTypeKind) {
    lanes = LLVMGetVectorSize(type);
    kind = LLVMGetTypeKind(LLVMGetElementType(type));
  }
  if (kind != LLVMFloatTypeKind && kind != LLVMDoubleTypeKind) return false;
  bool is_f64 = kind == LLVMDoubleTypeKind;
  LLVMTypeRef integer =
      is_f64 ? LLVMInt64TypeInContext(math->context) : LLVMInt32TypeInContext(math->context);
  LLVMTypeRef bit = LLVMInt1TypeInContext(math->context);
  *kit = (qn__kit_t){
      .math = math,
      .builder = builder,
      .f = type,
      .i = lanes == 0 ? integer : LLVMVectorType(integer, lanes),
      .b = lanes == 0 ? bit : LLVMVectorType(bit, lanes),
      .lanes = lanes,
      .is_f64 = is_f64,
      .mantissa_bits = is_f64 ? 52 : 23,
      .bias = is_f64 ? 1023 : 127,
  };
  return true;
}

qn__kit_t qn__kit_with(const qn__kit_t* kit, bool is_f64) {
  LLVMTypeRef type = is_f64 ? LLVMDoubleTypeInContext(kit->math->context)
                            : LLVMFloatTypeInContext(kit->math->context);
  qn__kit_t other;
  qn__kit_init(&other, kit->math, kit->builder,
               kit->lanes == 0 ? type : LLVMVectorType(type, kit->lanes));
  return other;
}

qn__kit_t qn__kit_scalar(const qn__kit_t* kit) {
  qn__kit_t other;
  qn__kit_init(&other, kit->math, kit->builder,
               kit->lanes == 0 ? kit->f : LLVMGetElementType(kit->f));
  return other;
}

qn__val_t qn__kit_splat(LLVMTypeRef type, qn__val_t scalar) {
  enum { AT_ONCE = 64 };
  if (LLVMGetTypeKind(type) != LLVMVectorTypeKind) return scalar;
  unsigned lanes = LLVMGetVectorSize(type);
  qn__val_t elements[AT_ONCE];
  for (unsigned i = 0; i < AT_ONCE; i++) elements[i] = scalar;
  if (lanes <= AT_ONCE) return LLVMConstVector(elements, lanes);
  // Wider than any target's registers: one lane, spread by a shuffle.
  LLVMValueRef one = LLVMConstVector(elements, 1);
  LLVMValueRef mask =
      LLVMConstNull(LLVMVectorType(LLVMInt32TypeInContext(LLVMGetTypeContext(type)), lanes));
  return LLVMConstShuffleVector(one, one, mask);
}

qn__val_t qn__kit_call(const qn__kit_t* kit, const char* name, const qn__val_t* args,
                       unsigned count) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMTypeRef overload = kit->f;
  LLVMValueRef callee = LLVMGetIntrinsicDeclaration(kit->math->module, id, &overload, 1);
  qn__val_t copy[3] = {NULL, NULL, NULL};
  for (unsigned i = 0; i < count; i++) copy[i] = args[i];
  return LLVMBuildCall2(kit->builder, LLVMGlobalGetValueType(callee), callee, copy, count, "");
}

// Without an instruction for it: adding and subtracting 2^mantissa_bits rounds to the nearest
// integer, from which the wanted one is at most one away. Values that large are integral already.
static qn__val_t round_by_magic(const qn__kit_t* k, qn__val_t x, char toward) {
  qn__val_t magnitude = kabs(k, x);
  qn__val_t limit = kf(k, k->is_f64 ? 0x1p52 : 0x1p23);
  qn__val_t zero = kf(k, 0.0), one = kf(k, 1.0);
  qn__val_t nearest = ksub(k, kadd(k, magnitude, limit), limit);
  qn__val_t result;
  if (toward == 'e') {
    result = nearest;
  } else if (toward == 'z') {
    qn__val_t above = kcmp(k, LLVMRealOGT, nearest, magnitude);
    result = ksub(k, nearest, kselect(k, above, one, zero));
  } else {
    nearest = kcopysign(k, nearest, x);
    qn__val_t off = kcmp(k, toward == 'd' ? LLVMRealOGT : LLVMRealOLT, nearest, x);
    qn__val_t step = kselect(k, off, one, zero);
    result = toward == 'd' ? ksub(k, nearest, step) : kadd(k, nearest, step);
  }
  // The comparison is false for a NaN, which then comes back as it is.
  return kselect(k, kcmp(k, LLVMRealOLT, magnitude, limit), kcopysign(k, result, x), x);
}

qn__val_t qn__kit_round(const qn__kit_t* kit, qn__val_t x, char toward) {
  if (!kit->math->has_round) return round_by_magic(kit, x, toward);
  const char* name = toward == 'z'   ? "llvm.trunc"
                     : toward == 'd' ? "llvm.floor"
                     : toward == 'u' ? "llvm.ceil"
                                     : "llvm.roundeven";
  return qn__kit_call(kit, name, &x, 1);
}

qn__val_t qn__kit_any(const qn__kit_t* kit, qn__val_t mask) {
  if (kit->lanes == 0) return mask;
  LLVMTypeRef word = LLVMIntTypeInContext(kit->math->context, kit->lanes);
  qn__val_t bits = LLVMBuildBitCast(kit->builder, mask, word, "");
  return LLVMBuildICmp(kit->builder, LLVMIntNE, bits, LLVMConstNull(word), "");
}

static unsigned width_bits(const qn__kit_t* k) {
  return k->lanes * (k->is_f64 ? 64 : 32);
}

bool qn__kit_has_avx512(const qn__kit_t* k) {
  return k->math->has_avx512 &&
         (width_bits(k) == 512 || width_bits(k) == 256 || width_bits(k) == 128);
}

qn__val_t qn__kit_avx512(const qn__kit_t* k, const char* name, const qn__val_t* args,
                         unsigned count) {
  enum { MAX_ARGS = 5, CURRENT_ROUNDING = 4, SMALLEST_MASK = 8 };
  LLVMContextRef context = k->math->context;
  unsigned bits = width_bits(k);
  char full_name[64];
  snprintf(full_name, sizeof(full_name), "llvm.x86.avx512.mask.%s.%s.%u", name,
           k->is_f64 ? "pd" : "ps", bits);
  // Behind the arguments: what masked lanes keep, a mask of all lanes, for 512 bits the rounding.
  qn__val_t all[MAX_ARGS] = {NULL};
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
  for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
    LLVMAttributeRef attribute = LLVMGetStringAttributeAtIndex(
        from, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, NAMES[i], (unsigned)strlen(NAMES[i]));
    if (attribute != NULL) {
      LLVMAddAttributeAtIndex(to, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
    }
  }
}

static void add_enum_attribute(LLVMContextRef context, LLVMValueRef function, const char* name,
                               uint64_t value) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(context, kind, value));
}

qn__val_t qn__kit_function(const qn__kit_t* kit, const char* name, qn__kit_body_t body, unsigned id,
                           const qn__val_t* args, unsigned count) {
  enum { FASTCC = 8, MAX_ARGS = 3 };
  qn__math_t* math = kit->math;
  LLVMValueRef function = LLVMGetNamedFunction(math->module, name);
  LLVMTypeRef parameters[MAX_ARGS] = {NULL};
  for (unsigned i = 0; i < count; i++) parameters[i] = LLVMTypeOf(args[i]);
  LLVMTypeRef type = LLVMFunctionType(kit->f, parameters, count, false);
  if (function == NULL) {
    function = LLVMAddFunction(math->module, name, type);
    LLVMSetLinkage(function, LLVMInternalLinkage);
    LLVMSetFunctionCallConv(function, FASTCC);
    LLVMValueRef caller = LLVMGetBasicBlockParent(LLVMGetInsertBlock(kit->builder));
    take_attributes(function, caller);
    add_enum_attribute(math->context, function, "nounwind", 0);
    add_enum_attribute(math->context, function, "willreturn", 0);
    add_enum_attribute(math->context, function, "memory", 0);  // reads and writes none
    qn__kit_t inner = *kit;
    inner.builder = LLVMCreateBuilderInContext(math->context);
    LLVMPositionBuilderAtEnd(inner.builder,
                             LLVMAppendBasicBlockInContext(math->context, function, "entry"));
    qn__val_t values[MAX_ARGS] = {NULL, NULL, NULL};
    for (unsigned i = 0; i < count; i++) values[i] = LLVMGetParam(function, i);
    LLVMBuildRet(inner.builder, body(&inner, id, values));
    LLVMDisposeBuilder(inner.builder);
  }
  qn__val_t copy[MAX_ARGS] = {NULL, NULL, NULL};
  for (unsigned i = 0; i < count; i++) copy[i] = args[i];
  LLVMValueRef call = LLVMBuildCall2(kit->builder, type, function, copy, count, "");
  LLVMSetInstructionCallConv(call, FASTCC);
  return call;
}
