// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests streams of the CUDA device on the fake driver: order, waits without events, sticky errors,
// lifetimes of owners, streams of the host, and many threads.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "devices/cuda/driver.h"
#include "devices/device.h"
#include "tests/support/must.h"
#include "tests/unit/devices/support_cuda.h"

static fake_cuda_counts_t before;
static void* executable;

static int begin(void** state) {
  (void)state;
  cuda_driver.fail_at(NULL, 0, 0, 0);
  executable = cuda_load(0);
  cuda_driver.counts(&before);
  return 0;
}
static int end(void** state) {
  (void)state;
  cuda_expect_clean(&before);
  cuda_table()->unload(0, executable);
  return 0;
}

static qn_stream_t* make_stream(void) {
  qn_stream_t* stream;
  must(qn_stream_create(cuda_at(0), &stream));
  return stream;
}

static void scale(qn_stream_t* stream, cuda_owner_t* owner, float* c, size_t n, float factor) {
  uint64_t words[] = {(uintptr_t)c, 0, n};
  memcpy(&words[1], &factor, sizeof factor);
  must(cuda_run(executable, CUDA_SCALE, 0, stream, owner, words, 3));
}

static void expect_floats(qn_stream_t* stream, const float* c, size_t n, float first, float step) {
  float* host = malloc(n * sizeof *host);
  cuda_read(0, stream, c, host, n * sizeof *host);
  for (size_t i = 0; i < n; i++) assert_true(host[i] == first + step * (float)i);
  free(host);
}

static void test_order(void** state) {
  (void)state;
  qn_stream_t* stream = make_stream();
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 100, 1);
  for (int i = 0; i < 10; i++) {
    scale(stream, &owner, c, 100, 3);
    scale(stream, &owner, c, 100, 0.5f);
  }
  float factor = 1;
  for (int i = 0; i < 10; i++) factor *= 1.5f;
  expect_floats(stream, c, 100, factor, factor);
  must(qn_stream_sync(cuda_at(0), stream));
  cuda_free(0, c);
  qn_stream_destroy(stream);
}

// Checks an event that is recorded again, on a faster stream, before its earlier record is reached:
// each wait covers its own record.
static void test_waits_share_an_event(void** state) {
  (void)state;
  qn_stream_t *slow = make_stream(), *a = make_stream(), *b = make_stream(), *c = make_stream();
  cuda_owner_t owner = {0};
  float *large = cuda_floats(0, 20000, 1), *small = cuda_floats(0, 100, 1);
  for (int round = 0; round < 10; round++) {
    cuda_driver.hold(1);
    scale(slow, &owner, large, 20000, round % 2 ? 0.5f : 2.0f);
    must(qn_stream_wait(cuda_at(0), slow, a));
    must(qn_stream_wait(cuda_at(0), a, c));
    scale(c, &owner, small, 100, round % 2 ? 0.5f : 2.0f);
    must(qn_stream_wait(cuda_at(0), b, c));
    cuda_driver.hold(0);
    must(qn_stream_sync(cuda_at(0), c));
    assert_true(qn_stream_is_idle(slow));
  }
  expect_floats(c, large, 20000, 1, 1);
  expect_floats(c, small, 100, 1, 1);
  qn_stream_t* streams[] = {slow, a, b, c};
  for (size_t i = 0; i < QN_COUNT_OF(streams); i++) {
    must(qn_stream_sync(cuda_at(0), streams[i]));
    qn_stream_destroy(streams[i]);
  }
  assert_int_equal(owner.reference_count, 0);
  cuda_free(0, large);
  cuda_free(0, small);
}

// Checks that a wait covers the other stream's earlier work only, and that no call creates an
// event.
static void test_wait(void** state) {
  (void)state;
  qn_stream_t *one = make_stream(), *two = make_stream();
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 100, 1);
  must(qn_stream_wait(cuda_at(0), one, two));
  cuda_driver.fail_at(NULL, 0, 0, 0);
  cuda_driver.hold(1);
  for (int i = 0; i < 50; i++) {
    scale(i % 2 ? two : one, &owner, c, 100, i % 2 ? 0.5f : 2.0f);
    must(qn_stream_wait(cuda_at(0), i % 2 ? two : one, i % 2 ? one : two));
  }
  must(qn_stream_wait(cuda_at(0), one, NULL));
  must(qn_stream_wait(cuda_at(0), NULL, two));
  must(qn_stream_wait(cuda_at(0), two, two));
  assert_false(qn_stream_is_idle(one));
  cuda_driver.hold(0);
  assert_int_equal(cuda_driver.calls("cuEventCreate"), 0);
  assert_int_equal(cuda_driver.calls("cuEventDestroy_v2"), 0);
  expect_floats(one, c, 100, 1, 1);
  must(qn_stream_sync(cuda_at(0), one));
  must(qn_stream_sync(cuda_at(0), two));
  assert_int_equal(owner.reference_count, 0);
  cuda_free(0, c);
  qn_stream_destroy(one);
  qn_stream_destroy(two);
}

// Checks that the next sync reports the first failure, once. Later work with checks is skipped
// until then. Afterwards the stream works normally.
static void test_error_sticks(void** state) {
  (void)state;
  qn_stream_t *stream = make_stream(), *other = make_stream();
  cuda_owner_t owner = {0}, another = {0};
  float* x = cuda_floats(0, 10, 100);
  float* y = cuda_floats(0, 10, 100);
  const uint64_t odd[] = {(uintptr_t)x, 3}, odder[] = {(uintptr_t)x, 5},
                 even[] = {(uintptr_t)x, 10}, elsewhere[] = {(uintptr_t)y, 10};
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &owner, odd, 2));
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &owner, even, 2));
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &another, odder, 2));
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &owner, even, 2));
  must(cuda_run(executable, CUDA_CHECK, 0, other, &owner, elsewhere, 2));
  must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_ASSERTION, "site 7 index 3 extent 5");
  must(qn_stream_sync(cuda_at(0), stream));
  must(qn_stream_sync(cuda_at(0), other));
  assert_int_equal(owner.reference_count, 0);
  assert_int_equal(another.reference_count, 0);
  float host[10];
  cuda_read(0, stream, x, host, sizeof host);
  for (int i = 3; i < 10; i++) assert_int_equal((int)host[i], 100 + i);
  expect_floats(other, y, 10, 0, 1);
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &owner, even, 2));
  must(qn_stream_sync(cuda_at(0), stream));
  expect_floats(stream, x, 10, 0, 1);
  // An unreported failure is dropped with its stream.
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &owner, odd, 2));
  qn_stream_destroy(stream);
  qn_stream_destroy(other);
  assert_int_equal(owner.reference_count, 0);
  cuda_free(0, x);
  cuda_free(0, y);
}

// Checks that a failure is reported even if the launch completed, and its owner was released, long
// before the sync.
static void test_error_behind_marks(void** state) {
  (void)state;
  qn_stream_t* stream = make_stream();
  cuda_owner_t failing = {0};
  enum { OWNERS = 100 };
  cuda_owner_t owners[OWNERS] = {{0}};
  float* x = cuda_floats(0, 10, 100);
  const uint64_t odd[] = {(uintptr_t)x, 3}, even[] = {(uintptr_t)x, 10};
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &failing, odd, 2));
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < OWNERS; i++) {
      must(cuda_run(executable, CUDA_CHECK, 0, stream, &owners[i], even, 2));
    }
    while (!qn_stream_is_idle(stream)) usleep(100);
  }
  assert_int_equal(failing.reference_count, 0);
  must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_ASSERTION, "index 3");
  must(qn_stream_sync(cuda_at(0), stream));
  for (int i = 0; i < OWNERS; i++) assert_int_equal(owners[i].reference_count, 0);
  expect_floats(stream, x + 3, 7, 103, 1);  // all was skipped
  qn_stream_destroy(stream);
  cuda_free(0, x);
}

// Checks that many launches of one owner need few references, which are released without a sync.
static void test_owners_are_let_go(void** state) {
  (void)state;
  qn_stream_t* stream = make_stream();
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 4, 1);
  cuda_driver.hold(1);  // else a mark may have been passed as soon as it is made
  for (int i = 0; i < 1000; i++) {
    scale(stream, &owner, c, 4, 1);
    assert_true(owner.reference_count > 0);
  }
  cuda_driver.hold(0);
  assert_true(owner.retain_count < 100);
  while (!qn_stream_is_idle(stream)) usleep(100);
  cuda_owner_t other = {0};
  for (int i = 0; i < 200; i++) {
    scale(stream, &other, c, 4, 1);
    if (i % 40 == 39) {
      while (!qn_stream_is_idle(stream)) usleep(100);
    }
  }
  assert_int_equal(owner.reference_count, 0);
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(other.reference_count, 0);
  cuda_free(0, c);
  qn_stream_destroy(stream);
}

static void* let_go_later(void* self) {
  (void)self;
  usleep(50000);
  cuda_driver.hold(0);
  return NULL;
}

// Checks that a launch waits if more owners are in flight than the ring has slots.
static void test_full_ring(void** state) {
  (void)state;
  enum { OWNERS = 700 };
  cuda_owner_t* owners = calloc(OWNERS, sizeof *owners);
  qn_stream_t* stream = make_stream();
  float* c = cuda_floats(0, 4, 1);
  pthread_t thread;
  cuda_driver.hold(1);
  assert_int_equal(pthread_create(&thread, NULL, let_go_later, NULL), 0);
  for (int i = 0; i < OWNERS; i++) scale(stream, &owners[i], c, 4, 1);
  assert_int_equal(pthread_join(thread, NULL), 0);
  must(qn_stream_sync(cuda_at(0), stream));
  for (int i = 0; i < OWNERS; i++) assert_int_equal(owners[i].reference_count, 0);
  cuda_free(0, c);
  qn_stream_destroy(stream);
  free(owners);
}

static void test_destroy_with_work(void** state) {
  (void)state;
  pthread_t thread;
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 1000, 1);
  for (int i = 0; i < 5; i++) {
    qn_stream_t* stream = make_stream();
    cuda_driver.hold(1);
    for (int k = 0; k < 5; k++) scale(stream, &owner, c, 1000, 2);
    assert_int_equal(pthread_create(&thread, NULL, let_go_later, NULL), 0);
    qn_stream_destroy(stream);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(owner.reference_count, 0);
  }
  expect_floats(NULL, c, 1000, (float)(1 << 25), (float)(1 << 25));
  cuda_free(0, c);
}

// ---- streams of the host

static void test_wrap(void** state) {
  (void)state;
  CUresult (*create)(CUstream*, unsigned);
  CUresult (*destroy)(CUstream);
  CUresult (*push)(CUcontext);
  CUresult (*pop)(CUcontext*);
  CUresult (*make_context)(CUcontext*, unsigned, CUdevice);
  CUresult (*drop_context)(CUcontext);
  CUresult (*retain_primary)(CUcontext*, CUdevice);
  const struct {
    const char* name;
    void* out;
  } symbols[] = {{"cuStreamCreate", &create},
                 {"cuStreamDestroy_v2", &destroy},
                 {"cuCtxPushCurrent_v2", &push},
                 {"cuCtxPopCurrent_v2", &pop},
                 {"cuCtxCreate_v2", &make_context},
                 {"cuCtxDestroy_v2", &drop_context},
                 {"cuDevicePrimaryCtxRetain", &retain_primary}};
  for (size_t i = 0; i < QN_COUNT_OF(symbols); i++) {
    void* address = cuda_driver.entry(symbols[i].name);
    memcpy(symbols[i].out, &address, sizeof address);
  }
  CUcontext primary, own;
  CUstream native, foreign;
  assert_int_equal(retain_primary(&primary, 0), 0);
  assert_int_equal(push(primary), 0);
  assert_int_equal(create(&native, 0), 0);
  assert_int_equal(make_context(&own, 0, 0), 0);
  assert_int_equal(create(&foreign, 0), 0);
  qn_stream_t* stream;
  must_fail(qn_stream_wrap(cuda_at(0), foreign, &stream), QN_STATUS_INVALID_ARGUMENT,
            "primary context");
  assert_int_equal(destroy(foreign), 0);
  assert_int_equal(drop_context(own), 0);
  must_fail(qn_stream_wrap(cuda_at(0), NULL, &stream), QN_STATUS_INVALID_ARGUMENT, "null");
  const uintptr_t per_thread = QN__CU_STREAM_PER_THREAD;
  must_fail(qn_stream_wrap(cuda_at(0), (void*)per_thread, &stream), QN_STATUS_INVALID_ARGUMENT,
            "each thread");
  must(qn_stream_wrap(cuda_at(0), native, &stream));
  assert_ptr_equal(qn_stream_native(stream), native);
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 100, 1);
  scale(stream, &owner, c, 100, 4);
  expect_floats(stream, c, 100, 4, 4);
  qn_stream_destroy(stream);
  assert_int_equal(owner.reference_count, 0);
  // The stream still belongs to the host.
  must(qn_stream_wrap(cuda_at(0), native, &stream));
  scale(stream, &owner, c, 100, 0.25f);
  expect_floats(stream, c, 100, 1, 1);
  qn_stream_destroy(stream);
  assert_int_equal(destroy(native), 0);
  assert_int_equal(pop(&own), 0);
  cuda_free(0, c);
}

// ---- threads

enum { THREADS = 4, ROUNDS = 60 };
typedef struct worker {
  qn_stream_t* stream;
  qn_stream_t* other;
  cuda_owner_t owner;
  float* c;
} worker_t;

static void* work(void* self) {
  worker_t* worker = self;
  for (int i = 0; i < ROUNDS; i++) {
    scale(worker->stream, &worker->owner, worker->c, 64, 2);
    scale(worker->stream, &worker->owner, worker->c, 64, 0.5f);
    if (i % 7 == 0) must(qn_stream_wait(cuda_at(0), worker->stream, worker->other));
    if (i % 11 == 0) must(qn_stream_sync(cuda_at(0), worker->stream));
    void* scratch;
    must(qn_workspace_allocate(cuda_at(0), worker->stream, 1000, &scratch));
    must(qn_workspace_free(cuda_at(0), worker->stream, scratch));
    float one = 1;
    const qn_copy_t copy = {.struct_size = sizeof copy,
                            .from_device = {QN_DEVICE_CPU, 0},
                            .from = &one,
                            .to_device = cuda_at(0),
                            .to = worker->c,
                            .size_bytes = sizeof one};
    must(qn_device_copy(&copy, worker->stream));
  }
  return NULL;
}

// Runs two threads on each of two streams.
static void test_threads(void** state) {
  (void)state;
  qn_stream_t* streams[2] = {make_stream(), make_stream()};
  worker_t workers[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker_t){streams[i % 2], streams[(i + 1) % 2], {0}, cuda_floats(0, 64, 1)};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < 2; i++) must(qn_stream_sync(cuda_at(0), streams[i]));
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(workers[i].owner.reference_count, 0);
    expect_floats(workers[i].stream, workers[i].c, 64, 1, 1);
    cuda_free(0, workers[i].c);
  }
  for (int i = 0; i < 2; i++) qn_stream_destroy(streams[i]);
}

// Checks that a sync holds no lock while it waits, so that other threads can enqueue.
static void* sync_stream(void* stream) {
  must(qn_stream_sync(cuda_at(0), stream));
  return NULL;
}
static void test_sync_holds_no_lock(void** state) {
  (void)state;
  qn_stream_t* stream = make_stream();
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 64, 1);
  pthread_t thread;
  cuda_driver.hold(1);
  scale(stream, &owner, c, 64, 2);
  assert_int_equal(pthread_create(&thread, NULL, sync_stream, stream), 0);
  usleep(20000);
  for (int i = 0; i < 100; i++) scale(stream, &owner, c, 64, 1);
  qn_stream_t* other = make_stream();
  assert_false(qn_stream_is_idle(stream));
  void* memory;
  must(qn_device_allocate(cuda_at(0), 100, 0, &memory));
  cuda_driver.hold(0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(owner.reference_count, 0);
  expect_floats(stream, c, 64, 2, 2);
  cuda_free(0, memory);
  cuda_free(0, c);
  qn_stream_destroy(stream);
  qn_stream_destroy(other);
}

int main(void) {
  if (!cuda_setup()) {
    (void)printf("skipped: the fake driver was not built (no C++ compiler)\n");
    return 0;
  }
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(test_order),
                                     TEST(test_wait),
                                     TEST(test_waits_share_an_event),
                                     TEST(test_error_sticks),
                                     TEST(test_error_behind_marks),
                                     TEST(test_owners_are_let_go),
                                     TEST(test_full_ring),
                                     TEST(test_destroy_with_work),
                                     TEST(test_wrap),
                                     TEST(test_threads),
                                     TEST(test_sync_holds_no_lock)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
