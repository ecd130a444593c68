// SPDX-License-Identifier: Apache-2.0
// tests/support/gpu_programs.c: see gpu_programs.h.
#include "tests/support/gpu_programs.h"

#include <stdio.h>

#include "quern/ir.h"

// ---- dtypes

typedef struct dtype_row {
  const char* name;
  int bytes;
  char kind;  // b i u f
} dtype_row_t;

static const dtype_row_t dtypes[] = {
    {"bool", 1, 'b'}, {"i8", 1, 'i'},  {"i16", 2, 'i'}, {"i32", 4, 'i'}, {"i64", 8, 'i'},
    {"u8", 1, 'u'},   {"u16", 2, 'u'}, {"u32", 4, 'u'}, {"u64", 8, 'u'}, {"f16", 2, 'f'},
    {"bf16", 2, 'f'}, {"f32", 4, 'f'}, {"f64", 8, 'f'}};

static bool is_one_of(const dtype_row_t* dtype, const char* kinds) {
  return strchr(kinds, dtype->kind) != NULL;
}

// ---- operators

typedef struct op_row {
  const char* name;
  const char* form;  // of a[i], b[i], c[i]
  const char* kinds;
  const char* result;  // NULL: that of the operands
} op_row_t;

static const op_row_t ops[] = {
    {"add", "a[i] + b[i]", "iuf", NULL},
    {"sub", "a[i] - b[i]", "iuf", NULL},
    {"mul", "a[i] * b[i]", "iuf", NULL},
    {"div", "a[i] / b[i]", "f", NULL},
    {"floordiv", "a[i] // b[i]", "iu", NULL},
    {"floormod", "a[i] % b[i]", "iu", NULL},
    {"truncdiv", "truncdiv(a[i], b[i])", "iu", NULL},
    {"truncmod", "truncmod(a[i], b[i])", "iu", NULL},
    {"ceildiv", "ceildiv(a[i], b[i])", "iu", NULL},
    {"by_power", "a[i] // 8 + a[i] % 8", "iu", NULL},
    {"by_seven", "a[i] // 7 + a[i] % 7 + truncdiv(a[i], 7) + truncmod(a[i], 7)", "iu", NULL},
    {"min", "min(a[i], b[i])", "iuf", NULL},
    {"max", "max(a[i], b[i])", "iuf", NULL},
    {"neg", "-a[i]", "iuf", NULL},
    {"abs", "abs(a[i])", "iuf", NULL},
    {"and", "a[i] & b[i]", "biu", NULL},
    {"or", "a[i] | b[i]", "biu", NULL},
    {"xor", "a[i] ^ b[i]", "biu", NULL},
    {"not", "~a[i]", "biu", NULL},
    {"shl", "a[i] << b[i]", "iu", NULL},
    {"shr", "a[i] >> b[i]", "iu", NULL},
    {"shl_three", "(a[i] << 3) + (a[i] >> 3)", "iu", NULL},
    {"popcount", "popcount(a[i])", "iu", NULL},
    {"clz", "clz(a[i])", "iu", NULL},
    {"ctz", "ctz(a[i])", "iu", NULL},
    {"mulhi", "mulhi(a[i], b[i])", "iu", NULL},
    {"rotl", "rotl(a[i], b[i])", "iu", NULL},
    {"eq", "a[i] == b[i]", "biuf", "bool"},
    {"ne", "a[i] != b[i]", "biuf", "bool"},
    {"lt", "a[i] < b[i]", "biuf", "bool"},
    {"le", "a[i] <= b[i]", "biuf", "bool"},
    {"gt", "a[i] > b[i]", "biuf", "bool"},
    {"ge", "a[i] >= b[i]", "biuf", "bool"},
    {"logic", "a[i] && b[i] || !c[i]", "b", NULL},
    {"select", "select(a[i] == b[i], a[i], c[i])", "biuf", NULL},
    {"cond", "a[i] == b[i] ? a[i] : c[i]", "biuf", NULL},
    {"fma", "fma(a[i], b[i], c[i])", "f", NULL},
    {"sqrt", "sqrt(a[i])", "f", NULL},
    {"rsqrt", "rsqrt(a[i])", "f", NULL},
    {"exp", "exp(a[i])", "f", NULL},
    {"exp2", "exp2(a[i])", "f", NULL},
    {"log", "log(a[i])", "f", NULL},
    {"log2", "log2(a[i])", "f", NULL},
    {"tanh", "tanh(a[i])", "f", NULL},
    {"erf", "erf(a[i])", "f", NULL},
    {"sin", "sin(a[i])", "f", NULL},
    {"cos", "cos(a[i])", "f", NULL},
    {"pow", "pow(a[i], b[i])", "f", NULL},
    {"floor", "floor(a[i])", "f", NULL},
    {"ceil", "ceil(a[i])", "f", NULL},
    {"round", "round(a[i])", "f", NULL},
    {"trunc", "trunc(a[i])", "f", NULL},
    {"copysign", "copysign(a[i], b[i])", "f", NULL},
    {"roundeven", "roundeven(a[i])", "f", NULL},
    {"exp10", "exp10(a[i])", "f", NULL},
    {"expm1", "expm1(a[i])", "f", NULL},
    {"sigmoid", "sigmoid(a[i])", "f", NULL},
    {"sinh", "sinh(a[i])", "f", NULL},
    {"cosh", "cosh(a[i])", "f", NULL},
    {"log10", "log10(a[i])", "f", NULL},
    {"log1p", "log1p(a[i])", "f", NULL},
    {"asinh", "asinh(a[i])", "f", NULL},
    {"acosh", "acosh(a[i])", "f", NULL},
    {"atanh", "atanh(a[i])", "f", NULL},
    {"tan", "tan(a[i])", "f", NULL},
    {"asin", "asin(a[i])", "f", NULL},
    {"acos", "acos(a[i])", "f", NULL},
    {"atan", "atan(a[i])", "f", NULL},
    {"atan2", "atan2(a[i], b[i])", "f", NULL},
    {"hypot", "hypot(a[i], b[i])", "f", NULL},
    {"cbrt", "cbrt(a[i])", "f", NULL},
    {"fmod", "fmod(a[i], b[i])", "f", NULL},
    {"ldexp", "ldexp(a[i], i32(b[i]))", "f", NULL},
    {"nextafter", "nextafter(a[i], b[i])", "f", NULL},
    {"isnan", "isnan(a[i])", "f", "bool"},
    {"isinf", "isinf(a[i])", "f", "bool"},
    {"isfinite", "isfinite(a[i])", "f", "bool"},
};

// A compiler needs time for each kernel, however small: one of them holds many operators of a
// dtype.
enum { MAX_TOGETHER = 16 };

static void put_ops_of(const dtype_row_t* dtype, const op_row_t* const* rows, size_t count,
                       size_t number, qn__buffer_t* out) {
  const char* t = dtype->name;
  qn__buffer_format(out, "func ops_%s_%zu(a: %s[n], b: %s[n], c: %s[n]", t, number, t, t, t);
  for (size_t k = 0; k < count; k++) {
    const char* result = rows[k]->result ? rows[k]->result : t;
    qn__buffer_format(out, ",\n    out %s_y: %s[n]", rows[k]->name, result);
  }
  qn__buffer_format(out, ") {\n  parallel i in 0..n {\n");
  for (size_t k = 0; k < count; k++) {
    qn__buffer_format(out, "    %s_y[i] = %s;\n", rows[k]->name, rows[k]->form);
  }
  qn__buffer_format(out, "  }\n}\n");
}

static void put_ops(qn__buffer_t* out) {
  for (size_t d = 0; d < QN_COUNT_OF(dtypes); d++) {
    const op_row_t* rows[MAX_TOGETHER];
    size_t count = 0, number = 0;
    for (size_t o = 0; o < QN_COUNT_OF(ops); o++) {
      if (is_one_of(&dtypes[d], ops[o].kinds)) rows[count++] = &ops[o];
      if (count < MAX_TOGETHER && (o + 1 < QN_COUNT_OF(ops) || count == 0)) continue;
      put_ops_of(&dtypes[d], rows, count, number++, out);
      count = 0;
    }
  }
}

static bool has_bits(const dtype_row_t* from, const dtype_row_t* to) {
  return from->bytes == to->bytes && from->kind != 'b' && to->kind != 'b';
}

static void put_casts(qn__buffer_t* out) {
  for (size_t f = 0; f < QN_COUNT_OF(dtypes); f++) {
    const char* from = dtypes[f].name;
    qn__buffer_format(out, "func casts_%s(a: %s[n]", from, from);
    for (size_t t = 0; t < QN_COUNT_OF(dtypes); t++) {
      const char* to = dtypes[t].name;
      qn__buffer_format(out, ",\n    out y_%s: %s[n]", to, to);
      if (has_bits(&dtypes[f], &dtypes[t])) {
        qn__buffer_format(out, ", out bits_%s: %s[n]", to, to);
      }
    }
    qn__buffer_format(out, ") {\n  parallel i in 0..n {\n");
    for (size_t t = 0; t < QN_COUNT_OF(dtypes); t++) {
      const char* to = dtypes[t].name;
      qn__buffer_format(out, "    y_%s[i] = %s(a[i]);\n", to, to);
      if (has_bits(&dtypes[f], &dtypes[t])) {
        qn__buffer_format(out, "    bits_%s[i] = bitcast(%s, a[i]);\n", to, to);
      }
    }
    qn__buffer_format(out, "  }\n}\n");
  }
}

static void put_reductions(qn__buffer_t* out) {
  static const char* const kinds[] = {"sum", "prod", "min", "max"};
  for (size_t k = 0; k < QN_COUNT_OF(kinds); k++) {
    for (size_t d = 0; d < QN_COUNT_OF(dtypes); d++) {
      const char* t = dtypes[d].name;
      if (dtypes[d].kind == 'b') continue;
      qn__buffer_format(out,
                        "func reduce_%s_%s(a: %s[n, m], out y: %s[n]) {\n"
                        "  parallel i in 0..n { y[i] = %s j in 0..m { a[i, j] }; }\n}\n",
                        kinds[k], t, t, t, kinds[k]);
    }
  }
}

static void put_memory(qn__buffer_t* out) {
  for (size_t d = 0; d < QN_COUNT_OF(dtypes); d++) {
    const char* t = dtypes[d].name;
    const char* literals = dtypes[d].kind == 'b'   ? "true, false"
                           : dtypes[d].kind == 'f' ? "1.5, -inf"
                                                   : "1, 2";
    qn__buffer_format(out,
                      "func table_%s(out y: %s[n]) {\n"
                      "  parallel i in 0..n { const c: %s[2] = [%s]; y[i] = c[i %% 2]; }\n}\n",
                      t, t, t, literals);
    qn__buffer_format(out,
                      "func local_%s(a: %s[n], out y: %s[n]) {\n"
                      "  parallel i in 0..n {\n"
                      "    alloc l: %s[4] in local;\n"
                      "    for k in 0..4 { l[k] = a[i]; }\n"
                      "    y[i] = l[i %% 4];\n  }\n}\n",
                      t, t, t, t);
    qn__buffer_format(out,
                      "func scalar_%s(s: %s, out y: %s[n]) {\n"
                      "  parallel i in 0..n { y[i] = s; }\n}\n",
                      t, t, t);
  }
}

static void put_atomics(qn__buffer_t* out) {
  static const char* const names[] = {"add", "min", "max", "and", "or", "xor", "exchange", "cas"};
  static const char* const types[] = {"i8",  "u8",  "i16", "u16",  "i32", "u32",
                                      "i64", "u64", "f16", "bf16", "f32", "f64"};
  for (size_t k = 0; k < QN_COUNT_OF(names); k++) {
    for (size_t t = 0; t < QN_COUNT_OF(types); t++) {
      bool is_float = types[t][0] == 'f' || types[t][0] == 'b';
      if (is_float && ((k > 2 && k < 6) || k == 7)) continue;
      bool is_cas = strcmp(names[k], "cas") == 0;
      qn__buffer_format(out,
                        "func atomic_%s_%s(a: %s[n], inout y: %s[n]) {\n"
                        "  parallel i in 0..n {\n"
                        "    let o = atomic_%s(y[i %% 3], a[i]%s);\n"
                        "    atomic_%s(y[0], o%s);\n  }\n}\n",
                        names[k], types[t], types[t], types[t], names[k], is_cas ? ", a[0]" : "",
                        names[k], is_cas ? ", o" : "");
    }
  }
}

void qn_test_programs_of_operators(qn__buffer_t* out) {
  put_ops(out);
  put_casts(out);
  put_reductions(out);
  put_memory(out);
  put_atomics(out);
}

// ---- threads

void qn_test_programs_of_threads(int threads, qn__buffer_t* out) {
  static const char* const shuffles[] = {"shuffle", "shuffle_up", "shuffle_down", "shuffle_xor"};
  static const char* const groups[] = {"warp_sum",  "warp_min",  "warp_max",
                                       "block_sum", "block_min", "block_max"};
  for (size_t d = 0; d < QN_COUNT_OF(dtypes); d++) {
    const char* t = dtypes[d].name;
    for (size_t k = 0; k < QN_COUNT_OF(shuffles); k++) {
      qn__buffer_format(out,
                        "func %s_%s(x: %s[n, %d], d: i64[n], out y: %s[n, %d]) {\n"
                        "  block.x b in 0..n { thread.x t in 0..%d {\n"
                        "    let near = %s(x[b, t], 5);\n"
                        "    let far = %s(near, d[b]);\n"
                        "    y[b, t] = far;\n  } }\n}\n",
                        shuffles[k], t, t, threads, t, threads, threads, shuffles[k], shuffles[k]);
    }
    qn__buffer_format(out,
                      "func shared_%s(x: %s[n, %d], out y: %s[n, %d]) {\n"
                      "  block.x b in 0..n {\n"
                      "    alloc s: %s[%d] in shared;\n"
                      "    thread.x t in 0..%d { s[t] = x[b, t]; barrier; y[b, t] = s[%d - t]; }\n"
                      "  }\n}\n",
                      t, t, threads, t, threads, t, threads, threads, threads - 1);
    if (dtypes[d].kind == 'b') continue;
    for (size_t k = 0; k < QN_COUNT_OF(groups); k++) {
      qn__buffer_format(out,
                        "func %s_%s(x: %s[n, %d], out y: %s[n, %d]) {\n"
                        "  block.x b in 0..n { thread.x t in 0..%d {\n"
                        "    y[b, t] = %s(x[b, t]);\n  } }\n}\n",
                        groups[k], t, t, threads, t, threads, threads, groups[k]);
    }
  }
}

// ---- constructs

static const char constructs[] =
    "func lazy(a: bool[n], k: i64[n], x: f32[m], w: i32[n], out y: f32[n], out z: bool[n]) {\n"
    "  parallel i in 0..n {\n"
    "    y[i] = a[i] ? (sum j in 0..k[i] { x[j] }) : (w[i] > 0 ? x[w[i]] : 2.0);\n"
    "    z[i] = (a[i] && (max j in 0..m { x[j] }) > 1.0) || x[k[i]] < 0.0 && 5 // w[i] > 2;\n"
    "  }\n"
    "}\n"
    "func views(x: f32[n, m], idx: i64[4], inout y: f32[n, m]) {\n"
    "  parallel i in 0..n {\n"
    "    view r: f32[m] = x[i, 0];\n"
    "    view d: f32[2, 3] strides [m + 1, 0] = y[idx[i % 4], 1];\n"
    "    view dd: f32[3] strides [1] = d[1, 0];\n"
    "    for j in 0..m { d[1, 2] = r[j]; y[i, j] = dd[2] + r[m - 1 - j]; }\n"
    "  }\n"
    "}\n"
    "func strided(x: f32[n, m] strides [s, 1], y: f32[n] strides [t], out z: f32[n]) {\n"
    "  parallel i in 0..n { z[i] = x[i, 0] + y[i]; }\n"
    "}\n"
    "func nested(x: f32[a, b, c, d], out y: f32[a, b, c, d]) {\n"
    "  parallel i in 0..a { parallel j in 0..b { parallel k in 0..c { for l in 0..d {\n"
    "    y[i, j, k, l] = x[i, j, k, l];\n"
    "  } } } }\n"
    "}\n"
    "func loops(x: i32[n], out y: i32[n]) {\n"
    "  parallel i in 0..n {\n"
    "    alloc v: i32[] in local;\n"
    "    alloc c: i64[] in local;\n"
    "    v[] = x[i];\n"
    "    c[] = 0;\n"
    "    while v[] > 1 && c[] < 1000 {\n"
    "      v[] = v[] % 2 == 0 ? v[] // 2 : 3 * v[] + 1;\n"
    "      c[] = c[] + 1;\n"
    "    }\n"
    "    while (sum j in 0..3 { v[] }) > 100 { v[] = v[] - 1; }\n"
    "    unroll u in 0..40 { v[] = v[] + i32(u); }\n"
    "    y[i] = v[];\n"
    "  }\n"
    "}\n"
    "func contracted(a: f32[n], b: f64[n], inout c: f32[n]) fast {\n"
    "  parallel i in 0..n {\n"
    "    c[i] = a[i] * c[i] + c[i] - a[i] * c[i] + (sum k in 0..n { a[k] * a[k] });\n"
    "    c[i] = f32(b[i] * b[0] - b[1]);\n"
    "  }\n"
    "}\n"
    "func big(x: f32[n], out y: f32[n]) {\n"
    "  block.x b in 0..(n // 256) {\n"
    "    alloc s: f32[20000] in shared;\n"
    "    alloc q: f64[10] in shared;\n"
    "    thread.x t in 0..256 {\n"
    "      s[t * 10] = x[b * 256 + t];\n"
    "      if t == 0 { q[0] = 1.0; }\n"
    "      barrier;\n"
    "      y[b * 256 + t] = s[(255 - t) * 10] + f32(q[0]);\n"
    "    }\n"
    "  }\n"
    "}\n"
    "func grid(x: f32[a, b, c], out y: f32[a, b, c]) {\n"
    "  block.z k in 0..a { block.y j in 0..b { block.x i in 0..(c // 8) {\n"
    "    thread.y u in 0..2 { thread.x t in 0..4 {\n"
    "      y[k, j, i * 8 + u * 4 + t] = x[k, j, i * 8 + u * 4 + t];\n"
    "    } }\n"
    "  } } }\n"
    "}\n"
    "func literals(out y: f64[8], out z: f32[8], out w: i64[4], out u: u64[2], out h: f16[4]) {\n"
    "  parallel i in 0..1 {\n"
    "    y[0] = nan; y[1] = inf; y[2] = -inf; y[3] = 5e-324; y[4] = -0.0; y[5] = 1e300;\n"
    "    y[6] = 0.1; y[7] = -1.5;\n"
    "    z[0] = nan; z[1] = inf; z[2] = -inf; z[3] = 1e-45; z[4] = -0.0; z[5] = 1e30;\n"
    "    z[6] = 0.1; z[7] = 16777216.0;\n"
    "    w[0] = -9223372036854775808; w[1] = 9223372036854775807; w[2] = -1; w[3] = 4294967296;\n"
    "    u[0] = 18446744073709551615; u[1] = 0;\n"
    "    h[0] = 65504.0; h[1] = nan; h[2] = 6e-8; h[3] = inf;\n"
    "  }\n"
    "}\n"
    "func asserts(x: i32[n], out y: i32[n]) {\n"
    "  assert n < 1000000, \"too many\";\n"
    "  parallel i in 0..n {\n"
    "    assert x[i] > 0, \"positive \\\"quoted\\\" 100%\";\n"
    "    y[i] = 100 // x[i];\n"
    "  }\n"
    "}\n"
    "func workspace(x: f32[n, m], out y: f32[n]) {\n"
    "  alloc means: f32[n] in global;\n"
    "  parallel i in 0..n { means[i] = (sum j in 0..m { x[i, j] }) / f32(m); }\n"
    "  parallel i in 0..n { y[i] = means[i] - means[0]; }\n"
    "}\n"
    "func nothing(x: f32[n]) {\n"
    "  assert n > 0, \"empty\";\n"
    "}\n";

void qn_test_programs_of_constructs(qn__buffer_t* out) {
  qn__buffer_cstr(out, constructs);
}
