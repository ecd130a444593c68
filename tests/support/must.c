// SPDX-License-Identifier: Apache-2.0
// tests/support/must.c: see must.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "tests/support/must.h"

void must_at(qn_status_t status, const char* file, int line) {
  if (qn_ok(status)) return;
  print_error("%s\n", qn_status_message(status));
  _fail(file, line);
}

void must_fail_at(qn_status_t status, qn_status_code_t code, const char* part, const char* file,
                  int line) {
  const char* message = qn_status_message(status);
  if (qn_status_code(status) != code || (part && !strstr(message, part))) {
    print_error("expected %s with '%s', got %s: %s\n", qn_status_code_text(code), part ? part : "",
                qn_status_code_text(qn_status_code(status)), message);
    _fail(file, line);
  }
  qn_status_free(status);
}
