// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/fmt.c: `quern fmt`: prints module text in its canonical layout.
#include <string.h>

#include "quern/ir.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

static void count_error(void* self, const qn_diagnostic_t* diagnostic) {
  if (diagnostic->severity == QN_SEVERITY_ERROR) ++*(int*)self;
}

static qn_status_t format_file(const args_t* args, const char* path, bool* out_is_changed,
                               int* out_error_count, json_t* entry) {
  text_t text;
  qn_status_t status = text_read(path, &text);
  if (!qn_ok(status)) return status;
  bool is_stdin = strcmp(path, "-") == 0;
  qn_parse_options_t options = {.struct_size = sizeof options,
                                .source_name = is_stdin ? "<stdin>" : path,
                                .on_diagnostic = count_error,
                                .on_diagnostic_self = out_error_count};
  char* formatted = NULL;
  size_t size = 0;
  status = args_has(args, "types")
               ? qn_text_format_types(text.data, text.size, &options, &formatted, &size)
               : qn_text_format(text.data, text.size, &options, &formatted, &size);
  if (*out_error_count == 0) status = qn_status_annotate(status, "%s", path);
  if (qn_ok(status)) {
    *out_is_changed = size != text.size || memcmp(formatted, text.data, size) != 0;
    if (args_has(args, "check")) {
      // Nothing is written.
    } else if (args_has(args, "in-place")) {
      if (*out_is_changed) status = text_write(path, formatted, size);
    } else if (args->is_json) {
      json_object_set_new(entry, "text", json_text(formatted));
    } else {
      status = text_write("-", formatted, size);
    }
    qn_text_free(formatted);
  }
  text_free(&text);
  return status;
}

static int run_fmt(const args_t* args) {
  bool is_check = args_has(args, "check"), is_in_place = args_has(args, "in-place");
  if (is_check && is_in_place) {
    return report_usage(args, "--check and --in-place exclude each other");
  }
  for (int i = 0; i < args->operand_count && is_in_place; i++) {
    if (strcmp(args->operands[i], "-") == 0) {
      return report_usage(args, "standard input cannot be changed in place");
    }
  }
  json_t* files = json_array();
  int worst = EXIT_DONE;
  for (int i = 0; i < args->operand_count; i++) {
    const char* path = args->operands[i];
    bool is_changed = false;
    int error_count = 0;
    json_t* entry = json_record("file:s", path);
    qn_status_t status = format_file(args, path, &is_changed, &error_count, entry);
    int code = exit_code_of(qn_status_code(status));
    if (qn_ok(status)) {
      json_object_set_new(entry, "is_changed", json_boolean(is_changed));
    } else {
      json_object_set_new(entry, "error", json_text(qn_status_message(status)));
      if (error_count > 0) {
        report_diagnostics(path, error_count, status);
      } else {
        (void)report_status_text(status);
      }
    }
    json_array_append_new(files, entry);
    if (code == EXIT_DONE && is_changed && is_check) code = EXIT_WRONG;
    bool is_told = is_changed && !args->is_json;
    if (is_told && code == EXIT_WRONG) print(stdout, "%s: not formatted\n", path);
    if (is_told && code == EXIT_DONE && is_in_place) print(stdout, "%s: formatted\n", path);
    if (code > worst) worst = code;
  }
  report_json(args, json_record("files:o", files));
  return worst;
}

const verb_t verb_fmt = {
    .name = "fmt",
    .summary = "format module text",
    .operands = "FILE.qn...",
    .min_operands = 1,
    .max_operands = -1,
    VERB_OPTIONS(FLAG("check", "write nothing; exit code 1 when a file is not formatted"),
                 {"in-place", 'i', NULL, "rewrite the files that are not formatted", false},
                 FLAG("types", "write the dtype of each let that has none"), OPTION_JSON),
    .help =
        "Prints the text in its canonical layout. Comments, names and the spelling of numbers\n"
        "stay, and so does the module's key in the cache; formatting twice changes nothing more.\n"
        "FILE '-' is standard input. --types needs text without mistakes of names and dtypes.\n",
    .examples =
        "  quern fmt examples/ir/saxpy.qn\n"
        "  quern fmt --check examples/ir/saxpy.qn examples/ir/softmax.qn\n",
    .run = run_fmt,
};
