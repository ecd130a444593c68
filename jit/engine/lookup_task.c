// SPDX-License-Identifier: Apache-2.0
// jit/engine/lookup_task.c: the state machine of a lookup, from the memory table's miss to loaded
// code.
//
//   KEY ─▶ LOCAL ─▶ REMOTE ─▶ CLAIM ─▶ COMPILE ─▶ LOAD ─▶ PUBLISH ─▶ DONE
//            └────────┴─────────┴── a hit, loaded ─────────────────────▲
//
// Each state has one function below, in this order, which returns the next state. `step` calls it;
// qn__lookup_run calls `step` until the task is done.
//
// Requirements:
//  1. Operations that may hang (files, network, other processes, compilers) hold no lock.
//  2. A hit opens no generator: generator.c predicts the identity for the key, or, where none is
//     installed, the bundles name it. A claim comes before the generator is opened, too.
//  3. Tiers are searched in the order of their cost, until a hit. An entry is verified by the
//     tier, decoded by the engine and loaded by the device; any doubt is a miss, and its reason is
//     reported with the compile.
//  4. Remote tiers are searched and a compile is started only if a caller allows it. The last check
//     of that and the completion are one step under the lock (qn__in_flight_complete).
//  5. Waiting for another process or machine has a bound; after it this process compiles.
//  6. The caller runs the compiled code from memory; the tiers write it in the background.
//  7. Claims are always released, with an entry or without.
//  8. A compile ahead (request.is_ahead, ahead.c) goes through the same states in its caller's
//     thread. It uses no remote tier, and LOAD does nothing: the target may be of another machine.
//
// Not here: joining and waiting (in_flight.c), policies (lookup.c, fallback.c).
#include "jit/engine/lookup_task.h"

#include "base/alloc.h"
#include "base/log.h"
#include "jit/engine/engine.h"
#include "target/target.h"

static qn__lookup_state_t done(qn__lookup_task_t* task, qn__outcome_t outcome) {
  task->result.outcome = outcome;
  if (outcome == QN__OUTCOME_ABSENT) (void)qn__miss_reason(task, task->result.why);
  return QN__LOOKUP_DONE;
}

static qn__lookup_state_t found(qn__lookup_task_t* task) {
  return done(task, QN__OUTCOME_FOUND);
}

static qn__lookup_state_t failed(qn__lookup_task_t* task, qn_status_t status) {
  assert(!qn_ok(status) && !task->result.executable);
  task->result.status = status;
  return done(task, QN__OUTCOME_FAILED);
}

// ------------------------------------------------------------------------------------------- KEY

// Makes the key for the identity that is set.
static qn_status_t hash_key(qn__lookup_task_t* task) {
  const char* cache_namespace = qn__config_get(&task->engine->config, QN__SETTING_cache_namespace);
  qn__buffer_clear(&task->preimage);
  QN_TRY(
      qn__key_make(&task->request, task->identity, cache_namespace, &task->preimage, &task->key));
  qn__key_describe(&task->request, task->key, task->result.info.key.hex, task->name);
  return QN_OK;
}

static qn__lookup_state_t make_key(qn__lookup_task_t* task) {
  qn_engine_t* engine = task->engine;
  const qn__request_t* request = &task->request;
  qn_status_t status = QN_OK;
  if (task->identity[0] == '\0') {
    status = qn__generators_find(&engine->generators, request->target->kind->info->codegen,
                                 &task->generator, task->identity);
  }
  if (qn_ok(status)) status = hash_key(task);
  if (!qn_ok(status)) return failed(task, status);
  // A compile ahead comes from a list already; a variant is recorded when it is kept.
  qn_compile_request_t compile = qn__compile_request(request);
  if (!request->is_ahead && !request->is_background)
    qn__record_note(engine->record, task->key, &compile, task->name);
  return QN__LOOKUP_LOCAL;
}

// ----------------------------------------------------------------------------- LOCAL and REMOTE

// Loads the artifact as the task's result. A compile ahead loads nothing.
static qn_status_t load_artifact(qn__lookup_task_t* task, const qn_artifact_t* artifact) {
  qn_engine_t* engine = task->engine;
  assert(!task->result.executable);
  if (task->request.is_ahead) return QN_OK;
  int64_t start_ns = qn__now_ns();
  qn_load_options_t options = {
      .struct_size = sizeof options,
      .name = task->name,
      .has_perf_map = qn__config_number(&engine->config, QN__SETTING_perf) != 0,
      .has_gdb = qn__config_number(&engine->config, QN__SETTING_gdb) != 0,
  };
  // The CPU has no driver.
  if (task->request.device.type != QN_DEVICE_CPU) {
    qn__driver_cache_open(engine, qn__buffer_as_span(&task->preimage), &options.driver_cache);
  }
  qn_status_t status =
      qn__executable_load(artifact, task->request.device, task->request.module, task->key, &options,
                          engine->allocator, &task->result.executable);
  qn__driver_cache_drop(&options.driver_cache);
  task->result.info.load_ns = qn__watch_end(engine->watch, QN__STAGE_load, start_ns, task->name);
  return status;
}

// Decodes and loads the entry of a hit, and releases the hit. Stores an entry of a remote tier in
// the local ones, so that the next lookup needs no network. False: the entry is not accepted.
static bool take_hit(qn__lookup_task_t* task, qn__tier_t* tier, size_t part, qn__hit_t* hit) {
  qn_engine_t* engine = task->engine;
  qn__arena_t arena;
  qn__arena_init(&arena, engine->allocator);
  qn_artifact_t artifact;
  qn_status_t status =
      qn__artifact_decode(hit->entry.metadata, hit->entry.payload, &arena, &artifact);
  if (qn_ok(status)) status = load_artifact(task, &artifact);
  qn__arena_deinit(&arena);
  bool is_accepted = qn_ok(status);
  if (is_accepted) {
    task->result.info.source = tier->table->source;
    bool is_copied = tier->table->is_remote && engine->writes_tiers;
    qn__tier_t* local = is_copied ? qn__tier_first(engine) : tier;
    for (; local != tier; local = qn__tier_next(local)) {
      qn__claim_t none = {0};
      if (local->table->put) local->table->put(local, &hit->entry, &none);
    }
  } else {
    qn__log(QN_LOG_INFO, "entry %s is not used: %s", task->result.info.key.hex,
            qn_status_message(status));
    qn_status_free(status);
    task->answers[tier->id].was_rejected = true;
  }
  tier->table->release(tier, part, hit);
  return is_accepted;
}

static void note_answer(qn__answer_t* answer, qn__get_result_t result, const qn__hit_t* hit) {
  // Of several bundles, the first that had something to say counts.
  if (answer->was_asked && answer->result != QN__GET_ABSENT) return;
  answer->was_asked = true;
  answer->result = result;
  if (result == QN__GET_BAD) answer->reason = hit->reason;
  if (result == QN__GET_ERROR) answer->error = hit->error;
}

// Gets the entry from the first part of the tier that has it, from *inout_part on.
static bool get(qn__lookup_task_t* task, qn__tier_t* tier, size_t* inout_part, qn__hit_t* out_hit) {
  qn__expectation_t expected = {task->key, qn__buffer_as_span(&task->preimage)};
  int64_t start_ns = qn__now_ns();
  qn__get_result_t result = QN__GET_ABSENT;
  for (; *inout_part < tier->part_count; ++*inout_part) {
    result = tier->table->get(tier, *inout_part, &expected, out_hit);
    note_answer(&task->answers[tier->id], result, out_hit);
    if (result == QN__GET_HIT) break;
  }
  (void)qn__watch_end(task->engine->watch, tier->table->stage, start_ns, task->name);
  return result == QN__GET_HIT;
}

// Searches the local tiers or the remote ones. A refused entry does not end the search.
static bool ask_tiers(qn__lookup_task_t* task, bool are_remote) {
  qn_engine_t* engine = task->engine;
  assert(engine->reads_tiers && task->preimage.size > 0);
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    if (tier->table->is_remote != are_remote) continue;
    qn__hit_t hit;
    for (size_t part = 0; part < tier->part_count; part++) {
      if (!get(task, tier, &part, &hit)) break;
      bool is_accepted = take_hit(task, tier, part, &hit);
      qn__count(engine, is_accepted ? tier->table->hits : tier->table->rejected, 1);
      if (is_accepted) return true;
    }
  }
  return false;
}

// Searches the local tiers for the keys of other versions of the generator. If none is installed,
// bundles may contain entries of several.
static qn_status_t ask_for_other_identities(qn__lookup_task_t* task, bool* out_is_hit) {
  qn__generators_t* generators = &task->engine->generators;
  char identity[256];
  uint32_t n = 1;
  for (; !*out_is_hit && qn__generators_alternative(generators, task->generator, n, identity);
       n++) {
    memcpy(task->identity, identity, sizeof task->identity);
    QN_TRY(hash_key(task));
    *out_is_hit = ask_tiers(task, false);
  }
  if (*out_is_hit || n == 1) return QN_OK;
  // No identity has an entry: restore the key of the first one.
  (void)qn__generators_alternative(generators, task->generator, 0, task->identity);
  return hash_key(task);
}

static qn__lookup_state_t ask_local(qn__lookup_task_t* task) {
  if (!task->engine->reads_tiers) return QN__LOOKUP_REMOTE;
  bool is_hit = ask_tiers(task, false);
  if (!is_hit) {
    qn_status_t status = ask_for_other_identities(task, &is_hit);
    if (!qn_ok(status)) return failed(task, status);
  }
  return is_hit ? found(task) : QN__LOOKUP_REMOTE;
}

static qn__lookup_state_t ask_remote(qn__lookup_task_t* task) {
  bool may_ask, may_compile;
  qn__in_flight_needs(task, &may_ask, &may_compile);
  if (may_ask && !task->has_asked_remote) {
    bool is_hit = ask_tiers(task, true);
    task->has_asked_remote = true;
    if (is_hit) return found(task);
    return QN__LOOKUP_REMOTE;  // a caller may have joined that allows more
  }
  return may_compile ? QN__LOOKUP_CLAIM : done(task, QN__OUTCOME_ABSENT);
}

// ----------------------------------------------------------------------------------------- CLAIM

// Claims the key in one tier. True if another process or machine has made the entry.
static bool claim_in(qn__lookup_task_t* task, qn__tier_t* tier, int64_t deadline_ns) {
  qn__expectation_t expected = {task->key, qn__buffer_as_span(&task->preimage)};
  qn__claim_t* held = &task->claims[tier->id];
  qn__hit_t hit;
  assert(!held->is_held);
  if (tier->table->claim(tier, &expected, deadline_ns, held, &hit) != QN__GET_HIT) return false;
  bool is_accepted = take_hit(task, tier, 0, &hit);
  if (is_accepted) qn__count(task->engine, tier->table->claimed, 1);
  return is_accepted;
}

// Returns whether to claim the key in a tier. A remote tier needs a caller that allows it.
static bool can_claim_in(const qn__lookup_task_t* task, const qn__tier_t* tier) {
  return tier->has_claims && !task->claims[tier->id].is_held &&
         !(tier->table->is_remote && task->request.is_ahead);
}

// Claims without waiting where that is possible. Else lends the slot of this compile to others
// while it waits. True if another process or machine has made the entry.
static bool claim_in_all(qn__lookup_task_t* task) {
  qn_engine_t* engine = task->engine;
  int64_t start_ns = qn__now_ns();
  int64_t deadline_ns = qn__after(start_ns, engine->lock_timeout_ns);
  qn__tier_t* tier;
  bool is_made = false;
  bool must_wait = false;
  for (tier = qn__tier_first(engine); tier && !is_made; tier = qn__tier_next(tier)) {
    if (!can_claim_in(task, tier)) continue;
    if (!tier->table->is_remote) is_made = claim_in(task, tier, start_ns);
    must_wait |= !task->claims[tier->id].is_held;
  }
  if (must_wait && !is_made) {
    bool is_lent = task->is_on_pool && qn__pool_lend(&engine->pool);
    for (tier = qn__tier_first(engine); tier && !is_made; tier = qn__tier_next(tier)) {
      if (can_claim_in(task, tier)) is_made = claim_in(task, tier, deadline_ns);
    }
    if (is_lent) qn__pool_take_back(&engine->pool);
  }
  (void)qn__watch_end(engine->watch, QN__STAGE_claim, start_ns, task->name);
  return is_made;
}

static void give_back_claims(qn__lookup_task_t* task) {
  for (size_t i = 0; i < QN__TIER_COUNT; i++) {
    qn__tier_t* tier = &task->engine->tiers[i];
    if (task->claims[i].is_held) tier->table->give_back(tier, task->key, &task->claims[i]);
    task->claims[i] = (qn__claim_t){0};
  }
}

static qn__lookup_state_t claim(qn__lookup_task_t* task) {
  qn_engine_t* engine = task->engine;
  bool may_ask, may_compile;
  qn__in_flight_needs(task, &may_ask, &may_compile);
  // While the task was in the queue, all callers that allow a compile may have cancelled.
  if (!may_compile) return done(task, QN__OUTCOME_ABSENT);
  if (task->is_on_pool && !task->codegen) {
    task->queue_ns =
        qn__watch_end(engine->watch, QN__STAGE_queue, task->pool_task.queued_ns, task->name);
  }
  qn_status_t status = QN_OK;
  if (task->request.is_ahead) {
    status = qn__ahead_prepare(engine);
  } else if (task->request.device.type == QN_DEVICE_CPU) {
    // Code for another processor could be compiled, but not loaded.
    status = qn_target_check_host(task->request.target);
  }
  if (!qn_ok(status)) return failed(task, status);
  if (engine->reads_tiers && engine->writes_tiers && claim_in_all(task)) return found(task);
  if (qn__in_flight_is_closing(&engine->in_flight) || qn__pool_is_stopping(&engine->pool)) {
    return failed(task, qn_status_make(QN_STATUS_CANCELLED, "'%s': the engine is being destroyed",
                                       task->name));
  }
  return QN__LOOKUP_COMPILE;
}

// --------------------------------------------------------------------- COMPILE, LOAD and PUBLISH

// Counts and reports a compile that has ended, before any caller gets its result.
static void report_compile(qn__lookup_task_t* task, qn_status_t status) {
  qn_engine_t* engine = task->engine;
  qn_compile_request_t request = qn__compile_request(&task->request);
  size_t code_bytes = qn_ok(status) ? task->compiled.artifact.payload_size : 0;
  qn__compiled_release(&task->compiled);
  qn__count(engine, qn_ok(status) ? QN__COUNTER_compiles : QN__COUNTER_compiles_failed, 1);
  qn__codegen_dump(task->codegen, task->codegen_self, &request,
                   qn__config_get(&engine->config, QN__SETTING_dump),
                   qn__config_get(&engine->config, QN__SETTING_dump_dir), task->name);
  if (!engine->on_compile || atomic_load(&engine->is_left_behind)) return;
  char text[512];
  qn_compile_event_t event = {
      .struct_size = sizeof event,
      .name = task->name,
      .key = task->result.info.key,
      .target_json = qn_target_json(task->request.target),
      .tier = task->request.tier,
      .is_checked = task->request.is_checked,
      .reason = qn__miss_reason(task, text),
      .reason_text = text,
      .queue_ns = task->queue_ns,
      .compile_ns = task->result.info.compile_ns,
      .code_bytes = code_bytes,
      .status = status,
  };
  engine->on_compile(engine->on_compile_self, &event);
}

static qn__lookup_state_t fail_compile(qn__lookup_task_t* task, qn_status_t status) {
  report_compile(task, status);
  return failed(task, status);
}

// Starts again with the identity that the opened generator has, where the prediction was wrong.
static qn__lookup_state_t restart(qn__lookup_task_t* task, const char identity[256]) {
  give_back_claims(task);
  memcpy(task->identity, identity, sizeof task->identity);
  memset(task->answers, 0, sizeof task->answers);
  return QN__LOOKUP_KEY;
}

// Times a stage that the generator reports.
static void on_stage(void* self, qn_compile_stage_t stage, int64_t duration_ns) {
  _Static_assert(QN__STAGE_link - QN__STAGE_decode == QN_COMPILE_LINK - QN_COMPILE_DECODE,
                 "the engine times every stage of a generator");
  const qn__lookup_task_t* task = self;
  // The generator may be of a later version.
  if (stage < QN_COMPILE_DECODE || stage > QN_COMPILE_LINK) return;
  qn__stage_t timed = (qn__stage_t)(QN__STAGE_decode + (stage - QN_COMPILE_DECODE));
  (void)qn__watch_end(task->engine->watch, timed, qn__now_ns() - duration_ns, task->name);
}

// Lends the generator the threads of the pool.
static qn_status_t run_parallel(void* self, size_t count,
                                qn_status_t (*run)(void* arg, size_t index), void* arg) {
  const qn__lookup_task_t* task = self;
  return qn__pool_run_parallel(&task->engine->pool, &task->pool_task, count, run, arg);
}

static qn__lookup_state_t compile(qn__lookup_task_t* task) {
  qn_engine_t* engine = task->engine;
  char identity[256];
  assert(task->preimage.size > 0 && !task->compiled.given);
  int64_t start_ns = qn__now_ns();
  if (!task->holds_exit) {
    task->holds_exit = qn__generators_begin_work(&engine->generators, task->generator);
  }
  qn_status_t status = qn__generators_open(&engine->generators, task->generator, &task->codegen,
                                           &task->codegen_self, identity);
  (void)qn__watch_end(engine->watch, QN__STAGE_open, start_ns, task->name);
  if (!qn_ok(status)) return failed(task, status);
  if (strcmp(identity, task->identity) != 0) return restart(task, identity);

  qn_compile_request_t request = qn__compile_request(&task->request);
  request.on_stage = on_stage;
  request.on_stage_self = task;
  // A variant is compiled by one thread, whose time is counted.
  if (!task->request.is_background) request.run_parallel = run_parallel;
  request.run_parallel_self = task;
  qn_lookup_info_t* info = &task->result.info;
  start_ns = qn__now_ns();
  status = qn__artifact_compile(task->codegen, task->codegen_self, &request, &task->compiled);
  info->source = QN_SOURCE_COMPILED;
  info->compile_ns = qn__watch_end(engine->watch, QN__STAGE_compile, start_ns, task->name);
  qn__count(engine, QN__COUNTER_compile_ns, (uint64_t)info->compile_ns);
  if (!qn_ok(status)) return fail_compile(task, status);
  return QN__LOOKUP_LOAD;
}

static qn__lookup_state_t load(qn__lookup_task_t* task) {
  assert(task->codegen && task->compiled.given);
  qn_status_t status = load_artifact(task, &task->compiled.artifact);
  return qn_ok(status) ? QN__LOOKUP_PUBLISH : fail_compile(task, status);
}

static qn_status_t put_artifact(qn__lookup_task_t* task) {
  qn_engine_t* engine = task->engine;
  if (!engine->writes_tiers || !qn__tier_first(engine)) return QN_OK;
  int64_t start_ns = qn__now_ns();
  qn_status_t status =
      qn__tiers_put(engine, task->key, qn__buffer_as_span(&task->preimage), task->request.module,
                    &task->compiled.artifact, task->result.info.compile_ns, task->claims);
  (void)qn__watch_end(engine->watch, QN__STAGE_publish, start_ns, task->name);
  return status;
}

static qn__lookup_state_t publish(qn__lookup_task_t* task) {
  assert(task->request.is_ahead == !task->result.executable);
  qn_status_t status = put_artifact(task);
  if (!qn_ok(status) && task->request.is_ahead) return fail_compile(task, status);
  // Publishing must not fail a lookup: without memory for the entry, the tiers do not get it.
  qn_status_free(status);
  report_compile(task, QN_OK);
  return found(task);
}

// ------------------------------------------------------------------------------------ the machine

static qn__lookup_state_t step(qn__lookup_task_t* task, qn__lookup_state_t state) {
  switch (state) {
    case QN__LOOKUP_KEY:
      return make_key(task);
    case QN__LOOKUP_LOCAL:
      return ask_local(task);
    case QN__LOOKUP_REMOTE:
      return ask_remote(task);
    case QN__LOOKUP_CLAIM:
      return claim(task);
    case QN__LOOKUP_COMPILE:
      return compile(task);
    case QN__LOOKUP_LOAD:
      return load(task);
    case QN__LOOKUP_PUBLISH:
      return publish(task);
    case QN__LOOKUP_DONE:
      break;
  }
  (void)QN_NEVER(true);
  return QN__LOOKUP_DONE;
}

// Completes the task. False if a caller that allows more has joined meanwhile.
static bool finish(qn__lookup_task_t* task) {
  if (task->holds_exit) {
    qn__generators_end_work(&task->engine->generators, task->generator, true);
    task->holds_exit = false;
  }
  give_back_claims(task);
  return qn__in_flight_complete(task);
}

void qn__lookup_give_up(qn__lookup_task_t* task, qn__outcome_t outcome) {
  task->result.outcome = outcome;
  (void)qn__in_flight_complete(task);
}

void qn__lookup_run(qn__lookup_task_t* task, bool may_compile_here) {
  qn__lookup_state_t state = task->state;
  bool stays_here = task->request.is_ahead || task->request.is_background;
  for (;;) {
    qn__lookup_state_t next = step(task, state);
    if (next == QN__LOOKUP_DONE) {
      if (finish(task)) return;
    } else if (next == QN__LOOKUP_CLAIM && task->state < QN__LOOKUP_CLAIM && !stays_here) {
      if (qn__in_flight_queue(task)) return;  // a compile thread continues the task
      if (!may_compile_here) {
        // Only a pool that stops refuses a task of its own threads.
        qn__lookup_give_up(task, task->is_on_pool ? QN__OUTCOME_CANCELLED : QN__OUTCOME_RETRY);
        return;
      }
      state = next;
    } else {
      qn__in_flight_advance(task, next);
      state = next;
    }
  }
}

void qn__lookup_run_local(qn__lookup_task_t* task) {
  qn__lookup_state_t state = task->state;
  while (state < QN__LOOKUP_REMOTE) {
    state = step(task, state);
    if (state == QN__LOOKUP_DONE) {
      (void)finish(task);
      return;
    }
    qn__in_flight_advance(task, state);
  }
  (void)done(task, QN__OUTCOME_ABSENT);
  if (qn__in_flight_complete(task)) return;
  if (!qn__lookup_submit(task)) qn__lookup_give_up(task, QN__OUTCOME_RETRY);
}

// ---------------------------------------------------------------------------------------- the pool

static void drop(qn__task_t* pool_task) {
  qn__lookup_give_up((qn__lookup_task_t*)(void*)pool_task, QN__OUTCOME_CANCELLED);
}

static void run(qn__task_t* pool_task) {
  qn__lookup_task_t* task = (qn__lookup_task_t*)(void*)pool_task;
  task->is_on_pool = true;
  qn__lookup_run(task, false);
}

bool qn__lookup_submit(qn__lookup_task_t* task) {
  task->pool_task.run = run;
  task->pool_task.drop = drop;
  task->pool_task.queue = task->state == QN__LOOKUP_CLAIM ? QN__QUEUE_COMPUTE : QN__QUEUE_IO;
  return qn__pool_submit(&task->engine->pool, &task->pool_task);
}
