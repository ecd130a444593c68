// SPDX-License-Identifier: Apache-2.0
// devices/gpu/run.c: the host's part of a call: evaluates, allocates workspace, launches, loops,
// tests.
//
// Plans are decoded and checked (plan.c): indices are in range, and values are set before they are
// read. So failures come only from the program (asserts, extents), from the device, and from calls
// for which no kernel is valid. Workspace is freed in stream order: at the end of the call, or
// before its slot is reused.
//
// All state lies on the stack: a call allocates nothing.
#include "base/argument.h"
#include "devices/gpu/launch_cache.h"
#include "devices/gpu/plan.h"

typedef struct plan_run {
  const qn_gpu_plan_t* plan;
  const qn_launch_t* launch;
  void* self;     // of the runner
  uint64_t held;  // a bit for each allocated workspace
  int64_t locals[QN__GPU_MAX_LOCALS];
  uint64_t workspaces[QN__GPU_MAX_WORKSPACES];
  uint64_t workspace_bytes[QN__GPU_MAX_WORKSPACES];
} plan_run_t;

static bool evaluate(const plan_run_t* run, const qn__gpu_expr_t* expr, int64_t* out_value) {
  return qn__gpu_eval(expr, run->launch->words, run->locals, out_value);
}

// Evaluates with the wrapping arithmetic of the IR; 0 without an expression.
static int64_t value_of(const plan_run_t* run, const qn__gpu_expr_t* expr) {
  int64_t value = 0;
  if (expr->op_count != 0) (void)evaluate(run, expr, &value);
  return value;
}

static qn_status_t describe(const plan_run_t* run, uint32_t site, int64_t extent) {
  qn_kernel_failure_t failure = {.site = site, .index = 0, .extent = extent};
  return run->launch->describe(run->launch->owner, &failure);
}

// ---- workspace

static void free_workspace(plan_run_t* run, uint32_t slot) {
  if ((run->held >> slot & 1) == 0) return;
  run->held &= ~(UINT64_C(1) << slot);
  run->plan->runner.workspace_free(run->self, run->workspaces[slot]);
}

static qn_status_t run_workspace(plan_run_t* run, const qn__gpu_step_t* step) {
  int64_t size;
  if (!evaluate(run, &step->a, &size) || size < 0) {
    if (step->site != QN__GPU_NO_SITE) {
      return describe(run, step->site, step->b.op_count ? value_of(run, &step->b) : size);
    }
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "the size of a workspace is negative or too large");
  }
  assert(step->slot < QN__GPU_MAX_WORKSPACES);
  free_workspace(run, step->slot);
  uint64_t address = 0;
  qn_status_t status = run->plan->runner.workspace_allocate(run->self, (uint64_t)size, &address);
  if (!qn_ok(status)) {
    if (qn_status_code(status) != QN_STATUS_OUT_OF_MEMORY || step->memory_site == QN__GPU_NO_SITE) {
      return status;
    }
    qn_status_free(status);
    return describe(run, step->memory_site, size);
  }
  run->workspaces[step->slot] = address;
  run->workspace_bytes[step->slot] = (uint64_t)size;
  run->held |= UINT64_C(1) << step->slot;
  return QN_OK;
}

// ---- launches

// Collects the values of a kernel's arguments, and the ends of its buffers.
static void gather(const plan_run_t* run, const qn__gpu_kernel_t* kernel, uint64_t* values,
                   uint64_t* ends) {
  const uint64_t* words = run->launch->words;
  const qn_gpu_arg_t* args = kernel->args;
  if (kernel->takes_words_only) {
    uint32_t i = 0;
    for (; i < kernel->buffer_count; i++) {
      values[i] = words[args[i].index];
      ends[i] = run->launch->ends[args[i].index];
    }
    for (; i < kernel->arg_count; i++) values[i] = words[args[i].index];
    return;
  }
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    uint32_t index = args[i].index;
    switch (args[i].kind) {
      case QN_GPU_ARG_BUFFER:
        values[i] = words[index];
        ends[i] = run->launch->ends[index];
        break;
      case QN_GPU_ARG_WORKSPACE:
        assert((run->held >> index & 1) != 0);
        values[i] = run->workspaces[index];
        ends[i] = values[i] + run->workspace_bytes[index];
        break;
      case QN_GPU_ARG_WORD:
        values[i] = words[index];
        break;
      case QN_GPU_ARG_LOCAL:
        values[i] = (uint64_t)run->locals[index];
        break;
    }
  }
}

// Computes the result of a step. Errors are those in the header, and are not cached.
static qn_status_t choose(const plan_run_t* run, const qn__gpu_step_t* step,
                          qn__gpu_grid_t* out_grid) {
  int64_t guard = 1;
  *out_grid = (qn__gpu_grid_t){.kernel = step->kernel};
  if (!qn__gpu_eval_count(&step->a, run->launch->words, run->locals, &out_grid->block_count)) {
    return qn_status_make(QN_STATUS_VALUE_ERROR, "kernel '%s': too many blocks to count",
                          run->plan->decoded.kernels[step->kernel].name);
  }
  if (out_grid->block_count <= 0) return QN_OK;
  if (step->guard.op_count != 0 && (!evaluate(run, &step->guard, &guard) || guard == 0)) {
    out_grid->kernel = step->wide_kernel;
    if (step->wide_kernel == QN__GPU_NO_KERNEL) {
      return qn_status_make(QN_STATUS_VALUE_ERROR,
                            "kernel '%s': indices of this call need more than 32 bits; compile "
                            "for index_bits 0 or 64",
                            run->plan->decoded.kernels[step->kernel].name);
    }
  }
  assert(out_grid->kernel < run->plan->decoded.kernel_count);
  const qn__gpu_kernel_t* kernel = &run->plan->decoded.kernels[out_grid->kernel];
  int64_t threads =
      kernel->thread_count != 0 ? (int64_t)kernel->thread_count : value_of(run, &step->b);
  if (threads > run->plan->max_threads) {
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "kernel '%s': a block of %" PRId64 " threads; the device allows %u",
                          kernel->name, threads, run->plan->max_threads);
  }
  out_grid->thread_count = threads > 0 ? (uint32_t)threads : 0;
  return QN_OK;
}

static inline __attribute__((always_inline)) qn_status_t run_launch(const plan_run_t* run,
                                                                    const qn__gpu_step_t* step) {
  qn__gpu_grid_t grid;
  if (!step->cache || !qn__gpu_launch_cache_find(step->cache, run->launch->words, &grid)) {
    QN_TRY(choose(run, step, &grid));
    if (step->cache) qn__gpu_launch_cache_note(step->cache, run->launch->words, &grid);
  }
  if (grid.block_count <= 0 || grid.thread_count == 0) return QN_OK;
  uint64_t values[QN_GPU_MAX_ARGS], ends[QN_GPU_MAX_ARGS];
  gather(run, &run->plan->decoded.kernels[grid.kernel], values, ends);
  qn_gpu_launch_t launch = {.kernel = grid.kernel,
                            .block_count = grid.block_count,
                            .thread_count = grid.thread_count,
                            .values = values,
                            .ends = ends};
  return run->plan->runner.launch(run->self, &launch);
}

// ---- steps

static bool holds(const plan_run_t* run, const qn__gpu_step_t* step) {
  qn__gpu_grid_t known;
  if (step->cache && qn__gpu_launch_cache_find(step->cache, run->launch->words, &known)) {
    return known.block_count != 0;
  }
  int64_t guard = 1;
  bool is_so = value_of(run, &step->a) != 0;
  if (is_so && step->guard.op_count != 0) is_so = evaluate(run, &step->guard, &guard) && guard != 0;
  known = (qn__gpu_grid_t){.block_count = is_so};
  if (step->cache) qn__gpu_launch_cache_note(step->cache, run->launch->words, &known);
  return is_so;
}

static qn_status_t run_steps(plan_run_t* run, const qn__gpu_step_t* steps, uint32_t count);

static qn_status_t run_loop(plan_run_t* run, const qn__gpu_step_t* step) {
  int64_t end = value_of(run, &step->b);
  for (int64_t i = value_of(run, &step->a); i < end; i++) {
    run->locals[step->slot] = i;
    QN_TRY(run_steps(run, step + 1, step->body_count));
  }
  return QN_OK;
}

static qn_status_t run_steps(plan_run_t* run, const qn__gpu_step_t* steps, uint32_t count) {
  for (uint32_t i = 0; i < count; i += 1 + steps[i].body_count + steps[i].else_count) {
    const qn__gpu_step_t* step = &steps[i];
    assert(step->body_count <= count - 1 - i &&
           step->else_count <= count - 1 - i - step->body_count);
    switch (step->kind) {
      case QN__GPU_STEP_LET:
        run->locals[step->slot] = value_of(run, &step->a);
        break;
      case QN__GPU_STEP_WORKSPACE:
        QN_TRY(run_workspace(run, step));
        break;
      case QN__GPU_STEP_LOOP:
        QN_TRY(run_loop(run, step));
        break;
      case QN__GPU_STEP_IF:
        if (holds(run, step)) {
          QN_TRY(run_steps(run, step + 1, step->body_count));
        } else {
          QN_TRY(run_steps(run, step + 1 + step->body_count, step->else_count));
        }
        break;
      case QN__GPU_STEP_LAUNCH:
        QN_TRY(run_launch(run, step));
        break;
      case QN__GPU_STEP_ASSERT:
        if (value_of(run, &step->a) == 0) {
          return describe(run, step->site, value_of(run, &step->b));
        }
        break;
    }
  }
  return QN_OK;
}

static qn_status_t run_all(const qn_gpu_plan_t* plan, const qn__gpu_function_t* function,
                           const qn_launch_t* launch, void* self) {
  // Only `held` needs a value: locals and workspaces are written before they are read.
  plan_run_t run;
  run.plan = plan;
  run.launch = launch;
  run.self = self;
  run.held = 0;
  qn_status_t status = run_steps(&run, function->steps, function->step_count);
  for (uint32_t slot = 0; run.held != 0; slot++) free_workspace(&run, slot);
  return status;
}

static __attribute__((noinline, cold)) qn_status_t misfit(const qn_gpu_plan_t* plan, uint32_t index,
                                                          const qn_launch_t* launch) {
  if (index >= plan->decoded.function_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function %u of a launch plan that has %u",
                          index, plan->decoded.function_count);
  }
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a launch plan needs %u words, the call has %u",
                        plan->decoded.functions[index].word_count, launch->word_count);
}

qn_status_t qn_gpu_plan_run(const qn_gpu_plan_t* plan, uint32_t index, const qn_launch_t* launch,
                            void* self) {
  QN_REQUIRE(plan, launch);
  if (index >= plan->decoded.function_count ||
      launch->word_count < plan->decoded.functions[index].word_count) {
    return misfit(plan, index, launch);
  }
  const qn__gpu_function_t* function = &plan->decoded.functions[index];
  // Most functions are one launch, without locals and workspaces.
  const qn__gpu_step_t* first = function->steps;
  if (function->step_count == 1 && first->kind == QN__GPU_STEP_LAUNCH) {
    plan_run_t run;
    run.plan = plan;
    run.launch = launch;
    run.self = self;
    return run_launch(&run, first);
  }
  return run_all(plan, function, launch, self);
}
