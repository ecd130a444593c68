// SPDX-License-Identifier: Apache-2.0
// jit/plan/nest.c: see nest.h.
#include "jit/plan/nest.h"

#include "ir/passes/pass_builder.h"

const qn__ir_stmt_t* qn__gpu_nest_inner(const qn__ir_stmt_t* loop) {
  const qn__ir_stmt_t* inner = loop->loop.body.first;
  if (!inner || inner->next || inner->kind != QN__STMT_LOOP) return NULL;
  bool is_thread = qn__loop_is_thread(loop->loop.kind);
  bool is_same =
      is_thread ? qn__loop_is_thread(inner->loop.kind) : qn__loop_is_block(inner->loop.kind);
  return is_same ? inner : NULL;
}

int64_t qn__gpu_nest_count(const qn__ir_stmt_t* loop) {
  int64_t count = 1;
  for (; loop; loop = qn__gpu_nest_inner(loop)) {
    int64_t extent = qn__const_trips(loop->loop.begin, loop->loop.end);
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return -1;
  }
  return count;
}

bool qn__gpu_is_together(const qn__ir_block_t* block) {
  return qn__block_synchronizes(qn__gpu_walked_block(block));
}
