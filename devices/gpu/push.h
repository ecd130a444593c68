// SPDX-License-Identifier: Apache-2.0
// devices/gpu/push.h: the push constants of a Vulkan kernel, with one layout for generator and
// device.
#ifndef QUERN_DEVICES_GPU_PUSH_H_
#define QUERN_DEVICES_GPU_PUSH_H_

#include "quern/gpu.h"

// Lays out the push constants, each at the next multiple of its size, in this order:
//  1. for each BUFFER and WORKSPACE argument, then for the record if there is one, a u32: the index
//     of the buffer's first element in the bound range (for the record in bytes / 4);
//  2. the scalars;
//  3. the u32 tag if there is a record.
// The number of launched blocks (the stride) is gl_NumWorkGroups.x. `offsets` has arg_count + 2
// entries: those of the arguments (for buffers, of their u32), of the record's u32 and of the tag
// (UINT32_MAX without a record). Returns the total size in bytes, a multiple of 4. If it exceeds
// the target's max_push_constants_bytes the same bytes lie in a storage buffer, at the last
// binding.
uint32_t qn__gpu_push_layout(const qn_gpu_arg_t* args, uint32_t arg_count, bool has_record,
                             uint32_t* offsets);

#endif  // QUERN_DEVICES_GPU_PUSH_H_
