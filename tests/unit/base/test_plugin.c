// SPDX-License-Identifier: Apache-2.0
// tests/unit/base/test_plugin.c: tests the search path of plugins, and the messages for missing and
// invalid ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/plugin.h"
#include "tests/support/tempdir.h"

static char folder[QN_TEST_PATH_SIZE];

static int set_up(void** state) {
  (void)state;
  return qn_test_tempdir_make(folder) ? 0 : -1;
}
static int tear_down(void** state) {
  (void)state;
  qn_test_tempdir_remove(folder);
  return 0;
}

static void expect_unavailable(const char* directory, const char* name, const char* symbol,
                               const char* text) {
  void* found = folder;
  qn_status_t status = qn__plugin_open(directory, name, symbol, &found);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  assert_null(found);
  assert_non_null(strstr(qn_status_message(status), text));
  qn_status_free(status);
}

static void listed_folders_come_first(void** state) {
  (void)state;
  char path[PATH_MAX], expected[QN_TEST_PATH_SIZE + 64], own[PATH_MAX];
  char list[2 * QN_TEST_PATH_SIZE + 8], closed[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(expected, sizeof expected, "%s/libquern-sodium.so", folder);
  (void)snprintf(list, sizeof list, "%s/a::%s", folder, folder);
  (void)snprintf(closed, sizeof closed, "%s:none", folder);
  const bool is_built = qn__plugin_find("", "sodium", own);
  assert_int_equal(qn__plugin_find(folder, "sodium", path), is_built);
  assert_string_equal(path, is_built ? own : expected);
  assert_false(qn__plugin_find(closed, "sodium", path));
  assert_string_equal(path, expected);
  assert_false(qn__plugin_find("none", "sodium", path));
  assert_string_equal(path, "libquern-sodium.so");
  expect_unavailable(closed, "sodium", "x", expected);
  assert_true(qn_test_write_file(expected, "no module", 9));
  assert_true(qn__plugin_find(folder, "sodium", path));
  assert_string_equal(path, expected);
  assert_true(qn__plugin_find(list, "sodium", path));
  assert_string_equal(path, expected);
  expect_unavailable(closed, "sodium", "x", "cannot be loaded");
}

static void the_search_begins_beside_the_library(void** state) {
  (void)state;
  char path[PATH_MAX], own[PATH_MAX];
  assert_true(qn__library_folder(own));
  assert_int_equal(access(own, X_OK), 0);
  assert_false(qn__plugin_find("", "no-such-module", path));
  assert_memory_equal(path, own, strlen(own));
  assert_non_null(strstr(path, "/libquern-no-such-module.so"));
  expect_unavailable("", "no-such-module", "x", "is not installed");
  if (!qn__plugin_find("", "sodium", path)) skip();
  assert_int_equal(access(path, R_OK), 0);
  expect_unavailable("", "sodium", "no_such_symbol", "no_such_symbol");
  void* entry;
  assert_true(qn_ok(qn__plugin_open("", "sodium", "qn_crypto_entry", &entry)));
  assert_non_null(entry);
}

// Checks that plugins are not searched relative to argv[0], which the caller can choose freely.
static void the_name_of_a_program_leads_nowhere(void** state) {
  (void)state;
  char own[PATH_MAX], called[QN_TEST_PATH_SIZE + 16], answer[PATH_MAX] = "";
  assert_true(qn__library_folder(own));
  (void)snprintf(called, sizeof called, "%s/quern", folder);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    char* const arguments[] = {called, (char[]){"folder"}, NULL};
    (void)dup2(ends[1], STDOUT_FILENO);
    (void)execv("/proc/self/exe", arguments);
    _exit(100);
  }
  (void)close(ends[1]);
  FILE* output = fdopen(ends[0], "r");
  assert_non_null(output);
  assert_non_null(fgets(answer, sizeof answer, output));
  (void)fclose(output);
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_string_equal(answer, own);
}

static int print_folder(void) {
  char own[PATH_MAX];
  return qn__library_folder(own) && fputs(own, stdout) >= 0 ? 0 : 1;
}

static void names_and_folders_that_are_too_long(void** state) {
  (void)state;
  char path[PATH_MAX], name[80], directory[PATH_MAX];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  assert_false(qn__plugin_find(folder, name, path));
  assert_true(strlen(path) < PATH_MAX);
  memset(directory, 'd', sizeof directory - 1);
  directory[sizeof directory - 1] = '\0';
  memcpy(directory + sizeof directory - 1 - strlen(":none"), ":none", strlen(":none"));
  assert_false(qn__plugin_find(directory, "sodium", path));
  assert_string_equal(path, "libquern-sodium.so");
  expect_unavailable(directory, "sodium", "x", "libquern-sodium.so");
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "folder") == 0) return print_folder();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(listed_folders_come_first, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_search_begins_beside_the_library, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_name_of_a_program_leads_nowhere, set_up, tear_down),
      cmocka_unit_test_setup_teardown(names_and_folders_that_are_too_long, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("plugin", tests, NULL, NULL);
}
