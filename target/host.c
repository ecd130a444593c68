// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // getauxval, syscall
// target/host.c: detects the processor once and keeps the result.
//
// The result is one of two constants that the library computes once (the registry is the other). In
// a virtual machine cpuid traps and costs microseconds, and a program may create many targets.
#include "target/host.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)

static void real_cpuid(const void* self, uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
  (void)self;
  __cpuid_count(leaf, subleaf, out[0], out[1], out[2], out[3]);
}

static uint64_t real_xcr0(const void* self) {
  (void)self;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

// Linux grants the permission to the process for good, unless a thread has a signal stack that is
// too small for the larger registers.
static bool real_permits_tiles(const void* self) {
  (void)self;
#if defined(__linux__) && defined(SYS_arch_prctl)
  enum { request_permission = 0x1023, tile_data = 18 };  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

static const qn__target_cpuid_source_t real_source = {NULL, real_cpuid, real_xcr0,
                                                      real_permits_tiles};

static void detect(qn__target_host_cpu_t* out) {
  qn__x86_detect(&real_source, out);
}

qn__target_host_caches_t qn__host_caches(void) {
  return qn__x86_caches(&real_source);
}

#elif defined(__aarch64__)

static void detect(qn__target_host_cpu_t* out) {
  const qn__target_arch_t* arch = qn__arch_of_host();
  qn__target_features_t set = {0};
  for (size_t i = 0; i < arch->feature_count; ++i) {
    const qn__target_feature_t* info = &arch->features[i];
    if (getauxval(info->leaf) >> info->bit & 1) set.bits |= UINT64_C(1) << i;
  }
  set.bits |= qn__features_baseline(arch).bits;
  *out = (qn__target_host_cpu_t){arch, qn__features_consistent(arch, set), "generic"};
}

qn__target_host_caches_t qn__host_caches(void) {
  return (qn__target_host_caches_t){0, 0, 0};
}

#else

static void detect(qn__target_host_cpu_t* out) {
  *out = (qn__target_host_cpu_t){NULL, {0}, ""};
}

qn__target_host_caches_t qn__host_caches(void) {
  return (qn__target_host_caches_t){0, 0, 0};
}

#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static qn__target_host_cpu_t host;

static void detect_once(void) {
  detect(&host);
}

const qn__target_host_cpu_t* qn__host_cpu(void) {
  (void)pthread_once(&once, detect_once);
  return &host;
}
