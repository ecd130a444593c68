// SPDX-License-Identifier: Apache-2.0
// devices/gpu/eval.c: evaluates a plan's expression in the IR's i64 arithmetic, and reports whether
// a step overflowed.
//
// It does not check that an expression is well formed; plan.c does when it decodes.
//
// Thread rule: pure. Read next: run.c.
#include "base/integer.h"
#include "devices/gpu/plan.h"

static int64_t apply(qn_op_t op, const int64_t* args, bool* is_exact) {
  int64_t a = args[0], b = args[1], result;
  switch (op) {
    case QN_OP_LOGIC_AND:
      return a & b;
    case QN_OP_LOGIC_OR:
      return a | b;
    case QN_OP_LOGIC_NOT:
      return a == 0;
    case QN_OP_EQ:
    case QN_OP_NE:
    case QN_OP_LT:
    case QN_OP_LE:
    case QN_OP_GT:
    case QN_OP_GE:
      return qn__int_compare(op, QN_DTYPE_I64, a, b);
    case QN_OP_SELECT:
      return a != 0 ? b : args[2];
    default:
      *is_exact &= qn__i64_op(op, a, b, &result) == QN__INT_EXACT;
      return result;
  }
}

uint32_t qn__gpu_op_arity(qn_op_t op) {
  // By the operator's rule for integers and bools.
#define OPERANDS_NUMERIC(count) count
#define OPERANDS_INTEGER(count) count
#define OPERANDS_BITWISE(count) count
#define OPERANDS_SHIFT(count) count
#define OPERANDS_COMPARE(count) count
#define OPERANDS_LOGIC(count) count
#define OPERANDS_SELECT(count) count
#define OPERANDS_FLOAT(count) 0
#define OPERANDS_TEST(count) 0
#define OPERANDS_SCALE(count) 0
#define OPERANDS_LANE(count) 0
#define OPERANDS_GROUP(count) 0
#define OPERANDS_AXES(count) 0
#define OPERANDS_TARGET(count) 0
  static const uint8_t operands[QN_OP_COUNT] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) [value] = OPERANDS_##rule(arity),
#include "quern/ops.inc"
#undef QN_OP
  };
  return (unsigned)op < QN_OP_COUNT ? operands[op] : 0;
}

// Applies an operator to the operands below `top`; returns the new top.
static inline int64_t* apply_step(const qn__gpu_op_t* step, int64_t* top, bool* is_exact) {
  uint32_t arity = qn__gpu_op_arity(step->op);
  assert(arity > 0 && arity <= 3);
  top -= arity;
  // Operators with fewer operands ignore the others.
  int64_t args[3] = {top[0], arity > 1 ? top[1] : 0, arity > 2 ? top[2] : 0};
  *top = apply(step->op, args, is_exact);
  return top + 1;
}

// The cases of applied operators start here, so that one jump selects the most frequent: sums,
// products and comparisons.
enum { APPLIED = 64 };

bool qn__gpu_eval(const qn__gpu_expr_t* expr, const uint64_t* words, const int64_t* locals,
                  int64_t* out_value) {
  int64_t stack[QN__GPU_MAX_EXPR_DEPTH + 2];
  int64_t* top = stack;  // the next free slot
  bool is_exact = true;
  stack[0] = 0;
  for (uint32_t i = 0; i < expr->op_count; i++) {
    const qn__gpu_op_t* step = &expr->ops[i];
    switch (step->kind == QN__GPU_APPLY ? APPLIED + (uint32_t)step->op : (uint32_t)step->kind) {
      case QN__GPU_CONST:
        *top++ = step->value;
        break;
      case QN__GPU_WORD:
        *top++ = step->dtype == QN_DTYPE_I64
                     ? qn__as_signed(words[step->value])
                     : qn__wrap_int(step->dtype, qn__as_signed(words[step->value]));
        break;
      case QN__GPU_LOCAL:
        *top++ = locals[step->value];
        break;
      case QN__GPU_WRAP:
        top[-1] = qn__wrap_int(step->dtype, top[-1]);
        break;
      case APPLIED + QN_OP_ADD:
        top--;
        is_exact &= !__builtin_add_overflow(top[-1], top[0], &top[-1]);
        break;
      case APPLIED + QN_OP_MUL:
        top--;
        is_exact &= !__builtin_mul_overflow(top[-1], top[0], &top[-1]);
        break;
      case APPLIED + QN_OP_MAX:
        top--;
        if (top[0] > top[-1]) top[-1] = top[0];
        break;
      case APPLIED + QN_OP_LE:
        top--;
        top[-1] = top[-1] <= top[0];
        break;
      case APPLIED + QN_OP_GE:
        top--;
        top[-1] = top[-1] >= top[0];
        break;
      case APPLIED + QN_OP_OR:
      case APPLIED + QN_OP_LOGIC_OR:
        top--;
        top[-1] |= top[0];
        break;
      case APPLIED + QN_OP_LOGIC_AND:
        top--;
        top[-1] &= top[0];
        break;
      default:
        top = apply_step(step, top, &is_exact);
        break;
    }
  }
  assert(top - stack == (expr->op_count ? 1 : 0));
  *out_value = stack[0];
  return is_exact;
}

// ---- counts

// Reports whether the mapping adds the operator around the program's bounds. An overflow there
// gives a wrong count. With any other operator the program wraps on purpose.
static bool is_counting(qn_op_t op) {
  switch (op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_MIN:
    case QN_OP_MAX:
    case QN_OP_FLOORDIV:
    case QN_OP_CEILDIV:
      return true;
    default:
      return false;
  }
}

// Reports whether the result of `op` is wrong, given which operands are.
static bool is_result_off(qn_op_t op, const int64_t* args, const bool* off, bool is_exact) {
  switch (op) {
    case QN_OP_SELECT:
      return off[0] || off[args[0] != 0 ? 1 : 2];
    case QN_OP_LOGIC_AND:
      return off[0] || (args[0] != 0 && off[1]);
    case QN_OP_LOGIC_OR:
      return off[0] || (args[0] == 0 && off[1]);
    case QN_OP_MUL:
      // A loop of 0 iterations makes the product 0, whatever the other factor.
      if ((args[0] == 0 && !off[0]) || (args[1] == 0 && !off[1])) return false;
      break;
    default:
      break;
  }
  return is_counting(op) && (off[0] || off[1] || !is_exact);
}

bool qn__gpu_eval_count(const qn__gpu_expr_t* expr, const uint64_t* words, const int64_t* locals,
                        int64_t* out_value) {
  if (qn__gpu_eval(expr, words, locals, out_value)) return true;
  int64_t stack[QN__GPU_MAX_EXPR_DEPTH + 2];
  bool off[QN__GPU_MAX_EXPR_DEPTH + 2];
  uint32_t depth = 0;
  off[0] = true;
  for (uint32_t i = 0; i < expr->op_count; i++) {
    const qn__gpu_op_t* step = &expr->ops[i];
    if (step->kind == QN__GPU_WRAP) {
      stack[depth - 1] = qn__wrap_int(step->dtype, stack[depth - 1]);
      off[depth - 1] = false;
      continue;
    }
    if (step->kind != QN__GPU_APPLY) {
      (void)qn__gpu_eval(&(qn__gpu_expr_t){1, step}, words, locals, &stack[depth]);
      off[depth++] = false;
      continue;
    }
    uint32_t arity = qn__gpu_op_arity(step->op);
    int64_t args[3] = {0, 0, 0};
    bool args_off[3] = {false, false, false};
    depth -= arity;
    memcpy(args, stack + depth, arity * sizeof *args);
    memcpy(args_off, off + depth, arity * sizeof *args_off);
    bool is_exact = true;
    stack[depth] = apply(step->op, args, &is_exact);
    off[depth] = is_result_off(step->op, args, args_off, is_exact);
    depth++;
  }
  assert(depth == 1);
  return !off[0];
}
