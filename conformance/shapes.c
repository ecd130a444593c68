// SPDX-License-Identifier: Apache-2.0
// conformance/shapes.c: extents of zero, one, odd and prime numbers, many dimensions, and more
// elements than 32 bits count.
#include "conformance/program.h"

static const conf_program_t programs[] = {
    {.feature = "one dimension",
     .text =
         "func sh_1(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] * 2.0 + 1.0; } }",
     .args =
         "rand:0 junk:0;rand:1 junk:1;rand:2 junk:2;rand:3 junk:3;rand:7 junk:7;rand:31 junk:31;"
         "rand:32 junk:32;rand:33 junk:33;rand:127 junk:127;rand:255 junk:255;rand:256 junk:256;"
         "rand:257 junk:257;rand:1023 junk:1023;rand:10007 junk:10007;rand:65537 junk:65537"},
    {.feature = "bytes of odd counts",
     .text = "func sh_bytes(x: i8[n], out y: i8[n]) { parallel i in 0..n { y[i] = x[i] + 3; } }",
     .args =
         "rand:0 junk:0;rand:1 junk:1;rand:2 junk:2;rand:3 junk:3;rand:5 junk:5;rand:127 junk:127;"
         "rand:10007 junk:10007"},
    {.feature = "two dimensions",
     .text =
         "func sh_2(x: f32[n, m], out y: f32[m, n]) { parallel i in 0..n { parallel j in 0..m {\n"
         "  y[j, i] = x[i, j]; } } }",
     .args = "rand:0x0 junk:0x0;rand:0x7 junk:7x0;rand:7x0 junk:0x7;rand:1x1 junk:1x1;"
             "rand:1x1009 junk:1009x1;rand:1009x1 junk:1x1009;rand:61x67 junk:67x61"},
    {.feature = "five dimensions",
     .text =
         "func sh_5(x: i32[a, b, c, d, e], out y: i32[e, d, c, b, a]) {\n"
         "  parallel i in 0..a { parallel j in 0..b { parallel k in 0..c { parallel l in 0..d {\n"
         "  parallel m in 0..e { y[m, l, k, j, i] = x[i, j, k, l, m] + i32(i + j + k + l + m); "
         "} } } } } }",
     .args = "iota:2x3x5x7x11 junk:11x7x5x3x2;iota:1x1x1x1x1 junk:1x1x1x1x1;iota:3x1x4x1x5 "
             "junk:5x1x4x1x3;iota:2x2x0x2x2 junk:2x2x0x2x2"},
    {.feature = "seven dimensions",
     .text =
         "func sh_7(x: i32[a, b, c, d, e, f, g], out y: i32[a, b, c, d, e, f, g]) {\n"
         "  parallel i in 0..a { parallel j in 0..b { parallel k in 0..c { parallel l in 0..d {\n"
         "  parallel m in 0..e { parallel o in 0..f { parallel p in 0..g {\n"
         "  y[i, j, k, l, m, o, p] = x[i, j, k, l, m, o, p] * 2 + i32(p); } } } } } } } }",
     .args = "iota:2x3x2x3x2x3x2 junk:2x3x2x3x2x3x2"},
    {.feature = "extents of expressions",
     .text = "func sh_expr(x: f32[n + 2, 2 * m], out y: f32[n, m]) { parallel i in 0..n {\n"
             "  parallel j in 0..m { y[i, j] = x[i + 2, 2 * j + 1] - x[i, j]; } } }\n",
     .args = "rand:9x10 junk:7x5;rand:2x10 junk:0x5"},
    {.feature = "symbols from equations",
     .text =
         "func sh_solve(x: f32[2 * th + 2, 3 - w], out y: f32[th + u], k: i32, t: f32[u + k]) {\n"
         "  parallel i in 0..th + u {\n"
         "  y[i] = i < th ? x[2 * i + 2, 0] : t[i - th] + f32(th + 10 * w + 100 * u); } }\n",
     .args = "rand:8x1 junk:8 2 rand:7;rand:2x2 junk:5 0 rand:5;rand:22x3 junk:10 0 rand:0"},
    {.feature = "symbols from equations, without a solution",
     .text = "func sh_unsolved(x: f32[2 * th + 2], out y: f32[4]) {\n"
             "  parallel i in 0..4 { y[i] = f32(th); } }\n",
     .args = "rand:7 junk:4",
     .code = QN_STATUS_VALUE_ERROR,
     .parts = "'x',extent 0,7 is 2 * th + 2 for no th,6 or 8"},
    {.feature = "constant extents",
     .text = "func sh_const(x: f32[3, 5], out y: f32[5]) { parallel j in 0..5 {\n"
             "  y[j] = x[0, j] + x[1, j] * x[2, j]; } }",
     .args = "rand:3x5 junk:5"},
    {.feature = "fixed scalars",
     .text = "func sh_fixed(k: i64 = 5, x: f32[n, k], s: u8 = 3, out y: f32[n, k]) {\n"
             "  block.x b in 0..n { alloc tile: f32[k * i64(s)] in shared; thread.x t in 0..k {\n"
             "    alloc acc: f32[k] in local; unroll u in 0..k { acc[u] = x[b, u] * f32(s); }\n"
             "    tile[t] = acc[t]; barrier; y[b, t] = tile[k - 1 - t] + f32(-k); } } }",
     .args = "5 rand:7x5 3 junk:7x5;5 rand:0x5 3 junk:0x5"},
    {.feature = "fixed scalars, another value",
     .text = "func sh_refused(k: i64 = 5, out y: f32[k]) { parallel i in 0..k { y[i] = 1.0; } }",
     .args = "6 junk:5",
     .code = QN_STATUS_VALUE_ERROR,
     .parts = "'k',expected 5,got 6"},
    {.feature = "empty ranges of any bounds",
     .text = "func sh_empty(x: i32[n], r: i64, s: i64, inout y: i32[64], out z: i32[4]) {\n"
             "  parallel i in 1..r { y[i] = y[i] + 7; }\n"
             "  parallel i in 8..s { parallel j in s..r { y[i + j] = 9; } }\n"
             "  parallel i in 0..2 { parallel j in 8..s { y[i + j] = 10; } }\n"
             "  for i in 1..r { parallel j in 0..3 { y[j] = y[j] + 1; } }\n"
             "  block.x b in 1..r { y[b] = y[b] * 3; }\n"
             "  block.x b in 1..r { block.y c in 1..s { y[b * 8 + c] = 11; } }\n"
             "  parallel i in 0..4 { z[i] = sum k in 1..r { x[k] + i32(i) }; }\n"
             "  z[1] = sum k in 0..r { x[k] };\n"
             "  z[2] = z[2] + sum k in 8..s { x[k] };\n"
             "  parallel i in 0..1 { z[3] = min k in 3..r { x[k] }; } }",
     .args = "rand:8 -9223372036854775808 0 iota:64 junk:4;"
             "rand:8 -9223372036854775808 8 iota:64 junk:4;"
             "rand:8 8 -9223372036854775808 iota:64 junk:4;"
             "rand:8 -9223372036854775807 2 iota:64 junk:4;"
             "rand:8 -1 8 iota:64 junk:4;"
             "rand:8 0 0 iota:64 junk:4;"
             "rand:8 1 4 iota:64 junk:4;"
             "rand:8 2 1 iota:64 junk:4;"
             "rand:8 8 0 iota:64 junk:4;"
             "rand:8 -2147483648 3 iota:64 junk:4"},
    {.feature = "empty ranges in products",
     .text = "func sh_empty_dot(a: i32[n, q], b: i32[q, m], r: i64, s: i64, inout c: i32[n, m]) {\n"
             "  parallel i in 0..n { parallel j in 0..m {\n"
             "    c[i, j] = sum p in s..r { a[i, p] * b[p, j] }; } } }",
     .args = "rand:33x40 rand:40x65 -9223372036854775808 1 rand:33x65;"
             "rand:33x40 rand:40x65 -9223372036854775808 0 rand:33x65;"
             "rand:33x40 rand:40x65 -3 0 rand:33x65;"
             "rand:33x40 rand:40x65 0 0 rand:33x65;"
             "rand:33x40 rand:40x65 40 1 rand:33x65;"
             "rand:33x40 rand:40x65 16 0 rand:33x65;"
             "rand:33x40 rand:40x65 1 9223372036854775807 rand:33x65;"
             "rand:33x40 rand:40x65 40 40 rand:33x65"},
    {.feature = "reductions of every length",
     .text = "func sh_reduce(x: i32[n, m], out y: i32[n]) { parallel i in 0..n {\n"
             "  y[i] = sum j in 0..m { x[i, j] }; } }",
     .args = "rand:3x0 junk:3;rand:3x1 junk:3;rand:3x2 junk:3;rand:3x31 junk:3;rand:3x33 junk:3;"
             "rand:3x257 junk:3;rand:2x10007 junk:2;rand:1000x3 junk:1000;rand:0x9 junk:0"},
    {.feature = "reduction of everything",
     .text = "func sh_total(x: i32[n], out y: i32[1]) { y[0] = sum j in 0..n { x[j] }; }",
     .args = "rand:0 junk:1;rand:1 junk:1;rand:10007 junk:1;rand:100003 junk:1"},
    // A thread may access neighbours together: tensors with odd begins, remainders, in place.
    {.feature = "neighbours, bool",
     .text = "func sh_near_bool(x: bool[n], inout y: bool[n]) { parallel i in 0..n {\n"
             "  y[i] = x[i] ^ !y[i]; } }",
     .args = "rand:10000 rand:10000;rand:4099@1 rand:4099;rand:4099 rand:4099@3;rand:15 rand:15"},
    {.feature = "neighbours, i8 and f16",
     .text = "func sh_near_16(x: i8[n], inout h: f16[n], out y: f32[n]) { parallel i in 0..n {\n"
             "  h[i] = h[i] + f16(x[i]); y[i] = f32(h[i]) * 0.5; } }",
     .args = "rand:9001 rand:9001 junk:9001;rand:4096@4 rand:4096 junk:4096;rand:4096 rand:4096@2 "
             "junk:4096;rand:4096 rand:4096 junk:4096@8;rand:3 rand:3 junk:3"},
    {.feature = "neighbours, bf16 and i64",
     .text = "func sh_near_64(x: i64[n], g: bf16[n], b: f64[1], out y: f64[n]) {\n"
             "  parallel i in 0..n { y[i] = f64(x[i] * 3) + f64(g[i]) * b[0]; } }",
     .args = "rand:5003 rand:5003 rand:1 junk:5003;rand:5003@8 rand:5003 rand:1 junk:5003;"
             "rand:5003 rand:5003@6 rand:1 junk:5003@8"},
    {.feature = "neighbours, shifted",
     .text = "func sh_near_shift(x: f32[m], k: i64, out y: f32[n]) { parallel i in 0..n {\n"
             "  let a = x[i + k]; y[i] = i % 3 == 0 ? a + x[i] : a * x[i + 4]; } }",
     .args = "rand:5000 0 junk:4001;rand:5000 1 junk:4001;rand:5000 4 junk:4000;rand:5000 6 "
             "junk:4000@4;rand:5000 2 junk:4000@8"},
    {.feature = "neighbours in rows",
     .text = "func sh_near_rows(x: f16[n, m] strides [s, 1], b: f16[m], w: f32[n], out y: f16[n, "
             "m]) {\n"
             "  parallel i in 0..n { parallel j in 0..m {\n"
             "  y[i, j] = max(x[i, j] + b[j], f16(0.0)) + f16(w[i]); } } }",
     .args = "rand:37x64 rand:64 rand:37 junk:37x64;rand:37x63 rand:63 rand:37 junk:37x63;"
             "rand:37x64/72,1 rand:64 rand:37 junk:37x64;rand:37x64/67,1 rand:64 rand:37 "
             "junk:37x64;rand:37x64@6 rand:64@2 rand:37 junk:37x64;rand:5x4 rand:4 rand:5 "
             "junk:5x4;rand:0x8 rand:8 rand:0 junk:0x8;rand:8x0 rand:0 rand:8 junk:8x0"},
    {.feature = "neighbours in reductions",
     .text =
         "func sh_near_sums(x: f16[n, m] strides [s, 1], out y: f16[n, m]) { parallel i in 0..n {\n"
         "  let most = max j in 0..m { x[i, j] };\n"
         "  let t = sum j in 0..m { i32(x[i, j] * 4.0) };\n"
         "  for j in 0..m { y[i, j] = (x[i, j] - most) + f16(t % 16); } } }",
     .args =
         "rand:5x4096 junk:5x4096;rand:5x1000 junk:5x1000;rand:5x1001 junk:5x1001;rand:5x2056@2 "
         "junk:5x2056;rand:5x2056 junk:5x2056@4;rand:3x8 junk:3x8;rand:3x0 junk:3x0;"
         "rand:5x4096/4100,1 junk:5x4096"},
    {.feature = "neighbours in warps",
     .text = "func sh_near_warp(x: i32[n, 256], inout y: i32[n, 256]) { parallel i in 0..n {\n"
             "  let s = sum j in 0..256 { x[i, j] };\n"
             "  for j in 0..256 { y[i, j] = x[i, j] + s; } } }",
     .args = "rand:100x256 rand:100x256;rand:3x256@4 rand:3x256;rand:3x256 rand:3x256@8"},
    {.feature = "stencil",
     .text = "func sh_stencil(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n {\n"
             "  parallel j in 0..m {\n"
             "    let up = i > 0 ? x[i - 1, j] : 0.0; let down = i + 1 < n ? x[i + 1, j] : 0.0;\n"
             "    y[i, j] = (up + down) * 0.25 + x[i, j] * 0.5; } } }",
     .args = "rand:19x23 junk:19x23;rand:1x5 junk:1x5"},
};

// Uses bytes, so that two gibibytes are enough, and a reference in C: the interpreter would take an
// hour.
static void beyond(conf_t* c) {
  static const char text[] =
      "func sh_large(inout y: u8[n]) { parallel i in 0..n { y[i] = u8(i * 7 + (i >> 20)) + y[i]; } "
      "}";
  int64_t shape[1] = {(INT64_C(1) << 31) + 4099};
  enum { PIECE = 1 << 20 };
  qn_function_t* function = conf_function(c, text, "sh_large", false);
  uint8_t* piece = conf_host_memory(c, PIECE);
  void* memory = NULL;
  if (!function || !piece) return;
  qn_status_t status = qn_device_allocate(c->device, (size_t)shape[0], 0, &memory);
  if (qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) {
    conf_unsupported(c, "%s", qn_status_message(status));
    qn_status_free(status);
    return;
  }
  CONF_TRY(c, status);
  conf_keep(c, CONF_KEPT_DEVICE, memory, c->device);
  for (int64_t at = 0; at < shape[0]; at += PIECE) {
    int64_t size = shape[0] - at < PIECE ? shape[0] - at : PIECE;
    if (!conf_upload(c, memory, (size_t)at, piece, (size_t)size)) return;
  }
  qn_tensor_t tensor = conf_tensor(c, memory, QN_DTYPE_U8, 1, shape);
  qn_value_t args[] = {qn_value_tensor(&tensor)};
  CONF_TRY(c, conf_call(c, function, args, 1));
  for (int64_t at = 0; at < shape[0]; at += PIECE) {
    int64_t size = shape[0] - at < PIECE ? shape[0] - at : PIECE;
    if (!conf_download(c, piece, memory, (size_t)at, (size_t)size)) return;
    for (int64_t i = 0; i < size; i++) {
      int64_t k = at + i;
      CONF_CHECK(c, piece[i] == (uint8_t)(k * 7 + (k >> 20)), "element %lld is %d", (long long)k,
                 piece[i]);
    }
  }
}

static void run(conf_t* c) {
  conf_programs(c, programs, CONF_COUNT_OF(programs));
  if (!conf_is_listing(c) && !c->options.has_large) return;
  if (!conf_begin(c, "more than 2^31 elements", NULL)) return;
  beyond(c);
  conf_end(c);
}

const conf_area_t conf_area_shapes = {"shapes", NULL, 0, run};
