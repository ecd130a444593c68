// SPDX-License-Identifier: Apache-2.0
// conformance/scans.c: scans of one or several values, by one thread, a block and a device.
//
// Combiners of integers give the same bits in every grouping; those that are not commutative show
// an order that is not kept.
#include "conformance/program.h"

// Sums of floats may be grouped in any way. Their terms are positive: running sums near zero have
// no relative precision.
#define LOOSE 1e-5

static const conf_program_t programs[] = {
    {.feature = "inclusive",
     .text = "func sc_in(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n {\n"
             "  scan j in 0..m { abs(x[i, j]) } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[i, j] = s; } } }",
     .args = "rand:5x100 junk:5x100;rand:3x0 junk:3x0;rand:300x7 junk:300x7;"
             "rand:2x1024 junk:2x1024;rand:1x4099 junk:1x4099",
     .tolerance = LOOSE},
    {.feature = "exclusive",
     .text = "func sc_ex(x: i32[n, m], k: i32, out y: i32[n, m]) { parallel i in 0..n {\n"
             "  exclusive_scan j in 0..m { x[i, j] } from (k) with (a), (b) { a + b } as (s) {\n"
             "    y[i, j] = s; } } }",
     .args = "bits:5x100 7 junk:5x100;bits:3x0 7 junk:3x0;bits:2x1 7 junk:2x1;"
             "bits:2x3001 -5 junk:2x3001"},
    {.feature = "pairs in order",
     .text = "func sc_pair(x: i32[n, m], out y: i32[n, m], out z: i32[n, m]) {\n"
             "  parallel i in 0..n {\n"
             "    scan j in 0..m { x[i, j], i32(j) } from (3, 5) with (a, b), (c, d) {\n"
             "      a * c, b * c + d } as (s, t) { y[i, j] = s; z[i, j] = t; } } }",
     .args = "bits:5x100 junk:5x100 junk:5x100;bits:2x0 junk:2x0 junk:2x0;"
             "bits:2x2500 junk:2x2500 junk:2x2500"},
    {.feature = "segments",
     .text = "func sc_segment(x: i32[n, m], head: u8[n, m], out y: i32[n, m]) {\n"
             "  parallel i in 0..n {\n"
             "    scan j in 0..m { x[i, j], head[i, j] % 16 == 0 } from (0, false)\n"
             "        with (a, f), (b, g) { g ? b : a + b, f || g } as (s, any) {\n"
             "      y[i, j] = s; } } }",
     .args = "bits:5x100 bits:5x100 junk:5x100;bits:2x2050 bits:2x2050 junk:2x2050"},
    {.feature = "largest value so far and its index",
     .text = "func sc_max(x: f32[n, m], out y: f32[n, m], out at: i64[n, m]) {\n"
             "  parallel i in 0..n {\n"
             "    scan j in 0..m { x[i, j], j } from (-inf, -1) with (a, p), (b, q) {\n"
             "      max(a, b), b > a ? q : p } as (top, first) {\n"
             "      y[i, j] = top; at[i, j] = first; } } }",
     .args = "rand:5x100 junk:5x100 junk:5x100;rand:2x1500 junk:2x1500 junk:2x1500"},
    {.feature = "other dtypes",
     .text = "func sc_dtypes(x: f16[n, m], q: i64[n, m], w: u8[n, m], out y: f16[n, m],\n"
             "    out p: i64[n, m], out c: u8[n, m]) { parallel i in 0..n {\n"
             "  scan j in 0..m { x[i, j] } from (-inf) with (a), (b) { max(a, b) } as (s) {\n"
             "    y[i, j] = s; }\n"
             "  scan j in 0..m { q[i, j] } from (1) with (a), (b) { a ^ b } as (s) {\n"
             "    p[i, j] = s; }\n"
             "  exclusive_scan j in 0..m { w[i, j] } from (9) with (a), (b) { a + b } as (s) {\n"
             "    c[i, j] = s; } } }",
     .args = "rand:5x100 bits:5x100 bits:5x100 junk:5x100 junk:5x100 junk:5x100;"
             "rand:1x1300 bits:1x1300 bits:1x1300 junk:1x1300 junk:1x1300 junk:1x1300"},
    {.feature = "sums of f16 in f32",
     .text = "func sc_half(x: f16[n, m], out y: f32[n, m]) { parallel i in 0..n {\n"
             "  scan j in 0..m { abs(f32(x[i, j])) } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[i, j] = s; } } }",
     .args = "rand:5x100 junk:5x100;rand:1x1300 junk:1x1300",
     .tolerance = LOOSE},
    {.feature = "in place",
     .text = "func sc_place(inout x: i32[n, m]) { parallel i in 0..n {\n"
             "  exclusive_scan j in 0..m { x[i, j] } from (0) with (a), (b) { a + b } as (s) {\n"
             "    x[i, j] = s; } } }",
     .args = "bits:5x100;bits:2x2049"},
    {.feature = "backwards",
     .text = "func sc_back(x: i32[n, m], out y: i32[n, m]) { parallel i in 0..n {\n"
             "  scan j in 0..m { x[i, m - 1 - j] } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[i, m - 1 - j] = s; } } }",
     .args = "bits:3x1100 junk:3x1100;bits:300x1 junk:300x1"},
    {.feature = "of columns",
     .text = "func sc_column(x: i32[n, m], out y: i32[n, m]) { parallel j in 0..m {\n"
             "  scan i in 0..n { x[i, j] } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[i, j] = s; } } }",
     .args = "bits:90x33 junk:90x33;bits:0x5 junk:0x5"},
    {.feature = "of ranges of data",
     .text = "func sc_range(x: i32[n, m], q: u8[n], inout y: i32[n, m]) { parallel i in 0..n {\n"
             "  let first = i64(q[i]);\n"
             "  if q[i] % 3 != 0 {\n"
             "    scan j in first..m - 3 { x[i, j] } from (i32(first)) with (a), (b) {\n"
             "      a + b } as (s) { if s % 4 == 0 { continue; } y[i, j + 3] = s; } } } }",
     .args = "bits:5x400 bits:5 rand:5x400;bits:2x70 bits:2 rand:2x70"},
    {.feature = "of constant ranges",
     .text = "func sc_const(x: i32[n, 640], out y: i32[n, 640]) { parallel i in 0..n {\n"
             "  scan j in 0..20 { x[i, j] } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[i, j] = s; }\n"
             "  scan j in 20..120 { x[i, j] } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[i, j] = s; }\n"
             "  scan j in 120..640 { x[i, j] } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[i, j] = s; } } }",
     .args = "bits:9x640 junk:9x640"},
    {.feature = "rows used again",
     .text = "func sc_again(x: f32[n, m], out y: f32[n, m], out z: f32[n, m]) {\n"
             "  parallel i in 0..n {\n"
             "    let top = max j in 0..m { x[i, j] };\n"
             "    scan j in 0..m { exp(x[i, j] - top) } from (0) with (a), (b) {\n"
             "      a + b } as (s) { y[i, j] = s; }\n"
             "    for j in 0..m { z[i, j] = y[i, j] / y[i, m - 1]; } } }",
     .args = "rand:5x100 junk:5x100 junk:5x100;rand:2x1100 junk:2x1100 junk:2x1100",
     .tolerance = LOOSE},
    {.feature = "one inside another",
     .text = "func sc_inside(x: i32[n, m], out y: i32[n, m], out z: i32[n]) {\n"
             "  scan i in 0..n { sum j in 0..m { x[i, j] } } from (0) with (a), (b) {\n"
             "    a + b } as (rows) {\n"
             "    z[i] = rows;\n"
             "    exclusive_scan j in 0..m { x[i, j] } from (rows) with (a), (b) {\n"
             "      a + b } as (s) { y[i, j] = s; } } }",
     .args = "bits:70x9 junk:70x9 junk:70"},
    {.feature = "by each thread of a grid",
     .text = "func sc_thread(x: i32[n, m], out y: i32[n, m]) {\n"
             "  block.x b in 0..ceildiv(n, 32) { thread.x t in 0..32 { let i = b * 32 + t;\n"
             "    if i < n { scan j in 0..m { x[i, j] } from (0) with (a), (b) {\n"
             "      a + b } as (s) { y[i, j] = s; } }\n"
             "    barrier; } } }",
     .args = "bits:70x90 junk:70x90"},
    {.feature = "of a device, inclusive",
     .text = "func sc_top(x: i32[n], out y: i32[n]) {\n"
             "  scan j in 0..n { x[j] } from (4) with (a), (b) { a * b } as (s) {\n"
             "    y[j] = s; } }",
     .args = "bits:100 junk:100;bits:0 junk:0;bits:1 junk:1"},
    {.feature = "of a device, exclusive",
     .text = "func sc_top_ex(x: i32[n], inout y: i32[n], out last: i32[]) {\n"
             "  last[] = 1;\n"
             "  exclusive_scan j in 0..n { x[j], y[j] } from (1, 2) with (a, b), (c, d) {\n"
             "    a * c, b * c + d } as (s, t) { y[j] = s ^ t; if j == n - 1 { last[] = s; } }\n"
             "  parallel i in 0..n { y[i] = y[i] + last[]; } }",
     .args = "bits:1025 rand:1025 junk:;bits:300000 rand:300000 junk:"},
    {.feature = "of a device, constant range",
     .text = "func sc_top_const(x: f32[2000], out y: f32[2000]) {\n"
             "  scan j in 0..2000 { abs(x[1999 - j]) } from (0) with (a), (b) { a + b } as (s) {\n"
             "    y[1999 - j] = s; } }",
     .args = "rand:2000 junk:2000",
     .tolerance = LOOSE},
};

static void run(conf_t* c) {
  conf_programs(c, programs, CONF_COUNT_OF(programs));
}

const conf_area_t conf_area_scans = {"scans", NULL, 0, run};
