// jit/gpu/print_float.c: operators on floats.
//
// f16 and bf16 are floats that hold a representable value: each operation runs in f32, and its
// result is rounded once more. Operations are neither contracted nor reassociated (`arithmetic` of
// the dialect), except fused products in `fast` functions (print_expr.c).
#include "jit/gpu/print_inner.h"

const char* qn__kprint_round(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  if (dtype == QN_DTYPE_F16) {
    return qn__kprint_text(p, "%s(%s)", qn__kprint_use(p, "qn_roundto_f16"), value);
  }
  if (dtype == QN_DTYPE_BF16) {
    return qn__kprint_text(p, "%s(%s)", qn__kprint_use(p, "qn_roundto_bf16"), value);
  }
  return value;
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
  const char* sign = op == QN_OP_ADD ? "+" : op == QN_OP_SUB ? "-" : "*";
  return qn__kprint_text(p, "(%s %s %s)", a, sign, b);
}

static const char* compute(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype,
                           const char* const* args) {
  bool is_double = dtype == QN_DTYPE_F64;
  qn_dtype_t computed = is_double ? QN_DTYPE_F64 : QN_DTYPE_F32;
  switch (op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
      return infix(p, op, computed, args[0], args[1]);
    case QN_OP_NEG:
      return qn__kprint_text(p, "(-%s)", args[0]);
    default:
      break;
  }
  const char* helper = qn__gpu_prelude_op(op, dtype);
  if (QN_NEVER(!helper)) return args[0];
  (void)qn__kprint_use(p, helper);
  switch (qn__op_info(op)->arity) {
    case 1:
      return qn__kprint_text(p, "%s(%s)", helper, args[0]);
    case 2:
      return qn__kprint_text(p, "%s(%s, %s)", helper, args[0], args[1]);
    default:
      return qn__kprint_text(p, "%s(%s, %s, %s)", helper, args[0], args[1], args[2]);
  }
}

const char* qn__kprint_float_op(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype,
                                const char* const* args) {
  const char* value = compute(p, op, dtype, args);
  return is_exact(op) ? value : qn__kprint_round(p, dtype, value);
}
