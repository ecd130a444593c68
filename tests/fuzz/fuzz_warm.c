// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_warm.c: reads arbitrary bytes as a list of qn_warm, as a recorded line, and as a
// message between coordinator and worker. Input that decodes must encode to the same bytes.
//
// The first byte selects the format. Files named by a list are looked up in a folder that does not
// exist.
#include <stdlib.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "jit/observe/record.h"
#include "warm/list.h"
#include "warm/message.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check(bool is_true) {
  if (!is_true) abort();
}

static void count_problem(void* self, const qn_warm_problem_t* problem) {
  size_t* count = self;
  check(problem->line > 0 && strlen(problem->message) > 0);
  ++*count;
}

static void read_list(const char* text, size_t size) {
  qn_warm_list_t* list;
  if (qn_status_consume(qn_warm_list_create(&list)) != QN_STATUS_OK) return;
  size_t heard_count = 0, problem_count;
  qn_warm_read_options_t options = {.struct_size = sizeof options,
                                    .directory = "/nowhere",
                                    .on_problem = count_problem,
                                    .on_problem_self = &heard_count};
  qn_status_code_t code =
      qn_status_consume(qn_warm_list_read(list, text, size, &options, &problem_count));
  check(code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY);
  check(heard_count == problem_count);
  qn_warm_list_destroy(list);
}

static void parse_line(const char* text, size_t size) {
  qn__warm_recorded_t recorded, again;
  if (qn_status_consume(qn__warm_recorded_parse((qn__warm_span_t){text, size}, &recorded)) !=
      QN_STATUS_OK) {
    return;
  }
  qn_hash128_t key;
  check(qn__hash128_parse(qn__str(recorded.key), &key));
  qn_compile_request_t request = {.struct_size = sizeof request,
                                  .module_bytes = recorded.module,
                                  .module_size = recorded.module_size,
                                  .target_json = recorded.target_json,
                                  .tier = recorded.tier,
                                  .is_checked = recorded.is_checked};
  qn__buffer_t line;
  qn__buffer_init(&line, qn_allocator_default());
  qn__record_format(key, &request, recorded.name, &line);
  check(!line.has_failed);
  check(qn_status_consume(qn__warm_recorded_parse(
            (qn__warm_span_t){(char*)line.data, line.size - 1}, &again)) == QN_STATUS_OK);
  check(strcmp(recorded.name, again.name) == 0 && recorded.module_size == again.module_size &&
        memcmp(recorded.module, again.module, again.module_size) == 0);
  qn__warm_recorded_deinit(&again);
  qn__buffer_deinit(&line);
  qn__warm_recorded_deinit(&recorded);
}

static void decode_message(const char* data, size_t size) {
  qn__warm_message_t message;
  if (!qn__warm_message_decode((qn__warm_span_t){data, size}, &message)) return;
  qn__warm_bytes_t frame = {.allocator = qn_allocator_default()};
  qn__warm_message_encode(&message, &frame);
  size_t body_size = 0;
  check(!frame.has_failed && qn__warm_message_length(frame.data, &body_size));
  check(body_size == size && frame.size == size + QN__WARM_LENGTH_BYTES);
  check(memcmp(frame.data + QN__WARM_LENGTH_BYTES, data, size) == 0);
  qn__warm_bytes_deinit(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const char* text = (const char*)data + 1;
  switch (data[0]) {
    case 'L':
      read_list(text, size - 1);
      break;
    case 'R':
      parse_line(text, size - 1);
      break;
    default:
      decode_message(text, size - 1);
      break;
  }
  return 0;
}
