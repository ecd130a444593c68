// SPDX-License-Identifier: Apache-2.0
// What does it cost to spread a loop over two cores?
//
// Each row is a parallel loop of the CPU device whose iterations take as long together as the name
// says, with a core budget of two, in four settings: one loop right after another, with pauses of
// 20 us and of 2 ms between them, and beside a busy thread for each core. The floor is the same
// loop on one core in the same setting.
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread.h"
#include "bench/harness.h"
#include "devices/cpu/pool.h"
#include "quern/device.h"

enum { ITERATIONS = 64, SAMPLES = 201, MAX_BUSY = 64 };

static int64_t rounds_per_us;
static _Atomic bool is_busy;

static double spin(int64_t rounds) {
  double x = 1;
  for (int64_t i = 0; i < rounds; i++) {
    x = x * 0.999 + 0.001;
    bench_keep(&x);
  }
  return x;
}

static int32_t body(const qn_cpu_env_t* env, void* closure, int64_t begin, int64_t end) {
  (void)env;
  (void)spin(*(const int64_t*)closure * (end - begin));
  return 0;
}

static void* be_busy(void* arg) {
  (void)arg;
  while (atomic_load(&is_busy)) (void)spin(1000);
  return NULL;
}

static double loop_ns(int64_t total_us, int32_t budget, int64_t pause_us) {
  static double times[SAMPLES];
  int64_t rounds = total_us * rounds_per_us / ITERATIONS;
  int64_t grain = ITERATIONS * 10 / total_us;  // 10 us, as in compiled code
  int samples = pause_us > 100 ? SAMPLES / 4 : SAMPLES;
  (void)qn_cpu_set_core_budget(budget);
  for (int s = -5; s < samples; s++) {
    if (pause_us > 100) {
      (void)nanosleep(&(struct timespec){0, pause_us * 1000}, NULL);
    } else if (pause_us > 0) {
      (void)spin(pause_us * rounds_per_us);
    }
    int64_t start = bench_now_ns();
    (void)qn__cpu_parallel(NULL, body, &rounds, ITERATIONS, grain);
    if (s >= 0) times[s] = (double)(bench_now_ns() - start);
  }
  return bench_median(times, (size_t)samples);
}

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("parallel", "Measures parallel loops on two cores against one.", argc, argv);
  int64_t start = bench_now_ns();
  (void)spin(10000000);
  rounds_per_us = INT64_C(10000000) * 1000 / (bench_now_ns() - start);
  static const int64_t lengths[] = {10, 20, 50, 200, 1000};
  static const struct {
    const char* name;
    int64_t pause_us;
    bool has_busy;
  } settings[] = {{"one after another", 0, false},
                  {"pauses of 20 us", 20, false},
                  {"pauses of 2 ms", 2000, false},
                  {"beside busy threads", 0, true}};
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    pthread_t busy[MAX_BUSY];
    int count = settings[i].has_busy ? qn_cpu_core_count() : 0;
    if (count > MAX_BUSY) count = MAX_BUSY;
    atomic_store(&is_busy, true);
    for (int t = 0; t < count; t++) {
      bench_must(qn__thread_start(&busy[t], "busy", 0, be_busy, NULL));
    }
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
      char name[96];
      double one = loop_ns(lengths[k], 1, settings[i].pause_us);
      double two = loop_ns(lengths[k], 2, settings[i].pause_us);
      (void)snprintf(name, sizeof name, "%d us, %s", (int)lengths[k], settings[i].name);
      bench_row(&report, name, two / 1e3, "us", one / 1e3, 0);
    }
    atomic_store(&is_busy, false);
    for (int t = 0; t < count; t++) (void)pthread_join(busy[t], NULL);
  }
  return bench_end(&report);
}
