// SPDX-License-Identifier: Apache-2.0
// jit/engine/engine.c: creates and destroys an engine; its counters and its configuration.
//
// Thread rule: create and destroy are the owner's.
#include "jit/engine/engine.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/counter.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/struct_size.h"
#include "cache/remote.h"
#include "jit/observe/trace.h"

// How long destroying an engine waits for compiles that run. Longer ones continue without it.
#define COMPILE_GRACE_NS INT64_C(30000000000)
#define CLOSE_GRACE_NS INT64_C(5000000000)

static const qn__counter_row_t counter_table[QN__COUNTER_COUNT] = {
#define QN_COUNTER(name, doc) {#name, doc},
#include "jit/observe/counters.inc"
#undef QN_COUNTER
};

// The pool's threads retain the engine: one that hangs in a compiler may outlive the destroy.
static void retain_engine(void* self) {
  qn__engine_retain(self);
}
static void release_engine(void* self) {
  qn__engine_release(self);
}
static void forget_engine(void* self) {
  qn__engine_forget(self);
}

// Makes the members in their order (engine.h).
static qn_status_t fill_engine(qn_engine_t* engine, const qn_engine_options_t* options) {
  const qn__config_t* config = &engine->config;
  QN_TRY(qn__config_init(&engine->config, options));
  QN_TRY(qn_plugin_load_list(qn__config_get(config, QN__SETTING_plugins)));
  engine->compile_grace_ns = COMPILE_GRACE_NS;
  engine->close_grace_ns = CLOSE_GRACE_NS;
  engine->is_forbidden = qn__config_number(config, QN__SETTING_jit) != 0;
  engine->on_compile = options->on_compile;
  engine->on_compile_self = options->on_compile_self;
  bool has_trace = qn__config_get(config, QN__SETTING_trace)[0] != '\0';
  QN_TRY(qn__watch_create(engine->allocator, has_trace, &engine->watch));
  QN_TRY(
      qn__generators_init(&engine->generators, qn__config_get(config, QN__SETTING_generator_dir)));
  QN_TRY(qn__table_init(&engine->table, qn__config_number(config, QN__SETTING_memory_max_size),
                        qn__config_number(config, QN__SETTING_memory_max_entries),
                        engine->allocator));
  qn__pool_owner_t owner = {engine, retain_engine, release_engine, forget_engine};
  QN_TRY(
      qn__pool_init(&engine->pool, qn__config_number(config, QN__SETTING_compile_threads), owner));
  QN_TRY(qn__in_flight_init(&engine->in_flight, engine));
  QN_TRY(qn__driver_cache_create(engine, &engine->driver_cache));
  QN_TRY(qn__record_open(engine->allocator, qn__config_get(config, QN__SETTING_record),
                         &engine->record));
  QN_TRY(qn__background_init(&engine->background, engine));
  return qn__tiers_open(engine);
}

qn_status_t qn_engine_create(const qn_engine_options_t* options, qn_engine_t** out_engine) {
  QN_REQUIRE(out_engine);
  *out_engine = NULL;
  QN_STRUCT_READ(qn_engine_options_t, options, filled);
  qn__exit_watch_caller();
  qn_allocator_t allocator =
      filled.allocator.reallocate ? filled.allocator : qn_allocator_default();
  qn_engine_t* engine = qn__alloc_zero(allocator, 1, sizeof *engine);
  if (!engine) return qn__out_of_memory("an engine");
  atomic_init(&engine->reference_count, 1);
  atomic_init(&engine->tier_user_count, 1);
  engine->allocator = allocator;
  qn_status_t status = fill_engine(engine, &filled);
  if (!qn_ok(status)) {
    qn_engine_destroy(engine);
    return status;
  }
  *out_engine = engine;
  return QN_OK;
}

void qn__engine_retain(qn_engine_t* engine) {
  atomic_fetch_add_explicit(&engine->reference_count, 1, memory_order_relaxed);
}

void qn__engine_release(qn_engine_t* engine) {
  if (atomic_fetch_sub_explicit(&engine->reference_count, 1, memory_order_acq_rel) != 1) return;
  assert(atomic_load(&engine->tier_user_count) == 0);
  qn__background_deinit(&engine->background);
  qn__driver_cache_release(engine->driver_cache);
  qn__in_flight_deinit(&engine->in_flight);
  qn__pool_deinit(&engine->pool);
  qn__table_deinit(&engine->table);
  qn__generators_deinit(&engine->generators);
  qn__watch_destroy(engine->watch);
  qn__config_deinit(&engine->config);
  qn__free(engine->allocator, engine, sizeof *engine);
}

void qn__engine_forget(qn_engine_t* engine) {
  atomic_fetch_sub_explicit(&engine->reference_count, 1, memory_order_relaxed);
}

void qn__engine_use_tiers(qn_engine_t* engine) {
  atomic_fetch_add_explicit(&engine->tier_user_count, 1, memory_order_relaxed);
}

void qn__engine_forget_tier_user(qn_engine_t* engine) {
  atomic_fetch_sub_explicit(&engine->tier_user_count, 1, memory_order_relaxed);
}

void qn__engine_leave_tiers(qn_engine_t* engine) {
  if (atomic_fetch_sub_explicit(&engine->tier_user_count, 1, memory_order_acq_rel) != 1) return;
  qn__driver_cache_close(engine->driver_cache);
  qn__tiers_close(engine);
  qn__record_close(engine->record);
  engine->record = NULL;
}

void qn_engine_destroy(qn_engine_t* engine) {
  if (!engine) return;
  qn__in_flight_close(&engine->in_flight);
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    if (tier->table->end_claims) tier->table->end_claims(tier);
  }
  bool has_ended = qn__background_stop(&engine->background, engine->compile_grace_ns);
  has_ended &= qn__pool_stop(&engine->pool, engine->compile_grace_ns);
  if (!has_ended) {
    atomic_store(&engine->is_left_behind, true);
    qn__log(QN_LOG_WARN, "a compile thread does not end; it is left behind");
  }
  qn__in_flight_drop_orphans(&engine->in_flight);
  qn__engine_leave_tiers(engine);
  if (engine->watch) {
    const char* trace = qn__config_get(&engine->config, QN__SETTING_trace);
    qn__trace_write(engine->watch, engine->allocator, trace);
  }
  qn__engine_release(engine);
}

bool qn_engine_flush(qn_engine_t* engine, int64_t timeout_ns) {
  if (!engine) return true;
  if (timeout_ns < 0) timeout_ns = INT64_MAX;
  int64_t start_ns = qn__now_ns();
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    int64_t left_ns = timeout_ns > 0 ? timeout_ns - (qn__now_ns() - start_ns) : 0;
    if (left_ns < 0) left_ns = 0;
    if (tier->table->flush && !tier->table->flush(tier, left_ns)) return false;
  }
  return true;
}

void qn_engine_counters(qn_engine_t* engine,
                        void (*on_counter)(void* self, const char* name, uint64_t value,
                                           const char* doc),
                        void* self) {
  if (!engine || !on_counter) return;
  // The table counts its hits itself (table.c).
  const qn__table_stats_t table = qn__table_stats(&engine->table);
  const uint64_t of_table[QN__COUNTER_COUNT] = {
      [QN__COUNTER_lookups] = table.hit_count,
      [QN__COUNTER_memory_hits] = table.hit_count,
      [QN__COUNTER_memory_evicted] = table.evicted_count,
  };
  for (qn__counter_t i = 0; i < QN__COUNTER_COUNT; i++) {
    uint64_t value = atomic_load_explicit(&engine->counters[i], memory_order_relaxed);
    value += of_table[i];
    on_counter(self, counter_table[i].name, value, counter_table[i].doc);
  }
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    qn__counter_set_t set = tier->table->counters(tier, 0);
    for (size_t i = 0; i < set.count; i++) {
      uint64_t sum = 0;
      for (size_t part = 0; part < tier->part_count; part++) {
        sum += atomic_load_explicit(&tier->table->counters(tier, part).values[i],
                                    memory_order_relaxed);
      }
      on_counter(self, set.rows[i].name, sum, set.rows[i].doc);
    }
  }
}

void qn_engine_config(qn_engine_t* engine,
                      void (*on_option)(void* self, const char* name, const char* environment,
                                        const char* value, const char* origin, const char* doc),
                      void* self) {
  if (!engine || !on_option) return;
  // A URL may hold a password, which must not be shown.
  qn__buffer_t remote;
  qn__buffer_init(&remote, engine->config.allocator);
  qn__remote_mask_url(qn__str(qn__config_get(&engine->config, QN__SETTING_remote)), &remote);
  const char* masked = remote.has_failed ? "***" : remote.size ? (const char*)remote.data : "";
#define QN_OPTION(name, environment, type, default_text, doc)          \
  on_option(self, #name, environment,                                  \
            QN__SETTING_##name == QN__SETTING_remote                   \
                ? masked                                               \
                : qn__config_get(&engine->config, QN__SETTING_##name), \
            engine->config.origins[QN__SETTING_##name], doc);
#include "quern/options.inc"
#undef QN_OPTION
  qn__buffer_deinit(&remote);
}

void qn_engine_settings(qn_engine_t* engine,
                        void (*on_setting)(void* self, const qn_setting_t* setting), void* self) {
  if (!engine || !on_setting) return;
  static const char* const names[QN__SETTING_COUNT] = {
#define QN_OPTION(name, environment, type, default_text, doc) #name,
#include "quern/options.inc"
#undef QN_OPTION
  };
  for (qn__setting_t i = 0; i < QN__SETTING_COUNT; i++) {
    qn_setting_t setting = {names[i], qn__config_get(&engine->config, i)};
    if (i == QN__SETTING_cache_dir)
      setting.value = qn__engine_disk(engine) ? qn__disk_root(qn__engine_disk(engine)) : "";
    on_setting(self, &setting);
  }
}

const char* qn_source_text(qn_source_t source) {
  static const char* const texts[] = {
      [QN_SOURCE_COMPILED] = "compiled", [QN_SOURCE_MEMORY] = "memory", [QN_SOURCE_DISK] = "disk",
      [QN_SOURCE_BUNDLE] = "bundle",     [QN_SOURCE_REMOTE] = "remote",
  };
  return (size_t)source < QN_COUNT_OF(texts) && texts[source] ? texts[source] : "unknown";
}
