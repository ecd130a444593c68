// model.c: calls the kernels in order on the buffers of the model; no arithmetic happens here.
//
// One buffer is often seen in two shapes: the products take [tokens, width], attention takes
// [batch, length, 3, heads, head width]. A tensor is a view, so neither costs a copy.
// Read next: kernels/attention.qn.
#include "model.h"

#include <math.h>
#include <string.h>

enum { HIDDEN, JOINED, CONTEXT, SUMMED, INNER, RANK_LIMIT = 5 };

static const int64_t buffer_widths[] = {WIDTH, 3 * WIDTH, WIDTH, WIDTH, INNER_WIDTH};

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
static qn_value_t f32_3(const model_t* model, tensor_t* out, const float* data, int64_t a,
                        int64_t b, int64_t c) {
  return describe(model, out, QN_DTYPE_F32, data, 3, (int64_t[]){a, b, c});
}

// Computes y = x w + bias; for LINEAR_GELU its activation; for LINEAR_RESIDUAL plus `residual`. The
// buffers are whole tiles long: rows of the last tile beyond `rows` are computed and never read.
static qn_status_t product(model_t* model, kernel_id_t id, int64_t rows, const float* x,
                           const matrix_t* matrix, const float* residual, float* y) {
  const int64_t tile = model->kernels->row_tile;
  const int64_t tiles = (rows + tile - 1) / tile;
  tensor_t tensors[5];
  qn_value_t args[5];
  size_t count = 0;
  args[count++] = f32_3(model, &tensors[0], x, tiles, tile, matrix->inputs);
  args[count++] =
      f32_3(model, &tensors[1], matrix->panels, matrix->outputs / PANEL, matrix->inputs, PANEL);
  args[count++] = f32_1(model, &tensors[2], matrix->bias, matrix->outputs);
  if (residual != NULL) {
    args[count++] = f32_3(model, &tensors[3], residual, tiles, tile, matrix->outputs);
  }
  args[count++] = f32_3(model, &tensors[4], y, tiles, tile, matrix->outputs);
  return kernels_call(model->kernels, id, args, count,
                      2.0 * (double)rows * (double)matrix->inputs * (double)matrix->outputs);
}

static qn_status_t layer_norm(model_t* model, int64_t rows, const float* x, const norm_t* norm,
                              float* y) {
  tensor_t tensors[4];
  const qn_value_t args[] = {
      f32_2(model, &tensors[0], x, rows, WIDTH), f32_1(model, &tensors[1], norm->gamma, WIDTH),
      f32_1(model, &tensors[2], norm->beta, WIDTH), qn_value_float(NORM_EPSILON),
      f32_2(model, &tensors[3], y, rows, WIDTH)};
  return kernels_call(model->kernels, KERNEL_LAYER_NORM, args, 5, 0.0);
}

static qn_status_t attention(model_t* model, int64_t batch, int64_t length, const float* joined,
                             const int64_t* lengths, const int64_t* host_lengths, float* y) {
  tensor_t tensors[3];
  const qn_value_t args[] = {describe(model, &tensors[0], QN_DTYPE_F32, joined, 5,
                                      (int64_t[]){batch, length, 3, HEADS, HEAD_WIDTH}),
                             describe(model, &tensors[1], QN_DTYPE_I64, lengths, 1, &batch),
                             qn_value_float(1.0 / sqrt((double)HEAD_WIDTH)),
                             describe(model, &tensors[2], QN_DTYPE_F32, y, 4,
                                      (int64_t[]){batch, length, HEADS, HEAD_WIDTH})};
  double operation_count = 0.0;
  for (int64_t i = 0; i < batch; ++i) {
    operation_count += 4.0 * (double)host_lengths[i] * (double)host_lengths[i] * (double)WIDTH;
  }
  return kernels_call(model->kernels, KERNEL_ATTENTION, args, 4, operation_count);
}

static qn_status_t entrance(model_t* model, int64_t batch, int64_t length, const int64_t* ids,
                            float* y) {
  const weights_t* weights = &model->weights;
  tensor_t tensors[7];
  const qn_value_t args[] = {
      describe(model, &tensors[0], QN_DTYPE_I64, ids, 2, (int64_t[]){batch, length}),
      f32_2(model, &tensors[1], weights->words, VOCABULARY, WIDTH),
      f32_2(model, &tensors[2], weights->positions, POSITIONS, WIDTH),
      f32_2(model, &tensors[3], weights->types, TOKEN_TYPES, WIDTH),
      f32_1(model, &tensors[4], weights->norm.gamma, WIDTH),
      f32_1(model, &tensors[5], weights->norm.beta, WIDTH),
      qn_value_float(NORM_EPSILON),
      f32_3(model, &tensors[6], y, batch, length, WIDTH)};
  return kernels_call(model->kernels, KERNEL_EMBED_LAYERNORM, args, 8, 0.0);
}

// Computes the mean over the words of each sentence, scaled to unit length.
static qn_status_t finish(model_t* model, int64_t batch, int64_t length, const int64_t* lengths,
                          const float* hidden, float* pooled, float* embeddings) {
  tensor_t tensors[4];
  const qn_value_t pool[] = {f32_3(model, &tensors[0], hidden, batch, length, WIDTH),
                             describe(model, &tensors[1], QN_DTYPE_I64, lengths, 1, &batch),
                             f32_2(model, &tensors[2], pooled, batch, WIDTH)};
  TRY(kernels_call(model->kernels, KERNEL_MEAN_POOL, pool, 3, 0.0));
  const qn_value_t normalize[] = {f32_2(model, &tensors[2], pooled, batch, WIDTH),
                                  f32_2(model, &tensors[3], embeddings, batch, WIDTH)};
  return kernels_call(model->kernels, KERNEL_L2_NORMALIZE, normalize, 2, 0.0);
}

qn_status_t model_create(const weights_t* weights, kernels_t* kernels, int64_t row_capacity,
                         model_t* out_model) {
  *out_model = (model_t){.kernels = kernels, .row_capacity = row_capacity};
  place_t* place = &kernels->place;
  TRY(weights_import(weights, place, &out_model->weights));
  const int64_t tile = kernels->row_tile;
  const size_t row_count = (size_t)((row_capacity + tile - 1) / tile * tile);
  void* buffer = NULL;
  for (size_t i = 0; i < sizeof buffer_widths / sizeof buffer_widths[0]; ++i) {
    // Zeros, because the rows that fill up a tile are read before they are written.
    TRY(place_reserve(place, row_count * (size_t)buffer_widths[i] * sizeof(float), &buffer));
    out_model->buffers[i] = buffer;
  }
  if (place->is_host) {
    return QN_OK;
  }
  TRY(place_reserve(place, row_count * sizeof *out_model->ids, &buffer));
  out_model->ids = buffer;
  TRY(place_reserve(place, row_count * sizeof *out_model->lengths, &buffer));
  out_model->lengths = buffer;
  TRY(place_reserve(place, row_count * WIDTH * sizeof *out_model->embeddings, &buffer));
  out_model->embeddings = buffer;
  return QN_OK;
}

void model_destroy(model_t* model) {
  // The place owns the memory.
  memset(model, 0, sizeof *model);
}

qn_status_t model_embed(model_t* model, int64_t batch, int64_t length, const int64_t* ids,
                        const int64_t* lengths, float* embeddings) {
  const int64_t rows = batch * length;
  if (rows > model->row_capacity) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a batch of %lld tokens, the model has buffers for %lld", (long long)rows,
                          (long long)model->row_capacity);
  }
  const place_t* place = &model->kernels->place;
  const int64_t* host_lengths = lengths;
  float* host_embeddings = embeddings;
  if (!place->is_host) {
    TRY(place_write(place, model->ids, ids, (size_t)rows * sizeof *ids));
    TRY(place_write(place, model->lengths, lengths, (size_t)batch * sizeof *lengths));
    ids = model->ids;
    lengths = model->lengths;
    embeddings = model->embeddings;
  }
  float* hidden = model->buffers[HIDDEN];
  float* joined = model->buffers[JOINED];
  float* context = model->buffers[CONTEXT];
  float* summed = model->buffers[SUMMED];
  float* inner = model->buffers[INNER];

  TRY(entrance(model, batch, length, ids, hidden));
  for (int i = 0; i < LAYERS; ++i) {
    const layer_t* layer = &model->weights.layers[i];
    TRY(product(model, KERNEL_LINEAR, rows, hidden, &layer->query_key_value, NULL, joined));
    TRY(attention(model, batch, length, joined, lengths, host_lengths, context));
    TRY(product(model, KERNEL_LINEAR_RESIDUAL, rows, context, &layer->attention_output, hidden,
                summed));
    TRY(layer_norm(model, rows, summed, &layer->attention_norm, hidden));
    TRY(product(model, KERNEL_LINEAR_GELU, rows, hidden, &layer->inner, NULL, inner));
    TRY(product(model, KERNEL_LINEAR_RESIDUAL, rows, inner, &layer->outer, hidden, summed));
    TRY(layer_norm(model, rows, summed, &layer->output_norm, hidden));
  }
  // `context` is unused here, and takes the means.
  TRY(finish(model, batch, length, lengths, hidden, context, embeddings));
  if (place->is_host) {
    return QN_OK;
  }
  return place_read(place, host_embeddings, embeddings,
                    (size_t)(batch * WIDTH) * sizeof *embeddings);
}
