// SPDX-License-Identifier: Apache-2.0
// serve/bert/model.c: calls the kernels in order on the buffers of the model; no arithmetic happens
// here.
//
// The tokens of all sentences lie one after another, so no kernel computes padding. One buffer is
// often seen in two shapes: the products take [tokens, width], attention takes [tokens, heads, head
// width]. A tensor is a view, so neither costs a copy.
// Read next: kernels/attention.qn.
#include "serve/bert/model.h"

#include <math.h>
#include <string.h>

#include "quern/device.h"
#include "serve/bert/try.h"

enum { HIDDEN, SUMMED, QUERY, KEY, VALUE, CONTEXT, INNER, BUFFER_COUNT, RANK_LIMIT = 3 };

// A batch, where the kernels see it.
typedef struct bert_inputs {
  int64_t sequence_count;
  int64_t token_count;
  int64_t longest;
  int64_t square_count;  // the sum of the squares of the lengths, for the count of operations
  const int64_t* ids;
  const int64_t* positions;
  const int64_t* offsets;
} bert_inputs_t;

// A tensor with its shape in one place.
typedef struct tensor {
  qn_tensor_t view;
  int64_t shape[RANK_LIMIT];
} tensor_t;

// Describes `data` in `out_tensor` for one call. DLPack has one pointer for memory that is read and
// written; weights are passed to `in` parameters only.
static qn_value_t describe(const bert_model_t* model, tensor_t* out_tensor, qn_dtype_t dtype,
                           const void* data, int32_t rank, const int64_t* shape) {
  memset(out_tensor, 0, sizeof *out_tensor);
  memcpy(out_tensor->shape, shape, (size_t)rank * sizeof *shape);
  out_tensor->view.data = (void*)(uintptr_t)data;
  out_tensor->view.device = model->place.device;
  out_tensor->view.ndim = rank;
  out_tensor->view.dtype = qn_dtype_to_dl(dtype);
  out_tensor->view.shape = out_tensor->shape;
  return qn_value_tensor(&out_tensor->view);
}

static qn_value_t f32_1(const bert_model_t* model, tensor_t* out, const float* data, int64_t a) {
  return describe(model, out, QN_DTYPE_F32, data, 1, (int64_t[]){a});
}
static qn_value_t f32_2(const bert_model_t* model, tensor_t* out, const float* data, int64_t a,
                        int64_t b) {
  return describe(model, out, QN_DTYPE_F32, data, 2, (int64_t[]){a, b});
}
static qn_value_t f32_heads(const bert_model_t* model, tensor_t* out, const float* data,
                            int64_t rows) {
  const bert_config_t* config = &model->weights.config;
  return describe(model, out, QN_DTYPE_F32, data, 3,
                  (int64_t[]){rows, config->heads, config->width / config->heads});
}
static qn_value_t i64_1(const bert_model_t* model, tensor_t* out, const int64_t* data, int64_t a) {
  return describe(model, out, QN_DTYPE_I64, data, 1, (int64_t[]){a});
}
static qn_value_t weight(const bert_model_t* model, tensor_t* out, const bert_matrix_t* matrix) {
  return f32_2(model, out, matrix->weight, matrix->outputs, matrix->inputs);
}
static qn_value_t bias(const bert_model_t* model, tensor_t* out, const bert_matrix_t* matrix) {
  return f32_1(model, out, matrix->bias, matrix->outputs);
}

static double product_operations(int64_t rows, const bert_matrix_t* matrix) {
  return 2.0 * (double)rows * (double)matrix->inputs * (double)matrix->outputs;
}

static qn_status_t entrance(bert_model_t* model, const bert_inputs_t* inputs, float* y) {
  const bert_config_t* config = &model->weights.config;
  const bert_embeddings_t* weights = &model->weights.embeddings;
  const int64_t width = config->width;
  const int64_t rows = inputs->token_count;
  tensor_t tensors[8];
  const qn_value_t args[] = {
      i64_1(model, &tensors[0], inputs->ids, rows),
      i64_1(model, &tensors[1], inputs->positions, rows),
      f32_2(model, &tensors[2], weights->words, config->vocabulary, width),
      f32_2(model, &tensors[3], weights->positions, config->positions, width),
      f32_2(model, &tensors[4], weights->types, config->token_types, width),
      f32_1(model, &tensors[5], weights->norm.gamma, width),
      f32_1(model, &tensors[6], weights->norm.beta, width),
      qn_value_float(model->weights.config.norm_epsilon),
      f32_2(model, &tensors[7], y, rows, width)};
  return bert_kernels_call(&model->kernels, BERT_KERNEL_ENTRANCE, args, 9, 0.0);
}

static qn_status_t query_key_value(bert_model_t* model, int64_t rows, const float* x,
                                   const bert_layer_t* layer) {
  const int64_t width = model->weights.config.width;
  tensor_t tensors[10];
  const qn_value_t args[] = {f32_2(model, &tensors[0], x, rows, width),
                             weight(model, &tensors[1], &layer->query),
                             bias(model, &tensors[2], &layer->query),
                             weight(model, &tensors[3], &layer->key),
                             bias(model, &tensors[4], &layer->key),
                             weight(model, &tensors[5], &layer->value),
                             bias(model, &tensors[6], &layer->value),
                             f32_2(model, &tensors[7], model->buffers[QUERY], rows, width),
                             f32_2(model, &tensors[8], model->buffers[KEY], rows, width),
                             f32_2(model, &tensors[9], model->buffers[VALUE], rows, width)};
  return bert_kernels_call(&model->kernels, BERT_KERNEL_QUERY_KEY_VALUE, args, 10,
                           3.0 * product_operations(rows, &layer->query));
}

static qn_status_t attention(bert_model_t* model, const bert_inputs_t* inputs, float* y) {
  const bert_config_t* config = &model->weights.config;
  const int64_t width = config->width;
  const int64_t rows = inputs->token_count;
  tensor_t tensors[5];
  const qn_value_t args[] = {f32_heads(model, &tensors[0], model->buffers[QUERY], rows),
                             f32_heads(model, &tensors[1], model->buffers[KEY], rows),
                             f32_heads(model, &tensors[2], model->buffers[VALUE], rows),
                             i64_1(model, &tensors[3], inputs->offsets, inputs->sequence_count + 1),
                             qn_value_int(inputs->longest),
                             qn_value_float(1.0 / sqrt((double)(config->width / config->heads))),
                             f32_heads(model, &tensors[4], y, rows)};
  return bert_kernels_call(&model->kernels, BERT_KERNEL_ATTENTION, args, 7,
                           4.0 * (double)inputs->square_count * (double)width);
}

// Computes y = layer norm (x wᵀ + bias + residual).
static qn_status_t linear_residual_norm(bert_model_t* model, int64_t rows, const float* x,
                                        const bert_matrix_t* matrix, const float* residual,
                                        const bert_norm_t* norm, float* y) {
  const int64_t width = model->weights.config.width;
  tensor_t tensors[7];
  const qn_value_t args[] = {f32_2(model, &tensors[0], x, rows, matrix->inputs),
                             weight(model, &tensors[1], matrix),
                             bias(model, &tensors[2], matrix),
                             f32_2(model, &tensors[3], residual, rows, width),
                             f32_1(model, &tensors[4], norm->gamma, width),
                             f32_1(model, &tensors[5], norm->beta, width),
                             qn_value_float(model->weights.config.norm_epsilon),
                             f32_2(model, &tensors[6], y, rows, width)};
  return bert_kernels_call(&model->kernels, BERT_KERNEL_RESIDUAL_NORM, args, 8,
                           product_operations(rows, matrix));
}

// Computes y = activation(x wᵀ + bias).
static qn_status_t activation(bert_model_t* model, int64_t rows, const float* x,
                              const bert_matrix_t* matrix, float* y) {
  tensor_t tensors[4];
  const qn_value_t args[] = {f32_2(model, &tensors[0], x, rows, matrix->inputs),
                             weight(model, &tensors[1], matrix), bias(model, &tensors[2], matrix),
                             f32_2(model, &tensors[3], y, rows, matrix->outputs)};
  return bert_kernels_call(&model->kernels, BERT_KERNEL_ACTIVATION, args, 4,
                           product_operations(rows, matrix));
}

// Computes one vector for each sentence.
static qn_status_t pool(bert_model_t* model, const bert_inputs_t* inputs, const float* hidden,
                        float* embeddings) {
  const int64_t width = model->weights.config.width;
  tensor_t tensors[3];
  const qn_value_t args[] = {f32_2(model, &tensors[0], hidden, inputs->token_count, width),
                             i64_1(model, &tensors[1], inputs->offsets, inputs->sequence_count + 1),
                             f32_2(model, &tensors[2], embeddings, inputs->sequence_count, width)};
  return bert_kernels_call(&model->kernels, BERT_KERNEL_POOL, args, 3, 0.0);
}

// ------------------------------------------------------------------------------------ the model

static qn_status_t reserve(bert_model_t* model, int64_t count, size_t size, void* out_pointer) {
  void* memory = NULL;
  BERT_TRY(bert_place_reserve(&model->place, (size_t)count * size, &memory));
  memcpy(out_pointer, &memory, sizeof memory);
  return QN_OK;
}

static qn_status_t make_buffers(bert_model_t* model) {
  const bert_config_t* config = &model->weights.config;
  const int64_t tokens = (int64_t)model->max_tokens;
  const int64_t sequences = (int64_t)model->max_sequences;
  for (int i = 0; i < BUFFER_COUNT; ++i) {
    const int64_t width = i == INNER ? config->inner_width : config->width;
    BERT_TRY(reserve(model, tokens * width, sizeof(float), &model->buffers[i]));
  }
  if (model->place.is_host) return QN_OK;
  BERT_TRY(reserve(model, tokens, sizeof(int64_t), &model->ids));
  BERT_TRY(reserve(model, tokens, sizeof(int64_t), &model->positions));
  BERT_TRY(reserve(model, sequences + 1, sizeof(int64_t), &model->offsets));
  return reserve(model, sequences * config->width, sizeof(float), &model->pooled);
}

static qn_status_t open(const bert_model_options_t* options, const bert_weights_t* weights,
                        bert_model_t* model) {
  BERT_TRY(qn_target_parse(options->target, &model->target));
  BERT_TRY(bert_place_open(model->target, &model->place));
  const bool is_adaptive = options->is_adaptive && model->place.device.type == QN_DEVICE_CPU;
  BERT_TRY(bert_kernels_load(options->engine, model->target, options->lookup, is_adaptive,
                             &weights->config, &model->kernels));
  model->kernels.is_timed = model->place.is_host;
  BERT_TRY(bert_weights_import(weights, &model->place, &model->weights));
  return make_buffers(model);
}

qn_status_t bert_model_open(const bert_model_options_t* options, const bert_weights_t* weights,
                            bert_model_t* out_model) {
  *out_model = (bert_model_t){.max_tokens = options->max_tokens,
                              .max_sequences = options->max_sequences,
                              .core_budget = options->core_budget};
  qn_status_t status = open(options, weights, out_model);
  if (!qn_ok(status)) bert_model_close(out_model);
  return status;
}

void bert_model_close(bert_model_t* model) {
  bert_kernels_unload(&model->kernels);
  bert_weights_free(&model->weights);
  bert_place_close(&model->place);  // owns the buffers
  qn_target_release(model->target);
  *model = (bert_model_t){.target = NULL};
}

// Copies the numbers of a batch to the memory of the kernels.
static qn_status_t import_inputs(bert_model_t* model, bert_inputs_t* inputs) {
  const bert_place_t* place = &model->place;
  const size_t rows = (size_t)inputs->token_count;
  BERT_TRY(bert_place_write(place, model->ids, inputs->ids, rows * sizeof *inputs->ids));
  BERT_TRY(
      bert_place_write(place, model->positions, inputs->positions, rows * sizeof *inputs->ids));
  BERT_TRY(bert_place_write(place, model->offsets, inputs->offsets,
                            ((size_t)inputs->sequence_count + 1) * sizeof *inputs->offsets));
  inputs->ids = model->ids;
  inputs->positions = model->positions;
  inputs->offsets = model->offsets;
  return QN_OK;
}

// Computes the rows of all layers, which end in the buffer HIDDEN.
static qn_status_t run_layers(bert_model_t* model, const bert_inputs_t* inputs) {
  const int64_t rows = inputs->token_count;
  float* hidden = model->buffers[HIDDEN];
  float* summed = model->buffers[SUMMED];
  float* context = model->buffers[CONTEXT];
  float* inner = model->buffers[INNER];
  BERT_TRY(entrance(model, inputs, hidden));
  for (int64_t i = 0; i < model->weights.config.layers; ++i) {
    const bert_layer_t* layer = &model->weights.layers[i];
    BERT_TRY(query_key_value(model, rows, hidden, layer));
    BERT_TRY(attention(model, inputs, context));
    BERT_TRY(linear_residual_norm(model, rows, context, &layer->attention_output, hidden,
                                  &layer->attention_norm, summed));
    BERT_TRY(activation(model, rows, summed, &layer->inner, inner));
    BERT_TRY(linear_residual_norm(model, rows, inner, &layer->outer, summed, &layer->output_norm,
                                  hidden));
  }
  return QN_OK;
}

static qn_status_t run(bert_model_t* model, serve_batch_t* batch) {
  bert_inputs_t inputs = {.sequence_count = (int64_t)batch->sequence_count,
                          .token_count = (int64_t)batch->token_count,
                          .longest = (int64_t)batch->longest,
                          .ids = batch->ids,
                          .positions = batch->positions,
                          .offsets = batch->offsets};
  for (size_t i = 0; i < batch->sequence_count; ++i) {
    const int64_t length = batch->offsets[i + 1] - batch->offsets[i];
    inputs.square_count += length * length;
  }
  const bert_place_t* place = &model->place;
  const size_t row_bytes = (size_t)model->weights.config.width * sizeof(float);
  if (!place->is_host) BERT_TRY(import_inputs(model, &inputs));
  BERT_TRY(run_layers(model, &inputs));
  if (batch->has_pooled) {
    float* pooled = place->is_host ? batch->pooled : model->pooled;
    BERT_TRY(pool(model, &inputs, model->buffers[HIDDEN], pooled));
    if (!place->is_host) {
      BERT_TRY(bert_place_read(place, batch->pooled, pooled, batch->sequence_count * row_bytes));
    }
  }
  if (!batch->has_tokens) return QN_OK;
  return bert_place_read(place, batch->tokens, model->buffers[HIDDEN],
                         batch->token_count * row_bytes);
}

qn_status_t bert_model_run(bert_model_t* model, serve_batch_t* batch) {
  if (batch->token_count > model->max_tokens || batch->sequence_count > model->max_sequences) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a batch of %zu tokens and %zu sentences, the model has buffers for %zu "
                          "and %zu",
                          batch->token_count, batch->sequence_count, model->max_tokens,
                          model->max_sequences);
  }
  const int32_t old_budget = qn_cpu_set_core_budget(model->core_budget);
  qn_status_t status = run(model, batch);
  (void)qn_cpu_set_core_budget(old_budget);
  return status;
}
