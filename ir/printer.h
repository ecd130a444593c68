// SPDX-License-Identifier: Apache-2.0
// ir/printer.h: what the files of the printer share.
//
// printer.c writes statements and functions, printer_expr.c expressions. Each statement is written
// on one line, which qn__text_wrap breaks.
#ifndef QUERN_IR_PRINTER_H_
#define QUERN_IR_PRINTER_H_

#include "base/map.h"
#include "ir/ptrmap.h"
#include "ir/text.h"

typedef struct qn__printed_name {
  struct qn__printed_name* next;  // the one before in the same block
  const char* text;
} qn__printed_name_t;

typedef struct qn__printer {
  qn__buffer_t* out;
  uint32_t indent;    // in levels
  size_t line_begin;  // in `out`
  bool is_raw;        // the line is not broken: it ends with a comment, or is not of the language
  bool is_signature;  // inside the shapes of parameters
  // NULL arena: names are written as they are (messages).
  qn__arena_t* arena;
  qn__map_t visible;   // text to itself: names that are in scope
  qn__map_t suffixes;  // text to the suffix that was given last
  qn__ptrmap_t names;  // variable or buffer to its text
  qn__printed_name_t* block;
  // Called where a statement begins (qn__text_print_places); may be NULL.
  bool (*on_stmt)(void* self, const qn__ir_stmt_t* stmt, uint32_t line);
  void* on_stmt_self;
  size_t counted;  // bytes of `out` whose lines are counted
  uint32_t line;
} qn__printer_t;

void qn__print_expr(qn__printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t want, int level);
// Returns the dtype that the parser would give an open expression; NONE if it has its own.
qn_dtype_t qn__print_default(const qn__ir_expr_t* expr);
const char* qn__print_name(qn__printer_t* p, const void* entity, const char* name);
void qn__print_declare(qn__printer_t* p, const void* entity, const char* name,
                       const char* fallback);
// Blocks of names: save p->block, print, restore it.
void qn__print_close_names(qn__printer_t* p, qn__printed_name_t* outer);
void qn__print_indices(qn__printer_t* p, qn__ir_expr_t* const* items, uint32_t count);
void qn__print_newline(qn__printer_t* p);
// Prints "let x = value;", in a block or in a reduction.
void qn__print_let(qn__printer_t* p, const qn__ir_stmt_t* stmt);

// Prints the statements of a block whose '{' is printed, on lines of their own, and "}". The names
// of the block are already open.
void qn__print_lines(qn__printer_t* p, const qn__ir_block_t* block);

// Prints a REDUCE statement (printer_several.c).
void qn__print_several(qn__printer_t* p, const qn__ir_several_t* several);

#endif  // QUERN_IR_PRINTER_H_
