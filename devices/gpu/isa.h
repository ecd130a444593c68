// SPDX-License-Identifier: Apache-2.0
// devices/gpu/isa.h: what an artifact requires of a device, for devices that load it.
#ifndef QUERN_DEVICES_GPU_ISA_H_
#define QUERN_DEVICES_GPU_ISA_H_

#include "quern/backend.h"

// Checks that the device has what an artifact's `isa` requires. Compares each option of its kind
// with the answer of `property` (target_property of the device's table). A required bool must hold;
// max_* and api_version must not exceed the device's; warp_size must be equal; arch must be
// compatible as for cubins (same major, at least the minor; exactly with suffix a; the family with
// f). Errors: INCOMPATIBLE names the first missing option.
qn_status_t qn__gpu_isa_check(const char* isa_json, int32_t id,
                              qn_status_t (*property)(int32_t id, const char* name,
                                                      qn_attribute_value_t* out_value));

#endif  // QUERN_DEVICES_GPU_ISA_H_
