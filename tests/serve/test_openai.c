// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_openai.c: embeddings and models as OpenAI's clients ask for them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/serve/support_client.h"
#include "tests/serve/support_server.h"
#include "tests/support/must.h"

#define ROW(index, embedding) \
  "{\"object\":\"embedding\",\"index\":" index ",\"embedding\":" embedding "}"
#define ANSWER(rows, tokens)             \
  "{\"object\":\"list\",\"data\":[" rows \
  "],\"model\":\"mini\",\"usage\":{\"prompt_tokens\":" tokens ",\"total_tokens\":" tokens "}}"
#define OF_4 "[0.4685213,0.62469506,0.62469506]"
#define OF_3 "[0.51449573,0.6859943,0.51449573]"

static void test_inputs(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  static const struct {
    const char* body;
    const char* answer;
  } cases[] = {
      {"{\"input\":\"a b\",\"model\":\"mini\",\"user\":\"me\"}", ANSWER(ROW("0", OF_4), "4")},
      {"{\"model\":\"mini\",\"input\":[\"a b\",\"b\"],\"encoding_format\":\"float\"}",
       ANSWER(ROW("0", OF_4) "," ROW("1", OF_3), "7")},
      {"{\"input\":[2,4,5,3]}", ANSWER(ROW("0", OF_4), "4")},
      {"{\"input\":[[2,4,5,3],[2,4,3]],\"dimensions\":null,\"more\":{\"x\":[]}}",
       ANSWER(ROW("0", OF_4) "," ROW("1", OF_3), "7")},
      {"{\"input\":\"a b\",\"dimensions\":2}", ANSWER(ROW("0", "[0.6,0.8]"), "4")},
      // 0.6 is 3f19999a, and 0.8 is 3f4ccccd; the first byte is the lowest.
      {"{\"input\":\"a b\",\"dimensions\":2,\"encoding_format\":\"base64\"}",
       ANSWER(ROW("0", "\"mpkZP83MTD8=\""), "4")},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    assert_string_equal(server_post(&f, 200, "/v1/embeddings", cases[i].body), cases[i].answer);
    assert_string_equal(server_post(&f, 200, "/embeddings", cases[i].body), cases[i].answer);
  }
  server_stop(&f);
}

static void test_errors(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  static const char invalid[] = "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}";
  static const char missing[] =
      "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"not_found\"}}";
  static const struct {
    int status;
    const char* body;
    const char* part;
    const char* end;
  } cases[] = {
      {400, "", "{\"error\":{\"message\":\"the body: byte 0: expected an object\",", invalid},
      {400, "{}", "there is no input", invalid},
      {400, "{\"input\":[]}", "there is no input", invalid},
      {400, "{\"input\":[[]]}", "input 0 has no tokens", invalid},
      {400, "{\"input\":null}", "expected an array", invalid},
      {400, "{\"input\":{\"text\":\"a\"}}", "expected an array", invalid},
      {400, "{\"input\":[\"a\",[1]]}", "expected a text, as before", invalid},
      {400, "{\"input\":[[1],\"a\"]}", "expected a list of ids, as before", invalid},
      {400, "{\"input\":[1,\"a\"]}", "expected an integer of 64 bits", invalid},
      {400, "{\"input\":[1.5]}", "expected an integer of 64 bits", invalid},
      {400, "{\"input\":[-1]}", "expected ids of the vocabulary", invalid},
      {400, "{\"input\":[4294967298]}", "expected ids of the vocabulary", invalid},
      {400, "{\"input\":\"a\",\"input\":\"b\"}", "expected the inputs once", invalid},
      {400, "{\"input\":\"a\",\"encoding_format\":\"hex\"}", "expected \\\"float\\\" or", invalid},
      {400, "{\"input\":\"a\",\"encoding_format\":7}", "expected a string", invalid},
      {400, "{\"input\":\"a\",\"dimensions\":-1}", "expected a positive number of", invalid},
      {400, "{\"input\":\"a\",\"model\":7}", "expected a string", invalid},
      {404, "{\"input\":\"a\",\"model\":\"text-embedding-3-small\"}",
       "there is no model 'text-embedding-3-small'", missing},
      {404, "{\"input\":\"a\",\"model\":\"mini\\u0000x\"}", "there is no model ''", missing},
      {404, "{\"input\":\"a\",\"model\":\"\"}", "there is no model ''", missing},
      {413, "{\"input\":[\"a\",\"a\",\"a\",\"a\"]}", "more than 3 inputs", invalid},
      {422, "{\"input\":[7]}", "input 0, token 0: id 7 is not between 0 and 6", invalid},
      {422, "{\"input\":\"a\",\"dimensions\":4}", "4 dimensions, and the model has 3", invalid},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const char* body = server_post(&f, cases[i].status, "/v1/embeddings", cases[i].body);
    server_expect(body, cases[i].part);
    server_expect(body, cases[i].end);
  }
  server_expect(server_ask(&f, 404, "GET", "/v1/nothing", NULL), missing);
  server_expect(server_ask(&f, 405, "GET", "/v1/embeddings", NULL), invalid);
  server_expect(server_ask(&f, 404, "GET", "/v1/models/other", NULL), missing);
  // Paths that only begin like those of a protocol are not its own.
  server_expect(server_ask(&f, 404, "GET", "/v1x", NULL), "\"error_type\":\"Validation\"");
  server_expect(server_ask(&f, 404, "GET", "/embeddingsx", NULL), "\"error_type\":\"Validation\"");
  server_expect(server_ask(&f, 404, "GET", "/v20/models", NULL), "\"error_type\":\"Validation\"");
  server_expect(server_ask(&f, 404, "GET", "/v2/", NULL), "{\"error\":\"there is no /v2/\"}");
  server_stop(&f);
}

static void test_failures(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  static const char body[] = "{\"input\":\"a\",\"model\":\"mini\"}";
  atomic_store(&server_fake.fails, true);
  server_expect(server_post(&f, 500, "/v1/embeddings", body),
                "{\"error\":{\"message\":\"the model failed: the device is lost\",\"type\":"
                "\"server_error\"");
  atomic_store(&server_fake.fails, false);
  must(serve_repository_unload(f.repository, "mini"));
  char text[4096];
  assert_int_equal(client_ask(f.port, "POST", "/v1/embeddings", body, text, sizeof text), 503);
  server_expect(text, "Retry-After: 1");
  server_expect(text, "\"code\":\"unavailable\"");
  server_stop(&f);
}

static void test_keys(void** state) {
  (void)state;
  server_fixture_t f;
  server_start_with_keys(&f, "secret\n");
  server_expect(server_post(&f, 401, "/v1/embeddings", "{\"input\":\"a\"}"), "\"invalid_api_key\"");
  (void)server_ask(&f, 401, "GET", "/v1/models", NULL);
  server_stop(&f);
}

static void test_models(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  must(serve_repository_add(f.repository, "second", server_folder));
  const char* body = server_ask(&f, 200, "GET", "/v1/models", NULL);
  server_expect(
      body, "{\"object\":\"list\",\"data\":[{\"id\":\"mini\",\"object\":\"model\",\"created\":1");
  assert_null(strstr(body, "second"));  // it is not loaded
  server_expect(server_post(&f, 503, "/v1/embeddings", "{\"input\":\"a\",\"model\":\"second\"}"),
                "model 'second' is not ready");
  must(serve_repository_load(f.repository, "second"));
  server_expect(server_ask(&f, 200, "GET", "/v1/models", NULL),
                "\"owned_by\":\"quern\"},{\"id\":\"second\"");
  server_expect(server_ask(&f, 200, "GET", "/v1/models/second", NULL),
                "{\"id\":\"second\",\"object\":");
  server_expect(server_post(&f, 200, "/v1/embeddings", "{\"input\":\"a\",\"model\":\"second\"}"),
                "\"model\":\"second\"");
  server_stop(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_inputs), cmocka_unit_test(test_errors), cmocka_unit_test(test_failures),
      cmocka_unit_test(test_keys),   cmocka_unit_test(test_models),
  };
  return cmocka_run_group_tests(tests, server_make_folder, server_remove_folder);
}
