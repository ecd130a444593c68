// ir/passes/serialize_threads.c: the pass `serialize_threads` turns programs in blocks and threads
// into loops for a CPU.
//
// A thread loop without a barrier is a loop over independent iterations. A thread loop with
// barriers is split at them (fission.c): every part becomes a loop over all threads.
// Block loops are launches; a nest of them whose extents do not depend on each other becomes one
// launch over all blocks. Shared buffers become local to the block.
#include "ir/passes/fission.h"
#include "ir/passes/pass_builder.h"

static qn_status_t no_memory(void) {
  return qn__out_of_memory("serialising threads");
}

static bool is_barrier(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_BARRIER;
}

bool qn__block_has_barrier(qn__ir_block_t* block) {
  return qn__block_any(block, is_barrier);
}

// Makes two perfectly nested block loops one loop over the product: outer = b // n, inner = b % n.
static bool collapse(qn__pass_builder_t* pb, qn__ir_stmt_t* outer) {
  qn__ir_stmt_t* inner = outer->loop.body.first;
  qn__ir_expr_t* extent = qn__pb_extent(pb, inner);
  qn__ir_expr_t* product = qn__pb_op(pb, QN_OP_MUL, qn__pb_extent(pb, outer), extent);
  qn__ir_var_t* block = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_expr_t* zero = qn__pb_int(pb, 0);
  if (!product || !block || !zero) return false;
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
  return !qn__pb_stopped(pb);
}

// Collapses the innermost pair first, so that a nest of three becomes one loop too.
static bool collapse_nest(qn__pass_builder_t* pb, qn__ir_stmt_t* outer) {
  qn__ir_stmt_t* inner = outer->loop.body.first;
  if (!inner || !qn__is_block_loop(inner) || inner->next) return true;
  if (!collapse_nest(pb, inner)) return false;
  if (qn__expr_uses_var(inner->loop.begin, outer->loop.var) ||
      qn__expr_uses_var(inner->loop.end, outer->loop.var)) {
    return true;
  }
  return collapse(pb, outer);
}

// Serializes the thread loops of a block. `is_top`: the block is not inside any loop.
static qn_status_t serialize_block(qn__pass_builder_t* pb, qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    if (is_loop && qn__loop_is_thread(stmt->loop.kind) && qn__block_has_barrier(&stmt->loop.body)) {
      qn__ir_block_t pieces = {NULL, NULL};
      QN_TRY(qn__fission(pb->arena, pb->function->name, stmt, &pieces));
      if (is_top) {  // one block: a launch of one iteration
        qn__ir_stmt_t* launch = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "block", qn__pb_int(pb, 1));
        if (!launch) return no_memory();
        launch->loop.body = pieces;
        pieces = qn__block_of(launch);
      }
      qn__block_splice(&result, &pieces);
      continue;
    }
    if (qn__is_block_loop(stmt) && !collapse_nest(pb, stmt)) return no_memory();
    QN__EACH_BLOCK(stmt, inner) {
      QN_TRY(serialize_block(pb, inner, is_top && !is_loop));
    }
    qn__block_append(&result, stmt);
  }
  *block = result;
  return QN_OK;
}

// Replaces the remaining block loops, thread loops and barriers by their plain counterparts.
static void convert(qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    if (stmt->kind == QN__STMT_BARRIER) continue;
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    if (is_loop && (qn__loop_is_block(stmt->loop.kind) || qn__loop_is_thread(stmt->loop.kind))) {
      stmt->loop.kind = QN_LOOP_PARALLEL;
    }
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_SHARED) {
      stmt->alloc.buffer->scope = is_top ? QN__SCOPE_GLOBAL : QN__SCOPE_LOCAL;
    }
    QN__EACH_BLOCK(stmt, inner) convert(inner, is_top && !is_loop);
    qn__block_append(&result, stmt);
  }
  *block = result;
}

static void serialize_function(qn__pass_builder_t* pb) {
  pb->status = serialize_block(pb, &pb->function->body, true);
  if (qn_ok(pb->status)) convert(&pb->function->body, true);
}

const qn__pass_t qn__pass_serialize_threads = {
    .name = "serialize_threads",
    .doc = "turns blocks and threads into loops, cut at barriers",
    .run_function = serialize_function};
