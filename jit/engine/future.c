// SPDX-License-Identifier: Apache-2.0
// jit/engine/future.c: async lookups: a listener of a task that becomes a function, or an error,
// once.
//
// Requirements:
//  1. Only qn_future_wait waits. Files, network and compilers are left to the pool.
//  2. A future ends once; a later result is dropped.
//  3. It may be released at any moment, also after its engine. It retains the engine's memory, and
//     its task retains the future until the task is done.
//  4. A callback is called at the deadline, too, even if every compile hangs: a thread that only
//     waits for the clock calls it.
// Members that change belong to the lock of the lookups in flight.
#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "jit/engine/lookup.h"

struct qn_future {
  qn__listener_t listener;  // first
  qn_engine_t* engine;      // its memory retained
  _Atomic uint32_t reference_count;
  qn__request_t request;  // module and target retained
  qn__ident_t ident;
  char* name;  // owned
  int64_t start_ns, deadline_ns;
  // Under the lock.
  qn__lookup_task_t* task;  // retained; NULL: none yet
  bool is_leader;
  bool is_ready;
  qn_status_t status;       // owned
  qn_function_t* function;  // owned
  qn_lookup_info_t info;
  void (*on_ready)(void* self);
  void* on_ready_self;
  bool is_timed;  // in the list of timed futures
  qn_future_t* next_timed;
};

static void on_done(qn__listener_t* listener, qn__lookup_task_t* task);

static qn__mutex_t* lock_of(const qn_future_t* future) {
  return &future->engine->in_flight.mutex;
}

static void retain(qn_future_t* future) {
  atomic_fetch_add_explicit(&future->reference_count, 1, memory_order_relaxed);
}

void qn_future_release(qn_future_t* future) {
  if (!future) return;
  if (atomic_fetch_sub_explicit(&future->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn_engine_t* engine = future->engine;
  qn__lookup_task_release(future->task);
  qn_status_free(future->status);
  qn_function_release(future->function);
  qn_module_release(future->request.module);
  qn_target_release(future->request.target);
  qn__free_cstr(engine->allocator, future->name);
  qn__free(engine->allocator, future, sizeof *future);
  qn__engine_release(engine);
}

// -------------------------------------------------------------------------------------- the end

// The caller holds the lock.
static void remove_timed(qn_future_t* future) {
  qn_future_t** at = &future->engine->in_flight.timed_futures;
  while (*at && *at != future) at = &(*at)->next_timed;
  if (*at) *at = future->next_timed;
  future->is_timed = false;
}

// Ends it, unless it has ended: status and function are consumed.
static void end(qn_future_t* future, qn_status_t status, qn_function_t* function,
                const qn_lookup_info_t* info) {
  assert(qn_ok(status) == (function != NULL));
  void (*on_ready)(void* self) = NULL;
  void* self = NULL;
  qn__mutex_lock(lock_of(future));
  bool is_first = !future->is_ready;
  if (is_first) {
    future->is_ready = true;
    future->status = status;
    future->function = function;
    if (info) future->info = *info;
    future->info.lookup_ns = qn__now_ns() - future->start_ns;
    on_ready = future->on_ready;
    self = future->on_ready_self;
    if (future->is_timed) remove_timed(future);
    qn__cond_broadcast(&future->engine->in_flight.changed);
  }
  qn__mutex_unlock(lock_of(future));
  if (!is_first) {
    qn_status_free(status);
    qn_function_release(function);
    return;
  }
  if (on_ready) on_ready(self);
}

static void end_with(qn_future_t* future, qn_executable_t* executable,
                     const qn_lookup_info_t* info) {
  qn_function_t* function = NULL;
  qn_status_t status = qn__function_create(future->request.module, future->name, executable,
                                           future->request.module, QN__RANK_ASKED, &function);
  end(future, status, function, info);
}

// -------------------------------------------------------------------------------------- the task

// Joins the key's task and listens to it. The caller holds a reference.
static qn_status_t start(qn_future_t* future) {
  qn_engine_t* engine = future->engine;
  const qn__request_t* request = &future->request;
  qn__lookup_needs_t needs = {
      .asks_remote = true, .may_compile = !request->is_forbidden, .priority = request->priority};
  qn__join_t join;
  QN_TRY(qn__in_flight_join(&engine->in_flight, request, &future->ident, &needs, &join));
  if (!join.is_leader) qn__count(engine, QN__COUNTER_waited, 1);
  if (join.executable) {
    qn_lookup_info_t info = qn__lookup_memory_info(join.executable, request->tier);
    end_with(future, join.executable, &info);
    qn_executable_release(join.executable);
    return QN_OK;
  }
  qn__mutex_lock(lock_of(future));
  qn__lookup_task_t* old = future->task;
  future->task = join.task;
  future->is_leader = join.is_leader;
  qn__mutex_unlock(lock_of(future));
  qn__lookup_task_release(old);
  if (request->is_forbidden) {
    qn__lookup_state_t state = qn__in_flight_state(join.task);
    bool is_compiling = state >= QN__LOOKUP_CLAIM && state < QN__LOOKUP_DONE;
    if (is_compiling) return qn__lookup_forbidden(engine, request, join.task);
  }
  retain(future);  // for the listener
  bool is_listening = qn__in_flight_listen(join.task, &future->listener);
  qn__mutex_lock(lock_of(future));
  bool is_cancelled = future->is_ready;
  qn__mutex_unlock(lock_of(future));
  if (join.is_leader && !qn__lookup_submit(join.task)) {
    end(future, qn__lookup_refused(engine, request), NULL, NULL);
    qn__lookup_give_up(join.task, QN__OUTCOME_RETRY);
  } else if (!is_listening) {
    on_done(&future->listener, join.task);
  } else if (is_cancelled && qn__in_flight_unlisten(join.task, &future->listener)) {
    if (needs.may_compile) qn__in_flight_cancel(join.task);
    qn_future_release(future);
  }
  return QN_OK;
}

static void on_done(qn__listener_t* listener, qn__lookup_task_t* task) {
  qn_future_t* future = (qn_future_t*)(void*)listener;
  const qn__lookup_result_t* result = &task->result;
  if (result->outcome == QN__OUTCOME_FOUND) {
    qn_lookup_info_t info = future->is_leader
                                ? result->info
                                : qn__lookup_memory_info(result->executable, future->request.tier);
    end_with(future, result->executable, &info);
  } else {
    qn__mutex_lock(lock_of(future));
    bool has_ended = future->is_ready;
    qn__mutex_unlock(lock_of(future));
    qn_status_t status =
        has_ended ? QN_OK : qn__lookup_status(future->engine, &future->request, task);
    if (qn_ok(status) && !has_ended) status = start(future);
    if (!qn_ok(status)) end(future, status, NULL, NULL);
  }
  qn_future_release(future);
}

static qn_status_t make_future(qn_engine_t* engine, const qn__request_t* request, const char* name,
                               qn_future_t** out_future) {
  qn_future_t* future = qn__alloc_zero(engine->allocator, 1, sizeof *future);
  if (!future) return qn__out_of_memory("a lookup");
  atomic_init(&future->reference_count, 1);
  qn__engine_retain(engine);
  future->engine = engine;
  future->listener.on_done = on_done;
  future->request = *request;
  future->request.generic = NULL;
  future->ident = qn__request_ident(request);
  future->info = (qn_lookup_info_t){.source = QN_SOURCE_COMPILED, .tier = request->tier};
  qn_module_retain(request->module);
  qn_target_retain(request->target);
  future->start_ns = qn__now_ns();
  future->deadline_ns = qn__deadline_after(request->timeout_ns);
  future->name = qn__copy_cstr(engine->allocator, qn__str(name));
  if (!future->name) {
    qn_future_release(future);
    return qn__out_of_memory("a lookup");
  }
  *out_future = future;
  return QN_OK;
}

qn_status_t qn_engine_request(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                              const char* name, const qn_lookup_options_t* options,
                              qn_future_t** out_future) {
  QN_REQUIRE(out_future);
  *out_future = NULL;
  QN_REQUIRE(engine, module, target, name);
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  qn_future_t* future = NULL;
  QN_TRY(make_future(engine, &request, name, &future));
  qn__count(engine, QN__COUNTER_requests, 1);
  *out_future = future;
  qn_executable_t* executable = qn__table_get(&engine->table, &future->ident);
  if (executable) {
    qn_lookup_info_t info = qn__lookup_memory_info(executable, request.tier);
    end_with(future, executable, &info);
    qn_executable_release(executable);
    return QN_OK;
  }
  qn__count(engine, QN__COUNTER_lookups, 1);
  qn_status_t status = start(future);
  if (!qn_ok(status)) end(future, status, NULL, NULL);
  return QN_OK;
}

// ---------------------------------------------------------------------------------------- callers

static bool is_late(const qn_future_t* future) {
  return future->deadline_ns != INT64_MAX && qn__now_ns() >= future->deadline_ns;
}

// Ends a future that nothing else will end: its time is over, or its task was the parent's of a
// fork.
static void settle(qn_future_t* future) {
  qn__mutex_lock(lock_of(future));
  bool is_open = !future->is_ready;
  qn__lookup_task_t* task = is_open ? future->task : NULL;
  bool is_lost = task && task->is_orphan;
  if (task) qn__lookup_task_retain(task);
  qn__mutex_unlock(lock_of(future));
  if (is_lost) {
    end(future, qn__lookup_status(future->engine, &future->request, task), NULL, NULL);
  } else if (is_open && is_late(future)) {
    end(future, qn__lookup_too_late(future->engine, &future->request, task), NULL, NULL);
  }
  qn__lookup_task_release(task);
}

bool qn_future_is_ready(const qn_future_t* future) {
  if (!future) return true;
  qn__mutex_lock(lock_of(future));
  bool is_ready = future->is_ready || is_late(future) || (future->task && future->task->is_orphan);
  qn__mutex_unlock(lock_of(future));
  return is_ready;
}

qn_status_t qn_future_wait(qn_future_t* future, int64_t timeout_ns, qn_lookup_info_t* out_info,
                           qn_function_t** out_function) {
  QN_REQUIRE(out_function);
  *out_function = NULL;
  QN_STRUCT_CLEAR(qn_lookup_info_t, out_info);
  QN_REQUIRE(future);
  int64_t until_ns = timeout_ns < 0    ? INT64_MAX
                     : timeout_ns == 0 ? 0
                                       : qn__deadline_after(timeout_ns);
  int64_t wait_ns = until_ns < future->deadline_ns ? until_ns : future->deadline_ns;
  settle(future);
  qn__mutex_lock(lock_of(future));
  bool is_in_time = true;
  while (!future->is_ready && is_in_time) {
    is_in_time = qn__cond_wait_until(&future->engine->in_flight.changed, lock_of(future), wait_ns);
  }
  qn__mutex_unlock(lock_of(future));
  settle(future);
  qn__mutex_lock(lock_of(future));
  qn_status_t status = QN_OK;
  if (future->is_ready) {
    status = qn_status_clone(future->status);
    QN_STRUCT_WRITE(out_info, future->info);
    if (future->function) qn_function_retain(future->function);
    *out_function = future->function;
  } else {
    status = qn_status_make(QN_STATUS_DEADLINE_EXCEEDED,
                            "'%s' is not ready yet; the lookup continues", future->name);
  }
  qn__mutex_unlock(lock_of(future));
  return status;
}

void qn_future_cancel(qn_future_t* future) {
  if (!future) return;
  qn__mutex_lock(lock_of(future));
  bool is_open = !future->is_ready;
  qn__lookup_task_t* task = is_open ? future->task : NULL;
  if (task) qn__lookup_task_retain(task);
  qn__mutex_unlock(lock_of(future));
  if (is_open) {
    qn__count(future->engine, QN__COUNTER_cancelled, 1);
    end(future,
        qn_status_make(QN_STATUS_CANCELLED, "the lookup of '%s' was cancelled", future->name), NULL,
        NULL);
  }
  if (!task) return;
  if (qn__in_flight_unlisten(task, &future->listener)) {
    if (!future->request.is_forbidden) qn__in_flight_cancel(task);
    qn_future_release(future);  // the listener's reference; the caller has its own
  }
  qn__lookup_task_release(task);
}

// --------------------------------------------------------------------------------------- deadlines

// A future whose time is over, retained, or NULL and the next time to look. Under the lock.
static qn_future_t* find_late(const qn__in_flight_t* in_flight, int64_t* out_next_ns) {
  *out_next_ns = INT64_MAX;
  int64_t now_ns = qn__now_ns();
  for (qn_future_t* future = in_flight->timed_futures; future; future = future->next_timed) {
    if (future->deadline_ns <= now_ns) {
      retain(future);
      return future;
    }
    if (future->deadline_ns < *out_next_ns) *out_next_ns = future->deadline_ns;
  }
  return NULL;
}

// Runs while there are timed futures.
static void run_timer(qn__task_t* pool_task) {
  qn__in_flight_t* in_flight =
      (qn__in_flight_t*)(void*)((char*)pool_task - offsetof(qn__in_flight_t, timer_task));
  qn__mutex_lock(&in_flight->mutex);
  while (in_flight->timed_futures && !in_flight->is_closing) {
    int64_t next_ns;
    qn_future_t* late = find_late(in_flight, &next_ns);
    if (!late) {
      (void)qn__cond_wait_until(&in_flight->changed, &in_flight->mutex, next_ns);
      continue;
    }
    qn__mutex_unlock(&in_flight->mutex);
    settle(late);
    qn_future_release(late);
    qn__mutex_lock(&in_flight->mutex);
  }
  in_flight->has_timer_task = false;
  qn__mutex_unlock(&in_flight->mutex);
}

static void drop_timer(qn__task_t* pool_task) {
  (void)pool_task;
}

void qn_future_notify(qn_future_t* future, void (*on_ready)(void* self), void* self) {
  if (!future) return;
  qn__in_flight_t* in_flight = &future->engine->in_flight;
  settle(future);
  qn__mutex_lock(lock_of(future));
  bool is_ready = future->is_ready;
  if (!is_ready) {
    future->on_ready = on_ready;
    future->on_ready_self = self;
  }
  if (!is_ready && future->deadline_ns != INT64_MAX && !future->is_timed) {
    future->is_timed = true;
    future->next_timed = in_flight->timed_futures;
    in_flight->timed_futures = future;
    qn__cond_broadcast(&in_flight->changed);
    if (!in_flight->has_timer_task) {
      in_flight->timer_task =
          (qn__task_t){.run = run_timer, .drop = drop_timer, .queue = QN__QUEUE_TIMER};
      in_flight->has_timer_task = qn__pool_submit(&future->engine->pool, &in_flight->timer_task);
    }
  }
  qn__mutex_unlock(lock_of(future));
  if (is_ready && on_ready) on_ready(self);
}
