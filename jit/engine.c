// jit/engine.c: making and ending an engine, its counters and its configuration.
//
// Thread rule: create and destroy are the owner's; the rest is for any thread. Read next: lookup.c.
#include "jit/engine.h"

#include "base/alloc.h"
#include "base/log.h"
#include "cache/remote.h"

// How long destroying an engine waits for its publishes.
#define CLOSE_GRACE_NS 5000000000

static const struct {
  const char* name;
  const char* doc;
} counter_table[QN__COUNTER_COUNT] = {
#define QN_COUNTER(name, doc) {#name, doc},
#include "jit/counters.inc"
#undef QN_COUNTER
};

static void install_log(const qn_engine_options_t* options) {
  if (!options->on_log) return;
  int level = options->log_level ? options->log_level : QN__LOG_WARN;
  if (level < QN__LOG_ERROR) level = QN__LOG_ERROR;
  if (level > QN__LOG_DEBUG) level = QN__LOG_DEBUG;
  // The levels of the two interfaces are the same numbers.
  qn__log_install((qn__log_level_t)level, (qn__log_sink_t)options->on_log, options->on_log_self);
}

// The work of the directory's writer, beside that of the callers.
static void watch_writer(void* self, qn__disk_work_t work, int64_t start_ns,
                         const qn_hash128_t* key) {
  char hex[33] = "directory";
  if (key) qn__hash128_hex(*key, hex);
  (void)qn__watch_end(self, work == QN__DISK_WORK_WRITE ? QN__STAGE_write : QN__STAGE_sweep,
                      start_ns, hex);
}

// A directory that cannot be used is logged and counted; the engine works from memory.
static qn_status_t open_directory(qn_engine_t* engine) {
  const char* root = qn__config_get(&engine->config, QN__SETTING_cache_dir);
  qn_cache_mode_t mode = engine->config.cache_mode;
  if (mode == QN_CACHE_OFF || root[0] == '\0') return QN_OK;
  qn__disk_options_t options = {
      .allocator = engine->allocator,
      .root = root,
      .is_read_only = mode == QN_CACHE_RO,
      .must_exist = mode == QN_CACHE_RO,
      .max_bytes = qn__config_number(&engine->config, QN__SETTING_cache_max_size),
      .max_entries = qn__config_number(&engine->config, QN__SETTING_cache_max_entries),
      .min_free_bytes = qn__config_number(&engine->config, QN__SETTING_cache_min_free),
      .on_work = watch_writer,
      .on_work_self = engine->watch,
  };
  qn_status_t status = qn__disk_open(&options, &engine->disk);
  if (qn_ok(status)) return QN_OK;
  if (qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) return status;
  qn__count(engine, QN__COUNTER_directory_unusable, 1);
  qn__log(QN__LOG_WARN, "the cache directory is not used: %s", qn_status_message(status));
  qn_status_free(status);
  return QN_OK;
}

static qn_status_t fill_engine(qn_engine_t* engine, const qn_engine_options_t* options) {
  QN_TRY(qn__config_init(&engine->config, options));
  bool has_trace = qn__config_get(&engine->config, QN__SETTING_trace)[0] != '\0';
  QN_TRY(qn__watch_create(engine->allocator, has_trace, &engine->watch));
  QN_TRY(qn__table_init(
      &engine->table, qn__config_number(&engine->config, QN__SETTING_memory_max_size),
      qn__config_number(&engine->config, QN__SETTING_memory_max_entries), engine->allocator));
  QN_TRY(qn__flights_init(&engine->flights, &engine->table));
  QN_TRY(qn__generators_init(&engine->generators,
                             qn__config_get(&engine->config, QN__SETTING_generator_dir)));
  return open_directory(engine);
}

qn_status_t qn_engine_create(const qn_engine_options_t* options, qn_engine_t** out_engine) {
  *out_engine = NULL;
  static const qn_engine_options_t defaults = {.struct_size = sizeof(qn_engine_options_t)};
  if (!options) options = &defaults;
  if (options->struct_size != sizeof *options) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "qn_engine_options_t: struct_size is %zu, expected %zu",
                          options->struct_size, sizeof *options);
  }
  install_log(options);
  qn_allocator_t allocator =
      options->allocator.reallocate ? options->allocator : qn_allocator_default();
  qn_engine_t* engine = qn__alloc_zero(allocator, 1, sizeof *engine);
  if (!engine) return qn__out_of_memory("an engine");
  engine->allocator = allocator;
  qn_status_t status = fill_engine(engine, options);
  if (!qn_ok(status)) {
    qn_engine_destroy(engine);
    return status;
  }
  *out_engine = engine;
  return QN_OK;
}

void qn_engine_destroy(qn_engine_t* engine) {
  if (!engine) return;
  qn__disk_close(engine->disk, CLOSE_GRACE_NS);
  if (engine->watch) qn__engine_write_trace(engine);
  qn__watch_destroy(engine->watch);
  qn__flights_deinit(&engine->flights);
  qn__table_deinit(&engine->table);
  qn__generators_deinit(&engine->generators);
  qn__config_deinit(&engine->config);
  qn__free(engine->allocator, engine, sizeof *engine);
}

bool qn_engine_flush(qn_engine_t* engine, int64_t timeout_ns) {
  return !engine->disk || qn__disk_flush(engine->disk, timeout_ns);
}

void qn_engine_counters(qn_engine_t* engine,
                        void (*on_counter)(void* self, const char* name, uint64_t value,
                                           const char* doc),
                        void* self) {
  // The table counts for itself (table.c); the other counters are of what is behind it.
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
  if (engine->disk) qn__disk_counters(engine->disk, on_counter, self);
}

void qn_engine_config(qn_engine_t* engine,
                      void (*on_option)(void* self, const char* name, const char* environment,
                                        const char* value, const char* origin, const char* doc),
                      void* self) {
  // A URL may hold a password, which is for nobody's eyes.
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

const char* qn_source_text(qn_source_t source) {
  switch (source) {
    case QN_SOURCE_COMPILED:
      return "compiled";
    case QN_SOURCE_MEMORY:
      return "memory";
    case QN_SOURCE_DISK:
      return "disk";
    case QN_SOURCE_BUNDLE:
      return "bundle";
    case QN_SOURCE_REMOTE:
      return "remote";
  }
  return "unknown";
}
