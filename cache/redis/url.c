// SPDX-License-Identifier: Apache-2.0
// cache/redis/url.c: parses the URL of a server. Errors name the faulty part and never quote it,
// because it may be a password.
#include "cache/redis/redis.h"

static qn_status_t bad(const char* what) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "URL of the remote tier: %s", what);
}

// Copies `text` and decodes %XX. False when it is malformed, contains a zero byte or does not fit.
static bool decode(qn_str_t text, char* out, size_t room) {
  size_t size = 0;
  for (size_t i = 0; i < text.size; i++) {
    char c = text.data[i];
    if (c == '%') {
      int high = i + 2 < text.size ? qn__hex_digit(text.data[i + 1]) : -1;
      int low = high >= 0 ? qn__hex_digit(text.data[i + 2]) : -1;
      if (low < 0) return false;
      c = (char)(unsigned char)(16 * high + low);
      i += 2;
    }
    if (c == '\0' || size + 1 >= room) return false;
    out[size++] = c;
  }
  out[size] = '\0';
  return true;
}

static bool copy(qn_str_t text, char* out, size_t room) {
  if (text.size >= room) return false;
  memcpy(out, text.data, text.size);
  out[text.size] = '\0';
  return true;
}

static bool is_number(qn_str_t text, unsigned long max) {
  unsigned long value = 0;
  if (text.size == 0 || text.size > 9) return false;
  for (size_t i = 0; i < text.size; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return false;
    value = 10 * value + (unsigned long)(text.data[i] - '0');
  }
  return value <= max;
}

static qn_str_t cut(qn_str_t text, size_t begin, size_t end) {
  return (qn_str_t){text.data + begin, end - begin};
}

// Returns the offset of the first `c` at or after `from`, or the size.
static size_t find(qn_str_t text, char c, size_t from) {
  while (from < text.size && text.data[from] != c) from++;
  return from;
}

static qn_status_t parse_user(qn_str_t text, qn__redis_url_t* out) {
  size_t colon = find(text, ':', 0);
  if (colon == text.size) return bad("there is a user without a password; write user:password@");
  if (!decode(cut(text, 0, colon), out->user, sizeof out->user)) {
    return bad("the user has a bad %XX or is too long");
  }
  if (!decode(cut(text, colon + 1, text.size), out->password, sizeof out->password)) {
    return bad("the password has a bad %XX or is too long");
  }
  if (!out->password[0]) return bad("the password is empty");
  out->has_password = true;
  return QN_OK;
}

static qn_status_t parse_database(qn_str_t text, qn__redis_url_t* out) {
  if (text.size == 0) return QN_OK;
  if (!is_number(text, 99999)) return bad("the database is not a number");
  (void)copy(text, out->database, sizeof out->database);
  return QN_OK;
}

static qn_status_t parse_host(qn_str_t text, qn__redis_url_t* out) {
  qn_str_t host, rest;
  if (text.size > 0 && text.data[0] == '[') {
    size_t end = find(text, ']', 1);
    if (end == text.size) return bad("the bracket of the address is not closed");
    host = cut(text, 1, end);
    rest = cut(text, end + 1, text.size);
  } else {
    size_t end = find(text, ':', 0);
    host = cut(text, 0, end);
    rest = cut(text, end, text.size);
    if (find(rest, ':', 1) < rest.size) return bad("an IPv6 address stands in brackets, as [::1]");
  }
  for (size_t i = 0; i < host.size; i++) {
    if (host.data[i] <= ' ' || host.data[i] == 0x7f) return bad("the host has a space in it");
  }
  if (host.size == 0) return bad("there is no host");
  if (!copy(host, out->host, sizeof out->host)) return bad("the host is too long");
  qn_str_t port = QN_STR("6379");
  if (rest.size > 0) {
    if (rest.data[0] != ':') return bad("something follows the bracket of the address");
    port = cut(rest, 1, rest.size);
  }
  if (!is_number(port, 65535) || is_number(port, 0)) {
    return bad("the port is not a number from 1 to 65535");
  }
  (void)copy(port, out->port, sizeof out->port);
  return QN_OK;
}

static qn_status_t parse_path(qn_str_t text, qn__redis_url_t* out) {
  size_t query = find(text, '?', 0);
  qn_str_t path = cut(text, 0, query);
  if (path.size == 0 || path.data[0] != '/') {
    return bad("the socket is not an absolute path, as redis+unix:///run/redis.sock");
  }
  if (!copy(path, out->path, sizeof out->path)) {
    return bad("the path of the socket has more than 107 characters");
  }
  if (query == text.size) return QN_OK;
  qn_str_t rest = cut(text, query + 1, text.size);
  if (rest.size < 4 || memcmp(rest.data, "db=", 3) != 0) {
    return bad("only db=NUMBER may follow the '?'");
  }
  return parse_database(cut(rest, 3, rest.size), out);
}

qn_status_t qn__redis_url_parse(const char* text, qn__redis_url_t* out) {
  memset(out, 0, sizeof *out);
  const char* colon = strstr(text, "://");
  if (!colon) return bad("there is no \"://\"; expected redis://HOST or redis+unix://PATH");
  qn_str_t scheme = {text, (size_t)(colon - text)};
  qn_str_t rest = qn__str(colon + 3);
  if (qn__str_equal(scheme, QN_STR("rediss"))) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "URL of the remote tier: rediss:// (TLS) is not supported; run stunnel "
                          "on this machine and use redis://127.0.0.1:PORT, or a unix socket with "
                          "redis+unix://PATH (docs/remote.md)");
  }
  out->is_unix = qn__str_equal(scheme, QN_STR("redis+unix"));
  if (!out->is_unix && !qn__str_equal(scheme, QN_STR("redis"))) {
    return bad("the scheme is neither redis nor redis+unix");
  }
  // Credentials end at the last "@" before the path, so that a password may contain one.
  size_t authority = find(rest, '/', 0), at = authority;
  for (size_t i = 0; i < authority; i++) {
    if (rest.data[i] == '@') at = i;
  }
  if (at < authority) {
    QN_TRY(parse_user(cut(rest, 0, at), out));
    rest = cut(rest, at + 1, rest.size);
  }
  if (out->is_unix) return parse_path(rest, out);
  size_t slash = find(rest, '/', 0);
  QN_TRY(parse_host(cut(rest, 0, slash), out));
  return slash < rest.size ? parse_database(cut(rest, slash + 1, rest.size), out) : QN_OK;
}
