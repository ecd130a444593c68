// SPDX-License-Identifier: Apache-2.0
// What do tiles in shared memory save in a product that is written as a sum?
//
// It computes the same product twice: as nested parallel loops, which the mapping to a GPU cuts
// into tiles, and with a thread for each sum by explicit blocks and threads, as any other nest of
// loops is mapped. Then with few rows, where the host chooses another launch: over a thread for
// each sum, and over a whole tile of rows. Wall time from the call to the end of a sync, in turns,
// results compared. It runs on the first CUDA device, or else the first of Vulkan. A software
// driver has no fast shared memory, so that only the number of loads counts there.
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "quern/quern.h"

enum { N = 512, RUNS = 9, TILE = 64 };

#define SHAPES "(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) {\n"
#define SHAPES_ROWS "(a: f32[m, k], b: f32[n, k], out c: f32[m, n]) {\n"
#define LOOPS "  parallel i in 0..m { parallel j in 0..n {\n"
#define THREADS                                                          \
  "  block.x block in 0..ceildiv(m * n, 256) { thread.x t in 0..256 {\n" \
  "    let at = block * 256 + t;\n"                                      \
  "    if at < m * n { let i = at // n; let j = at % n;\n"

// Pairs: tiles, threads.
static const char program[] = "func tiles" SHAPES LOOPS
                              "    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }\n"
                              "func threads" SHAPES THREADS
                              "    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } } }\n"
                              "func tiles_rows" SHAPES_ROWS LOOPS
                              "    c[i, j] = sum p in 0..k { a[i, p] * b[j, p] }; } } }\n"
                              "func threads_rows" SHAPES_ROWS THREADS
                              "    c[i, j] = sum p in 0..k { a[i, p] * b[j, p] }; } } } }\n";

static float host[3][N * N];
static qn_device_t device;
static void* data[3];

static void copy(int which, bool is_up) {
  qn_device_t cpu = {QN_DEVICE_CPU, 0};
  qn_copy_t made = {.struct_size = sizeof made,
                    .from_device = is_up ? cpu : device,
                    .from = is_up ? (void*)host[which] : data[which],
                    .to_device = is_up ? device : cpu,
                    .to = is_up ? data[which] : (void*)host[which],
                    .size_bytes = sizeof host[which]};
  bench_must(qn_device_copy(&made, NULL));
}

// Computes a product of `rows` rows.
static int64_t call(qn_function_t* function, int64_t rows) {
  int64_t shapes[3][2] = {{rows, N}, {N, N}, {rows, N}};
  qn_tensor_t tensors[3];
  qn_value_t args[3];
  for (int i = 0; i < 3; i++) {
    tensors[i] =
        (qn_tensor_t){data[i], device, 2, qn_dtype_to_dl(QN_DTYPE_F32), shapes[i], NULL, 0};
    args[i] = qn_value_tensor(&tensors[i]);
  }
  int64_t begin = bench_now_ns();
  bench_must(qn_function_call(function, args, 3, NULL));
  bench_must(qn_stream_sync(device, NULL));
  return bench_now_ns() - begin;
}

static qn_engine_t* engine;
static qn_module_t* module;
static qn_target_t* target;
static const char* const names[2][2] = {{"tiles", "threads"}, {"tiles_rows", "threads_rows"}};
static const char* const layouts[2] = {"rows by columns", "rows by rows"};

// Checks that both give the same.
static bool check(qn_function_t* const* functions, int64_t rows) {
  static float first[N * N];
  for (int f = 0; f < 2; f++) {
    (void)call(functions[f], rows);
    copy(2, false);
    if (f == 0) memcpy(first, host[2], sizeof first);
  }
  for (int64_t i = 0; i < rows * N; i++) {
    if (fabsf(first[i] - host[2][i]) <= 1e-3F) continue;
    (void)fprintf(stderr, "bench_tile: element %d: %g, not %g\n", (int)i, (double)first[i],
                  (double)host[2][i]);
    return false;
  }
  return true;
}

static bool measure(bench_report_t* report, int layout) {
  static const int64_t few[] = {1, 4, 16};
  enum { COUNTS = sizeof few / sizeof few[0] };
  qn_function_t* functions[2];
  for (int f = 0; f < 2; f++) {
    bench_must(
        qn_engine_function(engine, module, target, names[layout][f], NULL, NULL, &functions[f]));
  }
  bool is_same = check(functions, N);
  for (int c = 0; c < COUNTS; c++) is_same = is_same && check(functions, few[c]);
  double times[2][RUNS], small[COUNTS][3][RUNS];
  for (int r = 0; is_same && r < RUNS; r++) {
    for (int f = 0; f < 2; f++) times[f][r] = (double)call(functions[f], N) / 1e6;
    for (int c = 0; c < COUNTS; c++) {
      for (int f = 0; f < 2; f++) small[c][f][r] = (double)call(functions[f], few[c]) / 1e6;
      small[c][2][r] = (double)call(functions[0], TILE) / 1e6;
    }
  }
  for (int f = 0; f < 2; f++) qn_function_release(functions[f]);
  if (!is_same) return false;
  char name[80];
  double floor = bench_median(times[1], RUNS);
  (void)snprintf(name, sizeof name, "%s, a thread each", layouts[layout]);
  bench_row(report, name, floor, "ms", 0, 0);
  (void)snprintf(name, sizeof name, "%s, tiles", layouts[layout]);
  bench_row(report, name, bench_median(times[0], RUNS), "ms", floor, 0);
  for (int c = 0; c < COUNTS; c++) {
    double tiles = bench_median(small[c][0], RUNS);
    (void)snprintf(name, sizeof name, "%s, m = %d, over a thread each", layouts[layout],
                   (int)few[c]);
    bench_row(report, name, tiles, "ms", bench_median(small[c][1], RUNS), 0);
    (void)snprintf(name, sizeof name, "%s, m = %d, over m = %d", layouts[layout], (int)few[c],
                   TILE);
    bench_row(report, name, tiles, "ms", bench_median(small[c][2], RUNS), 0);
  }
  return true;
}

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("tiles", "products written as sums, with tiles and without", argc, argv);
  const char* targets[] = {"cuda -from_device=0", "vulkan -from_device=0"};
  const qn_device_t devices[] = {{QN_DEVICE_CUDA, 0}, {QN_DEVICE_VULKAN, 0}};
  for (int i = 0; i < 2 && !target; i++) {
    qn_status_t status = qn_target_parse(targets[i], &target);
    device = devices[i];
    if (!qn_ok(status)) qn_status_free(status);
  }
  if (!target) {
    (void)fprintf(stderr, "bench_tile: no GPU here, nor a driver that is one in software\n");
    return bench_end(&report);
  }
  bench_must(qn_engine_create(NULL, &engine));
  bench_must(qn_module_parse(program, strlen(program), NULL, &module));
  for (int b = 0; b < 3; b++) {
    for (int i = 0; i < N * N; i++) host[b][i] = (float)((i * 7 + i / N) % 23 - 11) / 16.0F;
    bench_must(qn_device_allocate(device, sizeof host[b], 0, &data[b]));
    copy(b, true);
  }
  bool is_same = true;
  for (int layout = 0; layout < 2; layout++) is_same = is_same && measure(&report, layout);
  for (int b = 0; b < 3; b++) bench_must(qn_device_free(device, data[b]));
  qn_module_release(module);
  qn_target_release(target);
  qn_engine_destroy(engine);
  int status = bench_end(&report);
  return is_same ? status : 1;
}
