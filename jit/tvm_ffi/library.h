// SPDX-License-Identifier: Apache-2.0
// jit/tvm_ffi/library.h: what the writer of libraries (library_write.c) and their calls (library.c)
// share: the description that lies in a library.
//
// The loader maps it. Distances are in bytes. A change of anything here needs another version.
#ifndef QUERN_JIT_TVM_FFI_LIBRARY_H_
#define QUERN_JIT_TVM_FFI_LIBRARY_H_

#include <stdatomic.h>

#include "base/base.h"

#define QN__TVM_LIBRARY_VERSION 1u
#define QN__TVM_LIBRARY_MAGIC "quernTVM"
// The prefix of functions that tvm-ffi looks for.
#define QN__TVM_PREFIX "__tvm_ffi_"

// The description of a library. After it come those of the functions, and the bytes that it names.
// Every version begins with `magic` and `version`.
typedef struct qn__tvm_library {
  char magic[8];
  uint32_t version;
  uint32_t function_count;
  uint32_t target_count;
  uint32_t tier;
  uint32_t is_checked;
  uint32_t padding;
  uint64_t size;                            // of the description with all that it names
  int64_t state_distance;                   // from here to the state: a word that begins as 0
  uint64_t module_distance, module_size;    // canonical bytes
  uint64_t targets_distance, targets_size;  // JSON of each, terminated
} qn__tvm_library_t;

// The description of a function, which is the first argument of qn_tvm_ffi_library_call.
typedef struct qn__tvm_library_function {
  uint32_t magic;     // QN__TVM_FUNCTION_MAGIC
  uint32_t index;     // in the module
  uint64_t distance;  // from the description of the library to here
} qn__tvm_library_function_t;
#define QN__TVM_FUNCTION_MAGIC UINT32_C(0x66766d74)

#endif  // QUERN_JIT_TVM_FFI_LIBRARY_H_
