// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_parser_errors.c: tests the parser on refused texts and without memory: limits,
// diagnostics, codes. Each mistake with its message: tests/diagnostics.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "ir/codes.h"
#include "ir/lexer.h"
#include "tests/support/fault.h"
#include "tests/unit/ir/support_parse.h"

// ------------------------------------------------------------------------------------ limits

static void test_limits(void** state) {
  (void)state;
  static char text[200000];
  // 200 levels are fine, 300 are an error and not a crash; so are a hundred thousand.
  for (int kind = 0; kind < 6; kind++) {
    static const char* const open[] = {"(", "-", "!", "x[t[", "if o {", "f32("};
    static const int levels[] = {100, 300, 20000};
    for (int level = 0; level < 3; level++) {
      size_t size =
          (size_t)snprintf(text, sizeof text, "%s%s", QN_PARSE_HEADER, kind == 4 ? "" : "let r = ");
      for (int i = 0; i < levels[level]; i++) {
        size += (size_t)snprintf(text + size, sizeof text - size, "%s", open[kind]);
      }
      qn_parsed_t p;
      qn_parse_text(&p, text);
      bool has_code = strstr((const char*)p.diag.text.data, "QN0129") != NULL;
      assert_false(p.is_good);
      assert_int_equal(has_code, level > 0);
      qn_parsed_release(&p);
    }
  }
  size_t size = (size_t)snprintf(text, sizeof text, "%slet r = k", QN_PARSE_HEADER);
  for (int i = 0; i < 10000; i++) size += (size_t)snprintf(text + size, sizeof text - size, " + 1");
  (void)snprintf(text + size, sizeof text - size, ";\n}\n");
  qn_assert_error(text, "QN0129");
}

static void test_size_limit(void** state) {
  (void)state;
  qn__diag_t diag;
  qn__diag_init(&diag, qn_allocator_default(), NULL, "big", QN_STR(""));
  // Never read: the size alone is refused.
  assert_false(qn__lexer_check((qn_str_t){"", (size_t)1 << 31}, &diag));
  assert_non_null(strstr((const char*)diag.text.data, "QN0100"));
  qn__diag_deinit(&diag);
}

// ------------------------------------------------------------------------------------ diagnostics

typedef struct heard {
  int count;
  qn_severity_t severities[64];
  char codes[64][8];
  uint32_t lines[64];
  uint32_t columns[64];
  uint32_t end_columns[64];
} heard_t;

static void hear(void* self, const qn_diagnostic_t* diagnostic) {
  heard_t* heard = self;
  assert_true(heard->count < 64);
  assert_non_null(diagnostic->help);
  assert_string_equal(diagnostic->source_name, "heard.qn");
  heard->severities[heard->count] = diagnostic->severity;
  (void)snprintf(heard->codes[heard->count], 8, "%s", diagnostic->code);
  heard->lines[heard->count] = diagnostic->line;
  heard->columns[heard->count] = diagnostic->column;
  heard->end_columns[heard->count++] = diagnostic->end_column;
}

static void test_callback_and_error_limit(void** state) {
  (void)state;
  static const char text[] =
      "func f(out y: f32[1]) {\r\n"
      "  assert true, \"\xc3\xa9\"; y[0] = one;\r\n"
      "  let y = 1;\n"
      "  let a = two;\n"
      "  let b = three;\n"
      "}\n";
  heard_t heard = {0};
  qn_parse_options_t options = {.struct_size = sizeof options,
                                .source_name = "heard.qn",
                                .on_diagnostic = hear,
                                .on_diagnostic_self = &heard,
                                .error_limit = 3};
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, sizeof text - 1, &options, &module);
  assert_null(module);
  assert_int_equal(qn_status_code(status), QN_STATUS_SYNTAX);
  assert_non_null(strstr(qn_status_message(status), "too many errors"));
  assert_null(strchr(qn_status_message(status), '\r'));
  qn_status_free(status);
  // one, the second y and its note, two; three is beyond the limit.
  assert_int_equal(heard.count, 4);
  assert_string_equal(heard.codes[0], "QN0103");
  assert_int_equal(heard.lines[0], 2);
  assert_int_equal(heard.columns[0], 28);
  assert_int_equal(heard.end_columns[0], 31);
  assert_string_equal(heard.codes[1], "QN0113");
  assert_int_equal(heard.severities[2], QN_SEVERITY_NOTE);
  assert_string_equal(heard.codes[2], "");
  assert_int_equal(heard.lines[2], 1);
  assert_string_equal(heard.codes[3], "QN0103");
  assert_int_equal(heard.lines[3], 4);
}

static void test_codes_are_unique(void** state) {
  (void)state;
  static const char* const codes[] = {
#define QN_CODE(name, code, doc) code,
#include "ir/codes.inc"
#undef QN_CODE
  };
  for (size_t i = 0; i < QN_COUNT_OF(codes); i++) {
    for (size_t j = 0; j < i; j++) assert_string_not_equal(codes[i], codes[j]);
    assert_string_equal(codes[i], qn__code((qn__ir_code_t)i));
  }
}

// ------------------------------------------------------------------------------------ memory

static const char everything[] = QN_PARSE_HEADER
    "let v = exp(a) * 2.0;\n"
    "alloc l: f32[4] in local;\n"
    "const c: f32[2] = [1.0, -2.5];\n"
    "view w: f32[2] strides [2] = l[0];\n"
    "for i in 0..n { if o { y[i, 0] = select(o, v, l[1]); } else { l[0] = c[0]; } }\n"
    "let s = sum j in 0..m { let e = x[0, j]; e * e };\n"
    "while o { assert k < 3, \"message\"; }\n"
    "}\nfunc g() {\n}\n";

static bool parse_once(qn_allocator_t allocator, void* user) {
  const char* text = user;
  qn__diag_t diag;
  qn__ir_body_t body;
  qn__diag_init(&diag, allocator, NULL, "test", qn__str(text));
  bool is_good = qn__text_parse(qn__str(text), allocator, &diag, &body);
  qn_status_t status = qn__diag_status(&diag, QN_STATUS_SYNTAX);
  qn_status_code_t code = qn_status_consume(status);
  qn__body_deinit(&body);
  qn__diag_deinit(&diag);
  bool is_broken = strstr(text, "bta") != NULL;
  qn_status_code_t wanted = is_broken ? QN_STATUS_SYNTAX : QN_STATUS_OK;
  return is_good == (code == QN_STATUS_OK) && (code == wanted || code == QN_STATUS_OUT_OF_MEMORY);
}

static void test_out_of_memory(void** state) {
  (void)state;
  static char good[sizeof everything];
  memcpy(good, everything, sizeof everything);
  assert_true(qn_fault_walk_alloc(parse_once, good) > 3);
  static char broken[] = QN_PARSE_HEADER "let v = bta + alhpa;\ny[0, 0] = v +;\nlet v = f32(;\n}\n";
  assert_true(qn_fault_walk_alloc(parse_once, broken) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_limits),
      cmocka_unit_test(test_size_limit),
      cmocka_unit_test(test_callback_and_error_limit),
      cmocka_unit_test(test_codes_are_unique),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
