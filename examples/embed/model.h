// model.h: the forward pass of all-MiniLM-L6-v2: token ids in, one unit vector per sentence out.
//
// One thread at a time: a model has its own buffers. The parallelism is inside the kernels.
#ifndef EMBED_MODEL_H_
#define EMBED_MODEL_H_

#include "kernels.h"
#include "weights.h"

typedef struct model {
  weights_t weights;     // as the kernels see them; borrowed
  kernels_t* kernels;    // borrowed
  int64_t row_capacity;  // tokens that the buffers hold, padding included
  float* buffers[5];
  // Host copies of inputs and outputs, for a device with its own memory.
  int64_t* ids;
  int64_t* lengths;
  float* embeddings;
} model_t;

// Makes buffers for batches of up to `row_capacity` tokens (sentences times the longest of the
// batch). Errors: OUT_OF_MEMORY. Owned: model_destroy.
qn_status_t model_create(const weights_t* weights, kernels_t* kernels, int64_t row_capacity,
                         model_t* out_model);
// Also destroys a zeroed model.
void model_destroy(model_t* model);

// `ids` is [batch, length], padded with any valid id; `lengths` is [batch], each from 1 to length.
// Writes [batch, WIDTH] to `embeddings`. Errors: those of the calls; INVALID_ARGUMENT for a batch
// beyond the buffers.
qn_status_t model_embed(model_t* model, int64_t batch, int64_t length, const int64_t* ids,
                        const int64_t* lengths, float* embeddings);

#endif  // EMBED_MODEL_H_
