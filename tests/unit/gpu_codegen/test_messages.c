// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/test_messages.c: tests the translation of compiler messages, in the
// formats of NVRTC and shaderc, into terms of the module.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "base/buffer.h"
#include "jit/gpu/messages.h"

// What qn__gpu_explain makes of a log, and whether the first message is still there.
static void explain(const char* log, const char* expected) {
  static const uint32_t lines[] = {0, 0, 3, 3};
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  for (size_t i = 0; i < QN_COUNT_OF(lines); ++i) qn__buffer_u32(&bytes, lines[i]);
  const qn__gpu_text_t text = {
      .language = "cuda",
      .text = QN_STR("one\ntwo\n  y = nonsense;\n}\n"),
      .lines = qn__buffer_as_span(&bytes),
      .module_text =
          QN_STR("func scale(x: f32[n]) {\n  block.x b in 0..n {\n    y[i] = x[i];\n  }\n}\n"),
  };
  qn_status_t status = qn_status_make(QN_STATUS_INTERNAL, "does not compile");
  status = qn__gpu_explain(status, &text, qn__str(log));
  assert_int_equal(qn_status_code(status), QN_STATUS_INTERNAL);
  const char* message = qn_status_message(status);
  if (!strstr(message, expected)) (void)fprintf(stderr, "no '%s' in: %s\n", expected, message);
  assert_non_null(strstr(message, expected));
  assert_non_null(strstr(message, "does not compile"));
  qn_status_free(status);
  qn__buffer_deinit(&bytes);
}

static void both_lines_are_named(void** state) {
  (void)state;
  static const char expected[] =
      "function 'scale', line 3 of the mapped module `y[i] = x[i];`, line 3 of the cuda text `y = "
      "nonsense;`: identifier \"nonsense\" is undefined";
  explain(
      "quern.cu(1): warning #177-D: unused\n\nquern.cu(3): error: identifier \"nonsense\" is "
      "undefined\n    y = nonsense;\n        ^\n",
      expected);
  explain("kernel.comp:3: error: identifier \"nonsense\" is undefined\n1 error generated.\n",
          expected);
}

static void lines_from_nowhere_are_told_alone(void** state) {
  (void)state;
  explain("quern.cu(2): error: bad", "line 2 of the cuda text `two`: bad");
  explain("kernel.comp:2: error: bad\nmore", "line 2 of the cuda text `two`: bad");
  explain("quern.cu(5): error: bad", "line 5 of the cuda text ``: bad");
  explain("kernel.comp:77: error: bad", "line 77 of the cuda text ``: bad");
}

static void other_shapes_are_told_as_they_are(void** state) {
  (void)state;
  static const char* const logs[] = {
      "ptxas fatal: out of registers",
      "no colon",
      ": error: bad",
      "a: error: bad",
      "12: error: bad",
      "): error: bad",
      "12): error: bad",
      "(12: error: bad",
      ":12): error: bad",
      "quern.cu(): error: bad",
      "quern.cu(0): error: bad",
      "kernel.comp:: error: bad",
      "kernel.comp:99999999999: error: bad",
      "ends with a number in front of nothing:12",
  };
  for (size_t i = 0; i < QN_COUNT_OF(logs); ++i) {
    char expected[128];
    (void)snprintf(expected, sizeof expected, "the cuda text: %s", logs[i]);
    explain(logs[i], expected);
  }
  explain("", "the cuda text: ");
  explain("first\nsecond", "the cuda text: first");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_lines_are_named),
      cmocka_unit_test(lines_from_nowhere_are_told_alone),
      cmocka_unit_test(other_shapes_are_told_as_they_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
