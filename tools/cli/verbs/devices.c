// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/devices.c: `quern devices`: every device and all of its attributes.
#include <inttypes.h>
#include <string.h>

#include "quern/device.h"
#include "quern/quern.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

// DLPack's device types are small numbers; unused ones are named "unknown".
enum { DEVICE_TYPE_END = 64 };

static json_t* attribute_json(const qn_attribute_value_t* value) {
  switch (value->type) {
    case QN_ATTRIBUTE_TYPE_BOOL:
      return json_boolean(value->int_value != 0);
    case QN_ATTRIBUTE_TYPE_INT:
      return json_integer(value->int_value);
    case QN_ATTRIBUTE_TYPE_STRING:
      return json_text(value->string_value);
    default:
      return json_null();
  }
}

static const char* attribute_text(const qn_attribute_value_t* value, const char* unit,
                                  char out[320]) {
  char size[32];
  switch (value->type) {
    case QN_ATTRIBUTE_TYPE_BOOL:
      return value->int_value ? "yes" : "no";
    case QN_ATTRIBUTE_TYPE_STRING:
      return value->string_value;
    case QN_ATTRIBUTE_TYPE_INT:
      if (strcmp(unit, "bytes") == 0 && value->int_value >= 1024) {
        (void)snprintf(out, 320, "%" PRId64 " bytes (%s)", value->int_value,
                       format_size((uint64_t)value->int_value, size));
      } else {
        (void)snprintf(out, 320, "%" PRId64 "%s%s", value->int_value, unit[0] ? " " : "", unit);
      }
      return out;
    default:
      return "none";
  }
}

static qn_status_t show_device(const args_t* args, qn_device_t device, json_t* list) {
  char name[64];
  (void)snprintf(name, sizeof name, "%s:%" PRId32, qn_device_type_text(device.type), device.id);
  json_t* attributes = json_object();
  const style_t* style = style_of(stdout);
  if (!args->is_json) print(stdout, "%s%s%s\n", style->bold, name, style->plain);
  qn_attribute_t attribute = QN_ATTRIBUTE_EXIST;
  const char *text = NULL, *unit = NULL, *doc = NULL;
  qn_status_t status = QN_OK;
  for (size_t i = 0; qn_ok(status) && qn_attribute_at(i, &attribute, &text, &unit, &doc); i++) {
    qn_attribute_value_t value = {.type = QN_ATTRIBUTE_TYPE_NONE};
    char buffer[320];
    status = qn_device_attribute(device, attribute, &value);
    json_object_set_new(attributes, text, attribute_json(&value));
    bool is_none = value.type == QN_ATTRIBUTE_TYPE_NONE;
    if (!args->is_json && qn_ok(status)) {
      print(stdout, "  %-28s %s%s%s\n", text, is_none ? style->dim : "",
            attribute_text(&value, unit, buffer), is_none ? style->plain : "");
    }
  }
  json_array_append_new(list, json_record("name:s type:d id:d attributes:o", name, device.type,
                                          device.id, attributes));
  return status;
}

// Shows why a type has no devices.
static void show_absence(const args_t* args, int32_t type, json_t* absent) {
  const char* name = qn_device_type_text(type);
  qn_status_t why = session_device_here((qn_device_t){type, 0});
  json_object_set_new(absent, name, json_text(qn_status_message(why)));
  if (!args->is_json) {
    print(stdout, "%s: ", name);
    print_lines(stdout, qn_status_message(why));
  }
  qn_status_free(why);
}

static int run_devices(const args_t* args) {
  json_t* list = json_array();
  json_t* absent = json_object();
  qn_status_t status = QN_OK;
  bool has_wanted = args->operand_count > 0;
  qn_device_t wanted = {0, 0};
  if (has_wanted) {
    status = qn_device_parse(args->operands[0], &wanted);
    if (qn_ok(status)) status = session_device_here(wanted);
  }
  for (int32_t type = 1; type < DEVICE_TYPE_END && qn_ok(status); type++) {
    int32_t count = qn_device_count(type);
    for (int32_t id = 0; id < count && qn_ok(status); id++) {
      if (has_wanted && (wanted.type != type || wanted.id != id)) continue;
      status = show_device(args, (qn_device_t){type, id}, list);
    }
    bool is_known = strcmp(qn_device_type_text(type), "unknown") != 0;
    if (count == 0 && is_known && !has_wanted) show_absence(args, type, absent);
  }
  if (!qn_ok(status) || !args->is_json) {
    json_decref(list);
    json_decref(absent);
  } else {
    print_json(json_record("devices:o absent:o", list, absent));
  }
  return report_status(args, status);
}

const verb_t verb_devices = {
    .name = "devices",
    .summary = "list devices with all their attributes",
    .operands = "[DEVICE]",
    .max_operands = 1,
    VERB_OPTIONS(OPTION_PLUGIN, OPTION_JSON),
    .help =
        "An attribute is 'none' (null in JSON) where the device cannot answer or the attribute\n"
        "does not apply: quern invents no value. DEVICE is cpu, cpu:0, cuda:1 and so on. A type\n"
        "without a device is listed with the reason.\n",
    .examples =
        "  quern devices\n"
        "  quern devices cpu:0 --json\n",
    .run = run_devices,
};
