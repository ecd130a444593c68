// SPDX-License-Identifier: Apache-2.0
// serve/bert/reference.c: every formula written the obvious way, libm for the functions, sums in
// double.
#include "serve/bert/reference.h"

#include <math.h>
#include <stdlib.h>

// Computes y = x wᵀ + bias over `rows` rows.
static void product(const bert_matrix_t* matrix, int64_t rows, const double* x, double* y) {
  for (int64_t row = 0; row < rows; ++row) {
    const double* from = x + row * matrix->inputs;
    for (int64_t output = 0; output < matrix->outputs; ++output) {
      const float* weight = matrix->weight + output * matrix->inputs;
      double sum = (double)matrix->bias[output];
      for (int64_t input = 0; input < matrix->inputs; ++input) {
        sum += from[input] * (double)weight[input];
      }
      y[row * matrix->outputs + output] = sum;
    }
  }
}

// Computes x = normalised (x + addend), row by row; `addend` may be NULL.
static void normalize(const bert_config_t* config, const bert_norm_t* norm, int64_t rows,
                      const double* addend, double* x) {
  const int64_t width = config->width;
  for (int64_t row = 0; row < rows; ++row) {
    double* values = x + row * width;
    double mean = 0.0;
    for (int64_t k = 0; k < width; ++k) {
      values[k] += addend != NULL ? addend[row * width + k] : 0.0;
      mean += values[k] / (double)width;
    }
    double variance = 0.0;
    for (int64_t k = 0; k < width; ++k) {
      variance += (values[k] - mean) * (values[k] - mean) / (double)width;
    }
    for (int64_t k = 0; k < width; ++k) {
      values[k] =
          (values[k] - mean) / sqrt(variance + config->norm_epsilon) * (double)norm->gamma[k] +
          (double)norm->beta[k];
    }
  }
}

// Computes one head of one query row. `joined` has the queries, keys and values, each
// [rows, heads, head width]; `score` is [rows].
static void attend(const bert_config_t* config, int64_t rows, const double* joined, int64_t head,
                   int64_t row, double* score, double* y) {
  const int64_t width = config->width;
  const int64_t head_width = width / config->heads;
  const double* query = joined + row * width + head * head_width;
  const double* keys = joined + rows * width + head * head_width;
  const double* values = keys + rows * width;
  double top = -INFINITY;
  for (int64_t j = 0; j < rows; ++j) {
    score[j] = 0.0;
    for (int64_t c = 0; c < head_width; ++c) {
      score[j] += query[c] * keys[j * width + c] / sqrt((double)head_width);
    }
    top = fmax(top, score[j]);
  }
  double total = 0.0;
  for (int64_t j = 0; j < rows; ++j) {
    score[j] = exp(score[j] - top);
    total += score[j];
  }
  for (int64_t c = 0; c < head_width; ++c) {
    double sum = 0.0;
    for (int64_t j = 0; j < rows; ++j) {
      sum += score[j] * values[j * width + c];
    }
    y[row * width + head * head_width + c] = sum / total;
  }
}

static double activate(bert_activation_t activation, double z) {
  switch (activation) {
    case BERT_GELU:
      return z / 2.0 * (1.0 + erf(z / sqrt(2.0)));
    case BERT_GELU_TANH:
      return z / 2.0 * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (z + 0.044715 * z * z * z)));
    case BERT_RELU:
      return fmax(z, 0.0);
  }
  return z;
}

static void run_layer(const bert_config_t* config, const bert_layer_t* layer, int64_t rows,
                      double* hidden, double* wide, double* narrow, double* score) {
  const int64_t size = rows * config->width;
  product(&layer->query, rows, hidden, wide);
  product(&layer->key, rows, hidden, wide + size);
  product(&layer->value, rows, hidden, wide + 2 * size);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < config->heads; ++head) {
      attend(config, rows, wide, head, row, score, narrow);
    }
  }
  product(&layer->attention_output, rows, narrow, wide);
  normalize(config, &layer->attention_norm, rows, wide, hidden);
  product(&layer->inner, rows, hidden, wide);
  for (int64_t i = 0; i < rows * config->inner_width; ++i) {
    wide[i] = activate(config->activation, wide[i]);
  }
  product(&layer->outer, rows, wide, narrow);
  normalize(config, &layer->output_norm, rows, narrow, hidden);
}

static void pool(const bert_config_t* config, int64_t rows, const double* hidden, float* vector) {
  const int64_t used = config->pooling == BERT_POOLING_CLS ? 1 : rows;
  for (int64_t k = 0; k < config->width; ++k) {
    double sum = 0.0;
    for (int64_t row = 0; row < used; ++row) sum += hidden[row * config->width + k];
    vector[k] = (float)(sum / (double)used);
  }
}

qn_status_t bert_reference(const bert_weights_t* weights, int64_t length, const int64_t* ids,
                           float* vector) {
  const bert_config_t* config = &weights->config;
  const int64_t width = config->width;
  const size_t rows = (size_t)length;
  const size_t wide_width =
      (size_t)(config->inner_width > 3 * width ? config->inner_width : 3 * width);
  double* memory = calloc(rows * ((size_t)width * 2 + wide_width + 1), sizeof *memory);
  if (memory == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the plain reference");
  }
  double* hidden = memory;
  double* wide = hidden + rows * (size_t)width;
  double* narrow = wide + rows * wide_width;
  double* score = narrow + rows * (size_t)width;
  const bert_embeddings_t* tables = &weights->embeddings;
  for (int64_t row = 0; row < length; ++row) {
    for (int64_t k = 0; k < width; ++k) {
      hidden[row * width + k] = (double)tables->words[ids[row] * width + k] +
                                (double)tables->positions[row * width + k] +
                                (double)tables->types[k];
    }
  }
  normalize(config, &tables->norm, length, NULL, hidden);
  for (int64_t i = 0; i < config->layers; ++i) {
    run_layer(config, &weights->layers[i], length, hidden, wide, narrow, score);
  }
  pool(config, length, hidden, vector);
  free(memory);
  return QN_OK;
}
