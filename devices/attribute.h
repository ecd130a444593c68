// SPDX-License-Identifier: Apache-2.0
// devices/attribute.h: writes the answers of devices to questions about attributes.
//
// A device that has no answer leaves the value as it is, without a type.
#ifndef QUERN_DEVICES_ATTRIBUTE_H_
#define QUERN_DEVICES_ATTRIBUTE_H_

#include "base/base.h"
#include "quern/backend.h"

// Each writes the value and returns ok.
qn_status_t qn__answer_int(qn_attribute_value_t* out, int64_t value);
qn_status_t qn__answer_bool(qn_attribute_value_t* out, bool value);
// Truncates the text to the size of the value.
qn_status_t qn__answer_text(qn_attribute_value_t* out, const char* format, ...) QN_PRINTF(2, 3);
// Writes "c0ffee00-0000-0000-0000-000000000000" after `prefix`.
qn_status_t qn__answer_uuid(qn_attribute_value_t* out, const char* prefix, const uint8_t uuid[16]);

#endif  // QUERN_DEVICES_ATTRIBUTE_H_
