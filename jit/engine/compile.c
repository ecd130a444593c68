// jit/engine/compile.c: making a key that no tier has: claims, the generator, and handing on what
// it made.
//
// Requirements:
//  1. Whoever waits for another process or machine has a bound, and compiles after it.
//  2. The claim is asked for before the generator is opened, so that a process whose kernels others
//     make maps no compiler.
//  3. The caller runs what it compiled, from its own bytes; publishing is handed to the writers.
//  4. A claim is given back whatever happens: with the entry, or without one.
// Thread rule: as making.h. Read next: making.c, cache/disk_claim.c.
#include "base/alloc.h"
#include "base/log.h"
#include "jit/codegen/artifact.h"
#include "jit/engine/making.h"
#include "target/target.h"

typedef struct work {
  qn__making_t* making;
  bool is_pooled;
  qn__claim_t claims[QN__TIER_COUNT];  // owned
} work_t;

// -------------------------------------------------------------------------------------- claims

// Another process or machine may be making the key. Its executable, or NULL and perhaps a claim.
static qn_executable_t* claim_in(work_t* work, qn__tier_t* tier, int64_t deadline_ns) {
  qn__making_t* making = work->making;
  const qn__tier_table_t* table = tier->table;
  qn__expectation_t expected = {making->key, qn__buffer_as_span(&making->preimage)};
  qn__hit_t hit;
  qn__claim_t* claim = &work->claims[tier->id];
  if (table->claim(tier, &expected, deadline_ns, claim, &hit) != QN__GET_HIT) return NULL;
  qn_executable_t* executable =
      qn__making_load_entry(making, &hit.entry, &making->answers[tier->id]);
  if (executable) qn__making_keep(making, tier, &hit.entry);
  table->release(tier, 0, &hit);
  if (!executable) return NULL;
  qn__count(making->engine, table->claimed, 1);
  making->info.source = table->source;
  return executable;
}

static qn_executable_t* claim(work_t* work) {
  qn__making_t* making = work->making;
  qn_engine_t* engine = making->engine;
  if (!engine->reads_tiers || !engine->writes_tiers) return NULL;
  int64_t start_ns = qn__now_ns();
  int64_t deadline_ns = qn__after(start_ns, engine->lock_timeout_ns);
  qn_executable_t* executable = NULL;
  qn__tier_t* tier;
  bool must_wait = false;
  for (tier = qn__tier_first(engine); tier && !executable; tier = qn__tier_next(tier)) {
    if (!tier->has_claims) continue;
    if (!tier->table->is_remote) executable = claim_in(work, tier, start_ns);
    must_wait |= !work->claims[tier->id].is_held;
  }
  if (must_wait && !executable) {
    bool is_lent = work->is_pooled && qn__pool_lend(&engine->pool);
    for (tier = qn__tier_first(engine); tier && !executable; tier = qn__tier_next(tier)) {
      bool is_open = tier->has_claims && !work->claims[tier->id].is_held;
      if (is_open) executable = claim_in(work, tier, deadline_ns);
    }
    if (is_lent) qn__pool_take_back(&engine->pool);
  }
  (void)qn__watch_end(engine->watch, QN__STAGE_claim, start_ns, making->name);
  return executable;
}

// --------------------------------------------------------------------------------------- after

static void publish(work_t* work, const qn_artifact_t* artifact) {
  qn__making_t* making = work->making;
  qn_engine_t* engine = making->engine;
  if (!engine->writes_tiers || !qn__tier_first(engine)) return;
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
    for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
      if (tier->table->put) tier->table->put(tier, &entry, &work->claims[tier->id]);
    }
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
  qn_engine_t* engine = work->making->engine;
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    qn__claim_t* claim = &work->claims[tier->id];
    if (claim->is_held) tier->table->give_back(tier, work->making->key, claim);
    *claim = (qn__claim_t){0};
  }
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
    memset(making->answers, 0, sizeof making->answers);
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
