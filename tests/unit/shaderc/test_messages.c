// SPDX-License-Identifier: Apache-2.0
// tests/unit/shaderc/test_messages.c: tests messages about features that a target lacks, and the
// translation of shaderc's messages into terms of the module.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "jit/gpu/messages.h"
#include "support_shaderc.h"

// Compiling fails so, and the message has all of these parts.
static void refuses(const char* text, const char* target, qn_status_code_t code, const char* first,
                    const char* second) {
  qn_module_t* module = parse(text);
  request_t request = {target, QN_TIER_FULL, false};
  compiled_t compiled;
  qn_status_t status = compile(module, &request, &compiled);
  const char* message = qn_status_message(status);
  if (qn_status_code(status) != code || !strstr(message, first) || !strstr(message, second)) {
    (void)fprintf(stderr, "'%s' and '%s' are not in: %s\n", first, second, message);
    fail();
  }
  qn_status_free(status);
  qn_module_release(module);
}

static void test_missing_features(void** state) {
  (void)state;
  refuses("func k(x: i64[n], out y: i64[n]) {\n  parallel i in 0..n {\n    y[i] = x[i];\n  }\n}\n",
          TARGET_LEAST, QN_STATUS_UNSUPPORTED, "function 'k'", "supports_int64");
  refuses("func k(x: f64[n], out y: f64[n]) {\n  parallel i in 0..n {\n    y[i] = x[i];\n  }\n}\n",
          TARGET_LEAST, QN_STATUS_UNSUPPORTED, "buffer 'x' holds f64", "supports_float64");
  refuses("func k(s: f64, out y: f32[n]) {\n  parallel i in 0..n {\n    y[i] = f32(s);\n  }\n}\n",
          TARGET_LEAST, QN_STATUS_UNSUPPORTED, "'s' is f64", "supports_float64");
  refuses(
      "func k(x: f32[n], out y: f32[n]) {\n  parallel i in 0..n {\n    let d = f64(x[i]) * 2.0;\n  "
      "  "
      "y[i] = f32(d);\n  }\n}\n",
      TARGET_LEAST, QN_STATUS_UNSUPPORTED, "is f64", "supports_float64");
  refuses(
      "func k(x: u32[n], out y: u32[n]) {\n  parallel i in 0..n {\n    let d = u64(x[i]) * "
      "u64(x[i]);\n"
      "    y[i] = u32(d >> 32);\n  }\n}\n",
      TARGET_LEAST, QN_STATUS_UNSUPPORTED, "is u64", "supports_int64");
  refuses(
      "func k(x: i64[n], inout y: i64[1]) {\n  parallel i in 0..n {\n    atomic_add(y[0], x[i]);\n"
      "  }\n}\n",
      "{\"kind\":\"vulkan\",\"supports_int64\":true}", QN_STATUS_UNSUPPORTED,
      "atomic_add on buffer 'y' of i64", "supports_atomic_int64");
  refuses(
      "func k(x: f32[n], out y: f32[n]) {\n  block.x b in 0..n {\n    alloc t: f32[5000] in "
      "shared;\n"
      "    thread.x i in 0..64 {\n      t[i] = x[i];\n      barrier;\n      y[b * 64 + i] = t[63 - "
      "i];\n    "
      "}\n"
      "  }\n}\n",
      TARGET_LEAST, QN_STATUS_UNSUPPORTED, "20000 bytes", "max_shared_memory_per_block");
  refuses(
      "func k(x: f32[n], out y: f32[n]) {\n  block.x b in 0..n {\n    thread.x i in 0..256 {\n     "
      " "
      "y[b * 256 + i] = x[i];\n      barrier;\n      y[b * 256 + i] = y[b * 256 + i] + 1.0;\n    "
      "}\n  }\n}\n",
      TARGET_LEAST, QN_STATUS_UNSUPPORTED, "function 'k'", "128");
}

// What needs no feature at all: narrow types in words, i64 that counts.
static void test_least_target(void** state) {
  (void)state;
  static const char* const texts[] = {
      "func k(x: f32[n], out y: f32[n]) {\n  parallel i in 0..n {\n    y[i] = x[i] * 2.0;\n  "
      "}\n}\n",
      "func k(x: f16[n], b: u8[n], out y: bf16[n]) {\n  parallel i in 0..n {\n    y[i] = "
      "bf16(x[i]) + "
      "bf16(b[i]);\n  }\n}\n",
      "func k(x: f32[n, m], inout h: i32[16], out y: f32[n]) {\n  parallel i in 0..n {\n    y[i] = "
      "sum j "
      "in 0..m { x[i, j] };\n    atomic_add(h[i % 16], 1);\n  }\n}\n",
  };
  for (size_t i = 0; i < QN_COUNT_OF(texts); ++i) {
    assert_null(compile_everywhere(texts[i], TARGET_LEAST, false));
  }
}

static void test_versions(void** state) {
  (void)state;
  const char* text = "func k(out y: f32[n]) {\n  parallel i in 0..n {\n    y[i] = 1.0;\n  }\n}\n";
  refuses(text, "{\"kind\":\"vulkan\",\"api_version\":\"1.0\"}", QN_STATUS_UNSUPPORTED,
          "api_version", "1.1 to 1.3");
  refuses(text, "{\"kind\":\"vulkan\",\"spirv_version\":\"1.0\"}", QN_STATUS_UNSUPPORTED,
          "spirv_version", "1.3 to 1.5");
  refuses(text, "cpu -mcpu=x86-64", QN_STATUS_UNSUPPORTED, "kind vulkan", "not cpu");
  assert_null(compile_everywhere(text, "{\"kind\":\"vulkan\",\"api_version\":\"1.4\"}", false));
}

static void test_forms(void** state) {
  (void)state;
  qn_module_t* module =
      parse("func k(out y: f32[n]) {\n  parallel i in 0..n {\n    y[i] = 1.0;\n  }\n}\n");
  request_t request = {TARGET_1_2, QN_TIER_FULL, false};
  static const char* const forms[][2] = {{"ir", "func k("},
                                         {"glsl", "void main() {"},
                                         {"spirv", "\x03\x02\x23\x07"},
                                         {"spirv-asm", "OpEntryPoint GLCompute"}};
  for (size_t i = 0; i < QN_COUNT_OF(forms); ++i) {
    char* text = emit(module, &request, forms[i][0]);
    assert_non_null(text);
    assert_non_null(strstr(text, forms[i][1]));
    free(text);
  }
  qn_compile_request_t made = {.struct_size = sizeof made};
  qn_status_t status = qn__shaderc_emit(the_shaderc(), &made, "ptx", (qn_sink_t){0});
  assert_int_equal(qn_status_code(status), QN_STATUS_NOT_FOUND);
  assert_non_null(strstr(qn_status_message(status), "ir, glsl, spirv and spirv-asm"));
  qn_status_free(status);
  qn_module_release(module);
}

// A text that shaderc refuses, as if the printer had made it: its log is of the shape that is read.
static void test_mapping(void** state) {
  (void)state;
  static const char glsl[] = "#version 450\nvoid main() {\n  int a = 1;\n  nonsense = a;\n}\n";
  qn__buffer_t words, messages;
  qn__buffer_init(&words, qn_allocator_default());
  qn__buffer_init(&messages, qn_allocator_default());
  qn__shaderc_options_t options = {.vulkan_minor = 2, .spirv_minor = 5};
  qn_status_t status = qn__shaderc_compiler_compile(the_shaderc()->compiler, &options,
                                                    "kernel.comp", QN_STR(glsl), &words, &messages);
  assert_int_equal(qn_status_code(status), QN_STATUS_INTERNAL);
  assert_int_equal(words.size, 0);
  qn__gpu_text_t text = {.language = "glsl", .text = QN_STR(glsl)};
  status = qn__gpu_explain(status, &text, qn__buffer_as_str(&messages));
  const char* message = qn_status_message(status);
  static const char expected[] =
      "line 4 of the glsl text `nonsense = a;`: 'nonsense' : undeclared identifier";
  if (!strstr(message, expected)) (void)fprintf(stderr, "%s\n", message);
  assert_non_null(strstr(message, expected));
  qn_status_free(status);
  qn__buffer_deinit(&words);
  qn__buffer_deinit(&messages);
}

static void test_validator(void** state) {
  (void)state;
  qn__shaderc_options_t options = {.vulkan_minor = 2, .spirv_minor = 5};
  static const uint32_t nothing[5] = {0x07230203, 0x00010500, 0, 1, 0};
  qn_status_t status =
      qn__shaderc_validate((qn_span_t){(const uint8_t*)nothing, sizeof nothing}, &options);
  assert_int_equal(qn_status_code(status), QN_STATUS_INTERNAL);
  qn_status_free(status);
}

static size_t occurrences(const char* text, const char* part) {
  size_t count = 0;
  for (const char* at = strstr(text, part); at; at = strstr(at + 1, part)) count++;
  return count;
}

// Modes of floating point: of f32 always, of f64 where a kernel has f64 and the device the mode.
static void test_float_controls(void** state) {
  (void)state;
  static const char* const MODES[] = {"DenormPreserve", "SignedZeroInfNanPreserve",
                                      "RoundingModeRTE"};
  static const char all[] = TARGET_1_2;
  static const char some[] =
      "{\"kind\":\"vulkan\",\"supports_float64\":true,"
      "\"supports_rounding_rte_float32\":true,"
      "\"supports_rounding_rte_float64\":true,"
      "\"supports_denorm_preserve_float64\":true}";
  static const char* const TYPES[] = {"f32", "f64"};
  for (size_t t = 0; t < 2; ++t) {
    char text[128];
    (void)snprintf(text, sizeof text,
                   "func k(x: %s[n], out y: %s[n]) { parallel i in 0..n { y[i] = x[i] * 3.0; } }",
                   TYPES[t], TYPES[t]);
    qn_module_t* module = parse(text);
    for (size_t k = 0; k < 4; ++k) {
      request_t request = {k % 2 == 0 ? all : some, k < 2 ? QN_TIER_FULL : QN_TIER_FAST, false};
      char* assembly = emit(module, &request, "spirv-asm");
      assert_non_null(assembly);
      // A narrow kernel and a wide one.
      size_t kernels = occurrences(assembly, "OpEntryPoint");
      assert_true(kernels > 0);
      for (size_t m = 0; m < 3; ++m) {
        char narrow[64], wide[64], capability[64];
        (void)snprintf(narrow, sizeof narrow, " %s 32\n", MODES[m]);
        (void)snprintf(wide, sizeof wide, " %s 64\n", MODES[m]);
        (void)snprintf(capability, sizeof capability, "OpCapability %s\n", MODES[m]);
        bool has_wide = k % 2 == 0 || m != 1;
        assert_int_equal(occurrences(assembly, narrow), k % 2 == 0 || m == 2 ? kernels : 0);
        // glslang keeps the only one that it is asked for.
        bool wants_wide = has_wide && (t == 1 || (k % 2 == 1 && m == 0));
        assert_int_equal(occurrences(assembly, wide), wants_wide ? kernels : 0);
        assert_int_equal(occurrences(assembly, capability), has_wide ? kernels : 0);
      }
      free(assembly);
      compiled_t compiled;
      qn_status_t status = compile(module, &request, &compiled);
      assert_true(qn_ok(status));
      const char* wrong = validate(&compiled, request.target);
      if (wrong) fail_msg("%s", wrong);
      compiled_release(&compiled);
    }
    qn_module_release(module);
  }
}

// What is no module goes through as it is.
static void test_modes_of_broken_words(void** state) {
  (void)state;
  const qn__shaderc_modes_t modes = {{4459, 4461}, 2};
  // The header, a capability, an entry point; then what is cut.
  uint32_t words[] = {0x07230203, 0x10300, 0, 9, 0, 2u << 16 | 17, 10, 3u << 16 | 15, 5, 4, 0};
  for (size_t k = 0; k < 4; ++k) {
    qn__buffer_t out;
    qn__buffer_init(&out, qn_allocator_default());
    size_t size = k == 3 ? sizeof words - 4 : sizeof words;
    words[10] = k == 0 ? 0 : k == 1 ? 7u << 16 | 16 : 1u << 16 | 1;
    if (k == 2) words[6] = 9;
    if (k == 3) words[6] = 10;
    qn__shaderc_modes_append((qn_span_t){(const uint8_t*)words, size}, &modes, &out);
    assert_int_equal(out.size, k == 3 ? size + 2 * 16 : size);
    assert_memory_equal(out.data, words, size);
    qn__buffer_deinit(&out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mapping),        cmocka_unit_test(test_validator),
      cmocka_unit_test(test_versions),       cmocka_unit_test(test_forms),
      cmocka_unit_test(test_least_target),   cmocka_unit_test(test_missing_features),
      cmocka_unit_test(test_float_controls), cmocka_unit_test(test_modes_of_broken_words),
  };
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  qn__shaderc_destroy(the_shaderc());
  return result;
}
