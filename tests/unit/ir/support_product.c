// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_product.c: see support_product.h.
#include "support_product.h"

#include <math.h>
#include <stdlib.h>

#include "ir/interpret.h"
#include "support_gpu.h"

enum { MAX_PARAMS = 8, BUFFER_BYTES = 1 << 17, MAX_SYMBOLS = 8 };

const qn_test_program_t qn_test_products[] = {
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
const size_t qn_test_product_count = QN_COUNT_OF(qn_test_products);

void qn_test_add_programs(struct CMUnitTest* tests, size_t capacity, size_t* inout_count,
                          const qn_test_program_t* programs, size_t program_count,
                          CMUnitTestFunction run) {
  for (size_t i = 0; i < program_count; ++i) {
    assert_true(*inout_count < capacity);
    tests[(*inout_count)++] = (struct CMUnitTest){.name = programs[i].name,
                                                  .test_func = run,
                                                  .initial_state = (void*)(uintptr_t)&programs[i]};
  }
}

bool qn_test_any(qn__ir_block_t* block, bool (*is_it)(const qn__ir_stmt_t*)) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (is_it(stmt)) return true;
    if (stmt->kind == QN__STMT_LOOP && qn_test_any(&stmt->loop.body, is_it)) return true;
    if (stmt->kind != QN__STMT_IF) continue;
    if (qn_test_any(&stmt->if_.then_block, is_it) || qn_test_any(&stmt->if_.else_block, is_it))
      return true;
  }
  return false;
}

qn_module_t* qn_test_parse(const qn_test_program_t* program) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(program->text, strlen(program->text), NULL, &module);
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
  return module;
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

static void interpret(const qn_test_program_t* program, const qn__ir_func_t* function,
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

void qn_test_compare(const qn_test_program_t* program, const qn_module_t* module,
                     const qn__ir_body_t* mapped, qn_test_shape_t shape, double tolerance) {
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
