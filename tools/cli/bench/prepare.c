// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/prepare.c: reads the options of `quern bench`, and opens what it measures.
#define _XOPEN_SOURCE 700  // mkdtemp
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/stop.h"
#include "tools/cli/memory.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"

// Operations of a call with default sizes: milliseconds, also for the interpreter.
#define MAX_WORK 268435456.0
#define MAX_INTERPRETED_WORK 262144.0

// ------------------------------------------------------------------------------------ usage

static int read_threads(bench_t* bench) {
  int32_t cores = qn_cpu_core_count();
  const char* text = args_value(bench->args, "threads", NULL);
  if (!text) {
    bench->threads[bench->thread_count++] = 1;
    if (cores > 1) bench->threads[bench->thread_count++] = cores;
    return EXIT_DONE;
  }
  for (const char* at = text; *at;) {
    char digits[16] = "";
    size_t size = strcspn(at, ",");
    uint64_t number = 0;
    if (size < sizeof digits) memcpy(digits, at, size);
    if (bench->thread_count == BENCH_MAX_THREADS ||
        !args_number(digits, 1, (uint64_t)cores, &number)) {
      return report_usage(bench->args,
                          "--threads is '%s', expected up to %d numbers from 1 to %d (the cores of "
                          "this process), with commas between",
                          text, BENCH_MAX_THREADS, (int)cores);
    }
    bench->threads[bench->thread_count++] = (int32_t)number;
    at += size + (at[size] == ',');
  }
  if (bench->thread_count > 0) return EXIT_DONE;
  return report_usage(bench->args, "--threads is empty");
}

static int read_tiers(bench_t* bench) {
  static const char* const tiers[] = {"fast", "full"};
  const char* text = args_value(bench->args, "tier", "both");
  for (size_t i = 0; i < 2; i++) {
    if (strcmp(text, "both") == 0 || strcmp(text, tiers[i]) == 0) {
      bench->tiers[bench->tier_count++] = tiers[i];
    }
  }
  if (bench->tier_count > 0) return EXIT_DONE;
  return report_usage(bench->args, "--tier is '%s', expected fast, full or both", text);
}

static bool ends_with(const char* text, const char* end) {
  size_t size = strlen(text), end_size = strlen(end);
  return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

// Finds out what --compare names: a tier, an older run, another file, else a target.
static int read_compare(bench_t* bench) {
  const char* other = args_value(bench->args, "compare", NULL);
  if (!other) return EXIT_DONE;
  bench->compares = true;
  bench->other = other;
  bool is_fast = strcmp(other, "fast") == 0;
  if (is_fast || strcmp(other, "full") == 0) {
    bench->by = COMPARE_TIER;
    const char* tier = args_value(bench->args, "tier", "both");
    if (strcmp(tier, other) == 0) {
      return report_usage(bench->args, "--compare %s: --tier is the same", other);
    }
    bench->tiers[0] = is_fast ? "full" : "fast";
    bench->tiers[1] = other;
    bench->tier_count = 2;
  } else if (ends_with(other, ".json")) {
    bench->by = COMPARE_RUN;
  } else if (ends_with(other, ".qn") || strstr(other, ".qn:")) {
    bench->by = COMPARE_FILE;
  } else {
    bench->by = COMPARE_TARGET;
  }
  return EXIT_DONE;
}

int bench_read_usage(bench_t* bench) {
  const char* time = args_value(bench->args, "time", "0.25");
  if (!session_time(time, &bench->time_ns)) {
    return report_usage(bench->args, "--time is '%s', expected a time such as 2, 500ms or 1min",
                        time);
  }
  int code = read_tiers(bench);
  if (code == EXIT_DONE) code = read_threads(bench);
  if (code == EXIT_DONE) code = read_compare(bench);
  return code;
}

// ------------------------------------------------------------------------------------ preparing

void bench_note(bench_t* bench, const char* what, const char* why) {
  json_array_append_new(bench->not_measured, json_record("what:s why:s", what, why));
}

// Notes what cannot be measured, and keeps the first reason as that of the whole.
static void skip(bench_t* bench, const char* what, qn_status_t status, qn_status_t* inout_first) {
  bench_note(bench, what, qn_status_message(status));
  if (qn_ok(*inout_first)) {
    *inout_first = status;
  } else {
    qn_status_free(status);
  }
}

static qn_status_t open_older(bench_t* bench) {
  if (!bench->compares || bench->by != COMPARE_RUN) return QN_OK;
  text_t text;
  qn_status_t status = text_read(bench->other, &text);
  if (!qn_ok(status)) return status;
  json_error_t error;
  json_t* older = json_loadb(text.data ? text.data : "", text.size, 0, &error);
  text_free(&text);
  json_t* rows = json_object_get(older, "rows");
  if (!older) {
    status = qn_status_make(QN_STATUS_DATA_LOSS, "%s:%d: %s", bench->other, error.line, error.text);
  } else if (!json_is_array(rows)) {
    status = qn_status_make(QN_STATUS_DATA_LOSS, "%s: no results of 'quern bench'", bench->other);
  } else {
    bench->older = json_incref(rows);
  }
  json_decref(older);
  return status;
}

static qn_status_t open_places(bench_t* bench, qn_status_t* out_first) {
  const char* text;
  bool compares = bench->compares && bench->by == COMPARE_TARGET;
  int at = 0;
  for (int count = 0;; count++) {
    text = args_next(bench->args, "target", &at);
    bool is_last = !text;
    if (is_last && count == 0) text = "cpu";
    if (is_last && count > 0) text = compares ? bench->other : NULL;
    if (!text) return QN_OK;
    if (bench->place_count == BENCH_MAX_PLACES) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "more than %d targets", BENCH_MAX_PLACES);
    }
    bench_place_t* place = &bench->places[bench->place_count];
    qn_status_t status = place_open(text, place);
    qn_status_code_t code = qn_status_code(status);
    if (qn_ok(status)) {
      bench->place_count++;
    } else {
      place_close(place);
      // A target that is wrong by itself is a mistake; one that this machine lacks is a finding.
      bool is_lack = code == QN_STATUS_UNAVAILABLE || code == QN_STATUS_INCOMPATIBLE;
      if (!is_lack) return status;
      skip(bench, text, status, out_first);
    }
    if (is_last && (count > 0 || !compares)) return QN_OK;
  }
}

static qn_status_t open_inputs(bench_t* bench) {
  double max_work = MAX_WORK;
  for (size_t i = 0; i < bench->place_count; i++) {
    if (bench->places[i].is_interpreter) max_work = MAX_INTERPRETED_WORK;
  }
  for (size_t s = 0; s < bench->subject_count; s++) {
    int at = 0;
    size_t count = 0;
    const char* sizes = args_next(bench->args, "sizes", &at);
    do {
      if (count == BENCH_MAX_SIZES) {
        return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "more than %d --sizes", BENCH_MAX_SIZES);
      }
      inputs_t* inputs = &bench->inputs[s * BENCH_MAX_SIZES + count++];
      qn_status_t status =
          inputs_make(bench->args, &bench->subjects[s], sizes,
                      bench->place_count ? bench->places[0].warp_size : 0, max_work, inputs);
      if (!qn_ok(status)) return status;
    } while ((sizes = args_next(bench->args, "sizes", &at)));
    bench->input_count = count;
  }
  return QN_OK;
}

static void add_row(bench_t* bench, bench_row_kind_t kind, spot_t* spot, int32_t threads) {
  bench->rows =
      memory_room(bench->rows, &bench->row_capacity, bench->row_count, sizeof *bench->rows);
  bench_row_t* row = memory_zeroed(1, sizeof *row);
  row->kind = kind;
  row->spot = spot;
  row->threads = threads;
  bench->rows[bench->row_count++] = row;
}

static void add_rows(bench_t* bench, spot_t* spot, bool is_first_size) {
  bool has_threads = spot->place->is_cpu;
  int32_t most = 0;
  for (size_t i = 0; i < bench->thread_count; i++) {
    if (has_threads && bench->threads[i] > most) most = bench->threads[i];
  }
  if (is_first_size) {
    add_row(bench, ROW_COLD, spot, most);
    add_row(bench, ROW_DISK, spot, most);
    bench->rows[bench->row_count - 2]->disk = bench->rows[bench->row_count - 1];
    for (size_t i = 0; i < bench->thread_count; i++) {
      add_row(bench, ROW_MISS, spot, bench->threads[i]);
    }
    add_row(bench, ROW_MEMORY, spot, 0);
  }
  for (size_t i = 0; i < (has_threads ? bench->thread_count : 1); i++) {
    add_row(bench, ROW_CALL, spot, has_threads ? bench->threads[i] : 0);
  }
}

static void open_spots(bench_t* bench, qn_status_t* out_first) {
  size_t most = bench->subject_count * bench->place_count * bench->tier_count * bench->input_count;
  bench->spots = memory_zeroed(most, sizeof *bench->spots);
  for (size_t i = 0; i < most && !stop_wanted(); i++) {
    size_t at = i;
    size_t size = at % bench->input_count, tier = (at /= bench->input_count) % bench->tier_count;
    size_t place = (at /= bench->tier_count) % bench->place_count;
    size_t subject = at / bench->place_count;
    spot_t* spot = &bench->spots[bench->spot_count];
    *spot = (spot_t){.args = bench->args,
                     .subject = &bench->subjects[subject],
                     .place = &bench->places[place],
                     .tier = bench->tiers[tier],
                     .inputs = &bench->inputs[subject * BENCH_MAX_SIZES + size]};
    char what[300];
    (void)snprintf(what, sizeof what, "%.60s, %.100s, %s, %.80s", spot->subject->function,
                   spot->place->text, spot->tier, spot->inputs->sizes);
    progress_tell(bench->progress, what);
    qn_status_t status = spot_open(spot);
    if (!qn_ok(status)) {
      spot_close(spot);
      skip(bench, what, status, out_first);
      continue;
    }
    if (spot->uncounted && tier == 0) {
      char text[400];
      (void)snprintf(text, sizeof text, "operations and bytes of %s", what);
      bench_note(bench, text, spot->uncounted);
    }
    bench->spot_count++;
    add_rows(bench, spot, size == 0);
  }
}

static qn_status_t make_work_dir(bench_t* bench) {
  const char* parent = getenv("TMPDIR");
  (void)snprintf(bench->work_dir, sizeof bench->work_dir, "%.400s/quern-bench-XXXXXX",
                 parent && parent[0] == '/' ? parent : "/tmp");
  if (mkdtemp(bench->work_dir)) return QN_OK;
  qn_status_t status = file_error("make", bench->work_dir);
  bench->work_dir[0] = '\0';
  return status;
}

qn_status_t bench_prepare(bench_t* bench) {
  qn_status_t first = QN_OK,
              status = subject_open(bench->args, bench->args->operands[0], &bench->subjects[0]);
  bench->subject_count = 1;
  if (qn_ok(status) && bench->compares && bench->by == COMPARE_FILE) {
    bench->subject_count = 2;
    status = subject_open(bench->args, bench->other, &bench->subjects[1]);
  }
  if (qn_ok(status)) status = open_older(bench);
  if (qn_ok(status)) status = open_places(bench, &first);
  if (qn_ok(status)) status = open_inputs(bench);
  const char* save = args_value(bench->args, "save", NULL);
  const char* svg = args_value(bench->args, "svg", NULL);
  // Finds out now whether the files can be written.
  if (qn_ok(status) && save) status = text_write(save, "{}\n", 3);
  if (qn_ok(status) && svg) status = text_write(svg, "", 0);
  if (qn_ok(status)) status = make_work_dir(bench);
  if (qn_ok(status)) open_spots(bench, &first);
  // Where nothing at all can be measured, the first reason is the error.
  if (qn_ok(status) && bench->row_count == 0 && !stop_wanted()) {
    status = first;
    first = QN_OK;
  }
  qn_status_free(first);
  return status;
}
