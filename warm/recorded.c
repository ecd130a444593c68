// SPDX-License-Identifier: Apache-2.0
// warm/recorded.c: reads the lines that QUERN_RECORD writes: JSON with the module's canonical bytes
// in base64. docs/warm.md has the format.
#include <jansson.h>
#include <stdlib.h>

#include "warm/list.h"

#define RECORD_VERSION 1
// The longest line that is read: a module of the largest size that an entry holds, in base64.
#define MAX_LINE_BYTES ((size_t)24 << 20)

static int digit_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Decodes the padded form whose spare bits are zero: a module has one spelling.
static bool decode_base64(const char* text, size_t text_size, uint8_t* out, size_t* out_size) {
  if (text_size % 4 != 0) return false;
  size_t size = 0;
  for (size_t i = 0; i < text_size; i += 4) {
    size_t padding = 0;
    if (i + 4 == text_size) padding = text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    uint32_t bits = 0;
    for (size_t j = 0; j < 4; j++) {
      int value = j < 4 - padding ? digit_value(text[i + j]) : 0;
      if (value < 0) return false;
      bits = bits << 6 | (uint32_t)value;
    }
    if (bits & ((1u << (8 * padding)) - 1)) return false;
    for (size_t j = 0; j < 3 - padding; j++) out[size++] = (uint8_t)(bits >> (16 - 8 * j));
  }
  *out_size = size;
  return true;
}

static qn_status_t expected(const char* what) {
  return qn_status_make(QN_STATUS_SYNTAX, "expected %s in a recorded line", what);
}

static qn_status_t read_module(const json_t* line, qn__warm_recorded_t* recorded) {
  const json_t* module = json_object_get(line, "module");
  size_t size = json_is_string(module) ? json_string_length(module) : 0;
  if (size == 0) return expected("\"module\" in base64");
  recorded->module = malloc(size);
  if (!recorded->module) return qn__warm_no_memory("a recorded module");
  bool is_good =
      decode_base64(json_string_value(module), size, recorded->module, &recorded->module_size);
  return is_good ? QN_OK : expected("\"module\" in base64");
}

static qn_status_t read_members(const json_t* line, qn__warm_recorded_t* recorded) {
  const json_t* version = json_object_get(line, "version");
  if (!json_is_integer(version) || json_integer_value(version) != RECORD_VERSION) {
    return expected("\"version\": 1");
  }
  const char* key = json_string_value(json_object_get(line, "key"));
  if (!key || strlen(key) != 32 || strspn(key, "0123456789abcdef") != 32) {
    return expected("\"key\" of 32 hexadecimal digits");
  }
  memcpy(recorded->key, key, sizeof recorded->key);
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
  recorded->target_json = json_dumps(target, JSON_COMPACT | JSON_SORT_KEYS);
  recorded->name = strdup(name);
  if (!recorded->target_json || !recorded->name) return qn__warm_no_memory("a recorded line");
  return read_module(line, recorded);
}

qn_status_t qn__warm_recorded_parse(qn__warm_span_t line, qn__warm_recorded_t* out_recorded) {
  memset(out_recorded, 0, sizeof *out_recorded);
  if (line.size > MAX_LINE_BYTES) return expected("at most 24 MiB");
  json_error_t error;
  json_t* object = json_loadb(line.data, line.size, JSON_REJECT_DUPLICATES, &error);
  if (!object && json_error_code(&error) == json_error_out_of_memory) {
    return qn__warm_no_memory("a recorded line");
  }
  if (!object) {
    return qn_status_make(QN_STATUS_SYNTAX,
                          "expected a whole JSON object (the line may be torn): %s", error.text);
  }
  qn_status_t status =
      json_is_object(object) ? read_members(object, out_recorded) : expected("an object");
  json_decref(object);
  if (!qn_ok(status)) qn__warm_recorded_deinit(out_recorded);
  return status;
}

void qn__warm_recorded_deinit(qn__warm_recorded_t* recorded) {
  free(recorded->name);
  free(recorded->target_json);
  free(recorded->module);
  memset(recorded, 0, sizeof *recorded);
}

qn_status_t qn__warm_recorded_read(qn__warm_span_t line, qn__warm_entry_t* out_entry) {
  *out_entry = (qn__warm_entry_t){0};
  qn__warm_recorded_t recorded;
  qn_status_t status = qn__warm_recorded_parse(line, &recorded);
  if (!qn_ok(status)) return status;
  out_entry->tier = recorded.tier;
  out_entry->is_checked = recorded.is_checked;
  status = qn_module_decode(recorded.module, recorded.module_size, NULL, &out_entry->module);
  status = qn_status_annotate(status, "the recorded module of '%s'", recorded.name);
  if (qn_ok(status)) status = qn_target_parse(recorded.target_json, &out_entry->target);
  qn__warm_recorded_deinit(&recorded);
  return status;
}
