// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tile_size.c: chooses the sizes of tiles, and whether to use tiles.
//
// A tile of R x C sums reads R + C elements from memory for R * C products. A thread with r x c of
// those sums reads r + c elements from shared memory for r * c products. So large tiles read least.
// But a tile larger than the matrix does useless work, and few blocks leave a device idle. Extents
// that are not constant count as large. With a short reduction, or with few rows and few columns, a
// product is limited by memory, and tiles do not reduce its loads.
//
// A *strip* is a tile for few rows of many columns, or the other way round. Its short side has few
// lines. Its long side is short too, so that there are many blocks. It has many steps, so that many
// loads are in flight at once. The threads of a warp are adjacent along the long side, so that a
// warp without a line has nothing to add up. A constant extent gets a strip if it fits. If the
// extent of a side is not constant, the function has both, and the host chooses.
#include "ir/passes/gpu/placement.h"
#include "ir/passes/gpu/tile.h"

enum {
  fewest = 8,               // rows, columns and steps for a tile
  few = 16,                 // rows, if there are as few columns
  max_copies = 4096,        // instructions of unrolled sums
  max_strip_copies = 1024,  // instructions of unrolled sums of a strip
  max_of_wide = 4,          // instructions of a summand for eight by eight outputs of a thread
  long_steps = 512,
  max_depth = 16,
  least_depth = 4,
  strip_threads = 256,  // with fewer threads tiles are smaller anyway
  strip_width = 16,     // lines of the short side of a strip
  strip_length = 32,    // lines of the long one
  pitch_bytes = 16,     // so that groups of elements stay aligned
};

static int64_t steps(const qn__tile_t* tile) {
  return qn__product_steps(&tile->product);
}

static int64_t ceildiv(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

int64_t qn__tile_pitch(const qn__tile_t* tile, const qn__product_operand_t* operand) {
  int64_t extent = qn__tile_extent(tile, operand->side);
  if (!operand->runs_along_step) return extent;
  // Threads along the step write a column. Padding lets each line begin at another bank.
  int64_t size = (int64_t)qn_dtype_size_bytes(operand->value->dtype);
  return extent + (size < pitch_bytes ? pitch_bytes / size : 1);
}

static int64_t shared_bytes(const qn__tile_t* tile, int64_t depth) {
  int64_t bytes = 0;
  for (uint32_t o = 0; o < tile->product.operand_count; ++o) {
    const qn__product_operand_t* operand = &tile->product.operands[o];
    // Some targets widen small elements to 32 bits in shared memory.
    int64_t size = (int64_t)qn_dtype_size_bytes(operand->value->dtype);
    bytes += (size < 4 ? 4 : size) * depth * qn__tile_pitch(tile, operand);
  }
  return bytes;
}

// Returns true if each thread can load the same number of elements of a tile.
static bool is_even(const qn__tile_t* tile, int64_t depth) {
  for (int s = 0; s < qn__product_sides; ++s) {
    int64_t count = depth * qn__tile_extent(tile, (qn__product_side_t)s);
    if (count % tile->shape.threads != 0 || count / tile->shape.threads > qn__tile_max_rounds)
      return false;
  }
  return tile->shape.threads % depth == 0;
}

// Returns the blocks of the grid; -1: an extent is not constant.
static int64_t blocks(const qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  int64_t count = batch;
  for (int s = 0; s < qn__product_sides; ++s) {
    if (extents[s] < 0 || count < 0) return -1;
    int64_t along = ceildiv(extents[s], qn__tile_extent(tile, (qn__product_side_t)s));
    if (__builtin_mul_overflow(count, along, &count)) return -1;
  }
  return count;
}

// ---- sizes

static void choose_outputs(qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  int64_t cores = qn__cores(tile->product.pb);
  int64_t size = (int64_t)qn_dtype_size_bytes(tile->product.reduce->dtype);
  bool is_wide = tile->shape.threads == 256 && size <= 4 && tile->product.operand_count == 2 &&
                 qn__product_summand_size(&tile->product) <= max_of_wide;
  for (int s = 0; s < qn__product_sides; ++s) tile->shape.outputs[s] = is_wide ? 8 : 4;
  // Use eight by eight only if the device certainly stays busy.
  if (is_wide && blocks(tile, extents, batch) < 2 * cores) {
    for (int s = 0; s < qn__product_sides; ++s) tile->shape.outputs[s] = 4;
  }
  for (int s = 0; s < qn__product_sides; ++s) {
    while (extents[s] >= 0 && tile->shape.outputs[s] > 1 &&
           extents[s] <= tile->shape.lines[s] * tile->shape.outputs[s] / 2) {
      tile->shape.outputs[s] /= 2;
    }
  }
  for (;;) {
    int64_t count = blocks(tile, extents, batch);
    int larger = tile->shape.outputs[QN__PRODUCT_ROW] >= tile->shape.outputs[QN__PRODUCT_COLUMN]
                     ? QN__PRODUCT_ROW
                     : QN__PRODUCT_COLUMN;
    if (count < 0 || count >= cores || tile->shape.outputs[larger] <= 2) break;
    tile->shape.outputs[larger] /= 2;
  }
}

// Returns true if blocks or warps that compute one sum each keep the device busier: the result has
// few tiles, and the operands are contiguous along the reduction.
static bool is_better_cooperative(qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  int64_t count = blocks(tile, extents, batch);
  int64_t trips = steps(tile);
  return count >= 0 && count <= qn__cores(tile->product.pb) / 8 &&
         (trips < 0 || trips >= long_steps) &&
         qn__place_nest(tile->product.pb, tile->product.nest).place != QN__PLACE_THREAD;
}

// Chooses as many steps as fit in shared memory, up to `most`, and unrolls them if that gives at
// most `copies` instructions. Returns false if too few steps fit.
static bool choose_depth(qn__tile_t* tile, int64_t most, int64_t copies) {
  int64_t limit = qn__shared_limit(tile->product.pb);
  for (int64_t depth = most; depth >= least_depth; depth /= 2) {
    if (!is_even(tile, depth) || shared_bytes(tile, depth) > limit) continue;
    qn__tile_shape_t* shape = &tile->shape;
    assert(shape->threads == shape->lines[QN__PRODUCT_ROW] * shape->lines[QN__PRODUCT_COLUMN]);
    shape->depth = depth;
    shape->is_unrolled = qn__product_summand_size(&tile->product) * depth *
                             shape->outputs[QN__PRODUCT_ROW] * shape->outputs[QN__PRODUCT_COLUMN] <=
                         copies;
    return true;
  }
  return false;
}

// Chooses a strip with `side` as its short side, of `extent` lines (-1: up to `strip_width`).
static bool choose_strip(qn__tile_t* tile, qn__product_side_t side, int64_t extent) {
  qn__product_side_t other = side == QN__PRODUCT_ROW ? QN__PRODUCT_COLUMN : QN__PRODUCT_ROW;
  qn__tile_shape_t* shape = &tile->shape;
  if (shape->threads != strip_threads) return false;
  shape->runs_down = side == QN__PRODUCT_COLUMN;
  shape->lines[other] = strip_length;
  shape->lines[side] = shape->threads / strip_length;
  shape->outputs[other] = 1;
  shape->outputs[side] = strip_width / shape->lines[side];
  while (extent >= 0 && shape->outputs[side] > 1 &&
         extent <= shape->lines[side] * shape->outputs[side] / 2) {
    shape->outputs[side] /= 2;
  }
  return choose_depth(tile, shape->threads / 4, max_strip_copies);
}

// Adds a strip for each side whose extent is not constant: the side may be short at the call.
static void choose_variants(qn__tile_t* tile, const int64_t* extents) {
  qn__tile_shape_t shape = tile->shape;
  for (int s = 0; s < qn__product_sides; ++s) {
    if (extents[s] < 0 && choose_strip(tile, (qn__product_side_t)s, -1)) {
      assert(tile->variant_count < qn__tile_max_variants);
      tile->variants[tile->variant_count++] =
          (qn__tile_variant_t){tile->shape, (qn__product_side_t)s, strip_width, 0};
    }
    tile->shape = shape;
  }
}

bool qn__tile_has_lines(const int64_t* lines) {
  bool has_few = true;  // caches hold the operands of so few sums
  for (int s = 0; s < qn__product_sides; ++s) {
    if (lines[s] >= 0 && lines[s] < fewest) return false;
    has_few = has_few && lines[s] >= 0 && lines[s] < few;
  }
  return !has_few;
}

bool qn__tile_choose(qn__tile_t* tile) {
  qn__pass_builder_t* pb = tile->product.pb;
  int64_t extents[qn__product_sides], count = steps(tile);
  for (int s = 0; s < qn__product_sides; ++s) {
    extents[s] = qn__product_trips(&tile->product, tile->product.side_dims[s]);
  }
  if (!qn__tile_has_lines(extents) || (count >= 0 && count < fewest)) return false;
  int64_t batch = qn__product_trips(&tile->product, qn__product_batch(&tile->product));
  tile->shape.strip = 1;
  tile->shape.threads = pb->threads >= 256 ? 256 : 64;
  if (tile->shape.threads > (int64_t)pb->max_threads) return false;
  int64_t lines = tile->shape.threads == 256 ? 16 : 8;
  for (int s = 0; s < qn__product_sides; ++s) tile->shape.lines[s] = lines;
  choose_outputs(tile, extents, batch);
  if (!choose_depth(tile, max_depth, max_copies)) return false;
  if (is_better_cooperative(tile, extents, batch)) return false;
  if ((count < 0 || count >= few) && qn__tensor_choose(tile, extents, batch)) return true;
  for (int s = 0; s < qn__product_sides; ++s) {
    if (extents[s] < 0 || extents[s] > strip_width) continue;
    qn__tile_shape_t shape = tile->shape;
    if (!choose_strip(tile, (qn__product_side_t)s, extents[s])) tile->shape = shape;
    return true;
  }
  choose_variants(tile, extents);
  return true;
}
