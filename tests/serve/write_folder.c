// SPDX-License-Identifier: Apache-2.0
// tests/serve/write_folder.c: writes a small made-up model, for scripts: serve_write_folder FOLDER.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/serve/support_folder.h"

static const char* folder;

static void write_all(void** state) {
  (void)state;
  folder_write_file(folder, "README", "a made-up model for tests\n");
  folder_write(folder, &folder_config, 3, NULL);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  folder = argv[1];
  const struct CMUnitTest steps[] = {cmocka_unit_test(write_all)};
  return cmocka_run_group_tests_name("model", steps, NULL, NULL);
}
