// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_command.c: the program quern-serve from start to signal, as a process, with a
// made-up model; and reloads under load.
//
// ctest-labels: tsan
//
// The models run on the interpreter, whose code is cached as that of other targets is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "serve/bert/reference.h"
#include "serve/loader.h"
#include "serve/server.h"
#include "tests/serve/support_client.h"
#include "tests/serve/support_folder.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

enum { LOG_BYTES = 1 << 18, MAX_ARGUMENTS = 12, ASKERS = 3 };

static char root[QN_TEST_PATH_SIZE];  // with the folders of a model, of the cache and the log
static char model[QN_TEST_PATH_SIZE + 32];
static char log_path[QN_TEST_PATH_SIZE + 32];

static int set_up(void** state) {
  (void)state;
  char cache[QN_TEST_PATH_SIZE + 32];
  assert_true(qn_test_tempdir_make(root));
  (void)snprintf(model, sizeof model, "%s/tiny", root);
  (void)snprintf(log_path, sizeof log_path, "%s/log", root);
  (void)snprintf(cache, sizeof cache, "%s/cache", root);
  folder_write_file(root, "tiny/README", "");
  folder_write(model, &folder_config, 3, NULL);
  assert_int_equal(setenv("QUERN_CACHE_DIR", cache, 1), 0);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_test_tempdir_remove(root);
  return 0;
}

static void nap(void) {
  (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

// ------------------------------------------------------------------------------------ the process

static char log_text[LOG_BYTES];

static const char* read_log(void) {
  const long size = qn_test_read_file(log_path, log_text, sizeof log_text - 1);
  log_text[size > 0 ? size : 0] = '\0';
  return log_text;
}

// Starts the program with arguments, which end with NULL. Its output is the log.
static pid_t start(const char* const* arguments) {
  char* argv[MAX_ARGUMENTS + 2] = {(char*)(uintptr_t)"quern-serve"};
  for (size_t i = 0; arguments[i]; ++i) argv[i + 1] = (char*)(uintptr_t)arguments[i];
  const int log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(log >= 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)execv(QN_BINARY_DIR "/bin/quern-serve", argv);
    _exit(127);
  }
  (void)close(log);
  return child;
}

// Waits until the process has ended, and returns its exit code.
static int wait_for(pid_t child) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status)) fail_msg("it ended with signal %d: %s", WTERMSIG(status), read_log());
  return WEXITSTATUS(status);
}

// Waits for a part of the log, or fails when the process has ended without it.
static const char* wait_for_log(pid_t child, const char* part) {
  for (;;) {
    const bool has_ended = waitpid(child, NULL, WNOHANG) != 0;
    const char* found = strstr(read_log(), part);
    if (found && strchr(found, '\n')) return found;
    if (has_ended) fail_msg("no '%s' in: %s", part, log_text);
    nap();
  }
}

static uint16_t port_of(const char* line) {
  const char* address = strstr(line, "address=127.0.0.1:");
  assert_non_null(address);
  return (uint16_t)strtoul(address + strlen("address=127.0.0.1:"), NULL, 10);
}

// Without special variants, whose compiles depend on the speed of the machine.
static uint16_t start_ready(pid_t* out_child) {
  const char* const arguments[] = {
      model, "--port=0", "--target=interp", "--drain-delay=0", "--special-limit=0", NULL};
  *out_child = start(arguments);
  return port_of(wait_for_log(*out_child, " ready "));
}

static const char* ask(uint16_t port, int status, const char* method, const char* path,
                       const char* body) {
  static char text[1 << 18];
  const int got = client_ask(port, method, path, body, text, sizeof text);
  if (got != status) fail_msg("%s %s: %d instead of %d: %s", method, path, got, status, text);
  return strstr(text, "\r\n\r\n") + 4;
}

// ------------------------------------------------------------------------------------ tests

// The sentence "a b" is [CLS] a b [SEP].
static void check_answer(const char* body, uint64_t seed) {
  bert_weights_t weights;
  must(bert_weights_seed(&folder_config, seed, &weights));
  float expected[32];
  must(bert_reference(&weights, 4, (int64_t[]){2, 4, 5, 3}, expected));
  bert_weights_free(&weights);
  const char* at = body + strspn(body, "[");
  for (size_t i = 0; i < 32; ++i) {
    char* end;
    const float value = strtof(at, &end);
    if (end == at || !(fabsf(value - expected[i]) < 2e-5f)) {
      fail_msg("number %zu: %g instead of %g in %s", i, (double)value, (double)expected[i], body);
    }
    at = end + 1;
  }
}

static const char raw_question[] = "{\"inputs\":\"a b\",\"normalize\":false}";

// The first start compiles, the second does not; neither does so while it serves.
static void test_two_starts(void** state) {
  (void)state;
  static const char* const origins[] = {"kernels=\"6 compiled\" compiled=6 ",
                                        "kernels=\"6 from disk\" compiled=0 "};
  static const char* const counts[] = {"quern_serve_compiles_total{phase=\"start\"} 6\n",
                                       "quern_serve_compiles_total{phase=\"start\"} 0\n"};
  for (size_t i = 0; i < 2; ++i) {
    pid_t child;
    const uint16_t port = start_ready(&child);
    const char* line = strstr(read_log(), " ready ");
    if (!strstr(line, origins[i])) fail_msg("no '%s' in %s", origins[i], line);
    assert_non_null(strstr(line, "models=tiny target=interp"));
    check_answer(ask(port, 200, "POST", "/embed", raw_question), 3);
    (void)ask(port, 200, "POST", "/embed_all", "{\"inputs\":[\"a\",\"c cd b\"]}");
    assert_non_null(strstr(ask(port, 200, "GET", "/info", NULL), "\"pooling\":\"mean\""));
    const char* metrics = ask(port, 200, "GET", "/metrics", NULL);
    assert_non_null(strstr(metrics, counts[i]));
    assert_non_null(strstr(metrics, "quern_serve_compiles_total{phase=\"serving\"} 0\n"));
    assert_non_null(strstr(metrics, "# TYPE quern_lookups_total counter"));
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(wait_for(child), 0);
    assert_non_null(strstr(read_log(), "draining signal=SIGTERM"));
    assert_non_null(strstr(log_text, "stopped\n"));
    const char* compiled = strstr(log_text, "info compiled kernel=embed_layernorm@");
    assert_true((compiled != NULL) == (i == 0));
    assert_true(!compiled || strstr(compiled, " key=") != NULL);
  }
}

// What was compiled for one model serves others: all sizes are symbols, but for those of attention.
static void test_several_models(void** state) {
  (void)state;
  char other[sizeof model + 16];
  char named[sizeof model + 32];
  (void)snprintf(other, sizeof other, "%s/other", root);
  (void)snprintf(named, sizeof named, "second=%s/", other);
  folder_write_file(root, "other/README", "");
  bert_config_t config = folder_config;
  config.layers = 1;
  config.pooling = BERT_POOLING_CLS;
  folder_write(other, &config, 4, NULL);
  const char* const arguments[] = {model, named, "--port=0", "--target=interp", "--log-json", NULL};
  const pid_t child = start(arguments);
  const char* line = wait_for_log(child, "\"message\":\"ready\"");
  assert_non_null(strstr(line, "\"models\":\"tiny,second\""));
  const char* address = strstr(line, "127.0.0.1:");
  const uint16_t port = (uint16_t)strtoul(address + 10, NULL, 10);
  check_answer(ask(port, 200, "POST", "/embed", raw_question), 3);
  assert_non_null(strstr(ask(port, 200, "GET", "/metrics", NULL), "model=\"second\""));
  // Two signals: no delay, no drain; nothing is under way, so nothing is cut off but the wait.
  assert_int_equal(kill(child, SIGINT), 0);
  (void)wait_for_log(child, "\"draining\"");
  assert_non_null(strstr(ask(port, 503, "GET", "/health", NULL), "Unhealthy"));
  check_answer(ask(port, 200, "POST", "/embed", raw_question), 3);
  assert_int_equal(kill(child, SIGINT), 0);
  assert_int_equal(wait_for(child), 1);
  assert_non_null(strstr(read_log(), "requests were cut off"));
}

static void test_forbidden(void** state) {
  (void)state;
  char cache[QN_TEST_PATH_SIZE + 32];
  (void)snprintf(cache, sizeof cache, "%s/empty", root);
  const char* const arguments[] = {model, "--port=0", "--target=interp", "--forbid-jit", NULL};
  assert_int_equal(setenv("QUERN_CACHE_DIR", cache, 1), 0);
  assert_int_equal(wait_for(start(arguments)), 1);
  assert_non_null(strstr(read_log(), "quern-serve: model 'tiny': kernel "));
  assert_non_null(strstr(log_text, "is not cached, and compiling is forbidden"));
  (void)snprintf(cache, sizeof cache, "%s/cache", root);
  assert_int_equal(setenv("QUERN_CACHE_DIR", cache, 1), 0);
  const pid_t child = start(arguments);
  assert_non_null(strstr(wait_for_log(child, " ready "), "compiled=0"));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

// A request is found in the trace by its id and its traceparent, with its batch.
static void test_trace(void** state) {
  (void)state;
  char option[QN_TEST_PATH_SIZE + 32];
  (void)snprintf(option, sizeof option, "--trace=%s/trace", root);
  const char* const arguments[] = {model,  "--port=0", "--target=interp", "--drain-delay=0",
                                   option, NULL};
  const pid_t child = start(arguments);
  const uint16_t port = port_of(wait_for_log(child, " ready "));
  char text[1 << 14];
  const client_request_t request = {
      "POST", "/embed",
      "x-request-id: mine-7\r\n"
      "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n",
      raw_question, sizeof raw_question - 1};
  assert_int_equal(client_exchange(port, &request, text, sizeof text), 200);
  assert_int_equal(kill(child, SIGTERM), 0);
  assert_int_equal(wait_for(child), 0);
  json_error_t error;
  json_t* file = json_load_file(option + strlen("--trace="), JSON_REJECT_DUPLICATES, &error);
  if (!file) fail_msg("byte %d: %s", error.position, error.text);
  unsigned found = 0;
  static const char* const names[] = {"request", "read", "queue", "tokenise", "write"};
  static const char traceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  size_t i;
  json_t* event;
  json_array_foreach(json_object_get(file, "traceEvents"), i, event) {
    const char* name = json_string_value(json_object_get(event, "name"));
    const json_t* args = json_object_get(event, "args");
    const char* id = json_string_value(json_object_get(args, "request_id"));
    const char* parent = json_string_value(json_object_get(args, "traceparent"));
    if (parent) {
      assert_string_equal(parent, traceparent);
      assert_string_equal(json_string_value(json_object_get(args, "path")), "/embed");
      assert_int_equal(json_integer_value(json_object_get(args, "status")), 200);
      assert_int_equal(json_integer_value(json_object_get(args, "tokens")), 4);
      assert_int_equal(json_integer_value(json_object_get(args, "batch")), 1);
    }
    for (unsigned k = 0; k < 5; ++k) {
      if (id && strcmp(id, "mine-7") == 0 && strcmp(name, names[k]) == 0) found |= 1u << k;
    }
    if (strcmp(name, "compute") == 0) {
      assert_int_equal(json_integer_value(json_object_get(args, "batch")), 1);
      found |= 1u << 5;
    }
  }
  assert_int_equal(found, (1u << 6) - 1);
  json_decref(file);
}

static void test_mistakes(void** state) {
  (void)state;
  char wrong[sizeof model + 16];
  (void)snprintf(wrong, sizeof wrong, "%s/wrong", root);
  folder_write_file(root, "wrong/README", "");
  bert_config_t config = folder_config;
  config.vocabulary = 5;  // and the tokenizer has eight tokens
  folder_write(wrong, &config, 4, NULL);
  const struct {
    const char* arguments[4];
    int code;
    const char* part;
  } cases[] = {
      {{NULL}, 2, "there is no model; give its folder"},
      {{model, "--prot=1", NULL}, 2, "did you mean 'port'?"},
      {{model, "--port=65536", NULL}, 2, "--port: 65536 is not from 0 to 65535"},
      {{model, "--http-threads=0", NULL}, 2, "--http-threads: 0 is not from 1 to 256"},
      {{model, model, NULL}, 2, "there are two models 'tiny'"},
      {{"a b=x", NULL}, 2, "'a b' is no name for a model"},
      {{"x", "y", "--name=z", NULL}, 2, "--name is for one model"},
      {{model, "--port=0", "--target=nothing", NULL}, 1, "model 'tiny': "},
      {{model, "--port=0", "--address=nowhere", NULL}, 1, "nowhere"},
      {{"/nonexistent", "--port=0", NULL}, 1, "model 'nonexistent': "},
      {{wrong, "--port=0", "--target=interp", NULL},
       1,
       "the tokenizer has ids up to 7, and vocab_size of config.json is 5"},
      {{"--help", NULL}, 0, "usage: quern-serve MODEL"},
      {{"--version", NULL}, 0, "quern-serve "},
      {{"--show-config", NULL}, 0, "batch-tokens"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const int code = wait_for(start(cases[i].arguments));
    if (code != cases[i].code || !strstr(read_log(), cases[i].part)) {
      fail_msg("case %zu: exit code %d: %s", i, code, read_log());
    }
  }
}

// ------------------------------------------------------------------------------------ load

typedef struct load {
  uint16_t port;
  atomic_bool is_over;
  atomic_int answered;
  atomic_int refused;  // connections that the server did not take any more
  atomic_int wrong;
} load_t;

// Asks on new connections until one is refused or closed without a byte of an answer.
static void* ask_on(void* self) {
  load_t* load = self;
  char text[1 << 14];
  while (!atomic_load(&load->is_over)) {
    const int client = client_try_connect(load->port);
    if (client < 0) {
      (void)atomic_fetch_add(&load->refused, 1);
      break;
    }
    char request[256];
    (void)snprintf(request, sizeof request,
                   "POST /embed HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu"
                   "\r\n\r\n%s",
                   sizeof raw_question - 1, raw_question);
    text[0] = '\0';
    const bool is_sent = send(client, request, strlen(request), MSG_NOSIGNAL) > 0;
    const int status = is_sent ? client_receive(client, text, sizeof text) : 0;
    (void)close(client);
    // A connection that the system completed right after the drain took the rest is reset.
    if (status == 0 && text[0] == '\0') {
      (void)atomic_fetch_add(&load->refused, 1);
      break;
    }
    (void)atomic_fetch_add(status == 200 ? &load->answered : &load->wrong, 1);
  }
  return NULL;
}

static void wait_for_answers(load_t* load, int count) {
  const int before = atomic_load(&load->answered);
  while (atomic_load(&load->answered) < before + count && atomic_load(&load->wrong) == 0 &&
         atomic_load(&load->refused) == 0) {
    nap();
  }
}

// Reloads swap the model; every request gets an answer of the one before or after.
static void test_reload_under_load(void** state) {
  (void)state;
  char* arguments[] = {"--port=0", "--target=interp"};
  serve_options_t options;
  serve_loader_t* loader;
  serve_repository_t* repository;
  serve_server_t* server;
  must(serve_options_read(2, arguments, &options));
  must(serve_loader_create(&options, NULL, &loader));
  must(serve_repository_create(serve_loader_load, loader, &repository));
  must(serve_repository_add(repository, "tiny", model));
  must(serve_repository_load(repository, "tiny"));
  must(serve_server_start(&options, repository, NULL, &server));
  load_t load = {.port = serve_http_port(server->http)};
  pthread_t threads[ASKERS];
  for (int i = 0; i < ASKERS; ++i) {
    assert_int_equal(pthread_create(&threads[i], NULL, ask_on, &load), 0);
  }
  for (uint64_t seed = 10; seed < 14; ++seed) {
    wait_for_answers(&load, 5);
    folder_write(model, &folder_config, seed, NULL);
    must(serve_repository_load(repository, "tiny"));
    check_answer(ask(load.port, 200, "POST", "/embed", raw_question), seed);
  }
  // A folder that has become wrong leaves the old model in its place.
  folder_remove_file(model, "model.safetensors");
  must_fail(serve_repository_load(repository, "tiny"), QN_STATUS_NOT_FOUND, "model.safetensors");
  wait_for_answers(&load, 5);
  check_answer(ask(load.port, 200, "POST", "/embed", raw_question), 13);
  folder_write(model, &folder_config, 3, NULL);
  must(serve_repository_load(repository, "tiny"));
  atomic_store(&load.is_over, true);
  for (int i = 0; i < ASKERS; ++i) (void)pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&load.wrong), 0);
  assert_int_equal(atomic_load(&load.refused), 0);
  assert_true(serve_server_finish(server, INT64_C(60000000000)));
  serve_server_stop(server);
  serve_repository_destroy(repository);
  serve_loader_destroy(loader);
  serve_options_free(&options);
}

// Every request that was accepted before the end gets its answer.
static void test_term_under_load(void** state) {
  (void)state;
  pid_t child;
  load_t load = {.port = start_ready(&child)};
  pthread_t threads[ASKERS];
  for (int i = 0; i < ASKERS; ++i) {
    assert_int_equal(pthread_create(&threads[i], NULL, ask_on, &load), 0);
  }
  wait_for_answers(&load, 20);
  assert_int_equal(kill(child, SIGTERM), 0);
  assert_int_equal(wait_for(child), 0);
  for (int i = 0; i < ASKERS; ++i) (void)pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&load.refused), ASKERS);
  assert_int_equal(atomic_load(&load.wrong), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_starts),      cmocka_unit_test(test_several_models),
      cmocka_unit_test(test_forbidden),       cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_trace),           cmocka_unit_test(test_reload_under_load),
      cmocka_unit_test(test_term_under_load),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
