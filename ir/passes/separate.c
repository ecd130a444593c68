// SPDX-License-Identifier: Apache-2.0
// ir/passes/separate.c: the pass `separate` gives each product of a nest a nest of its own.
//
//   parallel i, j { let g = sum p { a[i, p] * w[j, p] };
//                   c[i, j] = f(g, sum p { a[i, p] * v[j, p] }); }   becomes
//
//   alloc product: f32[n, m] in global;
//   parallel i, j { product[i, j] = sum p { a[i, p] * w[j, p] }; }
//   parallel i, j { let g = product[i, j]; c[i, j] = f(g, sum p { a[i, p] * v[j, p] }); }
//
// Blocks and tiles compute nests of one reduction (products.h). Gates of a network and norms beside
// a product have several. What a product costs grows with the length of its sums, and its detour
// through memory does not.
//
// 1. Only nests that are launches of their own, whose extents are symbols, scalars and literals.
// 2. A product moves to the front if neither its operands nor what they need depend on another
//    reduction or on memory that the nest writes.
// 3. The last reduction stays in the nest, with all that uses the results.
//
// Postcondition: no loop changed but those.
#include "ir/passes/products.h"

enum {
  max_reductions = 8,  // of a nest; others stay
  max_lets = 32,       // of a body, before a product
  min_results = 256,   // fewer are not worth a launch
};

typedef struct reductions {
  qn__ir_expr_t** slots[max_reductions];  // of reductions that every iteration computes
  qn__ir_stmt_t* stmts[max_reductions];   // where they are
  uint32_t count;
  qn__ir_stmt_t* stmt;  // where the walk is
  bool is_lazy;
} reductions_t;

static bool find_slot(void* context, qn__ir_expr_t** slot) {
  reductions_t* self = context;
  if ((*slot)->kind != QN__EXPR_REDUCE) {
    return qn__expr_each_child_lazily(*slot, find_slot, self, &self->is_lazy);
  }
  if (!self->is_lazy && self->count < max_reductions) {
    self->slots[self->count] = slot;
    self->stmts[self->count++] = self->stmt;
  }
  return true;
}

// Finds the reductions of lets and stores. Returns false if the block has a statement that no
// product may have.
static bool find_reductions(qn__ir_block_t* block, reductions_t* out) {
  *out = (reductions_t){.count = 0};
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__stmt_is_no_lane(stmt)) return false;
    out->stmt = stmt;
    if (stmt->kind != QN__STMT_IF) (void)qn__stmt_each_expr(stmt, find_slot, out);
  }
  return true;
}

static bool is_of_call(void* context, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR && expr->var->kind != QN__VAR_SYMBOL &&
      expr->var->kind != QN__VAR_SCALAR) {
    return false;
  }
  return qn__expr_each_child(*slot, is_of_call, context);
}

// Returns true if all extents are known at the start of the call, and there may be enough results.
static bool has_known_shape(const qn__pass_builder_t* pb, const qn__nest_t* nest) {
  int64_t trips = qn__nest_trips(nest);
  if (nest->count < 2 || (trips >= 0 && trips < min_results)) return false;
  for (uint32_t d = 0; d < nest->count; ++d) {
    qn__ir_stmt_t* loop = nest->loops[d];
    if (!is_of_call(NULL, &loop->loop.begin) || !is_of_call(NULL, &loop->loop.end) ||
        !qn__pb_is_pure(pb, loop->loop.begin) || !qn__pb_is_pure(pb, loop->loop.end)) {
      return false;
    }
  }
  return true;
}

// The results of a product: an element for each iteration of the nest.
typedef struct results {
  qn__ir_buffer_t* buffer;
  uint32_t order[qn__max_nest];  // of the nest: dimension d is loop order[d]
} results_t;

static bool alloc_results(qn__pass_builder_t* pb, const qn__nest_t* nest, qn_dtype_t dtype,
                          results_t* results) {
  qn__ir_buffer_t* buffer = qn__buf_new(pb->arena, QN__SCOPE_GLOBAL, dtype, "product", nest->count);
  qn__ir_stmt_t* alloc = qn__stmt_new(pb->arena, QN__STMT_ALLOC, (qn__ir_loc_t){0, 0});
  if (!buffer || !alloc) return false;
  buffer->id = pb->buffer_count++;
  for (uint32_t d = 0; d < nest->count; ++d) {
    buffer->shape[d] = qn__pb_extent(pb, nest->loops[results->order[d]]);
    if (!buffer->shape[d]) return false;
  }
  alloc->alloc.buffer = buffer;
  qn__block_append(&pb->globals, alloc);
  results->buffer = buffer;
  return true;
}

// Returns the indices of the element of the nest's iteration.
static qn__ir_expr_t** place_of(qn__pass_builder_t* pb, const qn__nest_t* nest,
                                const results_t* results) {
  qn__ir_expr_t** indices = qn__arena_alloc_array(pb->arena, nest->count, sizeof(qn__ir_expr_t*));
  for (uint32_t d = 0; indices && d < nest->count; ++d) {
    const qn__ir_stmt_t* loop = nest->loops[results->order[d]];
    indices[d] =
        qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, loop->loop.var), qn__pb_copy(pb, loop->loop.begin));
  }
  return qn__pb_stopped(pb) ? NULL : indices;
}

static bool is_written(void* is_stored, const qn__ir_ref_t* ref) {
  return !((const bool*)is_stored)[qn__buf_root(*ref->buffer)->id];
}

// Leaves in the open nest, a copy, what reduction `index` needs. Returns it, or NULL if that is
// another reduction, or memory that the nest writes.
static qn__ir_expr_t* isolate(qn__pass_builder_t* pb, qn__nest_t* nest, uint32_t index) {
  reductions_t found;
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes || !find_reductions(&nest->body, &found)) return NULL;
  qn__lanes_enter(lanes, nest->loops[0]->loop.var, &nest->body);
  qn__ir_expr_t* reduce = *found.slots[index];
  qn__ir_stmt_t* lets[max_lets];
  uint32_t count = 0;
  qn__ir_stmt_t* stmt;
  while ((stmt = qn__block_pop(&nest->body)) != found.stmts[index]) {
    if (stmt->kind != QN__STMT_LET) continue;
    if (count == max_lets) return NULL;
    lets[count++] = stmt;
  }
  nest->body = (qn__ir_block_t){NULL, NULL};
  if (!qn__expr_each_ref(reduce, is_written, lanes->is_stored)) return NULL;
  for (uint32_t i = count; i-- > 0;) {
    qn__ir_stmt_t* let = lets[i];
    bool is_needed = qn__expr_uses_var(reduce, let->let.var);
    for (uint32_t k = i + 1; k < count && !is_needed; ++k) {
      is_needed = lets[k] && qn__expr_uses_var(lets[k]->let.value, let->let.var);
    }
    if (!is_needed) {
      lets[i] = NULL;
    } else if (qn__expr_facts(let->let.value).has_reduce ||
               !qn__expr_each_ref(let->let.value, is_written, lanes->is_stored)) {
      return NULL;
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (lets[i]) qn__block_append(&nest->body, lets[i]);
  }
  return reduce;
}

// Makes the open nest, a copy, compute the results of reduction `index` alone. Returns false if
// that is no product.
static bool keep_product(qn__pass_builder_t* pb, qn__nest_t* nest, uint32_t index,
                         results_t* results) {
  qn__product_t* product = QN__ARENA_NEW(pb->arena, qn__product_t);
  qn__ir_expr_t* reduce = isolate(pb, nest, index);
  if (!product || !reduce) return false;
  qn__ir_stmt_t* last = nest->body.last;
  if (!qn__pb_let(pb, &nest->body, "result", reduce) || !qn__product_find(pb, nest, product) ||
      !alloc_results(pb, nest, reduce->dtype, results)) {
    return false;
  }
  qn__ir_stmt_t* store = qn__stmt_new(pb->arena, QN__STMT_STORE, reduce->loc);
  if (!store) return false;
  store->store.buffer = results->buffer;
  store->store.value = reduce;
  store->store.indices = place_of(pb, nest, results);
  // The store takes the place of the let.
  nest->body.last = last;
  *(last ? &last->next : &nest->body.first) = NULL;
  qn__block_append(&nest->body, store);
  return !qn__pb_stopped(pb);
}

// Appends to `out` nests of the products of the nest at `loop` that can be computed before it.
static void separate(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__ir_block_t* out) {
  const qn__ir_block_t alone = {loop, loop};
  results_t results;
  for (uint32_t index = 0; !qn__pb_stopped(pb);) {
    qn__nest_t nest;
    reductions_t found;
    qn__nest_open(pb, loop, &nest);
    memcpy(results.order, nest.order, sizeof nest.order);
    bool has_more = has_known_shape(pb, &nest) && find_reductions(&nest.body, &found) &&
                    found.count > 1 && index < found.count;
    qn__nest_close(&nest);
    qn__ir_block_t copy = {NULL, NULL};
    qn__ir_subst_t subst = {.arena = pb->arena};
    if (!has_more || !qn__block_clone(&subst, &alone, &copy)) return;
    qn__nest_t first;
    qn__nest_open(pb, copy.first, &first);
    if (!keep_product(pb, &first, index, &results)) {
      ++index;
      continue;
    }
    qn__nest_close(&first);
    qn__block_append(out, copy.first);
    qn__nest_open(pb, loop, &nest);
    qn__ir_expr_t* load =
        qn__expr_new(pb->arena, QN__EXPR_LOAD, results.buffer->dtype, (*found.slots[index])->loc);
    if (!load) return;
    load->load.buffer = results.buffer;
    load->load.indices = place_of(pb, &nest, &results);
    *found.slots[index] = load;
    qn__nest_close(&nest);
  }
}

static void visit(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  qn__ir_stmt_t* stmt;
  while ((stmt = qn__block_pop(&rest)) != NULL) {
    if (qn__is_independent_loop(stmt)) {
      separate(pb, stmt, block);
    } else if (stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_SERIAL) {
      visit(pb, &stmt->loop.body);
    }
    qn__block_append(block, stmt);
  }
}

static void run(qn__pass_builder_t* pb) {
  if (!pb->options->is_checked) visit(pb, &pb->function->body);  // errors name the access
}

const qn__pass_t qn__pass_separate = {
    .name = "separate",
    .doc = "gives each product of a nest a nest of its own",
    .run = run,
    .post = "only nests of several reductions changed; each that can move has a nest of its own",
};
