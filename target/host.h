// target/host.h: what this machine is: extensions that really work, processor model, caches, cores.
//
// Extensions come from cpuid bits and from what the operating system saves (xgetbv), never from the
// model's name: a virtual machine may mask what the name implies. Not here: the tables
// (features.h). Thread rule: any thread. Read next: host.c.
#ifndef QUERN_TARGET_HOST_H_
#define QUERN_TARGET_HOST_H_

#include "target/features.h"

typedef struct qn__host_cpu {
  const qn__arch_t* arch;  // NULL: an architecture that no table describes
  qn__features_t features;
  const char* model;  // a name of the arch's table; by extensions alone when the machine is unknown
} qn__host_cpu_t;

// Asked once, then constant.
const qn__host_cpu_t* qn__host_cpu(void);
static inline qn__features_t qn__host_features(void) {
  return qn__host_cpu()->features;
}

// Sizes of one core's data caches and of the last level; 0 where the machine does not say.
typedef struct qn__host_caches {
  int64_t l1_bytes;
  int64_t l2_bytes;
  int64_t l3_bytes;
} qn__host_caches_t;
qn__host_caches_t qn__host_caches(void);

// How x86 detection asks; tests put another machine in place.
typedef struct qn__cpuid_source {
  const void* self;
  void (*cpuid)(const void* self, uint32_t leaf, uint32_t subleaf, uint32_t out_registers[4]);
  uint64_t (*xcr0)(const void* self);  // called only when the operating system enabled xgetbv
} qn__cpuid_source_t;
// out_cpu->arch is x86_64.
void qn__x86_detect(const qn__cpuid_source_t* source, qn__host_cpu_t* out_cpu);
qn__host_caches_t qn__x86_caches(const qn__cpuid_source_t* source);

#endif  // QUERN_TARGET_HOST_H_
