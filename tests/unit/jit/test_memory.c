// SPDX-License-Identifier: Apache-2.0
// Tests that a process that sees ever new modules does not grow. Several threads run many modules
// within a small bound, interpreted and compiled. Results stay right, bytes stay bounded, the code
// pool frees unloaded code, and unloaded entries load again from the directory.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/thread.h"
#include "devices/cpu/code_pool.h"
#include "jit/engine/engine.h"
#include "quern/quern.h"
#include "tests/support/engine.h"
#include "tests/support/tempdir.h"

enum { MODULES = 96, THREADS = 4, TURNS = 600, BOUND = 12 };

static const qn_device_t cpu = {QN_DEVICE_CPU, 0};

typedef struct shared {
  qn_engine_t* engine;
  qn_target_t* target;
  qn_module_t* modules[MODULES];
  qn_tier_t tier;
} shared_t;
typedef struct worker {
  shared_t* shared;
  uint64_t seed;
} worker_t;

static qn_engine_t* engine_on(const char* directory, const char* max_size,
                              const char* max_entries) {
  qn_setting_t settings[] = {{"memory_max_size", max_size}, {"memory_max_entries", max_entries}};
  return must_engine((qn_engine_options_t){
      .cache_dir = directory, .settings = settings, .setting_count = QN_COUNT_OF(settings)});
}

// Module `number` writes its number.
static qn_module_t* make_module(int number) {
  char text[128];
  (void)snprintf(text, sizeof text, "func f(out y: i32[n]) { for i in 0..n { y[i] = %d; } }\n",
                 number);
  qn_module_t* module;
  must(qn_module_parse(text, strlen(text), NULL, &module));
  return module;
}

static void call(qn_function_t* function, int number) {
  int32_t y[3] = {-1, -1, -1};
  int64_t shape[] = {3};
  qn_tensor_t tensor = {y, cpu, 1, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_value_t arg = qn_value_tensor(&tensor);
  must(qn_function_call(function, &arg, 1, NULL));
  for (int i = 0; i < 3; i++) assert_int_equal(y[i], number);
}

static qn_function_t* find(const shared_t* s, int number) {
  qn_lookup_options_t options = {.struct_size = sizeof options, .tier = s->tier};
  qn_function_t* function;
  must(
      qn_engine_function(s->engine, s->modules[number], s->target, "f", &options, NULL, &function));
  return function;
}

static void* churn(void* arg) {
  const worker_t* worker = arg;
  const shared_t* s = worker->shared;
  uint64_t random = worker->seed;
  qn_function_t* kept = NULL;
  int kept_number = 0;
  for (int turn = 0; turn < TURNS; turn++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int number = (int)((random >> 33) % MODULES);
    qn_function_t* function = find(s, number);
    call(function, number);
    // One is held over a few turns, whatever becomes of its entry.
    if (turn % 7 == 0) {
      qn_function_release(kept);
      kept = function;
      kept_number = number;
    } else {
      qn_function_release(function);
    }
    call(kept, kept_number);
  }
  qn_function_release(kept);
  return NULL;
}

static void churn_on(const char* target_text, qn_tier_t tier) {
  size_t mapped_before, used_before, mapped, used;
  qn__cpu_code_usage(&mapped_before, &used_before);
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  shared_t s = {.engine = engine_on(directory, "256MiB", "12"), .tier = tier};
  must(qn_target_parse(target_text, &s.target));
  for (int i = 0; i < MODULES; i++) s.modules[i] = make_module(i);
  // Everything is in the directory once, so that what follows compiles nothing.
  for (int i = 0; i < MODULES; i++) qn_function_release(find(&s, i));
  assert_true(qn_engine_flush(s.engine, INT64_C(3600000000000)));
  const qn__table_stats_t full = qn__table_stats(&s.engine->table);
  assert_int_equal(full.entry_count, BOUND);
  const uint64_t entry_bytes = full.bytes / full.entry_count;
  pthread_t threads[THREADS];
  worker_t workers[THREADS];
  for (uint32_t i = 0; i < THREADS; i++) {
    workers[i] = (worker_t){&s, i + 1};
    must(qn__thread_start(&threads[i], "churn", 0, churn, &workers[i]));
  }
  for (uint32_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  const qn__table_stats_t stats = qn__table_stats(&s.engine->table);
  // What threads held when the hand came by may be there still: a few each.
  assert_true(stats.entry_count <= BOUND + 3 * THREADS);
  assert_true(stats.bytes <= (BOUND + 3 * THREADS) * (entry_bytes + 256));
  assert_true(stats.evicted_count >= (uint64_t)THREADS * TURNS / 4);
  qn__cpu_code_usage(&mapped, &used);
  assert_true(used - used_before <= (BOUND + 3 * THREADS) * 4096);
  assert_true(mapped <= mapped_before + (4 << 20));
  for (int i = 0; i < MODULES; i++) qn_module_release(s.modules[i]);
  qn_target_release(s.target);
  qn_engine_destroy(s.engine);
  qn__cpu_code_usage(&mapped, &used);
  assert_int_equal(used, used_before);
  qn_test_tempdir_remove(directory);
}

static void test_churn_interpreted(void** state) {
  (void)state;
  churn_on("interp", QN_TIER_FULL);
}
static void test_churn_code(void** state) {
  (void)state;
  if (!QN_HAVE_LLVM) skip();
  churn_on("cpu", QN_TIER_FAST);
}

// Thousands of modules that are seen once each, with no directory.
static void test_ever_new_modules(void** state) {
  (void)state;
  qn_engine_t* engine = engine_on("", "100 kB", "1000000");
  shared_t s = {.engine = engine, .tier = QN_TIER_FULL};
  must(qn_target_parse("interp", &s.target));
  uint64_t largest = 0;
  for (int i = 0; i < 3000; i++) {
    s.modules[0] = make_module(i);
    qn_function_t* function = find(&s, 0);
    call(function, i);
    qn_function_release(function);
    qn_module_release(s.modules[0]);
    uint64_t bytes = qn__table_stats(&engine->table).bytes;
    if (bytes > largest) largest = bytes;
  }
  assert_true(largest <= 110000);
  assert_true(qn__table_stats(&engine->table).evicted_count > 2900);
  qn_target_release(s.target);
  qn_engine_destroy(engine);
}

// Code of functions that are held outlives the engine, and then its table's bounds.
static void test_destroy_while_held(void** state) {
  (void)state;
  size_t mapped, used_before, used;
  qn__cpu_code_usage(&mapped, &used_before);
  shared_t s = {.engine = engine_on("", "0", "0"), .tier = QN_TIER_FAST};
  must(qn_target_parse(QN_HAVE_LLVM ? "cpu" : "interp", &s.target));
  qn_function_t* functions[5];
  for (int i = 0; i < 5; i++) {
    s.modules[i] = make_module(i);
    functions[i] = find(&s, i);
  }
  for (int i = 0; i < 5; i++) qn_module_release(s.modules[i]);
  qn_engine_destroy(s.engine);
  qn_target_release(s.target);
  for (int i = 0; i < 5; i++) call(functions[i], i);
  for (int i = 0; i < 5; i++) qn_function_release(functions[i]);
  qn__cpu_code_usage(&mapped, &used);
  assert_int_equal(used, used_before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_churn_interpreted),
      cmocka_unit_test(test_churn_code),
      cmocka_unit_test(test_ever_new_modules),
      cmocka_unit_test(test_destroy_while_held),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
