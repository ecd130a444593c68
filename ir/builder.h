// SPDX-License-Identifier: Apache-2.0
// ir/builder.h: what the files of the builder share. The public calls are in quern/ir.h.
//
// build.c holds the builder's life, its sticky error and functions with their parameters;
// build_stmt.c statements and blocks; build_expr.c expressions; build_call.c functions with a
// value.
#ifndef QUERN_IR_BUILDER_H_
#define QUERN_IR_BUILDER_H_

#include "ir/ir.h"
#include "ir/ptrmap.h"
#include "ir/specialize.h"

// Facts about a handle that the builder returned.
typedef struct qn__builder_value {
  uint32_t height;  // levels of the tree below, itself included
  uint32_t weight;  // nodes of the tree, saturating
  bool is_used;     // the node has a parent: the next use gets a copy
  bool has_reduction;
} qn__builder_value_t;

typedef enum qn__builder_frame_kind {
  QN__FRAME_FUNCTION,
  QN__FRAME_LOOP,
  QN__FRAME_WHILE,
  QN__FRAME_IF,
  QN__FRAME_ELSE,
  QN__FRAME_REDUCE,    // this and those after it take only lets
  QN__FRAME_SEVERAL,   // the values of a reduction of several
  QN__FRAME_COMBINER,  // of such a reduction
} qn__builder_frame_kind_t;

// A block that is open.
typedef struct qn__builder_frame qn__builder_frame_t;
struct qn__builder_frame {
  qn__builder_frame_t* outer;
  qn__builder_frame_kind_t kind;
  qn__ir_block_t* block;  // where statements go
  qn__ir_stmt_t* stmt;    // IF, SEVERAL, COMBINER
  qn__ir_expr_t* reduce;  // REDUCE
  qn__builder_value_t reduce_built;
};

// A function with a value (build_call.c).
typedef struct qn__builder_callee qn__builder_callee_t;

struct qn_builder {
  qn_allocator_t allocator;
  qn__ir_body_t body;
  qn_status_t status;    // the first mistake
  const char* call;      // the public function at work, for messages
  qn__ptrmap_t handles;  // expression -> qn__builder_value_t, buffer -> itself
  uint64_t weight;       // nodes made by copies
  qn__ir_func_t* function;
  qn__builder_frame_t* frame;
  qn__ir_param_t* params;  // of the open function
  size_t param_count;
  size_t param_capacity;
  qn__ir_expr_t** symbols;  // handles
  size_t symbol_count;
  size_t symbol_capacity;
  qn__constants_t constants;  // of qn_build_set
  qn__builder_callee_t* callees;
  uint64_t expanded_count;  // of nodes that calls made
};

// ---- build.c

// Keeps the first error. Returns NULL, so that calls that return a handle can return its result.
void* qn__build_fail(qn_builder_t* builder, const char* format, ...) QN_PRINTF(2, 3);
void* qn__build_out_of_memory(qn_builder_t* builder);
// Returns whether there is no error so far and a function is open. `call` is the public function,
// which later messages name.
bool qn__build_is_ready(qn_builder_t* builder, const char* call);
// Returns whether, besides, statements may be added here.
bool qn__build_takes_stmts(qn_builder_t* builder, const char* call);
// Checks a name by the rules of the text. NULL and "" become `fallback`, if there is one.
const char* qn__build_name(qn_builder_t* builder, const char* name, const char* fallback);

// ---- build_expr.c

// Registers `expr` as a handle. Passes NULL (out of memory) on.
qn__ir_expr_t* qn__build_give(qn_builder_t* builder, qn__ir_expr_t* expr,
                              qn__builder_value_t built);
// Registers a literal or variable. Passes NULL on.
qn__ir_expr_t* qn__build_give_leaf(qn_builder_t* builder, qn__ir_expr_t* expr);
// Returns the tree of a handle: the node itself, or a copy if it has a parent. NULL after an error.
// Adds the facts about it to `inout_built`, which may be NULL.
qn__ir_expr_t* qn__build_take(qn_builder_t* builder, const char* what, qn__ir_expr_t* expr,
                              qn__builder_value_t* inout_built);
// The same for `count` handles, which must be `dtype` (NONE: any integer). NULL after an error.
qn__ir_expr_t** qn__build_take_all(qn_builder_t* builder, const char* what,
                                   qn__ir_expr_t* const* exprs, size_t count, qn_dtype_t dtype,
                                   qn__builder_value_t* inout_built);
// The same for one handle of a dtype.
qn__ir_expr_t* qn__build_take_as(qn_builder_t* builder, const char* what, qn__ir_expr_t* expr,
                                 qn_dtype_t dtype, qn__builder_value_t* inout_built);
// Returns the handle of a variable.
qn__ir_expr_t* qn__build_give_var(qn_builder_t* builder, qn__ir_var_t* var);

// ---- build_stmt.c

bool qn__build_is_buffer(qn_builder_t* builder, const qn__ir_buffer_t* buffer);
// Takes the indices of an access. NULL after an error.
qn__ir_expr_t** qn__build_indices(qn_builder_t* builder, const qn__ir_buffer_t* buffer, size_t rank,
                                  qn__ir_expr_t* const* indices, qn__builder_value_t* inout_built);
// Makes a buffer with its shape and strides (NULL: row-major). NULL after an error.
qn__ir_buffer_t* qn__build_new_buffer(qn_builder_t* builder, qn__ir_scope_t scope, const char* name,
                                      qn_dtype_t dtype, size_t rank, qn__ir_expr_t* const* shape,
                                      qn__ir_expr_t* const* strides);
bool qn__build_give_buffer(qn_builder_t* builder, qn__ir_buffer_t* buffer);

#endif  // QUERN_IR_BUILDER_H_
