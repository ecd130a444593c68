// SPDX-License-Identifier: Apache-2.0
// jit/llvm/worker.c: target machines by features and tier, the linker, and the pool of workers.
//
// A machine is made for the baseline processor of its architecture and the target's list of
// extensions. So the code depends neither on the host nor on the features that a processor's name
// implies. Scheduling for a processor is an attribute of functions (emit_function.c).
#include "jit/llvm/worker.h"

#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <stdio.h>

#include "jit/llvm/guard.h"

enum { MACHINE_LIMIT = 8 };

typedef struct machine {
  const qn__target_arch_t* arch;  // NULL: the slot is empty
  qn__target_features_t features;
  qn_tier_t tier;
  LLVMTargetMachineRef machine;
} machine_t;

struct qn__llvm_worker {
  qn_allocator_t allocator;
  qn__llvm_worker_t* next;
  qn__llvm_linker_t* linker;
  machine_t machines[MACHINE_LIMIT];
  size_t next_machine;  // the slot that is replaced next
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void initialize(void) {
  qn__llvm_guard_install();
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

qn_status_t qn__llvm_worker_pool_init(qn__llvm_worker_pool_t* pool, qn_allocator_t allocator) {
  (void)pthread_once(&once, initialize);
  *pool = (qn__llvm_worker_pool_t){.allocator = allocator};
  return qn__mutex_init(&pool->mutex);
}

static void destroy(qn__llvm_worker_t* worker) {
  qn__llvm_linker_destroy(worker->linker);
  for (size_t i = 0; i < MACHINE_LIMIT; ++i) {
    if (worker->machines[i].arch) LLVMDisposeTargetMachine(worker->machines[i].machine);
  }
  qn__free(worker->allocator, worker, sizeof *worker);
}

void qn__llvm_worker_pool_deinit(qn__llvm_worker_pool_t* pool) {
  while (pool->idle) {
    qn__llvm_worker_t* worker = pool->idle;
    pool->idle = worker->next;
    destroy(worker);
  }
  qn__mutex_deinit(&pool->mutex);
}

qn_status_t qn__llvm_worker_take(qn__llvm_worker_pool_t* pool, qn__llvm_worker_t** out_worker) {
  qn__mutex_lock(&pool->mutex);
  qn__llvm_worker_t* worker = pool->idle;
  if (worker) pool->idle = worker->next;
  qn__mutex_unlock(&pool->mutex);
  if (!worker) {
    worker = qn__alloc_zero(pool->allocator, 1, sizeof *worker);
    if (worker) worker->allocator = pool->allocator;
  }
  *out_worker = worker;
  return worker ? QN_OK : qn__out_of_memory("a compile worker");
}

void qn__llvm_worker_give_back(qn__llvm_worker_pool_t* pool, qn__llvm_worker_t* worker,
                               bool is_abandoned) {
  if (is_abandoned) {
    // Frees only our own memory; that of LLVM is leaked (guard.h).
    qn__free(worker->allocator, worker, sizeof *worker);
    return;
  }
  qn__mutex_lock(&pool->mutex);
  worker->next = pool->idle;
  pool->idle = worker;
  qn__mutex_unlock(&pool->mutex);
}

// Appends the extensions of a target in LLVM's syntax: "+avx,+avx2".
static void append_features(const qn_target_t* target, qn__buffer_t* out) {
  const qn__target_arch_t* arch = target->arch;
  for (size_t i = 0; i < arch->feature_count; ++i) {
    if (!qn__features_has_index(target->features, (int)i)) continue;
    qn__buffer_format(out, "%s+%s", out->size ? "," : "", arch->features[i].name);
    // LLVM's own switch for 512-bit registers; the processor has no such bit.
    if (strcmp(arch->features[i].name, "avx512f") == 0) qn__buffer_cstr(out, ",+evex512");
  }
}

static qn_status_t make_machine(const qn__target_arch_t* arch, const char* features, qn_tier_t tier,
                                LLVMTargetMachineRef* out_machine) {
  LLVMTargetRef llvm_target = NULL;
  char* message = NULL;
  if (LLVMGetTargetFromTriple(arch->triple, &llvm_target, &message)) {
    qn_status_t status = qn_status_make(
        QN_STATUS_UNAVAILABLE, "this LLVM has no code generator for %s: %s", arch->triple, message);
    LLVMDisposeMessage(message);
    return status;
  }
  LLVMTargetMachineOptionsRef options = LLVMCreateTargetMachineOptions();
  LLVMTargetMachineOptionsSetCPU(options, arch->cpus[0].name);  // the baseline
  LLVMTargetMachineOptionsSetFeatures(options, features);
  LLVMTargetMachineOptionsSetRelocMode(options, LLVMRelocPIC);
  LLVMTargetMachineOptionsSetCodeModel(options, LLVMCodeModelSmall);
  LLVMTargetMachineOptionsSetCodeGenOptLevel(
      options, tier == QN_TIER_FAST ? LLVMCodeGenLevelNone : LLVMCodeGenLevelDefault);
  *out_machine = LLVMCreateTargetMachineWithOptions(llvm_target, arch->triple, options);
  LLVMDisposeTargetMachineOptions(options);
  if (!*out_machine) {
    return qn_status_make(QN_STATUS_INTERNAL, "LLVM makes no target machine for %s", arch->triple);
  }
  // Instructions that FastISel does not support go through the selection DAG, block by block.
  if (tier == QN_TIER_FAST) LLVMSetTargetMachineFastISel(*out_machine, true);
  return QN_OK;
}

qn_status_t qn__llvm_worker_machine(qn__llvm_worker_t* worker, const qn_target_t* target,
                                    qn_tier_t tier, LLVMTargetMachineRef* out_machine) {
  for (size_t i = 0; i < MACHINE_LIMIT; ++i) {
    const machine_t* slot = &worker->machines[i];
    if (slot->arch == target->arch && slot->features.bits == target->features.bits &&
        slot->tier == tier) {
      *out_machine = slot->machine;
      return QN_OK;
    }
  }
  qn__buffer_t features;
  qn__buffer_init(&features, worker->allocator);
  append_features(target, &features);
  LLVMTargetMachineRef machine = NULL;
  qn_status_t status = qn__buffer_status(&features, "the extensions of a target");
  if (qn_ok(status)) {
    status =
        make_machine(target->arch, features.size ? (const char*)features.data : "", tier, &machine);
  }
  qn__buffer_deinit(&features);
  if (!qn_ok(status)) return status;
  machine_t* slot = &worker->machines[worker->next_machine];
  worker->next_machine = (worker->next_machine + 1) % MACHINE_LIMIT;
  if (slot->arch) LLVMDisposeTargetMachine(slot->machine);
  *slot = (machine_t){target->arch, target->features, tier, machine};
  *out_machine = machine;
  return QN_OK;
}

qn_status_t qn__llvm_worker_linker(qn__llvm_worker_t* worker, qn__llvm_linker_t** out_linker) {
  *out_linker = NULL;
  if (worker->linker && qn__llvm_linker_is_broken(worker->linker)) {
    qn__llvm_linker_destroy(worker->linker);
    worker->linker = NULL;
  }
  if (!worker->linker) {
    // The linker compiles nothing. It takes only the object format and architecture of a machine.
    const qn__target_arch_t* arch = qn__arch_of_host() ? qn__arch_of_host() : qn__arch_at(0);
    LLVMTargetMachineRef machine = NULL;
    QN_TRY(make_machine(arch, "", QN_TIER_FAST, &machine));
    QN_TRY(qn__llvm_linker_create(worker->allocator, machine, &worker->linker));
  }
  *out_linker = worker->linker;
  return QN_OK;
}
