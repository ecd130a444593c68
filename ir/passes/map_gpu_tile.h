// ir/passes/map_gpu_tile.h: a product written as a sum, and how it is cut into tiles.
//
// map_gpu_tile.c recognises it, map_gpu_tile_size.c chooses the sizes, map_gpu_tile_write.c writes
// the blocks and threads, with what map_gpu_tile_write.h names. Thread rule: one thread per body.
// Read next: map_gpu_tile.c.
#ifndef QUERN_IR_PASSES_MAP_GPU_TILE_H_
#define QUERN_IR_PASSES_MAP_GPU_TILE_H_

#include "ir/passes/map_gpu.h"

enum {
  qn__tile_max_names = 64,
  qn__tile_max_operands = 4,
  qn__tile_max_slots = 16,
  qn__tile_max_outputs = 8,  // of a thread, along one side
  qn__tile_max_rounds = 16,  // elements of one operand that a thread brings in a step
  qn__tile_max_variants = 2,
};

// What a value depends on: bit d is the nest's loop d; then these.
enum {
  QN__TILE_DIMS = (1 << qn__gmap_max_nest) - 1,
  QN__TILE_STEP = 1 << 8,    // the reduction's variable
  QN__TILE_LOADS = 1 << 9,   // memory that nothing in the nest writes
  QN__TILE_FIXED = 1 << 10,  // it must stay where it is
};

typedef enum qn__tile_side { QN__TILE_ROW, QN__TILE_COLUMN, qn__tile_sides } qn__tile_side_t;

// A variable of the nest.
typedef struct qn__tile_name {
  qn__ir_var_t* var;
  qn__ir_stmt_t* let;  // NULL: of a loop, of the reduction, of an operand
  uint32_t mask;
  qn__ir_expr_t*
      now;  // what it stands for where code is being written; borrowed, cloned at each use
} qn__tile_name_t;

// A part of the summand that depends on one side alone: its values are what a tile holds.
typedef struct qn__tile_operand {
  qn__ir_expr_t* value;
  qn__tile_side_t side;
  bool runs_along_step;  // neighbours in memory are neighbours in the reduction
  uint32_t name;         // of the variable that takes its place in the summand
  bool is_needed[qn__tile_max_names];
  qn__ir_buffer_t* tile;  // [depth, extent of the side's tile + padding]
} qn__tile_operand_t;

typedef struct qn__tile_slot {
  qn__ir_expr_t** slot;
  uint32_t operand;
} qn__tile_slot_t;

// How a block's tile is cut.
typedef struct qn__tile_shape {
  int64_t threads;
  int64_t lines[qn__tile_sides];    // threads along a side
  int64_t outputs[qn__tile_sides];  // elements of a thread along a side
  int64_t depth;                    // steps of the reduction that are in shared memory at once
  bool is_unrolled;                 // all of them are written out
  bool runs_down;                   // neighbouring threads have neighbouring rows, not columns
} qn__tile_shape_t;

// A shape that is better while a side whose extent is not constant has few lines.
typedef struct qn__tile_variant {
  qn__tile_shape_t shape;
  qn__tile_side_t side;
  int64_t most;  // lines
} qn__tile_variant_t;

typedef struct qn__tile {
  qn__gmap_t* map;
  qn__gmap_nest_t* nest;
  qn__ir_expr_t** slot;   // of the reduction, in the nest's body
  qn__ir_expr_t* reduce;  // the reduction
  qn__tile_name_t names[qn__tile_max_names];
  uint32_t name_count;
  uint32_t step;                       // the name of the reduction's variable
  uint32_t side_dims[qn__tile_sides];  // loops; what is in neither is the batch
  qn__tile_operand_t operands[qn__tile_max_operands];
  uint32_t operand_count;
  qn__tile_slot_t slots[qn__tile_max_slots];
  uint32_t slot_count;
  bool is_needed[qn__tile_max_names];  // by the summand, beside operands
  qn__tile_shape_t shape;  // of what is being chosen or written; at last the one for all extents
  qn__tile_variant_t variants[qn__tile_max_variants];  // the first that holds at the call is run
  uint32_t variant_count;
} qn__tile_t;

static inline uint32_t qn__tile_batch(const qn__tile_t* tile) {
  uint32_t all = (1U << tile->nest->count) - 1;
  return all & ~(tile->side_dims[QN__TILE_ROW] | tile->side_dims[QN__TILE_COLUMN]);
}
static inline int64_t qn__tile_extent(const qn__tile_t* tile, qn__tile_side_t side) {
  return tile->shape.lines[side] * tile->shape.outputs[side];
}
// Outputs of a thread come in groups of neighbours.
static inline int64_t qn__tile_group(const qn__tile_t* tile, qn__tile_side_t side) {
  return tile->shape.outputs[side] < 4 ? tile->shape.outputs[side] : 4;
}

// The index of a name, or -1.
int qn__tile_find(const qn__tile_t* tile, const qn__ir_var_t* var);
// Adds the names that `expr` needs, with all that their lets need.
void qn__tile_close(const qn__tile_t* tile, qn__ir_expr_t* expr, bool* is_needed);

// Chooses shapes; false: tiles would not pay. (map_gpu_tile_size.c)
bool qn__tile_choose(qn__tile_t* tile);
// Elements of a tile's line, with padding.
int64_t qn__tile_pitch(const qn__tile_t* tile, const qn__tile_operand_t* operand);

// Writes the launch of tile->shape; the nest can be written again. (map_gpu_tile_write.c)
void qn__tile_write(qn__tile_t* tile, qn__gmap_unit_t* unit);

#endif  // QUERN_IR_PASSES_MAP_GPU_TILE_H_
