// SPDX-License-Identifier: Apache-2.0
// tests/support/filter.c: runs only the tests whose names match CMOCKA_TEST_FILTER, a pattern with
// * and ?.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdlib.h>

__attribute__((constructor)) static void set_filter(void) {
  const char* filter = getenv("CMOCKA_TEST_FILTER");
  if (filter) cmocka_set_test_filter(filter);
}
