// jit/llvm/guard.h: LLVM may give up (report_fatal_error); here that becomes a status.
//
// LLVM's fatal error handler cannot return: LLVM ends the process after it. So the handler jumps
// back to where the work began. What LLVM held at that moment (memory, never a file) is lost on
// purpose: its objects are in an unknown state, and the caller must abandon them without disposing
// of them. What LLVM stops by abort() or a trap cannot be caught. Thread rule: any thread; each has
// its own place to jump to. Read next: guard.c.
#ifndef QN_JIT_LLVM_GUARD_H_
#define QN_JIT_LLVM_GUARD_H_

#include "base/base.h"

// Installs the handler, process-wide and once.
void qn__llvm_guard_install(void);

// Runs `work`. When LLVM gives up in it: INTERNAL with LLVM's reason, and `*out_is_abandoned` is
// true.
qn_status_t qn__llvm_guard_run(qn_status_t (*work)(void* self), void* self, bool* out_is_abandoned);

#endif  // QN_JIT_LLVM_GUARD_H_
