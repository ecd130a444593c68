// SPDX-License-Identifier: Apache-2.0
// ir/verify_expr.c: checks expressions: operands, dtypes by the operator's rule, and literals.
//
// Not here: statements and scopes (verify_stmt.c), exchanges under divergent control flow
// (verify_uniform.c).
#include <math.h>
#include <stdio.h>

#include "ir/arith.h"
#include "ir/verifier.h"

// ------------------------------------------------------------------------------------ literals

bool qn__verify_literal(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_INT && qn_dtype_size_bytes(expr->dtype) > 0 &&
      !qn__dtype_is_real(expr->dtype)) {
    if (qn__wrap_int(expr->dtype, expr->int_value) == expr->int_value) return true;
    return qn__verify_error(v, QN__VERIFY_LITERAL, expr->loc, NULL, "%" PRId64 " is outside of %s",
                            expr->int_value, qn_dtype_text(expr->dtype));
  }
  if (expr->kind == QN__EXPR_FLOAT && qn__dtype_is_real(expr->dtype)) {
    double rounded = qn__round_float(expr->dtype, expr->float_value);
    bool is_nan = isnan(expr->float_value) && qn__float_has_nan(expr->dtype);
    if (is_nan || rounded == expr->float_value) return true;
    return qn__verify_error(v, QN__VERIFY_LITERAL, expr->loc, NULL, "%.17g is not a value of %s",
                            expr->float_value, qn_dtype_text(expr->dtype));
  }
  return qn__verify_error(v, QN__VERIFY_LITERAL, expr->loc, NULL, "a literal of dtype %s",
                          qn_dtype_text(expr->dtype));
}

// ------------------------------------------------------------------------------------ operators

// Checks that the block has the axes of a reduction.
static bool verify_axes(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  const char* text = qn__op_info(expr->op)->text;
  const qn__ir_expr_t* axes = expr->args[1];
  if (axes->kind != QN__EXPR_INT || axes->int_value < QN_AXIS_X ||
      axes->int_value > (QN_AXIS_X | QN_AXIS_Y | QN_AXIS_Z)) {
    return qn__verify_error(v, QN__VERIFY_MALFORMED, axes->loc, NULL,
                            "the axes of '%s' are not a literal of qn_axis_t", text);
  }
  for (uint32_t axis = 0; axis < 3; axis++) {
    qn_loop_kind_t kind = (qn_loop_kind_t)(QN_LOOP_THREAD_X + axis);
    if (!qn__expr_has_axis(expr, axis) || qn__verify_has_loop(v, kind) || v->is_lowered) continue;
    return qn__verify_error(
        v, QN__VERIFY_EXCHANGE, expr->loc, "leave the axis out, or put it into such a loop",
        "'%s' is over '%s', but there is no such loop around it", text, qn__loop_kind_text(kind));
  }
  return true;
}

static bool verify_op(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (!info) {
    return qn__verify_error(v, QN__VERIFY_MALFORMED, expr->loc, NULL, "operator %d does not exist",
                            (int)expr->op);
  }
  if (!qn__verify_exprs(v, expr->args, info->arity)) return false;
  qn_dtype_t dtypes[3] = {QN_DTYPE_NONE, QN_DTYPE_NONE, QN_DTYPE_NONE};
  for (uint32_t i = 0; i < info->arity; i++) dtypes[i] = expr->args[i]->dtype;
  uint32_t index;
  const char* expected;
  qn_dtype_t result = qn__op_result(expr->op, dtypes, &index, &expected);
  if (result == QN_DTYPE_NONE) {
    bool is_stored = qn__dtype_is_stored(dtypes[index]);
    return qn__verify_error(v, QN__VERIFY_OPERAND, expr->args[index]->loc,
                            is_stored ? "convert it, as in f32(...) or i32(...)" : NULL,
                            "operand %" PRIu32 " of '%s' is %s, expected %s", index + 1, info->text,
                            qn_dtype_text(dtypes[index]), expected);
  }
  if (qn__expr_is_exchange(expr)) {
    if (v->lane_depth == 0) {
      return qn__verify_error(
          v, QN__VERIFY_EXCHANGE, expr->loc, "put it into a thread.x, thread.y or thread.z loop",
          "'%s' exchanges values among threads, but there is no thread loop around it", info->text);
    }
    if (info->rule == QN__RULE_AXES && !verify_axes(v, expr)) return false;
    qn__verify_sync(v, expr->loc);
  }
  if (expr->dtype == result) return true;
  return qn__verify_error(v, QN__VERIFY_MALFORMED, expr->loc, NULL,
                          "the result of '%s' is typed %s", info->text, qn_dtype_text(expr->dtype));
}

// ------------------------------------------------------------------------------------ the rest

static bool verify_conversion(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  if (!qn__verify_expr(v, expr->args[0])) return false;
  qn_dtype_t from = expr->args[0]->dtype;
  bool is_possible = qn_dtype_size_bytes(expr->dtype) > 0 && qn_dtype_size_bytes(from) > 0;
  if (is_possible && expr->kind == QN__EXPR_BITCAST) {
    is_possible = qn__dtype_bits(expr->dtype) == qn__dtype_bits(from) &&
                  expr->dtype != QN_DTYPE_BOOL && from != QN_DTYPE_BOOL;
  }
  if (is_possible) return true;
  return qn__verify_error(v, QN__VERIFY_CONVERSION, expr->loc, NULL, "no %s from %s to %s",
                          expr->kind == QN__EXPR_CAST ? "conversion" : "bitcast",
                          qn_dtype_text(from), qn_dtype_text(expr->dtype));
}

static bool verify_cond(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  if (!qn__verify_condition(v, expr->args[0], "the condition of '?'") ||
      !qn__verify_exprs(v, expr->args + 1, 2)) {
    return false;
  }
  if (expr->args[1]->dtype == expr->args[2]->dtype && expr->dtype == expr->args[1]->dtype) {
    return true;
  }
  return qn__verify_error(v, QN__VERIFY_OPERAND, expr->loc, NULL,
                          "the choices of '?' are %s and %s", qn_dtype_text(expr->args[1]->dtype),
                          qn_dtype_text(expr->args[2]->dtype));
}

static bool verify_reduce(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  const char* text = qn__reduce_text(expr->reduce.reduce_kind);
  const qn__ir_var_t* var = expr->reduce.reduce_var;
  if (!text || !var || var->kind != QN__VAR_REDUCE || var->dtype != QN_DTYPE_I64) {
    return qn__verify_error(v, QN__VERIFY_MALFORMED, expr->loc, NULL, "a reduction lacks a part");
  }
  if (!qn__verify_i64(v, expr->reduce.begin, "the begin of a reduction") ||
      !qn__verify_i64(v, expr->reduce.end, "the end of a reduction") ||
      !qn__verify_enter(v, expr->loc)) {
    return false;
  }
  uint32_t errors = v->error_count;
  qn__verify_decl_t* outer = qn__verify_open_scope(v);
  (void)qn__verify_declare(v, var, var->name, var->loc);
  qn__verify_stmts(v, &expr->reduce.lets, true);
  qn__verify_leave(v);
  bool is_valid = qn__verify_expr(v, expr->reduce.value) && v->error_count == errors;
  qn__verify_close_scope(v, outer);
  if (!is_valid) return false;
  qn_dtype_t dtype = expr->reduce.value->dtype;
  if ((qn__dtype_is_int(dtype) || qn__dtype_is_float(dtype)) && dtype == expr->dtype) return true;
  return qn__verify_error(v, QN__VERIFY_OPERAND, expr->reduce.value->loc,
                          dtype == QN_DTYPE_BOOL       ? "convert it, as in i32(...)"
                          : qn__dtype_is_stored(dtype) ? "convert it, as in f32(...) or i32(...)"
                                                       : NULL,
                          "'%s' reduces %s, expected an integer or a float", text,
                          qn_dtype_text(dtype));
}

static bool verify_kind(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
      return qn__verify_literal(v, expr);
    case QN__EXPR_VAR:
      if (!expr->var) break;
      if (!qn__verify_lookup(v, expr->var, "variable", expr->var->name, expr->loc,
                             expr->var->loc)) {
        return false;
      }
      if (expr->var->is_fixed) {
        return qn__verify_error(v, QN__VERIFY_MALFORMED, expr->loc, NULL,
                                "the variable '%s' is used, where its value %" PRId64 " belongs",
                                expr->var->name, expr->var->fixed_value);
      }
      if (expr->dtype != expr->var->dtype) break;
      return true;
    case QN__EXPR_LOAD: {
      const qn__ir_buffer_t* buffer = expr->load.buffer;
      if (!buffer) break;
      if (!qn__verify_lookup(v, buffer, "buffer", buffer->name, expr->loc, buffer->loc)) {
        return false;
      }
      if (expr->dtype != buffer->dtype && !qn__load_is_word(expr)) break;
      if (buffer->rank > 0 && !expr->load.indices) break;
      return qn__verify_indices(v, expr->load.indices, buffer);
    }
    case QN__EXPR_OP:
      return verify_op(v, expr);
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return verify_conversion(v, expr);
    case QN__EXPR_COND:
      return verify_cond(v, expr);
    case QN__EXPR_REDUCE:
      return verify_reduce(v, expr);
  }
  return qn__verify_error(v, QN__VERIFY_MALFORMED, expr->loc, NULL,
                          "an expression of kind %d lacks a part", (int)expr->kind);
}

bool qn__verify_expr(qn__verifier_t* v, const qn__ir_expr_t* expr) {
  if (!expr) {
    return qn__verify_error(v, QN__VERIFY_MALFORMED, (qn__ir_loc_t){0, 0}, NULL,
                            "an expression is missing");
  }
  if (!qn__verify_visit(v, expr, expr->loc) || !qn__verify_enter(v, expr->loc)) return false;
  bool is_valid = verify_kind(v, expr);
  qn__verify_leave(v);
  return is_valid;
}

// Checks all expressions even after an error, so that each error gets a message.
bool qn__verify_exprs(qn__verifier_t* v, qn__ir_expr_t* const* exprs, size_t count) {
  bool is_valid = true;
  for (size_t i = 0; i < count; i++) is_valid &= qn__verify_expr(v, exprs[i]);
  return is_valid;
}

bool qn__verify_condition(qn__verifier_t* v, const qn__ir_expr_t* expr, const char* what) {
  if (!qn__verify_expr(v, expr)) return false;
  if (expr->dtype == QN_DTYPE_BOOL) return true;
  return qn__verify_error(v, QN__VERIFY_CONDITION, expr->loc, "compare it, as in x != 0",
                          "%s is %s, expected bool", what, qn_dtype_text(expr->dtype));
}

bool qn__verify_i64(qn__verifier_t* v, const qn__ir_expr_t* expr, const char* what) {
  if (!qn__verify_expr(v, expr)) return false;
  if (expr->dtype == QN_DTYPE_I64) return true;
  return qn__verify_error(v, QN__VERIFY_INDEX, expr->loc, "convert it, as in i64(x)",
                          "%s is %s, expected i64", what, qn_dtype_text(expr->dtype));
}

bool qn__verify_indices(qn__verifier_t* v, qn__ir_expr_t* const* indices,
                        const qn__ir_buffer_t* buffer) {
  if (!qn__verify_exprs(v, indices, buffer->rank)) return false;
  bool is_valid = true;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    if (qn__dtype_is_int(indices[i]->dtype)) continue;
    is_valid = false;
    (void)qn__verify_error(v, QN__VERIFY_INDEX, indices[i]->loc, NULL,
                           "index %" PRIu32 " of '%s' is %s, expected an integer", i, buffer->name,
                           qn_dtype_text(indices[i]->dtype));
  }
  return is_valid;
}

// Returns the inner one of two loops around the current place.
static qn__verify_place_t* inner_loop(const qn__verifier_t* v, qn__verify_place_t* a,
                                      qn__verify_place_t* b) {
  if (!a || !b || a == b) return a ? a : b;
  qn__verify_place_t* place = v->place;
  while (place != a && place != b) place = place->outer;
  return place;
}

qn__verify_place_t* qn__verify_loop_of(const qn__verifier_t* v, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_VAR) {
    const qn__verify_decl_t* decl = qn__ptrmap_get(&v->decls, expr->var);
    return decl ? decl->loop : NULL;
  }
  qn__verify_place_t* loop = NULL;
  qn__ir_operands_t operands = qn__expr_operands(expr);
  for (size_t i = 0; i < operands.count; i++) {
    loop = inner_loop(v, loop, qn__verify_loop_of(v, operands.items[i]));
  }
  return loop;
}

bool qn__verify_is_host(const qn__verifier_t* v, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_VAR) {
    const qn__verify_decl_t* decl = qn__ptrmap_get(&v->decls, expr->var);
    return decl && decl->is_host;
  }
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return false;
  if (qn__expr_is_exchange(expr)) return false;
  qn__ir_operands_t operands = qn__expr_operands(expr);
  for (size_t i = 0; i < operands.count; i++) {
    if (!qn__verify_is_host(v, operands.items[i])) return false;
  }
  return true;
}
