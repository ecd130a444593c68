// SPDX-License-Identifier: Apache-2.0
// base/fs.c: the POSIX table of fs.h, and the helpers that use it.
//
// Each operation loads the table with one atomic load. No other file calls open, read and so on, so
// a test's table sees every call.
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "base/fs_linux.h"
#include "base/thread.h"

// Defines posix_NAME, which repeats the call NAME while signals interrupt it.
#define REPEATED(type, name, parameters, arguments) \
  static type posix_##name parameters {             \
    type result;                                    \
    do {                                            \
      result = name arguments;                      \
    } while (result == -1 && errno == EINTR);       \
    return result;                                  \
  }
// clang-format off
REPEATED(int, open, (const char* path, int flags, mode_t mode), (path, flags, mode))
REPEATED(int, openat, (int directory, const char* path, int flags, mode_t mode),
         (directory, path, flags, mode))
REPEATED(ssize_t, read, (int fd, void* data, size_t size), (fd, data, size))
REPEATED(ssize_t, pread, (int fd, void* data, size_t size, off_t offset), (fd, data, size, offset))
REPEATED(ssize_t, write, (int fd, const void* data, size_t size), (fd, data, size))
REPEATED(int, fstat, (int fd, struct stat* out), (fd, out))
REPEATED(int, lstat, (const char* path, struct stat* out), (path, out))
REPEATED(int, fdatasync, (int fd), (fd))
REPEATED(int, futimens, (int fd, const struct timespec times[2]), (fd, times))
REPEATED(int, fchmod, (int fd, mode_t mode), (fd, mode))
REPEATED(int, rename, (const char* from, const char* to), (from, to))
REPEATED(int, unlink, (const char* path), (path))
REPEATED(int, mkdir, (const char* path, mode_t mode), (path, mode))
REPEATED(int, rmdir, (const char* path), (path))
REPEATED(int, flock, (int fd, int operation), (fd, operation))
REPEATED(int, statvfs, (const char* path, struct statvfs* out), (path, out))
// clang-format on

// On Linux the descriptor is closed even when close returns EINTR; a repetition could close another
// one.
static int posix_close(int fd) {
  return close(fd);
}
// A limit on file sizes and a pipe without a reader raise signals that end the process by default.
// The kernel sends them to the writing thread; this blocks and removes them.
static ssize_t quiet_write(int fd, const void* data, size_t size) {
  sigset_t raised, before;
  (void)sigemptyset(&raised);
  (void)sigaddset(&raised, SIGXFSZ);
  (void)sigaddset(&raised, SIGPIPE);
  bool is_held = pthread_sigmask(SIG_BLOCK, &raised, &before) == 0;
  ssize_t result = posix_write(fd, data, size);
  if (!is_held) return result;
  int error = errno;
  int number = result >= 0 ? 0 : error == EFBIG ? SIGXFSZ : error == EPIPE ? SIGPIPE : 0;
  if (number && !sigismember(&before, number)) {
    const struct timespec at_once = {0, 0};
    (void)sigemptyset(&raised);
    (void)sigaddset(&raised, number);
    while (sigtimedwait(&raised, NULL, &at_once) < 0 && errno == EINTR) {
    }
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = error;
  return result;
}
static DIR* posix_opendir(const char* path) {
  DIR* dir;
  do {
    dir = opendir(path);
  } while (!dir && errno == EINTR);
  return dir;
}
static struct dirent* posix_readdir(DIR* dir) {
  struct dirent* item;
  do {
    errno = 0;
    item = readdir(dir);
  } while (!item && errno == EINTR);
  return item;
}
static int posix_closedir(DIR* dir) {
  return closedir(dir);
}

static int posix_statvfs_free(const char* path, uint64_t* out_free_bytes,
                              uint64_t* out_total_bytes) {
  struct statvfs info;
  int result = posix_statvfs(path, &info);
  if (result == 0) {
    *out_free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    *out_total_bytes = (uint64_t)info.f_blocks * info.f_frsize;
  }
  return result;
}

const qn__fs_t qn__fs_posix = {
    .open = posix_open,
    .openat = posix_openat,
    .close = posix_close,
    .read = posix_read,
    .pread = posix_pread,
    .write = quiet_write,
    .fstat = posix_fstat,
    .lstat = posix_lstat,
    .fdatasync = posix_fdatasync,
    .futimens = posix_futimens,
    .fchmod = posix_fchmod,
    .rename = posix_rename,
    .unlink = posix_unlink,
    .mkdir = posix_mkdir,
    .rmdir = posix_rmdir,
    .opendir = posix_opendir,
    .readdir = posix_readdir,
    .closedir = posix_closedir,
    .flock = posix_flock,
    .try_lock = qn__fs_linux_try_lock,
    .unlock = qn__fs_linux_unlock,
    .filesystem_type = qn__fs_linux_filesystem_type,
    .statvfs_free = posix_statvfs_free,
};

static _Atomic(const qn__fs_t*) table_in_force = &qn__fs_posix;

const qn__fs_t* qn__fs(void) {
  return atomic_load_explicit(&table_in_force, memory_order_relaxed);
}

const qn__fs_t* qn__fs_install(const qn__fs_t* table) {
  return atomic_exchange(&table_in_force, table ? table : &qn__fs_posix);
}

// Reads to the end. The size by fstat is a first guess: pseudo files give 0, and a file may grow.
// Returns 0 or an errno; EFBIG when the file exceeds the limit.
static int read_all(const qn__fs_t* fs, int fd, size_t guess, size_t limit_bytes,
                    qn_allocator_t allocator, uint8_t** inout_data, size_t* inout_capacity,
                    size_t* out_size) {
  size_t size = 0;
  for (;;) {
    // One byte more than the limit, to detect a larger file, and one for the zero.
    size_t needed = size < guess ? guess + 2 : size + 4096;
    if (*inout_capacity < size + 2) {
      void* items = *inout_data;
      if (!qn__grow(allocator, &items, inout_capacity, needed, 1)) return ENOMEM;
      *inout_data = items;
    }
    ssize_t got = fs->read(fd, *inout_data + size, *inout_capacity - size - 1);
    if (got < 0) return errno;
    if (got == 0) break;
    size += (size_t)got;
    if (size > limit_bytes) return EFBIG;
  }
  *out_size = size;
  return 0;
}

qn_status_t qn__fs_read_file(qn_allocator_t allocator, const char* path, size_t limit_bytes,
                             uint8_t** out_data, size_t* out_size) {
  *out_data = NULL;
  *out_size = 0;
  const qn__fs_t* fs = qn__fs();
  // Without O_NONBLOCK a FIFO would block until a writer opens it.
  int fd = fs->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
  if (fd < 0) return qn__fs_status(errno, "open", path);
  qn_status_t status = QN_OK;
  uint8_t* data = NULL;
  size_t capacity = 0, size = 0;
  struct stat info;
  if (fs->fstat(fd, &info) != 0) {
    status = qn__fs_status(errno, "stat", path);
  } else if (!S_ISREG(info.st_mode)) {
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%s' is not a regular file", path);
  } else {
    bool is_large = info.st_size > 0 && (uint64_t)info.st_size > limit_bytes;
    size_t guess = info.st_size > 0 ? (size_t)info.st_size : 0;
    int error =
        is_large ? EFBIG : read_all(fs, fd, guess, limit_bytes, allocator, &data, &capacity, &size);
    if (error == ENOMEM) {
      status = qn__out_of_memory(path);
    } else if (error == EFBIG) {
      status = qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                              "'%s' is larger than the limit of %zu bytes", path, limit_bytes);
    } else if (error) {
      status = qn__fs_status(error, "read", path);
    }
  }
  (void)fs->close(fd);
  if (qn_ok(status) && capacity != size + 1) {
    uint8_t* exact = allocator.reallocate(allocator.self, data, capacity, size + 1);
    if (exact) {
      data = exact;
      capacity = size + 1;
    } else {
      status = qn__out_of_memory(path);
    }
  }
  if (!qn_ok(status)) {
    qn__free(allocator, data, capacity);
    return status;
  }
  data[size] = 0;
  *out_data = data;
  *out_size = size;
  return QN_OK;
}

int qn__fs_pread_all(int fd, void* out, size_t size_bytes, uint64_t offset) {
  const qn__fs_t* fs = qn__fs();
  uint8_t* at = out;
  if (offset > (uint64_t)INT64_MAX - size_bytes) return EOVERFLOW;
  for (size_t done = 0; done < size_bytes;) {
    ssize_t got = fs->pread(fd, at + done, size_bytes - done, (off_t)(offset + done));
    if (got < 0) return errno;
    if (got == 0) return ENODATA;
    done += (size_t)got;
  }
  return 0;
}

int qn__fs_write_all(int fd, const void* data, size_t size_bytes) {
  const qn__fs_t* fs = qn__fs();
  const char* at = data;
  while (size_bytes > 0) {
    ssize_t written = fs->write(fd, at, size_bytes);
    if (written < 0) return errno;
    if (written == 0) return EIO;
    at += written;
    size_bytes -= (size_t)written;
  }
  return 0;
}

qn_status_t qn__fs_write_sink(void* self, const void* data, size_t size_bytes) {
  const int* fd = self;
  int error = qn__fs_write_all(*fd, data, size_bytes);
  return error ? qn__fs_status(error, "write", "it") : QN_OK;
}

// Tries the last directory first, then its parents. Existing parents are never created, because on
// a read-only or automounted file system the error may differ from EEXIST.
static int make_with_parents(const qn__fs_t* fs, char* path, size_t size, mode_t mode) {
  if (fs->mkdir(path, mode) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT) return -1;
  size_t cut = size;
  while (cut > 0 && path[cut - 1] != '/') cut--;
  while (cut > 0 && path[cut - 1] == '/') cut--;
  if (cut == 0) return -1;  // the working directory is gone
  char saved = path[cut];
  path[cut] = '\0';
  int result = make_with_parents(fs, path, cut, mode);
  path[cut] = saved;
  if (result != 0) return -1;
  return fs->mkdir(path, mode) == 0 || errno == EEXIST ? 0 : -1;
}

int qn__fs_mkdirs(const char* path, mode_t mode) {
  const qn__fs_t* fs = qn__fs();
  char copy[4096];
  size_t size = strlen(path);
  if (size == 0 || size >= sizeof copy) {
    errno = size ? ENAMETOOLONG : ENOENT;
    return -1;
  }
  memcpy(copy, path, size + 1);
  while (size > 1 && copy[size - 1] == '/') copy[--size] = '\0';
  if (make_with_parents(fs, copy, size, mode) != 0) return -1;
  // EEXIST may mean a file.
  struct stat info;
  if (fs->lstat(copy, &info) != 0) return -1;
  if (S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode)) return 0;
  errno = ENOTDIR;
  return -1;
}

void qn__fs_temporary_name(const void* owner, char out[QN__FS_TEMPORARY_NAME_BYTES]) {
  struct {
    int64_t wall_ns, now_ns;
    const void* owner;
  } seed = {qn__wall_ns(), qn__now_ns(), owner};
  const unsigned pid = (unsigned)getpid();
  char hex[33];
  qn__hash128_hex(qn__xxh128((qn_span_t){(const uint8_t*)&seed, sizeof seed}, pid), hex);
  (void)snprintf(out, QN__FS_TEMPORARY_NAME_BYTES, "%08x-%.16s", pid, hex);
}

qn_status_t qn__fs_status(int error, const char* what, const char* path) {
  qn_status_code_t code = QN_STATUS_IO;
  if (error == ENOENT || error == ENOTDIR) code = QN_STATUS_NOT_FOUND;
  if (error == EACCES || error == EPERM || error == EROFS) code = QN_STATUS_PERMISSION_DENIED;
  if (error == ENOMEM) code = QN_STATUS_OUT_OF_MEMORY;
  char text[128];
  if (strerror_r(error, text, sizeof text) != 0) text[0] = '\0';
  if (text[0] >= 'A' && text[0] <= 'Z' && (text[1] < 'A' || text[1] > 'Z')) {
    text[0] = (char)(text[0] - 'A' + 'a');
  }
  return qn_status_make(code, "cannot %s '%s': %s", what, path, text[0] ? text : "unknown error");
}
