// How fast is the inline exp over f32 arrays, on one core, against the vector library of libc?
//
// What it is: exp over an array that fits the first cache, one that fits the second and one that
// fits none, through qn__math_emit for the processors that this machine can run, and through
// libmvec (_ZGVdN8v_expf with 8 lanes, _ZGVeN16v_expf with 16) called from a loop of its own; then
// the other functions likewise. The floor of a row is libmvec at the same width.
// What it is not: a measure of accuracy (llvm_test_math --measure), nor of what the engine makes
// of a loop.
// Threads: one.
// Next: docs/math.md.
// links: llvm
#include <dlfcn.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "tests/math_sweep.c"

typedef __m256 (*libmvec_8_t)(__m256);
typedef __m512 (*libmvec_16_t)(__m512);
typedef __m256 (*libmvec_8_2_t)(__m256, __m256);
typedef __m512 (*libmvec_16_2_t)(__m512, __m512);

typedef struct {
  math_kernel_t* kernel;  // ours, or NULL
  void* libmvec;          // the other's, a function of the type that `run` calls
  const float *x, *y;
  float* out;
  size_t count;
} contestant_t;

static void run_kernel(void* self, int64_t iterations) {
  contestant_t* c = self;
  math_loop_t loop = math_kernel_loop(c->kernel);
  for (int64_t k = 0; k < iterations; k++) loop(c->x, c->y, c->y, c->out, c->count);
}

// A function comes out of dlsym as an object pointer; POSIX says that the copy is right.
#define LIBMVEC_LOOP(name, isa, width, type, store, ...)                                 \
  __attribute__((target(isa))) static void name(void* self, int64_t iterations) {        \
    contestant_t* c = self;                                                              \
    const float *x = c->x, *y = c->y;                                                    \
    float* out = c->out;                                                                 \
    size_t count = c->count;                                                             \
    type function;                                                                       \
    memcpy(&function, &c->libmvec, sizeof(function));                                    \
    (void)y;                                                                             \
    for (int64_t k = 0; k < iterations; k++) {                                           \
      for (size_t i = 0; i < count; i += (width)) store(out + i, function(__VA_ARGS__)); \
    }                                                                                    \
  }
LIBMVEC_LOOP(run_8, "avx2,fma", 8, libmvec_8_t, _mm256_storeu_ps, _mm256_loadu_ps(x + i))
LIBMVEC_LOOP(run_16, "avx512f", 16, libmvec_16_t, _mm512_storeu_ps, _mm512_loadu_ps(x + i))
LIBMVEC_LOOP(run_8_2, "avx2,fma", 8, libmvec_8_2_t, _mm256_storeu_ps, _mm256_loadu_ps(x + i),
             _mm256_loadu_ps(y + i))
LIBMVEC_LOOP(run_16_2, "avx512f", 16, libmvec_16_2_t, _mm512_storeu_ps, _mm512_loadu_ps(x + i),
             _mm512_loadu_ps(y + i))

static void run_copy(void* self, int64_t iterations) {
  contestant_t* c = self;
  for (int64_t k = 0; k < iterations; k++) {
    memcpy(c->out, c->x, c->count * sizeof(float));
    bench_keep(c->out);
  }
}

// What is compared: arguments are uniform between low and high.
typedef struct {
  qn_op_t op;
  const char* name;
  double low, high;
} subject_t;

static void fill(float* to, size_t count, double low, double high) {
  uint32_t state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525U + 1013904223U;
    to[i] = (float)(low + (high - low) * (double)(state >> 8) * 0x1p-24);
  }
}

// NULL if libmvec has no such function, or this machine cannot run it.
static void* find_libmvec(void* library, const subject_t* subject, unsigned lanes) {
  if (library == NULL || !math_cpu_is_here(lanes == 8 ? "x86-64-v3" : "x86-64-v4")) return NULL;
  char name[64];
  snprintf(name, sizeof(name), "_ZGV%cN%u%s_%sf", lanes == 8 ? 'd' : 'e', lanes,
           subject->op == QN_OP_POW ? "vv" : "v", subject->name);
  return dlsym(library, name);
}

static math_kernel_t* compile(const subject_t* subject, const char* cpu, unsigned lanes) {
  if (!math_cpu_is_here(cpu)) return NULL;
  math_kernel_spec_t spec = {cpu, subject->op, false, lanes, 2, false};
  const char* error = NULL;
  math_kernel_t* kernel = math_kernel_create(&spec, &error);
  if (kernel == NULL) fprintf(stderr, "bench_exp: %s for %s: %s\n", subject->name, cpu, error);
  return kernel;
}

// All contestants over `count` elements; a row each, in nanoseconds per element.
static void race(bench_report_t* report, void* library, const subject_t* subject, float* x,
                 float* y, float* out, size_t count, size_t samples, double limit) {
  enum { COPY, PLAIN, AVX2, AVX512, LIBMVEC_8, LIBMVEC_16, MOST };
  static const char* const NAMES[MOST] = {"memcpy", "sse2",         "avx2",
                                          "avx512", "libmvec avx2", "libmvec avx512"};
  contestant_t all[MOST];
  for (size_t i = 0; i < MOST; i++)
    all[i] = (contestant_t){.x = x, .y = y, .out = out, .count = count};
  fill(x, count, subject->low, subject->high);
  fill(y, count, -5, 5);
  all[PLAIN].kernel = compile(subject, "x86-64", 4);
  all[AVX2].kernel = compile(subject, "x86-64-v3", 8);
  all[AVX512].kernel = compile(subject, "x86-64-v4", 16);
  all[LIBMVEC_8].libmvec = find_libmvec(library, subject, 8);
  all[LIBMVEC_16].libmvec = find_libmvec(library, subject, 16);

  bool has_two = subject->op == QN_OP_POW;
  void (*bodies[MOST])(void* self, int64_t iterations);
  void* selves[MOST];
  size_t who[MOST];
  size_t running = 0;
  for (size_t i = 0; i < MOST; i++) {
    void (*body)(void* self, int64_t iterations) = run_copy;
    if (i == LIBMVEC_8) {
      body = has_two ? run_8_2 : run_8;
    } else if (i == LIBMVEC_16) {
      body = has_two ? run_16_2 : run_16;
    } else if (i != COPY) {
      body = run_kernel;
    }
    if (i != COPY && all[i].kernel == NULL && all[i].libmvec == NULL) continue;
    bodies[running] = body;
    selves[running] = &all[i];
    who[running++] = i;
  }
  double ns[MOST] = {0}, by_name[MOST] = {0};
  bench_compare_ns(running, bodies, selves, 0, samples, ns);
  for (size_t i = 0; i < running; i++) by_name[who[i]] = ns[i] / (double)count;
  for (size_t i = 0; i < running; i++) {
    size_t n = who[i];
    double floor = n == AVX2 ? by_name[LIBMVEC_8] : n == AVX512 ? by_name[LIBMVEC_16] : 0;
    char name[64];
    snprintf(name, sizeof(name), "%s f32[%zu] %s", subject->name, count, NAMES[n]);
    bench_row(report, name, by_name[n], "ns", floor, floor > 0 ? limit : 0);
  }
  for (size_t i = 0; i < MOST; i++) math_kernel_free(all[i].kernel);
}

int main(int argc, char** argv) {
  enum { L1 = 1 << 12, L2 = 1 << 16, MEMORY = 1 << 24, SAMPLES = 101, FEW = 31 };
  static const subject_t EXP = {QN_OP_EXP, "exp", -10, 10};
  static const subject_t OTHERS[] = {{QN_OP_EXP2, "exp2", -10, 10},   {QN_OP_LOG, "log", 0.01, 10},
                                     {QN_OP_LOG2, "log2", 0.01, 10},  {QN_OP_TANH, "tanh", -3, 3},
                                     {QN_OP_ERF, "erf", -3, 3},       {QN_OP_SIN, "sin", -10, 10},
                                     {QN_OP_COS, "cos", -10, 10},     {QN_OP_POW, "pow", 0.01, 10},
                                     {QN_OP_RSQRT, "rsqrt", 0.01, 10}};
  bench_report_t report =
      bench_begin("math functions, ns per element",
                  "Compares the inline math functions with libmvec, on one core.", argc, argv);
  void* library = dlopen("libmvec.so.1", RTLD_NOW);
  if (library == NULL) fprintf(stderr, "bench_exp: no floor, for want of libmvec: %s\n", dlerror());
  float* x = aligned_alloc(64, MEMORY * sizeof(float));
  float* y = aligned_alloc(64, MEMORY * sizeof(float));
  float* out = aligned_alloc(64, MEMORY * sizeof(float));
  if (x == NULL || y == NULL || out == NULL) return 1;
  memset(out, 0, MEMORY * sizeof(float));
  race(&report, library, &EXP, x, y, out, L1, SAMPLES, 1.0);
  race(&report, library, &EXP, x, y, out, L2, SAMPLES, 1.0);
  race(&report, library, &EXP, x, y, out, MEMORY, FEW, 1.0);
  for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
    race(&report, library, &OTHERS[i], x, y, out, L1, FEW, 0);
  }
  free(x);
  free(y);
  free(out);
  if (library != NULL) dlclose(library);
  return bench_end(&report);
}
