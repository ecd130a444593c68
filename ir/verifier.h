// SPDX-License-Identifier: Apache-2.0
// ir/verifier.h: what the files of the verifier share.
//
// verify.c         the driver; functions, parameters, names
// verify_expr.c    expressions
// verify_stmt.c    statements and scopes
// verify_several.c reductions of several values
// verify_place.c   the places of loops, allocations and barriers
// verify_uniform.c barriers that not all threads reach
// verify_race.c    iterations that access one element
// The last two run only on functions without other errors, so they may trust the tree. Read next:
// verify.c.
#ifndef QUERN_IR_VERIFIER_H_
#define QUERN_IR_VERIFIER_H_

#include "ir/diag.h"
#include "ir/ptrmap.h"

typedef enum qn__verify_code {
#define QN_VERIFY_CODE(name, code, doc) QN__VERIFY_##name,
#include "ir/verify_codes.inc"
#undef QN_VERIFY_CODE
  QN__VERIFY_CODE_COUNT
} qn__verify_code_t;

// A declaration that the walk has visited.
typedef struct qn__verify_decl qn__verify_decl_t;
typedef struct qn__verify_place qn__verify_place_t;
struct qn__verify_decl {
  qn__verify_decl_t* next;  // the previous declaration in the same scope
  bool is_open;             // its scope contains the current place
  // The host knows its value before a launch: it uses only symbols, integer scalars, literals and
  // the variables of loops that the host runs.
  bool is_host;
  qn__verify_place_t* loop;  // the innermost of these loops; NULL: none
};

// A loop that contains the current place, or the function's body.
struct qn__verify_place {
  qn__verify_place_t* outer;
  const qn__ir_stmt_t* stmt;  // LOOP, WHILE or a scan; NULL: the function's body
  bool has_inner_thread;      // contains a thread loop
  bool has_inner_block;
  bool is_left;  // by a break, continue or return
  // Of a loop that the host must run: the first block loop in it, and the first bound of a grid
  // that depends on its iteration.
  const qn__ir_stmt_t* launch;
  const qn__ir_expr_t* bound;
  const qn__ir_stmt_t* bound_of;
  // A barrier or exchange has this loop as its innermost thread loop.
  bool has_sync;
  qn__ir_loc_t sync_loc;
};

typedef struct qn__verifier {
  qn__diag_t* diag;
  const qn__ir_body_t* body;
  const qn__ir_func_t* function;
  // Bodies from passes may have larger buffers and deeper trees than sources.
  bool is_lowered;
  bool has_failed;       // out of memory
  uint32_t error_count;  // of the whole body
  uint32_t depth;
  uint64_t local_bytes;  // of all allocations in open scopes
  qn__arena_t scratch;
  qn__ptrmap_t seen;         // nodes that have a parent
  qn__ptrmap_t decls;        // variable or buffer -> qn__verify_decl_t
  qn__verify_decl_t* scope;  // declarations of the innermost open scope
  qn__verify_place_t* place;
  uint32_t lane_depth;  // number of enclosing thread loops
  bool has_threads;     // the function has thread loops
} qn__verifier_t;

// ---- verify.c

// Reports an error, and returns false.
bool qn__verify_error(qn__verifier_t* v, qn__verify_code_t code, qn__ir_loc_t loc, const char* help,
                      const char* format, ...) QN_PRINTF(5, 6);
// Adds a note to the previous error. Does nothing if `loc` has no place.
void qn__verify_note(qn__verifier_t* v, qn__ir_loc_t loc, const char* format, ...) QN_PRINTF(3, 4);
void qn__verify_out_of_memory(qn__verifier_t* v);
static inline bool qn__verify_stopped(const qn__verifier_t* v) {
  return v->has_failed || qn__diag_is_full(v->diag);
}
// Returns whether this is the first visit of a node; reports a node with two parents.
bool qn__verify_visit(qn__verifier_t* v, const void* node, qn__ir_loc_t loc);
// Enters one level of nesting; reports and returns false beyond the limit. Pair with leave.
bool qn__verify_enter(qn__verifier_t* v, qn__ir_loc_t loc);
void qn__verify_leave(qn__verifier_t* v);

// ---- verify_stmt.c

// Declares a node in the open scope. Reports a second declaration and returns NULL; also NULL
// without memory.
qn__verify_decl_t* qn__verify_declare(qn__verifier_t* v, const void* node, const char* name,
                                      qn__ir_loc_t loc);
// Returns the open declaration of a variable or buffer; otherwise reports it and returns NULL.
qn__verify_decl_t* qn__verify_lookup(qn__verifier_t* v, const void* node, const char* what,
                                     const char* name, qn__ir_loc_t loc, qn__ir_loc_t declared);
qn__verify_decl_t* qn__verify_open_scope(qn__verifier_t* v);
void qn__verify_close_scope(qn__verifier_t* v, qn__verify_decl_t* outer);
// Checks statements in a scope that is already open. `is_reduction`: only lets are allowed.
void qn__verify_stmts(qn__verifier_t* v, const qn__ir_block_t* block, bool is_reduction);
// Checks a block in a new scope.
void qn__verify_block(qn__verifier_t* v, const qn__ir_block_t* block);
// Checks dtype, rank, shape and strides of any buffer. Returns false if the buffer must not be read
// any further; other errors are only counted.
bool qn__verify_buffer(qn__verifier_t* v, const qn__ir_buffer_t* buffer);

// ---- verify_expr.c

// Check expressions. Return false after a report. The expression may be NULL, which is reported.
bool qn__verify_expr(qn__verifier_t* v, const qn__ir_expr_t* expr);
bool qn__verify_exprs(qn__verifier_t* v, qn__ir_expr_t* const* exprs, size_t count);
bool qn__verify_condition(qn__verifier_t* v, const qn__ir_expr_t* expr, const char* what);
bool qn__verify_i64(qn__verifier_t* v, const qn__ir_expr_t* expr, const char* what);
bool qn__verify_indices(qn__verifier_t* v, qn__ir_expr_t* const* indices,
                        const qn__ir_buffer_t* buffer);
bool qn__verify_literal(qn__verifier_t* v, const qn__ir_expr_t* expr);
// Returns whether the host knows the value before a launch: it consists of literals and host
// variables.
bool qn__verify_is_host(const qn__verifier_t* v, const qn__ir_expr_t* expr);
// Returns the innermost loop on whose iteration such a value depends; NULL: none.
qn__verify_place_t* qn__verify_loop_of(const qn__verifier_t* v, const qn__ir_expr_t* expr);
// Returns whether the host runs the loop of the place: it has an order and bounds that the host
// knows, and so have all loops around it.
bool qn__verify_is_host_loop(const qn__verifier_t* v, const qn__verify_place_t* place);

// ---- verify_several.c

void qn__verify_several(qn__verifier_t* v, const qn__ir_stmt_t* stmt);

// ---- verify_place.c

// Returns whether a loop of the kind is around.
bool qn__verify_has_loop(const qn__verifier_t* v, qn_loop_kind_t kind);
// Checks the place of a loop whose `begin` and `end` are valid expressions.
void qn__verify_loop_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt);
void qn__verify_alloc_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt);
void qn__verify_leave_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt);
void qn__verify_barrier_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt);
// Checks the place of a fence, an atomic load or store.
void qn__verify_order_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt);
// Records a barrier or exchange at `loc` in a thread loop.
void qn__verify_sync(qn__verifier_t* v, qn__ir_loc_t loc);
// Checks a loop when the walk leaves it.
void qn__verify_leave_loop(qn__verifier_t* v, const qn__verify_place_t* place);

// ---- verify_uniform.c, verify_race.c: functions that passed everything above

void qn__verify_uniform(qn__verifier_t* v, const qn__ir_func_t* function);
void qn__verify_races(qn__verifier_t* v, const qn__ir_func_t* function);

#endif  // QUERN_IR_VERIFIER_H_
