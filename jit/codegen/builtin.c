// SPDX-License-Identifier: Apache-2.0
// jit/codegen/builtin.c: the two generators that need no compiler: `interp`, whose payload is the
// module itself, and `null`, whose functions do nothing (the template of docs/new-backend.md).
#include "base/alloc.h"
#include "ir/encode.h"
#include "ir/passes/passes.h"
#include "jit/codegen/generator.h"
#include "jit/codegen/interp.h"
#include "jit/identity/artifact_make.h"
#include "quern/config.h"
#include "target/target.h"

// Makes an artifact with all functions of the request's module. With a `warp_size`, refuses those
// that require another one.
static qn_status_t make_artifact(const qn_compile_request_t* request, uint32_t warp_size,
                                 qn__artifact_parts_t* parts, qn_artifact_t** out_artifact) {
  qn__ir_body_t body;
  QN_TRY(qn__body_decode((qn_span_t){request->module_bytes, request->module_size},
                         qn_allocator_default(), &body));
  qn__pass_options_t options = {.warp_size = warp_size};
  const qn__pass_t* passes[] = {&qn__pass_target_values};
  qn_status_t status = qn__passes_run(&body, &options, passes, warp_size ? 1 : 0);
  qn_artifact_function_t* functions =
      qn__arena_alloc_array(&body.arena, body.function_count + 1, sizeof *functions);
  if (qn_ok(status) && !functions) status = qn__out_of_memory("an artifact");
  for (qn__ir_func_t* f = body.first; f && qn_ok(status); f = f->next) {
    functions[parts->function_count++] =
        (qn_artifact_function_t){.name = f->name, .launch_count = 1};
  }
  parts->isa = "{}";
  parts->functions = functions;
  if (qn_ok(status)) status = qn__artifact_make(qn_allocator_default(), parts, out_artifact);
  qn__body_deinit(&body);
  return status;
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
// Makes an artifact whose payload is the module and whose metadata is the target's warp_size.
static qn_status_t interp_compile(void* self, const qn_compile_request_t* request,
                                  qn_artifact_t** out_artifact) {
  (void)self;
  int64_t warp_size = QN__INTERP_WARP_SIZE;
  qn_target_t* target = NULL;
  *out_artifact = NULL;
  QN_TRY(qn__target_parse(qn__str(request->target_json), qn_allocator_default(), &target));
  (void)qn_target_get_int(target, "warp_size", &warp_size);
  qn_target_release(target);
  qn__buffer_t payload, metadata;
  qn__buffer_init(&payload, qn_allocator_default());
  qn__buffer_init(&metadata, qn_allocator_default());
  qn__buffer_bytes(&payload, request->module_bytes, request->module_size);
  qn__buffer_u32(&metadata, (uint32_t)warp_size);
  qn__artifact_parts_t parts = {
      .format = QN__INTERP_FORMAT, .payload = &payload, .metadata = &metadata};
  qn_status_t status = make_artifact(request, (uint32_t)warp_size, &parts, out_artifact);
  qn__buffer_deinit(&payload);
  qn__buffer_deinit(&metadata);
  return status;
}

static const char* null_identity(void* self) {
  (void)self;
  return "null " QN_VERSION_STRING;
}
static qn_status_t null_compile(void* self, const qn_compile_request_t* request,
                                qn_artifact_t** out_artifact) {
  (void)self;
  *out_artifact = NULL;
  qn__artifact_parts_t parts = {.format = "null-1"};
  return make_artifact(request, 0, &parts, out_artifact);
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
