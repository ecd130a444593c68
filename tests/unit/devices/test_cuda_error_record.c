// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests error records of the CUDA device on the fake driver: when they are copied and cleared,
// where and how often a failure is reported, and failures of the copying or clearing itself.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "devices/cuda/cuda.h"
#include "devices/device.h"
#include "tests/support/must.h"
#include "tests/unit/devices/support_cuda.h"

static const char COPY[] = "cuMemcpyDtoHAsync_v2";
static const char CLEAR[] = "cuMemsetD32Async";

static fake_cuda_counts_t before;
static void* executable;
static qn_stream_t* stream;
static qn_stream_t* other;
static float* x;

static int begin(void** state) {
  (void)state;
  cuda_driver.fail_at(NULL, 0, 0, 0);
  executable = cuda_load(0);
  must(qn_stream_create(cuda_at(0), &stream));
  must(qn_stream_create(cuda_at(0), &other));
  x = cuda_floats(0, 12, 100);
  cuda_driver.counts(&before);
  return 0;
}
static int end(void** state) {
  (void)state;
  cuda_driver.fail_at(NULL, 0, 0, 0);
  must(qn_stream_sync(cuda_at(0), stream));
  must(qn_stream_sync(cuda_at(0), other));
  cuda_expect_clean(&before);
  cuda_free(0, x);
  qn_stream_destroy(stream);
  qn_stream_destroy(other);
  cuda_table()->unload(0, executable);
  return 0;
}

// Stores 0 to n - 1; fails when n is odd.
static qn_status_t check(qn_stream_t* on, cuda_owner_t* owner, uint64_t n) {
  const uint64_t words[] = {(uintptr_t)x, n};
  return cuda_run(executable, CUDA_CHECK, 0, on, owner, words, 2);
}

static qn_status_t scale(qn_stream_t* on, cuda_owner_t* owner, float factor) {
  uint64_t words[] = {(uintptr_t)x, 0, 10};
  memcpy(&words[1], &factor, sizeof factor);
  return cuda_run(executable, CUDA_SCALE, 0, on, owner, words, 3);
}

static void expect_failure(qn_stream_t* on, const char* part) {
  must_fail(qn_stream_sync(cuda_at(0), on), QN_STATUS_ASSERTION, part);
  must(qn_stream_sync(cuda_at(0), on));
}

// A range from the fourth element on, which a call that fails with n = 3 does not write.
static void expect_floats(int first) {
  float host[10];
  cuda_read(0, NULL, x, host, sizeof host);
  for (int i = 3; i < 10; i++) assert_int_equal((int)host[i], first + i);
}

// Checks that work without checks copies and clears nothing. A sync after work with checks copies
// once. Only a record that is new or was reported is cleared.
static void test_calls(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  cuda_driver.fail_at(NULL, 0, 0, 0);
  for (int i = 0; i < 500; i++) {
    must(scale(i % 2 ? other : stream, &owner, 1));
    if (i % 5 == 0) must(qn_stream_sync(cuda_at(0), stream));
    if (i % 7 == 0) must(qn_stream_wait(cuda_at(0), stream, other));
    (void)qn_stream_is_idle(stream);
  }
  assert_int_equal(cuda_driver.calls(COPY), 0);
  assert_int_equal(cuda_driver.calls(CLEAR), 0);
  must(qn_stream_sync(cuda_at(0), other));
  for (int i = 0; i < 10; i++) must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(cuda_driver.calls(COPY), 1);
  assert_int_equal(cuda_driver.calls(CLEAR), 1);
  for (int i = 0; i < 50; i++) {
    must(qn_stream_sync(cuda_at(0), stream));
    must(scale(stream, &owner, 1));
  }
  assert_int_equal(cuda_driver.calls(COPY), 1);
  must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(cuda_driver.calls(COPY), 2);
  assert_int_equal(cuda_driver.calls(CLEAR), 1);
  must(check(stream, &owner, 3));
  expect_failure(stream, "index 3");
  assert_int_equal(cuda_driver.calls(CLEAR), 1);
  must(check(stream, &owner, 10));
  must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(cuda_driver.calls(COPY), 4);
  assert_int_equal(cuda_driver.calls(CLEAR), 2);
  // Long sequences: at most one copy before each mark.
  cuda_driver.fail_at(NULL, 0, 0, 0);
  for (int i = 0; i < 320; i++) must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  assert_true(cuda_driver.calls(COPY) <= 11);
  assert_int_equal(cuda_driver.calls(CLEAR), 0);
}

// Checks a copy that the driver refuses: the sync fails and keeps the owners, and the next sync
// reports the original failure.
static void test_copy_fails(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  must(check(stream, &owner, 3));
  cuda_driver.fail_at(COPY, 1, QN__CU_INVALID_VALUE, 0);
  must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_DEVICE_ERROR,
            "reading an error record: CUDA_ERROR_INVALID_VALUE");
  assert_int_equal(owner.reference_count, 1);
  must(check(stream, &owner, 10));
  expect_failure(stream, "index 3");
  assert_int_equal(owner.reference_count, 0);
  expect_floats(100);
}

// Before a mark: the mark is not made, and nothing is lost.
static void test_copy_at_mark_fails(void** state) {
  (void)state;
  enum { OWNERS = 200 };
  cuda_owner_t owners[OWNERS] = {{0}};
  cuda_driver.fail_at(COPY, 1, QN__CU_INVALID_VALUE, 1);
  for (int i = 0; i < OWNERS; i++) must(check(stream, &owners[i], i == 1 ? 3 : 10));
  while (!qn_stream_is_idle(stream)) usleep(100);
  for (int i = 0; i < OWNERS; i++) assert_int_equal(owners[i].reference_count, 1);
  assert_true(cuda_driver.calls(COPY) > 2);
  cuda_driver.fail_at(NULL, 0, 0, 0);
  expect_failure(stream, "index 3");
  for (int i = 0; i < OWNERS; i++) assert_int_equal(owners[i].reference_count, 0);
}

// Checks that a call fails without effect if the record cannot be cleared, and that the next call
// runs.
static void test_clear_fails(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  for (int i = 0; i < 2; i++) {
    cuda_driver.fail_at(CLEAR, 1, QN__CU_OUT_OF_MEMORY, 0);
    must_fail(check(stream, &owner, 10), QN_STATUS_OUT_OF_MEMORY, "clearing an error record");
    must(qn_stream_sync(cuda_at(0), stream));
    must(scale(stream, &owner, 1));
    must(check(stream, &owner, 3));
    expect_failure(stream, "index 3");
  }
  must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  expect_floats(0);
}

// Checks that each stream reports its own failure, even if streams wait for each other. A query
// reports nothing and clears nothing.
static void test_streams(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  must(check(stream, &owner, 3));
  must(qn_stream_wait(cuda_at(0), stream, other));
  must(scale(other, &owner, 2));
  must(qn_stream_sync(cuda_at(0), other));
  while (!qn_stream_is_idle(stream)) usleep(100);
  must(check(other, &owner, 5));
  expect_failure(stream, "index 3");
  expect_failure(other, "index 5");
  must(check(other, &owner, 10));
  must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  must(qn_stream_sync(cuda_at(0), other));
  assert_int_equal(owner.reference_count, 0);
}

// Checks that work queued before the sync that reports a failure is skipped. Later work runs, and
// its failures are reported later.
static void test_again(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  for (int i = 0; i < 20; i++) {
    must(check(stream, &owner, 3));
    must(check(stream, &owner, 5));
    must(check(stream, &owner, 10));
    expect_failure(stream, "index 3");
    must(check(stream, &owner, 10));
    must(check(stream, &owner, 7));
    expect_failure(stream, "index 7");
  }
  assert_int_equal(owner.reference_count, 0);
}

// ---- tags: all work after a failure is skipped, however many kernels are in between

// Checks a call, or a graph, whose first launch fails and thousands of launches follow.
static void test_many_kernels_of_a_call(void** state) {
  (void)state;
  enum { KERNELS = 2 * QN__CUDA_TAGS + 50 };
  cuda_owner_t owner = {0};
  float* wide = cuda_floats(0, KERNELS, 1);
  uint64_t words[] = {(uintptr_t)wide, KERNELS};
  for (int is_graph = 0; is_graph < 2; is_graph++) {
    qn_graph_t* graph = NULL;
    if (is_graph) must(qn_stream_capture_begin(cuda_at(0), stream));
    must(cuda_run(executable, CUDA_COUNT, 0, stream, &owner, words, 2));
    if (is_graph) {
      must(qn_stream_capture_end(cuda_at(0), stream, &graph));
      must(qn_graph_launch(graph, stream));
    }
    expect_failure(stream, "index 3");
    static float host[KERNELS];
    cuda_read(0, stream, wide, host, sizeof host);
    for (int i = 0; i < KERNELS; i++) assert_int_equal((int)host[i], i < 3 ? i : i + 1);
    qn_graph_destroy(graph);
  }
  assert_int_equal(owner.reference_count, 0);
  // As many launches without a failure.
  must(check(stream, &owner, 10));
  qn__cuda_stream_t* inner = qn__stream_inner(stream);
  for (int i = 0; i < 3; i++) {
    inner->kernel_count += QN__CUDA_TAGS - 1;
    must(check(stream, &owner, 10));
  }
  must(qn_stream_sync(cuda_at(0), stream));
  expect_floats(0);
  cuda_free(0, wide);
}

// Checks that calls of one function share a batch, and that the batch's last tag is used between
// them.
static void test_many_calls_of_a_batch(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn__cuda_stream_t* inner = qn__stream_inner(stream);
  must(check(stream, &owner, 3));
  for (int i = 0; i < 5; i++) {
    inner->kernel_count += QN__CUDA_TAGS - 1;
    must(check(stream, &owner, 10));
  }
  expect_failure(stream, "index 3");
  assert_int_equal(owner.reference_count, 0);
  expect_floats(100);
}

// Checks that a call whose first kernels end a batch, with a mark after it, continues in the next
// batch and can fail there.
static void test_failure_in_the_rest_of_a_call(void** state) {
  (void)state;
  cuda_owner_t owner = {0}, sure = {0};
  qn__cuda_stream_t* inner = qn__stream_inner(stream);
  for (int i = 1; i < QN__CUDA_LAUNCHES_PER_MARK; i++) must(check(stream, &owner, 10));
  inner->kernel_count += QN__CUDA_TAGS;
  must(check(stream, &owner, 3));
  for (int i = 0; i < 3 * QN__CUDA_LAUNCHES_PER_MARK; i++) {
    while (!qn_stream_is_idle(stream)) usleep(100);
    must(scale(stream, &sure, 1));
  }
  expect_failure(stream, "index 3");
  assert_int_equal(owner.reference_count + sure.reference_count, 0);
}

// A failure that no sync has returned stays in the record until the batch numbers wrap around. No
// new batch gets the number of the failed one.
static void test_numbers_begin_anew(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn__cuda_stream_t* inner = qn__stream_inner(stream);
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  const uint64_t number = inner->next;
  must(check(stream, &owner, 3));
  const uint32_t kernel = inner->kernel_count;
  must(qn__cuda_enter(0, &device, &scope));
  must(qn__cuda_in_flight_wait(inner, "a test"));
  qn__cuda_leave(&scope);
  assert_true(inner->is_failed && inner->first == inner->next);
  inner->first = inner->next = inner->marked_end = number + QN__CUDA_MAX_TAGGED - 1;
  inner->copied_end = inner->read_end = inner->fallible_end = inner->next;
  inner->kernel_count = kernel + QN__CUDA_TAGS - 1;
  must(check(stream, &owner, 10));
  expect_failure(stream, "index 3");
  expect_floats(100);
  must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  expect_floats(0);
}

// Each value breaks one invariant of the ring.
static void test_invariants(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn__cuda_stream_t* inner = qn__stream_inner(stream);
  must(check(stream, &owner, 10));
  qn__cuda_batch_t* batch = &inner->batches[(inner->next - 1) % QN__CUDA_BATCHES];
  const qn__cuda_batch_t good_batch = *batch;
  const uint64_t marked_end = inner->marked_end, read_end = inner->read_end;
  const uint64_t copied_end = inner->copied_end, next_mark = inner->next_mark;
  assert_true(qn__cuda_in_flight_check(inner));
  inner->marked_end = inner->next + 1;
  assert_false(qn__cuda_in_flight_check(inner));
  inner->marked_end = inner->next;
  assert_true(qn__cuda_in_flight_check(inner));
  batch->pending_count = 1;
  assert_false(qn__cuda_in_flight_check(inner));
  inner->marked_end = marked_end;
  assert_true(qn__cuda_in_flight_check(inner));
  batch->tags.upper = 0;
  assert_false(qn__cuda_in_flight_check(inner));
  *batch = good_batch;
  batch->has_copy = true;
  assert_false(qn__cuda_in_flight_check(inner));
  *batch = good_batch;
  inner->read_end = copied_end + 1;
  assert_false(qn__cuda_in_flight_check(inner));
  inner->read_end = read_end;
  inner->copied_end = marked_end + 1;
  assert_false(qn__cuda_in_flight_check(inner));
  inner->copied_end = copied_end;
  inner->next_mark = inner->first_mark + QN__CUDA_MARKS + 1;
  assert_false(qn__cuda_in_flight_check(inner));
  inner->next_mark = next_mark;
  assert_true(qn__cuda_in_flight_check(inner));
  must(qn_stream_sync(cuda_at(0), stream));
}

// Checks that a stream's failure and a capture are independent: the failure does not invalidate the
// capture, the capture does not delay the failure, and neither copy nor clearing is captured.
static void test_capture_behind_failure(void** state) {
  (void)state;
  cuda_owner_t owner = {0}, recorded = {0};
  qn_graph_t* graph;
  must(check(stream, &owner, 3));
  must(qn_stream_capture_begin(cuda_at(0), stream));
  cuda_driver.fail_at(NULL, 0, 0, 0);
  must(check(stream, &recorded, 10));
  must(check(stream, &recorded, 11));
  assert_int_equal(cuda_driver.calls(COPY), 0);
  assert_int_equal(cuda_driver.calls(CLEAR), 0);
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  expect_failure(stream, "index 3");
  must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  expect_floats(0);
  // The graph has its own record: several launches in a row report one failure, and then the graph
  // works again.
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 3; k++) must(qn_graph_launch(graph, stream));
    must(check(stream, &owner, 10));
    expect_failure(stream, "index 11");
  }
  // On two streams.
  must(qn_graph_launch(graph, stream));
  must(qn_stream_wait(cuda_at(0), stream, other));
  must(qn_graph_launch(graph, other));
  expect_failure(other, "index 11");
  must(qn_stream_sync(cuda_at(0), stream));
  must(qn_graph_launch(graph, other));
  expect_failure(other, "index 11");
  qn_graph_destroy(graph);
  assert_int_equal(recorded.reference_count, 0);
}

// Checks a graph launch whose copy is refused: the launch fails, and the next one reports the
// failure.
static void test_graph_copy_fails(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(check(stream, &owner, 11));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  cuda_driver.fail_at(CLEAR, 1, QN__CU_INVALID_VALUE, 0);
  must_fail(qn_graph_launch(graph, stream), QN_STATUS_DEVICE_ERROR, "clearing");
  cuda_driver.fail_at(COPY, 1, QN__CU_INVALID_VALUE, 0);
  must_fail(qn_graph_launch(graph, stream), QN_STATUS_DEVICE_ERROR, "reading");
  must(qn_stream_sync(cuda_at(0), stream));
  must(qn_graph_launch(graph, stream));
  expect_failure(stream, "index 11");
  // A graph without checks needs neither.
  qn_graph_t* sure;
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(scale(stream, &owner, 1));
  must(qn_stream_capture_end(cuda_at(0), stream, &sure));
  cuda_driver.fail_at(NULL, 0, 0, 0);
  for (int i = 0; i < 5; i++) must(qn_graph_launch(sure, stream));
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(cuda_driver.calls(COPY), 0);
  assert_int_equal(cuda_driver.calls(CLEAR), 0);
  qn_graph_destroy(sure);
  qn_graph_destroy(graph);
}

// Checks that work between a graph's failure and its report is skipped, including the failed
// kernel. If the driver refuses the clearing, nothing is launched. On another stream no clearing is
// needed.
static void test_graph_between_failure_and_telling(void** state) {
  (void)state;
  static const char CLOSE[] = "cuMemcpyDtoDAsync_v2";
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  float* fresh = cuda_floats(0, 12, 50);
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = cuda_at(0),
                          .from = fresh,
                          .to_device = cuda_at(0),
                          .to = x,
                          .size_bytes = 12 * sizeof *fresh};
  must(qn_stream_capture_begin(cuda_at(0), stream));
  for (int i = 0; i < 300; i++) must(check(stream, &owner, 10));
  must(check(stream, &owner, 11));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  cuda_driver.fail_at(NULL, 0, 0, 0);
  for (int round = 0; round < 3; round++) {
    must(qn_graph_launch(graph, stream));
    must(qn_device_copy(&copy, stream));
    for (int i = 0; i < 3; i++) must(qn_graph_launch(graph, stream));
    cuda_driver.fail_at(CLOSE, 1, QN__CU_INVALID_VALUE, 0);
    must_fail(qn_graph_launch(graph, stream), QN_STATUS_DEVICE_ERROR, "closing an error record");
    cuda_driver.fail_at(NULL, 0, 0, 0);
    expect_failure(stream, "index 11");
    expect_floats(50);
    // After a query of the stream there is no batch left to close.
    for (int i = 0; i < 2; i++) {
      must(qn_graph_launch(graph, i ? other : stream));
      expect_failure(i ? other : stream, "index 11");
      expect_floats(0);
    }
    assert_int_equal(cuda_driver.calls(CLOSE), 0);
    must(qn_graph_launch(graph, stream));
    must(qn_stream_wait(cuda_at(0), stream, other));
    must(qn_graph_launch(graph, other));
    assert_int_equal(cuda_driver.calls(CLOSE), 0);
    expect_failure(stream, "index 11");
    must(qn_stream_sync(cuda_at(0), other));
  }
  qn_graph_destroy(graph);
  cuda_free(0, fresh);
}

static void* let_go_later(void* self) {
  (void)self;
  usleep(20000);
  cuda_driver.hold(0);
  return NULL;
}

// Checks that an unreported failure is dropped with its stream, and that the next user of the
// record gets it cleared.
static void test_destroy(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  for (int i = 0; i < 70; i++) {
    qn_stream_t* fresh;
    pthread_t thread;
    must(qn_stream_create(cuda_at(0), &fresh));
    must(check(fresh, &owner, 10));
    must(qn_stream_sync(cuda_at(0), fresh));
    if (i % 10 == 0) cuda_driver.hold(1);
    must(check(fresh, &owner, 3));
    if (i % 10 == 0) assert_int_equal(pthread_create(&thread, NULL, let_go_later, NULL), 0);
    qn_stream_destroy(fresh);
    if (i % 10 == 0) assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(owner.reference_count, 0);
  }
}

// A stream's first batch has the tag that the first batch of the record's previous stream had. If
// the record cannot be cleared, the old stream's failure is not reported for the new one.
static void test_clear_fails_on_a_used_record(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  for (int i = 0; i < 3; i++) {
    qn_stream_t* fresh;
    must(qn_stream_create(cuda_at(0), &fresh));
    must(check(fresh, &owner, 3));
    qn_stream_destroy(fresh);
    must(qn_stream_create(cuda_at(0), &fresh));
    cuda_driver.fail_at(CLEAR, 1, QN__CU_OUT_OF_MEMORY, 0);
    must_fail(check(fresh, &owner, 10), QN_STATUS_OUT_OF_MEMORY, "clearing an error record");
    must(qn_stream_sync(cuda_at(0), fresh));
    must(check(fresh, &owner, 5));
    expect_failure(fresh, "index 5");
    qn_stream_destroy(fresh);
  }
  assert_int_equal(owner.reference_count, 0);
}

// ---- other threads in the middle of a call

// A driver table whose cuLaunchKernel calls `in_between` before the n-th launch.
static qn__cuda_driver_t* table;
static long launches_left;
static void* (*in_between)(void* self);
static __typeof__(table->launch_kernel) launch_kernel;

static CUresult launch_later(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream on, void** params, void** extra) {
  if (launches_left > 0 && --launches_left == 0) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, in_between, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
  }
  return launch_kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                       on, params, extra);
}

static int begin_between(void** state) {
  const qn__cuda_driver_t* const_table = qn__cuda();
  (void)begin(state);
  memcpy(&table, &const_table, sizeof table);
  launch_kernel = table->launch_kernel;
  table->launch_kernel = launch_later;
  return 0;
}
static int end_between(void** state) {
  table->launch_kernel = launch_kernel;
  return end(state);
}

// Stores into `to` with 3, 4, ... n - 1, one launch each. Fails at the first odd one that runs.
static qn_status_t count(float* to, cuda_owner_t* owner, uint64_t n) {
  const uint64_t words[] = {(uintptr_t)to, n};
  return cuda_run(executable, CUDA_COUNT, 0, stream, owner, words, 2);
}

static cuda_owner_t others;
static float* y;

static void* tell_and_call(void* self) {
  expect_failure(stream, "index 5");
  const uint64_t words[] = {(uintptr_t)y, 10};
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &others, words, 2));
  must(qn_stream_sync(cuda_at(0), stream));
  return self;
}

static void expect_y(int first) {
  float host[10];
  cuda_read(0, stream, y, host, sizeof host);
  for (int i = 0; i < 10; i++) assert_int_equal((int)host[i], first + i);
}

// A call whose first kernel was skipped behind a failure is not gone on with when the failure has
// been told and another call has begun: not a kernel of it is done. That call is, and so is the
// next.
static void test_telling_in_the_middle_of_a_call(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  y = cuda_floats(0, 10, 50);
  in_between = tell_and_call;
  for (int i = 0; i < 8; i++) {
    const uint64_t words[] = {(uintptr_t)y, 5};
    must(cuda_run(executable, CUDA_CHECK, 0, stream, &others, words, 2));
    // Also where the rest of the call is in another batch.
    qn__cuda_stream_t* inner = qn__stream_inner(stream);
    must(scale(stream, &owner, 1));
    if (i % 2) inner->kernel_count += QN__CUDA_TAGS - 1;
    launches_left = i < 4 ? 2 : 4;
    must(count(x, &owner, 9));
    must(qn_stream_sync(cuda_at(0), stream));
    expect_floats(100);
    expect_y(0);
    assert_int_equal(owner.reference_count + others.reference_count, 0);
    // The rest of a call does not keep its record, so there are never more than two.
    const qn__cuda_error_record_t* records = inner->records;
    assert_true(records->next && !records->next->next);
    assert_int_equal(records->call_count + records->next->call_count, 0);
  }
  must(count(x, &owner, 5));
  expect_failure(stream, "index 3");
  cuda_free(0, y);
}

// Nests the case: each call is interrupted in its middle by the next one, which fails and reports.
enum { DEEPEST = 5 };
static cuda_owner_t deep[DEEPEST];
static int depth;

static void* call_deeper(void* self) {
  expect_failure(stream, "index 5");
  cuda_owner_t* owner = &deep[depth];
  if (++depth < DEEPEST) {
    must(check(stream, &others, 5));
    launches_left = 2;
    must(count(y, owner, 9));
  } else {
    must(check(stream, &others, 10));
  }
  must(qn_stream_sync(cuda_at(0), stream));
  return self;
}

static void test_tellings_in_the_middle_of_calls(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  y = cuda_floats(0, 10, 50);
  in_between = call_deeper;
  for (int i = 0; i < 3; i++) {
    depth = 0;
    must(check(stream, &others, 5));
    launches_left = 2;
    must(count(y, &owner, 9));
    must(qn_stream_sync(cuda_at(0), stream));
    assert_int_equal(depth, DEEPEST);
    expect_y(50);
    expect_floats(0);
  }
  for (int i = 0; i < DEEPEST; i++) assert_int_equal(deep[i].reference_count, 0);
  cuda_free(0, y);
}

static void* fail_and_sync(void* self) {
  must(check(stream, &others, 7));
  expect_failure(stream, "index 7");
  return self;
}

// A thread that calls and then waits gets the failure, even if another thread is in the middle of a
// call, also of the same owner, whose batch it shares. The failure is reported once.
static void test_failure_in_the_middle_of_a_call(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  y = cuda_floats(0, 10, 50);
  in_between = fail_and_sync;
  for (int i = 0; i < 8; i++) {
    const uint64_t words[] = {(uintptr_t)y, (uintptr_t)x, 10};
    if (i >= 4) must(check(stream, &others, 10));
    launches_left = 2;
    must(cuda_run(executable, CUDA_WORKSPACE, 0, stream, i % 2 ? &owner : &others, words, 3));
    assert_int_equal(launches_left, 0);
    must(qn_stream_sync(cuda_at(0), stream));
    expect_floats(50);
    assert_int_equal(owner.reference_count + others.reference_count, 0);
  }
  cuda_free(0, y);
}

// ---- threads

enum { THREADS = 12, ROUNDS = 40 };
typedef struct worker {
  cuda_owner_t owner;
  bool is_failing;
  int failure_count;
} worker_t;

// More threads wait for one stream than there are places for copies.
static void* work(void* self) {
  worker_t* worker = self;
  for (int i = 0; i < ROUNDS; i++) {
    must(check(stream, &worker->owner, worker->is_failing && i % 8 == 0 ? 3 : 10));
    qn_status_t status = qn_stream_sync(cuda_at(0), stream);
    if (!qn_ok(status)) {
      assert_int_equal(qn_status_code(status), QN_STATUS_ASSERTION);
      worker->failure_count++;
    }
    qn_status_free(status);
  }
  return NULL;
}

static void run_threads(bool is_failing, int* out_failure_count) {
  worker_t workers[THREADS] = {{.failure_count = 0}};
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i].is_failing = is_failing && i < 2;
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  qn_status_t status = qn_stream_sync(cuda_at(0), stream);
  *out_failure_count = !qn_ok(status);
  qn_status_free(status);
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(workers[i].owner.reference_count, 0);
    *out_failure_count += workers[i].failure_count;
  }
}

static void test_threads(void** state) {
  (void)state;
  int failure_count;
  run_threads(false, &failure_count);
  assert_int_equal(failure_count, 0);
  run_threads(true, &failure_count);
  assert_in_range(failure_count, 1, 2 * ROUNDS / 8);
  cuda_owner_t owner = {0};
  must(check(stream, &owner, 3));
  expect_failure(stream, "index 3");
  must(check(stream, &owner, 10));
  must(qn_stream_sync(cuda_at(0), stream));
  expect_floats(0);
}

int main(void) {
  if (!cuda_setup()) {
    (void)printf("skipped: the fake driver was not built (no C++ compiler)\n");
    return 0;
  }
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define BETWEEN(name) cmocka_unit_test_setup_teardown(name, begin_between, end_between)
  const struct CMUnitTest tests[] = {TEST(test_calls),
                                     TEST(test_copy_fails),
                                     TEST(test_copy_at_mark_fails),
                                     TEST(test_clear_fails),
                                     TEST(test_streams),
                                     TEST(test_again),
                                     TEST(test_many_kernels_of_a_call),
                                     TEST(test_many_calls_of_a_batch),
                                     TEST(test_failure_in_the_rest_of_a_call),
                                     TEST(test_numbers_begin_anew),
                                     TEST(test_invariants),
                                     TEST(test_capture_behind_failure),
                                     TEST(test_graph_copy_fails),
                                     TEST(test_graph_between_failure_and_telling),
                                     BETWEEN(test_telling_in_the_middle_of_a_call),
                                     BETWEEN(test_tellings_in_the_middle_of_calls),
                                     BETWEEN(test_failure_in_the_middle_of_a_call),
                                     TEST(test_destroy),
                                     TEST(test_clear_fails_on_a_used_record),
                                     TEST(test_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
