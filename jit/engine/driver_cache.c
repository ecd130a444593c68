// SPDX-License-Identifier: Apache-2.0
// jit/engine/driver_cache.c: stores data of drivers in entries. Their key has the sections of the
// artifact's key and one more, the driver's identity.
//
// Requirements:
//  1. A get returns an entry like any other: trusted, checksummed, its whole preimage compared. The
//     device still checks its own format. Any doubt is a miss.
//  2. A get runs while an executable is loaded, within a lookup, which keeps the tiers open. A put
//     may come from a device that outlives the engine. So it reads the pointer to the engine, which
//     the close sets to NULL, under the cache's lock.
//  3. A put copies and does not wait: the writer of the directory does the rest.
//  4. Bundles and the remote tier never have such data, which is specific to one machine's driver.
#include "jit/engine/driver_cache.h"

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"
#include "jit/engine/engine.h"

static const char metadata[] = "driver data";

// ---------------------------------------------------------------------------------- the cache

struct qn__driver_cache {
  _Atomic uint32_t reference_count;  // the engine's, and one for each handle
  qn_allocator_t allocator;
  qn__mutex_t mutex;
  qn__fork_node_t fork_node;
  qn_engine_t* engine;  // NULL: closed
};

qn_status_t qn__driver_cache_create(qn_engine_t* engine, qn__driver_cache_t** out_cache) {
  *out_cache = NULL;
  qn__driver_cache_t* cache = qn__alloc_zero(engine->allocator, 1, sizeof *cache);
  if (!cache) return qn__out_of_memory("the cache of drivers' data");
  atomic_init(&cache->reference_count, 1);
  cache->allocator = engine->allocator;
  cache->engine = engine;
  qn_status_t status = qn__mutex_init(&cache->mutex);
  cache->fork_node = (qn__fork_node_t){.mutex = &cache->mutex};
  if (qn_ok(status) && !qn__fork_register(&cache->fork_node)) {
    qn__mutex_deinit(&cache->mutex);
    status = qn__out_of_memory("a fork handler");
  }
  if (!qn_ok(status)) {
    qn__free(cache->allocator, cache, sizeof *cache);
    return status;
  }
  *out_cache = cache;
  return QN_OK;
}

void qn__driver_cache_close(qn__driver_cache_t* cache) {
  if (!cache) return;
  qn__mutex_lock(&cache->mutex);
  cache->engine = NULL;
  qn__mutex_unlock(&cache->mutex);
}

void qn__driver_cache_release(qn__driver_cache_t* cache) {
  if (!cache) return;
  if (atomic_fetch_sub_explicit(&cache->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn__fork_unregister(&cache->fork_node);
  qn__mutex_deinit(&cache->mutex);
  qn__free(cache->allocator, cache, sizeof *cache);
}

// --------------------------------------------------------------------------------- the handle

typedef struct handle {
  _Atomic uint32_t reference_count;
  qn__driver_cache_t* cache;  // retained
  qn__buffer_t preimage;      // of the artifact
} handle_t;

static void retain(void* self) {
  atomic_fetch_add_explicit(&((handle_t*)self)->reference_count, 1, memory_order_relaxed);
}

static void release(void* self) {
  handle_t* handle = self;
  if (atomic_fetch_sub_explicit(&handle->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn__driver_cache_t* cache = handle->cache;
  qn__buffer_deinit(&handle->preimage);
  qn__free(cache->allocator, handle, sizeof *handle);
  qn__driver_cache_release(cache);
}

static bool make_preimage(const handle_t* handle, const char* identity, qn__buffer_t* out) {
  qn__buffer_init(out, handle->cache->allocator);
  qn__buffer_bytes(out, handle->preimage.data, handle->preimage.size);
  qn_str_t text = qn__str(identity);
  qn__preimage_add(out, QN__SECTION_DRIVER, (qn_span_t){(const uint8_t*)text.data, text.size});
  return !handle->preimage.has_failed && !out->has_failed;
}

static void get(void* self, const char* identity, qn_sink_t sink) {
  const handle_t* handle = self;
  // The lookup that loads keeps the engine and its tiers.
  qn_engine_t* engine = handle->cache->engine;
  if (QN_NEVER(!engine || !qn__engine_disk(engine))) return;
  qn__buffer_t preimage;
  qn__hit_t hit;
  bool is_hit = false;
  if (make_preimage(handle, identity, &preimage)) {
    qn_span_t bytes = qn__buffer_as_span(&preimage);
    qn__expectation_t expected = {qn__preimage_key(bytes), bytes};
    is_hit = qn__disk_get(qn__engine_disk(engine), &expected, &hit) == QN__GET_HIT;
  }
  if (is_hit) {
    qn_status_free(sink.write(sink.self, hit.entry.payload.data, hit.entry.payload.size));
    qn__disk_hit_release(qn__engine_disk(engine), &hit);
  }
  qn__count(engine, is_hit ? QN__COUNTER_driver_hits : QN__COUNTER_driver_misses, 1);
  qn__buffer_deinit(&preimage);
}

static void put(void* self, const char* identity, const void* data, size_t size_bytes) {
  const handle_t* handle = self;
  qn__driver_cache_t* cache = handle->cache;
  qn__buffer_t preimage;
  if (make_preimage(handle, identity, &preimage)) {
    qn_span_t bytes = qn__buffer_as_span(&preimage);
    qn__entry_t entry = {
        .key = qn__preimage_key(bytes),
        .created_ns = qn__wall_ns(),
        .preimage = bytes,
        .metadata = {(const uint8_t*)metadata, sizeof metadata - 1},
        .payload = {data, size_bytes},
    };
    qn__mutex_lock(&cache->mutex);
    qn_engine_t* engine = cache->engine;
    if (engine && qn__disk_put(qn__engine_disk(engine), &entry, NULL)) {
      qn__count(engine, QN__COUNTER_driver_puts, 1);
    }
    qn__mutex_unlock(&cache->mutex);
  }
  qn__buffer_deinit(&preimage);
}

void qn__driver_cache_open(qn_engine_t* engine, qn_span_t preimage, qn_driver_cache_t* out_handle) {
  memset(out_handle, 0, sizeof *out_handle);
  if (!qn__engine_disk(engine)) return;
  handle_t* handle = qn__alloc_zero(engine->allocator, 1, sizeof *handle);
  if (!handle) return;
  atomic_init(&handle->reference_count, 1);
  qn__buffer_init(&handle->preimage, engine->allocator);
  qn__buffer_bytes(&handle->preimage, preimage.data, preimage.size);
  handle->cache = engine->driver_cache;
  atomic_fetch_add_explicit(&handle->cache->reference_count, 1, memory_order_relaxed);
  *out_handle = (qn_driver_cache_t){
      .self = handle,
      .get = engine->reads_tiers ? get : NULL,
      .put = engine->writes_tiers ? put : NULL,
      .retain = retain,
      .release = release,
  };
}

void qn__driver_cache_drop(const qn_driver_cache_t* handle) {
  if (handle->release) handle->release(handle->self);
}
