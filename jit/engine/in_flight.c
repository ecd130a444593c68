// SPDX-License-Identifier: Apache-2.0
// jit/engine/in_flight.c: joins lookups in flight, waits for them and completes them.
//
// Requirements:
//  1. One task for each key: the list is searched and extended under one lock. An executable is in
//     the memory table before its task leaves the list.
//  2. A task in the list is not done, and its leader holds a reference.
//  3. A caller waits no longer than its deadline, and its leaving does not affect other callers.
//  4. A caller's permission is never lost: the leader decides whether its task is done under the
//     lock that joining takes.
//  5. A child of fork has none of its parent's tasks: for callers in the child they are cancelled.
//  6. A task in the list keeps the engine's tiers open.
// The list holds only running tasks. It is short, so it is searched linearly.
#include "jit/engine/in_flight.h"

#include "base/alloc.h"
#include "base/fork.h"
#include "ir/place.h"
#include "jit/engine/engine.h"

#define FAILURE_PERIOD_NS INT64_C(1000000000)

bool qn__in_flight_check(const qn__in_flight_t* in_flight) {
  uint32_t count = 0;
  for (const qn__lookup_task_t* task = in_flight->first; task; task = task->next, count++) {
    bool is_alive = task->state < QN__LOOKUP_DONE && !task->is_orphan &&
                    atomic_load(&task->reference_count) > 0;
    if (!is_alive || task->engine != in_flight->engine) return false;
    for (const qn__lookup_task_t* other = task->next; other; other = other->next) {
      if (qn__ident_equal(&task->ident, &other->ident)) return false;
    }
  }
  return count == in_flight->count;
}

// ---------------------------------------------------------------------------------------- fork

// Frees nothing: allocators may not be ready here. The engine's end drops the orphans.
static void fork_child(void* self) {
  qn__in_flight_t* in_flight = self;
  qn_status_free(qn__cond_init(&in_flight->changed));
  while (in_flight->first) {
    qn__lookup_task_t* task = in_flight->first;
    in_flight->first = task->next;
    task->next = in_flight->orphans;
    in_flight->orphans = task;
    task->is_orphan = true;
    task->state = QN__LOOKUP_DONE;
    task->result.outcome = QN__OUTCOME_CANCELLED;
    qn__engine_forget_tier_user(in_flight->engine);
  }
  in_flight->count = 0;
  in_flight->timed_futures = NULL;
  in_flight->has_timer_task = false;
}

// ----------------------------------------------------------------------------- begin and end

qn_status_t qn__in_flight_init(qn__in_flight_t* in_flight, qn_engine_t* engine) {
  memset(in_flight, 0, sizeof *in_flight);
  in_flight->engine = engine;
  in_flight->failures.period_ns = FAILURE_PERIOD_NS;
  QN_TRY(qn__mutex_init(&in_flight->mutex));
  QN_TRY(qn__cond_init(&in_flight->changed));
  in_flight->fork_node =
      (qn__fork_node_t){.self = in_flight, .mutex = &in_flight->mutex, .child = fork_child};
  if (qn__fork_register(&in_flight->fork_node)) return QN_OK;
  in_flight->fork_node.self = NULL;
  return qn__out_of_memory("a fork handler");
}

void qn__in_flight_deinit(qn__in_flight_t* in_flight) {
  if (!in_flight->fork_node.self) return;
  qn__fork_unregister(&in_flight->fork_node);
  assert(!in_flight->first && !in_flight->orphans);
  qn__failures_deinit(&in_flight->failures);
  qn__mutex_deinit(&in_flight->mutex);
  qn__cond_deinit(&in_flight->changed);
}

void qn__in_flight_close(qn__in_flight_t* in_flight) {
  if (!in_flight->fork_node.self) return;
  qn__mutex_lock(&in_flight->mutex);
  in_flight->is_closing = true;
  qn__cond_broadcast(&in_flight->changed);
  qn__mutex_unlock(&in_flight->mutex);
}

bool qn__in_flight_is_closing(qn__in_flight_t* in_flight) {
  qn__mutex_lock(&in_flight->mutex);
  bool is_closing = in_flight->is_closing;
  qn__mutex_unlock(&in_flight->mutex);
  return is_closing;
}

static void call_listeners(qn__lookup_task_t* task, qn__listener_t* listener) {
  while (listener) {
    qn__listener_t* next = listener->next;
    listener->on_done(listener, task);
    listener = next;
  }
}

void qn__in_flight_drop_orphans(qn__in_flight_t* in_flight) {
  qn__lookup_task_t* orphan = in_flight->orphans;
  in_flight->orphans = NULL;
  while (orphan) {
    qn__lookup_task_t* next = orphan->next;
    qn__listener_t* listeners = orphan->listeners;
    orphan->listeners = NULL;
    call_listeners(orphan, listeners);
    qn__lookup_task_release(orphan);
    orphan = next;
  }
}

static bool has_remote_tier(qn_engine_t* engine) {
  qn__tier_t* tier = engine->reads_tiers ? qn__tier_first(engine) : NULL;
  while (tier && !tier->table->is_remote) tier = qn__tier_next(tier);
  return tier != NULL;
}

static qn__lookup_task_t* make_task(qn_engine_t* engine, const qn__request_t* request,
                                    const qn__ident_t* ident) {
  qn__lookup_task_t* task = qn__alloc_zero(engine->allocator, 1, sizeof *task);
  if (!task) return NULL;
  atomic_init(&task->reference_count, 2);  // the caller's and the leader's
  qn__engine_retain(engine);
  task->engine = engine;
  task->pool_task.priority = INT32_MIN;  // callers raise it
  task->request = *request;
  task->request.generic = NULL;
  task->ident = *ident;
  qn_module_retain(request->module);
  qn_target_retain(request->target);
  qn__buffer_init(&task->preimage, engine->allocator);
  task->has_asked_remote = !has_remote_tier(engine);
  task->result.info = (qn_lookup_info_t){.source = QN_SOURCE_COMPILED, .tier = request->tier};
  return task;
}

void qn__lookup_task_retain(qn__lookup_task_t* task) {
  atomic_fetch_add_explicit(&task->reference_count, 1, memory_order_relaxed);
}

void qn__lookup_task_release(qn__lookup_task_t* task) {
  if (!task) return;
  if (atomic_fetch_sub_explicit(&task->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn_engine_t* engine = task->engine;
  assert(task->is_orphan || (task->waiter_count == 0 && !task->listeners));
  qn_status_free(task->result.status);
  qn_executable_release(task->result.executable);
  qn__buffer_deinit(&task->preimage);
  qn_module_release(task->request.module);
  qn_target_release(task->request.target);
  qn__free(engine->allocator, task, sizeof *task);
  qn__engine_release(engine);
}

void qn__in_flight_forget_failure(qn__in_flight_t* in_flight, const qn__ident_t* ident) {
  qn__mutex_lock(&in_flight->mutex);
  qn__failures_forget(&in_flight->failures, ident);
  qn__mutex_unlock(&in_flight->mutex);
}

// ----------------------------------------------------------------------------------------- join

static void add_needs(qn__lookup_task_t* task, const qn__lookup_needs_t* needs) {
  task->asks_remote |= needs->asks_remote;
  task->compile_count += needs->may_compile;
  qn__pool_raise(&task->engine->pool, &task->pool_task, needs->priority);
}

// Joins or adds a task. The caller holds the lock. Consumes `fresh` if *out_join has it.
static qn_status_t join_locked(qn__in_flight_t* in_flight, const qn__ident_t* ident,
                               const qn__lookup_needs_t* needs, qn__lookup_task_t* fresh,
                               qn__join_t* out_join) {
  qn_engine_t* engine = in_flight->engine;
  if (in_flight->is_closing) {
    return qn_status_make(QN_STATUS_CANCELLED, "the engine is being destroyed");
  }
  qn__lookup_task_t* task = in_flight->first;
  while (task && !qn__ident_equal(&task->ident, ident)) task = task->next;
  if (task) {
    qn__lookup_task_retain(task);
    add_needs(task, needs);
    out_join->task = task;
    return QN_OK;
  }
  // The key's task may have been completed since the caller looked into the table.
  out_join->executable = qn__table_peek(&engine->table, ident);
  if (out_join->executable) return QN_OK;
  if (needs->may_compile) {
    qn_status_t status = qn__failures_recall(&in_flight->failures, ident);
    if (!qn_ok(status)) {
      qn__count(engine, QN__COUNTER_failed_remembered, 1);
      return status;
    }
  }
  assert(fresh->state == QN__LOOKUP_KEY && !fresh->listeners);
  add_needs(fresh, needs);
  qn__engine_use_tiers(engine);
  fresh->next = in_flight->first;
  in_flight->first = fresh;
  in_flight->count++;
  out_join->task = fresh;
  out_join->is_leader = true;
  return QN_OK;
}

qn_status_t qn__in_flight_join(qn__in_flight_t* in_flight, const qn__request_t* request,
                               const qn__ident_t* ident, const qn__lookup_needs_t* needs,
                               qn__join_t* out_join) {
  qn__exit_watch_caller();
  *out_join = (qn__join_t){0};
  qn__lookup_task_t* fresh = make_task(in_flight->engine, request, ident);
  if (!fresh) return qn__out_of_memory("a lookup");
  qn__mutex_lock(&in_flight->mutex);
  qn_status_t status = join_locked(in_flight, ident, needs, fresh, out_join);
  assert(qn__in_flight_check(in_flight));
  qn__mutex_unlock(&in_flight->mutex);
  if (!out_join->is_leader) {
    qn__lookup_task_release(fresh);
    qn__lookup_task_release(fresh);
  }
  // A failure that is remembered may be of another text of the module.
  return qn__place_name_locals(status, request->module);
}

void qn__in_flight_cancel(qn__lookup_task_t* task) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  bool is_unwanted = false;
  if (task->state != QN__LOOKUP_DONE) {
    assert(task->compile_count > 0);
    task->compile_count--;
    is_unwanted = task->compile_count == 0 && task->waiter_count == 0 && !task->listeners &&
                  qn__pool_withdraw(&task->engine->pool, &task->pool_task);
  }
  qn__mutex_unlock(&in_flight->mutex);
  if (!is_unwanted) return;
  // A caller that has joined since then tries again.
  task->result.outcome = QN__OUTCOME_RETRY;
  (void)qn__in_flight_complete(task);
}

bool qn__in_flight_listen(qn__lookup_task_t* task, qn__listener_t* listener) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  bool is_open = task->state != QN__LOOKUP_DONE;
  if (is_open) {
    listener->next = task->listeners;
    task->listeners = listener;
  }
  qn__mutex_unlock(&in_flight->mutex);
  return is_open;
}

bool qn__in_flight_unlisten(qn__lookup_task_t* task, qn__listener_t* listener) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  qn__listener_t** at = &task->listeners;
  while (*at && *at != listener) at = &(*at)->next;
  bool was_there = *at != NULL;
  if (was_there) *at = listener->next;
  qn__mutex_unlock(&in_flight->mutex);
  return was_there;
}

// ----------------------------------------------------------------------------------------- wait

static bool has_found(const qn__lookup_task_t* task) {
  return task->state == QN__LOOKUP_DONE && task->result.outcome == QN__OUTCOME_FOUND;
}

bool qn__in_flight_wait(qn__lookup_task_t* task, qn__lookup_state_t state, int64_t deadline_ns) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  task->waiter_count++;
  bool is_in_time = true;
  while (task->state < state && is_in_time) {
    is_in_time = qn__cond_wait_until(&in_flight->changed, &in_flight->mutex, deadline_ns);
  }
  task->waiter_count--;
  bool is_there = task->state >= state;
  qn__mutex_unlock(&in_flight->mutex);
  return is_there;
}

bool qn__in_flight_wait_either(qn__lookup_task_t* a, qn__lookup_task_t* b, int64_t deadline_ns) {
  if (!b) return qn__in_flight_wait(a, QN__LOOKUP_DONE, deadline_ns);
  qn__in_flight_t* in_flight = &a->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  a->waiter_count++;
  b->waiter_count++;
  bool is_in_time = true;
  bool is_there = false;
  for (;;) {
    bool are_done = a->state == QN__LOOKUP_DONE && b->state == QN__LOOKUP_DONE;
    is_there = has_found(a) || has_found(b) || are_done;
    if (is_there || !is_in_time) break;
    is_in_time = qn__cond_wait_until(&in_flight->changed, &in_flight->mutex, deadline_ns);
  }
  a->waiter_count--;
  b->waiter_count--;
  qn__mutex_unlock(&in_flight->mutex);
  return is_there;
}

qn__lookup_state_t qn__in_flight_state(qn__lookup_task_t* task) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  qn__lookup_state_t state = task->state;
  qn__mutex_unlock(&in_flight->mutex);
  return state;
}

void qn__in_flight_name(qn__lookup_task_t* task, char out_name[128], char out_key[33]) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  memcpy(out_name, task->shown_name, sizeof task->shown_name);
  memcpy(out_key, task->shown_key.hex, sizeof task->shown_key.hex);
  qn__mutex_unlock(&in_flight->mutex);
}

// --------------------------------------------------------------------------------------- leaders

void qn__in_flight_needs(qn__lookup_task_t* task, bool* out_asks_remote, bool* out_may_compile) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  *out_asks_remote = task->asks_remote;
  *out_may_compile = task->compile_count > 0;
  qn__mutex_unlock(&in_flight->mutex);
}

// A task never goes back in the eyes of its callers, and an orphan stays done.
static void publish_state(qn__lookup_task_t* task, qn__lookup_state_t state) {
  assert(!task->is_orphan || task->state == QN__LOOKUP_DONE);
  if (task->state < state) task->state = state;
  if (task->shown_key.hex[0] == '\0') {
    memcpy(task->shown_name, task->name, sizeof task->shown_name);
    task->shown_key = task->result.info.key;
  }
  // No caller waits for the states between CLAIM and DONE.
  if (state <= QN__LOOKUP_CLAIM) qn__cond_broadcast(&task->engine->in_flight.changed);
}

void qn__in_flight_advance(qn__lookup_task_t* task, qn__lookup_state_t state) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  assert(state < QN__LOOKUP_DONE);
  qn__mutex_lock(&in_flight->mutex);
  publish_state(task, state);
  qn__mutex_unlock(&in_flight->mutex);
}

// Under one lock, so that a caller that sees CLAIM knows that the task is in the queue: what the
// caller submits after that comes after it.
bool qn__in_flight_queue(qn__lookup_task_t* task) {
  qn__in_flight_t* in_flight = &task->engine->in_flight;
  qn__mutex_lock(&in_flight->mutex);
  publish_state(task, QN__LOOKUP_CLAIM);
  bool is_queued = qn__lookup_submit(task);
  qn__mutex_unlock(&in_flight->mutex);
  return is_queued;
}

static bool wants_more(const qn__lookup_task_t* task) {
  return task->compile_count > 0 || (task->asks_remote && !task->has_asked_remote);
}

// The caller holds the lock.
static void remove_task(qn__in_flight_t* in_flight, qn__lookup_task_t* task) {
  qn__lookup_task_t** at = &in_flight->first;
  while (*at != task) at = &(*at)->next;
  *at = task->next;
  in_flight->count--;
}

bool qn__in_flight_complete(qn__lookup_task_t* task) {
  qn_engine_t* engine = task->engine;
  qn__in_flight_t* in_flight = &engine->in_flight;
  const qn__lookup_result_t* result = &task->result;
  assert((result->outcome == QN__OUTCOME_FOUND && !task->request.is_ahead) ==
         (result->executable != NULL));
  assert((result->outcome == QN__OUTCOME_FAILED) == !qn_ok(result->status));
  // Without memory for the table the waiters still get their code.
  if (result->executable) {
    qn_status_free(qn__table_put(&engine->table, &task->ident, result->executable));
  }
  qn__mutex_lock(&in_flight->mutex);
  if (result->outcome == QN__OUTCOME_ABSENT && wants_more(task)) {
    qn__mutex_unlock(&in_flight->mutex);
    return false;
  }
  // A compile ahead reports its key with each failure, so it fails anew.
  if (result->outcome == QN__OUTCOME_FAILED && !task->request.is_ahead) {
    qn__failures_remember(&in_flight->failures, &task->ident, result->status);
  }
  // A fork in a callback of this thread has made the task an orphan: the engine's end releases it.
  assert(task->is_orphan == (task->state == QN__LOOKUP_DONE));
  bool is_orphan = task->is_orphan;
  if (!is_orphan) remove_task(in_flight, task);
  qn__listener_t* listeners = task->listeners;
  task->listeners = NULL;
  task->state = QN__LOOKUP_DONE;
  qn__cond_broadcast(&in_flight->changed);
  assert(qn__in_flight_check(in_flight));
  qn__mutex_unlock(&in_flight->mutex);
  call_listeners(task, listeners);
  if (is_orphan) return true;
  qn__engine_leave_tiers(engine);
  qn__lookup_task_release(task);
  return true;
}
