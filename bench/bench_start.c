// SPDX-License-Identifier: Apache-2.0
// How long does a process with a warm cache take from its start to the first result of softmax?
//
// The program starts itself, in turn: as an empty process, which ends at the first line of main
// with the same libraries linked (the floor), and as a warm one, which makes an engine, parses the
// program, finds its kernel in the cache directory, calls it on [4, 64] and ends. The time is wall
// time from before the start to the end of the wait. On a busy machine most processes wait for a
// processor; the tenth percentile shows those that hardly did. At the end it times the parts of
// such a process by its own clock.
#define _GNU_SOURCE
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.h"
#include "quern/quern.h"

enum { RUN_COUNT = 401, PART_RUN_COUNT = 101, ROW_COUNT = 4, COLUMN_COUNT = 64 };

extern char** environ;

static const char program[] =
    "func softmax(x: f32[n, m], out y: f32[n, m]) {\n"
    "  parallel i in 0..n {\n"
    "    let top = max j in 0..m { x[i, j] };\n"
    "    let total = sum j in 0..m { exp(x[i, j] - top) };\n"
    "    for j in 0..m {\n"
    "      y[i, j] = exp(x[i, j] - top) / total;\n"
    "    }\n"
    "  }\n"
    "}\n";

// -------------------------------------------------------------------------------- the child

typedef enum part { ENGINE, MODULE, TARGET, LOOKUP, CALL, PART_COUNT } part_t;
static const char* const part_texts[PART_COUNT] = {"make the engine", "parse the program",
                                                   "the target of this machine",
                                                   "look up: key, directory, load", "first call"};

enum { EXIT_COMPILED = 3, EXIT_FAILED = 4 };

static void must(qn_status_t status) {
  if (qn_ok(status)) return;
  (void)fprintf(stderr, "bench_start: %s\n", qn_status_message(status));
  _exit(EXIT_FAILED);
}

// Runs the program and ends the process. Writes the nanoseconds of each part to `out_fd` if >= 0.
static void run_softmax(const char* directory, int out_fd) {
  int64_t at[PART_COUNT + 1];
  at[ENGINE] = bench_now_ns();
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = directory, .cache_mode = QN_CACHE_RW};
  qn_engine_t* engine;
  must(qn_engine_create(&options, &engine));
  at[MODULE] = bench_now_ns();
  qn_module_t* module;
  must(qn_module_parse(program, sizeof program - 1, NULL, &module));
  at[TARGET] = bench_now_ns();
  qn_target_t* target;
  must(qn_target_parse("cpu", &target));
  at[LOOKUP] = bench_now_ns();
  qn_function_t* function;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(qn_engine_function(engine, module, target, "softmax", NULL, &info, &function));
  at[CALL] = bench_now_ns();
  static float x[ROW_COUNT * COLUMN_COUNT], y[ROW_COUNT * COLUMN_COUNT];
  int64_t shape[] = {ROW_COUNT, COLUMN_COUNT};
  qn_dl_dtype_t dtype = qn_dtype_to_dl(QN_DTYPE_F32);
  qn_tensor_t tensors[] = {{x, {QN_DEVICE_CPU, 0}, 2, dtype, shape, NULL, 0},
                           {y, {QN_DEVICE_CPU, 0}, 2, dtype, shape, NULL, 0}};
  qn_value_t args[] = {qn_value_tensor(&tensors[0]), qn_value_tensor(&tensors[1])};
  must(qn_function_call(function, args, 2, NULL));
  at[PART_COUNT] = bench_now_ns();
  if (fabsf(y[0] * (float)COLUMN_COUNT - 1) > 1e-5f) _exit(EXIT_FAILED);
  if (out_fd >= 0) {
    int64_t parts[PART_COUNT];
    for (int i = 0; i < PART_COUNT; ++i) parts[i] = at[i + 1] - at[i];
    if (write(out_fd, parts, sizeof parts) != (ssize_t)sizeof parts) _exit(EXIT_FAILED);
  }
  if (info.source != QN_SOURCE_COMPILED) _exit(0);
  bool is_published = qn_engine_flush(engine, 10000000000);
  _exit(is_published ? EXIT_COMPILED : EXIT_FAILED);
}

// -------------------------------------------------------------------------------- the parent

static double run_child(const char* mode, const char* directory, const char* fd_text, int wanted) {
  char name[] = "bench_start";
  char* texts[] = {name, strdup(mode), strdup(directory), strdup(fd_text), NULL};
  if (!texts[1] || !texts[2] || !texts[3]) exit(1);
  pid_t pid;
  int status;
  int64_t start = bench_now_ns();
  if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, texts, environ) != 0 ||
      waitpid(pid, &status, 0) != pid) {
    exit(1);
  }
  double ns = (double)(bench_now_ns() - start);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted) {
    (void)fprintf(stderr, "bench_start: the process '%s' ended with %d, not %d\n", mode,
                  WIFEXITED(status) ? WEXITSTATUS(status) : -1, wanted);
    exit(1);
  }
  for (int i = 1; i < 4; ++i) free(texts[i]);
  return ns;
}

static void report_parts(bench_report_t* report, const char* directory) {
  static double values[PART_COUNT][PART_RUN_COUNT];
  int ends[2];
  if (pipe(ends) != 0) exit(1);
  char fd_text[16];
  (void)snprintf(fd_text, sizeof fd_text, "%d", ends[1]);
  for (int run = 0; run < PART_RUN_COUNT; ++run) {
    (void)run_child("warm", directory, fd_text, 0);
    int64_t parts[PART_COUNT];
    if (read(ends[0], parts, sizeof parts) != (ssize_t)sizeof parts) exit(1);
    for (int i = 0; i < PART_COUNT; ++i) values[i][run] = (double)parts[i];
  }
  for (int i = 0; i < PART_COUNT; ++i) {
    char name[64];
    (void)snprintf(name, sizeof name, "  of it: %s", part_texts[i]);
    bench_row(report, name, bench_median(values[i], PART_RUN_COUNT) / 1e6, "ms", 0, 0);
  }
  (void)close(ends[0]);
  (void)close(ends[1]);
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "empty") == 0) _exit(0);
  if (argc == 4 && strcmp(argv[1], "warm") == 0) run_softmax(argv[2], atoi(argv[3]));
  bench_report_t report =
      bench_begin("start of a process to the first result of softmax",
                  "Measures a process with a warm cache against an empty one.", argc, argv);
  char directory[64];
  bench_make_directory("/tmp", directory);
  double cold_ns = run_child("warm", directory, "-1", EXIT_COMPILED);
  static double empty[RUN_COUNT], warm[RUN_COUNT];
  for (int run = 0; run < RUN_COUNT; ++run) {
    empty[run] = run_child("empty", directory, "-1", 0);
    warm[run] = run_child("warm", directory, "-1", 0);
  }
  double empty_ms = bench_median(empty, RUN_COUNT) / 1e6;
  double warm_ms = bench_median(warm, RUN_COUNT) / 1e6;
  // bench_median has sorted the values.
  double empty_tenth_ms = empty[RUN_COUNT / 10] / 1e6, warm_tenth_ms = warm[RUN_COUNT / 10] / 1e6;
  bench_row(&report, "empty process", empty_ms, "ms", 0, 0);
  bench_row(&report, "warm process", warm_ms, "ms", empty_ms, 0);
  bench_row(&report, "warm over empty", warm_ms - empty_ms, "ms", 0, 1);
  bench_row(&report, "empty process, tenth percentile", empty_tenth_ms, "ms", 0, 0);
  bench_row(&report, "warm process, tenth percentile", warm_tenth_ms, "ms", empty_tenth_ms, 0);
  bench_row(&report, "warm over empty, tenth percentiles", warm_tenth_ms - empty_tenth_ms, "ms", 0,
            1);
  bench_row(&report, "cold process (one run: it compiles)", cold_ns / 1e6, "ms", empty_ms, 0);
  report_parts(&report, directory);
  bench_remove_directory(directory);
  return bench_end(&report);
}
