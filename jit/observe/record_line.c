// jit/observe/record_line.c: one line of a recorded list: JSON with the module's canonical bytes in
// base64.
//
// {"version":1,"key":"<32
// hex>","name":"softmax@...","target":{...},"tier":"full","is_checked":false, "module":"<base64>"}.
// Members that this version does not know are left alone, so that later ones may say more. Thread
// rule: pure functions. Read next: warm_list.c.
#include <jansson.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "jit/observe/record.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void append_base64(qn__buffer_t* buffer, const uint8_t* data, size_t size) {
  uint8_t* out = qn__buffer_extend(buffer, (size + 2) / 3 * 4);
  if (!out) return;
  for (size_t i = 0; i < size; i += 3) {
    uint32_t bits = (uint32_t)data[i] << 16;
    if (i + 1 < size) bits |= (uint32_t)data[i + 1] << 8;
    if (i + 2 < size) bits |= data[i + 2];
    *out++ = (uint8_t)digits[bits >> 18];
    *out++ = (uint8_t)digits[bits >> 12 & 63];
    *out++ = i + 1 < size ? (uint8_t)digits[bits >> 6 & 63] : '=';
    *out++ = i + 2 < size ? (uint8_t)digits[bits & 63] : '=';
  }
}

static int digit_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Only the padded form whose spare bits are zero: what append_base64 writes.
static bool decode_base64(qn_str_t text, uint8_t* out, size_t* out_size) {
  if (text.size % 4 != 0) return false;
  size_t size = 0;
  for (size_t i = 0; i < text.size; i += 4) {
    size_t padding = 0;
    if (i + 4 == text.size) {
      padding = text.data[i + 3] != '=' ? 0 : text.data[i + 2] != '=' ? 1 : 2;
    }
    uint32_t bits = 0;
    for (size_t j = 0; j < 4; j++) {
      int value = j < 4 - padding ? digit_value(text.data[i + j]) : 0;
      if (value < 0) return false;
      bits = bits << 6 | (uint32_t)value;
    }
    if (bits & ((1u << (8 * padding)) - 1)) return false;
    for (size_t j = 0; j < 3 - padding; j++) out[size++] = (uint8_t)(bits >> (16 - 8 * j));
  }
  *out_size = size;
  return true;
}

void qn__record_format(qn_hash128_t key, const qn_compile_request_t* request, const char* name,
                       qn__buffer_t* buffer) {
  char hex[33];
  qn__hash128_hex(key, hex);
  qn__buffer_format(buffer, "{\"version\":%d,\"key\":\"%s\",\"name\":", QN__RECORD_VERSION, hex);
  qn__buffer_json_string(buffer, qn__str(name ? name : ""));
  qn__buffer_cstr(buffer, ",\"target\":");
  qn__buffer_cstr(buffer, request->target_json);
  qn__buffer_format(buffer, ",\"tier\":\"%s\",\"is_checked\":%s,\"module\":\"",
                    request->tier == QN_TIER_FAST ? "fast" : "full",
                    request->is_checked ? "true" : "false");
  append_base64(buffer, request->module_bytes, request->module_size);
  qn__buffer_cstr(buffer, "\"}\n");
}

static qn_status_t expected(const char* what) {
  return qn_status_make(QN_STATUS_SYNTAX, "expected %s in a recorded line", what);
}

static qn_status_t read_module(const json_t* line, qn__recorded_t* recorded) {
  const json_t* module = json_object_get(line, "module");
  if (!json_is_string(module)) return expected("\"module\" in base64");
  qn_str_t text = {json_string_value(module), json_string_length(module)};
  recorded->module_capacity = text.size / 4 * 3 + 1;
  recorded->module = qn__alloc(recorded->allocator, recorded->module_capacity);
  if (!recorded->module) return qn__out_of_memory("a recorded module");
  if (text.size == 0 || !decode_base64(text, recorded->module, &recorded->module_size)) {
    return expected("\"module\" in base64");
  }
  return QN_OK;
}

static qn_status_t read_members(const json_t* line, qn__recorded_t* recorded) {
  const json_t* version = json_object_get(line, "version");
  if (!json_is_integer(version) || json_integer_value(version) != QN__RECORD_VERSION) {
    return expected("\"version\": 1");
  }
  const char* key = json_string_value(json_object_get(line, "key"));
  if (!key || !qn__hash128_parse(qn__str(key), &recorded->key)) {
    return expected("\"key\" of 32 hexadecimal digits");
  }
  const char* name = json_string_value(json_object_get(line, "name"));
  if (!name) return expected("\"name\"");
  const char* tier = json_string_value(json_object_get(line, "tier"));
  if (!tier || (strcmp(tier, "full") != 0 && strcmp(tier, "fast") != 0)) {
    return expected("\"tier\": \"full\" or \"fast\"");
  }
  recorded->tier = strcmp(tier, "fast") == 0 ? QN_TIER_FAST : QN_TIER_FULL;
  const json_t* is_checked = json_object_get(line, "is_checked");
  if (!json_is_boolean(is_checked)) return expected("\"is_checked\": true or false");
  recorded->is_checked = json_is_true(is_checked);
  const json_t* target = json_object_get(line, "target");
  if (!json_is_object(target)) return expected("\"target\", an object");
  char* text = json_dumps(target, JSON_COMPACT | JSON_SORT_KEYS);
  if (text) recorded->target_json = qn__copy_cstr(recorded->allocator, qn__str(text));
  free(text);
  recorded->name = qn__copy_cstr(recorded->allocator, qn__str(name));
  if (!recorded->target_json || !recorded->name) return qn__out_of_memory("a recorded line");
  return read_module(line, recorded);
}

qn_status_t qn__record_parse(qn_str_t line, qn_allocator_t allocator,
                             qn__recorded_t* out_recorded) {
  *out_recorded = (qn__recorded_t){.allocator = allocator};
  if (line.size > QN__RECORD_MAX_LINE_BYTES) return expected("at most 24 MiB");
  json_error_t error;
  json_t* object = json_loadb(line.data, line.size, JSON_REJECT_DUPLICATES, &error);
  if (!object && json_error_code(&error) == json_error_out_of_memory) {
    return qn__out_of_memory("a recorded line");
  }
  if (!object) {
    return qn_status_make(QN_STATUS_SYNTAX,
                          "expected a whole JSON object (the line may be torn): %s", error.text);
  }
  qn_status_t status =
      json_is_object(object) ? read_members(object, out_recorded) : expected("an object");
  json_decref(object);
  if (!qn_ok(status)) qn__recorded_deinit(out_recorded);
  return status;
}

void qn__recorded_deinit(qn__recorded_t* recorded) {
  qn__free_cstr(recorded->allocator, recorded->name);
  qn__free_cstr(recorded->allocator, recorded->target_json);
  qn__free(recorded->allocator, recorded->module, recorded->module_capacity);
  *recorded = (qn__recorded_t){.allocator = recorded->allocator};
}
