// SPDX-License-Identifier: Apache-2.0
// What does a packed call cost over a call through a pointer?
//
// It calls the same kernel with three tensors of four elements and a scalar through the pointer of
// its entry, with words made before (the floor), and through qn_function_call with every check. It
// also counts the allocations of a million calls. The same is measured for an adaptive function
// without variants, and for calls of the last of its four variants; there every function runs the
// same generic kernel, so that only the choice differs.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "devices/cpu/cpu.h"
#include "jit/call/dispatch.h"
#include "jit/call/executable.h"
#include "quern/adaptive.h"
#include "quern/backend.h"
#include "quern/quern.h"

static const char program[] =
    "func f(a: f32, x: f32[n], y: f32[n], inout z: f32[n]) {\n"
    "  for i in 0..n { z[i] = a * x[i] + y[i]; }\n"
    "}\n";

typedef struct subject {
  qn_function_t* function;
  qn_value_t args[4];
  qn_cpu_kernel_t entry;
  uint64_t words[5];
} subject_t;

static _Atomic uint64_t allocation_count;

static void* count_allocation(void* self, void* pointer, size_t old_bytes, size_t new_bytes) {
  (void)self;
  (void)old_bytes;
  allocation_count++;
  if (new_bytes == 0) {
    free(pointer);
    return NULL;
  }
  return realloc(pointer, new_bytes);
}

static void call_pointer(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    qn__cpu_call_t call;
    qn__cpu_call_init(&call);
    if (s->entry(&call.env, s->words) != 0) abort();
  }
}

static void call_pointer_shared_table(void* self, int64_t iterations) {
  subject_t* s = self;
  qn__cpu_call_t call;
  qn__cpu_call_init(&call);
  for (int64_t i = 0; i < iterations; i++) {
    if (s->entry(&call.env, s->words) != 0) abort();
  }
}

static void call_packed(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    if (!qn_ok(qn_function_call(s->function, s->args, 4, NULL))) abort();
  }
}

// Makes an adaptive function, with `count` cases of which the last one takes `n`. Each case is the
// generic function itself.
static qn_function_t* make_adaptive(qn_function_t* generic, uint32_t count, uint64_t n) {
  const uint32_t word = 4;  // the symbol, behind the four parameters
  qn__dispatch_t* dispatch;
  qn_function_t* function;
  bench_must(qn__dispatch_create(generic, &word, 1, &dispatch));
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t value = i + 1 < count ? 1000 + i : n;
    bench_must(qn__dispatch_set(dispatch, i, &value, generic, false));
  }
  bench_must(qn__function_create_adaptive(dispatch, &function));
  return function;
}

int main(int argc, char** argv) {
  bench_report_t report = bench_begin(
      "packed call against a call through a pointer",
      "Measures qn_function_call of a kernel with three tensors and a scalar.", argc, argv);
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_mode = QN_CACHE_OFF,
                                 .allocator = {NULL, count_allocation}};
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  subject_t subject;
  bench_must(qn_engine_create(&options, &engine));
  bench_must(qn_module_parse(program, strlen(program), NULL, &module));
  bench_must(qn_target_parse("cpu", &target));
  bench_must(qn_engine_function(engine, module, target, "f", NULL, NULL, &subject.function));

  static float x[64], y[64], z[64];
  int64_t shape[] = {4};
  qn_tensor_t tensors[3];
  float* data[] = {x, y, z};
  for (int i = 0; i < 3; i++) {
    tensors[i] =
        (qn_tensor_t){data[i], {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
    subject.args[i + 1] = qn_value_tensor(&tensors[i]);
    subject.words[i + 1] = (uintptr_t)data[i];
  }
  subject.args[0] = qn_value_float(2.0);
  float a = 2.0f;
  subject.words[0] = 0;
  memcpy(&subject.words[0], &a, sizeof a);
  subject.words[4] = 4;
  subject.entry = atomic_load(&subject.function->variant)->entry;

  subject_t generic = subject, special = subject;
  generic.function = make_adaptive(subject.function, 0, 0);
  special.function = make_adaptive(subject.function, 4, 4);

  void (*bodies[])(void*, int64_t) = {call_pointer_shared_table, call_pointer, call_packed,
                                      call_packed, call_packed};
  void* selves[] = {&subject, &subject, &subject, &generic, &special};
  double ns[5];
  bench_compare_ns(5, bodies, selves, 0, 301, ns);
  bench_row(&report, "call through a pointer", ns[0], "ns", 0, 0);
  bench_row(&report, "call through a pointer, own table per call", ns[1], "ns", ns[0], 0);
  bench_row(&report, "packed call, every check", ns[2], "ns", ns[0], 0);
  bench_row(&report, "packed call over the pointer", ns[2] - ns[0], "ns", 0, 12);
  bench_row(&report, "adaptive function over a plain one, no variant", ns[3] - ns[2], "ns", 0, 0);
  bench_row(&report, "adaptive function over a plain one, fourth variant", ns[4] - ns[2], "ns", 0,
            0);
  allocation_count = 0;
  call_packed(&subject, 1000000);
  bench_row(&report, "allocations in a million packed calls", (double)allocation_count, "", 0, 0);
  allocation_count = 0;
  call_packed(&generic, 1000000);
  call_packed(&special, 1000000);
  bench_row(&report, "allocations in two million calls of adaptive functions",
            (double)allocation_count, "", 0, 0);
  qn_function_release(generic.function);
  qn_function_release(special.function);
  qn_function_release(subject.function);
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
  return bench_end(&report);
}
