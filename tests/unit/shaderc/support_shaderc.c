// SPDX-License-Identifier: Apache-2.0
// tests/unit/shaderc/support_shaderc.c: see support_shaderc.h.
#include "support_shaderc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buffer.h"

static qn__shaderc_t* shaderc;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(void) {
  qn_status_t status = qn__shaderc_create(qn_allocator_default(), &shaderc);
  if (qn_ok(status)) return;
  (void)fprintf(stderr, "%s\n", qn_status_message(status));
  exit(1);
}

qn__shaderc_t* the_shaderc(void) {
  (void)pthread_once(&once, make);
  return shaderc;
}

qn_module_t* parse(const char* text) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "%s\n%s\n", text, qn_status_message(status));
    exit(1);
  }
  return module;
}

static qn_status_t make_request(const qn_module_t* module, const request_t* request,
                                qn_target_t** out_target, qn_compile_request_t* out) {
  QN_TRY(qn_target_parse(request->target, out_target));
  *out = (qn_compile_request_t){
      .struct_size = sizeof *out,
      .target_json = qn_target_json(*out_target),
      .tier = request->tier ? request->tier : QN_TIER_FULL,
      .is_checked = request->is_checked,
  };
  out->module_bytes = qn_module_bytes(module, &out->module_size);
  return QN_OK;
}

qn_status_t compile(const qn_module_t* module, const request_t* request, compiled_t* out) {
  memset(out, 0, sizeof *out);
  qn_target_t* target = NULL;
  qn_compile_request_t made;
  qn_status_t status = make_request(module, request, &target, &made);
  if (qn_ok(status)) status = qn__shaderc_compile(the_shaderc(), &made, &out->artifact);
  qn_target_release(target);
  if (!qn_ok(status)) return status;
  qn__arena_init(&out->arena, qn_allocator_default());
  qn_span_t metadata = {out->artifact->metadata, out->artifact->metadata_size};
  status = qn__gpu_plan_decode(metadata, out->artifact->payload_size, &out->arena, &out->plan);
  if (!qn_ok(status)) compiled_release(out);
  return status;
}

void compiled_release(compiled_t* compiled) {
  if (!compiled->artifact) return;
  if (compiled->artifact->release) compiled->artifact->release(compiled->artifact);
  qn__arena_deinit(&compiled->arena);
  compiled->artifact = NULL;
}

const char* validate(const compiled_t* compiled, const char* target) {
  static _Thread_local char message[600];
  qn__shaderc_options_t options = {.vulkan_minor = 2, .spirv_minor = 5};
  if (strstr(target, "\"1.1\""))
    options = (qn__shaderc_options_t){.vulkan_minor = 1, .spirv_minor = 3};
  if (strstr(target, "\"1.3\""))
    options = (qn__shaderc_options_t){.vulkan_minor = 3, .spirv_minor = 6};
  for (uint32_t i = 0; i < compiled->plan.kernel_count; ++i) {
    const qn__gpu_kernel_t* kernel = &compiled->plan.kernels[i];
    if (kernel->code_offset % 4 != 0) return "the code of a kernel is not aligned";
    qn_span_t words = {(const uint8_t*)compiled->artifact->payload + kernel->code_offset,
                       kernel->code_size_bytes};
    qn_status_t status = qn__shaderc_validate(words, &options);
    if (qn_ok(status)) continue;
    (void)snprintf(message, sizeof message, "kernel %u: %s", i, qn_status_message(status));
    qn_status_free(status);
    return message;
  }
  return NULL;
}

static qn_status_t append(void* self, const void* data, size_t size_bytes) {
  qn__buffer_bytes(self, data, size_bytes);
  return QN_OK;
}

static qn_status_t emit_to(const qn_module_t* module, const request_t* request, const char* form,
                           qn__buffer_t* out) {
  qn_target_t* target = NULL;
  qn_compile_request_t made;
  qn_status_t status = make_request(module, request, &target, &made);
  if (qn_ok(status))
    status = qn__shaderc_emit(the_shaderc(), &made, form, (qn_sink_t){out, append});
  qn_target_release(target);
  return status;
}

qn_status_t try_emit(const qn_module_t* module, const request_t* request, const char* form) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn_status_t status = emit_to(module, request, form, &text);
  qn__buffer_deinit(&text);
  return status;
}

char* emit(const qn_module_t* module, const request_t* request, const char* form) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn_status_t status = emit_to(module, request, form, &text);
  char* result = NULL;
  if (qn_ok(status)) {
    result = calloc(text.size + 1, 1);
    if (result && text.size > 0) memcpy(result, text.data, text.size);
  } else {
    (void)fprintf(stderr, "%s\n", qn_status_message(status));
    qn_status_free(status);
  }
  qn__buffer_deinit(&text);
  return result;
}

char* read_text(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) return NULL;
  size_t capacity = 1 << 20;
  char* text = calloc(capacity, 1);
  size_t size = text ? fread(text, 1, capacity - 1, file) : 0;
  if (text) text[size] = '\0';
  (void)fclose(file);
  return text;
}

const char* compile_everywhere(const char* text, const char* target, bool is_short) {
  static _Thread_local char message[900];
  qn_module_t* module = parse(text);
  const char* problem = NULL;
  for (uint32_t i = 0; i < 4 && !problem; i += is_short ? 3 : 1) {
    request_t request = {target, i & 1 ? QN_TIER_FAST : QN_TIER_FULL, (i & 2) != 0};
    compiled_t compiled;
    qn_status_t status = compile(module, &request, &compiled);
    if (qn_ok(status)) {
      problem = validate(&compiled, target);
      if (problem) (void)snprintf(message, sizeof message, "%s", problem);
    } else {
      (void)snprintf(message, sizeof message, "%s", qn_status_message(status));
      problem = message;
      qn_status_free(status);
    }
    compiled_release(&compiled);
    if (problem) {
      (void)fprintf(stderr, "%s tier, %s: %s\n", i & 1 ? "fast" : "full",
                    i & 2 ? "checked" : "unchecked", message);
    }
  }
  qn_module_release(module);
  return problem ? message : NULL;
}
