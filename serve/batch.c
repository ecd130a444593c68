// SPDX-License-Identifier: Apache-2.0
// serve/batch.c: collecting sequences, and giving results back.
#include "serve/batch.h"

#include <stdlib.h>
#include <string.h>

qn_status_t serve_batch_create(size_t max_tokens, size_t max_sequences, size_t width,
                               serve_batch_t** out_batch) {
  *out_batch = NULL;
  serve_batch_t* batch = calloc(1, sizeof *batch);
  if (batch) {
    batch->max_tokens = max_tokens;
    batch->max_sequences = max_sequences;
    batch->width = width;
    batch->ids = calloc(max_tokens, sizeof *batch->ids);
    batch->positions = calloc(max_tokens, sizeof *batch->positions);
    batch->offsets = calloc(max_sequences + 1, sizeof *batch->offsets);
    batch->parts = calloc(max_sequences, sizeof *batch->parts);
    batch->pooled = calloc(max_sequences, width * sizeof *batch->pooled);
    // Few requests want the results of tokens; without them no page of this is used.
    batch->tokens = calloc(max_tokens, width * sizeof *batch->tokens);
  }
  if (!batch || !batch->ids || !batch->positions || !batch->offsets || !batch->parts ||
      !batch->pooled || !batch->tokens) {
    serve_batch_destroy(batch);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for a batch of %zu tokens",
                          max_tokens);
  }
  *out_batch = batch;
  return QN_OK;
}

void serve_batch_destroy(serve_batch_t* batch) {
  if (!batch) return;
  free(batch->ids);
  free(batch->positions);
  free(batch->offsets);
  free(batch->parts);
  free(batch->pooled);
  free(batch->tokens);
  free(batch);
}

void serve_batch_clear(serve_batch_t* batch) {
  batch->sequence_count = 0;
  batch->token_count = 0;
  batch->longest = 0;
  batch->has_pooled = false;
  batch->has_tokens = false;
  batch->is_first_seen = false;
}

bool serve_batch_add(serve_batch_t* batch, serve_request_t* request, size_t sequence) {
  const size_t begin = request->offsets[sequence];
  const size_t length = request->offsets[sequence + 1] - begin;
  if (batch->sequence_count == batch->max_sequences ||
      length > batch->max_tokens - batch->token_count) {
    return false;
  }
  const size_t at = batch->token_count;
  for (size_t i = 0; i < length; ++i) {
    batch->ids[at + i] = request->ids[begin + i];
    batch->positions[at + i] = (int64_t)i;
  }
  batch->parts[batch->sequence_count] = (serve_batch_part_t){request, sequence};
  batch->sequence_count++;
  batch->token_count += length;
  batch->offsets[batch->sequence_count] = (int64_t)batch->token_count;
  if (length > batch->longest) batch->longest = length;
  batch->has_pooled |= request->pooled != NULL;
  batch->has_tokens |= request->tokens != NULL;
  return true;
}

void serve_batch_scatter(const serve_batch_t* batch) {
  const size_t width = batch->width;
  for (size_t i = 0; i < batch->sequence_count; ++i) {
    const serve_request_t* request = batch->parts[i].request;
    const size_t sequence = batch->parts[i].sequence;
    if (request->pooled) {
      memcpy(request->pooled + sequence * width, batch->pooled + i * width, width * sizeof(float));
    }
    if (request->tokens) {
      const size_t from = (size_t)batch->offsets[i];
      const size_t count = (size_t)batch->offsets[i + 1] - from;
      memcpy(request->tokens + request->offsets[sequence] * width, batch->tokens + from * width,
             count * width * sizeof(float));
    }
  }
}
