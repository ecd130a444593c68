// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_oip_models.c: the Open Inference Protocol when the server is busy, closed or
// changes its models, and its statistics.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/serve/support_client.h"
#include "tests/serve/support_server.h"
#include "tests/support/must.h"

#define INFER "/v2/models/mini/infer"
#define TEXT_HEAD "{\"inputs\":[{\"name\":\"text\",\"shape\":"
#define IDS_HEAD "{\"name\":\"input_ids\",\"datatype\":\"INT64\",\"shape\":"

// ------------------------------------------------------------------------------------ statuses

static void test_large_body(void** state) {
  (void)state;
  server_fixture_t f;
  char* arguments[] = {"--port=0", "--max-body=100"};
  server_start_with(&f, 2, arguments);
  char body[200];
  memset(body, ' ', sizeof body - 1);
  body[sizeof body - 1] = '\0';
  server_expect(server_post(&f, 413, INFER, body),
                "{\"error\":\"the body has more than 100 bytes\"}");
  server_expect(server_post(&f, 413, "/v2/repository/index", body), "{\"error\":\"the body");
  server_expect(server_post(&f, 413, "/v1/embeddings", body),
                "{\"error\":{\"message\":\"the body has");
  server_expect(server_post(&f, 413, "/embed", body), "\"error_type\":\"Validation\"");
  server_stop(&f);
}

static const char long_request[] =
    TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[\"a a a a a a\"]}]}";

// 429 beyond the queue's 24 tokens; 504 after the time of the request's own.
static void test_busy(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  atomic_store(&server_fake.is_blocked, true);
  const int before = atomic_load(&server_fake.batches);
  server_asker_t askers[4];
  for (int i = 0; i < 4; ++i) {
    askers[i] = (server_asker_t){.port = f.port, .path = INFER, .body = long_request};
    server_begin_asking(&askers[i]);
    server_wait_for_batch(before);
    server_wait_for_queue(&f, (size_t)i);
    if (i == 0) {
      server_expect(server_post(&f, 504, INFER,
                                TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[\"a\"]}],"
                                          "\"parameters\":{\"timeout\":20000}}"),
                    "{\"error\":\"the deadline of 20 ms passed\"}");
    }
  }
  char text[4096];
  assert_int_equal(client_ask(f.port, "POST", INFER, long_request, text, sizeof text), 429);
  server_expect(text, "Retry-After: 1");
  server_expect(text, "{\"error\":\"the model is overloaded: 24 tokens wait");
  atomic_store(&server_fake.is_blocked, false);
  for (int i = 0; i < 4; ++i) {
    server_end_asking(&askers[i]);
    assert_int_equal(askers[i].status, 200);
  }
  atomic_store(&server_fake.fails, true);
  server_expect(server_post(&f, 500, INFER, long_request),
                "{\"error\":\"the model failed: the device is lost\"}");
  atomic_store(&server_fake.fails, false);
  must(serve_repository_unload(f.repository, "mini"));
  assert_int_equal(client_ask(f.port, "POST", INFER, long_request, text, sizeof text), 503);
  server_expect(text, "Retry-After: 1");
  server_stop(&f);
}

static void test_keys(void** state) {
  (void)state;
  server_fixture_t f;
  server_start_with_keys(&f, "secret\n");
  server_expect(server_post(&f, 401, INFER, long_request), "{\"error\":\"a key is needed");
  (void)server_post(&f, 401, "/v2/repository/index", "");
  (void)server_ask(&f, 401, "GET", "/v2/models/mini/stats", NULL);
  (void)server_ask(&f, 200, "GET", "/v2/health/ready", NULL);
  (void)server_ask(&f, 200, "GET", "/v2/models/mini/ready", NULL);
  const client_request_t request = {"POST", INFER, "Authorization: Bearer secret\r\n", long_request,
                                    sizeof long_request - 1};
  char text[4096];
  assert_int_equal(client_exchange(f.port, &request, text, sizeof text), 200);
  server_stop(&f);
}

// ------------------------------------------------------------------------------------ statistics

static json_int_t number_of(const json_t* root, const char* group, const char* name) {
  const json_t* model = json_array_get(json_object_get(root, "model_stats"), 0);
  const json_t* stats = json_object_get(model, "inference_stats");
  const json_t* value = json_object_get(json_object_get(stats, group), name);
  if (!json_is_integer(value)) fail_msg("no %s.%s", group, name);
  return json_integer_value(value);
}

static void test_statistics(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  (void)server_post(&f, 200, INFER, long_request);
  (void)server_post(&f, 200, INFER,
                    TEXT_HEAD "[2],\"datatype\":\"BYTES\",\"data\":[\"a\",\"b\"]}]}");
  (void)server_post(&f, 422, INFER, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,7]}]}");
  static const char* const paths[] = {"/v2/models/mini/stats", "/v2/models/mini/versions/1/stats",
                                      "/v2/models/stats"};
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; ++i) {
    json_t* root = json_loads(server_ask(&f, 200, "GET", paths[i], NULL), 0, NULL);
    assert_non_null(root);
    static const char* const groups[] = {"success", "queue", "compute_input", "compute_infer",
                                         "compute_output"};
    for (size_t k = 0; k < sizeof groups / sizeof groups[0]; ++k) {
      assert_int_equal(number_of(root, groups[k], "count"), 2);
      assert_true(number_of(root, groups[k], "ns") > 0);
    }
    assert_int_equal(number_of(root, "fail", "count"), 1);
    assert_true(number_of(root, "fail", "ns") > 0);
    assert_int_equal(number_of(root, "cache_hit", "count"), 0);
    assert_int_equal(number_of(root, "cache_miss", "ns"), 0);
    const json_t* model = json_array_get(json_object_get(root, "model_stats"), 0);
    assert_string_equal(json_string_value(json_object_get(model, "name")), "mini");
    assert_string_equal(json_string_value(json_object_get(model, "version")), "1");
    assert_int_equal(json_integer_value(json_object_get(model, "inference_count")), 3);
    assert_int_equal(json_integer_value(json_object_get(model, "execution_count")), 2);
    assert_true(json_integer_value(json_object_get(model, "last_inference")) > 1500000000000);
    json_decref(root);
  }
  (void)server_ask(&f, 404, "GET", "/v2/models/other/stats", NULL);
  const char* text = server_ask(&f, 200, "GET", "/metrics", NULL);
  server_expect(text, "quern_serve_request_failure_duration_us{model=\"mini\",version=\"1\"} ");
  server_stop(&f);
}

// ------------------------------------------------------------------------------------ the models

static const char* ask_admin(const server_fixture_t* f, int status, const char* path,
                             const char* body) {
  const server_fixture_t admin = {.port = f->admin_port};
  return server_post(&admin, status, path, body);
}

static void test_repository(void** state) {
  (void)state;
  server_fixture_t f;
  server_start_with_admin(&f);
  server_expect(server_ask(&f, 200, "GET", "/v2", NULL), "\"model_repository\"");
  must(serve_repository_add(f.repository, "bad", "broken"));
  static const char index[] =
      "[{\"name\":\"mini\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"},"
      "{\"name\":\"bad\",\"version\":\"1\",\"state\":\"UNAVAILABLE\",\"reason\":\"\"}]";
  assert_string_equal(server_post(&f, 200, "/v2/repository/index", NULL), index);
  assert_string_equal(server_post(&f, 200, "/v2/repository/index", "{\"ready\":false}"), index);
  assert_string_equal(
      server_post(&f, 200, "/v2/repository/index", "{\"ready\":true}"),
      "[{\"name\":\"mini\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"}]");
  server_expect(server_post(&f, 400, "/v2/repository/index", "{\"ready\":1}"),
                "expected true or false");
  server_expect(server_post(&f, 400, "/v2/repository/index", "[]"), "expected an object");
  // Changes are only at the address for management.
  server_expect(server_post(&f, 404, "/v2/repository/models/mini/load", NULL),
                "is only at the address for management");
  server_expect(server_post(&f, 404, "/v2/repository/models/mini/unload", NULL),
                "is only at the address for management");
  serve_model_t* before = serve_repository_find(f.repository, "mini");
  assert_string_equal(ask_admin(&f, 200, "/v2/repository/models/mini/load", NULL), "{}");
  serve_model_t* after = serve_repository_find(f.repository, "mini");
  assert_ptr_not_equal(before, after);
  serve_model_release(before);
  serve_model_release(after);
  server_expect(ask_admin(&f, 500, "/v2/repository/models/bad/load", "{}"), "no such folder");
  server_expect(
      server_post(&f, 200, "/v2/repository/index", NULL),
      "\"name\":\"bad\",\"version\":\"1\",\"state\":\"UNAVAILABLE\",\"reason\":\"no such folder");
  server_expect(ask_admin(&f, 404, "/v2/repository/models/other/load", NULL),
                "there is no model 'other'");
  server_expect(ask_admin(&f, 404, "/v2/repository/models/other/unload", NULL),
                "there is no model 'other'");
  server_expect(
      ask_admin(&f, 400, "/v2/repository/models/mini/load", "{\"parameters\":{\"config\":\"{}\"}}"),
      "expected no parameter but 'unload_dependents'");
  server_expect(ask_admin(&f, 400, "/v2/repository/models/mini/load", "x"), "expected an object");
  assert_string_equal(ask_admin(&f, 200, "/v2/repository/models/mini/unload",
                                "{\"parameters\":{\"unload_dependents\":false}}"),
                      "{}");
  (void)server_post(&f, 503, INFER, long_request);
  (void)ask_admin(&f, 200, "/v2/repository/models/mini/load", NULL);
  (void)ask_admin(&f, 200, INFER, long_request);  // the other routes are there as well
  server_stop(&f);
}

// While a load takes its time, the old model serves, and the address for management answers.
static void test_long_load(void** state) {
  (void)state;
  server_fixture_t f;
  server_start_with_admin(&f);
  atomic_store(&server_fake.holds_load, true);
  server_asker_t asker = {.port = f.admin_port, .path = "/v2/repository/models/mini/load"};
  server_begin_asking(&asker);
  while (!strstr(ask_admin(&f, 200, "/v2/repository/index", NULL), "\"LOADING\"")) continue;
  (void)server_post(&f, 200, INFER, long_request);
  char text[4096];
  assert_int_equal(
      client_ask(f.admin_port, "POST", "/v2/repository/models/mini/load", NULL, text, sizeof text),
      503);
  server_expect(text, "Retry-After: 1");
  server_expect(text, "model 'mini' is being loaded");
  (void)ask_admin(&f, 503, "/v2/repository/models/mini/unload", NULL);
  atomic_store(&server_fake.holds_load, false);
  server_end_asking(&asker);
  assert_int_equal(asker.status, 200);
  (void)server_post(&f, 200, INFER, long_request);
  server_stop(&f);
}
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_large_body), cmocka_unit_test(test_busy),
      cmocka_unit_test(test_keys),       cmocka_unit_test(test_statistics),
      cmocka_unit_test(test_repository), cmocka_unit_test(test_long_load),
  };
  return cmocka_run_group_tests(tests, server_make_folder, server_remove_folder);
}
