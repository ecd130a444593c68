// ir/builder.h: what the files of the builder share. The public calls are in quern/ir.h.
//
// build.c holds the builder's life, its sticky error and functions with their parameters;
// build_stmt.c statements and blocks; build_expr.c expressions. Thread rule: one thread at a time.
// Read next: build.c.
#ifndef QUERN_IR_BUILDER_H_
#define QUERN_IR_BUILDER_H_

#include "ir/ir.h"
#include "ir/ptrmap.h"

// What the builder knows of a handle that it gave out.
typedef struct qn__built {
  uint32_t height;  // levels of the tree below, itself included
  uint32_t weight;  // nodes of the tree, saturating
  bool is_used;     // it has its place in a tree: the next use gets a copy
  bool has_reduction;
} qn__built_t;

typedef enum qn__frame_kind {
  QN__FRAME_FUNCTION,
  QN__FRAME_LOOP,
  QN__FRAME_WHILE,
  QN__FRAME_IF,
  QN__FRAME_ELSE,
  QN__FRAME_REDUCE,
} qn__frame_kind_t;

// A block that is open.
typedef struct qn__frame qn__frame_t;
struct qn__frame {
  qn__frame_t* outer;
  qn__frame_kind_t kind;
  qn__ir_block_t* block;  // where statements go
  qn__ir_stmt_t* stmt;    // IF
  qn__ir_expr_t* reduce;  // REDUCE
  qn__built_t reduce_built;
};

struct qn_builder {
  qn_allocator_t allocator;
  qn__ir_body_t body;
  qn_status_t status;    // the first mistake
  qn__ptrmap_t handles;  // expression -> qn__built_t, buffer -> itself
  uint64_t weight;       // nodes made by copies
  qn__ir_func_t* function;
  qn__frame_t* frame;
  qn__ir_param_t* params;  // of the open function
  size_t param_count;
  size_t param_capacity;
  qn__ir_expr_t** symbols;  // handles
  size_t symbol_count;
  size_t symbol_capacity;
};

// ---- build.c

// Keeps the first mistake. Returns NULL, so that a call that gives a handle can end with it.
void* qn__build_fail(qn_builder_t* builder, const char* call, const char* format, ...)
    QN_PRINTF(3, 4);
void* qn__build_out_of_memory(qn_builder_t* builder);
// No mistake so far, and a function is open.
bool qn__build_is_ready(qn_builder_t* builder, const char* call);
// The same, and statements may be added here.
bool qn__build_takes_stmts(qn_builder_t* builder, const char* call);
// A name that a text could have; NULL and "" give `fallback` unless that is NULL.
const char* qn__build_name(qn_builder_t* builder, const char* call, const char* name,
                           const char* fallback);

// ---- build_expr.c

// Makes `expr` known as a handle. Takes NULL (out of memory) and then gives NULL.
qn__ir_expr_t* qn__build_give(qn_builder_t* builder, qn__ir_expr_t* expr, qn__built_t built);
// The tree of a handle for a place in the module: itself, or a copy when it has a place already.
// NULL for a mistake. What is known is joined into `inout_built`, which may be NULL.
qn__ir_expr_t* qn__build_take(qn_builder_t* builder, const char* call, const char* what,
                              qn__ir_expr_t* expr, qn__built_t* inout_built);
// The same for `count` of them, which must be `dtype` (NONE: any integer). NULL for a mistake.
qn__ir_expr_t** qn__build_take_all(qn_builder_t* builder, const char* call, const char* what,
                                   qn__ir_expr_t* const* exprs, size_t count, qn_dtype_t dtype,
                                   qn__built_t* inout_built);
// One expression of a dtype.
qn__ir_expr_t* qn__build_take_as(qn_builder_t* builder, const char* call, const char* what,
                                 qn__ir_expr_t* expr, qn_dtype_t dtype, qn__built_t* inout_built);
// The handle of a variable.
qn__ir_expr_t* qn__build_give_var(qn_builder_t* builder, qn__ir_var_t* var);

// ---- build_stmt.c

bool qn__build_is_buffer(qn_builder_t* builder, const char* call, const qn__ir_buffer_t* buffer);
// Indices of an access; NULL for a mistake.
qn__ir_expr_t** qn__build_indices(qn_builder_t* builder, const char* call,
                                  const qn__ir_buffer_t* buffer, size_t rank,
                                  qn__ir_expr_t* const* indices, qn__built_t* inout_built);
// A buffer with its shape and strides (NULL: row-major). NULL for a mistake.
qn__ir_buffer_t* qn__build_new_buffer(qn_builder_t* builder, const char* call, qn__ir_scope_t scope,
                                      const char* name, qn_dtype_t dtype, size_t rank,
                                      qn__ir_expr_t* const* shape, qn__ir_expr_t* const* strides);
bool qn__build_give_buffer(qn_builder_t* builder, qn__ir_buffer_t* buffer);

#endif  // QUERN_IR_BUILDER_H_
