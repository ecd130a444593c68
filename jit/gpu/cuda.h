// SPDX-License-Identifier: Apache-2.0
// jit/gpu/cuda.h: declarations shared by the files of the CUDA dialect.
#ifndef QUERN_JIT_GPU_CUDA_H_
#define QUERN_JIT_GPU_CUDA_H_

#include "jit/gpu/print_inner.h"

// Flags of p->dialect_bits: the features that a text uses.
enum {
  QN__CUDA_USES_RECORD = 1,
  QN__CUDA_USES_FAIL = 2,
  QN__CUDA_USES_LANES = 4,
  QN__CUDA_USES_WIDE = 8,
  QN__CUDA_USES_TENSOR = 16,
  QN__CUDA_USES_MULTIPLY = 32,  // and those above it: one for each instruction (cuda_tensor.c)
};

// Shared memory that a kernel may declare without asking the driver for more.
enum { QN__CUDA_STATIC_SHARED_BYTES = 48 * 1024 };

// cuda_memory.c
const char* qn__cuda_memory_type(qn_dtype_t dtype);
const char* qn__cuda_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index);
void qn__cuda_store(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index,
                    const char* value);
void qn__cuda_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                     const char* operand, const char* operand2, const char* old);
// Converts an element of memory to a value of the compute type.
const char* qn__cuda_from_memory(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* element);
// Converts a value of the compute type to an element of memory.
const char* qn__cuda_to_memory(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value);

// cuda_wide.c
extern const qn__gpu_dialect_wide_t qn__cuda_wide;
// Writes the helper functions of wide accesses.
void qn__cuda_wide_helpers(qn__gpu_printer_t* p);

// cuda_tensor.c
void qn__cuda_tensor(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor);
// Writes the helper functions of TENSOR statements.
void qn__cuda_tensor_helpers(qn__gpu_printer_t* p);

// cuda_lanes.c
void qn__cuda_exchange(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* value,
                       const char* lane, bool is_narrow_lane, const char* result);

#endif  // QUERN_JIT_GPU_CUDA_H_
