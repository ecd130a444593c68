// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_emit_fail.c: tests failing checks in kernels: the reported failure, in
// scalar code and in lanes, and the release of workspace.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>

#include "support_emit.h"

typedef struct expected {
  qn_site_kind_t kind;
  uint32_t buffer_id;
  uint32_t dim;
  int64_t index;
  int64_t extent;
  const char* message;
} expected_t;

static void check_report(const kernels_t* kernels, run_report_t report, expected_t expected) {
  assert_int_not_equal(report.result, 0);
  assert_int_equal(report.fail_count, 1);
  assert_int_equal(report.held_workspaces, 0);
  const qn__llvm_emit_function_t* function = &kernels->result.functions[0];
  assert_true(report.site < function->site_count);
  const qn_artifact_site_t* site = &function->sites[report.site];
  assert_int_equal(site->kind, expected.kind);
  assert_int_equal(site->buffer_id, expected.buffer_id);
  assert_int_equal(site->dim, expected.dim);
  assert_int_equal(report.index, expected.index);
  assert_int_equal(report.extent, expected.extent);
  if (expected.message) {
    assert_string_equal(site->message, expected.message);
  } else {
    assert_null(site->message);
  }
}

// Runs `text` in every kind of build that has the check, with `words`.
static void expect_failure(const char* text, const uint64_t* words, bool needs_checks,
                           uint32_t allocation_limit, expected_t expected) {
  static const char* const cpus[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  qn_module_t* module = parse_or_die(text);
  for (size_t i = 0; i < QN_COUNT_OF(cpus); ++i) {
    if (!build_can_run(cpus[i])) continue;
    for (int kind = 0; kind < 6; ++kind) {
      build_t build = {.cpu = cpus[i],
                       .is_fast = kind % 3 == 1,
                       .is_scalar = kind % 3 == 2,
                       .is_checked = kind < 3};
      if (needs_checks && !build.is_checked) continue;
      qn_status_t error;
      kernels_t* kernels = kernels_create(module, build, false, &error);
      if (!kernels) fail_msg("%s", qn_status_message(error));
      check_report(kernels, kernels_run(kernels, 0, words, 1, allocation_limit), expected);
      kernels_destroy(kernels);
    }
  }
  qn_module_release(module);
}

static uint64_t word(const void* pointer) {
  return (uint64_t)(uintptr_t)pointer;
}

static void test_index(void** state) {
  (void)state;
  float y[64] = {0};
  expect_failure("func f(out y: f32[n], m: i64) { parallel i in 0..m { y[i] = 1.0; } }\n",
                 (uint64_t[]){word(y), 60, 50}, true, 0,
                 (expected_t){QN_SITE_BOUNDS, 0, 0, 50, 50, NULL});
  assert_true(y[49] == 1.0F || y[49] == 0.0F);
  assert_true(y[50] == 0.0F);
}

// The first failing lane of a vector is reported. Failures of inactive lanes are not.
static void test_gathered_index(void** state) {
  (void)state;
  enum { COUNT = 40 };
  int32_t k[COUNT];
  float x[COUNT] = {0}, y[COUNT] = {0};
  for (int i = 0; i < COUNT; ++i) k[i] = i;
  k[3] = -9;  // off
  k[21] = 77;
  k[22] = -5;
  expect_failure(
      "func f(k: i32[n], x: f32[n], out y: f32[n]) {\n"
      "  parallel i in 0..n { if i != 3 { y[i] = x[k[i]]; } } }\n",
      (uint64_t[]){word(k), word(x), word(y), COUNT}, true, 0,
      (expected_t){QN_SITE_BOUNDS, 1, 0, 77, COUNT, NULL});
}

static void test_second_dimension(void** state) {
  (void)state;
  float x[12] = {0};
  float y[4] = {0};
  expect_failure(
      "func f(x: f32[n, m], out y: f32[n], k: i64) {\n"
      "  parallel i in 0..n { y[i] = sum j in 0..k { x[i, j] }; } }\n",
      (uint64_t[]){word(x), word(y), 4, 4, 3}, true, 0,
      (expected_t){QN_SITE_BOUNDS, 0, 1, 3, 3, NULL});
}

static void test_negative_index(void** state) {
  (void)state;
  int64_t x[8] = {0, 1, 2, 3, -4, 5, 6, 7};
  expect_failure("func f(inout x: i64[8]) { for i in 0..8 { x[x[i]] = i; } }\n",
                 (uint64_t[]){word(x)}, true, 0, (expected_t){QN_SITE_BOUNDS, 0, 0, -4, 8, NULL});
}

static void test_division(void** state) {
  (void)state;
  enum { COUNT = 37 };
  int32_t x[COUNT], y[COUNT] = {0};
  for (int i = 0; i < COUNT; ++i) x[i] = 30 - i;
  expect_failure("func f(x: i32[n], out y: i32[n]) { parallel i in 0..n { y[i] = 7 // x[i]; } }\n",
                 (uint64_t[]){word(x), word(y), COUNT}, true, 0,
                 (expected_t){QN_SITE_DIVISION, UINT32_MAX, 0, 0, 0, NULL});
}

static void test_assert(void** state) {
  (void)state;
  enum { COUNT = 37 };
  int32_t x[COUNT], y[COUNT] = {0};
  for (int i = 0; i < COUNT; ++i) x[i] = i;
  expect_failure(
      "func f(x: i32[n], out y: i32[n]) { assert n < 100, \"n is fine\";\n"
      "  parallel i in 0..n { assert x[i] < 30, \"x is too large\"; y[i] = x[i]; } }\n",
      (uint64_t[]){word(x), word(y), COUNT}, false, 0,
      (expected_t){QN_SITE_ASSERT, UINT32_MAX, 0, 0, 0, "x is too large"});
}

static void test_view(void** state) {
  (void)state;
  float x[8] = {0};
  float y[2] = {0};
  expect_failure(
      "func f(x: f32[8], out y: f32[2], s: i64) {\n"
      "  view v: f32[4] = x[s]; y[0] = v[3]; y[1] = v[1]; }\n",
      (uint64_t[]){word(x), word(y), 6}, true, 0, (expected_t){QN_SITE_BOUNDS, 0, 0, 9, 8, NULL});
}

static void test_extent(void** state) {
  (void)state;
  float y[2] = {0};
  const char* text =
      "func f(out y: f32[2], n: i64, m: i64) {\n"
      "  alloc a: f32[4] in global; alloc t: f32[n, m] in global; a[0] = 1.0; t[0, 0] = a[0];\n"
      "  y[0] = t[0, 0]; }\n";
  expect_failure(text, (uint64_t[]){word(y), 4, (uint64_t)-3}, false, 9,
                 (expected_t){QN_SITE_EXTENT, 2, 1, 0, -3, NULL});
  expect_failure(text, (uint64_t[]){word(y), UINT64_C(1) << 40, UINT64_C(1) << 40}, false, 9,
                 (expected_t){QN_SITE_EXTENT, 2, 1, 0, INT64_C(1) << 40, NULL});
}

static void test_memory(void** state) {
  (void)state;
  float y[64] = {0};
  const char* text =
      "func f(inout y: f32[n]) { alloc a: f32[n] in global; alloc b: f32[n] in global;\n"
      "  parallel i in 0..n { a[i] = y[i]; b[i] = a[i]; }\n"
      "  parallel i in 0..n { y[i] = b[n - 1 - i] + a[i]; } }\n";
  for (uint32_t limit = 0; limit < 2; ++limit) {
    expect_failure(text, (uint64_t[]){word(y), 64}, false, limit,
                   (expected_t){QN_SITE_MEMORY, 1 + limit, 0, 0, 256, NULL});
  }
}

// A failure in the body of a launch releases what the kernel holds.
static void test_failure_in_launch(void** state) {
  (void)state;
  float y[64] = {0};
  expect_failure(
      "func f(inout y: f32[n]) { alloc a: f32[n] in global;\n"
      "  parallel i in 0..n { a[i] = y[i]; }\n"
      "  parallel i in 0..n { if i == 40 { assert a[i] > 5.0; } y[i] = a[i]; } }\n",
      (uint64_t[]){word(y), 64}, false, 9, (expected_t){QN_SITE_ASSERT, UINT32_MAX, 0, 0, 0, ""});
}

typedef struct thin_call {
  const kernels_t* kernels;
  const uint64_t* words;
  run_report_t report;
} thin_call_t;

static void* run_thin_call(void* self) {
  thin_call_t* call = self;
  call->report = kernels_run(call->kernels, 0, call->words, 1, 1000);
  return NULL;
}

// What does not fit on a stack of 256 KiB is workspace: here a local array of the kernel, and the
// blocks of a product in the body of a launch.
static void test_stack(void** state) {
  (void)state;
  enum { SIZE = 200, STEPS = 300, KEPT = 100 };
  static float a[SIZE * STEPS], b[STEPS * SIZE], c[SIZE * SIZE];
  for (int i = 0; i < SIZE * STEPS; ++i) a[i] = (float)(i % STEPS % 3), b[i] = (float)(i % SIZE);
  qn_module_t* module = parse_or_die(
      "func f(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
      "  alloc t: f32[15000] in local; for i in 0..100 { t[i * 149] = a[0, i]; }\n"
      "  parallel i in 0..n { parallel j in 0..m {\n"
      "    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } }\n"
      "  for i in 0..100 { c[0, i] = t[i * 149]; } }\n");
  qn_status_t error;
  build_t build = {.cpu = "x86-64", .l1_bytes = 32 << 10, .l2_bytes = 1 << 20};
  kernels_t* kernels = kernels_create(module, build, false, &error);
  assert_non_null(kernels);
  uint64_t words[] = {word(a), word(b), word(c), SIZE, STEPS, SIZE};
  thin_call_t call = {.kernels = kernels, .words = words};
  pthread_attr_t attributes;
  pthread_t thread;
  assert_int_equal(pthread_attr_init(&attributes), 0);
  assert_int_equal(pthread_attr_setstacksize(&attributes, 288 * 1024), 0);
  assert_int_equal(pthread_create(&thread, &attributes, run_thin_call, &call), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  (void)pthread_attr_destroy(&attributes);
  assert_int_equal(call.report.result, 0);
  assert_true(call.report.allocations > 0);
  for (int i = 0; i < SIZE * SIZE; ++i) {
    assert_true(c[i] == (float)(i < KEPT ? i % 3 : STEPS * (i % SIZE)));
  }
  kernels_destroy(kernels);
  qn_module_release(module);
}

// Large work goes through the table, with a grain; small work does not.
static void test_parallel(void** state) {
  (void)state;
  enum { COUNT = 1 << 20 };
  float* x = calloc(COUNT, sizeof(float));
  float* y = calloc(COUNT, sizeof(float));
  assert_non_null(x);
  assert_non_null(y);
  qn_module_t* module = parse_or_die(
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] + 1.0; } }\n");
  qn_status_t error;
  kernels_t* kernels = kernels_create(module, (build_t){.cpu = "x86-64"}, false, &error);
  assert_non_null(kernels);
  assert_int_equal(kernels->result.functions[0].launch_count, 1);
  uint64_t words[] = {word(x), word(y), COUNT};
  run_report_t report = kernels_run(kernels, 0, words, 7, 0);
  assert_int_equal(report.result, 0);
  assert_int_equal(report.parallel_calls, 1);
  for (int i = 0; i < COUNT; ++i) assert_true(y[i] == 1.0F);
  words[2] = 100;
  assert_int_equal(kernels_run(kernels, 0, words, 7, 0).parallel_calls, 0);
  words[2] = 0;
  assert_int_equal(kernels_run(kernels, 0, words, 7, 0).parallel_calls, 0);
  kernels_destroy(kernels);
  qn_module_release(module);
  free(x);
  free(y);
}

// The estimate knows extents that the passes name inside of a launch: few strips of columns are
// large work if there are many rows.
static void test_parallel_of_named_extents(void** state) {
  (void)state;
  enum { ROWS = 2048, COLUMNS = 1024 };
  float* x = calloc(ROWS * COLUMNS, sizeof(float));
  static float y[COLUMNS];
  assert_non_null(x);
  for (int i = 0; i < ROWS * COLUMNS; ++i) x[i] = 1.0F;
  qn_module_t* module = parse_or_die(
      "func f(x: f32[n, m], out y: f32[m]) {\n"
      "  parallel j in 0..m { y[j] = sum i in 0..n { x[i, j] }; } }\n");
  qn_status_t error;
  kernels_t* kernels = kernels_create(module, (build_t){.cpu = "x86-64-v3"}, false, &error);
  assert_non_null(kernels);
  static const uint64_t rows[] = {4, ROWS};
  for (uint32_t i = 0; i < 2; ++i) {
    uint64_t words[] = {word(x), word(y), rows[i], COLUMNS};
    run_report_t report = kernels_run(kernels, 0, words, 7, 0);
    assert_int_equal(report.result, 0);
    assert_int_equal(report.parallel_calls, i);
    for (int j = 0; j < COLUMNS; ++j) assert_true(y[j] == (float)rows[i]);
  }
  kernels_destroy(kernels);
  qn_module_release(module);
  free(x);
}

// Runs `text` in every kind of build. It must not fail.
static void run_builds(const char* text, const uint64_t* words, bool is_checked) {
  static const char* const cpus[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  qn_module_t* module = parse_or_die(text);
  for (size_t i = 0; i < QN_COUNT_OF(cpus) * 3; ++i) {
    build_t build = {.cpu = cpus[i / 3],
                     .is_fast = i % 3 == 1,
                     .is_scalar = i % 3 == 2,
                     .is_checked = is_checked};
    if (!build_can_run(build.cpu)) continue;
    qn_status_t error;
    kernels_t* kernels = kernels_create(module, build, false, &error);
    if (!kernels) fail_msg("%s", qn_status_message(error));
    assert_int_equal(kernels_run(kernels, 0, words, 1, 0).result, 0);
    kernels_destroy(kernels);
  }
  qn_module_release(module);
}

static void run_unchecked(const char* text, const uint64_t* words) {
  run_builds(text, words, false);
}

// A view without elements may start at an element that does not exist.
static void test_empty_views(void** state) {
  (void)state;
  float x[8] = {1}, y[12];
  for (int i = 0; i < 12; ++i) y[i] = 7;
  run_builds(
      "func f(x: f32[n, m], out y: f32[3, 4]) { parallel i in 0..3 { view r: f32[m] = x[i, 0];\n"
      "  for j in 0..4 { y[i, j] = sum p in 0..m { r[p] }; } } }\n",
      (uint64_t[]){word(x), word(y), 2, 0}, true);
  for (int i = 0; i < 12; ++i) assert_true(y[i] == 0);
  // Weights in memory order, of no channels.
  run_builds(
      "func f(x: f32[12, m, 3], w: f32[10, m, 3], out y: f32[12, 10]) {\n"
      "  parallel i in 0..12 { for j in 0..10 {\n"
      "    y[i, j] = sum p in 0..m { sum q in 0..3 { x[i, p, q] * w[j, p, q] } }; } } }\n",
      (uint64_t[]){word(x), word(x), word((float[120]){1}), 0}, true);
  // An element of an empty buffer with strides is outside.
  expect_failure(
      "func f(x: f32[n] strides [s], out y: f32[1]) { view r: f32[1] = x[0]; y[0] = r[0]; }\n",
      (uint64_t[]){word(x), word(y), 0, 5}, true, 0,
      (expected_t){QN_SITE_BOUNDS, 0, 0, 0, 0, NULL});
}

#define DIVIDE(dtype)                                                                    \
  "func f(x: " dtype "[n], y: " dtype "[n], out z: " dtype                               \
  "[n]) {\n"                                                                             \
  "  parallel i in 0..n { let a = x[i]; let b = y[i];\n"                                 \
  "    z[i] = (a // b) ^ (a % b) ^ truncdiv(a, b) ^ truncmod(a, b) ^ ceildiv(a, b); }\n" \
  "  for i in 0..n { let a = x[i]; let b = y[i]; if i % 2 == 0 { z[i] = a // b; }\n"     \
  "    else { z[i] = truncmod(a, b) + (a >> b) + (a << b); } } }\n"

// Without checks a division by zero gives some number, and the least number by -1 itself.
static void test_division_never_traps(void** state) {
  (void)state;
  static const char* const texts[] = {DIVIDE("i8"), DIVIDE("i16"), DIVIDE("i32"), DIVIDE("i64"),
                                      DIVIDE("u8"), DIVIDE("u16"), DIVIDE("u32"), DIVIDE("u64")};
  enum { COUNT = 40 };
  int64_t x[COUNT], y[COUNT], z[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    x[i] = i % 4 == 0 ? INT64_MIN : i % 4 == 1 ? (int64_t)UINT64_C(0x8000800080008080) : -i;
    y[i] = i % 3 == 0 ? 0 : i % 3 == 1 ? -1 : INT64_MIN;
  }
  for (size_t i = 0; i < QN_COUNT_OF(texts); ++i) {
    run_unchecked(texts[i], (uint64_t[]){word(x), word(y), word(z), COUNT});
  }
}

// What an array holds before it is stored to is some value: one, the same at each use.
static void test_array_before_store(void** state) {
  (void)state;
  int64_t y[64] = {0};
  run_unchecked(
      "func f(inout y: i64[64]) { for i in 0..64 { alloc t: i64[2] in local;\n"
      "  if y[i] == 77 { t[0] = i; } let k = t[0]; let q = (k % 64 + 64) % 64;\n"
      "  if 0 <= q && q < 64 { y[q] = 1; } else { y[q * 1000000] = 2; }\n"
      "  if k == k { y[i] = 1; } else { y[i + 1000000] = 3; } } }\n",
      (uint64_t[]){word(y)});
}

// Ranges of 2^63 iterations and more are compiled like others, here where they do not run.
static void test_largest_ranges(void** state) {
  (void)state;
  float y[64] = {0};
  run_unchecked(
      "func f(out y: f32[64], b: bool) { if b { parallel a in 0..8 {\n"
      "  parallel i in -4611686018427387904..4611686018427387904 {\n"
      "    if i >= 0 && i < 8 { y[a * 8 + i] = 1.0; } }\n"
      "  for i in -9223372036854775807..9223372036854775807 {\n"
      "    if i == a { y[i] = sum p in -9223372036854775807..9223372036854775807 { y[p] }; } }\n"
      "} } }\n",
      (uint64_t[]){word(y), 0});
  assert_true(y[0] == 0);
}

// Names of C's library are names like any other.
static void test_library_names(void** state) {
  (void)state;
  float x[4] = {1, 2, 3, 4};
  run_unchecked(
      "func memset(inout x: f32[4]) { for i in 0..4 { x[i] = 0.0; } }\n"
      "func exp(inout x: f32[4]) { for i in 0..4 { x[i] = exp(x[i]); } }\n"
      "func memcpy(x: f32[4], out y: f32[4]) { for i in 0..4 { y[i] = x[i]; } }\n"
      "func main(x: f32[4], out y: f32[4]) { parallel i in 0..4 { y[i] = x[i]; } }\n",
      (uint64_t[]){word(x)});
  assert_true(x[0] == 0 && x[3] == 0);
}

// The emitter runs out of memory at every place where it asks for some.
static void test_out_of_memory(void** state) {
  (void)state;
  qn_module_t* module = parse_or_die(
      "func f(x: f32[n, m], inout y: f32[n], k: i64) {\n"
      "  const t: f32[3] = [1.0, 2.0, 3.0]; alloc w: f32[n] in global; let c = x[0, 0];\n"
      "  parallel i in 0..n { w[i] = (sum j in 0..m { x[i, j] }) + t[i % 3] + c; }\n"
      "  parallel i in 0..n { for j in 0..k { unroll u in 0..2 { vector v in 0..4 {\n"
      "    if i + v < n { y[i] = w[n - 1 - i]; } } } } assert y[i] > 0.0, \"positive\"; } }\n"
      "func g(x: i32[n], out y: i32[n]) { parallel i in 0..n { y[n - 1 - i] = x[i]; } }\n");
  build_t build = {.cpu = "x86-64-v3", .is_checked = true};
  size_t room_bytes = 0;
  qn_status_t status;
  while (!qn_ok(status = emit_only(module, build, room_bytes))) {
    assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
    qn_status_free(status);
    room_bytes += 48;
  }
  assert_true(room_bytes > 4000);
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_index),
      cmocka_unit_test(test_empty_views),
      cmocka_unit_test(test_gathered_index),
      cmocka_unit_test(test_second_dimension),
      cmocka_unit_test(test_negative_index),
      cmocka_unit_test(test_division),
      cmocka_unit_test(test_assert),
      cmocka_unit_test(test_view),
      cmocka_unit_test(test_extent),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_failure_in_launch),
      cmocka_unit_test(test_stack),
      cmocka_unit_test(test_parallel),
      cmocka_unit_test(test_parallel_of_named_extents),
      cmocka_unit_test(test_division_never_traps),
      cmocka_unit_test(test_array_before_store),
      cmocka_unit_test(test_largest_ranges),
      cmocka_unit_test(test_library_names),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
