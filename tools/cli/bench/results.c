// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/results.c: the document of a run of `quern bench`.
#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/show.h"
#include "tools/cli/bench/stop.h"

static json_t* machine_json(void) {
  qn_attribute_value_t name;
  qn_device_t host = {QN_DEVICE_CPU, 0};
  qn_status_t status = qn_device_attribute(host, QN_ATTRIBUTE_DEVICE_NAME, &name);
  bool has_name =
      qn_status_consume(status) == QN_STATUS_OK && name.type == QN_ATTRIBUTE_TYPE_STRING;
  return json_record("processor:s cores:d", has_name ? name.string_value : "unknown",
                     (int)qn_cpu_core_count());
}

static json_t* compare_results(bench_t* bench, const json_t* rows, json_t* not_measured) {
  if (bench->by == COMPARE_RUN) return compare_rows(rows, bench->older, bench->by, not_measured);
  // The rows of the other side are among those of this run.
  json_t *own = json_array(), *others = json_array();
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t* row = json_array_get(rows, i);
    const spot_t* spot = NULL;
    for (size_t k = 0, at = 0; k < bench->row_count && !spot; k++) {
      if (samples_count(&bench->rows[k]->samples) == 0) continue;
      if (at++ == i) spot = bench->rows[k]->spot;
    }
    bool is_other = spot && (bench->by == COMPARE_FILE     ? spot->subject == &bench->subjects[1]
                             : bench->by == COMPARE_TARGET ? spot->place->text == bench->other
                                                           : spot->tier == bench->other);
    json_array_append(is_other ? others : own, row);
  }
  json_t* list = compare_rows(own, others, bench->by, not_measured);
  json_decref(own);
  json_decref(others);
  return list;
}

json_t* bench_results(bench_t* bench, bool is_complete) {
  const subject_t* subject = &bench->subjects[0];
  json_t *rows = json_array(), *not_measured = json_copy(bench->not_measured);
  for (size_t i = 0; i < bench->row_count; i++) {
    if (samples_count(&bench->rows[i]->samples) == 0) continue;
    json_t* record = row_json(bench->rows[i]);
    if (bench->rows[i]->kind == ROW_CALL) roof_apply(bench->roofs, record);
    json_array_append_new(rows, record);
  }
  json_t* results = json_record(
      "format:s version:s file:s function:s signature:s machine:o time_ns:i is_complete:b "
      "stopped_by:s",
      "quern-bench-1", qn_version(), subject->file, subject->function,
      qn_module_function_signature(subject->module, subject->index), machine_json(), bench->time_ns,
      is_complete, stop_signal());
  json_object_set_new(results, "rows", rows);
  json_object_set(results, "roofs", bench->roofs);
  if (bench->compares) {
    json_object_set_new(results, "comparison", compare_results(bench, rows, not_measured));
  }
  if (bench->compares && bench->by == COMPARE_RUN) {
    json_object_set_new(results, "comparison_note",
                        json_text("the two runs were not taken in turns: the machine itself may "
                                  "have been faster or slower"));
  }
  json_object_set_new(results, "not_measured", not_measured);
  return results;
}

qn_status_t bench_save(const bench_t* bench, json_t* results) {
  const char* path = args_value(bench->args, "save", NULL);
  if (!path) return QN_OK;
  size_t flags = JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17);
  char* text = json_dumps(results, flags);
  if (!text) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the results");
  qn_status_t status = text_write(path, text, strlen(text));
  free(text);
  return status;
}

qn_status_t bench_draw(const bench_t* bench, const json_t* results) {
  const char* path = args_value(bench->args, "svg", NULL);
  if (!path) return QN_OK;
  text_t text = {0};
  qn_status_t status = show_svg(results, &text);
  if (qn_ok(status)) status = text_write(path, text.data, text.size);
  text_free(&text);
  return status;
}
