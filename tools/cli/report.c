// SPDX-License-Identifier: Apache-2.0
// tools/cli/report.c: the table of exit codes; errors as text and as JSON.
#include "tools/cli/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/output.h"

// One row for each code of status.inc: a new code does not compile until it has one.
#define EXIT_OF_OK EXIT_DONE
#define EXIT_OF_INVALID_ARGUMENT EXIT_WRONG
#define EXIT_OF_OUT_OF_MEMORY EXIT_MACHINE
#define EXIT_OF_SYNTAX EXIT_WRONG
#define EXIT_OF_INVALID_MODULE EXIT_WRONG
#define EXIT_OF_NOT_FOUND EXIT_WRONG
#define EXIT_OF_TYPE_ERROR EXIT_WRONG
#define EXIT_OF_VALUE_ERROR EXIT_WRONG
#define EXIT_OF_UNSUPPORTED EXIT_WRONG
#define EXIT_OF_UNAVAILABLE EXIT_MACHINE
#define EXIT_OF_INCOMPATIBLE EXIT_MACHINE
#define EXIT_OF_DATA_LOSS EXIT_WRONG
#define EXIT_OF_IO EXIT_MACHINE
#define EXIT_OF_PERMISSION_DENIED EXIT_MACHINE
#define EXIT_OF_DEADLINE_EXCEEDED EXIT_MACHINE
#define EXIT_OF_CANCELLED EXIT_MACHINE
#define EXIT_OF_FAILED_PRECONDITION EXIT_WRONG
#define EXIT_OF_ASSERTION EXIT_WRONG
#define EXIT_OF_OUT_OF_BOUNDS EXIT_WRONG
#define EXIT_OF_DIVISION_BY_ZERO EXIT_WRONG
#define EXIT_OF_DEVICE_ERROR EXIT_MACHINE
#define EXIT_OF_COMPILE_FORBIDDEN EXIT_MACHINE
#define EXIT_OF_INTERNAL EXIT_MACHINE

int exit_code_of(qn_status_code_t code) {
  switch (code) {
#define QN_STATUS_CODE(name, value, text, doc) \
  case QN_STATUS_##name:                       \
    return EXIT_OF_##name;
#include "quern/status.inc"
#undef QN_STATUS_CODE
  }
  return EXIT_MACHINE;
}

// Returns a hint for the user of the command, or NULL: the library's messages know no command
// lines.
static const char* hint_of(qn_status_code_t code, const char* message) {
  switch (code) {
    case QN_STATUS_UNAVAILABLE:
      // A directory, cryptography or a worker may be unavailable as well.
      if (!strstr(message, "code generator")) return NULL;
      return "'--target interp' needs no code generator; 'quern version' lists those of this build";
    case QN_STATUS_INCOMPATIBLE:
      return "'quern targets' shows what this machine has; '--target cpu' fits it";
    case QN_STATUS_INTERNAL:
      return "this is a defect of quern; please report it with the module and the target";
    default:
      return NULL;
  }
}

// Whether a message is diagnostics of a text, which the library renders with places and carets.
static bool is_rendered(const char* message) {
  return strstr(message, "\n  --> ") != NULL || strncmp(message, "error[", 6) == 0;
}

// Appends a word as a shell reads it back.
static void print_word(const char* word) {
  static const char plain[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=,:+@%";
  if (word[0] && strspn(word, plain) == strlen(word)) {
    print(stderr, "%s", word);
    return;
  }
  print(stderr, "'");
  for (; *word; word++) {
    if (*word == '\'') {
      print(stderr, "'\\''");
    } else {
      print(stderr, "%c", *word);
    }
  }
  print(stderr, "'");
}

// Prints the command that explains a miss, with the options of the lookup.
static void hint_forbidden(const args_t* args) {
  static const char* const options[] = {"target", "tier", "set"};
  print(stderr, "quern: hint: to see how the nearest entry differs: quern cache why ");
  bool has_file = args && args->operand_count == 1;
  print_word(has_file ? args->operands[0] : "FILE.qn");
  for (int i = 0; has_file && i < args->option_count; i++) {
    const given_option_t* given = &args->options[i];
    if (strcmp(given->spec->name, "checked") == 0) print(stderr, " --checked");
    for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
      if (strcmp(given->spec->name, options[k]) != 0) continue;
      print(stderr, " --%s ", options[k]);
      print_word(given->value);
    }
  }
  print(stderr, "\n");
}

// `args` may be NULL.
static int print_status(const args_t* args, qn_status_t status) {
  const style_t* style = style_of(stderr);
  qn_status_code_t code = qn_status_code(status);
  const char* message = qn_status_message(status);
  if (is_rendered(message)) {
    print_diagnostics(message, stderr);
    print(stderr, "quern: %s%s%s, see above\n", style->red, qn_status_code_text(code),
          style->plain);
  } else {
    print(stderr, "quern: %s%s:%s ", style->red, qn_status_code_text(code), style->plain);
    print_lines(stderr, message);
  }
  const char* hint = hint_of(code, message);
  if (hint) print(stderr, "quern: hint: %s\n", hint);
  if (code == QN_STATUS_COMPILE_FORBIDDEN) hint_forbidden(args);
  return exit_code_of(code);
}

static void print_error_json(const char* kind, const char* message, int exit_code) {
  json_t* error = json_record("kind:s message:s exit_code:d", kind, message, exit_code);
  print_json(json_record("error:o", error));
}

// Prints the error to standard error, and frees it. `args` may be NULL.
static int report(const args_t* args, qn_status_t status) {
  if (qn_ok(status)) return EXIT_DONE;
  (void)fflush(stdout);
  int exit_code = print_status(args, status);
  qn_status_free(status);
  return exit_code;
}

int report_status(const args_t* args, qn_status_t status) {
  if (qn_ok(status)) return EXIT_DONE;
  qn_status_code_t code = qn_status_code(status);
  if (args->is_json) {
    print_error_json(qn_status_code_text(code), qn_status_message(status), exit_code_of(code));
  }
  return report(args, status);
}

int report_status_text(qn_status_t status) {
  return report(NULL, status);
}

void report_diagnostics(const char* path, int error_count, qn_status_t status) {
  (void)fflush(stdout);
  print_diagnostics(qn_status_message(status), stderr);
  print(stderr, "quern: %s: %d error%s\n", path, error_count, error_count == 1 ? "" : "s");
  qn_status_free(status);
}

int report_usage(const args_t* args, const char* format, ...) {
  char message[1024];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(message, sizeof message, format, list);
  va_end(list);
  const style_t* style = style_of(stderr);
  print(stderr, "quern: %susage:%s %s\n", style->red, style->plain, message);
  if (args && args->verb) {
    print(stderr, "quern: hint: 'quern help %s' shows the options and examples\n",
          args->verb->name);
  } else {
    print(stderr, "quern: hint: 'quern help' lists the verbs\n");
  }
  if (args && args->is_json) print_error_json("usage", message, EXIT_USAGE);
  return EXIT_USAGE;
}

void report_json(const args_t* args, json_t* result) {
  if (args->is_json) {
    print_json(result);
  } else {
    json_decref(result);
  }
}
