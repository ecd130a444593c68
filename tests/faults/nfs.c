// SPDX-License-Identifier: Apache-2.0
// tests/faults/nfs.c: see nfs.h.
#define _GNU_SOURCE
#include "tests/faults/nfs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

#define PATH_SIZE 640
#define MAX_DESCRIPTORS 1024
#define NEGATIVE_ENTRIES 64
#define NFS_MAGIC 0x6969u

#define MANNERS(X) X(negative) X(silly) X(stale) X(repeated) X(late) X(locks)

static struct {
  pthread_mutex_t mutex;
  uint64_t random;
  qn__fs_t table;
  struct {
    char path[PATH_SIZE];  // "" when closed
    bool is_written;
  } open[MAX_DESCRIPTORS];
  struct {
    char path[PATH_SIZE];
    int calls_left;
  } negative[NEGATIVE_ENTRIES];
  unsigned next_negative, silly_number;
  struct {
#define X(name) unsigned long name;
    MANNERS(X)
#undef X
  } counts;
} nfs = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) {
  (void)pthread_mutex_lock(&nfs.mutex);
}
static void unlock(void) {
  int error = errno;
  (void)pthread_mutex_unlock(&nfs.mutex);
  errno = error;
}

static bool is_one_in(unsigned bound) {
  uint64_t x = nfs.random += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (x >> 32) % bound == 0;
}

static int fail(int error) {
  errno = error;
  return -1;
}

static void remember_absence(const char* path) {
  if (strlen(path) >= PATH_SIZE) return;
  unsigned slot = nfs.next_negative++ % NEGATIVE_ENTRIES;
  (void)snprintf(nfs.negative[slot].path, PATH_SIZE, "%s", path);
  nfs.negative[slot].calls_left = 3;
}

static bool is_remembered_absent(const char* path) {
  for (unsigned i = 0; i < NEGATIVE_ENTRIES; i++) {
    if (nfs.negative[i].calls_left <= 0 || strcmp(nfs.negative[i].path, path) != 0) continue;
    nfs.negative[i].calls_left--;
    nfs.counts.negative++;
    return true;
  }
  return false;
}

// Drops the negative entry of a name that this client creates.
static void forget_absence(const char* path) {
  for (unsigned i = 0; i < NEGATIVE_ENTRIES; i++) {
    // Only every other time, since real attribute caches are imprecise.
    if (strcmp(nfs.negative[i].path, path) == 0 && is_one_in(2)) nfs.negative[i].calls_left = 0;
  }
}

static int nfs_open(const char* path, int flags, mode_t mode) {
  lock();
  int fd = -1;
  if (!(flags & O_CREAT) && is_remembered_absent(path)) {
    errno = ENOENT;
  } else {
    fd = qn__fs_posix.open(path, flags, mode);
    if (fd < 0 && errno == ENOENT && !(flags & O_CREAT)) {
      remember_absence(path);
      errno = ENOENT;
    }
    if (fd >= 0 && (flags & O_EXCL) && is_one_in(25)) {
      (void)qn__fs_posix.close(fd);
      nfs.counts.repeated++;
      fd = fail(EEXIST);
    }
    if (fd >= 0 && fd < MAX_DESCRIPTORS) {
      (void)snprintf(nfs.open[fd].path, PATH_SIZE, "%s", path);
      nfs.open[fd].is_written = (flags & O_ACCMODE) != O_RDONLY;
    }
  }
  unlock();
  return fd;
}

static bool is_open(const char* path) {
  for (int fd = 0; fd < MAX_DESCRIPTORS; fd++) {
    if (strcmp(nfs.open[fd].path, path) == 0) return true;
  }
  return false;
}

// Renames an open file instead of removing it. Returns true if the file was open.
static bool make_silly(const char* path) {
  if (!is_open(path)) return false;
  char aside[PATH_SIZE + 32];
  const char* slash = strrchr(path, '/');
  (void)snprintf(aside, sizeof aside, "%.*s/.nfs%08x", (int)(slash - path), path,
                 ++nfs.silly_number);
  if (qn__fs_posix.rename(path, aside) != 0) return false;
  nfs.counts.silly++;
  for (int fd = 0; fd < MAX_DESCRIPTORS; fd++) {
    if (strcmp(nfs.open[fd].path, path) == 0) {
      (void)snprintf(nfs.open[fd].path, PATH_SIZE, "%.*s", PATH_SIZE - 1, aside);
    }
  }
  return true;
}

static int nfs_close(int fd) {
  lock();
  int result = qn__fs_posix.close(fd);
  if (fd >= 0 && fd < MAX_DESCRIPTORS && nfs.open[fd].path[0]) {
    char path[PATH_SIZE];
    memcpy(path, nfs.open[fd].path, PATH_SIZE);
    nfs.open[fd].path[0] = '\0';
    if (strstr(path, "/.nfs") && !is_open(path)) (void)qn__fs_posix.unlink(path);
    if (result == 0 && nfs.open[fd].is_written && is_one_in(20)) {
      nfs.counts.late++;
      result = fail(is_one_in(2) ? EDQUOT : EIO);
    }
  }
  unlock();
  return result;
}

static bool is_stale(void) {
  lock();
  bool result = is_one_in(25);
  nfs.counts.stale += result;
  unlock();
  return result;
}

static ssize_t nfs_read(int fd, void* data, size_t size) {
  return is_stale() ? fail(ESTALE) : qn__fs_posix.read(fd, data, size);
}
static ssize_t nfs_pread(int fd, void* data, size_t size, off_t offset) {
  return is_stale() ? fail(ESTALE) : qn__fs_posix.pread(fd, data, size, offset);
}
static int nfs_fstat(int fd, struct stat* out) {
  return is_stale() ? fail(ESTALE) : qn__fs_posix.fstat(fd, out);
}
static int nfs_lstat(const char* path, struct stat* out) {
  lock();
  int result = is_remembered_absent(path) ? fail(ENOENT) : qn__fs_posix.lstat(path, out);
  unlock();
  return result;
}

static int answer_again(int result, int error) {
  if (result != 0 || !is_one_in(20)) return result;
  nfs.counts.repeated++;
  return fail(error);
}

static int nfs_rename(const char* from, const char* to) {
  lock();
  (void)make_silly(to);
  int result = qn__fs_posix.rename(from, to);
  if (result == 0) forget_absence(to);
  result = answer_again(result, ENOENT);
  unlock();
  return result;
}

static int nfs_unlink(const char* path) {
  lock();
  int result = make_silly(path) ? 0 : qn__fs_posix.unlink(path);
  result = answer_again(result, ENOENT);
  unlock();
  return result;
}

static int nfs_mkdir(const char* path, mode_t mode) {
  lock();
  int result = answer_again(qn__fs_posix.mkdir(path, mode), EEXIST);
  unlock();
  return result;
}

static int no_locks(void) {
  lock();
  nfs.counts.locks++;
  unlock();
  return fail(ENOLCK);
}
static int nfs_flock(int fd, int operation) {
  (void)fd;
  (void)operation;
  return no_locks();
}
static int nfs_try_lock(int fd, int64_t offset) {
  (void)fd;
  (void)offset;
  return no_locks();
}
static int nfs_filesystem_type(const char* path, uint32_t* out_magic) {
  (void)path;
  *out_magic = NFS_MAGIC;
  return 0;
}

void nfs_install(uint64_t seed) {
  memset(nfs.open, 0, sizeof nfs.open);
  memset(nfs.negative, 0, sizeof nfs.negative);
  nfs.random = seed;
  nfs.table = qn__fs_posix;
  nfs.table.open = nfs_open;
  nfs.table.close = nfs_close;
  nfs.table.read = nfs_read;
  nfs.table.pread = nfs_pread;
  nfs.table.fstat = nfs_fstat;
  nfs.table.lstat = nfs_lstat;
  nfs.table.rename = nfs_rename;
  nfs.table.unlink = nfs_unlink;
  nfs.table.mkdir = nfs_mkdir;
  nfs.table.flock = nfs_flock;
  nfs.table.try_lock = nfs_try_lock;
  nfs.table.filesystem_type = nfs_filesystem_type;
  (void)qn__fs_install(&nfs.table);
}

void nfs_remove(void) {
  (void)qn__fs_install(NULL);
}

unsigned long nfs_count(const char* manner) {
#define X(name) \
  if (strcmp(manner, #name) == 0) return nfs.counts.name;
  MANNERS(X)
#undef X
  return 0;
}

void nfs_print(void) {
  (void)printf("manners of NFS that were met:");
#define X(name) (void)printf(" %s %lu", #name, nfs.counts.name);
  MANNERS(X)
#undef X
  (void)printf("\n");
}
