// SPDX-License-Identifier: Apache-2.0
// ir/fold.c: the value of an expression of literals.
//
// Not here: the simplifier, which rewrites trees (passes/simplify.c).
#include "ir/ir.h"

static bool fold_op(const qn__ir_expr_t* expr, qn__ir_scalar_t* out) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (info->rule >= QN__RULE_LANE) return false;  // of threads or of the target
  qn__ir_scalar_t args[3] = {{0}, {0}, {0}};
  for (uint32_t i = 0; i < info->arity; i++) {
    if (!qn__expr_fold(expr->args[i], &args[i])) return false;
  }
  return qn__scalar_op(expr->op, qn__expr_operand_dtype(expr), args, out);
}

bool qn__expr_fold(const qn__ir_expr_t* expr, qn__ir_scalar_t* out) {
  qn__ir_scalar_t value;
  switch (expr->kind) {
    case QN__EXPR_INT:
      out->i = expr->int_value;
      return true;
    case QN__EXPR_FLOAT:
      out->f = expr->float_value;
      return true;
    case QN__EXPR_OP:
      return fold_op(expr, out);
    case QN__EXPR_CAST:
      if (!qn__expr_fold(expr->args[0], &value)) return false;
      *out = qn__scalar_cast(expr->args[0]->dtype, value, expr->dtype);
      return true;
    case QN__EXPR_BITCAST:
      if (!qn__expr_fold(expr->args[0], &value)) return false;
      *out = qn__scalar_from_bits(expr->dtype, qn__scalar_to_bits(expr->args[0]->dtype, value));
      return true;
    case QN__EXPR_COND:
      return qn__expr_fold(expr->args[0], &value) &&
             qn__expr_fold(expr->args[value.i ? 1 : 2], out);
    case QN__EXPR_VAR:
    case QN__EXPR_LOAD:
    case QN__EXPR_REDUCE:
      return false;
  }
  return false;
}
