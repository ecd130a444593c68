// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_format.c: formatting keeps comments and meaning, breaks long lines and names
// mistakes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"
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

static void test_long_statements_follow_the_rules(void** state) {
  (void)state;
  // Names and dtypes are not judged.
  static const char text[] =
      "func attention(scale: f32, q: f32[heads, queries, d] strides [sq, d, 1] align 64, "
      "k: f32[heads, keys, d], out y: f32[h, n, d]) fast {\n"
      "  alloc scratch_of_the_whole_block_of_queries: f32[ceildiv(queries * heads + 63, "
      "64) * 64, ceildiv(keys, 128) * 128 + 64] in global;\n"
      "  const table: i64[40] = [1, -2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, "
      "17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];\n"
      "  parallel a in 0..heads {\n"
      "    let hidden = gate[a] * tanh(weights[a, 0] * x[0] + weights[a, 1] * x[1]) + (1 - "
      "gate[a]) * hidden_before[a] + bias[a];\n"
      "    let cdf = 0.5 * (1 + erf(x[a, first_index_of_block + second_index_of_block] * "
      "0.70710678118 + another_rather_long_name));\n"
      "    if first_condition_of_many[a] > 3 && second_condition[a] < 4 || "
      "third_condition[a + 1] == 5 && !fourth_condition {\n"
      "      y[a, i + somewhat_long_offset_of_the_row * stride, j + "
      "somewhat_long_offset_of_the_column] = some_value[i] * 2;\n"
      "    } else if first_condition_of_many[a] > 3 && second_condition[a] < 4 && "
      "third_condition[a + 1] == 5 && ok {\n"
      "      let z = isnan(x[a]) ? first_result_with_long_name[a] : x[a] > threshold ? "
      "second_result_long[a] : last_result[a];\n"
      "      s[a, i, j] = scale * sum e in 0..dimensions { query_values[a, i, e] * "
      "key_values[a, j, e] * mask[a, i, j, e] };\n"
      "    }\n"
      "    let total = fma(first_argument_of_call[a], second_argument_of_call[a], "
      "third_argument_of_call[a] * 2 + offset_x);\n"
      "    let best, at = reduce j in 0..m { x[i, j], j } from (-inf, 0) with (a, b), (c, "
      "d) { a >= c ? a : c, a >= c ? b : d };\n"
      "    for b in first_block_of_the_task * "
      "blocks_in_a_task..min(first_block_of_the_task * blocks_in_a_task + blocks, n) {\n"
      "      assert id >= 0 && id < vocabulary_size_of_model, \"the token id is out of the "
      "range of the vocabulary that was given\";\n"
      "    }\n"
      "    y[1] = max(sum j in 0..n { x[j] + x[j] * x[j] }, sum j in 0..n { x[j] + x[j] * "
      "x[j] }) + x[n - 1] + foo(barrr);\n"
      "    let var = (sum k in 0..h { let d = words[id, k] - mean; d * d }) / f32(h);\n"
      "    let old = atomic_add(histogram_of_the_block[values_of_the_block[thread_index] "
      "// bucket_size, other_index], 1);\n"
      "    y[words_of_the_first_sentence[i + offset_of_the_first_sentence, j + "
      "offset_of_the_second_sentence_in_text]] = 1;\n"
      "  }\n"
      "}\n";
  static const char expected[] =
      "func attention(\n"
      "  scale: f32,\n"
      "  q: f32[heads, queries, d] strides [sq, d, 1] align 64,\n"
      "  k: f32[heads, keys, d],\n"
      "  out y: f32[h, n, d]\n"
      ") fast {\n"
      "  alloc scratch_of_the_whole_block_of_queries: f32[\n"
      "    ceildiv(queries * heads + 63, 64) * 64, ceildiv(keys, 128) * 128 + 64\n"
      "  ] in global;\n"
      "  const table: i64[40] = [\n"
      "    1, -2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, "
      "23, 24, 25, 26,\n"
      "    27, 28, 29\n"
      "  ];\n"
      "  parallel a in 0..heads {\n"
      "    let hidden =\n"
      "        gate[a] * tanh(weights[a, 0] * x[0] + weights[a, 1] * x[1]) +\n"
      "        (1 - gate[a]) * hidden_before[a] +\n"
      "        bias[a];\n"
      "    let cdf = 0.5 * (\n"
      "      1 + erf(\n"
      "        x[a, first_index_of_block + second_index_of_block] * 0.70710678118 +\n"
      "        another_rather_long_name\n"
      "      )\n"
      "    );\n"
      "    if first_condition_of_many[a] > 3 && second_condition[a] < 4 ||\n"
      "        third_condition[a + 1] == 5 && !fourth_condition {\n"
      "      y[a, i + somewhat_long_offset_of_the_row * stride, j + "
      "somewhat_long_offset_of_the_column] =\n"
      "          some_value[i] * 2;\n"
      "    } else if first_condition_of_many[a] > 3 &&\n"
      "        second_condition[a] < 4 &&\n"
      "        third_condition[a + 1] == 5 &&\n"
      "        ok {\n"
      "      let z =\n"
      "          isnan(x[a]) ? first_result_with_long_name[a] :\n"
      "          x[a] > threshold ? second_result_long[a] :\n"
      "          last_result[a];\n"
      "      s[a, i, j] = scale * sum e in 0..dimensions {\n"
      "        query_values[a, i, e] * key_values[a, j, e] * mask[a, i, j, e]\n"
      "      };\n"
      "    }\n"
      "    let total = fma(\n"
      "      first_argument_of_call[a],\n"
      "      second_argument_of_call[a],\n"
      "      third_argument_of_call[a] * 2 + offset_x\n"
      "    );\n"
      "    let best, at = reduce j in 0..m { x[i, j], j } from (-inf, 0) with (a, b), (c, "
      "d) {\n"
      "      a >= c ? a : c, a >= c ? b : d\n"
      "    };\n"
      "    for b in first_block_of_the_task * blocks_in_a_task..\n"
      "        min(first_block_of_the_task * blocks_in_a_task + blocks, n) {\n"
      "      assert id >= 0 && id < vocabulary_size_of_model,\n"
      "          \"the token id is out of the range of the vocabulary that was given\";\n"
      "    }\n"
      "    y[1] =\n"
      "        max(sum j in 0..n { x[j] + x[j] * x[j] }, sum j in 0..n { x[j] + x[j] * "
      "x[j] }) +\n"
      "        x[n - 1] +\n"
      "        foo(barrr);\n"
      "    let var = (sum k in 0..h {\n"
      "      let d = words[id, k] - mean;\n"
      "      d * d\n"
      "    }) / f32(h);\n"
      "    let old = atomic_add(\n"
      "      histogram_of_the_block[values_of_the_block[thread_index] // bucket_size, "
      "other_index], 1\n"
      "    );\n"
      "    y[\n"
      "      words_of_the_first_sentence[\n"
      "        i + offset_of_the_first_sentence, j + offset_of_the_second_sentence_in_text\n"
      "      ]\n"
      "    ] = 1;\n"
      "  }\n"
      "}\n";
  char* formatted = qn_must_format(text);
  assert_string_equal(formatted, expected);
  qn_text_free(formatted);
}

// Formats a file and returns whether that changed it: false for one with mistakes of grammar, which
// stays. What parses has the same canonical bytes after it.
static bool is_changed_by_format(const char* path) {
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  static char text[1 << 16];
  size_t size = fread(text, 1, sizeof text, file);
  assert_true(size < sizeof text);
  (void)fclose(file);
  char *once = NULL, *twice = NULL;
  size_t once_size, twice_size;
  qn_status_t status = qn_text_format(text, size, NULL, &once, &once_size);
  if (!qn_ok(status)) {
    assert_int_equal(qn_status_consume(status), QN_STATUS_SYNTAX);
    return false;
  }
  assert_true(qn_ok(qn_text_format(once, once_size, NULL, &twice, &twice_size)));
  if (strcmp(once, twice) != 0) fail_msg("%s: formatted again, it is\n%s", path, twice);
  qn_module_t *before = NULL, *after = NULL;
  if (qn_status_consume(qn_module_parse(text, size, NULL, &before)) == QN_STATUS_OK) {
    assert_true(qn_ok(qn_module_parse(once, once_size, NULL, &after)));
    if (memcmp(qn_module_digest(before), qn_module_digest(after), 16) != 0) {
      fail_msg("%s: formatting changes the digest", path);
    }
  }
  qn_module_release(before);
  qn_module_release(after);
  bool is_changed = once_size != size || memcmp(once, text, size) != 0;
  qn_text_free(once);
  qn_text_free(twice);
  return is_changed;
}

static void test_files_of_the_repository(void** state) {
  (void)state;
  // Texts of tests and seeds of the fuzzer need not be formatted.
  static const struct {
    const char* pattern;
    bool is_formatted;
  } folders[] = {
      {QN_SOURCE_DIR "/examples/ir/*.qn", true},
      {QN_SOURCE_DIR "/serve/bert/kernels/*.qn", true},
      {QN_SOURCE_DIR "/tests/diagnostics/*.qn", false},
      {QN_SOURCE_DIR "/tests/fuzz/corpus/text/*.qn", false},
  };
  for (size_t i = 0; i < QN_COUNT_OF(folders); i++) {
    glob_t files;
    assert_int_equal(glob(folders[i].pattern, 0, NULL, &files), 0);
    for (size_t k = 0; k < files.gl_pathc; k++) {
      bool is_changed = is_changed_by_format(files.gl_pathv[k]);
      if (is_changed && folders[i].is_formatted)
        fail_msg("%s: run quern fmt -i", files.gl_pathv[k]);
    }
    globfree(&files);
  }
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

static qn_module_t* must_format_types(const char* text, char** out_text) {
  must(qn_text_format_types(text, strlen(text), NULL, out_text, NULL));
  return must_parse(*out_text);
}

static void test_dtypes_are_written(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[n], z: f64[n], out y: f32[n], inout c: u32[1]) {\n"
      "  let a = 2.0;  // two\n"
      "  let b: f32 = sq(x[0]) + a;\n"
      "  let old = atomic_add(c[0], 1);\n"
      "  let best, at: i64 = argmax j in 0..n { let q = z[j]; q };\n"
      "  y[0] = b + f32(old) + f32(best) + f32(at);\n"
      "}\n"
      "func sq(v: f32) -> f32 { let w = v * v; return w; }\n";
  static const char expected[] =
      "func f(x: f32[n], z: f64[n], out y: f32[n], inout c: u32[1]) {\n"
      "  let a: f32 = 2.0;  // two\n"
      "  let b: f32 = sq(x[0]) + a;\n"
      "  let old: u32 = atomic_add(c[0], 1);\n"
      "  let best: f64, at: i64 = argmax j in 0..n {\n"
      "    let q: f64 = z[j];\n"
      "    q\n"
      "  };\n"
      "  y[0] = b + f32(old) + f32(best) + f32(at);\n"
      "}\n"
      "\n"
      "func sq(v: f32) -> f32 {\n"
      "  let w: f32 = v * v;\n"
      "  return w;\n"
      "}\n";
  char* typed;
  qn_module_release(must_format_types(text, &typed));
  assert_string_equal(typed, expected);
  qn_text_free(typed);
  const char* const texts[] = {text, qn_all_constructs};
  for (size_t i = 0; i < QN_COUNT_OF(texts); i++) {
    qn_module_t* before = must_parse(texts[i]);
    qn_module_t* after = must_format_types(texts[i], &typed);
    assert_true(qn_same_bytes(before, after));
    qn_text_free(typed);
    qn_module_release(after);
    qn_module_release(before);
  }
  must_fail(qn_text_format_types("func f() { let a = b; }", 23, NULL, &typed, NULL),
            QN_STATUS_SYNTAX, "QN0103");
  assert_null(typed);
}

static void test_literals_take_a_written_dtype(void** state) {
  (void)state;
  qn_module_t* written = must_parse(
      "func f(out y: f64[1], out k: i64[1]) {\n"
      "  let a: f64 = 0.1 + 2;\n"
      "  let m: f64, at: i64 = argmin i in 0..3 { 0.1 };\n"
      "  y[0] = a + m;\n"
      "  k[0] = at;\n"
      "}\n");
  qn_module_t* converted = must_parse(
      "func f(out y: f64[1], out k: i64[1]) {\n"
      "  let a = f64(0.1 + 2);\n"
      "  let m, at = argmin i in 0..3 { f64(0.1) };\n"
      "  y[0] = a + m;\n"
      "  k[0] = at;\n"
      "}\n");
  assert_true(qn_same_bytes(written, converted));
  qn_module_release(converted);
  qn_module_release(written);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_comments_stay),
      cmocka_unit_test(test_long_lines_are_broken),
      cmocka_unit_test(test_long_statements_follow_the_rules),
      cmocka_unit_test(test_files_of_the_repository),
      cmocka_unit_test(test_format_reports_mistakes),
      cmocka_unit_test(test_dtypes_are_written),
      cmocka_unit_test(test_literals_take_a_written_dtype),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
