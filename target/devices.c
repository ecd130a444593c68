// SPDX-License-Identifier: Apache-2.0
// target/devices.c: reads a target's values from a device of this machine, and checks whether a
// device has what code needs.
//
// Devices are asked by qn__device_source only, option by option, so that this component knows none
// of them. As in isa.c, text is checked on a load without allocating. Read next:
// ../devices/registry.c.
#include <stdio.h>

#include "target/target.h"

#include "base/argument.h"

static qn_status_t no_devices(const qn_target_t* target, const char* what) {
  return qn_status_make(QN_STATUS_UNAVAILABLE,
                        "%sthis library has no driver for devices of kind '%s'; give the options "
                        "or a tag",
                        what, target->kind->info->name);
}

bool qn__target_kind_has_devices(const qn__target_kind_t* kind) {
  switch (kind->id) {
    case QN__KIND_CPU:
    case QN__KIND_INTERP:
    case QN__KIND_NULL_:
      return false;
    default:
      return &qn__device_source != NULL && kind->info->device_type != QN_DEVICE_CPU;
  }
}

// Returns why a type has no devices; "" when unknown.
static const char* absence(int32_t device_type) {
  const char* why = qn__device_source.absence ? qn__device_source.absence(device_type) : NULL;
  return why ? why : "";
}

// ----------------------------------------------------------------------------------- from_device

static qn_status_t odd_answer(const qn__target_option_t* option, int32_t id, const char* what) {
  return qn_status_make(QN_STATUS_DEVICE_ERROR, "from_device: device %d answers %s to '%s'", id,
                        what, option->name);
}

static qn_status_t take_number(const qn__target_option_t* option, int32_t id, int64_t number,
                               qn__target_value_t* out) {
  bool is_maximum = option->option_class == QN__OPTION_ISA && option->rule == QN__RULE_BY_TYPE;
  // Less than a maximum may always be asked for.
  if (number > option->maximum && (is_maximum || option->option_class == QN__OPTION_TUNING)) {
    number = option->maximum;
  }
  if (number < option->minimum || number > option->maximum) {
    char text[64];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    return odd_answer(option, id, text);
  }
  out->number = number;
  return QN_OK;
}

static qn_status_t take_value(qn_target_t* target, size_t index, int32_t id,
                              const qn_attribute_value_t* answer) {
  const qn__target_option_t* option = &target->kind->options[index];
  qn__target_value_t* value = &target->values[index];
  assert(value->layer == QN__LAYER_NONE);  // a device never overrides the user
  bool is_number = answer->type == QN_ATTRIBUTE_TYPE_BOOL || answer->type == QN_ATTRIBUTE_TYPE_INT;
  bool wants_number = option->type == QN_OPTION_BOOL || option->type == QN_OPTION_INT;
  if (is_number != wants_number) return odd_answer(option, id, "a value of another type");
  *value = (qn__target_value_t){.layer = QN__LAYER_DEVICE};
  if (option->type == QN_OPTION_BOOL) {
    value->number = answer->int_value != 0;
    return QN_OK;
  }
  if (option->type == QN_OPTION_INT) return take_number(option, id, answer->int_value, value);
  return qn__target_value_parse(&target->arena, target->kind, index, qn__str(answer->string_value),
                                value);
}

qn_status_t qn__target_read_device(qn_target_t* target, int32_t id) {
  const qn_target_kind_info_t* info = target->kind->info;
  if (!qn__target_kind_has_devices(target->kind)) {
    if (target->kind->id == QN__KIND_CUDA || target->kind->id == QN__KIND_VULKAN) {
      return no_devices(target, "from_device: ");
    }
    if (id == 0) return QN_OK;
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "from_device: there is no device %d of kind '%s', only device 0", id,
                          info->name);
  }
  int32_t count = qn__device_source.count(info->device_type);
  if (id >= count) {
    const char* why = count == 0 ? absence(info->device_type) : "";
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "from_device: there is no device %d of kind '%s' on this machine, which "
                          "has %d%s%s; give the options or a tag",
                          id, info->name, count, why[0] ? ": " : "", why);
  }
  for (size_t i = 0; i < info->option_count; ++i) {
    const qn__target_option_t* option = &target->kind->options[i];
    if (target->values[i].layer != QN__LAYER_NONE) continue;
    if (option->option_class == QN__OPTION_REQUEST) continue;
    qn_attribute_value_t answer = {.type = QN_ATTRIBUTE_TYPE_NONE};
    QN_TRY(
        qn_status_annotate(qn__device_source.property(info->device_type, id, option->name, &answer),
                           "from_device: option '%s' of device %d", option->name, id));
    if (answer.type != QN_ATTRIBUTE_TYPE_NONE) QN_TRY(take_value(target, i, id, &answer));
  }
  return QN_OK;
}

// -------------------------------------------------------------------- reading what code needs

// One member of the flat object that qn__target_seal writes.
typedef struct member {
  qn_str_t name;
  char kind;      // 's': text, 'n': number, 'b': boolean, 'l': list
  qn_str_t text;  // 's' without quotes, 'l' without brackets
  int64_t number;
} member_t;

static bool read_string(const char** inout_at, qn_str_t* out) {
  const char* at = *inout_at;
  if (*at != '"') return false;
  size_t size = strcspn(at + 1, "\"\\");
  *out = (qn_str_t){at + 1, size};
  if (at[1 + size] != '"') return false;
  *inout_at = at + size + 2;
  return true;
}

static bool read_value(const char** inout_at, member_t* out) {
  const char* at = *inout_at;
  if (*at == '"') {
    out->kind = 's';
    return read_string(inout_at, &out->text);
  }
  if (*at == '[') {
    size_t size = strcspn(at + 1, "]\\");
    out->kind = 'l';
    out->text = (qn_str_t){at + 1, size};
    *inout_at = at + size + 2;
    return at[1 + size] == ']';
  }
  size_t size = strspn(at, "-0123456789abcdefghijklmnopqrstuvwxyz");
  qn_str_t word = {at, size};
  *inout_at = at + size;
  out->kind = 'b';
  out->number = qn__str_equal(word, QN_STR("true"));
  if (out->number || qn__str_equal(word, QN_STR("false"))) return true;
  out->kind = 'n';
  return qn__int_parse(word, &out->number);
}

// Reads the member at `*inout_at`, after '{' or ','. False: this is not the canonical form.
static bool read_member(const char** inout_at, member_t* out, bool* out_is_last) {
  if (!read_string(inout_at, &out->name) || **inout_at != ':') return false;
  ++*inout_at;
  if (!read_value(inout_at, out)) return false;
  char end = *(*inout_at)++;
  *out_is_last = end == '}' && **inout_at == '\0';
  return end == ',' || *out_is_last;
}

// ------------------------------------------------------------------------------------ comparing

static int64_t version_number(qn_str_t text) {
  const char* dot = text.size ? memchr(text.data, '.', text.size) : NULL;
  int64_t major = -1, minor = 0;
  qn_str_t head = {text.data, dot ? (size_t)(dot - text.data) : text.size};
  if (!qn__int_parse(head, &major) || major < 0 || major > 9999) return -1;
  if (!dot) return major * 10000;
  // A third number, as in "1.3.277", is ignored.
  qn_str_t tail = {dot + 1, text.size - head.size - 1};
  const char* second = tail.size ? memchr(tail.data, '.', tail.size) : NULL;
  if (second) tail.size = (size_t)(second - tail.data);
  if (!qn__int_parse(tail, &minor) || minor < 0 || minor > 9999) return -1;
  return major * 10000 + minor;
}

// Parses "sm_90a" into 90 and its suffix.
static int64_t arch_number(qn_str_t text, char* out_suffix) {
  *out_suffix = '\0';
  if (text.size < 5 || memcmp(text.data, "sm_", 3) != 0) return -1;
  qn_str_t digits = {text.data + 3, text.size - 3};
  char last = digits.data[digits.size - 1];
  if (last == 'a' || last == 'f') {
    *out_suffix = last;
    --digits.size;
  }
  int64_t number = -1;
  return qn__int_parse(digits, &number) ? number : -1;
}

static bool is_arch_good(qn_str_t wanted, qn_str_t has) {
  char suffix, of_device;
  int64_t code = arch_number(wanted, &suffix);
  int64_t device = arch_number(has, &of_device);
  if (code < 10 || device < 10) return false;
  if (suffix == 'a') return code == device;
  return code / 10 == device / 10 && code <= device;
}

// True when every item of a list (as `"a","b"`) is among the comma-separated names of the device.
static bool is_list_good(qn_str_t wanted, const char* has) {
  const char* at = wanted.data;
  const char* end = wanted.data + wanted.size;
  while (at < end) {
    qn_str_t item;
    if (!read_string(&at, &item)) return false;
    bool is_there = false;
    for (const char* name = has; *name && !is_there;) {
      size_t size = strcspn(name, ",");
      is_there = qn__str_equal(item, (qn_str_t){name, size});
      name += size + (name[size] == ',');
    }
    if (!is_there) return false;
    if (at < end && *at++ != ',') return false;
  }
  return true;
}

static bool is_good(const qn__target_option_t* option, const member_t* wanted,
                    const qn_attribute_value_t* has) {
  bool is_text = has->type == QN_ATTRIBUTE_TYPE_STRING;
  qn_str_t text = qn__str(has->string_value);
  switch (wanted->kind) {
    case 'b':
      return !wanted->number || (!is_text && has->int_value != 0);
    case 'n':
      if (is_text) return false;
      return option->rule == QN__RULE_BY_TYPE ? wanted->number <= has->int_value
                                              : wanted->number == has->int_value;
    case 'l':
      return is_text && is_list_good(wanted->text, has->string_value);
    default:
      if (!is_text) return false;
      if (option->rule == QN__RULE_ARCH) return is_arch_good(wanted->text, text);
      if (option->rule == QN__RULE_VERSION) {
        int64_t version = version_number(wanted->text);
        return version >= 0 && version <= version_number(text);
      }
      return qn__str_equal(wanted->text, text);
  }
}

static qn_status_t lacks(const char* kind, int32_t id, const member_t* wanted,
                         const qn_attribute_value_t* has) {
  char needs[96], answer[96];
  if (wanted->kind == 'n') {
    (void)snprintf(needs, sizeof needs, "%" PRId64, wanted->number);
  } else if (wanted->kind == 'b') {
    (void)snprintf(needs, sizeof needs, "%s", wanted->number ? "true" : "false");
  } else {
    (void)snprintf(needs, sizeof needs, "%.*s", QN_STR_ARG(qn__excerpt(wanted->text)));
  }
  switch (has->type) {
    case QN_ATTRIBUTE_TYPE_BOOL:
      (void)snprintf(answer, sizeof answer, "has %s", has->int_value ? "true" : "false");
      break;
    case QN_ATTRIBUTE_TYPE_INT:
      (void)snprintf(answer, sizeof answer, "has %" PRId64, has->int_value);
      break;
    case QN_ATTRIBUTE_TYPE_STRING:
      (void)snprintf(answer, sizeof answer, "has %.80s", has->string_value);
      break;
    default:
      (void)snprintf(answer, sizeof answer, "does not say what it has");
  }
  return qn_status_make(QN_STATUS_INCOMPATIBLE, "code needs %.*s %s, device %s:%d %s",
                        QN_STR_ARG(wanted->name), needs, kind, id, answer);
}

// Asks `property`, or the source where it is NULL.
typedef struct asker {
  qn__target_property_fn_t property;
  int32_t device_type;
} asker_t;

static qn_status_t ask(const asker_t* asker, int32_t id, qn_str_t option,
                       qn_attribute_value_t* out_answer) {
  char name[72];
  (void)snprintf(name, sizeof name, "%.*s", QN_STR_ARG(option));
  *out_answer = (qn_attribute_value_t){.type = QN_ATTRIBUTE_TYPE_NONE};
  if (asker->property) return asker->property(id, name, out_answer);
  return qn__device_source.property(asker->device_type, id, name, out_answer);
}

static qn_status_t check_device(const char* isa_json, const char* kind_name, int32_t id,
                                const asker_t* asker) {
  const qn__target_kind_t* kind = qn__target_kind_find(qn__str(kind_name));
  const char* at = isa_json ? isa_json : "";
  bool is_last = false, is_of_kind = false;
  bool is_canonical = kind && *at++ == '{';
  bool is_known_to_kind = true;
  bool has_shuffles = false;  // comes before warp_size, because members are sorted
  while (is_canonical && !is_last) {
    member_t member = {0};
    is_canonical = read_member(&at, &member, &is_last);
    if (!is_canonical) break;
    if (qn__str_equal(member.name, QN_STR("kind"))) {
      is_of_kind = member.kind == 's' && qn__str_equal(member.text, qn__str(kind_name));
      if (is_of_kind) continue;
      return qn_status_make(QN_STATUS_INCOMPATIBLE, "code is for '%.*s', the device is %s:%d",
                            QN_STR_ARG(qn__excerpt(member.text)), kind_name, id);
    }
    int index = qn__target_option_find(kind, member.name);
    if (index < 0 || kind->options[index].option_class != QN__OPTION_ISA) {
      // perhaps of another kind: that follows and gives the better message
      is_known_to_kind = false;
      continue;
    }
    if (qn__str_equal(member.name, QN_STR("supports_subgroup_shuffle"))) {
      has_shuffles = member.number != 0;
    }
    if (kind->options[index].rule == QN__RULE_SUBGROUP && !has_shuffles) continue;
    qn_attribute_value_t answer;
    QN_TRY(ask(asker, id, member.name, &answer));
    bool is_false = member.kind == 'b' && !member.number;
    bool is_known = answer.type != QN_ATTRIBUTE_TYPE_NONE;
    if (is_false || (is_known && is_good(&kind->options[index], &member, &answer))) continue;
    return lacks(kind_name, id, &member, &answer);
  }
  if (is_canonical && is_of_kind && is_known_to_kind) return QN_OK;
  return qn_status_make(QN_STATUS_INCOMPATIBLE, "needs of code cannot be read: '%.200s'",
                        isa_json ? isa_json : "");
}

qn_status_t qn__isa_json_check_device(const char* isa_json, const char* kind, int32_t id,
                                      qn__target_property_fn_t property) {
  asker_t asker = {property, 0};
  return check_device(isa_json, kind, id, &asker);
}

qn_status_t qn_target_check_isa(const char* isa_json, int32_t device_type, int32_t device_id) {
  // Of several kinds for one type takes the one that the text names.
  const qn_target_kind_info_t* info = NULL;
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    const qn_target_kind_info_t* kind = qn_target_kind_at(i);
    if (kind->device_type != device_type) continue;
    char name[64];
    (void)snprintf(name, sizeof name, "\"kind\":\"%s\"", kind->name);
    if (!info || (isa_json && strstr(isa_json, name))) info = kind;
  }
  if (!info) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "no target kind is for devices of type %d",
                          (int)device_type);
  }
  if (!qn__target_kind_has_devices(qn__target_kind_find(qn__str(info->name)))) {
    return qn__isa_json_check(isa_json);
  }
  asker_t asker = {NULL, device_type};
  return check_device(isa_json, info->name, device_id, &asker);
}

qn_status_t qn_target_check_host(const qn_target_t* target) {
  QN_REQUIRE(target);
  const qn_target_kind_info_t* info = target->kind->info;
  bool is_gpu = target->kind->id == QN__KIND_CUDA || target->kind->id == QN__KIND_VULKAN;
  if (!qn__target_kind_has_devices(target->kind)) {
    if (is_gpu) return no_devices(target, "");
    // The generator of a registered kind that runs on the processor checks what it needs.
    return target->kind->id == QN__KIND_COUNT ? QN_OK : qn__isa_json_check(target->isa_json);
  }
  int32_t count = qn__device_source.count(info->device_type);
  const char* why = count == 0 ? absence(info->device_type) : "";
  qn_status_t status = qn_status_make(QN_STATUS_UNAVAILABLE, "no device of kind '%s' is here%s%s",
                                      info->name, why[0] ? ": " : "", why);
  for (int32_t id = 0; !qn_ok(status) && id < count; ++id) {
    qn_status_free(status);
    asker_t asker = {NULL, info->device_type};
    status = check_device(target->isa_json, info->name, id, &asker);
  }
  return status;
}
