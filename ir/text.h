// SPDX-License-Identifier: Apache-2.0
// ir/text.h: text to body (parser) and body to canonical text (printer).
//
// The language: docs/ir.md.
#ifndef QUERN_IR_TEXT_H_
#define QUERN_IR_TEXT_H_

#include "base/buffer.h"
#include "ir/lexer.h"

// Levels of nested blocks, parentheses and operators that a text may have, so that no reader of the
// tree runs out of stack.
enum { QN__NESTING_LIMIT = 256 };

// Returns how tightly an infix operator binds, from 1 (`||`) to 9 (`*`). Parser and printer share
// it (parser_expr.c).
int qn__op_level(qn_op_t op);
// As qn__op_level, for a token. 0: no infix operator.
int qn__token_level(qn__token_kind_t kind);

// Parses as much of the text as possible, without verifying it. Reports errors to `diag` and
// returns false. `*out_body` is always initialised and must be deinitialised. Also returns false
// without memory, and qn__diag_status then returns OUT_OF_MEMORY.
bool qn__text_parse(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag,
                    qn__ir_body_t* out_body);
// Names of lets for which a text has no dtype. `items` is owned.
typedef struct qn__untyped_name {
  uint32_t end;  // of the name in the text
  qn_dtype_t dtype;
} qn__untyped_name_t;
typedef struct qn__untyped {
  qn__untyped_name_t* items;
  size_t count;
  size_t capacity;  // of `items`, which come from the allocator of the parser
} qn__untyped_t;
// As qn__text_parse. Appends the names of lets without a dtype to `untyped`, in any order.
bool qn__text_parse_untyped(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag,
                            qn__ir_body_t* out_body, qn__untyped_t* untyped);
// Reports mistakes of grammar alone: names, dtypes and counts of operands are not judged. Returns
// false after one, and without memory.
bool qn__text_check_grammar(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag);
// Prints canonical text. Parsing it gives the same module, which prints as the same text.
void qn__text_print(const qn__ir_body_t* body, qn__buffer_t* out);
// Prints canonical text, and calls back before each statement with its line (from 1). The callback
// returns false without memory. Returns false then, or if `out` is out of memory.
bool qn__text_print_places(const qn__ir_body_t* body, qn__buffer_t* out,
                           bool (*on_stmt)(void* self, const qn__ir_stmt_t* stmt, uint32_t line),
                           void* self);
// One expression, for messages: "n + 2".
void qn__text_print_expr(const qn__ir_expr_t* expr, qn__buffer_t* out);
// One extent or stride of a parameter, as its signature has it: scalars without conversions.
void qn__text_print_extent(const qn__ir_expr_t* expr, qn__buffer_t* out);
// "softmax(x: f32[n, m], out y: f32[n, m])".
void qn__text_print_signature(const qn__ir_func_t* function, qn__buffer_t* out);

// Hands the text in `text` (of the default allocator, as qn_text_free has no other) to the caller
// of a public function, or its failure.
qn_status_t qn__text_give(qn__buffer_t* text, const char* what, char** out_text, size_t* out_size);

// Lays out the statement that `out` ends with, from byte `begin` on, where it is wider than a line
// or has more than one.
void qn__text_wrap(qn__buffer_t* out, size_t begin);
// Canonical layout for a text of the grammar, its comments kept. Errors: OUT_OF_MEMORY (of
// `allocator` or of `out`), INTERNAL.
qn_status_t qn__text_format(qn_str_t text, qn_allocator_t allocator, qn__buffer_t* out);
// Copies the text with a dtype after each name of a let that has none. Reports errors to `diag`, as
// the parser does, and returns false; also without memory.
bool qn__text_write_dtypes(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag,
                           qn__buffer_t* out);

#endif  // QUERN_IR_TEXT_H_
