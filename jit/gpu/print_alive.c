// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_alive.c: keeps failed threads running to the barriers of their block.
//
// A thread that fails a check leaves its kernel. But in GLSL a barrier needs all threads of the
// block (`needs_all_threads`). So in kernels with barriers a failed thread continues with
// `qn_alive` false: it stores nothing, its loads give zero, it passes every check, and its own
// `while` loops end. A loop with a barrier has a condition that is equal for all threads, so all
// threads run the same number of iterations.
#include "jit/gpu/print_inner.h"

static bool has_no_threads(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  (void)walker;
  return stmt->kind != QN__STMT_LOOP || !qn__loop_is_thread(stmt->loop.kind);
}

static bool has_threads(qn__ir_block_t* block) {
  qn__ir_walker_t walker = {has_no_threads, NULL, NULL};
  return !qn__walk_block(&walker, block);
}

// Returns whether this is the innermost loop of a nest.
static bool is_innermost(const qn__ir_stmt_t* loop) {
  const qn__ir_stmt_t* first = loop->loop.body.first;
  return !first || first->next || first->kind != QN__STMT_LOOP ||
         !qn__loop_is_thread(first->loop.kind);
}

static bool visit_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  uint32_t* nest_count = walker->self;
  if (stmt->kind == QN__STMT_BARRIER) return false;
  if (stmt->kind == QN__STMT_ALLOC) return stmt->alloc.buffer->scope != QN__SCOPE_SHARED;
  if (stmt->kind == QN__STMT_WHILE) return !has_threads(&stmt->while_.body);
  if (stmt->kind != QN__STMT_LOOP) return true;
  if (!qn__loop_is_thread(stmt->loop.kind)) {
    return qn__loop_is_block(stmt->loop.kind) || !has_threads(&stmt->loop.body);
  }
  *nest_count += is_innermost(stmt);
  return *nest_count < 2;
}

static bool visit_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)walker;
  return !qn__expr_is_exchange(expr);
}

void qn__kprint_begin_alive(qn__gpu_printer_t* p) {
  uint32_t nest_count = 0;
  qn__ir_walker_t walker = {visit_stmt, visit_expr, &nest_count};
  qn__ir_block_t* body = &p->kernel->root->loop.body;
  p->is_predicated = p->dialect->needs_all_threads && p->kernel->plan->has_record &&
                     !qn__walk_block(&walker, body);
  if (p->is_predicated) qn__kprint_line(p, "bool qn_alive = true;");
}

const char* qn__kprint_alive_index(qn__gpu_printer_t* p, const char* index) {
  return p->is_predicated ? qn__kprint_text(p, "(qn_alive ? %s : 0)", index) : index;
}

const char* qn__kprint_alive_value(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value) {
  if (!p->is_predicated) return value;
  const char* zero = qn__kprint_literal(p, dtype, false, (qn__ir_scalar_t){0});
  return qn__kprint_text(p, "(qn_alive ? %s : %s)", value, zero);
}

bool qn__kprint_can_end_alone(const qn__gpu_printer_t* p, const qn__ir_stmt_t* loop) {
  if (!p->is_predicated) return false;
  uint32_t nest_count = 0;
  qn__ir_walker_t walker = {visit_stmt, visit_expr, &nest_count};
  qn__ir_block_t* body = qn__gpu_walked_block(&loop->while_.body);
  return !has_threads(body) && qn__walk_block(&walker, body);
}
