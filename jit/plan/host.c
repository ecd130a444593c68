// SPDX-License-Identifier: Apache-2.0
// jit/plan/host.c: expressions of the IR as postfix over i64.
//
// Example: floordiv(n + 3, 4) becomes WORD n, CONST 3, APPLY ADD, CONST 4, APPLY FLOORDIV.
//
// Requirements:
//
//  1. The host computes in i64. A narrower value is extended when it is read, and wrapped after
//     each operator whose result may leave its range.
//  2. A u64 is only read, converted and selected. Comparisons, divisions and shifts of u64 would
//     need operators of their own.
//  3. Both sides of a lazy operator are evaluated. This is right because no operator fails here: a
//     division by zero gives 0.
#include "jit/plan/host.h"

#include <assert.h>

// Appends an operation that pops `taken` values and pushes one.
static void put(qn__gpu_ops_t* ops, qn__gpu_op_t op, uint32_t taken) {
  qn__gpu_op_t* items =
      qn__arena_grow(ops->arena, ops->items, ops->count, &ops->capacity, sizeof *items);
  if (!items) {
    ops->has_failed = true;
    return;
  }
  assert(ops->has_failed || ops->depth >= taken);
  ops->items = items;
  ops->items[ops->count++] = op;
  ops->depth = ops->depth - taken + 1;
  if (ops->depth > ops->max_depth) ops->max_depth = ops->depth;
}

void qn__gpu_put_const(qn__gpu_ops_t* ops, int64_t value) {
  put(ops, (qn__gpu_op_t){.kind = QN__GPU_CONST, .value = value}, 0);
}

void qn__gpu_put_apply(qn__gpu_ops_t* ops, qn_op_t op) {
  put(ops, (qn__gpu_op_t){.kind = QN__GPU_APPLY, .op = op}, qn__gpu_op_arity(op));
}

static void put_wrap(qn__gpu_ops_t* ops, qn_dtype_t dtype) {
  put(ops, (qn__gpu_op_t){.kind = QN__GPU_WRAP, .dtype = dtype}, 1);
}

void qn__gpu_put_var(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_var_t* var) {
  assert(qn__gpu_host_knows_var(host, var));
  if (host->locals[var->id] != QN__GPU_NO_PLACE) {
    put(ops, (qn__gpu_op_t){.kind = QN__GPU_LOCAL, .value = host->locals[var->id]}, 0);
  } else {
    put(ops,
        (qn__gpu_op_t){.kind = QN__GPU_WORD, .dtype = var->dtype, .value = host->words[var->id]},
        0);
  }
}

bool qn__gpu_host_knows_var(const qn__gpu_host_t* host, const qn__ir_var_t* var) {
  if (qn__dtype_is_real(var->dtype)) return false;
  return host->locals[var->id] != QN__GPU_NO_PLACE || host->words[var->id] != QN__GPU_NO_PLACE;
}

// Returns whether i64 results must be wrapped to this integer dtype.
static bool is_narrower(qn_dtype_t dtype) {
  return dtype != QN_DTYPE_I64 && dtype != QN_DTYPE_U64 && dtype != QN_DTYPE_BOOL;
}

bool qn__gpu_host_knows(const qn__gpu_host_t* host, const qn__ir_expr_t* expr) {
  if (!qn__dtype_is_int(expr->dtype) && expr->dtype != QN_DTYPE_BOOL) return false;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return true;
    case QN__EXPR_VAR:
      return qn__gpu_host_knows_var(host, expr->var);
    case QN__EXPR_CAST:
      return qn__gpu_host_knows(host, expr->args[0]);
    case QN__EXPR_COND:
      return qn__gpu_host_knows(host, expr->args[0]) && qn__gpu_host_knows(host, expr->args[1]) &&
             qn__gpu_host_knows(host, expr->args[2]);
    case QN__EXPR_OP: {
      uint32_t arity = qn__gpu_op_arity(expr->op);
      if (arity == 0 || arity != qn__op_info(expr->op)->arity) return false;
      if (expr->args[0]->dtype == QN_DTYPE_U64) return false;
      for (uint32_t i = 0; i < arity; i++) {
        if (!qn__gpu_host_knows(host, expr->args[i])) return false;
      }
      return true;
    }
    default:
      return false;
  }
}

// Returns the unsigned dtype of the same width; a 64-bit dtype is returned unchanged.
static qn_dtype_t unsigned_of(qn_dtype_t dtype) {
  switch (qn__dtype_bits(dtype)) {
    case 8:
      return QN_DTYPE_U8;
    case 16:
      return QN_DTYPE_U16;
    case 32:
      return QN_DTYPE_U32;
    default:
      return dtype;
  }
}

// Appends an operator of fewer than 64 bits that i64 computes in several steps. False: it is
// another one.
static bool put_steps(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_expr_t* expr,
                      uint32_t bits) {
  const qn__ir_expr_t *a = expr->args[0], *b = expr->args[1];
  switch (expr->op) {
    case QN_OP_CTZ:  // the bit after the last one ends the count for 0
      qn__gpu_put_expr(host, ops, a);
      qn__gpu_put_const(ops, INT64_C(1) << bits);
      qn__gpu_put_apply(ops, QN_OP_OR);
      qn__gpu_put_apply(ops, QN_OP_CTZ);
      return true;
    case QN_OP_MULHI:
      qn__gpu_put_expr(host, ops, a);
      qn__gpu_put_expr(host, ops, b);
      qn__gpu_put_apply(ops, QN_OP_MUL);
      qn__gpu_put_const(ops, bits);
      qn__gpu_put_apply(ops, QN_OP_SHR);
      return true;
    case QN_OP_ROTL:
      for (int i = 0; i < 2; i++) {
        qn__gpu_put_expr(host, ops, a);
        put_wrap(ops, unsigned_of(expr->dtype));
        qn__gpu_put_expr(host, ops, b);
        if (i == 1) qn__gpu_put_apply(ops, QN_OP_NEG);
        qn__gpu_put_const(ops, bits - 1);
        qn__gpu_put_apply(ops, QN_OP_AND);
        qn__gpu_put_apply(ops, i == 0 ? QN_OP_SHL : QN_OP_SHR);
      }
      qn__gpu_put_apply(ops, QN_OP_OR);
      return true;
    default:
      return false;
  }
}

// Appends an operator. Three kinds differ from the operator on i64:
//  - A shift takes its count modulo the width, so the count is masked first.
//  - POPCOUNT and CLZ read a narrow value without its sign extension. CLZ then subtracts the
//    64 - bits leading zeros above the value.
//  - NOT of a bool is the logical one.
static void put_op(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_expr_t* expr) {
  qn_dtype_t dtype = expr->args[0]->dtype;
  uint32_t bits = qn__dtype_bits(dtype);
  if (bits < 64 && put_steps(host, ops, expr, bits)) {
    put_wrap(ops, expr->dtype);
    return;
  }
  for (uint32_t i = 0; i < qn__gpu_op_arity(expr->op); i++) {
    qn__gpu_put_expr(host, ops, expr->args[i]);
    bool is_count = i == 1 && (expr->op == QN_OP_SHL || expr->op == QN_OP_SHR);
    if (is_count && bits < 64) {
      qn__gpu_put_const(ops, bits - 1);
      qn__gpu_put_apply(ops, QN_OP_AND);
    }
  }
  bool is_bits = expr->op == QN_OP_POPCOUNT || expr->op == QN_OP_CLZ;
  if (is_bits && bits < 64) put_wrap(ops, unsigned_of(dtype));
  if (expr->op == QN_OP_NOT && dtype == QN_DTYPE_BOOL) {
    qn__gpu_put_apply(ops, QN_OP_LOGIC_NOT);
    return;
  }
  qn__gpu_put_apply(ops, expr->op);
  if (expr->op == QN_OP_CLZ && bits < 64) {
    qn__gpu_put_const(ops, 64 - (int64_t)bits);
    qn__gpu_put_apply(ops, QN_OP_SUB);
  }
  if (is_narrower(expr->dtype)) put_wrap(ops, expr->dtype);
}

void qn__gpu_put_expr(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
      qn__gpu_put_const(ops, expr->int_value);
      break;
    case QN__EXPR_VAR:
      qn__gpu_put_var(host, ops, expr->var);
      break;
    case QN__EXPR_CAST:
      qn__gpu_put_expr(host, ops, expr->args[0]);
      if (is_narrower(expr->dtype) || expr->dtype == QN_DTYPE_BOOL) put_wrap(ops, expr->dtype);
      break;
    case QN__EXPR_COND:
      for (uint32_t i = 0; i < 3; i++) qn__gpu_put_expr(host, ops, expr->args[i]);
      qn__gpu_put_apply(ops, QN_OP_SELECT);
      break;
    case QN__EXPR_OP:
      put_op(host, ops, expr);
      break;
    default:
      (void)QN_NEVER(true);
      qn__gpu_put_const(ops, 0);
      break;
  }
}

bool qn__gpu_ops_finish(const qn__gpu_ops_t* ops, qn__gpu_expr_t* out) {
  assert(ops->has_failed || ops->depth == (ops->count > 0));  // one value
  *out = (qn__gpu_expr_t){ops->count, ops->items};
  return !ops->has_failed && ops->max_depth <= QN__GPU_MAX_EXPR_DEPTH;
}
