// SPDX-License-Identifier: Apache-2.0
// Answers of the four protocols: right ones, and those that lack what was asked for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "bench/serve/protocol.h"

static const char* read_text(protocol_kind_t kind, const char* body, int64_t json_bytes,
                             protocol_answer_t* out_answer) {
  protocol_t protocol = {.kind = kind, .host = "h", .prefix = "", .model = "m"};
  return protocol_read(&protocol, 3, (const uint8_t*)body, strlen(body), json_bytes, out_answer);
}

static void expect_values(protocol_kind_t kind, const char* body) {
  protocol_answer_t answer;
  const char* wrong = read_text(kind, body, -1, &answer);
  if (wrong) fail_msg("%s: %s", wrong, body);
  assert_int_equal(answer.count, 2);
  assert_int_equal(answer.width, 2);
  static const float expected[] = {1, -0.5F, 2, 0.25F};
  assert_memory_equal(answer.values, expected, sizeof expected);
  protocol_answer_free(&answer);
}

static void expect_wrong(protocol_kind_t kind, const char* body, const char* message) {
  protocol_answer_t answer;
  const char* wrong = read_text(kind, body, -1, &answer);
  assert_null(answer.values);
  assert_non_null(wrong);
  assert_string_equal(wrong, message);
}

static void test_tei(void** state) {
  (void)state;
  expect_values(PROTOCOL_TEI, "[[1, -5e-1], [2.0, 0.25]]");
  expect_wrong(PROTOCOL_TEI, "[[1, 2], [3]]", "embeddings differ in width");
  expect_wrong(PROTOCOL_TEI, "[[1, 2], [3, null]]", "a value is not a number");
  expect_wrong(PROTOCOL_TEI, "[[1, 1e39]]", "a value is not finite");
  expect_wrong(PROTOCOL_TEI, "[]", "the answer has no values");
  expect_wrong(PROTOCOL_TEI, "[[]]", "the answer has no values");
  expect_wrong(PROTOCOL_TEI, "{}", "the answer is not a list");
  expect_wrong(PROTOCOL_TEI, "[[1, 2]", "the answer is not JSON");
  expect_wrong(PROTOCOL_TEI, "", "the answer is not JSON");
}

static void test_openai(void** state) {
  (void)state;
  expect_values(PROTOCOL_OPENAI,
                "{\"data\":[{\"index\":0,\"embedding\":[1,-0.5]},{\"embedding\":[2,0.25]}]}");
  expect_values(PROTOCOL_OPENAI,
                "{\"data\":[{\"embedding\":\"AACAPwAAAL8=\"},{\"embedding\":\"AAAAQAAAgD4\"}]}");
  expect_wrong(PROTOCOL_OPENAI, "{\"data\":[{\"embedding\":\"AACAPwA=\"}]}",
               "base64 is not a list of f32");
  expect_wrong(PROTOCOL_OPENAI, "{\"data\":[{\"embedding\":\"AACA*w==\"}]}", "not base64");
  expect_wrong(PROTOCOL_OPENAI, "{\"data\":[{\"embedding\":\"\"}]}", "the answer has no values");
  expect_wrong(PROTOCOL_OPENAI, "{\"data\":[{\"index\":1,\"embedding\":[1]}]}",
               "'index' is out of order");
  expect_wrong(PROTOCOL_OPENAI, "{\"data\":[{\"embedding\":[1]},{\"embedding\":\"AACAPwAAAL8=\"}]}",
               "embeddings differ in width");
  expect_wrong(PROTOCOL_OPENAI, "{\"error\":\"x\"}", "the answer has no list 'data'");
  expect_wrong(PROTOCOL_OPENAI, "{\"data\":[]}", "the answer has no values");
}

#define OIP(shape, data)                                                              \
  "{\"id\":\"3\",\"outputs\":[{\"name\":\"e\",\"datatype\":\"FP32\",\"shape\":" shape \
  ",\"data\":" data "}]}"

static void test_oip(void** state) {
  (void)state;
  expect_values(PROTOCOL_OIP, OIP("[2,2]", "[1,-0.5,2,0.25]"));
  expect_values(PROTOCOL_OIP, OIP("[2,2]", "[[1,-0.5],[2,0.25]]"));
  expect_wrong(PROTOCOL_OIP, OIP("[2,2]", "[1,2,3]"), "the data do not fill the shape");
  expect_wrong(PROTOCOL_OIP, OIP("[2,2]", "[1,2,3,4,5]"), "the data do not fill the shape");
  expect_wrong(PROTOCOL_OIP, OIP("[4]", "[1,2,3,4]"),
               "the output's shape has less than two dimensions");
  expect_wrong(PROTOCOL_OIP, OIP("[2,-1]", "[1]"), "the output has a bad shape");
  expect_wrong(PROTOCOL_OIP, OIP("[4611686018427387904,4]", "[]"), "the answer is too large");
  expect_wrong(PROTOCOL_OIP, "{\"id\":\"4\"}", "the answer has the id of another request");
  expect_wrong(PROTOCOL_OIP, "{\"outputs\":[]}", "the answer lacks the output");
}

static void test_oip_binary(void** state) {
  (void)state;
  // A tensor of another output comes first; its bytes are skipped.
  static const char json[] =
      "{\"outputs\":[{\"name\":\"x\",\"parameters\":{\"binary_data_size\":3}},"
      "{\"name\":\"e\",\"datatype\":\"FP32\",\"shape\":[1,2],"
      "\"parameters\":{\"binary_data_size\":8}}]}";
  uint8_t body[sizeof json - 1 + 11];
  memcpy(body, json, sizeof json - 1);
  memcpy(body + sizeof json - 1, "xyz\0\0\x80\x3f\0\0\0\xbf", 11);
  protocol_t protocol = {.kind = PROTOCOL_OIP_BINARY, .model = "m", .output = "e"};
  protocol_answer_t answer;
  assert_null(protocol_read(&protocol, 0, body, sizeof body, sizeof json - 1, &answer));
  assert_int_equal(answer.count, 1);
  assert_true(answer.values[0] == 1 && answer.values[1] == -0.5F);
  protocol_answer_free(&answer);
  // One byte less; a header that exceeds the body.
  assert_string_equal(protocol_read(&protocol, 0, body, sizeof body - 1, sizeof json - 1, &answer),
                      "the bytes do not fill the shape");
  assert_string_equal(
      protocol_read(&protocol, 0, body, sizeof body, (int64_t)sizeof body + 1, &answer),
      "the JSON is longer than the body");
}

static void test_columns(void** state) {
  (void)state;
  trace_word_t words[] = {{QN_STR("a"), 7}};
  uint32_t lengths[] = {3, 3};
  trace_request_t request = {.text_count = 2, .lengths = lengths};
  trace_t trace = {.requests = &request, .count = 1, .words = words, .word_count = 1};
  protocol_t protocol = {.kind = PROTOCOL_OIP, .host = "h", .prefix = "", .model = "m"};
  for (int is_column = 0; is_column <= 1; is_column++) {
    protocol.sends_column = is_column != 0;
    qn__buffer_t text;
    qn__buffer_init(&text, qn_allocator_default());
    protocol_render(&protocol, &trace, 0, &text);
    assert_non_null(
        strstr((const char*)text.data, is_column ? "\"shape\":[2,1]," : "\"shape\":[2],"));
    qn__buffer_deinit(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_columns),    cmocka_unit_test(test_tei),
      cmocka_unit_test(test_openai),     cmocka_unit_test(test_oip),
      cmocka_unit_test(test_oip_binary),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
