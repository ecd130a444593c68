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
  if (qn_status_code(status) != code || !strstr(qn_status_message(status), part)) {
    print_error("expected code %d and '%s', got code %d: %s\n", code, part, qn_status_code(status),
                qn_status_message(status));
    _fail(file, line);
  }
  qn_status_free(status);
}
