// SPDX-License-Identifier: Apache-2.0
// target/host.h: this machine: usable extensions, processor model, caches.
//
// Extensions come from cpuid bits and from the registers that the operating system saves (xgetbv),
// never from the model's name: a virtual machine may hide extensions that the name implies.
//
// Not here: the tables (features.h).
#ifndef QUERN_TARGET_HOST_H_
#define QUERN_TARGET_HOST_H_

#include "target/features.h"

typedef struct qn__target_host_cpu {
  const qn__target_arch_t* arch;  // NULL: no table describes the architecture
  qn__target_features_t features;
  const char* model;  // a name of the table; for an unknown machine chosen by its extensions
} qn__target_host_cpu_t;

// Detected once, then constant.
const qn__target_host_cpu_t* qn__host_cpu(void);
static inline qn__target_features_t qn__host_features(void) {
  return qn__host_cpu()->features;
}

// Sizes of one core's data caches and of the last level; 0 when unknown.
typedef struct qn__target_host_caches {
  int64_t l1_bytes;
  int64_t l2_bytes;
  int64_t l3_bytes;
} qn__target_host_caches_t;
qn__target_host_caches_t qn__host_caches(void);

// The instructions that x86 detection uses; tests replace them.
typedef struct qn__target_cpuid_source {
  const void* self;
  void (*cpuid)(const void* self, uint32_t leaf, uint32_t subleaf, uint32_t out_registers[4]);
  uint64_t (*xcr0)(const void* self);  // called only if the operating system enabled xgetbv
  // Asks the operating system to let the process use tile registers; called only if it saves them.
  bool (*permits_tiles)(const void* self);
} qn__target_cpuid_source_t;
// Sets out_cpu->arch to x86_64.
void qn__x86_detect(const qn__target_cpuid_source_t* source, qn__target_host_cpu_t* out_cpu);
qn__target_host_caches_t qn__x86_caches(const qn__target_cpuid_source_t* source);

#endif  // QUERN_TARGET_HOST_H_
