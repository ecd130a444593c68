// SPDX-License-Identifier: Apache-2.0
// ir/interpret_several.c: runs reductions of several values and scans, in the order of the range.
//
// Reductions hold no stores and no exchanges, so threads run them one after the other. In a scan,
// they run the body of each iteration together, as in a loop.
#include "ir/interpreter.h"

typedef qn__ir_scalar_t values_t[QN__LARGEST_VALUES];

static const qn__ir_block_t no_lets = {NULL, NULL};

static void declare(qn__interpret_machine_t* machine, qn__ir_var_t* const* vars, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) (void)qn__machine_declare_var(machine, vars[i]);
}

static void declare_lets(qn__interpret_machine_t* machine, const qn__ir_block_t* lets) {
  for (const qn__ir_stmt_t* let = lets->first; let; let = let->next) {
    declare(machine, &let->let.var, 1);
  }
}

static void set(qn__interpret_machine_t* machine, qn__ir_var_t* const* vars, uint32_t count,
                uint32_t thread, const qn__ir_scalar_t* values) {
  for (uint32_t i = 0; i < count; ++i) qn__machine_set_var(machine, vars[i], thread, values[i]);
}

static void eval(qn__interpret_machine_t* machine, const qn__ir_block_t* lets,
                 qn__ir_expr_t* const* exprs, uint32_t count, uint32_t thread,
                 qn__ir_scalar_t* out_values) {
  for (const qn__ir_stmt_t* let = lets->first; let; let = let->next) {
    qn__machine_set_var(machine, let->let.var, thread,
                        qn__machine_eval(machine, let->let.value, thread));
  }
  for (uint32_t i = 0; i < count; ++i) out_values[i] = qn__machine_eval(machine, exprs[i], thread);
}

static bool is_nan(qn_dtype_t dtype, qn__ir_scalar_t value) {
  return qn__dtype_is_real(dtype) && value.f != value.f;
}

// Combines the value of iteration `i` with the best one so far and its index.
static void step_best(const qn__ir_several_t* several, qn__ir_scalar_t* best, qn__ir_scalar_t value,
                      int64_t i) {
  qn_dtype_t dtype = several->values[0]->dtype;
  bool is_max = several->kind == QN__SEVERAL_ARGMAX;
  qn__ir_scalar_t args[2] = {value, best[0]}, is_better, is_equal;
  (void)qn__scalar_op(is_max ? QN_OP_GT : QN_OP_LT, dtype, args, &is_better);
  (void)qn__scalar_op(QN_OP_EQ, dtype, args, &is_equal);
  bool is_first = best[1].i < 0 && is_equal.i;
  bool is_first_nan = is_nan(dtype, value) && !is_nan(dtype, best[0]);
  if (is_better.i || is_first || is_first_nan) best[1].i = i;
  best[0] = qn__reduce_step(is_max ? QN_REDUCE_MAX : QN_REDUCE_MIN, dtype, best[0], value);
}

// Combines `inout_total` with the values of an iteration.
static void merge(qn__interpret_machine_t* machine, const qn__ir_several_t* several,
                  uint32_t thread, qn__ir_scalar_t* inout_total, const qn__ir_scalar_t* values) {
  set(machine, several->left, several->count, thread, inout_total);
  set(machine, several->right, several->count, thread, values);
  eval(machine, &several->merge_lets, several->merged, several->count, thread, inout_total);
}

static void run(qn__interpret_machine_t* machine, const qn__ir_several_t* several,
                uint32_t thread) {
  int64_t begin = qn__machine_eval(machine, several->begin, thread).i;
  int64_t end = qn__machine_eval(machine, several->end, thread).i;
  bool has_merge = several->merged_count > 0;
  values_t total = {{0}}, values = {{0}};
  if (has_merge) {
    eval(machine, &no_lets, several->initial, several->count, thread, total);
  } else {
    bool is_max = several->kind == QN__SEVERAL_ARGMAX;
    total[0] =
        qn__reduce_neutral(is_max ? QN_REDUCE_MAX : QN_REDUCE_MIN, several->values[0]->dtype);
    total[1].i = -1;
  }
  for (int64_t i = begin; i < end && !qn__machine_failed(machine); ++i) {
    qn__machine_set_var(machine, several->var, thread, (qn__ir_scalar_t){.i = i});
    eval(machine, &several->lets, several->values, several->count, thread, values);
    if (!has_merge) {
      step_best(several, total, values[0], i);
      continue;
    }
    merge(machine, several, thread, total, values);
  }
  set(machine, several->results, several->result_count, thread, total);
}

// The scan of a thread.
typedef struct thread_scan {
  int64_t next, end;
  values_t total;
} thread_scan_t;

static void begin_scan(qn__interpret_machine_t* machine, const qn__ir_several_t* several,
                       uint32_t thread, thread_scan_t* out_scan) {
  out_scan->next = qn__machine_eval(machine, several->begin, thread).i;
  out_scan->end = qn__machine_eval(machine, several->end, thread).i;
  eval(machine, &no_lets, several->initial, several->count, thread, out_scan->total);
}

// Sets the variables of the body for the next iteration.
static void step_scan(qn__interpret_machine_t* machine, const qn__ir_several_t* several,
                      uint32_t thread, thread_scan_t* scan) {
  values_t values = {{0}};
  qn__machine_set_var(machine, several->var, thread, (qn__ir_scalar_t){.i = scan->next++});
  eval(machine, &several->lets, several->values, several->count, thread, values);
  bool is_exclusive = several->kind == QN__SEVERAL_EXCLUSIVE_SCAN;
  if (is_exclusive) set(machine, several->results, several->count, thread, scan->total);
  merge(machine, several, thread, scan->total, values);
  if (!is_exclusive) set(machine, several->results, several->count, thread, scan->total);
}

// Threads may have different ranges: each is active while it has iterations left.
static void run_scan(qn__interpret_machine_t* machine, const qn__ir_several_t* several,
                     const qn__interpret_set_t* active) {
  size_t count = active->count;
  thread_scan_t* scans = qn__alloc_zero(machine->allocator, count, sizeof *scans);
  uint32_t* threads = qn__alloc_zero(machine->allocator, count, sizeof *threads);
  if (count > 0 && (!scans || !threads)) {
    (void)qn__machine_fail(machine, QN_STATUS_OUT_OF_MEMORY, "the threads of a scan");
  }
  for (size_t i = 0; i < count && !qn__machine_failed(machine); ++i) {
    begin_scan(machine, several, active->threads[i], &scans[i]);
  }
  while (!qn__machine_failed(machine)) {
    qn__interpret_set_t running = {threads, 0};
    for (size_t i = 0; i < count; ++i) {
      uint32_t thread = active->threads[i];
      if (!qn__machine_goes_on(machine, thread)) scans[i].next = scans[i].end;
      if (scans[i].next >= scans[i].end) continue;
      step_scan(machine, several, thread, &scans[i]);
      threads[running.count++] = thread;
    }
    if (running.count == 0) break;
    qn__machine_run_block(machine, &several->body, &running);
  }
  qn__free(machine->allocator, scans, count * sizeof *scans);
  qn__free(machine->allocator, threads, count * sizeof *threads);
}

void qn__machine_several(qn__interpret_machine_t* machine, const qn__ir_several_t* several) {
  declare(machine, &several->var, 1);
  declare_lets(machine, &several->lets);
  declare(machine, several->left, several->merged_count);
  declare(machine, several->right, several->merged_count);
  declare_lets(machine, &several->merge_lets);
  declare(machine, several->results, several->result_count);
  const qn__interpret_set_t* active = machine->active;
  if (qn__several_is_scan(several->kind)) {
    run_scan(machine, several, active);
    return;
  }
  for (uint32_t i = 0; i < active->count && !qn__machine_failed(machine); ++i) {
    run(machine, several, active->threads[i]);
  }
}
