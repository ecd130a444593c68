// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_server.c: the server from socket to socket, with a made-up vocabulary and an
// encoder whose results tell which tokens it got.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/serve/support_client.h"
#include "tests/serve/support_server.h"
#include "tests/support/must.h"

// ------------------------------------------------------------------------------------ tests

static void test_embed(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  // [CLS] a b [SEP] are four tokens; the length of {3, 4, 4} is the square root of 41.
  assert_string_equal(server_post(&f, 200, "/embed", "{\"inputs\":\"a b\",\"normalize\":false}"),
                      "[[3,4,4]]");
  assert_string_equal(server_post(&f, 200, "/embed", "{\"inputs\":\"a b\"}"),
                      "[[0.4685213,0.62469506,0.62469506]]");
  assert_string_equal(
      server_post(&f, 200, "/embed", "{\"inputs\":[\"a\",\"\"],\"normalize\":false}"),
      "[[3,4,3],[3,4,2]]");
  // Of two dimensions {3, 4} the length is 5.
  assert_string_equal(server_post(&f, 200, "/embed", "{\"inputs\":\"a\",\"dimensions\":2}"),
                      "[[0.6,0.8]]");
  // Ids are used as they are.
  assert_string_equal(
      server_post(&f, 200, "/embed", "{\"inputs\":[[5,4,4,5]],\"normalize\":false}"), "[[3,4,4]]");
  assert_string_equal(server_post(&f, 200, "/embed", "{\"inputs\":[5,4],\"normalize\":false}"),
                      "[[3,4,2]]");
  // Long texts are cut to eight tokens.
  assert_string_equal(
      server_post(&f, 200, "/embed", "{\"inputs\":\"a a a a a a a a a a\",\"normalize\":false}"),
      "[[3,4,8]]");
  server_stop(&f);
}

static void test_embed_all(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  assert_string_equal(server_post(&f, 200, "/embed_all", "{\"inputs\":[\"b\",\"\"]}"),
                      "[[[2,0,0],[5,1,0],[3,2,0]],[[2,0,0],[3,1,0]]]");
  server_stop(&f);
}

static void test_tokens(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  assert_string_equal(
      server_post(&f, 200, "/tokenize", "{\"inputs\":\"A b\"}"),
      "[[{\"id\":2,\"text\":\"[CLS]\",\"special\":true,\"start\":null,\"stop\":null},"
      "{\"id\":4,\"text\":\"A\",\"special\":false,\"start\":0,\"stop\":1},"
      "{\"id\":5,\"text\":\"b\",\"special\":false,\"start\":2,\"stop\":3},"
      "{\"id\":3,\"text\":\"[SEP]\",\"special\":true,\"start\":null,\"stop\":null}]]");
  assert_string_equal(
      server_post(&f, 200, "/tokenize", "{\"inputs\":[\"b\"],\"add_special_tokens\":false}"),
      "[[{\"id\":5,\"text\":\"b\",\"special\":false,\"start\":0,\"stop\":1}]]");
  assert_string_equal(server_post(&f, 200, "/decode", "{\"ids\":[2,4,6,5,3]}"), "[\"ac b\"]");
  assert_string_equal(
      server_post(&f, 200, "/decode", "{\"ids\":[[2,4],[5]],\"skip_special_tokens\":false}"),
      "[\"[CLS] a\",\"b\"]");
  server_stop(&f);
}

// Every refusal has its status and says what, where and what was expected.
static void test_errors(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  static const struct {
    int status;
    const char* path;
    const char* body;
    const char* part;
  } cases[] = {
      {400, "/embed", "", "the body: byte 0: expected an object"},
      {400, "/embed", "{\"inputs\":\"a\"", "byte 13: expected ',' or '}'"},
      {400, "/embed", "{\"inputs\":7}", "byte 10: expected an array"},
      {400, "/embed", "{}", "there is no input"},
      {400, "/embed", "{\"inputs\":[]}", "there is no input"},
      {400, "/embed", "{\"inputs\":[[]]}", "input 0 has no tokens"},
      {400, "/embed", "{\"inputs\":[\"a\",[1]]}", "expected a text, as before"},
      {400, "/embed", "{\"inputs\":\"a\",\"inputs\":\"b\"}", "expected the inputs once"},
      {400, "/embed", "{\"inputs\":\"\xff\"}", "expected UTF-8"},
      {400, "/embed", "{\"inputs\":\"a\",\"truncation_direction\":\"up\"}",
       "expected \\\"Left\\\" or"},
      {400, "/embed", "{\"inputs\":\"a\",\"dimensions\":0}", "a positive number of dimensions"},
      {400, "/embed", "{\"inputs\":\"a\",\"prompt_name\":\"query\"}", "no prompt"},
      {422, "/embed", "{\"inputs\":\"a\",\"dimensions\":4}", "4 dimensions, and the model has 3"},
      {422, "/embed", "{\"inputs\":[[1,7]]}", "input 0, token 1: id 7 is not between 0 and 6"},
      {413, "/embed", "{\"inputs\":[\"a\",\"a\",\"a\",\"a\"]}", "more than 3 inputs"},
      {413, "/embed", "{\"inputs\":\"a a a a a a a\",\"truncate\":false}",
       "input 0 has 9 tokens, and at most 8 are allowed"},
      {400, "/tokenize", "{\"inputs\":[[1]]}", "the inputs must be texts"},
      {400, "/decode", "{\"ids\":\"a\"}", "there is no list of ids"},
      {404, "/nothing", "{}", "there is no /nothing"},
      {405, "/info", "{}", "POST is no method of /info"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const char* body = server_post(&f, cases[i].status, cases[i].path, cases[i].body);
    if (!strstr(body, cases[i].part)) fail_msg("no '%s' in %s", cases[i].part, body);
    assert_non_null(strstr(body, "\"error_type\":\"Validation\""));
  }
  assert_string_equal(server_post(&f, 200, "/embed", "{\"inputs\":\"a\",\"normalize\":false}"),
                      "[[3,4,3]]");
  server_stop(&f);
}

static void test_failure(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  atomic_store(&server_fake.fails, true);
  const char* body = server_post(&f, 500, "/embed", "{\"inputs\":\"a\"}");
  assert_non_null(strstr(body, "the model failed: the device is lost"));
  assert_non_null(strstr(body, "\"error_type\":\"Backend\""));
  atomic_store(&server_fake.fails, false);
  assert_string_equal(server_post(&f, 200, "/embed", "{\"inputs\":\"a\",\"normalize\":false}"),
                      "[[3,4,3]]");
  server_stop(&f);
}

static server_asker_t embed_later(const server_fixture_t* f) {
  return (server_asker_t){
      .port = f->port, .path = "/embed", .body = "{\"inputs\":\"a a a a a a\"}"};
}

// The queue holds 24 tokens: three requests of eight. The fourth is refused at once.
static void test_overload(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  atomic_store(&server_fake.is_blocked, true);
  const int before = atomic_load(&server_fake.batches);
  server_asker_t askers[4];
  for (int i = 0; i < 4; ++i) {
    askers[i] = embed_later(&f);
    server_begin_asking(&askers[i]);
    // The first is in the model; the others wait.
    server_wait_for_batch(before);
    server_wait_for_queue(&f, (size_t)i);
  }
  char text[4096];
  assert_int_equal(client_ask(f.port, "POST", "/embed", "{\"inputs\":\"a\"}", text, sizeof text),
                   429);
  assert_non_null(strstr(text, "Retry-After: 1"));
  assert_non_null(strstr(text, "\"error_type\":\"Overloaded\""));
  assert_int_equal(client_ask(f.port, "POST", "/embed",
                              "{\"inputs\":[\"a a a a a a\",\"a a a a a a\","
                              "\"a a a a a a\"]}",
                              text, sizeof text),
                   429);
  atomic_store(&server_fake.is_blocked, false);
  for (int i = 0; i < 4; ++i) {
    server_end_asking(&askers[i]);
    assert_int_equal(askers[i].status, 200);
  }
  server_stop(&f);
}

static void test_deadline(void** state) {
  (void)state;
  server_fixture_t f;
  char* arguments[] = {"--port=0", "--request-timeout=3"};
  server_start_with(&f, 2, arguments);
  atomic_store(&server_fake.is_blocked, true);
  const int before = atomic_load(&server_fake.batches);
  server_asker_t first = embed_later(&f);
  server_begin_asking(&first);
  server_wait_for_batch(before);
  const char* body = server_post(&f, 504, "/embed", "{\"inputs\":\"a\"}");
  assert_non_null(strstr(body, "the deadline of 3000 ms passed"));
  atomic_store(&server_fake.is_blocked, false);
  server_end_asking(&first);
  server_stop(&f);
}

static void test_keys(void** state) {
  (void)state;
  server_fixture_t f;
  server_start_with_keys(&f, "# of clients\nsecret-one\r\nsecret-two\n");
  static const struct {
    int status;
    const char* header;
  } cases[] = {
      {401, ""},
      {401, "Authorization: Bearer secret\r\n"},
      {401, "Authorization: Bearer secret-one2\r\n"},
      {401, "Authorization: Bearer \r\n"},
      {401, "Authorization: Bearer # of clients\r\n"},
      {401, "Authorization: secret-one\r\n"},
      {200, "Authorization: Bearer secret-one\r\n"},
      {200, "authorization: bearer secret-two\r\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const int client = client_connect(f.port);
    char text[512];
    (void)snprintf(text, sizeof text, "GET /info HTTP/1.1\r\nHost: x\r\n%s\r\n", cases[i].header);
    client_send(client, text);
    client_expect(client, cases[i].status,
                  cases[i].status == 200 ? "\"mini\"" : "WWW-Authenticate");
    (void)close(client);
  }
  (void)server_ask(&f, 200, "GET", "/health", NULL);
  server_stop(&f);
}

// A reload swaps the model under load; an unloaded one is 503, and the others go on.
static void test_models(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  must_fail(serve_repository_add(f.repository, "mini", server_folder), QN_STATUS_INVALID_ARGUMENT,
            "there are two models 'mini'");
  must_fail(serve_repository_add(f.repository, "a/b", server_folder), QN_STATUS_INVALID_ARGUMENT,
            "no name for a model");
  must_fail(serve_repository_load(f.repository, "other"), QN_STATUS_NOT_FOUND,
            "there is no model 'other'");
  serve_model_t* before = serve_repository_find(f.repository, "mini");
  must(serve_repository_load(f.repository, "mini"));
  serve_model_t* after = serve_repository_find(f.repository, "mini");
  assert_ptr_not_equal(before, after);
  serve_model_release(before);
  serve_model_release(after);
  must(serve_repository_add(f.repository, "bad", "broken"));
  assert_false(serve_repository_is_ready(f.repository));
  must_fail(serve_repository_load(f.repository, "bad"), QN_STATUS_NOT_FOUND, "no such folder");
  serve_listing_t listing;
  assert_true(serve_repository_list(f.repository, 1, &listing));
  assert_string_equal(listing.name, "bad");
  assert_int_equal(listing.state, SERVE_MODEL_FAILED);
  assert_non_null(strstr(listing.reason, "no such folder"));
  (void)server_ask(&f, 503, "GET", "/health", NULL);
  must(serve_repository_unload(f.repository, "bad"));
  (void)server_ask(&f, 200, "GET", "/health", NULL);
  must(serve_repository_unload(f.repository, "mini"));
  assert_non_null(
      strstr(server_post(&f, 503, "/embed", "{\"inputs\":\"a\"}"), "model 'mini' is not ready"));
  must(serve_repository_load(f.repository, "mini"));
  (void)server_post(&f, 200, "/embed", "{\"inputs\":\"a\"}");
  server_stop(&f);
}

static void test_drain(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  (void)server_ask(&f, 200, "GET", "/ping", NULL);
  serve_server_begin_drain(f.server);
  assert_non_null(strstr(server_ask(&f, 503, "GET", "/health", NULL), "\"Unhealthy\""));
  (void)server_post(&f, 200, "/embed", "{\"inputs\":\"a\"}");
  server_stop(&f);
}

static void test_metrics(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  (void)server_post(&f, 200, "/embed", "{\"inputs\":[\"a\",\"a b\"]}");
  (void)server_post(&f, 200, "/embed", "{\"inputs\":[\"b\",\"b a\"]}");
  (void)server_post(&f, 422, "/embed", "{\"inputs\":\"a\",\"dimensions\":9}");
  const char* text = server_ask(&f, 200, "GET", "/metrics", NULL);
  static const char* const lines[] = {
      "nv_inference_request_success{model=\"mini\",version=\"1\"} 2\n",
      "nv_inference_request_failure{model=\"mini\",version=\"1\",reason=\"OTHER\"} 1\n",
      "nv_inference_count{model=\"mini\",version=\"1\"} 4\n",
      "nv_inference_exec_count{model=\"mini\",version=\"1\"} 2\n",
      "quern_serve_tokens_total{model=\"mini\",version=\"1\"} 14\n",
      "quern_serve_first_seen_batches_total{model=\"mini\",version=\"1\"} 1\n",
      "nv_inference_pending_request_count{model=\"mini\",version=\"1\"} 0\n",
      "quern_serve_batch_sequences_bucket{model=\"mini\",version=\"1\",le=\"1\"} 0\n",
      "quern_serve_batch_sequences_bucket{model=\"mini\",version=\"1\",le=\"2\"} 2\n",
      "quern_serve_batch_sequences_sum{model=\"mini\",version=\"1\"} 4\n",
      "quern_serve_request_seconds_count{model=\"mini\",version=\"1\"} 2\n",
      "# TYPE quern_serve_request_seconds histogram\n",
  };
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    if (!strstr(text, lines[i])) fail_msg("no '%s' in %s", lines[i], text);
  }
  server_stop(&f);
}

static void test_options(void** state) {
  (void)state;
  serve_options_t options;
  server_write_file(
      "settings.json",
      "{\"port\": 81, \"batch_tokens\": 128, \"log_json\": true, \"batch_delay\": 0.5, "
      "\"name\": \"x\"}");
  char config[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(config, sizeof config, "--config=%s/settings.json", server_folder);
  assert_int_equal(setenv("QUERN_SERVE_BATCH_TOKENS", "256", 1), 0);
  char* good[] = {config, "--port", "82", "dir", "--max-body=2M", "--", "--dir"};
  must(serve_options_read(7, good, &options));
  assert_int_equal(options.port, 82);
  assert_int_equal(options.batch_tokens, 256);
  assert_int_equal(options.batch_delay, 500000000);
  assert_int_equal(options.max_body, 2 << 20);
  assert_true(options.log_json);
  assert_string_equal(options.name, "x");
  assert_int_equal(options.model_count, 2);
  assert_string_equal(options.models[1], "--dir");
  assert_string_equal(options.origins[SERVE_OPTION_batch_tokens], "environment");
  assert_string_equal(options.origins[SERVE_OPTION_target], "default");
  serve_options_free(&options);
  static const struct {
    char* argument;
    const char* part;
  } bad[] = {
      {"--prot=1", "unknown option 'prot'; did you mean 'port'?"},
      {"--zzzzzzzz", "unknown option 'zzzzzzzz'; --help lists all"},
      {"--port", "--port needs a number"},
      {"--port=x", "--port: 'x' is not a number"},
      {"--port=-1", "--port: '-1' is not a number"},
      {"--max-body=9999999999G", "is not a number of bytes"},
      {"--batch-delay=1s", "is not a number of seconds"},
      {"--log-json=maybe", "is not true or false"},
      {"-x", "'-x' is no option"},
      {"--config", "--config needs a file"},
      {"--config=/nonexistent/file", "/nonexistent/file"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    char* arguments[] = {bad[i].argument};
    qn_status_t status = serve_options_read(1, arguments, &options);
    if (qn_ok(status) || !strstr(qn_status_message(status), bad[i].part)) {
      fail_msg("%s: %s", bad[i].argument, qn_ok(status) ? "ok" : qn_status_message(status));
    }
    qn_status_free(status);
    serve_options_free(&options);
  }
  assert_int_equal(setenv("QUERN_SERVE_BATCH_TOKENS", "many", 1), 0);
  must_fail(serve_options_read(0, NULL, &options), QN_STATUS_INVALID_ARGUMENT,
            "QUERN_SERVE_BATCH_TOKENS: 'many' is not a number");
  serve_options_free(&options);
  assert_int_equal(unsetenv("QUERN_SERVE_BATCH_TOKENS"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embed),    cmocka_unit_test(test_embed_all),
      cmocka_unit_test(test_tokens),   cmocka_unit_test(test_errors),
      cmocka_unit_test(test_failure),  cmocka_unit_test(test_overload),
      cmocka_unit_test(test_deadline), cmocka_unit_test(test_keys),
      cmocka_unit_test(test_models),   cmocka_unit_test(test_drain),
      cmocka_unit_test(test_metrics),  cmocka_unit_test(test_options),
  };
  return cmocka_run_group_tests(tests, server_make_folder, server_remove_folder);
}
