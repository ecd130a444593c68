// SPDX-License-Identifier: Apache-2.0
// How much faster are products of small numbers than the same product in f32, on one core?
//
// It computes C = A * B as plain loops, all extents unknown when it is compiled: bytes and 16-bit
// integers with sums of i32, bf16 and f16 with sums of f32, and the same with B transposed. The
// floor of a row is the time of the f32 product of that shape, in turns; a ratio of 0.33 is three
// times the speed.
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "quern/device.h"
#include "quern/ir.h"
#include "quern/quern.h"
#include "quern/target.h"

#define FUNC(name, a, b, sum, shape, at, mark)                                        \
  "func of_" name "(a: " a "[n, k], b: " b "[" shape "], out c: " sum "[n, m]) " mark \
  "{\n"                                                                               \
  "  parallel i in 0..n { parallel j in 0..m {\n"                                     \
  "    c[i, j] = sum p in 0..k { " sum "(a[i, p]) * " sum "(b[" at                    \
  "]) }; } }\n"                                                                       \
  "}\n"
#define BOTH(name, a, b, sum, mark)           \
  FUNC(name, a, b, sum, "k, m", "p, j", mark) \
  FUNC(name "_t", a, b, sum, "m, k", "j, p", mark)

static const char program[] = BOTH("f32", "f32", "f32", "f32", "") BOTH("i8", "i8", "i8", "i32", "")
    BOTH("u8_i8", "u8", "i8", "i32", "") BOTH("u8", "u8", "u8", "i32", "")
        BOTH("i16", "i16", "i16", "i32", "") BOTH("bf16", "bf16", "bf16", "f32", "")
            BOTH("bf16_fast", "bf16", "bf16", "f32", "fast ") BOTH("f16", "f16", "f16", "f32", "");

typedef struct kind {
  const char* name;
  qn_dtype_t a, b, sum;
} kind_t;

static const kind_t kinds[] = {
    {"f32", QN_DTYPE_F32, QN_DTYPE_F32, QN_DTYPE_F32},
    {"i8", QN_DTYPE_I8, QN_DTYPE_I8, QN_DTYPE_I32},
    {"u8_i8", QN_DTYPE_U8, QN_DTYPE_I8, QN_DTYPE_I32},
    {"u8", QN_DTYPE_U8, QN_DTYPE_U8, QN_DTYPE_I32},
    {"i16", QN_DTYPE_I16, QN_DTYPE_I16, QN_DTYPE_I32},
    {"bf16", QN_DTYPE_BF16, QN_DTYPE_BF16, QN_DTYPE_F32},
    {"bf16_fast", QN_DTYPE_BF16, QN_DTYPE_BF16, QN_DTYPE_F32},
    {"f16", QN_DTYPE_F16, QN_DTYPE_F16, QN_DTYPE_F32},
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

typedef struct product {
  const kind_t* kind;
  int64_t n, m, k;
  bool is_transposed;
  void *a, *b, *c;
  qn_function_t* function;
} product_t;

static void run(void* self, int64_t iterations) {
  product_t* p = self;
  int64_t shapes[3][2] = {{p->n, p->k}, {p->k, p->m}, {p->n, p->m}};
  if (p->is_transposed) {
    shapes[1][0] = p->m;
    shapes[1][1] = p->k;
  }
  void* data[3] = {p->a, p->b, p->c};
  qn_dtype_t dtypes[3] = {p->kind->a, p->kind->b, p->kind->sum};
  qn_tensor_t tensors[3];
  qn_value_t args[3];
  for (int i = 0; i < 3; i++) {
    tensors[i] = (qn_tensor_t){
        data[i], {QN_DEVICE_CPU, 0}, 2, qn_dtype_to_dl(dtypes[i]), shapes[i], NULL, 0};
    args[i] = qn_value_tensor(&tensors[i]);
  }
  for (int64_t i = 0; i < iterations; i++) bench_must(qn_function_call(p->function, args, 3, NULL));
}

// Numbers near 1 for floats, all bit patterns for integers.
static void* make(qn_dtype_t dtype, int64_t count, unsigned seed) {
  size_t size = qn_dtype_size_bytes(dtype);
  uint8_t* data = aligned_alloc(64, ((size_t)count * size + 63) / 64 * 64);
  if (!data) bench_give_up("out of memory");
  uint64_t state = seed;
  for (int64_t i = 0; i < count; i++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t bits = (uint32_t)(state >> 33);
    if (dtype == QN_DTYPE_F32) bits = 0x3f000000 | (bits & 0x00ffffff);
    if (dtype == QN_DTYPE_BF16) bits = 0x3f00 | (bits & 0xff);
    if (dtype == QN_DTYPE_F16) bits = 0x3800 | (bits & 0x7ff);
    memcpy(data + (size_t)i * size, &bits, size);
  }
  return data;
}

static void measure(bench_report_t* report, product_t* products) {
  void (*bodies[KIND_COUNT])(void*, int64_t);
  void* selves[KIND_COUNT];
  double ns[KIND_COUNT];
  for (int i = 0; i < KIND_COUNT; i++) {
    product_t* p = &products[i];
    p->a = make(p->kind->a, p->n * p->k, 1);
    p->b = make(p->kind->b, p->k * p->m, 2);
    p->c = make(p->kind->sum, p->n * p->m, 3);
    bodies[i] = run;
    selves[i] = p;
  }
  bench_compare_ns(KIND_COUNT, bodies, selves, 0, 11, ns);
  for (int i = 0; i < KIND_COUNT; i++) {
    product_t* p = &products[i];
    char name[96];
    (void)snprintf(name, sizeof name, "%d x %d x %d%s, %s, %.0f G/s", (int)p->n, (int)p->m,
                   (int)p->k, p->is_transposed ? " transposed" : "", p->kind->name,
                   2.0 * (double)p->n * (double)p->m * (double)p->k / ns[i]);
    bench_row(report, name, ns[i] / 1e3, "us", i ? ns[0] / 1e3 : 0, 0);
    free(p->a);
    free(p->b);
    free(p->c);
  }
}

int main(int argc, char** argv) {
  static const int64_t shapes[][3] = {
      {12, 384, 1536}, {128, 1536, 384}, {512, 512, 512}, {1024, 1024, 1024}, {1000, 999, 1001}};
  bench_report_t report = bench_begin(
      "small numbers", "Measures products of small numbers against those of f32.", argc, argv);
  qn_cpu_set_core_budget(1);
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_mode = QN_CACHE_OFF};
  bench_must(qn_engine_create(&options, &engine));
  bench_must(qn_module_parse(program, sizeof program - 1, NULL, &module));
  bench_must(qn_target_parse("cpu", &target));
  for (int t = 0; t < 2; t++) {
    product_t products[KIND_COUNT];
    for (int i = 0; i < KIND_COUNT; i++) {
      char name[32];
      (void)snprintf(name, sizeof name, "of_%s%s", kinds[i].name, t ? "_t" : "");
      products[i] = (product_t){.kind = &kinds[i], .is_transposed = t == 1};
      bench_must(
          qn_engine_function(engine, module, target, name, NULL, NULL, &products[i].function));
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
      for (int i = 0; i < KIND_COUNT; i++) {
        products[i].n = shapes[s][0];
        products[i].m = shapes[s][1];
        products[i].k = shapes[s][2];
      }
      measure(&report, products);
    }
    for (int i = 0; i < KIND_COUNT; i++) qn_function_release(products[i].function);
  }
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
  return bench_end(&report);
}
