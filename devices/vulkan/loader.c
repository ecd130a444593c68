// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/loader.c: opens libvulkan at run time and creates the instance.
//
// The Khronos headers are used at build time only. The loader is never closed, because drivers have
// threads and exit handlers. Thread rule: qn__vk_instance_open runs in one thread at a time.
#include <dlfcn.h>

#include "base/env.h"
#include "devices/vulkan/context.h"

static const char* const library_names[] = {"libvulkan.so.1", "libvulkan.so"};

static qn_status_t open_library(void** out_library) {
  const char* chosen = qn__env_get("QUERN_VULKAN_LIBRARY");
  if (chosen) {
    *out_library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  } else {
    for (size_t i = 0; i < QN_COUNT_OF(library_names) && !*out_library; i++) {
      *out_library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
  }
  if (*out_library) return QN_OK;
  const char* why = dlerror();
  return qn_status_make(QN_STATUS_UNAVAILABLE,
                        "vulkan: no loader: %s; install libvulkan1 or set QUERN_VULKAN_LIBRARY",
                        why ? why : "libvulkan.so.1 cannot be opened");
}

// Finds the function `name`, or `name` with the suffix.
static PFN_vkVoidFunction find(const qn__vk_instance_t* self, const char* name,
                               const char* suffix) {
  PFN_vkVoidFunction function = self->get(self->handle, name);
  if (function || suffix[0] == '\0') return function;
  char other[96];
  if (strlen(name) + strlen(suffix) >= sizeof other) return NULL;
  memcpy(other, name, strlen(name));
  memcpy(other + strlen(name), suffix, strlen(suffix) + 1);
  return self->get(self->handle, other);
}

static qn_status_t create_instance(qn__vk_instance_t* self) {
  uint32_t version = VK_API_VERSION_1_0;
  if (self->EnumerateInstanceVersion) (void)self->EnumerateInstanceVersion(&version);
  if (version < VK_API_VERSION_1_1) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "vulkan: the loader has version 1.0; 1.1 is needed");
  }
  self->api_version = version < VK_API_VERSION_1_3 ? version : VK_API_VERSION_1_3;
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pEngineName = "quern",
                                   .apiVersion = self->api_version};
  VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &application};
  VkResult result = self->CreateInstance(&create, NULL, &self->handle);
  if (result == VK_SUCCESS) return QN_OK;
  return qn_status_make(QN_STATUS_UNAVAILABLE, "vulkan: vkCreateInstance: %s%s",
                        qn__vk_result_text(result),
                        result == VK_ERROR_INCOMPATIBLE_DRIVER ? "; no driver is installed" : "");
}

qn_status_t qn__vk_instance_open(qn__vk_instance_t* out_instance) {
  qn__vk_instance_t* self = out_instance;
  *self = (qn__vk_instance_t){0};
  void* library = NULL;
  QN_TRY(open_library(&library));
  void* symbol = dlsym(library, "vkGetInstanceProcAddr");
  if (!symbol) {
    return qn_status_make(
        QN_STATUS_UNAVAILABLE,
        "vulkan: the library has no vkGetInstanceProcAddr: it is not a Vulkan loader");
  }
  memcpy(&self->get, &symbol, sizeof symbol);
#define QN_VK_LOADER(name) self->name = (PFN_vk##name)find(self, "vk" #name, "");
#include "devices/vulkan/vulkan_symbols.inc"
  if (!self->CreateInstance) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "vulkan: the loader has no vkCreateInstance");
  }
  QN_TRY(create_instance(self));
  const char* missing = NULL;
#define QN_VK_INSTANCE(name, suffix)                         \
  self->name = (PFN_vk##name)find(self, "vk" #name, suffix); \
  if (!self->name) missing = "vk" #name;
#include "devices/vulkan/vulkan_symbols.inc"
  if (!missing) return QN_OK;
  qn__vk_instance_close(self);
  return qn_status_make(QN_STATUS_UNAVAILABLE, "vulkan: the loader has no %s", missing);
}

void qn__vk_instance_close(qn__vk_instance_t* instance) {
  if (instance->handle && instance->DestroyInstance) {
    instance->DestroyInstance(instance->handle, NULL);
  }
  *instance = (qn__vk_instance_t){0};
}

const char* qn__vk_result_text(VkResult result) {
  switch (result) {
#define TEXT(name) \
  case name:       \
    return #name
    TEXT(VK_SUCCESS);
    TEXT(VK_NOT_READY);
    TEXT(VK_TIMEOUT);
    TEXT(VK_INCOMPLETE);
    TEXT(VK_ERROR_OUT_OF_HOST_MEMORY);
    TEXT(VK_ERROR_OUT_OF_DEVICE_MEMORY);
    TEXT(VK_ERROR_INITIALIZATION_FAILED);
    TEXT(VK_ERROR_DEVICE_LOST);
    TEXT(VK_ERROR_MEMORY_MAP_FAILED);
    TEXT(VK_ERROR_LAYER_NOT_PRESENT);
    TEXT(VK_ERROR_EXTENSION_NOT_PRESENT);
    TEXT(VK_ERROR_FEATURE_NOT_PRESENT);
    TEXT(VK_ERROR_INCOMPATIBLE_DRIVER);
    TEXT(VK_ERROR_TOO_MANY_OBJECTS);
    TEXT(VK_ERROR_FRAGMENTED_POOL);
    TEXT(VK_ERROR_OUT_OF_POOL_MEMORY);
    TEXT(VK_ERROR_INVALID_SHADER_NV);
    TEXT(VK_ERROR_UNKNOWN);
#undef TEXT
    default:
      return "an unknown error";
  }
}
