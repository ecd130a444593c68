// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // F_OFD_SETLK
// base/fs_linux.c: locks of an open file description, and the kind of a file system.
//
// POSIX locks belong to the process and vanish when it closes any descriptor of the file; flock
// locks whole files. Locks of an open file description on single bytes have neither problem: one
// empty file serves any number of keys.
#include "base/fs_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fs.h"

static int set_lock(int fd, short type, int64_t offset) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
  int result;
  do {
    result = fcntl(fd, F_OFD_SETLK, &lock);
  } while (result == -1 && errno == EINTR);
  return result;
}

int qn__fs_linux_try_lock(int fd, int64_t offset) {
  return set_lock(fd, F_WRLCK, offset);
}
int qn__fs_linux_unlock(int fd, int64_t offset) {
  return set_lock(fd, F_UNLCK, offset);
}

int qn__fs_linux_filesystem_type(const char* path, uint32_t* out_magic) {
  struct statfs info;
  int result;
  do {
    result = statfs(path, &info);
  } while (result == -1 && errno == EINTR);
  if (result == 0) *out_magic = (uint32_t)info.f_type;
  return result;
}

// The numbers are from statfs(2).
bool qn__fs_is_local(const char* path) {
  static const uint32_t local[] = {
      0xEF53,      // ext2, ext3, ext4
      0x58465342,  // xfs
      0x9123683E,  // btrfs
      0x01021994,  // tmpfs
      0x858458F6,  // ramfs
      0x794C7630,  // overlayfs
      0x2FC12FC1,  // zfs
      0xF2F52010,  // f2fs
      0xCA451A4E,  // bcachefs
      0x3153464A,  // jfs
      0x3434,      // nilfs2
  };
  uint32_t magic;
  if (qn__fs()->filesystem_type(path, &magic) != 0) return false;
  for (size_t i = 0; i < QN_COUNT_OF(local); i++) {
    if (local[i] == magic) return true;
  }
  return false;
}
