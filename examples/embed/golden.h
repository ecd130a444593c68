// SPDX-License-Identifier: Apache-2.0
// golden.h: the sentences of golden/ as token ids, and their expected embeddings.
//
// Read-only after loading. make_golden.py makes the files.
#ifndef EMBED_GOLDEN_H_
#define EMBED_GOLDEN_H_

#include "tools/cli/run/npy.h"

typedef struct golden {
  int64_t count;      // sentences
  int64_t width;      // of an embedding
  int64_t longest;    // tokens of the longest one
  int64_t* ids;       // [count, longest], padded
  int64_t* lengths;   // [count], each from 1 to longest
  float* embeddings;  // [count, width]
  npy_array_t arrays[3];
} golden_t;

// Reads ids.npy, lengths.npy and embeddings.npy of `directory`. The embeddings must be `width`
// wide. Errors: those of npy_read; VALUE_ERROR for files that do not fit each other. Owned:
// golden_free.
qn_status_t golden_load(const char* directory, int64_t width, golden_t* out_golden);
// Also frees a zeroed one.
void golden_free(golden_t* golden);

#endif  // EMBED_GOLDEN_H_
