// SPDX-License-Identifier: Apache-2.0
// jit/engine/cached.c: qn_engine_cached: the entries of the cache directory as lookups.
#include "jit/engine/cached.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/fs.h"
#include "base/struct_size.h"
#include "quern/cache.h"

// ------------------------------------------------------------------------------------ an entry

static bool take_text(qn_str_t* inout_rest, const char* prefix) {
  size_t size = strlen(prefix);
  if (inout_rest->size < size || memcmp(inout_rest->data, prefix, size) != 0) return false;
  *inout_rest = (qn_str_t){inout_rest->data + size, inout_rest->size - size};
  return true;
}

// Reads the text that key.c writes: "tier=full checked=0".
static bool read_options(qn_str_t text, qn__origin_t* origin) {
  if (take_text(&text, "tier=full ")) {
    origin->tier = QN_TIER_FULL;
  } else if (take_text(&text, "tier=fast ")) {
    origin->tier = QN_TIER_FAST;
  } else {
    return false;
  }
  origin->is_checked = qn__str_equal(text, QN_STR("checked=1"));
  return origin->is_checked || qn__str_equal(text, QN_STR("checked=0"));
}

bool qn__origin_read(qn_span_t preimage, qn__origin_t* out_origin) {
  *out_origin = (qn__origin_t){0};
  size_t offset = 0;
  uint32_t tag;
  qn_span_t bytes;
  bool has_options = false;
  while (qn__preimage_next(preimage, &offset, &tag, &bytes)) {
    qn_str_t text = {(const char*)bytes.data, bytes.size};
    if (tag == QN__SECTION_TARGET) out_origin->target_json = text;
    if (tag == QN__SECTION_GENERATOR) out_origin->identity = text;
    if (tag == QN__SECTION_NAMESPACE) out_origin->name_space = text;
    if (tag == QN__SECTION_OPTIONS) has_options = read_options(text, out_origin);
  }
  return offset == preimage.size && has_options && out_origin->target_json.size > 0 &&
         out_origin->identity.size > 0;
}

qn_status_t qn__origin_target(const qn__origin_t* origin, qn_allocator_t allocator,
                              qn_target_t** out_target) {
  *out_target = NULL;
  char* json = qn__copy_cstr(allocator, origin->target_json);
  if (!json) return qn__out_of_memory("a target");
  qn_status_t status = qn_target_parse(json, out_target);
  qn__free_cstr(allocator, json);
  return status;
}

// ------------------------------------------------------------------------------------ a directory

typedef struct reader {
  qn_engine_t* engine;
  bool (*on_lookup)(void* self, const qn_cached_lookup_t* lookup);
  void* self;
  qn_cached_report_t* report;
  qn_status_t status;
  bool is_ended;  // by the callback
} reader_t;

// Errors: what makes the entry useless; OUT_OF_MEMORY.
static qn_status_t read_entry(reader_t* reader, qn_cache_key_t key, const qn__entry_t* entry) {
  qn_cached_report_t* report = reader->report;
  qn__origin_t origin;
  if (qn__preimage_has(entry->preimage, QN__SECTION_DRIVER)) return QN_OK;
  if (entry->module.size == 0) {
    report->without_module_count++;
    return QN_OK;
  }
  if (!qn__entry_module_matches(entry) || !qn__origin_read(entry->preimage, &origin)) {
    report->bad_count++;
    return QN_OK;
  }
  qn_engine_t* engine = reader->engine;
  const char* name_space = qn__config_get(&engine->config, QN__SETTING_cache_namespace);
  if (!qn__str_equal(origin.name_space, qn__str(name_space))) {
    report->other_namespace_count++;
    return QN_OK;
  }
  qn_cached_lookup_t lookup = {.struct_size = sizeof lookup,
                               .key = key,
                               .tier = origin.tier,
                               .is_checked = origin.is_checked};
  qn_status_t status = qn__origin_target(&origin, engine->allocator, &lookup.target);
  if (qn_ok(status)) {
    status = qn_module_decode(entry->module.data, entry->module.size, NULL, &lookup.module);
  }
  if (qn_ok(status)) {
    report->lookup_count++;
    reader->is_ended = !reader->on_lookup(reader->self, &lookup);
  }
  qn_module_release(lookup.module);
  qn_target_release(lookup.target);
  return status;
}

static bool read_file(void* self, const qn__disk_file_t* file) {
  reader_t* reader = self;
  qn__disk_t* disk = qn__engine_disk(reader->engine);
  reader->report->entry_count++;
  qn__hit_t hit;
  if (qn__disk_inspect(disk, file->key, false, &hit, NULL) != QN__GET_HIT) {
    reader->report->bad_count++;
    return true;
  }
  qn_status_t status = read_entry(reader, qn__hash128_key(file->key), &hit.entry);
  qn__disk_hit_release(disk, &hit);
  if (qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) {
    reader->status = status;
    return false;
  }
  if (!qn_ok(status)) reader->report->bad_count++;
  qn_status_free(status);
  return !reader->is_ended;
}

qn_status_t qn_engine_cached(qn_engine_t* engine,
                             bool (*on_lookup)(void* self, const qn_cached_lookup_t* lookup),
                             void* self, qn_cached_report_t* out_report) {
  QN_REQUIRE(engine, on_lookup);
  QN_STRUCT_CLEAR(qn_cached_report_t, out_report);
  qn_cached_report_t report = {0};
  if (!qn__engine_disk(engine)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "the engine has no cache directory to list");
  }
  reader_t reader = {engine, on_lookup, self, &report, QN_OK, false};
  int error = qn__disk_scan(qn__engine_disk(engine), read_file, &reader, NULL);
  QN_STRUCT_WRITE(out_report, report);
  if (qn_ok(reader.status) && error) {
    return qn__fs_status(error, "list", qn__disk_root(qn__engine_disk(engine)));
  }
  return reader.status;
}
