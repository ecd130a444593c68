// SPDX-License-Identifier: Apache-2.0
// ir/passes/lanes_tile.c: proves that the iterations of a loop access separate tiles.
//
// For every buffer that the body stores to, except those that an iteration declares, all accesses
// must agree in one dimension on the form
//   step * iteration + a value that is the same in all iterations + inner part
// The inner part is a sum of variables of inner loops with constant ranges, and all inner parts
// together must span less than a step, as in tile[i * 16 + v] with v in 0..16. Views, strides and
// other forms of indices are not proven.
#include "ir/affine.h"
#include "ir/passes/lanes.h"

enum { max_vars = 64, max_stores = 32 };

// The facts about a variable that the body declares.
typedef struct lane_known {
  const qn__ir_var_t* var;
  bool is_ranged;  // of a loop or reduction with constant bounds
  int64_t first, last;
  qn__ir_affine_t value;  // of a let; not valid otherwise
} lane_known_t;

typedef struct tile {
  const qn__lanes_t* lanes;
  qn__ir_block_t* body;
  const qn__ir_var_t* iteration;
  lane_known_t* known;
  uint32_t known_count;
  // The access that the others are compared with.
  const qn__ir_buffer_t* buffer;
  uint32_t dim;
  bool has_base;
  qn__ir_affine_t base;
  int64_t step;
  int64_t low, high;
} tile_t;

static const lane_known_t* find(const tile_t* self, const qn__ir_var_t* var) {
  for (uint32_t i = self->known_count; i-- > 0;) {
    if (self->known[i].var == var) return &self->known[i];
  }
  return NULL;
}

static const qn__ir_affine_t* value_of(const qn__ir_affine_lets_t* lets, const qn__ir_var_t* var) {
  const lane_known_t* known = find(lets->self, var);
  return known && known->value.is_valid ? &known->value : NULL;
}

static lane_known_t* remember(tile_t* self, const qn__ir_var_t* var) {
  if (self->known_count == max_vars) return NULL;
  lane_known_t* known = &self->known[self->known_count++];
  *known = (lane_known_t){.var = var};
  return known;
}

static void remember_range(tile_t* self, const qn__ir_var_t* var, const qn__ir_expr_t* begin,
                           const qn__ir_expr_t* end) {
  lane_known_t* known = remember(self, var);
  if (!known) return;
  known->is_ranged = qn__expr_const_int(begin, &known->first) &&
                     qn__expr_const_int(end, &known->last) && known->last > known->first;
  if (known->is_ranged) --known->last;
}

static void remember_let(tile_t* self, const qn__ir_stmt_t* let) {
  lane_known_t* known = remember(self, let->let.var);
  const qn__ir_affine_lets_t lets = {value_of, self};
  if (known && let->let.var->dtype == QN_DTYPE_I64) {
    known->value = qn__affine_of(let->let.value, &lets);
  }
}

static bool remember_reductions(void* context, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    remember_range(context, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end);
    for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      remember_let(context, let);
    }
  }
  return qn__expr_each_child(expr, remember_reductions, context);
}

static void remember_block(tile_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, remember_reductions, self);
    if (stmt->kind == QN__STMT_LET) remember_let(self, stmt);
    if (stmt->kind == QN__STMT_LOOP) {
      remember_range(self, stmt->loop.var, stmt->loop.begin, stmt->loop.end);
    }
    QN__EACH_BLOCK(stmt, inner) remember_block(self, inner);
  }
}

// ---- accesses

// Takes the inner variables out of a sum: their span. False: something else varies.
static bool take_inner(const tile_t* self, qn__ir_affine_t* sum, int64_t* out_low,
                       int64_t* out_high) {
  *out_low = *out_high = 0;
  for (uint32_t i = 0; i < sum->count;) {
    const qn__ir_expr_t* atom = sum->terms[i].atom;
    int64_t factor = sum->terms[i].coefficient;
    const qn__ir_var_t* var = atom->kind == QN__EXPR_VAR ? atom->var : NULL;
    const lane_known_t* known = var ? find(self, var) : NULL;
    if (known && known->is_ranged) {
      int64_t a, b;
      if (__builtin_mul_overflow(known->first, factor, &a) ||
          __builtin_mul_overflow(known->last, factor, &b) ||
          __builtin_add_overflow(*out_low, a < b ? a : b, out_low) ||
          __builtin_add_overflow(*out_high, a < b ? b : a, out_high)) {
        return false;
      }
      sum->terms[i] = sum->terms[--sum->count];
      continue;
    }
    qn__ir_expr_t* same = (qn__ir_expr_t*)(uintptr_t)atom;
    qn__ir_lane_t lane = qn__lanes_of(self->lanes, same);
    if (var != self->iteration && (!qn__lane_is_uniform(lane) || lane.has_inner)) return false;
    ++i;
  }
  return true;
}

// Returns false for an access outside of the iteration's tile, as known so far.
static bool is_in_tile(void* context, const qn__ir_ref_t* ref) {
  tile_t* self = context;
  const qn__ir_buffer_t* buffer = *ref->buffer;
  if (ref->kind == QN__REF_BASE || qn__buf_root(buffer) != qn__buf_root(self->buffer)) return true;
  qn__ir_expr_t* index = (*ref->indices)[self->dim];
  if (buffer != self->buffer || index->dtype != QN_DTYPE_I64) return false;
  const qn__ir_affine_lets_t lets = {value_of, self};
  int64_t low, high;
  qn__ir_affine_t sum = qn__affine_of(index, &lets);
  if (!sum.is_valid || !take_inner(self, &sum, &low, &high)) return false;
  assert(low <= high);
  if (!self->has_base) {
    self->has_base = true;
    self->base = sum;
    self->step = qn__affine_coefficient(&sum, self->iteration);
    self->low = low;
    self->high = high;
  }
  qn__ir_affine_t gap = qn__affine_add(&sum, &self->base, -1);
  if (!qn__affine_is_constant(&gap) || __builtin_add_overflow(low, gap.constant, &low) ||
      __builtin_add_overflow(high, gap.constant, &high)) {
    return false;
  }
  if (low < self->low) self->low = low;
  if (high > self->high) self->high = high;
  int64_t span;
  if (self->step == 0 || self->step == INT64_MIN ||
      __builtin_sub_overflow(self->high, self->low, &span)) {
    return false;
  }
  return span < (self->step < 0 ? -self->step : self->step);
}

static bool has_tile(void* context, const qn__ir_stmt_t* store) {
  tile_t* self = context;
  qn__ir_buffer_t* buffer = store->store.buffer;
  qn__ir_expr_t** indices = store->store.indices;
  const qn__ir_ref_t first = {QN__REF_STORE, &buffer, &indices};
  if (buffer->strides || buffer->scope == QN__SCOPE_VIEW) return false;
  self->buffer = buffer;
  for (self->dim = 0; self->dim < buffer->rank; ++self->dim) {
    self->has_base = false;
    if (is_in_tile(self, &first) && qn__block_each_ref(self->body, is_in_tile, self)) return true;
  }
  return false;
}

bool qn__lanes_is_tiled(const qn__lanes_t* lanes, qn__arena_t* arena, const qn__ir_var_t* iteration,
                        qn__ir_block_t* body) {
  tile_t self = {.lanes = lanes, .body = body, .iteration = iteration};
  self.known = qn__arena_alloc_array(arena, max_vars, sizeof *self.known);
  if (!self.known) return false;
  remember_block(&self, body);
  int budget = max_stores;
  return qn__lanes_all_stores(lanes, body, &budget, has_tile, &self);
}
