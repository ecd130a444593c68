// SPDX-License-Identifier: Apache-2.0
// conformance/program.h: cases that are texts of IR: compiled for the target and for the
// interpreter, called with the same arguments, compared.
//
// A table is compiled as one module, because a compile costs tens of milliseconds on some devices.
// If that is refused, each row is compiled alone, so that one construct that a target lacks hides
// no other. Names of functions must differ within a table.
#ifndef QUERN_CONFORMANCE_PROGRAM_H_
#define QUERN_CONFORMANCE_PROGRAM_H_

#include "conformance/arrays.h"

typedef struct conf_program conf_program_t;
struct conf_program {
  const char* feature;
  const char* variant;  // NULL: none
  // One function: "func NAME(".
  const char* text;
  // arrays.h; several runs are separated by ';'.
  const char* args;
  double tolerance;  // conf_array_compare
  bool is_checked;
  // The status of the call, or of the sync after it; 0: ok.
  qn_status_code_t code;
  const char* parts;  // of its message, comma-separated
  // Calls the function and judges its results, in place of `args` and the interpreter.
  void (*judge)(conf_t* c, const conf_program_t* program, qn_function_t* function);
  const void* self;  // of `judge`
};

// Runs the rows that the filter chooses.
void conf_programs(conf_t* c, const conf_program_t* programs, size_t count);

// A table whose rows are made while the suite runs. Zero-initialised: empty.
typedef struct conf_rows {
  conf_program_t programs[360];
  size_t count;
  char texts[1 << 17];
  size_t used_bytes;
} conf_rows_t;
// Formats a text of a row. Borrowed until conf_rows_run.
const char* conf_rows_text(conf_rows_t* rows, const char* format, ...) QN_PRINTF(2, 3);
// Adds a row; its other members may be set until the next one is added.
conf_program_t* conf_rows_add(conf_rows_t* rows, const char* feature, const char* variant,
                              const char* text, const char* args);
// Runs the rows and empties the table.
void conf_rows_run(conf_t* c, conf_rows_t* rows);

#endif  // QUERN_CONFORMANCE_PROGRAM_H_
