// SPDX-License-Identifier: Apache-2.0
// Tests the watch: recorded spans are returned, are never torn, never exceed the capacity, and
// recording is off without memory.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "jit/observe/watch.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

static void count_span(void* self, const qn__span_t* span) {
  (void)span;
  ++*(uint64_t*)self;
}

static void test_histograms(void** state) {
  (void)state;
  qn__watch_t* watch;
  must(qn__watch_create(qn_allocator_default(), false, &watch));
  assert_false(qn__watch_has_trace(watch));
  int64_t start_ns = qn__now_ns() - 1000000;
  int64_t duration_ns = qn__watch_end(watch, QN__STAGE_compile, start_ns, "f@00");
  assert_true(duration_ns >= 1000000);
  static qn__histogram_snapshot_t snapshot;
  qn__watch_read(watch, QN__STAGE_compile, &snapshot);
  assert_int_equal(snapshot.count, 1);
  assert_true(snapshot.total == (uint64_t)duration_ns && snapshot.max == snapshot.total);
  qn__watch_read(watch, QN__STAGE_load, &snapshot);
  assert_int_equal(snapshot.count, 0);
  uint64_t count = 0;
  qn__watch_spans(watch, count_span, &count);
  assert_int_equal(count, 0);
  qn__watch_destroy(watch);
  // Nobody watches: the time comes out all the same.
  assert_true(qn__watch_end(NULL, QN__STAGE_load, start_ns, NULL) >= 1000000);
  assert_false(qn__watch_has_trace(NULL));
  qn__watch_destroy(NULL);
}

typedef struct seen {
  uint64_t count;
  qn__span_t last;
} seen_t;

static void take_span(void* self, const qn__span_t* span) {
  seen_t* seen = self;
  seen->count++;
  seen->last = *span;
}

static void test_spans(void** state) {
  (void)state;
  qn__watch_t* watch;
  must(qn__watch_create(qn_allocator_default(), true, &watch));
  int64_t start_ns = qn__now_ns() - 5000;
  int64_t duration_ns = qn__watch_end(watch, QN__STAGE_load, start_ns, "softmax@0123456789ab");
  seen_t seen = {0};
  qn__watch_spans(watch, take_span, &seen);
  assert_int_equal(seen.count, 1);
  assert_int_equal(seen.last.stage, QN__STAGE_load);
  assert_true(seen.last.start_ns == start_ns && seen.last.duration_ns == duration_ns);
  assert_int_equal(seen.last.process, getpid());
  assert_true(seen.last.thread > 0);
  assert_true(seen.last.thread_name[0] != '\0');
  assert_string_equal(seen.last.name, "softmax@0123456789ab");
  // Names: none, exactly as long as fits, longer.
  char text[64];
  memset(text, 'x', sizeof text);
  for (size_t size = 46; size <= 50; size++) {
    text[size] = '\0';
    (void)qn__watch_end(watch, QN__STAGE_load, start_ns, text);
    qn__watch_spans(watch, take_span, &seen);
    assert_int_equal(strlen(seen.last.name), size < 47 ? size : 47);
    text[size] = 'x';
  }
  (void)qn__watch_end(watch, QN__STAGE_load, start_ns, NULL);
  qn__watch_spans(watch, take_span, &seen);
  assert_string_equal(seen.last.name, "");
  // Beyond the ring the oldest go, and the order stays.
  for (uint64_t i = 0; i < QN__SPAN_COUNT + 10; i++) {
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)i);
    (void)qn__watch_end(watch, QN__STAGE_queue, start_ns, text);
  }
  memset(&seen, 0, sizeof seen);
  qn__watch_spans(watch, take_span, &seen);
  assert_int_equal(seen.count, QN__SPAN_COUNT);
  (void)snprintf(text, sizeof text, "%u", QN__SPAN_COUNT + 9);
  assert_string_equal(seen.last.name, text);
  qn__watch_destroy(watch);
}

enum { THREADS = 4, SPANS = 20000 };

typedef struct party {
  qn__watch_t* watch;
  unsigned number;
} party_t;

// Name, stage and duration of one span all say who made it and when.
static void* record_many(void* arg) {
  party_t* party = arg;
  for (unsigned i = 0; i < SPANS; i++) {
    char name[48];
    (void)snprintf(name, sizeof name, "%u %u %u %u %u %u", party->number, i, party->number, i,
                   party->number, i);
    (void)qn__watch_end(party->watch, (qn__stage_t)party->number, qn__now_ns(), name);
  }
  return NULL;
}

static void check_span(void* self, const qn__span_t* span) {
  ++*(uint64_t*)self;
  unsigned n[6];
  assert_int_equal(
      sscanf(span->name, "%u %u %u %u %u %u", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]), 6);
  assert_true(n[0] == n[2] && n[0] == n[4] && n[1] == n[3] && n[1] == n[5]);
  assert_int_equal(span->stage, n[0]);
  assert_true(span->duration_ns >= 0);
}

static void test_threads(void** state) {
  (void)state;
  qn__watch_t* watch;
  must(qn__watch_create(qn_allocator_default(), true, &watch));
  pthread_t threads[THREADS];
  party_t parties[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    parties[i] = (party_t){watch, i};
    assert_int_equal(pthread_create(&threads[i], NULL, record_many, &parties[i]), 0);
  }
  for (int round = 0; round < 20; round++) {
    uint64_t count = 0;
    qn__watch_spans(watch, check_span, &count);
    assert_true(count <= QN__SPAN_COUNT);
    static qn__histogram_snapshot_t snapshot;
    for (unsigned i = 0; i < THREADS; i++) {
      qn__watch_read(watch, (qn__stage_t)i, &snapshot);
      assert_true(snapshot.count <= SPANS);
    }
  }
  for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  uint64_t count = 0;
  qn__watch_spans(watch, check_span, &count);
  assert_true(count > 0 && count <= QN__SPAN_COUNT);
  static qn__histogram_snapshot_t snapshot;
  for (unsigned i = 0; i < THREADS; i++) {
    qn__watch_read(watch, (qn__stage_t)i, &snapshot);
    assert_int_equal(snapshot.count, SPANS);
  }
  qn__watch_destroy(watch);
}

static void test_fork(void** state) {
  (void)state;
  qn__watch_t* watch;
  must(qn__watch_create(qn_allocator_default(), true, &watch));
  (void)qn__watch_end(watch, QN__STAGE_load, qn__now_ns(), "parent");
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)qn__watch_end(watch, QN__STAGE_load, qn__now_ns(), "child");
    seen_t seen = {0};
    qn__watch_spans(watch, take_span, &seen);
    bool is_fine = seen.count == 2 && seen.last.process == (uint32_t)getpid() &&
                   seen.last.thread == (uint32_t)getpid();
    _exit(is_fine ? 0 : 1);
  }
  int result = 0;
  assert_int_equal(waitpid(child, &result, 0), child);
  assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
  qn__watch_destroy(watch);
}

static bool make_one(qn_allocator_t allocator, void* user) {
  (void)user;
  qn__watch_t* watch;
  qn_status_t status = qn__watch_create(allocator, true, &watch);
  if (!qn_ok(status)) {
    bool is_fine = !watch && qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
    qn_status_free(status);
    return is_fine;
  }
  (void)qn__watch_end(watch, QN__STAGE_load, qn__now_ns(), "x");
  uint64_t count = 0;
  qn__watch_spans(watch, count_span, &count);
  qn__watch_destroy(watch);
  return count == 1;
}

static void test_faults(void** state) {
  (void)state;
  // Two allocations in all: recording makes none.
  assert_int_equal(qn_fault_walk_alloc(make_one, NULL), 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_histograms), cmocka_unit_test(test_spans),
      cmocka_unit_test(test_threads),    cmocka_unit_test(test_fork),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
