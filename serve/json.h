// SPDX-License-Identifier: Apache-2.0
// serve/json.h: reads JSON from memory piece by piece, and writes the parts of JSON that need care.
//
// The caller asks for what it expects, in the order of the text, and nothing is built in memory:
//
//   serve_json_object(&json);
//   while (serve_json_member(&json)) {
//     if (strcmp(json.key, "id") == 0) serve_json_string(&json, &text);
//     else serve_json_skip(&json);
//   }
//   if (!serve_json_end(&json)) return serve_json_status(&json, "the body");
//
// The first error stays: all later calls return false, so one check at the end is enough. Nothing
// is recursive, and the depth is bounded. Texts follow RFC 8259; bytes that are no UTF-8 are an
// error.
#ifndef SERVE_JSON_H_
#define SERVE_JSON_H_

#include "serve/buffer.h"

enum { SERVE_JSON_MAX_DEPTH = 64, SERVE_JSON_KEY_BYTES = 128 };

typedef enum serve_json_kind {
  SERVE_JSON_NONE,  // the end of the text, or no value
  SERVE_JSON_OBJECT,
  SERVE_JSON_ARRAY,
  SERVE_JSON_STRING,
  SERVE_JSON_NUMBER,
  SERVE_JSON_BOOL,
  SERVE_JSON_NULL,
} serve_json_kind_t;

typedef struct serve_json {
  char key[SERVE_JSON_KEY_BYTES];  // of the last member, decoded; longer names are cut
  const char* text;                // borrowed
  size_t size;
  size_t at;
  const char* problem;  // NULL: none; or what was expected
  size_t problem_at;
  uint32_t depth;
  bool is_first;       // no value of the innermost container was read
  uint64_t is_object;  // a bit for each depth
} serve_json_t;

// Starts reading. `text` is borrowed until the last call.
void serve_json_init(serve_json_t* json, const char* text, size_t size);
// Returns INVALID_ARGUMENT with `what`, the offset and what was expected after an error, else OK.
QN_MUST_USE qn_status_t serve_json_status(const serve_json_t* json, const char* what);
// Makes an error at the value before, or at the next one: "expected `expected`". Returns false.
bool serve_json_fail(serve_json_t* json, const char* expected);

// Returns the kind of the next value and reads nothing.
serve_json_kind_t serve_json_peek(serve_json_t* json);

// Enters an object or an array. For each member or element, call serve_json_member or
// serve_json_element, then read its value. They return false at the end, which they read, and after
// an error.
bool serve_json_object(serve_json_t* json);
bool serve_json_member(serve_json_t* json);
bool serve_json_array(serve_json_t* json);
bool serve_json_element(serve_json_t* json);
// Goes through an array of arrays of any depth. Start with serve_json_array and *inout_nest = 0.
// Returns true before each value that is no array.
bool serve_json_leaf(serve_json_t* json, uint32_t* inout_nest);

// Read one value. A string is appended to `out`, decoded to UTF-8, without a zero at the end;
// without memory, `out` is exhausted and the value is read.
bool serve_json_string(serve_json_t* json, serve_buffer_t* out);
bool serve_json_i64(serve_json_t* json, int64_t* out_value);
// Reads an integer and those that follow it in the same array, up to `capacity` in all. Call it
// after serve_json_element or serve_json_leaf returned true. Returns how many; 0 after an error.
size_t serve_json_i64s(serve_json_t* json, int64_t* out_values, size_t capacity);
bool serve_json_f64(serve_json_t* json, double* out_value);
bool serve_json_bool(serve_json_t* json, bool* out_value);
bool serve_json_null(serve_json_t* json);
bool serve_json_skip(serve_json_t* json);
// Returns true if the text ends here and there was no error.
bool serve_json_end(serve_json_t* json);

// Append to a text: a string with its quotes, numbers with commas between them, base64 without
// quotes. Parts of a string that are no UTF-8 become U+FFFD.
void serve_json_put_string(serve_buffer_t* out, const char* text, size_t size);
void serve_json_put_i64(serve_buffer_t* out, int64_t value);
void serve_json_put_i64s(serve_buffer_t* out, const int64_t* values, size_t count);
void serve_json_put_f32s(serve_buffer_t* out, const float* values, size_t count);
void serve_json_put_base64(serve_buffer_t* out, const void* data, size_t size);

#endif  // SERVE_JSON_H_
