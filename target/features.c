// SPDX-License-Identifier: Apache-2.0
// target/features.c: the tables of extensions and models, and operations on sets.
//
// A set always contains the baseline of its architecture and all that its members imply: adding
// adds what is implied, removing removes what implies.
#include "target/features.h"

#define NONE QN__STATE_NONE
#define YMM QN__STATE_YMM
#define ZMM QN__STATE_ZMM
#define TILE QN__STATE_TILE
#define QN_FEATURE(name, leaf, subleaf, reg, bit, state, is_baseline, implied, doc) \
  {name, leaf, subleaf, QN__##reg, bit, state, is_baseline, implied, doc},
static const qn__target_feature_t x86_features[] = {
#include "target/x86_features.inc"
};
static const qn__target_feature_t arm_features[] = {
#include "target/arm_features.inc"
};
#undef QN_FEATURE

#define QN_CPU(model, parent, beyond, bits, ...) \
  {.name = model,                                \
   .base = parent,                               \
   .extra = beyond,                              \
   .preferred_bits = bits,                       \
   .wide_multiplies = __VA_ARGS__},
static const qn__target_cpu_t x86_cpus[] = {
#include "target/x86_cpus.inc"
};
static const qn__target_cpu_t arm_cpus[] = {
#include "target/arm_cpus.inc"
};
#undef QN_CPU

static_assert(QN_COUNT_OF(x86_features) <= QN__FEATURE_LIMIT, "a set is 64 bits");
static_assert(QN_COUNT_OF(arm_features) <= QN__FEATURE_LIMIT, "a set is 64 bits");

static const qn__target_arch_t arches[] = {
    {"x86_64", "amd64", "x86_64-unknown-linux-gnu", QN_COUNT_OF(x86_features), x86_features,
     QN_COUNT_OF(x86_cpus), x86_cpus},
    {"aarch64", "arm64", "aarch64-unknown-linux-gnu", QN_COUNT_OF(arm_features), arm_features,
     QN_COUNT_OF(arm_cpus), arm_cpus},
};

const qn__target_arch_t* qn__arch_at(size_t index) {
  return index < QN_COUNT_OF(arches) ? &arches[index] : NULL;
}

const qn__target_arch_t* qn__arch_of_host(void) {
#if defined(__x86_64__)
  return &arches[0];
#elif defined(__aarch64__)
  return &arches[1];
#else
  return NULL;
#endif
}

const qn__target_arch_t* qn__arch_of_triple(qn_str_t triple) {
  const char* dash = triple.size ? memchr(triple.data, '-', triple.size) : NULL;
  qn_str_t first = {triple.data, dash ? (size_t)(dash - triple.data) : triple.size};
  for (size_t i = 0; i < QN_COUNT_OF(arches); ++i) {
    if (qn__str_equal(first, qn__str(arches[i].name)) ||
        qn__str_equal(first, qn__str(arches[i].alias))) {
      return &arches[i];
    }
  }
  return NULL;
}

static int compare(qn_str_t a, const char* b) {
  size_t b_size = strlen(b);
  size_t common = a.size < b_size ? a.size : b_size;
  int order = common ? memcmp(a.data, b, common) : 0;
  if (order) return order;
  return a.size < b_size ? -1 : a.size > b_size;
}

int qn__feature_find(const qn__target_arch_t* arch, qn_str_t name) {
  size_t low = 0, high = arch->feature_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = compare(name, arch->features[middle].name);
    if (order == 0) return (int)middle;
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return -1;
}

bool qn__features_has(const qn__target_arch_t* arch, qn__target_features_t set, const char* name) {
  return qn__features_has_index(set, qn__feature_find(arch, qn__str(name)));
}

// Takes the next name from a comma-separated list.
static bool next_name(const char** inout_list, qn_str_t* out_name) {
  const char* list = *inout_list;
  if (*list == '\0') return false;
  size_t size = strcspn(list, ",");
  *out_name = (qn_str_t){list, size};
  *inout_list = list + size + (list[size] == ',');
  return true;
}

static qn__target_features_t direct(const qn__target_arch_t* arch, const char* list) {
  qn__target_features_t set = {0};
  qn_str_t name;
  while (next_name(&list, &name)) {
    int index = qn__feature_find(arch, name);
    if (QN_NEVER(index < 0)) continue;  // a test looks up every name of the tables
    set.bits |= UINT64_C(1) << index;
  }
  return set;
}

qn__target_features_t qn__features_add(const qn__target_arch_t* arch, qn__target_features_t set,
                                       int index) {
  assert(index >= 0 && (size_t)index < arch->feature_count);
  uint64_t bit = UINT64_C(1) << index;
  if (set.bits & bit) return set;
  set.bits |= bit;
  uint64_t implied = direct(arch, arch->features[index].implied).bits;
  for (int i = 0; implied; ++i, implied >>= 1) {
    if (implied & 1) set = qn__features_add(arch, set, i);
  }
  return set;
}

qn__target_features_t qn__features_consistent(const qn__target_arch_t* arch,
                                              qn__target_features_t set) {
  uint64_t before;
  do {
    before = set.bits;
    for (size_t i = 0; i < arch->feature_count; ++i) {
      uint64_t implied = direct(arch, arch->features[i].implied).bits;
      if ((set.bits & implied) != implied) set.bits &= ~(UINT64_C(1) << i);
    }
    assert((set.bits & ~before) == 0);  // so it ends
  } while (set.bits != before);
  return set;
}

qn__target_features_t qn__features_remove(const qn__target_arch_t* arch, qn__target_features_t set,
                                          int index) {
  assert(index >= 0 && !arch->features[index].is_baseline);  // or the baseline would not be in it
  set.bits &= ~(UINT64_C(1) << index);
  return qn__features_consistent(arch, set);
}

qn__target_features_t qn__features_baseline(const qn__target_arch_t* arch) {
  qn__target_features_t set = {0};
  for (size_t i = 0; i < arch->feature_count; ++i) {
    if (arch->features[i].is_baseline) set.bits |= UINT64_C(1) << i;
  }
  return set;
}

const qn__target_cpu_t* qn__cpu_find(const qn__target_arch_t* arch, qn_str_t name) {
  for (size_t i = 0; i < arch->cpu_count; ++i) {
    if (qn__str_equal(name, qn__str(arch->cpus[i].name))) return &arch->cpus[i];
  }
  return NULL;
}

qn__target_features_t qn__cpu_features(const qn__target_arch_t* arch, const qn__target_cpu_t* cpu) {
  qn__target_features_t set = qn__features_baseline(arch);
  while (cpu) {
    const char* extra = cpu->extra;
    qn_str_t name;
    while (next_name(&extra, &name)) {
      int index = qn__feature_find(arch, name);
      if (!QN_NEVER(index < 0)) set = qn__features_add(arch, set, index);
    }
    cpu = cpu->base[0] ? qn__cpu_find(arch, qn__str(cpu->base)) : NULL;
  }
  return set;
}

uint32_t qn__features_vector_bits(const qn__target_arch_t* arch, qn__target_features_t set) {
  // 512 bits need masks for narrow elements, too, or half of the element types would be split.
  if (qn__features_has(arch, set, "avx512bw") && qn__features_has(arch, set, "avx512vl"))
    return 512;
  // AVX alone has 128-bit integers; floats still gain.
  return qn__features_has(arch, set, "avx") ? 256 : 128;
}

void qn__features_print_json(const qn__target_arch_t* arch, qn__target_features_t set,
                             qn__buffer_t* out) {
  qn__buffer_char(out, '[');
  bool is_first = true;
  for (size_t i = 0; i < arch->feature_count; ++i) {
    if (!qn__features_has_index(set, (int)i)) continue;
    if (!is_first) qn__buffer_char(out, ',');
    qn__buffer_json_string(out, qn__str(arch->features[i].name));
    is_first = false;
  }
  qn__buffer_char(out, ']');
}
