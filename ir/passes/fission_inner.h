// SPDX-License-Identifier: Apache-2.0
// ir/passes/fission_inner.h: the structures that fission.c and fission_rewrite.c share.
#ifndef QUERN_IR_PASSES_FISSION_INNER_H_
#define QUERN_IR_PASSES_FISSION_INNER_H_

#include "ir/passes/fission.h"

enum { qn__fission_max_levels = 8 };

typedef struct qn__fission_unit qn__fission_unit_t;

// A part of the thread loop without barriers. It is either the bounds or condition of a statement
// that contains a barrier, or consecutive statements that get thread loops of their own.
struct qn__fission_unit {
  bool is_control;  // the bounds or condition of `anchor`
  uint32_t depth;   // number of enclosing thread loops
  qn__ir_stmt_t* levels[qn__fission_max_levels];
  qn__ir_var_t* vars[qn__fission_max_levels];  // the new loop variables of this unit
  qn__ir_block_t* home;                        // the list that contains `anchor`
  qn__ir_stmt_t* anchor;                       // the control statement, or the outermost new loop
  qn__ir_block_t stmts;                        // empty in a control unit
  qn__ir_block_t prologue;                     // inside the loops, before `stmts`
  qn__ir_block_t before;                       // outside the loops, before `anchor`
  qn__ir_alias_t* aliases;
  qn__fission_unit_t* next;
};

// `user` of the variables and buffers that a unit declares at its top level, and of the arrays that
// hold their values for all threads.
typedef struct qn__fission_entity {
  qn__fission_unit_t* unit;
  qn__ir_stmt_t* stmt;     // LET, ATOMIC or ALLOC
  bool is_kept;            // must be held in `array`, or moved out of the loops
  qn__ir_buffer_t* array;  // NULL: none, or this entity is such an array itself
  // Elements of the array for each element of the declared buffer; NULL: one. Copied where used.
  qn__ir_expr_t* thread_count;
} qn__fission_entity_t;

typedef struct qn__fission {
  qn__pass_builder_t* pb;
  qn__fission_unit_t* first;  // in program order
  qn__fission_unit_t* last;
  uint32_t depth;
  qn__ir_stmt_t* levels[qn__fission_max_levels];
} qn__fission_t;

// Builds the loops of every unit (fission_rewrite.c). Values used in several units must be marked
// before.
void qn__fission_rewrite(qn__fission_t* self);

#endif  // QUERN_IR_PASSES_FISSION_INNER_H_
