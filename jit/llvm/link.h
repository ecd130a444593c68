// SPDX-License-Identifier: Apache-2.0
// jit/llvm/link.h: links a relocatable object to an image, by ORC and in memory of ours, twice.
//
// The object goes through an RTDyld layer whose memory manager places all sections side by side in
// one region. An image needs no relocation if linking at two addresses gives equal bytes, and it
// has no symbols from outside, no writable data and no table of addresses.
// Thread rule: one thread per linker at a time.
#ifndef QN_JIT_LLVM_LINK_H_
#define QN_JIT_LLVM_LINK_H_

#include <llvm-c/TargetMachine.h>

#include "base/arena.h"
#include "base/buffer.h"

enum { QN__LLVM_IMAGE_ALIGN_BYTES = 64 };

typedef struct qn__llvm_linker qn__llvm_linker_t;

// `machine` is consumed. Any machine is right, since nothing is compiled. Errors: OUT_OF_MEMORY,
// INTERNAL.
qn_status_t qn__llvm_linker_create(qn_allocator_t allocator, LLVMTargetMachineRef machine,
                                   qn__llvm_linker_t** out_linker);
// NULL is fine.
void qn__llvm_linker_destroy(qn__llvm_linker_t* linker);
// Returns whether a link has failed. Such a linker must not be used again.
bool qn__llvm_linker_is_broken(const qn__llvm_linker_t* linker);

typedef struct qn__llvm_link_request {
  qn_span_t object;   // borrowed during the call
  size_t load_bytes;  // upper bound of its sections' bytes (qn__llvm_object_inspect)
  size_t symbol_count;
  const char* const* symbols;  // to look up
  uint64_t* out_offsets;       // one per symbol, within the image
  qn__arena_t* arena;          // for the time of the call
} qn__llvm_link_request_t;

// Appends the image to `out_image`. Errors: UNSUPPORTED (a symbol from outside, writable data, a
// table of addresses, by name), INTERNAL (not position independent: the first byte that differs,
// and its section), OUT_OF_MEMORY.
qn_status_t qn__llvm_linker_link(qn__llvm_linker_t* linker, const qn__llvm_link_request_t* request,
                                 qn__buffer_t* out_image);

#endif  // QN_JIT_LLVM_LINK_H_
