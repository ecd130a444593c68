// SPDX-License-Identifier: Apache-2.0
// ir/passes/fold.c: the rules of the simplify pass for expressions; those of integers are in
// fold_int.c.
//
// Requirements:
// 1. The value stays the same, bit for bit, for every input: floats keep NaN, infinities and the
//    sign of zero. (A function marked `fast` also allows x + 0 -> x.)
// 2. Integers wrap. Rules that rely on order or division check in terms.c that sums do not wrap.
// 3. In checked builds, loads and divisions, which may fail, are evaluated as often as before.
// 4. arith.c computes literals, as in the interpreter, so that both have the same results.
//
// Each rule returns the replacement, or NULL to leave the expression.
#include "ir/passes/fold_inner.h"

#include <math.h>

qn__ir_var_facts_t* qn__fold_facts(qn__fold_t* fold, qn__ir_var_t* var) {
  if (!var->user) {
    qn__ir_var_facts_t* facts = QN__ARENA_NEW(fold->arena, qn__ir_var_facts_t);
    if (!facts) return NULL;
    facts->range = qn__range_full(var->dtype);
    var->user = facts;
  }
  return var->user;
}

static bool is_literal(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_INT || expr->kind == QN__EXPR_FLOAT;
}

bool qn__fold_learn_let(qn__fold_t* fold, qn__ir_var_t* var, qn__ir_expr_t* value) {
  qn__ir_var_facts_t* facts = qn__fold_facts(fold, var);
  if (!facts) return false;
  if (qn__dtype_is_int(var->dtype)) facts->range = qn__range_of(value);
  if (is_literal(value) || value->kind == QN__EXPR_VAR) facts->replacement = value;
  return facts->replacement != NULL;
}

void qn__fold_learn_range(qn__fold_t* fold, qn__ir_var_t* var, qn__ir_expr_t* begin,
                          qn__ir_expr_t* end) {
  qn__ir_var_facts_t* facts = qn__fold_facts(fold, var);
  if (!facts) return;
  int64_t max = qn__range_of(end).max;
  facts->range.min = qn__range_of(begin).min;
  facts->range.max = max == INT64_MIN ? max : max - 1;
  if (facts->range.max < facts->range.min) facts->range = qn__range_full(QN_DTYPE_I64);
  assert(facts->range.min <= facts->range.max);
  // A load may give another value when it is compared later.
  facts->below = qn__expr_facts(end).has_load ? NULL : end;
}

bool qn__fold_can_drop(const qn__fold_t* fold, qn__ir_expr_t* expr) {
  qn__ir_expr_facts_t facts = qn__expr_facts(expr);
  if (facts.has_cross_lane) return false;
  return !fold->is_checked || (!facts.has_load && !facts.has_division);
}

static qn__ir_scalar_t literal_value(const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_FLOAT) return (qn__ir_scalar_t){.f = expr->float_value};
  return (qn__ir_scalar_t){.i = expr->int_value};
}

// ---- literals

static qn__ir_expr_t* fold_literals(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (info->rule >= QN__RULE_LANE) return NULL;  // of threads or of the target
  qn__ir_scalar_t args[3] = {{0}, {0}, {0}};
  for (uint32_t i = 0; i < info->arity; ++i) {
    if (!is_literal(expr->args[i])) return NULL;
    args[i] = literal_value(expr->args[i]);
  }
  qn__ir_scalar_t result;
  if (!qn__scalar_op(expr->op, qn__expr_operand_dtype(expr), args, &result)) return NULL;
  return qn__expr_literal(fold->arena, expr->dtype, result);
}

// ---- logic

static qn_op_t negated(qn_op_t op) {
  static const struct {
    qn_op_t op, negated;
  } pairs[] = {{QN_OP_EQ, QN_OP_NE}, {QN_OP_LT, QN_OP_GE}, {QN_OP_LE, QN_OP_GT}};
  for (size_t i = 0; i < QN_COUNT_OF(pairs); ++i) {
    if (op == pairs[i].op) return pairs[i].negated;
    if (op == pairs[i].negated) return pairs[i].op;
  }
  return QN_OP_NONE;
}

static qn__ir_expr_t* fold_logic(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  qn__ir_expr_t* a = expr->args[0];
  qn__ir_expr_t* b = expr->args[1];
  if (expr->op == QN_OP_LOGIC_NOT) {
    if (a->kind != QN__EXPR_OP) return NULL;
    if (a->op == QN_OP_LOGIC_NOT) return a->args[0];
    qn_op_t op = negated(a->op);
    bool is_exact = op == QN_OP_EQ || op == QN_OP_NE || !qn__dtype_is_float(a->args[0]->dtype);
    return op != QN_OP_NONE && is_exact ? binary(fold, op, a->args[0], a->args[1]) : NULL;
  }
  bool is_and = expr->op == QN_OP_LOGIC_AND;
  if (a->kind == QN__EXPR_INT) return (a->int_value != 0) == is_and ? b : a;
  if (b->kind == QN__EXPR_INT) return (b->int_value != 0) == is_and ? a : drop(fold, a, b);
  return NULL;
}

// ---- floats

static bool is_float_literal(const qn__ir_expr_t* expr, double value) {
  return expr->kind == QN__EXPR_FLOAT && expr->float_value == value &&
         signbit(expr->float_value) == signbit(value);
}

static double smallest_normal(qn_dtype_t dtype) {
  switch (dtype) {
    case QN_DTYPE_F16:
      return 0x1p-14;
    case QN_DTYPE_F64:
      return 0x1p-1022;
    default:
      return 0x1p-126;
  }
}

// Replaces a division by a power of two by a multiplication, which is exact.
static qn__ir_expr_t* fold_float_division(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  const qn__ir_expr_t* divisor = expr->args[1];
  int exponent;
  if (divisor->kind != QN__EXPR_FLOAT || !isfinite(divisor->float_value) ||
      fabs(frexp(divisor->float_value, &exponent)) != 0.5) {
    return NULL;
  }
  double inverse = 1.0 / divisor->float_value;
  if (!isfinite(inverse) || qn__round_float(expr->dtype, inverse) != inverse ||
      fabs(inverse) < smallest_normal(expr->dtype)) {
    return NULL;
  }
  if (inverse == 1.0) return expr->args[0];
  return binary(fold, QN_OP_MUL, expr->args[0], qn__expr_float(fold->arena, expr->dtype, inverse));
}

static qn__ir_expr_t* fold_float(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  qn__ir_expr_t* a = expr->args[0];
  qn__ir_expr_t* b = expr->args[1];
  switch (expr->op) {
    case QN_OP_ADD:
      if (is_float_literal(b, -0.0) || (fold->is_fast && is_float_literal(b, 0.0))) return a;
      return is_float_literal(a, -0.0) || (fold->is_fast && is_float_literal(a, 0.0)) ? b : NULL;
    case QN_OP_SUB:
      return is_float_literal(b, 0.0) ? a : NULL;
    case QN_OP_MUL:
      if (is_float_literal(b, 1.0)) return a;
      return is_float_literal(a, 1.0) ? b : NULL;
    case QN_OP_DIV:
      return fold_float_division(fold, expr);
    case QN_OP_NEG:
      return a->kind == QN__EXPR_OP && a->op == QN_OP_NEG ? a->args[0] : NULL;
    default:
      return NULL;
  }
}

// ---- the rest

static qn__ir_expr_t* fold_op(qn__fold_t* fold, qn__ir_expr_t* expr) {
  qn__ir_expr_t* folded = fold_literals(fold, expr);
  if (folded) return folded;
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  // Commutative operators have the literal on the right.
  if ((expr->op == QN_OP_AND || expr->op == QN_OP_OR || expr->op == QN_OP_XOR) &&
      is_literal(expr->args[0]) && !is_literal(expr->args[1])) {
    qn__ir_expr_t* first = expr->args[0];
    expr->args[0] = expr->args[1];
    expr->args[1] = first;
  }
  switch (info->rule) {
    case QN__RULE_COMPARE:
      return qn__fold_comparison(fold, expr);
    case QN__RULE_LOGIC:
      return fold_logic(fold, expr);
    case QN__RULE_SELECT:
      if (expr->args[0]->kind == QN__EXPR_INT) {
        bool takes_first = expr->args[0]->int_value != 0;
        return drop(fold, expr->args[takes_first ? 2 : 1], expr->args[takes_first ? 1 : 2]);
      }
      return qn__expr_equal(expr->args[1], expr->args[2]) ? drop(fold, expr->args[0], expr->args[1])
                                                          : NULL;
    case QN__RULE_DOT_INT:
    case QN__RULE_DOT_FLOAT:
    case QN__RULE_LANE:
    case QN__RULE_GROUP:
    case QN__RULE_AXES:
    case QN__RULE_TEST:
      return NULL;
    default:
      if (qn__dtype_is_float(expr->dtype)) return fold_float(fold, expr);
      return qn__dtype_is_int(expr->dtype) ? qn__fold_integer(fold, expr) : NULL;
  }
}

static qn__ir_expr_t* fold_cast(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  qn__ir_expr_t* arg = expr->args[0];
  if (arg->dtype == expr->dtype) return arg;
  if (!is_literal(arg)) return NULL;
  qn__ir_scalar_t value = literal_value(arg);
  if (expr->kind == QN__EXPR_CAST) {
    return qn__expr_literal(fold->arena, expr->dtype,
                            qn__scalar_cast(arg->dtype, value, expr->dtype));
  }
  return qn__expr_literal(fold->arena, expr->dtype,
                          qn__scalar_from_bits(expr->dtype, qn__scalar_to_bits(arg->dtype, value)));
}

static qn__ir_expr_t* fold_cond(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  if (expr->args[0]->kind == QN__EXPR_INT) return expr->args[expr->args[0]->int_value != 0 ? 1 : 2];
  if (!qn__expr_equal(expr->args[1], expr->args[2])) return NULL;
  return drop(fold, expr->args[0], expr->args[1]);
}

static qn__ir_expr_t* fold_reduce(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  qn__ir_range_t begin = qn__range_of(expr->reduce.begin);
  qn__ir_range_t end = qn__range_of(expr->reduce.end);
  if (end.max > begin.min) return NULL;
  qn__ir_expr_t* neutral = qn__expr_literal(
      fold->arena, expr->dtype, qn__reduce_neutral(expr->reduce.reduce_kind, expr->dtype));
  if (!qn__fold_can_drop(fold, expr->reduce.begin)) return NULL;
  return drop(fold, expr->reduce.end, neutral);
}

// Replaces a load from a table at literal indices by the element.
static qn__ir_expr_t* fold_load(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  const qn__ir_buffer_t* table = expr->load.buffer;
  if (table->scope != QN__SCOPE_CONST) return NULL;
  uint64_t element = 0;
  for (uint32_t d = 0; d < table->rank; ++d) {
    int64_t extent;
    const qn__ir_expr_t* index = expr->load.indices[d];
    if (index->kind != QN__EXPR_INT || !qn__expr_const_int(table->shape[d], &extent)) return NULL;
    if (index->int_value < 0 || index->int_value >= extent) return NULL;
    element = element * (uint64_t)extent + (uint64_t)index->int_value;
  }
  if (QN_NEVER(element >= table->element_count)) return NULL;
  return qn__expr_replace(fold->arena, table->elements[element], NULL, NULL);
}

static qn__ir_expr_t* fold_node(qn__fold_t* fold, qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_VAR: {
      const qn__ir_var_facts_t* facts = expr->var->user;
      if (!facts || !facts->replacement) return NULL;
      return qn__expr_replace(fold->arena, facts->replacement, NULL, NULL);
    }
    case QN__EXPR_LOAD:
      return fold_load(fold, expr);
    case QN__EXPR_OP:
      return fold_op(fold, expr);
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return fold_cast(fold, expr);
    case QN__EXPR_COND:
      return fold_cond(fold, expr);
    case QN__EXPR_REDUCE:
      return fold_reduce(fold, expr);
    default:
      return NULL;
  }
}

static bool fold_slot(void* self, qn__ir_expr_t** slot) {
  qn__fold_expr(self, slot);
  return true;
}

// Folds begin and end first, so that the range of the variable is known, then the lets, and removes
// lets that are copies.
static void fold_reduce_children(qn__fold_t* fold, qn__ir_expr_t* expr) {
  qn__fold_expr(fold, &expr->reduce.begin);
  qn__fold_expr(fold, &expr->reduce.end);
  qn__fold_learn_range(fold, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end);
  qn__ir_block_t lets = qn__block_take(&expr->reduce.lets);
  for (qn__ir_stmt_t* let; (let = qn__block_pop(&lets)) != NULL;) {
    qn__fold_expr(fold, &let->let.value);
    bool is_copy = qn__fold_learn_let(fold, let->let.var, let->let.value);
    if (!is_copy) qn__block_append(&expr->reduce.lets, let);
  }
  qn__fold_expr(fold, &expr->reduce.value);
}

void qn__fold_expr(qn__fold_t* fold, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) {
    fold_reduce_children(fold, *slot);
  } else {
    (void)qn__expr_each_child(*slot, fold_slot, fold);
  }
  // One rule may enable another. Each step makes the expression smaller or cheaper.
  for (int step = 0; step < 8; ++step) {
    qn__ir_expr_t* folded = fold_node(fold, *slot);
    if (!folded) return;
    *slot = folded;
  }
}
