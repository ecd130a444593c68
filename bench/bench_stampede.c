// SPDX-License-Identifier: Apache-2.0
// How much slower are 64 processes that look up the same 50 cold keys at once than one alone?
//
// The floor is one process alone on an empty directory, which compiles every key. It is compared
// with 64 processes, with 64 processes without claims between them, each of which compiles the keys
// that it does not find yet, and with 64 processes on a warm directory. A round has one of each;
// rows are medians of the rounds' wall time, from the start of the first process to the end of the
// last. Processes are made by fork from one that has loaded no compiler.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.h"
#include "quern/observe.h"
#include "quern/quern.h"

#define PROCESSES 64
#define KEYS 50
#define ROUNDS 3

typedef struct shared {
  _Atomic uint64_t compiles, failures;
} shared_t;

static shared_t* shared;
static const char* target_text = QN_HAVE_LLVM ? "cpu" : "interp";

static void find_compiles(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  if (strcmp(name, "compiles") == 0) *(uint64_t*)self = value;
}

static qn_status_t look_up(qn_engine_t* engine, qn_target_t* target, int number) {
  char text[256];
  (void)snprintf(text, sizeof text,
                 "func f(x: f32[n], inout y: f32[n]) {\n"
                 "  parallel i in 0..n { y[i] = x[i] * %d.0 + exp(y[i]); }\n"
                 "}\n",
                 number + 2);
  qn_module_t* module = NULL;
  qn_executable_t* executable = NULL;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (qn_ok(status)) {
    status = qn_engine_executable(engine, module, target, NULL, NULL, &executable);
  }
  qn_executable_release(executable);
  qn_module_release(module);
  return status;
}

// Runs one process: opens an engine, looks up all keys, publishes and closes.
static void look_up_all(const char* directory, const char* lock_timeout) {
  const qn_setting_t settings[] = {{"lock_timeout", lock_timeout}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = directory,
                                 .ignores_environment = true,
                                 .settings = settings,
                                 .setting_count = 1};
  qn_engine_t* engine = NULL;
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(target_text, &target);
  if (qn_ok(status)) status = qn_engine_create(&options, &engine);
  for (int i = 0; qn_ok(status) && i < KEYS; i++) status = look_up(engine, target, i);
  uint64_t compiles = 0;
  if (engine) qn_engine_counters(engine, find_compiles, &compiles);
  shared->compiles += compiles;
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "bench_stampede: %s\n", qn_status_message(status));
    shared->failures++;
  }
  qn_status_free(status);
  qn_engine_destroy(engine);
  qn_target_release(target);
}

// Returns the wall time in milliseconds of `processes` at once.
static double crowd_ms(int processes, const char* directory, const char* lock_timeout,
                       double* out_compiles) {
  shared->compiles = 0;
  (void)fflush(NULL);
  int64_t start_ns = bench_now_ns();
  for (int i = 0; i < processes; i++) {
    pid_t child = fork();
    if (child == 0) {
      look_up_all(directory, lock_timeout);
      _exit(0);
    }
    if (child < 0) shared->failures++;
  }
  while (wait(NULL) > 0) {
  }
  *out_compiles = (double)shared->compiles;
  return (double)(bench_now_ns() - start_ns) / 1e6;
}

int main(int argc, char** argv) {
  bench_report_t report = bench_begin(
      "stampede", "64 processes that look up the same 50 cold keys, over one process alone", argc,
      argv);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  double alone[ROUNDS], crowd[ROUNDS], warm[ROUNDS], wild[ROUNDS];
  double compiles[4][ROUNDS];
  const char* parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  for (int i = 0; i < ROUNDS; i++) {
    char directory[3][64];
    for (int j = 0; j < 3; j++) bench_make_directory(parent, directory[j]);
    alone[i] = crowd_ms(1, directory[0], "60s", &compiles[0][i]);
    crowd[i] = crowd_ms(PROCESSES, directory[1], "60s", &compiles[1][i]);
    warm[i] = crowd_ms(PROCESSES, directory[1], "60s", &compiles[2][i]);
    wild[i] = crowd_ms(PROCESSES, directory[2], "0", &compiles[3][i]);
    for (int j = 0; j < 3; j++) bench_remove_directory(directory[j]);
  }
  if (shared->failures) return 1;
  double floor_ms = bench_median(alone, ROUNDS);
  double warm_ms = bench_median(warm, ROUNDS);
  bench_row(&report, "compiles of 64 processes", bench_median(compiles[1], ROUNDS), "compiles", 0,
            KEYS);
  bench_row(&report, "the same without claims", bench_median(compiles[3], ROUNDS), "compiles", 0,
            0);
  bench_row(&report, "one process alone, 50 cold keys", floor_ms, "ms", 0, 0);
  bench_row(&report, "64 processes, warm directory", warm_ms, "ms", floor_ms, 0);
  bench_row(&report, "64 processes, the same 50 cold keys", bench_median(crowd, ROUNDS), "ms",
            floor_ms, 0);
  bench_row(&report, "the same over alone and warm one after the other",
            bench_median(crowd, ROUNDS), "ms", floor_ms + warm_ms, 0);
  bench_row(&report, "64 processes without claims", bench_median(wild, ROUNDS), "ms", floor_ms, 0);
  return bench_end(&report);
}
