// jit/llvm/passes_llvm.h: LLVM's own passes, by tier, and the attributes that they read.
#ifndef QN_JIT_LLVM_PASSES_LLVM_H_
#define QN_JIT_LLVM_PASSES_LLVM_H_

#include <llvm-c/TargetMachine.h>

#include "base/base.h"
#include "quern/backend.h"

// Sets the processor that all functions are scheduled for.
void qn__llvm_prepare(LLVMModuleRef module, const char* tune);
// Returns the pass pipeline of a tier in LLVM's syntax; "" is none. Static storage.
const char* qn__llvm_pipeline(qn_tier_t tier);
// Runs the tier's pipeline. Errors: INTERNAL.
qn_status_t qn__llvm_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, qn_tier_t tier);

#endif  // QN_JIT_LLVM_PASSES_LLVM_H_
