// devices/cpu/code_pool.h: memory for code: written through one mapping, executed through another.
//
// Thread rule: any thread. Read next: code_pool.c.
#ifndef QUERN_DEVICES_CPU_CODE_POOL_H_
#define QUERN_DEVICES_CPU_CODE_POOL_H_

#include "base/base.h"

typedef struct qn__code_slab qn__code_slab_t;

typedef struct qn__code {
  const uint8_t* address;  // executable, aligned to 64 bytes
  size_t size_bytes;       // of the block
  qn__code_slab_t* slab;
} qn__cpu_code_t;

// Copies `image` into executable memory. Errors: OUT_OF_MEMORY; UNSUPPORTED when the system allows
// no executable memory.
qn_status_t qn__code_place(qn_span_t image, qn__cpu_code_t* out_code);
// Nothing may run in it any more.
void qn__code_remove(qn__cpu_code_t* code);

// What the process has mapped for code, and what of it is in use. Frozen slabs count.
void qn__code_usage(size_t* out_mapped_bytes, size_t* out_used_bytes);

#endif  // QUERN_DEVICES_CPU_CODE_POOL_H_
