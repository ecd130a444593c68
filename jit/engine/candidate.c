// SPDX-License-Identifier: Apache-2.0
// jit/engine/candidate.c: chooses values that are worth a variant, and looks the variant up.
//
// Values with `min_calls` calls are looked up in the tiers of the cache, so that a restart finds
// its variants soon. They are compiled when calls have spent PAYBACK times of what a compile costs:
// a variant that saves a tenth then has paid for itself after as much time again.
//
// Not here: samples and trials (adaptive.c).
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "jit/engine/adaptive.h"
#include "jit/engine/lookup.h"
#include "quern/ir.h"

#define PAYBACK 10
#define UNMEASURED_PAYBACK 10u  // times min_calls
// A variant that was used within this time does not make room for another one.
#define IN_USE_NS INT64_C(10000000000)
#define RETRY_NS INT64_C(60000000000)

static void QN_PRINTF(2, 3) explain(qn__tuple_t* tuple, const char* format, ...) {
  va_list list;
  va_start(list, format);
  (void)vsnprintf(tuple->reason, sizeof tuple->reason, format, list);
  va_end(list);
}

// ---------------------------------------------------------------------------------------- choice

// Whether calls had these values often enough and long enough for a compile.
static bool is_worth_a_compile(const qn__adaptive_t* adaptive, qn__tuple_t* tuple) {
  const qn__background_t* background = &adaptive->engine->background;
  if (adaptive->keeps_unmeasured) {
    uint64_t needed = (uint64_t)adaptive->min_calls * UNMEASURED_PAYBACK;
    if (tuple->call_count >= needed) return true;
    explain(tuple, "the cache has no variant; a compile needs %" PRIu64 " calls", needed);
    return false;
  }
  int64_t needed_ns = PAYBACK * background->compile_cost_ns;
  if (tuple->time_ns >= needed_ns) return true;
  explain(tuple, "the cache has no variant; a compile needs %.3f ms of calls, there are %.3f",
          (double)needed_ns / 1e6, (double)tuple->time_ns / 1e6);
  return false;
}

static bool may_compile(const qn_engine_t* engine) {
  return !engine->is_forbidden && engine->background.percent > 0;
}

// Returns whether the tuple is to be tried now, and says why not.
static bool is_due(qn__adaptive_t* adaptive, qn__tuple_t* tuple, int64_t now_ns) {
  const qn_engine_t* engine = adaptive->engine;
  if (tuple->state != QN_VARIANT_SEEN || now_ns < tuple->retry_ns) return false;
  if (engine->background.max_variants == 0) {
    explain(tuple, "the option special_limit is 0");
    return false;
  }
  if (tuple->call_count < adaptive->min_calls) {
    explain(tuple, "too few calls: %u are needed", adaptive->min_calls);
    return false;
  }
  if (tuple->time_ns == 0 && !adaptive->keeps_unmeasured) {
    explain(tuple, "the host cannot time its calls, which are on streams");
    return false;
  }
  if (!tuple->is_absent) return true;
  if (!may_compile(engine)) {
    explain(tuple, "the cache has no variant, and %s",
            engine->is_forbidden ? "compiling is forbidden" : "the option special_budget is 0");
    tuple->is_absent = false;  // another process may put one
    tuple->retry_ns = qn__after(now_ns, RETRY_NS);
    return false;
  }
  return is_worth_a_compile(adaptive, tuple);
}

void qn__adaptive_choose(qn__adaptive_t* adaptive, int64_t now_ns, qn__candidate_t* inout_best) {
  for (size_t i = 0; i < adaptive->tuple_count; i++) {
    qn__tuple_t* tuple = adaptive->tuples[i];
    if (!is_due(adaptive, tuple, now_ns)) continue;
    const qn__tuple_t* best = inout_best->tuple;
    bool is_better = !best || tuple->time_ns > best->time_ns ||
                     (tuple->time_ns == best->time_ns && tuple->call_count > best->call_count);
    if (!is_better) continue;
    *inout_best =
        (qn__candidate_t){.adaptive = adaptive, .tuple = tuple, .may_compile = tuple->is_absent};
  }
}

// ------------------------------------------------------------------------------------------ room

// Finds the variant of a function that was not used for longest.
static void find_unused(qn__adaptive_t* adaptive, qn__adaptive_t** inout_adaptive,
                        qn__tuple_t** inout_tuple) {
  for (size_t i = 0; i < adaptive->tuple_count; i++) {
    qn__tuple_t* tuple = adaptive->tuples[i];
    if (!tuple->special || (*inout_tuple && (*inout_tuple)->used_ns <= tuple->used_ns)) continue;
    *inout_adaptive = adaptive;
    *inout_tuple = tuple;
  }
}

static uint32_t count_slots(uint32_t slots) {
  return (uint32_t)__builtin_popcount(slots);
}

bool qn__candidate_begin(qn__candidate_t* candidate, int64_t now_ns) {
  qn__adaptive_t* adaptive = candidate->adaptive;
  qn__background_t* background = &adaptive->engine->background;
  bool is_function_full = count_slots(adaptive->slots) >= adaptive->max_variants;
  bool is_engine_full = background->variant_count >= background->max_variants;
  if (!is_function_full && !is_engine_full) return true;
  qn__adaptive_t* owner = NULL;
  qn__tuple_t* unused = NULL;
  if (is_function_full) {
    find_unused(adaptive, &owner, &unused);
  } else {
    for (qn__adaptive_t* other = background->first; other; other = other->next) {
      find_unused(other, &owner, &unused);
    }
  }
  bool has_room =
      unused && now_ns - unused->used_ns > IN_USE_NS && qn__adaptive_drop(owner, unused);
  if (has_room) return true;
  explain(candidate->tuple, "all %" PRIu64 " variants of the %s are in use",
          is_function_full ? (uint64_t)adaptive->max_variants : background->max_variants,
          is_function_full ? "function" : "engine");
  candidate->tuple->retry_ns = qn__after(now_ns, IN_USE_NS / 10);
  return false;
}

// ---------------------------------------------------------------------------------------- lookup

// Looks an executable up in this thread. Errors: those of compiles; CANCELLED.
static qn_status_t look_up(qn__candidate_t* candidate, const qn__request_t* request,
                           qn_executable_t** out_executable) {
  qn_engine_t* engine = candidate->adaptive->engine;
  qn__ident_t ident = qn__request_ident(request);
  qn__lookup_needs_t needs = {.asks_remote = true, .may_compile = candidate->may_compile};
  *out_executable = qn__table_peek(&engine->table, &ident);
  if (*out_executable) return QN_OK;
  qn__join_t join;
  QN_TRY(qn__in_flight_join(&engine->in_flight, request, &ident, &needs, &join));
  if (join.executable) {
    *out_executable = join.executable;
    return QN_OK;
  }
  if (join.is_leader) qn__lookup_run(join.task, true);
  (void)qn__in_flight_wait(join.task, QN__LOOKUP_DONE, INT64_MAX);
  const qn__lookup_result_t* result = &join.task->result;
  qn_status_t status = QN_OK;
  if (result->outcome == QN__OUTCOME_FOUND) {
    qn_executable_retain(result->executable);
    *out_executable = result->executable;
    candidate->is_compiled = join.is_leader && result->info.source == QN_SOURCE_COMPILED;
  } else if (result->outcome == QN__OUTCOME_ABSENT) {
    candidate->is_absent = true;
  } else {
    status = qn__lookup_status(engine, request, join.task);
    if (qn_ok(status)) status = qn__lookup_refused(engine, request);
  }
  qn__lookup_task_release(join.task);
  return status;
}

void qn__candidate_make(qn__candidate_t* candidate) {
  const qn__adaptive_t* adaptive = candidate->adaptive;
  const char* names[QN__DISPATCH_MAX_NAMES];
  for (uint32_t n = 0; n < adaptive->name_count; n++) names[n] = adaptive->names[n].qualified;
  candidate->status =
      qn_module_specialize(adaptive->request.module, names, candidate->tuple->values,
                           adaptive->name_count, &candidate->module);
  if (!qn_ok(candidate->status)) return;
  qn__request_t request = adaptive->request;
  request.module = candidate->module;
  qn_executable_t* executable = NULL;
  candidate->status = look_up(candidate, &request, &executable);
  if (executable) {
    candidate->key = executable->key;
    candidate->status = qn__function_create(candidate->module, adaptive->name, executable,
                                            candidate->module, QN__RANK_ASKED, &candidate->special);
  }
  qn_executable_release(executable);
}

// Whether an error says nothing about the values: it may not come again.
static bool is_passing(qn_status_code_t code) {
  return code == QN_STATUS_OUT_OF_MEMORY || code == QN_STATUS_CANCELLED ||
         code == QN_STATUS_DEADLINE_EXCEEDED || code == QN_STATUS_FAILED_PRECONDITION ||
         code == QN_STATUS_UNAVAILABLE;
}

// Puts the special function into calls. Errors: those of qn__dispatch_set, OUT_OF_MEMORY.
static qn_status_t install(qn__candidate_t* candidate, int64_t now_ns) {
  qn__adaptive_t* adaptive = candidate->adaptive;
  qn__tuple_t* tuple = candidate->tuple;
  qn_engine_t* engine = adaptive->engine;
  qn__trial_t* trial = NULL;
  if (!adaptive->keeps_unmeasured) {
    trial = qn__alloc_zero(engine->allocator, 1, sizeof *trial);
    if (!trial) return qn__out_of_memory("a trial");
  }
  uint32_t slot = (uint32_t)__builtin_ctz(~adaptive->slots);
  qn_status_t status =
      qn__dispatch_set(adaptive->dispatch, slot, tuple->words, candidate->special, trial != NULL);
  if (!qn_ok(status)) {
    if (trial) qn__free(engine->allocator, trial, sizeof *trial);
    return status;
  }
  tuple->slot = slot;
  adaptive->slots |= 1u << slot;
  adaptive->calls[slot] = qn__dispatch_calls(adaptive->dispatch, slot);
  engine->background.variant_count++;
  tuple->special = candidate->special;
  tuple->module = candidate->module;
  candidate->special = NULL;
  candidate->module = NULL;
  tuple->is_absent = false;
  tuple->trial = trial;
  tuple->key = candidate->key;
  tuple->used_ns = now_ns;
  tuple->served_count = 0;
  tuple->state = QN_VARIANT_TRIAL;
  explain(tuple, "it has to prove faster");
  qn__count(engine, QN__COUNTER_variants_made, 1);
  if (!trial) qn__adaptive_keep(adaptive, tuple);
  return QN_OK;
}

void qn__candidate_end(qn__candidate_t* candidate, int64_t now_ns) {
  qn__tuple_t* tuple = candidate->tuple;
  if (candidate->is_absent) {
    tuple->is_absent = true;
    explain(tuple, "the cache has no variant");
    return;
  }
  if (qn_ok(candidate->status)) candidate->status = install(candidate, now_ns);
  if (qn_ok(candidate->status)) return;
  explain(tuple, "%s", qn_status_message(candidate->status));
  if (is_passing(qn_status_code(candidate->status))) {
    tuple->retry_ns = qn__after(now_ns, RETRY_NS);
  } else {
    qn__log(QN_LOG_INFO, "no variant of '%s': %s", candidate->adaptive->name, tuple->reason);
    qn__adaptive_ban(candidate->adaptive, tuple);
  }
}

void qn__candidate_drop(qn__candidate_t* candidate) {
  qn_function_release(candidate->special);
  qn_module_release(candidate->module);
  qn_status_free(candidate->status);
}
