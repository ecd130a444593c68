// SPDX-License-Identifier: Apache-2.0
// jit/plan/program.c: programs for code generators of others (quern/gpu.h): the planner of quern's
// own, behind handles of a module.
#include "jit/plan/program.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "jit/lower/lower.h"

struct qn_gpu_program {
  qn_module_t* module;  // retained: kernels are nodes of it
  qn__arena_t arena;
  qn__gpu_program_t inner;  // in the arena
};

static qn_status_t read_options(const qn_gpu_program_options_t* given,
                                qn__gpu_lower_options_t* out) {
  qn_gpu_program_options_t options;
  qn_machine_t machine;
  QN_TRY(qn__struct_read("qn_gpu_program_options_t", 0, given, &options, sizeof options));
  QN_TRY(qn__struct_read("qn_machine_t", 0, options.machine, &machine, sizeof machine));
  if (options.index_bits != 0 && options.index_bits != 32 && options.index_bits != 64) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "index_bits is %" PRIu32 "; it is 0, 32 or 64", options.index_bits);
  }
  *out = (qn__gpu_lower_options_t){
      .passes = qn__lower_pass_options(&machine, QN_TIER_FULL, options.is_checked),
      .index_bits = options.index_bits,
      .has_names = true};
  return QN_OK;
}

qn_status_t qn_gpu_program_create(const qn_module_t* module,
                                  const qn_gpu_program_options_t* options,
                                  qn_gpu_program_t** out_program) {
  QN_REQUIRE(out_program);
  *out_program = NULL;
  QN_REQUIRE(module);
  qn__gpu_lower_options_t own;
  QN_TRY(read_options(options, &own));
  if (!module->is_mapped) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "the module has no launches of blocks and threads; lower it by the "
                          "pipeline 'gpu' (qn_module_lower), and by no other");
  }
  qn_gpu_program_t* program = qn__alloc_zero(qn_allocator_default(), 1, sizeof *program);
  if (!program) return qn__out_of_memory("a program");
  program->module = (qn_module_t*)(uintptr_t)module;
  qn_module_retain(program->module);
  qn__arena_init(&program->arena, qn_allocator_default());
  qn_status_t status =
      qn__gpu_split(&program->module->body, &own, &program->arena, &program->inner);
  if (qn_ok(status)) {
    *out_program = program;
  } else {
    qn_gpu_program_destroy(program);
  }
  return status;
}

void qn_gpu_program_destroy(qn_gpu_program_t* program) {
  if (!program) return;
  qn__arena_deinit(&program->arena);
  qn_module_release(program->module);
  qn__free(qn_allocator_default(), program, sizeof *program);
}

// ------------------------------------------------------------------------------------ kernels

uint32_t qn_gpu_program_kernel_count(const qn_gpu_program_t* program) {
  return program ? program->inner.kernel_count : 0;
}

static qn_status_t find_kernel(const qn_gpu_program_t* program, uint32_t index,
                               qn__gpu_kernel_ir_t** out_kernel) {
  *out_kernel = NULL;
  if (index < program->inner.kernel_count) {
    *out_kernel = &program->inner.kernels[index];
    return QN_OK;
  }
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "kernel %" PRIu32 " of a program that has %" PRIu32, index,
                        program->inner.kernel_count);
}

qn_status_t qn_gpu_program_kernel(const qn_gpu_program_t* program, uint32_t index,
                                  qn_gpu_kernel_source_t* out_source) {
  QN_REQUIRE(out_source);
  QN_STRUCT_CLEAR(qn_gpu_kernel_source_t, out_source);
  QN_REQUIRE(program);
  qn__gpu_kernel_ir_t* kernel;
  QN_TRY(find_kernel(program, index, &kernel));
  const qn__gpu_kernel_t* plan = kernel->plan;
  qn_gpu_kernel_source_t source = {
      .name = plan->name,
      .function_index = (size_t)(kernel->owner - program->inner.functions),
      .thread_count = plan->thread_count,
      .has_record = plan->has_record,
      .is_narrow = kernel->is_narrow,
      .arg_count = plan->arg_count,
      .args = plan->args,
      .operands = kernel->nodes,
      .root = kernel->root};
  while (source.buffer_count < plan->arg_count && kernel->nodes[source.buffer_count].buffer) {
    source.buffer_count++;
  }
  QN_STRUCT_WRITE(out_source, source);
  return QN_OK;
}

static const qn__gpu_widths_t* widths_of(const qn_gpu_program_t* program, uint32_t kernel) {
  bool is_there = program && kernel < program->inner.kernel_count;
  return is_there ? program->inner.kernels[kernel].widths : NULL;
}

bool qn_gpu_program_is_narrow_expr(const qn_gpu_program_t* program, uint32_t kernel,
                                   const qn_expr_t* expr) {
  return qn__gpu_is_narrow_expr(widths_of(program, kernel), expr);
}

bool qn_gpu_program_is_narrow_var(const qn_gpu_program_t* program, uint32_t kernel,
                                  const qn_var_t* var) {
  return var && qn__gpu_is_narrow_var(widths_of(program, kernel), var);
}

qn_status_t qn_gpu_program_add_site(qn_gpu_program_t* program, uint32_t kernel,
                                    const qn_artifact_site_t* site, uint32_t* out_site) {
  QN_REQUIRE(out_site);
  *out_site = 0;
  QN_REQUIRE(program, site);
  qn__gpu_kernel_ir_t* of;
  QN_TRY(find_kernel(program, kernel, &of));
  if (!of->plan->has_record) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "kernel '%s' has no error record, and so cannot fail", of->plan->name);
  }
  qn_artifact_site_t own = *site;
  if (own.message) own.message = qn__arena_cstr(&program->arena, qn__str(own.message));
  if (site->message && !own.message) return qn__out_of_memory("a site");
  uint32_t index = qn__gpu_site(&program->inner, of->owner, own);
  if (index == QN__GPU_NO_SITE) return qn__out_of_memory("a site");
  *out_site = index;
  return QN_OK;
}

qn_status_t qn_gpu_program_set_code(qn_gpu_program_t* program, uint32_t kernel,
                                    const qn_gpu_code_t* code) {
  QN_REQUIRE(program, code);
  QN_STRUCT_READ(qn_gpu_code_t, code, given);
  qn__gpu_kernel_ir_t* of;
  QN_TRY(find_kernel(program, kernel, &of));
  of->plan->code_offset = given.offset;
  of->plan->code_size_bytes = given.size_bytes;
  of->plan->shared_bytes = given.shared_bytes;
  of->plan->dynamic_shared_bytes = given.dynamic_shared_bytes;
  return QN_OK;
}

qn_status_t qn_gpu_program_artifact(const qn_gpu_program_t* program, const char* format,
                                    const char* isa, const void* payload, size_t payload_size,
                                    qn_artifact_t** out_artifact) {
  QN_REQUIRE(out_artifact);
  *out_artifact = NULL;
  QN_REQUIRE(program, format, isa);
  if (!payload && payload_size) return qn__null_argument(__func__, "payload");
  for (uint32_t i = 0; i < program->inner.kernel_count; i++) {
    const qn__gpu_kernel_t* plan = program->inner.kernels[i].plan;
    if (plan->code_offset <= payload_size &&
        plan->code_size_bytes <= payload_size - plan->code_offset) {
      continue;
    }
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "kernel '%s': %" PRIu64 " bytes of code at %" PRIu64
                          " are not in a payload of %zu",
                          plan->name, plan->code_size_bytes, plan->code_offset, payload_size);
  }
  qn__buffer_t code;
  qn__buffer_init(&code, qn_allocator_default());
  qn__buffer_bytes(&code, payload, payload_size);
  qn_status_t status =
      qn__gpu_artifact(&program->inner, format, isa, &code, qn_allocator_default(), out_artifact);
  qn__buffer_deinit(&code);
  return status;
}
