// jit/engine/future.c: lookups that come later: a listener of a flight that becomes a function, or
// an error, once.
//
// Requirements:
//  1. Nothing here waits but qn_future_wait. Files, network and compilers are the pool's.
//  2. A future ends once; what comes after that is dropped.
//  3. It may be released at any moment, also after its engine: it holds the engine's memory, and
//  the
//     flight holds it until it has landed.
//  4. Who asked to be told is told at the deadline too, though every compile hangs: a thread that
//     only waits for the clock sees to it.
// Thread rule: any thread; what changes belongs to the lock of the flights. Read next: flight.c.
#include "base/alloc.h"
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
  qn__flight_t* flight;  // retained; NULL: none yet, or not any more
  bool is_maker;
  bool is_ready;
  qn_status_t status;       // owned
  qn_function_t* function;  // owned
  qn_lookup_info_t info;
  void (*on_ready)(void* self);
  void* on_ready_self;
  bool has_alarm;
  qn_future_t* next_alarm;
};

static void on_land(qn__listener_t* listener, qn__flight_t* flight);

static qn__mutex_t* lock_of(const qn_future_t* future) {
  return &future->engine->flights.mutex;
}

static void retain(qn_future_t* future) {
  atomic_fetch_add_explicit(&future->reference_count, 1, memory_order_relaxed);
}

void qn_future_release(qn_future_t* future) {
  if (!future) return;
  if (atomic_fetch_sub_explicit(&future->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn_engine_t* engine = future->engine;
  qn__flight_release(future->flight);
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
static void drop_alarm(qn_future_t* future) {
  qn_future_t** at = &future->engine->flights.alarms;
  while (*at && *at != future) at = &(*at)->next_alarm;
  if (*at) *at = future->next_alarm;
  future->has_alarm = false;
}

// Ends it, unless it has ended: status and function are consumed.
static void end(qn_future_t* future, qn_status_t status, qn_function_t* function,
                const qn_lookup_info_t* info) {
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
    if (future->has_alarm) drop_alarm(future);
    qn__cond_broadcast(&future->engine->flights.moved);
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

// ------------------------------------------------------------------------------------ the flight

// Boards, and listens. The caller holds a reference.
static qn_status_t start(qn_future_t* future) {
  qn_engine_t* engine = future->engine;
  const qn__request_t* request = &future->request;
  qn__wish_t wish = {
      .asks_remote = true, .may_compile = !request->is_forbidden, .priority = request->priority};
  qn__boarding_t boarding;
  QN_TRY(qn__flight_board(&engine->flights, request, &future->ident, &wish, &boarding));
  if (!boarding.is_maker) qn__count(engine, QN__COUNTER_waited, 1);
  if (boarding.executable) {
    qn_lookup_info_t info = qn__lookup_memory_info(boarding.executable, request->tier);
    end_with(future, boarding.executable, &info);
    qn_executable_release(boarding.executable);
    return QN_OK;
  }
  qn__mutex_lock(lock_of(future));
  qn__flight_t* old = future->flight;
  future->flight = boarding.flight;
  future->is_maker = boarding.is_maker;
  qn__mutex_unlock(lock_of(future));
  qn__flight_release(old);
  if (request->is_forbidden && qn__flight_stage_now(boarding.flight) == QN__FLIGHT_COMPILE) {
    return qn__lookup_forbidden(engine, request, boarding.flight);
  }
  retain(future);  // for the listener
  bool is_listening = qn__flight_listen(boarding.flight, &future->listener);
  qn__mutex_lock(lock_of(future));
  bool is_cancelled = future->is_ready;
  qn__mutex_unlock(lock_of(future));
  if (boarding.is_maker && !qn__flight_submit(boarding.flight)) {
    end(future, qn__lookup_refused(engine, request), NULL, NULL);
    qn__flight_give_up(boarding.flight, QN__OUTCOME_RETRY);
  } else if (!is_listening) {
    on_land(&future->listener, boarding.flight);
  } else if (is_cancelled && qn__flight_unlisten(boarding.flight, &future->listener)) {
    if (wish.may_compile) qn__flight_cancel(boarding.flight);
    qn_future_release(future);
  }
  return QN_OK;
}

static void on_land(qn__listener_t* listener, qn__flight_t* flight) {
  qn_future_t* future = (qn_future_t*)(void*)listener;
  qn_engine_t* engine = future->engine;
  const qn__landing_t* landing = qn__flight_landing(flight);
  if (landing->outcome == QN__OUTCOME_FOUND) {
    qn_lookup_info_t info = future->is_maker
                                ? landing->info
                                : qn__lookup_memory_info(landing->executable, future->request.tier);
    end_with(future, landing->executable, &info);
  } else {
    qn__mutex_lock(lock_of(future));
    bool has_ended = future->is_ready;
    qn__mutex_unlock(lock_of(future));
    qn_status_t status = has_ended ? QN_OK : qn__lookup_outcome(engine, &future->request, flight);
    if (!qn_ok(status)) {
      end(future, status, NULL, NULL);
    } else if (!has_ended) {
      status = start(future);
      if (!qn_ok(status)) end(future, status, NULL, NULL);
    }
  }
  qn_future_release(future);
}

static qn_status_t make_pending(qn_engine_t* engine, const qn__request_t* request, const char* name,
                                qn_future_t** out_future) {
  qn_future_t* future = qn__alloc_zero(engine->allocator, 1, sizeof *future);
  if (!future) return qn__out_of_memory("a lookup");
  atomic_init(&future->reference_count, 1);
  qn__engine_retain(engine);
  future->engine = engine;
  future->listener.on_land = on_land;
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
  *out_future = NULL;
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  if (!name) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a lookup needs the function's name, got null");
  }
  qn_future_t* future = NULL;
  QN_TRY(make_pending(engine, &request, name, &future));
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

// -------------------------------------------------------------------------------------- owners

static bool is_late(const qn_future_t* future) {
  return future->deadline_ns != INT64_MAX && qn__now_ns() >= future->deadline_ns;
}

// Ends what nothing else will end: its time is over, or it belongs to a parent of fork.
static void settle(qn_future_t* future) {
  qn__mutex_lock(lock_of(future));
  bool is_open = !future->is_ready;
  bool is_lost = is_open && future->flight && qn__flight_is_orphan(future->flight);
  qn__mutex_unlock(lock_of(future));
  if (is_lost) {
    end(future, qn__lookup_outcome(future->engine, &future->request, future->flight), NULL, NULL);
  } else if (is_open && is_late(future)) {
    end(future, qn__lookup_too_late(future->engine, &future->request), NULL, NULL);
  }
}

bool qn_future_is_ready(const qn_future_t* future) {
  qn__mutex_lock(lock_of(future));
  bool is_ready = future->is_ready || is_late(future) ||
                  (future->flight && qn__flight_is_orphan(future->flight));
  qn__mutex_unlock(lock_of(future));
  return is_ready;
}

qn_status_t qn_future_wait(qn_future_t* future, int64_t timeout_ns, qn_lookup_info_t* out_info,
                           qn_function_t** out_function) {
  *out_function = NULL;
  int64_t until_ns = timeout_ns < 0    ? INT64_MAX
                     : timeout_ns == 0 ? 0
                                       : qn__deadline_after(timeout_ns);
  int64_t wait_ns = until_ns < future->deadline_ns ? until_ns : future->deadline_ns;
  settle(future);
  qn__mutex_lock(lock_of(future));
  bool is_in_time = true;
  while (!future->is_ready && is_in_time) {
    is_in_time = qn__cond_wait_until(&future->engine->flights.moved, lock_of(future), wait_ns);
  }
  qn__mutex_unlock(lock_of(future));
  settle(future);
  qn__mutex_lock(lock_of(future));
  qn_status_t status = QN_OK;
  if (future->is_ready) {
    status = qn_status_clone(future->status);
    if (out_info) *out_info = future->info;
    if (future->function) qn_function_retain(future->function);
    *out_function = future->function;
  } else {
    status = qn_status_make(QN_STATUS_DEADLINE_EXCEEDED, "'%s' is not ready yet; it goes on",
                            future->name);
  }
  qn__mutex_unlock(lock_of(future));
  return status;
}

void qn_future_cancel(qn_future_t* future) {
  qn__mutex_lock(lock_of(future));
  bool is_open = !future->is_ready;
  qn__flight_t* flight = is_open ? future->flight : NULL;
  if (flight) qn__flight_retain(flight);
  qn__mutex_unlock(lock_of(future));
  if (is_open) {
    qn__count(future->engine, QN__COUNTER_cancelled, 1);
    end(future,
        qn_status_make(QN_STATUS_CANCELLED, "the lookup of '%s' was cancelled", future->name), NULL,
        NULL);
  }
  if (!flight) return;
  if (qn__flight_unlisten(flight, &future->listener)) {
    if (!future->request.is_forbidden) qn__flight_cancel(flight);
    qn_future_release(future);  // of the listener; the caller has his own
  }
  qn__flight_release(flight);
}

// --------------------------------------------------------------------------------------- alarms

// The one whose time is over, retained, or NULL and the next time to look. Under the lock.
static qn_future_t* find_late(qn__flights_t* flights, int64_t* out_next_ns) {
  *out_next_ns = INT64_MAX;
  int64_t now_ns = qn__now_ns();
  for (qn_future_t* future = flights->alarms; future; future = future->next_alarm) {
    if (future->deadline_ns <= now_ns) {
      retain(future);
      return future;
    }
    if (future->deadline_ns < *out_next_ns) *out_next_ns = future->deadline_ns;
  }
  return NULL;
}

// Runs while there are alarms.
static void watch_the_clock(qn__task_t* job) {
  qn__flights_t* flights = (qn__flights_t*)(void*)((char*)job - offsetof(qn__flights_t, alarm_job));
  qn__mutex_lock(&flights->mutex);
  while (flights->alarms && !flights->is_closing) {
    int64_t next_ns;
    qn_future_t* late = find_late(flights, &next_ns);
    if (!late) {
      (void)qn__cond_wait_until(&flights->moved, &flights->mutex, next_ns);
      continue;
    }
    qn__mutex_unlock(&flights->mutex);
    settle(late);
    qn_future_release(late);
    qn__mutex_lock(&flights->mutex);
  }
  flights->has_alarm_job = false;
  qn__mutex_unlock(&flights->mutex);
}

static void forget_the_clock(qn__task_t* job) {
  (void)job;
}

void qn_future_notify(qn_future_t* future, void (*on_ready)(void* self), void* self) {
  qn__flights_t* flights = &future->engine->flights;
  settle(future);
  qn__mutex_lock(lock_of(future));
  bool is_ready = future->is_ready;
  if (!is_ready) {
    future->on_ready = on_ready;
    future->on_ready_self = self;
  }
  if (!is_ready && future->deadline_ns != INT64_MAX && !future->has_alarm) {
    future->has_alarm = true;
    future->next_alarm = flights->alarms;
    flights->alarms = future;
    qn__cond_broadcast(&flights->moved);
    if (!flights->has_alarm_job) {
      flights->alarm_job =
          (qn__task_t){.run = watch_the_clock, .drop = forget_the_clock, .lane = QN__TASK_ALARM};
      flights->has_alarm_job = qn__pool_submit(&future->engine->pool, &flights->alarm_job);
    }
  }
  qn__mutex_unlock(lock_of(future));
  if (is_ready && on_ready) on_ready(self);
}
