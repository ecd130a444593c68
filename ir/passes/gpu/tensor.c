// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tensor.c: decides whether matrix units compute a product, and by which shapes.
//
// 1. The summand is the product of one operand of each side, nothing else: their values are in
//    shared memory as they are in the program before a conversion to the dtype of the sums. A unit
//    multiplies f16 or bf16, with sums of f32, and i8 or u8, with sums of i32. docs/ir.md says why
//    the sums may be rounded as the unit does it.
// 2. f32 is multiplied as tf32, which drops 13 bits: only in functions marked `fast`.
// 3. An operand whose neighbours in memory are neighbours in a row of shared memory, whatever the
//    place, is *copied*: 16 bytes at a time, without registers. Others are loaded, computed and
//    stored, also transposed where the unit cannot transpose them.
// 4. Tiles are of 128 x 128 where they keep the device busy, else of 64 x 64, with 64 bytes of
//    steps in a stage. There are as many stages as hide the latency of memory, if shared memory
//    has room. Constant extents with too few of these tiles get 32 x 32 with longer stages.
//    Warpgroups have 192 x 192 and 64 x 128 instead, with 128 bytes of steps: the larger a tile,
//    the fewer bytes the L2 cache delivers for each product, and that is what limits them.
// 5. Few rows, or few columns, have strips of 16 x 32 with 256 bytes of steps: memory limits these,
//    so a block has many bytes in flight.
// 6. All shapes of a function add up a sum in the same order, by the same instructions. So a row's
//    result does not depend on the number of rows.
#include "ir/passes/gpu/tile.h"

enum {
  least_stage_bytes = 64,  // of a line's steps
  group_stage_bytes = QN__TENSOR_GROUP_CHUNKS * QN__TENSOR_CHUNK_BYTES,
  strip_stage_bytes = 256,
  max_stages = 4,
  stored_stages = 2,  // of operands that are not copied: the next round waits in registers
  large = 128,
  small = 64,
  tiny = 32,
  large_strip = 4,
  few_lines = 16,
  warp_size = 32,
};

// ---- operands

// Returns the value of a variable that a let of the product defines, or the expression itself.
static const qn__ir_expr_t* resolve(const qn__product_t* product, const qn__ir_expr_t* expr) {
  while (expr->kind == QN__EXPR_VAR) {
    int name = qn__product_name(product, expr->var);
    if (name < 0 || !product->names[name].let) break;
    expr = product->names[name].let->let.value;
  }
  return expr;
}

// Returns the operand's value before the conversion to the dtype of the sums, if a matrix unit
// multiplies its dtype; else NULL.
static const qn__ir_expr_t* unit_value(const qn__product_t* product, const qn__ir_expr_t* value) {
  value = resolve(product, value);
  const qn__ir_expr_t* inner = value->kind == QN__EXPR_CAST ? value->args[0] : value;
  qn_dtype_t dtype = inner->dtype;
  if (value->dtype != product->reduce->dtype) return NULL;
  if (value->dtype == QN_DTYPE_F32) {
    if (dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16) return inner;
    return product->pb->function->is_fast ? value : NULL;  // rounded to tf32
  }
  return qn__tensor_sum_dtype(dtype, dtype) == value->dtype ? inner : NULL;
}

// Returns true if 16 bytes of shared memory are 16 bytes of memory, wherever they begin.
static bool is_chunked(qn__tile_t* tile, const qn__tile_matrix_t* matrix,
                       const qn__ir_expr_t* load) {
  qn__product_t* product = &tile->product;
  const qn__product_operand_t* operand = &product->operands[matrix->operand];
  qn__ir_scope_t scope = qn__buf_root(load->load.buffer)->scope;
  if ((scope != QN__SCOPE_PARAM && scope != QN__SCOPE_GLOBAL) || load->load.buffer->rank == 0) {
    return false;
  }
  if (!matrix->is_across) {
    qn__ir_var_t* step = product->names[product->steps[0].name].var;
    return operand->runs_along_step && qn__product_is_contiguous(product, operand, load, step);
  }
  const qn__ir_stmt_t* loop = qn__product_fastest(product, operand->side);
  uint32_t dims = product->side_dims[operand->side];
  int64_t chunk = QN__TENSOR_CHUNK_BYTES / (int64_t)qn_dtype_size_bytes(load->dtype);
  bool is_one_loop = (dims & (dims - 1)) == 0;
  int64_t trips = qn__const_trips(loop->loop.begin, loop->loop.end);
  return (is_one_loop || (trips > 0 && trips % chunk == 0)) &&
         qn__product_is_contiguous(product, operand, load, loop->loop.var);
}

static bool find_matrix(qn__tile_t* tile, uint32_t o) {
  qn__product_t* product = &tile->product;
  const qn__product_operand_t* operand = &product->operands[o];
  qn__tile_matrix_t* matrix = &tile->matrices[operand->side];
  const qn__ir_expr_t* value = unit_value(product, operand->value);
  if (!value) return false;
  *matrix = (qn__tile_matrix_t){.operand = o, .value = value};
  matrix->is_across = !operand->runs_along_step && qn_dtype_size_bytes(value->dtype) == 2;
  const qn__ir_expr_t* load = resolve(product, value);
  if (load->kind == QN__EXPR_LOAD && is_chunked(tile, matrix, load)) matrix->load = load;
  return true;
}

static bool find_matrices(qn__tile_t* tile) {
  const qn__product_t* product = &tile->product;
  const qn__ir_expr_t* reduce = product->reduce;
  const qn__ir_expr_t* value = reduce->reduce.value;
  if (reduce->reduce.reduce_kind != QN_REDUCE_SUM || value->kind != QN__EXPR_OP ||
      value->op != QN_OP_MUL || product->step_count > 1 || product->operand_count != 2 ||
      product->slot_count != 2 || product->operands[0].side == product->operands[1].side) {
    return false;
  }
  for (uint32_t s = 0; s < 2; ++s) {
    qn__ir_expr_t* const* slot = product->slots[s].slot;
    if (slot != &value->args[0] && slot != &value->args[1]) return false;
  }
  for (uint32_t o = 0; o < 2; ++o) {
    if (!find_matrix(tile, o)) return false;
  }
  qn_dtype_t rows = tile->matrices[QN__PRODUCT_ROW].value->dtype;
  qn_dtype_t columns = tile->matrices[QN__PRODUCT_COLUMN].value->dtype;
  return qn__tensor_sum_dtype(rows, columns) == reduce->dtype;
}

// ---- shapes

static int64_t size_of(const qn__tile_t* tile) {
  return (int64_t)qn_dtype_size_bytes(tile->matrices[QN__PRODUCT_ROW].value->dtype);
}

bool qn__tensor_has_panels(const qn__tile_t* tile, qn__product_side_t side) {
  return tile->shape.is_warpgroup && tile->matrices[side].is_across;
}

int64_t qn__tensor_pitch(const qn__tile_t* tile, qn__product_side_t side) {
  if (qn__tensor_has_panels(tile, side)) return group_stage_bytes / size_of(tile);
  return tile->matrices[side].is_across ? qn__tile_extent(tile, side) : tile->shape.depth;
}

int64_t qn__tensor_stage_rows(const qn__tile_t* tile, qn__product_side_t side) {
  return qn__tile_extent(tile, side) * tile->shape.depth / qn__tensor_pitch(tile, side);
}

// Returns true if a thread can hold the elements that it loads in a round and that are not copied.
static bool holds_elements(const qn__tile_t* tile, const qn__tile_shape_t* shape) {
  for (int s = 0; s < qn__product_sides; ++s) {
    const qn__tile_matrix_t* matrix = &tile->matrices[s];
    int64_t lines = shape->lines[s] * shape->outputs[s];
    bool is_along = tile->product.operands[matrix->operand].runs_along_step;
    int64_t count = lines * shape->depth / shape->threads;
    int64_t adjacent = is_along ? shape->depth : lines;  // elements of adjacent threads
    bool is_held = count <= qn__tile_max_elements && shape->threads % adjacent == 0;
    if (!matrix->load && !is_held) return false;
  }
  return true;
}

// Sets the shape of `rows` x `columns` by a number of warps along each side, with stages of `least`
// to `bytes` bytes of steps. Returns false if a block, its registers or its shared memory are too
// large.
static bool choose_bytes(qn__tile_t* tile, const int64_t* extents, const int64_t* warps,
                         int64_t least, int64_t bytes, bool is_warpgroup) {
  const qn__pass_builder_t* pb = tile->product.pb;
  qn__tile_shape_t shape = {.strip = 1, .is_warpgroup = is_warpgroup};
  shape.threads = warp_size * warps[QN__PRODUCT_ROW] * warps[QN__PRODUCT_COLUMN];
  if (shape.threads > (int64_t)pb->max_threads) return false;
  for (int s = 0; s < qn__product_sides; ++s) {
    shape.warps[s] = warps[s];
    shape.lines[s] = warps[s] * (s == QN__PRODUCT_ROW ? 8 : 4);
    shape.outputs[s] = extents[s] / shape.lines[s];
    assert(shape.outputs[s] % (s == QN__PRODUCT_ROW ? 2 : 4) == 0);
  }
  bool has_copies = tile->matrices[QN__PRODUCT_ROW].load || tile->matrices[QN__PRODUCT_COLUMN].load;
  for (; bytes >= least; bytes /= 2) {
    shape.depth = bytes / size_of(tile);
    if (!holds_elements(tile, &shape)) continue;
    int64_t stage = (extents[QN__PRODUCT_ROW] + extents[QN__PRODUCT_COLUMN]) * bytes;
    shape.stages = has_copies ? max_stages : stored_stages;
    while (shape.stages > 2 && shape.stages * stage > qn__shared_limit(pb)) --shape.stages;
    if (shape.stages * stage > qn__shared_limit(pb)) continue;
    tile->shape = shape;
    return true;
  }
  return false;
}

static bool choose_shape(qn__tile_t* tile, const int64_t* extents, const int64_t* warps,
                         int64_t bytes) {
  return choose_bytes(tile, extents, warps, least_stage_bytes, bytes, false);
}

// Sets a shape of warpgroups: 64 rows each, and all columns. Returns false if shared memory has no
// room for three stages, with fewer of which they would wait for memory.
static bool choose_warpgroups(qn__tile_t* tile, int64_t groups, int64_t columns) {
  if (!tile->product.pb->options->has_warpgroups || size_of(tile) > 2) return false;
  int64_t warps[] = {groups * QN__TENSOR_WARPS, 1};
  int64_t extents[] = {warps[QN__PRODUCT_ROW] * QN__TENSOR_ROWS, columns};
  qn__tile_shape_t before = tile->shape;
  if (choose_bytes(tile, extents, warps, group_stage_bytes, group_stage_bytes, true) &&
      tile->shape.stages >= 3) {
    return true;
  }
  tile->shape = before;
  return false;
}

static bool choose_large(qn__tile_t* tile) {
  static const int64_t extents[] = {large, large}, warps[] = {2, 4};
  if (!choose_warpgroups(tile, 3, 192) && !choose_shape(tile, extents, warps, least_stage_bytes)) {
    return false;
  }
  tile->shape.strip = large_strip;
  return true;
}
static bool choose_small(qn__tile_t* tile) {
  static const int64_t extents[] = {small, small}, warps[] = {2, 2};
  return choose_warpgroups(tile, 1, 128) || choose_shape(tile, extents, warps, least_stage_bytes);
}
static bool choose_tiny(qn__tile_t* tile) {
  static const int64_t extents[] = {tiny, tiny}, warps[] = {1, 2};
  return choose_shape(tile, extents, warps, strip_stage_bytes);
}
static bool choose_strip(qn__tile_t* tile, int side) {
  static const int64_t extents[][qn__product_sides] = {{16, 32}, {32, 16}};
  static const int64_t warps[][qn__product_sides] = {{1, 2}, {2, 1}};
  return choose_shape(tile, extents[side], warps[side], strip_stage_bytes);
}

// Returns how many tiles of its shape there are; -1: an extent is not constant.
static int64_t tiles_of(const qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  int64_t count = batch;
  for (int s = 0; s < qn__product_sides; ++s) {
    if (extents[s] < 0 || count < 0) return -1;
    int64_t extent = qn__tile_extent(tile, (qn__product_side_t)s);
    int64_t along = extents[s] / extent + (extents[s] % extent != 0);
    if (__builtin_mul_overflow(count, along, &count)) return -1;
  }
  return count;
}

static void add_variant(qn__tile_t* tile, int side, int64_t max_lines, int64_t max_tiles) {
  assert(tile->variant_count < qn__tile_max_variants && tile->shape.stages);
  tile->variants[tile->variant_count++] =
      (qn__tile_variant_t){tile->shape, (qn__product_side_t)side, max_lines, max_tiles};
}

static bool choose_shapes(qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  for (int s = 0; s < qn__product_sides; ++s) {
    if (extents[s] >= 0 && extents[s] <= few_lines) return choose_strip(tile, s);
  }
  for (int s = 0; s < qn__product_sides; ++s) {
    if (extents[s] >= 0) continue;
    if (!choose_strip(tile, s)) return false;
    add_variant(tile, s, few_lines, 0);
  }
  if (!choose_small(tile)) return false;
  qn__tile_shape_t other = tile->shape;
  int64_t cores = qn__cores(tile->product.pb), count = tiles_of(tile, extents, batch);
  if (count >= 0 && count < (cores + 1) / 2 && choose_tiny(tile)) return true;
  if (!choose_large(tile)) return true;
  qn__tile_shape_t shape = tile->shape;
  count = tiles_of(tile, extents, batch);
  if (count >= cores) return true;
  if (count >= 0) {
    tile->shape = other;
    return true;
  }
  // The host compares the number of large tiles with the size of the device at the call.
  tile->shape = other;
  if (cores > 1) add_variant(tile, 0, 0, cores - 1);
  tile->shape = shape;
  return true;
}

bool qn__tensor_choose(qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  const qn__pass_builder_t* pb = tile->product.pb;
  if (!pb->options->has_matrix_units || pb->warp_size != warp_size || !find_matrices(tile)) {
    return false;
  }
  qn__tile_shape_t before = tile->shape;
  assert(tile->variant_count == 0 && before.stages == 0);
  if (choose_shapes(tile, extents, batch)) return true;
  tile->shape = before;
  tile->variant_count = 0;
  return false;
}
