// jit/codegen/interp.c: see interp.h.
#include "jit/codegen/interp.h"

#include "ir/interpret.h"
#include "jit/call/executable.h"
#include "jit/call/plan.h"

uint32_t qn__interp_warp_size(const qn_artifact_t* artifact) {
  const uint8_t* bytes = artifact->metadata;
  if (artifact->metadata_size != 4) return QN__INTERP_WARP_SIZE;
  uint32_t size = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                  (uint32_t)bytes[3] << 24;
  return size ? size : QN__INTERP_WARP_SIZE;
}

qn_status_t qn__interp_run(const qn__ir_func_t* function, uint32_t warp_size,
                           const uint64_t* words) {
  int64_t symbols[QN__MAX_WORDS];
  for (size_t i = 0; i < function->symbol_count; i++) {
    symbols[i] = (int64_t)words[function->param_count + i];
  }
  qn__interpret_args_t args = {.params = words, .symbols = symbols, .warp_size = warp_size};
  return qn__interpret(function, &args, qn_allocator_default());
}

int32_t qn__interp_run_queued(void* self, qn__cpu_call_t* call, const uint64_t* words) {
  const qn__variant_t* variant = self;
  qn_status_t status = qn__interp_run(variant->ir, variant->executable->warp_size, words);
  if (qn_ok(status)) return 0;
  call->env.fail(&call->env, QN__SITE_STATUS, (int64_t)(intptr_t)status, 0);
  return 1;
}
