// ir/passes/map_gpu_team_plan.c: what of a piece of the program is worth a team: marks the loops
// and reductions that are spread over its threads. Not here: who the threads are
// (map_gpu_team_axes.c), the rewriting (map_gpu_team.c). Thread rule: one thread per body. Read
// next: map_gpu_team.c.
#include "ir/passes/map_gpu_team.h"

enum {
  shortest_reduction = 16,  // that is spread
  shortest_outer = 32,      // of a loop that is spread though there is more to spread inside
};

typedef struct plan {
  qn__gmap_t* map;
  bool is_warp;
  bool has_work;
  uint32_t depth;  // of control flow
} plan_t;

static bool plan_slot(void* context, qn__ir_expr_t** slot) {
  plan_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    int64_t count = qn__gmap_trips(expr->reduce.begin, expr->reduce.end);
    bool is_spread = expr->reduce.reduce_kind != QN_REDUCE_PROD &&
                     (count < 0 || count >= shortest_reduction) &&
                     !(self->is_warp && self->depth > 0);
    expr->reduce.lane_count = is_spread ? QN__GMAP_SPREAD : 0;
    self->has_work = self->has_work || is_spread;
    return true;  // what is inside belongs to one thread
  }
  if (qn__expr_is_lazy(expr)) return plan_slot(self, &expr->args[0]);
  return qn__expr_each_child(expr, plan_slot, self);
}

static bool find_reduce(void* found, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) *(bool*)found = true;
  return !*(bool*)found && qn__expr_each_child(*slot, find_reduce, found);
}

// Is there more to spread inside than the loop itself is worth?
static bool has_inner_work(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_found = false;
    (void)qn__stmt_each_expr(stmt, find_reduce, &is_found);
    if (is_found || qn__gmap_is_free(stmt)) return true;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (has_inner_work(blocks[i])) return true;
    }
  }
  return false;
}

static bool is_spread_loop(const qn__ir_stmt_t* stmt, qn__ir_block_t* body) {
  if (!qn__gmap_is_free(stmt) || qn__gmap_any_stmt(body, qn__gmap_is_exact)) return false;
  int64_t count = qn__gmap_trips(stmt->loop.begin, stmt->loop.end);
  if (count < 0 || count >= shortest_outer) return true;
  // A perfect nest is spread as a whole.
  const qn__ir_stmt_t* only = body->first;
  bool is_perfect = only && !only->next && qn__gmap_is_free(only);
  return is_perfect || !has_inner_work(body);
}

static void plan_block(plan_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_WHILE && stmt->kind != QN__STMT_ALLOC) {
      (void)qn__stmt_each_expr(stmt, plan_slot, self);
    }
    if (stmt->kind == QN__STMT_LOOP && is_spread_loop(stmt, &stmt->loop.body)) {
      stmt->loop.lane_count = QN__GMAP_SPREAD;
      self->has_work = true;
      continue;
    }
    if (qn__gmap_is_exact(stmt)) {
      self->has_work = true;
      continue;
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    ++self->depth;
    for (size_t i = 0; i < count; ++i) plan_block(self, blocks[i]);
    --self->depth;
  }
}

bool qn__gmap_plan(qn__gmap_t* map, qn__ir_block_t* block, bool is_warp) {
  plan_t self = {map, is_warp, false, 0};
  plan_block(&self, block);
  return self.has_work;
}
