// SPDX-License-Identifier: Apache-2.0
// tests/examples/kernels_float.c: kernels of floats, within bounds of sums in double.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants some of the above first.
#include <cmocka.h>

#include "tests/examples/kernels.h"

// The mean first, then the variance, of rows far from 0.
void test_layernorm_welford(void** state) {
  enum { n = 3, m = 700 };
  static float x[n][m], y[n][m];
  float gamma[m], beta[m];
  fill_numbers(23, x[0], (size_t)n * m);
  fill_numbers(24, gamma, m);
  fill_numbers(25, beta, m);
  for (int j = 0; j < m; ++j) x[1][j] += 100;
  run_kernel(*state, "layernorm_welford", "layernorm", ARRAY(F32, x, n, m), ARRAY(F32, gamma, m),
             ARRAY(F32, beta, m), NUMBER(1e-5), ARRAY(F32, y, n, m));
  for (int i = 0; i < n; ++i) {
    double mean = 0, variance = 0;
    for (int j = 0; j < m; ++j) mean += (double)x[i][j] / (double)m;
    for (int j = 0; j < m; ++j) variance += pow((double)x[i][j] - mean, 2) / (double)m;
    for (int j = 0; j < m; ++j) {
      double normal = ((double)x[i][j] - mean) / sqrt(variance + 1e-5);
      double wanted = normal * (double)gamma[j] + (double)beta[j];
      expect_near("y", (size_t)(i * m + j), (double)y[i][j], wanted, 1e-4);
    }
  }
}

void test_fft(void** state) {
  static const int sizes[] = {64, 128, 1};
  enum { b = 3 };
  for (size_t c = 0; c < sizeof sizes / sizeof *sizes; ++c) {
    int n = sizes[c];
    float x[b * 128 * 2], y[b * 128 * 2];
    fill_numbers(5, x, sizeof x / sizeof *x);
    run_kernel(*state, "fft", "fft", ARRAY(F32, x, b, n, 2), ARRAY(F32, y, b, n, 2));
    for (int i = 0; i < b * n; ++i) {
      double re = 0, im = 0;
      const float* row = x + (size_t)(i / n * n) * 2;
      for (int j = 0; j < n; ++j) {
        double angle = -2 * acos(-1) * (i % n) * j / n;
        re += (double)row[2 * j] * cos(angle) - (double)row[2 * j + 1] * sin(angle);
        im += (double)row[2 * j] * sin(angle) + (double)row[2 * j + 1] * cos(angle);
      }
      expect_near("re", (size_t)i, (double)y[2 * i], re, 1e-4);
      expect_near("im", (size_t)i, (double)y[2 * i + 1], im, 1e-4);
    }
  }
}

// Each element of the image adds its 4 x 4 taps to the result.
void test_conv_transpose(void** state) {
  enum { b = 2, c = 3, f = 4, h = 5, w = 6 };
  float x[b][c][h + 2][w + 2] = {0}, taps[c][f][4][4], bias[f], y[b][f][2 * h][2 * w];
  float image[b][c][h][w];
  double wanted[b][f][2 * h][2 * w];
  fill_numbers(6, image[0][0][0], sizeof image / sizeof(float));
  fill_numbers(7, taps[0][0][0], sizeof taps / sizeof(float));
  fill_numbers(8, bias, f);
  for (size_t i = 0; i < sizeof wanted / sizeof(double); ++i) {
    (&wanted[0][0][0][0])[i] = (double)bias[i / (2 * h * 2 * w) % f];
  }
  for (int at = 0; at < b * c * h * w; ++at) {
    int i = at / w % h, j = at % w, p = at / w / h % c, a = at / w / h / c;
    x[a][p][i + 1][j + 1] = image[a][p][i][j];
    for (int tap = 0; tap < f * 16; ++tap) {
      int row = 2 * i + tap / 4 % 4 - 1, column = 2 * j + tap % 4 - 1;
      if (row < 0 || row >= 2 * h || column < 0 || column >= 2 * w) continue;
      wanted[a][tap / 16][row][column] +=
          (double)image[a][p][i][j] * (double)taps[p][tap / 16][tap / 4 % 4][tap % 4];
    }
  }
  run_kernel(*state, "conv_transpose", "conv_transpose", ARRAY(F32, x, b, c, h + 2, w + 2),
             ARRAY(F32, taps, c, f, 4, 4), ARRAY(F32, bias, f), ARRAY(F32, y, b, f, 2 * h, 2 * w));
  for (size_t i = 0; i < sizeof wanted / sizeof(double); ++i) {
    expect_near("y", i, (double)(&y[0][0][0][0])[i], (&wanted[0][0][0][0])[i], 1e-5);
  }
}

void test_winograd(void** state) {
  enum { c = 5, f = 3, h = 6, w = 8 };
  float x[c][h + 2][w + 2], taps[f][c][3][3], y[f][h][w];
  fill_numbers(9, x[0][0], sizeof x / sizeof(float));
  fill_numbers(10, taps[0][0][0], sizeof taps / sizeof(float));
  run_kernel(*state, "winograd", "winograd", ARRAY(F32, x, c, h + 2, w + 2),
             ARRAY(F32, taps, f, c, 3, 3), ARRAY(F32, y, f, h, w));
  for (int at = 0; at < f * h * w; ++at) {
    int i = at / w % h, j = at % w, o = at / w / h;
    double wanted = 0;
    for (int tap = 0; tap < c * 9; ++tap) {
      int p = tap / 9, r = tap / 3 % 3, s = tap % 3;
      wanted += (double)x[p][i + r][j + s] * (double)taps[o][p][r][s];
    }
    expect_near("y", (size_t)at, (double)y[o][i][j], wanted, 1e-4);
  }
}

void test_split_k(void** state) {
  enum { n = 3, m = 70, max_k = 1000 };
  static float x[n * max_k], w[max_k * m];
  fill_numbers(11, x, sizeof x / sizeof *x);
  fill_numbers(12, w, sizeof w / sizeof *w);
  static const int sizes[] = {max_k, 256, 3, 0};
  for (size_t c = 0; c < sizeof sizes / sizeof *sizes; ++c) {
    int k = sizes[c];
    float y[n][m];
    run_kernel(*state, "split_k", "split_k", ARRAY(F32, x, n, k), ARRAY(F32, w, k, m),
               ARRAY(F32, y, n, m));
    for (int i = 0; i < n * m; ++i) {
      double wanted = 0;
      for (int p = 0; p < k; ++p) wanted += (double)x[i / m * k + p] * (double)w[p * m + i % m];
      expect_near("y", (size_t)i, (double)y[i / m][i % m], wanted, 1e-3);
    }
  }
}

// Attention of one query to `count` keys, whose rows are `stride` apart. Returns the logarithm of
// the sum of weights.
static double attend(double scale, const float* q, const float* const* keys,
                     const float* const* values, int count, int d, double* out) {
  double top = -INFINITY, total = 0;
  double* score = malloc((size_t)count * sizeof *score);
  assert_non_null(score);
  for (int j = 0; j < count; ++j) {
    score[j] = 0;
    for (int e = 0; e < d; ++e) score[j] += scale * (double)q[e] * (double)keys[j][e];
    top = fmax(top, score[j]);
  }
  for (int j = 0; j < count; ++j) total += exp(score[j] - top);
  for (int e = 0; e < d; ++e) {
    out[e] = 0;
    for (int j = 0; j < count; ++j) out[e] += exp(score[j] - top) / total * (double)values[j][e];
  }
  free(score);
  return top + log(total);
}

void test_attention(void** state) {
  enum { h = 2, n = 70, m = 41, d = 20 };
  static float q[h][n][d], k[h][m][d], v[h][m][d], y[h][n][d];
  fill_numbers(26, q[0][0], (size_t)h * n * d);
  fill_numbers(27, k[0][0], (size_t)h * m * d);
  fill_numbers(28, v[0][0], (size_t)h * m * d);
  run_kernel(*state, "attention", "attention", NUMBER(0.5), ARRAY(F32, q, h, n, d),
             ARRAY(F32, k, h, m, d), ARRAY(F32, v, h, m, d), ARRAY(F32, y, h, n, d));
  for (int i = 0; i < h * n; ++i) {
    const float *keys[m], *values[m];
    for (int j = 0; j < m; ++j) keys[j] = k[i / n][j];
    for (int j = 0; j < m; ++j) values[j] = v[i / n][j];
    double wanted[d];
    (void)attend(0.5, q[i / n][i % n], keys, values, m, d, wanted);
    for (int e = 0; e < d; ++e) {
      expect_near("y", (size_t)(i * d + e), (double)y[i / n][i % n][e], wanted[e], 1e-4);
    }
  }
}

void test_flash_attention(void** state) {
  enum { h = 2, n = 21, m = 75, d = 64 };
  static float q[h][n][d], k[h][m][d], v[h][m][d], y[h][n][d], lse[h][n];
  fill_numbers(13, q[0][0], (size_t)h * n * d);
  fill_numbers(14, k[0][0], (size_t)h * m * d);
  fill_numbers(15, v[0][0], (size_t)h * m * d);
  run_kernel(*state, "flash_attention", "flash_attention", NUMBER(0.5), ARRAY(F32, q, h, n, d),
             ARRAY(F32, k, h, m, d), ARRAY(F32, v, h, m, d), ARRAY(F32, y, h, n, d),
             ARRAY(F32, lse, h, n));
  for (int i = 0; i < h * n; ++i) {
    const float *keys[m], *values[m];
    for (int j = 0; j < m; ++j) keys[j] = k[i / n][j];
    for (int j = 0; j < m; ++j) values[j] = v[i / n][j];
    double wanted[d];
    double sum = attend(0.5, q[i / n][i % n], keys, values, m - n + i % n + 1, d, wanted);
    expect_near("lse", (size_t)i, (double)lse[i / n][i % n], sum, 1e-4);
    for (int e = 0; e < d; ++e) {
      expect_near("y", (size_t)(i * d + e), (double)y[i / n][i % n][e], wanted[e], 1e-4);
    }
  }
}

// Pages stand in any order, and a sequence may end within one or with one.
void test_paged_attention(void** state) {
  enum { b = 3, h = 4, g = 2, d = 24, pages = 9, size = 16, p = 4 };
  static float q[b][h][d], k[pages][size][g][d], v[pages][size][g][d], y[b][h][d];
  int32_t table[b][p] = {{7, 2, 5, 0}, {3, -1, -1, -1}, {8, 1, -1, -1}}, length[b] = {59, 1, 32};
  fill_numbers(16, q[0][0], (size_t)b * h * d);
  fill_numbers(17, k[0][0][0], sizeof k / sizeof(float));
  fill_numbers(18, v[0][0][0], sizeof v / sizeof(float));
  run_kernel(*state, "paged_attention", "paged_attention", NUMBER(0.75), ARRAY(F32, q, b, h, d),
             ARRAY(F32, k, pages, size, g, d), ARRAY(F32, v, pages, size, g, d),
             ARRAY(I32, table, b, p), ARRAY(I32, length, b), ARRAY(F32, y, b, h, d));
  for (int i = 0; i < b * h; ++i) {
    const float *keys[p * size], *values[p * size];
    for (int j = 0; j < length[i / h]; ++j) {
      int page = table[i / h][j / size], group = i % h / (h / g);
      keys[j] = k[page][j % size][group];
      values[j] = v[page][j % size][group];
    }
    double wanted[d];
    (void)attend(0.75, q[i / h][i % h], keys, values, length[i / h], d, wanted);
    for (int e = 0; e < d; ++e) {
      expect_near("y", (size_t)(i * d + e), (double)y[i / h][i % h][e], wanted[e], 1e-4);
    }
  }
}

void test_mixture_of_experts(void** state) {
  enum { t = 37, d = 16, e = 5, f = 9 };
  static float x[t][d], gate[d][e], w[e][d][f], y[t][f];
  fill_numbers(19, x[0], (size_t)t * d);
  fill_numbers(20, gate[0], (size_t)d * e);
  fill_numbers(21, w[0][0], (size_t)e * d * f);
  run_kernel(*state, "mixture_of_experts", "mixture_of_experts", ARRAY(F32, x, t, d),
             ARRAY(F32, gate, d, e), ARRAY(F32, w, e, d, f), ARRAY(F32, y, t, f));
  for (int i = 0; i < t; ++i) {
    double score[e] = {0}, wanted[f] = {0}, total = 0;
    for (int a = 0; a < e; ++a) {
      for (int p = 0; p < d; ++p) score[a] += (double)x[i][p] * (double)gate[p][a];
    }
    // The softmax of the scores that at most one other exceeds. No two scores are equal here.
    for (int pass = 0; pass < 2; ++pass) {
      for (int a = 0; a < e; ++a) {
        int before = 0;
        for (int other = 0; other < e; ++other) before += score[other] > score[a];
        if (before < 2 && pass == 0) total += exp(score[a]);
        for (int c = 0; c < f && before < 2 && pass == 1; ++c) {
          double product = 0;
          for (int p = 0; p < d; ++p) product += (double)x[i][p] * (double)w[a][p][c];
          wanted[c] += exp(score[a]) / total * product;
        }
      }
    }
    for (int c = 0; c < f; ++c) {
      expect_near("y", (size_t)(i * f + c), (double)y[i][c], wanted[c], 1e-4);
    }
  }
}
