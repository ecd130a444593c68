// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/run_report.c: prints the outputs of a run as text or as JSON.
//
// It prints small arrays whole, and of larger ones the minimum, maximum and mean.
#include "tools/cli/run/run_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "quern/target.h"
#include "tools/cli/output.h"
#include "tools/cli/run/elements.h"

enum {
  SMALL_TEXT_ELEMENTS = 64,
  SMALL_JSON_ELEMENTS = 1024,
};

typedef struct statistics {
  double least;
  double largest;
  double mean;
  int64_t nan_count;
} statistics_t;

static statistics_t measure(const npy_array_t* array) {
  statistics_t result = {(double)INFINITY, -(double)INFINITY, 0, 0};
  int64_t count = array_count(array);
  for (int64_t i = 0; i < count; i++) {
    double value = conf_element(array->dtype, array->data, (size_t)i);
    if (isnan(value)) {
      result.nan_count++;
      continue;
    }
    result.least = fmin(result.least, value);
    result.largest = fmax(result.largest, value);
    result.mean += value;
  }
  int64_t number_count = count - result.nan_count;
  result.mean = number_count ? result.mean / (double)number_count : (double)NAN;
  return result;
}

static void print_small(const npy_array_t* array) {
  int64_t row = array->rank ? array->shape[array->rank - 1] : 1;
  int64_t count = array_count(array);
  int width = 0;
  char text[40];
  for (int64_t i = 0; i < count; i++) {
    int size = (int)strlen(element_text(array, (size_t)i, text));
    if (size > width) width = size;
  }
  for (int64_t i = 0; i < count; i++) {
    print(stdout, "%s%*s", i % row == 0 ? "  " : " ", width, element_text(array, (size_t)i, text));
    if ((i + 1) % row == 0) print(stdout, "\n");
    // A blank line between matrices.
    bool is_matrix_end = array->rank > 2 && (i + 1) % (row * array->shape[array->rank - 2]) == 0;
    if (is_matrix_end && i + 1 < count) print(stdout, "\n");
  }
}

static void print_output(const run_arg_t* arg) {
  const style_t* style = style_of(stdout);
  const npy_array_t* array = &arg->array;
  char text[512];
  print(stdout, "%s%s%s: %s", style->bold, arg->info.name, style->plain, array_text(array, text));
  if (arg->out_path) print(stdout, " -> %s", arg->out_path);
  if (array_count(array) <= SMALL_TEXT_ELEMENTS) {
    print(stdout, "\n");
    print_small(array);
    return;
  }
  statistics_t facts = measure(array);
  print(stdout, "  min %.6g, max %.6g, mean %.6g", facts.least, facts.largest, facts.mean);
  if (facts.nan_count) print(stdout, ", %" PRId64 " nan", facts.nan_count);
  print(stdout, "\n");
}

void run_report_text(const run_summary_t* summary, const run_args_t* run) {
  const style_t* style = style_of(stdout);
  for (size_t i = 0; i < run->count; i++) {
    if (run_arg_is_output(&run->args[i])) print_output(&run->args[i]);
  }
  const qn_lookup_info_t* lookup = &summary->lookup;
  char times[4][32];
  const char* source = lookup->source == QN_SOURCE_COMPILED ? "compiled" : "from";
  print(stdout, "%s%s%s on %s: %s%s%s", style->bold, summary->function, style->plain,
        qn_target_kind(summary->target), style->cyan, source, style->plain);
  if (lookup->source == QN_SOURCE_COMPILED) {
    print(stdout, " in %s", format_ns(lookup->compile_ns, times[0]));
  } else {
    print(stdout, " %s%s%s", style->cyan, qn_source_text(lookup->source), style->plain);
  }
  print(stdout, ", loaded in %s, found in %s; ran in %s", format_ns(lookup->load_ns, times[1]),
        format_ns(lookup->lookup_ns, times[2]), format_ns(summary->run_median_ns, times[3]));
  if (summary->repeat_count > 1) {
    print(stdout, " (median of %" PRIu64 ", least %s)", summary->repeat_count,
          format_ns(summary->run_least_ns, times[0]));
  }
  print(stdout, "\n%skey %s%s\n", style->dim, lookup->key.hex, style->plain);
}

// -------------------------------------------------------------------------------------- JSON

static json_t* nested(const npy_array_t* array, int32_t axis, size_t* inout_at) {
  if (axis == array->rank) return element_json(array, (*inout_at)++);
  json_t* list = json_array();
  for (int64_t i = 0; i < array->shape[axis]; i++) {
    json_array_append_new(list, nested(array, axis + 1, inout_at));
  }
  return list;
}

static json_t* real(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t* output_json(const run_arg_t* arg) {
  const npy_array_t* array = &arg->array;
  json_t* shape = json_array();
  for (int32_t d = 0; d < array->rank; d++) {
    json_array_append_new(shape, json_integer(array->shape[d]));
  }
  json_t* output = json_record("dtype:s shape:o", qn_dtype_text(array->dtype), shape);
  if (arg->out_path) json_object_set_new(output, "file", json_text(arg->out_path));
  int64_t count = array_count(array);
  // In an array without elements, the axes before the empty one still make lists.
  int64_t list_count = 1;
  for (int32_t d = 0; d < array->rank && list_count <= SMALL_JSON_ELEMENTS; d++) {
    if (array->shape[d] > SMALL_JSON_ELEMENTS)
      list_count = INT64_MAX;
    else if (array->shape[d] > 1)
      list_count *= array->shape[d];
  }
  if (list_count <= SMALL_JSON_ELEMENTS) {
    size_t at = 0;
    json_object_set_new(output, "values", nested(array, 0, &at));
  }
  if (count > 0) {
    statistics_t facts = measure(array);
    json_object_set_new(output, "min", real(facts.least));
    json_object_set_new(output, "max", real(facts.largest));
    json_object_set_new(output, "mean", real(facts.mean));
    json_object_set_new(output, "nan_count", json_integer(facts.nan_count));
  }
  return output;
}

void run_report_json(const run_summary_t* summary, const run_args_t* run) {
  // Nine digits tell f32 values apart; more would show the error of the conversion.
  int digits = 9;
  json_t* outputs = json_object();
  for (size_t i = 0; i < run->count; i++) {
    const run_arg_t* arg = &run->args[i];
    if (!run_arg_is_output(arg)) continue;
    if (arg->array.dtype == QN_DTYPE_F64) digits = 17;
    json_object_set_new(outputs, arg->info.name, output_json(arg));
  }
  const qn_lookup_info_t* lookup = &summary->lookup;
  json_t* times =
      json_record("parse:i lookup:i compile:i load:i run:i run_least:i run_most:i",
                  summary->parse_ns, lookup->lookup_ns, lookup->compile_ns, lookup->load_ns,
                  summary->run_median_ns, summary->run_least_ns, summary->run_max_ns);
  print_json_digits(
      json_record("file:s function:s signature:s target:o tier:s is_checked:b source:s "
                  "is_fallback:b key:s repeat:i times_ns:o outputs:o",
                  summary->file, summary->function, summary->signature,
                  json_parsed(qn_target_json(summary->target)),
                  lookup->tier == QN_TIER_FAST ? "fast" : "full", summary->is_checked,
                  qn_source_text(lookup->source), lookup->is_fallback, lookup->key.hex,
                  summary->repeat_count, times, outputs),
      digits);
}
