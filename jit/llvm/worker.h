// SPDX-License-Identifier: Apache-2.0
// jit/llvm/worker.h: workers: the target machines and the linker that a compile uses, kept for the
// next one. The pool has as many workers as threads have compiled at the same time.
//
// The LLVM context is not kept: a fresh one for each compile ensures that one module cannot change
// the code of another.
// Thread rule: the pool is thread-safe; a worker belongs to one thread while it is taken.
#ifndef QN_JIT_LLVM_WORKER_H_
#define QN_JIT_LLVM_WORKER_H_

#include <llvm-c/TargetMachine.h>

#include "base/thread.h"
#include "jit/llvm/link.h"
#include "quern/backend.h"
#include "target/target.h"

typedef struct qn__llvm_worker qn__llvm_worker_t;

typedef struct qn__llvm_worker_pool {
  qn_allocator_t allocator;
  qn__mutex_t mutex;
  qn__llvm_worker_t* idle;
} qn__llvm_worker_pool_t;

qn_status_t qn__llvm_worker_pool_init(qn__llvm_worker_pool_t* pool, qn_allocator_t allocator);
// Destroys the pool. All workers must have been given back.
void qn__llvm_worker_pool_deinit(qn__llvm_worker_pool_t* pool);
qn_status_t qn__llvm_worker_take(qn__llvm_worker_pool_t* pool, qn__llvm_worker_t** out_worker);
// Returns a worker. `is_abandoned`: LLVM failed fatally, so its objects are leaked (guard.h).
void qn__llvm_worker_give_back(qn__llvm_worker_pool_t* pool, qn__llvm_worker_t* worker,
                               bool is_abandoned);

// Returns the machine for a CPU target and tier, borrowed until the next call. Errors: UNAVAILABLE
// if this LLVM lacks the architecture, OUT_OF_MEMORY.
qn_status_t qn__llvm_worker_machine(qn__llvm_worker_t* worker, const qn_target_t* target,
                                    qn_tier_t tier, LLVMTargetMachineRef* out_machine);
// Returns the linker, which is made on first use and after a failed link.
qn_status_t qn__llvm_worker_linker(qn__llvm_worker_t* worker, qn__llvm_linker_t** out_linker);

#endif  // QN_JIT_LLVM_WORKER_H_
