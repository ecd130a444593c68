// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_verify.c: see support_verify.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "tests/unit/ir/support_verify.h"

void qn__expect_verify(const qn_verify_case_t* expected) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(expected->text, strlen(expected->text), NULL, &module);
  const char* message = qn_status_message(status);
  if (!expected->code) {
    if (!qn_ok(status)) fail_msg("%s\n%s", expected->text, message);
    qn_module_release(module);
    return;
  }
  if (qn_ok(status)) fail_msg("%s\nis valid, expected %s", expected->text, expected->code);
  assert_null(module);
  const char* at = strstr(message, expected->code);
  if (!at || !strstr(at, expected->part)) {
    fail_msg("%s\nexpected %s \"%s\" in\n%s", expected->text, expected->code, expected->part,
             message);
  }
  qn_status_free(status);
}
