// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/conformance_report.h: the results of `quern conformance`: collects and prints
// them.
//
// A row is one variant of a feature (mostly: a dtype). JSON has all rows; the Markdown table has
// one row for a feature.
#ifndef QUERN_TOOLS_CLI_VERBS_CONFORMANCE_REPORT_H_
#define QUERN_TOOLS_CLI_VERBS_CONFORMANCE_REPORT_H_

#include "conformance/conformance.h"

typedef struct report report_t;

typedef enum report_mode { REPORT_TEXT, REPORT_JSON, REPORT_MARKDOWN, REPORT_LIST } report_mode_t;

typedef struct report_column {
  char name[64];
  char device_name[256];
  char driver[256];
  char target[256];  // "": the device's own kind
  qn_device_t device;
} report_column_t;

// Owned: report_free.
report_t* report_create(void);
void report_free(report_t* report);
// Adds a column; `target` may be NULL. Errors: INVALID_ARGUMENT (too many).
qn_status_t report_add_column(report_t* report, const char* name, qn_device_t device,
                              const char* target);
// Returns a column, or NULL beyond the last.
const report_column_t* report_column(const report_t* report, size_t index);
// Adds a result to a column; SIZE_MAX: adds only the row.
void report_add(report_t* report, size_t column, const conf_result_t* result);
// Prints at once a line for a result that is no pass.
void report_show(const report_t* report, size_t column, const conf_result_t* result);
void report_print(const report_t* report, report_mode_t mode);
size_t report_fail_count(const report_t* report);

#endif  // QUERN_TOOLS_CLI_VERBS_CONFORMANCE_REPORT_H_
