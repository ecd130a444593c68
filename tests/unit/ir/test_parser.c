// tests/unit/ir/test_parser.c: what texts mean: dtypes of literals, names, places, limits,
// messages.
//
// Messages with carets are in tests/diagnostics; print-and-parse is in test_printer.c.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/codes.h"
#include "ir/decimal.h"
#include "ir/lexer.h"
#include "ir/text.h"
#include "tests/support/fault.h"

typedef struct parsed {
  qn__diag_t diag;
  qn__body_t body;
  bool is_good;
} parsed_t;

static void parse(parsed_t* p, const char* text) {
  qn__diag_init(&p->diag, qn_allocator_default(), NULL, "test", qn__str(text));
  p->is_good = qn__text_parse(qn__str(text), qn_allocator_default(), &p->diag, &p->body);
}

static void release(parsed_t* p) {
  qn__body_deinit(&p->body);
  qn__diag_deinit(&p->diag);
}

// The only error is `code`.
static void assert_error(const char* text, const char* code) {
  parsed_t p;
  parse(&p, text);
  assert_false(p.is_good);
  char head[32];
  (void)snprintf(head, sizeof head, "error[%s]", code);
  const char* said = (const char*)p.diag.text.data;
  if (!said || strncmp(said, head, strlen(head)) != 0 || p.diag.error_count != 1) {
    fail_msg("expected only %s for:\n%s\ngot:\n%s", code, text, said ? said : "nothing");
  }
  release(&p);
}

#define HEADER                                                                             \
  "func f(x: f32[n, m], out y: f32[n, m], a: f32, h: f16, d: f64, k: i32, q: i8, u: u64, " \
  "o: bool, t: i16[4]) {\n"

// The value of `let r = EXPR;` as its dtype and canonical text, "f32 a + 1.0".
static void assert_typed(const char* expr, const char* expected) {
  char text[1024];
  (void)snprintf(text, sizeof text, HEADER "let r = %s;\n}\n", expr);
  parsed_t p;
  parse(&p, text);
  if (!p.is_good) fail_msg("%s:\n%s", expr, (const char*)p.diag.text.data);
  const qn__expr_t* value = p.body.first->body.last->let.value;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__buffer_format(&out, "%s ", qn_dtype_text(value->dtype));
  qn__text_print_expr(value, &out);
  assert_string_equal((const char*)out.data, expected);
  qn__buffer_deinit(&out);
  release(&p);
}

static void test_literals_take_the_dtype_beside_them(void** state) {
  (void)state;
  assert_typed("1", "i64 1");
  assert_typed("1.0", "f32 1.0");
  assert_typed("1 + 2.5", "f32 1.0 + 2.5");
  assert_typed("a + 1", "f32 a + 1.0");
  assert_typed("1 + a", "f32 1.0 + a");
  assert_typed("d * (1 + 2 * 3)", "f64 d * (1.0 + 2.0 * 3.0)");
  assert_typed("h + 0.1", "f16 h + 0.1");
  assert_typed("k + 2", "i32 k + 2");
  assert_typed("q * -128", "i8 q * -128");
  assert_typed("u + 18446744073709551615", "u64 u + 18446744073709551615");
  assert_typed("0xff", "i64 255");
  assert_typed("0b1010_1010", "i64 170");
  assert_typed("1_000_000", "i64 1000000");
  assert_typed("exp(1)", "f32 exp(1.0)");
  assert_typed("d + exp(1)", "f64 d + exp(1.0)");
  assert_typed("f64(0.1)", "f64 0.1");
  assert_typed("f64(0.1 + 0.2)", "f64 0.1 + 0.2");
  assert_typed("i32(2)", "i32 2");
  assert_typed("f16(2)", "f16 2.0");
  assert_typed("i32(1.5 + 1.0)", "i32 i32(f32(1.5) + 1.0)");
  assert_typed("f32(7 // 2)", "f32 f32(i64(7) // 2)");
  assert_typed("i64(k)", "i64 i64(k)");
  assert_typed("k < 3", "bool k < 3");
  assert_typed("1 < 2", "bool 1 < 2");
  assert_typed("select(o, 1, k)", "i32 select(o, 1, k)");
  assert_typed("o ? 1 : d", "f64 o ? 1.0 : d");
  assert_typed("o ? 1 : 2", "i64 o ? 1 : 2");
  assert_typed("isnan(1)", "bool isnan(1.0)");
  assert_typed("t[k] + 3", "i16 t[k] + 3");
  assert_typed("min(2, u)", "u64 min(2, u)");
  assert_typed("d * sum j in 0..4 { 1 }", "f64 d * (sum j in 0..4 { 1.0 })");
  assert_typed("sum j in 0..n { j }", "i64 sum j in 0..n { j }");
  assert_typed("bitcast(i32, 1.0)", "i32 bitcast(i32, 1.0)");
  assert_typed("-inf", "f32 -inf");
  assert_typed("true & o", "bool true & o");
  assert_typed("-(1)", "i64 -(1)");
  assert_typed("- 1", "i64 -(1)");
  assert_typed("-0 * a", "f32 -0.0 * a");
  assert_typed("q << 3", "i8 q << 3");
}

static void test_what_does_not_fit_is_an_error(void** state) {
  (void)state;
  static const struct {
    const char* expr;
    const char* code;
  } cases[] = {
      {"q + 128", "QN0117"},
      {"q + -129", "QN0117"},
      {"u8(256)", "QN0117"},
      {"u8(-1)", "QN0117"},
      {"i8(0x80)", "QN0117"},
      {"k * 2147483648", "QN0117"},
      {"a * 16777217", "QN0117"},
      {"f16(2049)", "QN0117"},
      {"f16(1e5)", "QN0117"},
      {"k + 1.0", "QN0118"},
      {"k + k * 1.5", "QN0118"},
      {"a + k", "QN0114"},
      {"k / 2", "QN0115"},
      {"a % 2", "QN0115"},
      {"exp(k)", "QN0115"},
      {"o + o", "QN0115"},
      {"a && o", "QN0115"},
      {"a + (7 // 2)", "QN0115"},
      {"y", "QN0123"},
      {"a[0]", "QN0123"},
      {"x[0]", "QN0119"},
      {"x[a, 0]", "QN0120"},
      {"x[0.0, 0]", "QN0118"},
      {"bool(1)", "QN0115"},
      {"zz", "QN0103"},
      {"zz(1)", "QN0125"},
      {"exp()", "QN0124"},
      {"f33(1)", "QN0125"},
      {"1 ? 2 : 3", "QN0116"},
      {"0 < k < 2", "QN0128"},
      {"sum j in 0..k { j }", "QN0121"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    char text[512];
    (void)snprintf(text, sizeof text, HEADER "let r = %s;\n}\n", cases[i].expr);
    assert_error(text, cases[i].code);
  }
}

static void test_every_operator_parses(void** state) {
  (void)state;
  for (int op = 1; op < QN_OP_COUNT; op++) {
    const qn__op_info_t* info = qn__op_info((qn_op_t)op);
    assert_non_null(info);
    const char* operand = "a";
    if (info->rule == QN__RULE_INTEGER || info->rule == QN__RULE_BITWISE ||
        info->rule == QN__RULE_SHIFT) {
      operand = "k";
    }
    if (info->rule == QN__RULE_LOGIC) operand = "o";
    char text[1024];
    const char* first = info->rule == QN__RULE_SELECT ? "o" : operand;
    const char* second = info->rule == QN__RULE_LANE ? "0" : operand;
    if (info->syntax == QN__SYNTAX_INFIX) {
      (void)snprintf(text, sizeof text, HEADER "let r = %s %s %s;\n}\n", first, info->text, second);
    } else if (info->syntax == QN__SYNTAX_PREFIX) {
      (void)snprintf(text, sizeof text, HEADER "let r = %s%s;\n}\n", info->text, first);
    } else if (info->arity == 1) {
      (void)snprintf(text, sizeof text, HEADER "let r = %s(%s);\n}\n", info->text, first);
    } else if (info->arity == 2) {
      (void)snprintf(text, sizeof text, HEADER "let r = %s(%s, %s);\n}\n", info->text, first,
                     second);
    } else {
      (void)snprintf(text, sizeof text, HEADER "let r = %s(%s, %s, %s);\n}\n", info->text, first,
                     second, operand);
    }
    parsed_t p;
    parse(&p, text);
    if (!p.is_good) fail_msg("%s\n%s", text, (const char*)p.diag.text.data);
    const qn__expr_t* value = p.body.first->body.first->let.value;
    assert_int_equal(value->kind, QN__EXPR_OP);
    assert_int_equal(value->op, op);
    for (uint32_t i = 0; i < info->arity; i++) assert_non_null(value->args[i]);
    release(&p);
  }
}

static void test_precedence(void** state) {
  (void)state;
  // Fully parenthesised by hand on the right; both must give the same tree, so the same print.
  static const char* const cases[][2] = {
      {"1 + 2 * 3", "1 + (2 * 3)"},
      {"1 - 2 - 3", "(1 - 2) - 3"},
      {"8 // 4 // 2", "(8 // 4) // 2"},
      {"1 << 2 + 3", "1 << (2 + 3)"},
      {"1 & 2 << 3", "1 & (2 << 3)"},
      {"1 ^ 2 & 3", "1 ^ (2 & 3)"},
      {"1 | 2 ^ 3", "1 | (2 ^ 3)"},
      {"1 | 2 == 3", "(1 | 2) == 3"},
      {"o && k == 1 || o", "(o && (k == 1)) || o"},
      {"o || o && o", "o || (o && o)"},
      {"-k * 2", "(-k) * 2"},
      {"!o && o", "(!o) && o"},
      {"o ? 1 : o ? 2 : 3", "o ? 1 : (o ? 2 : 3)"},
      {"~k & 1", "(~k) & 1"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    char text[2][512];
    parsed_t p[2];
    for (int side = 0; side < 2; side++) {
      (void)snprintf(text[side], sizeof text[side], HEADER "let r = %s;\n}\n", cases[i][side]);
      parse(&p[side], text[side]);
      assert_true(p[side].is_good);
    }
    qn__buffer_t out[2];
    for (int side = 0; side < 2; side++) {
      qn__buffer_init(&out[side], qn_allocator_default());
      qn__text_print_expr(p[side].body.first->body.first->let.value, &out[side]);
    }
    assert_string_equal((const char*)out[0].data, (const char*)out[1].data);
    assert_string_equal((const char*)out[0].data, cases[i][0]);
    for (int side = 0; side < 2; side++) {
      qn__buffer_deinit(&out[side]);
      release(&p[side]);
    }
  }
}

static void test_symbols_and_scalars_in_shapes(void** state) {
  (void)state;
  parsed_t p;
  parse(&p,
        "func f(x: f32[b, n + 2, later], y: f32[a * n, c], a: i64, later: i32, z: f32[i64(later), "
        "m] strides [s, 1]) {\n}\n");
  assert_true(p.is_good);
  const qn__function_t* f = p.body.first;
  static const char* const names[] = {"b", "n", "c", "m", "s"};
  assert_int_equal(f->symbol_count, QN_COUNT_OF(names));
  for (size_t i = 0; i < QN_COUNT_OF(names); i++) {
    assert_string_equal(f->symbols[i]->name, names[i]);
    assert_int_equal(f->symbols[i]->kind, QN__VAR_SYMBOL);
    assert_int_equal(f->symbols[i]->dtype, QN_DTYPE_I64);
  }
  assert_int_equal(f->param_count, 5);
  // A scalar that is declared later is no symbol; one of another dtype is converted.
  const qn__expr_t* later = f->params[0].buffer->shape[2];
  assert_int_equal(later->kind, QN__EXPR_CAST);
  assert_int_equal(later->dtype, QN_DTYPE_I64);
  assert_ptr_equal(later->args[0]->var, f->params[3].scalar);
  const qn__expr_t* product = f->params[1].buffer->shape[0];
  assert_int_equal(product->op, QN_OP_MUL);
  assert_ptr_equal(product->args[0]->var, f->params[2].scalar);
  assert_ptr_equal(product->args[1]->var, f->symbols[1]);
  // An explicit conversion says the same.
  const qn__expr_t* written = f->params[4].buffer->shape[0];
  assert_int_equal(written->kind, QN__EXPR_CAST);
  assert_int_equal(written->args[0]->kind, QN__EXPR_VAR);
  assert_int_equal(f->params[4].buffer->access, QN_ACCESS_IN);
  release(&p);
}

static void test_scopes_of_names(void** state) {
  (void)state;
  parsed_t p;
  // Inner blocks may shadow locals, siblings may use a name again, and the value of a let does not
  // see the name.
  parse(&p, HEADER
        "let v = 1;\n"
        "for i in 0..n { let v = v + i; for j in 0..v { let i = j; } }\n"
        "for i in 0..n { let w = v; }\n"
        "let w = sum i in 0..n { let v = i; v };\n"
        "}\n");
  if (!p.is_good) fail_msg("%s", (const char*)p.diag.text.data);
  const qn__stmt_t* outer = p.body.first->body.first;
  const qn__stmt_t* inner = outer->next->loop.body.first;
  assert_ptr_equal(inner->let.value->args[0]->var, outer->let.var);
  release(&p);
  assert_error(HEADER "let v = 1;\nlet v = 2;\n}\n", "QN0113");
  assert_error(HEADER "let n = 1;\n}\n", "QN0113");
  assert_error(HEADER "for i in 0..n { for a in 0..n { } }\n}\n", "QN0113");
  assert_error(HEADER "for i in 0..n { let i = 1; }\n}\n", "QN0113");
  assert_error(HEADER "if o { let v = 1; }\nlet w = v;\n}\n", "QN0103");
  assert_error(HEADER "let v = v;\n}\n", "QN0103");
  assert_error(HEADER "for i in 0..i { }\n}\n", "QN0103");
  assert_error(HEADER "let s = sum j in 0..n { j } + j;\n}\n", "QN0103");
}

static void test_slashes_divide_or_comment(void** state) {
  (void)state;
  parsed_t p;
  parse(&p, HEADER
        "let v = n // m; // comment\n"
        "let w = // comment\n"
        "  v\n"
        "  // comment\n"
        "  + 1;\n"
        "let z = (n) // t[0 // 1] // i16(3)\n"
        "  ;\n"
        "}  // end\n// last");
  // The last let divides an i64 by an i16.
  assert_false(p.is_good);
  assert_int_equal(p.diag.error_count, 1);
  assert_non_null(strstr((const char*)p.diag.text.data, "operands of '//' are i64 and i16"));
  const qn__stmt_t* first = p.body.first->body.first;
  assert_int_equal(first->let.value->op, QN_OP_FLOORDIV);
  assert_int_equal(first->next->let.value->op, QN_OP_ADD);
  release(&p);
}

typedef struct place {
  const char* text;
  qn_str_t wanted;
  bool is_found;
} place_t;

static bool look_at(qn__walker_t* walker, qn__expr_t* expr) {
  place_t* place = walker->self;
  assert_true(expr->loc.size > 0);
  qn_str_t slice = {place->text + expr->loc.begin, expr->loc.size};
  if (qn__str_equal(slice, place->wanted)) place->is_found = true;
  return true;
}

static void test_every_expression_knows_its_place(void** state) {
  (void)state;
  static const char text[] = HEADER
      "y[0, k + 1] = max(x[0, 1] * (a - 2.0), f32(d)) + -a;\n"
      "let s = sum j in 0..n { x[j, j // 2] };\n"
      "}\n";
  static const char* const wanted[] = {"k + 1",
                                       "max(x[0, 1] * (a - 2.0), f32(d))",
                                       "x[0, 1]",
                                       "x[0, 1] * (a - 2.0)",
                                       "a - 2.0",
                                       "f32(d)",
                                       "-a",
                                       "2.0",
                                       "sum j in 0..n { x[j, j // 2] }",
                                       "j // 2",
                                       "max(x[0, 1] * (a - 2.0), f32(d)) + -a"};
  parsed_t p;
  parse(&p, text);
  assert_true(p.is_good);
  for (size_t i = 0; i < QN_COUNT_OF(wanted); i++) {
    place_t place = {text, qn__str(wanted[i]), false};
    qn__walker_t walker = {.on_expr = look_at, .self = &place};
    assert_true(qn__walk_block(&walker, &p.body.first->body));
    if (!place.is_found) fail_msg("no expression is at '%s'", wanted[i]);
  }
  const qn__stmt_t* store = p.body.first->body.first;
  assert_int_equal(store->loc.size, strlen("y[0, k + 1]"));
  release(&p);
}

// ------------------------------------------------------------------------------------ numbers

static void test_decimals_round_once(void** state) {
  (void)state;
  static const struct {
    qn_dtype_t dtype;
    const char* text;
    double value;
  } cases[] = {
      {QN_DTYPE_F64, "0.1", 0.1},
      {QN_DTYPE_F64, "1e308", 1e308},
      {QN_DTYPE_F64, "1.7976931348623157e308", 1.7976931348623157e308},
      {QN_DTYPE_F64, "1.7976931348623159e308", (double)INFINITY},
      {QN_DTYPE_F64, "4.9406564584124654e-324", 0x1p-1074},
      {QN_DTYPE_F64, "2.4703282292062327e-324", 0.0},
      {QN_DTYPE_F64, "2.4703282292062329e-324", 0x1p-1074},
      {QN_DTYPE_F64, "1e-400", 0.0},
      {QN_DTYPE_F64, "1e999999999999", (double)INFINITY},
      {QN_DTYPE_F64, "0e999999999999", 0.0},
      {QN_DTYPE_F64, "9007199254740993.0", 9007199254740992.0},
      {QN_DTYPE_F64, "9007199254740993.00000000000000000000000000001", 9007199254740994.0},
      {QN_DTYPE_F32, "0.1", 0x1.99999ap-4},
      {QN_DTYPE_F32, "16777217.0", 16777216.0},
      {QN_DTYPE_F32, "16777219.0", 16777220.0},
      // Through double this would land on the tie and go to even: down.
      {QN_DTYPE_F32, "1.000000059604644775390626", 0x1.000002p0},
      {QN_DTYPE_F32, "3.4028235677973367e38", (double)INFINITY},
      {QN_DTYPE_F32, "3.4028235677973362e38", 0x1.fffffep127},
      {QN_DTYPE_F32, "7.0064923216240854e-46", 0x1p-149},
      {QN_DTYPE_F32, "7.0064923216240853e-46", 0.0},
      {QN_DTYPE_F16, "65519.99999", 65504.0},
      {QN_DTYPE_F16, "65520.0", (double)INFINITY},
      {QN_DTYPE_F16, "0.1", 0x1.998p-4},
      {QN_DTYPE_F16, "5.9604644775390625e-8", 0x1p-24},
      {QN_DTYPE_F16, "2049.0", 2048.0},
      {QN_DTYPE_F16, "2051.0", 2052.0},
      {QN_DTYPE_BF16, "1.00390625", 1.0},
      {QN_DTYPE_BF16, "1.00390626", 1.0078125},
      {QN_DTYPE_BF16, "3.3e38", 0x1.fp127},
      {QN_DTYPE_F64, "1_0.2_5e1_0", 10.25e10},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    double value = qn__decimal_parse(cases[i].dtype, qn__str(cases[i].text));
    if (value != cases[i].value) fail_msg("%s: %a, not %a", cases[i].text, value, cases[i].value);
  }
}

static void assert_round_trip(qn_dtype_t dtype, double value, qn__buffer_t* out) {
  qn__buffer_clear(out);
  qn__decimal_print(dtype, value, out);
  const char* text = (const char*)out->data;
  bool is_negative = text[0] == '-';
  double again = qn__decimal_parse(dtype, qn__str(text + is_negative));
  if (is_negative) again = -again;
  if (again != value || signbit(again) != signbit(value)) {
    fail_msg("%a prints as %s, which is %a", value, text, again);
  }
  assert_non_null(strpbrk(text, ".e"));
}

static void test_floats_print_shortest_and_come_back(void** state) {
  (void)state;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  // All values of the 16-bit dtypes.
  for (uint32_t bits = 0; bits < 65536; bits++) {
    double half = qn__scalar_from_bits(QN_DTYPE_F16, bits).f;
    if (isfinite(half)) assert_round_trip(QN_DTYPE_F16, half, &out);
    double brain = qn__scalar_from_bits(QN_DTYPE_BF16, bits).f;
    if (isfinite(brain)) assert_round_trip(QN_DTYPE_BF16, brain, &out);
  }
  uint64_t random = 88172645463325252u;
  for (int i = 0; i < 20000; i++) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    double wide = qn__scalar_from_bits(QN_DTYPE_F64, random).f;
    double narrow = qn__scalar_from_bits(QN_DTYPE_F32, random >> 32).f;
    if (isfinite(wide)) assert_round_trip(QN_DTYPE_F64, wide, &out);
    if (!isfinite(narrow)) continue;
    assert_round_trip(QN_DTYPE_F32, narrow, &out);
    // No text with fewer digits comes back: compare with the C library, digit by digit.
    char text[32];
    int digits = 1;
    for (; digits <= 9; digits++) {
      (void)snprintf(text, sizeof text, "%.*e", digits - 1, narrow);
      if ((double)strtof(text, NULL) == narrow) break;
    }
    int printed = 0;
    for (const char* c = (const char*)out.data; *c && *c != 'e'; c++) {
      if (*c >= '0' && *c <= '9' && (printed > 0 || *c != '0')) printed++;
    }
    const char* point = strchr((const char*)out.data, '.');
    bool is_padded = !strchr((const char*)out.data, 'e') && point && strcmp(point, ".0") == 0;
    if (!is_padded && printed > digits) fail_msg("%s has more than %d digits", out.data, digits);
  }
  static const struct {
    double value;
    const char* text;
  } cases[] = {{0.0, "0.0"},
               {-0.0, "-0.0"},
               {1.0, "1.0"},
               {0.1, "0.1"},
               {100.0, "100.0"},
               {1e15, "1000000000000000.0"},
               {1e16, "1e16"},
               {1.5e-5, "0.000015"},
               {1.5e-6, "1.5e-6"},
               {123.456, "123.456"},
               {1e-30, "1e-30"},
               {(double)INFINITY, "inf"},
               {-(double)INFINITY, "-inf"},
               {(double)NAN, "nan"}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__buffer_clear(&out);
    qn__decimal_print(QN_DTYPE_F64, cases[i].value, &out);
    assert_string_equal((const char*)out.data, cases[i].text);
  }
  qn__buffer_deinit(&out);
}

// ------------------------------------------------------------------------------------ limits

static void test_limits(void** state) {
  (void)state;
  static char text[200000];
  // 200 levels are fine, 300 are an error and not a crash; so are a hundred thousand.
  for (int kind = 0; kind < 6; kind++) {
    static const char* const open[] = {"(", "-", "!", "x[t[", "if o {", "f32("};
    static const int levels[] = {100, 300, 20000};
    for (int level = 0; level < 3; level++) {
      size_t size =
          (size_t)snprintf(text, sizeof text, "%s%s", HEADER, kind == 4 ? "" : "let r = ");
      for (int i = 0; i < levels[level]; i++) {
        size += (size_t)snprintf(text + size, sizeof text - size, "%s", open[kind]);
      }
      parsed_t p;
      parse(&p, text);
      bool has_code = strstr((const char*)p.diag.text.data, "QN0129") != NULL;
      assert_false(p.is_good);
      assert_int_equal(has_code, level > 0);
      release(&p);
    }
  }
  size_t size = (size_t)snprintf(text, sizeof text, "%slet r = k", HEADER);
  for (int i = 0; i < 10000; i++) size += (size_t)snprintf(text + size, sizeof text - size, " + 1");
  (void)snprintf(text + size, sizeof text - size, ";\n}\n");
  assert_error(text, "QN0129");
}

static void test_size_limit(void** state) {
  (void)state;
  qn__diag_t diag;
  qn__diag_init(&diag, qn_allocator_default(), NULL, "big", QN_STR(""));
  // Never read: the size alone is refused.
  assert_false(qn__lexer_check((qn_str_t){"", (size_t)1 << 31}, &diag));
  assert_non_null(strstr((const char*)diag.text.data, "QN0100"));
  qn__diag_deinit(&diag);
}

// ------------------------------------------------------------------------------------ diagnostics

typedef struct heard {
  int count;
  qn_severity_t severities[64];
  char codes[64][8];
  uint32_t lines[64];
  uint32_t columns[64];
  uint32_t end_columns[64];
} heard_t;

static void hear(void* self, const qn_diagnostic_t* diagnostic) {
  heard_t* heard = self;
  assert_true(heard->count < 64);
  assert_non_null(diagnostic->help);
  assert_string_equal(diagnostic->source_name, "heard.qn");
  heard->severities[heard->count] = diagnostic->severity;
  (void)snprintf(heard->codes[heard->count], 8, "%s", diagnostic->code);
  heard->lines[heard->count] = diagnostic->line;
  heard->columns[heard->count] = diagnostic->column;
  heard->end_columns[heard->count++] = diagnostic->end_column;
}

static void test_callback_and_error_limit(void** state) {
  (void)state;
  static const char text[] =
      "func f(out y: f32[1]) {\r\n"
      "  assert true, \"\xc3\xa9\"; y[0] = one;\r\n"
      "  let y = 1;\n"
      "  let a = two;\n"
      "  let b = three;\n"
      "}\n";
  heard_t heard = {0};
  qn_parse_options_t options = {.struct_size = sizeof options,
                                .source_name = "heard.qn",
                                .on_diagnostic = hear,
                                .on_diagnostic_self = &heard,
                                .error_limit = 3};
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, sizeof text - 1, &options, &module);
  assert_null(module);
  assert_int_equal(qn_status_code(status), QN_STATUS_SYNTAX);
  assert_non_null(strstr(qn_status_message(status), "too many errors"));
  assert_null(strchr(qn_status_message(status), '\r'));
  qn_status_free(status);
  // one, the second y and its note, two; three is beyond the limit.
  assert_int_equal(heard.count, 4);
  assert_string_equal(heard.codes[0], "QN0103");
  assert_int_equal(heard.lines[0], 2);
  assert_int_equal(heard.columns[0], 28);
  assert_int_equal(heard.end_columns[0], 31);
  assert_string_equal(heard.codes[1], "QN0113");
  assert_int_equal(heard.severities[2], QN_SEVERITY_NOTE);
  assert_string_equal(heard.codes[2], "");
  assert_int_equal(heard.lines[2], 1);
  assert_string_equal(heard.codes[3], "QN0103");
  assert_int_equal(heard.lines[3], 4);
}

static void test_codes_are_unique(void** state) {
  (void)state;
  static const char* const codes[] = {
#define QN_CODE(name, code, doc) code,
#include "ir/codes.inc"
#undef QN_CODE
  };
  for (size_t i = 0; i < QN_COUNT_OF(codes); i++) {
    for (size_t j = 0; j < i; j++) assert_string_not_equal(codes[i], codes[j]);
    assert_string_equal(codes[i], qn__code((qn__code_t)i));
  }
}

static void test_names(void** state) {
  (void)state;
  static const char* const good[] = {"a", "_", "x1", "sum", "max", "block", "local", "strides"};
  static const char* const bad[] = {"",     "1a",   "a-b", "f32",     "in",
                                    "func", "true", "nan", "\xc3\xa9"};
  for (size_t i = 0; i < QN_COUNT_OF(good); i++) assert_true(qn__text_is_name(qn__str(good[i])));
  for (size_t i = 0; i < QN_COUNT_OF(bad); i++) assert_false(qn__text_is_name(qn__str(bad[i])));
  // Names of operators and reductions are no reserved words.
  parsed_t p;
  parse(&p,
        "func exp(max: f32[n], out sum: f32[n], strides: f32[strides2] strides [n]) {\n"
        "  let min = max[0];\n"
        "  sum[0] = min(min, max[1]) + (sum sum2 in 0..n { max[sum2] }) + strides[0];\n}\n");
  if (!p.is_good) fail_msg("%s", (const char*)p.diag.text.data);
  release(&p);
}

static void test_strings(void** state) {
  (void)state;
  parsed_t p;
  parse(&p, HEADER "assert o, \"a\\\"b\\\\c\\n\\t\\x01\\xff \xc3\xa9\";\nassert o;\n}\n");
  assert_true(p.is_good);
  const qn__stmt_t* stmt = p.body.first->body.first;
  assert_string_equal(stmt->assert_.message, "a\"b\\c\n\t\x01\xff \xc3\xa9");
  assert_string_equal(stmt->next->assert_.message, "");
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__lexer_escape(qn__str(stmt->assert_.message), &out);
  assert_string_equal((const char*)out.data, "\"a\\\"b\\\\c\\n\\t\\x01\\xff \xc3\xa9\"");
  qn__buffer_deinit(&out);
  release(&p);
}

// ------------------------------------------------------------------------------------ memory

static const char everything[] = HEADER
    "let v = exp(a) * 2.0;\n"
    "alloc l: f32[4] in local;\n"
    "const c: f32[2] = [1.0, -2.5];\n"
    "view w: f32[2] strides [2] = l[0];\n"
    "for i in 0..n { if o { y[i, 0] = select(o, v, l[1]); } else { l[0] = c[0]; } }\n"
    "let s = sum j in 0..m { let e = x[0, j]; e * e };\n"
    "while o { assert k < 3, \"message\"; }\n"
    "}\nfunc g() {\n}\n";

static bool parse_once(qn_allocator_t allocator, void* user) {
  const char* text = user;
  qn__diag_t diag;
  qn__body_t body;
  qn__diag_init(&diag, allocator, NULL, "test", qn__str(text));
  bool is_good = qn__text_parse(qn__str(text), allocator, &diag, &body);
  qn_status_t status = qn__diag_status(&diag, QN_STATUS_SYNTAX);
  qn_status_code_t code = qn_status_consume(status);
  qn__body_deinit(&body);
  qn__diag_deinit(&diag);
  bool is_broken = strstr(text, "bta") != NULL;
  qn_status_code_t wanted = is_broken ? QN_STATUS_SYNTAX : QN_STATUS_OK;
  return is_good == (code == QN_STATUS_OK) && (code == wanted || code == QN_STATUS_OUT_OF_MEMORY);
}

static void test_out_of_memory(void** state) {
  (void)state;
  static char good[sizeof everything];
  memcpy(good, everything, sizeof everything);
  assert_true(qn_fault_walk_alloc(parse_once, good) > 3);
  static char broken[] = HEADER "let v = bta + alhpa;\ny[0, 0] = v +;\nlet v = f32(;\n}\n";
  assert_true(qn_fault_walk_alloc(parse_once, broken) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_literals_take_the_dtype_beside_them),
      cmocka_unit_test(test_what_does_not_fit_is_an_error),
      cmocka_unit_test(test_every_operator_parses),
      cmocka_unit_test(test_precedence),
      cmocka_unit_test(test_symbols_and_scalars_in_shapes),
      cmocka_unit_test(test_scopes_of_names),
      cmocka_unit_test(test_slashes_divide_or_comment),
      cmocka_unit_test(test_every_expression_knows_its_place),
      cmocka_unit_test(test_decimals_round_once),
      cmocka_unit_test(test_floats_print_shortest_and_come_back),
      cmocka_unit_test(test_limits),
      cmocka_unit_test(test_size_limit),
      cmocka_unit_test(test_callback_and_error_limit),
      cmocka_unit_test(test_codes_are_unique),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
