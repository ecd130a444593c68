// SPDX-License-Identifier: Apache-2.0
// tests/remote/test_redis_faults.c: tests the socket store against servers that misbehave, and with
// each network call and allocation failing in turn. Needs no redis-server.
// ctest-labels: tsan
//
// Elsewhere: a real server (test_redis_server.c), the breaker
// (tests/unit/cache/test_remote_breaker.c).
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "cache/redis/redis.h"
#include "cache/remote.h"
#include "tests/remote/support.h"
#include "tests/support/fault_net.h"
#include "tests/unit/cache/support.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define NEVER INT64_MAX

const qn__crypto_t* qn_crypto_entry(uint32_t abi_version);

static const qn__store_t* const store = &qn__redis_store;
static const qn_str_t key = QN_STR_INIT("quern:test");

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  (void)nanosleep(&time, NULL);
}

static void* connection_to(const char* format, int port, qn_allocator_t allocator) {
  char url[128];
  (void)snprintf(url, sizeof url, "redis://%s:%d", format, port);
  void* connection = NULL;
  qn_status_t status = store->create(allocator, &qn_fault_net, url, &connection);
  if (!qn_ok(status)) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  return connection;
}

// Gets once over a new connection and frees the value.
static qn__store_result_t get_once(int port, size_t limit, int64_t timeout_ns, char message[256]) {
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn_allocator_t allocator = qn_fault_heap_allocator(&heap);
  void* connection = connection_to("127.0.0.1", port, allocator);
  assert_non_null(connection);
  int64_t deadline_ns = qn__now_ns() + timeout_ns;
  qn__store_result_t result = store->connect(connection, deadline_ns);
  uint8_t* value = NULL;
  size_t size = 0;
  if (result == QN__STORE_OK) {
    result = store->get(connection, key, limit, deadline_ns, &value, &size);
  }
  if (message) (void)snprintf(message, 256, "%s", store->message(connection));
  // An unusable connection is closed.
  bool is_usable =
      result == QN__STORE_OK || result == QN__STORE_ABSENT || result == QN__STORE_DENIED;
  assert_true(store->is_connected(connection) == is_usable);
  if (result == QN__STORE_OK)
    qn__free(allocator, value, size);
  else
    assert_null(value);
  store->destroy(connection);
  assert_int_equal(atomic_load(&heap.live_blocks), 0);
  assert_int_equal(atomic_load(&heap.size_errors), 0);
  assert_int_equal(qn_fault_net_open_count(), 0);
  return result;
}

// ---- URLs

static void test_urls(void** state) {
  (void)state;
  static const struct {
    const char* url;
    const char *host, *port, *user, *password, *database, *path;
  } good[] = {
      {"redis://h", "h", "6379", "", "", "", ""},
      {"redis://h/", "h", "6379", "", "", "", ""},
      {"redis://127.0.0.1:1/15", "127.0.0.1", "1", "", "", "15", ""},
      {"redis://:p@h:65535", "h", "65535", "", "p", "", ""},
      {"redis://u:p%40%2f%3A@h", "h", "6379", "u", "p@/:", "", ""},
      {"redis://u:p@p@[::1]:7/0", "::1", "7", "u", "p@p", "0", ""},
      {"redis://[fe80::1%25eth0]", "fe80::1%25eth0", "6379", "", "", "", ""},
      {"redis+unix:///run/r.sock", "", "", "", "", "", "/run/r.sock"},
      {"redis+unix://u:p@/run/r.sock?db=2", "", "", "u", "p", "2", "/run/r.sock"},
  };
  qn__redis_url_t url;
  for (size_t i = 0; i < QN_COUNT_OF(good); i++) {
    assert_int_equal(qn_status_consume(qn__redis_url_parse(good[i].url, &url)), QN_STATUS_OK);
    assert_string_equal(url.host, good[i].host);
    assert_string_equal(url.port, good[i].port);
    assert_string_equal(url.user, good[i].user);
    assert_string_equal(url.password, good[i].password);
    assert_string_equal(url.database, good[i].database);
    assert_string_equal(url.path, good[i].path);
    assert_true(url.is_unix == (good[i].path[0] != '\0'));
    assert_true(url.has_password == (good[i].password[0] != '\0'));
  }
  static const char* const bad[][2] = {
      {"", "://"},
      {"redis:/h", "://"},
      {"http://h", "scheme"},
      {"rediss://u:hunter2@h", "stunnel"},
      {"redis://", "no host"},
      {"redis://:hunter2@", "no host"},
      {"redis://hunter2@h", "without a password"},
      {"redis://u:@h", "empty"},
      {"redis://u:hunter2%4@h", "%XX"},
      {"redis://u:hunter2%zz@h", "%XX"},
      {"redis://u:hunter2%00@h", "%XX"},
      {"redis://hunter2%:p@h", "%XX"},
      {"redis://h:0", "port"},
      {"redis://h:65536", "port"},
      {"redis://h:", "port"},
      {"redis://h:1x", "port"},
      {"redis://u:hunter2/@h", "port"},
      {"redis://::1", "brackets"},
      {"redis://[::1", "not closed"},
      {"redis://[::1]x", "follows"},
      {"redis://h/x", "database"},
      {"redis://h/1/2", "database"},
      {"redis://h x", "space"},
      {"redis+unix://run/r", "absolute"},
      {"redis+unix:///r?db=x", "database"},
      {"redis+unix:///r?password=hunter2", "db="},
  };
  for (size_t i = 0; i < QN_COUNT_OF(bad); i++) {
    void* connection = &url;
    qn_status_t status =
        store->create(qn_allocator_default(), &qn_fault_net, bad[i][0], &connection);
    assert_null(connection);
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(qn_status_message(status), bad[i][1]));
    assert_null(strstr(qn_status_message(status), "hunter2"));
    qn_status_free(status);
  }
}

// ---- misbehaviour

static void test_answers(void** state) {
  (void)state;
  static char long_line[6000], many[200];
  memset(long_line, 'x', sizeof long_line);
  long_line[0] = '+';
  (void)snprintf(many, sizeof many, "*1000000000\r\n");
  static const struct {
    const char* reply;
    size_t size;  // 0: the length of the text
    qn__store_result_t result;
    const char* message;
  } rows[] = {
      {"$-1\r\n", 0, QN__STORE_ABSENT, NULL},
      {"$0\r\n\r\n", 0, QN__STORE_OK, NULL},
      {"$3\r\nabc\r\n", 0, QN__STORE_OK, NULL},
      {"$100\r\n", 0, QN__STORE_TIMEOUT, "in time"},  // and then nothing
      {"$101\r\n", 0, QN__STORE_LARGE, "larger than the limit"},
      {"$999999999999999999\r\n", 0, QN__STORE_LARGE, "larger than the limit"},
      {"$9999999999999999999\r\n", 0, QN__STORE_ERROR, "malformed length"},
      {"$18446744073709551616\r\n", 0, QN__STORE_ERROR, "malformed length"},
      {"$-2\r\n", 0, QN__STORE_ERROR, "malformed length"},
      {"$ 3\r\nabc\r\n", 0, QN__STORE_ERROR, "malformed length"},
      {"$03\r\nabc\r\n", 0, QN__STORE_ERROR, "malformed length"},
      {"$\r\n", 0, QN__STORE_ERROR, "malformed length"},
      {"$3\r\nabcde", 0, QN__STORE_ERROR, "without an end"},
      {"$3\r\nabc\r\n+OK\r\n", 0, QN__STORE_ERROR, "more than was asked"},
      {"$-1\r\n$-1\r\n", 0, QN__STORE_ERROR, "more than was asked"},
      {"+OK\r\n", 0, QN__STORE_ERROR, "nonsense"},
      {":1\r\n", 0, QN__STORE_ERROR, "nonsense"},
      {many, 0, QN__STORE_ERROR, "does not speak"},
      {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", 0, QN__STORE_ERROR,
       "does not speak"},
      {"*-1\r\n", 0, QN__STORE_ERROR, "does not speak"},
      {"HTTP/1.1 400 Bad Request\r\n\r\n", 0, QN__STORE_ERROR, "does not speak"},
      {"\r\n", 0, QN__STORE_ERROR, "does not speak"},
      {"\0\0\0\r\n", 5, QN__STORE_ERROR, "does not speak"},
      {"%1\r\n+a\r\n+b\r\n", 0, QN__STORE_ERROR, "does not speak"},
      {long_line, sizeof long_line, QN__STORE_ERROR, "line without an end"},
      {"-NOPERM this user has no permissions\r\n", 0, QN__STORE_DENIED, "denies GET: NOPERM this"},
      {"-NOAUTH Authentication required.\r\n", 0, QN__STORE_DENIED, "NOAUTH"},
      {"-LOADING Redis is loading\r\n", 0, QN__STORE_ERROR, "refuses GET: LOADING"},
      {"-MOVED 1 host:6379\r\n", 0, QN__STORE_ERROR, "MOVED"},
      {"-\r\n", 0, QN__STORE_ERROR, "refuses GET"},
      {"-a\033[31mb\r\n", 0, QN__STORE_ERROR, "a?[31mb"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(rows); i++) {
    const size_t size = rows[i].size ? rows[i].size : strlen(rows[i].reply);
    peer_t* peer = peer_start(PEER_ANSWERS, rows[i].reply, size);
    char message[256];
    int64_t timeout_ns = rows[i].result == QN__STORE_TIMEOUT ? 50 * MS : 60 * SECOND;
    assert_int_equal(get_once(peer_port(peer), 100, timeout_ns, message), rows[i].result);
    if (rows[i].message) assert_non_null(strstr(message, rows[i].message));
    peer_stop(peer);
    // The same reply, cut at every length and closed: never a hit, never a hang.
    if (size > 100) continue;
    for (size_t cut = 0; cut < size; cut++) {
      peer = peer_start(PEER_SAYS_LESS, rows[i].reply, cut);
      qn__store_result_t result = get_once(peer_port(peer), 100, 60 * SECOND, NULL);
      if (rows[i].result == QN__STORE_OK || rows[i].result == QN__STORE_TIMEOUT) {
        assert_int_equal(result, QN__STORE_ERROR);
      }
      peer_stop(peer);
    }
  }
}

static void test_silence(void** state) {
  (void)state;
  static const peer_kind_t kinds[] = {PEER_SILENT, PEER_DEAF, PEER_NO_ACCEPT};
  for (size_t i = 0; i < QN_COUNT_OF(kinds); i++) {
    peer_t* peer = peer_start(kinds[i], NULL, 0);
    assert_int_equal(get_once(peer_port(peer), 100, 30 * MS, NULL), QN__STORE_TIMEOUT);
    peer_stop(peer);
  }
  // Sending a value that exceeds both socket buffers does not block for ever.
  peer_t* peer = peer_start(PEER_DEAF, NULL, 0);
  void* connection = connection_to("127.0.0.1", peer_port(peer), qn_allocator_default());
  int64_t deadline_ns = qn__now_ns() + 60 * SECOND;
  assert_int_equal(store->connect(connection, deadline_ns), QN__STORE_OK);
  size_t size = (size_t)64 << 20;
  uint8_t* value = calloc(size, 1);
  assert_non_null(value);
  assert_int_equal(
      store->put(connection, key, (qn_span_t){value, size}, 1000, qn__now_ns() + 50 * MS),
      QN__STORE_TIMEOUT);
  free(value);
  store->destroy(connection);
  peer_stop(peer);
}

// Checks that the deadline covers the whole reply, not each byte.
static void test_drip(void** state) {
  (void)state;
  peer_t* peer = peer_start(PEER_DRIP, NULL, 0);
  assert_int_equal(get_once(peer_port(peer), 100, 60 * SECOND, NULL), QN__STORE_ABSENT);
  peer_stop(peer);
  peer = peer_start(PEER_TRICKLE, NULL, 0);
  size_t limit = PEER_TRICKLE_BYTES;
  assert_int_equal(get_once(peer_port(peer), limit, 70 * MS, NULL), QN__STORE_TIMEOUT);
  peer_stop(peer);
}

static void test_unasked_bytes(void** state) {
  (void)state;
  peer_t* peer = peer_start(PEER_GREETS, "$3\r\nabc\r\n", 9);
  void* connection = connection_to("127.0.0.1", peer_port(peer), qn_allocator_default());
  int64_t deadline_ns = qn__now_ns() + 60 * SECOND;
  assert_int_equal(store->connect(connection, deadline_ns), QN__STORE_OK);
  // After they have arrived, the connection is found unusable and a new one is opened.
  while (peer_connections(peer) < 2) {
    deadline_ns = qn__now_ns() + 60 * SECOND;
    assert_int_equal(store->connect(connection, deadline_ns), QN__STORE_OK);
    sleep_ms(1);
  }
  store->destroy(connection);
  peer_stop(peer);
}

static void test_nobody_there(void** state) {
  (void)state;
  int port;
  int fd = port_of_nobody(&port);
  char message[256];
  assert_int_equal(get_once(port, 100, 60 * SECOND, message), QN__STORE_ERROR);
  assert_non_null(strstr(message, "cannot connect: "));
  (void)close(fd);
  void* connection = NULL;
  assert_int_equal(qn_status_consume(store->create(qn_allocator_default(), &qn_fault_net,
                                                   "redis+unix:///nowhere/at/all", &connection)),
                   QN_STATUS_OK);
  assert_int_equal(store->connect(connection, qn__now_ns() + 60 * SECOND), QN__STORE_ERROR);
  store->destroy(connection);
  connection = connection_to("name.invalid", 1, qn_allocator_default());
  qn_fault_net_arm(1, QN_FAULT_ALWAYS, QN_FAULT_NET_ERRNO, EIO);
  assert_int_equal(store->connect(connection, qn__now_ns() + 60 * SECOND), QN__STORE_ERROR);
  assert_non_null(strstr(store->message(connection), "cannot look up 'name.invalid'"));
  qn_fault_net_arm(0, QN_FAULT_ONCE, QN_FAULT_NET_ERRNO, 0);
  store->destroy(connection);
}

// Checks that the password is not kept: old servers quote it in their answer to AUTH.
static void test_password_is_not_quoted(void** state) {
  (void)state;
  static const char reply[] =
      "-ERR unknown command `AUTH`, with args beginning with: `hunter2`\r\n";
  peer_t* peer = peer_start(PEER_ANSWERS, reply, sizeof reply - 1);
  void* connection = connection_to("u:hunter2@127.0.0.1", peer_port(peer), qn_allocator_default());
  assert_int_equal(store->connect(connection, qn__now_ns() + 60 * SECOND), QN__STORE_DENIED);
  assert_non_null(strstr(store->message(connection), "credentials (ERR)"));
  assert_null(strstr(store->message(connection), "hunter2"));
  store->destroy(connection);
  peer_stop(peer);
}

// ---- the n-th call fails

static const uint8_t secret[QN__MAC_KEY_BYTES] = {9};

static qn__remote_t* make_remote(qn_allocator_t allocator, int port, int64_t timeout_ns) {
  char url[64];
  (void)snprintf(url, sizeof url, "redis://u:p@127.0.0.1:%d/1", port);
  const qn__remote_options_t options = {.allocator = allocator,
                                        .url = url,
                                        .may_write = true,
                                        .timeout_ns = timeout_ns,
                                        .connect_timeout_ns = timeout_ns,
                                        .put_timeout_ns = timeout_ns,
                                        .retry_ns = 1,
                                        .latch_ns = 1,
                                        .store = store,
                                        .crypto = qn_crypto_entry(QN__CRYPTO_ABI_VERSION),
                                        .key = secret};
  (void)qn__net_install(&qn_fault_net);
  qn__remote_t* remote = NULL;
  qn_status_code_t code = qn_status_consume(qn__remote_create(&options, &remote));
  assert_true(code == QN_STATUS_OK || (code == QN_STATUS_OUT_OF_MEMORY && !remote));
  (void)qn__net_install(NULL);
  return remote;
}

static bool get_is_right(qn__remote_t* remote, const sample_t* sample, qn__get_result_t* out) {
  qn__hit_t hit;
  *out = qn__remote_get(remote, &sample->expected, NEVER, &hit);
  bool is_right = *out != QN__GET_HIT || sample_equals(sample, &hit.entry);
  qn__remote_hit_release(remote, &hit);
  return is_right && *out != QN__GET_BAD && *out != QN__GET_UNTRUSTED;
}

// Performs every operation of a remote tier twice. Each gives the right bytes or a miss.
static void use_all(qn__remote_t* remote, const sample_t* sample) {
  for (int i = 0; i < 2; i++) {
    qn__get_result_t result;
    assert_true(get_is_right(remote, sample, &result));
    (void)qn__remote_is_being_made(remote, sample->entry.key, 50, NEVER);
    (void)qn__remote_put(remote, &sample->entry);
    assert_true(qn__remote_flush(remote, 60 * SECOND));
    assert_true(get_is_right(remote, sample, &result));
    (void)qn__remote_is_being_made(remote, sample->entry.key, 50, NEVER);
    qn__remote_give_up(remote, sample->entry.key);
    assert_true(qn__remote_flush(remote, 60 * SECOND));
  }
}

static long walk(qn_fault_net_kind_t kind, int error, qn_fault_mode_t mode, int64_t timeout_ns) {
  sample_t sample;
  sample_make(&sample, 3, 700);
  int64_t patience_ns = timeout_ns;
  for (long n = 1;;) {
    qn_fault_heap_t heap;
    qn_fault_heap_init(&heap);
    peer_t* peer = peer_start(PEER_GOOD, NULL, 0);
    qn__remote_t* remote =
        make_remote(qn_fault_heap_allocator(&heap), peer_port(peer), patience_ns);
    qn_fault_net_arm(n, mode, kind, error);
    use_all(remote, &sample);
    long failures = qn_fault_net_failures();
    // On a busy machine an operation can time out without a fault, and then makes fewer calls. Try
    // again with more time.
    bool is_cut_short = failures == 0 && (qn__remote_counter(remote, "remote_timeouts") > 0 ||
                                          qn__remote_counter(remote, "remote_off") > 0 ||
                                          qn__remote_counter(remote, "remote_claims_failed") > 0 ||
                                          qn__remote_counter(remote, "remote_put_done") < 2);
    qn_fault_net_arm(0, QN_FAULT_ONCE, QN_FAULT_NET_ERRNO, 0);
    // After the fault the tier works again, at the latest when the breakers let a probe through.
    qn__get_result_t result = QN__GET_OFF;
    for (int i = 0; result != QN__GET_HIT; i++) {
      if (i > 0) sleep_ms(1);
      (void)qn__remote_put(remote, &sample.entry);
      assert_true(qn__remote_flush(remote, 60 * SECOND));
      assert_true(get_is_right(remote, &sample, &result));
    }
    qn__remote_destroy(remote, 60 * SECOND);
    peer_stop(peer);
    assert_int_equal(qn_fault_net_open_count(), 0);
    assert_int_equal(atomic_load(&heap.live_blocks), 0);
    assert_int_equal(atomic_load(&heap.size_errors), 0);
    if (failures == 0 && !is_cut_short) {
      sample_free(&sample);
      return n;
    }
    if (!is_cut_short) n++;
    patience_ns = !is_cut_short ? timeout_ns : patience_ns < SECOND ? 4 * patience_ns : 60 * SECOND;
  }
}

static void test_calls_fail(void** state) {
  (void)state;
  static const int errors[] = {EIO, ECONNRESET, EMFILE, EINTR, ENOBUFS};
  long runs = 0;
  for (size_t i = 0; i < QN_COUNT_OF(errors); i++) {
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      long walked = walk(QN_FAULT_NET_ERRNO, errors[i], (qn_fault_mode_t)mode, 100 * MS);
      assert_true(walked > 20);
      runs += walked;
    }
  }
  print_message("%ld runs\n", runs);
}

static void test_short_and_closed(void** state) {
  (void)state;
  assert_true(walk(QN_FAULT_NET_SHORT, 0, QN_FAULT_ONCE, 60 * SECOND) > 20);
  assert_true(walk(QN_FAULT_NET_CLOSED, 0, QN_FAULT_ONCE, 60 * SECOND) > 10);
  assert_true(walk(QN_FAULT_NET_CLOSED, 0, QN_FAULT_ALWAYS, 60 * SECOND) > 1);
  assert_true(walk(QN_FAULT_NET_SILENT, 0, QN_FAULT_ONCE, 60 * SECOND) > 10);
  // Each call transfers one byte: slower, but correct.
  sample_t sample;
  sample_make(&sample, 3, 700);
  peer_t* peer = peer_start(PEER_GOOD, NULL, 0);
  qn__remote_t* remote = make_remote(qn_allocator_default(), peer_port(peer), 60 * SECOND);
  qn_fault_net_arm(1, QN_FAULT_ALWAYS, QN_FAULT_NET_SHORT, 0);
  assert_true(qn__remote_put(remote, &sample.entry));
  assert_true(qn__remote_flush(remote, 60 * SECOND));
  qn__get_result_t result;
  assert_true(get_is_right(remote, &sample, &result));
  assert_int_equal(result, QN__GET_HIT);
  qn_fault_net_arm(0, QN_FAULT_ONCE, QN_FAULT_NET_ERRNO, 0);
  qn__remote_destroy(remote, 60 * SECOND);
  peer_stop(peer);
  sample_free(&sample);
}

static bool use_with(qn_allocator_t allocator, void* user) {
  const sample_t* sample = user;
  peer_t* peer = peer_start(PEER_GOOD, NULL, 0);
  qn__remote_t* remote = make_remote(allocator, peer_port(peer), 60 * SECOND);
  if (remote) use_all(remote, sample);
  qn__remote_destroy(remote, 60 * SECOND);
  peer_stop(peer);
  return qn_fault_net_open_count() == 0;
}

static void test_allocations_fail(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 3, 700);
  assert_true(qn_fault_walk_alloc(use_with, &sample) > 8);
  sample_free(&sample);
}

// Checks that a connection closed by an idle server is retried without an error.
static void test_forgetful_server(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 3, 700);
  peer_t* peer = peer_start(PEER_FORGETFUL, NULL, 0);
  char url[64];
  (void)snprintf(url, sizeof url, "redis://127.0.0.1:%d", peer_port(peer));
  const qn__remote_options_t options = {.url = url,
                                        .may_write = true,
                                        .timeout_ns = 60 * SECOND,
                                        .connect_timeout_ns = 60 * SECOND,
                                        .store = store,
                                        .crypto = qn_crypto_entry(QN__CRYPTO_ABI_VERSION),
                                        .key = secret};
  qn__remote_t* remote = NULL;
  assert_int_equal(qn_status_consume(qn__remote_create(&options, &remote)), QN_STATUS_OK);
  for (int i = 0; i < 20; i++) {
    assert_true(qn__remote_put(remote, &sample.entry));
    assert_true(qn__remote_flush(remote, 60 * SECOND));
    qn__get_result_t result;
    assert_true(get_is_right(remote, &sample, &result));
    assert_int_equal(result, QN__GET_HIT);
  }
  assert_int_equal(qn__remote_breaker(remote, NULL), QN__BREAKER_CLOSED);
  assert_int_equal(qn__remote_counter(remote, "remote_errors"), 0);
  qn__remote_destroy(remote, 60 * SECOND);
  peer_stop(peer);
  sample_free(&sample);
}

// ---- hangs

static _Atomic bool resolver_hangs, is_in_resolver;
static void hang_in_resolver(void* user) {
  (void)user;
  atomic_store(&is_in_resolver, true);
  while (atomic_load(&resolver_hangs)) sleep_ms(1);
}

// Checks a hanging name resolution: callers return at their deadline, the tier can be destroyed,
// and the thread frees everything when it returns.
static void test_resolver_hangs(void** state) {
  (void)state;
  static qn_fault_heap_t heap;  // the abandoned thread may use it last
  qn_fault_heap_init(&heap);
  sample_t sample;
  sample_make(&sample, 3, 700);
  peer_t* peer = peer_start(PEER_GOOD, NULL, 0);
  qn__remote_t* remote = make_remote(qn_fault_heap_allocator(&heap), peer_port(peer), 5 * MS);
  atomic_store(&resolver_hangs, true);
  qn_fault_net_on_resolve(hang_in_resolver, NULL);
  qn__get_result_t result;
  assert_true(qn__remote_put(remote, &sample.entry));
  // On a busy machine callers may return before the thread begins, and before a call that it began
  // is overdue.
  do {
    assert_true(get_is_right(remote, &sample, &result));
    assert_true(result == QN__GET_TIMEOUT || result == QN__GET_OFF);
  } while (!atomic_load(&is_in_resolver) || result != QN__GET_OFF);
  for (int i = 0; i < 100; i++) {
    assert_true(get_is_right(remote, &sample, &result));
    assert_int_equal(result, QN__GET_OFF);
  }
  assert_false(qn__remote_put(remote, &sample.entry));
  qn__remote_destroy(remote, 0);
  assert_true(atomic_load(&heap.live_blocks) > 0);
  atomic_store(&resolver_hangs, false);
  while (atomic_load(&heap.live_blocks) > 0) sleep_ms(1);
  assert_int_equal(qn_fault_net_open_count(), 0);
  qn_fault_net_on_resolve(NULL, NULL);
  peer_stop(peer);
  sample_free(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_urls),
      cmocka_unit_test(test_answers),
      cmocka_unit_test(test_silence),
      cmocka_unit_test(test_drip),
      cmocka_unit_test(test_unasked_bytes),
      cmocka_unit_test(test_nobody_there),
      cmocka_unit_test(test_password_is_not_quoted),
      cmocka_unit_test(test_calls_fail),
      cmocka_unit_test(test_short_and_closed),
      cmocka_unit_test(test_allocations_fail),
      cmocka_unit_test(test_forgetful_server),
      cmocka_unit_test(test_resolver_hangs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
