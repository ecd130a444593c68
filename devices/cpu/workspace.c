// devices/cpu/workspace.c: keeps freed blocks, whose sizes are powers of two, for reuse.
//
// A freed block records its stream and how many tasks that stream had enqueued. The same stream may
// reuse it at once, because its tasks run in order. Another stream may reuse it after the first one
// has completed those tasks. Kept blocks above a limit are freed as soon as their stream has passed
// them.
//
// Requirement: kept_bytes is the sum of the sizes of the kept blocks.
#include "devices/cpu/workspace.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"

#define ALIGNMENT 64u
#define SMALLEST_CLASS 12u  // 4 KiB
#define CLASS_COUNT 64u
#define KEEP_LIMIT_BYTES ((size_t)256 << 20)

// Lies before every block.
typedef struct header {
  _Alignas(ALIGNMENT) uint32_t size_class;
  qn__cpu_stream_t* stream;  // retained until it has passed; NULL: any stream may reuse the block
  uint64_t passed_at;
  struct header* next;
} header_t;

static struct {
  qn__mutex_t mutex;
  header_t* free_blocks[CLASS_COUNT];
  size_t kept_bytes;
} cache;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;
static bool is_cache_usable;

static void lock_cache(void* self) {
  (void)self;
  qn__mutex_lock(&cache.mutex);
}
static void unlock_cache(void* self) {
  (void)self;
  qn__mutex_unlock(&cache.mutex);
}

static void fork_child(void* self) {
  (void)self;
  qn_status_free(qn__mutex_init(&cache.mutex));
}

static void make_cache(void) {
  static qn__fork_node_t node = {
      .prepare = lock_cache, .parent = unlock_cache, .child = fork_child};
  qn_status_t status = qn__mutex_init(&cache.mutex);
  is_cache_usable = qn_ok(status) && qn__fork_register(&node);
  qn_status_free(status);
}

static size_t class_bytes(uint32_t size_class) {
  return (size_t)1 << size_class;
}

#ifndef NDEBUG
// Tests the requirement. Holds the lock.
static bool check_cache(void) {
  size_t bytes = 0;
  for (uint32_t c = 0; c < CLASS_COUNT; c++) {
    for (const header_t* block = cache.free_blocks[c]; block; block = block->next) {
      if (block->size_class != c) return false;
      bytes += class_bytes(c);
    }
  }
  return bytes == cache.kept_bytes;
}
#endif

static bool is_passed(const header_t* block) {
  return !block->stream || qn__cpu_stream_completed(block->stream) >= block->passed_at;
}

// Takes a kept block that `stream` may use now. Returns NULL when there is none. Holds the lock.
static header_t* take_kept(uint32_t size_class, const qn__cpu_stream_t* stream) {
  for (header_t** at = &cache.free_blocks[size_class]; *at; at = &(*at)->next) {
    header_t* block = *at;
    if (!(block->stream && block->stream == stream) && !is_passed(block)) continue;
    *at = block->next;
    cache.kept_bytes -= class_bytes(size_class);
    return block;
  }
  return NULL;
}

void* qn__cpu_workspace_allocate(qn__cpu_stream_t* stream, size_t size_bytes) {
  (void)pthread_once(&cache_once, make_cache);
  size_t total;
  if (!is_cache_usable || !qn__size_add(size_bytes, sizeof(header_t), &total)) return NULL;
  uint32_t size_class = SMALLEST_CLASS;
  while (size_class < 62 && class_bytes(size_class) < total) size_class++;
  if (class_bytes(size_class) < total) return NULL;
  qn__mutex_lock(&cache.mutex);
  header_t* block = take_kept(size_class, stream);
  assert(check_cache());
  qn__mutex_unlock(&cache.mutex);
  if (block) {
    if (block->stream) qn__cpu_stream_release(block->stream);
  } else {
    void* fresh;
    if (posix_memalign(&fresh, ALIGNMENT, class_bytes(size_class)) != 0) return NULL;
    block = fresh;
  }
  *block = (header_t){.size_class = size_class};
  return block + 1;
}

// Unlinks passed blocks until the limit holds, and returns them as a list. Holds the lock.
static header_t* trim(void) {
  header_t* doomed = NULL;
  for (uint32_t c = CLASS_COUNT; c-- > SMALLEST_CLASS && cache.kept_bytes > KEEP_LIMIT_BYTES;) {
    for (header_t** at = &cache.free_blocks[c]; *at && cache.kept_bytes > KEEP_LIMIT_BYTES;) {
      header_t* block = *at;
      if (!is_passed(block)) {
        at = &block->next;
        continue;
      }
      *at = block->next;
      block->next = doomed;
      doomed = block;
      cache.kept_bytes -= class_bytes(c);
    }
  }
  return doomed;
}

void qn__cpu_workspace_free(qn__cpu_stream_t* stream, void* pointer) {
  if (!pointer) return;
  header_t* block = (header_t*)pointer - 1;
  block->stream = stream;
  if (stream) {
    qn__cpu_stream_retain(stream);
    block->passed_at = qn__cpu_stream_enqueued(stream);
  }
  qn__mutex_lock(&cache.mutex);
  block->next = cache.free_blocks[block->size_class];
  cache.free_blocks[block->size_class] = block;
  cache.kept_bytes += class_bytes(block->size_class);
  header_t* doomed = cache.kept_bytes > KEEP_LIMIT_BYTES ? trim() : NULL;
  assert(check_cache());
  qn__mutex_unlock(&cache.mutex);
  while (doomed) {
    header_t* next = doomed->next;
    if (doomed->stream) qn__cpu_stream_release(doomed->stream);
    free(doomed);
    doomed = next;
  }
}
