// SPDX-License-Identifier: Apache-2.0
// How fast are matrix products that are plain loops, on one core?
//
// It computes C = A * B in f32 from `sum p in 0..k { a[i, p] * b[p, j] }`, all extents unknown when
// it is compiled, and the same with B transposed. The floor of a row is the time of OpenBLAS for
// the same product in the same process, in turns; results are compared. Without OpenBLAS
// (libopenblas0-pthread) the rows have no floor. The variable BENCH_PRODUCT_TARGET is the target,
// so that a machine with AVX-512 measures code for AVX2, too: 'cpu -mcpu=x86-64-v3'.
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "quern/device.h"
#include "quern/ir.h"
#include "quern/quern.h"
#include "quern/target.h"

#define PRODUCT(name, shape, at)                  \
  "func " name "(a: f32[n, k], b: f32[" shape     \
  "], out c: f32[n, m]) {\n"                      \
  "  parallel i in 0..n { parallel j in 0..m {\n" \
  "    c[i, j] = sum p in 0..k { a[i, p] * b[" at \
  "] }; } }\n"                                    \
  "}\n"
static const char program[] = PRODUCT("rows", "k, m", "p, j") PRODUCT("transposed", "m, k", "j, p");

// cblas_sgemm; 101: row-major, 111 and 112: as it is and transposed.
typedef void (*sgemm_t)(int order, int transpose_a, int transpose_b, int n, int m, int k,
                        float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                        float* c, int ldc);

typedef struct product {
  int64_t n, m, k;
  bool is_transposed;
  float *a, *b, *c;
  qn_function_t* function;
  sgemm_t sgemm;
} product_t;

static void run_quern(void* self, int64_t iterations) {
  product_t* p = self;
  int64_t shapes[3][2] = {{p->n, p->k}, {p->k, p->m}, {p->n, p->m}};
  if (p->is_transposed) {
    shapes[1][0] = p->m;
    shapes[1][1] = p->k;
  }
  void* data[3] = {p->a, p->b, p->c};
  qn_tensor_t tensors[3];
  qn_value_t args[3];
  for (int i = 0; i < 3; i++) {
    tensors[i] = (qn_tensor_t){
        data[i], {QN_DEVICE_CPU, 0}, 2, qn_dtype_to_dl(QN_DTYPE_F32), shapes[i], NULL, 0};
    args[i] = qn_value_tensor(&tensors[i]);
  }
  for (int64_t i = 0; i < iterations; i++) bench_must(qn_function_call(p->function, args, 3, NULL));
}

static void run_blas(void* self, int64_t iterations) {
  product_t* p = self;
  int n = (int)p->n, m = (int)p->m, k = (int)p->k;
  for (int64_t i = 0; i < iterations; i++) {
    p->sgemm(101, 111, p->is_transposed ? 112 : 111, n, m, k, 1.0f, p->a, k, p->b,
             p->is_transposed ? k : m, 0.0f, p->c, m);
  }
}

static float* make(int64_t count, unsigned seed) {
  float* data = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
  if (!data) bench_give_up("out of memory");
  for (int64_t i = 0; i < count; i++) {
    data[i] = (float)((i * 7 + seed + i / 61) % 29) * 0.21f - 3.0f;
  }
  return data;
}

// Ends the program if the two results differ by more than sums of different orders may.
static void compare(product_t* p) {
  float* other = make(p->n * p->m, 0);
  float* own = p->c;
  run_quern(p, 1);
  p->c = other;
  run_blas(p, 1);
  p->c = own;
  for (int64_t i = 0; i < p->n * p->m; i++) {
    if (fabsf(own[i] - other[i]) > 1e-5f * 9.0f * (float)p->k) bench_give_up("results differ");
  }
  free(other);
}

static void measure(bench_report_t* report, product_t* p) {
  p->a = make(p->n * p->k, 1);
  p->b = make(p->k * p->m, 2);
  p->c = make(p->n * p->m, 3);
  double ns[2] = {0, 0};
  void (*const bodies[])(void*, int64_t) = {run_quern, run_blas};
  void* const selves[] = {p, p};
  if (p->sgemm) compare(p);
  bench_compare_ns(p->sgemm ? 2 : 1, bodies, selves, 0, 21, ns);
  char name[96];
  (void)snprintf(name, sizeof name, "%d x %d x %d%s, %.0f GFLOP/s", (int)p->n, (int)p->m, (int)p->k,
                 p->is_transposed ? " transposed" : "",
                 2.0 * (double)p->n * (double)p->m * (double)p->k / ns[0]);
  bench_row(report, name, ns[0] / 1e3, "us", ns[1] / 1e3, 0);
  free(p->a);
  free(p->b);
  free(p->c);
}

int main(int argc, char** argv) {
  static const int64_t shapes[][3] = {
      {1, 1536, 384},     {7, 1152, 384},    {12, 384, 1536}, {128, 1536, 384}, {512, 512, 512},
      {1024, 1024, 1024}, {1000, 999, 1001}, {37, 41, 43},    {64, 768, 768},   {256, 3072, 768},
  };
  bench_report_t report = bench_begin(
      "products", "Measures products of f32 written as plain loops against OpenBLAS.", argc, argv);
  qn_cpu_set_core_budget(1);
  (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, "cblas_sgemm") : NULL;
  if (!symbol) (void)fprintf(stderr, "bench_product: no OpenBLAS (libopenblas0-pthread)\n");
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_mode = QN_CACHE_OFF};
  bench_must(qn_engine_create(&options, &engine));
  bench_must(qn_module_parse(program, sizeof program - 1, NULL, &module));
  const char* text = getenv("BENCH_PRODUCT_TARGET");
  bench_must(qn_target_parse(text ? text : "cpu", &target));
  static const char* const names[] = {"rows", "transposed"};
  for (int t = 0; t < 2; t++) {
    product_t product = {.is_transposed = t == 1};
    memcpy(&product.sgemm, &symbol, sizeof product.sgemm);
    bench_must(qn_engine_function(engine, module, target, names[t], NULL, NULL, &product.function));
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
      product.n = shapes[i][0];
      product.m = shapes[i][1];
      product.k = shapes[i][2];
      measure(&report, &product);
    }
    qn_function_release(product.function);
  }
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
  return bench_end(&report);
}
