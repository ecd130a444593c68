// jit/codegen/driver_store.c: an entry of a driver's own data is keyed by the sections of the
// artifact's key and one more, the driver's identity.
//
// Requirements:
//  1. What comes back is an entry as any other: trusted, checksummed, its whole preimage compared.
//  The
//     device still looks at what its own format says. Any doubt is a miss.
//  2. A get happens while a lookup in flight loads an executable, which keeps the tiers open. A put
//     may come from a device that outlives the engine: it goes through the engine's door, which is
//     shut when the tiers are closed.
//  3. A put copies and does not wait: the writer of the directory does the rest.
//  4. Bundles and the remote tier never have such data: it is of one machine's driver.
// Thread rule: any thread. Read next: making.c.
#include "jit/codegen/driver_store.h"

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"
#include "jit/engine/engine.h"

static const char metadata[] = "driver data";

// ---------------------------------------------------------------------------------- the door

struct qn__driver_door {
  _Atomic uint32_t reference_count;  // the engine's, and one for each store
  qn_allocator_t allocator;
  qn__mutex_t mutex;
  qn__fork_node_t fork_node;
  qn_engine_t* engine;  // NULL: shut
};

static void fork_prepare(void* self) {
  qn__mutex_lock(&((qn__driver_door_t*)self)->mutex);
}
static void fork_parent(void* self) {
  qn__mutex_unlock(&((qn__driver_door_t*)self)->mutex);
}
static void fork_child(void* self) {
  qn_status_free(qn__mutex_init(&((qn__driver_door_t*)self)->mutex));
}

qn_status_t qn__driver_door_make(qn_engine_t* engine, qn__driver_door_t** out_door) {
  *out_door = NULL;
  qn__driver_door_t* door = qn__alloc_zero(engine->allocator, 1, sizeof *door);
  if (!door) return qn__out_of_memory("the door of a driver's data");
  atomic_init(&door->reference_count, 1);
  door->allocator = engine->allocator;
  door->engine = engine;
  qn_status_t status = qn__mutex_init(&door->mutex);
  door->fork_node = (qn__fork_node_t){
      .self = door, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  if (qn_ok(status) && !qn__fork_register(&door->fork_node)) {
    qn__mutex_deinit(&door->mutex);
    status = qn__out_of_memory("a fork handler");
  }
  if (!qn_ok(status)) {
    qn__free(door->allocator, door, sizeof *door);
    return status;
  }
  *out_door = door;
  return QN_OK;
}

void qn__driver_door_close(qn__driver_door_t* door) {
  if (!door) return;
  qn__mutex_lock(&door->mutex);
  door->engine = NULL;
  qn__mutex_unlock(&door->mutex);
}

void qn__driver_door_release(qn__driver_door_t* door) {
  if (!door) return;
  if (atomic_fetch_sub_explicit(&door->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn__fork_unregister(&door->fork_node);
  qn__mutex_deinit(&door->mutex);
  qn__free(door->allocator, door, sizeof *door);
}

// --------------------------------------------------------------------------------- the store

typedef struct store {
  _Atomic uint32_t reference_count;
  qn__driver_door_t* door;  // retained
  qn__buffer_t preimage;    // of the artifact
} store_t;

static void retain(void* self) {
  atomic_fetch_add_explicit(&((store_t*)self)->reference_count, 1, memory_order_relaxed);
}

static void release(void* self) {
  store_t* store = self;
  if (atomic_fetch_sub_explicit(&store->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn__driver_door_t* door = store->door;
  qn__buffer_deinit(&store->preimage);
  qn__free(door->allocator, store, sizeof *store);
  qn__driver_door_release(door);
}

static bool make_preimage(const store_t* store, const char* identity, qn__buffer_t* out) {
  qn__buffer_init(out, store->door->allocator);
  qn__buffer_bytes(out, store->preimage.data, store->preimage.size);
  qn_str_t text = qn__str(identity);
  qn__preimage_add(out, QN__SECTION_DRIVER, (qn_span_t){(const uint8_t*)text.data, text.size});
  return !store->preimage.has_failed && !out->has_failed;
}

static void get(void* self, const char* identity, qn_sink_t sink) {
  const store_t* store = self;
  // The lookup that loads keeps the engine and its tiers open.
  qn_engine_t* engine = store->door->engine;
  if (QN_NEVER(!engine || !qn__engine_disk(engine))) return;
  qn__buffer_t preimage;
  qn__hit_t hit;
  bool is_hit = false;
  if (make_preimage(store, identity, &preimage)) {
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
  const store_t* store = self;
  qn__driver_door_t* door = store->door;
  qn__buffer_t preimage;
  if (make_preimage(store, identity, &preimage)) {
    qn_span_t bytes = qn__buffer_as_span(&preimage);
    qn__entry_t entry = {
        .key = qn__preimage_key(bytes),
        .created_ns = qn__wall_ns(),
        .preimage = bytes,
        .metadata = {(const uint8_t*)metadata, sizeof metadata - 1},
        .payload = {data, size_bytes},
    };
    qn__mutex_lock(&door->mutex);
    qn_engine_t* engine = door->engine;
    if (engine && qn__disk_put(qn__engine_disk(engine), &entry, NULL)) {
      qn__count(engine, QN__COUNTER_driver_puts, 1);
    }
    qn__mutex_unlock(&door->mutex);
  }
  qn__buffer_deinit(&preimage);
}

void qn__driver_store_make(qn_engine_t* engine, qn_span_t preimage, qn_driver_store_t* out_store) {
  memset(out_store, 0, sizeof *out_store);
  if (!qn__engine_disk(engine)) return;
  store_t* store = qn__alloc_zero(engine->allocator, 1, sizeof *store);
  if (!store) return;
  atomic_init(&store->reference_count, 1);
  qn__buffer_init(&store->preimage, engine->allocator);
  qn__buffer_bytes(&store->preimage, preimage.data, preimage.size);
  store->door = engine->driver_door;
  atomic_fetch_add_explicit(&store->door->reference_count, 1, memory_order_relaxed);
  *out_store = (qn_driver_store_t){
      .self = store,
      .get = engine->reads_tiers ? get : NULL,
      .put = engine->writes_tiers ? put : NULL,
      .retain = retain,
      .release = release,
  };
}

void qn__driver_store_release(const qn_driver_store_t* store) {
  if (store->release) store->release(store->self);
}
