// SPDX-License-Identifier: Apache-2.0
// serve/inputs.c: texts and lists of ids of a JSON body.
#include "serve/inputs.h"

typedef struct inputs_reader {
  serve_json_t* json;
  serve_call_t* call;
  const serve_call_limits_t* limits;
  serve_error_t* error;
} inputs_reader_t;

static bool read_ids(inputs_reader_t* self) {
  enum { BLOCK = 128 };
  int64_t block[BLOCK];
  if (!serve_json_array(self->json)) return false;
  while (serve_json_element(self->json)) {
    const size_t count = serve_json_i64s(self->json, block, BLOCK);
    if (count == 0) return false;
    int32_t* place = serve_buffer_extend(&self->call->ids, count * sizeof *place);
    for (size_t i = 0; i < count && place; ++i) {
      if (block[i] < 0 || block[i] > INT32_MAX) {
        return serve_json_fail(self->json, "ids of the vocabulary before here");
      }
      place[i] = (int32_t)block[i];
    }
  }
  return !self->json->problem;
}

static bool read_input(inputs_reader_t* self) {
  serve_call_t* call = self->call;
  const bool is_list = serve_json_peek(self->json) == SERVE_JSON_ARRAY;
  if (serve_call_count(call) > 0 && is_list != call->has_ids) {
    return serve_json_fail(self->json,
                           call->has_ids ? "a list of ids, as before" : "a text, as before");
  }
  call->has_ids = is_list;
  const bool is_good = is_list ? read_ids(self) : serve_json_string(self->json, &call->texts);
  return is_good && serve_call_end_input(call, self->limits, self->error);
}

bool serve_inputs_read(serve_json_t* json, serve_call_t* call, const serve_call_limits_t* limits,
                       serve_error_t* error) {
  inputs_reader_t reader = {json, call, limits, error};
  if (serve_call_count(call) > 0) return serve_json_fail(json, "the inputs once");
  if (serve_json_peek(json) == SERVE_JSON_STRING) return read_input(&reader);
  const serve_json_t before = *json;
  if (!serve_json_array(json)) return false;
  bool is_good = true;
  for (bool is_first = true; is_good && serve_json_element(json); is_first = false) {
    if (is_first && serve_json_peek(json) == SERVE_JSON_NUMBER) {
      *json = before;
      return read_input(&reader);
    }
    is_good = read_input(&reader);
  }
  return is_good && !json->problem;
}

bool serve_inputs_read_dimensions(serve_json_t* json, serve_call_t* call) {
  int64_t dimensions = 0;
  if (!serve_json_i64(json, &dimensions)) return false;
  if (dimensions <= 0) return serve_json_fail(json, "a positive number of dimensions");
  call->dimensions = (size_t)dimensions;
  return true;
}
