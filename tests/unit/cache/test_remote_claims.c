// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_remote_claims.c: tests claims of the remote tier, by which machines avoid
// duplicate compiles, and fork.
//
// Each remote tier object here stands for one machine. Not for ThreadSanitizer, which does not
// support fork with threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "cache/remote_inner.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"
#include "tests/unit/cache/support_remote.h"

static const uint8_t secret[QN__MAC_KEY_BYTES] = {1, 2, 3};
static sample_t sample;
static char claim_name[QN__REMOTE_NAME_BYTES];

static qn__remote_t* make(qn_allocator_t allocator) {
  const qn__remote_options_t options = {.allocator = allocator,
                                        .url = "fake://nowhere",
                                        .may_write = true,
                                        .timeout_ns = HOUR,
                                        .retry_ns = HOUR,
                                        .store = &fake_store,
                                        .crypto = &fake_crypto,
                                        .key = secret};
  qn__remote_t* remote = NULL;
  assert_int_equal(qn_status_consume(qn__remote_create(&options, &remote)), QN_STATUS_OK);
  (void)qn__remote_claim_name(remote, sample.entry.key, claim_name);
  return remote;
}

static int set_up(void** state) {
  (void)state;
  fake_reset();
  sample_make(&sample, 1, 300);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  sample_free(&sample);
  return fake_connections() == 0 ? 0 : -1;
}

static bool is_made_elsewhere(qn__remote_t* remote) {
  return qn__remote_is_being_made(remote, sample.entry.key, 60000, NEVER);
}

static qn__get_result_t get(qn__remote_t* remote) {
  qn__hit_t hit;
  qn__get_result_t result = qn__remote_get(remote, &sample.expected, NEVER, &hit);
  if (result == QN__GET_HIT) assert_true(sample_equals(&sample, &hit.entry));
  qn__remote_hit_release(remote, &hit);
  return result;
}

static void flush(qn__remote_t* remote) {
  assert_true(qn__remote_flush(remote, HOUR));
}

static void test_one_maker(void** state) {
  (void)state;
  qn__remote_t* first = make(qn_allocator_default());
  qn__remote_t* second = make(qn_allocator_default());
  assert_false(is_made_elsewhere(first));
  assert_true(fake_has(claim_name));
  assert_true(is_made_elsewhere(second));
  assert_false(is_made_elsewhere(first));  // ours already
  assert_true(qn__remote_has_claim(first, sample.entry.key));
  assert_false(qn__remote_has_claim(second, sample.entry.key));
  assert_int_equal(fake_calls(FAKE_CLAIM), 2);
  // The put is in place before the claim ends.
  fake_hold(FAKE_UNCLAIM);
  assert_true(qn__remote_put(first, &sample.entry));
  fake_wait_held(FAKE_UNCLAIM, 1);
  assert_true(fake_has(claim_name));
  assert_int_equal(get(second), QN__GET_HIT);
  fake_release(FAKE_UNCLAIM);
  flush(first);
  assert_false(fake_has(claim_name));
  assert_false(is_made_elsewhere(second));
  assert_int_equal(qn__remote_counter(first, "remote_claims_taken"), 1);
  assert_int_equal(qn__remote_counter(first, "remote_claims_released"), 1);
  assert_int_equal(qn__remote_counter(second, "remote_claims_foreign"), 1);
  qn__remote_give_up(second, sample.entry.key);
  flush(second);
  assert_false(fake_has(claim_name));
  remote_end(first);
  remote_end(second);
}

static void test_give_up(void** state) {
  (void)state;
  qn__remote_t* remote = make(qn_allocator_default());
  qn__remote_give_up(remote, sample.entry.key);  // holds nothing
  flush(remote);
  assert_int_equal(fake_calls(FAKE_UNCLAIM), 0);
  assert_false(is_made_elsewhere(remote));
  qn__remote_give_up(remote, sample.entry.key);
  flush(remote);
  assert_false(fake_has(claim_name));
  qn__remote_give_up(remote, sample.entry.key);
  flush(remote);
  assert_int_equal(fake_calls(FAKE_UNCLAIM), 1);
  // The claim ended at the server meanwhile, and another machine has taken it: it is not ours to
  // give back.
  assert_false(is_made_elsewhere(remote));
  fake_set_value(claim_name, (const uint8_t*)"another", 7);
  qn__remote_give_up(remote, sample.entry.key);
  flush(remote);
  assert_int_equal(fake_calls(FAKE_UNCLAIM), 2);
  assert_true(fake_has(claim_name));
  assert_int_equal(qn__remote_counter(remote, "remote_claims_released"), 1);
  remote_end(remote);
}

// A put that is dropped, or fails, gives the claim back as well.
static void test_no_put(void** state) {
  (void)state;
  qn__remote_t* remote = make(qn_allocator_default());
  assert_false(is_made_elsewhere(remote));
  remote->max_entry_bytes = 10;
  assert_false(qn__remote_put(remote, &sample.entry));
  flush(remote);
  assert_false(fake_has(claim_name));
  remote->max_entry_bytes = 1000000;
  assert_false(is_made_elsewhere(remote));
  fake_order(FAKE_PUT, QN__STORE_DENIED, 1);
  assert_true(qn__remote_put(remote, &sample.entry));
  flush(remote);
  assert_false(fake_has(claim_name));
  remote_end(remote);
}

// Where puts are denied, claims are still given back, and that does not switch puts on.
static void test_give_up_while_denied(void** state) {
  (void)state;
  qn__remote_t* remote = make(qn_allocator_default());
  sample_t other;
  sample_make(&other, 2, 10);
  assert_false(is_made_elsewhere(remote));
  fake_order(FAKE_PUT, QN__STORE_DENIED, 1);
  assert_true(qn__remote_put(remote, &other.entry));
  flush(remote);
  assert_true(qn__remote_is_writing_off(remote));
  assert_false(qn__remote_put(remote, &sample.entry));  // gives up as well
  flush(remote);
  assert_false(fake_has(claim_name));
  assert_true(qn__remote_is_writing_off(remote));
  // Where the store hangs, the claim ends by its time to live.
  atomic_store(&remote->denied_until_ns, 0);
  assert_false(is_made_elsewhere(remote));
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  assert_int_equal(get(remote), QN__GET_TIMEOUT);
  long calls = fake_calls(FAKE_UNCLAIM);
  qn__remote_give_up(remote, sample.entry.key);
  flush(remote);
  assert_int_equal(fake_calls(FAKE_UNCLAIM), calls);
  assert_false(qn__remote_has_claim(remote, sample.entry.key));
  remote_end(remote);
  sample_free(&other);
}

// Checks that after any failure of a claim the caller compiles.
static void test_failing_claims(void** state) {
  (void)state;
  static const qn__store_result_t results[] = {QN__STORE_ERROR, QN__STORE_NO_MEMORY,
                                               QN__STORE_DENIED};
  qn__remote_t* remote = make(qn_allocator_default());
  for (size_t i = 0; i < QN_COUNT_OF(results); i++) {
    fake_order(FAKE_CLAIM, results[i], 1);
    assert_false(is_made_elsewhere(remote));
    assert_int_equal(qn__remote_counter(remote, "remote_claims_failed"), i + 1);
  }
  // Denied claims switch puts off, and gets stay.
  assert_true(qn__remote_is_writing_off(remote));
  assert_int_equal(qn__remote_breaker(remote, NULL), QN__BREAKER_CLOSED);
  assert_false(is_made_elsewhere(remote));
  assert_int_equal(fake_calls(FAKE_CLAIM), 3);
  atomic_store(&remote->denied_until_ns, 0);
  // A claim that its caller did not wait for is released, so that no other machine waits for it.
  fake_hold(FAKE_CLAIM);
  do {
    assert_false(qn__remote_is_being_made(remote, sample.entry.key, 1000, qn__now_ns() + 1000000));
  } while (fake_held(FAKE_CLAIM) == 0);
  fake_release(FAKE_CLAIM);
  assert_int_equal(get(remote), QN__GET_ABSENT);  // behind it in the queue
  assert_int_equal(fake_calls(FAKE_UNCLAIM), 1);
  assert_false(fake_has(claim_name));
  fake_order(FAKE_CLAIM, QN__STORE_TIMEOUT, 1);
  assert_false(is_made_elsewhere(remote));
  assert_int_equal(get(remote), QN__GET_OFF);
  assert_false(is_made_elsewhere(remote));
  assert_int_equal(fake_calls(FAKE_CLAIM), 5);
  remote_end(remote);
}

static void test_many_claims(void** state) {
  (void)state;
  qn__remote_t* remote = make(qn_allocator_default());
  qn_hash128_t key = {{0}};
  for (unsigned i = 0; i < QN__REMOTE_CLAIMS; i++) {
    key.bytes[0] = (uint8_t)i;
    if (i == QN__REMOTE_CLAIMS / 2) fake_reset();  // the store of the test is small
    assert_false(qn__remote_is_being_made(remote, key, 1000, NEVER));
  }
  assert_int_equal(qn__remote_counter(remote, "remote_claims_taken"), QN__REMOTE_CLAIMS);
  fake_reset();
  key.bytes[0] = 200;
  assert_false(qn__remote_is_being_made(remote, key, 1000, NEVER));
  assert_int_equal(qn__remote_counter(remote, "remote_claims_failed"), 1);
  flush(remote);
  assert_int_equal(fake_count(), 0);  // what cannot be remembered is not claimed
  remote_end(remote);
}

// ---- fork

static int exit_code(pid_t child) {
  int code = 0;
  assert_int_equal(waitpid(child, &code, 0), child);
  return WIFEXITED(code) ? WEXITSTATUS(code) : 128;
}

static void test_fork(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn__remote_t* remote = make(qn_fault_heap_allocator(&heap));
  assert_true(qn__remote_put(remote, &sample.entry));
  flush(remote);
  assert_false(is_made_elsewhere(remote));
  assert_int_equal(get(remote), QN__GET_HIT);
  // A get and puts are under way, and more puts wait.
  fake_hold(FAKE_GET);
  fake_hold(FAKE_PUT);
  qn__hit_t hit;
  do {
    assert_int_equal(qn__remote_get(remote, &sample.expected, qn__now_ns() + 1000000, &hit),
                     QN__GET_TIMEOUT);
  } while (fake_held(FAKE_GET) == 0);
  for (int i = 0; i < 3; i++) assert_true(qn__remote_put(remote, &sample.entry));
  fake_wait_held(FAKE_PUT, 1);
  pid_t child = fake_fork();
  if (child == 0) {
    // Its own threads and connections; nothing queued, no claim of the parent's.
    bool is_fine = qn__remote_flush(remote, 0) && get(remote) == QN__GET_HIT;
    long puts = fake_calls(FAKE_PUT);
    is_fine = is_fine && qn__remote_put(remote, &sample.entry) && qn__remote_flush(remote, HOUR);
    is_fine = is_fine && fake_calls(FAKE_PUT) == puts + 1 && fake_has(claim_name);
    is_fine = is_fine && is_made_elsewhere(remote);
    remote_end(remote);
    is_fine = is_fine && atomic_load(&heap.live_blocks) == 0 && atomic_load(&heap.size_errors) == 0;
    _exit(is_fine ? 0 : 1);
  }
  assert_true(child > 0);
  assert_int_equal(exit_code(child), 0);
  fake_release(FAKE_GET);
  fake_release(FAKE_PUT);
  flush(remote);
  assert_int_equal(get(remote), QN__GET_HIT);
  assert_int_equal(qn__remote_counter(remote, "remote_put_done"), 4);
  assert_false(fake_has(claim_name));
  remote_end(remote);
  assert_int_equal(atomic_load(&heap.live_blocks), 0);
}

// A child that only ends, and one that forks again, with everything in every state.
static void test_forks_in_a_row(void** state) {
  (void)state;
  qn__remote_t* remote = make(qn_allocator_default());
  assert_true(qn__remote_put(remote, &sample.entry));
  for (int i = 0; i < 20; i++) {
    (void)qn__remote_put(remote, &sample.entry);
    pid_t child = fake_fork();
    if (child == 0) {
      if (i % 2 == 0) (void)get(remote);
      pid_t grandchild = fake_fork();
      if (grandchild == 0) {
        qn__get_result_t result = get(remote);
        remote_end(remote);
        _exit(result == QN__GET_HIT || result == QN__GET_ABSENT ? 0 : 1);
      }
      int code = exit_code(grandchild);
      remote_end(remote);
      _exit(code);
    }
    assert_true(child > 0);
    assert_int_equal(exit_code(child), 0);
  }
  flush(remote);
  assert_int_equal(get(remote), QN__GET_HIT);
  remote_end(remote);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_one_maker, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_give_up, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_no_put, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_give_up_while_denied, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_failing_claims, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_many_claims, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_fork, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_forks_in_a_row, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
