// SPDX-License-Identifier: Apache-2.0
// bench/serve/peers/onnxruntime_encoder.c: a session of ONNX Runtime, and batches as it wants them.
#include "bench/serve/peers/onnxruntime_encoder.h"

#include <onnxruntime_c_api.h>
#include <stdlib.h>
#include <string.h>

#include "bench/serve/peers/padding.h"
#include "serve/bert/config.h"
#include "serve/bert/try.h"

enum { INPUT_COUNT = 3 };
static const char* const input_names[INPUT_COUNT] = {"input_ids", "attention_mask",
                                                     "token_type_ids"};
static const char* const output_name = "embedding";

typedef struct encoder {
  const OrtApi* api;
  OrtEnv* env;
  OrtSession* session;
  OrtMemoryInfo* memory;
  onnxruntime_options_t options;
  size_t width;
  size_t longest;  // tokens of a sequence
  padding_plan_t plan;
  size_t capacity;  // elements of each input
  int64_t* inputs[INPUT_COUNT];
} encoder_t;

// Makes a status of ONNX Runtime's, which is consumed. NULL is ok.
static qn_status_t take(const encoder_t* encoder, OrtStatus* status) {
  if (!status) return QN_OK;
  qn_status_t made = qn_status_make(QN_STATUS_UNAVAILABLE, "ONNX Runtime: %s",
                                    encoder->api->GetErrorMessage(status));
  encoder->api->ReleaseStatus(status);
  return made;
}

// ------------------------------------------------------------------------------------ calls

// Fills the inputs of a call: ids with zeros behind them, and ones where ids are. The types stay 0.
static void fill(encoder_t* encoder, const serve_batch_t* batch, const padding_part_t* part) {
  for (size_t row = 0; row < part->count; ++row) {
    const size_t sequence = encoder->plan.order[part->begin + row];
    const int64_t begin = batch->offsets[sequence];
    const size_t length = (size_t)(batch->offsets[sequence + 1] - begin);
    int64_t* ids = encoder->inputs[0] + row * part->longest;
    int64_t* mask = encoder->inputs[1] + row * part->longest;
    for (size_t i = 0; i < part->longest; ++i) {
      ids[i] = i < length ? batch->ids[begin + (int64_t)i] : 0;
      mask[i] = i < length;
    }
  }
}

static qn_status_t copy_results(const encoder_t* encoder, serve_batch_t* batch,
                                const padding_part_t* part, OrtValue* output) {
  void* values = NULL;
  BERT_TRY(take(encoder, encoder->api->GetTensorMutableData(output, &values)));
  const float* rows = values;
  for (size_t row = 0; row < part->count; ++row) {
    const size_t sequence = encoder->plan.order[part->begin + row];
    memcpy(batch->pooled + sequence * encoder->width, rows + row * encoder->width,
           encoder->width * sizeof *rows);
  }
  return QN_OK;
}

static qn_status_t run_part(encoder_t* encoder, serve_batch_t* batch, const padding_part_t* part) {
  const OrtApi* api = encoder->api;
  fill(encoder, batch, part);
  const int64_t shape[2] = {(int64_t)part->count, (int64_t)part->longest};
  const size_t size = part->count * part->longest * sizeof(int64_t);
  OrtValue* inputs[INPUT_COUNT] = {NULL};
  OrtValue* output = NULL;
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < INPUT_COUNT && qn_ok(status); ++i) {
    status = take(encoder, api->CreateTensorWithDataAsOrtValue(
                               encoder->memory, encoder->inputs[i], size, shape, 2,
                               ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &inputs[i]));
  }
  if (qn_ok(status)) {
    status =
        take(encoder, api->Run(encoder->session, NULL, input_names, (const OrtValue* const*)inputs,
                               INPUT_COUNT, &output_name, 1, &output));
  }
  if (qn_ok(status)) status = copy_results(encoder, batch, part, output);
  for (size_t i = 0; i < INPUT_COUNT; ++i) {
    if (inputs[i]) api->ReleaseValue(inputs[i]);
  }
  if (output) api->ReleaseValue(output);
  return status;
}

static qn_status_t run(void* self, serve_batch_t* batch) {
  encoder_t* encoder = self;
  if (batch->has_tokens) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "the graph has no results of tokens");
  }
  const onnxruntime_options_t* options = &encoder->options;
  if (options->pads_all) {
    padding_keep(&encoder->plan, batch->offsets, batch->sequence_count);
  } else {
    padding_cut(&encoder->plan, batch->offsets, batch->sequence_count, options->call_cost,
                options->call_tokens);
  }
  for (size_t i = 0; i < encoder->plan.part_count; ++i) {
    BERT_TRY(run_part(encoder, batch, &encoder->plan.parts[i]));
  }
  return QN_OK;
}

// ------------------------------------------------------------------------------------ opening

static void destroy(void* self) {
  encoder_t* encoder = self;
  const OrtApi* api = encoder->api;
  if (api) {
    api->ReleaseMemoryInfo(encoder->memory);
    api->ReleaseSession(encoder->session);
    api->ReleaseEnv(encoder->env);
  }
  for (size_t i = 0; i < INPUT_COUNT; ++i) free(encoder->inputs[i]);
  padding_plan_free(&encoder->plan);
  free(encoder);
}

static qn_status_t configure(const encoder_t* encoder, OrtSessionOptions* settings) {
  const OrtApi* api = encoder->api;
  const onnxruntime_options_t* options = &encoder->options;
  BERT_TRY(take(encoder, api->SetIntraOpNumThreads(settings, options->threads)));
  BERT_TRY(take(encoder, api->SetSessionGraphOptimizationLevel(settings, ORT_ENABLE_ALL)));
  BERT_TRY(take(encoder, api->AddSessionConfigEntry(settings, "session.intra_op.allow_spinning",
                                                    options->spins ? "1" : "0")));
  return take(encoder, options->has_pattern ? api->EnableMemPattern(settings)
                                            : api->DisableMemPattern(settings));
}

static qn_status_t open_session(encoder_t* encoder) {
  const OrtApiBase* base = OrtGetApiBase();
  encoder->api = base->GetApi(ORT_API_VERSION);
  if (!encoder->api) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "ONNX Runtime %s has no interface of version %d, that of its header",
                          base->GetVersionString(), ORT_API_VERSION);
  }
  const OrtApi* api = encoder->api;
  BERT_TRY(take(encoder, api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "serve", &encoder->env)));
  BERT_TRY(take(encoder,
                api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &encoder->memory)));
  OrtSessionOptions* settings = NULL;
  BERT_TRY(take(encoder, api->CreateSessionOptions(&settings)));
  qn_status_t status = configure(encoder, settings);
  if (qn_ok(status)) {
    status = take(encoder, api->CreateSession(encoder->env, encoder->options.graph, settings,
                                              &encoder->session));
  }
  api->ReleaseSessionOptions(settings);
  return status;
}

static qn_status_t open(encoder_t* encoder) {
  const onnxruntime_options_t* options = &encoder->options;
  // A whole batch may be padded to as many rows as it has sequences, each as long as the longest.
  encoder->capacity = options->max_sequences * encoder->longest;
  bool has_memory = padding_plan_init(&encoder->plan, options->max_sequences);
  for (size_t i = 0; i < INPUT_COUNT; ++i) {
    encoder->inputs[i] = calloc(encoder->capacity, sizeof *encoder->inputs[i]);
    has_memory = has_memory && encoder->inputs[i];
  }
  if (!has_memory) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for inputs");
  return open_session(encoder);
}

qn_status_t onnxruntime_encoder_open(const onnxruntime_options_t* options, const char* folder,
                                     serve_encoder_t* out_encoder) {
  bert_config_t config;
  BERT_TRY(bert_config_read(folder, &config));
  encoder_t* encoder = calloc(1, sizeof *encoder);
  if (!encoder) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for an encoder");
  encoder->options = *options;
  encoder->width = (size_t)config.width;
  encoder->longest = (size_t)config.max_tokens;
  qn_status_t status = open(encoder);
  if (!qn_ok(status)) {
    destroy(encoder);
    return status;
  }
  *out_encoder = (serve_encoder_t){
      .self = encoder,
      .width = encoder->width,
      .max_tokens = encoder->longest,
      .vocabulary = (size_t)config.vocabulary,
      .kind = "bert",
      .device = "cpu",
      .pooling = bert_pooling_text(config.pooling),
      .run = run,
      .destroy = destroy,
  };
  return QN_OK;
}
