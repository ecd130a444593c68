// SPDX-License-Identifier: Apache-2.0
// devices/cpu/code_pool.h: memory for code: written through one mapping, executed through another.
#ifndef QUERN_DEVICES_CPU_CODE_POOL_H_
#define QUERN_DEVICES_CPU_CODE_POOL_H_

#include "base/base.h"

typedef struct qn__cpu_code_slab qn__cpu_code_slab_t;

typedef struct qn__cpu_code {
  const uint8_t* address;  // executable, aligned to 64 bytes
  qn__cpu_code_slab_t* slab;
} qn__cpu_code_t;

// Copies `image` into executable memory. Errors: OUT_OF_MEMORY; UNSUPPORTED when the system allows
// no executable memory.
qn_status_t qn__cpu_code_place(qn_span_t image, qn__cpu_code_t* out_code);
// Frees the memory of `code`. No thread may still run it.
void qn__cpu_code_remove(qn__cpu_code_t* code);

// Reports how many bytes the process has mapped for code and how many of them are in use. Frozen
// slabs count.
void qn__cpu_code_usage(size_t* out_mapped_bytes, size_t* out_used_bytes);

#endif  // QUERN_DEVICES_CPU_CODE_POOL_H_
