// SPDX-License-Identifier: Apache-2.0
// jit/llvm/math_builder.h: an LLVM builder with the types of one shape (a scalar or a vector of
// floats), and short names for the instructions that the math functions use most.
//
// Not here: the mathematics (ir/math). Thread rule: as the LLVM builder.
#ifndef QN_JIT_LLVM_MATH_BUILDER_H_
#define QN_JIT_LLVM_MATH_BUILDER_H_

#include <stddef.h>
#include <stdint.h>

#include "ir/math/math.h"
#include "jit/llvm/build.h"
#include "jit/llvm/math.h"

typedef struct qn__llvm_math_builder {
  qn__llvm_math_t* math;
  LLVMBuilderRef builder;
  LLVMTypeRef f;   // the float type
  LLVMTypeRef i;   // integers of the same width and lanes
  unsigned lanes;  // 0 for a scalar
  bool is_f64;
} qn__llvm_math_builder_t;

// Returns false if `type` is neither float, double nor a vector of these.
bool qn__llvm_math_builder_init(qn__llvm_math_builder_t* k, qn__llvm_math_t* math,
                                LLVMBuilderRef builder, LLVMTypeRef type);
// Returns the builder of the same lanes with double (or float) elements, or of one lane.
qn__llvm_math_builder_t qn__llvm_math_with(const qn__llvm_math_builder_t* k, bool is_f64);
qn__llvm_math_builder_t qn__llvm_math_scalar(const qn__llvm_math_builder_t* k);

// Calls the intrinsic `name`, overloaded on k->f.
static inline LLVMValueRef qn__llvm_math_intrinsic(const qn__llvm_math_builder_t* k,
                                                   const char* name, LLVMValueRef* args,
                                                   unsigned count) {
  LLVMTypeRef type = k->f;
  return qn__llvm_intrinsic(k->builder, name, &type, 1, args, count);
}

static inline LLVMValueRef kf(const qn__llvm_math_builder_t* k, double value) {
  return qn__llvm_real(k->f, value);
}
static inline LLVMValueRef ki(const qn__llvm_math_builder_t* k, uint64_t value) {
  return qn__llvm_int(k->i, value);
}

static inline LLVMValueRef kadd(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFAdd(k->builder, a, b, "");
}
static inline LLVMValueRef ksub(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFSub(k->builder, a, b, "");
}
static inline LLVMValueRef kabs(const qn__llvm_math_builder_t* k, LLVMValueRef a) {
  return qn__llvm_math_intrinsic(k, "llvm.fabs", &a, 1);
}
static inline LLVMValueRef kcopysign(const qn__llvm_math_builder_t* k, LLVMValueRef magnitude,
                                     LLVMValueRef sign) {
  return qn__llvm_math_intrinsic(k, "llvm.copysign", (LLVMValueRef[]){magnitude, sign}, 2);
}
static inline LLVMValueRef kcmp(const qn__llvm_math_builder_t* k, LLVMRealPredicate how,
                                LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFCmp(k->builder, how, a, b, "");
}
static inline LLVMValueRef kselect(const qn__llvm_math_builder_t* k, LLVMValueRef c, LLVMValueRef a,
                                   LLVMValueRef b) {
  return LLVMBuildSelect(k->builder, c, a, b, "");
}

static inline LLVMValueRef kbits(const qn__llvm_math_builder_t* k, LLVMValueRef a) {
  return LLVMBuildBitCast(k->builder, a, k->i, "");
}
static inline LLVMValueRef kfrom_bits(const qn__llvm_math_builder_t* k, LLVMValueRef a) {
  return LLVMBuildBitCast(k->builder, a, k->f, "");
}
static inline LLVMValueRef kiadd(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildAdd(k->builder, a, b, "");
}
static inline LLVMValueRef kisub(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSub(k->builder, a, b, "");
}
static inline LLVMValueRef kand(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildAnd(k->builder, a, b, "");
}
static inline LLVMValueRef kor(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildOr(k->builder, a, b, "");
}
static inline LLVMValueRef kicmp(const qn__llvm_math_builder_t* k, LLVMIntPredicate how,
                                 LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildICmp(k->builder, how, a, b, "");
}

// Rounds x to an integral value. `toward`: 'z' (zero), 'd' (down), 'u' (up) or 'e' (nearest, halves
// to even).
LLVMValueRef qn__llvm_math_round(const qn__llvm_math_builder_t* k, LLVMValueRef x, char toward);

// Returns whether values of this shape fill a register of a machine with AVX-512.
bool qn__llvm_math_has_avx512(const qn__llvm_math_builder_t* k);
// Emits an AVX-512 instruction for exponents: "scalef", "getexp" or "getmant". `args` come without
// the mask.
LLVMValueRef qn__llvm_math_avx512(const qn__llvm_math_builder_t* k, const char* name,
                                  LLVMValueRef* args, unsigned count);

// Calls the function `name` of the module, whose `count` parameters and result have type k->f. The
// first call makes it: `body` fills it through a builder in its entry block, and returns the
// result. `id` is passed to `body`.
typedef LLVMValueRef (*qn__llvm_math_body_t)(const qn__llvm_math_builder_t* k, unsigned id,
                                             LLVMValueRef* args);
LLVMValueRef qn__llvm_math_call(const qn__llvm_math_builder_t* k, const char* name,
                                qn__llvm_math_body_t body, unsigned id, LLVMValueRef* args,
                                unsigned count);

// math_fma.c: a * b + c with one rounding.
LLVMValueRef qn__llvm_math_fma(const qn__llvm_math_builder_t* k, LLVMValueRef* args);
// math_shared.c: a function of ir/math, as code here or as a call.
LLVMValueRef qn__llvm_math_shared(const qn__llvm_math_builder_t* k, qn__math_id_t id,
                                  LLVMValueRef* args);

#endif  // QN_JIT_LLVM_MATH_BUILDER_H_
