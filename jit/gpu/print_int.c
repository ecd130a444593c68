// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_int.c: operators on integers.
//
// 1. i8 and i16 are computed in int, u8 and u16 in uint. A result that may exceed its width is cut.
// 2. Sums, differences and products of signed numbers wrap. In C that is undefined, so a whole tree
//    of them is computed in uint (qn__kprint_ring), and the result is converted to int.
// 3. A narrow i64 (program.h) is an int. Sums, differences, products, bitwise operators and left
//    shifts are right in 32 bits if only their low 32 bits count. Other operators run in 32 bits if
//    their operands are narrow too. Otherwise they run in 64 bits, and the result is cut.
// 4. On a GLSL target without 64-bit integers all operands are narrow (glsl_check.c). Operators
//    that need 64 bits elsewhere (shifts by up to 63, bit counts) have 32-bit forms there.
#include <assert.h>

#include "jit/gpu/print_inner.h"

const char* qn__kprint_wrap(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  switch (dtype) {
    case QN_DTYPE_I8:
      return qn__kprint_text(p, "(int(uint(%s) << 24) >> 24)", qn__kprint_bare(p, value));
    case QN_DTYPE_I16:
      return qn__kprint_text(p, "(int(uint(%s) << 16) >> 16)", qn__kprint_bare(p, value));
    case QN_DTYPE_I4:
    case QN_DTYPE_U4:
    case QN_DTYPE_F4E2M1FN:
      return qn__kprint_text(p, "(%s & 0xfu)", value);
    case QN_DTYPE_U8:
    case QN_DTYPE_F8E4M3FN:
    case QN_DTYPE_F8E5M2:
      return qn__kprint_text(p, "(%s & 0xffu)", value);
    case QN_DTYPE_U16:
      return qn__kprint_text(p, "(%s & 0xffffu)", value);
    default:
      return value;
  }
}

// ---- sums, differences, products

static bool is_ring_op(qn_op_t op) {
  return op == QN_OP_ADD || op == QN_OP_SUB || op == QN_OP_MUL || op == QN_OP_NEG;
}

// Returns the ring type: int or qn_i64 if they wrap in the language, else uint or qn_u64.
static const char* ring_type(const qn__gpu_printer_t* p, bool is_narrow) {
  if (p->dialect->wraps_signed) return is_narrow ? "int" : "qn_i64";
  return is_narrow ? "uint" : "qn_u64";
}

static const char* ring_literal(qn__gpu_printer_t* p, bool is_narrow, int64_t value) {
  if (p->dialect->wraps_signed) return qn__kprint_int(p, QN_DTYPE_I64, is_narrow, value);
  return qn__kprint_int(p, is_narrow ? QN_DTYPE_U32 : QN_DTYPE_U64, false, value);
}

static const char* ring_op(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, bool is_narrow) {
  const char* a = qn__kprint_ring(p, expr->args[0], is_narrow);
  if (expr->op == QN_OP_NEG)
    return qn__kprint_text(p, "(%s - %s)", ring_literal(p, is_narrow, 0), a);
  const qn__ir_expr_t* right = expr->args[1];
  // x + -1 reads better as x - 1.
  bool is_negative = right->kind == QN__EXPR_INT && right->int_value < 0 &&
                     right->int_value > INT32_MIN && expr->op != QN_OP_MUL;
  const char* b = is_negative ? ring_literal(p, is_narrow, -right->int_value)
                              : qn__kprint_ring(p, right, is_narrow);
  bool is_sum = (expr->op == QN_OP_ADD) != is_negative;
  const char* sign = expr->op == QN_OP_MUL ? "*" : is_sum ? "+" : "-";
  return qn__kprint_text(p, "(%s %s %s)", a, sign, b);
}

const char* qn__kprint_ring(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, bool is_narrow) {
  if (expr->kind == QN__EXPR_INT) return ring_literal(p, is_narrow, expr->int_value);
  // Only a part of the same printed width joins the tree. Any other part is computed in its own
  // width and then converted.
  bool is_whole = expr->dtype == QN_DTYPE_I32
                      ? is_narrow
                      : expr->dtype == QN_DTYPE_I64 && qn__kprint_is_narrow(p, expr) == is_narrow;
  if (expr->kind == QN__EXPR_OP && is_whole && is_ring_op(expr->op)) {
    return ring_op(p, expr, is_narrow);
  }
  const char* value = qn__kprint_i64(p, expr, is_narrow);
  if (p->dialect->wraps_signed) return value;
  return qn__kprint_text(p, "%s(%s)", ring_type(p, is_narrow), qn__kprint_bare(p, value));
}

const char* qn__kprint_unring(qn__gpu_printer_t* p, const char* text, bool is_narrow) {
  if (p->dialect->wraps_signed) return text;
  return qn__kprint_text(p, is_narrow ? "int(%s)" : "qn_i64(%s)", qn__kprint_bare(p, text));
}

// ---- division

static bool is_extent(const qn__gpu_printer_t* p, const qn__ir_var_t* symbol) {
  const qn__ir_func_t* function = p->kernel->function;
  for (size_t i = 0; i < function->param_count; ++i) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    for (uint32_t dim = 0; buffer && dim < buffer->rank; ++dim) {
      const qn__ir_expr_t* extent = buffer->shape[dim];
      if (extent->kind == QN__EXPR_VAR && extent->var == symbol) return true;
    }
  }
  return false;
}

bool qn__kprint_is_nonnegative(const qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  switch (qn__dtype_class(expr->dtype)) {
    case QN__CLASS_UNSIGNED:
    case QN__CLASS_BOOL:
      return true;
    default:
      break;
  }
  switch (expr->kind) {
    case QN__EXPR_INT:
      return expr->int_value >= 0;
    case QN__EXPR_VAR:
      if (expr->var->kind == QN__VAR_SYMBOL) return is_extent(p, expr->var);
      return expr->var->id < p->var_count && p->is_nonnegative[expr->var->id];
    case QN__EXPR_CAST:
      return !qn__dtype_is_float(expr->args[0]->dtype) &&
             qn__dtype_bits(expr->args[0]->dtype) < qn__dtype_bits(expr->dtype) &&
             qn__kprint_is_nonnegative(p, expr->args[0]);
    case QN__EXPR_OP:
      break;
    default:
      return false;
  }
  switch (expr->op) {
    case QN_OP_ADD:
    case QN_OP_MUL:
      // A narrow sum or product did not wrap where its value counts (program.h); a wide one may.
      if (!qn__kprint_is_narrow(p, expr)) return false;
      return qn__kprint_is_nonnegative(p, expr->args[0]) &&
             qn__kprint_is_nonnegative(p, expr->args[1]);
    case QN_OP_FLOORDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_CEILDIV:
    case QN_OP_TRUNCMOD:
    case QN_OP_MIN:
      return qn__kprint_is_nonnegative(p, expr->args[0]) &&
             qn__kprint_is_nonnegative(p, expr->args[1]);
    case QN_OP_FLOORMOD:
      return qn__kprint_is_nonnegative(p, expr->args[1]);
    case QN_OP_MAX:
    case QN_OP_AND:
      return qn__kprint_is_nonnegative(p, expr->args[0]) ||
             qn__kprint_is_nonnegative(p, expr->args[1]);
    case QN_OP_SHR:
      return qn__kprint_is_nonnegative(p, expr->args[0]);
    default:
      return false;
  }
}

void qn__kprint_note_var(qn__gpu_printer_t* p, const qn__ir_var_t* var,
                         const qn__ir_expr_t* least) {
  if (var->id < p->var_count) p->is_nonnegative[var->id] = qn__kprint_is_nonnegative(p, least);
}

// Prints a division that rounds down, or its remainder, by a positive power of two.
static const char* divide_by_power(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t compute,
                                   const char* a, int64_t divisor) {
  assert(divisor > 0 && (divisor & (divisor - 1)) == 0);
  if (op == QN_OP_FLOORMOD) {
    return qn__kprint_text(p, "(%s & %s)", a, qn__kprint_int(p, compute, false, divisor - 1));
  }
  return qn__kprint_text(p, "(%s >> %d)", a, __builtin_ctzll((uint64_t)divisor));
}

static const char* print_division(qn__gpu_printer_t* p, const qn__ir_expr_t* expr,
                                  qn_dtype_t compute, const char* a, const char* b) {
  const qn__ir_expr_t* right = expr->args[1];
  if (p->program->is_checked && !(right->kind == QN__EXPR_INT && right->int_value != 0)) {
    b = qn__kprint_name(p, qn__kprint_type(compute, false), b);
    uint32_t site = qn__kprint_site(
        p, (qn_artifact_site_t){
               .kind = QN_SITE_DIVISION, .buffer_id = UINT32_MAX, .place = expr->loc.begin});
    qn__kprint_require(p, qn__kprint_text(p, "%s != %s", b, qn__kprint_int(p, compute, false, 0)),
                       site, NULL, NULL, false);
  }
  bool is_floor = expr->op == QN_OP_FLOORDIV || expr->op == QN_OP_FLOORMOD;
  if (right->kind == QN__EXPR_INT && right->int_value > 0 && is_floor &&
      (right->int_value & (right->int_value - 1)) == 0) {
    return divide_by_power(p, expr->op, compute, a, right->int_value);
  }
  // For a positive constant divisor the language's own division is right if it rounds as the
  // operator does. (In GLSL the remainder of a negative number is undefined.)
  bool is_mod = expr->op == QN_OP_FLOORMOD || expr->op == QN_OP_TRUNCMOD;
  bool is_truncated = expr->op == QN_OP_TRUNCDIV || expr->op == QN_OP_TRUNCMOD;
  bool is_left_nonnegative = qn__kprint_is_nonnegative(p, expr->args[0]);
  bool is_plain = right->kind == QN__EXPR_INT && right->int_value > 0 &&
                  (is_left_nonnegative || (is_truncated && !(is_mod && p->dialect->is_glsl))) &&
                  expr->op != QN_OP_CEILDIV;
  if (is_plain) return qn__kprint_text(p, "(%s %s %s)", a, is_mod ? "%" : "/", b);
  // Operands that are not negative use the unsigned helper, which has fewer corrections.
  bool is_signed = compute == QN_DTYPE_I32 || compute == QN_DTYPE_I64;
  bool is_unsigned = is_signed && is_left_nonnegative && qn__kprint_is_nonnegative(p, right);
  qn_dtype_t by = !is_unsigned ? compute : compute == QN_DTYPE_I32 ? QN_DTYPE_U32 : QN_DTYPE_U64;
  const char* helper = qn__gpu_prelude_op(expr->op, by);
  if (QN_NEVER(!helper)) return a;
  (void)qn__kprint_use(p, helper);
  if (!is_unsigned) return qn__kprint_text(p, "%s(%s, %s)", helper, a, b);
  const char* type = qn__kprint_type(compute, false);
  const char* to = qn__kprint_type(by, false);
  return qn__kprint_text(p, "%s(%s(%s(%s), %s(%s)))", type, helper, to, qn__kprint_bare(p, a), to,
                         qn__kprint_bare(p, b));
}

// ---- the rest

static bool has_32_bits_alone(const qn__gpu_printer_t* p) {
  return p->dialect->is_glsl && !p->options->has_int64;
}

// Returns whether this is an operator on i64 for a target without 64-bit integers.
static bool is_confined(const qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  return expr->dtype == QN_DTYPE_I64 && has_32_bits_alone(p);
}

static const char* print_shift(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t compute,
                               const char* a) {
  const qn__ir_expr_t* right = expr->args[1];
  uint32_t bits = qn__dtype_bits(expr->dtype);
  bool is_left = expr->op == QN_OP_SHL;
  if (right->kind == QN__EXPR_INT) {
    uint32_t count = (uint32_t)right->int_value & (bits - 1);
    if (is_confined(p, expr) && !is_left && count > 31) count = 31;  // gives the sign
    if (qn__dtype_bits(compute) < bits && count > 31) return is_left ? "0" : NULL;
    assert(count < qn__dtype_bits(compute));
    bool is_signed = qn__dtype_class(compute) == QN__CLASS_SIGNED;
    if (is_left && is_signed && !p->dialect->wraps_signed) {
      bool is_wide = compute == QN_DTYPE_I64;
      return qn__kprint_text(p, "%s(%s(%s) << %u)", is_wide ? "qn_i64" : "int",
                             is_wide ? "qn_u64" : "uint", a, count);
    }
    return qn__kprint_text(p, "(%s %s %u)", a, is_left ? "<<" : ">>", count);
  }
  if (is_confined(p, expr)) {
    const char* helper = qn__kprint_use(p, is_left ? "qn_narrow_shl" : "qn_narrow_shr");
    return qn__kprint_text(p, "%s(%s, %s)", helper, a, qn__kprint_i64(p, right, true));
  }
  // The count may exceed 31, so the shift needs 64 bits.
  if (qn__dtype_bits(compute) < bits && bits == 64) return NULL;
  const char* count = qn__kprint_expr(p, right);
  if (expr->dtype == QN_DTYPE_I64) count = qn__kprint_i64(p, right, false);
  if (bits < 32) {
    bool is_signed = qn__dtype_class(compute) == QN__CLASS_SIGNED;
    count = qn__kprint_text(p, is_signed ? "(%s & %u)" : "(%s & %uu)", count, bits - 1);
  }
  const char* helper = qn__gpu_prelude_op(expr->op, compute);
  if (QN_NEVER(!helper)) return a;
  return qn__kprint_text(p, "%s(%s, %s)", qn__kprint_use(p, helper), a, count);
}

static const char* print_count(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t compute,
                               const char* a) {
  uint32_t bits = qn__dtype_bits(expr->dtype);
  if (is_confined(p, expr)) {
    const char* narrow = expr->op == QN_OP_POPCOUNT ? "qn_narrow_popcount"
                         : expr->op == QN_OP_CLZ    ? "qn_narrow_clz"
                                                    : "qn_narrow_ctz";
    return qn__kprint_text(p, "%s(%s)", qn__kprint_use(p, narrow), a);
  }
  const char* helper = qn__gpu_prelude_op(expr->op, compute);
  if (QN_NEVER(!helper)) return a;
  (void)qn__kprint_use(p, helper);
  if (bits >= 32) return qn__kprint_text(p, "%s(%s)", helper, a);
  bool is_signed = qn__dtype_class(compute) == QN__CLASS_SIGNED;
  const char* suffix = is_signed ? "" : "u";
  if (expr->op == QN_OP_CTZ) {  // the bit after the last one ends the count for 0
    return qn__kprint_text(p, "%s(%s | 0x%x%s)", helper, a, 1U << bits, suffix);
  }
  if (is_signed) a = qn__kprint_text(p, "(%s & 0x%x)", a, (1U << bits) - 1);
  if (expr->op == QN_OP_POPCOUNT) return qn__kprint_text(p, "%s(%s)", helper, a);
  return qn__kprint_text(p, "(%s(%s) - %u%s)", helper, a, 32 - bits, suffix);
}

static bool is_bit_count(qn_op_t op) {
  return op == QN_OP_POPCOUNT || op == QN_OP_CLZ || op == QN_OP_CTZ;
}

static const char* print_mulhi(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, qn_dtype_t compute,
                               const char* a, const char* b) {
  uint32_t bits = qn__dtype_bits(expr->dtype);
  if (bits < 32) return qn__kprint_text(p, "((%s * %s) >> %u)", a, b, bits);
  const char* helper =
      is_confined(p, expr) ? "qn_narrow_mulhi" : qn__gpu_prelude_op(expr->op, compute);
  if (QN_NEVER(!helper)) return a;
  return qn__kprint_text(p, "%s(%s, %s)", qn__kprint_use(p, helper), a, b);
}

static const char* print_rotation(qn__gpu_printer_t* p, const qn__ir_expr_t* expr,
                                  qn_dtype_t compute, const char* a, const char* b) {
  uint32_t bits = qn__dtype_bits(expr->dtype);
  if (bits < 32) {
    const char* helper = qn__kprint_use(p, bits == 8 ? "qn_rotl_8" : "qn_rotl_16");
    if (compute == QN_DTYPE_U32) return qn__kprint_text(p, "%s(%s, %s)", helper, a, b);
    return qn__kprint_text(p, "int(%s(uint(%s) & 0x%xu, uint(%s)))", helper, a, (1U << bits) - 1,
                           qn__kprint_bare(p, b));
  }
  const char* helper =
      is_confined(p, expr) ? "qn_narrow_rotl" : qn__gpu_prelude_op(expr->op, compute);
  if (QN_NEVER(!helper)) return a;
  return qn__kprint_text(p, "%s(%s, %s)", qn__kprint_use(p, helper), a, b);
}

const char* qn__kprint_int_binary(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype,
                                  bool is_narrow, const char* a, const char* b) {
  // Sums and products of 8 and 16 bits fit 32 bits.
  bool is_plain = qn__dtype_bits(dtype) < 32 && is_ring_op(op);
  const char* helper =
      is_plain ? NULL : qn__gpu_prelude_op(op, qn__kprint_compute(dtype, is_narrow));
  if (helper) return qn__kprint_call(p, helper, qn__kprint_text(p, "%s, %s", a, b));
  assert(qn__op_info(op)->arity == 2 && qn__op_info(op)->syntax == QN__SYNTAX_INFIX);
  return qn__kprint_text(p, "(%s %s %s)", a, qn__op_info(op)->text, b);
}

// Prints the operator in the type of `compute`; i64 operands are converted to its width. NULL: a
// shift that needs more bits.
static const char* print_computed(qn__gpu_printer_t* p, const qn__ir_expr_t* expr,
                                  qn_dtype_t compute) {
  bool is_i64 = expr->dtype == QN_DTYPE_I64;
  bool is_narrow = is_i64 && compute == QN_DTYPE_I32;
  assert(compute == qn__kprint_compute(expr->dtype, is_narrow));
  const qn__ir_expr_t* left = expr->args[0];
  const char* a = is_i64 ? qn__kprint_i64(p, left, is_narrow) : qn__kprint_expr(p, left);
  switch (expr->op) {
    case QN_OP_SHL:
    case QN_OP_SHR:
      return print_shift(p, expr, compute, a);
    case QN_OP_POPCOUNT:
    case QN_OP_CLZ:
    case QN_OP_CTZ:
      return print_count(p, expr, compute, a);
    case QN_OP_NOT:
      return qn__kprint_text(p, "(~%s)", a);
    case QN_OP_NEG:
      return qn__kprint_text(p, "(%s - %s)", qn__kprint_int(p, compute, false, 0), a);
    case QN_OP_ABS: {
      const char* helper = qn__gpu_prelude_op(QN_OP_ABS, compute);
      if (!helper) return a;  // unsigned
      return qn__kprint_call(p, helper, a);
    }
    default:
      break;
  }
  const qn__ir_expr_t* right = expr->args[1];
  const char* b = is_i64 ? qn__kprint_i64(p, right, is_narrow) : qn__kprint_expr(p, right);
  if (qn__op_is_division(expr->op)) return print_division(p, expr, compute, a, b);
  if (expr->op == QN_OP_MULHI) return print_mulhi(p, expr, compute, a, b);
  if (expr->op == QN_OP_ROTL) return print_rotation(p, expr, compute, a, b);
  return qn__kprint_int_binary(p, expr->op, expr->dtype, is_narrow, a, b);
}

// Returns whether a result computed in 32 bits may be outside of the dtype's range.
static bool may_leave(qn_op_t op, qn_dtype_t dtype) {
  switch (op) {
    case QN_OP_FLOORDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_CEILDIV:
    case QN_OP_ABS:
      return qn__dtype_class(dtype) == QN__CLASS_SIGNED;
    case QN_OP_NOT:
      return qn__dtype_class(dtype) == QN__CLASS_UNSIGNED;
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_NEG:
    case QN_OP_SHL:
    case QN_OP_ROTL:
      return true;
    default:
      return false;
  }
}

const char* qn__kprint_int_op(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  qn_dtype_t dtype = expr->dtype;
  assert(qn__dtype_is_int(dtype));
  bool is_narrow = qn__kprint_is_narrow(p, expr);
  if (is_ring_op(expr->op) && (dtype == QN_DTYPE_I32 || dtype == QN_DTYPE_I64)) {
    bool is_32_bits = dtype == QN_DTYPE_I32 || is_narrow;
    return qn__kprint_unring(p, ring_op(p, expr, is_32_bits), is_32_bits);
  }
  if (dtype == QN_DTYPE_I64) {
    bool can_be_narrow = is_narrow;
    // Without 64-bit integers all operands are narrow (glsl_check.c).
    if (is_narrow && !qn__gpu_is_low_bits_op(expr) && !has_32_bits_alone(p)) {
      bool needs_width =
          is_bit_count(expr->op) || expr->op == QN_OP_MULHI || expr->op == QN_OP_ROTL;
      const qn__ir_expr_t* right = qn__op_info(expr->op)->arity > 1 ? expr->args[1] : NULL;
      can_be_narrow = !needs_width && qn__kprint_is_narrow(p, expr->args[0]) &&
                      (!right || expr->op == QN_OP_SHR || qn__kprint_is_narrow(p, right));
    }
    if (can_be_narrow) {
      const char* narrow = print_computed(p, expr, QN_DTYPE_I32);
      if (narrow) return narrow;
    }
    return qn__kprint_adapt(p, print_computed(p, expr, QN_DTYPE_I64), false, is_narrow);
  }
  const char* value = print_computed(p, expr, qn__gpu_compute_dtype(dtype));
  return may_leave(expr->op, dtype) ? qn__kprint_wrap(p, dtype, value) : value;
}
