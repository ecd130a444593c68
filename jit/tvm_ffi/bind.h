// SPDX-License-Identifier: Apache-2.0
// jit/tvm_ffi/bind.h: the functions and structs of tvm-ffi's C ABI that quern uses, bound at run
// time.
//
// Declared here from the published ABI: nothing of tvm-ffi is included or linked. A value of
// tvm-ffi (TVMFFIAny) has the layout of qn_value_t.
#ifndef QUERN_JIT_TVM_FFI_BIND_H_
#define QUERN_JIT_TVM_FFI_BIND_H_

#include "base/base.h"
#include "quern/quern.h"

// Types of values beyond those of qn_value_type_t.
#define QN__TVM_RVALUE_REF 10  // the address of a pointer to an object
#define QN__TVM_TENSOR 70
#define QN__TVM_BIG_INT 78

// The head of every object.
typedef struct qn__tvm_object {
  uint64_t counts;
  int32_t type;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
} qn__tvm_object_t;

// An object of type TENSOR.
typedef struct qn__tvm_tensor {
  qn__tvm_object_t head;
  qn_tensor_t tensor;
} qn__tvm_tensor_t;

// An object of type BIG_INT: an integer that does not fit in int64_t, in two's complement, the
// least word first, in no more words than it needs.
typedef struct qn__tvm_big_int {
  qn__tvm_object_t head;
  size_t word_count;
  uint64_t words[];
} qn__tvm_big_int_t;

typedef struct qn__tvm_bytes {
  const char* data;
  size_t size;
} qn__tvm_bytes_t;

typedef struct qn__tvm_version {
  uint32_t major, minor, patch;
} qn__tvm_version_t;

// The type of functions that do not throw: 0, or -1 with a raised error.
typedef int (*qn__tvm_safe_call_t)(void* self, const void* args, int32_t count, void* result);

// QN__TVM_SYMBOL(member, symbol, result, parameters)
#define QN__TVM_SYMBOLS(QN__TVM_SYMBOL)                                                      \
  QN__TVM_SYMBOL(get_version, TVMFFIGetVersion, void, (qn__tvm_version_t * out))             \
  QN__TVM_SYMBOL(drop, TVMFFIObjectDecRef, int, (void* object))                              \
  QN__TVM_SYMBOL(create, TVMFFIFunctionCreate, int,                                          \
                 (void* self, qn__tvm_safe_call_t call, void (*deleter)(void*), void** out)) \
  QN__TVM_SYMBOL(set_global, TVMFFIFunctionSetGlobal, int,                                   \
                 (const qn__tvm_bytes_t* name, void* function, int replaces))                \
  QN__TVM_SYMBOL(raise, TVMFFIErrorSetRaisedFromCStr, void,                                  \
                 (const char* kind, const char* message))                                    \
  QN__TVM_SYMBOL(take_raised, TVMFFIErrorMoveFromRaised, void, (void** out))                 \
  QN__TVM_SYMBOL(get_stream, TVMFFIEnvGetStream, void*, (int32_t device_type, int32_t device_id))

typedef struct qn__tvm_ffi {
#define QN__TVM_MEMBER(member, symbol, result, parameters) result(*member) parameters;
  QN__TVM_SYMBOLS(QN__TVM_MEMBER)
#undef QN__TVM_MEMBER
} qn__tvm_ffi_t;

// Gives the functions of the tvm-ffi that is in this process, which then stays. Errors: UNAVAILABLE
// (there is none), INCOMPATIBLE (its version, or a function is missing).
qn_status_t qn__tvm_bind(const qn__tvm_ffi_t** out_ffi);

#endif  // QUERN_JIT_TVM_FFI_BIND_H_
