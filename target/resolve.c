// SPDX-License-Identifier: Apache-2.0
// target/resolve.c: fills in missing values and checks what depends on the kind.
//
// Precedence: the user's value, the tag, the device of from_device, the default of the table.
#include "target/target.h"

static bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

// "sm_80", "sm_90a", "sm_100f"
static qn_status_t resolve_cuda(qn_target_t* target) {
  const char* arch = qn__target_value(target, "arch")->text;
  size_t digits = 0;
  if (strncmp(arch, "sm_", 3) == 0) {
    while (is_digit(arch[3 + digits])) ++digits;
  }
  const char* suffix = arch + (digits ? 3 + digits : 0);
  bool is_good = (digits == 2 || digits == 3) && arch[3] != '0' &&
                 (*suffix == '\0' || strcmp(suffix, "a") == 0 || strcmp(suffix, "f") == 0);
  if (is_good) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "option 'arch' takes a compute capability such as sm_90a, not '%.64s'",
                        arch);
}

static qn_status_t check_index_bits(const qn_target_t* target) {
  int64_t bits = qn__target_value(target, "index_bits")->number;
  if (bits == 0 || bits == 32 || bits == 64) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "option 'index_bits' takes 0, 32 or 64, not %" PRId64, bits);
}

static qn_status_t check_version(const qn_target_t* target, const char* name) {
  const char* text = qn__target_value(target, name)->text;
  if (is_digit(text[0]) && text[1] == '.' && is_digit(text[2]) && text[3] == '\0') return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "option '%s' takes a version such as 1.3, not '%.64s'", name, text);
}

qn_status_t qn__target_resolve(qn_target_t* target) {
  const qn__target_kind_t* kind = target->kind;
  bool has_device = target->from_device.layer != QN__LAYER_NONE;
  // A kind alone, such as "cuda", means the first device of this machine if there is one.
  bool is_bare = !has_device && !target->host && qn__target_kind_has_devices(kind);
  for (size_t i = 0; is_bare && i < kind->info->option_count; ++i) {
    is_bare = target->values[i].layer == QN__LAYER_NONE;
  }
  if (has_device) QN_TRY(qn__target_read_device(target, (int32_t)target->from_device.number));
  if (is_bare && qn__device_source.count(kind->info->device_type) > 0) {
    QN_TRY(qn__target_read_device(target, 0));
  }
  for (size_t i = 0; i < kind->info->option_count; ++i) {
    qn__target_value_t* value = &target->values[i];
    if (value->layer != QN__LAYER_NONE) continue;
    value->layer = QN__LAYER_DEFAULT;
    QN_TRY(qn__target_value_parse(&target->arena, kind, i, qn__str(kind->options[i].default_text),
                                  value));
  }
  switch (kind->id) {
    case QN__KIND_CPU:
      return qn__target_resolve_cpu(target);
    case QN__KIND_CUDA:
      QN_TRY(check_index_bits(target));
      return resolve_cuda(target);
    case QN__KIND_VULKAN:
      QN_TRY(check_index_bits(target));
      QN_TRY(check_version(target, "api_version"));
      return check_version(target, "spirv_version");
    default:
      return QN_OK;
  }
}
