// SPDX-License-Identifier: Apache-2.0
// jit/call/executable.c: loads artifacts and counts references. See executable.h.
#include "jit/call/executable.h"

#include "base/alloc.h"
#include "jit/identity/artifact_make.h"

static qn_status_t load(const qn_artifact_t* artifact, const qn_load_options_t* options,
                        qn_executable_t* executable) {
  // The artifact is released before them.
  executable->functions = qn__artifact_copy_functions(artifact->functions, artifact->function_count,
                                                      &executable->arena);
  executable->function_count = artifact->function_count;
  if (!executable->functions) return qn__out_of_memory("an executable");
  const qn_device_table_t* const tables[] = {qn__device_table(executable->device.type),
                                             &qn__interp_device_table};
  for (size_t i = 0; i < QN_COUNT_OF(tables); i++) {
    const qn_device_table_t* table = tables[i];
    bool is_accepted = table && table->type == executable->device.type && table->accepts &&
                       table->accepts(artifact->format);
    if (!is_accepted) continue;
    executable->device_table = table;
    return table->load(executable->device.id, artifact, options, &executable->inner);
  }
  return qn_status_make(QN_STATUS_UNSUPPORTED, "device '%s' does not load code of format '%s'",
                        qn_device_type_text(executable->device.type), artifact->format);
}

qn_status_t qn__executable_load(const qn_artifact_t* artifact, qn_device_t device,
                                const qn_module_t* module, qn_hash128_t key,
                                const qn_load_options_t* options, qn_allocator_t allocator,
                                qn_executable_t** out_executable) {
  *out_executable = NULL;
  if (!qn__device_table(device.type)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "there is no device of type '%s' in this process",
                          qn_device_type_text(device.type));
  }
  // The stripes of the count follow the object in memory.
  const size_t stripes_offset = (sizeof(qn_executable_t) + 15) / 16 * 16;
  const size_t object_bytes = stripes_offset + qn__refcount_bytes();
  uint8_t* memory = qn__alloc_zero(allocator, 1, object_bytes);
  if (!memory) return qn__out_of_memory("an executable");
  qn_executable_t* executable = (qn_executable_t*)(void*)memory;
  executable->object_bytes = object_bytes;
  qn__refcount_init(&executable->references, memory + stripes_offset);
  executable->allocator = allocator;
  qn__arena_init(&executable->arena, allocator);
  executable->device = device;
  executable->module_digest = module->digest;
  executable->module_second_digest = module->second_digest;
  executable->key = qn__hash128_key(key);
  qn_status_t status = load(artifact, options, executable);
  if (!qn_ok(status)) {
    qn_executable_release(executable);
    return status;
  }
  // No overflow: all parts of the sum are in memory.
  executable->size_bytes = object_bytes + executable->arena.total_bytes + artifact->payload_size;
  *out_executable = executable;
  return QN_OK;
}

void qn_executable_retain(qn_executable_t* executable) {
  if (!executable) return;
  qn__refcount_retain(&executable->references, qn__stripe());
}

void qn_executable_release(qn_executable_t* executable) {
  if (!executable || !qn__refcount_release(&executable->references, qn__stripe())) return;
  if (executable->inner) {
    executable->device_table->unload(executable->device.id, executable->inner);
  }
  qn__arena_deinit(&executable->arena);
  qn__free(executable->allocator, executable, executable->object_bytes);
}
