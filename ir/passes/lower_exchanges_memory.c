// ir/passes/lower_exchanges_memory.c: lowers one exchange among threads, the whole value of a let.
// The exchange stays if the target has it, and uses shared memory otherwise. The head of
// lower_exchanges.c shows the code.
#include "ir/passes/exchange.h"

// ---- threads

// Returns the threads along an axis. Only threads that exist evaluate it, so the range is not
// empty.
static qn__ir_expr_t* extent(qn__exchange_t* self, const qn__ir_stmt_t* loop) {
  return qn__pb_op(self->pb, QN_OP_SUB, qn__pb_copy(self->pb, loop->loop.end),
                   qn__pb_copy(self->pb, loop->loop.begin));
}

void qn__exchange_enter(qn__exchange_t* self, qn__ir_stmt_t* loop) {
  ++self->depth;
  self->axes[loop->loop.kind - QN_LOOP_THREAD_X] = loop;
  self->linear = NULL;
}

void qn__exchange_leave(qn__exchange_t* self, qn__ir_stmt_t* loop) {
  if (self->linear) {
    // Declare the number of the thread before every use.
    qn__ir_expr_t* value = NULL;
    for (int axis = 2; axis >= 0; --axis) {
      const qn__ir_stmt_t* each = self->axes[axis];
      if (!each) continue;
      qn__ir_expr_t* place = qn__pb_use(self->pb, each->loop.var);
      place = qn__pb_op(self->pb, QN_OP_SUB, place, qn__pb_copy(self->pb, each->loop.begin));
      if (value) value = qn__pb_op(self->pb, QN_OP_MUL, value, extent(self, each));
      value = value ? qn__pb_op(self->pb, QN_OP_ADD, value, place) : place;
    }
    qn__ir_block_t body = {NULL, NULL};
    qn__pb_let_var(self->pb, &body, self->linear, value);
    qn__block_splice(&body, &loop->loop.body);
    loop->loop.body = body;
    self->linear = NULL;
  }
  self->axes[loop->loop.kind - QN_LOOP_THREAD_X] = NULL;
  --self->depth;
  if (self->depth > 0) return;
  memset(self->all, 0, sizeof self->all);
  memset(self->sums, 0, sizeof self->sums);
}

static qn__ir_var_t* linear(qn__exchange_t* self) {
  if (!self->linear) {
    self->linear = qn__pb_var(self->pb, QN__VAR_LET, QN_DTYPE_I64, "thread");
  }
  return self->linear;
}

// Returns the number of threads of the block. `*out_most` is an upper bound.
static qn__ir_expr_t* thread_count(qn__exchange_t* self, int64_t* out_most) {
  qn__ir_expr_t* count = qn__pb_int(self->pb, 1);
  for (int axis = 0; axis < 3; ++axis) {
    if (!self->axes[axis]) continue;
    qn__ir_expr_t* each = extent(self, self->axes[axis]);
    if (!count) return NULL;
    count = qn__expr_is_int(count, 1) ? each : qn__pb_op(self->pb, QN_OP_MUL, count, each);
  }
  if (!count) return NULL;
  if (!qn__expr_const_int(count, out_most)) {
    *out_most = self->pb->max_threads;
  } else {
    count = qn__pb_int(self->pb, *out_most);
  }
  return count;
}

static size_t place_of(qn_dtype_t dtype) {
  return (size_t)dtype % qn__exchange_dtypes;
}

// Returns shared memory for an exchange, after a barrier if an earlier exchange may still be read.
static qn__ir_buffer_t* memory(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t** table,
                               qn_dtype_t dtype, const char* name, int64_t count) {
  qn__ir_buffer_t** slot = &table[place_of(dtype)];
  if (*slot || self->rounds > 0) qn__pb_barrier(self->pb, out);
  if (!*slot) {
    *slot = qn__pb_alloc(self->pb, &self->shared, QN__SCOPE_SHARED, dtype, name, count, -1);
  }
  return *slot;
}

// ---- exchanges

static qn__ir_expr_t* warp_of(qn__exchange_t* self) {
  return qn__pb_op(self->pb, QN_OP_FLOORDIV, qn__pb_use(self->pb, linear(self)),
                   qn__pb_int(self->pb, self->warp_size));
}

static qn__ir_expr_t* lane_of(qn__exchange_t* self) {
  return qn__pb_op(self->pb, QN_OP_FLOORMOD, qn__pb_use(self->pb, linear(self)),
                   qn__pb_int(self->pb, self->warp_size));
}

// Appends `all[t] = x; barrier`.
static qn__ir_buffer_t* publish(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* value) {
  int64_t most;
  if (!thread_count(self, &most)) return NULL;
  qn__ir_var_t* held = qn__pb_let(self->pb, out, "own", value);
  qn__ir_buffer_t* all = memory(self, out, self->all, value->dtype, "lanes", most);
  qn__pb_append(out, qn__pb_store(self->pb, all, qn__pb_use(self->pb, linear(self)), NULL,
                                  qn__pb_use(self->pb, held)));
  qn__pb_barrier(self->pb, out);
  return all;
}

static qn__ir_expr_t* in_range(qn__exchange_t* self, qn__ir_var_t* var, int64_t low,
                               qn__ir_expr_t* high) {
  return qn__pb_op(
      self->pb, QN_OP_LOGIC_AND,
      qn__pb_op(self->pb, QN_OP_GE, qn__pb_use(self->pb, var), qn__pb_int(self->pb, low)),
      qn__pb_op(self->pb, QN_OP_LT, qn__pb_use(self->pb, var), high));
}

// Asserts, in checked builds, that the lane is in the warp. `target` is the lane of shuffle_xor, or
// NULL if every operand below the warp size gives a lane in the warp.
static void check_lane(qn__exchange_t* self, qn__ir_block_t* out, const qn__ir_expr_t* expr,
                       qn__ir_var_t* operand, qn__ir_var_t* target) {
  if (!self->pb->options->is_checked) return;
  qn__ir_expr_t* holds = in_range(self, operand, qn__lane_least(expr->op, self->warp_size),
                                  qn__pb_int(self->pb, self->warp_size));
  if (expr->op == QN_OP_SHUFFLE_XOR && target) {
    holds = qn__pb_op(self->pb, QN_OP_LOGIC_AND, holds,
                      qn__pb_op(self->pb, QN_OP_LT, qn__pb_use(self->pb, target),
                                qn__pb_int(self->pb, self->warp_size)));
  }
  char message[QN__LANE_MESSAGE_BYTES];
  qn__lane_message(expr->op, self->warp_size, message);
  qn__ir_stmt_t* check = qn__stmt_new(self->pb->arena, QN__STMT_ASSERT, expr->loc);
  const char* text = qn__arena_cstr(self->pb->arena, qn__str(message));
  if (!holds || !check || !text) return;
  check->assert_.condition = holds;
  check->assert_.message = text;
  qn__block_append(out, check);
}

static qn__ir_expr_t* lower_lane(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  int64_t most;
  qn__ir_expr_t* count = thread_count(self, &most);
  qn__ir_var_t* operand = qn__pb_let(self->pb, out, "distance", expr->args[1]);
  qn__ir_buffer_t* all = publish(self, out, expr->args[0]);
  qn__ir_var_t* lane = qn__pb_let(self->pb, out, "lane", lane_of(self));
  qn_op_t how = QN_OP_ADD;
  if (expr->op == QN_OP_SHUFFLE_UP) how = QN_OP_SUB;
  if (expr->op == QN_OP_SHUFFLE_XOR) how = QN_OP_XOR;
  qn__ir_expr_t* other =
      expr->op == QN_OP_SHUFFLE
          ? qn__pb_use(self->pb, operand)
          : qn__pb_op(self->pb, how, qn__pb_use(self->pb, lane), qn__pb_use(self->pb, operand));
  qn__ir_var_t* target = qn__pb_let(self->pb, out, "target", other);
  check_lane(self, out, expr, operand, target);
  // No thread is a warp size or more away, or outside of the block.
  qn__ir_expr_t* holds =
      qn__pb_op(self->pb, QN_OP_LOGIC_AND,
                in_range(self, operand, qn__lane_least(expr->op, self->warp_size),
                         qn__pb_int(self->pb, self->warp_size)),
                in_range(self, target, 0, qn__pb_int(self->pb, self->warp_size)));
  qn__ir_expr_t* place =
      qn__pb_op(self->pb, QN_OP_ADD,
                qn__pb_op(self->pb, QN_OP_SUB, qn__pb_use(self->pb, linear(self)),
                          qn__pb_use(self->pb, lane)),
                qn__pb_use(self->pb, target));
  holds = qn__pb_op(self->pb, QN_OP_LOGIC_AND, holds,
                    qn__pb_op(self->pb, QN_OP_LT, qn__pb_copy(self->pb, place), count));
  if (!holds || !place) return NULL;
  qn__ir_expr_t* source =
      qn__expr_op(self->pb->arena, QN_OP_SELECT, holds, place, qn__pb_use(self->pb, linear(self)));
  qn__ir_expr_t* load = source ? qn__pb_load(self->pb, all, source, NULL) : NULL;
  return load ? qn__pb_use(self->pb, qn__pb_let(self->pb, out, "other", load)) : NULL;
}

static bool is_over_block(qn_op_t which) {
  return which == QN_OP_BLOCK_SUM || which == QN_OP_BLOCK_MIN || which == QN_OP_BLOCK_MAX;
}

static qn_reduce_kind_t reduce_kind(qn_op_t which) {
  if (which == QN_OP_BLOCK_MIN || which == QN_OP_WARP_MIN) return QN_REDUCE_MIN;
  if (which == QN_OP_BLOCK_MAX || which == QN_OP_WARP_MAX) return QN_REDUCE_MAX;
  return QN_REDUCE_SUM;
}

static qn_op_t warp_op(qn_reduce_kind_t kind) {
  if (kind == QN_REDUCE_MIN) return QN_OP_WARP_MIN;
  return kind == QN_REDUCE_MAX ? QN_OP_WARP_MAX : QN_OP_WARP_SUM;
}

// Makes the first lane of each warp store its `value`.
static void store_by_leader(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t* sums,
                            qn__ir_expr_t* value) {
  qn__ir_expr_t* is_first = qn__pb_op(self->pb, QN_OP_EQ, lane_of(self), qn__pb_int(self->pb, 0));
  qn__ir_stmt_t* test = is_first ? qn__stmt_new(self->pb->arena, QN__STMT_IF, is_first->loc) : NULL;
  if (!test) return;
  test->if_.condition = is_first;
  qn__pb_append(&test->if_.then_block, qn__pb_store(self->pb, sums, warp_of(self), NULL, value));
  qn__block_append(out, test);
}

static qn__ir_expr_t* lower_group(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  qn_reduce_kind_t kind = reduce_kind(expr->op);
  qn_dtype_t dtype = expr->dtype;
  int64_t most;
  qn__ir_expr_t* count = thread_count(self, &most);
  if (!count) return NULL;
  int64_t warps = (most + self->warp_size - 1) / self->warp_size;
  qn__ir_buffer_t* sums;
  if (self->pb->options->has_shuffles) {
    qn__ir_expr_t* own = qn__expr_op(self->pb->arena, warp_op(kind), expr->args[0], NULL, NULL);
    qn__ir_var_t* warp = qn__pb_let(self->pb, out, "warp", own);
    sums = memory(self, out, self->sums, dtype, "warps", warps);
    store_by_leader(self, out, sums, qn__pb_use(self->pb, warp));
  } else {
    qn__ir_buffer_t* all = publish(self, out, expr->args[0]);
    // Needs no other barrier: the one in publish() follows the last use of `sums`.
    sums = self->sums[place_of(dtype)];
    if (!sums) sums = memory(self, out, self->sums, dtype, "warps", warps);
    qn__ir_expr_t* begin =
        qn__pb_op(self->pb, QN_OP_MUL, warp_of(self), qn__pb_int(self->pb, self->warp_size));
    qn__ir_expr_t* end = qn__pb_op(self->pb, QN_OP_ADD, qn__pb_copy(self->pb, begin),
                                   qn__pb_int(self->pb, self->warp_size));
    if (most % self->warp_size != 0 || count->kind != QN__EXPR_INT) {
      end = qn__pb_op(self->pb, QN_OP_MIN, end, qn__pb_copy(self->pb, count));
    }
    store_by_leader(self, out, sums, qn__pb_reduce(self->pb, kind, all, begin, end));
  }
  qn__pb_barrier(self->pb, out);
  qn__ir_expr_t* value;
  if (is_over_block(expr->op)) {
    qn__ir_expr_t* end = count->kind == QN__EXPR_INT
                             ? qn__pb_int(self->pb, warps)
                             : qn__pb_op(self->pb, QN_OP_CEILDIV, qn__pb_copy(self->pb, count),
                                         qn__pb_int(self->pb, self->warp_size));
    value = qn__pb_reduce(self->pb, kind, sums, qn__pb_int(self->pb, 0), end);
  } else {
    value = qn__pb_load(self->pb, sums, warp_of(self), NULL);
  }
  return value ? qn__pb_use(self->pb, qn__pb_let(self->pb, out, "total", value)) : NULL;
}

qn__ir_expr_t* qn__exchange_lower(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  bool is_lane = qn__op_info(expr->op)->rule == QN__RULE_LANE;
  bool is_kept = is_over_block(expr->op) ? self->pb->options->has_block_reductions
                                         : self->pb->options->has_shuffles;
  int64_t lane;
  bool is_certain = is_lane && qn__expr_const_int(expr->args[1], &lane) &&
                    lane >= qn__lane_least(expr->op, self->warp_size) && lane < self->warp_size;
  if (is_kept && is_lane && self->pb->options->is_checked && !is_certain) {
    // Targets with shuffles have warps of a power of two: shuffle_xor needs no check of its lane.
    qn__ir_var_t* operand = qn__pb_let(self->pb, out, "distance", expr->args[1]);
    check_lane(self, out, expr, operand, NULL);
    expr->args[1] = qn__pb_use(self->pb, operand);
    if (!expr->args[1]) return NULL;
  }
  if (is_kept) return qn__pb_use(self->pb, qn__pb_let(self->pb, out, "exchange", expr));
  return is_lane ? lower_lane(self, out, expr) : lower_group(self, out, expr);
}
