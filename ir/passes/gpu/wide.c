// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/wide.c: a few consecutive iterations for each thread, so that one wide access can
// move what they load and store (wide.h).
//
//   let at = block * T + t;
//   if at < E // 4 { vector k in 0..4 { let i = at * 4 + k; ... } }
//   else { for k in 0..4 { let i = at * 4 + k; if i < E { ... } } }
//
// for one loop of E iterations. In a nest, the lanes are along its fastest dimension, of extent m.
// The condition `m % 4 == 0`, the same for all threads, selects this code; otherwise the iterations
// of each thread are apart (distribute_flat.c).
//
// The lanes of a `vector` loop are independent iterations: a code generator may load for all of
// them first and store for all of them last (jit/gpu/print_wide.c), which also tests alignment at
// run time. Checked builds have no lanes: their failures name single iterations.
#include "ir/passes/gpu/wide.h"

#include "ir/passes/cost.h"
#include "ir/passes/gpu/launch.h"

enum { max_lanes = 16 };
#define MAX_WORK 160.0  // of all lanes of a thread

// ---- how many

typedef struct widest {
  const qn__lanes_t* lanes;
  const qn__ir_var_t* var;  // of the loop or reduction
  int64_t first;            // its first value; 0 where that is not constant
  uint32_t bytes;           // of the largest element that adjacent lanes access; 0: none
  uint64_t shifts;          // constants added to the variable in such indices, as a set
  bool is_apart;            // a reduction in a lane loads by it
  bool has_single;          // has contiguous stores that only some lanes do
} widest_t;

static widest_t widest_of(const qn__lanes_t* lanes, const qn__ir_var_t* var, qn__ir_expr_t* begin) {
  widest_t widest = {.lanes = lanes, .var = var};
  if (!qn__expr_const_int(begin, &widest.first)) widest.first = 0;
  return widest;
}

// Returns the constant c of an index `variable + c`, or 0 for any other index. Lanes begin at
// multiples of their count, so a wide access at c is aligned only if their count divides c.
static uint64_t shift_of(const widest_t* self, const qn__ir_expr_t* index) {
  uint64_t shift = (uint64_t)self->first;
  int64_t constant;
  while (index->kind == QN__EXPR_OP && (index->op == QN_OP_ADD || index->op == QN_OP_SUB)) {
    bool is_last = qn__expr_const_int(index->args[1], &constant);
    if (!is_last && !(index->op == QN_OP_ADD && qn__expr_const_int(index->args[0], &constant))) {
      return 0;
    }
    shift += index->op == QN_OP_ADD ? (uint64_t)constant : 0 - (uint64_t)constant;
    index = index->args[is_last ? 0 : 1];
  }
  return index->kind == QN__EXPR_VAR && index->var == self->var ? shift : 0;
}

static void note(widest_t* self, qn__ir_buffer_t* buffer, qn__ir_expr_t* const* indices) {
  qn__ir_scope_t scope = qn__buf_root(buffer)->scope;
  if (scope != QN__SCOPE_PARAM && scope != QN__SCOPE_GLOBAL) return;
  if (qn__lanes_reach(self->lanes, buffer, indices) != QN__REACH_CONTIGUOUS) return;
  uint32_t bytes = (uint32_t)qn_dtype_size_bytes(buffer->dtype);
  if (bytes > self->bytes) self->bytes = bytes;
  for (uint32_t d = 0; d < buffer->rank; ++d) self->shifts |= shift_of(self, indices[d]);
}

// Finds loads that a reduction inside a lane makes in every round. Adjacent threads, or one thread,
// read contiguous elements there. Both are better than lanes.
static bool note_rounds(void* context, const qn__ir_ref_t* ref) {
  widest_t* self = context;
  self->is_apart |= qn__lanes_reach(self->lanes, *ref->buffer, *ref->indices) != QN__REACH_UNIFORM;
  return true;
}

static bool note_loads(void* context, qn__ir_expr_t** slot) {
  widest_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) return qn__expr_each_ref(expr, note_rounds, self);
  if (expr->kind == QN__EXPR_LOAD) note(self, expr->load.buffer, expr->load.indices);
  return qn__expr_each_child(expr, note_loads, self);
}

static bool note_single_stores(void* context, const qn__ir_ref_t* ref) {
  widest_t* self = context;
  self->has_single |=
      ref->kind == QN__REF_STORE &&
      qn__lanes_reach(self->lanes, *ref->buffer, *ref->indices) == QN__REACH_CONTIGUOUS;
  return true;
}

static int64_t lanes_of(const qn__pass_builder_t* pb, const widest_t* widest, double cost) {
  if (widest->bytes == 0 || widest->is_apart) return 1;
  int64_t count = (int64_t)(pb->options->access_bytes / widest->bytes);
  if (count > max_lanes) count = max_lanes;
  assert((count & (count - 1)) == 0);  // so that a bit mask finds unaligned shifts
  while (count > 4 && cost * (double)count > MAX_WORK) count /= 2;
  // Accesses that are not wide are `count` elements apart in adjacent threads.
  if (widest->has_single && count > 4) count = 4;
  // One of x[i] and x[i + 1] is never aligned: adjacent threads read contiguous elements instead.
  while (count > 1 && (widest->shifts & (uint64_t)(count - 1)) != 0) count /= 2;
  return count;
}

// Reduces the count of lanes until each of `threads` has work and lanes divide a constant row.
static int64_t shared_lanes(const qn__ir_expr_t* all, const qn__ir_expr_t* row,
                            const qn__ir_expr_t* threads, int64_t count) {
  int64_t extent, length, coop;
  if (!all || !row || !threads || !qn__expr_const_int(threads, &coop)) coop = 0;
  if (all && qn__expr_const_int(all, &extent)) {
    while (count > 1 && extent < count * coop) count /= 2;
  }
  if (row && qn__expr_const_int(row, &length)) {
    while (count > 1 && length % count != 0) count /= 2;
  }
  return count;
}

static bool has_lanes(const qn__pass_builder_t* pb) {
  return pb->options->access_bytes > 0 && !pb->options->is_checked;
}

int64_t qn__wide_nest_lanes(qn__pass_builder_t* pb, qn__nest_t* nest, int64_t extent, double cost) {
  if (!has_lanes(pb) || qn__block_any(&nest->body, qn__stmt_is_no_lane)) return 1;
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes) return 1;
  const qn__ir_stmt_t* fastest = qn__nest_fastest(nest);
  qn__lanes_enter(lanes, fastest->loop.var, &nest->lets);
  qn__lanes_add(lanes, &nest->body);
  widest_t widest = widest_of(lanes, fastest->loop.var, fastest->loop.begin);
  for (qn__ir_stmt_t* stmt = nest->body.first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, note_loads, &widest);
    if (stmt->kind == QN__STMT_STORE) note(&widest, stmt->store.buffer, stmt->store.indices);
    QN__EACH_BLOCK(stmt, inner) (void)qn__block_each_ref(inner, note_single_stores, &widest);
  }
  int64_t count = lanes_of(pb, &widest, cost);
  // A short grid needs many threads more than wide accesses.
  while (count > 1 && extent >= 0 && extent < count * qn__busy_threads(pb)) count /= 2;
  int64_t row;
  qn__ir_expr_t* length = qn__pb_extent(pb, fastest);
  if (nest->count > 1 && length && qn__expr_const_int(length, &row)) {
    while (count > 1 && row % count != 0) count /= 2;
  }
  return count;
}

int64_t qn__wide_shared_lanes(qn__pass_builder_t* pb, qn__nest_t* nest,
                              const qn__ir_expr_t* threads) {
  qn__cost_model_t model = {.options = pb->options};
  int64_t count = qn__wide_nest_lanes(pb, nest, -1, qn__cost_block(&model, &nest->body));
  const qn__ir_stmt_t* fastest = qn__nest_fastest(nest);
  qn__ir_expr_t* all = qn__nest_extent(pb, nest);
  qn__ir_expr_t* length = qn__pb_extent(pb, fastest);
  return shared_lanes(all, length, threads, count);
}

int64_t qn__wide_reduce_lanes(qn__pass_builder_t* pb, qn__ir_expr_t* reduce,
                              const qn__ir_expr_t* threads) {
  if (!has_lanes(pb) || qn__expr_facts(reduce->reduce.value).has_reduce) return 1;
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes) return 1;
  qn__cost_model_t model = {.options = pb->options};
  double cost = qn__cost_expr(&model, reduce->reduce.value);
  qn__lanes_enter(lanes, reduce->reduce.reduce_var, NULL);
  widest_t widest = widest_of(lanes, reduce->reduce.reduce_var, reduce->reduce.begin);
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    if (qn__expr_facts(let->let.value).has_reduce) return 1;
    qn__lanes_let(lanes, let);
    (void)note_loads(&widest, &let->let.value);
    cost += qn__cost_expr(&model, let->let.value);
  }
  (void)note_loads(&widest, &reduce->reduce.value);
  qn__ir_expr_t* extent = qn__pb_reduce_extent(pb, reduce);
  return shared_lanes(extent, extent, threads, lanes_of(pb, &widest, cost));
}

// ---- bodies

qn__ir_stmt_t* qn__wide_loop(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_var_t* at,
                             int64_t count) {
  assert(count > 1 && count <= max_lanes);
  qn__ir_var_t* k = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "k", qn__pb_int(pb, count));
  qn__ir_expr_t* use = loop ? qn__pb_use(pb, loop->loop.var) : NULL;
  qn__ir_block_t placed = {NULL, NULL};
  if (k) qn__nest_place_lane(pb, nest, qn__pb_use(pb, at), k, count, &placed);
  if (!use || qn__pb_stopped(pb)) return NULL;
  const qn__ir_block_t* blocks[] = {&placed, &nest->lets, &nest->body};
  return qn__blocks_replace(pb->arena, blocks, 3, k, use, &loop->loop.body) ? loop : NULL;
}

// Returns the code of the last, incomplete group:
//   for k in 0..count { let i = at * count + k; if i < E { lets and body } }
static qn__ir_block_t rest_of(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_var_t* at,
                              const qn__ir_expr_t* extent, int64_t count) {
  qn__ir_block_t none = {NULL, NULL};
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "k", qn__pb_int(pb, count));
  if (!loop) return none;
  qn__ir_expr_t* index = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, at), count);
  index = qn__pb_op(pb, QN_OP_ADD, index, qn__pb_use(pb, loop->loop.var));
  qn__ir_var_t* last = qn__pb_let(pb, &loop->loop.body, "last", index);
  qn__ir_expr_t* is_inside = qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, last), qn__pb_copy(pb, extent));
  qn__ir_block_t body = {NULL, NULL};
  qn__nest_place(pb, nest, qn__pb_use(pb, last), &body);
  qn__block_splice(&body, &nest->body);
  qn__pb_append(&loop->loop.body, qn__pb_if(pb, is_inside, body));
  return qn__block_of(loop);
}

qn__ir_expr_t* qn__wide_is_whole(qn__pass_builder_t* pb, const qn__ir_expr_t* length,
                                 int64_t count) {
  int64_t constant;
  if (!length || qn__expr_const_int(length, &constant)) return NULL;
  return qn__pb_op_int(pb, QN_OP_EQ,
                       qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_copy(pb, length), count), 0);
}

qn__ir_block_t qn__wide_body(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_var_t* position,
                             const qn__ir_expr_t* extent, int64_t threads, int64_t count,
                             qn__ir_expr_t** out_condition) {
  qn__ir_block_t none = {NULL, NULL};
  assert(count > 1 && threads > 0);
  *out_condition = NULL;
  int64_t constant = -1, row = -1;
  bool is_known = qn__expr_const_int(extent, &constant);
  const qn__ir_stmt_t* fastest = qn__nest_fastest(nest);
  qn__ir_expr_t* length = qn__pb_extent(pb, fastest);
  if (!length || !position) return none;
  bool is_row_known = qn__expr_const_int(length, &row);
  qn__ir_stmt_t* lanes = qn__wide_loop(pb, nest, position, count);
  if (!lanes) return none;
  if (is_known && constant > 0 && constant % (threads * count) == 0 &&
      (nest->count == 1 || is_row_known)) {
    return qn__block_of(lanes);
  }
  qn__ir_expr_t* groups = qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, extent), count);
  qn__ir_expr_t* is_below = qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, position), groups);
  qn__ir_stmt_t* test = qn__pb_if(pb, is_below, qn__block_of(lanes));
  if (!test) return none;
  if (nest->count == 1) {
    if (!is_known || constant % count != 0) {
      test->if_.else_block = rest_of(pb, nest, position, extent, count);
    }
  } else if (!is_row_known) {
    *out_condition = qn__wide_is_whole(pb, length, count);
  }
  return qn__block_of(test);
}

// ---- reductions

qn__ir_expr_t* qn__wide_reduce(qn__pass_builder_t* pb, const qn__ir_expr_t* reduce, qn__ir_var_t* k,
                               const qn__ir_expr_t* position, int64_t count) {
  qn__ir_expr_t* inner = qn__pb_copy(pb, reduce);
  qn__ir_var_t* lane = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "lane");
  qn__ir_expr_t* outer = qn__expr_new(pb->arena, QN__EXPR_REDUCE, reduce->dtype, reduce->loc);
  if (!inner || !lane || !outer || !k) return NULL;
  qn__ir_expr_t* index =
      qn__pb_op(pb, QN_OP_ADD, qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, position), count),
                qn__pb_use(pb, lane));
  qn__ir_block_t lets = {NULL, NULL};
  qn__pb_let_var(pb, &lets, inner->reduce.reduce_var,
                 qn__pb_op(pb, QN_OP_ADD, inner->reduce.begin, index));
  qn__block_splice(&lets, &inner->reduce.lets);
  inner->reduce.lets = lets;
  inner->reduce.reduce_var = lane;
  inner->reduce.begin = qn__pb_int(pb, 0);
  inner->reduce.end = qn__pb_int(pb, count);
  inner->reduce.is_cooperative = false;
  outer->reduce.reduce_kind = reduce->reduce.reduce_kind;
  outer->reduce.reduce_var = k;
  outer->reduce.begin = qn__pb_int(pb, 0);
  outer->reduce.value = inner;
  return qn__pb_stopped(pb) ? NULL : outer;
}
