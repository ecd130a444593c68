// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/partition.h: the structures that the files of the pass `partition` share.
//
// partition.c is the pass, partition_values.c passes values between launches, partition_reduce.c
// splits long reductions.
#ifndef QUERN_IR_PASSES_GPU_PARTITION_H_
#define QUERN_IR_PASSES_GPU_PARTITION_H_

#include "ir/passes/gpu/launch.h"

typedef struct qn__partition_unit qn__partition_unit_t;

// A condition that only the device knows, around launches: each launch tests it.
typedef struct qn__partition_guard qn__partition_guard_t;
struct qn__partition_guard {
  qn__ir_var_t* var;  // bool, a device value
  bool is_negated;
  const qn__partition_guard_t* outer;
};

// Collects the statements of a future launch.
struct qn__partition_unit {
  qn__launch_kind_t kind;      // STATEMENTS, ITERATIONS or LOOPS
  const qn__ir_block_t* home;  // the host's list that contains the anchor
  qn__ir_stmt_t* anchor;       // becomes the outermost block loop
  qn__ir_block_t stmts;
  qn__ir_block_t prologue;  // lets and views that replace outer declarations
  qn__ir_block_t locals;    // local buffers of the unit and views of them; `stmts` begin with them
  const qn__partition_guard_t* guards;
  qn__ir_alias_t* aliases;  // of variables and views that are declared outside
  qn__partition_unit_t* next;
};

// A variable or buffer that is declared at the host's level but has its value on the device. It is
// the `user` of the declaration.
typedef struct qn__partition_value {
  bool is_repeated;  // arithmetic or a view: every unit that uses it computes it again
  qn__partition_unit_t*
      unit;  // LET, ATOMIC that is not repeated: computes it. LOCAL: the first to use it
  const qn__ir_block_t* home;
  qn__ir_stmt_t* stmt;           // LET, ATOMIC or ALLOC
  qn__ir_buffer_t* carrier;      // one element of global memory, once another unit uses the value
  bool is_shared_between_units;  // LOCAL: used by several units
} qn__partition_value_t;

typedef struct qn__partition {
  qn__pass_builder_t* pb;
  qn__partition_unit_t* first;
  qn__partition_unit_t* last;
  qn__partition_unit_t* open;  // collects statements; its anchor is not in the list yet
  // Where the walk is: the host's list that it builds, and the conditions around it.
  qn__ir_block_t* out;
  const qn__partition_guard_t* guards;
} qn__partition_t;

// Makes the device values that each unit uses available in it: by its prologue, by carriers, or by
// moving a local buffer (partition_values.c).
void qn__partition_import(qn__partition_t* partition);

// Returns true if the reduction is long enough for a separate launch (partition_reduce.c).
bool qn__reduce_is_long(const qn__ir_expr_t* reduce);
// Replaces the reduction at `slot` by one of partial results, and returns the parallel loop that
// computes them. NULL without memory.
qn__ir_stmt_t* qn__reduce_split(qn__pass_builder_t* pb, qn__ir_expr_t** slot);
// Makes `loop` add up partial results, and returns the parallel loop that computes them, if it is a
// product of constant extents with a long reduction and few tiles. Else NULL.
qn__ir_stmt_t* qn__product_split(qn__pass_builder_t* pb, qn__ir_stmt_t* loop);

#endif  // QUERN_IR_PASSES_GPU_PARTITION_H_
