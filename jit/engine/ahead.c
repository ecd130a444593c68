// jit/engine/ahead.c: qn_engine_compile: puts an entry into the cache directory without loading its
// code.
//
// Requirements:
//  1. The target may be of another machine: nothing is loaded, and no device is asked.
//  2. Success means that the entry can be read: a publish is waited for and looked at.
//  3. A key that a local tier has opens no compiler.
// Read next: lookup_task.c, where a lookup that also loads does the same.
#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "jit/codegen/artifact.h"
#include "jit/engine/engine.h"
#include "quern/cache.h"
#include "target/target.h"

// How long a publish may take: a file system that takes longer does not serve a cache.
#define FLUSH_TIMEOUT_NS INT64_C(60000000000)

typedef struct qn__ahead {
  qn_engine_t* engine;
  qn__request_t request;
  uint32_t generator;
  char identity[256];
  qn__buffer_t preimage;
  qn_hash128_t key;
  char name[128];
  qn_lookup_info_t info;
} qn__ahead_t;

// Makes the key for the identity that is set.
static qn_status_t make_key(qn__ahead_t* ahead) {
  const char* name_space = qn__config_get(&ahead->engine->config, QN__SETTING_cache_namespace);
  qn__buffer_clear(&ahead->preimage);
  QN_TRY(qn__key_make(&ahead->request, ahead->identity, name_space, &ahead->preimage, &ahead->key));
  qn__key_describe(&ahead->request, ahead->key, ahead->info.key.hex, ahead->name);
  return QN_OK;
}

// Asks the directory and the bundles.
static bool is_cached(qn__ahead_t* ahead) {
  qn__expectation_t expected = {ahead->key, qn__buffer_as_span(&ahead->preimage)};
  return qn__tiers_have(ahead->engine, &expected, &ahead->info.source);
}

// Claims the key. True when another process has put the entry meanwhile.
static bool claim(qn__ahead_t* ahead, qn__claim_t* out_claim) {
  *out_claim = (qn__claim_t){0};
  qn__tier_t* tier = &ahead->engine->tiers[QN__TIER_disk];
  if (!ahead->engine->reads_tiers || !tier->has_claims) return false;
  qn__expectation_t expected = {ahead->key, qn__buffer_as_span(&ahead->preimage)};
  int64_t deadline_ns = qn__after(qn__now_ns(), ahead->engine->lock_timeout_ns);
  qn__hit_t hit;
  if (tier->table->claim(tier, &expected, deadline_ns, out_claim, &hit) != QN__GET_HIT) {
    return false;
  }
  tier->table->release(tier, 0, &hit);
  ahead->info.source = tier->table->source;
  return true;
}

// Waits for what was put and looks whether the entry is there. The remote tier is not waited for.
static qn_status_t confirm(const qn__ahead_t* ahead) {
  qn__disk_t* disk = qn__engine_disk(ahead->engine);
  if (!qn__disk_flush(disk, FLUSH_TIMEOUT_NS)) {
    return qn_status_make(QN_STATUS_DEADLINE_EXCEEDED,
                          "the entry was not written within a minute; the file system of '%s' is "
                          "too slow",
                          qn__disk_root(disk));
  }
  qn__hit_t hit;
  if (qn__disk_inspect(disk, ahead->key, false, &hit, NULL) != QN__GET_HIT) {
    return qn_status_make(QN_STATUS_IO,
                          "the entry could not be written to '%s', or was swept at once; "
                          "'quern cache stats' shows its bounds",
                          qn__disk_root(disk));
  }
  qn__disk_hit_release(disk, &hit);
  return QN_OK;
}

// Runs the generator and hands the entry to the tiers that are written. The claim ends with it.
static qn_status_t generate(qn__ahead_t* ahead, const qn_codegen_t* codegen, void* self,
                            qn__claim_t* claim) {
  qn_engine_t* engine = ahead->engine;
  qn_compile_request_t request = qn__compile_request(&ahead->request);
  int64_t start_ns = qn__now_ns();
  qn_artifact_t* artifact = NULL;
  qn_status_t status = codegen->compile(self, &request, &artifact);
  ahead->info.source = QN_SOURCE_COMPILED;
  ahead->info.compile_ns = qn__watch_end(engine->watch, QN__STAGE_compile, start_ns, ahead->name);
  qn__count(engine, QN__COUNTER_compile_ns, (uint64_t)ahead->info.compile_ns);
  if (qn_ok(status)) status = qn__artifact_check(artifact);
  if (qn_ok(status)) {
    qn__claim_t claims[QN__TIER_COUNT] = {[QN__TIER_disk] = *claim};
    status = qn__tiers_put(engine, ahead->key, qn__buffer_as_span(&ahead->preimage),
                           ahead->request.module, artifact, ahead->info.compile_ns, claims);
    *claim = claims[QN__TIER_disk];
  }
  qn__count(engine, qn_ok(status) ? QN__COUNTER_compiles : QN__COUNTER_compiles_failed, 1);
  if (artifact && artifact->release) artifact->release(artifact);
  return status;
}

static qn_status_t open_and_generate(qn__ahead_t* ahead) {
  const qn_codegen_t* codegen;
  void* self;
  char identity[256];
  QN_TRY(
      qn__generators_open(&ahead->engine->generators, ahead->generator, &codegen, &self, identity));
  if (strcmp(identity, ahead->identity) != 0) {
    // The prediction was wrong: the key of the true identity counts.
    memcpy(ahead->identity, identity, sizeof ahead->identity);
    QN_TRY(make_key(ahead));
    if (is_cached(ahead)) return QN_OK;
  }
  qn__claim_t held;
  if (claim(ahead, &held)) return QN_OK;
  qn_status_t status = generate(ahead, codegen, self, &held);
  qn__tier_t* tier = &ahead->engine->tiers[QN__TIER_disk];
  if (held.is_held) tier->table->give_back(tier, ahead->key, &held);
  return qn_ok(status) ? confirm(ahead) : status;
}

static qn_status_t check_directory(const qn_engine_t* engine) {
  if (!qn__engine_disk(engine)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "compiling ahead needs a cache directory: the engine has none, or it "
                          "could not be used; set QUERN_CACHE_DIR, and QUERN_CACHE to rw");
  }
  if (!engine->writes_tiers) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "compiling ahead writes the cache directory, and the engine may only "
                          "read '%s'; set QUERN_CACHE to rw",
                          qn__disk_root(qn__engine_disk(engine)));
  }
  return QN_OK;
}

static qn_status_t run(qn__ahead_t* ahead) {
  qn_engine_t* engine = ahead->engine;
  QN_TRY(qn__generators_find(&engine->generators, ahead->request.target->kind->info->codegen,
                             &ahead->generator, ahead->identity));
  QN_TRY(make_key(ahead));
  if (is_cached(ahead)) return QN_OK;
  if (ahead->request.is_forbidden) {
    return qn_status_make(QN_STATUS_COMPILE_FORBIDDEN,
                          "'%s' is not cached, and compiling is forbidden (key %s)", ahead->name,
                          ahead->info.key.hex);
  }
  QN_TRY(check_directory(engine));
  // A lookup of this engine may have handed the entry to the writer just now.
  (void)qn__disk_flush(qn__engine_disk(engine), FLUSH_TIMEOUT_NS);
  if (is_cached(ahead)) return QN_OK;
  bool is_first = qn__generators_begin_work(&engine->generators, ahead->generator);
  qn_status_t status = open_and_generate(ahead);
  qn__generators_end_work(&engine->generators, ahead->generator, is_first);
  return status;
}

qn_status_t qn_engine_compile(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                              const qn_lookup_options_t* options, qn_lookup_info_t* out_info) {
  QN_STRUCT_CLEAR(qn_lookup_info_t, out_info);
  QN_REQUIRE(engine, module, target);
  qn__ahead_t ahead = {.engine = engine};
  QN_TRY(qn__request_init(engine, module, target, options, &ahead.request));
  int64_t start_ns = qn__now_ns();
  ahead.info.tier = ahead.request.tier;
  qn__buffer_init(&ahead.preimage, engine->allocator);
  qn_status_t status = run(&ahead);
  qn__buffer_deinit(&ahead.preimage);
  ahead.info.lookup_ns = qn__now_ns() - start_ns;
  QN_STRUCT_WRITE(out_info, ahead.info);
  return status;
}
