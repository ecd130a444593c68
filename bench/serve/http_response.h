// SPDX-License-Identifier: Apache-2.0
// bench/serve/http_response.h: reads one HTTP/1.1 answer from bytes that arrive in any pieces.
//
// Knows what servers of inference protocols send: Content-Length, chunks, bodies that the end of
// the connection ends, interim answers (1xx, skipped). It is strict: what could be read in two ways
// is an error. Not a proxy's parser: no obsolete folding, no transfer coding but "chunked".
// Thread rule: one thread at a time.
#ifndef BENCH_SERVE_HTTP_RESPONSE_H_
#define BENCH_SERVE_HTTP_RESPONSE_H_

#include "base/buffer.h"

enum { HTTP_MAX_LINE_BYTES = 8192, HTTP_MAX_HEAD_BYTES = 65536, HTTP_MAX_INTERIM_COUNT = 16 };

typedef enum http_state {
  HTTP_STATUS_LINE,
  HTTP_HEADER,
  HTTP_BODY_LENGTH,     // `left` bytes to come
  HTTP_BODY_UNTIL_END,  // until the connection ends
  HTTP_CHUNK_SIZE,
  HTTP_CHUNK_DATA,  // `left` bytes to come
  HTTP_CHUNK_END,   // the line end behind a chunk's data
  HTTP_TRAILER,
  HTTP_DONE,
  HTTP_FAILED,
} http_state_t;

typedef struct http_response {
  http_state_t state;
  const char* error;  // in HTTP_FAILED: what is wrong
  int status;         // 100..999
  bool keeps_alive;
  bool is_first_seen;     // x-quern-first-seen: 1
  bool has_bytes;         // of this answer, at least one byte has arrived
  bool is_chunked;        // private from here on, except `json_bytes` and `body`
  int64_t json_bytes;     // Inference-Header-Content-Length; -1: none
  int64_t length;         // Content-Length; -1: none
  uint64_t left;          // of the body or of the chunk
  size_t max_body_bytes;  // a longer body is an error
  size_t head_bytes;
  size_t line_size;
  int interim_count;
  qn__buffer_t body;
  char line[HTTP_MAX_LINE_BYTES];
} http_response_t;

void http_response_init(http_response_t* response, size_t max_body_bytes);
void http_response_deinit(http_response_t* response);
// Makes ready for the next answer of the same connection. Keeps the memory of `body`.
void http_response_reset(http_response_t* response);
// Reads bytes until the answer is done or wrong. Returns how many were read; those behind the
// answer's end are left.
size_t http_response_feed(http_response_t* response, const void* data, size_t size);
// The connection has ended: a body without a length is done now, anything else is wrong.
void http_response_end(http_response_t* response);

#endif  // BENCH_SERVE_HTTP_RESPONSE_H_
