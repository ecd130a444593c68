// SPDX-License-Identifier: Apache-2.0
// jit/llvm/guard.h: turns fatal errors of LLVM (report_fatal_error) into a status.
//
// LLVM ends the process when its fatal error handler returns. So the handler jumps back to
// qn__llvm_guard_run. Memory that LLVM held at that moment is leaked on purpose: its objects are in
// an unknown state, so the caller must not dispose of them. abort() and traps in LLVM are not
// caught. Each thread has its own place to jump to.
#ifndef QN_JIT_LLVM_GUARD_H_
#define QN_JIT_LLVM_GUARD_H_

#include "base/base.h"

// Installs the handler, process-wide and once.
void qn__llvm_guard_install(void);

// Runs `work` and returns its status. If LLVM fails fatally, returns INTERNAL with LLVM's reason
// and sets `*out_is_abandoned`.
qn_status_t qn__llvm_guard_run(qn_status_t (*work)(void* self), void* self, bool* out_is_abandoned);

#endif  // QN_JIT_LLVM_GUARD_H_
