// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_json.c: reads arbitrary bytes as JSON, in two ways that must agree.
//
// A text that is skipped whole is walked as well, and its strings and numbers are printed and read
// again.
// sources: serve/json.c serve/json_put.c serve/number.c serve/buffer.c serve/unicode.c
#include "serve/json.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "quern/quern.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void require(bool is_true) {
  if (!is_true) abort();
}

static void check_string(const serve_buffer_t* text) {
  serve_buffer_t printed = {.data = NULL};
  serve_buffer_t again = {.data = NULL};
  serve_json_put_string(&printed, text->data, text->size);
  serve_json_t json;
  serve_json_init(&json, printed.data, printed.size);
  require(serve_json_string(&json, &again) && serve_json_end(&json));
  require(again.size == text->size &&
          (text->size == 0 || memcmp(again.data, text->data, text->size) == 0));
  serve_buffer_free(&printed);
  serve_buffer_free(&again);
}

static void check_number(double value) {
  const float single = (float)value;
  if (!isfinite(single)) return;
  serve_buffer_t printed = {.data = NULL};
  serve_json_put_f32s(&printed, &single, 1);
  serve_json_t json;
  serve_json_init(&json, printed.data, printed.size);
  double again = 0;
  require(serve_json_f64(&json, &again) && serve_json_end(&json));
  require((float)again == single);
  serve_buffer_free(&printed);
}

// Reads a value with its parts. Recursion is bounded by the reader's depth.
static void walk(serve_json_t* json) {
  serve_buffer_t text = {.data = NULL};
  double number = 0;
  bool boolean = false;
  switch (serve_json_peek(json)) {
    case SERVE_JSON_OBJECT:
      (void)serve_json_object(json);
      while (serve_json_member(json)) walk(json);
      break;
    case SERVE_JSON_ARRAY:
      (void)serve_json_array(json);
      while (serve_json_element(json)) walk(json);
      break;
    case SERVE_JSON_STRING:
      if (serve_json_string(json, &text)) check_string(&text);
      serve_buffer_free(&text);
      break;
    case SERVE_JSON_NUMBER:
      if (serve_json_f64(json, &number)) check_number(number);
      break;
    case SERVE_JSON_BOOL:
      (void)serve_json_bool(json, &boolean);
      break;
    case SERVE_JSON_NULL:
      (void)serve_json_null(json);
      break;
    default:
      (void)serve_json_fail(json, "a value");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  serve_json_t skipped, walked;
  serve_json_init(&skipped, (const char*)data, size);
  (void)serve_json_skip(&skipped);
  const bool is_json = serve_json_end(&skipped);
  require(is_json == !skipped.problem && skipped.at <= size);
  serve_json_init(&walked, (const char*)data, size);
  walk(&walked);
  require(serve_json_end(&walked) == is_json);
  require(is_json || (walked.problem_at == skipped.problem_at));
  return 0;
}
