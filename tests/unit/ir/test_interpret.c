// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_interpret.c: the reference semantics, construct by construct, and its errors.
//
// Not here: values of operators (test_arith.c), random programs (test_pass_random.c).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "tests/support/fault.h"

#define P(pointer) ((uint64_t)(uintptr_t)(pointer))

static uint64_t f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static qn_status_t run_module(const char* text, size_t size, const int64_t* symbols,
                              const uint64_t* params, qn_allocator_t allocator) {
  qn_parse_options_t options = {.struct_size = sizeof options, .allocator = allocator};
  qn_module_t* module = NULL;
  QN_TRY(qn_module_parse(text, size, &options, &module));
  qn__interpret_args_t args = {.params = params, .symbols = symbols, .warp_size = 4};
  qn_status_t status = qn__interpret(module->functions[0], &args, allocator);
  qn_module_release(module);
  return status;
}

static qn_status_t run(const char* text, const int64_t* symbols, const uint64_t* params) {
  return run_module(text, strlen(text), symbols, params, qn_allocator_default());
}

static void check(qn_status_t status) {
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
}

static void check_error(qn_status_t status, qn_status_code_t code, const char* message) {
  assert_int_equal(qn_status_code(status), code);
  assert_string_equal(qn_status_message(status), message);
  qn_status_free(status);
}

static char* read_sample(const char* name, size_t* out_size) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/examples/ir/%s", QN_SOURCE_DIR, name);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  char* text = calloc(1, 1 << 16);
  *out_size = fread(text, 1, (1 << 16) - 1, file);
  (void)fclose(file);
  assert_true(*out_size > 0);
  return text;
}

static qn_status_t run_sample(const char* name, const int64_t* symbols, const uint64_t* params) {
  size_t size;
  char* text = read_sample(name, &size);
  qn_status_t status = run_module(text, size, symbols, params, qn_allocator_default());
  free(text);
  return status;
}

// ---- the samples

static void samples_saxpy(void** state) {
  (void)state;
  float x[] = {1, 2, 3}, y[] = {10, 20, 30};
  check(run_sample("saxpy.qn", (int64_t[]){3}, (uint64_t[]){f32_bits(2), P(x), P(y)}));
  assert_true(y[0] == 12 && y[1] == 24 && y[2] == 36);
}

static void samples_softmax(void** state) {
  (void)state;
  float x[] = {0, 1, 2, 1000, 1000, -1000}, y[6];
  check(run_sample("softmax.qn", (int64_t[]){2, 3}, (uint64_t[]){P(x), P(y)}));
  double total = 1 + exp(1) + exp(2);
  for (int i = 0; i < 3; ++i) assert_true(fabs((double)y[i] - exp(i) / total) < 1e-6);
  assert_true(y[3] == 0.5F && y[4] == 0.5F && y[5] == 0.0F);
}

static void samples_two_launches(void** state) {
  (void)state;
  float x[] = {1, 2, 3, 4, 5, 9}, y[6];
  check(run_sample("two_launches.qn", (int64_t[]){3, 2}, (uint64_t[]){P(x), P(y)}));
  static const float expected[] = {-2, -3, 0, -1, 2, 4};
  assert_memory_equal(y, expected, sizeof expected);
}

static void samples_matmul(void** state) {
  (void)state;
  enum { n = 5, k = 3, m = 18 };
  static float a[n * k], b[k * m], c[n * m];
  for (int i = 0; i < n * k; ++i) a[i] = (float)(i % 7 - 3);
  for (int i = 0; i < k * m; ++i) b[i] = (float)(i % 5 - 2);
  check(run_sample("matmul_tile.qn", (int64_t[]){n, k, m}, (uint64_t[]){P(a), P(b), P(c)}));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      float sum = 0;
      for (int p = 0; p < k; ++p) sum += a[i * k + p] * b[p * m + j];
      assert_true(c[i * m + j] == sum);
    }
  }
}

static void samples_transpose(void** state) {
  (void)state;
  enum { n = 33, m = 40 };
  static float x[n * m], y[m * n];
  for (int i = 0; i < n * m; ++i) x[i] = (float)i;
  check(run_sample("transpose_shared.qn", (int64_t[]){n, m}, (uint64_t[]){P(x), P(y)}));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) assert_true(y[j * n + i] == x[i * m + j]);
  }
}

static void samples_embed(void** state) {
  (void)state;
  enum { b = 1, s = 2, v = 3, h = 4, p = 2 };
  int64_t ids[] = {2, 0};
  float words[v * h], positions[p * h], gamma[h], beta[h], y[b * s * h];
  for (int i = 0; i < v * h; ++i) words[i] = (float)((i * 5) % 7);
  for (int i = 0; i < p * h; ++i) positions[i] = (float)(i % 3);
  for (int i = 0; i < h; ++i) gamma[i] = 1, beta[i] = 0;
  uint64_t params[] = {P(ids), P(words), P(positions), P(gamma), P(beta), f32_bits(1e-5F), P(y)};
  int64_t symbols[] = {b, s, v, h, p};
  check(run_sample("embed_layernorm.qn", symbols, params));
  for (int t = 0; t < s; ++t) {
    float sum = 0;
    for (int i = 0; i < h; ++i) sum += y[t * h + i];
    assert_true(fabsf(sum) < 1e-5F);  // a layer norm has mean zero
  }
  ids[1] = 3;
  check_error(run_sample("embed_layernorm.qn", symbols, params), QN_STATUS_ASSERTION,
              "function 'embed_layernorm': assert failed: token id out of range");
  ids[1] = 0;
  symbols[4] = 1;
  check_error(run_sample("embed_layernorm.qn", symbols, params), QN_STATUS_ASSERTION,
              "function 'embed_layernorm': assert failed: sequence is longer than the position "
              "table");
}

// ---- statements

static void control_flow(void** state) {
  (void)state;
  int64_t out[8];
  check(
      run("func f(out y: i64[8]) {"
          "  alloc c: i64[] in local;"
          "  c[] = 0;"
          "  for i in 2..5 { c[] = c[] + i; }"  // 9
          "  y[0] = c[];"
          "  while c[] > 3 { c[] = c[] - 4; }"  // 1
          "  y[1] = c[];"
          "  for i in 5..5 { c[] = 100; }"
          "  y[2] = c[];"
          "  if c[] == 1 { y[3] = 7; } else { y[3] = 8; }"
          "  if c[] != 1 { y[4] = 7; } else if c[] > 5 { y[4] = 8; } else { y[4] = 9; }"
          "  y[5] = sum k in 0..4 { let d = k * 2; d + 1 };"  // 16
          "  y[6] = c[] == 1 ? 5 : y[100];"                   // lazy
          "  y[7] = max k in 3..3 { k };"
          "}",
          NULL, (uint64_t[]){P(out)}));
  assert_int_equal(out[0], 9);
  assert_int_equal(out[1], 1);
  assert_int_equal(out[2], 1);
  assert_int_equal(out[3], 7);
  assert_int_equal(out[4], 9);
  assert_int_equal(out[5], 16);
  assert_int_equal(out[6], 5);
  assert_true(out[7] == INT64_MIN);
}

static void lazy_logic(void** state) {
  (void)state;
  int32_t x[2] = {3, 0};
  bool y[2];
  check(
      run("func f(x: i32[2], out y: bool[2]) {"
          "  parallel i in 0..2 {"
          "    y[i] = i < 1 && x[i + 1] == 0 || i >= 1 && x[i] != 0;"
          "  }"
          "}",
          NULL, (uint64_t[]){P(x), P(y)}));
  assert_true(y[0] && !y[1]);
}

static void strides_and_views(void** state) {
  (void)state;
  int32_t x[12], y[6];
  for (int i = 0; i < 12; ++i) x[i] = i;
  check(
      run("func f(x: i32[2, 3] strides [6, 2], out y: i32[6]) {"
          "  view row: i32[3] strides [2] = x[1, 0];"
          "  view flat: i32[2, 3] = y[0];"
          "  for j in 0..3 { flat[0, j] = x[0, j]; flat[1, j] = row[j]; }"
          "}",
          NULL, (uint64_t[]){P(x), P(y)}));
  static const int32_t expected[] = {0, 2, 4, 6, 8, 10};
  assert_memory_equal(y, expected, sizeof expected);
}

static void tables_and_atomics(void** state) {
  (void)state;
  int32_t x[] = {0, 1, 2, 1, 1, 2}, y[3] = {0, 0, 0}, old[2];
  check(
      run("func f(x: i32[6], inout y: i32[3], out old: i32[2]) {"
          "  const weights: i32[3] = [1, 10, 100];"
          "  parallel i in 0..6 { atomic_add(y[x[i]], weights[x[i]]); }"
          "  for i in 0..1 {"
          "    let a = atomic_cas(y[0], 1, 5);"
          "    let b = atomic_cas(y[0], 1, 6);"
          "    old[0] = a; old[1] = b;"
          "    atomic_max(y[1], 99); atomic_xor(y[2], 1);"
          "  }"
          "}",
          NULL, (uint64_t[]){P(x), P(y), P(old)}));
  assert_int_equal(y[0], 5);
  assert_int_equal(y[1], 99);
  assert_int_equal(y[2], 201);
  assert_int_equal(old[0], 1);
  assert_int_equal(old[1], 5);
}

static void atomics_of_all_dtypes(void** state) {
  (void)state;
  int8_t a[] = {-128, 5};
  uint16_t h[] = {0x3c00, 0x7e00};  // 1, NaN
  float f[] = {-0.0f, 2.0f}, seen[1];
  check(
      run("func f(inout a: i8[2], inout h: bf16[2], inout f: f32[2], out seen: f32[1]) {"
          "  block.x b in 0..1 { thread.x t in 0..3 {"
          "    atomic_add(a[0], -1); atomic_max(a[1], 4); atomic_min(f[0], 0.0);"
          "    atomic_min(f[1], nan); fence; let s = atomic_load(f[0]); if t == 0 { seen[0] = s; }"
          "    atomic_store(h[0], 2.0); } } }",
          NULL, (uint64_t[]){P(a), P(h), P(f), P(seen)}));
  assert_int_equal(a[0], 125);
  assert_int_equal(a[1], 5);
  assert_int_equal(h[0], 0x4000);
  assert_true(signbit(f[0]) && isnan(f[1]) && seen[0] == 0.0f);
}

static void small_floats(void** state) {
  (void)state;
  uint16_t x[] = {0x3c00, 0x3c01}, y[2], z[2];  // 1, 1 + 2^-10
  check(
      run("func f(x: f16[2], out y: f16[2], out z: bf16[2]) {"
          "  parallel i in 0..2 { y[i] = x[i] + f16(0.00048828125); z[i] = bf16(x[i]); }"
          "}",
          NULL, (uint64_t[]){P(x), P(y), P(z)}));
  assert_int_equal(y[0], 0x3c00);  // a tie goes to even
  assert_int_equal(y[1], 0x3c02);
  assert_int_equal(z[0], 0x3f80);
  assert_int_equal(z[1], 0x3f80);
}

// ---- threads

static void barriers_in_lock_step(void** state) {
  (void)state;
  int32_t x[10], y[10];
  for (int i = 0; i < 10; ++i) x[i] = i + 1;
  // A tree reduction per block of 4, with a barrier in a loop, and a value that lives across it.
  check(
      run("func f(x: i32[n], out y: i32[n]) {"
          "  block.x b in 0..ceildiv(n, 4) {"
          "    alloc s: i32[4] in shared;"
          "    thread.x t in 0..4 {"
          "      let i = b * 4 + t;"
          "      alloc own: i32[] in local;"
          "      own[] = i < n ? x[i] : 0;"
          "      s[t] = own[];"
          "      barrier;"
          "      for k in 0..2 {"
          "        let other = t + (1 << k) < 4 ? s[t + (1 << k)] : 0;"
          "        barrier;"
          "        s[t] = s[t] + other;"
          "        barrier;"
          "      }"
          "      if i < n { y[i] = s[0] * 100 + own[]; }"
          "    }"
          "  }"
          "}",
          (int64_t[]){10}, (uint64_t[]){P(x), P(y)}));
  for (int i = 0; i < 10; ++i) {
    int total = 0;
    for (int j = i / 4 * 4; j < i / 4 * 4 + 4 && j < 10; ++j) total += x[j];
    assert_int_equal(y[i], total * 100 + x[i]);
  }
}

static void exchanges(void** state) {
  (void)state;
  int32_t y[8][6];
  // Two rows of four threads: a warp of four is one row.
  check(
      run("func f(out y: i32[8, 6]) {"
          "  block.x b in 0..1 { thread.y r in 0..2 { thread.x c in 0..4 {"
          "    let t = r * 4 + c;"
          "    let v = i32(t + 1);"
          "    y[t, 0] = shuffle(v, 2);"
          "    y[t, 1] = shuffle_up(v, 1);"
          "    y[t, 2] = shuffle_down(v, 1);"
          "    y[t, 3] = shuffle_xor(v, 3);"
          "    y[t, 4] = warp_sum(v);"
          "    y[t, 5] = block_max(sum k in 0..2 { v * i32(k) });"
          "  } } }"
          "}",
          NULL, (uint64_t[]){P(y)}));
  for (int t = 0; t < 8; ++t) {
    int lane = t % 4, base = t - lane;
    assert_int_equal(y[t][0], base + 3);
    assert_int_equal(y[t][1], lane > 0 ? t : t + 1);
    assert_int_equal(y[t][2], lane < 3 ? t + 2 : t + 1);
    assert_int_equal(y[t][3], base + (lane ^ 3) + 1);
    assert_int_equal(y[t][4], base * 4 + 10);
    assert_int_equal(y[t][5], 8);
  }
}

static void lanes_beyond_the_warp(void** state) {
  (void)state;
  int32_t y[6];
  static const struct {
    const char* call;
    const char* op;
  } cases[] = {{"shuffle(v, 4)", "shuffle"},           {"shuffle(v, t - 1)", "shuffle"},
               {"shuffle_up(v, 4)", "shuffle_up"},     {"shuffle_down(v, -4)", "shuffle_down"},
               {"shuffle_xor(v, 4)", "shuffle_xor"},   {"shuffle_xor(v, -1)", "shuffle_xor"},
               {"shuffle(v, warp_size())", "shuffle"}, {"shuffle_up(v, t)", "shuffle_up"}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    char text[200];
    char message[100];
    (void)snprintf(text, sizeof text,
                   "func f(out y: i32[6]) { block.x b in 0..1 { thread.x t in 0..6 {"
                   " let v = i32(t); y[t] = %s; } } }",
                   cases[i].call);
    (void)snprintf(message, sizeof message,
                   "function 'f': assert failed: '%s' reaches beyond its warp of 4 threads",
                   cases[i].op);
    check_error(run(text, NULL, (uint64_t[]){P(y)}), QN_STATUS_ASSERTION, message);
  }
  // A lane that the warp has and the block has not gives the own value, as at the warp's edges.
  check(
      run("func f(out y: i32[6]) { block.x b in 0..1 { thread.x t in 0..6 {"
          " let v = i32(t); y[t] = shuffle(v, 3) + shuffle_down(v, 3); } } }",
          NULL, (uint64_t[]){P(y)}));
  static const int32_t expected[] = {6, 4, 5, 6, 8, 10};
  assert_memory_equal(y, expected, sizeof expected);
}

static void exchange_inside_a_reduction(void** state) {
  (void)state;
  int32_t y[4];
  check(
      run("func f(out y: i32[4]) {"
          "  block.x b in 0..1 { thread.x t in 0..4 {"
          "    y[t] = sum k in 0..3 { let w = i32(t * 10 + k); shuffle_xor(w, 1) };"
          "  } }"
          "}",
          NULL, (uint64_t[]){P(y)}));
  for (int t = 0; t < 4; ++t) assert_int_equal(y[t], 3 * ((t ^ 1) * 10) + 3);
}

static void divided_threads(void** state) {
  (void)state;
  int32_t y[6];
  // Each thread has its own range, its own branch and its own count of rounds.
  check(
      run("func f(out y: i32[6]) {"
          "  block.x b in 0..1 { thread.x t in 0..6 {"
          "    alloc c: i32[] in local;"
          "    c[] = 0;"
          "    for i in t..4 { c[] = c[] + 1; }"
          "    while c[] % 3 != 0 { c[] = c[] + 10; }"
          "    if t % 2 == 0 { y[t] = c[]; } else { y[t] = 0 - c[]; }"
          "  } }"
          "}",
          NULL, (uint64_t[]){P(y)}));
  static const int32_t expected[] = {24, -3, 12, -21, 0, 0};
  assert_memory_equal(y, expected, sizeof expected);
}

// ---- errors

static void errors_of_indices(void** state) {
  (void)state;
  int32_t x[8] = {0}, y[8];
  uint64_t params[] = {P(x), P(y)};
  check_error(run("func f(x: i32[2, 4], out y: i32[8]) {"
                  "  for i in 0..8 { y[i] = x[1, i]; } }",
                  NULL, params),
              QN_STATUS_OUT_OF_BOUNDS,
              "function 'f': buffer 'x' dim 1: index 4 outside of extent 4");
  check_error(run("func f(x: i32[n], out y: i32[n]) { for i in 0..n { y[i - 1] = x[i]; } }",
                  (int64_t[]){8}, params),
              QN_STATUS_OUT_OF_BOUNDS,
              "function 'f': buffer 'y' dim 0: index -1 outside of extent 8");
  check_error(run("func f(x: i32[8], out y: i32[8]) {"
                  "  for i in 0..8 { y[u64(i) - 9] = x[i]; } }",
                  NULL, params),
              QN_STATUS_OUT_OF_BOUNDS,
              "function 'f': buffer 'y' dim 0: index 18446744073709551607 outside of extent 8");
}

static void errors_of_views(void** state) {
  (void)state;
  int32_t x[8] = {0}, y[8];
  uint64_t params[] = {P(x), P(y)};
  check_error(run("func f(x: i32[8], out y: i32[8]) {"
                  "  for i in 0..1 { view v: i32[4] = x[6]; y[0] = v[1]; y[1] = v[2]; } }",
                  NULL, params),
              QN_STATUS_OUT_OF_BOUNDS,
              "function 'f': buffer 'v': element at offset 2 is outside of its memory");
  check_error(run("func f(x: i32[8], out y: i32[8]) {"
                  "  for i in 0..1 { view v: i32[4] = x[2]; y[0] = v[4]; } }",
                  NULL, params),
              QN_STATUS_OUT_OF_BOUNDS,
              "function 'f': buffer 'v' dim 0: index 4 outside of extent 4");
  check_error(run("func f(x: i32[8], out y: i32[8]) {"
                  "  for i in 8..9 { view v: i32[4] = x[i]; y[0] = v[0]; } }",
                  NULL, params),
              QN_STATUS_OUT_OF_BOUNDS,
              "function 'f': buffer 'x' dim 0: index 8 outside of extent 8");
}

static void errors_of_values(void** state) {
  (void)state;
  int32_t x[4] = {1, 2, 0, 4}, y[4];
  uint64_t params[] = {P(x), P(y)};
  check_error(
      run("func f(x: i32[4], out y: i32[4]) { for i in 0..4 { y[i] = 8 // x[i]; } }", NULL, params),
      QN_STATUS_DIVISION_BY_ZERO, "function 'f': integer division by zero in '//'");
  assert_int_equal(y[1], 4);
  check_error(run("func f(x: i32[4], out y: i32[4]) {"
                  "  for i in 0..4 { assert x[i] != 2; y[i] = 1; } }",
                  NULL, params),
              QN_STATUS_ASSERTION, "function 'f': assert failed: x[i] != 2");
  check_error(run("func f(x: i32[n], out y: i32[n]) {"
                  "  alloc w: f32[n - 5] in global;"
                  "  for i in 0..n { w[i] = 0.0; y[i] = x[i]; } }",
                  (int64_t[]){4}, params),
              QN_STATUS_VALUE_ERROR, "function 'f': buffer 'w' dim 0: extent -1 is negative");
  check_error(run("func f(x: i32[n], out y: i32[n]) {"
                  "  alloc w: f32[n * 1000000000000, n * 1000000000000] in global;"
                  "  for i in 0..n { w[i, i] = 0.0; y[i] = x[i]; } }",
                  (int64_t[]){4}, params),
              QN_STATUS_VALUE_ERROR,
              "function 'f': buffer 'w' is too large, limit 1099511627776 bytes");
}

static void fresh_memory_is_poisoned(void** state) {
  (void)state;
  float y[2];
  check(
      run("func f(out y: f32[2]) {"
          "  for i in 0..2 { alloc t: f32[2] in local; t[0] = 1.0; y[i] = t[i]; } }",
          NULL, (uint64_t[]){P(y)}));
  assert_true(y[0] == 1.0F);
  assert_true(isnan(y[1]));
}

// ---- memory

static bool walk(qn_allocator_t allocator, void* user) {
  (void)user;
  static const char text[] =
      "func f(x: i32[n], out y: i32[n]) {"
      "  alloc w: i32[n] in global;"
      "  parallel i in 0..n { w[i] = x[i]; }"
      "  block.x b in 0..2 { alloc s: i32[4] in shared; thread.x t in 0..4 {"
      "    if t % 2 == 0 { s[t] = w[t]; } else { s[t] = 1; }"
      "    for k in t..4 { s[t] = s[t] + 1; }"
      "    alloc c: i32[] in local; c[] = 0; while c[] < i32(t) { c[] = c[] + 1; }"
      "    barrier; if b == 0 { y[t] = sum k in 0..4 { s[k] }; } } } }";
  int32_t x[4] = {1, 2, 3, 4}, y[4] = {0};
  qn_status_t status =
      run_module(text, sizeof text - 1, (int64_t[]){4}, (uint64_t[]){P(x), P(y)}, allocator);
  if (qn_ok(status)) return y[0] == 1 + 3 + 1 + 1 + 4 + 3 + 2 + 1;
  bool is_right = qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  return is_right;
}

static void survives_without_memory(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(walk, NULL) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples_saxpy),
      cmocka_unit_test(samples_softmax),
      cmocka_unit_test(samples_two_launches),
      cmocka_unit_test(samples_matmul),
      cmocka_unit_test(samples_transpose),
      cmocka_unit_test(samples_embed),
      cmocka_unit_test(control_flow),
      cmocka_unit_test(lazy_logic),
      cmocka_unit_test(strides_and_views),
      cmocka_unit_test(tables_and_atomics),
      cmocka_unit_test(atomics_of_all_dtypes),
      cmocka_unit_test(small_floats),
      cmocka_unit_test(barriers_in_lock_step),
      cmocka_unit_test(exchanges),
      cmocka_unit_test(lanes_beyond_the_warp),
      cmocka_unit_test(exchange_inside_a_reduction),
      cmocka_unit_test(divided_threads),
      cmocka_unit_test(errors_of_indices),
      cmocka_unit_test(errors_of_views),
      cmocka_unit_test(errors_of_values),
      cmocka_unit_test(fresh_memory_is_poisoned),
      cmocka_unit_test(survives_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
