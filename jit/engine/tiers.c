// jit/engine/tiers.c: opening and closing what lies behind the memory table, as the configuration
// says.
//
// What cannot be used is logged and counted, and the engine works with the rest: a service must
// not fail to start for want of a cache. Thread rule: the owner of the engine. Read next: making.c.
#include <pwd.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/plugin.h"
#include "cache/crypto.h"
#include "jit/engine/engine.h"

#define MAX_OWNERS 64u
#define MAX_KEYS 64u

// Only running out of memory stops the making of an engine.
static qn_status_t unusable(qn_engine_t* engine, qn__counter_t counter, const char* what,
                            qn_status_t status) {
  if (qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) return status;
  qn__count(engine, counter, 1);
  qn__log(QN__LOG_WARN, "%s is not used: %s", what, qn_status_message(status));
  qn_status_free(status);
  return QN_OK;
}

// The next part of a list, and what follows it.
static qn_str_t next_part(const char** inout_text, char separator) {
  const char* start = *inout_text;
  size_t size = 0;
  while (start[size] && start[size] != separator) size++;
  *inout_text = start + size + (start[size] ? 1 : 0);
  return (qn_str_t){start, size};
}

// A copy of the part with its end, or false when it is too long or empty.
static bool copy_part(qn_str_t part, char* out, size_t capacity) {
  if (part.size == 0 || part.size >= capacity) return false;
  memcpy(out, part.data, part.size);
  out[part.size] = '\0';
  return true;
}

// ---------------------------------------------------------------------------------- directory

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

// "root, 1000, builder". Who is not known here owns nothing here.
static size_t parse_owners(const char* text, uid_t out[MAX_OWNERS]) {
  size_t count = 0;
  while (*text && count < MAX_OWNERS) {
    char name[256];
    qn_str_t part = next_part(&text, ',');
    while (part.size && part.data[0] == ' ') part = (qn_str_t){part.data + 1, part.size - 1};
    while (part.size && part.data[part.size - 1] == ' ') part.size--;
    if (!copy_part(part, name, sizeof name)) continue;
    if (find_user(name, &out[count])) {
      count++;
    } else {
      qn__log(QN__LOG_WARN, "cache_owners: there is no user '%s'", name);
    }
  }
  return count;
}

// The work of the directory's writer, beside that of the callers.
static void watch_writer(void* self, qn__disk_work_t work, int64_t start_ns,
                         const qn_hash128_t* key) {
  char hex[33] = "directory";
  if (key) qn__hash128_hex(*key, hex);
  (void)qn__watch_end(self, work == QN__DISK_WORK_WRITE ? QN__STAGE_write : QN__STAGE_sweep,
                      start_ns, hex);
}

static qn_status_t open_directory(qn_engine_t* engine, const uid_t* owners, size_t owner_count) {
  const qn__config_t* config = &engine->config;
  const char* root = qn__config_get(config, QN__SETTING_cache_dir);
  if (root[0] == '\0') return QN_OK;
  qn__disk_options_t options = {
      .allocator = engine->allocator,
      .root = root,
      .is_read_only = config->cache_mode == QN_CACHE_RO,
      .must_exist = config->cache_mode == QN_CACHE_RO,
      .max_bytes = qn__config_number(config, QN__SETTING_cache_max_size),
      .max_entries = qn__config_number(config, QN__SETTING_cache_max_entries),
      .min_free_bytes = qn__config_number(config, QN__SETTING_cache_min_free),
      .owners = owners,
      .owner_count = owner_count,
      .runtime_dir = config->runtime_dir,
      // 0 there is the default, here it is not to wait.
      .lock_timeout_ns = engine->lock_timeout_ns ? engine->lock_timeout_ns : 1,
      .on_work = watch_writer,
      .on_work_self = engine->watch,
  };
  return unusable(engine, QN__COUNTER_directory_unusable, "the cache directory",
                  qn__disk_open(&options, &engine->disk));
}

// ------------------------------------------------------------------------------------- bundles

// Modules of the cache lie beside the library, unless they are where the generators were said to
// be.
static const char* module_directory(const qn_engine_t* engine, const char* name) {
  char path[PATH_MAX];
  const char* directory = qn__config_get(&engine->config, QN__SETTING_generator_dir);
  return directory[0] && qn__plugin_find(directory, name, path) ? directory : "";
}

// All keys of the files, or an error: a bundle that should be signed is not opened without.
static qn_status_t read_keys(const char* files, uint8_t* out, size_t* out_count) {
  *out_count = 0;
  while (*files) {
    char path[4096];
    if (!copy_part(next_part(&files, ':'), path, sizeof path)) continue;
    if (*out_count == MAX_KEYS) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "bundle_keys: at most %u files of keys",
                            MAX_KEYS);
    }
    QN_TRY(
        qn__key_read(path, false, out + *out_count * QN__PUBLIC_KEY_BYTES, QN__PUBLIC_KEY_BYTES));
    ++*out_count;
  }
  return QN_OK;
}

static qn_status_t open_bundle(qn_engine_t* engine, qn__bundle_options_t* options, qn_str_t path) {
  char text[4096];
  if (!copy_part(path, text, sizeof text)) return QN_OK;
  options->path = text;
  qn__bundle_t* bundle = NULL;
  qn_status_t status = qn__bundle_open(options, &bundle);
  if (!qn_ok(status)) return unusable(engine, QN__COUNTER_bundles_unusable, "a bundle", status);
  engine->bundles[engine->bundle_count++] = bundle;
  return QN_OK;
}

static qn_status_t open_bundles(qn_engine_t* engine, const uid_t* owners, size_t owner_count) {
  const char* paths = qn__config_get(&engine->config, QN__SETTING_bundles);
  if (paths[0] == '\0') return QN_OK;
  size_t most = 1;
  for (const char* at = paths; *at; at++) most += *at == ':';
  uint8_t keys[MAX_KEYS * QN__PUBLIC_KEY_BYTES];
  size_t key_count;
  const char* key_files = qn__config_get(&engine->config, QN__SETTING_bundle_keys);
  qn_status_t status = read_keys(key_files, keys, &key_count);
  if (qn_ok(status) && key_files[0] && key_count == 0) {
    // Signatures were asked for: without a key no bundle has one that counts.
    status =
        qn_status_make(QN_STATUS_INVALID_ARGUMENT, "bundle_keys names no file: '%s'", key_files);
  }
  if (!qn_ok(status)) {
    return unusable(engine, QN__COUNTER_bundles_unusable, "every bundle", status);
  }
  engine->bundles = qn__alloc_zero(engine->allocator, most, sizeof(qn__bundle_t*));
  if (!engine->bundles) return qn__out_of_memory("the bundles of an engine");
  engine->bundle_capacity = most;
  qn__bundle_options_t options = {
      .allocator = engine->allocator,
      .public_keys = keys,
      .public_key_count = key_count,
      .plugin_directory = module_directory(engine, "sodium"),
      .owners = owners,
      .owner_count = owner_count,
  };
  while (*paths) QN_TRY(open_bundle(engine, &options, next_part(&paths, ':')));
  qn__generators_use_bundles(&engine->generators, (const qn__bundle_t* const*)engine->bundles,
                             engine->bundle_count);
  return QN_OK;
}

// -------------------------------------------------------------------------------------- remote

static qn_status_t open_remote(qn_engine_t* engine) {
  const qn__config_t* config = &engine->config;
  const char* url = qn__config_get(config, QN__SETTING_remote);
  if (url[0] == '\0') return QN_OK;
  uint64_t ttl_ns = qn__config_number(config, QN__SETTING_remote_ttl);
  qn__remote_options_t options = {
      .allocator = engine->allocator,
      .url = url,
      .key_file = qn__config_get(config, QN__SETTING_remote_key),
      .trust_domain = qn__config_get(config, QN__SETTING_remote_domain),
      .may_write = engine->writes_tiers && qn__config_number(config, QN__SETTING_remote_role) != 0,
      .timeout_ns = (int64_t)qn__config_number(config, QN__SETTING_remote_timeout),
      .ttl_ms = ttl_ns == 0        ? -1
                : ttl_ns < 1000000 ? 1
                                   : (int64_t)(ttl_ns / 1000000),
      .max_entry_bytes = qn__config_number(config, QN__SETTING_remote_max_entry),
      .plugin_directory = module_directory(engine, "redis"),
  };
  return unusable(engine, QN__COUNTER_remote_unusable, "the remote tier",
                  qn__remote_create(&options, &engine->remote));
}

qn_status_t qn__tiers_open(qn_engine_t* engine) {
  const qn__config_t* config = &engine->config;
  engine->lock_timeout_ns = (int64_t)qn__config_number(config, QN__SETTING_lock_timeout);
  qn_cache_mode_t mode = config->cache_mode;
  engine->reads_tiers = mode == QN_CACHE_RO || mode == QN_CACHE_RW;
  engine->writes_tiers = mode == QN_CACHE_RW || mode == QN_CACHE_REFRESH;
  QN_TRY(qn__record_open(engine->allocator, qn__config_get(config, QN__SETTING_record),
                         &engine->record));
  if (mode == QN_CACHE_OFF) return QN_OK;
  uid_t owners[MAX_OWNERS];
  size_t owner_count = parse_owners(qn__config_get(config, QN__SETTING_cache_owners), owners);
  QN_TRY(open_directory(engine, owners, owner_count));
  if (engine->reads_tiers) QN_TRY(open_bundles(engine, owners, owner_count));
  return open_remote(engine);
}

void qn__tiers_close(qn_engine_t* engine) {
  qn__remote_destroy(engine->remote, engine->close_grace_ns);
  engine->remote = NULL;
  qn__driver_door_close(engine->driver_door);
  qn__disk_close(engine->disk, engine->close_grace_ns);
  engine->disk = NULL;
  if (engine->bundles) qn__generators_use_bundles(&engine->generators, NULL, 0);
  for (size_t i = 0; i < engine->bundle_count; i++) qn__bundle_close(engine->bundles[i]);
  qn__free(engine->allocator, engine->bundles, engine->bundle_capacity * sizeof(qn__bundle_t*));
  engine->bundles = NULL;
  engine->bundle_count = engine->bundle_capacity = 0;
  qn__record_close(engine->record);
  engine->record = NULL;
}
