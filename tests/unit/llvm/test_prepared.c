// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_prepared.c: kernels of products that are compiled with the generator: each
// form against loops in C, and the targets that have them.
//
// Matrices have gaps between their rows, which the kernels must not write. Columns of the second
// operand end with an inaccessible page.
#define _GNU_SOURCE  // MAP_ANONYMOUS
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "jit/llvm/prepared.h"
#include "support_emit.h"

typedef int32_t (*kernel_t)(void* env, const uint64_t* words);

enum { GAP = 3, PAGE = 4096 };

static float* make(size_t count, unsigned seed) {
  float* data = calloc(count + 1, sizeof *data);
  assert_non_null(data);
  for (size_t i = 0; i < count; ++i) data[i] = (float)((i * 7 + seed) % 13) - 6.0F;
  return data;
}

// Maps `count` numbers that end with an inaccessible page. Returns the first one.
static float* map_to_end(const float* from, size_t count, void** out_map, size_t* out_size) {
  size_t bytes = (count * sizeof(float) + PAGE - 1) / PAGE * PAGE;
  *out_size = bytes + PAGE;
  *out_map = mmap(NULL, *out_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(*out_map != MAP_FAILED);
  uint8_t* end = (uint8_t*)*out_map + bytes;
  assert_int_equal(mprotect(end, PAGE, PROT_NONE), 0);
  float* first = (float*)(void*)(end - count * sizeof(float));
  memcpy(first, from, count * sizeof(float));
  return first;
}

static void run(kernel_t kernel, bool is_across, int64_t n, int64_t m, int64_t k) {
  const int64_t r = k + GAP, s = (is_across ? m : k) + GAP, t = m + GAP;
  const int64_t lines = is_across ? k : m;
  float* a = make((size_t)(n * r), 1);
  float* c = make((size_t)(n * t), 3);
  // Without the last gap.
  size_t b_count = lines > 0 ? (size_t)(lines * s - GAP) : 0;
  float* numbers = make(b_count, 2);
  void* map;
  size_t map_size;
  float* b = map_to_end(numbers, b_count, &map, &map_size);
  float* before = make((size_t)(n * t), 3);
  uint64_t words[QN__PREPARED_WORDS] = {(uint64_t)(uintptr_t)a, (uint64_t)(uintptr_t)b,
                                        (uint64_t)(uintptr_t)c};
  words[QN__PREPARED_ROWS] = (uint64_t)n;
  words[QN__PREPARED_STEPS] = (uint64_t)k;
  words[QN__PREPARED_COLUMNS] = (uint64_t)m;
  words[QN__PREPARED_A_STRIDE] = (uint64_t)r;
  words[QN__PREPARED_B_STRIDE] = (uint64_t)s;
  words[QN__PREPARED_C_STRIDE] = (uint64_t)t;
  // No kernel has launches or workspaces: it needs no environment.
  assert_int_equal(kernel(NULL, words), 0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < t; ++j) {
      float sum = before[i * t + j];
      if (j < m) sum = 0;
      for (int64_t p = 0; j < m && p < k; ++p) {
        sum += a[i * r + p] * b[is_across ? p * s + j : j * s + p];
      }
      // Whole numbers, so that the order does not matter.
      if (c[i * t + j] != sum) {
        fail_msg("%lld x %lld x %lld: [%lld, %lld] is %g, not %g", (long long)n, (long long)m,
                 (long long)k, (long long)i, (long long)j, (double)c[i * t + j], (double)sum);
      }
    }
  }
  free(a);
  free(c);
  free(before);
  free(numbers);
  (void)munmap(map, map_size);
}

// Returns whether the form takes these extents; the choice of the program keeps others away.
static bool takes(int form, int64_t n, int64_t m, int64_t k) {
  switch (form) {
    case QN__FORM_ROWS:
      return n <= 48 && m >= 64;
    case QN__FORM_ALONG:
      return n <= 12 && m >= 16 && k >= 16;
    case QN__FORM_COLUMNS:
      return m <= 4 && k * m <= 8192;
    default:
      return true;
  }
}

static void forms_compute_products(void** state) {
  (void)state;
  static const int64_t shapes[][3] = {
      {0, 5, 4},    {5, 0, 4},    {5, 9, 0},     {1, 1, 1},    {1, 1, 300},   {2, 3, 70},
      {7, 17, 5},   {6, 64, 33},  {3, 130, 17},  {12, 16, 16}, {11, 67, 530}, {48, 70, 9},
      {49, 33, 20}, {65, 129, 8}, {530, 20, 19}, {9, 4, 2000}, {257, 2, 64},  {40, 200, 260}};
  if (!qn__llvm_prepared_table) skip();
  size_t run_count = 0;
  for (const qn__llvm_prepared_t* row = qn__llvm_prepared_table(); row->features; ++row) {
    if (!build_can_run(row->vector_bytes == 64 ? "x86-64-v4" : "x86-64-v3")) continue;
    for (int order = 0; order < 2; ++order) {
      const qn__llvm_prepared_image_t* image = &row->images[order];
      void* code =
          mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      assert_true(code != MAP_FAILED);
      memcpy(code, image->bytes, image->size);
      assert_int_equal(mprotect(code, image->size, PROT_READ | PROT_EXEC), 0);
      for (int form = 0; form < qn__product_forms; ++form) {
        if (!(image->forms >> form & 1)) continue;
        void* address = (uint8_t*)code + image->offsets[form];
        kernel_t kernel;
        memcpy(&kernel, &address, sizeof kernel);
        for (size_t i = 0; i < QN_COUNT_OF(shapes); ++i) {
          if (!takes(form, shapes[i][0], shapes[i][1], shapes[i][2])) continue;
          run(kernel, order == 0, shapes[i][0], shapes[i][1], shapes[i][2]);
          ++run_count;
        }
      }
      (void)munmap(code, image->size);
    }
  }
  assert_true(run_count > 0 || !build_can_run("x86-64-v3"));
}

static void targets_have_kernels(void** state) {
  (void)state;
  static const char program[] =
      "func f(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n  parallel i in 0..n { parallel j "
      "in 0..m {\n    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }";
  static const struct {
    const char* target;
    bool has;
  } cases[] = {
      {"cpu -mcpu=x86-64", false},
      {"cpu -mcpu=x86-64-v3", true},
      {"cpu -mcpu=znver3 -l2_cache_bytes=2097152", true},
      {"cpu -mcpu=haswell -l2_cache_bytes=262144", false},
      {"cpu -mcpu=znver3 -l1_cache_bytes=16384", false},
      {"cpu -mcpu=skylake-avx512", false},
      {"cpu -mcpu=znver4", true},
      {"cpu -mcpu=sapphirerapids -l2_cache_bytes=2097152", true},
      {"cpu -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1", false},
  };
  if (!qn__llvm_prepared_table) skip();
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    char* text = assembly_of(program, cases[i].target);
    bool has = strstr(text, "prepared.across") != NULL;
    if (has != cases[i].has) fail_msg("%s: kernels %d", cases[i].target, has);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forms_compute_products),
      cmocka_unit_test(targets_have_kernels),
  };
  return cmocka_run_group_tests_name("prepared", tests, NULL, NULL);
}
