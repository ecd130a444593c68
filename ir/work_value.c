// SPDX-License-Identifier: Apache-2.0
// ir/work_value.c: evaluates what decides the shapes and the work of a call.
#include "ir/work.h"

#include <assert.h>

#include "base/dtype.h"
#include "ir/text.h"

static const qn__work_value_t unknown = {.is_known = false};

static qn__work_value_t known(qn__ir_scalar_t scalar) {
  return (qn__work_value_t){.scalar = scalar, .is_known = true};
}

// Returns the contents of a parameter that no code writes, or NULL.
static const qn__work_buffer_t* find_contents(const qn__work_scope_t* scope,
                                              const qn__ir_buffer_t* buffer) {
  if (buffer->scope == QN__SCOPE_VIEW || buffer->scope == QN__SCOPE_CONST || !scope->buffers) {
    return NULL;
  }
  for (size_t i = 0; i < scope->function->param_count; i++) {
    if (scope->function->params[i].buffer != buffer) continue;
    const qn__work_buffer_t* contents = &scope->buffers[i];
    return buffer->access == QN_ACCESS_IN && contents->data ? contents : NULL;
  }
  return NULL;
}

// Reads an element of a table or of an `in` buffer.
static qn__work_value_t eval_load(const qn__work_scope_t* scope, const qn__ir_expr_t* expr) {
  const qn__ir_buffer_t* buffer = expr->load.buffer;
  const qn__work_buffer_t* contents = find_contents(scope, buffer);
  bool is_table = buffer->scope == QN__SCOPE_CONST;
  if (!contents && !is_table) return unknown;
  qn__work_value_t result = {.is_known = true};
  int64_t at = 0;
  for (uint32_t d = 0; d < buffer->rank; d++) {
    qn__work_value_t index = qn__work_eval(scope, expr->load.indices[d]);
    int64_t extent =
        is_table ? qn__work_eval(scope, buffer->shape[d]).scalar.i : contents->shape[d];
    result.loops |= index.loops;
    result.is_known &= index.is_known && index.scalar.i >= 0 && index.scalar.i < extent;
    if (!result.is_known) continue;
    at = is_table ? at * extent + index.scalar.i : at + index.scalar.i * contents->strides[d];
  }
  if (!result.is_known) return result;
  if (is_table) {
    assert((size_t)at < buffer->element_count);
    const qn__ir_expr_t* element = buffer->elements[at];
    bool is_float = element->kind == QN__EXPR_FLOAT;
    result.scalar = is_float ? (qn__ir_scalar_t){.f = element->float_value}
                             : (qn__ir_scalar_t){.i = element->int_value};
    return result;
  }
  size_t size_bytes = qn_dtype_size_bytes(buffer->dtype);
  uint64_t bits = 0;
  memcpy(&bits, contents->data + at * (int64_t)size_bytes, size_bytes);
  result.scalar = qn__scalar_from_bits(buffer->dtype, bits);
  return result;
}

static qn__work_value_t eval_op(const qn__work_scope_t* scope, const qn__ir_expr_t* expr) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (expr->op == QN_OP_WARP_SIZE) {
    return scope->warp_size > 0 ? known((qn__ir_scalar_t){.i = scope->warp_size}) : unknown;
  }
  qn__work_value_t result = {.is_known = info->rule < QN__RULE_LANE};
  qn__ir_scalar_t args[3] = {{0}, {0}, {0}};
  for (uint32_t i = 0; i < info->arity; i++) {
    qn__work_value_t arg = qn__work_eval(scope, expr->args[i]);
    result.loops |= arg.loops;
    result.is_known &= arg.is_known;
    args[i] = arg.scalar;
    bool is_and = expr->op == QN_OP_LOGIC_AND, is_or = expr->op == QN_OP_LOGIC_OR;
    // One operand can decide alone.
    if (arg.is_known && ((is_and && arg.scalar.i == 0) || (is_or && arg.scalar.i != 0))) {
      return (qn__work_value_t){arg.scalar, true, result.loops};
    }
  }
  if (result.is_known) {
    result.is_known = qn__scalar_op(expr->op, qn__expr_operand_dtype(expr), args, &result.scalar);
  }
  return result;
}

qn__work_value_t qn__work_eval(const qn__work_scope_t* scope, const qn__ir_expr_t* expr) {
  qn__work_value_t value = unknown;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return known((qn__ir_scalar_t){.i = expr->int_value});
    case QN__EXPR_FLOAT:
      return known((qn__ir_scalar_t){.f = expr->float_value});
    case QN__EXPR_VAR:
      assert(expr->var->id < scope->function->var_count);
      return scope->vars[expr->var->id];
    case QN__EXPR_LOAD:
      return eval_load(scope, expr);
    case QN__EXPR_OP:
      return eval_op(scope, expr);
    case QN__EXPR_CAST:
      value = qn__work_eval(scope, expr->args[0]);
      value.scalar = qn__scalar_cast(expr->args[0]->dtype, value.scalar, expr->dtype);
      return value;
    case QN__EXPR_BITCAST:
      value = qn__work_eval(scope, expr->args[0]);
      value.scalar =
          qn__scalar_from_bits(expr->dtype, qn__scalar_to_bits(expr->args[0]->dtype, value.scalar));
      return value;
    case QN__EXPR_COND: {
      qn__work_value_t condition = qn__work_eval(scope, expr->args[0]);
      if (condition.is_known) value = qn__work_eval(scope, expr->args[condition.scalar.i ? 1 : 2]);
      value.loops |= condition.loops;
      return value;
    }
    case QN__EXPR_REDUCE:
      break;
  }
  return value;
}

void qn__work_bind_scalar(const qn__work_scope_t* scope, const qn__ir_var_t* scalar,
                          const qn_value_t* arg) {
  bool is_float = arg->type == QN_VALUE_FLOAT;
  qn__ir_scalar_t given = {.i = arg->int_value};
  if (is_float) given.f = arg->float_value;
  qn_dtype_t from = is_float ? QN_DTYPE_F64 : QN_DTYPE_I64;
  scope->vars[scalar->id] = known(qn__scalar_cast(from, given, scalar->dtype));
}

bool qn__work_is_symbol(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_VAR && expr->var->kind == QN__VAR_SYMBOL;
}

bool qn__work_bind_symbol(const qn__work_scope_t* scope, const qn__ir_expr_t* expr, int64_t value) {
  if (!qn__work_is_symbol(expr)) return false;
  qn__work_value_t* symbol = &scope->vars[expr->var->id];
  if (symbol->is_known) return false;
  *symbol = known((qn__ir_scalar_t){.i = value});
  return true;
}

bool qn__work_solve(const qn__work_scope_t* scope, const qn__ir_equation_t* equation,
                    int64_t extent, qn__buffer_t* out_why) {
  qn__work_value_t* symbol = &scope->vars[equation->symbol->id];
  *symbol = known((qn__ir_scalar_t){.i = 0});
  qn__work_value_t rest = qn__work_eval(scope, equation->extent);
  *symbol = unknown;
  int64_t value;
  if (rest.is_known && qn__equation_solve(equation, extent, rest.scalar.i, &value)) {
    *symbol = known((qn__ir_scalar_t){.i = value});
    return true;
  }
  if (rest.is_known) {
    qn__equation_explain(equation, extent, rest.scalar.i, out_why);
  } else {
    qn__buffer_format(out_why, "'");
    qn__text_print_extent(equation->extent, out_why);
    qn__buffer_format(out_why, "' divides by zero");
  }
  return false;
}
