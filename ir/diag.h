// SPDX-License-Identifier: Apache-2.0
// ir/diag.h: diagnostics with stable codes, collected and rendered with source line and caret.
//
// The parser and the verifier report through one `qn__diag_t`.
#ifndef QUERN_IR_DIAG_H_
#define QUERN_IR_DIAG_H_

#include <stdarg.h>

#include "base/buffer.h"
#include "ir/ir.h"

typedef struct qn__diag {
  const qn_parse_options_t* options;  // may be NULL
  const char* source_name;
  qn_str_t source;    // may be empty: then messages have no place
  qn__buffer_t text;  // everything rendered so far
  uint32_t error_count;
  uint32_t error_limit;           // 20 unless the options say otherwise
  const qn__ir_places_t* places;  // of the body that is verified, borrowed; NULL: no calls
  bool is_muted;                  // the last error was beyond the limit: its notes are dropped too
} qn__diag_t;

void qn__diag_init(qn__diag_t* diag, qn_allocator_t allocator, const qn_parse_options_t* options,
                   const char* source_name, qn_str_t source);
void qn__diag_deinit(qn__diag_t* diag);
// `code` such as "QN0103" for errors and warnings, "" for notes. `help` may be NULL.
void qn__diag_report(qn__diag_t* diag, qn_severity_t severity, const char* code, qn__ir_loc_t loc,
                     const char* help, const char* format, ...) QN_PRINTF(6, 7);
void qn__diag_report_list(qn__diag_t* diag, qn_severity_t severity, const char* code,
                          qn__ir_loc_t loc, const char* help, const char* format, va_list arguments)
    QN_PRINTF(6, 0);
static inline bool qn__diag_is_full(const qn__diag_t* diag) {
  return diag->error_count >= diag->error_limit;
}
// Ok when no error was reported; else a status of `code` whose message is the rendered text.
// OUT_OF_MEMORY if rendering, or the parser that reports here, ran out of it.
qn_status_t qn__diag_status(const qn__diag_t* diag, qn_status_code_t code);
// Line and column (code points) of a byte offset, both from 1.
void qn__diag_position(qn_str_t source, uint32_t offset, uint32_t* out_line, uint32_t* out_column);

#endif  // QUERN_IR_DIAG_H_
