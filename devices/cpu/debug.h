// devices/cpu/debug.h: telling perf and gdb where kernels are.
//
// Thread rule: any thread. Read next: announce.c, perf.c, gdb.c.
#ifndef QUERN_DEVICES_CPU_DEBUG_H_
#define QUERN_DEVICES_CPU_DEBUG_H_

#include "base/base.h"
#include "quern/backend.h"

// One kernel in executable memory.
typedef struct qn__symbol {
  const char* name;
  uintptr_t address;
  size_t size_bytes;
} qn__symbol_t;

// Appends to /tmp/perf-PID.map, which `perf report` reads. Trouble is logged, never an error.
void qn__perf_map_add(const qn__symbol_t* symbols, size_t count);

typedef struct qn__gdb_object qn__gdb_object_t;
// Registers the kernels with a debugger. NULL when out of memory.
qn__gdb_object_t* qn__gdb_register(const qn__symbol_t* symbols, size_t count);
// NULL is fine.
void qn__gdb_unregister(qn__gdb_object_t* object);

// Does both as the options ask, for an image that was placed at `base`: the symbols of its table
// (backend.h), or its entries when it has none. Gives what must be unregistered, or NULL.
qn__gdb_object_t* qn__announce(const qn_artifact_t* artifact, const qn_load_options_t* options,
                               uintptr_t base);

#endif  // QUERN_DEVICES_CPU_DEBUG_H_
