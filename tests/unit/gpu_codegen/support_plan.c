// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/support_plan.c: see support_plan.h.
#include "tests/unit/gpu_codegen/support_plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/encode.h"
#include "ir/verify.h"

qn__gpu_lower_options_t lower_options(void) {
  return (qn__gpu_lower_options_t){.passes = {.warp_size = 32,
                                              .max_threads = 1024,
                                              .preferred_threads = 256,
                                              .max_shared_bytes = 49152,
                                              .multiprocessors = 100,
                                              .has_shuffles = true,
                                              .has_block_reductions = true},
                                   .has_names = true};
}

qn_status_t lower_text(const char* text, const qn__gpu_lower_options_t* options,
                       qn_allocator_t allocator, lowered_t* out) {
  memset(out, 0, sizeof *out);
  QN_TRY(qn_module_parse(text, strlen(text), NULL, &out->module));
  size_t size;
  const void* bytes = qn_module_bytes(out->module, &size);
  qn_status_t status = qn__body_decode((qn_span_t){bytes, size}, allocator, &out->body);
  if (!qn_ok(status)) {
    qn_module_release(out->module);
    return status;
  }
  qn__arena_init(&out->arena, allocator);
  status = qn__gpu_lower(&out->body, options, &out->arena, &out->program);
  if (!qn_ok(status)) lowered_release(out);
  return status;
}

void lowered_release(lowered_t* lowered) {
  qn__arena_deinit(&lowered->arena);
  qn__body_deinit(&lowered->body);
  qn_module_release(lowered->module);
}

void decode_again(const lowered_t* lowered, qn__arena_t* arena, qn__gpu_plan_t* out) {
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn__gpu_plan_encode(&lowered->program.plan, &bytes);
  qn_status_t status = qn__gpu_plan_decode(qn__buffer_as_span(&bytes), 0, arena, out);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "%s\n", qn_status_message(status));
    abort();
  }
  qn__buffer_deinit(&bytes);
}

char* plan_text(const qn__gpu_plan_t* plan) {
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__buffer_cstr(&out, "");
  for (uint32_t i = 0; i < plan->function_count; i++) qn__gpu_plan_text(plan, i, &out);
  char* text = malloc(out.size + 1);
  if (!text) abort();
  memcpy(text, out.data, out.size + 1);
  qn__buffer_deinit(&out);
  return text;
}

char* read_source(const char* path) {
  char full[512];
  (void)snprintf(full, sizeof full, "%s/%s", QN_SOURCE_DIR, path);
  FILE* file = fopen(full, "rb");
  if (!file) abort();
  char* text = calloc(1, 1 << 20);
  if (!text) abort();
  size_t size = fread(text, 1, (1 << 20) - 1, file);
  text[size] = '\0';
  (void)fclose(file);
  return text;
}
