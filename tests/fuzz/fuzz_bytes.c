// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_bytes.c: reads arbitrary bytes as the canonical bytes of a module.
//
// A module that decodes must encode to the same bytes, and can be copied, walked and printed; its
// text must parse to the same bytes, and the public walk must show all of it. A failure to decode
// must give a message.
// sources: tests/support/reencode.c
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ir/encode.h"
#include "quern/ir.h"
#include "tests/support/reencode.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void require(bool is_true) {
  if (!is_true) abort();
}

static void require_bytes(const qn_module_t* module, const uint8_t* data, size_t size) {
  size_t own_size;
  const void* own = qn_module_bytes(module, &own_size);
  require(own_size == size && memcmp(own, data, size) == 0);
}

// A copy of the body encodes to the same.
static void check_copy(const qn_module_t* module, const uint8_t* data, size_t size) {
  qn__ir_body_t copy;
  require(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &copy)));
  for (qn__ir_func_t* function = copy.first; function; function = function->next) {
    qn__function_number(function);
  }
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn__body_encode(&copy, &bytes);
  require(!bytes.has_failed && bytes.size == size && memcmp(bytes.data, data, size) == 0);
  qn__buffer_deinit(&bytes);
  qn__body_deinit(&copy);
}

// What the public walk shows is all that the bytes say.
static void check_walk(const qn_module_t* module, const uint8_t* data, size_t size) {
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn_reencode(module, QN_PLACES_OWN, &bytes, NULL);
  require(bytes.size == size && memcmp(bytes.data, data, size) == 0);
  qn__buffer_deinit(&bytes);
}

static void check_text(const qn_module_t* module, const uint8_t* data, size_t size) {
  char* text = NULL;
  size_t text_size;
  require(qn_ok(qn_module_print(module, &text, &text_size)));
  qn_module_t* again = NULL;
  qn_status_t status = qn_module_parse(text, text_size, NULL, &again);
  require(qn_ok(status));
  require_bytes(again, data, size);
  qn_module_release(again);
  qn_text_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_decode(data, size, NULL, &module);
  if (!qn_ok(status)) {
    require(!module && qn_status_message(status)[0] != '\0');
    qn_status_free(status);
    return 0;
  }
  require_bytes(module, data, size);
  check_copy(module, data, size);
  check_walk(module, data, size);
  check_text(module, data, size);
  qn_module_release(module);
  return 0;
}
