// jit/llvm/plugin.c: the table that libquern-llvm.so exports.
//
// Thread rule: in backend.h. Read next: compile.c.
#include "jit/llvm/compile.h"

static qn_status_t create(void** out_self) {
  qn__llvm_t* llvm = NULL;
  qn_status_t status = qn__llvm_create(qn_allocator_default(), &llvm);
  *out_self = llvm;
  return status;
}

static void destroy(void* self) {
  qn__llvm_destroy(self);
}

static const char* identity(void* self) {
  const qn__llvm_t* llvm = self;
  return llvm->identity;
}

static qn_status_t compile(void* self, const qn_compile_request_t* request,
                           qn_artifact_t** out_artifact) {
  return qn__llvm_compile(self, request, out_artifact);
}

static qn_status_t emit(void* self, const qn_compile_request_t* request, const char* form,
                        qn_sink_t sink) {
  return qn__llvm_emit(self, request, form, sink);
}

static const qn_codegen_t table = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "llvm",
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
