// SPDX-License-Identifier: Apache-2.0
// bench/peers/helper.c: loops of calls that bench/peers/run times, so that Python takes no part in
// a measurement; and the peak of fused multiply-adds.
//
// build-helper compiles it against the libraries that bench/peers/install unpacked. Each function
// returns the nanoseconds of all its calls, or -1 if one failed. One thread.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#ifdef HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif
#ifdef HAVE_XSMM
#include <libxsmm.h>
#endif

static int64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// ---- quern: qn_function_call, by its address

typedef uintptr_t (*quern_call_t)(void* function, const void* args, size_t count, void* result);

int64_t helper_quern(quern_call_t call, void* function, const void* args, size_t count,
                     int64_t iterations) {
  int64_t begin = now_ns();
  for (int64_t i = 0; i < iterations; i++) {
    if (call(function, args, count, NULL) != 0) return -1;
  }
  return now_ns() - begin;
}

// ---- OpenBLAS: cblas_sgemm with integers of 32 or, in NumPy's, 64 bits

typedef void (*sgemm_t)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                        float, float*, int);
typedef void (*sgemm64_t)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t,
                          const float*, int64_t, float, float*, int64_t);

int64_t helper_blas(void* symbol, int is_wide, int is_transposed, int64_t n, int64_t m, int64_t k,
                    const float* a, const float* b, float* c, int64_t iterations) {
  int64_t ldb = is_transposed ? k : m, begin = now_ns();
  int turn = is_transposed ? 112 : 111;
  for (int64_t i = 0; i < iterations; i++) {
    if (is_wide) {
      ((sgemm64_t)symbol)(101, 111, turn, n, m, k, 1.0f, a, k, b, ldb, 0.0f, c, m);
    } else {
      ((sgemm_t)symbol)(101, 111, turn, (int)n, (int)m, (int)k, 1.0f, a, (int)k, b, (int)ldb, 0.0f,
                        c, (int)m);
    }
  }
  return now_ns() - begin;
}

// ---- oneDNN

#ifdef HAVE_DNNL
int64_t helper_dnnl_sgemm(int is_transposed, int64_t n, int64_t m, int64_t k, const float* a,
                          const float* b, float* c, int64_t iterations) {
  int64_t begin = now_ns();
  for (int64_t i = 0; i < iterations; i++) {
    if (dnnl_sgemm('N', is_transposed ? 'T' : 'N', n, m, k, 1.0f, a, k, b, is_transposed ? k : m,
                   0.0f, c, m) != dnnl_success) {
      return -1;
    }
  }
  return now_ns() - begin;
}

int64_t helper_dnnl_i8(int is_unsigned, int is_transposed, int64_t n, int64_t m, int64_t k,
                       const void* a, const int8_t* b, int32_t* c, int64_t iterations) {
  int32_t offset = 0;
  int64_t begin = now_ns(), ldb = is_transposed ? k : m;
  char turn = is_transposed ? 'T' : 'N';
  for (int64_t i = 0; i < iterations; i++) {
    dnnl_status_t status = is_unsigned ? dnnl_gemm_u8s8s32('N', turn, 'F', n, m, k, 1.0f, a, k, 0,
                                                           b, ldb, 0, 0.0f, c, m, &offset)
                                       : dnnl_gemm_s8s8s32('N', turn, 'F', n, m, k, 1.0f, a, k, 0,
                                                           b, ldb, 0, 0.0f, c, m, &offset);
    if (status != dnnl_success) return -1;
  }
  return now_ns() - begin;
}

typedef struct matmul {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[3];
} matmul_t;

// A product of bf16 to f32; NULL if this library or processor has none.
matmul_t* helper_dnnl_bf16(int is_transposed, int64_t n, int64_t m, int64_t k, void* a, void* b,
                           void* c) {
  matmul_t* made = calloc(1, sizeof *made);
  dnnl_dims_t shapes[3] = {{n, k}, {k, m}, {n, m}};
  void* data[3] = {a, b, c};
  static const int names[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  dnnl_memory_desc_t layouts[3];
  dnnl_matmul_desc_t desc;
  dnnl_primitive_desc_t primitive_desc;
  int is_bad =
      dnnl_engine_create(&made->engine, dnnl_cpu, 0) != dnnl_success ||
      dnnl_stream_create(&made->stream, made->engine, dnnl_stream_default_flags) != dnnl_success;
  for (int i = 0; i < 3 && !is_bad; i++) {
    is_bad =
        dnnl_memory_desc_init_by_tag(&layouts[i], 2, shapes[i], i == 2 ? dnnl_f32 : dnnl_bf16,
                                     i == 1 && is_transposed ? dnnl_ba : dnnl_ab) != dnnl_success ||
        dnnl_memory_create(&made->args[i].memory, &layouts[i], made->engine, data[i]) !=
            dnnl_success;
    made->args[i].arg = names[i];
  }
  is_bad =
      is_bad ||
      dnnl_matmul_desc_init(&desc, &layouts[0], &layouts[1], NULL, &layouts[2]) != dnnl_success ||
      dnnl_primitive_desc_create(&primitive_desc, &desc, NULL, made->engine, NULL) !=
          dnnl_success ||
      dnnl_primitive_create(&made->primitive, primitive_desc) != dnnl_success;
  return is_bad ? NULL : made;
}

int64_t helper_dnnl_run(matmul_t* matmul, int64_t iterations) {
  int64_t begin = now_ns();
  for (int64_t i = 0; i < iterations; i++) {
    if (dnnl_primitive_execute(matmul->primitive, matmul->stream, 3, matmul->args) !=
            dnnl_success ||
        dnnl_stream_wait(matmul->stream) != dnnl_success) {
      return -1;
    }
  }
  return now_ns() - begin;
}
#endif

// ---- libxsmm: finds the code of a shape in its registry at each call. Columns first: operands
// swap

#ifdef HAVE_XSMM
int64_t helper_xsmm(int64_t n, int64_t m, int64_t k, const float* a, const float* b, float* c,
                    int64_t iterations) {
  float alpha = 1.0f, beta = 0.0f;
  char turn = 'N';
  libxsmm_blasint rows = (libxsmm_blasint)m, columns = (libxsmm_blasint)n;
  libxsmm_blasint steps = (libxsmm_blasint)k;
  int64_t begin = now_ns();
  for (int64_t i = 0; i < iterations; i++) {
    libxsmm_sgemm(&turn, &turn, &rows, &columns, &steps, &alpha, b, &rows, a, &steps, &beta, c,
                  &rows);
  }
  return now_ns() - begin;
}
#endif

// ---- the peak: sums in registers, each a chain of multiply-adds

#if defined(__AVX512F__)
enum { LANES = 16, SUMS = 24 };
#elif defined(__AVX__)
enum { LANES = 8, SUMS = 12 };
#else
enum { LANES = 4, SUMS = 12 };
#endif
typedef float vector_t __attribute__((vector_size(LANES * 4)));

// GFLOP/s of one core over about `duration_ns`.
double helper_peak(int64_t duration_ns) {
  vector_t sums[SUMS], factor, summand;
  for (int l = 0; l < LANES; l++) {
    factor[l] = 0.999f;
    summand[l] = 0.001f;
    for (int s = 0; s < SUMS; s++) sums[s][l] = (float)(s + l);
  }
  enum { STEPS = 20000 };
  double best = 0;
  int64_t end = now_ns() + duration_ns;
  while (now_ns() < end) {
    int64_t begin = now_ns();
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 24
      for (int s = 0; s < SUMS; s++) sums[s] = sums[s] * factor + summand;
    }
    int64_t spent = now_ns() - begin;
    double speed = 2.0 * STEPS * SUMS * LANES / (double)spent;
    if (speed > best) best = speed;
    for (int s = 0; s < SUMS; s++) __asm__ volatile("" : "+x"(sums[s]));
  }
  return best;
}
