// SPDX-License-Identifier: Apache-2.0
// target/target.c: creates and frees targets, writes the canonical form, finds values by name.
//
// The canonical form is JSON without blanks: the options of the kind except requests, "kind" and
// "host", sorted by name. It parses to a target with the same canonical form, and equal targets
// give equal bytes in every process.
#include "target/target.h"

#include <stdio.h>

#include "base/argument.h"
#include "base/buffer.h"

qn_status_t qn_target_parse(const char* text, qn_target_t** out_target) {
  QN_REQUIRE(out_target);
  *out_target = NULL;
  QN_REQUIRE(text);
  return qn__target_parse(qn__str(text), qn_allocator_default(), out_target);
}

void qn_target_retain(qn_target_t* target) {
  if (!target) return;
  atomic_fetch_add_explicit(&target->reference_count, 1, memory_order_relaxed);
}

void qn_target_release(qn_target_t* target) {
  if (!target) return;
  if (atomic_fetch_sub_explicit(&target->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn_target_release(target->host);
  qn__arena_deinit(&target->arena);
  qn__free(target->allocator, target, sizeof *target);
}

const char* qn_target_json(const qn_target_t* target) {
  if (!target) return "";
  return target->json;
}
const char* qn_target_kind(const qn_target_t* target) {
  if (!target) return "";
  return target->kind->info->name;
}
const uint8_t* qn_target_digest(const qn_target_t* target) {
  if (!target) return NULL;
  return target->digest.bytes;
}
const qn_target_t* qn_target_host(const qn_target_t* target) {
  if (!target) return NULL;
  return target->host;
}

qn__target_value_t* qn__target_value(const qn_target_t* target, const char* name) {
  int index = qn__target_option_find(target->kind, qn__str(name));
  return QN_NEVER(index < 0) ? NULL : &target->values[index];
}

// Returns NULL when there is no such option, or one of another type, or a request.
static const qn__target_value_t* lookup(const qn_target_t* target, const char* name,
                                        qn_option_type_t type) {
  int index = name ? qn__target_option_find(target->kind, qn__str(name)) : -1;
  if (index < 0) return NULL;
  const qn__target_option_t* option = &target->kind->options[index];
  if (option->type != type || option->option_class == QN__OPTION_REQUEST) return NULL;
  return &target->values[index];
}

qn__target_brief_t qn__target_brief(const qn_target_t* target) {
  const qn__target_value_t* processor = lookup(target, "mcpu", QN_OPTION_STRING);
  if (!processor) processor = lookup(target, "arch", QN_OPTION_STRING);
  qn__target_brief_t brief;
  (void)snprintf(brief.text, sizeof brief.text, "%.40s%s%.50s", target->kind->info->name,
                 processor ? " " : "", processor ? processor->text : "");
  return brief;
}

bool qn_target_get_int(const qn_target_t* target, const char* name, int64_t* out_value) {
  if (!target || !name || !out_value) return false;
  const qn__target_value_t* value = lookup(target, name, QN_OPTION_INT);
  if (value) *out_value = value->number;
  return value != NULL;
}

bool qn_target_get_bool(const qn_target_t* target, const char* name, bool* out_value) {
  if (!target || !name || !out_value) return false;
  const qn__target_value_t* value = lookup(target, name, QN_OPTION_BOOL);
  if (value) *out_value = value->number != 0;
  return value != NULL;
}

bool qn_target_get_string(const qn_target_t* target, const char* name, const char** out_value) {
  if (!target || !name || !out_value) return false;
  const qn__target_value_t* value = lookup(target, name, QN_OPTION_STRING);
  if (value) *out_value = value->text;
  return value != NULL;
}

uint32_t qn__target_vector_bytes(const qn_target_t* target) {
  int64_t bits = 0;
  return qn_target_get_int(target, "vector_width", &bits) ? (uint32_t)(bits / 8) : 16;
}

// Returns the processor that code is scheduled for, or NULL if it is not known.
static const qn__target_cpu_t* tuned_cpu(const qn_target_t* target) {
  const char* tune;
  if (!target->arch || !qn_target_get_string(target, "tune", &tune)) return NULL;
  return qn__cpu_find(target->arch, qn__str(tune));
}

uint32_t qn__target_wide_multiplies(const qn_target_t* target) {
  const qn__target_cpu_t* cpu = tuned_cpu(target);
  return cpu ? cpu->wide_multiplies : 0;
}

bool qn__target_has_slow_bf16(const qn_target_t* target) {
  const qn__target_cpu_t* cpu = tuned_cpu(target);
  return cpu && cpu->has_slow_bf16;
}

bool qn__target_has_masked_memory(const qn_target_t* target) {
  return target->arch && qn__features_has(target->arch, target->features, "avx512bw") &&
         qn__features_has(target->arch, target->features, "avx512vl");
}

bool qn__target_has_masked_words(const qn_target_t* target) {
  return target->arch && qn__features_has(target->arch, target->features, "avx2");
}

bool qn__target_has_fma(const qn_target_t* target) {
  return target->arch && (strcmp(target->arch->name, "x86_64") != 0 ||
                          qn__features_has(target->arch, target->features, "fma"));
}

const char* qn__target_isa_json(const qn_target_t* target) {
  return target->isa_json;
}

static void print_value(const qn__target_option_t* option, const qn__target_value_t* value,
                        qn__buffer_t* out) {
  switch (option->type) {
    case QN_OPTION_BOOL:
      qn__buffer_cstr(out, value->number ? "true" : "false");
      return;
    case QN_OPTION_INT:
      qn__buffer_format(out, "%" PRId64, value->number);
      return;
    case QN_OPTION_STRING:
      qn__buffer_json_string(out, qn__str(value->text));
      return;
    case QN_OPTION_STRING_LIST:
      qn__buffer_char(out, '[');
      for (size_t i = 0; i < value->item_count; ++i) {
        if (i) qn__buffer_char(out, ',');
        qn__buffer_json_string(out, qn__str(value->items[i]));
      }
      qn__buffer_char(out, ']');
      return;
  }
}

static void print_key(qn__buffer_t* out, const char* name) {
  qn__buffer_char(out, out->size == 0 ? '{' : ',');
  qn__buffer_json_string(out, qn__str(name));
  qn__buffer_char(out, ':');
}

static void print(const qn_target_t* target, bool is_isa_only, qn__buffer_t* out) {
  const qn__target_kind_t* kind = target->kind;
  bool needs_host = target->host && !is_isa_only;
  bool needs_kind = true;
  for (size_t i = 0; i <= kind->info->option_count; ++i) {
    const qn__target_option_t* option = i < kind->info->option_count ? &kind->options[i] : NULL;
    if (needs_host && (!option || strcmp(option->name, "host") > 0)) {
      print_key(out, "host");
      qn__buffer_cstr(out, target->host->json);
      needs_host = false;
    }
    if (needs_kind && (!option || strcmp(option->name, "kind") > 0)) {
      print_key(out, "kind");
      qn__buffer_json_string(out, qn__str(kind->info->name));
      needs_kind = false;
    }
    if (!option || option->option_class == QN__OPTION_REQUEST) continue;
    if (is_isa_only && option->option_class != QN__OPTION_ISA) continue;
    print_key(out, option->name);
    print_value(option, &target->values[i], out);
  }
  qn__buffer_char(out, '}');
}

static qn_status_t keep(qn_target_t* target, bool is_isa_only, const char** out_text) {
  qn__buffer_t buffer;
  qn__buffer_init(&buffer, target->allocator);
  print(target, is_isa_only, &buffer);
  qn_status_t status = qn__buffer_status(&buffer, "the canonical form of a target");
  if (qn_ok(status)) {
    *out_text = qn__arena_cstr(&target->arena, qn__buffer_as_str(&buffer));
    if (!*out_text) status = qn__out_of_memory("the canonical form of a target");
  }
  qn__buffer_deinit(&buffer);
  return status;
}

static qn_hash128_t digest_of(const char* json) {
  return qn__xxh128((qn_span_t){(const uint8_t*)json, strlen(json)}, 0);
}

bool qn__target_check(const qn_target_t* target) {
  for (size_t i = 0; i < target->kind->info->option_count; i++) {
    bool is_request = target->kind->options[i].option_class == QN__OPTION_REQUEST;
    if (QN_NEVER(!is_request && target->values[i].layer == QN__LAYER_NONE)) return false;
  }
  if (target->arch) {
    qn__target_features_t consistent = qn__features_consistent(target->arch, target->features);
    if (QN_NEVER(consistent.bits != target->features.bits)) return false;
  }
  if (QN_NEVER(target->host && target->host->host)) return false;
  if (QN_NEVER(target->json[0] != '{' || target->isa_json[0] != '{')) return false;
  return !QN_NEVER(!qn__hash128_equal(target->digest, digest_of(target->json)));
}

qn_status_t qn__target_seal(qn_target_t* target) {
  QN_TRY(keep(target, false, &target->json));
  QN_TRY(keep(target, true, &target->isa_json));
  target->digest = digest_of(target->json);
  assert(qn__target_check(target));
  return QN_OK;
}
