// devices/cuda/error_record.c: error records in device memory, and the pinned memory that copies of
// them land in; many to one allocation, because either kind of memory comes in pages.
//
// Every block of a kernel that can fail looks at its record when it begins, so that lies where the
// kernels are: a look across PCI Express would cost more than most kernels. The host sees copies,
// made in the order of the stream; each copy has a place of its own until it was read, so that the
// GPU writes nowhere that the host reads. What a record holds when it is taken is anybody's: who
// takes it has it cleared in front of the first kernel that uses it. Neither kind of memory is ever
// freed.
//
// A call of several kernels is done as a whole or not from some kernel on; never its later kernels
// without the earlier ones, though another thread's sync tells a failure in between, and others
// begin calls that are to be done. No lock is held around launches for it: a call keeps the record
// that it began with (qn__cuda_error_record_acquire), and behind a failure that was told the next
// call gets one that no call is launching with, cleared in the order of the stream. As a rule it is
// the same one; another one only while a thread is in the middle of a call. What is left of that
// call finds the failure where it was. Nothing more can fail in a record that has been told, so
// only the newest is ever copied. Thread rule: any thread. Read next: flight.c.
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

static CUresult allocate_readbacks(const qn__cuda_device_t* device, size_t size_bytes,
                                   uint64_t* out_start) {
  (void)device;
  void* host = NULL;
  CUresult result = qn__cuda()->mem_host_alloc(&host, size_bytes, QN__CU_HOST_ALLOC_PORTABLE);
  *out_start = (uintptr_t)host;
  return result;
}

// A record has a cache line of its own.
static const kind_t records = {"error records", 64, 64, allocate_records};
static const kind_t readbacks = {"copies of error records", sizeof(qn__cuda_readback_t), 8,
                                 allocate_readbacks};
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

static qn_status_t allocate_slot(qn__cuda_device_t* device, const kind_t* kind,
                                 qn__cuda_page_t** pages, uint64_t* out_place) {
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

static void free_slot(qn__cuda_device_t* device, const kind_t* kind, qn__cuda_page_t* const* pages,
                      uint64_t slot) {
  if (slot == 0) return;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_page_t* page = *pages; page; page = page->next) {
    if (slot < page->start || slot - page->start >= kind->stride * kind->count) continue;
    page->used &= ~(UINT64_C(1) << ((slot - page->start) / kind->stride));
  }
  qn__mutex_unlock(&device->mutex);
}

qn_status_t qn__cuda_readback_allocate(qn__cuda_device_t* device,
                                       qn__cuda_readback_t** out_readback) {
  uint64_t slot;
  qn_status_t status = allocate_slot(device, &readbacks, &device->readbacks, &slot);
  *out_readback = (qn__cuda_readback_t*)(uintptr_t)slot;
  return status;
}

void qn__cuda_readback_free(qn__cuda_device_t* device, qn__cuda_readback_t* readback) {
  free_slot(device, &readbacks, &device->readbacks, (uintptr_t)readback);
}

qn_status_t qn__cuda_error_record_allocate(qn__cuda_device_t* device, CUdeviceptr* out_record) {
  uint64_t slot;
  qn_status_t status = allocate_slot(device, &records, &device->records, &slot);
  *out_record = (CUdeviceptr)slot;
  return status;
}

void qn__cuda_error_record_free(qn__cuda_device_t* device, CUdeviceptr record) {
  free_slot(device, &records, &device->records, record);
}

// ---------------------------------------------------------------------------------- the GPU's part

qn_status_t qn__cuda_error_record_clear(qn__cuda_device_t* device, CUdeviceptr record,
                                        CUstream native) {
  return qn__cuda_check(
      device,
      qn__cuda()->memset_d32(record, 0, sizeof(qn__gpu_record_t) / sizeof(uint32_t), native),
      "clearing an error record");
}

qn_status_t qn__cuda_error_record_copy(qn__cuda_device_t* device, CUdeviceptr record,
                                       CUstream native, qn__gpu_record_t* to) {
  return qn__cuda_check(device, qn__cuda()->memcpy_device_to_host(to, record, sizeof *to, native),
                        "reading an error record");
}

// A byte of the tag that is 0 in no tag of a graph goes over one that is different in all of them;
// a record without a tag stays so.
qn_status_t qn__cuda_error_record_poison(qn__cuda_device_t* device, CUdeviceptr record,
                                         CUstream native) {
  const CUdeviceptr lowest = record + offsetof(qn__gpu_record_t, tag);
  return qn__cuda_check(device, qn__cuda()->memcpy_device_to_device(lowest, lowest + 3, 1, native),
                        "closing an error record");
}

// ---------------------------------------------------------------------------------- a stream's

// With the device's lock held.
static qn_status_t add_record(qn__cuda_stream_t* stream, qn__cuda_error_record_t** out_record) {
  qn__cuda_error_record_t* record = qn__alloc_zero(qn_allocator_default(), 1, sizeof *record);
  if (!record) return qn__out_of_memory("an error record");
  qn_status_t status = qn__cuda_error_record_allocate(stream->device, &record->address);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), record, sizeof *record);
    return status;
  }
  record->next = stream->records;
  stream->records = record;
  *out_record = record;
  return QN_OK;
}

qn_status_t qn__cuda_error_record_init(qn__cuda_stream_t* stream) {
  stream->is_clear_due = true;
  return add_record(stream, &stream->record);
}

void qn__cuda_error_record_deinit(qn__cuda_stream_t* stream) {
  while (stream->records) {
    qn__cuda_error_record_t* record = stream->records;
    stream->records = record->next;
    qn__cuda_error_record_free(stream->device, record->address);
    qn__free(qn_allocator_default(), record, sizeof *record);
  }
}

// A record that no call is launching with: one that the stream has, or another one.
static qn_status_t find_idle(qn__cuda_stream_t* stream, qn__cuda_error_record_t** out_record) {
  for (qn__cuda_error_record_t* record = stream->records; record; record = record->next) {
    *out_record = record;
    if (atomic_load_explicit(&record->call_count, memory_order_acquire) == 0) return QN_OK;
  }
  qn__cuda_device_t* device = stream->device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_relax(device, &scope));
  qn__mutex_lock(&device->mutex);
  qn_status_t status = add_record(stream, out_record);
  qn__mutex_unlock(&device->mutex);
  qn__cuda_leave(&scope);
  return status;
}

// In the mutex, because whoever goes on to launch must find the record cleared or the clearing
// queued; nothing is waited for in it. While a clearing is due no call takes a record.
static qn_status_t clear(qn__cuda_stream_t* stream) {
  qn_status_t status = QN_OK;
  qn__mutex_lock(&stream->retire_mutex);
  if (stream->is_clear_due) {
    qn__cuda_error_record_t* record = NULL;
    status = find_idle(stream, &record);
    if (qn_ok(status)) {
      status = qn__cuda_error_record_clear(stream->device, record->address, stream->native);
    }
    if (qn_ok(status)) {
      qn__short_lock(&stream->lock);
      stream->record = record;
      stream->record_epoch++;
      stream->is_clear_due = false;
      qn__short_unlock(&stream->lock);
    }
  }
  qn__mutex_unlock(&stream->retire_mutex);
  return status;
}

qn_status_t qn__cuda_error_record_acquire(qn__cuda_stream_t* stream,
                                          qn__cuda_error_record_t** out_record) {
  for (;;) {
    qn__short_lock(&stream->lock);
    const bool is_clear = !stream->is_clear_due;
    if (is_clear) {
      *out_record = stream->record;
      atomic_fetch_add_explicit(&stream->record->call_count, 1, memory_order_relaxed);
    }
    qn__short_unlock(&stream->lock);
    if (is_clear) return QN_OK;
    QN_TRY(clear(stream));
  }
}

void qn__cuda_error_record_release(qn__cuda_error_record_t* record) {
  atomic_fetch_sub_explicit(&record->call_count, 1, memory_order_release);
}
