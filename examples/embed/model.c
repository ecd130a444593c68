// model.c: calls the kernels in order on the buffers of the model; no arithmetic happens here.
//
// The tokens of all sentences lie one after another, so no kernel computes padding. One buffer is
// often seen in two shapes: the products take [tokens, width], attention takes [tokens, heads, head
// width]. A tensor is a view, so neither costs a copy.
// Read next: kernels/attention.qn.
#include "model.h"

#include <math.h>
#include <string.h>

enum { HIDDEN, SUMMED, QUERY, KEY, VALUE, CONTEXT, INNER, RANK_LIMIT = 3 };

static const int64_t buffer_widths[] = {WIDTH, WIDTH, WIDTH, WIDTH, WIDTH, WIDTH, INNER_WIDTH};

// A tensor with its shape in one place.
typedef struct tensor {
  qn_tensor_t view;
  int64_t shape[RANK_LIMIT];
} tensor_t;

// Describes `data` in `out_tensor` for one call. DLPack has one pointer for memory that is read and
// written; weights are passed to `in` parameters only.
static qn_value_t describe(const model_t* model, tensor_t* out_tensor, qn_dtype_t dtype,
                           const void* data, int32_t rank, const int64_t* shape) {
  memset(out_tensor, 0, sizeof *out_tensor);
  memcpy(out_tensor->shape, shape, (size_t)rank * sizeof *shape);
  out_tensor->view.data = (void*)(uintptr_t)data;
  out_tensor->view.device = model->kernels->place.device;
  out_tensor->view.ndim = rank;
  out_tensor->view.dtype = qn_dtype_to_dl(dtype);
  out_tensor->view.shape = out_tensor->shape;
  return qn_value_tensor(&out_tensor->view);
}

static qn_value_t f32_1(const model_t* model, tensor_t* out, const float* data, int64_t a) {
  return describe(model, out, QN_DTYPE_F32, data, 1, (int64_t[]){a});
}
static qn_value_t f32_2(const model_t* model, tensor_t* out, const float* data, int64_t a,
                        int64_t b) {
  return describe(model, out, QN_DTYPE_F32, data, 2, (int64_t[]){a, b});
}
static qn_value_t f32_heads(const model_t* model, tensor_t* out, const float* data, int64_t rows) {
  return describe(model, out, QN_DTYPE_F32, data, 3, (int64_t[]){rows, HEADS, HEAD_WIDTH});
}
static qn_value_t i64_1(const model_t* model, tensor_t* out, const int64_t* data, int64_t a) {
  return describe(model, out, QN_DTYPE_I64, data, 1, (int64_t[]){a});
}
static qn_value_t weight(const model_t* model, tensor_t* out, const matrix_t* matrix) {
  return f32_2(model, out, matrix->weight, matrix->outputs, matrix->inputs);
}
static qn_value_t bias(const model_t* model, tensor_t* out, const matrix_t* matrix) {
  return f32_1(model, out, matrix->bias, matrix->outputs);
}

static double product_operations(int64_t rows, const matrix_t* matrix) {
  return 2.0 * (double)rows * (double)matrix->inputs * (double)matrix->outputs;
}

static qn_status_t entrance(model_t* model, const batch_t* batch, float* y) {
  const weights_t* weights = &model->weights;
  const int64_t rows = batch->token_count;
  tensor_t tensors[8];
  const qn_value_t args[] = {i64_1(model, &tensors[0], batch->ids, rows),
                             i64_1(model, &tensors[1], batch->positions, rows),
                             f32_2(model, &tensors[2], weights->words, VOCABULARY, WIDTH),
                             f32_2(model, &tensors[3], weights->positions, POSITIONS, WIDTH),
                             f32_2(model, &tensors[4], weights->types, TOKEN_TYPES, WIDTH),
                             f32_1(model, &tensors[5], weights->norm.gamma, WIDTH),
                             f32_1(model, &tensors[6], weights->norm.beta, WIDTH),
                             qn_value_float(NORM_EPSILON),
                             f32_2(model, &tensors[7], y, rows, WIDTH)};
  return kernels_call(model->kernels, KERNEL_EMBED_LAYERNORM, args, 9, 0.0);
}

static qn_status_t query_key_value(model_t* model, int64_t rows, const float* x,
                                   const layer_t* layer) {
  tensor_t tensors[10];
  const qn_value_t args[] = {f32_2(model, &tensors[0], x, rows, WIDTH),
                             weight(model, &tensors[1], &layer->query),
                             bias(model, &tensors[2], &layer->query),
                             weight(model, &tensors[3], &layer->key),
                             bias(model, &tensors[4], &layer->key),
                             weight(model, &tensors[5], &layer->value),
                             bias(model, &tensors[6], &layer->value),
                             f32_2(model, &tensors[7], model->buffers[QUERY], rows, WIDTH),
                             f32_2(model, &tensors[8], model->buffers[KEY], rows, WIDTH),
                             f32_2(model, &tensors[9], model->buffers[VALUE], rows, WIDTH)};
  return kernels_call(model->kernels, KERNEL_QUERY_KEY_VALUE, args, 10,
                      3.0 * product_operations(rows, &layer->query));
}

static qn_status_t attention(model_t* model, const batch_t* batch, float* y) {
  const int64_t rows = batch->token_count;
  tensor_t tensors[5];
  const qn_value_t args[] = {f32_heads(model, &tensors[0], model->buffers[QUERY], rows),
                             f32_heads(model, &tensors[1], model->buffers[KEY], rows),
                             f32_heads(model, &tensors[2], model->buffers[VALUE], rows),
                             i64_1(model, &tensors[3], batch->offsets, batch->sentence_count + 1),
                             qn_value_int(batch->longest),
                             qn_value_float(1.0 / sqrt((double)HEAD_WIDTH)),
                             f32_heads(model, &tensors[4], y, rows)};
  return kernels_call(model->kernels, KERNEL_ATTENTION, args, 7,
                      4.0 * (double)batch->square_count * (double)WIDTH);
}

// Computes y = layer norm (x wᵀ + bias + residual).
static qn_status_t linear_residual_norm(model_t* model, int64_t rows, const float* x,
                                        const matrix_t* matrix, const float* residual,
                                        const norm_t* norm, float* y) {
  tensor_t tensors[7];
  const qn_value_t args[] = {f32_2(model, &tensors[0], x, rows, matrix->inputs),
                             weight(model, &tensors[1], matrix),
                             bias(model, &tensors[2], matrix),
                             f32_2(model, &tensors[3], residual, rows, WIDTH),
                             f32_1(model, &tensors[4], norm->gamma, WIDTH),
                             f32_1(model, &tensors[5], norm->beta, WIDTH),
                             qn_value_float(NORM_EPSILON),
                             f32_2(model, &tensors[6], y, rows, WIDTH)};
  return kernels_call(model->kernels, KERNEL_LINEAR_RESIDUAL_NORM, args, 8,
                      product_operations(rows, matrix));
}

// Computes y = gelu(x wᵀ + bias).
static qn_status_t linear_gelu(model_t* model, int64_t rows, const float* x, const matrix_t* matrix,
                               float* y) {
  tensor_t tensors[4];
  const qn_value_t args[] = {f32_2(model, &tensors[0], x, rows, matrix->inputs),
                             weight(model, &tensors[1], matrix), bias(model, &tensors[2], matrix),
                             f32_2(model, &tensors[3], y, rows, matrix->outputs)};
  return kernels_call(model->kernels, KERNEL_LINEAR_GELU, args, 4,
                      product_operations(rows, matrix));
}

// Computes the mean over the tokens of each sentence, scaled to unit length.
static qn_status_t finish(model_t* model, const batch_t* batch, const float* hidden,
                          float* embeddings) {
  tensor_t tensors[3];
  const qn_value_t args[] = {f32_2(model, &tensors[0], hidden, batch->token_count, WIDTH),
                             i64_1(model, &tensors[1], batch->offsets, batch->sentence_count + 1),
                             f32_2(model, &tensors[2], embeddings, batch->sentence_count, WIDTH)};
  return kernels_call(model->kernels, KERNEL_MEAN_POOL, args, 3, 0.0);
}

qn_status_t model_create(const weights_t* weights, kernels_t* kernels, int64_t row_capacity,
                         model_t* out_model) {
  *out_model = (model_t){.kernels = kernels, .row_capacity = row_capacity};
  place_t* place = &kernels->place;
  TRY(weights_import(weights, place, &out_model->weights));
  const size_t row_count = (size_t)row_capacity;
  void* buffer = NULL;
  for (size_t i = 0; i < sizeof buffer_widths / sizeof buffer_widths[0]; ++i) {
    TRY(place_reserve(place, row_count * (size_t)buffer_widths[i] * sizeof(float), &buffer));
    out_model->buffers[i] = buffer;
  }
  if (place->is_host) {
    return QN_OK;
  }
  TRY(place_reserve(place, row_count * sizeof *out_model->ids, &buffer));
  out_model->ids = buffer;
  TRY(place_reserve(place, row_count * sizeof *out_model->positions, &buffer));
  out_model->positions = buffer;
  TRY(place_reserve(place, (row_count + 1) * sizeof *out_model->offsets, &buffer));
  out_model->offsets = buffer;
  TRY(place_reserve(place, row_count * WIDTH * sizeof *out_model->embeddings, &buffer));
  out_model->embeddings = buffer;
  return QN_OK;
}

void model_destroy(model_t* model) {
  // The place owns the memory.
  memset(model, 0, sizeof *model);
}

// Copies the numbers of a batch to the memory of the kernels.
static qn_status_t import_batch(model_t* model, batch_t* batch) {
  const place_t* place = &model->kernels->place;
  const size_t rows = (size_t)batch->token_count;
  TRY(place_write(place, model->ids, batch->ids, rows * sizeof *batch->ids));
  TRY(place_write(place, model->positions, batch->positions, rows * sizeof *batch->positions));
  TRY(place_write(place, model->offsets, batch->offsets,
                  ((size_t)batch->sentence_count + 1) * sizeof *batch->offsets));
  batch->ids = model->ids;
  batch->positions = model->positions;
  batch->offsets = model->offsets;
  return QN_OK;
}

qn_status_t model_embed(model_t* model, const batch_t* host_batch, float* host_embeddings) {
  batch_t batch = *host_batch;
  const int64_t rows = batch.token_count;
  if (rows > model->row_capacity) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a batch of %lld tokens, the model has buffers for %lld", (long long)rows,
                          (long long)model->row_capacity);
  }
  const place_t* place = &model->kernels->place;
  float* embeddings = host_embeddings;
  if (!place->is_host) {
    TRY(import_batch(model, &batch));
    embeddings = model->embeddings;
  }
  float* hidden = model->buffers[HIDDEN];
  float* summed = model->buffers[SUMMED];
  float* context = model->buffers[CONTEXT];
  float* inner = model->buffers[INNER];

  TRY(entrance(model, &batch, hidden));
  for (int i = 0; i < LAYERS; ++i) {
    const layer_t* layer = &model->weights.layers[i];
    TRY(query_key_value(model, rows, hidden, layer));
    TRY(attention(model, &batch, context));
    TRY(linear_residual_norm(model, rows, context, &layer->attention_output, hidden,
                             &layer->attention_norm, summed));
    TRY(linear_gelu(model, rows, summed, &layer->inner, inner));
    TRY(linear_residual_norm(model, rows, inner, &layer->outer, summed, &layer->output_norm,
                             hidden));
  }
  TRY(finish(model, &batch, hidden, embeddings));
  if (place->is_host) {
    return QN_OK;
  }
  return place_read(place, host_embeddings, embeddings,
                    (size_t)(batch.sentence_count * WIDTH) * sizeof *embeddings);
}
