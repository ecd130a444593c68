// SPDX-License-Identifier: Apache-2.0
// ir/parser_callee.c: functions with a value: which there are, their order, their definitions.
//
// The definition may follow the call. So texts with "->" are scanned for functions with a value
// before anything is parsed; those that such a function calls are parsed before it. What cannot
// be ordered is a cycle. Not here: calls (parser_call.c).
#include <stdio.h>

#include "ir/parser_callee.h"

static qn__parser_position_t save_position(const qn__parser_t* p) {
  return (qn__parser_position_t){p->lexer, p->token, p->ahead};
}

static void go_to(qn__parser_t* p, const qn__parser_position_t* position) {
  if (p->is_stopped) return;
  p->lexer = position->lexer;
  p->lexer.diag = p->diag;
  p->token = position->token;
  p->ahead = position->ahead;
}

// ------------------------------------------------------------------------------------ scanning

typedef struct callee_scan {
  qn__parser_position_t at;
  qn__parser_callee_t* first;
  qn__parser_callee_t* last;
} callee_scan_t;

static void scan_token(callee_scan_t* s) {
  s->at.token = s->at.ahead;
  s->at.ahead = qn__lexer_next(&s->at.lexer);
}

static bool is_func(const qn__parser_t* p, qn__token_t token) {
  return token.kind == QN__TOKEN_NAME &&
         qn__str_equal(qn__lexer_slice(p->text, token.loc), QN_STR("func"));
}

// Adds a function if it is the first of its name.
static qn__parser_callee_t* add_callee(qn__parser_t* p, callee_scan_t* s,
                                       const qn__parser_position_t* begin) {
  if (begin->ahead.kind != QN__TOKEN_NAME || qn__parser_find_callee(p, begin->ahead.loc))
    return NULL;
  qn_str_t name = qn__lexer_slice(p->text, begin->ahead.loc);
  qn__parser_callee_t* callee = QN__ARENA_NEW(p->arena, qn__parser_callee_t);
  if (callee) callee->name = qn__arena_cstr(p->arena, name);
  if (!callee || !callee->name || !qn__map_put(&p->callees, name, callee)) {
    qn__parser_out_of_memory(p);
    return NULL;
  }
  callee->loc = begin->ahead.loc;
  callee->begin = *begin;
  *(s->last ? &s->last->next : &s->first) = callee;
  s->last = callee;
  return callee;
}

// Scans the body of a function with a value for words before "(".
static void scan_body(qn__parser_t* p, callee_scan_t* s, qn__parser_callee_t* callee) {
  size_t mark = p->list_size;
  while (s->at.token.kind != QN__TOKEN_END && !is_func(p, s->at.token) && !p->is_stopped) {
    if (s->at.token.kind == QN__TOKEN_NAME && s->at.ahead.kind == QN__TOKEN_LEFT_PAREN) {
      qn__ir_loc_t* word = QN__ARENA_NEW(p->arena, qn__ir_loc_t);
      if (!word) break;
      *word = s->at.token.loc;
      qn__parser_push(p, word);
    }
    scan_token(s);
  }
  size_t count;
  void** words = qn__parser_pop_list(p, mark, &count);
  callee->words = qn__arena_alloc_array(p->arena, count, sizeof *callee->words);
  if (!callee->words || !words) return;
  for (size_t i = 0; i < count; i++) callee->words[i] = *(const qn__ir_loc_t*)words[i];
  callee->word_count = count;
}

static qn__parser_callee_t* scan(qn__parser_t* p) {
  callee_scan_t s = {.at = save_position(p)};
  s.at.lexer.diag = NULL;
  while (s.at.token.kind != QN__TOKEN_END && !p->is_stopped) {
    qn__parser_position_t begin = s.at;
    bool has_begun = is_func(p, s.at.token);
    scan_token(&s);
    if (!has_begun) continue;
    while (s.at.token.kind != QN__TOKEN_END && s.at.token.kind != QN__TOKEN_LEFT_BRACE &&
           s.at.token.kind != QN__TOKEN_ARROW && !is_func(p, s.at.token)) {
      scan_token(&s);
    }
    if (s.at.token.kind != QN__TOKEN_ARROW) continue;
    qn__parser_callee_t* callee = add_callee(p, &s, &begin);
    if (callee) scan_body(p, &s, callee);
  }
  return s.first;
}

// ------------------------------------------------------------------------------------ order

// The functions that are begun, each called by the one before it.
typedef struct call_path {
  qn__parser_callee_t* callees[QN__LARGEST_CALL_DEPTH];
  qn__ir_loc_t calls[QN__LARGEST_CALL_DEPTH];  // where that function calls the next one
  uint32_t size;
} call_path_t;

static void note_calls(qn__parser_t* p, const call_path_t* path, uint32_t from) {
  for (uint32_t i = from; i < path->size; i++) {
    const qn__parser_callee_t* next = qn__parser_find_callee(p, path->calls[i]);
    qn__parser_note(p, path->calls[i], "'%s' calls '%s' here", path->callees[i]->name, next->name);
  }
}

static void report_cycle(qn__parser_t* p, const call_path_t* path,
                         const qn__parser_callee_t* again) {
  uint32_t from = 0;
  while (path->callees[from] != again) from++;
  char way[200] = "";
  size_t size = 0;
  for (uint32_t i = from; i < path->size && size < sizeof way; i++) {
    int added = snprintf(way + size, sizeof way - size, "%s -> ", path->callees[i]->name);
    size += added > 0 ? (size_t)added : sizeof way;
  }
  qn__parser_error(p, QN__CODE_CALL_CYCLE, path->calls[path->size - 1],
                   "use a loop in a function without a value", "'%s' calls itself: %s%s",
                   again->name, size < sizeof way ? way : "... -> ", again->name);
  note_calls(p, path, from);
}

static void parse_in_order(qn__parser_t* p, call_path_t* path, qn__parser_callee_t* callee) {
  callee->progress = QN__PROGRESS_BEGUN;
  path->callees[path->size++] = callee;
  for (size_t i = 0; i < callee->word_count && !callee->is_bad && !p->is_stopped; i++) {
    qn__parser_callee_t* inner = qn__parser_find_callee(p, callee->words[i]);
    if (!inner) continue;
    path->calls[path->size - 1] = callee->words[i];
    bool is_too_deep = path->size == QN__LARGEST_CALL_DEPTH;
    if (inner->progress == QN__PROGRESS_BEGUN) {
      report_cycle(p, path, inner);
      callee->is_bad = true;
      break;
    }
    if (inner->progress == QN__PROGRESS_NONE && !is_too_deep) parse_in_order(p, path, inner);
    if (inner->depth >= callee->depth) callee->depth = inner->depth;
    if (is_too_deep || inner->depth >= QN__LARGEST_CALL_DEPTH) {
      qn__parser_error(p, QN__CODE_CALL_LIMIT, callee->words[i], NULL,
                       "calls nest deeper than %d functions", QN__LARGEST_CALL_DEPTH);
      callee->is_bad = true;
    }
  }
  callee->depth++;
  path->size--;
  go_to(p, &callee->begin);
  p->is_lost = p->is_stopped;
  if (!p->is_stopped) qn__parse_function(p);
  if (callee->is_bad) callee->base.value = NULL;
  callee->end = save_position(p);
  callee->progress = QN__PROGRESS_DONE;
}

void qn__parse_callees(qn__parser_t* p) {
  bool has_arrow = false;
  for (size_t i = 0; i + 1 < p->text.size && !has_arrow; i++) {
    const char* dash = memchr(p->text.data + i, '-', p->text.size - 1 - i);
    if (!dash) return;
    i = (size_t)(dash - p->text.data);
    has_arrow = dash[1] == '>';
  }
  if (!has_arrow) return;
  qn__parser_position_t begin = save_position(p);
  call_path_t path = {.size = 0};
  for (qn__parser_callee_t* callee = scan(p); callee && !p->is_stopped; callee = callee->next) {
    if (callee->progress == QN__PROGRESS_NONE) parse_in_order(p, &path, callee);
  }
  go_to(p, &begin);
}

bool qn__parser_skip_callee(qn__parser_t* p) {
  const qn__parser_callee_t* callee =
      p->callees.count > 0 ? qn__parser_find_callee(p, p->ahead.loc) : NULL;
  if (!callee || callee->loc.begin != p->ahead.loc.begin) return false;
  if (callee->progress != QN__PROGRESS_DONE) return false;
  go_to(p, &callee->end);
  return true;
}

// ------------------------------------------------------------------------------------ definitions

static void check_params(qn__parser_t* p, const qn__ir_func_t* function) {
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    const qn__ir_var_t* scalar = function->params[i].scalar;
    if (buffer) {
      qn__parser_error(
          p, QN__CODE_BAD_CALLEE, buffer->loc, "load in the caller, and pass the value",
          "the parameters of a function with a value are scalars, but '%s' is a buffer",
          buffer->name);
    } else if (scalar->is_fixed) {
      qn__parser_error(p, QN__CODE_BAD_CALLEE, scalar->loc, "leave its value out",
                       "only parameters of entries are fixed, and '%s' is called", function->name);
    }
  }
}

// Parses `{ let } "return" expr ";"`. Returns NULL after a report.
static qn__ir_expr_t* parse_body(qn__parser_t* p, qn__ir_func_t* function, qn_dtype_t dtype) {
  qn__parse_lets(p, &function->body);
  for (const qn__ir_stmt_t* stmt = function->body.first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET) continue;
    qn__parser_error(p, QN__CODE_BAD_CALLEE, stmt->loc, "use a function without a value",
                     "a function with a value is made of lets and a return");
    return NULL;
  }
  if (p->is_lost) return NULL;
  if (!qn__parser_at_word(p, "return")) {
    bool is_stmt = qn__parser_starts_stmt(qn__parser_found(p));
    qn__parser_syntax(p, is_stmt ? QN__CODE_BAD_CALLEE : QN__CODE_EXPECTED, p->token.loc,
                      is_stmt ? "use a function without a value" : NULL,
                      "a function with a value is made of lets and a return, found '%.*s'",
                      QN_STR_ARG(qn__parser_found(p)));
    return NULL;
  }
  qn__parser_advance(p);
  qn__ir_expr_t* value =
      qn__type_as_written(p, qn__parse_expr(p), dtype, qn__str(function->name), "gives");
  if (qn__parser_expect(p, QN__TOKEN_SEMICOLON, "the value of a function") &&
      !qn__parser_at(p, QN__TOKEN_RIGHT_BRACE)) {
    qn__parser_syntax(p, QN__CODE_BAD_CALLEE, p->token.loc, "remove it",
                      "a function ends with its return, found '%.*s'",
                      QN_STR_ARG(qn__parser_found(p)));
  }
  return value;
}

static void check_header_end(qn__parser_t* p) {
  const char* help = NULL;
  if (qn__parser_at_word(p, "fast")) help = "leave it out: it is that of the function that calls";
  if (qn__parser_at(p, QN__TOKEN_LEFT_BRACKET)) help = "the value of a function is a scalar";
  if (help) qn__parser_expected(p, QN__CODE_BAD_CALLEE, help, "'{' before a block");
}

void qn__parse_callee(qn__parser_t* p, qn__ir_func_t* function) {
  qn_str_t name = qn__lexer_slice(p->text, function->loc);
  qn__parser_callee_t* callee = qn__parser_find_callee(p, function->loc);
  uint32_t begin = p->stmt_begin;
  uint32_t errors = p->diag->error_count;
  uint32_t first_call = p->body->places.call_count;
  if (qn__parser_at(p, QN__TOKEN_LEFT_PAREN)) {
    qn__parser_expected(p, QN__CODE_BAD_CALLEE, "a function has one value", "a dtype");
  }
  qn_dtype_t dtype = qn__parse_dtype(p);
  if (qn__op_from_word(name) || qn__reduce_from_word(name) || qn__atomic_from_word(name) ||
      qn__word_find(qn__several_text, name)) {
    qn__parser_error(p, QN__CODE_RESERVED_NAME, function->loc, "choose another name",
                     "'%s' is an operator, and cannot name a function with a value",
                     function->name);
  }
  check_params(p, function);
  check_header_end(p);
  qn__ir_loc_t open = p->token.loc;
  if (p->is_lost || !qn__parser_expect(p, QN__TOKEN_LEFT_BRACE, "before a block")) return;
  qn__parser_scope_t scope;
  qn__parser_open_block(p, &scope);
  p->lets = &function->body;
  qn__ir_expr_t* value = parse_body(p, function, dtype);
  if (p->is_lost) {
    // What follows in the function makes no sense without its beginning.
    while (!qn__parser_at(p, QN__TOKEN_END) && !qn__parser_at_word(p, "func")) {
      qn__parser_advance(p);
    }
    p->is_lost = p->is_stopped;
  } else {
    qn__parser_close(p, QN__TOKEN_RIGHT_BRACE, open);
  }
  qn__parser_close_block(p);
  bool is_good =
      value && callee && callee->loc.begin == function->loc.begin && p->diag->error_count == errors;
  if (!is_good || p->is_grammar_only) return;  // its mistakes may be unreported
  callee->base = (qn__callee_t){.function = function,
                                .value = value,
                                .text = qn__parser_since(p, begin),
                                .first_call = first_call,
                                .call_count = p->body->places.call_count - first_call};
  if (!qn__callee_init(&callee->base, p->arena)) callee->base.value = NULL;
}
