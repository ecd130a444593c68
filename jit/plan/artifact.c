// SPDX-License-Identifier: Apache-2.0
// jit/plan/artifact.c: makes the artifact of a finished program: functions, sites, the encoded
// plan.
#include "jit/identity/artifact_make.h"
#include "jit/plan/program.h"

// Returns whether a launch has no wide kernel, so that calls beyond 32 bits are refused.
static bool is_narrow_only(const qn__gpu_function_t* plan) {
  for (uint32_t i = 0; i < plan->step_count; i++) {
    const qn__gpu_step_t* step = &plan->steps[i];
    if (step->kind == QN__GPU_STEP_LAUNCH && step->guard.op_count != 0 &&
        step->wide_kernel == QN__GPU_NO_KERNEL) {
      return true;
    }
  }
  return false;
}

qn_status_t qn__gpu_artifact(const qn__gpu_program_t* program, const char* format, const char* isa,
                             qn__buffer_t* payload, qn_allocator_t allocator,
                             qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  size_t count = program->function_count;
  qn_artifact_function_t* functions =
      qn__arena_alloc_array(program->arena, count + 1, sizeof *functions);
  if (!functions) return qn__out_of_memory("an artifact");
  for (size_t i = 0; i < count; i++) {
    const qn__gpu_function_ir_t* ir = &program->functions[i];
    functions[i] = (qn_artifact_function_t){.name = ir->function->name,
                                            .launch_count = ir->launch_count,
                                            .has_32_bit_indices = is_narrow_only(ir->plan),
                                            .site_count = ir->site_count,
                                            .sites = ir->sites};
  }
  qn__buffer_t plan;
  qn__buffer_init(&plan, allocator);
  qn__gpu_plan_encode(&program->plan, &plan);
  qn__artifact_parts_t parts = {format, isa, count, functions, payload, &plan};
  qn_status_t status = qn__artifact_make(allocator, &parts, out_artifact);
  qn__buffer_deinit(&plan);
  return status;
}
