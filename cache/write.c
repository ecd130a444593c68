// cache/write.c: how one entry appears in the directory.
//
// Requirements.
// 1. An entry is one file, and becomes visible under its name by one rename. Whoever opens the name
//    gets nothing, or all of an older entry, or all of the new one.
// 2. The bytes are on the disk before the name is: fdatasync precedes rename. After a loss of power
//    a name may be missing; the file behind a name is whole (and if not, its checksum says so). The
//    directory is not synced: losing a new entry is harmless.
// 3. A temporary name belongs to one writer: it carries the process and 64 random bits and is made
//    with O_EXCL. A writer that dies leaves a file that nobody waits for; the sweep removes it
//    after an hour.
// 4. The rename always replaces. An entry that is damaged, or that a reader refused, is healed by
//    publishing again; two writers of one key put equal bytes there.
// 5. A directory that was wiped meanwhile is made again, as long as it would be trusted.
//
// Not here: when and for whom (publish.c). Thread rule: on the writer thread. Read next: sweep.c.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "cache/disk_inner.h"

#define NAME_ATTEMPTS 4

// Opens a new temporary file; the descriptor, or -1 and errno.
static int open_temporary(qn__disk_t* disk, char* path) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  bool has_made = false;
  for (int attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
    qn__disk_temporary_path(disk, path);
    int fd = qn__fs()->open(path, flags, disk->file_mode);
    if (fd >= 0) {
      // What the process's mask took away. Without it others miss, and that is all.
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

static int write_fully(int fd, const uint8_t* bytes, size_t size) {
  const qn__fs_t* fs = qn__fs();
  for (size_t done = 0; done < size;) {
    ssize_t written = fs->write(fd, bytes + done, size - done);
    if (written < 0) return errno;
    if (written == 0) return EIO;
    done += (size_t)written;
  }
  return fs->fdatasync(fd) == 0 ? 0 : errno;
}

// In a shared directory with a sticky bit what another user has put under the name stays there.
// That says nothing about other names, so it is not the refusal that it looks like.
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
  // The shard does not exist yet, or all was wiped. In the latter case the second rename fails as
  // well.
  char shard[QN__DISK_PATH_BYTES];
  qn__disk_shard_path(disk, key.bytes[0], shard);
  int error = qn__disk_make_directory(disk, shard);
  if (error) return error;
  return qn__fs()->rename(temporary, path) == 0 ? 0 : errno;
}

// The descriptor is recorded while it is open, for a fork meanwhile to close it in the child.
static void record_descriptor(qn__disk_t* disk, int fd) {
  qn__mutex_lock(&disk->mutex);
  disk->in_flight_fd = fd;
  qn__mutex_unlock(&disk->mutex);
}

int qn__disk_write_entry(qn__disk_t* disk, const qn__disk_node_t* node) {
  char temporary[QN__DISK_PATH_BYTES];
  int fd = open_temporary(disk, temporary);
  if (fd < 0) return errno;
  record_descriptor(disk, fd);
  int error = write_fully(fd, node->bytes, node->size_bytes);
  record_descriptor(disk, -1);
  // NFS reports late write errors here.
  if (qn__fs()->close(fd) != 0 && !error) error = errno;
  if (!error) error = rename_into_place(disk, temporary, node->key);
  if (error) (void)qn__fs()->unlink(temporary);
  return error;
}
