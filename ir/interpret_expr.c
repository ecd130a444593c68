// SPDX-License-Identifier: Apache-2.0
// ir/interpret_expr.c: evaluates expressions for one thread.
//
// An exchange evaluates its operand as the other thread would. This is correct for two reasons:
// expressions have no side effects, and threads run in lock-step, so the other thread's variables
// are up to date. Inside a reduction, the other thread's reduction variable is first set to the
// same iteration. Threads that are inactive or do not exist are never read: a shuffle then returns
// the thread's own value, and a reduction over threads skips them.
//
// Not here: arithmetic (arith.c).
#include <assert.h>

#include "ir/interpreter.h"

bool qn__machine_declare_var(qn__interpret_machine_t* machine, const qn__ir_var_t* var) {
  assert(var->id < machine->function->var_count);
  qn__interpret_var_t* held = &machine->vars[var->id];
  uint32_t count = machine->levels[machine->level].count;
  if (held->capacity < count) {
    qn__ir_scalar_t* values = qn__alloc_zero(machine->allocator, count, sizeof *values);
    if (!values) {
      return qn__machine_fail(machine, QN_STATUS_OUT_OF_MEMORY, "no memory for variable '%s'",
                              var->name);
    }
    qn__free(machine->allocator, held->values, held->capacity * sizeof *values);
    held->values = values;
    held->capacity = count;
  }
  held->level = machine->level;
  return true;
}

void qn__machine_set_var(qn__interpret_machine_t* machine, const qn__ir_var_t* var, uint32_t thread,
                         qn__ir_scalar_t value) {
  assert(thread < machine->vars[var->id].capacity);
  machine->vars[var->id].values[thread] = value;
}

// ---- across threads

typedef struct grid {
  uint32_t extents[3];  // x, y, z
  uint32_t strides[3];  // in thread numbers of the current level
  uint32_t total;
} grid_t;

static grid_t grid_of(const qn__interpret_machine_t* machine) {
  grid_t grid = {{1, 1, 1}, {0, 0, 0}, 1};
  for (uint32_t level = 1; level <= machine->level; ++level) {
    const qn__interpret_level_t* at = &machine->levels[level];
    uint32_t axis = (uint32_t)at->kind - QN_LOOP_THREAD_X;
    assert(axis < 3 && grid.strides[axis] == 0);  // each axis once
    grid.extents[axis] = at->extent;
    grid.strides[axis] = at->per_thread;
    grid.total *= at->extent;
  }
  return grid;
}

// Returns the number of a thread in its block, x fastest.
static uint32_t linear_of(const grid_t* grid, uint32_t thread) {
  uint32_t linear = 0, scale = 1;
  for (int axis = 0; axis < 3; ++axis) {
    if (grid->strides[axis] != 0) {
      linear += thread / grid->strides[axis] % grid->extents[axis] * scale;
    }
    scale *= grid->extents[axis];
  }
  return linear;
}

static uint32_t thread_of(const grid_t* grid, uint32_t linear) {
  assert(linear < grid->total);
  uint32_t thread = 0;
  for (int axis = 0; axis < 3; ++axis) {
    thread += linear % grid->extents[axis] * grid->strides[axis];
    linear /= grid->extents[axis];
  }
  return thread;
}

static bool is_active(const qn__interpret_machine_t* machine, uint32_t thread) {
  const qn__interpret_set_t* active = machine->active;
  uint32_t low = 0, high = active->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (active->threads[middle] < thread) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < active->count && active->threads[low] == thread;
}

// Sets the reduction variables and lets of thread `to` to the iteration of thread `from`, for all
// enclosing reductions, outermost first.
static void follow(qn__interpret_machine_t* machine, qn__interpret_frame_t* frame, uint32_t from,
                   uint32_t to) {
  if (!frame) return;
  follow(machine, frame->outer, from, to);
  qn__ir_scalar_t* values = machine->vars[frame->reduce->reduce.reduce_var->id].values;
  values[to] = values[from];
  qn__interpret_frame_t* innermost = machine->frame;
  machine->frame = frame->outer;
  const qn__ir_stmt_t* let = frame->reduce->reduce.lets.first;
  for (; let && let != frame->until && !qn__machine_failed(machine); let = let->next) {
    qn__machine_set_var(machine, let->let.var, to, qn__machine_eval(machine, let->let.value, to));
  }
  machine->frame = innermost;
}

static qn__ir_scalar_t eval_as(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                               uint32_t thread, uint32_t other) {
  if (other != thread) follow(machine, machine->frame, thread, other);
  return qn__machine_eval(machine, expr, other);
}

static uint32_t warp_size_of(const qn__interpret_machine_t* machine) {
  return machine->args->warp_size > 0 ? machine->args->warp_size : 1;
}

static qn__ir_scalar_t eval_lane(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                                 uint32_t thread) {
  grid_t grid = grid_of(machine);
  int64_t warp_size = warp_size_of(machine);
  int64_t linear = linear_of(&grid, thread);
  int64_t lane = linear % warp_size;
  int64_t operand = qn__machine_eval(machine, expr->args[1], thread).i;
  if (qn__machine_failed(machine)) return (qn__ir_scalar_t){0};
  int64_t least = qn__lane_least(expr->op, warp_size);
  bool is_inside = operand >= least && operand < warp_size;
  int64_t target = operand;
  if (is_inside && expr->op == QN_OP_SHUFFLE_UP) target = lane - operand;
  if (is_inside && expr->op == QN_OP_SHUFFLE_DOWN) target = lane + operand;
  if (is_inside && expr->op == QN_OP_SHUFFLE_XOR) target = lane ^ operand;
  if (!is_inside || (expr->op == QN_OP_SHUFFLE_XOR && target >= warp_size)) {
    char message[QN__LANE_MESSAGE_BYTES];
    qn__lane_message(expr->op, warp_size, message);
    (void)qn__machine_fail(machine, QN_STATUS_ASSERTION, "assert failed: %s", message);
    return (qn__ir_scalar_t){0};
  }
  uint32_t other = thread;
  if (target >= 0 && target < warp_size) {
    int64_t other_linear = linear - lane + target;
    if (other_linear < grid.total) other = thread_of(&grid, (uint32_t)other_linear);
    if (!is_active(machine, other)) other = thread;
  }
  return eval_as(machine, expr->args[0], thread, other);
}

// Returns whether threads differ along the axes of an AXES operator only; true for others.
static bool is_along(const grid_t* grid, const qn__ir_expr_t* expr, uint32_t a, uint32_t b) {
  if (qn__op_info(expr->op)->rule != QN__RULE_AXES) return true;
  for (uint32_t axis = 0; axis < 3; ++axis) {
    uint32_t stride = grid->strides[axis], extent = grid->extents[axis];
    if (stride == 0 || qn__expr_has_axis(expr, axis)) continue;
    if (a / stride % extent != b / stride % extent) return false;
  }
  return true;
}

static qn__ir_scalar_t eval_group(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                                  uint32_t thread) {
  grid_t grid = grid_of(machine);
  uint32_t warp_size = warp_size_of(machine);
  uint32_t first = 0, count = grid.total;
  static const qn_reduce_kind_t kinds[QN_OP_COUNT] = {
      [QN_OP_WARP_SUM] = QN_REDUCE_SUM,  [QN_OP_WARP_MIN] = QN_REDUCE_MIN,
      [QN_OP_WARP_MAX] = QN_REDUCE_MAX,  [QN_OP_BLOCK_SUM] = QN_REDUCE_SUM,
      [QN_OP_BLOCK_MIN] = QN_REDUCE_MIN, [QN_OP_BLOCK_MAX] = QN_REDUCE_MAX,
      [QN_OP_AXIS_SUM] = QN_REDUCE_SUM,  [QN_OP_AXIS_MIN] = QN_REDUCE_MIN,
      [QN_OP_AXIS_MAX] = QN_REDUCE_MAX,
  };
  qn_reduce_kind_t kind = kinds[expr->op];
  assert(kind != 0);
  if (expr->op == QN_OP_WARP_SUM || expr->op == QN_OP_WARP_MIN || expr->op == QN_OP_WARP_MAX) {
    first = linear_of(&grid, thread) / warp_size * warp_size;
    count = grid.total - first < warp_size ? grid.total - first : warp_size;
  }
  qn__ir_scalar_t result = qn__reduce_neutral(kind, expr->dtype);
  for (uint32_t i = 0; i < count && !qn__machine_failed(machine); ++i) {
    uint32_t other = thread_of(&grid, first + i);
    if (!is_active(machine, other) || !is_along(&grid, expr, thread, other)) continue;
    qn__ir_scalar_t value = eval_as(machine, expr->args[0], thread, other);
    result = qn__reduce_step(kind, expr->dtype, result, value);
  }
  return result;
}

// ---- within one thread

static qn__ir_scalar_t eval_op(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                               uint32_t thread) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (info->rule == QN__RULE_LANE) return eval_lane(machine, expr, thread);
  if (info->rule == QN__RULE_GROUP || info->rule == QN__RULE_AXES) {
    return eval_group(machine, expr, thread);
  }
  if (expr->op == QN_OP_WARP_SIZE) return (qn__ir_scalar_t){.i = warp_size_of(machine)};
  qn__ir_scalar_t args[3] = {{0}, {0}, {0}};
  args[0] = qn__machine_eval(machine, expr->args[0], thread);
  if (qn__machine_failed(machine)) return args[0];
  if (expr->op == QN_OP_LOGIC_AND && args[0].i == 0) return args[0];
  if (expr->op == QN_OP_LOGIC_OR && args[0].i != 0) return args[0];
  for (uint32_t i = 1; i < info->arity; ++i) {
    args[i] = qn__machine_eval(machine, expr->args[i], thread);
    if (qn__machine_failed(machine)) return args[i];
  }
  qn__ir_scalar_t result;
  if (!qn__scalar_op(expr->op, qn__expr_operand_dtype(expr), args, &result)) {
    (void)qn__machine_fail(machine, QN_STATUS_DIVISION_BY_ZERO, "integer division by zero in '%s'",
                           info->text);
    return (qn__ir_scalar_t){0};
  }
  return result;
}

static qn__ir_scalar_t eval_reduce(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                                   uint32_t thread) {
  qn_reduce_kind_t kind = expr->reduce.reduce_kind;
  qn__ir_scalar_t result = qn__reduce_neutral(kind, expr->dtype);
  int64_t begin = qn__machine_eval(machine, expr->reduce.begin, thread).i;
  int64_t end = qn__machine_eval(machine, expr->reduce.end, thread).i;
  if (!qn__machine_declare_var(machine, expr->reduce.reduce_var)) return result;
  for (const qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
    if (!qn__machine_declare_var(machine, let->let.var)) return result;
  }
  qn__interpret_frame_t frame = {expr, NULL, machine->frame};
  machine->frame = &frame;
  for (int64_t i = begin; i < end && !qn__machine_failed(machine); ++i) {
    qn__machine_set_var(machine, expr->reduce.reduce_var, thread, (qn__ir_scalar_t){.i = i});
    for (const qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      frame.until = let;
      qn__ir_scalar_t value = qn__machine_eval(machine, let->let.value, thread);
      qn__machine_set_var(machine, let->let.var, thread, value);
    }
    frame.until = NULL;
    qn__ir_scalar_t value = qn__machine_eval(machine, expr->reduce.value, thread);
    result = qn__reduce_step(kind, expr->dtype, result, value);
  }
  assert(machine->frame == &frame);
  machine->frame = frame.outer;
  return result;
}

static qn__ir_scalar_t eval(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                            uint32_t thread) {
  qn__ir_scalar_t value = {0};
  switch (expr->kind) {
    case QN__EXPR_INT:
      return (qn__ir_scalar_t){.i = expr->int_value};
    case QN__EXPR_FLOAT:
      return (qn__ir_scalar_t){.f = expr->float_value};
    case QN__EXPR_VAR: {
      const qn__interpret_var_t* held = &machine->vars[expr->var->id];
      uint32_t owner = qn__machine_ancestor(machine, held->level, thread);
      assert(owner < held->capacity);
      return held->values[owner];
    }
    case QN__EXPR_LOAD: {
      if (expr->dtype != expr->load.buffer->dtype) {
        return qn__machine_read_word(machine, expr, thread);
      }
      return qn__machine_load(machine, expr, thread);
    }
    case QN__EXPR_OP:
      return eval_op(machine, expr, thread);
    case QN__EXPR_CAST:
      value = qn__machine_eval(machine, expr->args[0], thread);
      return qn__scalar_cast(expr->args[0]->dtype, value, expr->dtype);
    case QN__EXPR_BITCAST:
      value = qn__machine_eval(machine, expr->args[0], thread);
      return qn__scalar_from_bits(expr->dtype, qn__scalar_to_bits(expr->args[0]->dtype, value));
    case QN__EXPR_COND:
      value = qn__machine_eval(machine, expr->args[0], thread);
      return qn__machine_eval(machine, expr->args[value.i != 0 ? 1 : 2], thread);
    case QN__EXPR_REDUCE:
      return eval_reduce(machine, expr, thread);
  }
  return value;
}

qn__ir_scalar_t qn__machine_eval(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                                 uint32_t thread) {
  if (qn__machine_failed(machine)) return (qn__ir_scalar_t){0};
  qn__ir_scalar_t value = eval(machine, expr, thread);
  // The innermost expression returns first.
  if (qn__machine_failed(machine) && !machine->node.expr) machine->node.expr = expr;
  return value;
}
