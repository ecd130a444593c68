// SPDX-License-Identifier: Apache-2.0
// devices/stream.c: public streams, and the active device and stream of each thread.
//
// A public stream holds the backend's object and its device.
//
// Active devices and streams are thread-local. Read next: cpu/stream.c.
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/thread.h"
#include "devices/device.h"

struct qn_stream {
  qn_device_t device;
  const qn_device_table_t* table;
  void* inner;
};

typedef struct default_stream {
  qn_stream_t stream;
  struct default_stream* next;
} default_stream_t;

// The most non-CPU devices on which one thread has active streams.
#define ACTIVE_LIMIT 16

_Thread_local qn_stream_t* qn__active_cpu_stream;
static _Thread_local struct {
  bool is_set;
  qn_device_t device;
} active_device;
static _Thread_local qn_stream_t* active_streams[ACTIVE_LIMIT];

void* qn__stream_inner(qn_stream_t* stream) {
  return stream ? stream->inner : NULL;
}
qn_stream_t* qn__stream_named(qn_stream_t* stream) {
  return stream && stream->inner ? stream : NULL;
}
qn_device_t qn_stream_device(const qn_stream_t* stream) {
  return stream ? stream->device : (qn_device_t){0, 0};
}

// Creates a stream of the device, or wraps a native one.
static qn_status_t create(qn_device_t device, const qn_device_table_t* table, void* native,
                          qn_stream_t** out_stream) {
  qn_stream_t* stream = qn__alloc_zero(qn_allocator_default(), 1, sizeof *stream);
  if (!stream) return qn__out_of_memory("a stream");
  stream->device = device;
  stream->table = table;
  qn_status_t status = native ? table->stream_wrap(device.id, native, &stream->inner)
                              : table->stream_create(device.id, &stream->inner);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), stream, sizeof *stream);
    return status;
  }
  *out_stream = stream;
  return QN_OK;
}

qn_status_t qn_stream_create(qn_device_t device, qn_stream_t** out_stream) {
  QN_REQUIRE(out_stream);
  *out_stream = NULL;
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  if (!table->stream_create || !table->stream_destroy || !table->stream_sync) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "device '%s' has no streams but its default one",
                          table->name);
  }
  return create(device, table, NULL, out_stream);
}

// The handles of default streams, which have no inner one. They are made when a program asks for
// them, and last as long as the process.
static _Atomic(default_stream_t*) default_streams;

static qn_stream_t* find_default(qn_device_t device) {
  for (default_stream_t* it = atomic_load(&default_streams); it; it = it->next) {
    if (it->stream.device.type == device.type && it->stream.device.id == device.id) {
      return &it->stream;
    }
  }
  return NULL;
}

qn_status_t qn_stream_default(qn_device_t device, qn_stream_t** out_stream) {
  QN_REQUIRE(out_stream);
  *out_stream = NULL;
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  static qn__mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  qn__mutex_lock(&mutex);
  *out_stream = find_default(device);
  if (!*out_stream) {
    default_stream_t* made = qn__alloc_zero(qn_allocator_default(), 1, sizeof *made);
    if (made) {
      *made = (default_stream_t){{device, table, NULL}, atomic_load(&default_streams)};
      atomic_store(&default_streams, made);
      *out_stream = &made->stream;
    }
  }
  qn__mutex_unlock(&mutex);
  return *out_stream ? QN_OK : qn__out_of_memory("the handle of a default stream");
}

qn_status_t qn_stream_wrap(qn_device_t device, void* native, qn_stream_t** out_stream) {
  QN_REQUIRE(out_stream);
  *out_stream = NULL;
  QN_REQUIRE(native);
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  if (!table->stream_wrap || !table->stream_destroy) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "device '%s' cannot wrap streams of others",
                          table->name);
  }
  return create(device, table, native, out_stream);
}

void* qn_stream_native(qn_stream_t* stream) {
  if (!stream || !stream->inner || !stream->table->stream_native) return NULL;
  return stream->table->stream_native(stream->device.id, stream->inner);
}

void qn_stream_destroy(qn_stream_t* stream) {
  if (!stream || !stream->inner) return;
  if (qn__active_cpu_stream == stream) qn__active_cpu_stream = NULL;
  for (size_t i = 0; i < ACTIVE_LIMIT; i++) {
    if (active_streams[i] == stream) active_streams[i] = NULL;
  }
  stream->table->stream_destroy(stream->device.id, stream->inner);
  qn__free(qn_allocator_default(), stream, sizeof *stream);
}

qn_status_t qn__stream_check(qn_device_t device, const qn_stream_t* stream) {
  if (!stream || (stream->device.type == device.type && stream->device.id == device.id)) {
    return QN_OK;
  }
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the stream belongs to %s:%d, not to %s:%d",
                        qn_device_type_text(stream->device.type), stream->device.id,
                        qn_device_type_text(device.type), device.id);
}

static qn_status_t find_checked(qn_device_t device, const qn_stream_t* stream,
                                const qn_device_table_t** out_table) {
  QN_TRY(qn__device_find(device, out_table));
  return qn__stream_check(device, stream);
}

qn_status_t qn_stream_sync(qn_device_t device, qn_stream_t* stream) {
  const qn_device_table_t* table;
  QN_TRY(find_checked(device, stream, &table));
  return table->stream_sync ? table->stream_sync(device.id, qn__stream_inner(stream)) : QN_OK;
}

qn_status_t qn_stream_wait(qn_device_t device, qn_stream_t* from, qn_stream_t* to) {
  const qn_device_table_t* table;
  QN_TRY(find_checked(device, from, &table));
  QN_TRY(find_checked(device, to, &table));
  if (qn__stream_inner(from) == qn__stream_inner(to)) return QN_OK;
  if (!table->stream_wait) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "device '%s' cannot order one stream after another", table->name);
  }
  return table->stream_wait(device.id, qn__stream_inner(from), qn__stream_inner(to));
}

bool qn_stream_is_idle(qn_stream_t* stream) {
  return !stream || !stream->table->stream_is_idle ||
         stream->table->stream_is_idle(stream->device.id, stream->inner);
}

// ---------------------------------------------------------------------------------- active streams

qn_device_t qn_active_device(void) {
  return active_device.is_set ? active_device.device : (qn_device_t){QN_DEVICE_CPU, 0};
}

static bool is_device(const qn_stream_t* stream, qn_device_t device) {
  return stream && stream->device.type == device.type && stream->device.id == device.id;
}

qn_stream_t* qn_active_stream(qn_device_t device) {
  if (device.type == QN_DEVICE_CPU) return qn__active_cpu_stream;
  for (size_t i = 0; i < ACTIVE_LIMIT; i++) {
    if (is_device(active_streams[i], device)) return active_streams[i];
  }
  return NULL;
}

qn_status_t qn_set_active_stream(qn_device_t device, qn_stream_t* stream) {
  const qn_device_table_t* table;
  QN_TRY(find_checked(device, stream, &table));
  stream = qn__stream_named(stream);
  if (device.type == QN_DEVICE_CPU) {
    qn__active_cpu_stream = stream;
    return QN_OK;
  }
  qn_stream_t** free_place = NULL;
  for (size_t i = 0; i < ACTIVE_LIMIT; i++) {
    if (is_device(active_streams[i], device)) active_streams[i] = NULL;
    if (!active_streams[i] && !free_place) free_place = &active_streams[i];
  }
  if (!stream) return QN_OK;
  if (!free_place) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "a thread has active streams on at most %d devices at once",
                          ACTIVE_LIMIT);
  }
  *free_place = stream;
  return QN_OK;
}

qn_status_t qn_set_active_device(qn_device_t device) {
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  QN_TRY(qn_set_active_stream(device, NULL));
  active_device.device = device;
  active_device.is_set = true;
  return QN_OK;
}
