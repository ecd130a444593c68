// SPDX-License-Identifier: Apache-2.0
// quern/tvm_ffi.h: functions of quern as functions of tvm-ffi, the C ABI of Apache TVM's tools.
//
// tvm-ffi is bound at run time: its library must be in the process before these functions are
// called. The versions 0.1.x are known. Arguments of calls are tvm-ffi's: tensors as DLTensor* or
// as its Tensor objects, ints of any size, floats, bools. A failed call raises an error of tvm-ffi
// with quern's whole message; its kind is the name of Python's exception ("ValueError").
// docs/tvm-ffi.md is the manual.
#ifndef QUERN_TVM_FFI_H_
#define QUERN_TVM_FFI_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where a function of tvm-ffi finds its code.
typedef struct qn_tvm_ffi_source {
  size_t struct_size;  // sizeof(qn_tvm_ffi_source_t)
  // Gives the code for tensors on `device`, owned. Called at the first call with tensors of a
  // device, on the thread of the call; several threads may call it at once. Required.
  qn_status_t (*find)(void* self, qn_device_t device, qn_function_t** out_function);
  // Called once, when tvm-ffi drops its last reference, on any thread. May be NULL.
  void (*release)(void* self);
  void* self;  // passed to both
} qn_tvm_ffi_source_t;

// Registers a function under `name` in tvm-ffi's global table, from which any language takes it.
// tvm-ffi holds the function until it is removed from the table and no program uses it. `source` is
// copied. After an error, `release` is not called. Errors: INVALID_ARGUMENT (no `find`, an empty
// name), FAILED_PRECONDITION (the name is taken, and `replaces` is false), UNAVAILABLE (tvm-ffi is
// not in this process), INCOMPATIBLE (a version of tvm-ffi that quern does not know),
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_tvm_ffi_register(const char* name, bool replaces,
                                                   const qn_tvm_ffi_source_t* source);
// Returns the driver's stream that tvm-ffi uses on a device in the calling thread; NULL: the
// default one, or tvm-ffi is not in this process.
QN_API void* qn_tvm_ffi_stream(qn_device_t device);

// ------------------------------------------------------------------------------------ libraries
//
// A library is a shared object for `tvm_ffi.load_module`: a function for each of a module, and a
// bundle (docs/bundles.md) with their code inside. It needs libquern alone, neither a generator nor
// a compiler.

// What a library is made of.
typedef struct qn_tvm_ffi_library_options {
  size_t struct_size;  // sizeof(qn_tvm_ffi_library_options_t)
  // The targets of the code. A call takes the first one that is for the device of its tensors and
  // that the machine can run. All CPU targets are of one architecture, which is the library's.
  qn_target_t* const* targets;
  size_t target_count;  // of `targets`, at least 1
  qn_tier_t tier;       // of the lookups; 0: FULL
  bool is_checked;      // of the lookups
  // The bytes of a bundle with the entries of these lookups. What it lacks is looked up as by any
  // other engine.
  const void* bundle;
  size_t bundle_size;  // of `bundle`
  // Where the loader looks for libquern before the system's folders, as in DT_RUNPATH. NULL:
  // "$ORIGIN", the folder of the library.
  const char* run_path;
} qn_tvm_ffi_library_options_t;

// Writes a library with all functions of the module. Errors: INVALID_ARGUMENT (options, no target,
// more than 1024, no bundle, CPU targets of two architectures, a module beyond 64 MiB), UNSUPPORTED
// (an architecture that is neither x86_64 nor aarch64), OUT_OF_MEMORY, those of the sink.
QN_API QN_MUST_USE qn_status_t qn_tvm_ffi_library_write(const qn_module_t* module,
                                                        const qn_tvm_ffi_library_options_t* options,
                                                        qn_sink_t sink);
// For the code of libraries alone: calls the function whose description in its library is
// `function`, with `count` values of tvm-ffi. Returns 0, or -1 with a raised error.
QN_API int qn_tvm_ffi_library_call(const void* function, const void* args, int32_t count,
                                   void* result);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_TVM_FFI_H_
