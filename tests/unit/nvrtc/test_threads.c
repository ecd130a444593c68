// SPDX-License-Identifier: Apache-2.0
// tests/unit/nvrtc/test_threads.c: compiles on several threads, while the generator still warms up.
// ctest-labels: tsan
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
// cmocka.h needs those above.
#include <cmocka.h>

#include "tests/unit/nvrtc/support_nvrtc.h"

enum { THREADS = 2, ROUNDS = 4 };

static const char text[] =
    "func scale(a: f32, x: f32[n], out y: f32[n]) {\n"
    "  parallel i in 0..n { y[i] = a * x[i]; }\n"
    "}\n";

typedef struct worker {
  qn__nvrtc_t* nvrtc;
  const qn_compile_request_t* request;
  qn__buffer_t cubins[ROUNDS];
  bool has_failed;
} worker_t;

static void* work(void* self) {
  worker_t* worker = self;
  for (int i = 0; i < ROUNDS; i++) {
    qn_status_t status =
        qn__nvrtc_emit(worker->nvrtc, worker->request, "cubin", sink_of(&worker->cubins[i]));
    if (!qn_ok(status)) worker->has_failed = true;
    qn_status_free(status);
  }
  return NULL;
}

static void threads_get_the_same(void** state) {
  (void)state;
  qn__nvrtc_t* nvrtc = nvrtc_or_null(qn_allocator_default());
  if (!nvrtc) skip();
  program_t program = program_make(text, "cuda -arch=sm_90a", QN_TIER_FULL, false);
  worker_t workers[THREADS];
  pthread_t threads[THREADS];
  for (int t = 0; t < THREADS; t++) {
    workers[t] = (worker_t){.nvrtc = nvrtc, .request = &program.request};
    for (int i = 0; i < ROUNDS; i++) {
      qn__buffer_init(&workers[t].cubins[i], qn_allocator_default());
    }
    assert_int_equal(pthread_create(&threads[t], NULL, work, &workers[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) {
    assert_int_equal(pthread_join(threads[t], NULL), 0);
    assert_false(workers[t].has_failed);
  }
  const qn__buffer_t* first = &workers[0].cubins[0];
  assert_true(first->size > 0);
  for (int t = 0; t < THREADS; t++) {
    for (int i = 0; i < ROUNDS; i++) {
      qn__buffer_t* other = &workers[t].cubins[i];
      assert_int_equal(other->size, first->size);
      assert_memory_equal(other->data, first->data, first->size);
    }
  }
  for (int t = 0; t < THREADS; t++) {
    for (int i = 0; i < ROUNDS; i++) qn__buffer_deinit(&workers[t].cubins[i]);
  }
  program_release(&program);
  qn__nvrtc_destroy(nvrtc);
}

static void unused_generator_ends(void** state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    qn__nvrtc_t* nvrtc = nvrtc_or_null(qn_allocator_default());
    if (!nvrtc) skip();
    qn__nvrtc_destroy(nvrtc);
  }
}

int main(void) {
  nvrtc_use_build_folder();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_get_the_same),
      cmocka_unit_test(unused_generator_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
