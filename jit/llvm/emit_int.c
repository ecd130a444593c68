// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_int.c: emits integer operators on scalars or vectors, without traps or undefined
// results.
//
// A division by zero gives some number; the smallest integer divided by -1 gives itself. Shift
// counts are taken modulo the width. In checked builds a zero divisor fails first.
#include "jit/llvm/emit_inner.h"

typedef enum rounding { TRUNCATE, FLOOR, CEIL } rounding_t;

LLVMValueRef qn__emit_int_min_max(qn__llvm_emit_t* e, qn_dtype_t dtype, bool is_min, LLVMValueRef a,
                                  LLVMValueRef b) {
  const char* name = qn__llvm_is_signed(dtype) ? (is_min ? "llvm.smin" : "llvm.smax")
                                               : (is_min ? "llvm.umin" : "llvm.umax");
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef args[] = {a, b};
  return qn__llvm_intrinsic(e->fn->builder, name, &type, 1, args, 2);
}

// ------------------------------------------------------------------------------------ division

// Facts about a divisor at compile time.
typedef struct divisor {
  bool is_constant;
  int64_t constant;
  bool is_nonnegative;
} divisor_t;

static LLVMValueRef nonzero(qn__llvm_emit_t* e, LLVMValueRef value) {
  return LLVMBuildICmp(e->fn->builder, LLVMIntNE, value, LLVMConstNull(LLVMTypeOf(value)), "");
}

static LLVMValueRef divide_unsigned(qn__llvm_emit_t* e, bool is_mod, rounding_t rounding,
                                    divisor_t known, LLVMValueRef a, LLVMValueRef b) {
  LLVMBuilderRef builder = e->fn->builder;
  LLVMTypeRef type = LLVMTypeOf(a);
  if (!known.is_constant || known.constant == 0) {
    LLVMValueRef one = qn__llvm_int(type, 1);
    b = LLVMBuildSelect(builder, nonzero(e, b), b, one, "");
  }
  if (is_mod) return LLVMBuildURem(builder, a, b, "");
  LLVMValueRef quotient = LLVMBuildUDiv(builder, a, b, "");
  if (rounding != CEIL) return quotient;
  LLVMValueRef rest = LLVMBuildSub(builder, a, LLVMBuildMul(builder, quotient, b, ""), "");
  return LLVMBuildAdd(builder, quotient, LLVMBuildZExt(builder, nonzero(e, rest), type, ""), "");
}

// Emits a / b or a % b for a power of two.
static LLVMValueRef divide_by_power(qn__llvm_emit_t* e, bool is_mod, int64_t divisor,
                                    LLVMValueRef a) {
  LLVMTypeRef type = LLVMTypeOf(a);
  assert(divisor > 0 && (divisor & (divisor - 1)) == 0);
  if (is_mod) {
    return LLVMBuildAnd(e->fn->builder, a, qn__llvm_int(type, (uint64_t)divisor - 1), "");
  }
  uint64_t shift = (uint64_t)__builtin_ctzll((uint64_t)divisor);
  return LLVMBuildAShr(e->fn->builder, a, qn__llvm_int(type, shift), "");
}

// Emits ceil(a / b) for a power of two: the floor, and one if a bit is shifted out.
static LLVMValueRef divide_up_by_power(qn__llvm_emit_t* e, int64_t divisor, LLVMValueRef a) {
  LLVMBuilderRef builder = e->fn->builder;
  LLVMValueRef rest = divide_by_power(e, true, divisor, a);
  LLVMValueRef step = LLVMBuildZExt(builder, nonzero(e, rest), LLVMTypeOf(a), "");
  return LLVMBuildAdd(builder, divide_by_power(e, false, divisor, a), step, "");
}

static LLVMValueRef divide_signed(qn__llvm_emit_t* e, bool is_mod, rounding_t rounding,
                                  divisor_t known, bool is_dividend_nonnegative, LLVMValueRef a,
                                  LLVMValueRef b) {
  LLVMBuilderRef builder = e->fn->builder;
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef zero = LLVMConstNull(type);
  LLVMValueRef one = qn__llvm_int(type, 1);
  if (known.is_constant && known.constant > 0 && (known.constant & (known.constant - 1)) == 0) {
    if (rounding == FLOOR) return divide_by_power(e, is_mod, known.constant, a);
    if (rounding == CEIL) return divide_up_by_power(e, known.constant, a);
  }
  // Divides by 1 instead of by 0 or -1, which never traps.
  LLVMValueRef is_minus_one = NULL;
  LLVMValueRef safe = b;
  if (known.is_nonnegative) {
    if (!known.is_constant || known.constant == 0) {
      safe = LLVMBuildSelect(builder, nonzero(e, b), b, one, "");
    }
  } else if (!known.is_constant || known.constant == -1 || known.constant == 0) {
    is_minus_one = LLVMBuildICmp(builder, LLVMIntEQ, b, LLVMConstAllOnes(type), "");
    LLVMValueRef is_bad = LLVMBuildICmp(builder, LLVMIntULT, LLVMBuildAdd(builder, b, one, ""),
                                        qn__llvm_int(type, 2), "");
    safe = LLVMBuildSelect(builder, is_bad, one, b, "");
  }
  bool is_exactly_unsigned = is_dividend_nonnegative && known.is_nonnegative;
  LLVMValueRef quotient = is_exactly_unsigned ? LLVMBuildUDiv(builder, a, safe, "")
                                              : LLVMBuildSDiv(builder, a, safe, "");
  LLVMValueRef rest = LLVMBuildSub(builder, a, LLVMBuildMul(builder, quotient, safe, ""), "");
  LLVMValueRef result = is_mod ? rest : quotient;
  if (rounding != TRUNCATE && !(is_exactly_unsigned && rounding == FLOOR)) {
    // Truncation differs by one from floor or ceil if there is a remainder and the signs differ (or
    // agree, for ceil).
    LLVMValueRef signs = is_mod || rounding == FLOOR ? rest : a;
    LLVMValueRef are_mixed =
        LLVMBuildICmp(builder, LLVMIntSLT, LLVMBuildXor(builder, signs, safe, ""), zero, "");
    if (rounding == CEIL) are_mixed = LLVMBuildNot(builder, are_mixed, "");
    LLVMValueRef off = LLVMBuildAnd(builder, nonzero(e, rest), are_mixed, "");
    if (is_mod) {
      result = LLVMBuildAdd(builder, rest, LLVMBuildSelect(builder, off, safe, zero, ""), "");
    } else {
      LLVMValueRef step = LLVMBuildZExt(builder, off, type, "");
      result = rounding == CEIL ? LLVMBuildAdd(builder, quotient, step, "")
                                : LLVMBuildSub(builder, quotient, step, "");
    }
  }
  if (is_minus_one && !is_mod) {
    result = LLVMBuildSelect(builder, is_minus_one, LLVMBuildNeg(builder, a, ""), result, "");
  }
  return result;
}

static LLVMValueRef divide(qn__llvm_emit_t* e, const qn__ir_expr_t* expr, qn_dtype_t dtype,
                           LLVMValueRef a, LLVMValueRef b) {
  const qn__ir_expr_t* right = expr->args[1];
  divisor_t known = {.is_constant = right->kind == QN__EXPR_INT,
                     .is_nonnegative = qn__emit_is_nonnegative(right)};
  if (known.is_constant) known.constant = right->int_value;
  if (qn__emit_checks(e)) {
    LLVMValueRef ok = nonzero(e, b);
    uint32_t site = qn__emit_site(
        e, (qn_artifact_site_t){
               .kind = QN_SITE_DIVISION, .buffer_id = UINT32_MAX, .place = expr->loc.begin});
    qn__emit_require(e, ok, site, NULL, NULL);
  }
  bool is_mod = expr->op == QN_OP_FLOORMOD || expr->op == QN_OP_TRUNCMOD;
  rounding_t rounding = FLOOR;
  if (expr->op == QN_OP_TRUNCDIV || expr->op == QN_OP_TRUNCMOD) rounding = TRUNCATE;
  if (expr->op == QN_OP_CEILDIV) rounding = CEIL;
  if (!qn__llvm_is_signed(dtype)) return divide_unsigned(e, is_mod, rounding, known, a, b);
  return divide_signed(e, is_mod, rounding, known, qn__emit_is_nonnegative(expr->args[0]), a, b);
}

// ------------------------------------------------------------------------------------ the rest

// Emits the upper half of the product of twice the width.
static LLVMValueRef multiply_high(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef x,
                                  LLVMValueRef y) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = LLVMTypeOf(x);
  uint32_t bits = qn__dtype_bits(dtype);
  unsigned lanes = qn__llvm_lane_count(type);
  LLVMTypeRef wide = LLVMIntTypeInContext(LLVMGetTypeContext(type), 2 * bits);
  if (lanes > 0) wide = LLVMVectorType(wide, lanes);
  bool is_signed = qn__llvm_is_signed(dtype);
  LLVMValueRef product = LLVMBuildMul(b, LLVMBuildIntCast2(b, x, wide, is_signed, ""),
                                      LLVMBuildIntCast2(b, y, wide, is_signed, ""), "");
  LLVMValueRef high = LLVMBuildLShr(b, product, qn__llvm_int(wide, bits), "");
  return LLVMBuildTrunc(b, high, type, "");
}

LLVMValueRef qn__emit_int_op(qn__llvm_emit_t* e, const qn__ir_expr_t* expr, qn_dtype_t dtype,
                             LLVMValueRef* args) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = LLVMTypeOf(args[0]);
  switch (expr->op) {
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
    case QN_OP_CEILDIV:
      return divide(e, expr, dtype, args[0], args[1]);
    case QN_OP_MIN:
    case QN_OP_MAX:
      return qn__emit_int_min_max(e, dtype, expr->op == QN_OP_MIN, args[0], args[1]);
    case QN_OP_NEG:
      return LLVMBuildNeg(b, args[0], "");
    case QN_OP_ABS:
      // The smallest integer gives itself.
      return qn__llvm_is_signed(dtype) ? qn__llvm_total(b, "llvm.abs", args[0]) : args[0];
    case QN_OP_NOT:
      return LLVMBuildNot(b, args[0], "");
    case QN_OP_SHL:
    case QN_OP_SHR:
      args[1] = LLVMBuildAnd(b, args[1], qn__llvm_int(type, qn__dtype_bits(dtype) - 1), "");
      break;
    case QN_OP_POPCOUNT:
      return qn__llvm_intrinsic(b, "llvm.ctpop", &type, 1, args, 1);
    case QN_OP_CLZ:
      return qn__llvm_total(b, "llvm.ctlz", args[0]);
    case QN_OP_CTZ:
      return qn__llvm_total(b, "llvm.cttz", args[0]);
    case QN_OP_MULHI:
      return multiply_high(e, dtype, args[0], args[1]);
    case QN_OP_ROTL: {
      LLVMValueRef parts[] = {args[0], args[0], args[1]};
      return qn__llvm_intrinsic(b, "llvm.fshl", &type, 1, parts, 3);
    }
    default:
      break;
  }
  LLVMValueRef result = qn__llvm_binary(b, expr->op, dtype, args[0], args[1]);
  return QN_NEVER(!result) ? args[0] : result;
}
