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

// A page has one bit for each of its places, of which there are at most 64.
struct qn__cuda_page {
  qn__cuda_page_t* next;
  uint64_t start;
  uint64_t used;
};
typedef struct kind {
  const char* what;
  size_t stride;
  uint32_t count;
  CUresult (*allocate)(const qn__cuda_device_t* device, size_t size_bytes, uint64_t* out_start);
} kind_t;

// ---------------------------------------------------------------------------------- places

// With the device's lock held, so that of what is kept only the pool's can be given back.
static CUresult allocate_records(const qn__cuda_device_t* device, size_t size_bytes,
                                 uint64_t* out_start) {
  const qn__cuda_driver_t* cu = qn__cuda();
  CUdeviceptr address = 0;
  CUresult result = cu->mem_alloc(&address, size_bytes);
  if (result == QN__CU_OUT_OF_MEMORY && device->pool) {
    (void)cu->pool_trim(device->pool, 0);
    result = cu->mem_alloc(&address, size_bytes);
  }
  *out_start = address;
  return result;
}

static CUresult allocate_mirrors(const qn__cuda_device_t* device, size_t size_bytes,
                                 uint64_t* out_start) {
  (void)device;
  void* host = NULL;
  CUresult result = qn__cuda()->mem_host_alloc(&host, size_bytes, QN__CU_HOST_ALLOC_PORTABLE);
  *out_start = (uintptr_t)host;
  return result;
}

// A record has a cache line of its own.
static const kind_t records = {"error records", 64, 64, allocate_records};
static const kind_t mirrors = {"copies of error records", sizeof(qn__cuda_mirror_t), 8,
                               allocate_mirrors};
_Static_assert(sizeof(qn__gpu_record_t) <= 64, "a record fits its place");
_Static_assert(sizeof(qn__gpu_record_t) % sizeof(uint32_t) == 0, "a record is cleared by words");

static qn_status_t add_page(qn__cuda_device_t* device, const kind_t* kind,
                            qn__cuda_page_t** pages) {
  qn__cuda_page_t* page = qn__alloc_zero(qn_allocator_default(), 1, sizeof *page);
  if (!page) return qn__out_of_memory(kind->what);
  qn_status_t status =
      qn__cuda_check(device, kind->allocate(device, kind->stride * kind->count, &page->start),
                     "allocating %s", kind->what);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), page, sizeof *page);
    return status;
  }
  page->used = kind->count < 64 ? UINT64_MAX << kind->count : 0;
  page->next = *pages;
  *pages = page;
  return QN_OK;
}

static qn_status_t take(qn__cuda_device_t* device, const kind_t* kind, qn__cuda_page_t** pages,
                        uint64_t* out_place) {
  *out_place = 0;
  qn__cuda_page_t* page = *pages;
  while (page && page->used == UINT64_MAX) page = page->next;
  if (!page) {
    QN_TRY(add_page(device, kind, pages));
    page = *pages;
  }
  const int index = __builtin_ctzll(~page->used);
  page->used |= UINT64_C(1) << index;
  *out_place = page->start + (uint64_t)index * kind->stride;
  return QN_OK;
}

static void give(qn__cuda_device_t* device, const kind_t* kind, qn__cuda_page_t* const* pages,
                 uint64_t place) {
  if (place == 0) return;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_page_t* page = *pages; page; page = page->next) {
    if (place < page->start || place - page->start >= kind->stride * kind->count) continue;
    page->used &= ~(UINT64_C(1) << ((place - page->start) / kind->stride));
  }
  qn__mutex_unlock(&device->mutex);
}

qn_status_t qn__cuda_mirror_take(qn__cuda_device_t* device, qn__cuda_mirror_t** out_mirror) {
  uint64_t place;
  qn_status_t status = take(device, &mirrors, &device->mirrors, &place);
  *out_mirror = (qn__cuda_mirror_t*)(uintptr_t)place;
  return status;
}

void qn__cuda_mirror_give(qn__cuda_device_t* device, qn__cuda_mirror_t* mirror) {
  give(device, &mirrors, &device->mirrors, (uintptr_t)mirror);
}

qn_status_t qn__cuda_record_take(qn__cuda_device_t* device, CUdeviceptr* out_record) {
  uint64_t place;
  qn_status_t status = take(device, &records, &device->records, &place);
  *out_record = (CUdeviceptr)place;
  return status;
}

void qn__cuda_record_give(qn__cuda_device_t* device, CUdeviceptr record) {
  give(device, &records, &device->records, record);
}

// ---------------------------------------------------------------------------------- the GPU's part

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
