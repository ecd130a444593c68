// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_jam.c: tests of the pass `jam` (ir/passes/cpu/jam.c). Results:
// test_pass_memory.c and test_pass_random.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"

static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_jam};
static const qn__pass_options_t options = {.vector_bytes = 64, .has_blocks = true};

static void expect(const char* text, const char* expected) {
  qn_test_expect_all(passes, QN_COUNT_OF(passes), &options, text, expected);
}

static void expect_none(const char* text) {
  char* printed = qn_test_pass(text, &options, passes, QN_COUNT_OF(passes));
  if (strstr(printed, "block")) fail_msg("%s", printed);
  free(printed);
}

static void attention(void** state) {
  (void)state;
  static const char text[] =
      "func f(q: f32[h, n, 32], k: f32[h, m, 32], v: f32[h, m, 32], out y: f32[h, n, 32]) {\n"
      "  parallel g in 0..h { parallel i in 0..n {\n"
      "    alloc p: f32[128] in local;\n"
      "    for j in 0..m { p[j] = 0.5 * sum d in 0..32 { q[g, i, d] * k[g, j, d] }; }\n"
      "    let top = max j in 0..m { p[j] };\n"
      "    for j in 0..m { p[j] = exp(p[j] - top); }\n"
      "    let total = sum j in 0..m { p[j] };\n"
      "    for d in 0..32 { y[g, i, d] = (sum j in 0..m { p[j] * v[g, j, d] }) / total; }\n"
      "  } }\n"
      "}";
  expect(text,
         "parallel g in 0..h {\n"
         "parallel block in 0..ceildiv(max(n, 0), 64) {\n"
         "let first = block * 64;\n"
         "if first + 64 <= n {\n"
         "alloc p: f32[128, 64] in local;\n"
         "parallel u in 0..64 {\n"
         "let i = first + u;\n"
         "for j in 0..m {\n"
         "!exp\n"
         "alloc total: f32[64] in local;\n"
         "parallel u in 0..64 {\n"
         "!q[g, i, d]\n"
         "p[j, u] = exp(p[j, u] - top);\n"
         "total[u] = total_1;\n"
         "!exp\n"
         "parallel u in 0..64 {\n"
         "for d in 0..32 {\n"
         "} else {\n"
         "for i in first..n {\n"
         "alloc p: f32[128] in local;\n");
  // Both loops are products now, which are written before and after the exponentials.
  static const qn__pass_t* const all[] = {&qn__pass_independent, &qn__pass_jam, &qn__pass_block};
  qn_test_expect_all(all, QN_COUNT_OF(all), &options, text,
                     "alloc packed_columns: f32[32, 64] in local;\n"
                     "p[j, u] = exp(p[j, u] - top);\n"
                     "alloc packed_rows: f32[256, 12] in local;\n");
}

static void normalized_rows(void** state) {
  (void)state;
  // The factor of a row is a sum of its own. The block is smaller as there are only 40 rows.
  expect(
      "func f(x: f32[40, 64], w: f32[64, m], out y: f32[40, m]) {\n"
      "  for i in 0..40 {\n"
      "    let mean = (sum k in 0..64 { x[i, k] }) / 64.0;\n"
      "    for j in 0..m { y[i, j] = sum k in 0..64 { (x[i, k] - mean) * w[k, j] }; }\n"
      "  }\n"
      "}",
      "for block in 0..2 {\n"
      "if first + 32 <= 40 {\n"
      "alloc mean: f32[32] in local;\n"
      "parallel u in 0..32 {\n"
      "mean[u] = mean_1;\n"
      "parallel u in 0..32 {\n"
      "y[i, j] = sum k in 0..64 { (x[i, k] - mean_2) * w[k, j] };\n"
      "for i in first..40 {\n");
}

static void masked_scores(void** state) {
  (void)state;
  // Each row computes all sums, and keeps those that it needs.
  expect(
      "func f(q: f32[n, 32], k: f32[m, 32], out y: f32[n]) {\n"
      "  parallel i in 0..n {\n"
      "    alloc p: f32[128] in local;\n"
      "    for j in 0..m { p[j] = j <= i ? 2.0 * sum d in 0..32 { q[i, d] * k[j, d] } : -1.0; }\n"
      "    y[i] = max j in 0..m { p[j] };\n"
      "  }\n"
      "}",
      "parallel u in 0..64 {\n"
      "let i = first + u;\n"
      "for j in 0..m {\n"
      "let sum = sum d in 0..32 { q[i, d] * k[j, d] };\n"
      "p[j, u] = j <= i ? 2.0 * sum : -1.0;\n");
  expect(
      "func f(q: f32[n, 32], k: f32[m, 32], b: f32[m], out y: f32[n]) {\n"
      "  parallel i in 0..n {\n"
      "    alloc p: f32[128] in local;\n"
      "    for j in 0..m {\n"
      "      let s = sum d in 0..32 { q[i, d] * k[j, d] };\n"
      "      if j <= i { p[j] = s; } else { p[j] = b[j]; }\n"
      "    }\n"
      "    y[i] = max j in 0..m { p[j] };\n"
      "  }\n"
      "}",
      "for j in 0..m {\n"
      "let s = sum d in 0..32 { q[i, d] * k[j, d] };\n"
      "if j <= i {\n"
      "p[j, u] = s;\n");
  // A key that may not be there.
  expect_none(
      "func f(q: f32[n, 32], k: f32[m, 32], out y: f32[n]) {\n"
      "  parallel i in 0..n {\n"
      "    alloc p: f32[128] in local;\n"
      "    for j in 0..n { p[j] = j < m ? sum d in 0..32 { q[i, d] * k[j, d] } : -1.0; }\n"
      "    y[i] = max j in 0..n { p[j] };\n"
      "  }\n"
      "}");
}

// A row reads the keys before it. Those of the others of its block are computed, and dropped.
static void rising_ranges(void** state) {
  (void)state;
  expect(
      "func f(q: f32[n, 32], k: f32[n, 32], v: f32[n, 32], out y: f32[n, 32]) {\n"
      "  parallel i in 0..n {\n"
      "    alloc p: f32[128] in local;\n"
      "    for j in 0..i + 1 { p[j] = 0.5 * sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "    let top = max j in 0..i + 1 { p[j] };\n"
      "    for j in 0..i + 1 { p[j] = exp(p[j] - top); }\n"
      "    for d in 0..32 { y[i, d] = sum j in 0..i + 1 { p[j] * v[j, d] }; }\n"
      "  }\n"
      "}",
      "let shortest = first + 1;\n"
      "let longest = first + 63 + 1;\n"
      "if is_whole && most < inf {\n"
      "for j in 0..longest {\n"
      "p[j, u] = 0.5 * (sum d in 0..32 { q[i, d] * k[j, d] });\n"
      "let own = max j in 0..shortest { p[j, u] };\n"
      "let top = max(own, rest);\n"
      "p[j, u] = exp(p[j, u] - top);\n"
      "for j in shortest..longest {\n"
      "p[j, u] = i32(j - shortest) < i32(i + 1 - shortest) ? p[j, u] : 0.0;\n"
      "y[i, d] = sum j in 0..longest { p[j, u] * v[j, d] };\n"
      "for i in first..min(first + 64, n) {\n");
}

// Each of these bodies has a product for each row, whose ranges rise.
static void rising_ranges_that_stay(void** state) {
  (void)state;
  static const char* const bodies[] = {
      // The last row does not read what an earlier one would: by place, by condition.
      "for j in 0..i + 1 { p[j] = b[i - j] + sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "y[i] = max j in 0..i + 1 { p[j] };\n",
      "for j in 0..i + 1 { p[j] = (b[j] > 0.0 ? b[j + 1] : 0.0) +\n"
      "  sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "y[i] = max j in 0..i + 1 { p[j] };\n",
      // An element that only a row with it may read, or that is stored for others.
      "for j in 0..i + 1 { p[j] = sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "y[i] = p[i] + max j in 0..i + 1 { p[j] };\n",
      "for j in 0..m { p[j] = 0.0; }\n"
      "for j in 0..i + 1 { p[j] = sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "y[i] = max j in 0..i + 1 { p[j] };\n",
      "for j in 0..i + 1 { w[i, j] = sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "y[i] = 0.0;\n",
      // Two ranges, and one that falls.
      "for j in 0..i + 1 { p[j] = sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "y[i] = max j in 0..i + 2 { p[j] };\n",
      "for j in 0..m - i { p[j] = sum d in 0..32 { q[i, d] * k[j, d] }; }\n"
      "y[i] = max j in 0..m - i { p[j] };\n",
  };
  for (size_t i = 0; i < QN_COUNT_OF(bodies); ++i) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "func f(q: f32[n, 32], k: f32[m, 32], b: f32[m], inout w: f32[n, m],\n"
                   "    out y: f32[n]) {\n"
                   "  parallel i in 0..n {\n"
                   "    alloc p: f32[128] in local;\n%s"
                   "  }\n"
                   "}",
                   bodies[i]);
    expect_none(text);
  }
}

static void other_loops_stay(void** state) {
  (void)state;
  // One product: the pass `block` takes all rows at once.
  expect_none(
      "func f(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
      "  parallel i in 0..n { for j in 0..m { c[i, j] = sum t in 0..k { a[i, t] * b[t, j] }; } }\n"
      "}");
  // A matrix for each row, and no matrix.
  expect_none(
      "func f(a: f32[n, k], b: f32[n, m, k], out c: f32[n, m]) {\n"
      "  parallel i in 0..n {\n"
      "    let s = sum t in 0..k { a[i, t] };\n"
      "    for j in 0..m { c[i, j] = s * sum t in 0..k { a[i, t] * b[i, j, t] }; }\n"
      "  }\n"
      "}");
  expect_none(
      "func f(a: f32[n, m], out c: f32[n, m]) {\n"
      "  parallel i in 0..n {\n"
      "    let s = sum j in 0..m { a[i, j] };\n"
      "    for j in 0..m { c[i, j] = a[i, j] / s; }\n"
      "  }\n"
      "}");
  // Fewer rows than a block has, and rows of different ranges.
  expect_none(
      "func f(a: f32[9, k], b: f32[m, k], out c: f32[9, m]) {\n"
      "  parallel i in 0..9 {\n"
      "    let s = sum t in 0..k { a[i, t] };\n"
      "    for j in 0..m { c[i, j] = s * sum t in 0..k { a[i, t] * b[j, t] }; }\n"
      "  }\n"
      "}");
  expect_none(
      "func f(a: f32[n, k], b: f32[m, k], out c: f32[n, m]) {\n"
      "  parallel i in 0..n {\n"
      "    let s = sum t in 0..max(k - i, 0) { a[i, t] };\n"
      "    for j in 0..m { c[i, j] = s * sum t in 0..k { a[i, t] * b[j, t] }; }\n"
      "  }\n"
      "}");
  // A row that needs the one before, and a matrix that rows write.
  expect_none(
      "func f(b: f32[m, k], inout c: f32[n, m]) {\n"
      "  for i in 0..n - 1 {\n"
      "    let s = c[i, 0];\n"
      "    for j in 0..m { c[i + 1, j] = s + sum t in 0..m { c[i, t] * b[j, t] }; }\n"
      "  }\n"
      "}");
  // Local buffers that are larger than the second cache.
  expect_none(
      "func f(a: f32[n, k], b: f32[m, k], out c: f32[n]) {\n"
      "  parallel i in 0..n {\n"
      "    alloc p: f32[16384] in local;\n"
      "    for j in 0..m { p[j] = sum t in 0..k { a[i, t] * b[j, t] }; }\n"
      "    c[i] = max j in 0..m { p[j] };\n"
      "  }\n"
      "}");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention),
      cmocka_unit_test(normalized_rows),
      cmocka_unit_test(masked_scores),
      cmocka_unit_test(rising_ranges),
      cmocka_unit_test(rising_ranges_that_stay),
      cmocka_unit_test(other_loops_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
