// ir/passes/map_gpu_tile_size.c: how large tiles are, and whether they pay.
//
// A tile of R x C sums reads (R + C) elements from memory for R * C products, from shared memory
// (r + c) for r * c, where r x c are the sums of a thread: large ones read least. But a tile that
// is larger than what there is computes for nothing, and few blocks leave a device idle. Extents
// that are not constant count as large. With a short reduction, or few rows and few columns, memory
// is what a product waits for anyway: then the mapping without tiles reads as little.
//
// A *strip* is a tile for few rows of many columns, or the other way round: it has as many lines
// along the short side as are worth telling apart, few along the long one, so that there are many
// blocks, and many steps, so that much memory is under way at once. A warp has neighbours along the
// long side: one without a line has nothing to add up. Constant extents get it where it fits; where
// a side's extent is not constant, the launch has both and the host chooses. Thread rule: one
// thread per body. Read next: map_gpu_tile_write.c.
#include "ir/passes/map_gpu_team.h"
#include "ir/passes/map_gpu_tile.h"

enum {
  fewest = 8,               // rows, columns and steps that are worth a tile
  few = 16,                 // rows, where there are as few columns
  max_copies = 4096,        // instructions of sums that are written out
  max_strip_copies = 1024,  // the same, of a strip
  max_of_wide = 4,          // instructions of a summand of which a thread has eight by eight
  of_function = 16,         // instructions of a mathematical function
  long_steps = 512,
  max_depth = 16,
  least_depth = 4,
  strip_threads = 256,  // with fewer threads tiles are smaller anyway
  strip_width = 16,     // lines of the short side of a strip
  strip_length = 32,    // lines of the long one
  pitch_bytes = 16,     // so that groups of elements stay aligned
  assumed_shared_bytes = 16384,
  assumed_cores = 32,
};

// Iterations of the loops in `dims`; -1: not constant.
static int64_t iterations(qn__tile_t* tile, uint32_t dims) {
  int64_t all = 1;
  for (uint32_t d = 0; d < tile->nest->count; ++d) {
    if (!(dims >> d & 1)) continue;
    int64_t extent;
    const qn__ir_expr_t* expr = qn__gmap_extent(tile->map, tile->nest->loops[d]);
    if (!expr || !qn__expr_const_int(expr, &extent) || __builtin_mul_overflow(all, extent, &all)) {
      return -1;
    }
  }
  return all;
}

static int64_t steps(const qn__tile_t* tile) {
  return qn__gmap_trips(tile->reduce->reduce.begin, tile->reduce->reduce.end);
}

static int64_t ceildiv(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

int64_t qn__tile_pitch(const qn__tile_t* tile, const qn__tile_operand_t* operand) {
  int64_t extent = qn__tile_extent(tile, operand->side);
  if (!operand->runs_along_step) return extent;
  // Threads that run along the step write down a column: each line begins at another bank.
  int64_t size = (int64_t)qn_dtype_size_bytes(operand->value->dtype);
  return extent + (size < pitch_bytes ? pitch_bytes / size : 1);
}

static int64_t shared_bytes(const qn__tile_t* tile, int64_t depth) {
  int64_t bytes = 0;
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    const qn__tile_operand_t* operand = &tile->operands[o];
    // Some targets keep small elements in 32 bits there.
    int64_t size = (int64_t)qn_dtype_size_bytes(operand->value->dtype);
    bytes += (size < 4 ? 4 : size) * depth * qn__tile_pitch(tile, operand);
  }
  return bytes;
}

// Is every element of a tile brought by one thread, and each thread brings as many?
static bool is_even(const qn__tile_t* tile, int64_t depth) {
  for (int s = 0; s < qn__tile_sides; ++s) {
    int64_t count = depth * qn__tile_extent(tile, (qn__tile_side_t)s);
    if (count % tile->shape.threads != 0 || count / tile->shape.threads > qn__tile_max_rounds)
      return false;
  }
  return tile->shape.threads % depth == 0;
}

// Blocks of a grid whose extents are constant; -1: they are not.
static int64_t blocks(const qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  int64_t count = batch;
  for (int s = 0; s < qn__tile_sides; ++s) {
    if (extents[s] < 0 || count < 0) return -1;
    int64_t along = ceildiv(extents[s], qn__tile_extent(tile, (qn__tile_side_t)s));
    if (__builtin_mul_overflow(count, along, &count)) return -1;
  }
  return count;
}

// ---- how much code a sum is

typedef struct summand {
  const qn__tile_t* tile;
  int64_t size;
} summand_t;

static bool add_size(void* context, qn__ir_expr_t** slot) {
  summand_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  for (uint32_t s = 0; s < self->tile->slot_count; ++s) {
    if (self->tile->slots[s].slot == slot) return true;
  }
  if (expr->kind == QN__EXPR_OP) {
    self->size += qn__op_info(expr->op)->rule == QN__RULE_FLOAT ? of_function : 1;
  }
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_CAST || expr->kind == QN__EXPR_COND) {
    ++self->size;
  }
  return qn__expr_each_child(*slot, add_size, self);
}

// Instructions, roughly, of what each sum of a thread does in a step.
static int64_t summand_size(qn__tile_t* tile) {
  summand_t self = {tile, 0};
  uint32_t rows = tile->side_dims[QN__TILE_ROW], columns = tile->side_dims[QN__TILE_COLUMN];
  (void)add_size(&self, &tile->reduce->reduce.value);
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    const qn__tile_name_t* name = &tile->names[i];
    bool is_each = name->let && (name->mask & rows) && (name->mask & columns);
    if (is_each && !(name->mask & QN__TILE_FIXED)) (void)add_size(&self, &name->let->let.value);
  }
  return self.size;
}

// ---- sizes

static int64_t cores_of(const qn__tile_t* tile) {
  int64_t cores = tile->map->options->multiprocessors;
  return cores > 0 ? cores : assumed_cores;
}

static void choose_outputs(qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  int64_t cores = cores_of(tile);
  int64_t size = (int64_t)qn_dtype_size_bytes(tile->reduce->dtype);
  bool is_wide = tile->shape.threads == 256 && size <= 4 && tile->operand_count == 2 &&
                 summand_size(tile) <= max_of_wide;
  for (int s = 0; s < qn__tile_sides; ++s) tile->shape.outputs[s] = is_wide ? 8 : 4;
  // Eight by eight only where the device stays busy for certain.
  if (is_wide && blocks(tile, extents, batch) < 2 * cores) {
    for (int s = 0; s < qn__tile_sides; ++s) tile->shape.outputs[s] = 4;
  }
  for (int s = 0; s < qn__tile_sides; ++s) {
    while (extents[s] >= 0 && tile->shape.outputs[s] > 1 &&
           extents[s] <= tile->shape.lines[s] * tile->shape.outputs[s] / 2) {
      tile->shape.outputs[s] /= 2;
    }
  }
  for (;;) {
    int64_t count = blocks(tile, extents, batch);
    int larger = tile->shape.outputs[QN__TILE_ROW] >= tile->shape.outputs[QN__TILE_COLUMN]
                     ? QN__TILE_ROW
                     : QN__TILE_COLUMN;
    if (count < 0 || count >= cores || tile->shape.outputs[larger] <= 2) break;
    tile->shape.outputs[larger] /= 2;
  }
}

// Would blocks or warps that each add up one sum keep the device busier? They do where a few
// tiles are all there is of the result, and the operands lie along the reduction.
static bool is_better_in_teams(qn__tile_t* tile, const int64_t* extents, int64_t batch) {
  int64_t count = blocks(tile, extents, batch);
  int64_t trips = steps(tile);
  return count >= 0 && count <= cores_of(tile) / 8 && (trips < 0 || trips >= long_steps) &&
         qn__gmap_choose(tile->map, tile->nest).way != QN__GMAP_FLAT;
}

// As many steps as shared memory takes, up to `most`; written out if that is no more than `copies`
// instructions. False: it takes too few.
static bool choose_depth(qn__tile_t* tile, int64_t most, int64_t copies) {
  int64_t limit = tile->map->options->max_shared_bytes;
  if (limit == 0) limit = assumed_shared_bytes;
  for (int64_t depth = most; depth >= least_depth; depth /= 2) {
    if (!is_even(tile, depth) || shared_bytes(tile, depth) > limit) continue;
    qn__tile_shape_t* shape = &tile->shape;
    shape->depth = depth;
    shape->is_unrolled = summand_size(tile) * depth * shape->outputs[QN__TILE_ROW] *
                             shape->outputs[QN__TILE_COLUMN] <=
                         copies;
    return true;
  }
  return false;
}

// A strip with `side` as its short side, of `extent` lines (-1: any number up to `strip_width`).
static bool choose_strip(qn__tile_t* tile, qn__tile_side_t side, int64_t extent) {
  qn__tile_side_t other = side == QN__TILE_ROW ? QN__TILE_COLUMN : QN__TILE_ROW;
  qn__tile_shape_t* shape = &tile->shape;
  if (shape->threads != strip_threads) return false;
  shape->runs_down = side == QN__TILE_COLUMN;
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

// For each side whose extent is not constant, if it comes to be short.
static void choose_variants(qn__tile_t* tile, const int64_t* extents) {
  qn__tile_shape_t shape = tile->shape;
  for (int s = 0; s < qn__tile_sides; ++s) {
    if (extents[s] < 0 && choose_strip(tile, (qn__tile_side_t)s, -1)) {
      tile->variants[tile->variant_count++] =
          (qn__tile_variant_t){tile->shape, (qn__tile_side_t)s, strip_width};
    }
    tile->shape = shape;
  }
}

bool qn__tile_choose(qn__tile_t* tile) {
  qn__gmap_t* map = tile->map;
  int64_t extents[qn__tile_sides], count = steps(tile);
  for (int s = 0; s < qn__tile_sides; ++s) {
    extents[s] = iterations(tile, tile->side_dims[s]);
    if (extents[s] >= 0 && extents[s] < fewest) return false;
  }
  if (count >= 0 && count < fewest) return false;
  // Caches hold what so few share.
  if (extents[QN__TILE_ROW] >= 0 && extents[QN__TILE_ROW] < few && extents[QN__TILE_COLUMN] >= 0 &&
      extents[QN__TILE_COLUMN] < few) {
    return false;
  }
  int64_t batch = iterations(tile, qn__tile_batch(tile));
  tile->shape.threads = map->threads >= 256 ? 256 : 64;
  if (tile->shape.threads > (int64_t)map->max_threads) return false;
  int64_t lines = tile->shape.threads == 256 ? 16 : 8;
  for (int s = 0; s < qn__tile_sides; ++s) tile->shape.lines[s] = lines;
  choose_outputs(tile, extents, batch);
  if (!choose_depth(tile, max_depth, max_copies)) return false;
  if (is_better_in_teams(tile, extents, batch)) return false;
  for (int s = 0; s < qn__tile_sides; ++s) {
    if (extents[s] < 0 || extents[s] > strip_width) continue;
    qn__tile_shape_t shape = tile->shape;
    if (!choose_strip(tile, (qn__tile_side_t)s, extents[s])) tile->shape = shape;
    return true;
  }
  choose_variants(tile, extents);
  return true;
}
