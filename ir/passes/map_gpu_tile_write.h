// ir/passes/map_gpu_tile_write.h: what the files that write a tile's launch share.
//
// map_gpu_tile_write.c writes all but what stands in a round: map_gpu_tile_fill.c brings operands
// to shared memory, map_gpu_tile_sums.c adds up. map_gpu_tile_kit.c has the nodes that they are
// made of. Thread rule: one thread per body. Read next: map_gpu_tile_write.c.
#ifndef QUERN_IR_PASSES_MAP_GPU_TILE_WRITE_H_
#define QUERN_IR_PASSES_MAP_GPU_TILE_WRITE_H_

#include "ir/passes/map_gpu_tile.h"

// A line of the result that a thread has, or one that it brings: what the side's loops stand for.
typedef struct qn__tile_place {
  qn__ir_var_t* at;  // in the side's index space
  qn__ir_expr_t* now[qn__gmap_max_nest];
} qn__tile_place_t;

typedef struct qn__tile_writer {
  qn__tile_t* tile;
  qn__gmap_t* map;
  qn__ir_var_t* t;
  qn__ir_var_t* first[qn__tile_sides];    // line of the block's tile
  qn__ir_expr_t* extent[qn__tile_sides];  // of all lines: a literal or a variable
  qn__ir_var_t* own[qn__tile_sides];      // of the thread's group, within the tile
  bool is_exact[qn__tile_sides];          // no tile reaches beyond
  qn__tile_place_t places[qn__tile_sides][qn__tile_max_outputs];
  qn__ir_expr_t* begin;  // of the reduction; a literal or a variable
  qn__ir_expr_t* steps;  // of the reduction: a literal or a variable
  bool has_even_steps;
  qn__ir_buffer_t* acc;
} qn__tile_writer_t;

// The lines of output `m` within the block's tile begin at own + offset.
static inline int64_t qn__tile_offset(const qn__tile_t* tile, qn__tile_side_t side, int64_t m) {
  int64_t group = qn__tile_group(tile, side);
  return m / group * group * tile->shape.lines[side] + m % group;
}

// ---- nodes (map_gpu_tile_kit.c). NULL operands give NULL.

qn__ir_expr_t* qn__tile_add(qn__gmap_t* map, qn__ir_expr_t* a, int64_t b);
qn__ir_expr_t* qn__tile_by(qn__gmap_t* map, qn_op_t op, qn__ir_var_t* var, int64_t b);
// A value of a name, or a literal: cheap to copy.
qn__ir_expr_t* qn__tile_named(qn__gmap_t* map, qn__ir_block_t* out, const char* name,
                              qn__ir_expr_t* value);
qn__ir_buffer_t* qn__tile_allocate(qn__gmap_t* map, qn__ir_block_t* out, qn__ir_scope_t scope,
                                   qn_dtype_t dtype, const char* name, int64_t rows,
                                   int64_t columns);
void qn__tile_store(qn__gmap_t* map, qn__ir_block_t* out, qn__ir_buffer_t* buffer, qn__ir_expr_t* a,
                    qn__ir_expr_t* b, qn__ir_expr_t* value);
qn__ir_expr_t* qn__tile_load(qn__gmap_t* map, qn__ir_buffer_t* buffer, qn__ir_expr_t* a,
                             qn__ir_expr_t* b);
qn__ir_expr_t* qn__tile_load_acc(const qn__tile_writer_t* w, int64_t m, int64_t n);
qn__ir_expr_t* qn__tile_at_most(qn__gmap_t* map, qn__ir_expr_t* value, const qn__ir_expr_t* extent);

// ---- what names stand for (map_gpu_tile_kit.c)

qn__ir_expr_t* qn__tile_now_of(qn__ir_subst_t* subst, qn__ir_var_t* var);
qn__ir_expr_t* qn__tile_copy_now(const qn__tile_writer_t* w, const qn__ir_expr_t* expr);
void qn__tile_write_let(qn__tile_writer_t* w, qn__ir_block_t* out, qn__tile_name_t* name);
// Copies of the lets among `is_needed` that depend on something in `any`, and on nothing in `none`.
void qn__tile_write_lets(qn__tile_writer_t* w, qn__ir_block_t* out, const bool* is_needed,
                         uint32_t any, uint32_t none);
uint32_t qn__tile_inner_mask(const qn__tile_t* tile);
// The loops in `dims` at `index`, a variable of their index space.
void qn__tile_write_place(qn__tile_writer_t* w, qn__ir_block_t* out, uint32_t dims,
                          qn__ir_var_t* index, qn__ir_expr_t** out_now);
void qn__tile_set_now(qn__tile_writer_t* w, uint32_t dims, qn__ir_expr_t* const* now);

// ---- a round (map_gpu_tile_fill.c, map_gpu_tile_sums.c)

// Where a thread's element of an operand lies within the tile: `step` and `line` begin there, and
// move by so much from one element to the next.
typedef struct qn__tile_stride {
  qn__ir_var_t* step;
  qn__ir_var_t* line;
  int64_t step_by;
  int64_t line_by;
} qn__tile_stride_t;

qn__tile_stride_t qn__tile_write_stride(qn__tile_writer_t* w, qn__ir_block_t* out,
                                        const qn__tile_operand_t* operand);
void qn__tile_fill(qn__tile_writer_t* w, qn__ir_block_t* out, const qn__tile_stride_t* strides,
                   qn__ir_var_t* done);
// The steps that a round has in shared memory: all of them, or fewer in the last one.
void qn__tile_write_sums(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done);

#endif  // QUERN_IR_PASSES_MAP_GPU_TILE_WRITE_H_
