// SPDX-License-Identifier: Apache-2.0
// conformance/products.c: products of small numbers as sums, which targets compute by matrix units
// or by dot instructions: every dtype and order of the operands, around the extents of tiles, with
// any alignment, and what happens before and after the product.
//
// Values are small integers, whose sums are exact in any order, so that results agree to the bit;
// one row has others.
#include "conformance/program.h"

#define NEST "parallel i in 0..m { parallel j in 0..n { "

static const conf_program_t programs[] = {
    {.feature = "f16",
     .text = "func pr_f16(a: f16[m, k], b: f16[k, n], out c: f32[m, n]) { " NEST
             "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     .args = "below8:1x1 below8:1x1 junk:1x1;below8:64x32 below8:32x64 junk:64x64;"
             "below8:33x130 below8:130x72 junk:33x72;below8:130x35 below8:35x129 junk:130x129;"
             "below8:16x300 below8:300x40 junk:16x40;below8:40x200 below8:200x5 junk:40x5;"
             "below8:0x8 below8:8x8 junk:0x8;below8:20x0 below8:0x20 junk:20x20"},
    {.feature = "f16, first transposed",
     .text = "func pr_f16_t(a: f16[k, 65], b: f16[k, 63], out c: f32[65, 63]) {\n"
             "  parallel i in 0..65 { parallel j in 0..63 {\n"
             "  c[i, j] = sum p in 0..k { f32(a[p, i]) * f32(b[p, j]) }; } } }",
     .args = "below8:31x65 below8:31x63 junk:65x63;below8:64x65 below8:64x63 junk:65x63"},
    {.feature = "bf16",
     .text = "func pr_bf16(a: bf16[70, k], b: bf16[66, k], out c: bf16[70, 66]) {\n"
             "  parallel i in 0..70 { parallel j in 0..66 {\n"
             "  c[i, j] = bf16(sum p in 0..k { f32(a[i, p]) * f32(b[j, p]) }); } } }",
     .args = "below8:70x31 below8:66x31 junk:70x66;below8:70x128 below8:66x128 junk:70x66;"
             "below8:70x34 below8:66x34 junk:70x66"},
    {.feature = "bf16, both transposed",
     .text = "func pr_bf16_t(a: bf16[k, 72], b: bf16[33, k], out c: f32[33, 72]) {\n"
             "  parallel i in 0..72 { parallel j in 0..33 {\n"
             "  c[j, i] = sum p in 0..k { f32(a[p, i]) * f32(b[j, p]) }; } } }",
     .args = "below8:40x72 below8:33x40 junk:33x72;below8:15x72 below8:33x15 junk:33x72"},
    {.feature = "i8",
     .text = "func pr_i8(a: i8[m, k], b: i8[n, k], out c: i32[m, n]) { " NEST
             "c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[j, p]) }; } } }",
     .args = "bits:64x64 bits:64x64 junk:64x64;bits:33x130 bits:70x130 junk:33x70;"
             "bits:130x35 bits:129x35 junk:130x129;bits:3x500 bits:40x500 junk:3x40"},
    {.feature = "u8 and i8",
     .text = "func pr_u8_i8(a: u8[65, k], b: i8[k, 63], out c: i32[65, 63]) {\n"
             "  parallel i in 0..65 { parallel j in 0..63 {\n"
             "  c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[p, j]) }; } } }",
     .args = "bits:65x64 bits:64x63 junk:65x63;bits:65x131 bits:131x63 junk:65x63"},
    {.feature = "i8 and u8",
     .text = "func pr_i8_u8(a: i8[70, 40], b: u8[33, 70], out c: i32[40, 33]) {\n"
             "  parallel i in 0..40 { parallel j in 0..33 {\n"
             "  c[i, j] = sum p in 0..70 { i32(a[p, i]) * i32(b[j, p]) }; } } }",
     .args = "bits:70x40 bits:33x70 junk:40x33"},
    {.feature = "u8",
     .text = "func pr_u8(a: u8[12, 300], b: u8[40, 300], out c: i32[12, 40]) {\n"
             "  parallel i in 0..12 { parallel j in 0..40 {\n"
             "  c[i, j] = sum p in 0..300 { i32(a[i, p]) * i32(b[j, p]) }; } } }",
     .args = "bits:12x300 bits:40x300 junk:12x40"},
    {.feature = "sums of i32 wrap",
     .text = "func pr_wrap(a: i8[40, 70], b: i8[40, 70], s: i32, out c: i32[40, 40]) {\n"
             "  parallel i in 0..40 { parallel j in 0..40 {\n"
             "  c[i, j] = s + (sum p in 0..70 { i32(a[i, p]) * i32(b[j, p]) }) * s; } } }",
     .args = "bits:40x70 bits:40x70 2147483647 junk:40x40"},
    // Rows are as far apart as their length, or not; the first element is at any address.
    {.feature = "alignment",
     .text = "func pr_align(a: f16[40, k] strides [r, 1], b: f16[k, 41] strides [s, 1],\n"
             "    out c: f32[40, 41]) { parallel i in 0..40 { parallel j in 0..41 {\n"
             "  c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     .args = "below8:40x40/48,1@2 below8:40x41/56,1@16 junk:40x41;"
             "below8:40x40/42,1@4 below8:40x41/43,1@8 junk:40x41;"
             "below8:40x37/44,1@8 below8:37x41/44,1@12 junk:40x41;"
             "below8:40x66/72,1@16 below8:66x41/80,1@32 junk:40x41"},
    {.feature = "bytes of any alignment",
     .text = "func pr_align_i8(a: i8[40, k] strides [r, 1], b: i8[33, k] strides [s, 1],\n"
             "    out c: i32[40, 33]) { parallel i in 0..40 { parallel j in 0..33 {\n"
             "  c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[j, p]) }; } } }",
     .args = "bits:40x40/48,1@1 bits:33x40/64,1@16 junk:40x33;"
             "bits:40x65/65,1@4 bits:33x65/68,1@8 junk:40x33"},
    {.feature = "two products in one iteration",
     .text = "func pr_gated(a: f16[m, k], b: f16[n, k], d: f16[n, k], out c: f32[m, n]) { " NEST
             "  let g = sum p in 0..k { f32(a[i, p]) * f32(b[j, p]) };\n"
             "  c[i, j] = max(g, 0.0) * (sum p in 0..k { f32(a[i, p]) * f32(d[j, p]) }); } } }",
     .args = "below8:1x40 below8:70x40 below8:70x40 junk:1x70;"
             "below8:33x64 below8:65x64 below8:65x64 junk:33x65;"
             "below8:0x8 below8:8x8 below8:8x8 junk:0x8;below8:9x0 below8:9x0 below8:9x0 junk:9x9"},
    {.feature = "values of f32",
     .text = "func pr_rand(a: f16[40, 200], b: f16[40, 200], out c: f32[40, 40]) {\n"
             "  parallel i in 0..40 { parallel j in 0..40 {\n"
             "  c[i, j] = sum p in 0..200 { f32(a[i, p]) * f32(b[j, p]) }; } } }",
     .args = "rand:40x200 rand:40x200 junk:40x40",
     .tolerance = 1e-3},
    // Small integers are exact in tf32, too.
    {.feature = "f32 in a fast function",
     .text = "func pr_fast(a: f32[40, k], b: f32[k, 70], out c: f32[40, 70]) fast {\n"
             "  parallel i in 0..40 { parallel j in 0..70 {\n"
             "  c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
     .args = "below8:40x33 below8:33x70 junk:40x70;below8:40x48 below8:48x70 junk:40x70"},
    {.feature = "f32 in a fast function, second transposed",
     .text = "func pr_fast_t(a: f32[12, 70], b: f32[40, 70], out c: f32[12, 40]) fast {\n"
             "  parallel i in 0..12 { parallel j in 0..40 {\n"
             "  c[i, j] = sum p in 0..70 { a[i, p] * b[j, p] }; } } }",
     .args = "rand:12x70 rand:40x70 junk:12x40",
     .tolerance = 0.05},
    {.feature = "f32 of few rows, columns and steps",
     .text = "func pr_small(a: f32[m, k], b: f32[k, n], out c: f32[m, n]) { " NEST
             "c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } } }",
     .args = "below8:0x8 below8:8x8 junk:0x8;below8:8x8 below8:8x0 junk:8x0;"
             "below8:9x0 below8:0x8 junk:9x8;below8:1x1 below8:1x1 junk:1x1;"
             "below8:3x3 below8:3x3 junk:3x3;below8:17x17 below8:17x17 junk:17x17;"
             "below8:33x1 below8:1x16 junk:33x16;below8:31x41 below8:41x37 junk:31x37;"
             "below8:70x3 below8:3x97 junk:70x97;below8:15x64 below8:64x33 junk:15x33"},
    {.feature = "small ones of a batch, at any address, with a bias and a condition",
     .text = "func pr_small_batch(a: f32[z, m, k] strides [q, r, 1],\n"
             "    b: f32[z, k, n] strides [s, t, 1], bias: f32[n], inout c: f32[z, m, n]) {\n"
             "  parallel u in 0..z { " NEST
             "  let y = bias[j] + (sum p in 0..k { a[u, i, p] * b[u, p, j] });\n"
             "  if i <= j { c[u, i, j] = y + c[u, i, j]; } } } } }",
     .args = "below8:3x17x5/100,6,1@4 below8:3x5x18/120,21,1@12 below8:18 below8:3x17x18;"
             "below8:2x9x7/70,7,1@0 below8:2x7x11/80,11,1@8 below8:11 below8:2x9x11;"
             "below8:0x9x7/70,7,1@0 below8:0x7x11/80,11,1@8 below8:11 below8:0x9x11"},
    {.feature = "few columns of a long reduction",
     .text = "func pr_columns(a: f32[m, k] strides [r, 1], b: f32[k, n], bias: f32[n],\n"
             "    out c: f32[m, n]) { " NEST
             "c[i, j] = bias[j] + (sum p in 0..k { a[i, p] * b[p, j] }); } } }",
     .args = "below8:300x100/100,1 below8:100x1 below8:1 junk:300x1;"
             "below8:17x97/101,1@4 below8:97x3 below8:3 junk:17x3;"
             "below8:5x128/128,1 below8:128x4 below8:4 junk:5x4;"
             "below8:2x9000/9000,1 below8:9000x1 below8:1 junk:2x1;"
             "below8:0x64/64,1 below8:64x1 below8:1 junk:0x1"},
    {.feature = "infinities stay in their rows and columns",
     .text = "func pr_inf(a: f16[40, 37], b: f16[37, 40], out c: f32[40, 40]) {\n"
             "  parallel i in 0..40 { parallel j in 0..40 {\n"
             "  c[i, j] = sum p in 0..37 { f32(i == 3 ? a[i, p] * 60000.0 : a[i, p]) *\n"
             "    f32(j == 4 ? b[p, j] * 60000.0 : b[p, j]) }; } } }",
     .args = "below8:40x37 below8:37x40 junk:40x40"},
    {.feature = "bias, activation and residual",
     .text = "func pr_epilogue(a: f16[65, 48], b: f16[66, 48], bias: f16[66],\n"
             "    inout c: f16[65, 66]) { parallel i in 0..65 { parallel j in 0..66 {\n"
             "  let z = f32(bias[j]) + (sum p in 0..48 { f32(a[i, p]) * f32(b[j, p]) });\n"
             "  c[i, j] = f16(max(z, 0.0) * 0.125) + c[i, j]; } } }",
     .args = "below8:65x48 below8:66x48 below8:66 below8:65x66"},
    {.feature = "a condition on the store",
     .text = "func pr_store(a: bf16[70, 40], b: bf16[40, 66], inout c: f32[70, 66]) {\n"
             "  parallel i in 0..70 { parallel j in 0..66 {\n"
             "  let s = sum p in 0..40 { f32(a[i, p]) * f32(b[p, j]) };\n"
             "  if i <= j { c[i, j] = s; } } } }",
     .args = "below8:70x40 below8:40x66 junk:70x66"},
    {.feature = "weights with scales",
     .text = "func pr_scales(a: f16[m, 66], w: u8[40, 33], s: f16[40], out c: f32[m, 40]) {\n"
             "  parallel i in 0..m { parallel j in 0..40 { c[i, j] = sum p in 0..66 {\n"
             "  f32(a[i, p]) * f32((f16(w[j, p // 2] >> u8(p % 2 * 4) & 15) - 8.0) * s[j]) };\n"
             "  } } }",
     .args = "below8:40x66 bits:40x33 below4:40 junk:40x40;"
             "below8:7x66 bits:40x33 below4:40 junk:7x40"},
    {.feature = "rows from a list",
     .text = "func pr_gather(a: f16[50, 40], at: i32[40], b: f16[40, 66], out c: f32[40, 66]) {\n"
             "  parallel i in 0..40 { parallel j in 0..66 {\n"
             "  c[i, j] = sum p in 0..40 { f32(a[i64(at[i]) % 50, p]) * f32(b[p, j]) }; } } }",
     .args = "below8:50x40 below99:40 below8:40x66 junk:40x66"},
    {.feature = "a batch",
     .text = "func pr_batch(a: f16[z, 33, 40], b: f16[z, 65, 40], out c: f32[z, 33, 65]) {\n"
             "  parallel u in 0..z { parallel i in 0..33 { parallel j in 0..65 {\n"
             "  c[u, i, j] = sum p in 0..40 { f32(a[u, i, p]) * f32(b[u, j, p]) }; } } } }",
     .args = "below8:3x33x40 below8:3x65x40 junk:3x33x65"},
    {.feature = "heads of a fixed width",
     .text = "func pr_heads(q: f16[40, 2, 16], k: f16[50, 2, 16], out s: f32[2, 40, 50]) {\n"
             "  parallel h in 0..2 { parallel i in 0..40 { parallel j in 0..50 {\n"
             "  s[h, i, j] = sum p in 0..16 { f32(q[i, h, p]) * f32(k[j, h, p]) }; } } } }",
     .args = "below8:40x2x16 below8:50x2x16 junk:2x40x50"},
    {.feature = "a long reduction with few results",
     .text = "func pr_long(a: f16[16, 3000], b: f16[40, 3000], r: f32[40], out c: f32[16, 40]) {\n"
             "  parallel i in 0..16 { parallel j in 0..40 { c[i, j] = max(r[j] +\n"
             "  (sum p in 0..3000 { f32(a[i, p]) * f32(b[j, p]) }), 1.0); } } }",
     .args = "below8:16x3000 below8:40x3000 below8:40 junk:16x40"},
    {.feature = "a long reduction of bytes",
     .text = "func pr_long_i8(a: i8[33, 1500], b: i8[1500, 20], out c: i32[33, 20]) {\n"
             "  parallel i in 0..33 { parallel j in 0..20 {\n"
             "  c[i, j] = sum p in 1..1500 { i32(a[i, p]) * i32(b[p, j]) }; } } }",
     .args = "bits:33x1500 bits:1500x20 junk:33x20"},
    {.feature = "a long minimum",
     .text = "func pr_long_min(a: f32[40, 2048], b: f32[40, 2048], out c: f32[40, 40]) {\n"
             "  parallel i in 0..40 { parallel j in 0..40 {\n"
             "  c[i, j] = min p in 0..2048 { a[i, p] + b[j, p] }; } } }",
     .args = "rand:40x2048 rand:40x2048 junk:40x40"},
    {.feature = "a long reduction over several loops",
     .text = "func pr_long_conv(x: f32[512, 5, 6], w: f32[32, 512, 3], out y: f32[32, 5, 4]) {\n"
             "  parallel o in 0..32 { parallel i in 0..5 { parallel j in 0..4 {\n"
             "  y[o, i, j] = sum c in 0..512 { sum v in 0..3 { x[c, i, j + v] * w[o, c, v] } };\n"
             "  } } } }",
     .args = "below8:512x5x6 below8:32x512x3 junk:32x5x4"},
    {.feature = "a convolution",
     .text = "func pr_conv(x: f16[2, 9, 10, 16], w: f16[24, 3, 3, 16], out y: f32[2, 7, 8, 24]) {\n"
             "  parallel u in 0..2 { parallel h in 0..7 { parallel v in 0..8 {\n"
             "  parallel o in 0..24 { y[u, h, v, o] = sum p in 0..144 { let q = p // 16;\n"
             "  f32(x[u, h + q // 3, v + q % 3, p % 16]) * f32(w[o, q // 3, q % 3, p % 16]) };\n"
             "  } } } } }",
     .args = "below8:2x9x10x16 below8:24x3x3x16 junk:2x7x8x24"},
    {.feature = "constant extents of whole tiles",
     .text = "func pr_const(a: f16[128, 64], b: f16[64, 192], out c: f32[128, 192]) {\n"
             "  parallel i in 0..128 { parallel j in 0..192 {\n"
             "  c[i, j] = sum p in 0..64 { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     .args = "below8:128x64 below8:64x192 junk:128x192"},
    {.feature = "one product after another",
     .text = "func pr_chain(a: f16[40, 24], b: f16[24, 40], d: f16[40, 40], out c: f32[40, 40]) {\n"
             "  alloc t: f16[40, 40] in global;\n"
             "  parallel i in 0..40 { parallel j in 0..40 {\n"
             "  t[i, j] = f16(sum p in 0..24 { f32(a[i, p]) * f32(b[p, j]) }); } }\n"
             "  parallel i in 0..40 { parallel j in 0..40 {\n"
             "  c[i, j] = sum p in 0..40 { f32(t[i, p]) * f32(d[p, j]) }; } } }",
     .args = "below4:40x24 below4:24x40 below4:40x40 junk:40x40"},
};

static void run(conf_t* c) {
  conf_programs(c, programs, CONF_COUNT_OF(programs));
}

const conf_area_t conf_area_products = {"products", NULL, 0, run};
