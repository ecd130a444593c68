// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_exchanges_memory.c: lowers one exchange among threads, the whole value of a let.
// The exchange stays if the target has it, and uses shared memory otherwise. The head of
// lower_exchanges.c shows the code.
#include "ir/passes/exchange.h"

// ---- threads

qn__ir_expr_t* qn__exchange_extent(qn__exchange_t* self, const qn__ir_stmt_t* loop) {
  return qn__pb_op(self->pb, QN_OP_SUB, qn__pb_copy(self->pb, loop->loop.end),
                   qn__pb_copy(self->pb, loop->loop.begin));
}

static const qn__ir_stmt_t** axis_of(qn__exchange_t* self, const qn__ir_stmt_t* loop) {
  assert(qn__is_thread_loop(loop));
  return &self->axes[loop->loop.kind - QN_LOOP_THREAD_X];
}

void qn__exchange_enter(qn__exchange_t* self, qn__ir_stmt_t* loop) {
  assert(!*axis_of(self, loop));  // the verifier allows each axis once
  ++self->depth;
  *axis_of(self, loop) = loop;
  self->linear = NULL;
}

// Declares the number of the thread at the start of its loop, before every use.
static void declare_linear(qn__exchange_t* self, qn__ir_stmt_t* loop) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* value = NULL;
  for (int axis = 2; axis >= 0; --axis) {
    const qn__ir_stmt_t* each = self->axes[axis];
    if (!each) continue;
    qn__ir_expr_t* place =
        qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, each->loop.var), qn__pb_copy(pb, each->loop.begin));
    if (value) value = qn__pb_op(pb, QN_OP_MUL, value, qn__exchange_extent(self, each));
    value = value ? qn__pb_op(pb, QN_OP_ADD, value, place) : place;
  }
  qn__ir_block_t body = {NULL, NULL};
  qn__pb_let_var(pb, &body, self->linear, value);
  qn__block_splice(&body, &loop->loop.body);
  loop->loop.body = body;
  self->linear = NULL;
}

void qn__exchange_leave(qn__exchange_t* self, qn__ir_stmt_t* loop) {
  assert(self->depth > 0 && *axis_of(self, loop) == loop);
  if (self->linear) declare_linear(self, loop);
  *axis_of(self, loop) = NULL;
  --self->depth;
  if (self->depth > 0) return;
  memset(self->all, 0, sizeof self->all);
  memset(self->sums, 0, sizeof self->sums);
}

qn__ir_expr_t* qn__exchange_linear(qn__exchange_t* self) {
  assert(self->depth > 0);  // exchanges are inside of thread loops
  if (!self->linear) {
    self->linear = qn__pb_var(self->pb, QN__VAR_LET, QN_DTYPE_I64, "thread");
  }
  return qn__pb_use(self->pb, self->linear);
}

qn__ir_expr_t* qn__exchange_count(qn__exchange_t* self, int64_t* out_most) {
  qn__ir_expr_t* count = qn__pb_int(self->pb, 1);
  for (int axis = 0; axis < 3; ++axis) {
    if (!self->axes[axis]) continue;
    count = qn__pb_op(self->pb, QN_OP_MUL, count, qn__exchange_extent(self, self->axes[axis]));
  }
  if (!count) return NULL;
  if (qn__expr_const_int(count, out_most)) return qn__pb_int(self->pb, *out_most);
  *out_most = self->pb->max_threads;
  return count;
}

qn__ir_buffer_t* qn__exchange_memory(qn__exchange_t* self, qn__ir_block_t* out,
                                     qn__ir_buffer_t** table, qn_dtype_t dtype, const char* name,
                                     int64_t count) {
  assert((size_t)dtype < qn__exchange_dtypes);
  qn__ir_buffer_t** slot = &table[dtype];
  if (*slot || self->rounds > 0) qn__pb_barrier(self->pb, out);
  if (!*slot) {
    *slot = qn__pb_alloc(self->pb, &self->shared, QN__SCOPE_SHARED, dtype, name, count, -1);
  }
  return *slot;
}

// ---- exchanges

static qn__ir_expr_t* warp_of(qn__exchange_t* self) {
  return qn__pb_op_int(self->pb, QN_OP_FLOORDIV, qn__exchange_linear(self), self->pb->warp_size);
}

static qn__ir_expr_t* lane_of(qn__exchange_t* self) {
  return qn__pb_op_int(self->pb, QN_OP_FLOORMOD, qn__exchange_linear(self), self->pb->warp_size);
}

qn__ir_buffer_t* qn__exchange_publish(qn__exchange_t* self, qn__ir_block_t* out,
                                      qn__ir_expr_t* value) {
  qn__pass_builder_t* pb = self->pb;
  int64_t most;
  if (!qn__exchange_count(self, &most)) return NULL;
  qn__ir_var_t* held = qn__pb_let(pb, out, "own", value);
  qn__ir_buffer_t* all = qn__exchange_memory(self, out, self->all, value->dtype, "lanes", most);
  qn__pb_append(out, qn__pb_store(pb, all, qn__exchange_linear(self), NULL, qn__pb_use(pb, held)));
  qn__pb_barrier(pb, out);
  return all;
}

static qn__ir_expr_t* both(qn__pass_builder_t* pb, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  return qn__pb_op(pb, QN_OP_LOGIC_AND, a, b);
}

// Returns `var` < the warp size.
static qn__ir_expr_t* in_warp(qn__pass_builder_t* pb, qn__ir_var_t* var) {
  return qn__pb_op_int(pb, QN_OP_LT, qn__pb_use(pb, var), pb->warp_size);
}

// Returns low <= `var` < the warp size.
static qn__ir_expr_t* in_range(qn__pass_builder_t* pb, qn__ir_var_t* var, int64_t low) {
  return both(pb, qn__pb_op_int(pb, QN_OP_GE, qn__pb_use(pb, var), low), in_warp(pb, var));
}

// Asserts, in checked builds, that the lane is in the warp. `target` is the lane of shuffle_xor, or
// NULL if every operand below the warp size gives a lane in the warp.
static void check_lane(qn__exchange_t* self, qn__ir_block_t* out, const qn__ir_expr_t* expr,
                       qn__ir_var_t* operand, qn__ir_var_t* target) {
  qn__pass_builder_t* pb = self->pb;
  if (!pb->options->is_checked) return;
  qn__ir_expr_t* holds = in_range(pb, operand, qn__lane_least(expr->op, pb->warp_size));
  if (expr->op == QN_OP_SHUFFLE_XOR && target) holds = both(pb, holds, in_warp(pb, target));
  char message[QN__LANE_MESSAGE_BYTES];
  qn__lane_message(expr->op, pb->warp_size, message);
  qn__ir_stmt_t* check = qn__stmt_new(pb->arena, QN__STMT_ASSERT, expr->loc);
  const char* text = qn__arena_cstr(pb->arena, qn__str(message));
  if (!holds || !check || !text) return;
  check->assert_.condition = holds;
  check->assert_.message = text;
  qn__block_append(out, check);
}

static qn__ir_expr_t* lower_lane(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  qn__pass_builder_t* pb = self->pb;
  int64_t most;
  qn__ir_expr_t* count = qn__exchange_count(self, &most);
  qn__ir_var_t* operand = qn__pb_let(pb, out, "distance", expr->args[1]);
  qn__ir_buffer_t* all = qn__exchange_publish(self, out, expr->args[0]);
  qn__ir_var_t* lane = qn__pb_let(pb, out, "lane", lane_of(self));
  qn_op_t how = QN_OP_ADD;
  if (expr->op == QN_OP_SHUFFLE_UP) how = QN_OP_SUB;
  if (expr->op == QN_OP_SHUFFLE_XOR) how = QN_OP_XOR;
  qn__ir_expr_t* other = qn__pb_use(pb, operand);
  if (expr->op != QN_OP_SHUFFLE) other = qn__pb_op(pb, how, qn__pb_use(pb, lane), other);
  qn__ir_var_t* target = qn__pb_let(pb, out, "target", other);
  check_lane(self, out, expr, operand, target);
  // No thread is a warp size or more away, or outside of the block.
  qn__ir_expr_t* holds = both(pb, in_range(pb, operand, qn__lane_least(expr->op, pb->warp_size)),
                              in_range(pb, target, 0));
  qn__ir_expr_t* first = qn__pb_op(pb, QN_OP_SUB, qn__exchange_linear(self), qn__pb_use(pb, lane));
  qn__ir_expr_t* place = qn__pb_op(pb, QN_OP_ADD, first, qn__pb_use(pb, target));
  holds = both(pb, holds, qn__pb_op(pb, QN_OP_LT, qn__pb_copy(pb, place), count));
  if (!holds || !place) return NULL;
  qn__ir_expr_t* source =
      qn__expr_op(pb->arena, QN_OP_SELECT, holds, place, qn__exchange_linear(self));
  return qn__pb_use(pb, qn__pb_let(pb, out, "other", qn__pb_load(pb, all, source, NULL)));
}

const qn__exchange_group_t* qn__exchange_group(qn_op_t op) {
  static const qn__exchange_group_t table[] = {
      {QN_OP_BLOCK_SUM, QN_OP_WARP_SUM, QN_OP_AXIS_SUM, QN_REDUCE_SUM},
      {QN_OP_BLOCK_MIN, QN_OP_WARP_MIN, QN_OP_AXIS_MIN, QN_REDUCE_MIN},
      {QN_OP_BLOCK_MAX, QN_OP_WARP_MAX, QN_OP_AXIS_MAX, QN_REDUCE_MAX},
  };
  const qn__exchange_group_t* row = table;
  while (row->block != op && row->warp != op && row->axes != op) {
    ++row;
    assert(row < table + QN_COUNT_OF(table));
  }
  return row;
}

void qn__exchange_store_by_leader(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t* sums,
                                  qn__ir_expr_t* value) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* is_leader = qn__pb_op_int(pb, QN_OP_EQ, lane_of(self), 0);
  qn__ir_block_t body = {NULL, NULL};
  qn__pb_append(&body, qn__pb_store(pb, sums, warp_of(self), NULL, value));
  qn__pb_append(out, qn__pb_if(pb, is_leader, body));
}

static qn__ir_expr_t* lower_group(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  qn__pass_builder_t* pb = self->pb;
  const qn__exchange_group_t* group = qn__exchange_group(expr->op);
  qn_dtype_t dtype = expr->dtype;
  int64_t most, warp_size = pb->warp_size;
  qn__ir_expr_t* count = qn__exchange_count(self, &most);
  if (!count) return NULL;
  bool is_known = count->kind == QN__EXPR_INT;
  int64_t warps = (most + warp_size - 1) / warp_size;
  qn__ir_buffer_t* sums;
  if (pb->options->has_shuffles) {
    qn__ir_expr_t* own = qn__expr_op(pb->arena, group->warp, expr->args[0], NULL, NULL);
    qn__ir_var_t* warp = qn__pb_let(pb, out, "warp", own);
    sums = qn__exchange_memory(self, out, self->sums, dtype, "warps", warps);
    qn__exchange_store_by_leader(self, out, sums, qn__pb_use(pb, warp));
  } else {
    qn__ir_buffer_t* all = qn__exchange_publish(self, out, expr->args[0]);
    // Needs no other barrier: the one in qn__exchange_publish() follows the last use of `sums`.
    sums = self->sums[dtype];
    if (!sums) sums = qn__exchange_memory(self, out, self->sums, dtype, "warps", warps);
    qn__ir_expr_t* begin = qn__pb_op_int(pb, QN_OP_MUL, warp_of(self), warp_size);
    qn__ir_expr_t* end = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, begin), warp_size);
    if (most % warp_size != 0 || !is_known) {
      end = qn__pb_op(pb, QN_OP_MIN, end, qn__pb_copy(pb, count));
    }
    qn__exchange_store_by_leader(self, out, sums, qn__pb_reduce(pb, group->kind, all, begin, end));
  }
  qn__pb_barrier(pb, out);
  qn__ir_expr_t* value;
  if (expr->op == group->block) {
    qn__ir_expr_t* end = is_known
                             ? qn__pb_int(pb, warps)
                             : qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_copy(pb, count), warp_size);
    value = qn__pb_reduce(pb, group->kind, sums, qn__pb_int(pb, 0), end);
  } else {
    value = qn__pb_load(pb, sums, warp_of(self), NULL);
  }
  return qn__pb_use(pb, qn__pb_let(pb, out, "total", value));
}

qn__ir_expr_t* qn__exchange_lower(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
  if (rule == QN__RULE_AXES) return qn__exchange_lower_axes(self, out, expr);
  bool is_lane = rule == QN__RULE_LANE;
  bool is_over_block = !is_lane && expr->op == qn__exchange_group(expr->op)->block;
  bool is_kept = is_over_block ? pb->options->has_block_reductions : pb->options->has_shuffles;
  int64_t lane;
  bool is_certain = is_lane && qn__expr_const_int(expr->args[1], &lane) &&
                    lane >= qn__lane_least(expr->op, pb->warp_size) && lane < pb->warp_size;
  if (is_kept && is_lane && pb->options->is_checked && !is_certain) {
    // Targets with shuffles have warps of a power of two: shuffle_xor needs no check of its lane.
    qn__ir_var_t* operand = qn__pb_let(pb, out, "distance", expr->args[1]);
    check_lane(self, out, expr, operand, NULL);
    expr->args[1] = qn__pb_use(pb, operand);
    if (!expr->args[1]) return NULL;
  }
  if (is_kept) return qn__pb_use(pb, qn__pb_let(pb, out, "exchange", expr));
  return is_lane ? lower_lane(self, out, expr) : lower_group(self, out, expr);
}
