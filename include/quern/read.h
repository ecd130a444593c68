// SPDX-License-Identifier: Apache-2.0
// quern/read.h: reading what functions compute: a typed, read-only walk over the tree of a module,
// for code generators and other tools. docs/ir.md says what each construct means.
//
// A handle (qn_stmt_t, qn_expr_t, qn_buffer_t, qn_var_t) is a node of the tree. A function of this
// header describes one node in a struct of the caller. Arrays in it are those of the tree, which
// the module keeps: nothing is copied or allocated.
//
//   qn_status_t visit(const qn_module_t* module, const qn_stmt_t* first) {
//     qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
//     for (const qn_stmt_t* at = first; at; at = stmt.next) {
//       QN_TRY(qn_module_stmt_info(module, at, &stmt));
//       switch (stmt.kind) { case QN_STMT_LOOP: ... visit(module, stmt.body) ... }
//     }
//     return QN_OK;
//   }
//
// A generator calls qn_module_decode (ir.h) with the canonical bytes of its request. They may be
// any bytes: a module that decodes is valid, so a reader may rely on the rules of the language and
// on the limits below. Each function is read from qn_module_function_info and
// qn_module_param_info (ir.h) down.
//
// `lane_count` and `is_rare` are hints that qn_module_lower (lower.h) leaves: a reader may
// ignore them. Text and canonical bytes do not have them.
//
// Members that a kind does not name are 0 or NULL. A later library may know more kinds of nodes,
// operators, dtypes and members. A new member never changes the meaning of the others: what does is
// a new kind or value, and a reader must refuse those that it does not know (UNSUPPORTED).
//
// Any threads read one module at once. Handles are those of one module and are borrowed until it is
// released; with the handle of another module the result means nothing. Errors of all functions
// here: INVALID_ARGUMENT (NULL, or a struct_size that was never set).
#ifndef QUERN_READ_H_
#define QUERN_READ_H_

#include "quern/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

// Limits of all modules, so that readers may recurse and use fixed arrays.
enum {
  QN_MAX_RANK = 32,      // dimensions of a buffer
  QN_MAX_NESTING = 256,  // a block or an expression counts one level
  QN_MAX_VALUES = 8,     // of a reduction of several values
};

// A statement.
typedef struct qn_stmt qn_stmt_t;

// ------------------------------------------------------------------------------------ functions

// A function. Its parameters are those of qn_module_param_info.
typedef struct qn_function_info {
  size_t struct_size;              // sizeof(qn_function_info_t)
  const char* name;                // borrowed from the module
  bool is_fast;                    // floats may be reassociated and contracted
  size_t param_count;              // of qn_module_param_info
  size_t symbol_count;             // of `symbols`
  const qn_var_t* const* symbols;  // in the order in which the parameters show them
  uint32_t var_count;              // ids of variables are below it
  uint32_t buffer_count;           // ids of buffers are below it
  const qn_stmt_t* body;           // the first statement; NULL: there is none
} qn_function_info_t;
// Describes a function. Errors: INVALID_ARGUMENT (also an index beyond the count).
QN_API QN_MUST_USE qn_status_t qn_module_function_info(const qn_module_t* module, size_t index,
                                                       qn_function_info_t* out_info);

// What a variable is.
typedef enum qn_var_kind {
  QN_VAR_NONE = 0,
  QN_VAR_SYMBOL = 1,  // i64, bound from shapes at the call
  QN_VAR_SCALAR = 2,  // a parameter
  QN_VAR_LOOP = 3,    // i64, of a loop
  QN_VAR_REDUCE = 4,  // i64, of a reduction
  QN_VAR_LET = 5,     // a let, an operand of a combiner, a result of a reduction
  QN_VAR_ATOMIC = 6,  // the old value that an atomic statement gives
} qn_var_kind_t;

// A variable. It never changes after its declaration.
typedef struct qn_var_info {
  size_t struct_size;   // sizeof(qn_var_info_t)
  qn_var_kind_t kind;   // what declares it
  qn_dtype_t dtype;     // of its value
  uint32_t id;          // from 0 within the function, in the order of the canonical bytes
  const char* name;     // unique for symbols and parameters alone. Borrowed from the module
  bool is_fixed;        // SCALAR: each call passes fixed_value, and no expression has the variable
  int64_t fixed_value;  // 0 unless is_fixed
} qn_var_info_t;
// Describes a variable. Errors: INVALID_ARGUMENT.
QN_API QN_MUST_USE qn_status_t qn_module_var_info(const qn_module_t* module, const qn_var_t* var,
                                                  qn_var_info_t* out_info);

// A parameter, allocation, table or view. It has an array of `rank` extents, and one of `rank`
// strides unless it is row-major; all are i64.
typedef struct qn_buffer_info {
  size_t struct_size;    // sizeof(qn_buffer_info_t)
  qn_scope_t scope;      // where its elements are
  qn_dtype_t dtype;      // of the elements; that of a view may differ from its base's
  uint32_t id;           // from 0 within the function: parameters, then in the order of the bytes
  const char* name;      // unique for parameters alone. Borrowed from the module
  qn_access_t access;    // PARAM; else NONE
  uint32_t align_bytes;  // PARAM: at least the dtype's size; else 0
  uint32_t rank;         // of shape and strides
  const qn_expr_t* const* shape;         // extents
  const qn_expr_t* const* strides;       // in elements; NULL: row-major
  size_t element_count;                  // CONST: of `elements`
  const qn_expr_t* const* elements;      // CONST: literals of the dtype, row-major
  const qn_buffer_t* base;               // VIEW: the buffer underneath, which may be a view
  size_t base_index_count;               // VIEW: of `base_indices`, the rank of the base
  const qn_expr_t* const* base_indices;  // VIEW: of the base's element at which the view begins
  // What qn_artifact_site_t (backend.h) takes: `id`, or after qn_module_lower the id in the module
  // that was lowered. UINT32_MAX: a pass made the buffer.
  uint32_t origin_id;
} qn_buffer_info_t;
// Describes a buffer. Errors: INVALID_ARGUMENT.
QN_API QN_MUST_USE qn_status_t qn_module_buffer_info(const qn_module_t* module,
                                                     const qn_buffer_t* buffer,
                                                     qn_buffer_info_t* out_info);

// ------------------------------------------------------------------------------------ expressions

// What an expression is. Values are those of the canonical bytes.
typedef enum qn_expr_kind {
  QN_EXPR_NONE = 0,
  QN_EXPR_INT = 1,      // int_value, bits: a literal of an integer dtype or bool
  QN_EXPR_FLOAT = 2,    // float_value, bits: a literal of a float dtype
  QN_EXPR_VAR = 3,      // var
  QN_EXPR_LOAD = 4,     // buffer, args: an index of any integer dtype for each dimension
  QN_EXPR_OP = 5,       // op, args: its operands
  QN_EXPR_CAST = 6,     // args: one value to be converted
  QN_EXPR_BITCAST = 7,  // args: one value, whose bits are taken
  QN_EXPR_COND = 8,     // args: condition, a, b, of which a or b is not evaluated
  QN_EXPR_REDUCE = 9,   // reduce_kind, var, begin, end, lets, value
} qn_expr_kind_t;

// An expression.
typedef struct qn_expr_info {
  size_t struct_size;            // sizeof(qn_expr_info_t)
  qn_expr_kind_t kind;           // decides which members count
  qn_dtype_t dtype;              // of its value
  uint32_t place;                // as of qn_stmt_info_t
  qn_op_t op;                    // OP
  uint32_t arg_count;            // of `args`
  const qn_expr_t* const* args;  // LOAD, OP, CAST, BITCAST, COND
  const qn_var_t* var;           // VAR; REDUCE: its variable
  const qn_buffer_t* buffer;     // LOAD
  int64_t int_value;             // INT: extended from the dtype; of u64 its bits
  double float_value;            // FLOAT: exact
  uint64_t bits;                 // INT, FLOAT: of the value in memory, zero-extended
  qn_reduce_kind_t reduce_kind;  // REDUCE
  const qn_expr_t* begin;        // REDUCE: i64
  const qn_expr_t* end;          // REDUCE: i64, exclusive
  const qn_stmt_t* lets;         // REDUCE: the first let of an iteration; NULL: there is none
  const qn_expr_t* value;        // REDUCE: of an iteration
  uint32_t lane_count;           // REDUCE: it may keep so many partial results; 0: one
} qn_expr_info_t;
// Describes an expression. Errors: INVALID_ARGUMENT.
QN_API QN_MUST_USE qn_status_t qn_module_expr_info(const qn_module_t* module, const qn_expr_t* expr,
                                                   qn_expr_info_t* out_info);

// ------------------------------------------------------------------------------------ statements

// What a statement is. Values are those of the canonical bytes.
typedef enum qn_stmt_kind {
  QN_STMT_NONE = 0,
  QN_STMT_LET = 1,      // var: declared for the rest of the block; value
  QN_STMT_STORE = 2,    // buffer, indices, value
  QN_STMT_ATOMIC = 3,   // atomic_op, buffer, indices, var, value, value2
  QN_STMT_IF = 4,       // condition, body, other_body
  QN_STMT_LOOP = 5,     // loop_kind, var, begin, end, body
  QN_STMT_WHILE = 6,    // condition, body
  QN_STMT_ALLOC = 7,    // buffer: declared for the rest of the block, of any scope but PARAM
  QN_STMT_BARRIER = 8,  //
  QN_STMT_ASSERT = 9,   // condition, message
  QN_STMT_REDUCE = 11,  // the reduction or scan of qn_module_several_info
  QN_STMT_LEAVE = 12,   // leave
  QN_STMT_FENCE = 13,   //
} qn_stmt_kind_t;

// A statement. A block is the list from its first statement on; an empty one is NULL.
typedef struct qn_stmt_info {
  size_t struct_size;   // sizeof(qn_stmt_info_t)
  qn_stmt_kind_t kind;  // decides which members count
  // As of qn_artifact_site_t (backend.h): in the bytes that the module was decoded from, or those
  // of the module that it was lowered from. 0: the node was in neither.
  uint32_t place;
  const qn_stmt_t* next;            // in its block; NULL: it is the last one
  const qn_var_t* var;              // LET, LOOP: declared; ATOMIC: the old value, or NULL
  const qn_buffer_t* buffer;        // STORE, ATOMIC, ALLOC
  uint32_t index_count;             // STORE, ATOMIC: of `indices`, the rank of the buffer
  const qn_expr_t* const* indices;  // STORE, ATOMIC: of any integer dtype
  const qn_expr_t* value;           // LET, STORE; ATOMIC: its operand, NULL for LOAD
  const qn_expr_t* value2;          // ATOMIC: what CAS stores where it finds `value`
  const qn_expr_t* condition;       // IF, WHILE, ASSERT: bool
  const qn_expr_t* begin;           // LOOP: i64
  const qn_expr_t* end;             // LOOP: i64, exclusive
  const qn_stmt_t* body;            // LOOP, WHILE; IF: what runs if the condition holds
  const qn_stmt_t* other_body;      // IF: what runs if not
  const char* message;              // ASSERT: "": none. Borrowed from the module
  qn_loop_kind_t loop_kind;         // LOOP
  qn_atomic_op_t atomic_op;         // ATOMIC
  qn_leave_t leave;                 // LEAVE
  uint32_t lane_count;  // LOOP: may run in so many lanes, by qn_module_lower; 0: it does not
  bool is_rare;         // LOOP: runs seldom, so its code may be slow and should be short
} qn_stmt_info_t;
// Describes a statement. Errors: INVALID_ARGUMENT.
QN_API QN_MUST_USE qn_status_t qn_module_stmt_info(const qn_module_t* module, const qn_stmt_t* stmt,
                                                   qn_stmt_info_t* out_info);

// How a reduction of several values or a scan combines them.
typedef enum qn_several_kind {
  QN_SEVERAL_NONE = 0,
  QN_SEVERAL_COMBINE = 1,  // by its combiner
  QN_SEVERAL_ARGMIN = 2,   // the smallest value and its lowest index, i64
  QN_SEVERAL_ARGMAX = 3,   // the largest value and its lowest index, i64
  QN_SEVERAL_SCAN = 4,     // a scan: each iteration has what is combined up to and with its own
  QN_SEVERAL_EXCLUSIVE_SCAN = 5,  // a scan that leaves the iteration's own values out
} qn_several_kind_t;

// A reduction of several values, in the order in which it runs: for each index, `lets` and
// `values`; to combine two partial results, `left` and `right`, `merge_lets` and `merged`; after
// it, `results` are declared for the rest of the block. The results of a scan are declared for its
// `body`, which runs in each iteration and has `var`, too.
typedef struct qn_several_info {
  size_t struct_size;               // sizeof(qn_several_info_t)
  qn_several_kind_t kind;           // of the reduction
  uint32_t count;                   // of `values`: 1 to QN_MAX_VALUES; 1 for ARGMIN and ARGMAX
  const qn_var_t* var;              // i64, the index
  const qn_expr_t* begin;           // i64
  const qn_expr_t* end;             // i64, exclusive
  const qn_stmt_t* lets;            // the first one; NULL: there is none
  const qn_expr_t* const* values;   // of an iteration
  uint32_t merged_count;            // of the next four: `count`, or 0 for ARGMIN and ARGMAX
  const qn_expr_t* const* initial;  // of a reduction: combined with other values, they give those
  const qn_var_t* const* left;      // operands of the combiner
  const qn_var_t* const* right;     // likewise
  const qn_expr_t* const* merged;   // what the combiner makes of them
  const qn_stmt_t* merge_lets;      // the first one of the combiner; NULL: there is none
  uint32_t result_count;            // of `results`: `count`, or 2 for ARGMIN and ARGMAX
  const qn_var_t* const* results;   // of the dtypes of `values`; then the index
  const qn_stmt_t* body;            // the first statement of a scan's; NULL: there is none
} qn_several_info_t;
// Describes the reduction or scan of a statement of kind REDUCE. Errors: INVALID_ARGUMENT (also a
// statement of another kind).
QN_API QN_MUST_USE qn_status_t qn_module_several_info(const qn_module_t* module,
                                                      const qn_stmt_t* stmt,
                                                      qn_several_info_t* out_info);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_READ_H_
