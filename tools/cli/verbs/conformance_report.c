// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/conformance_report.c: see conformance_report.h.
#include "tools/cli/verbs/conformance_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "tools/cli/memory.h"
#include "tools/cli/output.h"

enum { COLUMN_LIMIT = 16, NOTE_LIMIT = 512 };

typedef struct cell {
  conf_verdict_t verdict;  // 0: did not run
  char* why;               // owned; NULL for a pass
  char* program;           // owned; NULL: none
  int64_t elapsed_ns;
} cell_t;

typedef struct report_row {
  char* area;  // owned, as are the two below
  char* feature;
  char* variant;
  cell_t cells[COLUMN_LIMIT];
} report_row_t;

struct report {
  report_row_t* rows;
  size_t row_count;
  size_t row_capacity;
  report_column_t columns[COLUMN_LIMIT];
  size_t column_count;
  size_t fail_count;
};

report_t* report_create(void) {
  return memory_zeroed(1, sizeof(report_t));
}

void report_free(report_t* report) {
  for (size_t i = 0; i < report->row_count; i++) {
    report_row_t* row = &report->rows[i];
    free(row->area);
    free(row->feature);
    free(row->variant);
    for (size_t k = 0; k < COLUMN_LIMIT; k++) {
      free(row->cells[k].why);
      free(row->cells[k].program);
    }
  }
  free(report->rows);
  free(report);
}

static void take_attribute(qn_device_t device, qn_attribute_t attribute, char out[256]) {
  qn_attribute_value_t value = {.type = QN_ATTRIBUTE_TYPE_NONE};
  if (qn_status_consume(qn_device_attribute(device, attribute, &value)) != QN_STATUS_OK) return;
  if (value.type == QN_ATTRIBUTE_TYPE_STRING) {
    (void)snprintf(out, 256, "%s", value.string_value);
  }
}

qn_status_t report_add_column(report_t* report, const char* name, qn_device_t device,
                              const char* target) {
  if (report->column_count == COLUMN_LIMIT) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: at most %d devices in one report", name,
                          COLUMN_LIMIT);
  }
  report_column_t* column = &report->columns[report->column_count++];
  column->device = device;
  (void)snprintf(column->name, sizeof column->name, "%s", name);
  (void)snprintf(column->target, sizeof column->target, "%s", target ? target : "");
  take_attribute(device, QN_ATTRIBUTE_DEVICE_NAME, column->device_name);
  take_attribute(device, QN_ATTRIBUTE_DRIVER_VERSION, column->driver);
  return QN_OK;
}

const report_column_t* report_column(const report_t* report, size_t index) {
  return index < report->column_count ? &report->columns[index] : NULL;
}

static bool is_row(const report_row_t* row, const conf_result_t* result) {
  return strcmp(row->area, result->area) == 0 && strcmp(row->feature, result->feature) == 0 &&
         strcmp(row->variant, result->variant) == 0;
}

static report_row_t* find_row(report_t* report, const conf_result_t* result) {
  for (size_t i = 0; i < report->row_count; i++) {
    if (is_row(&report->rows[i], result)) return &report->rows[i];
  }
  report->rows =
      memory_room(report->rows, &report->row_capacity, report->row_count, sizeof *report->rows);
  report_row_t* row = &report->rows[report->row_count++];
  *row = (report_row_t){.area = memory_text(result->area),
                        .feature = memory_text(result->feature),
                        .variant = memory_text(result->variant)};
  return row;
}

void report_add(report_t* report, size_t column, const conf_result_t* result) {
  report_row_t* row = find_row(report, result);
  if (column >= COLUMN_LIMIT) return;
  cell_t* cell = &row->cells[column];
  cell->verdict = result->verdict;
  cell->elapsed_ns = result->elapsed_ns;
  free(cell->why);
  free(cell->program);
  cell->why = result->why[0] ? memory_text(result->why) : NULL;
  cell->program = result->program ? memory_text(result->program) : NULL;
  report->fail_count += result->verdict == CONF_FAIL;
}

size_t report_fail_count(const report_t* report) {
  return report->fail_count;
}

// The sums of a column.
typedef struct column_sum {
  size_t counts[4];  // by conf_verdict_t
  int64_t elapsed_ns;
} column_sum_t;

static column_sum_t sum_column(const report_t* report, size_t column) {
  column_sum_t sum = {{0}, 0};
  for (size_t i = 0; i < report->row_count; i++) {
    sum.counts[report->rows[i].cells[column].verdict]++;
    sum.elapsed_ns += report->rows[i].cells[column].elapsed_ns;
  }
  return sum;
}

static json_t* devices_json(const report_t* report) {
  json_t* devices = json_array();
  for (size_t k = 0; k < report->column_count; k++) {
    const report_column_t* column = &report->columns[k];
    column_sum_t sum = sum_column(report, k);
    json_array_append_new(
        devices, json_record("name:s device_name:S driver_version:S target:S pass:i fail:i "
                             "unsupported:i elapsed_ns:i",
                             column->name, column->device_name, column->driver, column->target,
                             sum.counts[CONF_PASS], sum.counts[CONF_FAIL],
                             sum.counts[CONF_UNSUPPORTED], sum.elapsed_ns));
  }
  return devices;
}

// ----------------------------------------------------------------------------------- for people

static void print_program(const char* text) {
  while (*text) {
    size_t size = strcspn(text, "\n");
    print(stdout, "  %.*s\n", (int)size, text);
    text += size + (text[size] == '\n');
  }
}

void report_show(const report_t* report, size_t column, const conf_result_t* result) {
  if (result->verdict == CONF_PASS) return;
  const style_t* style = style_of(stdout);
  bool is_fail = result->verdict == CONF_FAIL;
  print(stdout, "%s%s%s %s: %s/%s%s%s: %s\n", is_fail ? style->red : style->dim,
        conf_verdict_text(result->verdict), style->plain, report->columns[column].name,
        result->area, result->feature, result->variant[0] ? "/" : "", result->variant, result->why);
  if (result->program) print_program(result->program);
  (void)fflush(stdout);
}

static void print_summary(const report_t* report) {
  json_t* devices = devices_json(report);
  print_table(devices,
              "device=name:s pass=pass:i fail=fail:i unsupported=unsupported:i "
              "time=elapsed_ns:n");
  json_decref(devices);
}

static void print_list(const report_t* report) {
  for (size_t i = 0; i < report->row_count; i++) {
    const report_row_t* row = &report->rows[i];
    print(stdout, "%s/%s%s%s\n", row->area, row->feature, row->variant[0] ? "/" : "", row->variant);
  }
}

// -------------------------------------------------------------------------------------- markdown

// The texts of the numbered notes under the table.
typedef struct notes {
  const char* items[NOTE_LIMIT];
  size_t count;
} notes_t;

static size_t note_number(notes_t* notes, const char* why) {
  size_t i = 0;
  while (i < notes->count && strcmp(notes->items[i], why) != 0) i++;
  if (i == notes->count && i < NOTE_LIMIT) notes->items[notes->count++] = why;
  return i + 1;
}

// Whether two rows differ only in the variant: they share a cell.
static bool is_same_feature(const report_row_t* a, const report_row_t* b) {
  return strcmp(a->area, b->area) == 0 && strcmp(a->feature, b->feature) == 0;
}

// Prints text in a cell of a Markdown table.
static void print_markdown_text(const char* text) {
  while (*text) {
    int plain = (int)strcspn(text, "|\n");
    print(stdout, "%.*s", plain, text);
    text += plain;
    if (*text) print(stdout, *text++ == '|' ? "\\|" : " ");
  }
}

// Prints one verdict of a cell: "unsupported [2]", or "f64: unsupported [2]" beside passes.
static void print_verdict(const report_t* report, const report_row_t* first, size_t column,
                          conf_verdict_t verdict, bool is_mixed, notes_t* notes) {
  const char* why = "";
  bool is_first = true;
  for (const report_row_t* row = first; row < report->rows + report->row_count; row++) {
    const cell_t* cell = &row->cells[column];
    if (!is_same_feature(row, first) || cell->verdict != verdict) continue;
    if (is_mixed) print(stdout, "%s%s", is_first ? "" : ", ", row->variant);
    if (!why[0] && cell->why) why = cell->why;
    is_first = false;
  }
  print(stdout, "%s%s [%zu]", is_mixed ? ": " : "",
        verdict == CONF_FAIL ? "**fail**" : "unsupported", note_number(notes, why));
}

// Prints "pass", "**fail** [1]", "unsupported [1]" or "pass, but f64: unsupported [2]".
static void print_cell(const report_t* report, const report_row_t* first, size_t column,
                       notes_t* notes) {
  bool has[4] = {false};
  for (const report_row_t* row = first; row < report->rows + report->row_count; row++) {
    if (is_same_feature(row, first)) has[row->cells[column].verdict] = true;
  }
  bool is_bad = has[CONF_FAIL] || has[CONF_UNSUPPORTED], is_mixed = has[CONF_PASS] && is_bad;
  if (has[CONF_PASS]) print(stdout, is_bad ? "pass, but " : "pass");
  if (!has[CONF_PASS] && !is_bad) print(stdout, "not run");
  if (has[CONF_FAIL]) print_verdict(report, first, column, CONF_FAIL, is_mixed, notes);
  if (has[CONF_FAIL] && has[CONF_UNSUPPORTED]) print(stdout, ", ");
  if (has[CONF_UNSUPPORTED]) {
    print_verdict(report, first, column, CONF_UNSUPPORTED, is_mixed, notes);
  }
}

static void print_markdown(const report_t* report) {
  notes_t notes = {.count = 0};
  print(stdout, "| device | what it is | driver | pass | fail | unsupported |\n");
  print(stdout, "|---|---|---|---|---|---|\n");
  for (size_t k = 0; k < report->column_count; k++) {
    const report_column_t* column = &report->columns[k];
    column_sum_t sum = sum_column(report, k);
    bool is_interp = strcmp(column->target, "interp") == 0;
    print(stdout, "| `%s` | ", column->name);
    print_markdown_text(is_interp ? "the reference interpreter" : column->device_name);
    print(stdout, " | ");
    print_markdown_text(column->driver[0] ? column->driver : "-");
    print(stdout, " | %zu | %zu | %zu |\n", sum.counts[CONF_PASS], sum.counts[CONF_FAIL],
          sum.counts[CONF_UNSUPPORTED]);
  }
  const char* area = "";
  for (size_t i = 0; i < report->row_count; i++) {
    const report_row_t* row = &report->rows[i];
    bool is_first = true;
    for (size_t k = 0; k < i && is_first; k++) is_first = !is_same_feature(&report->rows[k], row);
    if (!is_first) continue;
    if (strcmp(area, row->area) != 0) {
      area = row->area;
      print(stdout, "\n## %s\n\n| feature |", area);
      for (size_t k = 0; k < report->column_count; k++) {
        print(stdout, " %s |", report->columns[k].name);
      }
      print(stdout, "\n|---|");
      for (size_t k = 0; k < report->column_count; k++) print(stdout, "---|");
      print(stdout, "\n");
    }
    print(stdout, "| ");
    print_markdown_text(row->feature);
    print(stdout, " |");
    for (size_t k = 0; k < report->column_count; k++) {
      print(stdout, " ");
      print_cell(report, row, k, &notes);
      print(stdout, " |");
    }
    print(stdout, "\n");
  }
  if (notes.count) print(stdout, "\n## Notes\n\n");
  for (size_t i = 0; i < notes.count; i++) {
    print(stdout, "%zu. ", i + 1);
    print_markdown_text(notes.items[i]);
    print(stdout, "\n");
  }
}

// ------------------------------------------------------------------------------------------ JSON

// Whether a device ran the row. A list of the features has no devices, and all rows.
static bool is_shown(const report_t* report, const report_row_t* row) {
  for (size_t k = 0; k < report->column_count; k++) {
    if (row->cells[k].verdict) return true;
  }
  return report->column_count == 0;
}

static void print_json_report(const report_t* report) {
  json_t* features = json_array();
  for (size_t i = 0; i < report->row_count; i++) {
    const report_row_t* row = &report->rows[i];
    if (!is_shown(report, row)) continue;
    json_t* results = json_object();
    for (size_t k = 0; k < report->column_count; k++) {
      const cell_t* cell = &row->cells[k];
      if (!cell->verdict) continue;
      json_object_set_new(
          results, report->columns[k].name,
          json_record("verdict:s why:s program:s elapsed_ns:i", conf_verdict_text(cell->verdict),
                      cell->why, cell->program, cell->elapsed_ns));
    }
    json_array_append_new(features, json_record("area:s feature:s variant:s results:o", row->area,
                                                row->feature, row->variant, results));
  }
  print_json(json_record("devices:o features:o", devices_json(report), features));
}

void report_print(const report_t* report, report_mode_t mode) {
  static void (*const printers[])(const report_t* report) = {
      [REPORT_TEXT] = print_summary,
      [REPORT_JSON] = print_json_report,
      [REPORT_MARKDOWN] = print_markdown,
      [REPORT_LIST] = print_list,
  };
  printers[mode](report);
}
