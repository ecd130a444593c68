// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/rows.h: the rows of a benchmark, and the one routine that measures them.
//
// All rows are measured in turns: in each round every row gets its part of the time. A change of
// the machine's speed then affects all of them, and shows as a difference between rounds.
#ifndef QUERN_TOOLS_CLI_BENCH_ROWS_H_
#define QUERN_TOOLS_CLI_BENCH_ROWS_H_

#include <jansson.h>

#include "tools/cli/bench/child.h"
#include "tools/cli/bench/stats.h"
#include "tools/cli/bench/subject.h"

// What a row times; docs/cli.md.
typedef enum bench_row_kind {
  ROW_COLD,    // a new process with an empty cache, until its first result
  ROW_DISK,    // a new process with the code in its cache directory, until its first result
  ROW_MISS,    // a lookup that compiles, in a running process; on one thread or several
  ROW_MEMORY,  // a lookup that hits the memory table
  ROW_CALL,    // a call of a function that has run before
  ROW_KIND_COUNT
} bench_row_kind_t;
const char* row_kind_text(bench_row_kind_t kind);

// A function for one target and tier, with arguments: what several rows share.
typedef struct spot {
  const args_t* args;
  const subject_t* subject;
  const bench_place_t* place;
  const char* tier;  // "fast" or "full"
  const inputs_t* inputs;
  qn_engine_t* engine;  // keeps code in memory alone
  qn_function_t* function;
  run_args_t bound;
  bool restores_inputs;  // calls change them
  qn_work_t work;
  char* uncounted;  // why there is no `work`, or NULL; owned
} spot_t;
// Looks the function up and calls it once. Errors: those of both. spot_close either way.
qn_status_t spot_open(spot_t* spot);
void spot_close(spot_t* spot);

typedef struct bench_row {
  bench_row_kind_t kind;
  spot_t* spot;
  int32_t threads;  // 0: does not apply
  samples_t samples;
  int64_t iterations;           // of a sample
  struct bench_row* disk;       // of COLD: the row that the same children fill; may be NULL
  double stages[WARM_COUNT];    // COLD, DISK: of the sample nearest to the median; MISS: means
  double compiles_per_second;   // MISS
  struct stage_list* children;  // COLD, DISK: owned
  struct compilers* compilers;  // MISS: owned
} bench_row_t;
// Takes samples for about `budget_ns`, at least one. `work_dir` is a directory of the command's
// own. Errors: those of the lookups and calls; CANCELLED when a signal came before the first one.
qn_status_t row_measure(bench_row_t* row, size_t round, int64_t budget_ns, const char* work_dir);
// Sets `stages` for what has been measured.
void row_set_stages(bench_row_t* row);
void row_free(bench_row_t* row);

// Makes a record of what has been measured; sets `stages`.
json_t* row_json(bench_row_t* row);
// Reads the samples back from such a record, also of an earlier version; false if it has none.
bool row_read_samples(const json_t* record, samples_t* out);

#endif  // QUERN_TOOLS_CLI_BENCH_ROWS_H_
