// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests graphs of the CUDA device on the fake driver: capture, replay, operations during a capture
// that must not disturb it (loads, unloads, memory, other threads), refused operations, lifetimes,
// failures, and functions in graphs of the host.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/thread.h"
#include "devices/cuda/driver.h"
#include "devices/device.h"
#include "tests/support/must.h"
#include "tests/unit/devices/support_cuda.h"

static fake_cuda_counts_t before;
static void* executable;
static qn_stream_t* stream;
static float* c;

static int begin(void** state) {
  (void)state;
  cuda_driver.fail_at(NULL, 0, 0, 0);
  executable = cuda_load(0);
  must(qn_stream_create(cuda_at(0), &stream));
  c = cuda_floats(0, 100, 1);
  cuda_driver.counts(&before);
  return 0;
}
static int end(void** state) {
  (void)state;
  must(qn_stream_sync(cuda_at(0), stream));
  cuda_expect_clean(&before);
  cuda_free(0, c);
  qn_stream_destroy(stream);
  cuda_table()->unload(0, executable);
  return 0;
}

static qn_status_t scale(qn_stream_t* on, cuda_owner_t* owner, float factor) {
  uint64_t words[] = {(uintptr_t)c, 0, 100};
  memcpy(&words[1], &factor, sizeof factor);
  return cuda_run(executable, CUDA_SCALE, 0, on, owner, words, 3);
}

static void expect_floats(float step) {
  float host[100];
  cuda_read(0, stream, c, host, sizeof host);
  for (int i = 0; i < 100; i++) assert_true(host[i] == step * (float)(i + 1));
}

static void test_replay(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(scale(stream, &owner, 3));
  must(scale(stream, &owner, 0.5f));
  assert_true(qn_stream_is_idle(stream));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  expect_floats(1);  // nothing ran
  assert_int_equal(owner.reference_count, 1);
  for (int i = 0; i < 4; i++) must(qn_graph_launch(graph, stream));
  expect_floats(1.5f * 1.5f * 1.5f * 1.5f);
  // Replay follows the order of the stream, and works on any stream.
  qn_stream_t* other;
  must(qn_stream_create(cuda_at(0), &other));
  must(scale(stream, &owner, 1 / (1.5f * 1.5f * 1.5f * 1.5f * 2)));
  must(qn_stream_sync(cuda_at(0), stream));
  float host[100];
  cuda_read(0, stream, c, host, sizeof host);
  must(qn_graph_launch(graph, other));
  must(qn_stream_sync(cuda_at(0), other));
  float after[100];
  cuda_read(0, other, c, after, sizeof after);
  for (int i = 0; i < 100; i++) assert_true(after[i] == host[i] * 3 * 0.5f);
  qn_stream_destroy(other);
  assert_int_equal(owner.reference_count, 1);
  qn_graph_destroy(graph);
  assert_int_equal(owner.reference_count, 0);
  qn_graph_destroy(NULL);
}

static void test_empty(void** state) {
  (void)state;
  qn_graph_t* graph;
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  must(qn_graph_launch(graph, stream));
  must(qn_graph_launch(graph, NULL));
  must(qn_stream_sync(cuda_at(0), NULL));
  qn_graph_destroy(graph);
}

// Checks that all operations work during a capture and do not invalidate it.
static void use_everything(void) {
  cuda_owner_t owner = {0};
  void *memory, *host;
  qn_stream_t* other;
  qn_attribute_value_t value;
  must(qn_device_allocate(cuda_at(0), 1000, 0, &memory));
  must(qn_device_host_allocate(cuda_at(0), 1000, &host));
  must(qn_stream_create(cuda_at(0), &other));
  void* loaded = cuda_load(0);
  const uint64_t words[] = {(uintptr_t)memory, 100};
  must(cuda_run(loaded, CUDA_CHECK, 0, other, &owner, words, 2));
  must(qn_stream_sync(cuda_at(0), other));
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = {QN_DEVICE_CPU, 0},
                          .from = host,
                          .to_device = cuda_at(0),
                          .to = memory,
                          .size_bytes = 1000};
  must(qn_device_copy(&copy, other));
  for (int i = 0; i < 100; i++) {
    must(cuda_run(loaded, CUDA_CHECK, 0, other, &owner, words, 2));
  }
  must(qn_device_attribute(cuda_at(0), QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY, &value));
  (void)qn_stream_is_idle(other);
  must(qn_stream_sync(cuda_at(0), other));
  qn_stream_destroy(other);
  cuda_table()->unload(0, loaded);
  must(qn_device_host_free(cuda_at(0), host));
  cuda_free(0, memory);
}

static void* use_everything_elsewhere(void* self) {
  (void)self;
  use_everything();
  return NULL;
}

static void test_undisturbed(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  pthread_t thread;
  fake_cuda_counts_t during, after;
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(scale(stream, &owner, 2));
  cuda_driver.counts(&during);
  use_everything();
  assert_int_equal(pthread_create(&thread, NULL, use_everything_elsewhere, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  must(scale(stream, &owner, 2));
  // Code unloaded during the capture is freed at its end.
  cuda_driver.counts(&after);
  assert_int_equal(after.modules, during.modules + 2);
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  cuda_driver.counts(&after);
  assert_int_equal(after.modules, during.modules);
  must(qn_graph_launch(graph, stream));
  expect_floats(4);
  must(qn_stream_sync(cuda_at(0), stream));
  qn_graph_destroy(graph);
  assert_int_equal(owner.reference_count, 0);
}

static void test_refuses(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  must_fail(qn_stream_capture_begin(cuda_at(0), NULL), QN_STATUS_UNSUPPORTED, "default stream");
  must_fail(qn_stream_capture_end(cuda_at(0), stream, &graph), QN_STATUS_FAILED_PRECONDITION,
            "records nothing");
  assert_null(graph);
  qn_stream_t* other;
  must(qn_stream_create(cuda_at(0), &other));
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must_fail(qn_stream_capture_begin(cuda_at(0), stream), QN_STATUS_FAILED_PRECONDITION,
            "records a graph");
  must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_FAILED_PRECONDITION, "a sync");
  float host[4];
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = cuda_at(0),
                    .from = c,
                    .to_device = {QN_DEVICE_CPU, 0},
                    .to = host,
                    .size_bytes = sizeof host};
  must_fail(qn_device_copy(&copy, stream), QN_STATUS_FAILED_PRECONDITION, "not pinned");
  must_fail(qn_stream_wait(cuda_at(0), other, stream), QN_STATUS_FAILED_PRECONDITION,
            "does not record");
  must_fail(qn_stream_wait(cuda_at(0), stream, NULL), QN_STATUS_FAILED_PRECONDITION,
            "default stream");
  // The capture is still valid.
  must(scale(stream, &owner, 2));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must_fail(qn_graph_launch(graph, stream), QN_STATUS_FAILED_PRECONDITION, "launching a graph");
  qn_graph_t* empty;
  must(qn_stream_capture_end(cuda_at(0), stream, &empty));
  qn_graph_destroy(empty);
  must(qn_graph_launch(graph, stream));
  expect_floats(2);
  must(qn_stream_sync(cuda_at(0), stream));
  qn_graph_destroy(graph);
  qn_stream_destroy(other);
}

// Checks that workspace of captured calls lives as long as the graph, and that consecutive calls
// share it.
static void test_workspace(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  float* to = cuda_floats(0, 100, 0);
  fake_cuda_counts_t with, without;
  cuda_driver.counts(&without);
  const uint64_t words[] = {(uintptr_t)c, (uintptr_t)to, 100};
  must(qn_stream_capture_begin(cuda_at(0), stream));
  for (int i = 0; i < 5; i++) {
    must(cuda_run(executable, CUDA_WORKSPACE, 0, stream, &owner, words, 3));
  }
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  cuda_driver.counts(&with);
  assert_int_equal(with.device_blocks, without.device_blocks + 1);
  must(scale(stream, &owner, 7));
  for (int i = 0; i < 3; i++) must(qn_graph_launch(graph, stream));
  must(qn_stream_sync(cuda_at(0), stream));
  float host[100];
  cuda_read(0, stream, to, host, sizeof host);
  for (int i = 0; i < 100; i++) assert_true(host[i] == 7.0f * (float)(i + 1));
  qn_graph_destroy(graph);
  cuda_driver.counts(&with);
  assert_int_equal(with.device_blocks, without.device_blocks);
  cuda_free(0, to);
}

static void test_failure(void** state) {
  (void)state;
  cuda_owner_t first = {0}, second = {0};
  qn_graph_t* graph;
  const uint64_t even[] = {(uintptr_t)c, 10}, odd[] = {(uintptr_t)c, 11};
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &first, even, 2));
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &second, odd, 2));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  for (int i = 0; i < 2; i++) {
    must(qn_graph_launch(graph, stream));
    must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_ASSERTION, "site 7 index 11");
    must(qn_stream_sync(cuda_at(0), stream));
  }
  qn_graph_destroy(graph);
  assert_int_equal(first.reference_count, 0);
  assert_int_equal(second.reference_count, 0);
}

// Checks that a graph destroyed with a queued launch stays alive until the launch is complete.
static void test_destroy_early(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(scale(stream, &owner, 2));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  cuda_driver.hold(1);
  must(qn_graph_launch(graph, stream));
  qn_graph_destroy(graph);
  assert_int_equal(owner.reference_count, 1);
  cuda_driver.hold(0);
  expect_floats(2);
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(owner.reference_count, 0);
}

static void test_join(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_graph_t* graph;
  qn_stream_t* other;
  must(qn_stream_create(cuda_at(0), &other));
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(scale(stream, &owner, 2));
  must(qn_stream_wait(cuda_at(0), stream, other));
  must(scale(other, &owner, 3));
  must_fail(qn_stream_capture_end(cuda_at(0), other, &graph), QN_STATUS_FAILED_PRECONDITION,
            "only joined");
  must(qn_stream_wait(cuda_at(0), other, stream));
  must(scale(stream, &owner, 5));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  expect_floats(1);
  must(scale(other, &owner, 1));  // it runs again
  must(qn_stream_sync(cuda_at(0), other));
  must(qn_graph_launch(graph, stream));
  expect_floats(30);
  must(qn_stream_sync(cuda_at(0), stream));
  qn_graph_destroy(graph);
  // A stream that is not joined back makes the end fail and leaves no trace.
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(qn_stream_wait(cuda_at(0), stream, other));
  must(scale(other, &owner, 3));
  must_fail(qn_stream_capture_end(cuda_at(0), stream, &graph), QN_STATUS_DEVICE_ERROR,
            "CUDA_ERROR_STREAM_CAPTURE_UNJOINED");
  assert_null(graph);
  must(scale(other, &owner, 0.5f));
  must(qn_stream_sync(cuda_at(0), other));
  expect_floats(15);
  qn_stream_destroy(other);
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(owner.reference_count, 0);
}

static void test_stream_destroyed_while_recording(void** state) {
  (void)state;
  cuda_owner_t owner = {0};
  qn_stream_t* other;
  must(qn_stream_create(cuda_at(0), &other));
  must(qn_stream_capture_begin(cuda_at(0), other));
  must(scale(other, &owner, 2));
  qn_stream_destroy(other);
  assert_int_equal(owner.reference_count, 0);
  expect_floats(1);
}

// ---- graphs of the host

static CUresult (*host_begin)(CUstream, CUstreamCaptureMode);
static CUresult (*host_end)(CUstream, CUgraph*);
static CUresult (*host_instantiate)(CUgraphExec*, CUgraph, unsigned long long);
static CUresult (*host_launch)(CUgraphExec, CUstream);
static CUresult (*host_graph_destroy)(CUgraph);
static CUresult (*host_exec_destroy)(CUgraphExec);
static CUresult (*host_stream)(CUstream*, unsigned);
static CUresult (*host_stream_destroy)(CUstream);
static CUresult (*host_sync)(CUstream);
static CUresult (*host_push)(CUcontext);
static CUresult (*host_pop)(CUcontext*);
static CUresult (*host_retain)(CUcontext*, CUdevice);

static void find_host(void) {
  const struct {
    const char* name;
    void* out;
  } symbols[] = {{"cuStreamBeginCapture_v2", &host_begin},
                 {"cuStreamEndCapture", &host_end},
                 {"cuGraphInstantiateWithFlags", &host_instantiate},
                 {"cuGraphLaunch", &host_launch},
                 {"cuGraphDestroy", &host_graph_destroy},
                 {"cuGraphExecDestroy", &host_exec_destroy},
                 {"cuStreamCreate", &host_stream},
                 {"cuStreamDestroy_v2", &host_stream_destroy},
                 {"cuStreamSynchronize", &host_sync},
                 {"cuCtxPushCurrent_v2", &host_push},
                 {"cuCtxPopCurrent_v2", &host_pop},
                 {"cuDevicePrimaryCtxRetain", &host_retain}};
  for (size_t i = 0; i < QN_COUNT_OF(symbols); i++) {
    void* address = cuda_driver.entry(symbols[i].name);
    memcpy(symbols[i].out, &address, sizeof address);
  }
  CUcontext primary;
  assert_int_equal(host_retain(&primary, 0), 0);
  assert_int_equal(host_push(primary), 0);
}

// Checks a capture by the host on its own stream in the strictest mode, with functions of quern in
// it, while quern is used on this and other threads.
static void test_host_graph(void** state) {
  (void)state;
  find_host();
  CUstream native;
  CUgraph recorded;
  CUgraphExec exec;
  qn_stream_t* wrapped;
  cuda_owner_t owner = {0};
  assert_int_equal(host_stream(&native, 1), 0);
  must(qn_stream_wrap(cuda_at(0), native, &wrapped));
  float* to = cuda_floats(0, 100, 0);
  const uint64_t words[] = {(uintptr_t)c, (uintptr_t)to, 100}, check[] = {(uintptr_t)c, 10};
  assert_int_equal(host_begin(native, 0), 0);
  must(scale(wrapped, &owner, 3));
  use_everything();
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, use_everything_elsewhere, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  must(cuda_run(executable, CUDA_WORKSPACE, 0, wrapped, &owner, words, 3));
  must_fail(cuda_run(executable, CUDA_CHECK, 0, wrapped, &owner, check, 2), QN_STATUS_UNSUPPORTED,
            "qn_stream_capture_begin");
  assert_int_equal(host_end(native, &recorded), 0);
  assert_int_equal(host_instantiate(&exec, recorded, 0), 0);
  assert_int_equal(host_graph_destroy(recorded), 0);
  expect_floats(1);
  for (int i = 0; i < 2; i++) assert_int_equal(host_launch(exec, native), 0);
  assert_int_equal(host_sync(native), 0);
  expect_floats(9);
  float host[100];
  cuda_read(0, stream, to, host, sizeof host);
  for (int i = 0; i < 100; i++) assert_true(host[i] == 9.0f * (float)(i + 1));
  // After the stream's end the graph still keeps the function, until the graph is destroyed.
  qn_stream_destroy(wrapped);
  assert_int_equal(owner.reference_count, 2);
  assert_int_equal(host_exec_destroy(exec), 0);
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(owner.reference_count, 0);
  assert_int_equal(host_stream_destroy(native), 0);
  cuda_free(0, to);
  CUcontext popped;
  assert_int_equal(host_pop(&popped), 0);
}

static qn_status_t copy_pageable(qn_stream_t* on) {
  const float host[4] = {0};
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = {QN_DEVICE_CPU, 0},
                          .from = host,
                          .to_device = cuda_at(0),
                          .to = c,
                          .size_bytes = sizeof host};
  return qn_device_copy(&copy, on);
}

// Checks that operations that would invalidate the host's capture are refused before the driver is
// called.
static void test_host_graph_is_not_spoiled(void** state) {
  (void)state;
  find_host();
  CUstream native;
  CUgraph recorded;
  CUgraphExec exec;
  qn_stream_t* wrapped;
  qn_graph_t* graph;
  cuda_owner_t owner = {0};
  assert_int_equal(host_stream(&native, 1), 0);
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  must(qn_stream_wrap(cuda_at(0), native, &wrapped));
  assert_int_equal(host_begin(native, 0), 0);
  must(scale(wrapped, &owner, 3));
  static const char why[] = "while the host records a graph";
  const qn_status_code_t code = QN_STATUS_FAILED_PRECONDITION;
  must_fail(qn_stream_sync(cuda_at(0), wrapped), code, why);
  must_fail(copy_pageable(wrapped), code, why);
  must_fail(qn_graph_launch(graph, wrapped), code, why);
  must_fail(qn_stream_capture_begin(cuda_at(0), wrapped), code, why);
  must_fail(qn_stream_wait(cuda_at(0), stream, wrapped), code, "does not record");
  must_fail(qn_stream_wait(cuda_at(0), wrapped, NULL), code, "the default stream");
  assert_true(qn_stream_is_idle(wrapped));
  qn_stream_destroy(wrapped);
  assert_int_equal(host_end(native, &recorded), 0);
  assert_int_equal(host_instantiate(&exec, recorded, 0), 0);
  assert_int_equal(host_launch(exec, native), 0);
  assert_int_equal(host_sync(native), 0);
  expect_floats(3);
  assert_int_equal(host_exec_destroy(exec), 0);
  assert_int_equal(host_graph_destroy(recorded), 0);
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(owner.reference_count, 0);
  qn_graph_destroy(graph);
  assert_int_equal(host_stream_destroy(native), 0);
  CUcontext popped;
  assert_int_equal(host_pop(&popped), 0);
}

// Checks a capture by the host on a stream of quern, and on a stream that waits for it.
static void test_host_records_our_streams(void** state) {
  (void)state;
  find_host();
  CUgraph recorded;
  CUgraphExec exec;
  qn_stream_t *first, *second;
  cuda_owner_t owner = {0};
  must(qn_stream_create(cuda_at(0), &first));
  must(qn_stream_create(cuda_at(0), &second));
  const CUstream native = qn_stream_native(first);
  must(scale(first, &owner, 2));  // in flight, and released after the recording
  assert_int_equal(host_begin(native, 2), 0);
  must(scale(first, &owner, 3));
  must(qn_stream_wait(cuda_at(0), first, second));
  for (int i = 0; i < 40; i++) must(scale(second, &owner, 1));
  must(qn_stream_wait(cuda_at(0), second, first));
  assert_int_equal(host_end(native, &recorded), 0);
  must(qn_stream_sync(cuda_at(0), first));
  expect_floats(2);
  assert_int_equal(host_instantiate(&exec, recorded, 0), 0);
  for (int i = 0; i < 2; i++) assert_int_equal(host_launch(exec, native), 0);
  must(qn_stream_sync(cuda_at(0), first));
  expect_floats(18);
  assert_int_equal(host_exec_destroy(exec), 0);
  assert_int_equal(host_graph_destroy(recorded), 0);
  must(qn_stream_sync(cuda_at(0), second));
  qn_stream_destroy(first);
  qn_stream_destroy(second);
  assert_int_equal(owner.reference_count, 0);
  CUcontext popped;
  assert_int_equal(host_pop(&popped), 0);
}

// Checks the legacy stream: it waits for blocking streams, so its use is refused while the host
// captures on such a stream. The capture goes on.
static void test_host_records_on_blocking_stream(void** state) {
  (void)state;
  find_host();
  CUstream native;
  CUgraph recorded;
  cuda_owner_t owner = {0};
  void *memory, *host;
  must(qn_device_host_allocate(cuda_at(0), 16, &host));
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = {QN_DEVICE_CPU, 0},
                          .from = host,
                          .to_device = cuda_at(0),
                          .to = c,
                          .size_bytes = 16};
  assert_int_equal(host_stream(&native, 0), 0);
  assert_int_equal(host_begin(native, 2), 0);
  static const char why[] = "the default stream cannot be used while the host records";
  const qn_status_code_t code = QN_STATUS_FAILED_PRECONDITION;
  must_fail(scale(NULL, &owner, 3), code, why);
  must_fail(qn_device_copy(&copy, NULL), code, why);
  must_fail(copy_pageable(NULL), code, why);
  must_fail(qn_stream_sync(cuda_at(0), NULL), code, why);
  must_fail(qn_stream_wait(cuda_at(0), stream, NULL), code, why);
  must_fail(qn_stream_wait(cuda_at(0), NULL, stream), code, why);
  must_fail(qn_workspace_allocate(cuda_at(0), NULL, 16, &memory), code, why);
  assert_true(qn_stream_is_idle(NULL));
  must(scale(stream, &owner, 2));
  must(qn_stream_sync(cuda_at(0), stream));
  assert_int_equal(host_end(native, &recorded), 0);
  assert_int_equal(host_graph_destroy(recorded), 0);
  expect_floats(2);
  must(scale(NULL, &owner, 2));
  must(qn_stream_sync(cuda_at(0), NULL));
  expect_floats(4);
  assert_int_equal(owner.reference_count, 0);
  must(qn_device_host_free(cuda_at(0), host));
  assert_int_equal(host_stream_destroy(native), 0);
  CUcontext popped;
  assert_int_equal(host_pop(&popped), 0);
}

// A graph frees only what it has allocated.
static void test_older_workspace(void** state) {
  (void)state;
  void* memory;
  qn_graph_t* graph;
  CUstream native;
  CUgraph recorded;
  qn_stream_t* wrapped;
  must(qn_workspace_allocate(cuda_at(0), stream, 64, &memory));
  must(qn_stream_capture_begin(cuda_at(0), stream));
  const qn_status_code_t code = QN_STATUS_FAILED_PRECONDITION;
  must_fail(qn_workspace_free(cuda_at(0), stream, memory), code, "from before a recording");
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  qn_graph_destroy(graph);
  find_host();
  assert_int_equal(host_stream(&native, 1), 0);
  must(qn_stream_wrap(cuda_at(0), native, &wrapped));
  assert_int_equal(host_begin(native, 0), 0);
  must_fail(qn_workspace_free(cuda_at(0), wrapped, memory), code, "the host records");
  void* other;
  must_fail(qn_workspace_allocate(cuda_at(0), wrapped, 64, &other), code, "the host records");
  assert_int_equal(host_end(native, &recorded), 0);
  assert_int_equal(host_graph_destroy(recorded), 0);
  qn_stream_destroy(wrapped);
  assert_int_equal(host_stream_destroy(native), 0);
  must(qn_workspace_free(cuda_at(0), stream, memory));
  CUcontext popped;
  assert_int_equal(host_pop(&popped), 0);
}

int main(void) {
  if (!cuda_setup()) {
    (void)printf("skipped: the fake driver was not built (no C++ compiler)\n");
    return 0;
  }
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(test_replay),
                                     TEST(test_empty),
                                     TEST(test_undisturbed),
                                     TEST(test_refuses),
                                     TEST(test_workspace),
                                     TEST(test_failure),
                                     TEST(test_destroy_early),
                                     TEST(test_join),
                                     TEST(test_stream_destroyed_while_recording),
                                     TEST(test_host_graph),
                                     TEST(test_host_graph_is_not_spoiled),
                                     TEST(test_host_records_our_streams),
                                     TEST(test_host_records_on_blocking_stream),
                                     TEST(test_older_workspace)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
