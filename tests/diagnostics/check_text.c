// SPDX-License-Identifier: Apache-2.0
// tests/diagnostics/check_text.c: parses one text and prints what the library says about it, for
// FileCheck. `check_text FILE` names the text by its last path component.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/ir.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: check_text FILE\n");
    return 2;
  }
  FILE* file = fopen(argv[1], "rb");
  if (!file) {
    fprintf(stderr, "cannot open '%s'\n", argv[1]);
    return 2;
  }
  static char text[1 << 20];
  size_t size = fread(text, 1, sizeof text, file);
  fclose(file);
  const char* slash = strrchr(argv[1], '/');
  qn_parse_options_t options = {.struct_size = sizeof options};
  options.source_name = slash ? slash + 1 : argv[1];
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, size, &options, &module);
  if (qn_ok(status)) {
    printf("ok\n");
  } else {
    printf("%s\n", qn_status_message(status));
  }
  qn_status_free(status);
  qn_module_release(module);
  return 0;
}
