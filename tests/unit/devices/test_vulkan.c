// SPDX-License-Identifier: Apache-2.0
// The Vulkan device: attributes, memory and addresses, copies, launches, errors of
// kernels, streams in their order, with the validation layer on and silent.
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/devices/support_vulkan.h"

#if QN_HAVE_VULKAN
#include "base/thread.h"
#include "tests/support/must.h"

// ---------------------------------------------------------------------------------- attributes

static void test_attributes(void** state) {
  (void)state;
  NEED_DEVICE();
  assert_true(qn_device_count(QN_DEVICE_VULKAN) >= 1);
  const struct {
    qn_attribute_t attribute;
    qn_attribute_type_t type;
  } answered[] = {
      {QN_ATTRIBUTE_EXIST, QN_ATTRIBUTE_TYPE_BOOL},
      {QN_ATTRIBUTE_MAX_THREADS_PER_BLOCK, QN_ATTRIBUTE_TYPE_INT},
      {QN_ATTRIBUTE_WARP_SIZE, QN_ATTRIBUTE_TYPE_INT},
      {QN_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, QN_ATTRIBUTE_TYPE_INT},
      {QN_ATTRIBUTE_COMPUTE_VERSION, QN_ATTRIBUTE_TYPE_STRING},
      {QN_ATTRIBUTE_DEVICE_NAME, QN_ATTRIBUTE_TYPE_STRING},
      {QN_ATTRIBUTE_MAX_THREAD_DIMENSIONS, QN_ATTRIBUTE_TYPE_STRING},
      {QN_ATTRIBUTE_API_VERSION, QN_ATTRIBUTE_TYPE_INT},
      {QN_ATTRIBUTE_DRIVER_VERSION, QN_ATTRIBUTE_TYPE_STRING},
      {QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY, QN_ATTRIBUTE_TYPE_INT},
      {QN_ATTRIBUTE_UUID, QN_ATTRIBUTE_TYPE_STRING},
      {QN_ATTRIBUTE_MAX_GRID_BLOCKS, QN_ATTRIBUTE_TYPE_INT},
      {QN_ATTRIBUTE_DRIVER_IDENTITY, QN_ATTRIBUTE_TYPE_STRING},
      {QN_ATTRIBUTE_MAX_BUFFER_BYTES, QN_ATTRIBUTE_TYPE_INT},
      {QN_ATTRIBUTE_GCN_ARCH, QN_ATTRIBUTE_TYPE_NONE},
      {QN_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, QN_ATTRIBUTE_TYPE_NONE},
  };
  for (size_t i = 0; i < QN_COUNT_OF(answered); i++) {
    qn_attribute_value_t value;
    must(qn_device_attribute(test_vulkan, answered[i].attribute, &value));
    assert_int_equal(value.type, answered[i].type);
    if (value.type == QN_ATTRIBUTE_TYPE_INT) assert_true(value.int_value > 0);
    if (value.type == QN_ATTRIBUTE_TYPE_STRING) assert_true(strlen(value.string_value) >= 3);
  }
  qn_attribute_value_t value;
  must(qn_device_attribute((qn_device_t){QN_DEVICE_VULKAN, 99}, QN_ATTRIBUTE_EXIST, &value));
  assert_int_equal(value.int_value, 0);
}

static void test_every_target_option_is_answered(void** state) {
  (void)state;
  NEED_DEVICE();
  static const struct {
    const char* name;
    const char* type;
    const char* class;
  } options[] = {
#define QN_VULKAN_OPTION(name, type, standard, minimum, maximum, class, doc) {#name, #type, #class},
#include "target/options.inc"
  };
  const qn_device_table_t* table = qn__device_table(QN_DEVICE_VULKAN);
  for (size_t i = 0; i < QN_COUNT_OF(options); i++) {
    if (strncmp(options[i].class, "ISA", 3) != 0) continue;
    qn_attribute_value_t value;
    must(table->target_property(0, options[i].name, &value));
    qn_attribute_type_t wanted = strcmp(options[i].type, "BOOL") == 0  ? QN_ATTRIBUTE_TYPE_BOOL
                                 : strcmp(options[i].type, "INT") == 0 ? QN_ATTRIBUTE_TYPE_INT
                                                                       : QN_ATTRIBUTE_TYPE_STRING;
    if (value.type != wanted) fail_msg("option %s is not answered", options[i].name);
  }
  qn_attribute_value_t value;
  must(table->target_property(0, "no_such_option", &value));
  assert_int_equal(value.type, QN_ATTRIBUTE_TYPE_NONE);
}

// ---------------------------------------------------------------------------------- memory

static void test_allocations_are_apart_and_aligned(void** state) {
  (void)state;
  NEED_DEVICE();
  uint64_t before = test_vulkan_stats().used_bytes;
  uintptr_t starts[64];
  for (size_t i = 0; i < QN_COUNT_OF(starts); i++) {
    void* pointer;
    size_t alignment = (size_t)1 << (i % 17);
    must(qn_device_allocate(test_vulkan, i * 100, alignment, &pointer));
    assert_non_null(pointer);
    starts[i] = (uintptr_t)pointer;
    assert_int_equal(starts[i] % alignment, 0);
    assert_int_equal(starts[i] % 64, 0);
    for (size_t j = 0; j < i; j++) {
      assert_true(starts[j] + j * 100 <= starts[i] || starts[i] + i * 100 <= starts[j]);
      assert_true(starts[i] != starts[j]);
    }
  }
  for (size_t i = 0; i < QN_COUNT_OF(starts); i++) test_vulkan_free((void*)starts[i]);
  test_vulkan_await_used(before);
}

static void test_bad_addresses_are_refused(void** state) {
  (void)state;
  NEED_DEVICE();
  char host[64] = {0};
  void* pointer = test_vulkan_allocate(4096);
  void* other = test_vulkan_allocate(4096);
  char* inside = (char*)pointer + 256;
  must_fail(qn_device_free(test_vulkan, inside), QN_STATUS_INVALID_ARGUMENT,
            "no allocation starts");
  must_fail(qn_device_free(test_vulkan, host), QN_STATUS_INVALID_ARGUMENT, "not a handle");
  must_fail(qn_device_free(test_vulkan, (char*)pointer + ((size_t)1 << 53)),
            QN_STATUS_INVALID_ARGUMENT, "another Vulkan device");
  must_fail(qn_device_free(test_vulkan, (char*)pointer + ((size_t)77 << 40)),
            QN_STATUS_INVALID_ARGUMENT, "freed memory");
  must_fail(test_vulkan_copy_to(host, 0, host, 8, NULL), QN_STATUS_INVALID_ARGUMENT, NULL);
  char from[8] = "1234567";
  must_fail(test_vulkan_copy_to(pointer, (size_t)1 << 38, from, 8, NULL),
            QN_STATUS_INVALID_ARGUMENT, "beyond the end");
  must_fail(test_vulkan_copy_to(host, 0, from, 8, NULL), QN_STATUS_INVALID_ARGUMENT,
            "not a handle");
  test_vulkan_free(pointer);
  must_fail(qn_device_free(test_vulkan, pointer), QN_STATUS_INVALID_ARGUMENT, "freed twice");
  test_vulkan_free(other);
  must(qn_device_free(test_vulkan, NULL));
}

static void test_large_memory_comes_and_goes(void** state) {
  (void)state;
  NEED_DEVICE();
  uint64_t before = test_vulkan_stats().reserved_bytes;
  size_t size = (size_t)200 << 20;
  void* large = test_vulkan_allocate(size);
  assert_true(test_vulkan_stats().reserved_bytes >= before + size);
  uint32_t sent = 0x12345678, got = 0;
  must(test_vulkan_copy_to(large, size - 4, &sent, 4, NULL));
  must(test_vulkan_copy_from(&got, large, size - 4, 4, NULL));
  assert_int_equal(got, sent);
  test_vulkan_free(large);
  assert_true(test_vulkan_stats().reserved_bytes <= before + ((size_t)64 << 20));
  must_fail(qn_device_free(test_vulkan, large), QN_STATUS_INVALID_ARGUMENT, "freed memory");
  void* huge = NULL;
  must_fail(qn_device_allocate(test_vulkan, (size_t)1 << 42, 0, &huge), QN_STATUS_OUT_OF_MEMORY,
            "no device memory");
  assert_null(huge);
  must_fail(qn_device_allocate(test_vulkan, SIZE_MAX - 5, 0, &huge), QN_STATUS_OUT_OF_MEMORY, NULL);
}

static void test_empty_blocks_are_given_back(void** state) {
  (void)state;
  NEED_DEVICE();
  enum { COUNT = 40 };
  void* parts[COUNT];
  uint64_t before = test_vulkan_stats().used_bytes, blocks = test_vulkan_stats().block_count;
  for (size_t i = 0; i < COUNT; i++) parts[i] = test_vulkan_allocate((size_t)10 << 20);
  uint64_t most = test_vulkan_stats().block_count;
  assert_true(most >= blocks + 5);
  for (size_t i = 0; i < COUNT; i++) test_vulkan_free(parts[i]);
  test_vulkan_await_used(before);
  assert_true(test_vulkan_stats().block_count <= blocks + 1);
}

static void test_pinned_memory(void** state) {
  (void)state;
  NEED_DEVICE();
  size_t size = (size_t)1 << 20;
  uint8_t* pinned;
  must(qn_device_host_allocate(test_vulkan, size, (void**)&pinned));
  assert_int_equal((uintptr_t)pinned % 64, 0);
  for (size_t i = 0; i < size; i++) pinned[i] = (uint8_t)(i * 7);
  void* memory = test_vulkan_allocate(size);
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = {QN_DEVICE_CPU, 0},
                    .from = pinned,
                    .to_device = test_vulkan,
                    .to = memory,
                    .size_bytes = size,
                    .is_host_pinned = true};
  must(qn_device_copy(&copy, NULL));
  uint8_t* back;
  must(qn_device_host_allocate(test_vulkan, size, (void**)&back));
  memset(back, 0, size);
  qn_copy_t down = {.struct_size = sizeof down,
                    .from_device = test_vulkan,
                    .from = memory,
                    .to_device = {QN_DEVICE_CPU, 0},
                    .to = back,
                    .size_bytes = size,
                    .is_host_pinned = true};
  must(qn_device_copy(&down, NULL));
  must(qn_stream_sync(test_vulkan, NULL));
  assert_memory_equal(back, pinned, size);
  // A wrong hint that memory is pinned only makes the copy slower.
  uint8_t ordinary[256] = {0};
  down.to = ordinary;
  down.size_bytes = sizeof ordinary;
  must(qn_device_copy(&down, NULL));
  must(qn_stream_sync(test_vulkan, NULL));
  assert_memory_equal(ordinary, pinned, sizeof ordinary);
  test_vulkan_free(memory);
  must_fail(qn_device_host_free(test_vulkan, ordinary), QN_STATUS_INVALID_ARGUMENT, "not pinned");
  must(qn_device_host_free(test_vulkan, pinned));
  must(qn_device_host_free(test_vulkan, back));
}

static void test_copies_in_parts(void** state) {
  (void)state;
  NEED_DEVICE();
  size_t size = (size_t)20 << 20;  // more than one piece of staging
  uint8_t* data = malloc(size);
  uint8_t* back = malloc(size);
  assert_true(data && back);
  for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 31 + (i >> 8));
  uint8_t* memory = test_vulkan_allocate(size);
  uint8_t* second = test_vulkan_allocate(size);
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  must(test_vulkan_copy_to(memory, 0, data, size, stream));
  must(test_vulkan_copy(second, 3, memory, 1, size - 3, stream));  // any alignment
  must(test_vulkan_copy_to(second, 0, data, 3, stream));
  memset(back, 0, size);
  must(test_vulkan_copy_from(back, second, 0, size, stream));
  assert_memory_equal(back, data, 3);
  assert_memory_equal(back + 3, data + 1, size - 3);
  must_fail(test_vulkan_copy(memory, 10, memory, 0, 20, stream), QN_STATUS_INVALID_ARGUMENT,
            "overlap");
  must(test_vulkan_copy(memory, 100, memory, 0, 100, stream));
  must(test_vulkan_copy_from(back, memory, 0, 200, stream));
  assert_memory_equal(back, back + 100, 100);
  qn_stream_destroy(stream);
  test_vulkan_free(memory);
  test_vulkan_free(second);
  free(data);
  free(back);
}

// ---------------------------------------------------------------------------------- launches

static void call_fill(void* code, qn_stream_t* stream, void* out, uint64_t count, uint64_t value) {
  size_t size = count * 4;
  must(test_vulkan_call(code, TEST_FILL, stream, NULL, 1, &out, &size, 2,
                        (uint64_t[]){count, value}));
}
static void call_step(void* code, qn_stream_t* stream, void* x, void* y, uint64_t count) {
  must(test_vulkan_call(code, TEST_STEP, stream, NULL, 2, (void*[]){x, y},
                        (size_t[]){count * 4, count * 4}, 1, &count));
}

static void test_launches_run_in_order(void** state) {
  (void)state;
  NEED_DEVICE();
  enum { COUNT = 1000, STEPS = 300 };
  void* code = test_vulkan_load(NULL);
  uint32_t* x = test_vulkan_allocate(COUNT * 4);
  uint32_t* y = test_vulkan_allocate(COUNT * 4);
  uint32_t expected[COUNT], got[COUNT];
  // The submit timer would add submits, depending on the speed of this thread.
  test_vulkan_stop_submit_timer();
  uint64_t submits = test_vulkan_stats().submit_count;
  call_fill(code, NULL, y, COUNT, 5);
  for (uint32_t i = 0; i < COUNT; i++) expected[i] = 5 + i;
  for (uint32_t s = 0; s < STEPS; s++) {
    call_fill(code, NULL, x, COUNT, s);
    call_step(code, NULL, x, y, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) expected[i] = expected[i] * 3 + s + i;
  }
  must(test_vulkan_copy_from(got, y, 0, sizeof got, NULL));
  assert_memory_equal(got, expected, sizeof got);
  submits = test_vulkan_stats().submit_count - submits;
  if (submits > (2 * STEPS + 1) / 8 + 4) fail_msg("%u submits", (unsigned)submits);
  test_vulkan_allow_submit_timer();
  // A window on a buffer: arithmetic on handles.
  call_fill(code, NULL, y + 100, 10, 7);
  must(test_vulkan_copy_from(got, y, 100 * 4, 40, NULL));
  for (uint32_t i = 0; i < 10; i++) assert_int_equal(got[i], 7 + i);
  test_vulkan_unload(code);
  test_vulkan_free(x);
  test_vulkan_free(y);
}

// A stream remembers the arguments of its last launch. Here a block is freed and a new one gets the
// same address.
static void test_a_launch_like_the_last_looks_again_where_memory_went(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  size_t size = (size_t)100 << 20;
  void* first = test_vulkan_allocate(size);
  call_fill(code, NULL, first, 16, 1);
  call_fill(code, NULL, first, 16, 2);
  must(qn_stream_sync(test_vulkan, NULL));
  test_vulkan_free(first);
  size_t bytes = 64;
  must_fail(
      test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, &first, &bytes, 2, (uint64_t[]){16, 3}),
      QN_STATUS_INVALID_ARGUMENT, "freed memory");
  void* second = test_vulkan_allocate(size);
  assert_ptr_equal(second, first);
  call_fill(code, NULL, second, 16, 4);
  call_fill(code, NULL, second, 16, 5);
  uint32_t got[16];
  must(test_vulkan_copy_from(got, second, 0, sizeof got, NULL));
  for (uint32_t i = 0; i < 16; i++) assert_int_equal(got[i], 5 + i);
  // The same without a call between.
  call_fill(code, NULL, second, 16, 6);
  must(qn_stream_sync(test_vulkan, NULL));
  test_vulkan_free(second);
  void* third = test_vulkan_allocate(size);
  assert_ptr_equal(third, first);
  call_fill(code, NULL, third, 16, 7);
  must(test_vulkan_copy_from(got, third, 0, sizeof got, NULL));
  for (uint32_t i = 0; i < 16; i++) assert_int_equal(got[i], 7 + i);
  must(qn_stream_sync(test_vulkan, NULL));
  test_vulkan_unload(code);
  // New code at the address of the old code.
  code = test_vulkan_load(NULL);
  call_fill(code, NULL, third, 16, 8);
  must(test_vulkan_copy_from(got, third, 0, sizeof got, NULL));
  for (uint32_t i = 0; i < 16; i++) assert_int_equal(got[i], 8 + i);
  must(qn_stream_sync(test_vulkan, NULL));
  test_vulkan_unload(code);
  test_vulkan_free(third);
}

// The same buffers, other kernels and numbers in turn.
static void test_launches_alternate_on_the_same_buffers(void** state) {
  (void)state;
  NEED_DEVICE();
  enum { COUNT = 100 };
  void* code = test_vulkan_load(NULL);
  uint32_t* x = test_vulkan_allocate(COUNT * 4);
  uint32_t* y = test_vulkan_allocate(COUNT * 4);
  uint32_t expected[COUNT], got[COUNT];
  call_fill(code, NULL, x, COUNT, 3);
  call_fill(code, NULL, y, COUNT, 1);
  call_fill(code, NULL, y, COUNT, 2);
  for (uint32_t i = 0; i < COUNT; i++) expected[i] = 2 + i;
  for (uint32_t s = 0; s < 50; s++) {
    // Once, or twice on end, and with fewer elements: the end is another.
    uint32_t count = s % 3 == 0 ? COUNT / 2 : COUNT;
    for (uint32_t n = 0; n <= s % 2; n++) {
      call_step(code, NULL, x, y, count);
      for (uint32_t i = 0; i < count; i++) expected[i] = expected[i] * 3 + 3 + i;
    }
    if (s % 10 == 9) {
      call_fill(code, NULL, y, COUNT, s);
      for (uint32_t i = 0; i < COUNT; i++) expected[i] = s + i;
    }
  }
  must(test_vulkan_copy_from(got, y, 0, sizeof got, NULL));
  assert_memory_equal(got, expected, sizeof got);
  must(qn_stream_sync(test_vulkan, NULL));
  test_vulkan_unload(code);
  test_vulkan_free(x);
  test_vulkan_free(y);
}

static void test_kinds_of_kernels(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  uint32_t* out = test_vulkan_allocate(4096);
  uint32_t got[1024];
  size_t size = 4096;
  // The size of the block at the launch, a pipeline for each.
  uint64_t before = test_vulkan_stats().pipeline_count;
  for (uint64_t threads = 1; threads <= 128; threads *= 2) {
    for (int again = 0; again < 2; again++) {
      must(test_vulkan_call(code, TEST_SIZE, NULL, NULL, 1, (void**)&out, &size, 1, &threads));
    }
    must(test_vulkan_copy_from(got, out, 0, size, NULL));
    assert_int_equal(got[0], threads);
    assert_int_equal(got[2 * threads - 1], threads);
  }
  assert_int_equal(test_vulkan_stats().pipeline_count - before, 8);
  uint64_t too_many = 1 << 20;
  must_fail(test_vulkan_call(code, TEST_SIZE, NULL, NULL, 1, (void**)&out, &size, 1, &too_many),
            QN_STATUS_VALUE_ERROR, NULL);
  // Parameters in a buffer, more of them than fit into one piece of it.
  for (uint32_t round = 0; round < 300; round++) {
    uint64_t numbers[40];
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 40; i++) {
      numbers[i] = i * 1000 + round;
      sum = sum * 31 + (uint32_t)numbers[i];
    }
    uint32_t* place = out + round % 1024;
    size_t left = 4;
    must(test_vulkan_call(code, TEST_MANY, NULL, NULL, 1, (void**)&place, &left, 40, numbers));
    if (round % 100 == 99) {
      must(test_vulkan_copy_from(got, out, (round % 1024) * 4, 4, NULL));
      assert_int_equal(got[0], sum);
    }
  }
  // Elements of one byte at odd places, and a grid beyond every limit.
  uint8_t* bytes = (uint8_t*)out + 3;
  size_t count = 777;
  must(test_vulkan_call(code, TEST_BYTES, NULL, NULL, 1, (void**)&bytes, &count, 2,
                        (uint64_t[]){count, 9}));
  uint8_t small[777];
  must(test_vulkan_copy_from(small, bytes, 0, count, NULL));
  for (size_t i = 0; i < count; i++) assert_int_equal(small[i], (uint8_t)(9 + i));
  // Workspace inside of a function.
  call_fill(code, NULL, out, 100, 1);
  for (uint32_t i = 0; i < 100; i++) got[i] = 1 + i;
  size_t hundred = 400;
  for (uint64_t round = 0; round < 10; round++) {
    must(test_vulkan_call(code, TEST_TWICE, NULL, NULL, 1, (void**)&out, &hundred, 2,
                          (uint64_t[]){100, round}));
    for (uint32_t i = 0; i < 100; i++) got[i] = got[i] * 3 + (uint32_t)round + i;
  }
  uint32_t result[100];
  must(test_vulkan_copy_from(result, out, 0, 400, NULL));
  assert_memory_equal(result, got, 400);
  test_vulkan_unload(code);
  test_vulkan_free(out);
}

static void test_calls_with_bad_memory_are_refused(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  char* out = test_vulkan_allocate(4096);
  uint32_t host[4];
  size_t size = 16;
  uint64_t scalars[] = {4, 0};
  void* wrong[] = {host, out + ((size_t)1 << 39), out + ((size_t)1 << 53), out + 2};
  for (size_t i = 0; i < QN_COUNT_OF(wrong); i++) {
    must_fail(test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, &wrong[i], &size, 2, scalars),
              QN_STATUS_INVALID_ARGUMENT, "vulkan:0");
  }
  // A buffer without elements may be anywhere.
  void* nothing = NULL;
  size_t zero = 0;
  must(test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, &nothing, &zero, 2, (uint64_t[]){0, 0}));
  must(qn_stream_sync(test_vulkan, NULL));
  test_vulkan_free(out);
  test_vulkan_unload(code);
}

// ---------------------------------------------------------------------------------- failures

static void test_failures_surface_once(void** state) {
  (void)state;
  NEED_DEVICE();
  enum { COUNT = 5000 };
  void* code = test_vulkan_load(NULL);
  void* x = test_vulkan_allocate(COUNT * 4);
  void* out = test_vulkan_allocate(COUNT * 4);
  void* behind = test_vulkan_allocate(COUNT * 4);
  size_t sizes[] = {COUNT * 4, COUNT * 4};
  test_owner_t fine = {0}, failing = {0}, skipped = {0};
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  for (int round = 0; round < 3; round++) {
    uint32_t zeros[16] = {0}, got[16];
    must(test_vulkan_copy_to(behind, 0, zeros, sizeof zeros, stream));
    call_fill(code, stream, x, COUNT, 0);
    must(test_vulkan_call(code, TEST_CHECK, stream, &fine, 2, (void*[]){x, out}, sizes, 2,
                          (uint64_t[]){COUNT, COUNT}));
    must(test_vulkan_call(code, TEST_CHECK, stream, &failing, 2, (void*[]){x, out}, sizes, 2,
                          (uint64_t[]){COUNT, COUNT - 2}));
    must(test_vulkan_call(code, TEST_CHECK, stream, &skipped, 2, (void*[]){x, behind}, sizes, 2,
                          (uint64_t[]){COUNT, COUNT}));
    char text[64];
    (void)snprintf(text, sizeof text, "site 7 index %d extent %d", COUNT - 1, COUNT - 2);
    must_fail(qn_stream_sync(test_vulkan, stream), QN_STATUS_OUT_OF_BOUNDS, text);
    must(qn_stream_sync(test_vulkan, stream));
    assert_int_equal(failing.described_count, round + 1);
    assert_int_equal(fine.described_count + skipped.described_count, 0);
    assert_int_equal(fine.reference_count, 0);
    assert_int_equal(failing.reference_count, 0);
    assert_int_equal(skipped.reference_count, 0);
    must(test_vulkan_copy_from(got, behind, 0, sizeof got, stream));
    assert_memory_equal(got, zeros, sizeof got);
    // The stream works as before.
    must(test_vulkan_call(code, TEST_CHECK, stream, &fine, 2, (void*[]){x, behind}, sizes, 2,
                          (uint64_t[]){COUNT, COUNT}));
    must(qn_stream_sync(test_vulkan, stream));
    must(test_vulkan_copy_from(got, behind, 0, sizeof got, stream));
    assert_int_equal(got[15], 15);
  }
  // A failure on one stream is not another's.
  qn_stream_t* other;
  must(qn_stream_create(test_vulkan, &other));
  must(test_vulkan_call(code, TEST_CHECK, stream, &failing, 2, (void*[]){x, out}, sizes, 2,
                        (uint64_t[]){COUNT, 1}));
  must(test_vulkan_call(code, TEST_CHECK, other, &fine, 2, (void*[]){x, behind}, sizes, 2,
                        (uint64_t[]){COUNT, COUNT}));
  must(qn_stream_sync(test_vulkan, other));
  // Destroying a stream drops its error.
  qn_stream_destroy(stream);
  qn_stream_destroy(other);
  assert_int_equal(failing.reference_count, 0);
  test_vulkan_unload(code);
  test_vulkan_free(x);
  test_vulkan_free(out);
  test_vulkan_free(behind);
}

// ---------------------------------------------------------------------------------- streams

static void test_streams_wait_for_each_other_on_the_device(void** state) {
  (void)state;
  NEED_DEVICE();
  enum { COUNT = 256, ROUNDS = 50 };
  void* code = test_vulkan_load(NULL);
  qn_stream_t* streams[3];
  for (size_t i = 0; i < 3; i++) must(qn_stream_create(test_vulkan, &streams[i]));
  void* x = test_vulkan_allocate(COUNT * 4);
  void* y = test_vulkan_allocate(COUNT * 4);
  uint32_t expected[COUNT], got[COUNT];
  call_fill(code, streams[0], x, COUNT, 1);
  call_fill(code, streams[0], y, COUNT, 2);
  for (uint32_t i = 0; i < COUNT; i++) expected[i] = 2 + i;
  for (size_t round = 0; round < ROUNDS; round++) {
    qn_stream_t* from = streams[round % 3];
    qn_stream_t* to = streams[(round + 1) % 3];
    must(qn_stream_wait(test_vulkan, from, to));
    call_step(code, to, x, y, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) expected[i] = expected[i] * 3 + 1 + i;
  }
  // A chain through a stream that has nothing of its own to do.
  qn_stream_t* last = streams[ROUNDS % 3];
  qn_stream_t* empty;
  must(qn_stream_create(test_vulkan, &empty));
  must(qn_stream_wait(test_vulkan, last, empty));
  must(qn_stream_wait(test_vulkan, empty, NULL));
  call_step(code, NULL, x, y, COUNT);
  for (uint32_t i = 0; i < COUNT; i++) expected[i] = expected[i] * 3 + 1 + i;
  must(test_vulkan_copy_from(got, y, 0, sizeof got, NULL));
  assert_memory_equal(got, expected, sizeof got);
  for (size_t i = 0; i < 3; i++) qn_stream_destroy(streams[i]);
  qn_stream_destroy(empty);
  test_vulkan_unload(code);
  test_vulkan_free(x);
  test_vulkan_free(y);
}

// Keeps a stream busy for some milliseconds. Mesa's software driver ends loops after 65,535 rounds
// of an invocation, so it takes many launches.
enum { SPINS = 300, SPIN_ROUNDS = 60000 };
static void spin(void* code, qn_stream_t* stream, test_owner_t* owner, void* out) {
  size_t size = 4;
  uint64_t rounds = SPIN_ROUNDS;
  for (int i = 0; i < SPINS; i++) {
    must(test_vulkan_call(code, TEST_SPIN, stream, owner, 1, &out, &size, 1, &rounds));
  }
}

static void test_idle_and_destroy_with_work_queued(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  uint32_t* out = test_vulkan_allocate(64);
  uint32_t zero = 0;
  test_owner_t owner = {0};
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  assert_true(qn_stream_is_idle(stream));
  must(test_vulkan_copy_to(out, 0, &zero, 4, stream));
  spin(code, stream, &owner, out);
  // The stream is busy while an owner is retained; the work may be complete if this thread was
  // delayed.
  bool is_idle = qn_stream_is_idle(stream);
  assert_int_equal(is_idle, owner.reference_count == 0);
  while (!qn_stream_is_idle(stream)) (void)sched_yield();
  assert_int_equal(owner.reference_count, 0);
  spin(code, stream, &owner, out);
  qn_stream_destroy(stream);
  assert_int_equal(owner.reference_count, 0);
  uint32_t got;
  must(test_vulkan_copy_from(&got, out, 0, 4, NULL));
  uint32_t expected = 0;
  for (int i = 0; i < 2 * SPINS * SPIN_ROUNDS; i++) expected = expected * 1664525u + 1013904223u;
  assert_int_equal(got, expected);
  test_vulkan_unload(code);
  test_vulkan_free(out);
}

static void test_workspace_follows_streams(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  uint32_t* busy = test_vulkan_allocate(64);
  qn_stream_t *one, *two;
  must(qn_stream_create(test_vulkan, &one));
  must(qn_stream_create(test_vulkan, &two));
  void *first, *again, *other;
  must(qn_workspace_allocate(test_vulkan, one, 100000, &first));
  spin(code, one, NULL, busy);
  // The work may be complete by now, but the stream does not know it.
  qn__vk_device_t* device = qn__vk_find(0);
  PFN_vkGetSemaphoreCounterValue real = device->vk.GetSemaphoreCounterValue;
  device->vk.GetSemaphoreCounterValue = test_vulkan_no_progress;
  must(qn_workspace_free(test_vulkan, one, first));
  must_fail(qn_workspace_free(test_vulkan, one, first), QN_STATUS_INVALID_ARGUMENT,
            "not a workspace");
  // The same stream reuses the part at once; another stream only after completion.
  must(qn_workspace_allocate(test_vulkan, one, 100000, &again));
  assert_ptr_equal(again, first);
  must(qn_workspace_free(test_vulkan, one, again));
  must(qn_workspace_allocate(test_vulkan, two, 100000, &other));
  assert_ptr_not_equal(other, first);
  must(qn_workspace_free(test_vulkan, two, other));
  device->vk.GetSemaphoreCounterValue = real;
  must(qn_stream_sync(test_vulkan, one));
  void* later[2];
  for (size_t i = 0; i < 2; i++) {
    must(qn_workspace_allocate(test_vulkan, two, 100000, &later[i]));
  }
  assert_true(later[0] == first || later[1] == first);
  for (size_t i = 0; i < 2; i++) must(qn_workspace_free(test_vulkan, two, later[i]));
  void* empty;
  must(qn_workspace_allocate(test_vulkan, two, 0, &empty));
  must(qn_workspace_free(test_vulkan, two, empty));
  qn_stream_destroy(one);
  qn_stream_destroy(two);
  test_vulkan_unload(code);
  test_vulkan_free(busy);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_every_target_option_is_answered),
      cmocka_unit_test(test_allocations_are_apart_and_aligned),
      cmocka_unit_test(test_bad_addresses_are_refused),
      cmocka_unit_test(test_large_memory_comes_and_goes),
      cmocka_unit_test(test_empty_blocks_are_given_back),
      cmocka_unit_test(test_pinned_memory),
      cmocka_unit_test(test_copies_in_parts),
      cmocka_unit_test(test_launches_run_in_order),
      cmocka_unit_test(test_a_launch_like_the_last_looks_again_where_memory_went),
      cmocka_unit_test(test_launches_alternate_on_the_same_buffers),
      cmocka_unit_test(test_kinds_of_kernels),
      cmocka_unit_test(test_calls_with_bad_memory_are_refused),
      cmocka_unit_test(test_failures_surface_once),
      cmocka_unit_test(test_streams_wait_for_each_other_on_the_device),
      cmocka_unit_test(test_idle_and_destroy_with_work_queued),
      cmocka_unit_test(test_workspace_follows_streams),
      cmocka_unit_test(test_vulkan_is_silent),
  };
  return cmocka_run_group_tests(tests, test_vulkan_begin_ordered, test_vulkan_end);
}
#else
int main(void) {
  return 0;
}
#endif
