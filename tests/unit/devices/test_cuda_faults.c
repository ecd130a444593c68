// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests each call into the CUDA driver failing once, with several results. The operation succeeds
// or returns a status with the driver's message; the host's context is unchanged; all owners of
// launches are released; and afterwards the device works normally.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "devices/cuda/driver.h"
#include "devices/device.h"
#include "tests/support/must.h"
#include "tests/unit/devices/support_cuda.h"

enum { N = 300 };

// Objects of a scenario. The test releases them after the faults.
typedef struct things {
  void* executable;
  qn_stream_t* stream;
  qn_stream_t* other;
  qn_graph_t* graph;
  void* memory[3];
  void* host;
  void* workspace;
  bool is_recording;
} things_t;

static cuda_owner_t owner;

static qn_status_t copy_floats(void* device, float first, bool is_pinned, qn_stream_t* stream) {
  float host[N];
  for (int i = 0; i < N; i++) host[i] = first + (float)i;
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = {QN_DEVICE_CPU, 0},
                          .from = host,
                          .to_device = cuda_at(0),
                          .to = device,
                          .size_bytes = sizeof host,
                          .is_host_pinned = is_pinned};
  return qn_device_copy(&copy, stream);
}

static qn_status_t run(things_t* t) {
  const qn_load_options_t options = {.struct_size = sizeof options};
  QN_TRY(cuda_table()->load(0, cuda_artifact(), &options, &t->executable));
  QN_TRY(qn_stream_create(cuda_at(0), &t->stream));
  QN_TRY(qn_stream_create(cuda_at(0), &t->other));
  for (int i = 0; i < 3; i++) {
    QN_TRY(qn_device_allocate(cuda_at(0), N * sizeof(float), i == 1 ? 4096 : 0, &t->memory[i]));
  }
  QN_TRY(qn_device_host_allocate(cuda_at(0), 64, &t->host));
  QN_TRY(copy_floats(t->memory[0], 1, false, t->stream));
  QN_TRY(copy_floats(t->memory[1], 10, false, t->stream));
  QN_TRY(qn_workspace_allocate(cuda_at(0), t->stream, 5000, &t->workspace));
  QN_TRY(qn_workspace_free(cuda_at(0), t->stream, t->workspace));
  t->workspace = NULL;
  const uint64_t add[] = {(uintptr_t)t->memory[0], (uintptr_t)t->memory[1], (uintptr_t)t->memory[2],
                          N};
  const uint64_t through[] = {(uintptr_t)t->memory[0], (uintptr_t)t->memory[2], N};
  for (int i = 0; i < 70; i++) {
    QN_TRY(cuda_run(t->executable, CUDA_ADD, 0, t->stream, &owner, add, 4));
  }
  const uint64_t check[] = {(uintptr_t)t->memory[2], 10};
  QN_TRY(cuda_run(t->executable, CUDA_CHECK, 0, t->stream, &owner, check, 2));
  for (int i = 0; i < 40; i++) {
    QN_TRY(cuda_run(t->executable, CUDA_CHECK, 0, t->other, &owner, check, 2));
  }
  QN_TRY(qn_stream_wait(cuda_at(0), t->stream, t->other));
  QN_TRY(cuda_run(t->executable, CUDA_WORKSPACE, 0, t->other, &owner, through, 3));
  QN_TRY(qn_stream_capture_begin(cuda_at(0), t->stream));
  t->is_recording = true;
  QN_TRY(cuda_run(t->executable, CUDA_WORKSPACE, 0, t->stream, &owner, through, 3));
  QN_TRY(cuda_run(t->executable, CUDA_CHECK, 0, t->stream, &owner, check, 2));
  t->is_recording = false;
  QN_TRY(qn_stream_capture_end(cuda_at(0), t->stream, &t->graph));
  QN_TRY(qn_graph_launch(t->graph, t->stream));
  QN_TRY(qn_stream_sync(cuda_at(0), t->stream));
  (void)qn_stream_is_idle(t->other);
  return qn_stream_sync(cuda_at(0), t->other);
}

static void let_go(things_t* t) {
  qn_graph_t* graph = NULL;
  if (t->is_recording) {
    must(qn_stream_capture_end(cuda_at(0), t->stream, &graph));
    qn_graph_destroy(graph);
  }
  if (t->workspace) qn_status_free(qn_workspace_free(cuda_at(0), t->stream, t->workspace));
  if (t->stream) qn_status_free(qn_stream_sync(cuda_at(0), t->stream));
  if (t->other) qn_status_free(qn_stream_sync(cuda_at(0), t->other));
  qn_graph_destroy(t->graph);
  qn_stream_destroy(t->stream);
  qn_stream_destroy(t->other);
  for (int i = 0; i < 3; i++) {
    if (t->memory[i]) cuda_free(0, t->memory[i]);
  }
  must(qn_device_host_free(cuda_at(0), t->host));
  if (t->executable) cuda_table()->unload(0, t->executable);
}

static CUcontext current(void) {
  CUresult (*get)(CUcontext*);
  void* address = cuda_driver.entry("cuCtxGetCurrent");
  memcpy(&get, &address, sizeof get);
  CUcontext context = NULL;
  assert_int_equal(get(&context), 0);
  return context;
}

// Functions whose failure leaks the object that they should free.
static bool gives_back(const char* entry) {
  static const char* const entries[] = {"cuMemFree_v2",   "cuMemFreeHost",  "cuMemFreeAsync",
                                        "cuModuleUnload", "cuGraphDestroy", "cuStreamDestroy_v2"};
  for (size_t i = 0; i < QN_COUNT_OF(entries); i++) {
    if (strcmp(entry, entries[i]) == 0) return true;
  }
  return false;
}

static void walk(int result) {
  long failures = 0;
  for (long n = 1;; n++) {
    fake_cuda_counts_t before, after;
    cuda_driver.counts(&before);
    things_t things = {0};
    cuda_driver.fail_at(NULL, n, result, 0);
    qn_status_t status = run(&things);
    const bool is_reached = cuda_driver.calls(NULL) >= n;
    char failed[64];
    (void)snprintf(failed, sizeof failed, "%s", cuda_driver.failed());
    cuda_driver.fail_at(NULL, 0, 0, 0);
    if (!qn_ok(status)) {
      failures++;
      const bool is_told = strstr(qn_status_message(status), "CUDA_ERROR_") != NULL ||
                           strstr(qn_status_message(status), "site ") != NULL ||
                           strstr(qn_status_message(status), "records") != NULL;
      if (!is_told) fail_msg("call %ld: %s", n, qn_status_message(status));
    }
    qn_status_free(status);
    assert_null(current());
    let_go(&things);
    assert_null(current());
    assert_int_equal(owner.reference_count, 0);
    cuda_driver.counts(&after);
    if (after.violations != before.violations) fail_msg("call %ld, %s: a rule broken", n, failed);
    if (!gives_back(failed) &&
        (after.modules != before.modules || after.device_blocks != before.device_blocks ||
         after.graphs != before.graphs || after.streams != before.streams)) {
      fail_msg("call %ld, %s: something is left", n, failed);
    }
    assert_int_equal(after.graph_execs, before.graph_execs);
    if (!is_reached) {
      assert_true(n > 300);
      break;
    }
    assert_true(n < 10000);
  }
  assert_true(failures > 50);
}

static void test_invalid(void** state) {
  (void)state;
  walk(QN__CU_INVALID_VALUE);
}

static void test_memory(void** state) {
  (void)state;
  walk(QN__CU_OUT_OF_MEMORY);
}

// All calls from the n-th on fail: the same conditions hold, and the test ends.
static void test_lasting(void** state) {
  (void)state;
  for (long n = 1; n < 400; n += 7) {
    things_t things = {0};
    cuda_driver.fail_at(NULL, n, QN__CU_OUT_OF_MEMORY, 1);
    qn_status_free(run(&things));
    cuda_driver.fail_at(NULL, 0, 0, 0);
    // If popping the context fails, too, the context stays current.
    while (current()) {
      CUresult (*pop)(CUcontext*);
      void* address = cuda_driver.entry("cuCtxPopCurrent_v2");
      memcpy(&pop, &address, sizeof pop);
      assert_int_equal(pop(&(CUcontext){NULL}), 0);
    }
    let_go(&things);
    assert_int_equal(owner.reference_count, 0);
  }
}

// Checks that after any failure at the first use of a device the next use succeeds.
static void test_first_use(void** state) {
  (void)state;
  assert_int_equal(qn_device_count(QN_DEVICE_CUDA), 2);  // the driver is opened once, or never
  long n = 1;
  for (;; n++) {
    void* pointer;
    cuda_driver.fail_at(NULL, n, QN__CU_OUT_OF_MEMORY, 0);
    qn_status_t status = qn_device_allocate(cuda_at(1), 16, 0, &pointer);
    cuda_driver.fail_at(NULL, 0, 0, 0);
    const bool is_done = qn_ok(status);
    if (is_done) cuda_free(1, pointer);
    qn_status_free(status);
    assert_null(current());
    if (is_done) break;  // a pool that cannot be made is one that there is not
  }
  assert_true(n >= 4);
  cuda_free(0, cuda_floats(0, 4, 0));  // the other device is opened in peace
}

int main(void) {
  if (!cuda_setup()) {
    (void)printf("skipped: the fake driver was not built (no C++ compiler)\n");
    return 0;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_use),
                                     cmocka_unit_test(test_invalid), cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_lasting)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
