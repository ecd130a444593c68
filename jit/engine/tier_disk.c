// SPDX-License-Identifier: Apache-2.0
// jit/engine/tier_disk.c: the cache directory as a tier. All work is in cache/disk.h.
#include "jit/engine/engine.h"

static qn__disk_t* disk_of(const qn__tier_t* tier) {
  return tier->self;
}

// Records what the directory's writer thread does, next to the stages of the callers.
static void on_work(void* self, qn__disk_work_t work, int64_t start_ns, const qn_hash128_t* key) {
  char hex[33] = "directory";
  if (key) qn__hash128_hex(*key, hex);
  (void)qn__watch_end(self, work == QN__DISK_WORK_WRITE ? QN__STAGE_write : QN__STAGE_sweep,
                      start_ns, hex);
}

static qn_status_t open(qn__tier_t* tier, const qn__tier_options_t* options) {
  const qn_engine_t* engine = tier->engine;
  const qn__config_t* config = &engine->config;
  const char* root = qn__config_get(config, QN__SETTING_cache_dir);
  if (root[0] == '\0') return QN_OK;
  qn__disk_options_t disk_options = {
      .allocator = engine->allocator,
      .root = root,
      .is_read_only = config->cache_mode == QN_CACHE_RO,
      .must_exist = config->cache_mode == QN_CACHE_RO,
      .max_bytes = qn__config_number(config, QN__SETTING_cache_max_size),
      .max_entries = qn__config_number(config, QN__SETTING_cache_max_entries),
      .min_free_bytes = qn__config_number(config, QN__SETTING_cache_min_free),
      .owners = options->owners,
      .owner_count = options->owner_count,
      .runtime_dir = config->runtime_dir,
      // There 0 means the default, here it means not to wait.
      .lock_timeout_ns = engine->lock_timeout_ns ? engine->lock_timeout_ns : 1,
      .on_work = on_work,
      .on_work_self = engine->watch,
  };
  qn__disk_t* disk = NULL;
  qn_status_t status = qn__disk_open(&disk_options, &disk);
  tier->self = disk;
  tier->part_count = disk != NULL;
  tier->has_claims = true;
  return qn__tier_unusable(tier, QN__COUNTER_directory_unusable, "the cache directory", status);
}

static void close(qn__tier_t* tier, int64_t grace_ns) {
  qn__disk_close(disk_of(tier), grace_ns);
}

static qn__get_result_t get(qn__tier_t* tier, size_t part, const qn__expectation_t* expected,
                            qn__hit_t* out_hit) {
  (void)part;
  return qn__disk_get(disk_of(tier), expected, out_hit);
}

static void release(qn__tier_t* tier, size_t part, qn__hit_t* hit) {
  (void)part;
  qn__disk_hit_release(disk_of(tier), hit);
}

static void put(qn__tier_t* tier, const qn__entry_t* entry, qn__claim_t* claim) {
  (void)qn__disk_put(disk_of(tier), entry, claim->disk);
  *claim = (qn__claim_t){0};
}

static qn__get_result_t claim(qn__tier_t* tier, const qn__expectation_t* expected,
                              int64_t deadline_ns, qn__claim_t* claim, qn__hit_t* out_hit) {
  qn__disk_claim_t* held = NULL;
  qn__get_result_t result = qn__disk_claim(disk_of(tier), expected, deadline_ns, out_hit, &held);
  *claim = (qn__claim_t){.is_held = held != NULL, .disk = held};
  return result;
}

static void give_back(qn__tier_t* tier, qn_hash128_t key, qn__claim_t* claim) {
  (void)tier, (void)key;
  qn__disk_claim_release(claim->disk);
}

static void end_claims(qn__tier_t* tier) {
  qn__disk_end_claims(disk_of(tier));
}

static bool flush(qn__tier_t* tier, int64_t timeout_ns) {
  return qn__disk_flush(disk_of(tier), timeout_ns);
}

static qn__counter_set_t counters(const qn__tier_t* tier, size_t part) {
  (void)part;
  return qn__disk_counters(disk_of(tier));
}

static void gauges(const qn__tier_t* tier, qn__gauge_values_t* values) {
  qn__gauge_set(values, QN__GAUGE_disk_queue_bytes, qn__disk_queue_bytes(disk_of(tier)));
  qn__gauge_set(values, QN__GAUGE_disk_writing_off, qn__disk_is_writing_off(disk_of(tier)));
}

static void describe(const qn__tier_t* tier, size_t part, qn__buffer_t* out) {
  (void)part;
  qn__buffer_format(out, "the directory '%s'", qn__disk_root(disk_of(tier)));
}

static void describe_all(const qn__tier_t* tier, qn__buffer_t* out) {
  qn__buffer_format(out, "'%s'", qn__disk_root(disk_of(tier)));
}

static qn__get_result_t inspect(qn__tier_t* tier, size_t part, qn_hash128_t key,
                                qn__hit_t* out_hit) {
  (void)part;
  return qn__disk_inspect(disk_of(tier), key, false, out_hit, NULL);
}

typedef struct scan_state {
  qn__tier_t* tier;
  const qn__tier_scan_t* scan;
} scan_state_t;

static bool scan_file(void* self, const qn__disk_file_t* file) {
  const scan_state_t* state = self;
  const qn__tier_scan_t* scan = state->scan;
  if (!scan->has_time(scan->self)) return false;
  if (qn__disk_read_head(disk_of(state->tier), file->key, scan->head)) {
    scan->on_entry(scan->self, state->tier, 0);
  }
  return true;
}

// Scans the directory. If listing fails part-way, the entries before the error are still reported.
static void scan(qn__tier_t* tier, const qn__tier_scan_t* scan) {
  scan_state_t state = {tier, scan};
  (void)qn__disk_scan(disk_of(tier), scan_file, &state, NULL);
}

extern const qn__tier_table_t qn__tier_disk;
const qn__tier_table_t qn__tier_disk = {
    .name = "directory",
    .source = QN_SOURCE_DISK,
    .stage = QN__STAGE_directory,
    .hits = QN__COUNTER_directory_hits,
    .rejected = QN__COUNTER_directory_rejected,
    .claimed = QN__COUNTER_claimed_hits,
    .open = open,
    .close = close,
    .get = get,
    .release = release,
    .put = put,
    .claim = claim,
    .give_back = give_back,
    .end_claims = end_claims,
    .flush = flush,
    .counters = counters,
    .gauges = gauges,
    .describe = describe,
    .describe_all = describe_all,
    .inspect = inspect,
    .scan = scan,
};
