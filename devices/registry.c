// SPDX-License-Identifier: Apache-2.0
// devices/registry.c: the tables of devices by type, and the public calls that only choose a table.
//
// The default registry is one of the two mutable globals of the library (the other is the log
// switch). Tables are added and never removed; readers take no lock.
//
// Read next: stream.c, cpu/device.c.
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "base/thread.h"
#include "devices/cpu/cpu.h"
#include "devices/device.h"
#include "devices/null/null.h"
#include "quern/config.h"
#if QN_HAVE_CUDA
#include "devices/cuda/cuda.h"
#endif
#include "target/target.h"
#if QN_HAVE_VULKAN
#include "devices/vulkan/vulkan.h"
#endif

// DLPack's device types go to 17; types of quern stay below this.
#define TYPE_LIMIT 64

static _Atomic(const qn_device_table_t*) tables[TYPE_LIMIT] = {
    [QN_DEVICE_CPU] = &qn__cpu_device_table,
    [QN_DEVICE_NULL] = &qn__null_device_table,
#if QN_HAVE_VULKAN
    [QN_DEVICE_VULKAN] = &qn__vulkan_device_table,
#endif
#if QN_HAVE_CUDA
    [QN_DEVICE_CUDA] = &qn__cuda_device_table,
#endif
};

static const char* remedy(int32_t type) {
  if (type == QN_DEVICE_CUDA) return "quern was built without it: build it with QUERN_CUDA=ON";
  if (type == QN_DEVICE_VULKAN) {
    return "quern was built without it: build it with QUERN_VULKAN=ON (needs libvulkan-dev)";
  }
  return "this build of quern has none";
}

static const struct {
  const char* name;
  int32_t type;
} type_names[] = {{"cpu", QN_DEVICE_CPU},
                  {"cuda", QN_DEVICE_CUDA},
                  {"vulkan", QN_DEVICE_VULKAN},
                  {"null", QN_DEVICE_NULL}};

const qn_device_table_t* qn__device_table(int32_t type) {
  if (type < 0 || type >= TYPE_LIMIT) return NULL;
  return atomic_load_explicit(&tables[type], memory_order_acquire);
}

// Checks what every device must have.
static qn_status_t check_table(const qn_device_table_t* table) {
  const qn__required_t required[] = {
#define QN_MEMBER(name, need, rule) QN_MEMBER_##need(name)
#define QN_MEMBER_REQUIRED(name) QN_REQUIRED(table, name),
#define QN_MEMBER_OPTIONAL(name)
#include "devices/members.inc"
#undef QN_MEMBER
#undef QN_MEMBER_REQUIRED
#undef QN_MEMBER_OPTIONAL
  };
  QN_TRY(qn__require_members("qn_device_table_t", table->name, required, QN_COUNT_OF(required)));
  if (table->type >= 0 && table->type < TYPE_LIMIT) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "device table '%s': type %d is not in [0, %d)",
                        table->name, table->type, TYPE_LIMIT);
}

static int32_t count_one(void) {
  return 1;
}
static qn_status_t answer_nothing(int32_t id, qn_attribute_t attribute,
                                  qn_attribute_value_t* out_value) {
  (void)id, (void)attribute, (void)out_value;
  return QN_OK;
}

qn_status_t qn_device_register(const qn_device_table_t* table) {
  QN_REQUIRE(table);
  if (table->abi_version != QN_DEVICE_ABI_VERSION) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a device table of ABI version %u is expected, not %u",
                          QN_DEVICE_ABI_VERSION, table->abi_version);
  }
  QN_STRUCT_READ(qn_device_table_t, table, given);
  QN_TRY(check_table(&given));
  qn_device_table_t* copy = malloc(sizeof *copy);
  if (!copy) return qn__out_of_memory("a device table");
  *copy = given;
  if (!copy->count) copy->count = count_one;
  if (!copy->attribute) copy->attribute = answer_nothing;
  const qn_device_table_t* taken = NULL;
  if (!atomic_compare_exchange_strong(&tables[given.type], &taken, copy)) {
    free(copy);
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION, "device type %d is taken by '%s'",
                          given.type, taken->name);
  }
  return QN_OK;
}

const char* qn_device_type_text(int32_t type) {
  for (size_t i = 0; i < QN_COUNT_OF(type_names); i++) {
    if (type_names[i].type == type) return type_names[i].name;
  }
  if (type == QN_DEVICE_CUDA_HOST) return "cuda_host";
  const qn_device_table_t* table = qn__device_table(type);
  return table ? table->name : "unknown";
}

static bool find_type(qn_str_t name, int32_t* out_type) {
  for (size_t i = 0; i < QN_COUNT_OF(type_names); i++) {
    if (!qn__str_equal(qn__str(type_names[i].name), name)) continue;
    *out_type = type_names[i].type;
    return true;
  }
  for (int32_t type = 0; type < TYPE_LIMIT; type++) {
    const qn_device_table_t* table = qn__device_table(type);
    if (!table || !qn__str_equal(qn__str(table->name), name)) continue;
    *out_type = type;
    return true;
  }
  return false;
}

qn_status_t qn_device_parse(const char* text, qn_device_t* out_device) {
  QN_REQUIRE(out_device);
  *out_device = (qn_device_t){0, 0};
  QN_REQUIRE(text);
  const char* colon = strchr(text, ':');
  qn_str_t name = {text, colon ? (size_t)(colon - text) : strlen(text)};
  int32_t type;
  if (!find_type(name, &type)) {
    const char* nearest = "cpu";
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < QN_COUNT_OF(type_names); i++) {
      size_t distance = qn__edit_distance(qn__str(type_names[i].name), name, 8);
      if (distance < best) best = distance, nearest = type_names[i].name;
    }
    return qn_status_make(QN_STATUS_NOT_FOUND, "unknown device type '%.*s'; did you mean '%s'?",
                          QN_STR_ARG(name), nearest);
  }
  long id = 0;
  if (colon) {
    char* end;
    id = strtol(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || id > INT32_MAX) {
      return qn_status_make(QN_STATUS_SYNTAX, "device '%s': expected TYPE:NUMBER, such as 'cpu:0'",
                            text);
    }
  }
  *out_device = (qn_device_t){type, (int32_t)id};
  return QN_OK;
}

int32_t qn_device_count(int32_t type) {
  const qn_device_table_t* table = qn__device_table(type);
  return table ? table->count() : 0;
}

// Returns why there is no device of the type; NULL if unknown.
static const char* absence(int32_t type) {
  const qn_device_table_t* table = qn__device_table(type);
  if (table) return table->absence ? table->absence() : NULL;
  return strcmp(qn_device_type_text(type), "unknown") == 0 ? NULL : remedy(type);
}

qn_status_t qn__device_find(qn_device_t device, const qn_device_table_t** out_table) {
  *out_table = NULL;
  const qn_device_table_t* table = qn__device_table(device.type);
  int32_t count = table ? table->count() : 0;
  if (device.id < 0 || device.id >= count) {
    const char* why = count == 0 ? absence(device.type) : NULL;
    return qn_status_make(QN_STATUS_NOT_FOUND, "no device %s:%d; there %s %d of that type%s%s",
                          qn_device_type_text(device.type), device.id, count == 1 ? "is" : "are",
                          count, why && why[0] ? ": " : "", why ? why : "");
  }
  *out_table = table;
  return QN_OK;
}

// ---------------------------------------------------------------------------------- attributes

static const struct {
  qn_attribute_t attribute;
  const char* text;
  const char* unit;
  const char* doc;
} attribute_table[] = {
#define QN_ATTRIBUTE(name, value, text, type, unit, doc) {QN_ATTRIBUTE_##name, text, unit, doc},
#include "quern/attributes.inc"
#undef QN_ATTRIBUTE
};

bool qn_attribute_at(size_t index, qn_attribute_t* out_attribute, const char** out_text,
                     const char** out_unit, const char** out_doc) {
  if (!out_attribute || !out_text || !out_unit || !out_doc) return false;
  if (index >= QN_COUNT_OF(attribute_table)) return false;
  *out_attribute = attribute_table[index].attribute;
  *out_text = attribute_table[index].text;
  *out_unit = attribute_table[index].unit;
  *out_doc = attribute_table[index].doc;
  return true;
}

qn_status_t qn_device_attribute(qn_device_t device, qn_attribute_t attribute,
                                qn_attribute_value_t* out_value) {
  QN_REQUIRE(out_value);
  memset(out_value, 0, sizeof *out_value);
  bool is_known = false;
  for (size_t i = 0; i < QN_COUNT_OF(attribute_table); i++) {
    is_known |= attribute_table[i].attribute == attribute;
  }
  if (!is_known) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%d is no device attribute", (int)attribute);
  }
  const qn_device_table_t* table;
  qn_status_t status = qn__device_find(device, &table);
  if (attribute == QN_ATTRIBUTE_EXIST) {
    out_value->type = QN_ATTRIBUTE_TYPE_BOOL;
    out_value->int_value = qn_ok(status);
    qn_status_free(status);
    return QN_OK;
  }
  QN_TRY(status);
  return table->attribute(device.id, attribute, out_value);
}

// ----------------------------------------------------------------------------- properties for
// targets

// Answers a target option. A table without target_property answers with the attribute of that name.
static qn_status_t target_property(int32_t type, int32_t id, const char* name,
                                   qn_attribute_value_t* out_value) {
  const qn_device_table_t* table;
  QN_TRY(qn__device_find((qn_device_t){type, id}, &table));
  memset(out_value, 0, sizeof *out_value);
  if (table->target_property) return table->target_property(id, name, out_value);
  for (size_t i = 0; i < QN_COUNT_OF(attribute_table); i++) {
    if (strcmp(attribute_table[i].text, name) != 0) continue;
    return table->attribute(id, attribute_table[i].attribute, out_value);
  }
  return QN_OK;
}

const qn__target_device_source_t qn__device_source = {qn_device_count, target_property, absence};

// ---------------------------------------------------------------------------------- memory

qn_status_t qn_device_allocate(qn_device_t device, size_t size_bytes, size_t alignment_bytes,
                               void** out_pointer) {
  QN_REQUIRE(out_pointer);
  *out_pointer = NULL;
  if ((alignment_bytes & (alignment_bytes - 1)) != 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "alignment %zu is not a power of two",
                          alignment_bytes);
  }
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  return table->allocate(device.id, size_bytes, alignment_bytes, out_pointer);
}

qn_status_t qn_device_free(qn_device_t device, void* pointer) {
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  return pointer ? table->free(device.id, pointer) : QN_OK;
}

qn_status_t qn_device_host_allocate(qn_device_t device, size_t size_bytes, void** out_pointer) {
  QN_REQUIRE(out_pointer);
  *out_pointer = NULL;
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  if (table->host_allocate) return table->host_allocate(device.id, size_bytes, out_pointer);
  return qn__cpu_device_table.allocate(0, size_bytes, 0, out_pointer);
}

qn_status_t qn_device_host_free(qn_device_t device, void* pointer) {
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  if (!pointer) return QN_OK;
  if (table->host_allocate && table->host_free) return table->host_free(device.id, pointer);
  return qn__cpu_device_table.free(0, pointer);
}

qn_status_t qn_workspace_allocate(qn_device_t device, qn_stream_t* stream, size_t size_bytes,
                                  void** out_pointer) {
  QN_REQUIRE(out_pointer);
  *out_pointer = NULL;
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  QN_TRY(qn__stream_check(device, stream));
  if (!table->workspace_allocate) return table->allocate(device.id, size_bytes, 0, out_pointer);
  return table->workspace_allocate(device.id, qn__stream_inner(stream), size_bytes, out_pointer);
}

qn_status_t qn_workspace_free(qn_device_t device, qn_stream_t* stream, void* pointer) {
  const qn_device_table_t* table;
  QN_TRY(qn__device_find(device, &table));
  QN_TRY(qn__stream_check(device, stream));
  if (!pointer) return QN_OK;
  if (!table->workspace_allocate || !table->workspace_free) {
    QN_TRY(qn_stream_sync(device, stream));
    return table->free(device.id, pointer);
  }
  return table->workspace_free(device.id, qn__stream_inner(stream), pointer);
}

// ---------------------------------------------------------------------------------- copies

#define PIECE_BYTES ((size_t)8 << 20)  // of a copy through the host

static bool is_same_device(qn_device_t a, qn_device_t b) {
  return a.type == b.type && a.id == b.id;
}

// Copies between two devices through host memory, in pieces. On the target it is complete on
// return, unless `stream`, which may be of either device, is one of the target: then it is in its
// order.
static qn_status_t copy_staged(const qn_copy_t* copy, qn_stream_t* stream) {
  qn_allocator_t allocator = qn_allocator_default();
  size_t piece_bytes = copy->size_bytes < PIECE_BYTES ? copy->size_bytes : PIECE_BYTES;
  void* host = qn__alloc(allocator, piece_bytes);
  if (!host) return qn__out_of_memory("a copy between devices");
  qn_device_t own = stream ? qn_stream_device(stream) : copy->from_device;
  qn_stream_t* from_stream = is_same_device(own, copy->from_device) ? stream : NULL;
  qn_stream_t* to_stream = is_same_device(own, copy->to_device) ? stream : NULL;
  qn_copy_t down = *copy, up = *copy;
  down.to_device = up.from_device = (qn_device_t){QN_DEVICE_CPU, 0};
  down.to = host;
  up.from = host;
  down.to_offset_bytes = up.from_offset_bytes = 0;
  down.is_host_pinned = up.is_host_pinned = false;
  qn_status_t status = QN_OK;
  for (size_t done = 0; qn_ok(status) && done < copy->size_bytes; done += piece_bytes) {
    size_t left = copy->size_bytes - done;
    down.size_bytes = up.size_bytes = left < piece_bytes ? left : piece_bytes;
    down.from_offset_bytes = copy->from_offset_bytes + done;
    up.to_offset_bytes = copy->to_offset_bytes + done;
    status = qn_device_copy(&down, from_stream);
    if (qn_ok(status)) status = qn_device_copy(&up, to_stream);
  }
  if (qn_ok(status) && !to_stream) status = qn_stream_sync(copy->to_device, NULL);
  qn__free(allocator, host, piece_bytes);
  return status;
}

// Reports whether the ranges overlap. They must not wrap around. The handles of a device are
// numbers in one space, also where they are no addresses (conformance/rules.inc).
static bool is_overlapping(const qn_copy_t* copy) {
  if (!is_same_device(copy->from_device, copy->to_device)) return false;
  uintptr_t from = (uintptr_t)copy->from + copy->from_offset_bytes;
  uintptr_t to = (uintptr_t)copy->to + copy->to_offset_bytes;
  return from < to + copy->size_bytes && to < from + copy->size_bytes;
}

static bool is_wrapping(const void* pointer, size_t offset_bytes, size_t size_bytes) {
  uintptr_t end;
  return __builtin_add_overflow((uintptr_t)pointer, offset_bytes, &end) ||
         __builtin_add_overflow(end, size_bytes, &end);
}

// Returns the device whose memory it is: pinned memory is the CPU's.
static qn_device_t owner_of(qn_device_t device) {
  return device.type == QN_DEVICE_CUDA_HOST ? (qn_device_t){QN_DEVICE_CPU, 0} : device;
}

qn_status_t qn_device_copy(const qn_copy_t* copy, qn_stream_t* stream) {
  QN_REQUIRE(copy);
  QN_STRUCT_READ(qn_copy_t, copy, given);
  given.from_device = owner_of(given.from_device);
  given.to_device = owner_of(given.to_device);
  copy = &given;
  const qn_device_table_t *from, *to;
  QN_TRY(qn__device_find(copy->from_device, &from));
  QN_TRY(qn__device_find(copy->to_device, &to));
  if (copy->size_bytes == 0) return QN_OK;
  if (!copy->from || !copy->to) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "copy of %zu bytes: '%s' is null",
                          copy->size_bytes, copy->from ? "to" : "from");
  }
  bool is_from_wrapping = is_wrapping(copy->from, copy->from_offset_bytes, copy->size_bytes);
  if (is_from_wrapping || is_wrapping(copy->to, copy->to_offset_bytes, copy->size_bytes)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "copy of %zu bytes: '%s' and its offset go beyond the address space",
                          copy->size_bytes, is_from_wrapping ? "from" : "to");
  }
  if (is_overlapping(copy)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "copy of %zu bytes: source and destination overlap", copy->size_bytes);
  }
  bool is_from_cpu = copy->from_device.type == QN_DEVICE_CPU;
  bool is_to_cpu = copy->to_device.type == QN_DEVICE_CPU;
  if (!is_from_cpu && !is_to_cpu && from != to) return copy_staged(copy, stream);
  qn_device_t owner = is_from_cpu ? copy->to_device : copy->from_device;
  QN_TRY(qn__stream_check(owner, stream));
  qn_status_t status = qn__device_table(owner.type)->copy(owner.id, qn__stream_inner(stream), copy);
  bool is_between = !is_from_cpu && !is_to_cpu && copy->from_device.id != copy->to_device.id;
  if (!is_between || qn_status_code(status) != QN_STATUS_UNSUPPORTED) return status;
  qn_status_free(status);
  return copy_staged(copy, stream);
}
