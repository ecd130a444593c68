// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_printer_random.c: random expressions, printed and parsed, are the same trees.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdlib.h>

#include "tests/unit/ir/support_print.h"

typedef struct maker {
  qn__arena_t* arena;
  qn__ir_func_t* function;
  uint64_t random;
  int reduce_depth;
  qn__ir_var_t* reduce_vars[8];
} maker_t;

static uint64_t next_random(maker_t* m) {
  m->random ^= m->random << 13;
  m->random ^= m->random >> 7;
  m->random ^= m->random << 17;
  return m->random >> 11;
}

static qn__ir_expr_t* make_expr(maker_t* m, qn_dtype_t dtype, int depth);

static qn__ir_expr_t* make_leaf(maker_t* m, qn_dtype_t dtype) {
  uint64_t choice = next_random(m) % 4;
  if (choice == 0) {
    for (size_t i = 0; i < m->function->param_count; i++) {
      qn__ir_var_t* scalar = m->function->params[i].scalar;
      if (scalar && scalar->dtype == dtype) return qn__expr_var(m->arena, scalar);
    }
  }
  if (choice == 1 && dtype == QN_DTYPE_I64 && m->reduce_depth > 0) {
    return qn__expr_var(m->arena, m->reduce_vars[next_random(m) % (uint64_t)m->reduce_depth]);
  }
  qn__ir_scalar_t value =
      qn__scalar_from_bits(dtype, choice == 2 ? next_random(m) : (uint64_t)(next_random(m) % 5));
  if (!qn__dtype_is_real(dtype)) {
    int64_t i = choice == 3 ? -(int64_t)(next_random(m) % 3) : value.i;
    return qn__expr_int(m->arena, dtype, qn__wrap_int(dtype, i));
  }
  if (choice == 3) value.f = qn__round_float(dtype, (double)(next_random(m) % 100) / 10.0 - 3.0);
  return qn__expr_float(m->arena, dtype, value.f);
}

static bool takes(qn__ir_op_rule_t rule, qn_dtype_t dtype) {
  bool is_int = qn__dtype_is_int(dtype);
  bool is_float = qn__dtype_is_float(dtype);
  if (qn__dtype_is_stored(dtype)) return rule == QN__RULE_SELECT;
  switch (rule) {
    case QN__RULE_NUMERIC:
    case QN__RULE_GROUP:
    case QN__RULE_AXES:
      return is_int || is_float;
    case QN__RULE_INTEGER:
    case QN__RULE_SHIFT:
      return is_int;
    case QN__RULE_FLOAT:
    case QN__RULE_SCALE:
    case QN__RULE_TEST:
      return is_float;
    case QN__RULE_BITWISE:
      return !is_float;
    case QN__RULE_LOGIC:
      return dtype == QN_DTYPE_BOOL;
    case QN__RULE_TARGET:
      return dtype == QN_DTYPE_I64;
    default:
      return true;
  }
}

static qn_dtype_t any_dtype(maker_t* m) {
  return (qn_dtype_t)(1 + next_random(m) % (QN_DTYPE_COUNT - 1));
}

static qn__ir_expr_t* make_op(maker_t* m, qn_dtype_t dtype, int depth) {
  for (;;) {
    qn_op_t op = (qn_op_t)(1 + next_random(m) % (QN_OP_COUNT - 1));
    const qn__ir_op_info_t* info = qn__op_info(op);
    bool gives_bool = info->rule == QN__RULE_COMPARE || info->rule == QN__RULE_TEST ||
                      info->rule == QN__RULE_LOGIC;
    if (gives_bool && dtype != QN_DTYPE_BOOL) continue;
    qn_dtype_t operand = gives_bool ? any_dtype(m) : dtype;
    if (!takes(info->rule, operand)) {
      if (gives_bool && info->rule == QN__RULE_TEST) continue;
      if (gives_bool && info->rule == QN__RULE_LOGIC) operand = QN_DTYPE_BOOL;
      if (!takes(info->rule, operand)) continue;
    }
    qn__ir_expr_t* args[3] = {NULL, NULL, NULL};
    for (uint32_t i = 0; i < info->arity; i++) {
      qn_dtype_t own = qn__op_own_dtype(info->rule, i);
      args[i] = make_expr(m, own != QN_DTYPE_NONE ? own : operand, depth - 1);
    }
    if (info->rule == QN__RULE_AXES) {
      args[1] = qn__expr_int(m->arena, QN_DTYPE_I64, 1 + (int64_t)(next_random(m) % 7));
    }
    return qn__expr_op(m->arena, op, args[0], args[1], args[2]);
  }
}

static const qn__ir_loc_t nowhere = {0, 0};

static qn__ir_expr_t* make_reduction(maker_t* m, qn_dtype_t dtype, int depth) {
  qn__ir_expr_t* expr = qn__expr_new(m->arena, QN__EXPR_REDUCE, dtype, nowhere);
  expr->reduce.reduce_kind = (qn_reduce_kind_t)(1 + next_random(m) % 4);
  expr->reduce.begin = make_expr(m, QN_DTYPE_I64, depth - 2);
  expr->reduce.end = make_expr(m, QN_DTYPE_I64, depth - 2);
  expr->reduce.reduce_var = qn__var_new(m->arena, QN__VAR_REDUCE, QN_DTYPE_I64, "j");
  m->reduce_vars[m->reduce_depth++] = expr->reduce.reduce_var;
  if (next_random(m) % 2) {
    qn__ir_stmt_t* let = qn__stmt_new(m->arena, QN__STMT_LET, nowhere);
    qn_dtype_t kind = any_dtype(m);
    let->let.value = make_expr(m, kind, depth - 2);
    let->let.var = qn__var_new(m->arena, QN__VAR_LET, kind, "e");
    qn__block_append(&expr->reduce.lets, let);
  }
  expr->reduce.value = make_expr(m, dtype, depth - 1);
  m->reduce_depth--;
  return expr;
}

static qn__ir_expr_t* make_expr(maker_t* m, qn_dtype_t dtype, int depth) {
  if (depth <= 0) return make_leaf(m, dtype);
  uint64_t choice = next_random(m) % 16;
  if (choice < 3) return make_leaf(m, dtype);
  if (choice == 3 || choice == 4) {
    qn__ir_expr_t* expr = qn__expr_new(m->arena, QN__EXPR_CAST, dtype, nowhere);
    expr->args[0] = make_expr(m, any_dtype(m), depth - 1);
    return expr;
  }
  if (choice == 5) {
    qn__ir_expr_t* expr = qn__expr_new(m->arena, QN__EXPR_COND, dtype, nowhere);
    expr->args[0] = make_expr(m, QN_DTYPE_BOOL, depth - 1);
    expr->args[1] = make_expr(m, dtype, depth - 1);
    expr->args[2] = make_expr(m, dtype, depth - 1);
    return expr;
  }
  if (choice == 6 && dtype != QN_DTYPE_BOOL && !qn__dtype_is_stored(dtype) && m->reduce_depth < 3) {
    return make_reduction(m, dtype, depth);
  }
  if (choice == 7) {
    qn__ir_expr_t* expr = qn__expr_new(m->arena, QN__EXPR_BITCAST, dtype, nowhere);
    qn_dtype_t from;
    do {
      from = any_dtype(m);
    } while (qn_dtype_size_bits(from) != qn_dtype_size_bits(dtype));
    expr->args[0] = make_expr(m, from, depth - 1);
    return expr;
  }
  return make_op(m, dtype, depth);
}

// The parsed tree has other variables than the made one: those of equal names are taken as equal.
static bool is_same(const qn__ir_expr_t* a, const qn__ir_expr_t* b) {
  if (a->kind != b->kind || a->dtype != b->dtype) return false;
  switch (a->kind) {
    case QN__EXPR_INT:
      return a->int_value == b->int_value;
    case QN__EXPR_FLOAT:
      return (isnan(a->float_value) && isnan(b->float_value)) ||
             (a->float_value == b->float_value &&
              signbit(a->float_value) == signbit(b->float_value));
    case QN__EXPR_VAR:
      return a->var->kind == b->var->kind && a->var->dtype == b->var->dtype;
    case QN__EXPR_OP:
      if (a->op != b->op) return false;
      for (uint32_t i = 0; i < qn__op_info(a->op)->arity; i++) {
        if (!is_same(a->args[i], b->args[i])) return false;
      }
      return true;
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return is_same(a->args[0], b->args[0]);
    case QN__EXPR_COND:
      return is_same(a->args[0], b->args[0]) && is_same(a->args[1], b->args[1]) &&
             is_same(a->args[2], b->args[2]);
    case QN__EXPR_REDUCE: {
      const qn__ir_stmt_t* x = a->reduce.lets.first;
      const qn__ir_stmt_t* y = b->reduce.lets.first;
      if (!x != !y || (x && !is_same(x->let.value, y->let.value))) return false;
      return a->reduce.reduce_kind == b->reduce.reduce_kind &&
             is_same(a->reduce.begin, b->reduce.begin) && is_same(a->reduce.end, b->reduce.end) &&
             is_same(a->reduce.value, b->reduce.value);
    }
    case QN__EXPR_LOAD:
      break;
  }
  return false;
}

static void test_random_expressions_come_back(void** state) {
  (void)state;
  maker_t maker = {.random = 88172645463325252u};
  for (int i = 0; i < 4000; i++) {
    qn__ir_body_t body;
    must_parse_body(
        "func f(p1: bool, p2: i8, p3: i16, p4: i32, p5: i64, p6: u8, p7: u16, p8: u32, "
        "p9: u64, p10: f16, p11: bf16, p12: f32, p13: f64) {\n  let v = 0;\n}\n",
        &body);
    maker.arena = &body.arena;
    maker.function = body.first;
    maker.reduce_depth = 0;
    qn_dtype_t dtype = any_dtype(&maker);
    qn__ir_stmt_t* let = body.first->body.first;
    let->let.value = make_expr(&maker, dtype, 1 + i % 6);
    let->let.var->dtype = dtype;
    char* text = qn_print_twice(&body);
    qn__ir_body_t again;
    must_parse_body(text, &again);
    if (!is_same(let->let.value, again.first->body.first->let.value)) {
      fail_msg("another tree comes back from tree %d:\n%s", i, text);
    }
    qn__body_deinit(&again);
    // Laying it out again changes nothing.
    char* formatted = qn_must_format(text);
    assert_string_equal(formatted, text);
    qn_text_free(formatted);
    free(text);
    qn__body_deinit(&body);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_expressions_come_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
