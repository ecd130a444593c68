// SPDX-License-Identifier: Apache-2.0
// Failures of running code say where they are in the text of the module that was looked up: every
// kind of failure, on code from any source, made of another text or by a stream. Refusals of a
// compile have the names of that text.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/thread.h"
#include "quern/cache.h"
#include "quern/quern.h"
#include "tests/support/engine.h"
#include "tests/support/tempdir.h"

// Two texts with the same canonical bytes.
static const char one[] =
    "func load(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  parallel i in 0..n { let t = i + k; y[i] = x[t]; }\n"
    "}\n"
    "func store(x: i32[n], inout y: i32[n], k: i64) { for t in 0..n { y[t + k] = x[t]; } }\n"
    "func add(x: i32[n], inout y: i32[n], k: i64) { for t in 0..n { atomic_add(y[t + k], 1); } }\n"
    "func divide(x: i32[n], inout y: i32[n], k: i64) { for t in 0..n { y[t] = x[t] % i32(k); } }\n"
    "func plain(x: i32[n], inout y: i32[n], k: i64) { for t in 0..n { assert t < k; } }\n"
    "func worded(x: i32[n], inout y: i32[n], k: i64) { assert k > 0, \"no k\"; }\n"
    "func space(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  alloc w: i32[k] in global;\n"
    "  for t in 0..n { w[t] = x[t]; }\n"
    "  for t in 0..n { y[t] = w[t]; }\n"
    "}\n"
    "func start(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  view v: i32[n] = x[k];\n"
    "  for t in 0..n { y[t] = v[t]; }\n"
    "}\n"
    "func called(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  for t in 0..n { y[t] = quotient(x[t], i32(k)); }\n"
    "}\n"
    "func quotient(a: i32, b: i32) -> i32 { return a // b; }\n";
static const char two[] =
    "// The same programs.\n"
    "func load(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  parallel i in 0..n {\n"
    "    let from = i + k;\n"
    "    y[i] =\n"
    "      x[from];\n"
    "  }\n"
    "}\n"
    "func store(x: i32[n], inout y: i32[n], k: i64) { for to in 0..n { y[to+k] = x[to]; } }\n"
    "func add(x: i32[n], inout y: i32[n], k: i64) { for a in 0..n { atomic_add(y[a + k], 1); } }\n"
    "func divide(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  for t in 0..n { y[t] = (x[t] % (i32(k))); }\n"
    "}\n"
    "func plain(x: i32[n], inout y: i32[n], k: i64) { for p in 0..n { assert (p < k); } }\n"
    "func worded(x: i32[n], inout y: i32[n], k: i64) {\n  assert k>0, \"no k\"; }\n"
    "func space(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  alloc room: i32[k] in global;\n"
    "  for t in 0..n { room[t] = x[t]; }\n"
    "  for t in 0..n { y[t] = room[t]; }\n"
    "}\n"
    "func start(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  view part: i32[n] = x[k];\n"
    "  for t in 0..n { y[t] = part[t]; }\n"
    "}\n"
    "func parts(a: i32, b: i32) -> i32 { return quot(a, b); }\n"
    "func called(x: i32[n], inout y: i32[n], k: i64) {\n"
    "  for t in 0..n { y[t] = parts(x[t], i32(k)); }\n"
    "}\n"
    "func quot(a: i32, c: i32) -> i32 {\n"
    "  return a//c;\n"
    "}\n";

typedef struct fault {
  const char* function;
  int64_t k;
  qn_status_code_t code;
  const char* parts[2];  // ends of the messages of the two texts
} fault_t;
static const fault_t faults[] = {
    {"load", 2, QN_STATUS_OUT_OF_BOUNDS, {", at one.qn:2:46: x[t]", ", at two.qn:6:7: x[from]"}},
    {"store",
     2,
     QN_STATUS_OUT_OF_BOUNDS,
     {", at one.qn:4:66: y[t + k]", ", at two.qn:9:67: y[to+k]"}},
    {"add",
     2,
     QN_STATUS_OUT_OF_BOUNDS,
     {", at one.qn:5:64: atomic_add(y[t + k], 1)", ", at two.qn:10:64: atomic_add(y[a + k], 1)"}},
    {"divide",
     0,
     QN_STATUS_DIVISION_BY_ZERO,
     {", at one.qn:6:74: x[t] % i32(k)", ", at two.qn:12:27: x[t] % (i32(k))"}},
    {"plain",
     2,
     QN_STATUS_ASSERTION,
     {"assert failed: t < k, at one.qn:7:73", "assert failed: p < k, at two.qn:14:74"}},
    {"worded",
     0,
     QN_STATUS_ASSERTION,
     {"assert failed: no k, at one.qn:8:58: k > 0", "assert failed: no k, at two.qn:16:10: k>0"}},
    {"space",
     -1,
     QN_STATUS_VALUE_ERROR,
     {", at one.qn:10:3: alloc w: i32[k] in global",
      ", at two.qn:18:3: alloc room: i32[k] in global"}},
    {"space",
     2,
     QN_STATUS_OUT_OF_BOUNDS,
     {", at one.qn:11:19: w[t]", ", at two.qn:19:19: room[t]"}},
    {"called",
     0,
     QN_STATUS_DIVISION_BY_ZERO,
     {", at one.qn:21:47: a // b, in 'quotient', called at one.qn:19:26",
      ", at two.qn:31:10: a//c, in 'quot', called at two.qn:26:44, in 'parts', called at "
      "two.qn:28:26"}},
    {"start",
     9,
     QN_STATUS_OUT_OF_BOUNDS,
     {", at one.qn:15:3: view v: i32[n] = x[k]", ", at two.qn:23:3: view part: i32[n] = x[k]"}},
};

static const char* const names[] = {"one.qn", "two.qn"};

static qn_module_t* module_of(size_t t) {
  const char* text = t == 0 ? one : two;
  qn_parse_options_t options = {.struct_size = sizeof options, .source_name = names[t]};
  qn_module_t* module;
  must(qn_module_parse(text, strlen(text), &options, &module));
  return module;
}

// Calls a function of the module for a fault, and expects the end of the message, or with `end`
// NULL that there is no place. `stream` may be NULL.
static void fail_at(qn_engine_t* engine, qn_module_t* module, const char* kind, qn_tier_t tier,
                    const fault_t* fault, qn_stream_t* stream, qn_source_t source,
                    const char* end) {
  qn_target_t* target = must_target(kind);
  qn_lookup_options_t options = {.struct_size = sizeof options, .is_checked = true, .tier = tier};
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function;
  must(qn_engine_function(engine, module, target, fault->function, &options, &info, &function));
  if (source != 0) assert_int_equal(info.source, source);
  const qn_device_t cpu = {QN_DEVICE_CPU, 0};
  int32_t x[4] = {1, 2, 3, 4}, y[4] = {0};
  int64_t shape[] = {4};
  qn_tensor_t tx = {x, cpu, 1, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_tensor_t ty = {y, cpu, 1, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_value_t args[] = {qn_value_tensor(&tx), qn_value_tensor(&ty), qn_value_int(fault->k)};
  qn_status_t status;
  if (stream) {
    must(qn_function_call_on(function, stream, args, 3, NULL));
    qn_function_release(function);
    status = qn_stream_sync(cpu, stream);
  } else {
    status = qn_function_call(function, args, 3, NULL);
    qn_function_release(function);
  }
  assert_int_equal(qn_status_code(status), fault->code);
  const char* message = qn_status_message(status);
  size_t size = strlen(message), end_size = end ? strlen(end) : 0;
  bool is_right = end ? size > end_size && strcmp(message + size - end_size, end) == 0
                      : !strstr(message, ", at ");
  if (!is_right)
    fail_msg("%s, %s: \"%s\" does not end with \"%s\"", kind, fault->function, message,
             end ? end : "no place");
  qn_status_free(status);
  qn_target_release(target);
}

static const char* const kinds[] = {"interp", QN_HAVE_LLVM ? "cpu" : "interp"};
static const qn_tier_t tiers[] = {QN_TIER_FAST, QN_TIER_FULL};

// Every kind of failure, on code of the text itself and of another text.
static void test_kinds(void** state) {
  (void)state;
  for (size_t k = 0; k < 4; k++) {
    qn_engine_t* engine = must_engine((qn_engine_options_t){.cache_mode = QN_CACHE_OFF});
    qn_module_t* modules[] = {module_of(0), module_of(1)};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
      for (size_t t = 0; t < 2; t++) {
        qn_source_t source = i == 0 && t == 0 ? QN_SOURCE_COMPILED : QN_SOURCE_MEMORY;
        fail_at(engine, modules[t], kinds[k / 2], tiers[k % 2], &faults[i], NULL, source,
                faults[i].parts[t]);
      }
    }
    qn_module_release(modules[0]);
    qn_module_release(modules[1]);
    qn_engine_destroy(engine);
  }
}

// Code of a stream, whose module the caller has released.
static void test_streams(void** state) {
  (void)state;
  const qn_device_t cpu = {QN_DEVICE_CPU, 0};
  for (size_t k = 0; k < 2; k++) {
    qn_engine_t* engine = must_engine((qn_engine_options_t){.cache_mode = QN_CACHE_OFF});
    qn_stream_t* stream;
    must(qn_stream_create(cpu, &stream));
    qn_module_t* first = module_of(0);
    fail_at(engine, first, kinds[k], QN_TIER_FULL, &faults[0], stream, 0, faults[0].parts[0]);
    qn_module_release(first);
    qn_module_t* second = module_of(1);
    fail_at(engine, second, kinds[k], QN_TIER_FULL, &faults[0], stream, QN_SOURCE_MEMORY,
            faults[0].parts[1]);
    qn_module_release(second);
    qn_stream_destroy(stream);
    qn_engine_destroy(engine);
  }
}

// Entries of a directory and of a bundle that another text made.
static void test_stored(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE], bundle[QN_TEST_PATH_SIZE + 16];
  assert_true(qn_test_tempdir_make(directory));
  (void)snprintf(bundle, sizeof bundle, "%s/b.qnb", directory);
  qn_module_t* modules[] = {module_of(0), module_of(1)};
  qn_engine_t* engine = must_engine((qn_engine_options_t){.cache_dir = directory});
  fail_at(engine, modules[0], kinds[1], QN_TIER_FULL, &faults[0], NULL, QN_SOURCE_COMPILED,
          faults[0].parts[0]);
  assert_true(qn_engine_flush(engine, QN_TIMEOUT_INFINITE));
  qn_engine_destroy(engine);
  engine = must_engine((qn_engine_options_t){.cache_dir = directory});
  fail_at(engine, modules[1], kinds[1], QN_TIER_FULL, &faults[0], NULL, QN_SOURCE_DISK,
          faults[0].parts[1]);
  qn_engine_destroy(engine);

  qn_cache_dir_t* dir;
  must(qn_cache_dir_open(directory, &dir));
  must(qn_cache_bundle_write(bundle, dir, NULL, 0, NULL, NULL));
  qn_cache_dir_close(dir);
  const qn_setting_t settings[] = {{"bundles", bundle}};
  engine =
      must_engine((qn_engine_options_t){.cache_dir = "", .settings = settings, .setting_count = 1});
  fail_at(engine, modules[1], kinds[1], QN_TIER_FULL, &faults[3], NULL, QN_SOURCE_BUNDLE,
          faults[3].parts[1]);
  qn_engine_destroy(engine);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  qn_test_tempdir_remove(directory);
}

// A special module keeps the text; a decoded one has none, also on code of a text.
static void test_other_modules(void** state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    qn_engine_t* engine = must_engine((qn_engine_options_t){.cache_mode = QN_CACHE_OFF});
    qn_module_t *module = module_of(1), *special, *decoded;
    const char* n = "n";
    const int64_t four = 4;
    must(qn_module_specialize(module, &n, &four, 1, &special));
    size_t size;
    const void* bytes = qn_module_bytes(module, &size);
    must(qn_module_decode(bytes, size, NULL, &decoded));
    const fault_t* fault = &faults[0];
    fail_at(engine, module, kinds[k], QN_TIER_FULL, fault, NULL, 0, fault->parts[1]);
    fail_at(engine, special, kinds[k], QN_TIER_FULL, fault, NULL, 0, fault->parts[1]);
    fail_at(engine, decoded, kinds[k], QN_TIER_FULL, fault, NULL, QN_SOURCE_MEMORY, NULL);
    qn_module_release(module);
    qn_module_release(special);
    qn_module_release(decoded);
    qn_engine_destroy(engine);
  }
}

// ---- code that cannot be made

// A refusal of the generator for CPUs names the variable as the text of the caller does, the text
// that is compiled or another one of the same bytes, soon afterwards too.
static void test_refusals(void** state) {
  (void)state;
  if (!QN_HAVE_LLVM) skip();
  static const char* const format =
      "func f(out y: i32[n]) {\n"
      "  block.x b in 0..n { thread.y row in 0..2 { let width = n %% 8 + 1;\n"
      "    thread.x %s in 0..width { barrier; if %s == 0 { if row == 0 { y[b] = 1; } } } } }\n"
      "}\n";
  static const char* const locals[] = {"column", "lane"};
  qn_engine_t* engine = must_engine((qn_engine_options_t){.cache_mode = QN_CACHE_OFF});
  qn_target_t* target = must_target("cpu");
  for (size_t i = 0; i < 4; i++) {
    char text[400], expected[100];
    qn_parse_options_t options = {.struct_size = sizeof options, .source_name = names[i % 2]};
    (void)snprintf(text, sizeof text, format, locals[i % 2], locals[i % 2]);
    (void)snprintf(expected, sizeof expected, "thread loop '%s' must", locals[i % 2]);
    qn_module_t* module;
    must(qn_module_parse(text, strlen(text), &options, &module));
    qn_function_t* function;
    qn_status_t status = qn_engine_function(engine, module, target, "f", NULL, NULL, &function);
    assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
    assert_non_null(strstr(qn_status_message(status), expected));
    (void)snprintf(expected, sizeof expected, ", at %s:3:5", names[i % 2]);
    assert_non_null(strstr(qn_status_message(status), expected));
    qn_status_free(status);
    qn_module_release(module);
  }
  qn_target_release(target);
  qn_engine_destroy(engine);
}

// ---- threads

typedef struct caller {
  pthread_t thread;
  qn_engine_t* engine;
  size_t text;
} caller_t;

static void* call_often(void* self) {
  caller_t* caller = self;
  qn_module_t* module = module_of(caller->text);
  for (int i = 0; i < 20; i++) {
    const fault_t* fault = &faults[(size_t)i % (sizeof faults / sizeof *faults)];
    fail_at(caller->engine, module, kinds[1], QN_TIER_FULL, fault, NULL, 0,
            fault->parts[caller->text]);
  }
  qn_module_release(module);
  return NULL;
}

static void test_threads(void** state) {
  (void)state;
  qn_engine_t* engine = must_engine((qn_engine_options_t){.cache_mode = QN_CACHE_OFF});
  caller_t callers[4];
  for (size_t i = 0; i < 4; i++) {
    callers[i] = (caller_t){.engine = engine, .text = i % 2};
    assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
  }
  for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
  qn_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kinds),    cmocka_unit_test(test_streams),
      cmocka_unit_test(test_stored),   cmocka_unit_test(test_other_modules),
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
