// SPDX-License-Identifier: Apache-2.0
// target/host_x86.c: reads extensions, model and caches of an x86-64 processor from cpuid.
//
// Rules:
// 1. An extension counts only if its cpuid bit is set, the operating system saves its registers
//    (XCR0), and everything that it implies counts, too. Tile registers need a permission for the
//    process, which is asked for here: so a target has them exactly if its code may run.
// 2. The model's name follows from family and model numbers and is used for tuning only.
// 3. A machine that no table knows gets the name of the widest level (x86-64-v4 ... x86-64) whose
//    extensions it has.
#include "target/host.h"

enum { XCR0_YMM = 0x6, XCR0_ZMM = 0xe6, XCR0_TILE = 0x60000 };

typedef struct leaf_cache {
  const qn__target_cpuid_source_t* source;
  uint32_t highest, highest_extended;
  struct {
    bool is_known;
    uint32_t leaf, subleaf;
    uint32_t registers[4];
  } slots[8];
} leaf_cache_t;

static void ask(const leaf_cache_t* cache, uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
  memset(out, 0, 4 * sizeof out[0]);
  // Leaves 0 and 0x80000000 are always read: they give the highest leaf.
  uint32_t highest = leaf >= 0x80000000u ? cache->highest_extended : cache->highest;
  // Beyond the highest leaf some processors return the bits of another leaf.
  if (leaf <= highest) cache->source->cpuid(cache->source->self, leaf, subleaf, out);
}

// Reads each leaf once: in a virtual machine cpuid traps, which costs microseconds.
static const uint32_t* read_leaf(leaf_cache_t* cache, uint32_t leaf, uint32_t subleaf) {
  // EAX of subleaf 0 is the highest subleaf.
  bool is_there = subleaf == 0 || read_leaf(cache, leaf, 0)[QN__EAX] >= subleaf;
  size_t i = 0;
  while (cache->slots[i].is_known &&
         (cache->slots[i].leaf != leaf || cache->slots[i].subleaf != subleaf)) {
    ++i;
    if (QN_NEVER(i == QN_COUNT_OF(cache->slots))) return cache->slots[0].registers;
  }
  if (!cache->slots[i].is_known) {
    cache->slots[i].is_known = true;
    cache->slots[i].leaf = leaf;
    cache->slots[i].subleaf = subleaf;
    if (is_there) ask(cache, leaf, subleaf, cache->slots[i].registers);
  }
  return cache->slots[i].registers;
}

static uint32_t read_register(leaf_cache_t* cache, uint32_t leaf, uint32_t subleaf,
                              qn__target_cpuid_register_t reg) {
  return read_leaf(cache, leaf, subleaf)[reg];
}

static leaf_cache_t open_source(const qn__target_cpuid_source_t* source) {
  leaf_cache_t cache = {.source = source, .highest_extended = 0x80000000u};
  cache.highest = read_register(&cache, 0, 0, QN__EAX);
  cache.highest_extended = read_register(&cache, 0x80000000u, 0, QN__EAX);
  return cache;
}

static qn__target_features_t detect_features(leaf_cache_t* cache, const qn__target_arch_t* arch) {
  bool has_xgetbv = (read_register(cache, 1, 0, QN__ECX) >> 27 & 1) != 0;  // OSXSAVE
  uint64_t xcr0 = has_xgetbv ? cache->source->xcr0(cache->source->self) : 0;
  qn__target_features_t set = {0};
  for (size_t i = 0; i < arch->feature_count; ++i) {
    const qn__target_feature_t* info = &arch->features[i];
    uint64_t needed = info->state == QN__STATE_TILE  ? XCR0_TILE
                      : info->state == QN__STATE_ZMM ? XCR0_ZMM
                      : info->state == QN__STATE_YMM ? XCR0_YMM
                                                     : 0;
    if ((xcr0 & needed) != needed) continue;
    if (read_register(cache, info->leaf, info->subleaf, info->reg) >> info->bit & 1) {
      set.bits |= UINT64_C(1) << i;
    }
  }
  int tile = qn__feature_find(arch, QN_STR("amx-tile"));
  if (qn__features_has_index(set, tile) && !cache->source->permits_tiles(cache->source->self)) {
    set = qn__features_remove(arch, set, tile);
  }
  set.bits |= qn__features_baseline(arch).bits;
  return qn__features_consistent(arch, set);
}

// Inclusive ranges of model numbers.
typedef struct model_range {
  uint32_t family, first, last;
  const char* name;
} model_range_t;

static const model_range_t amd_models[] = {
    {0x16, 0x00, 0xff, "btver2"}, {0x17, 0x00, 0x2f, "znver1"}, {0x17, 0x30, 0xff, "znver2"},
    {0x19, 0x00, 0x0f, "znver3"}, {0x19, 0x10, 0x1f, "znver4"}, {0x19, 0x20, 0x5f, "znver3"},
    {0x19, 0x60, 0xaf, "znver4"}, {0x1a, 0x00, 0xff, "znver5"},
};
static const model_range_t intel_models[] = {
    {6, 0x1a, 0x1a, "nehalem"},        {6, 0x1e, 0x1f, "nehalem"},
    {6, 0x25, 0x25, "westmere"},       {6, 0x2a, 0x2a, "sandybridge"},
    {6, 0x2c, 0x2c, "westmere"},       {6, 0x2d, 0x2d, "sandybridge"},
    {6, 0x2e, 0x2e, "nehalem"},        {6, 0x2f, 0x2f, "westmere"},
    {6, 0x37, 0x37, "silvermont"},     {6, 0x3a, 0x3a, "ivybridge"},
    {6, 0x3c, 0x3c, "haswell"},        {6, 0x3d, 0x3d, "broadwell"},
    {6, 0x3e, 0x3e, "ivybridge"},      {6, 0x3f, 0x3f, "haswell"},
    {6, 0x45, 0x46, "haswell"},        {6, 0x47, 0x47, "broadwell"},
    {6, 0x4d, 0x4d, "silvermont"},     {6, 0x4e, 0x4e, "skylake"},
    {6, 0x4f, 0x4f, "broadwell"},      {6, 0x55, 0x55, "skylake-avx512"},
    {6, 0x56, 0x56, "broadwell"},      {6, 0x5c, 0x5c, "goldmont"},
    {6, 0x5e, 0x5e, "skylake"},        {6, 0x5f, 0x5f, "goldmont"},
    {6, 0x6a, 0x6a, "icelake-server"}, {6, 0x6c, 0x6c, "icelake-server"},
    {6, 0x7d, 0x7e, "icelake-client"}, {6, 0x86, 0x86, "tremont"},
    {6, 0x8c, 0x8d, "tigerlake"},      {6, 0x8e, 0x8e, "skylake"},
    {6, 0x8f, 0x8f, "sapphirerapids"}, {6, 0x97, 0x97, "alderlake"},
    {6, 0x9a, 0x9a, "alderlake"},      {6, 0x9e, 0x9e, "skylake"},
    {6, 0xa5, 0xa6, "skylake"},        {6, 0xa7, 0xa7, "rocketlake"},
    {6, 0xaa, 0xaa, "meteorlake"},     {6, 0xac, 0xac, "meteorlake"},
    {6, 0xad, 0xae, "graniterapids"},  {6, 0xaf, 0xaf, "sierraforest"},
    {6, 0xb7, 0xb7, "raptorlake"},     {6, 0xba, 0xba, "raptorlake"},
    {6, 0xbd, 0xbd, "lunarlake"},      {6, 0xbe, 0xbe, "gracemont"},
    {6, 0xbf, 0xbf, "raptorlake"},     {6, 0xc5, 0xc6, "arrowlake"},
    {6, 0xcf, 0xcf, "emeraldrapids"},
};

static const char* find_model(const model_range_t* ranges, size_t count, uint32_t family,
                              uint32_t model) {
  for (size_t i = 0; i < count; ++i) {
    if (ranges[i].family == family && ranges[i].first <= model && model <= ranges[i].last) {
      return ranges[i].name;
    }
  }
  return NULL;
}

static const char* level_of(const qn__target_arch_t* arch, qn__target_features_t set) {
  static const char* const levels[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};
  for (size_t i = 0; i < QN_COUNT_OF(levels); ++i) {
    uint64_t needed = qn__cpu_features(arch, qn__cpu_find(arch, qn__str(levels[i]))).bits;
    if ((set.bits & needed) == needed) return levels[i];
  }
  return "x86-64";
}

static const char* detect_model(leaf_cache_t* cache, const qn__target_arch_t* arch,
                                qn__target_features_t set) {
  const uint32_t* vendor = read_leaf(cache, 0, 0);
  uint32_t signature = read_register(cache, 1, 0, QN__EAX);
  uint32_t family = signature >> 8 & 0xf;
  uint32_t model = signature >> 4 & 0xf;
  if (family == 0xf || family == 6) model |= (signature >> 16 & 0xf) << 4;
  if (family == 0xf) family += signature >> 20 & 0xff;
  char text[12];  // EBX, EDX, ECX
  memcpy(text, &vendor[1], 4);
  memcpy(text + 4, &vendor[3], 4);
  memcpy(text + 8, &vendor[2], 4);
  const char* name = NULL;
  if (memcmp(text, "AuthenticAMD", 12) == 0) {
    name = find_model(amd_models, QN_COUNT_OF(amd_models), family, model);
  } else if (memcmp(text, "GenuineIntel", 12) == 0) {
    name = find_model(intel_models, QN_COUNT_OF(intel_models), family, model);
    // One model number stands for three products, which differ by their extensions.
    if (name && strcmp(name, "skylake-avx512") == 0) {
      if (qn__features_has(arch, set, "avx512bf16")) {
        name = "cooperlake";
      } else if (qn__features_has(arch, set, "avx512vnni")) {
        name = "cascadelake";
      }
    }
  }
  return name ? name : level_of(arch, set);
}

void qn__x86_detect(const qn__target_cpuid_source_t* source, qn__target_host_cpu_t* out_cpu) {
  leaf_cache_t cache = open_source(source);
  const qn__target_arch_t* arch = qn__arch_of_triple(QN_STR("x86_64"));
  qn__target_features_t set = detect_features(&cache, arch);
  *out_cpu = (qn__target_host_cpu_t){arch, set, detect_model(&cache, arch, set)};
}

qn__target_host_caches_t qn__x86_caches(const qn__target_cpuid_source_t* source) {
  leaf_cache_t cache = open_source(source);
  qn__target_host_caches_t caches = {0, 0, 0};
  // Intel and AMD describe caches in one format, in different leaves; AMD's needs its topology bit.
  bool is_extended = (read_register(&cache, 0x80000001u, 0, QN__ECX) >> 22 & 1) != 0;
  uint32_t leaf = is_extended ? 0x8000001du : 4;
  for (uint32_t i = 0; i < 16; ++i) {
    uint32_t r[4];
    ask(&cache, leaf, i, r);
    uint32_t type = r[0] & 0x1f;
    if (type == 0) break;
    if (type == 2) continue;  // instructions
    int64_t line = (int64_t)(r[1] & 0xfff) + 1;
    int64_t partitions = (int64_t)(r[1] >> 12 & 0x3ff) + 1;
    int64_t ways = (int64_t)(r[1] >> 22) + 1;
    int64_t size = line * partitions * ways * ((int64_t)r[2] + 1);
    uint32_t level = r[0] >> 5 & 7;
    if (level == 1) caches.l1_bytes = size;
    if (level == 2) caches.l2_bytes = size;
    if (level == 3) caches.l3_bytes = size;
  }
  return caches;
}
