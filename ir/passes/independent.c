// SPDX-License-Identifier: Apache-2.0
// ir/passes/independent.c: the pass `independent` marks loops whose iterations may run in any order
// and at once.
//
// Loops that the program wrote as `parallel` or `vector` are independent by definition, thread
// loops are if no barrier or exchange is inside. A serial loop must be proven independent: by a
// slice of every buffer for each iteration (lanes.c) or by a tile (lanes_tile.c).
//
// Postcondition: every PARALLEL and VECTOR loop has `is_independent`, and no loop that could not be
// proven has it. Nothing else changes.
#include "ir/passes/pass_builder.h"

// Returns true if the statement orders the iterations of a loop around it, whichever its stores.
static bool is_ordered(const qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_ATOMIC || stmt->kind == QN__STMT_WHILE ||
      stmt->kind == QN__STMT_BARRIER || stmt->kind == QN__STMT_FENCE) {
    return true;
  }
  return qn__is_block_loop(stmt) || qn__is_thread_loop(stmt);
}

static void mark_block(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    QN__EACH_BLOCK(stmt, inner) mark_block(pb, inner);
    if (stmt->kind != QN__STMT_LOOP) continue;
    qn_loop_kind_t kind = stmt->loop.kind;
    stmt->loop.is_independent = kind == QN_LOOP_PARALLEL || kind == QN_LOOP_VECTOR;
    // Threads without a barrier or an exchange are independent iterations too.
    if (qn__loop_is_thread(kind))
      stmt->loop.is_independent = !qn__block_synchronizes(&stmt->loop.body);
    if (kind != QN_LOOP_SERIAL && kind != QN_LOOP_UNROLL) continue;
    qn__lanes_t* lanes = qn__pb_lanes(pb);
    if (!lanes) return;
    if (qn__block_any(&stmt->loop.body, is_ordered)) continue;
    qn__lanes_enter(lanes, stmt->loop.var, &stmt->loop.body);
    stmt->loop.is_independent =
        qn__lanes_is_independent(lanes, &stmt->loop.body) ||
        qn__lanes_is_tiled(lanes, pb->arena, stmt->loop.var, &stmt->loop.body);
  }
}

static bool is_unmarked(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && !stmt->loop.is_independent &&
         (stmt->loop.kind == QN_LOOP_PARALLEL || stmt->loop.kind == QN_LOOP_VECTOR);
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_unmarked) ? "a parallel loop without its mark" : NULL;
}

static void mark_function(qn__pass_builder_t* pb) {
  mark_block(pb, &pb->function->body);
}

const qn__pass_t qn__pass_independent = {
    .name = "independent",
    .doc = "marks the loops whose iterations may run at once",
    .run = mark_function,
    .post = "every parallel loop, and every serial one that is proven so, is marked",
    .check = check,
};
