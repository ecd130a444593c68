// jit/gpu/cuda_memory.c: loads, stores and atomics in CUDA C.
//
// Elements in memory have the size of their dtype, in shared memory too; f16 and bf16 are their
// bits. The verifier allows atomics on i32, u32, i64 and u64, and additions to f32 and f64. Each is
// one instruction on every supported architecture.
#include <assert.h>

#include "jit/gpu/cuda.h"

const char* qn__cuda_memory_type(qn_dtype_t dtype) {
  bool is_signed = qn__dtype_is_signed(dtype);
  switch (qn__dtype_bits(dtype)) {
    case 8:
      return is_signed ? "signed char" : "unsigned char";
    case 16:
      return is_signed ? "short" : "unsigned short";
    default:
      return qn__kprint_type(dtype, false);
  }
}

const char* qn__cuda_from_memory(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* element) {
  if (qn__dtype_bits(dtype) > 16) return element;
  if (dtype == QN_DTYPE_BOOL) return qn__kprint_text(p, "(%s != 0)", element);
  if (qn__dtype_is_float(dtype)) {
    return qn__kprint_convert(p, QN_DTYPE_F32, dtype, qn__kprint_text(p, "uint(%s)", element));
  }
  return qn__kprint_text(p, "%s(%s)", qn__kprint_type(dtype, false), element);
}

const char* qn__cuda_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index) {
  const char* element = qn__kprint_text(p, "%s[%s]", qn__kprint_buffer(p, buffer), index);
  return qn__cuda_from_memory(p, buffer->dtype, element);
}

const char* qn__cuda_to_memory(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  if (qn__dtype_bits(dtype) > 16) return value;
  if (qn__dtype_is_float(dtype)) value = qn__kprint_convert(p, dtype, QN_DTYPE_F32, value);
  return qn__kprint_text(p, "(%s)(%s)", qn__cuda_memory_type(dtype), value);
}

void qn__cuda_store(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index,
                    const char* value) {
  qn__kprint_line(p, "%s[%s] = %s;", qn__kprint_buffer(p, buffer), index,
                  qn__cuda_to_memory(p, buffer->dtype, value));
}

// ---- atomics

static const char* const functions[] = {
    [QN_ATOMIC_ADD] = "atomicAdd",       [QN_ATOMIC_MIN] = "atomicMin",
    [QN_ATOMIC_MAX] = "atomicMax",       [QN_ATOMIC_AND] = "atomicAnd",
    [QN_ATOMIC_OR] = "atomicOr",         [QN_ATOMIC_XOR] = "atomicXor",
    [QN_ATOMIC_EXCHANGE] = "atomicExch", [QN_ATOMIC_CAS] = "atomicCAS",
};

void qn__cuda_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                     const char* operand, const char* operand2, const char* old) {
  const qn__ir_buffer_t* root = qn__buf_root(stmt->atomic.buffer);
  qn_dtype_t dtype = root->dtype;
  assert(qn__dtype_bits(dtype) >= 32 && stmt->atomic.op < QN_COUNT_OF(functions));
  const char* address = qn__kprint_text(p, "&%s[%s]", qn__kprint_buffer(p, root), index);
  // CUDA has signed 64-bit atomics for minima and maxima only.
  bool is_order = stmt->atomic.op == QN_ATOMIC_MIN || stmt->atomic.op == QN_ATOMIC_MAX;
  bool as_unsigned = dtype == QN_DTYPE_I64 && !is_order;
  if (as_unsigned) {
    address = qn__kprint_text(p, "(qn_u64*)(%s)", address);
    operand = qn__kprint_text(p, "qn_u64(%s)", operand);
    if (operand2) operand2 = qn__kprint_text(p, "qn_u64(%s)", operand2);
  }
  const char* call = qn__kprint_text(p, "%s(%s, %s%s%s)", functions[stmt->atomic.op], address,
                                     operand, operand2 ? ", " : "", operand2 ? operand2 : "");
  if (old) {
    if (as_unsigned) call = qn__kprint_text(p, "qn_i64(%s)", call);
    qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(dtype, false), old, call);
  } else {
    qn__kprint_line(p, "%s;", call);
  }
}
