// tests/unit/ir/test_pass_tile.c: tests that products written as sums become tiles with the same
// results, and that other code does not.
//
// Each program runs as written and mapped, in the interpreter, with extents around those of a tile.
// Sums keep their order, so all results agree bit for bit.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_gpu.h"
#include "support_pass.h"
#include "tests/support/fault.h"
#include "tests/support/sanitized.h"

enum { MAX_PARAMS = 8, BUFFER_BYTES = 1 << 17, MAX_SYMBOLS = 8 };

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

typedef struct program {
  const char* name;
  const char* text;
} program_t;

// Compares the text after the passes of the mapping alone, without those that simplify.
static void expect_mapping(const qn__pass_options_t* options, const char* text,
                           const char* expected) {
  static const qn__pass_t* const mapping[] = {
      &qn__pass_independent, &qn__pass_partition, &qn__pass_tile,        &qn__pass_distribute,
      &qn__pass_share,       &qn__pass_reuse,     &qn__pass_cooperative, &qn__pass_barriers,
  };
  qn_test_expect_all(mapping, QN_COUNT_OF(mapping), options, text, expected);
}

// ---- calls

static void fill(const qn__ir_buffer_t* buffer, size_t seed, uint8_t* data) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    size_t at = i * 7 + i / 61 + seed * 5;
    qn__ir_scalar_t value = {.i = (int64_t)(at % 11) -
                                  (qn__dtype_class(buffer->dtype) == QN__CLASS_SIGNED)};
    if (qn__dtype_is_float(buffer->dtype)) value.f = (double)(at % 29) * 0.21 - 3.0;
    if (qn__dtype_is_float(buffer->dtype)) value.f = qn__round_float(buffer->dtype, value.f);
    if (buffer->dtype == QN_DTYPE_BOOL) value.i = at % 3 == 0;
    uint64_t bits = qn__scalar_to_bits(buffer->dtype, value);
    memcpy(data + i * size, &bits, size);
  }
}

static void interpret(const program_t* program, const qn__ir_func_t* function,
                      const int64_t* symbols, uint8_t** memory) {
  uint64_t words[MAX_PARAMS];
  assert_true(function->param_count <= MAX_PARAMS);
  for (size_t i = 0; i < function->param_count; ++i) {
    assert_non_null(function->params[i].buffer);
    memory[i] = malloc(BUFFER_BYTES);
    assert_non_null(memory[i]);
    fill(function->params[i].buffer, i, memory[i]);
    words[i] = (uint64_t)(uintptr_t)memory[i];
  }
  qn__interpret_args_t call = {.params = words, .symbols = symbols, .warp_size = 32};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
}

static double value_at(const qn__ir_buffer_t* buffer, const uint8_t* data, size_t i) {
  uint64_t bits = 0;
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  memcpy(&bits, data + i * size, size);
  return qn__scalar_from_bits(buffer->dtype, bits).f;
}

// `tolerance` 0: bit for bit; else of the largest value.
static bool same(const qn__ir_buffer_t* buffer, const uint8_t* a, const uint8_t* b,
                 double tolerance, size_t* out_index) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  bool is_float = qn__dtype_is_float(buffer->dtype);
  double largest = 1;
  for (size_t i = 0; is_float && i < BUFFER_BYTES / size; ++i) {
    largest = fmax(largest, fabs(value_at(buffer, a, i)));
  }
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    *out_index = i;
    if (memcmp(a + i * size, b + i * size, size) == 0) continue;
    if (tolerance == 0 || !is_float) return false;
    double error = fabs(value_at(buffer, a, i) - value_at(buffer, b, i));
    if (!(error <= tolerance * largest)) return false;
  }
  return true;
}

typedef struct shape {
  int64_t m, n, k;
} shape_t;

static void compare(const program_t* program, const qn_module_t* module,
                    const qn__ir_body_t* mapped, shape_t shape, double tolerance) {
  const qn__ir_func_t* function = module->functions[0];
  int64_t symbols[MAX_SYMBOLS] = {0};
  assert_true(function->symbol_count <= MAX_SYMBOLS);
  for (size_t i = 0; i < function->symbol_count; ++i) {
    char name = function->symbols[i]->name[0];
    symbols[i] = name == 'm' ? shape.m : name == 'n' ? shape.n : name == 'k' ? shape.k : 2;
  }
  uint8_t* want[MAX_PARAMS];
  uint8_t* have[MAX_PARAMS];
  interpret(program, function, symbols, want);
  interpret(program, mapped->first, symbols, have);
  for (size_t i = 0; i < function->param_count; ++i) {
    size_t index;
    if (!same(function->params[i].buffer, want[i], have[i], tolerance, &index)) {
      qn_test_show(mapped);
      fail_msg("%s, %lld x %lld x %lld: '%s' differs at %zu", program->name, (long long)shape.m,
               (long long)shape.n, (long long)shape.k, function->params[i].buffer->name, index);
    }
    free(want[i]);
    free(have[i]);
  }
}

// ---- mapping

static bool is_shared(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_SHARED;
}

static bool any(qn__ir_block_t* block, bool (*is_it)(const qn__ir_stmt_t*)) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (is_it(stmt)) return true;
    if (stmt->kind == QN__STMT_LOOP && any(&stmt->loop.body, is_it)) return true;
    if (stmt->kind != QN__STMT_IF) continue;
    if (any(&stmt->if_.then_block, is_it) || any(&stmt->if_.else_block, is_it)) return true;
  }
  return false;
}

static qn_module_t* parse(const program_t* program) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(program->text, strlen(program->text), NULL, &module);
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
  return module;
}

static void map(const program_t* program, const qn_module_t* module,
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

static void run_target(const program_t* program, const qn_module_t* module, size_t target,
                       const qn__pass_options_t* options, double tolerance, size_t every) {
  int64_t e = tile_extents[target];
  const shape_t shapes[] = {
      {0, 5, 4},          {5, 0, 4},          {5, 4, 0},    {1, 1, 1},          {e, e, 16},
      {e + 1, e - 1, 17}, {e - 1, e + 1, 15}, {37, 41, 13}, {2 * e - 1, 3, 33}, {3, e + 3, 31},
      {16, 17, 66},       {17, 16, 65},       {1, 33, 64},  {33, 1, 67},        {16, 16, 7},
  };
  qn__ir_body_t body;
  map(program, module, options, &body);
  if (!any(&body.first->body, is_shared)) {
    qn_test_show(&body);
    fail_msg("%s, target %zu: no tile", program->name, target);
  }
  if (IS_SANITIZED) every *= 3;  // the interpreter is slow there
  for (size_t s = 0; s < QN_COUNT_OF(shapes); s += every) {
    compare(program, module, &body, shapes[s], tolerance);
  }
  qn__body_deinit(&body);
}

// ---- blocks of a CPU

// SSE, AVX2 and AVX-512, with caches that hold few steps, columns and rows, so that a call has many
// blocks.
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
};

static bool is_sums_of_a_task(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "acc") == 0;
}

static bool is_sums_of_lanes(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && strcmp(stmt->alloc.buffer->name, "joined") == 0;
}

static void run_cpu(void** state) {
  const program_t* program = *state;
  static const shape_t shapes[] = {
      {0, 5, 4},    {5, 0, 4},    {5, 9, 0},   {1, 1, 1},   {3, 40, 9},  {4, 8, 4},  {37, 41, 13},
      {12, 16, 16}, {17, 16, 33}, {50, 19, 8}, {7, 70, 21}, {33, 2, 35}, {2, 31, 7}, {6, 33, 5}};
  qn_module_t* module = parse(program);
  for (size_t t = 0; t < QN_COUNT_OF(cpus); ++t) {
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
    qn_status_t status = qn__passes_run_cpu(&body, &cpus[t]);
    if (qn_ok(status)) status = qn__body_verify_status(&body, "the blocks");
    if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
    qn__function_number(body.first);
    if (!any(&body.first->body, is_sums_of_a_task)) {
      qn_test_show(&body);
      fail_msg("%s, cpu %zu: no blocks", program->name, t);
    }
    // Sums of lanes have another order.
    double tolerance = any(&body.first->body, is_sums_of_lanes) ? 1e-6 : 0;
    // The interpreter is slow under a sanitizer.
    for (size_t s = t; s < QN_COUNT_OF(shapes); s += IS_SANITIZED ? 6 : 3) {
      compare(program, module, &body, shapes[s], tolerance);
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
    program_t program;
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
      {{"many, transposed", PRODUCT("33", "n", "n, k", "j, p")}, false, true, true},
      {{"more, transposed", PRODUCT("65", "n", "n, k", "j, p")}, false, false, true},
      {{"many short ones", SUM("33", "n", "255", "n, 255", "j, p")}, false, false, true},
      {{"many long ones", SUM("33", "33", "256", "33, 256", "j, p")}, false, true, false},
      {{"short", SUM("5", "n", "7", "n, 7", "j, p")}, false, false, false},
      {{"strided", PRODUCT("5", "n", "n, 2 * k", "j, 2 * p")}, false, false, true},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = parse(&cases[i].program);
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
    assert_true(qn_ok(qn__passes_run_cpu(&body, &cpus[1])));
    qn__function_number(body.first);
    bool has_rows = any(&body.first->body, is_sums_of_few_rows);
    bool has_blocks = any(&body.first->body, is_sums_of_a_task);
    bool has_along = any(&body.first->body, is_sums_of_lanes);
    if (has_rows != cases[i].has_rows || has_blocks != cases[i].has_blocks ||
        has_along != cases[i].has_along) {
      fail_msg("%s: rows %d, along %d, blocks %d", cases[i].program.name, has_rows, has_along,
               has_blocks);
    }
    double tolerance = has_along ? 1e-5 : 0;
    compare(&cases[i].program, module, &body, (shape_t){5, 37, 9}, tolerance);
    compare(&cases[i].program, module, &body, (shape_t){8, 5, 32}, tolerance);
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
  static const struct {
    program_t program;
    bool is_masked, has_small, has_blocks;
  } cases[] = {
      {{"unknown", PRODUCT("m", "n", "k", "f32", "a[i, p]", "b[p, j]")}, true, true, true},
      {{"no masks", PRODUCT("m", "n", "k", "f32", "a[i, p]", "b[p, j]")}, false, false, true},
      {{"small", PRODUCT("17", "17", "17", "f32", "a[i, p]", "b[p, j]")}, true, true, false},
      {{"narrow", PRODUCT("m", "3", "20", "f32", "a[i, p]", "b[p, j]")}, true, true, false},
      {{"few steps", PRODUCT("m", "n", "2", "f32", "a[i, p]", "b[p, j]")}, true, true, false},
      {{"large", PRODUCT("m", "600", "600", "f32", "a[i, p]", "b[p, j]")}, true, false, true},
      {{"tiny", PRODUCT("3", "4", "5", "f32", "a[i, p]", "b[p, j]")}, true, false, false},
      {{"converted", PRODUCT("m", "n", "k", "f16", "f32(a[i, p])", "b[p, j]")}, true, false, true},
      {{"from the last column on", PRODUCT("m", "n", "k", "f32", "a[i, p]", "b[p, n - 1 - j]")},
       true,
       false,
       true},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn__pass_options_t options = {.vector_bytes = 64, .has_blocks = true};
    options.has_masked_memory = cases[i].is_masked;
    qn_module_t* module = parse(&cases[i].program);
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
    assert_true(qn_ok(qn__passes_run_cpu(&body, &options)));
    qn__function_number(body.first);
    bool has_small = any(&body.first->body, is_results_of_a_tile);
    bool has_blocks = any(&body.first->body, is_sums_of_a_task);
    if (has_small != cases[i].has_small || has_blocks != cases[i].has_blocks) {
      fail_msg("%s: small %d, blocks %d", cases[i].program.name, has_small, has_blocks);
    }
    static const shape_t shapes[] = {{0, 5, 4},   {5, 0, 4},  {5, 9, 0},   {1, 1, 1},  {8, 8, 1},
                                     {17, 1, 17}, {15, 3, 9}, {33, 16, 3}, {7, 17, 5}, {40, 49, 2}};
    for (size_t s = 0; has_small && s < QN_COUNT_OF(shapes); ++s) {
      compare(&cases[i].program, module, &body, shapes[s], 0);
    }
    qn__body_deinit(&body);
    qn_module_release(module);
  }
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
    program_t program;
    bool has_columns;
  } cases[] = {
      {{"unknown", PRODUCT("n", "k", "m, k", "i, p")}, true},
      {{"two", PRODUCT("2", "70", "m, 70", "i, p")}, true},
      {{"five", PRODUCT("5", "k", "m, k", "i, p")}, false},
      {{"few steps", PRODUCT("n", "20", "m, 20", "i, p")}, false},
      {{"transposed", PRODUCT("n", "k", "k, m", "p, i")}, false},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = parse(&cases[i].program);
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
    assert_true(qn_ok(qn__passes_run_cpu(&body, &cpus[1])));
    qn__function_number(body.first);
    if (any(&body.first->body, is_packed_columns) != cases[i].has_columns) {
      fail_msg("%s", cases[i].program.name);
    }
    static const shape_t shapes[] = {{3, 1, 32}, {9, 1, 67}, {5, 2, 64}, {2, 4, 130}, {0, 1, 40}};
    for (size_t s = 0; s < QN_COUNT_OF(shapes); ++s) {
      compare(&cases[i].program, module, &body, shapes[s], 1e-5);
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
    program_t program;
    bool is_fetched;
  } cases[] = {
      {{"neighbours", ALONG("f32", "n, k", "b[j, p]")}, true},
      {{"converted", ALONG("f16", "n, k", "f32(b[j, p])")}, true},
      {{"every other column", ALONG("f32", "2 * n, k", "b[2 * j, p]")}, false},
      {{"packed", ALONG("f32", "n, 2 * k", "b[j, 2 * p]")}, false},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = parse(&cases[i].program);
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
    assert_true(qn_ok(qn__passes_run_cpu(&body, &cpus[1])));
    if (any(&body.first->body, is_fetch_ahead) != cases[i].is_fetched) {
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
    program_t program;
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
    qn_module_t* module = parse(&cases[i].program);
    for (size_t t = 0; t < QN_COUNT_OF(cpus); ++t) {
      qn__ir_body_t body;
      assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
      assert_true(qn_ok(qn__passes_run_cpu(&body, &cpus[t])));
      qn__function_number(body.first);
      assert_true(any(&body.first->body, is_sums_of_a_task));
      if (any(&body.first->body, is_packed_rows) != cases[i].is_packed) {
        fail_msg("%s, cpu %zu: packed %d", cases[i].program.name, t, !cases[i].is_packed);
      }
      compare(&cases[i].program, module, &body, (shape_t){70, 37, 9}, 0);
      qn__body_deinit(&body);
    }
    qn_module_release(module);
  }
#undef PRODUCT
}

static void run_program(void** state) {
  const program_t* program = *state;
  qn_module_t* module = parse(program);
  for (size_t t = 0; t < QN_COUNT_OF(targets); ++t) {
    run_target(program, module, t, &targets[t], 0, t == 0 ? 2 : 1);
  }
  // With fused sums the last bits differ.
  qn__pass_options_t fused = targets[1];
  fused.has_fma = true;
  run_target(program, module, 1, &fused, 1e-5, 5);
  qn_module_release(module);
}

// ---- programs that become tiles

#define NEST "parallel i in 0..m { parallel j in 0..n { "

static const program_t programs[] = {
    {"plain", "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) { " NEST
              "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"second transposed", "func f(a: f32[m, k], b: f32[n, k], out c: f32[m, n]) { " NEST
                          "c[i, j] = sum p in 0..k { a[i, p] * b[j, p] }; } } }"},
    {"first transposed", "func f(a: f32[k, m], b: f32[k, n], out c: f32[m, n]) { " NEST
                         "c[i, j] = sum p in 0..k { a[p, i] * b[p, j] }; } } }"},
    {"both transposed, and the result",
     "func f(a: f32[k, m], b: f32[n, k], out c: f32[n, m]) { " NEST
     "c[j, i] = sum p in 0..k { b[j, p] * a[p, i] }; } } }"},
    {"a batch",
     "func f(a: f32[z, m, k], b: f32[z, k, n], out c: f32[z, m, n]) { parallel u in 0..z { " NEST
     "c[u, i, j] = sum p in 0..k { a[u, i, p] * b[u, p, j] }; } } } }"},
    {"a batch of two loops with one matrix",
     "func f(a: f32[2, z, m, k], b: f32[k, n], out c: f32[z, 2, m, n]) {\n"
     "  parallel v in 0..2 { parallel u in 0..z { " NEST
     "c[u, v, i, j] = sum p in 0..k { a[v, u, i, p] * b[p, j] }; } } } } }"},
    {"a batch with an operand of its own",
     "func f(a: f32[z, m, k], s: f32[z, k], b: f32[z, n, k], out c: f32[z, m, n]) {\n"
     "  parallel u in 0..z { " NEST
     "c[u, i, j] = sum p in 0..k { a[u, i, p] * s[u, p] * b[u, j, p] }; } } } }"},
    {"f16 with sums of f32", "func f(a: f16[m, k], b: f16[k, n], out c: f32[m, n]) { " NEST
                             "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }"},
    {"bf16 with sums of f32, stored as bf16",
     "func f(a: bf16[m, k], b: bf16[n, k], out c: bf16[m, n]) { " NEST
     "c[i, j] = bf16(sum p in 0..k { f32(a[i, p]) * f32(b[j, p]) }); } } }"},
    {"f64", "func f(a: f64[m, k], b: f64[k, n], out c: f64[m, n]) { " NEST
            "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"i32", "func f(a: i32[m, k], b: i32[k, n], out c: i32[m, n]) { " NEST
            "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"i8 with sums of i32", "func f(a: i8[m, k], b: u8[k, n], out c: i32[m, n]) { " NEST
                            "c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[p, j]) }; } } }"},
    {"weights with a scale for eight",
     "func f(a: f32[m, k], q: i8[k, n], s: f16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { a[i, p] * (f32(q[p, j]) * f32(s[p // 8, j])) }; } } }"},
    {"bias and activation",
     "func f(a: f32[m, k], b: f32[k, n], bias: f32[n], out c: f32[m, n]) { " NEST
     "let z = bias[j] + (sum p in 0..k { a[i, p] * b[p, j] });\n"
     "c[i, j] = z * (1.0 / (1.0 + exp(-z))); } } }"},
    {"added to what is there",
     "func f(a: f32[m, k], b: f32[k, n], inout c: f32[m, n]) { " NEST
     "let old = c[i, j]; c[i, j] = old * 0.5 + (sum p in 0..k { a[i, p] * b[p, j] }); } } }"},
    {"two stores, one of them under a condition",
     "func f(a: f32[m, k], b: f32[k, n], inout c: f32[m, n], inout d: i32[m, n]) { " NEST
     "let s = sum p in 0..k { a[i, p] * b[p, j] }; d[i, j] = i32(s);\n"
     "if i <= j { c[i, j] = s; } else { c[i, j] = 0.0; } } } }"},
    {"squared distances",
     "func f(a: f32[m, k], b: f32[n, k], out c: f32[m, n]) { " NEST
     "c[i, j] = sqrt(sum p in 0..k { let d = a[i, p] - b[j, p]; d * d }); } } }"},
    {"shortest ways",
     "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n], out d: f32[m, n]) { " NEST
     "c[i, j] = min p in 0..k { a[i, p] + b[p, j] }; } }\n" NEST
     "d[i, j] = max p in 0..k { a[i, p] + b[p, j] }; } } }"},
    {"products of sums", "func f(a: i32[m, k], b: i32[k, n], out c: i32[m, n]) { " NEST
                         "c[i, j] = prod p in 0..k { a[i, p] + b[p, j] * 2 + 1 }; } } }"},
    {"scales of rows, of columns and of steps",
     "func f(a: f32[m, k], b: f32[k, n], r: f32[m], s: f32[k], out c: f32[m, n]) {\n"
     "  parallel i in 0..m { let scale = r[i] * 0.5; parallel j in 0..n {\n"
     "  c[i, j] = sum p in 0..k { let t = s[p] + 1.0; scale * a[i, p] * b[p, j] * t }; } } }"},
    {"a table under a condition",
     "func f(a: f32[m, k], b: f32[k, n], s: f32[k], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { (a[i, p] * b[p, j]) * (p % 2 == 0 ? s[p] : 1.5) }; } } }"},
    {"a table that is as long as rows are far apart",
     "func f(a: f32[m, k], b: f32[k, n], s: f32[m], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] * (p < i - j ? s[p] : 1.0) }; } } }"},
    {"a place that no iteration has",
     "func f(a: i32[m, k], b: i32[k, n], s: i32[k], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k {\n"
     "  a[i, p] * b[p, j] + (i + j > m + n - 2 && s[p + 1000] > 0 ? 2 : 1) }; } } }"},
    {"divisors that are zero behind the last line",
     "func f(a: i64[m, k], b: i64[k, n], out c: i64[m, n]) { " NEST "c[i, j] = sum p in 0..k {\n"
     "  a[i, p] * b[p, j] + p // (m - i) + p % (n - j) + p // (m + n - 1 - i - j) }; } } }"},
    {"rows of several lengths",
     "func f(a: f32[z, m, k], b: f32[z, k, n], len: i32[z], out c: f32[z, m, n]) {\n"
     "  parallel u in 0..z { let end = min(i64(len[u]), k); " NEST
     "c[u, i, j] = sum p in 1..end { a[u, i, p] * b[u, p, j] }; } } } }"},
    {"rows from a list",
     "func f(a: f32[m, k], idx: i32[m], b: f32[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { a[(i64(idx[i]) + 1) % m, p] * b[p, j] }; } } }"},
    {"places in the summand",
     "func f(a: i32[m, k], b: i32[k, n], out c: i32[m, n]) { parallel i in 0..m {\n"
     "  let r = i * 3 - 1; parallel j in 0..n { let both = r - j;\n"
     "  c[i, j] = sum p in 0..k { a[i, p] * b[p, j] + i32(both * p + r) }; } } }"},
    {"loops that begin elsewhere",
     "func f(a: f32[m, k], b: f32[k, n], inout c: f32[m, n]) { parallel i in 1..m {\n"
     "  parallel j in 2..n - 1 { c[i, j] = sum p in 3..k - 1 { a[i - 1, p] * b[p, j + 1] }; } } }"},
    {"a matrix with itself",
     "func f(a: f32[m, k], out c: f32[m, m]) { parallel i in 0..m { parallel j in 0..m {\n"
     "  c[i, j] = sum p in 0..k { a[i, p] * a[j, p] }; } } }"},
    {"three operands",
     "func f(a: f32[m, k], b: f32[k, n], d: f32[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] + a[i, p] * a[i, p] * d[p, j] }; } } }"},
    {"fast", "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) fast { " NEST
             "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"proven loops",
     "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) { for i in 0..m { for j in 0..n {\n"
     "  c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"one behind the other",
     "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, m]) { alloc t: f32[m, n] in global;\n" NEST
     "t[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } }\n"
     "parallel i in 0..m { parallel j in 0..m {\n"
     "  c[i, j] = sum p in 0..n { t[i, p] * t[j, p] }; } } }"},
    {"a condition of the device around it",
     "func f(a: f32[m, k], b: f32[k, n], x: f32[2], inout c: f32[m, n]) {\n"
     "  if x[0] < x[1] { " NEST "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } } }"},
    {"constant extents",
     "func f(a: f32[150, 24], b: f32[24, 96], out c: f32[150, 96]) {\n"
     "  parallel i in 0..150 { parallel j in 0..96 {\n"
     "  c[i, j] = sum p in 0..24 { a[i, p] * b[p, j] }; } } }"},
    {"exact extents",
     "func f(a: f32[192, 32], b: f32[32, 128], out c: f32[192, 128]) {\n"
     "  parallel i in 0..192 { parallel j in 0..128 {\n"
     "  c[i, j] = sum p in 0..32 { a[i, p] * b[p, j] }; } } }"},
    {"few columns",
     "func f(a: f32[m, k], b: f32[k, 10], out c: f32[m, 10]) {\n"
     "  parallel i in 0..m { parallel j in 0..10 {\n"
     "  c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
    {"few rows",
     "func f(a: f32[9, k], b: f32[k, n], out c: f32[9, n]) {\n"
     "  parallel i in 0..9 { parallel j in 0..n {\n"
     "  c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }"},
};

// Programs that have tiles on a GPU only: a CPU has few columns, or no sums of their type.
static const program_t gpu_programs[] = {
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
  static const program_t program = {
      "large",
      "func f(a: f32[2, 130, 12], b: f32[2, 12, 120], out c: f32[2, 130, 120]) {\n"
      "  parallel u in 0..2 { parallel i in 0..130 { parallel j in 0..120 {\n"
      "  c[u, i, j] = sum p in 0..12 { a[u, i, p] * b[u, p, j] }; } } } }"};
  qn__pass_options_t options = targets[0];
  options.multiprocessors = 1;
  qn_module_t* module = parse(&program);
  qn__ir_body_t body;
  map(&program, module, &options, &body);
  compare(&program, module, &body, (shape_t){0, 0, 0}, 0);
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
  qn_test_expect_all(qn__passes_gpu, QN__GPU_PASS_COUNT, &options, programs[0].text,
                     "block.x block in 0..ceildiv(m, 32) * ceildiv(n, 32) {\n"
                     "alloc rows: f32[16, 36] in shared;\n alloc columns: f32[16, 32] in shared;\n"
                     "thread.x t in 0..64 {\n let tiles_across = ceildiv(n, 32);\n"
                     "let rest = block // tiles_across;\n"
                     "let first_column = block % tiles_across * 32;\n"
                     "let first_row = rest * 32;\n let down = (t >> 3) * 4;\n"
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
      qn__passes_gpu, QN__GPU_PASS_COUNT, &options, programs[0].text,
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
  qn_test_expect_all(qn__passes_gpu, QN__GPU_PASS_COUNT, &options,
                     "func f(a: f32[m, k], b: f32[k, 96], out c: f32[m, 96]) {\n"
                     "  parallel i in 0..m { parallel j in 0..96 {\n"
                     "  c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
                     "if m <= 16 {\n!} else if n <= 16 {\n");
  qn_test_expect_all(qn__passes_gpu, QN__GPU_PASS_COUNT, &options,
                     "func f(a: f32[m, k], out c: f32[m, m]) {\n"
                     "  parallel i in 0..m { parallel j in 0..m {\n"
                     "  c[i, j] = sum p in 0..k { a[i, p] * a[j, p] }; } } }",
                     "if m <= 16 {\n!} else if m <= 16 {\n");
  // Constant extents have the one that fits.
  qn_test_expect_all(qn__passes_gpu, QN__GPU_PASS_COUNT, &options,
                     "func f(a: f32[k, 8], b: f32[k, 512], out c: f32[8, 512]) {\n"
                     "  parallel i in 0..8 { parallel j in 0..512 {\n"
                     "  c[i, j] = sum p in 0..k { a[p, i] * b[p, j] }; } } }",
                     "block.x block in 0..16 {\n alloc rows: f32[64, 8] in shared;\n"
                     "alloc acc: f32[1, 1] in local;\n");
  options = targets[1];
  // Shared memory is what there is of it.
  options.max_shared_bytes = 4096;
  qn_test_expect_all(qn__passes_gpu, QN__GPU_PASS_COUNT, &options, programs[0].text,
                     "alloc rows: f32[8, 36] in shared;\n alloc columns: f32[8, 32] in shared;\n");
  // No test where nothing is left over; a sum with one rounding where the target has that.
  options.has_fma = true;
  qn_test_expect_all(qn__passes_gpu, QN__GPU_PASS_COUNT, &options,
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

static const program_t others[] = {
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
  const program_t* program = *state;
  qn_module_t* module = parse(program);
  qn__pass_options_t options = targets[0];
  qn__ir_body_t body;
  map(program, module, &options, &body);
  bool is_tile = any(&body.first->body, is_shared);
  if (is_tile) qn_test_show(&body);
  assert_false(is_tile);
  compare(program, module, &body, (shape_t){33, 20, 17}, 1e-6);
  qn__body_deinit(&body);
  qn_module_release(module);
}

static void checked_builds_keep_accesses(void** state) {
  (void)state;
  qn_module_t* module = parse(&programs[0]);
  qn__pass_options_t options = targets[0];
  options.is_checked = true;
  qn__ir_body_t body;
  map(&programs[0], module, &options, &body);
  assert_false(any(&body.first->body, is_shared));
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
    qn_module_t* module = parse(&programs[0]);
    qn__ir_body_t body;
    map(&programs[0], module, &options[i], &body);
    assert_false(any(&body.first->body, is_shared));
    qn__body_deinit(&body);
    qn_module_release(module);
  }
}

static bool try_without_memory(qn_allocator_t allocator, void* user) {
  const program_t* program = user;
  char* text = NULL;
  qn_status_t status =
      qn_test_try(program->text, allocator, &targets[0], qn__passes_gpu, QN__GPU_PASS_COUNT, &text);
  bool is_fine = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  free(text);
  return is_fine;
}

static void memory_runs_out(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(try_without_memory, (void*)(uintptr_t)&programs[0]) > 0);
}

static bool try_cpu_without_memory(qn_allocator_t allocator, void* user) {
  const program_t* program = user;
  qn_module_t* module = parse(program);
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

static void memory_runs_out_on_cpus(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(try_cpu_without_memory, (void*)(uintptr_t)&programs[0]) > 0);
}

int main(void) {
  enum {
    FIXED = 12,
    COUNT = FIXED + 2 * QN_COUNT_OF(programs) + QN_COUNT_OF(gpu_programs) + QN_COUNT_OF(others)
  };
  struct CMUnitTest tests[COUNT] = {
      cmocka_unit_test(text_of_a_tile),
      cmocka_unit_test(large_tiles),
      cmocka_unit_test(large_summands),
      cmocka_unit_test(checked_builds_keep_accesses),
      cmocka_unit_test(small_targets_have_none),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(memory_runs_out_on_cpus),
      cmocka_unit_test(few_rows_are_not_packed),
      cmocka_unit_test(small_products_are_not_packed),
      cmocka_unit_test(few_columns_are_reductions),
      cmocka_unit_test(columns_are_fetched_ahead),
      cmocka_unit_test(rows_are_read_where_they_are),
  };
  size_t count = FIXED;
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    tests[count++] = (struct CMUnitTest){.name = programs[i].name,
                                         .test_func = run_program,
                                         .initial_state = (void*)(uintptr_t)&programs[i]};
    tests[count++] = (struct CMUnitTest){.name = programs[i].name,
                                         .test_func = run_cpu,
                                         .initial_state = (void*)(uintptr_t)&programs[i]};
  }
  for (size_t i = 0; i < QN_COUNT_OF(gpu_programs); ++i) {
    tests[count++] = (struct CMUnitTest){.name = gpu_programs[i].name,
                                         .test_func = run_program,
                                         .initial_state = (void*)(uintptr_t)&gpu_programs[i]};
  }
  for (size_t i = 0; i < QN_COUNT_OF(others); ++i) {
    tests[count++] = (struct CMUnitTest){.name = others[i].name,
                                         .test_func = run_other,
                                         .initial_state = (void*)(uintptr_t)&others[i]};
  }
  return _cmocka_run_group_tests("tiles", tests, count, NULL, NULL);
}
