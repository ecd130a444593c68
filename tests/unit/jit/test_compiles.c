// SPDX-License-Identifier: Apache-2.0
// Tests outcomes of compiles: remembered failures, forbidden compiles, and the events that report
// each compile with its reason.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/jit/support_gate.h"

static const qn_setting_t one_thread[] = {{"compile_threads", "1"}};

// ---- failures

static void test_failures_are_remembered(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  gated.engine->in_flight.failures.period_ns = 3600 * SECOND;
  qn_module_t* module = module_of("f", 1);
  qn_module_t* other = module_of("g", 2);
  for (int i = 0; i < 3; i++) {
    must_fail(gated_look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED,
              "does not want");
  }
  must_fail(gated_look_up(&gated, other, "g", NULL, NULL), QN_STATUS_UNSUPPORTED, "does not want");
  assert_int_equal(gate_started(&gated.gate), 2);
  assert_int_equal(counter_of(gated.engine, "compiles_failed"), 2);
  assert_int_equal(counter_of(gated.engine, "failed_remembered"), 2);
  // A lookup that may not compile gets COMPILE_FORBIDDEN.
  qn_lookup_options_t fail = lookup_with(QN_MISS_FAIL, 0, 0);
  must_fail(gated_look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN, "f@");
  // Unloading forgets; so does time.
  (void)qn_engine_unload(gated.engine, module, gated.target, NULL);
  gated.engine->in_flight.failures.period_ns = 0;
  must_fail(gated_look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "does not want");
  assert_int_equal(gate_started(&gated.gate), 3);
  gated.gate.fails_with = QN_STATUS_OK;
  must(gated_look_up(&gated, module, "f", NULL, NULL));
  must_fail(gated_look_up(&gated, other, "g", NULL, NULL), QN_STATUS_UNSUPPORTED, "does not want");
  qn_module_release(module);
  qn_module_release(other);
  gated_end(&gated);
}

static void test_what_is_not_remembered(void** state) {
  (void)state;
  static const qn_status_code_t codes[] = {QN_STATUS_OUT_OF_MEMORY, QN_STATUS_CANCELLED,
                                           QN_STATUS_DEADLINE_EXCEEDED};
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  qn_module_t* module = module_of("f", 1);
  for (size_t i = 0; i < 3; i++) {
    gated.gate.fails_with = codes[i];
    must_fail(gated_look_up(&gated, module, "f", NULL, NULL), codes[i], "");
  }
  assert_int_equal(gate_started(&gated.gate), 3);
  gated.gate.fails_with = QN_STATUS_OK;
  must(gated_look_up(&gated, module, "f", NULL, NULL));
  qn_module_release(module);
  gated_end(&gated);
}

// More keys fail than are remembered: the oldest are tried again, and nothing grows.
static void test_many_failures(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  gated.engine->in_flight.failures.period_ns = 3600 * SECOND;
  for (int i = 0; i < (int)QN__FAILURE_COUNT + 1; i++) {
    qn_module_t* module = module_of("f", i);
    must_fail(gated_look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "");
    qn_module_release(module);
  }
  int before = gate_started(&gated.gate);
  for (int i = 0; i < 2; i++) {
    qn_module_t* module = module_of("f", i == 0 ? (int)QN__FAILURE_COUNT : 0);
    must_fail(gated_look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "");
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
  (void)snprintf(heard->key, sizeof heard->key, "%s", event->key.hex);
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
    qn_lookup_options_t lookup = lookup_with(policies[i / 2], i % 2 ? 3600 * SECOND : 0, 0);
    qn_status_t status = gated_look_up(&gated, module, "f", &lookup, NULL);
    assert_non_null(strstr(qn_status_message(status), "(key "));
    must_fail(status, QN_STATUS_COMPILE_FORBIDDEN, "'f@");
  }
  qn_future_t* future = gated_request(&gated, module, "f", 0);
  qn_function_t* function;
  must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_COMPILE_FORBIDDEN, "'f@");
  qn_future_release(future);
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
  gated.engine->in_flight.failures.period_ns = 0;
  qn_module_t* module = module_of("f", 1);
  qn_lookup_options_t fast = lookup_with(QN_MISS_BLOCK, 0, 0);
  fast.tier = QN_TIER_FAST;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(gated_look_up(&gated, module, "f", &fast, &info));
  assert_int_equal(heard.count, 1);
  assert_int_equal(heard.reason, QN_MISSED_ABSENT);
  assert_string_equal(heard.text, "directory: no entry");
  assert_string_equal(heard.key, info.key.hex);
  assert_memory_equal(heard.name, "f@", 2);
  assert_memory_equal(heard.name + 2, info.key.hex, 12);
  assert_int_equal(heard.tier, QN_TIER_FAST);
  assert_int_equal(heard.code, QN_STATUS_OK);
  assert_true(heard.code_bytes > 0);
  assert_true(heard.compile_ns == info.compile_ns && info.compile_ns > 0);
  // An entry that is damaged.
  assert_true(qn_engine_flush(gated.engine, 3600 * SECOND));
  char path[1024];
  (void)snprintf(path, sizeof path, "%s/v1/%.2s/%s.k", gated.directory, info.key.hex,
                 info.key.hex + 2);
  assert_int_equal(truncate(path, 300), 0);
  (void)qn_engine_unload(gated.engine, module, gated.target, &fast);
  must(gated_look_up(&gated, module, "f", &fast, &info));
  assert_int_equal(heard.count, 2);
  assert_int_equal(heard.reason, QN_MISSED_DAMAGED);
  assert_memory_equal(heard.text, "directory: the file ends", 24);
  // One that fails.
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  must_fail(gated_look_up(&gated, module, "f", NULL, NULL), QN_STATUS_UNSUPPORTED, "");
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
    must(gated_look_up(&gated, module, "f", NULL, NULL));
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_failures_are_remembered),
      cmocka_unit_test(test_what_is_not_remembered),
      cmocka_unit_test(test_many_failures),
      cmocka_unit_test(test_forbid),
      cmocka_unit_test(test_callback),
      cmocka_unit_test(test_other_reasons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
