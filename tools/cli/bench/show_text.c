// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/show_text.c: the results as tables.
#include <stdio.h>
#include <string.h>

#include "tools/cli/bench/show.h"
#include "tools/cli/output.h"

static double number_of(const json_t* record, const char* name) {
  return json_number_value(json_object_get(record, name));
}

static const char* text_of(const json_t* record, const char* name) {
  const char* text = json_string_value(json_object_get(record, name));
  return text ? text : "";
}

static bool is_what(const json_t* row, const char* what) {
  return strcmp(text_of(row, "what"), what) == 0;
}

static const char* label_of(const json_t* row) {
  static const char* const labels[][2] = {{"cold", "new process, empty cache"},
                                          {"disk", "new process, warm disk"},
                                          {"miss", "compile in a running process"},
                                          {"memory", "lookup in memory"},
                                          {"call", "call"}};
  for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
    if (is_what(row, labels[i][0])) return labels[i][1];
  }
  return text_of(row, "what");
}

// Draws the counts of a histogram as blocks of eight heights.
static void draw_histogram(const json_t* row, char out[64]) {
  const json_t* bins = json_object_get(row, "histogram");
  json_int_t most = 1;
  size_t used = 0;
  for (size_t i = 0; i < json_array_size(bins); i++) {
    json_int_t count = json_integer_value(json_array_get(bins, i));
    if (count > most) most = count;
  }
  for (size_t i = 0; i < json_array_size(bins) && used + 4 < 64; i++) {
    json_int_t count = json_integer_value(json_array_get(bins, i));
    if (count == 0) {
      out[used++] = ' ';
      continue;
    }
    // U+2581 to U+2588.
    out[used++] = '\xE2';
    out[used++] = '\x96';
    out[used++] = (char)('\x81' + (char)(7 * count / most));
  }
  out[used] = '\0';
}

// Adds a number of three digits with its unit.
static void add_text(json_t* record, const char* name, const char* unit, double value) {
  char text[64];
  (void)snprintf(text, sizeof text, "%.*f%s", value >= 100 ? 0 : value >= 10 ? 1 : 2, value, unit);
  json_object_set_new(record, name, json_text(text));
}

// Makes the cells of one row.
static json_t* cells_of(const json_t* row) {
  json_t* cells = json_record("what:s", label_of(row));
  static const char* const times[] = {"min_ns", "median_ns", "p90_ns", "p99_ns"};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    json_object_set_new(cells, times[i],
                        json_integer((json_int_t)(number_of(row, times[i]) + 0.5)));
  }
  static const char* const words[] = {"target", "tier", "sizes", "function", "bound"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    json_object_set_new(cells, words[i], json_text(text_of(row, words[i])));
  }
  char text[64] = "";
  const json_t* threads = json_object_get(row, "threads");
  if (json_is_integer(threads)) {
    (void)snprintf(text, sizeof text, "%d", (int)json_integer_value(threads));
  }
  json_object_set_new(cells, "threads", json_text(text));
  draw_histogram(row, text);
  json_object_set_new(cells, "histogram", json_text(text));
  add_text(cells, "spread", " %", 100 * number_of(row, "spread"));
  bool is_float = json_is_true(json_object_get(row, "is_float"));
  const json_t* work = json_object_get(row, "work");
  // Without operations a speed of 0 would say nothing.
  if (number_of(row, "gops") > 0) {
    add_text(cells, "speed", is_float ? " GFLOP/s" : " GOP/s", number_of(row, "gops"));
  }
  if (number_of(row, "gbs") > 0) add_text(cells, "bandwidth", " GB/s", number_of(row, "gbs"));
  if (json_is_object(work) && !json_is_true(json_object_get(work, "is_exact"))) {
    json_object_set_new(cells, "exact", json_text("at most"));
  }
  if (json_object_get(row, "of_roof")) {
    add_text(cells, "of_roof", " %", 100 * number_of(row, "of_roof"));
  }
  if (json_object_get(row, "modules_per_second")) {
    add_text(cells, "rate", "/s", number_of(row, "modules_per_second"));
  }
  return cells;
}

static void title(const char* text) {
  const style_t* style = style_of(stdout);
  print(stdout, "\n%s%s%s\n", style->cyan, text, style->plain);
}

static const char wait_columns[] =
    "target=target:s tier=tier:s threads=threads:s median=median_ns:n min=min_ns:n p90=p90_ns:n "
    "p99=p99_ns:n compiles=rate:s histogram=histogram:s";
static const char call_columns[] =
    "target=target:s tier=tier:s threads=threads:s sizes=sizes:s median=median_ns:n p99=p99_ns:n "
    "spread=spread:s speed=speed:s bandwidth=bandwidth:s of-roof=of_roof:s histogram=histogram:s";

static void show_rows(const json_t* rows, bool wants_calls) {
  json_t* table = json_array();
  const char* name = NULL;
  bool has_names = false;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t* row = json_array_get(rows, i);
    if (!name) name = text_of(row, "function");
    has_names |= strcmp(name, text_of(row, "function")) != 0;
    if (is_what(row, "call") == wants_calls) json_array_append_new(table, cells_of(row));
  }
  if (json_array_size(table) > 0) {
    title(wants_calls ? "speed of the code" : "until code is there");
    char columns[512];
    (void)snprintf(columns, sizeof columns, "%s%s%s", wants_calls ? "" : "what=what:s ",
                   has_names ? "function=function:s " : "",
                   wants_calls ? call_columns : wait_columns);
    print_table(table, columns);
  }
  json_decref(table);
}

static void show_stages(const json_t* rows) {
  bool has_title = false;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t* row = json_array_get(rows, i);
    json_t* stages = json_object_get(row, "stages_ns");
    bool is_parallel_miss = is_what(row, "miss") && number_of(row, "threads") > 1;
    if (!stages || is_parallel_miss) continue;
    if (!has_title) title("where the time goes");
    has_title = true;
    print(stdout, "%s, %s, %s:", label_of(row), text_of(row, "target"), text_of(row, "tier"));
    double total = 0;
    const char* name;
    json_t* value;
    json_object_foreach(stages, name, value) {
      total += json_number_value(value);
    }
    json_object_foreach(stages, name, value) {
      double ns = json_number_value(value);
      char text[32];
      // Stages of less than half a percent are in the JSON.
      if (ns < total / 200) continue;
      print(stdout, " %s %s,", name, format_ns((int64_t)ns, text));
    }
    print(stdout, " together %s\n", format_ns((int64_t)total, (char[32]){0}));
  }
}

static void show_roofs(const json_t* roofs) {
  if (json_array_size(roofs) == 0) return;
  title("limits of the machine, as measured");
  for (size_t i = 0; i < json_array_size(roofs); i++) {
    const json_t* roof = json_array_get(roofs, i);
    const json_t* levels = json_object_get(roof, "levels");
    int threads = (int)number_of(roof, "threads");
    print(stdout, "%s", text_of(roof, "target"));
    if (threads > 0) print(stdout, ", %d %s", threads, threads == 1 ? "thread" : "threads");
    print(stdout, ": %s multiply-add %.4g Gop/s", text_of(roof, "dtype"), number_of(roof, "gops"));
    for (size_t k = 0; k < json_array_size(levels); k++) {
      const json_t* level = json_array_get(levels, k);
      print(stdout, "; %s load %.4g, update %.4g GB/s", text_of(level, "name"),
            number_of(level, "load_gbs"), number_of(level, "update_gbs"));
    }
    print(stdout, "\n");
  }
}

static void show_comparison(const json_t* list) {
  if (json_array_size(list) == 0) return;
  title("comparison (ratio of medians: below 1 is faster than the base)");
  json_t* table = json_array();
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t* pair = json_array_get(list, i);
    json_t* cells = cells_of(pair);
    char text[96];
    (void)snprintf(text, sizeof text, "%.3f, 95%%: %.3f to %.3f", number_of(pair, "ratio"),
                   number_of(pair, "low"), number_of(pair, "high"));
    json_object_set_new(cells, "ratio", json_text(text));
    json_object_set_new(cells, "base_ns",
                        json_integer((json_int_t)(number_of(pair, "base_ns") + 0.5)));
    json_object_set(cells, "base", json_object_get(pair, "base"));
    json_object_set(cells, "verdict", json_object_get(pair, "verdict"));
    json_array_append_new(table, cells);
  }
  print_table(table,
              "what=what:s target=target:s tier=tier:s threads=threads:s sizes=sizes:s "
              "median=median_ns:n base=base:s median=base_ns:n ratio=ratio:s verdict=verdict:s");
  json_decref(table);
}

void show_text(const json_t* results) {
  const style_t* style = style_of(stdout);
  const json_t* rows = json_object_get(results, "rows");
  const json_t* machine = json_object_get(results, "machine");
  print(stdout, "%s%s%s: %s\n", style->bold, text_of(results, "file"), style->plain,
        text_of(results, "signature"));
  print(stdout, "%s, %d cores; quern %s\n", text_of(machine, "processor"),
        (int)number_of(machine, "cores"), text_of(results, "version"));
  show_rows(rows, false);
  show_stages(rows);
  show_rows(rows, true);
  show_roofs(json_object_get(results, "roofs"));
  show_comparison(json_object_get(results, "comparison"));
  const char* note = text_of(results, "comparison_note");
  if (note[0]) print(stdout, "%s\n", note);
  const json_t* missing = json_object_get(results, "not_measured");
  if (json_array_size(missing) > 0) title("not measured");
  for (size_t i = 0; i < json_array_size(missing); i++) {
    const json_t* it = json_array_get(missing, i);
    print(stdout, "%s: %s\n", text_of(it, "what"), text_of(it, "why"));
  }
}
