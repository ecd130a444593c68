// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700  // S_ISVTX
// cache/disk_trust.c: which directory and which files are trusted, and the modes of new ones.
//
// Requirements:
// 1. A user who can write the directory can run code as its users. So it belongs to this user, and
//    no other may write it. Or its opener names the users who may (the owners); then its group may
//    write it, too.
// 2. No other user can put another directory in its place: it is no symbolic link, and its parent
//    is not writable by everybody without the sticky bit. (Owner and group of the parent still can;
//    rule 3 then protects each file.)
// 3. An entry is read only if this user or an owner created it and no other user may write the
//    file. A file that a stranger with the right group leaves in a shared directory is a miss.
// 4. A read-only directory may belong to root, for those that an administrator ships.
// 5. The rules apply again when a directory that has vanished is created again.
// 6. Modes are changed through descriptors only. Between creating a name and changing its mode by
//    name, a stranger with the right group could put a link to another file of ours there.
//
// Not here: the checksum, which finds damage, not malice (entry.c).
#include <errno.h>
#include <fcntl.h>

#include "cache/disk_inner.h"

static qn_status_t distrust(const char* path, const char* rule, const char* hint) {
  return qn_status_make(QN_STATUS_PERMISSION_DENIED, "cache directory '%s' %s; %s", path, rule,
                        hint);
}

static bool is_owner(const qn__disk_t* disk, uid_t user) {
  if (user == disk->owner || (disk->is_read_only && user == 0)) return true;
  for (size_t i = 0; i < disk->owner_count; i++) {
    if (disk->owners[i] == user) return true;
  }
  return false;
}

static bool is_open_to_all(mode_t mode) {
  return (mode & S_IWOTH) && !(mode & S_ISVTX);
}

// A user who can write the parent, without a sticky bit, can put another directory here.
static qn_status_t check_parent(const qn__disk_t* disk) {
  char parent[QN__DISK_PATH_BYTES];
  qn__disk_path(disk, "/..", parent);
  struct stat info;
  if (qn__fs()->lstat(parent, &info) != 0) return qn__fs_status(errno, "stat", parent);
  if (is_open_to_all(info.st_mode)) {
    return distrust(disk->root, "lies in a directory that everybody may write",
                    "set its sticky bit or choose another place");
  }
  return QN_OK;
}

qn_status_t qn__disk_check_trust(const qn__disk_t* disk, struct stat* out_info) {
  if (qn__fs()->lstat(disk->root, out_info) != 0) return qn__fs_status(errno, "open", disk->root);
  mode_t mode = out_info->st_mode;
  if (S_ISLNK(mode)) {
    return distrust(disk->root, "is a symbolic link", "name the directory that it leads to");
  }
  if (!S_ISDIR(mode)) {
    return distrust(disk->root, "is not a directory", "choose another path");
  }
  if (!is_owner(disk, out_info->st_uid)) {
    return distrust(disk->root, "belongs to another user",
                    disk->owner_count
                        ? "name that user among its owners"
                        : "choose a directory of this user or name the users who share it");
  }
  if (disk->owner_count == 0 && (mode & (S_IWGRP | S_IWOTH))) {
    return distrust(disk->root, "is writable by others",
                    "chmod go-w it or name the users who share it");
  }
  if (is_open_to_all(mode)) {
    return distrust(disk->root, "is writable by everybody", "chmod o-w it");
  }
  return check_parent(disk);
}

bool qn__disk_is_trusted_file(const qn__disk_t* disk, const struct stat* info) {
  return S_ISREG(info->st_mode) && is_owner(disk, info->st_uid) &&
         (info->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Copies the rights of group and others on the root: read for new files and directories, and write
// for directories where they may write the root.
void qn__disk_set_modes(qn__disk_t* disk, const struct stat* root) {
  disk->file_mode = disk->lock_mode = 0600;
  disk->dir_mode = 0700;
  if (disk->owner_count == 0) return;
  disk->file_mode |= root->st_mode & 0044;
  disk->lock_mode |= root->st_mode & 0060;
  disk->dir_mode |= root->st_mode & (S_ISGID | S_ISVTX | 0077);
}

// Restores the mode bits that the umask cleared in a new directory. If this fails, other users
// miss, and that is all.
static void widen(const qn__disk_t* disk, const char* path) {
  const qn__fs_t* fs = qn__fs();
  if (disk->owner_count == 0) return;
  int fd = fs->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
  if (fd < 0) return;
  struct stat info;
  if (fs->fstat(fd, &info) == 0 && info.st_uid == disk->owner) {
    (void)fs->fchmod(fd, disk->dir_mode);
  }
  (void)fs->close(fd);
}

// Creates one directory. Returns 0 or an errno.
static int make_one(const qn__disk_t* disk, const char* path) {
  if (qn__fs()->mkdir(path, disk->dir_mode) != 0) return errno == EEXIST ? 0 : errno;
  widen(disk, path);
  return 0;
}

static int make_root(const qn__disk_t* disk) {
  if (qn__fs_mkdirs(disk->root, 0700) != 0) return errno;
  widen(disk, disk->root);
  return 0;
}

int qn__disk_make_directory(const qn__disk_t* disk, const char* path) {
  struct stat info;
  qn_status_code_t code = qn_status_consume(qn__disk_check_trust(disk, &info));
  if (code == QN_STATUS_NOT_FOUND) {
    int error = make_root(disk);
    if (error) return error;
    code = qn_status_consume(qn__disk_check_trust(disk, &info));
  }
  if (code == QN_STATUS_PERMISSION_DENIED) return EACCES;
  if (code != QN_STATUS_OK) return ENOENT;
  char part[QN__DISK_PATH_BYTES];
  for (size_t size = disk->root_size + 1;; size++) {
    if (path[size] != '/' && path[size] != '\0') continue;
    memcpy(part, path, size);
    part[size] = '\0';
    int error = make_one(disk, part);
    if (error || path[size] == '\0') return error;
  }
}
