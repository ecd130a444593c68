// serve/loader.c: the engine of the server, its compiles, and loading.
#include "serve/loader.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "quern/observe.h"
#include "serve/bert/encoder.h"
#include "serve/clock.h"
#include "serve/log.h"

static const int64_t flush_ns = 30000000000;

struct serve_loader {
  const serve_options_t* options;
  qn_engine_t* engine;
  atomic_bool is_serving;
  atomic_uint_fast64_t compiles[2];  // at the start, and while serving
  atomic_size_t origins[QN_SOURCE_REMOTE + 1];
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

qn_status_t serve_loader_create(const serve_options_t* options, serve_loader_t** out_loader) {
  *out_loader = NULL;
  serve_loader_t* loader = calloc(1, sizeof *loader);
  if (!loader) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the loader");
  loader->options = options;
  qn_setting_t settings[4];
  size_t count = 0;
  char budget[24];
  char limit[24];
  (void)snprintf(budget, sizeof budget, "%zu", options->special_budget);
  (void)snprintf(limit, sizeof limit, "%zu", options->special_limit);
  settings[count++] = (qn_setting_t){"special_budget", budget};
  settings[count++] = (qn_setting_t){"special_limit", limit};
  if (options->forbid_jit) settings[count++] = (qn_setting_t){"jit", "forbid"};
  if (*options->bundle) settings[count++] = (qn_setting_t){"bundles", options->bundle};
  const qn_engine_options_t engine = {.struct_size = sizeof engine,
                                      .settings = settings,
                                      .setting_count = count,
                                      .on_compile = on_compile,
                                      .on_compile_self = loader};
  qn_status_t status = qn_engine_create(&engine, &loader->engine);
  if (qn_ok(status)) {
    *out_loader = loader;
  } else {
    free(loader);
  }
  return status;
}

void serve_loader_destroy(serve_loader_t* loader) {
  if (!loader) return;
  (void)qn_engine_flush(loader->engine, flush_ns);
  qn_engine_destroy(loader->engine);
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
                                       .batch_delay_ns = options->batch_delay};
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
  // Without memory the buffer is exhausted, which its reader sees.
  qn_status_free(qn_engine_metrics(loader->engine, (qn_sink_t){out, append}));
}
