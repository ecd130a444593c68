// SPDX-License-Identifier: Apache-2.0
// jit/engine/tier_bundles.c: the bundles as one read-only tier; each file is a part of it. All work
// is in cache/bundle.h.
#include "base/alloc.h"
#include "cache/crypto.h"
#include "jit/engine/engine.h"

#define MAX_KEYS 64u

static qn__bundle_t** files_of(const qn__tier_t* tier) {
  return tier->self;
}

// Reads all keys, or fails: a bundle that must be signed is not opened without them.
static qn_status_t read_keys(const char* files, uint8_t* out, size_t* out_count) {
  *out_count = 0;
  bool is_empty = files[0] == '\0';
  const char* rest = files;
  qn_str_t part;
  while (qn__list_next(&rest, ':', &part)) {
    char path[4096];
    if (!qn__str_copy(part, path, sizeof path)) continue;
    if (*out_count == MAX_KEYS) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "bundle_keys: at most %u files of keys",
                            MAX_KEYS);
    }
    QN_TRY(
        qn__key_read(path, false, out + *out_count * QN__PUBLIC_KEY_BYTES, QN__PUBLIC_KEY_BYTES));
    ++*out_count;
  }
  if (is_empty || *out_count) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "bundle_keys names no file: '%s'", files);
}

static const char* paths_of(const qn__tier_t* tier) {
  return qn__config_get(&tier->engine->config, QN__SETTING_bundles);
}

// Returns the size of the array of files: at most one for each path of the list.
static size_t capacity_of(const qn__tier_t* tier) {
  size_t count = 0;
  const char* paths = paths_of(tier);
  qn_str_t part;
  while (qn__list_next(&paths, ':', &part)) count++;
  return count;
}

static qn_status_t open(qn__tier_t* tier, const qn__tier_options_t* options) {
  qn_engine_t* engine = tier->engine;
  const char* paths = paths_of(tier);
  if (paths[0] == '\0' || !engine->reads_tiers) return QN_OK;
  uint8_t keys[MAX_KEYS * QN__PUBLIC_KEY_BYTES];
  qn__bundle_options_t bundle_options = {
      .allocator = engine->allocator,
      .public_keys = keys,
      .plugin_directory = qn__tier_plugin_directory(tier, "sodium"),
      .owners = options->owners,
      .owner_count = options->owner_count,
  };
  qn_status_t status = read_keys(qn__config_get(&engine->config, QN__SETTING_bundle_keys), keys,
                                 &bundle_options.public_key_count);
  if (!qn_ok(status)) {
    return qn__tier_unusable(tier, QN__COUNTER_bundles_unusable, "every bundle", status);
  }
  tier->self = qn__alloc_zero(engine->allocator, capacity_of(tier), sizeof(qn__bundle_t*));
  if (!tier->self) return qn__out_of_memory("the bundles of an engine");
  qn_str_t part;
  while (qn__list_next(&paths, ':', &part)) {
    char path[4096];
    if (!qn__str_copy(part, path, sizeof path)) continue;
    bundle_options.path = path;
    qn__bundle_t* bundle = NULL;
    status = qn__bundle_open(&bundle_options, &bundle);
    if (qn_ok(status)) files_of(tier)[tier->part_count++] = bundle;
    QN_TRY(qn__tier_unusable(tier, QN__COUNTER_bundles_unusable, "a bundle", status));
  }
  assert(tier->part_count <= capacity_of(tier));
  // Where no generator is installed, the bundles tell which ones made their entries.
  qn__generators_use_bundles(&engine->generators, (const qn__bundle_t* const*)files_of(tier),
                             tier->part_count);
  return QN_OK;
}

static void close(qn__tier_t* tier, int64_t grace_ns) {
  (void)grace_ns;
  qn__generators_use_bundles(&tier->engine->generators, NULL, 0);
  for (size_t i = 0; i < tier->part_count; i++) qn__bundle_close(files_of(tier)[i]);
  qn__free(tier->engine->allocator, tier->self, capacity_of(tier) * sizeof(qn__bundle_t*));
}

static qn__get_result_t get(qn__tier_t* tier, size_t part, const qn__expectation_t* expected,
                            qn__hit_t* out_hit) {
  return qn__bundle_get(files_of(tier)[part], expected, out_hit);
}

static void release(qn__tier_t* tier, size_t part, qn__hit_t* hit) {
  qn__bundle_hit_release(files_of(tier)[part], hit);
}

static qn__counter_set_t counters(const qn__tier_t* tier, size_t part) {
  return qn__bundle_counters(files_of(tier)[part]);
}

static void gauges(const qn__tier_t* tier, qn__gauge_values_t* values) {
  uint64_t count = 0;
  for (size_t i = 0; i < tier->part_count; i++) count += qn__bundle_count(files_of(tier)[i]);
  qn__gauge_set(values, QN__GAUGE_bundle_files, tier->part_count);
  qn__gauge_set(values, QN__GAUGE_bundle_entries, count);
}

static void describe(const qn__tier_t* tier, size_t part, qn__buffer_t* out) {
  qn__buffer_format(out, "the bundle '%s'", qn__bundle_path(files_of(tier)[part]));
}

static void describe_all(const qn__tier_t* tier, qn__buffer_t* out) {
  qn__buffer_format(out, "%zu bundle%s", tier->part_count, tier->part_count == 1 ? "" : "s");
}

static qn__get_result_t inspect(qn__tier_t* tier, size_t part, qn_hash128_t key,
                                qn__hit_t* out_hit) {
  uint64_t index;
  qn__bundle_t* bundle = files_of(tier)[part];
  if (!qn__bundle_find(bundle, key, &index)) return QN__GET_ABSENT;
  return qn__bundle_read(bundle, index, out_hit);
}

static void scan(qn__tier_t* tier, const qn__tier_scan_t* scan) {
  for (size_t part = 0; part < tier->part_count; part++) {
    const qn__bundle_t* bundle = files_of(tier)[part];
    for (uint64_t i = 0; i < qn__bundle_count(bundle); i++) {
      if (!scan->has_time(scan->self)) return;
      if (qn__bundle_read_head(bundle, i, scan->head)) scan->on_entry(scan->self, tier, part);
    }
  }
}

extern const qn__tier_table_t qn__tier_bundles;
const qn__tier_table_t qn__tier_bundles = {
    .name = "bundles",
    .source = QN_SOURCE_BUNDLE,
    .stage = QN__STAGE_bundle,
    .hits = QN__COUNTER_bundle_answers,
    .rejected = QN__COUNTER_bundle_rejected,
    .open = open,
    .close = close,
    .get = get,
    .release = release,
    .counters = counters,
    .gauges = gauges,
    .describe = describe,
    .describe_all = describe_all,
    .inspect = inspect,
    .scan = scan,
};
