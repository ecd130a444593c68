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
// Visits the expressions of the statement itself, not those of nested blocks. Those of an
// allocation are its shape, strides and base indices.
bool qn__stmt_each_expr(qn__ir_stmt_t* stmt, qn__ir_slot_fn_t fn, void* self);
// Returns the block nested in `stmt` that follows `block`: the first for NULL, NULL after the last.
// An `if` has two (the second may be empty), a loop one, other statements none.
qn__ir_block_t* qn__stmt_next_block(qn__ir_stmt_t* stmt, const qn__ir_block_t* block);
// Runs the statement that follows for each block nested in `stmt`, which it declares as `inner`.
#define QN__EACH_BLOCK(stmt, inner)                                      \
  for (qn__ir_block_t* inner = qn__stmt_next_block(stmt, NULL); (inner); \
       (inner) = qn__stmt_next_block(stmt, inner))

// Moves all statements of `from` to the end of `to`.
void qn__block_splice(qn__ir_block_t* to, qn__ir_block_t* from);
// Returns a block of one statement.
static inline qn__ir_block_t qn__block_of(qn__ir_stmt_t* stmt) {
  stmt->next = NULL;
  return (qn__ir_block_t){stmt, stmt};
}

// Computes an expression of integer literals and operators alone. Returns false for any other.
bool qn__expr_const_int(const qn__ir_expr_t* expr, int64_t* out_value);
// Returns true for the integer literal `value`.
static inline bool qn__expr_is_int(const qn__ir_expr_t* expr, int64_t value) {
  return expr->kind == QN__EXPR_INT && expr->int_value == value;
}

// Properties that limit where an expression may be evaluated. No expression has side effects. One
// that can fail must stay in checked builds, and must not move to a place that did not evaluate it.
typedef struct qn__ir_expr_facts {
  bool has_load;
  bool has_division;    // an integer division whose divisor is not a non-zero literal
  bool has_cross_lane;  // LANE and GROUP operators: bound to the threads that reach them
  bool has_reduce;
} qn__ir_expr_facts_t;
qn__ir_expr_facts_t qn__expr_facts(qn__ir_expr_t* expr);

// Returns true if the first operand decides whether the others are evaluated.
static inline bool qn__expr_is_lazy(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_COND ||
         (expr->kind == QN__EXPR_OP && (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR));
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

// Sets `user` of everything that the function declares to NULL.
void qn__function_clear_user(qn__ir_func_t* function);

// Counts expression nodes and statements. Passes limit the growth of code by this number.
size_t qn__block_weight(qn__ir_block_t* block);

// Ok unless the arena ran out of memory.
qn_status_t qn__pass_status(const qn__ir_body_t* body, const char* pass_name);

#endif  // QUERN_IR_PASSES_REWRITE_H_
