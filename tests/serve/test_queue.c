// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_queue.c: what goes into a batch, in which order, and how requests end.
//
// The "model" writes the first id of a sequence to its result, so that a result that reaches the
// wrong request is seen.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/clock.h"
#include "serve/queue.h"

enum { WIDTH = 2, MAX_SEQUENCES = 16, BATCH_TOKENS = 100, BATCH_SEQUENCES = 8 };

typedef struct test_request {
  serve_request_t request;
  int32_t ids[1024];
  size_t offsets[MAX_SEQUENCES + 1];
  float pooled[MAX_SEQUENCES * WIDTH];
  float tokens[1024 * WIDTH];
  atomic_int done_count;
  bool is_gone;
} test_request_t;

static void on_done(serve_request_t* request) {
  test_request_t* self = request->user;
  (void)atomic_fetch_add(&self->done_count, 1);
}

static bool ask_gone(const serve_request_t* request) {
  return ((const test_request_t*)request->user)->is_gone;
}

// Makes a request of `count` sequences of `length` tokens; their ids begin with `first`.
static test_request_t* make(size_t count, size_t length, int32_t first, uint64_t client) {
  test_request_t* self = calloc(1, sizeof *self);
  assert_non_null(self);
  assert_true(count <= MAX_SEQUENCES && count * length <= 1024);
  for (size_t i = 0; i <= count; ++i) self->offsets[i] = i * length;
  for (size_t i = 0; i < count * length; ++i) self->ids[i] = first + (int32_t)i;
  self->request = (serve_request_t){.ids = self->ids,
                                    .offsets = self->offsets,
                                    .sequence_count = count,
                                    .pooled = self->pooled,
                                    .priority = SERVE_PRIORITY_NORMAL,
                                    .client = client,
                                    .deadline_ns = INT64_MAX,
                                    .is_gone = ask_gone,
                                    .done = on_done,
                                    .user = self};
  return self;
}

static void compute(serve_batch_t* batch) {
  for (size_t i = 0; i < batch->sequence_count; ++i) {
    for (int64_t k = batch->offsets[i]; k < batch->offsets[i + 1]; ++k) {
      assert_int_equal(batch->positions[k], k - batch->offsets[i]);
      assert_int_equal(batch->ids[k], batch->ids[batch->offsets[i]] + k - batch->offsets[i]);
      for (int w = 0; w < WIDTH; ++w) batch->tokens[k * WIDTH + w] = (float)(batch->ids[k] + w);
    }
    for (size_t w = 0; w < WIDTH; ++w) {
      batch->pooled[i * WIDTH + w] = (float)(batch->ids[batch->offsets[i]] + (int64_t)w);
    }
  }
  batch->compute_ns = 1000;
}

// Checks the results of a request that went well, and frees it.
static void expect_done(test_request_t* self, serve_outcome_t outcome) {
  assert_int_equal(atomic_load(&self->done_count), 1);
  assert_int_equal(self->request.outcome, outcome);
  for (size_t i = 0; outcome == SERVE_OUTCOME_OK && i < self->request.sequence_count; ++i) {
    const float expected = (float)self->ids[self->offsets[i]];
    if (self->request.pooled) assert_true(self->pooled[i * WIDTH] == expected);
    if (self->request.pooled) assert_true(self->pooled[i * WIDTH + 1] == expected + 1);
  }
  qn_status_free(self->request.status);
  free(self);
}

typedef struct fixture {
  serve_queue_t* queue;
  serve_batch_t* batch;
} fixture_t;

// Whether requests wait, as the queue says. It must say so in turns.
static atomic_bool is_busy;
static atomic_int wrong_turns;

static void set_busy(void* self, bool is_now) {
  assert_ptr_equal(self, &is_busy);
  if (atomic_exchange(&is_busy, is_now) == is_now) (void)atomic_fetch_add(&wrong_turns, 1);
}

static fixture_t start(size_t max_tokens) {
  const serve_queue_options_t options = {
      .max_tokens = max_tokens, .set_busy = set_busy, .busy_self = &is_busy};
  fixture_t fixture;
  assert_true(qn_ok(serve_queue_create(&options, &fixture.queue)));
  assert_true(qn_ok(serve_batch_create(BATCH_TOKENS, BATCH_SEQUENCES, WIDTH, &fixture.batch)));
  return fixture;
}

static void end(fixture_t* fixture) {
  serve_queue_state_t state;
  serve_queue_get_state(fixture->queue, &state);
  assert_int_equal(state.request_count, 0);
  assert_int_equal(state.token_count, 0);
  assert_false(atomic_load(&is_busy));
  assert_int_equal(atomic_load(&wrong_turns), 0);
  serve_queue_stop(fixture->queue, true);
  assert_false(serve_queue_take(fixture->queue, fixture->batch));
  serve_batch_destroy(fixture->batch);
  serve_queue_destroy(fixture->queue);
}

static void add(fixture_t* fixture, test_request_t* request) {
  assert_int_equal(serve_queue_add(fixture->queue, &request->request), SERVE_ADMISSION_OK);
}

// Takes a batch and returns the number of its sequences.
static size_t take(fixture_t* fixture) {
  assert_true(serve_queue_take(fixture->queue, fixture->batch));
  assert_true(fixture->batch->token_count <= BATCH_TOKENS);
  assert_true(fixture->batch->sequence_count <= BATCH_SEQUENCES);
  return fixture->batch->sequence_count;
}

static void finish(fixture_t* fixture) {
  compute(fixture->batch);
  serve_queue_finish(fixture->queue, fixture->batch, QN_OK);
}

// ------------------------------------------------------------------------------------ batches

static void test_limits(void** state) {
  (void)state;
  fixture_t fixture = start(10000);
  // 14 sequences of 30 tokens: three fit into a batch.
  test_request_t* large = make(14, 30, 1000, 1);
  test_request_t* small = make(10, 2, 1, 1);
  add(&fixture, large);
  add(&fixture, small);
  for (size_t left = 14; left > 2; left -= 3) {
    assert_int_equal(take(&fixture), 3);
    assert_int_equal(fixture.batch->longest, 30);
    finish(&fixture);
    assert_int_equal(atomic_load(&large->done_count), 0);
  }
  assert_int_equal(take(&fixture), 8);  // two of the large one, six of the small one
  finish(&fixture);
  assert_true(large->request.compute_ns == 5000);
  expect_done(large, SERVE_OUTCOME_OK);
  assert_int_equal(take(&fixture), 4);
  finish(&fixture);
  expect_done(small, SERVE_OUTCOME_OK);
  end(&fixture);
}

static void test_tokens(void** state) {
  (void)state;
  fixture_t fixture = start(10000);
  test_request_t* request = make(3, 5, 50, 1);
  request->request.tokens = request->tokens;
  request->request.pooled = NULL;
  add(&fixture, request);
  assert_int_equal(take(&fixture), 3);
  assert_true(fixture.batch->has_tokens && !fixture.batch->has_pooled);
  finish(&fixture);
  for (int i = 0; i < 15 * WIDTH; ++i) {
    assert_true(request->tokens[i] == (float)(50 + i / WIDTH + i % WIDTH));
  }
  expect_done(request, SERVE_OUTCOME_OK);
  end(&fixture);
}

static void test_full(void** state) {
  (void)state;
  fixture_t fixture = start(100);
  test_request_t* first = make(1, 60, 1, 1);
  test_request_t* second = make(1, 41, 1, 2);
  add(&fixture, first);
  assert_int_equal(serve_queue_add(fixture.queue, &second->request), SERVE_ADMISSION_FULL);
  assert_int_equal(atomic_load(&second->done_count), 0);
  serve_queue_state_t queue_state;
  serve_queue_get_state(fixture.queue, &queue_state);
  assert_int_equal(queue_state.token_count, 60);
  assert_int_equal(take(&fixture), 1);
  add(&fixture, second);  // what is computed does not wait
  finish(&fixture);
  expect_done(first, SERVE_OUTCOME_OK);
  serve_queue_get_state(fixture.queue, &queue_state);
  assert_int_equal(queue_state.wait_ns, 41 * 1000 / 60);
  assert_int_equal(take(&fixture), 1);
  finish(&fixture);
  expect_done(second, SERVE_OUTCOME_OK);
  end(&fixture);
}

// A client with one short request is not behind all those of a client with many.
static void test_fairness(void** state) {
  (void)state;
  fixture_t fixture = start(100000);
  enum { MANY = 20 };
  test_request_t* many[MANY];
  for (int i = 0; i < MANY; ++i) add(&fixture, many[i] = make(1, 90, 1000 * i, 1));
  test_request_t* one = make(1, 90, 7, 2);
  add(&fixture, one);
  int batches = 0;
  while (atomic_load(&one->done_count) == 0) {
    assert_int_equal(take(&fixture), 1);
    finish(&fixture);
    ++batches;
  }
  // A turn is 256 tokens, which are two sequences of this length.
  assert_true(batches <= 4);
  expect_done(one, SERVE_OUTCOME_OK);
  for (; batches <= MANY; ++batches) {
    assert_int_equal(take(&fixture), 1);
    finish(&fixture);
  }
  for (int i = 0; i < MANY; ++i) expect_done(many[i], SERVE_OUTCOME_OK);
  end(&fixture);
}

// High goes first; low is late, but not for ever.
static void test_priorities(void** state) {
  (void)state;
  fixture_t fixture = start(100000);
  enum { MANY = 40 };
  test_request_t* low = make(1, 90, 5, 1);
  low->request.priority = SERVE_PRIORITY_LOW;
  add(&fixture, low);
  test_request_t* high[MANY];
  for (int i = 0; i < MANY; ++i) {
    high[i] = make(1, 90, 1000 * i, 1);
    high[i]->request.priority = SERVE_PRIORITY_HIGH;
    add(&fixture, high[i]);
  }
  int batches = 0;
  while (atomic_load(&low->done_count) == 0) {
    assert_int_equal(take(&fixture), 1);
    finish(&fixture);
    ++batches;
  }
  assert_true(batches > 10 && batches < 25);
  for (; batches <= MANY; ++batches) {
    assert_int_equal(take(&fixture), 1);
    finish(&fixture);
  }
  for (int i = 0; i < MANY; ++i) expect_done(high[i], SERVE_OUTCOME_OK);
  expect_done(low, SERVE_OUTCOME_OK);
  end(&fixture);
}

static void test_delay(void** state) {
  (void)state;
  const serve_queue_options_t options = {.max_tokens = 1000, .delay_ns = INT64_C(3600000000000)};
  fixture_t fixture;
  assert_true(qn_ok(serve_queue_create(&options, &fixture.queue)));
  assert_true(qn_ok(serve_batch_create(BATCH_TOKENS, BATCH_SEQUENCES, WIDTH, &fixture.batch)));
  // A full batch does not wait for the delay, neither by tokens nor by sequences.
  test_request_t* all[9];
  for (int i = 0; i < 9; ++i) all[i] = make(1, i == 8 ? BATCH_TOKENS : 2, 10 * i, 1);
  for (int i = 0; i < 8; ++i) add(&fixture, all[i]);
  assert_int_equal(take(&fixture), 8);
  finish(&fixture);
  add(&fixture, all[8]);
  assert_int_equal(take(&fixture), 1);
  finish(&fixture);
  for (int i = 0; i < 9; ++i) expect_done(all[i], SERVE_OUTCOME_OK);
  end(&fixture);
}

static void test_busy(void** state) {
  (void)state;
  fixture_t fixture = start(1000);
  test_request_t* both[] = {make(1, BATCH_TOKENS, 100, 1), make(1, BATCH_TOKENS, 300, 1)};
  assert_false(atomic_load(&is_busy));
  for (int i = 0; i < 2; ++i) add(&fixture, both[i]);
  for (int i = 0; i < 2; ++i) {
    assert_true(atomic_load(&is_busy));
    assert_int_equal(take(&fixture), 1);
    assert_true(atomic_load(&is_busy) == (i == 0));
    finish(&fixture);
    expect_done(both[i], SERVE_OUTCOME_OK);
  }
  end(&fixture);
}

// ------------------------------------------------------------------------------------ endings

static void test_gone(void** state) {
  (void)state;
  fixture_t fixture = start(10000);
  test_request_t* gone = make(2, 10, 100, 1);
  test_request_t* stays = make(2, 10, 200, 1);
  gone->is_gone = true;
  add(&fixture, gone);
  add(&fixture, stays);
  assert_int_equal(take(&fixture), 2);
  expect_done(gone, SERVE_OUTCOME_GONE);
  finish(&fixture);
  expect_done(stays, SERVE_OUTCOME_OK);
  // One that goes while a part of it is computed ends after that part.
  test_request_t* half = make(14, 30, 100, 1);
  add(&fixture, half);
  assert_int_equal(take(&fixture), 3);
  half->is_gone = true;
  finish(&fixture);
  assert_int_equal(atomic_load(&half->done_count), 0);
  test_request_t* next = make(1, 30, 100, 2);
  add(&fixture, next);
  assert_int_equal(take(&fixture), 1);
  expect_done(half, SERVE_OUTCOME_GONE);
  finish(&fixture);
  expect_done(next, SERVE_OUTCOME_OK);
  end(&fixture);
}

static void test_deadline(void** state) {
  (void)state;
  fixture_t fixture = start(10000);
  // While the model is busy, a deadline ends a request that waits, and not one that is computed.
  test_request_t* computed = make(1, 10, 100, 1);
  computed->request.deadline_ns = serve_now_ns() + INT64_C(3000000000);
  add(&fixture, computed);
  assert_int_equal(take(&fixture), 1);
  test_request_t* waits = make(1, 10, 100, 1);
  waits->request.deadline_ns = serve_now_ns() + 20000000;
  test_request_t* later = make(1, 10, 100, 1);
  later->request.deadline_ns = serve_now_ns() + INT64_C(3600000000000);
  add(&fixture, waits);
  add(&fixture, later);
  while (atomic_load(&waits->done_count) == 0 || serve_now_ns() < computed->request.deadline_ns) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  expect_done(waits, SERVE_OUTCOME_DEADLINE);
  finish(&fixture);
  expect_done(computed, SERVE_OUTCOME_OK);
  assert_int_equal(take(&fixture), 1);
  finish(&fixture);
  expect_done(later, SERVE_OUTCOME_OK);
  end(&fixture);
}

static void test_failure(void** state) {
  (void)state;
  fixture_t fixture = start(10000);
  test_request_t* large = make(14, 30, 100, 1);
  test_request_t* other = make(1, 10, 100, 1);
  add(&fixture, large);
  assert_int_equal(take(&fixture), 3);
  add(&fixture, other);
  serve_queue_finish(fixture.queue, fixture.batch, qn_status_make(QN_STATUS_DEVICE_ERROR, "lost"));
  assert_int_equal(qn_status_code(large->request.status), QN_STATUS_DEVICE_ERROR);
  assert_non_null(strstr(qn_status_message(large->request.status), "lost"));
  expect_done(large, SERVE_OUTCOME_FAILED);
  assert_int_equal(take(&fixture), 1);
  finish(&fixture);
  expect_done(other, SERVE_OUTCOME_OK);
  end(&fixture);
}

static void test_stop(void** state) {
  (void)state;
  // Gently: what waits is computed.
  fixture_t fixture = start(10000);
  test_request_t* waits = make(1, 10, 100, 1);
  add(&fixture, waits);
  serve_queue_stop(fixture.queue, false);
  test_request_t* late = make(1, 10, 100, 1);
  assert_int_equal(serve_queue_add(fixture.queue, &late->request), SERVE_ADMISSION_STOPPED);
  free(late);
  assert_int_equal(take(&fixture), 1);
  finish(&fixture);
  expect_done(waits, SERVE_OUTCOME_OK);
  end(&fixture);
  // Now: only what is computed ends well.
  fixture = start(10000);
  test_request_t* computed = make(1, 90, 100, 1);
  add(&fixture, computed);
  assert_int_equal(take(&fixture), 1);
  waits = make(1, 90, 100, 1);
  add(&fixture, waits);
  serve_queue_stop(fixture.queue, true);
  expect_done(waits, SERVE_OUTCOME_STOPPED);
  finish(&fixture);
  expect_done(computed, SERVE_OUTCOME_OK);
  end(&fixture);
}

// ------------------------------------------------------------------------------------ threads

static void* run_model(void* self) {
  fixture_t* fixture = self;
  while (serve_queue_take(fixture->queue, fixture->batch)) finish(fixture);
  return NULL;
}

static void* send_requests(void* self) {
  fixture_t* fixture = self;
  unsigned seed = (unsigned)(uintptr_t)&seed;
  for (int i = 0; i < 300; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const size_t count = 1 + (seed >> 8) % 5;
    const size_t length = 1 + (seed >> 16) % 40;
    test_request_t* request = make(count, length, (int32_t)(seed >> 20), seed >> 28);
    request->request.priority = (serve_priority_t)((seed >> 12) % SERVE_PRIORITY_COUNT);
    while (serve_queue_add(fixture->queue, &request->request) != SERVE_ADMISSION_OK) {
      (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    while (atomic_load(&request->done_count) == 0) {
      (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    expect_done(request, SERVE_OUTCOME_OK);
  }
  return NULL;
}

static void test_threads(void** state) {
  (void)state;
  fixture_t fixture = start(300);
  pthread_t model, senders[4];
  assert_int_equal(pthread_create(&model, NULL, run_model, &fixture), 0);
  for (int i = 0; i < 4; ++i) {
    assert_int_equal(pthread_create(&senders[i], NULL, send_requests, &fixture), 0);
  }
  for (int i = 0; i < 4; ++i) (void)pthread_join(senders[i], NULL);
  serve_queue_stop(fixture.queue, false);
  (void)pthread_join(model, NULL);
  end(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_limits),     cmocka_unit_test(test_tokens),
      cmocka_unit_test(test_full),       cmocka_unit_test(test_fairness),
      cmocka_unit_test(test_priorities), cmocka_unit_test(test_busy),
      cmocka_unit_test(test_delay),      cmocka_unit_test(test_gone),
      cmocka_unit_test(test_deadline),   cmocka_unit_test(test_failure),
      cmocka_unit_test(test_stop),       cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
