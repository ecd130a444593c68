// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/cooperative_split.c: divides reductions and loops among the threads of a block.
//
//   sum j in a..b { f(j) }  becomes   let own = sum k in 0..ceildiv(b - a - t, T) {
//                                       let j = a + k * T + t; f(j) };
//                                     let total = block_sum(own);
//   for j in a..b { S }     becomes   for k in 0..ceildiv(b - a - t, T) {
//                                       let j = a + k * T + t; S }
// Adjacent threads then access adjacent elements, or adjacent groups of elements if the target has
// wide accesses (wide.c).
#include "ir/passes/gpu/cooperative.h"

#include "ir/passes/gpu/wide.h"

// Returns ceildiv(extent - t, T): the iterations of this thread. Consumes `extent`.
static qn__ir_expr_t* share(qn__coop_t* coop, qn__ir_expr_t* extent) {
  qn__pass_builder_t* pb = coop->pb;
  int64_t constant, threads;
  if (extent && qn__expr_const_int(extent, &constant) && constant >= 0 &&
      qn__expr_const_int(coop->count, &threads) && threads > 0 && constant % threads == 0) {
    return qn__pb_int(pb, constant / threads);
  }
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, extent, qn__pb_use(pb, coop->thread));
  return qn__pb_op(pb, QN_OP_CEILDIV, left, qn__pb_copy(pb, coop->count));
}

// Returns k * T + t.
static qn__ir_expr_t* position(qn__coop_t* coop, qn__ir_var_t* k) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_expr_t* first = qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, k), qn__pb_copy(pb, coop->count));
  return qn__pb_op(pb, QN_OP_ADD, first, qn__pb_use(pb, coop->thread));
}

static qn_op_t exchange_of(const qn__coop_t* coop, qn_reduce_kind_t kind) {
  static const qn_op_t ops[][2] = {
      [QN_REDUCE_SUM] = {QN_OP_BLOCK_SUM, QN_OP_WARP_SUM},
      [QN_REDUCE_MIN] = {QN_OP_BLOCK_MIN, QN_OP_WARP_MIN},
      [QN_REDUCE_MAX] = {QN_OP_BLOCK_MAX, QN_OP_WARP_MAX},
  };
  assert(kind != QN_REDUCE_PROD);  // which marks.c does not mark
  return ops[kind][coop->is_warp];
}

// Returns the reduction in lanes, or a choice of both forms if the length is not constant.
static qn__ir_expr_t* in_lanes(qn__coop_t* coop, const qn__ir_expr_t* length, qn__ir_expr_t* lanes,
                               qn__ir_expr_t* single, int64_t count) {
  qn__pass_builder_t* pb = coop->pb;
  if (!lanes || !single) return NULL;
  lanes->reduce.end =
      share(coop, qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, length), count));
  qn__ir_expr_t* condition = qn__wide_is_whole(pb, length, count);
  return condition ? qn__pb_cond(pb, condition, lanes, single) : lanes;
}

// Appends `let own = ...; let total = block_sum(own);`.
static bool exchange(qn__coop_t* coop, qn__ir_block_t* out, qn__ir_expr_t** slot,
                     qn__ir_expr_t* part, qn_reduce_kind_t kind) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_expr_t* value = qn__pb_use(pb, qn__pb_let(pb, out, "own", part));
  if (!value) return false;
  value = qn__expr_op(pb->arena, exchange_of(coop, kind), value, NULL, NULL);
  qn__ir_expr_t* use = qn__pb_use(pb, qn__pb_let(pb, out, "total", value));
  if (use) *slot = use;
  return use != NULL;
}

static bool split_reduce(qn__coop_t* coop, qn__ir_block_t* out, qn__ir_expr_t** slot) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_expr_t* reduce = *slot;
  assert(coop->thread && coop->count);
  reduce->reduce.is_cooperative = false;
  const qn__ir_buffer_t* row = qn__coop_row(NULL, reduce);
  if (row) {
    qn__ir_expr_t* part = qn__coop_row_reduce(coop, row, reduce);
    return part && exchange(coop, out, slot, part, reduce->reduce.reduce_kind);
  }
  qn__ir_expr_t* begin = reduce->reduce.begin;
  qn__ir_expr_t* extent = qn__pb_reduce_extent(pb, reduce);
  int64_t lanes = qn__wide_reduce_lanes(pb, reduce, coop->count);
  qn__ir_expr_t* wide = NULL;
  qn__ir_expr_t* length = qn__pb_copy(pb, extent);
  if (lanes > 1) {
    qn__ir_var_t* step = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
    wide = qn__wide_reduce(pb, reduce, step, position(coop, step), lanes);
    if (!wide) return false;
  }
  qn__ir_var_t* k = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
  qn__ir_block_t lets = {NULL, NULL};
  qn__pb_let_var(pb, &lets, reduce->reduce.reduce_var,
                 qn__pb_op(pb, QN_OP_ADD, begin, position(coop, k)));
  qn__block_splice(&lets, &reduce->reduce.lets);
  reduce->reduce.lets = lets;
  reduce->reduce.reduce_var = k;
  reduce->reduce.begin = qn__pb_int(pb, 0);
  reduce->reduce.end = share(coop, extent);
  if (!k || !reduce->reduce.begin || !reduce->reduce.end) return false;
  qn_reduce_kind_t kind = reduce->reduce.reduce_kind;
  if (wide) reduce = in_lanes(coop, length, wide, reduce, lanes);
  return reduce && exchange(coop, out, slot, reduce, kind);
}

typedef struct split {
  qn__coop_t* coop;
  qn__ir_block_t* out;
} split_t;

static bool split_slot(void* context, qn__ir_expr_t** slot) {
  split_t* self = context;
  if (qn__is_cooperative_reduce(*slot)) return split_reduce(self->coop, self->out, slot);
  return qn__expr_each_child(*slot, split_slot, self);
}

bool qn__coop_split_own(qn__coop_t* coop, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  split_t self = {coop, out};
  return qn__stmt_each_expr(stmt, split_slot, &self);
}

// Returns `for k in 0..ceildiv(E // 4 - t, T) { let at = k * T + t; vector lane in 0..4 { ... } }`.
static qn__ir_stmt_t* lanes_rounds(qn__coop_t* coop, qn__nest_t* nest, const qn__ir_expr_t* extent,
                                   int64_t count) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_expr_t* groups = qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, extent), count);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "k", share(coop, groups));
  if (!loop) return NULL;
  qn__ir_var_t* at = qn__pb_let(pb, &loop->loop.body, "at", position(coop, loop->loop.var));
  qn__ir_stmt_t* lanes = at ? qn__wide_loop(pb, nest, at, count) : NULL;
  if (!lanes) return NULL;
  qn__block_append(&loop->loop.body, lanes);
  return loop;
}

// Returns the loop with one iteration in each round. Consumes the nest.
static qn__ir_stmt_t* single_rounds(qn__coop_t* coop, qn__nest_t* nest, qn__ir_expr_t* extent) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "k", share(coop, extent));
  if (!loop) return NULL;
  qn__ir_expr_t* at = position(coop, loop->loop.var);
  if (nest->count > 1) at = qn__pb_use(pb, qn__pb_let(pb, &loop->loop.body, "at", at));
  if (!at) return NULL;
  qn__nest_place(pb, nest, at, &loop->loop.body);
  qn__block_splice(&loop->loop.body, &nest->body);
  return loop;
}

// Returns rounds in lanes, in single iterations, or a choice of both.
static qn__ir_stmt_t* split_nest(qn__coop_t* coop, qn__nest_t* nest) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_expr_t* extent = qn__nest_extent(pb, nest);
  int64_t lanes = qn__wide_shared_lanes(pb, nest, coop->count);
  if (lanes <= 1 || !extent) return single_rounds(coop, nest, extent);
  qn__ir_expr_t* condition =
      qn__wide_is_whole(pb, qn__pb_extent(pb, qn__nest_fastest(nest)), lanes);
  qn__ir_stmt_t* wide = lanes_rounds(coop, nest, extent, lanes);
  if (!condition || !wide) return wide;
  qn__ir_stmt_t* choice = qn__pb_if(pb, condition, qn__block_of(wide));
  qn__ir_stmt_t* single = single_rounds(coop, nest, extent);
  if (!choice || !single) return NULL;
  choice->if_.else_block = qn__block_of(single);
  return choice;
}

void qn__coop_split_loop(qn__coop_t* coop, qn__ir_block_t* out, qn__ir_stmt_t* stmt) {
  qn__pass_builder_t* pb = coop->pb;
  const qn__ir_buffer_t* row = qn__coop_row(&stmt->loop.body, NULL);
  qn__nest_t nest;
  assert(!qn__block_any(&stmt->loop.body, qn__threads_synchronize));  // marks.c
  qn__nest_open(pb, stmt, &nest);
  if (qn__pb_stopped(pb)) return;
  qn__block_serialize(&nest.body);
  qn__ir_stmt_t* work = row ? qn__coop_row_loop(coop, row, &nest) : split_nest(coop, &nest);
  if (work && coop->is_used) {
    work = qn__pb_if(pb, qn__pb_use(pb, coop->is_used), qn__block_of(work));
  }
  if (!work) return;
  work->role = QN__ROLE_DIVIDE;
  qn__block_append(out, work);
}
