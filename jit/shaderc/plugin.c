// jit/shaderc/plugin.c: the table that libquern-shaderc.so exports.
//
// Thread rule: in backend.h. Read next: compile.c.
#include "jit/shaderc/compile.h"

static qn_status_t create(void** out_self) {
  qn__shaderc_t* shaderc = NULL;
  qn_status_t status = qn__shaderc_create(qn_allocator_default(), &shaderc);
  *out_self = shaderc;
  return status;
}

static void destroy(void* self) {
  qn__shaderc_destroy(self);
}

static const char* identity(void* self) {
  const qn__shaderc_t* shaderc = self;
  return shaderc->identity;
}

static qn_status_t compile(void* self, const qn_compile_request_t* request,
                           qn_artifact_t** out_artifact) {
  return qn__shaderc_compile(self, request, out_artifact);
}

static qn_status_t emit(void* self, const qn_compile_request_t* request, const char* form,
                        qn_sink_t sink) {
  return qn__shaderc_emit(self, request, form, sink);
}

static const qn_codegen_t table = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "shaderc",
    .create = create,
    .destroy = destroy,
    .identity = identity,
    .compile = compile,
    .emit = emit,
};

QN_API const qn_codegen_t* qn_codegen_entry(uint32_t abi_version);

const qn_codegen_t* qn_codegen_entry(uint32_t abi_version) {
  return abi_version == QN_CODEGEN_ABI_VERSION ? &table : NULL;
}
