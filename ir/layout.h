// SPDX-License-Identifier: Apache-2.0
// ir/layout.h: the layout of one statement over lines of at most 100 columns.
//
// format.c lays whole texts out, the printer statements that it wrote on one line; both with these
// rules, so that they agree.
#ifndef QUERN_IR_LAYOUT_H_
#define QUERN_IR_LAYOUT_H_

#include "ir/lexer.h"

enum { QN__LAYOUT_COLUMNS = 100, QN__LAYOUT_INDENT = 2 };

// A token, or a comment.
typedef struct qn__piece {
  qn__token_kind_t kind;
  qn_str_t text;           // a comment without the blanks at its end
  uint32_t newline_count;  // in the source, before the piece
  bool is_spaced;          // a blank stands before it, unless it begins a line
  bool is_reduction;       // a brace of a reduction, or the `in` before it
  uint8_t level;          // an operator after which a line may end: low levels bind loosely; else 0
  size_t partner;         // of brackets: the other one; `in` of a reduction: its '{'; else SIZE_MAX
  size_t end;             // columns of the text up to its end, all pieces on one line
  uint32_t forced_count;  // pieces up to this one that cannot stand inside a line
} qn__piece_t;

// Levels of what separates operands. Infix operators follow.
enum { QN__LEVEL_COMMA = 1, QN__LEVEL_RANGE, QN__LEVEL_COLON, QN__LEVEL_QUESTION };

typedef struct qn__layout {
  const qn__piece_t* pieces;  // the last one is END
  qn__buffer_t* out;
  size_t line_begin;   // in `out`
  size_t column;       // where the next byte is written
  size_t hang;         // column of a line that only a comment before it begins
  bool is_line_empty;  // nothing but blanks was written to the line
  bool has_comment;    // the line ends with a comment
} qn__layout_t;

// Begins a line at the column.
void qn__layout_newline(qn__layout_t* l, size_t column);
// Ends the line and leaves an empty one. The next call is qn__layout_newline.
void qn__layout_blank_line(qn__layout_t* l);
// Writes one piece to the line. A comment on a line of its own gets one.
void qn__layout_emit(qn__layout_t* l, size_t i);
// Writes a statement without the ';' or '{' that ends it, piece `end`, to the line that was begun
// at column `indent`.
void qn__layout_statement(qn__layout_t* l, size_t begin, size_t end, size_t indent);

#endif  // QUERN_IR_LAYOUT_H_
