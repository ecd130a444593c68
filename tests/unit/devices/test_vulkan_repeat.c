// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // usleep
// Repeated launches on one Vulkan stream, equal or partly equal, mixed with all steps that
// invalidate the memory of the last launch. Results are compared with a model on the host.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/must.h"
#include "tests/unit/devices/support_vulkan.h"

#if QN_HAVE_VULKAN
enum { BUFFERS = 3, COUNT = 256, SCALARS = 40 };

// The arguments of one launch.
typedef struct call {
  test_function_t function;
  size_t x, y;  // buffers; `x` is read
  size_t x_first, y_first;
  uint64_t scalars[SCALARS];  // the first is a count
} call_t;

static uint64_t random_state;
static void* code;
static qn_stream_t* stream;
static qn_stream_t* other;
static uint32_t* memory[BUFFERS];
static uint32_t model[BUFFERS][COUNT];
static test_owner_t owners[2];

static uint32_t next(uint32_t limit) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(random_state >> 33) % limit;
}

static void compare(size_t b) {
  uint32_t got[COUNT];
  must(test_vulkan_copy_from(got, memory[b], 0, sizeof got, stream));
  for (size_t i = 0; i < COUNT; i++) {
    if (got[i] == model[b][i]) continue;
    fail_msg("buffer %zu element %zu: %u, expected %u", b, i, got[i], model[b][i]);
  }
}

// ---------------------------------------------------------------------------------- one launch

// Applies the launch to the model. `*out_bytes`: the size of y.
static void imagine(const call_t* call, size_t* out_bytes) {
  uint32_t* y = model[call->y] + call->y_first;
  const uint32_t* x = model[call->x] + call->x_first;
  size_t count = call->scalars[0];
  uint32_t value = (uint32_t)call->scalars[1];
  *out_bytes = count * 4;
  switch (call->function) {
    case TEST_FILL:
      for (size_t i = 0; i < count; i++) y[i] = value + (uint32_t)i;
      break;
    case TEST_STEP:
      for (size_t i = 0; i < count; i++) y[i] = y[i] * 3 + x[i];
      break;
    case TEST_TWICE:
      for (size_t i = 0; i < count; i++) y[i] = y[i] * 3 + value + (uint32_t)i;
      break;
    case TEST_SIZE:  // two blocks of `count` threads
      for (size_t i = 0; i < 2 * count; i++) y[i] = (uint32_t)count;
      *out_bytes = 2 * count * 4;
      break;
    case TEST_MANY:
      y[0] = 0;
      for (size_t i = 0; i < SCALARS; i++) y[0] = y[0] * 31 + (uint32_t)call->scalars[i];
      *out_bytes = 4;
      break;
    default:  // TEST_CHECK, of which no element is beyond the limit
      memcpy(y, x, count * 4);
      break;
  }
}

static qn_status_t launch(const call_t* call, size_t bytes) {
  bool has_x = call->function == TEST_STEP || call->function == TEST_CHECK;
  void* x = memory[call->x] + call->x_first;
  void* y = memory[call->y] + call->y_first;
  size_t scalars = call->function == TEST_MANY   ? SCALARS
                   : call->function == TEST_STEP ? 1
                   : call->function == TEST_SIZE ? 1
                                                 : 2;
  return test_vulkan_call(code, call->function, stream, &owners[next(2)], has_x ? 2 : 1,
                          has_x ? (void*[]){x, y} : (void*[]){y},
                          has_x ? (size_t[]){call->scalars[0] * 4, bytes} : (size_t[]){bytes},
                          scalars, call->scalars);
}

static void new_numbers(call_t* call) {
  for (size_t i = 1; i < SCALARS; i++) call->scalars[i] = next(1000);
  if (call->function == TEST_CHECK) call->scalars[1] = UINT32_MAX;
}

static void new_call(call_t* call) {
  static const test_function_t functions[] = {TEST_FILL, TEST_STEP, TEST_TWICE,
                                              TEST_SIZE, TEST_MANY, TEST_CHECK};
  call->function = functions[next(QN_COUNT_OF(functions))];
  call->y = next(BUFFERS);
  call->x = (call->y + 1 + next(BUFFERS - 1)) % BUFFERS;
  call->x_first = next(3) * 16;
  call->y_first = next(3) * 16;
  call->scalars[0] = 1 + next(64);
  new_numbers(call);
}

// Launches work that fails at its first element. It and all later work is skipped until a sync
// returns the failure.
static void fail_once(const call_t* last) {
  call_t call = *last;
  call.function = TEST_CHECK;
  if (call.x == call.y) return;
  for (size_t i = 0; i < call.scalars[0]; i++) {
    if (model[call.x][call.x_first + i] == 0) return;
  }
  call.scalars[1] = 0;
  for (uint32_t i = 0; i <= next(3); i++) must(launch(&call, call.scalars[0] * 4));
  qn_status_t status = qn_stream_sync(test_vulkan, stream);
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_BOUNDS);
  qn_status_free(status);
  must(qn_stream_sync(test_vulkan, stream));
}

// ---------------------------------------------------------------------------------- in between

static void renew(size_t b) {
  must(qn_stream_sync(test_vulkan, stream));
  void* old = memory[b];
  // Large buffers have a block of their own, at the address of the last one.
  size_t size = sizeof model[b] + (next(3) ? (size_t)40 << 20 : 0);
  bool is_first = next(3) != 0;
  if (is_first) test_vulkan_free(old);
  memory[b] = test_vulkan_allocate(size);
  if (!is_first) test_vulkan_free(old);
  must(test_vulkan_copy_to(memory[b], 0, model[b], sizeof model[b], stream));
}

static void disturb(const call_t* last) {
  size_t b = next(BUFFERS), c = (b + 1) % BUFFERS;
  switch (next(9)) {
    case 0:
      usleep(next(400));  // what is recorded is submitted meanwhile
      break;
    case 1:
      renew(next(2) ? last->y : b);
      break;
    case 2:
      must(qn_stream_sync(test_vulkan, stream));
      test_vulkan_unload(code);
      code = test_vulkan_load(NULL);
      break;
    case 3:  // another stream writes what the last launch wrote
      must(qn_stream_wait(test_vulkan, stream, other));
      memcpy(model[last->y], model[(last->y + 1) % BUFFERS], sizeof model[b]);
      must(test_vulkan_copy(memory[last->y], 0, memory[(last->y + 1) % BUFFERS], 0, sizeof model[b],
                            other));
      must(qn_stream_wait(test_vulkan, other, stream));
      break;
    case 4:
      memcpy(model[c], model[b], 64);
      must(test_vulkan_copy(memory[c], 0, memory[b], 0, 64, stream));
      break;
    case 5:
      model[b][3]++;
      must(test_vulkan_copy_to(memory[b], 12, &model[b][3], 4, stream));
      break;
    case 6:
      fail_once(last);
      break;
    case 7: {  // a call that is refused halfway: its second buffer is nobody's
      size_t sizes[] = {64, 64};
      qn_status_t status = test_vulkan_call(code, TEST_STEP, stream, NULL, 2,
                                            (void*[]){memory[b], (void*)(uintptr_t)4096}, sizes, 1,
                                            (uint64_t[]){16});
      assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
      qn_status_free(status);
      break;
    }
    default:
      compare(b);
      break;
  }
}

static void test_repeats_match_a_model(void** state) {
  (void)state;
  NEED_DEVICE();
  code = test_vulkan_load(NULL);
  for (uint64_t seed = 0; seed < 8; seed++) {
    random_state = seed * 77 + 5;
    memset(model, 0, sizeof model);
    if (seed % 2) must(qn_stream_create(test_vulkan, &stream));
    must(qn_stream_create(test_vulkan, &other));
    for (size_t b = 0; b < BUFFERS; b++) {
      memory[b] = test_vulkan_allocate(sizeof model[b]);
      must(test_vulkan_copy_to(memory[b], 0, model[b], sizeof model[b], stream));
    }
    call_t call = {.scalars = {1}};
    new_call(&call);
    for (int i = 0; i < 400; i++) {
      size_t bytes;
      imagine(&call, &bytes);
      must(launch(&call, bytes));
      if (next(3) == 0) disturb(&call);
      // The same launch, other scalars, fewer or more elements, or another kernel.
      uint32_t choice = next(6);
      if (choice == 1) new_numbers(&call);
      if (choice == 2) call.scalars[0] = 1 + next(64);
      if (choice >= 4) new_call(&call);
    }
    for (size_t b = 0; b < BUFFERS; b++) compare(b);
    must(qn_stream_sync(test_vulkan, stream));
    qn_stream_destroy(stream);
    qn_stream_destroy(other);
    stream = NULL;
    for (size_t b = 0; b < BUFFERS; b++) test_vulkan_free(memory[b]);
    for (size_t i = 0; i < QN_COUNT_OF(owners); i++) {
      assert_int_equal(owners[i].reference_count, 0);
    }
  }
  test_vulkan_unload(code);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_repeats_match_a_model)};
  return cmocka_run_group_tests(tests, test_vulkan_begin, test_vulkan_end);
}
#else
int main(void) {
  return 0;
}
#endif
