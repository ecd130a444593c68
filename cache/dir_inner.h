// cache/dir_inner.h: what a handle of quern/cache.h is, for the calls that are not in dir.c.
//
// Thread rule: constant once open. Read next: dir.c, bundle_api.c.
#ifndef QUERN_CACHE_DIR_INNER_H_
#define QUERN_CACHE_DIR_INNER_H_

#include "cache/disk.h"
#include "quern/cache.h"

struct qn_cache_dir {
  // Never swept: a tool does not know the bounds that the engines of the directory were given.
  qn__disk_t* disk;
  bool is_read_only;  // it belongs to root, or may not be written
};

#endif  // QUERN_CACHE_DIR_INNER_H_
