// tools/cli/verbs/targets.c: `quern targets`: kinds with their options, tags, a target's canonical
// form.
#include <string.h>

#include "quern/device.h"
#include "quern/quern.h"
#include "quern/target.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
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
    json_array_append_new(
        options,
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "name", json_text(option->name), "type",
                  json_text(option_type_text(option->type)), "default",
                  json_text(option->default_text), "class",
                  json_text(option->is_isa ? "isa" : "tuning"), "doc", json_text(option->doc)));
  }
  return json_pack("{s:o, s:o, s:o, s:I, s:o}", "name", json_text(kind->name), "doc",
                   json_text(kind->doc), "codegen", json_text(kind->codegen), "device_type",
                   (json_int_t)kind->device_type, "options", options);
}

static const qn_target_kind_info_t* find_kind(const char* name) {
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    if (strcmp(qn_target_kind_at(i)->name, name) == 0) return qn_target_kind_at(i);
  }
  return NULL;
}

static void print_options(const qn_target_kind_info_t* kind) {
  const style_t* style = style_of(stdout);
  print(stdout, "%s%s%s: %s\n", style->bold, kind->name, style->plain, kind->doc);
  print(stdout, "code generator %s, devices %s\n\n", kind->codegen,
        qn_device_type_text(kind->device_type));
  table_t table;
  table_init(&table, 5);
  static const char* const header[] = {"option", "type", "default", "class", "meaning"};
  for (size_t i = 0; i < 5; i++) table_add(&table, header[i]);
  for (size_t i = 0; i < kind->option_count; i++) {
    const qn_option_info_t* option = &kind->options[i];
    table_add(&table, option->name);
    table_add(&table, option_type_text(option->type));
    bool has_default = option->default_text && option->default_text[0];
    table_add(&table, has_default ? option->default_text : "-");
    table_add(&table, option->is_isa ? "isa" : "tuning");
    table_add(&table, option->doc);
  }
  table_print(&table, stdout);
}

static int list_all(const args_t* args) {
  const style_t* style = style_of(stdout);
  json_t* kinds = json_array();
  json_t* tags = json_object();
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    json_array_append_new(kinds, kind_json(qn_target_kind_at(i)));
  }
  const char *name = NULL, *json = NULL;
  for (size_t i = 0; qn_target_tag_at(i, &name, &json); i++) {
    json_object_set_new(tags, name, json_parsed(json));
  }
  if (args->is_json) {
    print_json(json_pack("{s:o, s:o}", "kinds", kinds, "tags", tags), 17);
    return EXIT_DONE;
  }
  json_decref(kinds);
  json_decref(tags);
  print(stdout, "%skinds%s\n", style->bold, style->plain);
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    const qn_target_kind_info_t* kind = qn_target_kind_at(i);
    print(stdout, "  %-8s %s\n", kind->name, kind->doc);
  }
  print(stdout, "\n%stags%s\n", style->bold, style->plain);
  for (size_t i = 0; qn_target_tag_at(i, &name, &json); i++)
    print(stdout, "  %-24s %s\n", name, json);
  print(
      stdout,
      "\n'quern targets KIND' lists a kind's options, 'quern targets TARGET' shows what a target\n"
      "means in full.\n");
  return EXIT_DONE;
}

// The canonical form, and whether code for it runs here.
static int show_target(const args_t* args, const char* text, const qn_target_kind_info_t* kind) {
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(text, &target);
  // A kind's options can be shown without a device that would complete them.
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
    print_json(result, 17);
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
    // Exactly the canonical text, so that it can be piped into --target.
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
  if (args->operand_count == 0) return list_all(args);
  return show_target(args, args->operands[0], find_kind(args->operands[0]));
}

const verb_t verb_targets = {
    .name = "targets",
    .summary = "list target kinds, options and tags; show a target in full",
    .operands = "[KIND|TARGET]",
    .max_operands = 1,
    VERB_OPTIONS(OPTION_PLUGIN, OPTION_JSON),
    .help =
        "A target says what code is generated for. KIND lists the options of a kind: those of "
        "class\n"
        "isa must be there on the machine that runs the code, those of class tuning only choose\n"
        "between ways to say the same. TARGET prints the canonical JSON with every default\n"
        "resolved, as it goes into the key of a kernel.\n",
    .examples =
        "  quern targets\n"
        "  quern targets cpu\n"
        "  quern targets 'cpu -mcpu=x86-64-v3'\n",
    .run = run_targets,
};
