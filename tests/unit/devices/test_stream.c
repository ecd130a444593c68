// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests CPU streams through the public interface, except for launches: order, waits between streams
// with few workers, sticky errors, destruction with queued work, and workspace in stream order.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "devices/cpu/cpu.h"
#include "devices/device.h"
#include "tests/support/must.h"

static const qn_device_t cpu = {QN_DEVICE_CPU, 0};

// ---- work that tests put on streams

typedef struct recorder {
  _Atomic int reference_count;  // of launches in flight
  _Atomic int count;
  int order[4096];
  _Atomic bool is_held;
} recorder_t;

static void retain(void* owner) {
  ((recorder_t*)owner)->reference_count++;
}
static void release(void* owner) {
  ((recorder_t*)owner)->reference_count--;
}
static qn_status_t describe(void* owner, const qn_kernel_failure_t* failure) {
  (void)owner;
  return qn_status_make(QN_STATUS_ASSERTION, "site %u index %" PRId64, failure->site,
                        failure->index);
}

static qn_status_t record(void* self, const qn_launch_t* launch) {
  recorder_t* recorder = self;
  recorder->order[recorder->count++] = (int)launch->words[0];
  return QN_OK;
}
static qn_status_t hold(void* self, const qn_launch_t* launch) {
  (void)launch;
  while (((recorder_t*)self)->is_held) usleep(100);
  return QN_OK;
}
static qn_status_t fail_at(void* self, const qn_launch_t* launch) {
  (void)self;
  qn__cpu_call_t call;
  qn__cpu_call_init(&call);
  (call.env.functions->fail)(&call.env, (uint32_t)launch->words[0], 42, 7);
  (call.env.functions->fail)(&call.env, 99, 0, 0);  // only the first counts
  return launch->describe(launch->owner, &call.failure);
}

static void enqueue(qn_stream_t* stream, qn__cpu_run_fn_t run, recorder_t* recorder,
                    uint64_t word) {
  qn_launch_t launch = {&word, 1, NULL, recorder, retain, release, describe};
  must(qn__cpu_enqueue(qn__stream_inner(stream), run, recorder, &launch));
}

// ---- tests

// Waits for the other stream with a generous limit. A defect thus ends the wait and shows in the
// count.
static qn_status_t meet(void* self, const qn_launch_t* launch) {
  (void)launch;
  recorder_t* recorder = self;
  recorder->count++;
  for (int i = 0; i < 5000000 && recorder->count < 2; i++) usleep(100);
  if (recorder->count == 2) return QN_OK;
  return qn_status_make(QN_STATUS_INTERNAL, "the other one did not come");
}

// One idle worker cannot run two streams that wait for each other. Must be the first test: later
// tests may add workers.
static void test_two_streams_at_once(void** state) {
  (void)state;
  if (qn_cpu_core_count() < 3) skip();  // the pool has one worker then
  static recorder_t recorder;
  qn_stream_t *one, *two;
  must(qn_stream_create(cpu, &one));
  must(qn_stream_create(cpu, &two));
  enqueue(one, record, &recorder, 0);
  must(qn_stream_sync(cpu, one));
  usleep(20000);  // the worker goes idle
  recorder.count = 0;
  enqueue(one, meet, &recorder, 0);
  enqueue(two, meet, &recorder, 0);
  while (!qn_stream_is_idle(one)) usleep(100);  // a sync would lend a hand
  must(qn_stream_sync(cpu, one));
  must(qn_stream_sync(cpu, two));
  qn_stream_destroy(one);
  qn_stream_destroy(two);
}

static void test_order(void** state) {
  (void)state;
  static recorder_t recorder;
  qn_stream_t* stream;
  must(qn_stream_create(cpu, &stream));
  for (int i = 0; i < 1000; i++) enqueue(stream, record, &recorder, (uint64_t)i);
  must(qn_stream_sync(cpu, stream));
  assert_int_equal(recorder.count, 1000);
  for (int i = 0; i < 1000; i++) assert_int_equal(recorder.order[i], i);
  assert_true(qn_stream_is_idle(stream));
  assert_int_equal(recorder.reference_count, 0);
  qn_stream_destroy(stream);
}

// More streams wait for each other than the pool has workers: a chain across 20 streams.
static void test_waits_hold_no_worker(void** state) {
  (void)state;
  enum { COUNT = 20 };
  static recorder_t recorder;
  qn_stream_t* streams[COUNT];
  for (int i = 0; i < COUNT; i++) must(qn_stream_create(cpu, &streams[i]));
  recorder.is_held = true;
  enqueue(streams[0], hold, &recorder, 0);
  for (int i = 1; i < COUNT; i++) {
    must(qn_stream_wait(cpu, streams[i - 1], streams[i]));
    enqueue(streams[i], record, &recorder, (uint64_t)i);
  }
  assert_int_equal(recorder.count, 0);
  assert_false(qn_stream_is_idle(streams[COUNT - 1]));
  recorder.is_held = false;
  must(qn_stream_sync(cpu, streams[COUNT - 1]));
  for (int i = 1; i < COUNT; i++) assert_int_equal(recorder.order[i - 1], i);
  for (int i = 0; i < COUNT; i++) qn_stream_destroy(streams[i]);
}

// A wait covers what was enqueued before it, not what comes later; and a destroyed stream can be
// waited for.
static void test_wait_target(void** state) {
  (void)state;
  static recorder_t recorder, held;
  qn_stream_t *from, *to;
  must(qn_stream_create(cpu, &from));
  must(qn_stream_create(cpu, &to));
  enqueue(from, record, &recorder, 1);
  must(qn_stream_wait(cpu, from, to));
  held.is_held = true;
  enqueue(from, hold, &held, 0);
  enqueue(to, record, &recorder, 2);
  must(qn_stream_sync(cpu, to));
  assert_int_equal(recorder.order[0], 1);
  assert_int_equal(recorder.order[1], 2);
  held.is_held = false;
  must(qn_stream_wait(cpu, from, to));
  must(qn_stream_wait(cpu, from, NULL));
  assert_true(qn_stream_is_idle(from));
  qn_stream_destroy(from);
  enqueue(to, record, &recorder, 3);
  must(qn_stream_sync(cpu, to));
  qn_stream_destroy(to);
}

static void test_errors_stick(void** state) {
  (void)state;
  static recorder_t recorder;
  qn_stream_t* stream;
  must(qn_stream_create(cpu, &stream));
  enqueue(stream, record, &recorder, 1);
  enqueue(stream, fail_at, &recorder, 5);
  enqueue(stream, record, &recorder, 2);   // skipped
  enqueue(stream, fail_at, &recorder, 6);  // skipped
  qn_status_t status = qn_stream_sync(cpu, stream);
  assert_int_equal(qn_status_code(status), QN_STATUS_ASSERTION);
  assert_string_equal(qn_status_message(status), "site 5 index 42");
  qn_status_free(status);
  assert_int_equal(recorder.count, 1);
  must(qn_stream_sync(cpu, stream));
  enqueue(stream, record, &recorder, 3);
  must(qn_stream_sync(cpu, stream));
  assert_int_equal(recorder.count, 2);
  // An unreported error is dropped with the stream.
  enqueue(stream, fail_at, &recorder, 7);
  qn_stream_destroy(stream);
  assert_int_equal(recorder.reference_count, 0);
}

static void test_destroy_waits(void** state) {
  (void)state;
  static recorder_t recorder;
  for (int round = 0; round < 50; round++) {
    recorder.count = 0;
    qn_stream_t* stream;
    must(qn_stream_create(cpu, &stream));
    for (int i = 0; i < 100; i++) enqueue(stream, record, &recorder, (uint64_t)i);
    qn_stream_destroy(stream);
    assert_int_equal(recorder.count, 100);
  }
}

static recorder_t shared_recorder;

static void* enqueue_many(void* arg) {
  qn_stream_t* stream = arg;
  for (uint64_t i = 0; i < 200; i++) {
    qn_launch_t launch = {&i, 1, NULL, &shared_recorder, retain, release, describe};
    qn_status_t status =
        qn__cpu_enqueue(qn__stream_inner(stream), record, &shared_recorder, &launch);
    if (!qn_ok(status)) return arg;
  }
  return NULL;
}

static void test_many_threads_one_stream(void** state) {
  (void)state;
  qn_stream_t* stream;
  must(qn_stream_create(cpu, &stream));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    must(qn__thread_start(&threads[i], "test", 0, enqueue_many, stream));
  }
  for (int i = 0; i < 4; i++) {
    void* result;
    assert_int_equal(pthread_join(threads[i], &result), 0);
    assert_null(result);
  }
  must(qn_stream_sync(cpu, stream));
  assert_int_equal(shared_recorder.count, 800);
  assert_int_equal(shared_recorder.reference_count, 0);
  qn_stream_destroy(stream);
}

static void test_copies(void** state) {
  (void)state;
  static char from[100000], to[100000];
  memset(from, 7, sizeof from);
  qn_stream_t* stream;
  must(qn_stream_create(cpu, &stream));
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = cpu,
                    .from = from,
                    .to_device = cpu,
                    .to = to,
                    .to_offset_bytes = 10,
                    .size_bytes = 1000};
  must(qn_device_copy(&copy, stream));
  assert_int_equal(to[9], 0);
  assert_int_equal(to[10], 7);
  assert_int_equal(to[1009], 7);
  assert_int_equal(to[1010], 0);
  // Pinned: behind the queue.
  static recorder_t held;
  held.is_held = true;
  enqueue(stream, hold, &held, 0);
  copy.is_host_pinned = true;
  copy.to_offset_bytes = 50000;
  must(qn_device_copy(&copy, stream));
  held.is_held = false;
  must(qn_stream_sync(cpu, stream));
  assert_int_equal(to[50000], 7);
  qn_stream_destroy(stream);
  // The messages name the mistake.
  copy.to = from + 500;
  copy.to_offset_bytes = 0;
  qn_status_t status = qn_device_copy(&copy, NULL);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  assert_non_null(strstr(qn_status_message(status), "overlap"));
  qn_status_free(status);
  copy.to = NULL;
  status = qn_device_copy(&copy, NULL);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
}

// A block freed on a stream with work queued goes back to that stream at once, to others only
// later.
static void test_workspace_follows_streams(void** state) {
  (void)state;
  static recorder_t held;
  qn_stream_t *one, *two;
  must(qn_stream_create(cpu, &one));
  must(qn_stream_create(cpu, &two));
  held.is_held = true;
  enqueue(one, hold, &held, 0);
  void *first, *same, *other, *later;
  must(qn_workspace_allocate(cpu, one, 100000, &first));
  assert_int_equal((uintptr_t)first % 64, 0);
  must(qn_workspace_free(cpu, one, first));
  must(qn_workspace_allocate(cpu, two, 100000, &other));
  assert_ptr_not_equal(other, first);
  must(qn_workspace_allocate(cpu, one, 100000, &same));
  assert_ptr_equal(same, first);
  must(qn_workspace_free(cpu, one, same));
  held.is_held = false;
  must(qn_stream_sync(cpu, one));
  must(qn_workspace_allocate(cpu, two, 100000, &later));
  assert_ptr_equal(later, first);
  must(qn_workspace_free(cpu, two, later));
  must(qn_workspace_free(cpu, two, other));
  qn_stream_destroy(one);
  qn_stream_destroy(two);
  void* huge;
  qn_status_t status = qn_workspace_allocate(cpu, NULL, SIZE_MAX / 2, &huge);
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
  qn_status_free(status);
}

static void test_active_stream_and_device(void** state) {
  (void)state;
  qn_stream_t *stream, *null_stream;
  const qn_device_t null_device = {QN_DEVICE_NULL, 0};
  must(qn_stream_create(cpu, &stream));
  must(qn_stream_create(null_device, &null_stream));
  assert_null(qn_active_stream(cpu));
  must(qn_set_active_stream(cpu, stream));
  must(qn_set_active_stream(null_device, null_stream));
  assert_ptr_equal(qn_active_stream(cpu), stream);
  assert_ptr_equal(qn_active_stream(null_device), null_stream);
  qn_status_t status = qn_set_active_stream(cpu, null_stream);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
  must(qn_set_active_device(null_device));
  assert_int_equal(qn_active_device().type, QN_DEVICE_NULL);
  assert_null(qn_active_stream(null_device));
  status = qn_set_active_device((qn_device_t){QN_DEVICE_CUDA, 0});
  assert_int_equal(qn_status_code(status), QN_STATUS_NOT_FOUND);
  qn_status_free(status);
  must(qn_set_active_device(cpu));
  assert_null(qn_active_stream(cpu));
  // A destroyed stream is not the active one.
  must(qn_set_active_stream(cpu, stream));
  qn_stream_destroy(stream);
  assert_null(qn_active_stream(cpu));
  qn_stream_destroy(null_stream);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_streams_at_once),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_waits_hold_no_worker),
      cmocka_unit_test(test_wait_target),
      cmocka_unit_test(test_errors_stick),
      cmocka_unit_test(test_destroy_waits),
      cmocka_unit_test(test_many_threads_one_stream),
      cmocka_unit_test(test_copies),
      cmocka_unit_test(test_workspace_follows_streams),
      cmocka_unit_test(test_active_stream_and_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
