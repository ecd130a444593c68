// ir/passes/fission_inner.h: what the two files of the cut at barriers share.
#ifndef QUERN_IR_PASSES_FISSION_INNER_H_
#define QUERN_IR_PASSES_FISSION_INNER_H_

#include "ir/passes/fission.h"

enum { qn__fission_max_levels = 8 };

typedef struct qn__fission_unit qn__fission_unit_t;

// Replacement of a variable or view inside one unit.
typedef struct qn__fission_alias qn__fission_alias_t;
struct qn__fission_alias {
  const void* from;
  void* to;
  qn__fission_alias_t* next;
};

struct qn__fission_unit {
  bool is_control;  // the bounds or condition of `anchor`, else a piece with loops
  uint32_t depth;   // thread loops around it
  qn__ir_stmt_t* levels[qn__fission_max_levels];
  qn__ir_var_t* vars[qn__fission_max_levels];  // the piece's own loop variables
  qn__ir_block_t* home;                        // the list that `anchor` is in
  qn__ir_stmt_t* anchor;
  qn__ir_block_t stmts;
  qn__ir_block_t prologue;  // inside the loops, before the statements
  qn__ir_block_t before;    // outside of the loops, before the anchor
  qn__fission_alias_t* aliases;
  qn__fission_unit_t* next;
};

// Behind `user` of what a unit declares at its top level, and of the arrays that keep it.
typedef struct qn__fission_entity {
  qn__fission_unit_t* unit;
  qn__ir_stmt_t* stmt;     // LET, ATOMIC or ALLOC
  bool is_kept;            // in `array`
  qn__ir_buffer_t* array;  // NULL for the array itself
  int64_t thread_count;    // elements of the array (or of this one) per element of the program
} qn__fission_entity_t;

typedef struct qn__fission {
  qn__arena_t* arena;
  qn__fission_unit_t* first;
  qn__fission_unit_t* last;
  uint32_t depth;
  qn__ir_stmt_t* levels[qn__fission_max_levels];
  bool has_no_memory;
  bool is_too_deep;
  const qn__ir_buffer_t* unsupported;  // a local buffer that cannot be laid out over the threads
} qn__fission_t;

static inline bool qn__fission_failed(const qn__fission_t* self) {
  return self->has_no_memory || self->is_too_deep || self->unsupported;
}

// Takes note when an allocation failed; gives the pointer back.
static inline void* qn__fission_check(qn__fission_t* self, void* pointer) {
  if (!pointer) self->has_no_memory = true;
  return pointer;
}

// Gives every unit its loops. All that crosses is marked. (fission_rewrite.c)
void qn__fission_rewrite(qn__fission_t* self);

#endif  // QUERN_IR_PASSES_FISSION_INNER_H_
