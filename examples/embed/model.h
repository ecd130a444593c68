// model.h: the forward pass of all-MiniLM-L6-v2: token ids in, one unit vector per sentence out.
//
// One thread at a time: a model has its own buffers. The parallelism is inside the kernels.
#ifndef EMBED_MODEL_H_
#define EMBED_MODEL_H_

#include "kernels.h"
#include "weights.h"

// The sentences of one batch, their tokens one after another. Borrowed until model_embed returns.
typedef struct batch {
  int64_t sentence_count;
  int64_t token_count;
  int64_t longest;           // tokens of the longest sentence
  int64_t square_count;      // the sum of the squares of the lengths, for the count of operations
  const int64_t* ids;        // [token_count]
  const int64_t* positions;  // [token_count]: of each token in its sentence
  const int64_t* offsets;    // [sentence_count + 1]: of the first token; the last is token_count
} batch_t;

typedef struct model {
  weights_t weights;     // as the kernels see them; borrowed
  kernels_t* kernels;    // borrowed
  int64_t row_capacity;  // tokens that the buffers hold
  float* buffers[7];
  // Host copies of inputs and outputs, for a device with its own memory.
  int64_t* ids;
  int64_t* positions;
  int64_t* offsets;
  float* embeddings;
} model_t;

// Makes buffers for batches of up to `row_capacity` tokens. Errors: OUT_OF_MEMORY. Owned:
// model_destroy.
qn_status_t model_create(const weights_t* weights, kernels_t* kernels, int64_t row_capacity,
                         model_t* out_model);
// Also destroys a zeroed model.
void model_destroy(model_t* model);

// Writes [sentence_count, WIDTH] to `embeddings`. Errors: those of the calls; INVALID_ARGUMENT for
// a batch beyond the buffers.
qn_status_t model_embed(model_t* model, const batch_t* batch, float* embeddings);

#endif  // EMBED_MODEL_H_
