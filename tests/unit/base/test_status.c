// SPDX-License-Identifier: Apache-2.0
// tests/unit/base/test_status.c: statuses, also without memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/alloc.h"

#if defined(__has_feature)
#define QN_HAS_CLANG_SANITIZER (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define QN_HAS_CLANG_SANITIZER 0
#endif

static void carries_code_and_message(void** state) {
  (void)state;
  qn_status_t status = qn_status_make(QN_STATUS_IO, "cannot read %s at %d", "x", 7);
  assert_non_null(status);
  assert_int_equal(qn_status_code(status), QN_STATUS_IO);
  assert_string_equal(qn_status_message(status), "cannot read x at 7");
  status = qn_status_annotate(status, "entry %d", 3);
  assert_string_equal(qn_status_message(status), "entry 3: cannot read x at 7");
  status = qn_status_annotate(status, "%s", "cache");
  assert_string_equal(qn_status_message(status), "cache: entry 3: cannot read x at 7");
  assert_int_equal(qn_status_code(status), QN_STATUS_IO);
  qn_status_t copy = qn_status_clone(status);
  assert_ptr_not_equal(copy, status);
  assert_int_equal(qn_status_consume(status), QN_STATUS_IO);
  assert_string_equal(qn_status_message(copy), "cache: entry 3: cannot read x at 7");
  qn_status_free(copy);
}

static void ok_is_null(void** state) {
  (void)state;
  assert_true(qn_ok(QN_OK));
  assert_int_equal(qn_status_code(QN_OK), QN_STATUS_OK);
  assert_string_equal(qn_status_message(QN_OK), "");
  assert_null(qn_status_annotate(QN_OK, "context"));
  assert_null(qn_status_clone(QN_OK));
  assert_int_equal(qn_status_consume(QN_OK), QN_STATUS_OK);
  qn_status_free(QN_OK);
}

static void every_code_has_a_text(void** state) {
  (void)state;
#define QN_STATUS_CODE(name, value, text, doc) \
  assert_string_equal(qn_status_code_text(QN_STATUS_##name), text);
#include "quern/status.inc"
#undef QN_STATUS_CODE
  assert_string_equal(qn_status_code_text((qn_status_code_t)9999), "unknown code");
}

static void empty_and_long_messages(void** state) {
  (void)state;
  qn_status_t status = qn_status_make(QN_STATUS_SYNTAX, "%s", "");
  assert_string_equal(qn_status_message(status), "");
  status = qn_status_annotate(status, "here");
  assert_string_equal(qn_status_message(status), "here: ");
  qn_status_free(status);
  status = qn_status_make(QN_STATUS_SYNTAX, "%*d", 70000, 5);
  assert_int_equal(strlen(qn_status_message(status)), 70000);
  assert_int_equal(qn_status_message(status)[69999], '5');
  qn_status_free(status);
}

// A process that may have no more memory: the sanitizers cannot live in one.
static void works_without_memory(void** state) {
  (void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !QN_HAS_CLANG_SANITIZER
  struct rlimit old, small;
  assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
  small = old;
  small.rlim_cur = 64u << 20;
  assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
  qn_status_t none = qn_status_make(QN_STATUS_IO, "%*d", 100000000, 1);
  assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
  assert_non_null(none);
  assert_int_equal(qn_status_code(none), QN_STATUS_OUT_OF_MEMORY);
  assert_string_equal(qn_status_message(none), "out of memory");
  assert_ptr_equal(qn_status_clone(none), none);
  qn_status_free(none);
  qn_status_free(none);  // it is shared: nothing happens, however often
  // It is immutable: a context makes a new one.
  qn_status_t longer = qn_status_annotate(none, "here");
  assert_string_equal(qn_status_message(longer), "here: out of memory");
  qn_status_free(longer);
  assert_string_equal(qn_status_message(none), "out of memory");
  // Without memory for the context, the status itself survives.
  qn_status_t kept = qn_status_make(QN_STATUS_IO, "kept");
  assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
  kept = qn_status_annotate(kept, "%*d", 100000000, 1);
  assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
  assert_string_equal(qn_status_message(kept), "kept");
  qn_status_free(kept);
#endif
  qn_status_t status;
  status = qn__out_of_memory("a table");
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
  assert_string_equal(qn_status_message(status), "out of memory for a table");
  qn_status_free(status);
}

// A module has a copy of status.c, and so another object for the want of memory: it is not freed
// here either.
static void the_object_of_a_module(void** state) {
  (void)state;
  static struct {
    int32_t code;
    char message[16];
  } foreign = {-(int32_t)QN_STATUS_OUT_OF_MEMORY, "out of memory"};
  qn_status_t status = (qn_status_t)(void*)&foreign;
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
  assert_string_equal(qn_status_message(status), "out of memory");
  assert_ptr_equal(qn_status_clone(status), status);
  qn_status_free(status);
  assert_int_equal(qn_status_consume(status), QN_STATUS_OUT_OF_MEMORY);
  status = qn_status_annotate(status, "store");
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
  assert_string_equal(qn_status_message(status), "store: out of memory");
  qn_status_free(status);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(carries_code_and_message), cmocka_unit_test(ok_is_null),
      cmocka_unit_test(every_code_has_a_text),    cmocka_unit_test(empty_and_long_messages),
      cmocka_unit_test(works_without_memory),     cmocka_unit_test(the_object_of_a_module),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
