// SPDX-License-Identifier: Apache-2.0
// cache/redis/reply.c: reads one reply of the server; its bytes may be anything.
//
// Requirements:
// 1. Reading is bounded: a first line by QN__REDIS_LINE_BYTES, a value by the caller's limit. The
//    length that the server announces is compared with the limit before memory is allocated.
// 2. Values go from the socket to their place without a second buffer.
// 3. An array, or bytes after a reply, close the connection: no command here has such a reply.
//
// Not here: the meaning of a reply (redis.c).
#include "base/alloc.h"
#include "cache/redis/redis.h"

// ---- values

void qn__redis_drop_value(qn__redis_t* redis) {
  uint8_t* value = redis->value;
  redis->value = NULL;
  if (value) qn__free(redis->allocator, value, redis->value_size);
  redis->value_size = 0;
}

// Parses a decimal number without sign, leading zeros or other characters.
static bool parse_number(const uint8_t* digits, size_t size, uint64_t* out) {
  if (size == 0 || size > 18 || (digits[0] == '0' && size > 1)) return false;
  uint64_t value = 0;
  for (size_t i = 0; i < size; i++) {
    if (digits[i] < '0' || digits[i] > '9') return false;
    value = 10 * value + (uint64_t)(digits[i] - '0');
  }
  *out = value;
  return true;
}

// Takes the bytes that have been received, then receives the rest.
static qn__store_result_t take_bytes(qn__redis_t* redis, uint8_t* out, size_t size,
                                     int64_t deadline_ns) {
  assert(redis->in_begin <= redis->in_end && redis->in_end <= sizeof redis->in);
  size_t have = redis->in_end - redis->in_begin;
  if (have > size) have = size;
  memcpy(out, redis->in + redis->in_begin, have);
  redis->in_begin += have;
  while (have < size) {
    size_t got = 0;
    qn__store_result_t result = qn__redis_recv(redis, out + have, size - have, deadline_ns, &got);
    if (result != QN__STORE_OK) return result;
    have += got;
  }
  return QN__STORE_OK;
}

static qn__store_result_t read_bulk(qn__redis_t* redis, const uint8_t* digits, size_t digit_count,
                                    size_t limit_bytes, int64_t deadline_ns) {
  if (digit_count == 2 && memcmp(digits, "-1", 2) == 0) {
    redis->reply.type = QN__REDIS_NIL;
    return QN__STORE_OK;
  }
  uint64_t size = 0;
  if (!parse_number(digits, digit_count, &size)) {
    return qn__redis_fail(redis, QN__STORE_ERROR, "the server sent a malformed length");
  }
  if (size > limit_bytes) {
    return qn__redis_fail(redis, QN__STORE_LARGE,
                          "a value of %" PRIu64 " bytes is larger than the limit of %zu", size,
                          limit_bytes);
  }
  redis->value_size = (size_t)size;
  if (size > 0) {
    redis->value = qn__alloc(redis->allocator, (size_t)size);
    if (!redis->value) return qn__redis_fail(redis, QN__STORE_NO_MEMORY, "out of memory");
  }
  qn__store_result_t result = QN__STORE_OK;
  if (size > 0) result = take_bytes(redis, redis->value, (size_t)size, deadline_ns);
  uint8_t end[2];
  if (result == QN__STORE_OK) result = take_bytes(redis, end, sizeof end, deadline_ns);
  if (result == QN__STORE_OK && memcmp(end, "\r\n", 2) != 0) {
    result = qn__redis_fail(redis, QN__STORE_ERROR, "the server sent a value without an end");
  }
  redis->reply.type = QN__REDIS_BULK;
  return result;
}

// ---- replies

// Receives until the first line is whole. Returns its size without the line end.
static qn__store_result_t fill_line(qn__redis_t* redis, int64_t deadline_ns, size_t* out_size) {
  if (redis->in_begin == redis->in_end) redis->in_begin = redis->in_end = 0;
  for (size_t at = redis->in_begin;;) {
    for (; at + 1 < redis->in_end; at++) {
      if (redis->in[at] == '\r' && redis->in[at + 1] == '\n') {
        *out_size = at - redis->in_begin;
        return QN__STORE_OK;
      }
    }
    if (redis->in_end == sizeof redis->in) {
      return qn__redis_fail(redis, QN__STORE_ERROR, "the server sent a line without an end");
    }
    size_t got = 0;
    qn__store_result_t result = qn__redis_recv(redis, redis->in + redis->in_end,
                                               sizeof redis->in - redis->in_end, deadline_ns, &got);
    if (result != QN__STORE_OK) return result;
    redis->in_end += got;
    assert(redis->in_end <= sizeof redis->in);
  }
}

// Parses a line without its end: a status, an error or an integer. No command here has a negative
// one.
static qn__store_result_t parse_line(qn__redis_t* redis, const uint8_t* line, size_t size) {
  assert(size > 0);
  qn__redis_reply_t* reply = &redis->reply;
  if (line[0] == ':') {
    reply->type = QN__REDIS_INTEGER;
    if (parse_number(line + 1, size - 1, &reply->integer)) return QN__STORE_OK;
    return qn__redis_fail(redis, QN__STORE_ERROR, "the server sent a malformed reply");
  }
  reply->type = line[0] == '+' ? QN__REDIS_STATUS : QN__REDIS_ERROR;
  size_t length = size - 1 < sizeof reply->text ? size - 1 : sizeof reply->text - 1;
  for (size_t i = 0; i < length; i++) {
    // Logs may contain it, so only printable characters stay.
    reply->text[i] = line[1 + i] >= ' ' && line[1 + i] < 0x7f ? (char)line[1 + i] : '?';
  }
  reply->text[length] = '\0';
  return QN__STORE_OK;
}

static qn__store_result_t read_one(qn__redis_t* redis, size_t limit_bytes, int64_t deadline_ns) {
  size_t size = 0;
  qn__store_result_t result = fill_line(redis, deadline_ns, &size);
  if (result != QN__STORE_OK) return result;
  const uint8_t* line = redis->in + redis->in_begin;
  if (size == 0 || !memchr("$+-:", line[0], 4)) {
    return qn__redis_fail(redis, QN__STORE_ERROR, "the peer does not speak as a redis server");
  }
  redis->in_begin += size + 2;
  if (line[0] == '$') return read_bulk(redis, line + 1, size - 1, limit_bytes, deadline_ns);
  return parse_line(redis, line, size);
}

qn__store_result_t qn__redis_read_reply(qn__redis_t* redis, size_t limit_bytes,
                                        int64_t deadline_ns) {
  assert(redis->in_begin == redis->in_end);  // the last reply was read whole, or the socket closed
  qn__redis_drop_value(redis);
  memset(&redis->reply, 0, sizeof redis->reply);
  qn__store_result_t result = read_one(redis, limit_bytes, deadline_ns);
  if (result == QN__STORE_OK && redis->in_begin != redis->in_end) {
    result = qn__redis_fail(redis, QN__STORE_ERROR, "the server sent more than was asked for");
  }
  if (result != QN__STORE_OK) qn__redis_drop_value(redis);
  return result;
}
