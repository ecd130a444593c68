// SPDX-License-Identifier: Apache-2.0
// ir/passes/serialize_threads.c: the pass `serialize_threads` turns programs in blocks and threads
// into loops for a CPU.
//
// A thread loop without a barrier is a loop over independent iterations. A thread loop with
// barriers is split at them (fission.c): every part becomes a loop over all threads.
// Block loops are launches; a nest of them whose extents do not depend on each other becomes one
// launch over all blocks. Shared buffers become local to the block.
#include "ir/passes/fission.h"
#include "ir/passes/pass_builder.h"

// Makes two perfectly nested block loops one loop over the product: outer = b // n, inner = b % n.
static void collapse(qn__pass_builder_t* pb, qn__ir_stmt_t* outer) {
  qn__ir_stmt_t* inner = outer->loop.body.first;
  assert(inner == outer->loop.body.last);
  qn__ir_expr_t* extent = qn__pb_extent(pb, inner);
  qn__ir_expr_t* product = qn__pb_op(pb, QN_OP_MUL, qn__pb_extent(pb, outer), extent);
  qn__ir_var_t* block = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_expr_t* zero = qn__pb_int(pb, 0);
  if (!product || !block || !zero) return;
  qn__ir_block_t body = {NULL, NULL};
  for (int i = 0; i < 2; ++i) {
    const qn__ir_stmt_t* loop = i == 0 ? outer : inner;
    qn__ir_expr_t* value = qn__pb_op(pb, i == 0 ? QN_OP_FLOORDIV : QN_OP_FLOORMOD,
                                     qn__pb_use(pb, block), qn__pb_copy(pb, extent));
    qn__pb_let_var(pb, &body, loop->loop.var,
                   qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, loop->loop.begin), value));
  }
  qn__block_splice(&body, &inner->loop.body);
  outer->loop.var = block;
  outer->loop.begin = zero;
  outer->loop.end = product;
  outer->loop.body = body;
}

// Collapses the innermost pair first, so that a nest of three becomes one loop too.
static void collapse_nest(qn__pass_builder_t* pb, qn__ir_stmt_t* outer) {
  qn__ir_stmt_t* inner = outer->loop.body.first;
  if (!inner || !qn__is_block_loop(inner) || inner->next) return;
  collapse_nest(pb, inner);
  bool is_box = !qn__expr_uses_var(inner->loop.begin, outer->loop.var) &&
                !qn__expr_uses_var(inner->loop.end, outer->loop.var);
  if (is_box) collapse(pb, outer);
}

// Serializes the thread loops of a block. `is_top`: the block is not inside any loop.
static void serialize_block(qn__pass_builder_t* pb, qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(pb);) {
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    if (qn__is_thread_loop(stmt) && qn__block_has_barrier(&stmt->loop.body)) {
      qn__ir_stmt_t* launch = NULL;
      if (is_top) {  // one block: a launch of one iteration
        launch = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "block", qn__pb_int(pb, 1));
        if (!launch) return;
        qn__block_append(block, launch);
      }
      qn__fission(pb, stmt, launch ? &launch->loop.body : block);
      continue;
    }
    if (qn__is_block_loop(stmt)) collapse_nest(pb, stmt);
    QN__EACH_BLOCK(stmt, inner) serialize_block(pb, inner, is_top && !is_loop);
    qn__block_append(block, stmt);
  }
}

// Replaces the remaining block loops, thread loops and barriers by their plain counterparts.
static void convert(qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    if (stmt->kind == QN__STMT_BARRIER) continue;
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    if (qn__is_block_loop(stmt) || qn__is_thread_loop(stmt)) stmt->loop.kind = QN_LOOP_PARALLEL;
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_SHARED) {
      stmt->alloc.buffer->scope = is_top ? QN__SCOPE_GLOBAL : QN__SCOPE_LOCAL;
    }
    QN__EACH_BLOCK(stmt, inner) convert(inner, is_top && !is_loop);
    qn__block_append(block, stmt);
  }
}

static void serialize_function(qn__pass_builder_t* pb) {
  serialize_block(pb, &pb->function->body, true);
  if (!qn__pb_stopped(pb)) convert(&pb->function->body, true);
}

// Returns true for what only a GPU has.
static bool is_of_gpu(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_BARRIER || qn__is_block_loop(stmt) || qn__is_thread_loop(stmt) ||
         (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_SHARED);
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_of_gpu) ? "a block, a thread or a barrier" : NULL;
}

const qn__pass_t qn__pass_serialize_threads = {
    .name = "serialize_threads",
    .doc = "turns blocks and threads into loops, cut at barriers",
    .run = serialize_function,
    .post = "loops are serial, parallel or in lanes",
    .check = check,
    .is_alone = true,
};
