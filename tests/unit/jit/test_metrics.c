// SPDX-License-Identifier: Apache-2.0
// Tests times, counters and traces of an engine: each event is counted once under its own name, a
// memory hit reads no clock, texts have the expected format, and docs/metrics.md has every row.
// tests/support/prometheus.py checks the text more strictly, in the test of the command.
// ctest-labels: tsan
#include <jansson.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/thread.h"
#include "jit/engine/engine.h"
#include "quern/observe.h"
#include "quern/quern.h"
#include "tests/support/engine.h"
#include "tests/support/fault.h"
#include "tests/support/tempdir.h"

static const char text[] = "func one(out y: i32[n]) { for i in 0..n { y[i] = 1; } }\n";

typedef struct place {
  char directory[QN_TEST_PATH_SIZE];
  char trace[QN_TEST_PATH_SIZE + 32];
  qn_module_t* module;
  qn_target_t* target;
} place_t;

static int set_up(void** state) {
  place_t* place = calloc(1, sizeof *place);
  if (!place || !qn_test_tempdir_make(place->directory)) return -1;
  (void)snprintf(place->trace, sizeof place->trace, "%s/trace.json", place->directory);
  must(qn_module_parse(text, sizeof text - 1, NULL, &place->module));
  must(qn_target_parse("interp", &place->target));
  *state = place;
  return 0;
}
static int tear_down(void** state) {
  place_t* place = *state;
  qn_module_release(place->module);
  qn_target_release(place->target);
  qn_test_tempdir_remove(place->directory);
  free(place);
  return 0;
}

static qn_engine_t* engine_on(const char* directory, const char* trace, qn_allocator_t allocator) {
  return must_engine((qn_engine_options_t){.allocator = allocator,
                                           .cache_dir = directory,
                                           .settings = &(qn_setting_t){"trace", trace},
                                           .setting_count = 1});
}

static void look_up(qn_engine_t* engine, const place_t* place, qn_source_t source) {
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_executable_t* executable;
  must(qn_engine_executable(engine, place->module, place->target, NULL, &info, &executable));
  qn_executable_release(executable);
  assert_int_equal(info.source, source);
}

// ---------------------------------------------------------------------------------- stages

typedef struct wanted {
  const char* name;
  qn_stage_info_t info;
} wanted_t;

static void find_stage(void* self, const qn_stage_info_t* stage) {
  wanted_t* wanted = self;
  assert_true(stage->doc[0] != '\0');
  assert_true(stage->p50_ns <= stage->p90_ns && stage->p90_ns <= stage->p99_ns);
  assert_true(stage->p99_ns <= stage->max_ns && stage->max_ns <= stage->total_ns);
  if (strcmp(stage->name, wanted->name) == 0) wanted->info = *stage;
}
static uint64_t times(qn_engine_t* engine, const char* name) {
  wanted_t wanted = {.name = name};
  qn_engine_stages(engine, find_stage, &wanted);
  if (!wanted.info.name) fail_msg("no stage %s", name);
  return wanted.info.count;
}

static void test_stages(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = engine_on(place->directory, "", (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_COMPILED);
  assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
  assert_int_equal(times(engine, "lookup"), 1);
  assert_int_equal(times(engine, "directory"), 1);
  assert_int_equal(times(engine, "compile"), 1);
  assert_int_equal(times(engine, "load"), 1);
  assert_int_equal(times(engine, "publish"), 1);
  assert_int_equal(times(engine, "write"), 1);
  assert_int_equal(times(engine, "bundle"), 0);
  assert_int_equal(times(engine, "remote"), 0);
  qn_engine_destroy(engine);
  engine = engine_on(place->directory, "", (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_DISK);
  assert_int_equal(times(engine, "lookup"), 1);
  assert_int_equal(times(engine, "directory"), 1);
  assert_int_equal(times(engine, "load"), 1);
  assert_int_equal(times(engine, "compile"), 0);
  assert_int_equal(times(engine, "write"), 0);
  qn_engine_destroy(engine);
}

static void count_stage(void* self, const qn_stage_info_t* stage) {
  // The writer looks after a sweep at its own time.
  if (strcmp(stage->name, "sweep") != 0) *(uint64_t*)self += stage->count;
}
static void find_hits(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  if (strcmp(name, "memory_hits") == 0) *(uint64_t*)self = value;
}
static qn_status_t append(void* self, const void* data, size_t size_bytes) {
  qn__buffer_bytes(self, data, size_bytes);
  return QN_OK;
}

static void test_memory_hits(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = engine_on("", place->trace, (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_COMPILED);
  uint64_t before = 0, after = 0, hits = 0;
  qn_engine_stages(engine, count_stage, &before);
  qn__buffer_t trace_before, trace_after;
  qn__buffer_init(&trace_before, qn_allocator_default());
  qn__buffer_init(&trace_after, qn_allocator_default());
  must(qn_engine_trace(engine, (qn_sink_t){&trace_before, append}));
  for (int i = 0; i < 1000; i++) look_up(engine, place, QN_SOURCE_MEMORY);
  qn_engine_stages(engine, count_stage, &after);
  must(qn_engine_trace(engine, (qn_sink_t){&trace_after, append}));
  qn_engine_counters(engine, find_hits, &hits);
  assert_true(before > 0);
  assert_int_equal(before, after);
  assert_string_equal((const char*)trace_before.data, (const char*)trace_after.data);
  assert_int_equal(hits, 1000);
  qn__buffer_deinit(&trace_before);
  qn__buffer_deinit(&trace_after);
  qn_engine_destroy(engine);
}

// ---------------------------------------------------------------------------------- Prometheus

static void expect_counter(void* self, const char* name, uint64_t value, const char* doc) {
  const char* metrics = self;
  char line[512];
  size_t size = strlen(name);
  if (size > 3 && strcmp(name + size - 3, "_ns") == 0) return;
  (void)snprintf(line, sizeof line, "\n# HELP quern_%s_total %s\n# TYPE quern_%s_total counter\n",
                 name, doc, name);
  if (!strstr(metrics, line)) fail_msg("lacks: %s", line);
  (void)snprintf(line, sizeof line, "\nquern_%s_total %llu\n", name, (unsigned long long)value);
  if (strncmp(name, "sweep_", 6) != 0 && !strstr(metrics, line)) fail_msg("lacks: %s", line);
}

static void find_compile_ns(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  if (strcmp(name, "compile_ns") == 0) *(uint64_t*)self = value;
}

static void test_prometheus(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = engine_on(place->directory, "", (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_COMPILED);
  assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  must(qn_engine_metrics(engine, (qn_sink_t){&out, append}));
  const char* metrics = (const char*)out.data;
  qn_engine_counters(engine, expect_counter, out.data);
  static const char* const parts[] = {
      "\n# TYPE quern_stage_seconds histogram\n",
      "\nquern_stage_seconds_bucket{stage=\"compile\",le=\"+Inf\"} 1\n",
      "\nquern_stage_seconds_bucket{stage=\"remote\",le=\"0.000001024\"} 0\n",
      "\nquern_stage_seconds_bucket{stage=\"write\",le=\"68.719476736\"} 1\n",
      "\nquern_stage_seconds_count{stage=\"write\"} 1\n",
      "\nquern_stage_seconds_sum{stage=\"remote\"} 0.0\n",
      "\nquern_memory_entries 1\n",
      "\nquern_disk_writing_off 0\n",
      "\nquern_disk_queue_bytes 0\n",
      "\nquern_compile_queue 0\n",
      "quern_build_info{version=\"",
  };
  for (size_t i = 0; i < QN_COUNT_OF(parts); i++) {
    if (!strstr(metrics, parts[i])) fail_msg("lacks: %s", parts[i]);
  }
  // Nanoseconds become seconds.
  static const char seconds[] =
      "\n# TYPE quern_compile_seconds_total counter\nquern_compile_seconds_total ";
  const char* at = strstr(metrics, seconds);
  assert_non_null(at);
  uint64_t compile_ns = 0;
  qn_engine_counters(engine, find_compile_ns, &compile_ns);
  assert_true(compile_ns > 0);
  double told_ns = strtod(at + strlen(seconds), NULL) * 1e9;
  assert_true(told_ns - (double)compile_ns < 1 && (double)compile_ns - told_ns < 1);
  // Of tiers that it has not, there is nothing.
  assert_null(strstr(metrics, "quern_remote_breaker"));
  assert_null(strstr(metrics, "_ns"));
  qn__buffer_deinit(&out);
  qn_engine_destroy(engine);
}

static qn_status_t refuse(void* self, const void* data, size_t size_bytes) {
  (void)data, (void)size_bytes;
  ++*(int*)self;
  return qn_status_make(QN_STATUS_IO, "no more");
}

static void test_sinks(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = engine_on("", "", (qn_allocator_t){0});
  int count = 0;
  qn_sink_t sink = {&count, refuse};
  must_fail(qn_engine_metrics(engine, sink), QN_STATUS_IO, NULL);
  assert_int_equal(count, 1);
  must_fail(qn_engine_metrics(engine, (qn_sink_t){0}), QN_STATUS_INVALID_ARGUMENT, NULL);
  must_fail(qn_engine_metrics(NULL, sink), QN_STATUS_INVALID_ARGUMENT, NULL);
  must_fail(qn_engine_trace(engine, sink), QN_STATUS_FAILED_PRECONDITION, NULL);
  must_fail(qn_engine_trace(engine, (qn_sink_t){0}), QN_STATUS_INVALID_ARGUMENT, NULL);
  must_fail(qn_engine_trace(NULL, sink), QN_STATUS_INVALID_ARGUMENT, NULL);
  assert_int_equal(count, 1);
  qn_engine_destroy(engine);
  engine = engine_on("", place->trace, (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_COMPILED);
  must_fail(qn_engine_trace(engine, sink), QN_STATUS_IO, NULL);
  assert_int_equal(count, 2);
  qn_engine_destroy(engine);
}

// ---------------------------------------------------------------------------------- traces

typedef struct range {
  double begin, end;
  json_int_t thread;
} range_t;

static double number(json_t* event, const char* name) {
  json_t* value = json_object_get(event, name);
  if (!json_is_number(value)) fail_msg("no number '%s'", name);
  return json_number_value(value);
}

// The last event of a name; false when there is none.
static bool find_event(json_t* events, const char* phase, const char* name, range_t* out_range) {
  size_t i;
  json_t* event;
  bool is_found = false;
  json_array_foreach(events, i, event) {
    if (strcmp(json_string_value(json_object_get(event, "ph")), phase) != 0) continue;
    if (strcmp(json_string_value(json_object_get(event, "name")), name) != 0) continue;
    is_found = true;
    out_range->thread = json_integer_value(json_object_get(event, "tid"));
    assert_true(json_is_string(json_object_get(json_object_get(event, "args"), "name")));
    if (phase[0] != 'X') continue;
    out_range->begin = number(event, "ts");
    out_range->end = out_range->begin + number(event, "dur");
  }
  return is_found;
}

// Of one thread, two complete events lie one in the other or apart; pairs come as pairs.
static void check_nesting(json_t* events) {
  size_t i, k, begin_count = 0, end_count = 0;
  json_t *a, *b;
  json_array_foreach(events, i, a) {
    const char* phase = json_string_value(json_object_get(a, "ph"));
    begin_count += strcmp(phase, "b") == 0;
    end_count += strcmp(phase, "e") == 0;
    if (strcmp(phase, "X") != 0) continue;
    double a_begin = number(a, "ts"), a_end = a_begin + number(a, "dur");
    json_array_foreach(events, k, b) {
      if (strcmp(json_string_value(json_object_get(b, "ph")), "X") != 0) continue;
      if (!json_equal(json_object_get(a, "tid"), json_object_get(b, "tid"))) continue;
      double b_begin = number(b, "ts"), b_end = b_begin + number(b, "dur");
      // A nanosecond of rounding.
      bool overlaps = a_begin < b_begin - 0.002 && b_begin < a_end - 0.002 && a_end < b_end - 0.002;
      if (overlaps) fail_msg("%s", json_dumps(a, 0));
    }
  }
  assert_int_equal(begin_count, end_count);
}

static json_t* load_trace(const char* path) {
  static char bytes[1 << 20];
  long size = qn_test_read_file(path, bytes, sizeof bytes);
  if (size < 0) return NULL;
  json_error_t error;
  json_t* trace = json_loadb(bytes, (size_t)size, JSON_REJECT_DUPLICATES, &error);
  if (!trace) fail_msg("%s: %s", path, error.text);
  return trace;
}

static void test_trace(void** state) {
  place_t* place = *state;
  int64_t start_ns = qn__now_ns();
  qn_engine_t* engine = engine_on(place->directory, place->trace, (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_COMPILED);
  assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
  qn_engine_destroy(engine);
  int64_t end_ns = qn__now_ns();
  json_t* trace = load_trace(place->trace);
  assert_non_null(trace);
  json_t* events = json_object_get(trace, "traceEvents");
  range_t lookup, compile, load, write, name;
  assert_true(find_event(events, "X", "lookup", &lookup));
  assert_true(find_event(events, "X", "compile", &compile));
  assert_true(find_event(events, "X", "load", &load));
  assert_true(find_event(events, "X", "write", &write));
  assert_true(find_event(events, "M", "thread_name", &name));
  check_nesting(events);
  assert_true(find_event(events, "M", "process_name", &name));
  // What is inside of another thing lies inside of its time; the writer works elsewhere.
  assert_true(lookup.begin <= compile.begin && compile.end <= lookup.end + 0.001);
  assert_true(compile.end <= load.begin + 0.001 && load.end <= lookup.end + 0.001);
  assert_true((double)start_ns / 1000 <= lookup.begin &&
              write.end <= (double)end_ns / 1000 + 0.001);
  assert_true(write.thread != lookup.thread);
  assert_true(write.thread != compile.thread);
  json_decref(trace);
  // An engine that does nothing leaves it as it is.
  qn_engine_destroy(engine_on(place->directory, place->trace, (qn_allocator_t){0}));
  trace = load_trace(place->trace);
  assert_true(find_event(json_object_get(trace, "traceEvents"), "X", "compile", &compile));
  json_decref(trace);
}

// No thread of the engine is at work: AddressSanitizer's heap would keep its locks in a child of
// fork as they were.
static void await_quiet(qn_engine_t* engine) {
  for (int id = 0; id < QN__QUEUE_COUNT; id++) {
    uint32_t queued, running;
    do {
      (void)sched_yield();
      qn__pool_counts(&engine->pool, (qn__queue_id_t)id, &queued, &running);
    } while (queued + running > 0);
  }
}

static void test_trace_names(void** state) {
  place_t* place = *state;
  char pattern[QN_TEST_PATH_SIZE + 32], path[QN_TEST_PATH_SIZE + 32];
  (void)snprintf(pattern, sizeof pattern, "%s/%%p.%%p%%.json", place->directory);
  qn_engine_t* engine = engine_on("", pattern, (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_COMPILED);
  await_quiet(engine);
  // A child has a file of its own here; under a plain name it would write none.
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    qn_engine_destroy(engine);
    _exit(0);
  }
  int result;
  assert_int_equal(waitpid(child, &result, 0), child);
  assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
  qn_engine_destroy(engine);
  for (int i = 0; i < 2; i++) {
    long process = i ? (long)child : (long)getpid();
    (void)snprintf(path, sizeof path, "%s/%ld.%ld%%.json", place->directory, process, process);
    json_t* trace = load_trace(path);
    if (!trace) fail_msg("no trace '%s'", path);
    json_decref(trace);
  }
  engine = engine_on("", place->trace, (qn_allocator_t){0});
  look_up(engine, place, QN_SOURCE_COMPILED);
  await_quiet(engine);
  child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    qn_engine_destroy(engine);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &result, 0), child);
  assert_null(load_trace(place->trace));
  qn_engine_destroy(engine);
  json_t* trace = load_trace(place->trace);
  assert_non_null(trace);
  json_decref(trace);
}

static void note_log(void* self, qn_log_level_t level, const char* message) {
  (void)level;
  if (strstr(message, "was not written")) ++*(int*)self;
}

// Whichever call of writing the file fails: a line in the log, and a clean end.
static void test_trace_faults(void** state) {
  place_t* place = *state;
  int logged = 0;
  const qn_setting_t settings[] = {{"trace", place->trace}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = "",
                                 .ignores_environment = true,
                                 .settings = settings,
                                 .setting_count = 1};
  int descriptors = qn_test_descriptor_count();
  qn_fault_fs_install();
  qn_log_set_sink(QN_LOG_WARN, note_log, &logged);
  bool is_clean = false;
  for (long n = 1; !is_clean; n++) {
    qn_engine_t* engine;
    qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 28);
    must(qn_engine_create(&options, &engine));
    look_up(engine, place, QN_SOURCE_COMPILED);
    int before = logged;
    qn_fault_fs_arm(n, QN_FAULT_ONCE, QN_FAULT_ERRNO, 28);
    qn_engine_destroy(engine);
    is_clean = qn_fault_fs_failures() == 0;
    assert_int_equal(logged - before, is_clean ? 0 : 1);
  }
  qn_log_set_sink(QN_LOG_WARN, NULL, NULL);
  assert_true(logged >= 3);
  qn_fault_fs_remove();
  assert_int_equal(qn_test_descriptor_count(), descriptors);
}

// ---------------------------------------------------------------------------------- the rest

static void test_allocations(void** state) {
  place_t* place = *state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn_engine_t* engine = engine_on(place->directory, place->trace, qn_fault_heap_allocator(&heap));
  look_up(engine, place, QN_SOURCE_COMPILED);
  assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
  for (int what = 0; what < 2; what++) {
    bool is_clean = false;
    long n = 1;
    for (; !is_clean; n++) {
      qn__buffer_t out;
      qn__buffer_init(&out, qn_allocator_default());
      qn_fault_heap_arm(&heap, n, QN_FAULT_ONCE);
      qn_sink_t sink = {&out, append};
      qn_status_t status = what ? qn_engine_trace(engine, sink) : qn_engine_metrics(engine, sink);
      is_clean = heap.failure_count == 0;
      qn_fault_heap_arm(&heap, 0, QN_FAULT_ONCE);
      if (is_clean) must(status);
      // A trace does without the names of threads.
      if (!qn_ok(status)) must_fail(status, QN_STATUS_OUT_OF_MEMORY, NULL);
      qn__buffer_deinit(&out);
    }
    assert_true(n > 3);
  }
  qn_engine_destroy(engine);
  assert_int_equal(heap.live_blocks, 0);
  assert_int_equal(heap.size_errors, 0);
}

enum { THREADS = 3, ROUNDS = 100 };

typedef struct party {
  const place_t* place;
  qn_engine_t* engine;
} party_t;

static void* keep_busy(void* arg) {
  party_t* party = arg;
  for (int i = 0; i < ROUNDS; i++) {
    qn_executable_t* executable;
    must(qn_engine_executable(party->engine, party->place->module, party->place->target, NULL, NULL,
                              &executable));
    qn_executable_release(executable);
    (void)qn_engine_unload(party->engine, party->place->module, party->place->target, NULL);
  }
  return NULL;
}

static void test_threads(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = engine_on(place->directory, place->trace, (qn_allocator_t){0});
  party_t party = {place, engine};
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &party), 0);
  }
  uint64_t last = 0;
  for (int i = 0; i < 20; i++) {
    qn__buffer_t out;
    qn__buffer_init(&out, qn_allocator_default());
    must(qn_engine_metrics(engine, (qn_sink_t){&out, append}));
    qn__buffer_clear(&out);
    must(qn_engine_trace(engine, (qn_sink_t){&out, append}));
    json_t* trace = json_loadb((const char*)out.data, out.size, 0, NULL);
    assert_non_null(trace);
    json_decref(trace);
    qn__buffer_deinit(&out);
    uint64_t count = times(engine, "lookup");
    assert_true(count >= last);
    last = count;
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_true(times(engine, "lookup") >= 1 && times(engine, "lookup") <= THREADS * ROUNDS);
  qn_engine_destroy(engine);
}

// Names are unique over all tables, and each is a row of the page.
static void test_tables(void** state) {
  (void)state;
  static const struct {
    const char* name;
    const char* doc;
  } rows[] = {
#define QN_COUNTER(name, doc) {#name, doc},
#include "cache/bundle_counters.inc"
#include "cache/disk_counters.inc"
#include "cache/remote_counters.inc"
#include "jit/observe/counters.inc"
#undef QN_COUNTER
  };
  static char page[1 << 17];
  long size = qn_test_read_file(QN_SOURCE_DIR "/docs/metrics.md", page, sizeof page - 1);
  assert_true(size > 0 && size < (long)sizeof page - 1);
  for (size_t i = 0; i < QN_COUNT_OF(rows); i++) {
    for (size_t k = 0; k < i; k++) {
      if (strcmp(rows[i].name, rows[k].name) == 0) fail_msg("two counters '%s'", rows[i].name);
    }
    size_t length = strlen(rows[i].name);
    bool is_time = length > 3 && strcmp(rows[i].name + length - 3, "_ns") == 0;
    char row[512];
    (void)snprintf(row, sizeof row, "\n| `%s` | `quern_%.*s%s_total` | %s |\n", rows[i].name,
                   (int)(is_time ? length - 3 : length), rows[i].name, is_time ? "_seconds" : "",
                   rows[i].doc);
    if (!strstr(page, row)) fail_msg("lacks %s: run tools/dev/metrics-table", row);
  }
  // Behind the tables of a tier, its name: "<tier>_<outcome>".
  static const struct {
    const char* name;
    const char* tiers;
  } of_tiers[] = {
#define QN_COUNTER(name, doc) {#name, "bundle_"},
#include "cache/bundle_counters.inc"
#undef QN_COUNTER
#define QN_COUNTER(name, doc) {#name, "disk_ claim_ publish_ sweep_"},
#include "cache/disk_counters.inc"
#undef QN_COUNTER
#define QN_COUNTER(name, doc) {#name, "remote_"},
#include "cache/remote_counters.inc"
#undef QN_COUNTER
  };
  for (size_t i = 0; i < QN_COUNT_OF(of_tiers); i++) {
    char tier[32];
    (void)snprintf(tier, sizeof tier, "%.*s_", (int)strcspn(of_tiers[i].name, "_"),
                   of_tiers[i].name);
    if (!strstr(of_tiers[i].tiers, tier)) fail_msg("%s: of which tier?", of_tiers[i].name);
  }
#define QN_GAUGE(name, doc) "\n| `quern_" #name "` | " doc " |\n",
#define QN_STAGE(name, doc) "\n| `" #name "` | " doc " |\n",
  static const char* const others[] = {
#include "jit/observe/gauges.inc"
#include "jit/observe/stages.inc"
  };
#undef QN_GAUGE
#undef QN_STAGE
  for (size_t i = 0; i < QN_COUNT_OF(others); i++) {
    if (!strstr(page, others[i])) fail_msg("lacks %s: run tools/dev/metrics-table", others[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_stages, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_memory_hits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_prometheus, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_sinks, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_trace, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_trace_names, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_trace_faults, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_allocations, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
      cmocka_unit_test(test_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
