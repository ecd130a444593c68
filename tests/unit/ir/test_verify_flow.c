// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_verify_flow.c: tests detection of provable races and of divergent control
// flow. Each refused program has valid neighbours.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "tests/unit/ir/support_verify.h"

#define SIGNATURE "func f(x: f32[n], k: i64[n], inout y: f32[n], inout z: i32[n], s: i64) "
#define BODY(body) SIGNATURE "{ " body " }"
#define PARALLEL(body) SIGNATURE "{ parallel i in 0..n { " body " } }"
#define GRID(body)                                                                          \
  SIGNATURE "{ block.x b in 0..n { alloc q: f32[64] in shared; thread.x t in 0..32 { " body \
            " } "                                                                           \
            "} }"

static const qn_verify_case_t one_element[] = {
    {PARALLEL("y[0] = x[i];"), "QN0228",
     "two iterations of 'parallel' store to one element of 'y': no index depends on 'i'"},
    {PARALLEL("y[s] = x[i];"), "QN0228", ""},
    {PARALLEL("y[i] = 1.0;"), NULL, NULL},
    {PARALLEL("y[n - 1 - i] = 1.0;"), NULL, NULL},
    {PARALLEL("for j in 0..n { y[j] = x[i]; }"), "QN0228", "'i'"},
    {PARALLEL("for j in 0..i { y[j] = x[i]; }"), NULL, NULL},  // not every iteration comes here
    {PARALLEL("for j in i..i + 1 { y[j] = x[i]; }"), NULL, NULL},
    {PARALLEL("let j = i * 2; y[j] = 1.0;"), NULL, NULL},
    {PARALLEL("let j = s * 2; y[j] = 1.0;"), "QN0228", ""},
    {PARALLEL("y[k[i]] = 1.0;"), NULL, NULL},
    {PARALLEL("y[k[0]] = 1.0;"), "QN0228", ""},     // an `in` parameter: one value
    {PARALLEL("y[i64(z[0])] = 1.0;"), NULL, NULL},  // z may change
    {PARALLEL("let o = atomic_add(z[0], 1); y[i64(o)] = 1.0;"), NULL, NULL},
    {PARALLEL("atomic_add(y[0], x[i]);"), NULL, NULL},
    {PARALLEL("if i == 0 { y[0] = 1.0; }"), NULL, NULL},
    {PARALLEL("if x[i] > 0.0 { y[0] = 1.0; }"), NULL, NULL},
    {PARALLEL("if n == 1 { y[0] = 1.0; }"), NULL, NULL},
    {BODY("parallel i in 0..4 { if s == 1 { y[0] = 1.0; } }"), "QN0228", ""},
    {BODY("parallel i in 0..1 { y[0] = 1.0; }"), NULL, NULL},
    {BODY("parallel i in 0..0 { y[0] = 1.0; }"), NULL, NULL},
    {BODY("parallel i in s..s + 1 { y[0] = 1.0; }"), NULL, NULL},
    {BODY("parallel i in s..s + 2 { y[0] = 1.0; }"), "QN0228", ""},
    {BODY("for i in 0..n { y[0] = 1.0; }"), NULL, NULL},
    {BODY("unroll i in 0..4 { y[0] = 1.0; }"), NULL, NULL},
    {BODY("vector i in 0..4 { y[0] = 1.0; }"), "QN0228", "'vector'"},
    {BODY("block.x i in 0..4 { y[0] = 1.0; }"), "QN0228", "'block.x'"},
    {BODY("parallel i in 0..n { parallel j in 0..n { y[i] = 1.0; } }"), "QN0228", "depends on 'j'"},
    {BODY("parallel i in 0..n { parallel j in 0..n { y[j] = 1.0; } }"), "QN0228", "depends on 'i'"},
    {BODY("parallel i in 0..n { parallel j in 0..n { y[i * n + j] = 1.0; } }"), NULL, NULL},
    {PARALLEL("alloc a: f32[2] in local; a[0] = 1.0; y[i] = a[0];"), NULL, NULL},
    {BODY("alloc a: f32[2] in global; parallel i in 0..n { a[0] = 1.0; }"), "QN0228", "'a'"},
    {PARALLEL("view v: f32[2] = y[i]; v[0] = 1.0;"), NULL, NULL},
    {PARALLEL("view v: f32[2] = y[s]; v[0] = 1.0;"), "QN0228", "'v'"},
    {PARALLEL("while x[i] > 1.0 { y[0] = 1.0; }"), NULL, NULL},
    {GRID("q[t] = 1.0;"), NULL, NULL},
    {GRID("q[0] = 1.0;"), "QN0228", "'thread.x'"},
    {GRID("if t == 0 { q[0] = 1.0; }"), NULL, NULL},
    {GRID("y[t] = 1.0;"), "QN0228", "'block.x'"},
    {GRID("y[b * 32 + t] = 1.0;"), NULL, NULL},
};

static const qn_verify_case_t neighbours[] = {
    {PARALLEL("y[i] = y[i + 1];"), "QN0229", "reads the element of 'y' that another one stores"},
    {PARALLEL("y[i] = y[i] + 1.0;"), NULL, NULL},
    {PARALLEL("y[i] = x[i + 1];"), NULL, NULL},
    {PARALLEL("let a = y[i - 1]; y[i] = a;"), "QN0229", ""},
    {PARALLEL("y[i * 2] = y[i * 2 + 1];"), NULL, NULL},
    {PARALLEL("y[i * 2] = y[i * 2 + 2];"), "QN0229", ""},
    {PARALLEL("y[-i] = y[2 - i];"), "QN0229", ""},
    {PARALLEL("y[i + s] = y[i + s + 1];"), "QN0229", ""},
    {PARALLEL("y[i + s] = y[i];"), NULL, NULL},  // s may be 0
    {PARALLEL("y[i] = y[i * 2];"), NULL, NULL},
    {PARALLEL("y[i] = y[k[i]];"), NULL, NULL},
    {PARALLEL("if i > 0 { y[i] = y[i - 1]; }"), NULL, NULL},
    {PARALLEL("y[i] = i > 0 ? y[i - 1] : 0.0;"), NULL, NULL},
    {PARALLEL("y[i] = i > 0 && y[i - 1] > 0.0 ? 1.0 : 0.0;"), NULL, NULL},
    {BODY("parallel i in 0..100 { y[i] = y[i + 100]; }"), NULL, NULL},
    {BODY("parallel i in 0..101 { y[i] = y[i + 100]; }"), "QN0229", ""},
    {BODY("for i in 0..n { y[i] = y[i + 1]; }"), NULL, NULL},
    {PARALLEL("y[i] = 1.0; y[i + 1] = 2.0;"), "QN0228",
     "two iterations of 'parallel' store to one"},
    {PARALLEL("y[i] = 1.0; y[i] = 2.0;"), NULL, NULL},
    {PARALLEL("let a = i * 4; y[a] = 1.0; y[a + 1] = 1.0; y[a + 3] = 1.0;"), NULL, NULL},
    {PARALLEL("let a = i * 4; y[a] = 1.0; y[a + 4] = 1.0;"), "QN0228", ""},
    {PARALLEL("let t = y[i + 1]; atomic_add(y[i], t);"), NULL, NULL},
    {"func f(inout y: f32[n, m]) { parallel i in 0..n { for j in 0..m { y[i, j] = y[i + 1, j]; } } "
     "}",
     "QN0229", ""},
    {"func f(inout y: f32[n, m]) { parallel i in 0..n { for j in 0..m { y[i, j] = y[i, j + 1]; } } "
     "}",
     NULL, NULL},
    {"func f(inout y: f32[n, n]) { parallel i in 0..n { y[i, i] = y[i + 1, i + 2]; } }", NULL,
     NULL},
    {"func f(inout y: f32[n, n]) { parallel i in 0..n { y[i, i] = y[i + 1, i + 1]; } }", "QN0229",
     ""},
    {"func f(inout y: f32[n, m]) { parallel i in 0..n { y[i, 0] = sum j in 0..m { y[i, j] }; } }",
     NULL, NULL},
    {GRID("q[t] = x[t]; barrier; y[b * 32 + t] = q[t + 1];"), NULL, NULL},
    {GRID("q[t] = x[t]; y[b * 32 + t] = q[t + 1];"), "QN0229", "'thread.x'"},
    {"func f(inout y: f32[n]) { parallel i in 0..n { parallel j in 0..4 { y[i * 4 + j] = "
     "y[i * 4 + j + 4]; } } }",
     "QN0229", "'parallel'"},
};

static const qn_verify_case_t divergence[] = {
    {GRID("if t < 16 { barrier; }"), "QN0221", "a barrier under control flow that differs"},
    {GRID("if t < 16 { } else { barrier; }"), "QN0221", ""},
    {GRID("if b < 16 { barrier; }"), NULL, NULL},
    {GRID("if n < 16 { barrier; }"), NULL, NULL},
    {GRID("let a = t + b; if a < 16 { barrier; }"), "QN0221", ""},
    {GRID("let a = x[t]; if a < 1.0 { barrier; }"), "QN0221", ""},
    {GRID("let a = x[b]; if a < 1.0 { barrier; }"), NULL, NULL},
    {GRID("for j in 0..t { barrier; }"), "QN0221", ""},
    {GRID("for j in t..4 { barrier; }"), "QN0221", ""},
    {GRID("for j in 0..n { if j == 3 { barrier; } }"), NULL, NULL},
    {GRID("while x[t] > 0.0 { barrier; }"), "QN0221", ""},
    {GRID("while x[b] > 0.0 { barrier; }"), NULL, NULL},
    {GRID("let o = atomic_add(z[0], 1); if o > 1 { barrier; }"), "QN0221", ""},
    {GRID("if block_sum(x[t]) > 1.0 { barrier; }"), NULL, NULL},
    {GRID("if warp_sum(x[t]) > 1.0 { barrier; }"), "QN0221", ""},
    {GRID("if shuffle(x[b], 0) > 1.0 { barrier; }"), "QN0221", ""},
    {GRID("if t < 16 { y[b * 32 + t] = block_sum(1.0); }"), "QN0221",
     "'block_sum' under control flow"},
    {GRID("let a = t < 16 ? warp_max(x[t]) : 1.0;"), "QN0221", "'warp_max'"},
    {GRID("let a = b < 16 ? warp_max(x[t]) : 1.0;"), NULL, NULL},
    {GRID("let a = t < 16 && block_sum(1.0) > 0.0;"), "QN0221", "'block_sum'"},
    {GRID("let a = sum j in 0..t { block_sum(1.0) };"), "QN0221", "'block_sum'"},
    {GRID("let a = sum j in 0..n { block_sum(1.0) };"), NULL, NULL},
    {GRID("let a = select(t < 16, block_sum(1.0), 0.0);"), NULL, NULL},  // both are evaluated
    // Through memory of the thread's own, also from a later store to an earlier load.
    {GRID("alloc a: i64[1] in local; a[0] = t; if a[0] > 1 { barrier; }"), "QN0221", ""},
    {GRID("alloc a: i64[1] in local; a[0] = n; if a[0] > 1 { barrier; }"), NULL, NULL},
    {GRID("alloc a: i64[1] in local; a[0] = 0; for j in 0..3 { if a[0] > 1 { barrier; } a[0] = t; "
          "}"),
     "QN0221", ""},
    {GRID("alloc a: i64[1] in local; a[0] = 0; if t > 3 { a[0] = 1; } if a[0] > 0 { barrier; }"),
     "QN0221", ""},
    {GRID(
         "alloc a: i64[4] in local; a[0] = 0; view v: i64[1] = a[t % 4]; if v[0] > 0 { barrier; }"),
     "QN0221", ""},
    {GRID("thread.y u in 0..4 { if u > 2 { barrier; } }"), "QN0221", ""},
    {GRID("if t > 2 { thread.y u in 0..4 { barrier; } }"), "QN0221", ""},
    // Outside of the thread loops there is nobody to part from.
    {SIGNATURE "{ block.x b in 0..n { if k[b] > 2 { thread.x t in 0..32 { barrier; } } } }", NULL,
     NULL},
};

static void one_element_is_stored_to_once(void** state) {
  (void)state;
  QN_VERIFY_CASES(one_element);
}
static void neighbours_do_not_meet(void** state) {
  (void)state;
  QN_VERIFY_CASES(neighbours);
}
static void threads_arrive_together(void** state) {
  (void)state;
  QN_VERIFY_CASES(divergence);
}

// Many local buffers that feed each other backwards: the rounds are bounded, and then everything
// counts as divergent.
static void long_chains_end(void** state) {
  (void)state;
  enum { COUNT = 100 };
  char text[COUNT * 80 + 400];
  size_t size = 0;
#define APPEND(...) size += (size_t)snprintf(text + size, sizeof text - size, __VA_ARGS__)
  APPEND("func f() { block.x b in 0..2 { thread.x t in 0..32 {");
  for (int i = 0; i < COUNT; i++) APPEND("alloc a%d: i64[1] in local;", i);
  APPEND("for j in 0..3 { if a0[0] > 1 { barrier; }");
  for (int i = 0; i + 1 < COUNT; i++) APPEND("a%d[0] = a%d[0];", i, i + 1);
  APPEND("a%d[0] = t; } } } }", COUNT - 1);
#undef APPEND
  qn__expect_verify(&(qn_verify_case_t){text, "QN0221", "a barrier"});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_element_is_stored_to_once),
      cmocka_unit_test(neighbours_do_not_meet),
      cmocka_unit_test(threads_arrive_together),
      cmocka_unit_test(long_chains_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
