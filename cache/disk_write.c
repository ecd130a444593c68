// SPDX-License-Identifier: Apache-2.0
// cache/disk_write.c: writes one entry into the directory: the publish protocol.
//
// Requirements:
// 1. An entry is one file, and one rename makes it visible under its name. A process that opens the
//    name gets no file, or a whole older entry, or the whole new one.
// 2. The bytes reach the disk before the name does: fdatasync precedes rename. After a loss of
//    power the name may be missing, but the file under a name is whole; if a disk lies, the
//    checksum finds it. The directory is not synced, because losing a new entry is harmless.
// 3. A temporary name belongs to one writer: it holds the process id and 64 random bits, and O_EXCL
//    creates it. A writer that dies leaves a temporary file, which a sweep removes after an hour;
//    no process waits for it.
// 4. The rename always replaces the file under the name. So publishing again heals an entry that is
//    damaged or that a reader refuses. Two writers of one key write equal bytes.
// 5. If the directory was removed meanwhile, it is created again, provided that it would be
//    trusted.
//
// The order of calls: open(O_EXCL), write, fdatasync, close, rename; on any failure unlink. Called
// on the writer thread.
//
// Not here: the queue (disk_publish.c).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "cache/disk_inner.h"

#define NAME_ATTEMPTS 4

// Opens a new temporary file. Returns the descriptor, or -1 with errno.
static int open_temporary(qn__disk_t* disk, char* path) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  bool has_made = false;
  for (int attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
    qn__disk_temporary_path(disk, path);
    int fd = qn__fs()->open(path, flags, disk->file_mode);
    if (fd >= 0) {
      // Restores the mode bits that the umask cleared. If this fails, other users miss, and that is
      // all.
      if (disk->owner_count) (void)qn__fs()->fchmod(fd, disk->file_mode);
      return fd;
    }
    if (errno == ENOENT && !has_made) {
      char directory[QN__DISK_PATH_BYTES];
      qn__disk_path(disk, "/v1/tmp", directory);
      int error = qn__disk_make_directory(disk, directory);
      if (error) {
        errno = error;
        return -1;
      }
      has_made = true;
    } else if (errno != EEXIST) {
      return -1;
    }
  }
  return -1;
}

// Translates the errno of a failed rename. In a shared directory with a sticky bit, the file of
// another user under this name cannot be replaced. That is no reason to switch writing off for all
// names, so it becomes EEXIST.
static int rename_error(const qn__disk_t* disk, const char* path, int error) {
  struct stat info;
  bool is_denied = error == EACCES || error == EPERM;
  if (!is_denied || disk->owner_count == 0 || qn__fs()->lstat(path, &info) != 0) return error;
  return info.st_uid == disk->owner ? error : EEXIST;
}

static int rename_into_place(qn__disk_t* disk, const char* temporary, qn_hash128_t key) {
  char path[QN__DISK_PATH_BYTES];
  qn__disk_entry_path(disk, key, path);
  if (qn__fs()->rename(temporary, path) == 0) return 0;
  if (errno != ENOENT) return rename_error(disk, path, errno);
  // The shard is missing, or the whole directory was removed; then the second rename fails, too.
  char shard[QN__DISK_PATH_BYTES];
  qn__disk_shard_path(disk, key.bytes[0], shard);
  int error = qn__disk_make_directory(disk, shard);
  if (error) return error;
  return qn__fs()->rename(temporary, path) == 0 ? 0 : errno;
}

int qn__disk_write_entry(qn__disk_t* disk, const qn__disk_node_t* node) {
  char temporary[QN__DISK_PATH_BYTES];
  int fd = open_temporary(disk, temporary);
  if (fd < 0) return errno;
  qn__disk_descriptor_t descriptor;
  qn__disk_record_descriptor(disk, &descriptor, fd, NULL);
  int error = qn__fs_write_all(fd, node->bytes, node->size_bytes);
  if (!error && qn__fs()->fdatasync(fd) != 0) error = errno;
  (void)qn__disk_drop_descriptor(disk, &descriptor);
  // NFS reports late write errors here.
  if (qn__fs()->close(fd) != 0 && !error) error = errno;
  if (!error) error = rename_into_place(disk, temporary, node->key);
  if (error) (void)qn__fs()->unlink(temporary);
  return error;
}
