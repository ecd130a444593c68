// SPDX-License-Identifier: Apache-2.0
// devices/cpu/executable.h: loads position-independent images and runs their functions.
//
// The four functions are entries of the device table (backend.h).
#ifndef QUERN_DEVICES_CPU_EXECUTABLE_H_
#define QUERN_DEVICES_CPU_EXECUTABLE_H_

#include "devices/cpu/cpu.h"

bool qn__cpu_accepts(const char* format);
qn_status_t qn__cpu_load(int32_t id, const qn_artifact_t* artifact,
                         const qn_load_options_t* options, void** out_executable);
void qn__cpu_unload(int32_t id, void* executable);
qn_status_t qn__cpu_launch(int32_t id, void* executable, uint32_t index, void* stream,
                           const qn_launch_t* launch);

#endif  // QUERN_DEVICES_CPU_EXECUTABLE_H_
