// SPDX-License-Identifier: Apache-2.0
// jit/observe/record_line.c: formats one line of a recorded list: JSON with the module's canonical
// bytes in base64. warm/recorded.c reads it; docs/warm.md has the format.
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
