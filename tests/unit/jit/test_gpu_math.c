// SPDX-License-Identifier: Apache-2.0
// tests/unit/jit/test_gpu_math.c: the operations of mathematics on a GPU device, against libm in
// higher precision.
//
// A function of one operation goes the text way for each case of tests/math_cases.c: lookup, code
// generator, device, call. It runs on the first Vulkan device (lavapipe does), and says that it did
// not where there is none. On a device that does not keep denormal numbers, arguments and results
// that are denormal are left out. The largest errors, or another device:
//   jit_test_gpu_math --measure [--target cuda] [--op NAME] [--type f32|f64] [--count N]
// Thread rule: one thread. Read next: docs/ir.md, whose bounds these are.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>

#include "quern/ir.h"
#include "quern/quern.h"
#include "quern/target.h"
#include "tests/math_cases.c"

static const char* target_text = "vulkan -from_device=0";
static qn_engine_t* engine;
static qn_target_t* target;
static qn_device_t device;
static const qn_device_t host = {QN_DEVICE_CPU, 0};

static void must_be_ok(qn_status_t status, const char* what) {
  if (qn_ok(status)) return;
  fprintf(stderr, "%s: %s\n", what, qn_status_message(status));
  exit(1);
}

// Has the target the option, and is it true?
static bool has(const char* option) {
  bool value = false;
  return qn_target_get_bool(target, option, &value) && value;
}

static bool is_vulkan(void) {
  return strcmp(qn_target_kind(target), "vulkan") == 0;
}

static bool is_denormal(bool is_f64, long double value) {
  long double least = is_f64 ? (long double)DBL_MIN : (long double)FLT_MIN;
  return value != 0 && fabsl(value) < least * 1.000001L;
}

static void copy(void* device_data, void* host_data, size_t size_bytes, bool is_up) {
  qn_copy_t made = {.struct_size = sizeof made,
                    .from_device = is_up ? host : device,
                    .from = is_up ? host_data : device_data,
                    .to_device = is_up ? device : host,
                    .to = is_up ? device_data : host_data,
                    .size_bytes = size_bytes};
  must_be_ok(qn_device_copy(&made, NULL), "copy");
}

static qn_function_t* compile(const case_t* c, bool is_f64) {
  static const char* const OPERANDS[] = {"", "a[i]", "a[i], b[i]", "a[i], b[i], c[i]"};
  const char* operands = c->op == QN_OP_LDEXP ? "a[i], i32(b[i])" : OPERANDS[c->arity];
  bool is_test = c->op == QN_OP_ISNAN || c->op == QN_OP_ISINF || c->op == QN_OP_ISFINITE;
  const char* type = is_f64 ? "f64" : "f32";
  char text[512];
  snprintf(text, sizeof text,
           "func f(a: %s[n], b: %s[n], c: %s[n], out y: %s[n]) {\n"
           "  parallel i in 0..n { y[i] = %s(%s(%s)); }\n}\n",
           type, type, type, type, is_test ? type : "", c->name, operands);
  qn_module_t* module = NULL;
  must_be_ok(qn_module_parse(text, strlen(text), NULL, &module), text);
  qn_lookup_options_t lookup = {.struct_size = sizeof lookup, .tier = QN_TIER_FULL};
  qn_function_t* function = NULL;
  must_be_ok(qn_engine_function(engine, module, target, "f", &lookup, NULL, &function), text);
  qn_module_release(module);
  return function;
}

static result_t run(const case_t* c, bool is_f64, size_t scale) {
  inputs_t in = make_inputs(c, is_f64, scale);
  size_t width = is_f64 ? sizeof(double) : sizeof(float);
  void* out = must(calloc(in.count, width));
  void* buffers[4];
  int64_t shape = (int64_t)in.count;
  qn_tensor_t tensors[4];
  qn_value_t values[4];
  for (size_t k = 0; k < 4; k++) {
    must_be_ok(qn_device_allocate(device, in.count * width, 64, &buffers[k]), "allocate");
    if (k < 3) {
      copy(buffers[k], is_f64 ? (void*)in.value[k] : (void*)in.narrow[k], in.count * width, true);
    }
    tensors[k] = (qn_tensor_t){.data = buffers[k],
                               .device = device,
                               .ndim = 1,
                               .dtype = qn_dtype_to_dl(is_f64 ? QN_DTYPE_F64 : QN_DTYPE_F32),
                               .shape = &shape};
    values[k] = qn_value_tensor(&tensors[k]);
  }
  qn_function_t* function = compile(c, is_f64);
  must_be_ok(qn_function_call(function, values, 4, NULL), "call");
  must_be_ok(qn_stream_sync(device, NULL), "sync");
  copy(buffers[3], out, in.count * width, false);
  qn_function_release(function);
  bool keeps_denormals = !is_vulkan() || has(is_f64 ? "supports_denorm_preserve_float64"
                                                    : "supports_denorm_preserve_float32");
  result_t result = {.worst = -1};
  for (size_t i = 0; i < in.count; i++) {
    double arguments[3] = {in.value[0][i], in.value[1][i], in.value[2][i]};
    bool is_left_out = is_denormal(is_f64, in.exact[i]);
    for (unsigned k = 0; k < c->arity; k++) {
      is_left_out |= is_denormal(is_f64, (long double)arguments[k]);
    }
    if (is_left_out && !keeps_denormals) continue;
    long double got = is_f64 ? (long double)((double*)out)[i] : (long double)((float*)out)[i];
    judge(c, is_f64, arguments, got, in.exact[i], &result);
  }
  for (size_t k = 0; k < 4; k++) must_be_ok(qn_device_free(device, buffers[k]), "free");
  free(out);
  free_inputs(&in);
  return result;
}

static void check(const case_t* c, bool is_f64) {
  if (target == NULL || (is_f64 && is_vulkan() && !has("supports_float64"))) skip();
  result_t result = run(c, is_f64, 1);
  double bound = is_f64 ? c->bound_f64 : c->bound_f32;
  if (!(result.worst <= bound)) {
    fail_msg("%s(%a, %a, %a) is %La, not %La: %.3f ulp, more than %.3f", c->name,
             result.argument[0], result.argument[1], result.argument[2], result.got, result.exact,
             result.worst, bound);
  }
}

static void test_f32(void** state) {
  check(*state, false);
}
static void test_f64(void** state) {
  check(*state, true);
}

static int set_up(void** state) {
  (void)state;
  qn_engine_options_t made = {.struct_size = sizeof made,
                              .cache_dir = "",
                              .ignores_environment = true,
                              .generator_dir = QN_BINARY_DIR "/lib"};
  must_be_ok(qn_engine_create(&made, &engine), "engine");
  qn_status_t status = qn_target_parse(target_text, &target);
  if (!qn_ok(status)) {
    // No driver or no device: nothing is asserted then.
    print_message("not run: %s\n", qn_status_message(status));
    target = NULL;
  }
  qn_status_free(status);
  if (target != NULL) {
    device = (qn_device_t){is_vulkan() ? QN_DEVICE_VULKAN : QN_DEVICE_CUDA, 0};
  }
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_target_release(target);
  qn_engine_destroy(engine);
  return 0;
}

static int measure(int argc, char** argv) {
  const char* op = "";
  const char* type = "";
  size_t count = 1000000;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--op") == 0) op = argv[i + 1];
    if (strcmp(argv[i], "--type") == 0) type = argv[i + 1];
    if (strcmp(argv[i], "--target") == 0) target_text = argv[i + 1];
    if (strcmp(argv[i], "--count") == 0) count = strtoull(argv[i + 1], NULL, 10);
  }
  if (set_up(NULL) != 0 || target == NULL) return 1;
  for (size_t k = 0; k < 2 * CASE_COUNT; k++) {
    const case_t* c = &CASES[k / 2];
    bool is_f64 = k % 2 == 1;
    if (op[0] != '\0' && strcmp(op, c->name) != 0) continue;
    if (type[0] != '\0' && strcmp(type, is_f64 ? "f64" : "f32") != 0) continue;
    result_t r = run(c, is_f64, count / 100000 + 1);
    printf("%s %s: %.4f ulp at (%a, %a, %a): %La for %La\n", c->name, is_f64 ? "f64" : "f32",
           r.worst, r.argument[0], r.argument[1], r.argument[2], r.got, r.exact);
    fflush(stdout);
  }
  return tear_down(NULL);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--measure") == 0) return measure(argc, argv);
  static struct CMUnitTest tests[2 * CASE_COUNT];
  static char names[2 * CASE_COUNT][24];
  for (size_t i = 0; i < 2 * CASE_COUNT; i++) {
    const case_t* c = &CASES[i / 2];
    snprintf(names[i], sizeof(names[i]), "%s_%s", c->name, i % 2 == 0 ? "f32" : "f64");
    // cmocka hands the state on untouched.
    void* state = NULL;
    memcpy(&state, &c, sizeof(state));
    tests[i] = (struct CMUnitTest){names[i], i % 2 == 0 ? test_f32 : test_f64, NULL, NULL, state};
  }
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
