// SPDX-License-Identifier: Apache-2.0
// serve/bert/safetensors.h: read access to the tensors of one safetensors file, held in memory.
//
// The format: 8 bytes little-endian header size, a JSON object {name: {dtype, shape,
// data_offsets}}, then the raw data, little-endian and row-major. One thread at a time until the
// file is open; then any thread may read.
#ifndef SERVE_BERT_SAFETENSORS_H_
#define SERVE_BERT_SAFETENSORS_H_

#include "quern/quern.h"

typedef struct safetensors safetensors_t;

enum { SAFETENSORS_MAX_RANK = 8 };

// One tensor, all of it checked. Borrowed until the file is closed.
typedef struct safetensors_tensor {
  const char* dtype;  // as the file writes it: "F32", "BF16"
  size_t rank;
  int64_t shape[SAFETENSORS_MAX_RANK];
  const void* data;  // of any alignment
  size_t size_bytes;
} safetensors_tensor_t;

// Reads `path` and checks every tensor that its header describes. Errors: NOT_FOUND, IO; DATA_LOSS
// for anything malformed, naming the tensor, or a file that changes its size meanwhile;
// OUT_OF_MEMORY. Owned: safetensors_close.
QN_MUST_USE qn_status_t safetensors_open(const char* path, safetensors_t** out_file);
// The same of bytes in memory, which are borrowed until the file is closed. `path` is for messages.
QN_MUST_USE qn_status_t safetensors_read(const char* path, const void* bytes, size_t size_bytes,
                                         safetensors_t** out_file);
// The tensors of the file end with it. NULL is ignored.
void safetensors_close(safetensors_t* file);

const char* safetensors_path(const safetensors_t* file);
// Finds a tensor by name. Returns false if there is none.
bool safetensors_get(const safetensors_t* file, const char* name, safetensors_tensor_t* out_tensor);
// Goes through the names: returns the one after `name` (NULL: the first one); NULL at the end.
const char* safetensors_next(const safetensors_t* file, const char* name);

#endif  // SERVE_BERT_SAFETENSORS_H_
