// SPDX-License-Identifier: Apache-2.0
// conformance/attributes.c: the attributes of a device.
#include <stdio.h>
#include <string.h>

#include "conformance/suite.h"
#include "quern/device.h"
#include "quern/target.h"

static qn_status_t ask(const conf_t* c, qn_attribute_t attribute, qn_attribute_value_t* out) {
  memset(out, 0, sizeof *out);
  return qn_device_attribute(c->device, attribute, out);
}

static void exist(conf_t* c) {
  qn_attribute_value_t value;
  CONF_TRY(c, ask(c, QN_ATTRIBUTE_EXIST, &value));
  CONF_CHECK(c, value.type == QN_ATTRIBUTE_TYPE_BOOL && value.int_value == 1, "it does not exist");
  CONF_CHECK(c, c->device.id < qn_device_count(c->device.type), "the count does not reach it");
  // This is the only attribute of a device that does not exist.
  qn_device_t none = {c->device.type, qn_device_count(c->device.type) + 7};
  CONF_TRY(c, qn_device_attribute(none, QN_ATTRIBUTE_EXIST, &value));
  CONF_CHECK(c, value.int_value == 0, "device %d is there", (int)none.id);
  if (!conf_expect(c, qn_device_attribute(none, QN_ATTRIBUTE_WARP_SIZE, &value),
                   QN_STATUS_NOT_FOUND, NULL)) {
    return;
  }
  none.id = -1;
  CONF_TRY(c, qn_device_attribute(none, QN_ATTRIBUTE_EXIST, &value));
  CONF_CHECK(c, value.int_value == 0, "device -1 is there");
}

// Checks that every answer has the type of the table, or none, and that it stays the same, except
// for attributes that change by nature.
static void every_attribute(conf_t* c) {
  static const qn_attribute_type_t types[] = {
#define BOOL QN_ATTRIBUTE_TYPE_BOOL
#define INT QN_ATTRIBUTE_TYPE_INT
#define STRING QN_ATTRIBUTE_TYPE_STRING
#define QN_ATTRIBUTE(name, value, text, type, unit, doc) type,
#include "quern/attributes.inc"
#undef QN_ATTRIBUTE
#undef BOOL
#undef INT
#undef STRING
  };
  qn_attribute_t attribute;
  const char *text, *unit, *doc;
  for (size_t i = 0; qn_attribute_at(i, &attribute, &text, &unit, &doc); i++) {
    qn_attribute_value_t value, again;
    CONF_TRY(c, ask(c, attribute, &value));
    CONF_TRY(c, ask(c, attribute, &again));
    if (value.type == QN_ATTRIBUTE_TYPE_NONE) continue;
    CONF_CHECK(c, value.type == types[i], "%s: answer of type %d, the table says %d", text,
               (int)value.type, (int)types[i]);
    bool is_terminated = memchr(value.string_value, 0, sizeof value.string_value) != NULL;
    CONF_CHECK(c, is_terminated, "%s: the text is not terminated", text);
    CONF_CHECK(c, value.type != QN_ATTRIBUTE_TYPE_INT || value.int_value >= 0, "%s: %lld", text,
               (long long)value.int_value);
    bool varies = attribute == QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY ||
                  attribute == QN_ATTRIBUTE_MAX_CLOCK_RATE;
    CONF_CHECK(c, varies || memcmp(&value, &again, sizeof value) == 0, "%s: two answers", text);
  }
}

static void no_attribute(conf_t* c) {
  qn_attribute_value_t value;
  if (!conf_expect(c, ask(c, (qn_attribute_t)9999, &value), QN_STATUS_INVALID_ARGUMENT, "9999")) {
    return;
  }
  conf_expect(c, ask(c, (qn_attribute_t)-1, &value), QN_STATUS_INVALID_ARGUMENT, NULL);
}

static void available_memory(conf_t* c) {
  qn_attribute_value_t total, available;
  CONF_TRY(c, ask(c, QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY, &total));
  CONF_TRY(c, ask(c, QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY, &available));
  if (total.type == QN_ATTRIBUTE_TYPE_NONE || available.type == QN_ATTRIBUTE_TYPE_NONE) return;
  CONF_CHECK(c, total.int_value > 0, "no memory at all");
  CONF_CHECK(c, available.int_value <= total.int_value, "%lld bytes available of %lld",
             (long long)available.int_value, (long long)total.int_value);
}

// Checks that a target made from a device has the properties of the device.
static void target_fits(conf_t* c) {
  CONF_TRY(c, qn_target_check_host(c->target));
  qn_attribute_value_t warp;
  CONF_TRY(c, ask(c, QN_ATTRIBUTE_WARP_SIZE, &warp));
  int64_t of_target = 0;
  if (c->options.target || warp.type == QN_ATTRIBUTE_TYPE_NONE) return;
  if (!qn_target_get_int(c->target, "warp_size", &of_target)) return;
  CONF_CHECK(c, of_target == warp.int_value, "warps of %lld threads, the target says %lld",
             (long long)warp.int_value, (long long)of_target);
}

static void texts(conf_t* c) {
  char text[64];
  const char* type = qn_device_type_text(c->device.type);
  qn_device_t device;
  CONF_CHECK(c, strlen(type) < 32, "the type's name is too long");
  (void)snprintf(text, sizeof text, "%s:%d", type, (int)c->device.id);
  CONF_TRY(c, qn_device_parse(text, &device));
  CONF_CHECK(c, device.type == c->device.type && device.id == c->device.id, "'%s' is another one",
             text);
}

static const conf_case_t cases[] = {
    {"exist", exist},
    {"every attribute has its type", every_attribute},
    {"values that are no attribute", no_attribute},
    {"available memory", available_memory},
    {"target of the device", target_fits},
    {"name", texts},
};
const conf_area_t conf_area_attributes = {"attributes", cases, CONF_COUNT_OF(cases), NULL};
