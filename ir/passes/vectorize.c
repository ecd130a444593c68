// SPDX-License-Identifier: Apache-2.0
// ir/passes/vectorize.c: decides which loops and reductions run in lanes, and in how many.
//
// In `parallel i in 0..n { y[i] = sum j in 0..m { x[i, j] }; }` the sum gets lanes along the row:
// its loads are contiguous. With `x[j, i]` the loop gets lanes, for many columns at a time.
//
// 1. Legality. PARALLEL and VECTOR loops are independent by definition, and so are reductions, as
//    their order is unspecified. The independence of a SERIAL loop must be proven (lanes.c). The
//    body has only the statements that passes.h lists, and the bounds of inner loops do not depend
//    on the lane.
// 2. Choice, from the innermost loop outwards. A loop that is cheaper in lanes than its body with
//    the marks chosen so far gets a mark, and clears the marks inside of it: marks do not nest.
// 3. Width. One vector of the widest element that the body computes with. Two or four vectors for
//    reductions with a short body, to hide the latency of the accumulator, and for loops with
//    masked tails. (Measured with AVX-512: softmax 5 %, embed_layernorm 25 %, transpose 30 % faster
//    than with one.)
// 4. A mark is a permission. The pass changes no code, except that inner PARALLEL loops become
//    SERIAL at the end.
#include <math.h>

#include "ir/passes/cost.h"
#include "ir/passes/pass_builder.h"

enum { min_lanes = 2, max_lanes = 64 };

typedef struct vectorize {
  const qn__pass_options_t* options;
  qn__lanes_t lanes;
} vectorize_t;

// ---- legality

static bool is_uniform(const qn__lanes_t* lanes, qn__ir_expr_t* expr) {
  return qn__lane_is_uniform(qn__lanes_of(lanes, expr));
}

// Returns true if the expression may be computed in lanes.
static bool check_expr(void* lanes, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  if (qn__expr_is_exchange(expr)) return false;
  if (expr->kind == QN__EXPR_REDUCE &&
      !(is_uniform(lanes, expr->reduce.begin) && is_uniform(lanes, expr->reduce.end))) {
    return false;
  }
  return qn__expr_each_child(expr, check_expr, lanes);
}

// Returns true for a view that has one address for all lanes.
static bool view_is_uniform(const qn__lanes_t* lanes, const qn__ir_buffer_t* view) {
  for (uint32_t d = 0; d < view->base->rank; ++d) {
    if (!is_uniform(lanes, view->base_indices[d])) return false;
  }
  for (uint32_t d = 0; d < view->rank; ++d) {
    if (!is_uniform(lanes, view->shape[d])) return false;
    if (view->strides && !is_uniform(lanes, view->strides[d])) return false;
  }
  return true;
}

// Returns true if the statement itself may run in lanes.
static bool stmt_is_legal(qn__lanes_t* lanes, qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
    case QN__STMT_IF:
    case QN__STMT_ASSERT:
      break;
    case QN__STMT_STORE:
      if (qn__lanes_reach(lanes, stmt->store.buffer, stmt->store.indices) == QN__REACH_UNIFORM) {
        return false;
      }
      break;
    case QN__STMT_LOOP:
      if (stmt->loop.kind != QN_LOOP_SERIAL && stmt->loop.kind != QN_LOOP_PARALLEL) return false;
      if (!is_uniform(lanes, stmt->loop.begin) || !is_uniform(lanes, stmt->loop.end)) return false;
      break;
    case QN__STMT_ALLOC:
      return stmt->alloc.buffer->scope == QN__SCOPE_CONST ||
             (stmt->alloc.buffer->scope == QN__SCOPE_VIEW &&
              view_is_uniform(lanes, stmt->alloc.buffer));
    case QN__STMT_ATOMIC:
    case QN__STMT_WHILE:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
    case QN__STMT_TENSOR:
    case QN__STMT_REDUCE:
    case QN__STMT_LEAVE:  // replaced before
      return false;
  }
  return qn__stmt_each_expr(stmt, check_expr, lanes);
}

static bool block_is_legal(qn__lanes_t* lanes, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!stmt_is_legal(lanes, stmt)) return false;
    QN__EACH_BLOCK(stmt, inner) {
      if (!block_is_legal(lanes, inner)) return false;
    }
  }
  return true;
}

static bool loop_is_legal(vectorize_t* self, qn__ir_stmt_t* loop) {
  qn__lanes_enter(&self->lanes, loop->loop.var, &loop->loop.body);
  if (!block_is_legal(&self->lanes, &loop->loop.body)) return false;
  if (loop->loop.kind != QN_LOOP_SERIAL) return true;
  return qn__lanes_is_independent(&self->lanes, &loop->loop.body);
}

// ---- marks

static bool clear_expr(void* self, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) (*slot)->reduce.lane_count = 0;
  return qn__expr_each_child(*slot, clear_expr, self);
}

static void clear_marks(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, clear_expr, NULL);
    if (stmt->kind == QN__STMT_LOOP) stmt->loop.lane_count = 0;
    QN__EACH_BLOCK(stmt, inner) clear_marks(inner);
  }
}

// Returns the lanes for elements of `bytes`, at most the trip count if that is constant.
static uint32_t choose_lanes(const vectorize_t* self, uint32_t bytes, uint32_t vectors,
                             qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  uint32_t lanes = self->options->vector_bytes / (bytes ? bytes : 4) * vectors;
  if (lanes > max_lanes) lanes = max_lanes;
  int64_t extent = qn__const_trips(begin, end);
  if (extent >= 0) {
    while (lanes > min_lanes && (int64_t)lanes > extent) lanes /= 2;
    if (extent < min_lanes) return 0;
  }
  assert(lanes <= max_lanes);
  return lanes < min_lanes ? 0 : lanes;
}

// ---- choice: every function returns the cost of what it chose

static double plan_block(vectorize_t* self, qn__ir_block_t* block);

static double plan_reduce(vectorize_t* self, qn__ir_expr_t* reduce);

// The costs of the outermost reductions of an expression: scalar, and as planned.
typedef struct plan_sum {
  vectorize_t* self;
  const qn__cost_model_t* scalar;
  double scalar_cost;
  double planned_cost;
} plan_sum_t;

static bool plan_slot(void* context, qn__ir_expr_t** slot) {
  plan_sum_t* sum = context;
  if ((*slot)->kind != QN__EXPR_REDUCE) return qn__expr_each_child(*slot, plan_slot, sum);
  sum->scalar_cost += qn__cost_expr(sum->scalar, *slot);
  sum->planned_cost += plan_reduce(sum->self, *slot);
  return true;
}

// Plans the reductions. The rest of the expression costs the same with or without marks.
static double plan_expr(vectorize_t* self, qn__ir_expr_t* expr) {
  const qn__cost_model_t scalar = {self->options, NULL, 1, false};
  plan_sum_t reductions = {self, &scalar, 0, 0};
  double cost = qn__cost_expr(&scalar, expr);
  (void)plan_slot(&reductions, &expr);
  return cost - reductions.scalar_cost + reductions.planned_cost;
}

static double plan_reduce(vectorize_t* self, qn__ir_expr_t* reduce) {
  reduce->reduce.lane_count = 0;
  double trips = qn__cost_trips(reduce->reduce.begin, reduce->reduce.end);
  double body = plan_expr(self, reduce->reduce.value) + 2;
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    body += plan_expr(self, let->let.value);
  }
  double scalar_cost = trips * body;

  qn__lanes_enter(&self->lanes, reduce->reduce.reduce_var, NULL);
  bool is_legal = true;
  uint32_t bytes = qn__widest_in_expr(reduce->reduce.value);
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    uint32_t let_bytes = qn__widest_in_expr(let->let.value);
    if (let_bytes > bytes) bytes = let_bytes;
    is_legal = is_legal && check_expr(&self->lanes, &let->let.value);
    qn__lanes_let(&self->lanes, let);
  }
  if (!is_legal || !check_expr(&self->lanes, &reduce->reduce.value)) return scalar_cost;
  uint32_t own_bytes = (uint32_t)qn_dtype_size_bytes(reduce->dtype);
  if (own_bytes > bytes) bytes = own_bytes;

  uint32_t lane_count = choose_lanes(self, bytes, 1, reduce->reduce.begin, reduce->reduce.end);
  if (lane_count == 0) return scalar_cost;
  qn__cost_model_t vector = {self->options, &self->lanes, lane_count, false};
  double vector_body = qn__cost_expr(&vector, reduce->reduce.value) + 1;
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    vector_body += qn__cost_expr(&vector, let->let.value);
  }
  uint32_t vectors = vector_body <= 8 ? 4 : vector_body <= 16 ? 2 : 1;
  double steps = ceil(trips / lane_count);
  double vector_cost = steps * (vector_body + 1) + 2.0 * lane_count;
  if (vector_cost >= 0.95 * scalar_cost) return scalar_cost;
  (void)clear_expr(NULL, &reduce);
  reduce->reduce.lane_count =
      choose_lanes(self, bytes, vectors, reduce->reduce.begin, reduce->reduce.end);
  return vector_cost;
}

static double plan_vector_loop(vectorize_t* self, qn__ir_stmt_t* loop) {
  double trips = qn__cost_trips(loop->loop.begin, loop->loop.end);
  uint32_t lane_count = 0;
  if (loop_is_legal(self, loop)) {
    uint32_t bytes = qn__widest_in_block(&loop->loop.body);
    lane_count = choose_lanes(self, bytes, 1, loop->loop.begin, loop->loop.end);
    // Short loops run as one vector, however many registers it needs.
    uint32_t whole = trips <= (double)max_lanes ? (uint32_t)trips : 0;
    if (whole >= min_lanes) lane_count = whole;
  }
  if (lane_count == 0) {
    loop->loop.kind = QN_LOOP_SERIAL;
    return trips * (plan_block(self, &loop->loop.body) + 1);
  }
  clear_marks(&loop->loop.body);
  loop->loop.lane_count = lane_count;
  qn__cost_model_t vector = {self->options, &self->lanes, lane_count, false};
  double steps = ceil(trips / lane_count);
  return steps * (qn__cost_block(&vector, &loop->loop.body) + 1);
}

static double plan_loop(vectorize_t* self, qn__ir_stmt_t* loop) {
  loop->loop.lane_count = 0;
  if (loop->loop.kind == QN_LOOP_VECTOR) return plan_vector_loop(self, loop);
  double trips = qn__cost_trips(loop->loop.begin, loop->loop.end);
  double scalar_cost = trips * (plan_block(self, &loop->loop.body) + 1);
  if (loop->loop.kind != QN_LOOP_SERIAL && loop->loop.kind != QN_LOOP_PARALLEL) {
    return scalar_cost;
  }
  if (loop->loop.is_rare) return scalar_cost;
  if (!loop_is_legal(self, loop)) return scalar_cost;
  uint32_t bytes = qn__widest_in_block(&loop->loop.body);
  uint32_t lane_count = choose_lanes(self, bytes, 1, loop->loop.begin, loop->loop.end);
  if (lane_count == 0) return scalar_cost;
  qn__cost_model_t vector = {self->options, &self->lanes, lane_count, false};
  double steps = ceil(trips / lane_count);
  double vector_cost = steps * (qn__cost_block(&vector, &loop->loop.body) + 1);
  if (vector_cost >= 0.95 * scalar_cost) return scalar_cost;
  clear_marks(&loop->loop.body);
  assert(lane_count >= min_lanes && lane_count <= max_lanes && steps >= 0);
  // Several vectors at a time amortise the cost of counting. Without masks the iterations of a tail
  // run one after the other, and longer tails cost more than that saves.
  double body = vector_cost / (steps > 0 ? steps : 1);
  uint32_t vectors = body <= 24 ? 4 : body <= 60 ? 2 : 1;
  if (!self->options->has_masked_memory) vectors = 1;
  loop->loop.lane_count = choose_lanes(self, bytes, vectors, loop->loop.begin, loop->loop.end);
  return vector_cost;
}

static double plan_block(vectorize_t* self, qn__ir_block_t* block) {
  qn__cost_model_t scalar = {self->options, NULL, 1, false};
  double cost = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    switch (stmt->kind) {
      case QN__STMT_LET:
        cost += plan_expr(self, stmt->let.value);
        break;
      case QN__STMT_STORE:
        cost += plan_expr(self, stmt->store.value) + qn__cost_store(&scalar, stmt);
        break;
      case QN__STMT_IF:
        cost += 1 + plan_expr(self, stmt->if_.condition) + plan_block(self, &stmt->if_.then_block) +
                plan_block(self, &stmt->if_.else_block);
        break;
      case QN__STMT_LOOP:
        cost += plan_loop(self, stmt);
        break;
      case QN__STMT_WHILE:
        cost += plan_expr(self, stmt->while_.condition) + plan_block(self, &stmt->while_.body);
        break;
      case QN__STMT_ASSERT:
        cost += plan_expr(self, stmt->assert_.condition);
        break;
      case QN__STMT_ATOMIC: {
        plan_sum_t planned = {self, &scalar, 0, 20};
        (void)qn__stmt_each_expr(stmt, plan_slot, &planned);
        cost += planned.planned_cost;
        break;
      }
      case QN__STMT_ALLOC:
      case QN__STMT_BARRIER:
      case QN__STMT_FENCE:
      case QN__STMT_TENSOR:
      case QN__STMT_REDUCE:
      case QN__STMT_LEAVE:
        break;
    }
  }
  return cost;
}

// Makes parallel loops inside of other parallel loops, or of loops with lanes, serial.
static void serialize_inner(qn__ir_block_t* block, bool is_inside) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    bool is_launch = is_loop && stmt->loop.kind == QN_LOOP_PARALLEL;
    bool has_lanes = is_loop && stmt->loop.lane_count != 0;
    if (is_inside && is_launch) stmt->loop.kind = QN_LOOP_SERIAL;
    QN__EACH_BLOCK(stmt, inner) {
      serialize_inner(inner, is_inside || is_launch || has_lanes);
    }
  }
}

// ---- postcondition

// Returns false if a marked reduction is inside of another, or of marked code.
static bool has_flat_marks(void* is_marked, qn__ir_expr_t** slot) {
  bool has_mark = (*slot)->kind == QN__EXPR_REDUCE && (*slot)->reduce.lane_count != 0;
  bool is_inside = *(bool*)is_marked || has_mark;
  if (has_mark && *(bool*)is_marked) return false;
  return qn__expr_each_child(*slot, has_flat_marks, &is_inside);
}

static const char* check_nesting(qn__ir_block_t* block, bool is_parallel, bool is_marked) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!qn__stmt_each_expr(stmt, has_flat_marks, &is_marked)) {
      return "a marked reduction inside of marked code";
    }
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    bool is_launch = is_loop && stmt->loop.kind == QN_LOOP_PARALLEL;
    bool has_lanes = is_loop && stmt->loop.lane_count != 0;
    if (is_launch && (is_parallel || is_marked)) return "a parallel loop inside of another";
    if (has_lanes && is_marked) return "a marked loop inside of another";
    if (is_loop && stmt->loop.kind == QN_LOOP_VECTOR && !has_lanes) {
      return "a vector loop without lanes";
    }
    QN__EACH_BLOCK(stmt, inner) {
      const char* problem = check_nesting(inner, is_parallel || is_launch, is_marked || has_lanes);
      if (problem) return problem;
    }
  }
  return NULL;
}

static const char* check(qn__ir_func_t* function) {
  return check_nesting(&function->body, false, false);
}

static void vectorize_function(qn__pass_builder_t* pb) {
  vectorize_t self = {.options = pb->options};
  if (!qn__lanes_init(&self.lanes, pb->arena, pb->function)) return;
  (void)plan_block(&self, &pb->function->body);
  // A prepared kernel is called in a launch.
  serialize_inner(&pb->function->body, pb->options->preparing != 0);
}

const qn__pass_t qn__pass_vectorize = {
    .name = "vectorize",
    .doc = "marks loops and reductions that run in lanes",
    .run = vectorize_function,
    .post = "marks do not nest, and parallel loops are launches",
    .check = check,
    .is_alone = true,
};
