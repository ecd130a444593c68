// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tensor_fill.c: brings the operands of a round into swizzled shared memory
// (ir/tensor.h). A thread copies chunks of 16 bytes, or computes single elements.
//
// Lines beyond the matrix repeat the last line, and are never stored: the program evaluates that
// line, too. Steps beyond the last are zeros of both operands, so they add nothing. Chunks that
// cross an edge are filled up with zeros.
#include "ir/passes/gpu/tile.h"

static int64_t size_of(const qn__tile_t* tile, qn__product_side_t side) {
  return (int64_t)qn_dtype_size_bytes(tile->matrices[side].value->dtype);
}
static int64_t chunk_of(const qn__tile_t* tile, qn__product_side_t side) {
  return QN__TENSOR_CHUNK_BYTES / size_of(tile, side);
}

// Returns `column` of a row as it is in swizzled memory.
static qn__ir_expr_t* swizzled(const qn__tile_writer_t* w, qn__product_side_t side,
                               qn__ir_expr_t* row, qn__ir_expr_t* column) {
  qn__pass_builder_t* pb = w->pb;
  int64_t chunk = chunk_of(w->tile, side);
  int64_t chunks = qn__tensor_pitch(w->tile, side) / chunk;
  assert(chunks >= 2 && (chunks & (chunks - 1)) == 0);  // qn__tensor_problem
  qn__ir_expr_t* phase = row;
  if (chunks < 8) phase = qn__pb_op_int(pb, QN_OP_FLOORDIV, phase, 8 / chunks);
  phase = qn__pb_op_int(pb, QN_OP_FLOORMOD, phase, chunks < 8 ? chunks : 8);
  phase = qn__pb_op_int(pb, QN_OP_MUL, phase, chunk);
  return qn__pb_op(pb, QN_OP_XOR, column, phase);
}

// The units that threads move, chunks or elements, lie along the rows of shared memory, or across
// them: neighbouring threads have neighbours in memory.
//
// Where there are panels (ir/tensor.h), each has as many threads.
typedef struct fill_walk {
  bool is_by_column;  // threads are adjacent down a column of shared memory
  int64_t width;      // elements of a unit
  int64_t fast;       // units that adjacent threads move
  int64_t by;         // rows, or columns, from one unit of a thread to the next
  int64_t count;      // of a thread
  int64_t threads;    // of a panel
} fill_walk_t;

static fill_walk_t walk_of(const qn__tile_writer_t* w, qn__product_side_t side) {
  const qn__tile_t* tile = w->tile;
  const qn__tile_matrix_t* matrix = &tile->matrices[side];
  bool is_along = w->product->operands[matrix->operand].runs_along_step;
  int64_t rows = qn__tensor_stage_rows(tile, side), pitch = qn__tensor_pitch(tile, side);
  fill_walk_t walk = {.width = matrix->load ? chunk_of(tile, side) : 1,
                      .threads = tile->shape.threads};
  if (qn__tensor_has_panels(tile, side)) {
    walk.threads /= rows / tile->shape.depth;
    rows = tile->shape.depth;
  }
  walk.is_by_column = is_along == matrix->is_across;
  walk.fast = walk.is_by_column ? rows : pitch / walk.width;
  walk.by = walk.threads / walk.fast;
  walk.count = rows * pitch / walk.width / walk.threads;
  assert(!matrix->load || !walk.is_by_column);
  assert(walk.threads % walk.fast == 0 && walk.count <= qn__tile_max_elements);
  return walk;
}

void qn__tensor_fill_begin(qn__tile_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  for (int s = 0; s < qn__product_sides; ++s) {
    fill_walk_t walk = walk_of(w, (qn__product_side_t)s);
    qn__ir_var_t* t = w->t;
    if (qn__tensor_has_panels(w->tile, (qn__product_side_t)s)) {
      w->fill_panel[s] =
          qn__pb_let(pb, out, "fill_panel",
                     qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_use(pb, t), walk.threads));
      t = qn__pb_let(pb, out, "of_panel",
                     qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, t), walk.threads));
      if (!t) return;
    }
    qn__ir_expr_t* fast = qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, t), walk.fast);
    qn__ir_expr_t* slow = qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_use(pb, t), walk.fast);
    qn__ir_expr_t* column =
        qn__pb_op_int(pb, QN_OP_MUL, walk.is_by_column ? slow : fast, walk.width);
    w->fill_row[s] = qn__pb_let(pb, out, "fill_row", walk.is_by_column ? fast : slow);
    w->fill_column[s] = qn__pb_let(pb, out, "fill_column", column);
  }
}

// The place of unit `r` of a thread in a stage.
typedef struct fill_place {
  qn__ir_expr_t* row;  // small expressions, copied at each use
  qn__ir_expr_t* column;
  bool is_new_row;  // other than that of the unit before
  bool is_new_column;
} fill_place_t;

static fill_place_t place_of(const qn__tile_writer_t* w, qn__product_side_t side,
                             const fill_walk_t* walk, int64_t r) {
  qn__pass_builder_t* pb = w->pb;
  fill_place_t place = {.is_new_row = r == 0 || !walk->is_by_column,
                        .is_new_column = r == 0 || walk->is_by_column};
  int64_t rows = walk->is_by_column ? 0 : r * walk->by;
  int64_t columns = walk->is_by_column ? r * walk->by : 0;
  place.row = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, w->fill_row[side]), rows);
  place.column = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, w->fill_column[side]), columns);
  return place;
}

// Sets the values of the product's variables at a place: line and step are clamped. Returns the
// line and the step before that.
typedef struct fill_position {
  qn__ir_var_t* line;  // of the matrix
  qn__ir_var_t* step;  // of the reduction, from 0
} fill_position_t;

// Returns `at` in the thread's panel: plus `extent` for each panel before it.
static qn__ir_expr_t* in_panel(const qn__tile_writer_t* w, qn__product_side_t side,
                               qn__ir_expr_t* at, int64_t extent) {
  if (!qn__tensor_has_panels(w->tile, side)) return at;
  qn__ir_expr_t* first =
      qn__pb_op_int(w->pb, QN_OP_MUL, qn__pb_use(w->pb, w->fill_panel[side]), extent);
  return qn__pb_op(w->pb, QN_OP_ADD, first, at);
}

static void set_position(qn__tile_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                         const fill_place_t* place, qn__ir_var_t* done, fill_position_t* position) {
  qn__pass_builder_t* pb = w->pb;
  qn__product_t* product = w->product;
  bool is_across = w->tile->matrices[side].is_across;
  if (is_across ? place->is_new_column : place->is_new_row) {
    qn__ir_expr_t* line = qn__pb_copy(pb, is_across ? place->column : place->row);
    line = in_panel(w, side, line, qn__tensor_pitch(w->tile, side));
    line = qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, w->first[side]), line);
    position->line = qn__pb_let(pb, out, "line", line);
    qn__ir_var_t* at = position->line;
    if (!w->is_exact[side]) {
      at = qn__pb_let(pb, out, "at", qn__tile_at_most(pb, qn__pb_use(pb, at), w->extent[side]));
    }
    if (!at) return;
    qn__product_place(product, out, product->side_dims[side], at);
  }
  if (is_across ? place->is_new_row : place->is_new_column) {
    qn__ir_expr_t* step = qn__pb_copy(pb, is_across ? place->row : place->column);
    step = qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, done), step);
    position->step = qn__pb_let(pb, out, "step", step);
    qn__ir_expr_t* at = qn__pb_use(pb, position->step);
    if (!w->has_even_steps) at = qn__tile_at_most(pb, at, w->steps);
    qn__product_set_step(product, out, at);
  }
  if (qn__pb_stopped(pb)) return;
  const qn__product_operand_t* operand = &product->operands[w->tile->matrices[side].operand];
  qn__product_write_lets(product, out, operand->is_needed,
                         qn__product_both(product) | QN__PRODUCT_STEP, 0);
}

static qn__ir_expr_t* in_stage(const qn__tile_writer_t* w, qn__product_side_t side,
                               qn__ir_var_t* slot, qn__ir_expr_t* row) {
  qn__ir_expr_t* first = qn__pb_op_int(w->pb, QN_OP_MUL, qn__pb_use(w->pb, slot),
                                       qn__tensor_stage_rows(w->tile, side));
  return qn__pb_op(w->pb, QN_OP_ADD, first, in_panel(w, side, row, w->tile->shape.depth));
}

// ---- copies

// Returns how many elements of a chunk are inside of the matrix; any number below 1: none.
static qn__ir_expr_t* valid_of(qn__tile_writer_t* w, qn__product_side_t side,
                               const fill_position_t* position) {
  qn__pass_builder_t* pb = w->pb;
  int64_t chunk = chunk_of(w->tile, side);
  if (!w->tile->matrices[side].is_across) {
    if (w->has_even_steps) return qn__pb_int(pb, chunk);
    return qn__pb_op(pb, QN_OP_SUB, qn__pb_copy(pb, w->steps), qn__pb_use(pb, position->step));
  }
  qn__ir_expr_t* left = qn__pb_int(pb, chunk);
  if (!w->is_exact[side]) {
    left =
        qn__pb_op(pb, QN_OP_SUB, qn__pb_copy(pb, w->extent[side]), qn__pb_use(pb, position->line));
  }
  if (w->has_even_steps) return left;
  qn__ir_expr_t* is_inside =
      qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, position->step), qn__pb_copy(pb, w->steps));
  return qn__pb_cond(pb, is_inside, left, qn__pb_int(pb, 0));
}

static void write_copy(qn__tile_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                       const fill_place_t* place, const fill_position_t* position,
                       qn__ir_var_t* slot) {
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* load = w->tile->matrices[side].load;
  qn__ir_tensor_t* tensor = QN__ARENA_NEW(pb->arena, qn__ir_tensor_t);
  qn__ir_stmt_t* stmt = qn__stmt_new(pb->arena, QN__STMT_TENSOR, (qn__ir_loc_t){0, 0});
  uint32_t rank = load->load.buffer->rank;
  qn__ir_expr_t** to = qn__arena_alloc_array(pb->arena, 2, sizeof *to);
  qn__ir_expr_t** from = qn__arena_alloc_array(pb->arena, rank, sizeof *from);
  if (!tensor || !stmt || !to || !from) return;
  to[0] = in_stage(w, side, slot, qn__pb_copy(pb, place->row));
  to[1] = swizzled(w, side, qn__pb_copy(pb, place->row), qn__pb_copy(pb, place->column));
  for (uint32_t i = 0; i < rank; ++i) {
    from[i] = qn__product_copy(w->product, load->load.indices[i]);
  }
  *tensor = (qn__ir_tensor_t){.kind = QN__TENSOR_COPY,
                              .ref_count = 2,
                              .refs = {{w->buffers[side], to}, {load->load.buffer, from}},
                              .operand = valid_of(w, side, position),
                              .count = (uint32_t)chunk_of(w->tile, side)};
  stmt->tensor = tensor;
  if (!qn__pb_stopped(pb)) qn__block_append(out, stmt);
}

void qn__tensor_fill_copy(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                          qn__ir_var_t* slot) {
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__product_side_t side = (qn__product_side_t)s;
    if (!w->tile->matrices[s].load) continue;
    fill_walk_t walk = walk_of(w, side);
    fill_position_t position = {NULL, NULL};
    for (int64_t r = 0; r < walk.count && !qn__pb_stopped(w->pb); ++r) {
      fill_place_t place = place_of(w, side, &walk, r);
      set_position(w, out, side, &place, done, &position);
      if (qn__pb_stopped(w->pb)) return;
      write_copy(w, out, side, &place, &position, slot);
    }
  }
}

// ---- elements

void qn__tensor_fill_load(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                          qn__tensor_elements_t* elements) {
  qn__pass_builder_t* pb = w->pb;
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__product_side_t side = (qn__product_side_t)s;
    const qn__tile_matrix_t* matrix = &w->tile->matrices[s];
    if (matrix->load) continue;
    fill_walk_t walk = walk_of(w, side);
    fill_position_t position = {NULL, NULL};
    for (int64_t r = 0; r < walk.count && !qn__pb_stopped(pb); ++r) {
      fill_place_t place = place_of(w, side, &walk, r);
      set_position(w, out, side, &place, done, &position);
      if (qn__pb_stopped(pb)) return;
      qn__ir_expr_t* value = qn__product_copy(w->product, matrix->value);
      if (!w->has_even_steps) {
        qn__ir_expr_t* is_inside =
            qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, position.step), qn__pb_copy(pb, w->steps));
        qn__ir_expr_t* zero = qn__pb_zero(pb, matrix->value->dtype);
        value = is_inside && value && zero
                    ? qn__expr_op(pb->arena, QN_OP_SELECT, is_inside, value, zero)
                    : NULL;
      }
      elements->values[s][r] = qn__pb_let(pb, out, s == QN__PRODUCT_ROW ? "a" : "b", value);
    }
  }
}

void qn__tensor_fill_store(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* slot,
                           const qn__tensor_elements_t* elements) {
  qn__pass_builder_t* pb = w->pb;
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__product_side_t side = (qn__product_side_t)s;
    if (w->tile->matrices[s].load) continue;
    fill_walk_t walk = walk_of(w, side);
    for (int64_t r = 0; r < walk.count && !qn__pb_stopped(pb); ++r) {
      fill_place_t place = place_of(w, side, &walk, r);
      qn__ir_expr_t* column = swizzled(w, side, qn__pb_copy(pb, place.row), place.column);
      qn__pb_append(out, qn__pb_store(pb, w->buffers[s], in_stage(w, side, slot, place.row), column,
                                      qn__pb_use(pb, elements->values[s][r])));
    }
  }
}
