// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/targets.c: `quern targets`: kinds with their options, tags, a target's canonical
// form.
#include <string.h>

#include "quern/device.h"
#include "quern/quern.h"
#include "quern/target.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

static const char* option_type_text(qn_option_type_t type) {
  switch (type) {
    case QN_OPTION_BOOL:
      return "bool";
    case QN_OPTION_INT:
      return "int";
    case QN_OPTION_STRING:
      return "string";
    case QN_OPTION_STRING_LIST:
      return "list";
  }
  return "string";
}

static json_t* kind_json(const qn_target_kind_info_t* kind) {
  json_t* options = json_array();
  for (size_t i = 0; i < kind->option_count; i++) {
    const qn_option_info_t* option = &kind->options[i];
    json_array_append_new(options,
                          json_record("name:s type:s default:s class:s doc:s", option->name,
                                      option_type_text(option->type), option->default_text,
                                      option->is_isa ? "isa" : "tuning", option->doc));
  }
  return json_record("name:s doc:s codegen:s device_type:d options:o", kind->name, kind->doc,
                     kind->codegen, kind->device_type, options);
}

static void print_options(const qn_target_kind_info_t* kind) {
  const style_t* style = style_of(stdout);
  print(stdout, "%s%s%s: %s\n", style->bold, kind->name, style->plain, kind->doc);
  print(stdout, "code generator %s, devices %s\n\n", kind->codegen,
        qn_device_type_text(kind->device_type));
  json_t* record = kind_json(kind);
  print_table(json_object_get(record, "options"),
              "option=name:s type=type:s default=default:s class=class:s meaning=doc:s");
  json_decref(record);
}

static int list_all(const args_t* args) {
  const style_t* style = style_of(stdout);
  const char *name = NULL, *json = NULL;
  if (args->is_json) {
    json_t* kinds = json_array();
    json_t* tags = json_object();
    for (size_t i = 0; i < qn_target_kind_count(); i++) {
      json_array_append_new(kinds, kind_json(qn_target_kind_at(i)));
    }
    for (size_t i = 0; qn_target_tag_at(i, &name, &json); i++) {
      json_object_set_new(tags, name, json_parsed(json));
    }
    print_json(json_record("kinds:o tags:o", kinds, tags));
    return EXIT_DONE;
  }
  print(stdout, "%skinds%s\n", style->bold, style->plain);
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    const qn_target_kind_info_t* kind = qn_target_kind_at(i);
    print(stdout, "  %-8s %s\n", kind->name, kind->doc);
  }
  print(stdout, "\n%stags%s\n", style->bold, style->plain);
  for (size_t i = 0; qn_target_tag_at(i, &name, &json); i++) {
    print(stdout, "  %-24s %s\n", name, json);
  }
  print(stdout,
        "\n'quern targets KIND' lists a kind's options, 'quern targets TARGET' shows a target in\n"
        "full.\n");
  return EXIT_DONE;
}

// Shows the canonical form, and whether this machine runs code for it.
static int show_target(const args_t* args, const char* text, const qn_target_kind_info_t* kind) {
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(text, &target);
  // A kind has options to show even without a device that completes its target.
  if (!qn_ok(status) && !kind) return report_status(args, status);
  bool is_made = qn_ok(status);
  qn_status_free(status);
  status = is_made ? qn_target_check_host(target) : QN_OK;
  bool runs_here = is_made && qn_ok(status);
  if (args->is_json) {
    json_t* result = kind ? kind_json(kind) : json_object();
    json_object_set_new(result, "target", json_parsed(is_made ? qn_target_json(target) : NULL));
    json_object_set_new(result, "runs_here", json_boolean(runs_here));
    json_object_set_new(result, "lacks",
                        qn_ok(status) ? json_null() : json_text(qn_status_message(status)));
    print_json(result);
  } else if (kind) {
    print_options(kind);
    if (is_made) {
      print(stdout, "\n%s: %s\n", runs_here ? "on this machine" : "by default",
            qn_target_json(target));
    }
    if (is_made && !runs_here) {
      print(stdout, "not on this machine: ");
      print_lines(stdout, qn_status_message(status));
    }
  } else {
    // Exactly the canonical text, for use as --target.
    print(stdout, "%s\n", qn_target_json(target));
    if (!runs_here) {
      print(stderr, "quern: note: not on this machine: ");
      print_lines(stderr, qn_status_message(status));
    }
  }
  qn_status_free(status);
  qn_target_release(target);
  return EXIT_DONE;
}

static int run_targets(const args_t* args) {
  if (args_has(args, "host")) {
    if (args->operand_count > 0) return report_usage(args, "--host takes no target");
    return show_target(args, "cpu", NULL);
  }
  if (args->operand_count == 0) return list_all(args);
  return show_target(args, args->operands[0], session_kind(args->operands[0]));
}

const verb_t verb_targets = {
    .name = "targets",
    .summary = "list target kinds, options and tags; show a target in full",
    .operands = "[KIND|TARGET]",
    .max_operands = 1,
    VERB_OPTIONS(FLAG("host", "show this machine's processor in full"), OPTION_PLUGIN, OPTION_JSON),
    .help =
        "A target describes the machine that code is generated for. KIND lists the options of a\n"
        "kind: the machine that runs the code must have those of class isa; those of class tuning\n"
        "change the code alone. TARGET prints the canonical JSON with every default resolved, as\n"
        "it goes into the key of a kernel.\n",
    .examples =
        "  quern targets\n"
        "  quern targets cpu\n"
        "  quern targets --host\n"
        "  quern targets 'cpu -mcpu=x86-64-v3'\n",
    .run = run_targets,
};
