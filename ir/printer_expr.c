// SPDX-License-Identifier: Apache-2.0
// ir/printer_expr.c: expressions as text.
//
// The inverse of parser_type.c: an expression of literals alone takes its dtype from its
// surroundings when it is read. `want` is the dtype that the surroundings would give. If the
// expression has that dtype, its literals are printed bare. Otherwise the first literal says its
// dtype (`i32(2)`), and the parser then gives that dtype to those beside it. Not here: statements
// (printer.c).
#include "ir/decimal.h"
#include "ir/lexer.h"
#include "ir/printer.h"

// Levels of binding, of qn__op_level: 0 conditional and reductions, 1 to 9 infix, 10 prefix.
enum { LEVEL_ANY = 0, LEVEL_OR = 1, LEVEL_COMPARE = 3, LEVEL_PREFIX = 10 };

// Returns whether the parser would leave this open: it holds only literals that could take another
// dtype.
static bool is_open(const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
      return expr->dtype != QN_DTYPE_BOOL;
    case QN__EXPR_FLOAT:
      return true;
    case QN__EXPR_COND:
      return is_open(expr->args[1]) && is_open(expr->args[2]);
    case QN__EXPR_REDUCE:
      return is_open(expr->reduce.value);
    case QN__EXPR_OP: {
      const qn__ir_op_info_t* info = qn__op_info(expr->op);
      if (qn__rule_gives_bool(info->rule) || info->rule == QN__RULE_TARGET) return false;
      for (uint32_t i = 0; i < info->arity; i++) {
        if (qn__op_is_common(info->rule, i) && !is_open(expr->args[i])) return false;
      }
      return true;
    }
    case QN__EXPR_VAR:
    case QN__EXPR_LOAD:
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      break;
  }
  return false;
}

static qn_dtype_t default_of(qn_dtype_t dtype) {
  return qn__dtype_is_float(dtype) ? QN_DTYPE_F32 : QN_DTYPE_I64;
}

qn_dtype_t qn__print_default(const qn__ir_expr_t* expr) {
  return is_open(expr) ? default_of(expr->dtype) : QN_DTYPE_NONE;
}

// ------------------------------------------------------------------------------------ leaves

static void print_literal(qn__printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t want) {
  qn__buffer_t* out = p->out;
  if (expr->dtype == QN_DTYPE_BOOL) {
    qn__buffer_cstr(out, expr->int_value ? "true" : "false");
    return;
  }
  bool is_bare = want == expr->dtype;
  if (!is_bare) qn__buffer_format(out, "%s(", qn_dtype_text(expr->dtype));
  if (expr->kind == QN__EXPR_FLOAT) {
    qn__decimal_print(expr->dtype, expr->float_value, out);
  } else if (expr->dtype == QN_DTYPE_U64) {
    qn__buffer_format(out, "%" PRIu64, (uint64_t)expr->int_value);
  } else {
    qn__buffer_format(out, "%" PRId64, expr->int_value);
  }
  if (!is_bare) qn__buffer_char(out, ')');
}

void qn__print_indices(qn__printer_t* p, qn__ir_expr_t* const* items, uint32_t count) {
  qn__buffer_char(p->out, '[');
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) qn__buffer_cstr(p->out, ", ");
    qn__print_expr(p, items[i], QN_DTYPE_I64, LEVEL_ANY);
  }
  qn__buffer_char(p->out, ']');
}

// ------------------------------------------------------------------------------------ operators

// Returns the dtype that bare operands of the common dtype T would get: that of a typed operand,
// else that of the surroundings.
static qn_dtype_t common_want(const qn__ir_expr_t* const* operands, uint32_t count,
                              qn_dtype_t want) {
  for (uint32_t i = 0; i < count; i++) {
    if (!is_open(operands[i])) return operands[i]->dtype;
  }
  return want;
}

static void print_operand(qn__printer_t* p, const qn__ir_expr_t* operand, qn_dtype_t* inout_want,
                          int level) {
  qn__print_expr(p, operand, *inout_want, level);
  // An operand that had to say its dtype decides for those after it.
  *inout_want = operand->dtype;
}

// Prints "thread.x, thread.z".
static void print_axes(qn__buffer_t* out, const qn__ir_expr_t* expr) {
  const char* between = "";
  for (uint32_t axis = 0; axis < 3; axis++) {
    if (!qn__expr_has_axis(expr, axis)) continue;
    qn__buffer_format(out, "%s%s", between, qn__loop_kind_text(QN_LOOP_THREAD_X + axis));
    between = ", ";
  }
}

static void print_op(qn__printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t want) {
  qn__buffer_t* out = p->out;
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  const qn__ir_expr_t* common[3] = {NULL};
  uint32_t count = 0;
  for (uint32_t i = 0; i < info->arity; i++) {
    if (qn__op_is_common(info->rule, i)) common[count++] = expr->args[i];
  }
  if (qn__rule_gives_bool(info->rule) && count != 0) want = default_of(common[0]->dtype);
  want = common_want(common, count, want);
  if (info->syntax == QN__SYNTAX_PREFIX) {
    const qn__ir_expr_t* operand = expr->args[0];
    // "-1" is one literal, "-(1)" an operator and a literal.
    bool is_literal = operand->kind == QN__EXPR_INT || operand->kind == QN__EXPR_FLOAT;
    qn__buffer_cstr(out, info->text);
    if (is_literal) qn__buffer_char(out, '(');
    print_operand(p, operand, &want, LEVEL_PREFIX);
    if (is_literal) qn__buffer_char(out, ')');
    return;
  }
  if (info->syntax == QN__SYNTAX_INFIX) {
    int level = qn__op_level(expr->op);
    print_operand(p, expr->args[0], &want, level == LEVEL_COMPARE ? level + 1 : level);
    qn__buffer_format(out, " %s ", info->text);
    print_operand(p, expr->args[1], &want, level + 1);
    return;
  }
  qn__buffer_format(out, "%s(", info->text);
  for (uint32_t i = 0; i < info->arity; i++) {
    if (i > 0) qn__buffer_cstr(out, ", ");
    if (info->rule == QN__RULE_AXES && i == 1) {
      print_axes(out, expr);
    } else if (qn__op_is_common(info->rule, i)) {
      print_operand(p, expr->args[i], &want, LEVEL_ANY);
    } else {
      qn__print_expr(p, expr->args[i], qn__op_own_dtype(info->rule, i), LEVEL_ANY);
    }
  }
  qn__buffer_char(out, ')');
}

static void print_cond(qn__printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t want) {
  const qn__ir_expr_t* common[] = {expr->args[1], expr->args[2]};
  want = common_want(common, 2, want);
  qn__print_expr(p, expr->args[0], QN_DTYPE_NONE, LEVEL_OR);
  qn__buffer_cstr(p->out, " ? ");
  print_operand(p, expr->args[1], &want, LEVEL_ANY);
  qn__buffer_cstr(p->out, " : ");
  print_operand(p, expr->args[2], &want, LEVEL_ANY);
}

static void print_reduction(qn__printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t want) {
  qn__buffer_t* out = p->out;
  const qn__ir_var_t* var = expr->reduce.reduce_var;
  qn__printed_name_t* outer = p->block;
  p->block = NULL;
  // The bounds do not see the variable, so that its name may be one that they use.
  qn__buffer_format(out, "%s ", qn__reduce_text(expr->reduce.reduce_kind));
  qn__print_declare(p, var, var->name, "i");
  qn__buffer_format(out, "%s in ", qn__print_name(p, var, var->name));
  qn__print_expr(p, expr->reduce.begin, QN_DTYPE_I64, LEVEL_ANY);
  qn__buffer_cstr(out, "..");
  qn__print_expr(p, expr->reduce.end, QN_DTYPE_I64, LEVEL_ANY);
  qn__buffer_cstr(out, " {");
  if (expr->reduce.lane_count && p->arena) {
    qn__buffer_format(out, "  // %" PRIu32 " lanes\n", expr->reduce.lane_count);
  }
  char gap = expr->reduce.lets.first && p->arena ? '\n' : ' ';
  qn__buffer_char(out, gap);
  for (const qn__ir_stmt_t* stmt = expr->reduce.lets.first; stmt; stmt = stmt->next) {
    qn__print_let(p, stmt);
    qn__buffer_char(out, gap);
  }
  qn__print_expr(p, expr->reduce.value, want, LEVEL_ANY);
  qn__buffer_cstr(out, " }");
  qn__print_close_names(p, outer);
}

// ------------------------------------------------------------------------------------ expressions

// Returns how tightly the outermost construct binds.
static int own_level(const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_COND || expr->kind == QN__EXPR_REDUCE) return LEVEL_ANY;
  if (expr->kind == QN__EXPR_OP && qn__op_info(expr->op)->syntax == QN__SYNTAX_INFIX) {
    return qn__op_level(expr->op);
  }
  return LEVEL_PREFIX;
}

static bool is_scalar_param(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_VAR && expr->var->kind == QN__VAR_SCALAR &&
         expr->dtype != QN_DTYPE_I64 && qn__dtype_is_int(expr->dtype);
}

// The parser converts integer parameters in shapes of parameters to i64 by itself: such a
// conversion is written as the bare name, and a parameter that is not converted as one to its own
// dtype.
static void print_signature_cast(qn__printer_t* p, const qn__ir_expr_t* expr) {
  const qn__ir_expr_t* operand = expr->args[0];
  if (operand->kind == QN__EXPR_CAST) {
    const qn__ir_var_t* var = operand->args[0]->var;
    qn__buffer_format(p->out, "%s(i64(%s))", qn_dtype_text(expr->dtype),
                      qn__print_name(p, var, var->name));
    return;
  }
  const char* name = qn__print_name(p, operand->var, operand->var->name);
  if (expr->dtype == QN_DTYPE_I64) {
    qn__buffer_cstr(p->out, name);
  } else {
    qn__buffer_format(p->out, "%s(%s)", qn_dtype_text(expr->dtype), name);
  }
}

void qn__print_expr(qn__printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t want, int level) {
  qn__buffer_t* out = p->out;
  bool has_parens = own_level(expr) < level;
  if (has_parens) qn__buffer_char(out, '(');
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
      print_literal(p, expr, want);
      break;
    case QN__EXPR_VAR: {
      // In the shape of a parameter a bare name of an integer parameter would be converted to i64.
      bool says_dtype = p->is_signature && is_scalar_param(expr);
      if (says_dtype) qn__buffer_format(out, "%s(", qn_dtype_text(expr->dtype));
      qn__buffer_cstr(out, qn__print_name(p, expr->var, expr->var->name));
      if (says_dtype) qn__buffer_char(out, ')');
      break;
    }
    case QN__EXPR_LOAD: {
      const qn__ir_buffer_t* buffer = expr->load.buffer;
      bool is_word = expr->dtype != buffer->dtype;
      bool is_ahead = expr->load.ahead != 0;
      if (is_word) qn__buffer_cstr(out, "word(");
      if (is_ahead) qn__buffer_cstr(out, "ahead(");
      qn__buffer_cstr(out, qn__print_name(p, buffer, buffer->name));
      qn__print_indices(p, expr->load.indices, buffer->rank);
      if (is_ahead) qn__buffer_char(out, ')');
      if (is_word) qn__buffer_char(out, ')');
      break;
    }
    case QN__EXPR_OP:
      print_op(p, expr, want);
      break;
    case QN__EXPR_CAST: {
      const qn__ir_expr_t* operand = expr->args[0];
      bool is_converted = operand->kind == QN__EXPR_CAST && operand->dtype == QN_DTYPE_I64 &&
                          is_scalar_param(operand->args[0]);
      if (p->is_signature && (is_converted || is_scalar_param(operand))) {
        print_signature_cast(p, expr);
        break;
      }
      // Literals inside must say their dtype: the parser would give them the conversion's.
      qn__buffer_format(out, "%s(", qn_dtype_text(expr->dtype));
      qn__print_expr(p, operand, QN_DTYPE_NONE, LEVEL_ANY);
      qn__buffer_char(out, ')');
      break;
    }
    case QN__EXPR_BITCAST:
      qn__buffer_format(out, "bitcast(%s, ", qn_dtype_text(expr->dtype));
      qn__print_expr(p, expr->args[0], qn__print_default(expr->args[0]), LEVEL_ANY);
      qn__buffer_char(out, ')');
      break;
    case QN__EXPR_COND:
      print_cond(p, expr, want);
      break;
    case QN__EXPR_REDUCE:
      print_reduction(p, expr, want);
      break;
  }
  if (has_parens) qn__buffer_char(out, ')');
}
