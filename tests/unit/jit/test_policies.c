// Who waits for what: one compile per key, compiles in parallel and by priority, lookups that must
// not wait or only so long, failures that are remembered, compiles that are forbidden or told of,
// hanging file systems, generators and other processes, forks, and engines that end in the middle.
// Nothing is timed: what must not be waited for hangs until the call has returned.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "tests/support/fault.h"
#include "tests/unit/jit/support_gate.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#endif

#define SECOND INT64_C(1000000000)

static const qn_setting_t one_thread[] = {{"compile_threads", "1"}};
static const qn_setting_t two_threads[] = {{"compile_threads", "2"}};

static void begin(gated_t* gated, const qn_setting_t* settings, size_t count) {
  qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = settings, .setting_count = count};
  gated_begin(gated, &options);
}

static qn_lookup_options_t with(qn_miss_policy_t miss, int64_t timeout_ns, int32_t priority) {
  return (qn_lookup_options_t){.struct_size = sizeof(qn_lookup_options_t),
                               .miss = miss,
                               .timeout_ns = timeout_ns,
                               .priority = priority};
}

// One lookup in this thread.
static qn_status_t look_up(gated_t* gated, qn_module_t* module, const char* name,
                           const qn_lookup_options_t* options, qn_lookup_info_t* info) {
  qn_function_t* function;
  QN_TRY(qn_engine_function(gated->engine, module, gated->target, name, options, info, &function));
  qn_function_release(function);
  return QN_OK;
}

// ---- single flight

static void test_one_compile_for_many(void** state) {
  (void)state;
  enum { count = 16 };
  gated_t gated;
  begin(&gated, two_threads, 1);
  qn_module_t* module = module_of("f", 7);
  seeker_t seekers[count];
  for (int i = 0; i < count; i++) seeker_start(&seekers[i], &gated, module, "f", NULL);
  gate_await_started(&gated.gate, 1);
  gate_set(&gated.gate, true);
  int compiled = 0;
  for (int i = 0; i < count; i++) {
    seeker_join_value(&seekers[i], 7);
    compiled += seekers[i].info.source == QN_SOURCE_COMPILED;
    assert_int_equal(strlen(seekers[i].info.key), 32);
    assert_int_equal(seekers[i].info.tier, QN_TIER_FULL);
  }
  assert_int_equal(compiled, 1);
  assert_int_equal(gate_started(&gated.gate), 1);
  assert_int_equal(counter_of(gated.engine, "compiles"), 1);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_two_keys_in_parallel(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, two_threads, 1);
  qn_module_t* modules[] = {module_of("a", 1), module_of("b", 2)};
  seeker_t seekers[2];
  seeker_start(&seekers[0], &gated, modules[0], "a", NULL);
  seeker_start(&seekers[1], &gated, modules[1], "b", NULL);
  gate_await_started(&gated.gate, 2);  // both, while the gate is closed
  gate_set(&gated.gate, true);
  for (int i = 0; i < 2; i++) {
    seeker_join_value(&seekers[i], i + 1);
    qn_module_release(modules[i]);
  }
  gated_end(&gated);
}

// Asks without waiting for the answer, so that the order of asking is known.
static qn_pending_t* request(gated_t* gated, qn_module_t* module, const char* name,
                             int32_t priority) {
  qn_lookup_options_t options = with(QN_MISS_BLOCK, 0, priority);
  qn_pending_t* pending;
  must(qn_engine_request(gated->engine, module, gated->target, name, &options, &pending));
  return pending;
}
static void await_value(qn_pending_t* pending, int value) {
  qn_function_t* function;
  must(qn_pending_wait(pending, -1, NULL, &function));
  assert_int_equal(call(function), value);
  qn_function_release(function);
  qn_pending_release(pending);
}

// Until so many wait for a compile thread.
static void await_queued(qn_engine_t* engine, uint32_t count) {
  for (;;) {
    qn__mutex_lock(&engine->pool.mutex);
    uint32_t queued = engine->pool.queues[QN__LANE_COMPILE].queued_count;
    qn__mutex_unlock(&engine->pool.mutex);
    if (queued >= count) return;
    usleep(100);
  }
}

static void test_priorities(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, one_thread, 1);
  static const char* const names[] = {"first", "low", "high", "raised"};
  static const int32_t priorities[] = {0, 0, 5, 0};
  qn_module_t* modules[4];
  qn_pending_t* pendings[4];
  for (int i = 0; i < 4; i++) {
    modules[i] = module_of(names[i], i);
    pendings[i] = request(&gated, modules[i], names[i], priorities[i]);
    if (i == 0) gate_await_started(&gated.gate, 1);
    if (i > 0) await_queued(gated.engine, (uint32_t)i);
  }
  // Somebody in more of a hurry waits for one that is queued already.
  qn_pending_t* hurried = request(&gated, modules[3], "raised", 9);
  gate_set(&gated.gate, true);
  for (int i = 0; i < 4; i++) await_value(pendings[i], i);
  await_value(hurried, 3);
  static const char* const expected[] = {"first full", "raised full", "high full", "low full"};
  for (int i = 0; i < 4; i++) {
    assert_string_equal(gated.gate.log[i], expected[i]);
    qn_module_release(modules[i]);
  }
  gated_end(&gated);
}

// ---- lookups that must not wait

static void test_fail_does_not_wait(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, one_thread, 1);
  qn_module_t* module = module_of("f", 3);
  qn_lookup_options_t fail = with(QN_MISS_FAIL, 0, 0);
  must_be(look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN, "f@");
  assert_int_equal(gate_started(&gated.gate), 0);
  seeker_t seeker;
  seeker_start(&seeker, &gated, module, "f", NULL);
  gate_await_started(&gated.gate, 1);
  // The compile runs and hangs: neither of these waits for it.
  must_be(look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN, "f@");
  fail.timeout_ns = SECOND * 3600;
  must_be(look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN, "f@");
  gate_set(&gated.gate, true);
  seeker_join_value(&seeker, 3);
  qn_lookup_info_t info;
  must(look_up(&gated, module, "f", &fail, &info));
  assert_int_equal(info.source, QN_SOURCE_MEMORY);
  assert_int_equal(counter_of(gated.engine, "compiles_forbidden"), 3);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_deadline_and_then_the_cache(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, one_thread, 1);
  qn_module_t* module = module_of("f", 4);
  qn_lookup_options_t soon = with(QN_MISS_BLOCK, 1000000, 0);
  must_be(look_up(&gated, module, "f", &soon, NULL), QN_STATUS_DEADLINE_EXCEEDED,
          "goes on being made");
  assert_int_equal(counter_of(gated.engine, "deadline_exceeded"), 1);
  // What it started goes on, although nobody waits for it.
  gate_await_started(&gated.gate, 1);
  seeker_t patient;
  seeker_start(&patient, &gated, module, "f", NULL);
  must_be(look_up(&gated, module, "f", &soon, NULL), QN_STATUS_DEADLINE_EXCEEDED, "1.000 ms");
  gate_set(&gated.gate, true);
  seeker_join_value(&patient, 4);
  soon.timeout_ns = SECOND * 60;
  qn_lookup_info_t info;
  must(look_up(&gated, module, "f", &soon, &info));
  assert_int_equal(info.source, QN_SOURCE_MEMORY);
  assert_int_equal(gate_started(&gated.gate), 1);
  // And it is in the directory, from where a lookup with a deadline reads on another thread.
  assert_true(qn_engine_flush(gated.engine, 60 * SECOND));
  assert_true(qn_engine_unload(gated.engine, module, gated.target, NULL));
  must(look_up(&gated, module, "f", &soon, &info));
  assert_int_equal(info.source, QN_SOURCE_DISK);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_bad_options(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, one_thread, 1);
  qn_module_t* module = module_of("f", 4);
  qn_lookup_options_t options = with(QN_MISS_BLOCK, -1, 0);
  must_be(look_up(&gated, module, "f", &options, NULL), QN_STATUS_INVALID_ARGUMENT, "timeout_ns");
  options = with((qn_miss_policy_t)7, 0, 0);
  must_be(look_up(&gated, module, "f", &options, NULL), QN_STATUS_INVALID_ARGUMENT, "miss: 7");
  qn_pending_t* pending;
  must_be(qn_engine_request(gated.engine, module, gated.target, "f", &options, &pending),
          QN_STATUS_INVALID_ARGUMENT, "miss: 7");
  assert_null(pending);
  qn_module_release(module);
  gated_end(&gated);
}

// ---- file systems and processes that hang

static struct {
  _Atomic bool is_on;
  _Atomic int held_count;
} files;

static void hold_files(void* self, const char* call_name, const char* path) {
  (void)self;
  if (!files.is_on || strcmp(call_name, "open") != 0 || !strstr(path, ".k")) return;
  files.held_count++;
  while (files.is_on) usleep(100);
  files.held_count--;
}

static void test_hanging_file_system(void** state) {
  (void)state;
  gated_t gated;
  files.is_on = false;
  qn_fault_fs_install();
  qn_fault_fs_hook(hold_files, NULL);
  begin(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  qn_module_t* module = module_of("f", 5);
  qn_module_t* ready = module_of("ready", 6);
  must(look_up(&gated, ready, "ready", NULL, NULL));
  assert_true(qn_engine_flush(gated.engine, 60 * SECOND));
  files.is_on = true;
  static const qn_miss_policy_t policies[] = {QN_MISS_BLOCK, QN_MISS_FALLBACK, QN_MISS_FAIL};
  for (size_t i = 0; i < 3; i++) {
    qn_lookup_options_t soon = with(policies[i], 2000000, 0);
    must_be(look_up(&gated, module, "f", &soon, NULL), QN_STATUS_DEADLINE_EXCEEDED, "'f'");
    must(look_up(&gated, ready, "ready", &soon, NULL));  // from memory
  }
  qn_lookup_options_t soon = with(QN_MISS_BLOCK, 2000000, 0);
  qn_pending_t* pending;
  must(qn_engine_request(gated.engine, module, gated.target, "f", &soon, &pending));
  qn_function_t* function;
  must_be(qn_pending_wait(pending, -1, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED, "'f'");
  qn_pending_release(pending);
  assert_true(files.held_count > 0);
  files.is_on = false;
  must(look_up(&gated, module, "f", NULL, NULL));
  qn_module_release(module);
  qn_module_release(ready);
  gated_end(&gated);
  qn_fault_fs_hook(NULL, NULL);
  qn_fault_fs_remove();
}

// Another engine on the same directory, as another process would be, holds the key and hangs.
static void test_hanging_holder(void** state) {
  (void)state;
  gated_t holder, other;
  begin(&holder, one_thread, 1);
  const qn_setting_t settings[] = {{"compile_threads", "1"}, {"lock_timeout", "20ms"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = holder.directory,
                                 .settings = settings,
                                 .setting_count = 2};
  gated_begin(&other, &options);
  gate_set(&other.gate, true);
  qn_module_t* module = module_of("f", 8);
  seeker_t seeker;
  seeker_start(&seeker, &holder, module, "f", NULL);
  gate_await_started(&holder.gate, 1);
  // It waits for the bound and then compiles by itself; the holder hangs still.
  must(look_up(&other, module, "f", NULL, NULL));
  assert_int_equal(gate_started(&other.gate), 1);
  gate_set(&holder.gate, true);
  seeker_join_value(&seeker, 8);
  qn_module_release(module);
  gated_end(&other);
  gated_end(&holder);
}

// While one waits for another process, its thread's slot serves other keys; and what that process
// has made in the end is not made again.
static void test_waiting_for_a_holder_stops_nobody(void** state) {
  (void)state;
  gated_t holder, other;
  begin(&holder, one_thread, 1);
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = holder.directory,
                                 .settings = one_thread,
                                 .setting_count = 1};
  gated_begin(&other, &options);
  gate_set(&other.gate, true);
  qn_module_t* module = module_of("f", 8);
  qn_module_t* free_module = module_of("g", 9);
  seeker_t seeker, waiter;
  seeker_start(&seeker, &holder, module, "f", NULL);
  gate_await_started(&holder.gate, 1);
  seeker_start(&waiter, &other, module, "f", NULL);
  // Until it waits.
  for (;;) {
    qn__mutex_lock(&other.engine->pool.mutex);
    bool waits = other.engine->pool.lent_count == 1;
    qn__mutex_unlock(&other.engine->pool.mutex);
    if (waits) break;
    usleep(100);
  }
  must(look_up(&other, free_module, "g", NULL, NULL));
  gate_set(&holder.gate, true);
  seeker_join_value(&seeker, 8);
  seeker_join_value(&waiter, 8);
  assert_int_equal(waiter.info.source, QN_SOURCE_DISK);
  assert_int_equal(counter_of(other.engine, "compiles"), 1);
  assert_int_equal(counter_of(other.engine, "claimed_hits"), 1);
  qn_module_release(module);
  qn_module_release(free_module);
  gated_end(&other);
  gated_end(&holder);
}

// ---- failures

static void test_failures_are_remembered(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  gated.engine->flights.failed_period_ns = 3600 * SECOND;
  qn_module_t* module = module_of("f", 1);
  qn_module_t* other = module_of("g", 2);
  for (int i = 0; i < 3; i++) {
    must_be(look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "does not want");
  }
  must_be(look_up(&gated, other, "g", NULL, NULL), QN_STATUS_UNSUPPORTED, "does not want");
  assert_int_equal(gate_started(&gated.gate), 2);
  assert_int_equal(counter_of(gated.engine, "compiles_failed"), 2);
  assert_int_equal(counter_of(gated.engine, "failed_remembered"), 2);
  // Whoever may not compile hears that it is forbidden.
  qn_lookup_options_t fail = with(QN_MISS_FAIL, 0, 0);
  must_be(look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN, "f@");
  // Unloading forgets; so does time.
  (void)qn_engine_unload(gated.engine, module, gated.target, NULL);
  gated.engine->flights.failed_period_ns = 0;
  must_be(look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "does not want");
  assert_int_equal(gate_started(&gated.gate), 3);
  gated.gate.fails_with = QN_STATUS_OK;
  must(look_up(&gated, module, "f", NULL, NULL));
  must_be(look_up(&gated, other, "g", NULL, NULL), QN_STATUS_UNSUPPORTED, "does not want");
  qn_module_release(module);
  qn_module_release(other);
  gated_end(&gated);
}

static void test_what_is_not_remembered(void** state) {
  (void)state;
  static const qn_status_code_t codes[] = {QN_STATUS_OUT_OF_MEMORY, QN_STATUS_CANCELLED,
                                           QN_STATUS_DEADLINE_EXCEEDED};
  gated_t gated;
  begin(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  qn_module_t* module = module_of("f", 1);
  for (size_t i = 0; i < 3; i++) {
    gated.gate.fails_with = codes[i];
    must_be(look_up(&gated, module, "f", NULL, NULL), codes[i], "");
  }
  assert_int_equal(gate_started(&gated.gate), 3);
  gated.gate.fails_with = QN_STATUS_OK;
  must(look_up(&gated, module, "f", NULL, NULL));
  qn_module_release(module);
  gated_end(&gated);
}

// More keys fail than are remembered: the oldest are tried again, and nothing grows.
static void test_many_failures(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  gated.engine->flights.failed_period_ns = 3600 * SECOND;
  for (int i = 0; i < (int)QN__FAILED_COUNT + 1; i++) {
    qn_module_t* module = module_of("f", i);
    must_be(look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "");
    qn_module_release(module);
  }
  int before = gate_started(&gated.gate);
  for (int i = 0; i < 2; i++) {
    qn_module_t* module = module_of("f", i == 0 ? (int)QN__FAILED_COUNT : 0);
    must_be(look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "");
    qn_module_release(module);
  }
  assert_int_equal(gate_started(&gated.gate), before + 1);
  gated_end(&gated);
}

// ---- forbidden, and told

typedef struct heard {
  _Atomic int count;
  qn_miss_reason_t reason;
  qn_status_code_t code;
  qn_tier_t tier;
  char name[128], key[64], text[512];
  int64_t compile_ns;
  size_t code_bytes;
} heard_t;

static void hear(void* self, const qn_compile_event_t* event) {
  heard_t* heard = self;
  assert_int_equal(event->struct_size, sizeof *event);
  assert_non_null(strstr(event->target_json, "interp"));
  heard->reason = event->reason;
  heard->code = qn_status_code(event->status);
  heard->tier = event->tier;
  (void)snprintf(heard->name, sizeof heard->name, "%s", event->name);
  (void)snprintf(heard->key, sizeof heard->key, "%s", event->key);
  (void)snprintf(heard->text, sizeof heard->text, "%s", event->reason_text);
  heard->compile_ns = event->compile_ns;
  heard->code_bytes = event->code_bytes;
  heard->count++;
}

static void test_forbid(void** state) {
  (void)state;
  gated_t gated;
  heard_t heard = {0};
  const qn_setting_t forbid[] = {{"jit", "forbid"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .settings = forbid,
                                 .setting_count = 1,
                                 .on_compile = hear,
                                 .on_compile_self = &heard};
  gated_begin(&gated, &options);
  qn_module_t* module = module_of("f", 1);
  static const qn_miss_policy_t policies[] = {QN_MISS_BLOCK, QN_MISS_FALLBACK, QN_MISS_FAIL};
  for (int i = 0; i < 6; i++) {
    qn_lookup_options_t lookup = with(policies[i / 2], i % 2 ? 3600 * SECOND : 0, 0);
    qn_status_t status = look_up(&gated, module, "f", &lookup, NULL);
    assert_non_null(strstr(qn_status_message(status), "(key "));
    must_be(status, QN_STATUS_COMPILE_FORBIDDEN, "'f@");
  }
  qn_pending_t* pending = request(&gated, module, "f", 0);
  qn_function_t* function;
  must_be(qn_pending_wait(pending, -1, NULL, &function), QN_STATUS_COMPILE_FORBIDDEN, "'f@");
  qn_pending_release(pending);
  assert_int_equal(gate_started(&gated.gate), 0);
  assert_int_equal(heard.count, 0);
  assert_int_equal(counter_of(gated.engine, "compiles_forbidden"), 7);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_callback(void** state) {
  (void)state;
  gated_t gated;
  heard_t heard = {0};
  qn_engine_options_t options = {
      .struct_size = sizeof options, .on_compile = hear, .on_compile_self = &heard};
  gated_begin(&gated, &options);
  gate_set(&gated.gate, true);
  gated.engine->flights.failed_period_ns = 0;
  qn_module_t* module = module_of("f", 1);
  qn_lookup_options_t fast = with(QN_MISS_BLOCK, 0, 0);
  fast.tier = QN_TIER_FAST;
  qn_lookup_info_t info;
  must(look_up(&gated, module, "f", &fast, &info));
  assert_int_equal(heard.count, 1);
  assert_int_equal(heard.reason, QN_MISSED_ABSENT);
  assert_string_equal(heard.text, "directory: no entry");
  assert_string_equal(heard.key, info.key);
  assert_memory_equal(heard.name, "f@", 2);
  assert_memory_equal(heard.name + 2, info.key, 12);
  assert_int_equal(heard.tier, QN_TIER_FAST);
  assert_int_equal(heard.code, QN_STATUS_OK);
  assert_true(heard.code_bytes > 0);
  assert_true(heard.compile_ns == info.compile_ns && info.compile_ns > 0);
  // An entry that is damaged.
  assert_true(qn_engine_flush(gated.engine, 60 * SECOND));
  char path[1024];
  (void)snprintf(path, sizeof path, "%s/v1/%.2s/%s.k", gated.directory, info.key, info.key + 2);
  assert_int_equal(truncate(path, 300), 0);
  (void)qn_engine_unload(gated.engine, module, gated.target, &fast);
  must(look_up(&gated, module, "f", &fast, &info));
  assert_int_equal(heard.count, 2);
  assert_int_equal(heard.reason, QN_MISSED_DAMAGED);
  assert_memory_equal(heard.text, "directory: the file ends", 24);
  // One that fails.
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  must_be(look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "");
  assert_int_equal(heard.count, 3);
  assert_int_equal(heard.code, QN_STATUS_UNSUPPORTED);
  assert_int_equal(heard.code_bytes, 0);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_other_reasons(void** state) {
  (void)state;
  static const struct {
    qn_cache_mode_t mode;
    qn_miss_reason_t reason;
    const char* text;
  } cases[] = {{QN_CACHE_OFF, QN_MISSED_NO_CACHE, "neither a directory nor a bundle"},
               {QN_CACHE_REFRESH, QN_MISSED_REFRESH, "the cache mode is refresh"}};
  for (size_t i = 0; i < 2; i++) {
    gated_t gated;
    heard_t heard = {0};
    qn_engine_options_t options = {.struct_size = sizeof options,
                                   .cache_mode = cases[i].mode,
                                   .on_compile = hear,
                                   .on_compile_self = &heard};
    gated_begin(&gated, &options);
    gate_set(&gated.gate, true);
    qn_module_t* module = module_of("f", 1);
    must(look_up(&gated, module, "f", NULL, NULL));
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.reason, cases[i].reason);
    assert_non_null(strstr(heard.text, cases[i].text));
    qn_module_release(module);
    gated_end(&gated);
  }
  for (int reason = QN_MISSED_ABSENT; reason <= QN_MISSED_REFRESH; reason++) {
    assert_string_not_equal(qn_miss_reason_text((qn_miss_reason_t)reason), "unknown");
  }
}

// ---- ends and forks

static void test_destroy_in_the_middle(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, one_thread, 1);
  qn_module_t* modules[] = {module_of("runs", 1), module_of("waits", 2)};
  qn_pending_t* running = request(&gated, modules[0], "runs", 0);
  gate_await_started(&gated.gate, 1);
  qn_pending_t* queued = request(&gated, modules[1], "waits", 0);
  await_queued(gated.engine, 1);
  assert_false(qn_pending_is_ready(running));
  gate_set(&gated.gate, true);
  qn_engine_destroy(gated.engine);
  // One was waited for, or it was queued still; the other never began or was compiled.
  qn_function_t* function = NULL;
  must(qn_pending_wait(running, 0, NULL, &function));
  assert_int_equal(call(function), 1);
  qn_function_release(function);
  qn_status_t status = qn_pending_wait(queued, 0, NULL, &function);
  if (qn_ok(status)) {
    qn_function_release(function);
  } else {
    must_be(status, QN_STATUS_CANCELLED, "engine ends");
  }
  qn_pending_release(running);
  qn_pending_release(queued);
  // It went into the cache.
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = gated.directory, .ignores_environment = true};
  must(qn_engine_create(&options, &gated.engine));
  gate_install(&gated.gate, gated.engine);
  qn_lookup_info_t info;
  must(look_up(&gated, modules[0], "runs", NULL, &info));
  assert_int_equal(info.source, QN_SOURCE_DISK);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  gated_end(&gated);
}

// A compile that hangs for good holds the destroy for its grace, and nothing longer.
static void test_destroy_with_a_hanging_compile(void** state) {
  (void)state;
  gated_t gated;
  heard_t heard = {0};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .settings = one_thread,
                                 .setting_count = 1,
                                 .on_compile = hear,
                                 .on_compile_self = &heard};
  gated_begin(&gated, &options);
  gated.engine->compile_grace_ns = 1000000;
  qn_module_t* modules[] = {module_of("hangs", 1), module_of("waits", 2)};
  qn_pending_t* hanging = request(&gated, modules[0], "hangs", 0);
  gate_await_started(&gated.gate, 1);
  seeker_t seeker;
  seeker_start(&seeker, &gated, modules[1], "waits", NULL);
  await_queued(gated.engine, 1);
  qn_engine_destroy(gated.engine);
  seeker_join(&seeker);
  must_be(seeker.status, QN_STATUS_CANCELLED, "engine ends");
  qn_function_t* function;
  must_be(qn_pending_wait(hanging, 0, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED, "not ready");
  gate_set(&gated.gate, true);
  must(qn_pending_wait(hanging, -1, NULL, &function));
  assert_int_equal(heard.count, 0);  // whoever was to hear of it may be gone, as his engine is
  assert_int_equal(call(function), 1);
  qn_function_release(function);
  qn_pending_release(hanging);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  // The thread that was left behind ends the engine; what it uses must last until then.
  must(qn_engine_create(NULL, &gated.engine));
  usleep(200000);
  gated_end(&gated);
}

static void test_fork_while_it_compiles(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();  // ThreadSanitizer does not follow locks that the child made anew
#endif
  gated_t gated;
  // The child waits for the claim that its parent holds.
  static const qn_setting_t settings[] = {{"compile_threads", "1"}, {"lock_timeout", "200ms"}};
  begin(&gated, settings, 2);
  qn_module_t* modules[] = {module_of("runs", 1), module_of("waits", 2)};
  qn_pending_t* running = request(&gated, modules[0], "runs", 0);
  gate_await_started(&gated.gate, 1);
  qn_pending_t* queued = request(&gated, modules[1], "waits", 0);
  await_queued(gated.engine, 1);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(60);
    // The parent's lookups never come; the child's own do, of the same keys.
    qn_function_t* function;
    must_be(qn_pending_wait(running, -1, NULL, &function), QN_STATUS_CANCELLED, "forked");
    assert_true(qn_pending_is_ready(queued));
    must_be(qn_pending_wait(queued, 0, NULL, &function), QN_STATUS_CANCELLED, "forked");
    qn_pending_release(running);
    qn_pending_cancel(queued);
    qn_pending_release(queued);
    must(qn__mutex_init(&gated.gate.mutex));
    must(qn__cond_init(&gated.gate.moved));
    gated.gate.is_open = true;
    int started = gated.gate.started_count;
    await_value(request(&gated, modules[0], "runs", 0), 1);
    must(look_up(&gated, modules[1], "waits", NULL, NULL));
    assert_int_equal(gated.gate.started_count, started + 2);
    qn_engine_destroy(gated.engine);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  gate_set(&gated.gate, true);
  await_value(running, 1);
  await_value(queued, 2);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  gated_end(&gated);
}

// Without a thread the caller compiles, if it may wait.
static void test_no_threads(void** state) {
  (void)state;
#if defined(IS_SANITIZED)
  skip();  // sanitizers need address space without end
#endif
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    gated_t gated;
    begin(&gated, one_thread, 1);
    gate_set(&gated.gate, true);
    qn_module_t* module = module_of("f", 1);
    qn_module_t* other = module_of("g", 2);
    FILE* file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!file || fscanf(file, "%lu", &pages) != 1) _exit(9);
    (void)fclose(file);
    struct rlimit limit = {(pages + 1024) * 4096, (pages + 1024) * 4096};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(9);
    must(look_up(&gated, module, "f", NULL, NULL));
    qn_lookup_options_t soon = with(QN_MISS_BLOCK, 3600 * SECOND, 0);
    must_be(look_up(&gated, other, "g", &soon, NULL), QN_STATUS_UNAVAILABLE, "no compile thread");
    qn_lookup_options_t fallback = with(QN_MISS_FALLBACK, 0, 0);
    must(look_up(&gated, other, "g", &fallback, NULL));
    qn_module_t* third = module_of("h", 3);
    qn_pending_t* pending = request(&gated, third, "h", 0);
    qn_function_t* function;
    must_be(qn_pending_wait(pending, -1, NULL, &function), QN_STATUS_UNAVAILABLE, "thread");
    qn_pending_release(pending);
    _exit(counter_of(gated.engine, "compiles") == 2 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

// ---- memory that runs out

typedef struct walk {
  qn_miss_policy_t miss;
  int64_t timeout_ns;
  bool is_request;
} walk_t;

static bool look_up_with(qn_allocator_t allocator, void* user) {
  const walk_t* walk = user;
  gated_t gated;
  memset(&gated, 0, sizeof gated);
  must(qn__mutex_init(&gated.gate.mutex));
  must(qn__cond_init(&gated.gate.moved));
  gated.gate.is_open = true;
  must(qn_target_parse("interp", &gated.target));
  qn_module_t* module = module_of("f", 3);
  qn_module_t* generic = module_of("f", 4);
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .allocator = allocator,
                                 .cache_mode = QN_CACHE_OFF,
                                 .settings = two_threads,
                                 .setting_count = 1,
                                 .ignores_environment = true};
  qn_lookup_options_t lookup = with(walk->miss, walk->timeout_ns, 0);
  lookup.generic = generic;
  qn_function_t* function = NULL;
  qn_pending_t* pending = NULL;
  qn_status_t status = qn_engine_create(&options, &gated.engine);
  if (qn_ok(status)) gate_install(&gated.gate, gated.engine);
  if (qn_ok(status) && walk->is_request) {
    status = qn_engine_request(gated.engine, module, gated.target, "f", &lookup, &pending);
    if (qn_ok(status)) status = qn_pending_wait(pending, -1, NULL, &function);
  } else if (qn_ok(status)) {
    status = qn_engine_function(gated.engine, module, gated.target, "f", &lookup, NULL, &function);
  }
  qn_status_code_t code = qn_status_consume(status);
  bool is_right = walk->miss == QN_MISS_FAIL
                      ? code == QN_STATUS_COMPILE_FORBIDDEN || code == QN_STATUS_OUT_OF_MEMORY
                      : code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY;
  if (function) is_right = is_right && call(function) == 3;
  qn_function_release(function);
  qn_pending_release(pending);
  qn_engine_destroy(gated.engine);
  qn_module_release(module);
  qn_module_release(generic);
  qn_target_release(gated.target);
  qn__mutex_deinit(&gated.gate.mutex);
  qn__cond_deinit(&gated.gate.moved);
  return is_right;
}

static void test_out_of_memory(void** state) {
  (void)state;
  const walk_t walks[] = {{QN_MISS_BLOCK, 0, false},    {QN_MISS_BLOCK, 60 * SECOND, false},
                          {QN_MISS_FALLBACK, 0, false}, {QN_MISS_FALLBACK, 60 * SECOND, false},
                          {QN_MISS_FAIL, 0, false},     {QN_MISS_FAIL, 60 * SECOND, false},
                          {QN_MISS_BLOCK, 0, true},     {QN_MISS_BLOCK, 60 * SECOND, true}};
  for (size_t i = 0; i < QN_COUNT_OF(walks); i++) {
    walk_t walk = walks[i];
    long runs = qn_fault_walk_alloc(look_up_with, &walk);
    if (runs <= 10) fail_msg("walk %zu: %ld", i, runs);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      // First: the C library keeps the stacks of threads that have ended, and would use one.
      cmocka_unit_test(test_no_threads),
      cmocka_unit_test(test_one_compile_for_many),
      cmocka_unit_test(test_two_keys_in_parallel),
      cmocka_unit_test(test_priorities),
      cmocka_unit_test(test_fail_does_not_wait),
      cmocka_unit_test(test_deadline_and_then_the_cache),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_hanging_file_system),
      cmocka_unit_test(test_hanging_holder),
      cmocka_unit_test(test_waiting_for_a_holder_stops_nobody),
      cmocka_unit_test(test_failures_are_remembered),
      cmocka_unit_test(test_what_is_not_remembered),
      cmocka_unit_test(test_many_failures),
      cmocka_unit_test(test_forbid),
      cmocka_unit_test(test_callback),
      cmocka_unit_test(test_other_reasons),
      cmocka_unit_test(test_destroy_in_the_middle),
      cmocka_unit_test(test_destroy_with_a_hanging_compile),
      cmocka_unit_test(test_fork_while_it_compiles),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
