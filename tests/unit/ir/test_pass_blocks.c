// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_blocks.c: tests that products written as sums become the forms of a CPU
// with the same results: packed blocks, few rows, few columns, small ones.
//
// Each program runs as written and mapped, in the interpreter, with extents around those of a form.
// Sums of packed blocks keep their order, so their results agree bit for bit.
#include <stdlib.h>

#include "ir/prepared.h"
#include "ir/verify.h"
#include "support_gpu.h"
#include "support_product.h"
#include "tests/support/fault.h"
#include "tests/support/sanitized.h"

// SSE, AVX-512 with vectors of 256 bits, AVX-512, and AVX2, with caches that hold few steps,
// columns and rows, so that a call has many blocks.
static const qn__pass_options_t cpus[] = {
    {.vector_bytes = 16, .has_blocks = true, .l1_bytes = 1024, .l2_bytes = 4096},
    {.vector_bytes = 32,
     .has_blocks = true,
     .l1_bytes = 4096,
     .l2_bytes = 8192,
     .has_masked_memory = true},
    {.vector_bytes = 64,
     .has_blocks = true,
     .l1_bytes = 2048,
     .l2_bytes = 16384,
     .has_masked_memory = true},
    {.vector_bytes = 32,
     .has_blocks = true,
     .l1_bytes = 4096,
     .l2_bytes = 8192,
     .has_masked_words = true},
};

// Maps a module to a CPU. The caller owns the body.
static void map(const qn_test_program_t* program, const qn_module_t* module,
                const qn__pass_options_t* options, qn__ir_body_t* body) {
  assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), body)));
  qn_status_t status = qn__passes_run_cpu(body, options);
  if (qn_ok(status)) status = qn__body_verify_status(body, "the mapping");
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
  qn__function_number(body->first);
}

static bool is_sums_of_a_task(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "acc") == 0;
}

static bool is_sums_of_lanes(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "joined") == 0;
}

static void run_program(void** state) {
  const qn_test_program_t* program = *state;
  static const qn_test_shape_t shapes[] = {
      {0, 5, 4},    {5, 0, 4},    {5, 9, 0},   {1, 1, 1},   {3, 40, 9},  {4, 8, 4},  {37, 41, 13},
      {12, 16, 16}, {17, 16, 33}, {50, 19, 8}, {7, 70, 21}, {33, 2, 35}, {2, 31, 7}, {6, 33, 5}};
  qn_module_t* module = qn_test_parse(program);
  for (size_t t = 0; t < QN_COUNT_OF(cpus); ++t) {
    qn__ir_body_t body;
    map(program, module, &cpus[t], &body);
    if (!qn_test_any(&body.first->body, is_sums_of_a_task)) {
      qn_test_show(&body);
      fail_msg("%s, cpu %zu: no blocks", program->name, t);
    }
    // Sums of lanes have another order.
    double tolerance = qn_test_any(&body.first->body, is_sums_of_lanes) ? 1e-6 : 0;
    // The interpreter is slow under a sanitizer.
    for (size_t s = t; s < QN_COUNT_OF(shapes); s += IS_SANITIZED ? 6 : 3) {
      qn_test_compare(program, module, &body, shapes[s], tolerance);
    }
    qn__body_deinit(&body);
  }
  qn_module_release(module);
}

static bool is_sums_of_few_rows(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "sums") == 0;
}

// Few rows read columns where they are if those are contiguous and fill vectors, or if both
// operands are contiguous along the reduction, which fills a vector.
static void few_rows_are_not_packed(void** state) {
  (void)state;
#define PRODUCT(m, n, b, at) SUM(m, n, "k", b, at)
#define SUM(m, n, k, b, at)                                          \
  "func f(a: f32[" m ", " k "], b: f32[" b "], out c: f32[" m ", " n \
  "]) {\n"                                                           \
  "  parallel i in 0.." m " { parallel j in 0.." n                   \
  " {\n"                                                             \
  "    c[i, j] = sum p in 0.." k " { a[i, p] * b[" at "] }; } } }"
  static const struct {
    qn_test_program_t program;
    bool has_rows, has_along, has_blocks;
  } cases[] = {
      {{"three", PRODUCT("3", "33", "k, 33", "p, j")}, true, false, false},
      {{"one", PRODUCT("1", "n", "k, n", "p, j")}, true, false, false},
      {{"sixteen", PRODUCT("16", "n", "k, n", "p, j")}, true, false, true},
      {{"seventeen", PRODUCT("17", "n", "k, n", "p, j")}, false, false, true},
      {{"unknown", PRODUCT("m", "n", "k, n", "p, j")}, true, false, true},
      {{"narrow", PRODUCT("m", "10", "k, 10", "p, j")}, false, false, true},
      {{"transposed", PRODUCT("m", "n", "n, k", "j, p")}, false, true, true},
      {{"two, transposed", PRODUCT("2", "n", "n, k", "j, p")}, false, true, false},
      {{"few, of known length", SUM("9", "33", "21", "33, 21", "j, p")}, false, true, false},
      {{"few or no columns", SUM("9", "n", "21", "n, 21", "j, p")}, false, true, true},
      {{"few columns", SUM("9", "3", "21", "3, 21", "j, p")}, false, false, false},
      {{"no column left", SUM("9", "16", "32", "16, 32", "j, p")}, false, true, false},
      {{"two rows left", SUM("5", "17", "33", "17, 33", "j, p")}, false, true, false},
      {{"many, transposed", PRODUCT("33", "n", "n, k", "j, p")}, false, false, true},
      {{"more, transposed", PRODUCT("65", "n", "n, k", "j, p")}, false, false, true},
      {{"many short ones", SUM("33", "n", "255", "n, 255", "j, p")}, false, false, true},
      {{"many long ones", SUM("33", "33", "256", "33, 256", "j, p")}, false, false, true},
      {{"short", SUM("5", "n", "7", "n, 7", "j, p")}, false, false, false},
      {{"strided", PRODUCT("5", "n", "n, 2 * k", "j, 2 * p")}, false, false, true},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = qn_test_parse(&cases[i].program);
    qn__ir_body_t body;
    map(&cases[i].program, module, &cpus[1], &body);
    bool has_rows = qn_test_any(&body.first->body, is_sums_of_few_rows);
    bool has_blocks = qn_test_any(&body.first->body, is_sums_of_a_task);
    bool has_along = qn_test_any(&body.first->body, is_sums_of_lanes);
    if (has_rows != cases[i].has_rows || has_blocks != cases[i].has_blocks ||
        has_along != cases[i].has_along) {
      fail_msg("%s: rows %d, along %d, blocks %d", cases[i].program.name, has_rows, has_along,
               has_blocks);
    }
    double tolerance = has_along ? 1e-5 : 0;
    qn_test_compare(&cases[i].program, module, &body, (qn_test_shape_t){5, 37, 9}, tolerance);
    qn_test_compare(&cases[i].program, module, &body, (qn_test_shape_t){8, 5, 32}, tolerance);
    qn__body_deinit(&body);
    qn_module_release(module);
  }
#undef SUM
#undef PRODUCT
}

static bool is_results_of_a_tile(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "results") == 0;
}

// Where memory can be masked, operands that a cache holds are read where they are.
static void small_products_are_not_packed(void** state) {
  (void)state;
#define PRODUCT(m, n, k, type, a, b)                                                             \
  "func f(a: " type "[" m ", " k "], b: f32[" k ", " n "], out c: f32[" m ", " n                 \
  "]) {\n  parallel i in 0.." m " { parallel j in 0.." n " {\n c[i, j] = sum p in 0.." k " { " a \
  " * " b " }; } } }"
#define ADDED(n)                                              \
  "func f(a: f32[m, k], b: f32[k, " n "], inout c: f32[m, " n \
  "]) {\n  parallel i in 0..m { parallel j in 0.." n          \
  " {\n c[i, j] = c[i, j] + sum p in 0..k { a[i, p] * b[p, j] }; } } }"
  static const struct {
    qn_test_program_t program;
    bool is_masked, has_small, has_blocks;
  } cases[] = {
      {{"added", ADDED("n")}, true, true, true},
      {{"added to three columns", ADDED("3")}, true, true, false},
      {{"unknown", PRODUCT("m", "n", "k", "f32", "a[i, p]", "b[p, j]")}, true, true, true},
      {{"no masks", PRODUCT("m", "n", "k", "f32", "a[i, p]", "b[p, j]")}, false, false, true},
      {{"small", PRODUCT("17", "17", "17", "f32", "a[i, p]", "b[p, j]")}, true, true, false},
      {{"narrow", PRODUCT("m", "3", "20", "f32", "a[i, p]", "b[p, j]")}, true, true, false},
      {{"few steps", PRODUCT("m", "n", "2", "f32", "a[i, p]", "b[p, j]")}, true, true, false},
      {{"large", PRODUCT("200", "600", "600", "f32", "a[i, p]", "b[p, j]")}, true, false, true},
      {{"tiny", PRODUCT("3", "4", "5", "f32", "a[i, p]", "b[p, j]")}, true, false, false},
      {{"converted", PRODUCT("m", "n", "k", "f16", "f32(a[i, p])", "b[p, j]")}, true, false, true},
      {{"from the last column on", PRODUCT("m", "n", "k", "f32", "a[i, p]", "b[p, n - 1 - j]")},
       true,
       false,
       true},
  };
  // AVX-512 with one and two multiplications a cycle, and AVX2, whose tiles overlap.
  static const qn__pass_options_t targets[] = {
      {.vector_bytes = 64, .has_blocks = true, .has_masked_memory = true},
      {.vector_bytes = 64, .has_blocks = true, .has_masked_memory = true, .wide_multiplies = 2},
      {.vector_bytes = 32, .has_blocks = true, .has_masked_words = true},
  };
  for (size_t x = 0; x < QN_COUNT_OF(cases) * QN_COUNT_OF(targets); ++x) {
    size_t i = x / QN_COUNT_OF(targets);
    qn__pass_options_t options = targets[x % QN_COUNT_OF(targets)];
    if (!cases[i].is_masked) options.has_masked_memory = options.has_masked_words = false;
    qn_module_t* module = qn_test_parse(&cases[i].program);
    qn__ir_body_t body;
    map(&cases[i].program, module, &options, &body);
    bool has_small = qn_test_any(&body.first->body, is_results_of_a_tile);
    bool has_blocks = qn_test_any(&body.first->body, is_sums_of_a_task);
    if (has_small != cases[i].has_small || has_blocks != cases[i].has_blocks) {
      fail_msg("%s: target %zu, small %d, blocks %d", cases[i].program.name,
               x % QN_COUNT_OF(targets), has_small, has_blocks);
    }
    static const qn_test_shape_t shapes[] = {
        {0, 5, 4},  {5, 0, 4},   {5, 9, 0},   {1, 1, 1},   {8, 8, 1},  {17, 1, 17},
        {15, 3, 9}, {33, 16, 3}, {7, 17, 5},  {40, 49, 2}, {13, 7, 6}, {11, 24, 3},
        {2, 13, 5}, {1, 130, 9}, {51, 70, 3}, {49, 23, 4}, {1, 67, 2}, {5, 31, 8}};
    for (size_t s = 0; has_small && s < QN_COUNT_OF(shapes); ++s) {
      qn_test_compare(&cases[i].program, module, &body, shapes[s], 0);
    }
    qn__body_deinit(&body);
    qn_module_release(module);
  }
#undef ADDED
#undef PRODUCT
}

static bool is_packed_columns(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "columns") == 0;
}

// Few columns and many steps have vectors along the reduction.
static void few_columns_are_reductions(void** state) {
  (void)state;
#define PRODUCT(n, k, a, at)                                                                    \
  "func f(a: f32[" a "], b: f16[" k ", " n "], out c: f32[m, " n                                \
  "]) {\n  parallel i in 0..m { parallel j in 0.." n " {\n c[i, j] = sum p in 0.." k " { a[" at \
  "] * f32(b[p, j]) }; } } }"
  static const struct {
    qn_test_program_t program;
    bool has_columns;
  } cases[] = {
      {{"unknown", PRODUCT("n", "k", "m, k", "i, p")}, true},
      {{"two", PRODUCT("2", "70", "m, 70", "i, p")}, true},
      {{"five", PRODUCT("5", "k", "m, k", "i, p")}, false},
      {{"few steps", PRODUCT("n", "20", "m, 20", "i, p")}, false},
      {{"transposed", PRODUCT("n", "k", "k, m", "p, i")}, false},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = qn_test_parse(&cases[i].program);
    qn__ir_body_t body;
    map(&cases[i].program, module, &cpus[1], &body);
    if (qn_test_any(&body.first->body, is_packed_columns) != cases[i].has_columns) {
      fail_msg("%s", cases[i].program.name);
    }
    static const qn_test_shape_t shapes[] = {
        {3, 1, 32}, {9, 1, 67}, {5, 2, 64}, {2, 4, 130}, {0, 1, 40}};
    for (size_t s = 0; s < QN_COUNT_OF(shapes); ++s) {
      qn_test_compare(&cases[i].program, module, &body, shapes[s], 1e-5);
    }
    qn__body_deinit(&body);
    qn_module_release(module);
  }
#undef PRODUCT
}

static bool is_fetch_ahead(const qn__ir_stmt_t* stmt) {
  if (stmt->kind != QN__STMT_LET) return false;
  const qn__ir_expr_t* value = stmt->let.value;
  if (value->kind == QN__EXPR_CAST) value = value->args[0];
  return value->kind == QN__EXPR_LOAD && value->load.ahead > 0;
}

// Few rows along the reduction fetch the columns of the next task, if they are neighbours.
static void columns_are_fetched_ahead(void** state) {
  (void)state;
#define ALONG(dtype, shape, b)                    \
  "func f(a: f32[m, k], b: " dtype "[" shape      \
  "], out c: f32[m, n]) {\n"                      \
  "  parallel i in 0..m { parallel j in 0..n {\n" \
  "    c[i, j] = sum p in 0..k { a[i, p] * " b " }; } } }"
  static const struct {
    qn_test_program_t program;
    bool is_fetched;
  } cases[] = {
      {{"neighbours", ALONG("f32", "n, k", "b[j, p]")}, true},
      {{"converted", ALONG("f16", "n, k", "f32(b[j, p])")}, true},
      {{"every other column", ALONG("f32", "2 * n, k", "b[2 * j, p]")}, false},
      {{"packed", ALONG("f32", "n, 2 * k", "b[j, 2 * p]")}, false},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = qn_test_parse(&cases[i].program);
    qn__ir_body_t body;
    map(&cases[i].program, module, &cpus[1], &body);
    if (qn_test_any(&body.first->body, is_fetch_ahead) != cases[i].is_fetched) {
      fail_msg("%s: fetched %d", cases[i].program.name, !cases[i].is_fetched);
    }
    qn__body_deinit(&body);
    qn_module_release(module);
  }
#undef ALONG
}

static bool is_packed_rows(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "packed_rows") == 0;
}

// Rows are packed only where they are not contiguous, or are values computed from what is loaded.
static void rows_are_read_where_they_are(void** state) {
  (void)state;
#define PRODUCT(row, a)                                                             \
  "func f(" row                                                                     \
  ", b: f32[n, k], out c: f32[m, n]) {\n  parallel i in 0..m { parallel j in 0..n " \
  "{\n    c[i, j] = sum p in 0..k { " a " * b[j, p] }; } } }"
  static const struct {
    qn_test_program_t program;
    bool is_packed;
  } cases[] = {
      {{"plain", PRODUCT("a: f32[m, k]", "a[i, p]")}, false},
      {{"the last row first", PRODUCT("a: f32[m, k]", "a[m - 1 - i, p]")}, false},
      {{"transposed", PRODUCT("a: f32[k, m]", "a[p, i]")}, true},
      {{"with a scale", PRODUCT("a: f32[m, k], s: f32[k]", "(a[i, p] * s[p])")}, true},
      {{"converted", PRODUCT("a: f16[m, k]", "f32(a[i, p])")}, true},
      {{"padded", PRODUCT("a: f32[m, k]", "(p > i ? a[i, p] : 0.0)")}, true},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = qn_test_parse(&cases[i].program);
    for (size_t t = 0; t < QN_COUNT_OF(cpus); ++t) {
      qn__ir_body_t body;
      map(&cases[i].program, module, &cpus[t], &body);
      assert_true(qn_test_any(&body.first->body, is_sums_of_a_task));
      if (qn_test_any(&body.first->body, is_packed_rows) != cases[i].is_packed) {
        fail_msg("%s, cpu %zu: packed %d", cases[i].program.name, t, !cases[i].is_packed);
      }
      qn_test_compare(&cases[i].program, module, &body, (qn_test_shape_t){70, 37, 9}, 0);
      qn__body_deinit(&body);
    }
    qn_module_release(module);
  }
#undef PRODUCT
}

static bool is_prepared(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_TENSOR && stmt->tensor->kind == QN__TENSOR_PRODUCT;
}

// A product of matrices calls the generator's own kernels. The program may do anything with the
// sums.
static void matrices_have_prepared_kernels(void** state) {
  (void)state;
#define MATRICES(a, b, c, store)               \
  "func f(a: " a ", b: " b ", inout c: " c     \
  ") {\n  parallel i in 0..m { parallel j in " \
  "0..n { " store " } } }"
#define ACROSS(store) MATRICES("f32[m, k]", "f32[k, n]", "f32[m, n]", store)
  static const struct {
    qn_test_program_t program;
    bool is_prepared, has_sums;
  } cases[] = {
      {{"plain", ACROSS("c[i, j] = sum p in 0..k { a[i, p] * b[p, j] };")}, true, false},
      {{"swapped", ACROSS("c[i, j] = sum p in 0..k { b[p, j] * a[i, p] };")}, true, false},
      {{"added", ACROSS("c[i, j] = c[i, j] + sum p in 0..k { a[i, p] * b[p, j] };")}, true, true},
      {{"later steps", ACROSS("c[i, j] = sum p in 1..k { a[i, p] * b[p, j] };")}, true, false},
      {{"along", MATRICES("f32[m, k]", "f32[n, k]", "f32[m, n]",
                          "c[i, j] = max(sum p in 0..k { a[i, p] * b[j, p] }, 0.0);")},
       true,
       true},
      {{"strided", MATRICES("f32[m, k] strides [k + 3, 1]", "f32[k, n]", "f32[m, n]",
                            "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] };")},
       true,
       false},
      {{"across the result", MATRICES("f32[m, k]", "f32[k, n]", "f32[n, m]",
                                      "c[j, i] = sum p in 0..k { a[i, p] * b[p, j] };")},
       false,
       false},
      {{"the last row first", ACROSS("c[i, j] = sum p in 0..k { a[m - 1 - i, p] * b[p, j] };")},
       false,
       false},
      {{"three factors", ACROSS("c[i, j] = sum p in 0..k { a[i, p] * b[p, j] * 2.0 };")},
       false,
       false},
      {{"known steps", MATRICES("f32[m, 9]", "f32[9, n]", "f32[m, n]",
                                "c[i, j] = sum p in 0..9 { a[i, p] * b[p, j] };")},
       true,
       false},
  };
  // AVX2 and AVX-512 with all kernels, and without one.
  static const qn__pass_options_t targets[] = {
      {.vector_bytes = 32, .has_blocks = true, .has_masked_words = true, .prepared = ~0U},
      {.vector_bytes = 64, .has_blocks = true, .has_masked_memory = true, .prepared = ~0U},
      {.vector_bytes = 32,
       .has_blocks = true,
       .has_masked_words = true,
       .prepared = ~0U & ~(1U << QN__FORM_LOOPS) & ~(1U << (QN__FORM_LOOPS + qn__product_forms))},
  };
  for (size_t x = 0; x < QN_COUNT_OF(cases) * QN_COUNT_OF(targets); ++x) {
    size_t i = x / QN_COUNT_OF(targets), t = x % QN_COUNT_OF(targets);
    qn_module_t* module = qn_test_parse(&cases[i].program);
    qn__ir_body_t body;
    map(&cases[i].program, module, &targets[t], &body);
    bool has_product = qn_test_any(&body.first->body, is_prepared);
    bool has_sums = qn_test_any(&body.first->body, is_sums_of_few_rows);
    if (has_product != (cases[i].is_prepared && t < 2) ||
        (has_product && has_sums != cases[i].has_sums)) {
      fail_msg("%s, target %zu: prepared %d, sums %d", cases[i].program.name, t, has_product,
               has_sums);
    }
    static const qn_test_shape_t shapes[] = {{0, 5, 4},   {5, 0, 4},   {5, 9, 1},
                                             {1, 1, 1},   {3, 40, 9},  {200, 66, 3},
                                             {49, 70, 2}, {2, 3, 130}, {7, 17, 5}};
    for (size_t s = 0; has_product && s < QN_COUNT_OF(shapes); ++s) {
      qn_test_compare(&cases[i].program, module, &body, shapes[s], 1e-6);
    }
    qn__body_deinit(&body);
    qn_module_release(module);
  }
#undef ACROSS
#undef MATRICES
}

static bool try_without_memory(qn_allocator_t allocator, void* user) {
  const qn_test_program_t* program = user;
  qn_module_t* module = qn_test_parse(program);
  qn__ir_body_t body;
  qn_status_t status = qn__body_clone(&module->body, allocator, &body);
  if (qn_ok(status)) {
    status = qn__passes_run_cpu(&body, &cpus[0]);
    qn__body_deinit(&body);
  }
  qn_module_release(module);
  bool is_fine = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  return is_fine;
}

static void memory_runs_out(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(try_without_memory, (void*)(uintptr_t)&qn_test_products[0]) > 0);
}

int main(void) {
  struct CMUnitTest tests[64] = {
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(few_rows_are_not_packed),
      cmocka_unit_test(small_products_are_not_packed),
      cmocka_unit_test(few_columns_are_reductions),
      cmocka_unit_test(columns_are_fetched_ahead),
      cmocka_unit_test(rows_are_read_where_they_are),
      cmocka_unit_test(matrices_have_prepared_kernels),
  };
  size_t count = 7;
  qn_test_add_programs(tests, QN_COUNT_OF(tests), &count, qn_test_products, qn_test_product_count,
                       run_program);
  return _cmocka_run_group_tests("blocks", tests, count, NULL, NULL);
}
