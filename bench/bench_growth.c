// SPDX-License-Identifier: Apache-2.0
// Does the time of a compile grow with the program, or faster?
//
// Programs of one kind and growing size: launches in a function, the same with workspace between
// them, statements, conditions and stores in one launch, functions in a module, parameters. A row
// is the whole compile() for a size; its ratio is the time for each unit over that of the smallest
// size, so 1 is linear. Processor time of one thread. links: llvm
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "bench/harness.h"
#include "jit/llvm/compile.h"
#include "quern/ir.h"
#include "quern/target.h"

enum { MAX_SIZES = 3, RUNS = 3 };

typedef void (*writer_t)(qn__buffer_t* out, int size);

static void write_launches(qn__buffer_t* out, int size) {
  qn__buffer_cstr(out, "func f(x: f32[n], inout y: f32[n]) {\n");
  for (int i = 0; i < size; ++i) {
    qn__buffer_format(out, "  parallel i in 0..n { y[i] = y[i] * x[i] + %d.5; }\n", i);
  }
  qn__buffer_cstr(out, "}\n");
}

static void write_loops(qn__buffer_t* out, int size) {
  qn__buffer_cstr(out, "func f(x: f32[n], inout y: f32[n]) {\n");
  for (int i = 0; i < size; ++i) {
    qn__buffer_format(out, "  for i in 0..n { y[i] = y[i] * x[i] + %d.5; }\n", i);
  }
  qn__buffer_cstr(out, "}\n");
}

static void write_workspaces(qn__buffer_t* out, int size) {
  qn__buffer_cstr(out, "func f(x: f32[n], inout y: f32[n]) {\n");
  for (int i = 0; i < size; ++i) {
    qn__buffer_format(out, "  alloc w%d: f32[n] in global;\n", i);
    qn__buffer_format(out, "  parallel i in 0..n { w%d[i] = x[i] * %d.5; }\n", i, i);
    qn__buffer_format(out, "  parallel i in 0..n { y[i] = y[i] + w%d[i]; }\n", i);
  }
  qn__buffer_cstr(out, "}\n");
}

static void write_lets(qn__buffer_t* out, int size) {
  qn__buffer_cstr(out, "func f(x: f32[n], inout y: f32[n]) {\n  parallel i in 0..n {\n");
  qn__buffer_cstr(out, "    let v0 = x[i];\n");
  for (int i = 1; i <= size; ++i) {
    qn__buffer_format(out, "    let v%d = v%d * %d.5 + x[i];\n", i, i - 1, i);
  }
  qn__buffer_format(out, "    y[i] = v%d;\n  }\n}\n", size);
}

static void write_conditions(qn__buffer_t* out, int size) {
  qn__buffer_cstr(out, "func f(x: f32[n], inout y: f32[n]) {\n  parallel i in 0..n {\n");
  for (int i = 0; i < size; ++i) {
    qn__buffer_format(out, "    if x[i] > %d.5 { y[i] = y[i] + %d.0; }\n", i, i);
  }
  qn__buffer_cstr(out, "  }\n}\n");
}

static void write_stores(qn__buffer_t* out, int size) {
  qn__buffer_format(out, "func f(x: f32[n], inout y: f32[n, %d]) {\n  parallel i in 0..n {\n",
                    size);
  for (int i = 0; i < size; ++i) qn__buffer_format(out, "    y[i, %d] = x[i] * %d.5;\n", i, i);
  qn__buffer_cstr(out, "  }\n}\n");
}

static void write_functions(qn__buffer_t* out, int size) {
  for (int i = 0; i < size; ++i) {
    qn__buffer_format(out, "func g%d(x: f32[n], inout y: f32[n]) {\n", i);
    qn__buffer_format(out, "  parallel i in 0..n { y[i] = y[i] * x[i] + %d.5; }\n}\n", i);
  }
}

static void write_parameters(qn__buffer_t* out, int size) {
  qn__buffer_cstr(out, "func f(");
  for (int i = 0; i < size; ++i) qn__buffer_format(out, "x%d: f32[n], ", i);
  qn__buffer_cstr(out, "inout y: f32[n]) {\n  parallel i in 0..n {\n");
  for (int i = 0; i < size; ++i) qn__buffer_format(out, "    let v%d = x%d[i] * %d.5;\n", i, i, i);
  qn__buffer_cstr(out, "    y[i] = v0");
  for (int i = 1; i < size; ++i) qn__buffer_format(out, " + v%d", i);
  qn__buffer_cstr(out, ";\n  }\n}\n");
}

static const struct {
  const char* name;
  writer_t write;
  int sizes[MAX_SIZES];
} kinds[] = {
    {"launches in a function", write_launches, {64, 256, 1024}},
    {"serial loops in a function", write_loops, {64, 256, 1024}},
    {"workspaces, and two launches for each", write_workspaces, {32, 128, 512}},
    {"statements in a launch", write_lets, {256, 1024, 4096}},
    {"conditions in a launch", write_conditions, {64, 256, 1024}},
    {"strided stores in a launch", write_stores, {16, 64, 256}},
    {"functions in a module", write_functions, {32, 128, 512}},
    {"parameters", write_parameters, {15, 60, 240}},
};

static double compile_ns(qn__llvm_t* llvm, const qn_target_t* target, writer_t write, int size,
                         int runs) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  write(&text, size);
  bench_must(qn__buffer_status(&text, "a program"));
  qn_module_t* module;
  bench_must(qn_module_parse((const char*)text.data, text.size, NULL, &module));
  qn__buffer_deinit(&text);
  qn_compile_request_t request = {
      .struct_size = sizeof request, .target_json = qn_target_json(target), .tier = QN_TIER_FULL};
  request.module_bytes = qn_module_bytes(module, &request.module_size);
  double ns[RUNS];
  for (int run = 0; run < runs; ++run) {
    int64_t start = bench_cpu_ns();
    qn_artifact_t* artifact;
    bench_must(qn__llvm_compile(llvm, &request, &artifact));
    ns[run] = (double)(bench_cpu_ns() - start);
    artifact->release(artifact);
  }
  qn_module_release(module);
  return bench_median(ns, (size_t)runs);
}

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("compile time by the size of a program; each unit against the smallest size's",
                  "Measures how the full tier's compile time grows.", argc, argv);
  qn__llvm_t* llvm;
  qn_target_t* target;
  bench_must(qn__llvm_create(qn_allocator_default(), &llvm));
  bench_must(qn_target_parse("cpu", &target));
  (void)compile_ns(llvm, target, write_launches, 1, 1);  // the first compile of the process
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
    double unit = 0;
    for (int i = 0; i < MAX_SIZES; ++i) {
      int size = kinds[k].sizes[i];
      double ns = compile_ns(llvm, target, kinds[k].write, size, i == 0 ? RUNS : 1);
      char name[96];
      (void)snprintf(name, sizeof name, "%d %s", size, kinds[k].name);
      // At most twice the time for each unit, over 16 times the size.
      bench_row(&report, name, ns / 1e6, "ms", i > 0 ? unit * size / 1e6 : 0, i > 0 ? 2 : 0);
      if (i == 0) unit = ns / size;
    }
  }
  qn_target_release(target);
  qn__llvm_destroy(llvm);
  return bench_end(&report);
}
