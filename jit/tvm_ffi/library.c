// SPDX-License-Identifier: Apache-2.0
// jit/tvm_ffi/library.c: calls of functions in a library for tvm-ffi.
//
// The first call opens the library: it makes an engine with the bundle that ends the library's own
// file, and puts it into a word of the library. It stays, as the library does, which is marked as
// one that the loader never removes: work on streams, and threads of the engine, may outlive a
// module of tvm-ffi. A failure to open is the error of each call.
//
// Not here: the file (library_write.c).
#include "jit/tvm_ffi/library.h"

#include <dlfcn.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/plugin.h"
#include "jit/tvm_ffi/function.h"
#include "quern/cache.h"
#include "quern/device.h"
#include "quern/ir.h"
#include "target/target.h"

typedef struct library library_t;
// What a function's callback needs.
typedef struct library_member {
  library_t* library;
  qn__tvm_function_t function;
} library_member_t;

struct library {
  char path[PATH_MAX];
  qn_engine_t* engine;  // owned, as all below
  qn_module_t* module;
  qn_target_t** targets;
  size_t target_count;
  qn_lookup_options_t options;
  library_member_t* members;
  size_t member_count;
};

// ------------------------------------------------------------------------------------ lookups

static qn_status_t look_up(const library_member_t* member, qn_device_t device,
                           qn_function_t** out_function) {
  const library_t* library = member->library;
  const char* name = qn_module_function_name(library->module, (size_t)(member - library->members));
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < library->target_count; i++) {
    if (library->targets[i]->kind->info->device_type != device.type) continue;
    qn_status_t tried = qn_engine_function(library->engine, library->module, library->targets[i],
                                           name, &library->options, NULL, out_function);
    if (qn_ok(tried)) {
      qn_status_free(status);
      return QN_OK;
    }
    // The first target is the preferred one: its error is the reason, unless only the machine is
    // too old for it.
    if (!qn_ok(status) && qn_status_code(status) != QN_STATUS_INCOMPATIBLE) {
      qn_status_free(tried);
    } else {
      qn_status_free(status);
      status = tried;
    }
  }
  if (qn_ok(status)) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "%s: '%s' has no code for tensors on %s:%d", name,
                          library->path, qn_device_type_text(device.type), device.id);
  }
  return qn_status_annotate(status, "library '%s'", library->path);
}

// Makes the device active for the lookup, which loads code there.
static qn_status_t find(void* self, qn_device_t device, qn_function_t** out_function) {
  const qn_device_t old = qn_active_device();
  if (device.type == QN_DEVICE_CPU || (old.type == device.type && old.id == device.id)) {
    return look_up(self, device, out_function);
  }
  qn_stream_t *old_stream = qn_active_stream(old), *stream = qn_active_stream(device);
  QN_TRY(qn_set_active_device(device));
  qn_status_t status = look_up(self, device, out_function);
  qn_status_free(qn_set_active_device(old));
  qn_status_free(qn_set_active_stream(old, old_stream));
  qn_status_free(qn_set_active_stream(device, stream));
  return status;
}

// ------------------------------------------------------------------------------------ opening

static void close_library(library_t* library) {
  if (!library) return;
  const qn_allocator_t allocator = qn_allocator_default();
  for (size_t i = 0; i < library->target_count; i++) qn_target_release(library->targets[i]);
  qn__free(allocator, library->targets, library->target_count * sizeof *library->targets);
  qn__free(allocator, library->members, library->member_count * sizeof *library->members);
  qn_module_release(library->module);
  qn_engine_destroy(library->engine);
  qn__free(allocator, library, sizeof *library);
}

static qn_status_t damaged(const library_t* library, const char* what) {
  return qn_status_make(QN_STATUS_DATA_LOSS, "library '%s': %s", library->path, what);
}

static qn_status_t read_targets(library_t* library, const qn__tvm_library_t* description) {
  const qn_allocator_t allocator = qn_allocator_default();
  const char* text = (const char*)description + description->targets_distance;
  size_t left = description->targets_size;
  const size_t count = description->target_count;
  library->targets = qn__alloc_zero(allocator, count ? count : 1, sizeof *library->targets);
  if (!library->targets) return qn__out_of_memory("targets of a library");
  library->target_count = count;
  for (size_t i = 0; i < count; i++) {
    const char* end = left ? memchr(text, '\0', left) : NULL;
    if (!end) return damaged(library, "its targets are damaged");
    QN_TRY(qn_target_parse(text, &library->targets[i]));
    left -= (size_t)(end - text) + 1;
    text = end + 1;
  }
  return QN_OK;
}

static qn_status_t make_engine(library_t* library) {
  if (strchr(library->path, ':')) {
    return damaged(library, "a path with a colon is no path of a bundle; choose another place");
  }
  // The engine would only log what is wrong with its bundle.
  qn_cache_bundle_t* bundle;
  QN_TRY(qn_cache_bundle_open(library->path, NULL, 0, &bundle));
  qn_cache_bundle_close(bundle);
  const qn_setting_t bundles = {"bundles", library->path};
  const qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = &bundles, .setting_count = 1};
  return qn_engine_create(&options, &library->engine);
}

static qn_status_t fill_library(library_t* library, const qn__tvm_library_t* description) {
  if (!qn__mapped_path(description, library->path)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the file of a library for tvm-ffi cannot be found in /proc/self/maps");
  }
  QN_TRY(make_engine(library));
  QN_TRY(read_targets(library, description));
  QN_TRY(qn_module_decode((const char*)description + description->module_distance,
                          description->module_size, NULL, &library->module));
  if (qn_module_function_count(library->module) != description->function_count) {
    return damaged(library, "its functions are not those of its module");
  }
  library->options = (qn_lookup_options_t){.struct_size = sizeof library->options,
                                           .tier = (qn_tier_t)description->tier,
                                           .is_checked = description->is_checked != 0};
  const size_t count = description->function_count;
  library->members = qn__alloc_zero(qn_allocator_default(), count, sizeof *library->members);
  if (!library->members) return qn__out_of_memory("functions of a library");
  library->member_count = count;
  for (size_t i = 0; i < count; i++) {
    library_member_t* member = &library->members[i];
    member->library = library;
    member->function.source = (qn_tvm_ffi_source_t){
        .struct_size = sizeof(qn_tvm_ffi_source_t), .find = find, .self = member};
  }
  return QN_OK;
}

static bool is_range(const qn__tvm_library_t* description, uint64_t distance, uint64_t size) {
  return distance <= description->size && size <= description->size - distance;
}

static bool is_description(const qn__tvm_library_t* description) {
  return memcmp(description->magic, QN__TVM_LIBRARY_MAGIC, sizeof description->magic) == 0;
}

static bool is_sound(const qn__tvm_library_t* description, uint32_t index) {
  return is_description(description) && description->version == QN__TVM_LIBRARY_VERSION &&
         index < description->function_count &&
         is_range(description, description->module_distance, description->module_size) &&
         is_range(description, description->targets_distance, description->targets_size);
}

static __attribute__((noinline, cold)) qn_status_t unsound(const qn__tvm_library_t* description) {
  if (is_description(description) && description->version != QN__TVM_LIBRARY_VERSION) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE,
                          "a library for tvm-ffi has version %u; this libquern knows %u",
                          description->version, QN__TVM_LIBRARY_VERSION);
  }
  return qn_status_make(QN_STATUS_DATA_LOSS, "the description of a library for tvm-ffi is damaged");
}

static __attribute__((noinline, cold)) qn_status_t open_library(
    const qn__tvm_library_t* description, _Atomic(library_t*)* state, library_t** out_library) {
  library_t* library = qn__alloc_zero(qn_allocator_default(), 1, sizeof *library);
  if (!library) return qn__out_of_memory("a library for tvm-ffi");
  qn_status_t status = fill_library(library, description);
  if (!qn_ok(status)) {
    close_library(library);
    return status;
  }
  library_t* other = NULL;
  if (!atomic_compare_exchange_strong(state, &other, library)) {
    close_library(library);  // another thread was faster
    library = other;
  }
  *out_library = library;
  return QN_OK;
}

int qn_tvm_ffi_library_call(const void* function, const void* args, int32_t count, void* result) {
  const qn__tvm_library_function_t* described = function;
  if (!described || described->magic != QN__TVM_FUNCTION_MAGIC || count < 0 || (count && !args)) {
    return qn__tvm_raise(qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                                        "qn_tvm_ffi_library_call: no function of a library"));
  }
  const qn__tvm_library_t* description = (const void*)((const char*)function - described->distance);
  if (!is_sound(description, described->index)) return qn__tvm_raise(unsound(description));
  // The state lies in a part of the library that can be written to.
  _Atomic(library_t*)* state =
      (void*)(uintptr_t)((const char*)description + description->state_distance);
  library_t* library = atomic_load_explicit(state, memory_order_acquire);
  if (!library) {
    qn_status_t status = open_library(description, state, &library);
    if (!qn_ok(status)) return qn__tvm_raise(status);
  }
  return qn__tvm_call(&library->members[described->index].function, args, count, result);
}
