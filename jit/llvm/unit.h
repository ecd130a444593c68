// SPDX-License-Identifier: Apache-2.0
// jit/llvm/unit.h: the stages of LLVM for a unit: the functions that are compiled as one LLVM
// module.
//
// Units of one module share nothing that is written, so that threads compile them at once. Each has
// its own LLVM context, worker and guard against LLVM's fatal errors.
//
// Not here: the stages before (decode, passes) and after (the artifact) (compile.h).
// Thread rule: one thread per unit.
#ifndef QN_JIT_LLVM_UNIT_H_
#define QN_JIT_LLVM_UNIT_H_

#include "jit/llvm/emit.h"
#include "jit/llvm/image.h"

// The last stage that is run, by its result.
typedef enum qn__llvm_form {
  QN__LLVM_FORM_IR,
  QN__LLVM_FORM_RAW,
  QN__LLVM_FORM_LLVM,
  QN__LLVM_FORM_ASM,
  QN__LLVM_FORM_OBJ,
  QN__LLVM_FORM_IMAGE,
  QN__LLVM_FORM_COUNT
} qn__llvm_form_t;

// What the units of a module have in common. Borrowed.
typedef struct qn__llvm_unit_options {
  qn_allocator_t allocator;
  qn__llvm_worker_pool_t* pool;
  const qn_compile_request_t* request;
  const qn_target_t* target;
  qn__llvm_form_t form;
} qn__llvm_unit_options_t;

typedef struct qn__llvm_unit {
  qn__ir_func_t* first;  // of the functions, which went through the passes
  size_t function_count;
  // The results.
  qn__arena_t arena;
  qn__llvm_emit_result_t emitted;  // its module: forms RAW and LLVM
  LLVMMemoryBufferRef file;        // forms ASM and OBJ
  qn__llvm_image_t image;          // form IMAGE
  // Private.
  const qn__llvm_unit_options_t* options;
  qn__llvm_worker_t* worker;
  LLVMContextRef context;
  LLVMTargetMachineRef machine;
  bool is_abandoned;     // LLVM failed fatally: its objects must not be disposed of
  char diagnostic[256];  // LLVM's first error; "" for none
  int64_t stage_start_ns;
} qn__llvm_unit_t;

// Divides the functions of a body into units of about equal cost, in order, by the functions alone:
// the bytes of an artifact depend on it. Returns their number, at least 1 and at most
// body->function_count (1 without functions), and sets the functions of each.
size_t qn__llvm_unit_split(const qn__ir_body_t* body, qn__llvm_unit_t* units);
// Runs the stages up to the form and frees what the result does not need. Call the end afterwards,
// also after an error. Errors: those of the stages.
qn_status_t qn__llvm_unit_run(qn__llvm_unit_t* unit, const qn__llvm_unit_options_t* options);
// Frees a unit, which may be zeroed.
void qn__llvm_unit_end(qn__llvm_unit_t* unit);

#endif  // QN_JIT_LLVM_UNIT_H_
