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
//  4. The holes of a slab are sorted, not empty and never adjacent. Their sizes and the used bytes
//     add up to the slab, except for blocks whose hole could not be recorded for lack of memory.
// Allocation is first fit in blocks of 64 bytes; neighbours merge when freed. A slab that is empty
// and not the newest is unmapped.
#define _GNU_SOURCE
#include "devices/cpu/code_pool.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"

#define SLAB_BYTES ((size_t)2 << 20)
#define BLOCK_BYTES 64u

typedef struct hole {
  size_t offset;
  size_t size_bytes;
} hole_t;

struct qn__cpu_code_slab {
  uint8_t* writable;  // NULL: a slab of requirement 3
  uint8_t* executable;
  size_t size_bytes;
  size_t used_bytes;
  bool is_frozen;
  hole_t* holes;  // requirement 4
  size_t hole_count;
  size_t hole_capacity;
  qn__cpu_code_slab_t* next;
};

static struct {
  qn__mutex_t mutex;
  qn__cpu_code_slab_t* slabs;  // newest first
} pool;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static bool is_pool_usable;

#ifndef NDEBUG
// Tests requirement 4. Holds the lock.
static bool check_slab(const qn__cpu_code_slab_t* slab) {
  size_t end = 0, free_bytes = 0;
  for (size_t i = 0; i < slab->hole_count; i++) {
    const hole_t* hole = &slab->holes[i];
    bool is_apart = i == 0 || hole->offset > end;
    if (hole->size_bytes == 0 || !is_apart || hole->offset % BLOCK_BYTES != 0) return false;
    end = hole->offset + hole->size_bytes;
    free_bytes += hole->size_bytes;
  }
  return end <= slab->size_bytes && slab->used_bytes + free_bytes <= slab->size_bytes;
}
#endif

static void fork_prepare(void* self) {
  (void)self;
  qn__mutex_lock(&pool.mutex);
}
static void freeze_slabs(void) {
  for (qn__cpu_code_slab_t* slab = pool.slabs; slab; slab = slab->next) slab->is_frozen = true;
}
static void fork_parent(void* self) {
  (void)self;
  freeze_slabs();
  qn__mutex_unlock(&pool.mutex);
}
static void fork_child(void* self) {
  (void)self;
  freeze_slabs();
  qn_status_free(qn__mutex_init(&pool.mutex));
}

static void make_pool(void) {
  static qn__fork_node_t node = {
      .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  qn_status_t status = qn__mutex_init(&pool.mutex);
  is_pool_usable = qn_ok(status) && qn__fork_register(&node);
  qn_status_free(status);
}

static size_t page_round(size_t size_bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (size_bytes + page - 1) / page * page;
}

static void destroy_slab(qn__cpu_code_slab_t* slab) {
  qn_allocator_t allocator = qn_allocator_default();
  if (slab->executable) (void)munmap(slab->executable, slab->size_bytes);
  if (slab->writable) (void)munmap(slab->writable, slab->size_bytes);
  qn__free(allocator, slab->holes, slab->hole_capacity * sizeof *slab->holes);
  qn__free(allocator, slab, sizeof *slab);
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
  void* holes = NULL;
  if (!slab || !qn__grow(allocator, &holes, &slab->hole_capacity, 1, sizeof(hole_t))) {
    qn__free(allocator, slab, sizeof *slab);
    return qn__out_of_memory("memory for code");
  }
  slab->holes = holes;
  slab->size_bytes = page_round(size_bytes);
  if (!map_twice(slab)) {
    void* memory =
        mmap(NULL, slab->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      destroy_slab(slab);
      return qn__out_of_memory("memory for code");
    }
    slab->executable = memory;
  }
  slab->holes[0] = (hole_t){0, slab->size_bytes};
  slab->hole_count = 1;
  *out_slab = slab;
  return QN_OK;
}

// Takes the first hole that is large enough. Returns false when the slab has no room.
static bool take_block(qn__cpu_code_slab_t* slab, size_t size_bytes, size_t* out_offset) {
  for (size_t i = 0; i < slab->hole_count; i++) {
    hole_t* hole = &slab->holes[i];
    if (hole->size_bytes < size_bytes) continue;
    *out_offset = hole->offset;
    hole->offset += size_bytes;
    hole->size_bytes -= size_bytes;
    if (hole->size_bytes == 0) {
      memmove(hole, hole + 1, (slab->hole_count - i - 1) * sizeof *hole);
      slab->hole_count--;
    }
    slab->used_bytes += size_bytes;
    assert(check_slab(slab));
    return true;
  }
  return false;
}

// Frees a block. If there is no memory to record the hole, the block stays unused until the slab is
// unmapped.
static void give_block(qn__cpu_code_slab_t* slab, size_t offset, size_t size_bytes) {
  slab->used_bytes -= size_bytes;
  size_t i = 0;
  while (i < slab->hole_count && slab->holes[i].offset < offset) i++;
  bool joins_before = i > 0 && slab->holes[i - 1].offset + slab->holes[i - 1].size_bytes == offset;
  bool joins_after = i < slab->hole_count && offset + size_bytes == slab->holes[i].offset;
  if (joins_before && joins_after) {
    slab->holes[i - 1].size_bytes += size_bytes + slab->holes[i].size_bytes;
    memmove(&slab->holes[i], &slab->holes[i + 1], (slab->hole_count - i - 1) * sizeof(hole_t));
    slab->hole_count--;
  } else if (joins_before) {
    slab->holes[i - 1].size_bytes += size_bytes;
  } else if (joins_after) {
    slab->holes[i].offset = offset;
    slab->holes[i].size_bytes += size_bytes;
  } else {
    void* holes = slab->holes;
    if (!qn__grow(qn_allocator_default(), &holes, &slab->hole_capacity, slab->hole_count + 1,
                  sizeof(hole_t))) {
      return;
    }
    slab->holes = holes;
    memmove(&slab->holes[i + 1], &slab->holes[i], (slab->hole_count - i) * sizeof(hole_t));
    slab->holes[i] = (hole_t){offset, size_bytes};
    slab->hole_count++;
  }
  assert(check_slab(slab));
}

// Finds room in a slab or makes a new slab. Holds the lock.
static qn_status_t find_room(size_t size_bytes, qn__cpu_code_slab_t** out_slab,
                             size_t* out_offset) {
  for (qn__cpu_code_slab_t* slab = pool.slabs; slab; slab = slab->next) {
    if (slab->is_frozen || !slab->writable) continue;
    if (!take_block(slab, size_bytes, out_offset)) continue;
    *out_slab = slab;
    return QN_OK;
  }
  qn__cpu_code_slab_t* slab = NULL;
  QN_TRY(make_slab(size_bytes > SLAB_BYTES ? size_bytes : SLAB_BYTES, &slab));
  slab->next = pool.slabs;
  pool.slabs = slab;
  (void)take_block(slab, size_bytes, out_offset);
  *out_slab = slab;
  return QN_OK;
}

// Takes an empty slab off the list, except the newest, which serves the next image. Returns whether
// the caller must destroy it. Holds the lock.
static bool retire(qn__cpu_code_slab_t* slab) {
  bool is_worth_keeping = slab == pool.slabs && slab->writable && !slab->is_frozen;
  if (slab->used_bytes != 0 || is_worth_keeping) return false;
  for (qn__cpu_code_slab_t** at = &pool.slabs; *at; at = &(*at)->next) {
    if (*at != slab) continue;
    *at = slab->next;
    return true;
  }
  return false;
}

qn_status_t qn__cpu_code_place(qn_span_t image, qn__cpu_code_t* out_code) {
  (void)pthread_once(&pool_once, make_pool);
  size_t size_bytes;
  if (!is_pool_usable || !qn__size_add(image.size, BLOCK_BYTES - 1, &size_bytes)) {
    return qn__out_of_memory("memory for code");
  }
  size_bytes = size_bytes / BLOCK_BYTES * BLOCK_BYTES;
  if (size_bytes == 0) size_bytes = BLOCK_BYTES;
  qn__cpu_code_slab_t* slab = NULL;
  size_t offset = 0;
  bool is_doomed = false;
  qn__mutex_lock(&pool.mutex);
  qn_status_t status = find_room(size_bytes, &slab, &offset);
  if (qn_ok(status)) {
    // Under the lock, so that no fork happens between taking the block and filling it.
    uint8_t* writable = slab->writable ? slab->writable : slab->executable;
    if (image.size != 0) memcpy(writable + offset, image.data, image.size);
    if (!slab->writable &&
        mprotect(slab->executable, slab->size_bytes, PROT_READ | PROT_EXEC) != 0) {
      status = qn_status_make(QN_STATUS_UNSUPPORTED, "this system allows no executable memory: %s",
                              strerror(errno));
      give_block(slab, offset, size_bytes);
      is_doomed = retire(slab);
    }
  }
  qn__mutex_unlock(&pool.mutex);
  if (is_doomed) destroy_slab(slab);
  if (!qn_ok(status)) return status;
  *out_code = (qn__cpu_code_t){slab->executable + offset, size_bytes, slab};
  __builtin___clear_cache((char*)slab->executable + offset,
                          (char*)slab->executable + offset + size_bytes);
  return QN_OK;
}

void qn__cpu_code_remove(qn__cpu_code_t* code) {
  if (!code->slab) return;
  qn__cpu_code_slab_t* slab = code->slab;
  qn__mutex_lock(&pool.mutex);
  give_block(slab, (size_t)(code->address - slab->executable), code->size_bytes);
  bool is_doomed = retire(slab);
  qn__mutex_unlock(&pool.mutex);
  if (is_doomed) destroy_slab(slab);
  *code = (qn__cpu_code_t){NULL, 0, NULL};
}

void qn__cpu_code_usage(size_t* out_mapped_bytes, size_t* out_used_bytes) {
  (void)pthread_once(&pool_once, make_pool);
  *out_mapped_bytes = *out_used_bytes = 0;
  if (!is_pool_usable) return;
  qn__mutex_lock(&pool.mutex);
  for (const qn__cpu_code_slab_t* slab = pool.slabs; slab; slab = slab->next) {
    *out_mapped_bytes += slab->size_bytes;
    *out_used_bytes += slab->used_bytes;
  }
  qn__mutex_unlock(&pool.mutex);
}
