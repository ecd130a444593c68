// SPDX-License-Identifier: Apache-2.0
// conformance/dtypes.c: every dtype: storage, literals, conversions between all pairs, bits.
#include "conformance/elements.h"
#include "conformance/program.h"
#include "quern/ir.h"

// Returns the dtype that a program stores values of `dtype` as. Packed ones become bytes.
static const char* store_dtype(qn_dtype_t dtype) {
  return conf_is_packed(dtype) ? "u8" : qn_dtype_text(dtype);
}

static const char* store_value(conf_rows_t* rows, qn_dtype_t dtype, const char* value) {
  return conf_is_packed(dtype) ? conf_rows_text(rows, "u8(bitcast(u4, %s))", value) : value;
}

// Adds conversions between all pairs of dtypes, or bitcasts between those of equal size.
static void add_pairs(conf_rows_t* rows, bool is_bitcast) {
  for (qn_dtype_t from = 1; from < QN_DTYPE_COUNT; from++) {
    for (qn_dtype_t to = 1; to < QN_DTYPE_COUNT; to++) {
      // Not every byte is a bool.
      bool has_bitcast = qn_dtype_size_bits(from) == qn_dtype_size_bits(to) && from != to &&
                         from != QN_DTYPE_BOOL && to != QN_DTYPE_BOOL;
      if (is_bitcast && !has_bitcast) continue;
      const char *a = qn_dtype_text(from), *b = qn_dtype_text(to);
      const char* value = conf_rows_text(rows, is_bitcast ? "bitcast(%s, x[i])" : "%s(x[i])", b);
      const char* text = conf_rows_text(
          rows, "func %s_%s_%s(x: %s[n], out y: %s[n]) { parallel i in 0..n { y[i] = %s; } }",
          is_bitcast ? "bi" : "ca", a, b, a, store_dtype(to), store_value(rows, to, value));
      conf_rows_add(rows, is_bitcast ? "bitcast" : "conversion",
                    conf_rows_text(rows, "%s to %s", a, b), text, "bits:600 junk:600");
    }
  }
}

static const char* literal_of(qn_dtype_t dtype) {
  switch (dtype) {
    case QN_DTYPE_BOOL:
      return "true";
    case QN_DTYPE_I8:
      return "i8(-128)";
    case QN_DTYPE_I16:
      return "i16(-32768)";
    case QN_DTYPE_I32:
      return "i32(-2147483648)";
    case QN_DTYPE_I64:
      return "i64(-9223372036854775808)";
    case QN_DTYPE_U8:
      return "u8(255)";
    case QN_DTYPE_U16:
      return "u16(65535)";
    case QN_DTYPE_U32:
      return "u32(4294967295)";
    case QN_DTYPE_U64:
      return "u64(18446744073709551615)";
    case QN_DTYPE_I4:
      return "i4(-8)";
    case QN_DTYPE_U4:
      return "u4(15)";
    case QN_DTYPE_F4E2M1FN:
      return "f4e2m1fn(0.1)";
    default:
      return "0.1";
  }
}

static void add_packed(conf_rows_t* rows, qn_dtype_t dtype) {
  const char* t = qn_dtype_text(dtype);
  const char* value = store_value(rows, dtype, "x[i, m - 1 - j]");
  const char* text = conf_rows_text(rows,
                                    "func sg_%s(x: %s[n, m], out y: u8[n, m]) {\n"
                                    "  parallel i in 0..n { for j in 0..m { y[i, j] = %s; } } }",
                                    t, t, value);
  conf_rows_add(rows, "storage", t, text,
                "bits:19x50 junk:19x50;bits:1x2 junk:1x2;bits:3x0 junk:3x0");
  value = store_value(rows, dtype, conf_rows_text(rows, "t[i %% 4]"));
  text = conf_rows_text(rows,
                        "func lo_%s(x: u8[n], out y: u8[n]) { parallel i in 0..n {\n"
                        "  alloc t: %s[4] in local; view b: u8[2] = t[0];\n"
                        "  b[0] = x[i]; b[1] = x[n - 1 - i]; y[i] = %s; } }",
                        t, t, value);
  conf_rows_add(rows, "local memory", t, text, "bits:500 junk:500");
  value = conf_rows_text(rows, "(i %% 3 == 2 ? %s : %s(1))", literal_of(dtype), t);
  text = conf_rows_text(rows, "func li_%s(out y: u8[n]) { parallel i in 0..n { y[i] = %s; } }", t,
                        store_value(rows, dtype, value));
  conf_rows_add(rows, "literals", t, text, "junk:100");
}

static void add_plain(conf_rows_t* rows) {
  for (int d = 1; d < QN_DTYPE_COUNT; d++) {
    if (conf_is_packed((qn_dtype_t)d)) {
      add_packed(rows, (qn_dtype_t)d);
      continue;
    }
    const char* t = qn_dtype_text((qn_dtype_t)d);
    const char* text = conf_rows_text(rows,
                                      "func sg_%s(x: %s[n], out y: %s[n]) {\n"
                                      "  parallel i in 0..n { y[i] = x[n - 1 - i]; } }",
                                      t, t, t);
    const char* args = "bits:1001 junk:1001;bits:1 junk:1;bits:0 junk:0";
    conf_rows_add(rows, "storage", t, text, args);
    text = conf_rows_text(rows,
                          "func lo_%s(x: %s[n], out y: %s[n]) { parallel i in 0..n {\n"
                          "  alloc t: %s[3] in local; for k in 0..3 { t[k] = x[(i + k) %% n]; }\n"
                          "  y[i] = t[i %% 3]; } }",
                          t, t, t, t);
    conf_rows_add(rows, "local memory", t, text, "bits:500 junk:500");
    text = conf_rows_text(rows,
                          "func li_%s(out y: %s[n]) {\n"
                          "  const t: %s[2] = [%s, %s];\n"
                          "  parallel i in 0..n { y[i] = i %% 3 == 2 ? %s : t[i %% 3]; } }",
                          t, t, t, d == QN_DTYPE_BOOL ? "true" : "1",
                          d == QN_DTYPE_BOOL ? "false" : "2", literal_of((qn_dtype_t)d));
    conf_rows_add(rows, "literals", t, text, "junk:100");
  }
}

static const conf_program_t denormals[] = {
    {.feature = "denormal numbers",
     .variant = "f16",
     .text = "func dn_f16(x: u16[n], out y: u16[n]) { parallel i in 0..n {\n"
             "  y[i] = bitcast(u16, bitcast(f16, x[i] % 2048) * 0.5); } }",
     .args = "iota:2048 junk:2048"},
    {.feature = "denormal numbers",
     .variant = "bf16",
     .text = "func dn_bf16(x: u16[n], out y: u16[n]) { parallel i in 0..n {\n"
             "  y[i] = bitcast(u16, bitcast(bf16, x[i] % 512) * 0.5); } }",
     .args = "iota:512 junk:512"},
    {.feature = "denormal numbers",
     .variant = "f32",
     .text = "func dn_f32(x: u32[n], out y: u32[n]) { parallel i in 0..n {\n"
             "  y[i] = bitcast(u32, bitcast(f32, x[i] * 65537) * 0.5); } }",
     .args = "iota:512 junk:512"},
    {.feature = "denormal numbers",
     .variant = "f64",
     .text = "func dn_f64(x: u64[n], out y: u64[n]) { parallel i in 0..n {\n"
             "  y[i] = bitcast(u64, bitcast(f64, x[i] * 17592186044417) * 0.5); } }",
     .args = "iota:512 junk:512"},
};

// Makes values below, on and above the middle of two neighbours, by less than f32 can tell. bf16
// begins at the smallest normal number, since a device may flush the others.
static const conf_program_t roundings[] = {
    {.feature = "rounded once",
     .variant = "f64 to f16",
     .text = "func ro_f64_f16(x: u64[n], out y: f16[n], out z: f16[n]) { parallel i in 0..n {\n"
             "  let k = x[i] % 31743; let d = x[i] // 31743 - 1;\n"
             "  let m = (f64(bitcast(f16, u16(k))) + f64(bitcast(f16, u16(k + 1)))) * 0.5;\n"
             "  let v = bitcast(f64, bitcast(u64, m) + d);\n"
             "  y[i] = f16(v); z[i] = f16(-v); } }",
     .args = "iota:95229 junk:95229 junk:95229"},
    {.feature = "rounded once",
     .variant = "f64 to bf16",
     .text = "func ro_f64_bf16(x: u64[n], out y: bf16[n], out z: bf16[n]) { parallel i in 0..n {\n"
             "  let k = 128 + x[i] % 32511; let d = x[i] // 32511 - 1;\n"
             "  let m = (f64(bitcast(bf16, u16(k))) + f64(bitcast(bf16, u16(k + 1)))) * 0.5;\n"
             "  let v = bitcast(f64, bitcast(u64, m) + d);\n"
             "  y[i] = bf16(v); z[i] = bf16(-v); } }",
     .args = "iota:97533 junk:97533 junk:97533"},
    {.feature = "rounded once",
     .variant = "f64 beyond f16",
     .text = "func ro_f64_end(x: u64[n], out y: f16[n], out z: bf16[n]) { parallel i in 0..n {\n"
             "  let d = x[i] - 100;\n"
             "  y[i] = f16(bitcast(f64, bitcast(u64, f64(65520.0)) + d));\n"
             "  z[i] = bf16(bitcast(f64, u64(0x47EFF00000000000) + d)); } }",
     .args = "iota:200 junk:200 junk:200"},
    {.feature = "rounded once",
     .variant = "i64 to bf16",
     .text = "func ro_i64_bf16(x: i64[n], out y: bf16[n], out z: bf16[n]) { parallel i in 0..n {\n"
             "  let m = (128 + x[i] % 128) * 2 + 1; let k = x[i] // 128;\n"
             "  let v = (m << (k % 54)) + (k // 54 - 1);\n"
             "  y[i] = bf16(v); z[i] = bf16(-v); } }",
     .args = "iota:20736 junk:20736 junk:20736"},
    {.feature = "rounded once",
     .variant = "u64 to bf16",
     .text = "func ro_u64_bf16(x: u64[n], out y: bf16[n]) { parallel i in 0..n {\n"
             "  let m = (128 + x[i] % 128) * 2 + 1; let k = x[i] // 128;\n"
             "  y[i] = bf16((m << (k % 55)) + (k // 55 - 1)); } }",
     .args = "iota:21120 junk:21120"},
    {.feature = "rounded once",
     .variant = "i32 to bf16",
     .text = "func ro_i32_bf16(x: i32[n], out y: bf16[n], out z: bf16[n]) { parallel i in 0..n {\n"
             "  let m = (128 + x[i] % 128) * 2 + 1; let k = x[i] // 128;\n"
             "  let v = (m << (k % 22)) + (k // 22 - 1);\n"
             "  y[i] = bf16(v); z[i] = bf16(-v); } }",
     .args = "iota:8448 junk:8448 junk:8448"},
    {.feature = "rounded once",
     .variant = "u32 to bf16",
     .text = "func ro_u32_bf16(x: u32[n], out y: bf16[n]) { parallel i in 0..n {\n"
             "  let m = (128 + x[i] % 128) * 2 + 1; let k = x[i] // 128;\n"
             "  y[i] = bf16((m << (k % 23)) + (k // 23 - 1)); } }",
     .args = "iota:8832 junk:8832"},
    {.feature = "rounded once",
     .variant = "f32 to f8e4m3fn",
     .text = "func ro_f32_f8e4m3fn(x: u32[n], out y: f8e4m3fn[n], out z: f8e4m3fn[n]) {\n"
             "  parallel i in 0..n { let k = u8(x[i] % 126); let d = x[i] // 126 - 1;\n"
             "  let m = (f32(bitcast(f8e4m3fn, k)) + f32(bitcast(f8e4m3fn, k + 1))) * 0.5;\n"
             "  let v = bitcast(f32, bitcast(u32, k < 125 ? m : 464) + d);\n"
             "  y[i] = f8e4m3fn(v); z[i] = f8e4m3fn(-v); } }",
     .args = "iota:378 junk:378 junk:378"},
    {.feature = "rounded once",
     .variant = "f64 to f8e4m3fn",
     .text = "func ro_f64_f8e4m3fn(x: u64[n], out y: f8e4m3fn[n], out z: f8e4m3fn[n]) {\n"
             "  parallel i in 0..n { let k = u8(x[i] % 126); let d = x[i] // 126 - 1;\n"
             "  let m = (f64(bitcast(f8e4m3fn, k)) + f64(bitcast(f8e4m3fn, k + 1))) * 0.5;\n"
             "  let v = bitcast(f64, bitcast(u64, k < 125 ? m : 464) + d);\n"
             "  y[i] = f8e4m3fn(v); z[i] = f8e4m3fn(-v); } }",
     .args = "iota:378 junk:378 junk:378"},
    {.feature = "rounded once",
     .variant = "f32 to f8e5m2",
     .text = "func ro_f32_f8e5m2(x: u32[n], out y: f8e5m2[n], out z: f8e5m2[n]) {\n"
             "  parallel i in 0..n { let k = u8(x[i] % 123); let d = x[i] // 123 - 1;\n"
             "  let m = (f32(bitcast(f8e5m2, k)) + f32(bitcast(f8e5m2, k + 1))) * 0.5;\n"
             "  let v = bitcast(f32, bitcast(u32, k < 122 ? m : 61440) + d);\n"
             "  y[i] = f8e5m2(v); z[i] = f8e5m2(-v); } }",
     .args = "iota:369 junk:369 junk:369"},
    {.feature = "rounded once",
     .variant = "f64 to f8e5m2",
     .text = "func ro_f64_f8e5m2(x: u64[n], out y: f8e5m2[n], out z: f8e5m2[n]) {\n"
             "  parallel i in 0..n { let k = u8(x[i] % 123); let d = x[i] // 123 - 1;\n"
             "  let m = (f64(bitcast(f8e5m2, k)) + f64(bitcast(f8e5m2, k + 1))) * 0.5;\n"
             "  let v = bitcast(f64, bitcast(u64, k < 122 ? m : 61440) + d);\n"
             "  y[i] = f8e5m2(v); z[i] = f8e5m2(-v); } }",
     .args = "iota:369 junk:369 junk:369"},
};

static const conf_program_t views[] = {
    {.feature = "views of another dtype",
     .variant = "as large",
     .text = "func vo_same(x: f32[n], out y: f32[n]) {\n"
             "  view a: u32[n] = x[0]; view b: u32[n] = y[0];\n"
             "  parallel i in 0..n { b[i] = a[i] ^ 0x80000000; } }",
     .args = "bits:301 junk:301"},
    {.feature = "views of another dtype",
     .variant = "larger, loads",
     .text = "func vo_load(x: u8[n, 19], out y: f32[n, 17]) {\n"
             "  parallel i in 0..n { view unit: f16[1] = x[i, 0]; view q: i8[17] = x[i, 2];\n"
             "    for j in 0..17 { y[i, j] = f32(unit[0]) * f32(q[j]); } } }",
     .args = "rand:40x19 junk:40x17"},
    {.feature = "views of another dtype",
     .variant = "larger, stores",
     .text = "func vo_store(x: u32[n], z: f16[n], out y: u8[n, 7]) {\n"
             "  parallel i in 0..n { view a: u32[1] = y[i, 1]; view b: f16[1] = y[i, 5];\n"
             "    a[0] = x[i]; b[0] = z[i]; y[i, 0] = u8(a[0] >> 8); } }",
     .args = "bits:77 bits:77 junk:77x7"},
    {.feature = "views of another dtype",
     .variant = "strided, and of a view",
     .text = "func vo_view(x: u16[n, 8], out y: u64[n]) {\n"
             "  view c: u32[n, 2] strides [4, 2] = x[0, 0]; view d: u64[n] strides [2] = c[0, 0];\n"
             "  parallel i in 0..n { y[i] = i % 2 == 0 ? d[i // 2] : u64(c[i // 2, 1]); } }",
     .args = "bits:64x8 junk:64"},
    {.feature = "views of another dtype",
     .variant = "shared memory",
     .text = "func vo_shared(x: f32[n, 64], out y: f32[n, 64]) {\n"
             "  block.x b in 0..n { alloc bytes: u8[260] in shared; view s: f32[64] = bytes[4];\n"
             "    thread.x t in 0..64 { s[t] = x[b, t]; barrier; y[b, t] = s[63 - t]; } } }",
     .args = "rand:5x64 junk:5x64"},
    {.feature = "views of another dtype",
     .variant = "bytes of packed elements",
     .text = "func vo_packed(x: f32[n, m], out y: i4[n, m], out z: f32[n, m]) {\n"
             "  view b: u8[n, m // 2] = y[0, 0];\n"
             "  parallel i in 0..n { for j in 0..m // 2 {\n"
             "    b[i, j] = u8(bitcast(u4, i4(x[i, 2 * j]))) |\n"
             "              u8(bitcast(u4, i4(x[i, 2 * j + 1]))) << 4; } }\n"
             "  parallel i in 0..n { for j in 0..m { z[i, j] = f32(y[i, m - 1 - j]); } } }",
     .args = "rand:21x14 junk:21x14 junk:21x14"},
};

static void run_denormals(conf_t* c) {
  for (size_t i = 0; i < CONF_COUNT_OF(denormals); i++) {
    bool is_f64 = i == 3;
    bool flushes = i > 0 && (is_f64 ? c->flushes_f64 : c->flushes_f32);
    if (!flushes) {
      conf_programs(c, &denormals[i], 1);
    } else if (conf_begin(c, denormals[i].feature, denormals[i].variant)) {
      conf_unsupported(
          c, "the device flushes them: target option '%s' is false",
          is_f64 ? "supports_denorm_preserve_float64" : "supports_denorm_preserve_float32");
      conf_end(c);
    }
  }
}

static void run(conf_t* c) {
  static conf_rows_t rows;
  add_plain(&rows);
  conf_rows_run(c, &rows);
  add_pairs(&rows, false);
  conf_rows_run(c, &rows);
  add_pairs(&rows, true);
  conf_rows_run(c, &rows);
  conf_programs(c, roundings, CONF_COUNT_OF(roundings));
  conf_programs(c, views, CONF_COUNT_OF(views));
  run_denormals(c);
}

const conf_area_t conf_area_dtypes = {"dtypes", NULL, 0, run};
