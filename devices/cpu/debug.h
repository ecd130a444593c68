// SPDX-License-Identifier: Apache-2.0
// devices/cpu/debug.h: tells perf and gdb where kernels are.
#ifndef QUERN_DEVICES_CPU_DEBUG_H_
#define QUERN_DEVICES_CPU_DEBUG_H_

#include "base/base.h"
#include "quern/backend.h"

// One kernel in executable memory.
typedef struct qn__cpu_symbol {
  const char* name;
  uintptr_t address;
  size_t size_bytes;
} qn__cpu_symbol_t;

// Appends to /tmp/perf-PID.map, which `perf report` reads. Logs failures, which are no errors.
void qn__perf_map_add(const qn__cpu_symbol_t* symbols, size_t count);

typedef struct qn__cpu_gdb_object qn__cpu_gdb_object_t;
// Registers the kernels with a debugger. Returns NULL when out of memory.
qn__cpu_gdb_object_t* qn__gdb_register(const qn__cpu_symbol_t* symbols, size_t count);
// Ends the registration. `object` may be NULL.
void qn__gdb_unregister(qn__cpu_gdb_object_t* object);

// Does both as the options ask, for an image at address `base`: for the symbols of its table
// (backend.h), or for its functions if it has none. Returns the object to unregister, or NULL.
qn__cpu_gdb_object_t* qn__cpu_announce(const qn_artifact_t* artifact,
                                       const qn_load_options_t* options, uintptr_t base);

#endif  // QUERN_DEVICES_CPU_DEBUG_H_
