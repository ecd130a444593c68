// SPDX-License-Identifier: Apache-2.0
// Answers in one piece, in two at each place, and byte by byte; answers that are none.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "bench/serve/http_response.h"

typedef struct answer_case {
  const char* bytes;
  bool ends;  // the connection ends behind them
  http_state_t state;
  int status;
  const char* body;
  bool keeps_alive;
} answer_case_t;

static const answer_case_t cases[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, HTTP_DONE, 200, "hello", true},
    {"HTTP/1.1 200 OK\ncontent-LENGTH:5\n\nhello", false, HTTP_DONE, 200, "hello", true},
    {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false, HTTP_DONE, 200, "", true},
    {"HTTP/1.1 204 No Content\r\n\r\n", false, HTTP_DONE, 204, "", true},
    {"HTTP/1.1 500 Oops\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", false, HTTP_DONE, 500,
     "no", false},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", false, HTTP_DONE, 200, "x", false},
    {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx", false, HTTP_DONE,
     200, "x", true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0C;x=y\r\n, dear world\r\n"
     "0\r\nTrailer: 1\r\n\r\n",
     false, HTTP_DONE, 200, "hello, dear world", true},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", false, HTTP_DONE,
     200, "x", true},
    {"HTTP/1.1 200 OK\r\n\r\nuntil the end", true, HTTP_DONE, 200, "until the end", false},
    {"HTTP/1.1 200 OK\r\n\r\nuntil", false, HTTP_BODY_UNTIL_END, 200, "until", false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", true, HTTP_FAILED, 200, "short", true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true, HTTP_FAILED, 200,
     "hello", true},
    {"HTTP/1.1 20", true, HTTP_FAILED, 0, "", true},
    {"HTTP/2 200 OK\r\n\r\n", false, HTTP_FAILED, 0, "", true},
    {"<html>garbage here</html>\r\n", false, HTTP_FAILED, 0, "", true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", false, HTTP_FAILED, 200,
     "", true},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", false, HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n", false, HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n", false, HTTP_FAILED, 200, "",
     true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", false, HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", false,
     HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", false, HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", false,
     HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", false, HTTP_FAILED, 200, "",
     true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", false, HTTP_FAILED, 200,
     "ab", true},
    {"HTTP/1.1 200 OK\r\n folded\r\n\r\n", false, HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", false, HTTP_FAILED, 200, "", true},
    {"HTTP/1.1 101 Switching\r\n\r\n", false, HTTP_FAILED, 101, "", true},
};

// `pieces`: the lengths to feed; the last counts for all that is left.
static void check_case(const answer_case_t* c, size_t first, size_t then) {
  http_response_t response;
  http_response_init(&response, 1000);
  size_t size = strlen(c->bytes);
  for (size_t at = 0; at < size;) {
    size_t piece = at == 0 ? first : then;
    if (piece > size - at) piece = size - at;
    size_t used = http_response_feed(&response, c->bytes + at, piece);
    assert_true(used <= piece);
    if (response.state == HTTP_FAILED) break;
    assert_int_equal(used, piece);
    at += piece;
  }
  if (c->ends) http_response_end(&response);
  assert_int_equal(response.state, c->state);
  assert_int_equal(response.state == HTTP_FAILED, response.error != NULL);
  assert_int_equal(response.status, c->status);
  assert_int_equal(response.body.size, strlen(c->body));
  if (response.body.size > 0) {
    assert_memory_equal(response.body.data, c->body, response.body.size);
  }
  if (c->state != HTTP_FAILED) assert_int_equal(response.keeps_alive, c->keeps_alive);
  http_response_deinit(&response);
}

static void test_pieces(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t size = strlen(cases[i].bytes);
    for (size_t split = 1; split <= size; split++) check_case(&cases[i], split, size);
    check_case(&cases[i], 1, 1);
    check_case(&cases[i], 3, 7);
  }
}

static void test_headers(void** state) {
  (void)state;
  static const char bytes[] =
      "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 3\r\nX-Quern-First-Seen: 1\r\n"
      "Content-Length: 4\r\n\r\nabcdHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
  http_response_t response;
  http_response_init(&response, 1000);
  size_t used = http_response_feed(&response, bytes, sizeof bytes - 1);
  assert_int_equal(response.state, HTTP_DONE);
  assert_int_equal(response.json_bytes, 3);
  assert_true(response.is_first_seen);
  // The next answer's bytes are left, and nothing of the last one stays.
  http_response_reset(&response);
  used += http_response_feed(&response, bytes + used, sizeof bytes - 1 - used);
  assert_int_equal(used, sizeof bytes - 1);
  assert_int_equal(response.state, HTTP_DONE);
  assert_int_equal(response.json_bytes, -1);
  assert_false(response.is_first_seen);
  assert_int_equal(response.body.size, 0);
  http_response_deinit(&response);
}

// Heads without end stop at a limit: one long line, many lines, many interim answers, trailers.
static void test_endless_heads(void** state) {
  (void)state;
  static const struct {
    const char* begin;
    const char* more;
  } endless[] = {
      {"HTTP/1.1 200 OK\r\nx: ", "yyyyyyyy"},
      {"HTTP/1.1 200 OK\r\n", "a: b\r\n"},
      {"", "HTTP/1.1 100 Continue\r\n\r\n"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "a: b\r\n"},
  };
  for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
    http_response_t response;
    http_response_init(&response, 1000);
    (void)http_response_feed(&response, endless[i].begin, strlen(endless[i].begin));
    int rounds = 0;
    while (response.state != HTTP_FAILED && rounds++ < 100000) {
      (void)http_response_feed(&response, endless[i].more, strlen(endless[i].more));
    }
    assert_int_equal(response.state, HTTP_FAILED);
    http_response_deinit(&response);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_headers),
      cmocka_unit_test(test_endless_heads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
