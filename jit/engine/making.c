// jit/engine/making.c: one key, from its inputs to what the tiers have of it.
//
// Requirements:
//  1. A hit opens no generator: its identity for the key comes from generator.c's prediction, or,
//     where none is installed, from the bundles.
//  2. Whatever a tier says is checked by the entry's decoder, the artifact's decoder and the
//     device's load; any no is a miss, and is remembered as the reason of the compile.
//  3. The tiers are asked in the order of what they cost, and none after a hit.
// Thread rule: in the header. Read next: compile.c.
#include "jit/engine/making.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "jit/codegen/artifact.h"
#include "target/target.h"

void qn__making_init(qn__making_t* making, qn_engine_t* engine, const qn__request_t* request) {
  memset(making, 0, sizeof *making);
  making->engine = engine;
  making->request = *request;
  making->info.source = QN_SOURCE_COMPILED;
  making->info.tier = request->tier;
  qn__buffer_init(&making->preimage, engine->allocator);
}

void qn__making_deinit(qn__making_t* making) {
  qn__buffer_deinit(&making->preimage);
}

// The key for the identity that is set.
static qn_status_t make_key(qn__making_t* making) {
  const qn__request_t* request = &making->request;
  qn__buffer_clear(&making->preimage);
  QN_TRY(qn__key_make(request, making->identity,
                      qn__config_get(&making->engine->config, QN__SETTING_cache_namespace),
                      &making->preimage, &making->key));
  qn__key_describe(request, making->key, making->info.key.hex, making->name);
  return QN_OK;
}

qn_status_t qn__making_key(qn__making_t* making) {
  qn_engine_t* engine = making->engine;
  const qn__request_t* request = &making->request;
  if (making->has_key) return QN_OK;
  if (making->identity[0] == '\0') {
    QN_TRY(qn__generators_find(&engine->generators, request->target->kind->info->codegen,
                               &making->generator, making->identity));
  }
  QN_TRY(make_key(making));
  making->has_key = true;
  qn_compile_request_t compile = qn__compile_request(request);
  qn__record_note(engine->record, making->key, &compile, making->name);
  return QN_OK;
}

// ---------------------------------------------------------------------------------------- load

qn_status_t qn__making_load(qn__making_t* making, const qn_artifact_t* artifact,
                            qn_executable_t** out_executable) {
  qn_engine_t* engine = making->engine;
  qn_load_options_t options = {
      .struct_size = sizeof options,
      .name = making->name,
      .has_perf_map = qn__config_number(&engine->config, QN__SETTING_perf) != 0,
      .has_gdb = qn__config_number(&engine->config, QN__SETTING_gdb) != 0,
  };
  // The CPU has no driver.
  if (making->request.device.type != QN_DEVICE_CPU) {
    qn__driver_store_make(engine, qn__buffer_as_span(&making->preimage), &options.store);
  }
  qn_status_t status =
      qn__executable_load(artifact, making->request.device, making->request.module, making->key,
                          &options, engine->allocator, out_executable);
  qn__driver_store_release(&options.store);
  return status;
}

qn_executable_t* qn__making_load_entry(qn__making_t* making, const qn__entry_t* entry,
                                       qn__answer_t* answer) {
  qn_engine_t* engine = making->engine;
  int64_t start_ns = qn__now_ns();
  qn__arena_t arena;
  qn__arena_init(&arena, engine->allocator);
  qn_artifact_t artifact;
  qn_executable_t* executable = NULL;
  qn_status_t status = qn__artifact_decode(entry->metadata, entry->payload, &arena, &artifact);
  if (qn_ok(status)) status = qn__making_load(making, &artifact, &executable);
  qn__arena_deinit(&arena);
  making->info.load_ns = qn__watch_end(engine->watch, QN__STAGE_load, start_ns, making->name);
  if (qn_ok(status)) return executable;
  qn__log(QN__LOG_INFO, "entry %s is not used: %s", making->info.key.hex,
          qn_status_message(status));
  qn_status_free(status);
  answer->was_rejected = true;
  return NULL;
}

// --------------------------------------------------------------------------------------- tiers

static void note_answer(qn__answer_t* answer, qn__get_result_t result, const qn__hit_t* hit) {
  // Of several bundles, the one that had something to say counts.
  if (answer->was_asked && answer->result != QN__GET_ABSENT) return;
  answer->was_asked = true;
  answer->result = result;
  if (result == QN__GET_BAD) answer->reason = hit->reason;
  if (result == QN__GET_ERROR) answer->error = hit->error;
}

// Gets the entry from the first part that has it, from *inout_part on.
static bool get(qn__making_t* making, qn__tier_t* tier, size_t* inout_part, qn__hit_t* out_hit) {
  qn__expectation_t expected = {making->key, qn__buffer_as_span(&making->preimage)};
  int64_t start_ns = qn__now_ns();
  qn__get_result_t result = QN__GET_ABSENT;
  for (; *inout_part < tier->part_count; ++*inout_part) {
    result = tier->table->get(tier, *inout_part, &expected, out_hit);
    note_answer(&making->answers[tier->id], result, out_hit);
    if (result == QN__GET_HIT) break;
  }
  (void)qn__watch_end(making->engine->watch, tier->table->stage, start_ns, making->name);
  return result == QN__GET_HIT;
}

// Asks a tier. An entry that is not accepted does not end the search.
static qn_executable_t* ask(qn__making_t* making, qn__tier_t* tier) {
  const qn__tier_table_t* table = tier->table;
  qn_executable_t* executable = NULL;
  qn__hit_t hit;
  size_t part = 0;
  do {
    if (!get(making, tier, &part, &hit)) return NULL;
    executable = qn__making_load_entry(making, &hit.entry, &making->answers[tier->id]);
    if (executable) qn__making_keep(making, tier, &hit.entry);
    table->release(tier, part, &hit);
    qn__count(making->engine, executable ? table->hits : table->rejected, 1);
  } while (!executable && ++part < tier->part_count);
  if (executable) making->info.source = table->source;
  return executable;
}

void qn__making_keep(const qn__making_t* making, const qn__tier_t* tier, const qn__entry_t* entry) {
  qn_engine_t* engine = making->engine;
  if (!tier->table->is_remote || !engine->writes_tiers) return;
  for (qn__tier_t* local = qn__tier_first(engine); local != tier; local = qn__tier_next(local)) {
    qn__claim_t none = {0};
    if (local->table->put) local->table->put(local, entry, &none);
  }
}

static qn_executable_t* ask_all(qn__making_t* making, bool are_remote) {
  qn_engine_t* engine = making->engine;
  qn_executable_t* executable = NULL;
  for (qn__tier_t* tier = qn__tier_first(engine); tier && !executable; tier = qn__tier_next(tier)) {
    if (tier->table->is_remote == are_remote) executable = ask(making, tier);
  }
  return executable;
}

// Where no compiler is installed, bundles may have been made by several: each has keys of its own.
static qn_executable_t* ask_for_others(qn__making_t* making) {
  qn__generators_t* generators = &making->engine->generators;
  char identity[256];
  qn_executable_t* executable = NULL;
  uint32_t n = 1;
  for (; !executable && qn__generators_alternative(generators, making->generator, n, identity);
       n++) {
    memcpy(making->identity, identity, sizeof making->identity);
    if (qn_status_consume(make_key(making)) != QN_STATUS_OK) break;
    executable = ask_all(making, false);
  }
  if (executable || n == 1) return executable;
  // Nobody's: it is the first one's key again.
  (void)qn__generators_alternative(generators, making->generator, 0, making->identity);
  making->has_key = qn_status_consume(make_key(making)) == QN_STATUS_OK;
  return NULL;
}

qn_executable_t* qn__making_ask_local(qn__making_t* making) {
  if (!making->engine->reads_tiers) return NULL;
  qn_executable_t* executable = ask_all(making, false);
  return executable ? executable : ask_for_others(making);
}

qn_executable_t* qn__making_ask_remote(qn__making_t* making) {
  return making->engine->reads_tiers ? ask_all(making, true) : NULL;
}

// ------------------------------------------------------------------------------------- reasons

static void add_answer(const char* tier, const qn__answer_t* answer, char out[512]) {
  if (!answer->was_asked) return;
  const char* text = "no entry";
  char error[64];
  if (answer->was_rejected) {
    text = "an entry that was not accepted";
  } else if (answer->result == QN__GET_BAD) {
    text = qn__reason_text(answer->reason);
  } else if (answer->result == QN__GET_ERROR) {
    (void)snprintf(error, sizeof error, "cannot be read, error %d of the operating system",
                   answer->error);
    text = error;
  } else if (answer->result == QN__GET_UNTRUSTED) {
    text = "an entry that is not trusted";
  } else if (answer->result == QN__GET_NO_MEMORY) {
    text = "no memory to read it";
  } else if (answer->result == QN__GET_TIMEOUT) {
    text = "no answer in time";
  } else if (answer->result == QN__GET_OFF) {
    text = "switched off for a while";
  }
  size_t size = strlen(out);
  (void)snprintf(out + size, 512 - size, "%s%s: %s", size ? "; " : "", tier, text);
}

static qn_miss_reason_t class_of(const qn__answer_t* answer) {
  if (!answer->was_asked) return QN_MISSED_NO_CACHE;
  if (answer->was_rejected) return QN_MISSED_REJECTED;
  switch (answer->result) {
    case QN__GET_HIT:
    case QN__GET_ABSENT:
      return QN_MISSED_ABSENT;
    case QN__GET_BAD:
    case QN__GET_UNTRUSTED:
      return QN_MISSED_DAMAGED;
    case QN__GET_ERROR:
    case QN__GET_NO_MEMORY:
    case QN__GET_TIMEOUT:
    case QN__GET_OFF:
      return QN_MISSED_UNREADABLE;
  }
  return QN_MISSED_ABSENT;
}

qn_miss_reason_t qn__making_reason(const qn__making_t* making, char out[512]) {
  const qn_engine_t* engine = making->engine;
  out[0] = '\0';
  if (engine->config.cache_mode == QN_CACHE_REFRESH) {
    (void)snprintf(out, 512, "the cache mode is refresh");
    return QN_MISSED_REFRESH;
  }
  // The most telling answer: an entry that was there says more than one that was not.
  static const qn_miss_reason_t order[] = {QN_MISSED_REJECTED, QN_MISSED_DAMAGED,
                                           QN_MISSED_UNREADABLE, QN_MISSED_ABSENT};
  qn_miss_reason_t reason = QN_MISSED_NO_CACHE;
  for (size_t i = QN_COUNT_OF(order); i-- > 0;) {
    for (size_t k = 0; k < QN__TIER_COUNT; k++) {
      if (class_of(&making->answers[k]) == order[i]) reason = order[i];
    }
  }
  for (size_t k = 0; k < QN__TIER_COUNT; k++) {
    const qn__tier_table_t* table = engine->tiers[k].table;
    if (table) add_answer(table->name, &making->answers[k], out);
  }
  if (reason == QN_MISSED_NO_CACHE) {
    (void)snprintf(out, 512, "there is neither a directory nor a bundle nor a remote tier");
  }
  return reason;
}
