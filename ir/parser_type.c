// SPDX-License-Identifier: Apache-2.0
// ir/parser_type.c: dtypes of expressions.
//
// 1. A literal is open: it has no dtype yet. An operator whose operands are all open is open too,
//    unless its result is a bool. So all of `2 * (1 + 3)` adapts to its surroundings.
// 2. A typed operand decides the dtype of the open operands beside it. The buffer of a store, an
//    index (i64), a bound (i64) or a conversion decides for the whole expression. Otherwise the
//    expression is f32 if it has a float literal or an operator of floats, and i64 if not.
// 3. An integer literal may become a float if the float represents it exactly. No float literal
//    becomes an integer. The parser reads values from the source text when the dtype is known, so
//    that a decimal is rounded once (parser_literal.c).
// 4. There are no other implicit conversions.
//
// printer_expr.c has the inverse of these rules. Not here: grammar, names.
#include "ir/parser.h"

#include <assert.h>
#include <stdio.h>

qn__parser_operand_t qn__type_poison(void) {
  return (qn__parser_operand_t){NULL, QN__FLEX_POISON, 0};
}

qn__parser_operand_t qn__type_new(qn__parser_t* p, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                                  uint32_t begin) {
  qn__ir_expr_t* expr = qn__expr_new(p->arena, kind, dtype, qn__parser_since(p, begin));
  if (!expr) return qn__type_poison();
  return (qn__parser_operand_t){expr, QN__FLEX_TYPED, 1};
}

static bool is_poison(qn__parser_operand_t operand) {
  return operand.flex == QN__FLEX_POISON || !operand.expr;
}

static bool is_open(qn__parser_operand_t operand) {
  return operand.flex == QN__FLEX_INT || operand.flex == QN__FLEX_FLOAT;
}

// Makes a node of operands that are not poison. Reports trees that are too deep.
static qn__parser_operand_t new_node(qn__parser_t* p, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                                     uint32_t begin, const qn__parser_operand_t* args,
                                     uint32_t count) {
  qn__parser_operand_t node = qn__type_new(p, kind, dtype, begin);
  if (is_poison(node)) return node;
  for (uint32_t i = 0; i < count; i++) {
    assert(!is_poison(args[i]));
    node.expr->args[i] = args[i].expr;
    if (args[i].height >= node.height) node.height = args[i].height + 1;
  }
  if (node.height + p->depth <= QN__NESTING_LIMIT) return node;
  qn__parser_error(p, QN__CODE_TOO_DEEP, node.expr->loc, "use a let for a part of it",
                   "the expression has more than %d levels of operators", QN__NESTING_LIMIT);
  return qn__type_poison();
}

// Returns the help "convert it: i64(x)".
static const char* convert_help(qn__parser_t* p, const qn__ir_expr_t* expr, qn_dtype_t dtype) {
  return qn__parser_help(p, "convert it: %s(%.*s)", qn_dtype_text(dtype),
                         QN_STR_ARG(qn__parser_source_of(p, expr)));
}

// ------------------------------------------------------------------------------------ rules

// Returns whether an operator of this rule makes its untyped literals floats.
static bool is_of_floats(qn__ir_op_rule_t rule) {
  return rule == QN__RULE_FLOAT || rule == QN__RULE_SCALE || rule == QN__RULE_TEST;
}

static bool settle_expr(qn__parser_t* p, qn__ir_expr_t* expr, qn_dtype_t dtype) {
  if (expr->dtype != QN_DTYPE_NONE) return true;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return qn__type_settle_int(p, expr, dtype);
    case QN__EXPR_FLOAT:
      return qn__type_settle_float(p, expr, dtype);
    case QN__EXPR_COND:
      expr->dtype = dtype;
      return settle_expr(p, expr->args[1], dtype) && settle_expr(p, expr->args[2], dtype);
    case QN__EXPR_REDUCE:
      expr->dtype = dtype;
      return settle_expr(p, expr->reduce.value, dtype);
    case QN__EXPR_OP: {
      const qn__ir_op_info_t* info = qn__op_info(expr->op);
      if (!qn__rule_info(info->rule)->accepts(dtype)) {
        qn__parser_error(p, QN__CODE_OPERAND_TYPE, expr->loc,
                         expr->op == QN_OP_DIV ? "'//' divides integers" : NULL,
                         "'%s' takes %s, but %s is needed here", info->text,
                         qn__rule_info(info->rule)->many, qn_dtype_text(dtype));
        return false;
      }
      expr->dtype = dtype;
      for (uint32_t i = 0; i < info->arity; i++) {
        if (qn__op_is_common(info->rule, i) && !settle_expr(p, expr->args[i], dtype)) return false;
      }
      return true;
    }
    case QN__EXPR_VAR:
    case QN__EXPR_LOAD:
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      break;
  }
  return !QN_NEVER(true);
}

bool qn__type_settle(qn__parser_t* p, qn__parser_operand_t* operand, qn_dtype_t dtype) {
  if (is_poison(*operand)) return false;
  if (!is_open(*operand)) return true;
  assert(operand->expr->dtype == QN_DTYPE_NONE);
  if (dtype != QN_DTYPE_NONE && settle_expr(p, operand->expr, dtype)) {
    assert(operand->expr->dtype == dtype);
    operand->flex = QN__FLEX_TYPED;
    return true;
  }
  *operand = qn__type_poison();
  return false;
}

void qn__type_default(qn__parser_t* p, qn__parser_operand_t* operand) {
  if (!is_open(*operand)) return;
  (void)qn__type_settle(p, operand, operand->flex == QN__FLEX_INT ? QN_DTYPE_I64 : QN_DTYPE_F32);
}

// ------------------------------------------------------------------------------------ operators

static void report_difference(qn__parser_t* p, const char* what, qn__parser_operand_t a,
                              qn__parser_operand_t b, qn__ir_loc_t loc) {
  // Suggest the float dtype, else the wider one.
  qn_dtype_t to = a.expr->dtype;
  const qn__ir_expr_t* from = b.expr;
  bool b_is_better = qn__dtype_is_float(b.expr->dtype) != qn__dtype_is_float(a.expr->dtype)
                         ? qn__dtype_is_float(b.expr->dtype)
                         : qn__dtype_bits(b.expr->dtype) > qn__dtype_bits(a.expr->dtype);
  if (to == QN_DTYPE_BOOL || b_is_better) {
    to = b.expr->dtype;
    from = a.expr;
  }
  qn_str_t source = qn__parser_source_of(p, from);
  const char* help =
      to == QN_DTYPE_BOOL || from->dtype == QN_DTYPE_BOOL
          ? NULL
          : qn__parser_help(p, "convert one: %s(%.*s)", qn_dtype_text(to), QN_STR_ARG(source));
  qn__parser_error(p, QN__CODE_OPERANDS_DIFFER, loc, help, "operands of %s are %s and %s", what,
                   qn_dtype_text(a.expr->dtype), qn_dtype_text(b.expr->dtype));
}

// Gives `count` operands one common dtype. `*out_flex` says whether all of them are still open.
// Reports operands of different dtypes and returns false.
static bool unify(qn__parser_t* p, const char* what, qn__parser_operand_t** operands,
                  uint32_t count, qn__ir_loc_t loc, qn__parser_flex_t* out_flex) {
  const qn__parser_operand_t* typed = NULL;
  *out_flex = QN__FLEX_INT;
  for (uint32_t i = 0; i < count; i++) {
    if (operands[i]->flex == QN__FLEX_FLOAT) *out_flex = QN__FLEX_FLOAT;
    if (is_open(*operands[i])) continue;
    if (!typed) {
      typed = operands[i];
    } else if (typed->expr->dtype != operands[i]->expr->dtype) {
      report_difference(p, what, *typed, *operands[i], loc);
      return false;
    }
  }
  if (!typed) return true;
  assert(typed->expr->dtype != QN_DTYPE_NONE);
  *out_flex = QN__FLEX_TYPED;
  for (uint32_t i = 0; i < count; i++) {
    if (!qn__type_settle(p, operands[i], typed->expr->dtype)) return false;
  }
  return true;
}

static void report_operand(qn__parser_t* p, qn_op_t op, const qn__ir_op_info_t* info,
                           qn__parser_operand_t operand) {
  const char* got = operand.flex == QN__FLEX_FLOAT ? "a float" : qn_dtype_text(operand.expr->dtype);
  qn_str_t source = qn__parser_source_of(p, operand.expr);
  const char* help = NULL;
  bool is_int = !is_open(operand) && qn__dtype_is_int(operand.expr->dtype);
  bool is_bool = !is_open(operand) && operand.expr->dtype == QN_DTYPE_BOOL;
  if (!is_open(operand) && qn__dtype_is_stored(operand.expr->dtype)) {
    help = convert_help(p, operand.expr,
                        qn__dtype_is_real(operand.expr->dtype) ? QN_DTYPE_F32 : QN_DTYPE_I32);
  } else if (op == QN_OP_DIV && is_int) {
    help = "'//' divides integers and rounds down";
  } else if (op == QN_OP_FLOORDIV && !is_int && !is_bool) {
    help = "'/' divides floats";
  } else if (info->rule == QN__RULE_LOGIC && is_int) {
    help = qn__parser_help(p, "compare: %.*s != 0", QN_STR_ARG(source));
  } else if ((op == QN_OP_AND || op == QN_OP_OR || op == QN_OP_XOR) && !is_bool) {
    help = "bitcast to an integer of the same size first";
  } else if (is_of_floats(info->rule) && is_int) {
    help = convert_help(p, operand.expr, QN_DTYPE_F32);
  } else if (info->rule == QN__RULE_NUMERIC && is_bool) {
    help = convert_help(p, operand.expr, QN_DTYPE_I32);
  }
  qn__parser_error(p, QN__CODE_OPERAND_TYPE, operand.expr->loc, help, "'%s' takes %s, not %s",
                   info->text, qn__rule_info(info->rule)->many, got);
}

// Gives an open operand the dtype, and reports an operand of another one; of another class if
// `is_any_int`.
static qn__ir_expr_t* as_integer(qn__parser_t* p, qn__parser_operand_t operand, qn_dtype_t dtype,
                                 bool is_any_int, qn__ir_code_t code, const char* what) {
  if (!qn__type_settle(p, &operand, dtype)) return NULL;
  qn_dtype_t given = operand.expr->dtype;
  if (given == dtype || (is_any_int && qn__dtype_is_int(given))) return operand.expr;
  const char* help = given == QN_DTYPE_BOOL ? NULL : convert_help(p, operand.expr, dtype);
  qn__parser_error(p, code, operand.expr->loc, help, "%s is %s, not %s", what, qn_dtype_text(given),
                   is_any_int ? "an integer" : qn_dtype_text(dtype));
  return NULL;
}

qn__parser_operand_t qn__type_op(qn__parser_t* p, qn_op_t op, qn__parser_operand_t* args,
                                 uint32_t count, uint32_t begin, qn__ir_loc_t op_loc) {
  const qn__ir_op_info_t* info = qn__op_info(op);
  if (info->rule == QN__RULE_TARGET) {
    qn__parser_operand_t number = qn__type_new(p, QN__EXPR_OP, QN_DTYPE_I64, begin);
    if (!is_poison(number)) number.expr->op = op;
    return number;
  }
  qn__parser_operand_t* common[3];
  uint32_t common_count = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (is_poison(args[i])) return qn__type_poison();
    if (qn__op_is_common(info->rule, i)) common[common_count++] = &args[i];
  }
  for (uint32_t i = 0; i < common_count; i++) {
    qn__parser_operand_t* arg = common[i];
    bool is_taken = is_open(*arg) ? arg->flex == QN__FLEX_INT ||
                                        qn__rule_info(info->rule)->accepts(QN_DTYPE_F32)
                                  : qn__rule_info(info->rule)->accepts(arg->expr->dtype);
    if (is_open(*arg) && info->rule == QN__RULE_LOGIC) is_taken = false;
    if (!is_taken) {
      if (arg->flex == QN__FLEX_INT) qn__type_default(p, arg);
      if (!is_poison(*arg)) report_operand(p, op, info, *arg);
      return qn__type_poison();
    }
  }
  if (info->rule == QN__RULE_SELECT &&
      !qn__type_as_bool(p, args[0], "the first operand of select")) {
    return qn__type_poison();
  }
  if (info->rule == QN__RULE_LANE && !qn__type_as_i64(p, args[1], "the lane")) {
    return qn__type_poison();
  }
  if (info->rule == QN__RULE_SCALE &&
      !as_integer(p, args[1], QN_DTYPE_I32, false, QN__CODE_OPERAND_TYPE, "the exponent")) {
    return qn__type_poison();
  }
  char what[32];
  (void)snprintf(what, sizeof what, "'%s'", info->text);
  qn__parser_flex_t flex;
  if (!unify(p, what, common, common_count, op_loc, &flex)) return qn__type_poison();
  if (flex == QN__FLEX_INT && is_of_floats(info->rule)) flex = QN__FLEX_FLOAT;
  if (flex != QN__FLEX_TYPED && qn__rule_gives_bool(info->rule)) {
    qn_dtype_t dtype = flex == QN__FLEX_INT ? QN_DTYPE_I64 : QN_DTYPE_F32;
    for (uint32_t i = 0; i < common_count; i++) {
      if (!qn__type_settle(p, common[i], dtype)) return qn__type_poison();
    }
    flex = QN__FLEX_TYPED;
  }
  qn_dtype_t dtype = flex != QN__FLEX_TYPED            ? QN_DTYPE_NONE
                     : qn__rule_gives_bool(info->rule) ? QN_DTYPE_BOOL
                                                       : common[0]->expr->dtype;
  qn__parser_operand_t result = new_node(p, QN__EXPR_OP, dtype, begin, args, count);
  if (is_poison(result)) return result;
  result.flex = flex;
  result.expr->op = op;
  return result;
}

qn__parser_operand_t qn__type_cond(qn__parser_t* p, qn__parser_operand_t* args, uint32_t begin) {
  qn__ir_expr_t* condition = qn__type_as_bool(p, args[0], "the condition before '?'");
  if (!condition || is_poison(args[1]) || is_poison(args[2])) return qn__type_poison();
  qn__parser_operand_t* common[] = {&args[1], &args[2]};
  qn__parser_flex_t flex;
  qn__ir_loc_t loc = qn__parser_since(p, args[1].expr->loc.begin);
  if (!unify(p, "'?:'", common, 2, loc, &flex)) return qn__type_poison();
  qn_dtype_t dtype = flex == QN__FLEX_TYPED ? args[1].expr->dtype : QN_DTYPE_NONE;
  qn__parser_operand_t result = new_node(p, QN__EXPR_COND, dtype, begin, args, 3);
  if (!is_poison(result)) result.flex = flex;
  return result;
}

qn__parser_operand_t qn__type_conversion(qn__parser_t* p, qn_dtype_t dtype,
                                         qn__parser_operand_t operand, uint32_t begin) {
  if (is_poison(operand) || dtype == QN_DTYPE_NONE) return qn__type_poison();
  if (is_open(operand)) {
    bool is_literal = operand.expr->kind == QN__EXPR_INT || operand.expr->kind == QN__EXPR_FLOAT;
    bool same_class =
        operand.flex == QN__FLEX_INT ? qn__dtype_is_int(dtype) : qn__dtype_is_float(dtype);
    if (is_literal || same_class) {
      // Give the dtype to the literals themselves: the result is exact and needs no conversion.
      if (!qn__type_settle(p, &operand, dtype)) return operand;
      if (is_literal) operand.expr->loc = qn__parser_since(p, begin);
      return operand;
    }
    qn__type_default(p, &operand);
    if (is_poison(operand)) return operand;
  }
  return new_node(p, QN__EXPR_CAST, dtype, begin, &operand, 1);
}

qn__parser_operand_t qn__type_bitcast(qn__parser_t* p, qn_dtype_t dtype,
                                      qn__parser_operand_t operand, uint32_t begin) {
  qn__type_default(p, &operand);
  if (is_poison(operand) || dtype == QN_DTYPE_NONE) return qn__type_poison();
  if (qn__dtype_bits(dtype) != qn__dtype_bits(operand.expr->dtype)) {
    qn__parser_error(p, QN__CODE_BITCAST_SIZE, qn__parser_since(p, begin),
                     "bitcast keeps the bits: both dtypes must have the same size",
                     "cannot bitcast %s (%u bits) to %s (%u bits)",
                     qn_dtype_text(operand.expr->dtype), qn__dtype_bits(operand.expr->dtype),
                     qn_dtype_text(dtype), qn__dtype_bits(dtype));
    return qn__type_poison();
  }
  return new_node(p, QN__EXPR_BITCAST, dtype, begin, &operand, 1);
}

// ------------------------------------------------------------------------------------ contexts

qn__ir_expr_t* qn__type_as_bool(qn__parser_t* p, qn__parser_operand_t operand, const char* what) {
  qn__type_default(p, &operand);
  if (is_poison(operand)) return NULL;
  if (operand.expr->dtype == QN_DTYPE_BOOL) return operand.expr;
  qn_str_t source = qn__parser_source_of(p, operand.expr);
  qn__parser_error(p, QN__CODE_NOT_BOOL, operand.expr->loc,
                   qn__parser_help(p, "compare: %.*s != 0", QN_STR_ARG(source)),
                   "%s is %s, not bool", what, qn_dtype_text(operand.expr->dtype));
  return NULL;
}

qn__ir_expr_t* qn__type_as_i64(qn__parser_t* p, qn__parser_operand_t operand, const char* what) {
  return as_integer(p, operand, QN_DTYPE_I64, false, QN__CODE_NOT_I64, what);
}

qn__ir_expr_t* qn__type_as_index(qn__parser_t* p, qn__parser_operand_t operand) {
  return as_integer(p, operand, QN_DTYPE_I64, true, QN__CODE_INDEX_TYPE, "the index");
}

qn__ir_expr_t* qn__type_as_value(qn__parser_t* p, qn__parser_operand_t operand,
                                 const qn__ir_buffer_t* buffer) {
  if (!buffer || buffer->dtype == QN_DTYPE_NONE) return NULL;
  if (!qn__type_settle(p, &operand, buffer->dtype)) return NULL;
  if (operand.expr->dtype == buffer->dtype) return operand.expr;
  qn__parser_error(p, QN__CODE_VALUE_TYPE, operand.expr->loc,
                   convert_help(p, operand.expr, buffer->dtype),
                   "the value is %s, but '%s' holds %s", qn_dtype_text(operand.expr->dtype),
                   buffer->name, qn_dtype_text(buffer->dtype));
  qn__parser_note(p, buffer->loc, "'%s' is declared here", buffer->name);
  return NULL;
}

qn__ir_expr_t* qn__type_as_any(qn__parser_t* p, qn__parser_operand_t operand) {
  qn__type_default(p, &operand);
  return is_poison(operand) ? NULL : operand.expr;
}

qn__ir_expr_t* qn__type_as_written(qn__parser_t* p, qn__parser_operand_t operand, qn_dtype_t dtype,
                                   qn_str_t name, const char* verb) {
  if (dtype == QN_DTYPE_NONE || !qn__type_settle(p, &operand, dtype)) return NULL;
  if (operand.expr->dtype == dtype) return operand.expr;
  qn__parser_error(p, QN__CODE_VALUE_TYPE, operand.expr->loc, convert_help(p, operand.expr, dtype),
                   "the value is %s, but '%.*s' %s %s", qn_dtype_text(operand.expr->dtype),
                   QN_STR_ARG(name), verb, qn_dtype_text(dtype));
  return NULL;
}

qn__ir_expr_t* qn__type_as_named(qn__parser_t* p, qn__parser_operand_t operand,
                                 const qn__parser_value_name_t* name) {
  if (name->dtype == QN_DTYPE_NONE) return qn__type_as_any(p, operand);
  return qn__type_as_written(p, operand, name->dtype, qn__lexer_slice(p->text, name->loc),
                             "is declared");
}

bool qn__type_check_name(qn__parser_t* p, const qn__parser_value_name_t* name, qn_dtype_t dtype) {
  if (name->dtype == QN_DTYPE_NONE || dtype == QN_DTYPE_NONE || name->dtype == dtype) return true;
  qn__parser_error(p, QN__CODE_VALUE_TYPE, name->dtype_loc,
                   qn__parser_help(p, "write %s, or no dtype", qn_dtype_text(dtype)),
                   "'%.*s' is %s, not %s", QN_STR_ARG(qn__lexer_slice(p->text, name->loc)),
                   qn_dtype_text(dtype), qn_dtype_text(name->dtype));
  return false;
}
