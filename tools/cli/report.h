// SPDX-License-Identifier: Apache-2.0
// tools/cli/report.h: reports errors and gives their exit codes.
//
// Errors go to standard error as "quern: ..."; with --json, standard output gets one object
// {"error": {...}} as well, so that a program reads one stream only.
#ifndef QUERN_TOOLS_CLI_REPORT_H_
#define QUERN_TOOLS_CLI_REPORT_H_

#include <jansson.h>

#include "quern/status.h"
#include "tools/cli/args.h"

typedef enum exit_code {
  EXIT_DONE = 0,     // done
  EXIT_WRONG = 1,    // the input is wrong
  EXIT_USAGE = 2,    // the command line is wrong by itself
  EXIT_MACHINE = 3,  // the machine lacks something, or refused it
} exit_code_t;

// Returns the exit code of a status code; docs/cli.md has the table.
int exit_code_of(qn_status_code_t code);

// Reports an error (consumed) and returns its exit code; EXIT_DONE for ok.
int report_status(const args_t* args, qn_status_t status);
// The same without the JSON object, for one of several files. Returns its exit code.
int report_status_text(qn_status_t status);
// Prints the diagnostics of a file, which are the message of the status (consumed), and their
// count.
void report_diagnostics(const char* path, int error_count, qn_status_t status);
// Reports a mistake in the command line with the usage line. Returns EXIT_USAGE.
int report_usage(const args_t* args, const char* format, ...) QN_PRINTF(2, 3);
// Prints a verb's result (consumed) with --json, and nothing without.
void report_json(const args_t* args, json_t* result);

#endif  // QUERN_TOOLS_CLI_REPORT_H_
