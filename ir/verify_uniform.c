// SPDX-License-Identifier: Apache-2.0
// ir/verify_uniform.c: checks that all threads of a block reach each barrier and exchange.
//
// 1. A value is *divergent* if it may differ among the threads of a block. Divergent are a thread
//    loop's variable, a load at a divergent index, the old value of an atomic, an exchange within a
//    warp, and every value computed from these.
// 2. Control flow is divergent inside a condition or loop with divergent operands. A barrier or
//    exchange there is an error.
//    So is it inside of a loop that some threads leave, or end an iteration of, before others.
// 3. A local buffer is divergent after a divergent value, index or branch has written to it. In a
//    loop, a store may feed a load before it, in the next iteration. The walk is thus repeated
//    until nothing changes, and once more to report.
#include <assert.h>
#include <stdio.h>

#include "ir/verifier.h"

typedef struct uniform {
  qn__verifier_t* v;
  qn__ptrmap_t divergent;  // variables and buffers
  const qn__ir_expr_t*
      cause;  // the innermost enclosing divergent condition; NULL: uniform control flow
  const qn__ir_stmt_t* loop;  // the innermost one, LOOP or WHILE
  uint32_t thread_depth;
  bool has_changed;
  bool is_reporting;
  bool has_given_up;  // after too many rounds: every local buffer counts as divergent
} uniform_t;

enum { MAX_ROUNDS = 64 };

static bool visit(uniform_t* u, const qn__ir_expr_t* expr);
static void visit_block(uniform_t* u, const qn__ir_block_t* block);

static void mark(uniform_t* u, const void* node) {
  if (qn__ptrmap_get(&u->divergent, node)) return;
  if (!qn__ptrmap_put(&u->divergent, node, u)) qn__verify_out_of_memory(u->v);
  u->has_changed = true;
}

static bool is_marked(const uniform_t* u, const void* node) {
  return qn__ptrmap_get(&u->divergent, node) != NULL;
}

static void meet(uniform_t* u, qn__ir_loc_t loc, const char* what) {
  if (!u->is_reporting || !u->cause) return;
  (void)qn__verify_error(u->v, QN__VERIFY_DIVERGENT, loc,
                         "move it out of the branch or loop, so that every thread comes here",
                         "%s under control flow that differs among threads", what);
  qn__verify_note(u->v, u->cause->loc, "this differs among the threads of a block");
}

// Enters a condition that may be divergent. Returns the cause to restore after it.
static const qn__ir_expr_t* divide(uniform_t* u, bool is_divergent, const qn__ir_expr_t* cause) {
  const qn__ir_expr_t* before = u->cause;
  if (is_divergent) u->cause = cause;
  return before;
}

static bool visit_all(uniform_t* u, qn__ir_expr_t* const* exprs, size_t count) {
  bool is_divergent = false;
  for (size_t i = 0; i < count; i++) is_divergent |= visit(u, exprs[i]);
  return is_divergent;
}

static bool visit_op(uniform_t* u, const qn__ir_expr_t* expr) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR) {
    bool is_divergent = visit(u, expr->args[0]);
    const qn__ir_expr_t* before = divide(u, is_divergent, expr->args[0]);
    is_divergent |= visit(u, expr->args[1]);
    u->cause = before;
    return is_divergent;
  }
  bool is_divergent = visit_all(u, expr->args, info->arity);
  if (!qn__expr_is_exchange(expr)) return is_divergent;
  char what[64];
  (void)snprintf(what, sizeof what, "'%s'", info->text);
  meet(u, expr->loc, what);
  // A reduction over the block has one value for all threads. One over a warp differs among warps.
  return expr->op != QN_OP_BLOCK_SUM && expr->op != QN_OP_BLOCK_MIN && expr->op != QN_OP_BLOCK_MAX;
}

static bool visit_reduce(uniform_t* u, const qn__ir_expr_t* expr) {
  bool is_divided = visit(u, expr->reduce.begin);
  is_divided |= visit(u, expr->reduce.end);
  if (is_divided) mark(u, expr->reduce.reduce_var);
  const qn__ir_expr_t* before = divide(u, is_divided, expr->reduce.end);
  visit_block(u, &expr->reduce.lets);
  bool is_divergent = visit(u, expr->reduce.value) || is_divided;
  u->cause = before;
  return is_divergent;
}

static bool visit_kind(uniform_t* u, const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
      return false;
    case QN__EXPR_VAR:
      return is_marked(u, expr->var);
    case QN__EXPR_LOAD: {
      const qn__ir_buffer_t* buffer = expr->load.buffer;
      bool is_divergent = visit_all(u, expr->load.indices, buffer->rank);
      const qn__ir_buffer_t* root = qn__buf_root(buffer);
      return is_divergent || is_marked(u, buffer) || is_marked(u, root) ||
             (u->has_given_up && root->scope == QN__SCOPE_LOCAL);
    }
    case QN__EXPR_OP:
      return visit_op(u, expr);
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return visit(u, expr->args[0]);
    case QN__EXPR_COND: {
      bool is_divergent = visit(u, expr->args[0]);
      const qn__ir_expr_t* before = divide(u, is_divergent, expr->args[0]);
      is_divergent |= visit_all(u, expr->args + 1, 2);
      u->cause = before;
      return is_divergent;
    }
    case QN__EXPR_REDUCE:
      return visit_reduce(u, expr);
  }
  return true;
}

// Returns whether the value is divergent. Outside of thread loops it never is, since one thread
// works for the whole block.
static bool visit(uniform_t* u, const qn__ir_expr_t* expr) {
  return visit_kind(u, expr) && u->thread_depth > 0;
}

static void write_to(uniform_t* u, const qn__ir_buffer_t* buffer, bool is_divergent) {
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  if (root->scope != QN__SCOPE_LOCAL) return;
  if (is_divergent || u->cause || is_marked(u, buffer)) mark(u, root);
}

static void visit_alloc(uniform_t* u, const qn__ir_buffer_t* buffer) {
  if (buffer->scope != QN__SCOPE_VIEW) return;
  bool is_divergent = visit_all(u, buffer->base_indices, buffer->base->rank);
  is_divergent |= visit_all(u, buffer->shape, buffer->rank);
  if (buffer->strides) is_divergent |= visit_all(u, buffer->strides, buffer->rank);
  if (is_divergent || is_marked(u, buffer->base)) mark(u, buffer);
}

// Visits the body of a loop. A LEAVE has marked the loop with the divergent condition around it.
static void visit_rounds(uniform_t* u, const qn__ir_stmt_t* stmt, const qn__ir_block_t* body) {
  const qn__ir_stmt_t* outer = u->loop;
  const qn__ir_expr_t* leaves = qn__ptrmap_get(&u->divergent, stmt);
  const qn__ir_expr_t* before = divide(u, leaves != NULL, leaves);
  u->loop = stmt;
  visit_block(u, body);
  u->loop = outer;
  u->cause = before;
}

static void visit_leave(uniform_t* u) {
  if (!u->cause || !u->loop || is_marked(u, u->loop)) return;
  union {
    const qn__ir_expr_t* from;
    void* to;
  } cause = {u->cause};
  if (!qn__ptrmap_put(&u->divergent, u->loop, cause.to)) qn__verify_out_of_memory(u->v);
  u->has_changed = true;
}

static void visit_loop(uniform_t* u, const qn__ir_stmt_t* stmt) {
  bool is_thread = qn__loop_is_thread(stmt->loop.kind);
  bool is_divided = visit(u, stmt->loop.begin);
  const qn__ir_expr_t* cause = is_divided ? stmt->loop.begin : stmt->loop.end;
  is_divided |= visit(u, stmt->loop.end);
  if (is_divided || is_thread) mark(u, stmt->loop.var);
  const qn__ir_expr_t* before = divide(u, is_divided, cause);
  u->thread_depth += is_thread;
  visit_rounds(u, stmt, &stmt->loop.body);
  assert(!is_thread || u->thread_depth > 0);
  u->thread_depth -= is_thread;
  u->cause = before;
}

// Visits a reduction of several values or a scan, which hold no exchange.
static void visit_several(uniform_t* u, const qn__ir_stmt_t* stmt) {
  const qn__ir_several_t* several = stmt->several;
  bool is_divided = visit(u, several->begin);
  is_divided |= visit(u, several->end);
  if (is_divided) mark(u, several->var);
  bool is_divergent = is_divided;
  is_divergent |= visit_all(u, several->initial, several->merged_count);
  visit_block(u, &several->lets);
  is_divergent |= visit_all(u, several->values, several->count);
  visit_block(u, &several->merge_lets);
  is_divergent |= visit_all(u, several->merged, several->merged_count);
  for (uint32_t i = 0; i < several->result_count && is_divergent; i++) {
    mark(u, several->results[i]);
  }
  const qn__ir_expr_t* before = divide(u, is_divided, several->end);
  visit_rounds(u, stmt, &several->body);
  u->cause = before;
}

static void visit_stmt(uniform_t* u, const qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      if (visit(u, stmt->let.value)) mark(u, stmt->let.var);
      return;
    case QN__STMT_STORE: {
      bool is_divergent = visit_all(u, stmt->store.indices, stmt->store.buffer->rank);
      is_divergent |= visit(u, stmt->store.value);
      write_to(u, stmt->store.buffer, is_divergent);
      return;
    }
    case QN__STMT_ATOMIC:
      (void)visit_all(u, stmt->atomic.indices, stmt->atomic.buffer->rank);
      if (stmt->atomic.operand) (void)visit(u, stmt->atomic.operand);
      if (stmt->atomic.operand2) (void)visit(u, stmt->atomic.operand2);
      write_to(u, stmt->atomic.buffer, u->thread_depth > 0);
      if (stmt->atomic.result && u->thread_depth > 0) mark(u, stmt->atomic.result);
      return;
    case QN__STMT_IF: {
      bool is_divided = visit(u, stmt->if_.condition);
      const qn__ir_expr_t* before = divide(u, is_divided, stmt->if_.condition);
      visit_block(u, &stmt->if_.then_block);
      visit_block(u, &stmt->if_.else_block);
      u->cause = before;
      return;
    }
    case QN__STMT_LOOP:
      visit_loop(u, stmt);
      return;
    case QN__STMT_WHILE: {
      bool is_divided = visit(u, stmt->while_.condition);
      const qn__ir_expr_t* before = divide(u, is_divided, stmt->while_.condition);
      visit_rounds(u, stmt, &stmt->while_.body);
      u->cause = before;
      return;
    }
    case QN__STMT_ALLOC:
      visit_alloc(u, stmt->alloc.buffer);
      return;
    case QN__STMT_BARRIER:
      meet(u, stmt->loc, "a barrier");
      return;
    case QN__STMT_FENCE:
      return;
    case QN__STMT_ASSERT:
      (void)visit(u, stmt->assert_.condition);
      return;
    case QN__STMT_LEAVE:
      visit_leave(u);
      return;
    case QN__STMT_REDUCE:
      visit_several(u, stmt);
      return;
    case QN__STMT_TENSOR:
      for (uint32_t i = 0; i < stmt->tensor->ref_count; ++i) {
        (void)visit_all(u, stmt->tensor->refs[i].indices, stmt->tensor->refs[i].buffer->rank);
      }
      if (stmt->tensor->ref_count > 0) write_to(u, stmt->tensor->refs[0].buffer, true);
      // All lanes of a warp multiply together.
      if (stmt->tensor->kind == QN__TENSOR_MULTIPLY || stmt->tensor->kind == QN__TENSOR_FINISH)
        meet(u, stmt->loc, "a matrix product");
      return;
  }
}

static void visit_block(uniform_t* u, const qn__ir_block_t* block) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt && !qn__verify_stopped(u->v);
       stmt = stmt->next) {
    visit_stmt(u, stmt);
  }
}

void qn__verify_uniform(qn__verifier_t* v, const qn__ir_func_t* function) {
  if (!v->has_threads) return;
  uniform_t u = {.v = v};
  qn__ptrmap_init(&u.divergent, v->scratch.allocator);
  for (int round = 0; round < MAX_ROUNDS && !v->has_failed; round++) {
    u.has_changed = false;
    visit_block(&u, &function->body);
    if (!u.has_changed) break;
  }
  assert(!u.cause && u.thread_depth == 0);
  u.has_given_up = u.has_changed;
  u.is_reporting = true;
  visit_block(&u, &function->body);
  qn__ptrmap_deinit(&u.divergent);
}
