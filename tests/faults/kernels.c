// SPDX-License-Identifier: Apache-2.0
// tests/faults/kernels.c: see kernels.h.
#include "tests/faults/kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "quern/observe.h"

qn_module_t* kernel_module(unsigned number) {
  char text[160];
  (void)snprintf(text, sizeof text,
                 "func f(x: i32[n], out y: i32[n]) { for i in 0..n { y[i] = x[i] * %u + %u; } }\n",
                 number + 3, number * 7);
  qn_module_t* module;
  qn_status_free(qn_module_parse(text, strlen(text), NULL, &module));
  return module;
}

bool kernel_is_right(qn_function_t* function, unsigned number) {
  enum { COUNT = 19 };
  int32_t x[COUNT], y[COUNT];
  for (int i = 0; i < COUNT; i++) {
    x[i] = i * 31 - 50;
    y[i] = -1;
  }
  int64_t shape[] = {COUNT};
  qn_dl_dtype_t dtype = qn_dtype_to_dl(QN_DTYPE_I32);
  qn_tensor_t tx = {x, {QN_DEVICE_CPU, 0}, 1, dtype, shape, NULL, 0};
  qn_tensor_t ty = {y, {QN_DEVICE_CPU, 0}, 1, dtype, shape, NULL, 0};
  qn_value_t args[] = {qn_value_tensor(&tx), qn_value_tensor(&ty)};
  bool is_right = qn_status_consume(qn_function_call(function, args, 2, NULL)) == QN_STATUS_OK;
  for (int i = 0; i < COUNT; i++) {
    is_right &= y[i] == x[i] * (int32_t)(number + 3) + (int32_t)number * 7;
  }
  return is_right;
}

qn_status_t kernel_look_up(qn_engine_t* engine, unsigned number, const char* target,
                           const qn_lookup_options_t* options, qn_source_t* out_source) {
  qn_module_t* module = kernel_module(number);
  qn_target_t* parsed = NULL;
  qn_function_t* function = NULL;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_status_t status = qn_target_parse(target, &parsed);
  if (qn_ok(status)) {
    status = qn_engine_function(engine, module, parsed, "f", options, &info, &function);
  }
  if (qn_ok(status) && !kernel_is_right(function, number)) {
    status = qn_status_make(QN_STATUS_DATA_LOSS, "module %u gives a wrong result", number);
  }
  if (out_source) *out_source = info.source;
  qn_function_release(function);
  qn_target_release(parsed);
  qn_module_release(module);
  return status;
}

qn_engine_t* kernel_engine(qn_allocator_t allocator, const char* directory,
                           const qn_setting_t* settings, size_t setting_count) {
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .allocator = allocator,
                                 .cache_dir = directory,
                                 .cache_mode = QN_CACHE_RW,
                                 .ignores_environment = true,
                                 .settings = settings,
                                 .setting_count = setting_count};
  qn_engine_t* engine;
  qn_status_free(qn_engine_create(&options, &engine));
  return engine;
}

typedef struct wanted {
  const char* name;
  uint64_t value;
} wanted_t;

static void find_counter(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  wanted_t* wanted = self;
  if (strcmp(wanted->name, name) == 0) wanted->value = value;
}

uint64_t kernel_counter(qn_engine_t* engine, const char* name) {
  wanted_t wanted = {name, UINT64_MAX};
  qn_engine_counters(engine, find_counter, &wanted);
  return wanted.value;
}
