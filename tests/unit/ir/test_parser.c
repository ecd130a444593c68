// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_parser.c: tests the meaning of texts: dtypes of literals, operators, scopes,
// names, places, strings.
//
// Elsewhere: limits and messages (test_parser_errors.c; with carets in tests/diagnostics), numbers
// (test_decimal.c), printing and parsing (test_printer.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "ir/lexer.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_parse.h"

// The value of `let r = EXPR;` as its dtype and canonical text, "f32 a + 1.0".
static void assert_typed(const char* expr, const char* expected) {
  char text[1024];
  (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s;\n}\n", expr);
  qn_parsed_t p;
  qn_parse_text(&p, text);
  if (!p.is_good) fail_msg("%s:\n%s", expr, (const char*)p.diag.text.data);
  const qn__ir_expr_t* value = p.body.first->body.last->let.value;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__buffer_format(&out, "%s ", qn_dtype_text(value->dtype));
  qn__text_print_expr(value, &out);
  assert_string_equal((const char*)out.data, expected);
  qn__buffer_deinit(&out);
  qn_parsed_release(&p);
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
      {"ldexp(k, 3)", "QN0115"},
      {"ldexp(a, a)", "QN0115"},
      {"ldexp(a, i64(3))", "QN0115"},
      {"ldexp(a, 3.0)", "QN0118"},
      {"ldexp(a, 2147483648)", "QN0117"},
      {"nextafter(k, k)", "QN0115"},
      {"nextafter(a, h)", "QN0114"},
      {"nextafter(a)", "QN0124"},
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
    (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s;\n}\n", cases[i].expr);
    qn_assert_error(text, cases[i].code);
  }
}

static void test_every_operator_parses(void** state) {
  (void)state;
  for (int op = 1; op < QN_OP_COUNT; op++) {
    const qn__ir_op_info_t* info = qn__op_info((qn_op_t)op);
    assert_non_null(info);
    const char* operand = "a";
    if (info->rule == QN__RULE_INTEGER || info->rule == QN__RULE_BITWISE ||
        info->rule == QN__RULE_SHIFT) {
      operand = "k";
    }
    if (info->rule == QN__RULE_LOGIC) operand = "o";
    char text[1024];
    const char* first = info->rule == QN__RULE_SELECT ? "o" : operand;
    const char* second =
        info->rule == QN__RULE_LANE || info->rule == QN__RULE_SCALE ? "0" : operand;
    if (info->rule == QN__RULE_AXES) second = "thread.y, thread.x";
    if (info->arity == 0) {
      (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s();\n}\n", info->text);
    } else if (info->syntax == QN__SYNTAX_INFIX) {
      (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s %s %s;\n}\n", first, info->text,
                     second);
    } else if (info->syntax == QN__SYNTAX_PREFIX) {
      (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s%s;\n}\n", info->text, first);
    } else if (info->arity == 1) {
      (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s(%s);\n}\n", info->text, first);
    } else if (info->arity == 2) {
      (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s(%s, %s);\n}\n", info->text,
                     first, second);
    } else {
      (void)snprintf(text, sizeof text, QN_PARSE_HEADER "let r = %s(%s, %s, %s);\n}\n", info->text,
                     first, second, operand);
    }
    qn_parsed_t p;
    qn_parse_text(&p, text);
    if (!p.is_good) fail_msg("%s\n%s", text, (const char*)p.diag.text.data);
    const qn__ir_expr_t* value = p.body.first->body.first->let.value;
    assert_int_equal(value->kind, QN__EXPR_OP);
    assert_int_equal(value->op, op);
    for (uint32_t i = 0; i < info->arity; i++) assert_non_null(value->args[i]);
    qn_parsed_release(&p);
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
    qn_parsed_t p[2];
    for (int side = 0; side < 2; side++) {
      (void)snprintf(text[side], sizeof text[side], QN_PARSE_HEADER "let r = %s;\n}\n",
                     cases[i][side]);
      qn_parse_text(&p[side], text[side]);
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
      qn_parsed_release(&p[side]);
    }
  }
}

static void test_symbols_and_scalars_in_shapes(void** state) {
  (void)state;
  qn_parsed_t p;
  qn_parse_text(
      &p,
      "func f(x: f32[b, n + 2, later], y: f32[a * n, c], a: i64, later: i32, z: f32[i64(later), "
      "m] strides [s, 1]) {\n}\n");
  assert_true(p.is_good);
  const qn__ir_func_t* f = p.body.first;
  static const char* const names[] = {"b", "n", "c", "m", "s"};
  assert_int_equal(f->symbol_count, QN_COUNT_OF(names));
  for (size_t i = 0; i < QN_COUNT_OF(names); i++) {
    assert_string_equal(f->symbols[i]->name, names[i]);
    assert_int_equal(f->symbols[i]->kind, QN__VAR_SYMBOL);
    assert_int_equal(f->symbols[i]->dtype, QN_DTYPE_I64);
  }
  assert_int_equal(f->param_count, 5);
  // A scalar that is declared later is no symbol; one of another dtype is converted.
  const qn__ir_expr_t* later = f->params[0].buffer->shape[2];
  assert_int_equal(later->kind, QN__EXPR_CAST);
  assert_int_equal(later->dtype, QN_DTYPE_I64);
  assert_ptr_equal(later->args[0]->var, f->params[3].scalar);
  const qn__ir_expr_t* product = f->params[1].buffer->shape[0];
  assert_int_equal(product->op, QN_OP_MUL);
  assert_ptr_equal(product->args[0]->var, f->params[2].scalar);
  assert_ptr_equal(product->args[1]->var, f->symbols[1]);
  // An explicit conversion says the same.
  const qn__ir_expr_t* written = f->params[4].buffer->shape[0];
  assert_int_equal(written->kind, QN__EXPR_CAST);
  assert_int_equal(written->args[0]->kind, QN__EXPR_VAR);
  assert_int_equal(f->params[4].buffer->access, QN_ACCESS_IN);
  qn_parsed_release(&p);
}

static void test_scopes_of_names(void** state) {
  (void)state;
  qn_parsed_t p;
  // Inner blocks may shadow locals, siblings may use a name again, and the value of a let does not
  // see the name.
  qn_parse_text(&p, QN_PARSE_HEADER
                "let v = 1;\n"
                "for i in 0..n { let v = v + i; for j in 0..v { let i = j; } }\n"
                "for i in 0..n { let w = v; }\n"
                "let w = sum i in 0..n { let v = i; v };\n"
                "}\n");
  if (!p.is_good) fail_msg("%s", (const char*)p.diag.text.data);
  const qn__ir_stmt_t* outer = p.body.first->body.first;
  const qn__ir_stmt_t* inner = outer->next->loop.body.first;
  assert_ptr_equal(inner->let.value->args[0]->var, outer->let.var);
  qn_parsed_release(&p);
  qn_assert_error(QN_PARSE_HEADER "let v = 1;\nlet v = 2;\n}\n", "QN0113");
  qn_assert_error(QN_PARSE_HEADER "let n = 1;\n}\n", "QN0113");
  qn_assert_error(QN_PARSE_HEADER "for i in 0..n { for a in 0..n { } }\n}\n", "QN0113");
  qn_assert_error(QN_PARSE_HEADER "for i in 0..n { let i = 1; }\n}\n", "QN0113");
  qn_assert_error(QN_PARSE_HEADER "if o { let v = 1; }\nlet w = v;\n}\n", "QN0103");
  qn_assert_error(QN_PARSE_HEADER "let v = v;\n}\n", "QN0103");
  qn_assert_error(QN_PARSE_HEADER "for i in 0..i { }\n}\n", "QN0103");
  qn_assert_error(QN_PARSE_HEADER "let s = sum j in 0..n { j } + j;\n}\n", "QN0103");
}

static void test_slashes_divide_or_comment(void** state) {
  (void)state;
  qn_parsed_t p;
  qn_parse_text(&p, QN_PARSE_HEADER
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
  const qn__ir_stmt_t* first = p.body.first->body.first;
  assert_int_equal(first->let.value->op, QN_OP_FLOORDIV);
  assert_int_equal(first->next->let.value->op, QN_OP_ADD);
  qn_parsed_release(&p);
}

typedef struct place {
  const char* text;
  qn_str_t wanted;
  bool is_found;
} place_t;

static bool look_at(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  place_t* place = walker->self;
  assert_true(expr->loc.size > 0);
  qn_str_t slice = {place->text + expr->loc.begin, expr->loc.size};
  if (qn__str_equal(slice, place->wanted)) place->is_found = true;
  return true;
}

static void test_every_expression_knows_its_place(void** state) {
  (void)state;
  static const char text[] = QN_PARSE_HEADER
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
  qn_parsed_t p;
  qn_parse_text(&p, text);
  assert_true(p.is_good);
  for (size_t i = 0; i < QN_COUNT_OF(wanted); i++) {
    place_t place = {text, qn__str(wanted[i]), false};
    qn__ir_walker_t walker = {.on_expr = look_at, .self = &place};
    assert_true(qn__walk_block(&walker, &p.body.first->body));
    if (!place.is_found) fail_msg("no expression is at '%s'", wanted[i]);
  }
  const qn__ir_stmt_t* store = p.body.first->body.first;
  assert_int_equal(store->loc.size, strlen("y[0, k + 1]"));
  qn_parsed_release(&p);
}

static void test_names(void** state) {
  (void)state;
  static const char* const good[] = {"a", "_", "x1", "sum", "max", "block", "local", "strides"};
  static const char* const bad[] = {"",     "1a",   "a-b", "f32",     "in",
                                    "func", "true", "nan", "\xc3\xa9"};
  for (size_t i = 0; i < QN_COUNT_OF(good); i++) assert_true(qn__text_is_name(qn__str(good[i])));
  for (size_t i = 0; i < QN_COUNT_OF(bad); i++) assert_false(qn__text_is_name(qn__str(bad[i])));
  // Names of operators and reductions are no reserved words.
  qn_parsed_t p;
  qn_parse_text(
      &p,
      "func exp(max: f32[n], out sum: f32[n], strides: f32[strides2] strides [n]) {\n"
      "  let min = max[0];\n"
      "  sum[0] = min(min, max[1]) + (sum sum2 in 0..n { max[sum2] }) + strides[0];\n}\n");
  if (!p.is_good) fail_msg("%s", (const char*)p.diag.text.data);
  qn_parsed_release(&p);
  // Names have no longest length; only messages leave long ones out.
  assert_typed("sum a_name_of_more_than_forty_characters_0123456789 in 0..4 { 1.0 }",
               "f32 sum a_name_of_more_than_forty_characters_0123456789 in 0..4 { 1.0 }");
}

static void test_strings(void** state) {
  (void)state;
  qn_parsed_t p;
  qn_parse_text(
      &p, QN_PARSE_HEADER "assert o, \"a\\\"b\\\\c\\n\\t\\x01\\xff \xc3\xa9\";\nassert o;\n}\n");
  assert_true(p.is_good);
  const qn__ir_stmt_t* stmt = p.body.first->body.first;
  assert_string_equal(stmt->assert_.message, "a\"b\\c\n\t\x01\xff \xc3\xa9");
  assert_string_equal(stmt->next->assert_.message, "");
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__lexer_escape(qn__str(stmt->assert_.message), &out);
  assert_string_equal((const char*)out.data, "\"a\\\"b\\\\c\\n\\t\\x01\\xff \xc3\xa9\"");
  qn__buffer_deinit(&out);
  qn_parsed_release(&p);
}

// A byte order mark is no part of the text: columns begin after it. Elsewhere it is a mistake.
static void test_byte_order_mark(void** state) {
  (void)state;
  static const char text[] =
      "\xef\xbb\xbf"
      "func f(out y: f32[n]) {\n  y[0] = 1.0;\n}\n";
  qn_module_t *marked = must_parse(text), *plain = must_parse(text + 3);
  assert_memory_equal(qn_module_digest(marked), qn_module_digest(plain), 16);
  qn_module_release(marked);
  qn_module_release(plain);
  char* laid_out;
  must(qn_text_format(text, strlen(text), NULL, &laid_out, NULL));
  assert_string_equal(laid_out, text + 3);
  qn_text_free(laid_out);
  must_fail(qn_module_parse("\xef\xbb\xbfx", 4, NULL, &marked), QN_STATUS_SYNTAX, "<text>:1:1\n");
  must_fail(qn_module_parse(" \xef\xbb\xbf", 4, NULL, &marked), QN_STATUS_SYNTAX, "<text>:1:2\n");
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
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_byte_order_mark),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
