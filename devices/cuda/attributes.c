// devices/cuda/attributes.c: the attributes of a CUDA device, and its options of target kind
// "cuda".
//
// Only one attribute needs the context, so a target can be made from a device that is not in use.
#include <stdarg.h>
#include <stdio.h>

#include "devices/cuda/cuda.h"

static void answer_int(qn_attribute_value_t* out, int64_t value) {
  out->type = QN_ATTRIBUTE_TYPE_INT;
  out->int_value = value;
}

static void answer_bool(qn_attribute_value_t* out, bool value) {
  out->type = QN_ATTRIBUTE_TYPE_BOOL;
  out->int_value = value;
}

static void answer_text(qn_attribute_value_t* out, const char* format, ...) QN_PRINTF(2, 3);
static void answer_text(qn_attribute_value_t* out, const char* format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(out->string_value, sizeof out->string_value, format, args);
  va_end(args);
  out->type = QN_ATTRIBUTE_TYPE_STRING;
}

// Answers with a numeric attribute of the driver; gives no answer if the driver has none.
static void answer_driver(qn_attribute_value_t* out, const qn__cuda_device_t* device,
                          CUdevice_attribute attribute) {
  int value;
  if (qn__cuda()->device_get_attribute(&value, attribute, device->handle) == QN__CU_OK) {
    answer_int(out, value);
  }
}

static void answer_block(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  const qn__cuda_driver_t* cu = qn__cuda();
  int x, y, z;
  if (cu->device_get_attribute(&x, QN__CU_MAX_BLOCK_DIM_X, device->handle) == QN__CU_OK &&
      cu->device_get_attribute(&y, QN__CU_MAX_BLOCK_DIM_Y, device->handle) == QN__CU_OK &&
      cu->device_get_attribute(&z, QN__CU_MAX_BLOCK_DIM_Z, device->handle) == QN__CU_OK) {
    answer_text(out, "[%d, %d, %d]", x, y, z);
  }
}

static void answer_total_memory(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  size_t size_bytes;
  if (qn__cuda()->device_total_mem(&size_bytes, device->handle) == QN__CU_OK) {
    answer_int(out, (int64_t)size_bytes);
  }
}

// Writes the UUID in the format of the vendor's tools: "GPU-c0ffee00-...".
static bool write_uuid(const qn__cuda_device_t* device, char out[48]) {
  CUuuid uuid;
  const qn__cuda_driver_t* cu = qn__cuda();
  if (!cu->device_get_uuid || cu->device_get_uuid(&uuid, device->handle) != QN__CU_OK) return false;
  int at = snprintf(out, 48, "GPU-");
  for (int i = 0; i < 16; i++) {
    const bool has_dash = i == 4 || i == 6 || i == 8 || i == 10;
    at += snprintf(out + at, 48 - (size_t)at, "%s%02x", has_dash ? "-" : "",
                   (unsigned char)uuid.bytes[i]);
  }
  return true;
}

// Answers with the free memory. Enters the context, because the driver reports the current one.
static qn_status_t answer_available(qn_attribute_value_t* out, int32_t id) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  size_t free_bytes, total_bytes;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn_status_t status = qn__cuda_check(device, qn__cuda()->mem_get_info(&free_bytes, &total_bytes),
                                      "querying the available memory");
  if (qn_ok(status)) answer_int(out, (int64_t)free_bytes);
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
  char text[256];
  switch (attribute) {
    case QN_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      answer_int(out_value, device->max_threads);
      break;
    case QN_ATTRIBUTE_WARP_SIZE:
      answer_driver(out_value, device, QN__CU_WARP_SIZE);
      break;
    case QN_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      answer_int(out_value, device->max_shared_bytes);
      break;
    case QN_ATTRIBUTE_COMPUTE_VERSION:
      answer_text(out_value, "%d.%d", device->major, device->minor);
      break;
    case QN_ATTRIBUTE_DEVICE_NAME:
      if (qn__cuda()->device_get_name(text, sizeof text, device->handle) == QN__CU_OK) {
        answer_text(out_value, "%s", text);
      }
      break;
    case QN_ATTRIBUTE_MAX_CLOCK_RATE:
      answer_driver(out_value, device, QN__CU_CLOCK_RATE);
      break;
    case QN_ATTRIBUTE_MULTI_PROCESSOR_COUNT:
      answer_int(out_value, device->multiprocessor_count);
      break;
    case QN_ATTRIBUTE_MAX_THREAD_DIMENSIONS:
      answer_block(out_value, device);
      break;
    case QN_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      answer_driver(out_value, device, QN__CU_MAX_REGISTERS_PER_BLOCK);
      break;
    case QN_ATTRIBUTE_API_VERSION:
      answer_int(out_value, qn__cuda_version());
      break;
    case QN_ATTRIBUTE_DRIVER_VERSION:
      if (qn__cuda_package_version()[0]) answer_text(out_value, "%s", qn__cuda_package_version());
      break;
    case QN_ATTRIBUTE_L2_CACHE_SIZE_BYTES:
      answer_driver(out_value, device, QN__CU_L2_CACHE_SIZE);
      break;
    case QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY:
    case QN_ATTRIBUTE_MAX_BUFFER_BYTES:
      answer_total_memory(out_value, device);
      break;
    case QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY:
      return answer_available(out_value, id);
    case QN_ATTRIBUTE_IMAGE_PITCH_ALIGNMENT:
      answer_driver(out_value, device, QN__CU_TEXTURE_PITCH_ALIGNMENT);
      break;
    case QN_ATTRIBUTE_POINTER_IS_ADDRESS:
      answer_bool(out_value, true);
      break;
    case QN_ATTRIBUTE_HOST_ACCESSIBLE:
      answer_bool(out_value, false);
      break;
    case QN_ATTRIBUTE_ALLOCATION_ALIGNMENT:
      answer_int(out_value, 256);
      break;
    case QN_ATTRIBUTE_UUID:
      if (write_uuid(device, text)) answer_text(out_value, "%s", text);
      break;
    case QN_ATTRIBUTE_MAX_GRID_BLOCKS:
      answer_int(out_value, device->max_grid);
      break;
    case QN_ATTRIBUTE_DRIVER_IDENTITY:
      answer_text(out_value, "CUDA %d.%d, driver %s", qn__cuda_version() / 1000,
                  qn__cuda_version() % 1000 / 10,
                  qn__cuda_package_version()[0] ? qn__cuda_package_version() : "unknown");
      break;
    default:
      break;  // no answer
  }
  return QN_OK;
}

// Answers with the architecture. Since 9.0 it has features that only code for exactly this
// architecture may use, which the suffix "a" enables.
static void answer_arch(qn_attribute_value_t* out, const qn__cuda_device_t* device) {
  answer_text(out, "sm_%d%d%s", device->major, device->minor, device->major >= 9 ? "a" : "");
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
  if (strcmp(name, "arch") == 0) answer_arch(out_value, device);
  for (size_t i = 0; i < QN_COUNT_OF(numbers); i++) {
    if (strcmp(name, numbers[i].name) == 0) answer_driver(out_value, device, numbers[i].attribute);
  }
  return QN_OK;
}
