// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_transpose.c: columns of a product that lie along the reduction in memory are
// transposed in registers when they are packed. With few rows the sums of lanes are.
//
// Shapes end within squares, panels and blocks of steps; caches are small, so that there are many
// of each. Arguments lie against inaccessible pages, as in test_emit.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "support_oracle.h"
#include "tests/support/sanitized.h"

#define PRODUCT(name, a, b, c, value)                       \
  "func " name "(a: " a "[n, k], b: " b "[m, k], out c: " c \
  "[n, m]) {\n"                                             \
  "  parallel i in 0..n { parallel j in 0..m {\n"           \
  "    c[i, j] = sum p in 0..k { " value                    \
  " }; } }\n"                                               \
  "}\n"

static const char products[] = PRODUCT("singles", "f32", "f32", "f32", "a[i, p] * b[j, p]")
    PRODUCT("doubles", "f64", "f64", "f64", "a[i, p] * b[j, p]")
        PRODUCT("halves", "f32", "f16", "f32", "a[i, p] * f32(b[j, p])")
            PRODUCT("longs", "i64", "i64", "i64", "a[i, p] * b[j, p]")
                PRODUCT("bytes", "f32", "u8", "f32", "a[i, p] * (p < 40 ? f32(b[j, p]) : 1.5)");

static void squares_of_all_sizes(void** state) {
  (void)state;
  static const char* const cpus[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  static const int64_t shapes[][3] = {
      {8, 32, 8}, {25, 33, 23}, {30, 70, 66}, {24, 7, 129}, {31, 65, 5}, {1, 19, 33}, {2, 8, 16},
      {3, 1, 47}, {4, 13, 1},   {5, 24, 15},  {7, 0, 31},   {6, 9, 0},   {26, 9, 259}};
  qn_module_t* module = parse_or_die(products);
  for (size_t c = 0; c < QN_COUNT_OF(cpus); c += IS_SANITIZED ? 2 : 1) {
    if (!build_can_run(cpus[c])) continue;
    qn_status_t error;
    build_t build = {.cpu = cpus[c], .l1_bytes = 4096, .l2_bytes = 16384};
    kernels_t* kernels = kernels_create(module, build, false, &error);
    if (!kernels) fail_msg("%s: %s", cpus[c], qn_status_message(error));
    size_t index = 0;
    for (qn__ir_func_t* f = module->body.first; f; f = f->next, ++index) {
      for (size_t s = 0; s < QN_COUNT_OF(shapes); s += IS_SANITIZED ? 2 : 1) {
        int64_t symbols[3];
        for (size_t i = 0; i < f->symbol_count; ++i) {
          char name = f->symbols[i]->name[0];
          symbols[i] = shapes[s][name == 'n' ? 0 : name == 'm' ? 1 : 2];
        }
        oracle_case_t test = {.function = f, .symbols = symbols, .seed = s + 7, .tolerance = 1e-4};
        const char* problem = oracle_compare(&test, index, &kernels, 1);
        if (problem) fail_msg("%s, %s: %s", cpus[c], f->name, problem);
      }
    }
    kernels_destroy(kernels);
  }
  qn_module_release(module);
}

// Unpacks and zips take the place of scattered stores. Few rows fetch the columns of the next task.
// With another first cache the generator has no prepared kernels, which have no assembly.
static void instructions_of_targets(void** state) {
  (void)state;
  static const char program[] = PRODUCT("f", "f32", "f32", "f32", "a[i, p] * b[j, p]");
  static const struct {
    const char* target;
    const char* has;
    const char* fetches;
  } cases[] = {
      {"cpu -mcpu=x86-64", "unpckl", "prefetcht1"},
      {"cpu -mcpu=x86-64-v3 -l1_cache_bytes=16384", "unpckl", "prefetcht1"},
      {"cpu -mcpu=x86-64-v4 -l1_cache_bytes=16384", "unpckl", "prefetcht1"},
      {"cpu -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1", "zip1", "prfm"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    char* text = assembly_of(program, cases[i].target);
    if (!strstr(text, cases[i].has)) fail_msg("%s: no %s", cases[i].target, cases[i].has);
    if (!strstr(text, cases[i].fetches)) fail_msg("%s: fetches nothing", cases[i].target);
    if (strstr(text, "vscatter")) fail_msg("%s: scattered stores", cases[i].target);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(squares_of_all_sizes),
      cmocka_unit_test(instructions_of_targets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
