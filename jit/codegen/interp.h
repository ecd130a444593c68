// jit/codegen/interp.h: functions of the `interp` target: calls run the interpreter over the module
// that the function cell holds, in the caller or on a stream of the CPU device.
//
// Thread rule: any thread. Read next: function.h.
#ifndef QUERN_JIT_INTERP_H_
#define QUERN_JIT_INTERP_H_

#include "base/base.h"
#include "devices/cpu/cpu.h"
#include "ir/ir.h"

#define QN__INTERP_FORMAT "interp-1"
// The warp of the interpreter's threads where an artifact does not say (its metadata: the target's
// warp_size, 32 bits).
#define QN__INTERP_WARP_SIZE 32u
// A failure whose site is this carries an owned status in `index`.
#define QN__SITE_STATUS UINT32_MAX

// The warp that an artifact of the interpreter asks for.
uint32_t qn__interp_warp_size(const qn_artifact_t* artifact);
// Runs one call now.
qn_status_t qn__interp_run(const qn__ir_func_t* function, uint32_t warp_size,
                           const uint64_t* words);
// For qn__cpu_enqueue: `self` is the variant.
int32_t qn__interp_run_queued(void* self, qn__cpu_call_t* call, const uint64_t* words);

#endif  // QUERN_JIT_INTERP_H_
