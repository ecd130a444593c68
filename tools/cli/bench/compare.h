// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/compare.h: which of two measurements is faster, and how sure that is.
#ifndef QUERN_TOOLS_CLI_BENCH_COMPARE_H_
#define QUERN_TOOLS_CLI_BENCH_COMPARE_H_

#include <jansson.h>
#include <stdbool.h>

// What two rows that are compared may differ in.
typedef enum compare_by {
  COMPARE_RUN,   // nothing: the other one is of an earlier run
  COMPARE_FILE,  // file and function
  COMPARE_TARGET,
  COMPARE_TIER,
} compare_by_t;

// Compares each row with the row of `others` that is alike but for `by`, and returns a list of
// records: those of the row, `base` (what the other one is), `base_ns`, `median_ns`, `ratio`,
// `low`, `high`, `verdict` ("faster", "slower", "no difference shown"). Rows without a partner, or
// without enough samples, are appended to `not_measured`. Records are borrowed for the call.
json_t* compare_rows(const json_t* rows, const json_t* others, compare_by_t by,
                     json_t* not_measured);

#endif  // QUERN_TOOLS_CLI_BENCH_COMPARE_H_
