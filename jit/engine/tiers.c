// SPDX-License-Identifier: Apache-2.0
// jit/engine/tiers.c: opens and closes the tiers, as the configuration says; writes all of them.
//
// Thread rule: opening and closing are the engine's.
#include <pwd.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/plugin.h"
#include "jit/codegen/artifact.h"
#include "jit/engine/engine.h"

#define MAX_OWNERS 64u

#define X(name) extern const qn__tier_table_t qn__tier_##name;
QN__TIERS(X)
#undef X

static const qn__tier_table_t* const tables[QN__TIER_COUNT] = {
#define X(name) &qn__tier_##name,
    QN__TIERS(X)
#undef X
};

static qn__tier_t* first_open_from(qn_engine_t* engine, size_t id) {
  while (id < QN__TIER_COUNT && engine->tiers[id].part_count == 0) id++;
  return id < QN__TIER_COUNT ? &engine->tiers[id] : NULL;
}

qn__tier_t* qn__tier_first(qn_engine_t* engine) {
  return first_open_from(engine, 0);
}

qn__tier_t* qn__tier_next(const qn__tier_t* tier) {
  return first_open_from(tier->engine, (size_t)tier->id + 1);
}

qn_status_t qn__tiers_put(qn_engine_t* engine, qn_hash128_t key, qn_span_t preimage,
                          const qn_module_t* module, const qn_artifact_t* artifact,
                          int64_t compile_ns, qn__claim_t claims[QN__TIER_COUNT]) {
  qn__buffer_t metadata;
  qn__buffer_init(&metadata, engine->allocator);
  qn__artifact_encode(artifact, &metadata);
  qn_status_t status = qn__buffer_status(&metadata, "an entry");
  bool has_room = module->byte_count <= QN__ENTRY_MAX_MODULE_BYTES;
  qn__entry_t entry = {
      .key = key,
      .created_ns = qn__wall_ns(),
      .compile_ns = compile_ns,
      .preimage = preimage,
      .metadata = qn__buffer_as_span(&metadata),
      .module = {module->bytes, has_room ? module->byte_count : 0},
      .payload = {artifact->payload, artifact->payload_size},
  };
  qn__tier_t* tier = qn_ok(status) ? qn__tier_first(engine) : NULL;
  for (; tier; tier = qn__tier_next(tier)) {
    if (tier->table->put) tier->table->put(tier, &entry, &claims[tier->id]);
  }
  qn__buffer_deinit(&metadata);
  return status;
}

// ------------------------------------------------------------------------------------ for tiers

qn_status_t qn__tier_unusable(const qn__tier_t* tier, qn__counter_t counter, const char* what,
                              qn_status_t status) {
  if (qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) return status;
  qn__count(tier->engine, counter, 1);
  qn__log(QN_LOG_WARN, "%s is not used: %s", what, qn_status_message(status));
  qn_status_free(status);
  return QN_OK;
}

const char* qn__tier_plugin_directory(const qn__tier_t* tier, const char* plugin) {
  char path[PATH_MAX];
  const char* directory = qn__config_get(&tier->engine->config, QN__SETTING_generator_dir);
  return directory[0] && qn__plugin_find(directory, plugin, path) ? directory : "";
}

// ---------------------------------------------------------------------------------------- owners

static bool find_user(const char* name, uid_t* out_user) {
  char* end;
  unsigned long number = strtoul(name, &end, 10);
  if (name[0] >= '0' && name[0] <= '9' && *end == '\0' && number < (uid_t)-1) {
    *out_user = (uid_t)number;
    return true;
  }
  struct passwd entry;
  struct passwd* found = NULL;
  char strings[4096];
  if (getpwnam_r(name, &entry, strings, sizeof strings, &found) != 0 || !found) return false;
  *out_user = found->pw_uid;
  return true;
}

// "root, 1000, builder". A user that this machine does not know owns nothing on it.
static size_t parse_owners(const char* text, uid_t out[MAX_OWNERS]) {
  size_t count = 0;
  qn_str_t part;
  while (count < MAX_OWNERS && qn__list_next(&text, ',', &part)) {
    char name[256];
    for (; part.size && part.data[0] == ' '; part.size--) part.data++;
    while (part.size && part.data[part.size - 1] == ' ') part.size--;
    if (part.size == 0 || !qn__str_copy(part, name, sizeof name)) continue;
    if (find_user(name, &out[count])) {
      count++;
    } else {
      qn__log(QN_LOG_WARN, "cache_owners: there is no user '%s'", name);
    }
  }
  return count;
}

// --------------------------------------------------------------------------------- open and close

qn_status_t qn__tiers_open(qn_engine_t* engine) {
  const qn__config_t* config = &engine->config;
  engine->lock_timeout_ns = (int64_t)qn__config_number(config, QN__SETTING_lock_timeout);
  qn_cache_mode_t mode = config->cache_mode;
  engine->reads_tiers = mode == QN_CACHE_RO || mode == QN_CACHE_RW;
  engine->writes_tiers = mode == QN_CACHE_RW || mode == QN_CACHE_REFRESH;
  if (mode == QN_CACHE_OFF) return QN_OK;
  uid_t owners[MAX_OWNERS];
  qn__tier_options_t options = {.owners = owners};
  options.owner_count = parse_owners(qn__config_get(config, QN__SETTING_cache_owners), owners);
  for (size_t id = 0; id < QN__TIER_COUNT; id++) {
    qn__tier_t* tier = &engine->tiers[id];
    *tier = (qn__tier_t){.table = tables[id], .id = (qn__tier_id_t)id, .engine = engine};
    QN_TRY(tier->table->open(tier, &options));
    assert(tier->part_count == 0 || tier->self);
  }
  return QN_OK;
}

void qn__tiers_close(qn_engine_t* engine) {
  for (size_t id = QN__TIER_COUNT; id-- > 0;) {
    qn__tier_t* tier = &engine->tiers[id];
    if (!tier->self) continue;
    tier->table->close(tier, engine->close_grace_ns);
    tier->self = NULL;
    tier->part_count = 0;
  }
}
