// SPDX-License-Identifier: Apache-2.0
// tests/unit/nvrtc/support_nvrtc.h: the generator with a real NVRTC, and requests from text.
//
// A machine without NVRTC skips: tools/dev/get-nvrtc fetches one into the build folder. Thread
// rule: one thread.
#ifndef QUERN_TESTS_UNIT_NVRTC_SUPPORT_NVRTC_H_
#define QUERN_TESTS_UNIT_NVRTC_SUPPORT_NVRTC_H_

#include "jit/nvrtc/compile.h"
#include "quern/ir.h"
#include "quern/target.h"

// Says where an NVRTC of the build folder lies. First of all in main.
void nvrtc_use_build_folder(void);
// NULL, and a line that says why, where there is none: the test is to skip().
qn__nvrtc_t* nvrtc_or_null(qn_allocator_t allocator);

typedef struct program {
  qn_module_t* module;
  qn_target_t* target;
  qn_compile_request_t request;
} program_t;

// Stops the program with the message when one is wrong.
program_t program_make(const char* text, const char* target, qn_tier_t tier, bool is_checked);
void program_release(program_t* program);

// A sink into a buffer.
qn_sink_t sink_of(qn__buffer_t* buffer);
// The whole of a file of the source folder, terminated; owned by the caller (free).
char* read_source(const char* path);

#endif  // QUERN_TESTS_UNIT_NVRTC_SUPPORT_NVRTC_H_
