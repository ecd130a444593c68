// devices/gpu/eval.c: the value of a plan's expression, as the IR's i64 arithmetic has it, and
// whether any step left the range.
//
// Not here: checking that an expression is well formed (plan.c does, on decoding). Thread rule:
// pure. Read next: run.c.
#include "base/base.h"
#include "devices/gpu/plan.h"

// Extends the low bits of a word from an integer dtype or bool.
static int64_t extend(qn_dtype_t dtype, uint64_t bits) {
  switch (dtype) {
    case QN_DTYPE_BOOL:
      return bits != 0;
    case QN_DTYPE_I8:
      return (int8_t)bits;
    case QN_DTYPE_I16:
      return (int16_t)bits;
    case QN_DTYPE_I32:
      return (int32_t)bits;
    case QN_DTYPE_U8:
      return (uint8_t)bits;
    case QN_DTYPE_U16:
      return (uint16_t)bits;
    case QN_DTYPE_U32:
      return (uint32_t)bits;
    default:
      return (int64_t)bits;
  }
}

// Division by zero gives 0, and the smallest number by -1 itself; both are told.
static int64_t divide(qn_op_t op, int64_t a, int64_t b, bool* is_exact) {
  if (b == 0 || (a == INT64_MIN && b == -1)) {
    *is_exact = false;
    return b == 0 || op == QN_OP_FLOORMOD || op == QN_OP_TRUNCMOD ? 0 : a;
  }
  // A divisor and a dividend that are not negative, as in guards: all roundings follow at once.
  if (a >= 0 && b > 0) {
    uint64_t quotient = (uint64_t)a / (uint64_t)b;
    uint64_t rest = (uint64_t)a - quotient * (uint64_t)b;
    if (op == QN_OP_FLOORMOD || op == QN_OP_TRUNCMOD) return (int64_t)rest;
    return (int64_t)(quotient + (op == QN_OP_CEILDIV && rest != 0));
  }
  int64_t quotient = a / b, rest = a % b;
  // The true quotient is below the truncated one.
  bool is_below = rest != 0 && (rest < 0) != (b < 0);
  switch (op) {
    case QN_OP_FLOORDIV:
      return quotient - is_below;
    case QN_OP_FLOORMOD:
      return is_below ? rest + b : rest;
    case QN_OP_CEILDIV:
      return quotient + (rest != 0 && !is_below);
    case QN_OP_TRUNCDIV:
      return quotient;
    default:
      return rest;
  }
}

static int64_t apply(qn_op_t op, const int64_t* args, bool* is_exact) {
  int64_t a = args[0], b = args[1], result;
  switch (op) {
    case QN_OP_ADD:
      *is_exact &= !__builtin_add_overflow(a, b, &result);
      return result;
    case QN_OP_SUB:
      *is_exact &= !__builtin_sub_overflow(a, b, &result);
      return result;
    case QN_OP_MUL:
      *is_exact &= !__builtin_mul_overflow(a, b, &result);
      return result;
    case QN_OP_NEG:
      *is_exact &= !__builtin_sub_overflow(0, a, &result);
      return result;
    case QN_OP_ABS:
      if (a >= 0) return a;
      *is_exact &= !__builtin_sub_overflow(0, a, &result);
      return result;
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_CEILDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
      return divide(op, a, b, is_exact);
    case QN_OP_MIN:
      return a < b ? a : b;
    case QN_OP_MAX:
      return a > b ? a : b;
    case QN_OP_AND:
    case QN_OP_LOGIC_AND:
      return a & b;
    case QN_OP_OR:
    case QN_OP_LOGIC_OR:
      return a | b;
    case QN_OP_XOR:
      return a ^ b;
    case QN_OP_NOT:
      return ~a;
    case QN_OP_LOGIC_NOT:
      return a == 0;
    case QN_OP_POPCOUNT:
      return __builtin_popcountll((uint64_t)a);
    case QN_OP_CLZ:
      return a == 0 ? 64 : __builtin_clzll((uint64_t)a);
    case QN_OP_SHL:
      return (int64_t)((uint64_t)a << (b & 63));
    case QN_OP_SHR:
      return a >> (b & 63);
    case QN_OP_EQ:
      return a == b;
    case QN_OP_NE:
      return a != b;
    case QN_OP_LT:
      return a < b;
    case QN_OP_LE:
      return a <= b;
    case QN_OP_GT:
      return a > b;
    case QN_OP_GE:
      return a >= b;
    case QN_OP_SELECT:
      return a != 0 ? b : args[2];
    default:
      *is_exact = false;
      return 0;
  }
}

uint32_t qn__gpu_op_arity(qn_op_t op) {
  switch (op) {
    case QN_OP_NEG:
    case QN_OP_ABS:
    case QN_OP_NOT:
    case QN_OP_LOGIC_NOT:
    case QN_OP_POPCOUNT:
    case QN_OP_CLZ:
      return 1;
    case QN_OP_SELECT:
      return 3;
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_CEILDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
    case QN_OP_MIN:
    case QN_OP_MAX:
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
    case QN_OP_LOGIC_AND:
    case QN_OP_LOGIC_OR:
    case QN_OP_SHL:
    case QN_OP_SHR:
    case QN_OP_EQ:
    case QN_OP_NE:
    case QN_OP_LT:
    case QN_OP_LE:
    case QN_OP_GT:
    case QN_OP_GE:
      return 2;
    default:
      return 0;
  }
}

// Guards are sums, products and comparisons for the most part: those are told apart by one jump.
enum { APPLIED = 64 };

bool qn__gpu_eval(const qn__gpu_expr_t* expr, const uint64_t* words, const int64_t* locals,
                  int64_t* out_value) {
  int64_t stack[QN__GPU_MAX_EXPR_DEPTH + 2];
  int64_t* top = stack;  // where the next value goes
  bool is_exact = true;
  stack[0] = 0;
  for (uint32_t i = 0; i < expr->op_count; i++) {
    const qn__gpu_op_t* step = &expr->ops[i];
    switch (step->kind == QN__GPU_APPLY ? APPLIED + (uint32_t)step->op : (uint32_t)step->kind) {
      case QN__GPU_CONST:
        *top++ = step->value;
        break;
      case QN__GPU_WORD:
        *top++ = step->dtype == QN_DTYPE_I64 ? (int64_t)words[step->value]
                                             : extend(step->dtype, words[step->value]);
        break;
      case QN__GPU_LOCAL:
        *top++ = locals[step->value];
        break;
      case QN__GPU_WRAP:
        top[-1] = extend(step->dtype, (uint64_t)top[-1]);
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
      default: {
        uint32_t arity = qn__gpu_op_arity(step->op);
        // Operators that take fewer do not look at the others.
        int64_t args[3] = {0, 0, 0};
        top -= arity;
        memcpy(args, top, arity * sizeof *args);
        *top++ = apply(step->op, args, &is_exact);
        break;
      }
    }
  }
  *out_value = stack[0];
  return is_exact;
}

// ---- counts

// Operators that the mapping puts around the program's own bounds: what overflows there is a count
// that is wrong. Where any other operator stands, the program wrapped on purpose.
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

// Is the result of `op` off, with operands of which some are?
static bool is_result_off(qn_op_t op, const int64_t* args, const bool* off, bool is_exact) {
  switch (op) {
    case QN_OP_SELECT:
      return off[0] || off[args[0] != 0 ? 1 : 2];
    case QN_OP_LOGIC_AND:
      return off[0] || (args[0] != 0 && off[1]);
    case QN_OP_LOGIC_OR:
      return off[0] || (args[0] == 0 && off[1]);
    case QN_OP_MUL:
      // No iterations, however many others there would be.
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
      stack[depth - 1] = extend(step->dtype, (uint64_t)stack[depth - 1]);
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
  return !off[0];
}
