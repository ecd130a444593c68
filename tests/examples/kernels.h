// SPDX-License-Identifier: Apache-2.0
// tests/examples/kernels.h: what the tests of kernels share: a run of an example on the device of
// the test, and numbers.
//
// Thread rule: one thread.
#ifndef QUERN_TESTS_EXAMPLES_KERNELS_H_
#define QUERN_TESTS_EXAMPLES_KERNELS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern/quern.h"

enum { kernel_max_rank = 4, kernel_max_args = 8 };

// An argument: a number, or an array in the host's memory, row-major and compact.
typedef struct kernel_arg {
  qn_value_t number;
  void* data;  // NULL: a number
  qn_dtype_t dtype;
  size_t rank;
  int64_t shape[kernel_max_rank];
} kernel_arg_t;

#define ARRAY(TYPE, array, ...)                                   \
  {                                                               \
      .data = (array),                                            \
      .dtype = QN_DTYPE_##TYPE,                                   \
      .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
      .shape = {__VA_ARGS__},                                     \
  }
#define NUMBER(value) {.number = qn_value_float(value)}
#define INTEGER(value) {.number = qn_value_int(value)}

// How the example is compiled: every test runs once for each.
typedef struct kernel_build {
  qn_tier_t tier;
  bool is_checked;
} kernel_build_t;

// Calls `function` of examples/ir/NAME.qn with copies of the arrays on the device, and copies all
// arrays back. Fails the test if that fails.
#define run_kernel(build, name, function, ...)                              \
  run_kernel_at((build), (name), (function), (kernel_arg_t[]){__VA_ARGS__}, \
                sizeof((kernel_arg_t[]){__VA_ARGS__}) / sizeof(kernel_arg_t))
void run_kernel_at(const kernel_build_t* build, const char* name, const char* function,
                   const kernel_arg_t* args, size_t arg_count);

// Fills with multiples of 1/64 from -1 to 1, which look random.
void fill_numbers(uint64_t seed, float* out, size_t count);
// Fails the test unless `have` is within `bound` of `want`, NaN never.
void expect_near(const char* what, size_t index, double have, double want, double bound);

// The tests of a file (kernels_*.c). Their state is the build.
void test_sha256(void** state);
void test_philox(void** state);
void test_bitonic_sort(void** state);
void test_argmax(void** state);
void test_topk(void** state);
void test_nms(void** state);
void test_int4_linear(void** state);
void test_fp8_linear(void** state);
void test_mxfp4_linear(void** state);
void test_mxfp4_quantize(void** state);
void test_layernorm_welford(void** state);
void test_fft(void** state);
void test_conv_transpose(void** state);
void test_winograd(void** state);
void test_split_k(void** state);
void test_attention(void** state);
void test_flash_attention(void** state);
void test_paged_attention(void** state);
void test_mixture_of_experts(void** state);

#endif  // QUERN_TESTS_EXAMPLES_KERNELS_H_
