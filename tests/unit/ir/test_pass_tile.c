// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_tile.c: tests that products written as sums become tiles of a GPU with
// the same results, and that other code does not.
//
// Each program runs as written and mapped, in the interpreter, with extents around those of a tile.
// Sums keep their order, so all results agree bit for bit.
#include <stdlib.h>

#include "ir/verify.h"
#include "support_gpu.h"
#include "support_pass.h"
#include "support_product.h"
#include "tests/support/fault.h"
#include "tests/support/sanitized.h"

// Tiles of 64 x 64 by 256 threads, and of 32 x 32 by 64, little shared memory.
static const qn__pass_options_t targets[] = {
    {.warp_size = 32,
     .max_threads = 1024,
     .preferred_threads = 256,
     .max_shared_bytes = 49152,
     .has_shuffles = true,
     .has_block_reductions = true},
    {.warp_size = 8, .max_threads = 128, .preferred_threads = 64, .max_shared_bytes = 4096},
};
static const int64_t tile_extents[QN_COUNT_OF(targets)] = {64, 32};

// Compares the text after the passes of the mapping alone, without those that simplify.
static void expect_mapping(const qn__pass_options_t* options, const char* text,
                           const char* expected) {
  static const qn__pass_t* const mapping[] = {
      &qn__pass_independent, &qn__pass_partition, &qn__pass_tile,        &qn__pass_distribute,
      &qn__pass_share,       &qn__pass_reuse,     &qn__pass_cooperative, &qn__pass_barriers,
  };
  qn_test_expect_all(mapping, QN_COUNT_OF(mapping), options, text, expected);
}

// ---- mapping

static bool is_shared(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_SHARED;
}

static void map(const qn_test_program_t* program, const qn_module_t* module,
                const qn__pass_options_t* options, qn__ir_body_t* body) {
  assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), body)));
  qn_status_t status = qn__passes_run_gpu(body, options);
  if (qn_ok(status)) status = qn__body_verify_status(body, "the mapping");
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
  qn__function_number(body->first);
  char message[256];
  if (!qn_test_is_mapped(body->first, options, message, sizeof message)) {
    qn_test_show(body);
    fail_msg("%s: %s", program->name, message);
  }
}

static void run_target(const qn_test_program_t* program, const qn_module_t* module, size_t target,
                       const qn__pass_options_t* options, double tolerance, size_t every) {
  int64_t e = tile_extents[target];
  const qn_test_shape_t shapes[] = {
      {0, 5, 4},          {5, 0, 4},          {5, 4, 0},    {1, 1, 1},          {e, e, 16},
      {e + 1, e - 1, 17}, {e - 1, e + 1, 15}, {37, 41, 13}, {2 * e - 1, 3, 33}, {3, e + 3, 31},
      {16, 17, 66},       {17, 16, 65},       {1, 33, 64},  {33, 1, 67},        {16, 16, 7},
  };
  qn__ir_body_t body;
  map(program, module, options, &body);
  if (!qn_test_any(&body.first->body, is_shared)) {
    qn_test_show(&body);
    fail_msg("%s, target %zu: no tile", program->name, target);
  }
  if (IS_SANITIZED) every *= 3;  // the interpreter is slow there
  for (size_t s = 0; s < QN_COUNT_OF(shapes); s += every) {
    qn_test_compare(program, module, &body, shapes[s], tolerance);
  }
  qn__body_deinit(&body);
}

static void run_program(void** state) {
  const qn_test_program_t* program = *state;
  qn_module_t* module = qn_test_parse(program);
  for (size_t t = 0; t < QN_COUNT_OF(targets); ++t) {
    run_target(program, module, t, &targets[t], 0, t == 0 ? 2 : 1);
  }
  // With fused sums the last bits differ.
  qn__pass_options_t fused = targets[1];
  fused.has_fma = true;
  run_target(program, module, 1, &fused, 1e-5, 5);
  qn_module_release(module);
}

// Programs that have tiles on a GPU only: a CPU has few columns, or no sums of their type.
static const qn_test_program_t gpu_programs[] = {
    {"sums of f16", "func f(a: f16[m, k], b: f16[k, n], out c: f16[m, n]) { " NEST
                    "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"columns in pieces",
     "func f(a: f32[m, k], w: f32[n, k, 4], out c: f32[m, n * 4]) { parallel i in 0..m {\n"
     "  parallel j in 0..n { parallel u in 0..4 {\n"
     "  c[i, j * 4 + u] = sum p in 0..k { a[i, p] * w[j, p, u] }; } } } }"},
    {"a convolution",
     "func f(x: f32[2, 9, 6, 4], w: f32[10, 3, 3, 4], out y: f32[2, 10, 7, 4]) {\n"
     "  parallel u in 0..2 { parallel o in 0..10 { parallel h in 0..7 { parallel v in 0..4 {\n"
     "  y[u, o, h, v] = sum p in 0..36 { let c = p % 4; let q = p // 4;\n"
     "  x[u, h + q // 3, v + q % 3, c] * w[o, q // 3, q % 3, c] }; } } } } }"},
};

// Eight by eight sums for a thread, where there is much to do.
static void large_tiles(void** state) {
  (void)state;
  static const qn_test_program_t program = {
      "large",
      "func f(a: f32[2, 130, 12], b: f32[2, 12, 120], out c: f32[2, 130, 120]) {\n"
      "  parallel u in 0..2 { parallel i in 0..130 { parallel j in 0..120 {\n"
      "  c[u, i, j] = sum p in 0..12 { a[u, i, p] * b[u, p, j] }; } } } }"};
  qn__pass_options_t options = targets[0];
  options.multiprocessors = 1;
  qn_module_t* module = qn_test_parse(&program);
  qn__ir_body_t body;
  map(&program, module, &options, &body);
  qn_test_compare(&program, module, &body, (qn_test_shape_t){0, 0, 0}, 0);
  qn__body_deinit(&body);
  qn_module_release(module);
  expect_mapping(&options, program.text,
                 "alloc rows: f32[16, 132] in shared;\n alloc columns: f32[16, 128] in shared;\n"
                 "alloc acc: f32[8, 8] in local;\n");
}

// ---- text

static void text_of_a_tile(void** state) {
  (void)state;
  qn__pass_options_t options = targets[1];
  options.max_shared_bytes = 16384;
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     qn_test_products[0].text,
                     "block.x block in 0..ceildiv(m, 32) * ceildiv(n, 32) {\n"
                     "alloc rows: f32[16, 36] in shared;\n alloc columns: f32[16, 32] in shared;\n"
                     "thread.x t in 0..64 {\n let tiles_across = ceildiv(n, 32);\n"
                     "let rest = block // tiles_across;\n"
                     "let first_column = block % tiles_across * 32;\n"
                     "let first_row = rest % tiles_down * 32;\n let down = (t >> 3) * 4;\n"
                     "let across = (t & 7) * 4;\n let row_3 = first_row + down + 3;\n"
                     "let column_3 = first_column + across + 3;\n"
                     "alloc acc: f32[4, 4] in local;\n acc[0, 0] = 0.0;\n acc[3, 3] = 0.0;\n"
                     "for round in 0..ceildiv(k, 16) {\n let done = round * 16;\n"
                     "barrier;\n barrier;\n let left = k - done;\n if left >= 16 {\n"
                     "unroll k_1 in 0..16 {\n let a_9 = rows[k_1, down];\n"
                     "let b_9 = columns[k_1, across];\n acc[0, 0] = acc[0, 0] + a_9 * b_9;\n"
                     "} else {\n for k_2 in 0..left {\n if row < m {\n if column < n {\n"
                     "c[row, column] = acc[0, 0];\n");
  // With more threads the host chooses at the call; a strip has warps along its long side.
  options = targets[0];
  qn_test_expect_all(
      qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options, qn_test_products[0].text,
      "if m <= 16 {\n block.x block in 0..ceildiv(m, 16) * ceildiv(n, 32) {\n"
      "alloc rows: f32[64, 20] in shared;\n alloc columns: f32[64, 32] in shared;\n"
      "thread.x t in 0..256 {\n let down = (t >> 5) * 2;\n let across = t & 31;\n"
      "alloc acc: f32[2, 1] in local;\n let h = row < m;\n let h_1 = column < n;\n barrier;\n"
      "barrier;\n if h {\n if h_1 {\n let left = k - done;\n if left >= 64 {\n"
      "unroll k_1 in 0..64 {\n} else if n <= 16 {\n"
      "block.x block in 0..ceildiv(m, 32) * ceildiv(n, 16) {\n let down = t & 31;\n"
      "let across = (t >> 5) * 2;\n alloc acc: f32[1, 2] in local;\n } else {\n } else {\n"
      "block.x block in 0..ceildiv(m, 64) * ceildiv(n, 64) {\n"
      "alloc acc: f32[4, 4] in local;\n");
  // Only sides that may be short, and only once.
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     "func f(a: f32[m, k], b: f32[k, 96], out c: f32[m, 96]) {\n"
                     "  parallel i in 0..m { parallel j in 0..96 {\n"
                     "  c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
                     "if m <= 16 {\n!} else if n <= 16 {\n");
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     "func f(a: f32[m, k], out c: f32[m, m]) {\n"
                     "  parallel i in 0..m { parallel j in 0..m {\n"
                     "  c[i, j] = sum p in 0..k { a[i, p] * a[j, p] }; } } }",
                     "if m <= 16 {\n!} else if m <= 16 {\n");
  // Constant extents have the one that fits.
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     "func f(a: f32[k, 8], b: f32[k, 512], out c: f32[8, 512]) {\n"
                     "  parallel i in 0..8 { parallel j in 0..512 {\n"
                     "  c[i, j] = sum p in 0..k { a[p, i] * b[p, j] }; } } }",
                     "block.x block in 0..16 {\n alloc rows: f32[64, 8] in shared;\n"
                     "alloc acc: f32[1, 1] in local;\n");
  options = targets[1];
  // Shared memory is what there is of it.
  options.max_shared_bytes = 4096;
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     qn_test_products[0].text,
                     "alloc rows: f32[8, 36] in shared;\n alloc columns: f32[8, 32] in shared;\n");
  // No test where nothing is left over; a sum with one rounding where the target has that.
  options.has_fma = true;
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     "func f(a: f32[512, 64], b: f32[64, 512], out c: f32[512, 512]) {\n"
                     "  parallel i in 0..512 { parallel j in 0..512 {\n"
                     "  c[i, j] = sum p in 0..64 { a[i, p] * b[p, j] }; } } }",
                     "block.x block in 0..256 {\n!min\n for round in 0..8 {\n barrier;\n"
                     "unroll k in 0..8 {\n acc[0, 0] = fma(a_5, b_5, acc[0, 0]);\n}\n}\n"
                     "c[row, column] = acc[0, 0];\n");
}

// Summands that are much code are not written out for every step, nor for eight by eight sums.
static void large_summands(void** state) {
  (void)state;
  qn__pass_options_t options = targets[0];
  options.multiprocessors = 1;
  expect_mapping(&options,
                 "func f(a: f32[m, k], b: f32[n, k], out c: f32[m, n]) { " NEST
                 "c[i, j] = sum p in 0..k { exp(a[i, p] - b[j, p]) }; } } }",
                 "for k_1 in 0..min(left, 64) {\n alloc acc: f32[4, 4] in local;\n!unroll\n");
  expect_mapping(&options,
                 "func f(a: f32[512, 64], b: f32[512, 64], out c: f32[512, 512]) {\n"
                 "  parallel i in 0..512 { parallel j in 0..512 {\n"
                 "  c[i, j] = sum p in 0..64 { let d = a[i, p] - b[j, p]; exp(-d * d) }; } } }",
                 "alloc acc: f32[4, 4] in local;\n for k in 0..16 {\n!unroll\n");
  // What is done as tiles are filled is no part of it.
  expect_mapping(&options,
                 "func f(a: f32[512, 64], b: f32[512, 64], out c: f32[512, 512]) {\n"
                 "  parallel i in 0..512 { parallel j in 0..512 {\n"
                 "  c[i, j] = sum p in 0..64 { exp(a[i, p]) * b[j, p] }; } } }",
                 "alloc acc: f32[8, 8] in local;\n unroll k in 0..16 {\n");
}

// ---- what becomes none

static const qn_test_program_t others[] = {
    {"a vector",
     "func f(a: f32[m, k], x: f32[k], out y: f32[m]) { parallel i in 0..m {\n"
     "  y[i] = sum p in 0..k { a[i, p] * x[p] }; } }"},
    {"four rows",
     "func f(a: f32[4, k], b: f32[k, n], out c: f32[4, n]) { parallel i in 0..4 {\n"
     "  parallel j in 0..n { c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"few steps", "func f(a: f32[m, 4], b: f32[4, n], out c: f32[m, n]) { " NEST
                  "c[i, j] = sum p in 0..4 { a[i, p] * b[p, j] }; } } }"},
    {"many small ones",
     "func f(a: f32[m, 8, 12], b: f32[m, 12, 15], out c: f32[m, 8, 15]) { parallel u in 0..m {\n"
     "  parallel i in 0..8 { parallel j in 0..15 {\n"
     "  c[u, i, j] = sum p in 0..12 { a[u, i, p] * b[u, p, j] }; } } } }"},
    {"few long ones",
     "func f(a: f32[16, k], b: f32[16, k], out c: f32[16, 16]) { parallel i in 0..16 {\n"
     "  parallel j in 0..16 { c[i, j] = sum p in 0..k { a[i, p] * b[j, p] }; } } }"},
    {"read under a condition",
     "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { p <= i ? a[i, p] * b[p, j] : 0.0 }; } } }"},
    {"computed under a condition",
     "func f(a: f32[m, k], b: f32[k, n], inout c: f32[m, n]) { " NEST
     "if i <= j { c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } } }"},
    {"an operand of both sides",
     "func f(a: f32[m, k], b: f32[k, n], d: f32[m, n, k], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] * d[i, j, p] }; } } }"},
    {"a factor of both sides that is loaded before",
     "func f(a: f32[m, k], b: f32[k, n], d: f32[m, n], out c: f32[m, n]) { " NEST
     "let s = d[i, j]; c[i, j] = sum p in 0..k { a[i, p] * b[p, j] * s }; } } }"},
    {"bounds of a row", "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) { " NEST
                        "c[i, j] = sum p in 0..min(i, k) { a[i, p] * b[p, j] }; } } }"},
    {"two sums", "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) { " NEST
                 "c[i, j] = (sum p in 0..k { b[p, j] }) +\n"
                 "(sum p in 0..k { a[i, p] }); } } }"},
    {"an assert in front", "func f(a: f32[m, k], b: f32[k, n], d: i32[m], out c: f32[m, n]) { " NEST
                           "assert d[i] > -100, \"an index\";\n"
                           "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"neighbours along the batch",
     "func f(a: f32[m, k, z], b: f32[k, n, z], out c: f32[m, n, z]) { parallel u in 0..z { " NEST
     "c[i, j, u] = sum p in 0..k { a[i, p, u] * b[p, j, u] }; } } } }"},
    {"an operand that is written",
     "func f(a: f32[m, k], inout b: f32[k, n], out c: f32[m, n]) { parallel i in 0..m {\n"
     "  for j in 0..n { let s = sum p in 0..k { a[i, p] * b[p, j] };\n"
     "  c[i, j] = s; if i == 0 && k > 90 { b[0, j] = s; } } } }"},
};

static void run_other(void** state) {
  const qn_test_program_t* program = *state;
  qn_module_t* module = qn_test_parse(program);
  qn__pass_options_t options = targets[0];
  qn__ir_body_t body;
  map(program, module, &options, &body);
  bool is_tile = qn_test_any(&body.first->body, is_shared);
  if (is_tile) qn_test_show(&body);
  assert_false(is_tile);
  qn_test_compare(program, module, &body, (qn_test_shape_t){33, 20, 17}, 1e-6);
  qn__body_deinit(&body);
  qn_module_release(module);
}

static void checked_builds_keep_accesses(void** state) {
  (void)state;
  qn_module_t* module = qn_test_parse(&qn_test_products[0]);
  qn__pass_options_t options = targets[0];
  options.is_checked = true;
  qn__ir_body_t body;
  map(&qn_test_products[0], module, &options, &body);
  assert_false(qn_test_any(&body.first->body, is_shared));
  qn__body_deinit(&body);
  qn_module_release(module);
}

// Too few threads, or too little shared memory, for any tile.
static void small_targets_have_none(void** state) {
  (void)state;
  qn__pass_options_t options[2] = {targets[1], targets[1]};
  options[0].max_threads = options[0].preferred_threads = 32;
  options[1].max_shared_bytes = 512;
  for (size_t i = 0; i < 2; ++i) {
    qn_module_t* module = qn_test_parse(&qn_test_products[0]);
    qn__ir_body_t body;
    map(&qn_test_products[0], module, &options[i], &body);
    assert_false(qn_test_any(&body.first->body, is_shared));
    qn__body_deinit(&body);
    qn_module_release(module);
  }
}

static bool try_without_memory(qn_allocator_t allocator, void* user) {
  const qn_test_program_t* program = user;
  char* text = NULL;
  qn_status_t status = qn_test_try(program->text, allocator, &targets[0], qn__pipeline_gpu.passes,
                                   qn__pipeline_gpu.pass_count, &text);
  bool is_fine = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  free(text);
  return is_fine;
}

static void memory_runs_out(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(try_without_memory, (void*)(uintptr_t)&qn_test_products[0]) > 0);
}

int main(void) {
  struct CMUnitTest tests[96] = {
      cmocka_unit_test(text_of_a_tile),          cmocka_unit_test(large_tiles),
      cmocka_unit_test(large_summands),          cmocka_unit_test(checked_builds_keep_accesses),
      cmocka_unit_test(small_targets_have_none), cmocka_unit_test(memory_runs_out),
  };
  size_t count = 6;
  qn_test_add_programs(tests, QN_COUNT_OF(tests), &count, qn_test_products, qn_test_product_count,
                       run_program);
  qn_test_add_programs(tests, QN_COUNT_OF(tests), &count, gpu_programs, QN_COUNT_OF(gpu_programs),
                       run_program);
  qn_test_add_programs(tests, QN_COUNT_OF(tests), &count, others, QN_COUNT_OF(others), run_other);
  return _cmocka_run_group_tests("tiles", tests, count, NULL, NULL);
}
