// SPDX-License-Identifier: Apache-2.0
// ir/passes/nest.c: perfect nests of independent loops as one index space (nest.h).
//
// Loops belong to one nest under two conditions. Between them are only lets that every iteration
// may compute again. The bounds of the inner loop depend on neither the lets nor the outer
// variables, so that the index space is a box. The dimension along which most accesses are
// contiguous counts fastest, so that adjacent threads or vector lanes access adjacent elements.
#include "ir/passes/nest.h"

// ---- the loops of a nest

typedef struct steady {
  const qn__pass_builder_t* pb;
  qn__ir_stmt_t* loop;
  const qn__ir_buffer_t* root;
} steady_t;

static bool is_not_written(void* context, const qn__ir_ref_t* ref) {
  const steady_t* self = context;
  return ref->kind == QN__REF_LOAD || qn__buf_root(*ref->buffer) != self->root;
}

// Returns false for a part of a value that may change while the loop runs, or costs much.
static bool is_steady(void* context, qn__ir_expr_t** slot) {
  steady_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) return false;
  if (expr->kind == QN__EXPR_LOAD && !qn__buf_is_constant(qn__buf_root(expr->load.buffer))) {
    // On a CPU, all iterations see a local buffer of the task around them.
    self->root = qn__buf_root(expr->load.buffer);
    bool is_of_task = self->pb->options->has_blocks && self->root->scope == QN__SCOPE_LOCAL;
    if (!is_of_task || !qn__block_each_ref(&self->loop->loop.body, is_not_written, self)) {
      return false;
    }
  }
  return qn__expr_each_child(*slot, is_steady, context);
}

// Returns true for arithmetic on values and on memory that `loop`, which follows, does not write.
// Then each iteration of the loop may compute it again.
static bool is_cheap(const qn__pass_builder_t* pb, qn__ir_expr_t* value, qn__ir_stmt_t* loop) {
  if (pb->options->is_checked) return qn__pb_is_pure(pb, value);
  steady_t steady = {pb, loop, NULL};
  return !qn__expr_facts(value).has_cross_lane && is_steady(&steady, &value);
}

static bool depends(const qn__nest_t* nest, const qn__ir_stmt_t* lets, qn__ir_expr_t* expr) {
  for (uint32_t i = 0; i < nest->count; ++i) {
    if (qn__expr_uses_var(expr, nest->loops[i]->loop.var)) return true;
  }
  for (const qn__ir_stmt_t* let = nest->lets.first; let; let = let->next) {
    if (qn__expr_uses_var(expr, let->let.var)) return true;
  }
  for (const qn__ir_stmt_t* let = lets; let && let->kind == QN__STMT_LET; let = let->next) {
    if (qn__expr_uses_var(expr, let->let.var)) return true;
  }
  return false;
}

// Returns the loop that is alone in `body` but for cheap lets before it, or NULL.
static qn__ir_stmt_t* only_loop(const qn__pass_builder_t* pb, const qn__nest_t* nest,
                                const qn__ir_block_t* body) {
  qn__ir_stmt_t* stmt = body->last;
  if (!stmt || !qn__is_independent_loop(stmt)) return NULL;
  for (const qn__ir_stmt_t* let = body->first; let != stmt; let = let->next) {
    if (let->kind != QN__STMT_LET || !is_cheap(pb, let->let.value, stmt)) return NULL;
  }
  if (depends(nest, body->first, stmt->loop.begin) || depends(nest, body->first, stmt->loop.end)) {
    return NULL;
  }
  qn__ir_expr_facts_t begin = qn__expr_facts(stmt->loop.begin);
  qn__ir_expr_facts_t end = qn__expr_facts(stmt->loop.end);
  return begin.has_load || begin.has_reduce || end.has_load || end.has_reduce ? NULL : stmt;
}

// ---- the fastest dimension

typedef struct score {
  const qn__lanes_t* lanes;
  double total;
} score_t;

static bool add_score(void* context, const qn__ir_ref_t* ref) {
  score_t* self = context;
  bool is_access = ref->kind == QN__REF_LOAD || ref->kind == QN__REF_STORE;
  if (is_access &&
      qn__lanes_reach(self->lanes, *ref->buffer, *ref->indices) == QN__REACH_CONTIGUOUS) {
    self->total += ref->kind == QN__REF_STORE ? 1.5 : 1;  // a store counts more than a load
  }
  return true;
}

static double score_of(qn__pass_builder_t* pb, qn__nest_t* nest, uint32_t which) {
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes) return 0;
  qn__lanes_enter(lanes, nest->loops[which]->loop.var, &nest->lets);
  qn__lanes_add(lanes, &nest->body);
  score_t score = {lanes, 0};
  (void)qn__block_each_ref(&nest->body, add_score, &score);
  return score.total;
}

static void choose_order(qn__pass_builder_t* pb, qn__nest_t* nest) {
  uint32_t fastest = nest->count - 1;
  double best = nest->count > 1 ? score_of(pb, nest, fastest) : 0;
  for (uint32_t i = nest->count - 1; i-- > 0;) {
    double score = score_of(pb, nest, i);
    if (score <= best) continue;
    best = score;
    fastest = i;
  }
  uint32_t place = 0;
  for (uint32_t i = 0; i < nest->count; ++i) {
    if (i != fastest) nest->order[place++] = i;
  }
  assert(place + 1 == nest->count);  // each loop has one place
  nest->order[place] = fastest;
}

void qn__nest_open(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__nest_t* out) {
  assert(qn__is_independent_loop(loop));
  *out = (qn__nest_t){.count = 1, .loops = {loop}};
  for (;;) {
    qn__ir_stmt_t* last = out->loops[out->count - 1];
    qn__ir_stmt_t* inner = out->count < qn__max_nest ? only_loop(pb, out, &last->loop.body) : NULL;
    if (!inner) {
      out->body = qn__block_take(&last->loop.body);
      break;
    }
    qn__ir_stmt_t* let;
    while ((let = qn__block_pop(&last->loop.body)) != inner) {
      assert(let && let->kind == QN__STMT_LET);
      qn__block_append(&out->lets, let);
      ++out->let_counts[out->count - 1];
    }
    out->loops[out->count++] = inner;
  }
  choose_order(pb, out);
}

void qn__nest_close(qn__nest_t* nest) {
  for (uint32_t i = 0; i + 1 < nest->count; ++i) {
    qn__ir_block_t* body = &nest->loops[i]->loop.body;
    assert(!body->first);  // qn__nest_open took its statements
    for (uint32_t k = 0; k < nest->let_counts[i]; ++k) {
      assert(nest->lets.first);
      qn__block_append(body, qn__block_pop(&nest->lets));
    }
    qn__block_append(body, nest->loops[i + 1]);
  }
  assert(!nest->lets.first);
  nest->loops[nest->count - 1]->loop.body = qn__block_take(&nest->body);
}

// ---- the index space

qn__ir_expr_t* qn__nest_extent(qn__pass_builder_t* pb, const qn__nest_t* nest) {
  qn__ir_expr_t* extent = qn__pb_extent(pb, nest->loops[0]);
  for (uint32_t i = 1; i < nest->count; ++i) {
    extent = qn__pb_op(pb, QN_OP_MUL, extent, qn__pb_extent(pb, nest->loops[i]));
  }
  return extent;
}

int64_t qn__nest_trips(const qn__nest_t* nest) {
  assert(nest->count > 0 && nest->count <= qn__max_nest);
  int64_t all = 1;
  for (uint32_t i = 0; i < nest->count; ++i) {
    int64_t count = qn__const_trips(nest->loops[i]->loop.begin, nest->loops[i]->loop.end);
    if (count < 0 || __builtin_mul_overflow(all, count, &all)) return -1;
  }
  return all;
}

void qn__nest_place_lane(qn__pass_builder_t* pb, const qn__nest_t* nest, const qn__ir_expr_t* at,
                         qn__ir_var_t* k, int64_t count, qn__ir_block_t* out) {
  assert(k ? count > 1 : count == 1);
  qn__ir_expr_t* rest = qn__pb_copy(pb, at);
  for (uint32_t p = nest->count; p-- > 0;) {
    const qn__ir_stmt_t* loop = nest->loops[nest->order[p]];
    bool is_fastest = p + 1 == nest->count;
    qn__ir_expr_t* value = rest;
    if (p > 0) {
      qn__ir_expr_t* extent = qn__pb_extent(pb, loop);
      if (is_fastest && k) extent = qn__pb_op_int(pb, QN_OP_FLOORDIV, extent, count);
      value = qn__pb_op(pb, QN_OP_FLOORMOD, rest, extent);
      rest = qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, rest), qn__pb_copy(pb, extent));
      if (p > 1) rest = qn__pb_use(pb, qn__pb_let(pb, out, "rest", rest));
    }
    if (is_fastest && k) {
      value = qn__pb_op_int(pb, QN_OP_MUL, value, count);
      value = qn__pb_op(pb, QN_OP_ADD, value, qn__pb_use(pb, k));
    }
    value = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, loop->loop.begin), value);
    qn__pb_let_var(pb, out, loop->loop.var, value);
  }
}

void qn__nest_place(qn__pass_builder_t* pb, qn__nest_t* nest, const qn__ir_expr_t* index,
                    qn__ir_block_t* out) {
  qn__nest_place_lane(pb, nest, index, NULL, 1, out);
  qn__block_splice(out, &nest->lets);
}
