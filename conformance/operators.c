// conformance/operators.c: every operator of ops.inc with one right answer, on every dtype that it
// takes. Operators with an error bound are in math.c, exchanges in exchanges.c.
#include <stdio.h>
#include <string.h>

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
  TARGET,
} operator_rule_t;
typedef enum syntax { INFIX, PREFIX, CALL } syntax_t;

static const struct {
  qn_op_t op;
  const char* name;
  const char* text;
  int arity;
  operator_rule_t rule;
  syntax_t syntax;
} operators[] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) \
  {QN_OP_##name, #name, text, arity, rule, syntax},
#include "quern/ops.inc"
#undef QN_OP
};

enum { ROW_LIMIT = 64, TEXT_BYTES = 500 };

static bool is_integer(qn_dtype_t d) {
  return d != QN_DTYPE_BOOL && !conf_is_float(d);
}

static bool takes(operator_rule_t rule, qn_dtype_t d) {
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

static void write_call(char* out, size_t size, size_t at) {
  const char* text = operators[at].text;
  if (operators[at].op == QN_OP_SELECT) {
    (void)snprintf(out, size, "select(c[i] != c[0], a[i], b[i])");
  } else if (operators[at].rule == SCALE) {
    (void)snprintf(out, size, "%s(a[i], i32(i %% 400) - 200)", text);
  } else if (operators[at].syntax == INFIX) {
    (void)snprintf(out, size, "a[i] %s %s", text, divides(operators[at].op) ? "d" : "b[i]");
  } else if (operators[at].syntax == PREFIX) {
    (void)snprintf(out, size, "%s(a[i])", text);
  } else if (operators[at].arity == 1) {
    (void)snprintf(out, size, "%s(a[i])", text);
  } else if (operators[at].arity == 2) {
    (void)snprintf(out, size, "%s(a[i], %s)", text, divides(operators[at].op) ? "d" : "b[i]");
  } else {
    (void)snprintf(out, size, "%s(a[i], b[i], c[i])", text);
  }
}

static void run_dtype(conf_t* c, qn_dtype_t dtype, bool is_listing) {
  static char texts[ROW_LIMIT][TEXT_BYTES];
  static conf_program_t rows[ROW_LIMIT];
  const char* t = qn_dtype_text(dtype);
  size_t count = 0;
  for (size_t i = 0; i < CONF_COUNT_OF(operators) && count < ROW_LIMIT; i++) {
    if (!takes(operators[i].rule, dtype) || has_bound(operators[i].op)) continue;
    bool is_bool =
        operators[i].rule == COMPARE || operators[i].rule == TEST || operators[i].rule == LOGIC;
    const char* to = is_bool ? "bool" : t;
    char call[128];
    write_call(call, sizeof call, i);
    const char* divisor = divides(operators[i].op) ? "let d = b[i] == 0 ? 1 : b[i]; " : "";
    (void)snprintf(texts[count], TEXT_BYTES,
                   "func op_%s_%s(a: %s[n], b: %s[n], c: %s[n], out y: %s[n]) {\n"
                   "  parallel i in 0..n { %sy[i] = %s; } }",
                   operators[i].name, t, t, t, t, to, divisor, call);
    rows[count] =
        (conf_program_t){.feature = operators[i].op == QN_OP_NEG ? "negation" : operators[i].text,
                         .variant = t,
                         .text = texts[count],
                         .args = "bits:1200 bits:1200 bits:1200 junk:1200"};
    count++;
  }
  conf_programs(c, conf_area_operators.name, rows, count, is_listing);
}

static void run(conf_t* c, bool is_listing) {
  for (int d = 1; d < QN_DTYPE_COUNT; d++) run_dtype(c, (qn_dtype_t)d, is_listing);
}

const conf_area_t conf_area_operators = {"operators", NULL, 0, run};
