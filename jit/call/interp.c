// SPDX-License-Identifier: Apache-2.0
// jit/call/interp.c: makes the interpreter usable like a device: implements the members of a
// device's table that executables use. Loaded code is immutable.
//
// Not here: interpreting (ir/interpret.h), the meaning of warps (docs/ir.md).
#include "jit/codegen/interp.h"
#include "base/alloc.h"
#include "base/reader.h"
#include "devices/cpu/cpu.h"
#include "ir/interpret.h"
#include "jit/call/executable.h"

typedef struct interp {
  uint32_t warp_size;
} interp_t;

static bool accepts(const char* format) {
  return strcmp(format, QN__INTERP_FORMAT) == 0;
}

static qn_status_t load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable) {
  (void)id;
  (void)options;
  *out_executable = NULL;
  interp_t* interp = qn__alloc_zero(qn_allocator_default(), 1, sizeof *interp);
  if (!interp) return qn__out_of_memory("an executable");
  qn__reader_t reader = qn__reader_make((qn_span_t){artifact->metadata, artifact->metadata_size});
  uint32_t warp_size = qn__read_u32(&reader);
  interp->warp_size = reader.has_overrun || warp_size == 0 ? QN__INTERP_WARP_SIZE : warp_size;
  *out_executable = interp;
  return QN_OK;
}

static void unload(int32_t id, void* executable) {
  (void)id;
  qn__free(qn_allocator_default(), executable, sizeof(interp_t));
}

// Interprets one call. The launch's owner is a variant (executable.h), which has the function.
static qn_status_t run(void* self, const qn_launch_t* launch) {
  const interp_t* interp = self;
  const qn__variant_t* variant = launch->owner;
  const qn__ir_func_t* function = variant->ir;
  int64_t symbols[QN__MAX_WORDS];
  for (size_t i = 0; i < function->symbol_count; i++) {
    symbols[i] = (int64_t)launch->words[function->param_count + i];
  }
  qn__ir_node_t node;
  qn__interpret_args_t args = {.params = launch->words,
                               .symbols = symbols,
                               .warp_size = interp->warp_size,
                               .out_node = &node};
  qn_status_t status = qn__interpret(function, &args, qn_allocator_default());
  return qn__place_append(status, variant->module, node, true);
}

static qn_status_t launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  (void)id;
  (void)index;
  return stream ? qn__cpu_enqueue(stream, run, executable, launch) : run(executable, launch);
}

const qn_device_table_t qn__interp_device_table = {
    .abi_version = QN_DEVICE_ABI_VERSION,
    .struct_size = sizeof(qn_device_table_t),
    .type = QN_DEVICE_CPU,
    .name = "interp",
    .accepts = accepts,
    .load = load,
    .unload = unload,
    .launch = launch,
};
