// tests/unit/ir/support_gpu.h: does a function have the shape that GPU code generators expect?
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_

#include "ir/passes/passes.h"

// The contract in ir/passes/passes.h ("What a GPU code generator finds..."). False: why.
bool qn_test_is_mapped(qn__function_t* function, const qn__pass_options_t* options, char* message,
                       size_t message_size);

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_GPU_H_
