// SPDX-License-Identifier: Apache-2.0
// Tests qn_text_escape, and that messages of statuses and of the log are escaped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "base/base.h"
#include "base/escape.h"
#include "base/log.h"

static void check(const char* text, bool keeps_lines, const char* wanted) {
  char out[128];
  assert_int_equal(qn_text_escape(text, strlen(text), keeps_lines, out, sizeof out),
                   strlen(wanted));
  assert_string_equal(out, wanted);
}

static void shows_what_terminals_obey(void** state) {
  (void)state;
  check("", false, "");
  check("plain \\ text, \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", false,
        "plain \\ text, \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  check("\x1b[31m\r\x07\x7f", false, "\\x1b[31m\\x0d\\x07\\x7f");
  check("a\n\tb", true, "a\n\tb");
  check("a\n\tb", false, "a\\x0a\\x09b");
  check("\xC2\x9B", false, "\\u009b");  // CSI
  check("\xC2\xA0", false, "\xC2\xA0");
  check("\xE2\x80\xAE\xE2\x81\xA6\xD8\x9C", false, "\\u202e\\u2066\\u061c");
  check("\x9B\xFF\xC2", false, "\\x9b\\xff\\xc2");                    // not UTF-8
  check("\xC0\xAF\xED\xA0\x80", false, "\\xc0\\xaf\\xed\\xa0\\x80");  // overlong, a surrogate
}

static void ends_at_a_whole_piece(void** state) {
  (void)state;
  static const char text[] = "ab\x1b\xC3\xA9z";
  static const char* const wanted[] = {"",
                                       "",
                                       "a",
                                       "ab",
                                       "ab",
                                       "ab",
                                       "ab",
                                       "ab\\x1b",
                                       "ab\\x1b",
                                       "ab\\x1b\xC3\xA9",
                                       "ab\\x1b\xC3\xA9z"};
  assert_int_equal(qn_text_escape(text, 6, false, NULL, 0), 9);
  for (size_t capacity = 1; capacity < QN_COUNT_OF(wanted); capacity++) {
    char out[16];
    memset(out, '#', sizeof out);
    assert_int_equal(qn_text_escape(text, 6, false, out, capacity), 9);
    assert_string_equal(out, wanted[capacity]);
    assert_int_equal(out[capacity], '#');
  }
}

// Any bytes become valid UTF-8 without controls, and that stays as it is.
static void any_bytes_become_text(void** state) {
  (void)state;
  uint32_t random = 1;
  for (int round = 0; round < 20000; round++) {
    char text[12], once[64], twice[64];
    for (size_t i = 0; i < sizeof text; i++) {
      random = random * 1664525u + 1013904223u;
      text[i] = (char)(random >> 24);
    }
    size_t size = qn_text_escape(text, sizeof text, false, once, sizeof once);
    for (size_t i = 0; i < size;) {
      uint32_t code = 0;
      size_t taken = qn__utf8_decode((qn_str_t){once + i, size - i}, &code);
      assert_true(taken > 0 && !qn__is_control(code));
      i += taken;
    }
    assert_int_equal(qn_text_escape(once, size, false, twice, sizeof twice), size);
    assert_string_equal(once, twice);
  }
}

static void statuses_are_clean(void** state) {
  (void)state;
  qn_status_t status = qn_status_make(QN_STATUS_IO, "no file '%s'\n", "\x1b[31m\xFF");
  assert_string_equal(qn_status_message(status), "no file '\\x1b[31m\\xff'\n");
  status = qn_status_annotate(status, "list '%s'", "\xC2\x9B");
  assert_string_equal(qn_status_message(status), "list '\\u009b': no file '\\x1b[31m\\xff'\n");
  assert_int_equal(qn_status_code(status), QN_STATUS_IO);
  qn_status_free(status);
}

static void hear(void* self, qn_log_level_t level, const char* message) {
  (void)level;
  assert_string_equal(message, "entry \\x1b[31m");
  ++*(int*)self;
}
static void log_lines_are_clean(void** state) {
  (void)state;
  int count = 0;
  qn_log_set_sink(QN_LOG_WARN, hear, &count);
  qn__log(QN_LOG_WARN, "entry %s", "\x1b[31m");
  qn_log_set_sink(QN_LOG_WARN, NULL, NULL);
  assert_int_equal(count, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shows_what_terminals_obey), cmocka_unit_test(ends_at_a_whole_piece),
      cmocka_unit_test(any_bytes_become_text),     cmocka_unit_test(statuses_are_clean),
      cmocka_unit_test(log_lines_are_clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
