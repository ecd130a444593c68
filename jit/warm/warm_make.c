// jit/warm/warm_make.c: one key, made and on disk; what a worker does for each of its jobs.
//
// A key for this processor goes the way of every lookup (claims, remote tier, a load that proves
// the code fits) and is unloaded again. One for another processor or device could not be loaded, so
// it is compiled and stored only. Either way nothing is called made before the directory has it.
//
// Thread rule: any thread. Read next: lookup.c, warm_worker.c.
#include "jit/warm/warm.h"

#include "base/alloc.h"
#include "jit/codegen/artifact.h"
#include "target/target.h"

// How long a publish may take: a file system that takes longer does not serve a cache.
#define FLUSH_TIMEOUT_NS 60000000000

static qn__request_t request_of(const qn__warm_entry_t* entry) {
  qn__request_t request;
  memset(&request, 0, sizeof request);
  request.module = entry->module;
  request.target = entry->target;
  request.tier = entry->tier;
  request.is_checked = entry->is_checked;
  return request;
}

static qn_status_t name_with(qn_engine_t* engine, const qn__warm_entry_t* entry,
                             const char* identity, qn__buffer_t* preimage,
                             qn__warm_name_t* out_name) {
  qn__request_t request = request_of(entry);
  const char* name_space = qn__config_get(&engine->config, QN__SETTING_cache_namespace);
  qn__buffer_clear(preimage);
  QN_TRY(qn__key_make(&request, identity, name_space, preimage, &out_name->key));
  qn__key_describe(&request, out_name->key, out_name->hex, out_name->text);
  return QN_OK;
}

static qn_status_t find_generator(qn_engine_t* engine, const qn_target_t* target,
                                  uint32_t* out_index, char out_identity[256]) {
  return qn__generators_find(&engine->generators, target->kind->info->codegen, out_index,
                             out_identity);
}

qn_status_t qn__warm_name(qn_engine_t* engine, const qn__warm_entry_t* entry,
                          qn__buffer_t* preimage, qn__warm_name_t* out_name) {
  memset(out_name, 0, sizeof *out_name);
  uint32_t index;
  char identity[256];
  QN_TRY(find_generator(engine, entry->target, &index, identity));
  return name_with(engine, entry, identity, preimage, out_name);
}

bool qn__warm_is_cached(qn_engine_t* engine, qn_hash128_t key, qn_span_t preimage) {
  return qn__tiers_have(engine, &(qn__expectation_t){key, preimage});
}

// ------------------------------------------------------------------------------------ an entry

static bool take_text(qn_str_t* inout_rest, const char* prefix) {
  size_t size = strlen(prefix);
  if (inout_rest->size < size || memcmp(inout_rest->data, prefix, size) != 0) return false;
  *inout_rest = (qn_str_t){inout_rest->data + size, inout_rest->size - size};
  return true;
}

// The section's text is that of key.c: "tier=full checked=0".
static bool read_options(qn_str_t text, qn__warm_origin_t* origin) {
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

bool qn__warm_origin_read(qn_span_t preimage, qn__warm_origin_t* out_origin) {
  *out_origin = (qn__warm_origin_t){0};
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

// ------------------------------------------------------------------------------------ making

// Waits for the publish and looks whether it happened. A remote tier is written behind.
static qn_status_t confirm(qn_engine_t* engine, qn_hash128_t key) {
  if (!qn__disk_flush(qn__engine_disk(engine), FLUSH_TIMEOUT_NS)) {
    return qn_status_make(QN_STATUS_DEADLINE_EXCEEDED,
                          "the entry was not written within a minute; the file system of '%s' is "
                          "too slow",
                          qn__disk_root(qn__engine_disk(engine)));
  }
  qn__hit_t hit;
  if (qn__disk_inspect(qn__engine_disk(engine), key, false, &hit, NULL) != QN__GET_HIT) {
    return qn_status_make(QN_STATUS_IO,
                          "the entry could not be written to '%s', or was swept at once; "
                          "'quern cache stats' shows its bounds",
                          qn__disk_root(qn__engine_disk(engine)));
  }
  qn__disk_hit_release(qn__engine_disk(engine), &hit);
  return QN_OK;
}

static qn_status_t make_by_lookup(qn_engine_t* engine, const qn__warm_entry_t* entry,
                                  qn__warm_made_t* out_made) {
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .tier = entry->tier, .is_checked = entry->is_checked};
  qn_lookup_info_t info;
  qn_executable_t* executable;
  qn_status_t status =
      qn_engine_executable(engine, entry->module, entry->target, &options, &info, &executable);
  memcpy(out_made->key, info.key, sizeof out_made->key);
  out_made->compile_ns = info.compile_ns;
  QN_TRY(status);
  qn_executable_release(executable);
  (void)qn_engine_unload(engine, entry->module, entry->target, &options);
  out_made->outcome = info.source == QN_SOURCE_COMPILED ? QN_WARM_COMPILED : QN_WARM_CACHED;
  if (info.source == QN_SOURCE_DISK || info.source == QN_SOURCE_BUNDLE) return QN_OK;
  // A hit of the remote tier becomes an entry of the directory as a compile does.
  qn_hash128_t key;
  if (!qn__hash128_parse(qn__str(info.key), &key)) {
    return qn_status_make(QN_STATUS_INTERNAL, "'%s' is not a key", info.key);
  }
  return confirm(engine, key);
}

// `lease` is consumed.
static qn_status_t put(qn_engine_t* engine, const qn__warm_entry_t* entry, qn_span_t preimage,
                       const qn_artifact_t* artifact, int64_t compile_ns, qn__lease_t* lease) {
  qn__buffer_t metadata;
  qn__buffer_init(&metadata, engine->allocator);
  qn__artifact_encode(artifact, &metadata);
  qn_status_t status = qn__buffer_status(&metadata, "an entry");
  if (qn_ok(status)) {
    bool has_room = entry->module->byte_count <= QN__ENTRY_MAX_MODULE_BYTES;
    qn__entry_t stored = {
        .key = qn__preimage_key(preimage),
        .created_ns = qn__wall_ns(),
        .compile_ns = compile_ns,
        .preimage = preimage,
        .metadata = qn__buffer_as_span(&metadata),
        .module = {entry->module->bytes, has_room ? entry->module->byte_count : 0},
        .payload = {artifact->payload, artifact->payload_size},
    };
    for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
      qn__claim_t claim = {.lease = tier->id == QN__TIER_disk ? lease : NULL};
      if (tier->table->put) tier->table->put(tier, &stored, &claim);
    }
  } else {
    qn__lease_release(lease);
  }
  qn__buffer_deinit(&metadata);
  return status;
}

// Another process may be making the key: true when it has been made meanwhile.
static bool is_made_by_other(qn_engine_t* engine, qn_hash128_t key, qn_span_t preimage,
                             qn__lease_t** out_lease) {
  *out_lease = NULL;
  if (!engine->reads_tiers) return false;
  qn__expectation_t expected = {key, preimage};
  int64_t now_ns = qn__now_ns();
  int64_t deadline_ns = qn__after(now_ns, engine->lock_timeout_ns);
  qn__hit_t hit;
  if (qn__disk_claim(qn__engine_disk(engine), &expected, deadline_ns, &hit, out_lease) !=
      QN__GET_HIT) {
    return false;
  }
  qn__disk_hit_release(qn__engine_disk(engine), &hit);
  return true;
}

static qn_status_t generate(qn_engine_t* engine, const qn__warm_entry_t* entry,
                            const qn_codegen_t* codegen, void* self, qn_span_t preimage,
                            qn__lease_t* lease, qn__warm_made_t* out_made) {
  qn__request_t request = request_of(entry);
  qn_compile_request_t wanted = qn__compile_request(&request);
  int64_t start_ns = qn__now_ns();
  qn_artifact_t* artifact = NULL;
  qn_status_t status = codegen->compile(self, &wanted, &artifact);
  out_made->compile_ns = qn__now_ns() - start_ns;
  if (qn_ok(status)) status = qn__artifact_check(artifact);
  if (qn_ok(status)) {
    status = put(engine, entry, preimage, artifact, out_made->compile_ns, lease);
  } else {
    qn__lease_release(lease);
  }
  if (artifact && artifact->release) artifact->release(artifact);
  return status;
}

static qn_status_t make_to_store(qn_engine_t* engine, const qn__warm_entry_t* entry,
                                 qn__buffer_t* preimage, qn__warm_made_t* out_made) {
  uint32_t index;
  char identity[256];
  const qn_codegen_t* codegen;
  void* self;
  QN_TRY(find_generator(engine, entry->target, &index, identity));
  QN_TRY(qn__generators_open(&engine->generators, index, &codegen, &self, identity));
  qn__warm_name_t name;
  QN_TRY(name_with(engine, entry, identity, preimage, &name));
  memcpy(out_made->key, name.hex, sizeof out_made->key);
  qn_span_t bytes = qn__buffer_as_span(preimage);
  qn__lease_t* lease = NULL;
  if (qn__warm_is_cached(engine, name.key, bytes) ||
      is_made_by_other(engine, name.key, bytes, &lease)) {
    out_made->outcome = QN_WARM_CACHED;
    return QN_OK;
  }
  QN_TRY(generate(engine, entry, codegen, self, bytes, lease, out_made));
  out_made->outcome = QN_WARM_COMPILED;
  return confirm(engine, name.key);
}

// Whether this machine could load what it compiles.
static bool suits_host(const qn_target_t* target) {
  return target->kind->info->device_type == QN_DEVICE_CPU &&
         qn_status_consume(qn_target_check_host(target)) == QN_STATUS_OK;
}

qn_status_t qn__warm_make(qn_engine_t* engine, const qn__warm_entry_t* entry,
                          qn__warm_made_t* out_made) {
  memset(out_made, 0, sizeof *out_made);
  if (!qn__engine_disk(engine)) {
    out_made->outcome = QN_WARM_FAILED;
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION, "the cache directory cannot be used");
  }
  qn_status_t status;
  if (suits_host(entry->target)) {
    status = make_by_lookup(engine, entry, out_made);
  } else {
    qn__buffer_t preimage;
    qn__buffer_init(&preimage, engine->allocator);
    status = make_to_store(engine, entry, &preimage, out_made);
    qn__buffer_deinit(&preimage);
  }
  if (!qn_ok(status)) out_made->outcome = QN_WARM_FAILED;
  return status;
}
