// jit/nvrtc/messages.h: what NVRTC says about a text, in terms of the module.
//
// Thread rule: pure. Read next: messages.c.
#ifndef QUERN_JIT_NVRTC_MESSAGES_H_
#define QUERN_JIT_NVRTC_MESSAGES_H_

#include "base/buffer.h"

typedef struct qn__cuda_text {
  qn_str_t text;  // what was compiled
  // For each line of it the line of `module_text`, 0: none.
  const uint32_t* lines;
  size_t line_count;
  qn_str_t module_text;  // the mapped module, as --emit ir writes it
} qn__cuda_text_t;

// Annotates a failed compile (consumed) with the first error in the log, the function, the line of
// the mapped module, and that of the text.
qn_status_t qn__nvrtc_explain(qn_status_t status, const qn__cuda_text_t* text, qn_str_t log);

#endif  // QUERN_JIT_NVRTC_MESSAGES_H_
