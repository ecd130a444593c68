// SPDX-License-Identifier: Apache-2.0
// devices/cpu/workspace.c: workspace of the CPU: blocks of host memory, cached by ../workspace.h.
//
// A freed block records its stream and how many tasks that stream had enqueued: its use has passed
// when the stream has completed them.
#include "devices/cpu/workspace.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"
#include "devices/workspace.h"

#define ALIGNMENT 64u
#define MAX_CACHED_BYTES (UINT64_C(256) << 20)

// Lies before every block.
typedef struct header {
  _Alignas(ALIGNMENT) qn__workspace_block_t block;  // must be first: `header_of` casts it back
  qn__cpu_stream_t* stream;  // retained until it has passed; NULL: any stream may reuse the block
  uint64_t passed_at;
} header_t;

static qn__workspace_t cache;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;
static bool is_cache_usable;

static header_t* header_of(qn__workspace_block_t* block) {
  return (header_t*)(void*)block;
}

static bool is_passed(const qn__workspace_block_t* block) {
  const header_t* header = (const header_t*)(const void*)block;
  return !header->stream || qn__cpu_stream_completed(header->stream) >= header->passed_at;
}

static void make_cache(void) {
  static qn__fork_node_t node = {.mutex = &cache.mutex};
  qn_status_t status = qn__workspace_init(&cache, MAX_CACHED_BYTES, is_passed);
  is_cache_usable = qn_ok(status) && qn__fork_register(&node);
  qn_status_free(status);
}

void* qn__cpu_workspace_allocate(qn__cpu_stream_t* stream, size_t size_bytes) {
  (void)pthread_once(&cache_once, make_cache);
  size_t total;
  uint32_t size_class;
  if (!is_cache_usable || !qn__size_add(size_bytes, sizeof(header_t), &total) ||
      !qn__workspace_class_of(total, &size_class)) {
    return NULL;
  }
  qn__workspace_block_t* cached = qn__workspace_acquire(&cache, size_class, (uintptr_t)stream);
  void* memory = cached;
  if (cached) {
    if (header_of(cached)->stream) qn__cpu_stream_release(header_of(cached)->stream);
  } else if (posix_memalign(&memory, ALIGNMENT, qn__workspace_class_bytes(size_class)) != 0) {
    return NULL;
  }
  header_t* header = memory;
  *header = (header_t){.block = {.size_class = size_class}};
  return header + 1;
}

void qn__cpu_workspace_free(qn__cpu_stream_t* stream, void* pointer) {
  if (!pointer) return;
  header_t* header = (header_t*)pointer - 1;
  header->block.stream = (uintptr_t)stream;
  header->stream = stream;
  if (stream) {
    qn__cpu_stream_retain(stream);
    header->passed_at = qn__cpu_stream_enqueued(stream);
  }
  qn__workspace_block_t* doomed = qn__workspace_release(&cache, &header->block);
  while (doomed) {
    header = header_of(doomed);
    doomed = doomed->next;
    if (header->stream) qn__cpu_stream_release(header->stream);
    free(header);
  }
}
