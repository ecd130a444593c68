// target/kinds.c: the tables of kinds, options and tags, made from kinds.inc, options.inc and
// tags.inc.
//
// Not here: what the options mean (resolve.c). Thread rule: pure functions over constant tables.
// Read next: parse.c.
#include "target/target.h"

#define BOOL QN_OPTION_BOOL
#define INT QN_OPTION_INT
#define STRING QN_OPTION_STRING
#define LIST QN_OPTION_STRING_LIST
#define IS_ISA_ISA true
#define IS_ISA_TUNING false
#define IS_ISA_REQUEST false
#define AS_INFO(name, type, default_text, minimum, maximum, option_class, doc) \
  {#name, type, default_text, IS_ISA_##option_class, doc},
#define AS_OPTION(name, type, default_text, minimum, maximum, option_class, doc) \
  {#name, type, default_text, minimum, maximum, QN__OPTION_##option_class},

static const qn_option_info_t infos_CPU[] = {
#define QN_CPU_OPTION AS_INFO
#include "target/options.inc"
};
static const qn_option_info_t infos_CUDA[] = {
#define QN_CUDA_OPTION AS_INFO
#include "target/options.inc"
};
static const qn_option_info_t infos_INTERP[] = {
#define QN_INTERP_OPTION AS_INFO
#include "target/options.inc"
};
static const qn_option_info_t infos_NULL_[] = {
#define QN_NULL__OPTION AS_INFO
#include "target/options.inc"
};
static const qn_option_info_t infos_VULKAN[] = {
#define QN_VULKAN_OPTION AS_INFO
#include "target/options.inc"
};

static const qn__option_t options_CPU[] = {
#define QN_CPU_OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__option_t options_CUDA[] = {
#define QN_CUDA_OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__option_t options_INTERP[] = {
#define QN_INTERP_OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__option_t options_NULL_[] = {
#define QN_NULL__OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__option_t options_VULKAN[] = {
#define QN_VULKAN_OPTION AS_OPTION
#include "target/options.inc"
};

static const qn_target_kind_info_t kind_infos[] = {
#define QN_TARGET_KIND(id, name, codegen, device_type, doc) \
  {name, doc, codegen, device_type, QN_COUNT_OF(infos_##id), infos_##id},
#include "target/kinds.inc"
#undef QN_TARGET_KIND
};
static const qn__kind_t kinds[] = {
#define QN_TARGET_KIND(id, name, codegen, device_type, doc) \
  {QN__KIND_##id, &kind_infos[QN__KIND_##id], options_##id},
#include "target/kinds.inc"
#undef QN_TARGET_KIND
};

static const struct {
  const char* name;
  const char* json;
} tags[] = {
#define QN_TARGET_TAG(name, json) {name, json},
#include "target/tags.inc"
#undef QN_TARGET_TAG
};

size_t qn_target_kind_count(void) {
  return QN_COUNT_OF(kind_infos);
}

const qn_target_kind_info_t* qn_target_kind_at(size_t index) {
  return index < QN_COUNT_OF(kind_infos) ? &kind_infos[index] : NULL;
}

bool qn_target_tag_at(size_t index, const char** out_name, const char** out_json) {
  *out_name = NULL;
  *out_json = NULL;
  if (index >= QN_COUNT_OF(tags)) return false;
  *out_name = tags[index].name;
  *out_json = tags[index].json;
  return true;
}

const qn__kind_t* qn__kind_at(size_t index) {
  return index < QN_COUNT_OF(kinds) ? &kinds[index] : NULL;
}

const qn__kind_t* qn__kind_find(qn_str_t name) {
  for (size_t i = 0; i < QN_COUNT_OF(kinds); ++i) {
    if (qn__str_equal(name, qn__str(kinds[i].info->name))) return &kinds[i];
  }
  return NULL;
}

int qn__option_find(const qn__kind_t* kind, qn_str_t name) {
  for (size_t i = 0; i < kind->info->option_count; ++i) {
    if (qn__str_equal(name, qn__str(kind->options[i].name))) return (int)i;
  }
  return -1;
}

const char* qn__tag_find(qn_str_t name) {
  for (size_t i = 0; i < QN_COUNT_OF(tags); ++i) {
    if (qn__str_equal(name, qn__str(tags[i].name))) return tags[i].json;
  }
  return NULL;
}

const char* qn__option_type_text(qn_option_type_t type) {
  switch (type) {
    case QN_OPTION_BOOL:
      return "a boolean";
    case QN_OPTION_INT:
      return "an integer";
    case QN_OPTION_STRING:
      return "a string";
    case QN_OPTION_STRING_LIST:
      return "a list of strings";
  }
  return "nothing";
}

qn__nearest_t qn__nearest_make(qn_str_t wanted) {
  // A third of the letters may differ; names that share less than that are no help.
  size_t limit = wanted.size / 3 + 1;
  return (qn__nearest_t){wanted, limit + 1, NULL};
}

void qn__nearest_offer(qn__nearest_t* nearest, const char* name) {
  if (nearest->wanted.size > 64) return;  // no name is that long, and the distance is quadratic
  size_t distance = qn__edit_distance(nearest->wanted, qn__str(name), nearest->best_distance);
  if (distance < nearest->best_distance) {
    nearest->best_distance = distance;
    nearest->best = name;
  }
}
