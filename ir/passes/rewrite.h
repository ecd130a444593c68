// ir/passes/rewrite.h: what the passes share: visiting expression slots in place, building lists,
// and questions about expressions (constant? pure? cheap?).
//
// Not here: cloning and comparing (ir.h). Thread rule: one thread per body. Read next: rewrite.c.
#ifndef QUERN_IR_PASSES_REWRITE_H_
#define QUERN_IR_PASSES_REWRITE_H_

#include "ir/ir.h"

// Called with each place that holds an expression; may replace it. False stops the visit.
typedef bool (*qn__slot_fn_t)(void* self, qn__ir_expr_t** slot);

// Direct children, in the order of evaluation. Of a reduction: begin, end, values of its lets,
// value.
bool qn__expr_each_child(qn__ir_expr_t* expr, qn__slot_fn_t fn, void* self);
// The expressions that belong to the statement itself, not those of nested blocks. Of an
// allocation: the shape, strides and base indices.
bool qn__stmt_each_expr(qn__ir_stmt_t* stmt, qn__slot_fn_t fn, void* self);
// The nested blocks: none, one, or two for `if` (the second may be empty).
size_t qn__stmt_blocks(qn__ir_stmt_t* stmt, qn__ir_block_t* out_blocks[2]);

// All statements of `from` (left empty) at the end of `to`.
void qn__block_splice(qn__ir_block_t* to, qn__ir_block_t* from);
// A block of one statement.
static inline qn__ir_block_t qn__block_of(qn__ir_stmt_t* stmt) {
  stmt->next = NULL;
  return (qn__ir_block_t){stmt, stmt};
}

// The value of an expression that consists of integer literals and operators only.
bool qn__expr_const_int(const qn__ir_expr_t* expr, int64_t* out_value);
// Is it the integer literal `value`?
static inline bool qn__expr_is_int(const qn__ir_expr_t* expr, int64_t value) {
  return expr->kind == QN__EXPR_INT && expr->int_value == value;
}

// What evaluating an expression may do besides giving a value. Nothing has side effects, but what
// can fail must not be dropped in checked builds nor be moved to where it was not evaluated.
typedef struct qn__expr_facts {
  bool has_load;
  bool has_division;    // an integer division whose divisor is not a non-zero literal
  bool has_cross_lane;  // LANE and GROUP operators: bound to the threads that reach them
  bool has_reduce;
} qn__expr_facts_t;
qn__expr_facts_t qn__expr_facts(qn__ir_expr_t* expr);

// Are all operands but the first evaluated only where that says so?
static inline bool qn__expr_is_lazy(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_COND ||
         (expr->kind == QN__EXPR_OP && (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR));
}

// qn__buf_root for a pass that changes what it finds.
static inline qn__ir_buffer_t* qn__buf_root_mutable(qn__ir_buffer_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) buffer = buffer->base;
  return buffer;
}

// The strides of a buffer as expressions of their own, rank of them. NULL without memory.
qn__ir_expr_t** qn__buf_strides(qn__arena_t* arena, const qn__ir_buffer_t* buffer);

// Clone with one variable replaced by a clone of `value` (NULL: nothing is replaced).
qn__ir_expr_t* qn__expr_replace(qn__arena_t* arena, const qn__ir_expr_t* expr, qn__ir_var_t* var,
                                qn__ir_expr_t* value);
bool qn__block_replace(qn__arena_t* arena, const qn__ir_block_t* block, qn__ir_var_t* var,
                       qn__ir_expr_t* value, qn__ir_block_t* out_block);

// Sets `user` of everything that the function declares to NULL.
void qn__function_clear_user(qn__ir_func_t* function);

// Number of expression nodes and statements: what growth limits count.
size_t qn__block_weight(qn__ir_block_t* block);

// Ok unless the arena ran out of memory.
qn_status_t qn__pass_status(const qn__ir_body_t* body, const char* pass_name);

#endif  // QUERN_IR_PASSES_REWRITE_H_
