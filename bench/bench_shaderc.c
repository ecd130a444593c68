// SPDX-License-Identifier: Apache-2.0
// How long does a Vulkan kernel take to compile, and how much of that is shaderc?
//
// The first compile in a process makes glslang's tables of built-in functions. A child process
// times it right after the generator was made (cold), and after its thread has warmed it up. The
// floor of the others is shaderc alone on the same texts; the rest is decoding, mapping and
// printing. links: shaderc
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "bench/harness.h"
#include "bench/products.h"
#include "jit/shaderc/compile.h"
#include "quern/ir.h"
#include "quern/target.h"

enum { FIRST_RUNS = 9, RUNS = 7, PRODUCT_RUNS = 3 };

static const char target_text[] =
    "{\"kind\":\"vulkan\",\"supports_int64\":true,\"supports_storage_16bit\":true,"
    "\"supports_storage_8bit\":true,\"max_threads_per_block\":1024,\"max_block_size_x\":1024,"
    "\"max_shared_memory_per_block\":32768}";

static const char* const samples[] = {"saxpy",           "softmax",          "matmul_tile",
                                      "embed_layernorm", "transpose_shared", "two_launches"};
enum { SAMPLE_COUNT = sizeof samples / sizeof samples[0] };

// ---- one sample

typedef struct work {
  qn__shaderc_t* shaderc;
  qn_module_t* module;
  qn_target_t* target;
  qn_compile_request_t request;
  qn__buffer_t glsl;  // the texts of all kernels, each terminated
} work_t;

static void open_text(qn__shaderc_t* shaderc, const char* text, size_t size, qn_tier_t tier,
                      work_t* work) {
  *work = (work_t){.shaderc = shaderc};
  bench_must(qn_module_parse(text, size, NULL, &work->module));
  bench_must(qn_target_parse(target_text, &work->target));
  work->request = (qn_compile_request_t){.struct_size = sizeof work->request,
                                         .target_json = qn_target_json(work->target),
                                         .tier = tier};
  work->request.module_bytes = qn_module_bytes(work->module, &work->request.module_size);
  qn__buffer_init(&work->glsl, qn_allocator_default());
  if (shaderc) {
    bench_must(
        qn__shaderc_emit(shaderc, &work->request, "glsl", (qn_sink_t){&work->glsl, bench_append}));
  }
}

static void open_work(qn__shaderc_t* shaderc, const char* name, qn_tier_t tier, work_t* work) {
  const char* text = bench_read_sample(name);
  open_text(shaderc, text, strlen(text), tier, work);
}

static void close_work(work_t* work) {
  qn__buffer_deinit(&work->glsl);
  qn_module_release(work->module);
  qn_target_release(work->target);
}

static void compile_once(work_t* work) {
  qn_artifact_t* artifact = NULL;
  bench_must(qn__shaderc_compile(work->shaderc, &work->request, &artifact));
  bench_keep(artifact);
  if (artifact->release) artifact->release(artifact);
}

static void run_ours(void* self, int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) compile_once(self);
}

// Compiles the texts, which follow one another; each begins with a comment.
static void run_floor(void* self, int64_t iterations) {
  work_t* work = self;
  qn__shaderc_options_t options = {
      .vulkan_minor = 2, .spirv_minor = 5, .is_optimized = work->request.tier == QN_TIER_FULL};
  for (int64_t i = 0; i < iterations; ++i) {
    const char* at = (const char*)work->glsl.data;
    while (at && *at) {
      const char* begin = strstr(at, "#version");
      if (!begin) break;
      const char* next = strstr(begin, "\n// kernel ");
      size_t size = next ? (size_t)(next - begin) : strlen(begin);
      qn__buffer_t words, messages;
      qn__buffer_init(&words, qn_allocator_default());
      qn__buffer_init(&messages, qn_allocator_default());
      bench_must(qn__shaderc_compiler_compile(work->shaderc->compiler, &options, "kernel.comp",
                                              (qn_str_t){begin, size}, &words, &messages));
      qn__buffer_deinit(&words);
      qn__buffer_deinit(&messages);
      at = next;
    }
  }
}

// ---- the first compile of a process

static int run_child(const char* how) {
  qn__shaderc_t* shaderc = NULL;
  work_t work;
  open_work(NULL, "saxpy", QN_TIER_FAST, &work);
  bench_must(qn__shaderc_create(qn_allocator_default(), &shaderc));
  work.shaderc = shaderc;
  if (strcmp(how, "warm") == 0) {
    const struct timespec pause = {0, 600000000};
    (void)nanosleep(&pause, NULL);
  }
  int64_t begin = bench_now_ns();
  compile_once(&work);
  (void)printf("%lld\n", (long long)(bench_now_ns() - begin));
  close_work(&work);
  qn__shaderc_destroy(shaderc);
  return 0;
}

static double first_compile_ns(const char* how) {
  double values[FIRST_RUNS];
  for (size_t i = 0; i < FIRST_RUNS; ++i) {
    bench_run_child(how, &values[i], 1);
  }
  return bench_median(values, FIRST_RUNS);
}

// ---- products

static double spirv_bytes(work_t* work) {
  qn__buffer_t words;
  qn__buffer_init(&words, qn_allocator_default());
  bench_must(
      qn__shaderc_emit(work->shaderc, &work->request, "spirv", (qn_sink_t){&words, bench_append}));
  double size = (double)words.size;
  qn__buffer_deinit(&words);
  return size;
}

static void measure_products(bench_report_t* report, qn__shaderc_t* shaderc) {
  enum { GROUP = BENCH_PRODUCTS_A_LAYOUT };
  for (int first = 0; first < BENCH_PRODUCTS; first += GROUP) {
    work_t works[GROUP];
    void (*bodies[GROUP])(void*, int64_t);
    void* selves[GROUP];
    double ns[GROUP], floor_bytes = 0;
    for (int i = 0; i < GROUP; ++i) {
      const char* text = bench_products[first + i].text;
      open_text(shaderc, text, strlen(text), QN_TIER_FULL, &works[i]);
      bodies[i] = run_floor;
      selves[i] = &works[i];
    }
    bench_compare_ns(GROUP, bodies, selves, 1, PRODUCT_RUNS, ns);
    for (int i = 0; i < GROUP; ++i) {
      char row[80];
      double bytes = spirv_bytes(&works[i]);
      (void)snprintf(row, sizeof row, "%s: SPIR-V", bench_products[first + i].name);
      bench_row(report, row, bytes / 1e3, "KB", floor_bytes / 1e3, 0);
      (void)snprintf(row, sizeof row, "%s: shaderc", bench_products[first + i].name);
      bench_row(report, row, ns[i] / 1e6, "ms", i ? ns[0] / 1e6 : 0, 0);
      if (i == 0) floor_bytes = bytes;
    }
    for (int i = 0; i < GROUP; ++i) close_work(&works[i]);
  }
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--child") == 0) return run_child(argv[2]);
  bench_report_t report =
      bench_begin("shaderc", "How long a Vulkan kernel takes to compile.", argc, argv);
  double warm = first_compile_ns("warm");
  double cold = first_compile_ns("cold");
  bench_row(&report, "first compile, warmed up: saxpy", warm / 1e6, "ms", 0, 0);
  bench_row(&report, "first compile, cold: saxpy", cold / 1e6, "ms", warm / 1e6, 0);
  qn__shaderc_t* shaderc = NULL;
  bench_must(qn__shaderc_create(qn_allocator_default(), &shaderc));
  for (uint32_t k = 0; k < 2; ++k) {
    for (size_t i = 0; i < SAMPLE_COUNT; ++i) {
      work_t work;
      open_work(shaderc, samples[i], k ? QN_TIER_FAST : QN_TIER_FULL, &work);
      compile_once(&work);
      void (*const bodies[])(void*, int64_t) = {run_ours, run_floor};
      void* const selves[] = {&work, &work};
      double ns[2];
      bench_compare_ns(2, bodies, selves, 2, RUNS, ns);
      char name[64];
      (void)snprintf(name, sizeof name, "%s, %s tier", samples[i], k ? "fast" : "full");
      bench_row(&report, name, ns[0] / 1e6, "ms", ns[1] / 1e6, 0);
      close_work(&work);
    }
  }
  measure_products(&report, shaderc);
  qn__shaderc_destroy(shaderc);
  return bench_end(&report);
}
