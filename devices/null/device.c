// SPDX-License-Identifier: Apache-2.0
// devices/null/device.c: the template of a backend, in one file. A real backend has device.c,
// memory.c, stream.c and executable.c.
//
// Memory is host memory; copies finish at once; a launch of format "null-1" counts itself and does
// nothing else. The file has every member of the table, so that a new backend starts from a copy.
//
// Read next: docs/new-backend.md.
#include "devices/null/null.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "devices/attribute.h"

#define ALIGNMENT 64u

typedef struct stream {
  _Atomic uint64_t launch_count;
} stream_t;

typedef struct executable {
  size_t function_count;
} executable_t;

// ---- device.c: devices and their attributes

static int32_t count(void) {
  return 1;
}

static qn_status_t attribute(int32_t id, qn_attribute_t attribute,
                             qn_attribute_value_t* out_value) {
  (void)id;
  switch (attribute) {
    case QN_ATTRIBUTE_DEVICE_NAME:
      return qn__answer_text(out_value, "null");
    case QN_ATTRIBUTE_ALLOCATION_ALIGNMENT:
      return qn__answer_int(out_value, ALIGNMENT);
    case QN_ATTRIBUTE_POINTER_IS_ADDRESS:
    case QN_ATTRIBUTE_HOST_ACCESSIBLE:
      return qn__answer_bool(out_value, false);
    default:
      return QN_OK;  // no answer
  }
}

// ---- memory.c: each block has a header with its size

typedef struct block {
  size_t size_bytes;
  void* start;
} block_t;

static qn_status_t allocate(int32_t id, size_t size_bytes, size_t alignment_bytes,
                            void** out_pointer) {
  (void)id;
  size_t alignment = alignment_bytes > ALIGNMENT ? alignment_bytes : ALIGNMENT;
  size_t total;
  if (!qn__size_add(size_bytes, alignment + sizeof(block_t), &total)) {
    return qn__out_of_memory("device memory");
  }
  char* start = qn__alloc(qn_allocator_default(), total);
  if (!start) return qn__out_of_memory("device memory");
  uintptr_t address =
      ((uintptr_t)start + sizeof(block_t) + alignment - 1) & ~(uintptr_t)(alignment - 1);
  char* pointer = start + (address - (uintptr_t)start);
  block_t block = {total, start};
  memcpy(pointer - sizeof block, &block, sizeof block);
  *out_pointer = pointer;
  return QN_OK;
}

static qn_status_t free_memory(int32_t id, void* pointer) {
  (void)id;
  block_t block;
  memcpy(&block, (char*)pointer - sizeof block, sizeof block);
  qn__free(qn_allocator_default(), block.start, block.size_bytes);
  return QN_OK;
}

static qn_status_t workspace_allocate(int32_t id, void* stream, size_t size_bytes,
                                      void** out_pointer) {
  (void)stream;
  return allocate(id, size_bytes, 0, out_pointer);
}

static qn_status_t workspace_free(int32_t id, void* stream, void* pointer) {
  (void)stream;
  return free_memory(id, pointer);
}

static qn_status_t copy(int32_t id, void* stream, const qn_copy_t* copy) {
  (void)id;
  (void)stream;
  memcpy((char*)copy->to + copy->to_offset_bytes, (const char*)copy->from + copy->from_offset_bytes,
         copy->size_bytes);
  return QN_OK;
}

// ---- stream.c: work is over when it is enqueued

static qn_status_t stream_create(int32_t id, void** out_stream) {
  (void)id;
  *out_stream = qn__alloc_zero(qn_allocator_default(), 1, sizeof(stream_t));
  return *out_stream ? QN_OK : qn__out_of_memory("a stream");
}

static void stream_destroy(int32_t id, void* stream) {
  (void)id;
  qn__free(qn_allocator_default(), stream, sizeof(stream_t));
}

static qn_status_t stream_sync(int32_t id, void* stream) {
  (void)id;
  (void)stream;
  return QN_OK;
}

static qn_status_t stream_wait(int32_t id, void* from, void* to) {
  (void)id;
  (void)from;
  (void)to;
  return QN_OK;
}

static bool stream_is_idle(int32_t id, void* stream) {
  (void)id;
  (void)stream;
  return true;
}

// ---- executable.c: loading and launching

static bool accepts(const char* format) {
  return strcmp(format, "null-1") == 0;
}

static qn_status_t load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable) {
  (void)id;
  (void)options;
  executable_t* executable = qn__alloc_zero(qn_allocator_default(), 1, sizeof *executable);
  if (!executable) return qn__out_of_memory("an executable");
  executable->function_count = artifact->function_count;
  *out_executable = executable;
  return QN_OK;
}

static void unload(int32_t id, void* executable) {
  (void)id;
  qn__free(qn_allocator_default(), executable, sizeof(executable_t));
}

static qn_status_t launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  (void)id;
  (void)launch;
  const executable_t* self = executable;
  if (QN_NEVER(index >= self->function_count)) {
    return qn_status_make(QN_STATUS_INTERNAL, "the executable has %zu functions, not one %u",
                          self->function_count, index);
  }
  if (stream) atomic_fetch_add(&((stream_t*)stream)->launch_count, 1);
  return QN_OK;
}

const qn_device_table_t qn__null_device_table = {
    .abi_version = QN_DEVICE_ABI_VERSION,
    .struct_size = sizeof(qn_device_table_t),
    .type = QN_DEVICE_NULL,
    .name = "null",
    .count = count,
    .attribute = attribute,
    .allocate = allocate,
    .free = free_memory,
    .workspace_allocate = workspace_allocate,
    .workspace_free = workspace_free,
    .copy = copy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_wait = stream_wait,
    .stream_is_idle = stream_is_idle,
    .accepts = accepts,
    .load = load,
    .unload = unload,
    .launch = launch,
};
