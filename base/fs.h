// SPDX-License-Identifier: Apache-2.0
// base/fs.h: the table of all file calls of the library, so that tests can make the n-th one fail.
// Results follow POSIX: -1 and errno. Calls that a signal interrupts are repeated inside.
//
// Thread rule: qn__fs_install only before threads start.
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
  // Locks one byte of an open file exclusively, for its open file description, without waiting. -1
  // with EAGAIN or EACCES: another description holds it. The byte need not exist. Closing the last
  // descriptor unlocks it, as does the end of the process.
  int (*try_lock)(int fd, int64_t offset);
  int (*unlock)(int fd, int64_t offset);
  int (*flock)(int fd, int operation);
  int (*filesystem_type)(const char* path, uint32_t* out_magic);
  int (*statvfs_free)(const char* path, uint64_t* out_free_bytes, uint64_t* out_total_bytes);
} qn__fs_t;

// Returns the table in use.
const qn__fs_t* qn__fs(void);
// For tests: replaces the table (borrowed until replaced again); NULL restores POSIX. Returns the
// old one.
const qn__fs_t* qn__fs_install(const qn__fs_t* table);
extern const qn__fs_t qn__fs_posix;

// Reads a whole file of at most `limit_bytes`. Owned: free with qn__free(allocator, data, size +
// 1); a zero byte follows the contents. Errors: NOT_FOUND, PERMISSION_DENIED, IO, OUT_OF_MEMORY,
// and INVALID_ARGUMENT for a file that is not regular or exceeds the limit.
qn_status_t qn__fs_read_file(qn_allocator_t allocator, const char* path, size_t limit_bytes,
                             uint8_t** out_data, size_t* out_size);
// Reads `size_bytes` at `offset`, in as many calls as it takes. Returns 0, an errno, or ENODATA
// when the file ends before.
int qn__fs_pread_all(int fd, void* out, size_t size_bytes, uint64_t offset);
// Writes all bytes, in as many calls as it takes. Returns 0 or an errno.
int qn__fs_write_all(int fd, const void* data, size_t size_bytes);
// The same as the write of a qn_sink_t, whose `self` is the address of the descriptor. Errors:
// those of qn__fs_status.
qn_status_t qn__fs_write_sink(void* self, const void* data, size_t size_bytes);
// Creates a directory and its parents with `mode`. Returns 0, or -1 with errno.
int qn__fs_mkdirs(const char* path, mode_t mode);
// Writes "<8 hex pid>-<16 hex>": a name for a temporary file of `owner`, any object of the caller.
// The name needs not be secret: O_EXCL finds collisions. The digits mix thread, process, host and
// time.
#define QN__FS_TEMPORARY_NAME_BYTES 26u
void qn__fs_temporary_name(const void* owner, char out[QN__FS_TEMPORARY_NAME_BYTES]);
// True when only this machine uses the file system of `path`, so that its locks work. False if the
// file system is unknown or cannot be determined.
bool qn__fs_is_local(const char* path);
// Makes a status from errno: "cannot WHAT 'PATH': strerror".
qn_status_t qn__fs_status(int error, const char* what, const char* path);

#endif  // QUERN_BASE_FS_H_
