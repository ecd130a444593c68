// SPDX-License-Identifier: Apache-2.0
// devices/device.h: the registry of device tables, as the engine sees it. The built-in tables are
// registered on first use.
//
// Read next: devices/cpu/cpu.h.
#ifndef QUERN_DEVICES_DEVICE_H_
#define QUERN_DEVICES_DEVICE_H_

#include "base/base.h"
#include "quern/backend.h"

// Returns the table of a device type; NULL if none is registered.
const qn_device_table_t* qn__device_table(int32_t type);
// Finds the table of a device that exists. Errors: NOT_FOUND.
qn_status_t qn__device_find(qn_device_t device, const qn_device_table_t** out_table);
// Returns INVALID_ARGUMENT if `stream` (may be NULL) belongs to another device.
qn_status_t qn__stream_check(qn_device_t device, const qn_stream_t* stream);
// Returns the backend's stream object of a public handle; NULL for the default stream.
void* qn__stream_inner(qn_stream_t* stream);
// The handle itself, or NULL for the default stream, however it was named.
qn_stream_t* qn__stream_named(qn_stream_t* stream);

// The calling thread's active stream on cpu:0, kept apart from the other devices' because every
// call reads it. NULL is the default stream.
#if defined(__GNUC__)
extern __attribute__((tls_model("initial-exec"))) _Thread_local qn_stream_t* qn__active_cpu_stream;
#endif

#endif  // QUERN_DEVICES_DEVICE_H_
