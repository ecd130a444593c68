// jit/gpu/nest.c: see nest.h.
#include "jit/gpu/nest.h"

const qn__ir_stmt_t* qn__gpu_nest_inner(const qn__ir_stmt_t* loop) {
  const qn__ir_stmt_t* inner = loop->loop.body.first;
  if (!inner || inner->next || inner->kind != QN__STMT_LOOP) return NULL;
  bool is_thread = qn__loop_is_thread(loop->loop.kind);
  bool is_same =
      is_thread ? qn__loop_is_thread(inner->loop.kind) : qn__loop_is_block(inner->loop.kind);
  return is_same ? inner : NULL;
}

int64_t qn__gpu_loop_extent(const qn__ir_stmt_t* loop) {
  const qn__ir_expr_t *begin = loop->loop.begin, *end = loop->loop.end;
  int64_t extent;
  if (begin->kind != QN__EXPR_INT || end->kind != QN__EXPR_INT ||
      __builtin_sub_overflow(end->int_value, begin->int_value, &extent)) {
    return -1;
  }
  return extent < 0 ? 0 : extent;
}

int64_t qn__gpu_nest_count(const qn__ir_stmt_t* loop) {
  int64_t count = 1;
  for (; loop; loop = qn__gpu_nest_inner(loop)) {
    int64_t extent = qn__gpu_loop_extent(loop);
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return -1;
  }
  return count;
}

static bool is_apart_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  (void)walker;
  return stmt->kind != QN__STMT_BARRIER;
}

static bool is_apart_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)walker;
  return !qn__expr_is_exchange(expr);
}

bool qn__gpu_is_together(const qn__ir_block_t* block) {
  qn__ir_walker_t walker = {is_apart_stmt, is_apart_expr, NULL};
  // The walk changes nothing.
  union {
    const qn__ir_block_t* from;
    qn__ir_block_t* to;
  } same = {.from = block};
  return !qn__walk_block(&walker, same.to);
}
