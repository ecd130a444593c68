// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_remote.c: tests the remote tier on a store in memory: hits, options,
// refusals, and failing allocations.
// ctest-labels: tsan
//
// Elsewhere: the breaker (test_remote_breaker.c), claims and fork (test_remote_claims.c), the
// protocol (tests/remote).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/thread.h"
#include "cache/remote_inner.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"
#include "tests/unit/cache/support_remote.h"

static const uint8_t other_secret[QN__MAC_KEY_BYTES] = {1, 2, 4};

// ---- plain use

static void test_put_then_get(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample, other;
  sample_make(&sample, 1, 5000);
  sample_make(&other, 2, 0);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
  remote_put(remote, &sample);
  remote_put(remote, &other);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  assert_int_equal(remote_get(remote, &other), QN__GET_HIT);
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
  remote_end(remote);
  assert_int_equal(fake_connections(), 0);
  sample_free(&sample);
  sample_free(&other);
}

static void test_reader_puts_nothing(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  options.may_write = false;
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 100);
  assert_false(qn__remote_put(remote, &sample.entry));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_role"), 1);
  assert_false(qn__remote_is_being_made(remote, sample.entry.key, 1000, NEVER));
  qn__remote_give_up(remote, sample.entry.key);
  assert_true(qn__remote_flush(remote, 0));
  assert_int_equal(fake_calls(FAKE_CLAIM) + fake_calls(FAKE_PUT) + fake_calls(FAKE_CONNECT), 0);
  assert_int_equal(fake_connections(), 1);
  remote_end(remote);
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
  qn__remote_options_t options = remote_usual();
  options.url = "";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "empty");
  options = remote_usual();
  options.trust_domain = "a:b";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "trust domain");
  options.trust_domain = "12345678901234567890123456789012345678901234567890123456789012345";
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "64");
  options = remote_usual();
  options.key = NULL;
  refuses(&options, QN_STATUS_INVALID_ARGUMENT, "QUERN_REMOTE_KEY");
  options.key_file = "/nowhere/key";
  refuses(&options, QN_STATUS_NOT_FOUND, "/nowhere/key");
  options = remote_usual();
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

// ---- refusals

static void test_authenticity(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample, other;
  sample_make(&sample, 3, 64);
  sample_make(&other, 5, 64);
  remote_put(remote, &sample);
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
      assert_int_equal(remote_get(remote, &sample), QN__GET_UNTRUSTED);
      value[i] ^= (uint8_t)(1u << bit);
      refused++;
    }
  }
  for (size_t cut = 0; cut < size; cut++) {
    fake_set_value(name, value, cut);
    assert_int_equal(remote_get(remote, &sample), QN__GET_UNTRUSTED);
    refused++;
  }
  value[size] = 0;
  fake_set_value(name, value, size + 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_UNTRUSTED);
  refused++;
  // An authentic value under another key.
  (void)qn__remote_name(remote, other.entry.key, other_name);
  fake_set_value(other_name, value, size);
  assert_int_equal(remote_get(remote, &other), QN__GET_UNTRUSTED);
  refused++;
  assert_int_equal(qn__remote_counter(remote, "remote_bad_mac"), refused);
  // None of it makes the breaker open, and what is whole is taken.
  fake_set_value(name, value, size);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  remote_end(remote);

  // Another key of the fleet, and another domain that somebody copied the value to.
  options.key = other_secret;
  remote = remote_make(&options);
  assert_int_equal(remote_get(remote, &sample), QN__GET_UNTRUSTED);
  remote_end(remote);
  options.key = remote_usual().key;
  options.trust_domain = "production";
  remote = remote_make(&options);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
  (void)qn__remote_name(remote, sample.entry.key, other_name);
  fake_set_value(other_name, value, size);
  assert_int_equal(remote_get(remote, &sample), QN__GET_UNTRUSTED);
  remote_end(remote);
  sample_free(&sample);
  sample_free(&other);
}

// A holder of the key who writes nonsense.
static void test_authentic_nonsense(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample, other;
  sample_make(&sample, 3, 64);
  sample_make(&other, 5, 64);
  remote_put(remote, &sample);
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
  remote_put(remote, &other);
  char other_name[QN__REMOTE_NAME_BYTES];
  (void)qn__remote_name(remote, other.entry.key, other_name);
  size = fake_value(other_name, value, sizeof value, NULL, 0);
  qn__remote_seal(remote, name, value, size);
  fake_set_value(text, value, size);
  assert_int_equal(remote_get(remote, &sample), QN__GET_BAD);
  assert_int_equal(qn__remote_counter(remote, "remote_bad_key"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_bad_mac"), 0);
  assert_int_equal(qn__remote_breaker(remote, NULL), QN__BREAKER_CLOSED);
  remote_end(remote);
  sample_free(&sample);
  sample_free(&other);
}

static void test_sizes(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* writer = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 3, 20000);
  remote_put(writer, &sample);
  assert_int_equal(fake_calls(FAKE_PUT), 1);
  remote_end(writer);
  size_t size = qn__entry_size(&sample.entry);
  options.max_entry_bytes = size - 1;
  qn__remote_t* remote = remote_make(&options);
  qn__hit_t hit;
  assert_int_equal(qn__remote_get(remote, &sample.expected, NEVER, &hit), QN__GET_BAD);
  assert_int_equal(hit.reason, QN__REASON_LENGTHS);
  assert_int_equal(fake_limit(), size - 1 + QN__REMOTE_HEADER_BYTES);
  assert_int_equal(qn__remote_counter(remote, "remote_large"), 1);
  assert_false(qn__remote_put(remote, &sample.entry));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_size"), 1);
  remote_end(remote);
  options.max_entry_bytes = size;
  remote = remote_make(&options);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  remote_put(remote, &sample);
  remote_end(remote);
  sample_free(&sample);
}

// ---- memory

static bool is_miss_or_hit(qn__get_result_t result) {
  return result == QN__GET_HIT || result == QN__GET_ABSENT || result == QN__GET_NO_MEMORY;
}

static bool use_all(qn_allocator_t allocator, void* user) {
  const sample_t* sample = user;
  fake_reset();
  qn__remote_options_t options = remote_usual();
  options.allocator = allocator;
  qn__remote_t* remote = NULL;
  qn_status_code_t code = qn_status_consume(qn__remote_create(&options, &remote));
  if (code != QN_STATUS_OK) return code == QN_STATUS_OUT_OF_MEMORY && !remote;
  bool is_fine = is_miss_or_hit(remote_get(remote, sample));
  is_fine &= !qn__remote_is_being_made(remote, sample->entry.key, 1000, NEVER);
  bool is_put = qn__remote_put(remote, &sample->entry);
  is_fine &= qn__remote_flush(remote, HOUR);
  is_fine &= is_put == (qn__remote_counter(remote, "remote_put_done") == 1);
  is_fine &= is_miss_or_hit(remote_get(remote, sample));
  is_fine &= !qn__remote_is_being_made(remote, sample->entry.key, 1000, NEVER);
  qn__remote_give_up(remote, sample->entry.key);
  is_fine &= qn__remote_flush(remote, HOUR);
  is_fine &= qn__remote_breaker(remote, NULL) == QN__BREAKER_CLOSED;
  remote_end(remote);
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
      cmocka_unit_test_setup(test_put_then_get, remote_set_up),
      cmocka_unit_test_setup(test_reader_puts_nothing, remote_set_up),
      cmocka_unit_test_setup(test_bad_options, remote_set_up),
      cmocka_unit_test_setup(test_masked_urls, remote_set_up),
      cmocka_unit_test_setup(test_authenticity, remote_set_up),
      cmocka_unit_test_setup(test_authentic_nonsense, remote_set_up),
      cmocka_unit_test_setup(test_sizes, remote_set_up),
      cmocka_unit_test_setup(test_allocations_fail, remote_set_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
