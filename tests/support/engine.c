// SPDX-License-Identifier: Apache-2.0
// tests/support/engine.c: see engine.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "quern/observe.h"
#include "tests/support/engine.h"

qn_engine_t* must_engine(qn_engine_options_t options) {
  options.struct_size = sizeof options;
  options.ignores_environment = true;
  qn_engine_t* engine;
  must(qn_engine_create(&options, &engine));
  return engine;
}

qn_target_t* must_target(const char* text) {
  qn_target_t* target;
  must(qn_target_parse(text, &target));
  return target;
}

typedef struct wanted {
  const char* name;
  uint64_t value;
  bool is_found;
} wanted_t;

static void find_counter(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  wanted_t* wanted = self;
  if (strcmp(wanted->name, name) != 0) return;
  wanted->value = value;
  wanted->is_found = true;
}

uint64_t counter_of(qn_engine_t* engine, const char* name) {
  wanted_t wanted = {name, 0, false};
  qn_engine_counters(engine, find_counter, &wanted);
  if (!wanted.is_found) fail_msg("no counter %s", name);
  return wanted.value;
}
