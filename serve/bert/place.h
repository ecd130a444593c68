// SPDX-License-Identifier: Apache-2.0
// serve/bert/place.h: the memory of the kernels' tensors: the host's, or that of a GPU.
//
// On a device whose memory the host can access, a place returns the host's own pointers; elsewhere
// it owns copies. One thread at a time.
#ifndef SERVE_BERT_PLACE_H_
#define SERVE_BERT_PLACE_H_

#include "quern/quern.h"

typedef struct bert_place {
  qn_device_t device;
  bool is_host;
  void** blocks;  // owned: the allocations
  size_t block_count;
} bert_place_t;

// Opens the first device of the target's kind. Errors: UNAVAILABLE when there is none,
// OUT_OF_MEMORY.
QN_MUST_USE qn_status_t bert_place_open(const qn_target_t* target, bert_place_t* out_place);
// Also closes a zeroed place. A sync must follow all work that uses its memory.
void bert_place_close(bert_place_t* place);

// Returns zeroed memory of the place, which lives as long as the place. Errors: OUT_OF_MEMORY.
QN_MUST_USE qn_status_t bert_place_reserve(bert_place_t* place, size_t size_bytes,
                                           void** out_memory);
// Returns the kernels' pointer for `size_bytes` at `host`: `host` itself, or a copy.
QN_MUST_USE qn_status_t bert_place_import(bert_place_t* place, const void* host, size_t size_bytes,
                                          const void** out_memory);
// Copies on the default stream; bert_place_read waits for all work before it.
QN_MUST_USE qn_status_t bert_place_write(const bert_place_t* place, void* to, const void* host,
                                         size_t size_bytes);
QN_MUST_USE qn_status_t bert_place_read(const bert_place_t* place, void* host, const void* from,
                                        size_t size_bytes);

#endif  // SERVE_BERT_PLACE_H_
