// SPDX-License-Identifier: Apache-2.0
// conformance/operators.c: every operator of ops.inc with one right answer, on every dtype that it
// takes. Operators with an error bound are in math.c, exchanges in exchanges.c.
#include "conformance/program.h"
#include "quern/ir.h"

typedef enum operator_rule {
  NUMERIC,
  INTEGER,
  FLOAT,
  BITWISE,
  SHIFT,
  COMPARE,
  LOGIC,
  TEST,
  SELECT,
  SCALE,
  LANE,
  GROUP,
  AXES,
  TARGET,
} operator_rule_t;
typedef enum syntax { INFIX, PREFIX, CALL } syntax_t;

typedef struct operator{
  qn_op_t op;
  const char* name;
  const char* text;
  int arity;
  operator_rule_t rule;
  syntax_t syntax;
}
operator_t;
static const operator_t operators[] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) \
  {QN_OP_##name, #name, text, arity, rule, syntax},
#include "quern/ops.inc"
#undef QN_OP
};

static bool is_integer(qn_dtype_t d) {
  return d != QN_DTYPE_BOOL && !conf_is_float(d);
}

static bool takes(operator_rule_t rule, qn_dtype_t d) {
  if (conf_is_stored(d)) return rule == SELECT && !conf_is_packed(d);
  switch (rule) {
    case NUMERIC:
      return d != QN_DTYPE_BOOL;
    case INTEGER:
    case SHIFT:
      return is_integer(d);
    case FLOAT:
    case SCALE:
    case TEST:
      return conf_is_float(d);
    case BITWISE:
      return !conf_is_float(d);
    case COMPARE:
    case SELECT:
      return true;
    case LOGIC:
      return d == QN_DTYPE_BOOL;
    default:
      return false;
  }
}

// Operators whose error bound is not 0: math.c tests them.
static bool has_bound(qn_op_t op) {
  return op == QN_OP_RSQRT || (op >= QN_OP_EXP && op <= QN_OP_POW) ||
         (op >= QN_OP_EXP10 && op <= QN_OP_CBRT);
}

static bool divides(qn_op_t op) {
  return op == QN_OP_FLOORDIV || op == QN_OP_FLOORMOD || op == QN_OP_TRUNCDIV ||
         op == QN_OP_TRUNCMOD || op == QN_OP_CEILDIV;
}

// Makes the call of an operator on elements of a, b and c; d is a divisor.
static const char* call_of(conf_rows_t* rows, const operator_t* it, qn_dtype_t dtype) {
  const char* second = divides(it->op) ? "d" : "b[i]";
  if (it->op == QN_OP_SELECT && conf_is_stored(dtype)) return "select(i % 3 == 0, a[i], b[i])";
  if (it->op == QN_OP_SELECT) return "select(c[i] != c[0], a[i], b[i])";
  if (it->rule == SCALE) return conf_rows_text(rows, "%s(a[i], i32(i %% 400) - 200)", it->text);
  if (it->syntax == INFIX) return conf_rows_text(rows, "a[i] %s %s", it->text, second);
  if (it->arity == 1) return conf_rows_text(rows, "%s(a[i])", it->text);
  if (it->arity == 2) return conf_rows_text(rows, "%s(a[i], %s)", it->text, second);
  return conf_rows_text(rows, "%s(a[i], b[i], c[i])", it->text);
}

static void add_rows(conf_rows_t* rows, qn_dtype_t dtype) {
  const char* t = qn_dtype_text(dtype);
  for (size_t i = 0; i < CONF_COUNT_OF(operators); i++) {
    const operator_t* it = &operators[i];
    if (!takes(it->rule, dtype) || has_bound(it->op)) continue;
    bool is_bool = it->rule == COMPARE || it->rule == TEST || it->rule == LOGIC;
    const char* text = conf_rows_text(
        rows,
        "func op_%s_%s(a: %s[n], b: %s[n], c: %s[n], out y: %s[n]) {\n"
        "  parallel i in 0..n { %sy[i] = %s; } }",
        it->name, t, t, t, t, is_bool ? "bool" : t,
        divides(it->op) ? "let d = b[i] == 0 ? 1 : b[i]; " : "", call_of(rows, it, dtype));
    const char* feature = it->op == QN_OP_NEG ? "negation" : it->text;
    conf_rows_add(rows, feature, t, text, "bits:1200 bits:1200 bits:1200 junk:1200");
  }
}

// Products that lie in the middle of two bf16 numbers, with a summand that f32 does not show: the
// result is rounded to f32, then to bf16.
static void add_fused_ties(conf_rows_t* rows) {
  conf_rows_add(rows, "fma", "bf16, rounded to f32 first",
                "func op_fma_tie(a: bf16[n], out y: bf16[n]) { parallel i in 0..n {\n"
                "  let c = i % 4 < 2 ? bf16(-1e-9) : bf16(1e-9);\n"
                "  y[i] = fma(a[i], bf16(1.5), c); } }",
                "iota:256 junk:256");
}

static void run(conf_t* c) {
  static conf_rows_t rows;
  for (int d = 1; d < QN_DTYPE_COUNT; d++) {
    add_rows(&rows, (qn_dtype_t)d);
    conf_rows_run(c, &rows);
  }
  add_fused_ties(&rows);
  conf_rows_run(c, &rows);
}

const conf_area_t conf_area_operators = {"operators", NULL, 0, run};
