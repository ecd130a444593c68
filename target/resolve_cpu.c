// SPDX-License-Identifier: Apache-2.0
// target/resolve_cpu.c: resolves architecture, model, extensions, tuning and vector width of a CPU
// target.
//
// Rules:
// 1. The extensions alone decide which instructions code may use. They come from `features`, else
//    from the model; `mattr` then changes them in order.
// 2. `native` is this machine by its cpuid bits, so it may have fewer extensions than its model's
//    name implies.
// 3. Names (mcpu, tune) only choose schedules. They are in the key and are not checked on load.
// 4. Cache sizes are fixed numbers unless from_device reads this machine's. Otherwise two machines
//    with equal extensions would not share a cache entry.
#include "target/target.h"

static qn_status_t set_text(qn_target_t* target, const char* name, const char* text) {
  qn__target_value_t* value = qn__target_value(target, name);
  value->text = qn__arena_cstr(&target->arena, qn__str(text));
  return value->text ? QN_OK : qn__out_of_memory("a string of a target");
}

// Finds the other architecture with a model of that name, for a hint, and for targets that name
// only the model.
static const qn__target_arch_t* arch_with_model(const char* name) {
  const qn__target_arch_t* arch;
  for (size_t i = 0; (arch = qn__arch_at(i)) != NULL; ++i) {
    if (qn__cpu_find(arch, qn__str(name))) return arch;
  }
  return NULL;
}

static qn_status_t unknown_model(const qn__target_arch_t* arch, const char* option,
                                 const char* name) {
  const qn__target_arch_t* other = arch_with_model(name);
  if (other) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "option '%s': '%.64s' is a processor of %s, but the target is %s", option,
                          name, other->name, arch->name);
  }
  qn__target_nearest_t nearest = qn__nearest_make(qn__str(name));
  for (size_t i = 0; i < arch->cpu_count; ++i) qn__nearest_offer(&nearest, arch->cpus[i].name);
  qn__nearest_offer(&nearest, "native");
  return qn__nearest_status(&nearest, QN_STATUS_INVALID_ARGUMENT,
                            "option '%s': %s has no processor '%.64s'", option, arch->name, name);
}

static qn_status_t resolve_arch(qn_target_t* target, const char* mcpu) {
  const char* triple = qn__target_value(target, "mtriple")->text;
  if (triple[0] == '\0') {
    target->arch = strcmp(mcpu, "native") == 0 ? qn__host_cpu()->arch : arch_with_model(mcpu);
    // Errors about unknown names refer to this machine's table.
    if (!target->arch) target->arch = qn__host_cpu()->arch;
    if (!target->arch) {
      return qn_status_make(QN_STATUS_UNAVAILABLE,
                            "this machine's architecture has no tables; give mtriple and mcpu");
    }
  } else {
    target->arch = qn__arch_of_triple(qn__str(triple));
    if (!target->arch) {
      return qn_status_make(
          QN_STATUS_INVALID_ARGUMENT,
          "option 'mtriple': no architecture '%.64s'; there are x86_64 and aarch64", triple);
    }
    // Images depend on nothing that an operating system's name stands for, except the object
    // format.
    const char* rest = strchr(triple, '-');
    if (rest && !strstr(rest, "linux")) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "option 'mtriple': '%.64s' is not a Linux triple", triple);
    }
  }
  return set_text(target, "mtriple", target->arch->triple);
}

// Returns the model of `option`, with `native` resolved.
static qn_status_t resolve_model(const qn_target_t* target, const char* option,
                                 const qn__target_cpu_t** out_model) {
  const qn__target_value_t* value = qn__target_value(target, option);
  const qn__target_arch_t* arch = target->arch;
  const char* name = value->text;
  if (strcmp(name, "native") == 0) {
    if (arch == qn__host_cpu()->arch) {
      name = qn__host_cpu()->model;
    } else if (value->layer == QN__LAYER_DEFAULT) {
      name = arch->cpus[0].name;
    } else {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "option '%s': native is this machine, which is not %s", option,
                            arch->name);
    }
  }
  *out_model = qn__cpu_find(arch, qn__str(name));
  return *out_model ? QN_OK : unknown_model(arch, option, name);
}

static qn_status_t find_feature(const qn__target_arch_t* arch, const char* option, const char* name,
                                int* out_index) {
  *out_index = qn__feature_find(arch, qn__str(name));
  if (*out_index >= 0) return QN_OK;
  qn__target_nearest_t nearest = qn__nearest_make(qn__str(name));
  for (size_t i = 0; i < arch->feature_count; ++i) {
    qn__nearest_offer(&nearest, arch->features[i].name);
  }
  return qn__nearest_status(&nearest, QN_STATUS_INVALID_ARGUMENT,
                            "option '%s': %s has no extension '%.64s'", option, arch->name, name);
}

static qn_status_t resolve_features(qn_target_t* target, const qn__target_cpu_t* model) {
  const qn__target_arch_t* arch = target->arch;
  const qn__target_value_t* mcpu = qn__target_value(target, "mcpu");
  qn__target_value_t* features = qn__target_value(target, "features");
  qn__target_features_t set;
  if (features->layer != QN__LAYER_DEFAULT) {
    set = qn__features_baseline(arch);
    for (size_t i = 0; i < features->item_count; ++i) {
      int index;
      QN_TRY(find_feature(arch, "features", features->items[i], &index));
      set = qn__features_add(arch, set, index);
    }
  } else if (strcmp(mcpu->text, "native") == 0 && arch == qn__host_cpu()->arch) {
    set = qn__host_features();
  } else {
    set = qn__cpu_features(arch, model);
  }
  const qn__target_value_t* mattr = qn__target_value(target, "mattr");
  for (size_t i = 0; i < mattr->item_count; ++i) {
    const char* item = mattr->items[i];
    if (item[0] != '+' && item[0] != '-') {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "option 'mattr': '%.64s' begins with neither + nor -", item);
    }
    int index;
    QN_TRY(find_feature(arch, "mattr", item + 1, &index));
    if (item[0] == '+') {
      set = qn__features_add(arch, set, index);
    } else if (arch->features[index].is_baseline) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "option 'mattr': '%s' is part of every %s and cannot be taken away",
                            item + 1, arch->name);
    } else {
      set = qn__features_remove(arch, set, index);
    }
  }
  assert((qn__features_baseline(arch).bits & ~set.bits) == 0);
  target->features = set;
  features->items = qn__arena_alloc_array(&target->arena, arch->feature_count, sizeof(char*));
  if (!features->items) return qn__out_of_memory("the extensions of a target");
  features->item_count = 0;
  for (size_t i = 0; i < arch->feature_count; ++i) {
    if (!qn__features_has_index(set, (int)i)) continue;
    features->items[features->item_count++] = arch->features[i].name;
  }
  return QN_OK;
}

static qn_status_t resolve_vector_width(const qn_target_t* target, const qn__target_cpu_t* tune) {
  qn__target_value_t* width = qn__target_value(target, "vector_width");
  if (width->number == 0) {
    uint32_t bits = qn__features_vector_bits(target->arch, target->features);
    width->number = bits < tune->preferred_bits ? bits : tune->preferred_bits;
    return QN_OK;
  }
  // Wider than the registers is legal: one vector becomes several instructions.
  if (width->number == 128 || width->number == 256 || width->number == 512) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "option 'vector_width' takes 128, 256 or 512, not %" PRId64, width->number);
}

static void take_cache(const qn_target_t* target, const char* name, int64_t bytes) {
  qn__target_value_t* value = qn__target_value(target, name);
  if (value->layer != QN__LAYER_DEFAULT || bytes <= 0) return;
  value->layer = QN__LAYER_DEVICE;
  value->number = bytes;
}

qn_status_t qn__target_resolve_cpu(qn_target_t* target) {
  QN_TRY(resolve_arch(target, qn__target_value(target, "mcpu")->text));
  const qn__target_cpu_t* model;
  QN_TRY(resolve_model(target, "mcpu", &model));
  QN_TRY(resolve_features(target, model));
  QN_TRY(set_text(target, "mcpu", model->name));
  const qn__target_cpu_t* tune = model;
  if (qn__target_value(target, "tune")->text[0]) QN_TRY(resolve_model(target, "tune", &tune));
  QN_TRY(set_text(target, "tune", tune->name));
  QN_TRY(resolve_vector_width(target, tune));
  if (target->from_device.layer == QN__LAYER_NONE) return QN_OK;
  if (target->arch != qn__host_cpu()->arch) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "from_device: this machine is not %s; leave out mtriple",
                          target->arch->name);
  }
  qn__target_host_caches_t caches = qn__host_caches();
  take_cache(target, "l1_cache_bytes", caches.l1_bytes);
  take_cache(target, "l2_cache_bytes", caches.l2_bytes);
  return QN_OK;
}
