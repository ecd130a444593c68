// bench/harness.c: see harness.h.
#include "bench/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLE_NS 500000
#define MAX_SAMPLES 1001
#define MAX_BODIES 16

int64_t bench_now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t bench_cpu_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int compare_doubles(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

double bench_median(double* values, size_t count) {
  qsort(values, count, sizeof *values, compare_doubles);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static int64_t choose_iterations(void (*body)(void* self, int64_t iterations), void* self) {
  for (int64_t iterations = 1;; iterations *= 2) {
    int64_t start = bench_cpu_ns();
    body(self, iterations);
    if (bench_cpu_ns() - start > SAMPLE_NS || iterations > (1 << 30)) return iterations;
  }
}

void bench_compare_ns(size_t count, void (*const* bodies)(void* self, int64_t iterations),
                      void* const* selves, int64_t iterations, size_t samples, double* out_ns) {
  static double values[MAX_BODIES][MAX_SAMPLES];
  int64_t chosen[MAX_BODIES];
  if (count > MAX_BODIES) count = MAX_BODIES;
  if (samples > MAX_SAMPLES) samples = MAX_SAMPLES;
  for (size_t i = 0; i < count; i++) {
    chosen[i] = iterations ? iterations : choose_iterations(bodies[i], selves[i]);
  }
  for (size_t s = 0; s < samples; s++) {
    for (size_t i = 0; i < count; i++) {
      int64_t start = bench_cpu_ns();
      bodies[i](selves[i], chosen[i]);
      values[i][s] = (double)(bench_cpu_ns() - start) / (double)chosen[i];
    }
  }
  for (size_t i = 0; i < count; i++) out_ns[i] = bench_median(values[i], samples);
}

double bench_run_ns(void (*body)(void* self, int64_t iterations), void* self, int64_t iterations,
                    size_t samples) {
  double ns;
  bench_compare_ns(1, &body, &self, iterations, samples, &ns);
  return ns;
}

bench_report_t bench_begin(const char* title, const char* doc, int argc, char** argv) {
  bench_report_t report = {.title = title};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) {
      report.is_json = true;
    } else {
      bool is_help = strcmp(argv[i], "--help") == 0;
      (void)fprintf(is_help ? stdout : stderr, "usage: %s [--json]\n%s\n", argv[0], doc);
      exit(is_help ? 0 : 2);
    }
  }
  if (report.is_json) {
    (void)printf("{\"title\": \"%s\", \"benchmarks\": [", title);
  } else {
    (void)printf("%s\n%-52s %14s %10s %8s\n", title, "", "median", "ratio", "limit");
  }
  return report;
}

void bench_row(bench_report_t* report, const char* name, double value, const char* unit,
               double floor, double limit) {
  double ratio = floor > 0 ? value / floor : 0;
  double judged = floor > 0 ? ratio : value;
  bool has_missed = limit > 0 && judged > limit;
  report->has_missed |= has_missed;
  if (report->is_json) {
    (void)printf("%s\n  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"",
                 report->row_count ? "," : "", name, value, unit);
    if (floor > 0) (void)printf(", \"floor\": %.6g, \"ratio\": %.6g", floor, ratio);
    if (limit > 0) {
      (void)printf(", \"limit\": %.6g, \"within_limit\": %s", limit, has_missed ? "false" : "true");
    }
    (void)printf("}");
  } else {
    char ratio_text[32] = "", limit_text[32] = "";
    if (floor > 0) (void)snprintf(ratio_text, sizeof ratio_text, "%.3g", ratio);
    if (limit > 0) {
      (void)snprintf(limit_text, sizeof limit_text, "%.3g%s", limit, has_missed ? " MISSED" : "");
    }
    (void)printf("%-52s %10.4g %-3s %10s %8s\n", name, value, unit, ratio_text, limit_text);
  }
  report->row_count++;
}

int bench_end(bench_report_t* report) {
  if (report->is_json) (void)printf("\n]}\n");
  return 0;
}
