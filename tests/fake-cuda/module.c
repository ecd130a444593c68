// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/module.c: cubins, which are shared objects, and launches. See fake.h.
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake-cuda/fake.h"

enum { UNASKED_SHARED_BYTES = 49152, MAX_SHARED_BYTES = 232448 };

// The section headers are a shared object's end.
static size_t size_of(const void* image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return (size_t)header.e_shoff + (size_t)header.e_shnum * sizeof(Elf64_Shdr);
}

static void* open_image(const void* image) {
  const size_t size = size_of(image);
  const int fd = size ? memfd_create("cubin", MFD_CLOEXEC) : -1;
  if (fd < 0) return NULL;
  // The loader takes a path for the library that it has by that name, so each is another spelling.
  enum { BITS = 20 };
  static unsigned number;
  char path[3 * BITS + 64] = "/proc/self";
  size_t used = strlen(path);
  for (unsigned bit = 0, n = number++; bit < BITS; bit++) {
    used += (size_t)snprintf(path + used, sizeof path - used, "%s", n >> bit & 1 ? "/." : "/");
  }
  (void)snprintf(path + used, sizeof path - used, "/fd/%d", fd);
  void* library = NULL;
  if (write(fd, image, size) == (ssize_t)size) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fake_violation("a cubin cannot be opened: %s", dlerror());
  (void)close(fd);
  return library;
}

// Returns whether a cubin runs on a device. An architecture with a suffix needs exactly that one.
// Otherwise the major versions must agree, and the cubin's minor version must not be greater.
static bool is_compatible(const char* arch) {
  int number = 0;
  char suffix = '\0';
  if (sscanf(arch, "sm_%d%c", &number, &suffix) < 1) return false;
  const int own = fake_settings.capability;
  if (suffix == 'a') return number == own;
  return number / 10 == own / 10 && number % 10 <= own % 10;
}

EXPORT CUresult cuModuleLoadData(CUmodule* out_module, const void* image);
EXPORT CUresult cuModuleLoadData(CUmodule* out_module, const void* image) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  void* library = open_image(image);
  fake_module_t* exported = library ? dlsym(library, "fake_module") : NULL;
  if (!exported || exported->version != FAKE_MODULE_VERSION) {
    if (library) (void)dlclose(library);
    return fake_leave(QN__CU_INVALID_IMAGE);
  }
  // A driver of CUDA 12 does not know the form of cubins that CUDA 13 makes.
  if (exported->toolkit / 1000 > fake_settings.version / 1000) {
    (void)dlclose(library);
    return fake_leave(QN__CU_INVALID_IMAGE);
  }
  if (!is_compatible(exported->arch)) {
    (void)dlclose(library);
    return fake_leave(QN__CU_NO_BINARY_FOR_GPU);
  }
  exported->hooks = &fake_run_hooks;
  CUmodule module = calloc(1, sizeof *module);
  module->context = fake_current();
  module->library = library;
  module->exported = exported;
  module->function_count = (int)exported->kernel_count;
  module->functions = calloc(exported->kernel_count + 1, sizeof *module->functions);
  for (unsigned i = 0; i < exported->kernel_count; i++) {
    module->functions[i].module = module;
    module->functions[i].kernel = &exported->kernels[i];
    module->functions[i].max_dynamic_bytes = UNASKED_SHARED_BYTES;
    fake_add(&module->functions[i].object, KIND_FUNCTION);
  }
  fake_add(&module->object, KIND_MODULE);
  fake_counts.modules++;
  *out_module = module;
  return fake_leave(QN__CU_OK);
}

static bool is_queued(const op_t* op, const struct CUmod_st* module) {
  for (; op; op = op->next) {
    if (op->kind == OP_KERNEL && op->function->module == module) return true;
    if (op->kind == OP_GRAPH && is_queued(op->exec->graph->first, module)) return true;
  }
  return false;
}

// Returns whether a stream still has a kernel of the module queued.
static bool is_used_by(const fake_object_t* object, const struct CUmod_st* module) {
  return object->kind == KIND_STREAM &&
         is_queued(((const struct CUstream_st*)(const void*)object)->first, module);
}

EXPORT CUresult cuModuleUnload(CUmodule module);
EXPORT CUresult cuModuleUnload(CUmodule module) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  if (!fake_is(module, KIND_MODULE) || module->context != fake_current()) {
    fake_violation("cuModuleUnload of what is no module of the context");
    return fake_leave(FAKE_INVALID_HANDLE);
  }
  for (const fake_object_t* object = fake_first(); object; object = object->next) {
    if (!is_used_by(object, module)) continue;
    fake_violation("a module is unloaded while a kernel of it is queued");
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  for (int i = 0; i < module->function_count; i++) fake_remove(&module->functions[i].object);
  fake_remove(&module->object);
  fake_counts.modules--;
  (void)dlclose(module->library);
  free(module->functions);
  free(module);
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuModuleGetFunction(CUfunction* out_function, CUmodule module, const char* name);
EXPORT CUresult cuModuleGetFunction(CUfunction* out_function, CUmodule module, const char* name) {
  ENTER(NEEDS_CONTEXT);
  if (!fake_is(module, KIND_MODULE)) return fake_leave(FAKE_INVALID_HANDLE);
  for (int i = 0; i < module->function_count; i++) {
    if (strcmp(module->functions[i].kernel->name, name) != 0) continue;
    *out_function = &module->functions[i];
    return fake_leave(QN__CU_OK);
  }
  return fake_leave(FAKE_NOT_FOUND);
}

EXPORT CUresult cuFuncLoad(CUfunction function);
EXPORT CUresult cuFuncLoad(CUfunction function) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  return fake_leave(fake_is(function, KIND_FUNCTION) ? QN__CU_OK : FAKE_INVALID_HANDLE);
}

EXPORT CUresult cuFuncGetAttribute(int* out_value, CUfunction_attribute attribute,
                                   CUfunction function);
EXPORT CUresult cuFuncGetAttribute(int* out_value, CUfunction_attribute attribute,
                                   CUfunction function) {
  ENTER(NEEDS_CONTEXT);
  if (!fake_is(function, KIND_FUNCTION)) return fake_leave(FAKE_INVALID_HANDLE);
  switch (attribute) {
    case QN__CU_FUNC_MAX_THREADS_PER_BLOCK:
      *out_value = (int)function->kernel->max_threads;
      break;
    case QN__CU_FUNC_SHARED_SIZE_BYTES:
      *out_value = 0;
      break;
    case QN__CU_FUNC_NUM_REGS:
      *out_value = 32;
      break;
    case QN__CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *out_value = function->max_dynamic_bytes;
      break;
    default:
      return fake_leave(QN__CU_INVALID_VALUE);
  }
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value);
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER(NEEDS_CONTEXT);
  if (!fake_is(function, KIND_FUNCTION)) return fake_leave(FAKE_INVALID_HANDLE);
  if (attribute != QN__CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value > MAX_SHARED_BYTES) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  function->max_dynamic_bytes = value;
  return fake_leave(QN__CU_OK);
}

// Copies the arguments, which are valid only during the call.
static void** copy_params(const fake_kernel_t* kernel, void** params) {
  size_t bytes = kernel->param_count * sizeof(void*);
  for (unsigned i = 0; i < kernel->param_count; i++)
    bytes += (kernel->param_sizes[i] + 15) / 16 * 16;
  bytes = (bytes + 31) / 16 * 16;
  char* memory = calloc(1, bytes);
  void** copies = (void**)(void*)memory;
  size_t at = (kernel->param_count * sizeof(void*) + 15) / 16 * 16;
  for (unsigned i = 0; i < kernel->param_count; i++) {
    copies[i] = memory + at;
    memcpy(copies[i], params[i], kernel->param_sizes[i]);
    at += (kernel->param_sizes[i] + 15) / 16 * 16;
  }
  return copies;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, CUstream handle,
                               void** params, void** extra);
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, CUstream handle,
                               void** params, void** extra) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_is(function, KIND_FUNCTION) ? QN__CU_OK : FAKE_INVALID_HANDLE;
  if (result == QN__CU_OK) result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  if (function->module->context != fake_current()) return fake_leave(FAKE_INVALID_HANDLE);
  size_t param_bytes = 0;
  for (unsigned i = 0; i < function->kernel->param_count; i++) {
    param_bytes += (function->kernel->param_sizes[i] + 7) / 8 * 8;
  }
  // What holds for every driver and device.
  if (param_bytes > 4096) return fake_leave(QN__CU_INVALID_VALUE);
  if (grid_x == 0 || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1 || block_x == 0 ||
      block_y != 1 || block_z != 1 || extra || (int)shared_bytes > function->max_dynamic_bytes) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  if (block_x > function->kernel->max_threads) return fake_leave(FAKE_LAUNCH_OUT_OF_RESOURCES);
  op_t* op = fake_op(OP_KERNEL);
  op->function = function;
  op->grid = grid_x;
  op->block = block_x;
  op->shared_bytes = shared_bytes;
  op->params = copy_params(function->kernel, params);
  fake_last_launch[0] = grid_x;
  fake_last_launch[1] = block_x;
  fake_last_launch[2] = shared_bytes;
  return fake_leave(fake_enqueue(stream, op));
}
