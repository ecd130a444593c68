// SPDX-License-Identifier: Apache-2.0
// ir/passes/products.c: finds rows, columns, batch and operands of a product (products.h).
//
// 1. A product is a nest of independent loops around lets, stores and branches with exactly one
//    reduction, which every iteration computes.
// 2. The loops fall into three sets: *rows* (the first operand depends on them, the second does
//    not), *columns* (the other way round) and the *batch* (all others). Several loops of one set
//    are one index space. So a weight that is stored in parts, or rows in a batch, are found too.
// 3. An *operand* is a largest part of the summand that reads memory and depends on one side alone.
//    So a conversion, a scale of the row or a gather is computed once for a tile, not once for each
//    product.
// 4. A tile reads an operand earlier than the program does. So nothing in the nest may write its
//    memory, and the program must read it unconditionally.
// 5. Every sum keeps the order of the steps. A reduction whose value is one of the same kind is one
//    reduction over both loops, if the bounds of the inner one do not depend on the outer one. The
//    loop along which most operands are contiguous counts fastest; the order is unspecified.
#include "ir/passes/products_inner.h"

enum { instructions_of_function = 16 };  // a mathematical one, roughly

int qn__product_name(const qn__product_t* product, const qn__ir_var_t* var) {
  for (uint32_t i = 0; i < product->name_count; ++i) {
    if (product->names[i].var == var) return (int)i;
  }
  return -1;
}

static bool add_name(qn__product_t* product, qn__ir_var_t* var, qn__ir_stmt_t* let, uint32_t mask) {
  // qn__product_replace adds a name for the reduction and one for each operand.
  if (product->name_count + qn__product_max_operands + 1 >= qn__product_max_names) return false;
  assert(qn__product_name(product, var) < 0);
  product->names[product->name_count++] =
      (qn__product_name_t){.var = var, .let = let, .mask = mask};
  return true;
}

typedef struct closure {
  const qn__product_t* product;
  bool* is_needed;
} closure_t;

static bool need_slot(void* context, qn__ir_expr_t** slot) {
  closure_t* self = context;
  if ((*slot)->kind == QN__EXPR_VAR) {
    int name = qn__product_name(self->product, (*slot)->var);
    if (name >= 0) self->is_needed[name] = true;
  }
  return qn__expr_each_child(*slot, need_slot, self);
}

void qn__product_needs(const qn__product_t* product, qn__ir_expr_t* expr, bool* is_needed) {
  closure_t self = {product, is_needed};
  (void)need_slot(&self, &expr);
  for (uint32_t i = product->name_count; i-- > 0;) {
    qn__ir_stmt_t* let = product->names[i].let;
    if (is_needed[i] && let) (void)need_slot(&self, &let->let.value);
  }
}

// ---- the dependences of a value

typedef struct join {
  const qn__product_t* product;
  uint32_t mask;
} join_t;

static bool join_slot(void* context, qn__ir_expr_t** slot) {
  join_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) {
    int name = qn__product_name(self->product, expr->var);
    if (name >= 0) self->mask |= self->product->names[name].mask;
  }
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    // A nest declares no buffers. On a CPU, a local one belongs to the task around it.
    const qn__pass_builder_t* pb = self->product->pb;
    bool is_memory = root->scope == QN__SCOPE_PARAM || root->scope == QN__SCOPE_GLOBAL ||
                     root->scope == QN__SCOPE_CONST ||
                     (root->scope == QN__SCOPE_LOCAL && pb->options->has_blocks);
    bool is_read_only = is_memory && !pb->lanes.is_stored[root->id];
    self->mask |= is_read_only ? QN__PRODUCT_LOADS : QN__PRODUCT_FIXED;
  }
  if (expr->kind == QN__EXPR_REDUCE || qn__expr_is_exchange(expr)) self->mask |= QN__PRODUCT_FIXED;
  return qn__expr_each_child(*slot, join_slot, self);
}

uint32_t qn__product_mask_of(const qn__product_t* product, qn__ir_expr_t* expr) {
  join_t join = {product, 0};
  (void)join_slot(&join, &expr);
  return join.mask;
}

// ---- the one reduction

typedef struct find {
  uint32_t count;         // of reductions anywhere in the body
  bool is_lazy;           // where the walk is
  bool is_top;            // in a let or a store of the body itself
  qn__ir_expr_t** found;  // the first that every iteration computes, before those inside of it
} find_t;

static bool find_reduce(void* context, qn__ir_expr_t** slot) {
  find_t* self = context;
  if ((*slot)->kind == QN__EXPR_REDUCE) {
    ++self->count;
    if (self->is_top && !self->is_lazy && !self->found) self->found = slot;
  }
  return qn__expr_each_child_lazily(*slot, find_reduce, self, &self->is_lazy);
}

// Searches for reductions. Returns false if the block has a statement that no product may have.
static bool find_in_block(find_t* self, qn__ir_block_t* block, bool is_top) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__stmt_is_no_lane(stmt)) return false;
    self->is_top = is_top && stmt->kind != QN__STMT_IF;
    (void)qn__stmt_each_expr(stmt, find_reduce, self);
    QN__EACH_BLOCK(stmt, inner) {
      if (!find_in_block(self, inner, false)) return false;
    }
  }
  return true;
}

// ---- names

static bool add_lets(qn__product_t* product, const qn__ir_stmt_t* first, uint32_t mask) {
  for (const qn__ir_stmt_t* stmt = first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_LET) continue;
    qn__ir_stmt_t* let = (qn__ir_stmt_t*)(uintptr_t)stmt;
    if (!add_name(product, let->let.var, let, mask | qn__product_mask_of(product, let->let.value)))
      return false;
  }
  return true;
}

static bool add_names(qn__product_t* product) {
  qn__nest_t* nest = product->nest;
  for (uint32_t d = 0; d < nest->count; ++d) {
    if (!add_name(product, nest->loops[d]->loop.var, NULL, 1U << d)) return false;
  }
  // The reduction cannot use lets after it; those are only copied with the body.
  if (!add_lets(product, nest->lets.first, 0) || !add_lets(product, nest->body.first, 0))
    return false;
  for (uint32_t k = 0; k < product->step_count; ++k) {
    qn__product_step_t* step = &product->steps[k];
    step->name = product->name_count;
    if (!add_name(product, step->reduce->reduce.reduce_var, NULL, QN__PRODUCT_STEP)) return false;
    for (qn__ir_stmt_t* let = step->reduce->reduce.lets.first; let; let = let->next) {
      // The inner reduction of the chain.
      if (let->let.value->kind == QN__EXPR_REDUCE) continue;
      uint32_t mask = QN__PRODUCT_STEP | qn__product_mask_of(product, let->let.value);
      if (!add_name(product, let->let.var, let, mask)) return false;
    }
  }
  return true;
}

// ---- rows and columns

typedef struct loads {
  const qn__product_t* product;
  uint32_t first;   // loops of the first operand
  uint32_t second;  // loops of one that has others and misses some
} loads_t;

static bool add_load(void* context, qn__ir_expr_t** slot) {
  loads_t* self = context;
  if ((*slot)->kind == QN__EXPR_LOAD) {
    uint32_t mask = qn__product_mask_of(self->product, *slot);
    uint32_t dims = mask & QN__PRODUCT_DIMS;
    if ((mask & QN__PRODUCT_STEP) && dims) {
      if (!self->first) self->first = dims;
      if (!self->second && (dims & ~self->first) && (self->first & ~dims)) self->second = dims;
    }
  }
  return qn__expr_each_child(*slot, add_load, self);
}

static bool find_sides(qn__product_t* product) {
  loads_t loads = {product, 0, 0};
  for (uint32_t i = product->steps[0].name; i < product->name_count; ++i) {
    if (product->names[i].let) (void)add_load(&loads, &product->names[i].let->let.value);
  }
  (void)add_load(&loads, product->summand);
  if (!loads.second) return false;
  uint32_t a = loads.first & ~loads.second, b = loads.second & ~loads.first;
  assert(a && b && !(a & b));
  // Neighbouring threads are neighbours in a row of the result.
  uint32_t fastest = 1U << product->nest->order[product->nest->count - 1];
  if (!(fastest & (a | b))) return false;
  product->side_dims[QN__PRODUCT_ROW] = fastest & b ? a : b;
  product->side_dims[QN__PRODUCT_COLUMN] = fastest & b ? b : a;
  return true;
}

// ---- operands

typedef struct collect {
  qn__product_t* product;
  bool is_lazy;
} collect_t;

bool qn__product_note_operand(qn__product_t* product, qn__ir_expr_t** slot, qn__ir_expr_t* value,
                              qn__product_side_t side) {
  uint32_t operand = 0;
  while (operand < product->operand_count &&
         !qn__expr_equal(product->operands[operand].value, value)) {
    ++operand;
  }
  if (operand == qn__product_max_operands || product->slot_count == qn__product_max_slots)
    return false;
  if (operand == product->operand_count) {
    product->operands[product->operand_count++] =
        (qn__product_operand_t){.value = value, .side = side};
  }
  product->slots[product->slot_count++] = (qn__product_slot_t){slot, operand};
  return true;
}

// Returns false if an operand cannot be taken out of the summand.
static bool collect(void* context, qn__ir_expr_t** slot) {
  collect_t* self = context;
  qn__product_t* product = self->product;
  uint32_t mask = qn__product_mask_of(product, *slot);
  if (!(mask & QN__PRODUCT_LOADS)) return true;
  bool has_rows = mask & product->side_dims[QN__PRODUCT_ROW];
  bool has_columns = mask & product->side_dims[QN__PRODUCT_COLUMN];
  if (!has_rows && !has_columns) return true;  // the same for a whole block: stays in the summand
  if (has_rows && has_columns) {
    // A variable that depends on both sides must be a let of the reduction: its value is visited
    // too.
    bool is_outer = (*slot)->kind == QN__EXPR_VAR && !(mask & QN__PRODUCT_STEP);
    if ((*slot)->kind == QN__EXPR_LOAD || is_outer) return false;
    if (!self->is_lazy && qn__product_note_guarded(product, slot)) return true;
    return qn__expr_each_child_lazily(*slot, collect, self, &self->is_lazy);
  }
  return !self->is_lazy &&
         qn__product_note_operand(product, slot, *slot,
                                  has_rows ? QN__PRODUCT_ROW : QN__PRODUCT_COLUMN);
}

static bool find_operands(qn__product_t* product) {
  uint32_t both = qn__product_both(product);
  if (qn__product_mask_of(product, *product->summand) & QN__PRODUCT_FIXED) return false;
  for (uint32_t k = 0; k < product->step_count; ++k) {
    const qn__ir_expr_t* reduce = product->steps[k].reduce;
    uint32_t bounds = qn__product_mask_of(product, reduce->reduce.begin) |
                      qn__product_mask_of(product, reduce->reduce.end);
    if (bounds & (both | QN__PRODUCT_STEP | QN__PRODUCT_FIXED)) return false;
  }
  collect_t self = {product, false};
  for (uint32_t i = product->steps[0].name; i < product->name_count; ++i) {
    qn__ir_stmt_t* let = product->names[i].let;
    if (!let) continue;
    uint32_t mask = qn__product_mask_of(product, let->let.value);
    if (mask & QN__PRODUCT_FIXED) return false;
    // A let of a single side becomes a part of the operands that use it.
    bool is_mixed = (mask & product->side_dims[QN__PRODUCT_ROW]) != 0 &&
                    (mask & product->side_dims[QN__PRODUCT_COLUMN]) != 0;
    if (is_mixed && !collect(&self, &let->let.value)) return false;
  }
  if (!collect(&self, product->summand)) return false;
  bool has_side[qn__product_sides] = {false, false};
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    qn__product_operand_t* operand = &product->operands[o];
    qn__product_needs(product, operand->value, operand->is_needed);
    for (uint32_t i = 0; i < product->name_count; ++i) {
      if (operand->is_needed[i] && (product->names[i].mask & QN__PRODUCT_FIXED)) return false;
    }
    has_side[operand->side] |=
        (qn__product_mask_of(product, operand->value) & QN__PRODUCT_STEP) != 0;
  }
  return has_side[QN__PRODUCT_ROW] && has_side[QN__PRODUCT_COLUMN];
}

// ---- all

// Returns the reduction that is the value of `reduce`: written there, or as a let of that value.
static qn__ir_expr_t* inner_of(const qn__ir_expr_t* reduce) {
  const qn__ir_expr_t* value = reduce->reduce.value;
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    if (value->kind == QN__EXPR_VAR && value->var == let->let.var) value = let->let.value;
  }
  bool is_same = value->kind == QN__EXPR_REDUCE && value->dtype == reduce->dtype &&
                 value->reduce.reduce_kind == reduce->reduce.reduce_kind;
  return is_same ? (qn__ir_expr_t*)(uintptr_t)value : NULL;
}

// Finds the loops of the reduction. Returns false if there are other reductions among `count`.
static bool find_steps(qn__product_t* product, uint32_t count) {
  for (qn__ir_expr_t* reduce = product->reduce; reduce; reduce = inner_of(reduce)) {
    if (product->step_count == qn__product_max_steps) return false;
    product->steps[product->step_count++].reduce = reduce;
    product->summand = &reduce->reduce.value;
  }
  return product->step_count == count;
}

bool qn__product_find(qn__pass_builder_t* pb, qn__nest_t* nest, qn__product_t* out) {
  find_t find = {0};
  if (nest->count < 2 || !find_in_block(&find, &nest->body, true) || !find.found) return false;
  *out = (qn__product_t){.pb = pb, .nest = nest, .slot = find.found, .reduce = *find.found};
  if (!find_steps(out, find.count)) return false;
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes) return false;
  qn__lanes_enter(lanes, nest->loops[0]->loop.var, &nest->body);  // finds what is stored
  if (!add_names(out) || !find_sides(out) || !find_operands(out)) return false;
  assert(out->operand_count >= 2 && out->slot_count >= out->operand_count);
  if (out->step_count > 1) qn__product_order_steps(out);
  for (uint32_t o = 0; o < out->operand_count; ++o)
    qn__product_find_direction(out, &out->operands[o]);
  return !qn__pb_stopped(pb);
}

qn__ir_expr_t* qn__product_extent(const qn__product_t* product, uint32_t dims) {
  qn__pass_builder_t* pb = product->pb;
  qn__ir_expr_t* all = qn__pb_int(pb, 1);
  for (uint32_t d = 0; d < product->nest->count; ++d) {
    if (!(dims >> d & 1)) continue;
    all = qn__pb_op(pb, QN_OP_MUL, all, qn__pb_extent(pb, product->nest->loops[d]));
  }
  return all;
}

int64_t qn__product_trips(const qn__product_t* product, uint32_t dims) {
  int64_t extent;
  const qn__ir_expr_t* all = qn__product_extent(product, dims);
  return all && qn__expr_const_int(all, &extent) ? extent : -1;
}

int64_t qn__product_steps(const qn__product_t* product) {
  int64_t all = 1;
  for (uint32_t k = 0; k < product->step_count; ++k) {
    const qn__ir_expr_t* reduce = product->steps[k].reduce;
    int64_t trips = qn__const_trips(reduce->reduce.begin, reduce->reduce.end);
    if (trips < 0 || __builtin_mul_overflow(all, trips, &all)) return -1;
  }
  return all;
}

qn__ir_expr_t* qn__product_common_steps(const qn__product_t* product) {
  const qn__ir_expr_t* reduce = product->steps[0].reduce;
  qn__ir_expr_t* bounds[] = {reduce->reduce.begin, reduce->reduce.end};
  bool is_needed[qn__product_max_names] = {false};
  assert(product->step_count == 1);
  for (size_t i = 0; i < QN_COUNT_OF(bounds); ++i) {
    if (!qn__pb_is_pure(product->pb, bounds[i])) return NULL;
    qn__product_needs(product, bounds[i], is_needed);
  }
  for (uint32_t i = 0; i < product->name_count; ++i) {
    if (is_needed[i]) return NULL;
  }
  return qn__pb_range(product->pb, bounds[0], bounds[1]);
}

typedef struct summand {
  const qn__product_t* product;
  int64_t size;
} summand_t;

static bool add_size(void* context, qn__ir_expr_t** slot) {
  summand_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  for (uint32_t s = 0; s < self->product->slot_count; ++s) {
    if (self->product->slots[s].slot == slot) return true;
  }
  if (expr->kind == QN__EXPR_OP) {
    qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
    bool is_function = rule == QN__RULE_FLOAT || rule == QN__RULE_SCALE;
    self->size += is_function ? instructions_of_function : 1;
  }
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_CAST || expr->kind == QN__EXPR_COND) {
    ++self->size;
  }
  return qn__expr_each_child(*slot, add_size, self);
}

int64_t qn__product_summand_size(const qn__product_t* product) {
  summand_t self = {product, 0};
  uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
  uint32_t columns = product->side_dims[QN__PRODUCT_COLUMN];
  (void)add_size(&self, product->summand);
  for (uint32_t i = 0; i < product->name_count; ++i) {
    const qn__product_name_t* name = &product->names[i];
    bool is_each = name->let && (name->mask & rows) && (name->mask & columns);
    if (is_each && !(name->mask & QN__PRODUCT_FIXED)) (void)add_size(&self, &name->let->let.value);
  }
  return self.size;
}

bool qn__product_replace(qn__product_t* product) {
  qn__pass_builder_t* pb = product->pb;
  assert(product->name_count + product->operand_count < qn__product_max_names);  // add_name
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    qn__product_operand_t* operand = &product->operands[o];
    const char* name = operand->side == QN__PRODUCT_ROW ? "a" : "b";
    qn__ir_var_t* var = qn__pb_var(pb, QN__VAR_LET, operand->value->dtype, name);
    operand->name = product->name_count;
    if (!var) return false;
    product->names[product->name_count++] = (qn__product_name_t){.var = var};
  }
  for (uint32_t s = 0; s < product->slot_count; ++s) {
    assert(product->slots[s].operand < product->operand_count);
    qn__product_operand_t* operand = &product->operands[product->slots[s].operand];
    qn__ir_expr_t* use = qn__pb_use(pb, product->names[operand->name].var);
    if (!use) return false;
    *product->slots[s].slot = use;
  }
  assert(*product->slot == product->reduce);
  qn__product_needs(product, *product->summand, product->is_needed);
  qn__ir_var_t* total = qn__pb_var(pb, QN__VAR_LET, product->reduce->dtype, "total");
  qn__ir_expr_t* use = qn__pb_use(pb, total);
  if (!use) return false;
  product->names[product->name_count++] = (qn__product_name_t){.var = total};
  *product->slot = use;
  qn__block_serialize(&product->nest->body);
  return true;
}
