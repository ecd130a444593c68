// SPDX-License-Identifier: Apache-2.0
// jit/identity/run_parallel.h: runs the items of a compile on the threads that its request offers.
#ifndef QUERN_JIT_IDENTITY_RUN_PARALLEL_H_
#define QUERN_JIT_IDENTITY_RUN_PARALLEL_H_

#include "quern/backend.h"

// Does what qn_compile_request_t's run_parallel says, in turn if the request offers no threads.
static inline qn_status_t qn__run_parallel(const qn_compile_request_t* request, size_t count,
                                           qn_status_t (*run)(void* arg, size_t index), void* arg) {
  if (request->run_parallel && count > 1) {
    return request->run_parallel(request->run_parallel_self, count, run, arg);
  }
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < count && qn_ok(status); ++i) status = run(arg, i);
  return status;
}

#endif  // QUERN_JIT_IDENTITY_RUN_PARALLEL_H_
