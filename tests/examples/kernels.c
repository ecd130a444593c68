// SPDX-License-Identifier: Apache-2.0
// tests/examples/kernels.c: kernels of examples/ir on one device, against plain C.
//
// usage: example_kernels [TARGET], by default the interpreter. Exits with 77 where there is no such
// device. Each kernel runs in both tiers, checked in one. The tests: kernels_*.c.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants some of the above first.
#include <cmocka.h>

#include "base/base.h"
#include "base/dtype.h"
#include "quern/ir.h"
#include "quern/target.h"
#include "tests/examples/kernels.h"
#include "tests/support/engine.h"
#include "tests/support/random.h"

static const qn_device_t host = {QN_DEVICE_CPU, 0};
static qn_device_t device = {QN_DEVICE_CPU, 0};
static qn_target_t* target;
static qn_engine_t* engine;

static void copy(void* device_data, void* host_data, size_t size_bytes, bool is_up) {
  qn_copy_t made = {.struct_size = sizeof made,
                    .from_device = is_up ? host : device,
                    .from = is_up ? host_data : device_data,
                    .to_device = is_up ? device : host,
                    .to = is_up ? device_data : host_data,
                    .size_bytes = size_bytes};
  if (size_bytes > 0) must(qn_device_copy(&made, NULL));
}

static size_t size_of(const kernel_arg_t* arg) {
  size_t bits = qn__dtype_bits(arg->dtype);
  for (size_t i = 0; i < arg->rank; ++i) bits *= (size_t)arg->shape[i];
  return bits / 8;
}

static qn_module_t* read_module(const char* name) {
  static char text[1 << 16];
  char path[512];
  (void)snprintf(path, sizeof path, "%s/examples/ir/%s.qn", QN_SOURCE_DIR, name);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  (void)fclose(file);
  return must_parse(text);
}

void run_kernel_at(const kernel_build_t* build, const char* name, const char* function,
                   const kernel_arg_t* args, size_t arg_count) {
  assert_true(arg_count <= kernel_max_args);
  qn_module_t* module = read_module(name);
  qn_lookup_options_t lookup = {
      .struct_size = sizeof lookup, .tier = build->tier, .is_checked = build->is_checked};
  qn_function_t* found;
  must(qn_engine_function(engine, module, target, function, &lookup, NULL, &found));
  int64_t shapes[kernel_max_args][kernel_max_rank];
  qn_tensor_t tensors[kernel_max_args];
  qn_value_t values[kernel_max_args];
  void* buffers[kernel_max_args] = {NULL};
  for (size_t i = 0; i < arg_count; ++i) {
    const kernel_arg_t* arg = &args[i];
    values[i] = arg->number;
    if (!arg->data) continue;
    must(qn_device_allocate(device, size_of(arg), 64, &buffers[i]));
    copy(buffers[i], arg->data, size_of(arg), true);
    memcpy(shapes[i], arg->shape, sizeof shapes[i]);
    tensors[i] = (qn_tensor_t){.data = buffers[i],
                               .device = device,
                               .ndim = (int32_t)arg->rank,
                               .dtype = qn_dtype_to_dl(arg->dtype),
                               .shape = shapes[i]};
    values[i] = qn_value_tensor(&tensors[i]);
  }
  must(qn_function_call(found, values, arg_count, NULL));
  must(qn_stream_sync(device, NULL));
  for (size_t i = 0; i < arg_count; ++i) {
    if (!args[i].data) continue;
    copy(buffers[i], args[i].data, size_of(&args[i]), false);
    must(qn_device_free(device, buffers[i]));
  }
  qn_function_release(found);
  qn_module_release(module);
}

void fill_numbers(uint64_t seed, float* out, size_t count) {
  uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
  for (size_t i = 0; i < count; ++i) {
    out[i] = (float)((int)(random_next(&state) >> 32) % 65) / 64.0f;
  }
}

void expect_near(const char* what, size_t index, double have, double want, double bound) {
  if (fabs(have - want) <= bound) return;
  fail_msg("%s, element %zu: %.9g, not %.9g", what, index, have, want);
}

static int set_up(void** state) {
  (void)state;
  engine =
      must_engine((qn_engine_options_t){.cache_dir = "", .generator_dir = QN_BINARY_DIR "/lib"});
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_target_release(target);
  qn_engine_destroy(engine);
  return 0;
}

int main(int argc, char** argv) {
  const char* text = argc > 1 ? argv[1] : "interp";
  qn_status_t status = qn_target_parse(text, &target);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "not run: %s\n", qn_status_message(status));
    qn_status_free(status);
    return 77;
  }
  const char* kind = qn_target_kind(target);
  if (strcmp(kind, "cuda") == 0) device.type = QN_DEVICE_CUDA;
  if (strcmp(kind, "vulkan") == 0) device.type = QN_DEVICE_VULKAN;
  static kernel_build_t full = {QN_TIER_FULL, false}, fast = {QN_TIER_FAST, true};
#define BOTH(test) cmocka_unit_test_prestate(test, &full), cmocka_unit_test_prestate(test, &fast)
  const struct CMUnitTest tests[] = {
      BOTH(test_sha256),
      BOTH(test_philox),
      BOTH(test_bitonic_sort),
      BOTH(test_argmax),
      BOTH(test_topk),
      BOTH(test_nms),
      BOTH(test_int4_linear),
      BOTH(test_fp8_linear),
      BOTH(test_mxfp4_linear),
      BOTH(test_mxfp4_quantize),
      BOTH(test_layernorm_welford),
      BOTH(test_fft),
      BOTH(test_conv_transpose),
      BOTH(test_winograd),
      BOTH(test_split_k),
      BOTH(test_attention),
      BOTH(test_flash_attention),
      BOTH(test_paged_attention),
      BOTH(test_mixture_of_experts),
  };
  return cmocka_run_group_tests_name(kind, tests, set_up, tear_down);
}
