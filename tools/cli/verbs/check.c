// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/check.c: `quern check`: parses and verifies files and shows every diagnostic.
#include <string.h>

#include "quern/ir.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

typedef struct checked_file {
  json_t* diagnostics;
  int error_count;
  int warning_count;
} checked_file_t;

static const char* severity_text(qn_severity_t severity) {
  return severity == QN_SEVERITY_WARNING ? "warning"
         : severity == QN_SEVERITY_NOTE  ? "note"
                                         : "error";
}

static void take_diagnostic(void* self, const qn_diagnostic_t* diagnostic) {
  checked_file_t* file = self;
  if (diagnostic->severity == QN_SEVERITY_ERROR) file->error_count++;
  if (diagnostic->severity == QN_SEVERITY_WARNING) file->warning_count++;
  json_array_append_new(
      file->diagnostics,
      json_record("severity:s code:s message:s help:s line:d column:d end_column:d",
                  severity_text(diagnostic->severity), diagnostic->code, diagnostic->message,
                  diagnostic->help, diagnostic->line, diagnostic->column, diagnostic->end_column));
}

static json_t* functions_json(const qn_module_t* module) {
  json_t* functions = json_array();
  for (size_t i = 0; module && i < qn_module_function_count(module); i++) {
    json_array_append_new(functions, json_text(qn_module_function_signature(module, i)));
  }
  return functions;
}

static json_t* digest_json(const qn_module_t* module) {
  if (!module) return json_null();
  char text[33];
  const uint8_t* digest = qn_module_digest(module);
  for (int i = 0; i < 16; i++) (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
  return json_string(text);
}

static void print_good(const char* path, const qn_module_t* module) {
  const style_t* style = style_of(stdout);
  print(stdout, "%s: %sok%s\n", path, style->green, style->plain);
  for (size_t i = 0; i < qn_module_function_count(module); i++) {
    print(stdout, "  %s\n", qn_module_function_signature(module, i));
  }
}

// Checks one file, adds its object to `files`, and returns the exit code.
static int check_file(const args_t* args, const char* path, json_t* files) {
  checked_file_t file = {.diagnostics = json_array()};
  qn_module_t* module = NULL;
  qn_status_t status = session_module(args, path, take_diagnostic, &file, &module);
  int code = exit_code_of(qn_status_code(status));
  bool is_ok = qn_ok(status);
  json_t* entry = json_record("file:s is_ok:b functions:o digest:o diagnostics:o", path, is_ok,
                              functions_json(module), digest_json(module), file.diagnostics);
  if (!is_ok && file.error_count == 0) {
    // The error is not about the text: the file cannot be read.
    json_object_set_new(entry, "error", json_text(qn_status_message(status)));
  }
  json_array_append_new(files, entry);
  if (args->is_json) {
    qn_status_free(status);
  } else if (is_ok) {
    print_good(path, module);
  } else if (file.error_count > 0) {
    report_diagnostics(path, file.error_count, status);
  } else {
    (void)report_status_text(status);
  }
  qn_module_release(module);
  return code;
}

static int run_check(const args_t* args) {
  json_t* files = json_array();
  int worst = EXIT_DONE;
  for (int i = 0; i < args->operand_count; i++) {
    int code = check_file(args, args->operands[i], files);
    if (code > worst) worst = code;
  }
  report_json(args, json_record("is_ok:b files:o", worst == EXIT_DONE, files));
  return worst;
}

const verb_t verb_check = {
    .name = "check",
    .summary = "parse and verify modules",
    .operands = "FILE.qn...",
    .min_operands = 1,
    .max_operands = -1,
    VERB_OPTIONS(OPTION_SET, OPTION_JSON),
    .help =
        "Shows every mistake with its place and, where possible, what to write instead. The exit\n"
        "code is 1 when a file has one. --json gives the diagnostics as a list for editors; lines\n"
        "and columns count from 1, in characters. FILE '-' is standard input.\n",
    .examples =
        "  quern check examples/ir/saxpy.qn examples/ir/softmax.qn\n"
        "  quern check examples/ir/softmax.qn --json\n",
    .run = run_check,
};
