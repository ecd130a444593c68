// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// bench/harness.c: see harness.h.
#include "bench/harness.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"

#define SAMPLE_NS 500000
#define MAX_SAMPLES 1001
#define MAX_BODIES 16

void bench_give_up(const char* message) {
  (void)fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
  exit(1);
}

void bench_must(qn_status_t status) {
  if (!qn_ok(status)) bench_give_up(qn_status_message(status));
}

void bench_make_directory(const char* parent, char out_path[64]) {
  (void)snprintf(out_path, 64, "%s/quern-bench-XXXXXX", parent);
  if (!mkdtemp(out_path)) bench_give_up("cannot make a temporary directory");
}

static int remove_one(const char* path, const struct stat* info, int type, struct FTW* at) {
  (void)info, (void)type, (void)at;
  return remove(path);
}

void bench_remove_directory(const char* path) {
  (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char* bench_read_sample(const char* name) {
  static char text[1 << 16];
  (void)snprintf(text, sizeof text, "%s/examples/ir/%s.qn", QN_SOURCE_DIR, name);
  FILE* file = fopen(text, "rb");
  size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (!file || size == 0 || size == sizeof text - 1) bench_give_up("cannot read a sample");
  (void)fclose(file);
  text[size] = '\0';
  return text;
}

void bench_run_child(const char* argument, double* out_numbers, size_t count) {
  int ends[2];
  if (pipe(ends) != 0) bench_give_up("cannot make a pipe");
  pid_t child = fork();
  if (child == 0) {
    (void)dup2(ends[1], 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)execl("/proc/self/exe", program_invocation_short_name, "--child", argument, (char*)NULL);
    _exit(127);
  }
  (void)close(ends[1]);
  char text[128] = "";
  ssize_t size = read(ends[0], text, sizeof text - 1);
  (void)close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0 || size <= 0) {
    bench_give_up("a child process failed");
  }
  char* at = text;
  for (size_t i = 0; i < count; i++) out_numbers[i] = strtod(at, &at);
}

qn_status_t bench_append(void* buffer, const void* data, size_t size_bytes) {
  qn__buffer_bytes(buffer, data, size_bytes);
  return QN_OK;
}

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

static void use(const char* program, const char* doc, FILE* out) {
  (void)fprintf(out,
                "usage: %s [--json | --json=FILE]\n%s\n"
                "--json prints JSON instead of the table, --json=FILE writes it as well.\n",
                program, doc);
  exit(out == stdout ? 0 : 2);
}

bench_report_t bench_begin(const char* title, const char* doc, int argc, char** argv) {
  bench_report_t report = {.table = stdout};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) {
      report.table = NULL;
      report.json = stdout;
    } else if (strncmp(argv[i], "--json=", 7) == 0) {
      report.json = fopen(argv[i] + 7, "w");
      if (report.json) continue;
      (void)fprintf(stderr, "%s: cannot write '%s'\n", argv[0], argv[i] + 7);
      exit(1);
    } else {
      use(argv[0], doc, strcmp(argv[i], "--help") == 0 ? stdout : stderr);
    }
  }
  if (report.json) (void)fprintf(report.json, "{\"title\": \"%s\", \"benchmarks\": [", title);
  if (report.table) {
    (void)fprintf(report.table, "%s\n%-52s %14s %10s %8s\n", title, "", "median", "ratio", "limit");
  }
  return report;
}

static void write_json(bench_report_t* report, const char* name, double value, const char* unit,
                       double floor, double limit, bool has_missed) {
  FILE* out = report->json;
  (void)fprintf(out, "%s\n  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"",
                report->row_count ? "," : "", name, value, unit);
  if (floor > 0) {
    (void)fprintf(out, ", \"floor\": %.6g, \"ratio\": %.6g", floor, value / floor);
  }
  if (limit > 0) {
    (void)fprintf(out, ", \"limit\": %.6g, \"within_limit\": %s", limit,
                  has_missed ? "false" : "true");
  }
  (void)fprintf(out, "}");
}

static void write_line(bench_report_t* report, const char* name, double value, const char* unit,
                       double floor, double limit, bool has_missed) {
  char ratio_text[32] = "", limit_text[32] = "";
  if (floor > 0) (void)snprintf(ratio_text, sizeof ratio_text, "%.3g", value / floor);
  if (limit > 0) {
    (void)snprintf(limit_text, sizeof limit_text, "%.3g%s", limit, has_missed ? " MISSED" : "");
  }
  (void)fprintf(report->table, "%-52s %10.4g %-3s %10s %8s\n", name, value, unit, ratio_text,
                limit_text);
}

void bench_row(bench_report_t* report, const char* name, double value, const char* unit,
               double floor, double limit) {
  double judged = floor > 0 ? value / floor : value;
  bool has_missed = limit > 0 && judged > limit;
  report->missed_count += has_missed;
  if (report->json) write_json(report, name, value, unit, floor, limit, has_missed);
  if (report->table) write_line(report, name, value, unit, floor, limit, has_missed);
  report->row_count++;
}

int bench_end(bench_report_t* report) {
  if (report->json) {
    (void)fprintf(report->json, "\n]}\n");
    if (report->json != stdout) (void)fclose(report->json);
  }
  return 0;
}
