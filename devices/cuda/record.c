// devices/cuda/record.c: error records in pinned host memory that the device writes, many to one
// allocation, because pinned memory comes in pages.
//
// A record outlives the work that may write it: its stream gives it back when the GPU has passed
// everything. Memory of records is never freed. Thread rule: any thread. Read next: flight.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

// A record has a cache line of its own; the allocation is a page.
enum { STRIDE = 64, COUNT = 64 };
_Static_assert(sizeof(qn__gpu_record_t) <= STRIDE, "a record fits its place");

struct qn__cuda_records {
  qn__cuda_records_t* next;
  char* host;
  CUdeviceptr address;
  uint64_t used;  // a bit for each
};

// With the device's lock held.
static qn_status_t add_page(qn__cuda_device_t* device) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_records_t* page = qn__alloc_zero(qn_allocator_default(), 1, sizeof *page);
  if (!page) return qn__out_of_memory("error records");
  void* host = NULL;
  qn_status_t status =
      qn__cuda_check(device,
                     cu->mem_host_alloc(&host, (size_t)STRIDE * COUNT,
                                        QN__CU_HOST_ALLOC_PORTABLE | QN__CU_HOST_ALLOC_DEVICEMAP),
                     "allocating error records");
  if (qn_ok(status)) {
    status = qn__cuda_check(device, cu->mem_host_device_pointer(&page->address, host, 0),
                            "mapping error records");
    if (!qn_ok(status)) (void)cu->mem_free_host(host);
  }
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), page, sizeof *page);
    return status;
  }
  memset(host, 0, (size_t)STRIDE * COUNT);
  page->host = host;
  page->next = device->records;
  device->records = page;
  return QN_OK;
}

static void* place_of(const qn__cuda_records_t* page, int index) {
  return page->host + (size_t)index * STRIDE;
}

// Called with the device's lock held (its streams are made under it).
qn_status_t qn__cuda_record_take(qn__cuda_device_t* device, qn__cuda_record_t* out_record) {
  *out_record = (qn__cuda_record_t){0};
  qn__cuda_records_t* page = device->records;
  while (page && page->used == UINT64_MAX) page = page->next;
  if (!page) {
    QN_TRY(add_page(device));
    page = device->records;
  }
  const int index = __builtin_ctzll(~page->used);
  page->used |= UINT64_C(1) << index;
  memset(place_of(page, index), 0, sizeof(qn__gpu_record_t));
  out_record->host = place_of(page, index);
  out_record->address = page->address + (CUdeviceptr)index * STRIDE;
  return QN_OK;
}

void qn__cuda_record_give(qn__cuda_device_t* device, qn__cuda_record_t record) {
  if (!record.host) return;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_records_t* page = device->records; page; page = page->next) {
    if (record.address < page->address || record.address >= page->address + STRIDE * COUNT)
      continue;
    page->used &= ~(UINT64_C(1) << ((record.address - page->address) / STRIDE));
  }
  qn__mutex_unlock(&device->mutex);
}

uint32_t qn__cuda_record_tag(const qn__cuda_record_t* record) {
  if (!record->host) return 0;
  const uint32_t tag = record->host->tag;
  atomic_thread_fence(memory_order_acquire);
  return tag;
}

qn_kernel_failure_t qn__cuda_record_read(const qn__cuda_record_t* record) {
  const volatile qn__gpu_record_t* from = record->host;
  return (qn_kernel_failure_t){from->site, from->index, from->extent};
}

void qn__cuda_record_clear(const qn__cuda_record_t* record) {
  if (!record->host) return;
  atomic_thread_fence(memory_order_release);
  record->host->tag = 0;
}
