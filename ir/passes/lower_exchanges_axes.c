// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_exchanges_axes.c: lowers reductions over some thread axes.
//
// The threads that have the same place along the other axes are a *row*; x counts fastest. The sum
// of each row is computed
//   - as a reduction over the block, if the axes are all that the block has;
//   - by shuffle_xor, if a warp has whole rows of neighbours, without memory;
//   - by warp_sum and shared memory, if a row is whole warps;
//   - by shared memory: all[t] = x; barrier; each thread sums its row. In long rows one thread for
//     each part sums that first, and stores the result to its own element.
#include "ir/passes/exchange.h"

enum {
  short_row = 64,  // threads that each thread sums itself
  part = 32,       // of a longer row
};

typedef struct rows {
  qn__exchange_t* self;
  const qn__ir_expr_t* expr;
  const qn__exchange_group_t* group;
  qn__ir_expr_t* count;  // of threads of a row
  int64_t known_count;   // -1: not constant
  bool are_neighbours;   // the threads of a row, in the order of their numbers
} rows_t;

static bool is_along(const rows_t* rows, uint32_t axis) {
  return rows->self->axes[axis] && qn__expr_has_axis(rows->expr, axis);
}

static void measure(rows_t* rows) {
  qn__pass_builder_t* pb = rows->self->pb;
  bool has_other = false;
  rows->are_neighbours = true;
  rows->count = qn__pb_int(pb, 1);
  for (uint32_t axis = 0; axis < 3; ++axis) {
    const qn__ir_stmt_t* loop = rows->self->axes[axis];
    if (!loop) continue;
    if (!is_along(rows, axis)) {
      has_other = true;
      continue;
    }
    if (has_other) rows->are_neighbours = false;
    rows->count = qn__pb_op(pb, QN_OP_MUL, rows->count, qn__exchange_extent(rows->self, loop));
  }
  if (!rows->count || !qn__expr_const_int(rows->count, &rows->known_count)) rows->known_count = -1;
}

// ---- shuffles

static qn__ir_expr_t* by_shuffles(const rows_t* rows, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = rows->self->pb;
  qn__ir_var_t* sum = qn__pb_let(pb, out, "own", rows->expr->args[0]);
  for (int64_t distance = rows->known_count / 2; distance > 0; distance /= 2) {
    qn__ir_expr_t* use = qn__pb_use(pb, sum);
    qn__ir_expr_t* lane = qn__pb_int(pb, distance);
    if (!use || !lane) return NULL;
    qn__ir_var_t* other =
        qn__pb_let(pb, out, "other", qn__expr_op(pb->arena, QN_OP_SHUFFLE_XOR, use, lane, NULL));
    sum = qn__pb_let(pb, out, "own",
                     qn__pb_op(pb, qn__reduce_op(rows->group->kind), qn__pb_use(pb, sum),
                               qn__pb_use(pb, other)));
  }
  return qn__pb_use(pb, sum);
}

static qn__ir_expr_t* by_warps(const rows_t* rows, qn__ir_block_t* out) {
  qn__exchange_t* self = rows->self;
  qn__pass_builder_t* pb = self->pb;
  int64_t most, warp_size = pb->warp_size, warps = rows->known_count / warp_size;
  qn__ir_expr_t* own = qn__expr_op(pb->arena, rows->group->warp, rows->expr->args[0], NULL, NULL);
  qn__ir_var_t* warp = qn__pb_let(pb, out, "warp", own);
  if (warps == 1) return qn__pb_use(pb, warp);
  if (!qn__exchange_count(self, &most)) return NULL;
  qn__ir_buffer_t* sums = qn__exchange_memory(self, out, self->sums, rows->expr->dtype, "warps",
                                              (most + warp_size - 1) / warp_size);
  qn__exchange_store_by_leader(self, out, sums, qn__pb_use(pb, warp));
  qn__pb_barrier(pb, out);
  qn__ir_expr_t* row =
      qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__exchange_linear(self), warps * warp_size);
  qn__ir_var_t* first = qn__pb_let(pb, out, "first", qn__pb_op_int(pb, QN_OP_MUL, row, warps));
  qn__ir_expr_t* end = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, first), warps);
  qn__ir_expr_t* value = qn__pb_reduce(pb, rows->group->kind, sums, qn__pb_use(pb, first), end);
  return qn__pb_use(pb, qn__pb_let(pb, out, "total", value));
}

// ---- memory

// Returns the sum over the row's axes of what `place` gives for an axis, times the axis's stride in
// numbers of threads or, if `is_in_row`, in places of the row.
static qn__ir_expr_t* weighted(const rows_t* rows, bool is_in_row,
                               qn__ir_expr_t* (*place)(const rows_t* rows, uint32_t axis,
                                                       qn__ir_expr_t* row_stride,
                                                       const qn__ir_expr_t* at),
                               const qn__ir_expr_t* at) {
  qn__pass_builder_t* pb = rows->self->pb;
  qn__ir_expr_t *sum = qn__pb_int(pb, 0), *stride = qn__pb_int(pb, 1);
  qn__ir_expr_t* row_stride = qn__pb_int(pb, 1);
  for (uint32_t axis = 0; axis < 3 && stride && row_stride; ++axis) {
    const qn__ir_stmt_t* loop = rows->self->axes[axis];
    if (!loop) continue;
    qn__ir_expr_t* extent = qn__exchange_extent(rows->self, loop);
    if (!extent) return NULL;
    if (is_along(rows, axis)) {
      qn__ir_expr_t* each = qn__pb_copy(pb, is_in_row ? row_stride : stride);
      qn__ir_expr_t* own = place(rows, axis, qn__pb_copy(pb, row_stride), at);
      sum = qn__pb_op(pb, QN_OP_ADD, sum, qn__pb_op(pb, QN_OP_MUL, own, each));
      row_stride = qn__pb_op(pb, QN_OP_MUL, row_stride, qn__pb_copy(pb, extent));
    }
    stride = qn__pb_op(pb, QN_OP_MUL, stride, extent);
  }
  return sum;
}

// Returns the thread's own place along an axis.
static qn__ir_expr_t* own_place(const rows_t* rows, uint32_t axis, qn__ir_expr_t* row_stride,
                                const qn__ir_expr_t* at) {
  (void)row_stride;
  (void)at;
  qn__pass_builder_t* pb = rows->self->pb;
  const qn__ir_stmt_t* loop = rows->self->axes[axis];
  return qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, loop->loop.var),
                   qn__pb_copy(pb, loop->loop.begin));
}

// Returns the place along an axis of thread `at` of the row.
static qn__ir_expr_t* place_at(const rows_t* rows, uint32_t axis, qn__ir_expr_t* row_stride,
                               const qn__ir_expr_t* at) {
  qn__pass_builder_t* pb = rows->self->pb;
  qn__ir_expr_t* place = qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, at), row_stride);
  bool is_last = true;
  for (uint32_t after = axis + 1; after < 3; ++after) is_last &= !is_along(rows, after);
  if (is_last) return place;
  return qn__pb_op(pb, QN_OP_FLOORMOD, place,
                   qn__exchange_extent(rows->self, rows->self->axes[axis]));
}

// Returns the sum of elements `i * step` of the row, for i in begin..end.
static qn__ir_expr_t* sum_of(const rows_t* rows, qn__ir_buffer_t* all, qn__ir_var_t* first,
                             qn__ir_expr_t* begin, qn__ir_expr_t* end, int64_t step) {
  qn__pass_builder_t* pb = rows->self->pb;
  qn__ir_var_t* i = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "i");
  qn__ir_expr_t* reduce =
      qn__pb_reduce_over(pb, rows->group->kind, rows->expr->dtype, i, begin, end);
  qn__ir_expr_t* at = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, i), step);
  if (!reduce || !at) return NULL;
  qn__ir_expr_t* offset = weighted(rows, false, place_at, at);
  reduce->reduce.value =
      qn__pb_load(pb, all, qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, first), offset), NULL);
  return reduce->reduce.value ? reduce : NULL;
}

// Appends the sums of parts by the first thread of each, in its own element.
static void sum_parts(const rows_t* rows, qn__ir_buffer_t* all, qn__ir_var_t* first,
                      qn__ir_block_t* out) {
  qn__exchange_t* self = rows->self;
  qn__pass_builder_t* pb = self->pb;
  qn__ir_var_t* own = qn__pb_let(pb, out, "place", weighted(rows, true, own_place, NULL));
  if (!own) return;
  qn__ir_expr_t* end = qn__pb_op(pb, QN_OP_MIN, qn__pb_copy(pb, rows->count),
                                 qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, own), part));
  qn__ir_block_t body = {NULL, NULL};
  qn__pb_append(&body, qn__pb_store(pb, all, qn__exchange_linear(self), NULL,
                                    sum_of(rows, all, first, qn__pb_use(pb, own), end, 1)));
  qn__ir_expr_t* begins =
      qn__pb_op_int(pb, QN_OP_EQ, qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, own), part), 0);
  qn__pb_append(out, qn__pb_if(pb, begins, body));
  qn__pb_barrier(pb, out);
}

static qn__ir_expr_t* by_memory(const rows_t* rows, qn__ir_block_t* out) {
  qn__exchange_t* self = rows->self;
  qn__pass_builder_t* pb = self->pb;
  qn__ir_buffer_t* all = qn__exchange_publish(self, out, rows->expr->args[0]);
  qn__ir_expr_t* offset = weighted(rows, false, own_place, NULL);
  qn__ir_var_t* first =
      qn__pb_let(pb, out, "first", qn__pb_op(pb, QN_OP_SUB, qn__exchange_linear(self), offset));
  if (!first || !rows->count) return NULL;
  bool is_short = rows->known_count >= 0 && rows->known_count <= short_row;
  qn__ir_expr_t* end = qn__pb_copy(pb, rows->count);
  if (!is_short) {
    sum_parts(rows, all, first, out);
    end = qn__pb_op_int(pb, QN_OP_CEILDIV, end, part);
  }
  qn__ir_expr_t* value = sum_of(rows, all, first, qn__pb_int(pb, 0), end, is_short ? 1 : part);
  return qn__pb_use(pb, qn__pb_let(pb, out, "total", value));
}

// ---- the choice

qn__ir_expr_t* qn__exchange_lower_axes(qn__exchange_t* self, qn__ir_block_t* out,
                                       qn__ir_expr_t* expr) {
  qn__pass_builder_t* pb = self->pb;
  rows_t rows = {.self = self, .expr = expr, .group = qn__exchange_group(expr->op)};
  measure(&rows);
  bool has_all = true;
  for (uint32_t axis = 0; axis < 3; ++axis) has_all &= !self->axes[axis] || is_along(&rows, axis);
  if (has_all) {
    qn__ir_expr_t* whole = qn__expr_op(pb->arena, rows.group->block, expr->args[0], NULL, NULL);
    return whole ? qn__exchange_lower(self, out, whole) : NULL;
  }
  int64_t count = rows.known_count, warp = pb->warp_size;
  if (pb->options->has_shuffles && rows.are_neighbours && count > 0) {
    bool is_power = (count & (count - 1)) == 0;
    if (count < warp && is_power && warp % count == 0) return by_shuffles(&rows, out);
    if (count % warp == 0) return by_warps(&rows, out);
  }
  return by_memory(&rows, out);
}
