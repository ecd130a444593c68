// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/run_report.h: prints outputs, the source of the code and times of `quern run`.
#ifndef QUERN_TOOLS_CLI_RUN_RUN_REPORT_H_
#define QUERN_TOOLS_CLI_RUN_RUN_REPORT_H_

#include "tools/cli/run/run_args.h"

typedef struct run_summary {
  const char* file;
  const char* function;
  const char* signature;
  const qn_target_t* target;
  bool is_checked;
  qn_lookup_info_t lookup;
  int64_t parse_ns;
  uint64_t repeat_count;
  int64_t run_median_ns;
  int64_t run_least_ns;
  int64_t run_max_ns;
} run_summary_t;

void run_report_text(const run_summary_t* summary, const run_args_t* run);
void run_report_json(const run_summary_t* summary, const run_args_t* run);

#endif  // QUERN_TOOLS_CLI_RUN_RUN_REPORT_H_
