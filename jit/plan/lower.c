// SPDX-License-Identifier: Apache-2.0
// jit/plan/lower.c: runs the passes on a body, then splits it into host steps and kernels.
#include <assert.h>

#include "base/alloc.h"
#include "jit/plan/split.h"

// Moves the drafts into the arrays that printers and encoders read.
static qn_status_t gather_kernels(qn__gpu_program_t* program, const qn__gpu_draft_t* first,
                                  uint32_t count) {
  qn__gpu_kernel_t* plans = qn__arena_alloc_array(program->arena, count + 1U, sizeof *plans);
  program->kernels = qn__arena_alloc_array(program->arena, count + 1U, sizeof *program->kernels);
  if (!plans || !program->kernels) return qn__out_of_memory("the kernels of a program");
  uint32_t i = 0;
  for (const qn__gpu_draft_t* draft = first; draft; draft = draft->next, i++) {
    plans[i] = draft->plan;
    // If one launch of a function can fail, its other kernels must read the error record.
    plans[i].has_record = draft->ir.owner->has_record;
    program->kernels[i] = draft->ir;
    program->kernels[i].plan = &plans[i];
  }
  assert(i == count);
  program->kernel_count = program->plan.kernel_count = count;
  program->plan.kernels = plans;
  return QN_OK;
}

qn_status_t qn__gpu_lower(qn__ir_body_t* body, const qn__gpu_lower_options_t* options,
                          qn__arena_t* arena, qn__gpu_program_t* out_program) {
  QN_TRY(qn__passes_run_gpu(body, &options->passes));
  return qn__gpu_split(body, options, arena, out_program);
}

qn_status_t qn__gpu_split(qn__ir_body_t* body, const qn__gpu_lower_options_t* options,
                          qn__arena_t* arena, qn__gpu_program_t* out_program) {
  *out_program =
      (qn__gpu_program_t){.arena = arena, .body = body, .is_checked = options->passes.is_checked};
  qn__gpu_program_t* program = out_program;
  uint32_t count = (uint32_t)body->function_count;
  program->functions = qn__arena_alloc_array(arena, count + 1U, sizeof *program->functions);
  qn__gpu_function_t* plans = qn__arena_alloc_array(arena, count + 1U, sizeof *plans);
  if (!program->functions || !plans) return qn__out_of_memory("the functions of a program");
  program->function_count = program->plan.function_count = count;
  program->plan.functions = plans;
  qn__gpu_draft_t* first = NULL;
  qn__gpu_draft_t** last = &first;
  uint32_t kernel_count = 0, i = 0;
  for (qn__ir_func_t* function = body->first; function; function = function->next, i++) {
    qn__gpu_function_ir_t* ir = &program->functions[i];
    *ir = (qn__gpu_function_ir_t){.function = function, .plan = &plans[i]};
    qn__gpu_split_t split = {.program = program,
                             .options = options,
                             .arena = arena,
                             .function = function,
                             .ir = ir,
                             .plan = &plans[i],
                             .last = last,
                             .kernel_count = &kernel_count};
    QN_TRY(qn__gpu_split_function(&split));
    last = split.last;
  }
  return gather_kernels(program, first, kernel_count);
}
