// jit/nvrtc/disassemble.h: a cubin as text, by a program of the CUDA toolkit.
//
// Thread rule: any thread. Read next: disassemble.c.
#ifndef QUERN_JIT_NVRTC_DISASSEMBLE_H_
#define QUERN_JIT_NVRTC_DISASSEMBLE_H_

#include "base/buffer.h"

// Appends the machine code of `cubin` as nvdisasm, or else cuobjdump, writes it. Errors:
// UNAVAILABLE where neither is found or the one that is fails; IO; OUT_OF_MEMORY.
qn_status_t qn__cubin_disassemble(qn_span_t cubin, qn__buffer_t* out);

#endif  // QUERN_JIT_NVRTC_DISASSEMBLE_H_
