// SPDX-License-Identifier: Apache-2.0
// serve/bert/weights.h: the parameters of a BERT encoder, as the model's file has them.
//
// Tensors of f32 stay where the file was read to; those of f16 and bf16 are converted.
// Read-only after loading.
#ifndef SERVE_BERT_WEIGHTS_H_
#define SERVE_BERT_WEIGHTS_H_

#include "serve/bert/config.h"
#include "serve/bert/place.h"

typedef struct bert_matrix {
  int64_t inputs;
  int64_t outputs;
  const float* weight;  // [outputs, inputs]
  const float* bias;    // [outputs]
} bert_matrix_t;

typedef struct bert_norm {
  const float* gamma;  // [width]
  const float* beta;   // [width]
} bert_norm_t;

typedef struct bert_layer {
  bert_matrix_t query;
  bert_matrix_t key;
  bert_matrix_t value;
  bert_matrix_t attention_output;
  bert_norm_t attention_norm;
  bert_matrix_t inner;
  bert_matrix_t outer;
  bert_norm_t output_norm;
} bert_layer_t;

typedef struct bert_embeddings {
  const float* words;      // [vocabulary, width]
  const float* positions;  // [positions, width]
  const float* types;      // [token_types, width]
  bert_norm_t norm;
} bert_embeddings_t;

typedef struct bert_storage bert_storage_t;

typedef struct bert_weights {
  bert_config_t config;
  bert_embeddings_t embeddings;
  bert_layer_t* layers;     // [config.layers]
  bert_storage_t* storage;  // the file and what was made of it; NULL: borrowed from others
} bert_weights_t;

// Reads FOLDER/model.safetensors. Names may have a prefix such as "bert.", and may be those of old
// checkpoints (gamma and beta). Errors: those of safetensors_open; NOT_FOUND for a tensor, with its
// shape; VALUE_ERROR for one of another shape, with both; UNSUPPORTED for other dtypes;
// OUT_OF_MEMORY. Owned: bert_weights_free.
QN_MUST_USE qn_status_t bert_weights_load(const char* folder, const bert_config_t* config,
                                          bert_weights_t* out_weights);
// Makes numbers of about the size that training gives, the same for a seed on every machine.
// Errors: OUT_OF_MEMORY. Owned: bert_weights_free.
QN_MUST_USE qn_status_t bert_weights_seed(const bert_config_t* config, uint64_t seed,
                                          bert_weights_t* out_weights);
// Gives the same weights for the kernels of a place, which owns the copies that this makes. Errors:
// OUT_OF_MEMORY, those of devices. Owned: bert_weights_free, before `from` and the place end.
QN_MUST_USE qn_status_t bert_weights_import(const bert_weights_t* from, bert_place_t* place,
                                            bert_weights_t* out_weights);
// Also frees zeroed weights.
void bert_weights_free(bert_weights_t* weights);

// One tensor of the table of names: for programs that write files of weights, and for loops over
// all of them.
typedef struct bert_tensor {
  const char* name;  // after the prefix, with the number of the layer; valid until the next call
  size_t rank;
  int64_t shape[2];
  const float** data;  // the field of the weights
} bert_tensor_t;

// Describes a tensor of the weights, whose config and layers must be set. Returns false beyond the
// last one.
bool bert_weights_tensor(bert_weights_t* weights, size_t index, char name[96],
                         bert_tensor_t* out_tensor);

#endif  // SERVE_BERT_WEIGHTS_H_
