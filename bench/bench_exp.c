// SPDX-License-Identifier: Apache-2.0
// How fast is the inline exp over f32 arrays, on one core, against the vector library of libc?
//
// It computes exp over an array that fits the first cache, one that fits the second and one that
// fits none: by the whole engine from IR text, by qn__llvm_math_emit in a bare loop, and by libmvec
// (_ZGVdN8v_expf with 8 lanes, _ZGVeN16v_expf with 16) in a loop of its own; then the other
// functions, without the engine. The floor of a row is libmvec at the same width. It does not
// measure accuracy (llvm_test_math --measure does). links: llvm
#include <dlfcn.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "quern/ir.h"
#include "quern/quern.h"
#include "tests/math_sweep.c"

typedef __m256 (*libmvec_8_t)(__m256);
typedef __m512 (*libmvec_16_t)(__m512);
typedef __m256 (*libmvec_8_2_t)(__m256, __m256);
typedef __m512 (*libmvec_16_2_t)(__m512, __m512);

typedef struct {
  math_kernel_t* kernel;    // ours, or NULL
  qn_function_t* function;  // the engine's, or NULL
  void* libmvec;            // the other's, a function of the type that `run` calls
  const float *x, *y;
  float* out;
  size_t count;
} contestant_t;

static void run_function(void* self, int64_t iterations) {
  contestant_t* c = self;
  int64_t shape[] = {(int64_t)c->count};
  qn_dl_dtype_t f32 = qn_dtype_to_dl(QN_DTYPE_F32);
  // The kernel does not write the tensor of an `in` parameter.
  void* data[2] = {c->out, c->out};
  memcpy(&data[0], &c->x, sizeof(c->x));
  qn_tensor_t tensors[2];
  qn_value_t args[2];
  for (int i = 0; i < 2; i++) {
    tensors[i] = (qn_tensor_t){data[i], {QN_DEVICE_CPU, 0}, 1, f32, shape, NULL, 0};
    args[i] = qn_value_tensor(&tensors[i]);
  }
  for (int64_t k = 0; k < iterations; k++) {
    if (!qn_ok(qn_function_call(c->function, args, 2, NULL))) abort();
  }
}

static void run_kernel(void* self, int64_t iterations) {
  contestant_t* c = self;
  math_loop_t loop = math_kernel_loop(c->kernel);
  for (int64_t k = 0; k < iterations; k++) loop(c->x, c->y, c->y, c->out, c->count);
}

// dlsym returns a function as an object pointer; POSIX permits the copy. What SSE
// code runs after it must not find the upper halves of the registers in use, which costs tenfold.
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
    _mm256_zeroupper();                                                                  \
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

// A function under test; arguments are uniform between low and high.
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

// Returns NULL if libmvec lacks the function, or this machine cannot run it.
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

// Compiles exp of an array for a target with the engine. Prints a message and returns NULL on
// failure.
static qn_function_t* compile_by_engine(qn_engine_t* engine, const char* target_text) {
  static const char TEXT[] =
      "func f(x: f32[n], out y: f32[n]) {\n"
      "  for i in 0..n { y[i] = exp(x[i]); }\n"
      "}\n";
  qn_module_t* module = NULL;
  qn_target_t* target = NULL;
  qn_function_t* function = NULL;
  qn_status_t status = qn_module_parse(TEXT, strlen(TEXT), NULL, &module);
  if (qn_ok(status)) status = qn_target_parse(target_text, &target);
  if (qn_ok(status)) {
    status = qn_engine_function(engine, module, target, "f", NULL, NULL, &function);
  }
  if (!qn_ok(status)) {
    fprintf(stderr, "bench_exp: %s: %s\n", target_text, qn_status_message(status));
    qn_status_free(status);
  }
  qn_target_release(target);
  qn_module_release(module);
  return function;
}

typedef struct {
  bench_report_t report;
  void* library;        // libmvec, or NULL
  qn_engine_t* engine;  // or NULL
  float *x, *y, *out;
} bench_t;

// Runs all candidates over `count` elements and prints a row for each, in nanoseconds per element.
static void race(bench_t* bench, const subject_t* subject, size_t count, size_t samples,
                 double limit) {
  enum { COPY, SSE2, AVX2, AVX512, ENGINE_8, ENGINE_16, LIBMVEC_8, LIBMVEC_16, MOST };
  static const struct {
    const char* name;
    size_t floor;
  } ROWS[MOST] = {{"memcpy", COPY},           {"sse2", COPY},
                  {"avx2", LIBMVEC_8},        {"avx512", LIBMVEC_16},
                  {"engine avx2", LIBMVEC_8}, {"engine avx512", LIBMVEC_16},
                  {"libmvec avx2", COPY},     {"libmvec avx512", COPY}};
  fill(bench->x, count, subject->low, subject->high);
  fill(bench->y, count, -5, 5);
  contestant_t all[MOST];
  for (size_t i = 0; i < MOST; i++) {
    all[i] = (contestant_t){.x = bench->x, .y = bench->y, .out = bench->out, .count = count};
  }
  all[SSE2].kernel = compile(subject, "x86-64", 4);
  all[AVX2].kernel = compile(subject, "x86-64-v3", 8);
  all[AVX512].kernel = compile(subject, "x86-64-v4", 16);
  if (bench->engine != NULL && subject->op == QN_OP_EXP) {
    if (all[AVX2].kernel != NULL) {
      all[ENGINE_8].function = compile_by_engine(bench->engine, "cpu -mcpu=x86-64-v3");
    }
    if (all[AVX512].kernel != NULL) {
      const char* target = "cpu -mcpu=x86-64-v4 -vector_width=512";
      all[ENGINE_16].function = compile_by_engine(bench->engine, target);
    }
  }
  all[LIBMVEC_8].libmvec = find_libmvec(bench->library, subject, 8);
  all[LIBMVEC_16].libmvec = find_libmvec(bench->library, subject, 16);

  bool has_two = subject->op == QN_OP_POW;
  void (*bodies[MOST])(void* self, int64_t iterations);
  void* selves[MOST];
  size_t who[MOST];
  size_t running = 0;
  for (size_t i = 0; i < MOST; i++) {
    bodies[running] = NULL;
    if (i == COPY) bodies[running] = run_copy;
    if (all[i].kernel != NULL) bodies[running] = run_kernel;
    if (all[i].function != NULL) bodies[running] = run_function;
    if (all[i].libmvec != NULL && i == LIBMVEC_8) bodies[running] = has_two ? run_8_2 : run_8;
    if (all[i].libmvec != NULL && i == LIBMVEC_16) bodies[running] = has_two ? run_16_2 : run_16;
    if (bodies[running] == NULL) continue;
    selves[running] = &all[i];
    who[running++] = i;
  }
  double ns[MOST] = {0}, by_name[MOST] = {0};
  bench_compare_ns(running, bodies, selves, 0, samples, ns);
  for (size_t i = 0; i < running; i++) by_name[who[i]] = ns[i] / (double)count;
  for (size_t i = 0; i < running; i++) {
    size_t n = who[i];
    double floor = ROWS[n].floor == COPY ? 0 : by_name[ROWS[n].floor];
    char name[64];
    snprintf(name, sizeof(name), "%s f32[%zu] %s", subject->name, count, ROWS[n].name);
    bench_row(&bench->report, name, by_name[n], "ns", floor, floor > 0 ? limit : 0);
  }
  for (size_t i = 0; i < MOST; i++) {
    math_kernel_free(all[i].kernel);
    qn_function_release(all[i].function);
  }
}

static qn_engine_t* create_engine(void) {
  qn_engine_options_t options = {.struct_size = sizeof(options), .cache_mode = QN_CACHE_OFF};
  qn_engine_t* engine = NULL;
  qn_status_t status = qn_engine_create(&options, &engine);
  if (!qn_ok(status)) {
    fprintf(stderr, "bench_exp: no engine: %s\n", qn_status_message(status));
    qn_status_free(status);
  }
  return engine;
}

int main(int argc, char** argv) {
  enum { L1 = 1 << 12, L2 = 1 << 16, MEMORY = 1 << 24, SAMPLES = 101, FEW = 31 };
  static const subject_t EXP = {QN_OP_EXP, "exp", -10, 10};
  static const subject_t OTHERS[] = {{QN_OP_EXP2, "exp2", -10, 10},
                                     {QN_OP_LOG, "log", 0.01, 10},
                                     {QN_OP_LOG2, "log2", 0.01, 10},
                                     {QN_OP_TANH, "tanh", -3, 3},
                                     {QN_OP_ERF, "erf", -3, 3},
                                     {QN_OP_SIN, "sin", -10, 10},
                                     {QN_OP_COS, "cos", -10, 10},
                                     {QN_OP_POW, "pow", 0.01, 10},
                                     {QN_OP_RSQRT, "rsqrt", 0.01, 10},
                                     {QN_OP_FMOD, "fmod", -100, 100},
                                     {QN_OP_FMOD, "fmod far", -1e20, 1e20}};
  bench_t bench = {.report = bench_begin("math functions, ns per element",
                                         "Compares the math functions with libmvec, on one core.",
                                         argc, argv)};
#ifndef __OPTIMIZE__
  fprintf(stderr, "bench_exp: built without optimisation, which is unfair to libmvec\n");
#endif
  bench.library = dlopen("libmvec.so.1", RTLD_NOW);
  if (bench.library == NULL) fprintf(stderr, "bench_exp: no libmvec: %s\n", dlerror());
  bench.engine = create_engine();
  bench.x = aligned_alloc(64, MEMORY * sizeof(float));
  bench.y = aligned_alloc(64, MEMORY * sizeof(float));
  bench.out = aligned_alloc(64, MEMORY * sizeof(float));
  if (bench.x == NULL || bench.y == NULL || bench.out == NULL) return 1;
  memset(bench.out, 0, MEMORY * sizeof(float));
  race(&bench, &EXP, L1, SAMPLES, 1.0);
  race(&bench, &EXP, L2, SAMPLES, 1.0);
  race(&bench, &EXP, MEMORY, FEW, 1.0);
  for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
    race(&bench, &OTHERS[i], L1, FEW, 0);
  }
  free(bench.x);
  free(bench.y);
  free(bench.out);
  qn_engine_destroy(bench.engine);
  if (bench.library != NULL) dlclose(bench.library);
  return bench_end(&bench.report);
}
