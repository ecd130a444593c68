// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_gpu.h: shared by the tests of mapping to GPUs: checks that a function has
// the shape that code generators expect.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_

#include "ir/passes/passes.h"

// The contract in ir/passes/passes.h ("What a GPU code generator finds..."). False: why.
bool qn_test_is_mapped(qn__ir_func_t* function, const qn__pass_options_t* options, char* message,
                       size_t message_size);

// Maps a module while every allocation fails in turn: each time the result is OUT_OF_MEMORY or
// good.
void qn_test_map_without_memory(const qn_module_t* module, const qn__pass_options_t* options);

// Prints the text of a body, for the output of a failed test.
void qn_test_show(const qn__ir_body_t* body);

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_
