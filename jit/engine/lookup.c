// SPDX-License-Identifier: Apache-2.0
// jit/engine/lookup.c: lookups by the policies BLOCK and FAIL: the memory table, then the task of
// the key.
//
// Requirements:
//  1. A memory hit takes one lock of the table and allocates nothing.
//  2. A lookup without a deadline searches the tiers in its own thread. One with a deadline leaves
//     all operations that may hang to the pool and waits, until its deadline.
//  3. All callers of one key get the same result, or a copy of the same error.
// docs/lookups.md describes the waits. Read next: in_flight.h, lookup_task.c, fallback.c.
#include "jit/engine/lookup.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "ir/place.h"
#include "target/target.h"

int64_t qn__deadline_after(int64_t timeout_ns) {
  return timeout_ns <= 0 ? INT64_MAX : qn__after(qn__now_ns(), timeout_ns);
}

qn_lookup_info_t qn__lookup_memory_info(const qn_executable_t* executable, qn_tier_t tier) {
  return (qn_lookup_info_t){.source = QN_SOURCE_MEMORY, .key = executable->key, .tier = tier};
}

// ------------------------------------------------------------------------------------- outcomes

qn_status_t qn__lookup_forbidden(qn_engine_t* engine, const qn__request_t* request,
                                 qn__lookup_task_t* task) {
  char name[128], key[33];
  qn__in_flight_name(task, name, key);
  const char* why = "it is being compiled for another lookup";
  if (qn__in_flight_state(task) == QN__LOOKUP_DONE) {
    why = task->result.outcome == QN__OUTCOME_ABSENT ? task->result.why
                                                     : "another lookup of it has just ended";
  }
  qn__count(engine, QN__COUNTER_compiles_forbidden, 1);
  return qn_status_make(QN_STATUS_COMPILE_FORBIDDEN,
                        "'%s' is not cached, and compiling is forbidden: %s (key %s, target %s)",
                        name, why, key, qn__target_brief(request->target).text);
}

// Says what continues after the deadline. A lookup that forbids a compile may have joined one that
// allows it.
static const char* continuation(const qn__request_t* request, qn__lookup_task_t* task) {
  if (!request->is_forbidden) return "the lookup continues in the background";
  bool asks_remote = false, may_compile = false;
  if (task) qn__in_flight_needs(task, &asks_remote, &may_compile);
  return may_compile ? "another lookup continues and may compile it"
                     : "the search of the cache continues in the background, without a compile";
}

qn_status_t qn__lookup_too_late(qn_engine_t* engine, const qn__request_t* request,
                                qn__lookup_task_t* task) {
  qn__count(engine, QN__COUNTER_deadline_exceeded, 1);
  char name[128], key[33] = "";
  if (task) qn__in_flight_name(task, name, key);
  bool has_key = key[0] != '\0';  // the task may not have made it yet
  return qn_status_make(
      QN_STATUS_DEADLINE_EXCEEDED, "'%s' is not ready within %.3f ms; %s (%s%s%starget %s)",
      qn__request_name(request), (double)request->timeout_ns / 1e6, continuation(request, task),
      has_key ? "key " : "", key, has_key ? ", " : "", qn__target_brief(request->target).text);
}

qn_status_t qn__lookup_refused(qn_engine_t* engine, const qn__request_t* request) {
  qn__count(engine, QN__COUNTER_threads_refused, 1);
  return qn_status_make(QN_STATUS_UNAVAILABLE,
                        "'%s': no compile thread can be started, and the lookup must not wait",
                        qn__request_name(request));
}

qn_status_t qn__lookup_status(qn_engine_t* engine, const qn__request_t* request,
                              qn__lookup_task_t* task) {
  switch (task->result.outcome) {
    case QN__OUTCOME_FAILED:
      return qn__place_name_locals(qn_status_clone(task->result.status), request->module);
    case QN__OUTCOME_ABSENT:
      return request->is_forbidden ? qn__lookup_forbidden(engine, request, task) : QN_OK;
    case QN__OUTCOME_CANCELLED:
      qn__count(engine, QN__COUNTER_cancelled, 1);
      return qn_status_make(QN_STATUS_CANCELLED,
                            "'%s': the engine is being destroyed, or the process has forked",
                            qn__request_name(request));
    case QN__OUTCOME_FOUND:
    case QN__OUTCOME_RETRY:
      break;
  }
  return QN_OK;
}

// ---------------------------------------------------------------------------------- the lookup

// Waits for the task. `*out_executable` stays NULL with an ok status if the caller is to try again.
static qn_status_t await(qn_engine_t* engine, const qn__request_t* request, const qn__join_t* join,
                         int64_t deadline_ns, qn_lookup_info_t* out_info,
                         qn_executable_t** out_executable) {
  qn__lookup_task_t* task = join->task;
  // A caller that forbids a compile does not wait for one either.
  qn__lookup_state_t state = request->is_forbidden ? QN__LOOKUP_CLAIM : QN__LOOKUP_DONE;
  if (!qn__in_flight_wait(task, state, deadline_ns)) {
    return qn__lookup_too_late(engine, request, task);
  }
  if (qn__in_flight_state(task) != QN__LOOKUP_DONE) {
    return qn__lookup_forbidden(engine, request, task);
  }
  const qn__lookup_result_t* result = &task->result;
  if (result->outcome != QN__OUTCOME_FOUND) return qn__lookup_status(engine, request, task);
  qn_executable_retain(result->executable);
  *out_executable = result->executable;
  *out_info =
      join->is_leader ? result->info : qn__lookup_memory_info(result->executable, request->tier);
  return QN_OK;
}

qn_status_t qn__lookup_miss(qn_engine_t* engine, const qn__request_t* request,
                            const qn__ident_t* ident, int64_t deadline_ns,
                            qn_lookup_info_t* out_info, qn_executable_t** out_executable) {
  qn__lookup_needs_t needs = {
      .asks_remote = true, .may_compile = !request->is_forbidden, .priority = request->priority};
  qn_status_t status = QN_OK;
  while (qn_ok(status) && !*out_executable) {
    qn__join_t join;
    QN_TRY(qn__in_flight_join(&engine->in_flight, request, ident, &needs, &join));
    if (!join.is_leader) qn__count(engine, QN__COUNTER_waited, 1);
    if (join.executable) {
      *out_executable = join.executable;
      *out_info = qn__lookup_memory_info(join.executable, request->tier);
      return QN_OK;
    }
    if (join.is_leader && deadline_ns == INT64_MAX) {
      qn__lookup_run(join.task, needs.may_compile);
    } else if (join.is_leader && !qn__lookup_submit(join.task)) {
      qn__lookup_give_up(join.task, QN__OUTCOME_RETRY);
      status = qn__lookup_refused(engine, request);
    }
    if (qn_ok(status)) {
      status = await(engine, request, &join, deadline_ns, out_info, out_executable);
    }
    qn__lookup_task_release(join.task);
  }
  return status;
}

// Counts and times a lookup that the memory table could not answer.
static qn_status_t look_up_below(qn_engine_t* engine, const qn__request_t* request,
                                 const qn__ident_t* ident, int64_t start_ns,
                                 qn_lookup_info_t* out_info, qn_executable_t** out_executable) {
  qn__count(engine, QN__COUNTER_lookups, 1);
  if (start_ns == 0) start_ns = qn__now_ns();
  // The engine's memory must last for the rest of this call, even if it is destroyed meanwhile.
  qn__engine_retain(engine);
  qn_lookup_info_t info = {.source = QN_SOURCE_COMPILED, .tier = request->tier};
  qn_status_t status = qn__lookup_miss(
      engine, request, ident, qn__deadline_after(request->timeout_ns), &info, out_executable);
  info.lookup_ns =
      qn__watch_end(engine->watch, QN__STAGE_lookup, start_ns, qn__request_name(request));
  QN_STRUCT_WRITE(out_info, info);
  qn__engine_release(engine);
  return status;
}

// Looks up an executable by the policies BLOCK and FAIL. `out_info` may be NULL. Inlined, which
// makes a memory hit 2 ns faster.
__attribute__((always_inline)) static inline qn_status_t look_up(qn_engine_t* engine,
                                                                 const qn__request_t* request,
                                                                 qn_lookup_info_t* out_info,
                                                                 qn_executable_t** out_executable) {
  int64_t start_ns = out_info ? qn__now_ns() : 0;
  qn__ident_t ident = qn__request_ident(request);
  qn_executable_t* executable = qn__table_get(&engine->table, &ident);
  if (!executable) {
    return look_up_below(engine, request, &ident, start_ns, out_info, out_executable);
  }
  if (out_info) {
    qn_lookup_info_t info = qn__lookup_memory_info(executable, request->tier);
    info.lookup_ns = qn__now_ns() - start_ns;
    QN_STRUCT_WRITE(out_info, info);
  }
  *out_executable = executable;
  return QN_OK;
}

qn_status_t qn_engine_executable(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                                 const qn_lookup_options_t* options, qn_lookup_info_t* out_info,
                                 qn_executable_t** out_executable) {
  QN_REQUIRE(out_executable);
  *out_executable = NULL;
  QN_STRUCT_CLEAR(qn_lookup_info_t, out_info);
  QN_REQUIRE(engine, module, target);
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  return look_up(engine, &request, out_info, out_executable);
}

bool qn_engine_unload(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                      const qn_lookup_options_t* options) {
  if (!engine || !module || !target) return false;
  qn__request_t request;
  qn_status_t status = qn__request_init(engine, module, target, options, &request);
  if (!qn_ok(status)) {
    qn_status_free(status);
    return false;
  }
  qn__ident_t ident = qn__request_ident(&request);
  qn__in_flight_forget_failure(&engine->in_flight, &ident);
  return qn__table_remove(&engine->table, &ident);
}

qn_status_t qn_engine_function(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                               const char* name, const qn_lookup_options_t* options,
                               qn_lookup_info_t* out_info, qn_function_t** out_function) {
  QN_REQUIRE(out_function);
  *out_function = NULL;
  QN_STRUCT_CLEAR(qn_lookup_info_t, out_info);
  QN_REQUIRE(engine, module, target, name);
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  if (request.miss == QN_MISS_FALLBACK) {
    return qn__lookup_fallback(engine, &request, name, qn__now_ns(), out_info, out_function);
  }
  qn_executable_t* executable = NULL;
  QN_TRY(look_up(engine, &request, out_info, &executable));
  qn_status_t status = qn_executable_function(executable, module, name, out_function);
  qn_executable_release(executable);
  return status;
}

qn_status_t qn_engine_emit(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                           const qn_lookup_options_t* options, const char* form, qn_sink_t sink) {
  QN_REQUIRE(engine, module, target, form);
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  QN_REQUIRE(sink.write);
  const char* name = target->kind->info->codegen;
  uint32_t generator;
  char identity[256];
  QN_TRY(qn__generators_find(&engine->generators, name, &generator, identity));
  const qn_codegen_t* codegen;
  void* self;
  QN_TRY(qn__generators_open(&engine->generators, generator, &codegen, &self, identity));
  if (!codegen->emit) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "generator '%s' has no intermediate forms", name);
  }
  qn_compile_request_t compile = qn__compile_request(&request);
  return qn__place_name_locals(codegen->emit(self, &compile, form, sink), module);
}
