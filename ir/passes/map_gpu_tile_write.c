// ir/passes/map_gpu_tile_write.c: writes a product as blocks that each have a tile of the result.
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
// 1. What lies outside of the matrices is not branched around where a tile is filled: the last line
//    is read again. A thread adds up nothing where its first line lies outside; of one that lies
//    across the edge the summand sees the last line's place again, and what comes of it is never
//    stored. So nothing is evaluated that the program does not. The last round of a reduction ends
//    early.
// 2. Everything that names an element of `acc` is written out, so that no code generator has to
//    unroll anything to keep it in registers.
// 3. Threads bring elements in the direction in which an operand lies in memory. In shared memory
//    it always lies across the step, for the sums of a thread are neighbours there.
// 4. The loads of a round stand in front of the barrier behind the round before, so that warps
//    which are done wait for memory while others compute.
// Thread rule: one thread per body. Read next: map_gpu_launch.c.
#include "ir/passes/map_gpu_tile_write.h"

// ---- the block's tile, the thread's part of it

static qn__ir_expr_t* extent_of(qn__tile_writer_t* w, uint32_t dims) {
  qn__ir_expr_t* all = qn__gmap_int(w->map, 1);
  for (uint32_t d = 0; d < w->tile->nest->count; ++d) {
    if (!(dims >> d & 1)) continue;
    all = qn__gmap_op(w->map, QN_OP_MUL, all, qn__gmap_extent(w->map, w->tile->nest->loops[d]));
  }
  return all;
}

static qn__ir_expr_t* tiles_along(qn__tile_writer_t* w, qn__tile_side_t side,
                                  qn__ir_expr_t* extent) {
  return qn__gmap_op(w->map, QN_OP_CEILDIV, extent,
                     qn__gmap_int(w->map, qn__tile_extent(w->tile, side)));
}

// Does the summand name a loop of this side, beside what is in the tiles?
static bool names_side(const qn__tile_t* tile, qn__tile_side_t side) {
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    if (tile->is_needed[i] && (tile->names[i].mask & tile->side_dims[side])) return true;
  }
  return false;
}

static void write_outputs(qn__tile_writer_t* w, qn__ir_block_t* out, qn__tile_side_t side) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  bool is_clamped = !w->is_exact[side] && names_side(tile, side);
  for (int64_t m = 0; m < tile->shape.outputs[side]; ++m) {
    qn__tile_place_t* place = &w->places[side][m];
    qn__ir_expr_t* line = qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, w->first[side]),
                                      qn__gmap_use(map, w->own[side]));
    place->at = qn__gmap_let(map, out, side == QN__TILE_ROW ? "row" : "column",
                             qn__tile_add(map, line, qn__tile_offset(tile, side, m)));
    qn__ir_var_t* at = place->at;
    if (is_clamped) {
      at = qn__gmap_let(map, out, "at",
                        qn__tile_at_most(map, qn__gmap_use(map, at), w->extent[side]));
    }
    if (!at) return;
    qn__tile_write_place(w, out, tile->side_dims[side], at, place->now);
  }
}

static void write_heads(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* block) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__ir_var_t* rest = block;
  for (int s = qn__tile_sides; s-- > 0;) {
    qn__tile_side_t side = (qn__tile_side_t)s;
    bool is_row = side == QN__TILE_ROW;
    w->extent[s] =
        qn__tile_named(map, out, is_row ? "rows" : "columns", extent_of(w, tile->side_dims[side]));
    int64_t constant;
    w->is_exact[s] = w->extent[s] && qn__expr_const_int(w->extent[s], &constant) &&
                     constant % qn__tile_extent(tile, side) == 0;
    qn__ir_expr_t* count = qn__tile_named(map, out, is_row ? "tiles_down" : "tiles_across",
                                          tiles_along(w, side, qn__gmap_copy(map, w->extent[s])));
    qn__ir_expr_t* at = qn__gmap_use(map, rest);
    if (!is_row || qn__tile_batch(tile)) {
      at = qn__gmap_op(map, QN_OP_FLOORMOD, at, qn__gmap_copy(map, count));
      qn__ir_expr_t* quotient = qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_use(map, rest), count);
      rest = qn__gmap_let(map, out, is_row ? "batch" : "rest", quotient);
    }
    w->first[s] = qn__gmap_let(
        map, out, is_row ? "first_row" : "first_column",
        qn__gmap_op(map, QN_OP_MUL, at, qn__gmap_int(map, qn__tile_extent(tile, side))));
  }
  if (!rest || qn__gmap_stopped(map)) return;
  if (qn__tile_batch(tile)) {
    qn__ir_expr_t* now[qn__gmap_max_nest] = {NULL};
    qn__tile_write_place(w, out, qn__tile_batch(tile), rest, now);
    qn__tile_set_now(w, qn__tile_batch(tile), now);
  }
  bool runs_down = tile->shape.runs_down;
  int64_t fastest = tile->shape.lines[runs_down ? QN__TILE_ROW : QN__TILE_COLUMN];
  qn_op_t down = runs_down ? QN_OP_FLOORMOD : QN_OP_FLOORDIV;
  qn_op_t across = runs_down ? QN_OP_FLOORDIV : QN_OP_FLOORMOD;
  w->own[QN__TILE_ROW] =
      qn__gmap_let(map, out, "down",
                   qn__gmap_op(map, QN_OP_MUL, qn__tile_by(map, down, w->t, fastest),
                               qn__gmap_int(map, qn__tile_group(tile, QN__TILE_ROW))));
  w->own[QN__TILE_COLUMN] =
      qn__gmap_let(map, out, "across",
                   qn__gmap_op(map, QN_OP_MUL, qn__tile_by(map, across, w->t, fastest),
                               qn__gmap_int(map, qn__tile_group(tile, QN__TILE_COLUMN))));
  write_outputs(w, out, QN__TILE_ROW);
  write_outputs(w, out, QN__TILE_COLUMN);
}

// Lets that are the same for the whole block, and the bounds of the reduction.
static void write_bounds(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  bool is_needed[qn__tile_max_names] = {false};
  qn__tile_close(tile, tile->reduce->reduce.begin, is_needed);
  qn__tile_close(tile, tile->reduce->reduce.end, is_needed);
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    is_needed[i] |= tile->is_needed[i];
    for (uint32_t o = 0; o < tile->operand_count; ++o) {
      is_needed[i] |= tile->operands[o].is_needed[i];
    }
  }
  qn__tile_write_lets(w, out, is_needed, 0, qn__tile_inner_mask(tile) | QN__TILE_FIXED);
  w->begin = qn__tile_named(map, out, "begin", qn__tile_copy_now(w, tile->reduce->reduce.begin));
  qn__ir_expr_t* end =
      qn__tile_named(map, out, "end", qn__tile_copy_now(w, tile->reduce->reduce.end));
  if (!w->begin || !end) return;
  qn__ir_expr_t* steps = qn__gmap_range(map, w->begin, end);
  int64_t count;
  if (steps && qn__expr_const_int(steps, &count)) {
    w->steps = steps;
    w->has_even_steps = count > 0 && count % tile->shape.depth == 0;
    return;
  }
  w->steps = qn__tile_named(map, out, "steps", steps);
}

static void write_zeros(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__gmap_t* map = w->map;
  const qn__tile_t* tile = w->tile;
  const qn__ir_expr_t* reduce = tile->reduce;
  w->acc =
      qn__tile_allocate(map, out, QN__SCOPE_LOCAL, reduce->dtype, "acc",
                        tile->shape.outputs[QN__TILE_ROW], tile->shape.outputs[QN__TILE_COLUMN]);
  qn__ir_scalar_t neutral = qn__reduce_neutral(reduce->reduce.reduce_kind, reduce->dtype);
  for (int64_t m = 0; m < tile->shape.outputs[QN__TILE_ROW]; ++m) {
    for (int64_t n = 0; n < tile->shape.outputs[QN__TILE_COLUMN]; ++n) {
      qn__ir_expr_t* value = qn__dtype_is_float(reduce->dtype)
                                 ? qn__expr_float(map->arena, reduce->dtype, neutral.f)
                                 : qn__expr_int(map->arena, reduce->dtype, neutral.i);
      if (!w->acc || !value) return;
      qn__tile_store(map, out, w->acc, qn__gmap_int(map, m), qn__gmap_int(map, n), value);
    }
  }
}

// ---- rounds

// Where the body goes for a line that may lie outside: `out`, or the arm of a test.
static qn__ir_block_t* inside(qn__tile_writer_t* w, qn__ir_block_t* out, qn__tile_side_t side,
                              int64_t m) {
  if (w->is_exact[side]) return out;
  qn__gmap_t* map = w->map;
  qn__ir_expr_t* at = qn__gmap_use(map, w->places[side][m].at);
  qn__ir_stmt_t* test =
      qn__gmap_if(map, qn__gmap_op(map, QN_OP_LT, at, qn__gmap_copy(map, w->extent[side])));
  if (!test) return NULL;
  qn__block_append(out, test);
  return &test->if_.then_block;
}

static void write_rounds(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__tile_stride_t strides[qn__tile_max_operands];
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    strides[o] = qn__tile_write_stride(w, out, &tile->operands[o]);
  }
  qn__ir_var_t* round = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "round");
  qn__ir_expr_t* rounds = qn__gmap_op(map, QN_OP_CEILDIV, qn__gmap_copy(map, w->steps),
                                      qn__gmap_int(map, tile->shape.depth));
  qn__ir_stmt_t* loop = qn__gmap_loop(map, QN_LOOP_SERIAL, round, qn__gmap_int(map, 0), rounds);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_var_t* done =
      qn__gmap_let(map, body, "done", qn__tile_by(map, QN_OP_MUL, round, tile->shape.depth));
  if (!done) return;
  qn__tile_fill(w, body, strides, done);
  // A thread whose first line lies outside has nothing to store.
  qn__ir_block_t* sums = body;
  for (int s = 0; s < qn__tile_sides && sums; ++s) sums = inside(w, sums, (qn__tile_side_t)s, 0);
  if (!sums) return;
  qn__tile_write_sums(w, sums, done);
  qn__block_append(out, loop);
}

// ---- results

static void write_results(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__tile_t* tile = w->tile;
  qn__tile_name_t* total = &tile->names[tile->name_count - 1];
  for (int64_t m = 0; m < tile->shape.outputs[QN__TILE_ROW]; ++m) {
    qn__tile_set_now(w, tile->side_dims[QN__TILE_ROW], w->places[QN__TILE_ROW][m].now);
    qn__ir_block_t* rows = inside(w, out, QN__TILE_ROW, m);
    for (int64_t n = 0; rows && n < tile->shape.outputs[QN__TILE_COLUMN]; ++n) {
      qn__tile_set_now(w, tile->side_dims[QN__TILE_COLUMN], w->places[QN__TILE_COLUMN][n].now);
      qn__ir_block_t* columns = inside(w, rows, QN__TILE_COLUMN, n);
      if (!columns) return;
      for (qn__ir_stmt_t* let = tile->nest->lets.first; let; let = let->next) {
        qn__tile_write_let(w, columns, &tile->names[qn__tile_find(tile, let->let.var)]);
      }
      total->now = qn__tile_load_acc(w, m, n);
      qn__ir_subst_t subst = {.on_var = qn__tile_now_of, .arena = w->map->arena, .self = tile};
      qn__ir_block_t body = {NULL, NULL};
      if (!total->now || !qn__block_clone(&subst, &tile->nest->body, &body)) return;
      qn__block_splice(columns, &body);
    }
  }
}

// ---- all

void qn__tile_write(qn__tile_t* tile, qn__gmap_unit_t* unit) {
  qn__gmap_t* map = tile->map;
  qn__tile_writer_t* w = QN__ARENA_NEW(map->arena, qn__tile_writer_t);
  if (!w) return;
  *w = (qn__tile_writer_t){.tile = tile, .map = map};
  for (uint32_t i = 0; i < tile->name_count; ++i) tile->names[i].now = NULL;
  w->t = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__ir_var_t* block = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_block_t level = {NULL, NULL}, body = {NULL, NULL};
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    qn__tile_operand_t* operand = &tile->operands[o];
    operand->tile = qn__tile_allocate(map, &level, QN__SCOPE_SHARED, operand->value->dtype,
                                      operand->side == QN__TILE_ROW ? "rows" : "columns",
                                      tile->shape.depth, qn__tile_pitch(tile, operand));
  }
  if (qn__gmap_stopped(map)) return;
  write_heads(w, &body, block);
  if (qn__gmap_stopped(map)) return;
  write_bounds(w, &body);
  write_zeros(w, &body);
  if (qn__gmap_stopped(map)) return;
  write_rounds(w, &body);
  if (qn__gmap_stopped(map)) return;
  write_results(w, &body);
  qn__ir_expr_t* blocks = extent_of(w, qn__tile_batch(tile));
  for (int s = 0; s < qn__tile_sides; ++s) {
    qn__ir_expr_t* along = tiles_along(w, (qn__tile_side_t)s, extent_of(w, tile->side_dims[s]));
    blocks = qn__gmap_op(map, QN_OP_MUL, blocks, along);
  }
  if (qn__gmap_stopped(map)) return;
  qn__gmap_finish(map, unit, block, blocks, &level,
                  qn__gmap_threads(map, w->t, tile->shape.threads, &body));
}
