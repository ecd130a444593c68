// SPDX-License-Identifier: Apache-2.0
// devices/attribute.c: see attribute.h.
#include "devices/attribute.h"

#include <stdarg.h>
#include <stdio.h>

qn_status_t qn__answer_int(qn_attribute_value_t* out, int64_t value) {
  out->type = QN_ATTRIBUTE_TYPE_INT;
  out->int_value = value;
  return QN_OK;
}

qn_status_t qn__answer_bool(qn_attribute_value_t* out, bool value) {
  out->type = QN_ATTRIBUTE_TYPE_BOOL;
  out->int_value = value;
  return QN_OK;
}

qn_status_t qn__answer_text(qn_attribute_value_t* out, const char* format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(out->string_value, sizeof out->string_value, format, args);
  va_end(args);
  out->type = QN_ATTRIBUTE_TYPE_STRING;
  return QN_OK;
}

qn_status_t qn__answer_uuid(qn_attribute_value_t* out, const char* prefix, const uint8_t uuid[16]) {
  char text[40];
  size_t at = 0;
  for (size_t i = 0; i < 16; i++) {
    const bool has_dash = i == 4 || i == 6 || i == 8 || i == 10;
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%02x", has_dash ? "-" : "", uuid[i]);
  }
  return qn__answer_text(out, "%s%s", prefix, text);
}
