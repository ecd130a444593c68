// SPDX-License-Identifier: Apache-2.0
// devices/cuda/attributes.c: the attributes of a CUDA device, and its options of target kind
// "cuda".
//
// Only one attribute needs the context, so a target can be made from a device that is not in use.
#include "devices/attribute.h"
#include "devices/cuda/cuda.h"

// Answers with a numeric attribute of the driver; gives no answer if the driver has none.
static qn_status_t answer_driver(qn_attribute_value_t* out, const qn__cuda_device_t* device,
                                 CUdevice_attribute attribute) {
  int value;
  const CUresult result = qn__cuda()->device_get_attribute(&value, attribute, device->handle);
  return result == QN__CU_OK ? qn__answer_int(out, value) : QN_OK;
}

static qn_status_t answer_block(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  int sizes[3];
  for (int i = 0; i < 3; i++) {
    if (qn__cuda()->device_get_attribute(&sizes[i], QN__CU_MAX_BLOCK_DIM_X + i, device->handle) !=
        QN__CU_OK) {
      return QN_OK;
    }
  }
  return qn__answer_text(out, "[%d, %d, %d]", sizes[0], sizes[1], sizes[2]);
}

static qn_status_t answer_total_memory(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  size_t size_bytes;
  const CUresult result = qn__cuda()->device_total_mem(&size_bytes, device->handle);
  return result == QN__CU_OK ? qn__answer_int(out, (int64_t)size_bytes) : QN_OK;
}

static qn_status_t answer_name(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  char name[256];
  const CUresult result = qn__cuda()->device_get_name(name, sizeof name, device->handle);
  return result == QN__CU_OK ? qn__answer_text(out, "%s", name) : QN_OK;
}

// Answers in the format of the vendor's tools: "GPU-c0ffee00-...".
static qn_status_t answer_uuid(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  CUuuid uuid;
  const qn__cuda_driver_t* cu = qn__cuda();
  if (!cu->device_get_uuid || cu->device_get_uuid(&uuid, device->handle) != QN__CU_OK) return QN_OK;
  return qn__answer_uuid(out, "GPU-", (const uint8_t*)uuid.bytes);
}

// Answers with the free memory. Enters the context, because the driver reports the current one.
static qn_status_t answer_available(qn_attribute_value_t* out, int32_t id) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  size_t free_bytes, total_bytes;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn_status_t status = qn__cuda_check(device, qn__cuda()->mem_get_info(&free_bytes, &total_bytes),
                                      "querying the available memory");
  if (qn_ok(status)) status = qn__answer_int(out, (int64_t)free_bytes);
  qn__cuda_leave(&scope);
  return status;
}

qn_status_t qn__cuda_attribute(int32_t id, qn_attribute_t attribute,
                               qn_attribute_value_t* out_value) {
  const qn__cuda_device_t* device = qn__cuda_device(id);
  if (!device) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "no device cuda:%d: %s", id, qn__cuda_absence());
  }
  if (qn__cuda_is_forked()) return qn__cuda_usable(device);
  const char* package = qn__cuda_package_version();
  switch (attribute) {
    case QN_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return qn__answer_int(out_value, device->max_threads);
    case QN_ATTRIBUTE_WARP_SIZE:
      return answer_driver(out_value, device, QN__CU_WARP_SIZE);
    case QN_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return qn__answer_int(out_value, device->max_shared_bytes);
    case QN_ATTRIBUTE_COMPUTE_VERSION:
      return qn__answer_text(out_value, "%d.%d", device->major, device->minor);
    case QN_ATTRIBUTE_DEVICE_NAME:
      return answer_name(out_value, device);
    case QN_ATTRIBUTE_MAX_CLOCK_RATE:
      return answer_driver(out_value, device, QN__CU_CLOCK_RATE);
    case QN_ATTRIBUTE_MULTI_PROCESSOR_COUNT:
      return qn__answer_int(out_value, device->multiprocessor_count);
    case QN_ATTRIBUTE_MAX_THREAD_DIMENSIONS:
      return answer_block(out_value, device);
    case QN_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      return answer_driver(out_value, device, QN__CU_MAX_REGISTERS_PER_BLOCK);
    case QN_ATTRIBUTE_API_VERSION:
      return qn__answer_int(out_value, qn__cuda_version());
    case QN_ATTRIBUTE_DRIVER_VERSION:
      return package[0] ? qn__answer_text(out_value, "%s", package) : QN_OK;
    case QN_ATTRIBUTE_L2_CACHE_SIZE_BYTES:
      return answer_driver(out_value, device, QN__CU_L2_CACHE_SIZE);
    case QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY:
    case QN_ATTRIBUTE_MAX_BUFFER_BYTES:
      return answer_total_memory(out_value, device);
    case QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY:
      return answer_available(out_value, id);
    case QN_ATTRIBUTE_IMAGE_PITCH_ALIGNMENT:
      return answer_driver(out_value, device, QN__CU_TEXTURE_PITCH_ALIGNMENT);
    case QN_ATTRIBUTE_POINTER_IS_ADDRESS:
      return qn__answer_bool(out_value, true);
    case QN_ATTRIBUTE_HOST_ACCESSIBLE:
      return qn__answer_bool(out_value, false);
    case QN_ATTRIBUTE_ALLOCATION_ALIGNMENT:
      return qn__answer_int(out_value, 256);
    case QN_ATTRIBUTE_UUID:
      return answer_uuid(out_value, device);
    case QN_ATTRIBUTE_MAX_GRID_BLOCKS:
      return qn__answer_int(out_value, device->max_grid);
    case QN_ATTRIBUTE_DRIVER_IDENTITY:
      return qn__answer_text(out_value, "CUDA %d.%d, driver %s", qn__cuda_version() / 1000,
                             qn__cuda_version() % 1000 / 10, package[0] ? package : "unknown");
    default:
      return QN_OK;  // no answer
  }
}

// Answers with the architecture. Since 9.0 it has features that only code for exactly this
// architecture may use, which the suffix "a" enables.
static qn_status_t answer_arch(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  return qn__answer_text(out, "sm_%d%d%s", device->major, device->minor,
                         device->major >= 9 ? "a" : "");
}

qn_status_t qn__cuda_target_property(int32_t id, const char* name,
                                     qn_attribute_value_t* out_value) {
  memset(out_value, 0, sizeof *out_value);
  const qn__cuda_device_t* device = qn__cuda_device(id);
  if (!device) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "no device cuda:%d: %s", id, qn__cuda_absence());
  }
  static const struct {
    const char* name;
    CUdevice_attribute attribute;
  } numbers[] = {
      {"l2_cache_bytes", QN__CU_L2_CACHE_SIZE},
      {"max_shared_memory_per_block", QN__CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
      {"max_threads_per_block", QN__CU_MAX_THREADS_PER_BLOCK},
      {"multiprocessors", QN__CU_MULTIPROCESSOR_COUNT},
      {"registers_per_block", QN__CU_MAX_REGISTERS_PER_BLOCK},
      {"warp_size", QN__CU_WARP_SIZE},
  };
  if (qn__cuda_is_forked()) return qn__cuda_usable(device);
  if (strcmp(name, "arch") == 0) return answer_arch(out_value, device);
  for (size_t i = 0; i < QN_COUNT_OF(numbers); i++) {
    if (strcmp(name, numbers[i].name) != 0) continue;
    return answer_driver(out_value, device, numbers[i].attribute);
  }
  return QN_OK;
}
