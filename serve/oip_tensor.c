// SPDX-License-Identifier: Apache-2.0
// serve/oip_tensor.c: tensors of requests: JSON arrays, bytes after the JSON, shapes, and how they
// become inputs of a call.
#include "serve/oip.h"
#include "serve/unicode.h"

// Numbers are copied as they lie.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian");

bool serve_oip_read_data(serve_json_t* json, serve_oip_infer_t* infer, serve_oip_tensor_t* tensor) {
  enum { BLOCK = 128 };
  int64_t block[BLOCK];
  serve_visit_t* visit = infer->visit;
  uint32_t nest = 0;
  if (!serve_json_array(json)) return false;
  while (serve_json_leaf(json, &nest)) {
    const bool is_text = serve_json_peek(json) == SERVE_JSON_STRING;
    if (is_text ? tensor->has_values : tensor->has_texts) {
      return serve_json_fail(json, "values of one type");
    }
    if (is_text) {
      tensor->has_texts = true;
      if (!serve_json_string(json, &visit->call->texts) ||
          !serve_call_end_input(visit->call, &visit->server->limits, &visit->error)) {
        return false;
      }
      continue;
    }
    tensor->has_values = true;
    const size_t count = serve_json_i64s(json, block, BLOCK);
    serve_buffer_append(&tensor->values, block, count * sizeof *block);
  }
  return !json->problem;
}

// ------------------------------------------------------------------------------------ binary

// Reads texts, each after the number of its bytes as a u32.
static bool read_texts(serve_oip_infer_t* infer, const char* data, size_t size) {
  serve_visit_t* visit = infer->visit;
  serve_call_t* call = visit->call;
  for (size_t at = 0; at < size;) {
    const size_t index = serve_call_count(call);
    uint32_t length = 0;
    if (size - at >= sizeof length) memcpy(&length, data + at, sizeof length);
    if (size - at < sizeof length || length > size - at - sizeof length) {
      return serve_error_set(&visit->error, SERVE_BAD_REQUEST,
                             "input 'text': element %zu has %zu bytes of data, and its length says "
                             "%u after the 4 of the length",
                             index, size - at, (unsigned)length);
    }
    at += sizeof length;
    const size_t valid = serve_utf8_check(data + at, length);
    if (valid < length) {
      return serve_error_set(&visit->error, SERVE_BAD_REQUEST,
                             "input 'text': element %zu, byte %zu: expected UTF-8", index, valid);
    }
    serve_buffer_append(&call->texts, data + at, length);
    at += length;
    if (!serve_call_end_input(call, &visit->server->limits, &visit->error)) return false;
  }
  return true;
}

static bool read_integers(serve_oip_infer_t* infer, serve_oip_input_t input, const char* data,
                          size_t size) {
  if (size % sizeof(int64_t) != 0) {
    return serve_error_set(&infer->visit->error, SERVE_BAD_REQUEST,
                           "input '%s': %zu bytes are no whole number of INT64",
                           serve_oip_kinds[input].name, size);
  }
  serve_buffer_append(&infer->tensors[input].values, data, size);
  return true;
}

bool serve_oip_read_binary(serve_oip_infer_t* infer, size_t at) {
  serve_error_t* error = &infer->visit->error;
  const serve_buffer_t* body = &infer->visit->exchange->body;
  bool is_good = true;
  for (size_t i = 0; i < infer->input_count && is_good; ++i) {
    const serve_oip_input_t input = infer->order[i];
    const serve_oip_tensor_t* tensor = &infer->tensors[input];
    if (!tensor->is_binary) continue;
    const size_t rest = body->size - at;
    if ((uint64_t)tensor->binary_bytes > rest) {
      return serve_error_set(error, SERVE_BAD_REQUEST,
                             "input '%s': binary_data_size is %lld, and %zu bytes follow the JSON "
                             "and the inputs before; its length is Inference-Header-Content-Length",
                             serve_oip_kinds[input].name, (long long)tensor->binary_bytes, rest);
    }
    const size_t size = (size_t)tensor->binary_bytes;
    const char* data = size > 0 ? body->data + at : "";
    is_good = input == SERVE_OIP_TEXT ? read_texts(infer, data, size)
                                      : read_integers(infer, input, data, size);
    at += size;
  }
  if (!is_good || at == body->size) return is_good;
  return serve_error_set(error, SERVE_BAD_REQUEST, "%zu bytes follow the last input",
                         body->size - at);
}

// ------------------------------------------------------------------------------------ shapes

// Returns how many elements the data of a tensor have.
static size_t data_count(const serve_oip_infer_t* infer, serve_oip_input_t input) {
  return input == SERVE_OIP_TEXT ? serve_call_count(infer->visit->call)
                                 : infer->tensors[input].values.size / sizeof(int64_t);
}

static bool check_shape(serve_oip_infer_t* infer, serve_oip_input_t input) {
  const serve_oip_kind_t* kind = &serve_oip_kinds[input];
  const serve_oip_tensor_t* tensor = &infer->tensors[input];
  serve_error_t* error = &infer->visit->error;
  if (tensor->rank != kind->rank) {
    return serve_error_set(error, SERVE_BAD_REQUEST,
                           "input '%s': the shape has %zu dimensions, expected %zu", kind->name,
                           tensor->rank, kind->rank);
  }
  int64_t count = 1;
  bool has_overflow = false;
  for (size_t i = 0; i < tensor->rank; ++i) {
    has_overflow |= __builtin_mul_overflow(count, tensor->shape[i], &count);
  }
  const size_t found = data_count(infer, input);
  if (!has_overflow && (uint64_t)count == found) return true;
  return serve_error_set(error, SERVE_BAD_REQUEST,
                         "input '%s': the shape has %s%lld elements, and "
                         "the data have %zu",
                         kind->name, has_overflow ? "more than " : "",
                         has_overflow ? (long long)INT64_MAX : (long long)count, found);
}

static bool check_data(serve_oip_infer_t* infer, serve_oip_input_t input) {
  const serve_oip_kind_t* kind = &serve_oip_kinds[input];
  const serve_oip_tensor_t* tensor = &infer->tensors[input];
  const bool is_wrong = input == SERVE_OIP_TEXT ? tensor->has_values : tensor->has_texts;
  if (is_wrong) {
    return serve_error_set(&infer->visit->error, SERVE_BAD_REQUEST,
                           "input '%s' is %s, and its data are %s", kind->name, kind->datatype,
                           tensor->has_texts ? "texts" : "integers");
  }
  return check_shape(infer, input);
}

// ------------------------------------------------------------------------------------ ids

// Returns how many ones a row of the mask begins with; SIZE_MAX: other numbers follow than zeros.
static size_t mask_length(const int64_t* mask, size_t width) {
  size_t length = 0;
  while (length < width && mask[length] == 1) ++length;
  for (size_t i = length; i < width; ++i) {
    if (mask[i] != 0) return SIZE_MAX;
  }
  return length;
}

// Appends the rows of ids, without what the mask leaves out, as inputs of the call.
static bool take_ids(serve_oip_infer_t* infer) {
  serve_visit_t* visit = infer->visit;
  serve_call_t* call = visit->call;
  const serve_oip_tensor_t* tensor = &infer->tensors[SERVE_OIP_IDS];
  const serve_oip_tensor_t* mask_tensor = &infer->tensors[SERVE_OIP_MASK];
  const int64_t* ids = (const int64_t*)(const void*)tensor->values.data;
  const int64_t* masks = (const int64_t*)(const void*)mask_tensor->values.data;
  const size_t rows = (size_t)tensor->shape[0];
  const size_t width = (size_t)tensor->shape[1];
  call->has_ids = true;
  for (size_t row = 0; row < rows && visit->error.status == 0; ++row) {
    const size_t length =
        mask_tensor->is_given && width > 0 ? mask_length(masks + row * width, width) : width;
    if (length == SIZE_MAX) {
      return serve_error_set(&visit->error, SERVE_UNPROCESSABLE,
                             "input 'attention_mask', row %zu: expected ones, then zeros", row);
    }
    int32_t* place = length > 0 ? serve_buffer_extend(&call->ids, length * sizeof *place) : NULL;
    for (size_t i = 0; i < length && place; ++i) {
      const int64_t id = ids[row * width + i];
      if (id < 0 || id > INT32_MAX) {
        return serve_error_set(&visit->error, SERVE_UNPROCESSABLE,
                               "input 'input_ids', row %zu, token %zu: %lld is no id", row, i,
                               (long long)id);
      }
      place[i] = (int32_t)id;
    }
    (void)serve_call_end_input(call, &visit->server->limits, &visit->error);
  }
  return visit->error.status == 0;
}

bool serve_oip_take_tensors(serve_oip_infer_t* infer) {
  serve_oip_tensor_t* tensors = infer->tensors;
  serve_error_t* error = &infer->visit->error;
  const bool has_ids = tensors[SERVE_OIP_IDS].is_given;
  if (tensors[SERVE_OIP_TEXT].is_given == has_ids ||
      (tensors[SERVE_OIP_MASK].is_given && !has_ids)) {
    return serve_error_set(error, SERVE_BAD_REQUEST,
                           "expected the input 'text', or 'input_ids' with 'attention_mask'");
  }
  for (size_t i = 0; i < SERVE_OIP_INPUT_COUNT; ++i) {
    if (tensors[i].values.is_exhausted) {
      return serve_error_set(error, SERVE_INTERNAL, "no memory for the inputs");
    }
    if (tensors[i].is_given && !check_data(infer, (serve_oip_input_t)i)) return false;
  }
  if (!has_ids) return true;
  if (tensors[SERVE_OIP_MASK].is_given &&
      memcmp(tensors[SERVE_OIP_MASK].shape, tensors[SERVE_OIP_IDS].shape,
             sizeof tensors[SERVE_OIP_IDS].shape) != 0) {
    return serve_error_set(error, SERVE_BAD_REQUEST,
                           "the shapes of 'input_ids' and 'attention_mask' differ");
  }
  return take_ids(infer);
}
