// jit/engine/compile.c: making a key that no tier has: claims, the generator, and handing on what
// it made.
//
// Requirements:
//  1. Whoever waits for another process or machine has a bound, and compiles after it.
//  2. The claim is asked for before the generator is opened, so that a process whose kernels others
//     make maps no compiler.
//  3. The caller runs what it compiled, from its own bytes; publishing is handed to the writers.
//  4. A claim is given back whatever happens: with the entry, or without one.
// Thread rule: as making.h. Read next: making.c, cache/lease.c.
#include "base/alloc.h"
#include "base/log.h"
#include "jit/codegen/artifact.h"
#include "jit/engine/making.h"
#include "target/target.h"

// How often another machine's entry is asked for while that machine makes it.
#define REMOTE_PAUSE_NS INT64_C(50000000)
#define NS_PER_MS INT64_C(1000000)

typedef struct work {
  qn__making_t* making;
  bool is_pooled;
  bool has_remote_claim;
  qn__lease_t* lease;  // owned
} work_t;

// -------------------------------------------------------------------------------------- claims

// Another process of this machine may be making the key. Its executable, or NULL and perhaps a
// lease.
static qn_executable_t* claim_here(work_t* work, int64_t deadline_ns) {
  qn__making_t* making = work->making;
  qn_engine_t* engine = making->engine;
  qn__expectation_t expected = {making->key, qn__buffer_as_span(&making->preimage)};
  qn__hit_t hit;
  if (qn__disk_claim(engine->disk, &expected, deadline_ns, &hit, &work->lease) != QN__GET_HIT) {
    return NULL;
  }
  qn_executable_t* executable = qn__making_load_entry(making, &hit.entry, &making->directory);
  qn__disk_hit_release(engine->disk, &hit);
  if (!executable) return NULL;
  qn__count(engine, QN__COUNTER_claimed_hits, 1);
  making->info.source = QN_SOURCE_DISK;
  return executable;
}

// Another machine of the fleet may be making it: a hint, so that losing it costs a compile.
static qn_executable_t* await_fleet(work_t* work, int64_t deadline_ns) {
  qn__making_t* making = work->making;
  qn_engine_t* engine = making->engine;
  int64_t ttl_ms = engine->lock_timeout_ns / NS_PER_MS;
  while (
      qn__remote_is_being_made(engine->remote, making->key, ttl_ms > 0 ? ttl_ms : 1, deadline_ns)) {
    int64_t now_ns = qn__now_ns();
    if (now_ns >= deadline_ns) return NULL;
    int64_t pause_end_ns = now_ns + REMOTE_PAUSE_NS;
    if (!qn__pool_sleep(&engine->pool, pause_end_ns < deadline_ns ? pause_end_ns : deadline_ns)) {
      return NULL;
    }
    qn_executable_t* executable = qn__making_ask_remote(making);
    if (executable) return executable;
  }
  work->has_remote_claim = qn__remote_has_claim(engine->remote, making->key);
  // Between our last question and our claim the other one may have put it and let go.
  return work->has_remote_claim ? qn__making_ask_remote(making) : NULL;
}

static qn_executable_t* claim(work_t* work) {
  qn__making_t* making = work->making;
  qn_engine_t* engine = making->engine;
  bool asks_fleet =
      engine->remote && qn__config_number(&engine->config, QN__SETTING_remote_role) != 0;
  if (!engine->reads_tiers || !engine->writes_tiers) return NULL;
  int64_t start_ns = qn__now_ns();
  int64_t deadline_ns = qn__after(start_ns, engine->lock_timeout_ns);
  qn_executable_t* executable = NULL;
  if (engine->disk) executable = claim_here(work, start_ns);
  bool must_wait = !executable && ((engine->disk && !work->lease) || asks_fleet);
  if (must_wait) {
    bool is_lent = work->is_pooled && qn__pool_lend(&engine->pool);
    if (engine->disk && !work->lease) executable = claim_here(work, deadline_ns);
    if (!executable && asks_fleet) executable = await_fleet(work, deadline_ns);
    if (is_lent) qn__pool_take_back(&engine->pool);
  }
  (void)qn__watch_end(engine->watch, QN__STAGE_claim, start_ns, making->name);
  return executable;
}

// --------------------------------------------------------------------------------------- after

static void publish(work_t* work, const qn_artifact_t* artifact) {
  qn__making_t* making = work->making;
  qn_engine_t* engine = making->engine;
  if (!engine->writes_tiers || (!engine->disk && !engine->remote)) return;
  int64_t start_ns = qn__now_ns();
  const qn_module_t* module = making->request.module;
  qn__buffer_t metadata;
  qn__buffer_init(&metadata, engine->allocator);
  qn__artifact_encode(artifact, &metadata);
  if (!metadata.has_failed) {
    bool has_room = module->byte_count <= QN__ENTRY_MAX_MODULE_BYTES;
    qn__entry_t entry = {
        .key = making->key,
        .created_ns = qn__wall_ns(),
        .compile_ns = making->info.compile_ns,
        .preimage = qn__buffer_as_span(&making->preimage),
        .metadata = qn__buffer_as_span(&metadata),
        .module = {module->bytes, has_room ? module->byte_count : 0},
        .payload = {artifact->payload, artifact->payload_size},
    };
    if (engine->disk) {
      (void)qn__disk_put(engine->disk, &entry, work->lease);
      work->lease = NULL;
    }
    if (engine->remote) work->has_remote_claim &= !qn__remote_put(engine->remote, &entry);
  }
  qn__buffer_deinit(&metadata);
  (void)qn__watch_end(engine->watch, QN__STAGE_publish, start_ns, making->name);
}

static void tell(const qn__making_t* making, size_t code_bytes, qn_status_t status) {
  qn_engine_t* engine = making->engine;
  if (!engine->on_compile || atomic_load(&engine->is_left_behind)) return;
  char text[512];
  qn_compile_event_t event = {
      .struct_size = sizeof event,
      .name = making->name,
      .key = making->info.key,
      .target_json = qn_target_json(making->request.target),
      .tier = making->request.tier,
      .is_checked = making->request.is_checked,
      .reason = qn__making_reason(making, text),
      .reason_text = text,
      .queue_ns = making->queue_ns,
      .compile_ns = making->info.compile_ns,
      .code_bytes = qn_ok(status) ? code_bytes : 0,
      .status = status,
  };
  engine->on_compile(engine->on_compile_self, &event);
}

static qn_status_t generate(work_t* work, const qn_codegen_t* codegen, void* self,
                            qn_executable_t** out_executable) {
  qn__making_t* making = work->making;
  qn_engine_t* engine = making->engine;
  qn_compile_request_t request = qn__compile_request(&making->request);
  int64_t start_ns = qn__now_ns();
  qn_artifact_t* artifact = NULL;
  size_t code_bytes = 0;
  qn_status_t status = codegen->compile(self, &request, &artifact);
  making->info.source = QN_SOURCE_COMPILED;
  making->info.compile_ns = qn__watch_end(engine->watch, QN__STAGE_compile, start_ns, making->name);
  qn__count(engine, QN__COUNTER_compile_ns, (uint64_t)making->info.compile_ns);
  if (qn_ok(status)) {
    int64_t load_ns = qn__now_ns();
    code_bytes = artifact->payload_size;
    status = qn__artifact_check(artifact);
    if (qn_ok(status)) status = qn__making_load(making, artifact, out_executable);
    making->info.load_ns = qn__watch_end(engine->watch, QN__STAGE_load, load_ns, making->name);
    if (qn_ok(status)) publish(work, artifact);
    if (artifact->release) artifact->release(artifact);
  }
  qn__count(engine, qn_ok(status) ? QN__COUNTER_compiles : QN__COUNTER_compiles_failed, 1);
  qn__engine_dump(engine, codegen, self, &request, making->name);
  tell(making, code_bytes, status);
  return status;
}

static void give_up(work_t* work) {
  qn__lease_release(work->lease);
  work->lease = NULL;
  if (work->has_remote_claim) {
    qn__remote_give_up(work->making->engine->remote, work->making->key);
  }
  work->has_remote_claim = false;
}

static qn_status_t open_and_generate(work_t* work, qn_executable_t** out_executable) {
  qn__making_t* making = work->making;
  const qn_codegen_t* codegen;
  void* self;
  char identity[256];
  int64_t start_ns = qn__now_ns();
  qn_status_t status = qn__generators_open(&making->engine->generators, making->generator, &codegen,
                                           &self, identity);
  (void)qn__watch_end(making->engine->watch, QN__STAGE_open, start_ns, making->name);
  QN_TRY(status);
  if (strcmp(identity, making->identity) != 0) {
    // The prediction was wrong: what the true identity has in the tiers counts.
    give_up(work);
    memcpy(making->identity, identity, sizeof making->identity);
    making->has_key = false;
    making->directory = making->bundles = making->remote = (qn__answer_t){0};
    QN_TRY(qn__making_key(making));
    *out_executable = qn__making_ask_local(making);
    if (!*out_executable) *out_executable = claim(work);
    if (*out_executable) return QN_OK;
  }
  return generate(work, codegen, self, out_executable);
}

qn_status_t qn__making_compile(qn__making_t* making, bool is_pooled,
                               qn_executable_t** out_executable) {
  // Code for a processor that this one is not could be compiled, but not loaded.
  if (making->request.device.type == QN_DEVICE_CPU) {
    QN_TRY(qn_target_check_host(making->request.target));
  }
  work_t work = {.making = making, .is_pooled = is_pooled};
  qn_status_t status = QN_OK;
  *out_executable = claim(&work);
  qn_engine_t* engine = making->engine;
  if (!*out_executable &&
      (qn__flights_is_closing(&engine->flights) || qn__pool_is_stopping(&engine->pool))) {
    // While it waited for another process the engine, or this process, began to end.
    status = qn_status_make(QN_STATUS_CANCELLED, "'%s': the engine ends", making->name);
  } else if (!*out_executable) {
    bool is_first = qn__generators_begin_work(&engine->generators, making->generator);
    status = open_and_generate(&work, out_executable);
    qn__generators_end_work(&engine->generators, making->generator, is_first);
  }
  give_up(&work);
  return status;
}
