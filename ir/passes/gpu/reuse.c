// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/reuse.c: the pass `reuse` keeps rows that are read or computed again in registers.
//
// Softmax reads each row three times:
//   let top = max c in 0..n { x[c] };
//   let sum = sum c in 0..n { exp(x[c] - top) };
//   for c in 0..n { y[c] = exp(x[c] - top) / sum; }
// becomes
//   for c in 0..n { row[c] = x[c]; }
//   let top = max c in 0..n { row[c] };
//   for c in 0..n { row_1[c] = exp(row[c] - top); }
//   let sum = sum c in 0..n { row_1[c] };
//   for c in 0..n { y[c] = row_1[c] / sum; }
//
// The pass caches the largest common subexpression of read-only loads: the largest part of a
// summand that later reductions or loops over the same range compute too. `row` is written as a
// shared buffer. Each thread always has the same elements of a row, so `cooperative` replaces the
// buffer by a local array in each thread, which needs no barrier. Unrolled loops hold it in
// registers.
//
// 1. A thread holds 16 elements of each row. If the row length is known only at the call, the pass
//    writes both forms and selects by a condition such as `n & 3 == 0 && n <= 4096`.
// 2. Floats are summed in the same order with and without the cache. A sum of floats that would get
//    another number of lanes stays unchanged, and so do loops without a common part.
// 3. The pass changes only launches of blocks, since the rows of warps are short. It runs only for
//    targets with wide accesses, since the others gain little.
//
// Postcondition: a buffer with `row_lanes` is accessed only in cooperative loops and reductions, at
// the index that is their variable.
#include "ir/passes/gpu/launch.h"
#include "ir/passes/gpu/wide.h"

enum {
  elements_per_thread = 16,  // of each row
  max_rows = 2,
};

typedef struct reuse {
  qn__pass_builder_t* pb;
  const qn__ir_expr_t* end;  // a row has the elements 0..end
  int64_t threads;
  int64_t lanes;   // adjacent elements of a thread in each round; 0: no row was found
  int64_t rounds;  // of the longest row
  const qn__ir_buffer_t* rows[max_rows];
  uint32_t row_count;
  qn__ir_block_t* block;
  qn__ir_stmt_t* stmt;      // contains the reduction
  qn__ir_expr_t* reduce;    // the reduction
  qn__ir_stmt_t* previous;  // the statement before `stmt`
} reuse_t;

// ---- the range

static bool is_row(const reuse_t* self, const qn__ir_expr_t* begin, const qn__ir_expr_t* end) {
  return self->lanes > 0 && qn__expr_is_int(begin, 0) && qn__expr_equal(end, self->end);
}

// Returns true if the order of the reduction changes its value.
static bool is_float_sum(const qn__ir_expr_t* reduce) {
  return reduce->reduce.reduce_kind == QN_REDUCE_SUM && qn__dtype_is_float(reduce->dtype);
}

static bool is_row_loop(const reuse_t* self, qn__ir_stmt_t* stmt) {
  return qn__is_cooperative_loop(stmt) && is_row(self, stmt->loop.begin, stmt->loop.end) &&
         !qn__block_any(&stmt->loop.body, qn__stmt_is_no_lane);
}

static int64_t lanes_of(const reuse_t* self, qn__ir_expr_t* reduce) {
  const qn__ir_expr_t* threads = qn__pb_int(self->pb, self->threads);
  return threads ? qn__wide_reduce_lanes(self->pb, reduce, threads) : 1;
}

// Takes the range of rows from the first cooperative reduction in lanes, and the lanes from the
// first sum of floats over that range.
static bool find_row(void* context, qn__ir_expr_t** slot) {
  reuse_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (!qn__is_cooperative_reduce(expr)) return qn__expr_each_child(expr, find_row, self);
  if (self->lanes > 0 &&
      (!is_float_sum(expr) || !is_row(self, expr->reduce.begin, expr->reduce.end))) {
    return true;
  }
  qn__pass_builder_t* pb = self->pb;
  if (!qn__expr_is_int(expr->reduce.begin, 0) || !qn__pb_is_pure(pb, expr->reduce.end)) return true;
  for (qn__ir_stmt_t* stmt = self->block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET && qn__expr_uses_var(expr->reduce.end, stmt->let.var)) {
      return true;
    }
  }
  int64_t lanes = lanes_of(self, expr);
  if (lanes <= 1) return true;
  int64_t length, rounds = elements_per_thread / lanes;
  if (qn__expr_const_int(expr->reduce.end, &length)) {
    if (length <= 0 || length > elements_per_thread * self->threads || length % lanes != 0) {
      return true;
    }
    rounds = (length + lanes * self->threads - 1) / (lanes * self->threads);
  }
  assert(rounds > 0 && rounds * lanes <= elements_per_thread);
  self->end = expr->reduce.end;
  self->lanes = lanes;
  self->rounds = rounds;
  return !is_float_sum(expr);
}

static bool is_simple(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_STORE || stmt->kind == QN__STMT_LOOP;
}

// ---- candidates

static bool is_cached(const reuse_t* self, const qn__ir_buffer_t* buffer) {
  for (uint32_t i = 0; i < self->row_count; ++i) {
    if (self->rows[i] == buffer) return true;
  }
  return false;
}

// Returns false for a reference to a row.
static bool avoids_rows(void* self, const qn__ir_ref_t* ref) {
  return !is_cached(self, *ref->buffer);
}

// Returns true if this cooperative reduction may use the row's lanes.
static bool can_take(reuse_t* self, qn__ir_expr_t* reduce) {
  if (!is_row(self, reduce->reduce.begin, reduce->reduce.end)) return false;
  return !is_float_sum(reduce) || !qn__expr_each_ref(reduce, avoids_rows, self) ||
         lanes_of(self, reduce) == self->lanes;
}

// Returns false for a load from memory that may change, other than a row.
static bool is_steady(void* self, const qn__ir_ref_t* ref) {
  const qn__ir_buffer_t* root = qn__buf_root(*ref->buffer);
  return qn__buf_is_constant(root) || is_cached(self, root);
}

static bool can_cache(reuse_t* self, qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_LOAD && is_cached(self, expr->load.buffer)) return false;
  if (expr->dtype == QN_DTYPE_BOOL || expr->dtype == QN_DTYPE_I64) return false;
  qn__ir_expr_facts_t facts = qn__expr_facts(expr);
  return facts.has_load && !facts.has_reduce && !facts.has_cross_lane &&
         qn__expr_uses_var(expr, self->reduce->reduce.reduce_var) &&
         qn__expr_each_ref(expr, is_steady, self);
}

// Searches later reductions and loops for a part of one summand, with their variable in place of
// the reduction's.
typedef struct other {
  reuse_t* reuse;
  const qn__ir_expr_t* part;
  qn__ir_expr_t* pattern;  // `part` with `var`
  qn__ir_var_t* var;
  qn__ir_buffer_t* buffer;  // replaces the occurrences; NULL: only counts them
  uint32_t count;
} other_t;

static bool visit_use(void* context, qn__ir_expr_t** slot) {
  other_t* self = context;
  if (!qn__expr_equal(*slot, self->pattern)) return qn__expr_each_child(*slot, visit_use, self);
  ++self->count;
  if (!self->buffer) return true;
  qn__ir_expr_t* load =
      qn__pb_load(self->reuse->pb, self->buffer, qn__pb_use(self->reuse->pb, self->var), NULL);
  if (load) *slot = load;
  return load != NULL;
}

static bool set_pattern(other_t* self, qn__ir_var_t* var) {
  qn__pass_builder_t* pb = self->reuse->pb;
  qn__ir_expr_t* use = qn__pb_use(pb, var);
  self->var = var;
  self->pattern =
      use ? qn__expr_replace(pb->arena, self->part, self->reuse->reduce->reduce.reduce_var, use)
          : NULL;
  return self->pattern != NULL;
}

static bool visit_reduces(void* context, qn__ir_expr_t** slot) {
  other_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (!qn__is_cooperative_reduce(expr)) return qn__expr_each_child(expr, visit_reduces, self);
  if (!can_take(self->reuse, expr)) return true;
  if (!set_pattern(self, expr->reduce.reduce_var)) return false;
  return qn__block_each_expr(&expr->reduce.lets, visit_use, self) &&
         visit_use(self, &expr->reduce.value);
}

static bool visit_stmts(other_t* self, qn__ir_stmt_t* first) {
  for (qn__ir_stmt_t* stmt = first; stmt; stmt = stmt->next) {
    if (is_row_loop(self->reuse, stmt)) {
      if (!set_pattern(self, stmt->loop.var) ||
          !qn__block_each_expr(&stmt->loop.body, visit_use, self)) {
        return false;
      }
    } else if (stmt->kind != QN__STMT_LOOP && !qn__stmt_each_expr(stmt, visit_reduces, self)) {
      return false;
    }
  }
  return true;
}

// Declares a row and appends `for c in 0..n { row[c] = part }`, before the statement.
static qn__ir_buffer_t* add_row(reuse_t* self, const qn__ir_expr_t* part) {
  qn__pass_builder_t* pb = self->pb;
  const qn__ir_expr_t* reduce = self->reduce;
  qn__ir_block_t added = {NULL, NULL};
  qn__ir_buffer_t* row = qn__pb_alloc(pb, &added, QN__SCOPE_SHARED, part->dtype, "kept",
                                      self->rounds * self->lanes * self->threads, -1);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, reduce->reduce.reduce_var->name,
                                          qn__pb_copy(pb, reduce->reduce.end));
  if (!row || !loop) return NULL;
  row->row_lanes = (uint32_t)self->lanes;
  loop->loop.is_independent = loop->loop.is_cooperative = true;
  qn__ir_expr_t* use = qn__pb_use(pb, loop->loop.var);
  if (!use) return NULL;
  qn__ir_expr_t* value = qn__expr_replace(pb->arena, part, reduce->reduce.reduce_var, use);
  qn__pb_append(&loop->loop.body, qn__pb_store(pb, row, use, NULL, value));
  qn__block_append(&added, loop);
  assert((self->previous ? self->previous->next : self->block->first) == self->stmt);
  loop->next = self->stmt;
  *(self->previous ? &self->previous->next : &self->block->first) = added.first;
  self->previous = loop;
  return row;
}

static bool cache_part(reuse_t* self, const qn__ir_expr_t* part) {
  qn__ir_expr_t* copy = qn__pb_copy(self->pb, part);
  qn__ir_buffer_t* row = copy ? add_row(self, copy) : NULL;
  if (!row) return false;
  other_t other = {.reuse = self, .part = copy, .buffer = row};
  assert(self->row_count < max_rows);  // try_part
  self->rows[self->row_count++] = row;
  return visit_stmts(&other, self->stmt);
}

// Tries the largest parts of the summand first, and only those that are always evaluated.
static bool try_part(void* context, qn__ir_expr_t** slot) {
  reuse_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (self->row_count == max_rows) return true;
  if (can_cache(self, expr)) {
    other_t other = {.reuse = self, .part = expr};
    if (!visit_stmts(&other, self->stmt->next)) return false;
    if (other.count > 0) return cache_part(self, expr);
  }
  if (qn__expr_is_lazy(expr)) return try_part(self, &expr->args[0]);
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return true;
  return qn__expr_each_child(expr, try_part, self);
}

static bool try_reduce(void* context, qn__ir_expr_t** slot) {
  reuse_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (!qn__is_cooperative_reduce(expr)) return qn__expr_each_child(expr, try_reduce, self);
  if (!can_take(self, expr)) return true;
  self->reduce = expr;
  return expr->reduce.lets.first ? true : try_part(self, &expr->reduce.value);
}

// ---- the pass

// Makes a copy of `block` with rows. The copy is correct if `*out_condition` holds; NULL: always.
// Returns false if there is nothing to cache.
static bool cache_rows(reuse_t* self, qn__ir_block_t* block, qn__ir_block_t* out,
                       qn__ir_expr_t** out_condition) {
  qn__pass_builder_t* pb = self->pb;
  *out_condition = NULL;
  self->block = block;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!is_simple(stmt)) return false;
  }
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_LOOP && !qn__stmt_each_expr(stmt, find_row, self)) break;
  }
  if (self->lanes == 0) return false;
  if (!qn__block_replace(pb->arena, block, NULL, NULL, out)) return false;
  self->block = out;
  for (qn__ir_stmt_t* stmt = out->first; stmt; stmt = stmt->next) {
    self->stmt = stmt;
    if (stmt->kind != QN__STMT_LOOP && !qn__stmt_each_expr(stmt, try_reduce, self)) break;
    self->previous = stmt;
  }
  if (self->row_count == 0 || qn__pb_stopped(pb)) return false;
  int64_t length;
  assert(qn__pb_is_pure(pb, (qn__ir_expr_t*)(uintptr_t)self->end));  // find_row
  if (qn__expr_const_int(self->end, &length)) return true;
  qn__ir_expr_t* fits = qn__pb_op_int(pb, QN_OP_LE, qn__pb_copy(pb, self->end),
                                      self->rounds * self->lanes * self->threads);
  *out_condition =
      qn__pb_op(pb, QN_OP_LOGIC_AND, qn__wide_is_whole(pb, self->end, self->lanes), fits);
  return *out_condition != NULL;
}

static void reuse_launch(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  if (launch->loop.launch->kind != QN__LAUNCH_BLOCKS || pb->options->access_bytes == 0 ||
      pb->options->is_checked) {
    return;
  }
  qn__ir_block_t region = qn__launch_take_region(launch);
  reuse_t self = {.pb = pb, .threads = launch->loop.launch->threads};
  qn__ir_block_t cached = {NULL, NULL};
  qn__ir_expr_t* condition;
  if (!qn__block_any(&region, qn__threads_synchronize) &&
      cache_rows(&self, &region, &cached, &condition)) {
    qn__ir_stmt_t* choice = qn__pb_if(pb, condition, cached);
    if (choice) {
      choice->if_.else_block = region;
      cached = qn__block_of(choice);
    }
    region = cached;
  }
  qn__launch_put_region(launch, &region);
}

static void reuse_function(qn__pass_builder_t* pb) {
  qn__launch_each(pb, reuse_launch);
}

// Returns false if a row is used outside of cooperative reductions.
static bool avoids_stray(void* self, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  if (qn__is_cooperative_reduce(expr)) return true;
  if (expr->kind == QN__EXPR_LOAD && expr->load.buffer->row_lanes > 0) return false;
  return qn__expr_each_child(*slot, avoids_stray, self);
}

static bool has_stray(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__is_cooperative_loop(stmt)) continue;
    if (stmt->kind == QN__STMT_STORE && stmt->store.buffer->row_lanes > 0) return true;
    if (!qn__stmt_each_expr(stmt, avoids_stray, NULL)) return true;
    QN__EACH_BLOCK(stmt, inner) {
      if (has_stray(inner)) return true;
    }
  }
  return false;
}

static const char* check(qn__ir_func_t* function) {
  return has_stray(&function->body) ? "a row outside of cooperative code" : NULL;
}

const qn__pass_t qn__pass_reuse = {
    .name = "reuse",
    .doc = "keeps rows that are read or computed again in registers",
    .run = reuse_function,
    .post = "rows are used in cooperative loops and reductions alone",
    .check = check,
};
