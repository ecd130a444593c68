// SPDX-License-Identifier: Apache-2.0
// jit/llvm/image.h: from an emitted LLVM module to a position-independent image.
//
// The target machine writes an object, object.h checks it, and link.h links it by ORC. ORC's own
// compile layer is not used, because one object is linked twice and machines are reused.
// Thread rule: one thread per worker.
#ifndef QN_JIT_LLVM_IMAGE_H_
#define QN_JIT_LLVM_IMAGE_H_

#include "jit/llvm/object.h"
#include "jit/llvm/worker.h"

// A function within an image: an entry or one of its parts.
typedef struct qn__llvm_image_symbol {
  const char* name;
  uint64_t offset;
  uint64_t size_bytes;
} qn__llvm_image_symbol_t;

typedef struct qn__llvm_image {
  qn__buffer_t bytes;                // the image; 64-byte alignment is expected where it is loaded
  qn__llvm_image_symbol_t* symbols;  // by rising offset
  size_t symbol_count;
  uint64_t* offsets;  // of the entries, in the caller's order
  uint64_t* sizes;
} qn__llvm_image_t;

void qn__llvm_image_init(qn__llvm_image_t* image, qn_allocator_t allocator);
void qn__llvm_image_deinit(qn__llvm_image_t* image);

// Runs LLVM's pass pipeline of the tier. Errors: INTERNAL.
qn_status_t qn__llvm_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, qn_tier_t tier);

// Makes an object file (or assembly) of the module. Owned: LLVMDisposeMemoryBuffer. Errors:
// UNSUPPORTED with LLVM's message.
qn_status_t qn__llvm_image_emit_file(LLVMModuleRef module, LLVMTargetMachineRef machine,
                                     LLVMCodeGenFileType type, LLVMMemoryBufferRef* out_buffer);

// Links an object to an image. `entries` are symbols of functions; results are in `arena`. Errors:
// those of qn__llvm_object_inspect and qn__llvm_linker_link.
qn_status_t qn__llvm_image_link(qn__llvm_worker_t* worker, qn_span_t object,
                                const char* const* entries, size_t entry_count, qn__arena_t* arena,
                                qn__llvm_image_t* image);

// Appends the image to `payload`, aligned, and returns where it begins there. Images refer to
// nothing outside themselves, so that several can follow one another. Failure is sticky in
// `payload`.
uint64_t qn__llvm_image_append(const qn__llvm_image_t* image, qn__buffer_t* payload);
// Writes the symbols of an image that begins at `base`: entries of a CPU image's metadata
// (backend.h), without their count.
void qn__llvm_image_write_symbols(const qn__llvm_image_t* image, uint64_t base, qn__buffer_t* out);

#endif  // QN_JIT_LLVM_IMAGE_H_
