// SPDX-License-Identifier: Apache-2.0
// jit/engine/key.c: makes keys. Every input of code generation is in a key, and nothing else: no
// paths, times, process ids or device ordinals.
//
// Read next: cache/preimage.h.
#include <stdio.h>

#include "base/struct_size.h"
#include "jit/engine/engine.h"
#include "target/target.h"

// Returns the thread's active device, if it is of the target's type.
static qn_device_t device_of(const qn_target_t* target) {
  int32_t type = target->kind->info->device_type;
  if (type == QN_DEVICE_CPU) return (qn_device_t){type, 0};  // the only one; a hit must be fast
  qn_device_t active = qn_active_device();
  return (qn_device_t){type, active.type == type ? active.id : 0};
}

qn_status_t qn__request_init(const qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                             const qn_lookup_options_t* options, qn__request_t* out_request) {
  *out_request = (qn__request_t){.module = module,
                                 .target = target,
                                 .tier = QN_TIER_FULL,
                                 .device = device_of(target),
                                 .is_forbidden = engine->is_forbidden};
  if (!options) return QN_OK;
  QN_STRUCT_READ(qn_lookup_options_t, options, given);
  if (given.tier != 0) out_request->tier = given.tier;
  if (out_request->tier != QN_TIER_FULL && out_request->tier != QN_TIER_FAST) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "tier %d is not a qn_tier_t",
                          (int)given.tier);
  }
  if (given.miss < QN_MISS_BLOCK || given.miss > QN_MISS_FAIL) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "miss: %d is not a qn_miss_policy_t",
                          (int)given.miss);
  }
  if (given.time_limit_ns < 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "time_limit_ns is %" PRId64 "; it must not be negative, and 0 is none",
                          given.time_limit_ns);
  }
  out_request->is_checked = given.is_checked;
  out_request->miss = given.miss;
  out_request->is_forbidden |= given.miss == QN_MISS_FAIL;
  out_request->timeout_ns = given.time_limit_ns;
  out_request->priority = given.priority;
  out_request->generic = given.generic;
  return QN_OK;
}

qn__ident_t qn__request_ident(const qn__request_t* request) {
  qn__ident_t ident;
  memset(&ident, 0, sizeof ident);
  ident.module_digest = request->module->digest;
  ident.module_second_digest = request->module->second_digest;
  memcpy(ident.target_digest.bytes, qn_target_digest(request->target), 16);
  // Two devices of one type share entries in the directory, but not loaded executables.
  ident.options = (uint64_t)request->tier | (request->is_checked ? 1u << 8 : 0) |
                  (uint64_t)(uint32_t)request->device.id << 16;
  // A compile ahead shares its task with others like it only. One that forbids a compile keeps its
  // own, because it must not run the compile of another caller in its thread.
  if (request->is_ahead) ident.options |= request->is_forbidden ? 3u << 9 : 1u << 9;
  // One of the background is compiled at the lowest priority: no other caller must wait for it.
  if (request->is_background) ident.options |= 1u << 11;
  return ident;
}

static qn_span_t text_span(const char* text) {
  return (qn_span_t){(const uint8_t*)text, strlen(text)};
}

qn_status_t qn__key_make(const qn__request_t* request, const char* generator_identity,
                         const char* cache_namespace, qn__buffer_t* out_preimage,
                         qn_hash128_t* out_key) {
  const uint32_t schema[] = {1, QN_CPU_ABI_VERSION, QN_CODEGEN_ABI_VERSION};
  uint8_t schema_bytes[sizeof schema];
  for (size_t i = 0; i < sizeof schema; i++) {
    schema_bytes[i] = (uint8_t)(schema[i / 4] >> (8 * (i % 4)));
  }
  char options[64];
  (void)snprintf(options, sizeof options, "tier=%s checked=%d",
                 request->tier == QN_TIER_FAST ? "fast" : "full", request->is_checked);
  const qn_module_t* module = request->module;
  qn__preimage_begin(out_preimage);
  qn__preimage_add(out_preimage, QN__SECTION_SCHEMA,
                   (qn_span_t){schema_bytes, sizeof schema_bytes});
  qn__preimage_add_module(out_preimage, module->byte_count, module->digest, &module->second_digest);
  qn__preimage_add(out_preimage, QN__SECTION_TARGET, text_span(qn_target_json(request->target)));
  qn__preimage_add(out_preimage, QN__SECTION_GENERATOR, text_span(generator_identity));
  qn__preimage_add(out_preimage, QN__SECTION_OPTIONS, text_span(options));
  qn__preimage_add(out_preimage, QN__SECTION_NAMESPACE, text_span(cache_namespace));
  QN_TRY(qn__buffer_status(out_preimage, "the key of a lookup"));
  *out_key = qn__preimage_key(qn__buffer_as_span(out_preimage));
  return QN_OK;
}

const char* qn__request_name(const qn__request_t* request) {
  const qn_module_t* module = request->module;
  return module->body.function_count ? module->functions[0]->name : "module";
}

void qn__key_describe(const qn__request_t* request, qn_hash128_t key, char out_hex[33],
                      char out_name[128]) {
  qn__hash128_hex(key, out_hex);
  (void)snprintf(out_name, 128, "%.100s@%.12s", qn__request_name(request), out_hex);
}

qn_compile_request_t qn__compile_request(const qn__request_t* request) {
  return (qn_compile_request_t){
      .struct_size = sizeof(qn_compile_request_t),
      .module_bytes = request->module->bytes,
      .module_size = request->module->byte_count,
      .target_json = qn_target_json(request->target),
      .tier = request->tier,
      .is_checked = request->is_checked,
  };
}
