// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/bench.c: `quern bench`: how long code takes to come, and how fast it runs.
//
// The results are one JSON object, from which tables, drawing and comparisons are made. It is
// complete after each round, so that an interrupted run keeps what it has. Read next: bench.h.
#include "tools/cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/cli/bench/child.h"
#include "tools/cli/bench/show.h"
#include "tools/cli/bench/stop.h"
#include "tools/cli/memory.h"
#include "tools/cli/report.h"
#include "tools/cli/verbs.h"

enum { ROUNDS = 5 };

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
      bench_note(bench, what, qn_status_message(status));
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
    json_t* results = args_has(bench->args, "save") ? bench_results(bench, false) : NULL;
    if (results) status = bench_save(bench, results);
    json_decref(results);
  }
  free(has_failed);
  return status;
}

// ------------------------------------------------------------------------------------ the end

static int finish(bench_t* bench) {
  bool is_stopped = stop_wanted();
  json_t* results = bench_results(bench, !is_stopped);
  qn_status_t status = bench_save(bench, results);
  if (qn_ok(status)) status = bench_draw(bench, results);
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
  int code = bench_read_usage(bench);
  if (code == EXIT_DONE) {
    stop_install();
    bench->roofs = json_array();
    bench->not_measured = json_array();
    bench->progress = progress_start("preparing");
    qn_status_t status = bench_prepare(bench);
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
        OPTION_SET, OPTION("threads", "1,2", "counts of threads (default: 1 and all cores)"),
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
