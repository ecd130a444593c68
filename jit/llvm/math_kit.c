// The larger words of the vocabulary of math_kit.h.
//
// What it is: kits, splats, rounding to integral values, exponents, two-word arithmetic, functions
// of the module.
// What it is not: an approximation of anything; those are in math_exp.c, math_log.c, math_trig.c
// and math_pow.c.
// Threads: as the builder.
// Next: math.c, which has the table of operations.
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

static qn__val_t horner(const qn__kit_t* kit, qn__val_t x, const double* coefficients, size_t count,
                        size_t step) {
  size_t last = (count - 1) / step * step;
  qn__val_t sum = kf(kit, coefficients[last]);
  for (size_t i = last; i > 0; i -= step) sum = kmad(kit, sum, x, kf(kit, coefficients[i - step]));
  return sum;
}

// Long ones as two of half the length, in x^2: one more instruction, but half as long a chain, and
// the chain is what a processor with a small window waits for (10 % of log). The first coefficient
// stays apart, because what is rounded behind it counts less.
qn__val_t qn__kit_poly(const qn__kit_t* kit, qn__val_t x, const double* coefficients,
                       size_t count) {
  enum { LONG = 6 };
  if (count < LONG) return horner(kit, x, coefficients, count, 1);
  qn__val_t square = kmul(kit, x, x);
  qn__val_t even = horner(kit, square, coefficients + 1, count - 1, 2);
  qn__val_t odd = horner(kit, square, coefficients + 2, count - 2, 2);
  return kmad(kit, kmad(kit, odd, x, even), x, kf(kit, coefficients[0]));
}

double qn__kit_magic(const qn__kit_t* kit, int bias) {
  return (kit->is_f64 ? 0x1.8p52 : 0x1.8p23) + bias;
}

// Without an instruction for it: adding and subtracting 2^mantissa_bits rounds to the nearest
// integer, from which the wanted one is at most one away. Values that large are integral already.
static qn__val_t round_by_magic(const qn__kit_t* k, qn__val_t x, char toward) {
  qn__val_t magnitude = kabs(k, x);
  qn__val_t limit = kf(k, k->is_f64 ? 0x1p52 : 0x1p23);
  qn__val_t zero = kf(k, 0.0), one = kf(k, 1.0);
  qn__val_t nearest = ksub(k, kadd(k, magnitude, limit), limit);
  qn__val_t result;
  if (toward == 'z') {
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
  const char* name = toward == 'z' ? "llvm.trunc" : toward == 'd' ? "llvm.floor" : "llvm.ceil";
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

static qn__split_t split_avx512(const qn__kit_t* k, qn__val_t x) {
  // Into 3/4 to 3/2; no sign, and NaN for a negative number. The power of two that this took out is
  // the difference of the exponents.
  enum { INTERVAL = 3, SIGN = 3 };
  LLVMTypeRef word = LLVMInt32TypeInContext(k->math->context);
  qn__val_t mode = LLVMConstInt(word, SIGN << 2 | INTERVAL, false);
  qn__val_t m = qn__kit_avx512(k, "getmant", (qn__val_t[]){x, mode}, 2);
  qn__val_t exponent = qn__kit_avx512(k, "getexp", &x, 1);
  exponent = ksub(k, exponent, qn__kit_avx512(k, "getexp", &m, 1));
  return (qn__split_t){exponent, ksub(k, m, kf(k, 1.0))};
}

qn__split_t qn__kit_split(const qn__kit_t* k, qn__val_t x, bool with_denormals) {
  if (qn__kit_has_avx512(k)) return split_avx512(k, x);
  int up = 0;  // how far denormals are scaled
  qn__val_t is_denormal = NULL;
  if (with_denormals) {
    up = k->is_f64 ? 54 : 25;
    qn__val_t smallest_normal = kf(k, k->is_f64 ? 0x1p-1022 : 0x1p-126);
    is_denormal = kcmp(k, LLVMRealOLT, x, smallest_normal);
    x = kselect(k, is_denormal, kmul(k, x, kf(k, k->is_f64 ? 0x1p54 : 0x1p25)), x);
  }
  uint64_t three_quarters = k->is_f64 ? UINT64_C(0x3FE8000000000000) : UINT64_C(0x3F400000);
  uint64_t exponent_mask = k->is_f64 ? UINT64_C(0xFFF0000000000000) : UINT64_C(0xFF800000);
  qn__val_t bits = kbits(k, x);
  qn__val_t offset = kisub(k, bits, ki(k, three_quarters));
  qn__val_t m = kfrom_bits(k, kisub(k, bits, kand(k, offset, ki(k, exponent_mask))));
  qn__val_t f = ksub(k, m, kf(k, 1.0));
  if (!k->is_f64) {
    qn__val_t n = LLVMBuildAShr(k->builder, offset, ki(k, k->mantissa_bits), "");
    if (with_denormals) n = kisub(k, n, kselect(k, is_denormal, ki(k, (uint64_t)up), ki(k, 0)));
    return (qn__split_t){LLVMBuildSIToFP(k->builder, n, k->f, ""), f};
  }
  // Most machines lack the conversion of 64-bit integers for vectors, and the arithmetic shift. But
  // n + bias is a small positive integer: put into the mantissa of 2^52 it becomes a float.
  double whole = 0x1p52 + k->bias;
  qn__val_t biased =
      kshr(k, kiadd(k, offset, ki(k, (uint64_t)k->bias << k->mantissa_bits)), k->mantissa_bits);
  qn__val_t exponent = kfrom_bits(k, kor(k, biased, ki(k, UINT64_C(0x4330000000000000))));
  qn__val_t subtract = kf(k, whole);
  if (with_denormals) subtract = kselect(k, is_denormal, kf(k, whole + up), subtract);
  return (qn__split_t){ksub(k, exponent, subtract), f};
}

qn__llvm_pair_t qn__kit_two_sum(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  qn__val_t sum = kadd(k, a, b);
  qn__val_t b_part = ksub(k, sum, a);
  qn__val_t a_part = ksub(k, sum, b_part);
  return (qn__llvm_pair_t){sum, kadd(k, ksub(k, a, a_part), ksub(k, b, b_part))};
}

qn__llvm_pair_t qn__kit_fast_two_sum(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  qn__val_t sum = kadd(k, a, b);
  return (qn__llvm_pair_t){sum, ksub(k, b, ksub(k, sum, a))};
}

// The upper half of the bits of a, by clearing the lower ones: no overflow, unlike Veltkamp's way.
static qn__val_t upper_half(const qn__kit_t* k, qn__val_t a) {
  uint64_t mask = k->is_f64 ? ~UINT64_C(0x7FFFFFF) : (uint32_t)~UINT32_C(0xFFF);
  return kfrom_bits(k, kand(k, kbits(k, a), ki(k, mask)));
}

qn__llvm_pair_t qn__kit_two_product(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  qn__val_t product = kmul(k, a, b);
  if (k->math->has_fma) {
    qn__val_t args[] = {a, b, kneg(k, product)};
    return (qn__llvm_pair_t){product, qn__kit_call(k, "llvm.fma", args, 3)};
  }
  qn__val_t a_hi = upper_half(k, a), b_hi = upper_half(k, b);
  qn__val_t a_lo = ksub(k, a, a_hi), b_lo = ksub(k, b, b_hi);
  qn__val_t rest = ksub(k, kmul(k, a_hi, b_hi), product);
  rest = kadd(k, rest, kmul(k, a_hi, b_lo));
  rest = kadd(k, rest, kmul(k, a_lo, b_hi));
  return (qn__llvm_pair_t){product, kadd(k, rest, kmul(k, a_lo, b_lo))};
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

qn__val_t qn__kit_function(const qn__kit_t* kit, const char* name, qn__ir_body_t body,
                           LLVMTypeRef result, const qn__val_t* args, unsigned count) {
  enum { FASTCC = 8, MAX_ARGS = 3 };
  qn__math_t* math = kit->math;
  LLVMValueRef function = LLVMGetNamedFunction(math->module, name);
  LLVMTypeRef parameters[MAX_ARGS] = {kit->f, kit->f, kit->f};
  LLVMTypeRef type = LLVMFunctionType(result, parameters, count, false);
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
    LLVMBuildRet(inner.builder, body(&inner, values));
    LLVMDisposeBuilder(inner.builder);
  }
  qn__val_t copy[MAX_ARGS] = {NULL, NULL, NULL};
  for (unsigned i = 0; i < count; i++) copy[i] = args[i];
  LLVMValueRef call = LLVMBuildCall2(kit->builder, type, function, copy, count, "");
  LLVMSetInstructionCallConv(call, FASTCC);
  return call;
}
