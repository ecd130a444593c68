// jit/codegen/driver_store.h: what a driver makes of an artifact on its own (Vulkan's pipeline
// data), kept in the cache directory in an entry beside the artifact's.
//
// Not here: what the bytes mean, which only the driver knows. Thread rule: any thread. Read next:
// driver_store.c.
#ifndef QUERN_JIT_DRIVER_STORE_H_
#define QUERN_JIT_DRIVER_STORE_H_

#include "base/base.h"
#include "quern/backend.h"

typedef struct qn_engine qn_engine_t;

// The way from stores to the engine's directory. Devices that outlive the engine hold stores, so
// the door has a count of its own, and is shut when the tiers are closed. Its lock is taken in
// front of the directory's own.
typedef struct qn__driver_door qn__driver_door_t;
// Owned: qn__driver_door_release, behind the close.
qn_status_t qn__driver_door_make(qn_engine_t* engine, qn__driver_door_t** out_door);
// From here on no store reaches the engine. NULL is fine.
void qn__driver_door_close(qn__driver_door_t* door);
void qn__driver_door_release(qn__driver_door_t* door);

// A store for what is loaded of the entry with this preimage; its members are NULL when the engine
// uses no directory, or without memory. Owned: qn__driver_store_release; a device retains it for
// itself.
void qn__driver_store_make(qn_engine_t* engine, qn_span_t preimage, qn_driver_store_t* out_store);
// Harmless on a store without members.
void qn__driver_store_release(const qn_driver_store_t* store);

#endif  // QUERN_JIT_DRIVER_STORE_H_
