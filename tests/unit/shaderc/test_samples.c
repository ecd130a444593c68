// SPDX-License-Identifier: Apache-2.0
// tests/unit/shaderc/test_samples.c: every example compiles for every kind of target, in both
// tiers, checked and not, to SPIR-V that the validator takes; and its GLSL is what it was.
//
// `shaderc_test_samples --update` writes the texts in golden/ anew.
// ctest-labels: slow
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_shaderc.h"

static const char* const targets[] = {TARGET_1_1, TARGET_1_2, TARGET_1_3, TARGET_WORDS};

static bool is_updating;

static void test_samples_compile(void** state) {
  (void)state;
  glob_t files;
  assert_int_equal(glob(QN_SOURCE_DIR "/examples/ir/*.qn", 0, NULL, &files), 0);
  assert_true(files.gl_pathc >= 10);
  uint32_t wrong = 0;
  for (size_t i = 0; i < files.gl_pathc; ++i) {
    char* text = read_text(files.gl_pathv[i]);
    assert_non_null(text);
    for (size_t k = 0; k < QN_COUNT_OF(targets); ++k) {
      if (compile_everywhere(text, targets[k], false)) {
        (void)fprintf(stderr, "%s, target %s\n", files.gl_pathv[i], targets[k]);
        ++wrong;
      }
    }
    free(text);
  }
  globfree(&files);
  assert_int_equal(wrong, 0);
}

// The kernels alone: what stands in front of each, up to its layout, is the prelude's business.
static void strip(char* text) {
  char* to = text;
  bool is_kept = true;
  for (char* line = text; *line;) {
    char* end = strchr(line, '\n');
    size_t size = end ? (size_t)(end - line) + 1 : strlen(line);
    if (strncmp(line, "#version", 8) == 0) is_kept = false;
    if (strncmp(line, "layout(local_size", 17) == 0) is_kept = true;
    if (is_kept) memmove(to, line, size);
    if (is_kept) to += size;
    line += size;
  }
  *to = '\0';
}

static void check_golden(const char* name, const char* suffix, const request_t* request) {
  char path[512];
  (void)snprintf(path, sizeof path, QN_SOURCE_DIR "/examples/ir/%s.qn", name);
  char* text = read_text(path);
  assert_non_null(text);
  qn_module_t* module = parse(text);
  free(text);
  char* glsl = emit(module, request, "glsl");
  assert_non_null(glsl);
  strip(glsl);
  qn_module_release(module);
  (void)snprintf(path, sizeof path, QN_SOURCE_DIR "/tests/unit/shaderc/golden/%s%s.glsl", name,
                 suffix);
  if (is_updating) {
    FILE* file = fopen(path, "wb");
    assert_non_null(file);
    (void)fputs(glsl, file);
    (void)fclose(file);
  } else {
    char* expected = read_text(path);
    assert_non_null(expected);
    assert_string_equal(glsl, expected);
    free(expected);
  }
  free(glsl);
}

static void test_golden(void** state) {
  (void)state;
  // Samples that map themselves, so that these texts are the printer's alone.
  request_t request = {.target = TARGET_1_2};
  check_golden("transpose_shared", "", &request);
  check_golden("block_norm", "", &request);
  request.is_checked = true;
  check_golden("transpose_shared", "-checked", &request);
  request.is_checked = false;
  request.target = TARGET_WORDS;
  check_golden("block_norm", "-words", &request);
}

// ---- exact arithmetic

enum { OP_DECORATE = 71, NO_CONTRACTION = 42, OP_FADD = 129, OP_FSUB = 131, OP_FMUL = 133 };

// How many sums, differences and products there are, and how many of them may be contracted.
static void count_arithmetic(const uint32_t* words, size_t count, uint32_t* out_all,
                             uint32_t* out_free) {
  assert_true(count > 5);
  bool* is_exact = calloc(words[3], sizeof *is_exact);
  assert_non_null(is_exact);
  for (size_t i = 5; i < count; i += words[i] >> 16) {
    uint32_t op = words[i] & 0xffff;
    assert_true(words[i] >> 16 > 0);
    if (op == OP_DECORATE && words[i + 2] == NO_CONTRACTION) is_exact[words[i + 1]] = true;
    if (op != OP_FADD && op != OP_FSUB && op != OP_FMUL) continue;
    ++*out_all;
    *out_free += !is_exact[words[i + 2]];
  }
  free(is_exact);
}

static void count_in(const char* text, uint32_t* out_all, uint32_t* out_free) {
  qn_module_t* module = parse(text);
  *out_all = *out_free = 0;
  for (uint32_t tier = 0; tier < 2; ++tier) {
    request_t request = {TARGET_1_2, tier ? QN_TIER_FAST : QN_TIER_FULL, false};
    compiled_t compiled;
    qn_status_t status = compile(module, &request, &compiled);
    if (!qn_ok(status)) (void)fprintf(stderr, "%s\n", qn_status_message(status));
    assert_true(qn_ok(status));
    for (uint32_t i = 0; i < compiled.plan.kernel_count; ++i) {
      const qn__gpu_kernel_t* kernel = &compiled.plan.kernels[i];
      size_t count = kernel->code_size_bytes / sizeof(uint32_t);
      uint32_t* words = calloc(count, sizeof *words);
      assert_non_null(words);
      memcpy(words, (const uint8_t*)compiled.artifact->payload + kernel->code_offset,
             count * sizeof *words);
      count_arithmetic(words, count, out_all, out_free);
      free(words);
    }
    compiled_release(&compiled);
  }
  qn_module_release(module);
}

// shaderc's optimiser must not lose the decoration on the way, whatever it copies or unrolls.
static void test_arithmetic_is_exact(void** state) {
  (void)state;
  static const char* const texts[] = {
      "func f(x: f32[n], y: f32[n], out z: f32[n]) {\n  parallel i in 0..n {\n    z[i] = x[i] * "
      "y[i] + x[i] - y[i] * 3.0 * 5.0;\n  }\n}\n",
      "func f(x: f64[n, 4], out z: f64[n]) {\n  parallel i in 0..n {\n    alloc a: f64[4] in "
      "local;\n    unroll j in 0..4 {\n      a[j] = x[i, j] * x[i, j] + 1.0;\n    }\n    for j in "
      "0..4 {\n      a[0] = a[0] * 2.0 + a[j];\n    }\n    z[i] = a[0];\n  }\n}\n",
      "func f(x: f32[n], y: f32[n], out z: f32[n]) {\n  parallel i in 0..n {\n    z[i] = exp(x[i]) "
      "/ "
      "y[i] + sqrt(y[i]) * tanh(x[i]);\n  }\n}\n",
  };
  uint32_t all, free_count;
  for (size_t i = 0; i < QN_COUNT_OF(texts); ++i) {
    count_in(texts[i], &all, &free_count);
    assert_true(all >= 4);
    assert_int_equal(free_count, 0);
  }
  count_in(
      "func f(x: f32[n], y: f32[n], out z: f32[n]) fast {\n  parallel i in 0..n {\n    z[i] = x[i] "
      "* "
      "y[i] + x[i];\n  }\n}\n",
      &all, &free_count);
  assert_true(free_count > 0);
}

int main(int argc, char** argv) {
  is_updating = argc > 1 && strcmp(argv[1], "--update") == 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden),
      cmocka_unit_test(test_arithmetic_is_exact),
      cmocka_unit_test(test_samples_compile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
