// SPDX-License-Identifier: Apache-2.0
// devices/workspace.h: keeps freed workspace of a device for reuse, in the order of streams.
//
// The stream that freed a block may reuse it at once, because its work runs in order; another
// stream only when the block's last use has passed. A size has one of four classes for each power
// of two, so that freed blocks fit later requests.
//
// The device allocates and frees the blocks, each with a qn__workspace_block_t as its first member.
// Functions that return a list give the blocks to the caller, which frees them without the lock.
#ifndef QUERN_DEVICES_WORKSPACE_H_
#define QUERN_DEVICES_WORKSPACE_H_

#include "base/base.h"
#include "base/thread.h"

enum { QN__WORKSPACE_CLASSES = 140, QN__WORKSPACE_BUCKETS = 256 };

typedef struct qn__workspace_block qn__workspace_block_t;
struct qn__workspace_block {
  uint64_t address;  // by which a block in use is found; 0: the device finds it by itself
  uint64_t stream;   // of the stream that freed it, a number that no other stream has meanwhile
  uint32_t size_class;
  qn__workspace_block_t* next;  // in its list, or in the list that a function returns
};

typedef struct qn__workspace {
  qn__mutex_t mutex;
  uint64_t max_cached_bytes;
  // Returns whether the last use of a freed block has passed. Called with the lock held.
  bool (*is_passed)(const qn__workspace_block_t* block);
  uint64_t cached_bytes;
  qn__workspace_block_t* cached[QN__WORKSPACE_CLASSES];
  qn__workspace_block_t* used[QN__WORKSPACE_BUCKETS];  // those with an address
} qn__workspace_t;

qn_status_t qn__workspace_init(qn__workspace_t* workspace, uint64_t max_cached_bytes,
                               bool (*is_passed)(const qn__workspace_block_t* block));
// Returns all cached blocks. All work must have ended.
qn__workspace_block_t* qn__workspace_deinit(qn__workspace_t* workspace);

// Finds the class of a size. False: no class is large enough.
bool qn__workspace_class_of(uint64_t size_bytes, uint32_t* out_class);
// Returns the size of the blocks of a class.
uint64_t qn__workspace_class_bytes(uint32_t size_class);

// Returns a cached block that `stream` may use now, preferably its own; NULL: there is none. The
// caller then allocates a block and adds it.
qn__workspace_block_t* qn__workspace_acquire(qn__workspace_t* workspace, uint32_t size_class,
                                             uint64_t stream);
// Adds a new block in use.
void qn__workspace_add(qn__workspace_t* workspace, qn__workspace_block_t* block);
// Removes the block in use with this address; NULL: there is none.
qn__workspace_block_t* qn__workspace_remove(qn__workspace_t* workspace, uint64_t address);
// Caches a block that was removed, or has no address. Returns passed blocks beyond the limit.
qn__workspace_block_t* qn__workspace_release(qn__workspace_t* workspace,
                                             qn__workspace_block_t* block);
// Returns passed blocks, as many as are needed to leave `max_cached_bytes`.
qn__workspace_block_t* qn__workspace_trim(qn__workspace_t* workspace, uint64_t max_cached_bytes);
// Returns all cached blocks of a stream, whose work has ended.
qn__workspace_block_t* qn__workspace_forget(qn__workspace_t* workspace, uint64_t stream);

#endif  // QUERN_DEVICES_WORKSPACE_H_
