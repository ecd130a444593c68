// jit/gpu/artifact.c: what a generator hands over: functions, sites and the encoded plan.
//
// Everything is copied into one arena that the artifact owns; only the payload moves. Thread rule:
// one thread per program; the artifact is constant. Read next: quern/backend.h.
#include "base/alloc.h"
#include "jit/gpu/program.h"

typedef struct owned {
  qn_artifact_t base;
  qn_allocator_t allocator;
  qn__arena_t arena;
  qn__buffer_t plan;
  uint8_t* payload;
  size_t payload_capacity;
} owned_t;

static void release(qn_artifact_t* artifact) {
  owned_t* self = (owned_t*)(void*)artifact;
  qn_allocator_t allocator = self->allocator;
  qn__free(allocator, self->payload, self->payload_capacity);
  qn__buffer_deinit(&self->plan);
  qn__arena_deinit(&self->arena);
  qn__free(allocator, self, sizeof *self);
}

static bool copy_sites(qn__arena_t* arena, const qn__gpu_function_ir_t* ir,
                       qn_artifact_function_t* out) {
  qn_artifact_site_t* sites = qn__arena_alloc_array(arena, ir->site_count + 1U, sizeof *sites);
  if (!sites) return false;
  for (uint32_t i = 0; i < ir->site_count; i++) {
    sites[i] = ir->sites[i];
    if (!sites[i].message) continue;
    sites[i].message = qn__arena_cstr(arena, qn__str(ir->sites[i].message));
    if (!sites[i].message) return false;
  }
  out->sites = sites;
  out->site_count = ir->site_count;
  return true;
}

// Calls beyond 32 bits are refused where a launch has no kernel for them.
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

static bool copy_functions(const qn__gpu_program_t* program, owned_t* self) {
  size_t count = program->function_count;
  qn_artifact_function_t* functions =
      qn__arena_alloc_array(&self->arena, count + 1, sizeof *functions);
  if (!functions) return false;
  for (size_t i = 0; i < count; i++) {
    const qn__gpu_function_ir_t* ir = &program->functions[i];
    functions[i] =
        (qn_artifact_function_t){.name = qn__arena_cstr(&self->arena, qn__str(ir->function->name)),
                                 .launch_count = ir->launch_count,
                                 .has_32_bit_indices = is_narrow_only(ir->plan)};
    if (!functions[i].name || !copy_sites(&self->arena, ir, &functions[i])) return false;
  }
  self->base.function_count = count;
  self->base.functions = functions;
  return true;
}

qn_status_t qn__gpu_artifact(const qn__gpu_program_t* program, const char* format, const char* isa,
                             qn__buffer_t* payload, qn_allocator_t allocator,
                             qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  QN_TRY(qn__buffer_status(payload, "the code of kernels"));
  owned_t* self = qn__alloc_zero(allocator, 1, sizeof *self);
  if (!self) return qn__out_of_memory("an artifact");
  self->allocator = allocator;
  qn__arena_init(&self->arena, allocator);
  qn__buffer_init(&self->plan, allocator);
  qn__gpu_plan_encode(&program->plan, &self->plan);
  self->base = (qn_artifact_t){.struct_size = sizeof self->base, .release = release};
  self->base.format = qn__arena_cstr(&self->arena, qn__str(format));
  self->base.isa = qn__arena_cstr(&self->arena, qn__str(isa));
  self->base.metadata = self->plan.data;
  self->base.metadata_size = self->plan.size;
  if (!self->base.format || !self->base.isa || self->plan.has_failed ||
      !copy_functions(program, self)) {
    release(&self->base);
    return qn__out_of_memory("an artifact");
  }
  self->payload = qn__buffer_take(payload, &self->base.payload_size, &self->payload_capacity);
  self->base.payload = self->payload;
  *out_artifact = &self->base;
  return QN_OK;
}
