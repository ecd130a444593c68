// SPDX-License-Identifier: Apache-2.0
// devices/cpu/executable.c: see executable.h.
//
// Loading checks that the machine has the instructions that the code needs, copies the image and
// records the addresses of its functions. Nothing is relocated. An executable is immutable.
#include "devices/cpu/executable.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "devices/cpu/code_pool.h"
#include "devices/cpu/debug.h"
#include "devices/cpu/pool.h"
#include "devices/cpu/workspace.h"
#include "target/target.h"

#define FORMAT "cpu-image-1"

typedef struct executable {
  size_t size_bytes;  // of this object
  qn__cpu_code_t code;
  qn__cpu_gdb_object_t* gdb;
  size_t function_count;
  qn_cpu_kernel_t entries[];
} executable_t;

// ------------------------------------------------------------- the table that kernels call through

static void* env_allocate(const qn_cpu_env_t* env, int64_t size_bytes) {
  (void)env;
  return size_bytes < 0 ? NULL : qn__cpu_workspace_allocate(NULL, (size_t)size_bytes);
}

static void env_release(const qn_cpu_env_t* env, void* pointer) {
  (void)env;
  qn__cpu_workspace_free(NULL, pointer);
}

// Records the first failure of a call. Other threads may still run the rest of the launch.
static void env_fail(const qn_cpu_env_t* env, uint32_t site, int64_t index, int64_t extent) {
  // The environment is the first member of the call.
  qn__cpu_call_t* call;
  memcpy(&call, &env, sizeof call);
  uint32_t expected = 0;
  if (!atomic_compare_exchange_strong(&call->failure_state, &expected, 1)) return;
  call->failure = (qn_kernel_failure_t){site, index, extent};
  atomic_store(&call->failure_state, 2);
}

const qn_cpu_functions_t qn__cpu_functions = {
    .abi_version = QN_CPU_ABI_VERSION,
    .struct_size = sizeof(qn_cpu_functions_t),
    .parallel = qn__cpu_parallel,
    .allocate = env_allocate,
    .release = env_release,
    .fail = env_fail,
};

// ---------------------------------------------------------------------------------- loading

bool qn__cpu_accepts(const char* format) {
  return strcmp(format, FORMAT) == 0;
}

qn_status_t qn__cpu_load(int32_t id, const qn_artifact_t* artifact,
                         const qn_load_options_t* options, void** out_executable) {
  (void)id;
  *out_executable = NULL;
  QN_TRY(qn__isa_json_check(artifact->isa));
  for (size_t i = 0; i < artifact->function_count; i++) {
    if (artifact->functions[i].code_offset < artifact->payload_size) continue;
    return qn_status_make(QN_STATUS_DATA_LOSS, "function '%s' lies outside of the image",
                          artifact->functions[i].name);
  }
  size_t size_bytes = sizeof(executable_t) + artifact->function_count * sizeof(qn_cpu_kernel_t);
  executable_t* executable = qn__alloc_zero(qn_allocator_default(), 1, size_bytes);
  if (!executable) return qn__out_of_memory("an executable");
  executable->size_bytes = size_bytes;
  executable->function_count = artifact->function_count;
  qn_span_t image = {artifact->payload, artifact->payload_size};
  qn_status_t status = qn__cpu_code_place(image, &executable->code);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), executable, size_bytes);
    return status;
  }
  for (size_t i = 0; i < artifact->function_count; i++) {
    const uint8_t* address = executable->code.address + artifact->functions[i].code_offset;
    memcpy(&executable->entries[i], &address, sizeof address);
  }
  executable->gdb = qn__cpu_announce(artifact, options, (uintptr_t)executable->code.address);
  *out_executable = executable;
  return QN_OK;
}

void qn__cpu_unload(int32_t id, void* self) {
  (void)id;
  executable_t* executable = self;
  qn__gdb_unregister(executable->gdb);
  qn__cpu_code_remove(&executable->code);
  qn__free(qn_allocator_default(), executable, executable->size_bytes);
}

qn_cpu_kernel_t qn__cpu_executable_entry(void* self, uint32_t index) {
  executable_t* executable = self;
  return QN_NEVER(index >= executable->function_count) ? NULL : executable->entries[index];
}

// ---------------------------------------------------------------------------------- launching

// Runs a kernel; `self` points to its entry.
static qn_status_t run_kernel(void* self, const qn_launch_t* launch) {
  qn_cpu_kernel_t* entry = self;
  qn__cpu_call_t call;
  qn__cpu_call_init(&call);
  if ((*entry)(&call.env, launch->words) == 0) return QN_OK;
  return launch->describe(launch->owner, &call.failure);
}

qn_status_t qn__cpu_launch(int32_t id, void* self, uint32_t index, void* stream,
                           const qn_launch_t* launch) {
  (void)id;
  executable_t* executable = self;
  if (QN_NEVER(index >= executable->function_count)) {
    return qn_status_make(QN_STATUS_INTERNAL, "the executable has %zu functions, not one %u",
                          executable->function_count, index);
  }
  qn_cpu_kernel_t* entry = &executable->entries[index];
  return stream ? qn__cpu_enqueue(stream, run_kernel, entry, launch) : run_kernel(entry, launch);
}
