// SPDX-License-Identifier: Apache-2.0
// jit/gpu/prelude_math.c: prints the functions of ir/math in the common subset of CUDA C and GLSL.
//
// A statement becomes a variable, or a part of another expression if that is its only use.
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "jit/gpu/prelude.h"

typedef struct writer {
  const qn__math_function_t* function;
  qn__buffer_t* out;
  const qn__ir_expr_t** values;  // by id of the variable; NULL: a parameter
  uint32_t* uses;                // by id: number of reads
} writer_t;

static bool is_repeat(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_OP && (uint32_t)expr->op >= QN__MATH_OP_REPEAT;
}

// ------------------------------------------------------------------------------------ operands

static void write_float(qn_dtype_t dtype, double value, qn__buffer_t* out) {
  bool is_f64 = dtype == QN_DTYPE_F64;
  if (isfinite(value)) {
    qn__buffer_format(out, is_f64 ? "QN_LIT_f64(%.17g)" : "QN_LIT_f32(%.9g)", value);
    return;
  }
  uint32_t high = isnan(value) ? 0x7FF80000u : value > 0 ? 0x7FF00000u : 0xFFF00000u;
  if (is_f64) {
    qn__buffer_format(out, "QN_F64_JOIN(0x%xu, 0u)", high);
  } else {
    uint32_t bits = isnan(value) ? 0x7FC00000u : value > 0 ? 0x7F800000u : 0xFF800000u;
    qn__buffer_format(out, "QN_F32_FROM(0x%xu)", bits);
  }
}

static void write_int(qn_dtype_t dtype, int64_t value, qn__buffer_t* out) {
  uint64_t bits = (uint64_t)value;
  if (dtype == QN_DTYPE_U64) {
    qn__buffer_format(out, "QN_U64(0x%xu, 0x%xu)", (uint32_t)(bits >> 32), (uint32_t)bits);
  } else if (dtype == QN_DTYPE_U32) {
    qn__buffer_format(out, "0x%xu", (uint32_t)bits);
  } else {
    qn__buffer_format(out, dtype == QN_DTYPE_I64 ? "qn_i64(%d)" : "%d", (int)value);
  }
}

static void write_value(const writer_t* w, const qn__ir_expr_t* expr);

static void write_operand(const writer_t* w, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_INT) {
    write_int(expr->dtype, expr->int_value, w->out);
  } else if (expr->kind == QN__EXPR_FLOAT) {
    write_float(expr->dtype, expr->float_value, w->out);
  } else if (!w->values[expr->var->id]) {
    assert(expr->var->id < 3);  // the parameters come first
    qn__buffer_char(w->out, "xyz"[expr->var->id]);
  } else if (w->uses[expr->var->id] == 1) {
    write_value(w, w->values[expr->var->id]);
  } else {
    qn__buffer_format(w->out, "t%u", expr->var->id);
  }
}

// ------------------------------------------------------------------------------------ operators

// Writes "name(a, b, c)" with the operands of the expression.
static void write_call(const writer_t* w, const char* name, const qn__ir_expr_t* expr) {
  qn__buffer_format(w->out, "%s(", name);
  for (uint32_t i = 0; i < 3 && expr->args[i]; i++) {
    if (i > 0) qn__buffer_cstr(w->out, ", ");
    write_operand(w, expr->args[i]);
  }
  qn__buffer_char(w->out, ')');
}

static void write_infix(const writer_t* w, const char* sign, const qn__ir_expr_t* expr) {
  qn__buffer_char(w->out, '(');
  write_operand(w, expr->args[0]);
  qn__buffer_format(w->out, " %s ", sign);
  // Not every compiler accepts a shift count of 64 bits.
  bool is_shift = expr->op == QN_OP_SHL || expr->op == QN_OP_SHR;
  if (is_shift && expr->args[1]->kind == QN__EXPR_INT) {
    qn__buffer_format(w->out, "%d", (int)expr->args[1]->int_value);
  } else if (is_shift) {
    qn__buffer_cstr(w->out, "uint(");
    write_operand(w, expr->args[1]);
    qn__buffer_char(w->out, ')');
  } else {
    write_operand(w, expr->args[1]);
  }
  qn__buffer_char(w->out, ')');
}

// Returns the language's infix operator; NULL: there is none that is right on every device.
static const char* infix_of(uint32_t op, qn_dtype_t dtype) {
  if (op == QN__MATH_OP_RATIO) return "/";
  const qn__ir_op_info_t* info = qn__op_info((qn_op_t)op);
  bool is_infix = info && info->syntax == QN__SYNTAX_INFIX && op != QN_OP_DIV &&
                  !qn__op_is_division((qn_op_t)op);
  if (!is_infix) return NULL;
  if (dtype != QN_DTYPE_BOOL) return info->text;
  return op == QN_OP_AND ? "&&" : op == QN_OP_OR ? "||" : op == QN_OP_XOR ? "!=" : info->text;
}

static void write_choice(const writer_t* w, const qn__ir_expr_t* expr) {
  qn__buffer_char(w->out, '(');
  write_operand(w, expr->args[0]);
  qn__buffer_cstr(w->out, " ? ");
  if (expr->kind == QN__EXPR_COND) {
    write_value(w, expr->args[1]);
  } else {
    write_operand(w, expr->args[1]);
  }
  qn__buffer_cstr(w->out, " : ");
  write_operand(w, expr->args[2]);
  qn__buffer_char(w->out, ')');
}

// Operators that are calls in both languages, by the width of their first operand. Parentheses that
// `name` opens are closed by `end`.
static const struct {
  uint32_t op;
  const char* name;
  const char* name_64;
  const char* end;
} calls[] = {
    {QN_OP_NEG, "-", "-", ""},
    {QN_OP_NOT, "~", "~", ""},
    {QN_OP_FMA, "QN_MAD_f32", "QN_MAD_f64", ""},
    {QN_OP_CLZ, "uint(QN_CLZ_u32", "qn_u64(QN_CLZ_u64", ")"},
    {QN__MATH_OP_MULHI, "qn_mulhi_u32", "qn_mulhi_u64", ""},
    {QN__MATH_OP_HIGH, "QN_F64_HIGH", "QN_F64_HIGH", ""},
    {QN__MATH_OP_LOW, "QN_F64_LOW", "QN_F64_LOW", ""},
    {QN__MATH_OP_JOIN, "QN_F64_JOIN", "QN_F64_JOIN", ""},
    {QN__MATH_OP_TWO_OVER_PI, "qn_two_over_pi_u32[uint", "qn_two_over_pi_u64[uint", "]"},
};

static void write_operator(const writer_t* w, const qn__ir_expr_t* expr) {
  uint32_t op = expr->op;
  qn_dtype_t dtype = expr->args[0]->dtype;
  const char* infix = infix_of(op, dtype);
  if (infix) {
    write_infix(w, infix, expr);
    return;
  }
  if (op == QN_OP_SELECT) {
    write_choice(w, expr);
    return;
  }
  if (op >= QN__MATH_OP_CALL) {
    char name[48];
    const qn__math_info_t* info = qn__math_info((qn__math_id_t)(op - QN__MATH_OP_CALL));
    snprintf(name, sizeof name, "qn_%s_%s", info->name, qn_dtype_text(dtype));
    write_call(w, name, expr);
    return;
  }
  if (op == QN_OP_NOT && dtype == QN_DTYPE_BOOL) {
    write_call(w, "!", expr);
    return;
  }
  for (size_t i = 0; i < QN_COUNT_OF(calls); i++) {
    if (calls[i].op != op) continue;
    write_call(w, qn__dtype_bits(dtype) == 64 ? calls[i].name_64 : calls[i].name, expr);
    qn__buffer_cstr(w->out, calls[i].end);
    return;
  }
  const char* helper = qn__gpu_prelude_op((qn_op_t)op, dtype);
  if (QN_NEVER(!helper)) return;
  write_call(w, helper, expr);
}

static void write_value(const writer_t* w, const qn__ir_expr_t* expr) {
  bool is_from_double = expr->args[0]->dtype == QN_DTYPE_F64;
  switch (expr->kind) {
    case QN__EXPR_CAST:
      write_call(w, qn__gpu_type_text(expr->dtype), expr);
      return;
    case QN__EXPR_BITCAST:
      write_call(w,
                 qn__dtype_is_float(expr->dtype)
                     ? expr->dtype == QN_DTYPE_F64 ? "QN_F64_FROM" : "QN_F32_FROM"
                 : is_from_double ? "QN_F64_BITS"
                                  : "QN_F32_BITS",
                 expr);
      return;
    case QN__EXPR_COND:
      write_choice(w, expr);
      return;
    default:
      write_operator(w, expr);
  }
}

// ------------------------------------------------------------------------------------ functions

static void count_uses(const writer_t* w, const qn__ir_expr_t* expr) {
  if (!expr) return;
  if (expr->kind == QN__EXPR_VAR) w->uses[expr->var->id]++;
  if (expr->kind == QN__EXPR_INT || expr->kind == QN__EXPR_FLOAT || expr->kind == QN__EXPR_VAR) {
    return;
  }
  for (uint32_t i = 0; i < 3; i++) count_uses(w, expr->args[i]);
}

// Writes a repeated step: a variable with the state before the first step, then the steps.
static void write_repeat(const writer_t* w, const qn__ir_var_t* var, const qn__ir_expr_t* expr) {
  const qn__math_info_t* step =
      qn__math_info((qn__math_id_t)((uint32_t)expr->op - QN__MATH_OP_REPEAT));
  const char* type = qn__gpu_type_text(var->dtype);
  qn__buffer_format(w->out, "  %s t%u = ", type, var->id);
  write_operand(w, expr->args[1]);
  qn__buffer_format(w->out, ";\n  for (%s i = ", type);
  write_operand(w, expr->args[0]);
  qn__buffer_format(w->out, "; i >= %s(1); i -= %s(1)) t%u = qn_%s_%s(t%u, ", type, type, var->id,
                    step->name, qn_dtype_text(var->dtype), var->id);
  write_operand(w, expr->args[2]);
  qn__buffer_cstr(w->out, ");\n");
}

static bool write_function(qn__arena_t* arena, qn__math_id_t id, qn_dtype_t dtype, bool has_fma,
                           qn__buffer_t* out) {
  qn__math_function_t function;
  uint32_t traits = QN__MATH_IS_GPU | (has_fma ? QN__MATH_HAS_FMA : 0u);
  if (!qn__math_build(arena, id, dtype, traits, &function)) return false;
  writer_t w = {&function, out, NULL, NULL};
  w.values = qn__arena_alloc_array(arena, function.var_count, sizeof *w.values);
  w.uses = qn__arena_alloc_array(arena, function.var_count, sizeof *w.uses);
  if (!w.values || !w.uses) return false;
  for (const qn__ir_stmt_t* stmt = function.body.first; stmt; stmt = stmt->next) {
    w.values[stmt->let.var->id] = stmt->let.value;
    count_uses(&w, stmt->let.value);
    if (is_repeat(stmt->let.value)) w.uses[stmt->let.var->id] = 2;
  }
  count_uses(&w, function.result);

  const qn__math_info_t* info = qn__math_info(id);
  qn__math_place_t place = info->places[dtype == QN_DTYPE_F64 ? 1 : 0];
  const char* type = qn__gpu_type_text(dtype);
  qn__buffer_format(out, "%s %s qn_%s_%s(",
                    place == QN__MATH_RARE || place == QN__MATH_LANES ? "QN_SLOW" : "QN_FN", type,
                    info->name, qn_dtype_text(dtype));
  for (uint32_t i = 0; i < info->arity; i++) {
    const char* param = qn__gpu_type_text(function.params[i]->dtype);
    qn__buffer_format(out, "%s%s %c", i > 0 ? ", " : "", param, "xyz"[i]);
  }
  qn__buffer_cstr(out, ") {\n");
  for (const qn__ir_stmt_t* stmt = function.body.first; stmt; stmt = stmt->next) {
    const qn__ir_var_t* var = stmt->let.var;
    if (w.uses[var->id] < 2) continue;
    if (is_repeat(stmt->let.value)) {
      write_repeat(&w, var, stmt->let.value);
      continue;
    }
    qn__buffer_format(out, "  %s t%u = ", qn__gpu_type_text(var->dtype), var->id);
    write_value(&w, stmt->let.value);
    qn__buffer_cstr(out, ";\n");
  }
  qn__buffer_cstr(out, "  return ");
  write_operand(&w, function.result);
  qn__buffer_cstr(out, ";\n}");
  return true;
}

void qn__gpu_prelude_write_function(qn__math_id_t id, qn_dtype_t dtype, bool has_fma,
                                    qn__buffer_t* out) {
  qn__arena_t arena;
  qn__arena_init(&arena, out->allocator);
  if (!write_function(&arena, id, dtype, has_fma, out)) out->has_failed = true;
  qn__arena_deinit(&arena);
}
