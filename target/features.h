// SPDX-License-Identifier: Apache-2.0
// target/features.h: sets of instruction set extensions, and processor models, per architecture.
//
// Not here: the extensions of this machine (host.h). Pure functions over constant tables.
#ifndef QUERN_TARGET_FEATURES_H_
#define QUERN_TARGET_FEATURES_H_

#include "base/base.h"
#include "base/buffer.h"

enum { QN__FEATURE_LIMIT = 64 };  // features of one architecture

// A set of features of one architecture: bit i is the i-th row of its table.
typedef struct qn__target_features {
  uint64_t bits;
} qn__target_features_t;

typedef enum qn__target_cpuid_register {
  QN__EAX,
  QN__EBX,
  QN__ECX,
  QN__EDX
} qn__target_cpuid_register_t;
typedef enum qn__target_os_state {
  QN__STATE_NONE,
  QN__STATE_YMM,
  QN__STATE_ZMM,
  QN__STATE_TILE
} qn__target_os_state_t;

typedef struct qn__target_feature {
  const char* name;  // LLVM's
  uint32_t leaf;     // of cpuid; aarch64: word of the auxiliary vector
  uint32_t subleaf;
  qn__target_cpuid_register_t reg;
  uint32_t bit;
  qn__target_os_state_t state;
  bool is_baseline;     // every machine of the architecture has it
  const char* implied;  // comma-separated
  const char* doc;
} qn__target_feature_t;

typedef struct qn__target_cpu {
  const char* name;
  const char* base;   // "" for none
  const char* extra;  // comma-separated
  uint32_t preferred_bits;
  uint32_t wide_multiplies;  // of 512 bits that a core begins in a cycle
  bool has_slow_bf16;        // its dot products of bf16 do less in a cycle than those of f32
} qn__target_cpu_t;

typedef struct qn__target_arch {
  const char* name;    // "x86_64"
  const char* alias;   // "amd64"
  const char* triple;  // canonical
  size_t feature_count;
  const qn__target_feature_t* features;  // sorted by name
  size_t cpu_count;
  const qn__target_cpu_t* cpus;
} qn__target_arch_t;

// Returns x86_64 and aarch64; NULL after the last one.
const qn__target_arch_t* qn__arch_at(size_t index);
// Returns the architecture of this build; NULL when no table describes it.
const qn__target_arch_t* qn__arch_of_host(void);
// Finds an architecture by its name or by a triple that starts with it; NULL when there is none.
const qn__target_arch_t* qn__arch_of_triple(qn_str_t triple);

// Returns the index of a feature, or -1.
int qn__feature_find(const qn__target_arch_t* arch, qn_str_t name);
static inline bool qn__features_has_index(qn__target_features_t set, int index) {
  return index >= 0 && (set.bits >> index & 1) != 0;
}
bool qn__features_has(const qn__target_arch_t* arch, qn__target_features_t set, const char* name);
// Adds a feature and all that it implies; removes a feature and all that imply it.
qn__target_features_t qn__features_add(const qn__target_arch_t* arch, qn__target_features_t set,
                                       int index);
qn__target_features_t qn__features_remove(const qn__target_arch_t* arch, qn__target_features_t set,
                                          int index);
// Removes every feature that implies one that is missing.
qn__target_features_t qn__features_consistent(const qn__target_arch_t* arch,
                                              qn__target_features_t set);
qn__target_features_t qn__features_baseline(const qn__target_arch_t* arch);

const qn__target_cpu_t* qn__cpu_find(const qn__target_arch_t* arch, qn_str_t name);
qn__target_features_t qn__cpu_features(const qn__target_arch_t* arch, const qn__target_cpu_t* cpu);
// Returns the bits of the widest vector registers of a set.
uint32_t qn__features_vector_bits(const qn__target_arch_t* arch, qn__target_features_t set);

// Appends `["avx","avx2"]`.
void qn__features_print_json(const qn__target_arch_t* arch, qn__target_features_t set,
                             qn__buffer_t* out);

#endif  // QUERN_TARGET_FEATURES_H_
