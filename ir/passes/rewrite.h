// SPDX-License-Identifier: Apache-2.0
// ir/passes/rewrite.h: functions that all passes share: visiting and replacing expressions in
// place, joining lists, and properties of expressions (constant, pure, with loads).
//
// Not here: cloning and comparing (ir.h).
#ifndef QUERN_IR_PASSES_REWRITE_H_
#define QUERN_IR_PASSES_REWRITE_H_

#include "ir/ir.h"

// Visits a slot, which is a place that holds an expression, and may replace the expression. Returns
// false to stop. A pass that visits all expressions of a body looks like this:
//   static bool visit(void* self, qn__ir_expr_t** slot) {
//     ...                                            // look at *slot, or replace it
//     return qn__expr_each_child(*slot, visit, self);
//   }
//   (void)qn__block_each_expr(block, visit, self);
// A pass that carries state into nested blocks walks them itself:
//   static void visit_block(pass_t* self, qn__ir_block_t* block) {
//     for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
//       (void)qn__stmt_each_expr(stmt, visit, self);
//       QN__EACH_BLOCK(stmt, inner) visit_block(self, inner);
//     }
//   }
typedef bool (*qn__ir_slot_fn_t)(void* self, qn__ir_expr_t** slot);

// Visits the direct children in the order of evaluation. Those of a reduction are its begin, its
// end, the values of its lets and its value. Returns false if `fn` stopped.
bool qn__expr_each_child(qn__ir_expr_t* expr, qn__ir_slot_fn_t fn, void* self);
// As qn__expr_each_child. `*inout_is_lazy` is true while it visits an operand that is not always
// evaluated: one of a lazy operator, other than the first.
bool qn__expr_each_child_lazily(qn__ir_expr_t* expr, qn__ir_slot_fn_t fn, void* self,
                                bool* inout_is_lazy);
// Visits the expressions of the statement itself, not those of nested blocks. Those of an
// allocation are its shape, strides and base indices.
bool qn__stmt_each_expr(qn__ir_stmt_t* stmt, qn__ir_slot_fn_t fn, void* self);
// Visits the expressions of all statements of a block, at any depth.
bool qn__block_each_expr(qn__ir_block_t* block, qn__ir_slot_fn_t fn, void* self);
// Returns the block nested in `stmt` that follows `block`: the first for NULL, NULL after the last.
// An `if` has two (the second may be empty), a loop and a REDUCE one (empty unless it is a scan),
// other statements none.
qn__ir_block_t* qn__stmt_next_block(qn__ir_stmt_t* stmt, const qn__ir_block_t* block);
// Runs the statement that follows for each block nested in `stmt`, which it declares as `inner`.
#define QN__EACH_BLOCK(stmt, inner)                                      \
  for (qn__ir_block_t* inner = qn__stmt_next_block(stmt, NULL); (inner); \
       (inner) = qn__stmt_next_block(stmt, inner))

// A reference to a buffer. The indices are those of the access; of a view, the place where it
// starts in its base.
typedef enum qn__ir_ref_kind {
  QN__REF_LOAD,
  QN__REF_STORE,
  QN__REF_ATOMIC,
  QN__REF_BASE,  // by the declaration of a view
} qn__ir_ref_kind_t;
typedef struct qn__ir_ref {
  qn__ir_ref_kind_t kind;
  qn__ir_buffer_t** buffer;
  qn__ir_expr_t*** indices;
} qn__ir_ref_t;
// Looks at a reference, and may replace its buffer and its indices. Returns false to stop.
typedef bool (*qn__ir_ref_fn_t)(void* self, const qn__ir_ref_t* ref);
// Returns true if the statement itself refers to a buffer: a store, an atomic or a view. (Those of
// a TENSOR are several: qn__stmt_each_ref visits them.)
bool qn__stmt_ref(qn__ir_stmt_t* stmt, qn__ir_ref_t* out_ref);
// Visit the loads of an expression, outermost first; the references of a statement without its
// blocks, loads first; and those of a block at any depth. Return false if `fn` stopped.
bool qn__expr_each_ref(qn__ir_expr_t* expr, qn__ir_ref_fn_t fn, void* self);
bool qn__stmt_each_ref(qn__ir_stmt_t* stmt, qn__ir_ref_fn_t fn, void* self);
bool qn__block_each_ref(qn__ir_block_t* block, qn__ir_ref_fn_t fn, void* self);

// Return true if `is_it` holds for a part of the expression, or of any expression of the statement
// (without its blocks) or of the block.
typedef bool (*qn__ir_expr_test_t)(const qn__ir_expr_t* expr);
bool qn__expr_any(qn__ir_expr_t* expr, qn__ir_expr_test_t is_it);
bool qn__stmt_any_expr(qn__ir_stmt_t* stmt, qn__ir_expr_test_t is_it);
bool qn__block_any_expr(qn__ir_block_t* block, qn__ir_expr_test_t is_it);
// Return true if `is_it` holds for a statement of the block, or of any function, at any depth.
bool qn__block_any(qn__ir_block_t* block, bool (*is_it)(const qn__ir_stmt_t* stmt));
bool qn__body_any(qn__ir_body_t* body, bool (*is_it)(const qn__ir_stmt_t* stmt));
bool qn__expr_uses_var(qn__ir_expr_t* expr, const qn__ir_var_t* var);

// Returns the variable that a let, a loop or an atomic declares, or NULL.
qn__ir_var_t* qn__stmt_var(const qn__ir_stmt_t* stmt);
// Set `user` of all variables and buffers that are declared inside.
void qn__expr_set_user(qn__ir_expr_t* expr, void* user);
void qn__block_set_user(qn__ir_block_t* block, void* user);

// Removes and returns the first statement; NULL: the block is empty. A pass that replaces
// statements takes the list away and builds it anew:
//   qn__ir_block_t rest = qn__block_take(block);
//   for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
//     ...
//     qn__block_append(block, stmt);
//   }
static inline qn__ir_stmt_t* qn__block_pop(qn__ir_block_t* block) {
  qn__ir_stmt_t* first = block->first;
  if (!first) return NULL;
  block->first = first->next;
  if (!block->first) block->last = NULL;
  first->next = NULL;
  return first;
}
// Returns all statements, and leaves the block empty.
static inline qn__ir_block_t qn__block_take(qn__ir_block_t* block) {
  qn__ir_block_t all = *block;
  *block = (qn__ir_block_t){NULL, NULL};
  return all;
}
uint32_t qn__block_count(const qn__ir_block_t* block);
// Moves all statements of `from` to the end of `to`.
void qn__block_splice(qn__ir_block_t* to, qn__ir_block_t* from);
// Returns a block of one statement.
static inline qn__ir_block_t qn__block_of(qn__ir_stmt_t* stmt) {
  stmt->next = NULL;
  return (qn__ir_block_t){stmt, stmt};
}

// Computes an expression of integer literals and operators alone. Returns false for any other.
bool qn__expr_const_int(const qn__ir_expr_t* expr, int64_t* out_value);
// Returns the literal of a value.
static inline qn__ir_expr_t* qn__expr_literal(qn__arena_t* arena, qn_dtype_t dtype,
                                              qn__ir_scalar_t value) {
  return qn__dtype_is_real(dtype) ? qn__expr_float(arena, dtype, value.f)
                                  : qn__expr_int(arena, dtype, value.i);
}
// Returns true for the integer literal `value`.
static inline bool qn__expr_is_int(const qn__ir_expr_t* expr, int64_t value) {
  return expr->kind == QN__EXPR_INT && expr->int_value == value;
}

// Returns the number of iterations if it is constant, else -1.
int64_t qn__const_trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end);

// Properties that limit where an expression may be evaluated. No expression has side effects. One
// that can fail must stay in checked builds, and must not move to a place that did not evaluate it.
typedef struct qn__ir_expr_facts {
  bool has_load;
  bool has_division;    // an integer division whose divisor is not a non-zero literal
  bool has_cross_lane;  // LANE and GROUP operators: bound to the threads that reach them
  bool has_reduce;
} qn__ir_expr_facts_t;
qn__ir_expr_facts_t qn__expr_facts(qn__ir_expr_t* expr);

// Returns true if a store in a loop's body is to neighbours in memory, along the last dimension of
// a buffer without strides, at a place that only the loop's variable changes.
bool qn__store_is_along(const qn__ir_stmt_t* loop, const qn__ir_stmt_t* store);

// Returns true if the first operand decides whether the others are evaluated.
static inline bool qn__expr_is_lazy(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_COND ||
         (expr->kind == QN__EXPR_OP && (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR));
}

// Returns true for memory that no statement of the function writes. The buffer is no view.
static inline bool qn__buf_is_constant(const qn__ir_buffer_t* root) {
  return root->scope == QN__SCOPE_CONST ||
         (root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN);
}

// Like qn__buf_root, for a pass that changes the buffer.
static inline qn__ir_buffer_t* qn__buf_root_mutable(qn__ir_buffer_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) buffer = buffer->base;
  return buffer;
}

// Returns copies of the `rank` strides of a buffer. NULL without memory.
qn__ir_expr_t** qn__buf_strides(qn__arena_t* arena, const qn__ir_buffer_t* buffer);

// Clones, with each use of `var` replaced by a clone of `value`. NULL `value`: replaces nothing.
qn__ir_expr_t* qn__expr_replace(qn__arena_t* arena, const qn__ir_expr_t* expr, qn__ir_var_t* var,
                                qn__ir_expr_t* value);
bool qn__block_replace(qn__arena_t* arena, const qn__ir_block_t* block, qn__ir_var_t* var,
                       qn__ir_expr_t* value, qn__ir_block_t* out_block);

// Returns a deep copy of one statement. NULL without memory.
qn__ir_stmt_t* qn__stmt_copy(qn__arena_t* arena, const qn__ir_stmt_t* stmt);

// What replaces a variable or a buffer where code moves to another place; a list.
typedef struct qn__ir_alias qn__ir_alias_t;
struct qn__ir_alias {
  const void* from;
  void* to;
  qn__ir_alias_t* next;
};
// Returns the replacement, or NULL.
void* qn__alias_find(const qn__ir_alias_t* list, const void* from);
void qn__alias_add(qn__arena_t* arena, qn__ir_alias_t** inout_list, const void* from, void* to);

// As qn__block_replace, for several blocks that follow each other.
bool qn__blocks_replace(qn__arena_t* arena, const qn__ir_block_t* const* blocks, size_t count,
                        qn__ir_var_t* var, qn__ir_expr_t* value, qn__ir_block_t* out_block);

// Sets `user` of everything that the function declares to NULL.
void qn__function_clear_user(qn__ir_func_t* function);

// Counts expression nodes and statements. Passes limit the growth of code by this number.
size_t qn__block_weight(qn__ir_block_t* block);

#endif  // QUERN_IR_PASSES_REWRITE_H_
