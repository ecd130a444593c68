// tests/unit/cache/test_remote.c: the remote tier over a store in memory: hits, refusals, the
// breaker, callers that leave, threads that hang, puts, memory that runs out.
//
// ctest-labels: tsan
//
// Not here: claims and fork (test_remote_claims.c), the protocol (tests/remote).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/thread.h"
#include "cache/remote_inner.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"
#include "tests/unit/cache/support_remote.h"

#define SECOND INT64_C(1000000000)
#define HOUR (3600 * SECOND)
#define NEVER INT64_MAX

static const uint8_t secret[QN__MAC_KEY_BYTES] = {1, 2, 3};
static const uint8_t other_secret[QN__MAC_KEY_BYTES] = {1, 2, 4};

// Long times, so that nothing ends by itself; a test shortens what it is about.
static qn__remote_options_t usual(void) {
  return (qn__remote_options_t){.url = "fake://nowhere",
                                .trust_domain = "test",
                                .may_write = true,
                                .timeout_ns = 60 * SECOND,
                                .retry_ns = HOUR,
                                .store = &fake_store,
                                .crypto = &fake_crypto,
                                .key = secret};
}

static qn__remote_t* make(const qn__remote_options_t* options) {
  qn__remote_t* remote = NULL;
  assert_int_equal(qn_status_consume(qn__remote_create(options, &remote)), QN_STATUS_OK);
  return remote;
}

static qn__get_result_t get_by(qn__remote_t* remote, const sample_t* sample, int64_t deadline_ns) {
  qn__hit_t hit;
  qn__get_result_t result = qn__remote_get(remote, &sample->expected, deadline_ns, &hit);
  if (result == QN__GET_HIT) {
    assert_true(sample_equals(sample, &hit.entry));
    assert_int_equal((uintptr_t)hit.bytes % 16, 0);
  }
  qn__remote_hit_release(remote, &hit);
  qn__remote_hit_release(remote, &hit);
  return result;
}

static qn__get_result_t get(qn__remote_t* remote, const sample_t* sample) {
  return get_by(remote, sample, NEVER);
}

static void put(qn__remote_t* remote, const sample_t* sample) {
  uint64_t done = qn__remote_counter(remote, "remote_put_done");
  assert_true(qn__remote_put(remote, &sample->entry));
  assert_true(qn__remote_flush(remote, 60 * SECOND));
  assert_int_equal(qn__remote_counter(remote, "remote_put_done"), done + 1);
}

static int set_up(void** state) {
  (void)state;
  fake_reset();
  return 0;
}

// ---------------------------------------------------------------------------------------- plain
// use

static void test_put_then_get(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample, other;
  sample_make(&sample, 1, 5000);
  sample_make(&other, 2, 0);
  assert_int_equal(get(remote, &sample), QN__GET_ABSENT);
  put(remote, &sample);
  put(remote, &other);
  assert_int_equal(get(remote, &sample), QN__GET_HIT);
  assert_int_equal(get(remote, &other), QN__GET_HIT);
  assert_int_equal(qn__remote_counter(remote, "remote_hits"), 2);
  assert_int_equal(qn__remote_counter(remote, "remote_misses"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_put_queued"), 2);
  assert_true(qn__remote_counter(remote, "remote_put_bytes") ==
              qn__remote_counter(remote, "remote_bytes_read"));
  assert_int_equal(qn__remote_counter(remote, "no such counter"), 0);
  // One connection for gets, one for puts.
  assert_int_equal(qn__remote_counter(remote, "remote_connects"), 2);
  char name[QN__REMOTE_NAME_BYTES], hex[33];
  qn__hash128_hex(sample.entry.key, hex);
  (void)snprintf(name, sizeof name, "quern:1.%u:test:%s", QN__ENTRY_VERSION, hex);
  assert_true(fake_has(name));
  qn__remote_destroy(remote, 0);
  assert_int_equal(fake_connections(), 0);
  sample_free(&sample);
  sample_free(&other);
}

static void test_reader_puts_nothing(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  options.may_write = false;
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 100);
  assert_false(qn__remote_put(remote, &sample.entry));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_role"), 1);
  assert_false(qn__remote_is_being_made(remote, sample.entry.key, 1000, NEVER));
  qn__remote_give_up(remote, sample.entry.key);
  assert_true(qn__remote_flush(remote, 0));
  assert_int_equal(fake_calls(FAKE_CLAIM) + fake_calls(FAKE_PUT) + fake_calls(FAKE_CONNECT), 0);
  assert_int_equal(fake_connections(), 1);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

static void refuses(const qn__remote_options_t* options, qn_status_code_t code, const char* text) {
  qn__remote_t* remote = NULL;
  qn_status_t status = qn__remote_create(options, &remote);
  assert_null(remote);
  assert_int_equal(qn_status_code(status), code);
  assert_non_null(strstr(qn_status_message(status), text));
  assert_null(strstr(qn_status_message(status), "hunter2"));
  qn_status_free(status);
  assert_int_equal(fake_connections(), 0);
}

static void test_bad_options(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  options.url = "";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "empty");
  options = usual();
  options.trust_domain = "a:b";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "trust domain");
  options.trust_domain = "12345678901234567890123456789012345678901234567890123456789012345";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "64");
  options = usual();
  options.key = NULL;
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "QUERN_REMOTE_KEY");
  options.key_file = "/nowhere/key";
  refuses(&options, QN_STATUS_NOT_FOUND, "/nowhere/key");
  options = usual();
  options.store = NULL;
  options.plugin_directory = "/nowhere";
  options.url = "user:hunter2@host";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "'***@host' is not a URL");
  options.url = "RE DIS://user:hunter2@host";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "RE DIS://***@host");
  options.url = "memcached://user:hunter2@host";
  refuses(&options, QN_STATUS_UNAVAILABLE, "libquern-memcached.so");
}

static void test_masked_urls(void** state) {
  (void)state;
  static const char* const rows[][2] = {
      {"redis://host:1/2", "redis://host:1/2"},
      {"redis://u:hunter2@host:1/2", "redis://***@host:1/2"},
      {"redis://:hunter2@host", "redis://***@host"},
      {"redis://u:p@hunter2@host", "redis://***@host"},
      {"redis://u:hunter2/x@host/3", "redis://***@host/3"},
      {"redis:hunter2@host", "***@host"},
      {"redis+unix://u:hunter2@/run/r?db=3", "redis+unix://***@/run/r?db=3"},
      {"redis+unix:///run/r?db=3", "redis+unix:///run/r?db=3"},
      {"redis+unix:///run/r?password=hunter2", "redis+unix:///run/r?***"},
      {"redis+unix:///run/r?db=hunter2", "redis+unix:///run/r?***"},
      {"", ""},
      {"@", "@"},
      {"://", "://"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(rows); i++) {
    qn__buffer_t out;
    qn__buffer_init(&out, qn_allocator_default());
    qn__remote_mask_url(qn__str(rows[i][0]), &out);
    assert_string_equal(out.size ? (const char*)out.data : "", rows[i][1]);
    qn__buffer_deinit(&out);
  }
}

// ---------------------------------------------------------------------------------------- refusals

static void test_authenticity(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample, other;
  sample_make(&sample, 3, 64);
  sample_make(&other, 5, 64);
  put(remote, &sample);
  uint8_t value[4096];
  char name[200], other_name[QN__REMOTE_NAME_BYTES];
  size_t size = fake_value(NULL, value, sizeof value, name, sizeof name);
  assert_true(size > QN__REMOTE_HEADER_BYTES);
  uint64_t refused = 0;
  // Every bit of every byte, and every length.
  for (size_t i = 0; i < size; i++) {
    for (unsigned bit = 0; bit < 8; bit++) {
      value[i] ^= (uint8_t)(1u << bit);
      fake_set_value(name, value, size);
      assert_int_equal(get(remote, &sample), QN__GET_UNTRUSTED);
      value[i] ^= (uint8_t)(1u << bit);
      refused++;
    }
  }
  for (size_t cut = 0; cut < size; cut++) {
    fake_set_value(name, value, cut);
    assert_int_equal(get(remote, &sample), QN__GET_UNTRUSTED);
    refused++;
  }
  value[size] = 0;
  fake_set_value(name, value, size + 1);
  assert_int_equal(get(remote, &sample), QN__GET_UNTRUSTED);
  refused++;
  // An authentic value under another key.
  (void)qn__remote_name(remote, other.entry.key, other_name);
  fake_set_value(other_name, value, size);
  assert_int_equal(get(remote, &other), QN__GET_UNTRUSTED);
  refused++;
  assert_int_equal(qn__remote_counter(remote, "remote_bad_mac"), refused);
  // None of it makes the breaker open, and what is whole is taken.
  fake_set_value(name, value, size);
  assert_int_equal(get(remote, &sample), QN__GET_HIT);
  qn__remote_destroy(remote, 0);

  // Another key of the fleet, and another domain that somebody copied the value to.
  options.key = other_secret;
  remote = make(&options);
  assert_int_equal(get(remote, &sample), QN__GET_UNTRUSTED);
  qn__remote_destroy(remote, 0);
  options.key = secret;
  options.trust_domain = "production";
  remote = make(&options);
  assert_int_equal(get(remote, &sample), QN__GET_ABSENT);
  (void)qn__remote_name(remote, sample.entry.key, other_name);
  fake_set_value(other_name, value, size);
  assert_int_equal(get(remote, &sample), QN__GET_UNTRUSTED);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
  sample_free(&other);
}

// A holder of the key who writes nonsense.
static void test_authentic_nonsense(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample, other;
  sample_make(&sample, 3, 64);
  sample_make(&other, 5, 64);
  put(remote, &sample);
  _Alignas(16) uint8_t value[4096];
  char text[200];
  size_t size = fake_value(NULL, value, sizeof value, text, sizeof text);
  qn_str_t name = qn__str(text);
  value[size - 1] ^= 1;
  qn__remote_seal(remote, name, value, size);
  fake_set_value(text, value, size);
  qn__hit_t hit;
  assert_int_equal(qn__remote_get(remote, &sample.expected, NEVER, &hit), QN__GET_BAD);
  assert_int_equal(hit.reason, QN__REASON_CHECKSUM);
  assert_int_equal(qn__remote_counter(remote, "remote_bad_checksum"), 1);
  // An empty entry.
  qn__remote_seal(remote, name, value, QN__REMOTE_HEADER_BYTES);
  fake_set_value(text, value, QN__REMOTE_HEADER_BYTES);
  assert_int_equal(qn__remote_get(remote, &sample.expected, NEVER, &hit), QN__GET_BAD);
  assert_int_equal(qn__remote_counter(remote, "remote_bad_truncated"), 1);
  // The entry of another key, sealed for this one.
  put(remote, &other);
  char other_name[QN__REMOTE_NAME_BYTES];
  (void)qn__remote_name(remote, other.entry.key, other_name);
  size = fake_value(other_name, value, sizeof value, NULL, 0);
  qn__remote_seal(remote, name, value, size);
  fake_set_value(text, value, size);
  assert_int_equal(get(remote, &sample), QN__GET_BAD);
  assert_int_equal(qn__remote_counter(remote, "remote_bad_key"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_bad_mac"), 0);
  assert_int_equal(qn__remote_breaker(remote, false, NULL), QN__BREAKER_CLOSED);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
  sample_free(&other);
}

static void test_sizes(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* writer = make(&options);
  sample_t sample;
  sample_make(&sample, 3, 20000);
  put(writer, &sample);
  assert_int_equal(fake_calls(FAKE_PUT), 1);
  qn__remote_destroy(writer, 0);
  size_t size = qn__entry_size(&sample.entry);
  options.max_entry_bytes = size - 1;
  qn__remote_t* remote = make(&options);
  qn__hit_t hit;
  assert_int_equal(qn__remote_get(remote, &sample.expected, NEVER, &hit), QN__GET_BAD);
  assert_int_equal(hit.reason, QN__REASON_LENGTHS);
  assert_int_equal(fake_limit(), size - 1 + QN__REMOTE_HEADER_BYTES);
  assert_int_equal(qn__remote_counter(remote, "remote_large"), 1);
  assert_false(qn__remote_put(remote, &sample.entry));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_size"), 1);
  qn__remote_destroy(remote, 0);
  options.max_entry_bytes = size;
  remote = make(&options);
  assert_int_equal(get(remote, &sample), QN__GET_HIT);
  put(remote, &sample);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

// ------------------------------------------------------------------------------------- the breaker

static void is_breaker(qn__remote_t* remote, bool of_puts, qn__breaker_state_t state,
                       int64_t period_ns) {
  int64_t period = -1;
  assert_string_equal(qn__breaker_state_name(qn__remote_breaker(remote, of_puts, &period)),
                      qn__breaker_state_name(state));
  assert_int_equal(period, period_ns);
}

static void test_first_timeout_opens(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  is_breaker(remote, false, QN__BREAKER_CLOSED, 0);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, -1);
  assert_int_equal(get(remote, &sample), QN__GET_TIMEOUT);
  is_breaker(remote, false, QN__BREAKER_OPEN, HOUR);
  for (int i = 0; i < 1000; i++) assert_int_equal(get(remote, &sample), QN__GET_OFF);
  assert_int_equal(fake_calls(FAKE_GET), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_timeouts"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_off"), 1000);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_opened"), 1);
  // Puts have a breaker of their own.
  put(remote, &sample);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

static void test_third_error_opens(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  assert_int_equal(get(remote, &sample), QN__GET_ABSENT);
  for (int i = 0; i < 3; i++) {
    // Twice in a row is an accident. The first one is tried again, because the connection was not
    // new; the second one is not.
    fake_order(FAKE_GET, QN__STORE_ERROR, 3);
    assert_int_equal(get(remote, &sample), QN__GET_ERROR);
    assert_int_equal(get(remote, &sample), QN__GET_ERROR);
    assert_int_equal(get(remote, &sample), QN__GET_ABSENT);
    is_breaker(remote, false, QN__BREAKER_CLOSED, 0);
  }
  assert_int_equal(qn__remote_counter(remote, "remote_retried"), 3);
  // Not so when they come without a success between them.
  fake_order(FAKE_CONNECT, QN__STORE_ERROR, -1);
  fake_order(FAKE_GET, QN__STORE_ERROR, 1);
  assert_int_equal(get(remote, &sample), QN__GET_ERROR);
  assert_int_equal(get(remote, &sample), QN__GET_ERROR);
  is_breaker(remote, false, QN__BREAKER_CLOSED, 0);
  assert_int_equal(get(remote, &sample), QN__GET_ERROR);
  is_breaker(remote, false, QN__BREAKER_OPEN, HOUR);
  assert_int_equal(get(remote, &sample), QN__GET_OFF);
  assert_int_equal(qn__remote_counter(remote, "remote_errors"), 9);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

static void test_denial_opens(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  fake_order(FAKE_CONNECT, QN__STORE_DENIED, 1);
  assert_int_equal(get(remote, &sample), QN__GET_ERROR);
  assert_int_equal(qn__remote_counter(remote, "remote_denied"), 1);
  is_breaker(remote, false, QN__BREAKER_OPEN, HOUR);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

// Lets the time of an open breaker pass.
static void pass_time(qn__lane_t* lane) {
  assert_int_not_equal(atomic_load(&lane->open_until_ns), 0);
  atomic_store(&lane->open_until_ns, 1);
}

typedef struct asker {
  qn__remote_t* remote;
  const sample_t* sample;
  int64_t deadline_ns;
  qn__get_result_t result;
  pthread_t thread;
} asker_t;

static void* ask(void* arg) {
  asker_t* asker = arg;
  asker->result = get_by(asker->remote, asker->sample, asker->deadline_ns);
  return NULL;
}

static void start_asker(asker_t* asker, qn__remote_t* remote, const sample_t* sample) {
  *asker = (asker_t){.remote = remote, .sample = sample, .deadline_ns = NEVER};
  assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void test_one_probe(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  put(remote, &sample);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  assert_int_equal(get(remote, &sample), QN__GET_TIMEOUT);
  pass_time(&remote->asks);
  is_breaker(remote, false, QN__BREAKER_HALF_OPEN, HOUR);
  // The probe is on its way; whoever comes meanwhile is sent off at once.
  fake_hold(FAKE_GET);
  asker_t prober;
  start_asker(&prober, remote, &sample);
  fake_wait_held(FAKE_GET, 1);
  for (int i = 0; i < 100; i++) assert_int_equal(get(remote, &sample), QN__GET_OFF);
  // It fails: twice as long.
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  fake_release(FAKE_GET);
  assert_int_equal(pthread_join(prober.thread, NULL), 0);
  assert_int_equal(prober.result, QN__GET_TIMEOUT);
  is_breaker(remote, false, QN__BREAKER_OPEN, HOUR);  // longer than 60 s as it is
  assert_int_equal(get(remote, &sample), QN__GET_OFF);
  // The next one works.
  pass_time(&remote->asks);
  assert_int_equal(get(remote, &sample), QN__GET_HIT);
  is_breaker(remote, false, QN__BREAKER_CLOSED, 0);
  assert_int_equal(get(remote, &sample), QN__GET_HIT);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_probes"), 2);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_opened"), 2);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_closed"), 1);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

static void test_period_doubles(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  options.retry_ns = SECOND;
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  fake_order(FAKE_CONNECT, QN__STORE_TIMEOUT, -1);
  assert_int_equal(get(remote, &sample), QN__GET_TIMEOUT);
  static const int64_t seconds[] = {1, 2, 4, 8, 16, 32, 60, 60};
  for (size_t i = 0; i < QN_COUNT_OF(seconds); i++) {
    int64_t period_ns = 0;
    (void)qn__remote_breaker(remote, false, &period_ns);
    assert_int_equal(period_ns, seconds[i] * SECOND);
    pass_time(&remote->asks);
    assert_int_equal(get(remote, &sample), QN__GET_TIMEOUT);
  }
  // From the start again after a success, and a single error of a probe is enough.
  fake_order(FAKE_CONNECT, QN__STORE_OK, 0);
  pass_time(&remote->asks);
  assert_int_equal(get(remote, &sample), QN__GET_ABSENT);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  assert_int_equal(get(remote, &sample), QN__GET_TIMEOUT);
  int64_t period_ns = 0;
  (void)qn__remote_breaker(remote, false, &period_ns);
  assert_int_equal(period_ns, SECOND);
  fake_order(FAKE_CONNECT, QN__STORE_ERROR, 1);
  pass_time(&remote->asks);
  assert_int_equal(get(remote, &sample), QN__GET_ERROR);
  (void)qn__remote_breaker(remote, false, &period_ns);
  assert_int_equal(period_ns, 2 * SECOND);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

// A probe that ends without an answer either way leaves the question open.
static void test_probe_without_memory(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  assert_int_equal(get(remote, &sample), QN__GET_TIMEOUT);
  pass_time(&remote->asks);
  fake_order(FAKE_GET, QN__STORE_NO_MEMORY, 1);
  assert_int_equal(get(remote, &sample), QN__GET_NO_MEMORY);
  is_breaker(remote, false, QN__BREAKER_HALF_OPEN, HOUR);
  assert_int_equal(get(remote, &sample), QN__GET_ABSENT);
  is_breaker(remote, false, QN__BREAKER_CLOSED, 0);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

// What waits in the queue when the breaker opens is sent off, not made to wait in turn.
static void test_queue_is_refused(void** state) {
  (void)state;
  enum { askers = 8 };
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  fake_hold(FAKE_GET);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  asker_t all[askers];
  for (int i = 0; i < askers; i++) {
    start_asker(&all[i], remote, &sample);
    if (i == 0) fake_wait_held(FAKE_GET, 1);
  }
  int queued = 0;
  while (queued < askers - 1) {
    qn__mutex_lock(&remote->mutex);
    queued = 0;
    for (const qn__job_t* job = remote->asks.head; job; job = job->next) queued++;
    qn__mutex_unlock(&remote->mutex);
  }
  fake_release(FAKE_GET);
  int timeouts = 0, offs = 0;
  for (int i = 0; i < askers; i++) {
    assert_int_equal(pthread_join(all[i].thread, NULL), 0);
    timeouts += all[i].result == QN__GET_TIMEOUT;
    offs += all[i].result == QN__GET_OFF;
  }
  assert_int_equal(timeouts, 1);
  assert_int_equal(offs, askers - 1);
  assert_int_equal(fake_calls(FAKE_GET), 1);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

// -------------------------------------------------------------------------- callers leave, threads
// hang

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  (void)nanosleep(&time, NULL);
}

// A caller in a hurry leaves while its get is held; where its turn had not come yet, another one
// follows. How many it took.
static uint64_t leave_early(qn__remote_t* remote, const sample_t* sample) {
  uint64_t count = 0;
  do {
    assert_int_equal(get_by(remote, sample, qn__now_ns() + 1000000), QN__GET_TIMEOUT);
    count++;
  } while (fake_held(FAKE_GET) == 0);
  return count;
}

// A caller in a hurry leaves; that says nothing of the store.
static void test_orphan(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn__remote_options_t options = usual();
  options.allocator = qn_fault_heap_allocator(&heap);
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 1000);
  put(remote, &sample);
  fake_hold(FAKE_GET);
  uint64_t left = leave_early(remote, &sample);
  // This one leaves before its turn has come.
  assert_int_equal(get_by(remote, &sample, qn__now_ns()), QN__GET_TIMEOUT);
  is_breaker(remote, false, QN__BREAKER_CLOSED, 0);
  fake_release(FAKE_GET);
  assert_int_equal(get(remote, &sample), QN__GET_HIT);
  assert_int_equal(qn__remote_counter(remote, "remote_orphaned"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_timeouts"), left + 1);
  qn__remote_destroy(remote, 0);
  assert_int_equal(atomic_load(&heap.live_blocks), 0);
  assert_int_equal(atomic_load(&heap.size_errors), 0);
  sample_free(&sample);
}

// The thread is lost in a lookup of a name: the first caller pays its deadline, nobody else pays.
static void test_thread_hangs(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  options.timeout_ns = 1000000;
  options.retry_ns = 1;
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  put(remote, &sample);
  fake_hold(FAKE_CONNECT);
  // On a busy machine the thread may begin later than the first caller leaves.
  do {
    qn__get_result_t early = get(remote, &sample);
    assert_true(early == QN__GET_TIMEOUT || early == QN__GET_OFF);
  } while (fake_held(FAKE_CONNECT) == 0);
  for (int i = 0; i < 1000; i++) assert_int_equal(get(remote, &sample), QN__GET_OFF);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_opened"), 1);
  // Its time has come long ago, but there is nobody who could probe.
  is_breaker(remote, false, QN__BREAKER_HALF_OPEN, 1);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_probes"), 0);
  // The thread comes back; what it was asked for nobody waits for any more.
  options.timeout_ns = 0;
  fake_release(FAKE_CONNECT);
  qn__get_result_t result = QN__GET_OFF;
  for (int i = 0; i < 10000 && result != QN__GET_HIT; i++) {
    result = get(remote, &sample);
    if (result != QN__GET_HIT) sleep_ms(1);
  }
  assert_int_equal(result, QN__GET_HIT);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

static void test_destroy_while_hanging(void** state) {
  (void)state;
  // The thread that was left behind may be the last to look at its heap.
  static qn_fault_heap_t heaps[2];
  for (int call = 0; call < 2; call++) {
    qn_fault_heap_t* heap = &heaps[call];
    qn_fault_heap_init(heap);
    qn__remote_options_t options = usual();
    options.allocator = qn_fault_heap_allocator(heap);
    qn__remote_t* remote = make(&options);
    sample_t sample;
    sample_make(&sample, 1, 1000);
    fake_hold(call == 0 ? FAKE_GET : FAKE_PUT);
    if (call == 0) (void)leave_early(remote, &sample);
    fake_hold(FAKE_PUT);
    assert_true(qn__remote_put(remote, &sample.entry));
    assert_true(qn__remote_put(remote, &sample.entry));
    fake_wait_held(call == 0 ? FAKE_GET : FAKE_PUT, 1);
    assert_false(qn__remote_flush(remote, 1000000));
    qn__remote_destroy(remote, 1000000);
    assert_true(atomic_load(&heap->live_blocks) > 0);
    fake_release(FAKE_GET);
    fake_release(FAKE_PUT);
    for (int i = 0; i < 10000 && atomic_load(&heap->live_blocks) > 0; i++) sleep_ms(1);
    assert_int_equal(atomic_load(&heap->live_blocks), 0);
    assert_int_equal(atomic_load(&heap->size_errors), 0);
    assert_int_equal(fake_connections(), 0);
    sample_free(&sample);
  }
}

// ---------------------------------------------------------------------------------------- puts

static void test_denied_put_leaves_gets(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  options.latch_ns = 2 * HOUR;
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  put(remote, &sample);
  fake_order(FAKE_PUT, QN__STORE_DENIED, 1);
  assert_true(qn__remote_put(remote, &sample.entry));
  assert_true(qn__remote_flush(remote, 60 * SECOND));
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_denied"), 1);
  is_breaker(remote, true, QN__BREAKER_OPEN, 2 * HOUR);
  is_breaker(remote, false, QN__BREAKER_CLOSED, 0);
  assert_false(qn__remote_put(remote, &sample.entry));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_off"), 1);
  assert_int_equal(get(remote, &sample), QN__GET_HIT);
  // Later one put finds out.
  pass_time(&remote->puts);
  put(remote, &sample);
  is_breaker(remote, true, QN__BREAKER_CLOSED, 0);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

static void test_failed_puts(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  qn__remote_t* remote = make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  for (int i = 0; i < 3; i++) {
    fake_order(FAKE_CONNECT, QN__STORE_ERROR, 1);
    assert_true(qn__remote_put(remote, &sample.entry));
    assert_true(qn__remote_flush(remote, 60 * SECOND));
  }
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_error"), 3);
  is_breaker(remote, true, QN__BREAKER_OPEN, HOUR);
  assert_int_equal(get(remote, &sample), QN__GET_ABSENT);
  pass_time(&remote->puts);
  fake_order(FAKE_PUT, QN__STORE_TIMEOUT, 1);
  assert_true(qn__remote_put(remote, &sample.entry));
  assert_true(qn__remote_flush(remote, 60 * SECOND));
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_timeout"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_put_opened"), 2);
  qn__remote_destroy(remote, 0);
  sample_free(&sample);
}

// The queue is bounded, the newest is dropped, and gets pass all of it.
static void test_put_queue(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 1, 1000);
  size_t size = qn__entry_size(&sample.entry) + QN__REMOTE_HEADER_BYTES;
  qn__remote_options_t options = usual();
  options.max_queue_bytes = 3 * size + size / 2;
  qn__remote_t* remote = make(&options);
  put(remote, &sample);
  fake_hold(FAKE_PUT);
  for (int i = 0; i < 5; i++) assert_true(qn__remote_put(remote, &sample.entry) == (i < 3));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_full"), 2);
  for (int i = 0; i < 10; i++) assert_int_equal(get(remote, &sample), QN__GET_HIT);
  fake_release(FAKE_PUT);
  assert_true(qn__remote_flush(remote, 60 * SECOND));
  put(remote, &sample);
  assert_int_equal(qn__remote_counter(remote, "remote_put_done"), 5);
  // What is left at the end is dropped and counted... by an object that is gone; only the calls
  // that were made are seen.
  long calls = fake_calls(FAKE_PUT);
  fake_hold(FAKE_PUT);
  for (int i = 0; i < 3; i++) assert_true(qn__remote_put(remote, &sample.entry));
  fake_wait_held(FAKE_PUT, 1);
  qn__remote_destroy(remote, 0);
  fake_release(FAKE_PUT);
  for (int i = 0; i < 10000 && fake_connections() > 0; i++) sleep_ms(1);
  assert_int_equal(fake_calls(FAKE_PUT), calls + 1);
  sample_free(&sample);
}

// ---------------------------------------------------------------------------------------- threads

enum { busy_threads = 6, busy_rounds = 200 };

typedef struct busy {
  qn__remote_t* remote;
  const sample_t* samples;
  unsigned seed;
  unsigned counts[QN__GET_OFF + 1];
} busy_t;

static void* be_busy(void* arg) {
  busy_t* busy = arg;
  for (unsigned i = 0; i < busy_rounds; i++) {
    busy->seed = busy->seed * 1664525 + 1013904223;
    const sample_t* sample = &busy->samples[busy->seed >> 30];
    if ((busy->seed >> 20) % 4 == 0) (void)qn__remote_put(busy->remote, &sample->entry);
    // Some leave early.
    int64_t deadline_ns = (busy->seed >> 16) % 8 == 0 ? qn__now_ns() + 20000 : NEVER;
    busy->counts[get_by(busy->remote, sample, deadline_ns)]++;
  }
  return NULL;
}

static void test_many_threads(void** state) {
  (void)state;
  qn__remote_options_t options = usual();
  options.retry_ns = 1000;
  qn__remote_t* remote = make(&options);
  sample_t samples[4];
  for (unsigned i = 0; i < 4; i++) sample_make(&samples[i], i, 500);
  busy_t all[busy_threads];
  pthread_t threads[busy_threads];
  for (unsigned i = 0; i < busy_threads; i++) {
    all[i] = (busy_t){.remote = remote, .samples = samples, .seed = i + 1};
    assert_int_equal(pthread_create(&threads[i], NULL, be_busy, &all[i]), 0);
  }
  for (int i = 0; i < 20; i++) {
    sleep_ms(1);
    fake_order(FAKE_GET, i % 2 ? QN__STORE_ERROR : QN__STORE_TIMEOUT, 2);
  }
  unsigned total = 0;
  for (unsigned i = 0; i < busy_threads; i++) {
    assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t k = 0; k <= QN__GET_OFF; k++) total += all[i].counts[k];
    assert_int_equal(all[i].counts[QN__GET_BAD] + all[i].counts[QN__GET_UNTRUSTED], 0);
  }
  assert_int_equal(total, busy_threads * busy_rounds);
  // Each get is in exactly one counter.
  static const char* const ends[] = {"remote_hits", "remote_misses", "remote_timeouts",
                                     "remote_errors", "remote_off"};
  uint64_t sum = 0;
  for (size_t i = 0; i < QN_COUNT_OF(ends); i++) sum += qn__remote_counter(remote, ends[i]);
  assert_int_equal(sum, total);
  qn__remote_destroy(remote, 60 * SECOND);
  for (unsigned i = 0; i < 4; i++) sample_free(&samples[i]);
}

// ---------------------------------------------------------------------------------------- memory

static bool is_miss_or_hit(qn__get_result_t result) {
  return result == QN__GET_HIT || result == QN__GET_ABSENT || result == QN__GET_NO_MEMORY;
}

static bool use_all(qn_allocator_t allocator, void* user) {
  const sample_t* sample = user;
  fake_reset();
  qn__remote_options_t options = usual();
  options.allocator = allocator;
  qn__remote_t* remote = NULL;
  qn_status_code_t code = qn_status_consume(qn__remote_create(&options, &remote));
  if (code != QN_STATUS_OK) return code == QN_STATUS_OUT_OF_MEMORY && !remote;
  bool is_fine = is_miss_or_hit(get(remote, sample));
  is_fine &= !qn__remote_is_being_made(remote, sample->entry.key, 1000, NEVER);
  bool is_put = qn__remote_put(remote, &sample->entry);
  is_fine &= qn__remote_flush(remote, 60 * SECOND);
  is_fine &= is_put == (qn__remote_counter(remote, "remote_put_done") == 1);
  is_fine &= is_miss_or_hit(get(remote, sample));
  is_fine &= !qn__remote_is_being_made(remote, sample->entry.key, 1000, NEVER);
  qn__remote_give_up(remote, sample->entry.key);
  is_fine &= qn__remote_flush(remote, 60 * SECOND);
  is_fine &= qn__remote_breaker(remote, false, NULL) == QN__BREAKER_CLOSED;
  qn__remote_destroy(remote, 0);
  return is_fine && fake_connections() == 0;
}

static void test_allocations_fail(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 7, 300);
  long runs = qn_fault_walk_alloc(use_all, &sample);
  print_message("%ld runs\n", runs);
  assert_true(runs > 8);
  sample_free(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_put_then_get, set_up),
      cmocka_unit_test_setup(test_reader_puts_nothing, set_up),
      cmocka_unit_test_setup(test_bad_options, set_up),
      cmocka_unit_test_setup(test_masked_urls, set_up),
      cmocka_unit_test_setup(test_authenticity, set_up),
      cmocka_unit_test_setup(test_authentic_nonsense, set_up),
      cmocka_unit_test_setup(test_sizes, set_up),
      cmocka_unit_test_setup(test_first_timeout_opens, set_up),
      cmocka_unit_test_setup(test_third_error_opens, set_up),
      cmocka_unit_test_setup(test_denial_opens, set_up),
      cmocka_unit_test_setup(test_one_probe, set_up),
      cmocka_unit_test_setup(test_period_doubles, set_up),
      cmocka_unit_test_setup(test_probe_without_memory, set_up),
      cmocka_unit_test_setup(test_queue_is_refused, set_up),
      cmocka_unit_test_setup(test_orphan, set_up),
      cmocka_unit_test_setup(test_thread_hangs, set_up),
      cmocka_unit_test_setup(test_destroy_while_hanging, set_up),
      cmocka_unit_test_setup(test_denied_put_leaves_gets, set_up),
      cmocka_unit_test_setup(test_failed_puts, set_up),
      cmocka_unit_test_setup(test_put_queue, set_up),
      cmocka_unit_test_setup(test_many_threads, set_up),
      cmocka_unit_test_setup(test_allocations_fail, set_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
