// SPDX-License-Identifier: Apache-2.0
// tests/soak/lookups.c: a worker's operations on engines: lookups that wait, have a time limit or
// are cancelled, and calls of the resulting functions.
//
// The expected result of a kernel follows from its number. Thread rule: in worker.h.
#include <stdio.h>
#include <string.h>

#include "tests/soak/worker.h"

// Half of the engines do; the one that compiles afresh to compare does not.
static bool uses_bundles(const soak_process_t* process) {
  return process->seed % 2 == 1;
}

qn_engine_t* soak_open_engine(soak_process_t* process) {
  char bundles[SOAK_BUNDLES * SOAK_PATH_SIZE] = "";
  for (unsigned i = 0; i < SOAK_BUNDLES; i++) {
    char path[SOAK_PATH_SIZE];
    soak_bundle_path(i, path);
    if (i) (void)strcat(bundles, ":");
    (void)strcat(bundles, path);
  }
  const qn_setting_t settings[] = {{"bundles", uses_bundles(process) ? bundles : ""},
                                   {"cache_max_size", "1MiB"},
                                   {"cache_max_entries", "150"},
                                   {"cache_min_free", "1"},
                                   {"lock_timeout", "300ms"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .allocator = qn_fault_heap_allocator(&process->heap),
                                 .cache_dir = soak_options.root,
                                 .cache_mode = QN_CACHE_RW,
                                 .ignores_environment = true,
                                 .settings = settings,
                                 .setting_count = QN_COUNT_OF(settings)};
  qn_engine_t* engine;
  qn_status_t status = qn_engine_create(&options, &engine);
  if (!qn_ok(status)) soak_violation("engine: %s", qn_status_message(status));
  qn_status_free(status);
  return engine;
}

static qn_module_t* parse_module(unsigned number) {
  char text[160];
  (void)snprintf(text, sizeof text,
                 "func f(x: i32[n], out y: i32[n]) { for i in 0..n { y[i] = x[i] * %u + %u; } }\n",
                 number + 3, number * 7);
  qn_module_t* module;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) soak_violation("parse: %s", qn_status_message(status));
  qn_status_free(status);
  return module;
}

static void call_kernel(soak_thread_t* thread, qn_function_t* function, unsigned number) {
  enum { COUNT = 37 };
  int32_t x[COUNT], y[COUNT];
  for (int i = 0; i < COUNT; i++) {
    x[i] = (int32_t)soak_random(&thread->random, 10000);
    y[i] = -1;
  }
  int64_t shape[] = {COUNT};
  qn_dl_dtype_t dtype = qn_dtype_to_dl(QN_DTYPE_I32);
  qn_tensor_t tx = {x, {QN_DEVICE_CPU, 0}, 1, dtype, shape, NULL, 0};
  qn_tensor_t ty = {y, {QN_DEVICE_CPU, 0}, 1, dtype, shape, NULL, 0};
  qn_value_t args[] = {qn_value_tensor(&tx), qn_value_tensor(&ty)};
  qn_status_t status = qn_function_call(function, args, 2, NULL);
  if (!qn_ok(status)) soak_violation("call: %s", qn_status_message(status));
  qn_status_free(status);
  for (int i = 0; i < COUNT; i++) {
    int32_t wanted = x[i] * (int32_t)(number + 3) + (int32_t)number * 7;
    if (y[i] != wanted) {
      soak_violation("module %u gives %d, not %d, for %d", number, y[i], wanted, x[i]);
      return;
    }
  }
  SOAK_COUNT(called);
}

static qn_target_t* parse_target(const char* text) {
  qn_target_t* target;
  qn_status_t status = qn_target_parse(text, &target);
  if (!qn_ok(status)) soak_violation("target: %s", qn_status_message(status));
  qn_status_free(status);
  return target;
}

static void count_source(qn_source_t source) {
  if (source == QN_SOURCE_MEMORY) {
    SOAK_COUNT(found_in_memory);
  } else if (source == QN_SOURCE_COMPILED) {
    SOAK_COUNT(compiled);
  } else if (source == QN_SOURCE_BUNDLE) {
    SOAK_COUNT(found_in_bundles);
  } else {
    SOAK_COUNT(found_on_disk);
  }
}

void soak_look_up_one(soak_thread_t* thread, qn_engine_t* engine, unsigned number, bool is_native,
                      bool unloads) {
  qn_module_t* module = parse_module(number);
  qn_target_t* target = parse_target(is_native ? "cpu" : "interp");
  qn_lookup_options_t options = {.struct_size = sizeof options, .tier = QN_TIER_FAST};
  if (unloads) (void)qn_engine_unload(engine, module, target, &options);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function = NULL;
  qn_status_t status = qn_engine_function(engine, module, target, "f", &options, &info, &function);
  if (qn_ok(status)) {
    count_source(info.source);
    call_kernel(thread, function, number);
  } else {
    soak_violation("lookup of module %u for %s: %s", number, is_native ? "cpu" : "interp",
                   qn_status_message(status));
  }
  qn_status_free(status);
  qn_function_release(function);
  qn_target_release(target);
  qn_module_release(module);
}

void soak_look_up(soak_thread_t* thread, bool unloads) {
  qn_engine_t* engine = thread->process->engines[soak_random(&thread->random, 2)];
  unsigned number = soak_random(&thread->random, SOAK_MODULES);
  bool is_native = soak_options.has_compiler && soak_random(&thread->random, 3) == 0;
  soak_look_up_one(thread, engine, number, is_native, unloads);
}

// Returns whether a status is allowed for a lookup that has a time limit, is cancelled, or may not
// compile.
static bool is_late(qn_status_t status) {
  qn_status_code_t code = qn_status_code(status);
  return code == QN_STATUS_DEADLINE_EXCEEDED || code == QN_STATUS_CANCELLED ||
         code == QN_STATUS_COMPILE_FORBIDDEN;
}

// Consumes the status and the function.
static void judge_late(soak_thread_t* thread, const char* what, unsigned number, qn_status_t status,
                       qn_function_t* function) {
  if (qn_ok(status)) {
    call_kernel(thread, function, number);
  } else if (is_late(status)) {
    SOAK_COUNT(late);
  } else {
    soak_violation("%s of module %u: %s", what, number, qn_status_message(status));
  }
  qn_status_free(status);
  qn_function_release(function);
}

static void count_ready(void* self) {
  (void)self;
}

// Waits briefly, cancels, or releases the future at once.
static void ask_and_wait(soak_thread_t* thread, unsigned number, qn_future_t* future) {
  unsigned how = soak_random(&thread->random, 4);
  if (how == 0) qn_future_cancel(future);
  if (how == 1) qn_future_notify(future, count_ready, NULL);
  for (int i = 0; how > 1 && i < 2; i++) {
    qn_function_t* function = NULL;
    int64_t timeout_ns = soak_random(&thread->random, 20) * MILLISECOND_NS;
    qn_status_t status = qn_future_wait(future, timeout_ns, NULL, &function);
    judge_late(thread, "request", number, status, function);
  }
}

void soak_look_up_in_a_hurry(soak_thread_t* thread, bool is_request) {
  qn_engine_t* engine = thread->process->engines[soak_random(&thread->random, 2)];
  unsigned number = soak_random(&thread->random, SOAK_MODULES);
  bool is_native = soak_options.has_compiler && soak_random(&thread->random, 3) == 0;
  qn_module_t* module = parse_module(number);
  qn_target_t* target = parse_target(is_native ? "cpu" : "interp");
  qn_lookup_options_t options = {.struct_size = sizeof options,
                                 .tier = QN_TIER_FAST,
                                 .miss = (qn_miss_policy_t)soak_random(&thread->random, 3),
                                 .time_limit_ns = 1 + soak_random(&thread->random, 8000000),
                                 .priority = (int32_t)soak_random(&thread->random, 3)};
  (void)qn_engine_unload(engine, module, target, &options);
  if (is_request) {
    qn_future_t* future = NULL;
    qn_status_t status = qn_engine_request(engine, module, target, "f", &options, &future);
    if (!qn_ok(status)) soak_violation("request: %s", qn_status_message(status));
    qn_status_free(status);
    if (future) ask_and_wait(thread, number, future);
    qn_future_release(future);
  } else {
    qn_function_t* function = NULL;
    qn_status_t status = qn_engine_function(engine, module, target, "f", &options, NULL, &function);
    judge_late(thread, "hurried lookup", number, status, function);
  }
  qn_target_release(target);
  qn_module_release(module);
}
