// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_float.c: operators on floats.
//
// f16 and bf16 are floats that hold a representable value: each operation runs in f32, and its
// result is rounded once more. Operations are neither contracted nor reassociated (`arithmetic` of
// the dialect), except fused products in `fast` functions (print_expr.c).
#include "jit/gpu/print_inner.h"

const char* qn__kprint_round(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  if (dtype != QN_DTYPE_F16 && dtype != QN_DTYPE_BF16) return value;
  return qn__kprint_call(p, qn__kprint_text(p, "qn_roundto_%s", qn_dtype_text(dtype)), value);
}

// Returns whether representable operands give a representable result, so that no rounding is
// needed.
static bool is_exact(qn_op_t op) {
  switch (op) {
    case QN_OP_MIN:
    case QN_OP_MAX:
    case QN_OP_NEG:
    case QN_OP_ABS:
    case QN_OP_FLOOR:
    case QN_OP_CEIL:
    case QN_OP_ROUND:
    case QN_OP_TRUNC:
    case QN_OP_ROUNDEVEN:
    case QN_OP_FMOD:
    case QN_OP_COPYSIGN:
    case QN_OP_ISNAN:
    case QN_OP_ISINF:
    case QN_OP_ISFINITE:
      return true;
    default:
      return false;
  }
}

static const char* infix(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t compute, const char* a,
                         const char* b) {
  const char* zero = qn__kprint_float(p, compute, 0);
  if (p->dialect->is_glsl && op == QN_OP_MUL && (strcmp(a, zero) == 0 || strcmp(b, zero) == 0)) {
    // lavapipe computes a product with the constant 0 as 0, also if the other operand is NaN or
    // infinite. It does not do that for -0.
    const char* other = strcmp(a, zero) == 0 ? b : a;
    const char* negative = qn__kprint_float(p, compute, -0.0);
    return qn__kprint_text(p, "(-%s)", p->dialect->arithmetic(p, op, compute, negative, other));
  }
  if (p->dialect->arithmetic && !p->kernel->function->is_fast) {
    return p->dialect->arithmetic(p, op, compute, a, b);
  }
  return qn__kprint_text(p, "(%s %s %s)", a, qn__op_info(op)->text, b);
}

static const char* compute(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype,
                           const char* const* args) {
  if (op == QN_OP_ADD || op == QN_OP_SUB || op == QN_OP_MUL) {
    return infix(p, op, qn__gpu_compute_dtype(dtype), args[0], args[1]);
  }
  if (op == QN_OP_NEG) return qn__kprint_text(p, "(-%s)", args[0]);
  const char* helper = qn__gpu_prelude_op(op, dtype);
  if (QN_NEVER(!helper)) return args[0];
  const char* list = args[0];
  for (uint32_t i = 1; i < qn__op_info(op)->arity; ++i) {
    list = qn__kprint_text(p, "%s, %s", list, args[i]);
  }
  return qn__kprint_call(p, helper, list);
}

const char* qn__kprint_float_op(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype,
                                const char* const* args) {
  const char* value = compute(p, op, dtype, args);
  return is_exact(op) ? value : qn__kprint_round(p, dtype, value);
}
