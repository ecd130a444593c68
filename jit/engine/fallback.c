// jit/engine/fallback.c: the policy FALLBACK: what is ready of the same function, and the better
// one when it has been made.
//
// The variants are tried in the order of their worth: the one asked for, the same function in the
// other tier, the generic module's. Each is asked for in memory and the local tiers only. When none
// is there, the fast tier is compiled ahead of the full one, and the first that lands is given. A
// cell that was given something less listens to the flight of what was asked for.
//
// Thread rule: any thread. Read next: function.c (cells with variants of several modules).
#include "base/alloc.h"
#include "base/log.h"
#include "jit/engine/lookup.h"

// One way to answer.
typedef struct variant {
  qn__request_t request;
  qn__ident_t ident;
  qn__rank_t rank;
  qn_executable_t* executable;  // owned, once it is there
  qn_lookup_info_t info;
  qn__flight_t* probed;  // retained: the flight that asked the local tiers
  bool has_made_probed;
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
  qn__flight_release(variant->probed);
}

static void take(variant_t* variant, qn_executable_t* executable, const qn_lookup_info_t* info) {
  variant->executable = executable;
  variant->info = info ? *info : qn__lookup_memory_info(executable, variant->request.tier);
}

// Takes what a flight brought; false when it brought nothing.
static bool take_landing(variant_t* variant, qn__flight_t* flight, bool is_maker) {
  const qn__landing_t* landing = qn__flight_landing(flight);
  if (landing->outcome != QN__OUTCOME_FOUND) return false;
  qn_executable_retain(landing->executable);
  take(variant, landing->executable, is_maker ? &landing->info : NULL);
  return true;
}

// Memory and local tiers, within the time.
static qn_status_t probe(qn_engine_t* engine, variant_t* variant, int64_t deadline_ns) {
  qn_executable_t* executable = qn__table_peek(&engine->table, &variant->ident);
  if (executable) {
    take(variant, executable, NULL);
    return QN_OK;
  }
  qn__wish_t wish = {.priority = variant->request.priority};
  qn__boarding_t boarding;
  QN_TRY(qn__flight_board(&engine->flights, &variant->request, &variant->ident, &wish, &boarding));
  if (boarding.executable) {
    take(variant, boarding.executable, NULL);
    return QN_OK;
  }
  if (boarding.is_maker && deadline_ns == INT64_MAX) {
    if (!qn__flight_ask_local(boarding.flight)) qn__flight_hand_on(boarding.flight);
  } else if (boarding.is_maker && !qn__flight_submit(boarding.flight)) {
    qn__flight_give_up(boarding.flight, QN__OUTCOME_RETRY);
  }
  bool is_known = qn__flight_wait(boarding.flight, QN__FLIGHT_REMOTE, deadline_ns);
  if (is_known && qn__flight_stage_now(boarding.flight) == QN__FLIGHT_LANDED) {
    (void)take_landing(variant, boarding.flight, boarding.is_maker);
  }
  variant->probed = boarding.flight;
  variant->has_made_probed = boarding.is_maker;
  return QN_OK;
}

// ------------------------------------------------------------------------------------- upgrades

typedef struct upgrade {
  qn__listener_t listener;  // first
  qn_engine_t* engine;      // alive until the flight has landed
  qn_function_t* function;  // retained
} upgrade_t;

static void end_upgrade(upgrade_t* upgrade, const qn__flight_t* flight) {
  qn_engine_t* engine = upgrade->engine;
  qn_function_t* function = upgrade->function;
  const qn__landing_t* landing = qn__flight_landing(flight);
  if (landing->outcome == QN__OUTCOME_FOUND) {
    qn_status_t status =
        qn__function_publish(function, landing->executable, function->module, QN__RANK_ASKED);
    if (qn_ok(status)) {
      qn__count(engine, QN__COUNTER_upgrades, 1);
    } else {
      qn__log(QN__LOG_WARN, "'%s' keeps its fallback: %s", qn_function_signature(function),
              qn_status_message(status));
      qn_status_free(status);
    }
  }
  qn_function_release(function);
  qn__free(engine->allocator, upgrade, sizeof *upgrade);
}

static void on_land(qn__listener_t* listener, qn__flight_t* flight) {
  end_upgrade((upgrade_t*)(void*)listener, flight);
}

// Without memory the function stays as it is: what was given works.
static void subscribe(qn_engine_t* engine, qn_function_t* function, qn__flight_t* flight) {
  upgrade_t* upgrade = qn__alloc_zero(engine->allocator, 1, sizeof *upgrade);
  if (!upgrade) return;
  qn_function_retain(function);
  *upgrade = (upgrade_t){{on_land, NULL}, engine, function};
  if (!qn__flight_listen(flight, &upgrade->listener)) end_upgrade(upgrade, flight);
}

// --------------------------------------------------------------------------------------- making

// What is being made of one variant.
typedef struct making {
  qn__flight_t* flight;  // retained, or NULL
  bool is_maker;
} making_t;

// Has the variant made on the pool. It may be there at once, in variant->executable.
static qn_status_t begin(qn_engine_t* engine, variant_t* variant, making_t* out_making) {
  *out_making = (making_t){0};
  qn__wish_t wish = {
      .asks_remote = true, .may_compile = true, .priority = variant->request.priority};
  qn__boarding_t boarding;
  QN_TRY(qn__flight_board(&engine->flights, &variant->request, &variant->ident, &wish, &boarding));
  if (boarding.executable) {
    take(variant, boarding.executable, NULL);
    return QN_OK;
  }
  if (boarding.is_maker && !qn__flight_submit(boarding.flight)) {
    qn__flight_give_up(boarding.flight, QN__OUTCOME_RETRY);
    qn__flight_release(boarding.flight);
    return qn__lookup_refused(engine, &variant->request);
  }
  // The flight that only asked the tiers may be in the air still: then it has been prolonged.
  bool is_own = boarding.flight == variant->probed && variant->has_made_probed;
  *out_making = (making_t){boarding.flight, boarding.is_maker || is_own};
  return QN_OK;
}

static bool take_making(variant_t* variant, const making_t* making) {
  return making->flight && qn__flight_stage_now(making->flight) == QN__FLIGHT_LANDED &&
         take_landing(variant, making->flight, making->is_maker);
}

typedef struct choice {
  qn_engine_t* engine;
  const char* name;
  int64_t deadline_ns;
  variant_t wanted;
  variant_t others[3];
  size_t other_count;
} choice_t;

// Makes the cell of a variant that is there.
static qn_status_t give(const choice_t* choice, const variant_t* variant,
                        qn_function_t** out_function) {
  return qn__function_create(choice->wanted.request.module, choice->name, variant->executable,
                             variant->request.module, variant->rank, out_function);
}

// Gives one of the lesser variants, and has the one that was asked for made behind it.
static qn_status_t give_less(choice_t* choice, const variant_t* variant, bool is_improved,
                             qn_function_t** out_function) {
  QN_TRY(give(choice, variant, out_function));
  qn__count(choice->engine, QN__COUNTER_fallbacks, 1);
  if (!is_improved) return QN_OK;
  making_t making;
  qn_status_t status = begin(choice->engine, &choice->wanted, &making);
  if (qn_ok(status) && choice->wanted.executable) {
    // It has landed this moment.
    status = qn__function_publish(*out_function, choice->wanted.executable,
                                  choice->wanted.request.module, QN__RANK_ASKED);
  }
  // Why the better one cannot be had now is no reason to fail.
  qn_status_free(status);
  if (making.flight) subscribe(choice->engine, *out_function, making.flight);
  qn__flight_release(making.flight);
  return QN_OK;
}

// Nothing is ready: the fast tier ahead of the full one, and the first that lands.
static qn_status_t make_first(choice_t* choice, qn_lookup_info_t* out_info,
                              qn_function_t** out_function) {
  qn_engine_t* engine = choice->engine;
  variant_t* wanted = &choice->wanted;
  variant_t* fast = &choice->others[0];  // the fast tier, unless that is what was asked for
  making_t full_making = {0}, fast_making = {0};
  qn_status_t status = QN_OK;
  if (wanted->request.tier != QN_TIER_FAST) {
    if (fast->request.priority < INT32_MAX) fast->request.priority++;
    // That it cannot be made, the one that was asked for will tell.
    qn_status_free(begin(engine, fast, &fast_making));
    // Only what is queued behind it comes after it.
    if (fast_making.flight) {
      (void)qn__flight_wait(fast_making.flight, QN__FLIGHT_COMPILE, choice->deadline_ns);
    }
  }
  status = begin(engine, wanted, &full_making);
  qn__flight_t* full = full_making.flight;
  qn__flight_t* first = full ? full : fast_making.flight;
  if (first && !wanted->executable && !fast->executable) {
    bool is_known =
        qn__flight_wait_either(first, full ? fast_making.flight : NULL, choice->deadline_ns);
    if (!is_known) {
      qn_status_free(status);
      status = qn__lookup_too_late(engine, &wanted->request);
    } else if (!take_making(wanted, &full_making) && !take_making(fast, &fast_making) && full) {
      status = qn__lookup_outcome(engine, &wanted->request, full);
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
    if (qn_ok(status) && full_making.flight) subscribe(engine, *out_function, full_making.flight);
  } else if (qn_ok(status) || qn_status_code(status) == QN_STATUS_UNAVAILABLE) {
    // Whoever made it could not go on, or no thread can be had: this thread can wait for it.
    qn_status_free(status);
    status = qn__lookup_behind_memory(engine, &wanted->request, &wanted->ident, choice->deadline_ns,
                                      out_info, &wanted->executable);
    if (qn_ok(status)) status = give(choice, wanted, out_function);
  }
  qn__flight_release(full_making.flight);
  qn__flight_release(fast_making.flight);
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
    qn__log(QN__LOG_WARN, "no fallback for '%s': %s", choice->name, qn_status_message(status));
    qn_status_free(status);
  }
  if (!request->is_forbidden) return make_first(choice, out_info, out_function);
  // Nothing is ready and nothing may be made: the remote tier is left, as for FAIL.
  QN_TRY(qn__lookup_behind_memory(engine, request, &choice->wanted.ident, choice->deadline_ns,
                                  out_info, &choice->wanted.executable));
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
  if (out_info) *out_info = info;
  drop_variant(&choice.wanted);
  for (size_t i = 0; i < choice.other_count; i++) drop_variant(&choice.others[i]);
  qn__engine_release(engine);
  return status;
}
