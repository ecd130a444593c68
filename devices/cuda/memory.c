// SPDX-License-Identifier: Apache-2.0
// devices/cuda/memory.c: device memory and pinned host memory.
//
// A handle is a device address. The driver aligns to 256 bytes. For a larger alignment, a list maps
// the returned address to the driver's.
//
// Read next: workspace.c, copy.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

#define DRIVER_ALIGNMENT 256u

struct qn__cuda_aligned {
  CUdeviceptr address;  // returned to the caller
  CUdeviceptr base;     // the driver's
  qn__cuda_aligned_t* next;
};

qn_status_t qn__cuda_memory_allocate(qn__cuda_device_t* device, size_t size_bytes,
                                     CUdeviceptr* out_address) {
  const qn__cuda_driver_t* cu = qn__cuda();
  if (size_bytes == 0) size_bytes = 1;
  CUresult result = cu->mem_alloc(out_address, size_bytes);
  if (result == QN__CU_OUT_OF_MEMORY) {
    qn__cuda_workspace_trim(device, 0);
    result = cu->mem_alloc(out_address, size_bytes);
  }
  return qn__cuda_check(device, result, "allocating %zu bytes", size_bytes);
}

static qn_status_t allocate_aligned(qn__cuda_device_t* device, size_t size_bytes,
                                    size_t alignment_bytes, CUdeviceptr* out_address) {
  size_t total;
  if (!qn__size_add(size_bytes, alignment_bytes, &total)) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY,
                          "cuda:%d: no memory for %zu bytes aligned to %zu", device->id, size_bytes,
                          alignment_bytes);
  }
  qn__cuda_aligned_t* entry = qn__alloc_zero(qn_allocator_default(), 1, sizeof *entry);
  if (!entry) return qn__out_of_memory("an aligned allocation");
  qn_status_t status = qn__cuda_memory_allocate(device, total, &entry->base);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), entry, sizeof *entry);
    return status;
  }
  entry->address = (entry->base + alignment_bytes - 1) & ~(CUdeviceptr)(alignment_bytes - 1);
  qn__mutex_lock(&device->mutex);
  entry->next = device->aligned;
  device->aligned = entry;
  qn__mutex_unlock(&device->mutex);
  *out_address = entry->address;
  return QN_OK;
}

qn_status_t qn__cuda_allocate(int32_t id, size_t size_bytes, size_t alignment_bytes,
                              void** out_pointer) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  CUdeviceptr address = 0;
  qn_status_t status = alignment_bytes > DRIVER_ALIGNMENT
                           ? allocate_aligned(device, size_bytes, alignment_bytes, &address)
                           : qn__cuda_memory_allocate(device, size_bytes, &address);
  qn__cuda_leave(&scope);
  if (qn_ok(status)) *out_pointer = (void*)(uintptr_t)address;
  return status;
}

// Returns the driver's address of an allocation, and removes its entry.
static CUdeviceptr remove_aligned(qn__cuda_device_t* device, CUdeviceptr address) {
  qn__cuda_aligned_t* entry = NULL;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_aligned_t** at = &device->aligned; *at; at = &(*at)->next) {
    if ((*at)->address != address) continue;
    entry = *at;
    *at = entry->next;
    break;
  }
  qn__mutex_unlock(&device->mutex);
  const CUdeviceptr base = entry ? entry->base : address;
  qn__free(qn_allocator_default(), entry, sizeof *entry);
  return base;
}

qn_status_t qn__cuda_free(int32_t id, void* pointer) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  const CUdeviceptr base = remove_aligned(device, (CUdeviceptr)(uintptr_t)pointer);
  qn_status_t status = qn__cuda_check(device, qn__cuda()->mem_free(base), "freeing memory");
  qn__cuda_leave(&scope);
  return status;
}

qn_status_t qn__cuda_host_allocate(int32_t id, size_t size_bytes, void** out_pointer) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  const CUresult result =
      qn__cuda()->mem_host_alloc(out_pointer, size_bytes ? size_bytes : 1,
                                 QN__CU_HOST_ALLOC_PORTABLE | QN__CU_HOST_ALLOC_DEVICEMAP);
  if (result != QN__CU_OK) *out_pointer = NULL;
  qn_status_t status =
      qn__cuda_check(device, result, "allocating %zu bytes of pinned memory", size_bytes);
  qn__cuda_leave(&scope);
  return status;
}

qn_status_t qn__cuda_host_free(int32_t id, void* pointer) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn_status_t status =
      qn__cuda_check(device, qn__cuda()->mem_free_host(pointer), "freeing pinned memory");
  qn__cuda_leave(&scope);
  return status;
}
