// SPDX-License-Identifier: Apache-2.0
// ir/callee.h: functions with a value, and the expansion of their calls.
//
// A call is expanded where the text or the builder makes it: a module never holds one. So passes,
// generators, the verifier and the canonical bytes know nothing of calls. Not here: the grammar
// (parser_call.c), the public calls (build_call.c).
#ifndef QUERN_IR_CALLEE_H_
#define QUERN_IR_CALLEE_H_

#include "ir/ir.h"

enum {
  QN__LARGEST_CALL_DEPTH = 64,      // functions that call each other, one inside the other
  QN__LARGEST_EXPANSION = 1 << 20,  // nodes that all calls of a module make
};

// A function with a value: its parameters are scalars, its body is lets.
typedef struct qn__callee {
  qn__ir_func_t* function;
  qn__ir_expr_t* value;
  qn__ir_loc_t text;    // of the whole function; size 0: it has no text
  uint32_t first_call;  // numbers of the calls that were expanded in it, of those of its calls too
  uint32_t call_count;
  bool* is_used_once;  // of each parameter: always evaluated, exactly once; by qn__callee_init
} qn__callee_t;

typedef struct qn__expansion {
  qn__arena_t* arena;
  // The block that takes lets, and runs exactly when the call is evaluated. NULL: there is none, so
  // values are substituted wherever they are used.
  qn__ir_block_t* lets;
  qn__ir_loc_t loc;         // of the call
  qn__ir_places_t* places;  // of the module
  uint64_t* node_count;     // of all expansions of the module, calls included
  uint32_t height;          // result: levels of the tree
  uint32_t weight;          // result: nodes of the tree
  bool is_too_large;        // result: there are more nodes than QN__LARGEST_EXPANSION
} qn__expansion_t;

// Finishes a function with a value. Returns false if the arena is exhausted.
bool qn__callee_init(qn__callee_t* callee, qn__arena_t* arena);
// Expands a call. `args` are trees of the dtypes of the parameters; they are consumed. Evaluates
// each argument once if there is a block for lets. Returns the value; NULL: too large, or the arena
// is exhausted. A let of the block takes each argument that is no literal and no variable, unless
// the function always evaluates it exactly once.
qn__ir_expr_t* qn__callee_expand(const qn__callee_t* callee, qn__ir_expr_t* const* args,
                                 qn__expansion_t* expansion);

#endif  // QUERN_IR_CALLEE_H_
