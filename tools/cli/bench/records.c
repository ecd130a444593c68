// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/records.c: the records of rows, and samples read from them; see rows.h.
#include <math.h>

#include "tools/cli/bench/rows.h"
#include "tools/cli/output.h"

enum { KEPT_SAMPLES = 100 };  // of a round

// Rounds to a thousandth of a nanosecond: more digits are none of the clock.
static json_t* nanoseconds(double value) {
  return json_real(round(value * 1000) / 1000);
}

static json_t* rounds_json(const samples_t* samples) {
  json_t* rounds = json_array();
  for (size_t r = 0; r < samples->round_count; r++) {
    const round_samples_t* round = &samples->rounds[r];
    if (round->count == 0) continue;
    json_t* values = json_array();
    size_t step = (round->count + KEPT_SAMPLES - 1) / KEPT_SAMPLES;
    for (size_t i = 0; i < round->count; i += step) {
      json_array_append_new(values, nanoseconds(round->values[i]));
    }
    json_array_append_new(rounds, values);
  }
  return rounds;
}

bool row_read_samples(const json_t* record, samples_t* out) {
  *out = (samples_t){.round_count = 0};
  const json_t* rounds = json_object_get(record, "rounds_ns");
  for (size_t r = 0; r < json_array_size(rounds) && r < MAX_ROUNDS; r++) {
    const json_t* values = json_array_get(rounds, r);
    for (size_t i = 0; i < json_array_size(values); i++) {
      const json_t* value = json_array_get(values, i);
      if (json_is_number(value) && json_number_value(value) > 0) {
        samples_add(out, r, json_number_value(value));
      }
    }
  }
  return samples_count(out) > 0;
}

static json_t* stages_json(const bench_row_t* row) {
  json_t* stages = json_object();
  for (int s = 0; s < WARM_COUNT; s++) {
    if (row->stages[s] <= 0) continue;
    json_object_set_new(stages, warm_stage_text((warm_stage_t)s), nanoseconds(row->stages[s]));
  }
  return stages;
}

static json_t* work_json(const spot_t* spot) {
  if (spot->uncounted) return json_null();
  const qn_work_t* work = &spot->work;
  json_t* record = json_record("dtype:s is_exact:b", qn_dtype_text(work->dtype), work->is_exact);
  const struct {
    const char* name;
    double value;
  } numbers[] = {{"flops", work->flops},
                 {"integer_ops", work->integer_ops},
                 {"calls", work->calls},
                 {"loaded_bytes", work->loaded_bytes},
                 {"stored_bytes", work->stored_bytes},
                 {"moved_bytes", work->moved_bytes}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    double value = numbers[i].value;
    bool is_whole = value < 9e15;
    json_object_set_new(record, numbers[i].name,
                        is_whole ? json_integer((json_int_t)value) : json_real(value));
  }
  return record;
}

static void add_speed(const bench_row_t* row, const distribution_t* d, json_t* record) {
  const spot_t* spot = row->spot;
  json_object_set_new(record, "work", work_json(spot));
  if (spot->uncounted || d->median <= 0) return;
  const qn_work_t* work = &spot->work;
  double ops = work->flops > 0 ? work->flops : work->integer_ops;
  json_object_set_new(record, "gops", json_real(ops / d->median));
  json_object_set_new(record, "is_float", json_boolean(work->flops > 0));
  json_object_set_new(record, "gbs", json_real(work->moved_bytes / d->median));
}

json_t* row_json(bench_row_t* row) {
  const spot_t* spot = row->spot;
  distribution_t d = samples_distribution(&row->samples);
  json_t* record = json_record(
      "what:s file:s function:s target:s tier:s sizes:s threads:d samples:d iterations:i",
      row_kind_text(row->kind), spot->subject->file, spot->subject->function, spot->place->text,
      spot->tier, spot->inputs->sizes, (int)row->threads, (int)d.count,
      row->iterations > 0 ? row->iterations : INT64_C(1));
  if (row->threads == 0) json_object_set_new(record, "threads", json_null());
  const struct {
    const char* name;
    double value;
  } numbers[] = {{"min_ns", d.min}, {"median_ns", d.median}, {"p90_ns", d.p90},
                 {"p99_ns", d.p99}, {"max_ns", d.max},       {"mean_ns", d.mean}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    json_object_set_new(record, numbers[i].name, nanoseconds(numbers[i].value));
  }
  json_object_set_new(record, "spread", json_real(d.spread));
  size_t bins[16];
  samples_histogram(&row->samples, bins, 16);
  json_t* histogram = json_array();
  for (size_t i = 0; i < 16; i++)
    json_array_append_new(histogram, json_integer((json_int_t)bins[i]));
  json_object_set_new(record, "histogram", histogram);
  if (row->kind <= ROW_MISS) {
    row_set_stages(row);
    json_object_set_new(record, "stages_ns", stages_json(row));
  }
  if (row->kind == ROW_MISS) {
    json_object_set_new(record, "modules_per_second", json_real(row->compiles_per_second));
    double functions = (double)qn_module_function_count(spot->subject->module);
    json_object_set_new(record, "functions_per_second",
                        json_real(row->compiles_per_second * functions));
  }
  if (row->kind == ROW_CALL) add_speed(row, &d, record);
  json_object_set_new(record, "rounds_ns", rounds_json(&row->samples));
  return record;
}
