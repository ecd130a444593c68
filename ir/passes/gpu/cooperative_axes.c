// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/cooperative_axes.c: determines the threads of a block that cooperate.
//
// Thread loops with barriers or exchanges need exactly as many threads as iterations. All such
// nests in one block must agree, and define its threads. Otherwise the pass `distribute` chose the
// number. If a nest may be empty, the block has at least one thread, for all other statements, and
// a test guards the nest (cooperative.c).
#include "ir/passes/gpu/cooperative.h"

#include "ir/passes/gpu/threads.h"

static bool same_nest(const qn__ir_stmt_t* a, const qn__ir_stmt_t* const axes[3]) {
  const qn__ir_stmt_t* mine = axes[a->loop.kind - QN_LOOP_THREAD_X];
  return mine && qn__expr_equal(a->loop.begin, mine->loop.begin) &&
         qn__expr_equal(a->loop.end, mine->loop.end);
}

static bool adopt_nest(qn__coop_t* coop, qn__ir_stmt_t* outermost) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_stmt_t* innermost = qn__threads_straighten(pb, outermost);
  if (!innermost) {
    qn__pb_refuse(pb,
                  "threads of '%s' meet inside of another thread loop, beside which there are "
                  "other statements; move them into the inner loop",
                  outermost->loop.var->name);
    return false;
  }
  bool is_first = !coop->axes[0] && !coop->axes[1] && !coop->axes[2];
  uint32_t count = 0, mine = 0;
  for (int i = 0; i < 3; ++i) mine += coop->axes[i] != NULL;
  for (qn__ir_stmt_t* loop = outermost;; loop = loop->loop.body.first) {
    ++count;
    if (is_first) {
      coop->axes[loop->loop.kind - QN_LOOP_THREAD_X] = loop;
    } else if (!same_nest(loop, coop->axes)) {
      count = 99;
      break;
    }
    if (loop == innermost) break;
  }
  if (is_first || count == mine) return true;
  qn__pb_refuse(
      pb,
      "thread loops of one block whose threads synchronize have different extents: '%s' is "
      "not like the first of them",
      outermost->loop.var->name);
  return false;
}

static bool find_nests(qn__coop_t* coop, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__threads_synchronize(stmt)) {
      if (!adopt_nest(coop, stmt)) return false;
      continue;
    }
    QN__EACH_BLOCK(stmt, inner) {
      if (!find_nests(coop, inner)) return false;
    }
  }
  return true;
}

// Returns the number of threads along an axis, at least one.
static qn__ir_expr_t* axis_extent(qn__pass_builder_t* pb, const qn__ir_stmt_t* axis) {
  qn__ir_expr_t* extent = qn__pb_extent(pb, axis);
  int64_t constant;
  if (extent && qn__expr_const_int(extent, &constant)) {
    return constant > 0 ? extent : qn__pb_int(pb, 1);
  }
  if (!extent) return NULL;
  if (qn__expr_is_int(axis->loop.begin, 0)) extent = qn__pb_copy(pb, axis->loop.end);
  return qn__pb_op_int(pb, QN_OP_MAX, extent, 1);
}

bool qn__coop_init(qn__coop_t* coop, qn__pass_builder_t* pb, qn__ir_block_t* block,
                   int64_t threads) {
  *coop = (qn__coop_t){.pb = pb};
  if (!find_nests(coop, block)) return false;
  qn__ir_expr_t* count = NULL;
  for (int i = 0; i < 3; ++i) {
    if (!coop->axes[i]) continue;
    coop->axis_vars[i] = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, coop->axes[i]->loop.var->name);
    qn__ir_expr_t* extent = axis_extent(pb, coop->axes[i]);
    count = count ? qn__pb_op(pb, QN_OP_MUL, count, extent) : extent;
  }
  int64_t constant;
  if (count && qn__expr_const_int(count, &constant) && constant > (int64_t)pb->max_threads) {
    qn__pb_refuse(pb, "a block of %lld threads that meet; the target has at most %u",
                  (long long)constant, pb->max_threads);
    return false;
  }
  coop->count = count ? count : qn__pb_int(pb, threads);
  assert(count || threads > 0);
  if (!count) coop->axis_vars[0] = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  return !qn__pb_stopped(pb);
}

static qn__ir_expr_t* axis_end(qn__pass_builder_t* pb, const qn__ir_stmt_t* axis) {
  if (qn__const_trips(axis->loop.begin, axis->loop.end) > 0) return qn__pb_copy(pb, axis->loop.end);
  return qn__pb_op(pb, QN_OP_ADD, axis_extent(pb, axis), qn__pb_copy(pb, axis->loop.begin));
}

qn__ir_stmt_t* qn__coop_loops(qn__coop_t* coop, qn__ir_block_t* body) {
  static const qn_loop_kind_t kinds[3] = {QN_LOOP_THREAD_X, QN_LOOP_THREAD_Y, QN_LOOP_THREAD_Z};
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_stmt_t* inner = NULL;
  for (int i = 0; i < 3; ++i) {
    if (!coop->axis_vars[i]) continue;
    const qn__ir_stmt_t* axis = coop->axes[i];
    qn__ir_expr_t* begin = axis ? qn__pb_copy(pb, axis->loop.begin) : qn__pb_int(pb, 0);
    qn__ir_expr_t* end = axis ? axis_end(pb, axis) : qn__pb_copy(pb, coop->count);
    qn__ir_stmt_t* loop = qn__pb_loop(pb, kinds[i], coop->axis_vars[i], begin, end);
    if (!loop) return NULL;
    loop->loop.body = inner ? qn__block_of(inner) : *body;
    inner = loop;
  }
  return inner;
}

void qn__coop_number(qn__coop_t* coop, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = coop->pb;
  if (coop->thread) return;
  assert(!coop->is_warp);  // whose lanes have numbers
  qn__ir_expr_t* value = NULL;
  for (int i = 2; i >= 0; --i) {
    if (!coop->axis_vars[i]) continue;
    qn__ir_expr_t* place = qn__pb_use(pb, coop->axis_vars[i]);
    if (coop->axes[i]) {
      place = qn__pb_op(pb, QN_OP_SUB, place, qn__pb_copy(pb, coop->axes[i]->loop.begin));
      if (value) value = qn__pb_op(pb, QN_OP_MUL, value, axis_extent(pb, coop->axes[i]));
    }
    value = value ? qn__pb_op(pb, QN_OP_ADD, value, place) : place;
  }
  if (value && value->kind == QN__EXPR_VAR) {
    coop->thread = value->var;
  } else {
    coop->thread = qn__pb_let(pb, out, "thread", value);
  }
}
