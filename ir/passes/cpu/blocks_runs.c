// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_runs.c: loops over lines or steps that are an index space of several loops.
//
// The columns of a convolution are positions (y, x), its steps (channel, dy, dx). A loop over such
// an index space would divide at each iteration, and no access in it would be contiguous. So it is
// written as runs along the fastest loop:
//
//   for run in first // E..ceildiv(first + count, E) {      // E: the extent of the fastest loop
//     for i in max(first - run * E, 0)..min(first + count - run * E, E) {
//       body for line run * E + i - first
//     }
//   }
#include "ir/passes/cpu/blocks.h"
#include "ir/passes/products_write.h"

static qn__ir_expr_t* copy(const qn__blocks_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

bool qn__blocks_has_runs(const qn__blocks_writer_t* w, qn__product_side_t side) {
  uint32_t dims = w->product->side_dims[side];
  return (dims & (dims - 1)) != 0;
}

// Appends the loop over runs.
static bool open_run(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* first,
                     const qn__ir_expr_t* count, const qn__ir_expr_t* extent,
                     qn__blocks_run_t* run) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* limit =
      qn__pb_named(pb, out, "limit", qn__pb_op(pb, QN_OP_ADD, copy(w, first), copy(w, count)));
  qn__ir_expr_t* begin = qn__pb_op(pb, QN_OP_FLOORDIV, copy(w, first), copy(w, extent));
  qn__ir_expr_t* end = qn__pb_op(pb, QN_OP_CEILDIV, copy(w, limit), copy(w, extent));
  run->number = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "run");
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_SERIAL, run->number, begin, end);
  if (!loop) return false;
  qn__block_append(out, loop);
  run->body = &loop->loop.body;
  qn__ir_expr_t* base = qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, run->number), copy(w, extent));
  base = qn__pb_named(pb, run->body, "base", base);
  if (!base) return false;
  qn__ir_expr_t* from = qn__pb_op(pb, QN_OP_SUB, copy(w, first), copy(w, base));
  run->from = qn__pb_named(pb, run->body, "from", qn__pb_op_int(pb, QN_OP_MAX, from, 0));
  qn__ir_expr_t* to = qn__pb_op(pb, QN_OP_SUB, copy(w, limit), copy(w, base));
  run->to = qn__pb_named(pb, run->body, "to", qn__pb_op(pb, QN_OP_MIN, to, copy(w, extent)));
  qn__ir_expr_t* shift = qn__pb_op(pb, QN_OP_SUB, copy(w, base), copy(w, first));
  run->shift = qn__pb_named(pb, run->body, "shift", shift);
  return run->from && run->to && run->shift;
}

// Appends a loop over elements `from..to` of a run. `begin` is the first value of its variable,
// which has the name `name`.
static qn__blocks_loop_t elements(qn__blocks_writer_t* w, const qn__blocks_run_t* run,
                                  const qn__ir_expr_t* from, const qn__ir_expr_t* to,
                                  const qn__ir_expr_t* begin, uint32_t name) {
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_loop_t none = {NULL, NULL};
  qn__ir_var_t* i = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "i");
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_PARALLEL, i, copy(w, from), copy(w, to));
  if (!loop) return none;
  qn__block_append(run->body, loop);
  qn__ir_block_t* body = &loop->loop.body;
  qn__product_name_t* own = &w->product->names[name];
  qn__ir_expr_t* value = qn__pb_op(pb, QN_OP_ADD, copy(w, begin), qn__pb_use(pb, i));
  own->now = qn__pb_named(pb, body, own->var->name, value);
  qn__ir_expr_t* line = qn__pb_op(pb, QN_OP_ADD, copy(w, run->shift), qn__pb_use(pb, i));
  line = qn__pb_named(pb, body, "line", line);
  return line ? (qn__blocks_loop_t){body, line} : none;
}

bool qn__blocks_open_run(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                         const qn__ir_expr_t* first, const qn__ir_expr_t* count,
                         qn__blocks_run_t* run) {
  qn__product_t* product = w->product;
  const qn__nest_t* nest = product->nest;
  uint32_t dims = product->side_dims[side];
  *run = (qn__blocks_run_t){.body = NULL};
  for (uint32_t p = 0; p < nest->count; ++p) {
    if (dims >> nest->order[p] & 1) run->fastest = nest->order[p];
  }
  qn__ir_expr_t* extent = qn__pb_extent(w->pb, nest->loops[run->fastest]);
  extent = qn__pb_named(w->pb, out, "extent", extent);
  if (!extent || !open_run(w, out, first, count, extent, run)) return false;
  qn__product_place(product, run->body, dims & ~(1U << run->fastest), run->number);
  return !qn__pb_stopped(w->pb);
}

qn__blocks_loop_t qn__blocks_elements(qn__blocks_writer_t* w, const qn__blocks_run_t* run,
                                      const qn__ir_expr_t* from, const qn__ir_expr_t* to) {
  const qn__ir_stmt_t* along = w->product->nest->loops[run->fastest];
  return elements(w, run, from, to, along->loop.begin, run->fastest);
}

qn__blocks_loop_t qn__blocks_each_line(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                       qn__product_side_t side, const qn__ir_expr_t* first,
                                       const qn__ir_expr_t* count) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_loop_t none = {NULL, NULL};
  if (qn__blocks_has_runs(w, side)) {
    qn__blocks_run_t run;
    if (!qn__blocks_open_run(w, out, side, first, count, &run)) return none;
    return qn__blocks_elements(w, &run, run.from, run.to);
  }
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "j", copy(w, count));
  if (!loop) return none;
  qn__ir_expr_t* line = qn__pb_use(pb, loop->loop.var);
  qn__ir_var_t* at = qn__pb_let(pb, &loop->loop.body, "at",
                                qn__pb_op(pb, QN_OP_ADD, copy(w, first), copy(w, line)));
  if (!at) return none;
  qn__product_place(product, &loop->loop.body, product->side_dims[side], at);
  qn__block_append(out, loop);
  return (qn__blocks_loop_t){&loop->loop.body, line};
}

qn__blocks_loop_t qn__blocks_each_step(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                       const qn__blocks_steps_t* steps) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_loop_t none = {NULL, NULL};
  const qn__product_step_t* fastest = &product->steps[product->step_count - 1];
  if (product->step_count > 1) {
    qn__blocks_run_t run;
    // Without steps an extent may be 0. Then there are no runs.
    qn__ir_expr_t* extent = copy(w, fastest->extent);
    if (qn__product_steps(product) <= 0) extent = qn__pb_op_int(pb, QN_OP_MAX, extent, 1);
    extent = qn__pb_named(pb, out, "extent", extent);
    if (!extent || !open_run(w, out, steps->first, steps->count, extent, &run)) return none;
    // The slower variables are those of the run's first step.
    qn__ir_expr_t* first =
        qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, run.number), copy(w, fastest->extent));
    qn__product_set_step(product, run.body, first);
    return elements(w, &run, run.from, run.to, fastest->begin, fastest->name);
  }
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "p", copy(w, steps->count));
  if (!loop) return none;
  qn__ir_expr_t* p = qn__pb_use(pb, loop->loop.var);
  qn__product_set_step(product, &loop->loop.body,
                       qn__pb_op(pb, QN_OP_ADD, copy(w, steps->first), copy(w, p)));
  qn__block_append(out, loop);
  return (qn__blocks_loop_t){&loop->loop.body, p};
}

qn__ir_buffer_t* qn__blocks_flat(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                 const qn__product_operand_t* operand) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  assert(operand->is_flat && operand->value->kind == QN__EXPR_LOAD);
  qn__ir_buffer_t* base = operand->value->load.buffer;
  qn__ir_buffer_t* view = qn__buf_new(pb->arena, QN__SCOPE_VIEW, base->dtype, base->name, 1);
  qn__ir_stmt_t* stmt = qn__stmt_new(pb->arena, QN__STMT_ALLOC, (qn__ir_loc_t){0, 0});
  if (!view || !stmt) return NULL;
  view->id = pb->buffer_count++;
  view->base = base;
  view->shape[0] = copy(w, w->steps);
  view->strides = qn__arena_alloc_array(pb->arena, 1, sizeof *view->strides);
  view->base_indices = qn__arena_alloc_array(pb->arena, base->rank, sizeof *view->base_indices);
  if (!view->shape[0] || !view->strides || !view->base_indices) return NULL;
  view->strides[0] = qn__pb_int(pb, 1);
  uint32_t first = base->rank - product->step_count;
  for (uint32_t d = 0; d < base->rank; ++d) {
    const qn__ir_expr_t* index = operand->value->load.indices[d];
    view->base_indices[d] = d < first ? qn__product_copy(product, index) : qn__pb_int(pb, 0);
    if (!view->base_indices[d]) return NULL;
  }
  stmt->alloc.buffer = view;
  qn__block_append(out, stmt);
  return view;
}
