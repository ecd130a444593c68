// SPDX-License-Identifier: Apache-2.0
// conformance/failures.c: asserts, and checked builds: the reason, place and index of a failure.
#include "conformance/program.h"

#define ASSERTION .code = QN_STATUS_ASSERTION
#define BOUNDS .is_checked = true, .code = QN_STATUS_OUT_OF_BOUNDS
#define DIVISION .is_checked = true, .code = QN_STATUS_DIVISION_BY_ZERO

static const conf_program_t programs[] = {
    {.feature = "assert that holds",
     .text = "func fa_holds(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  assert x[i] > -100, \"impossible\"; y[i] = x[i] + 1; } }",
     .args = "rand:300 junk:300;rand:0 junk:0"},
    {.feature = "assert in a parallel loop",
     .text = "func fa_parallel(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  assert x[i] < 70, \"x is too large\"; y[i] = x[i]; } }",
     .args = "iota:300 junk:300",
     ASSERTION,
     .parts = "fa_parallel,x is too large,:10: x[i] < 70"},
    {.feature = "assert at the top of a function",
     .text = "func fa_top(x: i32[n], out y: i32[n], k: i32) {\n"
             "  assert k < 4, \"k is at least 4\";\n"
             "  parallel i in 0..n { y[i] = x[i] + k; } }",
     .args = "rand:30 junk:30 4",
     ASSERTION,
     .parts = "fa_top,k is at least 4,:10: k < 4"},
    {.feature = "assert without a message",
     .text = "func fa_plain(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  let doubled = x[i] * 2; assert doubled < 70; y[i] = doubled; } }",
     .args = "iota:300 junk:300",
     ASSERTION,
     .parts = "fa_plain,assert failed: doubled < 70,at <text>:"},
    {.feature = "assert in a thread",
     .text =
         "func fa_thread(x: i32[n, 32], out y: i32[n, 32]) { block.x b in 0..n {\n"
         "  thread.x t in 0..32 { assert x[b, t] != 17, \"seventeen\"; y[b, t] = x[b, t]; } } }",
     .args = "iota:2x32 junk:2x32",
     ASSERTION,
     .parts = "fa_thread,seventeen"},
    {.feature = "assert in the second launch",
     .text = "func fa_second(x: i32[n], out y: i32[n]) {\n"
             "  parallel i in 0..n { y[i] = x[i] * 2; }\n"
             "  parallel i in 0..n { assert y[i] < 50, \"second launch\"; y[i] = y[i] + 1; } }",
     .args = "iota:64 junk:64",
     ASSERTION,
     .parts = "fa_second,second launch,:31: y[i] < 50"},
    {.feature = "checked code that is right",
     .is_checked = true,
     .text = "func fa_right(x: f32[n, m], out y: f32[m, n], k: i32) { parallel i in 0..n {\n"
             "  for j in 0..m { y[j, i] = x[i, j] + f32(k // (i32(j) + 1)); } } }",
     .args = "rand:9x14 junk:14x9 100"},
    {.feature = "empty views that start nowhere",
     .is_checked = true,
     .text = "func fa_empty(x: f32[n], at: i32[n], inout y: f32[m]) {\n"
             "  view none: f32[n] = x[100 + m];\n"
             "  view divided: f32[n] = x[m // n];\n"
             "  parallel i in 0..m { view own: f32[2, n] = x[at[i] + 1];\n"
             "    y[i] = y[i] + (sum k in 0..n { own[0, k] + none[k] + divided[k] }); } }",
     .args = "rand:0 iota:0 rand:37"},
    {.feature = "load out of bounds",
     .text = "func fa_load(x: f32[n], out y: f32[n], k: i32) { parallel i in 0..n {\n"
             "  y[i] = x[i + i64(k)]; } }",
     .args = "rand:100 junk:100 1",
     BOUNDS,
     .parts = "function 'fa_load',buffer 'x' dim 0,index 100 outside of extent 100,:10: "
              "x[i + i64(k)]"},
    {.feature = "load before the beginning",
     .text = "func fa_before(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i - 1]; } }",
     .args = "rand:100 junk:100",
     BOUNDS,
     .parts = "function 'fa_before',buffer 'x' dim 0,index -1 outside of extent 100,: x[i - 1]"},
    {.feature = "store out of bounds",
     .text = "func fa_store(x: i32[n], inout y: i32[m]) { for i in 0..n { y[i64(x[i])] = 1; } }",
     .args = "iota:6 junk:5",
     BOUNDS,
     .parts = "function 'fa_store',buffer 'y' dim 0,index 5 outside of extent 5,: y[i64(x[i])]"},
    {.feature = "second dimension out of bounds",
     .text = "func fa_dim(x: f32[n, m], out y: f32[n]) { parallel i in 0..n { y[i] = x[i, m]; } }",
     .args = "rand:8x3 junk:8",
     BOUNDS,
     .parts = "function 'fa_dim',buffer 'x' dim 1,index 3 outside of extent 3"},
    {.feature = "atomic out of bounds",
     .text = "func fa_atomic(x: i32[n], inout y: i32[3]) {\n"
             "  parallel i in 0..n { atomic_add(y[i64(x[i])], 1); } }",
     .args = "iota:4 zero:3",
     BOUNDS,
     .parts = "function 'fa_atomic',buffer 'y' dim 0,index 3 outside of extent 3"},
    {.feature = "workspace out of bounds",
     .text = "func fa_space(x: f32[n], out y: f32[n]) {\n"
             "  alloc w: f32[n] in global;\n"
             "  parallel i in 0..n { w[i] = x[i]; }\n"
             "  parallel i in 0..n { y[i] = w[i * 2]; } }",
     .args = "rand:2 junk:2",
     BOUNDS,
     .parts = "function 'fa_space',buffer 'w' dim 0,index 2 outside of extent 2,:31: "
              "w[i * 2]"},
    {.feature = "local memory out of bounds",
     .text =
         "func fa_local(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
         "  alloc t: i32[4] in local; for k in 0..4 { t[k] = i32(k); } y[i] = t[i64(x[i])]; } }",
     .args = "iota:5 junk:5",
     BOUNDS,
     .parts = "function 'fa_local',buffer 't' dim 0,index 4 outside of extent 4,: t[i64(x[i])]"},
    {.feature = "shared memory out of bounds",
     .text = "func fa_shared(out y: i32[n, 32]) { block.x b in 0..n {\n"
             "  alloc t: i32[32] in shared;\n"
             "  thread.x k in 0..32 { t[k] = i32(k); barrier; y[b, k] = t[k == 31 ? 40 : k]; } } }",
     .args = "junk:2x32",
     BOUNDS,
     .parts = "function 'fa_shared',buffer 't' dim 0,index 40 outside of extent 32,: t[k == 31 ? "
              "40 : k]"},
    {.feature = "view out of bounds",
     .text = "func fa_view(x: f32[n, m], out y: f32[m]) {\n"
             "  view row: f32[m] = x[0, 0];\n"
             "  parallel j in 0..m { y[j] = row[j == 3 ? m + 2 : j]; } }",
     .args = "rand:4x6 junk:6",
     BOUNDS,
     .parts = "function 'fa_view',buffer 'row' dim 0,index 8 outside of extent 6,: row[j == 3 ? m "
              "+ 2 : j]"},
    {.feature = "division by zero in a function with a value",
     .text = "func fa_called(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  y[i] = fa_outer(x[i]); } }\n"
             "func fa_outer(a: i32) -> i32 { return 1 + fa_inner(100, a - 17); }\n"
             "func fa_inner(a: i32, b: i32) -> i32 { return a // b; }",
     .args = "iota:40 junk:40",
     DIVISION,
     .parts = "fa_called,: a // b,in 'fa_inner',in 'fa_outer',called at <text>:"},
    {.feature = "division by zero",
     .text = "func fa_divide(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  y[i] = 1000 // (x[i] - 33); } }",
     .args = "iota:64 junk:64",
     DIVISION,
     .parts = "fa_divide,:10: 1000 // (x[i] - 33)"},
    {.feature = "remainder by zero",
     .text = "func fa_modulo(x: u8[n], out y: u8[n]) { parallel i in 0..n { y[i] = 100 % x[i]; } }",
     .args = "zero:16 junk:16",
     DIVISION,
     .parts = "fa_modulo,: 100 % x[i]"},
    {.feature = "workspace of a negative extent",
     .text =
         "func fa_negative(inout x: f32[n], k: i32) {\n"
         "  alloc w: f32[i64(k)] in global;\n"
         "  parallel i in 0..n { x[i] = x[i] + 1.0; } parallel i in 0..i64(k) { w[i] = 1.0; } }",
     .args = "rand:4 -3",
     .code = QN_STATUS_VALUE_ERROR,
     .parts = "fa_negative,'w',:3: alloc w: f32[i64(k)] in global"},
    {.feature = "workspace beyond all memory",
     .text = "func fa_huge(inout x: f32[n], k: i64) {\n"
             "  alloc w: f32[k] in global;\n"
             "  parallel i in 0..n { w[i] = x[i]; } parallel i in 0..n { x[i] = w[i]; } }",
     .args = "rand:4 200000000000",
     .code = QN_STATUS_OUT_OF_MEMORY,
     .parts = "fa_huge,'w',:3: alloc w"},
};

static void run(conf_t* c) {
  conf_programs(c, programs, CONF_COUNT_OF(programs));
}

const conf_area_t conf_area_failures = {"failures", NULL, 0, run};
