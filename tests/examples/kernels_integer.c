// SPDX-License-Identifier: Apache-2.0
// tests/examples/kernels_integer.c: kernels whose results are exact: hashes, orders, choices,
// codes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants some of the above first.
#include <cmocka.h>

#include "tests/examples/kernels.h"

// Known answers: of nothing, and of FIPS 180-2's examples with one block and two. The lengths have
// their padding in the last block and in one of its own.
void test_sha256(void** state) {
  static const struct {
    const char* text;
    uint8_t digest[4];  // the first bytes
    uint8_t end[4];
  } cases[] = {
      {"", {0xe3, 0xb0, 0xc4, 0x42}, {0x78, 0x52, 0xb8, 0x55}},
      {"abc", {0xba, 0x78, 0x16, 0xbf}, {0xf2, 0x00, 0x15, 0xad}},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       {0x24, 0x8d, 0x6a, 0x61},
       {0x19, 0xdb, 0x06, 0xc1}},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
       "op"
       "qrsmnopqrstnopqrstu",
       {0xcf, 0x5b, 0x16, 0xa7},
       {0x7a, 0xfe, 0xe9, 0xd1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    size_t size = strlen(cases[i].text);
    uint8_t x[3][112] = {{0}}, digests[3][32];
    uint8_t* second = &x[0][0] + size;  // three messages of this length, the second one is the case
    memcpy(second, cases[i].text, size);
    run_kernel(*state, "sha256", "sha256", ARRAY(U8, x, 3, (int64_t)size),
               ARRAY(U8, digests, 3, 32));
    assert_memory_equal(digests[1], cases[i].digest, 4);
    assert_memory_equal(digests[1] + 28, cases[i].end, 4);
    assert_memory_equal(digests[0], digests[2], 32);
    assert_int_equal(memcmp(digests[0], digests[1], 32) == 0, size == 0);
  }
}

// The first known answer of Random123, and the next counter's.
void test_philox(void** state) {
  static const uint32_t first[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  uint32_t y[2][4];
  run_kernel(*state, "philox", "philox", INTEGER(0), ARRAY(U32, y, 2, 4));
  assert_memory_equal(y[0], first, sizeof first);
  assert_memory_not_equal(y[1], first, sizeof first);
}

static int compare_floats(const void* a, const void* b) {
  float x = *(const float*)a, y = *(const float*)b;
  return (x > y) - (x < y);
}

void test_bitonic_sort(void** state) {
  static const int64_t sizes[] = {1000, 1024, 3, 2, 1, 0};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    float x[1024], sorted[1024];
    fill_numbers(i, x, 1024);
    memcpy(sorted, x, sizeof x);
    qsort(sorted, (size_t)sizes[i], sizeof *sorted, compare_floats);
    run_kernel(*state, "bitonic_sort", "sort", ARRAY(F32, x, sizes[i]));
    assert_memory_equal(x, sorted, sizeof x);
  }
}

// Equal numbers are frequent: the lower index counts.
void test_argmax(void** state) {
  enum { n = 4, m = 1500 };
  static float x[n][m];
  float score[n];
  int64_t token[n];
  fill_numbers(22, x[0], (size_t)n * m);
  run_kernel(*state, "argmax", "argmax", ARRAY(F32, x, n, m), ARRAY(I64, token, n),
             ARRAY(F32, score, n));
  for (int i = 0; i < n; ++i) {
    int best = 0;
    for (int j = 1; j < m; ++j) best = x[i][j] > x[i][best] ? j : best;
    assert_int_equal(token[i], best);
    assert_true(score[i] == x[i][best]);
  }
}

// A number's place is the count of those that come before it.
void test_topk(void** state) {
  enum { n = 5, m = 300, k = 7 };
  float x[n][m], values[n][k], wanted[n][k];
  int64_t indices[n][k], places[n][k];
  fill_numbers(1, x[0], (size_t)n * m);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      int place = 0;
      for (int other = 0; other < m; ++other) {
        place += x[i][other] > x[i][j] || (x[i][other] == x[i][j] && other < j);
      }
      if (place >= k) continue;
      wanted[i][place] = x[i][j];
      places[i][place] = j;
    }
  }
  run_kernel(*state, "topk", "topk", ARRAY(F32, x, n, m), ARRAY(F32, values, n, k),
             ARRAY(I64, indices, n, k));
  assert_memory_equal(values, wanted, sizeof values);
  assert_memory_equal(indices, places, sizeof indices);
}

static float overlap(const float* a, const float* b) {
  float width = fminf(a[2], b[2]) - fmaxf(a[0], b[0]),
        height = fminf(a[3], b[3]) - fmaxf(a[1], b[1]);
  return width > 0 && height > 0 ? width * height : 0;
}

// Goes through the boxes by score, and keeps those that no kept one covers.
void test_nms(void** state) {
  enum { b = 2, n = 60, k = 12 };
  float boxes[b][n][4], scores[b][n];
  int64_t kept[b][k], count[b];
  fill_numbers(2, boxes[0][0], (size_t)b * n * 4);
  for (int i = 0; i < b; ++i) {
    for (int j = 0; j < n; ++j) {
      float* box = boxes[i][j];
      for (int c = 0; c < 4; ++c) box[c] = rintf((box[c] + 1) * 16);
      box[2] += box[0] + 4;
      box[3] += box[1] + 4;
      scores[i][j] = (float)((j * 37 + i * 11) % n);  // each once
    }
  }
  // The second image has so much overlap that fewer than k are left.
  for (int j = 0; j < n; ++j) memcpy(boxes[1][j], boxes[1][j % 5], sizeof boxes[1][j]);
  run_kernel(*state, "nms", "nms", ARRAY(F32, boxes, b, n, 4), ARRAY(F32, scores, b, n),
             NUMBER(0.25), ARRAY(I64, kept, b, k), ARRAY(I64, count, b));
  for (int i = 0; i < b; ++i) {
    int found = 0, by_score[n];
    int64_t wanted[k];
    for (int j = 0; j < n; ++j) by_score[n - 1 - (int)scores[i][j]] = j;
    for (int r = 0; r < n && found < k; ++r) {
      const float* box = boxes[i][by_score[r]];
      bool is_kept = true;
      for (int c = 0; c < found; ++c) {
        const float* other = boxes[i][wanted[c]];
        float both = overlap(box, other);
        float all = overlap(box, box) + overlap(other, other) - both;
        is_kept = is_kept && !(both > 0.25f * all);
      }
      if (is_kept) wanted[found++] = by_score[r];
    }
    assert_int_equal(count[i], found);
    assert_int_equal(found < k, i == 1);
    for (int r = 0; r < k; ++r) assert_int_equal(kept[i][r], r < found ? wanted[r] : -1);
  }
}

// All products and sums are exact.
void test_int4_linear(void** state) {
  enum { n = 2, m = 3, k = 64 };
  float x[n * k], y[n * m];
  uint8_t w[m * k / 2], zero[m * 2] = {8, 7, 0, 15, 8, 3};
  uint16_t scale[m * 2] = {0x3800, 0x3C00, 0x4000, 0x3800, 0x3C00, 0x3400};  // 0.5, 1, 2, .., 0.25
  const float scales[m * 2] = {0.5f, 1, 2, 0.5f, 1, 0.25f};
  for (int i = 0; i < n * k; i++) x[i] = (float)(i * 7 % 11 - 5);
  for (int i = 0; i < m * k / 2; i++) w[i] = (uint8_t)(i * 37);
  run_kernel(*state, "int4_linear", "linear", ARRAY(F32, x, n, k), ARRAY(U4, w, m, k),
             ARRAY(F16, scale, m, 2), ARRAY(U8, zero, m, 2), ARRAY(F32, y, n, m));
  for (int i = 0; i < n * m; i++) {
    float wanted = 0;
    for (int p = 0; p < k; p++) {
      int at = i % m * k + p, group = at / 32;
      int q = w[at / 2] >> (at % 2 * 4) & 15;  // the first of two is the lower half
      wanted += x[i / m * k + p] * (float)(q - zero[group]) * scales[group];
    }
    assert_true(y[i] == wanted);
  }
}

// Here, too.
void test_fp8_linear(void** state) {
  float x[] = {1, 2, 3, 4}, scale[] = {0.5f, 2}, y[4];
  uint8_t w[] = {0x38, 0x7E, 0xB8, 0x01};  // 1, 448; -1, 2^-9
  run_kernel(*state, "fp8_linear", "linear", ARRAY(F32, x, 2, 2), ARRAY(F8E4M3FN, w, 2, 2),
             ARRAY(F32, scale, 1, 2), ARRAY(F32, y, 2, 2));
  const float wanted[] = {-0.5f, 896 + 0x1p-7f, -0.5f, 2688 + 0x1p-6f};
  assert_memory_equal(y, wanted, sizeof wanted);
}

// The eight magnitudes of e2m1, by their codes.
static const double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static double decode(const uint8_t* codes, size_t index) {
  int code = codes[index / 2] >> (index % 2 * 4) & 15;  // the first of two is the lower half
  return code < 8 ? magnitudes[code] : -magnitudes[code - 8];
}

void test_mxfp4_linear(void** state) {
  enum { n = 3, m = 5, k = 64 };
  float x[n][k], y[n][m];
  uint8_t w[m * k / 2], scale[m * k / 32];
  fill_numbers(3, x[0], (size_t)n * k);
  for (int i = 0; i < m * k / 2; ++i) w[i] = (uint8_t)(i * 37 + i / 16);
  for (int i = 0; i < m * k / 32; ++i) scale[i] = (uint8_t)(124 + i);
  run_kernel(*state, "mxfp4_linear", "linear", ARRAY(F32, x, n, k), ARRAY(F4E2M1FN, w, m, k),
             ARRAY(U8, scale, m, k / 32), ARRAY(F32, y, n, m));
  for (size_t i = 0; i < n * m; ++i) {
    double wanted = 0;  // exact in f32 too: multiples of 2^-10 below 2^14
    for (size_t p = 0; p < k; ++p) {
      int exponent = scale[i % m * (k / 32) + p / 32] - 127;
      wanted += (double)x[i / m][p] * decode(w, i % m * k + p) * ldexp(1, exponent);
    }
    assert_true((double)y[i / m][i % m] == wanted);
  }
}

// Each weight has the nearest code of its block's scale, and the largest one of the block is within
// the codes' range.
void test_mxfp4_quantize(void** state) {
  enum { m = 3, k = 96 };
  float w[m * k];
  uint8_t codes[m * k / 2], scale[m * k / 32];
  fill_numbers(4, w, (size_t)m * k);
  for (int p = 32; p < 64; ++p) w[p] *= 1e20f;
  for (int p = 64; p < 96; ++p) w[p] = 0;
  run_kernel(*state, "mxfp4_linear", "quantize", ARRAY(F32, w, m, k), ARRAY(F4E2M1FN, codes, m, k),
             ARRAY(U8, scale, m, k / 32));
  for (size_t i = 0; i < m * k; ++i) {
    double number = (double)w[i] / ldexp(1, scale[i / 32] - 127);
    assert_true(fabs(number) < 8);
    double nearest = INFINITY;
    for (int c = 0; c < 8; ++c) nearest = fmin(nearest, fabs(magnitudes[c] - fabs(number)));
    assert_true(fabs(decode(codes, i) - number) == nearest);
  }
}
