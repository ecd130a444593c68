// ir/passes/nest.c: perfect nests of independent loops as one index space (nest.h).
//
// Loops belong to one nest under two conditions. Between them are only lets that every iteration
// may compute again. The bounds of the inner loop depend on neither the lets nor the outer
// variables, so that the index space is a box. The dimension along which most accesses are
// contiguous counts fastest, so that adjacent threads or vector lanes access adjacent elements.
#include "ir/passes/nest.h"

// ---- the loops of a nest

// Returns true for arithmetic on values and on memory that no statement writes. Then each iteration
// of an inner loop may compute it again.
static bool only_reads_inputs(void* self, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    bool is_input = root->scope == QN__SCOPE_CONST ||
                    (root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN);
    if (!is_input) return false;
  }
  return expr->kind != QN__EXPR_REDUCE && qn__expr_each_child(*slot, only_reads_inputs, self);
}

static bool is_cheap(const qn__pass_builder_t* pb, qn__ir_expr_t* value) {
  if (pb->options->is_checked) return qn__pb_is_pure(pb, value);
  return !qn__expr_facts(value).has_cross_lane && only_reads_inputs(NULL, &value);
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
  qn__ir_stmt_t* stmt = body->first;
  while (stmt && stmt->kind == QN__STMT_LET && is_cheap(pb, stmt->let.value)) stmt = stmt->next;
  if (!stmt || stmt->next || !qn__is_independent_loop(stmt)) return NULL;
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
  double weight;
  double total;
} score_t;

static bool score_loads(void* context, qn__ir_expr_t** slot) {
  score_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD &&
      qn__lanes_reach(self->lanes, expr->load.buffer, expr->load.indices) == QN__REACH_CONTIGUOUS) {
    self->total += self->weight;
  }
  return qn__expr_each_child(*slot, score_loads, self);
}

static void score_block(score_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, score_loads, self);
    if (stmt->kind == QN__STMT_STORE &&
        qn__lanes_reach(self->lanes, stmt->store.buffer, stmt->store.indices) ==
            QN__REACH_CONTIGUOUS) {
      self->total += 1.5 * self->weight;  // a store counts more than a load
    }
    QN__EACH_BLOCK(stmt, inner) score_block(self, inner);
  }
}

static double score_of(qn__pass_builder_t* pb, qn__nest_t* nest, uint32_t which) {
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes) return 0;
  qn__lanes_enter(lanes, nest->loops[which]->loop.var, &nest->lets);
  qn__lanes_add(lanes, &nest->body);
  score_t score = {lanes, 1, 0};
  score_block(&score, &nest->body);
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
  nest->order[place] = fastest;
}

void qn__nest_open(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__nest_t* out) {
  *out = (qn__nest_t){.count = 1, .loops = {loop}};
  for (;;) {
    qn__ir_stmt_t* last = out->loops[out->count - 1];
    qn__ir_stmt_t* inner = out->count < qn__max_nest ? only_loop(pb, out, &last->loop.body) : NULL;
    if (!inner) {
      out->body = last->loop.body;
      last->loop.body = (qn__ir_block_t){NULL, NULL};
      break;
    }
    qn__ir_stmt_t* next;
    for (qn__ir_stmt_t* stmt = last->loop.body.first; stmt != inner; stmt = next) {
      next = stmt->next;
      stmt->next = NULL;
      qn__block_append(&out->lets, stmt);
      ++out->let_counts[out->count - 1];
    }
    out->loops[out->count++] = inner;
  }
  choose_order(pb, out);
}

void qn__nest_close(qn__nest_t* nest) {
  qn__ir_stmt_t* let = nest->lets.first;
  for (uint32_t i = 0; i + 1 < nest->count; ++i) {
    qn__ir_block_t* body = &nest->loops[i]->loop.body;
    *body = (qn__ir_block_t){NULL, NULL};
    for (uint32_t k = 0; k < nest->let_counts[i]; ++k) {
      assert(let);
      qn__ir_stmt_t* next = let->next;
      let->next = NULL;
      qn__block_append(body, let);
      let = next;
    }
    qn__block_append(body, nest->loops[i + 1]);
  }
  assert(!let);
  nest->loops[nest->count - 1]->loop.body = nest->body;
  nest->lets = nest->body = (qn__ir_block_t){NULL, NULL};
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
  int64_t all = 1;
  for (uint32_t i = 0; i < nest->count; ++i) {
    int64_t count = qn__const_trips(nest->loops[i]->loop.begin, nest->loops[i]->loop.end);
    if (count < 0 || __builtin_mul_overflow(all, count, &all)) return -1;
  }
  return all;
}

void qn__nest_place(qn__pass_builder_t* pb, qn__nest_t* nest, const qn__ir_expr_t* index,
                    qn__ir_block_t* out) {
  qn__ir_expr_t* rest = qn__pb_copy(pb, index);
  for (uint32_t p = nest->count; p-- > 0;) {
    qn__ir_stmt_t* loop = nest->loops[nest->order[p]];
    qn__ir_expr_t* value = rest;
    if (p > 0) {
      qn__ir_expr_t* extent = qn__pb_extent(pb, loop);
      value = qn__pb_op(pb, QN_OP_FLOORMOD, rest, extent);
      rest = qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, rest), qn__pb_copy(pb, extent));
      if (p > 1) rest = qn__pb_use(pb, qn__pb_let(pb, out, "rest", rest));
    }
    value = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, loop->loop.begin), value);
    qn__pb_let_var(pb, out, loop->loop.var, value);
  }
  qn__block_splice(out, &nest->lets);
}
