// SPDX-License-Identifier: Apache-2.0
// devices/gpu/load.c: plans as devices see them (quern/gpu.h): loading, describing, writing.
//
// Read next: plan.c, run.c.
#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "devices/gpu/plan.h"

static qn_status_t read_runner(const qn_gpu_runner_t* runner, qn_gpu_runner_t* out) {
  if (runner->abi_version != QN_GPU_ABI_VERSION) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a runner of launch plans of ABI version %u is expected, not %u",
                          QN_GPU_ABI_VERSION, runner->abi_version);
  }
  QN_STRUCT_READ(qn_gpu_runner_t, runner, given);
  const qn__required_t required[] = {QN_REQUIRED(&given, workspace_allocate),
                                     QN_REQUIRED(&given, workspace_free),
                                     QN_REQUIRED(&given, launch)};
  QN_TRY(qn__require_members("qn_gpu_runner_t", NULL, required, QN_COUNT_OF(required)));
  *out = given;
  return QN_OK;
}

static qn_status_t decode(const qn_artifact_t* artifact, qn_gpu_plan_t* plan) {
  const qn_span_t metadata = {artifact->metadata, artifact->metadata_size};
  QN_TRY(qn__gpu_plan_decode(metadata, artifact->payload_size, &plan->arena, &plan->decoded));
  if (plan->decoded.function_count == artifact->function_count) return QN_OK;
  return qn_status_make(QN_STATUS_DATA_LOSS,
                        "artifact: its plan has another number of functions: %u, not %zu",
                        plan->decoded.function_count, artifact->function_count);
}

qn_status_t qn_gpu_plan_load(const qn_artifact_t* artifact, const qn_gpu_runner_t* runner,
                             uint32_t max_threads, qn_gpu_plan_t** out_plan) {
  QN_REQUIRE(out_plan);
  *out_plan = NULL;
  QN_REQUIRE(artifact, runner);
  QN_STRUCT_READ(qn_artifact_t, artifact, given);
  qn_gpu_runner_t own;
  QN_TRY(read_runner(runner, &own));
  qn_gpu_plan_t* plan = qn__alloc_zero(qn_allocator_default(), 1, sizeof *plan);
  if (!plan) return qn__out_of_memory("a launch plan");
  plan->runner = own;
  plan->max_threads = max_threads;
  qn__arena_init(&plan->arena, qn_allocator_default());
  qn_status_t status = decode(&given, plan);
  if (qn_ok(status)) {
    *out_plan = plan;
  } else {
    qn_gpu_plan_destroy(plan);
  }
  return status;
}

void qn_gpu_plan_destroy(qn_gpu_plan_t* plan) {
  if (!plan) return;
  qn__arena_deinit(&plan->arena);
  qn__free(qn_allocator_default(), plan, sizeof *plan);
}

// ------------------------------------------------------------------------------------ reading

uint32_t qn_gpu_plan_kernel_count(const qn_gpu_plan_t* plan) {
  return plan ? plan->decoded.kernel_count : 0;
}

qn_status_t qn_gpu_plan_kernel(const qn_gpu_plan_t* plan, uint32_t index,
                               qn_gpu_kernel_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_gpu_kernel_info_t, out_info);
  QN_REQUIRE(plan);
  if (index >= plan->decoded.kernel_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "kernel %u of a launch plan that has %u",
                          index, plan->decoded.kernel_count);
  }
  const qn__gpu_kernel_t* kernel = &plan->decoded.kernels[index];
  qn_gpu_kernel_info_t info = {.name = kernel->name,
                               .code_offset = kernel->code_offset,
                               .code_size_bytes = kernel->code_size_bytes,
                               .thread_count = kernel->thread_count,
                               .shared_bytes = kernel->shared_bytes,
                               .dynamic_shared_bytes = kernel->dynamic_shared_bytes,
                               .has_record = kernel->has_record,
                               .is_first_choice = kernel->is_first_choice,
                               .buffer_count = kernel->buffer_count,
                               .arg_count = kernel->arg_count,
                               .args = kernel->args};
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

uint32_t qn_gpu_plan_function_count(const qn_gpu_plan_t* plan) {
  return plan ? plan->decoded.function_count : 0;
}

qn_status_t qn_gpu_plan_function(const qn_gpu_plan_t* plan, uint32_t index,
                                 qn_gpu_function_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_gpu_function_info_t, out_info);
  QN_REQUIRE(plan);
  if (index >= plan->decoded.function_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function %u of a launch plan that has %u",
                          index, plan->decoded.function_count);
  }
  const qn__gpu_function_t* function = &plan->decoded.functions[index];
  qn_gpu_function_info_t info = {.step_count = function->step_count,
                                 .workspace_count = function->workspace_count,
                                 .has_record = function->has_record};
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

qn_status_t qn_gpu_plan_write(const qn_gpu_plan_t* plan, qn_sink_t sink) {
  QN_REQUIRE(plan, sink.write);
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  for (uint32_t i = 0; i < plan->decoded.function_count; i++) {
    const qn__gpu_function_t* function = &plan->decoded.functions[i];
    qn__buffer_format(&text, "function %u: %u words, %u steps\n", i, function->word_count,
                      function->step_count);
    qn__gpu_plan_text(&plan->decoded, i, &text);
  }
  qn_status_t status = qn__buffer_status(&text, "the text of a launch plan");
  if (qn_ok(status)) status = sink.write(sink.self, text.data, text.size);
  qn__buffer_deinit(&text);
  return status;
}
