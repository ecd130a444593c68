// SPDX-License-Identifier: Apache-2.0
// serve/bert/encoder.c: files, weights and kernels of one encoder.
#include "serve/bert/encoder.h"

#include <stdlib.h>

#include "quern/adaptive.h"
#include "quern/device.h"
#include "quern/target.h"
#include "serve/bert/try.h"

typedef struct bert_encoder {
  bert_weights_t weights;
  bert_model_t model;
  qn_engine_t* engine;  // borrowed
} bert_encoder_t;

static qn_status_t run(void* self, serve_batch_t* batch) {
  bert_encoder_t* encoder = self;
  return bert_model_run(&encoder->model, batch);
}

static void set_busy(void* self, bool is_busy) {
  bert_encoder_t* encoder = self;
  if (is_busy) {
    qn_engine_busy_begin(encoder->engine);
  } else {
    qn_engine_busy_end(encoder->engine);
  }
}

static void destroy(void* self) {
  bert_encoder_t* encoder = self;
  bert_model_close(&encoder->model);
  bert_weights_free(&encoder->weights);
  free(encoder);
}

static void count_origins(const bert_kernels_t* kernels, bert_origins_t* out_origins) {
  *out_origins = (bert_origins_t){.counts = {0}};
  for (int i = 0; i < BERT_KERNEL_COUNT; ++i) {
    const qn_lookup_info_t* info = &kernels->all[i].info;
    if (info->source <= QN_SOURCE_REMOTE) ++out_origins->counts[info->source];
    out_origins->keys[i] = info->key;
  }
}

// Runs a batch of one short sentence, whatever its words are.
static qn_status_t run_first(bert_encoder_t* encoder, size_t max_tokens) {
  const size_t count = max_tokens < 8 ? max_tokens : 8;
  serve_batch_t* batch = NULL;
  BERT_TRY(serve_batch_create(count, 1, (size_t)encoder->weights.config.width, &batch));
  for (size_t i = 0; i < count; ++i) batch->positions[i] = (int64_t)i;
  batch->sequence_count = 1;
  batch->token_count = count;
  batch->longest = count;
  batch->offsets[1] = (int64_t)count;
  batch->has_pooled = true;
  batch->has_tokens = true;
  qn_status_t status = bert_model_run(&encoder->model, batch);
  serve_batch_destroy(batch);
  return qn_status_annotate(status, "the first batch");
}

static qn_status_t open(const bert_model_options_t* options, const char* folder,
                        bert_encoder_t* encoder) {
  bert_config_t config;
  BERT_TRY(bert_config_read(folder, &config));
  BERT_TRY(bert_weights_load(folder, &config, &encoder->weights));
  bert_model_options_t enough = *options;
  if (enough.max_tokens < (size_t)config.max_tokens) enough.max_tokens = (size_t)config.max_tokens;
  BERT_TRY(bert_model_open(&enough, &encoder->weights, &encoder->model));
  return run_first(encoder, (size_t)config.max_tokens);
}

qn_status_t bert_encoder_open(const bert_model_options_t* options, const char* folder,
                              serve_encoder_t* out_encoder, bert_origins_t* out_origins) {
  bert_encoder_t* encoder = calloc(1, sizeof *encoder);
  if (!encoder) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for an encoder");
  encoder->engine = options->engine;
  qn_status_t status = open(options, folder, encoder);
  if (!qn_ok(status)) {
    destroy(encoder);
    return status;
  }
  count_origins(&encoder->model.kernels, out_origins);
  const bert_config_t* config = &encoder->weights.config;
  *out_encoder = (serve_encoder_t){
      .self = encoder,
      .width = (size_t)config->width,
      .max_tokens = (size_t)config->max_tokens,
      .vocabulary = (size_t)config->vocabulary,
      .kind = "bert",
      .device = qn_device_type_text(encoder->model.place.device.type),
      .pooling = bert_pooling_text(config->pooling),
      .run = run,
      .set_busy = set_busy,
      .destroy = destroy,
  };
  return QN_OK;
}
