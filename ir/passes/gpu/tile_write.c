// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tile_write.c: writes a product as blocks that each compute a tile of the result.
//
//   block.x block in 0..batch * ceildiv(M, 64) * ceildiv(N, 64) {
//     alloc a, b in shared;
//     thread.x t in 0..256 {
//       alloc acc: [4, 4] in local;                       // 0 everywhere
//       for round in 0..ceildiv(K, 16) {
//         let a_0 = A[min(row, M - 1), min(k, K - 1)]; ...  // each thread some elements
//         barrier; a[k, row] = a_0; ... barrier;
//         for k in 0..16 { acc[m, n] = acc[m, n] + a[k, m] * b[k, n]; ... }
//       }
//       if row < M { if column < N { ... C[row, column] = acc[m, n]; } } ...
//     }
//   }
//
// 1. Filling a tile has no branch for lines outside the matrices: it reads the last line instead. A
//    thread whose first line is outside adds nothing up. A thread across the edge reads the last
//    line again for its other lines, and never stores those results. So only values that the
//    program evaluates are evaluated. The last round of a reduction ends early.
// 2. Accesses to `acc` are written out with constant indices, so that code generators hold it in
//    registers without unrolling anything.
// 3. Threads read elements in the direction in which an operand is contiguous in memory. In shared
//    memory it is always contiguous across the step, since the sums of a thread are adjacent there.
// 4. The loads of a round come before the barrier that ends the previous round. Warps that are done
//    then wait for memory while others compute.
// 5. Blocks that follow each other have `strip` tiles down before they go across: those that run at
//    once read few rows and few columns, so that a cache holds them. The last strip has blocks
//    without rows.
#include "ir/passes/gpu/tile.h"

// ---- the block's tile, the thread's part of it

// Returns the lines of the tiles that blocks take together.
static int64_t strip_extent(const qn__tile_writer_t* w, qn__product_side_t side) {
  int64_t extent = qn__tile_extent(w->tile, side);
  return side == QN__PRODUCT_ROW ? extent * w->tile->shape.strip : extent;
}

static qn__ir_expr_t* strips_along(qn__tile_writer_t* w, qn__product_side_t side,
                                   qn__ir_expr_t* extent) {
  return qn__pb_op_int(w->pb, QN_OP_CEILDIV, extent, strip_extent(w, side));
}

static void write_outputs(qn__tile_writer_t* w, qn__ir_block_t* out, qn__product_side_t side) {
  qn__pass_builder_t* pb = w->pb;
  qn__tile_t* tile = w->tile;
  bool is_clamped = !w->is_exact[side] && qn__product_names_side(w->product, side);
  for (int64_t m = 0; m < tile->shape.outputs[side]; ++m) {
    qn__tile_place_t* place = &w->places[side][m];
    qn__ir_expr_t* line =
        qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, w->first[side]), qn__pb_use(pb, w->own[side]));
    place->at = qn__pb_let(pb, out, side == QN__PRODUCT_ROW ? "row" : "column",
                           qn__pb_op_int(pb, QN_OP_ADD, line, qn__tile_offset(tile, side, m)));
    qn__ir_var_t* at = place->at;
    if (is_clamped) {
      at = qn__pb_let(pb, out, "at", qn__tile_at_most(pb, qn__pb_use(pb, at), w->extent[side]));
    }
    if (!at) return;
    qn__product_place(w->product, out, w->product->side_dims[side], at);
    for (uint32_t d = 0; d < w->product->nest->count; ++d) {
      place->now[d] = w->product->names[d].now;
    }
  }
}

// Appends the place of a thread whose sums are in fragments of matrices (ir/tensor.h).
static void write_warp(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  const qn__tile_t* tile = w->tile;
  w->lane =
      qn__pb_let(pb, out, "lane", qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, w->t), 32));
  w->multiplier = w->lane;
  if (tile->shape.is_warpgroup) {
    qn__ir_expr_t* of_group = qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, w->t), 128);
    w->multiplier = qn__pb_let(pb, out, "of_group", of_group);
  }
  qn__ir_var_t* warp =
      qn__pb_let(pb, out, "warp", qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_use(pb, w->t), 32));
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__product_side_t side = (qn__product_side_t)s;
    bool is_row = side == QN__PRODUCT_ROW;
    qn__ir_expr_t* at = qn__pb_op_int(pb, is_row ? QN_OP_FLOORDIV : QN_OP_FLOORMOD,
                                      qn__pb_use(pb, warp), tile->shape.warps[QN__PRODUCT_COLUMN]);
    at = qn__pb_op_int(pb, QN_OP_MUL, at, qn__tile_extent(tile, side) / tile->shape.warps[side]);
    w->warp_first[s] = qn__pb_let(pb, out, is_row ? "warp_row" : "warp_column", at);
    qn__ir_expr_t* own =
        qn__pb_op_int(pb, is_row ? QN_OP_FLOORDIV : QN_OP_FLOORMOD, qn__pb_use(pb, w->lane), 4);
    if (!is_row) own = qn__pb_op_int(pb, QN_OP_MUL, own, 2);
    w->own[s] = qn__pb_let(pb, out, is_row ? "down" : "across",
                           qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, w->warp_first[s]), own));
  }
}

static void write_heads(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* block) {
  qn__pass_builder_t* pb = w->pb;
  qn__tile_t* tile = w->tile;
  int64_t strip = tile->shape.strip;
  qn__ir_var_t *rest = block, *of_strip = NULL;
  if (strip > 1) {
    qn__ir_expr_t* at = qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, block), strip);
    of_strip = qn__pb_let(pb, out, "of_strip", at);
    rest = qn__pb_let(pb, out, "rest",
                      qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_use(pb, block), strip));
  }
  for (int s = qn__product_sides; s-- > 0;) {
    qn__product_side_t side = (qn__product_side_t)s;
    bool is_row = side == QN__PRODUCT_ROW;
    w->extent[s] = qn__pb_named(pb, out, is_row ? "rows" : "columns",
                                qn__product_extent(w->product, w->product->side_dims[side]));
    int64_t constant;
    w->is_exact[s] = w->extent[s] && qn__expr_const_int(w->extent[s], &constant) &&
                     constant % qn__tile_extent(tile, side) == 0;
    qn__ir_expr_t* count = qn__pb_named(pb, out, is_row ? "tiles_down" : "tiles_across",
                                        strips_along(w, side, qn__pb_copy(pb, w->extent[s])));
    // Without a batch, the remainder of a row is the row: it shows that the row is small, so that
    // indices can be narrow.
    qn__ir_expr_t* at = qn__pb_op(pb, QN_OP_FLOORMOD, qn__pb_use(pb, rest), qn__pb_copy(pb, count));
    if (!is_row || qn__product_batch(w->product)) {
      qn__ir_expr_t* quotient = qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_use(pb, rest), count);
      rest = qn__pb_let(pb, out, is_row ? "batch" : "rest", quotient);
    }
    if (is_row && of_strip) {
      at = qn__pb_op(pb, QN_OP_ADD, qn__pb_op_int(pb, QN_OP_MUL, at, strip),
                     qn__pb_use(pb, of_strip));
    }
    w->first[s] = qn__pb_let(pb, out, is_row ? "first_row" : "first_column",
                             qn__pb_op_int(pb, QN_OP_MUL, at, qn__tile_extent(tile, side)));
  }
  if (!rest || qn__pb_stopped(pb)) return;
  if (qn__product_batch(w->product)) {
    qn__product_place(w->product, out, qn__product_batch(w->product), rest);
  }
  if (tile->shape.stages) {
    write_warp(w, out);
    for (int s = 0; s < qn__product_sides; ++s) write_outputs(w, out, (qn__product_side_t)s);
    return;
  }
  bool runs_down = tile->shape.runs_down;
  int64_t fastest = tile->shape.lines[runs_down ? QN__PRODUCT_ROW : QN__PRODUCT_COLUMN];
  for (int s = 0; s < qn__product_sides; ++s) {
    bool is_row = s == QN__PRODUCT_ROW;
    qn_op_t op = is_row == runs_down ? QN_OP_FLOORMOD : QN_OP_FLOORDIV;
    qn__ir_expr_t* group = qn__pb_op_int(pb, op, qn__pb_use(pb, w->t), fastest);
    w->own[s] = qn__pb_let(
        pb, out, is_row ? "down" : "across",
        qn__pb_op_int(pb, QN_OP_MUL, group, qn__tile_group(tile, (qn__product_side_t)s)));
  }
  for (int s = 0; s < qn__product_sides; ++s) write_outputs(w, out, (qn__product_side_t)s);
}

static void write_zeros(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  const qn__tile_t* tile = w->tile;
  const qn__ir_expr_t* reduce = w->product->reduce;
  if (tile->shape.stages) {
    int64_t count = tile->shape.outputs[QN__PRODUCT_ROW] * tile->shape.outputs[QN__PRODUCT_COLUMN];
    w->acc = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, reduce->dtype, "acc", count, -1);
    for (int64_t i = 0; i < count; ++i) {
      qn__ir_expr_t* zero = qn__pb_zero(pb, reduce->dtype);
      qn__pb_append(out, qn__pb_store(pb, w->acc, qn__pb_int(pb, i), NULL, zero));
    }
    return;
  }
  w->acc =
      qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, reduce->dtype, "acc",
                   tile->shape.outputs[QN__PRODUCT_ROW], tile->shape.outputs[QN__PRODUCT_COLUMN]);
  for (int64_t m = 0; m < tile->shape.outputs[QN__PRODUCT_ROW]; ++m) {
    for (int64_t n = 0; n < tile->shape.outputs[QN__PRODUCT_COLUMN]; ++n) {
      qn__ir_expr_t* value = qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype);
      qn__pb_append(out, qn__pb_store(pb, w->acc, qn__pb_int(pb, m), qn__pb_int(pb, n), value));
    }
  }
}

// ---- rounds

// Returns the block for the code of a line that may be outside: `out`, or a branch that tests it.
static qn__ir_block_t* inside(qn__tile_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                              int64_t m) {
  assert(w->extent[side] && m < w->tile->shape.outputs[side]);
  if (w->is_exact[side]) return out;
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* at = qn__pb_use(pb, w->places[side][m].at);
  qn__ir_expr_t* is_inside = qn__pb_op(pb, QN_OP_LT, at, qn__pb_copy(pb, w->extent[side]));
  qn__ir_stmt_t* test = qn__pb_if(pb, is_inside, (qn__ir_block_t){NULL, NULL});
  if (!test) return NULL;
  qn__block_append(out, test);
  return &test->if_.then_block;
}

static void write_rounds(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  qn__tile_t* tile = w->tile;
  qn__tile_stride_t strides[qn__product_max_operands];
  for (uint32_t o = 0; o < w->product->operand_count; ++o) {
    strides[o] = qn__tile_write_stride(w, out, &w->product->operands[o]);
  }
  qn__ir_expr_t* rounds =
      qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_copy(pb, w->steps), tile->shape.depth);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "round", rounds);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_var_t* done =
      qn__pb_let(pb, body, "done",
                 qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), tile->shape.depth));
  if (!done) return;
  qn__tile_fill(w, body, strides, done);
  // A thread whose first line is outside stores nothing.
  qn__ir_block_t* sums = body;
  for (int s = 0; s < qn__product_sides && sums; ++s)
    sums = inside(w, sums, (qn__product_side_t)s, 0);
  if (!sums) return;
  qn__tile_write_sums(w, sums, done);
  qn__block_append(out, loop);
}

// ---- results

static void write_results(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__tile_t* tile = w->tile;
  for (int64_t m = 0; m < tile->shape.outputs[QN__PRODUCT_ROW]; ++m) {
    qn__product_set(w->product, w->product->side_dims[QN__PRODUCT_ROW],
                    w->places[QN__PRODUCT_ROW][m].now);
    qn__ir_block_t* rows = inside(w, out, QN__PRODUCT_ROW, m);
    for (int64_t n = 0; rows && n < tile->shape.outputs[QN__PRODUCT_COLUMN]; ++n) {
      qn__product_set(w->product, w->product->side_dims[QN__PRODUCT_COLUMN],
                      w->places[QN__PRODUCT_COLUMN][n].now);
      qn__ir_block_t* columns = inside(w, rows, QN__PRODUCT_COLUMN, n);
      if (!columns) return;
      qn__product_write_body(w->product, columns, qn__tile_load_acc(w, m, n));
    }
  }
}

// ---- all

// Returns the block for the code of a tile that may be below the last row: `out`, or a branch.
static qn__ir_block_t* in_strip(qn__tile_writer_t* w, qn__ir_block_t* out) {
  int64_t rows;
  if (w->tile->shape.strip == 1 || (qn__expr_const_int(w->extent[QN__PRODUCT_ROW], &rows) &&
                                    rows % strip_extent(w, QN__PRODUCT_ROW) == 0)) {
    return out;
  }
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* has_rows = qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, w->first[QN__PRODUCT_ROW]),
                                      qn__pb_copy(pb, w->extent[QN__PRODUCT_ROW]));
  qn__ir_stmt_t* test = qn__pb_if(pb, has_rows, (qn__ir_block_t){NULL, NULL});
  if (!test || qn__pb_stopped(pb)) return NULL;
  qn__block_append(out, test);
  return &test->if_.then_block;
}

void qn__tile_write(qn__tile_t* tile, qn__ir_stmt_t* launch) {
  qn__product_t* product = &tile->product;
  qn__pass_builder_t* pb = product->pb;
  qn__tile_writer_t* w = QN__ARENA_NEW(pb->arena, qn__tile_writer_t);
  if (!w) return;
  assert(tile->shape.threads <= (int64_t)pb->max_threads && tile->shape.depth > 0);
  assert(launch->loop.launch->kind == QN__LAUNCH_ITERATIONS);
  *w = (qn__tile_writer_t){.tile = tile, .product = product, .pb = pb};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  w->t = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__ir_block_t shared = {NULL, NULL}, body = {NULL, NULL};
  for (int s = 0; tile->shape.stages && s < qn__product_sides; ++s) {
    qn__product_side_t side = (qn__product_side_t)s;
    w->buffers[s] = qn__pb_alloc(pb, &shared, QN__SCOPE_SHARED, tile->matrices[s].value->dtype,
                                 side == QN__PRODUCT_ROW ? "rows" : "columns",
                                 tile->shape.stages * qn__tensor_stage_rows(tile, side),
                                 qn__tensor_pitch(tile, side));
  }
  for (uint32_t o = 0; !tile->shape.stages && o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    w->buffers[o] = qn__pb_alloc(pb, &shared, QN__SCOPE_SHARED, operand->value->dtype,
                                 operand->side == QN__PRODUCT_ROW ? "rows" : "columns",
                                 tile->shape.depth, qn__tile_pitch(tile, operand));
  }
  if (qn__pb_stopped(pb)) return;
  write_heads(w, &body, launch->loop.var);
  if (qn__pb_stopped(pb)) return;
  qn__ir_block_t* inner = in_strip(w, &body);
  if (!inner) return;
  w->steps = qn__product_write_bounds(product, inner);
  write_zeros(w, inner);
  if (qn__pb_stopped(pb)) return;
  int64_t steps;
  w->has_even_steps =
      qn__expr_const_int(w->steps, &steps) && steps > 0 && steps % tile->shape.depth == 0;
  if (tile->shape.stages) {
    qn__tensor_write_rounds(w, inner);
  } else {
    write_rounds(w, inner);
  }
  if (qn__pb_stopped(pb)) return;
  write_results(w, inner);
  qn__ir_expr_t* blocks = qn__product_extent(product, qn__product_batch(product));
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__ir_expr_t* lines = qn__product_extent(product, product->side_dims[s]);
    blocks = qn__pb_op(pb, QN_OP_MUL, blocks, strips_along(w, (qn__product_side_t)s, lines));
  }
  blocks = qn__pb_op_int(pb, QN_OP_MUL, blocks, tile->shape.strip);
  if (qn__pb_stopped(pb)) return;
  launch->loop.end = blocks;
  qn__launch_add_head(launch, &shared);
  qn__launch_finish_x(pb, launch, w->t, tile->shape.threads, &body);
}
