// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_emit.c: every construct of the language, compiled for several processors in
// both tiers, checked and not, in lanes and as scalar code, against the interpreter.
//
// Each program runs over several extents, so that there are full vectors, tails and empty ranges.
// Failures and workspace: test_emit_fail.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_oracle.h"
#include "tests/support/rounding.h"

enum { MAX_KERNELS = 32 };

static const char* const cpus[] = {"x86-64", "x86-64-v3", "x86-64-v4"};

typedef struct program {
  const char* name;
  const char* text;
  double tolerance;
  bool has_plain_values;  // no NaN and the like
  bool has_barriers;      // needs the passes
} program_t;

// The values of symbols: all symbols of a program take these, shifted by their position.
static const int64_t extents[] = {0, 1, 7, 16, 33, 100, 131};

static void check_function(const qn__ir_func_t* function, size_t index, kernels_t** kernels,
                           size_t kernel_count, const program_t* program) {
  for (size_t i = 0; i < QN_COUNT_OF(extents); ++i) {
    int64_t symbols[8];
    for (size_t k = 0; k < function->symbol_count; ++k) {
      // Not all alike: (n, m, ...) = (7, 18, ...).
      symbols[k] = extents[(i + 2 * k) % QN_COUNT_OF(extents)] + (int64_t)k;
    }
    oracle_case_t test = {.function = function,
                          .symbols = symbols,
                          .seed = 1000 + i,
                          .has_specials = !program->has_plain_values && i % 2 == 1,
                          .tolerance = program->tolerance};
    const char* problem = oracle_compare(&test, index, kernels, kernel_count);
    if (problem) fail_msg("%s: %s", program->name, problem);
    if (function->symbol_count == 0) break;
  }
}

static void run_program(void** state) {
  const program_t* program = *state;
  qn_module_t* module = parse_or_die(program->text);
  kernels_t* kernels[MAX_KERNELS];
  size_t count = 0;
  for (size_t i = 0; i < QN_COUNT_OF(cpus); ++i) {
    if (!build_can_run(cpus[i])) continue;
    for (int kind = 0; kind < 6; ++kind) {
      build_t build = {.cpu = cpus[i],
                       .is_fast = kind == 1 || kind == 4,
                       .is_scalar = kind == 2,
                       .is_checked = kind == 3 || kind == 4,
                       .is_raw = kind == 5 && !program->has_barriers};
      qn_status_t error;
      kernels[count] = kernels_create(module, build, false, &error);
      if (!kernels[count]) fail_msg("%s: %s", program->name, qn_status_message(error));
      count++;
    }
  }
  size_t index = 0;
  for (qn__ir_func_t* f = module->body.first; f; f = f->next) {
    check_function(f, index++, kernels, count, program);
  }
  for (size_t i = 0; i < count; ++i) kernels_destroy(kernels[i]);
  qn_module_release(module);
}

// One loop over all elements that stores `expression` of a, b and c.
#define MAP(dtype, result, expression)                                       \
  "func f(x: " dtype "[n], y: " dtype "[n], z: " dtype "[n], out r: " result \
  "[n]) {\n"                                                                 \
  "  parallel i in 0..n { let a = x[i]; let b = y[i]; let c = z[i]; r[i] = " expression "; } }\n"

#define INT_OPS(dtype)                                                                           \
  "func arith(x: " dtype "[n], y: " dtype "[n], out r: " dtype                                   \
  "[n, 20]) {\n"                                                                                 \
  "  for i in 0..n { let a = x[i]; let b = y[i]; let d = b == 0 ? 3 : b;\n"                      \
  "    r[i, 0] = a + b; r[i, 1] = a - b; r[i, 2] = a * b; r[i, 3] = a // d; r[i, 4] = a % d;\n"  \
  "    r[i, 5] = truncdiv(a, d); r[i, 6] = truncmod(a, d); r[i, 7] = ceildiv(a, d);\n"           \
  "    r[i, 8] = min(a, b); r[i, 9] = max(a, b); r[i, 10] = -a; r[i, 11] = abs(a);\n"            \
  "    r[i, 12] = a & b; r[i, 13] = a | b; r[i, 14] = a ^ b; r[i, 15] = ~a;\n"                   \
  "    r[i, 16] = a << b; r[i, 17] = a >> b; r[i, 18] = popcount(a); r[i, 19] = clz(a); } }\n"   \
  "func lanes(x: " dtype "[n], y: " dtype "[n], out p: " dtype "[n], out q: " dtype              \
  "[n],\n"                                                                                       \
  "           out r: " dtype "[n], out s: " dtype "[n], out t: " dtype                           \
  "[n]) {\n"                                                                                     \
  "  parallel i in 0..n { let a = x[i]; let b = y[i]; let d = b == 0 ? 3 : b;\n"                 \
  "    p[i] = (a + b) * (a - b) ^ (a << b) & ~(a >> b) | -a;\n"                                  \
  "    q[i] = min(a, b) + max(abs(a), b) + popcount(a) * clz(b);\n"                              \
  "    q[i] = q[i] + ctz(a) * rotl(b, a) ^ mulhi(a, b);\n"                                       \
  "    r[i] = a // d + a % d * 3 + ceildiv(a, d);\n"                                             \
  "    s[i] = truncdiv(a, d) - truncmod(a, d);\n"                                                \
  "    t[i] = a // 7 + a % 8 * 3 + a // 4 + ceildiv(a, 16) + truncdiv(a, 5) + truncmod(a, 4);\n" \
  "  } }\n"                                                                                      \
  "func compare(x: " dtype "[n], y: " dtype                                                      \
  "[n], out r: bool[n]) {\n"                                                                     \
  "  parallel i in 0..n { let a = x[i]; let b = y[i];\n"                                         \
  "    r[i] = (a < b || a == b) != (a <= b) || a > b && a >= b || !(a != b); } }\n"              \
  "func reduce(x: " dtype "[n, m], out r: " dtype                                                \
  "[n, 4]) {\n"                                                                                  \
  "  parallel i in 0..n {\n"                                                                     \
  "    r[i, 0] = sum j in 0..m { x[i, j] }; r[i, 1] = prod j in 0..m { x[i, j] };\n"             \
  "    r[i, 2] = min j in 0..m { x[i, j] }; r[i, 3] = max j in 0..m { x[i, j] }; } }\n"

#define FLOAT_OPS(dtype)                                                                        \
  "func arith(x: " dtype "[n], y: " dtype "[n], z: " dtype "[n], out r: " dtype                 \
  "[n, 16]) {\n"                                                                                \
  "  for i in 0..n { let a = x[i]; let b = y[i]; let c = z[i];\n"                               \
  "    r[i, 0] = a + b; r[i, 1] = a - b; r[i, 2] = a * b; r[i, 3] = a / b; r[i, 4] = -a;\n"     \
  "    r[i, 5] = min(a, b); r[i, 6] = max(a, b); r[i, 7] = abs(a); r[i, 8] = fma(a, b, c);\n"   \
  "    r[i, 9] = sqrt(abs(a)); r[i, 10] = floor(a); r[i, 11] = ceil(a); r[i, 12] = round(a);\n" \
  "    r[i, 13] = trunc(a); r[i, 14] = copysign(a, b); r[i, 15] = select(a < b, a, c); } }\n"   \
  "func lanes(x: " dtype "[n], y: " dtype "[n], z: " dtype "[n], out p: " dtype                 \
  "[n],\n"                                                                                      \
  "           out q: " dtype "[n], out r: " dtype                                               \
  "[n]) {\n"                                                                                    \
  "  parallel i in 0..n { let a = x[i]; let b = y[i]; let c = z[i];\n"                          \
  "    p[i] = (a + b) * (a - c) / (b + 3.0);\n"                                                 \
  "    q[i] = min(a, max(b, -c)) + fma(a, b, c) + sqrt(abs(a));\n"                              \
  "    r[i] = a < b ? floor(a) + round(b) : trunc(c) - ceil(a); } }\n"                          \
  "func tests(x: " dtype "[n], y: " dtype                                                       \
  "[n], out r: bool[n]) {\n"                                                                    \
  "  parallel i in 0..n { let a = x[i]; let b = y[i];\n"                                        \
  "    r[i] = isnan(a) || isinf(b) || isfinite(a) && (a < b) == (b >= a) || a != b; } }\n"      \
  "func extremes(x: " dtype "[n, m], out r: " dtype                                             \
  "[n, 2]) {\n"                                                                                 \
  "  parallel i in 0..n {\n"                                                                    \
  "    r[i, 0] = min j in 0..m { x[i, j] }; r[i, 1] = max j in 0..m { x[i, j] }; } }\n"

#define CASTS(from)                                                                              \
  "func narrow(x: " from                                                                         \
  "[n], out a: i8[n], out b: u8[n], out c: i16[n], out d: u16[n],\n"                             \
  "            out e: bool[n]) {\n"                                                              \
  "  parallel i in 0..n { a[i] = i8(x[i]); b[i] = u8(x[i]); c[i] = i16(x[i]); d[i] = u16(x[i]);" \
  "    e[i] = bool(x[i]); } }\n"                                                                 \
  "func wide(x: " from                                                                           \
  "[n], out a: i32[n], out b: u32[n], out c: i64[n], out d: u64[n]) {\n"                         \
  "  parallel i in 0..n { a[i] = i32(x[i]); b[i] = u32(x[i]); c[i] = i64(x[i]);"                 \
  "    d[i] = u64(x[i]); } }\n"                                                                  \
  "func floats(x: " from                                                                         \
  "[n], out a: f16[n], out b: bf16[n], out c: f32[n], out d: f64[n]) {\n"                        \
  "  parallel i in 0..n { a[i] = f16(x[i]); b[i] = bf16(x[i]); c[i] = f32(x[i]);"                \
  "    d[i] = f64(x[i]); } }\n"

static const program_t programs[] = {
    {"i8", INT_OPS("i8"), .tolerance = 0},
    {"i16", INT_OPS("i16"), .tolerance = 0},
    {"i32", INT_OPS("i32"), .tolerance = 0},
    {"i64", INT_OPS("i64"), .tolerance = 0},
    {"u8", INT_OPS("u8"), .tolerance = 0},
    {"u16", INT_OPS("u16"), .tolerance = 0},
    {"u32", INT_OPS("u32"), .tolerance = 0},
    {"u64", INT_OPS("u64"), .tolerance = 0},
    {"f16", FLOAT_OPS("f16"), .tolerance = 0},
    {"bf16", FLOAT_OPS("bf16"), .tolerance = 0},
    {"f32", FLOAT_OPS("f32"), .tolerance = 0},
    {"f64", FLOAT_OPS("f64"), .tolerance = 0},
    {"bool",
     MAP("bool", "bool", "(a & b) == c || a != b && ~c || select(a, b, c) ^ (a | c) || a < b"),
     .tolerance = 0},
    {"cast bool", CASTS("bool"), .tolerance = 0},
    {"cast i8", CASTS("i8"), .tolerance = 0},
    {"cast u8", CASTS("u8"), .tolerance = 0},
    {"cast i16", CASTS("i16"), .tolerance = 0},
    {"cast u16", CASTS("u16"), .tolerance = 0},
    {"cast i32", CASTS("i32"), .tolerance = 0},
    {"cast u32", CASTS("u32"), .tolerance = 0},
    {"cast i64", CASTS("i64"), .tolerance = 0},
    {"cast u64", CASTS("u64"), .tolerance = 0},
    {"cast f16", CASTS("f16"), .tolerance = 0},
    {"cast bf16", CASTS("bf16"), .tolerance = 0},
    {"cast f32", CASTS("f32"), .tolerance = 0},
    {"cast f64", CASTS("f64"), .tolerance = 0},
    {"bitcast",
     "func f(x: f32[n], y: f16[n], z: bf16[n], w: u8[n], out a: u32[n], out b: i16[n],\n"
     "       out c: u16[n], out d: i8[n], out e: f64[n]) {\n"
     "  parallel i in 0..n { a[i] = bitcast(u32, x[i]); b[i] = bitcast(i16, y[i]);\n"
     "    c[i] = bitcast(u16, z[i]); d[i] = bitcast(i8, w[i]);\n"
     "    e[i] = bitcast(f64, i64(a[i]) << 29); } }\n",
     .has_plain_values = true},
    {"sums",
     "func f(x: f32[n, m], w: f64[n, m], h: f16[n, m], out r: f32[n], out s: f64[n],\n"
     "       out t: f16[n], out u: f32[n]) {\n"
     "  parallel i in 0..n { r[i] = sum j in 0..m { let d = x[i, j]; d * d };\n"
     "    s[i] = sum j in 0..m { w[i, j] * 2.0 }; t[i] = sum j in 0..m { h[i, j] * 0.125 };\n"
     "    u[i] = prod j in 0..m { 1.0 + x[i, j] * 0.001 }; } }\n",
     .tolerance = 2e-2, .has_plain_values = true},
    {"functions",
     "func f(x: f32[n], y: f32[n], out r: f32[n], out s: f32[n], out t: f32[n]) {\n"
     "  parallel i in 0..n { let a = x[i]; let b = y[i];\n"
     "    r[i] = exp(a) + log(abs(b) + 1.0) + tanh(a); s[i] = erf(a) + sin(b) + cos(a * b);\n"
     "    t[i] = pow(abs(a), b) + exp2(a) + log2(abs(a) + 0.5) + rsqrt(abs(b) + 1.0); } }\n",
     .tolerance = 1e-5, .has_plain_values = true},
    {"loops",
     "func f(x: i64[n], inout y: i64[n], out z: i64[m]) {\n"
     "  for i in 0..n { for j in i..n { if j % 3 == 0 { y[j] = y[j] + x[i]; } else { y[j] = y[j] ^ "
     "1; } } }\n"
     "  for k in 0..m { z[k] = k * 2; }\n"
     "  for k in 0..m { for q in 5..3 { z[k] = 0; } unroll u in 0..3 { z[k] = z[k] + u; } } }\n",
     .tolerance = 0},
    {"ends of i64",
     "func f(x: i64[n], out y: i64[n], out r: i64[4]) {\n"
     "  let top = 9223372036854775807; let bottom = -9223372036854775808;\n"
     "  for i in top - n..top { y[i - (top - n)] = x[i - (top - n)] + i; }\n"
     "  r[0] = sum i in 9223372036854775790..9223372036854775807 { i % 7 };\n"
     "  r[1] = sum i in top - n..top { i % 10 };\n"
     "  r[2] = max i in bottom..bottom + n { i % 10 };\n"
     "  r[3] = sum i in top..bottom { i }; }\n",
     .tolerance = 0},
    {"while",
     "func f(x: i32[n], out r: i32[n]) {\n"
     "  parallel i in 0..n { alloc s: i32[2] in local; s[0] = x[i] & 1023; s[1] = 0;\n"
     "    while s[0] > 1 && s[1] < 1000 { s[0] = s[0] % 2 == 0 ? s[0] // 2 : s[0] * 3 + 1;\n"
     "      s[1] = s[1] + 1; }\n"
     "    r[i] = s[1]; } }\n",
     .tolerance = 0},
    {"conditions",
     "func f(x: f32[n], y: f32[n], inout r: f32[n], out s: f32[n]) {\n"
     "  parallel i in 0..n {\n"
     "    if x[i] > 0.0 { r[i] = y[i]; if y[i] > 1.0 { r[i] = x[i] + y[i]; } }\n"
     "    else { r[i] = r[i] * 2.0; }\n"
     "    s[i] = x[i] > y[i] && (i == 0 || x[i - 1] > y[i]) ? y[n - 1 - i] : x[i]; } }\n",
     .tolerance = 0},
    {"lazy",
     "func f(x: i32[n], y: i32[n], out r: i32[n]) {\n"
     "  parallel i in 0..n { r[i] = i + 1 < n ? x[i + 1] + (y[i] != 0 ? x[i] // y[i] : 5)\n"
     "      : (n > 200 ? x[n + 7] : 9); } }\n",
     .tolerance = 0},
    {"f16 above a constant",  // LLVM knows one operand, and would call fmaxf
     "func f(x: f16[11], y: f16[n, 11], out r: f16[n, 11]) {\n"
     "  parallel i in 0..n { for j in 0..11 { r[i, j] = max(x[j] + y[i, j], f16(0.0)); } } }\n"
     "func g(x: f16[11], y: f16[n, 11], out r: f16[n, 11]) {\n"
     "  parallel i in 0..n { for j in 0..11 { r[i, j] = min(f16(-0.0), x[j] + y[i, j]); } } }\n",
     .tolerance = 0},
    {"gather",
     "func f(x: f32[n], h: f16[n], k: i32[n], out r: f32[n], out s: f16[n], out t: f32[n]) {\n"
     "  parallel i in 0..n { let j = i64(k[i]) % n; r[i] = x[j]; s[i] = h[j];\n"
     "    t[(i * 1 + 3) % n] = x[i]; } }\n"
     "func g(x: f32[n, m], out r: f32[m, n], out s: f32[m], out t: i16[n]) {\n"
     "  parallel j in 0..m { for i in 0..n { r[j, i] = x[i, j]; } s[j] = n > 0 ? x[0, m - 1 - j] : "
     "0.0; }\n"
     "  parallel i in 0..n { t[n - 1 - i] = i16(i); } }\n",
     .has_plain_values = true},
    {"strides",
     "func f(x: f32[n, m] strides [2 * m, 2], out y: f32[n, m] strides [m + 3, 1]) {\n"
     "  parallel i in 0..n { for j in 0..m { y[i, j] = x[i, j] + 1.0; } } }\n",
     .tolerance = 0},
    {"a few elements apart",
     "func f(x: f32[n, m, 2], h: f16[n, m, 3], d: f64[n, m, 4], b: i8[n, m, 2], w: i16[n, m, 5],\n"
     "       out y: f32[n, m], out z: f64[n, m]) {\n"
     "  parallel i in 0..n { for j in 0..m { y[i, j] = x[i, j, 1] + f32(h[i, j, 2]);\n"
     "    z[i, j] = d[i, j, 3] + f64(b[i, j, 1]) + f64(w[i, j, 4]); } } }\n"
     "func g(x: f32[n], y: i64[n], out r: f32[n], out s: i64[n], out t: f32[n]) {\n"
     "  parallel i in 0..n { r[i] = 2 * i < n ? x[2 * i] : 0.5;\n"
     "    s[i] = i > 2 && 3 * i < n + 5 ? y[3 * i - 5] : -1; t[i] = 4.0; }\n"
     "  parallel i in 0..n { if 4 * i + 3 < n { t[i] = x[4 * i + 3]; } } }\n",
     .tolerance = 0},
    {"align",
     "func f(x: f32[n] align 64, out y: f32[n] align 64) {\n"
     "  parallel i in 0..n { y[i] = x[i] * 2.0; } }\n",
     .tolerance = 0},
    {"scalars",
     "func f(a: f32, b: i8, c: u16, d: bool, e: f16, g: bf16, h: f64, k: u64, out y: f64[n],\n"
     "       out z: i64[n]) {\n"
     "  parallel i in 0..n { y[i] = f64(a) + f64(e) * f64(g) + h + (d ? 1.0 : 2.0);\n"
     "    z[i] = i64(b) + i64(c) + i64(k) + i; } }\n",
     .tolerance = 0},
    {"rank 0",
     "func f(x: f32[], inout y: f32[], out z: i32[3]) { y[] = x[] + y[]; z[1] = 5; z[0] = 1;\n"
     "  z[2] = 7; }\n",
     .tolerance = 0},
    {"vector",
     "func f(x: f32[n, 12], y: f64[n, 33], out r: f32[n, 12], out s: f64[n, 33], out t: i8[n, 100])"
     "{\n"
     "  parallel i in 0..n {\n"
     "    vector v in 0..12 { r[i, v] = v < 5 ? x[i, v] * 2.0 : x[i, 0]; }\n"
     "    vector v in 0..33 { s[i, v] = y[i, 32 - v] + f64(v); }\n"
     "    vector v in 0..100 { if v % 3 == 1 { t[i, v] = i8(v); } else { t[i, v] = i8(i); } } } "
     "}\n",
     .tolerance = 0},
    {"first lanes",
     "func f(x: f32[n, 16], out y: f32[n, 16], out z: i32[n, 32], out t: f64[n, 8]) {\n"
     "  parallel i in 0..n {\n"
     "    vector v in 0..16 { if v < 5 * i - 6 { y[i, v] = x[i, v]; } else { y[i, v] = -1.0; } }\n"
     "    vector v in 0..32 { z[i, v] = v < (i - 1) * 16 ? 1 : 2; }\n"
     "    vector v in 0..8 { t[i, v] = v < i * 4611686018427387904 ? 1.0 : f64(v); } } }\n",
     .tolerance = 0},
    {"outer lanes",
     "func f(x: f32[n, m], out r: f32[m], out s: f32[m]) {\n"
     "  parallel j in 0..m { r[j] = max i in 0..n { x[i, j] }; s[j] = 0.0;\n"
     "    for i in 0..n { if x[i, j] > 0.5 { s[j] = s[j] + 1.0; } } } }\n",
     .tolerance = 0},
    {"local arrays",
     "func f(x: i32[n, 8], out y: i32[n, 8]) {\n"
     "  parallel i in 0..n { alloc t: i32[2, 4] in local;\n"
     "    unroll u in 0..2 { vector v in 0..4 { t[u, v] = x[i, u * 4 + v]; } }\n"
     "    for u in 0..2 { for v in 0..4 { if v < 3 { t[u, v] = t[u, v] + t[1 - u, 3 - v]; } } }\n"
     "    unroll u in 0..2 { vector v in 0..4 { if u * 4 + v < 7 { y[i, u * 4 + v] = t[u, v]; }\n"
     "      else { y[i, u * 4 + v] = -1; } } } } }\n",
     .tolerance = 0},
    {"large arrays",
     "func f(x: f64[n], out y: f64[n]) {\n"
     "  block.x b in 0..ceildiv(n, 1024) { thread.x t in 0..1024 {\n"
     "    alloc p: f64[16] in local; alloc q: f64[16] in local; alloc r: f64[16] in local;\n"
     "    let i = b * 1024 + t;\n"
     "    for j in 0..16 { if i < n { p[j] = x[i] + f64(j); q[j] = f64(t); r[15 - j] = 0.5; } }\n"
     "    barrier;\n"
     "    if i < n { y[i] = p[3] + q[i % 16] * r[2]; } } } }\n",
     .has_barriers = true},
    {"tables",
     "func f(x: u8[n], out y: f32[n], out z: i16[n], out b: bool[n], out h: bf16[n]) {\n"
     "  const t: f32[4] = [1.5, -2.0, inf, 0.25];\n"
     "  const k: i16[2, 2] = [1, -2, 3, -32768];\n"
     "  parallel i in 0..n { const w: bool[3] = [true, false, true];\n"
     "    const q: bf16[2] = [1.5, -3.0];\n"
     "    y[i] = t[x[i] % 4]; z[i] = k[x[i] % 2, i % 2]; b[i] = w[i % 3]; h[i] = q[i % 2]; } }\n",
     .tolerance = 0},
    {"views",
     "func f(x: f32[n, 8], inout y: f32[4 * n], out z: f32[n, 4]) {\n"
     "  parallel i in 0..n { view row: f32[8] = x[i, 0]; view half: f32[4] = row[4];\n"
     "    view out4: f32[4] = y[4 * i];\n"
     "    for j in 0..4 { out4[j] = out4[j] + half[j] * row[j]; }\n"
     "    view pairs: f32[2, 2] strides [1, 2] = y[4 * i];\n"
     "    for a in 0..2 { for b in 0..2 { z[i, 2 * a + b] = pairs[a, b]; } } } }\n",
     .has_plain_values = true},
    {"workspace",
     "func f(x: f32[n, m], out y: f32[n, m]) {\n"
     "  alloc mean: f32[m] in global; alloc other: i32[n, 3] in global;\n"
     "  parallel j in 0..m { mean[j] = max i in 0..n { x[i, j] }; }\n"
     "  parallel i in 0..n { other[i, 1] = i32(i); }\n"
     "  parallel i in 0..n { for j in 0..m { y[i, j] = x[i, j] - mean[j] + f32(other[i, 1]); } } "
     "}\n",
     .tolerance = 0},
    {"captures",
     "func f(a: i32, x: i32[n], out y: i32[n], out z: i32[n]) {\n"
     "  let s = sum i in 0..n { x[i] }; let p = s > 0; let h = f32(s) * 0.5;\n"
     "  alloc t: i32[4] in local; t[2] = s + a;\n"
     "  parallel i in 0..n { y[i] = p ? s + x[i] : t[2]; }\n"
     "  parallel i in 1..n { z[i] = i32(h) + a; }\n"
     "  for i in 0..(n < 1 ? n : 1) { z[i] = 0; } }\n",
     .has_plain_values = true},
    {"atomics",
     "func f(x: i32[n], inout s: i32[8], inout w: u64[4], inout h: f64[1], inout g: f32[1],\n"
     "       inout c: i64[2], out old: i32[n]) {\n"
     "  for i in 0..n { let a = atomic_add(s[0], x[i]); old[i] = a;\n"
     "    atomic_min(s[1], x[i]); atomic_max(s[2], x[i]); atomic_and(s[3], x[i]);\n"
     "    atomic_or(s[4], x[i]); atomic_xor(s[5], x[i]); atomic_exchange(s[6], x[i]);\n"
     "    let q = atomic_cas(s[7], s[7], x[i]); atomic_add(w[i % 4], 3); atomic_max(w[0], 9);\n"
     "    atomic_add(h[0], 0.5); atomic_add(g[0], 0.25); atomic_cas(c[i % 2], 0, i); } }\n",
     .has_plain_values = true},
    {"small atomics",
     "func f(x: f32[n], inout h: f16[2], inout g: bf16[2], inout s: f32[4], inout b: i8[4],\n"
     "       inout w: u16[2], out old: f32[n]) {\n"
     "  for i in 0..n { let o = atomic_add(h[0], f16(x[i])); old[i] = f32(o);\n"
     "    atomic_max(h[1], f16(x[i])); atomic_add(g[0], bf16(x[i])); atomic_min(g[1], "
     "bf16(x[i]));\n"
     "    atomic_min(s[0], x[i]); atomic_max(s[1], x[i]); atomic_exchange(s[2], x[i]);\n"
     "    atomic_add(b[0], i8(i)); atomic_min(b[1], i8(i)); atomic_cas(b[2], b[2], i8(i));\n"
     "    atomic_xor(w[0], u16(i)); atomic_max(w[1], u16(i)); } }\n",
     .has_plain_values = true},
    {"order",
     "func f(x: f32[n], inout y: f32[4], inout z: u8[4]) {\n"
     "  block.x b in 0..1 { thread.x t in 0..1 {\n"
     "    y[1] = 1.0; atomic_store(z[1], 2); fence;\n"
     "    let f = atomic_load(z[1]); let g = atomic_load(y[1]);\n"
     "    atomic_store(y[2], g + f32(f)); } } }\n",
     .has_plain_values = true},
    {"blocks",
     "func f(x: f32[n, m], out y: f32[m, n]) {\n"
     "  block.y by in 0..ceildiv(n, 8) { block.x bx in 0..ceildiv(m, 8) {\n"
     "    alloc tile: f32[8, 9] in shared;\n"
     "    thread.y ty in 0..8 { thread.x tx in 0..8 {\n"
     "      let i = by * 8 + ty; let j = bx * 8 + tx;\n"
     "      if i < n && j < m { tile[ty, tx] = x[i, j]; } barrier;\n"
     "      let p = bx * 8 + ty; let q = by * 8 + tx;\n"
     "      if p < m && q < n { y[p, q] = tile[tx, ty]; } } } } } }\n",
     .has_barriers = true},
    {"launches in loops",
     "func f(x: f32[n], inout y: f32[n], inout z: f32[n], m: i64) { alloc w: f32[n] in global;\n"
     "  for s in 0..3 { let half = f32(s) * 0.5; alloc c: f32[2] in local; c[0] = half + 1.0;\n"
     "    let q = n > 0 ? z[0] : half;\n"
     "    parallel i in 0..n { w[i] = x[i] * c[0] + q; }\n"
     "    if s > 0 { parallel i in 0..n { y[i] = w[n - 1 - i] + half; } }\n"
     "    parallel i in 0..n { z[i] = z[i] * 0.25 + y[i]; } }\n"
     "  alloc k: i32[] in local; k[] = 0;\n"
     "  while k[] < 2 { parallel i in 0..n { z[i] = z[i] + f32(k[]); } k[] = k[] + 1; }\n"
     "  if n > 5 { parallel i in 0..n { y[i] = y[i] + z[n - 1 - i]; } } }\n",
     .has_plain_values = true, .tolerance = 1e-5},
    {"exchanges",
     "func f(x: f32[n], y: i32[n], out a: f32[n], out b: i32[n], out c: f32[ceildiv(n, 40)]) {\n"
     "  block.x blk in 0..ceildiv(n, 40) { thread.x t in 0..40 { let i = blk * 40 + t;\n"
     "    let v = i < n ? x[i] : 0.0; let w = i < n ? y[i] : 7;\n"
     "    let near = shuffle_up(w, 1) ^ shuffle_down(w, 3) ^ shuffle_xor(w, 5) ^ shuffle(w, 9);\n"
     "    let all = block_max(v) - warp_min(v) + (sum k in 0..2 { shuffle_xor(v, k) });\n"
     "    if i < n { a[i] = all; b[i] = near; }\n"
     "    if t == 0 { c[blk] = v; } } } }\n"
     "func g(x: i32[n], out y: i32[n]) { thread.x t in 0..8 { let s = block_sum(i32(t)) + 1;\n"
     "  for i in 0..ceildiv(n - t, 8) { y[i * 8 + t] = x[i * 8 + t] + s; } } }\n",
     .has_plain_values = true, .tolerance = 1e-5, .has_barriers = true},
    {"asserts that hold",
     "func f(x: i32[n], out y: i32[n]) { assert n < 1000000, \"too long\";\n"
     "  parallel i in 0..n { assert x[i] == x[i]; y[i] = x[i]; } }\n",
     .tolerance = 0},
    {"fast",
     "func f(x: f32[n, m], out y: f32[n]) fast {\n"
     "  parallel i in 0..n { y[i] = (sum j in 0..m { x[i, j] * 3.0 }) / 7.0; } }\n",
     .tolerance = 1e-3, .has_plain_values = true},
};

static void run_example(const char* name, double tolerance) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/examples/ir/%s.qn", QN_SOURCE_DIR, name);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  static char text[1 << 16];
  size_t size = fread(text, 1, sizeof text - 1, file);
  text[size] = '\0';
  assert_int_equal(fclose(file), 0);
  bool has_barriers = strstr(text, "barrier") != NULL;
  program_t program = {name, text, tolerance, true, has_barriers};
  void* state = &program;
  run_program(&state);
}

static void test_saxpy(void** state) {
  (void)state;
  run_example("saxpy", 0);
}
static void test_softmax(void** state) {
  (void)state;
  run_example("softmax", 1e-5);
}
static void test_matmul(void** state) {
  (void)state;
  run_example("matmul_tile", 1e-3);
}
static void test_transpose(void** state) {
  (void)state;
  run_example("transpose_shared", 0);
}
static void test_block_norm(void** state) {
  (void)state;
  run_example("block_norm", 1e-3);
}
static void test_two_launches(void** state) {
  (void)state;
  run_example("two_launches", 1e-4);
}

// The passes leave none; the emitter says so where they did not run.
static void test_exchanges_need_the_passes(void** state) {
  (void)state;
  qn_module_t* module = parse_or_die(
      "func f(x: f32[n], out y: f32[n]) { block.x b in 0..ceildiv(n, 32) {\n"
      "  thread.x t in 0..32 { let s = warp_sum(b * 32 + t < n ? x[b * 32 + t] : 0.0);\n"
      "    if b * 32 + t < n { y[b * 32 + t] = s; } } } }\n");
  qn_status_t error;
  build_t build = {.cpu = "x86-64", .is_raw = true};
  assert_null(kernels_create(module, build, false, &error));
  assert_int_equal(qn_status_code(error), QN_STATUS_UNSUPPORTED);
  assert_non_null(strstr(qn_status_message(error), "function 'f': 'warp_sum' is left"));
  qn_status_free(error);
  build.is_raw = false;
  kernels_t* kernels = kernels_create(module, build, false, &error);
  assert_non_null(kernels);
  kernels_destroy(kernels);
  qn_module_release(module);
}

static bool is_same_narrow(qn_dtype_t dtype, uint16_t want, uint16_t have) {
  double x = qn__scalar_from_bits(dtype, want).f;
  double y = qn__scalar_from_bits(dtype, have).f;
  return want == have || (x != x && y != y);
}

// Every f16 and bf16 widened, and f32 around every value and every midpoint rounded.
static void check_narrow(build_t build, qn_dtype_t dtype, uint32_t cut_bits) {
  enum { PATTERNS = 1 << 16, AROUND = 7, COUNT = PATTERNS * AROUND };
  char text[512];
  (void)snprintf(text, sizeof text,
                 "func f(x: %s[k], y: f32[n], out a: f32[k], out b: %s[n], out c: %s[k]) {\n"
                 "  parallel i in 0..k { a[i] = f32(x[i]); c[i] = -x[i]; }\n"
                 "  parallel i in 0..n { b[i] = %s(y[i]); } }\n",
                 qn_dtype_text(dtype), qn_dtype_text(dtype), qn_dtype_text(dtype),
                 qn_dtype_text(dtype));
  qn_module_t* module = parse_or_die(text);
  qn_status_t error;
  kernels_t* kernels = kernels_create(module, build, false, &error);
  if (!kernels) fail_msg("%s", qn_status_message(error));
  uint16_t* x = calloc(PATTERNS, sizeof *x);
  float* a = calloc(PATTERNS, sizeof *a);
  uint16_t* c = calloc(PATTERNS, sizeof *c);
  uint32_t* y = calloc(COUNT, sizeof *y);
  uint16_t* b = calloc(COUNT, sizeof *b);
  const uint32_t half = UINT32_C(1) << (cut_bits - 1);
  const uint32_t steps[AROUND] = {0, 1, half - 1, half, half + 1, 2 * half - 1, UINT32_MAX};
  for (uint32_t i = 0; i < PATTERNS; ++i) {
    x[i] = (uint16_t)i;
    qn__ir_scalar_t value = qn__scalar_from_bits(dtype, i);
    uint32_t bits = (uint32_t)qn__scalar_to_bits(QN_DTYPE_F32, value);
    for (uint32_t k = 0; k < AROUND; ++k) y[AROUND * i + k] = bits + steps[k];
  }
  uint64_t words[] = {(uint64_t)(uintptr_t)x,
                      (uint64_t)(uintptr_t)y,
                      (uint64_t)(uintptr_t)a,
                      (uint64_t)(uintptr_t)b,
                      (uint64_t)(uintptr_t)c,
                      PATTERNS,
                      COUNT};
  assert_int_equal(kernels_run(kernels, 0, words, 3, 0).result, 0);
  for (uint32_t i = 0; i < PATTERNS; ++i) {
    double want = qn__scalar_from_bits(dtype, i).f;
    double have = (double)a[i];
    if (want != have && (want == want || have == have)) fail_msg("%#x widens to %a", i, have);
    if (!is_same_narrow(dtype, x[i] ^ 0x8000, c[i])) fail_msg("-%#x gives %#x", i, c[i]);
  }
  for (uint32_t i = 0; i < COUNT; ++i) {
    double value = qn__round_float(dtype, qn__scalar_from_bits(QN_DTYPE_F32, y[i]).f);
    uint16_t want = (uint16_t)qn__scalar_to_bits(dtype, (qn__ir_scalar_t){.f = value});
    if (!is_same_narrow(dtype, want, b[i])) {
      fail_msg("%s of f32 %#x: want %#x, have %#x", qn_dtype_text(dtype), y[i], want, b[i]);
    }
  }
  free(x), free(a), free(c), free(y), free(b);
  kernels_destroy(kernels);
  qn_module_release(module);
}

static void test_narrow_floats(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(cpus); ++i) {
    if (!build_can_run(cpus[i])) continue;
    for (int is_fast = 0; is_fast < 2; ++is_fast) {
      build_t build = {.cpu = cpus[i], .is_fast = is_fast != 0};
      check_narrow(build, QN_DTYPE_F16, 13);
      check_narrow(build, QN_DTYPE_BF16, 16);
    }
  }
}

// Of f64 all that may be rounded twice, and of integers of 32 and 64 bits; in lanes and alone.
static void check_rounded_once(build_t build, qn_test_source_t source, bool is_bf16) {
  static const char* const sources[] = {"f64", "i32", "u32", "i64", "u64"};
  const char* from = sources[source];
  const char* to = is_bf16 ? "bf16" : "f16";
  char text[256];
  (void)snprintf(text, sizeof text,
                 "func f(x: %s[n], out y: %s[n]) { parallel i in 0..n { y[i] = %s(x[i]); } }", from,
                 to, to);
  qn_module_t* module = parse_or_die(text);
  qn_status_t error;
  kernels_t* kernels = kernels_create(module, build, false, &error);
  if (!kernels) fail_msg("%s", qn_status_message(error));
  size_t count = 0;
  qn_test_rounding_t* cases = qn_test_rounding_cases(source, is_bf16, &count);
  assert_non_null(cases);
  bool is_32 = source == QN_TEST_FROM_I32 || source == QN_TEST_FROM_U32;
  uint64_t* x = calloc(count, sizeof *x);
  uint16_t* y = calloc(count, sizeof *y);
  assert_true(x && y);
  for (size_t i = 0; i < count; ++i) {
    uint32_t half = (uint32_t)cases[i].from;
    memcpy((char*)x + i * (is_32 ? 4 : 8), is_32 ? (void*)&half : (void*)&cases[i].from,
           is_32 ? 4 : 8);
  }
  uint64_t words[] = {(uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)y, count};
  assert_int_equal(kernels_run(kernels, 0, words, 3, 0).result, 0);
  for (size_t i = 0; i < count; ++i) {
    if (qn_test_rounding_is_right(&cases[i], is_bf16, y[i])) continue;
    fail_msg("%s: %s of %s %#llx is %#x, not %#x", build.cpu, to, from,
             (unsigned long long)cases[i].from, y[i], cases[i].to);
  }
  free(x), free(y), free(cases);
  kernels_destroy(kernels);
  qn_module_release(module);
}

static void test_rounded_once(void** state) {
  (void)state;
  static const char* const all[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "native"};
  for (size_t i = 0; i < 3 * QN_COUNT_OF(all); ++i) {
    build_t build = {.cpu = all[i / 3], .is_fast = i % 3 == 1, .is_scalar = i % 3 == 2};
    if (!build_can_run(build.cpu)) continue;
    check_rounded_once(build, QN_TEST_FROM_F64, false);
    for (int s = QN_TEST_FROM_F64; s <= QN_TEST_FROM_U64; ++s) {
      check_rounded_once(build, (qn_test_source_t)s, true);
    }
  }
}

// Equal modules give equal text, whatever else was compiled before.
static void test_deterministic(void** state) {
  (void)state;
  char* first = NULL;
  for (int i = 0; i < 3; ++i) {
    qn_module_t* module = parse_or_die(programs[2].text);
    void* noise = malloc((size_t)1000 * (size_t)(i + 1));
    qn_status_t error;
    kernels_t* kernels = kernels_create(module, (build_t){.cpu = "x86-64-v3"}, true, &error);
    assert_non_null(kernels);
    if (!first) {
      first = strdup(kernels->llvm_text);
    } else {
      assert_string_equal(first, kernels->llvm_text);
    }
    kernels_destroy(kernels);
    free(noise);
    qn_module_release(module);
  }
  free(first);
}

int main(int argc, char** argv) {
  enum { OTHERS = 9 };
  struct CMUnitTest tests[QN_COUNT_OF(programs) + OTHERS] = {
      cmocka_unit_test(test_saxpy),
      cmocka_unit_test(test_softmax),
      cmocka_unit_test(test_matmul),
      cmocka_unit_test(test_transpose),
      cmocka_unit_test(test_two_launches),
      cmocka_unit_test(test_block_norm),
      cmocka_unit_test(test_exchanges_need_the_passes),
      cmocka_unit_test(test_deterministic),
      cmocka_unit_test(test_narrow_floats),
      cmocka_unit_test(test_rounded_once)};
  static program_t copies[QN_COUNT_OF(programs)];
  memcpy(copies, programs, sizeof copies);
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    tests[OTHERS + i] = (struct CMUnitTest){
        .name = programs[i].name, .test_func = run_program, .initial_state = &copies[i]};
  }
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
