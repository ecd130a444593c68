// jit/nvrtc/plugin.c: the table that libquern-nvrtc.so exports.
//
// Thread rule: in backend.h. Read next: compile.c.
#include "jit/nvrtc/compile.h"

static qn_status_t create(void** out_self) {
  qn__nvrtc_t* nvrtc = NULL;
  qn_status_t status = qn__nvrtc_create(qn_allocator_default(), &nvrtc);
  *out_self = nvrtc;
  return status;
}

static void destroy(void* self) {
  qn__nvrtc_destroy(self);
}

static const char* identity(void* self) {
  const qn__nvrtc_t* nvrtc = self;
  return nvrtc->identity;
}

static qn_status_t compile(void* self, const qn_compile_request_t* request,
                           qn_artifact_t** out_artifact) {
  return qn__nvrtc_compile(self, request, out_artifact);
}

static qn_status_t emit(void* self, const qn_compile_request_t* request, const char* form,
                        qn_sink_t sink) {
  return qn__nvrtc_emit(self, request, form, sink);
}

static const qn_codegen_t table = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "nvrtc",
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
