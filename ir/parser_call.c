// ir/parser_call.c: functions with a value, and calls of them.
//
// The definition may follow the call. So texts with "->" are scanned for functions with a value
// before anything is parsed; those that such a function calls are parsed before it. What cannot
// be ordered is a cycle. Not here: what a call becomes (callee.c).
#include <assert.h>
#include <stdio.h>

#include "ir/parser.h"

// A place in the text to parse from.
typedef struct position {
  qn__lexer_t lexer;
  qn__token_t token;
  qn__token_t ahead;
} position_t;

typedef enum progress {
  PROGRESS_NONE,
  PROGRESS_BEGUN,  // parsing what it calls
  PROGRESS_DONE,
} progress_t;

typedef struct callee {
  qn__callee_t base;  // value NULL: it has errors, which were reported
  const char* name;
  qn__ir_loc_t loc;
  position_t begin;  // at `func`
  position_t end;
  qn__ir_loc_t* words;  // in its body, before "("
  size_t word_count;
  progress_t progress;
  uint32_t depth;  // of calls, this one included
  bool is_bad;     // it calls itself, or its calls nest too deep
  struct callee* next;
} callee_t;

static position_t save_position(const qn__parser_t* p) {
  return (position_t){p->lexer, p->token, p->ahead};
}

static void go_to(qn__parser_t* p, const position_t* position) {
  if (p->is_stopped) return;
  p->lexer = position->lexer;
  p->lexer.diag = p->diag;
  p->token = position->token;
  p->ahead = position->ahead;
}

static callee_t* find_callee(const qn__parser_t* p, qn__ir_loc_t name) {
  return qn__map_get(&p->callees, qn__lexer_slice(p->text, name));
}

// ------------------------------------------------------------------------------------ scanning

typedef struct scanner {
  position_t at;
  callee_t* first;
  callee_t* last;
} scanner_t;

static void scan_token(scanner_t* s) {
  s->at.token = s->at.ahead;
  s->at.ahead = qn__lexer_next(&s->at.lexer);
}

static bool is_func(const qn__parser_t* p, qn__token_t token) {
  return token.kind == QN__TOKEN_NAME &&
         qn__str_equal(qn__lexer_slice(p->text, token.loc), QN_STR("func"));
}

// Adds a function if it is the first of its name.
static callee_t* add_callee(qn__parser_t* p, scanner_t* s, const position_t* begin) {
  if (begin->ahead.kind != QN__TOKEN_NAME || find_callee(p, begin->ahead.loc)) return NULL;
  qn_str_t name = qn__lexer_slice(p->text, begin->ahead.loc);
  callee_t* callee = QN__ARENA_NEW(p->arena, callee_t);
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
static void scan_body(qn__parser_t* p, scanner_t* s, callee_t* callee) {
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

static callee_t* scan(qn__parser_t* p) {
  scanner_t s = {.at = save_position(p)};
  s.at.lexer.diag = NULL;
  while (s.at.token.kind != QN__TOKEN_END && !p->is_stopped) {
    position_t begin = s.at;
    bool has_begun = is_func(p, s.at.token);
    scan_token(&s);
    if (!has_begun) continue;
    while (s.at.token.kind != QN__TOKEN_END && s.at.token.kind != QN__TOKEN_LEFT_BRACE &&
           s.at.token.kind != QN__TOKEN_ARROW && !is_func(p, s.at.token)) {
      scan_token(&s);
    }
    if (s.at.token.kind != QN__TOKEN_ARROW) continue;
    callee_t* callee = add_callee(p, &s, &begin);
    if (callee) scan_body(p, &s, callee);
  }
  return s.first;
}

// ------------------------------------------------------------------------------------ order

// The functions that are begun, each called by the one before it.
typedef struct path {
  callee_t* callees[QN__LARGEST_CALL_DEPTH];
  qn__ir_loc_t calls[QN__LARGEST_CALL_DEPTH];  // where that function calls the next one
  uint32_t size;
} path_t;

static void note_calls(qn__parser_t* p, const path_t* path, uint32_t from) {
  for (uint32_t i = from; i < path->size; i++) {
    const callee_t* next = find_callee(p, path->calls[i]);
    qn__parser_note(p, path->calls[i], "'%s' calls '%s' here", path->callees[i]->name, next->name);
  }
}

static void report_cycle(qn__parser_t* p, const path_t* path, const callee_t* again) {
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

static void parse_in_order(qn__parser_t* p, path_t* path, callee_t* callee) {
  callee->progress = PROGRESS_BEGUN;
  path->callees[path->size++] = callee;
  for (size_t i = 0; i < callee->word_count && !callee->is_bad && !p->is_stopped; i++) {
    callee_t* inner = find_callee(p, callee->words[i]);
    if (!inner) continue;
    path->calls[path->size - 1] = callee->words[i];
    bool is_too_deep = path->size == QN__LARGEST_CALL_DEPTH;
    if (inner->progress == PROGRESS_BEGUN) {
      report_cycle(p, path, inner);
      callee->is_bad = true;
      break;
    }
    if (inner->progress == PROGRESS_NONE && !is_too_deep) parse_in_order(p, path, inner);
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
  callee->progress = PROGRESS_DONE;
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
  position_t begin = save_position(p);
  path_t path = {.size = 0};
  for (callee_t* callee = scan(p); callee && !p->is_stopped; callee = callee->next) {
    if (callee->progress == PROGRESS_NONE) parse_in_order(p, &path, callee);
  }
  go_to(p, &begin);
}

bool qn__parser_skip_callee(qn__parser_t* p) {
  const callee_t* callee = p->callees.count > 0 ? find_callee(p, p->ahead.loc) : NULL;
  if (!callee || callee->loc.begin != p->ahead.loc.begin) return false;
  if (callee->progress != PROGRESS_DONE) return false;
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

// Returns the value of a return with the dtype of the function, or NULL after a report.
static qn__ir_expr_t* typed_result(qn__parser_t* p, const qn__ir_func_t* function,
                                   qn__parser_operand_t operand, qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_NONE || !qn__type_settle(p, &operand, dtype)) return NULL;
  if (operand.expr->dtype == dtype) return operand.expr;
  const char* text = qn_dtype_text(dtype);
  qn_str_t source = qn__parser_source_of(p, operand.expr);
  qn__parser_error(p, QN__CODE_VALUE_TYPE, operand.expr->loc,
                   qn__parser_help(p, "convert it: %s(%.*s)", text, QN_STR_ARG(source)),
                   "the value is %s, but '%s' gives %s", qn_dtype_text(operand.expr->dtype),
                   function->name, text);
  return NULL;
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
  qn__ir_expr_t* value = typed_result(p, function, qn__parse_expr(p), dtype);
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "the value of a function");
  return value;
}

void qn__parse_callee(qn__parser_t* p, qn__ir_func_t* function) {
  qn_str_t name = qn__lexer_slice(p->text, function->loc);
  callee_t* callee = find_callee(p, function->loc);
  uint32_t begin = p->stmt_begin;
  uint32_t errors = p->diag->error_count;
  uint32_t first_call = p->body->places.call_count;
  qn_dtype_t dtype = qn__parse_dtype(p);
  if (qn__op_from_word(name) || qn__reduce_from_word(name) || qn__atomic_from_word(name) ||
      qn__word_find(qn__several_text, name)) {
    qn__parser_error(p, QN__CODE_RESERVED_NAME, function->loc, "choose another name",
                     "'%s' is an operator, and cannot name a function with a value",
                     function->name);
  }
  check_params(p, function);
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
  if (!is_good) return;
  callee->base = (qn__callee_t){.function = function,
                                .value = value,
                                .text = qn__parser_since(p, begin),
                                .first_call = first_call,
                                .call_count = p->body->places.call_count - first_call};
  if (!qn__callee_init(&callee->base, p->arena)) callee->base.value = NULL;
}

// ------------------------------------------------------------------------------------ calls

bool qn__parser_at_call(const qn__parser_t* p) {
  return p->callees.count > 0 && find_callee(p, p->token.loc);
}

void qn__suggest_callees(const qn__parser_t* p, qn__parser_suggestion_t* suggestion) {
  // The order of the map depends on hashes: of names equally near, take the first in the text.
  const callee_t* best = NULL;
  for (size_t i = 0; i < p->callees.capacity; i++) {
    const callee_t* callee = p->callees.slots[i].value;
    if (!callee) continue;
    qn__parser_suggestion_t one = *suggestion;
    one.best = NULL;
    qn__suggest(&one, callee->name);
    if (!one.best) continue;
    if (best && one.distance == suggestion->distance && best->loc.begin < callee->loc.begin)
      continue;
    *suggestion = one;
    suggestion->distance = one.distance;
    best = callee;
  }
}

// Gives the arguments the dtypes of the parameters. Returns NULL after a report.
static qn__ir_expr_t** typed_args(qn__parser_t* p, const callee_t* callee, void** args,
                                  size_t count, qn__ir_loc_t loc) {
  const qn__ir_func_t* function = callee->base.function;
  if (count != function->param_count) {
    qn__parser_error(p, QN__CODE_OPERAND_COUNT, loc, NULL, "'%s' takes %zu %s, but %zu %s given",
                     callee->name, function->param_count,
                     function->param_count == 1 ? "value" : "values", count,
                     count == 1 ? "is" : "are");
    qn__parser_note(p, callee->loc, "'%s' is declared here", callee->name);
    return NULL;
  }
  qn__ir_expr_t** exprs = qn__arena_alloc_array(p->arena, count, sizeof(qn__ir_expr_t*));
  bool is_good = exprs != NULL;
  for (size_t i = 0; exprs && i < count; i++) {
    const qn__ir_var_t* param = function->params[i].scalar;
    qn__parser_operand_t operand = *(const qn__parser_operand_t*)args[i];
    is_good &= qn__type_settle(p, &operand, param->dtype);
    exprs[i] = operand.expr;
    if (!operand.expr || operand.expr->dtype == param->dtype) continue;
    const char* text = qn_dtype_text(param->dtype);
    qn_str_t source = qn__parser_source_of(p, operand.expr);
    qn__parser_error(p, QN__CODE_OPERAND_TYPE, operand.expr->loc,
                     qn__parser_help(p, "convert it: %s(%.*s)", text, QN_STR_ARG(source)),
                     "the value for '%s' of '%s' is %s, not %s", param->name, callee->name,
                     qn_dtype_text(operand.expr->dtype), text);
    qn__parser_note(p, param->loc, "'%s' is declared here", param->name);
    is_good = false;
  }
  return is_good ? exprs : NULL;
}

// The value of a call has the place of the call while its function is parsed, as messages of the
// parser say it, and then that of the value in the called function.
struct qn__parser_root {
  qn__ir_expr_t* expr;
  qn__ir_loc_t loc;
  struct qn__parser_root* next;
};

static bool name_root(qn__parser_t* p, qn__ir_expr_t* value, qn__ir_loc_t loc) {
  qn__parser_root_t* root = QN__ARENA_NEW(p->arena, qn__parser_root_t);
  if (!root) return false;
  *root = (qn__parser_root_t){value, value->loc, p->roots};
  p->roots = root;
  value->loc = loc;
  return true;
}

void qn__parser_place_roots(qn__parser_t* p, const qn__parser_root_t* mark) {
  for (; p->roots != mark; p->roots = p->roots->next) p->roots->expr->loc = p->roots->loc;
}

static qn__parser_operand_t expand(qn__parser_t* p, const callee_t* callee,
                                   qn__ir_expr_t* const* args, qn__ir_loc_t loc) {
  qn__expansion_t expansion = {.arena = p->arena,
                               .lets = p->lets,
                               .loc = loc,
                               .places = &p->body->places,
                               .node_count = &p->expanded_count};
  qn__ir_expr_t* value = qn__callee_expand(&callee->base, args, &expansion);
  if (expansion.is_too_large) {
    qn__parser_error(p, QN__CODE_CALL_LIMIT, loc, "use lets, or functions without a value",
                     "the calls of this module expand to more than %d operations",
                     QN__LARGEST_EXPANSION);
  } else if (value && expansion.height + p->depth > QN__NESTING_LIMIT) {
    qn__parser_error(p, QN__CODE_TOO_DEEP, loc, "use a let for a part of it",
                     "the call of '%s' expands to more than %d levels of operators", callee->name,
                     QN__NESTING_LIMIT);
  } else if (value) {
    return name_root(p, value, loc)
               ? (qn__parser_operand_t){value, QN__FLEX_TYPED, expansion.height}
               : qn__type_poison();
  }
  qn__parser_note(p, callee->loc, "'%s' is declared here", callee->name);
  return qn__type_poison();
}

qn__parser_operand_t qn__parse_call(qn__parser_t* p) {
  const callee_t* callee = find_callee(p, p->token.loc);
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_loc_t open = p->token.loc;
  qn__parser_advance(p);
  size_t mark = p->list_size;
  const qn__parser_root_t* roots = p->roots;
  while (!qn__parser_at(p, QN__TOKEN_RIGHT_PAREN) && !p->is_lost) {
    qn__parser_operand_t* arg = QN__ARENA_NEW(p->arena, qn__parser_operand_t);
    if (!arg) break;
    *arg = qn__parse_expr(p);
    qn__parser_push(p, arg);
    if (!qn__parser_take(p, QN__TOKEN_COMMA)) break;
  }
  bool is_closed = qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open);
  size_t count;
  void** args = qn__parser_pop_list(p, mark, &count);
  if (!is_closed || !args || !callee->base.value) return qn__type_poison();
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__ir_expr_t** exprs = typed_args(p, callee, args, count, loc);
  if (!exprs) return qn__type_poison();
  qn__parser_place_roots(p, roots);
  return expand(p, callee, exprs, loc);
}
