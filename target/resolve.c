// target/resolve.c: fills in what the written form left open and checks what only the kind knows.
//
// The order of precedence: what the user wrote, the tag, the device of from_device, the default of
// the table. Thread rule: one thread per target being made. Read next: resolve_cpu.c.
#include "target/target.h"

static qn_status_t ask_device(qn_target_t* target) {
  int64_t device = target->from_device.number;
  switch (target->kind->id) {
    case QN__KIND_CPU:
    case QN__KIND_INTERP:
    case QN__KIND_NULL_:
      if (device == 0) return QN_OK;
      return qn_status_make(QN_STATUS_UNAVAILABLE,
                            "from_device: there is no device %" PRId64
                            " of kind '%s', only device 0",
                            device, target->kind->info->name);
    default:
      return qn_status_make(QN_STATUS_UNAVAILABLE,
                            "from_device: this library has no driver for devices of kind '%s'; "
                            "give the options or a tag",
                            target->kind->info->name);
  }
}

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

static qn_status_t check_version(const qn_target_t* target, const char* name) {
  const char* text = qn__target_value(target, name)->text;
  if (is_digit(text[0]) && text[1] == '.' && is_digit(text[2]) && text[3] == '\0') return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "option '%s' takes a version such as 1.3, not '%.64s'", name, text);
}

qn_status_t qn__target_resolve(qn_target_t* target) {
  const qn__kind_t* kind = target->kind;
  if (target->from_device.layer != QN__LAYER_NONE) QN_TRY(ask_device(target));
  for (size_t i = 0; i < kind->info->option_count; ++i) {
    qn__value_t* value = &target->values[i];
    if (value->layer != QN__LAYER_NONE) continue;
    value->layer = QN__LAYER_DEFAULT;
    QN_TRY(qn__value_parse(&target->arena, kind, i, qn__str(kind->options[i].default_text), value));
  }
  switch (kind->id) {
    case QN__KIND_CPU:
      return qn__target_resolve_cpu(target);
    case QN__KIND_CUDA:
      return resolve_cuda(target);
    case QN__KIND_VULKAN:
      QN_TRY(check_version(target, "api_version"));
      return check_version(target, "spirv_version");
    default:
      return QN_OK;
  }
}
