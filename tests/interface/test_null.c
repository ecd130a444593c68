// SPDX-License-Identifier: Apache-2.0
// tests/interface/test_null.c: calls every public function with each of its pointers NULL in turn.
// Functions with a status must return an INVALID_ARGUMENT that names the argument; others must
// return a harmless value.
//
// The calls are generated from the headers (make_null_calls). Each runs in a child process.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "quern/adaptive.h"
#include "quern/backend.h"
#include "quern/cache.h"
#include "quern/ir.h"
#include "quern/lower.h"
#include "quern/observe.h"
#include "quern/tvm_ffi.h"
#include "quern/warm.h"
#include "tests/interface/support_plan.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

typedef struct fixture {
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_executable_t* executable;
  qn_function_t* function;
  qn_future_t* future;
  qn_stream_t* stream;
  qn_builder_t* builder;
  qn_expr_t* expression;
  qn_buffer_t* buffer;
  qn_cache_dir_t* dir;
  qn_cache_bundle_t* bundle;
  qn_warm_list_t* list;
  qn_gpu_plan_t* plan;
  qn_gpu_program_t* program;
  qn_sink_t sink;
  char directory[QN_TEST_PATH_SIZE];
  char path[QN_TEST_PATH_SIZE + 16];
} fixture_t;

typedef struct null_call {
  const char* function;
  const char* argument;
  qn_status_t (*run)(fixture_t* f);
  bool must_refuse;
} null_call_t;

// Stands for callbacks of every type. An entry that the engine has written by now may be reported
// to it, so it returns zero, whatever the type of its result.
static int64_t return_zero(void) {
  return 0;
}
#define do_nothing ((void (*)(void))return_zero)

static qn_status_t swallow(void* self, const void* data, size_t size_bytes) {
  (void)self, (void)data, (void)size_bytes;
  return QN_OK;
}

// Room for any out-parameter or struct; its first word is a struct_size.
static void* scratch(fixture_t* f) {
  (void)f;
  static _Alignas(16) char rooms[8][4096];
  static size_t next;
  char* room = rooms[next++ % 8];
  size_t size = 64;
  memcpy(room, &size, sizeof size);
  return room;
}

#include "null_calls.inc"

static void make(fixture_t* f) {
  static const char text[] =
      "func f(n: i64, out y: f32[n]) {\n  for i in 0..n {\n    y[i] = 1.0;\n  }\n}\n";
  assert_true(qn_test_tempdir_make(f->directory));
  (void)snprintf(f->path, sizeof f->path, "%s/kernels.qnb", f->directory);
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = f->directory, .ignores_environment = true};
  must(qn_engine_create(&options, &f->engine));
  must(qn_module_parse(text, sizeof text - 1, NULL, &f->module));
  must(qn_target_parse("interp", &f->target));
  must(qn_engine_executable(f->engine, f->module, f->target, NULL, NULL, &f->executable));
  must(qn_engine_request(f->engine, f->module, f->target, "f", NULL, &f->future));
  must(qn_future_wait(f->future, QN_TIMEOUT_INFINITE, NULL, &f->function));
  must(qn_stream_default((qn_device_t){QN_DEVICE_CPU, 0}, &f->stream));
  must(qn_builder_create((qn_allocator_t){0}, &f->builder));
  qn_build_function(f->builder, "g");
  f->expression = qn_build_symbol(f->builder, "n");
  f->buffer = qn_build_buffer_param(f->builder, "x", QN_ACCESS_OUT, QN_DTYPE_F32, 1, &f->expression,
                                    NULL, 0);
  assert_true(qn_engine_flush(f->engine, INT64_C(60000000000)));
  must(qn_cache_dir_open(f->directory, &f->dir));
  must(qn_cache_bundle_write(f->path, f->dir, NULL, 0, NULL, NULL));
  must(qn_cache_bundle_open(f->path, NULL, 0, &f->bundle));
  must(qn_warm_list_create(&f->list));
  f->plan = plan_loaded();
  qn_module_t* lowered;
  must(qn_module_lower(f->module, "gpu", NULL, &lowered));
  must(qn_gpu_program_create(lowered, NULL, &f->program));
  qn_module_release(lowered);
  f->sink.write = swallow;
}

static void drop(fixture_t* f) {
  qn_gpu_program_destroy(f->program);
  qn_gpu_plan_destroy(f->plan);
  qn_warm_list_destroy(f->list);
  qn_cache_bundle_close(f->bundle);
  qn_cache_dir_close(f->dir);
  qn_builder_destroy(f->builder);
  qn_function_release(f->function);
  qn_future_release(f->future);
  qn_executable_release(f->executable);
  qn_target_release(f->target);
  qn_module_release(f->module);
  qn_engine_destroy(f->engine);
  qn_test_tempdir_remove(f->directory);
}

// In the child: 0 when the call keeps the rule.
static int judge(fixture_t* f, const null_call_t* call) {
  qn_status_t status = call->run(f);
  if (!call->must_refuse) return 0;
  bool is_right = qn_status_code(status) == QN_STATUS_INVALID_ARGUMENT &&
                  strstr(qn_status_message(status), call->argument) != NULL;
  if (!is_right) fprintf(stderr, "  it gave '%s'\n", qn_status_message(status));
  return is_right ? 0 : 1;
}

static void test_every_pointer(void** state) {
  (void)state;
  fixture_t f = {0};
  make(&f);
  int wrong = 0;
  for (size_t i = 0; i < QN_COUNT_OF(null_calls); i++) {
    const null_call_t* call = &null_calls[i];
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      (void)signal(SIGSEGV, SIG_DFL);
      (void)alarm(120);
      _exit(judge(&f, call));
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    if (result == 0) continue;
    wrong++;
    fprintf(stderr, "%s with %s NULL: %s %d\n", call->function, call->argument,
            WIFSIGNALED(result) ? "signal" : "exit status",
            WIFSIGNALED(result) ? WTERMSIG(result) : WEXITSTATUS(result));
  }
  drop(&f);
  assert_int_equal(wrong, 0);
  assert_true(QN_COUNT_OF(null_calls) > 200);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pointer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
