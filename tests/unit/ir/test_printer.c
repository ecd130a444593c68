// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_printer.c: print then parse gives the same module and the same text; layout.
//
// Not here: random trees (test_printer_random.c), the formatter's comments and lines
// (test_format.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/fault.h"
#include "tests/unit/ir/support_print.h"

static const char* const examples[] = {
    "embed_layernorm", "matmul_tile", "saxpy",      "softmax",     "transpose_shared",
    "two_launches",    "histogram",   "fir_filter", "newton_sqrt", "block_norm"};

static char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) fail_msg("cannot open '%s'", path);
  char* text = malloc(1 << 20);
  assert_non_null(text);
  text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
  fclose(file);
  return text;
}

// `text` without the lines that are comments.
static void drop_comment_lines(char* text) {
  char* to = text;
  for (char* line = text; *line;) {
    char* end = strchr(line, '\n');
    size_t size = end ? (size_t)(end - line) + 1 : strlen(line);
    char* first = line + strspn(line, " ");
    if (strncmp(first, "//", 2) != 0) {
      memmove(to, line, size);
      to += size;
    }
    line += size;
  }
  *to = '\0';
}

static void test_examples_are_canonical(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(examples); i++) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/examples/ir/%s.qn", QN_SOURCE_DIR, examples[i]);
    char* text = read_file(path);
    char* formatted = qn_must_format(text);
    assert_string_equal(text, formatted);
    qn_text_free(formatted);
    // Without comments the text is what the printer writes.
    char* printed = qn_print_text(text);
    drop_comment_lines(text);
    assert_string_equal(printed, text);
    qn_assert_lines_fit(printed);
    free(printed);
    free(text);
  }
}

// The statement is printed as `expected`.
static void assert_printed(const char* stmt, const char* expected) {
  static const char header[] =
      "func f(x: f32[n, m], out y: f32[n, m], a: f32, h: f16, d: f64, k: i32, q: i8, u: u64, o: "
      "bool) {\n";
  char text[4096];
  (void)snprintf(text, sizeof text, "%s%s\n}\n", header, stmt);
  char* printed = qn_print_text(text);
  const char* body = strstr(printed, "{\n");
  assert_non_null(body);
  body += 2;
  size_t size = strlen(body);
  assert_true(size >= 2);
  printed[(size_t)(body - printed) + size - 3] = '\0';  // "\n}\n"
  assert_string_equal(body, expected);
  free(printed);
}

static void test_literals_are_bare_where_they_may_be(void** state) {
  (void)state;
  assert_printed("let v = i64(1);", "  let v = 1;");
  assert_printed("let v = f32(1.0);", "  let v = 1.0;");
  assert_printed("let v = i32(1);", "  let v = i32(1);");
  assert_printed("let v = i32(1) + i32(2) * k;", "  let v = 1 + 2 * k;");
  assert_printed("let v = i32(1) + i32(2);", "  let v = i32(1) + 2;");
  assert_printed("let v = i32(1) < i32(2);", "  let v = i32(1) < 2;");
  assert_printed("let v = f64(1) < f64(2) + f64(3);", "  let v = f64(1.0) < 2.0 + 3.0;");
  assert_printed("let v = i32(i64(1));", "  let v = i32(i64(1));");
  assert_printed("let v = f32(f64(1.5));", "  let v = f32(f64(1.5));");
  assert_printed("y[0, 0] = f32(1.0) + f32(2.0);", "  y[0, 0] = 1.0 + 2.0;");
  assert_printed("y[i8(0), i64(1)] = 1;", "  y[i8(0), 1] = 1.0;");
  assert_printed("let v = select(o, f16(1.0), f16(2.0));", "  let v = select(o, f16(1.0), 2.0);");
  assert_printed("let v = o ? 1 : k;", "  let v = o ? 1 : k;");
  assert_printed("let v = o ? i8(1) : i8(2);", "  let v = o ? i8(1) : 2;");
  assert_printed("let v = isnan(f64(1.0));", "  let v = isnan(f64(1.0));");
  assert_printed("let v = bitcast(i64, f64(1.0));", "  let v = bitcast(i64, f64(1.0));");
  assert_printed("let v = sum j in 0..n { i32(1) };", "  let v = sum j in 0..n { i32(1) };");
  assert_printed("let v = k * sum j in 0..n { i32(1) };", "  let v = k * (sum j in 0..n { 1 });");
  assert_printed("let v = -(i32(5));", "  let v = -(i32(5));");
  assert_printed("let v = - -5;", "  let v = -(-5);");
  assert_printed("let v = --k;", "  let v = --k;");
  assert_printed("let v = 1e30 + a;", "  let v = 1e30 + a;");
  assert_printed("let v = 0x10 + n;", "  let v = 16 + n;");
  assert_printed("let v = u + 0xffffffffffffffff;", "  let v = u + 18446744073709551615;");
}

static void test_parentheses_are_few(void** state) {
  (void)state;
  assert_printed("let v = ((1 + (2 * n)) - ((3)));", "  let v = 1 + 2 * n - 3;");
  assert_printed("let v = 1 - (2 - n);", "  let v = 1 - (2 - n);");
  assert_printed("let v = (1 + 2) * n;", "  let v = (1 + 2) * n;");
  assert_printed("let v = -(n + 1);", "  let v = -(n + 1);");
  assert_printed("let v = !(n < 1);", "  let v = !(n < 1);");
  assert_printed("let v = (n < 1) == o;", "  let v = (n < 1) == o;");
  assert_printed("let v = (o ? 1 : 2) + n;", "  let v = (o ? 1 : 2) + n;");
  assert_printed("let v = o ? (o ? 1 : 2) : n;", "  let v = o ? o ? 1 : 2 : n;");
  assert_printed("let v = (o ? o : o) ? 1 : n;", "  let v = (o ? o : o) ? 1 : n;");
  assert_printed("let v = (o && o) || o && (o || o);", "  let v = o && o || o && (o || o);");
  assert_printed("let v = n // (m // 2) % 3;", "  let v = n // (m // 2) % 3;");
}

static void test_statements(void** state) {
  (void)state;
  assert_printed("if o { } else { if o { } else { } }", "  if o {\n  } else if o {\n  }");
  assert_printed("if o { } else { if o { } let v = 1; }",
                 "  if o {\n  } else {\n    if o {\n    }\n    let v = 1;\n  }");
  assert_printed("const c:i8[2,2]=[1,-2,i8(3),127,];", "  const c: i8[2, 2] = [1, -2, 3, 127];");
  assert_printed("alloc l:f32[]in local;l[]=1;", "  alloc l: f32[] in local;\n  l[] = 1.0;");
  assert_printed("view w:f32[n]strides[2*m]=x[1,0];",
                 "  view w: f32[n] strides [2 * m] = x[1, 0];");
  assert_printed("let old=atomic_add(y[0,0],1);atomic_cas(y[0,0],0,1.5);",
                 "  let old = atomic_add(y[0, 0], 1.0);\n  atomic_cas(y[0, 0], 0.0, 1.5);");
  assert_printed("assert o,\"\\x41\\\"\";assert o,\"\";", "  assert o, \"A\\\"\";\n  assert o;");
  assert_printed("let v=sum j in 0..n{let e=x[j,0];let g=e*e;g+e};",
                 "  let v = sum j in 0..n {\n    let e = x[j, 0];\n    let g = e * e;\n    g + e\n"
                 "  };");
}

static void test_names_are_made_unambiguous(void** state) {
  (void)state;
  assert_printed("let v = 1; for i in 0..n { let v = v + i; y[i, 0] = f32(v); }",
                 "  let v = 1;\n  for i in 0..n {\n    let v_1 = v + i;\n    y[i, 0] = f32(v_1);\n"
                 "  }");
  assert_printed("for i in 0..n { } for i in 0..n { }",
                 "  for i in 0..n {\n  }\n  for i in 0..n {\n  }");
  // What a pass may leave behind: two values of one name in one block, and none at all.
  qn__ir_body_t body;
  must_parse_body(
      "func f(out y: i64[4]) {\n  let a = 1;\n  let a_1 = 2;\n  let b = 3;\n  let c = 4;\n"
      "  y[0] = a + a_1 + b + c;\n}\n",
      &body);
  qn__ir_stmt_t* stmt = body.first->body.first;
  stmt->next->next->let.var->name = "a";
  stmt->next->next->next->let.var->name = NULL;
  char* text = qn_print_twice(&body);
  assert_string_equal(text,
                      "func f(out y: i64[4]) {\n  let a = 1;\n  let a_1 = 2;\n  let a_2 = 3;\n"
                      "  let v = 4;\n  y[0] = a + a_1 + a_2 + v;\n}\n");
  free(text);
  stmt->let.var->name = "for";  // no name that a text could have
  text = qn_print_twice(&body);
  assert_non_null(strstr(text, "let v = 1;"));
  free(text);
  qn__body_deinit(&body);
}

static void test_lanes_are_comments(void** state) {
  (void)state;
  qn__ir_body_t body;
  must_parse_body(
      "func f(x: f32[n], out y: f32[n]) {\n  for i in 0..n {\n    y[i] = 2.0 * (sum j in 0..n "
      "{ x[j] });\n  }\n}\n",
      &body);
  qn__ir_stmt_t* loop = body.first->body.first;
  loop->loop.lane_count = 8;
  loop->loop.body.first->store.value->args[1]->reduce.lane_count = 4;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__text_print(&body, &out);
  assert_string_equal((const char*)out.data,
                      "func f(x: f32[n], out y: f32[n]) {\n"
                      "  for i in 0..n {  // 8 lanes\n"
                      "    y[i] = 2.0 * (sum j in 0..n {  // 4 lanes\n"
                      "      x[j]\n"
                      "    });\n"
                      "  }\n}\n");
  // The marks are no part of the meaning: the tree that comes back has none.
  qn__ir_body_t again;
  must_parse_body((const char*)out.data, &again);
  assert_int_equal(again.first->body.first->loop.lane_count, 0);
  assert_true(
      qn__expr_equal(again.first->body.first->loop.body.first->store.value->args[1]->reduce.begin,
                     loop->loop.body.first->store.value->args[1]->reduce.begin));
  qn__body_deinit(&again);
  // The formatter leaves such a dump alone.
  char* formatted = qn_must_format((const char*)out.data);
  assert_string_equal(formatted, (const char*)out.data);
  qn_text_free(formatted);
  qn__buffer_deinit(&out);
  qn__body_deinit(&body);
}

// ------------------------------------------------------------------------------------ memory

static bool print_once(qn_allocator_t allocator, void* user) {
  qn__buffer_t out;
  qn__buffer_init(&out, allocator);
  qn__text_print(user, &out);
  bool is_good = out.has_failed || strstr((const char*)out.data, "v_1") != NULL;
  qn__buffer_deinit(&out);
  return is_good;
}

static bool format_once(qn_allocator_t allocator, void* user) {
  qn__buffer_t out;
  qn__buffer_init(&out, allocator);
  qn_status_code_t code = qn_status_consume(qn__text_format(qn__str(user), allocator, &out));
  qn__buffer_deinit(&out);
  return code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY;
}

static void test_out_of_memory(void** state) {
  (void)state;
  static char text[] =
      "func f(x: f32[n, m], a_parameter_of_a_long_name: f32, another_one_that_is_long: f32, out y: "
      "f32[n, m]) {\n  let v = 1;\n  for i in 0..n { let v = v + i;\n // comment\n }\n}\n";
  qn__ir_body_t body;
  must_parse_body(text, &body);
  assert_true(qn_fault_walk_alloc(print_once, &body) > 3);
  assert_true(qn_fault_walk_alloc(format_once, text) > 3);
  qn__body_deinit(&body);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_examples_are_canonical),
      cmocka_unit_test(test_literals_are_bare_where_they_may_be),
      cmocka_unit_test(test_parentheses_are_few),
      cmocka_unit_test(test_statements),
      cmocka_unit_test(test_names_are_made_unambiguous),
      cmocka_unit_test(test_lanes_are_comments),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
