// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/once.c: the pass `once` computes a costly part of a reduction and of a later loop
// once.
//
//   let total = sum j in 0..m { exp(x[i, j] - top) };
//   for j in 0..m { y[i, j] = exp(x[i, j] - top) / total; }
//
// becomes, as softmax has it:
//
//   alloc sum: f32[1] in local;
//   sum[0] = 0.0;
//   for chunk in 0..ceildiv(m, 2048) {
//     let first = chunk * 2048;
//     let limit = min(first + 2048, m);
//     for j in first..limit { y[i, j] = exp(x[i, j] - top); }
//     sum[0] = sum[0] + (sum j in first..limit { y[i, j] });
//   }
//   let total = sum[0];
//   for j in 0..m { y[i, j] = y[i, j] / total; }
//
// 1. The loop's own result holds the part. It is an `out` buffer that the function does not load
//    from, and the loop stores to one element of it in each iteration, always, along its lines.
// 2. The part loads only from memory that no statement writes. Only lets are between the two.
// 3. A chunk stays in the first cache, so that no more bytes come from memory than before.
//
// Postcondition: no reduction changed but those.
#include "ir/passes/cost.h"
#include "ir/passes/products_write.h"

enum {
  chunk_elements = 2048,
  min_cost = 10,  // in simple instructions: a store and a load cost less
};

typedef struct once {
  qn__pass_builder_t* pb;
  bool* is_loaded;             // by buffer id of the root: the function loads from it
  qn__ir_stmt_t* let;          // of the reduction
  qn__ir_stmt_t* loop;         // the later one
  const qn__ir_stmt_t* store;  // of the loop
  const qn__ir_expr_t* part;   // of the reduction, with its variable
  qn__ir_expr_t* pattern;      // `part` with the variable of the code that is visited
  qn__ir_var_t* var;           // that variable
  bool is_written;             // the visit replaces what is equal to `pattern`
  uint32_t count;              // of what is equal to it
} once_t;

static qn__ir_expr_t* reduce_of(const once_t* self) {
  return self->let->let.value;
}

// ---- which loops

static bool is_steady(void* self, const qn__ir_ref_t* ref) {
  (void)self;
  return qn__buf_is_constant(qn__buf_root(*ref->buffer));
}

static bool note_load(void* is_loaded, const qn__ir_ref_t* ref) {
  if (ref->kind != QN__REF_STORE) ((bool*)is_loaded)[qn__buf_root(*ref->buffer)->id] = true;
  return true;
}

// Returns true if the loop's iterations each store along a line of a buffer that is nothing but a
// result. Sets `store`.
static bool has_place(once_t* self) {
  const qn__ir_stmt_t* loop = self->loop;
  self->store = NULL;
  for (const qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET) continue;
    if (stmt->kind != QN__STMT_STORE || self->store) return false;
    self->store = stmt;
  }
  if (!self->store || self->store->next) return false;
  const qn__ir_buffer_t* buffer = self->store->store.buffer;
  return buffer->scope == QN__SCOPE_PARAM && buffer->access == QN_ACCESS_OUT &&
         !self->is_loaded[buffer->id] && buffer->dtype == reduce_of(self)->dtype &&
         qn__store_is_along(loop, self->store);
}

// ---- the part

static qn__ir_expr_t* load_place(const once_t* self, qn__ir_var_t* var) {
  qn__pass_builder_t* pb = self->pb;
  const qn__ir_buffer_t* buffer = self->store->store.buffer;
  qn__ir_expr_t* load = qn__expr_new(pb->arena, QN__EXPR_LOAD, buffer->dtype, self->store->loc);
  qn__ir_expr_t** indices = qn__arena_alloc_array(pb->arena, buffer->rank, sizeof *indices);
  if (!load || !indices) return NULL;
  for (uint32_t d = 0; d + 1 < buffer->rank; ++d) {
    indices[d] = qn__pb_copy(pb, self->store->store.indices[d]);
  }
  indices[buffer->rank - 1] = qn__pb_use(pb, var);
  load->load.buffer = self->store->store.buffer;
  load->load.indices = indices;
  return load;
}

static bool visit_use(void* context, qn__ir_expr_t** slot) {
  once_t* self = context;
  if (!qn__expr_equal(*slot, self->pattern)) return qn__expr_each_child(*slot, visit_use, self);
  ++self->count;
  if (self->is_written) *slot = load_place(self, self->var);
  return *slot != NULL;
}

// Looks for the part with the variable `var` from here on.
static bool set_pattern(once_t* self, qn__ir_var_t* var) {
  qn__pass_builder_t* pb = self->pb;
  self->var = var;
  self->pattern = qn__expr_replace(pb->arena, self->part, reduce_of(self)->reduce.reduce_var,
                                   qn__pb_use(pb, var));
  return self->pattern != NULL;
}

// Stops at the largest part that the loop computes, too: the outermost one.
static bool find_part(void* context, qn__ir_expr_t** slot) {
  once_t* self = context;
  qn__ir_expr_t* expr = *slot;
  const qn__cost_model_t scalar = {.options = self->pb->options};
  qn__ir_expr_facts_t facts = qn__expr_facts(expr);
  if (facts.has_reduce || expr->kind == QN__EXPR_LOAD ||
      qn__cost_expr(&scalar, expr) < (double)min_cost) {
    return true;
  }
  if (expr->dtype == reduce_of(self)->dtype && facts.has_load && !facts.has_cross_lane &&
      qn__expr_each_ref(expr, is_steady, NULL)) {
    self->part = expr;
    self->count = 0;
    if (!set_pattern(self, self->loop->loop.var)) return false;
    (void)qn__block_each_expr(&self->loop->loop.body, visit_use, self);
    if (self->count > 0) return false;
    self->part = NULL;
  }
  if (qn__expr_is_lazy(expr)) return find_part(self, &expr->args[0]);
  return qn__expr_each_child(expr, find_part, self);
}

// ---- writing

// Appends the loop that stores the part for `begin..end`, and then adds the reduction of these to
// `sum`.
static void write_chunk(once_t* self, qn__ir_block_t* out, qn__ir_buffer_t* sum,
                        qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* reduce = reduce_of(self);
  qn__ir_var_t* var = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, reduce->reduce.reduce_var->name);
  qn__ir_stmt_t* loop =
      qn__pb_loop(pb, QN_LOOP_SERIAL, var, qn__pb_copy(pb, begin), qn__pb_copy(pb, end));
  qn__ir_stmt_t* store = qn__stmt_new(pb->arena, QN__STMT_STORE, self->store->loc);
  if (!loop || !store || !set_pattern(self, var)) return;
  const qn__ir_expr_t* place = load_place(self, var);
  if (!place) return;
  loop->loop.is_independent = true;
  store->store.buffer = self->store->store.buffer;
  store->store.indices = place->load.indices;
  store->store.value = self->pattern;
  qn__block_append(&loop->loop.body, store);
  qn__block_append(out, loop);
  qn__ir_expr_t* own = qn__pb_copy(pb, reduce);
  if (!own) return;
  self->is_written = true;
  self->var = own->reduce.reduce_var;
  self->pattern = qn__expr_replace(pb->arena, self->part, reduce->reduce.reduce_var,
                                   qn__pb_use(pb, own->reduce.reduce_var));
  if (!self->pattern || !visit_use(self, &own->reduce.value)) return;
  own->reduce.begin = begin;
  own->reduce.end = end;
  qn__ir_expr_t* all = qn__pb_op(pb, qn__reduce_op(reduce->reduce.reduce_kind),
                                 qn__pb_load(pb, sum, qn__pb_int(pb, 0), NULL), own);
  qn__pb_append(out, qn__pb_store(pb, sum, qn__pb_int(pb, 0), NULL, all));
}

// Appends the code that replaces the reduction.
static void write(once_t* self, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* reduce = reduce_of(self);
  qn__ir_buffer_t* sum = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, reduce->dtype, "sum", 1, -1);
  qn__ir_expr_t* neutral = qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype);
  qn__ir_expr_t* extent = qn__pb_range(pb, reduce->reduce.begin, reduce->reduce.end);
  qn__ir_stmt_t* chunk = qn__pb_count_loop(
      pb, QN_LOOP_SERIAL, "chunk", qn__pb_op_int(pb, QN_OP_CEILDIV, extent, chunk_elements));
  if (!sum || !chunk || !neutral) return;
  qn__pb_append(out, qn__pb_store(pb, sum, qn__pb_int(pb, 0), NULL, neutral));
  qn__ir_expr_t* shift =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, chunk->loop.var), chunk_elements);
  qn__ir_block_t* body = &chunk->loop.body;
  qn__ir_expr_t* first = qn__pb_named(
      pb, body, "first", qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, reduce->reduce.begin), shift));
  qn__ir_expr_t* limit = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, first), chunk_elements);
  limit = qn__pb_named(pb, body, "limit",
                       qn__pb_op(pb, QN_OP_MIN, limit, qn__pb_copy(pb, reduce->reduce.end)));
  if (!first || !limit) return;
  write_chunk(self, body, sum, first, limit);
  qn__block_append(out, chunk);
  self->is_written = true;
  if (qn__pb_stopped(pb) || !set_pattern(self, self->loop->loop.var) ||
      !qn__block_each_expr(&self->loop->loop.body, visit_use, self)) {
    return;
  }
  self->let->let.value = qn__pb_load(pb, sum, qn__pb_int(pb, 0), NULL);
  self->is_loaded[self->store->store.buffer->id] = true;  // another reduction must not use it, too
}

// Appends the code that replaces the reduction of `let`, which is in no list, if a loop of `rest`
// computes a part of it.
static void try_let(qn__pass_builder_t* pb, bool* is_loaded, qn__ir_stmt_t* let,
                    qn__ir_stmt_t* rest, qn__ir_block_t* out) {
  once_t self = {.pb = pb, .is_loaded = is_loaded, .let = let};
  qn__ir_expr_t* reduce = let->let.value;
  if (reduce->kind != QN__EXPR_REDUCE || reduce->reduce.lets.first) return;
  while (rest && rest->kind == QN__STMT_LET) rest = rest->next;
  if (!rest || !qn__is_independent_loop(rest) || rest->loop.kind == QN_LOOP_VECTOR ||
      !qn__expr_equal(rest->loop.begin, reduce->reduce.begin) ||
      !qn__expr_equal(rest->loop.end, reduce->reduce.end) ||
      !qn__pb_is_pure(pb, reduce->reduce.begin) || !qn__pb_is_pure(pb, reduce->reduce.end)) {
    return;
  }
  self.loop = rest;
  if (!has_place(&self)) return;
  (void)find_part(&self, &reduce->reduce.value);
  if (self.part && self.count > 0) write(&self, out);
}

static void visit(qn__pass_builder_t* pb, bool* is_loaded, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(pb);) {
    QN__EACH_BLOCK(stmt, inner) visit(pb, is_loaded, inner);
    if (stmt->kind == QN__STMT_LET) try_let(pb, is_loaded, stmt, rest.first, block);
    qn__block_append(block, stmt);
  }
}

static void run(qn__pass_builder_t* pb) {
  qn__ir_block_t* body = &pb->function->body;
  bool* is_loaded = qn__arena_alloc_array(pb->arena, pb->buffer_count + 1U, sizeof *is_loaded);
  if (!is_loaded || !qn__block_each_ref(body, note_load, is_loaded)) return;
  visit(pb, is_loaded, body);
}

const qn__pass_t qn__pass_once = {
    .name = "once",
    .doc = "computes once what a reduction and a later loop share",
    .run = run,
    .post = "no reduction changed but those that share a part with a later loop",
};
