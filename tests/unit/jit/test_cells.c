// SPDX-License-Identifier: Apache-2.0
// Tests function cells with variants from other modules: the cell's own signature counts, failures
// use names of the running code, the better variant stays, and calls and publishes may be
// concurrent.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/thread.h"
#include "jit/call/executable.h"
#include "quern/quern.h"
#include "tests/support/engine.h"
#include "tests/support/fault.h"

static const qn_device_t cpu = {QN_DEVICE_CPU, 0};

// Both double their input, and say in the last element which of them ran.
static const char fixed_text[] =
    "func f(x: f32[4], inout y: f32[4], k: i64) {\n"
    "  for i in 0..3 { y[i] = x[i] * 2.0; }\n"
    "  y[3] = 1.0 + x[k] * 0.0;\n"
    "}\n";
static const char generic_text[] =
    "func f(from: f32[n], inout to: f32[n], at: i64) {\n"
    "  assert at != 77, \"77 is refused\";\n"
    "  for i in 0..n - 1 { to[i] = from[i] * 2.0; }\n"
    "  to[n - 1] = 2.0 + from[at] * 0.0;\n"
    "}\n";

typedef struct made {
  qn_module_t* module;
  qn_executable_t* executable;
} made_t;

static qn_engine_t* engine_with(qn_allocator_t allocator) {
  return must_engine((qn_engine_options_t){.allocator = allocator, .cache_mode = QN_CACHE_OFF});
}

static made_t make(qn_engine_t* engine, const char* text, const char* target_text,
                   bool is_checked) {
  made_t made;
  qn_target_t* target;
  must(qn_module_parse(text, strlen(text), NULL, &made.module));
  must(qn_target_parse(target_text, &target));
  qn_lookup_options_t options = {.struct_size = sizeof options, .is_checked = is_checked};
  must(qn_engine_executable(engine, made.module, target, &options, NULL, &made.executable));
  qn_target_release(target);
  return made;
}
static void drop(made_t* made) {
  qn_executable_release(made->executable);
  qn_module_release(made->module);
}

typedef struct arguments {
  float x[8], y[8];
  int64_t shape[1];
  qn_tensor_t tensors[2];
  qn_value_t values[3];
} arguments_t;

static void fill(arguments_t* a, int64_t count, int64_t k) {
  a->shape[0] = count;
  for (int i = 0; i < 8; i++) {
    a->x[i] = (float)i + 1;
    a->y[i] = 0;
  }
  float* data[] = {a->x, a->y};
  for (int i = 0; i < 2; i++) {
    a->tensors[i] = (qn_tensor_t){data[i], cpu, 1, qn_dtype_to_dl(QN_DTYPE_F32), a->shape, NULL, 0};
    a->values[i] = qn_value_tensor(&a->tensors[i]);
  }
  a->values[2] = qn_value_int(k);
}

// Which of the two programs ran: 1 the fixed one, 2 the generic one.
static int who_runs(qn_function_t* function) {
  arguments_t a;
  fill(&a, 4, 0);
  must(qn_function_call(function, a.values, 3, NULL));
  for (int i = 0; i < 3; i++) assert_true(a.y[i] == a.x[i] * 2);
  return (int)a.y[3];
}

static const char* const kinds[] = {"interp", QN_HAVE_LLVM ? "cpu" : "interp"};

static void test_contract(void** state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    qn_engine_t* engine = engine_with(qn_allocator_default());
    made_t fixed = make(engine, fixed_text, kinds[k], true);
    made_t generic = make(engine, generic_text, kinds[k], true);
    qn_function_t* function;
    must(qn__function_create(fixed.module, "f", generic.executable, generic.module,
                             QN__RANK_GENERIC, &function));
    assert_int_equal(who_runs(function), 2);
    assert_string_equal(qn_function_signature(function), "f(x: f32[4], inout y: f32[4], k: i64)");
    // The generic one takes eight elements, the cell does not, and says so in its own words.
    arguments_t a;
    fill(&a, 8, 0);
    must_fail(qn_function_call(function, a.values, 3, NULL), QN_STATUS_VALUE_ERROR,
              "f(x: f32[4], inout y: f32[4], k: i64): argument 0 'x': extent 0: expected 4, got 8");
    must_fail(qn_function_call(function, a.values, 2, NULL), QN_STATUS_TYPE_ERROR,
              "f(x: f32[4], inout y: f32[4], k: i64): expected 3 arguments");
    // What running code says names the running code's buffers, at once and behind a stream.
    fill(&a, 4, 9);
    must_fail(qn_function_call(function, a.values, 3, NULL), QN_STATUS_OUT_OF_BOUNDS,
              "function 'f': buffer 'from' dim 0: index 9 outside of extent 4");
    fill(&a, 4, 77);
    must_fail(qn_function_call(function, a.values, 3, NULL), QN_STATUS_ASSERTION,
              "function 'f': assert failed: 77 is refused");
    qn_stream_t* stream;
    must(qn_stream_create(cpu, &stream));
    must(qn_function_call_on(function, stream, a.values, 3, NULL));
    must_fail(qn_stream_sync(cpu, stream), QN_STATUS_ASSERTION, "77 is refused");
    fill(&a, 4, 0);
    must(qn_function_call_on(function, stream, a.values, 3, NULL));
    must(qn_stream_sync(cpu, stream));
    assert_true(a.y[3] == 2);

    must(qn__function_publish(function, fixed.executable, fixed.module, QN__RANK_ASKED));
    assert_int_equal(who_runs(function), 1);
    fill(&a, 4, 9);
    must_fail(qn_function_call(function, a.values, 3, NULL), QN_STATUS_OUT_OF_BOUNDS,
              "buffer 'x' dim 0: index 9");
    // A variant that is worse, or no better, completes later and changes nothing.
    must(qn__function_publish(function, generic.executable, generic.module, QN__RANK_GENERIC));
    must(qn__function_publish(function, generic.executable, generic.module, QN__RANK_ASKED));
    assert_int_equal(qn__function_rank(function), QN__RANK_ASKED);
    assert_int_equal(who_runs(function), 1);
    // The cell keeps all that it needs.
    qn_engine_destroy(engine);
    drop(&fixed);
    drop(&generic);
    assert_int_equal(who_runs(function), 1);
    must(qn_function_call_on(function, stream, a.values, 3, NULL));
    qn_function_release(function);
    qn_stream_destroy(stream);
  }
}

// Every way in which a generic function does not fit, and a few in which it does.
static void test_signatures(void** state) {
  (void)state;
  static const struct {
    const char* wanted;
    const char* variant;
    const char* message;  // NULL: fits
  } cases[] = {
      {"x: f32[4], out y: f32[4]", "x: f32[n], out y: f32[n]", NULL},
      {"x: f32[4], out y: f32[8]", "x: f32[n], out y: f32[m]", NULL},
      {"x: f32[4], out y: f32[8]", "x: f32[n], out y: f32[2 * n]", NULL},
      {"x: f32[a], out y: f32[a]", "x: f32[n], out y: f32[m]", NULL},
      {"x: f32[4, 2] strides [p, 1], out y: f32[4]", "x: f32[n, m] strides [p, q], out y: f32[n]",
       NULL},
      {"x: f32[4] align 64, out y: f32[4]", "x: f32[n], out y: f32[n]", NULL},
      {"x: f32[4], out y: f32[4]", "x: f32[n]", "expected 2 parameters, got 1"},
      {"x: f32[4], out y: f32[4]", "a: f64[n], out b: f32[n]",
       "parameter 0 'x': expected dtype f32, got f64"},
      {"x: f32[4], out y: f32[4]", "x: f32[n], out y: f32[n, n]",
       "parameter 1 'y': expected rank 1, got 2"},
      {"x: f32[4], out y: f32[4]", "x: f32[n], inout y: f32[n]",
       "parameter 1 'y': expected access 'out', got 'inout'"},
      {"x: f32[4], out y: f32[4]", "x: f32[n] align 64, out y: f32[n]",
       "parameter 0 'x': expected an alignment of at most 4 bytes, got 64"},
      {"x: f32[4], out y: f32[4]", "x: f32[n], out y: f32[5]",
       "parameter 1 'y': extent 0 is fixed to 5"},
      {"x: f32[a], out y: f32[a]", "x: f32[n], out y: f32[5]",
       "parameter 1 'y': extent 0 is fixed to 5"},
      {"x: f32[4], out y: f32[8]", "x: f32[n], out y: f32[n]",
       "parameter 1 'y': extent 0 is 'n', which is 4 before and 8 here"},
      {"x: f32[4], k: i32", "x: f32[n], y: f32[n]",
       "parameter 1 'k': expected a scalar, got a buffer"},
      {"x: f32[4], k: i32", "k: i32, x: f32[n]",
       "parameter 0 'x': expected a buffer, got a scalar"},
      {"x: f32[4], k: i32", "x: f32[n], k: i64", "parameter 1 'k': expected dtype i32, got i64"},
      {"x: f32[4, 2] strides [p, 1], out y: f32[4]", "x: f32[n, m], out y: f32[n]",
       "parameter 0 'x': expected strides, got none"},
      {"x: f32[4, 2] strides [p, q], out y: f32[4]", "x: f32[n, m] strides [p, 1], out y: f32[n]",
       "parameter 0 'x': stride 1 is fixed to 1"},
      {"k: i32 = 5, x: f32[4]", "k: i32, x: f32[n]", NULL},
      {"k: i32 = 5, x: f32[4]", "k: i32 = 5, x: f32[n]", NULL},
      {"k: i32 = 5, x: f32[4]", "k: i32 = 6, x: f32[n]", "parameter 0 'k': it is fixed to 6"},
      {"k: i32, x: f32[4]", "k: i32 = 5, x: f32[n]", "parameter 0 'k': it is fixed to 5"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn_module_t* modules[2];
    const char* params[] = {cases[i].wanted, cases[i].variant};
    for (int m = 0; m < 2; m++) {
      char text[256];
      (void)snprintf(text, sizeof text, "func f(%s) { }\n", params[m]);
      must(qn_module_parse(text, strlen(text), NULL, &modules[m]));
    }
    qn_status_t status = qn__signature_check(modules[0]->functions[0], modules[1]->functions[0]);
    if (cases[i].message) {
      must_fail(status, QN_STATUS_INVALID_ARGUMENT, cases[i].message);
    } else {
      must(status);
    }
    for (int m = 0; m < 2; m++) qn_module_release(modules[m]);
  }
}

static void test_refusals(void** state) {
  (void)state;
  qn_engine_t* engine = engine_with(qn_allocator_default());
  made_t fixed = make(engine, fixed_text, "interp", false);
  made_t other = make(engine, "func g(x: f32[n]) { }\n", "interp", false);
  made_t wrong = make(engine, "func f(x: f64[n]) { }\n", "interp", false);
  made_t away = make(engine, generic_text, "null", false);
  // Stricter in a way that only a call can show: half as many elements as there may be.
  made_t strict = make(engine,
                       "func f(x: f32[n], inout y: f32[n + n - n * 1], k: i64) { }\n"
                       "func unused(x: f32[n]) { }\n",
                       "interp", false);
  made_t never =
      make(engine, "func f(x: f32[n], inout y: f32[n + 1], k: i64) { }\n", "interp", false);
  qn_function_t* function;
  must_fail(qn__function_create(fixed.module, "g", fixed.executable, fixed.module, QN__RANK_ASKED,
                                &function),
            QN_STATUS_NOT_FOUND, "did you mean 'f'?");
  assert_null(function);
  must_fail(qn__function_create(fixed.module, "f", other.executable, other.module, QN__RANK_GENERIC,
                                &function),
            QN_STATUS_NOT_FOUND, "no function 'f' in the module; did you mean 'g'?");
  must_fail(qn__function_create(fixed.module, "f", wrong.executable, wrong.module, QN__RANK_GENERIC,
                                &function),
            QN_STATUS_INVALID_ARGUMENT, "expected 3 parameters, got 1");
  must_fail(qn__function_create(fixed.module, "f", wrong.executable, fixed.module, QN__RANK_GENERIC,
                                &function),
            QN_STATUS_INVALID_ARGUMENT, "another module");
  assert_null(function);
  must(qn__function_create(fixed.module, "f", never.executable, never.module, QN__RANK_GENERIC,
                           &function));
  arguments_t a;
  fill(&a, 4, 0);
  qn_status_t status = qn_function_call(function, a.values, 3, NULL);
  assert_non_null(strstr(qn_status_message(status), "served by a generic variant"));
  must_fail(status, QN_STATUS_VALUE_ERROR, "argument 1 'y': extent 0: expected n + 1 = 5, got 4");
  must_fail(qn__function_publish(function, away.executable, away.module, QN__RANK_ASKED),
            QN_STATUS_INVALID_ARGUMENT, "is on device cpu:0, its new variant on null:0");
  must_fail(qn__function_publish(function, wrong.executable, wrong.module, QN__RANK_ASKED),
            QN_STATUS_INVALID_ARGUMENT, "expected 3 parameters, got 1");
  must(qn__function_publish(function, strict.executable, strict.module, QN__RANK_FAST));
  must(qn_function_call(function, a.values, 3, NULL));
  must(qn__function_publish(function, fixed.executable, fixed.module, QN__RANK_ASKED));
  assert_int_equal(who_runs(function), 1);
  qn_function_release(function);
  made_t* all[] = {&fixed, &other, &wrong, &away, &strict, &never};
  for (size_t i = 0; i < QN_COUNT_OF(all); i++) drop(all[i]);
  qn_engine_destroy(engine);
}

// ---- calls and publishes at once

enum { CALLERS = 3, PUBLISHERS = 2, ROUNDS = 60 };

typedef struct shared {
  made_t fixed, generic;
  _Atomic(qn_function_t*) function;
  _Atomic int stopped_count;
  _Atomic bool is_over;
} shared_t;

static void* call_on_and_on(void* arg) {
  shared_t* s = arg;
  qn_function_t* function = atomic_load(&s->function);
  int last = 0;
  while (!atomic_load(&s->is_over)) {
    int now = who_runs(function);
    // 2 is the generic one; once the better one is there, it stays.
    if (last == 1) assert_int_equal(now, 1);
    last = now;
  }
  assert_int_equal(who_runs(function), 1);
  return NULL;
}
static void* publish_all(void* arg) {
  shared_t* s = arg;
  qn_function_t* function = atomic_load(&s->function);
  must(qn__function_publish(function, s->generic.executable, s->generic.module,
                            QN__RANK_GENERIC_FAST));
  must(qn__function_publish(function, s->generic.executable, s->generic.module, QN__RANK_GENERIC));
  must(qn__function_publish(function, s->fixed.executable, s->fixed.module, QN__RANK_ASKED));
  must(qn__function_publish(function, s->generic.executable, s->generic.module, QN__RANK_GENERIC));
  return NULL;
}

static void test_publish_while_called(void** state) {
  (void)state;
  qn_engine_t* engine = engine_with(qn_allocator_default());
  const char* kind = QN_HAVE_LLVM ? "cpu" : "interp";
  shared_t s = {.fixed = make(engine, fixed_text, kind, false),
                .generic = make(engine, generic_text, kind, false)};
  for (int round = 0; round < ROUNDS; round++) {
    qn_function_t* function;
    must(qn__function_create(s.fixed.module, "f", s.generic.executable, s.generic.module,
                             QN__RANK_GENERIC_FAST, &function));
    s.function = function;
    s.is_over = false;
    pthread_t callers[CALLERS], publishers[PUBLISHERS];
    for (int i = 0; i < CALLERS; i++) {
      must(qn__thread_start(&callers[i], "caller", 0, call_on_and_on, &s));
    }
    for (int i = 0; i < PUBLISHERS; i++) {
      must(qn__thread_start(&publishers[i], "publisher", 0, publish_all, &s));
    }
    for (int i = 0; i < PUBLISHERS; i++) assert_int_equal(pthread_join(publishers[i], NULL), 0);
    s.is_over = true;
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(callers[i], NULL), 0);
    qn_function_release(function);
  }
  drop(&s.fixed);
  drop(&s.generic);
  qn_engine_destroy(engine);
}

// ---- memory that runs out

static bool make_cell(qn_allocator_t allocator, void* user) {
  made_t* parts = user;
  // The cell's allocator is the executable's: both are lent the one that fails.
  for (int i = 0; i < 2; i++) parts[i].executable->allocator = allocator;
  qn_function_t* function;
  qn_status_t status = qn__function_create(parts[0].module, "f", parts[1].executable,
                                           parts[1].module, QN__RANK_GENERIC, &function);
  if (qn_ok(status)) {
    status = qn__function_publish(function, parts[0].executable, parts[0].module, QN__RANK_ASKED);
    arguments_t a;
    fill(&a, 4, 0);
    qn_status_t called = qn_function_call(function, a.values, 3, NULL);
    if (!qn_ok(called) || a.y[3] != (qn_ok(status) ? 1 : 2)) return false;
    qn_function_release(function);
  }
  qn_status_code_t code = qn_status_consume(status);
  return code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY;
}

static void test_memory_runs_out(void** state) {
  (void)state;
  qn_engine_t* engine = engine_with(qn_allocator_default());
  made_t parts[2] = {make(engine, fixed_text, "interp", false),
                     make(engine, generic_text, "interp", false)};
  qn_allocator_t own = parts[0].executable->allocator;
  assert_true(qn_fault_walk_alloc(make_cell, parts) > 8);
  for (int i = 0; i < 2; i++) {
    parts[i].executable->allocator = own;
    drop(&parts[i]);
  }
  qn_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_contract),        cmocka_unit_test(test_signatures),
      cmocka_unit_test(test_refusals),        cmocka_unit_test(test_publish_while_called),
      cmocka_unit_test(test_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
