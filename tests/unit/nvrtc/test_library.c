// SPDX-License-Identifier: Apache-2.0
// tests/unit/nvrtc/test_library.c: finding and opening libnvrtc: none, a damaged one, another
// library; the identity that the engine predicts; a text that does not compile.
#define _GNU_SOURCE  // dladdr
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
// cmocka.h needs those above.
#include <cmocka.h>

#include "base/fs.h"
#include "jit/identity/nvrtc_place.h"
#include "tests/support/tempdir.h"
#include "tests/unit/nvrtc/support_nvrtc.h"

static void assert_has(const char* text, const char* part) {
  if (!strstr(text, part)) (void)fprintf(stderr, "no '%s' in: %s\n", part, text);
  assert_non_null(strstr(text, part));
}

static void assert_unavailable(const char* path, const char* word) {
  assert_int_equal(setenv("QUERN_NVRTC_LIBRARY", path, 1), 0);
  qn__nvrtc_t* nvrtc;
  qn_status_t status = qn__nvrtc_create(qn_allocator_default(), &nvrtc);
  assert_null(nvrtc);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  assert_has(qn_status_message(status), word);
  assert_has(qn_status_message(status), path);
  qn_status_free(status);
  assert_int_equal(unsetenv("QUERN_NVRTC_LIBRARY"), 0);
}

static void missing_library_says_what_was_tried(void** state) {
  (void)state;
  assert_unavailable("/nowhere/libnvrtc.so", "QUERN_NVRTC_LIBRARY");
  // A relative one would be another file for each working directory.
  assert_unavailable("libnvrtc.so", "absolute path");
}

static void no_library_at_all(void** state) {
  (void)state;
  char folder[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(folder));
  char path[PATH_MAX];
  qn__buffer_t tried;
  qn__buffer_init(&tried, qn_allocator_default());
  assert_int_equal(setenv("CUDA_HOME", folder, 1), 0);
  bool is_found = qn__nvrtc_find(path, &tried);
  assert_has((const char*)tried.data, folder);
  if (!is_found) assert_string_equal(path, "");
  assert_int_equal(unsetenv("CUDA_HOME"), 0);
  qn__buffer_deinit(&tried);
  qn_test_tempdir_remove(folder);
}

static void damaged_library_is_unavailable(void** state) {
  (void)state;
  char folder[QN_TEST_PATH_SIZE], path[QN_TEST_PATH_SIZE + 32];
  assert_true(qn_test_tempdir_make(folder));
  (void)snprintf(path, sizeof path, "%s/libnvrtc.so", folder);
  assert_true(qn_test_write_file(path, "\177ELF and then nothing", 20));
  assert_unavailable(path, "cannot be loaded");
  char id[QN__BUILD_ID_HEX_BYTES];
  bool is_expected;
  assert_int_equal(setenv("QUERN_NVRTC_LIBRARY", path, 1), 0);
  assert_false(qn__compiler_library_id("nvrtc", id, &is_expected));
  assert_true(is_expected);
  assert_int_equal(unsetenv("QUERN_NVRTC_LIBRARY"), 0);
  qn_test_tempdir_remove(folder);
}

static void another_library_is_unavailable(void** state) {
  (void)state;
  double (*function)(double) = cos;
  const void* address;
  memcpy(&address, &function, sizeof address);
  Dl_info info;
  assert_true(dladdr(address, &info) != 0);
  if (!info.dli_fname || info.dli_fname[0] != '/') skip();
  assert_unavailable(info.dli_fname, "it has no nvrtcVersion");
}

static void folders_are_searched_in_order(void** state) {
  (void)state;
  char folder[QN_TEST_PATH_SIZE], path[PATH_MAX], command[8 * QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(folder));
  (void)snprintf(command, sizeof command,
                 "mkdir -p %s/cuda/lib64 %s/env/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib "
                 "%s/env/lib/python3.11/site-packages/nvidia/cu13/lib && "
                 "touch %s/cuda/lib64/libnvrtc.so.12 %s/cuda/lib64/libnvrtc.so.13",
                 folder, folder, folder, folder, folder);
  assert_int_equal(system(command), 0);
  char expected[PATH_MAX];
  assert_int_equal(setenv("CUDA_PATH", "/nowhere", 1), 0);
  (void)snprintf(path, sizeof path, "%s/cuda", folder);
  assert_int_equal(setenv("CUDA_HOME", path, 1), 0);
  assert_true(qn__nvrtc_find(path, NULL));
  (void)snprintf(expected, sizeof expected, "%s/cuda/lib64/libnvrtc.so.13", folder);
  assert_string_equal(path, expected);
  (void)unsetenv("CUDA_HOME");
  (void)unsetenv("CUDA_PATH");
  qn_test_tempdir_remove(folder);
}

static char version_file[QN_TEST_PATH_SIZE + 16];
static const qn__fs_t* true_fs;
static int open_version(const char* path, int flags, mode_t mode) {
  return true_fs->open(strcmp(path, QN__NVIDIA_VERSION_FILE) == 0 ? version_file : path, flags,
                       mode);
}

// Checks that a library too new for the machine's driver is used only if there is no other.
static void driver_is_looked_at(void** state) {
  (void)state;
  char folder[QN_TEST_PATH_SIZE], path[PATH_MAX], command[8 * QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(folder));
  (void)snprintf(command, sizeof command,
                 "mkdir -p %s/new/lib64 %s/old/lib64 && touch %s/new/lib64/libnvrtc.so "
                 "%s/new/lib64/libnvrtc.so.13 %s/old/lib64/libnvrtc.so.12",
                 folder, folder, folder, folder, folder);
  assert_int_equal(system(command), 0);
  (void)snprintf(path, sizeof path, "%s/new", folder);
  assert_int_equal(setenv("CUDA_HOME", path, 1), 0);
  (void)snprintf(path, sizeof path, "%s/old", folder);
  assert_int_equal(setenv("CUDA_PATH", path, 1), 0);
  (void)snprintf(version_file, sizeof version_file, "%s/version", folder);
  true_fs = qn__fs();
  qn__fs_t fs = *true_fs;
  fs.open = open_version;
  qn__fs_install(&fs);
  const struct {
    const char* version;  // NULL: no driver
    const char* library;
  } cases[] = {{NULL, "/new/lib64/libnvrtc.so.13"},
               {"580.159.03\n", "/new/lib64/libnvrtc.so.13"},
               {"570.86.15\n", "/old/lib64/libnvrtc.so.12"},
               {"525.60\n", "/old/lib64/libnvrtc.so.12"},
               {"900.1\n", "/new/lib64/libnvrtc.so.13"},
               {"not a number\n", "/new/lib64/libnvrtc.so.13"}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    const char* version = cases[i].version;
    if (version) assert_true(qn_test_write_file(version_file, version, strlen(version)));
    assert_true(qn__nvrtc_find(path, NULL));
    assert_int_equal(strncmp(path, folder, strlen(folder)), 0);
    assert_string_equal(path + strlen(folder), cases[i].library);
  }
  qn__fs_install(NULL);
  (void)unsetenv("CUDA_HOME");
  (void)unsetenv("CUDA_PATH");
  qn_test_tempdir_remove(folder);
}

static void identity_is_what_the_engine_predicts(void** state) {
  (void)state;
  qn__nvrtc_t* nvrtc = nvrtc_or_null(qn_allocator_default());
  if (!nvrtc) skip();
  char id[QN__BUILD_ID_HEX_BYTES];
  bool is_expected;
  assert_true(qn__compiler_library_id("nvrtc", id, &is_expected));
  assert_true(is_expected);
  assert_has(nvrtc->identity, "nvrtc ");
  assert_has(nvrtc->identity, id);
  qn__nvrtc_destroy(nvrtc);
}

// What the loader does not find by name serves when it lies beside libnvrtc, as in the PyPI
// package.
static void builtins_are_taken_from_beside(void** state) {
  (void)state;
  qn__nvrtc_library_t library;
  qn_status_t status = qn__nvrtc_open(qn_allocator_default(), &library);
  if (!qn_ok(status)) {
    qn_status_free(status);
    skip();
  }
  char path[PATH_MAX + 64];
  char* slash = strrchr(library.path, '/');
  assert_non_null(slash);
  (void)snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - library.path),
                 library.path, library.major, library.minor);
  if (access(path, R_OK) != 0) skip();
  assert_non_null(dlopen(path, RTLD_NOW | RTLD_NOLOAD));
}

static void wrong_text_is_internal(void** state) {
  (void)state;
  qn__nvrtc_t* nvrtc = nvrtc_or_null(qn_allocator_default());
  if (!nvrtc) skip();
  qn__buffer_t out, log;
  qn__buffer_init(&out, qn_allocator_default());
  qn__buffer_init(&log, qn_allocator_default());
  qn__nvrtc_options_t options = {.arch = "sm_80"};
  qn_status_t status = qn__nvrtc_compiler_compile(nvrtc->compiler, &options, "quern.cu",
                                                  "\n\nint f() { return nonsense; }\n", &out, &log);
  assert_int_equal(qn_status_code(status), QN_STATUS_INTERNAL);
  assert_int_equal(out.size, 0);
  assert_has((const char*)log.data, "quern.cu(3): error: identifier \"nonsense\" is undefined");
  qn_status_free(status);
  qn__buffer_deinit(&out);
  qn__buffer_deinit(&log);
  qn__nvrtc_destroy(nvrtc);
}

int main(void) {
  nvrtc_use_build_folder();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(missing_library_says_what_was_tried),
      cmocka_unit_test(no_library_at_all),
      cmocka_unit_test(damaged_library_is_unavailable),
      cmocka_unit_test(another_library_is_unavailable),
      cmocka_unit_test(folders_are_searched_in_order),
      cmocka_unit_test(driver_is_looked_at),
      cmocka_unit_test(identity_is_what_the_engine_predicts),
      cmocka_unit_test(builtins_are_taken_from_beside),
      cmocka_unit_test(wrong_text_is_internal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
