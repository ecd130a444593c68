// The table of the math operations, and their one entry.
//
// What it is: which function emits an operation that LLVM has, or that needs a way of its own here.
// What it is not: the mathematics. The functions that all generators share are in ir/math; their
// code is emitted by math_shared.c.
// Next: math_kit.h.
#include "jit/llvm/math.h"

#include "jit/llvm/math_kit.h"

typedef struct {
  qn_op_t op;
  qn__val_t (*emit)(const qn__kit_t* kit, const qn__val_t* args);
} entry_t;

static const entry_t TABLE[] = {
    {QN_OP_MIN, qn__math_min},
    {QN_OP_MAX, qn__math_max},
    {QN_OP_ABS, qn__math_abs},
    {QN_OP_FMA, qn__math_fma},
    {QN_OP_SQRT, qn__math_sqrt},
    {QN_OP_RSQRT, qn__math_rsqrt},
    {QN_OP_FLOOR, qn__math_floor},
    {QN_OP_CEIL, qn__math_ceil},
    {QN_OP_ROUND, qn__math_round},
    {QN_OP_TRUNC, qn__math_trunc},
    {QN_OP_COPYSIGN, qn__math_copysign},
    {QN_OP_ISNAN, qn__math_isnan},
    {QN_OP_ROUNDEVEN, qn__math_roundeven},
    {QN_OP_ISINF, qn__math_isinf},
    {QN_OP_ISFINITE, qn__math_isfinite},
};

static const entry_t* find(qn_op_t op) {
  for (size_t i = 0; i < sizeof(TABLE) / sizeof(TABLE[0]); i++) {
    if (TABLE[i].op == op) return &TABLE[i];
  }
  return NULL;
}

LLVMValueRef qn__math_emit(qn__math_t* math, qn_op_t op, qn_dtype_t dtype,
                           const LLVMValueRef* args) {
  qn__kit_t kit;
  if (!qn__kit_init(&kit, math, math->builder, LLVMTypeOf(args[0]))) return NULL;
  const entry_t* entry = find(op);
  if (entry != NULL) return entry->emit(&kit, args);
  qn__math_id_t id;
  return qn__math_find(op, dtype, &id) ? qn__math_shared(&kit, id, args) : NULL;
}
