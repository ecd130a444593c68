// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests the CUDA device on the fake driver: attributes, memory, copies, loading and launching,
// contexts of the host, several devices, and fork.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/cuda/driver.h"
#include "devices/device.h"
#include "tests/support/must.h"
#include "tests/unit/devices/support_cuda.h"

static fake_cuda_counts_t before;

static int begin(void** state) {
  (void)state;
  cuda_driver.fail_at(NULL, 0, 0, 0);
  cuda_driver.counts(&before);
  return 0;
}

static qn_attribute_value_t attribute(int32_t id, qn_attribute_t which) {
  qn_attribute_value_t value;
  must(qn_device_attribute(cuda_at(id), which, &value));
  return value;
}

static qn_attribute_value_t property(int32_t id, const char* name) {
  qn_attribute_value_t value;
  must(cuda_table()->target_property(id, name, &value));
  return value;
}

static void test_attributes(void** state) {
  (void)state;
  assert_int_equal(qn_device_count(QN_DEVICE_CUDA), 2);
  assert_string_equal(attribute(1, QN_ATTRIBUTE_DEVICE_NAME).string_value, "Fake GPU 1");
  assert_string_equal(attribute(0, QN_ATTRIBUTE_COMPUTE_VERSION).string_value, "9.0");
  assert_string_equal(attribute(0, QN_ATTRIBUTE_MAX_THREAD_DIMENSIONS).string_value,
                      "[1024, 1024, 64]");
  assert_string_equal(attribute(0, QN_ATTRIBUTE_UUID).string_value,
                      "GPU-00112233-4455-6677-8899-aabbccddeeff");
  assert_int_equal(attribute(0, QN_ATTRIBUTE_API_VERSION).int_value, 13000);
  assert_int_equal(attribute(0, QN_ATTRIBUTE_WARP_SIZE).int_value, 32);
  assert_int_equal(attribute(0, QN_ATTRIBUTE_MAX_THREADS_PER_BLOCK).int_value, 1024);
  assert_int_equal(attribute(0, QN_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK).int_value, 232448);
  assert_int_equal(attribute(1, QN_ATTRIBUTE_MULTI_PROCESSOR_COUNT).int_value, 5);
  assert_int_equal(attribute(0, QN_ATTRIBUTE_MAX_GRID_BLOCKS).int_value, INT32_MAX);
  assert_int_equal(attribute(0, QN_ATTRIBUTE_POINTER_IS_ADDRESS).int_value, 1);
  assert_int_equal(attribute(0, QN_ATTRIBUTE_HOST_ACCESSIBLE).int_value, 0);
  assert_int_equal(attribute(0, QN_ATTRIBUTE_GCN_ARCH).type, QN_ATTRIBUTE_TYPE_NONE);
  // Every attribute of the table has an answer of its type, or none.
  qn_attribute_t which;
  const char *text, *unit, *doc;
  for (size_t i = 0; qn_attribute_at(i, &which, &text, &unit, &doc); i++) {
    (void)attribute(0, which);
  }
  qn_attribute_value_t value;
  must_fail(qn_device_attribute(cuda_at(2), QN_ATTRIBUTE_WARP_SIZE, &value), QN_STATUS_NOT_FOUND,
            "no device cuda:2");
}

// Checks that memory is reported for the given device, whichever is current.
static void test_available_memory(void** state) {
  (void)state;
  const int64_t first = attribute(0, QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY).int_value;
  const int64_t second = attribute(1, QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY).int_value;
  void* pointer;
  must(qn_device_allocate(cuda_at(1), 1 << 20, 0, &pointer));
  assert_int_equal(attribute(0, QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY).int_value, first);
  assert_int_equal(attribute(1, QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY).int_value,
                   second - (1 << 20));
  cuda_free(1, pointer);
}

static void test_target_properties(void** state) {
  (void)state;
  assert_string_equal(property(0, "arch").string_value, "sm_90a");
  assert_int_equal(property(0, "max_shared_memory_per_block").int_value, 232448);
  assert_int_equal(property(0, "max_threads_per_block").int_value, 1024);
  assert_int_equal(property(1, "multiprocessors").int_value, 5);
  assert_int_equal(property(0, "registers_per_block").int_value, 65536);
  assert_int_equal(property(0, "warp_size").int_value, 32);
  assert_int_equal(property(0, "l2_cache_bytes").int_value, 62914560);
  assert_int_equal(property(0, "no_such_option").type, QN_ATTRIBUTE_TYPE_NONE);
}

static void test_allocate(void** state) {
  (void)state;
  void *empty, *small, *aligned;
  must(qn_device_allocate(cuda_at(0), 0, 0, &empty));
  assert_non_null(empty);
  must(qn_device_allocate(cuda_at(0), 100, 0, &small));
  assert_int_equal((uintptr_t)small % 256, 0);
  must(qn_device_allocate(cuda_at(0), 100, 1 << 16, &aligned));
  assert_int_equal((uintptr_t)aligned % (1 << 16), 0);
  cuda_free(0, aligned);
  cuda_free(0, small);
  cuda_free(0, empty);
  void* huge = small;
  must_fail(qn_device_allocate(cuda_at(0), (size_t)1 << 40, 0, &huge), QN_STATUS_OUT_OF_MEMORY,
            "cuda:0: allocating 1099511627776 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  assert_null(huge);
  must_fail(qn_device_allocate(cuda_at(0), SIZE_MAX - 5, 4096, &huge), QN_STATUS_OUT_OF_MEMORY,
            "aligned to 4096");
  void* host;
  must(qn_device_host_allocate(cuda_at(0), 1000, &host));
  memset(host, 1, 1000);
  must(qn_device_host_free(cuda_at(0), host));
  must(qn_device_host_allocate(cuda_at(0), 0, &host));
  must(qn_device_host_free(cuda_at(0), host));
  cuda_expect_clean(&before);
}

// ---- copies

static qn_copy_t between(qn_device_t from_device, const void* from, qn_device_t to_device, void* to,
                         size_t size_bytes) {
  return (qn_copy_t){.struct_size = sizeof(qn_copy_t),
                     .from_device = from_device,
                     .from = from,
                     .to_device = to_device,
                     .to = to,
                     .size_bytes = size_bytes};
}
static const qn_device_t cpu = {QN_DEVICE_CPU, 0};

// Checks copies whose host memory changes right after the call. Work is delayed where it may be
// asynchronous.
static void test_copy_unpinned(void** state) {
  (void)state;
  const size_t sizes[] = {1, 4096, 65536, 65537, 1 << 20};
  qn_stream_t* stream;
  must(qn_stream_create(cuda_at(0), &stream));
  for (size_t i = 0; i < QN_COUNT_OF(sizes); i++) {
    const size_t size = sizes[i];
    uint8_t* host = malloc(size);
    void* device;
    must(qn_device_allocate(cuda_at(0), size, 0, &device));
    memset(host, 0x11, size);
    const bool is_staged = size <= 65536;
    if (is_staged) cuda_driver.hold(1);
    qn_copy_t up = between(cpu, host, cuda_at(0), device, size);
    must(qn_device_copy(&up, stream));
    memset(host, 0x22, size);
    if (is_staged) cuda_driver.hold(0);
    qn_copy_t down = between(cuda_at(0), device, cpu, host, size);
    must(qn_device_copy(&down, stream));
    for (size_t b = 0; b < size; b++) assert_int_equal(host[b], 0x11);
    cuda_free(0, device);
    free(host);
  }
  qn_stream_destroy(stream);
  cuda_expect_clean(&before);
}

// Checks more small copies than there are staging buffers: the rest waits.
static void test_copy_storm(void** state) {
  (void)state;
  enum { COUNT = 200 };
  int32_t* host = malloc(COUNT * sizeof *host);
  void* device;
  must(qn_device_allocate(cuda_at(0), COUNT * sizeof *host, 0, &device));
  for (int32_t i = 0; i < COUNT; i++) {
    int32_t value = i;
    qn_copy_t up = between(cpu, &value, cuda_at(0), device, sizeof value);
    up.to_offset_bytes = (size_t)i * sizeof value;
    must(qn_device_copy(&up, NULL));
    value = -1;
  }
  cuda_read(0, NULL, device, host, COUNT * sizeof *host);
  for (int32_t i = 0; i < COUNT; i++) assert_int_equal(host[i], i);
  cuda_free(0, device);
  free(host);
}

// Checks that pinned memory is read when the stream reaches the copy.
static void test_copy_pinned(void** state) {
  (void)state;
  void *host, *device, *other;
  qn_stream_t* stream;
  must(qn_stream_create(cuda_at(0), &stream));
  must(qn_device_host_allocate(cuda_at(0), 4, &host));
  must(qn_device_allocate(cuda_at(0), 4, 0, &device));
  must(qn_device_allocate(cuda_at(0), 4, 0, &other));
  memcpy(host, "old", 4);
  cuda_driver.hold(1);
  qn_copy_t up = between(cpu, host, cuda_at(0), device, 4);
  up.is_host_pinned = true;
  must(qn_device_copy(&up, stream));
  assert_false(qn_stream_is_idle(stream));
  memcpy(host, "new", 4);
  qn_copy_t across = between(cuda_at(0), device, cuda_at(0), other, 4);
  must(qn_device_copy(&across, stream));
  cuda_driver.hold(0);
  qn_copy_t down = between(cuda_at(0), other, cpu, host, 4);
  down.is_host_pinned = true;
  must(qn_device_copy(&down, stream));
  must(qn_stream_sync(cuda_at(0), stream));
  assert_true(qn_stream_is_idle(stream));
  assert_string_equal(host, "new");
  cuda_free(0, device);
  cuda_free(0, other);
  must(qn_device_host_free(cuda_at(0), host));
  qn_stream_destroy(stream);
  cuda_expect_clean(&before);
}

static void copy_to_peer(void) {
  float* from = cuda_floats(0, 1000, 5);
  float* to = cuda_floats(1, 1000, 0);
  qn_stream_t* stream;
  must(qn_stream_create(cuda_at(0), &stream));
  qn_copy_t copy = between(cuda_at(0), from, cuda_at(1), to, 4000);
  must(qn_device_copy(&copy, stream));
  must(qn_device_copy(&copy, stream));
  must(qn_stream_sync(cuda_at(0), stream));
  float host[1000];
  cuda_read(1, NULL, to, host, sizeof host);
  for (int i = 0; i < 1000; i++) assert_int_equal((int)host[i], i + 5);
  cuda_free(0, from);
  cuda_free(1, to);
  qn_stream_destroy(stream);
}

static void test_copy_peer(void** state) {
  (void)state;
  copy_to_peer();
  assert_int_equal(cuda_driver.calls("cuCtxEnablePeerAccess"), 1);
  assert_int_equal(cuda_driver.calls("cuMemcpyPeerAsync"), 2);
  cuda_driver.fail_at("cuMemcpyPeerAsync", 1, QN__CU_INVALID_VALUE, 0);
  float* from = cuda_floats(0, 4, 5);
  float* to = cuda_floats(1, 4, 0);
  qn_copy_t copy = between(cuda_at(0), from, cuda_at(1), to, 16);
  must_fail(qn_device_copy(&copy, NULL), QN_STATUS_DEVICE_ERROR,
            "cuda:0: copying 16 bytes to cuda:1: CUDA_ERROR_INVALID_VALUE");
  cuda_free(0, from);
  cuda_free(1, to);
  cuda_expect_clean(&before);
}

// ---- loading and running

static void run_add(int32_t id, void* executable, size_t n) {
  cuda_owner_t owner = {0};
  float* a = cuda_floats(id, n, 1);
  float* b = cuda_floats(id, n, 10);
  float* c = cuda_floats(id, n, 0);
  const uint64_t words[] = {(uintptr_t)a, (uintptr_t)b, (uintptr_t)c, n};
  must(cuda_run(executable, CUDA_ADD, id, NULL, &owner, words, 4));
  float* host = malloc(n * sizeof *host + 1);
  cuda_read(id, NULL, c, host, n * sizeof *host);
  for (size_t i = 0; i < n; i++) assert_int_equal((int)host[i], 2 * i + 11);
  free(host);
  must(qn_stream_sync(cuda_at(id), NULL));
  assert_int_equal(owner.reference_count, 0);
  cuda_free(id, a);
  cuda_free(id, b);
  cuda_free(id, c);
}

static void test_run(void** state) {
  (void)state;
  void* executable = cuda_load(0);
  const size_t counts[] = {1, 255, 256, 257, 1000, 100000};
  for (size_t i = 0; i < QN_COUNT_OF(counts); i++) run_add(0, executable, counts[i]);
  // Nothing to do launches nothing.
  fake_cuda_counts_t now, then;
  cuda_driver.counts(&then);
  run_add(0, executable, 0);
  cuda_owner_t owner = {0};
  must(cuda_run(executable, CUDA_NOTHING, 0, NULL, &owner, NULL, 0));
  must(qn_stream_sync(cuda_at(0), NULL));
  cuda_driver.counts(&now);
  assert_int_equal(now.launches, then.launches);
  cuda_table()->unload(0, executable);
  cuda_expect_clean(&before);
}

static void test_grid_is_clamped(void** state) {
  (void)state;
  void* executable = cuda_load(0);
  unsigned blocks, threads, shared;
  run_add(0, executable, 1000);
  cuda_driver.last_launch(&blocks, &threads, &shared);
  assert_int_equal(blocks, 4);
  assert_int_equal(threads, 256);
  run_add(0, executable, 100000);
  cuda_driver.last_launch(&blocks, &threads, &shared);
  assert_int_equal(blocks, 4 * 32);  // multiprocessors of device 0
  cuda_table()->unload(0, executable);
}

static void test_shared_memory(void** state) {
  (void)state;
  void* executable = cuda_load(0);
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 200, 0);
  const uint64_t words[] = {(uintptr_t)c, 200};
  must(cuda_run(executable, CUDA_SHARED, 0, NULL, &owner, words, 2));
  float host[200];
  cuda_read(0, NULL, c, host, sizeof host);
  for (int i = 0; i < 200; i++) assert_int_equal((int)host[i], 199 - i);
  unsigned blocks, threads, shared;
  cuda_driver.last_launch(&blocks, &threads, &shared);
  assert_int_equal(shared, 100000);
  must(qn_stream_sync(cuda_at(0), NULL));
  cuda_free(0, c);
  cuda_table()->unload(0, executable);
  cuda_expect_clean(&before);
}

static void test_scalar_and_threads(void** state) {
  (void)state;
  void* executable = cuda_load(0);
  cuda_owner_t owner = {0};
  float* c = cuda_floats(0, 1000, 1);
  uint64_t words[] = {(uintptr_t)c, 0, 1000};
  const float factor = 3;
  memcpy(&words[1], &factor, sizeof factor);
  must(cuda_run(executable, CUDA_SCALE, 0, NULL, &owner, words, 3));
  float host[1000];
  cuda_read(0, NULL, c, host, sizeof host);
  for (int i = 0; i < 1000; i++) assert_int_equal((int)host[i], 3 * (i + 1));
  unsigned blocks, threads, shared;
  cuda_driver.last_launch(&blocks, &threads, &shared);
  assert_int_equal(threads, 512);
  must(qn_stream_sync(cuda_at(0), NULL));
  cuda_free(0, c);
  cuda_table()->unload(0, executable);
}

static void run_workspace(int32_t id) {
  void* executable = cuda_load(id);
  cuda_owner_t owner = {0};
  float* a = cuda_floats(id, 777, 3);
  float* c = cuda_floats(id, 777, 0);
  const uint64_t words[] = {(uintptr_t)a, (uintptr_t)c, 777};
  for (int i = 0; i < 20; i++) {
    must(cuda_run(executable, CUDA_WORKSPACE, id, NULL, &owner, words, 3));
  }
  float host[777];
  cuda_read(id, NULL, c, host, sizeof host);
  for (int i = 0; i < 777; i++) assert_int_equal((int)host[i], i + 3);
  must(qn_stream_sync(cuda_at(id), NULL));
  // As much as nobody has: the call fails, whole, and the next one works.
  const uint64_t too_much[] = {(uintptr_t)a, (uintptr_t)c, (uint64_t)1 << 60};
  must_fail(cuda_run(executable, CUDA_WORKSPACE, id, NULL, &owner, too_much, 3),
            QN_STATUS_ASSERTION, "site 1");
  must(cuda_run(executable, CUDA_WORKSPACE, id, NULL, &owner, words, 3));
  must(qn_stream_sync(cuda_at(id), NULL));
  assert_int_equal(owner.reference_count, 0);
  cuda_free(id, a);
  cuda_free(id, c);
  cuda_table()->unload(id, executable);
}

static void test_workspace(void** state) {
  (void)state;
  run_workspace(0);
  cuda_expect_clean(&before);
}

static void test_second_device(void** state) {
  (void)state;
  void* executable = cuda_load(1);
  run_add(1, executable, 5000);
  cuda_table()->unload(1, executable);
  run_workspace(1);
  cuda_expect_clean(&before);
}

static void test_load_refuses(void** state) {
  (void)state;
  const qn_load_options_t options = {.struct_size = sizeof options};
  void* executable;
  qn_artifact_t other = cuda_artifact_copy();
  other.isa = "{\"arch\":\"sm_120a\",\"kind\":\"cuda\"}";
  must_fail(cuda_table()->load(0, &other, &options, &executable), QN_STATUS_INCOMPATIBLE, "arch");
  assert_null(executable);
  other = cuda_artifact_copy();
  other.metadata_size -= 3;
  must_fail(cuda_table()->load(0, &other, &options, &executable), QN_STATUS_DATA_LOSS, "");
  other = cuda_artifact_copy();
  other.function_count--;
  must_fail(cuda_table()->load(0, &other, &options, &executable), QN_STATUS_DATA_LOSS, "plan");
  // Cut off anywhere, the cubin does not reach the driver.
  cuda_driver.fail_at(NULL, 0, 0, 0);
  uint8_t* damaged = malloc(other.payload_size);
  for (size_t cut = 0; cut < 64; cut += 8) {
    memcpy(damaged, other.payload, other.payload_size);
    damaged[cut] ^= 0xff;
    damaged[40 + cut % 8] = 0xff;
    other = cuda_artifact_copy();
    other.payload = damaged;
    must_fail(cuda_table()->load(0, &other, &options, &executable), QN_STATUS_DATA_LOSS,
              "no whole cubin");
  }
  assert_int_equal(cuda_driver.calls("cuModuleLoadData"), 0);
  // Not aligned: a copy is.
  uint8_t* shifted = malloc(other.payload_size + 16);
  other = cuda_artifact_copy();
  memcpy(shifted + 4, other.payload, other.payload_size);
  other.payload = shifted + 4;
  must(cuda_table()->load(0, &other, &options, &executable));
  run_add(0, executable, 100);
  cuda_table()->unload(0, executable);
  free(shifted);
  free(damaged);
  assert_false(cuda_table()->accepts("cpu-image-1"));
  assert_true(cuda_table()->accepts("cuda-cubin-1"));
  cuda_expect_clean(&before);
}

// ---- the host's own context

static void test_host_context(void** state) {
  (void)state;
  CUresult (*create)(CUcontext*, unsigned, CUdevice);
  CUresult (*destroy)(CUcontext);
  CUresult (*get)(CUcontext*);
  void* symbols[] = {cuda_driver.entry("cuCtxCreate_v2"), cuda_driver.entry("cuCtxDestroy_v2"),
                     cuda_driver.entry("cuCtxGetCurrent")};
  memcpy(&create, &symbols[0], sizeof create);
  memcpy(&destroy, &symbols[1], sizeof destroy);
  memcpy(&get, &symbols[2], sizeof get);
  CUcontext own, current;
  assert_int_equal(get(&current), 0);
  assert_null(current);
  assert_int_equal(create(&own, 0, 1), 0);
  void* executable = cuda_load(0);
  run_add(0, executable, 1000);
  copy_to_peer();
  cuda_table()->unload(0, executable);
  assert_int_equal(get(&current), 0);
  assert_ptr_equal(current, own);
  // Also behind failures.
  void* pointer;
  must_fail(qn_device_allocate(cuda_at(0), (size_t)1 << 40, 0, &pointer), QN_STATUS_OUT_OF_MEMORY,
            "");
  assert_int_equal(get(&current), 0);
  assert_ptr_equal(current, own);
  assert_int_equal(destroy(own), 0);
  assert_int_equal(get(&current), 0);
  assert_null(current);
  cuda_expect_clean(&before);
}

// ---- forks: the driver is open by now

static void test_fork(void** state) {
  (void)state;
  void* executable = cuda_load(0);
  qn_stream_t* stream;
  must(qn_stream_create(cuda_at(0), &stream));
  float* memory = cuda_floats(0, 10, 0);
  float host[10];
  cuda_read(0, stream, memory, host, sizeof host);  // its thread has begun, and waits
  (void)fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    int wrong = 0;
    void* pointer;
    qn_attribute_value_t value;
    cuda_owner_t owner = {0};
    qn_status_t statuses[] = {
        qn_device_allocate(cuda_at(0), 10, 0, &pointer),
        qn_device_free(cuda_at(0), memory),
        qn_stream_sync(cuda_at(0), stream),
        qn_stream_sync(cuda_at(0), NULL),
        qn_device_attribute(cuda_at(0), QN_ATTRIBUTE_WARP_SIZE, &value),
        cuda_table()->load(0, cuda_artifact(), NULL, &pointer),
        cuda_run(executable, CUDA_NOTHING, 0, NULL, &owner, NULL, 0),
    };
    for (size_t i = 0; i < QN_COUNT_OF(statuses); i++) {
      wrong += !strstr(qn_status_message(statuses[i]), "forked");
      wrong += qn_status_consume(statuses[i]) != QN_STATUS_UNAVAILABLE;
    }
    wrong += !qn_stream_is_idle(stream);
    qn_stream_destroy(stream);
    cuda_table()->unload(0, executable);
    _exit(wrong);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  run_add(0, executable, 100);
  cuda_free(0, memory);
  qn_stream_destroy(stream);
  cuda_table()->unload(0, executable);
  cuda_expect_clean(&before);
}

int main(void) {
  if (!cuda_setup()) {
    (void)printf("skipped: the fake driver was not built (no C++ compiler)\n");
    return 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_attributes, begin),
      cmocka_unit_test_setup(test_available_memory, begin),
      cmocka_unit_test_setup(test_target_properties, begin),
      cmocka_unit_test_setup(test_allocate, begin),
      cmocka_unit_test_setup(test_copy_unpinned, begin),
      cmocka_unit_test_setup(test_copy_storm, begin),
      cmocka_unit_test_setup(test_copy_pinned, begin),
      cmocka_unit_test_setup(test_copy_peer, begin),
      cmocka_unit_test_setup(test_run, begin),
      cmocka_unit_test_setup(test_grid_is_clamped, begin),
      cmocka_unit_test_setup(test_shared_memory, begin),
      cmocka_unit_test_setup(test_scalar_and_threads, begin),
      cmocka_unit_test_setup(test_workspace, begin),
      cmocka_unit_test_setup(test_second_device, begin),
      cmocka_unit_test_setup(test_load_refuses, begin),
      cmocka_unit_test_setup(test_host_context, begin),
      cmocka_unit_test_setup(test_fork, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
