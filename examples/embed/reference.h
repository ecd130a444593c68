// reference.h: the same network in plain C and double precision: slow, short, and without quern.
//
// It replaces the golden embeddings when the weights are seeded ones.
#ifndef EMBED_REFERENCE_H_
#define EMBED_REFERENCE_H_

#include "weights.h"

// Embeds one sentence of `length` ids, without padding. Writes [WIDTH]. Errors: OUT_OF_MEMORY.
qn_status_t reference_embed(const weights_t* weights, int64_t length, const int64_t* ids,
                            float* embedding);

#endif  // EMBED_REFERENCE_H_
