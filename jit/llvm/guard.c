// SPDX-License-Identifier: Apache-2.0
// jit/llvm/guard.c: the fatal error handler and its jump.
//
// The jump skips LLVM's stack frames without running their destructors, as clang's crash recovery
// does. LLVM calls the handler without holding its lock.
#include "jit/llvm/guard.h"

#include <llvm-c/ErrorHandling.h>
#include <setjmp.h>
#include <stdio.h>

typedef struct guard {
  jmp_buf back;
  char reason[512];
} guard_t;

static _Thread_local guard_t* current;

static void on_fatal_error(const char* reason) {
  guard_t* guard = current;
  // The failure is of another user of the same libLLVM. LLVM then ends the process.
  if (!guard) return;
  (void)snprintf(guard->reason, sizeof guard->reason, "%s", reason);
  longjmp(guard->back, 1);
}

void qn__llvm_guard_install(void) {
  LLVMInstallFatalErrorHandler(on_fatal_error);
}

qn_status_t qn__llvm_guard_run(qn_status_t (*work)(void* self), void* self,
                               bool* out_is_abandoned) {
  guard_t guard;
  guard_t* const outer = current;
  *out_is_abandoned = false;
  guard.reason[0] = '\0';
  current = &guard;
  if (setjmp(guard.back) == 0) {
    qn_status_t status = work(self);
    current = outer;
    return status;
  }
  current = outer;
  *out_is_abandoned = true;
  return qn_status_make(QN_STATUS_INTERNAL, "LLVM gave up: %s", guard.reason);
}
