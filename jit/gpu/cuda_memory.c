// SPDX-License-Identifier: Apache-2.0
// jit/gpu/cuda_memory.c: loads, stores and atomics in CUDA C.
//
// 1. Elements in memory have the size of their dtype, in shared memory too; f16 and bf16 are their
//    bits.
// 2. Atomics on integers of 32 and 64 bits and additions to f32 and f64 are one instruction on
// every
//    supported architecture. The others compare and swap a word.
// 3. Atomic loads and stores are volatile, and ordered by a fence.
#include <assert.h>
#include <string.h>

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

static const char* value_of(qn__gpu_printer_t* p, const qn__gpu_swap_t* swap, const char* word) {
  qn_dtype_t dtype = swap->buffer->dtype;
  if (!swap->shift) {
    return qn__kprint_text(p, dtype == QN_DTYPE_F64 ? "QN_F64_FROM(%s)" : "QN_F32_FROM(%s)", word);
  }
  const char* element =
      qn__kprint_text(p, "(%s)(%s >> %s)", qn__cuda_memory_type(dtype), word, swap->shift);
  return qn__cuda_from_memory(p, dtype, element);
}

static const char* word_with(qn__gpu_printer_t* p, const qn__gpu_swap_t* swap, const char* word,
                             const char* value) {
  qn_dtype_t dtype = swap->buffer->dtype;
  if (!swap->shift) {
    return qn__kprint_text(p, dtype == QN_DTYPE_F64 ? "QN_F64_BITS(%s)" : "QN_F32_BITS(%s)", value);
  }
  uint32_t mask = (1U << qn__dtype_bits(dtype)) - 1;
  return qn__kprint_text(p, "(%s & ~(0x%xu << %s)) | (uint(%s) & 0x%xu) << %s", word, mask,
                         swap->shift, qn__cuda_to_memory(p, dtype, value), mask, swap->shift);
}

// Prints an atomic that is no instruction.
static void swap_in_loop(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* address,
                         const char* operand, const char* operand2, const char* old) {
  const qn__ir_buffer_t* buffer = qn__buf_root(stmt->atomic.buffer);
  bool is_wide = qn__dtype_bits(buffer->dtype) == 64, is_part = qn__dtype_bits(buffer->dtype) < 32;
  const char* type = is_wide ? "qn_u64" : "uint";
  const char* shift = NULL;
  if (is_part) {
    const char* bytes = qn__kprint_name(p, "qn_u64", qn__kprint_text(p, "(qn_u64)(%s)", address));
    shift = qn__kprint_name(p, "uint", qn__kprint_text(p, "uint(%s & 3) * 8u", bytes));
    address = qn__kprint_text(p, "%s & ~qn_u64(3)", bytes);
  }
  const char* word = qn__kprint_temp(p);
  qn__kprint_line(p, "%s* const %s = (%s*)(%s);", type, word, type, address);
  const qn__gpu_swap_t swap = {
      .word_type = type,
      .word = word,
      .function = "atomicCAS",
      .first = qn__kprint_text(p, "*(volatile %s*)%s", type, word),
      .shift = shift,
      .value_of = value_of,
      .word_with = word_with,
      .buffer = buffer,
  };
  qn__kprint_swap_loop(p, stmt, &swap, operand, operand2, old);
}

static void print_access(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* address,
                         const char* operand, const char* old) {
  qn_dtype_t dtype = stmt->atomic.buffer->dtype;
  const char* element =
      qn__kprint_text(p, "*(volatile %s*)(%s)", qn__cuda_memory_type(dtype), address);
  if (stmt->atomic.op == QN_ATOMIC_STORE) {
    qn__kprint_line(p, "__threadfence();");
    qn__kprint_line(p, "%s = %s;", element, qn__cuda_to_memory(p, dtype, operand));
    return;
  }
  if (old) {
    qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(dtype, false), old,
                    qn__cuda_from_memory(p, dtype, element));
  }
  qn__kprint_line(p, "__threadfence();");
}

// Returns the type that an instruction takes for elements of the dtype. NULL: none is one.
static const char* instruction_type(qn_atomic_op_t op, qn_dtype_t dtype) {
  bool is_order = op == QN_ATOMIC_MIN || op == QN_ATOMIC_MAX;
  if (qn__dtype_bits(dtype) < 32 || (is_order && qn__dtype_is_float(dtype))) return NULL;
  // CUDA has signed 64-bit atomics for minima and maxima only, and none that exchanges doubles.
  if (dtype == QN_DTYPE_I64 && !is_order) return "qn_u64";
  return qn__kprint_type(dtype, false);
}

void qn__cuda_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                     const char* operand, const char* operand2, const char* old) {
  const qn__ir_buffer_t* root = qn__buf_root(stmt->atomic.buffer);
  qn_dtype_t dtype = root->dtype;
  qn_atomic_op_t op = stmt->atomic.op;
  const char* address = qn__kprint_text(p, "&%s[%s]", qn__kprint_buffer(p, root), index);
  if (op == QN_ATOMIC_LOAD || op == QN_ATOMIC_STORE) {
    print_access(p, stmt, address, operand, old);
    return;
  }
  const char* type = instruction_type(op, dtype);
  if (!type || (dtype == QN_DTYPE_F64 && op == QN_ATOMIC_EXCHANGE)) {
    swap_in_loop(p, stmt, address, operand, operand2, old);
    return;
  }
  assert(op < QN_COUNT_OF(functions));
  const char* own_type = qn__kprint_type(dtype, false);
  bool is_cast = strcmp(type, own_type) != 0;
  if (is_cast) {
    address = qn__kprint_text(p, "(%s*)(%s)", type, address);
    operand = qn__kprint_text(p, "%s(%s)", type, operand);
    if (operand2) operand2 = qn__kprint_text(p, "%s(%s)", type, operand2);
  }
  const char* call = qn__kprint_text(p, "%s(%s, %s%s%s)", functions[op], address, operand,
                                     operand2 ? ", " : "", operand2 ? operand2 : "");
  if (old) {
    if (is_cast) call = qn__kprint_text(p, "%s(%s)", own_type, call);
    qn__kprint_line(p, "const %s %s = %s;", own_type, old, call);
  } else {
    qn__kprint_line(p, "%s;", call);
  }
}
