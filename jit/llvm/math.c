// The table of the math operations, and their one entry.
//
// What it is: which function emits an operation, and whether it goes into the caller's code or
// into a function of its own.
// What it is not: the mathematics (math_exp.c, math_log.c, math_trig.c, math_pow.c, math_fma.c,
// math_simple.c).
// Threads: the table is constant.
// Next: math_kit.h.
#include "jit/llvm/math.h"

#include <stdio.h>

#include "jit/llvm/math_kit.h"

typedef enum { INLINE, APART } place_t;

typedef struct {
  qn_op_t op;
  const char* name;
  qn__val_t (*emit)(const qn__kit_t* kit, const qn__val_t* args);
  unsigned arity;
  // Inline unless it needs branches or is long: nothing stays in a vector register over a call.
  place_t f32;
  place_t f64;
  bool is_test;  // the result is i1
} entry_t;

static const entry_t TABLE[] = {
    {QN_OP_MIN, "min", qn__math_min, 2, INLINE, INLINE, false},
    {QN_OP_MAX, "max", qn__math_max, 2, INLINE, INLINE, false},
    {QN_OP_ABS, "abs", qn__math_abs, 1, INLINE, INLINE, false},
    {QN_OP_FMA, "fma", qn__math_fma, 3, INLINE, INLINE, false},
    {QN_OP_SQRT, "sqrt", qn__math_sqrt, 1, INLINE, INLINE, false},
    {QN_OP_RSQRT, "rsqrt", qn__math_rsqrt, 1, INLINE, INLINE, false},
    {QN_OP_EXP, "exp", qn__math_exp, 1, INLINE, INLINE, false},
    {QN_OP_EXP2, "exp2", qn__math_exp2, 1, INLINE, INLINE, false},
    {QN_OP_LOG, "log", qn__math_log, 1, INLINE, INLINE, false},
    {QN_OP_LOG2, "log2", qn__math_log2, 1, INLINE, INLINE, false},
    {QN_OP_TANH, "tanh", qn__math_tanh, 1, INLINE, APART, false},
    {QN_OP_ERF, "erf", qn__math_erf, 1, INLINE, APART, false},
    {QN_OP_SIN, "sin", qn__math_sin, 1, APART, APART, false},
    {QN_OP_COS, "cos", qn__math_cos, 1, APART, APART, false},
    {QN_OP_POW, "pow", qn__math_pow, 2, APART, APART, false},
    {QN_OP_FLOOR, "floor", qn__math_floor, 1, INLINE, INLINE, false},
    {QN_OP_CEIL, "ceil", qn__math_ceil, 1, INLINE, INLINE, false},
    {QN_OP_ROUND, "round", qn__math_round, 1, INLINE, INLINE, false},
    {QN_OP_TRUNC, "trunc", qn__math_trunc, 1, INLINE, INLINE, false},
    {QN_OP_COPYSIGN, "copysign", qn__math_copysign, 2, INLINE, INLINE, false},
    {QN_OP_ISNAN, "isnan", qn__math_isnan, 1, INLINE, INLINE, true},
    {QN_OP_ISINF, "isinf", qn__math_isinf, 1, INLINE, INLINE, true},
    {QN_OP_ISFINITE, "isfinite", qn__math_isfinite, 1, INLINE, INLINE, true},
};

static const entry_t* find(qn_op_t op) {
  for (size_t i = 0; i < sizeof(TABLE) / sizeof(TABLE[0]); i++) {
    if (TABLE[i].op == op) return &TABLE[i];
  }
  return NULL;
}

bool qn__math_has(qn_op_t op) {
  return find(op) != NULL;
}

LLVMValueRef qn__math_emit(qn__math_t* math, qn_op_t op, const LLVMValueRef* args) {
  const entry_t* entry = find(op);
  qn__kit_t kit;
  if (entry == NULL || !qn__kit_init(&kit, math, math->builder, LLVMTypeOf(args[0]))) return NULL;
  if ((kit.is_f64 ? entry->f64 : entry->f32) == INLINE) return entry->emit(&kit, args);
  // The scalar f64 functions carry the same names where the vector ones call them lane by lane.
  char name[48];
  const char* element = kit.is_f64 ? "f64" : "f32";
  if (kit.lanes == 0) {
    snprintf(name, sizeof(name), "qn.math.%s.%s", entry->name, element);
  } else {
    snprintf(name, sizeof(name), "qn.math.%s.v%u%s", entry->name, kit.lanes, element);
  }
  return qn__kit_function(&kit, name, entry->emit, entry->is_test ? kit.b : kit.f, args,
                          entry->arity);
}
