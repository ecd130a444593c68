// The operations that are a few instructions each: rounding, signs, minimum, square roots, tests.
//
// What it is: one function per operation, in the order of ops.inc.
// What it is not: fma, which is long where the machine has no instruction for it (math_fma.c).
// Threads: as the builder.
// Next: math_kit.c, which has the rounding without SSE4.1.
#include "jit/llvm/math_kit.h"

qn__val_t qn__math_sqrt(const qn__kit_t* k, const qn__val_t* args) {
  return qn__kit_call(k, "llvm.sqrt", args, 1);
}

qn__val_t qn__math_rsqrt(const qn__kit_t* k, const qn__val_t* args) {
  return kdiv(k, kf(k, 1.0), qn__math_sqrt(k, args));
}

qn__val_t qn__math_abs(const qn__kit_t* k, const qn__val_t* args) {
  return kabs(k, args[0]);
}

qn__val_t qn__math_copysign(const qn__kit_t* k, const qn__val_t* args) {
  return kcopysign(k, args[0], args[1]);
}

// The two of IEEE 754-2019 that propagate NaN and order the zeros; LLVM expands them inline.
qn__val_t qn__math_min(const qn__kit_t* k, const qn__val_t* args) {
  return qn__kit_call(k, "llvm.minimum", args, 2);
}

qn__val_t qn__math_max(const qn__kit_t* k, const qn__val_t* args) {
  return qn__kit_call(k, "llvm.maximum", args, 2);
}

qn__val_t qn__math_floor(const qn__kit_t* k, const qn__val_t* args) {
  return qn__kit_round(k, args[0], 'd');
}

qn__val_t qn__math_ceil(const qn__kit_t* k, const qn__val_t* args) {
  return qn__kit_round(k, args[0], 'u');
}

qn__val_t qn__math_trunc(const qn__kit_t* k, const qn__val_t* args) {
  return qn__kit_round(k, args[0], 'z');
}

qn__val_t qn__math_roundeven(const qn__kit_t* k, const qn__val_t* args) {
  return qn__kit_round(k, args[0], 'e');
}

// The number added is the largest below one half: with one half itself, 0.49999997 would go to 1.
qn__val_t qn__math_round(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t almost_half = kf(k, k->is_f64 ? 0x1.fffffffffffffp-2 : 0x1.fffffep-2);
  return qn__kit_round(k, kadd(k, args[0], kcopysign(k, almost_half, args[0])), 'z');
}

qn__val_t qn__math_isnan(const qn__kit_t* k, const qn__val_t* args) {
  return kcmp(k, LLVMRealUNO, args[0], args[0]);
}

qn__val_t qn__math_isinf(const qn__kit_t* k, const qn__val_t* args) {
  return kcmp(k, LLVMRealOEQ, kabs(k, args[0]), kf(k, __builtin_inf()));
}

qn__val_t qn__math_isfinite(const qn__kit_t* k, const qn__val_t* args) {
  return kcmp(k, LLVMRealOLT, kabs(k, args[0]), kf(k, __builtin_inf()));
}
