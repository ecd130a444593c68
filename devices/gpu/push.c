// SPDX-License-Identifier: Apache-2.0
// devices/gpu/push.c: see push.h.
#include "devices/gpu/push.h"

static uint32_t place(uint32_t* end, uint32_t size) {
  uint32_t offset = (*end + size - 1) / size * size;
  *end = offset + size;
  return offset;
}

uint32_t qn__gpu_push_layout(const qn_gpu_arg_t* args, uint32_t arg_count, bool has_record,
                             uint32_t* offsets) {
  uint32_t end = 0, i = 0;
  for (; i < arg_count && args[i].kind <= QN_GPU_ARG_WORKSPACE; i++) offsets[i] = place(&end, 4);
  offsets[arg_count] = has_record ? place(&end, 4) : UINT32_MAX;
  for (; i < arg_count; i++) offsets[i] = place(&end, args[i].size_bytes);
  offsets[arg_count + 1] = has_record ? place(&end, 4) : UINT32_MAX;
  return (end + 3) / 4 * 4;
}
