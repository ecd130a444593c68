// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_pass.c: see support_pass.h.
#include "support_pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/text.h"
#include "ir/verify.h"

const qn__pass_options_t qn_test_avx2 = {.vector_bytes = 32, .has_masked_words = true};
const qn__pass_options_t qn_test_checked = {
    .vector_bytes = 32, .has_masked_words = true, .is_checked = true};

qn_status_t qn_test_try(const char* text, qn_allocator_t allocator,
                        const qn__pass_options_t* options, const qn__pass_t* const* passes,
                        size_t pass_count, char** out_text) {
  *out_text = NULL;
  qn_parse_options_t parse = {.struct_size = sizeof parse, .allocator = allocator};
  qn_module_t* module = NULL;
  QN_TRY(qn_module_parse(text, strlen(text), &parse, &module));
  qn__ir_body_t body;
  qn_status_t status = qn__body_clone(&module->body, allocator, &body);
  if (qn_ok(status)) {
    status = qn__passes_run(&body, options, passes, pass_count);
    if (qn_ok(status)) status = qn__body_verify_status(&body, "the passes");
    qn__buffer_t printed;
    qn__buffer_init(&printed, allocator);
    if (qn_ok(status)) {
      qn__text_print(&body, &printed);
      status = qn__buffer_status(&printed, "text");
    }
    if (qn_ok(status)) {
      *out_text = malloc(printed.size + 1);
      if (*out_text) memcpy(*out_text, printed.data, printed.size + 1);
    }
    qn__buffer_deinit(&printed);
    qn__body_deinit(&body);
  }
  qn_module_release(module);
  return status;
}

char* qn_test_pass(const char* text, const qn__pass_options_t* options,
                   const qn__pass_t* const* passes, size_t pass_count) {
  char* printed = NULL;
  qn_status_t status =
      qn_test_try(text, qn_allocator_default(), options, passes, pass_count, &printed);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  return printed;
}

typedef struct line {
  const char* begin;
  size_t size;
} line_t;

// Takes the next line off `*inout_text`, without the spaces around it. False at the end.
static bool next_line(const char** inout_text, line_t* out) {
  const char* text = *inout_text;
  if (*text == 0) return false;
  size_t size = strcspn(text, "\n");
  *inout_text = text + size + (text[size] == '\n');
  while (size > 0 && *text == ' ') ++text, --size;
  while (size > 0 && text[size - 1] == ' ') --size;
  *out = (line_t){text, size};
  return true;
}

static bool equal(line_t a, line_t b) {
  return a.size == b.size && memcmp(a.begin, b.begin, a.size) == 0;
}

static bool contains(line_t line, line_t part) {
  for (size_t i = 0; i + part.size <= line.size; ++i) {
    if (memcmp(line.begin + i, part.begin, part.size) == 0) return true;
  }
  return false;
}

void qn_test_expect_all(const qn__pass_t* const* passes, size_t pass_count,
                        const qn__pass_options_t* options, const char* text, const char* expected) {
  char* printed = qn_test_pass(text, options, passes, pass_count);
  const char* rest = printed;
  const char* wanted = expected;
  line_t line, found, banned = {NULL, 0};
  while (next_line(&wanted, &line)) {
    if (line.size == 0) continue;
    if (line.begin[0] == '!') {
      banned = (line_t){line.begin + 1, line.size - 1};
      while (banned.size > 0 && *banned.begin == ' ') ++banned.begin, --banned.size;
      continue;
    }
    bool is_found = false;
    while (!is_found && next_line(&rest, &found)) {
      if (banned.begin && contains(found, banned)) {
        fail_msg("unwanted line '%.*s' in\n%s", (int)banned.size, banned.begin, printed);
      }
      is_found = equal(found, line);
    }
    if (!is_found) fail_msg("no line '%.*s' in\n%s", (int)line.size, line.begin, printed);
    banned.begin = NULL;
  }
  while (banned.begin && next_line(&rest, &found)) {
    if (equal(found, banned)) {
      fail_msg("unwanted line '%.*s' in\n%s", (int)banned.size, banned.begin, printed);
    }
  }
  free(printed);
}

void qn_test_expect(const qn__pass_t* pass, const qn__pass_options_t* options, const char* text,
                    const char* expected) {
  qn_test_expect_all(&pass, 1, options, text, expected);
}
