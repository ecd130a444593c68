// SPDX-License-Identifier: Apache-2.0
// serve/json_put.c: strings, numbers and base64 of JSON texts.
#include "serve/json.h"
#include "serve/number.h"
#include "serve/unicode.h"

void serve_json_put_string(serve_buffer_t* out, const char* text, size_t size) {
  static const char hex[] = "0123456789abcdef";
  serve_buffer_text(out, "\"");
  size_t start = 0;
  size_t at = 0;
  if (size == 0) text = "";  // an empty buffer has no memory
  const uint8_t* bytes = (const uint8_t*)text;
  while (at < size) {
    uint32_t code = 0;
    bool is_valid = false;
    const size_t length = serve_utf8_read(bytes + at, bytes + size, &code, &is_valid);
    if (is_valid && code >= 0x20 && code != '"' && code != '\\') {
      at += length;
      continue;
    }
    serve_buffer_append(out, text + start, at - start);
    if (!is_valid) {
      serve_buffer_text(out, "\xef\xbf\xbd");  // U+FFFD
    } else if (code >= 0x20) {
      const char escaped[] = {'\\', (char)code};
      serve_buffer_append(out, escaped, sizeof escaped);
    } else {
      const char escaped[] = {'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15]};
      serve_buffer_append(out, escaped, sizeof escaped);
    }
    at += length;
    start = at;
  }
  serve_buffer_append(out, text + start, size - start);
  serve_buffer_text(out, "\"");
}

void serve_json_put_i64(serve_buffer_t* out, int64_t value) {
  char text[SERVE_I64_LENGTH];
  serve_buffer_append(out, text, serve_i64_print(value, text));
}

void serve_json_put_i64s(serve_buffer_t* out, const int64_t* values, size_t count) {
  const size_t room = count * (SERVE_I64_LENGTH + 1);
  char* start = serve_buffer_extend(out, room);
  if (!start || count == 0) return;
  char* at = start;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) *at++ = ',';
    at += serve_i64_print(values[i], at);
  }
  serve_buffer_shrink(out, room - (size_t)(at - start));
}

void serve_json_put_f32s(serve_buffer_t* out, const float* values, size_t count) {
  const size_t room = count * (SERVE_F32_LENGTH + 1);
  char* start = serve_buffer_extend(out, room);
  if (!start || count == 0) return;
  char* at = start;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) *at++ = ',';
    at += serve_f32_print(values[i], at);
  }
  serve_buffer_shrink(out, room - (size_t)(at - start));
}

void serve_json_put_base64(serve_buffer_t* out, const void* data, size_t size) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint8_t* bytes = data;
  char* at = serve_buffer_extend(out, (size + 2) / 3 * 4);
  if (!at) return;
  for (size_t i = 0; i < size; i += 3, at += 4) {
    const size_t rest = size - i;
    const uint32_t group = (uint32_t)bytes[i] << 16 | (rest > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                           (rest > 2 ? bytes[i + 2] : 0);
    at[0] = letters[group >> 18];
    at[1] = letters[group >> 12 & 63];
    at[2] = rest > 1 ? letters[group >> 6 & 63] : '=';
    at[3] = rest > 2 ? letters[group & 63] : '=';
  }
}
