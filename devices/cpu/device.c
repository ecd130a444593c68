// SPDX-License-Identifier: Apache-2.0
// devices/cpu/device.c: the device table of the CPU: attributes, memory and copies.
//
// Not here: streams (stream.c) and executables (executable.c).
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/thread.h"
#include "devices/attribute.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/executable.h"
#include "devices/cpu/pool.h"
#include "devices/cpu/stream.h"
#include "devices/cpu/workspace.h"
#include "target/target.h"

#define ALIGNMENT 64u

// ---------------------------------------------------------------------------------- attributes

static int32_t count(void) {
  return 1;
}

// Reads the number after the first `label` in a file of the operating system. Returns false when
// there is none.
static bool read_number(const char* path, const char* label, int64_t* out_value) {
  const qn_allocator_t allocator = qn_allocator_default();
  uint8_t* data;
  size_t size;
  qn_status_t status = qn__fs_read_file(allocator, path, 1 << 16, &data, &size);
  if (!qn_ok(status)) {
    qn_status_free(status);
    return false;
  }
  const char* at = strstr((const char*)data, label);
  char* end = NULL;
  if (at) {
    at += strlen(label);
    *out_value = strtoll(at, &end, 10);
  }
  bool is_number = at && end != at;
  qn__free(allocator, data, size + 1);
  return is_number;
}

// Answers with a line "Name:  123 kB" of /proc/meminfo, in bytes.
static qn_status_t answer_memory(qn_attribute_value_t* out, const char* label) {
  int64_t kibibytes;
  if (!read_number("/proc/meminfo", label, &kibibytes)) return QN_OK;
  return qn__answer_int(out, kibibytes * 1024);
}

// Answers with the features of this processor, separated by commas, as many as fit.
static qn_status_t answer_features(qn_attribute_value_t* out) {
  const qn__target_host_cpu_t* host = qn__host_cpu();
  size_t size = 0;
  for (size_t i = 0; host->arch && i < host->arch->feature_count; i++) {
    const char* name = host->arch->features[i].name;
    if (!qn__features_has_index(host->features, (int)i)) continue;
    if (size + strlen(name) + 2 > sizeof out->string_value) break;
    if (size != 0) out->string_value[size++] = ',';
    memcpy(out->string_value + size, name, strlen(name) + 1);
    size += strlen(name);
  }
  if (size != 0) out->type = QN_ATTRIBUTE_TYPE_STRING;
  return QN_OK;
}

static qn_status_t attribute(int32_t id, qn_attribute_t attribute,
                             qn_attribute_value_t* out_value) {
  (void)id;
  const char* model;
  int64_t value;
  switch (attribute) {
    case QN_ATTRIBUTE_DEVICE_NAME:
      model = qn__host_cpu()->model;
      return model && model[0] ? qn__answer_text(out_value, "%s", model) : QN_OK;
    case QN_ATTRIBUTE_INSTRUCTION_SET:
      return answer_features(out_value);
    case QN_ATTRIBUTE_MAX_CLOCK_RATE:
      if (!read_number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "", &value)) break;
      return qn__answer_int(out_value, value);
    case QN_ATTRIBUTE_MULTI_PROCESSOR_COUNT:
      return qn__answer_int(out_value, qn__available_cores());
    case QN_ATTRIBUTE_API_VERSION:
      return qn__answer_int(out_value, QN_CPU_ABI_VERSION);
    case QN_ATTRIBUTE_L2_CACHE_SIZE_BYTES:
      value = qn__host_caches().l2_bytes;
      return value > 0 ? qn__answer_int(out_value, value) : QN_OK;
    case QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY:
      return answer_memory(out_value, "MemTotal:");
    case QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY:
      return answer_memory(out_value, "MemAvailable:");
    case QN_ATTRIBUTE_ALLOCATION_ALIGNMENT:
      return qn__answer_int(out_value, ALIGNMENT);
    case QN_ATTRIBUTE_POINTER_IS_ADDRESS:
    case QN_ATTRIBUTE_HOST_ACCESSIBLE:
      return qn__answer_bool(out_value, true);
    default:
      break;  // none
  }
  return QN_OK;
}

// ---------------------------------------------------------------------------------- memory

static qn_status_t allocate(int32_t id, size_t size_bytes, size_t alignment_bytes,
                            void** out_pointer) {
  (void)id;
  size_t alignment = alignment_bytes > ALIGNMENT ? alignment_bytes : ALIGNMENT;
  void* pointer;
  if (size_bytes > PTRDIFF_MAX ||
      posix_memalign(&pointer, alignment, size_bytes ? size_bytes : 1) != 0) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "cpu:0: no memory for %zu bytes", size_bytes);
  }
  *out_pointer = pointer;
  return QN_OK;
}

static qn_status_t free_memory(int32_t id, void* pointer) {
  (void)id;
  free(pointer);
  return QN_OK;
}

static qn_status_t workspace_allocate(int32_t id, void* stream, size_t size_bytes,
                                      void** out_pointer) {
  (void)id;
  *out_pointer = qn__cpu_workspace_allocate(stream, size_bytes);
  if (*out_pointer) return QN_OK;
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "cpu:0: no workspace of %zu bytes", size_bytes);
}

static qn_status_t workspace_free(int32_t id, void* stream, void* pointer) {
  (void)id;
  qn__cpu_workspace_free(stream, pointer);
  return QN_OK;
}

static qn_status_t copy(int32_t id, void* stream, const qn_copy_t* copy) {
  (void)id;
  char* to = (char*)copy->to + copy->to_offset_bytes;
  const char* from = (const char*)copy->from + copy->from_offset_bytes;
  if (stream && copy->is_host_pinned) {
    return qn__cpu_stream_copy(stream, to, from, copy->size_bytes);
  }
  // The caller may reuse host memory after the call, and all memory of this device is the host's.
  // So wait for the queued tasks and copy now. Their errors stay with the stream.
  if (stream) qn__cpu_stream_drain(stream);
  memcpy(to, from, copy->size_bytes);
  return QN_OK;
}

const qn_device_table_t qn__cpu_device_table = {
    .abi_version = QN_DEVICE_ABI_VERSION,
    .struct_size = sizeof(qn_device_table_t),
    .type = QN_DEVICE_CPU,
    .name = "cpu",
    .count = count,
    .attribute = attribute,
    .allocate = allocate,
    .free = free_memory,
    .workspace_allocate = workspace_allocate,
    .workspace_free = workspace_free,
    .copy = copy,
    .stream_create = qn__cpu_stream_create,
    .stream_destroy = qn__cpu_stream_destroy,
    .stream_sync = qn__cpu_stream_sync,
    .stream_wait = qn__cpu_stream_wait,
    .stream_is_idle = qn__cpu_stream_is_idle,
    .accepts = qn__cpu_accepts,
    .load = qn__cpu_load,
    .unload = qn__cpu_unload,
    .launch = qn__cpu_launch,
};
