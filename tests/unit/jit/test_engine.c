// SPDX-License-Identifier: Apache-2.0
// The engine end to end: where code comes from, single flight, unloading, failing lookups, damaged
// and unusable directories, errors of running functions, streams, memory that runs out; and that a
// warm process maps no compiler. ctest-labels: tsan
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "quern/backend.h"
#include "quern/observe.h"
#include "quern/quern.h"
#include "tests/support/engine.h"
#include "tests/support/fault.h"
#include "tests/support/tempdir.h"

static const char saxpy_text[] =
    "func saxpy(a: f32, x: f32[n], inout y: f32[n]) {\n"
    "  parallel i in 0..n { y[i] = a * x[i] + y[i]; }\n"
    "}\n";
// The same program: other names, other layout.
static const char saxpy_again[] =
    "// y = a x + y\n"
    "func saxpy(a: f32, x: f32[n], inout y: f32[n]) {\n"
    "  parallel element in 0..n {\n    y[element] = a * x[element] + y[element];\n  }\n"
    "}\n";
static const char faulty_text[] =
    "func check(x: f32[n], out y: f32[n], k: i64) {\n"
    "  assert k < 100, \"k is too large\";\n"
    "  for i in 0..n { y[i] = x[i + k]; }\n"
    "}\n"
    "func divide(x: i32[n], out y: i32[n], k: i32) {\n"
    "  for i in 0..n { y[i] = x[i] // k; }\n"
    "}\n";

// A program whose allocations the passes copy and renumber; the second differs in the names only.
#define LOCAL_TEXT(ONE, TWO)              \
  "func local(out y: f32[n], k: i64) {\n" \
  "  parallel i in 0..n {\n"              \
  "    unroll u in 0..2 {\n"              \
  "      alloc " ONE                      \
  ": f32[3] in local;\n"                  \
  "      " ONE                            \
  "[u] = 1.0;\n"                          \
  "    }\n"                               \
  "    alloc " TWO                        \
  ": f32[5] in local;\n"                  \
  "    for j in 0..5 { " TWO              \
  "[j] = 2.0; }\n"                        \
  "    y[i] = " TWO                       \
  "[i + k];\n"                            \
  "  }\n"                                 \
  "}\n"

static qn_engine_t* engine_on(const char* directory, qn_cache_mode_t mode) {
  return must_engine((qn_engine_options_t){.cache_dir = directory, .cache_mode = mode});
}
// Ends an engine whose entries the next one is to find, however slow the machine is.
static void end_written(qn_engine_t* engine) {
  assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
  qn_engine_destroy(engine);
}

// Runs saxpy on three elements and checks the result.
static void run_saxpy(qn_function_t* function) {
  float x[] = {1, 2, 3}, y[] = {10, 20, 30};
  int64_t shape[] = {3};
  qn_tensor_t tx = {x, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_tensor_t ty = {y, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_value_t args[] = {qn_value_float(2), qn_value_tensor(&tx), qn_value_tensor(&ty)};
  qn_value_t result = qn_value_int(7);
  must(qn_function_call(function, args, 3, &result));
  assert_int_equal(result.type, QN_VALUE_NONE);
  assert_true(y[0] == 12 && y[1] == 24 && y[2] == 36);
}

static qn_source_t look_up(qn_engine_t* engine, const char* text, const char* target_text,
                           const qn_lookup_options_t* options) {
  qn_module_t* module = must_parse(text);
  qn_target_t* target = must_target(target_text);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function;
  must(qn_engine_function(engine, module, target, "saxpy", options, &info, &function));
  assert_int_equal(strlen(info.key.hex), 32);
  run_saxpy(function);
  qn_function_release(function);
  qn_module_release(module);
  qn_target_release(target);
  return info.source;
}

static const char* const kinds[] = {"interp", QN_HAVE_LLVM ? "cpu" : "interp"};

static void test_sources(void** state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    char directory[QN_TEST_PATH_SIZE];
    assert_true(qn_test_tempdir_make(directory));
    qn_engine_t* engine = engine_on(directory, QN_CACHE_RW);
    assert_int_equal(look_up(engine, saxpy_text, kinds[k], NULL), QN_SOURCE_COMPILED);
    assert_int_equal(look_up(engine, saxpy_text, kinds[k], NULL), QN_SOURCE_MEMORY);
    assert_int_equal(look_up(engine, saxpy_again, kinds[k], NULL), QN_SOURCE_MEMORY);
    qn_lookup_options_t fast = {.struct_size = sizeof fast, .tier = QN_TIER_FAST};
    qn_lookup_options_t checked = {.struct_size = sizeof checked, .is_checked = true};
    assert_int_equal(look_up(engine, saxpy_text, kinds[k], &fast), QN_SOURCE_COMPILED);
    assert_int_equal(look_up(engine, saxpy_text, kinds[k], &checked), QN_SOURCE_COMPILED);
    end_written(engine);
    engine = engine_on(directory, QN_CACHE_RW);
    assert_int_equal(look_up(engine, saxpy_again, kinds[k], NULL), QN_SOURCE_DISK);
    assert_int_equal(look_up(engine, saxpy_again, kinds[k], &fast), QN_SOURCE_DISK);
    assert_int_equal(counter_of(engine, "compiles"), 0);
    assert_int_equal(counter_of(engine, "directory_hits"), 2);
    qn_engine_destroy(engine);
    qn_test_tempdir_remove(directory);
  }
}

static void test_modes(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  qn_engine_t* engine = engine_on(directory, QN_CACHE_RO);
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_COMPILED);
  qn_engine_destroy(engine);
  engine = engine_on(directory, QN_CACHE_OFF);
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_COMPILED);
  qn_engine_destroy(engine);
  engine = engine_on(directory, QN_CACHE_REFRESH);
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_COMPILED);
  end_written(engine);
  engine = engine_on(directory, QN_CACHE_REFRESH);
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_COMPILED);
  end_written(engine);
  engine = engine_on(directory, QN_CACHE_RO);
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_DISK);
  qn_engine_destroy(engine);
  // A namespace has keys of its own.
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = directory,
                                 .cache_mode = QN_CACHE_RW,
                                 .cache_namespace = "other",
                                 .ignores_environment = true};
  must(qn_engine_create(&options, &engine));
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_COMPILED);
  qn_engine_destroy(engine);
  qn_test_tempdir_remove(directory);
}

static void test_bad_options(void** state) {
  (void)state;
  qn_engine_t* engine;
  qn_engine_options_t options = {.struct_size = 4};
  must_fail(qn_engine_create(&options, &engine), QN_STATUS_INVALID_ARGUMENT, "struct_size");
  assert_null(engine);
  options = (qn_engine_options_t){.struct_size = sizeof options, .cache_mode = (qn_cache_mode_t)9};
  must_fail(qn_engine_create(&options, &engine), QN_STATUS_INVALID_ARGUMENT, "cache_mode");
  assert_int_equal(setenv("QUERN_CACHE", "sometimes", 1), 0);
  must_fail(qn_engine_create(NULL, &engine), QN_STATUS_INVALID_ARGUMENT,
            "QUERN_CACHE: expected off, ro, rw or refresh, got 'sometimes'");
  assert_int_equal(setenv("QUERN_CACHE", "off", 1), 0);
  assert_int_equal(setenv("QUERN_CACHE_MAX_SIZE", "2 apples", 1), 0);
  must_fail(qn_engine_create(NULL, &engine), QN_STATUS_INVALID_ARGUMENT, "QUERN_CACHE_MAX_SIZE");
  unsetenv("QUERN_CACHE_MAX_SIZE");
  must(qn_engine_create(NULL, &engine));
  qn_module_t* module = must_parse(saxpy_text);
  qn_target_t* target = must_target("interp");
  qn_executable_t* executable;
  must_fail(qn_engine_executable(engine, NULL, target, NULL, NULL, &executable),
            QN_STATUS_INVALID_ARGUMENT, "module");
  qn_lookup_options_t lookup = {.struct_size = sizeof lookup, .tier = (qn_tier_t)77};
  must_fail(qn_engine_executable(engine, module, target, &lookup, NULL, &executable),
            QN_STATUS_INVALID_ARGUMENT, "tier 77");
  lookup = (qn_lookup_options_t){.struct_size = sizeof lookup, .miss = QN_MISS_FAIL};
  must_fail(qn_engine_executable(engine, module, target, &lookup, NULL, &executable),
            QN_STATUS_COMPILE_FORBIDDEN, "saxpy@");
  assert_int_equal(counter_of(engine, "compiles_forbidden"), 1);
  qn_module_release(module);
  qn_target_release(target);
  qn_engine_destroy(engine);
  unsetenv("QUERN_CACHE");
}

static void test_names_and_modules(void** state) {
  (void)state;
  qn_engine_t* engine = engine_on("", QN_CACHE_OFF);
  qn_module_t* module = must_parse(saxpy_text);
  qn_module_t* other = must_parse(faulty_text);
  qn_target_t* target = must_target("interp");
  qn_executable_t* executable;
  qn_function_t* function;
  must(qn_engine_executable(engine, module, target, NULL, NULL, &executable));
  must_fail(qn_executable_function(executable, module, "saxpi", &function), QN_STATUS_NOT_FOUND,
            "did you mean 'saxpy'?");
  must_fail(qn_executable_function(executable, module, "convolution", &function),
            QN_STATUS_NOT_FOUND, "the first is 'saxpy'");
  must_fail(qn_executable_function(executable, other, "check", &function),
            QN_STATUS_INVALID_ARGUMENT, "another module");
  must(qn_executable_function(executable, module, "saxpy", &function));
  assert_string_equal(qn_function_signature(function), "saxpy(a: f32, x: f32[n], inout y: f32[n])");
  int64_t shape = 4, inferred = 0;
  qn_tensor_t x = {.ndim = 1, .shape = &shape};
  qn_value_t args[] = {qn_value_float(2), qn_value_tensor(&x), {QN_VALUE_NONE, 0, {0}}};
  int64_t* shapes[] = {NULL, NULL, &inferred};
  must(qn_function_infer_shapes(function, args, 3, shapes, NULL));
  assert_int_equal(inferred, 4);
  // The function keeps what it needs, whatever else goes.
  assert_true(qn_engine_unload(engine, module, target, NULL));
  assert_false(qn_engine_unload(engine, module, target, NULL));
  qn_executable_release(executable);
  qn_module_release(module);
  qn_engine_destroy(engine);
  run_saxpy(function);
  qn_function_release(function);
  qn_module_release(other);
  qn_target_release(target);
}

static void test_target_without_device(void** state) {
  (void)state;
  qn_engine_t* engine = engine_on("", QN_CACHE_OFF);
  qn_module_t* module = must_parse(saxpy_text);
  qn_target_t* target;
  must(qn_target_parse("cuda -arch=sm_90a", &target));
  qn_executable_t* executable;
  qn_status_t status = qn_engine_executable(engine, module, target, NULL, NULL, &executable);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  qn_status_free(status);
  assert_null(executable);
  qn_target_release(target);
  must(qn_target_parse("null", &target));
  qn_function_t* function;
  must(qn_engine_function(engine, module, target, "saxpy", NULL, NULL, &function));
  // Its tensors live on the null device, and nothing happens to them.
  int64_t shape[] = {0};
  qn_tensor_t tensor = {NULL, {QN_DEVICE_NULL, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_value_t args[] = {qn_value_float(2), qn_value_tensor(&tensor), qn_value_tensor(&tensor)};
  must(qn_function_call(function, args, 3, NULL));
  tensor.device.type = QN_DEVICE_CPU;
  must_fail(qn_function_call(function, args, 3, NULL), QN_STATUS_VALUE_ERROR, "null:0");
  qn_function_release(function);
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
}

// ---- errors of running functions, at once and behind a stream

static void call_faulty(const char* kind, bool on_stream) {
  qn_engine_t* engine = engine_on("", QN_CACHE_OFF);
  qn_module_t* module = must_parse(faulty_text);
  qn_target_t* target = must_target(kind);
  qn_lookup_options_t options = {.struct_size = sizeof options, .is_checked = true};
  qn_function_t *check, *divide;
  must(qn_engine_function(engine, module, target, "check", &options, NULL, &check));
  must(qn_engine_function(engine, module, target, "divide", &options, NULL, &divide));
  const qn_device_t cpu = {QN_DEVICE_CPU, 0};
  qn_stream_t* stream = NULL;
  if (on_stream) must(qn_stream_create(cpu, &stream));
  must(qn_set_active_stream(cpu, stream));

  float x[4] = {1, 2, 3, 4}, y[4];
  int32_t a[4] = {7, -7, 8, 9}, b[4];
  int64_t shape[] = {4};
  qn_tensor_t tx = {x, cpu, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_tensor_t ty = {y, cpu, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_tensor_t ta = {a, cpu, 1, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_tensor_t tb = {b, cpu, 1, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_value_t check_args[] = {qn_value_tensor(&tx), qn_value_tensor(&ty), qn_value_int(0)};
  qn_value_t divide_args[] = {qn_value_tensor(&ta), qn_value_tensor(&tb), qn_value_int(2)};

#define OUTCOME(call) (stream ? (must(call), qn_stream_sync(cpu, stream)) : (call))
  must(OUTCOME(qn_function_call(check, check_args, 3, NULL)));
  must(OUTCOME(qn_function_call(divide, divide_args, 3, NULL)));
  assert_int_equal(b[1], -4);
  check_args[2] = qn_value_int(100);
  must_fail(OUTCOME(qn_function_call(check, check_args, 3, NULL)), QN_STATUS_ASSERTION,
            "'check': assert failed: k is too large");
  check_args[2] = qn_value_int(2);
  must_fail(OUTCOME(qn_function_call(check, check_args, 3, NULL)), QN_STATUS_OUT_OF_BOUNDS,
            "function 'check': buffer 'x' dim 0: index 4 outside of extent 4");
  divide_args[2] = qn_value_int(0);
  must_fail(OUTCOME(qn_function_call(divide, divide_args, 3, NULL)), QN_STATUS_DIVISION_BY_ZERO,
            "'divide'");
  // A call that is refused enqueues nothing.
  must_fail(qn_function_call(divide, divide_args, 2, NULL), QN_STATUS_TYPE_ERROR,
            "expected 3 arguments");
  must(qn_stream_sync(cpu, stream));
  // Functions with calls in flight may be released.
  divide_args[2] = qn_value_int(3);
  must(qn_function_call(divide, divide_args, 3, NULL));
  qn_function_release(check);
  qn_function_release(divide);
  qn_engine_destroy(engine);
  qn_module_release(module);
  must(qn_stream_sync(cpu, stream));
  assert_int_equal(b[1], -3);
  must(qn_set_active_stream(cpu, NULL));
  qn_stream_destroy(stream);
  qn_target_release(target);
}

static void test_errors(void** state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    call_faulty(kinds[k], false);
    call_faulty(kinds[k], true);
  }
}

// Messages use the names of the module that was looked up, also on code made from another text.
static void test_names_in_errors(void** state) {
  (void)state;
  static const char* const texts[] = {LOCAL_TEXT("first", "second"), LOCAL_TEXT("p", "q")};
  static const char* const names[] = {"buffer 'second' dim 0: index 5 outside of extent 5",
                                      "buffer 'q' dim 0: index 5 outside of extent 5"};
  for (size_t k = 0; k < 2; k++) {
    qn_engine_t* engine = engine_on("", QN_CACHE_OFF);
    for (size_t t = 0; t < 2; t++) {
      qn_module_t* module = must_parse(texts[t]);
      qn_target_t* target = must_target(kinds[k]);
      qn_lookup_options_t options = {.struct_size = sizeof options, .is_checked = true};
      qn_lookup_info_t info = {.struct_size = sizeof info};
      qn_function_t* function;
      must(qn_engine_function(engine, module, target, "local", &options, &info, &function));
      assert_int_equal(info.source, t == 0 ? QN_SOURCE_COMPILED : QN_SOURCE_MEMORY);
      float y[1];
      int64_t shape[] = {1};
      qn_tensor_t ty = {y, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
      qn_value_t args[] = {qn_value_tensor(&ty), qn_value_int(4)};
      must(qn_function_call(function, args, 2, NULL));
      assert_true(y[0] == 2);
      args[1] = qn_value_int(5);
      must_fail(qn_function_call(function, args, 2, NULL), QN_STATUS_OUT_OF_BOUNDS, names[t]);
      qn_function_release(function);
      qn_module_release(module);
      qn_target_release(target);
    }
    qn_engine_destroy(engine);
  }
}

// ---- threads

typedef struct seeker {
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  _Atomic int* ready;
  qn_source_t source;
  qn_status_t status;
} seeker_t;

static void* seek(void* arg) {
  seeker_t* seeker = arg;
  (*seeker->ready)++;
  while (*seeker->ready < 8) {
  }
  qn_function_t* function;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  seeker->status = qn_engine_function(seeker->engine, seeker->module, seeker->target, "saxpy", NULL,
                                      &info, &function);
  if (!qn_ok(seeker->status)) return NULL;
  seeker->source = info.source;
  qn_function_release(function);
  return NULL;
}

static void test_single_flight(void** state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    qn_engine_t* engine = engine_on("", QN_CACHE_OFF);
    _Atomic int ready = 0;
    seeker_t seekers[8];
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
      // Modules of their own: one key all the same.
      seekers[i] = (seeker_t){engine,
                              must_parse(i % 2 ? saxpy_text : saxpy_again),
                              must_target(kinds[round % 2]),
                              &ready,
                              0,
                              QN_OK};
      must(qn__thread_start(&threads[i], "seeker", 0, seek, &seekers[i]));
    }
    int compiled = 0;
    for (int i = 0; i < 8; i++) {
      assert_int_equal(pthread_join(threads[i], NULL), 0);
      must(seekers[i].status);
      compiled += seekers[i].source == QN_SOURCE_COMPILED;
      qn_module_release(seekers[i].module);
      qn_target_release(seekers[i].target);
    }
    assert_int_equal(compiled, 1);
    assert_int_equal(counter_of(engine, "compiles"), 1);
    qn_engine_destroy(engine);
  }
}

// Waiters of a compile that fails get the same error.
static void test_single_flight_of_a_failure(void** state) {
  (void)state;
  static const qn_target_kind_info_t kind = {.struct_size = sizeof kind,
                                             .name = "unmade",
                                             .doc = "a kind whose generator is not installed",
                                             .codegen = "nowhere",
                                             .device_type = QN_DEVICE_CPU};
  must(qn_target_kind_register(&kind));
  qn_engine_t* engine = engine_on("", QN_CACHE_OFF);
  _Atomic int ready = 0;
  seeker_t seekers[8];
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) {
    seekers[i] =
        (seeker_t){engine, must_parse(saxpy_text), must_target("unmade"), &ready, 0, QN_OK};
    must(qn__thread_start(&threads[i], "seeker", 0, seek, &seekers[i]));
  }
  for (int i = 0; i < 8; i++) {
    assert_int_equal(pthread_join(threads[i], NULL), 0);
    must_fail(seekers[i].status, QN_STATUS_UNAVAILABLE, "nowhere");
    qn_module_release(seekers[i].module);
    qn_target_release(seekers[i].target);
  }
  qn_engine_destroy(engine);
}

// ---- directories that are not as they should be

static char* entry_path(const char* directory, const char* key, char out[1024]) {
  (void)snprintf(out, 1024, "%s/v1/%.2s/%s.k", directory, key, key + 2);
  return out;
}

static void test_damaged_entries(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  qn_engine_t* engine = engine_on(directory, QN_CACHE_RW);
  qn_module_t* module = must_parse(saxpy_text);
  qn_target_t* target = must_target("interp");
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_executable_t* executable;
  must(qn_engine_executable(engine, module, target, NULL, &info, &executable));
  qn_executable_release(executable);
  assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
  char path[1024];
  entry_path(directory, info.key.hex, path);
  for (long at = 0; at < 200; at += 7) {
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (char)(byte ^ 0x40);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
    assert_true(qn_engine_unload(engine, module, target, NULL));
    must(qn_engine_executable(engine, module, target, NULL, &info, &executable));
    assert_int_equal(info.source, QN_SOURCE_COMPILED);
    qn_executable_release(executable);
    assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
    assert_true(qn_engine_unload(engine, module, target, NULL));
    must(qn_engine_executable(engine, module, target, NULL, &info, &executable));
    assert_int_equal(info.source, QN_SOURCE_DISK);
    qn_executable_release(executable);
  }
  qn_module_release(module);
  qn_target_release(target);
  qn_engine_destroy(engine);
  qn_test_tempdir_remove(directory);
}

static void test_unusable_directory(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  assert_int_equal(chmod(directory, 0777), 0);
  qn_engine_t* engine = engine_on(directory, QN_CACHE_RW);
  assert_int_equal(counter_of(engine, "directory_unusable"), 1);
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_COMPILED);
  assert_int_equal(look_up(engine, saxpy_text, "interp", NULL), QN_SOURCE_MEMORY);
  qn_engine_destroy(engine);
  qn_test_tempdir_remove(directory);
}

// ---- memory that runs out: an error or a result, and nothing is lost

static bool look_up_with(qn_allocator_t allocator, void* user) {
  (void)user;
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .allocator = allocator,
                                 .cache_mode = QN_CACHE_OFF,
                                 .ignores_environment = true};
  qn_module_t* module = must_parse(saxpy_text);
  qn_target_t* target = must_target("interp");
  qn_engine_t* engine = NULL;
  qn_function_t* function = NULL;
  qn_status_t status = qn_engine_create(&options, &engine);
  if (qn_ok(status)) {
    status = qn_engine_function(engine, module, target, "saxpy", NULL, NULL, &function);
  }
  if (qn_ok(status)) run_saxpy(function);
  bool is_right = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  qn_function_release(function);
  qn_engine_destroy(engine);
  qn_module_release(module);
  qn_target_release(target);
  return is_right;
}

static void test_out_of_memory(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(look_up_with, NULL) > 10);
}

// ---- a warm process maps no compiler

static int child(const char* directory) {
  qn_engine_t* engine = engine_on(directory, QN_CACHE_RW);
  qn_source_t source = look_up(engine, saxpy_text, kinds[1], NULL);
  end_written(engine);
  FILE* maps = fopen("/proc/self/maps", "r");
  if (!maps) return 9;
  char line[4096];
  bool has_compiler = false;
  while (fgets(line, sizeof line, maps))
    has_compiler |= strstr(line, "LLVM") || strstr(line, "quern-llvm");
  (void)fclose(maps);
  return (source == QN_SOURCE_DISK ? 0 : 1) | (has_compiler ? 2 : 0);
}

static int run_child(const char* directory) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    (void)execl("/proc/self/exe", "test_engine", "child", directory, (char*)NULL);
    _exit(99);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void test_warm_process(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  assert_int_equal(run_child(directory), QN_HAVE_LLVM ? 3 : 1);
  assert_int_equal(run_child(directory), 0);
  qn_test_tempdir_remove(directory);
}

// ---- a process that ends while its compile threads work

static int ending_child(int delay_us) {
  qn_engine_t* engine = engine_on("", QN_CACHE_OFF);
  qn_target_t* target = must_target(kinds[1]);
  for (int i = 0; i < 40; i++) {
    char* text = malloc(200000);
    if (!text) return 9;
    size_t size = (size_t)snprintf(text, 200000, "func f(x: f32[n], out y: f32[n]) {\n");
    // Short ones: the end waits for the one under way for a bounded time, which a slow machine must
    // not need.
    for (int k = 0; k < 20; k++) {
      size += (size_t)snprintf(text + size, 200000 - size,
                               "  for i in 0..n { y[i] = x[i] * %d.5 + %d.0; }\n", k, i);
    }
    (void)snprintf(text + size, 200000 - size, "}\n");
    qn_module_t* module = must_parse(text);
    free(text);
    qn_future_t* future;
    must(qn_engine_request(engine, module, target, "f", NULL, &future));
    qn_future_release(future);
    qn_module_release(module);
  }
  usleep((useconds_t)delay_us);
  return 0;  // nothing is destroyed: the end of the process has to do
}

static void test_exit_while_it_compiles(void** state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip();  // what is not destroyed is a leak to sanitizers
#endif
  // Through the first compile, in which LLVM is loaded and makes what it keeps, and into later
  // ones.
  for (int delay_us = 0; delay_us < 160000; delay_us += delay_us < 80000 ? 2000 : 20000) {
    char text[32];
    (void)snprintf(text, sizeof text, "%d", delay_us);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      (void)execl("/proc/self/exe", "test_engine", "ending", text, (char*)NULL);
      _exit(99);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fail_msg("after %d us: status %x", delay_us, (unsigned)status);
    }
  }
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "child") == 0) return child(argv[2]);
  if (argc == 3 && strcmp(argv[1], "ending") == 0) return ending_child(atoi(argv[2]));
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sources),
      cmocka_unit_test(test_modes),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_names_and_modules),
      cmocka_unit_test(test_target_without_device),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_names_in_errors),
      cmocka_unit_test(test_single_flight),
      cmocka_unit_test(test_single_flight_of_a_failure),
      cmocka_unit_test(test_damaged_entries),
      cmocka_unit_test(test_unusable_directory),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_warm_process),
      cmocka_unit_test(test_exit_while_it_compiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
