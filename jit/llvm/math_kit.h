// One-line wrappers over the LLVM builder, for operations on floats.
//
// What it is: a kit, which is a builder with the float, integer and i1 type of one shape (scalar or
// vector), and functions of one instruction each on values of these types.
// What it is not: anything that knows mathematics (ir/math).
// Threads: as the builder.
#ifndef QN_JIT_LLVM_MATH_KIT_H_
#define QN_JIT_LLVM_MATH_KIT_H_

#include <llvm-c/Core.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/math/math.h"
#include "jit/llvm/math.h"

typedef LLVMValueRef qn__val_t;

typedef struct {
  qn__math_t* math;
  LLVMBuilderRef builder;
  LLVMTypeRef f;   // the float type
  LLVMTypeRef i;   // integers of the same width, the same lanes
  LLVMTypeRef b;   // i1, the same lanes
  unsigned lanes;  // 0 for a scalar
  bool is_f64;
  unsigned mantissa_bits;  // stored ones: 23 or 52
  int bias;                // 127 or 1023
} qn__kit_t;

// False when the type is not a float or double or a vector of these.
bool qn__kit_init(qn__kit_t* kit, qn__math_t* math, LLVMBuilderRef builder, LLVMTypeRef type);

// The kit of the same lanes with double (or float) elements.
qn__kit_t qn__kit_with(const qn__kit_t* kit, bool is_f64);
// The kit of one lane.
qn__kit_t qn__kit_scalar(const qn__kit_t* kit);

qn__val_t qn__kit_splat(LLVMTypeRef type, qn__val_t scalar);

// The intrinsic `name` overloaded on kit->f.
qn__val_t qn__kit_call(const qn__kit_t* kit, const char* name, const qn__val_t* args,
                       unsigned count);

static inline qn__val_t kf(const qn__kit_t* k, double value) {
  LLVMTypeRef type = k->lanes == 0 ? k->f : LLVMGetElementType(k->f);
  return qn__kit_splat(k->f, LLVMConstReal(type, value));
}
static inline qn__val_t ki(const qn__kit_t* k, uint64_t value) {
  LLVMTypeRef type = k->lanes == 0 ? k->i : LLVMGetElementType(k->i);
  return qn__kit_splat(k->i, LLVMConstInt(type, value, false));
}

static inline qn__val_t kadd(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildFAdd(k->builder, a, b, "");
}
static inline qn__val_t ksub(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildFSub(k->builder, a, b, "");
}
static inline qn__val_t kmul(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildFMul(k->builder, a, b, "");
}
static inline qn__val_t kdiv(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildFDiv(k->builder, a, b, "");
}
static inline qn__val_t kneg(const qn__kit_t* k, qn__val_t a) {
  return LLVMBuildFNeg(k->builder, a, "");
}
// a * b + c, fused where the target does that in one instruction. Only for where either is right.
static inline qn__val_t kmad(const qn__kit_t* k, qn__val_t a, qn__val_t b, qn__val_t c) {
  if (k->math->has_fma) return qn__kit_call(k, "llvm.fma", (qn__val_t[]){a, b, c}, 3);
  return kadd(k, kmul(k, a, b), c);
}
// c - a * b, likewise.
static inline qn__val_t kmsub(const qn__kit_t* k, qn__val_t a, qn__val_t b, qn__val_t c) {
  if (k->math->has_fma) return qn__kit_call(k, "llvm.fma", (qn__val_t[]){kneg(k, a), b, c}, 3);
  return ksub(k, c, kmul(k, a, b));
}
static inline qn__val_t kabs(const qn__kit_t* k, qn__val_t a) {
  return qn__kit_call(k, "llvm.fabs", &a, 1);
}
static inline qn__val_t kcopysign(const qn__kit_t* k, qn__val_t magnitude, qn__val_t sign) {
  return qn__kit_call(k, "llvm.copysign", (qn__val_t[]){magnitude, sign}, 2);
}
static inline qn__val_t kcmp(const qn__kit_t* k, LLVMRealPredicate how, qn__val_t a, qn__val_t b) {
  return LLVMBuildFCmp(k->builder, how, a, b, "");
}
static inline qn__val_t kselect(const qn__kit_t* k, qn__val_t c, qn__val_t a, qn__val_t b) {
  return LLVMBuildSelect(k->builder, c, a, b, "");
}
// x, but no more than `limit` (no less for kmost); a NaN stays. One instruction on x86.
static inline qn__val_t kleast(const qn__kit_t* k, qn__val_t limit, qn__val_t x) {
  return kselect(k, kcmp(k, LLVMRealOLT, limit, x), limit, x);
}
static inline qn__val_t kmost(const qn__kit_t* k, qn__val_t limit, qn__val_t x) {
  return kselect(k, kcmp(k, LLVMRealOGT, limit, x), limit, x);
}

static inline qn__val_t kbits(const qn__kit_t* k, qn__val_t a) {
  return LLVMBuildBitCast(k->builder, a, k->i, "");
}
static inline qn__val_t kfrom_bits(const qn__kit_t* k, qn__val_t a) {
  return LLVMBuildBitCast(k->builder, a, k->f, "");
}
static inline qn__val_t kiadd(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildAdd(k->builder, a, b, "");
}
static inline qn__val_t kisub(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildSub(k->builder, a, b, "");
}
static inline qn__val_t kand(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildAnd(k->builder, a, b, "");
}
static inline qn__val_t kor(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildOr(k->builder, a, b, "");
}
static inline qn__val_t kxor(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  return LLVMBuildXor(k->builder, a, b, "");
}
static inline qn__val_t knot(const qn__kit_t* k, qn__val_t a) {
  return LLVMBuildNot(k->builder, a, "");
}
static inline qn__val_t kshl(const qn__kit_t* k, qn__val_t a, unsigned count) {
  return LLVMBuildShl(k->builder, a, ki(k, count), "");
}
static inline qn__val_t kshr(const qn__kit_t* k, qn__val_t a, unsigned count) {
  return LLVMBuildLShr(k->builder, a, ki(k, count), "");
}
static inline qn__val_t kicmp(const qn__kit_t* k, LLVMIntPredicate how, qn__val_t a, qn__val_t b) {
  return LLVMBuildICmp(k->builder, how, a, b, "");
}

// The bit pattern of the sign alone.
static inline uint64_t qn__kit_sign_bit(const qn__kit_t* k) {
  return k->is_f64 ? UINT64_C(1) << 63 : UINT64_C(1) << 31;
}

// x with the sign bit flipped where `sign` (an integer) has it set.
static inline qn__val_t kflip(const qn__kit_t* k, qn__val_t x, qn__val_t sign) {
  return kfrom_bits(k, kxor(k, kbits(k, x), sign));
}

// x rounded to an integral value, `toward` 'z' (zero), 'd' (down), 'u' (up) or 'e' (nearest, halves
// to even).
qn__val_t qn__kit_round(const qn__kit_t* kit, qn__val_t x, char toward);

// True if any lane of the i1 value is.
qn__val_t qn__kit_any(const qn__kit_t* kit, qn__val_t mask);

// Whether the kit's shape fills a register of a machine with AVX-512, which has instructions of its
// own for exponents; and such an instruction: `name` is "scalef", "getexp" or "getmant", args
// without the mask.
bool qn__kit_has_avx512(const qn__kit_t* kit);
qn__val_t qn__kit_avx512(const qn__kit_t* kit, const char* name, const qn__val_t* args,
                         unsigned count);

// The functions, each in the file of its family; args as in qn__math_emit.
qn__val_t qn__math_fma(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_sqrt(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_rsqrt(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_abs(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_copysign(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_min(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_max(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_floor(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_ceil(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_trunc(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_roundeven(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_round(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_isnan(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_isinf(const qn__kit_t* kit, const qn__val_t* args);
qn__val_t qn__math_isfinite(const qn__kit_t* kit, const qn__val_t* args);

// The function `name` of the module, made if it is not there yet: `body` then fills it through a
// kit whose builder stands in its entry block, and returns the value to return. Parameters, `count`
// of them, and the result are of type kit->f. `id` is handed on.
typedef qn__val_t (*qn__kit_body_t)(const qn__kit_t* kit, unsigned id, const qn__val_t* args);
qn__val_t qn__kit_function(const qn__kit_t* kit, const char* name, qn__kit_body_t body, unsigned id,
                           const qn__val_t* args, unsigned count);

// A function of ir/math: its code here, or a call of it (math_shared.c).
qn__val_t qn__math_shared(const qn__kit_t* kit, qn__math_id_t id, const qn__val_t* args);

#endif  // QN_JIT_LLVM_MATH_KIT_H_
