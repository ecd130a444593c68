// jit/llvm/passes_llvm.c: runs LLVM's pass pipelines.
//
// The code already has its vectors. LLVM only cleans up: it promotes stack slots, shares common
// subexpressions, moves invariants out of loops and simplifies addresses. Three kinds of passes are
// left out: vectorisers (they would only take our vectors apart), loop idioms and memcpy
// optimisation (they make calls of memset and memcpy, which cannot be resolved here), and inlining
// (kernels and loop bodies are reached through pointers). The C interface can leave passes out only
// by an explicit pipeline: it ignores the switches of LLVMPassBuilderOptions.
#include "jit/llvm/passes_llvm.h"

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "jit/llvm/emit.h"

qn_status_t qn__llvm_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, qn_tier_t tier) {
  const char* pipeline = tier == QN_TIER_FAST ? QN__EMIT_PASSES_FAST : QN__EMIT_PASSES_FULL;
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, pipeline, machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error) return QN_OK;
  char* message = LLVMGetErrorMessage(error);
  qn_status_t status = qn_status_make(QN_STATUS_INTERNAL, "LLVM's passes failed: %s", message);
  LLVMDisposeErrorMessage(message);
  return status;
}
