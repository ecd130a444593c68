// SPDX-License-Identifier: Apache-2.0
// tests/unit/jit/test_gpu_narrow.c: every integer operator on i64 values that fit 32 bits, on a
// Vulkan target without 64-bit integers, against the interpreter.
//
// Such a target computes them in 32 bits, where counts of shifts go up to 63 all the same and bits
// are counted among 64. Each case goes the whole way: lookup, code generator, device, call. It runs
// on the first Vulkan device (lavapipe does), and says that it did not where there is none.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "ir/interpret.h"
#include "ir/ir.h"
#include "quern/quern.h"

static qn_engine_t* engine;
static qn_target_t* target;
static const qn_device_t device = {QN_DEVICE_VULKAN, 0}, host = {QN_DEVICE_CPU, 0};

static const int32_t values[] = {
    0,     1,      -1,         2,         -2,        3,   7,   -8,  15,  16,  31,   32,
    33,    40,     62,         63,        64,        65,  95,  127, 128, 255, -256, 1000,
    -1000, 123456, 0x40000000, INT32_MAX, INT32_MIN, -31, -32, -33, -63, -64, -65,  INT32_MIN + 1};
enum { VALUE_COUNT = sizeof values / sizeof values[0], COUNT = VALUE_COUNT * VALUE_COUNT };
static int32_t x[COUNT], y[COUNT], expected[COUNT], actual[COUNT];

// What r[i] becomes, an i32; a and b are i64 of all values and d is b, but never 0.
static const char* const expressions[] = {
    // Left shifts keep their low bits.
    "i32(a << b)",
    "i32(1 << b)",
    "i32(a << (b & 63))",
    "i32((a << b) + b)",
    "i32(a << 0)",
    "i32(a << 5)",
    "i32(a << 31)",
    "i32(a << 32)",
    "i32(a << 63)",
    "i32(a << 65)",
    "i32(a << -1)",
    "i32(a << 5000000003)",
    "i32(1 << (b & 15)) + i32(i % (1 << (b & 15)))",
    "i32((a & 255) << (b & 15) > 70000)",
    // Right shifts are by their sign.
    "i32(a >> b)",
    "i32(-1 >> b)",
    "i32(a >> 0)",
    "i32(a >> 5)",
    "i32(a >> 31)",
    "i32(a >> 32)",
    "i32(a >> 40)",
    "i32(a >> 63)",
    "i32(a >> 65)",
    "i32(a >> -1)",
    "i32(a >> 5000000003)",
    "i32(a >> 40 < 0)",
    "i32((a & 65535) >> (b & 63) > 3)",
    // Bits of 64.
    "i32(popcount(a))",
    "i32(popcount(a) > 33)",
    "i32(popcount(a) * clz(b))",
    "i32(clz(a))",
    "i32(clz(a) == 64)",
    "i32(clz(a + 0) % (popcount(d) + 1))",
    "i32(popcount(clz(a)) << clz(b))",
    "i32(popcount(-1)) + i32(clz(0)) + i32(clz(1)) + i32(a)",
    "i32(ctz(a)) + i32(ctz(0 * a)) + i32(ctz(ctz(a) << 1))",
    "i32(mulhi(a, b)) + i32(mulhi(a, ~b)) + i32(mulhi(a, 0))",
    "i32(rotl(a, 5)) + i32(rotl(a, 32)) + i32(rotl(b, 37)) + i32(rotl(a, b))",
    // The others.
    "i32(a + b)",
    "i32(a - b)",
    "i32(a * b)",
    "i32(-a)",
    "i32(~a)",
    "i32(a & b)",
    "i32(a | b)",
    "i32(a ^ b)",
    "i32(a & 5000000003)",
    "i32(a + 5000000003)",
    "i32(abs(a))",
    "i32(min(a, b))",
    "i32(max(a, b))",
    "i32(a // d)",
    "i32(a % d)",
    "i32(truncdiv(a, d))",
    "i32(truncmod(a, d))",
    "i32(ceildiv(a, d))",
    "i32(a // 8) + i32(a % 8) + i32(a // 7) + i32(a % 7)",
    "i32(select(a < b, a, b))",
    "i32(a <= b ? a + b : a - b)",
    "i32(a == b) + i32(a != b) * 2 + i32(a < b) * 4 + i32(a <= b) * 8 + i32(a > b) * 16",
    "i32(a < 5000000003) + i32(min(a, 5000000003))",
    "i32(a >= b && b != 3) + i32(f32(a) < f32(b))",
};

// What such a target refuses, by a status that says so.
static const char* const refused[] = {
    "i32(a * b > 5)",  "i32(a // 5000000003)",       "i32(a << b > 5)",
    "i32(clz(a * b))", "i32(popcount(i64(u32(a))))", "i32((a * b) >> 3)",
};

static qn_module_t* make(const char* expression) {
  char text[512];
  (void)snprintf(text, sizeof text,
                 "func f(x: i32[n], y: i32[n], out r: i32[n]) {\n  parallel i in 0..n {\n"
                 "    let a = i64(x[i]);\n    let b = i64(y[i]);\n    let d = b == 0 ? 5 : b;\n"
                 "    r[i] = %s;\n  }\n}\n",
                 expression);
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) fail_msg("%s: %s", expression, qn_status_message(status));
  return module;
}

static void must_be_ok(qn_status_t status, const char* what) {
  if (!qn_ok(status)) fail_msg("%s: %s", what, qn_status_message(status));
}

static void copy(void* device_data, void* host_data, bool is_up) {
  qn_copy_t made = {.struct_size = sizeof made,
                    .from_device = is_up ? host : device,
                    .from = is_up ? host_data : device_data,
                    .to_device = is_up ? device : host,
                    .to = is_up ? device_data : host_data,
                    .size_bytes = sizeof x};
  must_be_ok(qn_device_copy(&made, NULL), "copy");
}

static void run(qn_function_t* function, const char* what) {
  int32_t* const data[] = {x, y, actual};
  void* buffers[3];
  qn_tensor_t tensors[3];
  qn_value_t arguments[3];
  int64_t shape = COUNT;
  for (size_t i = 0; i < 3; ++i) {
    must_be_ok(qn_device_allocate(device, sizeof x, 64, &buffers[i]), what);
    copy(buffers[i], data[i], true);
    tensors[i] = (qn_tensor_t){.data = buffers[i],
                               .device = device,
                               .ndim = 1,
                               .dtype = qn_dtype_to_dl(QN_DTYPE_I32),
                               .shape = &shape};
    arguments[i] = qn_value_tensor(&tensors[i]);
  }
  must_be_ok(qn_function_call(function, arguments, 3, NULL), what);
  must_be_ok(qn_stream_sync(device, NULL), what);
  copy(buffers[2], actual, false);
  for (size_t i = 0; i < 3; ++i) must_be_ok(qn_device_free(device, buffers[i]), what);
}

static void check(const char* expression, bool is_checked) {
  qn_module_t* module = make(expression);
  memset(expected, 0, sizeof expected);
  memset(actual, 0x55, sizeof actual);
  const uint64_t params[] = {(uintptr_t)x, (uintptr_t)y, (uintptr_t)expected};
  const int64_t symbols[] = {COUNT};
  qn__interpret_args_t args = {.params = params, .symbols = symbols, .warp_size = 32};
  must_be_ok(qn__interpret(module->functions[0], &args, qn_allocator_default()), expression);
  qn_lookup_options_t lookup = {
      .struct_size = sizeof lookup, .tier = QN_TIER_FULL, .is_checked = is_checked};
  qn_function_t* function = NULL;
  must_be_ok(qn_engine_function(engine, module, target, "f", &lookup, NULL, &function), expression);
  run(function, expression);
  for (size_t i = 0; i < COUNT; ++i) {
    if (actual[i] == expected[i]) continue;
    fail_msg("%s of %d and %d: %d, not %d", expression, x[i], y[i], actual[i], expected[i]);
  }
  qn_function_release(function);
  qn_module_release(module);
}

static void test_values(void** state) {
  (void)state;
  if (!target) skip();
  for (size_t i = 0; i < QN_COUNT_OF(expressions); ++i) {
    check(expressions[i], false);
    if (i % 4 == 0) check(expressions[i], true);
  }
}

static void test_refusals(void** state) {
  (void)state;
  if (!target) skip();
  for (size_t i = 0; i < QN_COUNT_OF(refused); ++i) {
    qn_module_t* module = make(refused[i]);
    qn_lookup_options_t lookup = {.struct_size = sizeof lookup, .tier = QN_TIER_FULL};
    qn_function_t* function = NULL;
    qn_status_t status = qn_engine_function(engine, module, target, "f", &lookup, NULL, &function);
    if (qn_status_code(status) != QN_STATUS_UNSUPPORTED) {
      fail_msg("%s: %s", refused[i], qn_ok(status) ? "taken" : qn_status_message(status));
    }
    assert_non_null(strstr(qn_status_message(status), "supports_int64"));
    qn_status_free(status);
    qn_module_release(module);
  }
}

static int set_up(void** state) {
  (void)state;
  for (size_t i = 0; i < COUNT; ++i) {
    x[i] = values[i % VALUE_COUNT];
    y[i] = values[i / VALUE_COUNT];
  }
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
  // The device's own options ask for the driver: without it nothing is asserted.
  status = qn_target_parse("vulkan -from_device=0", &target);
  qn_target_release(target);
  target = NULL;
  if (qn_ok(status)) status = qn_target_parse("vulkan -max_threads_per_block=128", &target);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "not run: %s\n", qn_status_message(status));
    qn_status_free(status);
  }
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_target_release(target);
  qn_engine_destroy(engine);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
