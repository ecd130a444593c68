// SPDX-License-Identifier: Apache-2.0
// target/kinds.c: the tables of kinds, options and tags, from kinds.inc, options.inc and tags.inc,
// and registered kinds.
//
// Kinds are added and never removed, and readers take no lock. Not here: the meaning of the options
// (resolve.c).
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "target/target.h"

#include "base/argument.h"
#include "base/struct_size.h"

#define BOOL QN_OPTION_BOOL
#define INT QN_OPTION_INT
#define STRING QN_OPTION_STRING
#define LIST QN_OPTION_STRING_LIST
#define IS_ISA_ISA true
#define IS_ISA_ISA_ARCH true
#define IS_ISA_ISA_EQUAL true
#define IS_ISA_ISA_SUBGROUP true
#define IS_ISA_ISA_VERSION true
#define IS_ISA_TUNING false
#define IS_ISA_REQUEST false
#define CLASS_ISA QN__OPTION_ISA, QN__RULE_BY_TYPE
#define CLASS_ISA_ARCH QN__OPTION_ISA, QN__RULE_ARCH
#define CLASS_ISA_EQUAL QN__OPTION_ISA, QN__RULE_EQUAL
#define CLASS_ISA_SUBGROUP QN__OPTION_ISA, QN__RULE_SUBGROUP
#define CLASS_ISA_VERSION QN__OPTION_ISA, QN__RULE_VERSION
#define CLASS_TUNING QN__OPTION_TUNING, QN__RULE_BY_TYPE
#define CLASS_REQUEST QN__OPTION_REQUEST, QN__RULE_BY_TYPE
#define AS_INFO(name, type, default_text, minimum, maximum, option_class, doc) \
  {#name, type, default_text, IS_ISA_##option_class, doc, minimum, maximum},
#define AS_OPTION(name, type, default_text, minimum, maximum, option_class, doc) \
  {#name, type, default_text, minimum, maximum, CLASS_##option_class},

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

static const qn__target_option_t options_CPU[] = {
#define QN_CPU_OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__target_option_t options_CUDA[] = {
#define QN_CUDA_OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__target_option_t options_INTERP[] = {
#define QN_INTERP_OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__target_option_t options_NULL_[] = {
#define QN_NULL__OPTION AS_OPTION
#include "target/options.inc"
};
static const qn__target_option_t options_VULKAN[] = {
#define QN_VULKAN_OPTION AS_OPTION
#include "target/options.inc"
};

static const qn_target_kind_info_t kind_infos[] = {
#define QN_TARGET_KIND(id, name, codegen, device_type, doc)             \
  {sizeof(qn_target_kind_info_t), name,      doc, codegen, device_type, \
   QN_COUNT_OF(infos_##id),       infos_##id},
#include "target/kinds.inc"
#undef QN_TARGET_KIND
};
static const qn__target_kind_t kinds[] = {
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

// ------------------------------------------------------------------------------- registered kinds

enum { REGISTERED_LIMIT = 32, OPTION_LIMIT = 256 };

// Registered kinds follow the built-in ones. A kind is complete before the count includes it.
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static qn__target_kind_t registered[REGISTERED_LIMIT];
static _Atomic size_t registered_count;

static bool is_name(const char* text) {
  size_t size = text ? strlen(text) : 0;
  if (size == 0 || size > 64 || strspn(text, "abcdefghijklmnopqrstuvwxyz") == 0) return false;
  return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == size;
}

static qn_status_t wrong_kind(const qn_target_kind_info_t* info, const char* what) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "target kind '%.64s': %s",
                        info->name ? info->name : "", what);
}

static int by_name(const void* a, const void* b) {
  const qn_option_info_t *first = a, *second = b;
  return strcmp(first->name, second->name);
}

static qn_status_t check_options(const qn_target_kind_info_t* info) {
  static const char* const reserved[] = {"kind", "tag", "host", "from_device"};
  for (size_t i = 0; i < info->option_count; ++i) {
    const qn_option_info_t* option = &info->options[i];
    bool is_good = is_name(option->name) && option->default_text && option->doc &&
                   option->type >= QN_OPTION_BOOL && option->type <= QN_OPTION_STRING_LIST &&
                   option->minimum <= option->maximum;
    for (size_t k = 0; is_good && k < QN_COUNT_OF(reserved); ++k) {
      is_good = strcmp(option->name, reserved[k]) != 0;
    }
    if (is_good) continue;
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "target kind '%s': option %zu ('%.64s') needs a name of its own in small "
                          "letters, a type, a default text, a doc and minimum <= maximum",
                          info->name, i, option->name ? option->name : "");
  }
  return QN_OK;
}

// Checks that every default is a valid value of its option.
static qn_status_t check_defaults(const qn__target_kind_t* kind) {
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn_status_t status = QN_OK;
  for (size_t i = 0; qn_ok(status) && i < kind->info->option_count; ++i) {
    qn__target_value_t value = {0};
    status =
        qn__target_value_parse(&arena, kind, i, qn__str(kind->options[i].default_text), &value);
  }
  qn__arena_deinit(&arena);
  return qn_status_annotate(status, "the default");
}

// Copies a table, sorted, into one block that lives as long as the process.
static qn_status_t copy_kind(const qn_target_kind_info_t* info, qn__target_kind_t* out_kind,
                             void** out_block) {
  typedef struct kind_block {
    qn_target_kind_info_t info;
    qn_option_info_t infos[OPTION_LIMIT];
    qn__target_option_t options[OPTION_LIMIT];
  } kind_block_t;
  kind_block_t* block = calloc(1, sizeof *block);
  *out_block = block;
  if (!block) return qn__out_of_memory("a target kind");
  if (info->option_count) {
    memcpy(block->infos, info->options, info->option_count * sizeof *block->infos);
    qsort(block->infos, info->option_count, sizeof *block->infos, by_name);
  }
  for (size_t i = 0; i < info->option_count; ++i) {
    qn_option_info_t* option = &block->infos[i];
    if (option->minimum == 0 && option->maximum == 0) {
      option->minimum = INT64_MIN;
      option->maximum = INT64_MAX;
    }
    block->options[i] = (qn__target_option_t){
        option->name,    option->type,    option->default_text,
        option->minimum, option->maximum, option->is_isa ? QN__OPTION_ISA : QN__OPTION_TUNING,
        QN__RULE_BY_TYPE};
    if (i && strcmp(block->infos[i - 1].name, option->name) == 0) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "target kind '%s': option '%s' is there twice", info->name,
                            option->name);
    }
  }
  block->info = *info;
  block->info.options = block->infos;
  *out_kind = (qn__target_kind_t){QN__KIND_COUNT, &block->info, block->options};
  return check_defaults(out_kind);
}

qn_status_t qn_target_kind_register(const qn_target_kind_info_t* info) {
  QN_REQUIRE(info);
  QN_STRUCT_READ(qn_target_kind_info_t, info, given);
  info = &given;
  if (!is_name(info->name)) return wrong_kind(info, "a name of small letters, digits and _");
  if (!is_name(info->codegen)) return wrong_kind(info, "a code generator's name is needed");
  if (!info->doc) return wrong_kind(info, "a doc is needed");
  if (info->device_type < 0) return wrong_kind(info, "a device type is needed");
  if (info->option_count > OPTION_LIMIT || (info->option_count && !info->options)) {
    return wrong_kind(info, "at most 256 options");
  }
  QN_TRY(check_options(info));
  qn__target_kind_t kind = {0};
  void* block = NULL;
  qn_status_t status = copy_kind(info, &kind, &block);
  (void)pthread_mutex_lock(&registering);
  size_t count = atomic_load_explicit(&registered_count, memory_order_relaxed);
  if (qn_ok(status) && qn__target_kind_find(qn__str(info->name))) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION, "there is a target kind '%s' already",
                            info->name);
  } else if (qn_ok(status) && count == REGISTERED_LIMIT) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "target kind '%s': %d kinds have been registered, no more can be",
                            info->name, REGISTERED_LIMIT);
  }
  if (qn_ok(status)) {
    registered[count] = kind;
    atomic_store_explicit(&registered_count, count + 1, memory_order_release);
    block = NULL;  // owned by the table now
  }
  (void)pthread_mutex_unlock(&registering);
  free(block);
  return status;
}

// ----------------------------------------------------------------------------------------
// questions

size_t qn_target_kind_count(void) {
  return QN_COUNT_OF(kinds) + atomic_load_explicit(&registered_count, memory_order_acquire);
}

const qn_target_kind_info_t* qn_target_kind_at(size_t index) {
  const qn__target_kind_t* kind = qn__target_kind_at(index);
  return kind ? kind->info : NULL;
}

bool qn_target_tag_at(size_t index, const char** out_name, const char** out_json) {
  if (!out_name || !out_json) return false;
  *out_name = NULL;
  *out_json = NULL;
  if (index >= QN_COUNT_OF(tags)) return false;
  *out_name = tags[index].name;
  *out_json = tags[index].json;
  return true;
}

const qn__target_kind_t* qn__target_kind_at(size_t index) {
  if (index < QN_COUNT_OF(kinds)) return &kinds[index];
  index -= QN_COUNT_OF(kinds);
  bool is_there = index < atomic_load_explicit(&registered_count, memory_order_acquire);
  return is_there ? &registered[index] : NULL;
}

const qn__target_kind_t* qn__target_kind_find(qn_str_t name) {
  const qn__target_kind_t* kind;
  for (size_t i = 0; (kind = qn__target_kind_at(i)) != NULL; ++i) {
    if (qn__str_equal(name, qn__str(kind->info->name))) return kind;
  }
  return NULL;
}

int qn__target_option_find(const qn__target_kind_t* kind, qn_str_t name) {
  for (size_t i = 0; i < kind->info->option_count; ++i) {
    if (qn__str_equal(name, qn__str(kind->options[i].name))) return (int)i;
  }
  return -1;
}

const char* qn__target_tag_find(qn_str_t name) {
  for (size_t i = 0; i < QN_COUNT_OF(tags); ++i) {
    if (qn__str_equal(name, qn__str(tags[i].name))) return tags[i].json;
  }
  return NULL;
}

const char* qn__target_option_type_text(qn_option_type_t type) {
  static const char* const texts[] = {[QN_OPTION_BOOL] = "a boolean",
                                      [QN_OPTION_INT] = "an integer",
                                      [QN_OPTION_STRING] = "a string",
                                      [QN_OPTION_STRING_LIST] = "a list of strings"};
  return texts[type];
}

qn__target_nearest_t qn__nearest_make(qn_str_t wanted) {
  // Up to a third of the letters may differ; names that differ more do not help.
  size_t limit = wanted.size / 3 + 1;
  return (qn__target_nearest_t){wanted, limit + 1, NULL};
}

void qn__nearest_offer(qn__target_nearest_t* nearest, const char* name) {
  if (nearest->wanted.size > 64) return;  // longer than any name, and the distance is quadratic
  size_t distance = qn__edit_distance(nearest->wanted, qn__str(name), nearest->best_distance);
  if (distance < nearest->best_distance) {
    nearest->best_distance = distance;
    nearest->best = name;
  }
}

qn_status_t qn__nearest_status(const qn__target_nearest_t* nearest, qn_status_code_t code,
                               const char* format, ...) {
  char message[512];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(message, sizeof message, format, args);
  va_end(args);
  if (!nearest->best) return qn_status_make(code, "%s", message);
  return qn_status_make(code, "%s; did you mean '%s'?", message, nearest->best);
}
