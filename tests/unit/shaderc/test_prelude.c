// SPDX-License-Identifier: Apache-2.0
// tests/unit/shaderc/test_prelude.c: all helpers of the prelude at once become valid SPIR-V, for
// every set of features, and their arithmetic may not be contracted.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "jit/gpu/prelude.h"
#include "jit/shaderc/compiler.h"

static qn__shaderc_compiler_t* compiler;

static void write_text(uint32_t features, qn__buffer_t* out) {
  qn__gpu_prelude_use_t use;
  memset(&use, 1, sizeof use);
  qn__buffer_cstr(out,
                  "#version 450\n"
                  "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : enable\n");
  qn__gpu_prelude_write(&use, true, (features & 1) != 0, (features & 2) != 0, (features & 4) != 0,
                        out);
  qn__buffer_cstr(out,
                  "layout(local_size_x = 1) in;\n"
                  "layout(set = 0, binding = 0) buffer b { float x[]; };\n"
                  "void main() {\n"
                  "  x[0] = qn_pow_f32(qn_sin_f32(x[1]), qn_erf_f32(x[2])) + qn_log2_f32(x[3]) +\n"
                  "         qn_fma_f32(x[4], x[5], x[6]) + qn_tanh_f32(qn_sqrt_f32(x[7]));\n"
                  "}\n");
}

static void check(uint32_t features, bool is_optimized) {
  qn__buffer_t text, words, messages;
  qn__buffer_init(&text, qn_allocator_default());
  qn__buffer_init(&words, qn_allocator_default());
  qn__buffer_init(&messages, qn_allocator_default());
  write_text(features, &text);
  assert_false(text.has_failed);
  qn__shaderc_options_t options = {
      .vulkan_minor = 1, .spirv_minor = 3, .is_optimized = is_optimized};
  qn_status_t status = qn__shaderc_compiler_compile(compiler, &options, "prelude",
                                                    qn__buffer_as_str(&text), &words, &messages);
  if (!qn_ok(status)) fail_msg("features %u: %s", features, (const char*)messages.data);
  status = qn__shaderc_validate(qn__buffer_as_span(&words), &options);
  if (!qn_ok(status)) fail_msg("features %u: %s", features, qn_status_message(status));
  qn__buffer_deinit(&messages);
  qn__buffer_deinit(&words);
  qn__buffer_deinit(&text);
}

static void test_every_set_of_features(void** state) {
  (void)state;
  for (uint32_t features = 0; features < 8; features++) {
    check(features, false);
    check(features, true);
  }
}

// Checks that every float product and sum is decorated with NoContraction.
static void test_nothing_is_contracted(void** state) {
  (void)state;
  qn__buffer_t text, assembly, messages;
  qn__buffer_init(&text, qn_allocator_default());
  qn__buffer_init(&assembly, qn_allocator_default());
  qn__buffer_init(&messages, qn_allocator_default());
  write_text(7, &text);
  qn__shaderc_options_t options = {.vulkan_minor = 1, .spirv_minor = 3, .wants_assembly = true};
  qn_status_t status = qn__shaderc_compiler_compile(compiler, &options, "prelude",
                                                    qn__buffer_as_str(&text), &assembly, &messages);
  assert_true(qn_ok(status));
  const char* all = (const char*)assembly.data;
  // main's own sums are not meant.
  static const char* const OPS[] = {" = OpFMul ", " = OpFSub "};
  size_t found = 0;
  for (size_t k = 0; k < 2; k++) {
    for (const char* at = strstr(all, OPS[k]); at != NULL; at = strstr(at + 1, OPS[k]), found++) {
      const char* name = at;
      while (name[-1] != ' ' && name[-1] != '\n') name--;
      char decoration[64];
      snprintf(decoration, sizeof decoration, "OpDecorate %.*s NoContraction", (int)(at - name),
               name);
      if (strstr(all, decoration) == NULL) fail_msg("%s is not exact", decoration);
    }
  }
  assert_true(found > 50);
  qn__buffer_deinit(&messages);
  qn__buffer_deinit(&assembly);
  qn__buffer_deinit(&text);
}

static int set_up(void** state) {
  (void)state;
  qn_status_t status = qn__shaderc_compiler_create(qn_allocator_default(), &compiler);
  return qn_ok(status) ? 0 : 1;
}

static int tear_down(void** state) {
  (void)state;
  qn__shaderc_compiler_destroy(compiler);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_set_of_features),
      cmocka_unit_test(test_nothing_is_contracted),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
