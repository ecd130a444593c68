// jit/lookup.c: the way of a lookup: memory table, directory, compile.
//
// Requirements:
//  1. A hit opens no generator: its identity for the key comes from generator.c's prediction.
//  2. One thread makes a key, the others wait for it and get the same result or the same error.
//  3. Whatever the directory says is checked by the entry's decoder, the artifact's decoder and the
//     device's load; any no is a miss.
//  4. The caller runs what it compiled, from its own bytes; publishing is handed to the writer.
// Thread rule: any thread. Read next: table.c, key.c.
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "jit/artifact.h"
#include "jit/engine.h"
#include "target/target.h"

// What one lookup works with.
typedef struct lookup {
  qn_engine_t* engine;
  qn__request_t request;
  qn_device_t device;
  uint32_t generator;
  char identity[256];
  qn__buffer_t preimage;
  qn_hash128_t key;
  char name[128];  // for profilers: "softmax@0123456789ab"
  qn_lookup_info_t info;
} lookup_t;

// Where the code is to run: the thread's active device, if it is of the target's type.
static qn_device_t device_of(const qn_target_t* target) {
  int32_t type = target->kind->info->device_type;
  if (type == QN_DEVICE_CPU)
    return (qn_device_t){type, 0};  // there is one, and hits are in a hurry
  qn_device_t active = qn_active_device();
  return (qn_device_t){type, active.type == type ? active.id : 0};
}

static qn__ident_t make_ident(const qn__request_t* request) {
  qn__ident_t ident;
  memset(&ident, 0, sizeof ident);
  ident.module_digest = request->module->digest;
  ident.module_second_digest = request->module->second_digest;
  memcpy(ident.target_digest.bytes, qn_target_digest(request->target), 16);
  // Two devices of one type share entries in the directory, but not what is loaded onto them.
  ident.options = (uint64_t)request->tier | (request->is_checked ? 1u << 8 : 0) |
                  (uint64_t)(uint32_t)device_of(request->target).id << 16;
  return ident;
}

// Makes the key for the identity that is known now.
static qn_status_t make_key(lookup_t* lookup) {
  qn__buffer_clear(&lookup->preimage);
  QN_TRY(qn__key_make(&lookup->request, lookup->identity,
                      qn__config_get(&lookup->engine->config, QN__SETTING_cache_namespace),
                      &lookup->preimage, &lookup->key));
  qn__hash128_hex(lookup->key, lookup->info.key);
  const qn_module_t* module = lookup->request.module;
  (void)snprintf(lookup->name, sizeof lookup->name, "%.100s@%.12s",
                 module->body.function_count ? module->functions[0]->name : "module",
                 lookup->info.key);
  return QN_OK;
}

static qn_status_t load(lookup_t* lookup, const qn_artifact_t* artifact,
                        qn_executable_t** out_executable) {
  qn_load_options_t options = {
      .struct_size = sizeof options,
      .name = lookup->name,
      .has_perf_map = qn__config_number(&lookup->engine->config, QN__SETTING_perf) != 0,
      .has_gdb = qn__config_number(&lookup->engine->config, QN__SETTING_gdb) != 0,
  };
  return qn__executable_load(artifact, lookup->device, lookup->request.module, lookup->key,
                             &options, lookup->engine->allocator, out_executable);
}

// ---------------------------------------------------------------------------------- directory

static qn_status_t load_entry(lookup_t* lookup, const qn__entry_t* entry,
                              qn_executable_t** out_executable) {
  qn__arena_t arena;
  qn__arena_init(&arena, lookup->engine->allocator);
  qn_artifact_t artifact;
  qn_status_t status = qn__artifact_decode(entry->metadata, entry->payload, &arena, &artifact);
  if (qn_ok(status)) status = load(lookup, &artifact, out_executable);
  qn__arena_deinit(&arena);
  return status;
}

// The executable of the directory's entry, or NULL: a miss.
static qn_executable_t* try_directory(lookup_t* lookup) {
  qn_engine_t* engine = lookup->engine;
  if (!engine->disk || engine->config.cache_mode == QN_CACHE_REFRESH) return NULL;
  int64_t start_ns = qn__now_ns();
  qn__expectation_t expected = {lookup->key, qn__buffer_as_span(&lookup->preimage)};
  qn__hit_t hit;
  if (qn__disk_get(engine->disk, &expected, &hit) != QN__GET_HIT) return NULL;
  qn_executable_t* executable = NULL;
  qn_status_t status = load_entry(lookup, &hit.entry, &executable);
  qn__disk_hit_release(engine->disk, &hit);
  if (!qn_ok(status)) {
    qn__count(engine, QN__COUNTER_directory_rejected, 1);
    qn__log(QN__LOG_INFO, "entry %s is not used: %s", lookup->info.key, qn_status_message(status));
    qn_status_free(status);
    return NULL;
  }
  qn__count(engine, QN__COUNTER_directory_hits, 1);
  lookup->info.source = QN_SOURCE_DISK;
  lookup->info.load_ns = qn__now_ns() - start_ns;
  return executable;
}

static void publish(lookup_t* lookup, const qn_artifact_t* artifact) {
  qn_engine_t* engine = lookup->engine;
  if (!engine->disk || engine->config.cache_mode == QN_CACHE_RO) return;
  qn__buffer_t metadata;
  qn__buffer_init(&metadata, engine->allocator);
  qn__artifact_encode(artifact, &metadata);
  if (!metadata.has_failed) {
    qn__entry_t entry = {
        .created_ns = qn__wall_ns(),
        .compile_ns = lookup->info.compile_ns,
        .preimage = qn__buffer_as_span(&lookup->preimage),
        .metadata = qn__buffer_as_span(&metadata),
        .payload = {artifact->payload, artifact->payload_size},
    };
    (void)qn__disk_put(engine->disk, &entry, NULL);
  }
  qn__buffer_deinit(&metadata);
}

// ---------------------------------------------------------------------------------- compiling

static qn_status_t forbidden(const lookup_t* lookup) {
  qn__count(lookup->engine, QN__COUNTER_compiles_forbidden, 1);
  return qn_status_make(QN_STATUS_COMPILE_FORBIDDEN,
                        "'%s' for target %s is not cached (key %s), and compiling is forbidden",
                        lookup->name, qn_target_json(lookup->request.target), lookup->info.key);
}

static qn_status_t run_generator(lookup_t* lookup, const qn_codegen_t* codegen, void* self,
                                 qn_executable_t** out_executable) {
  qn_engine_t* engine = lookup->engine;
  qn_compile_request_t request = qn__compile_request(&lookup->request);
  int64_t start_ns = qn__now_ns();
  qn_artifact_t* artifact = NULL;
  qn_status_t status = codegen->compile(self, &request, &artifact);
  lookup->info.compile_ns = qn__now_ns() - start_ns;
  qn__count(engine, QN__COUNTER_compile_ns, (uint64_t)lookup->info.compile_ns);
  if (qn_ok(status)) {
    status = qn__artifact_check(artifact);
    if (qn_ok(status)) status = load(lookup, artifact, out_executable);
    lookup->info.load_ns = qn__now_ns() - start_ns - lookup->info.compile_ns;
    if (qn_ok(status)) publish(lookup, artifact);
    if (artifact && artifact->release) artifact->release(artifact);
  }
  qn__count(engine, qn_ok(status) ? QN__COUNTER_compiles : QN__COUNTER_compiles_failed, 1);
  lookup->info.source = QN_SOURCE_COMPILED;
  qn__engine_dump(engine, codegen, self, &request, lookup->name);
  return status;
}

static qn_status_t compile(lookup_t* lookup, qn_executable_t** out_executable) {
  qn_engine_t* engine = lookup->engine;
  if (lookup->request.is_forbidden) return forbidden(lookup);
  // Code for a processor that this one is not could be compiled, but not loaded.
  if (lookup->device.type == QN_DEVICE_CPU) QN_TRY(qn_target_check_host(lookup->request.target));
  const qn_codegen_t* codegen;
  void* self;
  char identity[256];
  QN_TRY(qn__generators_open(&engine->generators, lookup->generator, &codegen, &self, identity));
  if (strcmp(identity, lookup->identity) != 0) {
    // The prediction was wrong: what the true identity has in the directory counts.
    memcpy(lookup->identity, identity, sizeof lookup->identity);
    QN_TRY(make_key(lookup));
    *out_executable = try_directory(lookup);
    if (*out_executable) return QN_OK;
  }
  return run_generator(lookup, codegen, self, out_executable);
}

static qn_status_t resolve(lookup_t* lookup, const char** out_generator) {
  const qn_target_kind_info_t* kind = lookup->request.target->kind->info;
  *out_generator = kind->codegen;
  lookup->device = device_of(lookup->request.target);
  return qn__generators_find(&lookup->engine->generators, kind->codegen, &lookup->generator,
                             lookup->identity);
}

static qn_status_t make(lookup_t* lookup, qn_executable_t** out_executable) {
  const char* generator;
  QN_TRY(resolve(lookup, &generator));
  QN_TRY(make_key(lookup));
  *out_executable = try_directory(lookup);
  if (*out_executable) return QN_OK;
  return compile(lookup, out_executable);
}

// ---------------------------------------------------------------------------------- the lookup

static void give_info(const lookup_t* lookup, int64_t start_ns, qn_lookup_info_t* out_info) {
  if (!out_info) return;
  *out_info = lookup->info;
  out_info->lookup_ns = qn__now_ns() - start_ns;
}

static void give_memory_info(const qn_executable_t* executable, int64_t start_ns,
                             qn_lookup_info_t* out_info) {
  if (!out_info) return;
  *out_info = (qn_lookup_info_t){.source = QN_SOURCE_MEMORY};
  memcpy(out_info->key, executable->key, sizeof out_info->key);
  out_info->lookup_ns = qn__now_ns() - start_ns;
}

// Behind the memory table: this thread makes the executable, or waits for the one that does.
static qn_status_t make_or_wait(qn_engine_t* engine, const qn__request_t* request,
                                const qn__ident_t* ident, int64_t start_ns,
                                qn_lookup_info_t* out_info, qn_executable_t** out_executable) {
  qn__flight_t* flight;
  qn_status_t status;
  for (;;) {
    status = qn__flight_board(&engine->flights, ident, &flight, out_executable);
    // Whoever was first may not compile, and was told so; this thread may.
    bool is_others =
        !flight && qn_status_code(status) == QN_STATUS_COMPILE_FORBIDDEN && !request->is_forbidden;
    if (!is_others) break;
    qn_status_free(status);
  }
  if (!flight) {
    if (!qn_ok(status)) return status;
    qn__count(engine, QN__COUNTER_waited, 1);
    give_memory_info(*out_executable, start_ns, out_info);
    return QN_OK;
  }
  lookup_t lookup;
  memset(&lookup, 0, sizeof lookup);
  lookup.engine = engine;
  lookup.request = *request;
  qn__buffer_init(&lookup.preimage, engine->allocator);
  status = make(&lookup, out_executable);
  qn__buffer_deinit(&lookup.preimage);
  // Without memory for the table the caller still gets its code.
  if (qn_ok(status)) qn_status_free(qn__table_put(&engine->table, ident, *out_executable));
  qn__flight_land(&engine->flights, flight, status, *out_executable);
  give_info(&lookup, start_ns, out_info);
  return status;
}

qn_status_t qn_engine_executable(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                                 const qn_lookup_options_t* options, qn_lookup_info_t* out_info,
                                 qn_executable_t** out_executable) {
  *out_executable = NULL;
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  int64_t start_ns = out_info ? qn__now_ns() : 0;
  if (out_info) *out_info = (qn_lookup_info_t){.source = QN_SOURCE_COMPILED};
  qn__ident_t ident = make_ident(&request);
  qn_executable_t* executable = qn__table_get(&engine->table, &ident);
  if (executable) {
    give_memory_info(executable, start_ns, out_info);
    *out_executable = executable;
    return QN_OK;
  }
  qn__count(engine, QN__COUNTER_lookups, 1);
  return make_or_wait(engine, &request, &ident, start_ns, out_info, out_executable);
}

bool qn_engine_unload(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                      const qn_lookup_options_t* options) {
  qn__request_t request;
  qn_status_t status = qn__request_init(engine, module, target, options, &request);
  if (!qn_ok(status)) {
    qn_status_free(status);
    return false;
  }
  qn__ident_t ident = make_ident(&request);
  return qn__table_remove(&engine->table, &ident);
}

qn_status_t qn_engine_function(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                               const char* name, const qn_lookup_options_t* options,
                               qn_lookup_info_t* out_info, qn_function_t** out_function) {
  *out_function = NULL;
  if (!name) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a lookup needs the function's name, got null");
  }
  qn_executable_t* executable;
  QN_TRY(qn_engine_executable(engine, module, target, options, out_info, &executable));
  qn_status_t status = qn_executable_function(executable, module, name, out_function);
  qn_executable_release(executable);
  return status;
}

qn_status_t qn_engine_emit(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                           const qn_lookup_options_t* options, const char* form, qn_sink_t sink) {
  lookup_t lookup;
  memset(&lookup, 0, sizeof lookup);
  lookup.engine = engine;
  QN_TRY(qn__request_init(engine, module, target, options, &lookup.request));
  if (!form || !sink.write) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the %s of what is to be written is null",
                          form ? "sink" : "form");
  }
  const char* name;
  QN_TRY(resolve(&lookup, &name));
  const qn_codegen_t* codegen;
  void* self;
  QN_TRY(
      qn__generators_open(&engine->generators, lookup.generator, &codegen, &self, lookup.identity));
  if (!codegen->emit) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "generator '%s' has no intermediate forms", name);
  }
  qn_compile_request_t request = qn__compile_request(&lookup.request);
  return codegen->emit(self, &request, form, sink);
}
