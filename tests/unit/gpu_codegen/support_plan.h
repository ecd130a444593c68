// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/support_plan.h: modules lowered to plans, and plans as text.
//
// Thread rule: one thread per program.
#ifndef QUERN_TESTS_UNIT_GPU_CODEGEN_SUPPORT_PLAN_H_
#define QUERN_TESTS_UNIT_GPU_CODEGEN_SUPPORT_PLAN_H_

#include "base/buffer.h"
#include "jit/plan/program.h"

typedef struct lowered {
  qn_module_t* module;
  qn__ir_body_t body;
  qn__arena_t arena;
  qn__gpu_program_t program;
} lowered_t;

// What the tests lower for: a target of 1024 threads with shuffles.
qn__gpu_lower_options_t lower_options(void);
// Parses and lowers. On failure `out` needs no release.
qn_status_t lower_text(const char* text, const qn__gpu_lower_options_t* options,
                       qn_allocator_t allocator, lowered_t* out);
void lowered_release(lowered_t* lowered);
// The same as it would come out of a cache: encoded and decoded into `arena`.
void decode_again(const lowered_t* lowered, qn__arena_t* arena, qn__gpu_plan_t* out);
// One line a step and kernel. Owned: free().
char* plan_text(const qn__gpu_plan_t* plan);
// A file of the repository. Owned: free().
char* read_source(const char* path);

#endif  // QUERN_TESTS_UNIT_GPU_CODEGEN_SUPPORT_PLAN_H_
