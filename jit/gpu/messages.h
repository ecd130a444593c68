// jit/gpu/messages.h: what a compiler says about a text of kernels, in terms of the module.
//
// Thread rule: pure. Read next: messages.c.
#ifndef QUERN_JIT_GPU_MESSAGES_H_
#define QUERN_JIT_GPU_MESSAGES_H_

#include "base/base.h"

typedef struct qn__gpu_text {
  const char* language;  // "cuda"
  qn_str_t text;         // what was compiled
  qn_span_t lines;       // for each line of it a u32, the line of `module_text`; 0: none
  qn_str_t module_text;  // the mapped module, as --emit ir writes it
} qn__gpu_text_t;

// Annotates a failed compile (consumed) with the first error in the log, "NAME(LINE): error: WHAT"
// or "NAME:LINE: error: WHAT", the line of the text, and the function and line of the mapped module
// that it comes from. A log of another shape is told by its first line.
qn_status_t qn__gpu_explain(qn_status_t status, const qn__gpu_text_t* text, qn_str_t log);

#endif  // QUERN_JIT_GPU_MESSAGES_H_
