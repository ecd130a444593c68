// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/compile_passes.c: see compile_passes.h.
#include "tools/cli/verbs/compile_passes.h"

#include <string.h>

#include "quern/lower.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"

// Finds a pass by its name.
static qn_status_t find_pass(const char* name, qn_pass_info_t* out_pass) {
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < qn_pass_count() && qn_ok(status); i++) {
    status = qn_pass_info(i, out_pass);
    if (qn_ok(status) && strcmp(out_pass->name, name) == 0) return status;
  }
  return status;
}

// Adds one pipeline with its passes in order.
static qn_status_t add_pipeline(json_t* list, size_t index) {
  qn_pipeline_info_t pipeline = {.struct_size = sizeof pipeline};
  qn_status_t status = qn_pipeline_info(index, &pipeline);
  json_t* passes = json_array();
  for (size_t i = 0; i < pipeline.pass_count && qn_ok(status); i++) {
    qn_pass_info_t pass = {.struct_size = sizeof pass};
    status = find_pass(qn_pipeline_pass(index, i), &pass);
    bool is_full = i >= pipeline.full_begin && i < pipeline.full_end;
    json_t* row = json_record("name:s doc:s post:s", pass.name, pass.doc, pass.post);
    json_object_set_new(row, "tier", json_text(is_full ? "full" : "any"));
    json_object_set_new(row, "alone", json_boolean(pass.is_alone));
    json_array_append_new(passes, row);
  }
  json_array_append_new(list,
                        json_record("name:s doc:s passes:o", pipeline.name, pipeline.doc, passes));
  return status;
}

static void print_pipelines(const json_t* list) {
  const style_t* style = style_of(stdout);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t* pipeline = json_array_get(list, i);
    if (i > 0) print(stdout, "\n");
    print(stdout, "%s%s%s: %s\n", style->bold, json_string_value(json_object_get(pipeline, "name")),
          style->plain, json_string_value(json_object_get(pipeline, "doc")));
    print_table(json_object_get(pipeline, "passes"),
                "pass=name:s tier=tier:s does=doc:s afterwards=post:s");
  }
}

int compile_list_passes(const args_t* args, const char* pipeline) {
  json_t* list = json_array();
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < qn_pipeline_count() && qn_ok(status); i++) {
    qn_pipeline_info_t info = {.struct_size = sizeof info};
    status = qn_pipeline_info(i, &info);
    if (!qn_ok(status) || (pipeline && strcmp(info.name, pipeline) != 0)) continue;
    status = add_pipeline(list, i);
  }
  if (!qn_ok(status)) {
    json_decref(list);
    return report_status(args, status);
  }
  if (args->is_json) {
    print_json(json_record("pipelines:o", list));
    return EXIT_DONE;
  }
  print_pipelines(list);
  json_decref(list);
  return EXIT_DONE;
}

qn_status_t compile_lower(const args_t* args, const qn_lookup_options_t* options,
                          const qn_target_t* target, const qn_module_t* module, text_t* out) {
  qn_machine_t machine = {.struct_size = sizeof machine};
  qn_status_t status = qn_target_machine(target, &machine);
  qn_lower_options_t lower = {.struct_size = sizeof lower,
                              .machine = &machine,
                              .tier = options->tier,
                              .is_checked = options->is_checked,
                              .until = args_value(args, "after", NULL)};
  qn_module_t* lowered = NULL;
  if (qn_ok(status)) {
    status = qn_module_lower(module, args_value(args, "passes", ""), &lower, &lowered);
  }
  char* text = NULL;
  size_t size = 0;
  if (qn_ok(status)) status = qn_module_print(lowered, &text, &size);
  if (qn_ok(status)) status = text_append(out, text, size);
  qn_text_free(text);
  qn_module_release(lowered);
  return status;
}
