// SPDX-License-Identifier: Apache-2.0
// tests/unit/nvrtc/support_nvrtc.c: see support_nvrtc.h.
#include "tests/unit/nvrtc/support_nvrtc.h"

#include <stdio.h>
#include <stdlib.h>

void nvrtc_use_build_folder(void) {
  (void)setenv("VIRTUAL_ENV", QN_BINARY_DIR "/nvrtc", 0);
}

qn__nvrtc_t* nvrtc_or_null(qn_allocator_t allocator) {
  qn__nvrtc_t* nvrtc;
  qn_status_t status = qn__nvrtc_create(allocator, &nvrtc);
  if (qn_ok(status)) return nvrtc;
  (void)printf("no NVRTC here (tools/dev/get-nvrtc gets one): %s\n", qn_status_message(status));
  qn_status_free(status);
  return NULL;
}

static void stop_unless_ok(qn_status_t status, const char* text) {
  if (qn_ok(status)) return;
  (void)fprintf(stderr, "%s\n%s\n", qn_status_message(status), text);
  exit(1);
}

program_t program_make(const char* text, const char* target, qn_tier_t tier, bool is_checked) {
  program_t program = {.request = {.struct_size = sizeof(qn_compile_request_t),
                                   .tier = tier,
                                   .is_checked = is_checked}};
  stop_unless_ok(qn_module_parse(text, strlen(text), NULL, &program.module), text);
  stop_unless_ok(qn_target_parse(target, &program.target), target);
  program.request.module_bytes = qn_module_bytes(program.module, &program.request.module_size);
  program.request.target_json = qn_target_json(program.target);
  return program;
}

void program_release(program_t* program) {
  qn_module_release(program->module);
  qn_target_release(program->target);
}

static qn_status_t append(void* self, const void* data, size_t size_bytes) {
  qn__buffer_bytes(self, data, size_bytes);
  return qn__buffer_status(self, "a sink");
}

qn_sink_t sink_of(qn__buffer_t* buffer) {
  return (qn_sink_t){buffer, append};
}

char* read_source(const char* path) {
  char whole[1024];
  (void)snprintf(whole, sizeof whole, "%s/%s", QN_SOURCE_DIR, path);
  FILE* file = fopen(whole, "rb");
  char* text = calloc(1, 1 << 20);
  if (!file || !text) {
    (void)fprintf(stderr, "cannot read %s\n", whole);
    exit(1);
  }
  (void)fread(text, 1, (1 << 20) - 1, file);
  (void)fclose(file);
  return text;
}
