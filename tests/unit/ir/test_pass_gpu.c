// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_gpu.c: tests the mapping to a GPU: the resulting text of the main shapes.
// Equal results are tested in test_pass_gpu_run.c and test_pass_gpu_random.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"

static const qn__pass_options_t gpu = {.vector_bytes = 16,
                                       .warp_size = 32,
                                       .max_threads = 1024,
                                       .preferred_threads = 256,
                                       .max_shared_bytes = 49152,
                                       .has_shuffles = true,
                                       .has_block_reductions = true};
static const qn__pass_options_t plain = {.vector_bytes = 16,
                                         .warp_size = 8,
                                         .max_threads = 256,
                                         .preferred_threads = 64,
                                         .max_shared_bytes = 16384};

static void expect(const qn__pass_options_t* options, const char* text, const char* expected) {
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, options, text, expected);
}

static void expect_example(const qn__pass_options_t* options, const char* name,
                           const char* expected) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/examples/ir/%s.qn", QN_SOURCE_DIR, name);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  static char text[1 << 16];
  size_t size = fread(text, 1, sizeof text - 1, file);
  text[size] = '\0';
  assert_int_equal(fclose(file), 0);
  expect(options, text, expected);
}

// ---- flat

static void saxpy_is_flat(void** state) {
  (void)state;
  expect_example(&gpu, "saxpy",
                 "block.x block in 0..ceildiv(n, 1024) {\n thread.x t in 0..256 {\n"
                 "if block < n >> 10 {\n"
                 "let h = block * 1024;\n unroll k in 0..4 {\n let at = h + k * 256 + t;\n"
                 "y[at] = a * x[at] + y[at];\n"
                 "let h = block * 1024;\n for k in 0..4 {\n let at = h + k * 256 + t;\n"
                 "if at < n {\n y[at] = a * x[at] + y[at];\n");
}

static const qn__pass_options_t wide = {.vector_bytes = 16,
                                        .warp_size = 32,
                                        .max_threads = 1024,
                                        .preferred_threads = 256,
                                        .max_shared_bytes = 49152,
                                        .access_bytes = 16,
                                        .has_shuffles = true,
                                        .has_block_reductions = true};

// Where the target has wide accesses, a thread has neighbours.
static void neighbours_are_lanes(void** state) {
  (void)state;
  expect_example(&wide, "saxpy",
                 "block.x block in 0..ceildiv(n, 1024) {\n thread.x t in 0..256 {\n"
                 "let at = block * 256 + t;\n if at < n >> 2 {\n let h = at * 4;\n"
                 "vector k in 0..4 {\n y[i] = a * x[i] + y[i];\n"
                 "} else {\n let h = at * 4;\n for k in 0..4 {\n let last = h + k;\n"
                 "if last < n {\n y[last] = a * x[last] + y[last];\n");
  expect(&wide,
         "func f(x: f16[n, m], b: f16[m], out y: f16[n, m]) { parallel i in 0..n {"
         "  parallel j in 0..m { y[i, j] = x[i, j] + b[j]; } } }",
         "block.x block in 0..ceildiv(n * m, 2048) {\n if m & 7 == 0 {\n"
         "if at < n * m >> 3 {\n let h = at % (m >> 3) * 8;\n vector k in 0..8 {\n"
         "} else if block < n * m >> 11 {\n unroll k in 0..8 {\n");
  expect(&wide, "func f(x: f64[n], out y: f64[n]) { parallel i in 0..n { y[i] = x[i] * 2.0; } }",
         "block.x block in 0..ceildiv(n, 512) {\n vector k in 0..2 {\n");
}

// What only some lanes store is not moved: threads are not far apart there.
static void lanes_that_store_alone_are_few(void** state) {
  (void)state;
  expect(&wide, "func f(x: i8[n], out y: i8[n]) { parallel i in 0..n { y[i] = x[i]; } }",
         "vector k in 0..16 {\n");
  expect(&wide,
         "func f(x: i8[n], inout y: i8[n]) { parallel i in 0..n { if x[i] > 0 { y[i] = x[i]; } } }",
         "vector k in 0..4 {\n");
}

// Accesses that are never aligned together have neighbouring threads instead, or fewer lanes.
static void shifted_neighbours_are_spread(void** state) {
  (void)state;
  expect(&wide,
         "func f(x: f32[n + 1], out y: f32[n]) { parallel i in 0..n {"
         "  y[i] = x[i + 1] - x[i]; } }",
         "unroll k in 0..4 {\n let at = h + k * 256 + t;\n");
  expect(&wide, "func f(x: f32[n], out y: f32[n]) { parallel i in 1..n { y[i] = x[i]; } }",
         "unroll k in 0..4 {\n let at = h + k * 256 + t;\n");
  expect(&wide,
         "func f(x: f32[n + 6], out y: f32[n]) { parallel i in 0..n {"
         "  y[i] = x[i + 6] - x[i]; } }",
         "vector k in 0..2 {\n");
  expect(&wide,
         "func f(x: f32[n + 8], out y: f32[n]) { parallel i in 0..n {"
         "  y[i] = x[i + 8] - x[i]; } }",
         "vector k in 0..4 {\n");
}

// What reductions load is read by neighbouring threads side by side, or by one thread in a row.
static void sums_of_neighbours_are_spread(void** state) {
  (void)state;
  expect(&wide,
         "func f(x: f32[8, n], out y: f32[n]) { parallel i in 0..n {"
         "  y[i] = sum k in 0..8 { x[k, i] }; } }",
         "unroll k in 0..4 {\n let at = h + k * 256 + t;\n"
         "y[at] = sum k_1 in 0..8 { x[k_1, at] };\n");
  expect(&wide,
         "func f(a: f32[n, m], b: f32[m, m], out y: f32[n, m]) { parallel i in 0..n {"
         "  let s = sum j in 0..m { a[i, j] };"
         "  for j in 0..m { y[i, j] = s * sum k in 0..m { b[k, j] }; } } }",
         "sum lane in 0..4 {\n let exchange = block_sum(own);\n"
         "for k in 0..ceildiv(m - t, 256) {\n let j = k * 256 + t;\n");
  // The same for all lanes.
  expect(&wide,
         "func f(c: f32[8], x: f32[n], out y: f32[n]) { parallel i in 0..n {"
         "  let a = x[i]; y[i] = a + sum k in 0..8 { c[k] }; } }",
         "let h_1 = sum k in 0..8 { c[k] };\n vector k in 0..4 {\n");
}

static void launches_stay_apart(void** state) {
  (void)state;
  expect_example(&gpu, "two_launches",
                 "alloc mean: f32[m] in global;\n block.x block in 0..ceildiv(m, 256) {\n"
                 "mean[at] = (sum i in 0..n { x[i, at] }) / f32(n);\n"
                 "block.x block in 0..ceildiv(n * m, 1024) {\n let j = at % m;\n let i = at // m;\n"
                 "y[i, j] = x[i, j] - mean[j];\n");
}

// The dimension whose neighbours are neighbours in memory counts fastest.
static void order_of_dimensions(void** state) {
  (void)state;
  expect(&gpu,
         "func f(inout y: f32[m, n]) { parallel i in 0..n { parallel j in 0..m {"
         "  y[j, i] = y[j, i] * 2.0; } } }",
         "let i = at % n;\n let j = at // n;\n y[j, i] = y[j, i] * 2.0;\n");
  // Through names of the outer dimension.
  expect(&gpu,
         "func f(x: f32[n, m], out y: f32[m, n]) { parallel i in 0..n { let q = i + 2;"
         " parallel j in 0..m { let w = q - 2; y[j, w] = x[i, j]; } } }",
         "let i = at % n;\n let j = at // n;\n");
}

static void short_grids_are_one_block(void** state) {
  (void)state;
  expect(&gpu, "func f(out y: i64[40]) { parallel i in 0..40 { y[i] = i; } }",
         "block.x block in 0..1 {\n thread.x t in 0..64 {\n if at < 40 {\n");
  expect(&gpu, "func f(out y: i64[64]) { parallel i in 0..64 { y[i] = i; } }",
         "thread.x t in 0..64 {\n ! if at < 64 {\n y[at] = at;\n");
}

// What only the device knows is read once; a fixed grid steps through the range.
static void extents_of_the_device(void** state) {
  (void)state;
  expect(&gpu, "func f(x: i64[1], out y: i64[n]) { parallel i in 0..x[0] { y[i] = i; } }",
         "alloc bound: i64[] in global;\n block.x block in 0..1 {\n thread.x t in 0..1 {\n"
         "bound[] = bound_1;\n block.x block in 0..256 {\n let bound_2 = bound[];\n"
         "thread.x t in 0..256 {\n let first = block * 256 + t;\n"
         "for k in 0..ceildiv(max(bound_2, 0) - first, 65536) {\n"
         "let at = first + k * 65536;\n y[at] = at;\n");
}

// ---- teams

static void softmax_has_a_block_for_a_row(void** state) {
  (void)state;
  expect_example(&gpu, "softmax",
                 "block.x block in 0..n {\n thread.x t in 0..256 {\n"
                 "let own = max k in 0..ceildiv(m - t, 256) {\n let j = k * 256 + t;\n"
                 "let exchange = block_max(own);\n"
                 "let own_1 = sum k in 0..ceildiv(m - t, 256) {\n"
                 "exp(x[block, j] - exchange)\n let exchange_1 = block_sum(own_1);\n"
                 "for k in 0..ceildiv(m - t, 256) {\n let j = k * 256 + t;\n"
                 "y[block, j] = exp(x[block, j] - exchange) / exchange_1;\n");
  expect_example(&plain, "softmax",
                 "alloc lanes: f32[64] in shared;\n alloc warps: f32[8] in shared;\n"
                 "lanes[t] = own;\n barrier;\n if t & 7 == 0 {\n barrier;\n"
                 "let total = max k in 0..8 { warps[k] };\n");
}

// What a thread computed of a row stays with it, as far as that is short; else it is computed
// again.
static void rows_are_kept(void** state) {
  (void)state;
  expect_example(&wide, "softmax",
                 "if m & 3 == 0 && m <= 4096 {\n alloc kept: f32[16] in local;\n"
                 "unroll k in 0..4 {\n let at = k * 256 + t;\n if at < h {\n"
                 "vector k_1 in 0..4 {\n kept[h_2 + k_1] = x[block, j];\n"
                 "} else {\n kept[h_3 + lane] = 0.0;\n"
                 "let exchange = block_max(own);\n alloc kept_1: f32[16] in local;\n"
                 "kept_1[h_4 + k_2] = exp(kept[h_4 + k_2] - exchange);\n"
                 "let exchange_1 = block_sum(own_1);\n"
                 "y[block, j] = kept_1[h_7 + k_3] / exchange_1;\n"
                 "} else {\n let own = m & 3 == 0 ? max k in 0..ceildiv((m >> 2) - t, 256) {\n"
                 "y[block, j] = exp(x[block, j] - exchange) / exchange_2;\n");
  // Every thread has a place in every round: nothing is asked.
  expect(&wide,
         "func f(x: f32[n, 2048], out y: f32[n, 2048]) { parallel i in 0..n {"
         "  let s = sum j in 0..2048 { x[i, j] };"
         "  for j in 0..2048 { y[i, j] = x[i, j] - s; } } }",
         "thread.x t in 0..256 {\n alloc kept: f32[8] in local;\n unroll k in 0..2 {\n"
         "vector k_1 in 0..4 {\n"
         "let own = (sum lane in 0..4 { kept[lane] }) + (sum lane in 0..4 { kept[4 + lane] });\n"
         "unroll k in 0..2 {\n vector k_2 in 0..4 {\n"
         "y[block, j] = kept[h_2 + k_2] - exchange;\n");
  // The sum reads what is stored to: only its other operand is kept.
  expect(&wide,
         "func f(x: f32[n, m], inout y: f32[n, m]) { parallel i in 0..n {"
         "  let s = sum j in 0..m { x[i, j] * y[i, j] };"
         "  for j in 0..m { y[i, j] = x[i, j] * y[i, j] - s; } } }",
         "kept[h_2 + k_1] = x[block, j];\n kept[lane] * y[block, j]\n");
}

static void embed_layernorm_too(void** state) {
  (void)state;
  expect_example(&gpu, "embed_layernorm",
                 "assert s <= p, \"sequence is longer than the position table\";\n"
                 "block.x block in 0..max(b * s, 0) {\n thread.x t in 0..256 {\n"
                 "let i = block // s;\n let t_1 = block % s;\n"
                 "assert 0 <= id && id < v, \"token id out of range\";\n"
                 "let exchange = block_sum(own);\n let mean = exchange / f32(h);\n"
                 "let exchange_1 = block_sum(own_1);\n let scale = rsqrt(var + eps);\n"
                 "for k in 0..ceildiv(h - t, 256) {\n");
}

// Several warps to a block; those without a row of their own repeat the last one, storing nothing.
static void short_rows_have_a_warp(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n, 64], out y: f32[n]) { parallel i in 0..n {"
         "  y[i] = sum j in 0..64 { x[i, j] }; } }",
         "block.x block in 0..ceildiv(n, 8) {\n thread.x t in 0..256 {\n"
         "let wanted = block * 8 + (t >> 5);\n let at = min(wanted, n - 1);\n"
         "let is_used = wanted < n;\n let lane = t & 31;\n let own = sum k in 0..2 {\n"
         "let exchange = warp_sum(own);\n if lane == 0 && is_used {\n y[at] = exchange;\n");
}

// Columns are contiguous from thread to thread: no team.
static void columns_stay_flat(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n, m], out y: f32[m]) { parallel j in 0..m {"
         "  y[j] = sum i in 0..n { x[i, j] }; } }",
         "block.x block in 0..ceildiv(m, 256) {\n y[at] = sum i in 0..n { x[i, at] };\n");
}

static void a_local_array_becomes_shared(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n, 1024], out y: f32[n, 1024]) { parallel i in 0..n {"
         "  alloc w: f32[1024] in local; for j in 0..1024 { w[j] = x[i, j] * 2.0; }"
         "  let s = sum j in 0..1024 { w[1023 - j] * x[i, j] };"
         "  for j in 0..1024 { y[i, j] = s + w[j]; } } }",
         "block.x block in 0..n {\n alloc w: f32[1024] in shared;\n thread.x t in 0..256 {\n"
         "for k in 0..4 {\n w[j] = x[block, j] * 2.0;\n barrier;\n"
         "let exchange = block_sum(own);\n ! barrier;\n y[block, j] = exchange + w[j];\n");
}

// ---- the rest of a function

static void what_is_not_a_loop_is_a_launch(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n], out y: f32[n], out z: f32[2]) { let k = x[0]; let m = n // 2;"
         "  z[0] = k; z[1] = 2.0; parallel i in 0..m { y[i] = k; } }",
         "alloc k: f32[] in global;\n let m = n >> 1;\n block.x block in 0..1 {\n"
         "thread.x t in 0..1 {\n let k_1 = x[0];\n k[] = k_1;\n z[0] = k_1;\n z[1] = 2.0;\n"
         "block.x block in 0..ceildiv(m, 1024) {\n let k_2 = k[];\n y[at] = k_2;\n");
}

static void long_sums_have_a_launch_of_their_own(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n], out y: f32[n]) { let s = sum i in 0..n { x[i] * x[i] };"
         "  parallel i in 0..n { y[i] = x[i] / s; } }",
         "alloc partial: f32[256] in global;\n block.x block in 0..256 {\n"
         "let each = ceildiv(n, 8192) * 32;\n let exchange = block_sum(own);\n"
         "partial[block] = exchange;\n block.x block in 0..1 {\n"
         "let exchange = block_sum(own);\n s[] = exchange;\n y[at] = x[at] / s_1;\n");
}

static void serial_loops_of_the_host(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n], out y: f32[n], steps: i64) { for s in 0..steps {"
         "  parallel i in 0..n - s { y[i] = x[i + s]; } } }",
         "for s in 0..steps {\n block.x block in 0..ceildiv(max(n - s, 0), 1024) {\n"
         "thread.x t in 0..256 {\n y[at] = x[at + s];\n");
}

static void conditions_of_the_device(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: i64[1], out y: i64[n]) { if x[0] > 0 { parallel i in 0..n { y[i] = i; } } }",
         "alloc condition: bool[] in global;\n condition[] = condition_1;\n"
         "block.x block in 0..ceildiv(n, 1024) {\n let condition_2 = condition[];\n"
         "thread.x t in 0..256 {\n if condition_2 {\n");
}

// Declared inside of the guard, not in the head, where all threads would have a copy of their own.
static void a_local_array_under_a_condition_of_the_device_becomes_shared(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n], out y: f32[n], inout z: f32[256]) { if x[0] > 0.0 {"
         "  alloc b: f32[256] in local; view v: f32[16, 16] = b[0]; for s in 0..3 {"
         "  for i in 0..256 { b[i] = x[i] + z[(i * 7 + 1) % 256]; }"
         "  for i in 0..256 { z[i] = v[15 - i // 16, i % 16]; } }"
         "  parallel i in 0..n { y[i] = x[i]; } } }",
         "block.x block in 0..1 {\n let condition_2 = condition[];\n alloc b: f32[256] in shared;\n"
         "thread.x t in 0..256 {\n if condition_2 {\n view v: f32[16, 16] strides [16, 1] = "
         "b[0];\n for s in 0..3 {\n"
         "b[t] = x[t] + z[h];\n barrier;\n z[t] = v[h_1, h_2];\n barrier;\n");
}

static void explicit_loops_stay(void** state) {
  (void)state;
  expect_example(&gpu, "transpose_shared",
                 "block.y by in 0..ceildiv(n, 32) {\n block.x bx in 0..ceildiv(m, 32) {\n"
                 "alloc tile: f32[32, 33] in shared;\n thread.y ty in 0..8 {\n"
                 "thread.x tx in 0..32 {\n barrier;\n");
}

static void a_block_level_becomes_one_nest(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: f32[n], out y: f32[n]) { block.x b in 0..n { alloc s: f32[8] in shared;"
         "  thread.x t in 0..8 { s[t] = x[b]; } let v = s[3]; y[b] = v; } }",
         "block.x b in 0..n {\n alloc s: f32[8] in shared;\n thread.x t in 0..8 {\n"
         "s[t] = x[b];\n barrier;\n let v = s[3];\n if t == 0 {\n y[b] = v;\n");
}

// Serial loops are launches where their iterations keep to elements, or tiles, of their own.
static void proven_loops_are_launches(void** state) {
  (void)state;
  expect(&gpu, "func f(x: f32[n], out y: f32[n]) { for i in 0..n { y[i] = x[i]; } }",
         "block.x block in 0..ceildiv(n, 1024) {\n y[at] = x[at];\n");
  expect(&gpu,
         "func f(x: f32[n], out y: f32[n]) { for i in 0..n // 3 { let first = i * 3;"
         "  for k in 0..2 { y[first + k] = x[i]; } y[first + 2] = y[first + 1]; } }",
         "block.x block in 0..ceildiv(truncdiv(n, 3), 256) {\n let first = at * 3;\n");
  // One that reads its neighbour's is not, nor one whose tiles overlap.
  expect(&gpu, "func f(inout y: f32[n]) { for i in 1..n { y[i] = y[i - 1]; } }",
         "block.x block in 0..1 {\n thread.x t in 0..1 {\n for i in 1..n {\n");
  expect(&gpu,
         "func f(x: f32[n], out y: f32[n]) { for i in 0..n - 2 { for k in 0..3 {"
         "  y[i * 2 + k] = x[i]; } } }",
         "block.x block in 0..1 {\n for i in 0..n - 2 {\n");
}

static void a_matmul_tile_is_a_thread_each(void** state) {
  (void)state;
  expect_example(&gpu, "matmul_tile",
                 "block.x block in 0..ceildiv(ceildiv(n, 4) * ceildiv(m, 16), 256) {\n"
                 "thread.x t in 0..256 {\n let tj = at % ceildiv(m, 16);\n"
                 "let ti = at // ceildiv(m, 16);\n alloc acc: f32[4, 16] in local;\n");
}

// ---- exchanges

static void exchanges_stand_alone(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[n], out y: f32[n]) { block.x b in 0..n { thread.x t in 0..64 {"
      "  let v = n > 4 ? block_sum(x[t]) : 1.0; if t == 0 { y[b] = v; } } } }";
  expect(&gpu, text,
         "let condition = n > 4;\n let exchange = block_sum(condition ? x[t] : 0.0);\n"
         "let v = condition ? exchange : 1.0;\n");
  const qn__pass_options_t shuffles = {.warp_size = 32, .max_threads = 1024, .has_shuffles = true};
  expect(&shuffles, text,
         "alloc warps: f32[2] in shared;\n let warp = warp_sum(condition ? x[t] : 0.0);\n"
         "if t & 31 == 0 {\n warps[t >> 5] = warp;\n barrier;\n"
         "let total = sum k in 0..2 { warps[k] };\n");
}

// Rounds may give an element to other lanes than the one before: a warp has no barrier for that.
static void rounds_that_store_are_no_warps(void** state) {
  (void)state;
  expect(&gpu,
         "func f(x: i32[n, 100], out y: i32[n, 128], out s: i32[n]) { parallel i in 0..n {\n"
         "let t = sum j in 0..100 { x[i, j] }; s[i] = t;\n"
         "for k in 0..4 { for j in 0..100 { y[i, j + k] = t + x[i, j] + i32(j * 7 + k); } } } }",
         "let at = block * 256 + t;\n if at < n {\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounds_that_store_are_no_warps),
      cmocka_unit_test(saxpy_is_flat),
      cmocka_unit_test(neighbours_are_lanes),
      cmocka_unit_test(lanes_that_store_alone_are_few),
      cmocka_unit_test(shifted_neighbours_are_spread),
      cmocka_unit_test(sums_of_neighbours_are_spread),
      cmocka_unit_test(launches_stay_apart),
      cmocka_unit_test(order_of_dimensions),
      cmocka_unit_test(short_grids_are_one_block),
      cmocka_unit_test(extents_of_the_device),
      cmocka_unit_test(softmax_has_a_block_for_a_row),
      cmocka_unit_test(rows_are_kept),
      cmocka_unit_test(embed_layernorm_too),
      cmocka_unit_test(short_rows_have_a_warp),
      cmocka_unit_test(columns_stay_flat),
      cmocka_unit_test(a_local_array_becomes_shared),
      cmocka_unit_test(what_is_not_a_loop_is_a_launch),
      cmocka_unit_test(long_sums_have_a_launch_of_their_own),
      cmocka_unit_test(serial_loops_of_the_host),
      cmocka_unit_test(conditions_of_the_device),
      cmocka_unit_test(a_local_array_under_a_condition_of_the_device_becomes_shared),
      cmocka_unit_test(explicit_loops_stay),
      cmocka_unit_test(a_block_level_becomes_one_nest),
      cmocka_unit_test(proven_loops_are_launches),
      cmocka_unit_test(a_matmul_tile_is_a_thread_each),
      cmocka_unit_test(exchanges_stand_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
