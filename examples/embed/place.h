// place.h: the memory of the kernels' tensors: the host's, or that of a GPU.
//
// On a device whose memory the host can access, a place returns the host's own pointers; elsewhere
// it
// owns copies. One thread at a time.
#ifndef EMBED_PLACE_H_
#define EMBED_PLACE_H_

#include "common.h"

typedef struct place {
  qn_device_t device;
  bool is_host;
  void** blocks;  // owned: the allocations
  size_t block_count;
} place_t;

// Opens the first device of the target's kind. Errors: UNAVAILABLE when there is none,
// OUT_OF_MEMORY.
qn_status_t place_open(const qn_target_t* target, place_t* out_place);
// Also closes a zeroed place. A sync must follow all work that uses its memory.
void place_close(place_t* place);

// Returns zeroed memory of the place, which lives as long as the place. Errors: OUT_OF_MEMORY.
qn_status_t place_reserve(place_t* place, size_t size_bytes, void** out_memory);
// Returns the kernels' pointer for `size_bytes` at `host`: `host` itself, or a copy.
qn_status_t place_import(place_t* place, const void* host, size_t size_bytes,
                         const void** out_memory);
// Copies on the default stream; place_read waits for all work before it.
qn_status_t place_write(const place_t* place, void* to, const void* host, size_t size_bytes);
qn_status_t place_read(const place_t* place, void* host, const void* from, size_t size_bytes);

#endif  // EMBED_PLACE_H_
