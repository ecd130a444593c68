// SPDX-License-Identifier: Apache-2.0
// tests/unit/jit/test_gpu_differential.c: random modules and every example on a GPU device, against
// the interpreter.
//
// Each module goes the whole way: lookup, code generator, artifact, device, call. Integers agree
// bit for bit, floats within the bound that the module's generator carries. It runs on the first
// Vulkan device (lavapipe does), and says that it did not where there is none. A longer run, or
// another device:
//   jit_test_gpu_differential --seed 1000 --count 5000 [--size 10] [--forms] [--print] [--target
//   cuda]
// --forms: only programs of the forms that mappings look for, such as products. A failure names the
// seed. Thread rule: one thread. Read next: tests/support/generate.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "ir/interpret.h"
#include "quern/ir.h"
#include "quern/quern.h"
#include "quern/target.h"
#include "tests/support/generate.h"

typedef struct options {
  uint64_t seed;
  uint64_t count;
  uint32_t size;
  bool prints;
  bool has_forms_only;
  bool has_no_examples;  // where a seed is asked for
  const char* target;
} options_t;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DEFAULT_COUNT = 15 };
#else
enum { DEFAULT_COUNT = 60 };
#endif
static options_t options = {.seed = 1, .count = DEFAULT_COUNT, .target = "vulkan -from_device=0"};

static qn_engine_t* engine;
static qn_target_t* target;
static qn_device_t device;
static int64_t warp_size = 32;

typedef struct build {
  qn_tier_t tier;
  bool is_checked;
} build_t;
static const build_t builds[] = {
    {QN_TIER_FULL, false}, {QN_TIER_FAST, false}, {QN_TIER_FULL, true}, {QN_TIER_FAST, true}};

static void describe(const qn_generated_t* generated, const build_t* build, const char* problem) {
  (void)fprintf(stderr, "seed %llu, %s%s: %s\n", (unsigned long long)generated->seed,
                build->tier == QN_TIER_FAST ? "fast" : "full", build->is_checked ? " checked" : "",
                problem);
}

// ---- arguments on the device

typedef struct call {
  void* buffers[qn_generated_max_params];
  int64_t shapes[qn_generated_max_params][qn_generated_max_rank];
  int64_t strides[qn_generated_max_params][qn_generated_max_rank];
  qn_tensor_t tensors[qn_generated_max_params];
  qn_value_t values[qn_generated_max_params];
} call_t;

static const qn_device_t host = {QN_DEVICE_CPU, 0};

static qn_status_t copy(void* device_data, void* host_data, size_t size_bytes, bool is_up) {
  qn_copy_t made = {.struct_size = sizeof made,
                    .from_device = is_up ? host : device,
                    .from = is_up ? host_data : device_data,
                    .to_device = is_up ? device : host,
                    .to = is_up ? device_data : host_data,
                    .size_bytes = size_bytes};
  return qn_device_copy(&made, NULL);
}

static size_t bytes_of(const qn_generated_param_t* param) {
  return param->element_count * qn_dtype_size_bytes(param->dtype);
}

static qn_value_t scalar_of(const qn_generated_param_t* param) {
  qn__ir_scalar_t value = qn__scalar_from_bits(param->dtype, param->scalar_bits);
  if (param->dtype == QN_DTYPE_BOOL) return qn_value_bool(value.i != 0);
  return qn__dtype_is_float(param->dtype) ? qn_value_float(value.f) : qn_value_int(value.i);
}

static qn_status_t make_call(const qn_generated_t* generated, const qn_generated_args_t* args,
                             call_t* call) {
  *call = (call_t){0};
  for (size_t i = 0; i < generated->param_count; ++i) {
    const qn_generated_param_t* param = &generated->params[i];
    if (!param->is_buffer) {
      call->values[i] = scalar_of(param);
      continue;
    }
    size_t size = bytes_of(param);
    QN_TRY(qn_device_allocate(device, size, 64, &call->buffers[i]));
    if (size > 0) QN_TRY(copy(call->buffers[i], args->buffers[i], size, true));
    memcpy(call->shapes[i], param->shape, sizeof param->shape);
    memcpy(call->strides[i], param->strides, sizeof param->strides);
    call->tensors[i] = (qn_tensor_t){.data = call->buffers[i],
                                     .device = device,
                                     .ndim = (int32_t)param->rank,
                                     .dtype = qn_dtype_to_dl(param->dtype),
                                     .shape = call->shapes[i],
                                     .strides = param->has_strides ? call->strides[i] : NULL};
    call->values[i] = qn_value_tensor(&call->tensors[i]);
  }
  return QN_OK;
}

static qn_status_t fetch(const qn_generated_t* generated, const call_t* call,
                         qn_generated_args_t* out) {
  for (size_t i = 0; i < generated->param_count; ++i) {
    const qn_generated_param_t* param = &generated->params[i];
    if (!param->is_buffer || bytes_of(param) == 0) continue;
    QN_TRY(copy(call->buffers[i], out->buffers[i], bytes_of(param), false));
  }
  return QN_OK;
}

static void drop_call(call_t* call) {
  for (size_t i = 0; i < qn_generated_max_params; ++i) {
    if (call->buffers[i]) qn_status_free(qn_device_free(device, call->buffers[i]));
  }
}

// ---- one module

static qn_status_t run(const qn_generated_t* generated, const build_t* build,
                       qn_generated_args_t* actual) {
  qn_lookup_options_t lookup = {
      .struct_size = sizeof lookup, .tier = build->tier, .is_checked = build->is_checked};
  qn_function_t* function = NULL;
  const char* name = qn_module_function_name(generated->module, 0);
  QN_TRY(qn_engine_function(engine, generated->module, target, name, &lookup, NULL, &function));
  call_t call;
  qn_status_t status = make_call(generated, actual, &call);
  if (qn_ok(status)) {
    status = qn_function_call(function, call.values, generated->param_count, NULL);
  }
  if (qn_ok(status)) status = qn_stream_sync(device, NULL);
  if (qn_ok(status)) status = fetch(generated, &call, actual);
  drop_call(&call);
  qn_function_release(function);
  (void)qn_engine_unload(engine, generated->module, target, &lookup);
  return status;
}

static bool check_build(const qn_generated_t* generated, const qn_generated_args_t* expected,
                        const build_t* build) {
  qn_generated_args_t actual;
  qn_generated_args_init(generated, &actual);
  qn_status_t status = run(generated, build, &actual);
  char message[512] = "";
  bool is_right = qn_ok(status);
  if (is_right) {
    is_right = qn_generated_compare(generated, expected, &actual, false, message, sizeof message);
  }
  if (!is_right) describe(generated, build, message[0] ? message : qn_status_message(status));
  qn_status_free(status);
  qn_generated_args_deinit(&actual);
  return is_right;
}

static bool check_seed(uint64_t seed, bool is_form) {
  qn_generate_options_t generate = {.size = options.size ? options.size : 1 + (uint32_t)(seed % 6),
                                    .allows_fast = true,
                                    .allows_threads = true,
                                    // llvmpipe ends such a wait, as that of prefix_sum below.
                                    .allows_waits = device.type != QN_DEVICE_VULKAN,
                                    .is_form = is_form};
  qn_generated_t generated;
  qn_status_t error = QN_OK;
  if (!qn_generate(seed, &generate, &generated, &error)) {
    (void)fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, qn_status_message(error));
    qn_status_free(error);
    qn_generated_release(&generated);
    return false;
  }
  if (options.prints) (void)printf("%s\n", generated.text);
  qn_generated_args_t expected;
  qn_generated_args_init(&generated, &expected);
  qn__interpret_args_t args = {
      .params = expected.params, .symbols = generated.symbols, .warp_size = (uint32_t)warp_size};
  qn_status_t status = qn__interpret(generated.module->functions[0], &args, qn_allocator_default());
  bool is_right = qn_ok(status);
  if (!is_right) describe(&generated, &builds[0], qn_status_message(status));
  qn_status_free(status);
  for (size_t i = 0; i < QN_COUNT_OF(builds) && is_right; ++i) {
    bool is_asked = options.count == 1 || i == seed % QN_COUNT_OF(builds);
    if (is_asked) is_right = check_build(&generated, &expected, &builds[i]);
  }
  qn_generated_args_deinit(&expected);
  qn_generated_release(&generated);
  return is_right;
}

static void test_random_modules(void** state) {
  (void)state;
  if (!target || options.has_forms_only) skip();
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < options.count; ++i) wrong += !check_seed(options.seed + i, false);
  assert_int_equal(wrong, 0);
}

static void test_random_forms(void** state) {
  (void)state;
  if (!target) skip();
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < options.count; ++i) wrong += !check_seed(options.seed + i, true);
  assert_int_equal(wrong, 0);
}

// ---- the examples

typedef struct example {
  const char* name;
  int64_t symbols[5];
  double tolerance;
} example_t;

static const example_t examples[] = {
    {"saxpy", {1000}, 0},
    {"saxpy", {1}, 0},
    {"saxpy", {0}, 0},
    {"softmax", {33, 70}, 1e-5},
    {"softmax", {3, 5000}, 1e-5},
    {"matmul_tile", {37, 45, 51}, 1e-3},
    {"transpose_shared", {65, 130}, 0},
    {"block_norm", {9, 700}, 1e-3},
    {"two_launches", {45, 300}, 1e-4},
    {"histogram", {5000}, 0},
    {"fir_filter", {300}, 0},
    {"newton_sqrt", {200}, 1e-6},
    {"embed_layernorm", {3, 17, 40, 96, 20}, 1e-4},
    {"split_sum", {9000}, 1e-3},
    {"prefix_sum", {3000}, 0},
    {"recurrence", {2, 2500}, 1e-4},
};

static bool extent_of(const qn__ir_func_t* function, const int64_t* symbols,
                      const qn__ir_expr_t* expr, int64_t* out) {
  if (expr->kind == QN__EXPR_INT) {
    *out = expr->int_value;
    return true;
  }
  if (expr->kind == QN__EXPR_OP) {
    qn__ir_scalar_t args[3] = {{0}, {0}, {0}};
    for (uint32_t i = 0; i < qn__op_info(expr->op)->arity; ++i) {
      if (!extent_of(function, symbols, expr->args[i], &args[i].i)) return false;
    }
    qn__ir_scalar_t result;
    bool is_known = qn__scalar_op(expr->op, QN_DTYPE_I64, args, &result);
    *out = result.i;
    return is_known;
  }
  for (size_t i = 0; expr->kind == QN__EXPR_VAR && i < function->symbol_count; ++i) {
    if (function->symbols[i] != expr->var) continue;
    *out = symbols[i];
    return true;
  }
  // A scalar parameter that is an extent: fir's n, which is its first symbol too.
  *out = symbols[0];
  return expr->kind == QN__EXPR_VAR;
}

// The example in the words of the generator of random modules, which fills arguments and compares.
static void describe_example(const example_t* example, qn_module_t* module, qn_generated_t* out) {
  const qn__ir_func_t* function = module->functions[0];
  *out = (qn_generated_t){.seed = 7, .module = module, .param_count = function->param_count};
  memcpy(out->symbols, example->symbols, sizeof example->symbols);
  for (size_t i = 0; i < function->param_count; ++i) {
    qn_generated_param_t* param = &out->params[i];
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (!buffer) {
      param->dtype = function->params[i].scalar->dtype;
      qn__ir_scalar_t value = {.i = example->symbols[0]};
      if (qn__dtype_is_float(param->dtype)) value.f = 0.5;
      param->scalar_bits = qn__scalar_to_bits(param->dtype, value);
      continue;
    }
    *param = (qn_generated_param_t){.is_buffer = true,
                                    .dtype = buffer->dtype,
                                    .access = buffer->access,
                                    .rank = buffer->rank,
                                    .element_count = 1,
                                    .tolerance = example->tolerance};
    for (uint32_t k = 0; k < buffer->rank; ++k) {
      assert_true(extent_of(function, example->symbols, buffer->shape[k], &param->shape[k]));
      param->element_count *= (size_t)param->shape[k];
    }
  }
}

// What the programs ask of their arguments.
static void tame(const qn_generated_t* generated, const char* name, qn_generated_args_t* args) {
  for (size_t i = 0; i < generated->param_count; ++i) {
    const qn_generated_param_t* param = &generated->params[i];
    if (!param->is_buffer) continue;
    for (size_t e = 0; e < param->element_count; ++e) {
      if (param->dtype == QN_DTYPE_I64) ((int64_t*)args->buffers[i])[e] = (int64_t)(e * 7 % 40);
      bool is_sum = strcmp(name, "prefix_sum") == 0;
      if (param->dtype == QN_DTYPE_I32 && !is_sum) ((int32_t*)args->buffers[i])[e] = 0;
      if (param->dtype == QN_DTYPE_I16) ((int16_t*)args->buffers[i])[e] %= 100;
      if (param->dtype != QN_DTYPE_F32) continue;
      float* value = &((float*)args->buffers[i])[e];
      if (strcmp(name, "newton_sqrt") == 0 && *value < 0) *value = -*value;
      // Factors below 1, so that it does not grow.
      if (strcmp(name, "recurrence") == 0) *value -= truncf(*value);
    }
  }
}

static bool check_example(const example_t* example) {
  static char text[1 << 16];
  char path[512];
  (void)snprintf(path, sizeof path, "%s/examples/ir/%s.qn", QN_SOURCE_DIR, example->name);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  size_t size = fread(text, 1, sizeof text, file);
  (void)fclose(file);
  qn_module_t* module = NULL;
  assert_true(qn_ok(qn_module_parse(text, size, NULL, &module)));
  qn_generated_t generated;
  describe_example(example, module, &generated);
  qn_generated_args_t expected;
  qn_generated_args_init(&generated, &expected);
  tame(&generated, example->name, &expected);
  qn__interpret_args_t args = {
      .params = expected.params, .symbols = example->symbols, .warp_size = (uint32_t)warp_size};
  qn_status_t status = qn__interpret(module->functions[0], &args, qn_allocator_default());
  bool is_right = qn_ok(status);
  if (!is_right) (void)fprintf(stderr, "%s: %s\n", example->name, qn_status_message(status));
  qn_status_free(status);
  for (size_t i = 0; i < QN_COUNT_OF(builds) && is_right; ++i) {
    qn_generated_args_t actual;
    qn_generated_args_init(&generated, &actual);
    tame(&generated, example->name, &actual);
    char message[512] = "";
    status = run(&generated, &builds[i], &actual);
    is_right = qn_ok(status) &&
               qn_generated_compare(&generated, &expected, &actual, false, message, sizeof message);
    if (!is_right) {
      (void)fprintf(stderr, "%s, build %zu: %s\n", example->name, i,
                    message[0] ? message : qn_status_message(status));
    }
    qn_status_free(status);
    qn_generated_args_deinit(&actual);
  }
  qn_generated_args_deinit(&expected);
  qn_module_release(module);
  return is_right;
}

static void test_examples(void** state) {
  (void)state;
  if (!target || options.has_no_examples) skip();
  uint32_t wrong = 0;
  for (size_t i = 0; i < QN_COUNT_OF(examples); ++i) {
    // llvmpipe ends the wait for a block that the machine does not run (docs/caveats.md).
    bool waits = strcmp(examples[i].name, "prefix_sum") == 0;
    wrong += !(waits && device.type == QN_DEVICE_VULKAN) && !check_example(&examples[i]);
  }
  assert_int_equal(wrong, 0);
}

// ---- the program

static int set_up(void** state) {
  (void)state;
  qn_engine_options_t made = {.struct_size = sizeof made,
                              .cache_dir = "",
                              .ignores_environment = true,
                              .generator_dir = QN_BINARY_DIR "/lib"};
  qn_status_t status = qn_engine_create(&made, &engine);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "%s\n", qn_status_message(status));
    qn_status_free(status);
    return 1;
  }
  status = qn_target_parse(options.target, &target);
  if (!qn_ok(status)) {
    // No driver or no device: nothing is asserted then.
    (void)fprintf(stderr, "not run: %s\n", qn_status_message(status));
    qn_status_free(status);
    target = NULL;
    return 0;
  }
  const char* kind = qn_target_kind(target);
  device.type = strcmp(kind, "cuda") == 0  ? QN_DEVICE_CUDA
                : strcmp(kind, "cpu") == 0 ? QN_DEVICE_CPU
                                           : QN_DEVICE_VULKAN;
  (void)qn_target_get_int(target, "warp_size", &warp_size);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_target_release(target);
  qn_engine_destroy(engine);
  return 0;
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    bool has_value = i + 1 < argc;
    if (strcmp(argv[i], "--print") == 0) {
      options.prints = true;
    } else if (strcmp(argv[i], "--forms") == 0) {
      options.has_forms_only = true;
    } else if (strcmp(argv[i], "--seed") == 0 && has_value) {
      options.seed = strtoull(argv[++i], NULL, 10);
      options.has_no_examples = true;
    } else if (strcmp(argv[i], "--count") == 0 && has_value) {
      options.count = strtoull(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "--size") == 0 && has_value) {
      options.size = (uint32_t)strtoul(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "--target") == 0 && has_value) {
      options.target = argv[++i];
    } else {
      (void)fprintf(
          stderr,
          "usage: %s [--seed N] [--count N] [--size N] [--forms] [--print] [--target TARGET]\n",
          argv[0]);
      return 2;
    }
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples),
                                     cmocka_unit_test(test_random_modules),
                                     cmocka_unit_test(test_random_forms)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
