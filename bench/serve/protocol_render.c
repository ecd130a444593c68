// SPDX-License-Identifier: Apache-2.0
// bench/serve/protocol_render.c: the requests of protocol.h.
#include <string.h>

#include "bench/serve/protocol.h"

bool protocol_parse(const char* name, protocol_kind_t* out_kind) {
  static const char* const names[] = {"oip", "oip-binary", "tei", "openai"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    *out_kind = (protocol_kind_t)i;
    if (strcmp(name, names[i]) == 0) return true;
  }
  return false;
}

static bool is_oip(const protocol_t* protocol) {
  return protocol->kind == PROTOCOL_OIP || protocol->kind == PROTOCOL_OIP_BINARY;
}

const char* protocol_problem(const protocol_t* protocol, const trace_t* trace) {
  if (is_oip(protocol) && !protocol->model) return "this protocol needs --model";
  if (!protocol->sends_ids) return NULL;
  if (protocol->kind == PROTOCOL_TEI) return "/embed takes no ids; use --protocol openai";
  for (size_t i = 0; i < trace->count; i++) {
    if (!trace->requests[i].lengths) return "--ids needs a trace of lengths, this one has texts";
  }
  return NULL;
}

static void put_text(const trace_t* trace, const trace_request_t* request, uint32_t text,
                     qn__buffer_t* out) {
  if (request->texts) {
    qn__buffer_json_string(out, request->texts[text]);
    return;
  }
  // Words need no escapes.
  trace_words_t words = trace_words(trace, request, text);
  const char* separator = "\"";
  for (const trace_word_t* word; (word = trace_next_word(&words));) {
    qn__buffer_cstr(out, separator);
    qn__buffer_str(out, word->text);
    separator = " ";
  }
  qn__buffer_char(out, '"');
}

// Of one row: calls `put` with the ids from [CLS] to [SEP], then with 0 until `width`.
typedef void (*put_id_t)(qn__buffer_t* out, uint64_t id, bool is_first);
static void put_row(const trace_t* trace, const trace_request_t* request, uint32_t text, int input,
                    uint32_t width, bool continues, put_id_t put, qn__buffer_t* out) {
  trace_words_t words = trace_words(trace, request, text);
  uint32_t length = request->lengths[text];
  for (uint32_t i = 0; i < width; i++) {
    const trace_word_t* word = i > 0 ? trace_next_word(&words) : NULL;
    uint64_t id = 0;
    if (input == 0 && i < length) {
      id = i == 0 ? trace->first_id : word ? word->id : trace->last_id;
    } else if (input == 1) {
      id = i < length;
    }
    put(out, id, i == 0 && !continues);
  }
}

// By hand: a request may have thousands, and printf takes a tenth of a microsecond for each.
static void put_id_json(qn__buffer_t* out, uint64_t id, bool is_first) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + id % 10);
    id /= 10;
  } while (id > 0);
  if (!is_first) qn__buffer_char(out, ',');
  qn__buffer_bytes(out, digits + at, sizeof digits - at);
}

static void put_id_bytes(qn__buffer_t* out, uint64_t id, bool is_first) {
  (void)is_first;
  qn__buffer_u64(out, id);
}

static void put_list(const protocol_t* protocol, const trace_t* trace,
                     const trace_request_t* request, qn__buffer_t* out) {
  qn__buffer_char(out, '[');
  for (uint32_t t = 0; t < request->text_count; t++) {
    if (t > 0) qn__buffer_char(out, ',');
    if (protocol->sends_ids) {
      qn__buffer_char(out, '[');
      put_row(trace, request, t, 0, request->lengths[t], false, put_id_json, out);
      qn__buffer_char(out, ']');
    } else {
      put_text(trace, request, t, out);
    }
  }
  qn__buffer_char(out, ']');
}

// A text of a BYTES tensor: its length in four bytes, then its bytes.
static void put_text_bytes(const trace_t* trace, const trace_request_t* request, uint32_t text,
                           qn__buffer_t* out) {
  size_t at = out->size;
  qn__buffer_u32(out, 0);
  if (request->texts) {
    qn__buffer_str(out, request->texts[text]);
  } else {
    trace_words_t words = trace_words(trace, request, text);
    for (const trace_word_t* word; (word = trace_next_word(&words));) {
      if (out->size > at + 4) qn__buffer_char(out, ' ');
      qn__buffer_str(out, word->text);
    }
  }
  if (!out->has_failed) (void)qn__store_le(out->data + at, out->size - at - 4, 4);
}

// Appends one input to the JSON, and its tensor to `tensors` if that is how it travels.
static void put_oip_input(const protocol_t* protocol, const trace_t* trace,
                          const trace_request_t* request, qn_str_t name, int input,
                          qn__buffer_t* json, qn__buffer_t* tensors) {
  bool is_binary = protocol->kind == PROTOCOL_OIP_BINARY;
  uint32_t width = 0;
  for (uint32_t t = 0; protocol->sends_ids && t < request->text_count; t++) {
    if (request->lengths[t] > width) width = request->lengths[t];
  }
  qn__buffer_cstr(json, "{\"name\":");
  qn__buffer_json_string(json, name);
  if (protocol->sends_ids) {
    qn__buffer_format(json, ",\"datatype\":\"INT64\",\"shape\":[%u,%u],", request->text_count,
                      width);
  } else {
    qn__buffer_format(json, ",\"datatype\":\"BYTES\",\"shape\":[%u%s],", request->text_count,
                      protocol->sends_column ? ",1" : "");
  }
  if (!is_binary && !protocol->sends_ids) {
    qn__buffer_cstr(json, "\"data\":");
    put_list(protocol, trace, request, json);
  } else if (!is_binary) {
    qn__buffer_cstr(json, "\"data\":[");
    for (uint32_t t = 0; t < request->text_count; t++) {
      put_row(trace, request, t, input, width, t > 0, put_id_json, json);
    }
    qn__buffer_char(json, ']');
  } else {
    size_t before = tensors->size;
    for (uint32_t t = 0; t < request->text_count; t++) {
      if (protocol->sends_ids) {
        put_row(trace, request, t, input, width, true, put_id_bytes, tensors);
      } else {
        put_text_bytes(trace, request, t, tensors);
      }
    }
    qn__buffer_format(json, "\"parameters\":{\"binary_data_size\":%zu}", tensors->size - before);
  }
  qn__buffer_char(json, '}');
}

static void put_oip(const protocol_t* protocol, const trace_t* trace, size_t index,
                    qn__buffer_t* json, qn__buffer_t* tensors) {
  bool is_binary = protocol->kind == PROTOCOL_OIP_BINARY;
  const char* names = protocol->inputs      ? protocol->inputs
                      : protocol->sends_ids ? "input_ids,attention_mask"
                                            : "text";
  qn__buffer_format(json, "{\"id\":\"%zu\",\"inputs\":[", index);
  for (int input = 0; names; input++) {
    const char* comma = strchr(names, ',');
    qn_str_t name = {names, comma ? (size_t)(comma - names) : strlen(names)};
    if (input > 0) qn__buffer_char(json, ',');
    put_oip_input(protocol, trace, &trace->requests[index], name, input, json, tensors);
    names = comma ? comma + 1 : NULL;
  }
  qn__buffer_char(json, ']');
  if (protocol->output) {
    qn__buffer_cstr(json, ",\"outputs\":[{\"name\":");
    qn__buffer_json_string(json, qn__str(protocol->output));
    qn__buffer_cstr(json, is_binary ? ",\"parameters\":{\"binary_data\":true}}]" : "}]");
  } else if (is_binary) {
    qn__buffer_cstr(json, ",\"parameters\":{\"binary_data_output\":true}");
  }
  qn__buffer_char(json, '}');
}

static void put_openai(const protocol_t* protocol, const trace_t* trace,
                       const trace_request_t* request, qn__buffer_t* json) {
  qn__buffer_char(json, '{');
  if (protocol->model) {
    qn__buffer_cstr(json, "\"model\":");
    qn__buffer_json_string(json, qn__str(protocol->model));
    qn__buffer_char(json, ',');
  }
  qn__buffer_format(
      json, "\"encoding_format\":\"%s\",\"input\":", protocol->wants_floats ? "float" : "base64");
  put_list(protocol, trace, request, json);
  qn__buffer_char(json, '}');
}

void protocol_render(const protocol_t* protocol, const trace_t* trace, size_t index,
                     qn__buffer_t* request) {
  qn__buffer_t json;
  qn__buffer_t tensors;
  qn__buffer_init(&json, qn_allocator_default());
  qn__buffer_init(&tensors, qn_allocator_default());
  qn__buffer_format(request, "POST %s", protocol->prefix);
  if (is_oip(protocol)) {
    put_oip(protocol, trace, index, &json, &tensors);
    qn__buffer_format(request, "/v2/models/%s/infer", protocol->model);
  } else if (protocol->kind == PROTOCOL_TEI) {
    qn__buffer_cstr(&json, "{\"inputs\":");
    put_list(protocol, trace, &trace->requests[index], &json);
    qn__buffer_char(&json, '}');
    qn__buffer_cstr(request, "/embed");
  } else {
    put_openai(protocol, trace, &trace->requests[index], &json);
    qn__buffer_cstr(request, "/v1/embeddings");
  }
  qn__buffer_format(request, " HTTP/1.1\r\nHost: %s\r\n", protocol->host);
  if (protocol->key) qn__buffer_format(request, "Authorization: Bearer %s\r\n", protocol->key);
  if (tensors.size > 0) {
    qn__buffer_format(request,
                      "Content-Type: application/octet-stream\r\n"
                      "Inference-Header-Content-Length: %zu\r\n",
                      json.size);
  } else {
    qn__buffer_cstr(request, "Content-Type: application/json\r\n");
  }
  qn__buffer_format(request, "Content-Length: %zu\r\n\r\n", json.size + tensors.size);
  qn__buffer_str(request, qn__buffer_as_str(&json));
  qn__buffer_bytes(request, tensors.data, tensors.size);
  request->has_failed |= json.has_failed || tensors.has_failed;
  qn__buffer_deinit(&json);
  qn__buffer_deinit(&tensors);
}
