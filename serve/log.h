// SPDX-License-Identifier: Apache-2.0
// serve/log.h: one line for each event, as text or JSON, on standard error. Any thread.
#ifndef SERVE_LOG_H_
#define SERVE_LOG_H_

#include "quern/quern.h"

typedef enum serve_level { SERVE_LOG_INFO, SERVE_LOG_WARNING, SERVE_LOG_ERROR } serve_level_t;

typedef struct serve_field {
  const char* name;
  const char* text;  // NULL: `number`
  int64_t number;
} serve_field_t;

#define SERVE_TEXT(name, text) ((serve_field_t){(name), (text), 0})
#define SERVE_NUMBER(name, number) ((serve_field_t){(name), NULL, (int64_t)(number)})

// Chooses the form, before other threads write.
void serve_log_use_json(bool is_json);
// Writes a line: the time in UTC, the level, the message and the fields. Line ends in texts are
// escaped. One write(2) for a line.
void serve_log(serve_level_t level, const char* message, const serve_field_t* fields, size_t count);

#endif  // SERVE_LOG_H_
