// jit/shaderc/messages.h: what shaderc says about a kernel, in terms of the module.
//
// Thread rule: pure. Read next: messages.c.
#ifndef QUERN_JIT_SHADERC_MESSAGES_H_
#define QUERN_JIT_SHADERC_MESSAGES_H_

#include "base/buffer.h"

typedef struct qn__kernel_text {
  const char* function;  // its name
  uint32_t index;        // of the kernel in the artifact
  qn_str_t text;         // what was compiled
  // For each line of it the line of `module_text`, 0: none.
  const uint32_t* lines;
  size_t line_count;
  qn_str_t module_text;  // the mapped module, as --emit ir writes it
} qn__kernel_text_t;

// The 1-based line of a text without its ends; empty beyond the last.
qn_str_t qn__text_line(qn_str_t text, uint32_t number);

// Annotates a failed compile (consumed) with the first error in `messages`, the line of the kernel
// and that of the module.
qn_status_t qn__shaderc_explain(qn_status_t status, const qn__kernel_text_t* kernel,
                                qn_str_t messages);

#endif  // QUERN_JIT_SHADERC_MESSAGES_H_
