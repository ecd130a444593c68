// SPDX-License-Identifier: Apache-2.0
// devices/cpu/code_pool.c: slabs of a memory file, each mapped twice: once to write, once to
// execute.
//
// Requirements:
//  1. Writing and executing never share a mapping. Loading then needs no mprotect, which would
//     interrupt the other cores, and a stray write cannot change code through the running address.
//  2. A fork freezes every slab in the parent and in the child. The child shares both mappings, so
//     code that one process places in an old slab would change the memory of the other.
//  3. On hardened systems, where memory files may not be executed, a slab is one private anonymous
//     mapping for one image: writable first, executable afterwards.
// A slab gives out blocks of 64 bytes and their multiples (../ranges.h). A slab that is empty and
// not the newest is unmapped.
#define _GNU_SOURCE
#include "devices/cpu/code_pool.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"
#include "devices/ranges.h"

#define SLAB_BYTES ((size_t)2 << 20)
#define BLOCK_BYTES 64u

struct qn__cpu_code_slab {
  uint8_t* writable;  // NULL: a slab of requirement 3
  uint8_t* executable;
  size_t size_bytes;
  bool is_frozen;
  qn__ranges_t ranges;  // of the slab's bytes
  qn__cpu_code_slab_t* next;
};

static struct {
  qn__mutex_t mutex;
  qn__cpu_code_slab_t* slabs;  // newest first
} pool;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static bool is_pool_usable;

static void freeze_slabs(void* self) {
  (void)self;
  for (qn__cpu_code_slab_t* slab = pool.slabs; slab; slab = slab->next) slab->is_frozen = true;
}

static void make_pool(void) {
  static qn__fork_node_t node = {
      .mutex = &pool.mutex, .parent = freeze_slabs, .child = freeze_slabs};
  qn_status_t status = qn__mutex_init(&pool.mutex);
  is_pool_usable = qn_ok(status) && qn__fork_register(&node);
  qn_status_free(status);
}

static size_t page_round(size_t size_bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (size_bytes + page - 1) / page * page;
}

static void destroy_slab(qn__cpu_code_slab_t* slab) {
  if (slab->executable) (void)munmap(slab->executable, slab->size_bytes);
  if (slab->writable) (void)munmap(slab->writable, slab->size_bytes);
  qn__ranges_deinit(&slab->ranges);
  qn__free(qn_allocator_default(), slab, sizeof *slab);
}

static bool map_twice(qn__cpu_code_slab_t* slab) {
  int fd = memfd_create("quern-code", MFD_CLOEXEC);
  if (fd < 0) return false;
  bool is_mapped = false;
  if (ftruncate(fd, (off_t)slab->size_bytes) == 0) {
    void* executable = mmap(NULL, slab->size_bytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    void* writable = mmap(NULL, slab->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (executable != MAP_FAILED) slab->executable = executable;
    if (writable != MAP_FAILED) slab->writable = writable;
    is_mapped = slab->executable && slab->writable;
  }
  (void)close(fd);
  if (!is_mapped) {
    if (slab->executable) (void)munmap(slab->executable, slab->size_bytes);
    if (slab->writable) (void)munmap(slab->writable, slab->size_bytes);
    slab->executable = slab->writable = NULL;
  }
  return is_mapped;
}

static qn_status_t make_slab(size_t size_bytes, qn__cpu_code_slab_t** out_slab) {
  qn_allocator_t allocator = qn_allocator_default();
  qn__cpu_code_slab_t* slab = qn__alloc_zero(allocator, 1, sizeof *slab);
  if (!slab) return qn__out_of_memory("memory for code");
  slab->size_bytes = page_round(size_bytes);
  bool is_made = qn__ranges_init(&slab->ranges, allocator, BLOCK_BYTES, slab->size_bytes);
  if (is_made && !map_twice(slab)) {
    void* memory =
        mmap(NULL, slab->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    is_made = memory != MAP_FAILED;
    if (is_made) slab->executable = memory;
  }
  if (!is_made) {
    destroy_slab(slab);
    return qn__out_of_memory("memory for code");
  }
  *out_slab = slab;
  return QN_OK;
}

// Finds room in a slab or makes a new slab. Holds the lock.
static qn_status_t find_room(size_t size_bytes, qn__cpu_code_slab_t** out_slab,
                             uint64_t* out_offset) {
  for (qn__cpu_code_slab_t* slab = pool.slabs; slab; slab = slab->next) {
    if (slab->is_frozen || !slab->writable) continue;
    if (!qn__ranges_allocate(&slab->ranges, size_bytes, 1, out_offset)) continue;
    *out_slab = slab;
    return QN_OK;
  }
  qn__cpu_code_slab_t* slab = NULL;
  QN_TRY(make_slab(size_bytes > SLAB_BYTES ? size_bytes : SLAB_BYTES, &slab));
  if (!qn__ranges_allocate(&slab->ranges, size_bytes, 1, out_offset)) {
    destroy_slab(slab);
    return qn__out_of_memory("memory for code");
  }
  slab->next = pool.slabs;
  pool.slabs = slab;
  *out_slab = slab;
  return QN_OK;
}

// Takes an empty slab off the list, except the newest, which serves the next image. Returns whether
// the caller must destroy it. Holds the lock.
static bool retire(qn__cpu_code_slab_t* slab) {
  bool is_worth_keeping = slab == pool.slabs && slab->writable && !slab->is_frozen;
  if (slab->ranges.allocated != 0 || is_worth_keeping) return false;
  for (qn__cpu_code_slab_t** at = &pool.slabs; *at; at = &(*at)->next) {
    if (*at != slab) continue;
    *at = slab->next;
    return true;
  }
  return false;
}

qn_status_t qn__cpu_code_place(qn_span_t image, qn__cpu_code_t* out_code) {
  (void)pthread_once(&pool_once, make_pool);
  if (!is_pool_usable) return qn__out_of_memory("memory for code");
  qn__cpu_code_slab_t* slab = NULL;
  uint64_t offset = 0;
  bool is_doomed = false;
  qn__mutex_lock(&pool.mutex);
  qn_status_t status = find_room(image.size, &slab, &offset);
  if (qn_ok(status)) {
    // Under the lock, so that no fork happens between taking the block and filling it.
    uint8_t* writable = slab->writable ? slab->writable : slab->executable;
    if (image.size != 0) memcpy(writable + offset, image.data, image.size);
    if (!slab->writable &&
        mprotect(slab->executable, slab->size_bytes, PROT_READ | PROT_EXEC) != 0) {
      status = qn_status_make(QN_STATUS_UNSUPPORTED, "this system allows no executable memory: %s",
                              strerror(errno));
      (void)qn__ranges_free(&slab->ranges, offset);
      is_doomed = retire(slab);
    }
  }
  qn__mutex_unlock(&pool.mutex);
  if (is_doomed) destroy_slab(slab);
  if (!qn_ok(status)) return status;
  *out_code = (qn__cpu_code_t){slab->executable + offset, slab};
  __builtin___clear_cache((char*)slab->executable + offset,
                          (char*)slab->executable + offset + image.size);
  return QN_OK;
}

void qn__cpu_code_remove(qn__cpu_code_t* code) {
  if (!code->slab) return;
  qn__cpu_code_slab_t* slab = code->slab;
  qn__mutex_lock(&pool.mutex);
  bool is_known = qn__ranges_free(&slab->ranges, (uint64_t)(code->address - slab->executable));
  (void)QN_NEVER(!is_known);
  bool is_doomed = retire(slab);
  qn__mutex_unlock(&pool.mutex);
  if (is_doomed) destroy_slab(slab);
  *code = (qn__cpu_code_t){NULL, NULL};
}

void qn__cpu_code_usage(size_t* out_mapped_bytes, size_t* out_used_bytes) {
  (void)pthread_once(&pool_once, make_pool);
  *out_mapped_bytes = *out_used_bytes = 0;
  if (!is_pool_usable) return;
  qn__mutex_lock(&pool.mutex);
  for (const qn__cpu_code_slab_t* slab = pool.slabs; slab; slab = slab->next) {
    *out_mapped_bytes += slab->size_bytes;
    *out_used_bytes += qn__ranges_used_bytes(&slab->ranges);
  }
  qn__mutex_unlock(&pool.mutex);
}
