// SPDX-License-Identifier: Apache-2.0
// jit/tvm_ffi/function.h: a function that tvm-ffi calls, and its code for each device.
//
// Read next: function.c.
#ifndef QUERN_JIT_TVM_FFI_FUNCTION_H_
#define QUERN_JIT_TVM_FFI_FUNCTION_H_

#include <stdatomic.h>

#include "base/base.h"
#include "quern/tvm_ffi.h"

typedef struct qn__tvm_code qn__tvm_code_t;
typedef struct qn__tvm_function {
  qn_tvm_ffi_source_t source;
  _Atomic(qn__tvm_code_t*) codes;  // the newest first; they stay as long as the function
} qn__tvm_function_t;

// Calls the function with values of tvm-ffi: its code for the device of the first tensor, on the
// current stream of tvm-ffi there. Returns 0, or -1 with a raised error.
int qn__tvm_call(qn__tvm_function_t* function, const qn_value_t* args, int32_t count,
                 qn_value_t* result);
// Releases the code. Not the function itself, nor its source.
void qn__tvm_function_deinit(qn__tvm_function_t* function);
// Raises the error of a status, which is consumed. Returns -1.
int qn__tvm_raise(qn_status_t status);

#endif  // QUERN_JIT_TVM_FFI_FUNCTION_H_
