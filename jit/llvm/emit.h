// jit/llvm/emit.h: from a body that went through the CPU passes to an LLVM module of kernels.
//
// What it is: one entry, qn__emit_module. Loops and reductions that carry a lane count become
// explicit vector code; outermost parallel loops become functions that the CPU device runs over
// ranges. The module refers to nothing outside itself: everything else is reached through the table
// of qn_cpu_env_t. What it is not: optimisation (the pass string is the caller's) and linking
// (image.h). Threads: one thread per context; the body's `user` fields are written, so a body is
// one thread's too. Next: emit_inner.h (the vocabulary), emit_module.c.
#ifndef QN_JIT_LLVM_EMIT_H_
#define QN_JIT_LLVM_EMIT_H_

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "ir/ir.h"
#include "quern/backend.h"

// LLVM passes that the emitted code wants. It is vector code already: what is left is to promote
// arrays to registers, to share what is computed twice and to move what does not change out of
// loops. (Without no-verify-fixpoint, instcombine in a textual pipeline makes it a fatal error that
// another round would find more.)
#define QN__EMIT_PASSES_FULL                                                     \
  "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg," \
  "loop-mssa(licm),gvn,instcombine<no-verify-fixpoint>,simplifycfg)"
#define QN__EMIT_PASSES_FAST "function(sroa,early-cse)"

typedef struct qn__llvm_emit_options {
  LLVMContextRef context;        // borrowed until the module is disposed
  LLVMTargetMachineRef machine;  // borrowed during the call: triple, layout, CPU and features
  const char* module_name;
  uint32_t vector_bytes;  // the width of registers that may be used: 16, 32 or 64
  // What the target has. False is always right, and slower.
  bool has_fma;       // fused multiply-add is an instruction
  bool has_round;     // floor, ceil and trunc are instructions (x86: SSE4.1)
  bool has_f16c;      // conversions between f16 and f32 are instructions
  bool has_avx2;      // 32- and 64-bit elements can be loaded and stored under a mask, and gathered
  bool has_avx512;    // F, BW, DQ and VL: every width can
  bool is_checked;    // indices and integer divisors are checked
  bool is_fast_tier;  // shortest compile: fewer copies of loop bodies
  bool is_scalar_only;  // ignores lane counts: the loops as LLVM's own vectoriser would want them
} qn__llvm_emit_options_t;

typedef struct qn__llvm_emit_function {
  const char* name;    // of the IR's function
  const char* symbol;  // of the entry: a qn_cpu_kernel_t
  uint32_t launch_count;
  uint32_t site_count;
  const qn_artifact_site_t* sites;  // what env->fail's `site` counts
} qn__llvm_emit_function_t;

typedef struct qn__llvm_emit_result {
  LLVMModuleRef module;  // owned by the caller
  size_t function_count;
  const qn__llvm_emit_function_t* functions;  // in the arena, as all that it points to
} qn__llvm_emit_result_t;

// Emits every function of `body`. Errors: UNSUPPORTED names the function and the construct that a
// CPU has no counterpart for; OUT_OF_MEMORY. `out->module` is NULL on failure.
qn_status_t qn__emit_module(const qn__ir_body_t* body, const qn__llvm_emit_options_t* options,
                            qn__arena_t* arena, qn__llvm_emit_result_t* out);

#endif  // QN_JIT_LLVM_EMIT_H_
