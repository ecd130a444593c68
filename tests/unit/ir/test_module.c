// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_module.c: tests the life cycle of a module and its public functions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <pthread.h>

#include "base/base.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

static void a_module_describes_itself(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func first(a: f32, x: f32[n, m] align 64, inout z: i8[n], out y: bf16[]) {}\n"
      "func second() {}\n");
  assert_int_equal(qn_module_function_count(module), 2);
  assert_string_equal(qn_module_function_name(module, 0), "first");
  assert_string_equal(qn_module_function_name(module, 1), "second");
  assert_null(qn_module_function_name(module, 2));
  assert_null(qn_module_function_signature(module, 2));
  assert_int_equal(qn_module_function_param_count(module, 0), 4);
  assert_int_equal(qn_module_function_param_count(module, 1), 0);
  assert_int_equal(qn_module_function_param_count(module, 9), 0);
  assert_string_equal(qn_module_function_signature(module, 1), "second()");
  qn_param_info_t info = {.struct_size = sizeof info};
  assert_true(qn_ok(qn_module_param_info(module, 0, 0, &info)));
  assert_string_equal(info.name, "a");
  assert_false(info.is_buffer);
  assert_int_equal(info.dtype, QN_DTYPE_F32);
  assert_int_equal(info.access, QN_ACCESS_NONE);
  assert_true(qn_ok(qn_module_param_info(module, 0, 1, &info)));
  assert_true(info.is_buffer);
  assert_int_equal(info.access, QN_ACCESS_IN);
  assert_int_equal(info.rank, 2);
  assert_int_equal(info.align_bytes, 64);
  assert_true(qn_ok(qn_module_param_info(module, 0, 2, &info)));
  assert_int_equal(info.access, QN_ACCESS_INOUT);
  assert_int_equal(info.align_bytes, 1);
  assert_true(qn_ok(qn_module_param_info(module, 0, 3, &info)));
  assert_int_equal(info.access, QN_ACCESS_OUT);
  assert_int_equal(info.rank, 0);
  assert_int_equal(info.align_bytes, 2);
  qn_status_t status = qn_module_param_info(module, 0, 4, &info);
  assert_string_equal(qn_status_message(status), "parameter 4 of 'first', which has 4");
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  assert_null(info.name);
  status = qn_module_param_info(module, 2, 0, &info);
  assert_string_equal(qn_status_message(status), "function 2 of a module that has 2");
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  qn_module_release(module);
}

static void bad_arguments_are_errors(void** state) {
  (void)state;
  qn_module_t* module = NULL;
  qn_parse_options_t options = {.struct_size = 3};
  qn_status_t status = qn_module_parse("", 0, &options, &module);
  assert_null(module);
  assert_non_null(strstr(qn_status_message(status), "struct_size is 3"));
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  status = qn_module_parse(NULL, 4, NULL, &module);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  status = qn_module_decode(NULL, 4, NULL, &module);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  status = qn_module_parse(" ", SIZE_MAX, NULL, &module);
  assert_non_null(strstr(qn_status_message(status), "the limit is"));
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  status = qn_module_parse("func", 4, NULL, &module);
  assert_int_equal(qn_status_consume(status), QN_STATUS_SYNTAX);
  status = qn_module_parse("func f() { barrier; }", 21, NULL, &module);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_MODULE);
  assert_null(module);
  qn_module_release(NULL);
  qn_text_free(NULL);
}

typedef struct seen {
  int count;
  char code[8];
  uint32_t line;
  uint32_t column;
} seen_t;

static void see(void* self, const qn_diagnostic_t* diagnostic) {
  seen_t* seen = self;
  if (seen->count++ > 0) return;
  (void)memcpy(seen->code, diagnostic->code, 7);
  seen->line = diagnostic->line;
  seen->column = diagnostic->column;
}

// What the verifier finds reaches the callback as what the parser finds does.
static void diagnostics_are_called_back(void** state) {
  (void)state;
  seen_t seen = {0};
  qn_parse_options_t options = {.struct_size = sizeof options,
                                .source_name = "some.qn",
                                .on_diagnostic = see,
                                .on_diagnostic_self = &seen};
  const char text[] = "func f(x: f32[n]) {\n  for i in 0..n {\n    x[i] = 1.0;\n  }\n}\n";
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, sizeof text - 1, &options, &module);
  assert_non_null(strstr(qn_status_message(status), "some.qn:3:5"));
  qn_status_free(status);
  assert_int_equal(seen.count, 2);  // and the note
  assert_string_equal(seen.code, "QN0214");
  assert_int_equal(seen.line, 3);
  assert_int_equal(seen.column, 5);
}

static void* retain_and_release(void* user) {
  qn_module_t* module = user;
  for (int i = 0; i < 20000; i++) {
    qn_module_retain(module);
    assert_int_equal(qn_module_function_count(module), 1);
    qn_module_release(module);
  }
  qn_module_release(module);
  return NULL;
}

static void handles_are_counted_across_threads(void** state) {
  (void)state;
  qn_module_t* module = must_parse("func f() {}");
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    qn_module_retain(module);
    assert_int_equal(pthread_create(&threads[i], NULL, retain_and_release, module), 0);
  }
  qn_module_release(module);
  for (int i = 0; i < 4; i++) (void)pthread_join(threads[i], NULL);
}

static void printing_gives_the_canonical_text(void** state) {
  (void)state;
  qn_module_t* module = must_parse("func f(out x:f32[2]){x[0]=1.0;}");
  char* text = NULL;
  size_t size = 0;
  assert_true(qn_ok(qn_module_print(module, &text, &size)));
  assert_int_equal(strlen(text), size);
  assert_string_equal(text, "func f(out x: f32[2]) {\n  x[0] = 1.0;\n}\n");
  qn_text_free(text);
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_module_describes_itself),
      cmocka_unit_test(bad_arguments_are_errors),
      cmocka_unit_test(diagnostics_are_called_back),
      cmocka_unit_test(handles_are_counted_across_threads),
      cmocka_unit_test(printing_gives_the_canonical_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
