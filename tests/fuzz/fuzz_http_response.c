// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_http_response.c: reads arbitrary bytes as an HTTP answer, in one piece and byte
// by byte. Both must come to the same result.
#include "bench/serve/http_response.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BODY_BYTES = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static size_t feed(http_response_t* response, const uint8_t* data, size_t size, size_t piece) {
  size_t used = 0;
  http_response_init(response, MAX_BODY_BYTES);
  while (used < size && response->state != HTTP_DONE && response->state != HTTP_FAILED) {
    size_t next = piece < size - used ? piece : size - used;
    size_t taken = http_response_feed(response, data + used, next);
    if (taken > next || taken == 0) abort();
    used += taken;
  }
  http_response_end(response);
  return used;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static http_response_t whole;
  static http_response_t pieces;
  size_t used = feed(&whole, data, size, size);
  size_t used_in_pieces = feed(&pieces, data, size, 1);
  if (whole.state != HTTP_DONE && whole.state != HTTP_FAILED) abort();
  if (whole.state != pieces.state || whole.body.size > MAX_BODY_BYTES) abort();
  if ((whole.state == HTTP_FAILED) != (whole.error != NULL)) abort();
  if (whole.state == HTTP_DONE) {
    if (used != used_in_pieces || whole.status != pieces.status || whole.status < 200) abort();
    if (whole.keeps_alive != pieces.keeps_alive || whole.body.size != pieces.body.size) abort();
    if (whole.body.size > 0 && memcmp(whole.body.data, pieces.body.data, whole.body.size) != 0) {
      abort();
    }
  }
  http_response_deinit(&whole);
  http_response_deinit(&pieces);
  return 0;
}
