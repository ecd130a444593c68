// jit/llvm/passes_llvm.h: LLVM's own passes, by tier.
#ifndef QN_JIT_LLVM_PASSES_LLVM_H_
#define QN_JIT_LLVM_PASSES_LLVM_H_

#include <llvm-c/TargetMachine.h>

#include "base/base.h"
#include "quern/backend.h"

// Runs the tier's pipeline. Errors: INTERNAL.
qn_status_t qn__llvm_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, qn_tier_t tier);

#endif  // QN_JIT_LLVM_PASSES_LLVM_H_
