// safetensors.h: read access to the tensors of one safetensors file, which stays mapped.
//
// The format: 8 bytes little-endian header size, a JSON object {name: {dtype, shape,
// data_offsets}}, then the raw data, little-endian and row-major. It writes no files and reads only
// f32 tensors. One thread at a time until the file is open; then any thread may read.
#ifndef EMBED_SAFETENSORS_H_
#define EMBED_SAFETENSORS_H_

#include "common.h"

typedef struct safetensors safetensors_t;

// Maps `path` and checks every tensor that its header describes. Errors: NOT_FOUND, IO; DATA_LOSS
// for anything malformed, naming the tensor. Owned: safetensors_close.
qn_status_t safetensors_open(const char* path, safetensors_t** out_file);
// The tensors of the file end with it. NULL is ignored.
void safetensors_close(safetensors_t* file);

// Returns the elements of the f32 tensor `name`, whose shape must be `shape`. Borrowed until the
// file is closed. Errors: NOT_FOUND; VALUE_ERROR for another dtype or shape.
qn_status_t safetensors_f32(const safetensors_t* file, const char* name, size_t rank,
                            const int64_t* shape, const float** out_data);

#endif  // EMBED_SAFETENSORS_H_
