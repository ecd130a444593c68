// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_tensor.c: tests that products of small numbers become tiles for matrix
// units with the same results, and that other products do not.
//
// Each program runs as written and mapped, in the interpreter, which adds up sums in order: all
// results agree bit for bit. Kernels run in the suite (conformance/products.c), on the fake driver
// too.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/passes/rewrite.h"
#include "ir/tensor.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_gpu.h"
#include "support_pass.h"
#include "tests/support/sanitized.h"

typedef struct program {
  const char* name;
  const char* text;
  bool has_copies;
} program_t;

#define NEST "parallel i in 0..m { parallel j in 0..n { "

static const program_t programs[] = {
    {"f16",
     "func f(a: f16[m, k], b: f16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     true},
    {"bf16, both along the steps, stored as bf16",
     "func f(a: bf16[m, k], b: bf16[n, k], out c: bf16[m, n]) { " NEST
     "c[i, j] = bf16(sum p in 0..k { f32(b[j, p]) * f32(a[i, p]) }); } } }",
     true},
    {"first transposed",
     "func f(a: f16[k, m], b: f16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[p, i]) * f32(b[p, j]) }; } } }",
     true},
    {"i8",
     "func f(a: i8[m, k], b: i8[n, k], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[j, p]) }; } } }",
     true},
    {"u8 and i8, across",
     "func f(a: u8[m, k], b: i8[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[p, j]) }; } } }",
     true},
    {"u8, both across",
     "func f(a: u8[k, m], b: u8[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { i32(a[p, i]) * i32(b[p, j]) }; } } }",
     false},
    {"lets, a bias and an activation",
     "func f(a: f16[m, k], b: f16[n, k], bias: f32[n], out c: f16[m, n]) { " NEST
     "let z = bias[j] + (sum p in 0..k { let x = f32(a[i, p]); let y = f32(b[j, p]); x * y });\n"
     "c[i, j] = f16(z > 0.0 ? z : z * 0.1); } } }",
     true},
    {"weights with a scale",
     "func f(a: f16[m, k], q: i8[n, k], s: f16[n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(f16(q[j, p]) * s[j]) }; } } }",
     true},
    {"both computed",
     "func f(a: bf16[m, k], b: bf16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p] * 0.5) * f32(max(b[p, j], 0.0)) }; } } }",
     false},
    {"a batch of rows in pieces",
     "func f(a: f16[z, m, 3, k], b: f16[z, n, k], out c: f32[z, m, 3, n]) {\n"
     "  parallel u in 0..z { parallel i in 0..m { parallel h in 0..3 { parallel j in 0..n {\n"
     "  c[u, i, h, j] = sum p in 0..k { f32(a[u, i, h, p]) * f32(b[u, j, p]) }; } } } } }",
     true},
    {"columns in pieces of eight, and of three",
     "func f(a: f16[k, m, 3], b: f16[k, 3, 8], out c: f32[m, 3, 3, 8]) {\n"
     "  parallel i in 0..m { parallel h in 0..3 { parallel j in 0..3 { parallel v in 0..8 {\n"
     "  c[i, h, j, v] = sum p in 0..k { f32(a[p, i, h]) * f32(b[p, j, v]) }; } } } } }",
     true},
    {"gathered rows",
     "func f(a: f16[m, k], idx: i32[m], b: f16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[(i64(idx[i]) + 1) % m, p]) * f32(b[p, j]) }; } } }",
     true},
    {"loops that begin elsewhere",
     "func f(a: f16[m, k], b: f16[k, n], inout c: f32[m, n]) { parallel i in 1..m {\n"
     "  parallel j in 2..n - 1 {\n"
     "  c[i, j] = sum p in 3..k - 1 { f32(a[i - 1, p]) * f32(b[p, j + 1]) }; } } }",
     true},
    {"a store under a condition",
     "func f(a: f16[m, k], b: f16[k, n], inout c: f32[m, n]) { " NEST
     "let s = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) };\n"
     "if i <= j { c[i, j] = c[i, j] + s; } } } }",
     true},
    {"strides",
     "func f(a: f16[m, k] strides [s, 1], b: f16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     true},
    {"exact extents",
     "func f(a: f16[128, 64], b: f16[64, 128], out c: f32[128, 128]) {\n"
     "  parallel i in 0..128 { parallel j in 0..128 {\n"
     "  c[i, j] = sum p in 0..64 { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     true},
    {"f32 in a fast function, of integers",
     "func f(a: u16[m, k], b: i16[k, n], out c: f32[m, n]) fast { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     false},
    {"few rows",
     "func f(a: bf16[9, k], b: bf16[n, k], out c: f32[9, n]) {\n"
     "  parallel i in 0..9 { parallel j in 0..n {\n"
     "  c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[j, p]) }; } } }",
     true},
};

static qn_module_t* parse(const program_t* program) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(program->text, strlen(program->text), NULL, &module);
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
  return module;
}

static qn__pass_options_t target(uint32_t multiprocessors) {
  return (qn__pass_options_t){.warp_size = 32,
                              .max_threads = 1024,
                              .preferred_threads = 256,
                              .max_shared_bytes = 49152,
                              .multiprocessors = multiprocessors,
                              .has_shuffles = true,
                              .has_block_reductions = true,
                              .has_matrix_units = true};
}

static void map(const char* name, const qn_module_t* module, const qn__pass_options_t* options,
                qn__ir_body_t* out_body) {
  assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), out_body)));
  qn_status_t status = qn__passes_run_gpu(out_body, options);
  if (qn_ok(status)) status = qn__body_verify_status(out_body, "the mapping");
  if (!qn_ok(status)) fail_msg("%s: %s", name, qn_status_message(status));
  qn__function_number(out_body->first);
  char message[256];
  if (qn_test_is_mapped(out_body->first, options, message, sizeof message)) return;
  qn_test_show(out_body);
  fail_msg("%s: %s", name, message);
}

static bool is_multiply(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_TENSOR && stmt->tensor->kind == QN__TENSOR_MULTIPLY;
}

typedef struct count {
  uint32_t copies;
  uint32_t multiplications;
} count_t;

static bool count_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  count_t* count = walker->self;
  count->copies += stmt->kind == QN__STMT_TENSOR && stmt->tensor->kind == QN__TENSOR_COPY;
  count->multiplications += is_multiply(stmt);
  return true;
}

// ---- calls

enum { MAX_PARAMS = 5, BUFFER_BYTES = 1 << 17 };

typedef struct shape {
  int64_t m, n, k;
} shape_t;

static void fill(const qn__ir_buffer_t* buffer, size_t seed, uint8_t* data) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    size_t at = i * 7 + i / 61 + seed * 5;
    qn__ir_scalar_t value = {.i = (int64_t)(at % 11)};
    if (qn__dtype_is_float(buffer->dtype)) {
      value.f = qn__round_float(buffer->dtype, (double)(at % 29) * 0.21 - 3.0);
    }
    uint64_t bits = qn__scalar_to_bits(buffer->dtype, value);
    memcpy(data + i * size, &bits, size);
  }
}

// Runs a function and returns its arguments, which the caller frees.
static void interpret(const char* name, const qn__ir_func_t* function, shape_t shape,
                      uint8_t** memory) {
  uint64_t words[MAX_PARAMS];
  int64_t symbols[8] = {0};
  assert_true(function->symbol_count <= QN_COUNT_OF(symbols));
  for (size_t i = 0; i < function->symbol_count; ++i) {
    switch (function->symbols[i]->name[0]) {
      case 'm':
        symbols[i] = shape.m;
        break;
      case 'n':
        symbols[i] = shape.n;
        break;
      default:  // 'k', and the stride 's' of rows
        symbols[i] = shape.k + (function->symbols[i]->name[0] == 's' ? 3 : 0);
        break;
      case 'z':
        symbols[i] = 2;
        break;
    }
  }
  for (size_t i = 0; i < function->param_count; ++i) {
    assert_true(i < MAX_PARAMS);
    memory[i] = malloc(BUFFER_BYTES);
    assert_non_null(memory[i]);
    fill(function->params[i].buffer, i, memory[i]);
    words[i] = (uint64_t)(uintptr_t)memory[i];
  }
  qn__interpret_args_t call = {.params = words, .symbols = symbols, .warp_size = 32};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) fail_msg("%s: %s", name, qn_status_message(status));
}

static void compare(const program_t* program, const qn_module_t* module,
                    const qn__ir_body_t* mapped, shape_t shape) {
  const qn__ir_func_t* function = module->functions[0];
  uint8_t *want[MAX_PARAMS], *have[MAX_PARAMS];
  interpret(program->name, function, shape, want);
  interpret(program->name, mapped->first, shape, have);
  for (size_t i = 0; i < function->param_count; ++i) {
    if (memcmp(want[i], have[i], BUFFER_BYTES) != 0) {
      qn_test_show(mapped);
      fail_msg("%s, %lld x %lld x %lld: '%s' differs", program->name, (long long)shape.m,
               (long long)shape.n, (long long)shape.k, function->params[i].buffer->name);
    }
    free(want[i]);
    free(have[i]);
  }
}

// Runs every `by`th shape on a target.
static void run_shapes(const program_t* program, const qn_module_t* module,
                       const qn__pass_options_t* options, const shape_t* shapes, size_t shape_count,
                       size_t first, size_t by) {
  qn__ir_body_t body;
  map(program->name, module, options, &body);
  count_t count = {0, 0};
  qn__ir_walker_t walker = {count_stmt, NULL, &count};
  (void)qn__walk_block(&walker, &body.first->body);
  if (count.multiplications == 0 || (count.copies > 0) != program->has_copies) {
    qn_test_show(&body);
    fail_msg("%s: %u multiplications, %u copies", program->name, count.multiplications,
             count.copies);
  }
  for (size_t s = first % by; s < shape_count; s += by) compare(program, module, &body, shapes[s]);
  qn__body_deinit(&body);
}

// Two multiprocessors: the call has large tiles wherever it has more than one of them. The
// interpreter is slow: each program has some of the shapes.
static void run_program(void** state) {
  const program_t* program = *state;
  static const shape_t shapes[] = {{0, 5, 4},     {5, 0, 40},    {17, 18, 0},   {1, 1, 1},
                                   {16, 33, 129}, {65, 16, 67},  {17, 20, 257}, {64, 64, 64},
                                   {63, 65, 31},  {20, 130, 40}, {130, 129, 33}};
  static const shape_t of_groups[] = {{17, 18, 0}, {65, 17, 67}, {63, 130, 31}, {200, 17, 70}};
  static size_t first = 0;
  qn_module_t* module = parse(program);
  qn__pass_options_t options = target(2);
  run_shapes(program, module, &options, shapes, QN_COUNT_OF(shapes), first, IS_SANITIZED ? 8 : 4);
  options.has_warpgroups = true;
  options.max_shared_bytes = 232448;
  run_shapes(program, module, &options, of_groups, QN_COUNT_OF(of_groups), first,
             IS_SANITIZED ? 8 : 4);
  qn_module_release(module);
  ++first;
}

static const program_t others[] = {
    {"f32",
     "func f(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
     false},
    {"sums of f16",
     "func f(a: f16[m, k], b: f16[k, n], out c: f16[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
     false},
    {"a rounded product",
     "func f(a: f16[m, k], b: f16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p] * b[p, j]) }; } } }",
     false},
    {"f16 and f32 in a fast function",
     "func f(a: f16[m, k], b: f32[k, n], out c: f32[m, n]) fast { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * b[p, j] }; } } }",
     false},
    {"two dtypes",
     "func f(a: f16[m, k], b: bf16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     false},
    {"a factor",
     "func f(a: f16[m, k], b: f16[k, n], s: f32[k], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) * s[p] }; } } }",
     false},
    {"i16",
     "func f(a: i16[m, k], b: i16[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[p, j]) }; } } }",
     false},
    {"sums of i64",
     "func f(a: i8[m, k], b: i8[k, n], out c: i64[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { i64(a[i, p]) * i64(b[p, j]) }; } } }",
     false},
    {"a maximum",
     "func f(a: i8[m, k], b: i8[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = max p in 0..k { i32(a[i, p]) * i32(b[p, j]) }; } } }",
     false},
};

static void run_other(void** state) {
  const program_t* program = *state;
  qn_module_t* module = parse(program);
  qn__pass_options_t options = target(2);
  qn__ir_body_t body;
  map(program->name, module, &options, &body);
  assert_false(qn__block_any(&body.first->body, is_multiply));
  qn__body_deinit(&body);
  qn_module_release(module);
}

static void targets_without_units(void** state) {
  (void)state;
  const program_t* program = &programs[0];
  qn_module_t* module = parse(program);
  for (int i = 0; i < 3; ++i) {
    qn__pass_options_t options = target(2);
    if (i == 0) options.has_matrix_units = false;
    if (i == 1) options.warp_size = 64;
    if (i == 2) options.max_shared_bytes = 1024;
    qn__ir_body_t body;
    map(program->name, module, &options, &body);
    assert_false(qn__block_any(&body.first->body, is_multiply));
    qn__body_deinit(&body);
  }
  qn_module_release(module);
}

// ---- text

static void text_of_shapes(void** state) {
  (void)state;
  qn__pass_options_t options = target(100);
  qn_test_expect_all(
      qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options, programs[0].text,
      "if m <= 16 {\n block.x block in 0..ceildiv(m, 16) * ceildiv(n, 32) {\n"
      "} else if n <= 16 {\n block.x block in 0..ceildiv(m, 32) * ceildiv(n, 16) {\n"
      "} else if ceildiv(m, 128) * ceildiv(n, 128) <= 99 {\n"
      "block.x block in 0..ceildiv(m, 64) * ceildiv(n, 64) {\n"
      "alloc rows: f16[256, 32] in shared;\n alloc columns: f16[128, 64] in shared;\n"
      "thread.x t in 0..128 {\n"
      "block.x block in 0..ceildiv(m, 512) * ceildiv(n, 128) * 4 {\n"
      "alloc rows: f16[384, 32] in shared;\n thread.x t in 0..256 {\n"
      "if first_row < m {\n alloc acc: f32[64] in local;\n wait 1;\n barrier;\n");
  options.has_warpgroups = true;
  options.max_shared_bytes = 232448;
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     programs[0].text,
                     "} else if ceildiv(m, 192) * ceildiv(n, 192) <= 99 {\n"
                     "alloc rows: f16[256, 64] in shared;\n"
                     "alloc columns: f16[512, 64] in shared;\n thread.x t in 0..128 {\n"
                     "alloc rows: f16[768, 64] in shared;\n thread.x t in 0..384 {\n"
                     "alloc acc: f32[96] in local;\n wait 2;\n barrier;\n finish acc[0];\n");
  options = target(100);
  // Constant extents have one shape, and no tests where nothing is left over.
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     "func f(a: bf16[2048, 512], b: bf16[1024, 512], out c: bf16[2048, 1024]) {\n"
                     "  parallel i in 0..2048 { parallel j in 0..1024 {\n"
                     "  c[i, j] = bf16(sum p in 0..512 { f32(a[i, p]) * f32(b[j, p]) }); } } }",
                     "block.x block in 0..128 {\n!min\n for turn in 0..18 {\n wait 1;\n barrier;\n"
                     "copy rows[slot * 128 + fill_row, h] = a[line, step], 8 of 8;\n"
                     "if turn >= 2 {\n!row <\n");
}

static void few_tiles(void** state) {
  (void)state;
  qn__pass_options_t options = target(100);
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     "func f(a: f16[256, 512], b: f16[256, 512], out c: f32[256, 256]) {\n"
                     "  parallel i in 0..256 { parallel j in 0..256 {\n"
                     "  c[i, j] = sum p in 0..512 { f32(a[i, p]) * f32(b[j, p]) }; } } }",
                     "block.x block in 0..64 {\n thread.x t in 0..64 {\n"
                     "alloc acc: f32[16] in local;\n");
}

// A result with few tiles and a long reduction. 1500 steps are parts of 768 and of 732.
static const program_t split_programs[] = {
    {"parts of a sum, and a rest",
     "func f(a: i8[40, 1500], b: i8[33, 1500], bias: i32[33], out c: i32[40, 33]) {\n"
     "  parallel i in 0..40 { parallel j in 0..33 { let twice = bias[j] * 2;\n"
     "  let s = sum p in 0..1500 { i32(a[i, p]) * i32(b[j, p]) };\n"
     "  if i != j { c[i, j] = max(s + twice, 0); } } } }",
     true},
    {"parts of the channels of a convolution",
     "func f(x: i8[256, 6, 7], w: i8[16, 256, 3, 3], out y: i32[2, 16, 4, 4]) {\n"
     "  parallel u in 1..2 { parallel o in 0..16 { parallel i in 0..4 { parallel j in 0..4 {\n"
     "  y[u, o, i, j] = sum c in 0..256 { sum h in 0..3 { sum v in 0..3 {\n"
     "  i32(x[c, i + h, j + v]) * i32(w[o, c, h, v]) } } }; } } } } }",
     false},
    {"parts of shortest ways",
     "func f(a: f32[16, 1030], b: f32[1030, 30], out c: f32[16, 30]) {\n"
     "  parallel i in 0..16 { parallel j in 0..30 {\n"
     "  c[i, j] = min p in 2..1030 { a[i, p] + b[p, j] }; } } }",
     false},
};

static void split_reductions(void** state) {
  (void)state;
  qn__pass_options_t options = target(12);
  qn_test_expect_all(qn__pipeline_gpu.passes, qn__pipeline_gpu.pass_count, &options,
                     split_programs[0].text,
                     "alloc partial: i32[2, 1320] in global;\n block.x block in 0..8 {\n"
                     "wait 1;\n partial[batch, row * 33 + column] = acc[0];\n"
                     "!multiply\n block.x block in 0..6 {\n");
  for (size_t i = 0; i < QN_COUNT_OF(split_programs); ++i) {
    const program_t* program = &split_programs[i];
    qn_module_t* module = parse(program);
    qn__ir_body_t body;
    map(program->name, module, &options, &body);
    assert_string_equal(body.first->body.first->alloc.buffer->name, "partial");
    compare(program, module, &body, (shape_t){0, 0, 0});
    qn__body_deinit(&body);
    // Enough tiles, and checks that name an iteration.
    for (int k = 0; k < 2; ++k) {
      qn__pass_options_t other = target(k == 0 ? 1 : 12);
      other.is_checked = k == 1;
      map(program->name, module, &other, &body);
      assert_int_equal(body.first->body.first->kind, QN__STMT_LOOP);
      qn__body_deinit(&body);
    }
    qn_test_map_without_memory(module, &options);
    qn_module_release(module);
  }
}

static void memory_runs_out(void** state) {
  (void)state;
  qn_module_t* module = parse(&programs[QN_COUNT_OF(programs) - 1]);
  qn__pass_options_t options = target(2);
  qn_test_map_without_memory(module, &options);
  qn_module_release(module);
}

// ---- layouts

// The same chunk of eight adjacent rows lies in all eight groups of four banks, for each pitch;
// rows keep all their chunks.
static void swizzling_meets_all_banks(void** state) {
  (void)state;
  for (int64_t chunks = 2; chunks <= 64; chunks *= 2) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      for (int64_t first = 0; first < 64; first += 8) {
        uint32_t groups = 0;
        for (int64_t row = first; row < first + 8; ++row) {
          int64_t at = chunk ^ qn__tensor_phase(row, chunks);
          assert_true(at >= 0 && at < chunks);
          groups |= 1U << (row * chunks + at) % 8;
        }
        assert_int_equal(groups, 0xff);
      }
    }
  }
}

// Lanes have each element of a tile once.
static void sums_cover_a_tile(void** state) {
  (void)state;
  uint8_t seen[QN__TENSOR_ROWS][QN__TENSOR_COLUMNS] = {{0}};
  for (int64_t lane = 0; lane < 32; ++lane) {
    for (int64_t e = 0; e < QN__TENSOR_SUMS; ++e) {
      ++seen[qn__tensor_row(lane, e)][qn__tensor_column(lane, e)];
    }
  }
  for (int i = 0; i < QN__TENSOR_ROWS * QN__TENSOR_COLUMNS; ++i) {
    assert_int_equal(seen[i / QN__TENSOR_COLUMNS][i % QN__TENSOR_COLUMNS], 1);
  }
}

static void rounding_to_tf32(void** state) {
  (void)state;
  assert_true(qn__tensor_round(1.0f) == 1.0f);
  assert_true(qn__tensor_round(1.0f + 0x1p-11f) == 1.0f + 0x1p-10f);  // a tie, away from zero
  assert_true(qn__tensor_round(-1.0f - 0x1p-11f) == -1.0f - 0x1p-10f);
  assert_true(qn__tensor_round(1.0f + 0x1.ffep-12f) == 1.0f);
  assert_true(qn__tensor_round(0x1.fffffep127f) > 0x1.fffffep127f);
  float nan = qn__tensor_round(__builtin_nanf("1"));
  assert_true(nan != nan);
}

// The verifier refuses statements that no instruction can run.
static void problems(void** state) {
  (void)state;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__ir_buffer_t* operand = qn__buf_new(&arena, QN__SCOPE_SHARED, QN_DTYPE_F16, "a", 2);
  qn__ir_buffer_t* sums = qn__buf_new(&arena, QN__SCOPE_LOCAL, QN_DTYPE_F32, "acc", 1);
  operand->shape[0] = qn__expr_int(&arena, QN_DTYPE_I64, 16);
  operand->shape[1] = qn__expr_int(&arena, QN_DTYPE_I64, 32);
  sums->shape[0] = qn__expr_int(&arena, QN_DTYPE_I64, 8);
  qn__ir_expr_t* zeros[] = {qn__expr_int(&arena, QN_DTYPE_I64, 0),
                            qn__expr_int(&arena, QN_DTYPE_I64, 0)};
  qn__ir_tensor_t good = {.kind = QN__TENSOR_MULTIPLY,
                          .ref_count = 3,
                          .refs = {{sums, zeros}, {operand, zeros}, {operand, zeros}},
                          .operand = zeros[0],
                          .tiles = {1, 2},
                          .depth = 32};
  assert_null(qn__tensor_problem(&good));
  qn__ir_tensor_t bad = good;
  bad.tiles[1] = 1;
  assert_non_null(qn__tensor_problem(&bad));
  bad = good;
  bad.depth = 24;
  assert_non_null(qn__tensor_problem(&bad));
  bad = good;
  bad.ref_count = 2;
  assert_non_null(qn__tensor_problem(&bad));
  operand->shape[1] = qn__expr_int(&arena, QN_DTYPE_I64, 24);  // three chunks
  assert_non_null(qn__tensor_problem(&good));
  operand->shape[1] = qn__expr_int(&arena, QN_DTYPE_I64, 32);
  operand->dtype = QN_DTYPE_I8;
  assert_non_null(qn__tensor_problem(&good));  // sums of f32
  sums->dtype = QN_DTYPE_I32;
  assert_null(qn__tensor_problem(&good));
  bad = good;
  bad.is_across[1] = true;
  assert_non_null(qn__tensor_problem(&bad));
  // A warpgroup: rows of 128 bytes, one tile down, eight across or more of them.
  sums->shape[0] = qn__expr_int(&arena, QN_DTYPE_I64, 32);
  operand->shape[1] = qn__expr_int(&arena, QN_DTYPE_I64, 128);
  good.tiles[1] = 8;
  good.is_warpgroup = true;
  assert_null(qn__tensor_problem(&good));
  operand->shape[1] = qn__expr_int(&arena, QN_DTYPE_I64, 64);
  assert_non_null(qn__tensor_problem(&good));
  operand->shape[1] = qn__expr_int(&arena, QN_DTYPE_I64, 128);
  bad = good;
  bad.tiles[0] = 2;
  bad.tiles[1] = 4;
  assert_non_null(qn__tensor_problem(&bad));
  bad = (qn__ir_tensor_t){.kind = QN__TENSOR_FINISH};
  assert_non_null(qn__tensor_problem(&bad));
  qn__arena_deinit(&arena);
}

int main(void) {
  const struct CMUnitTest fixed[] = {
      cmocka_unit_test(targets_without_units),
      cmocka_unit_test(text_of_shapes),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(swizzling_meets_all_banks),
      cmocka_unit_test(sums_cover_a_tile),
      cmocka_unit_test(rounding_to_tf32),
      cmocka_unit_test(problems),
      cmocka_unit_test(few_tiles),
      cmocka_unit_test(split_reductions),
  };
  struct CMUnitTest tests[QN_COUNT_OF(programs) + QN_COUNT_OF(others) + QN_COUNT_OF(fixed)];
  size_t count = 0;
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    tests[count++] = (struct CMUnitTest){programs[i].name, run_program, NULL, NULL,
                                         (void*)(uintptr_t)&programs[i]};
  }
  for (size_t i = 0; i < QN_COUNT_OF(others); ++i) {
    tests[count++] =
        (struct CMUnitTest){others[i].name, run_other, NULL, NULL, (void*)(uintptr_t)&others[i]};
  }
  for (size_t i = 0; i < QN_COUNT_OF(fixed); ++i) tests[count++] = fixed[i];
  return _cmocka_run_group_tests("matrix units", tests, count, NULL, NULL);
}
