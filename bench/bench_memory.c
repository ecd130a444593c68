// SPDX-License-Identifier: Apache-2.0
// How near are plain loops that memory bounds to the speed of memory, on one core?
//
// It runs sums of columns, transposes, concatenations, strided copies, scans and rows (softmax,
// norms), written as plain loops with all extents unknown when they are compiled. The floor of a
// row is `memcpy` of as many bytes as the program reads and writes, in the same process, in turns.
// (A memcpy of b bytes reads b and writes b.) Programs that hardly write have reading alone as the
// floor: the sum of all words of the same bytes, in vectors.
//
// `bench_memory --threads=N` uses N threads. The floor stays one thread's.
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "bench/harness.h"
#include "quern/device.h"
#include "quern/ir.h"
#include "quern/quern.h"
#include "quern/target.h"

enum { MAX_TENSORS = 4, MAX_RANK = 5, SAMPLES = 25, SAMPLE_NS = 500000 };

static const char program[] =
    "func column_sums(a: f32[n, m], out c: f32[m]) {\n"
    "  parallel j in 0..m { c[j] = sum i in 0..n { a[i, j] }; }\n"
    "}\n"
    "func column_sums_narrow(a: bf16[n, m], out c: f32[m]) {\n"
    "  parallel j in 0..m { c[j] = sum i in 0..n { f32(a[i, j]) }; }\n"
    "}\n"
    "func column_maxima(a: i8[n, m], out c: i8[m]) {\n"
    "  parallel j in 0..m { c[j] = max i in 0..n { a[i, j] }; }\n"
    "}\n"
    "func column_norms(a: f32[n, m], out c: f32[m], out d: f32[m]) {\n"
    "  parallel j in 0..m {\n"
    "    let mean = (sum i in 0..n { a[i, j] }) / f32(n);\n"
    "    c[j] = mean;\n"
    "    d[j] = (sum i in 0..n { let x = a[i, j] - mean; x * x }) / f32(n);\n"
    "  }\n"
    "}\n"
    "func row_sums(a: f32[n, m], out c: f32[n]) {\n"
    "  parallel i in 0..n { c[i] = sum j in 0..m { a[i, j] }; }\n"
    "}\n"
    "func transpose(a: f32[n, m], out b: f32[m, n]) {\n"
    "  parallel i in 0..n { parallel j in 0..m { b[j, i] = a[i, j]; } }\n"
    "}\n"
    "func transpose_bytes(a: i8[n, m], out b: i8[m, n]) {\n"
    "  parallel i in 0..n { parallel j in 0..m { b[j, i] = a[i, j]; } }\n"
    "}\n"
    "func transpose_halves(a: f16[n, m], out b: f16[m, n]) {\n"
    "  parallel i in 0..n { parallel j in 0..m { b[j, i] = a[i, j]; } }\n"
    "}\n"
    "func transpose_doubles(a: f64[n, m], out b: f64[m, n]) {\n"
    "  parallel i in 0..n { parallel j in 0..m { b[j, i] = a[i, j]; } }\n"
    "}\n"
    "func transpose_batch(a: f32[z, n, m], out b: f32[z, m, n]) {\n"
    "  parallel u in 0..z { parallel i in 0..n { parallel j in 0..m {\n"
    "    b[u, j, i] = a[u, i, j];\n"
    "  } } }\n"
    "}\n"
    "func turn(a: f32[z, n, m], out b: f32[m, n, z]) {\n"
    "  parallel u in 0..z { parallel i in 0..n { parallel j in 0..m {\n"
    "    b[j, i, u] = a[u, i, j];\n"
    "  } } }\n"
    "}\n"
    "func heads(a: f32[z, n, h, d], out b: f32[z, h, n, d]) {\n"
    "  parallel u in 0..z { parallel i in 0..n { parallel g in 0..h { parallel e in 0..d {\n"
    "    b[u, g, i, e] = a[u, i, g, e];\n"
    "  } } } }\n"
    "}\n"
    "func channels(a: f32[z, c, y, x], out b: f32[z, y, x, c]) {\n"
    "  parallel u in 0..z { parallel k in 0..c { parallel i in 0..y { parallel j in 0..x {\n"
    "    b[u, i, j, k] = a[u, k, i, j];\n"
    "  } } } }\n"
    "}\n"
    "func concatenate(a: f32[n, m], b: f32[n, k], out c: f32[n, m + k]) {\n"
    "  parallel i in 0..n {\n"
    "    for j in 0..m { c[i, j] = a[i, j]; }\n"
    "    for j in 0..k { c[i, m + j] = b[i, j]; }\n"
    "  }\n"
    "}\n"
    "func down(a: f32[n, m], out b: f32[n, m]) {\n"
    "  parallel j in 0..m { for i in 0..n { b[i, j] = a[i, j] * 2.0; } }\n"
    "}\n"
    "func every_second(a: f32[n, 2, m], out b: f32[n, m]) {\n"
    "  parallel i in 0..n { parallel j in 0..m { b[i, j] = a[i, 0, j]; } }\n"
    "}\n"
    "func chain(a: f32[n], b: f32[n], out c: f32[n]) {\n"
    "  parallel i in 0..n { let x = a[i] * 1.5 + b[i]; c[i] = max(x, 0.0) * x + a[i]; }\n"
    "}\n"
    "func scan_down(a: f32[n, m], out b: f32[n, m]) {\n"
    "  parallel j in 0..m {\n"
    "    alloc s: f32[1] in local;\n"
    "    s[0] = 0.0;\n"
    "    for i in 0..n { s[0] = s[0] + a[i, j]; b[i, j] = s[0]; }\n"
    "  }\n"
    "}\n"
    "func scan_across(a: i32[n, m], out b: i32[n, m]) {\n"
    "  parallel i in 0..n {\n"
    "    alloc s: i32[1] in local;\n"
    "    s[0] = 0;\n"
    "    for j in 0..m { s[0] = s[0] + a[i, j]; b[i, j] = s[0]; }\n"
    "  }\n"
    "}\n"
    "func softmax(a: f32[n, m], out b: f32[n, m]) {\n"
    "  parallel i in 0..n {\n"
    "    let top = max j in 0..m { a[i, j] };\n"
    "    let total = sum j in 0..m { exp(a[i, j] - top) };\n"
    "    for j in 0..m { b[i, j] = exp(a[i, j] - top) / total; }\n"
    "  }\n"
    "}\n"
    "func softmax_down(a: f32[n, m], out b: f32[n, m]) {\n"
    "  parallel j in 0..m {\n"
    "    let top = max i in 0..n { a[i, j] };\n"
    "    let total = sum i in 0..n { exp(a[i, j] - top) };\n"
    "    for i in 0..n { b[i, j] = exp(a[i, j] - top) / total; }\n"
    "  }\n"
    "}\n"
    "func layer_norm(a: f32[n, m], g: f32[m], h: f32[m], out b: f32[n, m]) {\n"
    "  parallel i in 0..n {\n"
    "    let mean = (sum j in 0..m { a[i, j] }) / f32(m);\n"
    "    let spread = (sum j in 0..m { let x = a[i, j] - mean; x * x }) / f32(m);\n"
    "    let scale = rsqrt(spread + 0.00001);\n"
    "    for j in 0..m { b[i, j] = (a[i, j] - mean) * scale * g[j] + h[j]; }\n"
    "  }\n"
    "}\n";

// The arguments: a dtype and its extents for each.
typedef struct row {
  const char* function;
  const char* args;
} row_t;

static const row_t rows[] = {
    {"column_sums", "f32 2048 1024, f32 1024"},
    {"column_sums", "f32 128 1024, f32 1024"},
    {"column_sums", "f32 100000 64, f32 64"},
    {"column_sums", "f32 8192 3000, f32 3000"},
    {"column_sums_narrow", "bf16 2048 1024, f32 1024"},
    {"column_maxima", "i8 2048 1024, i8 1024"},
    {"column_norms", "f32 2048 1024, f32 1024, f32 1024"},
    {"row_sums", "f32 1024 2048, f32 1024"},
    {"transpose", "f32 256 256, f32 256 256"},
    {"transpose", "f32 1024 1024, f32 1024 1024"},
    {"transpose", "f32 1000 999, f32 999 1000"},
    {"transpose", "f32 4096 4096, f32 4096 4096"},
    {"transpose_bytes", "i8 2048 2048, i8 2048 2048"},
    {"transpose_halves", "f16 2048 2048, f16 2048 2048"},
    {"transpose_doubles", "f64 1024 1024, f64 1024 1024"},
    {"transpose_batch", "f32 64 128 96, f32 64 96 128"},
    {"turn", "f32 128 96 128, f32 128 96 128"},
    {"heads", "f32 16 128 12 32, f32 16 12 128 32"},
    {"channels", "f32 4 64 56 56, f32 4 56 56 64"},
    {"channels", "f32 4 3 224 224, f32 4 224 224 3"},
    {"concatenate", "f32 2048 700, f32 2048 300, f32 2048 1000"},
    {"down", "f32 2048 1024, f32 2048 1024"},
    {"every_second", "f32 2048 2 512, f32 2048 512"},
    {"chain", "f32 2000000, f32 2000000, f32 2000000"},
    {"scan_down", "f32 2048 1024, f32 2048 1024"},
    {"scan_across", "i32 1024 2048, i32 1024 2048"},
    {"softmax", "f32 1024 1024, f32 1024 1024"},
    {"softmax_down", "f32 1024 1024, f32 1024 1024"},
    {"layer_norm", "f32 2048 768, f32 768, f32 768, f32 2048 768"},
};

typedef struct call {
  qn_function_t* function;
  size_t count;
  int64_t shapes[MAX_TENSORS][MAX_RANK];
  qn_tensor_t tensors[MAX_TENSORS];
  size_t sizes[MAX_TENSORS];
  void* data[MAX_TENSORS];
  char *from, *to;  // of the floor
  size_t floor_bytes;
} call_t;

static void run_quern(void* self, int64_t iterations) {
  call_t* call = self;
  qn_value_t args[MAX_TENSORS];
  for (size_t i = 0; i < call->count; i++) args[i] = qn_value_tensor(&call->tensors[i]);
  for (int64_t i = 0; i < iterations; i++) {
    bench_must(qn_function_call(call->function, args, call->count, NULL));
  }
}

static void run_memcpy(void* self, int64_t iterations) {
  call_t* call = self;
  for (int64_t i = 0; i < iterations; i++) {
    memcpy(call->to, call->from, call->floor_bytes);
    bench_keep(call->to);
  }
}

static void run_read(void* self, int64_t iterations) {
  call_t* call = self;
  for (int64_t i = 0; i < iterations; i++) {
    const uint64_t* words = (const uint64_t*)(const void*)call->from;
    uint64_t sums[32] = {0};
    for (size_t k = 0; k + 32 <= call->floor_bytes / 8; k += 32) {
      for (size_t lane = 0; lane < 32; lane++) sums[lane] += words[k + lane];
    }
    memcpy(call->to, sums, sizeof sums);
    bench_keep(call->to);
  }
}

static qn_dtype_t read_dtype(const char** at) {
  size_t length = strcspn(*at, " ");
  qn_dtype_t dtype = qn__dtype_from_str((qn_str_t){*at, length});
  if (dtype == QN_DTYPE_NONE) bench_give_up("an unknown dtype");
  *at += length;
  return dtype;
}

static void* allocate(size_t size) {
  char* data = aligned_alloc(64, (size + 319) / 64 * 64);
  if (!data) bench_give_up("out of memory");
  // Small numbers of every dtype: a byte of 0x3c in front.
  for (size_t i = 0; i < size; i++) data[i] = i % 2 ? 0x3c : (char)(i % 61);
  return data;
}

// Reads a list like "f32 8 16, f32 8".
static void read_args(call_t* call, const char* at) {
  while (*at) {
    while (*at == ' ' || *at == ',') at++;
    size_t i = call->count++;
    qn_dtype_t dtype = read_dtype(&at);
    call->sizes[i] = qn_dtype_size_bytes(dtype);
    int rank = 0;
    while (*at == ' ' && isdigit((unsigned char)at[1])) {
      char* end;
      call->shapes[i][rank] = strtol(at, &end, 10);
      call->sizes[i] *= (size_t)call->shapes[i][rank++];
      at = end;
    }
    call->data[i] = allocate(call->sizes[i]);
    call->tensors[i] = (qn_tensor_t){
        call->data[i], {QN_DEVICE_CPU, 0}, rank, qn_dtype_to_dl(dtype), call->shapes[i], NULL, 0};
  }
}

// Wall times of both, in turns.
static void sample(call_t* call, void (*floor)(void*, int64_t), double median[2], double least[2]) {
  void (*const bodies[])(void*, int64_t) = {run_quern, floor};
  static double times[2][SAMPLES];
  int64_t iterations[2];
  for (int b = 0; b < 2; b++) {
    bodies[b](call, 1);
    int64_t start = bench_now_ns();
    bodies[b](call, 1);
    int64_t once = bench_now_ns() - start;
    iterations[b] = once > 0 && once < SAMPLE_NS ? SAMPLE_NS / once + 1 : 1;
  }
  for (int s = 0; s < SAMPLES; s++) {
    for (int b = 0; b < 2; b++) {
      int64_t start = bench_now_ns();
      bodies[b](call, iterations[b]);
      times[b][s] = (double)(bench_now_ns() - start) / (double)iterations[b];
    }
  }
  for (int b = 0; b < 2; b++) {
    median[b] = bench_median(times[b], SAMPLES);
    least[b] = times[b][0];  // bench_median sorted them
  }
}

static void measure(bench_report_t* report, const row_t* row, qn_function_t* function) {
  call_t call = {.function = function};
  read_args(&call, row->args);
  size_t read = 0, written = call.sizes[call.count - 1];
  for (size_t i = 0; i + 1 < call.count; i++) read += call.sizes[i];
  if (strcmp(row->function, "every_second") == 0) read /= 2;
  bool is_reading = written * 16 < read;
  call.floor_bytes = is_reading ? read : (read + written) / 2;
  call.from = allocate(call.floor_bytes);
  call.to = allocate(call.floor_bytes < 256 ? 256 : call.floor_bytes);
  double median[2], least[2];
  sample(&call, is_reading ? run_read : run_memcpy, median, least);
  char name[96];
  (void)snprintf(name, sizeof name, "%s %.*s, at best %.0f us, %.2f of the floor", row->function,
                 (int)strcspn(row->args, ","), row->args, least[0] / 1e3, least[0] / least[1]);
  bench_row(report, name, median[0] / 1e3, "us", median[1] / 1e3, 0);
  for (size_t i = 0; i < call.count; i++) free(call.data[i]);
  free(call.from);
  free(call.to);
}

int main(int argc, char** argv) {
  int threads = 1;
  if (argc > 1 && strncmp(argv[1], "--threads=", 10) == 0) {
    threads = atoi(argv[1] + 10);
    argv[1] = argv[0];
    argv++;
    argc--;
  }
  bench_report_t report = bench_begin(
      "memory", "Measures plain loops that memory bounds against memcpy and reading.", argc, argv);
  qn_cpu_set_core_budget(threads);
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_mode = QN_CACHE_OFF};
  bench_must(qn_engine_create(&options, &engine));
  bench_must(qn_module_parse(program, sizeof program - 1, NULL, &module));
  bench_must(qn_target_parse("cpu", &target));
  const char* only = getenv("BENCH_MEMORY_ONLY");
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (only && !strstr(rows[i].function, only)) continue;
    qn_function_t* function;
    bench_must(qn_engine_function(engine, module, target, rows[i].function, NULL, NULL, &function));
    measure(&report, &rows[i], function);
    qn_function_release(function);
  }
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
  return bench_end(&report);
}
