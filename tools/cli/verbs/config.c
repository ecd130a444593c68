// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/config.c: `quern config`: the options in force and the origin of each.
#include <string.h>

#include "quern/observe.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

static void take_row(void* self, const char* name, const char* environment, const char* value,
                     const char* origin, const char* doc) {
  json_array_append_new(self, json_record("name:s environment:s value:s origin:s doc:s", name,
                                          environment, value, origin, doc));
}

// Prints the table of docs/options.md; a test compares the two.
static int print_markdown(void) {
  static const struct {
    const char* environment;
    const char* type;
    const char* default_text;
    const char* doc;
  } rows[] = {
#define QN_OPTION(name, environment, type, default_text, doc) \
  {environment, #type, default_text, doc},
#include "quern/options.inc"
#undef QN_OPTION
  };
  print(stdout, "| variable | type | default | meaning |\n|---|---|---|---|\n");
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char type[16];
    (void)snprintf(type, sizeof type, "%s", rows[i].type);
    for (char* c = type; *c; c++) *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
    const char* quote = rows[i].default_text[0] ? "`" : "";
    print(stdout, "| `%s` | %s | %s%s%s | %s |\n", rows[i].environment, type, quote,
          rows[i].default_text, quote, rows[i].doc);
  }
  return EXIT_DONE;
}

static int run_config(const args_t* args) {
  if (args_has(args, "markdown")) return print_markdown();
  qn_engine_t* engine = NULL;
  qn_status_t status = session_engine(&engine);
  if (!qn_ok(status)) return report_status(args, status);
  json_t* rows = json_array();
  qn_engine_config(engine, take_row, rows);
  if (!args->is_json) {
    print_table(rows,
                "option=name:s value=value:s from=origin:s environment=environment:s "
                "meaning=doc:s");
  }
  report_json(args, json_record("options:o", rows));
  qn_engine_destroy(engine);
  return EXIT_DONE;
}

const verb_t verb_config = {
    .name = "config",
    .summary = "show the options in force and the origin of each",
    .operands = "",
    VERB_OPTIONS(FLAG("markdown", "print the table of docs/options.md"), OPTION_JSON),
    .help =
        "Every option has a default. The environment overrides it; a program that embeds the\n"
        "library overrides both.\n",
    .examples =
        "  quern config\n"
        "  quern config --json\n",
    .run = run_config,
};
