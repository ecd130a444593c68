// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/bench.h: a run of `quern bench`.
//
// prepare.c   reads the command line, opens what is measured
// bench.c     measures, in rounds
// results.c   makes the document
// rows.h      what is measured
#ifndef QUERN_TOOLS_CLI_BENCH_BENCH_H_
#define QUERN_TOOLS_CLI_BENCH_BENCH_H_

#include "tools/cli/bench/compare.h"
#include "tools/cli/bench/roof.h"
#include "tools/cli/bench/rows.h"
#include "tools/cli/output.h"

enum { BENCH_MAX_PLACES = 16, BENCH_MAX_THREADS = 16, BENCH_MAX_SIZES = 32 };

typedef struct bench {
  const args_t* args;
  int64_t time_ns;  // for each row
  const char* tiers[2];
  size_t tier_count;
  int32_t threads[BENCH_MAX_THREADS];
  size_t thread_count;
  compare_by_t by;
  bool compares;
  const char* other;  // of --compare
  json_t* older;      // rows of an older run; owned
  subject_t subjects[2];
  size_t subject_count;
  bench_place_t places[BENCH_MAX_PLACES];
  size_t place_count;
  inputs_t inputs[2 * BENCH_MAX_SIZES];  // those of a subject one after the other
  size_t input_count;                    // of one subject
  spot_t* spots;
  size_t spot_count;
  bench_row_t** rows;  // owned
  size_t row_count, row_capacity;
  char work_dir[512];  // "" until it is made
  json_t* roofs;
  json_t* not_measured;
  progress_t* progress;
} bench_t;

// ---- prepare.c

// Reads the options. Returns an exit code.
int bench_read_usage(bench_t* bench);
// Opens files, targets and functions, and lists the rows.
qn_status_t bench_prepare(bench_t* bench);
// Notes what is not measured.
void bench_note(bench_t* bench, const char* what, const char* why);

// ---- results.c

// Makes the document of what has been measured.
json_t* bench_results(bench_t* bench, bool is_complete);
// Write the files of --save and --svg.
qn_status_t bench_save(const bench_t* bench, json_t* results);
qn_status_t bench_draw(const bench_t* bench, const json_t* results);

#endif  // QUERN_TOOLS_CLI_BENCH_BENCH_H_
