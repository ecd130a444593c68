// SPDX-License-Identifier: Apache-2.0
// serve/bert/config.h: the sizes of a BERT encoder, from the files beside its weights.
//
//   config.json                 sizes, activation, epsilon; needed
//   modules.json                what sentence-transformers runs after the encoder
//   1_Pooling/config.json       how rows become one vector; the folder is named in modules.json
//   sentence_bert_config.json   max_seq_length
//
// Without the last three the rows of a sentence are averaged, and a sentence is as long as the
// table of positions.
#ifndef SERVE_BERT_CONFIG_H_
#define SERVE_BERT_CONFIG_H_

#include "quern/quern.h"

typedef enum bert_activation {
  BERT_GELU,       // by erf
  BERT_GELU_TANH,  // the approximation by tanh
  BERT_RELU,
} bert_activation_t;

typedef enum bert_pooling {
  BERT_POOLING_MEAN,  // of all tokens of a sentence
  BERT_POOLING_CLS,   // its first token
} bert_pooling_t;

typedef struct bert_config {
  int64_t layers;
  int64_t width;  // of a row between layers
  int64_t heads;  // a divisor of `width`
  int64_t inner_width;
  int64_t vocabulary;
  int64_t positions;
  int64_t token_types;
  double norm_epsilon;
  bert_activation_t activation;
  bert_pooling_t pooling;
  int64_t max_tokens;  // of a sentence, with its special tokens; at most `positions`
} bert_config_t;

// Reads the files of a folder. Errors: NOT_FOUND without config.json; SYNTAX for a file that is no
// JSON; VALUE_ERROR for values out of range, naming file, field, value and what was expected;
// UNSUPPORTED for kinds of model, activation, position or pooling that this encoder does not
// compute, with those that it does; IO, OUT_OF_MEMORY.
QN_MUST_USE qn_status_t bert_config_read(const char* folder, bert_config_t* out_config);

// Returns "mean" or "cls".
const char* bert_pooling_text(bert_pooling_t pooling);

#endif  // SERVE_BERT_CONFIG_H_
