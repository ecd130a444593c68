// SPDX-License-Identifier: Apache-2.0
// devices/cuda/executable.c: loading and unloading cubins.
//
// Loading checks as much as it can: that the machine has what the cubin needs, and that blocks fit
// its registers and shared memory, whose limit it raises if needed. It also loads every kernel:
// a driver that loads lazily might otherwise wait for the device at a launch. While a stream
// records, unloading a module is deferred until the recording ends.
//
// Thread rule: any thread; an executable is immutable. Read next: launch.c.
#include <elf.h>

#include "base/alloc.h"
#include "devices/cuda/cuda.h"
#include "devices/gpu/isa.h"

#define FORMAT "cuda-cubin-1"
// The shared memory of a block without an opt-in.
#define SHARED_BYTES_UNASKED 49152

bool qn__cuda_accepts(const char* format) {
  return strcmp(format, FORMAT) == 0;
}

// Checks that the ELF file is complete, because the driver gets an address without a size.
static bool is_whole_elf(const uint8_t* data, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header) return false;
  memcpy(&header, data, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shoff > size || header.e_phoff > size ||
      (size - header.e_shoff) / sizeof(Elf64_Shdr) < header.e_shnum ||
      (size - header.e_phoff) / sizeof(Elf64_Phdr) < header.e_phnum) {
    return false;
  }
  for (size_t i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr section;
    memcpy(&section, data + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
    if (section.sh_offset > size || section.sh_size > size - section.sh_offset) return false;
  }
  return true;
}

// Finds the one cubin of all kernels, aligned. The caller frees `out_copy` unless it is NULL.
static qn_status_t find_image(const qn_artifact_t* artifact,
                              const qn__cuda_executable_t* executable, const void** out_image,
                              void** out_copy, size_t* out_size) {
  const qn_gpu_kernel_info_t* first = &executable->kernels[0].info;
  bool is_one = first->code_offset <= artifact->payload_size &&
                first->code_size_bytes <= artifact->payload_size - first->code_offset;
  for (uint32_t i = 1; i < qn_gpu_plan_kernel_count(executable->plan); i++) {
    const qn_gpu_kernel_info_t* info = &executable->kernels[i].info;
    is_one &=
        info->code_offset == first->code_offset && info->code_size_bytes == first->code_size_bytes;
  }
  const uint8_t* data = (const uint8_t*)artifact->payload + (is_one ? first->code_offset : 0);
  if (!is_one || !is_whole_elf(data, (size_t)first->code_size_bytes)) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "the artifact holds no whole cubin");
  }
  *out_image = data;
  *out_size = (size_t)first->code_size_bytes;
  *out_copy = NULL;
  if ((uintptr_t)data % 16 == 0) return QN_OK;
  *out_copy = qn__alloc(qn_allocator_default(), *out_size);
  if (!*out_copy) return qn__out_of_memory("a cubin");
  memcpy(*out_copy, data, *out_size);
  *out_image = *out_copy;
  return QN_OK;
}

static qn_status_t load_kernel(qn__cuda_device_t* device, CUmodule module,
                               qn__cuda_kernel_t* kernel) {
  const qn_gpu_kernel_info_t* plan = &kernel->info;
  const qn__cuda_driver_t* cu = qn__cuda();
  int max_threads = 0, shared_bytes = 0;
  QN_TRY(qn__cuda_check(device, cu->module_get_function(&kernel->function, module, plan->name),
                        "finding kernel '%s'", plan->name));
  QN_TRY(qn__cuda_check(
      device,
      cu->func_get_attribute(&max_threads, QN__CU_FUNC_MAX_THREADS_PER_BLOCK, kernel->function),
      "querying kernel '%s'", plan->name));
  QN_TRY(qn__cuda_check(
      device,
      cu->func_get_attribute(&shared_bytes, QN__CU_FUNC_SHARED_SIZE_BYTES, kernel->function),
      "querying kernel '%s'", plan->name));
  if (cu->func_load) {
    QN_TRY(
        qn__cuda_check(device, cu->func_load(kernel->function), "loading kernel '%s'", plan->name));
  }
  kernel->max_threads = (uint32_t)max_threads;
  if (plan->thread_count > kernel->max_threads) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE,
                          "cuda:%d: kernel '%s' has blocks of %u threads, and with its registers "
                          "the device runs at most %d",
                          device->id, plan->name, plan->thread_count, max_threads);
  }
  const uint64_t all_bytes = (uint64_t)shared_bytes + plan->dynamic_shared_bytes;
  if (all_bytes > (uint64_t)device->max_shared_bytes) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE,
                          "cuda:%d: kernel '%s' needs %" PRIu64
                          " bytes of shared memory in a block, and the device has %d",
                          device->id, plan->name, all_bytes, device->max_shared_bytes);
  }
  if (plan->dynamic_shared_bytes == 0 || all_bytes <= SHARED_BYTES_UNASKED) return QN_OK;
  return qn__cuda_check(
      device,
      cu->func_set_attribute(kernel->function, QN__CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             (int)plan->dynamic_shared_bytes),
      "raising the shared memory of kernel '%s' to %u bytes", plan->name,
      plan->dynamic_shared_bytes);
}

static qn_status_t load_kernels(qn__cuda_device_t* device, const qn_artifact_t* artifact,
                                qn__cuda_executable_t* executable) {
  const void* image = NULL;
  void* copy = NULL;
  size_t size = 0;
  QN_TRY(find_image(artifact, executable, &image, &copy, &size));
  const CUresult result = qn__cuda()->module_load(&executable->module, image);
  qn__free(qn_allocator_default(), copy, size);
  qn_status_t status = qn__cuda_check(device, result, "loading a cubin");
  if (result == QN__CU_INVALID_IMAGE || result == QN__CU_UNSUPPORTED_VERSION) {
    // A driver accepts cubins of any NVRTC of its major version or an older one.
    qn_status_free(status);
    const int version = qn__cuda_version();
    status = qn_status_make(QN_STATUS_INCOMPATIBLE,
                            "cuda:%d: the driver refuses a cubin, which is whole: it offers CUDA "
                            "%d.%d, which takes what an NVRTC of CUDA %d or older makes; install a "
                            "newer driver, or name another NVRTC with QUERN_NVRTC_LIBRARY",
                            device->id, version / 1000, version % 1000 / 10, version / 1000);
  }
  for (uint32_t i = 0; qn_ok(status) && i < qn_gpu_plan_kernel_count(executable->plan); i++) {
    status = load_kernel(device, executable->module, &executable->kernels[i]);
  }
  return status;
}

static void destroy(qn__cuda_executable_t* executable) {
  if (executable->module) (void)qn__cuda()->module_unload(executable->module);
  qn_gpu_plan_destroy(executable->plan);
  qn__arena_deinit(&executable->arena);
  qn__free(qn_allocator_default(), executable, sizeof *executable);
}

static qn_status_t load(qn__cuda_device_t* device, const qn_artifact_t* artifact,
                        qn__cuda_executable_t* executable) {
  QN_TRY(qn__gpu_isa_check(artifact->isa, device->id, qn__cuda_target_property));
  QN_TRY(qn_gpu_plan_load(artifact, &qn__cuda_runner, (uint32_t)device->max_threads,
                          &executable->plan));
  const uint32_t count = qn_gpu_plan_kernel_count(executable->plan);
  executable->kernels =
      qn__arena_alloc_array(&executable->arena, (size_t)count + 1, sizeof *executable->kernels);
  if (!executable->kernels) return qn__out_of_memory("an executable");
  for (uint32_t i = 0; i < count; i++) {
    qn_gpu_kernel_info_t* info = &executable->kernels[i].info;
    info->struct_size = sizeof *info;
    QN_TRY(qn_gpu_plan_kernel(executable->plan, i, info));
  }
  return count == 0 ? QN_OK : load_kernels(device, artifact, executable);
}

qn_status_t qn__cuda_load(int32_t id, const qn_artifact_t* artifact,
                          const qn_load_options_t* options, void** out_executable) {
  (void)options;
  *out_executable = NULL;
  qn__cuda_executable_t* executable = qn__alloc_zero(qn_allocator_default(), 1, sizeof *executable);
  if (!executable) return qn__out_of_memory("an executable");
  qn__arena_init(&executable->arena, qn_allocator_default());
  qn__cuda_scope_t scope;
  qn_status_t status = qn__cuda_enter(id, &executable->device, &scope);
  if (!qn_ok(status)) {
    destroy(executable);
    return status;
  }
  status = load(executable->device, artifact, executable);
  if (qn_ok(status)) {
    *out_executable = executable;
  } else {
    destroy(executable);
  }
  qn__cuda_leave(&scope);
  return status;
}

void qn__cuda_unload_deferred(qn__cuda_device_t* device) {
  qn__mutex_lock(&device->mutex);
  qn__cuda_executable_t* list = device->capture_count == 0 ? device->deferred_unloads : NULL;
  if (list) device->deferred_unloads = NULL;
  qn__mutex_unlock(&device->mutex);
  while (list) {
    qn__cuda_executable_t* executable = list;
    list = executable->next_deferred;
    destroy(executable);
  }
}

void qn__cuda_unload(int32_t id, void* self) {
  qn__cuda_executable_t* executable = self;
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  qn_status_t status = qn__cuda_enter(id, &device, &scope);
  if (!qn_ok(status)) {
    // The device has ended, or the module belongs to a parent process.
    qn_status_free(status);
    executable->module = NULL;
    destroy(executable);
    return;
  }
  qn__mutex_lock(&device->mutex);
  executable->next_deferred = device->deferred_unloads;
  device->deferred_unloads = executable;
  qn__mutex_unlock(&device->mutex);
  qn__cuda_unload_deferred(device);
  qn__cuda_leave(&scope);
}
