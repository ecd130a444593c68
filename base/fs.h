// base/fs.h: the one seam through which every file call of the library goes, so that tests can make
// the n-th one fail. Results follow POSIX: -1 and errno. Calls interrupted by signals are retried
// inside.
//
// Thread rule: calls are thread-safe; qn__fs_install is for tests before threads start.
// Read next: fs.c.
#ifndef QUERN_BASE_FS_H_
#define QUERN_BASE_FS_H_

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "base/base.h"

typedef struct qn__fs {
  int (*open)(const char* path, int flags, mode_t mode);
  int (*openat)(int directory, const char* path, int flags, mode_t mode);
  int (*close)(int fd);
  ssize_t (*read)(int fd, void* data, size_t size);
  ssize_t (*pread)(int fd, void* data, size_t size, off_t offset);
  ssize_t (*write)(int fd, const void* data, size_t size);  // raises neither SIGXFSZ nor SIGPIPE
  int (*fstat)(int fd, struct stat* out);
  int (*lstat)(const char* path, struct stat* out);
  int (*fdatasync)(int fd);
  int (*futimens)(int fd, const struct timespec times[2]);
  int (*fchmod)(int fd, mode_t mode);
  int (*rename)(const char* from, const char* to);
  int (*unlink)(const char* path);
  int (*mkdir)(const char* path, mode_t mode);
  int (*rmdir)(const char* path);
  DIR* (*opendir)(const char* path);
  struct dirent* (*readdir)(DIR* dir);
  int (*closedir)(DIR* dir);
  // One byte of an open file, locked exclusively for the open file description, without waiting:
  // -1 and EAGAIN or EACCES when another description has it. The byte need not exist. Closing the
  // last descriptor unlocks, as does the end of the process.
  int (*try_lock)(int fd, int64_t offset);
  int (*unlock)(int fd, int64_t offset);
  int (*flock)(int fd, int operation);
  int (*filesystem_type)(const char* path, uint32_t* out_magic);
  int (*statvfs_free)(const char* path, uint64_t* out_free_bytes, uint64_t* out_total_bytes);
} qn__fs_t;

// The table in force.
const qn__fs_t* qn__fs(void);
// Tests: replaces the table (borrowed until replaced again); NULL restores POSIX. Returns the old
// one.
const qn__fs_t* qn__fs_install(const qn__fs_t* table);
extern const qn__fs_t qn__fs_posix;

// Reads a whole file, at most `limit_bytes`. Owned: free with qn__free(allocator, data, size + 1);
// the bytes are followed by a zero. Errors: NOT_FOUND, PERMISSION_DENIED, IO, OUT_OF_MEMORY, and
// INVALID_ARGUMENT for what is not a regular file or is larger than the limit.
qn_status_t qn__fs_read_file(qn_allocator_t allocator, const char* path, size_t limit_bytes,
                             uint8_t** out_data, size_t* out_size);
// mkdir -p with the mode for what is made. 0 or -1 and errno.
int qn__fs_mkdirs(const char* path, mode_t mode);
// Whether `path` is on a file system that this machine alone uses, so that its locks mean what they
// say. False for what is not known, and when it cannot be asked.
bool qn__fs_is_local(const char* path);
// A status from errno: "cannot WHAT 'PATH': strerror".
qn_status_t qn__fs_status(int error, const char* what, const char* path);

#endif  // QUERN_BASE_FS_H_
