// SPDX-License-Identifier: Apache-2.0
// Tests the memory table: its bounds, what counts against them, the order of eviction, random
// concurrent operations, fork, and failing allocations. The executables are of the null device,
// which loads anything.
// ctest-labels: tsan
#include "jit/engine/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "jit/call/executable.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

#define UNBOUNDED UINT64_MAX

static qn__ident_t ident_of(uint32_t number) {
  qn__ident_t ident;
  memset(&ident, 0, sizeof ident);
  uint64_t mixed = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
  memcpy(ident.module_digest.bytes, &mixed, sizeof mixed);
  return ident;
}

static qn_status_t load(uint32_t number, size_t payload_size, qn_allocator_t allocator,
                        qn_executable_t** out_executable) {
  static const uint8_t payload[1 << 16];
  static const qn_artifact_function_t function = {.name = "f"};
  assert_true(payload_size <= sizeof payload);
  qn_artifact_t artifact = {.struct_size = sizeof artifact,
                            .format = "null-1",
                            .isa = "{}",
                            .payload = payload,
                            .payload_size = payload_size,
                            .function_count = 1,
                            .functions = &function};
  qn_module_t module;
  memset(&module, 0, sizeof module);
  qn_load_options_t options = {.struct_size = sizeof options, .name = "f"};
  qn_hash128_t key;
  memset(&key, 0, sizeof key);
  memcpy(key.bytes, &number, sizeof number);
  return qn__executable_load(&artifact, (qn_device_t){QN_DEVICE_NULL, 0}, &module, key, &options,
                             allocator, out_executable);
}

// Puts number `number`, of that many bytes of payload, and lets it go.
static void put(qn__table_t* table, uint32_t number, size_t payload_size) {
  qn_executable_t* executable;
  must(load(number, payload_size, table->allocator, &executable));
  qn__ident_t ident = ident_of(number);
  must(qn__table_put(table, &ident, executable));
  qn_executable_release(executable);
}
// Found and let go at once.
static bool has(qn__table_t* table, uint32_t number) {
  qn__ident_t ident = ident_of(number);
  qn_executable_t* executable = qn__table_peek(table, &ident);
  qn_executable_release(executable);
  return executable != NULL;
}

typedef struct fixture {
  qn_fault_heap_t heap;
  qn__table_t table;
} fixture_t;

static void open_table(fixture_t* f, uint64_t max_bytes, uint64_t max_entries) {
  qn_fault_heap_init(&f->heap);
  must(qn__table_init(&f->table, max_bytes, max_entries, qn_fault_heap_allocator(&f->heap)));
}
static void close_table(fixture_t* f) {
  assert_true(qn__table_check(&f->table));
  qn__table_deinit(&f->table);
  assert_int_equal(f->heap.live_blocks, 0);
  assert_int_equal(f->heap.size_errors, 0);
}

static void test_entries(void** state) {
  (void)state;
  fixture_t f;
  open_table(&f, UNBOUNDED, 4);
  for (uint32_t i = 0; i < 100; i++) {
    put(&f.table, i, 0);
    // The one that was put was held at that moment, and does not count.
    assert_true(qn__table_stats(&f.table).entry_count <= 5);
    assert_true(has(&f.table, i));
  }
  qn__table_stats_t stats = qn__table_stats(&f.table);
  assert_true(stats.entry_count >= 4);
  assert_int_equal(stats.entry_count + stats.evicted_count, 100);
  assert_int_equal(stats.hit_count, 0);  // peeking does not count
  qn__ident_t ident = ident_of(99);
  qn_executable_release(qn__table_get(&f.table, &ident));
  assert_int_equal(qn__table_stats(&f.table).hit_count, 1);
  close_table(&f);
}

static void test_bytes(void** state) {
  (void)state;
  fixture_t f;
  open_table(&f, 300000, UNBOUNDED);
  uint64_t random = 5, largest = 0;
  for (uint32_t i = 0; i < 400; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    put(&f.table, i, (random >> 33) % 60000);
    uint64_t bytes = qn__table_stats(&f.table).bytes;
    if (bytes > largest) largest = bytes;
  }
  // Beyond the bound at most by the one that was just put.
  assert_true(largest > 250000 && largest < 300000 + 70000);
  // An entry larger than the bound is kept until the next one is added.
  qn__table_deinit(&f.table);
  open_table(&f, 1000, UNBOUNDED);
  put(&f.table, 1, 50000);
  assert_true(has(&f.table, 1));
  put(&f.table, 2, 50000);
  put(&f.table, 3, 50000);
  assert_int_equal(qn__table_stats(&f.table).entry_count, 1);
  assert_true(has(&f.table, 3));
  assert_true(qn__table_remove(&f.table, &(qn__ident_t){0}) == false);
  qn__ident_t ident = ident_of(3);
  assert_true(qn__table_remove(&f.table, &ident));
  assert_int_equal(qn__table_stats(&f.table).bytes, 0);
  close_table(&f);
}

static void test_recently_used_stay(void** state) {
  (void)state;
  fixture_t f;
  open_table(&f, UNBOUNDED, 20);
  put(&f.table, 1000, 0);
  put(&f.table, 1001, 0);
  for (uint32_t i = 0; i < 500; i++) {
    put(&f.table, i, 0);
    assert_true(has(&f.table, 1000));
  }
  assert_false(has(&f.table, 1001));
  close_table(&f);
}

static void test_held_do_not_count(void** state) {
  (void)state;
  enum { HELD = 50 };
  fixture_t f;
  open_table(&f, UNBOUNDED, 4);
  qn_executable_t* held[HELD];
  for (uint32_t i = 0; i < HELD; i++) {
    qn__ident_t ident = ident_of(i);
    must(load(i, 100, f.table.allocator, &held[i]));
    must(qn__table_put(&f.table, &ident, held[i]));
  }
  for (uint32_t i = 0; i < 300; i++) put(&f.table, 1000 + i, 0);
  for (uint32_t i = 0; i < HELD; i++) assert_true(has(&f.table, i));
  qn__table_stats_t stats = qn__table_stats(&f.table);
  assert_true(stats.entry_count >= HELD + 4 && stats.entry_count <= HELD + 5);
  assert_int_equal(stats.evicted_count, HELD + 300 - stats.entry_count);
  // Given back, they count, and go as others come.
  for (uint32_t i = 0; i < HELD; i++) qn_executable_release(held[i]);
  for (uint32_t i = 0; i < 100; i++) put(&f.table, 2000 + i, 0);
  assert_true(qn__table_stats(&f.table).entry_count <= 5);
  close_table(&f);
}

static void test_replace_and_end(void** state) {
  (void)state;
  fixture_t f;
  open_table(&f, UNBOUNDED, UNBOUNDED);
  qn__ident_t ident = ident_of(1);
  qn_executable_t *first, *second;
  must(load(1, 10, f.table.allocator, &first));
  must(load(2, 20, f.table.allocator, &second));
  must(qn__table_put(&f.table, &ident, first));
  must(qn__table_put(&f.table, &ident, first));  // changes nothing
  assert_int_equal(qn__table_stats(&f.table).bytes, first->size_bytes);
  must(qn__table_put(&f.table, &ident, second));
  assert_int_equal(qn__table_stats(&f.table).bytes, second->size_bytes);
  assert_int_equal(qn__table_stats(&f.table).entry_count, 1);
  assert_int_equal(qn__table_stats(&f.table).evicted_count, 0);
  assert_int_equal(qn__refcount_estimate(&first->references), 1);
  assert_int_equal(qn__refcount_estimate(&second->references), 2);
  // Put again after it was removed.
  assert_true(qn__table_remove(&f.table, &ident));
  assert_false(qn__table_remove(&f.table, &ident));
  must(qn__table_put(&f.table, &ident, first));
  qn_executable_t* found = qn__table_get(&f.table, &ident);
  assert_ptr_equal(found, first);
  qn_executable_release(found);
  // An executable with two keys, which no engine creates, lives as long as both.
  qn__ident_t other = ident_of(7);
  must(qn__table_put(&f.table, &other, first));
  qn_executable_release(first);
  assert_true(qn__table_remove(&f.table, &ident));
  assert_true(has(&f.table, 7));
  assert_true(qn__table_check(&f.table));
  // A held executable outlives the table.
  must(qn__table_put(&f.table, &ident, second));
  qn__table_deinit(&f.table);
  qn_executable_retain(second);
  qn_executable_release(second);
  assert_int_equal(second->key.hex[0], '0');
  assert_int_equal(second->key.hex[1], '2');
  qn_executable_release(second);
  assert_int_equal(f.heap.live_blocks, 0);
}

// ---- threads

enum { THREADS = 5, NUMBERS = 60, TURNS = 4000, HELD_AT_ONCE = 6 };

typedef struct worker {
  qn__table_t* table;
  uint32_t seed;
  bool is_reader;  // finds, but neither puts nor removes
  uint64_t hit_count;
} worker_t;

static void* work(void* arg) {
  worker_t* worker = arg;
  uint64_t random = worker->seed;
  qn_executable_t* held[HELD_AT_ONCE] = {NULL};
  for (int turn = 0; turn < TURNS; turn++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint32_t number = (uint32_t)(random >> 33) % NUMBERS;
    uint32_t what = (uint32_t)(random >> 50) % 100;
    qn_executable_t** place = &held[(random >> 40) % HELD_AT_ONCE];
    qn__ident_t ident = ident_of(number);
    qn_executable_release(*place);
    *place = NULL;
    if (what < 5 && !worker->is_reader) {
      (void)qn__table_remove(worker->table, &ident);
      continue;
    }
    if (what < 75 || worker->is_reader) {
      *place = qn__table_get(worker->table, &ident);
      if (*place) worker->hit_count++;
    }
    if (!*place && worker->is_reader) continue;
    if (!*place) {
      must(load(number, number * 100, worker->table->allocator, place));
      must(qn__table_put(worker->table, &ident, *place));
    }
    // Each executable that was found is the right one and alive.
    char expected[3];
    (void)snprintf(expected, sizeof expected, "%02x", number);
    assert_memory_equal((*place)->key.hex, expected, 2);
    assert_string_equal((*place)->functions[0].name, "f");
  }
  for (int i = 0; i < HELD_AT_ONCE; i++) qn_executable_release(held[i]);
  return NULL;
}

static void test_threads(void** state) {
  (void)state;
  static const struct {
    uint64_t max_bytes, max_entries;
  } bounds[] = {{UNBOUNDED, UNBOUNDED}, {UNBOUNDED, 10}, {100000, UNBOUNDED}, {0, 0}};
  for (size_t b = 0; b < QN_COUNT_OF(bounds); b++) {
    fixture_t f;
    open_table(&f, bounds[b].max_bytes, bounds[b].max_entries);
    pthread_t threads[THREADS];
    worker_t workers[THREADS];
    uint64_t hit_count = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
      workers[i] = (worker_t){.table = &f.table, .seed = i + 1};
      must(qn__thread_start(&threads[i], "worker", 0, work, &workers[i]));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
      assert_int_equal(pthread_join(threads[i], NULL), 0);
      hit_count += workers[i].hit_count;
    }
    assert_int_equal(qn__table_stats(&f.table).hit_count, hit_count);
    // Nothing is retained now. After a few puts the bounds are kept.
    for (uint32_t i = 0; i < 80; i++) put(&f.table, 1000 + i, 0);
    qn__table_stats_t stats = qn__table_stats(&f.table);
    if (bounds[b].max_entries != UNBOUNDED) {
      assert_true(stats.entry_count <= bounds[b].max_entries + 1);
    }
    if (bounds[b].max_bytes != UNBOUNDED) assert_true(stats.bytes <= bounds[b].max_bytes + 10000);
    close_table(&f);
  }
}

// AddressSanitizer's heap keeps its locks in a child of fork as they were: there the threads must
// not allocate.
#if defined(__SANITIZE_ADDRESS__)
#define IS_HEAP_LOCKED_BY_FORK true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_HEAP_LOCKED_BY_FORK true
#endif
#endif
#if !defined(IS_HEAP_LOCKED_BY_FORK)
#define IS_HEAP_LOCKED_BY_FORK false
#endif

// A child of fork, made while other threads are at the table, can use it and end it.
static void test_fork(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();  // ThreadSanitizer takes a lock that the child made anew for one that is still held
#endif
  fixture_t f;
  open_table(&f, UNBOUNDED, 10);
  for (uint32_t n = 0; n < 10; n++) put(&f.table, n, 10);
  pthread_t threads[2];
  worker_t workers[2];
  for (uint32_t i = 0; i < 2; i++) {
    workers[i] = (worker_t){.table = &f.table, .seed = i + 1, .is_reader = IS_HEAP_LOCKED_BY_FORK};
    must(qn__thread_start(&threads[i], "worker", 0, work, &workers[i]));
  }
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      (void)alarm(600);
      for (uint32_t n = 0; n < 30; n++) put(&f.table, n, 10);
      bool is_right = has(&f.table, 29);
      qn__table_deinit(&f.table);
      _exit(is_right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
  for (uint32_t i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  close_table(&f);
}

// ---- memory that runs out

static bool fill_table(qn_allocator_t allocator, void* user) {
  (void)user;
  qn__table_t table;
  must(qn__table_init(&table, UNBOUNDED, 5, allocator));
  bool is_fine = true;
  for (uint32_t i = 0; i < 12 && is_fine; i++) {
    qn_executable_t* executable;
    qn_status_t status = load(i, 10, allocator, &executable);
    if (qn_ok(status)) {
      qn__ident_t ident = ident_of(i);
      qn_status_t put_status = qn__table_put(&table, &ident, executable);
      qn_executable_t* found = qn__table_get(&table, &ident);
      is_fine = qn_ok(put_status) ? found == executable : !found;
      qn_executable_release(found);
      qn_executable_release(executable);
      qn_status_free(put_status);
    }
    is_fine &= qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
    qn_status_free(status);
  }
  is_fine &= qn__table_stats(&table).entry_count <= 6;
  qn__table_deinit(&table);
  return is_fine;
}

static void test_memory_runs_out(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(fill_table, NULL) > 24);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_entries),
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_recently_used_stay),
      cmocka_unit_test(test_held_do_not_count),
      cmocka_unit_test(test_replace_and_end),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_fork),
      cmocka_unit_test(test_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
