// SPDX-License-Identifier: Apache-2.0
// tests/remote/test_redis_server.c: tests the remote tier against redis-server, started in a
// private directory with a free port and a Unix socket. Skips with 77 if redis-server is not
// installed.
//
// Elsewhere: servers that misbehave (test_redis_faults.c), whole programs (test_end_to_end.sh).
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/thread.h"
#include "cache/redis/redis.h"
#include "cache/remote_inner.h"
#include "tests/remote/support.h"
#include "tests/unit/cache/support.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define NEVER INT64_MAX
// An operation that takes longer counts as a hang.
#define PATIENCE (600 * SECOND)
// Longer than any test.
#define CLAIM_MS 3600000

const qn__crypto_t* qn_crypto_entry(uint32_t abi_version);

static const uint8_t secret[QN__MAC_KEY_BYTES] = {9};
static redis_server_t server;
static sample_t sample;
// Collects all log messages, to search them for passwords.
static char logged[16384];
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;

static void take_log(void* self, qn_log_level_t level, const char* message) {
  (void)self, (void)level;
  (void)pthread_mutex_lock(&log_mutex);
  size_t size = strlen(logged);
  (void)snprintf(logged + size, sizeof logged - size, "%s\n", message);
  (void)pthread_mutex_unlock(&log_mutex);
}

// The log line is written shortly after the answer.
static bool was_logged(const char* text) {
  const struct timespec ms = {0, 1000000};
  bool is_there = false;
  for (int64_t end_ns = qn__now_ns() + PATIENCE; !is_there && qn__now_ns() < end_ns;) {
    (void)nanosleep(&ms, NULL);
    (void)pthread_mutex_lock(&log_mutex);
    is_there = strstr(logged, text) != NULL;
    (void)pthread_mutex_unlock(&log_mutex);
  }
  return is_there;
}

static qn__remote_options_t usual(const char* url) {
  return (qn__remote_options_t){.url = url,
                                .may_write = true,
                                .timeout_ns = PATIENCE,
                                .connect_timeout_ns = PATIENCE,
                                .retry_ns = 3600 * SECOND,
                                .latch_ns = 3600 * SECOND,
                                .store = &qn__redis_store,
                                .crypto = qn_crypto_entry(QN__CRYPTO_ABI_VERSION),
                                .key = secret};
}

static qn__remote_t* make(const qn__remote_options_t* options) {
  qn__remote_t* remote = NULL;
  qn_status_t status = qn__remote_create(options, &remote);
  if (!qn_ok(status)) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  assert_int_equal(qn_status_consume(status), QN_STATUS_OK);
  return remote;
}

static const char* url_of(const char* credentials) {
  static char url[128];
  (void)snprintf(url, sizeof url, "redis://%s127.0.0.1:%d", credentials, server.port);
  return url;
}

static qn__remote_t* connect_as(const char* credentials) {
  const qn__remote_options_t options = usual(url_of(credentials));
  return make(&options);
}

static void start(const char* const* options) {
  bool is_missing = false;
  assert_true(redis_start(&server, options, &is_missing));
}

static qn__get_result_t get(qn__remote_t* remote) {
  qn__hit_t hit;
  qn__get_result_t result = qn__remote_get(remote, &sample.expected, NEVER, &hit);
  if (result == QN__GET_HIT) assert_true(sample_equals(&sample, &hit.entry));
  qn__remote_hit_release(remote, &hit);
  return result;
}

// Puts and waits. Returns true if the server has the value.
static bool put(qn__remote_t* remote) {
  uint64_t done = qn__remote_counter(remote, "remote_put_done");
  (void)qn__remote_put(remote, &sample.entry);
  assert_true(qn__remote_flush(remote, PATIENCE));
  return qn__remote_counter(remote, "remote_put_done") == done + 1;
}

static void ask_server(const char* command, const char* begins) {
  char text[512];
  assert_true(redis_say(&server, command, text, sizeof text));
  if (strncmp(text, begins, strlen(begins)) != 0) {
    fail_msg("the server answered '%s' to '%s', expected '%s'", text, command, begins);
  }
}

static int set_up(void** state) {
  (void)state;
  memset(&server, 0, sizeof server);
  sample_make(&sample, 6, 100000);
  logged[0] = '\0';
  qn_log_set_sink(QN_LOG_DEBUG, take_log, NULL);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_log_set_sink(QN_LOG_WARN, NULL, NULL);
  redis_stop(&server);
  sample_free(&sample);
  return strstr(logged, "hunter2") ? -1 : 0;
}

// ---- plain use

static void use(qn__remote_t* remote) {
  assert_int_equal(get(remote), QN__GET_ABSENT);
  assert_true(put(remote));
  assert_int_equal(get(remote), QN__GET_HIT);
  assert_true(put(remote));
  assert_int_equal(get(remote), QN__GET_HIT);
}

static void test_tcp_and_unix(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* remote = connect_as("");
  use(remote);
  qn__remote_destroy(remote, PATIENCE);
  // One tier puts, another gets, over a different kind of connection to the same server.
  char url[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(url, sizeof url, "redis+unix://%s", server.unix_path);
  qn__remote_options_t options = usual(url);
  remote = make(&options);
  assert_int_equal(get(remote), QN__GET_HIT);
  qn__remote_destroy(remote, PATIENCE);
  // Another database of the server is empty.
  (void)snprintf(url, sizeof url, "redis+unix://%s?db=3", server.unix_path);
  remote = make(&options);
  use(remote);
  qn__remote_destroy(remote, PATIENCE);
  // A name with several addresses.
  (void)snprintf(url, sizeof url, "redis://localhost:%d", server.port);
  remote = make(&options);
  assert_int_equal(get(remote), QN__GET_HIT);
  qn__remote_destroy(remote, PATIENCE);
  // A database that does not exist.
  (void)snprintf(url, sizeof url, "redis://localhost:%d/77", server.port);
  remote = make(&options);
  assert_int_equal(get(remote), QN__GET_ERROR);
  qn__remote_destroy(remote, PATIENCE);
}

static void test_ttl(void** state) {
  (void)state;
  start(NULL);
  qn__remote_options_t options = usual(url_of(""));
  options.ttl_ms = 1234567;
  qn__remote_t* remote = make(&options);
  assert_true(put(remote));
  char name[QN__REMOTE_NAME_BYTES], command[256], text[64];
  (void)qn__remote_name(remote, sample.entry.key, name);
  (void)snprintf(command, sizeof command, "PTTL %s\r\n", name);
  assert_true(redis_say(&server, command, text, sizeof text));
  long left = strtol(text + 1, NULL, 10);
  assert_true(left > 0 && left <= 1234567);
  qn__remote_destroy(remote, PATIENCE);
  options.ttl_ms = -1;
  remote = make(&options);
  assert_true(put(remote));
  ask_server(command, ":-1\r\n");
  qn__remote_destroy(remote, PATIENCE);
  options.ttl_ms = 0;
  remote = make(&options);
  assert_true(put(remote));
  assert_true(redis_say(&server, command, text, sizeof text));
  assert_true(strtoll(text + 1, NULL, 10) > INT64_C(29) * 86400000);
  // The server drops the value: a miss.
  (void)snprintf(command, sizeof command, "PEXPIRE %s 1\r\n", name);
  ask_server(command, ":1\r\n");
  qn__get_result_t result = QN__GET_HIT;
  while (result == QN__GET_HIT) result = get(remote);
  assert_int_equal(result, QN__GET_ABSENT);
  qn__remote_destroy(remote, PATIENCE);
}

static void test_claims(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* first = connect_as("");
  qn__remote_t* second = connect_as("");
  qn_hash128_t key = sample.entry.key;
  assert_false(qn__remote_is_being_made(first, key, CLAIM_MS, NEVER));
  assert_true(qn__remote_is_being_made(second, key, CLAIM_MS, NEVER));
  assert_true(put(first));
  assert_int_equal(qn__remote_counter(first, "remote_claims_released"), 1);
  assert_int_equal(get(second), QN__GET_HIT);
  assert_false(qn__remote_is_being_made(second, key, CLAIM_MS, NEVER));
  assert_true(qn__remote_is_being_made(first, key, CLAIM_MS, NEVER));
  qn__remote_give_up(second, key);
  assert_true(qn__remote_flush(second, PATIENCE));
  // A claim expires after its machine died.
  assert_false(qn__remote_is_being_made(second, key, 1, NEVER));
  while (qn__remote_is_being_made(first, key, CLAIM_MS, NEVER)) continue;
  // The claim now belongs to the first tier. A late release by the second tier does not remove it.
  qn__remote_give_up(second, key);
  assert_true(qn__remote_flush(second, PATIENCE));
  assert_true(qn__remote_is_being_made(second, key, CLAIM_MS, NEVER));
  qn__remote_destroy(first, PATIENCE);
  qn__remote_destroy(second, PATIENCE);
}

// ---- rights

static void test_password(void** state) {
  (void)state;
  static const char* const options[] = {"--requirepass", "hunter2", NULL};
  start(options);
  qn__remote_t* remote = connect_as(":hunter2@");
  use(remote);
  assert_null(strstr(qn__remote_url(remote), "hunter2"));
  qn__remote_destroy(remote, PATIENCE);
  remote = connect_as("default:hunter2@");
  assert_int_equal(get(remote), QN__GET_HIT);
  qn__remote_destroy(remote, PATIENCE);
  static const char* const wrong[] = {"", ":hunter22@", "nobody:hunter2@"};
  for (size_t i = 0; i < QN_COUNT_OF(wrong); i++) {
    remote = connect_as(wrong[i]);
    // Put first: the first get opens the breaker, which drops later puts.
    assert_false(put(remote));
    assert_int_equal(get(remote), QN__GET_ERROR);
    assert_int_equal(qn__remote_counter(remote, "remote_denied"), 1);
    assert_int_equal(get(remote), QN__GET_OFF);
    assert_false(put(remote));
    // A server rejects values of this size from clients that have not authenticated.
    assert_int_equal(qn__remote_counter(remote, "remote_put_failed_denied") +
                         qn__remote_counter(remote, "remote_put_failed_error"),
                     1);
    qn__remote_destroy(remote, PATIENCE);
  }
  assert_true(was_logged("redis://***@127.0.0.1"));
  assert_true(was_logged("credentials (WRONGPASS)"));
  assert_true(was_logged("NOAUTH"));
}

static void test_read_only_user(void** state) {
  (void)state;
  start(NULL);
  ask_server("ACL SETUSER reader on >hunter2 ~quern:* +get\r\n", "+OK");
  ask_server("ACL SETUSER writer on >hunter2 ~quern:* +get +set +eval +del\r\n", "+OK");
  qn__remote_t* writer = connect_as("writer:hunter2@");
  use(writer);
  assert_false(qn__remote_is_being_made(writer, sample.entry.key, CLAIM_MS, NEVER));
  qn__remote_give_up(writer, sample.entry.key);
  assert_true(qn__remote_flush(writer, PATIENCE));
  assert_int_equal(qn__remote_counter(writer, "remote_claims_released"), 1);
  qn__remote_t* reader = connect_as("reader:hunter2@");
  assert_int_equal(get(reader), QN__GET_HIT);
  assert_false(put(reader));
  assert_int_equal(qn__remote_counter(reader, "remote_put_failed_denied"), 1);
  // Puts are off, gets are on.
  assert_true(qn__remote_is_writing_off(reader));
  assert_false(put(reader));
  assert_int_equal(qn__remote_counter(reader, "remote_put_dropped_off"), 1);
  assert_int_equal(get(reader), QN__GET_HIT);
  assert_int_equal(qn__remote_breaker(reader, NULL), QN__BREAKER_CLOSED);
  // Reading keys outside its permitted prefix is a denial, not a miss.
  qn__remote_destroy(reader, PATIENCE);
  ask_server("ACL SETUSER reader resetkeys ~other:*\r\n", "+OK");
  reader = connect_as("reader:hunter2@");
  assert_int_equal(get(reader), QN__GET_ERROR);
  assert_int_equal(qn__remote_counter(reader, "remote_denied"), 1);
  qn__remote_destroy(reader, PATIENCE);
  qn__remote_destroy(writer, PATIENCE);
}

static void test_out_of_memory(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* remote = connect_as("");
  assert_true(put(remote));
  ask_server("CONFIG SET maxmemory-policy noeviction\r\n", "+OK");
  ask_server("CONFIG SET maxmemory 1\r\n", "+OK");
  assert_false(put(remote));
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_denied"), 1);
  assert_int_equal(get(remote), QN__GET_HIT);
  assert_false(qn__remote_is_being_made(remote, sample.entry.key, 1000, NEVER));
  assert_int_equal(get(remote), QN__GET_HIT);
  assert_true(was_logged("puts are off"));
  // There is room again, and the latch has expired.
  ask_server("CONFIG SET maxmemory 0\r\n", "+OK");
  atomic_store(&remote->denied_until_ns, 1);
  assert_true(put(remote));
  qn__remote_destroy(remote, PATIENCE);
}

static void test_replica(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* remote = connect_as("");
  assert_true(put(remote));
  // A replica without its master still serves reads.
  ask_server("CONFIG SET replica-serve-stale-data yes\r\n", "+OK");
  ask_server("REPLICAOF 127.0.0.1 1\r\n", "+OK");
  assert_int_equal(get(remote), QN__GET_HIT);
  assert_false(put(remote));
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_denied"), 1);
  assert_int_equal(get(remote), QN__GET_HIT);
  qn__remote_destroy(remote, PATIENCE);
}

// ---- trouble

static void test_large(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* remote = connect_as("");
  assert_true(put(remote));
  qn__remote_destroy(remote, PATIENCE);
  qn__remote_options_t options = usual(url_of(""));
  options.max_entry_bytes = 50000;
  remote = make(&options);
  for (int i = 0; i < 5; i++) assert_int_equal(get(remote), QN__GET_BAD);
  assert_int_equal(qn__remote_counter(remote, "remote_large"), 5);
  assert_int_equal(qn__remote_breaker(remote, NULL), QN__BREAKER_CLOSED);
  qn__remote_destroy(remote, PATIENCE);
  // Another client stored invalid bytes under the key.
  char name[QN__REMOTE_NAME_BYTES], command[256];
  remote = connect_as("");
  (void)qn__remote_name(remote, sample.entry.key, name);
  (void)snprintf(command, sizeof command, "SET %s nonsense\r\n", name);
  ask_server(command, "+OK");
  assert_int_equal(get(remote), QN__GET_UNTRUSTED);
  (void)snprintf(command, sizeof command, "DEL %s\r\n", name);
  ask_server(command, ":1");
  (void)snprintf(command, sizeof command, "LPUSH %s nonsense\r\n", name);
  ask_server(command, ":1");
  assert_int_equal(get(remote), QN__GET_ERROR);  // WRONGTYPE
  assert_true(put(remote));                      // replaces
  assert_int_equal(get(remote), QN__GET_HIT);
  qn__remote_destroy(remote, PATIENCE);
}

static void test_restart(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* remote = connect_as("");
  assert_true(put(remote));
  redis_kill(&server);
  for (int i = 0; i < 3; i++) assert_int_equal(get(remote), QN__GET_ERROR);
  assert_int_equal(get(remote), QN__GET_OFF);
  assert_true(was_logged("gets are off"));
  assert_true(redis_restart(&server, NULL));
  assert_int_equal(get(remote), QN__GET_OFF);
  atomic_store(&remote->breaker.open_until_ns, 1);
  assert_int_equal(get(remote), QN__GET_ABSENT);
  assert_true(was_logged("gets are on again"));
  assert_true(put(remote));
  assert_int_equal(get(remote), QN__GET_HIT);
  // The server restarts between two gets; the caller gets no error.
  redis_kill(&server);
  assert_true(redis_restart(&server, NULL));
  assert_int_equal(get(remote), QN__GET_ABSENT);
  assert_true(put(remote));
  assert_int_equal(qn__remote_counter(remote, "remote_errors"), 3);
  qn__remote_destroy(remote, PATIENCE);
}

// Expires the open breaker, so that the next operation probes the server.
static void let_it_ask(qn__remote_t* remote) {
  if (atomic_load(&remote->breaker.open_until_ns) != 0)
    atomic_store(&remote->breaker.open_until_ns, 1);
}

// Gets from a hanging server until a get opens the breaker. Returns the number of gets. Usually one
// is enough; on a busy machine the queue's thread may start too late for a get to count as a
// timeout of the server.
static uint64_t time_out(qn__remote_t* remote) {
  const struct timespec ms = {0, 1000000};
  uint64_t count = 0;
  do {
    qn__get_result_t result = get(remote);
    // The thread may still be returning from the previous get.
    if (result != QN__GET_OFF) assert_int_equal(result, QN__GET_TIMEOUT);
    count += result == QN__GET_TIMEOUT;
    (void)nanosleep(&ms, NULL);
  } while (qn__remote_breaker(remote, NULL) != QN__BREAKER_OPEN);
  assert_true(count > 0);
  return count;
}

static void test_stopped_server(void** state) {
  (void)state;
  start(NULL);
  qn__remote_options_t options = usual(url_of(""));
  options.timeout_ns = 300 * MS;
  options.connect_timeout_ns = 300 * MS;
  options.put_timeout_ns = 300 * MS;
  qn__remote_t* remote = make(&options);
  while (!put(remote)) atomic_store(&remote->denied_until_ns, 1);
  assert_int_equal(kill(server.pid, SIGSTOP), 0);
  uint64_t timeouts = time_out(remote);
  for (int i = 0; i < 1000; i++) assert_int_equal(get(remote), QN__GET_OFF);
  assert_false(put(remote));
  assert_false(put(remote));
  // The server still hangs: the probe delays one caller once.
  let_it_ask(remote);
  timeouts += time_out(remote);
  for (int i = 0; i < 1000; i++) assert_int_equal(get(remote), QN__GET_OFF);
  assert_int_equal(qn__remote_counter(remote, "remote_timeouts"), timeouts);
  assert_int_equal(kill(server.pid, SIGCONT), 0);
  for (qn__get_result_t result = QN__GET_OFF; result != QN__GET_HIT; result = get(remote)) {
    let_it_ask(remote);
  }
  // Destroy the tier while the server hangs.
  assert_int_equal(kill(server.pid, SIGSTOP), 0);
  atomic_store(&remote->denied_until_ns, 0);
  (void)qn__remote_put(remote, &sample.entry);
  qn__remote_destroy(remote, 10 * MS);
}

static void test_idle_timeout(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* remote = connect_as("");
  assert_true(put(remote));
  for (int i = 0; i < 5; i++) {
    ask_server("CLIENT KILL TYPE normal SKIPME yes\r\n", ":");
    assert_int_equal(get(remote), QN__GET_HIT);
    assert_true(put(remote));
  }
  assert_int_equal(qn__remote_counter(remote, "remote_errors"), 0);
  qn__remote_destroy(remote, PATIENCE);
}

// Checks that a child uses its own connections and does not disturb the parent's.
static void test_fork(void** state) {
  (void)state;
  start(NULL);
  qn__remote_t* remote = connect_as("");
  assert_true(put(remote));
  assert_int_equal(get(remote), QN__GET_HIT);
  for (int i = 0; i < 5; i++) {
    pid_t child = fork();
    if (child == 0) {
      int descriptors = qn_test_descriptor_count();
      bool is_fine = get(remote) == QN__GET_HIT && put(remote);
      is_fine = is_fine && qn_test_descriptor_count() == descriptors + 2;
      qn__remote_destroy(remote, PATIENCE);
      _exit(is_fine ? 0 : 1);
    }
    assert_true(child > 0);
    for (int k = 0; k < 50; k++) assert_int_equal(get(remote), QN__GET_HIT);
    int code = 0;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
  }
  assert_int_equal(qn__remote_counter(remote, "remote_connects"), 2);
  qn__remote_destroy(remote, PATIENCE);
}

// Opens the module as a program does, with the key from a file.
static void test_modules(void** state) {
  (void)state;
  start(NULL);
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/key", server.directory);
  static const char digits[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
  assert_true(qn_test_write_file(path, digits, sizeof digits - 1));
  const qn__remote_options_t options = {.url = url_of(""),
                                        .key_file = path,
                                        .may_write = true,
                                        .timeout_ns = PATIENCE,
                                        .connect_timeout_ns = PATIENCE,
                                        .plugin_directory = QN_BINARY_DIR "/lib"};
  qn__remote_t* remote = NULL;
  (void)chmod(path, 0644);
  assert_int_equal(qn_status_consume(qn__remote_create(&options, &remote)),
                   QN_STATUS_PERMISSION_DENIED);
  (void)chmod(path, 0600);
  remote = make(&options);
  use(remote);
  qn__remote_destroy(remote, PATIENCE);
}

int main(void) {
  bool is_missing = false;
  if (!redis_start(&server, NULL, &is_missing) && is_missing) {
    (void)fprintf(stderr, "no redis-server here: skipped (tools/install-deps check)\n");
    return 77;
  }
  redis_stop(&server);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_tcp_and_unix, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_ttl, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_claims, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_password, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_read_only_user, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_out_of_memory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_replica, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_large, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_restart, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_stopped_server, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_idle_timeout, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_fork, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_modules, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
