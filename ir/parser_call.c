// SPDX-License-Identifier: Apache-2.0
// ir/parser_call.c: calls of functions with a value.
//
// Not here: what a call becomes (callee.c), the functions (parser_callee.c).
#include "ir/parser_callee.h"

bool qn__parser_at_call(const qn__parser_t* p) {
  return p->callees.count > 0 && qn__parser_find_callee(p, p->token.loc);
}

// Returns whether the text declares a function of the name anywhere.
static bool is_function(const qn__parser_t* p, qn_str_t name) {
  qn__lexer_t lexer;
  qn__lexer_init(&lexer, p->text, NULL);
  bool is_after_func = false;
  for (;;) {
    qn__token_t token = qn__lexer_next(&lexer);
    if (token.kind == QN__TOKEN_END) return false;
    qn_str_t word = qn__lexer_slice(p->text, token.loc);
    if (is_after_func && qn__str_equal(word, name)) return true;
    is_after_func = qn__str_equal(word, QN_STR("func"));
  }
}

const char* qn__parser_call_help(qn__parser_t* p, qn__ir_loc_t word) {
  qn_str_t name = qn__lexer_slice(p->text, word);
  const qn__parser_callee_t* callee = qn__parser_find_callee(p, word);
  if (callee) {
    return qn__parser_help(p, "it is called for its value: let value = %s(...);", callee->name);
  }
  if (!qn__text_is_name(name) || !is_function(p, name)) return NULL;
  return qn__parser_help(p, "only functions with a value are called: func %.*s(x: f32) -> f32",
                         QN_STR_ARG(name));
}

void qn__suggest_callees(const qn__parser_t* p, qn__parser_suggestion_t* suggestion) {
  // The order of the map depends on hashes: of names equally near, take the first in the text.
  const qn__parser_callee_t* best = NULL;
  for (size_t i = 0; i < p->callees.capacity; i++) {
    const qn__parser_callee_t* callee = p->callees.slots[i].value;
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
static qn__ir_expr_t** typed_args(qn__parser_t* p, const qn__parser_callee_t* callee, void** args,
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

static qn__parser_operand_t expand(qn__parser_t* p, const qn__parser_callee_t* callee,
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
  const qn__parser_callee_t* callee = qn__parser_find_callee(p, p->token.loc);
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
