// SPDX-License-Identifier: Apache-2.0
// How long does a CUDA kernel take to compile, and how much of that is NVRTC?
//
// It needs NVRTC, and neither a GPU nor a driver; without NVRTC it prints a message and succeeds.
// The first compile of a process makes the tables of built-in functions: a child process times the
// first and second compile right after the generator was made, and after its thread has warmed it
// up. A kernel without statements shows the fixed cost of a call. The floor of modules is NVRTC
// alone on the same texts; the fast tier's is the full tier. links: nvrtc
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "bench/harness.h"
#include "bench/products.h"
#include "jit/nvrtc/compile.h"
#include "quern/ir.h"
#include "quern/target.h"

enum { FIRST_RUNS = 7, RUNS = 5, PRODUCT_RUNS = 3, THREADS = 2 };

static const char target_text[] = "cuda -arch=sm_90a";
static const char empty_text[] = "extern \"C\" __global__ void empty() {}\n";

static const char* const samples[] = {"saxpy", "softmax", "matmul_tile", "embed_layernorm"};
enum { SAMPLE_COUNT = sizeof samples / sizeof samples[0] };

// 256 statements in a row, each of which needs the one before it.
static const char unrolled[] =
    "func unrolled(a: f32[n, 16], b: f32[16, 16], out c: f32[n, 16]) {\n"
    "  parallel i in 0..n {\n"
    "    unroll j in 0..16 {\n"
    "      alloc total: f32[1] in local;\n"
    "      total[0] = 0.0;\n"
    "      unroll p in 0..16 { total[0] = fma(a[i, p], b[p, j], total[0]); }\n"
    "      c[i, j] = total[0];\n"
    "    }\n"
    "  }\n"
    "}\n";

// ---- one module

typedef struct work {
  qn__nvrtc_t* nvrtc;
  qn_module_t* module;
  qn_target_t* target;
  qn_compile_request_t request;
  qn__buffer_t text;  // NVRTC's input, terminated
  size_t cubin_bytes;
} work_t;

static void open_work(qn__nvrtc_t* nvrtc, const char* text, qn_tier_t tier, work_t* work) {
  *work = (work_t){.nvrtc = nvrtc};
  bench_must(qn_module_parse(text, strlen(text), NULL, &work->module));
  bench_must(qn_target_parse(target_text, &work->target));
  work->request = (qn_compile_request_t){.struct_size = sizeof work->request,
                                         .target_json = qn_target_json(work->target),
                                         .tier = tier};
  work->request.module_bytes = qn_module_bytes(work->module, &work->request.module_size);
  qn__buffer_init(&work->text, qn_allocator_default());
  bench_must(qn__nvrtc_emit(nvrtc, &work->request, "cuda", (qn_sink_t){&work->text, bench_append}));
  qn__buffer_u8(&work->text, 0);
  bench_must(qn__buffer_status(&work->text, "the text of a kernel"));
}

static void close_work(work_t* work) {
  qn__buffer_deinit(&work->text);
  qn_module_release(work->module);
  qn_target_release(work->target);
}

// Compiles canonical bytes to an artifact.
static void run_ours(void* self, int64_t iterations) {
  work_t* work = self;
  for (int64_t i = 0; i < iterations; ++i) {
    qn_artifact_t* artifact = NULL;
    bench_must(qn__nvrtc_compile(work->nvrtc, &work->request, &artifact));
    bench_keep(artifact);
    if (artifact->release) artifact->release(artifact);
  }
}

static size_t compile_text(qn__nvrtc_t* nvrtc, const char* text, qn_tier_t tier) {
  const qn__nvrtc_options_t options = {.arch = "sm_90a", .is_fast_tier = tier == QN_TIER_FAST};
  qn__buffer_t cubin, log;
  qn__buffer_init(&cubin, qn_allocator_default());
  qn__buffer_init(&log, qn_allocator_default());
  bench_must(qn__nvrtc_compiler_compile(nvrtc->compiler, &options, "bench.cu", text, &cubin, &log));
  size_t size = cubin.size;
  qn__buffer_deinit(&cubin);
  qn__buffer_deinit(&log);
  return size;
}

static void run_floor(void* self, int64_t iterations) {
  work_t* work = self;
  for (int64_t i = 0; i < iterations; ++i) {
    work->cubin_bytes = compile_text(work->nvrtc, (const char*)work->text.data, work->request.tier);
  }
}

static void run_empty(void* self, int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) (void)compile_text(self, empty_text, QN_TIER_FULL);
}

// ---- the first compiles of a process

// Prints the nanoseconds of two compiles. Without `is_warm` the first one waits for the thread that
// warms up, as after the first miss of a process.
static int run_child(bool is_warm) {
  qn__nvrtc_t* nvrtc = NULL;
  bench_must(qn__nvrtc_create(qn_allocator_default(), &nvrtc));
  if (is_warm) {
    const struct timespec pause = {2, 0};
    (void)nanosleep(&pause, NULL);
  }
  int64_t begin = bench_now_ns();
  run_empty(nvrtc, 1);
  int64_t middle = bench_now_ns();
  run_empty(nvrtc, 1);
  (void)printf("%lld %lld\n", (long long)(middle - begin), (long long)(bench_now_ns() - middle));
  qn__nvrtc_destroy(nvrtc);
  return 0;
}

static void first_compiles_ns(const char* how, double out_ns[2]) {
  double values[2][FIRST_RUNS];
  for (size_t i = 0; i < FIRST_RUNS; ++i) {
    double ns[2];
    bench_run_child(how, ns, 2);
    for (int k = 0; k < 2; ++k) values[k][i] = ns[k];
  }
  for (int k = 0; k < 2; ++k) out_ns[k] = bench_median(values[k], FIRST_RUNS);
}

static void measure_first(bench_report_t* report) {
  double cold[2], warm[2];
  first_compiles_ns("cold", cold);
  first_compiles_ns("warm", warm);
  bench_row(report, "second compile in a process, empty kernel (wall)", cold[1] / 1e6, "ms", 0, 0);
  bench_row(report, "first compile, generator just made (to second)", cold[0] / 1e6, "ms",
            cold[1] / 1e6, 0);
  bench_row(report, "first compile, warmed up (to second)", warm[0] / 1e6, "ms", warm[1] / 1e6, 0);
}

// ---- modules

static void measure_module(bench_report_t* report, qn__nvrtc_t* nvrtc, const char* name,
                           const char* text) {
  work_t full, fast;
  open_work(nvrtc, text, QN_TIER_FULL, &full);
  open_work(nvrtc, text, QN_TIER_FAST, &fast);
  void (*const bodies[])(void*, int64_t) = {run_ours, run_floor, run_ours, run_floor};
  void* const selves[] = {&full, &full, &fast, &fast};
  double ns[4];
  bench_compare_ns(4, bodies, selves, 1, RUNS, ns);
  char row[80];
  (void)snprintf(row, sizeof row, "%s, full tier (to NVRTC alone)", name);
  bench_row(report, row, ns[0] / 1e6, "ms", ns[1] / 1e6, 0);
  (void)snprintf(row, sizeof row, "%s, fast tier (to full)", name);
  bench_row(report, row, ns[2] / 1e6, "ms", ns[0] / 1e6, 0);
  (void)snprintf(row, sizeof row, "%s, cubin, fast tier (to full)", name);
  bench_row(report, row, (double)fast.cubin_bytes / 1e3, "KB", (double)full.cubin_bytes / 1e3, 0);
  close_work(&full);
  close_work(&fast);
}

static void measure_products(bench_report_t* report, qn__nvrtc_t* nvrtc) {
  enum { GROUP = BENCH_PRODUCTS_A_LAYOUT };
  for (int first = 0; first < BENCH_PRODUCTS; first += GROUP) {
    work_t works[GROUP];
    void (*bodies[GROUP])(void*, int64_t);
    void* selves[GROUP];
    double ns[GROUP];
    for (int i = 0; i < GROUP; ++i) {
      open_work(nvrtc, bench_products[first + i].text, QN_TIER_FULL, &works[i]);
      bodies[i] = run_floor;
      selves[i] = &works[i];
    }
    bench_compare_ns(GROUP, bodies, selves, 1, PRODUCT_RUNS, ns);
    for (int i = 0; i < GROUP; ++i) {
      const char* name = bench_products[first + i].name;
      char row[80];
      (void)snprintf(row, sizeof row, "%s: CUDA C", name);
      bench_row(report, row, (double)works[i].text.size / 1e3, "KB",
                i ? (double)works[0].text.size / 1e3 : 0, 0);
      (void)snprintf(row, sizeof row, "%s: cubin", name);
      bench_row(report, row, (double)works[i].cubin_bytes / 1e3, "KB",
                i ? (double)works[0].cubin_bytes / 1e3 : 0, 0);
      (void)snprintf(row, sizeof row, "%s: NVRTC", name);
      bench_row(report, row, ns[i] / 1e6, "ms", i ? ns[0] / 1e6 : 0, 0);
    }
    for (int i = 0; i < GROUP; ++i) close_work(&works[i]);
  }
}

// ---- threads

typedef struct job {
  work_t* work;
  int64_t spin_ns;  // 0: compiles
} job_t;

static void* run_job(void* self) {
  const job_t* job = self;
  if (job->spin_ns == 0) {
    run_ours(job->work, 1);
    return NULL;
  }
  int64_t begin = bench_cpu_ns();
  while (bench_cpu_ns() - begin < job->spin_ns) bench_keep(job);
  return NULL;
}

static double wall_ns(job_t* job, int thread_count) {
  pthread_t threads[THREADS];
  int64_t begin = bench_now_ns();
  for (int i = 0; i < thread_count; ++i) {
    if (pthread_create(&threads[i], NULL, run_job, job) != 0) exit(1);
  }
  for (int i = 0; i < thread_count; ++i) (void)pthread_join(threads[i], NULL);
  return (double)(bench_now_ns() - begin);
}

// The floor is two threads that share nothing, as in bench_hits: the share of a busy machine that
// two threads get.
static void measure_threads(bench_report_t* report, qn__nvrtc_t* nvrtc) {
  work_t work;
  open_work(nvrtc, bench_read_sample("softmax"), QN_TIER_FULL, &work);
  int64_t begin = bench_cpu_ns();
  run_ours(&work, 1);
  job_t jobs[2] = {{.work = &work, .spin_ns = bench_cpu_ns() - begin}, {.work = &work}};
  double values[2][RUNS], ratios[2];
  for (int r = 0; r < RUNS; ++r) {
    for (int k = 0; k < 2; ++k) {
      double one = wall_ns(&jobs[k], 1);
      values[k][r] = (double)THREADS * one / wall_ns(&jobs[k], THREADS);
    }
  }
  for (int k = 0; k < 2; ++k) ratios[k] = bench_median(values[k], RUNS);
  bench_row(report, "spinning: 2 threads' throughput over one's", ratios[0], "x", 0, 0);
  bench_row(report, "compiling: 2 threads' throughput over one's", ratios[1], "x", ratios[0], 0);
  close_work(&work);
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--child") == 0) return run_child(strcmp(argv[2], "warm") == 0);
  bench_report_t report =
      bench_begin("nvrtc", "How long a CUDA kernel takes to compile.", argc, argv);
  qn__nvrtc_t* nvrtc = NULL;
  qn_status_t status = qn__nvrtc_create(qn_allocator_default(), &nvrtc);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "bench_nvrtc: skipped: %s\n", qn_status_message(status));
    qn_status_free(status);
    return bench_end(&report);
  }
  measure_first(&report);
  void (*const empty[])(void*, int64_t) = {run_empty};
  void* const self[] = {nvrtc};
  double empty_ns;
  bench_compare_ns(1, empty, self, 1, RUNS, &empty_ns);
  bench_row(&report, "empty kernel", empty_ns / 1e6, "ms", 0, 0);
  for (size_t i = 0; i < SAMPLE_COUNT; ++i) {
    measure_module(&report, nvrtc, samples[i], bench_read_sample(samples[i]));
  }
  measure_module(&report, nvrtc, "256 statements in a row", unrolled);
  measure_products(&report, nvrtc);
  measure_threads(&report, nvrtc);
  qn__nvrtc_destroy(nvrtc);
  return bench_end(&report);
}
