// SPDX-License-Identifier: Apache-2.0
// jit/shaderc/compiler.h: compiles GLSL compute shaders to SPIR-V with shaderc.
//
// The first compile in a process builds glslang's tables of built-in functions, which takes about
// 100 ms. So a thread does a warm-up compile while the missed module is being lowered. Many threads
// may use one compiler: shaderc's compile functions do not change it.
#ifndef QUERN_JIT_SHADERC_COMPILER_H_
#define QUERN_JIT_SHADERC_COMPILER_H_

#include "base/buffer.h"
#include "jit/shaderc/controls.h"

typedef struct qn__shaderc_compiler qn__shaderc_compiler_t;

typedef struct qn__shaderc_options {
  uint32_t vulkan_minor;  // of Vulkan 1.x: 1 to 3
  uint32_t spirv_minor;   // of SPIR-V 1.x: 3 to 6, at most the version that Vulkan supports
  bool is_optimized;
  bool wants_assembly;            // text instead of words
  qn__shaderc_modes_t f64_modes;  // the modes of the text, which glslang drops
} qn__shaderc_options_t;

// Starts the warm-up thread. Errors: OUT_OF_MEMORY, UNAVAILABLE.
qn_status_t qn__shaderc_compiler_create(qn_allocator_t allocator,
                                        qn__shaderc_compiler_t** out_compiler);
// Waits for the warm-up thread. NULL is fine.
void qn__shaderc_compiler_destroy(qn__shaderc_compiler_t* compiler);
// Compiles `text`, called `name` in messages, and appends the words (or assembly) to `out`. Errors:
//   INTERNAL       the text does not compile; lines of "NAME:LINE: error: ..." are appended to
//                  `out_messages`
//   UNAVAILABLE    this is a child of a fork that was made before the warm-up had begun
//   OUT_OF_MEMORY
qn_status_t qn__shaderc_compiler_compile(qn__shaderc_compiler_t* compiler,
                                         const qn__shaderc_options_t* options, const char* name,
                                         qn_str_t text, qn__buffer_t* out,
                                         qn__buffer_t* out_messages);

// Checks that SPIR-V is valid for the version of Vulkan. Errors: INTERNAL with the validator's
// first message.
qn_status_t qn__shaderc_validate(qn_span_t words, const qn__shaderc_options_t* options);

#endif  // QUERN_JIT_SHADERC_COMPILER_H_
