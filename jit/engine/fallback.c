// SPDX-License-Identifier: Apache-2.0
// jit/engine/fallback.c: the policy FALLBACK: returns a variant of the function that is ready, and
// replaces it when the requested one is compiled.
//
// Variants are tried from best to worst: the requested one, the same function in the other tier,
// the generic module's. Only memory and the local tiers are searched. If there is none, the fast
// tier is compiled before the full one, and the first that is done is returned. A cell with a
// fallback listens to the task of the requested variant.
//
// Read next: jit/call/function.c (cells with variants of several modules).
#include "base/alloc.h"
#include "base/log.h"
#include "base/struct_size.h"
#include "jit/engine/lookup.h"

// One way to answer.
typedef struct variant {
  qn__request_t request;
  qn__ident_t ident;
  qn__rank_t rank;
  qn_executable_t* executable;  // owned, once it is there
  qn_lookup_info_t info;
  qn__lookup_task_t* probed;  // retained: the task that searched the local tiers
  bool has_led_probed;
} variant_t;

static variant_t make_variant(const qn__request_t* request, qn_module_t* module, qn_tier_t tier,
                              qn__rank_t rank) {
  variant_t variant;
  memset(&variant, 0, sizeof variant);
  variant.request = *request;
  variant.request.module = module;
  variant.request.tier = tier;
  variant.request.generic = NULL;
  variant.ident = qn__request_ident(&variant.request);
  variant.rank = rank;
  return variant;
}

static void drop_variant(variant_t* variant) {
  qn_executable_release(variant->executable);
  qn__lookup_task_release(variant->probed);
}

static void take(variant_t* variant, qn_executable_t* executable, const qn_lookup_info_t* info) {
  variant->executable = executable;
  variant->info = info ? *info : qn__lookup_memory_info(executable, variant->request.tier);
}

// Takes the executable of a task that is done; false if it has none.
static bool take_result(variant_t* variant, const qn__lookup_task_t* task, bool is_leader) {
  const qn__lookup_result_t* result = &task->result;
  if (result->outcome != QN__OUTCOME_FOUND) return false;
  qn_executable_retain(result->executable);
  take(variant, result->executable, is_leader ? &result->info : NULL);
  return true;
}

// Looks in memory and in the local tiers, until the deadline.
static qn_status_t probe(qn_engine_t* engine, variant_t* variant, int64_t deadline_ns) {
  qn_executable_t* executable = qn__table_peek(&engine->table, &variant->ident);
  if (executable) {
    take(variant, executable, NULL);
    return QN_OK;
  }
  qn__lookup_needs_t needs = {.priority = variant->request.priority};
  qn__join_t join;
  QN_TRY(qn__in_flight_join(&engine->in_flight, &variant->request, &variant->ident, &needs, &join));
  if (join.executable) {
    take(variant, join.executable, NULL);
    return QN_OK;
  }
  if (join.is_leader && deadline_ns == INT64_MAX) {
    qn__lookup_run_local(join.task);
  } else if (join.is_leader && !qn__lookup_submit(join.task)) {
    qn__lookup_give_up(join.task, QN__OUTCOME_RETRY);
  }
  bool is_known = qn__in_flight_wait(join.task, QN__LOOKUP_REMOTE, deadline_ns);
  if (is_known && qn__in_flight_state(join.task) == QN__LOOKUP_DONE) {
    (void)take_result(variant, join.task, join.is_leader);
  }
  variant->probed = join.task;
  variant->has_led_probed = join.is_leader;
  return QN_OK;
}

// ------------------------------------------------------------------------------------- upgrades

typedef struct upgrade {
  qn__listener_t listener;  // first
  qn_engine_t* engine;      // alive until the task is done
  qn_function_t* function;  // retained
} upgrade_t;

static void end_upgrade(upgrade_t* upgrade, const qn__lookup_task_t* task) {
  qn_engine_t* engine = upgrade->engine;
  qn_function_t* function = upgrade->function;
  if (task->result.outcome == QN__OUTCOME_FOUND) {
    qn_status_t status =
        qn__function_publish(function, task->result.executable, function->module, QN__RANK_ASKED);
    if (qn_ok(status)) {
      qn__count(engine, QN__COUNTER_upgrades, 1);
    } else {
      qn__log(QN_LOG_WARN, "'%s' keeps its fallback: %s", qn_function_signature(function),
              qn_status_message(status));
      qn_status_free(status);
    }
  }
  qn_function_release(function);
  qn__free(engine->allocator, upgrade, sizeof *upgrade);
}

static void on_done(qn__listener_t* listener, qn__lookup_task_t* task) {
  end_upgrade((upgrade_t*)(void*)listener, task);
}

// Publishes the executable of the task in the function when it is done. Without memory the function
// keeps its fallback, which works.
static void subscribe(qn_engine_t* engine, qn_function_t* function, qn__lookup_task_t* task) {
  upgrade_t* upgrade = qn__alloc_zero(engine->allocator, 1, sizeof *upgrade);
  if (!upgrade) return;
  qn_function_retain(function);
  *upgrade = (upgrade_t){{on_done, NULL}, engine, function};
  if (!qn__in_flight_listen(task, &upgrade->listener)) end_upgrade(upgrade, task);
}

// ------------------------------------------------------------------------------------ compiling

// Starts the lookup of a variant on the pool. It may be loaded already, in variant->executable;
// out_join->task is NULL then.
static qn_status_t start(qn_engine_t* engine, variant_t* variant, qn__join_t* out_join) {
  *out_join = (qn__join_t){0};
  qn__lookup_needs_t needs = {
      .asks_remote = true, .may_compile = true, .priority = variant->request.priority};
  qn__join_t join;
  QN_TRY(qn__in_flight_join(&engine->in_flight, &variant->request, &variant->ident, &needs, &join));
  if (join.executable) {
    take(variant, join.executable, NULL);
    return QN_OK;
  }
  if (join.is_leader && !qn__lookup_submit(join.task)) {
    qn__lookup_give_up(join.task, QN__OUTCOME_RETRY);
    qn__lookup_task_release(join.task);
    return qn__lookup_refused(engine, &variant->request);
  }
  // If the task that searched the local tiers is still in flight, it does the rest, too.
  join.is_leader |= join.task == variant->probed && variant->has_led_probed;
  *out_join = join;
  return QN_OK;
}

static bool take_joined(variant_t* variant, const qn__join_t* join) {
  return join->task && qn__in_flight_state(join->task) == QN__LOOKUP_DONE &&
         take_result(variant, join->task, join->is_leader);
}

typedef struct choice {
  qn_engine_t* engine;
  const char* name;
  int64_t deadline_ns;
  variant_t wanted;
  variant_t others[3];
  size_t other_count;
} choice_t;

// Makes the cell of a variant that is ready.
static qn_status_t give(const choice_t* choice, const variant_t* variant,
                        qn_function_t** out_function) {
  assert(variant->executable);
  return qn__function_create(choice->wanted.request.module, choice->name, variant->executable,
                             variant->request.module, variant->rank, out_function);
}

// Returns a fallback and compiles the requested variant in the background.
static qn_status_t give_less(choice_t* choice, const variant_t* variant, bool is_improved,
                             qn_function_t** out_function) {
  QN_TRY(give(choice, variant, out_function));
  qn__count(choice->engine, QN__COUNTER_fallbacks, 1);
  if (!is_improved) return QN_OK;
  qn__join_t join;
  qn_status_t status = start(choice->engine, &choice->wanted, &join);
  if (qn_ok(status) && choice->wanted.executable) {
    // It was completed meanwhile.
    status = qn__function_publish(*out_function, choice->wanted.executable,
                                  choice->wanted.request.module, QN__RANK_ASKED);
  }
  // The fallback works even if the requested variant cannot be compiled.
  qn_status_free(status);
  if (join.task) subscribe(choice->engine, *out_function, join.task);
  qn__lookup_task_release(join.task);
  return QN_OK;
}

// Compiles the fast tier before the full one, and returns the first that is done.
static qn_status_t make_first(choice_t* choice, qn_lookup_info_t* out_info,
                              qn_function_t** out_function) {
  qn_engine_t* engine = choice->engine;
  variant_t* wanted = &choice->wanted;
  variant_t* fast = &choice->others[0];  // the fast tier, unless that is the requested one
  qn__join_t full_join = {0}, fast_join = {0};
  qn_status_t status = QN_OK;
  if (wanted->request.tier != QN_TIER_FAST) {
    if (fast->request.priority < INT32_MAX) fast->request.priority++;
    // If it cannot be compiled, the requested variant reports the error.
    qn_status_free(start(engine, fast, &fast_join));
    // The full tier must be queued after it.
    if (fast_join.task) {
      (void)qn__in_flight_wait(fast_join.task, QN__LOOKUP_CLAIM, choice->deadline_ns);
    }
  }
  status = start(engine, wanted, &full_join);
  qn__lookup_task_t* full = full_join.task;
  qn__lookup_task_t* first = full ? full : fast_join.task;
  if (first && !wanted->executable && !fast->executable) {
    bool is_known =
        qn__in_flight_wait_either(first, full ? fast_join.task : NULL, choice->deadline_ns);
    if (!is_known) {
      qn_status_free(status);
      status = qn__lookup_too_late(engine, &wanted->request, full);
    } else if (!take_joined(wanted, &full_join) && !take_joined(fast, &fast_join) && full) {
      status = qn__lookup_status(engine, &wanted->request, full);
    }
  }
  if (qn_ok(status) && wanted->executable) {
    *out_info = wanted->info;
    status = give(choice, wanted, out_function);
  } else if (fast->executable) {
    qn_status_free(status);
    *out_info = fast->info;
    out_info->is_fallback = true;
    status = give(choice, fast, out_function);
    if (qn_ok(status)) qn__count(engine, QN__COUNTER_fallbacks, 1);
    if (qn_ok(status) && full) subscribe(engine, *out_function, full);
  } else if (qn_ok(status) || qn_status_code(status) == QN_STATUS_UNAVAILABLE) {
    // The leader could not go on, or the pool has no thread: this thread can.
    qn_status_free(status);
    status = qn__lookup_miss(engine, &wanted->request, &wanted->ident, choice->deadline_ns,
                             out_info, &wanted->executable);
    if (qn_ok(status)) status = give(choice, wanted, out_function);
  }
  qn__lookup_task_release(full_join.task);
  qn__lookup_task_release(fast_join.task);
  return status;
}

// -------------------------------------------------------------------------------------- choosing

static void list_variants(choice_t* choice, const qn__request_t* request) {
  bool is_full = request->tier == QN_TIER_FULL;
  qn_tier_t other_tier = is_full ? QN_TIER_FAST : QN_TIER_FULL;
  choice->wanted = make_variant(request, request->module, request->tier, QN__RANK_ASKED);
  // The full tier in place of the fast one is no loss: nothing better follows.
  choice->others[choice->other_count++] =
      make_variant(request, request->module, other_tier, is_full ? QN__RANK_FAST : QN__RANK_ASKED);
  if (!request->generic) return;
  choice->others[choice->other_count++] =
      make_variant(request, request->generic, QN_TIER_FULL, QN__RANK_GENERIC);
  choice->others[choice->other_count++] =
      make_variant(request, request->generic, QN_TIER_FAST, QN__RANK_GENERIC_FAST);
}

static qn_status_t choose(choice_t* choice, qn_lookup_info_t* out_info,
                          qn_function_t** out_function) {
  qn_engine_t* engine = choice->engine;
  const qn__request_t* request = &choice->wanted.request;
  QN_TRY(probe(engine, &choice->wanted, choice->deadline_ns));
  if (choice->wanted.executable) {
    *out_info = choice->wanted.info;
    return give(choice, &choice->wanted, out_function);
  }
  for (size_t i = 0; i < choice->other_count; i++) {
    variant_t* other = &choice->others[i];
    QN_TRY(probe(engine, other, choice->deadline_ns));
    if (!other->executable) continue;
    bool is_better = other->rank == QN__RANK_ASKED;
    qn_status_t status =
        give_less(choice, other, !is_better && !request->is_forbidden, out_function);
    if (qn_ok(status)) {
      *out_info = other->info;
      out_info->is_fallback = !is_better;
      return QN_OK;
    }
    // A generic function that does not take these arguments is no variant.
    if (qn_status_code(status) != QN_STATUS_INVALID_ARGUMENT) return status;
    qn__log(QN_LOG_WARN, "no fallback for '%s': %s", choice->name, qn_status_message(status));
    qn_status_free(status);
  }
  if (!request->is_forbidden) return make_first(choice, out_info, out_function);
  // Nothing is ready and nothing may be compiled: only the remote tier is left, as for FAIL.
  QN_TRY(qn__lookup_miss(engine, request, &choice->wanted.ident, choice->deadline_ns, out_info,
                         &choice->wanted.executable));
  return give(choice, &choice->wanted, out_function);
}

qn_status_t qn__lookup_fallback(qn_engine_t* engine, const qn__request_t* request, const char* name,
                                int64_t start_ns, qn_lookup_info_t* out_info,
                                qn_function_t** out_function) {
  choice_t choice;
  memset(&choice, 0, sizeof choice);
  choice.engine = engine;
  choice.name = name;
  choice.deadline_ns = qn__deadline_after(request->timeout_ns);
  list_variants(&choice, request);
  qn_lookup_info_t info = {.source = QN_SOURCE_COMPILED, .tier = request->tier};
  qn_status_t status;
  qn__engine_retain(engine);
  choice.wanted.executable = qn__table_get(&engine->table, &choice.wanted.ident);
  if (choice.wanted.executable) {
    info = qn__lookup_memory_info(choice.wanted.executable, request->tier);
    status = give(&choice, &choice.wanted, out_function);
    info.lookup_ns = qn__now_ns() - start_ns;
  } else {
    qn__count(engine, QN__COUNTER_lookups, 1);
    status = choose(&choice, &info, out_function);
    info.lookup_ns =
        qn__watch_end(engine->watch, QN__STAGE_lookup, start_ns, qn__request_name(request));
  }
  QN_STRUCT_WRITE(out_info, info);
  drop_variant(&choice.wanted);
  for (size_t i = 0; i < choice.other_count; i++) drop_variant(&choice.others[i]);
  qn__engine_release(engine);
  return status;
}
