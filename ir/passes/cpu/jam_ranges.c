// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/jam_ranges.c: gives all rows of a block one range, for the pass `jam`.
//
//   for i in 0..n {                                  // a row, of causal attention
//     for j in 0..i + 1 { p[j] = ...; }
//     let top = max j in 0..i + 1 { p[j] };
//     for j in 0..i + 1 { p[j] = exp(p[j] - top); }
//     for d in 0..64 { y[i, d] = sum j in 0..i + 1 { p[j] * v[j, d] }; }
//   }
//
// becomes, with the ends of the ranges of a block's first and last row:
//
//     for j in 0..longest { p[j] = ...; }
//     let own = max j in 0..shortest { p[j] };
//     let rest = max j in shortest..longest { j < i + 1 ? p[j] : -inf };
//     let top = max(own, rest);
//     for j in 0..longest { p[j] = exp(p[j] - top); }
//     for j in shortest..longest { p[j] = j < i + 1 ? p[j] : 0.0; }
//     for d in 0..64 { y[i, d] = sum j in 0..longest { p[j] * v[j, d] }; }
//
// 1. All ranges begin at 0 and have the same end, which does not fall from row to row. So the last
//    row reads all elements of shared memory that another row now reads. For that, no index depends
//    on both the row and the range, each load is unconditional, and each range has an iteration.
// 2. Loops over such a range store to buffers of the row alone, at the element of the iteration. No
//    row reads one beyond its own range, except to drop it.
// 3. A factor zero leaves a sum as it is if the other factor is finite. `magnitude` finds that out
//    for the factors that some row of the block would not read. Where it fails, rows run as before.
// 4. The condition compares differences as i32, so that as many lanes as of f32 compare at once. A
//    block where they might not fit runs its rows as before.
#include "ir/passes/cpu/jam_ranges.h"

enum {
  max_chain = 4,
  max_new_vars = 64,  // that the rewritten row declares
};

// What a value depends on.
enum {
  ON_ROW = 1,
  ON_RANGE = 2,  // the variable of a range that ends with the row
  IS_INNER = 4,  // declared by the row
};

typedef struct widen {
  qn__pass_builder_t* pb;
  const qn__lanes_t* lanes;
  qn__jam_ranges_t* ranges;
  uint8_t* masks;  // by variable id
  uint32_t mask_count;
  qn__ir_expr_t** lets;  // by variable id: the value of a let at the top of the row, or NULL
  uint8_t* widened;      // by buffer id: 1 + the dimension along which a range stores; 0: none
  qn__ir_block_t* out;   // the statements of the row that are done
  qn__ir_stmt_t* chain[max_chain];  // the loops around, of one range for all rows
  uint32_t chain_count;
  bool is_in_range;
  bool is_lazy;
  uint32_t mask;  // of the expression that is visited
} widen_t;

static bool join_slot(void* context, qn__ir_expr_t** slot) {
  widen_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) self->mask |= self->masks[expr->var->id];
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    if (self->lanes->is_private[root->id] || self->lanes->is_stored[root->id]) self->mask |= ON_ROW;
  }
  return qn__expr_each_child(*slot, join_slot, self);
}

static uint32_t mask_of(widen_t* self, qn__ir_expr_t* expr) {
  self->mask = 0;
  (void)join_slot(self, &expr);
  return self->mask;
}

// ---- ranges

// Returns true if the value does not fall from row to row.
static bool is_rising(const widen_t* self, qn__ir_expr_t* expr) {
  qn__ir_lane_t lane = qn__lanes_of(self->lanes, expr);
  if (!lane.is_varying && !lane.has_inner && lane.step >= 0) return true;
  bool is_bound = expr->kind == QN__EXPR_OP && (expr->op == QN_OP_MIN || expr->op == QN_OP_MAX);
  return is_bound && is_rising(self, expr->args[0]) && is_rising(self, expr->args[1]);
}

typedef enum range_kind {
  RANGE_EVEN,    // the same for all rows
  RANGE_RISING,  // that of `ranges`
  RANGE_OTHER,
} range_kind_t;

static range_kind_t kind_of(widen_t* self, qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  if (!qn__lane_is_uniform(qn__lanes_of(self->lanes, begin))) return RANGE_OTHER;
  if (qn__lane_is_uniform(qn__lanes_of(self->lanes, end))) return RANGE_EVEN;
  if (end->kind == QN__EXPR_VAR && self->lets[end->var->id]) end = self->lets[end->var->id];
  if (!qn__expr_is_int(begin, 0) || !is_rising(self, end) || qn__expr_facts(end).has_load ||
      (mask_of(self, end) & (ON_RANGE | IS_INNER))) {
    return RANGE_OTHER;
  }
  if (!self->ranges->end) self->ranges->end = qn__pb_copy(self->pb, end);
  bool is_same = self->ranges->end && qn__expr_equal(self->ranges->end, end);
  return is_same ? RANGE_RISING : RANGE_OTHER;
}

// Returns `var < end of the row's range ? value : other`.
static qn__ir_expr_t* within(const widen_t* self, qn__ir_var_t* var, qn__ir_expr_t* value,
                             qn__ir_expr_t* other) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* sides[] = {qn__pb_use(pb, var), qn__pb_copy(pb, self->ranges->end)};
  for (int i = 0; i < 2; ++i) {
    sides[i] = qn__pb_op(pb, QN_OP_SUB, sides[i], qn__pb_use(pb, self->ranges->shortest));
    sides[i] = qn__pb_cast(pb, QN_DTYPE_I32, sides[i]);
  }
  return qn__pb_cond(pb, qn__pb_op(pb, QN_OP_LT, sides[0], sides[1]), value, other);
}

static bool declare(widen_t* self, const qn__ir_var_t* var, uint32_t mask) {
  if (!var || var->id >= self->mask_count) return false;
  self->masks[var->id] = (uint8_t)(mask | IS_INNER);
  return true;
}

// ---- factors

typedef struct factor {
  const widen_t* self;
  const qn__ir_var_t* var;  // of the range
} factor_t;

static bool uses_chain(const widen_t* self, qn__ir_expr_t* expr) {
  for (uint32_t i = 0; i < self->chain_count; ++i) {
    if (qn__expr_uses_var(expr, self->chain[i]->loop.var)) return true;
  }
  return false;
}

// Stops at what the code before a block does not know.
static bool is_known(void* context, qn__ir_expr_t** slot) {
  const factor_t* factor = context;
  const widen_t* self = factor->self;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    if (self->lanes->is_private[root->id] || self->lanes->is_stored[root->id]) return false;
  }
  if (expr->kind == QN__EXPR_VAR && expr->var != factor->var) {
    bool is_chain = false;
    for (uint32_t i = 0; i < self->chain_count; ++i) {
      is_chain |= expr->var == self->chain[i]->loop.var;
    }
    if (!is_chain && self->masks[expr->var->id]) return false;
  }
  return qn__expr_each_child(*slot, is_known, context);
}

static qn__ir_expr_t* max_of(qn__pass_builder_t* pb, qn_dtype_t dtype, qn__ir_expr_t* value,
                             const qn__ir_var_t* var, qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  qn__ir_var_t* own = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, var->name);
  qn__ir_expr_t* reduce = qn__pb_reduce_over(pb, QN_REDUCE_MAX, dtype, own, begin, end);
  if (!reduce || !value) return NULL;
  reduce->reduce.value =
      qn__expr_replace(pb->arena, value, (qn__ir_var_t*)(uintptr_t)var, qn__pb_use(pb, own));
  return reduce;
}

// Adds the factor to `magnitude`.
static bool note_factor(widen_t* self, const qn__ir_expr_t* reduce, qn__ir_expr_t* value) {
  qn__pass_builder_t* pb = self->pb;
  qn__jam_ranges_t* ranges = self->ranges;
  const qn__ir_var_t* var = reduce->reduce.reduce_var;
  factor_t factor = {self, var};
  if (!is_known(&factor, &value)) return false;
  qn__ir_expr_t* most = qn__expr_op(pb->arena, QN_OP_ABS, qn__pb_copy(pb, value), NULL, NULL);
  for (uint32_t i = self->chain_count; i-- > 0;) {
    qn__ir_stmt_t* loop = self->chain[i];
    if (!is_known(&factor, &loop->loop.begin) || !is_known(&factor, &loop->loop.end)) return false;
    most = max_of(pb, value->dtype, most, loop->loop.var, qn__pb_copy(pb, loop->loop.begin),
                  qn__pb_copy(pb, loop->loop.end));
  }
  most = max_of(pb, value->dtype, most, var, qn__pb_use(pb, ranges->shortest),
                qn__pb_use(pb, ranges->stop));
  if (!most) return false;
  bool is_other = ranges->magnitude && ranges->magnitude->dtype != most->dtype;
  if (is_other) return false;
  ranges->magnitude = ranges->magnitude ? qn__pb_op(pb, QN_OP_MAX, ranges->magnitude, most) : most;
  return true;
}

// Appends a loop that makes the elements beyond the row's range zero. `load` is of that of `var`.
static bool clear_rest(widen_t* self, const qn__ir_expr_t* load, qn__ir_var_t* var) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_var_t* own = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, var->name);
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_SERIAL, own, qn__pb_use(pb, self->ranges->shortest),
                                    qn__pb_use(pb, self->ranges->longest));
  qn__ir_stmt_t* store = qn__stmt_new(pb->arena, QN__STMT_STORE, load->loc);
  if (!loop || !store || !declare(self, own, ON_RANGE)) return false;
  loop->loop.is_independent = true;
  qn__ir_expr_t* element = qn__expr_replace(pb->arena, load, var, qn__pb_use(pb, own));
  qn__ir_expr_t* place = qn__pb_copy(pb, element);
  if (!place) return false;
  store->store.buffer = place->load.buffer;
  store->store.indices = place->load.indices;
  store->store.value = within(self, own, element, qn__pb_zero(pb, element->dtype));
  if (!store->store.value) return false;
  qn__block_append(&loop->loop.body, store);
  qn__block_append(self->out, loop);
  return true;
}

// Makes one factor of a sum's summand zero beyond the row's range.
static bool clear_factor(widen_t* self, qn__ir_expr_t* reduce) {
  qn__ir_var_t* var = reduce->reduce.reduce_var;
  qn__ir_expr_t* value = reduce->reduce.value;
  bool is_float = reduce->dtype == QN_DTYPE_F32 || reduce->dtype == QN_DTYPE_F64;
  if (reduce->reduce.reduce_kind != QN_REDUCE_SUM || !is_float || reduce->reduce.lets.first ||
      value->kind != QN__EXPR_OP || value->op != QN_OP_MUL) {
    return false;
  }
  uint32_t own = uses_chain(self, value->args[0]) ? 1 : 0;
  qn__ir_expr_t* factor = value->args[own];
  if (uses_chain(self, factor) || !note_factor(self, reduce, value->args[1 - own])) return false;
  if (factor->kind == QN__EXPR_LOAD && self->lanes->is_private[factor->load.buffer->id]) {
    return clear_rest(self, factor, var);
  }
  value->args[own] = within(self, var, factor, qn__pb_zero(self->pb, factor->dtype));
  return value->args[own] != NULL;
}

// Replaces a reduction by its value, which is a let before the statement.
static bool split_reduce(widen_t* self, qn__ir_expr_t** slot) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* own = *slot;
  qn__ir_expr_t* rest = qn__pb_copy(pb, own);
  qn_reduce_kind_t kind = own->reduce.reduce_kind;
  if (!rest) return false;
  own->reduce.end = qn__pb_use(pb, self->ranges->shortest);
  rest->reduce.begin = qn__pb_use(pb, self->ranges->shortest);
  rest->reduce.end = qn__pb_use(pb, self->ranges->longest);
  rest->reduce.value = within(self, rest->reduce.reduce_var, rest->reduce.value,
                              qn__pb_neutral(pb, kind, own->dtype));
  qn__ir_var_t* parts[] = {qn__pb_let(pb, self->out, "own", own),
                           rest->reduce.value ? qn__pb_let(pb, self->out, "rest", rest) : NULL};
  if (!declare(self, parts[0], ON_ROW) || !declare(self, parts[1], ON_ROW)) return false;
  *slot = qn__pb_op(pb, qn__reduce_op(kind), qn__pb_use(pb, parts[0]), qn__pb_use(pb, parts[1]));
  return *slot != NULL;
}

// ---- expressions

static bool visit_slot(void* context, qn__ir_expr_t** slot);

static bool visit_lets(widen_t* self, qn__ir_block_t* lets) {
  for (qn__ir_stmt_t* let = lets->first; let; let = let->next) {
    if (!visit_slot(self, &let->let.value)) return false;
    self->masks[let->let.var->id] = (uint8_t)(mask_of(self, let->let.value) | IS_INNER);
  }
  return true;
}

static bool visit_reduce(widen_t* self, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  range_kind_t kind = kind_of(self, expr->reduce.begin, expr->reduce.end);
  bool is_rising_range = kind == RANGE_RISING;
  if (kind == RANGE_OTHER || (is_rising_range && (self->is_in_range || self->is_lazy))) {
    return false;
  }
  self->masks[expr->reduce.reduce_var->id] = is_rising_range ? ON_RANGE | IS_INNER : IS_INNER;
  if (is_rising_range && qn__expr_facts(expr->reduce.value).has_division) return false;
  self->is_in_range |= is_rising_range;
  bool is_fit = visit_lets(self, &expr->reduce.lets) && visit_slot(self, &expr->reduce.value);
  if (!is_rising_range) return is_fit;
  self->is_in_range = false;
  if (!is_fit) return false;
  if (self->chain_count == 0) return split_reduce(self, slot);
  expr->reduce.end = qn__pb_use(self->pb, self->ranges->longest);
  return clear_factor(self, expr);
}

// Returns true if the last row reads the same elements, whatever the row.
static bool is_fit_load(widen_t* self, const qn__ir_expr_t* expr) {
  if (self->is_lazy) return false;
  for (uint32_t d = 0; d < expr->load.buffer->rank; ++d) {
    uint32_t mask = mask_of(self, expr->load.indices[d]);
    if ((mask & ON_ROW) && (mask & ON_RANGE)) return false;
  }
  return true;
}

static bool visit_slot(void* context, qn__ir_expr_t** slot) {
  widen_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) return visit_reduce(self, slot);
  if (expr->kind == QN__EXPR_LOAD && self->is_in_range && !is_fit_load(self, expr)) return false;
  return qn__expr_each_child_lazily(expr, visit_slot, self, &self->is_lazy);
}

static bool visit_value(widen_t* self, qn__ir_expr_t** slot) {
  self->is_lazy = false;
  if (self->is_in_range && qn__expr_facts(*slot).has_division) return false;
  return visit_slot(self, slot);
}

// ---- statements

static bool visit_block(widen_t* self, qn__ir_block_t* block);

// Notes that a range stores to the buffer. Returns false unless that is at the element of the
// iteration, in memory of the row.
static bool note_store(widen_t* self, const qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* buffer = stmt->store.buffer;
  if (buffer->scope == QN__SCOPE_VIEW || !self->lanes->is_private[buffer->id]) return false;
  uint32_t dim = 0;
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    qn__ir_expr_t* index = stmt->store.indices[d];
    uint32_t mask = mask_of(self, index);
    if (mask & ON_ROW) return false;
    if (!(mask & ON_RANGE)) continue;
    if (dim != 0 || index->kind != QN__EXPR_VAR) return false;
    dim = d + 1;
  }
  uint8_t* noted = &self->widened[buffer->id];
  if (dim == 0 || dim > UINT8_MAX || (*noted != 0 && *noted != dim)) return false;
  *noted = (uint8_t)dim;
  return true;
}

static bool visit_loop(widen_t* self, qn__ir_stmt_t* stmt) {
  range_kind_t kind = kind_of(self, stmt->loop.begin, stmt->loop.end);
  if (kind == RANGE_OTHER || self->is_in_range) return false;
  if (kind == RANGE_RISING) {
    if (!qn__is_independent_loop(stmt)) return false;
    self->masks[stmt->loop.var->id] = ON_RANGE | IS_INNER;
    stmt->loop.end = qn__pb_use(self->pb, self->ranges->longest);
    self->is_in_range = true;
    bool is_fit = visit_block(self, &stmt->loop.body);
    self->is_in_range = false;
    return is_fit;
  }
  if (self->chain_count == max_chain) return false;
  self->masks[stmt->loop.var->id] = IS_INNER;
  self->chain[self->chain_count++] = stmt;
  bool is_fit = visit_block(self, &stmt->loop.body);
  --self->chain_count;
  return is_fit;
}

static bool is_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP;
}

static bool is_reduce(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_REDUCE;
}

static bool visit_stmt(widen_t* self, qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      if (!visit_value(self, &stmt->let.value)) return false;
      self->masks[stmt->let.var->id] = (uint8_t)(mask_of(self, stmt->let.value) | IS_INNER);
      if (self->chain_count == 0 && !self->is_in_range) {
        self->lets[stmt->let.var->id] = stmt->let.value;
      }
      return true;
    case QN__STMT_STORE:
      for (uint32_t d = 0; d < stmt->store.buffer->rank; ++d) {
        if (!visit_value(self, &stmt->store.indices[d])) return false;
      }
      return visit_value(self, &stmt->store.value) &&
             (!self->is_in_range || note_store(self, stmt));
    case QN__STMT_ALLOC:
      return !self->is_in_range && stmt->alloc.buffer->scope == QN__SCOPE_LOCAL;
    case QN__STMT_IF:
      QN__EACH_BLOCK(stmt, inner) {
        if (qn__block_any(inner, is_loop) || qn__block_any_expr(inner, is_reduce) ||
            !visit_block(self, inner)) {
          return false;
        }
      }
      return !self->is_in_range && visit_value(self, &stmt->if_.condition);
    case QN__STMT_LOOP:
      return visit_loop(self, stmt);
    default:
      return false;
  }
}

static bool visit_block(widen_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!visit_stmt(self, stmt)) return false;
  }
  return true;
}

// Stops at a reference to an element of a widened buffer that is not that of an iteration.
static bool is_fit_ref(void* context, const qn__ir_ref_t* ref) {
  const widen_t* self = context;
  uint8_t dim = self->widened[qn__buf_root(*ref->buffer)->id];
  if (dim == 0) return true;
  if ((*ref->buffer)->scope == QN__SCOPE_VIEW) return false;
  const qn__ir_expr_t* index = (*ref->indices)[dim - 1];
  return index->kind == QN__EXPR_VAR && (self->masks[index->var->id] & ON_RANGE) != 0;
}

bool qn__jam_even_out(qn__pass_builder_t* pb, const qn__lanes_t* lanes, qn__ir_stmt_t* loop,
                      qn__jam_ranges_t* out_ranges) {
  *out_ranges = (qn__jam_ranges_t){
      .shortest = qn__pb_var(pb, QN__VAR_LET, QN_DTYPE_I64, "shortest"),
      .longest = qn__pb_var(pb, QN__VAR_LET, QN_DTYPE_I64, "longest"),
      .stop = qn__pb_var(pb, QN__VAR_LET, QN_DTYPE_I64, "stop"),
  };
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_block_t row = qn__block_take(body);
  widen_t self = {
      .pb = pb, .lanes = lanes, .ranges = out_ranges, .mask_count = pb->var_count + max_new_vars};
  self.out = body;
  self.masks = qn__arena_alloc_array(pb->arena, self.mask_count, sizeof *self.masks);
  self.lets = qn__arena_alloc_array(pb->arena, self.mask_count, sizeof *self.lets);
  self.widened = qn__arena_alloc_array(pb->arena, pb->buffer_count + 1U, sizeof *self.widened);
  if (!out_ranges->stop || !self.masks || !self.lets || !self.widened) return false;
  self.masks[loop->loop.var->id] = ON_ROW;
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&row)) != NULL;) {
    if (!visit_stmt(&self, stmt)) return false;
    qn__block_append(body, stmt);
  }
  return out_ranges->end && qn__block_each_ref(body, is_fit_ref, &self);
}
