// jit/engine/pending.c: lookups that come later: a listener of a flight that becomes a function, or
// an error, once.
//
// Requirements:
//  1. Nothing here waits but qn_pending_wait. Files, network and compilers are the pool's.
//  2. A pending ends once; what comes after that is dropped.
//  3. It may be released at any moment, also after its engine: it holds the engine's memory, and
//  the
//     flight holds it until it has landed.
//  4. Who asked to be told is told at the deadline too, though every compile hangs: a thread that
//     only waits for the clock sees to it.
// Thread rule: any thread; what changes belongs to the lock of the flights. Read next: flight.c.
#include "base/alloc.h"
#include "jit/engine/lookup.h"

struct qn_pending {
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
  qn_pending_t* next_alarm;
};

static void on_land(qn__listener_t* listener, qn__flight_t* flight);

static qn__mutex_t* lock_of(const qn_pending_t* pending) {
  return &pending->engine->flights.mutex;
}

static void retain(qn_pending_t* pending) {
  atomic_fetch_add_explicit(&pending->reference_count, 1, memory_order_relaxed);
}

void qn_pending_release(qn_pending_t* pending) {
  if (!pending) return;
  if (atomic_fetch_sub_explicit(&pending->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn_engine_t* engine = pending->engine;
  qn__flight_release(pending->flight);
  qn_status_free(pending->status);
  qn_function_release(pending->function);
  qn_module_release(pending->request.module);
  qn_target_release(pending->request.target);
  qn__free_cstr(engine->allocator, pending->name);
  qn__free(engine->allocator, pending, sizeof *pending);
  qn__engine_release(engine);
}

// -------------------------------------------------------------------------------------- the end

// The caller holds the lock.
static void drop_alarm(qn_pending_t* pending) {
  qn_pending_t** at = &pending->engine->flights.alarms;
  while (*at && *at != pending) at = &(*at)->next_alarm;
  if (*at) *at = pending->next_alarm;
  pending->has_alarm = false;
}

// Ends it, unless it has ended: status and function are consumed.
static void end(qn_pending_t* pending, qn_status_t status, qn_function_t* function,
                const qn_lookup_info_t* info) {
  void (*on_ready)(void* self) = NULL;
  void* self = NULL;
  qn__mutex_lock(lock_of(pending));
  bool is_first = !pending->is_ready;
  if (is_first) {
    pending->is_ready = true;
    pending->status = status;
    pending->function = function;
    if (info) pending->info = *info;
    pending->info.lookup_ns = qn__now_ns() - pending->start_ns;
    on_ready = pending->on_ready;
    self = pending->on_ready_self;
    if (pending->has_alarm) drop_alarm(pending);
    qn__cond_broadcast(&pending->engine->flights.moved);
  }
  qn__mutex_unlock(lock_of(pending));
  if (!is_first) {
    qn_status_free(status);
    qn_function_release(function);
    return;
  }
  if (on_ready) on_ready(self);
}

static void end_with(qn_pending_t* pending, qn_executable_t* executable,
                     const qn_lookup_info_t* info) {
  qn_function_t* function = NULL;
  qn_status_t status = qn__function_create(pending->request.module, pending->name, executable,
                                           pending->request.module, QN__RANK_ASKED, &function);
  end(pending, status, function, info);
}

// ------------------------------------------------------------------------------------ the flight

// Boards, and listens. The caller holds a reference.
static qn_status_t start(qn_pending_t* pending) {
  qn_engine_t* engine = pending->engine;
  const qn__request_t* request = &pending->request;
  qn__wish_t wish = {
      .asks_remote = true, .may_compile = !request->is_forbidden, .priority = request->priority};
  qn__boarding_t boarding;
  QN_TRY(qn__flight_board(&engine->flights, request, &pending->ident, &wish, &boarding));
  if (!boarding.is_maker) qn__count(engine, QN__COUNTER_waited, 1);
  if (boarding.executable) {
    qn_lookup_info_t info = qn__lookup_memory_info(boarding.executable, request->tier);
    end_with(pending, boarding.executable, &info);
    qn_executable_release(boarding.executable);
    return QN_OK;
  }
  qn__mutex_lock(lock_of(pending));
  qn__flight_t* old = pending->flight;
  pending->flight = boarding.flight;
  pending->is_maker = boarding.is_maker;
  qn__mutex_unlock(lock_of(pending));
  qn__flight_release(old);
  if (request->is_forbidden && qn__flight_stage_now(boarding.flight) == QN__FLIGHT_COMPILE) {
    return qn__lookup_forbidden(engine, request, boarding.flight);
  }
  retain(pending);  // for the listener
  bool is_listening = qn__flight_listen(boarding.flight, &pending->listener);
  qn__mutex_lock(lock_of(pending));
  bool is_cancelled = pending->is_ready;
  qn__mutex_unlock(lock_of(pending));
  if (boarding.is_maker && !qn__flight_submit(boarding.flight)) {
    end(pending, qn__lookup_refused(engine, request), NULL, NULL);
    qn__flight_give_up(boarding.flight, QN__OUTCOME_RETRY);
  } else if (!is_listening) {
    on_land(&pending->listener, boarding.flight);
  } else if (is_cancelled && qn__flight_unlisten(boarding.flight, &pending->listener)) {
    if (wish.may_compile) qn__flight_cancel(boarding.flight);
    qn_pending_release(pending);
  }
  return QN_OK;
}

static void on_land(qn__listener_t* listener, qn__flight_t* flight) {
  qn_pending_t* pending = (qn_pending_t*)(void*)listener;
  qn_engine_t* engine = pending->engine;
  const qn__landing_t* landing = qn__flight_landing(flight);
  if (landing->outcome == QN__OUTCOME_FOUND) {
    qn_lookup_info_t info =
        pending->is_maker ? landing->info
                          : qn__lookup_memory_info(landing->executable, pending->request.tier);
    end_with(pending, landing->executable, &info);
  } else {
    qn__mutex_lock(lock_of(pending));
    bool has_ended = pending->is_ready;
    qn__mutex_unlock(lock_of(pending));
    qn_status_t status = has_ended ? QN_OK : qn__lookup_outcome(engine, &pending->request, flight);
    if (!qn_ok(status)) {
      end(pending, status, NULL, NULL);
    } else if (!has_ended) {
      status = start(pending);
      if (!qn_ok(status)) end(pending, status, NULL, NULL);
    }
  }
  qn_pending_release(pending);
}

static qn_status_t make_pending(qn_engine_t* engine, const qn__request_t* request, const char* name,
                                qn_pending_t** out_pending) {
  qn_pending_t* pending = qn__alloc_zero(engine->allocator, 1, sizeof *pending);
  if (!pending) return qn__out_of_memory("a lookup");
  atomic_init(&pending->reference_count, 1);
  qn__engine_retain(engine);
  pending->engine = engine;
  pending->listener.on_land = on_land;
  pending->request = *request;
  pending->request.generic = NULL;
  pending->ident = qn__request_ident(request);
  pending->info = (qn_lookup_info_t){.source = QN_SOURCE_COMPILED, .tier = request->tier};
  qn_module_retain(request->module);
  qn_target_retain(request->target);
  pending->start_ns = qn__now_ns();
  pending->deadline_ns = qn__deadline_after(request->timeout_ns);
  pending->name = qn__copy_cstr(engine->allocator, qn__str(name));
  if (!pending->name) {
    qn_pending_release(pending);
    return qn__out_of_memory("a lookup");
  }
  *out_pending = pending;
  return QN_OK;
}

qn_status_t qn_engine_request(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                              const char* name, const qn_lookup_options_t* options,
                              qn_pending_t** out_pending) {
  *out_pending = NULL;
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  if (!name) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a lookup needs the function's name, got null");
  }
  qn_pending_t* pending = NULL;
  QN_TRY(make_pending(engine, &request, name, &pending));
  qn__count(engine, QN__COUNTER_requests, 1);
  *out_pending = pending;
  qn_executable_t* executable = qn__table_get(&engine->table, &pending->ident);
  if (executable) {
    qn_lookup_info_t info = qn__lookup_memory_info(executable, request.tier);
    end_with(pending, executable, &info);
    qn_executable_release(executable);
    return QN_OK;
  }
  qn__count(engine, QN__COUNTER_lookups, 1);
  qn_status_t status = start(pending);
  if (!qn_ok(status)) end(pending, status, NULL, NULL);
  return QN_OK;
}

// -------------------------------------------------------------------------------------- owners

static bool is_late(const qn_pending_t* pending) {
  return pending->deadline_ns != INT64_MAX && qn__now_ns() >= pending->deadline_ns;
}

// Ends what nothing else will end: its time is over, or it belongs to a parent of fork.
static void settle(qn_pending_t* pending) {
  qn__mutex_lock(lock_of(pending));
  bool is_open = !pending->is_ready;
  bool is_lost = is_open && pending->flight && qn__flight_is_orphan(pending->flight);
  qn__mutex_unlock(lock_of(pending));
  if (is_lost) {
    end(pending, qn__lookup_outcome(pending->engine, &pending->request, pending->flight), NULL,
        NULL);
  } else if (is_open && is_late(pending)) {
    end(pending, qn__lookup_too_late(pending->engine, &pending->request), NULL, NULL);
  }
}

bool qn_pending_is_ready(const qn_pending_t* pending) {
  qn__mutex_lock(lock_of(pending));
  bool is_ready = pending->is_ready || is_late(pending) ||
                  (pending->flight && qn__flight_is_orphan(pending->flight));
  qn__mutex_unlock(lock_of(pending));
  return is_ready;
}

qn_status_t qn_pending_wait(qn_pending_t* pending, int64_t timeout_ns, qn_lookup_info_t* out_info,
                            qn_function_t** out_function) {
  *out_function = NULL;
  int64_t until_ns = timeout_ns < 0    ? INT64_MAX
                     : timeout_ns == 0 ? 0
                                       : qn__deadline_after(timeout_ns);
  int64_t wait_ns = until_ns < pending->deadline_ns ? until_ns : pending->deadline_ns;
  settle(pending);
  qn__mutex_lock(lock_of(pending));
  bool is_in_time = true;
  while (!pending->is_ready && is_in_time) {
    is_in_time = qn__cond_wait_until(&pending->engine->flights.moved, lock_of(pending), wait_ns);
  }
  qn__mutex_unlock(lock_of(pending));
  settle(pending);
  qn__mutex_lock(lock_of(pending));
  qn_status_t status = QN_OK;
  if (pending->is_ready) {
    status = qn_status_clone(pending->status);
    if (out_info) *out_info = pending->info;
    if (pending->function) qn_function_retain(pending->function);
    *out_function = pending->function;
  } else {
    status = qn_status_make(QN_STATUS_DEADLINE_EXCEEDED, "'%s' is not ready yet; it goes on",
                            pending->name);
  }
  qn__mutex_unlock(lock_of(pending));
  return status;
}

void qn_pending_cancel(qn_pending_t* pending) {
  qn__mutex_lock(lock_of(pending));
  bool is_open = !pending->is_ready;
  qn__flight_t* flight = is_open ? pending->flight : NULL;
  if (flight) qn__flight_retain(flight);
  qn__mutex_unlock(lock_of(pending));
  if (is_open) {
    qn__count(pending->engine, QN__COUNTER_cancelled, 1);
    end(pending,
        qn_status_make(QN_STATUS_CANCELLED, "the lookup of '%s' was cancelled", pending->name),
        NULL, NULL);
  }
  if (!flight) return;
  if (qn__flight_unlisten(flight, &pending->listener)) {
    if (!pending->request.is_forbidden) qn__flight_cancel(flight);
    qn_pending_release(pending);  // of the listener; the caller has his own
  }
  qn__flight_release(flight);
}

// --------------------------------------------------------------------------------------- alarms

// The one whose time is over, retained, or NULL and the next time to look. Under the lock.
static qn_pending_t* find_late(qn__flights_t* flights, int64_t* out_next_ns) {
  *out_next_ns = INT64_MAX;
  int64_t now_ns = qn__now_ns();
  for (qn_pending_t* pending = flights->alarms; pending; pending = pending->next_alarm) {
    if (pending->deadline_ns <= now_ns) {
      retain(pending);
      return pending;
    }
    if (pending->deadline_ns < *out_next_ns) *out_next_ns = pending->deadline_ns;
  }
  return NULL;
}

// Runs while there are alarms.
static void watch_the_clock(qn__task_t* job) {
  qn__flights_t* flights = (qn__flights_t*)(void*)((char*)job - offsetof(qn__flights_t, alarm_job));
  qn__mutex_lock(&flights->mutex);
  while (flights->alarms && !flights->is_closing) {
    int64_t next_ns;
    qn_pending_t* late = find_late(flights, &next_ns);
    if (!late) {
      (void)qn__cond_wait_until(&flights->moved, &flights->mutex, next_ns);
      continue;
    }
    qn__mutex_unlock(&flights->mutex);
    settle(late);
    qn_pending_release(late);
    qn__mutex_lock(&flights->mutex);
  }
  flights->has_alarm_job = false;
  qn__mutex_unlock(&flights->mutex);
}

static void forget_the_clock(qn__task_t* job) {
  (void)job;
}

void qn_pending_notify(qn_pending_t* pending, void (*on_ready)(void* self), void* self) {
  qn__flights_t* flights = &pending->engine->flights;
  settle(pending);
  qn__mutex_lock(lock_of(pending));
  bool is_ready = pending->is_ready;
  if (!is_ready) {
    pending->on_ready = on_ready;
    pending->on_ready_self = self;
  }
  if (!is_ready && pending->deadline_ns != INT64_MAX && !pending->has_alarm) {
    pending->has_alarm = true;
    pending->next_alarm = flights->alarms;
    flights->alarms = pending;
    qn__cond_broadcast(&flights->moved);
    if (!flights->has_alarm_job) {
      flights->alarm_job =
          (qn__task_t){.run = watch_the_clock, .drop = forget_the_clock, .lane = QN__TASK_ALARM};
      flights->has_alarm_job = qn__pool_submit(&pending->engine->pool, &flights->alarm_job);
    }
  }
  qn__mutex_unlock(lock_of(pending));
  if (is_ready && on_ready) on_ready(self);
}
