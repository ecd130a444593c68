// SPDX-License-Identifier: Apache-2.0
// ir/parser_several.c: the grammar of reductions of several values and of scans.
//
// The values decide the dtypes: each is typed as the value of a let is. Initial and combined values
// then have the same dtypes.
#include "ir/parser.h"

bool qn__parser_at_several(const qn__parser_t* p) {
  return qn__parser_at(p, QN__TOKEN_NAME) && p->ahead.kind == QN__TOKEN_NAME &&
         qn__word_find(qn__several_text, qn__parser_word(p)) &&
         !qn__str_equal(qn__lexer_slice(p->text, p->ahead.loc), QN_STR("in"));
}

bool qn__parser_at_scan(const qn__parser_t* p) {
  if (!qn__parser_at_several(p)) return false;
  uint32_t kind = qn__word_find(qn__several_text, qn__parser_word(p));
  return qn__several_is_scan((qn__ir_several_kind_t)kind);
}

const char* qn__parser_scan_help(qn__parser_t* p) {
  qn_str_t word = qn__parser_word(p);
  return qn__parser_help(p, "use its values where they arise: %.*s ... as (s) { y[i] = s; }",
                         QN_STR_ARG(word));
}

void qn__parser_several_misplaced(qn__parser_t* p) {
  qn_str_t word = qn__parser_word(p);
  if (qn__parser_at_scan(p)) {
    qn__parser_syntax(p, QN__CODE_EXPECTED_EXPR, p->token.loc, qn__parser_scan_help(p),
                      "a scan is a statement, not an expression");
    return;
  }
  qn__parser_syntax(
      p, QN__CODE_EXPECTED_EXPR, p->token.loc,
      qn__parser_help(p, "give names to its results: let a, b = %.*s ...;", QN_STR_ARG(word)),
      "a reduction of several values is a statement, not part of an expression");
}

// The reduction or scan that is being parsed. After an error of types the rest is parsed
// nevertheless, so that each mistake gives one message.
typedef struct several_parser {
  qn__parser_t* p;
  qn__ir_several_t* several;
  const qn__parser_value_name_t* names;  // of the results
  size_t name_count;
  bool is_good;
} several_parser_t;

static const char* noun_of(const qn__ir_several_t* several) {
  return qn__several_is_scan(several->kind) ? "a scan" : "a reduction";
}

static void check_count(several_parser_t* s, uint32_t begin, const char* what, size_t count) {
  size_t wanted = s->several->count;
  if (count == wanted || s->p->is_lost) return;
  qn__parser_error(s->p, QN__CODE_OPERAND_COUNT, qn__parser_since(s->p, begin), NULL,
                   "%s of %zu %s takes as many %s, not %zu", noun_of(s->several), wanted,
                   wanted == 1 ? "value" : "values", what, count);
  s->is_good = false;
}

// Returns the expression with the dtype of a value, or NULL after a report.
static qn__ir_expr_t* like_value(several_parser_t* s, qn__parser_operand_t operand, size_t i,
                                 const char* what) {
  const qn__ir_expr_t* value = i < s->several->count ? s->several->values[i] : NULL;
  if (!value) return NULL;
  (void)qn__type_settle(s->p, &operand, value->dtype);
  qn__ir_expr_t* expr = qn__type_as_any(s->p, operand);
  if (!expr || expr->dtype == value->dtype) return expr;
  const char* dtype = qn_dtype_text(value->dtype);
  qn_str_t source = qn__parser_source_of(s->p, expr);
  qn__parser_error(s->p, QN__CODE_OPERANDS_DIFFER, expr->loc,
                   qn__parser_help(s->p, "convert it: %s(%.*s)", dtype, QN_STR_ARG(source)),
                   "%s is %s, but value %zu of %s is %s", what, qn_dtype_text(expr->dtype), i + 1,
                   qn__several_is_scan(s->several->kind) ? "the scan" : "the reduction", dtype);
  return NULL;
}

// Types a value: by the dtype that is written for its result, or as a let.
static qn__ir_expr_t* as_value(several_parser_t* s, qn__parser_operand_t operand, size_t i) {
  bool has_name = i < s->name_count && i < QN__LARGEST_VALUES;
  return has_name ? qn__type_as_named(s->p, operand, &s->names[i]) : qn__type_as_any(s->p, operand);
}

// Parses expressions with commas between, and returns how many. `what` NULL: the values, which
// decide their dtypes.
static size_t parse_exprs(several_parser_t* s, const char* what, qn__ir_expr_t** out_exprs) {
  uint32_t begin = s->p->token.loc.begin;
  size_t count = 0;
  do {
    qn__parser_operand_t operand = qn__parse_expr(s->p);
    qn__ir_expr_t* expr = what ? like_value(s, operand, count, what) : as_value(s, operand, count);
    s->is_good &= expr != NULL;
    if (count < QN__LARGEST_VALUES) out_exprs[count] = expr;
    count++;
  } while (!s->p->is_lost && qn__parser_take(s->p, QN__TOKEN_COMMA));
  if (what) check_count(s, begin, "here", count);
  return count;
}

// Parses `"{" lets exprs "}"` in a scope that is open, and returns how many expressions there are.
static size_t parse_body(several_parser_t* s, const char* before, const char* what,
                         qn__ir_block_t* lets, qn__ir_expr_t** out_exprs) {
  qn__parser_t* p = s->p;
  qn__ir_loc_t open = p->token.loc;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_BRACE, before)) return 0;
  qn__ir_block_t* outer_lets = p->lets;
  p->lets = lets;
  qn__parse_lets(p, lets);
  size_t count = parse_exprs(s, what, out_exprs);
  p->lets = outer_lets;
  if (!p->is_lost && qn__parser_at(p, QN__TOKEN_SEMICOLON)) {
    qn__parser_error(p, QN__CODE_EXPECTED, p->token.loc, "remove the ';'",
                     "what is reduced is an expression and has no ';' after it");
    qn__parser_advance(p);
  }
  (void)qn__parser_close(p, QN__TOKEN_RIGHT_BRACE, open);
  return count;
}

// Parses `"(" name { "," name } ")"`, and declares variables with the dtypes of the values.
static void parse_names(several_parser_t* s, const char* after, const char* what,
                        qn__ir_var_t** out_vars) {
  qn__parser_t* p = s->p;
  qn__ir_loc_t open = p->token.loc;
  if (p->is_lost || !qn__parser_expect(p, QN__TOKEN_LEFT_PAREN, after)) return;
  size_t count = 0;
  do {
    qn__ir_loc_t loc;
    if (!qn__parser_name(p, what, &loc)) return;
    const qn__ir_expr_t* value = count < s->several->count ? s->several->values[count] : NULL;
    qn__ir_var_t* var =
        qn__parser_new_var(p, QN__VAR_LET, value ? value->dtype : QN_DTYPE_NONE, loc);
    if (!var) return;
    qn__parser_declare(p, loc, var, NULL);
    if (count < QN__LARGEST_VALUES) out_vars[count] = var;
    count++;
  } while (qn__parser_take(p, QN__TOKEN_COMMA));
  if (qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open)) {
    check_count(s, open.begin, "names", count);
  }
}

// Parses from `from` to the combiner.
static void parse_combiner(several_parser_t* s) {
  qn__parser_t* p = s->p;
  qn__ir_several_t* several = s->several;
  if (!qn__parser_expect_word(p, "from", "after what is reduced, before its initial values"))
    return;
  qn__ir_loc_t open = p->token.loc;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_PAREN, "around initial values")) return;
  (void)parse_exprs(s, "the initial value", several->initial);
  if (!qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open) ||
      !qn__parser_expect_word(p, "with", "after the initial values")) {
    return;
  }
  qn__parser_scope_t scope;
  qn__parser_open_block(p, &scope);
  const char* const operand = "an operand of the combiner";
  parse_names(s, "after 'with'", operand, several->left);
  if (!p->is_lost) {
    (void)qn__parser_expect(p, QN__TOKEN_COMMA, "between the operands of the combiner");
  }
  parse_names(s, "before the second operand of the combiner", operand, several->right);
  if (!p->is_lost) {
    (void)parse_body(s, "before the combiner", "the combined value", &several->merge_lets,
                     several->merged);
  }
  qn__parser_close_block(p);
  several->merged_count = several->count;
}

static void parse_values(several_parser_t* s) {
  qn__parser_t* p = s->p;
  qn__ir_several_t* several = s->several;
  qn__ir_loc_t begin = p->token.loc, name_loc;
  if (!qn__parse_range(p, noun_of(several), &name_loc, &several->begin, &several->end)) return;
  several->var = qn__parser_new_var(p, QN__VAR_REDUCE, QN_DTYPE_I64, name_loc);
  if (!several->var) return;
  qn__parser_scope_t scope;
  qn__parser_open_block(p, &scope);
  qn__parser_declare(p, name_loc, several->var, NULL);
  size_t count = parse_body(s, "around what is reduced", NULL, &several->lets, several->values);
  qn__parser_close_block(p);
  if (!several->begin || !several->end) s->is_good = false;
  if (count > QN__LARGEST_VALUES && !p->is_lost) {
    qn__parser_error(p, QN__CODE_OPERAND_COUNT, qn__parser_since(p, begin.begin), NULL,
                     "%s of %zu values; the limit is %d", noun_of(several), count,
                     QN__LARGEST_VALUES);
    s->is_good = false;
    count = QN__LARGEST_VALUES;
  }
  several->count = (uint32_t)count;
}

static bool check_values(qn__parser_t* p, const qn__ir_several_t* several, uint32_t begin) {
  const char* text = qn__several_text(several->kind);
  bool has_merge = qn__several_has_combiner(several->kind);
  if (!has_merge && several->count != 1) {
    qn__parser_error(p, QN__CODE_OPERAND_COUNT, qn__parser_since(p, begin),
                     "'reduce' has a combiner for several values", "'%s' takes one value, not %u",
                     text, (unsigned)several->count);
    return false;
  }
  for (uint32_t i = 0; i < several->count; i++) {
    const qn__ir_expr_t* value = several->values[i];
    bool is_bool = value->dtype == QN_DTYPE_BOOL;
    if (!(is_bool && !has_merge) && !qn__dtype_is_stored(value->dtype)) continue;
    qn_str_t source = qn__parser_source_of(p, value);
    qn__parser_error(
        p, QN__CODE_OPERAND_TYPE, value->loc,
        qn__parser_help(p, "convert it: %s(%.*s)", is_bool ? "i32" : "f32", QN_STR_ARG(source)),
        "'%s' %s integers or floats, not %s", text,
        qn__several_is_scan(several->kind) ? "combines" : "reduces", qn_dtype_text(value->dtype));
    return false;
  }
  return true;
}

// Declares the results. Those of a reduction with an error are poisoned.
static void declare_results(several_parser_t* s) {
  qn__ir_several_t* several = s->several;
  for (size_t i = 0; i < s->name_count && i < QN__LARGEST_VALUES; i++) {
    qn_dtype_t dtype = s->is_good ? qn__several_result_dtype(several, (uint32_t)i) : QN_DTYPE_NONE;
    s->is_good &= qn__type_check_name(s->p, &s->names[i], dtype);
    several->results[i] = qn__parser_declare_value(s->p, QN__VAR_LET, dtype, &s->names[i]);
    if (!several->results[i]) s->is_good = false;
  }
}

// Parses from the word that begins a reduction or scan to its combiner. Returns false without
// memory or beyond the limit of nesting.
static bool parse_head(several_parser_t* s, uint32_t begin) {
  qn__parser_t* p = s->p;
  qn__ir_several_t* several = s->several = QN__ARENA_NEW(p->arena, qn__ir_several_t);
  if (!several || !qn__parser_enter(p)) return false;
  several->kind = (qn__ir_several_kind_t)qn__word_find(qn__several_text, qn__parser_word(p));
  bool has_merge = qn__several_has_combiner(several->kind);
  qn__parser_advance(p);
  parse_values(s);
  if (!p->is_lost && s->is_good) s->is_good = check_values(p, several, begin);
  if (!p->is_lost && has_merge) parse_combiner(s);
  qn__parser_leave(p);
  several->result_count = has_merge ? several->count : 2;
  return true;
}

static void append(const several_parser_t* s, qn__ir_block_t* block, qn__ir_loc_t loc) {
  qn__ir_stmt_t* stmt = s->is_good ? qn__stmt_new(s->p->arena, QN__STMT_REDUCE, loc) : NULL;
  if (!stmt) return;
  stmt->several = s->several;
  qn__block_append(block, stmt);
}

void qn__parse_scan(qn__parser_t* p, qn__ir_block_t* block) {
  several_parser_t s = {p, NULL, NULL, 0, true};
  uint32_t begin = p->token.loc.begin;
  if (!parse_head(&s, begin)) return;
  qn__ir_several_t* several = s.several;
  if (p->is_lost || !several->var ||
      !qn__parser_expect_word(p, "as", "after a scan, before the names of its values")) {
    return;
  }
  qn__parser_scope_t scope;
  qn__parser_open_block(p, &scope);
  qn__parser_declare(p, several->var->loc, several->var, NULL);
  parse_names(&s, "after 'as'", "a value of the scan", several->results);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  if (!p->is_lost) qn__parse_block(p, &several->body, loc, NULL);
  qn__parser_close_block(p);
  for (uint32_t i = 0; i < several->result_count; i++) s.is_good &= several->results[i] != NULL;
  append(&s, block, loc);
}

void qn__parse_several(qn__parser_t* p, qn__ir_block_t* block, uint32_t begin,
                       const qn__parser_value_name_t* names, size_t name_count) {
  several_parser_t s = {p, NULL, names, name_count, true};
  if (!parse_head(&s, begin)) return;
  qn__ir_several_t* several = s.several;
  bool has_merge = qn__several_has_combiner(several->kind);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  if (!p->is_lost) (void)qn__parser_expect(p, QN__TOKEN_SEMICOLON, "a reduction");
  s.is_good &= !p->is_lost;
  if (s.is_good && name_count != several->result_count) {
    unsigned count = (unsigned)several->result_count;
    const char* help = has_merge ? NULL : "name the value and its index: let best, at = ...;";
    if (name_count == 0) help = "give names to its results: let a, b = ...;";
    qn__parser_error(p, QN__CODE_OPERAND_COUNT, loc, help, "'%s' gives %u %s, but %zu %s named",
                     qn__several_text(several->kind), count, count == 1 ? "value" : "values",
                     name_count, name_count == 1 ? "is" : "are");
    s.is_good = false;
  }
  declare_results(&s);
  append(&s, block, loc);
}
