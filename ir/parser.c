// SPDX-License-Identifier: Apache-2.0
// ir/parser.c: the driver of the parser: tokens, messages, recovery, lists, and the entry point.
//
// Not here: the grammar (parser_expr.c, parser_stmt.c, parser_func.c).
#include <assert.h>

#include "ir/parser.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

// ------------------------------------------------------------------------------------ messages

void qn__parser_out_of_memory(qn__parser_t* p) {
  p->is_stopped = true;
  p->is_lost = true;
  // qn__diag_status then reports OUT_OF_MEMORY.
  p->diag->text.has_failed = true;
  p->token = p->ahead = (qn__token_t){QN__TOKEN_END, {(uint32_t)p->text.size, 0}, 0};
}

static void report(qn__parser_t* p, qn_severity_t severity, qn__ir_code_t code, qn__ir_loc_t loc,
                   const char* help, const char* format, va_list arguments) QN_PRINTF(6, 0);
static void report(qn__parser_t* p, qn_severity_t severity, qn__ir_code_t code, qn__ir_loc_t loc,
                   const char* help, const char* format, va_list arguments) {
  if (p->is_stopped || p->arena->is_exhausted) return;
  qn__diag_report_list(p->diag, severity, severity == QN_SEVERITY_NOTE ? "" : qn__code(code), loc,
                       help, format, arguments);
  if (p->diag->text.has_failed) qn__parser_out_of_memory(p);
}

void qn__parser_error(qn__parser_t* p, qn__ir_code_t code, qn__ir_loc_t loc, const char* help,
                      const char* format, ...) {
  if (loc.size == 0) loc.size = 1;
  p->is_muted = p->is_grammar_only && code != QN__CODE_EXPECTED;
  if (p->is_muted) return;
  p->last_error_begin = loc.begin;
  va_list arguments;
  va_start(arguments, format);
  report(p, QN_SEVERITY_ERROR, code, loc, help, format, arguments);
  va_end(arguments);
}

void qn__parser_note(qn__parser_t* p, qn__ir_loc_t loc, const char* format, ...) {
  if (p->is_muted) return;
  if (loc.size == 0) loc.size = 1;
  va_list arguments;
  va_start(arguments, format);
  report(p, QN_SEVERITY_NOTE, QN__CODE_EXPECTED, loc, NULL, format, arguments);
  va_end(arguments);
}

void qn__parser_syntax(qn__parser_t* p, qn__ir_code_t code, qn__ir_loc_t loc, const char* help,
                       const char* format, ...) {
  if (loc.size == 0) loc.size = 1;
  // Report one message for each token.
  bool is_repeated = p->is_lost || p->last_error_begin == loc.begin;
  // Also drop errors that follow from a character that the lexer reported.
  uint32_t lexed = p->lexer.error_begin;
  if (lexed != UINT32_MAX && lexed >= p->stmt_begin && lexed <= loc.begin + loc.size) {
    is_repeated = true;
  }
  p->is_lost = true;
  p->is_muted = false;
  if (is_repeated) return;
  p->last_error_begin = loc.begin;
  va_list arguments;
  va_start(arguments, format);
  report(p, QN_SEVERITY_ERROR, code, loc, help, format, arguments);
  va_end(arguments);
}

void qn__parser_expected(qn__parser_t* p, qn__ir_code_t code, const char* help, const char* format,
                         ...) {
  char what[200];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(what, sizeof what, format, arguments) < 0) what[0] = '\0';
  va_end(arguments);
  const char* quote = qn__parser_at(p, QN__TOKEN_END) ? "" : "'";
  qn__parser_syntax(p, code, p->token.loc, help, "expected %s, found %s%.*s%s", what, quote,
                    QN_STR_ARG(qn__parser_found(p)), quote);
}

const char* qn__parser_help(qn__parser_t* p, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = '\0';
  va_end(arguments);
  qn__buffer_clear(&p->help);
  qn__buffer_cstr(&p->help, text);
  if (p->help.has_failed) {
    qn__parser_out_of_memory(p);
    return "";
  }
  return (const char*)p->help.data;
}

qn_str_t qn__parser_source_of(const qn__parser_t* p, const qn__ir_expr_t* expr) {
  enum { LONGEST = 40 };
  if (!expr || expr->loc.size == 0 || expr->loc.size > LONGEST) return QN_STR("x");
  qn_str_t slice = qn__lexer_slice(p->text, expr->loc);
  if (memchr(slice.data, '\n', slice.size)) return QN_STR("x");
  return slice;
}

static const char comment_help[] =
    "after an operand // divides: a comment follows ';', '{', '}' or ',', or has its own line";

const char* qn__parser_comment_help(const qn__parser_t* p, qn__ir_loc_t loc,
                                    const char* otherwise) {
  size_t at = loc.begin;
  while (at > 0 && (p->text.data[at - 1] == ' ' || p->text.data[at - 1] == '\t')) at--;
  if (at < 2 || p->text.data[at - 1] != '/' || p->text.data[at - 2] != '/') return otherwise;
  return comment_help;
}

qn_str_t qn__parser_found(const qn__parser_t* p) {
  enum { LONGEST = 40 };
  if (p->token.kind == QN__TOKEN_END) return QN_STR("the end of the text");
  if (p->token.loc.size > LONGEST) return qn__str(qn__token_text(p->token.kind));
  return qn__parser_word(p);
}

// ------------------------------------------------------------------------------------ tokens

void qn__parser_advance(qn__parser_t* p) {
  if (p->token.kind != QN__TOKEN_END) p->previous_end = p->token.loc.begin + p->token.loc.size;
  if (qn__diag_is_full(p->diag) || p->arena->is_exhausted) p->is_stopped = true;
  if (p->is_stopped) {
    p->token = p->ahead = (qn__token_t){QN__TOKEN_END, {(uint32_t)p->text.size, 0}, 0};
    return;
  }
  p->token = p->ahead;
  p->ahead = qn__lexer_next(&p->lexer);
}

bool qn__parser_take(qn__parser_t* p, qn__token_kind_t kind) {
  if (p->token.kind != kind || p->is_lost) return false;
  qn__parser_advance(p);
  return true;
}

bool qn__parser_take_word(qn__parser_t* p, const char* word) {
  if (p->is_lost || !qn__parser_at_word(p, word)) return false;
  qn__parser_advance(p);
  return true;
}

bool qn__parser_expect(qn__parser_t* p, qn__token_kind_t kind, const char* after) {
  if (qn__parser_take(p, kind)) return true;
  if (p->is_lost) return false;
  if (kind == QN__TOKEN_SEMICOLON) {
    // Points after the end of the statement, not at the first word of the next line.
    bool is_word = qn__parser_at(p, QN__TOKEN_NAME) && p->token.newline_count == 0;
    const char* habit = is_word ? qn__parser_habit(QN__HABIT_INFIX, qn__parser_word(p)) : NULL;
    qn__parser_syntax(p, QN__CODE_MISSING_SEMICOLON, (qn__ir_loc_t){p->previous_end, 1}, habit,
                      "expected ';' after %s", after);
    // Nothing needs to be skipped when the next statement starts on its own line.
    if (p->token.newline_count > 0 || qn__parser_at(p, QN__TOKEN_RIGHT_BRACE)) p->is_lost = false;
    return false;
  }
  const char* help = qn__parser_at(p, QN__TOKEN_FLOORDIV) ? comment_help : NULL;
  if (qn__parser_at(p, QN__TOKEN_NAME)) {
    help = qn__parser_habit(QN__HABIT_INFIX, qn__parser_found(p));
  }
  if (!help && kind == QN__TOKEN_LEFT_BRACE) help = "a block stands in '{' and '}'";
  if (!help && kind == QN__TOKEN_COLON) help = "it is declared as name: dtype";
  qn__parser_expected(p, QN__CODE_EXPECTED, help, "%s %s", qn__token_text(kind), after);
  return false;
}

bool qn__parser_expect_word(qn__parser_t* p, const char* word, const char* after) {
  if (qn__parser_take_word(p, word)) return true;
  bool is_assign = qn__parser_at(p, QN__TOKEN_ASSIGN) && strcmp(word, "in") == 0;
  qn__parser_expected(p, QN__CODE_EXPECTED, is_assign ? "write 'in' for '='" : NULL, "'%s' %s",
                      word, after);
  return false;
}

bool qn__parser_close(qn__parser_t* p, qn__token_kind_t kind, qn__ir_loc_t open) {
  if (qn__parser_take(p, kind)) return true;
  if (p->is_lost) return false;
  uint32_t errors = p->diag->error_count;
  const char* help = qn__parser_at(p, QN__TOKEN_FLOORDIV) ? comment_help : NULL;
  qn__parser_expected(p, QN__CODE_UNCLOSED, help, "%s", qn__token_text(kind));
  if (p->diag->error_count != errors) qn__parser_note(p, open, "opened here");
  return false;
}

bool qn__parser_name(qn__parser_t* p, const char* what, qn__ir_loc_t* out_loc) {
  *out_loc = p->token.loc;
  if (p->is_lost) return false;
  if (!qn__parser_at(p, QN__TOKEN_NAME)) {
    bool is_loop = strncmp(what, "the variable of", 15) == 0;
    const char* help =
        is_loop && qn__parser_at(p, QN__TOKEN_LEFT_PAREN) ? "leave the '(' out" : NULL;
    qn__parser_expected(p, QN__CODE_EXPECTED, help, "the name of %s", what);
    return false;
  }
  qn_str_t found = qn__parser_word(p);
  if (!qn__text_is_name(found)) {
    bool is_dtype = qn__dtype_from_str(found) != QN_DTYPE_NONE && p->ahead.kind == QN__TOKEN_NAME;
    qn__parser_syntax(p, QN__CODE_RESERVED_NAME, p->token.loc,
                      is_dtype ? "it is declared as name: dtype" : "choose another name",
                      "'%.*s' is a word of the language and cannot name %s", QN_STR_ARG(found),
                      what);
    return false;
  }
  qn__parser_advance(p);
  return true;
}

bool qn__parser_enter(qn__parser_t* p) {
  if (p->nesting >= QN__NESTING_LIMIT) {
    qn__parser_syntax(p, QN__CODE_TOO_DEEP, p->token.loc, "use a let for the inner part",
                      "nesting is deeper than %d levels", QN__NESTING_LIMIT);
    // The parser cannot continue inside the nested construct.
    p->is_stopped = true;
    qn__parser_advance(p);
    return false;
  }
  p->nesting++;
  return true;
}

void qn__parser_leave(qn__parser_t* p) {
  assert(p->nesting > 0);
  p->nesting--;
}

// Skips to the next possible start of a statement: after ';' or a whole block, before '}', before
// `func`, or at a line that starts with the keyword of a statement.
void qn__parser_recover(qn__parser_t* p) {
  uint32_t open = 0;
  bool is_first = true;
  while (!qn__parser_at(p, QN__TOKEN_END)) {
    if (qn__parser_at_word(p, "func")) break;
    if (open == 0 && !is_first && p->token.newline_count > 0 && qn__parser_at(p, QN__TOKEN_NAME) &&
        qn__parser_starts_stmt(qn__parser_word(p))) {
      break;
    }
    is_first = false;
    if (qn__parser_at(p, QN__TOKEN_LEFT_BRACE)) open++;
    if (qn__parser_at(p, QN__TOKEN_RIGHT_BRACE)) {
      if (open == 0) break;
      open--;
      qn__parser_advance(p);
      if (open == 0 && !qn__parser_at_word(p, "else") && !qn__parser_at(p, QN__TOKEN_SEMICOLON)) {
        break;
      }
      continue;
    }
    bool ends = open == 0 && qn__parser_at(p, QN__TOKEN_SEMICOLON);
    qn__parser_advance(p);
    if (ends) break;
  }
  p->is_lost = p->is_stopped;
}

// ------------------------------------------------------------------------------------ lists

void qn__parser_push(qn__parser_t* p, void* item) {
  void* items = p->list;
  if (!qn__grow(p->allocator, &items, &p->list_capacity, p->list_size + 1, sizeof(void*))) {
    qn__parser_out_of_memory(p);
    return;
  }
  p->list = items;
  p->list[p->list_size++] = item;
}

void** qn__parser_pop_list(qn__parser_t* p, size_t mark, size_t* out_count) {
  // Lists that were begun later are finished.
  assert(p->list_size >= mark);
  size_t count = p->list_size - mark;
  void** items = qn__arena_alloc_array(p->arena, count, sizeof(void*));
  if (!items) count = 0;
  if (count) memcpy(items, p->list + mark, count * sizeof(void*));
  p->list_size = mark;
  *out_count = count;
  return items;
}

// ------------------------------------------------------------------------------------ entry

static void parse_module(qn__parser_t* p) {
  while (!qn__parser_at(p, QN__TOKEN_END)) {
    p->is_lost = p->is_stopped;
    if (qn__parser_at_word(p, "func")) {
      qn__parse_function(p);
      continue;
    }
    qn__parser_suggestion_t suggestion = qn__suggest_start(qn__parser_found(p));
    qn__suggest(&suggestion, "func");
    bool is_closing = qn__parser_at(p, QN__TOKEN_RIGHT_BRACE);
    qn__parser_expected(p, QN__CODE_EXPECTED_FUNC,
                        is_closing
                            ? "there is one '}' too many before it, or this one"
                            : qn__suggest_help(p, &suggestion, "a module is a list of functions"),
                        "'func'");
    while (!qn__parser_at(p, QN__TOKEN_END) && !qn__parser_at_word(p, "func")) {
      qn__parser_advance(p);
    }
  }
}

static bool parse(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag, bool is_grammar_only,
                  qn__untyped_t* untyped, qn__ir_body_t* out_body) {
  qn__body_init(out_body, allocator);
  if (!qn__lexer_check(text, diag)) return false;
  qn__parser_t parser = {.text = text,
                         .allocator = allocator,
                         .diag = diag,
                         .body = out_body,
                         .is_grammar_only = is_grammar_only,
                         .untyped = untyped};
  qn__parser_t* p = &parser;
  p->arena = &out_body->arena;
  p->last_error_begin = UINT32_MAX;
  qn__map_init(&p->names, allocator);
  qn__map_init(&p->functions, allocator);
  qn__map_init(&p->callees, allocator);
  qn__buffer_init(&p->help, allocator);
  qn__lexer_init(&p->lexer, text, diag);
  p->token = qn__lexer_next(&p->lexer);
  p->ahead = qn__lexer_next(&p->lexer);
  qn__parse_callees(p);
  parse_module(p);
  assert(p->list_size == 0 && p->nesting == 0 && p->depth == 0);
  if (out_body->arena.is_exhausted) qn__parser_out_of_memory(p);
  qn__map_deinit(&p->names);
  qn__map_deinit(&p->functions);
  qn__map_deinit(&p->callees);
  qn__buffer_deinit(&p->help);
  qn__free(allocator, p->list, p->list_capacity * sizeof(void*));
  qn__free(allocator, p->symbols, p->symbol_capacity * sizeof(qn__ir_var_t*));
  return diag->error_count == 0 && !diag->text.has_failed;
}

bool qn__text_parse(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag,
                    qn__ir_body_t* out_body) {
  return parse(text, allocator, diag, false, NULL, out_body);
}

bool qn__text_parse_untyped(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag,
                            qn__ir_body_t* out_body, qn__untyped_t* untyped) {
  return parse(text, allocator, diag, false, untyped, out_body);
}

bool qn__text_check_grammar(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag) {
  qn__ir_body_t body;
  bool is_good = parse(text, allocator, diag, true, NULL, &body);
  qn__body_deinit(&body);
  return is_good;
}
