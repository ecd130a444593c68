// How fast is the inline exp over f32 arrays, on one core, against the vector library of libc?
//
// What it is: exp over an array that fits the first cache and one that fits none, in medians of
// many rounds, through qn__math_emit for the processors that this machine can run, and through
// libmvec
// (_ZGVdN8v_expf with 8 lanes, _ZGVeN16v_expf with 16), which is called from a loop compiled with
// the same options. The contestants take turns within a round, so that they see the same machine.
// What it is not: a measure of accuracy (llvm_test_math --measure). links: llvm
// Run: bench_exp [--json] [--rounds N] [--op NAME]   (--op with another operation of one or
// two arguments: its namesake of libmvec, if there is one)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <immintrin.h>
#include <math.h>
#include <time.h>

#include "tests/math_sweep.c"

// A function of one argument leaves the second register alone.
typedef __m256 (*libmvec_8_t)(__m256, __m256);
typedef __m512 (*libmvec_16_t)(__m512, __m512);

static libmvec_8_t libmvec_8;
static libmvec_16_t libmvec_16;

__attribute__((target("avx2,fma"))) static void loop_libmvec_8(const void* a, const void* b,
                                                               const void* c, void* out,
                                                               uint64_t count) {
  const float *x = a, *y = b;
  float* to = out;
  (void)c;
  for (uint64_t i = 0; i < count; i += 8) {
    _mm256_storeu_ps(to + i, libmvec_8(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  }
}

__attribute__((target("avx512f"))) static void loop_libmvec_16(const void* a, const void* b,
                                                               const void* c, void* out,
                                                               uint64_t count) {
  const float *x = a, *y = b;
  float* to = out;
  (void)c;
  for (uint64_t i = 0; i < count; i += 16) {
    _mm512_storeu_ps(to + i, libmvec_16(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
  }
}

static void loop_copy(const void* a, const void* b, const void* c, void* out, uint64_t count) {
  (void)b, (void)c;
  memcpy(out, a, count * sizeof(float));
}

typedef struct {
  const char* name;
  unsigned lanes;
  math_loop_t loop;
  math_kernel_t* kernel;
} contestant_t;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

enum { MOST = 8, MOST_ROUNDS = 1001 };

static contestant_t contestants[MOST];
static size_t contestant_count;

static void add_ours(qn_op_t op, const char* name, const char* cpu, unsigned lanes) {
  if (!math_cpu_is_here(cpu)) return;
  math_kernel_spec_t spec = {cpu, op, false, lanes, 2, false};
  const char* error = NULL;
  math_kernel_t* kernel = math_kernel_create(&spec, &error);
  if (kernel == NULL) {
    fprintf(stderr, "bench_exp: %s: %s\n", cpu, error);
    return;
  }
  contestants[contestant_count++] = (contestant_t){name, lanes, math_kernel_loop(kernel), kernel};
}

static void add_libmvec(const char* op) {
  void* library = dlopen("libmvec.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "bench_exp: no libmvec: %s\n", dlerror());
    return;
  }
  // A function comes out of dlsym as an object pointer; POSIX says the copy is right.
  const char* arguments = strcmp(op, "pow") == 0 ? "vv" : "v";
  char name[64];
  snprintf(name, sizeof(name), "_ZGVdN8%s_%sf", arguments, op);
  void* symbol = dlsym(library, name);
  memcpy(&libmvec_8, &symbol, sizeof(libmvec_8));
  snprintf(name, sizeof(name), "_ZGVeN16%s_%sf", arguments, op);
  symbol = dlsym(library, name);
  memcpy(&libmvec_16, &symbol, sizeof(libmvec_16));
  if (libmvec_8 != NULL && math_cpu_is_here("x86-64-v3")) {
    contestants[contestant_count++] = (contestant_t){"libmvec avx2", 8, loop_libmvec_8, NULL};
  }
  if (libmvec_16 != NULL && math_cpu_is_here("x86-64-v4")) {
    contestants[contestant_count++] = (contestant_t){"libmvec avx512", 16, loop_libmvec_16, NULL};
  }
}

typedef struct {
  double median_ns, best_ns;
} times_t;

// Nanoseconds per element of each contestant, in turns.
static void race(const float* in, float* out, size_t count, size_t repeat, size_t rounds,
                 times_t* times) {
  static double samples[MOST][MOST_ROUNDS];
  for (size_t r = 0; r < rounds + 2; r++) {
    for (size_t i = 0; i < contestant_count; i++) {
      double start = now_ns();
      for (size_t k = 0; k < repeat; k++) contestants[i].loop(in, in, in, out, count);
      // The first two rounds warm up.
      if (r >= 2) samples[i][r - 2] = (now_ns() - start) / (double)(repeat * count);
    }
  }
  for (size_t i = 0; i < contestant_count; i++) {
    qsort(samples[i], rounds, sizeof(double), by_value);
    times[i] = (times_t){samples[i][rounds / 2], samples[i][0]};
  }
}

int main(int argc, char** argv) {
  bool json = false;
  size_t rounds = 101;
  const char* op_name = "exp";
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) json = true;
    if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = strtoul(argv[++i], NULL, 10);
    if (strcmp(argv[i], "--op") == 0 && i + 1 < argc) op_name = argv[++i];
  }
  if (rounds < 1 || rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
  static const struct {
    qn_op_t op;
    const char* name;
  } OPS[] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) {QN_OP_##name, text},
#include "quern/ops.inc"
#undef QN_OP
  };
  qn_op_t op = QN_OP_NONE;
  for (size_t i = 0; i < sizeof(OPS) / sizeof(OPS[0]); i++) {
    if (strcmp(OPS[i].name, op_name) == 0) op = OPS[i].op;
  }
  contestants[contestant_count++] = (contestant_t){"memcpy", 1, loop_copy, NULL};
  add_ours(op, "quern x86-64", "x86-64", 4);
  add_ours(op, "quern avx2", "x86-64-v3", 8);
  add_libmvec(op_name);
  add_ours(op, "quern avx512", "x86-64-v4", 16);

  static const struct {
    const char* name;
    size_t count, repeat, most_rounds;
  } SIZES[] = {{"L1, 2^12", 1 << 12, 256, MOST_ROUNDS},
               {"L2, 2^16", 1 << 16, 16, MOST_ROUNDS},
               {"memory, 2^24", 1 << 24, 1, 31}};
  enum { SIZE_COUNT = sizeof(SIZES) / sizeof(SIZES[0]), LARGEST = 1 << 24 };
  float* in = aligned_alloc(64, LARGEST * sizeof(float));
  float* out = aligned_alloc(64, LARGEST * sizeof(float));
  if (in == NULL || out == NULL) return 1;
  for (size_t i = 0; i < LARGEST; i++)
    in[i] = (float)((double)(i * 2654435761U % 65536) / 65536 * 20 - 10);
  memset(out, 0, LARGEST * sizeof(float));

  if (json)
    printf("{\"benchmark\": \"exp\", \"op\": \"%s\", \"unit\": \"ns per element\", \"rows\": [",
           op_name);
  const char* separator = "";
  for (size_t s = 0; s < SIZE_COUNT; s++) {
    times_t times[MOST];
    size_t n = rounds < SIZES[s].most_rounds ? rounds : SIZES[s].most_rounds;
    race(in, out, SIZES[s].count, SIZES[s].repeat, n, times);
    if (!json)
      printf("%s over %s f32, %zu rounds\n  %-16s %10s %10s   bytes of code\n", op_name,
             SIZES[s].name, n, "", "median ns", "best ns");
    for (size_t i = 0; i < contestant_count; i++) {
      const contestant_t* c = &contestants[i];
      size_t bytes = c->kernel == NULL ? 0 : math_kernel_size_bytes(c->kernel);
      if (json) {
        printf(
            "%s\n  {\"count\": %zu, \"name\": \"%s\", \"lanes\": %u, \"median\": %.4f, \"best\": "
            "%.4f, \"rounds\": %zu}",
            separator, SIZES[s].count, c->name, c->lanes, times[i].median_ns, times[i].best_ns, n);
        separator = ",";
      } else {
        printf("  %-16s %10.4f %10.4f", c->name, times[i].median_ns, times[i].best_ns);
        if (bytes != 0) printf("   %zu", bytes);
        printf("\n");
      }
    }
  }
  if (json) printf("\n]}\n");
  for (size_t i = 0; i < contestant_count; i++) math_kernel_free(contestants[i].kernel);
  free(in);
  free(out);
  return 0;
}
