// ir/passes/map_gpu_nest.c: loops over independent iterations, one inside the other, as one index
// space of any number of dimensions.
//
// The dimension along which most accesses are contiguous counts fastest, so that neighbouring
// threads touch neighbouring elements. Thread rule: one thread per body. Read next: map_gpu_flat.c.
#include "ir/passes/map_gpu.h"

// ---- which loops

// A value that may be computed once for each iteration of an inner loop: arithmetic, and loads of
// what nothing writes.
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

static bool is_cheap(const qn__gmap_t* map, qn__ir_expr_t* value) {
  if (map->options->is_checked) return qn__gmap_is_pure(map, value);
  return !qn__expr_facts(value).has_cross_lane && only_reads_inputs(NULL, &value);
}

static bool depends(const qn__gmap_nest_t* nest, const qn__ir_stmt_t* lets, qn__ir_expr_t* expr) {
  for (uint32_t i = 0; i < nest->count; ++i) {
    if (qn__gmap_uses_var(expr, nest->loops[i]->loop.var)) return true;
  }
  for (const qn__ir_stmt_t* let = nest->lets.first; let; let = let->next) {
    if (qn__gmap_uses_var(expr, let->let.var)) return true;
  }
  for (const qn__ir_stmt_t* let = lets; let && let->kind == QN__STMT_LET; let = let->next) {
    if (qn__gmap_uses_var(expr, let->let.var)) return true;
  }
  return false;
}

// The one loop behind nothing but cheap lets, or NULL.
static qn__ir_stmt_t* only_loop(const qn__gmap_t* map, const qn__gmap_nest_t* nest,
                                const qn__ir_block_t* body) {
  qn__ir_stmt_t* stmt = body->first;
  while (stmt && stmt->kind == QN__STMT_LET && is_cheap(map, stmt->let.value)) stmt = stmt->next;
  if (!stmt || stmt->next || !qn__gmap_is_free(stmt)) return NULL;
  if (depends(nest, body->first, stmt->loop.begin) || depends(nest, body->first, stmt->loop.end)) {
    return NULL;
  }
  qn__expr_facts_t begin = qn__expr_facts(stmt->loop.begin);
  qn__expr_facts_t end = qn__expr_facts(stmt->loop.end);
  return begin.has_load || begin.has_reduce || end.has_load || end.has_reduce ? NULL : stmt;
}

// ---- which counts fastest

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
      self->total += 1.5 * self->weight;  // of two that compete, stores
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) score_block(self, blocks[i]);
  }
}

static double score_of(qn__gmap_t* map, qn__gmap_nest_t* nest, uint32_t which) {
  qn__lanes_t* lanes = qn__gmap_lanes(map);
  if (!lanes) return 0;
  qn__lanes_enter(lanes, nest->loops[which]->loop.var, &nest->lets);
  qn__lanes_add(lanes, &nest->body);
  score_t score = {lanes, 1, 0};
  score_block(&score, &nest->body);
  return score.total;
}

static void choose_order(qn__gmap_t* map, qn__gmap_nest_t* nest) {
  uint32_t fastest = nest->count - 1;
  double best = nest->count > 1 ? score_of(map, nest, fastest) : 0;
  for (uint32_t i = nest->count - 1; i-- > 0;) {
    double score = score_of(map, nest, i);
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

void qn__gmap_nest_open(qn__gmap_t* map, qn__ir_stmt_t* loop, qn__gmap_nest_t* out) {
  *out = (qn__gmap_nest_t){.count = 1, .loops = {loop}};
  for (;;) {
    qn__ir_stmt_t* last = out->loops[out->count - 1];
    qn__ir_stmt_t* inner =
        out->count < qn__gmap_max_nest ? only_loop(map, out, &last->loop.body) : NULL;
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
    }
    out->loops[out->count++] = inner;
  }
  choose_order(map, out);
}

// ---- the index space

qn__ir_expr_t* qn__gmap_nest_extent(qn__gmap_t* map, const qn__gmap_nest_t* nest) {
  qn__ir_expr_t* extent = qn__gmap_extent(map, nest->loops[0]);
  for (uint32_t i = 1; i < nest->count; ++i) {
    extent = qn__gmap_op(map, QN_OP_MUL, extent, qn__gmap_extent(map, nest->loops[i]));
  }
  return extent;
}

void qn__gmap_nest_place(qn__gmap_t* map, qn__gmap_nest_t* nest, const qn__ir_expr_t* index,
                         qn__ir_block_t* out) {
  qn__ir_expr_t* rest = qn__gmap_copy(map, index);
  for (uint32_t p = nest->count; p-- > 0;) {
    qn__ir_stmt_t* loop = nest->loops[nest->order[p]];
    qn__ir_expr_t* value = rest;
    if (p > 0) {
      qn__ir_expr_t* extent = qn__gmap_extent(map, loop);
      value = qn__gmap_op(map, QN_OP_FLOORMOD, rest, extent);
      qn__ir_expr_t* quotient =
          qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_copy(map, rest), qn__gmap_copy(map, extent));
      if (p > 1) {
        rest = qn__gmap_use(map, qn__gmap_let(map, out, "rest", quotient));
      } else {
        rest = quotient;
      }
    }
    value = qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, loop->loop.begin), value);
    qn__gmap_let_var(map, out, loop->loop.var, value);
  }
  qn__block_splice(out, &nest->lets);
}

bool qn__gmap_nest_is_host(const qn__gmap_nest_t* nest) {
  for (uint32_t i = 0; i < nest->count; ++i) {
    if (!qn__gmap_is_host(nest->loops[i]->loop.begin) ||
        !qn__gmap_is_host(nest->loops[i]->loop.end)) {
      return false;
    }
  }
  return true;
}
