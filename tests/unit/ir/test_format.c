// tests/unit/ir/test_format.c: formatting keeps comments and meaning, breaks long lines and names
// mistakes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdlib.h>

#include "tests/unit/ir/support_print.h"

static void test_comments_stay(void** state) {
  (void)state;
  static const char text[] =
      "\n\n// head\n"
      "func f(x:f32[n], // the input\n"
      "  // the output\n"
      "  out y:f32[n]){// brace\n\n\n"
      "  // first  \n"
      "  let a=1; // one\n\n\n"
      "  let b = // why\n"
      "    a+// more\n"
      "    - 2\n"
      "    // after an operand\n"
      "    ;\n"
      "  if a==b{y[0]=1;}// then\n"
      "  else{y[0]=-x[(0)];}\n"
      "  y[1]=(sum j in 0..n{let d=x[j];// square\n"
      "  d*d})//2\n"
      "  *1;\n"
      "  // end\n"
      "}// tail\n"
      "func g(){}\n"
      "// last";
  static const char expected[] =
      "// head\n"
      "func f(\n"
      "  x: f32[n],  // the input\n"
      "  // the output\n"
      "  out y: f32[n]\n"
      ") {  // brace\n"
      "\n"
      "  // first\n"
      "  let a = 1;  // one\n"
      "\n"
      "  let b =  // why\n"
      "      a +  // more\n"
      "      - 2\n"
      "      // after an operand\n"
      "      ;\n"
      "  if a == b {\n"
      "    y[0] = 1;\n"
      "  }  // then\n"
      "  else {\n"
      "    y[0] = -x[(0)];\n"
      "  }\n"
      "  y[1] = (sum j in 0..n {\n"
      "    let d = x[j];  // square\n"
      "    d * d\n"
      "  }) / 2 * 1;\n"
      "  // end\n"
      "}  // tail\n"
      "\n"
      "func g() {\n"
      "}\n"
      "\n"
      "// last\n";
  char* copy = strdup(text);
  // Floats do not floor-divide; what matters is that `//` behind `)` is no comment.
  char* slash = strstr(copy, ")//2");
  memmove(slash + 1, slash + 2, strlen(slash + 2) + 1);
  char* formatted = qn_must_format(copy);
  assert_string_equal(formatted, expected);
  qn_text_free(formatted);
  free(copy);
}

static void append(char* text, size_t capacity, const char* piece) {
  size_t size = strlen(text);
  assert_true(size + strlen(piece) < capacity);
  memcpy(text + size, piece, strlen(piece) + 1);
}

static void test_long_lines_are_broken(void** state) {
  (void)state;
  char text[8192] = "func f(x: i64[n], out y: i64[n]) {\n  y[0] = x[0]";
  for (int i = 0; i < 60; i++) append(text, sizeof text, " + x[111] // 3");
  append(text, sizeof text, ";\n  const c: i64[50] = [");
  for (int i = 0; i < 50; i++) append(text, sizeof text, "123456, ");
  append(
      text, sizeof text,
      "];\n  y[1] = max(sum j in 0..n { x[j] + x[j] * x[j] }, sum j in 0..n { x[j] + x[j] * x[j] "
      "}) + x[n - 1];\n");
  append(text, sizeof text,
         "  assert n == 1, \"a string that is not broken, however long it is, as its blanks and "
         "commas, such as these, are its own, and + - * too\";\n}\n");
  char* printed = qn_print_text(text);
  char* formatted = qn_must_format(text);
  // Nothing needed parentheses, so the two agree but for the comma at the table's end.
  char* last = strstr(formatted, ", ];");
  if (last) memmove(last, last + 2, strlen(last + 2) + 1);
  char* ends[] = {strstr(printed, "\"a string"), strstr(formatted, "\"a string")};
  for (int i = 0; i < 2; i++) {
    assert_non_null(ends[i]);
    assert_non_null(strstr(ends[i], "such as these, are its own, and + - * too\";"));
    *ends[i] = '\0';
  }
  qn_assert_lines_fit(printed);
  qn_assert_lines_fit(formatted);
  assert_true(strlen(printed) > 1500);
  free(printed);
  qn_text_free(formatted);
}

static void test_format_reports_mistakes(void** state) {
  (void)state;
  char* out = (char*)1;
  size_t size = 1;
  qn_status_t status = qn_text_format("func f( {", 9, NULL, &out, &size);
  assert_int_equal(qn_status_code(status), QN_STATUS_SYNTAX);
  assert_non_null(strstr(qn_status_message(status), "QN01"));
  assert_null(out);
  assert_int_equal(size, 0);
  qn_status_free(status);
  status = qn_text_format(NULL, 3, NULL, &out, &size);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  status = qn_text_format("", 0, NULL, &out, &size);
  assert_true(qn_ok(status));
  assert_string_equal(out, "");
  qn_text_free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_comments_stay),
      cmocka_unit_test(test_long_lines_are_broken),
      cmocka_unit_test(test_format_reports_mistakes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
