// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_remote_breaker.c: tests the remote tier with a store that fails, hangs or
// denies: the circuit breaker, callers that time out, threads that never return, puts, and many
// threads.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "base/thread.h"
#include "cache/remote_inner.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"
#include "tests/unit/cache/support_remote.h"

// The interval between two polls.
static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  (void)nanosleep(&time, NULL);
}

// ---- the breaker

// Lets the time of an open breaker pass.
static void pass_time(qn__remote_t* remote) {
  assert_int_not_equal(atomic_load(&remote->breaker.open_until_ns), 0);
  atomic_store(&remote->breaker.open_until_ns, 1);
}

static void test_first_timeout_opens(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, -1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_TIMEOUT);
  remote_is_breaker(remote, QN__BREAKER_OPEN, HOUR);
  for (int i = 0; i < 1000; i++) assert_int_equal(remote_get(remote, &sample), QN__GET_OFF);
  assert_int_equal(fake_calls(FAKE_GET), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_timeouts"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_off"), 1000);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_opened"), 1);
  // Puts are dropped without a call, until a get has closed the breaker.
  assert_true(qn__remote_is_writing_off(remote));
  assert_false(qn__remote_put(remote, &sample.entry));
  pass_time(remote);
  assert_false(qn__remote_put(remote, &sample.entry));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_off"), 2);
  assert_int_equal(fake_calls(FAKE_PUT), 0);
  fake_order(FAKE_GET, QN__STORE_ABSENT, 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
  assert_false(qn__remote_is_writing_off(remote));
  remote_put(remote, &sample);
  remote_end(remote);
  sample_free(&sample);
}

static void test_third_error_opens(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
  for (int i = 0; i < 3; i++) {
    // Twice in a row is an accident. The first one is tried again, because the connection was not
    // new; the second one is not.
    fake_order(FAKE_GET, QN__STORE_ERROR, 3);
    assert_int_equal(remote_get(remote, &sample), QN__GET_ERROR);
    assert_int_equal(remote_get(remote, &sample), QN__GET_ERROR);
    assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
    remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  }
  assert_int_equal(qn__remote_counter(remote, "remote_retried"), 3);
  // Not so when they come without a success between them.
  fake_order(FAKE_CONNECT, QN__STORE_ERROR, -1);
  fake_order(FAKE_GET, QN__STORE_ERROR, 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ERROR);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ERROR);
  remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ERROR);
  remote_is_breaker(remote, QN__BREAKER_OPEN, HOUR);
  assert_int_equal(remote_get(remote, &sample), QN__GET_OFF);
  assert_int_equal(qn__remote_counter(remote, "remote_errors"), 9);
  remote_end(remote);
  sample_free(&sample);
}

static void test_denial_opens(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  fake_order(FAKE_CONNECT, QN__STORE_DENIED, 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ERROR);
  assert_int_equal(qn__remote_counter(remote, "remote_denied"), 1);
  remote_is_breaker(remote, QN__BREAKER_OPEN, HOUR);
  remote_end(remote);
  sample_free(&sample);
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
  asker->result = remote_get_by(asker->remote, asker->sample, asker->deadline_ns);
  return NULL;
}

static void start_asker(asker_t* asker, qn__remote_t* remote, const sample_t* sample) {
  *asker = (asker_t){.remote = remote, .sample = sample, .deadline_ns = NEVER};
  assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void test_one_probe(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  remote_put(remote, &sample);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_TIMEOUT);
  pass_time(remote);
  remote_is_breaker(remote, QN__BREAKER_HALF_OPEN, HOUR);
  // The probe is in flight. Other callers return at once.
  fake_hold(FAKE_GET);
  asker_t prober;
  start_asker(&prober, remote, &sample);
  fake_wait_held(FAKE_GET, 1);
  for (int i = 0; i < 100; i++) assert_int_equal(remote_get(remote, &sample), QN__GET_OFF);
  // It fails: twice as long.
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  fake_release(FAKE_GET);
  assert_int_equal(pthread_join(prober.thread, NULL), 0);
  assert_int_equal(prober.result, QN__GET_TIMEOUT);
  remote_is_breaker(remote, QN__BREAKER_OPEN, HOUR);  // longer than 60 s as it is
  assert_int_equal(remote_get(remote, &sample), QN__GET_OFF);
  // The next one works.
  pass_time(remote);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_probes"), 2);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_opened"), 2);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_closed"), 1);
  remote_end(remote);
  sample_free(&sample);
}

static void test_period_doubles(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  options.retry_ns = SECOND;
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  fake_order(FAKE_CONNECT, QN__STORE_TIMEOUT, -1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_TIMEOUT);
  static const int64_t seconds[] = {1, 2, 4, 8, 16, 32, 60, 60};
  for (size_t i = 0; i < QN_COUNT_OF(seconds); i++) {
    int64_t period_ns = 0;
    (void)qn__remote_breaker(remote, &period_ns);
    assert_int_equal(period_ns, seconds[i] * SECOND);
    pass_time(remote);
    assert_int_equal(remote_get(remote, &sample), QN__GET_TIMEOUT);
  }
  // From the start again after a success, and a single error of a probe is enough.
  fake_order(FAKE_CONNECT, QN__STORE_OK, 0);
  pass_time(remote);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_TIMEOUT);
  int64_t period_ns = 0;
  (void)qn__remote_breaker(remote, &period_ns);
  assert_int_equal(period_ns, SECOND);
  fake_order(FAKE_CONNECT, QN__STORE_ERROR, 1);
  pass_time(remote);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ERROR);
  (void)qn__remote_breaker(remote, &period_ns);
  assert_int_equal(period_ns, 2 * SECOND);
  remote_end(remote);
  sample_free(&sample);
}

// A probe that ends without an answer either way leaves the question open.
static void test_probe_without_memory(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  fake_order(FAKE_GET, QN__STORE_TIMEOUT, 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_TIMEOUT);
  pass_time(remote);
  fake_order(FAKE_GET, QN__STORE_NO_MEMORY, 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_NO_MEMORY);
  remote_is_breaker(remote, QN__BREAKER_HALF_OPEN, HOUR);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
  remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  remote_end(remote);
  sample_free(&sample);
}

// Checks that queued operations are dropped when the breaker opens, instead of each waiting in
// turn.
static void test_queue_is_refused(void** state) {
  (void)state;
  enum { askers = 8 };
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
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
    for (const qn__remote_op_t* op = remote->gets.head; op; op = op->next) queued++;
    qn__mutex_unlock(&remote->mutex);
    sleep_ms(1);
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
  remote_end(remote);
  sample_free(&sample);
}

// ---- callers leave, threads hang

// A caller in a hurry leaves while its get is held; where its turn had not come yet, another one
// follows. How many it took.
static uint64_t leave_early(qn__remote_t* remote, const sample_t* sample) {
  uint64_t count = 0;
  do {
    assert_int_equal(remote_get_by(remote, sample, qn__now_ns() + 1000000), QN__GET_TIMEOUT);
    count++;
  } while (fake_held(FAKE_GET) == 0);
  return count;
}

// A caller in a hurry leaves; that says nothing of the store.
static void test_orphan(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn__remote_options_t options = remote_usual();
  options.allocator = qn_fault_heap_allocator(&heap);
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 1000);
  remote_put(remote, &sample);
  fake_hold(FAKE_GET);
  uint64_t left = leave_early(remote, &sample);
  // This one leaves before its turn has come.
  assert_int_equal(remote_get_by(remote, &sample, qn__now_ns()), QN__GET_TIMEOUT);
  remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  fake_release(FAKE_GET);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  assert_int_equal(qn__remote_counter(remote, "remote_orphaned"), 1);
  assert_int_equal(qn__remote_counter(remote, "remote_timeouts"), left + 1);
  remote_end(remote);
  assert_int_equal(atomic_load(&heap.live_blocks), 0);
  assert_int_equal(atomic_load(&heap.size_errors), 0);
  sample_free(&sample);
}

// Checks a thread that hangs in a name resolution: only the first caller waits until its deadline.
static void test_thread_hangs(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  options.timeout_ns = 1000000;
  options.retry_ns = 1;
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  remote_put(remote, &sample);
  fake_hold(FAKE_CONNECT);
  // On a busy machine the thread may begin later than the first caller leaves.
  do {
    qn__get_result_t early = remote_get(remote, &sample);
    assert_true(early == QN__GET_TIMEOUT || early == QN__GET_OFF);
  } while (fake_held(FAKE_CONNECT) == 0);
  for (int i = 0; i < 1000; i++) assert_int_equal(remote_get(remote, &sample), QN__GET_OFF);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_opened"), 1);
  // A probe is long due, but there is no thread for it.
  remote_is_breaker(remote, QN__BREAKER_HALF_OPEN, 1);
  assert_int_equal(qn__remote_counter(remote, "remote_breaker_probes"), 0);
  // The thread returns. Its operation has no waiter any more.
  remote->timeout_ns = HOUR;
  fake_release(FAKE_CONNECT);
  qn__get_result_t result = QN__GET_OFF;
  while (result == QN__GET_OFF) {
    sleep_ms(1);
    result = remote_get(remote, &sample);
  }
  assert_int_equal(result, QN__GET_HIT);
  remote_end(remote);
  sample_free(&sample);
}

static void test_destroy_while_hanging(void** state) {
  (void)state;
  // The abandoned thread may be the last user of its heap.
  static qn_fault_heap_t heaps[2];
  for (int call = 0; call < 2; call++) {
    qn_fault_heap_t* heap = &heaps[call];
    qn_fault_heap_init(heap);
    qn__remote_options_t options = remote_usual();
    options.allocator = qn_fault_heap_allocator(heap);
    qn__remote_t* remote = remote_make(&options);
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
    while (atomic_load(&heap->live_blocks) > 0) sleep_ms(1);
    assert_int_equal(atomic_load(&heap->size_errors), 0);
    assert_int_equal(fake_connections(), 0);
    sample_free(&sample);
  }
}

// ---- puts

static void test_denied_put_leaves_gets(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  options.latch_ns = 2 * HOUR;
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  remote_put(remote, &sample);
  fake_order(FAKE_PUT, QN__STORE_DENIED, 1);
  assert_true(qn__remote_put(remote, &sample.entry));
  assert_true(qn__remote_flush(remote, HOUR));
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_denied"), 1);
  assert_true(qn__remote_is_writing_off(remote));
  remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  assert_false(qn__remote_put(remote, &sample.entry));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_off"), 1);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  // After that time puts are tried again.
  assert_true(atomic_load(&remote->denied_until_ns) > qn__now_ns() + HOUR);
  atomic_store(&remote->denied_until_ns, 1);
  assert_false(qn__remote_is_writing_off(remote));
  remote_put(remote, &sample);
  remote_end(remote);
  sample_free(&sample);
}

// A put that fails loses its entry and nothing else.
static void test_failed_puts(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  qn__remote_t* remote = remote_make(&options);
  sample_t sample;
  sample_make(&sample, 1, 10);
  for (int i = 0; i < 3; i++) {
    fake_order(FAKE_CONNECT, QN__STORE_ERROR, 1);
    assert_true(qn__remote_put(remote, &sample.entry));
    assert_true(qn__remote_flush(remote, HOUR));
  }
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_error"), 3);
  fake_order(FAKE_PUT, QN__STORE_TIMEOUT, 1);
  assert_true(qn__remote_put(remote, &sample.entry));
  assert_true(qn__remote_flush(remote, HOUR));
  assert_int_equal(qn__remote_counter(remote, "remote_put_failed_timeout"), 1);
  remote_is_breaker(remote, QN__BREAKER_CLOSED, 0);
  assert_int_equal(remote_get(remote, &sample), QN__GET_ABSENT);
  remote_put(remote, &sample);
  assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  remote_end(remote);
  sample_free(&sample);
}

// The queue is bounded, the newest is dropped, and gets pass all of it.
static void test_put_queue(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 1, 1000);
  size_t size = qn__entry_size(&sample.entry) + QN__REMOTE_HEADER_BYTES;
  qn__remote_options_t options = remote_usual();
  options.max_queue_bytes = 3 * size + size / 2;
  qn__remote_t* remote = remote_make(&options);
  remote_put(remote, &sample);
  fake_hold(FAKE_PUT);
  for (int i = 0; i < 5; i++) assert_true(qn__remote_put(remote, &sample.entry) == (i < 3));
  assert_int_equal(qn__remote_counter(remote, "remote_put_dropped_full"), 2);
  for (int i = 0; i < 10; i++) assert_int_equal(remote_get(remote, &sample), QN__GET_HIT);
  fake_release(FAKE_PUT);
  assert_true(qn__remote_flush(remote, HOUR));
  remote_put(remote, &sample);
  assert_int_equal(qn__remote_counter(remote, "remote_put_done"), 5);
  // What is left at the end is dropped and counted... by an object that is gone; only the calls
  // that were made are seen.
  long calls = fake_calls(FAKE_PUT);
  fake_hold(FAKE_PUT);
  for (int i = 0; i < 3; i++) assert_true(qn__remote_put(remote, &sample.entry));
  fake_wait_held(FAKE_PUT, 1);
  qn__remote_destroy(remote, 0);
  fake_release(FAKE_PUT);
  while (fake_connections() > 0) sleep_ms(1);
  assert_int_equal(fake_calls(FAKE_PUT), calls + 1);
  sample_free(&sample);
}

// ---- threads

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
    busy->counts[remote_get_by(busy->remote, sample, deadline_ns)]++;
  }
  return NULL;
}

static void test_many_threads(void** state) {
  (void)state;
  qn__remote_options_t options = remote_usual();
  options.retry_ns = 1000;
  qn__remote_t* remote = remote_make(&options);
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
  remote_end(remote);
  for (unsigned i = 0; i < 4; i++) sample_free(&samples[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_first_timeout_opens, remote_set_up),
      cmocka_unit_test_setup(test_third_error_opens, remote_set_up),
      cmocka_unit_test_setup(test_denial_opens, remote_set_up),
      cmocka_unit_test_setup(test_one_probe, remote_set_up),
      cmocka_unit_test_setup(test_period_doubles, remote_set_up),
      cmocka_unit_test_setup(test_probe_without_memory, remote_set_up),
      cmocka_unit_test_setup(test_queue_is_refused, remote_set_up),
      cmocka_unit_test_setup(test_orphan, remote_set_up),
      cmocka_unit_test_setup(test_thread_hangs, remote_set_up),
      cmocka_unit_test_setup(test_destroy_while_hanging, remote_set_up),
      cmocka_unit_test_setup(test_denied_put_leaves_gets, remote_set_up),
      cmocka_unit_test_setup(test_failed_puts, remote_set_up),
      cmocka_unit_test_setup(test_put_queue, remote_set_up),
      cmocka_unit_test_setup(test_many_threads, remote_set_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
