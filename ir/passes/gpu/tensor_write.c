// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tensor_write.c: writes the rounds of a product that matrix units compute.
//
//   for turn in 0..rounds + S - 1 {            // none if there are no rounds
//     wait S - 2; barrier;
//     if turn < rounds { copy a, b of round `turn` into slot turn % S; }
//     if turn >= S - 1 { multiply acc += a * b; }   // of round turn - (S - 1)
//   }
//
// Warpgroups copy between the multiplication and `finish acc`.
//
// 1. Shared memory has S slots. The copies of a turn go into the slot that the turn before has
//    read, behind the barrier.
// 2. A `wait` ends the group of the copies before it, those of the previous turn, also where there
//    are none. So the copies of round r are group r + 1. In turn t there are t + 1 groups, of which
//    all but the last S - 2 are complete: those up to round t - (S - 1).
// 3. Operands that are not copied are loaded before the multiplication and stored after it, into
//    the same slot. After the last round they load it again, and nothing reads that.
#include "ir/passes/gpu/tile.h"

static qn__ir_tensor_t* append_tensor(qn__pass_builder_t* pb, qn__ir_block_t* out,
                                      qn__ir_tensor_kind_t kind) {
  qn__ir_tensor_t* tensor = QN__ARENA_NEW(pb->arena, qn__ir_tensor_t);
  qn__ir_stmt_t* stmt = qn__stmt_new(pb->arena, QN__STMT_TENSOR, (qn__ir_loc_t){0, 0});
  if (!tensor || !stmt) return NULL;
  *tensor = (qn__ir_tensor_t){.kind = kind};
  stmt->tensor = tensor;
  qn__block_append(out, stmt);
  return tensor;
}

static bool has_side(const qn__tile_writer_t* w, bool is_copied) {
  return (w->tile->matrices[QN__PRODUCT_ROW].load != NULL) == is_copied ||
         (w->tile->matrices[QN__PRODUCT_COLUMN].load != NULL) == is_copied;
}

// Appends the end of the copies of a round. A warpgroup also needs it for what is stored.
static void write_wait(qn__tile_writer_t* w, qn__ir_block_t* out, int64_t count) {
  if (!has_side(w, true) && !w->tile->shape.is_warpgroup) return;
  qn__ir_tensor_t* tensor = append_tensor(w->pb, out, QN__TENSOR_WAIT);
  if (!tensor) return;
  tensor->count = (uint32_t)count;
  tensor->is_warpgroup = w->tile->shape.is_warpgroup;
}

// Appends a reference to all sums of the thread.
static void refer_to_sums(qn__tile_writer_t* w, qn__ir_tensor_t* tensor) {
  qn__ir_expr_t** sums = qn__arena_alloc_array(w->pb->arena, 1, sizeof *sums);
  if (!tensor || !sums) return;
  sums[0] = qn__pb_int(w->pb, 0);
  tensor->refs[0] = (qn__ir_tensor_ref_t){w->acc, sums};
  if (tensor->ref_count == 0) tensor->ref_count = 1;
}

// Appends the let of the first step of a round.
static qn__ir_var_t* write_done(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* round) {
  return qn__pb_let(w->pb, out, "done",
                    qn__pb_op_int(w->pb, QN_OP_MUL, round, w->tile->shape.depth));
}

static void write_multiply(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* slot) {
  qn__pass_builder_t* pb = w->pb;
  const qn__tile_t* tile = w->tile;
  qn__ir_tensor_t* tensor = append_tensor(pb, out, QN__TENSOR_MULTIPLY);
  if (!tensor) return;
  refer_to_sums(w, tensor);
  tensor->ref_count = 3;
  tensor->is_warpgroup = tile->shape.is_warpgroup;
  tensor->depth = (uint32_t)tile->shape.depth;
  tensor->operand = qn__pb_use(pb, w->multiplier);
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__product_side_t side = (qn__product_side_t)s;
    qn__ir_expr_t** at = qn__arena_alloc_array(pb->arena, 2, sizeof *at);
    if (!at) return;
    bool is_across = tile->matrices[s].is_across;
    qn__ir_expr_t* row =
        qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, slot), qn__tensor_stage_rows(tile, side));
    qn__ir_expr_t* line = qn__pb_use(pb, w->warp_first[s]);
    if (tile->shape.is_warpgroup && s == QN__PRODUCT_ROW) {
      int64_t rows = (int64_t)QN__TENSOR_WARPS * QN__TENSOR_ROWS;
      line = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_op_int(pb, QN_OP_FLOORDIV, line, rows), rows);
    }
    // A warpgroup's rows are one panel, which has as many rows of steps.
    bool is_row_of_steps = is_across && !tile->shape.is_warpgroup;
    at[0] = is_row_of_steps ? row : qn__pb_op(pb, QN_OP_ADD, row, line);
    at[1] = is_row_of_steps ? line : qn__pb_int(pb, 0);
    tensor->refs[s + 1] = (qn__ir_tensor_ref_t){w->buffers[s], at};
    tensor->is_across[s] = is_across;
    tensor->tiles[s] = (uint32_t)(tile->shape.outputs[s] / 2);
  }
}

static void write_copies(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* turn,
                         qn__ir_var_t* slot, const qn__ir_expr_t* rounds) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* is_round = qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, turn), qn__pb_copy(pb, rounds));
  qn__ir_stmt_t* test = qn__pb_if(pb, is_round, (qn__ir_block_t){NULL, NULL});
  if (!test) return;
  qn__ir_var_t* done = write_done(w, &test->if_.then_block, qn__pb_use(pb, turn));
  if (!done) return;
  qn__tensor_fill_copy(w, &test->if_.then_block, done, slot);
  qn__block_append(out, test);
}

static void write_turn(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* turn,
                       const qn__ir_expr_t* rounds) {
  qn__pass_builder_t* pb = w->pb;
  int64_t stages = w->tile->shape.stages;
  write_wait(w, out, stages - 2);
  qn__pb_barrier(pb, out);
  qn__ir_var_t* slot =
      qn__pb_let(pb, out, "slot", qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, turn), stages));
  if (!slot) return;
  bool is_warpgroup = w->tile->shape.is_warpgroup;
  if (has_side(w, true) && !is_warpgroup) write_copies(w, out, turn, slot, rounds);
  qn__tensor_elements_t elements = {0};
  if (has_side(w, false)) {
    qn__ir_expr_t* round = qn__tile_at_most(pb, qn__pb_use(pb, turn), rounds);
    qn__ir_var_t* done = write_done(w, out, round);
    if (!done) return;
    qn__tensor_fill_load(w, out, done, &elements);
  }
  qn__ir_expr_t* is_ready = qn__pb_op_int(pb, QN_OP_GE, qn__pb_use(pb, turn), stages - 1);
  qn__ir_stmt_t* test = qn__pb_if(pb, is_ready, (qn__ir_block_t){NULL, NULL});
  if (!test) return;
  // (turn - (S - 1)) % S
  qn__ir_expr_t* now = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, turn), 1);
  qn__ir_var_t* ready = qn__pb_let(pb, &test->if_.then_block, "ready",
                                   qn__pb_op_int(pb, QN_OP_FLOORMOD, now, stages));
  if (!ready) return;
  write_multiply(w, &test->if_.then_block, ready);
  qn__block_append(out, test);
  if (is_warpgroup) {
    if (has_side(w, true)) write_copies(w, out, turn, slot, rounds);
    refer_to_sums(w, append_tensor(pb, out, QN__TENSOR_FINISH));
  }
  qn__tensor_fill_store(w, out, slot, &elements);
}

void qn__tensor_write_rounds(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  assert(w->tile->shape.stages >= 2 && w->lane);
  qn__tensor_fill_begin(w, out);
  qn__ir_expr_t* rounds = qn__pb_named(
      pb, out, "rounds",
      qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_copy(pb, w->steps), w->tile->shape.depth));
  if (qn__pb_stopped(pb)) return;
  qn__ir_expr_t* turns =
      qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, rounds), w->tile->shape.stages - 1);
  qn__ir_expr_t* has_rounds = qn__pb_op_int(pb, QN_OP_GT, qn__pb_copy(pb, rounds), 0);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "turn",
                                          qn__pb_cond(pb, has_rounds, turns, qn__pb_int(pb, 0)));
  if (!loop || qn__pb_stopped(pb)) return;
  write_turn(w, &loop->loop.body, loop->loop.var, rounds);
  qn__block_append(out, loop);
}
