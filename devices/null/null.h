// SPDX-License-Identifier: Apache-2.0
// devices/null/null.h: the device that does nothing, the template of docs/new-backend.md.
#ifndef QUERN_DEVICES_NULL_NULL_H_
#define QUERN_DEVICES_NULL_NULL_H_

#include "base/base.h"
#include "quern/backend.h"

extern const qn_device_table_t qn__null_device_table;

#endif  // QUERN_DEVICES_NULL_NULL_H_
