// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/disassemble.h: disassembles a cubin with a program of the CUDA toolkit.
#ifndef QUERN_JIT_NVRTC_DISASSEMBLE_H_
#define QUERN_JIT_NVRTC_DISASSEMBLE_H_

#include "base/buffer.h"

// Appends the output of nvdisasm, or of cuobjdump if there is no nvdisasm. Errors: UNAVAILABLE if
// neither is found or the program fails; IO; OUT_OF_MEMORY.
qn_status_t qn__cubin_disassemble(qn_span_t cubin, qn__buffer_t* out);

#endif  // QUERN_JIT_NVRTC_DISASSEMBLE_H_
