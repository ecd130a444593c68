// SPDX-License-Identifier: Apache-2.0
// bench/serve/quantile.c: see quantile.h.
#include "bench/serve/quantile.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void* a, const void* b) {
  const double* x = a;
  const double* y = b;
  return (*x > *y) - (*x < *y);
}

void quantile_sort(double* values, size_t count) {
  if (count > 0) qsort(values, count, sizeof *values, compare_doubles);
}

// With B the number of values below the quantile, binomial(count, p), value number r lies at or
// below the quantile if B >= r, and above it if B < r. So low is the largest r with P(B < r) <= 2.5
// %, high the smallest with P(B < r) >= 97.5 %. Ten standard deviations from the mean the
// probabilities are nothing; the sum begins there.
void quantile_ranks(size_t count, double p, size_t* out_low, size_t* out_high) {
  double n = (double)count;
  double reach = 10 * sqrt(n * p * (1 - p)) + 10;
  size_t k = n * p > reach ? (size_t)(n * p - reach) : 0;
  *out_low = k;  // P(B < k) is 0, for all that matters
  *out_high = count + 1;
  double below = 0;  // P(B < k)
  for (; k <= count; k++) {
    double x = (double)k;
    below +=
        exp(lgamma(n + 1) - lgamma(x + 1) - lgamma(n - x + 1) + x * log(p) + (n - x) * log1p(-p));
    // Now P(B < k + 1).
    if (below <= 0.025) *out_low = k + 1;
    if (below >= 0.975) {
      *out_high = k + 1;
      break;
    }
  }
  if (*out_low > count) *out_low = count;
}

quantile_t quantile_of(const double* sorted, size_t count, double p) {
  if (count == 0) return (quantile_t){NAN, NAN, NAN};
  double exact = ceil(p * (double)count * (1 - 1e-15));
  size_t rank = exact < 1 ? 1 : (size_t)exact;
  size_t low = 0;
  size_t high = 0;
  quantile_ranks(count, p, &low, &high);
  return (quantile_t){.value = sorted[rank - 1],
                      .low = low >= 1 ? sorted[low - 1] : NAN,
                      .high = high <= count ? sorted[high - 1] : NAN};
}
