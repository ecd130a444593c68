// SPDX-License-Identifier: Apache-2.0
// How near do products of plain loops on a GPU come to cuBLAS?
//
// Each row is a product of a dtype, a layout and a shape, computed by a program of plain loops
// whose rows are known only at the call (or are constant, where the row says so), and by cuBLAS on
// the same operands and the same stream. Wall time of many calls and a sync, in turns, and results
// compared. Products of 16-bit floats and of i8 run on matrix units; those of f32 in a function
// marked `fast` as tf32; f32 alone by fused products and sums, as cuBLAS does it.
//
// cuBLAS is opened at run time: QUERN_CUBLAS_LIBRARY, or libcublas.so.13 or .12 where the loader or
// a toolkit has it. Without it, or without a device, the program prints a message and succeeds.
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "quern/device.h"
#include "quern/quern.h"

// ---- cuBLAS

// Numbers of the headers of cuBLAS 12.
enum { OP_N = 0, OP_T = 1, R_32F = 0, R_16F = 2, R_8I = 3, R_32I = 10, R_16BF = 14 };
enum { COMPUTE_32F = 68, COMPUTE_32I = 72, COMPUTE_32F_FAST_TF32 = 77, GEMM_DEFAULT = -1 };

static struct {
  void* handle;
  int (*create)(void** handle);
  int (*set_stream)(void* handle, void* stream);
  int (*gemm)(void* handle, int transa, int transb, int m, int n, int k, const void* alpha,
              const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
              const void* beta, void* c, int c_type, int ldc, int compute, int algo);
} cublas;

static bool open_cublas(void) {
  const char* const places[] = {getenv("QUERN_CUBLAS_LIBRARY"), "libcublas.so.13",
                                "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13",
                                "/usr/local/cuda/lib64/libcublas.so.12"};
  void* library = NULL;
  for (size_t i = 0; i < sizeof places / sizeof places[0] && !library; i++) {
    if (places[i]) library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) return false;
  void* symbols[] = {dlsym(library, "cublasCreate_v2"), dlsym(library, "cublasSetStream_v2"),
                     dlsym(library, "cublasGemmEx")};
  memcpy(&cublas.create, &symbols[0], sizeof symbols[0]);
  memcpy(&cublas.set_stream, &symbols[1], sizeof symbols[1]);
  memcpy(&cublas.gemm, &symbols[2], sizeof symbols[2]);
  return cublas.create && cublas.set_stream && cublas.gemm && cublas.create(&cublas.handle) == 0;
}

// ---- what is computed

typedef struct kind {
  const char* name;
  const char* operand;  // dtype of a and b
  const char* sum;      // dtype of sums
  const char* result;   // dtype of c
  const char* mark;     // of the function
  qn_dtype_t operand_dtype;
  qn_dtype_t result_dtype;
  int size_bytes;  // of an operand
  int result_bytes;
  int operand_type;
  int result_type;
  int compute;
} kind_t;

static const kind_t kinds[] = {
    {"f16", "f16", "f32", "f16", "", QN_DTYPE_F16, QN_DTYPE_F16, 2, 2, R_16F, R_16F, COMPUTE_32F},
    {"bf16", "bf16", "f32", "bf16", "", QN_DTYPE_BF16, QN_DTYPE_BF16, 2, 2, R_16BF, R_16BF,
     COMPUTE_32F},
    {"tf32", "f32", "f32", "f32", "fast ", QN_DTYPE_F32, QN_DTYPE_F32, 4, 4, R_32F, R_32F,
     COMPUTE_32F_FAST_TF32},
    {"i8", "i8", "i32", "i32", "", QN_DTYPE_I8, QN_DTYPE_I32, 1, 4, R_8I, R_32I, COMPUTE_32I},
    {"f32", "f32", "f32", "f32", "", QN_DTYPE_F32, QN_DTYPE_F32, 4, 4, R_32F, R_32F, COMPUTE_32F},
};
enum { F16, BF16, TF32, I8, F32 };

typedef struct row {
  int kind;
  bool is_across;    // b[k, n]; else b[n, k], a layer's weights
  bool is_constant;  // the number of rows is known when it is compiled
  int64_t m, n, k;
} row_t;

static const row_t rows[] = {
    {F16, true, false, 4096, 4096, 4096},   {F16, true, true, 4096, 4096, 4096},
    {F16, true, true, 8192, 8192, 8192},    {F16, true, false, 1000, 999, 1001},
    {BF16, false, false, 4096, 4096, 4096}, {BF16, false, true, 8192, 8192, 8192},
    {BF16, false, false, 1, 4096, 4096},    {BF16, false, true, 1, 11008, 4096},
    {BF16, false, false, 16, 11008, 4096},  {BF16, false, true, 16, 4096, 11008},
    {BF16, false, false, 128, 11008, 4096}, {BF16, false, true, 128, 4096, 11008},
    {BF16, false, false, 512, 11008, 4096}, {BF16, false, false, 1024, 1024, 1024},
    {BF16, false, false, 768, 1536, 384},   {TF32, false, false, 4096, 4096, 4096},
    {TF32, true, false, 4096, 4096, 4096},  {I8, false, false, 4096, 4096, 4096},
    {I8, false, true, 8192, 8192, 8192},    {I8, false, false, 16, 11008, 4096},
    {F32, true, false, 4096, 4096, 4096},   {F32, true, false, 512, 512, 512},
    {F32, false, false, 16, 4096, 4096},
};

enum { SAMPLES = 9, CHECKED = 1 << 16 };
static const qn_device_t cuda = {QN_DEVICE_CUDA, 0}, cpu = {QN_DEVICE_CPU, 0};
static qn_engine_t* engine;
static qn_target_t* target;
static qn_stream_t* stream;

static void copy(qn_device_t from_device, const void* from, qn_device_t to_device, void* to,
                 size_t size_bytes) {
  const qn_copy_t made = {.struct_size = sizeof made,
                          .from_device = from_device,
                          .from = from,
                          .to_device = to_device,
                          .to = to,
                          .size_bytes = size_bytes};
  bench_must(qn_device_copy(&made, stream));
  bench_must(qn_stream_sync(cuda, stream));
}

static void* allocate(int64_t size_bytes) {
  void* pointer;
  bench_must(qn_device_allocate(cuda, (size_t)size_bytes, 0, &pointer));
  return pointer;
}

// Allocates an operand of random numbers: floats of -1 to -0.5 and 0.5 to 1, or bytes.
static void* make_operand(const kind_t* kind, int64_t count, uint32_t seed) {
  const size_t size_bytes = (size_t)count * (size_t)kind->size_bytes, words = (size_bytes + 3) / 4;
  uint32_t* values = malloc(words * 4);
  if (!values) bench_give_up("bench_cublas: no memory");
  for (size_t i = 0; i < words; i++) {
    seed = seed * 1664525u + 1013904223u;
    const uint32_t bits = seed ^ seed >> 15;
    switch (kind->operand_type) {
      case R_16F:
        values[i] = (bits & 0x83ff83ffu) | 0x38003800u;
        break;
      case R_16BF:
        values[i] = (bits & 0x807f807fu) | 0x3f003f00u;
        break;
      case R_32F:
        values[i] = (bits & 0x807fffffu) | 0x3f000000u;
        break;
      default:
        values[i] = bits;
        break;
    }
  }
  void* data = allocate((int64_t)words * 4);
  copy(cpu, values, cuda, data, words * 4);
  free(values);
  return data;
}

typedef struct subject {
  const row_t* row;
  const kind_t* kind;
  qn_function_t* function;
  void* data[3];   // a, b, c of ours
  void* expected;  // c of cuBLAS
  int64_t shapes[3][2];
  qn_tensor_t tensors[3];
  qn_value_t args[3];
} subject_t;

static void call_ours(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++)
    bench_must(qn_function_call_on(s->function, stream, s->args, 3, NULL));
  bench_must(qn_stream_sync(cuda, stream));
}

// cuBLAS stores columns one after another: it computes the transposed product of the transposed
// operands.
static void call_cublas(void* self, int64_t iterations) {
  const subject_t* s = self;
  const int m = (int)s->row->m, n = (int)s->row->n, k = (int)s->row->k;
  const float one = 1, zero = 0;
  const int32_t one_int = 1, zero_int = 0;
  const bool is_int = s->kind->compute == COMPUTE_32I;
  for (int64_t i = 0; i < iterations; i++) {
    int status = cublas.gemm(cublas.handle, s->row->is_across ? OP_N : OP_T, OP_N, n, m, k,
                             is_int ? (const void*)&one_int : &one, s->data[1],
                             s->kind->operand_type, s->row->is_across ? n : k, s->data[0],
                             s->kind->operand_type, k, is_int ? (const void*)&zero_int : &zero,
                             s->expected, s->kind->result_type, n, s->kind->compute, GEMM_DEFAULT);
    if (status != 0) bench_give_up("bench_cublas: cublasGemmEx failed");
  }
  bench_must(qn_stream_sync(cuda, stream));
}

static void make_subject(subject_t* s, const row_t* row) {
  const kind_t* kind = &kinds[row->kind];
  char text[600], m[24] = "m";
  if (row->is_constant) (void)snprintf(m, sizeof m, "%lld", (long long)row->m);
  (void)snprintf(text, sizeof text,
                 "func product(a: %s[%s, %lld], b: %s[%lld, %lld], out c: %s[%s, %lld]) %s{\n"
                 "  parallel i in 0..%s { parallel j in 0..%lld {\n"
                 "    c[i, j] = %s(sum p in 0..%lld { %s(a[i, p]) * %s(b[%s]) }); } } }\n",
                 kind->operand, m, (long long)row->k, kind->operand,
                 (long long)(row->is_across ? row->k : row->n),
                 (long long)(row->is_across ? row->n : row->k), kind->result, m, (long long)row->n,
                 kind->mark, m, (long long)row->n, kind->result, (long long)row->k, kind->sum,
                 kind->sum, row->is_across ? "p, j" : "j, p");
  qn_module_t* module;
  bench_must(qn_module_parse(text, strlen(text), NULL, &module));
  *s = (subject_t){.row = row, .kind = kind};
  bench_must(qn_engine_function(engine, module, target, "product", NULL, NULL, &s->function));
  qn_module_release(module);
  s->data[0] = make_operand(kind, row->m * row->k, 1);
  s->data[1] = make_operand(kind, row->n * row->k, 2);
  s->data[2] = allocate(row->m * row->n * kind->result_bytes);
  s->expected = allocate(row->m * row->n * kind->result_bytes);
  const int64_t shapes[3][2] = {
      {row->m, row->k},
      {row->is_across ? row->k : row->n, row->is_across ? row->n : row->k},
      {row->m, row->n}};
  memcpy(s->shapes, shapes, sizeof shapes);
  for (int i = 0; i < 3; i++) {
    s->tensors[i] = (qn_tensor_t){
        s->data[i],   cuda, 2, qn_dtype_to_dl(i < 2 ? kind->operand_dtype : kind->result_dtype),
        s->shapes[i], NULL, 0};
    s->args[i] = qn_value_tensor(&s->tensors[i]);
  }
}

static void drop_subject(subject_t* s) {
  for (int i = 0; i < 3; i++) bench_must(qn_device_free(cuda, s->data[i]));
  bench_must(qn_device_free(cuda, s->expected));
  qn_function_release(s->function);
}

static double value_at(const kind_t* kind, const void* data, int64_t i) {
  if (kind->result_type == R_32I) return ((const int32_t*)data)[i];
  if (kind->result_type == R_32F) return (double)((const float*)data)[i];
  const uint16_t half = ((const uint16_t*)data)[i];
  if (kind->result_type == R_16BF) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
  }
  const int exponent = half >> 10 & 31;
  const double fraction = (half & 1023) / 1024.0;
  const double size = exponent ? ldexp(1 + fraction, exponent - 15) : ldexp(fraction, -14);
  return half >> 15 ? -size : size;
}

// Compares the first and the last elements. Sums of random signs are about as large as the root of
// their length; both are rounded to the dtype of the result.
static bool is_same(const subject_t* s) {
  static char ours[CHECKED * 4], theirs[CHECKED * 4];
  const int64_t count = s->row->m * s->row->n, checked = count < CHECKED ? count : CHECKED;
  const double size = s->kind->operand_type == R_8I ? 0 : sqrt((double)s->row->k);
  const double bound = size * (s->kind->result_bytes == 2        ? 1.0 / 64
                               : s->kind->compute == COMPUTE_32F ? 1e-4
                                                                 : 5e-3);
  for (int end = 0; end < 2; end++) {
    const int64_t at = end ? count - checked : 0, bytes = s->kind->result_bytes;
    copy(cuda, (const char*)s->data[2] + at * bytes, cpu, ours, (size_t)(checked * bytes));
    copy(cuda, (const char*)s->expected + at * bytes, cpu, theirs, (size_t)(checked * bytes));
    for (int64_t i = 0; i < checked; i++) {
      const double x = value_at(s->kind, ours, i), y = value_at(s->kind, theirs, i);
      if (fabs(x - y) <= bound) continue;
      (void)fprintf(stderr, "bench_cublas: %s %lld x %lld x %lld: element %lld: %g, not %g\n",
                    s->kind->name, (long long)s->row->m, (long long)s->row->n, (long long)s->row->k,
                    (long long)(at + i), x, y);
      return false;
    }
  }
  return true;
}

static bool measure(bench_report_t* report, const row_t* row) {
  subject_t s;
  make_subject(&s, row);
  call_ours(&s, 1);
  call_cublas(&s, 1);
  const bool is_right = is_same(&s);
  void (*bodies[])(void*, int64_t) = {call_cublas, call_ours};
  // About 4 ms of calls for a sample; an idle device runs at low clocks.
  int64_t begin = bench_now_ns(), calls = 0;
  while (bench_now_ns() - begin < 30000000) {
    call_cublas(&s, 5);
    calls += 5;
  }
  const int64_t iterations = calls / 8 + 2;
  double ms[2][SAMPLES];
  for (int sample = 0; sample < SAMPLES; sample++) {
    for (int which = 0; which < 2; which++) {
      begin = bench_now_ns();
      bodies[which](&s, iterations);
      ms[which][sample] = (double)(bench_now_ns() - begin) / 1e6 / (double)iterations;
    }
  }
  const double theirs = bench_median(ms[0], SAMPLES), ours = bench_median(ms[1], SAMPLES);
  const double operations = 2.0 * (double)row->m * (double)row->n * (double)row->k;
  char name[120];
  (void)snprintf(name, sizeof name, "%s, b[%s], %s%lld x %lld x %lld: %.1f of %.1f T/s",
                 s.kind->name, row->is_across ? "k, n" : "n, k",
                 row->is_constant ? "constant " : "", (long long)row->m, (long long)row->n,
                 (long long)row->k, operations / ours / 1e9, operations / theirs / 1e9);
  bench_row(report, name, ours, "ms", theirs, 0);
  drop_subject(&s);
  return is_right;
}

int main(int argc, char** argv) {
  bench_report_t report = bench_begin("products on CUDA", "plain loops against cuBLAS", argc, argv);
  qn_status_t status = qn_target_parse("cuda -from_device=0", &target);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "bench_cublas: no device: %s\n", qn_status_message(status));
    qn_status_free(status);
    return bench_end(&report);
  }
  bench_must(qn_engine_create(NULL, &engine));
  bench_must(qn_stream_create(cuda, &stream));
  if (!open_cublas() || cublas.set_stream(cublas.handle, qn_stream_native(stream)) != 0) {
    (void)fprintf(stderr, "bench_cublas: no cuBLAS: set QUERN_CUBLAS_LIBRARY\n");
    return bench_end(&report);
  }
  bool is_right = true;
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    if (!measure(&report, &rows[r])) is_right = false;
  }
  qn_stream_destroy(stream);
  qn_target_release(target);
  qn_engine_destroy(engine);
  const int result = bench_end(&report);
  return is_right ? result : 1;
}
