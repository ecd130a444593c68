// ir/passes/lower_exchanges_memory.c: one exchange among threads, kept or through shared memory.
//
// Not here: how it comes to stand alone (lower_exchanges.c, with the whole picture at its top).
// Thread rule: one thread per body. Read next: pipeline.c.
#include "ir/passes/exchange.h"

// ---- nodes

static qn__ir_expr_t* number(qn__exchange_t* self, int64_t value) {
  return qn__expr_int(self->arena, QN_DTYPE_I64, value);
}

static qn__ir_expr_t* op(qn__exchange_t* self, qn_op_t which, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  return a && b ? qn__expr_op(self->arena, which, a, b, NULL) : NULL;
}

static qn__ir_expr_t* use(qn__exchange_t* self, qn__ir_var_t* var) {
  return var ? qn__expr_var(self->arena, var) : NULL;
}

static qn__ir_expr_t* copy(qn__exchange_t* self, const qn__ir_expr_t* expr) {
  return expr ? qn__expr_replace(self->arena, expr, NULL, NULL) : NULL;
}

static qn__ir_var_t* let(qn__exchange_t* self, qn__ir_block_t* out, const char* name,
                         qn__ir_expr_t* value) {
  qn__ir_stmt_t* stmt = value ? qn__stmt_new(self->arena, QN__STMT_LET, value->loc) : NULL;
  qn__ir_var_t* var = value ? qn__var_new(self->arena, QN__VAR_LET, value->dtype, name) : NULL;
  if (!stmt || !var) return NULL;
  stmt->let.var = var;
  stmt->let.value = value;
  qn__block_append(out, stmt);
  return var;
}

static void barrier(qn__exchange_t* self, qn__ir_block_t* out) {
  qn__ir_stmt_t* stmt = qn__stmt_new(self->arena, QN__STMT_BARRIER, (qn__ir_loc_t){0, 0});
  if (stmt) qn__block_append(out, stmt);
}

qn__ir_buffer_t* qn__exchange_buffer(qn__exchange_t* self, qn__ir_block_t* out,
                                     qn__ir_scope_t scope, qn_dtype_t dtype, const char* name,
                                     int64_t count) {
  qn__ir_buffer_t* buffer = qn__buf_new(self->arena, scope, dtype, name, count >= 0 ? 1 : 0);
  qn__ir_stmt_t* alloc = qn__stmt_new(self->arena, QN__STMT_ALLOC, (qn__ir_loc_t){0, 0});
  if (!buffer || !alloc) return NULL;
  if (count >= 0) {
    buffer->shape[0] = number(self, count);
    if (!buffer->shape[0]) return NULL;
  }
  alloc->alloc.buffer = buffer;
  qn__block_append(out, alloc);
  return buffer;
}

static qn__ir_expr_t** indices(qn__exchange_t* self, qn__ir_expr_t* index) {
  qn__ir_expr_t** list = qn__arena_alloc_array(self->arena, 1, sizeof *list);
  if (list) list[0] = index;
  return list;
}

void qn__exchange_store(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t* buffer,
                        qn__ir_expr_t* index, qn__ir_expr_t* value) {
  qn__ir_stmt_t* store = value ? qn__stmt_new(self->arena, QN__STMT_STORE, value->loc) : NULL;
  if (!store || !buffer || (buffer->rank > 0 && !index)) return;
  store->store.buffer = buffer;
  store->store.indices = indices(self, index);
  store->store.value = value;
  if (store->store.indices) qn__block_append(out, store);
}

qn__ir_expr_t* qn__exchange_load(qn__exchange_t* self, qn__ir_buffer_t* buffer,
                                 qn__ir_expr_t* index) {
  if (!buffer || (buffer->rank > 0 && !index)) return NULL;
  qn__ir_expr_t* load =
      qn__expr_new(self->arena, QN__EXPR_LOAD, buffer->dtype, (qn__ir_loc_t){0, 0});
  if (!load) return NULL;
  load->load.buffer = buffer;
  load->load.indices = indices(self, index);
  return load->load.indices ? load : NULL;
}

// ---- threads

static bool is_zero(const qn__ir_expr_t* expr) {
  return qn__expr_is_int(expr, 0);
}

static qn__ir_expr_t* extent(qn__exchange_t* self, const qn__ir_stmt_t* loop) {
  int64_t begin, end;
  if (qn__expr_const_int(loop->loop.begin, &begin) && qn__expr_const_int(loop->loop.end, &end) &&
      end > begin && begin >= 0) {
    return number(self, end - begin);
  }
  if (is_zero(loop->loop.begin)) return copy(self, loop->loop.end);
  return op(self, QN_OP_SUB, copy(self, loop->loop.end), copy(self, loop->loop.begin));
}

void qn__exchange_enter(qn__exchange_t* self, qn__ir_stmt_t* loop) {
  ++self->depth;
  self->axes[loop->loop.kind - QN_LOOP_THREAD_X] = loop;
  self->linear = NULL;
}

void qn__exchange_leave(qn__exchange_t* self, qn__ir_stmt_t* loop) {
  if (self->linear) {
    // The number of the thread, in front of all that uses it.
    qn__ir_expr_t* value = NULL;
    for (int axis = 2; axis >= 0; --axis) {
      const qn__ir_stmt_t* each = self->axes[axis];
      if (!each) continue;
      qn__ir_expr_t* place = use(self, each->loop.var);
      if (!is_zero(each->loop.begin)) {
        place = op(self, QN_OP_SUB, place, copy(self, each->loop.begin));
      }
      value = value ? op(self, QN_OP_ADD, op(self, QN_OP_MUL, value, extent(self, each)), place)
                    : place;
    }
    qn__ir_stmt_t* stmt = value ? qn__stmt_new(self->arena, QN__STMT_LET, loop->loc) : NULL;
    if (stmt) {
      stmt->let.var = self->linear;
      stmt->let.value = value;
      qn__ir_block_t body = {NULL, NULL};
      qn__block_append(&body, stmt);
      qn__block_splice(&body, &loop->loop.body);
      loop->loop.body = body;
    }
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
    self->linear = qn__var_new(self->arena, QN__VAR_LET, QN_DTYPE_I64, "thread");
  }
  return self->linear;
}

// Threads of the block, and at most how many.
static qn__ir_expr_t* thread_count(qn__exchange_t* self, int64_t* out_most) {
  qn__ir_expr_t* count = number(self, 1);
  for (int axis = 0; axis < 3; ++axis) {
    if (!self->axes[axis]) continue;
    qn__ir_expr_t* each = extent(self, self->axes[axis]);
    if (!count) return NULL;
    count = qn__expr_is_int(count, 1) ? each : op(self, QN_OP_MUL, count, each);
  }
  if (!count) return NULL;
  if (!qn__expr_const_int(count, out_most)) {
    *out_most = self->max_threads;
  } else {
    count = number(self, *out_most);
  }
  return count;
}

static size_t place_of(qn_dtype_t dtype) {
  return (size_t)dtype % qn__exchange_dtypes;
}

// Shared memory for exchanges. Where it may have been used before a barrier comes first.
static qn__ir_buffer_t* memory(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t** table,
                               qn_dtype_t dtype, const char* name, int64_t count) {
  qn__ir_buffer_t** slot = &table[place_of(dtype)];
  if (*slot || self->rounds > 0) barrier(self, out);
  if (!*slot) {
    *slot = qn__exchange_buffer(self, &self->shared, QN__SCOPE_SHARED, dtype, name, count);
  }
  return *slot;
}

// ---- exchanges

static qn__ir_expr_t* warp_of(qn__exchange_t* self) {
  return op(self, QN_OP_FLOORDIV, use(self, linear(self)), number(self, self->warp_size));
}

static qn__ir_expr_t* lane_of(qn__exchange_t* self) {
  return op(self, QN_OP_FLOORMOD, use(self, linear(self)), number(self, self->warp_size));
}

// all[t] = x, for all to see.
static qn__ir_buffer_t* publish(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* value) {
  int64_t most;
  if (!thread_count(self, &most)) return NULL;
  qn__ir_var_t* held = let(self, out, "own", value);
  qn__ir_buffer_t* all = memory(self, out, self->all, value->dtype, "lanes", most);
  qn__exchange_store(self, out, all, use(self, linear(self)), use(self, held));
  barrier(self, out);
  return all;
}

static qn__ir_expr_t* in_range(qn__exchange_t* self, qn__ir_var_t* var, int64_t low,
                               qn__ir_expr_t* high) {
  return op(self, QN_OP_LOGIC_AND, op(self, QN_OP_GE, use(self, var), number(self, low)),
            op(self, QN_OP_LT, use(self, var), high));
}

// assert that the lane is in the warp, in checked builds. `target`: the lane that shuffle_xor
// makes, or NULL where every operand below the warp size gives one in the warp.
static void check_lane(qn__exchange_t* self, qn__ir_block_t* out, const qn__ir_expr_t* expr,
                       qn__ir_var_t* operand, qn__ir_var_t* target) {
  if (!self->options->is_checked) return;
  qn__ir_expr_t* holds = in_range(self, operand, qn__lane_least(expr->op, self->warp_size),
                                  number(self, self->warp_size));
  if (expr->op == QN_OP_SHUFFLE_XOR && target) {
    holds = op(self, QN_OP_LOGIC_AND, holds,
               op(self, QN_OP_LT, use(self, target), number(self, self->warp_size)));
  }
  char message[QN__LANE_MESSAGE_BYTES];
  qn__lane_message(expr->op, self->warp_size, message);
  qn__ir_stmt_t* check = qn__stmt_new(self->arena, QN__STMT_ASSERT, expr->loc);
  const char* text = qn__arena_cstr(self->arena, qn__str(message));
  if (!holds || !check || !text) return;
  check->assert_.condition = holds;
  check->assert_.message = text;
  qn__block_append(out, check);
}

static qn__ir_expr_t* lower_lane(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  int64_t most;
  qn__ir_expr_t* count = thread_count(self, &most);
  qn__ir_var_t* operand = let(self, out, "distance", expr->args[1]);
  qn__ir_buffer_t* all = publish(self, out, expr->args[0]);
  qn__ir_var_t* lane = let(self, out, "lane", lane_of(self));
  qn_op_t how = QN_OP_ADD;
  if (expr->op == QN_OP_SHUFFLE_UP) how = QN_OP_SUB;
  if (expr->op == QN_OP_SHUFFLE_XOR) how = QN_OP_XOR;
  qn__ir_expr_t* other = expr->op == QN_OP_SHUFFLE
                             ? use(self, operand)
                             : op(self, how, use(self, lane), use(self, operand));
  qn__ir_var_t* target = let(self, out, "target", other);
  check_lane(self, out, expr, operand, target);
  // A distance of a warp or more has no thread, nor has one outside of the block.
  qn__ir_expr_t* holds = op(self, QN_OP_LOGIC_AND,
                            in_range(self, operand, qn__lane_least(expr->op, self->warp_size),
                                     number(self, self->warp_size)),
                            in_range(self, target, 0, number(self, self->warp_size)));
  qn__ir_expr_t* place =
      op(self, QN_OP_ADD, op(self, QN_OP_SUB, use(self, linear(self)), use(self, lane)),
         use(self, target));
  holds = op(self, QN_OP_LOGIC_AND, holds, op(self, QN_OP_LT, copy(self, place), count));
  if (!holds || !place) return NULL;
  qn__ir_expr_t* source =
      qn__expr_op(self->arena, QN_OP_SELECT, holds, place, use(self, linear(self)));
  qn__ir_expr_t* load = source ? qn__exchange_load(self, all, source) : NULL;
  return load ? use(self, let(self, out, "other", load)) : NULL;
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

// A reduction over `buffer` from `begin` on.
static qn__ir_expr_t* reduce_over(qn__exchange_t* self, qn_reduce_kind_t kind,
                                  qn__ir_buffer_t* buffer, qn__ir_expr_t* begin,
                                  qn__ir_expr_t* end) {
  if (!buffer || !begin || !end) return NULL;
  qn__ir_expr_t* reduce =
      qn__expr_new(self->arena, QN__EXPR_REDUCE, buffer->dtype, (qn__ir_loc_t){0, 0});
  if (!reduce) return NULL;
  reduce->reduce.reduce_kind = kind;
  reduce->reduce.reduce_var = qn__var_new(self->arena, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
  reduce->reduce.begin = begin;
  reduce->reduce.end = end;
  reduce->reduce.value = qn__exchange_load(self, buffer, use(self, reduce->reduce.reduce_var));
  return reduce->reduce.value ? reduce : NULL;
}

// The first lane of each warp stores what `value` is for its warp.
static void store_by_leader(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t* sums,
                            qn__ir_expr_t* value) {
  qn__ir_expr_t* is_first = op(self, QN_OP_EQ, lane_of(self), number(self, 0));
  qn__ir_stmt_t* test = is_first ? qn__stmt_new(self->arena, QN__STMT_IF, is_first->loc) : NULL;
  if (!test) return;
  test->if_.condition = is_first;
  qn__exchange_store(self, &test->if_.then_block, sums, warp_of(self), value);
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
  if (self->options->has_shuffles) {
    qn__ir_expr_t* own = qn__expr_op(self->arena, warp_op(kind), expr->args[0], NULL, NULL);
    qn__ir_var_t* warp = let(self, out, "warp", own);
    sums = memory(self, out, self->sums, dtype, "warps", warps);
    store_by_leader(self, out, sums, use(self, warp));
  } else {
    qn__ir_buffer_t* all = publish(self, out, expr->args[0]);
    // Since its last use all threads have met at the barriers of publish().
    sums = self->sums[place_of(dtype)];
    if (!sums) sums = memory(self, out, self->sums, dtype, "warps", warps);
    qn__ir_expr_t* begin = op(self, QN_OP_MUL, warp_of(self), number(self, self->warp_size));
    qn__ir_expr_t* end = op(self, QN_OP_ADD, copy(self, begin), number(self, self->warp_size));
    if (most % self->warp_size != 0 || count->kind != QN__EXPR_INT) {
      end = op(self, QN_OP_MIN, end, copy(self, count));
    }
    store_by_leader(self, out, sums, reduce_over(self, kind, all, begin, end));
  }
  barrier(self, out);
  qn__ir_expr_t* value;
  if (is_over_block(expr->op)) {
    qn__ir_expr_t* end = count->kind == QN__EXPR_INT ? number(self, warps)
                                                     : op(self, QN_OP_CEILDIV, copy(self, count),
                                                          number(self, self->warp_size));
    value = reduce_over(self, kind, sums, number(self, 0), end);
  } else {
    value = qn__exchange_load(self, sums, warp_of(self));
  }
  return value ? use(self, let(self, out, "total", value)) : NULL;
}

qn__ir_expr_t* qn__exchange_lower(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr) {
  bool is_lane = qn__op_info(expr->op)->rule == QN__RULE_LANE;
  bool is_kept =
      is_over_block(expr->op) ? self->options->has_block_reductions : self->options->has_shuffles;
  int64_t lane;
  bool is_certain = is_lane && qn__expr_const_int(expr->args[1], &lane) &&
                    lane >= qn__lane_least(expr->op, self->warp_size) && lane < self->warp_size;
  if (is_kept && is_lane && self->options->is_checked && !is_certain) {
    // Targets with shuffles have warps of a power of two: shuffle_xor needs no check of its lane.
    qn__ir_var_t* operand = let(self, out, "distance", expr->args[1]);
    check_lane(self, out, expr, operand, NULL);
    expr->args[1] = use(self, operand);
    if (!expr->args[1]) return NULL;
  }
  if (is_kept) return use(self, let(self, out, "exchange", expr));
  return is_lane ? lower_lane(self, out, expr) : lower_group(self, out, expr);
}
