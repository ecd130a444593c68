// SPDX-License-Identifier: Apache-2.0
// Many threads on one Vulkan device, and random graphs of copies and launches over several streams
// against a model on the host. ctest-labels: tsan
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/devices/support_vulkan.h"

#if QN_HAVE_VULKAN
#include "base/thread.h"
#include "tests/support/must.h"

static bool checks_order;

static uint32_t next(uint64_t* state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

// ---------------------------------------------------------------------------------- one graph

enum { BUFFERS = 6, COUNT = 512, STREAMS = 3 };

// The state of one thread. Statuses are checked with `ok`, as only the main thread may assert.
typedef struct graph {
  uint64_t random;
  void* code;
  bool uses_default;  // streams[0] is the default one
  qn_stream_t* streams[STREAMS];
  uint32_t* memory[BUFFERS];
  uint32_t model[BUFFERS][COUNT];
  size_t last[BUFFERS];  // the stream that used it last
  char message[512];
} graph_t;

static bool ok(graph_t* g, qn_status_t status) {
  bool is_fine = qn_ok(status);
  if (!is_fine) (void)snprintf(g->message, sizeof g->message, "%s", qn_status_message(status));
  qn_status_free(status);
  return is_fine;
}

// Makes stream `s` wait for the streams that used the buffer.
static bool need(graph_t* g, size_t buffer, size_t s) {
  size_t from = g->last[buffer];
  g->last[buffer] = s;
  if (from == s) return true;
  return ok(g, qn_stream_wait(test_vulkan, g->streams[from], g->streams[s]));
}

static bool compare(graph_t* g, size_t b, size_t s) {
  uint32_t got[COUNT];
  if (!ok(g, test_vulkan_copy_from(got, g->memory[b], 0, sizeof got, g->streams[s]))) return false;
  for (size_t i = 0; i < COUNT; i++) {
    if (got[i] == g->model[b][i]) continue;
    (void)snprintf(g->message, sizeof g->message, "buffer %zu element %zu: %u, expected %u", b, i,
                   got[i], g->model[b][i]);
    return false;
  }
  return true;
}

static bool act(graph_t* g) {
  size_t a = next(&g->random) % BUFFERS;
  size_t b = (a + 1 + next(&g->random) % (BUFFERS - 1)) % BUFFERS;
  size_t s = next(&g->random) % STREAMS;
  qn_stream_t* stream = g->streams[s];
  uint32_t value = next(&g->random) % 1000;
  size_t first = next(&g->random) % 64;
  size_t count = 1 + next(&g->random) % (COUNT - 64);
  size_t bytes[] = {count * 4, count * 4};
  switch (next(&g->random) % 9) {
    case 0:
    case 1: {
      void* out = g->memory[a] + first;
      if (!need(g, a, s)) return false;
      for (size_t i = 0; i < count; i++) g->model[a][first + i] = value + (uint32_t)i;
      return ok(g, test_vulkan_call(g->code, TEST_FILL, stream, NULL, 1, &out, bytes, 2,
                                    (uint64_t[]){count, value}));
    }
    case 2:
    case 3: {
      void* buffers[] = {g->memory[a] + first, g->memory[b]};
      if (!need(g, a, s) || !need(g, b, s)) return false;
      for (size_t i = 0; i < count; i++) {
        g->model[b][i] = g->model[b][i] * 3 + g->model[a][first + i];
      }
      return ok(g, test_vulkan_call(g->code, TEST_STEP, stream, NULL, 2, buffers, bytes, 1,
                                    (uint64_t[]){count}));
    }
    case 4: {
      void* out = g->memory[a];
      if (!need(g, a, s)) return false;
      for (size_t i = 0; i < count; i++) {
        g->model[a][i] = g->model[a][i] * 3 + value + (uint32_t)i;
      }
      return ok(g, test_vulkan_call(g->code, TEST_TWICE, stream, NULL, 1, &out, bytes, 2,
                                    (uint64_t[]){count, value}));
    }
    case 5: {
      if (!need(g, a, s) || !need(g, b, s)) return false;
      memcpy(&g->model[b][first], &g->model[a][0], count * 4);
      return ok(g, test_vulkan_copy(g->memory[b], first * 4, g->memory[a], 0, count * 4, stream));
    }
    case 6: {
      uint32_t data[COUNT];
      if (!need(g, a, s)) return false;
      for (size_t i = 0; i < count; i++) data[i] = g->model[a][first + i] = value * (uint32_t)i;
      return ok(g, test_vulkan_copy_to(g->memory[a], first * 4, data, count * 4, stream));
    }
    case 7:
      return need(g, a, s) && compare(g, a, s);
    default: {
      // New memory for a buffer that is no longer used.
      if (!ok(g, qn_stream_sync(test_vulkan, g->streams[g->last[a]]))) return false;
      void* fresh;
      size_t size = sizeof g->model[a] + (next(&g->random) % 3 == 0 ? (size_t)40 << 20 : 0);
      if (!ok(g, qn_device_allocate(test_vulkan, size, 0, &fresh))) return false;
      if (!ok(g, test_vulkan_copy_to(fresh, 0, g->model[a], sizeof g->model[a],
                                     g->streams[g->last[a]]))) {
        return false;
      }
      void* old = g->memory[a];
      g->memory[a] = fresh;
      return ok(g, qn_device_free(test_vulkan, old));
    }
  }
}

static bool graph_begin(graph_t* g, uint64_t seed, void* code, bool uses_default) {
  memset(g, 0, sizeof *g);
  g->random = seed * 77 + 1;
  g->code = code;
  g->uses_default = uses_default;
  for (size_t s = uses_default ? 1 : 0; s < STREAMS; s++) {
    if (!ok(g, qn_stream_create(test_vulkan, &g->streams[s]))) return false;
  }
  for (size_t b = 0; b < BUFFERS; b++) {
    if (!ok(g, qn_device_allocate(test_vulkan, sizeof g->model[b], 0, (void**)&g->memory[b])) ||
        !ok(g,
            test_vulkan_copy_to(g->memory[b], 0, g->model[b], sizeof g->model[b], g->streams[0]))) {
      return false;
    }
  }
  return true;
}

static bool graph_end(graph_t* g) {
  bool is_fine = g->message[0] == '\0';
  for (size_t b = 0; b < BUFFERS; b++) is_fine = is_fine && compare(g, b, g->last[b]);
  for (size_t s = 0; s < STREAMS; s++) {
    is_fine = ok(g, qn_stream_sync(test_vulkan, g->streams[s])) && is_fine;
    qn_stream_destroy(g->streams[s]);
  }
  for (size_t b = 0; b < BUFFERS; b++)
    is_fine = ok(g, qn_device_free(test_vulkan, g->memory[b])) && is_fine;
  return is_fine;
}

static void test_random_graphs_match_a_model(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  static graph_t g;
  for (uint64_t seed = 0; seed < 60; seed++) {
    bool is_fine = graph_begin(&g, seed, code, seed % 2 == 0);
    for (int i = 0; is_fine && i < 150; i++) is_fine = act(&g);
    is_fine = is_fine && graph_end(&g);
    if (!is_fine) fail_msg("seed %u: %s", (unsigned)seed, g.message);
  }
  test_vulkan_unload(code);
}

// ---------------------------------------------------------------------------------- many threads

enum { THREADS = 4 };
typedef struct worker {
  pthread_t thread;
  graph_t graph;
  uint64_t seed;
  void* shared_code;
  bool is_fine;
} worker_t;

static void* work(void* arg) {
  worker_t* self = arg;
  graph_t* g = &self->graph;
  self->is_fine = graph_begin(g, self->seed, self->shared_code, true);
  for (int i = 0; self->is_fine && i < 120; i++) self->is_fine = act(g);
  self->is_fine = self->is_fine && graph_end(g);
  return NULL;
}

static void test_threads_share_a_device(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  static worker_t workers[THREADS];
  for (uint64_t round = 0; round < 3; round++) {
    for (size_t i = 0; i < THREADS; i++) {
      workers[i].seed = 1000 + round * THREADS + i;
      workers[i].shared_code = code;
      must(qn__thread_start(&workers[i].thread, "worker", 0, work, &workers[i]));
    }
    for (size_t i = 0; i < THREADS; i++) (void)pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < THREADS; i++) {
      if (!workers[i].is_fine) fail_msg("thread %zu: %s", i, workers[i].graph.message);
    }
  }
  test_vulkan_unload(code);
}

// Threads on the one default stream: each element is counted by all.
typedef struct counter {
  pthread_t thread;
  void* code;
  void* x;
  void* y;
  test_owner_t owner;
  qn_status_t status;
} counter_t;
enum { CALLS = 200 };

static void* count_up(void* arg) {
  counter_t* self = arg;
  size_t sizes[] = {COUNT * 4, COUNT * 4};
  for (int i = 0; i < CALLS && qn_ok(self->status); i++) {
    self->status =
        test_vulkan_call(self->code, TEST_CHECK, NULL, &self->owner, 2, (void*[]){self->x, self->y},
                         sizes, 2, (uint64_t[]){COUNT, COUNT});
    if (qn_ok(self->status) && i % 16 == 0) self->status = qn_stream_sync(test_vulkan, NULL);
    if (i % 7 == 0) (void)qn_stream_is_idle(NULL);
  }
  return NULL;
}

static void test_threads_share_the_default_stream(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  static counter_t counters[THREADS];
  void* x = test_vulkan_allocate(COUNT * 4);
  size_t size = COUNT * 4;
  must(test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, &x, &size, 2, (uint64_t[]){COUNT, 0}));
  for (size_t i = 0; i < THREADS; i++) {
    counters[i].code = code;
    counters[i].x = x;
    counters[i].y = test_vulkan_allocate(COUNT * 4);
    must(qn__thread_start(&counters[i].thread, "counter", 0, count_up, &counters[i]));
  }
  for (size_t i = 0; i < THREADS; i++) (void)pthread_join(counters[i].thread, NULL);
  must(qn_stream_sync(test_vulkan, NULL));
  for (size_t i = 0; i < THREADS; i++) {
    must(counters[i].status);
    assert_int_equal(counters[i].owner.reference_count, 0);
    uint32_t got[COUNT];
    must(test_vulkan_copy_from(got, counters[i].y, 0, sizeof got, NULL));
    for (uint32_t e = 0; e < COUNT; e++) assert_int_equal(got[e], e);
    test_vulkan_free(counters[i].y);
  }
  test_vulkan_free(x);
  test_vulkan_unload(code);
}

// A barrier comes between two commands only if one of them writes memory that the other accesses.
static void test_barriers_are_between_dependent_commands(void** state) {
  (void)state;
  NEED_DEVICE();
  if (checks_order) skip();
  void* code = test_vulkan_load(NULL);
  char* memory = test_vulkan_allocate(1 << 16);
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  size_t size[] = {1024, 1024};
  // Fills of a, b, c; b += a; c += a; a again; d; a copy of d to b, of c to e.
  void *a = memory, *b = memory + 1024, *c = memory + 2048;
  const struct {
    test_function_t function;
    void* buffers[2];
    unsigned barriers;  // more than before
  } calls[] = {{TEST_FILL, {a}, 0},
               {TEST_FILL, {b}, 0},
               {TEST_FILL, {c}, 0},
               {TEST_STEP, {a, b}, 1},
               {TEST_STEP, {a, c}, 0},
               {TEST_FILL, {a}, 1},
               {TEST_FILL, {b}, 0},
               {TEST_FILL, {b}, 1},
               {TEST_FILL, {memory + 512}, 1},
               // Repeats of one launch, alone after a barrier and with others in between.
               {TEST_STEP, {a, c}, 1},
               {TEST_STEP, {a, c}, 1},
               {TEST_STEP, {a, c}, 1},
               {TEST_FILL, {b}, 0},
               {TEST_STEP, {a, c}, 1},
               {TEST_FILL, {b}, 0},
               {TEST_STEP, {a, b}, 1},
               {TEST_STEP, {a, b}, 1},
               {TEST_STEP, {b, a}, 1}};
  for (size_t i = 0; i < QN_COUNT_OF(calls); i++) {
    qn__vulkan_stats_t before, behind;
    must(qn__vulkan_stats(0, &before));
    bool is_step = calls[i].function == TEST_STEP;
    must(test_vulkan_call(code, calls[i].function, stream, NULL, is_step ? 2 : 1, calls[i].buffers,
                          size, is_step ? 1 : 2, (uint64_t[]){256, 1}));
    must(qn__vulkan_stats(0, &behind));
    if (behind.barrier_count - before.barrier_count != calls[i].barriers) {
      fail_msg("call %zu: %u barriers", i, (unsigned)(behind.barrier_count - before.barrier_count));
    }
  }
  must(qn_stream_sync(test_vulkan, stream));
  qn_stream_destroy(stream);
  test_vulkan_free(memory);
  test_vulkan_unload(code);
}

// Work in an open batch starts without a sync.
static void test_work_begins_without_a_sync(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  void* out = test_vulkan_allocate(64);
  test_owner_t owner = {0};
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  size_t size = 64;
  qn__vulkan_stats_t before, now;
  must(qn__vulkan_stats(0, &before));
  for (int i = 0; i < 5; i++) {
    must(test_vulkan_call(code, TEST_FILL, stream, &owner, 1, &out, &size, 2, (uint64_t[]){16, 1}));
  }
  // The first launch is submitted at once; the others stay in the open batch.
  do {
    (void)sched_yield();
    must(qn__vulkan_stats(0, &now));
  } while (now.submit_count < before.submit_count + 2);
  qn_stream_destroy(stream);
  test_vulkan_free(out);
  test_vulkan_unload(code);
}

int main(int argc, char** argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_graphs_match_a_model),
      cmocka_unit_test(test_threads_share_a_device),
      cmocka_unit_test(test_threads_share_the_default_stream),
      cmocka_unit_test(test_barriers_are_between_dependent_commands),
      cmocka_unit_test(test_work_begins_without_a_sync),
  };
  // Once with a barrier before every command, checked by the layer, and once without, in another
  // process, because the layer reads its settings only once.
  checks_order = argc == 1;
  int failed = cmocka_run_group_tests(
      tests, checks_order ? test_vulkan_begin_ordered : test_vulkan_begin, test_vulkan_end);
  if (failed == 0 && checks_order) {
    (void)fflush(NULL);
    (void)execl("/proc/self/exe", argv[0], "as-it-is", (char*)NULL);
    return 1;
  }
  return failed;
}
#else
int main(void) {
  return 0;
}
#endif
