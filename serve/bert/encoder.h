// SPDX-License-Identifier: Apache-2.0
// serve/bert/encoder.h: an encoder from a folder in the layout of Hugging Face.
#ifndef SERVE_BERT_ENCODER_H_
#define SERVE_BERT_ENCODER_H_

#include "serve/bert/model.h"
#include "serve/encoder.h"

// Where the kernels of an encoder came from.
typedef struct bert_origins {
  size_t counts[QN_SOURCE_REMOTE + 1];  // by qn_source_t
  qn_cache_key_t keys[BERT_KERNEL_COUNT];
} bert_origins_t;

// Reads a folder (config.h, weights.h), looks the kernels up and runs a first batch, so that memory
// and weights are there for the next one. Batches need room for a sentence of the model: max_tokens
// of the options is raised to it. Errors: those of bert_config_read, bert_weights_load,
// bert_model_open and bert_model_run. `*out_encoder` is owned: its destroy().
QN_MUST_USE qn_status_t bert_encoder_open(const bert_model_options_t* options, const char* folder,
                                          serve_encoder_t* out_encoder,
                                          bert_origins_t* out_origins);

#endif  // SERVE_BERT_ENCODER_H_
