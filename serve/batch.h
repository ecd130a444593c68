// SPDX-License-Identifier: Apache-2.0
// serve/batch.h: the sequences that a model computes at once. They lie one after another, so there
// is no padding.
#ifndef SERVE_BATCH_H_
#define SERVE_BATCH_H_

#include "serve/request.h"

typedef struct serve_batch_part {
  serve_request_t* request;  // borrowed: ends after the batch does
  size_t sequence;           // of the request
} serve_batch_part_t;

typedef struct serve_batch {
  size_t max_tokens;
  size_t max_sequences;
  size_t width;  // of a result

  uint64_t number;  // of the batch, by the queue
  size_t sequence_count;
  size_t token_count;
  size_t longest;             // tokens of the longest sequence
  int64_t* ids;               // [max_tokens]
  int64_t* positions;         // [max_tokens]: of each token in its sequence
  int64_t* offsets;           // [max_sequences + 1]: of the first token; the last is token_count
  serve_batch_part_t* parts;  // [max_sequences]
  bool has_pooled;            // some sequence wants its pooled result
  bool has_tokens;            // some sequence wants the results of its tokens

  float* pooled;       // [max_sequences, width]: results
  float* tokens;       // [max_tokens, width]: results; written if has_tokens
  bool is_first_seen;  // set by the model: it had not seen this shape
  // Set by the queue, and by the caller of the model.
  int64_t taken_ns;     // when its requests were taken
  int64_t computed_ns;  // when the model began
  int64_t compute_ns;   // that the model took
  uint32_t thread;      // serve_trace_thread
} serve_batch_t;

// Makes an empty batch. Errors: OUT_OF_MEMORY. Owned: serve_batch_destroy.
QN_MUST_USE qn_status_t serve_batch_create(size_t max_tokens, size_t max_sequences, size_t width,
                                           serve_batch_t** out_batch);
// NULL is ignored.
void serve_batch_destroy(serve_batch_t* batch);
void serve_batch_clear(serve_batch_t* batch);
// Adds a sequence of a request. Returns false, and adds nothing, if there is no room.
bool serve_batch_add(serve_batch_t* batch, serve_request_t* request, size_t sequence);
// Copies the results of each sequence to its request.
void serve_batch_scatter(const serve_batch_t* batch);

#endif  // SERVE_BATCH_H_
