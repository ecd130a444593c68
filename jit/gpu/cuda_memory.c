// jit/gpu/cuda_memory.c: loads, stores and atomics in CUDA C.
//
// Elements in memory have the size of their dtype, in shared memory too; f16 and bf16 are their
// bits. The verifier allows atomics on i32, u32, i64 and u64, and additions to f32 and f64. Each is
// one instruction on every supported architecture.
#include "jit/gpu/cuda.h"

const char* qn__cuda_memory_type(qn_dtype_t dtype) {
  switch (dtype) {
    case QN_DTYPE_I8:
      return "signed char";
    case QN_DTYPE_BOOL:
    case QN_DTYPE_U8:
      return "unsigned char";
    case QN_DTYPE_I16:
      return "short";
    case QN_DTYPE_U16:
    case QN_DTYPE_F16:
    case QN_DTYPE_BF16:
      return "unsigned short";
    default:
      return qn__kprint_type(dtype, false);
  }
}

const char* qn__cuda_from_memory(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* element) {
  switch (dtype) {
    case QN_DTYPE_BOOL:
      return qn__kprint_text(p, "(%s != 0)", element);
    case QN_DTYPE_I8:
    case QN_DTYPE_I16:
      return qn__kprint_text(p, "int(%s)", element);
    case QN_DTYPE_U8:
    case QN_DTYPE_U16:
      return qn__kprint_text(p, "uint(%s)", element);
    case QN_DTYPE_F16:
      return qn__kprint_text(p, "%s(uint(%s))", qn__kprint_use(p, "qn_f32_from_f16"), element);
    case QN_DTYPE_BF16:
      return qn__kprint_text(p, "%s(uint(%s))", qn__kprint_use(p, "qn_f32_from_bf16"), element);
    default:
      return element;
  }
}

const char* qn__cuda_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index) {
  const char* element = qn__kprint_text(p, "%s[%s]", qn__kprint_buffer(p, buffer), index);
  return qn__cuda_from_memory(p, buffer->dtype, element);
}

const char* qn__cuda_to_memory(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  switch (dtype) {
    case QN_DTYPE_BOOL:
    case QN_DTYPE_I8:
    case QN_DTYPE_I16:
    case QN_DTYPE_U8:
    case QN_DTYPE_U16:
      return qn__kprint_text(p, "(%s)(%s)", qn__cuda_memory_type(dtype), value);
    case QN_DTYPE_F16:
      return qn__kprint_text(p, "(unsigned short)(%s(%s))", qn__kprint_use(p, "qn_f16_from_f32"),
                             value);
    case QN_DTYPE_BF16:
      return qn__kprint_text(p, "(unsigned short)(%s(%s))", qn__kprint_use(p, "qn_bf16_from_f32"),
                             value);
    default:
      return value;
  }
}

void qn__cuda_store(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index,
                    const char* value) {
  qn__kprint_line(p, "%s[%s] = %s;", qn__kprint_buffer(p, buffer), index,
                  qn__cuda_to_memory(p, buffer->dtype, value));
}

// ---- atomics

static const char* atomic_function(qn_atomic_op_t op) {
  switch (op) {
    case QN_ATOMIC_ADD:
      return "atomicAdd";
    case QN_ATOMIC_MIN:
      return "atomicMin";
    case QN_ATOMIC_MAX:
      return "atomicMax";
    case QN_ATOMIC_AND:
      return "atomicAnd";
    case QN_ATOMIC_OR:
      return "atomicOr";
    case QN_ATOMIC_XOR:
      return "atomicXor";
    case QN_ATOMIC_EXCHANGE:
      return "atomicExch";
    default:
      return "atomicCAS";
  }
}

bool qn__cuda_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                     const char* operand, const char* operand2, const char* old) {
  const qn__ir_buffer_t* root = qn__buf_root(stmt->atomic.buffer);
  qn_dtype_t dtype = root->dtype;
  const char* address = qn__kprint_text(p, "&%s[%s]", qn__kprint_buffer(p, root), index);
  // CUDA has signed 64-bit atomics for minima and maxima only.
  bool is_order = stmt->atomic.op == QN_ATOMIC_MIN || stmt->atomic.op == QN_ATOMIC_MAX;
  bool as_unsigned = dtype == QN_DTYPE_I64 && !is_order;
  if (as_unsigned) {
    address = qn__kprint_text(p, "(qn_u64*)(%s)", address);
    operand = qn__kprint_text(p, "qn_u64(%s)", operand);
    if (operand2) operand2 = qn__kprint_text(p, "qn_u64(%s)", operand2);
  }
  const char* call = qn__kprint_text(p, "%s(%s, %s%s%s)", atomic_function(stmt->atomic.op), address,
                                     operand, operand2 ? ", " : "", operand2 ? operand2 : "");
  if (old) {
    if (as_unsigned) call = qn__kprint_text(p, "qn_i64(%s)", call);
    qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(dtype, false), old, call);
  } else {
    qn__kprint_line(p, "%s;", call);
  }
  return true;
}
