// tests/unit/ir/support_gpu.h: what the tests of mapping to GPUs share: does a function have the
// shape that code generators expect?
//
// Thread rule: one thread. Read next: support_gpu.c.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_

#include "ir/passes/passes.h"

// The contract in ir/passes/passes.h ("What a GPU code generator finds..."). False: why.
bool qn_test_is_mapped(qn__ir_func_t* function, const qn__pass_options_t* options, char* message,
                       size_t message_size);

// Prints the text of a body, for whoever looks at a test that failed.
void qn_test_show(const qn__ir_body_t* body);

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_
