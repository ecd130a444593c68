// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/support_text.h: modules to texts of kernels, without a compiler
// underneath.
//
// Thread rule: one thread.
#ifndef QUERN_TESTS_UNIT_GPU_CODEGEN_SUPPORT_TEXT_H_
#define QUERN_TESTS_UNIT_GPU_CODEGEN_SUPPORT_TEXT_H_

#include "jit/gpu/print.h"
#include "quern/ir.h"

typedef struct text_options {
  const char* target;  // NULL: "cuda"
  uint32_t index_bits;
  bool is_checked;
} text_options_t;

typedef struct texts {
  qn_target_t* target;
  qn_module_t* module;
  qn__ir_body_t body;
  qn__arena_t arena;
  qn__gpu_program_t program;
  qn__buffer_t text;
  qn__buffer_t lines;
  qn__buffer_t module_text;  // as --emit ir writes it
} texts_t;

// Prints all kernels of a module in CUDA C. The status of lowering or printing; the texts must be
// released in every case. A module that is wrong stops the program.
qn_status_t texts_make(const char* module, text_options_t options, qn_allocator_t allocator,
                       texts_t* out_texts);
void texts_release(texts_t* texts);

// Is there a line that matches? '*' stands for anything.
bool text_has_line(const qn__buffer_t* text, const char* pattern);

#endif  // QUERN_TESTS_UNIT_GPU_CODEGEN_SUPPORT_TEXT_H_
