// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit.h: emits an LLVM module of kernels from a body that went through the CPU passes.
//
// Loops and reductions that carry a lane count become explicit vector code. Outermost parallel
// loops become functions that the CPU device runs over ranges. The module refers to nothing outside
// itself: kernels reach everything else through the table of qn_cpu_env_t.
// Not here: optimisation and linking (image.h).
// Thread rule: one thread per context and per function, whose `user` fields are written.
#ifndef QN_JIT_LLVM_EMIT_H_
#define QN_JIT_LLVM_EMIT_H_

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "ir/ir.h"
#include "jit/llvm/prepared.h"
#include "quern/backend.h"

// LLVM passes for the emitted code, which has its vectors already. They promote arrays to
// registers, share common subexpressions and move invariants out of loops. (Without
// no-verify-fixpoint, instcombine ends the process if another iteration would find more.)
#define QN__EMIT_PASSES_FULL                                                     \
  "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg," \
  "loop-mssa(licm),early-cse<memssa>,simplifycfg)"
#define QN__EMIT_PASSES_FAST "function(sroa,early-cse)"

// The attribute of a function that launches and has no loop of its own: it runs once a call.
#define QN__EMIT_RUNS_ONCE "quern-runs-once"
// The attribute of the functions of a kernel with tiles of products.
#define QN__EMIT_HAS_TILES "quern-has-tiles"

typedef struct qn__llvm_emit_options {
  LLVMContextRef context;        // borrowed until the module is disposed
  LLVMTargetMachineRef machine;  // borrowed during the call: triple, layout, CPU and features
  const char* tune;       // the processor that code is scheduled for; NULL: that of the machine
  uint32_t vector_bytes;  // the width of registers that may be used: 16, 32 or 64
  // Instructions of the target. False is always right, and slower.
  bool has_fma;       // fused multiply-add is an instruction
  bool has_round;     // floor, ceil and trunc are instructions (x86: SSE4.1)
  bool has_f16c;      // conversions between f16 and f32 are instructions
  bool has_avx2;      // masked loads and stores, and gathers, of 32- and 64-bit elements
  bool has_avx512;    // F, BW, DQ and VL: masked accesses of all widths
  uint32_t dot_rows;  // instructions for dot products (qn__emit_dot_rows)
  bool has_tiles;     // some operators are instructions on tile registers (qn__emit_tile_ops)
  // Compiled kernels of products; NULL: the code calls none.
  const qn__llvm_prepared_t* prepared;
  bool is_checked;      // indices and integer divisors are checked
  bool is_fast_tier;    // shortest compile: fewer copies of loop bodies
  bool is_scalar_only;  // ignores lane counts: loops for LLVM's own vectoriser
} qn__llvm_emit_options_t;

// Returns the set of instructions for dot products that a target has, and the set of operators
// (qn__dot_bit) that such a set has.
uint32_t qn__emit_dot_rows(const qn_target_t* target);
uint32_t qn__emit_dot_ops(uint32_t rows);
// Returns the set of operators that the tile registers of a target have.
uint32_t qn__emit_tile_ops(const qn_target_t* target);

typedef struct qn__llvm_emit_function {
  const char* name;  // of the IR's function, and the symbol of the entry: a qn_cpu_kernel_t
  uint32_t launch_count;
  int64_t stack_bytes;  // of arrays, also of what the function calls
  uint32_t site_count;
  const qn_artifact_site_t* sites;  // by the number that env->fail gets
} qn__llvm_emit_function_t;

typedef struct qn__llvm_emit_result {
  LLVMModuleRef module;  // owned by the caller
  size_t function_count;
  const qn__llvm_emit_function_t* functions;  // these and their strings are in the arena
} qn__llvm_emit_result_t;

// Emits `function_count` functions of a body, from `first` on. Errors: UNSUPPORTED with the
// function and the construct that a CPU does not have; OUT_OF_MEMORY. `out->module` is NULL on
// failure.
qn_status_t qn__emit_module(qn__ir_func_t* first, size_t function_count,
                            const qn__llvm_emit_options_t* options, qn__arena_t* arena,
                            qn__llvm_emit_result_t* out);

#endif  // QN_JIT_LLVM_EMIT_H_
