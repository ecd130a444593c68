// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests the CUDA device without a driver, with a driver that is too old, without devices, with
// driver features missing (pools, peer access), and on a device with a permanent failure. Each case
// runs in its own process: this program with the case's name.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "devices/cuda/driver.h"
#include "devices/device.h"
#include "tests/support/must.h"
#include "tests/unit/devices/support_cuda.h"

// ---------------------------------------------------------------------------------- the cases

// The message must name the reason. The environment holds the expected text.
static void case_absent(void** state) {
  (void)state;
  const char* part = getenv("TEST_EXPECTED");
  assert_int_equal(qn_device_count(QN_DEVICE_CUDA), 0);
  qn_attribute_value_t value;
  must(qn_device_attribute(cuda_at(0), QN_ATTRIBUTE_EXIST, &value));
  assert_int_equal(value.int_value, 0);
  void* pointer;
  must_fail(qn_device_allocate(cuda_at(0), 4, 0, &pointer), QN_STATUS_NOT_FOUND, part);
  must_fail(qn_set_active_device(cuda_at(0)), QN_STATUS_NOT_FOUND, part);
  must_fail(cuda_table()->load(0, cuda_artifact(), NULL, &pointer), QN_STATUS_UNAVAILABLE, part);
  must_fail(cuda_table()->target_property(0, "arch", &value), QN_STATUS_UNAVAILABLE, part);
  // Everything else works.
  void* host;
  const qn_device_t cpu = {QN_DEVICE_CPU, 0};
  must(qn_device_allocate(cpu, 4, 0, &host));
  must(qn_device_free(cpu, host));
}

static void run_twice(void* executable, qn_stream_t* one, qn_stream_t* two, float* a, float* c) {
  cuda_owner_t owner = {0};
  const uint64_t words[] = {(uintptr_t)a, (uintptr_t)c, 500};
  must(cuda_run(executable, CUDA_WORKSPACE, 0, one, &owner, words, 3));
  must(cuda_run(executable, CUDA_WORKSPACE, 0, two, &owner, words, 3));
  must(qn_stream_sync(cuda_at(0), one));
  must(qn_stream_sync(cuda_at(0), two));
  assert_int_equal(owner.reference_count, 0);
}

static void find_entry(const char* name, void* out) {
  void* address = cuda_driver.entry(name);
  memcpy(out, &address, sizeof address);
}

// Checks workspace from blocks: a stream gets its own block again at once, another stream only
// after the work is complete.
static void case_blocks(void** state) {
  (void)state;
  fake_cuda_counts_t counts;
  void* executable = cuda_load(0);
  cuda_driver.counts(&counts);
  assert_int_equal(counts.pools, 0);
  qn_stream_t *one, *two;
  must(qn_stream_create(cuda_at(0), &one));
  must(qn_stream_create(cuda_at(0), &two));
  float* a = cuda_floats(0, 500, 9);
  float* c = cuda_floats(0, 500, 0);
  for (int i = 0; i < 50; i++) run_twice(executable, one, two, a, c);
  float host[500];
  cuda_read(0, one, c, host, sizeof host);
  for (int i = 0; i < 500; i++) assert_int_equal((int)host[i], i + 9);

  void *first, *second, *third;
  must(qn_workspace_allocate(cuda_at(0), one, 100000, &first));
  cuda_driver.hold(1);
  const qn_copy_t busy = {.struct_size = sizeof busy,
                          .from_device = cuda_at(0),
                          .from = a,
                          .to_device = cuda_at(0),
                          .to = first,
                          .size_bytes = 2000};
  must(qn_device_copy(&busy, one));
  must(qn_workspace_free(cuda_at(0), one, first));
  must(qn_workspace_allocate(cuda_at(0), two, 100000, &second));
  assert_ptr_not_equal(first, second);
  must(qn_workspace_allocate(cuda_at(0), one, 110000, &third));
  assert_ptr_equal(first, third);
  cuda_driver.hold(0);
  must(qn_workspace_free(cuda_at(0), one, third));
  must(qn_stream_sync(cuda_at(0), one));
  must(qn_workspace_free(cuda_at(0), two, second));
  must(qn_workspace_allocate(cuda_at(0), two, 100000, &second));
  must(qn_workspace_free(cuda_at(0), two, second));
  must_fail(qn_workspace_free(cuda_at(0), two, a), QN_STATUS_INVALID_ARGUMENT, "no workspace");
  // The host captures in the strictest mode. Allocating a block must not invalidate the capture.
  // Workspace of a captured call is refused.
  CUresult (*begin)(CUstream, CUstreamCaptureMode);
  CUresult (*end)(CUstream, CUgraph*);
  CUresult (*destroy)(CUgraph);
  CUresult (*push)(CUcontext);
  CUresult (*pop)(CUcontext*);
  CUresult (*retain)(CUcontext*, CUdevice);
  find_entry("cuCtxPushCurrent_v2", &push);
  find_entry("cuCtxPopCurrent_v2", &pop);
  find_entry("cuDevicePrimaryCtxRetain", &retain);
  find_entry("cuStreamBeginCapture_v2", &begin);
  find_entry("cuStreamEndCapture", &end);
  find_entry("cuGraphDestroy", &destroy);
  CUgraph recorded;
  CUcontext context;
  assert_int_equal(retain(&context, 0), 0);
  assert_int_equal(push(context), 0);
  const CUstream native = qn_stream_native(two);
  const uint64_t record_words[] = {(uintptr_t)a, (uintptr_t)c, 500};
  cuda_owner_t owner = {0};
  void* taken[4];
  for (int i = 0; i < 4; i++) must(qn_workspace_allocate(cuda_at(0), one, 2000, &taken[i]));
  cuda_driver.fail_at(NULL, 0, 0, 0);
  assert_int_equal(begin(native, 0), 0);
  must(cuda_run(executable, CUDA_WORKSPACE, 0, one, &owner, record_words, 3));
  must_fail(qn_workspace_allocate(cuda_at(0), two, 100, &second), QN_STATUS_FAILED_PRECONDITION,
            "while the host records a graph");
  assert_int_equal(end(native, &recorded), 0);
  assert_int_equal(destroy(recorded), 0);
  assert_int_equal(pop(&context), 0);
  assert_int_equal(cuda_driver.calls("cuMemAlloc_v2"), 1);
  for (int i = 0; i < 4; i++) must(qn_workspace_free(cuda_at(0), one, taken[i]));
  must(qn_stream_sync(cuda_at(0), one));
  // When memory runs out, cached blocks are freed.
  must(qn_stream_sync(cuda_at(0), two));
  void* large;
  must(qn_device_allocate(cuda_at(0), ((size_t)64 << 20) - 16384, 0, &large));
  cuda_free(0, large);
  cuda_free(0, a);
  cuda_free(0, c);
  qn_stream_destroy(one);
  qn_stream_destroy(two);
  cuda_table()->unload(0, executable);
  cuda_driver.counts(&counts);
  assert_int_equal(counts.violations, 0);
  assert_int_equal(counts.modules, 0);
}

// Checks copies between devices without peer access, and copies that the driver refuses.
static void case_peers(void** state) {
  (void)state;
  float* from = cuda_floats(0, 1000, 5);
  float* to = cuda_floats(1, 1000, 0);
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = cuda_at(0),
                          .from = from,
                          .to_device = cuda_at(1),
                          .to = to,
                          .size_bytes = 4000};
  must(qn_device_copy(&copy, NULL));
  must(qn_stream_sync(cuda_at(0), NULL));
  float host[1000];
  cuda_read(1, NULL, to, host, sizeof host);
  for (int i = 0; i < 1000; i++) assert_int_equal((int)host[i], i + 5);
  assert_int_equal(cuda_driver.calls("cuCtxEnablePeerAccess"), 0);
  cuda_free(0, from);
  cuda_free(1, to);
  fake_cuda_counts_t counts;
  cuda_driver.counts(&counts);
  assert_int_equal(counts.violations, 0);
  assert_int_equal(counts.device_blocks, 2);  // the error records of each device
}

static void case_older(void** state) {
  (void)state;
  qn_attribute_value_t value;
  must(cuda_table()->target_property(0, "arch", &value));
  assert_string_equal(value.string_value, "sm_80");
  void* executable;
  const qn_load_options_t options = {.struct_size = sizeof options};
  must_fail(cuda_table()->load(0, cuda_artifact(), &options, &executable), QN_STATUS_INCOMPATIBLE,
            "arch");
  // The driver still refuses copies that pass the check.
  qn_artifact_t other = cuda_artifact_copy();
  other.isa = "{\"kind\":\"cuda\"}";
  must_fail(cuda_table()->load(0, &other, &options, &executable), QN_STATUS_INCOMPATIBLE,
            "CUDA_ERROR_NO_BINARY_FOR_GPU");
}

// Checks that after an illegal address every call on the device fails at once, the other device
// works, and all owners of launches are released.
static void case_fatal(void** state) {
  (void)state;
  void* executable = cuda_load(0);
  qn_stream_t *stream, *other;
  must(qn_stream_create(cuda_at(0), &stream));
  must(qn_stream_create(cuda_at(0), &other));
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 100, 0);
  const uint64_t words[] = {(uintptr_t)c, 100};
  must(cuda_run(executable, CUDA_POKE, 0, stream, &owner, words, 2));
  must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_DEVICE_ERROR,
            "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)");
  assert_int_equal(owner.reference_count, 0);
  const char* const part = "cuda:0: work on the device ended with CUDA_ERROR_ILLEGAL_ADDRESS";
  void* pointer;
  for (int i = 0; i < 2; i++) {
    must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_DEVICE_ERROR, part);
    must_fail(qn_stream_sync(cuda_at(0), other), QN_STATUS_DEVICE_ERROR, part);
    must_fail(qn_device_allocate(cuda_at(0), 4, 0, &pointer), QN_STATUS_DEVICE_ERROR, part);
    must_fail(cuda_run(executable, CUDA_POKE, 0, other, &owner, words, 2), QN_STATUS_DEVICE_ERROR,
              part);
    must_fail(qn_stream_create(cuda_at(0), &(qn_stream_t*){NULL}), QN_STATUS_DEVICE_ERROR, part);
  }
  must_fail(qn_device_free(cuda_at(0), c), QN_STATUS_DEVICE_ERROR, part);
  assert_true(qn_stream_is_idle(stream));
  assert_int_equal(owner.reference_count, 0);
  qn_stream_destroy(stream);
  qn_stream_destroy(other);
  cuda_table()->unload(0, executable);
  float* fine = cuda_floats(1, 10, 1);
  cuda_free(1, fine);
}

// Checks that objects can be released after the driver has shut down at process exit: they get an
// error, and no driver function is called on destroyed objects.
static void case_shut_down(void** state) {
  (void)state;
  fake_cuda_shut_down_fn_t shut_down;
  find_entry("fake_cuda_shut_down", &shut_down);
  void* executable = cuda_load(0);
  qn_stream_t *stream, *recording;
  qn_graph_t* graph;
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 100, 0);
  const uint64_t words[] = {(uintptr_t)c, 100};
  must(qn_stream_create(cuda_at(0), &stream));
  must(qn_stream_create(cuda_at(0), &recording));
  must(qn_stream_capture_begin(cuda_at(0), stream));
  must(qn_stream_capture_end(cuda_at(0), stream, &graph));
  must(qn_stream_capture_begin(cuda_at(0), recording));
  must(cuda_run(executable, CUDA_CHECK, 0, stream, &owner, words, 2));
  must(cuda_run(executable, CUDA_CHECK, 0, recording, &owner, words, 2));
  shut_down(1);
  static const char part[] = "CUDA_ERROR_DEINITIALIZED (driver shutting down)";
  must_fail(qn_stream_sync(cuda_at(0), stream), QN_STATUS_DEVICE_ERROR, part);
  must_fail(qn_device_free(cuda_at(0), c), QN_STATUS_DEVICE_ERROR, part);
  assert_true(qn_stream_is_idle(stream));
  qn_graph_destroy(graph);
  qn_stream_destroy(stream);
  qn_stream_destroy(recording);
  cuda_table()->unload(0, executable);
  assert_int_equal(owner.reference_count, 0);
}

// Checks that a CUDA 12 driver refuses a cubin of CUDA 13, whose format differs.
static void case_older_driver(void** state) {
  (void)state;
  void* executable;
  const qn_load_options_t options = {.struct_size = sizeof options};
  must_fail(cuda_table()->load(0, cuda_artifact(), &options, &executable), QN_STATUS_INCOMPATIBLE,
            "it offers CUDA 12.8, which takes what an NVRTC of CUDA 12");
  assert_null(executable);
}

// ---------------------------------------------------------------------------------- the tests

static void expect_absent(const char* settings, const char* part) {
  (void)setenv("TEST_EXPECTED", part, 1);
  assert_true(cuda_in_child(settings, "absent"));
}

static void test_absent(void** state) {
  (void)state;
  expect_absent("QUERN_CUDA_LIBRARY=/nonexistent/libcuda.so.1",
                ": the driver cannot be opened: /nonexistent/libcuda.so.1");
  expect_absent("FAKE_CUDA_VERSION=11020", "is too old: it offers CUDA 11.2, and 11.4 is needed");
  expect_absent("FAKE_CUDA_INIT=100",
                "does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
  expect_absent("FAKE_CUDA_INIT=12345", "does not start: error 12345 of the driver");
  expect_absent("FAKE_CUDA_DEVICES=0", "has no device");
  // A library that is no driver.
  expect_absent("QUERN_CUDA_LIBRARY=" QN_BINARY_DIR "/fake-cuda/libnvrtc.so",
                "is too old: it has no cuInit");
}

static void test_without_pools(void** state) {
  (void)state;
  assert_true(cuda_in_child("FAKE_CUDA_POOLS=0 FAKE_CUDA_MEMORY=67108864", "blocks"));
}

static void test_shut_down(void** state) {
  (void)state;
  assert_true(cuda_in_child("FAKE_CUDA_POOLS=1", "shut_down"));
}

static void test_older_driver(void** state) {
  (void)state;
  assert_true(cuda_in_child("FAKE_CUDA_VERSION=12080", "older_driver"));
}

static void test_without_peers(void** state) {
  (void)state;
  assert_true(cuda_in_child("FAKE_CUDA_PEER=0", "peers"));
  assert_true(cuda_in_child("FAKE_CUDA_PEER=-1", "peers"));
}

static void test_older(void** state) {
  (void)state;
  assert_true(cuda_in_child("FAKE_CUDA_CAPABILITY=80", "older"));
}

static void test_fatal(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();  // it does not let a fault of a kernel be left by a jump
#endif
  assert_true(cuda_in_child("FAKE_CUDA_PEER=1", "fatal"));
}

int main(int argc, char** argv) {
  if (!cuda_setup()) {
    (void)printf("skipped: the fake driver was not built (no C++ compiler)\n");
    return 0;
  }
  static const struct {
    const char* name;
    CMUnitTestFunction body;
  } cases[] = {{"absent", case_absent},
               {"blocks", case_blocks},
               {"peers", case_peers},
               {"older", case_older},
               {"older_driver", case_older_driver},
               {"shut_down", case_shut_down},
               {"fatal", case_fatal}};
  for (size_t i = 0; argc > 1 && i < QN_COUNT_OF(cases); i++) {
    if (strcmp(argv[1], cases[i].name) != 0) continue;
    const struct CMUnitTest one[] = {{cases[i].name, cases[i].body, NULL, NULL, NULL}};
    return cmocka_run_group_tests(one, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_absent),        cmocka_unit_test(test_without_pools),
      cmocka_unit_test(test_without_peers), cmocka_unit_test(test_older),
      cmocka_unit_test(test_older_driver),  cmocka_unit_test(test_shut_down),
      cmocka_unit_test(test_fatal)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
