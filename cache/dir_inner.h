// SPDX-License-Identifier: Apache-2.0
// cache/dir_inner.h: the handle behind qn_cache_dir_t, for dir.c, dir_statistics.c and
// bundle_api.c.
#ifndef QUERN_CACHE_DIR_INNER_H_
#define QUERN_CACHE_DIR_INNER_H_

#include "cache/disk.h"
#include "quern/cache.h"

struct qn_cache_dir {
  // Never sweeps: a tool does not know the bounds of the engines that use the directory.
  qn__disk_t* disk;
  bool is_read_only;  // it belongs to root, or this user may not write it
};

#endif  // QUERN_CACHE_DIR_INNER_H_
