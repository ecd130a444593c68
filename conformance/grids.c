// SPDX-License-Identifier: Apache-2.0
// conformance/grids.c: explicit block and thread loops, shared memory, barriers.
#include "conformance/program.h"

static const conf_program_t programs[] = {
    {.feature = "blocks",
     .text =
         "func gr_blocks(x: f32[n], out y: f32[n]) { block.x b in 0..n { y[b] = x[b] * 2.0; } }",
     .args = "rand:1000 junk:1000;rand:1 junk:1;rand:0 junk:0"},
    {.feature = "blocks and threads",
     .text = "func gr_threads(x: f32[n], out y: f32[n]) {\n"
             "  block.x b in 0..ceildiv(n, 64) { thread.x t in 0..64 {\n"
             "    let i = b * 64 + t; if i < n { y[i] = x[i] + f32(t); } } } }",
     .args = "rand:1000 junk:1000;rand:63 junk:63;rand:64 junk:64;rand:65 junk:65"},
    {.feature = "three dimensions of blocks",
     .text = "func gr_blocks3(x: i32[p, q, r], out y: i32[p, q, r]) {\n"
             "  block.z a in 0..p { block.y b in 0..q { block.x c in 0..r {\n"
             "    y[a, b, c] = x[a, b, c] + i32(a * 10000 + b * 100 + c); } } } }",
     .args = "rand:3x5x7 junk:3x5x7;rand:1x1x1 junk:1x1x1;rand:2x0x3 junk:2x0x3"},
    {.feature = "three dimensions of threads",
     .text =
         "func gr_threads3(x: i32[n, 2, 4, 8], out y: i32[n, 2, 4, 8]) {\n"
         "  block.x b in 0..n { thread.z u in 0..2 { thread.y v in 0..4 { thread.x w in 0..8 {\n"
         "    y[b, u, v, w] = x[b, u, v, w] * 3 + i32(u * 100 + v * 10 + w); } } } } }",
     .args = "rand:5x2x4x8 junk:5x2x4x8"},
    {.feature = "shared memory and barriers",
     .text = "func gr_reverse(x: f32[n, 64], out y: f32[n, 64]) { block.x b in 0..n {\n"
             "  alloc tile: f32[64] in shared;\n"
             "  thread.x t in 0..64 { tile[t] = x[b, t]; barrier; y[b, t] = tile[63 - t]; } } }",
     .args = "rand:9x64 junk:9x64"},
    {.feature = "transpose of a tile",
     .text = "func gr_transpose(x: f32[n, m], out y: f32[m, n]) {\n"
             "  block.y by in 0..ceildiv(n, 16) { block.x bx in 0..ceildiv(m, 16) {\n"
             "    alloc tile: f32[16, 17] in shared;\n"
             "    thread.y ty in 0..8 { thread.x tx in 0..16 {\n"
             "      for r in 0..2 { let i = by * 16 + ty + r * 8; let j = bx * 16 + tx;\n"
             "        if i < n && j < m { tile[ty + r * 8, tx] = x[i, j]; } }\n"
             "      barrier;\n"
             "      for r in 0..2 { let j = bx * 16 + ty + r * 8; let i = by * 16 + tx;\n"
             "        if i < n && j < m { y[j, i] = tile[tx, ty + r * 8]; } } } } } } }",
     .args = "rand:40x33 junk:33x40;rand:16x16 junk:16x16;rand:1x50 junk:50x1"},
    {.feature = "barriers in a loop",
     .text = "func gr_scan(x: i32[n, 64], out y: i32[n, 64]) { block.x b in 0..n {\n"
             "  alloc s: i32[2, 64] in shared;\n"
             "  thread.x t in 0..64 {\n"
             "    s[0, t] = x[b, t]; barrier;\n"
             "    for k in 0..6 {\n"
             "      let d = 1 << k; let from = k % 2; let to = 1 - from;\n"
             "      s[to, t] = t >= d ? s[from, t] + s[from, t - d] : s[from, t];\n"
             "      barrier; }\n"
             "    y[b, t] = s[0, t]; } } }",
     .args = "rand:7x64 junk:7x64"},
    {.feature = "values that live across a barrier",
     .text =
         "func gr_across(x: f32[n, 32], out y: f32[n, 32]) { block.x b in 0..n {\n"
         "  alloc s: f32[32] in shared;\n"
         "  thread.x t in 0..32 {\n"
         "    alloc own: f32[2] in local; let v = x[b, t] * 2.0; own[0] = v; own[1] = v + 1.0;\n"
         "    s[t] = v; barrier;\n"
         "    own[0] = own[0] + s[(t + 1) % 32]; barrier; s[t] = own[1]; barrier;\n"
         "    y[b, t] = own[0] + s[(t + 31) % 32] + v; } } }",
     .args = "rand:6x32 junk:6x32"},
    {.feature = "more threads than items",
     .text = "func gr_odd(x: f32[n], out y: f32[n]) { block.x b in 0..ceildiv(n, 37) {\n"
             "  alloc s: f32[37] in shared;\n"
             "  thread.x t in 0..37 { let i = b * 37 + t; s[t] = i < n ? x[i] : 0.0; barrier;\n"
             "    if i < n { y[i] = s[t] + s[36 - t]; } } } }",
     .args = "rand:100 junk:100;rand:37 junk:37;rand:1 junk:1"},
    {.feature = "shared memory of several dtypes",
     .text =
         "func gr_mixed(x: i32[n, 32], out y: i32[n, 32]) { block.x b in 0..n {\n"
         "  alloc a: i8[32] in shared; alloc f: f32[32] in shared; alloc h: f16[32] in shared;\n"
         "  alloc q: bool[32] in shared;\n"
         "  thread.x t in 0..32 {\n"
         "    a[t] = i8(x[b, t]); f[t] = f32(x[b, t]) * 0.5; h[t] = f16(x[b, t]);\n"
         "    q[t] = x[b, t] > 0; barrier;\n"
         "    let o = 31 - t;\n"
         "    y[b, t] = i32(a[o]) + i32(f[o]) * 100 + i32(h[o]) * 10000 + (q[o] ? 1000000 : 0); "
         "} } }",
     .args = "rand:4x32 junk:4x32"},
    {.feature = "thread extents from the call",
     .text =
         "func gr_sizes(x: f32[n, m], out y: f32[n, m]) {\n"
         "  block.x b in 0..n { thread.x t in 0..m { y[b, t] = x[b, t] + f32(b) - f32(t); } } }",
     .args = "rand:5x40 junk:5x40;rand:3x1 junk:3x1;rand:2x128 junk:2x128"},
    {.feature = "thread extents from the call, with barriers",
     .text = "func gr_sizes_meet(x: i32[n, m], out y: i32[n, m], lo: i32) { block.x b in 0..n {\n"
             "  alloc s: i32[128] in shared;\n"
             "  thread.y u in 0..2 { thread.x t in i64(lo)..m {\n"
             "    alloc own: i32[4] in local; view last: i32[2] = own[2]; let v = x[b, t] * 2;\n"
             "    own[0] = v; last[1] = v + i32(u);\n"
             "    if u == 0 { s[t] = v; } barrier;\n"
             "    for k in 0..m - i64(lo) { let d = s[m - 1 - k]; barrier;\n"
             "      if u == 1 { s[t] = s[t] + d; } barrier; }\n"
             "    if u == 1 { y[b, t] = s[t] + own[0] + last[1]; } } } } }",
     .args = "rand:5x40 junk:5x40 0;rand:3x1 junk:3x1 0;rand:2x128 junk:2x128 0;"
             "rand:4x9 junk:4x9 3;rand:2x0 junk:2x0 0"},
    {.feature = "launches in a loop",
     .text = "func gr_scan_all(x: i32[n], out y: i32[n], k: i32) {\n"
             "  alloc a: i32[n] in global; parallel i in 0..n { y[i] = x[i]; }\n"
             "  for r in 0..i64(k) { let d = 1 << r;\n"
             "    block.x b in 0..ceildiv(n, 32) { thread.x t in 0..32 { let i = b * 32 + t;\n"
             "      if i < n { a[i] = i >= d ? y[i] + y[i - d] : y[i]; } } }\n"
             "    block.x b in 0..n { y[b] = a[b]; } } }",
     .args = "rand:1000 junk:1000 10;rand:33 junk:33 6;rand:1 junk:1 0;rand:0 junk:0 3"},
    {.feature = "launches whose extents a loop gives",
     .text = "func gr_triangle(inout y: i32[n, n], m: i32) {\n"
             "  for r in 0..n { for q in r..n { let w = q - r + 1;\n"
             "    block.x b in r..q + 1 { block.y c in 0..w {\n"
             "      y[b, c] = y[b, c] * 3 + i32(r * 10 + q); } }\n"
             "    if q > i64(m) { block.x b in 0..w { alloc s: i32[64] in shared;\n"
             "      thread.x t in r..q + 1 { s[t] = y[b, t]; barrier;\n"
             "        y[b, t] = s[r + q - t] + 1; } } } } }\n"
             "  unroll u in 0..3 { block.x b in u..n { y[b, u] = y[b, u] + i32(u); } } }",
     .args = "iota:9x9 3;iota:1x1 0;iota:4x4 9;iota:0x0 0"},
    {.feature = "launches of several grids",
     .text = "func gr_chain(x: f32[n], out y: f32[n]) {\n"
             "  alloc t: f32[n] in global;\n"
             "  block.x b in 0..ceildiv(n, 32) { thread.x k in 0..32 {\n"
             "    let i = b * 32 + k; if i < n { t[i] = x[i] * 3.0; } } }\n"
             "  parallel i in 0..n { y[i] = t[n - 1 - i] + 1.0; } }",
     .args = "rand:500 junk:500"},
    {.feature = "loops inside of threads",
     .text = "func gr_stride(x: f32[n, m], out y: f32[n]) { block.x b in 0..n {\n"
             "  alloc s: f32[32] in shared;\n"
             "  thread.x t in 0..32 {\n"
             "    alloc acc: f32[1] in local; acc[0] = 0.0;\n"
             "    for k in 0..ceildiv(m - t, 32) { acc[0] = acc[0] + x[b, k * 32 + t]; }\n"
             "    s[t] = acc[0]; barrier;\n"
             "    if t == 0 { y[b] = sum k in 0..32 { s[k] }; } } } }",
     .args = "rand:9x100 junk:9;rand:2x5 junk:2",
     .tolerance = 1e-5},
    // Products written as sums: a GPU may cut them into tiles.
    {.feature = "products as sums",
     .variant = "rows by columns",
     .text = "func gr_product(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) {\n"
             "  parallel i in 0..m { parallel j in 0..n {\n"
             "    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
     .args = "rand:65x33 rand:33x131 junk:65x131;rand:1x1 rand:1x1 junk:1x1;"
             "rand:64x64 rand:64x64 junk:64x64;rand:3x0 rand:0x5 junk:3x5;"
             "rand:0x7 rand:7x9 junk:0x9",
     .tolerance = 1e-4},
    {.feature = "products as sums",
     .variant = "rows by rows, bias and activation",
     .text = "func gr_product_rows(a: f32[m, k], b: f32[n, k], bias: f32[n], out c: f32[m, n]) {\n"
             "  parallel i in 0..m { parallel j in 0..n {\n"
             "    let z = bias[j] + (sum p in 0..k { a[i, p] * b[j, p] });\n"
             "    c[i, j] = max(z, 0.0); } } }",
     .args = "rand:63x40 rand:66x40 rand:66 junk:63x66;rand:200x15 rand:17x15 rand:17 junk:200x17",
     .tolerance = 1e-4},
    {.feature = "products as sums",
     .variant = "a batch of f16",
     .text = "func gr_product_f16(a: f16[z, k, m], b: f16[z, k, n], out c: f16[z, m, n]) {\n"
             "  parallel u in 0..z { parallel i in 0..m { parallel j in 0..n {\n"
             "    c[u, i, j] = f16(sum p in 0..k { f32(a[u, p, i]) * f32(b[u, p, j]) }); } } } }",
     .args = "rand:3x50x40 rand:3x50x70 junk:3x40x70;rand:2x16x64 rand:2x16x65 junk:2x64x65",
     .tolerance = 1e-2},
    {.feature = "products as sums",
     .variant = "integers and extents of the module",
     .text = "func gr_product_i32(a: i8[100, 40], b: i32[40, 80], inout c: i32[100, 80]) {\n"
             "  parallel i in 0..100 { parallel j in 0..80 {\n"
             "    c[i, j] = c[i, j] + (sum p in 0..40 { i32(a[i, p]) * b[p, j] }); } } }",
     .args = "rand:100x40 rand:40x80 rand:100x80"},
    {.feature = "products as sums",
     .variant = "squared distances of f64",
     .text = "func gr_distances(a: f64[m, k], b: f64[n, k], out c: f64[m, n]) {\n"
             "  parallel i in 0..m { parallel j in 0..n {\n"
             "    c[i, j] = sum p in 0..k { let d = a[i, p] - b[j, p]; d * d }; } } }",
     .args = "rand:40x20 rand:70x20 junk:40x70",
     .tolerance = 1e-10},
    // The counts of rows and columns are known only at the call, and may choose the launch.
    {.feature = "products as sums",
     .variant = "few rows or many",
     .text = "func gr_product_few_rows(a: i32[m, k], b: i32[k, n], out c: i32[m, n]) {\n"
             "  parallel i in 0..m { parallel j in 0..n {\n"
             "    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
     .args = "rand:0x70 rand:70x40 junk:0x40;rand:1x70 rand:70x40 junk:1x40;"
             "rand:2x70 rand:70x40 junk:2x40;rand:3x70 rand:70x40 junk:3x40;"
             "rand:7x70 rand:70x40 junk:7x40;rand:8x70 rand:70x40 junk:8x40;"
             "rand:15x70 rand:70x40 junk:15x40;rand:16x70 rand:70x40 junk:16x40;"
             "rand:17x70 rand:70x40 junk:17x40;rand:63x70 rand:70x40 junk:63x40;"
             "rand:64x70 rand:70x40 junk:64x40;rand:65x70 rand:70x40 junk:65x40;"
             "rand:200x70 rand:70x40 junk:200x40"},
    {.feature = "products as sums",
     .variant = "few columns or many",
     .text = "func gr_product_few_columns(a: i32[m, k], b: i32[n, k], inout c: i32[m, n]) {\n"
             "  parallel i in 0..m { parallel j in 0..n { let old = c[i, j];\n"
             "    c[i, j] = old - (sum p in 0..k { a[i, p] * b[j, p] }); } } }",
     .args = "rand:40x70 rand:0x70 rand:40x0;rand:40x70 rand:1x70 rand:40x1;"
             "rand:40x70 rand:2x70 rand:40x2;rand:40x70 rand:3x70 rand:40x3;"
             "rand:40x70 rand:7x70 rand:40x7;rand:40x70 rand:8x70 rand:40x8;"
             "rand:40x70 rand:15x70 rand:40x15;rand:40x70 rand:16x70 rand:40x16;"
             "rand:40x70 rand:17x70 rand:40x17;rand:40x70 rand:63x70 rand:40x63;"
             "rand:40x70 rand:64x70 rand:40x64;rand:40x70 rand:65x70 rand:40x65;"
             "rand:40x70 rand:200x70 rand:40x200"},
    {.feature = "products as sums",
     .variant = "few rows or many, f32, extents of the module",
     .text =
         "func gr_product_few_f32(a: f32[m, 64], b: f32[96, 64], s: f32[m], out c: f32[m, 96]) {\n"
         "  parallel i in 0..m { parallel j in 0..96 {\n"
         "    c[i, j] = s[i] * (sum p in 0..64 { a[i, p] * b[j, p] }); } } }",
     .args = "rand:0x64 rand:96x64 rand:0 junk:0x96;rand:1x64 rand:96x64 rand:1 junk:1x96;"
             "rand:2x64 rand:96x64 rand:2 junk:2x96;rand:3x64 rand:96x64 rand:3 junk:3x96;"
             "rand:7x64 rand:96x64 rand:7 junk:7x96;rand:8x64 rand:96x64 rand:8 junk:8x96;"
             "rand:15x64 rand:96x64 rand:15 junk:15x96;"
             "rand:16x64 rand:96x64 rand:16 junk:16x96;"
             "rand:17x64 rand:96x64 rand:17 junk:17x96;"
             "rand:63x64 rand:96x64 rand:63 junk:63x96;"
             "rand:64x64 rand:96x64 rand:64 junk:64x96;"
             "rand:65x64 rand:96x64 rand:65 junk:65x96;"
             "rand:200x64 rand:96x64 rand:200 junk:200x96",
     .tolerance = 1e-4},
    {.feature = "many blocks",
     .text = "func gr_many(inout y: i32[n]) { block.x b in 0..n { thread.x t in 0..1 {\n"
             "  y[b] = y[b] + i32(b % 1000); } } }",
     .args = "zero:70001"},
};

static void run(conf_t* c) {
  conf_programs(c, programs, CONF_COUNT_OF(programs));
}

const conf_area_t conf_area_grids = {"grids", NULL, 0, run};
