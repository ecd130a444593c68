// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/memory.c: device memory that ends at inaccessible pages. See fake.h.
//
// An allocation ends where an inaccessible page begins, except for padding by alignment. That
// padding, and the bytes before the allocation, are filled and checked at its free.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake-cuda/fake.h"

#define PAGE ((size_t)4096)
#define ALIGNMENT ((size_t)256)
enum { SLACK = 0x5a, FRESH = 0xa5 };

typedef struct block {
  memory_kind_t kind;
  int ordinal;
  unsigned char* map;
  size_t map_bytes;
  unsigned char* start;
  size_t size_bytes;
  struct block* next;
} block_t;

static block_t* blocks;
static size_t used_bytes[MAX_DEVICES];

static long* counter(memory_kind_t kind) {
  return kind == MEMORY_HOST ? &fake_counts.host_blocks : &fake_counts.device_blocks;
}

CUdeviceptr fake_memory_make(memory_kind_t kind, int ordinal, size_t size_bytes) {
  const size_t limit = fake_settings.memory_bytes;
  if (size_bytes > limit || (kind != MEMORY_HOST && used_bytes[ordinal] > limit - size_bytes)) {
    return 0;
  }
  const size_t whole = (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const size_t pages = (whole + PAGE - 1) / PAGE * PAGE;
  unsigned char* map =
      mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return 0;
  block_t* block = malloc(sizeof *block);
  if (!block || mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE) != 0) {
    free(block);
    (void)munmap(map, pages + 2 * PAGE);
    return 0;
  }
  unsigned char* start = map + PAGE + pages - whole;
  *block = (block_t){kind, ordinal, map, pages + 2 * PAGE, start, size_bytes, blocks};
  memset(map + PAGE, SLACK, (size_t)(start - (map + PAGE)));
  memset(start + size_bytes, SLACK, whole - size_bytes);
  if (size_bytes <= (1u << 20)) memset(start, FRESH, size_bytes);
  blocks = block;
  if (kind != MEMORY_HOST) used_bytes[ordinal] += size_bytes;
  ++*counter(kind);
  return (CUdeviceptr)(uintptr_t)start;
}

static bool is_slack(const unsigned char* at, const unsigned char* end) {
  while (at < end && *at == SLACK) at++;
  return at == end;
}

bool fake_memory_free(CUdeviceptr address, memory_kind_t kind) {
  for (block_t** at = &blocks; *at; at = &(*at)->next) {
    block_t* block = *at;
    if ((CUdeviceptr)(uintptr_t)block->start != address || block->kind != kind) continue;
    const unsigned char *first = block->map + PAGE, *end = block->map + block->map_bytes - PAGE;
    if (!is_slack(first, block->start) || !is_slack(block->start + block->size_bytes, end)) {
      fake_violation("memory of %zu bytes was written outside of it", block->size_bytes);
    }
    *at = block->next;
    if (kind != MEMORY_HOST) used_bytes[block->ordinal] -= block->size_bytes;
    --*counter(kind);
    (void)munmap(block->map, block->map_bytes);
    free(block);
    return true;
  }
  return false;
}

bool fake_memory_has(const void* address, size_t size_bytes, unsigned kinds, int* out_ordinal) {
  const unsigned char* start = address;
  for (const block_t* block = blocks; block; block = block->next) {
    if (!(kinds & (1u << block->kind)) || start < block->start ||
        start > block->start + block->size_bytes ||
        size_bytes > (size_t)(block->start + block->size_bytes - start)) {
      continue;
    }
    if (out_ordinal) *out_ordinal = block->ordinal;
    return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------- entries

EXPORT CUresult cuMemGetInfo_v2(size_t* out_free, size_t* out_total);
EXPORT CUresult cuMemGetInfo_v2(size_t* out_free, size_t* out_total) {
  ENTER(NEEDS_CONTEXT);
  *out_total = fake_settings.memory_bytes;
  *out_free = fake_settings.memory_bytes - used_bytes[fake_current()->ordinal];
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out_pointer, size_t size_bytes);
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out_pointer, size_t size_bytes) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  if (size_bytes == 0) return fake_leave(QN__CU_INVALID_VALUE);
  *out_pointer = fake_memory_make(MEMORY_DEVICE, fake_current()->ordinal, size_bytes);
  return fake_leave(*out_pointer ? QN__CU_OK : QN__CU_OUT_OF_MEMORY);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer);
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  if (!fake_memory_free(pointer, MEMORY_DEVICE)) {
    fake_violation("cuMemFree of what is no allocation");
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuMemHostAlloc(void** out_pointer, size_t size_bytes, unsigned flags);
EXPORT CUresult cuMemHostAlloc(void** out_pointer, size_t size_bytes, unsigned flags) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  if (size_bytes == 0 || flags > 7) return fake_leave(QN__CU_INVALID_VALUE);
  const CUdeviceptr address = fake_memory_make(MEMORY_HOST, fake_current()->ordinal, size_bytes);
  *out_pointer = (void*)(uintptr_t)address;
  return fake_leave(address ? QN__CU_OK : QN__CU_OUT_OF_MEMORY);
}

EXPORT CUresult cuMemFreeHost(void* pointer);
EXPORT CUresult cuMemFreeHost(void* pointer) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  if (!fake_memory_free((CUdeviceptr)(uintptr_t)pointer, MEMORY_HOST)) {
    fake_violation("cuMemFreeHost of what is no allocation");
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  return fake_leave(QN__CU_OK);
}

enum { ON_DEVICE = (1u << MEMORY_DEVICE) | (1u << MEMORY_POOL) };

static CUresult enqueue_copy(CUstream handle, void* to, const void* from, size_t size_bytes) {
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return result;
  op_t* op = fake_op(OP_COPY);
  op->to = to;
  op->from = from;
  op->size_bytes = size_bytes;
  return fake_enqueue(stream, op);
}

static void* at(CUdeviceptr address) {
  return (void*)(uintptr_t)address;
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream handle);
EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream handle) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  if (to % sizeof(unsigned) != 0 ||
      !fake_memory_has(at(to), count * sizeof(unsigned), ON_DEVICE, NULL)) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  op_t* op = fake_op(OP_FILL);
  op->to = at(to);
  op->value = value;
  op->size_bytes = count * sizeof(unsigned);
  return fake_leave(fake_enqueue(stream, op));
}

// Reads and writes pageable host memory when the stream reaches the copy. This is the weakest
// behaviour that CUDA allows, so code that relies on more fails.
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size_bytes,
                                     CUstream stream);
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size_bytes,
                                     CUstream stream) {
  ENTER(NEEDS_CONTEXT);
  if (!fake_memory_has(at(to), size_bytes, ON_DEVICE, NULL) ||
      fake_memory_has(from, 1, ON_DEVICE, NULL)) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  return fake_leave(enqueue_copy(stream, at(to), from, size_bytes));
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size_bytes,
                                     CUstream stream);
EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size_bytes,
                                     CUstream stream) {
  ENTER(NEEDS_CONTEXT);
  if (!fake_memory_has(at(from), size_bytes, ON_DEVICE, NULL) ||
      fake_memory_has(to, 1, ON_DEVICE, NULL)) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  return fake_leave(enqueue_copy(stream, to, at(from), size_bytes));
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                                     CUstream stream);
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                                     CUstream stream) {
  ENTER(NEEDS_CONTEXT);
  int to_ordinal, from_ordinal;
  if (!fake_memory_has(at(from), size_bytes, ON_DEVICE, &from_ordinal) ||
      !fake_memory_has(at(to), size_bytes, ON_DEVICE, &to_ordinal) || to_ordinal != from_ordinal) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  return fake_leave(enqueue_copy(stream, at(to), at(from), size_bytes));
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t size_bytes, CUstream stream);
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t size_bytes, CUstream stream) {
  ENTER(NEEDS_CONTEXT);
  if (!fake_is(to_context, KIND_CONTEXT) || !fake_is(from_context, KIND_CONTEXT)) {
    return fake_leave(FAKE_INVALID_CONTEXT);
  }
  if (fake_settings.peer < 0) return fake_leave(QN__CU_NOT_SUPPORTED);
  int to_ordinal, from_ordinal;
  if (!fake_memory_has(at(from), size_bytes, ON_DEVICE, &from_ordinal) ||
      !fake_memory_has(at(to), size_bytes, ON_DEVICE, &to_ordinal) ||
      to_ordinal != to_context->ordinal || from_ordinal != from_context->ordinal) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  return fake_leave(enqueue_copy(stream, at(to), at(from), size_bytes));
}

// ---------------------------------------------------------------------------------- pools

EXPORT CUresult cuMemPoolCreate(CUmemoryPool* out_pool, const CUmemPoolProps* props);
EXPORT CUresult cuMemPoolCreate(CUmemoryPool* out_pool, const CUmemPoolProps* props) {
  ENTER(0);
  if (!fake_settings.has_pools) return fake_leave(QN__CU_NOT_SUPPORTED);
  if (props->allocType != QN__CU_MEM_ALLOCATION_TYPE_PINNED ||
      props->location.type != QN__CU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
      props->location.id >= fake_settings.device_count) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  CUmemoryPool pool = calloc(1, sizeof *pool);
  pool->ordinal = props->location.id;
  fake_add(&pool->object, KIND_POOL);
  fake_counts.pools++;
  *out_pool = pool;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                      void* value);
EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                      void* value) {
  ENTER(0);
  const bool is_right = fake_is(pool, KIND_POOL) && value && attribute >= 1 && attribute <= 8;
  return fake_leave(is_right ? QN__CU_OK : QN__CU_INVALID_VALUE);
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes);
EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
  ENTER(0);
  (void)keep_bytes;
  return fake_leave(fake_is(pool, KIND_POOL) ? QN__CU_OK : QN__CU_INVALID_VALUE);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out_pointer, size_t size_bytes,
                                        CUmemoryPool pool, CUstream handle);
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out_pointer, size_t size_bytes,
                                        CUmemoryPool pool, CUstream handle) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  if (!fake_is(pool, KIND_POOL) || size_bytes == 0 || pool->ordinal != stream->context->ordinal) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  *out_pointer = fake_memory_make(MEMORY_POOL, pool->ordinal, size_bytes);
  if (!*out_pointer) return fake_leave(QN__CU_OUT_OF_MEMORY);
  if (stream->capture) {
    CUgraph graph = stream->capture->graph;
    if (graph->memory_count == 64) return fake_leave(QN__CU_OUT_OF_MEMORY);
    graph->memory[graph->memory_count++] = *out_pointer;
  }
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle);
EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  if (!fake_memory_has(at(pointer), 1, 1u << MEMORY_POOL, NULL)) {
    fake_violation("cuMemFreeAsync of what is no allocation of a pool");
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  if (stream->capture) {
    // Memory of a graph lives as long as the graph. A free node cannot free another graph's memory.
    const CUgraph graph = stream->capture->graph;
    for (int i = 0; i < graph->memory_count; i++) {
      if (graph->memory[i] == pointer) return fake_leave(QN__CU_OK);
    }
    fake_capture_invalidate(stream->capture);
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  op_t* op = fake_op(OP_FREE);
  op->address = pointer;
  return fake_leave(fake_enqueue(stream, op));
}
