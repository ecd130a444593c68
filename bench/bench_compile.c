// SPDX-License-Identifier: Apache-2.0
// How long do the samples take to compile, and how fast is their code?
//
// The floor is LLVM's default<O2> on the same loops as scalar code, in the same process (stages.h).
// Our compile time is the whole compile(), from canonical bytes to an image that was linked twice;
// the floor's is emission, default<O2> and the code generator. Both kernels run on one core, and
// their results are compared. links: llvm
#define _GNU_SOURCE  // MAP_ANONYMOUS
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/harness.h"
#include "bench/stages.h"
#include "devices/cpu/cpu.h"
#include "jit/llvm/compile.h"
#include "quern/ir.h"

enum { SAMPLE_COUNT = 6, MAX_WORDS = 12, COMPILE_RUNS = 25, CODE_RUNS = 61 };

// The call of a sample: each word is a buffer of `count` elements, or a number.
typedef struct word {
  enum { END, F32_IN, F32_OUT, I64_IDS, F32_SCALAR, I64 } kind;
  int64_t value;  // elements; the number; for ids the elements, all below ID_LIMIT
} word_t;

enum { ID_LIMIT = 1000 };

typedef struct sample {
  const char* name;
  const char* file;
  const char* shape;
  double code_limit;  // ours over the floor
  word_t words[MAX_WORDS];
} sample_t;

static const sample_t samples[SAMPLE_COUNT] = {
    {"softmax",
     "softmax",
     "[64, 512]",
     1,
     {{F32_IN, 64 * 512}, {F32_OUT, 64 * 512}, {I64, 64}, {I64, 512}}},
    {"matmul",
     "matmul_tile",
     "256^3",
     1.0 / 3,
     {{F32_IN, 256 * 256},
      {F32_IN, 256 * 256},
      {F32_OUT, 256 * 256},
      {I64, 256},
      {I64, 256},
      {I64, 256}}},
    {"embed_layernorm",
     "embed_layernorm",
     "[8, 64, 384]",
     1,
     {{I64_IDS, 8 * 64},
      {F32_IN, ID_LIMIT * 384},
      {F32_IN, 64 * 384},
      {F32_IN, 384},
      {F32_IN, 384},
      {F32_SCALAR, 0},
      {F32_OUT, 8 * 64 * 384},
      {I64, 8},
      {I64, 64},
      {I64, ID_LIMIT},
      {I64, 384},
      {I64, 64}}},
    {"saxpy",
     "saxpy",
     "64 Ki",
     1,
     {{F32_SCALAR, 0}, {F32_IN, 65536}, {F32_OUT, 65536}, {I64, 65536}}},
    {"transpose",
     "transpose_shared",
     "[512, 384]",
     1,
     {{F32_IN, 512 * 384}, {F32_OUT, 512 * 384}, {I64, 512}, {I64, 384}}},
    {"centre",
     "two_launches",
     "[256, 512]",
     1,
     {{F32_IN, 256 * 512}, {F32_OUT, 256 * 512}, {I64, 256}, {I64, 512}}},
};

static void* must_alloc(size_t count, size_t size) {
  void* memory = calloc(count, size);
  if (!memory) exit(1);
  return memory;
}

static qn_module_t* read_module(const char* name) {
  const char* text = bench_read_sample(name);
  qn_module_t* module;
  bench_must(qn_module_parse(text, strlen(text), NULL, &module));
  return module;
}

// -------------------------------------------------------------------------------- compile

enum { WAY_COUNT = 3 };

typedef struct times {
  double stage[WAY_COUNT][STAGE_COUNT];  // medians
  double floor;                          // emission, default<O2>, code generator
  double full, fast;                     // the whole compile()
} times_t;

static double whole_compile(qn__llvm_t* llvm, const qn_module_t* module, const qn_target_t* target,
                            qn_tier_t tier, double* out_bytes) {
  qn_compile_request_t request = {
      .struct_size = sizeof request, .target_json = qn_target_json(target), .tier = tier};
  request.module_bytes = qn_module_bytes(module, &request.module_size);
  int64_t start = bench_cpu_ns();
  qn_artifact_t* artifact;
  bench_must(qn__llvm_compile(llvm, &request, &artifact));
  double ns = (double)(bench_cpu_ns() - start);
  if (out_bytes) *out_bytes = (double)artifact->payload_size;
  artifact->release(artifact);
  return ns;
}

// Times the ways in turns, without the first round of the process.
static times_t time_compiles(qn__llvm_t* llvm, const qn_module_t* module,
                             const qn_target_t* target) {
  static double stage[WAY_COUNT][STAGE_COUNT][COMPILE_RUNS], floor_ns[COMPILE_RUNS],
      whole[2][COMPILE_RUNS];
  for (int run = -1; run < COMPILE_RUNS; ++run) {
    int at = run < 0 ? 0 : run;
    for (int way = 0; way < WAY_COUNT; ++way) {
      stages_t stages;
      bench_must(stages_run(&llvm->pool, module, target, (way_t)way, &stages));
      for (int i = 0; i < STAGE_COUNT; ++i) stage[way][i][at] = stages.ns[i];
      if (way == WAY_SCALAR_O2) {
        floor_ns[at] = stages.ns[STAGE_EMIT] + stages.ns[STAGE_LLVM] + stages.ns[STAGE_CODE];
      }
      free(stages.image);
    }
    whole[0][at] = whole_compile(llvm, module, target, QN_TIER_FULL, NULL);
    whole[1][at] = whole_compile(llvm, module, target, QN_TIER_FAST, NULL);
  }
  times_t times;
  for (int way = 0; way < WAY_COUNT; ++way) {
    for (int i = 0; i < STAGE_COUNT; ++i) {
      times.stage[way][i] = bench_median(stage[way][i], COMPILE_RUNS);
    }
  }
  times.floor = bench_median(floor_ns, COMPILE_RUNS);
  times.full = bench_median(whole[0], COMPILE_RUNS);
  times.fast = bench_median(whole[1], COMPILE_RUNS);
  return times;
}

static void report_compiles(bench_report_t* report, const times_t* times) {
  char name[96];
  for (int s = 0; s < SAMPLE_COUNT; ++s) {
    (void)snprintf(name, sizeof name, "%s: default<O2> of scalar loops", samples[s].name);
    bench_row(report, name, times[s].floor / 1e6, "ms", 0, 0);
    (void)snprintf(name, sizeof name, "%s: compile, full tier", samples[s].name);
    bench_row(report, name, times[s].full / 1e6, "ms", times[s].floor / 1e6, 1);
    (void)snprintf(name, sizeof name, "%s: compile, fast tier (to full)", samples[s].name);
    bench_row(report, name, times[s].fast / 1e6, "ms", times[s].full / 1e6, 0.25);
  }
  double floor_sum = 0, full_sum = 0, fast_sum = 0;
  for (int s = 0; s < SAMPLE_COUNT; ++s) {
    floor_sum += times[s].floor;
    full_sum += times[s].full;
    fast_sum += times[s].fast;
  }
  bench_row(report, "all six: default<O2> of scalar loops", floor_sum / 1e6, "ms", 0, 0);
  bench_row(report, "all six: compile, full tier", full_sum / 1e6, "ms", floor_sum / 1e6, 1);
  bench_row(report, "all six: compile, fast tier (to full)", fast_sum / 1e6, "ms", full_sum / 1e6,
            0.25);
  static const char* const ways[WAY_COUNT] = {"full", "fast", "scalar, O2"};
  for (int way = 0; way < WAY_COUNT; ++way) {
    for (int i = 0; i < STAGE_COUNT; ++i) {
      double sum = 0;
      for (int s = 0; s < SAMPLE_COUNT; ++s) sum += times[s].stage[way][i];
      (void)snprintf(name, sizeof name, "  of all six, %s: %s", ways[way], stage_texts[i]);
      bench_row(report, name, sum / 1e6, "ms", 0, 0);
    }
  }
}

// A product with unknown extents against the same loops without register tiles (stages.h runs the
// passes without them), and the bytes of both.
static void report_product(bench_report_t* report, qn__llvm_t* llvm, const qn_target_t* target) {
  static const char text[] =
      "func product(a: f32[n, k], b: f32[k, m], inout c: f32[n, m]) {\n"
      "  parallel i in 0..n { parallel j in 0..m {\n"
      "    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] };\n"
      "  } }\n}\n";
  qn_module_t* module;
  bench_must(qn_module_parse(text, strlen(text), NULL, &module));
  static double loops[COMPILE_RUNS], tiles[COMPILE_RUNS];
  double loop_bytes = 0, tile_bytes = 0;
  for (int run = -1; run < COMPILE_RUNS; ++run) {
    int at = run < 0 ? 0 : run;
    stages_t stages;
    bench_must(stages_run(&llvm->pool, module, target, WAY_FULL, &stages));
    loops[at] = 0;
    for (int i = 0; i < STAGE_COUNT; ++i) loops[at] += stages.ns[i];
    loop_bytes = (double)stages.image_size;
    free(stages.image);
    tiles[at] = whole_compile(llvm, module, target, QN_TIER_FULL, &tile_bytes);
  }
  qn_module_release(module);
  double floor = bench_median(loops, COMPILE_RUNS) / 1e6;
  bench_row(report, "product of any extents: compile of plain loops", floor, "ms", 0, 0);
  bench_row(report, "product of any extents: compile, full tier",
            bench_median(tiles, COMPILE_RUNS) / 1e6, "ms", floor, 1.5);
  bench_row(report, "product of any extents: code of plain loops", loop_bytes, "bytes", 0, 0);
  bench_row(report, "product of any extents: code, full tier", tile_bytes, "bytes", 0, 0);
}

// -------------------------------------------------------------------------------- code

typedef struct kernel {
  qn_cpu_kernel_t entry;
  void* code;
  size_t code_size;
  uint64_t words[MAX_WORDS];
  float* result;
  size_t result_count;
} kernel_t;

static void load_code(kernel_t* kernel, stages_t* stages) {
  kernel->code_size = stages->image_size;
  kernel->code =
      mmap(NULL, kernel->code_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (kernel->code == MAP_FAILED) exit(1);
  memcpy(kernel->code, stages->image, stages->image_size);
  if (mprotect(kernel->code, kernel->code_size, PROT_READ | PROT_EXEC) != 0) exit(1);
  const uint8_t* entry = (const uint8_t*)kernel->code + stages->entry_offset;
  memcpy(&kernel->entry, &entry, sizeof entry);
  free(stages->image);
}

// Makes the words of a call; inputs are the same for every kernel of a sample.
static void make_words(kernel_t* kernel, const sample_t* sample) {
  uint32_t state = 1;
  for (int w = 0; w < MAX_WORDS && sample->words[w].kind != END; ++w) {
    size_t count = (size_t)sample->words[w].value;
    float scalar = 0.75f;
    switch (sample->words[w].kind) {
      case F32_IN:
      case F32_OUT: {
        void* memory = NULL;
        if (posix_memalign(&memory, 64, count * sizeof(float)) != 0) exit(1);
        float* data = memory;
        for (size_t i = 0; i < count; ++i) {
          state = state * 1664525u + 1013904223u;
          data[i] = (float)(state >> 8) / (float)(1 << 23) - 1;
        }
        kernel->words[w] = (uintptr_t)data;
        if (sample->words[w].kind == F32_OUT) {
          kernel->result = data;
          kernel->result_count = count;
        }
        break;
      }
      case I64_IDS: {
        int64_t* ids = must_alloc(count, sizeof *ids);
        for (size_t i = 0; i < count; ++i) ids[i] = (int64_t)(i * 37) % ID_LIMIT;
        kernel->words[w] = (uintptr_t)ids;
        break;
      }
      case F32_SCALAR: {
        uint32_t bits;
        memcpy(&bits, &scalar, sizeof bits);
        kernel->words[w] = bits;
        break;
      }
      case I64:
        kernel->words[w] = (uint64_t)count;
        break;
      case END:
        break;
    }
  }
}

static void run_kernel(void* self, int64_t iterations) {
  kernel_t* kernel = self;
  for (int64_t i = 0; i < iterations; ++i) {
    qn__cpu_call_t call;
    qn__cpu_call_init(&call);
    if (kernel->entry(&call.env, kernel->words) != 0) abort();
  }
}

static void check_results(const sample_t* sample, const kernel_t* kernels) {
  for (size_t i = 0; i < kernels[0].result_count; ++i) {
    float a = kernels[0].result[i], b = kernels[1].result[i];
    if (fabsf(a - b) <= 1e-4f * (1 + fabsf(b))) continue;
    (void)fprintf(stderr, "bench_compile: %s differs at %zu: %g and %g\n", sample->name, i,
                  (double)a, (double)b);
    exit(1);
  }
}

static void report_code(bench_report_t* report, qn__llvm_t* llvm, const sample_t* sample,
                        const qn_module_t* module, const qn_target_t* target) {
  static const way_t ways[] = {WAY_SCALAR_O2, WAY_FULL, WAY_FAST};
  kernel_t kernels[3];
  memset(kernels, 0, sizeof kernels);
  void (*bodies[3])(void*, int64_t);
  void* selves[3];
  for (int i = 0; i < 3; ++i) {
    stages_t stages;
    bench_must(stages_run(&llvm->pool, module, target, ways[i], &stages));
    load_code(&kernels[i], &stages);
    make_words(&kernels[i], sample);
    bodies[i] = run_kernel;
    selves[i] = &kernels[i];
    run_kernel(&kernels[i], 1);
  }
  check_results(sample, kernels);
  check_results(sample, kernels + 1);
  double ns[3];
  bench_compare_ns(3, bodies, selves, 0, CODE_RUNS, ns);
  char name[96];
  (void)snprintf(name, sizeof name, "%s %s: code of default<O2>", sample->name, sample->shape);
  bench_row(report, name, ns[0] / 1000, "us", 0, 0);
  (void)snprintf(name, sizeof name, "%s %s: code of the full tier", sample->name, sample->shape);
  bench_row(report, name, ns[1] / 1000, "us", ns[0] / 1000, sample->code_limit);
  (void)snprintf(name, sizeof name, "%s %s: code of the fast tier", sample->name, sample->shape);
  bench_row(report, name, ns[2] / 1000, "us", ns[0] / 1000, 0);
  for (int i = 0; i < 3; ++i) (void)munmap(kernels[i].code, kernels[i].code_size);
}

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("compiling the samples, and their code, against default<O2> of scalar loops",
                  "Measures the llvm generator's tiers and the code that they make.", argc, argv);
  qn__llvm_t* llvm;
  qn_target_t* target;
  qn_module_t* modules[SAMPLE_COUNT];
  bench_must(qn__llvm_create(qn_allocator_default(), &llvm));
  bench_must(qn_target_parse("cpu", &target));
  (void)qn_cpu_set_core_budget(1);
  times_t times[SAMPLE_COUNT];
  for (int s = 0; s < SAMPLE_COUNT; ++s) {
    modules[s] = read_module(samples[s].file);
    times[s] = time_compiles(llvm, modules[s], target);
  }
  report_compiles(&report, times);
  report_product(&report, llvm, target);
  for (int s = 0; s < SAMPLE_COUNT; ++s) {
    report_code(&report, llvm, &samples[s], modules[s], target);
    qn_module_release(modules[s]);
  }
  qn_target_release(target);
  qn__llvm_destroy(llvm);
  return bench_end(&report);
}
