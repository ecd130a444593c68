// jit/shaderc/compiler.h: shaderc as quern uses it: GLSL compute to SPIR-V, warmed and guarded.
//
// Knows nothing of the IR. The first compile in a process makes glslang's tables of built-in
// functions, which costs about 100 ms; so a thread does it while the module that was missed is
// still being lowered. Thread rule: any thread, many at once on one compiler (shaderc's promise:
// compiling takes the compiler as constant). Read next: compiler.c.
#ifndef QUERN_JIT_SHADERC_COMPILER_H_
#define QUERN_JIT_SHADERC_COMPILER_H_

#include "base/buffer.h"
#include "jit/shaderc/controls.h"

typedef struct qn__shaderc_compiler qn__shaderc_compiler_t;

typedef struct qn__shaderc_options {
  uint32_t vulkan_minor;  // of Vulkan 1.x: 1 to 3
  uint32_t spirv_minor;   // of SPIR-V 1.x: 3 to 6, and no more than that Vulkan takes
  bool is_optimized;
  bool wants_assembly;            // text instead of words
  qn__shaderc_modes_t f64_modes;  // what glslang drops of the text's
} qn__shaderc_options_t;

// Starts the thread that warms up. Errors: OUT_OF_MEMORY, UNAVAILABLE.
qn_status_t qn__shaderc_compiler_create(qn_allocator_t allocator,
                                        qn__shaderc_compiler_t** out_compiler);
// Waits for the thread. NULL is fine.
void qn__shaderc_compiler_destroy(qn__shaderc_compiler_t* compiler);
// Appends the words (or assembly) of `text`, named `name` in messages, to `out`. A text that does
// not compile: INTERNAL, and its messages ("NAME:LINE: error: ...", a line each) are appended to
// `out_messages`. Errors: also OUT_OF_MEMORY; UNAVAILABLE in the child of a fork that came before
// the warm-up had begun.
qn_status_t qn__shaderc_compiler_compile(qn__shaderc_compiler_t* compiler,
                                         const qn__shaderc_options_t* options, const char* name,
                                         qn_str_t text, qn__buffer_t* out,
                                         qn__buffer_t* out_messages);

// Is this SPIR-V valid for that Vulkan? INTERNAL with the validator's first message.
qn_status_t qn__shaderc_validate(qn_span_t words, const qn__shaderc_options_t* options);

#endif  // QUERN_JIT_SHADERC_COMPILER_H_
