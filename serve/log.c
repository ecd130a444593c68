// SPDX-License-Identifier: Apache-2.0
// serve/log.c: lines of events.
#include "serve/log.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "serve/json.h"

static bool is_json_form;

void serve_log_use_json(bool is_json) {
  is_json_form = is_json;
}

// Quotes a text only where a reader would not know where it ends.
static void put_text(serve_buffer_t* line, const char* text) {
  const bool is_plain = *text && !strpbrk(text, " \"=\\\n\r\t");
  if (is_plain && !is_json_form) {
    serve_buffer_text(line, text);
  } else {
    serve_json_put_string(line, text, strlen(text));
  }
}

void serve_log(serve_level_t level, const char* message, const serve_field_t* fields,
               size_t count) {
  static const char* const levels[] = {"info", "warning", "error"};
  struct timespec now;
  struct tm utc;
  char time_text[40];
  (void)clock_gettime(CLOCK_REALTIME, &now);
  (void)gmtime_r(&now.tv_sec, &utc);
  const size_t size = strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%S", &utc);
  (void)snprintf(time_text + size, sizeof time_text - size, ".%03ldZ", now.tv_nsec / 1000000);
  serve_buffer_t line = {.data = NULL};
  if (is_json_form) {
    serve_buffer_format(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", time_text,
                        levels[level]);
    serve_json_put_string(&line, message, strlen(message));
  } else {
    serve_buffer_format(&line, "%s %s ", time_text, levels[level]);
    for (const char* at = message; *at; ++at) {
      serve_buffer_append(&line, (uint8_t)*at < 0x20 ? " " : at, 1);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    serve_buffer_format(&line, is_json_form ? ",\"%s\":" : " %s=", fields[i].name);
    if (fields[i].text) {
      put_text(&line, fields[i].text);
    } else {
      serve_json_put_i64(&line, fields[i].number);
    }
  }
  serve_buffer_text(&line, is_json_form ? "}\n" : "\n");
  if (!line.is_exhausted) {
    // A line that cannot be written has nowhere else to go.
    ssize_t written = write(STDERR_FILENO, line.data, line.size);
    (void)written;
  }
  serve_buffer_free(&line);
}
