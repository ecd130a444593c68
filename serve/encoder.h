// SPDX-License-Identifier: Apache-2.0
// serve/encoder.h: what computes batches, as a model of the server calls it.
#ifndef SERVE_ENCODER_H_
#define SERVE_ENCODER_H_

#include "serve/batch.h"

// Computes batches. Its functions are called by one thread at a time, except for set_busy.
typedef struct serve_encoder {
  void* self;
  size_t width;         // of a result
  size_t max_tokens;    // of a sequence, with the special tokens
  size_t vocabulary;    // one more than the largest id; 0: any id
  const char* kind;     // such as "bert"; borrowed from `self`
  const char* device;   // such as "cpu"; borrowed from `self`
  const char* pooling;  // "mean" or "cls"; NULL: "mean"; borrowed from `self`
  // Writes the results of the batch: `pooled` (the sentences, not scaled to unit length) if it
  // has_pooled, and `tokens` if it has_tokens.
  qn_status_t (*run)(void* self, serve_batch_t* batch);
  // Says whether requests wait: then the encoder begins no work in the background. Calls alternate,
  // the first one with true. Any thread. NULL: the encoder has no such work.
  void (*set_busy)(void* self, bool is_busy);
  void (*destroy)(void* self);
} serve_encoder_t;

#endif  // SERVE_ENCODER_H_
