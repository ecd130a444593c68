// SPDX-License-Identifier: Apache-2.0
// serve/oip_request.c: reads requests for inference: the JSON, in any order of its members, and
// where the binary tensors begin.
#include "serve/oip.h"

#include "serve/number.h"
#include "serve/unicode.h"

// ------------------------------------------------------------------------------------ parameters

// Reads a parameter of a tensor that is an input.
static bool read_input_parameter(serve_json_t* json, serve_oip_tensor_t* tensor) {
  const char* key = json->key;
  if (strncmp(key, "shared_memory_", 14) == 0) {
    return serve_json_fail(json, "no shared memory: this server has none");
  }
  if (strcmp(key, "binary_data_size") != 0) return serve_json_skip(json);
  if (!serve_json_i64(json, &tensor->binary_bytes)) return false;
  if (tensor->binary_bytes < 0) return serve_json_fail(json, "a number of bytes from 0");
  tensor->is_binary = true;
  return true;
}

static bool read_output_parameter(serve_json_t* json, serve_oip_infer_t* infer) {
  const char* key = json->key;
  if (strncmp(key, "shared_memory_", 14) == 0) {
    return serve_json_fail(json, "no shared memory: this server has none");
  }
  if (strcmp(key, "classification") == 0) {
    return serve_json_fail(json, "no classification: embeddings have no classes");
  }
  if (strcmp(key, "binary_data") == 0) return serve_json_bool(json, &infer->is_binary);
  return serve_json_skip(json);
}

// Reads microseconds. Very long times are cut to some that need no care.
static bool read_timeout(serve_json_t* json, serve_call_t* call) {
  const int64_t longest_us = INT64_C(1000000000000);
  int64_t timeout_us = 0;
  if (!serve_json_i64(json, &timeout_us)) return false;
  if (timeout_us < 0) return serve_json_fail(json, "microseconds from 0");
  call->timeout_ns = (timeout_us < longest_us ? timeout_us : longest_us) * 1000;
  return true;
}

// Reads a priority as Triton counts them: 1 is the highest, 0 the default.
static bool read_priority(serve_json_t* json, serve_call_t* call) {
  static const serve_priority_t priorities[] = {SERVE_PRIORITY_NORMAL, SERVE_PRIORITY_HIGH,
                                                SERVE_PRIORITY_NORMAL, SERVE_PRIORITY_LOW};
  int64_t priority = 0;
  if (!serve_json_i64(json, &priority)) return false;
  if (priority < 0) return serve_json_fail(json, "a priority from 0");
  call->request.priority = priorities[priority < 3 ? priority : 3];
  return true;
}

// Reads a parameter of the request. Those of clients' own are allowed and mean nothing here;
// reserved ones that would change the answer are refused.
static bool read_parameter(serve_json_t* json, serve_oip_infer_t* infer) {
  const char* key = json->key;
  serve_call_t* call = infer->visit->call;
  if (strcmp(key, "timeout") == 0) return read_timeout(json, call);
  if (strcmp(key, "priority") == 0) return read_priority(json, call);
  if (strcmp(key, "binary_data_output") == 0) return serve_json_bool(json, &infer->is_binary);
  if (strncmp(key, "sequence_", 9) == 0) {
    return serve_json_fail(json, "no sequence: the model has no state");
  }
  if (strncmp(key, "triton_", 7) == 0 || strcmp(key, "headers") == 0) {
    return serve_json_fail(json, "no reserved name of a parameter");
  }
  return serve_json_skip(json);
}

// ------------------------------------------------------------------------------------ inputs

typedef struct input_reader {
  serve_oip_infer_t* infer;
  serve_oip_tensor_t tensor;
  serve_buffer_t name;
  serve_buffer_t datatype;
  bool has_data;
} input_reader_t;

static bool read_shape(serve_json_t* json, serve_oip_tensor_t* tensor) {
  if (tensor->has_shape) return serve_json_fail(json, "'shape' once");
  tensor->has_shape = true;
  if (!serve_json_array(json)) return false;
  while (serve_json_element(json)) {
    int64_t dimension = 0;
    if (!serve_json_i64(json, &dimension)) return false;
    if (dimension < 0) return serve_json_fail(json, "a dimension from 0");
    if (tensor->rank == SERVE_OIP_MAX_RANK) return serve_json_fail(json, "at most 2 dimensions");
    tensor->shape[tensor->rank++] = dimension;
  }
  return !json->problem;
}

// Reads a string that replaces what is in the buffer.
static bool read_text(serve_json_t* json, serve_buffer_t* out) {
  serve_buffer_clear(out);
  return serve_json_string(json, out);
}

static bool read_input_member(serve_json_t* json, input_reader_t* self) {
  const char* key = json->key;
  if (strcmp(key, "name") == 0) return read_text(json, &self->name);
  if (strcmp(key, "datatype") == 0) return read_text(json, &self->datatype);
  if (strcmp(key, "shape") == 0) return read_shape(json, &self->tensor);
  if (strcmp(key, "parameters") == 0) {
    if (!serve_json_object(json)) return false;
    while (serve_json_member(json)) {
      if (!read_input_parameter(json, &self->tensor)) return false;
    }
    return !json->problem;
  }
  if (strcmp(key, "data") == 0) {
    if (self->has_data) return serve_json_fail(json, "'data' once");
    self->has_data = true;
    return serve_oip_read_data(json, self->infer, &self->tensor);
  }
  return serve_json_skip(json);
}

static bool equals(const serve_buffer_t* text, const char* other) {
  return text->size == strlen(other) && memcmp(text->data, other, text->size) == 0;
}

// Checks an input that was read whole, and puts its tensor in its place.
static bool place_input(input_reader_t* self) {
  serve_oip_infer_t* infer = self->infer;
  serve_error_t* error = &infer->visit->error;
  size_t input = 0;
  while (input < SERVE_OIP_INPUT_COUNT && !equals(&self->name, serve_oip_kinds[input].name)) {
    ++input;
  }
  const int shown = self->name.size < 100 ? (int)self->name.size : 100;
  if (input == SERVE_OIP_INPUT_COUNT) {
    return serve_error_set(error, SERVE_BAD_REQUEST,
                           "the model has no input '%.*s'; expected 'text', or 'input_ids' and "
                           "'attention_mask'",
                           shown, shown > 0 ? self->name.data : "");
  }
  const serve_oip_kind_t* kind = &serve_oip_kinds[input];
  if (infer->tensors[input].is_given) {
    return serve_error_set(error, SERVE_BAD_REQUEST, "input '%s' is given twice", kind->name);
  }
  if (!equals(&self->datatype, kind->datatype)) {
    const int length = self->datatype.size < 100 ? (int)self->datatype.size : 100;
    return serve_error_set(error, SERVE_BAD_REQUEST,
                           "input '%s': the datatype is '%.*s', expected %s", kind->name, length,
                           length > 0 ? self->datatype.data : "", kind->datatype);
  }
  if (!self->tensor.has_shape) {
    return serve_error_set(error, SERVE_BAD_REQUEST, "input '%s' has no shape", kind->name);
  }
  if (self->has_data == self->tensor.is_binary) {
    return serve_error_set(error, SERVE_BAD_REQUEST,
                           "input '%s': expected either 'data' or 'binary_data_size'", kind->name);
  }
  self->tensor.is_given = true;
  infer->tensors[input] = self->tensor;
  infer->order[infer->input_count++] = (serve_oip_input_t)input;
  self->tensor = (serve_oip_tensor_t){.is_given = false};
  return true;
}

static bool read_input(serve_json_t* json, serve_oip_infer_t* infer) {
  input_reader_t self = {.infer = infer};
  bool is_good = serve_json_object(json);
  while (is_good && serve_json_member(json)) is_good = read_input_member(json, &self);
  is_good = is_good && !json->problem && place_input(&self);
  serve_buffer_free(&self.tensor.values);
  serve_buffer_free(&self.name);
  serve_buffer_free(&self.datatype);
  return is_good;
}

// ------------------------------------------------------------------------------------ outputs

static bool read_output(serve_json_t* json, serve_oip_infer_t* infer) {
  serve_buffer_t name = {.data = NULL};
  bool is_good = serve_json_object(json);
  while (is_good && serve_json_member(json)) {
    if (strcmp(json->key, "name") == 0) {
      is_good = read_text(json, &name);
    } else if (strcmp(json->key, "parameters") == 0) {
      is_good = serve_json_object(json);
      while (is_good && serve_json_member(json)) is_good = read_output_parameter(json, infer);
    } else {
      is_good = serve_json_skip(json);
    }
  }
  is_good = is_good && !json->problem;
  if (is_good && !equals(&name, "embedding")) {
    const int shown = name.size < 100 ? (int)name.size : 100;
    is_good = serve_error_set(&infer->visit->error, SERVE_BAD_REQUEST,
                              "the model has no output '%.*s', only 'embedding'", shown,
                              shown > 0 ? name.data : "");
  }
  serve_buffer_free(&name);
  return is_good;
}

// ------------------------------------------------------------------------------------ the request

// 'parameters' may follow 'outputs', and those of an output go first.
typedef struct request_reader {
  serve_oip_infer_t* infer;
  serve_json_t outputs;  // before them
  bool has_inputs;
  bool has_outputs;
} request_reader_t;

static bool read_outputs(serve_json_t* json, serve_oip_infer_t* infer) {
  if (!serve_json_array(json)) return false;
  size_t count = 0;
  while (serve_json_element(json)) {
    if (count++ > 0) return serve_json_fail(json, "one output");
    if (!read_output(json, infer)) return false;
  }
  return !json->problem;
}

static bool read_member(serve_json_t* json, void* arg) {
  request_reader_t* self = arg;
  serve_oip_infer_t* infer = self->infer;
  const char* key = json->key;
  if (strcmp(key, "id") == 0) {
    infer->has_id = true;
    return read_text(json, &infer->id);
  }
  if (strcmp(key, "parameters") == 0) {
    if (!serve_json_object(json)) return false;
    while (serve_json_member(json)) {
      if (!read_parameter(json, infer)) return false;
    }
    return !json->problem;
  }
  if (strcmp(key, "outputs") == 0) {
    if (self->has_outputs) return serve_json_fail(json, "'outputs' once");
    self->has_outputs = true;
    self->outputs = *json;
    return serve_json_skip(json);
  }
  if (strcmp(key, "inputs") != 0) return serve_json_skip(json);
  if (self->has_inputs) return serve_json_fail(json, "'inputs' once");
  self->has_inputs = true;
  if (!serve_json_array(json)) return false;
  while (serve_json_element(json)) {
    if (!read_input(json, infer)) return false;
  }
  return !json->problem;
}

static bool read_json(serve_oip_infer_t* infer, size_t size) {
  request_reader_t self = {.infer = infer};
  serve_visit_t* visit = infer->visit;
  if (!serve_visit_read(visit, size, read_member, &self)) return false;
  if (!self.has_outputs || read_outputs(&self.outputs, infer)) return true;
  return visit->error.status != 0 ? false
                                  : serve_error_from(&visit->error, SERVE_BAD_REQUEST,
                                                     serve_json_status(&self.outputs, "the body"));
}

// Reads the length of the JSON from its header; without one it is the whole body. The header's
// value is digits and nothing else: no sign, no white space, no overflow.
static bool read_length(serve_visit_t* visit, size_t* out_size, bool* out_is_raw) {
  static const char header[] = "Inference-Header-Content-Length";
  const char* text = serve_exchange_header(visit->exchange, header);
  const size_t body_size = visit->exchange->body.size;
  *out_size = body_size;
  *out_is_raw = false;
  if (!text) return true;
  int64_t value = 0;
  const size_t length = strlen(text);
  if (text[0] == '-' || length == 0 || serve_i64_read(text, length, &value) != length) {
    return serve_error_set(&visit->error, SERVE_BAD_REQUEST, "%s: '%.40s' is not a number of bytes",
                           header, text);
  }
  if ((uint64_t)value > body_size) {
    return serve_error_set(&visit->error, SERVE_BAD_REQUEST,
                           "%s is %lld, and the body has %zu bytes", header, (long long)value,
                           body_size);
  }
  *out_size = (size_t)value;
  *out_is_raw = value == 0;
  return true;
}

// Takes the whole body as the one element of 'text'.
static bool take_raw(serve_oip_infer_t* infer) {
  serve_visit_t* visit = infer->visit;
  const serve_buffer_t* body = &visit->exchange->body;
  const size_t valid = serve_utf8_check(body->size > 0 ? body->data : "", body->size);
  if (valid < body->size) {
    return serve_error_set(&visit->error, SERVE_BAD_REQUEST,
                           "the body is a text by its header; byte %zu: expected UTF-8", valid);
  }
  infer->is_binary = true;
  serve_buffer_append(&visit->call->texts, body->data, body->size);
  return serve_call_end_input(visit->call, &visit->server->limits, &visit->error);
}

bool serve_oip_read(serve_oip_infer_t* infer) {
  size_t size = 0;
  bool is_raw = false;
  if (!read_length(infer->visit, &size, &is_raw)) return false;
  if (is_raw) return take_raw(infer);
  return read_json(infer, size) && serve_oip_read_binary(infer, size) &&
         serve_oip_take_tensors(infer);
}
