// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_json.c: what is JSON, what is not, and where the error is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/json.h"

static bool is_json(const char* text, size_t size) {
  serve_json_t json;
  serve_json_init(&json, text, size);
  (void)serve_json_skip(&json);
  return serve_json_end(&json);
}

static void test_valid(void** state) {
  (void)state;
  static const char* const texts[] = {"1",
                                      " null ",
                                      "true",
                                      "\"\"",
                                      "[]",
                                      "{}",
                                      "[[],{}]",
                                      "{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":1}",
                                      "[1 , 2\n,\t3]",
                                      "\"\\ud83d\\ude00\\n\\/\"",
                                      "{\"\":0}",
                                      "{\"a\":1,\"a\":2}",
                                      "[-0.5e-3]"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    if (!is_json(texts[i], strlen(texts[i]))) fail_msg("refused: %s", texts[i]);
    // No prefix of an array or an object is JSON.
    for (size_t size = 0; (texts[i][0] | 32) == '{' && size < strlen(texts[i]); ++size) {
      assert_false(is_json(texts[i], size));
    }
  }
}

static void test_errors(void** state) {
  (void)state;
  static const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "the body: byte 0: expected a value"},
      {"[1,]", "byte 3: expected a value"},
      {"[1 2]", "byte 3: expected ',' or ']'"},
      {"[1}", "byte 2: expected ',' or ']'"},
      {"{\"a\" 1}", "byte 5: expected ':'"},
      {"{\"a\":1,}", "byte 7: expected the name of a member"},
      {"{a:1}", "byte 1: expected the name of a member"},
      {"{\"a\\u0000b\":1}", "byte 1: expected a name without U+0000"},
      {"[1]x", "byte 3: expected the end"},
      {"tru", "byte 0: expected true or false"},
      {"nul", "byte 0: expected null"},
      {"\"a", "byte 2: expected the end of a string"},
      {"\"\\x\"", "byte 2: expected an escape sequence"},
      {"\"\\u12g4\"", "byte 5: expected four hexadecimal digits"},
      {"\"\\ud800\"", "expected the second half of a surrogate pair"},
      {"\"\\ud800\\u0041\"", "expected the second half of a surrogate pair"},
      {"\"\\udc00\"", "expected the second half of a surrogate pair"},
      {"\"\x01\"", "byte 1: expected an escape sequence for a control character"},
      {"\"\xff\"", "byte 1: expected UTF-8"},
      {"\"\xc0\x80\"", "byte 1: expected UTF-8"},
      {"\"\xed\xa0\x80\"", "byte 1: expected UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "byte 1: expected UTF-8"},
      {"01", "expected a number"},
      {"[NaN]", "byte 1: expected a value"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    serve_json_t json;
    serve_json_init(&json, cases[i].text, strlen(cases[i].text));
    (void)serve_json_skip(&json);
    assert_false(serve_json_end(&json));
    qn_status_t status = serve_json_status(&json, "the body");
    if (!strstr(qn_status_message(status), cases[i].message)) {
      fail_msg("%s: %s", cases[i].text, qn_status_message(status));
    }
    qn_status_free(status);
  }
}

static void test_empty(void** state) {
  (void)state;
  serve_json_t json;
  int64_t value = 0;
  serve_json_init(&json, NULL, 0);
  assert_int_equal(serve_json_peek(&json), SERVE_JSON_NONE);
  assert_false(serve_json_i64(&json, &value));
  assert_false(serve_json_end(&json));
}

static void test_depth(void** state) {
  (void)state;
  char text[2 * SERVE_JSON_MAX_DEPTH + 2];
  const size_t depth = SERVE_JSON_MAX_DEPTH;
  memset(text, '[', depth);
  memset(text + depth, ']', depth);
  assert_true(is_json(text, 2 * depth));
  memset(text, '[', depth + 1);
  memset(text + depth + 1, ']', depth + 1);
  assert_false(is_json(text, 2 * depth + 2));
}

// Reads a request as a server would.
static void test_request(void** state) {
  (void)state;
  static const char text[] =
      " {\"id\": \"a\\u00e9\\ud83d\\ude00\", \"other\": [{}, \"x\"], \"normalize\" : false,\n"
      "  \"data\": [[1, -2], [[3]], [], 4], \"scale\": 1.5e1, \"none\": null} ";
  serve_json_t json;
  serve_json_init(&json, text, sizeof text - 1);
  serve_buffer_t id = {.data = NULL};
  bool is_normal = true;
  int64_t data[8];
  size_t count = 0;
  double scale = 0;
  assert_int_equal(serve_json_peek(&json), SERVE_JSON_OBJECT);
  assert_true(serve_json_object(&json));
  while (serve_json_member(&json)) {
    if (strcmp(json.key, "id") == 0) {
      assert_true(serve_json_string(&json, &id));
    } else if (strcmp(json.key, "normalize") == 0) {
      assert_true(serve_json_bool(&json, &is_normal));
    } else if (strcmp(json.key, "data") == 0) {
      uint32_t nest = 0;
      assert_true(serve_json_array(&json));
      while (serve_json_leaf(&json, &nest)) {
        assert_true(count < 8 && serve_json_i64(&json, &data[count++]));
      }
    } else if (strcmp(json.key, "scale") == 0) {
      assert_true(serve_json_f64(&json, &scale));
    } else {
      assert_true(serve_json_skip(&json));
    }
  }
  assert_true(serve_json_end(&json));
  assert_int_equal(id.size, 7);
  assert_memory_equal(id.data, "a\xc3\xa9\xf0\x9f\x98\x80", 7);
  serve_buffer_free(&id);
  assert_false(is_normal);
  assert_int_equal(count, 4);
  assert_true(data[0] == 1 && data[1] == -2 && data[2] == 3 && data[3] == 4);
  assert_true(scale == 15.0);
}

// The first error stays, and nothing is read after it.
static void test_sticky(void** state) {
  (void)state;
  serve_json_t json;
  serve_json_init(&json, "[1, x]", 6);
  int64_t value = 0;
  assert_true(serve_json_array(&json));
  assert_true(serve_json_element(&json));
  assert_true(serve_json_i64(&json, &value));
  assert_true(serve_json_element(&json));
  assert_false(serve_json_i64(&json, &value));
  assert_false(serve_json_element(&json));
  assert_false(serve_json_skip(&json));
  assert_false(serve_json_end(&json));
  assert_int_equal(serve_json_peek(&json), SERVE_JSON_NONE);
  assert_int_equal(json.problem_at, 4);
}

static void test_long_name(void** state) {
  (void)state;
  char text[400] = "{\"";
  memset(text + 2, 'k', 300);
  memcpy(text + 302, "\":1}", 5);
  serve_json_t json;
  serve_json_init(&json, text, strlen(text));
  assert_true(serve_json_object(&json));
  assert_true(serve_json_member(&json));
  assert_int_equal(strlen(json.key), SERVE_JSON_KEY_BYTES - 1);
  assert_true(serve_json_skip(&json));
  assert_false(serve_json_member(&json));
  assert_true(serve_json_end(&json));
}

static void expect_put(const serve_buffer_t* buffer, const char* expected) {
  assert_int_equal(buffer->size, strlen(expected));
  assert_memory_equal(buffer->data, expected, buffer->size);
}

static void test_put(void** state) {
  (void)state;
  serve_buffer_t out = {.data = NULL};
  serve_json_put_string(&out, "a\"\\\n\x1f\x7f\xc3\xa9\xff\xf0\x9f\x98", 12);
  expect_put(&out, "\"a\\\"\\\\\\u000a\\u001f\x7f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"");
  assert_true(is_json(out.data, out.size));
  serve_buffer_clear(&out);
  serve_json_put_string(&out, NULL, 0);
  expect_put(&out, "\"\"");
  serve_buffer_clear(&out);
  serve_json_put_i64s(&out, (int64_t[]){1, -20, INT64_MIN}, 3);
  expect_put(&out, "1,-20,-9223372036854775808");
  serve_buffer_clear(&out);
  serve_json_put_f32s(&out, (float[]){0.5f, INFINITY, -1e-30f}, 3);
  expect_put(&out, "0.5,null,-1e-30");
  static const char* const coded[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                      "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t size = 0; size < sizeof coded / sizeof coded[0]; ++size) {
    serve_buffer_clear(&out);
    serve_json_put_base64(&out, "foobar", size);  // RFC 4648, section 10
    expect_put(&out, coded[size]);
  }
  serve_buffer_free(&out);
}

static void test_buffer(void** state) {
  (void)state;
  serve_buffer_t buffer = {.data = NULL};
  for (int i = 0; i < 1000; ++i) serve_buffer_format(&buffer, "%d,", i);
  assert_int_equal(buffer.size, 3890);
  assert_true(qn_ok(serve_buffer_status(&buffer, "numbers")));
  assert_null(serve_buffer_extend(&buffer, SIZE_MAX / 2));
  serve_buffer_text(&buffer, "lost");
  assert_int_equal(buffer.size, 3890);
  qn_status_t status = serve_buffer_status(&buffer, "numbers");
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
  qn_status_free(status);
  serve_buffer_free(&buffer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_valid),     cmocka_unit_test(test_errors),
      cmocka_unit_test(test_empty),     cmocka_unit_test(test_depth),
      cmocka_unit_test(test_request),   cmocka_unit_test(test_sticky),
      cmocka_unit_test(test_long_name), cmocka_unit_test(test_put),
      cmocka_unit_test(test_buffer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
