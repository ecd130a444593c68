// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_print.c: see support_print.h.
#include "tests/unit/ir/support_print.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

void must_parse_body(const char* text, qn__ir_body_t* out_body) {
  qn__diag_t diag;
  qn__diag_init(&diag, qn_allocator_default(), NULL, "test", qn__str(text));
  if (!qn__text_parse(qn__str(text), qn_allocator_default(), &diag, out_body)) {
    fail_msg("%s\n%s", text, (const char*)diag.text.data);
  }
  qn__diag_deinit(&diag);
}

char* qn_print_twice(const qn__ir_body_t* body) {
  qn__buffer_t first;
  qn__buffer_t second;
  qn__buffer_init(&first, qn_allocator_default());
  qn__buffer_init(&second, qn_allocator_default());
  qn__text_print(body, &first);
  assert_false(first.has_failed);
  qn__ir_body_t again;
  must_parse_body((const char*)first.data, &again);
  qn__text_print(&again, &second);
  assert_string_equal((const char*)first.data, (const char*)second.data);
  qn__body_deinit(&again);
  qn__buffer_deinit(&second);
  char* formatted = qn_must_format((const char*)first.data);
  assert_string_equal((const char*)first.data, formatted);
  qn_text_free(formatted);
  char* text = strdup((const char*)first.data);
  qn__buffer_deinit(&first);
  return text;
}

char* qn_print_text(const char* text) {
  qn__ir_body_t body;
  must_parse_body(text, &body);
  char* printed = qn_print_twice(&body);
  qn__body_deinit(&body);
  return printed;
}

char* qn_must_format(const char* text) {
  char* out = NULL;
  size_t size = 0;
  qn_status_t status = qn_text_format(text, strlen(text), NULL, &out, &size);
  if (!qn_ok(status)) fail_msg("%s\n%s", text, qn_status_message(status));
  assert_int_equal(size, strlen(out));
  char* twice = NULL;
  assert_true(qn_ok(qn_text_format(out, size, NULL, &twice, NULL)));
  assert_string_equal(out, twice);
  qn_text_free(twice);
  return out;
}

void qn_assert_lines_fit(const char* text) {
  for (const char* line = text; *line;) {
    size_t size = strcspn(line, "\n");
    if (size > 100) fail_msg("a line of %zu columns:\n%.*s", size, (int)size, line);
    line += size + (line[size] == '\n');
  }
}
