// SPDX-License-Identifier: Apache-2.0
// serve/loader.c: the engine of the server, its compiles, and loading.
#include "serve/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "quern/cache.h"
#include "quern/observe.h"
#include "serve/bert/encoder.h"
#include "serve/clock.h"
#include "serve/log.h"

static const int64_t flush_ns = 30000000000;

struct serve_loader {
  const serve_options_t* options;
  serve_trace_t* trace;
  qn_engine_t* engine;
  atomic_bool is_serving;
  atomic_uint_fast64_t compiles[2];  // at the start, and while serving
  atomic_size_t origins[QN_SOURCE_REMOTE + 1];
  pthread_mutex_t mutex;
  serve_buffer_t keys;  // qn_cache_key_t of each kernel of all models that were loaded
};

// ------------------------------------------------------------------------------------ the engine

static void on_compile(void* self, const qn_compile_event_t* event) {
  serve_loader_t* loader = self;
  const bool is_serving = atomic_load(&loader->is_serving);
  const bool has_failed = !qn_ok(event->status);
  (void)atomic_fetch_add(&loader->compiles[is_serving], 1);
  const serve_field_t fields[] = {
      SERVE_TEXT("kernel", event->name),
      SERVE_TEXT("key", event->key.hex),
      SERVE_TEXT("reason", qn_miss_reason_text(event->reason)),
      SERVE_NUMBER("us", event->compile_ns / 1000),
      SERVE_NUMBER("serving", is_serving),
      SERVE_TEXT("error", has_failed ? qn_status_message(event->status) : "none"),
  };
  serve_log(has_failed   ? SERVE_LOG_ERROR
            : is_serving ? SERVE_LOG_WARNING
                         : SERVE_LOG_INFO,
            "compiled", fields, sizeof fields / sizeof fields[0]);
}

qn_status_t serve_loader_create(const serve_options_t* options, serve_trace_t* trace,
                                serve_loader_t** out_loader) {
  *out_loader = NULL;
  serve_loader_t* loader = calloc(1, sizeof *loader);
  if (!loader) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the loader");
  loader->options = options;
  loader->trace = trace;
  (void)pthread_mutex_init(&loader->mutex, NULL);
  qn_setting_t settings[5];
  size_t count = 0;
  char budget[24];
  char limit[24];
  (void)snprintf(budget, sizeof budget, "%zu", options->special_budget);
  (void)snprintf(limit, sizeof limit, "%zu", options->special_limit);
  settings[count++] = (qn_setting_t){"special_budget", budget};
  settings[count++] = (qn_setting_t){"special_limit", limit};
  if (options->forbid_jit) settings[count++] = (qn_setting_t){"jit", "forbid"};
  if (*options->plugins) settings[count++] = (qn_setting_t){"plugins", options->plugins};
  if (*options->bundle) settings[count++] = (qn_setting_t){"bundles", options->bundle};
  const qn_engine_options_t engine = {.struct_size = sizeof engine,
                                      .settings = settings,
                                      .setting_count = count,
                                      .on_compile = on_compile,
                                      .on_compile_self = loader};
  qn_status_t status = qn_engine_create(&engine, &loader->engine);
  if (!qn_ok(status)) {
    serve_loader_destroy(loader);
    return status;
  }
  *out_loader = loader;
  return QN_OK;
}

void serve_loader_destroy(serve_loader_t* loader) {
  if (!loader) return;
  if (loader->engine) (void)qn_engine_flush(loader->engine, flush_ns);
  qn_engine_destroy(loader->engine);
  serve_buffer_free(&loader->keys);
  (void)pthread_mutex_destroy(&loader->mutex);
  free(loader);
}

// ------------------------------------------------------------------------------------ loading

static qn_status_t open_parts(serve_loader_t* loader, const char* folder,
                              serve_tokenizer_t** out_tokenizer, serve_encoder_t* out_encoder) {
  const serve_options_t* options = loader->options;
  qn_status_t status = serve_tokenizer_open(folder, NULL, out_tokenizer);
  if (!qn_ok(status)) return status;
  const bert_model_options_t model = {.engine = loader->engine,
                                      .target = options->target,
                                      .is_adaptive = options->special_limit > 0,
                                      .max_tokens = options->batch_tokens,
                                      .max_sequences = options->batch_texts,
                                      .core_budget = (int32_t)options->threads};
  bert_origins_t origins;
  status = bert_encoder_open(&model, folder, out_encoder, &origins);
  if (!qn_ok(status)) return status;
  for (size_t i = 0; i <= QN_SOURCE_REMOTE; ++i) {
    (void)atomic_fetch_add(&loader->origins[i], origins.counts[i]);
  }
  (void)pthread_mutex_lock(&loader->mutex);
  serve_buffer_append(&loader->keys, origins.keys, sizeof origins.keys);
  (void)pthread_mutex_unlock(&loader->mutex);
  const size_t limit = serve_token_limit(*out_tokenizer);
  if (limit > out_encoder->vocabulary) {
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "%s: the tokenizer has ids up to %zu, and vocab_size of config.json is "
                          "%zu",
                          folder, limit - 1, out_encoder->vocabulary);
  }
  if (serve_special_count(*out_tokenizer) >= out_encoder->max_tokens) {
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "%s: sentences have at most %zu tokens, and the tokenizer adds %u",
                          folder, out_encoder->max_tokens, serve_special_count(*out_tokenizer));
  }
  return QN_OK;
}

qn_status_t serve_loader_load(void* self, const char* folder, const char* name,
                              serve_model_t** out_model) {
  serve_loader_t* loader = self;
  const serve_options_t* options = loader->options;
  const int64_t start_ns = serve_now_ns();
  *out_model = NULL;
  serve_tokenizer_t* tokenizer = NULL;
  serve_encoder_t encoder = {.self = NULL};
  qn_status_t status = open_parts(loader, folder, &tokenizer, &encoder);
  if (!qn_ok(status)) {
    serve_tokenizer_close(tokenizer);
    if (encoder.self) encoder.destroy(encoder.self);
    return status;
  }
  const size_t batch_tokens =
      options->batch_tokens > encoder.max_tokens ? options->batch_tokens : encoder.max_tokens;
  const serve_model_limits_t limits = {.batch_tokens = batch_tokens,
                                       .batch_sequences = options->batch_texts,
                                       .queue_tokens = options->queue_tokens,
                                       .batch_delay_ns = options->batch_delay,
                                       .trace = loader->trace};
  const serve_field_t fields[] = {
      SERVE_TEXT("model", name),
      SERVE_TEXT("folder", folder),
      SERVE_NUMBER("width", encoder.width),
      SERVE_NUMBER("max_tokens", encoder.max_tokens),
      SERVE_NUMBER("us", (serve_now_ns() - start_ns) / 1000),
  };
  status = serve_model_create(name, tokenizer, &encoder, &limits, out_model);
  if (qn_ok(status)) serve_log(SERVE_LOG_INFO, "loaded", fields, sizeof fields / sizeof fields[0]);
  return status;
}

void serve_loader_end_start(serve_loader_t* loader) {
  atomic_store(&loader->is_serving, true);
}

// ------------------------------------------------------------------------------------ bundles

static void take_setting(void* self, const qn_setting_t* setting) {
  const char** out_folder = self;
  if (strcmp(setting->name, "cache_dir") == 0) *out_folder = setting->value;
}

// The keys that a bundle wants, sorted and each once.
typedef struct wanted {
  const qn_cache_key_t* keys;
  size_t count;
} wanted_t;

static int compare(const void* a, const void* b) {
  return strcmp(((const qn_cache_key_t*)a)->hex, ((const qn_cache_key_t*)b)->hex);
}

static bool wants(void* self, const qn_cache_entry_t* entry) {
  const wanted_t* wanted = self;
  return bsearch(&entry->info->key, wanted->keys, wanted->count, sizeof *wanted->keys, compare);
}

static wanted_t sort_keys(qn_cache_key_t* keys, size_t count) {
  if (count > 0) qsort(keys, count, sizeof *keys, compare);
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (kept == 0 || compare(&keys[kept - 1], &keys[i]) != 0) keys[kept++] = keys[i];
  }
  return (wanted_t){keys, kept};
}

static qn_status_t write_bundle(const char* path, const char* folder, wanted_t* wanted) {
  qn_cache_dir_t* dir = NULL;
  qn_status_t status = qn_cache_dir_open(folder, &dir);
  if (!qn_ok(status)) return status;
  // Without times the same kernels give the same bytes, and layers of an image stay the same.
  const qn_cache_write_options_t options = {
      .struct_size = sizeof options, .wants = wants, .self = wanted, .is_timeless = true};
  qn_cache_write_report_t report = {.struct_size = sizeof report};
  status = qn_cache_bundle_write(path, dir, NULL, 0, &options, &report);
  qn_cache_dir_close(dir);
  if (qn_ok(status) && report.written_count != wanted->count) {
    (void)remove(path);
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "the cache directory '%s' has %llu of the %zu kernels; give one that "
                            "can be written, such as an empty one",
                            folder, (unsigned long long)report.written_count, wanted->count);
  }
  return status;
}

qn_status_t serve_loader_write_bundle(serve_loader_t* loader, const char* path, size_t* out_count) {
  *out_count = 0;
  (void)qn_engine_flush(loader->engine, flush_ns);  // what is late is missing below
  const char* folder = "";
  qn_engine_settings(loader->engine, take_setting, &folder);
  if (!*folder) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "a bundle is written from a cache directory, and there is none; set "
                          "QUERN_CACHE_DIR");
  }
  (void)pthread_mutex_lock(&loader->mutex);
  wanted_t wanted = {.count = 0};
  qn_status_t status = serve_buffer_status(&loader->keys, "keys of kernels");
  if (qn_ok(status)) {
    void* keys = loader->keys.data;
    wanted = sort_keys(keys, loader->keys.size / sizeof(qn_cache_key_t));
    loader->keys.size = wanted.count * sizeof(qn_cache_key_t);
    status = write_bundle(path, folder, &wanted);
  }
  (void)pthread_mutex_unlock(&loader->mutex);
  *out_count = wanted.count;
  return qn_status_annotate(status, "%s", path);
}

// ------------------------------------------------------------------------------------ counts

void serve_loader_describe(serve_loader_t* loader, char* out_text, size_t size) {
  size_t used = 0;
  out_text[0] = '\0';
  for (int source = QN_SOURCE_COMPILED; source <= QN_SOURCE_REMOTE; ++source) {
    const size_t count = atomic_load(&loader->origins[source]);
    if (count == 0 || used >= size) continue;
    used += (size_t)snprintf(out_text + used, size - used, "%s%zu %s%s", used > 0 ? ", " : "",
                             count, source == QN_SOURCE_COMPILED ? "" : "from ",
                             qn_source_text((qn_source_t)source));
  }
}

uint64_t serve_loader_compile_count(serve_loader_t* loader) {
  return atomic_load(&loader->compiles[0]) + atomic_load(&loader->compiles[1]);
}

static qn_status_t append(void* self, const void* data, size_t size) {
  serve_buffer_append(self, data, size);
  return QN_OK;
}

void serve_loader_print_metrics(void* self, serve_buffer_t* out) {
  serve_loader_t* loader = self;
  static const char* const phases[] = {"start", "serving"};
  serve_buffer_text(out,
                    "# HELP quern_serve_compiles_total Compiles, before the server was ready and "
                    "after\n# TYPE quern_serve_compiles_total counter\n");
  for (size_t i = 0; i < 2; ++i) {
    serve_buffer_format(out, "quern_serve_compiles_total{phase=\"%s\"} %llu\n", phases[i],
                        (unsigned long long)atomic_load(&loader->compiles[i]));
  }
  serve_buffer_text(out,
                    "# HELP quern_serve_kernels Kernels of the models that were loaded, by where "
                    "they came from\n# TYPE quern_serve_kernels gauge\n");
  for (int source = QN_SOURCE_COMPILED; source <= QN_SOURCE_REMOTE; ++source) {
    serve_buffer_format(out, "quern_serve_kernels{source=\"%s\"} %zu\n",
                        qn_source_text((qn_source_t)source), atomic_load(&loader->origins[source]));
  }
  // Without memory the buffer is exhausted, which its reader sees.
  qn_status_free(qn_engine_metrics(loader->engine, (qn_sink_t){out, append}));
}
