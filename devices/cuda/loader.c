// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // dlinfo
// devices/cuda/loader.c: opens the driver (libcuda.so.1 or QUERN_CUDA_LIBRARY), finds its devices,
// and converts its failures to statuses.
//
// The first question about CUDA devices opens the driver, once; it is never closed. If something is
// missing, there are no devices, and a message says why. This file creates no contexts.
//
// Read next: context.c.
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/fork.h"
#include "base/fs.h"
#include "devices/cuda/cuda.h"

#define LIBRARY "libcuda.so.1"
// The oldest version with all features of the table: graphs with flags, pools, user objects.
#define LEAST_VERSION 11040

static struct {
  bool is_usable;
  _Atomic bool is_opened;  // cuInit was called in this process or a parent
  _Atomic bool is_forked;
  int version;
  int32_t count;
  char package_version[64];
  char absence[512];
  qn__cuda_driver_t table;
  qn__cuda_device_t devices[QN__CUDA_MAX_DEVICES];
} driver;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

// ---------------------------------------------------------------------------------- forks

static void fork_prepare(void* self) {
  (void)self;
  for (int32_t i = 0; i < driver.count; i++) qn__mutex_lock(&driver.devices[i].mutex);
}
static void fork_parent(void* self) {
  (void)self;
  for (int32_t i = 0; i < driver.count; i++) qn__mutex_unlock(&driver.devices[i].mutex);
}
static void fork_child(void* self) {
  (void)self;
  atomic_store(&driver.is_forked, true);
  for (int32_t i = 0; i < driver.count; i++) {
    qn_status_free(qn__mutex_init(&driver.devices[i].mutex));
    qn__short_lock_init(&driver.devices[i].event_lock);
  }
}

bool qn__cuda_is_forked(void) {
  return atomic_load_explicit(&driver.is_forked, memory_order_relaxed);
}

// ---------------------------------------------------------------------------------- opening

static bool absent(const char* format, ...) QN_PRINTF(1, 2);
static bool absent(const char* format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(driver.absence, sizeof driver.absence, format, args);
  va_end(args);
  return false;
}

// Writes "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)"; a number if it is unknown.
static void describe(CUresult result, char* out, size_t size) {
  const char *name = NULL, *text = NULL;
  if (driver.table.get_error_name) (void)driver.table.get_error_name(result, &name);
  if (driver.table.get_error_string) (void)driver.table.get_error_string(result, &text);
  if (name && text) {
    (void)snprintf(out, size, "%s (%s)", name, text);
  } else {
    (void)snprintf(out, size, "error %d of the driver", (int)result);
  }
}

static bool find_symbols(void* library, const char* path) {
  static const struct {
    const char* symbol;
    size_t offset;
    bool is_required;
  } symbols[] = {
#define REQUIRED true
#define OPTIONAL false
#define QN_CUDA_SYMBOL(name, symbol, need, params) \
  {#symbol, offsetof(qn__cuda_driver_t, name), need},
#include "devices/cuda/cuda_symbols.inc"
#undef QN_CUDA_SYMBOL
#undef REQUIRED
#undef OPTIONAL
  };
  for (size_t i = 0; i < QN_COUNT_OF(symbols); i++) {
    void* address = dlsym(library, symbols[i].symbol);
    if (!address && symbols[i].is_required) {
      return absent("the driver %s is too old: it has no %s", path, symbols[i].symbol);
    }
    memcpy((char*)&driver.table + symbols[i].offset, &address, sizeof address);
  }
  return true;
}

// Finds the version of the driver's package: libcuda.so.1 is a link to libcuda.so.580.159.03. If
// the name has none, reads that of the kernel module.
static void find_package_version(void* library) {
  struct link_map* map = NULL;
  char* path = NULL;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0] == '/') {
    path = realpath(map->l_name, NULL);
  }
  const char* version = path ? strstr(path, ".so.") : NULL;
  if (version && strchr(version + 4, '.') &&
      strspn(version + 4, "0123456789.") == strlen(version + 4)) {
    (void)snprintf(driver.package_version, sizeof driver.package_version, "%s", version + 4);
  }
  free(path);
  if (driver.package_version[0] != '\0') return;
  const qn_allocator_t allocator = qn_allocator_default();
  uint8_t* data;
  size_t size;
  qn_status_t status =
      qn__fs_read_file(allocator, "/sys/module/nvidia/version", 4096, &data, &size);
  if (qn_ok(status)) {
    (void)snprintf(driver.package_version, sizeof driver.package_version, "%.*s",
                   (int)strcspn((const char*)data, "\n"), (const char*)data);
    qn__free(allocator, data, size + 1);
  }
  qn_status_free(status);
}

static bool describe_device(qn__cuda_device_t* device) {
  const struct {
    CUdevice_attribute attribute;
    int* out;
  } asked[] = {
      {QN__CU_COMPUTE_CAPABILITY_MAJOR, &device->major},
      {QN__CU_COMPUTE_CAPABILITY_MINOR, &device->minor},
      {QN__CU_MULTIPROCESSOR_COUNT, &device->multiprocessor_count},
      {QN__CU_MAX_THREADS_PER_BLOCK, &device->max_threads},
      {QN__CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &device->max_shared_bytes},
      {QN__CU_MAX_GRID_DIM_X, &device->max_grid},
  };
  char text[256];
  CUresult result = driver.table.device_get(&device->handle, device->id);
  for (size_t i = 0; result == QN__CU_OK && i < QN_COUNT_OF(asked); i++) {
    result = driver.table.device_get_attribute(asked[i].out, asked[i].attribute, device->handle);
  }
  if (result != QN__CU_OK) {
    describe(result, text, sizeof text);
    return absent("device %d cannot be queried: %s", device->id, text);
  }
  int has_pools = 0;
  const qn__cuda_driver_t* table = &driver.table;
  if (table->pool_create && table->pool_set_attribute && table->pool_trim && table->pool_alloc &&
      table->pool_free) {
    (void)table->device_get_attribute(&has_pools, QN__CU_MEMORY_POOLS_SUPPORTED, device->handle);
  }
  device->has_pools = has_pools != 0;
  if (device->multiprocessor_count < 1) device->multiprocessor_count = 1;
  return true;
}

static bool open_driver(void) {
  const char* path = qn__env_get("QUERN_CUDA_LIBRARY");
  if (!path) path = LIBRARY;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    return absent("the driver cannot be opened: %s", why ? why : path);
  }
  if (!find_symbols(library, path)) return false;
  char text[256];
  CUresult result = driver.table.driver_get_version(&driver.version);
  if (result == QN__CU_OK && driver.version < LEAST_VERSION) {
    return absent("the driver %s is too old: it offers CUDA %d.%d, and %d.%d is needed", path,
                  driver.version / 1000, driver.version % 1000 / 10, LEAST_VERSION / 1000,
                  LEAST_VERSION % 1000 / 10);
  }
  atomic_store(&driver.is_opened, true);
  if (result == QN__CU_OK) result = driver.table.init(0);
  int count = 0;
  if (result == QN__CU_OK) result = driver.table.device_get_count(&count);
  if (result != QN__CU_OK) {
    describe(result, text, sizeof text);
    return absent("the driver %s does not start: %s", path, text);
  }
  if (count == 0) return absent("the driver %s has no device", path);
  if (count > QN__CUDA_MAX_DEVICES) count = QN__CUDA_MAX_DEVICES;
  find_package_version(library);
  for (int i = 0; i < count; i++) {
    qn__cuda_device_t* device = &driver.devices[i];
    device->id = i;
    if (!describe_device(device)) return false;
    qn__short_lock_init(&device->event_lock);
    qn_status_t status = qn__mutex_init(&device->mutex);
    if (qn_ok(status)) status = qn__cuda_workspace_init(device);
    if (!qn_ok(status)) {
      (void)absent("%s", qn_status_message(status));
      qn_status_free(status);
      return false;
    }
  }
  static qn__fork_node_t node = {
      .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  driver.count = count;
  if (qn__fork_register(&node)) return true;
  driver.count = 0;
  return absent("no memory to watch for forks");
}

static void open_once(void) {
  driver.is_usable = open_driver();
}

const qn__cuda_driver_t* qn__cuda(void) {
  (void)pthread_once(&driver_once, open_once);
  return driver.is_usable ? &driver.table : NULL;
}

int32_t qn__cuda_count(void) {
  return qn__cuda() ? driver.count : 0;
}

const char* qn__cuda_absence(void) {
  (void)qn__cuda();
  return driver.absence;
}

int qn__cuda_version(void) {
  return qn__cuda() ? driver.version : 0;
}

const char* qn__cuda_package_version(void) {
  return qn__cuda() ? driver.package_version : "";
}

qn__cuda_device_t* qn__cuda_device(int32_t id) {
  return id >= 0 && id < qn__cuda_count() ? &driver.devices[id] : NULL;
}

// ---------------------------------------------------------------------------------- statuses

// Reports whether the driver repeats the failure for every later call on the context.
static bool is_fatal(CUresult result) {
  return result == QN__CU_ECC_UNCORRECTABLE || result == QN__CU_NVLINK_UNCORRECTABLE ||
         result == QN__CU_CONTAINED || result == QN__CU_ILLEGAL_ADDRESS ||
         result == QN__CU_LAUNCH_TIMEOUT ||
         (result >= QN__CU_CONTEXT_IS_DESTROYED && result <= QN__CU_ASSERT) ||
         (result >= QN__CU_HARDWARE_STACK_ERROR && result <= QN__CU_LAUNCH_FAILED) ||
         result == QN__CU_TENSOR_MEMORY_LEAK || result == QN__CU_EXTERNAL_DEVICE;
}

static qn_status_code_t code_of(CUresult result) {
  switch (result) {
    case QN__CU_OUT_OF_MEMORY:
      return QN_STATUS_OUT_OF_MEMORY;
    case QN__CU_INVALID_IMAGE:
      return QN_STATUS_DATA_LOSS;
    case QN__CU_NO_BINARY_FOR_GPU:
      return QN_STATUS_INCOMPATIBLE;
    case QN__CU_NOT_SUPPORTED:
    case QN__CU_PEER_ACCESS_UNSUPPORTED:
      return QN_STATUS_UNSUPPORTED;
    default:
      return QN_STATUS_DEVICE_ERROR;
  }
}

qn_status_t qn__cuda_check(qn__cuda_device_t* device, CUresult result, const char* format, ...) {
  if (__builtin_expect(result == QN__CU_OK, 1)) return QN_OK;
  if (device && is_fatal(result)) {
    CUresult none = QN__CU_OK;
    (void)atomic_compare_exchange_strong(&device->fatal, &none, result);
  }
  char what[160], text[256];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(what, sizeof what, format, args);
  va_end(args);
  describe(result, text, sizeof text);
  if (!device) return qn_status_make(code_of(result), "cuda: %s: %s", what, text);
  return qn_status_make(code_of(result), "cuda:%d: %s: %s", device->id, what, text);
}

qn_status_t qn__cuda_usable(const qn__cuda_device_t* device) {
  if (__builtin_expect(qn__cuda_is_forked(), 0)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "cuda:%d: the driver was opened before this process was forked, and does "
                          "not survive that; open it in the child first, or start a new program",
                          device->id);
  }
  CUresult fatal = atomic_load_explicit(&device->fatal, memory_order_relaxed);
  if (__builtin_expect(fatal == QN__CU_OK, 1)) return QN_OK;
  char text[256];
  describe(fatal, text, sizeof text);
  return qn_status_make(QN_STATUS_DEVICE_ERROR,
                        "cuda:%d: work on the device ended with %s, after which the driver runs "
                        "nothing more on it in this process",
                        device->id, text);
}
