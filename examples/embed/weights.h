// weights.h: the parameters of all-MiniLM-L6-v2, as the model's file has them.
//
// All are borrowed from the mapped file. Read-only after loading.
#ifndef EMBED_WEIGHTS_H_
#define EMBED_WEIGHTS_H_

#include "place.h"

enum {
  LAYERS = 6,
  WIDTH = 384,
  HEADS = 12,
  HEAD_WIDTH = WIDTH / HEADS,
  INNER_WIDTH = 1536,
  VOCABULARY = 30522,
  POSITIONS = 512,
  TOKEN_TYPES = 2,
};
// Of the model's configuration.
#define NORM_EPSILON 1e-12

typedef struct matrix {
  int64_t inputs;
  int64_t outputs;
  const float* weight;  // [outputs, inputs]
  const float* bias;    // [outputs]
} matrix_t;

typedef struct norm {
  const float* gamma;  // [WIDTH]
  const float* beta;   // [WIDTH]
} norm_t;

typedef struct layer {
  matrix_t query;
  matrix_t key;
  matrix_t value;
  matrix_t attention_output;
  norm_t attention_norm;
  matrix_t inner;
  matrix_t outer;
  norm_t output_norm;
} layer_t;

typedef struct weights {
  const float* words;      // [VOCABULARY, WIDTH]
  const float* positions;  // [POSITIONS, WIDTH]
  const float* types;      // [TOKEN_TYPES, WIDTH]
  norm_t norm;
  layer_t layers[LAYERS];
  void* storage;  // of weights.c
} weights_t;

// Reads DIRECTORY/model.safetensors; `directory` NULL: numbers from a fixed seed instead. Errors:
// those of safetensors.h, OUT_OF_MEMORY. Owned: weights_free.
qn_status_t weights_load(const char* directory, weights_t* out_weights);
// Gives the same weights for the kernels of a place. Borrowed from `from` and the place; not for
// weights_free. Errors: OUT_OF_MEMORY.
qn_status_t weights_import(const weights_t* from, place_t* place, weights_t* out_weights);
// Also frees zeroed weights.
void weights_free(weights_t* weights);

#endif  // EMBED_WEIGHTS_H_
