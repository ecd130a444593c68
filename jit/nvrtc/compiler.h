// jit/nvrtc/compiler.h: NVRTC as quern uses it: CUDA C to a cubin, warmed and guarded.
//
// Knows nothing of the IR. The first compile in a process costs several times what the next ones
// do (bench/bench_nvrtc.c); so a thread does one while the module that was missed is still being
// lowered. It also learns which options this
// version of NVRTC knows. Thread rule: any thread, many at once on one compiler (NVRTC's promise).
// Read next: compiler.c.
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

// Starts the thread that warms up. `library` is borrowed until the compiler is destroyed. Errors:
// OUT_OF_MEMORY.
qn_status_t qn__nvrtc_compiler_create(qn_allocator_t allocator, const qn__nvrtc_library_t* library,
                                      qn__nvrtc_compiler_t** out_compiler);
// Waits for the thread. NULL is fine.
void qn__nvrtc_compiler_destroy(qn__nvrtc_compiler_t* compiler);
// Appends the cubin (or PTX) of `text`, terminated and named `name` in messages, to `out`. A text
// that does not compile: INTERNAL, and its log ("NAME(LINE): error: ...", a line each) is appended
// to `out_log`. Errors: also UNSUPPORTED for an architecture that this NVRTC does not know,
// OUT_OF_MEMORY, UNAVAILABLE where its own files are missing, and in the child of a fork that came
// before the warm-up had begun.
qn_status_t qn__nvrtc_compiler_compile(qn__nvrtc_compiler_t* compiler,
                                       const qn__nvrtc_options_t* options, const char* name,
                                       const char* text, qn__buffer_t* out, qn__buffer_t* out_log);

#endif  // QUERN_JIT_NVRTC_COMPILER_H_
