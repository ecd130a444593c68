// SPDX-License-Identifier: Apache-2.0
// jit/llvm/object.h: reads the relocatable ELF object that LLVM made.
//
// This check names forbidden things before anything is linked. The linker (link.h) refuses them
// again, by what it is asked for.
#ifndef QN_JIT_LLVM_OBJECT_H_
#define QN_JIT_LLVM_OBJECT_H_

#include "base/arena.h"
#include "base/base.h"

typedef struct qn__llvm_object_symbol {
  const char* name;  // borrowed from the object
  uint16_t section;  // index; always of a loaded section
  uint64_t value;    // within the section
  uint64_t size_bytes;
} qn__llvm_object_symbol_t;

typedef struct qn__llvm_object {
  // Upper bound of the bytes that the linker allocates, with alignment and stubs.
  size_t load_bytes;
  size_t function_count;
  qn__llvm_object_symbol_t* functions;  // in the arena; in the object's order
} qn__llvm_object_t;

// Checks that the object can become an image, and describes it. Errors: UNSUPPORTED with the
// undefined symbol, the writable section or the table of addresses; INTERNAL for a malformed
// object; OUT_OF_MEMORY.
qn_status_t qn__llvm_object_inspect(qn_span_t bytes, qn__arena_t* arena, qn__llvm_object_t* out);

#endif  // QN_JIT_LLVM_OBJECT_H_
