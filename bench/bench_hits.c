// SPDX-License-Identifier: Apache-2.0
// Does the throughput of memory hits grow with the cores?
//
// Eight threads look up and release, all the same key or each its own, and are compared with one
// thread. The floor is the throughput of eight threads that spin and share nothing: on a machine
// with other work it is less than the number of cores. The last row has a lock per thread around
// one shared reference count: the cost of a hit without striped counts.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/harness.h"
#include "quern/quern.h"

enum { THREADS = 8, SAMPLES = 41, SAMPLE_US = 20000, BATCH = 64 };
typedef enum kind { SPIN, SHARED_COUNT, SAME_KEY, OWN_KEYS, KINDS } kind_t;

typedef struct worker {
  struct bench* bench;
  qn_module_t* module;  // its own
  pthread_t thread;
  pthread_mutex_t mutex;
  uint32_t index;
  uint64_t count;
  int64_t cpu_ns;
  char padding[128];
} worker_t;

typedef struct bench {
  qn_engine_t* engine;
  qn_target_t* target;
  worker_t workers[THREADS];
  pthread_barrier_t barrier;
  kind_t kind;
  uint32_t thread_count;
  bool is_over;
  char padding[128];
  _Atomic bool is_stopped;
  char more_padding[128];
  _Atomic uint32_t shared_count;
} bench_t;

static void look_up(bench_t* bench, qn_module_t* module) {
  for (int i = 0; i < BATCH; i++) {
    qn_executable_t* executable;
    bench_must(qn_engine_executable(bench->engine, module, bench->target, NULL, NULL, &executable));
    qn_executable_release(executable);
  }
}

static void run_batch(worker_t* worker) {
  bench_t* bench = worker->bench;
  switch (bench->kind) {
    case SPIN: {
      uint64_t x = worker->count + 1;
      for (int i = 0; i < BATCH * 16; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        bench_keep(&x);
      }
      break;
    }
    case SHARED_COUNT:
      for (int i = 0; i < BATCH; i++) {
        (void)pthread_mutex_lock(&worker->mutex);
        atomic_fetch_add_explicit(&bench->shared_count, 1, memory_order_relaxed);
        (void)pthread_mutex_unlock(&worker->mutex);
        atomic_fetch_sub_explicit(&bench->shared_count, 1, memory_order_acq_rel);
      }
      break;
    case SAME_KEY:
      look_up(bench, bench->workers[0].module);
      break;
    default:
      look_up(bench, worker->module);
      break;
  }
  worker->count += BATCH;
}

static void* run_worker(void* arg) {
  worker_t* worker = arg;
  bench_t* bench = worker->bench;
  for (;;) {
    (void)pthread_barrier_wait(&bench->barrier);
    if (bench->is_over) return NULL;
    worker->count = 0;
    int64_t start_ns = bench_cpu_ns();
    while (worker->index < bench->thread_count &&
           !atomic_load_explicit(&bench->is_stopped, memory_order_relaxed)) {
      run_batch(worker);
    }
    worker->cpu_ns = bench_cpu_ns() - start_ns;
    (void)pthread_barrier_wait(&bench->barrier);
  }
}

// Measures operations per second of wall time, and processor time per operation.
static void sample(bench_t* bench, kind_t kind, uint32_t thread_count, double* out_rate,
                   double* out_cpu_ns) {
  bench->kind = kind;
  bench->thread_count = thread_count;
  atomic_store(&bench->is_stopped, false);
  (void)pthread_barrier_wait(&bench->barrier);
  int64_t start_ns = bench_now_ns();
  (void)usleep(SAMPLE_US);
  atomic_store(&bench->is_stopped, true);
  int64_t wall_ns = bench_now_ns() - start_ns;
  (void)pthread_barrier_wait(&bench->barrier);
  uint64_t count = 0;
  int64_t cpu_ns = 0;
  for (uint32_t i = 0; i < thread_count; i++) {
    count += bench->workers[i].count;
    cpu_ns += bench->workers[i].cpu_ns;
  }
  *out_rate = (double)count * 1e9 / (double)wall_ns;
  *out_cpu_ns = count ? (double)cpu_ns / (double)count : 0;
}

static void start(bench_t* bench) {
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_mode = QN_CACHE_OFF};
  bench_must(qn_engine_create(&options, &bench->engine));
  bench_must(qn_target_parse("interp", &bench->target));
  if (pthread_barrier_init(&bench->barrier, NULL, THREADS + 1) != 0) exit(1);
  for (uint32_t i = 0; i < THREADS; i++) {
    worker_t* worker = &bench->workers[i];
    worker->bench = bench;
    worker->index = i;
    (void)pthread_mutex_init(&worker->mutex, NULL);
    char text[128];
    (void)snprintf(text, sizeof text, "func f(out y: i32[n]) { for i in 0..n { y[i] = %u; } }\n",
                   i);
    bench_must(qn_module_parse(text, strlen(text), NULL, &worker->module));
    look_up(bench, worker->module);
  }
  for (uint32_t i = 0; i < THREADS; i++) {
    worker_t* worker = &bench->workers[i];
    if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0) exit(1);
  }
}

static void finish(bench_t* bench) {
  bench->is_over = true;
  (void)pthread_barrier_wait(&bench->barrier);
  for (uint32_t i = 0; i < THREADS; i++) {
    (void)pthread_join(bench->workers[i].thread, NULL);
    qn_module_release(bench->workers[i].module);
  }
  qn_target_release(bench->target);
  qn_engine_destroy(bench->engine);
}

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("memory hits and threads",
                  "Measures how the throughput of memory hits grows with threads.", argc, argv);
  static bench_t bench;
  start(&bench);
  // For each kind: the throughput of eight threads over one, in wall time, and the processor time
  // of one operation. The samples of all kinds take turns.
  static double gains[KINDS][SAMPLES], one_ns[KINDS][SAMPLES], all_ns[KINDS][SAMPLES];
  for (size_t s = 0; s < SAMPLES; s++) {
    for (kind_t kind = SPIN; kind < KINDS; kind++) {
      double one_rate, all_rate;
      sample(&bench, kind, 1, &one_rate, &one_ns[kind][s]);
      sample(&bench, kind, THREADS, &all_rate, &all_ns[kind][s]);
      gains[kind][s] = all_rate / one_rate;
    }
  }
  finish(&bench);
  static const char* const names[KINDS] = {"spinning", "one shared count", "hits of one key",
                                           "hits of a key each"};
  const double spin_gain = bench_median(gains[SPIN], SAMPLES);
  for (kind_t kind = SPIN; kind < KINDS; kind++) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s: 8 threads' throughput over one's", names[kind]);
    bench_row(&report, name, bench_median(gains[kind], SAMPLES), "x", kind == SPIN ? 0 : spin_gain,
              0);
  }
  for (kind_t kind = SHARED_COUNT; kind < KINDS; kind++) {
    char name[96];
    double one = bench_median(one_ns[kind], SAMPLES);
    (void)snprintf(name, sizeof name, "%s: processor time, 1 thread", names[kind]);
    bench_row(&report, name, one, "ns", 0, 0);
    (void)snprintf(name, sizeof name, "%s: processor time, 8 threads", names[kind]);
    bench_row(&report, name, bench_median(all_ns[kind], SAMPLES), "ns", one, 0);
  }
  return bench_end(&report);
}
