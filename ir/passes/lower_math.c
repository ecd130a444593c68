// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_math.c: the pass `lower_math` replaces functions of mathematics by the arithmetic
// of ir/math, for generators that have neither.
//
//   y[i] = exp(x[i]) + 1.0;   becomes   let m = x[i]; let m1 = ...; ... y[i] = m40 + 1.0;
//
//  1. The operand and the steps of a function are lets before the statement that uses it, or in
//     the reduction that does.
//  2. An operand that is not always evaluated (one of `&&`, `||` or a COND) may read what is not
//     there: its let has a guard, `evaluated ? operand : 1`. Arithmetic without loads needs none.
//  3. The condition of a `while` becomes a flag, which is stored before the loop and at the end of
//     each iteration.
//  4. A rare case, such as a large argument of `sin`, is computed for all, and selected: lanes and
//     reductions have no branches.
//  5. `fmod` stays. It repeats a step as often as its operands say, and every C library has it
//     without error.
// The arithmetic must be neither reassociated nor contracted: the function is no longer `fast`.
#include "ir/math/math.h"
#include "ir/math/tables.h"
#include "ir/passes/pass_builder.h"

// Which words of 2/pi a table has.
enum { WORDS_U32, WORDS_U64, WORDS_COUNT };

typedef struct lowering {
  qn__pass_builder_t* pb;
  qn__ir_block_t* out;  // receives the lets
  qn__ir_var_t* guard;  // whether the expression is evaluated; NULL: always
  uint32_t traits;
  bool has_lowered;
  qn__ir_buffer_t* words[WORDS_COUNT];                   // NULL: not used yet
  qn__math_function_t* functions[QN__MATH_ID_COUNT][2];  // of F32 and F64; NULL: not built yet
} lowering_t;

static bool is_function(const qn__ir_expr_t* expr) {
  if (expr->kind != QN__EXPR_OP || expr->op == QN_OP_FMOD) return false;
  qn_dtype_t dtype = expr->dtype;
  qn__math_id_t id;
  return qn__dtype_is_float(dtype) && qn__math_find(expr->op, dtype, &id);
}

static qn__ir_expr_t* use(lowering_t* l, qn__ir_var_t* var) {
  return qn__pb_use(l->pb, var);
}

// Binds a value, so that its parts are evaluated once.
static qn__ir_var_t* bind(lowering_t* l, qn__ir_expr_t* value) {
  return qn__pb_let(l->pb, l->out, "m", value);
}

// ------------------------------------------------------------------------------------ functions

// Returns the table of words of 2/pi, which is declared at the top of the function.
static qn__ir_buffer_t* words_of(lowering_t* l, qn_dtype_t dtype) {
  bool is_wide = dtype == QN_DTYPE_U64;
  qn__ir_buffer_t** words = &l->words[is_wide ? WORDS_U64 : WORDS_U32];
  if (*words) return *words;
  // The first word is 0 in both. Words of 32 bits are the halves of the others, the upper one
  // first.
  size_t wide_count = QN_COUNT_OF(two_over_pi);
  size_t count = is_wide ? wide_count : 2 * wide_count - 1;
  qn__ir_buffer_t* table = qn__pb_alloc(l->pb, &l->pb->globals, QN__SCOPE_CONST, dtype,
                                        "two_over_pi", (int64_t)count, -1);
  if (!table) return NULL;
  table->elements = qn__arena_alloc_array(l->pb->arena, count, sizeof(qn__ir_expr_t*));
  if (!table->elements) return NULL;
  table->element_count = count;
  for (size_t i = 0; i < count; ++i) {
    uint64_t word = two_over_pi[is_wide ? i : (i + 1) / 2];
    if (!is_wide) word = i % 2 == 1 ? word >> 32 : word & UINT32_MAX;
    table->elements[i] = qn__expr_int(l->pb->arena, dtype, (int64_t)word);
    if (!table->elements[i]) return NULL;
  }
  return *words = table;
}

static const qn__math_function_t* function_of(lowering_t* l, qn__math_id_t id, qn_dtype_t dtype) {
  qn__math_function_t** function = &l->functions[id][dtype == QN_DTYPE_F64];
  if (*function) return *function;
  qn__math_function_t* built = QN__ARENA_NEW(l->pb->arena, qn__math_function_t);
  if (!built || !qn__math_build(l->pb->arena, id, dtype, l->traits, built)) {
    l->pb->arena->is_exhausted = true;
    return NULL;
  }
  return *function = built;
}

// Returns a new node for an operand of a step. `user` of a step's variable is its value.
static qn__ir_expr_t* operand(lowering_t* l, const qn__ir_expr_t* leaf) {
  if (leaf && leaf->kind == QN__EXPR_INT) {  // which may be -1 for the largest u32
    uint64_t bits = (uint64_t)leaf->int_value;
    return qn__expr_literal(l->pb->arena, leaf->dtype, qn__scalar_from_bits(leaf->dtype, bits));
  }
  return qn__pb_copy(l->pb, leaf && leaf->kind == QN__EXPR_VAR ? leaf->var->user : leaf);
}

static qn__ir_expr_t* cast(lowering_t* l, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                           qn__ir_expr_t* value) {
  if (!value) return NULL;
  qn__ir_expr_t* expr = qn__expr_new(l->pb->arena, kind, dtype, (qn__ir_loc_t){0, 0});
  if (expr) expr->args[0] = value;
  return expr;
}

static qn__ir_expr_t* op(lowering_t* l, uint32_t op, qn__ir_expr_t* const* args) {
  const qn__ir_op_info_t* info = qn__op_info((qn_op_t)op);
  for (uint32_t i = 0; i < info->arity; ++i) {
    if (!args[i]) return NULL;
  }
  return qn__expr_op(l->pb->arena, (qn_op_t)op, args[0], args[1], args[2]);
}

// Returns the upper or the lower half of an f64, as u32.
static qn__ir_expr_t* half(lowering_t* l, bool is_upper, qn__ir_expr_t* value) {
  qn__ir_expr_t* bits = cast(l, QN__EXPR_BITCAST, QN_DTYPE_U64, value);
  qn__ir_expr_t* count = qn__expr_int(l->pb->arena, QN_DTYPE_U64, 32);
  if (is_upper) bits = op(l, QN_OP_SHR, (qn__ir_expr_t*[]){bits, count, NULL});
  return cast(l, QN__EXPR_CAST, QN_DTYPE_U32, bits);
}

static qn__ir_expr_t* join(lowering_t* l, qn__ir_expr_t* upper, qn__ir_expr_t* lower) {
  upper = cast(l, QN__EXPR_CAST, QN_DTYPE_U64, upper);
  lower = cast(l, QN__EXPR_CAST, QN_DTYPE_U64, lower);
  qn__ir_expr_t* count = qn__expr_int(l->pb->arena, QN_DTYPE_U64, 32);
  upper = op(l, QN_OP_SHL, (qn__ir_expr_t*[]){upper, count, NULL});
  return cast(l, QN__EXPR_BITCAST, QN_DTYPE_F64,
              op(l, QN_OP_OR, (qn__ir_expr_t*[]){upper, lower, NULL}));
}

static qn__ir_expr_t* write_function(lowering_t* l, qn__math_id_t id, qn_dtype_t dtype,
                                     qn__ir_expr_t* const* args);

static qn__ir_expr_t* write_operator(lowering_t* l, const qn__ir_expr_t* step) {
  qn__ir_expr_t* args[3] = {NULL, NULL, NULL};
  for (uint32_t i = 0; i < 3 && step->args[i]; ++i) args[i] = operand(l, step->args[i]);
  uint32_t code = step->op;
  if (code >= QN__MATH_OP_CALL && code < QN__MATH_OP_REPEAT) {
    return write_function(l, (qn__math_id_t)(code - QN__MATH_OP_CALL), step->args[0]->dtype, args);
  }
  switch (code) {
    case QN__MATH_OP_MULHI:
      return op(l, QN_OP_MULHI, args);
    case QN__MATH_OP_RATIO:
      return op(l, QN_OP_DIV, args);
    case QN__MATH_OP_HIGH:
    case QN__MATH_OP_LOW:
      return half(l, code == QN__MATH_OP_HIGH, args[0]);
    case QN__MATH_OP_JOIN:
      return join(l, args[0], args[1]);
    case QN__MATH_OP_TWO_OVER_PI: {
      qn__ir_buffer_t* words = words_of(l, step->dtype);
      return words && args[0] ? qn__pb_load(l->pb, words, args[0], NULL) : NULL;
    }
    default:
      // The others are of AVX-512 and of `fmod`, which this pass does not ask for.
      return QN_NEVER(code >= QN__MATH_OP_MULHI) ? NULL : op(l, code, args);
  }
}

// Writes one step, or a call and the selection of its result where the condition holds.
static qn__ir_expr_t* write_step(lowering_t* l, const qn__ir_expr_t* step) {
  if (step->kind == QN__EXPR_OP) return write_operator(l, step);
  if (step->kind == QN__EXPR_COND) {
    qn__ir_expr_t* called = write_operator(l, step->args[1]);
    return op(l, QN_OP_SELECT,
              (qn__ir_expr_t*[]){operand(l, step->args[0]), called, operand(l, step->args[2])});
  }
  return cast(l, step->kind, step->dtype, operand(l, step->args[0]));
}

// Writes the steps of a function of leaves, and returns the result, a leaf.
static qn__ir_expr_t* write_function(lowering_t* l, qn__math_id_t id, qn_dtype_t dtype,
                                     qn__ir_expr_t* const* args) {
  const qn__math_function_t* function = function_of(l, id, dtype);
  if (!function) return NULL;
  for (uint32_t i = 0; i < qn__math_info(id)->arity; ++i) function->params[i]->user = args[i];
  for (const qn__ir_stmt_t* stmt = function->body.first; stmt; stmt = stmt->next) {
    qn__ir_expr_t* value = write_step(l, stmt->let.value);
    if (value && value->kind != QN__EXPR_VAR) value = use(l, bind(l, value));
    if (!value) return NULL;
    stmt->let.var->user = value;
  }
  return operand(l, function->result);
}

// ------------------------------------------------------------------------------------ expressions

// Returns an operand as a leaf of the function's dtype.
static qn__ir_expr_t* bind_operand(lowering_t* l, qn_dtype_t dtype, qn__ir_expr_t* value) {
  bool is_leaf =
      value->kind == QN__EXPR_VAR || value->kind == QN__EXPR_INT || value->kind == QN__EXPR_FLOAT;
  if (l->guard && !is_leaf && !qn__pb_is_pure(l->pb, value)) {
    qn__ir_scalar_t one = {.i = 1};
    if (qn__dtype_is_real(value->dtype)) one.f = 1;
    value = qn__pb_cond(l->pb, use(l, l->guard), value,
                        qn__expr_literal(l->pb->arena, value->dtype, one));
  }
  if (value && qn__dtype_is_float(value->dtype)) value = qn__pb_cast(l->pb, dtype, value);
  if (!value || value->kind == QN__EXPR_VAR || value->kind == QN__EXPR_FLOAT) return value;
  return use(l, bind(l, value));
}

static void expand(lowering_t* l, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  qn__math_id_t id;
  bool is_known = qn__math_find(expr->op, expr->dtype, &id);
  if (QN_NEVER(!is_known)) return;
  // Narrow floats are computed as f32.
  qn_dtype_t dtype = expr->dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
  qn__ir_expr_t* args[3] = {NULL, NULL, NULL};
  for (uint32_t i = 0; i < qn__math_info(id)->arity; ++i) {
    args[i] = bind_operand(l, dtype, expr->args[i]);
    if (!args[i]) return;
  }
  qn__ir_expr_t* result = write_function(l, id, dtype, args);
  if (result) result = qn__pb_cast(l->pb, expr->dtype, result);
  if (result) *slot = result;
  l->has_lowered = true;
}

static bool visit(void* self, qn__ir_expr_t** slot);

// Visits operands that are evaluated where the first one holds, or where it does not.
static void visit_lazy(lowering_t* l, qn__ir_expr_t* expr) {
  (void)visit(l, &expr->args[0]);
  uint32_t count = expr->kind == QN__EXPR_COND ? 3 : 2;
  bool has_functions = false;
  for (uint32_t i = 1; i < count; ++i) {
    has_functions = has_functions || qn__expr_any(expr->args[i], is_function);
  }
  if (!has_functions) return;
  qn__ir_var_t* outer = l->guard;
  qn__ir_expr_t* first = expr->args[0];
  if (outer) first = qn__pb_both(l->pb, use(l, outer), first);
  qn__ir_var_t* holds = bind(l, first);
  if (!holds) return;
  expr->args[0] = use(l, holds);
  for (uint32_t i = 1; i < count; ++i) {
    bool is_negated = i == 2 || (expr->kind == QN__EXPR_OP && expr->op == QN_OP_LOGIC_OR);
    l->guard = holds;
    if (is_negated) {
      qn__ir_expr_t* fails = op(l, QN_OP_LOGIC_NOT, (qn__ir_expr_t*[]){use(l, holds), NULL, NULL});
      if (outer) fails = qn__pb_both(l->pb, use(l, outer), fails);
      l->guard = bind(l, fails);
    }
    (void)visit(l, &expr->args[i]);
  }
  l->guard = outer;
}

// The lets of a function in a reduction are lets of the reduction.
static void visit_reduce(lowering_t* l, qn__ir_expr_t* reduce) {
  (void)visit(l, &reduce->reduce.begin);
  (void)visit(l, &reduce->reduce.end);
  qn__ir_block_t* outer = l->out;
  qn__ir_var_t* guard = l->guard;
  qn__ir_block_t lets = qn__block_take(&reduce->reduce.lets);
  l->out = &reduce->reduce.lets;
  l->guard = NULL;
  for (qn__ir_stmt_t* let; (let = qn__block_pop(&lets)) != NULL;) {
    (void)visit(l, &let->let.value);
    qn__block_append(l->out, let);
  }
  (void)visit(l, &reduce->reduce.value);
  l->out = outer;
  l->guard = guard;
}

static bool visit(void* self, qn__ir_expr_t** slot) {
  lowering_t* l = self;
  qn__ir_expr_t* expr = *slot;
  if (!qn__expr_any(expr, is_function)) return true;
  if (expr->kind == QN__EXPR_REDUCE) {
    visit_reduce(l, expr);
  } else if (qn__expr_is_lazy(expr)) {
    visit_lazy(l, expr);
  } else {
    (void)qn__expr_each_child(expr, visit, self);
    if (!qn__pb_stopped(l->pb) && is_function(expr)) expand(l, slot);
  }
  return !qn__pb_stopped(l->pb);
}

// ------------------------------------------------------------------------------------ statements

// Appends lets and a store of the condition to `out`.
static void store_condition(lowering_t* l, qn__ir_block_t* out, qn__ir_buffer_t* flag,
                            qn__ir_expr_t* condition) {
  l->out = out;
  if (!condition || !visit(l, &condition)) return;
  qn__pb_append(out, qn__pb_store(l->pb, flag, NULL, NULL, condition));
}

static void lower_while(lowering_t* l, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__ir_buffer_t* flag = qn__pb_alloc(l->pb, out, QN__SCOPE_LOCAL, QN_DTYPE_BOOL, "going", -1, -1);
  if (!flag) return;
  qn__ir_expr_t* condition = stmt->while_.condition;
  store_condition(l, out, flag, qn__pb_copy(l->pb, condition));
  store_condition(l, &stmt->while_.body, flag, condition);
  stmt->while_.condition = qn__pb_load(l->pb, flag, NULL, NULL);
}

static void lower_block(lowering_t* l, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(l->pb);) {
    QN__EACH_BLOCK(stmt, inner) lower_block(l, inner);
    l->out = block;
    if (stmt->kind != QN__STMT_WHILE) {
      (void)qn__stmt_each_expr(stmt, visit, l);
    } else if (qn__expr_any(stmt->while_.condition, is_function)) {
      lower_while(l, stmt, block);
    }
    if (!qn__pb_stopped(l->pb)) qn__block_append(block, stmt);
  }
}

static void lower_function(qn__pass_builder_t* pb) {
  lowering_t l = {.pb = pb};
  if (pb->options->has_fma) l.traits |= QN__MATH_HAS_FMA;
  if (pb->options->vector_bytes == 0) l.traits |= QN__MATH_IS_GPU;
  if (pb->function->is_fast) l.traits |= QN__MATH_IS_FAST;
  lower_block(&l, &pb->function->body);
  if (l.has_lowered) pb->function->is_fast = false;
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any_expr(&function->body, is_function) ? "a function of mathematics" : NULL;
}

const qn__pass_t qn__pass_lower_math = {
    .name = "lower_math",
    .doc = "replaces functions of mathematics, but for fmod, by arithmetic",
    .run = lower_function,
    .post = "no function of mathematics is left but fmod",
    .check = check,
    .is_alone = true,
};
