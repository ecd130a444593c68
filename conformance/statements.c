// SPDX-License-Identifier: Apache-2.0
// conformance/statements.c: every statement, loop kind that needs no grid, scope and view.
#include "conformance/program.h"

// Sums of floats may be added up in any order.
#define LOOSE 1e-5

static const conf_program_t programs[] = {
    {.feature = "store and load",
     .text = "func st_store(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i]; } }",
     .args = "bits:1000 junk:1000;bits:0 junk:0;bits:1 junk:1"},
    {.feature = "rank 0",
     .text = "func st_rank0(x: f32[], inout y: f32[]) { y[] = x[] * 2.0 + y[]; }",
     .args = "rand: rand:"},
    {.feature = "let",
     .text = "func st_let(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  let a = x[i] + 1; let b = a * a; let c = b - a; y[i] = c ^ b; } }",
     .args = "rand:333 junk:333"},
    {.feature = "if and else",
     .text = "func st_if(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  if x[i] < -2 { y[i] = 1; } else if x[i] == 0 { y[i] = 2; } else { y[i] = x[i]; }\n"
             "  if i % 3 == 0 { y[i] = y[i] + 100; } } }",
     .args = "rand:500 junk:500"},
    {.feature = "loop for",
     .text = "func st_for(x: f32[n, m], out y: f32[n]) { parallel i in 0..n {\n"
             "  alloc s: f32[1] in local; s[0] = 0.0;\n"
             "  for j in 0..m { s[0] = s[0] * 0.5 + x[i, j]; }\n"
             "  for k in 3..1 { s[0] = 99.0; }\n"
             "  y[i] = s[0]; } }",
     .args = "rand:17x9 junk:17;rand:5x0 junk:5;rand:0x5 junk:0"},
    {.feature = "loop for with bounds of data",
     .text = "func st_bounds(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  alloc s: i32[1] in local; s[0] = 0;\n"
             "  for j in i64(x[i])..i64(x[i]) * 2 + 3 { s[0] = s[0] + i32(j) * 3; }\n"
             "  y[i] = s[0]; } }",
     .args = "rand:200 junk:200"},
    {.feature = "loop parallel, nested",
     .text =
         "func st_parallel(x: f32[n, m], out y: f32[m, n]) {\n"
         "  parallel i in 0..n { parallel j in 0..m { y[j, i] = x[i, j] + f32(i * m + j); } } }",
     .args = "rand:13x37 junk:37x13;rand:1x1 junk:1x1;rand:64x3 junk:3x64"},
    {.feature = "loop parallel, part of a range",
     .text = "func st_range(x: f32[n], inout y: f32[n], a: i32, b: i32) {\n"
             "  parallel i in i64(a)..i64(b) { y[i] = x[i] + 1.0; } }",
     .args = "rand:100 rand:100 7 61;rand:100 rand:100 50 50;rand:100 rand:100 60 50"},
    {.feature = "loop vector",
     .text = "func st_vector(x: f32[n, 8], out y: f32[n, 8]) { parallel i in 0..n {\n"
             "  vector v in 0..8 { y[i, 7 - v] = x[i, v] * f32(v) + 1.0; } } }",
     .args = "rand:21x8 junk:21x8"},
    {.feature = "loop unroll",
     .text = "func st_unroll(x: i32[n, 5], out y: i32[n]) { parallel i in 0..n {\n"
             "  alloc s: i32[1] in local; s[0] = 0;\n"
             "  unroll k in 0..5 { s[0] = s[0] * 7 + x[i, k] * i32(k); } y[i] = s[0]; } }",
     .args = "rand:33x5 junk:33"},
    {.feature = "while",
     .text =
         "func st_while(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
         "  alloc v: i32[2] in local; v[0] = abs(x[i]) + i32(i); v[1] = 0;\n"
         "  while v[0] > 1 { v[0] = v[0] % 2 == 0 ? v[0] // 2 : 3 * v[0] + 1; v[1] = v[1] + 1; }\n"
         "  y[i] = v[1]; } }",
     .args = "rand:97 junk:97"},
    {.feature = "local memory",
     .text = "func st_local(x: f32[n, 4, 4], out y: f32[n, 4, 4]) { parallel i in 0..n {\n"
             "  alloc t: f32[4, 4] in local;\n"
             "  for a in 0..4 { for b in 0..4 { t[b, a] = x[i, a, b]; } }\n"
             "  for a in 0..4 { for b in 0..4 { y[i, a, b] = t[a, b] + t[b, a]; } } } }",
     .args = "rand:29x4x4 junk:29x4x4"},
    {.feature = "consecutive launches and workspace",
     .text = "func st_workspace(x: f32[n, m], out y: f32[n, m]) {\n"
             "  alloc mean: f32[n] in global; alloc far: f32[m] in global;\n"
             "  parallel i in 0..n { mean[i] = (sum j in 0..m { x[i, j] }) / f32(m); }\n"
             "  parallel j in 0..m { far[j] = max i in 0..n { x[i, j] - mean[i] }; }\n"
             "  parallel i in 0..n { for j in 0..m { y[i, j] = x[i, j] - mean[i] + far[j]; } } }",
     .args = "rand:23x45 junk:23x45;rand:3x1 junk:3x1;rand:0x4 junk:0x4",
     .tolerance = LOOSE},
    {.feature = "statements outside of loops",
     .text = "func st_top(x: f32[n], inout t: f32[3], out y: f32[n]) {\n"
             "  t[0] = t[1] + 1.0; if n > 4 { t[2] = t[0] * 2.0; }\n"
             "  parallel i in 0..n { y[i] = x[i] * t[0] + t[2]; }\n"
             "  t[1] = n > 0 ? y[0] : 5.0; }",
     .args = "rand:50 rand:3 junk:50;rand:2 rand:3 junk:2;rand:0 rand:3 junk:0"},
    {.feature = "launches under a loop of the function",
     .text = "func st_steps(inout x: f32[n], steps: i32) {\n"
             "  for s in 0..i64(steps) { parallel i in 0..n { x[i] = x[i] * 0.5 + f32(s); } } }",
     .args = "rand:100 5;rand:100 0"},
    {.feature = "launches under a condition",
     .text = "func st_either(inout x: f32[n], which: i32) {\n"
             "  if which == 1 { parallel i in 0..n { x[i] = x[i] + 1.0; } }\n"
             "  else { parallel i in 0..n { x[i] = x[i] * 2.0; } } }",
     .args = "rand:100 1;rand:100 2"},
    {.feature = "local memory under a condition of data",
     .text = "func st_guard(x: f32[2], out y: f32[n], inout z: f32[256]) {\n"
             "  if x[0] < x[1] { alloc b: f32[256] in local; view v: f32[16, 16] = b[0];\n"
             "    for s in 0..3 { for i in 0..256 { b[i] = z[(i * 7 + 1) % 256] + f32(i); }\n"
             "      for i in 0..256 { z[i] = v[15 - i // 16, i % 16] * 0.5; } }\n"
             "    parallel i in 0..n { y[i] = z[i % 256]; } }\n"
             "  else { parallel i in 0..n { y[i] = x[0]; } } }",
     .args = "iota:2 junk:100 rand:256;one:2 junk:100 rand:256"},
    {.feature = "constant tables",
     .text = "func st_const(x: f32[n], out y: f32[n], out z: i64[n]) {\n"
             "  const taps: f32[2, 3] = [0.25, 0.5, 0.25, 1.0, 2.0, 3.0];\n"
             "  const primes: i64[5] = [2, 3, 5, 7, 1000000007];\n"
             "  parallel i in 0..n { y[i] = x[i] * taps[i % 2, i % 3]; z[i] = primes[i % 5]; } }",
     .args = "rand:64 junk:64 junk:64"},
    {.feature = "views",
     .text = "func st_view(x: f32[n, m], out y: f32[m], inout z: f32[n, m]) {\n"
             "  view row: f32[m] = x[1, 0];\n"
             "  view column: f32[n] strides [m] = z[0, 2];\n"
             "  view inner: f32[2, 2] strides [m, 1] = x[1, 1];\n"
             "  parallel j in 0..m { y[j] = row[j] * 2.0 + inner[j % 2, 1]; }\n"
             "  parallel i in 0..n { column[i] = x[i, 0]; } }",
     .args = "rand:6x11 junk:11 rand:6x11"},
    {.feature = "strides",
     .text = "func st_strides(x: f32[n, m] strides [s, t], out y: f32[n, m] strides [u, 1]) {\n"
             "  parallel i in 0..n { for j in 0..m { y[i, j] = x[i, j] + 1.0; } } }",
     .args = "rand:7x5/11,2 junk:7x5/9,1;rand:7x5/1,7 junk:7x5/5,1"},
    {.feature = "offset tensors",
     .text =
         "func st_offset(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] + 1.0; } }",
     .args = "rand:100@4 junk:100@12;rand:100@64 junk:100@260;rand:1@36 junk:1@20"},
    {.feature = "offset tensors of bytes",
     .text = "func st_offset8(x: u8[n], out y: u8[n]) { parallel i in 0..n { y[i] = x[i] + 1; } }",
     .args = "rand:100@1 junk:100@3;rand:7@2 junk:7@5;rand:1@3 junk:1@1"},
    {.feature = "reductions",
     .text =
         "func st_reduce(x: f32[n, m], out s: f32[n], out p: f32[n], out a: f32[n], out b: f32[n]) "
         "{\n"
         "  parallel i in 0..n {\n"
         "    s[i] = sum j in 0..m { let d = x[i, j] - 1.0; d * d };\n"
         "    p[i] = prod j in 0..m { x[i, j] * 0.25 + 1.0 };\n"
         "    a[i] = min j in 0..m { x[i, j] };\n"
         "    b[i] = max j in 0..m { abs(x[i, j]) }; } }",
     .args =
         "rand:5x100 junk:5 junk:5 junk:5 junk:5;rand:3x0 junk:3 junk:3 junk:3 junk:3;"
         "rand:300x7 junk:300 junk:300 junk:300 junk:300;rand:1x4099 junk:1 junk:1 junk:1 junk:1",
     .tolerance = LOOSE},
    {.feature = "reductions of integers",
     .text =
         "func st_reduce_int(x: i32[n, m], out s: i32[n], out p: i32[n], out a: i32[n], "
         "out b: i32[n]) {\n"
         "  parallel i in 0..n {\n"
         "    s[i] = sum j in 0..m { x[i, j] * 1000003 }; p[i] = prod j in 0..m { x[i, j] * 2 + 1 "
         "};\n"
         "    a[i] = min j in 0..m { x[i, j] }; b[i] = max j in 0..m { x[i, j] }; } }",
     .args = "bits:9x77 junk:9 junk:9 junk:9 junk:9;bits:2x0 junk:2 junk:2 junk:2 junk:2"},
    {.feature = "reductions inside of reductions",
     .text =
         "func st_reduce_nested(x: f32[n, m], w: f32[m, k], out y: f32[n]) {\n"
         "  parallel i in 0..n { y[i] = max c in 0..k { sum j in 0..m { x[i, j] * w[j, c] } }; } }",
     .args = "rand:11x13 rand:13x17 junk:11",
     .tolerance = LOOSE},
    {.feature = "largest and smallest values with their indices",
     .text =
         "func st_arg(x: f32[n, m], q: i32[n, m], out a: f32[n], out i: i64[n], out b: i32[n],\n"
         "    out j: i64[n], out k: i64[n]) {\n"
         "  parallel r in 0..n {\n"
         "    let top, at = argmax c in 0..m { x[r, c] };\n"
         "    let low, first = argmin c in 0..m { q[r, c] // 1000000 };\n"
         "    let far, last = argmax c in 0..m { abs(x[r, c]) * 0.5 };\n"
         "    a[r] = top; i[r] = at; b[r] = low; j[r] = first; k[r] = last; } }",
     .args = "rand:5x100 bits:5x100 junk:5 junk:5 junk:5 junk:5 junk:5;"
             "rand:3x0 bits:3x0 junk:3 junk:3 junk:3 junk:3 junk:3;"
             "rand:2x4099 bits:2x4099 junk:2 junk:2 junk:2 junk:2 junk:2"},
    {.feature = "reductions of several values",
     .text =
         "func st_several(x: f32[n, m], out y: f32[n], out z: f32[n], out t: i64[n]) {\n"
         "  parallel i in 0..n {\n"
         "    let count, mean, rest = reduce j in 0..m { f32(1), x[i, j], f32(0) } from (0, 0, 0)\n"
         "        with (na, a, sa), (nb, b, sb) {\n"
         "      let all = na + nb; let share = nb / max(all, 1); let d = b - a;\n"
         "      all, a + d * share, sa + sb + d * d * na * share };\n"
         "    let bits = reduce j in 0..m { j } from (0) with (a), (b) { a ^ b };\n"
         "    y[i] = mean; z[i] = rest / max(count, 1); t[i] = bits; } }",
     .args = "rand:5x100 junk:5 junk:5 junk:5;rand:3x0 junk:3 junk:3 junk:3;"
             "rand:300x7 junk:300 junk:300 junk:300;rand:1x4099 junk:1 junk:1 junk:1",
     .tolerance = LOOSE},
    {.feature = "reductions of several values outside of loops",
     .text = "func st_several_top(x: f32[n], out y: f32[n]) {\n"
             "  let top, at = argmax j in 0..n { x[j] };\n"
             "  let low, high = reduce j in 0..n { x[j], x[j] } from (inf, -inf) with (a, b), (c, "
             "d) {\n"
             "    min(a, c), max(b, d) };\n"
             "  parallel i in 0..n { y[i] = (x[i] - low) * 0.5 + high - top + f32(at); } }",
     .args = "rand:100 junk:100;rand:20000 junk:20000"},
    {.feature = "break and continue",
     .text = "func st_leave(x: i32[n, m], out y: i32[n], out z: i32[n]) {\n"
             "  parallel i in 0..n {\n"
             "    z[i] = -1; y[i] = 0;\n"
             "    for j in 0..m {\n"
             "      if x[i, j] % 3 == 0 { continue; }\n"
             "      if x[i, j] % 11 == 5 { z[i] = i32(j); break; }\n"
             "      y[i] = y[i] + x[i, j]; }\n"
             "    alloc k: i32[] in local; k[] = 0;\n"
             "    while true {\n"
             "      k[] = k[] + 1;\n"
             "      for j in 0..i64(k[]) {\n"
             "        if i64(k[]) + j > 9 { if j % 2 == 0 { break; } k[] = k[] + 1; continue; }\n"
             "        y[i] = y[i] ^ i32(j); }\n"
             "      if k[] > 12 { if y[i] > 0 { break; } else { y[i] = y[i] + 7; break; } } }\n"
             "    if i % 2 == 0 { continue; }\n"
             "    y[i] = y[i] * 5; } }",
     .args = "bits:5x33 junk:5 junk:5;bits:64x3 junk:64 junk:64;bits:1x5000 junk:1 junk:1;"
             "bits:7x0 junk:7 junk:7"},
    {.feature = "continue in lanes and copies",
     .text =
         "func st_skip(x: i32[n], inout y: i32[n]) {\n"
         "  parallel i in 0..n { if x[i] < 0 { continue; } y[i] = x[i] * 3; }\n"
         "  for b in 0..n // 8 {\n"
         "    vector l in 0..8 { if x[b * 8 + l] > 0 { continue; } y[b * 8 + l] = 5; }\n"
         "    unroll l in 0..4 { if l == 2 { continue; } y[b * 8 + l] = y[b * 8 + l] + 1; } } }",
     .args = "bits:100 zero:100;bits:7 zero:7;bits:3000 zero:3000"},
    {.feature = "break in threads of a block",
     .text = "func st_thread_leave(x: i32[n, 64], out y: i32[n, 64]) {\n"
             "  block.x b in 0..n {\n"
             "    alloc s: i32[64] in shared;\n"
             "    thread.x t in 0..64 {\n"
             "      s[t] = x[b, t]; barrier;\n"
             "      alloc k: i64[] in local; k[] = 0;\n"
             "      for j in 0..64 { if s[(t + j) % 64] % 7 == 3 { break; } k[] = j; }\n"
             "      barrier;\n"
             "      for j in 0..4 { barrier; if j == 2 { break; } s[t] = s[t] + 1; }\n"
             "      y[b, t] = i32(k[]) + s[63 - t]; } } }",
     .args = "bits:3x64 junk:3x64"},
    {.feature = "return",
     .text = "func st_return(x: i32[n], inout y: i32[n], k: i32) {\n"
             "  if k == 0 { return; }\n"
             "  parallel i in 0..n { y[i] = x[i]; }\n"
             "  if k == 1 { if n > 10 { return; } parallel i in 0..n { y[i] = y[i] + 5; } }\n"
             "  parallel i in 0..n { y[i] = y[i] * 3; }\n"
             "  for j in 0..n {\n"
             "    y[j] = y[j] + 1;\n"
             "    while y[0] % 5 != k % 5 { if y[j] % 4 == 1 { return; } y[j] = y[j] + 1;\n"
             "      if y[j] % 9 == 2 { break; } }\n"
             "    if k == 3 && j == 20 { return; } }\n"
             "  parallel i in 0..n { y[i] = y[i] - 1; } }",
     .args = "iota:40 zero:40 0;iota:40 zero:40 1;iota:7 zero:7 1;iota:40 zero:40 2;"
             "iota:40 zero:40 3;iota:40 zero:40 4;iota:40 zero:40 5;iota:0 zero:0 3"},
    {.feature = "functions with a value",
     .text =
         "func st_called(x: f32[n, m], q: i32[n], out y: f32[n, m], out z: i32[n]) {\n"
         "  parallel i in 0..n {\n"
         "    for j in 0..m { y[i, j] = st_gelu(x[i, j]) + (j > 0 ? st_norm(x[i, j - 1], i) : "
         "1.0); }\n"
         "    z[i] = st_mixed(q[i], q[(i + 1) % n]); } }\n"
         "func st_gelu(v: f32) -> f32 {\n"
         "  let inner = 0.7978845608 * (v + 0.044715 * st_cube(v));\n"
         "  return 0.5 * v * (1.0 + tanh(inner)); }\n"
         "func st_cube(v: f32) -> f32 { return v * v * v; }\n"
         "func st_norm(v: f32, i: i64) -> f32 {\n"
         "  let all = sum k in 0..4 { let t = st_cube(v) + f32(k + i); t * t }; return sqrt(all); "
         "}\n"
         "func st_mixed(a: i32, b: i32) -> i32 { let c = a ^ b << 3; return a > b ? c : c - b; }",
     .args = "rand:5x33 bits:5 junk:5x33 junk:5;rand:64x3 bits:64 junk:64x3 junk:64;"
             "rand:1x5000 bits:1 junk:1x5000 junk:1",
     .tolerance = LOOSE},
    {.feature = "conditional expressions",
     .text = "func st_cond(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
             "  let left = i > 0 ? x[i - 1] : -5; let right = i + 1 < n ? x[i + 1] : -7;\n"
             "  y[i] = (i > 0 && x[i - 1] > 0) || (i + 1 < n && x[i + 1] < 0) ? left : right; } }",
     .args = "rand:100 junk:100;rand:1 junk:1"},
    {.feature = "matrix product",
     .text = "func st_matmul(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
             "  parallel i in 0..n { parallel j in 0..m {\n"
             "    c[i, j] = sum q in 0..k { a[i, q] * b[q, j] }; } } }",
     .args = "rand:33x65 rand:65x17 junk:33x17;rand:4x0 rand:0x4 junk:4x4",
     .tolerance = LOOSE},
    {.feature = "softmax",
     .text = "func st_softmax(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n {\n"
             "  let top = max j in 0..m { x[i, j] };\n"
             "  let total = sum j in 0..m { exp(x[i, j] - top) };\n"
             "  for j in 0..m { y[i, j] = exp(x[i, j] - top) / total; } } }",
     .args = "rand:7x100 junk:7x100;rand:64x3 junk:64x3;rand:1x5000 junk:1x5000",
     .tolerance = LOOSE},
    {.feature = "fast functions",
     .text = "func st_fast(x: f32[n, m], out y: f32[n]) fast { parallel i in 0..n {\n"
             "  alloc s: f32[1] in local; s[0] = 0.0;\n"
             "  for j in 0..m { s[0] = s[0] + x[i, j] * 1.5 + 0.25; } y[i] = s[0]; } }",
     .args = "rand:19x101 junk:19",
     .tolerance = LOOSE},
    {.feature = "products with zero",
     .text = "func st_zero(k: f32, out y: f32[n, 3]) {\n"
             "  const e: f32[6] = [0.0, -0.0, inf, -inf, nan, 2.5];\n"
             "  parallel i in 0..n { let v = e[i % 6]; y[i, 0] = 0.0 * v;\n"
             "    y[i, 1] = 1.0 / (v * 0.0); y[i, 2] = f32(f64(v) * 0.0) + k; } }",
     .args = "1 junk:12x3"},
    {.feature = "scalars of every dtype",
     .text =
         "func st_scalars(a: i8, b: i16, c: i32, d: i64, e: u8, f: u16, g: u32, h: f32, p: bool,\n"
         "    out y: f32[9]) { y[0] = f32(a); y[1] = f32(b); y[2] = f32(c); y[3] = f32(d);\n"
         "  y[4] = f32(e); y[5] = f32(f); y[6] = f32(g); y[7] = h; y[8] = p ? 1.0 : 2.0; }",
     .args = "-128 -30000 -2000000 -5000000 255 65535 4000000 1.25 1 junk:9"},
};

// Uses constant indices beyond an extent in code that never runs, as in the unrolled tail of a loop
// under its guard: it compiles, checked or not, and changes nothing.
#define UNREACHED(name, what, body)                                                \
  {.feature = "unreached constant index",                                          \
   .variant = what,                                                                \
   .text = "func st_out_" name "(x: i32[n], out y: i32[m]) { " body " }",          \
   .args = "rand:40 junk:40"},                                                     \
  {                                                                                \
    .feature = "unreached constant index", .variant = what ", checked",            \
    .text = "func st_out_" name "_checked(x: i32[n], out y: i32[m]) { " body " }", \
    .args = "rand:40 junk:40", .is_checked = true                                  \
  }
static const conf_program_t unreached[] = {
    UNREACHED("local", "local",
              "parallel i in 0..n { alloc t: i32[4] in local;\n"
              "  for k in 0..4 { t[k] = x[i] + i32(k); }\n"
              "  if n > 1000 { t[3 + 4] = 1; t[-1] = t[9]; y[i] = t[3 + 4] + t[-2]; }\n"
              "  else { y[i] = t[3]; } }"),
    UNREACHED("two", "local of two dimensions",
              "parallel i in 0..n { alloc t: i32[2, 3] in local;\n"
              "  for k in 0..6 { t[k // 3, k % 3] = x[i] + i32(k); }\n"
              "  if n > 1000 { t[1, 7] = t[2, 0]; y[i] = t[0, -1]; } else { y[i] = t[1, 2]; } }"),
    UNREACHED("tail", "unrolled tail",
              "parallel i in 0..n { alloc t: i32[4] in local;\n"
              "  for k in 0..4 { t[k] = x[i] * i32(k); }\n"
              "  alloc s: i32[] in local; s[] = 0;\n"
              "  unroll k in 0..8 { if n > k * 1000 && k < n // 10 { s[] = s[] + t[k]; } }\n"
              "  y[i] = s[]; }"),
    UNREACHED("table", "table",
              "const tab: i32[3] = [3, 5, 8]; const wave: f32[2] = [0.5, 1.5];\n"
              "parallel i in 0..n {\n"
              "  if n > 1000 { y[i] = tab[5] + tab[-1] + i32(wave[2]); }\n"
              "  else { y[i] = tab[2] + i32(wave[1] * 2.0); } }"),
    UNREACHED("shared", "shared",
              "block.x b in 0..n // 8 { alloc s: i32[8] in shared; thread.x t in 0..8 {\n"
              "  s[t] = x[b * 8 + t]; barrier;\n"
              "  if n > 1000 { if t == 0 { s[9] = s[-3]; } y[b * 8 + t] = s[8]; }\n"
              "  else { y[b * 8 + t] = s[7 - t]; } } }"),
    UNREACHED("atomic", "atomic",
              "block.x b in 0..n // 8 { alloc s: i32[1] in shared; thread.x t in 0..8 {\n"
              "  if t == 0 { s[0] = 0; } barrier;\n"
              "  if n > 1000 { atomic_add(s[4], 1); let old = atomic_max(s[-1], 7);\n"
              "    y[b * 8 + t] = old; }\n"
              "  else { atomic_add(s[0], x[b * 8 + t]); } barrier;\n"
              "  y[b * 8 + t] = s[0]; } }"),
    UNREACHED("view", "view",
              "parallel i in 0..n { alloc t: i32[8] in local; view v: i32[4] = t[4];\n"
              "  for k in 0..8 { t[k] = x[i] - i32(k); }\n"
              "  if n > 1000 { v[5] = v[-6]; y[i] = v[4]; } else { y[i] = v[3] + v[-0]; } }"),
    UNREACHED(
        "buffer", "buffer",
        "parallel i in 0..n { if n > 1000 { y[i] = x[-1]; y[-2] = 3; } else { y[i] = x[0]; } }"),
};

// Compares widened integers with constants, which some drivers compute wrongly.
#define WIDENED(name, what, value)                                       \
  {.feature = "comparison of a widened integer",                         \
   .variant = what,                                                      \
   .text = "func st_wide_" name                                          \
           "(x: i32[n], m: i64, out y: i64[n]) { parallel i in 0..n {\n" \
           "  let v = i64(x[i]); y[i] = " value "; } }",                 \
   .args = "rand:300 7 junk:300"}
static const conf_program_t widened[] = {
    WIDENED("lt0", "< 0", "v < 0 ? v + m : v"),
    WIDENED("le", "<= -3", "v <= -3 ? v + m : v"),
    WIDENED("gt", "> 3", "v > 3 ? v + m : v"),
    WIDENED("ge", ">= -1", "v >= -1 ? v - m : v"),
    WIDENED("eq", "== 5", "v == 5 ? v + m : v"),
    WIDENED("select", "select", "select(v < 2, v + m, v)"),
    WIDENED("large", "beyond 32 bits", "(v < 5000000000 && v > -5000000000) ? v + m : v"),
    WIDENED("edge", "at 32 bits",
            "(v < 2147483648 && v >= -2147483648 && v < 4294967295) ? v + m : v"),
    WIDENED("small", "of i8", "i64(i8(x[i])) < 3 ? v + m : v"),
    WIDENED("unsigned", "of u32", "i64(u32(x[i])) < 3 || i64(u32(x[i])) > 4294967290 ? v + m : v"),
    WIDENED("u64", "to u64", "u64(x[i]) < 3 || u64(x[i]) > 9000000000 ? v + m : v"),
    WIDENED("abs", "abs", "abs(v) + v // 3 + v % 5 + max(v, -3)"),
};

static void run(conf_t* c) {
  conf_programs(c, programs, CONF_COUNT_OF(programs));
  conf_programs(c, unreached, CONF_COUNT_OF(unreached));
  conf_programs(c, widened, CONF_COUNT_OF(widened));
}

const conf_area_t conf_area_statements = {"statements", NULL, 0, run};
