// jit/interp.c: see interp.h.
#include "jit/interp.h"

#include "ir/interpret.h"
#include "jit/plan.h"

qn_status_t qn__interp_run(const qn__function_t* function, const uint64_t* words) {
  int64_t symbols[QN__MAX_WORDS];
  for (size_t i = 0; i < function->symbol_count; i++) {
    symbols[i] = (int64_t)words[function->param_count + i];
  }
  qn__interpret_args_t args = {
      .params = words, .symbols = symbols, .warp_size = QN__INTERP_WARP_SIZE};
  return qn__interpret(function, &args, qn_allocator_default());
}

int32_t qn__interp_run_queued(void* self, qn__cpu_call_t* call, const uint64_t* words) {
  qn_status_t status = qn__interp_run(self, words);
  if (qn_ok(status)) return 0;
  call->env.fail(&call->env, QN__SITE_STATUS, (int64_t)(intptr_t)status, 0);
  return 1;
}
