// SPDX-License-Identifier: Apache-2.0
// What does a packed call on CUDA cost over a bare cuLaunchKernel, and how near do kernels come to
// the memory's bandwidth?
//
// - A packed call of a kernel with two buffers and a scalar, against cuLaunchKernel with the same
//   arguments: the host's time while the device's queue has room, and the time with a wait for all.
// - A graph of 32 calls, against the calls one by one.
// - The driver's copy of device memory, against an elementwise kernel and a row softmax that move
// as
//   many bytes (1 GiB in, 1 GiB out: no cache holds them), in turns, after half a second of the
//   same to raise the clocks.
//
// Without a device it prints a message and succeeds. It runs on the fake driver of the tests
// (QUERN_CUDA_LIBRARY, QUERN_NVRTC_LIBRARY), where its figures mean nothing.
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "quern/config.h"

#if QN_HAVE_CUDA
#include "devices/cuda/cuda.h"
#include "devices/device.h"
#include "devices/gpu/plan.h"
#include "jit/call/executable.h"
#include "quern/device.h"
#include "quern/quern.h"

enum { SMALL = 256, CALLS = 500, GRAPH_CALLS = 32, RUNS = 15 };

static const char program[] =
    "func scale(a: f32, x: f32[n], out y: f32[n]) {\n"
    "  parallel i in 0..n { y[i] = a * x[i]; }\n"
    "}\n"
    "func softmax(x: f32[rows, cols], out y: f32[rows, cols]) {\n"
    "  parallel r in 0..rows {\n"
    "    let top = max c in 0..cols { x[r, c] };\n"
    "    let total = sum c in 0..cols { exp(x[r, c] - top) };\n"
    "    for c in 0..cols { y[r, c] = exp(x[r, c] - top) / total; }\n"
    "  }\n"
    "}\n";

static const qn_device_t cuda = {QN_DEVICE_CUDA, 0};

static void must_cu(CUresult result, const char* what) {
  bench_must(qn__cuda_check(NULL, result, "%s", what));
}

typedef struct subject {
  qn_function_t* function;
  qn_stream_t* stream;
  qn_tensor_t tensors[2];
  qn_value_t args[3];
  size_t arg_count;
  // The bare launch.
  CUfunction bare;
  unsigned threads;
  unsigned shared_bytes;
  CUdeviceptr pointers[2];
  float factor;
  int64_t count;
  void* params[QN_GPU_MAX_ARGS];
  CUstream native;
  size_t size_bytes;
  qn_graph_t* graph;
} subject_t;

static void make_tensor(subject_t* s, int which, void* data, int32_t rank, int64_t* shape) {
  s->tensors[which] = (qn_tensor_t){data, cuda, rank, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  s->pointers[which] = (CUdeviceptr)(uintptr_t)data;
}

// The kernel that a packed call runs, with the arguments in its order: buffers, then scalars.
static void find_bare(subject_t* s) {
  const qn__variant_t* variant = atomic_load(&s->function->variant);
  const qn__cuda_executable_t* executable = variant->executable->inner;
  const qn__gpu_function_t* function = &executable->plan->decoded.functions[variant->index];
  const uint32_t index = function->steps[function->step_count - 1].kernel;
  const qn_gpu_kernel_info_t* kernel = &executable->kernels[index].info;
  s->bare = executable->kernels[index].function;
  s->threads = kernel->thread_count ? kernel->thread_count : 256;
  s->shared_bytes = kernel->dynamic_shared_bytes;
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    const qn_gpu_arg_t* arg = &kernel->args[i];
    if (arg->kind == QN_GPU_ARG_BUFFER) {
      s->params[i] = &s->pointers[arg->index - 1];
    } else if (arg->size_bytes == 4) {
      s->params[i] = &s->factor;
    } else {
      s->params[i] = &s->count;
    }
  }
}

static void issue_bare(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    must_cu(qn__cuda()->launch_kernel(s->bare, 1, 1, 1, s->threads, 1, 1, s->shared_bytes,
                                      s->native, s->params, NULL),
            "launching");
  }
}

static void issue_packed(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    bench_must(qn_function_call_on(s->function, s->stream, s->args, s->arg_count, NULL));
  }
}

static void launch_bare(void* self, int64_t iterations) {
  subject_t* s = self;
  issue_bare(s, iterations);
  bench_must(qn_stream_sync(cuda, s->stream));
}

static void call_packed(void* self, int64_t iterations) {
  subject_t* s = self;
  issue_packed(s, iterations);
  bench_must(qn_stream_sync(cuda, s->stream));
}

static void copy_memory(void* self, int64_t iterations) {
  subject_t* s = self;
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = cuda,
                          .from = s->tensors[0].data,
                          .to_device = cuda,
                          .to = s->tensors[1].data,
                          .size_bytes = s->size_bytes};
  for (int64_t i = 0; i < iterations; i++) bench_must(qn_device_copy(&copy, s->stream));
  bench_must(qn_stream_sync(cuda, s->stream));
}

static void launch_graph(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i += GRAPH_CALLS)
    bench_must(qn_graph_launch(s->graph, s->stream));
  bench_must(qn_stream_sync(cuda, s->stream));
}

// Measures the host's nanoseconds for each call, in turns. An untimed wait follows each sample, so
// that the device's queue (about a thousand) never blocks the host.
static void compare_host_ns(subject_t* s, double out_ns[2]) {
  static void (*const bodies[])(void*, int64_t) = {issue_bare, issue_packed};
  static double ns[2][RUNS];
  for (int i = 0; i < RUNS; i++) {
    for (int which = 0; which < 2; which++) {
      const int64_t begin = bench_cpu_ns();
      bodies[which](s, CALLS);
      ns[which][i] = (double)(bench_cpu_ns() - begin) / (double)CALLS;
      bench_must(qn_stream_sync(cuda, s->stream));
    }
  }
  for (int which = 0; which < 2; which++) out_ns[which] = bench_median(ns[which], RUNS);
}

static void* allocate(size_t size_bytes) {
  void* pointer;
  bench_must(qn_device_allocate(cuda, size_bytes, 0, &pointer));
  return pointer;
}

static void measure_calls(bench_report_t* report, subject_t* s) {
  static int64_t shape[] = {SMALL};
  make_tensor(s, 0, allocate(SMALL * 4), 1, shape);
  make_tensor(s, 1, allocate(SMALL * 4), 1, shape);
  s->args[0] = qn_value_float(2.0);
  s->args[1] = qn_value_tensor(&s->tensors[0]);
  s->args[2] = qn_value_tensor(&s->tensors[1]);
  s->arg_count = 3;
  s->factor = 2;
  s->count = SMALL;
  find_bare(s);
  call_packed(s, 1);
  bench_must(qn_stream_capture_begin(cuda, s->stream));
  for (int i = 0; i < GRAPH_CALLS; i++) {
    bench_must(qn_function_call_on(s->function, s->stream, s->args, 3, NULL));
  }
  bench_must(qn_stream_capture_end(cuda, s->stream, &s->graph));
  void (*bodies[])(void*, int64_t) = {launch_bare, call_packed, launch_graph};
  void* selves[] = {s, s, s};
  double ns[3];
  double host_ns[2];
  compare_host_ns(s, host_ns);
  bench_row(report, "cuLaunchKernel, the host's time", host_ns[0], "ns", 0, 0);
  bench_row(report, "packed call, likewise", host_ns[1], "ns", host_ns[0], 1.2);
  bench_compare_ns(3, bodies, selves, CALLS / GRAPH_CALLS * GRAPH_CALLS, RUNS, ns);
  bench_row(report, "cuLaunchKernel, with its share of a sync", ns[0], "ns", 0, 0);
  bench_row(report, "packed call, with its share of a sync", ns[1], "ns", ns[0], 1.2);
  bench_row(report, "call in a graph of 32", ns[2], "ns", ns[1], 0);
  qn_graph_destroy(s->graph);
  for (int i = 0; i < 2; i++) bench_must(qn_device_free(cuda, s->tensors[i].data));
}

// Fills memory with numbers between -4 and 4, the same in each piece. A fresh allocation may hold
// NaNs or zeros, which are cheaper to compute and to transfer.
static void fill(void* to, size_t size_bytes, qn_stream_t* stream) {
  enum { PIECE = 1 << 18 };
  static float piece[PIECE];
  uint32_t state = 1;
  for (size_t i = 0; i < PIECE; i++) {
    state = state * 1664525u + 1013904223u;
    piece[i] = (float)(state >> 8) / (float)(1 << 21) - 4.0f;
  }
  for (size_t at = 0; at < size_bytes; at += sizeof piece) {
    const size_t left = size_bytes - at;
    const qn_copy_t copy = {.struct_size = sizeof copy,
                            .from_device = {QN_DEVICE_CPU, 0},
                            .from = piece,
                            .to_device = cuda,
                            .to = (char*)to + at,
                            .size_bytes = left < sizeof piece ? left : sizeof piece};
    bench_must(qn_device_copy(&copy, stream));
  }
  bench_must(qn_stream_sync(cuda, stream));
}

typedef struct mover {
  void (*body)(void*, int64_t);
  subject_t* subject;
} mover_t;

// Measures wall time, because the processor waits for the device. Bytes per nanosecond are
// gigabytes per second.
static void measure_movers(const mover_t* movers, size_t count, bool is_small, double* out_gbs) {
  enum { ITERATIONS = 10, SAMPLES = 15, MOST = 4 };
  static double ns[MOST][SAMPLES];
  // An idle device runs at low clocks.
  const int64_t begin = bench_now_ns(), warm_ns = is_small ? 0 : 500000000;
  do {
    for (size_t i = 0; i < count; i++) movers[i].body(movers[i].subject, 2);
  } while (bench_now_ns() - begin < warm_ns);
  for (int sample = 0; sample < SAMPLES; sample++) {
    for (size_t i = 0; i < count; i++) {
      const int64_t start = bench_now_ns();
      movers[i].body(movers[i].subject, ITERATIONS);
      ns[i][sample] = (double)(bench_now_ns() - start) / (double)ITERATIONS;
    }
  }
  for (size_t i = 0; i < count; i++) {
    out_gbs[i] = 2.0 * (double)movers[i].subject->size_bytes / bench_median(ns[i], SAMPLES);
  }
}

static void measure_bandwidth(bench_report_t* report, subject_t* scale, subject_t* softmax,
                              bool is_small) {
  static int64_t flat[1], rows[2];
  rows[0] = is_small ? 64 : 65536;
  rows[1] = is_small ? 128 : 4096;
  flat[0] = rows[0] * rows[1];
  const size_t size_bytes = (size_t)flat[0] * 4;
  void *x = allocate(size_bytes), *y = allocate(size_bytes);
  make_tensor(scale, 0, x, 1, flat);
  make_tensor(scale, 1, y, 1, flat);
  make_tensor(softmax, 0, x, 2, rows);
  make_tensor(softmax, 1, y, 2, rows);
  softmax->args[0] = qn_value_tensor(&softmax->tensors[0]);
  softmax->args[1] = qn_value_tensor(&softmax->tensors[1]);
  softmax->arg_count = 2;
  scale->size_bytes = softmax->size_bytes = size_bytes;
  fill(x, size_bytes, scale->stream);
  const mover_t movers[] = {{copy_memory, scale}, {call_packed, scale}, {call_packed, softmax}};
  double gbs[3];
  measure_movers(movers, 3, is_small, gbs);
  const double copy = gbs[0], elementwise = gbs[1], soft = gbs[2];
  // As times for the same bytes, so that less is better and the limits are 1/0.9 and 1/0.8.
  bench_row(report, "copy on the device", copy, "GB/s", 0, 0);
  bench_row(report, "elementwise", elementwise, "GB/s", copy, 0);
  bench_row(report, "row softmax", soft, "GB/s", copy, 0);
  bench_row(report, "elementwise, time over the copy's", copy / elementwise, "", 0, 1 / 0.9);
  bench_row(report, "row softmax, time over the copy's", copy / soft, "", 0, 1 / 0.8);
  bench_must(qn_device_free(cuda, x));
  bench_must(qn_device_free(cuda, y));
}

static void describe(void) {
  qn_attribute_value_t name, driver;
  bench_must(qn_device_attribute(cuda, QN_ATTRIBUTE_DEVICE_NAME, &name));
  bench_must(qn_device_attribute(cuda, QN_ATTRIBUTE_DRIVER_IDENTITY, &driver));
  (void)fprintf(stderr, "%s; %s\n", name.string_value, driver.string_value);
}

static void measure(bench_report_t* report) {
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_mode = QN_CACHE_OFF};
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  subject_t scale = {0}, softmax = {0};
  describe();
  bench_must(qn_engine_create(&options, &engine));
  bench_must(qn_module_parse(program, strlen(program), NULL, &module));
  bench_must(qn_target_parse("cuda -from_device=0", &target));
  bench_must(qn_engine_function(engine, module, target, "scale", NULL, NULL, &scale.function));
  bench_must(qn_engine_function(engine, module, target, "softmax", NULL, NULL, &softmax.function));
  bench_must(qn_stream_create(cuda, &scale.stream));
  softmax.stream = scale.stream;
  scale.native = qn_stream_native(scale.stream);
  // The bare launch needs a context of the host.
  qn__cuda_device_t* device = qn__cuda_device(0);
  must_cu(qn__cuda()->ctx_push(atomic_load(&device->context)), "entering the context");
  qn_attribute_value_t memory;
  bench_must(qn_device_attribute(cuda, QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY, &memory));
  measure_calls(report, &scale);
  measure_bandwidth(report, &scale, &softmax, memory.int_value < (int64_t)4 << 30);
  qn_stream_destroy(scale.stream);
  qn_function_release(scale.function);
  qn_function_release(softmax.function);
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
}
#endif

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("CUDA: packed call, bandwidth, graphs",
                  "Measures calls against cuLaunchKernel and kernels against a copy.", argc, argv);
#if QN_HAVE_CUDA
  if (qn_device_count(QN_DEVICE_CUDA) > 0) {
    measure(&report);
  } else {
    (void)fprintf(stderr, "bench_cuda: no device: %s\n", qn__cuda_absence());
  }
#else
  (void)fprintf(stderr, "bench_cuda: no device: this build has no CUDA\n");
#endif
  return bench_end(&report);
}
