// jit/llvm/passes_llvm.c: the pass pipelines.
//
// The vectors are already in the code, so what LLVM adds is cleaning: promotion of stack slots,
// common subexpressions, invariants out of loops, addressing. Left out on purpose: LLVM's
// vectorisers (they would only take apart what is there), loop idioms and memcpy optimisation (they
// make calls of memset and memcpy, which nothing here can resolve), and inlining (a module is
// kernels and loop bodies that are reached through pointers). The explicit string is the only way
// to leave passes out from C: the switches of LLVMPassBuilderOptions are ignored. Thread rule: in
// the header. Read next: worker.c.
#include "jit/llvm/passes_llvm.h"

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "jit/llvm/emit.h"

void qn__llvm_prepare(LLVMModuleRef module, const char* tune) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  static const char key[] = "tune-cpu";
  LLVMAttributeRef attribute =
      LLVMCreateStringAttribute(context, key, sizeof key - 1, tune, (unsigned)strlen(tune));
  LLVMValueRef function = LLVMGetFirstFunction(module);
  for (; function; function = LLVMGetNextFunction(function)) {
    if (LLVMIsDeclaration(function)) continue;
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
  }
}

const char* qn__llvm_pipeline(qn_tier_t tier) {
  return tier == QN_TIER_FAST ? QN__EMIT_PASSES_FAST : QN__EMIT_PASSES_FULL;
}

qn_status_t qn__llvm_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, qn_tier_t tier) {
  const char* pipeline = qn__llvm_pipeline(tier);
  if (pipeline[0] == '\0') return QN_OK;
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, pipeline, machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error) return QN_OK;
  char* message = LLVMGetErrorMessage(error);
  qn_status_t status = qn_status_make(QN_STATUS_INTERNAL, "LLVM's passes failed: %s", message);
  LLVMDisposeErrorMessage(message);
  return status;
}
