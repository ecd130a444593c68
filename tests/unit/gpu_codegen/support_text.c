// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/support_text.c: see support_text.h.
#include "tests/unit/gpu_codegen/support_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/encode.h"
#include "ir/text.h"

static void stop_unless_ok(qn_status_t status, const char* text) {
  if (qn_ok(status)) return;
  (void)fprintf(stderr, "%s\n%s\n", qn_status_message(status), text);
  exit(1);
}

static qn_status_t make(texts_t* texts, text_options_t options) {
  qn__gpu_lower_options_t lower = {
      .passes = {.is_checked = options.is_checked,
                 .warp_size = 32,
                 .max_threads = 1024,
                 .preferred_threads = 256,
                 .max_shared_bytes = 49152,
                 .access_bytes = 16,
                 .multiprocessors = 100,
                 .has_shuffles = true,
                 .has_block_reductions = true},
      .index_bits = options.index_bits,
      .has_names = true,
  };
  int64_t shared = 0;
  if (qn_target_get_int(texts->target, "max_shared_memory_per_block", &shared)) {
    lower.passes.max_shared_bytes = (uint32_t)shared;
  }
  QN_TRY(qn__gpu_lower(&texts->body, &lower, &texts->arena, &texts->program));
  qn__gpu_print_options_t print = {.dialect = &qn__gpu_dialect_cuda,
                                   .program = &texts->program,
                                   .target = texts->target,
                                   .has_native_fma = true,
                                   .has_int64 = true,
                                   .has_float64 = true};
  QN_TRY(qn__print_kernels(&print, 0, texts->program.kernel_count, &texts->text, &texts->lines));
  qn__text_print(&texts->body, &texts->module_text);
  return qn__buffer_status(&texts->module_text, "the text of a module");
}

qn_status_t texts_make(const char* module, text_options_t options, qn_allocator_t allocator,
                       texts_t* out_texts) {
  memset(out_texts, 0, sizeof *out_texts);
  stop_unless_ok(qn_module_parse(module, strlen(module), NULL, &out_texts->module), module);
  stop_unless_ok(qn_target_parse(options.target ? options.target : "cuda", &out_texts->target),
                 "a target");
  qn__arena_init(&out_texts->arena, allocator);
  qn__buffer_t* const buffers[] = {&out_texts->text, &out_texts->lines, &out_texts->module_text};
  for (size_t i = 0; i < QN_COUNT_OF(buffers); i++) qn__buffer_init(buffers[i], allocator);
  size_t size;
  const void* bytes = qn_module_bytes(out_texts->module, &size);
  QN_TRY(qn__body_decode((qn_span_t){bytes, size}, allocator, &out_texts->body));
  return make(out_texts, options);
}

void texts_release(texts_t* texts) {
  qn__body_deinit(&texts->body);
  qn__arena_deinit(&texts->arena);
  qn__buffer_deinit(&texts->text);
  qn__buffer_deinit(&texts->lines);
  qn__buffer_deinit(&texts->module_text);
  qn_target_release(texts->target);
  qn_module_release(texts->module);
}

static bool matches(const char* at, const char* end, const char* pattern) {
  for (; *pattern && *pattern != '*'; at++, pattern++) {
    if (at == end || *at != *pattern) return false;
  }
  if (!*pattern) return at == end;
  for (; at <= end; at++) {
    if (matches(at, end, pattern + 1)) return true;
  }
  return false;
}

bool text_has_line(const qn__buffer_t* text, const char* pattern) {
  const char* at = (const char*)text->data;
  while (at && *at) {
    const char* end = strchr(at, '\n');
    if (!end) end = at + strlen(at);
    while (*at == ' ') at++;
    if (matches(at, end, pattern)) return true;
    at = *end ? end + 1 : end;
  }
  return false;
}
