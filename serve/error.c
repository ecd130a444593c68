// SPDX-License-Identifier: Apache-2.0
// serve/error.c: the first error of a request.
#include "serve/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Takes a character off the end that was cut in its middle.
static void trim(char* text) {
  size_t size = strlen(text);
  size_t at = size;
  while (at > 0 && ((uint8_t)text[at - 1] & 0xc0) == 0x80) --at;
  if (at == 0 || at == size) {
    if (size > 0 && (uint8_t)text[size - 1] >= 0xc0) text[size - 1] = '\0';
    return;
  }
  const uint8_t first = (uint8_t)text[at - 1];
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  if (size - (at - 1) < length) text[at - 1] = '\0';
}

bool serve_error_set(serve_error_t* error, uint32_t status, const char* format, ...) {
  if (error->status != 0) return false;
  error->status = status;
  va_list args;
  va_start(args, format);
  (void)vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  trim(error->message);
  return false;
}

bool serve_error_from(serve_error_t* error, uint32_t http, qn_status_t status) {
  if (qn_ok(status)) return true;
  (void)serve_error_set(error, http, "%s", qn_status_message(status));
  qn_status_free(status);
  return false;
}
