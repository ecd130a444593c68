#include "tools/cli/verbs/conformance_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "tools/cli/list.h"
#include "tools/cli/output.h"

enum { COLUMN_LIMIT = 16 };

typedef struct cell {
  conf_verdict_t verdict;  // 0: did not run
  char* why;               // owned; NULL for a pass
  int64_t elapsed_ns;
} cell_t;

typedef struct report_row {
  char* area;  // owned, with the two below
  char* feature;
  char* variant;
  cell_t cells[COLUMN_LIMIT];
} report_row_t;

typedef struct column {
  char name[64];
  char device_name[256];
  char driver[256];
  char target[64];
  qn_device_t device;
} column_t;

struct report {
  report_row_t* rows;
  size_t row_count;
  size_t row_capacity;
  column_t columns[COLUMN_LIMIT];
  size_t column_count;
  size_t fail_count;
};

static char* copy_of(const char* text) {
  size_t size = strlen(text) + 1;
  char* copy = malloc(size);
  if (copy) memcpy(copy, text, size);
  return copy;
}

report_t* report_create(void) {
  return calloc(1, sizeof(report_t));
}

void report_free(report_t* report) {
  if (!report) return;
  for (size_t i = 0; i < report->row_count; i++) {
    report_row_t* row = &report->rows[i];
    free(row->area);
    free(row->feature);
    free(row->variant);
    for (size_t k = 0; k < COLUMN_LIMIT; k++) free(row->cells[k].why);
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

size_t report_column(report_t* report, const char* name, qn_device_t device, const char* target) {
  size_t index =
      report->column_count < COLUMN_LIMIT - 1 ? report->column_count++ : COLUMN_LIMIT - 1;
  column_t* column = &report->columns[index];
  column->device = device;
  (void)snprintf(column->name, sizeof column->name, "%s", name);
  (void)snprintf(column->target, sizeof column->target, "%s", target ? target : "");
  take_attribute(device, QN_ATTRIBUTE_DEVICE_NAME, column->device_name);
  take_attribute(device, QN_ATTRIBUTE_DRIVER_VERSION, column->driver);
  return index;
}

static bool is_row(const report_row_t* row, const conf_result_t* result) {
  return strcmp(row->area, result->area) == 0 && strcmp(row->feature, result->feature) == 0 &&
         strcmp(row->variant, result->variant) == 0;
}

static report_row_t* find_row(report_t* report, const conf_result_t* result) {
  for (size_t i = 0; i < report->row_count; i++) {
    if (is_row(&report->rows[i], result)) return &report->rows[i];
  }
  report_row_t* rows =
      list_room(report->rows, &report->row_capacity, report->row_count, sizeof *rows);
  if (!rows) return NULL;
  report->rows = rows;
  report_row_t* row = &rows[report->row_count];
  memset(row, 0, sizeof *row);
  row->area = copy_of(result->area);
  row->feature = copy_of(result->feature);
  row->variant = copy_of(result->variant);
  if (!row->area || !row->feature || !row->variant) {
    free(row->area);
    free(row->feature);
    free(row->variant);
    return NULL;
  }
  report->row_count++;
  return row;
}

void report_add(report_t* report, size_t column, const conf_result_t* result) {
  report_row_t* row = find_row(report, result);
  if (!row || column >= COLUMN_LIMIT) return;
  cell_t* cell = &row->cells[column];
  cell->verdict = result->verdict;
  cell->elapsed_ns = result->elapsed_ns;
  free(cell->why);
  cell->why = result->why[0] ? copy_of(result->why) : NULL;
  report->fail_count += result->verdict == CONF_FAIL;
}

size_t report_fail_count(const report_t* report) {
  return report->fail_count;
}

// ----------------------------------------------------------------------------------- for people

void report_show(const report_t* report, size_t column, const conf_result_t* result) {
  if (result->verdict == CONF_PASS) return;
  const style_t* style = style_of(stdout);
  bool is_fail = result->verdict == CONF_FAIL;
  print(stdout, "%s%s%s %s: %s/%s%s%s: %s\n", is_fail ? style->red : style->dim,
        conf_verdict_text(result->verdict), style->plain, report->columns[column].name,
        result->area, result->feature, result->variant[0] ? "/" : "", result->variant, result->why);
  (void)fflush(stdout);
}

static void count_column(const report_t* report, size_t column, size_t counts[4], int64_t* out_ns) {
  memset(counts, 0, 4 * sizeof *counts);
  *out_ns = 0;
  for (size_t i = 0; i < report->row_count; i++) {
    counts[report->rows[i].cells[column].verdict]++;
    *out_ns += report->rows[i].cells[column].elapsed_ns;
  }
}

static void print_summary(const report_t* report) {
  table_t table;
  table_init(&table, 5);
  static const char* const header[] = {"device", "pass", "fail", "unsupported", "time"};
  for (size_t i = 0; i < 5; i++) {
    table_add(&table, header[i]);
    table.is_right[i] = i > 0;
  }
  for (size_t k = 0; k < report->column_count; k++) {
    size_t counts[4];
    int64_t ns;
    char text[32];
    count_column(report, k, counts, &ns);
    table_add(&table, report->columns[k].name);
    for (int v = CONF_PASS; v <= CONF_UNSUPPORTED; v++) {
      (void)snprintf(text, sizeof text, "%zu", counts[v]);
      table_add(&table, text);
    }
    table_add(&table, format_ns(ns, text));
  }
  table_print(&table, stdout);
}

static void print_list(const report_t* report) {
  for (size_t i = 0; i < report->row_count; i++) {
    const report_row_t* row = &report->rows[i];
    print(stdout, "%s/%s%s%s\n", row->area, row->feature, row->variant[0] ? "/" : "", row->variant);
  }
}

// -------------------------------------------------------------------------------------- markdown

// Rows of one feature that differ only in the variant share a cell.
typedef struct group {
  const char* area;
  const char* feature;
} feature_t;

static bool is_in_group(const report_row_t* row, const feature_t* group) {
  return strcmp(row->area, group->area) == 0 && strcmp(row->feature, group->feature) == 0;
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

// "pass", "**fail**", "unsupported 1", "pass, but f64: unsupported 2": numbers are notes.
static void print_cell(const report_t* report, const feature_t* group, size_t column,
                       const char** notes, size_t* inout_note_count, size_t note_limit) {
  size_t counts[4] = {0};
  for (size_t i = 0; i < report->row_count; i++) {
    if (is_in_group(&report->rows[i], group)) counts[report->rows[i].cells[column].verdict]++;
  }
  bool is_mixed = counts[CONF_PASS] && (counts[CONF_FAIL] || counts[CONF_UNSUPPORTED]);
  if (counts[CONF_PASS]) print(stdout, "pass");
  if (is_mixed) print(stdout, ", but ");
  if (!counts[CONF_PASS] && !counts[CONF_FAIL] && !counts[CONF_UNSUPPORTED])
    print(stdout, "not run");
  for (int v = CONF_FAIL; v <= CONF_UNSUPPORTED; v++) {
    if (!counts[v]) continue;
    const char* between = "";
    const char* why = "";
    if (is_mixed) {
      for (size_t i = 0; i < report->row_count; i++) {
        const report_row_t* row = &report->rows[i];
        if (!is_in_group(row, group) || (int)row->cells[column].verdict != v) continue;
        print(stdout, "%s%s", between, row->variant);
        between = ", ";
      }
      print(stdout, ": ");
    }
    for (size_t i = 0; i < report->row_count && !why[0]; i++) {
      const report_row_t* row = &report->rows[i];
      if (is_in_group(row, group) && (int)row->cells[column].verdict == v) {
        why = row->cells[column].why ? row->cells[column].why : "";
      }
    }
    size_t note = 0;
    while (note < *inout_note_count && strcmp(notes[note], why) != 0) note++;
    if (note == *inout_note_count && note < note_limit) notes[(*inout_note_count)++] = why;
    print(stdout, "%s [%zu]%s", v == CONF_FAIL ? "**fail**" : "unsupported", note + 1,
          v == CONF_FAIL && counts[CONF_UNSUPPORTED] ? ", " : "");
  }
}

static void print_markdown(const report_t* report) {
  enum { NOTE_LIMIT = 512 };
  const char* notes[NOTE_LIMIT];
  size_t note_count = 0;
  print(
      stdout,
      "| device | what it is | driver | pass | fail | unsupported |\n|---|---|---|---|---|---|\n");
  for (size_t k = 0; k < report->column_count; k++) {
    const column_t* column = &report->columns[k];
    size_t counts[4];
    int64_t ns;
    count_column(report, k, counts, &ns);
    print(stdout, "| `%s` | ", column->name);
    print_markdown_text(strcmp(column->target, "interp") == 0 ? "the reference interpreter"
                                                              : column->device_name);
    print(stdout, " | ");
    print_markdown_text(column->driver[0] ? column->driver : "-");
    print(stdout, " | %zu | %zu | %zu |\n", counts[CONF_PASS], counts[CONF_FAIL],
          counts[CONF_UNSUPPORTED]);
  }
  const char* area = "";
  for (size_t i = 0; i < report->row_count; i++) {
    const report_row_t* row = &report->rows[i];
    feature_t group = {row->area, row->feature};
    bool is_first = true;
    for (size_t k = 0; k < i && is_first; k++) is_first = !is_in_group(&report->rows[k], &group);
    if (!is_first) continue;
    if (strcmp(area, row->area) != 0) {
      area = row->area;
      print(stdout, "\n## %s\n\n| feature |", area);
      for (size_t k = 0; k < report->column_count; k++)
        print(stdout, " %s |", report->columns[k].name);
      print(stdout, "\n|---|");
      for (size_t k = 0; k < report->column_count; k++) print(stdout, "---|");
      print(stdout, "\n");
    }
    print(stdout, "| ");
    print_markdown_text(row->feature);
    print(stdout, " |");
    for (size_t k = 0; k < report->column_count; k++) {
      print(stdout, " ");
      print_cell(report, &group, k, notes, &note_count, NOTE_LIMIT);
      print(stdout, " |");
    }
    print(stdout, "\n");
  }
  if (note_count) print(stdout, "\n## Notes\n\n");
  for (size_t i = 0; i < note_count; i++) {
    print(stdout, "%zu. ", i + 1);
    print_markdown_text(notes[i]);
    print(stdout, "\n");
  }
}

// ------------------------------------------------------------------------------------------ JSON

// Whether any device ran it; a list of what there is has no devices.
static bool is_shown(const report_t* report, const report_row_t* row) {
  for (size_t k = 0; k < report->column_count; k++) {
    if (row->cells[k].verdict) return true;
  }
  return report->column_count == 0;
}

static void print_json_report(const report_t* report) {
  json_t* devices = json_array();
  json_t* features = json_array();
  for (size_t k = 0; k < report->column_count; k++) {
    const column_t* column = &report->columns[k];
    size_t counts[4];
    int64_t ns;
    count_column(report, k, counts, &ns);
    json_array_append_new(
        devices,
        json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "name", json_text(column->name),
                  "device_name", json_text(column->device_name[0] ? column->device_name : NULL),
                  "driver_version", json_text(column->driver[0] ? column->driver : NULL), "target",
                  json_text(column->target[0] ? column->target : NULL), "pass",
                  (json_int_t)counts[CONF_PASS], "fail", (json_int_t)counts[CONF_FAIL],
                  "unsupported", (json_int_t)counts[CONF_UNSUPPORTED], "elapsed_ns",
                  (json_int_t)ns));
  }
  for (size_t i = 0; i < report->row_count; i++) {
    const report_row_t* row = &report->rows[i];
    if (!is_shown(report, row)) continue;
    json_t* results = json_object();
    for (size_t k = 0; k < report->column_count; k++) {
      const cell_t* cell = &row->cells[k];
      if (!cell->verdict) continue;
      json_object_set_new(
          results, report->columns[k].name,
          json_pack("{s:s, s:o, s:I}", "verdict", conf_verdict_text(cell->verdict), "why",
                    json_text(cell->why), "elapsed_ns", (json_int_t)cell->elapsed_ns));
    }
    json_array_append_new(features, json_pack("{s:o, s:o, s:o, s:o}", "area", json_text(row->area),
                                              "feature", json_text(row->feature), "variant",
                                              json_text(row->variant), "results", results));
  }
  print_json(json_pack("{s:o, s:o}", "devices", devices, "features", features), 9);
}

void report_print(const report_t* report, report_mode_t mode) {
  switch (mode) {
    case REPORT_TEXT:
      print_summary(report);
      break;
    case REPORT_JSON:
      print_json_report(report);
      break;
    case REPORT_MARKDOWN:
      print_markdown(report);
      break;
    case REPORT_LIST:
      print_list(report);
      break;
  }
}
