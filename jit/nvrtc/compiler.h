// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/compiler.h: compiles CUDA C to a cubin with NVRTC.
//
// The first compile in a process takes several times as long as later ones (bench/bench_nvrtc.c).
// So a thread does a warm-up compile while the missed module is being lowered. The warm-up also
// finds out which options this version of NVRTC supports. Many threads may use one compiler, as
// NVRTC allows.
#ifndef QUERN_JIT_NVRTC_COMPILER_H_
#define QUERN_JIT_NVRTC_COMPILER_H_

#include "base/buffer.h"
#include "jit/nvrtc/library.h"

typedef struct qn__nvrtc_compiler qn__nvrtc_compiler_t;

typedef struct qn__nvrtc_options {
  const char* arch;  // "sm_90a"
  bool is_fast_tier;
  bool wants_ptx;  // PTX instead of a cubin
} qn__nvrtc_options_t;

// Starts the warm-up thread. `library` is borrowed until the compiler is destroyed. Errors:
// OUT_OF_MEMORY.
qn_status_t qn__nvrtc_compiler_create(qn_allocator_t allocator, const qn__nvrtc_library_t* library,
                                      qn__nvrtc_compiler_t** out_compiler);
// Waits for the warm-up thread. NULL is fine.
void qn__nvrtc_compiler_destroy(qn__nvrtc_compiler_t* compiler);
// Compiles `text`, a terminated string called `name` in messages, and appends the cubin (or PTX) to
// `out`. Errors:
//   INTERNAL       the text does not compile; its log, lines of "NAME(LINE): error: ...", is
//                  appended to `out_log`
//   UNSUPPORTED    this NVRTC does not support the architecture
//   UNAVAILABLE    NVRTC's own files are missing, or this is a child of a fork that was made before
//                  the warm-up had begun
//   OUT_OF_MEMORY
qn_status_t qn__nvrtc_compiler_compile(qn__nvrtc_compiler_t* compiler,
                                       const qn__nvrtc_options_t* options, const char* name,
                                       const char* text, qn__buffer_t* out, qn__buffer_t* out_log);

#endif  // QUERN_JIT_NVRTC_COMPILER_H_
