// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_expr.c: expressions of the kernel printer: literals, variables, choices,
// comparisons, reductions.
//
// An expression becomes one text that evaluates each part once. Loops of reductions and checks of
// checked builds cannot be part of an expression, so they become lines before it. That is right
// because expressions have no side effects. If an operand of `? :`, `&&` or `||` needs lines, the
// operator becomes an `if`, so that the lines run only if the operand is evaluated.
//
// Not here: operators on integers (print_int.c) and floats (print_float.c), conversions
// (print_cast.c), accesses (print_index.c).
#include <assert.h>

#include "jit/gpu/print_inner.h"

// ---- expressions that need lines

static bool has_none(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  const bool* is_checked = walker->self;
  if (expr->kind == QN__EXPR_REDUCE) return false;
  bool can_fail =
      expr->kind == QN__EXPR_LOAD || (expr->kind == QN__EXPR_OP && qn__op_is_division(expr->op));
  return !(can_fail && *is_checked);
}

bool qn__kprint_needs_lines(const qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  bool is_checked = p->program->is_checked;
  qn__ir_walker_t walker = {NULL, has_none, &is_checked};
  return !qn__walk_expr(&walker, qn__gpu_walked_expr(expr));
}

// ---- widths of i64

const char* qn__kprint_widen(qn__gpu_printer_t* p, const char* text) {
  if (!p->dialect->is_glsl) return qn__kprint_text(p, "qn_i64(%s)", text);
  return qn__kprint_text(p, "%s(%s)", qn__kprint_use(p, "qn_widen"), qn__kprint_bare(p, text));
}

const char* qn__kprint_adapt(qn__gpu_printer_t* p, const char* text, bool is_narrow,
                             bool to_narrow) {
  if (is_narrow == to_narrow) return text;
  return to_narrow ? qn__kprint_text(p, "int(%s)", text) : qn__kprint_widen(p, text);
}

const char* qn__kprint_i64(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, bool is_narrow) {
  if (expr->kind == QN__EXPR_INT) {
    return qn__kprint_int(p, QN_DTYPE_I64, is_narrow, expr->int_value);
  }
  assert(!qn__dtype_is_float(expr->dtype));
  const char* text = qn__kprint_expr(p, expr);
  if (expr->dtype == QN_DTYPE_I64) {
    return qn__kprint_adapt(p, text, qn__kprint_is_narrow(p, expr), is_narrow);
  }
  if (qn__gpu_compute_dtype(expr->dtype) == QN_DTYPE_I32)
    return is_narrow ? text : qn__kprint_widen(p, text);
  return qn__kprint_text(p, is_narrow ? "int(%s)" : "qn_i64(%s)", text);
}

// ---- choices

const char* qn__kprint_value(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, bool is_narrow) {
  if (expr->dtype == QN_DTYPE_I64) return qn__kprint_i64(p, expr, is_narrow);
  return qn__kprint_expr(p, expr);
}

// Prints `c ? a : b` or select(c, a, b), which evaluates both values.
static const char* print_choice(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  bool is_narrow = qn__kprint_is_narrow(p, expr);
  const char* condition = qn__kprint_expr(p, expr->args[0]);
  bool needs_if = expr->kind == QN__EXPR_COND && (qn__kprint_needs_lines(p, expr->args[1]) ||
                                                  qn__kprint_needs_lines(p, expr->args[2]));
  if (!needs_if) {
    const char* a = qn__kprint_value(p, expr->args[1], is_narrow);
    const char* b = qn__kprint_value(p, expr->args[2], is_narrow);
    return qn__kprint_text(p, "(%s ? %s : %s)", condition, a, b);
  }
  const char* name = qn__kprint_temp(p);
  qn__kprint_line(p, "%s %s;", qn__kprint_type(expr->dtype, is_narrow), name);
  qn__kprint_open(p, "if (%s)", qn__kprint_bare(p, condition));
  qn__kprint_line(p, "%s = %s;", name, qn__kprint_value(p, expr->args[1], is_narrow));
  qn__kprint_close(p);
  qn__kprint_open(p, "else");
  qn__kprint_line(p, "%s = %s;", name, qn__kprint_value(p, expr->args[2], is_narrow));
  qn__kprint_close(p);
  return name;
}

static const char* print_logic(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  const char* a = qn__kprint_expr(p, expr->args[0]);
  if (expr->op == QN_OP_LOGIC_NOT) return qn__kprint_text(p, "(!%s)", a);
  bool is_and = expr->op == QN_OP_LOGIC_AND;
  if (!qn__kprint_needs_lines(p, expr->args[1])) {
    const char* b = qn__kprint_expr(p, expr->args[1]);
    return qn__kprint_text(p, "(%s %s %s)", a, qn__op_info(expr->op)->text, b);
  }
  const char* name = qn__kprint_temp(p);
  qn__kprint_line(p, "bool %s = %s;", name, a);
  qn__kprint_open(p, is_and ? "if (%s)" : "if (!%s)", name);
  qn__kprint_line(p, "%s = %s;", name, qn__kprint_expr(p, expr->args[1]));
  qn__kprint_close(p);
  return name;
}

static const char* print_compare(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  const char* sign = qn__op_info(expr->op)->text;
  const qn__ir_expr_t* left = expr->args[0];
  const qn__ir_expr_t* right = expr->args[1];
  assert(left->dtype == right->dtype);
  if (left->dtype == QN_DTYPE_I64) {
    bool is_narrow = qn__kprint_is_narrow(p, left) && qn__kprint_is_narrow(p, right);
    const char* a = qn__kprint_i64(p, left, is_narrow);
    return qn__kprint_text(p, "(%s %s %s)", a, sign, qn__kprint_i64(p, right, is_narrow));
  }
  const char* a = qn__kprint_expr(p, left);
  const char* b = qn__kprint_expr(p, right);
  if (left->dtype == QN_DTYPE_BOOL && expr->op != QN_OP_EQ && expr->op != QN_OP_NE) {
    return qn__kprint_text(p, "(uint(%s) %s uint(%s))", a, sign, b);
  }
  return qn__kprint_text(p, "(%s %s %s)", a, sign, b);
}

// ---- operators

static const char* print_bool_op(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  const char* a = qn__kprint_expr(p, expr->args[0]);
  if (expr->op == QN_OP_NOT) return qn__kprint_text(p, "(!%s)", a);
  const char* b = qn__kprint_expr(p, expr->args[1]);
  // The operator evaluates both operands. `&&` may skip one, which has no visible effect: checks
  // are lines before the text.
  const char* sign = expr->op == QN_OP_AND ? "&&" : expr->op == QN_OP_OR ? "||" : "!=";
  return qn__kprint_text(p, "(%s %s %s)", a, sign, b);
}

static bool can_contract(const qn__gpu_printer_t* p, qn_dtype_t dtype) {
  return p->kernel->function->is_fast && p->options->has_native_fma &&
         (dtype == QN_DTYPE_F32 || dtype == QN_DTYPE_F64);
}

static bool is_product(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_OP && expr->op == QN_OP_MUL;
}

static const char* fused(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* a, const char* b,
                         const char* c) {
  const char* helper = qn__kprint_use(p, dtype == QN_DTYPE_F64 ? "qn_fma_f64" : "qn_fma_f32");
  return qn__kprint_text(p, "%s(%s, %s, %s)", helper, a, b, c);
}

// Prints a sum with a product, such as a * b + c, as a fused multiply-add in a `fast` function.
// Returns NULL for other expressions.
static const char* print_contracted(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  if (!can_contract(p, expr->dtype)) return NULL;
  if (expr->op != QN_OP_ADD && expr->op != QN_OP_SUB) return NULL;
  bool is_left = is_product(expr->args[0]);
  if (!is_left && !is_product(expr->args[1])) return NULL;
  const qn__ir_expr_t* product = expr->args[is_left ? 0 : 1];
  assert(is_product(product));
  const char* a = qn__kprint_expr(p, product->args[0]);
  const char* b = qn__kprint_expr(p, product->args[1]);
  const char* c = qn__kprint_expr(p, expr->args[is_left ? 1 : 0]);
  if (expr->op == QN_OP_SUB && is_left) c = qn__kprint_text(p, "(-%s)", c);
  if (expr->op == QN_OP_SUB && !is_left) a = qn__kprint_text(p, "(-%s)", a);
  return fused(p, expr->dtype, a, b, c);
}

static const char* print_op(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  switch (info->rule) {
    case QN__RULE_COMPARE:
      return print_compare(p, expr);
    case QN__RULE_LOGIC:
      return print_logic(p, expr);
    case QN__RULE_SELECT:
      return print_choice(p, expr);
    case QN__RULE_LANE:
    case QN__RULE_GROUP:
    case QN__RULE_AXES:
      qn__kprint_fail_status(p, qn_status_make(QN_STATUS_INTERNAL,
                                               "'%s' is not the whole value of a let", info->text));
      return "0";
    default:
      break;
  }
  qn_dtype_t dtype = expr->args[0]->dtype;
  if (dtype == QN_DTYPE_BOOL) return print_bool_op(p, expr);
  if (!qn__dtype_is_float(dtype)) return qn__kprint_int_op(p, expr);
  const char* contracted = print_contracted(p, expr);
  if (contracted) return contracted;
  const char* args[3] = {NULL, NULL, NULL};
  for (uint32_t i = 0; i < info->arity; ++i) args[i] = qn__kprint_expr(p, expr->args[i]);
  return qn__kprint_float_op(p, expr->op, dtype, args);
}

// ---- reductions

const char* qn__kprint_step(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, bool is_narrow,
                            const char* a, const char* b) {
  if (qn__dtype_is_float(dtype)) {
    return qn__kprint_float_op(p, op, dtype, (const char*[]){a, b, NULL});
  }
  return qn__kprint_wrap(p, dtype, qn__kprint_int_binary(p, op, dtype, is_narrow, a, b));
}

qn_op_t qn__kprint_group_step(qn_op_t op) {
  assert(qn__op_info(op)->rule == QN__RULE_GROUP);
  if (op == QN_OP_WARP_MIN || op == QN_OP_BLOCK_MIN) return QN_OP_MIN;
  return op == QN_OP_WARP_MAX || op == QN_OP_BLOCK_MAX ? QN_OP_MAX : QN_OP_ADD;
}

bool qn__kprint_is_block_op(qn_op_t op) {
  return op == QN_OP_BLOCK_SUM || op == QN_OP_BLOCK_MIN || op == QN_OP_BLOCK_MAX;
}

static const qn_op_t reduce_ops[] = {
    [QN_REDUCE_SUM] = QN_OP_ADD,
    [QN_REDUCE_PROD] = QN_OP_MUL,
    [QN_REDUCE_MIN] = QN_OP_MIN,
    [QN_REDUCE_MAX] = QN_OP_MAX,
};

static const char* print_reduce(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  qn_dtype_t dtype = expr->dtype;
  const qn__ir_var_t* var = expr->reduce.reduce_var;
  bool is_ring =
      expr->reduce.reduce_kind == QN_REDUCE_SUM || expr->reduce.reduce_kind == QN_REDUCE_PROD;
  // The neutral elements of min and max have all 64 bits.
  bool is_result_narrow = qn__kprint_is_narrow(p, expr);
  bool is_narrow = is_result_narrow && (is_ring || !p->options->has_int64);
  qn__ir_scalar_t neutral = qn__reduce_neutral(expr->reduce.reduce_kind, dtype);
  if (is_narrow && !is_ring) neutral.i = neutral.i > 0 ? INT32_MAX : INT32_MIN;
  const char* first = qn__kprint_literal(p, dtype, is_narrow, neutral);
  const char* sum = qn__kprint_temp(p);
  qn__kprint_line(p, "%s %s = %s;", qn__kprint_type(dtype, is_narrow), sum, first);
  bool is_var_narrow = qn__kprint_is_narrow_var(p, var);
  const char* type = qn__kprint_type(QN_DTYPE_I64, is_var_narrow);
  const char* begin = qn__kprint_i64(p, expr->reduce.begin, is_var_narrow);
  const char* end = qn__kprint_name(p, type, qn__kprint_i64(p, expr->reduce.end, is_var_narrow));
  const char* name = qn__kprint_var(p, var);
  qn__kprint_note_var(p, var, expr->reduce.begin);
  bool is_wide = qn__kprint_wide_reduce(p, expr);
  if (is_wide && p->dialect->unroll) qn__kprint_line(p, "%s", p->dialect->unroll);
  qn__kprint_open(p, "for (%s %s = %s; %s < %s; ++%s)", type, name, begin, name, end, name);
  qn__kprint_block(p, &expr->reduce.lets);
  const qn__ir_expr_t* value = expr->reduce.value;
  qn_op_t op = reduce_ops[expr->reduce.reduce_kind];
  const char* step;
  if (op == QN_OP_ADD && can_contract(p, dtype) && is_product(value)) {
    const char* a = qn__kprint_expr(p, value->args[0]);
    step = fused(p, dtype, a, qn__kprint_expr(p, value->args[1]), sum);
  } else {
    step = qn__kprint_step(p, op, dtype, is_narrow, sum, qn__kprint_value(p, value, is_narrow));
  }
  qn__kprint_line(p, "%s = %s;", sum, qn__kprint_bare(p, step));
  qn__kprint_close(p);
  if (is_wide) qn__kprint_wide_end(p);
  return dtype == QN_DTYPE_I64 ? qn__kprint_adapt(p, sum, is_narrow, is_result_narrow) : sum;
}

// ---- all

const char* qn__kprint_expr(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  if (!qn__kprint_ok(p)) return "0";
  bool is_narrow = qn__kprint_is_narrow(p, expr);
  switch (expr->kind) {
    case QN__EXPR_INT:
      return qn__kprint_int(p, expr->dtype, is_narrow, expr->int_value);
    case QN__EXPR_FLOAT:
      return qn__kprint_literal(p, expr->dtype, false, (qn__ir_scalar_t){.f = expr->float_value});
    case QN__EXPR_VAR: {
      const char* name = qn__kprint_var(p, expr->var);
      if (expr->dtype != QN_DTYPE_I64) return name;
      return qn__kprint_adapt(p, name, qn__kprint_is_narrow_var(p, expr->var), is_narrow);
    }
    case QN__EXPR_LOAD: {
      uint32_t outer = p->place;
      p->place = expr->loc.begin;
      const char* value = qn__kprint_load(p, expr->load.buffer, expr->load.indices);
      p->place = outer;
      return is_narrow ? qn__kprint_adapt(p, value, false, true) : value;
    }
    case QN__EXPR_OP:
      return print_op(p, expr);
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST: {
      const qn__ir_expr_t* from = expr->args[0];
      const char* value = qn__kprint_expr(p, from);
      bool is_from_narrow = qn__kprint_is_narrow(p, from);
      return (expr->kind == QN__EXPR_CAST ? qn__kprint_cast : qn__kprint_bitcast)(
          p, from->dtype, is_from_narrow, expr->dtype, is_narrow, value);
    }
    case QN__EXPR_COND:
      return print_choice(p, expr);
    case QN__EXPR_REDUCE:
      return print_reduce(p, expr);
  }
  (void)QN_NEVER(true);
  return "0";
}
