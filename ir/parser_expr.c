// SPDX-License-Identifier: Apache-2.0
// ir/parser_expr.c: the grammar of expressions: precedence climbing over a table of infix
// operators.
//
// Not here: dtypes (parser_type.c), statements (parser_stmt.c).
#include "ir/parser.h"

// ------------------------------------------------------------------------------------ primaries

static qn__parser_operand_t literal(qn__parser_t* p, qn__ir_expr_kind_t kind, uint32_t begin) {
  qn__parser_advance(p);
  qn__parser_operand_t operand = qn__type_new(p, kind, QN_DTYPE_NONE, begin);
  if (operand.expr) operand.flex = kind == QN__EXPR_INT ? QN__FLEX_INT : QN__FLEX_FLOAT;
  return operand;
}

static qn__parser_operand_t bool_literal(qn__parser_t* p, bool value) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__parser_operand_t operand = qn__type_new(p, QN__EXPR_INT, QN_DTYPE_BOOL, begin);
  if (operand.expr) operand.expr->int_value = value;
  return operand;
}

qn__ir_buffer_t* qn__parse_array(qn__parser_t* p, qn__ir_loc_t name_loc, const char* help) {
  qn__parser_binding_t* binding = qn__parser_resolve(p, name_loc);
  if (binding && binding->var && binding->var->dtype != QN_DTYPE_NONE) {
    qn__parser_error(p, QN__CODE_NOT_SCALAR, name_loc, help,
                     "'%s' is a value of %s and has no elements", binding->name->text,
                     qn_dtype_text(binding->var->dtype));
    qn__parser_note(p, binding->loc, "'%s' is declared here", binding->name->text);
  }
  return binding ? binding->buffer : NULL;
}

static qn__parser_operand_t parse_load(qn__parser_t* p, qn__ir_loc_t name_loc) {
  qn__ir_buffer_t* buffer = qn__parse_array(p, name_loc, NULL);
  uint32_t height;
  qn__ir_expr_t** indices = qn__parse_indices(p, buffer, name_loc, &height);
  if (!indices || buffer->dtype == QN_DTYPE_NONE) return qn__type_poison();
  qn__parser_operand_t operand = qn__type_new(p, QN__EXPR_LOAD, buffer->dtype, name_loc.begin);
  if (!operand.expr) return operand;
  operand.expr->load.buffer = buffer;
  operand.expr->load.indices = indices;
  operand.height = height + 1;
  return operand;
}

static qn__parser_operand_t parse_variable(qn__parser_t* p, qn__ir_loc_t name_loc,
                                           bool is_cast_operand) {
  qn__parser_binding_t* binding = qn__parser_resolve(p, name_loc);
  if (!binding) return qn__type_poison();
  if (binding->buffer && binding->buffer->dtype != QN_DTYPE_NONE) {
    const char* name = binding->name->text;
    const char* help = binding->buffer->rank == 0
                           ? qn__parser_help(p, "its element is %s[]", name)
                           : qn__parser_help(p, "name an element, as in %s[%s]", name,
                                             binding->buffer->rank == 1 ? "i" : "i, ...");
    qn__parser_error(p, QN__CODE_NOT_SCALAR, name_loc, help, "'%s' is a buffer, not a value", name);
    qn__parser_note(p, binding->loc, "'%s' is declared here", name);
    return qn__type_poison();
  }
  qn__ir_var_t* var = binding->var;
  if (!var || var->dtype == QN_DTYPE_NONE) return qn__type_poison();
  qn__parser_operand_t operand = qn__type_new(p, QN__EXPR_VAR, var->dtype, name_loc.begin);
  if (!operand.expr) return operand;
  operand.expr->var = var;
  // In shapes of parameters, an integer parameter is converted to i64, the dtype of symbols.
  if (p->is_signature && !is_cast_operand && var->dtype != QN_DTYPE_I64 &&
      qn__dtype_is_int(var->dtype)) {
    return qn__type_conversion(p, QN_DTYPE_I64, operand, name_loc.begin);
  }
  return operand;
}

// Parses `dtype "(" expr ")"`.
static qn__parser_operand_t parse_conversion(qn__parser_t* p, qn_dtype_t dtype) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_loc_t open = p->token.loc;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_PAREN, "after a dtype in an expression")) {
    return qn__type_poison();
  }
  qn__parser_operand_t operand;
  qn__parser_binding_t* direct = NULL;
  if (p->is_signature && qn__parser_at(p, QN__TOKEN_NAME) &&
      p->ahead.kind == QN__TOKEN_RIGHT_PAREN && qn__text_is_name(qn__parser_word(p))) {
    direct = qn__parser_find(p, p->token.loc);
  }
  if (direct && direct->var && direct->var->dtype != QN_DTYPE_NONE) {
    qn__ir_loc_t name_loc = p->token.loc;
    qn__parser_advance(p);
    operand = parse_variable(p, name_loc, true);
    if (direct->var->dtype == dtype && dtype != QN_DTYPE_I64) {
      // The conversion to its own dtype prevents the implicit conversion to i64.
      return qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open) ? operand : qn__type_poison();
    }
  } else {
    operand = qn__parse_expr(p);
  }
  if (!qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open)) return qn__type_poison();
  return qn__type_conversion(p, dtype, operand, begin);
}

static qn__parser_operand_t parse_bitcast(qn__parser_t* p) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_loc_t open = p->token.loc;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_PAREN, "after 'bitcast'")) return qn__type_poison();
  qn_dtype_t dtype = qn__parse_dtype(p);
  if (!qn__parser_expect(p, QN__TOKEN_COMMA, "after the dtype of a bitcast")) {
    return qn__type_poison();
  }
  qn__parser_operand_t operand = qn__parse_expr(p);
  if (!qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open)) return qn__type_poison();
  return qn__type_bitcast(p, dtype, operand, begin);
}

static qn__parser_operand_t parse_reduction(qn__parser_t* p, qn_reduce_kind_t kind) {
  qn__ir_loc_t word_loc = p->token.loc;
  qn__parser_advance(p);
  qn__ir_loc_t name_loc;
  qn__ir_expr_t* begin;
  qn__ir_expr_t* end;
  if (!qn__parser_enter(p)) return qn__type_poison();
  bool is_good = qn__parse_range(p, "a reduction", &name_loc, &begin, &end);
  qn__ir_var_t* var = NULL;
  qn__ir_loc_t open = p->token.loc;
  qn__parser_operand_t value = qn__type_poison();
  qn__ir_block_t lets = {NULL, NULL};
  if (is_good && qn__parser_expect(p, QN__TOKEN_LEFT_BRACE, "around what is reduced")) {
    var = qn__parser_new_var(p, QN__VAR_REDUCE, QN_DTYPE_I64, name_loc);
    qn__parser_scope_t scope;
    qn__parser_open_block(p, &scope);
    qn__parser_declare(p, name_loc, var, NULL);
    qn__ir_block_t* outer_lets = p->lets;
    p->lets = &lets;
    qn__parse_lets(p, &lets);
    value = qn__parse_expr(p);
    p->lets = outer_lets;
    if (!p->is_lost && qn__parser_at(p, QN__TOKEN_SEMICOLON) &&
        p->ahead.kind == QN__TOKEN_RIGHT_BRACE) {
      qn__parser_error(p, QN__CODE_EXPECTED, p->token.loc, "remove the ';'",
                       "what is reduced is an expression and has no ';' after it");
      qn__parser_advance(p);
    }
    if (!qn__parser_close(p, QN__TOKEN_RIGHT_BRACE, open)) value = qn__type_poison();
    qn__parser_close_block(p);
  }
  qn__parser_leave(p);
  if (!value.expr || !begin || !end || !var) return qn__type_poison();
  bool is_bool = value.flex == QN__FLEX_TYPED && value.expr->dtype == QN_DTYPE_BOOL;
  if (is_bool || (value.flex == QN__FLEX_TYPED && qn__dtype_is_stored(value.expr->dtype))) {
    qn_str_t source = qn__parser_source_of(p, value.expr);
    qn__parser_error(
        p, QN__CODE_OPERAND_TYPE, value.expr->loc,
        qn__parser_help(p, "convert it: %s(%.*s)",
                        qn__dtype_is_real(value.expr->dtype) ? "f32" : "i32", QN_STR_ARG(source)),
        "'%s' reduces integers or floats, not %s", qn__reduce_text(kind),
        qn_dtype_text(value.expr->dtype));
    return qn__type_poison();
  }
  qn_dtype_t dtype = value.flex == QN__FLEX_TYPED ? value.expr->dtype : QN_DTYPE_NONE;
  qn__parser_operand_t result = qn__type_new(p, QN__EXPR_REDUCE, dtype, word_loc.begin);
  if (!result.expr) return result;
  result.flex = value.flex;
  result.height = value.height + 1;
  result.expr->reduce.reduce_kind = kind;
  result.expr->reduce.reduce_var = var;
  result.expr->reduce.begin = begin;
  result.expr->reduce.end = end;
  result.expr->reduce.lets = lets;
  result.expr->reduce.value = value.expr;
  return result;
}

enum { MAX_ARITY = 3 };

// Parses a word and `"(" exprs ")"`. Returns false after a mistake of grammar.
static bool parse_operands(qn__parser_t* p, qn__parser_operand_t args[MAX_ARITY],
                           size_t* out_count) {
  qn__parser_advance(p);
  qn__ir_loc_t open = p->token.loc;
  qn__parser_advance(p);
  *out_count = 0;
  while (!qn__parser_at(p, QN__TOKEN_RIGHT_PAREN) && !p->is_lost) {
    qn__parser_operand_t operand = qn__parse_expr(p);
    if (*out_count < MAX_ARITY) args[*out_count] = operand;
    ++*out_count;
    if (!qn__parser_take(p, QN__TOKEN_COMMA)) break;
  }
  return qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open);
}

// Parses `thread.x { "," thread.y }` after a comma, and returns the literal of qn_axis_t. Its value
// is 0 after an error.
static qn__parser_operand_t parse_axes(qn__parser_t* p) {
  uint32_t begin = p->token.loc.begin;
  int64_t axes = 0;
  do {
    qn_loop_kind_t kind = qn__parser_at(p, QN__TOKEN_NAME) ? qn__loop_from_word(qn__parser_word(p))
                                                           : (qn_loop_kind_t)0;
    if (!qn__loop_is_thread(kind)) {
      qn__parser_expected(p, QN__CODE_EXPECTED, NULL, "'thread.x', 'thread.y' or 'thread.z'");
      return qn__type_poison();
    }
    int64_t axis = INT64_C(1) << (kind - QN_LOOP_THREAD_X);
    if (axes & axis) {
      qn__parser_error(p, QN__CODE_EXPECTED, p->token.loc, "remove it", "'%s' is named twice",
                       qn__loop_kind_text(kind));
    }
    axes |= axis;
    qn__parser_advance(p);
  } while (qn__parser_take(p, QN__TOKEN_COMMA));
  qn__ir_expr_t* expr = qn__expr_int(p->arena, QN_DTYPE_I64, axes);
  if (!expr) return qn__type_poison();
  expr->loc = qn__parser_since(p, begin);
  return (qn__parser_operand_t){.expr = expr, .height = 1};
}

// Parses a reduction over thread axes: `axis_sum(x, thread.x)`.
static qn__parser_operand_t parse_axis_call(qn__parser_t* p, qn_op_t op) {
  qn__ir_loc_t op_loc = p->token.loc;
  qn__parser_advance(p);
  qn__ir_loc_t open = p->token.loc;
  qn__parser_advance(p);
  qn__parser_operand_t args[2] = {qn__parse_expr(p), {0}};
  if (p->is_lost) return qn__type_poison();
  if (!qn__parser_take(p, QN__TOKEN_COMMA)) {
    qn__parser_expected(p, QN__CODE_EXPECTED,
                        "block_sum, block_min and block_max are over all axes",
                        "',' and the axes: thread.x, thread.y or thread.z");
    return qn__type_poison();
  }
  args[1] = parse_axes(p);
  if (!qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open)) return qn__type_poison();
  return qn__type_op(p, op, args, 2, op_loc.begin, qn__parser_since(p, op_loc.begin));
}

static qn__parser_operand_t parse_call(qn__parser_t* p, qn_op_t op) {
  if (qn__op_info(op)->rule == QN__RULE_AXES) return parse_axis_call(p, op);
  qn__ir_loc_t op_loc = p->token.loc;
  const qn__ir_op_info_t* info = qn__op_info(op);
  qn__parser_operand_t args[MAX_ARITY] = {{0}};
  size_t count;
  if (!parse_operands(p, args, &count)) return qn__type_poison();
  if (count != info->arity) {
    qn__parser_error(p, QN__CODE_OPERAND_COUNT, qn__parser_since(p, op_loc.begin),
                     qn__parser_help(p, "%s: %s", info->text, info->doc),
                     "'%s' takes %u %s, but %zu %s given", info->text, (unsigned)info->arity,
                     info->arity == 1 ? "operand" : "operands", count, count == 1 ? "is" : "are");
    return qn__type_poison();
  }
  return qn__type_op(p, op, args, info->arity, op_loc.begin, qn__parser_since(p, op_loc.begin));
}

// Reports a call of an unknown operator, and skips it.
static qn__parser_operand_t report_unknown_call(qn__parser_t* p) {
  qn__ir_loc_t loc = p->token.loc;
  qn_str_t word = qn__parser_word(p);
  if (qn__atomic_from_word(word)) {
    qn__parser_error(p, QN__CODE_MISPLACED_ATOMIC, loc,
                     qn__parser_help(p, "write: let old = %.*s(...);", QN_STR_ARG(word)),
                     "an atomic is a statement, not part of an expression");
  } else {
    qn__parser_suggestion_t suggestion = qn__suggest_start(word);
    qn__suggest_ops(&suggestion);
    qn__suggest_callees(p, &suggestion);
    const char* otherwise = qn__parser_find(p, loc) ? "elements of buffers stand in '[' ']'"
                                                    : "docs/ir.md lists the operators";
    const char* habit = qn__parser_call_help(p, loc);
    if (!habit) habit = qn__parser_habit(QN__HABIT_CALL, word);
    if (!habit) habit = qn__parser_habit(QN__HABIT_DTYPE, word);
    qn__parser_error(p, QN__CODE_UNKNOWN_OP, loc,
                     habit ? habit : qn__suggest_help(p, &suggestion, otherwise),
                     "unknown operator '%.*s'", QN_STR_ARG(word));
  }
  if (p->is_grammar_only) {
    qn__parser_operand_t args[MAX_ARITY];
    size_t count;
    (void)parse_operands(p, args, &count);
    return qn__type_poison();
  }
  // Skips the operands: without the operator, errors in them cannot be judged.
  qn__parser_advance(p);
  uint32_t open = 0;
  while (!qn__parser_at(p, QN__TOKEN_END) && !qn__parser_at(p, QN__TOKEN_SEMICOLON) &&
         !qn__parser_at(p, QN__TOKEN_LEFT_BRACE) && !qn__parser_at(p, QN__TOKEN_RIGHT_BRACE)) {
    bool is_open = qn__parser_at(p, QN__TOKEN_LEFT_PAREN);
    bool is_close = qn__parser_at(p, QN__TOKEN_RIGHT_PAREN);
    qn__parser_advance(p);
    open += is_open;
    if (is_close && --open == 0) break;
  }
  return qn__type_poison();
}

static qn__parser_operand_t parse_word(qn__parser_t* p) {
  qn_str_t word = qn__parser_word(p);
  qn__ir_loc_t loc = p->token.loc;
  if (qn__str_equal(word, QN_STR("true"))) return bool_literal(p, true);
  if (qn__str_equal(word, QN_STR("false"))) return bool_literal(p, false);
  if (qn__str_equal(word, QN_STR("inf")) || qn__str_equal(word, QN_STR("nan"))) {
    return literal(p, QN__EXPR_FLOAT, loc.begin);
  }
  if (qn__str_equal(word, QN_STR("bitcast"))) return parse_bitcast(p);
  qn_dtype_t dtype = qn__dtype_from_str(word);
  if (dtype != QN_DTYPE_NONE) return parse_conversion(p, dtype);
  if (qn__text_is_reserved(word)) {
    qn__parser_expected(p, QN__CODE_EXPECTED_EXPR, qn__parser_comment_help(p, loc, NULL),
                        "an expression");
    return qn__type_poison();
  }
  if (p->ahead.kind == QN__TOKEN_LEFT_PAREN) {
    qn_op_t op = qn__op_from_word(word);
    if (op) return parse_call(p, op);
    return qn__parser_at_call(p) ? qn__parse_call(p) : report_unknown_call(p);
  }
  if (p->ahead.kind == QN__TOKEN_NAME) {
    qn_reduce_kind_t kind = qn__reduce_from_word(word);
    qn_str_t next = qn__lexer_slice(p->text, p->ahead.loc);
    if (kind && !qn__str_equal(next, QN_STR("in"))) return parse_reduction(p, kind);
    if (qn__parser_at_several(p)) {
      qn__parser_several_misplaced(p);
      return qn__type_poison();
    }
  }
  qn__parser_advance(p);
  if (qn__parser_at(p, QN__TOKEN_LEFT_BRACKET)) return parse_load(p, loc);
  return parse_variable(p, loc, false);
}

static qn__parser_operand_t parse_primary(qn__parser_t* p) {
  qn__ir_loc_t loc = p->token.loc;
  switch (p->token.kind) {
    case QN__TOKEN_NAME:
      return parse_word(p);
    case QN__TOKEN_INT:
      return literal(p, QN__EXPR_INT, loc.begin);
    case QN__TOKEN_FLOAT:
      return literal(p, QN__EXPR_FLOAT, loc.begin);
    case QN__TOKEN_LEFT_PAREN: {
      qn__parser_advance(p);
      qn__parser_operand_t operand = qn__parse_expr(p);
      if (!qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, loc)) return qn__type_poison();
      return operand;
    }
    default:
      break;
  }
  bool is_power =
      qn__parser_at(p, QN__TOKEN_STAR) && loc.begin > 0 && p->text.data[loc.begin - 1] == '*';
  const char* help = is_power ? "write pow(a, b)" : qn__parser_comment_help(p, loc, NULL);
  qn__parser_expected(p, QN__CODE_EXPECTED_EXPR, help, "an expression");
  return qn__type_poison();
}

// ------------------------------------------------------------------------------------ operators

static qn__parser_operand_t parse_unary(qn__parser_t* p) {
  if (p->is_lost) return qn__type_poison();
  qn__ir_loc_t loc = p->token.loc;
  qn_op_t op = qn__parser_at(p, QN__TOKEN_MINUS)   ? QN_OP_NEG
               : qn__parser_at(p, QN__TOKEN_NOT)   ? QN_OP_LOGIC_NOT
               : qn__parser_at(p, QN__TOKEN_TILDE) ? QN_OP_NOT
                                                   : QN_OP_NONE;
  if (op == QN_OP_NONE) return parse_primary(p);
  qn__parser_advance(p);
  if (op == QN_OP_NEG && p->token.loc.begin == loc.begin + 1) {
    // A sign directly before a number belongs to the literal: -128 fits an i8, but 128 does not.
    if (qn__parser_at(p, QN__TOKEN_INT)) return literal(p, QN__EXPR_INT, loc.begin);
    if (qn__parser_at(p, QN__TOKEN_FLOAT) || qn__parser_at_word(p, "inf")) {
      return literal(p, QN__EXPR_FLOAT, loc.begin);
    }
  }
  if (!qn__parser_enter(p)) return qn__type_poison();
  qn__parser_operand_t operand = parse_unary(p);
  qn__parser_leave(p);
  return qn__type_op(p, op, &operand, 1, loc.begin, loc);
}

typedef struct infix {
  qn__token_kind_t token;
  qn_op_t op;
  int level;  // a higher level binds tighter
} infix_t;

enum { COMPARE_LEVEL = 3 };

static const infix_t infixes[] = {
    {QN__TOKEN_OR_OR, QN_OP_LOGIC_OR, 1},
    {QN__TOKEN_AND_AND, QN_OP_LOGIC_AND, 2},
    {QN__TOKEN_EQ, QN_OP_EQ, 3},
    {QN__TOKEN_NE, QN_OP_NE, 3},
    {QN__TOKEN_LT, QN_OP_LT, 3},
    {QN__TOKEN_LE, QN_OP_LE, 3},
    {QN__TOKEN_GT, QN_OP_GT, 3},
    {QN__TOKEN_GE, QN_OP_GE, 3},
    {QN__TOKEN_OR, QN_OP_OR, 4},
    {QN__TOKEN_XOR, QN_OP_XOR, 5},
    {QN__TOKEN_AND, QN_OP_AND, 6},
    {QN__TOKEN_SHL, QN_OP_SHL, 7},
    {QN__TOKEN_SHR, QN_OP_SHR, 7},
    {QN__TOKEN_PLUS, QN_OP_ADD, 8},
    {QN__TOKEN_MINUS, QN_OP_SUB, 8},
    {QN__TOKEN_STAR, QN_OP_MUL, 9},
    {QN__TOKEN_SLASH, QN_OP_DIV, 9},
    {QN__TOKEN_FLOORDIV, QN_OP_FLOORDIV, 9},
    {QN__TOKEN_PERCENT, QN_OP_FLOORMOD, 9},
};

int qn__op_level(qn_op_t op) {
  for (size_t i = 0; i < QN_COUNT_OF(infixes); i++) {
    if (infixes[i].op == op) return infixes[i].level;
  }
  (void)QN_NEVER(true);
  return 0;
}

int qn__token_level(qn__token_kind_t kind) {
  for (size_t i = 0; i < QN_COUNT_OF(infixes); i++) {
    if (infixes[i].token == kind) return infixes[i].level;
  }
  return 0;
}

static const infix_t* infix_at(const qn__parser_t* p) {
  for (size_t i = 0; i < QN_COUNT_OF(infixes); i++) {
    if (infixes[i].token == p->token.kind) return &infixes[i];
  }
  return NULL;
}

static qn__parser_operand_t parse_infix(qn__parser_t* p, int level) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_operand_t left = parse_unary(p);
  bool has_compared = false;
  for (;;) {
    const infix_t* infix = p->is_lost ? NULL : infix_at(p);
    if (!infix || infix->level < level) return left;
    qn__ir_loc_t op_loc = p->token.loc;
    if (infix->level == COMPARE_LEVEL && has_compared) {
      qn__parser_syntax(p, QN__CODE_CHAINED, op_loc, "write a < b && b < c",
                        "comparisons do not chain");
      return qn__type_poison();
    }
    has_compared = infix->level == COMPARE_LEVEL;
    qn__parser_advance(p);
    qn__ir_block_t* lets = p->lets;
    if (infix->op == QN_OP_LOGIC_AND || infix->op == QN_OP_LOGIC_OR) p->lets = NULL;
    qn__parser_operand_t args[] = {left, parse_infix(p, infix->level + 1)};
    p->lets = lets;
    left = qn__type_op(p, infix->op, args, 2, begin, op_loc);
  }
}

qn__parser_operand_t qn__parse_expr(qn__parser_t* p) {
  if (p->is_lost) return qn__type_poison();
  if (!qn__parser_enter(p)) return qn__type_poison();
  uint32_t begin = p->token.loc.begin;
  qn__parser_operand_t operand = parse_infix(p, 1);
  if (qn__parser_take(p, QN__TOKEN_QUESTION)) {
    qn__ir_block_t* lets = p->lets;
    p->lets = NULL;  // only one of the values is evaluated
    qn__parser_operand_t args[3] = {operand, qn__parse_expr(p), {0}};
    if (qn__parser_expect(p, QN__TOKEN_COLON, "between the two values of '?'")) {
      args[2] = qn__parse_expr(p);
    } else {
      args[2] = qn__type_poison();
    }
    p->lets = lets;
    operand = qn__type_cond(p, args, begin);
  }
  qn__parser_leave(p);
  return operand;
}
