// SPDX-License-Identifier: Apache-2.0
// jit/identity/plugin.h: the table that the loadable module of a code generator exports.
#ifndef QUERN_JIT_IDENTITY_PLUGIN_H_
#define QUERN_JIT_IDENTITY_PLUGIN_H_

#include "quern/backend.h"

// Defines qn_codegen_entry for a generator with the functions qn__GENERATOR_create, _destroy,
// _compile and _emit on its state qn__GENERATOR_t, which has a member `identity`.
#define QN__CODEGEN_PLUGIN(generator)                                                \
  static qn_status_t plugin_create(void** out_self) {                                \
    qn__##generator##_t* made = NULL;                                                \
    qn_status_t status = qn__##generator##_create(qn_allocator_default(), &made);    \
    *out_self = made;                                                                \
    return status;                                                                   \
  }                                                                                  \
  static void plugin_destroy(void* self) {                                           \
    qn__##generator##_destroy(self);                                                 \
  }                                                                                  \
  static const char* plugin_identity(void* self) {                                   \
    return ((const qn__##generator##_t*)self)->identity;                             \
  }                                                                                  \
  static qn_status_t plugin_compile(void* self, const qn_compile_request_t* request, \
                                    qn_artifact_t** out_artifact) {                  \
    return qn__##generator##_compile(self, request, out_artifact);                   \
  }                                                                                  \
  static qn_status_t plugin_emit(void* self, const qn_compile_request_t* request,    \
                                 const char* form, qn_sink_t sink) {                 \
    return qn__##generator##_emit(self, request, form, sink);                        \
  }                                                                                  \
  QN_API const qn_codegen_t* qn_codegen_entry(uint32_t abi_version);                 \
  const qn_codegen_t* qn_codegen_entry(uint32_t abi_version) {                       \
    static const qn_codegen_t table = {.abi_version = QN_CODEGEN_ABI_VERSION,        \
                                       .struct_size = sizeof(qn_codegen_t),          \
                                       .name = #generator,                           \
                                       .create = plugin_create,                      \
                                       .destroy = plugin_destroy,                    \
                                       .identity = plugin_identity,                  \
                                       .compile = plugin_compile,                    \
                                       .emit = plugin_emit};                         \
    return abi_version == QN_CODEGEN_ABI_VERSION ? &table : NULL;                    \
  }                                                                                  \
  struct qn_codegen

#endif  // QUERN_JIT_IDENTITY_PLUGIN_H_
