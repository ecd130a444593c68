// SPDX-License-Identifier: Apache-2.0
// tests/support/must.h: expectations on statuses, which every cmocka test shares.
//
// A failure names the line of the test, not one in here. Include it after cmocka.h.
#ifndef QUERN_TESTS_SUPPORT_MUST_H_
#define QUERN_TESTS_SUPPORT_MUST_H_

#include <string.h>

#include "quern/ir.h"
#include "quern/status.h"

// Fails the test unless `status` is ok.
#define must(status) must_at((status), __FILE__, __LINE__)
// Fails the test unless `status` has `code` and its message contains `part`, or `part` is
// NULL. Frees the status.
#define must_fail(status, code, part) must_fail_at((status), (code), (part), __FILE__, __LINE__)

void must_at(qn_status_t status, const char* file, int line);
void must_fail_at(qn_status_t status, qn_status_code_t code, const char* part, const char* file,
                  int line);

// Parses a terminated text that must be valid. Owned: qn_module_release.
#define must_parse(text) must_parse_at((text), __FILE__, __LINE__)

// Inline, because not every test links the parser.
static inline qn_module_t* must_parse_at(const char* text, const char* file, int line) {
  qn_module_t* module = NULL;
  must_at(qn_module_parse(text, strlen(text), NULL, &module), file, line);
  return module;
}

#endif  // QUERN_TESTS_SUPPORT_MUST_H_
