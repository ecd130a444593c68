// SPDX-License-Identifier: Apache-2.0
// ir/passes/cost.c: the cost model of the vectorise pass.
//
// An operator costs one for each vector register of its result; a uniform operator costs one.
// Transcendental functions cost as polynomials of a dozen steps. The cost of loads and stores
// depends on the addresses of the lanes. Address arithmetic is free: it folds into addressing.
#include "ir/passes/cost.h"

#define ASSUMED_TRIPS 64.0
#define STORED_WEIGHT 10.0  // of a conversion from or to a dtype that is only stored

double qn__cost_trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end) {
  int64_t trips = qn__const_trips(begin, end);
  return trips < 0 ? ASSUMED_TRIPS : (double)trips;
}

// The costs of operators that cost more than one, by operator.
static const uint8_t weights[] = {
    [QN_OP_EXP] = 14,      [QN_OP_EXP2] = 14,      [QN_OP_EXP10] = 14,    [QN_OP_LOG] = 14,
    [QN_OP_LOG2] = 14,     [QN_OP_LOG10] = 14,     [QN_OP_TANH] = 22,     [QN_OP_ERF] = 22,
    [QN_OP_SIN] = 22,      [QN_OP_COS] = 22,       [QN_OP_TAN] = 22,      [QN_OP_EXPM1] = 22,
    [QN_OP_SIGMOID] = 22,  [QN_OP_SINH] = 22,      [QN_OP_COSH] = 22,     [QN_OP_LOG1P] = 22,
    [QN_OP_ASIN] = 22,     [QN_OP_ACOS] = 22,      [QN_OP_ATAN] = 22,     [QN_OP_HYPOT] = 22,
    [QN_OP_LDEXP] = 22,    [QN_OP_NEXTAFTER] = 22, [QN_OP_POW] = 40,      [QN_OP_ASINH] = 40,
    [QN_OP_ACOSH] = 40,    [QN_OP_ATANH] = 40,     [QN_OP_ATAN2] = 40,    [QN_OP_CBRT] = 40,
    [QN_OP_FMOD] = 40,     [QN_OP_DIV] = 6,        [QN_OP_SQRT] = 6,      [QN_OP_RSQRT] = 6,
    [QN_OP_FLOORDIV] = 12, [QN_OP_FLOORMOD] = 12,  [QN_OP_TRUNCDIV] = 12, [QN_OP_TRUNCMOD] = 12,
    [QN_OP_CEILDIV] = 12};

static double op_weight(qn_op_t op) {
  return (size_t)op < sizeof weights && weights[op] > 0 ? weights[op] : 1;
}

static uint32_t compute_bytes(qn_dtype_t dtype) {
  if (qn__dtype_is_real(dtype) && qn_dtype_size_bytes(dtype) < 4) return 4;  // widened
  return (uint32_t)qn_dtype_size_bytes(dtype);
}

// Returns the number of vector registers for the values of all lanes.
static double registers(const qn__cost_model_t* model, qn_dtype_t dtype) {
  assert(model->lane_count > 0 && model->options->vector_bytes > 0);
  double bytes = (double)model->lane_count * compute_bytes(dtype);
  double count = bytes / model->options->vector_bytes;
  return count < 1 ? 1 : count;
}

static double access_cost(const qn__cost_model_t* model, const qn__ir_buffer_t* buffer,
                          qn__ir_expr_t* const* indices, bool is_store) {
  if (!model->lanes) return 1;
  double count = registers(model, buffer->dtype);
  switch (qn__lanes_reach(model->lanes, buffer, indices)) {
    case QN__REACH_UNIFORM:
      return 1;
    case QN__REACH_CONTIGUOUS:
      if (!model->is_masked || model->options->has_masked_memory) return count;
      if (model->options->has_masked_words && qn_dtype_size_bytes(buffer->dtype) >= 4) {
        return 2 * count;
      }
      return 5.0 * model->lane_count;  // a branch for every lane
    case QN__REACH_SCATTERED:
      break;
  }
  return model->lane_count * (is_store ? 2.5 : 2.0);
}

typedef struct cost_sum {
  const qn__cost_model_t* model;
  double cost;
} cost_sum_t;

static bool add_child(void* self, qn__ir_expr_t** slot) {
  cost_sum_t* sum = self;
  sum->cost += qn__cost_expr(sum->model, *slot);
  return true;
}

static double children(const qn__cost_model_t* model, qn__ir_expr_t* expr) {
  cost_sum_t sum = {model, 0};
  (void)qn__expr_each_child(expr, add_child, &sum);
  return sum.cost;
}

// Of indices only what cannot fold into an address counts: loads and divisions.
static bool add_index(void* self, qn__ir_expr_t** slot) {
  cost_sum_t* sum = self;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE ||
      (expr->kind == QN__EXPR_OP && qn__op_is_division(expr->op))) {
    sum->cost += qn__cost_expr(sum->model, expr);
    return true;
  }
  return qn__expr_each_child(expr, add_index, self);
}

static double index_cost(const qn__cost_model_t* model, const qn__ir_buffer_t* buffer,
                         qn__ir_expr_t** indices) {
  cost_sum_t sum = {model, 0};
  for (uint32_t d = 0; d < buffer->rank; ++d) (void)add_index(&sum, &indices[d]);
  return sum.cost;
}

double qn__cost_expr(const qn__cost_model_t* model, qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
      return 0;
    case QN__EXPR_LOAD:
      return index_cost(model, expr->load.buffer, expr->load.indices) +
             access_cost(model, expr->load.buffer, expr->load.indices, false);
    case QN__EXPR_REDUCE: {
      double body = qn__cost_expr(model, expr->reduce.value) + 2;
      for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
        body += qn__cost_expr(model, let->let.value);
      }
      return qn__cost_trips(expr->reduce.begin, expr->reduce.end) * body;
    }
    default:
      break;
  }
  qn__cost_model_t inner = *model;
  if (qn__expr_is_lazy(expr)) inner.is_masked = true;
  double weight = expr->kind == QN__EXPR_OP ? op_weight(expr->op) : 1;
  if (expr->kind == QN__EXPR_CAST &&
      (qn__dtype_is_stored(expr->dtype) || qn__dtype_is_stored(expr->args[0]->dtype))) {
    weight = STORED_WEIGHT;
  }
  if (model->lanes && !qn__lane_is_uniform(qn__lanes_of(model->lanes, expr))) {
    // There is no vector division of integers: it is done lane by lane.
    bool is_by_lane = expr->kind == QN__EXPR_OP && qn__op_is_division(expr->op) &&
                      expr->args[1]->kind != QN__EXPR_INT;
    weight *= is_by_lane ? model->lane_count : registers(model, expr->dtype);
  }
  return weight + children(&inner, expr);
}

double qn__cost_store(const qn__cost_model_t* model, const qn__ir_stmt_t* store) {
  return index_cost(model, store->store.buffer, store->store.indices) +
         access_cost(model, store->store.buffer, store->store.indices, true);
}

double qn__cost_block(const qn__cost_model_t* model, qn__ir_block_t* block) {
  double cost = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    switch (stmt->kind) {
      case QN__STMT_LET:
        cost += qn__cost_expr(model, stmt->let.value);
        break;
      case QN__STMT_STORE:
        cost += qn__cost_expr(model, stmt->store.value) + qn__cost_store(model, stmt);
        break;
      case QN__STMT_IF: {
        qn__cost_model_t inner = *model;
        if (model->lanes && !qn__lane_is_uniform(qn__lanes_of(model->lanes, stmt->if_.condition))) {
          inner.is_masked = true;
        }
        cost += 1 + qn__cost_expr(model, stmt->if_.condition) +
                qn__cost_block(&inner, &stmt->if_.then_block) +
                qn__cost_block(&inner, &stmt->if_.else_block);
        break;
      }
      case QN__STMT_LOOP:
        cost += qn__cost_trips(stmt->loop.begin, stmt->loop.end) *
                (qn__cost_block(model, &stmt->loop.body) + 1);
        break;
      case QN__STMT_WHILE:
        cost += ASSUMED_TRIPS * (qn__cost_expr(model, stmt->while_.condition) +
                                 qn__cost_block(model, &stmt->while_.body) + 2);
        break;
      case QN__STMT_ASSERT:
        cost += qn__cost_expr(model, stmt->assert_.condition) + 1;
        break;
      case QN__STMT_ATOMIC:
        cost += 20;
        break;
      case QN__STMT_ALLOC:
      case QN__STMT_BARRIER:
      case QN__STMT_FENCE:
      case QN__STMT_TENSOR:
      case QN__STMT_REDUCE:
      case QN__STMT_LEAVE:  // replaced before
        break;
    }
  }
  return cost;
}

// ---- the widest element

static bool widen(void* self, qn__ir_expr_t** slot) {
  uint32_t* widest = self;
  qn__ir_expr_t* expr = *slot;
  uint32_t bytes = 0;
  if (expr->kind == QN__EXPR_LOAD) {
    bytes = compute_bytes(expr->dtype);
    if (bytes > *widest) *widest = bytes;
    return true;  // indices are addresses, whatever their dtype
  }
  // Index arithmetic in i64 does not count unless a load or a float says so.
  if (expr->kind != QN__EXPR_VAR && expr->kind != QN__EXPR_INT && expr->dtype != QN_DTYPE_I64 &&
      expr->dtype != QN_DTYPE_BOOL) {
    bytes = compute_bytes(expr->dtype);
  }
  if (bytes > *widest) *widest = bytes;
  return qn__expr_each_child(expr, widen, self);
}

uint32_t qn__widest_in_expr(qn__ir_expr_t* expr) {
  uint32_t widest = 0;
  (void)widen(&widest, &expr);
  return widest;
}

static void widen_block(uint32_t* widest, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE) {
      uint32_t bytes = compute_bytes(stmt->store.buffer->dtype);
      if (bytes > *widest) *widest = bytes;
      (void)widen(widest, &stmt->store.value);
    } else if (stmt->kind == QN__STMT_LET) {
      (void)widen(widest, &stmt->let.value);
    } else if (stmt->kind == QN__STMT_IF) {
      (void)widen(widest, &stmt->if_.condition);
    } else if (stmt->kind == QN__STMT_ASSERT) {
      (void)widen(widest, &stmt->assert_.condition);
    }
    QN__EACH_BLOCK(stmt, inner) widen_block(widest, inner);
  }
}

uint32_t qn__widest_in_block(qn__ir_block_t* block) {
  uint32_t widest = 0;
  widen_block(&widest, block);
  return widest;
}
