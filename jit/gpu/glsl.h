// SPDX-License-Identifier: Apache-2.0
// jit/gpu/glsl.h: declarations shared by the files of the GLSL dialect.
//
// glsl.c writes the text's beginning and the kernel's head and foot, glsl_memory.c accesses and
// atomics, glsl_lanes.c barriers, exchanges, exact arithmetic and failures.
#ifndef QUERN_JIT_GPU_GLSL_H_
#define QUERN_JIT_GPU_GLSL_H_

#include "jit/gpu/print_inner.h"

// p->dialect_bits: helpers of the dialect that the text uses. They precede main.
enum {
  QN__GLSL_ADD_F32 = 1 << 0,  // six in the order of ADD, SUB, MUL for f32, then f64
  QN__GLSL_SUB_F32 = 1 << 1,
  QN__GLSL_MUL_F32 = 1 << 2,
  QN__GLSL_ADD_F64 = 1 << 3,
  QN__GLSL_SUB_F64 = 1 << 4,
  QN__GLSL_MUL_F64 = 1 << 5,
};

// The storage of the elements of a PARAM, GLOBAL or SHARED buffer.
typedef struct qn__gpu_glsl_storage {
  const char* type;        // of an element of the GLSL array; NULL: the target has none
  uint32_t element_bytes;  // of `type`
  uint32_t bits_in_word;   // 8, 16: the array is of 32-bit words that hold several elements
  bool is_bits;            // the bits of a float, because it is changed by compare-and-swap
  const char* missing;     // the option of the target that `type` needs
} qn__gpu_glsl_storage_t;
qn__gpu_glsl_storage_t qn__gpu_glsl_storage(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer);

bool qn__glsl_has(const qn__gpu_printer_t* p, const char* option);
int64_t qn__glsl_number(const qn__gpu_printer_t* p, const char* option);
// Write the helper functions before main and after the buffers: elements that share a word, and
// exact arithmetic.
void qn__glsl_word_helpers(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, bool is_written);
void qn__glsl_exact_helpers(qn__gpu_printer_t* p);
// Writes the function that fills the error record. `record_at` and `tag_at` are indices of qn_push:
// the record's place and the tag.
void qn__glsl_fail_helper(qn__gpu_printer_t* p, uint32_t record_at, uint32_t tag_at);

// Refuses values of types that the target lacks.
void qn__glsl_check_types(qn__gpu_printer_t* p);

const char* qn__glsl_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index);
void qn__glsl_store(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index,
                    const char* value);
void qn__glsl_fence(qn__gpu_printer_t* p);
void qn__glsl_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                     const char* operand, const char* operand2, const char* old);
void qn__glsl_exchange(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* value,
                       const char* lane, bool is_narrow_lane, const char* result);
void qn__glsl_barrier(qn__gpu_printer_t* p);
void qn__glsl_fail(qn__gpu_printer_t* p, uint32_t site, const char* index, const char* extent,
                   bool is_wide);
const char* qn__glsl_arithmetic(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* a,
                                const char* b);

#endif  // QUERN_JIT_GPU_GLSL_H_
