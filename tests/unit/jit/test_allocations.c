// SPDX-License-Identifier: Apache-2.0
// A call and a memory hit allocate nothing: the C library's allocator is counted by taking its
// place. Sanitizers have allocators of their own: there the test is skipped.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quern/quern.h"
#include "tests/support/must.h"
#include "tests/support/sanitized.h"

static _Atomic long allocation_count;

#if !IS_SANITIZED
// glibc's own entries behind the public names.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* pointer, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  allocation_count++;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  allocation_count++;
  return __libc_calloc(count, size);
}
void* realloc(void* pointer, size_t size) {
  allocation_count++;
  return __libc_realloc(pointer, size);
}
int posix_memalign(void** out_pointer, size_t alignment, size_t size) {
  allocation_count++;
  *out_pointer = __libc_memalign(alignment, size);
  return *out_pointer ? 0 : 12;
}
#endif

static void test_calls_allocate_nothing(void** state) {
  (void)state;
#if IS_SANITIZED
  skip();
#endif
  static const char text[] =
      "func f(a: f32, k: i32, x: f32[n, m], s: f32[n + 1], inout y: f32[n, m]) {\n"
      "  parallel i in 0..n {\n"
      "    for j in 0..m { y[i, j] = a * x[i, j] + s[i] + f32(k); }\n"
      "  }\n"
      "}\n";
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_mode = QN_CACHE_OFF, .ignores_environment = true};
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_function_t* function;
  must(qn_engine_create(&options, &engine));
  must(qn_module_parse(text, sizeof text - 1, NULL, &module));
  must(qn_target_parse(QN_HAVE_LLVM ? "cpu" : "null", &target));
  must(qn_engine_function(engine, module, target, "f", NULL, NULL, &function));

  // Large enough for the pool.
  static float x[512 * 512], s[513], y[512 * 512];
  int64_t shape[] = {512, 512}, s_shape[] = {513};
  qn_device_t device = {QN_HAVE_LLVM ? QN_DEVICE_CPU : QN_DEVICE_NULL, 0};
  qn_dl_dtype_t f32 = qn_dtype_to_dl(QN_DTYPE_F32);
  qn_tensor_t tx = {x, device, 2, f32, shape, NULL, 0};
  qn_tensor_t ts = {s, device, 1, f32, s_shape, NULL, 0};
  qn_tensor_t ty = {y, device, 2, f32, shape, NULL, 0};
  qn_value_t args[] = {qn_value_float(2), qn_value_int(3), qn_value_tensor(&tx),
                       qn_value_tensor(&ts), qn_value_tensor(&ty)};
  // The first call may start the pool's threads.
  must(qn_function_call(function, args, 5, NULL));

  long before = allocation_count;
  for (int i = 0; i < 100; i++) must(qn_function_call(function, args, 5, NULL));
  assert_int_equal(allocation_count - before, 0);

  before = allocation_count;
  for (int i = 0; i < 100; i++) {
    qn_executable_t* executable;
    must(qn_engine_executable(engine, module, target, NULL, NULL, &executable));
    qn_executable_release(executable);
  }
  assert_int_equal(allocation_count - before, 0);

  // On a stream too: words go into the stream's ring.
  qn_stream_t* stream;
  must(qn_stream_create(device, &stream));
  must(qn_function_call_on(function, stream, args, 5, NULL));
  must(qn_stream_sync(device, stream));
  before = allocation_count;
  for (int i = 0; i < 100; i++) must(qn_function_call_on(function, stream, args, 5, NULL));
  must(qn_stream_sync(device, stream));
  assert_int_equal(allocation_count - before, 0);
  qn_stream_destroy(stream);
  // The counter counts.
  before = allocation_count;
  qn_module_t* again;
  must(qn_module_parse(text, sizeof text - 1, NULL, &again));
  assert_true(allocation_count > before);
  qn_module_release(again);

  qn_function_release(function);
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls_allocate_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
