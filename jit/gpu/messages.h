// SPDX-License-Identifier: Apache-2.0
// jit/gpu/messages.h: explains an error of a device compiler in terms of the module.
#ifndef QUERN_JIT_GPU_MESSAGES_H_
#define QUERN_JIT_GPU_MESSAGES_H_

#include "base/base.h"

typedef struct qn__gpu_text {
  const char* language;  // "cuda"
  qn_str_t text;         // the compiled text
  qn_span_t lines;       // for each line of `text` a u32, the line of `module_text`; 0: none
  qn_str_t module_text;  // the mapped module, as --emit ir writes it
} qn__gpu_text_t;

// Annotates the status of a failed compile (consumed) with the first error in the log, the line of
// the text, and the function and line of the mapped module. Recognises "NAME(LINE): error: MESSAGE"
// and "NAME:LINE: error: MESSAGE". If the log has neither, adds its first line.
qn_status_t qn__gpu_explain(qn_status_t status, const qn__gpu_text_t* text, qn_str_t log);

#endif  // QUERN_JIT_GPU_MESSAGES_H_
