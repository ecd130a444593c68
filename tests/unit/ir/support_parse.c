// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_parse.c: see support_parse.h.
#include "tests/unit/ir/support_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

void qn_parse_text(qn_parsed_t* out_parsed, const char* text) {
  qn__diag_init(&out_parsed->diag, qn_allocator_default(), NULL, "test", qn__str(text));
  out_parsed->is_good =
      qn__text_parse(qn__str(text), qn_allocator_default(), &out_parsed->diag, &out_parsed->body);
}

void qn_parsed_release(qn_parsed_t* parsed) {
  qn__body_deinit(&parsed->body);
  qn__diag_deinit(&parsed->diag);
}

void qn_assert_error(const char* text, const char* code) {
  qn_parsed_t p;
  qn_parse_text(&p, text);
  assert_false(p.is_good);
  char head[32];
  (void)snprintf(head, sizeof head, "error[%s]", code);
  const char* said = (const char*)p.diag.text.data;
  if (!said || strncmp(said, head, strlen(head)) != 0 || p.diag.error_count != 1) {
    fail_msg("expected only %s for:\n%s\ngot:\n%s", code, text, said ? said : "nothing");
  }
  qn_parsed_release(&p);
}
