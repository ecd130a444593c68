// devices/cuda/record.c: error records in device memory, and the pinned memory that copies of them
// land in; many to one allocation, because either kind of memory comes in pages.
//
// Every block of a kernel that can fail looks at its record when it begins, so that lies where the
// kernels are: a look across PCI Express would cost more than most kernels. The host sees copies,
// made in the order of the stream; each copy has a place of its own until it was read, so that the
// GPU writes nowhere that the host reads. What a record holds when it is taken is anybody's: who
// takes it has it cleared in front of the first kernel that uses it. Neither kind of memory is ever
// freed. Thread rule: any thread. Read next: flight.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

// A record has a cache line of its own; a page has one bit for each of its places.
enum { RECORD_STRIDE = 64, RECORD_COUNT = 64, MIRROR_COUNT = 8 };
_Static_assert(sizeof(qn__gpu_record_t) <= RECORD_STRIDE, "a record fits its place");
_Static_assert(sizeof(qn__gpu_record_t) % sizeof(uint32_t) == 0, "a record is cleared by words");

struct qn__cuda_records {
  qn__cuda_records_t* next;
  CUdeviceptr address;
  uint64_t used;
};
struct qn__cuda_mirrors {
  qn__cuda_mirrors_t* next;
  qn__cuda_mirror_t* host;
  uint64_t used;
};

// ---------------------------------------------------------------------------------- records

// With the device's lock held, so that of what is kept only the pool's can be given back.
static qn_status_t add_records(qn__cuda_device_t* device) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_records_t* page = qn__alloc_zero(qn_allocator_default(), 1, sizeof *page);
  if (!page) return qn__out_of_memory("error records");
  const size_t size_bytes = (size_t)RECORD_STRIDE * RECORD_COUNT;
  CUresult result = cu->mem_alloc(&page->address, size_bytes);
  if (result == QN__CU_OUT_OF_MEMORY && device->pool) {
    (void)cu->pool_trim(device->pool, 0);
    result = cu->mem_alloc(&page->address, size_bytes);
  }
  qn_status_t status = qn__cuda_check(device, result, "allocating error records");
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), page, sizeof *page);
    return status;
  }
  page->next = device->records;
  device->records = page;
  return QN_OK;
}

qn_status_t qn__cuda_record_take(qn__cuda_device_t* device, CUdeviceptr* out_record) {
  *out_record = 0;
  qn__cuda_records_t* page = device->records;
  while (page && page->used == UINT64_MAX) page = page->next;
  if (!page) {
    QN_TRY(add_records(device));
    page = device->records;
  }
  const int index = __builtin_ctzll(~page->used);
  page->used |= UINT64_C(1) << index;
  *out_record = page->address + (CUdeviceptr)index * RECORD_STRIDE;
  return QN_OK;
}

void qn__cuda_record_give(qn__cuda_device_t* device, CUdeviceptr record) {
  if (!record) return;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_records_t* page = device->records; page; page = page->next) {
    if (record < page->address || record - page->address >= RECORD_STRIDE * RECORD_COUNT) continue;
    page->used &= ~(UINT64_C(1) << ((record - page->address) / RECORD_STRIDE));
  }
  qn__mutex_unlock(&device->mutex);
}

qn_status_t qn__cuda_record_clear(qn__cuda_device_t* device, CUdeviceptr record, CUstream native) {
  return qn__cuda_check(
      device,
      qn__cuda()->memset_d32(record, 0, sizeof(qn__gpu_record_t) / sizeof(uint32_t), native),
      "clearing an error record");
}

qn_status_t qn__cuda_record_copy(qn__cuda_device_t* device, CUdeviceptr record, CUstream native,
                                 qn__gpu_record_t* to) {
  return qn__cuda_check(device, qn__cuda()->memcpy_device_to_host(to, record, sizeof *to, native),
                        "reading an error record");
}

// ---------------------------------------------------------------------------------- mirrors

static qn_status_t add_mirrors(qn__cuda_device_t* device) {
  qn__cuda_mirrors_t* page = qn__alloc_zero(qn_allocator_default(), 1, sizeof *page);
  if (!page) return qn__out_of_memory("copies of error records");
  void* host = NULL;
  qn_status_t status =
      qn__cuda_check(device,
                     qn__cuda()->mem_host_alloc(&host, sizeof(qn__cuda_mirror_t) * MIRROR_COUNT,
                                                QN__CU_HOST_ALLOC_PORTABLE),
                     "allocating copies of error records");
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), page, sizeof *page);
    return status;
  }
  page->host = host;
  page->used = ~((UINT64_C(1) << MIRROR_COUNT) - 1);
  page->next = device->mirrors;
  device->mirrors = page;
  return QN_OK;
}

qn_status_t qn__cuda_mirror_take(qn__cuda_device_t* device, qn__cuda_mirror_t** out_mirror) {
  *out_mirror = NULL;
  qn__cuda_mirrors_t* page = device->mirrors;
  while (page && page->used == UINT64_MAX) page = page->next;
  if (!page) {
    QN_TRY(add_mirrors(device));
    page = device->mirrors;
  }
  const int index = __builtin_ctzll(~page->used);
  page->used |= UINT64_C(1) << index;
  *out_mirror = &page->host[index];
  return QN_OK;
}

void qn__cuda_mirror_give(qn__cuda_device_t* device, qn__cuda_mirror_t* mirror) {
  if (!mirror) return;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_mirrors_t* page = device->mirrors; page; page = page->next) {
    if (mirror < page->host || mirror >= page->host + MIRROR_COUNT) continue;
    page->used &= ~(UINT64_C(1) << (mirror - page->host));
  }
  qn__mutex_unlock(&device->mutex);
}
