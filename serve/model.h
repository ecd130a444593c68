// SPDX-License-Identifier: Apache-2.0
// serve/model.h: a loaded model: its tokenizer, its encoder, the queue before it and the thread
// that runs batches.
//
// Models are counted references: a request keeps the model that it was queued for, so a reload
// swaps models while requests of the old one end. Any thread.
#ifndef SERVE_MODEL_H_
#define SERVE_MODEL_H_

#include "serve/encoder.h"
#include "serve/metrics.h"
#include "serve/queue.h"
#include "serve/tokenizer.h"
#include "serve/trace.h"

typedef struct serve_model_limits {
  size_t batch_tokens;  // at least the encoder's max_tokens
  size_t batch_sequences;
  size_t queue_tokens;
  int64_t batch_delay_ns;
  serve_trace_t* trace;  // of batches; borrowed; NULL: none
} serve_model_limits_t;

typedef struct serve_model serve_model_t;

// Of every model, in protocols that have versions. perf_analyzer wants a number.
#define SERVE_MODEL_VERSION "1"

// Starts a model under a name, which is copied. `tokenizer` and `encoder` are consumed, also on
// failure. Errors: OUT_OF_MEMORY, UNAVAILABLE without a thread. `*out_model` is retained:
// serve_model_release.
QN_MUST_USE qn_status_t serve_model_create(const char* name, serve_tokenizer_t* tokenizer,
                                           const serve_encoder_t* encoder,
                                           const serve_model_limits_t* limits,
                                           serve_model_t** out_model);
void serve_model_retain(serve_model_t* model);
// The last release stops the model, which waits for its batches. NULL is ignored.
void serve_model_release(serve_model_t* model);

const char* serve_model_name(const serve_model_t* model);
const serve_encoder_t* serve_model_encoder(const serve_model_t* model);
const serve_tokenizer_t* serve_model_tokenizer(const serve_model_t* model);
serve_metrics_t* serve_model_metrics(serve_model_t* model);
serve_queue_t* serve_model_queue(serve_model_t* model);

// Lends a scratch of the tokenizer to the caller, who gives it back. NULL without memory.
serve_scratch_t* serve_model_take_scratch(serve_model_t* model);
void serve_model_give_scratch(serve_model_t* model, serve_scratch_t* scratch);

#endif  // SERVE_MODEL_H_
