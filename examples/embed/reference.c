// reference.c: every formula written the obvious way, libm for the functions, sums in double.
#include "reference.h"

#include <math.h>
#include <stdlib.h>

// Computes y = x wᵀ + bias over `rows` rows.
static void product(const matrix_t* matrix, int64_t rows, const double* x, double* y) {
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
static void normalize(const norm_t* norm, int64_t rows, const double* addend, double* x) {
  for (int64_t row = 0; row < rows; ++row) {
    double* values = x + row * WIDTH;
    double mean = 0.0;
    for (int64_t k = 0; k < WIDTH; ++k) {
      values[k] += addend != NULL ? addend[row * WIDTH + k] : 0.0;
      mean += values[k] / (double)WIDTH;
    }
    double variance = 0.0;
    for (int64_t k = 0; k < WIDTH; ++k) {
      variance += (values[k] - mean) * (values[k] - mean) / (double)WIDTH;
    }
    for (int64_t k = 0; k < WIDTH; ++k) {
      values[k] = (values[k] - mean) / sqrt(variance + NORM_EPSILON) * (double)norm->gamma[k] +
                  (double)norm->beta[k];
    }
  }
}

// Computes one head of one query row. `joined` has the queries, keys and values, each
// [rows, HEADS, HEAD_WIDTH]; `score` is [rows].
static void attend(int64_t rows, const double* joined, int64_t head, int64_t row, double* score,
                   double* y) {
  const double* query = joined + row * WIDTH + head * HEAD_WIDTH;
  const double* keys = joined + rows * WIDTH + head * HEAD_WIDTH;
  const double* values = keys + rows * WIDTH;
  double top = -INFINITY;
  for (int64_t j = 0; j < rows; ++j) {
    score[j] = 0.0;
    for (int64_t c = 0; c < HEAD_WIDTH; ++c) {
      score[j] += query[c] * keys[j * WIDTH + c] / sqrt((double)HEAD_WIDTH);
    }
    top = fmax(top, score[j]);
  }
  double total = 0.0;
  for (int64_t j = 0; j < rows; ++j) {
    score[j] = exp(score[j] - top);
    total += score[j];
  }
  for (int64_t c = 0; c < HEAD_WIDTH; ++c) {
    double sum = 0.0;
    for (int64_t j = 0; j < rows; ++j) {
      sum += score[j] * values[j * WIDTH + c];
    }
    y[row * WIDTH + head * HEAD_WIDTH + c] = sum / total;
  }
}

static void run_layer(const layer_t* layer, int64_t rows, double* hidden, double* wide,
                      double* narrow, double* score) {
  product(&layer->query, rows, hidden, wide);
  product(&layer->key, rows, hidden, wide + rows * WIDTH);
  product(&layer->value, rows, hidden, wide + 2 * rows * WIDTH);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < HEADS; ++head) {
      attend(rows, wide, head, row, score, narrow);
    }
  }
  product(&layer->attention_output, rows, narrow, wide);
  normalize(&layer->attention_norm, rows, wide, hidden);
  product(&layer->inner, rows, hidden, wide);
  for (int64_t i = 0; i < rows * INNER_WIDTH; ++i) {
    wide[i] = wide[i] / 2.0 * (1.0 + erf(wide[i] / sqrt(2.0)));
  }
  product(&layer->outer, rows, wide, narrow);
  normalize(&layer->output_norm, rows, narrow, hidden);
}

qn_status_t reference_embed(const weights_t* weights, int64_t length, const int64_t* ids,
                            float* embedding) {
  const size_t rows = (size_t)length;
  double* memory = calloc(rows * (WIDTH + INNER_WIDTH + WIDTH + 1), sizeof *memory);
  if (memory == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the plain reference");
  }
  double* hidden = memory;
  double* wide = hidden + rows * WIDTH;
  double* narrow = wide + rows * INNER_WIDTH;
  double* score = narrow + rows * WIDTH;

  for (int64_t row = 0; row < length; ++row) {
    for (int64_t k = 0; k < WIDTH; ++k) {
      hidden[row * WIDTH + k] = (double)weights->words[ids[row] * WIDTH + k] +
                                (double)weights->positions[row * WIDTH + k] +
                                (double)weights->types[k];
    }
  }
  normalize(&weights->norm, length, NULL, hidden);
  for (int i = 0; i < LAYERS; ++i) {
    run_layer(&weights->layers[i], length, hidden, wide, narrow, score);
  }
  double mean[WIDTH] = {0};
  double square = 0.0;
  for (int64_t k = 0; k < WIDTH; ++k) {
    for (int64_t row = 0; row < length; ++row) {
      mean[k] += hidden[row * WIDTH + k] / (double)length;
    }
    square += mean[k] * mean[k];
  }
  for (int64_t k = 0; k < WIDTH; ++k) {
    embedding[k] = (float)(mean[k] / fmax(sqrt(square), 1e-12));
  }
  free(memory);
  return QN_OK;
}
