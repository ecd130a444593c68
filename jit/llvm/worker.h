// jit/llvm/worker.h: what one compiling thread needs from LLVM and is worth keeping: target
// machines and a linker. The generator's pool hands workers out; as many exist as threads have
// compiled at once.
//
// The LLVM context is not kept: each compile has a fresh one, so that nothing of an earlier module
// can change the bytes of a later one. Thread rule: the pool is thread-safe; a worker is one
// thread's while it is taken. Read next: worker.c.
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
// No worker may be taken.
void qn__llvm_worker_pool_deinit(qn__llvm_worker_pool_t* pool);
qn_status_t qn__llvm_worker_take(qn__llvm_worker_pool_t* pool, qn__llvm_worker_t** out_worker);
// `is_abandoned`: LLVM gave up inside; what the worker holds is lost on purpose (guard.h).
void qn__llvm_worker_give_back(qn__llvm_worker_pool_t* pool, qn__llvm_worker_t* worker,
                               bool is_abandoned);

// The machine for a CPU target and tier; borrowed until another one is asked for. Errors:
// UNAVAILABLE when this LLVM lacks the architecture, OUT_OF_MEMORY.
qn_status_t qn__llvm_worker_machine(qn__llvm_worker_t* worker, const qn_target_t* target,
                                    qn_tier_t tier, LLVMTargetMachineRef* out_machine);
// The linker; made on first use and after a failed link.
qn_status_t qn__llvm_worker_linker(qn__llvm_worker_t* worker, qn__llvm_linker_t** out_linker);

// LLVM's name for the extensions of a target: "+avx,+avx2".
void qn__llvm_features(const qn_target_t* target, qn__buffer_t* out);

#endif  // QN_JIT_LLVM_WORKER_H_
