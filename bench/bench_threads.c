// SPDX-License-Identifier: Apache-2.0
// How much sooner is a module of many functions compiled on two compile threads?
//
// Wall time of lookups that compile, without a cache directory, in engines with one compile thread
// and with two, which take turns; each compile has a module of its own. The floor is one thread,
// and half of it is the best. The machine needs two idle cores. Functions in a unit are compiled
// one after another (jit/llvm/unit.c), so one function is as slow on two threads as on one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "bench/harness.h"
#include "quern/ir.h"
#include "quern/quern.h"

enum { RUNS = 5, ENGINES = 2 };

static const char* const thread_counts[ENGINES] = {"1", "2"};

static void write_elementwise(qn__buffer_t* out, int function, int salt) {
  qn__buffer_format(out, "func g%d(x: f32[n], inout y: f32[n]) {\n", function);
  qn__buffer_format(out, "  parallel i in 0..n { y[i] = y[i] * x[i] + %d.5; }\n}\n", salt);
}

static void write_product(qn__buffer_t* out, int function, int salt) {
  qn__buffer_format(out, "func g%d(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) {\n", function);
  qn__buffer_cstr(out, "  parallel i in 0..m {\n    parallel j in 0..n {\n");
  qn__buffer_format(out, "      c[i, j] = (sum p in 0..k { a[i, p] * b[p, j] }) + %d.5;\n", salt);
  qn__buffer_cstr(out, "    }\n  }\n}\n");
}

static const struct {
  const char* name;
  void (*write)(qn__buffer_t* out, int function, int salt);
  int count;
} kinds[] = {
    {"1 elementwise function", write_elementwise, 1},
    {"16 elementwise functions", write_elementwise, 16},
    {"128 elementwise functions", write_elementwise, 128},
    {"512 elementwise functions", write_elementwise, 512},
    {"2 products", write_product, 2},
    {"8 products", write_product, 8},
};

static qn_engine_t* make_engine(const char* threads) {
  const qn_setting_t settings[] = {{"compile_threads", threads}, {"cache_mode", "off"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .ignores_environment = true,
                                 .settings = settings,
                                 .setting_count = 2};
  qn_engine_t* engine;
  bench_must(qn_engine_create(&options, &engine));
  return engine;
}

static double compile_ns(qn_engine_t* engine, qn_target_t* target, size_t kind, int salt) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  for (int i = 0; i < kinds[kind].count; ++i) kinds[kind].write(&text, i, salt);
  bench_must(qn__buffer_status(&text, "a program"));
  qn_module_t* module;
  bench_must(qn_module_parse((const char*)text.data, text.size, NULL, &module));
  qn__buffer_deinit(&text);
  qn_executable_t* executable;
  int64_t start_ns = bench_now_ns();
  bench_must(qn_engine_executable(engine, module, target, NULL, NULL, &executable));
  double ns = (double)(bench_now_ns() - start_ns);
  qn_executable_release(executable);
  qn_module_release(module);
  return ns;
}

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("compiling a module of many functions on two compile threads; floor: on one",
                  "Measures how compiles use the compile threads.", argc, argv);
  qn_engine_t* engines[ENGINES];
  for (int e = 0; e < ENGINES; ++e) engines[e] = make_engine(thread_counts[e]);
  qn_target_t* target;
  bench_must(qn_target_parse("cpu", &target));
  int salt = 1;
  // The first compiles of the process, and of each thread.
  for (int e = 0; e < ENGINES; ++e) (void)compile_ns(engines[e], target, 2, salt++);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
    double ns[ENGINES][RUNS];
    for (int run = 0; run < RUNS; ++run) {
      for (int e = 0; e < ENGINES; ++e) ns[e][run] = compile_ns(engines[e], target, k, salt++);
    }
    double floor = bench_median(ns[0], RUNS);
    bench_row(&report, kinds[k].name, bench_median(ns[1], RUNS) / 1e6, "ms", floor / 1e6, 0);
  }
  qn_target_release(target);
  for (int e = 0; e < ENGINES; ++e) qn_engine_destroy(engines[e]);
  return bench_end(&report);
}
