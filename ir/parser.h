// SPDX-License-Identifier: Apache-2.0
// ir/parser.h: what the files of the parser share.
//
// parser.c         tokens, recovery and messages
// parser_scope.c   declarations of names
// parser_type.c    dtypes of literals and operators
// parser_literal.c values of literals
// parser_callee.c  functions with a value
// parser_call.c    calls of them
// parser_word.c, parser_expr.c, parser_stmt.c, parser_func.c
//                  the grammar (docs/ir.md), one function for each rule
//
// Errors: a function that finds one reports it and returns a *poisoned* operand or variable (dtype
// none). Later checks ignore poison, so that one mistake gives one message. A syntax error
// also sets `is_lost`; the statement loop then skips to the next statement. After the parser ran
// out of memory it sees only END, so that every loop ends. Functions that allocate in the arena
// just return NULL: the arena remembers it. Other failed allocations call qn__parser_out_of_memory.
// Read next: parser.c.
#ifndef QUERN_IR_PARSER_H_
#define QUERN_IR_PARSER_H_

#include "base/map.h"
#include "ir/callee.h"
#include "ir/codes.h"
#include "ir/lexer.h"
#include "ir/text.h"

// The dtypes that an expression may still take.
typedef enum qn__parser_flex {
  QN__FLEX_TYPED,   // expr->dtype is final
  QN__FLEX_INT,     // only integer literals: adapts to any number dtype
  QN__FLEX_FLOAT,   // float literals and operators: adapts to any float dtype
  QN__FLEX_POISON,  // an error was reported; `expr` may be NULL
} qn__parser_flex_t;

typedef struct qn__parser_operand {
  qn__ir_expr_t* expr;
  qn__parser_flex_t flex;
  uint32_t height;  // levels of the tree
} qn__parser_operand_t;

// One declaration of a name.
typedef struct qn__parser_binding qn__parser_binding_t;
typedef struct qn__parser_name qn__parser_name_t;
struct qn__parser_binding {
  qn__parser_name_t* name;
  qn__ir_var_t* var;        // or
  qn__ir_buffer_t* buffer;  // or neither: poisoned
  qn__ir_loc_t loc;
  uint32_t depth;                // of the block; 0: parameters and symbols
  qn__parser_binding_t* hidden;  // the declaration that this one shadows
  qn__parser_binding_t* next;    // the previous declaration in the same block
};
struct qn__parser_name {
  const char* text;
  qn__parser_binding_t* top;  // NULL: not in scope
};

typedef struct qn__parser_scope {
  struct qn__parser_scope* outer;
  qn__parser_binding_t* bindings;
} qn__parser_scope_t;

typedef struct qn__parser_root qn__parser_root_t;

// The name of a value that a let declares, and the dtype that the text has for it.
typedef struct qn__parser_value_name {
  qn__ir_loc_t loc;
  qn__ir_loc_t dtype_loc;  // size 0: no dtype is written
  qn_dtype_t dtype;        // NONE: none is written, or an unknown one
} qn__parser_value_name_t;

typedef struct qn__parser {
  qn_str_t text;
  qn_allocator_t allocator;
  qn__diag_t* diag;
  qn__ir_body_t* body;
  qn__arena_t* arena;
  qn__lexer_t lexer;
  qn__token_t token;       // the current token
  qn__token_t ahead;       // the one after it
  uint32_t previous_end;   // where the last consumed token ended
  bool is_lost;            // a syntax error was reported: skip to the next statement
  bool is_stopped;         // out of memory, or the error limit is reached
  bool is_grammar_only;    // mistakes of meaning (names, dtypes, counts) are not reported
  bool is_muted;           // the last mistake was one of these
  qn__untyped_t* untyped;  // NULL: they are not listed
  uint32_t last_error_begin;
  uint32_t stmt_begin;  // of the innermost statement
  uint32_t nesting;

  qn__map_t names;           // text to qn__parser_name_t
  qn__map_t functions;       // text to qn__ir_func_t
  qn__map_t callees;         // text to qn__parser_callee_t: functions with a value
  qn__ir_block_t* lets;      // takes the lets of calls; NULL: they are substituted (callee.h)
  uint64_t expanded_count;   // of nodes that calls made
  qn__parser_root_t* roots;  // values of calls in the function (parser_call.c)
  qn__parser_scope_t* scope;
  uint32_t depth;
  bool is_signature;  // free names become symbols
  qn__buffer_t help;  // scratch of qn__parser_help

  // A stack of pointers, shared by all lists under construction.
  void** list;
  size_t list_size;
  size_t list_capacity;
  qn__ir_var_t** symbols;
  size_t symbol_count;
  size_t symbol_capacity;
} qn__parser_t;

// ---- parser.c: tokens, messages, recovery

void qn__parser_advance(qn__parser_t* p);
static inline bool qn__parser_at(const qn__parser_t* p, qn__token_kind_t kind) {
  return p->token.kind == kind;
}
static inline qn_str_t qn__parser_word(const qn__parser_t* p) {
  return qn__lexer_slice(p->text, p->token.loc);
}
static inline bool qn__parser_at_word(const qn__parser_t* p, const char* word) {
  return p->token.kind == QN__TOKEN_NAME && qn__str_equal(qn__parser_word(p), qn__str(word));
}
// Consume the token if it is current.
bool qn__parser_take(qn__parser_t* p, qn__token_kind_t kind);
bool qn__parser_take_word(qn__parser_t* p, const char* word);
// Consume the token, or report that it is missing. `after` names its place in the message.
bool qn__parser_expect(qn__parser_t* p, qn__token_kind_t kind, const char* after);
bool qn__parser_expect_word(qn__parser_t* p, const char* word, const char* after);
// Consumes the bracket that closes the one at `open`, or reports it.
bool qn__parser_close(qn__parser_t* p, qn__token_kind_t kind, qn__ir_loc_t open);
// Consumes a name that may be declared; otherwise reports it and returns false.
bool qn__parser_name(qn__parser_t* p, const char* what, qn__ir_loc_t* out_loc);

static inline qn__ir_loc_t qn__parser_since(const qn__parser_t* p, uint32_t begin) {
  return (qn__ir_loc_t){begin, p->previous_end > begin ? p->previous_end - begin : 1};
}
// Reports a mistake of meaning, and one of grammar if the code is EXPECTED: the text could be read.
void qn__parser_error(qn__parser_t* p, qn__ir_code_t code, qn__ir_loc_t loc, const char* help,
                      const char* format, ...) QN_PRINTF(5, 6);
void qn__parser_note(qn__parser_t* p, qn__ir_loc_t loc, const char* format, ...) QN_PRINTF(3, 4);
// Reports a syntax error at the current token and sets is_lost.
void qn__parser_syntax(qn__parser_t* p, qn__ir_code_t code, qn__ir_loc_t loc, const char* help,
                       const char* format, ...) QN_PRINTF(5, 6);
// Reports "expected …, found 'y'" at the current token; the format says what was expected.
void qn__parser_expected(qn__parser_t* p, qn__ir_code_t code, const char* help, const char* format,
                         ...) QN_PRINTF(4, 5);
// Formats a text for `help`, valid until the next call.
const char* qn__parser_help(qn__parser_t* p, const char* format, ...) QN_PRINTF(2, 3);
// Returns the source text of an expression if it is short and on one line, else "x".
qn_str_t qn__parser_source_of(const qn__parser_t* p, const qn__ir_expr_t* expr);
// Returns the help for an error that directly follows a `//` which was read as a division but may
// have been meant as a comment; else `otherwise`.
const char* qn__parser_comment_help(const qn__parser_t* p, qn__ir_loc_t loc, const char* otherwise);
// Returns the current token for "expected …, found …": "'y'", "the end of the text".
qn_str_t qn__parser_found(const qn__parser_t* p);
// Records that memory ran out, other than the arena's. The parser then stops.
void qn__parser_out_of_memory(qn__parser_t* p);
// Enters one level of nesting; reports and returns false beyond the limit. Pair with leave.
bool qn__parser_enter(qn__parser_t* p);
void qn__parser_leave(qn__parser_t* p);
void qn__parser_recover(qn__parser_t* p);

// Lists: save p->list_size, push items, then take the items above the saved size as an array in the
// arena.
void qn__parser_push(qn__parser_t* p, void* item);
void** qn__parser_pop_list(qn__parser_t* p, size_t mark, size_t* out_count);

// ---- parser_scope.c: names

void qn__parser_open_block(qn__parser_t* p, qn__parser_scope_t* scope);
void qn__parser_close_block(qn__parser_t* p);
// Drops all names, for the next function.
void qn__parser_reset_names(qn__parser_t* p);
// Declares a name, and reports a second declaration. Either pointer may be NULL (poison).
void qn__parser_declare(qn__parser_t* p, qn__ir_loc_t loc, qn__ir_var_t* var,
                        qn__ir_buffer_t* buffer);
// Makes and declares the value of a let. Its dtype is NONE after an error.
qn__ir_var_t* qn__parser_declare_value(qn__parser_t* p, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                                       const qn__parser_value_name_t* name);
// Returns the visible declaration, or reports its absence with a suggestion and returns NULL. In a
// signature a free name becomes a symbol.
qn__parser_binding_t* qn__parser_resolve(qn__parser_t* p, qn__ir_loc_t loc);
// As qn__parser_resolve, but without a message.
qn__parser_binding_t* qn__parser_find(qn__parser_t* p, qn__ir_loc_t loc);
const char* qn__parser_intern(qn__parser_t* p, qn__ir_loc_t loc);
// Makes a variable named as the text at `loc`. NULL without memory.
qn__ir_var_t* qn__parser_new_var(qn__parser_t* p, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                                 qn__ir_loc_t loc);

// The best candidate so far for "did you mean".
typedef struct qn__parser_suggestion {
  qn_str_t wanted;
  const char* best;
  size_t distance;
} qn__parser_suggestion_t;
qn__parser_suggestion_t qn__suggest_start(qn_str_t wanted);
void qn__suggest(qn__parser_suggestion_t* suggestion, const char* candidate);
void qn__suggest_names(qn__parser_t* p, qn__parser_suggestion_t* suggestion,
                       bool wants_buffers_only);
void qn__suggest_words(qn__parser_suggestion_t* suggestion, qn__ir_text_fn_t text_of);
// Says how a function is called, for a word that names one; returns NULL for any other word.
const char* qn__parser_call_help(qn__parser_t* p, qn__ir_loc_t word);
void qn__suggest_callees(const qn__parser_t* p, qn__parser_suggestion_t* suggestion);
void qn__suggest_ops(qn__parser_suggestion_t* suggestion);
void qn__suggest_dtypes(qn__parser_suggestion_t* suggestion);
// Returns "did you mean 'x'?", or `otherwise` (may be NULL).
const char* qn__suggest_help(qn__parser_t* p, const qn__parser_suggestion_t* suggestion,
                             const char* otherwise);

// ---- parser_habit.c

typedef enum qn__parser_habit {
  QN__HABIT_DTYPE,  // where a dtype is expected
  QN__HABIT_CALL,   // called like an operator
  QN__HABIT_INFIX,  // after an operand
  QN__HABIT_STMT,   // at the start of a statement
} qn__parser_habit_t;
// Returns what to write instead of a word of another language, or NULL.
const char* qn__parser_habit(qn__parser_habit_t kind, qn_str_t word);

// ---- parser_type.c: dtypes

qn__parser_operand_t qn__type_poison(void);
qn__parser_operand_t qn__type_new(qn__parser_t* p, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                                  uint32_t begin);
// Gives an open operand the dtype; a typed operand is unchanged. If a literal does not fit, reports
// it, returns false and poisons the operand.
bool qn__type_settle(qn__parser_t* p, qn__parser_operand_t* operand, qn_dtype_t dtype);
// Give an open INT or FLOAT literal its dtype and value. Return false after a report.
bool qn__type_settle_int(qn__parser_t* p, qn__ir_expr_t* expr, qn_dtype_t dtype);
bool qn__type_settle_float(qn__parser_t* p, qn__ir_expr_t* expr, qn_dtype_t dtype);
// Gives an open operand the default dtype, i64 or f32.
void qn__type_default(qn__parser_t* p, qn__parser_operand_t* operand);
// Applies an operator to its operands by the table's rule; reports operands that do not fit.
qn__parser_operand_t qn__type_op(qn__parser_t* p, qn_op_t op, qn__parser_operand_t* args,
                                 uint32_t count, uint32_t begin, qn__ir_loc_t op_loc);
qn__parser_operand_t qn__type_cond(qn__parser_t* p, qn__parser_operand_t* args, uint32_t begin);
qn__parser_operand_t qn__type_conversion(qn__parser_t* p, qn_dtype_t dtype,
                                         qn__parser_operand_t operand, uint32_t begin);
qn__parser_operand_t qn__type_bitcast(qn__parser_t* p, qn_dtype_t dtype,
                                      qn__parser_operand_t operand, uint32_t begin);
// Return NULL for poison, which was reported before. `what` begins the message: "the condition".
qn__ir_expr_t* qn__type_as_bool(qn__parser_t* p, qn__parser_operand_t operand, const char* what);
qn__ir_expr_t* qn__type_as_i64(qn__parser_t* p, qn__parser_operand_t operand, const char* what);
qn__ir_expr_t* qn__type_as_index(qn__parser_t* p, qn__parser_operand_t operand);
qn__ir_expr_t* qn__type_as_value(qn__parser_t* p, qn__parser_operand_t operand,
                                 const qn__ir_buffer_t* buffer);
qn__ir_expr_t* qn__type_as_any(qn__parser_t* p, qn__parser_operand_t operand);
// The dtype is the one that the text has for `name`; `verb` stands between the two in a message.
qn__ir_expr_t* qn__type_as_written(qn__parser_t* p, qn__parser_operand_t operand, qn_dtype_t dtype,
                                   qn_str_t name, const char* verb);
// Types the value of a let: by the dtype that is written for it, or as qn__type_as_any.
qn__ir_expr_t* qn__type_as_named(qn__parser_t* p, qn__parser_operand_t operand,
                                 const qn__parser_value_name_t* name);
// Reports and returns false where another dtype is written than the value has.
bool qn__type_check_name(qn__parser_t* p, const qn__parser_value_name_t* name, qn_dtype_t dtype);

// ---- parser_expr.c, parser_stmt.c, parser_func.c: the grammar

qn__parser_operand_t qn__parse_expr(qn__parser_t* p);
// Returns the buffer of a name before "["; otherwise reports it and returns NULL. `help` may be
// NULL.
qn__ir_buffer_t* qn__parse_array(qn__parser_t* p, qn__ir_loc_t name_loc, const char* help);
// Parses `"[" exprs "]"` of an access to `buffer` (NULL: poisoned). Returns NULL after an error.
qn__ir_expr_t** qn__parse_indices(qn__parser_t* p, const qn__ir_buffer_t* buffer,
                                  qn__ir_loc_t name_loc, uint32_t* out_height);
// Parses `"[" exprs "]"` of i64 expressions: shapes and strides. Returns false if lost.
bool qn__parse_extents(qn__parser_t* p, const char* what, qn__ir_expr_t*** out_items,
                       uint32_t* out_count);
// Parses a dtype. Reports any other word and returns NONE.
qn_dtype_t qn__parse_dtype(qn__parser_t* p);
// Parses `name "in" begin ".." end` of a loop or reduction.
bool qn__parse_range(qn__parser_t* p, const char* what, qn__ir_loc_t* out_name,
                     qn__ir_expr_t** out_begin, qn__ir_expr_t** out_end);
void qn__parse_block(qn__parser_t* p, qn__ir_block_t* block, qn__ir_loc_t var_loc,
                     qn__ir_var_t* var);
// Parses `"let" value "=" expr ";"`, but not the let of an atomic.
void qn__parse_let(qn__parser_t* p, qn__ir_block_t* block, bool is_in_reduction);
// Parse a reduction of several values or a scan (parser_several.c). `names` are those of the
// results, none of which is reported; the current token is the word that begins it.
bool qn__parser_at_several(const qn__parser_t* p);
bool qn__parser_at_scan(const qn__parser_t* p);
// Returns what helps where a scan stands in an expression.
const char* qn__parser_scan_help(qn__parser_t* p);
// Reports a reduction of several values or a scan where an expression is expected.
void qn__parser_several_misplaced(qn__parser_t* p);
void qn__parse_scan(qn__parser_t* p, qn__ir_block_t* block);
void qn__parse_several(qn__parser_t* p, qn__ir_block_t* block, uint32_t begin,
                       const qn__parser_value_name_t* names, size_t name_count);
// Parses the lets before the value of a reduction.
static inline void qn__parse_lets(qn__parser_t* p, qn__ir_block_t* lets) {
  while (qn__parser_at_word(p, "let") && !p->is_lost) qn__parse_let(p, lets, true);
}
// Returns whether a statement, or the rest of one, may begin with the word.
bool qn__parser_starts_stmt(qn_str_t word);
// Parse declarations of buffers in a body.
void qn__parse_alloc(qn__parser_t* p, qn__ir_block_t* block);
void qn__parse_const(qn__parser_t* p, qn__ir_block_t* block);
void qn__parse_view(qn__parser_t* p, qn__ir_block_t* block);
void qn__parse_function(qn__parser_t* p);

// ---- parser_callee.c

// Finds the functions with a value, and parses them: those that are called before their callers.
void qn__parse_callees(qn__parser_t* p);
// Returns whether the current `func` is one of them that was parsed, and skips it.
bool qn__parser_skip_callee(qn__parser_t* p);
// Parses the rest of a function with a value, after "->". It does not join the module.
void qn__parse_callee(qn__parser_t* p, qn__ir_func_t* function);

// ---- parser_call.c

// Returns whether the current word, before "(", names such a function; then qn__parse_call parses
// the call.
bool qn__parser_at_call(const qn__parser_t* p);
qn__parser_operand_t qn__parse_call(qn__parser_t* p);
// Gives the values of calls their places, when messages of the parser do not mention them any more:
// of those since `mark`, NULL for all of the function.
void qn__parser_place_roots(qn__parser_t* p, const qn__parser_root_t* mark);

// Return NONE or 0 for any other word.
qn_op_t qn__op_from_word(qn_str_t word);
static inline qn_reduce_kind_t qn__reduce_from_word(qn_str_t word) {
  return (qn_reduce_kind_t)qn__word_find(qn__reduce_text, word);
}
static inline qn_atomic_op_t qn__atomic_from_word(qn_str_t word) {
  return (qn_atomic_op_t)qn__word_find(qn__atomic_text, word);
}
static inline qn_leave_t qn__leave_from_word(qn_str_t word) {
  return (qn_leave_t)qn__word_find(qn__leave_text, word);
}
static inline qn_loop_kind_t qn__loop_from_word(qn_str_t word) {
  return (qn_loop_kind_t)qn__word_find(qn__loop_kind_text, word);
}

#endif  // QUERN_IR_PARSER_H_
