// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_target.c: reads arbitrary text as a target and as the requirements of code. The
// canonical form of a text that parses must be a fixed point.
#include <stdint.h>
#include <stdlib.h>

#include "target/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  qn_allocator_t allocator = qn_allocator_default();
  qn_target_t* target = NULL;
  qn_status_t status = qn__target_parse((qn_str_t){(const char*)data, size}, allocator, &target);
  if (qn_ok(status)) {
    qn_target_t* again = NULL;
    const char* json = qn_target_json(target);
    if (qn_status_consume(qn_target_parse(json, &again)) != QN_STATUS_OK) abort();
    if (strcmp(json, qn_target_json(again)) != 0) abort();
    qn_target_release(again);
    qn_target_release(target);
  } else {
    if (target || qn_status_message(status)[0] == '\0') abort();
    qn_status_free(status);
  }
  char* text = qn__copy_cstr(allocator, (qn_str_t){(const char*)data, size});
  if (!text) return 0;
  (void)qn_status_consume(qn__isa_json_check(text));
  qn__free_cstr(allocator, text);
  return 0;
}
