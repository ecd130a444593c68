// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/threads.c: makes nested thread loops a perfect nest.
//
// The program runs a statement between two thread loops once for all threads of the inner loop. In
// the perfect nest, each of these threads computes the lets and asserts. The first of them does the
// stores, between barriers that order them with accesses of the other threads.
#include "ir/passes/gpu/threads.h"

#include "ir/passes/accesses.h"

static bool holds_threads(qn__ir_stmt_t* stmt) {
  if (qn__is_thread_loop(stmt)) return true;
  QN__EACH_BLOCK(stmt, inner) {
    if (qn__block_any(inner, qn__is_thread_loop)) return true;
  }
  return false;
}

// Returns true if every thread may run the statement.
static bool is_repeatable(const qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_ALLOC) {
    return stmt->alloc.buffer->scope == QN__SCOPE_CONST ||
           stmt->alloc.buffer->scope == QN__SCOPE_VIEW;
  }
  return stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_ASSERT;
}

static bool is_store(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_STORE || (stmt->kind == QN__STMT_ATOMIC && !stmt->atomic.result);
}

// Returns true if the statement reads a buffer that `inside` writes.
static bool reads_from(qn__pass_builder_t* pb, qn__ir_stmt_t* stmt, qn__ir_accesses_t inside) {
  return qn__buffer_sets_meet(qn__accesses_of_own(pb->arena, stmt).reads, inside.writes);
}

typedef struct beside {
  qn__ir_stmt_t* inner;
  bool needs_barrier;
} beside_t;

// Checks the statements beside the inner loop. Returns false if one of them cannot move into it.
// `inner` is NULL without an inner loop.
static bool look_beside(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, beside_t* out) {
  *out = (beside_t){NULL, false};
  for (qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
    if (!holds_threads(stmt)) continue;
    if (out->inner || !qn__is_thread_loop(stmt)) return false;
    out->inner = stmt;
  }
  if (!out->inner) return true;
  qn__ir_accesses_t inside = qn__accesses_of_stmt(pb->arena, out->inner);
  bool is_after = false;
  for (qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
    if (stmt == out->inner) {
      is_after = true;
      continue;
    }
    if (!is_repeatable(stmt) && !is_store(stmt)) return false;
    if (is_after || is_store(stmt) || reads_from(pb, stmt, inside)) {
      out->needs_barrier = true;
    }
    if (stmt->kind == QN__STMT_LET && (qn__expr_uses_var(out->inner->loop.begin, stmt->let.var) ||
                                       qn__expr_uses_var(out->inner->loop.end, stmt->let.var))) {
      return false;
    }
  }
  return true;
}

// Appends a statement of the outer loop; stores are done by the first thread of the inner loops.
static void add_beside(qn__pass_builder_t* pb, qn__ir_stmt_t* stmt, qn__ir_stmt_t* inner,
                       const qn__ir_stmt_t* innermost, qn__ir_block_t* out) {
  if (!is_store(stmt)) {
    qn__block_append(out, stmt);
    return;
  }
  qn__ir_expr_t* is_first = NULL;
  for (qn__ir_stmt_t* loop = inner;; loop = loop->loop.body.first) {
    qn__ir_expr_t* each =
        qn__pb_op(pb, QN_OP_EQ, qn__pb_use(pb, loop->loop.var), qn__pb_copy(pb, loop->loop.begin));
    is_first = is_first ? qn__pb_op(pb, QN_OP_LOGIC_AND, is_first, each) : each;
    if (loop == innermost) break;
  }
  qn__pb_append(out, qn__pb_if(pb, is_first, qn__block_of(stmt)));
}

qn__ir_stmt_t* qn__threads_straighten(qn__pass_builder_t* pb, qn__ir_stmt_t* loop) {
  beside_t beside;
  if (!look_beside(pb, loop, &beside)) return NULL;
  if (!beside.inner) return loop;
  assert(qn__is_thread_loop(loop) && qn__is_thread_loop(beside.inner));
  // Threads without barriers may be run by striding, so no barrier can be added.
  if (beside.needs_barrier && qn__is_independent_loop(beside.inner)) return NULL;
  qn__ir_stmt_t* innermost = qn__threads_straighten(pb, beside.inner);
  if (!innermost || qn__pb_stopped(pb)) return NULL;
  qn__ir_block_t before = {NULL, NULL}, after = {NULL, NULL};
  bool is_after = false;
  qn__ir_block_t* body = &loop->loop.body;
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(body)) != NULL;) {
    if (stmt == beside.inner) {
      is_after = true;
      if (beside.needs_barrier && before.first) qn__pb_barrier(pb, &before);
      if (beside.needs_barrier && body->first) qn__pb_barrier(pb, &after);
      continue;
    }
    bool was_store = is_store(stmt);
    add_beside(pb, stmt, beside.inner, innermost, is_after ? &after : &before);
    if (was_store) qn__pb_barrier(pb, is_after ? &after : &before);
  }
  loop->loop.body = qn__block_of(beside.inner);
  qn__block_splice(&before, &innermost->loop.body);
  qn__block_splice(&before, &after);
  innermost->loop.body = before;
  return innermost;
}
