// SPDX-License-Identifier: Apache-2.0
// bench/serve/protocol_read.c: the answers of protocol.h.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/serve/protocol.h"

// More values than this are an error: no answer to embeddings is so large.
#define MAX_VALUES ((size_t)1 << 28)

void protocol_answer_free(protocol_answer_t* answer) {
  free(answer->values);
  *answer = (protocol_answer_t){.count = 0};
}

// Room for `count` rows of `width`, both from the server.
static const char* make_rows(protocol_answer_t* answer, size_t count, size_t width) {
  size_t total = 0;
  if (count == 0 || width == 0) return "the answer has no values";
  if (!qn__size_mul(count, width, &total) || total > MAX_VALUES) return "the answer is too large";
  answer->values = malloc(total * sizeof(float));
  if (!answer->values) return "no memory for the answer";
  answer->count = count;
  answer->width = width;
  return NULL;
}

static const char* read_row(const json_t* row, float* values, size_t width) {
  if (json_array_size(row) != width) return "embeddings differ in width";
  for (size_t i = 0; i < width; i++) {
    const json_t* value = json_array_get(row, i);
    if (!json_is_number(value)) return "a value is not a number";
    values[i] = (float)json_number_value(value);
  }
  return NULL;
}

// [[number]].
static const char* read_rows(const json_t* rows, protocol_answer_t* answer) {
  if (!json_is_array(rows)) return "the answer is not a list";
  const char* wrong =
      make_rows(answer, json_array_size(rows), json_array_size(json_array_get(rows, 0)));
  for (size_t i = 0; !wrong && i < answer->count; i++) {
    wrong = read_row(json_array_get(rows, i), answer->values + i * answer->width, answer->width);
  }
  return wrong;
}

// The value of a base64 character; 64 for any other.
static uint32_t base64_value(unsigned char c) {
  if (c >= 'A' && c <= 'Z') return (uint32_t)(c - 'A');
  if (c >= 'a' && c <= 'z') return (uint32_t)(c - 'a' + 26);
  if (c >= '0' && c <= '9') return (uint32_t)(c - '0' + 52);
  return c == '+' ? 62 : c == '/' ? 63 : 64;
}

// Little-endian f32 in base64. `width` 0: only sets it.
static const char* read_base64(qn_str_t text, float* values, size_t* inout_width) {
  while (text.size > 0 && text.data[text.size - 1] == '=') text.size--;
  size_t bytes = text.size / 4 * 3 + (text.size % 4 * 3) / 4;
  if (text.size % 4 == 1 || bytes % 4 != 0) return "base64 is not a list of f32";
  if (!values) {
    *inout_width = bytes / 4;
    return NULL;
  }
  if (bytes / 4 != *inout_width) return "embeddings differ in width";
  uint32_t bits = 0;
  uint32_t pending = 0;
  uint8_t* out = (uint8_t*)values;
  for (size_t i = 0, at = 0; i < text.size; i++) {
    uint32_t value = base64_value((unsigned char)text.data[i]);
    if (value > 63) return "not base64";
    bits = bits << 6 | value;
    pending += 6;
    if (pending >= 8) {
      pending -= 8;
      if (at < bytes) out[at++] = (uint8_t)(bits >> pending);
    }
  }
  return NULL;
}

// {"data": [{"index": 0, "embedding": [number] or "base64"}]}.
static const char* read_openai(const json_t* root, protocol_answer_t* answer) {
  const json_t* data = json_object_get(root, "data");
  if (!json_is_array(data)) return "the answer has no list 'data'";
  const char* wrong = NULL;
  for (size_t i = 0; !wrong && i < json_array_size(data); i++) {
    const json_t* item = json_array_get(data, i);
    const json_t* index = json_object_get(item, "index");
    const json_t* row = json_object_get(item, "embedding");
    qn_str_t text = {json_string_value(row), json_string_length(row)};
    if (index && json_integer_value(index) != (json_int_t)i) return "'index' is out of order";
    if (i == 0) {
      size_t width = json_array_size(row);
      if (text.data) wrong = read_base64(text, NULL, &width);
      if (!wrong) wrong = make_rows(answer, json_array_size(data), width);
      if (wrong) break;
    }
    float* values = answer->values + i * answer->width;
    wrong = text.data ? read_base64(text, values, &answer->width)
                      : read_row(row, values, answer->width);
  }
  return wrong || answer->values ? wrong : "the answer has no values";
}

// Flat or nested numbers, row-major. Returns false if there are others than `count`.
static bool read_flat(const json_t* data, float* values, size_t count, size_t* inout_at,
                      int depth) {
  if (json_is_number(data)) {
    if (*inout_at >= count) return false;
    values[(*inout_at)++] = (float)json_number_value(data);
    return true;
  }
  if (!json_is_array(data) || depth > 8) return false;
  for (size_t i = 0; i < json_array_size(data); i++) {
    if (!read_flat(json_array_get(data, i), values, count, inout_at, depth + 1)) return false;
  }
  return true;
}

// Returns the named output, or the first; *out_offset: where its bytes begin behind the JSON.
static const json_t* find_output(const json_t* root, const char* name, uint64_t* out_offset) {
  const json_t* outputs = json_object_get(root, "outputs");
  *out_offset = 0;
  for (size_t i = 0; i < json_array_size(outputs); i++) {
    const json_t* output = json_array_get(outputs, i);
    const char* its_name = json_string_value(json_object_get(output, "name"));
    if (!name || (its_name && strcmp(its_name, name) == 0)) return output;
    const json_t* parameters = json_object_get(output, "parameters");
    json_int_t size = json_integer_value(json_object_get(parameters, "binary_data_size"));
    if (size < 0) return NULL;
    *out_offset += (uint64_t)size;
  }
  return NULL;
}

// [rows, ...]: what follows the first dimension is the width.
static const char* read_shape(const json_t* shape, protocol_answer_t* answer) {
  size_t width = 1;
  if (json_array_size(shape) < 2) return "the output's shape has less than two dimensions";
  for (size_t d = 0; d < json_array_size(shape); d++) {
    json_int_t extent = json_integer_value(json_array_get(shape, d));
    if (extent <= 0) return "the output has a bad shape";
    if (d > 0 && !qn__size_mul(width, (size_t)extent, &width)) return "the answer is too large";
  }
  return make_rows(answer, (size_t)json_integer_value(json_array_get(shape, 0)), width);
}

static const char* read_oip(const protocol_t* protocol, size_t index, const json_t* root,
                            qn_span_t tensors, protocol_answer_t* answer) {
  const char* id = json_string_value(json_object_get(root, "id"));
  // The specification wants the id echoed; a server that leaves it out is tolerated.
  if (id && strtoull(id, NULL, 10) != index) return "the answer has the id of another request";
  uint64_t offset = 0;
  const json_t* output = find_output(root, protocol->output, &offset);
  if (!output) return "the answer lacks the output";
  const char* datatype = json_string_value(json_object_get(output, "datatype"));
  if (!datatype || strcmp(datatype, "FP32") != 0) return "the output is not FP32";
  const char* wrong = read_shape(json_object_get(output, "shape"), answer);
  if (wrong) return wrong;
  size_t count = answer->count * answer->width;
  const json_t* size = json_object_get(json_object_get(output, "parameters"), "binary_data_size");
  if (!size) {
    size_t at = 0;
    bool is_read = read_flat(json_object_get(output, "data"), answer->values, count, &at, 0);
    return is_read && at == count ? NULL : "the data do not fill the shape";
  }
  size_t bytes = count * sizeof(float);
  if (json_integer_value(size) != (json_int_t)bytes || offset > tensors.size ||
      tensors.size - offset < bytes) {
    return "the bytes do not fill the shape";
  }
  memcpy(answer->values, tensors.data + offset, bytes);
  return NULL;
}

static const char* check_finite(const protocol_answer_t* answer) {
  for (size_t i = 0; i < answer->count * answer->width; i++) {
    if (!isfinite(answer->values[i])) return "a value is not finite";
  }
  return NULL;
}

const char* protocol_read(const protocol_t* protocol, size_t index, const uint8_t* body,
                          size_t size, int64_t json_bytes, protocol_answer_t* out_answer) {
  *out_answer = (protocol_answer_t){.count = 0};
  bool is_oip = protocol->kind == PROTOCOL_OIP || protocol->kind == PROTOCOL_OIP_BINARY;
  size_t json_size = size;
  if (is_oip && json_bytes >= 0) {
    if ((uint64_t)json_bytes > size) return "the JSON is longer than the body";
    json_size = (size_t)json_bytes;
  }
  json_t* root = size ? json_loadb((const char*)body, json_size, 0, NULL) : NULL;
  if (!root) return "the answer is not JSON";
  const char* wrong = NULL;
  if (is_oip) {
    qn_span_t tensors = {body + json_size, size - json_size};
    wrong = read_oip(protocol, index, root, tensors, out_answer);
  } else if (protocol->kind == PROTOCOL_TEI) {
    wrong = read_rows(root, out_answer);
  } else {
    wrong = read_openai(root, out_answer);
  }
  json_decref(root);
  if (!wrong) wrong = check_finite(out_answer);
  if (wrong) protocol_answer_free(out_answer);
  return wrong;
}
