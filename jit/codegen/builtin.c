// jit/codegen/builtin.c: the two generators that need no compiler: `interp`, whose payload is the
// module itself, and `null`, whose functions do nothing (the template of docs/new-backend.md).
//
// Their artifacts name every function of the module. Thread rule: any thread. Read next: interp.h.
#include "base/alloc.h"
#include "base/arena.h"
#include "ir/encode.h"
#include "ir/passes/passes.h"
#include "jit/codegen/generator.h"
#include "jit/codegen/interp.h"
#include "quern/config.h"
#include "target/target.h"

typedef struct builtin_artifact {
  qn_artifact_t artifact;  // first: release gets this pointer back
  qn__arena_t arena;
} builtin_artifact_t;

static void release_artifact(qn_artifact_t* artifact) {
  builtin_artifact_t* self = (builtin_artifact_t*)(void*)artifact;
  qn__arena_t arena = self->arena;  // holds `self`
  qn__arena_deinit(&arena);
}

static qn_status_t fill_artifact(const qn_compile_request_t* request, const char* format,
                                 bool has_payload, builtin_artifact_t* self) {
  qn__ir_body_t body;
  QN_TRY(qn__body_decode((qn_span_t){request->module_bytes, request->module_size},
                         qn_allocator_default(), &body));
  qn_artifact_function_t* functions =
      qn__arena_alloc_array(&self->arena, body.function_count + 1, sizeof *functions);
  size_t count = 0;
  for (qn__ir_func_t* f = body.first; f && functions; f = f->next) {
    functions[count].name = qn__arena_cstr(&self->arena, qn__str(f->name));
    functions[count].launch_count = 1;
    if (!functions[count].name) break;
    count++;
  }
  bool is_complete = functions && count == body.function_count;
  qn__body_deinit(&body);
  uint8_t* payload = NULL;
  if (is_complete && has_payload) {
    payload = qn__arena_alloc(&self->arena, request->module_size);
    if (payload) memcpy(payload, request->module_bytes, request->module_size);
    is_complete = payload != NULL;
  }
  if (!is_complete) return qn__out_of_memory("an artifact");
  self->artifact = (qn_artifact_t){
      .struct_size = sizeof(qn_artifact_t),
      .format = format,
      .isa = "{}",
      .payload = payload,
      .payload_size = payload ? request->module_size : 0,
      .function_count = count,
      .functions = functions,
      .release = release_artifact,
  };
  return QN_OK;
}

static qn_status_t make_artifact(const qn_compile_request_t* request, const char* format,
                                 bool has_payload, qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  builtin_artifact_t* self = QN__ARENA_NEW(&arena, builtin_artifact_t);
  if (!self) {
    qn__arena_deinit(&arena);
    return qn__out_of_memory("an artifact");
  }
  self->arena = arena;
  qn_status_t status = fill_artifact(request, format, has_payload, self);
  if (!qn_ok(status)) {
    arena = self->arena;
    qn__arena_deinit(&arena);
    return status;
  }
  *out_artifact = &self->artifact;
  return QN_OK;
}

// Refuses functions that require another warp size than the target's.
static qn_status_t check_requirements(const qn_compile_request_t* request, int64_t warp_size) {
  qn__ir_body_t body;
  QN_TRY(qn__body_decode((qn_span_t){request->module_bytes, request->module_size},
                         qn_allocator_default(), &body));
  qn__pass_options_t options = {.warp_size = (uint32_t)warp_size};
  qn_status_t status = qn__pass_target_values.run(&body, &options);
  qn__body_deinit(&body);
  return status;
}

// The metadata: the target's warp_size.
static qn_status_t add_warp_size(const qn_compile_request_t* request, builtin_artifact_t* self) {
  qn_target_t* target = NULL;
  int64_t warp_size = QN__INTERP_WARP_SIZE;
  QN_TRY(qn__target_parse(qn__str(request->target_json), qn_allocator_default(), &target));
  (void)qn_target_get_int(target, "warp_size", &warp_size);
  qn_target_release(target);
  QN_TRY(check_requirements(request, warp_size));
  uint8_t* bytes = qn__arena_alloc(&self->arena, 4);
  if (!bytes) return qn__out_of_memory("an artifact");
  for (size_t i = 0; i < 4; i++) bytes[i] = (uint8_t)((uint64_t)warp_size >> 8 * i);
  self->artifact.metadata = bytes;
  self->artifact.metadata_size = 4;
  return QN_OK;
}

static qn_status_t create(void** out_self) {
  *out_self = NULL;
  return QN_OK;
}
static void destroy(void* self) {
  (void)self;
}

static const char* interp_identity(void* self) {
  (void)self;
  return "interp " QN_VERSION_STRING;
}
static qn_status_t interp_compile(void* self, const qn_compile_request_t* request,
                                  qn_artifact_t** out_artifact) {
  (void)self;
  QN_TRY(make_artifact(request, QN__INTERP_FORMAT, true, out_artifact));
  builtin_artifact_t* made = (builtin_artifact_t*)(void*)*out_artifact;
  qn_status_t status = add_warp_size(request, made);
  if (qn_ok(status)) return QN_OK;
  release_artifact(*out_artifact);
  *out_artifact = NULL;
  return status;
}

static const char* null_identity(void* self) {
  (void)self;
  return "null " QN_VERSION_STRING;
}
static qn_status_t null_compile(void* self, const qn_compile_request_t* request,
                                qn_artifact_t** out_artifact) {
  (void)self;
  return make_artifact(request, "null-1", false, out_artifact);
}

const qn_codegen_t qn__interp_codegen = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "interp",
    .create = create,
    .destroy = destroy,
    .identity = interp_identity,
    .compile = interp_compile,
};

const qn_codegen_t qn__null_codegen = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "null",
    .create = create,
    .destroy = destroy,
    .identity = null_identity,
    .compile = null_compile,
};
