// SPDX-License-Identifier: Apache-2.0
// bench/serve/http_response.c: see http_response.h.
#include "bench/serve/http_response.h"

#include <string.h>
#include <strings.h>

void http_response_init(http_response_t* response, size_t max_body_bytes) {
  qn__buffer_init(&response->body, qn_allocator_default());
  response->max_body_bytes = max_body_bytes;
  http_response_reset(response);
}

void http_response_deinit(http_response_t* response) {
  qn__buffer_deinit(&response->body);
}

// Begins a head: the first, or the one behind an interim answer.
static void begin_head(http_response_t* response) {
  response->state = HTTP_STATUS_LINE;
  response->status = 0;
  response->keeps_alive = true;
  response->is_first_seen = false;
  response->is_chunked = false;
  response->json_bytes = -1;
  response->length = -1;
  response->left = 0;
  response->head_bytes = 0;
  response->line_size = 0;
}

void http_response_reset(http_response_t* response) {
  begin_head(response);
  response->error = NULL;
  response->has_bytes = false;
  response->interim_count = 0;
  qn__buffer_clear(&response->body);
}

static void set_failed(http_response_t* response, const char* error) {
  response->state = HTTP_FAILED;
  response->error = error;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads digits and nothing else. Returns false if there are none, others, or too many.
static bool read_decimal(qn_str_t text, int64_t* out_value) {
  *out_value = 0;
  if (text.size == 0 || text.size > 18) return false;
  for (size_t i = 0; i < text.size; i++) {
    if (!is_digit(text.data[i])) return false;
    *out_value = *out_value * 10 + (text.data[i] - '0');
  }
  return true;
}

static bool equal_name(qn_str_t a, const char* b) {
  return a.size == strlen(b) && strncasecmp(a.data, b, a.size) == 0;
}

static qn_str_t trimmed(qn_str_t text) {
  while (text.size > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) text.data++, text.size--;
  while (text.size > 0 && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t')) {
    text.size--;
  }
  return text;
}

// "HTTP/1.1 200 OK". The reason may be empty, and so may the space before it.
static void read_status_line(http_response_t* response, qn_str_t line) {
  const char* p = line.data;
  if (line.size < 12 || memcmp(p, "HTTP/1.", 7) != 0 || !is_digit(p[7]) || p[8] != ' ' ||
      p[9] < '1' || p[9] > '9' || !is_digit(p[10]) || !is_digit(p[11]) ||
      (line.size > 12 && p[12] != ' ')) {
    set_failed(response, "not a status line of HTTP/1");
    return;
  }
  response->status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
  response->keeps_alive = p[7] != '0';
  response->state = HTTP_HEADER;
}

static void read_connection(http_response_t* response, qn_str_t value) {
  while (value.size > 0) {
    const char* comma = memchr(value.data, ',', value.size);
    size_t size = comma ? (size_t)(comma - value.data) : value.size;
    qn_str_t token = trimmed((qn_str_t){value.data, size});
    if (equal_name(token, "close")) response->keeps_alive = false;
    if (equal_name(token, "keep-alive")) response->keeps_alive = true;
    value.data += size;
    value.size -= size;
    if (comma) value.data++, value.size--;
  }
}

static bool is_token(qn_str_t name) {
  for (size_t i = 0; i < name.size; i++) {
    char c = name.data[i];
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c);
    if (!is_letter && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c))) return false;
  }
  return name.size > 0;
}

static void read_header(http_response_t* response, qn_str_t line) {
  const char* colon = memchr(line.data, ':', line.size);
  qn_str_t name = {line.data, colon ? (size_t)(colon - line.data) : 0};
  if (!is_token(name)) {
    set_failed(response, "not a header line");
    return;
  }
  qn_str_t value = trimmed((qn_str_t){colon + 1, line.size - name.size - 1});
  int64_t number = 0;
  if (equal_name(name, "content-length")) {
    if (!read_decimal(value, &number) || (response->length >= 0 && response->length != number)) {
      set_failed(response, "bad Content-Length");
    } else {
      response->length = number;
    }
  } else if (equal_name(name, "transfer-encoding")) {
    if (!equal_name(value, "chunked") || response->is_chunked) {
      set_failed(response, "transfer coding is not 'chunked'");
    }
    response->is_chunked = true;
  } else if (equal_name(name, "connection")) {
    read_connection(response, value);
  } else if (equal_name(name, "inference-header-content-length")) {
    if (!read_decimal(value, &response->json_bytes)) {
      set_failed(response, "bad Inference-Header-Content-Length");
    }
  } else if (equal_name(name, "x-quern-first-seen")) {
    response->is_first_seen = value.size == 1 && value.data[0] == '1';
  }
}

static void expect_body(http_response_t* response, uint64_t size, http_state_t state) {
  if (size > response->max_body_bytes - response->body.size) {
    set_failed(response, "body above the limit");
    return;
  }
  response->left = size;
  response->state = state;
}

static void end_head(http_response_t* response) {
  if (response->status < 200) {
    if (response->status == 101) {
      set_failed(response, "switches protocols");
    } else if (++response->interim_count > HTTP_MAX_INTERIM_COUNT) {
      set_failed(response, "too many interim answers");
    } else {
      begin_head(response);
    }
  } else if (response->is_chunked && response->length >= 0) {
    set_failed(response, "both chunks and a Content-Length");
  } else if (response->status == 204 || response->status == 304) {
    response->state = HTTP_DONE;
  } else if (response->is_chunked) {
    response->state = HTTP_CHUNK_SIZE;
  } else if (response->length < 0) {
    response->keeps_alive = false;
    response->state = HTTP_BODY_UNTIL_END;
  } else if (response->length == 0) {
    response->state = HTTP_DONE;
  } else {
    expect_body(response, (uint64_t)response->length, HTTP_BODY_LENGTH);
  }
}

// "1a" or "1a;name=value".
static void read_chunk_size(http_response_t* response, qn_str_t line) {
  uint64_t size = 0;
  size_t i = 0;
  for (; i < line.size && i < 16; i++) {
    char c = line.data[i];
    if (is_digit(c)) {
      size = size * 16 + (uint64_t)(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      size = size * 16 + (uint64_t)(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      size = size * 16 + (uint64_t)(c - 'A' + 10);
    } else {
      break;
    }
  }
  qn_str_t rest = trimmed((qn_str_t){line.data + i, line.size - i});
  if (i == 0 || (rest.size > 0 && rest.data[0] != ';')) {
    set_failed(response, "bad size of a chunk");
  } else if (size == 0) {
    response->head_bytes = 0;  // a limit of their own for trailers
    response->state = HTTP_TRAILER;
  } else {
    expect_body(response, size, HTTP_CHUNK_DATA);
  }
}

static void read_line(http_response_t* response, qn_str_t line) {
  switch (response->state) {
    case HTTP_STATUS_LINE:
      read_status_line(response, line);
      break;
    case HTTP_HEADER:
      if (line.size == 0) {
        end_head(response);
      } else {
        read_header(response, line);
      }
      break;
    case HTTP_CHUNK_SIZE:
      read_chunk_size(response, line);
      break;
    case HTTP_CHUNK_END:
      if (line.size > 0) {
        set_failed(response, "a chunk is longer than its size");
      } else {
        response->head_bytes = 0;
        response->state = HTTP_CHUNK_SIZE;
      }
      break;
    default:  // HTTP_TRAILER: its headers mean nothing here
      if (line.size == 0) response->state = HTTP_DONE;
      break;
  }
}

// Reads up to the end of a line; lines end with "\n" or "\r\n".
static size_t feed_line(http_response_t* response, const char* data, size_t size) {
  const char* end = memchr(data, '\n', size);
  size_t taken = end ? (size_t)(end - data) + 1 : size;
  size_t kept = end ? taken - 1 : taken;
  response->head_bytes += taken;
  if (kept > sizeof response->line - response->line_size ||
      response->head_bytes > HTTP_MAX_HEAD_BYTES) {
    set_failed(response, "a line or the head is too long");
    return taken;
  }
  memcpy(response->line + response->line_size, data, kept);
  response->line_size += kept;
  if (end) {
    qn_str_t line = {response->line, response->line_size};
    if (line.size > 0 && line.data[line.size - 1] == '\r') line.size--;
    response->line_size = 0;
    read_line(response, line);
  }
  return taken;
}

static size_t feed_body(http_response_t* response, const char* data, size_t size) {
  bool has_length = response->state != HTTP_BODY_UNTIL_END;
  if (has_length && size > response->left) size = (size_t)response->left;
  if (!has_length && size > response->max_body_bytes - response->body.size) {
    set_failed(response, "body above the limit");
    return size;
  }
  qn__buffer_bytes(&response->body, data, size);
  if (response->body.has_failed) {
    set_failed(response, "no memory for the body");
    return size;
  }
  if (!has_length) return size;
  response->left -= size;
  if (response->left == 0) {
    response->state = response->state == HTTP_BODY_LENGTH ? HTTP_DONE : HTTP_CHUNK_END;
  }
  return size;
}

size_t http_response_feed(http_response_t* response, const void* data, size_t size) {
  const char* bytes = data;
  size_t used = 0;
  while (used < size && response->state != HTTP_DONE && response->state != HTTP_FAILED) {
    response->has_bytes = true;
    bool is_body = response->state == HTTP_BODY_LENGTH || response->state == HTTP_BODY_UNTIL_END ||
                   response->state == HTTP_CHUNK_DATA;
    used += is_body ? feed_body(response, bytes + used, size - used)
                    : feed_line(response, bytes + used, size - used);
  }
  return used;
}

void http_response_end(http_response_t* response) {
  if (response->state == HTTP_BODY_UNTIL_END) {
    response->state = HTTP_DONE;
  } else if (response->state != HTTP_DONE && response->state != HTTP_FAILED) {
    set_failed(response, "the connection ended within an answer");
  }
}
