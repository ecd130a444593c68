// SPDX-License-Identifier: Apache-2.0
// devices/cuda/error_record.c: error records in device memory, and pinned memory for copies of
// them. Allocates both in pages of many slots, because the driver allocates no less than a page.
//
// Every block of a kernel that can fail reads its record when it begins. So records lie in device
// memory: a read across PCI Express would take longer than most kernels. The host reads copies,
// made in stream order. Each copy has a slot of its own until it was read, so the GPU never writes
// where the host reads. A new record has undefined contents; its user clears it before the first
// kernel. Pages are never freed.
//
// A call of several kernels runs as a whole, or no kernel runs after some point. A later kernel
// never runs without the earlier ones, even if another thread's sync reports a failure in between
// and other threads begin calls that must run. No lock is held during launches for that:
//  1. A call keeps the record that it began with (qn__cuda_error_record_acquire).
//  2. After a failure was reported, the next call gets a record that no call uses, cleared in
//  stream
//     order. That is the same record, unless a thread is in the middle of a call.
//  3. The rest of an older call still finds the failure in its record, and is skipped.
//  4. No new failure appears in a record whose failure was reported, so only the newest is copied.
//
// Read next: in_flight.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

// A page has at most 64 slots; `used` has one bit for each.
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

// ---------------------------------------------------------------------------------- slots

// If memory is short, trims the pool and tries once more. It cannot trim the cached blocks, because
// their lock, the device's, is held.
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

// Each record has its own cache line.
static const kind_t records = {"error records", 64, 64, allocate_records};
static const kind_t readbacks = {"copies of error records", sizeof(qn__cuda_readback_t), 8,
                                 allocate_readbacks};
_Static_assert(sizeof(qn_gpu_record_t) <= 64, "a record fits its slot");
_Static_assert(sizeof(qn_gpu_record_t) % sizeof(uint32_t) == 0, "a record is cleared by words");

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
                                 qn__cuda_page_t** pages, uint64_t* out_slot) {
  *out_slot = 0;
  qn__cuda_page_t* page = *pages;
  while (page && page->used == UINT64_MAX) page = page->next;
  if (!page) {
    QN_TRY(add_page(device, kind, pages));
    page = *pages;
  }
  const int index = __builtin_ctzll(~page->used);
  assert((uint32_t)index < kind->count);
  page->used |= UINT64_C(1) << index;
  *out_slot = page->start + (uint64_t)index * kind->stride;
  return QN_OK;
}

static void free_slot(qn__cuda_device_t* device, const kind_t* kind, qn__cuda_page_t* const* pages,
                      uint64_t slot) {
  if (slot == 0) return;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_page_t* page = *pages; page; page = page->next) {
    if (slot < page->start || slot - page->start >= kind->stride * kind->count) continue;
    assert((page->used >> ((slot - page->start) / kind->stride) & 1) != 0);
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

// ---------------------------------------------------------------------------------- enqueued work

qn_status_t qn__cuda_error_record_clear(qn__cuda_device_t* device, CUdeviceptr record,
                                        CUstream native) {
  return qn__cuda_check(
      device, qn__cuda()->memset_d32(record, 0, sizeof(qn_gpu_record_t) / sizeof(uint32_t), native),
      "clearing an error record");
}

qn_status_t qn__cuda_error_record_copy(qn__cuda_device_t* device, CUdeviceptr record,
                                       CUstream native, qn_gpu_record_t* to) {
  return qn__cuda_check(device, qn__cuda()->memcpy_device_to_host(to, record, sizeof *to, native),
                        "reading an error record");
}

// Copies the highest byte of the tag over the lowest: a bit there is 0 in all tags of a graph, and
// 1 afterwards. A record without a tag stays empty.
qn_status_t qn__cuda_error_record_poison(qn__cuda_device_t* device, CUdeviceptr record,
                                         CUstream native) {
  const CUdeviceptr lowest = record + offsetof(qn_gpu_record_t, tag);
  return qn__cuda_check(device, qn__cuda()->memcpy_device_to_device(lowest, lowest + 3, 1, native),
                        "closing an error record");
}

// ---------------------------------------------------------------------------------- records of a
// stream

// Adds a record to the stream's list. With the device's lock held.
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

// Finds a record that no call uses, or adds one.
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

// Enqueues a clear of an idle record, if one is due, and makes it the record of new calls. Holds
// the mutex, so that no thread launches with the record before its clear is queued. No call gets a
// record while a clear is due.
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
  const uint32_t count = atomic_fetch_sub_explicit(&record->call_count, 1, memory_order_release);
  (void)count;
  assert(count > 0);
}
