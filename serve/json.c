// SPDX-License-Identifier: Apache-2.0
// serve/json.c: reading JSON. serve/json_put.c writes it.
#include "serve/json.h"

#include "serve/number.h"
#include "serve/unicode.h"

_Static_assert(SERVE_JSON_MAX_DEPTH <= 64, "a bit of is_object for each depth");

void serve_json_init(serve_json_t* json, const char* text, size_t size) {
  // An empty buffer has no memory.
  *json = (serve_json_t){.text = size > 0 ? text : "", .size = size};
}

qn_status_t serve_json_status(const serve_json_t* json, const char* what) {
  if (!json->problem) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: byte %zu: expected %s", what,
                        json->problem_at, json->problem);
}

bool serve_json_fail(serve_json_t* json, const char* expected) {
  if (json->problem) return false;
  json->problem = expected;
  json->problem_at = json->at;
  return false;
}

static void skip_space(serve_json_t* json) {
  while (json->at < json->size) {
    const uint8_t c = (uint8_t)json->text[json->at];
    if (c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t')) return;
    json->at++;
  }
}

// Returns the next character that is no white space; 0 at the end.
static char next(serve_json_t* json) {
  skip_space(json);
  return json->at < json->size ? json->text[json->at] : '\0';
}

serve_json_kind_t serve_json_peek(serve_json_t* json) {
  if (json->problem) return SERVE_JSON_NONE;
  const char c = next(json);
  switch (c) {
    case '{':
      return SERVE_JSON_OBJECT;
    case '[':
      return SERVE_JSON_ARRAY;
    case '"':
      return SERVE_JSON_STRING;
    case 't':
    case 'f':
      return SERVE_JSON_BOOL;
    case 'n':
      return SERVE_JSON_NULL;
    default:
      return c == '-' || (c >= '0' && c <= '9') ? SERVE_JSON_NUMBER : SERVE_JSON_NONE;
  }
}

// ------------------------------------------------------------------------------------ containers

static bool enter(serve_json_t* json, char open, const char* expected) {
  if (json->problem) return false;
  if (next(json) != open) return serve_json_fail(json, expected);
  if (json->depth == SERVE_JSON_MAX_DEPTH) {
    return serve_json_fail(json, "at most 64 arrays and objects in each other");
  }
  const uint64_t bit = UINT64_C(1) << json->depth++;
  json->is_object = open == '{' ? json->is_object | bit : json->is_object & ~bit;
  json->at++;
  json->is_first = true;
  return true;
}

// Reads what is before the next value of a container. Returns false at its end.
static bool advance(serve_json_t* json, char close, const char* expected) {
  if (json->problem) return false;
  const char c = next(json);
  if (c == close) {
    json->at++;
    json->depth--;
    json->is_first = false;
    return false;
  }
  if (json->is_first) {
    json->is_first = false;
    return true;
  }
  if (c != ',') return serve_json_fail(json, expected);
  json->at++;
  return true;
}

bool serve_json_object(serve_json_t* json) {
  return enter(json, '{', "an object");
}

bool serve_json_array(serve_json_t* json) {
  return enter(json, '[', "an array");
}

bool serve_json_element(serve_json_t* json) {
  return advance(json, ']', "',' or ']'");
}

bool serve_json_leaf(serve_json_t* json, uint32_t* inout_nest) {
  for (;;) {
    if (!serve_json_element(json)) {
      if (json->problem || *inout_nest == 0) return false;
      --*inout_nest;
    } else if (next(json) != '[') {
      return true;
    } else if (!serve_json_array(json)) {
      return false;
    } else {
      ++*inout_nest;
    }
  }
}

// ------------------------------------------------------------------------------------ strings

static bool read_hex(serve_json_t* json, uint32_t* out_code) {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i, json->at++) {
    const char c = json->at < json->size ? json->text[json->at] : '\0';
    if (c >= '0' && c <= '9') {
      code = code << 4 | (uint32_t)(c - '0');
    } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
      code = code << 4 | (uint32_t)((c | 32) - 'a' + 10);
    } else {
      return serve_json_fail(json, "four hexadecimal digits");
    }
  }
  *out_code = code;
  return true;
}

// Reads what follows a backslash and writes its character. Returns the length; 0: an error.
static size_t read_escape(serve_json_t* json, uint8_t out[4]) {
  static const char from[] = "\"\\/bfnrt";
  static const char to[] = "\"\\/\b\f\n\r\t";
  const char c = json->at < json->size ? json->text[json->at] : '\0';
  const char* found = c ? strchr(from, c) : NULL;
  if (found) {
    json->at++;
    out[0] = (uint8_t)to[found - from];
    return 1;
  }
  if (c != 'u') {
    (void)serve_json_fail(json, "an escape sequence");
    return 0;
  }
  json->at++;
  uint32_t code = 0;
  if (!read_hex(json, &code)) return 0;
  if (code >= 0xd800 && code < 0xe000) {
    uint32_t low = 0;
    const bool has_low = code < 0xdc00 && json->size - json->at >= 6 &&
                         json->text[json->at] == '\\' && json->text[json->at + 1] == 'u';
    if (has_low) {
      json->at += 2;
      if (!read_hex(json, &low)) return 0;
    }
    if (low < 0xdc00 || low >= 0xe000) {
      (void)serve_json_fail(json, "the second half of a surrogate pair");
      return 0;
    }
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  return serve_utf8_write(code, out);
}

// Receives the pieces of a string.
typedef struct sink {
  serve_buffer_t* buffer;  // NULL: the key of the reader, or nothing
  char* key;
  size_t key_size;
} sink_t;

static void put(sink_t* sink, const char* data, size_t size) {
  if (sink->buffer) {
    serve_buffer_append(sink->buffer, data, size);
  } else if (sink->key) {
    const size_t room = SERVE_JSON_KEY_BYTES - 1 - sink->key_size;
    const size_t count = size < room ? size : room;
    memcpy(sink->key + sink->key_size, data, count);
    sink->key_size += count;
  }
}

// Reads a string from its first quote to its last one.
static bool read_string(serve_json_t* json, sink_t* sink, const char* expected) {
  if (json->problem) return false;
  if (next(json) != '"') return serve_json_fail(json, expected);
  json->at++;
  for (;;) {
    const size_t start = json->at;
    while (json->at < json->size) {
      const uint8_t c = (uint8_t)json->text[json->at];
      if (c == '"' || c == '\\' || c < 0x20 || c >= 0x80) break;
      json->at++;
    }
    put(sink, json->text + start, json->at - start);
    if (json->at == json->size) return serve_json_fail(json, "the end of a string");
    const char c = json->text[json->at];
    if (c == '"') {
      json->at++;
      return true;
    }
    if (c == '\\') {
      json->at++;
      uint8_t character[4];
      const size_t length = read_escape(json, character);
      if (length == 0) return false;
      put(sink, (const char*)character, length);
      continue;
    }
    uint32_t code = 0;
    bool is_valid = false;
    const uint8_t* bytes = (const uint8_t*)json->text;
    const size_t length = serve_utf8_read(bytes + json->at, bytes + json->size, &code, &is_valid);
    if (!is_valid) return serve_json_fail(json, "UTF-8");
    if (code < 0x20) return serve_json_fail(json, "an escape sequence for a control character");
    put(sink, json->text + json->at, length);
    json->at += length;
  }
}

bool serve_json_string(serve_json_t* json, serve_buffer_t* out) {
  return read_string(json, &(sink_t){.buffer = out}, "a string");
}

bool serve_json_member(serve_json_t* json) {
  if (!advance(json, '}', "',' or '}'")) return false;
  const size_t start = json->at;
  sink_t sink = {.key = json->key};
  if (!read_string(json, &sink, "the name of a member")) return false;
  json->key[sink.key_size] = '\0';
  if (strlen(json->key) != sink.key_size) {
    json->at = start;
    return serve_json_fail(json, "a name without U+0000");
  }
  if (next(json) != ':') return serve_json_fail(json, "':'");
  json->at++;
  return true;
}

// ------------------------------------------------------------------------------------ other values

static bool read_word(serve_json_t* json, const char* word) {
  const size_t size = strlen(word);
  if (json->size - json->at < size || memcmp(json->text + json->at, word, size) != 0) return false;
  json->at += size;
  return true;
}

bool serve_json_i64(serve_json_t* json, int64_t* out_value) {
  if (json->problem) return false;
  (void)next(json);
  const size_t length = serve_i64_read(json->text + json->at, json->size - json->at, out_value);
  if (length == 0) return serve_json_fail(json, "an integer of 64 bits");
  json->at += length;
  return true;
}

size_t serve_json_i64s(serve_json_t* json, int64_t* out_values, size_t capacity) {
  for (size_t count = 0; count < capacity;) {
    if (!serve_json_i64(json, &out_values[count])) return 0;
    ++count;
    const bool has_more = next(json) == ',';
    if (!has_more || count == capacity) return count;
    const size_t comma = json->at++;
    const char c = next(json);
    if (c != '-' && (c < '0' || c > '9')) {
      json->at = comma;  // what follows is not for us
      return count;
    }
  }
  return 0;
}

bool serve_json_f64(serve_json_t* json, double* out_value) {
  if (json->problem) return false;
  (void)next(json);
  const size_t length = serve_f64_read(json->text + json->at, json->size - json->at, out_value);
  if (length == 0) return serve_json_fail(json, "a number");
  json->at += length;
  return true;
}

bool serve_json_bool(serve_json_t* json, bool* out_value) {
  if (json->problem) return false;
  const bool is_true = next(json) == 't';
  if (!read_word(json, is_true ? "true" : "false")) return serve_json_fail(json, "true or false");
  *out_value = is_true;
  return true;
}

bool serve_json_null(serve_json_t* json) {
  if (json->problem) return false;
  (void)next(json);
  return read_word(json, "null") || serve_json_fail(json, "null");
}

// Reads a value that is neither an array nor an object.
static bool skip_scalar(serve_json_t* json) {
  double number;
  bool boolean;
  switch (serve_json_peek(json)) {
    case SERVE_JSON_STRING:
      return read_string(json, &(sink_t){.buffer = NULL}, "a string");
    case SERVE_JSON_NUMBER:
      return serve_json_f64(json, &number);
    case SERVE_JSON_BOOL:
      return serve_json_bool(json, &boolean);
    case SERVE_JSON_NULL:
      return serve_json_null(json);
    default:
      return serve_json_fail(json, "a value");
  }
}

bool serve_json_skip(serve_json_t* json) {
  const uint32_t depth = json->depth;
  bool has_value = true;  // the next thing is a value of this depth, to be read
  for (;;) {
    if (has_value) {
      const serve_json_kind_t kind = serve_json_peek(json);
      if (kind == SERVE_JSON_OBJECT) {
        if (!serve_json_object(json)) return false;
      } else if (kind == SERVE_JSON_ARRAY) {
        if (!serve_json_array(json)) return false;
      } else if (!skip_scalar(json)) {
        return false;
      }
    }
    if (json->depth == depth) return true;
    const bool is_object = json->is_object >> (json->depth - 1) & 1;
    has_value = is_object ? serve_json_member(json) : serve_json_element(json);
    if (json->problem) return false;
    if (!has_value && json->depth == depth) return true;
  }
}

bool serve_json_end(serve_json_t* json) {
  if (json->problem) return false;
  (void)next(json);
  return (json->at == json->size && json->depth == 0) || serve_json_fail(json, "the end");
}
