// SPDX-License-Identifier: Apache-2.0
// serve/bert/model.h: the forward pass of a BERT encoder: batches of token ids in, vectors out.
//
// One thread at a time: a model has its own buffers. The parallelism is inside the kernels.
#ifndef SERVE_BERT_MODEL_H_
#define SERVE_BERT_MODEL_H_

#include "serve/batch.h"
#include "serve/bert/kernels.h"
#include "serve/bert/weights.h"

typedef struct bert_model_options {
  qn_engine_t* engine;                // borrowed
  const char* target;                 // as qn_target_parse reads it
  const qn_lookup_options_t* lookup;  // borrowed for the call; NULL: defaults
  bool is_adaptive;      // on the CPU, kernels become special for frequent numbers of tokens
  size_t max_tokens;     // of a batch
  size_t max_sequences;  // of a batch
  int32_t core_budget;   // of the CPU's kernels; 0: all
} bert_model_options_t;

typedef struct bert_model {
  bert_kernels_t kernels;
  qn_target_t* target;
  bert_place_t place;
  bert_weights_t weights;  // as the kernels see them
  size_t max_tokens;
  size_t max_sequences;
  int32_t core_budget;
  float* buffers[7];
  // Copies of inputs and outputs, for a device with its own memory.
  int64_t* ids;
  int64_t* positions;
  int64_t* offsets;
  float* pooled;
} bert_model_t;

// Looks the kernels up and makes buffers. `weights` are borrowed until the model is closed. Errors:
// those of qn_target_parse and qn_engine_function; UNAVAILABLE without a device of the target;
// OUT_OF_MEMORY. Owned: bert_model_close.
QN_MUST_USE qn_status_t bert_model_open(const bert_model_options_t* options,
                                        const bert_weights_t* weights, bert_model_t* out_model);
// Also closes a zeroed model.
void bert_model_close(bert_model_t* model);

// Writes the results of a batch: `pooled` if it has_pooled, `tokens` if it has_tokens. Errors:
// those of the calls; INVALID_ARGUMENT for a batch beyond the buffers.
QN_MUST_USE qn_status_t bert_model_run(bert_model_t* model, serve_batch_t* batch);

#endif  // SERVE_BERT_MODEL_H_
