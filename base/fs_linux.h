// SPDX-License-Identifier: Apache-2.0
// base/fs_linux.h: the functions of fs.c that POSIX does not have.
#ifndef QUERN_BASE_FS_LINUX_H_
#define QUERN_BASE_FS_LINUX_H_

#include <stdint.h>

int qn__fs_linux_try_lock(int fd, int64_t offset);
int qn__fs_linux_unlock(int fd, int64_t offset);
int qn__fs_linux_filesystem_type(const char* path, uint32_t* out_magic);

#endif  // QUERN_BASE_FS_LINUX_H_
