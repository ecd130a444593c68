// SPDX-License-Identifier: Apache-2.0
// ir/parser_stmt.c: the grammar of statements.
//
// A declaration with an error still declares its name, so that uses of the name give no further
// messages. The name is poisoned if its dtype is unknown. Statements with errors are not part of
// the tree, which is then discarded.
//
// Not here: expressions (parser_expr.c), parameters (parser_func.c).
#include "ir/parser.h"

#include <stdio.h>

static qn__ir_stmt_t* new_stmt(qn__parser_t* p, qn__ir_block_t* block, qn__ir_stmt_kind_t kind,
                               qn__ir_loc_t loc) {
  qn__ir_stmt_t* stmt = qn__stmt_new(p->arena, kind, loc);
  if (stmt) qn__block_append(block, stmt);
  return stmt;
}

// ------------------------------------------------------------------------------------ pieces

bool qn__parse_range(qn__parser_t* p, const char* what, qn__ir_loc_t* out_name,
                     qn__ir_expr_t** out_begin, qn__ir_expr_t** out_end) {
  *out_begin = NULL;
  *out_end = NULL;
  qn__ir_block_t* lets = p->lets;
  char owner[64];
  (void)snprintf(owner, sizeof owner, "the variable of %s", what);
  if (!qn__parser_name(p, owner, out_name)) return false;
  if (!qn__parser_expect_word(p, "in", "after the name of a variable")) return false;
  p->lets = NULL;  // the launch may need to know bounds
  *out_begin = qn__type_as_i64(p, qn__parse_expr(p), "the lower bound");
  p->lets = lets;
  if (!*out_begin && !qn__parser_at(p, QN__TOKEN_RANGE) && !p->is_grammar_only) {
    p->is_lost = true;  // reported before
  }
  if (!p->is_lost && !qn__parser_at(p, QN__TOKEN_RANGE)) {
    qn_str_t source = qn__parser_source_of(p, *out_begin);
    const char* help = qn__parser_at(p, QN__TOKEN_LEFT_BRACE)
                           ? qn__parser_help(p, "a range has two ends: 0..%.*s", QN_STR_ARG(source))
                           : NULL;
    qn__parser_expected(p, QN__CODE_NOT_A_RANGE, help, "'..' after the lower bound");
    return false;
  }
  if (!qn__parser_take(p, QN__TOKEN_RANGE)) return false;
  p->lets = NULL;
  *out_end = qn__type_as_i64(p, qn__parse_expr(p), "the upper bound");
  p->lets = lets;
  return !p->is_lost;
}

static void parse_stmt(qn__parser_t* p, qn__ir_block_t* block);

void qn__parse_block(qn__parser_t* p, qn__ir_block_t* block, qn__ir_loc_t var_loc,
                     qn__ir_var_t* var) {
  qn__ir_loc_t open = p->token.loc;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_BRACE, "before a block")) return;
  if (!qn__parser_enter(p)) return;
  qn__parser_scope_t scope;
  qn__parser_open_block(p, &scope);
  if (var) qn__parser_declare(p, var_loc, var, NULL);
  while (!qn__parser_at(p, QN__TOKEN_RIGHT_BRACE) && !qn__parser_at(p, QN__TOKEN_END) &&
         !qn__parser_at_word(p, "func")) {
    uint32_t begin = p->token.loc.begin;
    parse_stmt(p, block);
    if (!p->is_lost) continue;
    qn__parser_recover(p);
    // Skip a token that starts no statement, so that the loop ends.
    if (p->token.loc.begin == begin && !qn__parser_at(p, QN__TOKEN_RIGHT_BRACE) &&
        !qn__parser_at_word(p, "func")) {
      qn__parser_advance(p);
    }
  }
  qn__parser_close(p, QN__TOKEN_RIGHT_BRACE, open);
  qn__parser_close_block(p);
  qn__parser_leave(p);
}

// ------------------------------------------------------------------------------------ let, atomics

static void parse_atomic(qn__parser_t* p, qn__ir_block_t* block,
                         const qn__parser_value_name_t* name) {
  qn_atomic_op_t op = qn__atomic_from_word(qn__parser_word(p));
  qn__ir_loc_t op_loc = p->token.loc;
  qn__parser_advance(p);
  qn__ir_loc_t open = p->token.loc;
  qn__ir_buffer_t* buffer = NULL;
  qn__ir_expr_t** indices = NULL;
  qn__parser_operand_t operands[3] = {{0}};
  size_t count = 0;
  bool is_good = qn__parser_expect(p, QN__TOKEN_LEFT_PAREN, "after an atomic");
  qn__ir_loc_t name_loc;
  if (is_good && qn__parser_name(p, "a buffer", &name_loc)) {
    buffer = qn__parse_array(p, name_loc, "an atomic works on an element of a buffer");
    uint32_t height;
    indices = qn__parse_indices(p, buffer, name_loc, &height);
    while (qn__parser_take(p, QN__TOKEN_COMMA)) {
      qn__parser_operand_t operand = qn__parse_expr(p);
      if (count < QN_COUNT_OF(operands)) operands[count] = operand;
      count++;
    }
  }
  if (!qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open)) indices = NULL;
  qn__ir_loc_t loc = qn__parser_since(p, op_loc.begin);
  uint32_t wanted = qn__atomic_operand_count(op);
  if (!p->is_lost && count != wanted) {
    qn__parser_error(p, QN__CODE_OPERAND_COUNT, loc, NULL,
                     "'%s' takes an element and %u %s, but %zu %s given", qn__atomic_text(op),
                     (unsigned)wanted, wanted == 1 ? "value" : "values", count,
                     count == 1 ? "is" : "are");
    indices = NULL;
  }
  if (!p->is_lost && name && op == QN_ATOMIC_STORE) {
    qn__parser_error(p, QN__CODE_NO_VALUE, loc, "'atomic_exchange' gives the old value",
                     "'%s' gives no value", qn__atomic_text(op));
    indices = NULL;
  }
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "an atomic");
  qn__ir_expr_t* values[2] = {NULL, NULL};
  bool is_complete = indices != NULL;
  for (uint32_t i = 0; i < wanted && is_complete; i++) {
    values[i] = qn__type_as_value(p, operands[i], buffer);
    is_complete = values[i] != NULL;
  }
  qn__ir_var_t* result = NULL;
  if (name) {
    qn_dtype_t dtype = buffer ? buffer->dtype : QN_DTYPE_NONE;
    is_complete &= p->is_lost || qn__type_check_name(p, name, dtype);
    result = qn__parser_declare_value(p, QN__VAR_ATOMIC, dtype, name);
  }
  if (!is_complete) return;
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_ATOMIC, loc);
  if (!stmt) return;
  stmt->atomic.op = op;
  stmt->atomic.buffer = buffer;
  stmt->atomic.indices = indices;
  stmt->atomic.operand = values[0];
  stmt->atomic.operand2 = values[1];
  stmt->atomic.result = result;
}

// Reports a scan after `let names =`, and declares the names nevertheless.
static void parse_scan_as_value(qn__parser_t* p, qn__ir_block_t* block,
                                const qn__parser_value_name_t* names, size_t name_count) {
  qn__parser_error(p, QN__CODE_EXPECTED_EXPR, p->token.loc, qn__parser_scan_help(p),
                   "a scan is a statement, not an expression");
  qn__parse_scan(p, block);
  (void)qn__parser_take(p, QN__TOKEN_SEMICOLON);
  for (size_t i = 0; i < name_count && i < QN__LARGEST_VALUES; i++) {
    (void)qn__parser_declare_value(p, QN__VAR_LET, QN_DTYPE_NONE, &names[i]);
  }
}

// Parses `name [ ":" dtype ]`. Returns false after an error of grammar.
static bool parse_value_name(qn__parser_t* p, qn__parser_value_name_t* out_name) {
  *out_name = (qn__parser_value_name_t){.dtype = QN_DTYPE_NONE};
  if (!qn__parser_name(p, "a value", &out_name->loc)) return false;
  if (!qn__parser_take(p, QN__TOKEN_COLON)) return true;
  out_name->dtype_loc = p->token.loc;
  out_name->dtype = qn__parse_dtype(p);
  return !p->is_lost;
}

void qn__parse_let(qn__parser_t* p, qn__ir_block_t* block, bool is_in_reduction) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__parser_value_name_t names[QN__LARGEST_VALUES], name;
  size_t name_count = 0;
  do {
    if (!parse_value_name(p, &name)) return;
    if (name_count < QN_COUNT_OF(names)) names[name_count] = name;
    name_count++;
  } while (qn__parser_take(p, QN__TOKEN_COMMA));
  if (!qn__parser_expect(p, QN__TOKEN_ASSIGN, "after the name of a value")) return;
  if (qn__parser_at_scan(p)) {
    parse_scan_as_value(p, block, names, name_count);
    return;
  }
  if (qn__parser_at_several(p)) {
    if (is_in_reduction) {
      qn__parser_error(p, QN__CODE_EXPECTED, p->token.loc, "use a loop around it",
                       "a reduction cannot hold one of several values");
    }
    qn__parse_several(p, block, begin, names, name_count);
    return;
  }
  if (name_count > 1) {
    qn__parser_expected(p, QN__CODE_EXPECTED, NULL, "a reduction of several values");
    return;
  }
  if (!is_in_reduction && qn__parser_at(p, QN__TOKEN_NAME) &&
      p->ahead.kind == QN__TOKEN_LEFT_PAREN && qn__atomic_from_word(qn__parser_word(p))) {
    parse_atomic(p, block, &name);
    return;
  }
  qn__ir_expr_t* value = qn__type_as_named(p, qn__parse_expr(p), &name);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "the value of a let");
  qn_dtype_t dtype = value ? value->dtype : QN_DTYPE_NONE;
  qn__ir_var_t* var = qn__parser_declare_value(p, QN__VAR_LET, dtype, &name);
  if (!var || !value) return;
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_LET, loc);
  if (!stmt) return;
  stmt->let.var = var;
  stmt->let.value = value;
}

// ------------------------------------------------------------------------------------ stores

static void report_assignment(qn__parser_t* p, qn__ir_loc_t name_loc) {
  qn_str_t name = qn__lexer_slice(p->text, name_loc);
  const qn__parser_binding_t* binding = qn__parser_find(p, name_loc);
  const char* help;
  const char* why;
  if (!binding) {
    why = "is not declared";
    help = qn__parser_help(p, "declare it: let %.*s = ...;", QN_STR_ARG(name));
  } else if (binding->buffer) {
    why = "is a buffer: only its elements can be assigned";
    help = qn__parser_help(p, "name an element: %.*s[%s] = ...;", QN_STR_ARG(name),
                           binding->buffer->rank == 0   ? ""
                           : binding->buffer->rank == 1 ? "i"
                                                        : "i, ...");
  } else {
    why = "is a value: it never changes";
    help = "an allocation of rank 0 can be changed: alloc t: f32[] in local; t[] = ...;";
  }
  qn__parser_syntax(p, QN__CODE_NOT_ASSIGNABLE, name_loc, help, "'%.*s' %s", QN_STR_ARG(name), why);
  if (binding) qn__parser_note(p, binding->loc, "'%.*s' is declared here", QN_STR_ARG(name));
}

static bool is_compound(const qn__parser_t* p) {
  switch (p->token.kind) {
    case QN__TOKEN_PLUS:
    case QN__TOKEN_MINUS:
    case QN__TOKEN_STAR:
    case QN__TOKEN_SLASH:
    case QN__TOKEN_FLOORDIV:
    case QN__TOKEN_PERCENT:
    case QN__TOKEN_AND:
    case QN__TOKEN_OR:
    case QN__TOKEN_XOR:
      return p->ahead.kind == QN__TOKEN_ASSIGN;
    default:
      return false;
  }
}

static void parse_store(qn__parser_t* p, qn__ir_block_t* block) {
  qn__ir_loc_t name_loc = p->token.loc;
  qn__parser_advance(p);
  qn__ir_buffer_t* buffer = qn__parse_array(p, name_loc, NULL);
  uint32_t height;
  qn__ir_expr_t** indices = qn__parse_indices(p, buffer, name_loc, &height);
  qn__ir_loc_t loc = qn__parser_since(p, name_loc.begin);
  if (!p->is_lost && is_compound(p)) {
    qn_str_t target = qn__lexer_slice(p->text, loc);
    if (target.size > 40) target = QN_STR("x[i]");
    qn_str_t op = qn__parser_word(p);
    qn__parser_syntax(
        p, QN__CODE_COMPOUND,
        (qn__ir_loc_t){p->token.loc.begin, p->ahead.loc.begin + 1 - p->token.loc.begin},
        qn__parser_help(p, "write %.*s = %.*s %.*s ...;", QN_STR_ARG(target), QN_STR_ARG(target),
                        QN_STR_ARG(op)),
        "there is no compound assignment");
    return;
  }
  if (!qn__parser_expect(p, QN__TOKEN_ASSIGN, "after the element that is stored")) return;
  qn__parser_operand_t value = qn__parse_expr(p);
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "a store");
  qn__ir_expr_t* typed = qn__type_as_value(p, value, buffer);
  if (!typed || !indices) return;
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_STORE, loc);
  if (!stmt) return;
  stmt->store.buffer = buffer;
  stmt->store.indices = indices;
  stmt->store.value = typed;
}

// ------------------------------------------------------------------------------------ control

static qn__ir_expr_t* parse_condition(qn__parser_t* p, const char* what) {
  qn__parser_operand_t condition = qn__parse_expr(p);
  if (!p->is_lost && qn__parser_at(p, QN__TOKEN_ASSIGN)) {
    qn__parser_syntax(p, QN__CODE_EXPECTED, p->token.loc, "'==' compares",
                      "'=' inside a condition");
    return NULL;
  }
  return qn__type_as_bool(p, condition, what);
}

static void parse_if(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  p->lets = block;  // that of an `else if` is its own
  qn__parser_advance(p);
  qn__ir_expr_t* condition = parse_condition(p, "the condition");
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__ir_block_t then_block = {NULL, NULL};
  qn__ir_block_t else_block = {NULL, NULL};
  qn__parse_block(p, &then_block, loc, NULL);
  if (qn__parser_take_word(p, "else")) {
    if (qn__parser_at_word(p, "if")) {
      // `else if` is a nested block in the tree.
      if (!qn__parser_enter(p)) return;
      p->depth++;
      parse_if(p, &else_block);
      p->depth--;
      qn__parser_leave(p);
    } else {
      qn__parse_block(p, &else_block, loc, NULL);
    }
  }
  if (!condition) return;
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_IF, loc);
  if (!stmt) return;
  stmt->if_.condition = condition;
  stmt->if_.then_block = then_block;
  stmt->if_.else_block = else_block;
}

static void parse_loop(qn__parser_t* p, qn__ir_block_t* block, qn_loop_kind_t kind) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_loc_t name_loc;
  qn__ir_expr_t* lower;
  qn__ir_expr_t* upper;
  if (!qn__parse_range(p, "a loop", &name_loc, &lower, &upper)) return;
  if (qn__parser_at_word(p, "step") || qn__parser_at_word(p, "by")) {
    qn__parser_syntax(p, QN__CODE_EXPECTED, p->token.loc,
                      "count from 0 to ceildiv(end - begin, step) and compute the index",
                      "loops have no step");
    return;
  }
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__ir_var_t* var = qn__parser_new_var(p, QN__VAR_LOOP, QN_DTYPE_I64, name_loc);
  if (!var) return;
  qn__ir_block_t body = {NULL, NULL};
  qn__parse_block(p, &body, name_loc, var);
  if (!lower || !upper) return;
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_LOOP, loc);
  if (!stmt) return;
  stmt->loop.kind = kind;
  stmt->loop.var = var;
  stmt->loop.begin = lower;
  stmt->loop.end = upper;
  stmt->loop.body = body;
}

static void parse_while(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  p->lets = NULL;  // the condition is computed before each round
  qn__parser_advance(p);
  qn__ir_expr_t* condition = parse_condition(p, "the condition");
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__ir_block_t body = {NULL, NULL};
  qn__parse_block(p, &body, loc, NULL);
  if (!condition) return;
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_WHILE, loc);
  if (!stmt) return;
  stmt->while_.condition = condition;
  stmt->while_.body = body;
}

static void parse_assert(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_expr_t* condition = parse_condition(p, "the condition of an assert");
  const char* message = "";
  if (qn__parser_take(p, QN__TOKEN_COMMA)) {
    if (qn__parser_at(p, QN__TOKEN_STRING)) {
      qn__buffer_t text;
      qn__buffer_init(&text, p->allocator);
      qn__lexer_unescape(qn__parser_word(p), &text);
      if (text.has_failed) qn__parser_out_of_memory(p);
      message = text.has_failed ? NULL : qn__arena_cstr(p->arena, qn__buffer_as_str(&text));
      qn__buffer_deinit(&text);
    }
    qn__parser_expect(p, QN__TOKEN_STRING, "as the message of an assert");
  }
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "an assert");
  if (!condition || !message) return;
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_ASSERT, loc);
  if (!stmt) return;
  stmt->assert_.condition = condition;
  stmt->assert_.message = message;
}

// ------------------------------------------------------------------------------------ statements

static void parse_barrier(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "'barrier'");
  (void)new_stmt(p, block, QN__STMT_BARRIER, loc);
}

static void parse_leave(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  qn_leave_t kind = qn__leave_from_word(qn__parser_word(p));
  qn__parser_advance(p);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  bool has_value = kind == QN_LEAVE_RETURN && p->token.newline_count == 0 &&
                   !qn__parser_at(p, QN__TOKEN_SEMICOLON) &&
                   !qn__parser_at(p, QN__TOKEN_RIGHT_BRACE);
  if (has_value) {
    qn__parser_expected(p, QN__CODE_MISSING_SEMICOLON,
                        "results are stored into out parameters; a function with a value is "
                        "declared func f(x: f32) -> f32",
                        "';' after 'return'");
    return;
  }
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, qn__parser_help(p, "'%s'", qn__leave_text(kind)));
  qn__ir_stmt_t* stmt = new_stmt(p, block, QN__STMT_LEAVE, loc);
  if (stmt) stmt->leave = kind;
}

static void parse_fence(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__parser_advance(p);
  (void)new_stmt(p, block, QN__STMT_FENCE, loc);
}

static void parse_let(qn__parser_t* p, qn__ir_block_t* block) {
  qn__parse_let(p, block, false);
}

// The words that begin a statement, besides those of loops and atomics.
static const struct {
  const char* word;
  void (*parse)(qn__parser_t* p, qn__ir_block_t* block);  // NULL: begins the rest of a statement
} keywords[] = {
    {"let", parse_let},       {"if", parse_if},           {"else", NULL},
    {"while", parse_while},   {"alloc", qn__parse_alloc}, {"const", qn__parse_const},
    {"view", qn__parse_view}, {"barrier", parse_barrier}, {"assert", parse_assert},
    {"break", parse_leave},   {"continue", parse_leave},  {"return", parse_leave},
};

bool qn__parser_starts_stmt(qn_str_t word) {
  for (size_t i = 0; i < QN_COUNT_OF(keywords); i++) {
    if (qn__word_is(word, keywords[i].word)) return true;
  }
  return qn__loop_from_word(word) != 0;
}

static void report_statement(qn__parser_t* p) {
  qn_str_t found = qn__parser_found(p);
  const char* help = NULL;
  if (qn__parser_at(p, QN__TOKEN_NAME)) {
    qn__parser_suggestion_t suggestion = qn__suggest_start(found);
    for (size_t i = 0; i < QN_COUNT_OF(keywords); i++) qn__suggest(&suggestion, keywords[i].word);
    qn__suggest_words(&suggestion, qn__loop_kind_text);
    qn__suggest_words(&suggestion, qn__atomic_text);
    qn__suggest(&suggestion, qn__several_text(QN__SEVERAL_SCAN));
    qn__suggest(&suggestion, qn__several_text(QN__SEVERAL_EXCLUSIVE_SCAN));
    help = qn__parser_habit(QN__HABIT_STMT, found);
    if (!help && p->ahead.kind == QN__TOKEN_LEFT_PAREN)
      help = qn__parser_call_help(p, p->token.loc);
    if (!help) help = qn__suggest_help(p, &suggestion, NULL);
  }
  qn__parser_expected(p, QN__CODE_EXPECTED_STMT, help, "a statement");
}

static void parse_stmt(qn__parser_t* p, qn__ir_block_t* block) {
  p->stmt_begin = p->token.loc.begin;
  p->lets = block;
  if (!qn__parser_at(p, QN__TOKEN_NAME)) {
    report_statement(p);
    return;
  }
  qn_str_t word = qn__parser_word(p);
  for (size_t i = 0; i < QN_COUNT_OF(keywords); i++) {
    if (!keywords[i].parse || !qn__word_is(word, keywords[i].word)) continue;
    keywords[i].parse(p, block);
    return;
  }
  qn_loop_kind_t loop = qn__loop_from_word(word);
  bool is_free = !qn__text_is_reserved(word);
  if (loop) {
    parse_loop(p, block, loop);
  } else if (p->ahead.kind == QN__TOKEN_LEFT_PAREN && qn__atomic_from_word(word)) {
    parse_atomic(p, block, NULL);
  } else if (qn__parser_at_scan(p)) {
    qn__parse_scan(p, block);
  } else if (qn__parser_at_several(p)) {
    qn__parse_several(p, block, p->token.loc.begin, NULL, 0);
  } else if (p->ahead.kind == QN__TOKEN_SEMICOLON && qn__word_is(word, "fence")) {
    parse_fence(p, block);  // the word is free elsewhere, as names of operators are
  } else if (p->ahead.kind == QN__TOKEN_LEFT_BRACKET && is_free) {
    parse_store(p, block);
  } else if (p->ahead.kind == QN__TOKEN_ASSIGN && is_free) {
    report_assignment(p, p->token.loc);
  } else {
    report_statement(p);
  }
}
