// SPDX-License-Identifier: Apache-2.0
// devices/workspace.c: see workspace.h.
//
// Requirements; `check` tests them after each change, in debug builds:
//  1. A cached block is in the list of its class, a block in use in the bucket of its address.
//  2. `cached_bytes` is the sum of the sizes of the cached blocks.
#include "devices/workspace.h"

#define SMALLEST_LOG 12u  // 4 KiB

#ifndef NDEBUG
static bool check(const qn__workspace_t* workspace) {
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < QN__WORKSPACE_CLASSES; c++) {
    for (const qn__workspace_block_t* at = workspace->cached[c]; at; at = at->next) {
      if (at->size_class != c) return false;
      bytes += qn__workspace_class_bytes(c);
    }
  }
  return bytes == workspace->cached_bytes;
}
#endif

qn_status_t qn__workspace_init(qn__workspace_t* workspace, uint64_t max_cached_bytes,
                               bool (*is_passed)(const qn__workspace_block_t* block)) {
  *workspace = (qn__workspace_t){.max_cached_bytes = max_cached_bytes, .is_passed = is_passed};
  return qn__mutex_init(&workspace->mutex);
}

// ---------------------------------------------------------------------------------- classes

bool qn__workspace_class_of(uint64_t size_bytes, uint32_t* out_class) {
  const uint32_t largest = QN__WORKSPACE_CLASSES - 1;
  if (size_bytes > qn__workspace_class_bytes(largest)) return false;
  const uint64_t smallest = qn__workspace_class_bytes(0);
  const uint64_t size = size_bytes > smallest ? size_bytes : smallest;
  // The steps between the power of two below and the next one, rounded up.
  const uint32_t log = 63u - (uint32_t)__builtin_clzll(size);
  const uint64_t step = UINT64_C(1) << (log - 2);
  *out_class = (log - SMALLEST_LOG) * 4 + (uint32_t)((size + step - 1) / step - 4);
  assert(qn__workspace_class_bytes(*out_class) >= size);
  assert(*out_class == 0 || qn__workspace_class_bytes(*out_class - 1) < size);
  return true;
}

uint64_t qn__workspace_class_bytes(uint32_t size_class) {
  return (uint64_t)(4 + size_class % 4) << (SMALLEST_LOG - 2 + size_class / 4);
}

// ---------------------------------------------------------------------------------- blocks

// Removes a block from a list of cached ones. Locked.
static qn__workspace_block_t* unlink_cached(qn__workspace_t* workspace,
                                            qn__workspace_block_t** at) {
  qn__workspace_block_t* block = *at;
  *at = block->next;
  const uint64_t size_bytes = qn__workspace_class_bytes(block->size_class);
  assert(workspace->cached_bytes >= size_bytes);
  workspace->cached_bytes -= size_bytes;
  return block;
}

static qn__workspace_block_t** bucket_of(qn__workspace_t* workspace, uint64_t address) {
  return &workspace->used[(address >> SMALLEST_LOG) % QN__WORKSPACE_BUCKETS];
}

// Makes a block one in use. Locked.
static void link_used(qn__workspace_t* workspace, qn__workspace_block_t* block) {
  if (block->address == 0) return;
  qn__workspace_block_t** bucket = bucket_of(workspace, block->address);
  block->next = *bucket;
  *bucket = block;
}

qn__workspace_block_t* qn__workspace_acquire(qn__workspace_t* workspace, uint32_t size_class,
                                             uint64_t stream) {
  qn__workspace_block_t** found = NULL;
  qn__mutex_lock(&workspace->mutex);
  for (qn__workspace_block_t** at = &workspace->cached[size_class]; *at; at = &(*at)->next) {
    if ((*at)->stream == stream) {
      found = at;
      break;
    }
    if (!found && workspace->is_passed(*at)) found = at;
  }
  qn__workspace_block_t* block = found ? unlink_cached(workspace, found) : NULL;
  if (block) link_used(workspace, block);
  assert(check(workspace));
  qn__mutex_unlock(&workspace->mutex);
  return block;
}

void qn__workspace_add(qn__workspace_t* workspace, qn__workspace_block_t* block) {
  qn__mutex_lock(&workspace->mutex);
  link_used(workspace, block);
  qn__mutex_unlock(&workspace->mutex);
}

qn__workspace_block_t* qn__workspace_remove(qn__workspace_t* workspace, uint64_t address) {
  qn__mutex_lock(&workspace->mutex);
  qn__workspace_block_t** at = bucket_of(workspace, address);
  while (*at && (*at)->address != address) at = &(*at)->next;
  qn__workspace_block_t* block = *at;
  if (block) *at = block->next;
  qn__mutex_unlock(&workspace->mutex);
  return block;
}

// Unlinks the blocks of a stream (NULL: all that have passed) until at most `max_cached_bytes` are
// cached, larger ones first. Locked.
static qn__workspace_block_t* unlink_all(qn__workspace_t* workspace, const uint64_t* stream,
                                         uint64_t max_cached_bytes) {
  qn__workspace_block_t* list = NULL;
  for (uint32_t c = QN__WORKSPACE_CLASSES; c-- > 0;) {
    for (qn__workspace_block_t** at = &workspace->cached[c];
         *at && workspace->cached_bytes > max_cached_bytes;) {
      if (stream ? (*at)->stream != *stream : !workspace->is_passed(*at)) {
        at = &(*at)->next;
        continue;
      }
      qn__workspace_block_t* block = unlink_cached(workspace, at);
      block->next = list;
      list = block;
    }
  }
  return list;
}

qn__workspace_block_t* qn__workspace_release(qn__workspace_t* workspace,
                                             qn__workspace_block_t* block) {
  qn__mutex_lock(&workspace->mutex);
  block->next = workspace->cached[block->size_class];
  workspace->cached[block->size_class] = block;
  workspace->cached_bytes += qn__workspace_class_bytes(block->size_class);
  qn__workspace_block_t* list = NULL;
  if (workspace->cached_bytes > workspace->max_cached_bytes) {
    list = unlink_all(workspace, NULL, workspace->max_cached_bytes);
  }
  assert(check(workspace));
  qn__mutex_unlock(&workspace->mutex);
  return list;
}

static qn__workspace_block_t* take_all(qn__workspace_t* workspace, const uint64_t* stream,
                                       uint64_t max_cached_bytes) {
  qn__mutex_lock(&workspace->mutex);
  qn__workspace_block_t* list = unlink_all(workspace, stream, max_cached_bytes);
  assert(check(workspace));
  qn__mutex_unlock(&workspace->mutex);
  return list;
}

qn__workspace_block_t* qn__workspace_trim(qn__workspace_t* workspace, uint64_t max_cached_bytes) {
  return take_all(workspace, NULL, max_cached_bytes);
}

qn__workspace_block_t* qn__workspace_forget(qn__workspace_t* workspace, uint64_t stream) {
  return take_all(workspace, &stream, 0);
}

qn__workspace_block_t* qn__workspace_deinit(qn__workspace_t* workspace) {
  qn__workspace_block_t* list = NULL;
  for (uint32_t c = 0; c < QN__WORKSPACE_CLASSES; c++) {
    while (workspace->cached[c]) {
      qn__workspace_block_t* block = unlink_cached(workspace, &workspace->cached[c]);
      block->next = list;
      list = block;
    }
  }
  assert(workspace->cached_bytes == 0);
  qn__mutex_deinit(&workspace->mutex);
  return list;
}
