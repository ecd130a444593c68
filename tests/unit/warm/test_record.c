// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests the file of QUERN_RECORD: each key once, whole lines from many threads and processes,
// partial lines after a full disk, and no errors for callers.
// ctest-labels: tsan
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/thread.h"
#include "jit/observe/record.h"
#include "quern/backend.h"
#include "quern/quern.h"
#include "quern/warm.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"
#include "warm/list.h"

enum { THREADS = 4, KEYS = 200 };

static qn_compile_request_t request_of(const char* module, size_t size) {
  return (qn_compile_request_t){.struct_size = sizeof(qn_compile_request_t),
                                .module_bytes = module,
                                .module_size = size,
                                .target_json = "{\"kind\":\"interp\"}",
                                .tier = QN_TIER_FAST,
                                .is_checked = true};
}

static qn_hash128_t key_of(unsigned number) {
  qn_hash128_t key = {{0}};
  for (size_t i = 0; i < 16; i++) key.bytes[i] = (uint8_t)(number * 2654435761u >> (i % 4 * 8));
  key.bytes[0] = (uint8_t)number;
  key.bytes[1] = (uint8_t)(number >> 8);
  key.bytes[15] = 1;
  return key;
}

static char* read_text(const char* path, size_t* out_size) {
  static char text[1 << 24];
  long size = qn_test_read_file(path, text, sizeof text);
  assert_true(size >= 0 && (size_t)size < sizeof text);
  *out_size = (size_t)size;
  return text;
}

// Counts whole and partial lines.
static void count_lines(const char* path, size_t* out_good, size_t* out_bad) {
  size_t size;
  char* text = read_text(path, &size);
  *out_good = *out_bad = 0;
  for (size_t at = 0; at < size;) {
    char* end = memchr(text + at, '\n', size - at);
    size_t line_size = end ? (size_t)(end - text) - at : size - at;
    qn__warm_recorded_t recorded;
    if (line_size > 0) {
      qn_status_t status =
          qn__warm_recorded_parse((qn__warm_span_t){text + at, line_size}, &recorded);
      if (qn_ok(status)) {
        ++*out_good;
        qn__warm_recorded_deinit(&recorded);
      } else {
        ++*out_bad;
        qn_status_free(status);
      }
    }
    at += line_size + 1;
  }
}

static void test_line_round_trip(void** state) {
  (void)state;
  for (size_t size = 1; size < 70; size++) {
    char module[70];
    for (size_t i = 0; i < size; i++) module[i] = (char)(i * 37 + size * 11);
    qn_compile_request_t request = request_of(module, size);
    qn__buffer_t line;
    qn__buffer_init(&line, qn_allocator_default());
    qn__record_format(key_of(7), &request, "soft\"max\n@12", &line);
    assert_int_equal(line.data[line.size - 1], '\n');
    assert_null(memchr(line.data, '\n', line.size - 1));
    qn__warm_recorded_t recorded;
    must(qn__warm_recorded_parse((qn__warm_span_t){(char*)line.data, line.size - 1}, &recorded));
    char key[33];
    qn__hash128_hex(key_of(7), key);
    assert_string_equal(recorded.key, key);
    assert_string_equal(recorded.name, "soft\"max\n@12");
    assert_string_equal(recorded.target_json, "{\"kind\":\"interp\"}");
    assert_int_equal(recorded.tier, QN_TIER_FAST);
    assert_true(recorded.is_checked);
    assert_int_equal(recorded.module_size, size);
    assert_memory_equal(recorded.module, module, size);
    qn__warm_recorded_deinit(&recorded);
    // Any line that was torn is refused.
    for (size_t cut = 0; cut + 1 < line.size; cut++) {
      qn_status_t status =
          qn__warm_recorded_parse((qn__warm_span_t){(char*)line.data, cut}, &recorded);
      assert_int_equal(qn_status_consume(status), QN_STATUS_SYNTAX);
    }
    qn__buffer_deinit(&line);
  }
}

static void test_lines_that_are_none(void** state) {
  (void)state;
#define HEAD "{\"version\":1,\"key\":\"00112233445566778899aabbccddeeff\",\"name\":\"n\","
#define TAIL "\"target\":{\"kind\":\"interp\"},\"tier\":\"full\",\"is_checked\":false,"
  static const char* const lines[] = {
      "",
      "[]",
      "3",
      "{}",
      "{\"version\":2}",
      "{\"version\":1,\"key\":\"001122\"}",
      HEAD TAIL "\"module\":\"\"}",
      HEAD TAIL "\"module\":\"abc\"}",
      HEAD TAIL "\"module\":\"ab=c\"}",
      HEAD TAIL "\"module\":\"a===\"}",
      HEAD TAIL "\"module\":\"ab*d\"}",
      HEAD TAIL "\"module\":\"abd=\"}",  // spare bits that are not zero
      HEAD TAIL "\"module\":3}",
      HEAD TAIL "\"module\":\"abcd\",\"module\":\"abcd\"}",
      HEAD "\"target\":\"cpu\",\"tier\":\"full\",\"is_checked\":false,\"module\":\"abcd\"}",
      HEAD "\"target\":{},\"tier\":\"best\",\"is_checked\":false,\"module\":\"abcd\"}",
      HEAD "\"target\":{},\"tier\":\"full\",\"is_checked\":0,\"module\":\"abcd\"}",
  };
  for (size_t i = 0; i < QN_COUNT_OF(lines); i++) {
    qn__warm_recorded_t recorded;
    qn_status_t status = qn__warm_recorded_parse(qn__warm_span(lines[i]), &recorded);
    assert_int_equal(qn_status_consume(status), QN_STATUS_SYNTAX);
  }
  // What a later version adds is left alone.
  qn__warm_recorded_t recorded;
  must(qn__warm_recorded_parse(qn__warm_span(HEAD TAIL "\"module\":\"abcd\",\"count\":9}"),
                               &recorded));
  assert_int_equal(recorded.module_size, 3);
  qn__warm_recorded_deinit(&recorded);
}

// ------------------------------------------------------------------------------------ the file

typedef struct fixture {
  char directory[QN_TEST_PATH_SIZE];
  char path[QN_TEST_PATH_SIZE + 16];
} fixture_t;

static int set_up(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_true(qn_test_tempdir_make(f->directory));
  (void)snprintf(f->path, sizeof f->path, "%s/record", f->directory);
  *state = f;
  return 0;
}
static int tear_down(void** state) {
  fixture_t* f = *state;
  qn_test_tempdir_remove(f->directory);
  free(f);
  return 0;
}

static void note_many(qn__record_t* record, unsigned first, unsigned count) {
  char module[3000];
  for (unsigned i = first; i < first + count; i++) {
    memset(module, (int)('a' + i % 20), sizeof module);
    qn_compile_request_t request = request_of(module, 1 + i * 13 % sizeof module);
    qn__record_note(record, key_of(i), &request, "name");
  }
}

typedef struct noter {
  pthread_t thread;
  qn__record_t* record;
  unsigned first;
} noter_t;
static void* note_in_thread(void* arg) {
  const noter_t* noter = arg;
  note_many(noter->record, noter->first, KEYS);
  return NULL;
}

// Checks that each key is recorded once when threads record overlapping keys.
static void note_by_threads(qn__record_t* record, unsigned first) {
  noter_t noters[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    noters[i] = (noter_t){.record = record, .first = first + i * KEYS / 2};
    must(qn__thread_start(&noters[i].thread, "noter", 0, note_in_thread, &noters[i]));
  }
  for (unsigned i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_join(noters[i].thread, NULL), 0);
  }
}

static void test_threads_share_a_file(void** state) {
  fixture_t* f = *state;
  qn__record_t* record;
  must(qn__record_open(qn_allocator_default(), f->path, &record));
  assert_non_null(record);
  note_by_threads(record, 0);
  qn__record_close(record);
  size_t good, bad;
  count_lines(f->path, &good, &bad);
  assert_int_equal(good, KEYS * (THREADS + 1) / 2);
  assert_int_equal(bad, 0);
}

static void test_processes_share_a_file(void** state) {
#if defined(__SANITIZE_THREAD__)
  skip();  // no threads in a child of a program with threads
#endif
  fixture_t* f = *state;
  enum { PROCESSES = 6 };
  pid_t pids[PROCESSES];
  for (unsigned i = 0; i < PROCESSES; i++) {
    pids[i] = fork();
    assert_true(pids[i] >= 0);
    if (pids[i] == 0) {
      qn__record_t* record;
      if (!qn_ok(qn__record_open(qn_allocator_default(), f->path, &record))) _exit(1);
      note_by_threads(record, 1000 * i);
      qn__record_close(record);
      _exit(0);
    }
  }
  for (unsigned i = 0; i < PROCESSES; i++) {
    int status;
    assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    assert_int_equal(status, 0);
  }
  size_t good, bad;
  count_lines(f->path, &good, &bad);
  assert_int_equal(good, PROCESSES * KEYS * (THREADS + 1) / 2);
  assert_int_equal(bad, 0);
}

static void test_child_of_fork_goes_on(void** state) {
#if defined(__SANITIZE_THREAD__)
  skip();
#endif
  fixture_t* f = *state;
  qn__record_t* record;
  must(qn__record_open(qn_allocator_default(), f->path, &record));
  note_many(record, 0, 10);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    note_many(record, 0, 20);  // of which it knows ten
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  note_many(record, 20, 5);
  qn__record_close(record);
  size_t good, bad;
  count_lines(f->path, &good, &bad);
  assert_int_equal(good, 25);
  assert_int_equal(bad, 0);
}

// Checks that only lines written while the disk is full are lost.
static void test_half_a_line(void** state) {
  fixture_t* f = *state;
  qn_fault_fs_install();
  qn__record_t* record;
  must(qn__record_open(qn_allocator_default(), f->path, &record));
  note_many(record, 0, 3);
  qn_fault_fs_arm(1, QN_FAULT_ONCE, QN_FAULT_SHORT_WRITE, 0);
  note_many(record, 3, 1);  // cut
  qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0);
  note_many(record, 4, 3);
  qn__record_close(record);
  // A partial line of another process.
  int fd = open(f->path, O_WRONLY | O_APPEND | O_CLOEXEC);
  assert_true(fd >= 0 && write(fd, "{\"vers", 6) == 6 && close(fd) == 0);
  must(qn__record_open(qn_allocator_default(), f->path, &record));
  note_many(record, 100, 2);
  qn__record_close(record);
  assert_int_equal(qn_fault_fs_open_count(), 0);
  qn_fault_fs_remove();
  size_t good, bad;
  count_lines(f->path, &good, &bad);
  assert_int_equal(good, 8);
  assert_int_equal(bad, 2);
}

static void test_any_call_may_fail(void** state) {
  fixture_t* f = *state;
  static const int errors[] = {ENOSPC, EIO, EACCES, EROFS, EMFILE, EDQUOT, ESTALE};
  qn_fault_fs_install();
  for (size_t e = 0; e < QN_COUNT_OF(errors); e++) {
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      for (long n = 1;; n++) {
        qn__record_t* record = NULL;
        qn_fault_fs_arm(n, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, errors[e]);
        must(qn__record_open(qn_allocator_default(), f->path, &record));
        note_many(record, 0, 3);
        qn__record_close(record);
        bool was_reached = qn_fault_fs_failures() > 0;
        qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0);
        if (!was_reached) break;
        assert_true(n < 100);
      }
    }
  }
  qn_fault_fs_remove();
}

static bool record_a_little(qn_allocator_t allocator, void* user) {
  const fixture_t* f = user;
  qn__record_t* record;
  qn_status_t status = qn__record_open(allocator, f->path, &record);
  if (!qn_ok(status)) return qn_status_consume(status) == QN_STATUS_OUT_OF_MEMORY;
  note_many(record, 0, 100);
  qn__record_close(record);
  return true;
}
static void test_any_allocation_may_fail(void** state) {
  assert_true(qn_fault_walk_alloc(record_a_little, *state) > 5);
}

static void test_places_that_are_no_file(void** state) {
  fixture_t* f = *state;
  qn__record_t* record;
  must(qn__record_open(qn_allocator_default(), "", &record));
  assert_null(record);
  qn__record_note(NULL, key_of(1), NULL, NULL);
  must(qn__record_open(qn_allocator_default(), f->directory, &record));
  assert_null(record);
  must(qn__record_open(qn_allocator_default(), "/nowhere/at/all", &record));
  assert_null(record);
  // A FIFO without a reader would block the service.
  char fifo[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(fifo, sizeof fifo, "%s/fifo", f->directory);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  must(qn__record_open(qn_allocator_default(), fifo, &record));
  assert_null(record);
  must(qn__record_open(qn_allocator_default(), "/dev/null", &record));
  assert_null(record);
}

// The log callback records another key, as a lookup in it would.
static void note_again(void* self, qn_log_level_t level, const char* message) {
  (void)level;
  assert_non_null(strstr(message, "65536"));
  note_many(self, QN__RECORD_MAX_KEYS + 1, 1);
}

static void test_too_many_keys(void** state) {
  fixture_t* f = *state;
  qn__record_t* record;
  must(qn__record_open(qn_allocator_default(), f->path, &record));
  qn_compile_request_t request = request_of("x", 1);
  for (unsigned i = 0; i < QN__RECORD_MAX_KEYS; i++) {
    qn__record_note(record, key_of(i), &request, "name");
  }
  qn_log_set_sink(QN_LOG_WARN, note_again, record);
  note_many(record, QN__RECORD_MAX_KEYS, 2);
  qn_log_set_sink(QN_LOG_WARN, NULL, NULL);
  qn__record_close(record);
  size_t good, bad;
  count_lines(f->path, &good, &bad);
  assert_int_equal(good, QN__RECORD_MAX_KEYS);
  assert_int_equal(bad, 0);
}

// An engine records what it looks up, hits and failures alike, and the list warms another cache.
static void test_engine_records(void** state) {
  fixture_t* f = *state;
  const qn_setting_t settings[] = {{"record", f->path}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = "",
                                 .ignores_environment = true,
                                 .settings = settings,
                                 .setting_count = 1};
  static const char text[] = "func one(out y: i32[n]) { for i in 0..n { y[i] = 1; } }\n";
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  must(qn_engine_create(&options, &engine));
  must(qn_module_parse(text, sizeof text - 1, NULL, &module));
  must(qn_target_parse("interp", &target));
  qn_lookup_info_t info = {.struct_size = sizeof info};
  for (int i = 0; i < 3; i++) {
    qn_executable_t* executable;
    must(qn_engine_executable(engine, module, target, NULL, &info, &executable));
    qn_executable_release(executable);
  }
  qn_engine_destroy(engine);
  size_t size;
  char* list_text = read_text(f->path, &size);
  assert_int_equal(list_text[size - 1], '\n');
  assert_ptr_equal(memchr(list_text, '\n', size), list_text + size - 1);
  assert_non_null(strstr(list_text, info.key.hex));
  qn_warm_list_t* list;
  must(qn_warm_list_create(&list));
  size_t problem_count;
  must(qn_warm_list_read(list, list_text, size, NULL, &problem_count));
  assert_int_equal(problem_count, 0);
  assert_int_equal(qn_warm_list_count(list), 1);
  // The module itself is the same key.
  must(qn_warm_list_add(list, module, target, NULL));
  assert_int_equal(qn_warm_list_count(list), 1);
  qn_warm_list_destroy(list);
  qn_target_release(target);
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_line_round_trip),
      cmocka_unit_test(test_lines_that_are_none),
      cmocka_unit_test_setup_teardown(test_threads_share_a_file, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_processes_share_a_file, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_child_of_fork_goes_on, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_half_a_line, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_any_call_may_fail, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_any_allocation_may_fail, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_places_that_are_no_file, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_too_many_keys, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_engine_records, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
