// tools/cli/bench/bench.c: `quern bench`: how long code takes to come, and how fast it runs.
//
// The results are one JSON object, from which tables, drawing and comparisons are made. It is
// complete after each round, so that an interrupted run keeps what it has. Read next: rows.h.
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "quern/device.h"
#include "tools/cli/bench/child.h"
#include "tools/cli/bench/compare.h"
#include "tools/cli/bench/roof.h"
#include "tools/cli/bench/rows.h"
#include "tools/cli/bench/show.h"
#include "tools/cli/bench/stop.h"
#include "tools/cli/memory.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

enum { ROUNDS = 5, MAX_PLACES = 16, MAX_THREADS = 16, MAX_SIZES = 32 };
// Operations of a call with default sizes: milliseconds, also for the interpreter.
#define MAX_WORK 268435456.0
#define MAX_INTERPRETED_WORK 262144.0

typedef struct bench {
  const args_t* args;
  int64_t time_ns;  // for each row
  const char* tiers[2];
  size_t tier_count;
  int32_t threads[MAX_THREADS];
  size_t thread_count;
  compare_by_t by;
  bool compares;
  const char* other;  // of --compare
  json_t* older;      // rows of an older run; owned
  subject_t subjects[2];
  size_t subject_count;
  bench_place_t places[MAX_PLACES];
  size_t place_count;
  inputs_t inputs[2 * MAX_SIZES];  // those of a subject one after the other
  size_t input_count;              // of one subject
  spot_t* spots;
  size_t spot_count;
  bench_row_t** rows;  // owned
  size_t row_count, row_capacity;
  char work_dir[512];  // "" until it is made
  json_t* roofs;
  json_t* not_measured;
  progress_t* progress;
} bench_t;

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
    if (bench->thread_count == MAX_THREADS || !args_number(digits, 1, (uint64_t)cores, &number)) {
      return report_usage(bench->args,
                          "--threads is '%s', expected up to %d numbers from 1 to %d (the cores of "
                          "this process), with commas between",
                          text, MAX_THREADS, (int)cores);
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

static int read_usage(bench_t* bench) {
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

static void note(bench_t* bench, const char* what, const char* why) {
  json_array_append_new(bench->not_measured, json_record("what:s why:s", what, why));
}

// Notes what cannot be measured, and keeps the first reason as that of the whole.
static void skip(bench_t* bench, const char* what, qn_status_t status, qn_status_t* inout_first) {
  note(bench, what, qn_status_message(status));
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
    if (bench->place_count == MAX_PLACES) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "more than %d targets", MAX_PLACES);
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
      if (count == MAX_SIZES) {
        return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "more than %d --sizes", MAX_SIZES);
      }
      inputs_t* inputs = &bench->inputs[s * MAX_SIZES + count++];
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
                     .inputs = &bench->inputs[subject * MAX_SIZES + size]};
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
      note(bench, text, spot->uncounted);
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

static qn_status_t prepare(bench_t* bench) {
  qn_status_t first = QN_OK, status = subject_open(bench->args->operands[0], &bench->subjects[0]);
  bench->subject_count = 1;
  if (qn_ok(status) && bench->compares && bench->by == COMPARE_FILE) {
    bench->subject_count = 2;
    status = subject_open(bench->other, &bench->subjects[1]);
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

// ------------------------------------------------------------------------------------ measuring

static void measure_roofs(bench_t* bench) {
  for (size_t i = 0; i < bench->row_count && !stop_wanted(); i++) {
    const bench_row_t* row = bench->rows[i];
    if (row->kind != ROW_CALL) continue;
    bool is_done = false;
    for (size_t k = 0; k < i && !is_done; k++) {
      const bench_row_t* other = bench->rows[k];
      is_done = other->kind == ROW_CALL && other->spot->place == row->spot->place &&
                other->threads == row->threads && other->spot->work.dtype == row->spot->work.dtype;
    }
    if (is_done) continue;
    progress_tell(bench->progress, "limits of the machine");
    json_t* record = NULL;
    roof_measure(row->spot->place, row->threads, row->spot->work.dtype, bench->not_measured,
                 &record);
    if (record) json_array_append_new(bench->roofs, record);
  }
}

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

// Makes the document of what has been measured.
static json_t* make_results(bench_t* bench, bool is_complete) {
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

static qn_status_t save_results(bench_t* bench, json_t* results) {
  const char* path = args_value(bench->args, "save", NULL);
  if (!path) return QN_OK;
  size_t flags = JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17);
  char* text = json_dumps(results, flags);
  if (!text) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the results");
  qn_status_t status = text_write(path, text, strlen(text));
  free(text);
  return status;
}

static void measure_round(bench_t* bench, size_t round, bool* has_failed) {
  for (size_t i = 0; i < bench->row_count && !stop_wanted(); i++) {
    bench_row_t* row = bench->rows[i];
    if (has_failed[i] || row->kind == ROW_DISK) continue;
    char what[200];
    (void)snprintf(what, sizeof what, "round %zu of %d: %s, %.100s, %s", round + 1, ROUNDS,
                   row_kind_text(row->kind), row->spot->place->text, row->spot->tier);
    progress_tell(bench->progress, what);
    qn_status_t status = row_measure(row, round, bench->time_ns / ROUNDS, bench->work_dir);
    if (!qn_ok(status) && !stop_wanted()) {
      has_failed[i] = true;
      note(bench, what, qn_status_message(status));
    }
    qn_status_free(status);
  }
}

static qn_status_t measure(bench_t* bench) {
  bool* has_failed = memory_zeroed(bench->row_count, sizeof *has_failed);
  measure_roofs(bench);
  qn_status_t status = QN_OK;
  for (size_t round = 0; round < ROUNDS && !stop_wanted() && qn_ok(status); round++) {
    measure_round(bench, round, has_failed);
    if (round + 1 == ROUNDS) break;
    json_t* results = args_has(bench->args, "save") ? make_results(bench, false) : NULL;
    if (results) status = save_results(bench, results);
    json_decref(results);
  }
  free(has_failed);
  return status;
}

// ------------------------------------------------------------------------------------ the end

static qn_status_t write_svg(const bench_t* bench, const json_t* results) {
  const char* path = args_value(bench->args, "svg", NULL);
  if (!path) return QN_OK;
  text_t text = {0};
  qn_status_t status = show_svg(results, &text);
  if (qn_ok(status)) status = text_write(path, text.data, text.size);
  text_free(&text);
  return status;
}

static int finish(bench_t* bench) {
  bool is_stopped = stop_wanted();
  json_t* results = make_results(bench, !is_stopped);
  qn_status_t status = save_results(bench, results);
  if (qn_ok(status)) status = write_svg(bench, results);
  // The document comes even where a file cannot be written; there is only one on the stream.
  if (bench->args->is_json) {
    print_json(json_incref(results));
  } else {
    show_text(results);
  }
  json_decref(results);
  if (qn_ok(status) && is_stopped) {
    status = qn_status_make(QN_STATUS_CANCELLED, "stopped by %s: the results are those until then",
                            stop_signal());
  }
  return report_status_text(status);
}

static void release(bench_t* bench) {
  for (size_t i = 0; i < bench->row_count; i++) {
    row_free(bench->rows[i]);
    free(bench->rows[i]);
  }
  free(bench->rows);
  for (size_t i = 0; i < bench->spot_count; i++) spot_close(&bench->spots[i]);
  free(bench->spots);
  for (size_t i = 0; i < sizeof bench->inputs / sizeof bench->inputs[0]; i++) {
    inputs_free(&bench->inputs[i]);
  }
  for (size_t i = 0; i < bench->place_count; i++) place_close(&bench->places[i]);
  for (size_t i = 0; i < 2; i++) subject_close(&bench->subjects[i]);
  if (bench->work_dir[0]) (void)rmdir(bench->work_dir);
  json_decref(bench->older);
  json_decref(bench->roofs);
  json_decref(bench->not_measured);
}

static int run_bench(const args_t* args) {
  if (args_has(args, "child")) return child_run(args);
  bench_t* bench = memory_zeroed(1, sizeof *bench);
  bench->args = args;
  int code = read_usage(bench);
  if (code == EXIT_DONE) {
    stop_install();
    bench->roofs = json_array();
    bench->not_measured = json_array();
    bench->progress = progress_start("preparing");
    qn_status_t status = prepare(bench);
    if (qn_ok(status)) status = measure(bench);
    progress_stop(bench->progress);
    code = qn_ok(status) ? finish(bench) : report_status(args, status);
    release(bench);
  }
  free(bench);
  return code;
}

const verb_t verb_bench = {
    .name = "bench",
    .summary = "measure how long code takes to come and how fast it runs",
    .operands = "FILE.qn[:FUNCTION]",
    .min_operands = 1,
    .max_operands = 1,
    VERB_OPTIONS(
        {"target", 't', "T", "a target to measure (default cpu); may be given several times", true},
        OPTION("tier", "fast|full|both", "the tiers to measure (default both)"),
        {"sizes", 's', "n=512,m=64",
         "sizes of symbols and scalars; each --sizes is a set of its own", true},
        {"arg", 'a', "NAME=VALUE",
         "an argument, where sizes are not enough; see 'quern help values'", true},
        OPTION("threads", "1,2", "counts of threads (default: 1 and all cores)"),
        OPTION("time", "TIME", "time to spend on each row (default 0.25)"),
        OPTION("compare", "OTHER", "compare with a tier, a target, a file or an older --save"),
        OPTION("save", "FILE.json", "write the results, after each round too"),
        OPTION("svg", "FILE.svg", "draw the times and the roofline"), OPTION_PLUGIN, OPTION_JSON,
        OPTION("child", "DIR", NULL), OPTION("began", "NS", NULL)),
    .help =
        "The first table shows the time until a result is there: in a new process with an empty\n"
        "cache, in one with the code on disk, for a compile and a lookup in a running process. "
        "The\n"
        "second shows calls, with the operations and bytes that the program's text has, beside\n"
        "the limits of the machine. All rows are measured in turns.\n"
        "\n"
        "Symbols without a size get a power of two for which a call takes milliseconds. SIGINT\n"
        "and SIGTERM end the measurement; what was measured until then is shown and saved.\n",
    .examples =
        "  quern bench examples/ir/softmax.qn --sizes n=64,m=512 --time 50ms\n"
        "  quern bench examples/ir/matmul_tile.qn --tier full --threads 1 --time 50ms --save "
        "matmul.json --svg matmul.svg\n"
        "  quern bench examples/ir/matmul_tile.qn --tier full --threads 1 --time 50ms --compare "
        "matmul.json\n"
        "  quern bench examples/ir/saxpy.qn --target interp --compare cpu --time 50ms --json\n",
    .run = run_bench,
};
