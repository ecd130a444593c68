// SPDX-License-Identifier: Apache-2.0
// jit/engine/driver_cache.h: keeps the data that a driver derives from an artifact (Vulkan's
// pipeline data) in the cache directory, in an entry beside the artifact's.
//
// Only the driver knows the meaning of the bytes.
#ifndef QUERN_JIT_DRIVER_CACHE_H_
#define QUERN_JIT_DRIVER_CACHE_H_

#include "base/base.h"
#include "quern/backend.h"

typedef struct qn_engine qn_engine_t;

// An engine's cache of drivers' data. Devices that outlive the engine hold handles of it, so it has
// a reference count of its own, and is closed with the tiers. Its lock is taken before the
// directory's.
typedef struct qn__driver_cache qn__driver_cache_t;
// Owned: qn__driver_cache_release, after the close.
qn_status_t qn__driver_cache_create(qn_engine_t* engine, qn__driver_cache_t** out_cache);
// From here on no handle reaches the engine. NULL is fine.
void qn__driver_cache_close(qn__driver_cache_t* cache);
void qn__driver_cache_release(qn__driver_cache_t* cache);

// Makes the handle for loading the entry with this preimage. Its members are NULL when
// the engine uses no directory, or without memory. Owned: qn__driver_cache_drop; a device retains
// it for itself.
void qn__driver_cache_open(qn_engine_t* engine, qn_span_t preimage, qn_driver_cache_t* out_handle);
// Releases a handle. Harmless on one without members.
void qn__driver_cache_drop(const qn_driver_cache_t* handle);

#endif  // QUERN_JIT_DRIVER_CACHE_H_
