// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_dots.c: products of small numbers by the dot instructions of processors:
// their results on those that this machine has, and the instructions themselves for all.
//
// Arguments lie against inaccessible pages, as in test_emit.c. Products of bf16 are compared with
// fused sums bit for bit, also where numbers are denormal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_oracle.h"
#include "tests/support/must.h"
#include "tests/support/sanitized.h"

static const char* const cpus[] = {"x86-64",      "x86-64-v3",  "x86-64-v4",
                                   "cascadelake", "cooperlake", "sapphirerapids"};

#define NEST "parallel i in 0..n { parallel j in 0..m { "
#define PLAIN(name, a, b, at, bt)                               \
  "func " name "(a: " a ", b: " b ", out c: i32[n, m]) { " NEST \
  "c[i, j] = sum p in 0..k { i32(a[" at "]) * i32(b[" bt "]) }; } } }\n"

static const char integers[] =
    PLAIN("ss", "i8[n, k]", "i8[k, m]", "i, p", "p, j")
    PLAIN("uu_transposed", "u8[n, k]", "u8[m, k]", "i, p", "j, p")
    PLAIN("us_first_transposed", "u8[k, n]", "i8[k, m]", "p, i", "p, j")
    PLAIN("su_both_transposed", "i8[k, n]", "u8[m, k]", "p, i", "j, p")
    PLAIN("ss_transposed", "i8[n, k]", "i8[m, k]", "i, p", "j, p")
    PLAIN("su", "i8[n, k]", "u8[k, m]", "i, p", "p, j")
    PLAIN("words", "i16[n, k]", "i16[m, k]", "i, p", "j, p")
    "func zero_points(a: u8[n, k], b: i8[k, m], z: u8[n], s: f32[m], out c: f32[n, m]) { " NEST
    "c[i, j] = s[j] * f32(sum p in 0..k { (i32(a[i, p]) - i32(z[i])) * i32(b[p, j]) }); } } }\n";

static void run_integers(void** state) {
  (void)state;
  static const int64_t shapes[][3] = {
      {5, 33, 9}, {24, 64, 64}, {29, 131, 70}, {250, 40, 7}, {4, 17, 1030}};
  qn_module_t* module = parse_or_die(integers);
  for (size_t c = 0; c < QN_COUNT_OF(cpus); c += IS_SANITIZED ? 3 : 1) {
    if (!build_can_run(cpus[c])) continue;
    qn_status_t error;
    kernels_t* kernels = kernels_create(module, (build_t){.cpu = cpus[c]}, false, &error);
    if (!kernels) fail_msg("%s: %s", cpus[c], qn_status_message(error));
    size_t index = 0;
    for (qn__ir_func_t* f = module->body.first; f; f = f->next, ++index) {
      for (size_t s = 0; s < QN_COUNT_OF(shapes); s += IS_SANITIZED ? 2 : 1) {
        int64_t symbols[3];
        for (size_t i = 0; i < f->symbol_count; ++i) {
          char name = f->symbols[i]->name[0];
          symbols[i] = shapes[s][name == 'n' ? 0 : name == 'm' ? 1 : 2];
        }
        oracle_case_t test = {
            .function = f, .symbols = symbols, .seed = s + 40, .has_specials = s % 2 == 0};
        const char* problem = oracle_compare(&test, index, &kernels, 1);
        if (problem) fail_msg("%s, %s: %s", cpus[c], f->name, problem);
      }
    }
    kernels_destroy(kernels);
  }
  qn_module_release(module);
}

// ---- bf16

enum { ROWS = 29, COLUMNS = 70, STEPS = 601, KINDS = 5 };

static uint16_t bf16_of(uint64_t random, int kind) {
  uint16_t sign = (uint16_t)(random >> 8 & 0x8000), mantissa = (uint16_t)(random >> 32 & 0x7f);
  uint32_t spread = (uint32_t)(random >> 40);
  switch (kind) {
    case 0:  // near 1
      return (uint16_t)(sign | (120 + spread % 12) << 7 | mantissa);
    case 1:  // products near the smallest normal number
      return (uint16_t)(sign | (60 + spread % 8) << 7 | mantissa);
    case 2:  // denormal numbers, and large ones
      return (uint16_t)(sign | (spread % 3 ? spread % 2 * 200 : 0) << 7 | mantissa);
    case 3:  // a few that are small, late
      return (uint16_t)(sign | (spread % 97 ? 127 : 20) << 7 | mantissa);
    default:  // zeros, infinities, NaN
      return (uint16_t)(sign |
                        (spread % 50  ? 127
                         : spread % 3 ? 0
                                      : 255)
                            << 7 |
                        (spread % 3 ? 0 : mantissa));
  }
}

static float float_of(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

// The sum in the order of tile registers up to step `tiled`, a multiple of 32 or the end; then in
// that of the operator: pairs of steps, the second one first.
static float fused(const uint16_t* a, const uint16_t* b, int tiled) {
  float sum = 0;
  for (int first = 0; first < tiled; first += 32) {
    float parts[2] = {0, 0};
    for (int p = first; p < STEPS && p < first + 32; ++p) {
      parts[p % 2] = fmaf(float_of(a[p]), float_of(b[p]), parts[p % 2]);
    }
    sum += parts[0] + parts[1];
  }
  for (int p = tiled; p < STEPS; p += 2) {
    if (p + 1 < STEPS) sum = fmaf(float_of(a[p + 1]), float_of(b[p + 1]), sum);
    sum = fmaf(float_of(a[p]), float_of(b[p]), sum);
  }
  return sum;
}

static void check_bf16(const char* cpu, const int* tiled, size_t tiled_count) {
  if (!build_can_run(cpu)) skip();
  qn_module_t* module = parse_or_die(
      "func f(a: bf16[29, 601], b: bf16[70, 601], out c: f32[29, 70]) { parallel i in 0..29 {\n"
      "parallel j in 0..70 { c[i, j] = sum p in 0..601 { f32(a[i, p]) * f32(b[j, p]) }; } } }\n"
      "func g(a: bf16[601, 29], b: bf16[601, 70], out c: f32[29, 70]) { parallel i in 0..29 {\n"
      "parallel j in 0..70 { c[i, j] = sum p in 0..601 { f32(a[p, i]) * f32(b[p, j]) }; } } }\n");
  qn_status_t error;
  kernels_t* kernels = kernels_create(module, (build_t){.cpu = cpu}, false, &error);
  if (!kernels) fail_msg("%s", qn_status_message(error));
  static uint16_t a[ROWS][STEPS], b[COLUMNS][STEPS], a_t[STEPS][ROWS], b_t[STEPS][COLUMNS];
  static float c[ROWS][COLUMNS];
  for (int kind = 0; kind < KINDS; ++kind) {
    uint64_t random = 88172645463325252u + (uint64_t)kind;
    for (int p = 0; p < STEPS; ++p) {
      for (int i = 0; i < ROWS + COLUMNS; ++i) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        uint16_t bits = bf16_of(random, kind);
        if (i < ROWS) {
          a[i][p] = a_t[p][i] = bits;
        } else {
          b[i - ROWS][p] = b_t[p][i - ROWS] = bits;
        }
      }
    }
    for (size_t f = 0; f < 2; ++f) {
      const uint64_t words[3] = {(uint64_t)(uintptr_t)(f ? (void*)a_t : (void*)a),
                                 (uint64_t)(uintptr_t)(f ? (void*)b_t : (void*)b),
                                 (uint64_t)(uintptr_t)c};
      run_report_t report = kernels_run(kernels, f, words, 2, 8);
      assert_int_equal(report.result, 0);
      for (int i = 0; i < ROWS; ++i) {
        for (int j = 0; j < COLUMNS; ++j) {
          bool is_same = false;
          float want = 0;
          for (size_t t = 0; t < tiled_count && !is_same; ++t) {
            want = fused(a[i], b[j], tiled[t]);
            is_same = memcmp(&want, &c[i][j], sizeof want) == 0 || (isnan(want) && isnan(c[i][j]));
          }
          if (is_same) continue;
          fail_msg("kind %d, %s: %d, %d is %a, not %a", kind, f ? "across" : "along", i, j,
                   (double)c[i][j], (double)want);
        }
      }
    }
  }
  kernels_destroy(kernels);
  qn_module_release(module);
}

static void bf16_is_exact(void** state) {
  (void)state;
  static const int tiled[] = {0};
  check_bf16("cooperlake", tiled, 1);
}

// Numbers that tile registers do not multiply exactly may come in any block of 192 steps.
static void bf16_in_tiles_is_exact(void** state) {
  (void)state;
  static const int tiled[] = {STEPS, 0, 192, 384, 576};
  check_bf16("sapphirerapids", tiled, QN_COUNT_OF(tiled));
}

// ---- instructions

static void instructions_of_targets(void** state) {
  (void)state;
  static const char bytes[] = PLAIN("f", "i8[n, k]", "i8[k, m]", "i, p", "p, j");
  static const char unsigned_bytes[] = PLAIN("f", "u8[n, k]", "u8[k, m]", "i, p", "p, j");
  static const char mixed[] = PLAIN("f", "u8[n, k]", "i8[k, m]", "i, p", "p, j");
  static const char swapped[] = PLAIN("f", "i8[n, k]", "u8[k, m]", "i, p", "p, j");
  static const char words[] = PLAIN("f", "i16[n, k]", "u8[k, m]", "i, p", "p, j");
  static const char bf16[] = "func f(a: bf16[n, k], b: bf16[k, m], out c: f32[n, m]) { " NEST
                             "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }\n";
  static const char fast_bf16[] =
      "func f(a: bf16[n, k], b: bf16[k, m], out c: f32[n, m]) fast { " NEST
      "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }\n";
#define ARM "cpu -mtriple=aarch64-unknown-linux-gnu -mcpu="
  static const struct {
    const char* target;
    const char* program;
    const char* has;
    const char* lacks;
  } cases[] = {
      {"cpu -mcpu=x86-64", bytes, "pmaddwd", "vpmaddwd"},
      {"cpu -mcpu=x86-64-v3", bytes, "vpmaddwd", "zmm"},
      {"cpu -mcpu=x86-64-v4", bytes, "vpmaddwd", "vpdpbusd"},
      {"cpu -mcpu=alderlake", bytes, "vpdpbusd", "zmm"},
      {"cpu -mcpu=sierraforest", bytes, "vpdpbssd", "vpdpbusd"},
      {"cpu -mcpu=sierraforest", unsigned_bytes, "vpdpbuud", "vpdpbusd"},
      {"cpu -mcpu=icelake-server", unsigned_bytes, "vpdpbusd", "vpmaddwd"},
      {"cpu -mcpu=icelake-server", words, "vpdpwssd", "vpmaddwd"},
      {"cpu -mcpu=alderlake", words, "vpdpwssd", "vpmaddwd"},
      {"cpu -mcpu=znver4", bytes, "vpdpbusd", "vpmaddwd"},
      {"cpu -mcpu=znver4", mixed, "vpdpbusd", "vpmaddwd"},
      {"cpu -mcpu=znver4", bf16, "vdpbf16ps", "vpdpbusd"},
      {"cpu -mcpu=znver4", fast_bf16, "vdpbf16ps", "vpdpbusd"},
      {"cpu -mcpu=icelake-server", bf16, "vfmadd", "vdpbf16ps"},
      {"cpu -mcpu=sapphirerapids", bytes, "tdpbssd", "tdpbuud"},
      {"cpu -mcpu=sapphirerapids", unsigned_bytes, "tdpbuud", "tdpbssd"},
      {"cpu -mcpu=sapphirerapids", mixed, "tdpbusd", "tdpbsud"},
      {"cpu -mcpu=sapphirerapids", swapped, "tdpbsud", "tdpbusd"},
      {"cpu -mcpu=sapphirerapids", bf16, "tdpbf16ps", "vdpbf16ps"},
      {"cpu -mcpu=sapphirerapids", fast_bf16, "tilerelease", "vdpbf16ps"},
      {"cpu -mcpu=sapphirerapids -mattr=-amx-tile", bytes, "vpdpbusd", "tmm"},
      {"cpu -mcpu=sapphirerapids -mattr=-amx-int8", bf16, "tdpbf16ps", "tdpbssd"},
      {ARM "neoverse-n1", bytes, "\tsdot\t", "udot"},
      {ARM "neoverse-n1", unsigned_bytes, "\tudot\t", "sdot"},
      {ARM "neoverse-n1", mixed, "\tsdot\t", "usdot"},
      {ARM "neoverse-v1", mixed, "\tusdot\t", "\tsdot"},
      {ARM "neoverse-v1", fast_bf16, "\tbfdot\t", "sdot"},
      {ARM "neoverse-v1", bf16, "\tfmla\tv", "bfdot"},
      {ARM "generic", bytes, "\tm", "dot\t"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    char* text = assembly_of(cases[i].program, cases[i].target);
    if (!strstr(text, cases[i].has)) fail_msg("case %zu: no %s", i, cases[i].has);
    if (strstr(text, cases[i].lacks)) fail_msg("case %zu: %s", i, cases[i].lacks);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(run_integers),
      cmocka_unit_test(bf16_is_exact),
      cmocka_unit_test(bf16_in_tiles_is_exact),
      cmocka_unit_test(instructions_of_targets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
