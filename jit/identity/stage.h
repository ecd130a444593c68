// SPDX-License-Identifier: Apache-2.0
// jit/identity/stage.h: reports the stages of a compile to the caller of a code generator.
#ifndef QUERN_JIT_IDENTITY_STAGE_H_
#define QUERN_JIT_IDENTITY_STAGE_H_

#include "base/thread.h"
#include "quern/backend.h"

// Reports a stage that ran from `*inout_start_ns` until now, where the next one begins.
static inline void qn__stage_end(const qn_compile_request_t* request, qn_compile_stage_t stage,
                                 int64_t* inout_start_ns) {
  if (!request->on_stage) return;
  int64_t now_ns = qn__now_ns();
  request->on_stage(request->on_stage_self, stage, now_ns - *inout_start_ns);
  *inout_start_ns = now_ns;
}

#endif  // QUERN_JIT_IDENTITY_STAGE_H_
