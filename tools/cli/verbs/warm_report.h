// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/warm_report.h: prints the progress and the results of `quern warm`.
#ifndef QUERN_TOOLS_CLI_VERBS_WARM_REPORT_H_
#define QUERN_TOOLS_CLI_VERBS_WARM_REPORT_H_

#include "quern/warm.h"
#include "tools/cli/args.h"
#include "tools/cli/output.h"
#include "tools/cli/verbs/warm_bundle.h"

typedef struct warm_report {
  const args_t* args;
  bool is_dry_run;
  json_t* keys;      // owned; with --json
  json_t* problems;  // owned
  size_t problem_count;
  warm_keys_t warm_keys;  // owned; of the keys that are warm
  qn_cache_write_report_t bundle;
  qn_cached_report_t from_cache;
  progress_t* progress;
  int64_t line_ns;  // the time of the last plain line
} warm_report_t;

void warm_report_init(warm_report_t* report, const args_t* args);
// For qn_warm_read_options_t.
void warm_report_problem(void* self, const qn_warm_problem_t* problem);
// Before and after the work.
void warm_report_begin(warm_report_t* report);
void warm_report_progress(warm_report_t* report, const qn_warm_result_t* progress,
                          const qn_warm_item_t* item);
void warm_report_end(warm_report_t* report);
// Prints the summary, releases everything and returns the exit code; `status` is consumed.
int warm_report_finish(warm_report_t* report, const qn_warm_result_t* result, qn_status_t status);

#endif  // QUERN_TOOLS_CLI_VERBS_WARM_REPORT_H_
