// SPDX-License-Identifier: Apache-2.0
// serve/error.h: why a request is refused, as HTTP says it. Each protocol writes it in its own
// shape.
#ifndef SERVE_ERROR_H_
#define SERVE_ERROR_H_

#include "quern/quern.h"

// The statuses that clients get, and when.
enum {
  SERVE_BAD_REQUEST = 400,      // the body is not what the protocol says
  SERVE_UNAUTHORIZED = 401,     // a key is missing or unknown
  SERVE_NOT_FOUND = 404,        // no such route, model or version
  SERVE_NO_METHOD = 405,        // the route has other methods
  SERVE_TOO_LARGE = 413,        // the body, the number of texts, or a text that may not be cut
  SERVE_UNPROCESSABLE = 422,    // the values are not ones that the model takes
  SERVE_TOO_MANY = 429,         // too much waits; Retry-After says how long
  SERVE_INTERNAL = 500,         // the model failed
  SERVE_UNAVAILABLE = 503,      // the server or the model is starting or draining
  SERVE_GATEWAY_TIMEOUT = 504,  // the deadline passed
};

typedef struct serve_error {
  uint32_t status;        // 0: no error
  int64_t retry_after_s;  // of SERVE_TOO_MANY and SERVE_UNAVAILABLE
  char message[512];      // UTF-8; cut at a character if it is too long
} serve_error_t;

// Sets the error unless there is one already. Returns false.
bool serve_error_set(serve_error_t* error, uint32_t status, const char* format, ...)
    QN_PRINTF(3, 4);
// Sets the error from a status, which is consumed: its message, and `http` as the status. Returns
// true if `status` was ok.
bool serve_error_from(serve_error_t* error, uint32_t http, qn_status_t status);

#endif  // SERVE_ERROR_H_
