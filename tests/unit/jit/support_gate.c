// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // usleep
// tests/unit/jit/support_gate.c: see support_gate.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cache/disk_inner.h"
#include "tests/unit/jit/support_gate.h"

// ---------------------------------------------------------------------------------- the generator

static qn_status_t create(void** out_self) {
  *out_self = NULL;
  return QN_OK;
}
static void destroy(void* self) {
  (void)self;
}
static const char* identity(void* self) {
  (void)self;
  return "gated interp";
}

static qn_status_t compile(void* self, const qn_compile_request_t* request,
                           qn_artifact_t** out_artifact) {
  gate_t* gate = self;
  QN_TRY(qn__interp_codegen.compile(NULL, request, out_artifact));
  const char* name = (*out_artifact)->functions[0].name;
  qn__mutex_lock(&gate->mutex);
  int number = gate->started_count++;
  if (number < GATE_LOG) {
    (void)snprintf(gate->log[number], sizeof gate->log[number], "%.20s %s", name,
                   request->tier == QN_TIER_FAST ? "fast" : "full");
  }
  qn__cond_broadcast(&gate->moved);
  bool is_held = (!gate->only || strstr(name, gate->only)) &&
                 (gate->only_tier == 0 || gate->only_tier == request->tier);
  while (is_held && !gate->is_open) qn__cond_wait(&gate->moved, &gate->mutex);
  gate->ended_count++;
  qn_status_code_t code = gate->fails_with;
  qn__cond_broadcast(&gate->moved);
  qn__mutex_unlock(&gate->mutex);
  if (code == QN_STATUS_OK) return QN_OK;
  (*out_artifact)->release(*out_artifact);
  *out_artifact = NULL;
  return qn_status_make(code, "the gated generator does not want to");
}

static const qn_codegen_t gated_codegen = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "interp",
    .create = create,
    .destroy = destroy,
    .identity = identity,
    .compile = compile,
};

void gate_install(gate_t* gate, qn_engine_t* engine) {
  qn__generator_t* item = &engine->generators.items[0];
  (void)snprintf(item->name, sizeof item->name, "interp");
  (void)snprintf(item->identity, sizeof item->identity, "gated interp");
  item->table = &gated_codegen;
  item->self = gate;
  engine->generators.count = 1;
}

void gate_set(gate_t* gate, bool is_open) {
  qn__mutex_lock(&gate->mutex);
  gate->is_open = is_open;
  qn__cond_broadcast(&gate->moved);
  qn__mutex_unlock(&gate->mutex);
}

static void await(gate_t* gate, const int* counter, int count) {
  int64_t deadline_ns = qn__now_ns() + GATE_PATIENCE_NS;
  qn__mutex_lock(&gate->mutex);
  bool is_in_time = true;
  while (*counter < count && is_in_time) {
    is_in_time = qn__cond_wait_until(&gate->moved, &gate->mutex, deadline_ns);
  }
  qn__mutex_unlock(&gate->mutex);
  if (!is_in_time) fail_msg("%d compiles did not come", count);
}
void gate_await_started(gate_t* gate, int count) {
  await(gate, &gate->started_count, count);
}
void gate_await_ended(gate_t* gate, int count) {
  await(gate, &gate->ended_count, count);
}
int gate_started(gate_t* gate) {
  qn__mutex_lock(&gate->mutex);
  int count = gate->started_count;
  qn__mutex_unlock(&gate->mutex);
  return count;
}

// -------------------------------------------------------------------------------------- engine

void gated_begin(gated_t* gated, const qn_engine_options_t* base) {
  memset(gated, 0, sizeof *gated);
  must(qn__mutex_init(&gated->gate.mutex));
  must(qn__cond_init(&gated->gate.moved));
  assert_true(qn_test_tempdir_make(gated->directory));
  qn_engine_options_t options = base ? *base : (qn_engine_options_t){0};
  if (!options.cache_dir) options.cache_dir = gated->directory;
  gated->engine = must_engine(options);
  gate_install(&gated->gate, gated->engine);
  gated->engine->in_flight.failures.period_ns = GATE_PATIENCE_NS;
  gated->engine->compile_grace_ns = GATE_PATIENCE_NS;
  gated->engine->close_grace_ns = GATE_PATIENCE_NS;
  if (qn__engine_disk(gated->engine)) qn__engine_disk(gated->engine)->hang_ns = GATE_PATIENCE_NS;
  gated->target = must_target("interp");
}

void gated_begin_with(gated_t* gated, const qn_setting_t* settings, size_t count) {
  qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = settings, .setting_count = count};
  gated_begin(gated, &options);
}

void gated_end(gated_t* gated) {
  gate_set(&gated->gate, true);
  if (gated->engine) {
    qn__mutex_lock(&gated->engine->in_flight.mutex);
    assert_true(qn__in_flight_check(&gated->engine->in_flight));
    qn__mutex_unlock(&gated->engine->in_flight.mutex);
  }
  qn_engine_destroy(gated->engine);
  qn_target_release(gated->target);
  qn_test_tempdir_remove(gated->directory);
  qn__mutex_deinit(&gated->gate.mutex);
  qn__cond_deinit(&gated->gate.moved);
}

void gated_end_left(gated_t* gated, qn_engine_t* left) {
  gate_set(&gated->gate, true);
  while (atomic_load(&left->reference_count) > 1) usleep(100);
  qn__engine_release(left);
  must(qn_engine_create(NULL, &gated->engine));
  gated_end(gated);
}

qn_module_t* module_of(const char* name, int value) {
  char text[256];
  (void)snprintf(text, sizeof text, "func %s(out y: i32[n]) { for i in 0..n { y[i] = %d; } }\n",
                 name, value);
  return must_parse(text);
}

int call(qn_function_t* function) {
  int32_t y[3] = {-1, -1, -1};
  int64_t shape[] = {3};
  qn_tensor_t tensor = {y, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_value_t args[] = {qn_value_tensor(&tensor)};
  must(qn_function_call(function, args, 1, NULL));
  assert_int_equal(y[0], y[2]);
  return y[0];
}

// -------------------------------------------------------------------------------------- lookups

qn_lookup_options_t lookup_with(qn_miss_policy_t miss, int64_t timeout_ns, int32_t priority) {
  return (qn_lookup_options_t){.struct_size = sizeof(qn_lookup_options_t),
                               .miss = miss,
                               .time_limit_ns = timeout_ns,
                               .priority = priority};
}

qn_status_t gated_look_up(gated_t* gated, qn_module_t* module, const char* name,
                          const qn_lookup_options_t* options, qn_lookup_info_t* info) {
  qn_function_t* function;
  QN_TRY(qn_engine_function(gated->engine, module, gated->target, name, options, info, &function));
  qn_function_release(function);
  return QN_OK;
}

qn_future_t* gated_request(gated_t* gated, qn_module_t* module, const char* name,
                           int32_t priority) {
  qn_lookup_options_t options = lookup_with(QN_MISS_BLOCK, 0, priority);
  qn_future_t* future;
  must(qn_engine_request(gated->engine, module, gated->target, name, &options, &future));
  return future;
}

void await_value(qn_future_t* future, int value) {
  qn_function_t* function;
  must(qn_future_wait(future, -1, NULL, &function));
  assert_int_equal(call(function), value);
  qn_function_release(function);
  qn_future_release(future);
}

void await_queued(qn_engine_t* engine, uint32_t count) {
  for (;;) {
    qn__mutex_lock(&engine->pool.mutex);
    uint32_t queued = engine->pool.queues[QN__QUEUE_COMPUTE].queued_count;
    qn__mutex_unlock(&engine->pool.mutex);
    if (queued == count) return;
    usleep(100);
  }
}

// -------------------------------------------------------------------------------------- seekers

static void* seek(void* arg) {
  seeker_t* seeker = arg;
  seeker->status = qn_engine_function(seeker->engine, seeker->module, seeker->target, seeker->name,
                                      &seeker->options, &seeker->info, &seeker->function);
  return NULL;
}

void seeker_start(seeker_t* seeker, gated_t* gated, qn_module_t* module, const char* name,
                  const qn_lookup_options_t* options) {
  memset(seeker, 0, sizeof *seeker);
  seeker->info.struct_size = sizeof seeker->info;
  seeker->engine = gated->engine;
  seeker->module = module;
  seeker->target = gated->target;
  seeker->name = name;
  if (options) seeker->options = *options;
  seeker->options.struct_size = sizeof seeker->options;
  must(qn__thread_start(&seeker->thread, "seeker", 0, seek, seeker));
}

void seeker_join(seeker_t* seeker) {
  assert_int_equal(pthread_join(seeker->thread, NULL), 0);
}

void seeker_join_value(seeker_t* seeker, int value) {
  seeker_join(seeker);
  must(seeker->status);
  assert_int_equal(call(seeker->function), value);
  qn_function_release(seeker->function);
}
