// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/device.c: the device table, the list of devices, opening them, and their state
// after fork and at process exit.
//
// At process exit no object is destroyed: drivers have threads and exit handlers of their own, and
// destroying objects while these run crashes. Queued work is waited for, and no new work starts.
// Read next: attributes.c, memory.c, stream.c, executable.c.
#include "base/alloc.h"
#include "base/fork.h"
#include "devices/vulkan/executable.h"
#include "devices/vulkan/stream.h"

typedef enum context_state {
  CONTEXT_NEW = 0,
  CONTEXT_READY,    // with or without devices
  CONTEXT_FOREIGN,  // inherited by a child of fork
  CONTEXT_ENDED,    // the process is ending
} context_state_t;

static struct {
  pthread_mutex_t mutex;
  _Atomic int state;
  bool is_registered;
  bool has_allocator;
  qn_allocator_t allocator;
  qn__vk_instance_t instance;
  int32_t count;
  qn__vk_device_t* devices[QN__VK_MAX_DEVICES];
  qn_status_t reason;  // why there is no device
} context = {.mutex = PTHREAD_MUTEX_INITIALIZER};

// ---------------------------------------------------------------------------------- fork and exit

static void before_fork(void* self) {
  (void)self;
  (void)pthread_mutex_lock(&context.mutex);
}
static void in_parent(void* self) {
  (void)self;
  (void)pthread_mutex_unlock(&context.mutex);
}
static void in_child(void* self) {
  (void)self;
  if (atomic_load(&context.state) == CONTEXT_READY && context.instance.handle) {
    atomic_store(&context.state, CONTEXT_FOREIGN);
  }
  (void)pthread_mutex_unlock(&context.mutex);
}

static void at_exit(void* self, int64_t deadline_ns) {
  (void)self;
  int state = CONTEXT_READY;
  if (!atomic_compare_exchange_strong(&context.state, &state, CONTEXT_ENDED)) return;
  for (int32_t i = 0; i < context.count; i++) {
    if (atomic_load(&context.devices[i]->is_open)) {
      qn__vk_submit_timer_stop(context.devices[i]);
      qn__vk_drain_all(context.devices[i], deadline_ns);
    }
  }
}

static qn__fork_node_t fork_node = {
    .prepare = before_fork, .parent = in_parent, .child = in_child, .at_exit = at_exit};

// ---------------------------------------------------------------------------------- the list

// Devices are listed in this order of their types.
static int rank_of(const qn__vk_device_t* device) {
  static const VkPhysicalDeviceType types[] = {
      VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
      VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU, VK_PHYSICAL_DEVICE_TYPE_OTHER};
  int rank = 0;
  while (rank < 4 && types[rank] != device->info.properties.deviceType) rank++;
  return rank;
}

static void device_deinit(qn__vk_device_t* device) {
  if (device->handle) {
    for (uint32_t i = 0; i < device->queue_count; i++) {
      qn__mutex_deinit(&device->queues[i].mutex);
    }
    device->queue_count = 0;
    if (device->vk.DestroyDevice) device->vk.DestroyDevice(device->handle, NULL);
    device->handle = NULL;
  }
}

static void destroy_device(qn__vk_device_t* device) {
  if (!device) return;
  if (atomic_load(&device->is_open)) {
    qn__vk_submit_timer_stop(device);
    qn__vk_drain_all(device, INT64_MAX);
    qn__vk_stream_t* stream = atomic_exchange(&device->default_stream, NULL);
    if (stream) qn__vk_stream_release(stream);
    qn__vk_layouts_deinit(device);
    qn__vk_memory_deinit(device);
    qn__vk_timelines_deinit(device);  // after the memory, which held the last streams
    device_deinit(device);
  }
  qn__cond_deinit(&device->submit_timer.changed);
  qn__mutex_deinit(&device->submit_timer.mutex);
  qn__mutex_deinit(&device->streams_mutex);
  qn__mutex_deinit(&device->layouts_mutex);
  qn__mutex_deinit(&device->open_mutex);
  qn__free(device->allocator, device, sizeof *device);
}

static qn_status_t make_device(const qn__vk_info_t* info, qn__vk_device_t** out_device) {
  qn__vk_device_t* device = qn__alloc_zero(context.allocator, 1, sizeof *device);
  if (!device) return qn__out_of_memory("a Vulkan device");
  device->allocator = context.allocator;
  device->info = *info;
  qn_status_t status = qn__mutex_init(&device->open_mutex);
  if (qn_ok(status)) status = qn__mutex_init(&device->layouts_mutex);
  if (qn_ok(status)) status = qn__mutex_init(&device->streams_mutex);
  if (qn_ok(status)) status = qn__mutex_init(&device->submit_timer.mutex);
  if (qn_ok(status)) status = qn__cond_init(&device->submit_timer.changed);
  if (qn_ok(status)) {
    *out_device = device;
    return QN_OK;
  }
  qn__free(context.allocator, device, sizeof *device);
  return status;
}

// Adds the usable devices, sorted by kind, and within a kind in the driver's order.
static qn_status_t enumerate(qn_status_t* out_reason) {
  VkPhysicalDevice physical[QN__VK_MAX_DEVICES];
  uint32_t count = QN__VK_MAX_DEVICES;
  VkResult result =
      context.instance.EnumeratePhysicalDevices(context.instance.handle, &count, physical);
  if (result != VK_SUCCESS && result != VK_INCOMPLETE) {
    *out_reason = qn_status_make(QN_STATUS_UNAVAILABLE, "vulkan: vkEnumeratePhysicalDevices: %s",
                                 qn__vk_result_text(result));
    return QN_OK;
  }
  for (uint32_t i = 0; i < count; i++) {
    qn__vk_info_t info;
    qn_status_t status = qn__vk_probe(&context.instance, physical[i], context.allocator, &info);
    if (qn_status_code(status) == QN_STATUS_UNAVAILABLE) {
      if (qn_ok(*out_reason)) {
        *out_reason = status;
      } else {
        qn_status_free(status);
      }
      continue;
    }
    QN_TRY(status);
    qn__vk_device_t* device = NULL;
    QN_TRY(make_device(&info, &device));
    int32_t at = context.count++;
    for (; at > 0 && rank_of(context.devices[at - 1]) > rank_of(device); at--) {
      context.devices[at] = context.devices[at - 1];
    }
    context.devices[at] = device;
  }
  for (int32_t i = 0; i < context.count; i++) context.devices[i]->id = i;
  if (context.count == 0 && qn_ok(*out_reason)) {
    *out_reason = qn_status_make(QN_STATUS_UNAVAILABLE, "vulkan: the driver has no devices");
  }
  return QN_OK;
}

static void clear(void) {
  for (int32_t i = 0; i < context.count; i++) destroy_device(context.devices[i]);
  context.count = 0;
  qn__vk_instance_close(&context.instance);
  qn_status_free(context.reason);
  context.reason = QN_OK;
}

// Creates the instance and the list of devices, with the mutex held. If memory is exhausted, the
// next query tries again.
static qn_status_t open_context(void) {
  if (!context.has_allocator) context.allocator = qn_allocator_default();
  qn_status_t reason = qn__vk_instance_open(&context.instance);
  qn_status_t status = QN_OK;
  if (qn_ok(reason)) status = enumerate(&reason);
  if (!qn_ok(status)) {
    qn_status_free(reason);
    clear();
    return status;
  }
  if (context.count == 0) {
    qn__vk_instance_close(&context.instance);
    context.reason = reason;
  } else {
    qn_status_free(reason);
    qn__fork_watch_exit();
  }
  atomic_store_explicit(&context.state, CONTEXT_READY, memory_order_release);
  return QN_OK;
}

static qn_status_t ensure_context(void) {
  if (atomic_load_explicit(&context.state, memory_order_acquire) != CONTEXT_NEW) return QN_OK;
  // Must come before the lock: a fork takes the lock while it holds the registry's.
  static pthread_mutex_t node_mutex = PTHREAD_MUTEX_INITIALIZER;
  (void)pthread_mutex_lock(&node_mutex);
  if (!context.is_registered) context.is_registered = qn__fork_register(&fork_node);
  bool is_registered = context.is_registered;
  (void)pthread_mutex_unlock(&node_mutex);
  if (!is_registered) return qn__out_of_memory("the handler of forks");
  qn_status_t status = QN_OK;
  (void)pthread_mutex_lock(&context.mutex);
  if (atomic_load(&context.state) == CONTEXT_NEW) status = open_context();
  (void)pthread_mutex_unlock(&context.mutex);
  return status;
}

void qn__vulkan_reset(qn_allocator_t allocator) {
  (void)pthread_mutex_lock(&context.mutex);
  if (atomic_load(&context.state) == CONTEXT_READY) {
    clear();
    atomic_store(&context.state, CONTEXT_NEW);
  }
  context.allocator = allocator;
  context.has_allocator = true;
  (void)pthread_mutex_unlock(&context.mutex);
}

qn_status_t qn__vulkan_available(void) {
  QN_TRY(ensure_context());
  if (context.count > 0) return QN_OK;
  return context.reason ? qn_status_clone(context.reason)
                        : qn_status_make(QN_STATUS_UNAVAILABLE, "vulkan: no device");
}

// Returns why there is no device, or NULL. The text is valid until a reset.
static const char* absence(void) {
  qn_status_t status = ensure_context();
  qn_status_free(status);
  return context.reason ? qn_status_message(context.reason) : NULL;
}

static int32_t count(void) {
  qn_status_t status = ensure_context();
  bool is_known = qn_ok(status);
  qn_status_free(status);
  return is_known ? context.count : 0;
}

qn__vk_device_t* qn__vk_find(int32_t id) {
  return id >= 0 && id < count() ? context.devices[id] : NULL;
}

const qn__vk_instance_t* qn__vk_instance(void) {
  return &context.instance;
}

bool qn__vk_is_usable(void) {
  return atomic_load_explicit(&context.state, memory_order_relaxed) < CONTEXT_FOREIGN;
}

// ---------------------------------------------------------------------------------- opening

static qn_status_t load_functions(qn__vk_device_t* device) {
  const char* missing = NULL;
  PFN_vkGetDeviceProcAddr get = context.instance.GetDeviceProcAddr;
#define QN_VK_DEVICE(name, suffix)                                          \
  device->vk.name = (PFN_vk##name)get(device->handle, "vk" #name);          \
  if (!device->vk.name && suffix[0] != '\0') {                              \
    device->vk.name = (PFN_vk##name)get(device->handle, "vk" #name suffix); \
  }                                                                         \
  if (!device->vk.name) missing = "vk" #name;
#include "devices/vulkan/vulkan_symbols.inc"
  if (!missing) return QN_OK;
  return qn_status_make(QN_STATUS_DEVICE_ERROR, "vulkan:%d: the driver has no %s", device->id,
                        missing);
}

static qn_status_t open_device(qn__vk_device_t* device) {
  QN_TRY(qn__vk_create_device(&context.instance, &device->info, &device->handle));
  qn_status_t status = load_functions(device);
  for (uint32_t i = 0; qn_ok(status) && i < device->info.queue_count; i++) {
    qn__vk_queue_t* queue = &device->queues[i];
    device->vk.GetDeviceQueue(device->handle, device->info.family, i, &queue->handle);
    status = qn__mutex_init(&queue->mutex);
    if (qn_ok(status)) device->queue_count++;
  }
  if (qn_ok(status)) status = qn__vk_memory_init(device);
  if (!qn_ok(status)) {
    device_deinit(device);
    return status;
  }
  atomic_store_explicit(&device->is_open, true, memory_order_release);
  qn__fork_watch_exit();
  return QN_OK;
}

// Handles all but the common case: the device is not listed, not open, or not usable.
static __attribute__((noinline)) qn_status_t use_slowly(int32_t id, int state,
                                                        qn__vk_device_t** out_device) {
  qn__vk_device_t* device = qn__vk_find(id);
  if (!device) return qn_status_make(QN_STATUS_NOT_FOUND, "no device vulkan:%d", id);
  if (state > CONTEXT_READY) {
    return qn_status_make(
        QN_STATUS_UNAVAILABLE, "vulkan:%d: %s", id,
        state == CONTEXT_FOREIGN
            ? "the device was opened before fork and belongs to the parent process; start a new "
              "program, or use Vulkan in the child alone"
            : "the process is ending");
  }
  if (!atomic_load_explicit(&device->is_open, memory_order_acquire)) {
    qn_status_t status = QN_OK;
    qn__mutex_lock(&device->open_mutex);
    if (!atomic_load(&device->is_open)) status = open_device(device);
    qn__mutex_unlock(&device->open_mutex);
    QN_TRY(status);
  }
  if (atomic_load_explicit(&device->is_lost, memory_order_relaxed)) {
    return qn__vk_status(device, VK_ERROR_DEVICE_LOST, "an earlier call");
  }
  *out_device = device;
  return QN_OK;
}

qn_status_t qn__vk_use(int32_t id, qn__vk_device_t** out_device) {
  int state = atomic_load_explicit(&context.state, memory_order_acquire);
  // Every launch takes this path.
  if (__builtin_expect(state == CONTEXT_READY && id >= 0 && id < context.count, 1)) {
    qn__vk_device_t* device = context.devices[id];
    if (__builtin_expect(atomic_load_explicit(&device->is_open, memory_order_acquire) &&
                             !atomic_load_explicit(&device->is_lost, memory_order_relaxed),
                         1)) {
      *out_device = device;
      return QN_OK;
    }
  }
  return use_slowly(id, state, out_device);
}

qn_status_t qn__vk_status(qn__vk_device_t* device, VkResult result, const char* call) {
  if (result >= 0) return QN_OK;
  if (result == VK_ERROR_DEVICE_LOST) atomic_store(&device->is_lost, true);
  if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "vulkan:%d: %s: %s", device->id, call,
                          qn__vk_result_text(result));
  }
  return qn_status_make(
      QN_STATUS_DEVICE_ERROR, "vulkan:%d: %s: %s%s", device->id, call, qn__vk_result_text(result),
      result == VK_ERROR_DEVICE_LOST ? "; this process can no longer use the device" : "");
}

qn_status_t qn__vulkan_stats(int32_t id, qn__vulkan_stats_t* out_stats) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__mutex_lock(&device->streams_mutex);
  uint64_t launches = atomic_load(&device->launch_count);
  uint64_t barriers = atomic_load(&device->barrier_count);
  for (qn__vk_stream_t* stream = device->streams; stream; stream = stream->next) {
    launches += atomic_load(&stream->launch_count);
    barriers += atomic_load(&stream->barrier_count);
  }
  qn__mutex_unlock(&device->streams_mutex);
  *out_stats = (qn__vulkan_stats_t){
      .block_count = atomic_load(&device->memory.block_count),
      .reserved_bytes = atomic_load(&device->memory.reserved_bytes),
      .used_bytes = atomic_load(&device->memory.used_bytes),
      .submit_count = atomic_load(&device->submit_count),
      .launch_count = launches,
      .barrier_count = barriers,
      .set_count = atomic_load(&device->set_count),
      .pipeline_count = atomic_load(&device->pipeline_count),
  };
  return QN_OK;
}

const qn_device_table_t qn__vulkan_device_table = {
    .abi_version = QN_DEVICE_ABI_VERSION,
    .struct_size = sizeof(qn_device_table_t),
    .type = QN_DEVICE_VULKAN,
    .name = "vulkan",
    .count = count,
    .attribute = qn__vk_attribute,
    .allocate = qn__vk_allocate,
    .free = qn__vk_free,
    .workspace_allocate = qn__vk_workspace_allocate,
    .workspace_free = qn__vk_workspace_free,
    .copy = qn__vk_copy,
    .stream_create = qn__vk_stream_create,
    .stream_destroy = qn__vk_stream_destroy,
    .stream_sync = qn__vk_stream_sync,
    .stream_wait = qn__vk_stream_wait,
    .stream_is_idle = qn__vk_stream_is_idle,
    .accepts = qn__vk_accepts,
    .load = qn__vk_load,
    .unload = qn__vk_unload,
    .launch = qn__vk_launch,
    .host_allocate = qn__vk_host_allocate,
    .host_free = qn__vk_host_free,
    .target_property = qn__vk_target_property,
    .absence = absence,
};
