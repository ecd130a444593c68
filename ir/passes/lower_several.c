// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_several.c: replaces reductions of several values by loops over local variables.
//
//   let a, b = reduce i in begin..end { x, y } from (p, q) with (a, b), (c, d) { ... };   becomes
//   a_so_far[] = p; b_so_far[] = q;
//   for i in begin..end { a_so_far[], b_so_far[] = what the combiner makes of them and x, y }
//
// 1. CPUs: where iterations load neighbours, `lanes` partial results are kept instead of one, and
//    combined at the end. The order of the combiner is free, and its initial values are neutral.
//    On GPUs, such a reduction has as many partial results as a block or a warp has threads, in a
//    `parallel` loop that the mapping gives them, and a tree of such loops at the end.
// 2. argmax and argmin of values that are the same whenever they are computed (loads, integers) are
//    two reductions of one value each, which all mappings know: the best value, then the lowest
//    index of a value equal to it. On a CPU, the first of them is one for each part of the range,
//    and only the part with the best value is searched.
// 3. Other values are computed once: a combiner is written for them.
//
// Scans are replaced by lower_scan.c.
//
// Postcondition: no REDUCE statement is left. It runs before all other passes, which know none.
#include "ir/passes/several.h"

enum {
  part = 1024,  // values of an argmax that are searched
  sums = 2,     // vectors of partial results, to hide the latency of the combiner
  alone = 32,   // values of a thread up to which few blocks of a GPU have a reduction
  few = 2,      // blocks then
  many = 256,   // blocks of a longer one
};

// ---- one iteration after another

// Appends `for i in begin..end { ... }`, which combines all values into `totals`.
static void append_loop(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                        qn__ir_expr_t* begin, qn__ir_expr_t* end, qn__ir_buffer_t* const* totals,
                        qn__ir_block_t* out) {
  qn__ir_var_t* i = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, several->var->name);
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_SERIAL, i, begin, end);
  qn__several_vars_t values;
  qn__several_exprs_t uses;
  if (!loop || !qn__several_values(pb, several, qn__pb_use(pb, i), &loop->loop.body, values))
    return;
  qn__several_use(pb, values, several->count, uses);
  qn__several_merge(pb, several, totals, NULL, uses, &loop->loop.body);
  qn__block_append(out, loop);
}

// Appends a loop over lanes or threads, and returns its variable.
static qn__ir_var_t* append_lanes(qn__pass_builder_t* pb, qn_loop_kind_t kind, int64_t count,
                                  qn__ir_block_t* out, qn__ir_block_t** out_body) {
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, kind, "lane", qn__pb_int(pb, count));
  if (!loop) return NULL;
  qn__block_append(out, loop);
  *out_body = &loop->loop.body;
  return loop->loop.var;
}

// ---- partial results in lanes

static bool wants_lanes(qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt, int64_t lanes) {
  int64_t trips = qn__const_trips(stmt->several->begin, stmt->several->end);
  if (pb->options->is_checked || lanes < 2 || (trips >= 0 && trips < 2 * sums * lanes)) {
    return false;
  }
  return qn__several_loads_neighbours(stmt);
}

static int64_t lanes_of(const qn__pass_builder_t* pb, const qn__ir_several_t* several) {
  size_t widest = 1;
  for (uint32_t i = 0; i < several->count; ++i) {
    size_t size = qn_dtype_size_bytes(several->values[i]->dtype);
    if (size > widest) widest = size;
  }
  return (int64_t)(pb->options->vector_bytes / widest);
}

// Combines `with[lane + from]` into `into[lane]`, for `count` lanes or threads.
static void append_fold(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                        qn_loop_kind_t kind, qn__ir_buffer_t* const* into,
                        qn__ir_buffer_t* const* with, int64_t from, int64_t count,
                        qn__ir_block_t* out) {
  qn__ir_block_t* body;
  qn__ir_var_t* lane = append_lanes(pb, kind, count, out, &body);
  if (!lane) return;
  qn__several_exprs_t right;
  for (uint32_t i = 0; i < several->count; ++i) {
    right[i] =
        qn__pb_load(pb, with[i], qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, lane), from), NULL);
  }
  qn__several_merge(pb, several, into, qn__pb_use(pb, lane), right, body);
}

// Combines the values of whole vectors into `totals`, and returns where the rest begins.
static qn__ir_expr_t* append_vectors(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                                     int64_t lanes, qn__ir_var_t* begin, qn__ir_var_t* end,
                                     qn__ir_buffer_t* const* totals, qn__ir_block_t* out) {
  qn__several_buffers_t partial[sums];
  qn__ir_block_t* body;
  for (uint32_t s = 0; s < sums; ++s) {
    if (!qn__several_declare(pb, several, lanes, out, partial[s])) return NULL;
    qn__ir_var_t* lane = append_lanes(pb, QN_LOOP_VECTOR, lanes, out, &body);
    if (!lane) return NULL;
    qn__several_set_initial(pb, several, partial[s], qn__pb_use(pb, lane), body);
  }
  qn__ir_expr_t* extent = qn__pb_range(pb, qn__pb_use(pb, begin), qn__pb_use(pb, end));
  qn__ir_var_t* count =
      qn__pb_let(pb, out, "count", qn__pb_op_int(pb, QN_OP_FLOORDIV, extent, lanes * sums));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "at", qn__pb_use(pb, count));
  if (!loop) return NULL;
  for (uint32_t s = 0; s < sums; ++s) {
    qn__ir_expr_t* at = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), lanes * sums);
    at = qn__pb_op_int(pb, QN_OP_ADD, at, lanes * s);
    qn__ir_var_t* first = qn__pb_let(pb, &loop->loop.body, "first",
                                     qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, begin), at));
    qn__ir_var_t* lane = append_lanes(pb, QN_LOOP_VECTOR, lanes, &loop->loop.body, &body);
    qn__several_vars_t values;
    qn__several_exprs_t uses;
    if (!lane || !first) return NULL;
    qn__ir_expr_t* index = qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, first), qn__pb_use(pb, lane));
    if (!qn__several_values(pb, several, index, body, values)) return NULL;
    qn__several_use(pb, values, several->count, uses);
    qn__several_merge(pb, several, partial[s], qn__pb_use(pb, lane), uses, body);
  }
  qn__block_append(out, loop);
  for (uint32_t s = 1; s < sums; ++s) {
    append_fold(pb, several, QN_LOOP_VECTOR, partial[0], partial[s], 0, lanes, out);
  }
  for (int64_t half = lanes / 2; half > 0; half /= 2) {
    append_fold(pb, several, QN_LOOP_VECTOR, partial[0], partial[0], half, half, out);
  }
  qn__several_copy(pb, several->count, totals, NULL, partial[0], qn__pb_int(pb, 0), out);
  return qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, begin),
                   qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, count), lanes * sums));
}

// ---- partial results of threads

// Appends a loop in which each of `count` threads combines the values `first`, `first + stride`,
// and so on into an element of `partial`, where `first` is `begin` and its own number.
static void append_threads(qn__pass_builder_t* pb, const qn__ir_several_t* several, int64_t count,
                           int64_t stride, qn__ir_expr_t* begin, qn__ir_var_t* end,
                           qn__ir_buffer_t* const* partial, qn__ir_block_t* out) {
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "part", qn__pb_int(pb, count));
  qn__several_buffers_t totals;
  if (!loop || !qn__several_declare(pb, several, -1, &loop->loop.body, totals)) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__several_set_initial(pb, several, totals, NULL, body);
  qn__ir_var_t* first = qn__pb_let(pb, body, "first",
                                   qn__pb_op(pb, QN_OP_ADD, begin, qn__pb_use(pb, loop->loop.var)));
  if (!first) return;
  qn__ir_expr_t* extent = qn__pb_range(pb, qn__pb_use(pb, first), qn__pb_use(pb, end));
  qn__ir_stmt_t* steps = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "step",
                                           qn__pb_op_int(pb, QN_OP_CEILDIV, extent, stride));
  if (!steps) return;
  qn__ir_expr_t* offset = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, steps->loop.var), stride);
  qn__several_vars_t values;
  qn__several_exprs_t uses;
  if (!qn__several_values(pb, several, qn__pb_op(pb, QN_OP_ADD, offset, qn__pb_use(pb, first)),
                          &steps->loop.body, values)) {
    return;
  }
  qn__several_use(pb, values, several->count, uses);
  qn__several_merge(pb, several, totals, NULL, uses, &steps->loop.body);
  qn__block_append(body, steps);
  qn__several_copy(pb, several->count, partial, qn__pb_use(pb, loop->loop.var), totals, NULL, body);
  qn__block_append(out, loop);
}

// Appends what combines the `count` elements of `partial`, and returns variables of the results.
static void append_tree(qn__pass_builder_t* pb, const qn__ir_several_t* several, int64_t count,
                        qn__ir_buffer_t* const* partial, qn__ir_block_t* out,
                        qn__ir_var_t** out_vars) {
  for (int64_t half = count / 2; half > 1; half /= 2) {
    append_fold(pb, several, QN_LOOP_PARALLEL, partial, partial, half, half, out);
  }
  qn__several_exprs_t left, right;
  qn__ir_expr_t *first = qn__pb_int(pb, 0), *second = qn__pb_int(pb, 1);
  if (!first || !second) return;
  qn__several_load(pb, partial, several->count, first, left);
  qn__several_load(pb, partial, several->count, second, right);
  (void)qn__several_combine(pb, several, left, right, out, out_vars);
}

// Appends `parallel group in 0..groups`, in which a block combines its values into element `group`
// of `sums_of`.
static void append_groups(qn__pass_builder_t* pb, const qn__ir_several_t* several, int64_t count,
                          int64_t groups, qn__ir_var_t* begin, qn__ir_var_t* end,
                          qn__ir_buffer_t* const* sums_of, qn__ir_block_t* out) {
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "group", qn__pb_int(pb, groups));
  qn__several_buffers_t partial;
  if (!loop || !qn__several_declare(pb, several, count, &loop->loop.body, partial)) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* offset = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), count);
  qn__ir_expr_t* from = qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, begin), offset);
  qn__several_vars_t results;
  qn__several_exprs_t uses;
  append_threads(pb, several, count, count * groups, from, end, partial, body);
  append_tree(pb, several, count, partial, body, results);
  if (qn__pb_stopped(pb)) return;
  qn__several_use(pb, results, several->count, uses);
  qn__several_store(pb, sums_of, several->count, qn__pb_use(pb, loop->loop.var), uses, body);
  qn__block_append(out, loop);
}

// Appends the results of a reduction that has the device for itself: of groups, then of those. A
// loop of one iteration makes the second step one launch.
static void lower_groups(qn__pass_builder_t* pb, const qn__ir_several_t* several, int64_t count,
                         int64_t groups, qn__ir_var_t* begin, qn__ir_var_t* end,
                         qn__ir_block_t* out) {
  qn__several_buffers_t totals, partial;
  if (!qn__several_declare(pb, several, -1, out, totals) ||
      !qn__several_declare(pb, several, groups, out, partial))
    return;
  append_groups(pb, several, count, groups, begin, end, partial, out);
  qn__ir_stmt_t* last = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "group", qn__pb_int(pb, 1));
  qn__several_vars_t results;
  qn__several_exprs_t uses;
  if (!last) return;
  append_tree(pb, several, groups, partial, &last->loop.body, results);
  if (qn__pb_stopped(pb)) return;
  qn__several_use(pb, results, several->count, uses);
  qn__several_store(pb, totals, several->count, NULL, uses, &last->loop.body);
  qn__block_append(out, last);
  qn__several_give_results(pb, several, totals, out);
}

static void lower_threads(qn__pass_builder_t* pb, const qn__ir_several_t* several, int64_t count,
                          qn__several_place_t place, qn__ir_block_t* out) {
  qn__ir_var_t* begin = qn__pb_let(pb, out, "begin", several->begin);
  qn__ir_var_t* end = qn__pb_let(pb, out, "end", several->end);
  if (!begin || !end) return;
  if (place.is_at_top) {
    int64_t trips = qn__const_trips(several->begin, several->end);
    int64_t groups = trips >= 0 && trips <= count * alone ? few : many;
    lower_groups(pb, several, count, groups, begin, end, out);
    return;
  }
  qn__several_buffers_t partial;
  qn__several_vars_t results;
  if (!qn__several_declare(pb, several, count, out, partial)) return;
  append_threads(pb, several, count, count, qn__pb_use(pb, begin), end, partial, out);
  append_tree(pb, several, count, partial, out, results);
  if (qn__pb_stopped(pb)) return;
  for (uint32_t i = 0; i < several->count; ++i) {
    qn__pb_let_var(pb, out, several->results[i], qn__pb_use(pb, results[i]));
  }
}

// ---- the best value and its index

// Returns true if the operator gives the same bits in scalar and in vector code.
static bool is_exact_op(const qn__ir_expr_t* expr) {
  qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
  if (!qn__dtype_is_float(expr->dtype) || rule == QN__RULE_SELECT) return true;
  return expr->op == QN_OP_NEG || expr->op == QN_OP_ABS || expr->op == QN_OP_MIN ||
         expr->op == QN_OP_MAX;
}

static bool is_exact_slot(void* self, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE || (expr->kind == QN__EXPR_OP && !is_exact_op(expr))) {
    return false;
  }
  return qn__expr_each_child(*slot, is_exact_slot, self);
}

static bool is_exact(qn__ir_several_t* several) {
  for (qn__ir_stmt_t* let = several->lets.first; let; let = let->next) {
    if (!is_exact_slot(NULL, &let->let.value)) return false;
  }
  return is_exact_slot(NULL, &several->values[0]);
}

// Returns whether `a` equals the best value; NaN equals NaN.
static qn__ir_expr_t* is_best(qn__pass_builder_t* pb, const qn__ir_var_t* a,
                              const qn__ir_expr_t* best) {
  qn__ir_var_t* value = (qn__ir_var_t*)(uintptr_t)a;
  qn__ir_expr_t* equal = qn__pb_op(pb, QN_OP_EQ, qn__pb_use(pb, value), qn__pb_copy(pb, best));
  if (!qn__dtype_is_float(a->dtype)) return equal;
  qn__ir_expr_t* nan = qn__pb_op(pb, QN_OP_NE, qn__pb_use(pb, value), qn__pb_use(pb, value));
  return qn__expr_op(pb->arena, QN_OP_OR, equal, nan, NULL);
}

// Returns the best value of a range.
static qn__ir_expr_t* best_of(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                              qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  qn_reduce_kind_t kind = several->kind == QN__SEVERAL_ARGMAX ? QN_REDUCE_MAX : QN_REDUCE_MIN;
  qn__ir_var_t* i = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, several->var->name);
  qn__ir_expr_t* reduce = qn__pb_reduce_over(pb, kind, several->values[0]->dtype, i, begin, end);
  qn__ir_var_t* value;
  if (!reduce ||
      !qn__several_values(pb, several, qn__pb_use(pb, i), &reduce->reduce.lets, &value)) {
    return NULL;
  }
  reduce->reduce.value = qn__pb_use(pb, value);
  return reduce;
}

// Returns the lowest index from `begin` on, relative to it, whose value is the best one; `none` if
// there is no value.
static qn__ir_expr_t* first_of(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                               qn_dtype_t dtype, const qn__ir_expr_t* begin, qn__ir_expr_t* count,
                               const qn__ir_expr_t* best) {
  qn__ir_var_t* at = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "at");
  qn__ir_expr_t* reduce =
      qn__pb_reduce_over(pb, QN_REDUCE_MIN, dtype, at, qn__pb_int(pb, 0), count);
  qn__ir_var_t* value;
  if (!reduce) return NULL;
  qn__ir_expr_t* index = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, begin), qn__pb_use(pb, at));
  if (!qn__several_values(pb, several, index, &reduce->reduce.lets, &value)) return NULL;
  reduce->reduce.value = qn__expr_op(pb->arena, QN_OP_SELECT, is_best(pb, value, best),
                                     qn__pb_cast(pb, dtype, qn__pb_use(pb, at)),
                                     qn__pb_neutral(pb, QN_REDUCE_MIN, dtype));
  return reduce->reduce.value ? reduce : NULL;
}

// Appends the results, given where the search begins. There is no value if the range is empty.
static void append_best(qn__pass_builder_t* pb, const qn__ir_several_t* several, qn_dtype_t dtype,
                        qn__ir_expr_t* best, qn__ir_expr_t* begin, qn__ir_expr_t* count,
                        qn__ir_block_t* out) {
  qn__pb_let_var(pb, out, several->results[0], best);
  qn__ir_var_t* from = qn__pb_let(pb, out, "from", begin);
  if (!from) return;
  qn__ir_expr_t* first = first_of(pb, several, dtype, qn__pb_use(pb, from), count,
                                  qn__pb_use(pb, several->results[0]));
  qn__ir_var_t* at = qn__pb_let(pb, out, "first", first);
  if (!at) return;
  qn__ir_expr_t* is_none =
      qn__pb_op(pb, QN_OP_EQ, qn__pb_use(pb, at), qn__pb_neutral(pb, QN_REDUCE_MIN, dtype));
  qn__ir_expr_t* index = qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, from),
                                   qn__pb_cast(pb, QN_DTYPE_I64, qn__pb_use(pb, at)));
  qn__pb_let_var(pb, out, several->results[1],
                 qn__expr_op(pb->arena, QN_OP_SELECT, is_none, qn__pb_int(pb, -1), index));
}

// Appends a loop over the parts of the range, which leaves the best value and where its part
// begins.
static void append_parts(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                         qn__ir_var_t* begin, qn__ir_var_t* end, qn__ir_buffer_t* best,
                         qn__ir_buffer_t* where, qn__ir_block_t* out) {
  bool is_max = several->kind == QN__SEVERAL_ARGMAX;
  qn_dtype_t dtype = several->values[0]->dtype;
  qn_reduce_kind_t kind = is_max ? QN_REDUCE_MAX : QN_REDUCE_MIN;
  qn__pb_append(out, qn__pb_store(pb, best, NULL, NULL, qn__pb_neutral(pb, kind, dtype)));
  qn__pb_append(out, qn__pb_store(pb, where, NULL, NULL, qn__pb_use(pb, begin)));
  qn__ir_expr_t* extent = qn__pb_range(pb, qn__pb_use(pb, begin), qn__pb_use(pb, end));
  qn__ir_expr_t* count = qn__pb_op_int(pb, QN_OP_CEILDIV, extent, part);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "part", count);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* offset = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), part);
  qn__ir_var_t* from =
      qn__pb_let(pb, body, "from", qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, begin), offset));
  if (!from) return;
  qn__ir_expr_t* last = qn__pb_op(pb, QN_OP_MIN, qn__pb_use(pb, end),
                                  qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, from), part));
  qn__ir_var_t* top = qn__pb_let(pb, body, "top", best_of(pb, several, qn__pb_use(pb, from), last));
  qn__ir_expr_t* so_far = qn__pb_load(pb, best, NULL, NULL);
  if (!top || !so_far) return;
  qn__ir_expr_t* is_better =
      qn__pb_op(pb, is_max ? QN_OP_GT : QN_OP_LT, qn__pb_use(pb, top), so_far);
  if (qn__dtype_is_float(dtype)) {
    qn__ir_expr_t* nan = qn__pb_op(pb, QN_OP_NE, qn__pb_use(pb, top), qn__pb_use(pb, top));
    qn__ir_expr_t* old = qn__pb_load(pb, best, NULL, NULL);
    qn__ir_expr_t* number = qn__pb_op(pb, QN_OP_EQ, old, qn__pb_load(pb, best, NULL, NULL));
    is_better = qn__pb_either(pb, is_better, qn__pb_both(pb, nan, number));
  }
  qn__ir_block_t then = {NULL, NULL};
  qn__pb_append(&then, qn__pb_store(pb, where, NULL, NULL, qn__pb_use(pb, from)));
  qn__pb_append(body, qn__pb_if(pb, is_better, then));
  // Of zeros, `max` prefers the positive one, which a comparison does not see.
  qn__ir_expr_t* combined =
      qn__pb_op(pb, qn__reduce_op(kind), qn__pb_load(pb, best, NULL, NULL), qn__pb_use(pb, top));
  qn__pb_append(body, qn__pb_store(pb, best, NULL, NULL, combined));
  qn__block_append(out, loop);
}

static void lower_best(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                       qn__ir_block_t* out) {
  qn__ir_var_t* begin = qn__pb_let(pb, out, "begin", several->begin);
  qn__ir_var_t* end = qn__pb_let(pb, out, "end", several->end);
  if (!begin || !end) return;
  int64_t trips = qn__const_trips(several->begin, several->end);
  bool is_short = trips >= 0 && trips <= part;
  if (pb->options->vector_bytes == 0 || is_short) {
    qn__ir_expr_t* best = best_of(pb, several, qn__pb_use(pb, begin), qn__pb_use(pb, end));
    append_best(pb, several, is_short ? QN_DTYPE_I32 : QN_DTYPE_I64, best, qn__pb_use(pb, begin),
                qn__pb_range(pb, qn__pb_use(pb, begin), qn__pb_use(pb, end)), out);
    return;
  }
  qn__ir_buffer_t* best = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, several->values[0]->dtype,
                                       several->results[0]->name, -1, -1);
  qn__ir_buffer_t* where = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, QN_DTYPE_I64, "where", -1, -1);
  if (!best || !where) return;
  append_parts(pb, several, begin, end, best, where, out);
  qn__ir_var_t* from = qn__pb_let(pb, out, "from", qn__pb_load(pb, where, NULL, NULL));
  qn__ir_expr_t* count = qn__pb_op(pb, QN_OP_MIN, qn__pb_int(pb, part),
                                   qn__pb_range(pb, qn__pb_use(pb, from), qn__pb_use(pb, end)));
  append_best(pb, several, QN_DTYPE_I32, qn__pb_load(pb, best, NULL, NULL), qn__pb_use(pb, from),
              count, out);
}

// Makes it a reduction of the value and its index. The index -1 counts as the largest.
static bool add_combiner(qn__pass_builder_t* pb, qn__ir_several_t* several) {
  bool is_max = several->kind == QN__SEVERAL_ARGMAX;
  qn_dtype_t dtype = several->values[0]->dtype;
  several->kind = QN__SEVERAL_COMBINE;
  several->count = several->merged_count = 2;
  several->values[1] = qn__pb_use(pb, several->var);
  several->initial[0] = qn__pb_neutral(pb, is_max ? QN_REDUCE_MAX : QN_REDUCE_MIN, dtype);
  several->initial[1] = qn__pb_int(pb, -1);
  for (uint32_t i = 0; i < 2 && several->values[1]; ++i) {
    several->left[i] = qn__pb_var(pb, QN__VAR_LET, several->values[i]->dtype, "a");
    several->right[i] = qn__pb_var(pb, QN__VAR_LET, several->values[i]->dtype, "b");
    if (!several->left[i] || !several->right[i]) return false;
  }
  if (!several->initial[0] || !several->initial[1] || !several->values[1]) return false;
  qn__ir_var_t *a = several->left[0], *b = several->right[0];
  qn__ir_expr_t* better =
      qn__pb_op(pb, is_max ? QN_OP_GT : QN_OP_LT, qn__pb_use(pb, b), qn__pb_use(pb, a));
  qn__ir_expr_t* equal = qn__pb_op(pb, QN_OP_EQ, qn__pb_use(pb, b), qn__pb_use(pb, a));
  if (qn__dtype_is_float(dtype)) {
    qn__ir_var_t* a_nan = qn__pb_let(pb, &several->merge_lets, "a_nan",
                                     qn__pb_op(pb, QN_OP_NE, qn__pb_use(pb, a), qn__pb_use(pb, a)));
    qn__ir_var_t* b_nan = qn__pb_let(pb, &several->merge_lets, "b_nan",
                                     qn__pb_op(pb, QN_OP_NE, qn__pb_use(pb, b), qn__pb_use(pb, b)));
    if (!a_nan || !b_nan) return false;
    qn__ir_expr_t* only_b =
        qn__pb_op(pb, QN_OP_AND, qn__pb_use(pb, b_nan),
                  qn__expr_op(pb->arena, QN_OP_NOT, qn__pb_use(pb, a_nan), NULL, NULL));
    qn__ir_expr_t* both = qn__pb_op(pb, QN_OP_AND, qn__pb_use(pb, a_nan), qn__pb_use(pb, b_nan));
    better = qn__pb_op(pb, QN_OP_OR, better, only_b);
    equal = qn__pb_op(pb, QN_OP_OR, equal, both);
  }
  qn__ir_expr_t* before =
      qn__pb_op(pb, QN_OP_LT, qn__pb_cast(pb, QN_DTYPE_U64, qn__pb_use(pb, several->right[1])),
                qn__pb_cast(pb, QN_DTYPE_U64, qn__pb_use(pb, several->left[1])));
  qn__ir_expr_t* wins = qn__pb_op(pb, QN_OP_OR, better, qn__pb_op(pb, QN_OP_AND, equal, before));
  qn__ir_var_t* takes = qn__pb_let(pb, &several->merge_lets, "takes", wins);
  if (!takes) return false;
  several->merged[0] =
      qn__pb_op(pb, is_max ? QN_OP_MAX : QN_OP_MIN, qn__pb_use(pb, a), qn__pb_use(pb, b));
  several->merged[1] =
      qn__expr_op(pb->arena, QN_OP_SELECT, qn__pb_use(pb, takes), qn__pb_use(pb, several->right[1]),
                  qn__pb_use(pb, several->left[1]));
  return several->merged[0] && several->merged[1];
}

// ---- statements

static void lower(qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt, qn__several_place_t place,
                  qn__ir_block_t* out) {
  qn__ir_several_t* several = stmt->several;
  if (qn__several_is_scan(several->kind)) {
    qn__lower_scan(pb, stmt, place, out);
    return;
  }
  if (several->kind != QN__SEVERAL_COMBINE) {
    if (is_exact(several)) {
      lower_best(pb, several, out);
      return;
    }
    if (!add_combiner(pb, several)) return;
  }
  int64_t threads = qn__several_threads(pb, stmt, place);
  if (threads != 0) {
    lower_threads(pb, several, threads, place, out);
    return;
  }
  int64_t lanes = lanes_of(pb, several);
  bool has_lanes = wants_lanes(pb, stmt, lanes);
  qn__several_buffers_t totals;
  if (!qn__several_declare(pb, several, -1, out, totals)) return;
  qn__several_set_initial(pb, several, totals, NULL, out);
  qn__ir_expr_t *begin = several->begin, *end = several->end;
  if (has_lanes) {
    qn__ir_var_t* first = qn__pb_let(pb, out, "begin", begin);
    qn__ir_var_t* last = qn__pb_let(pb, out, "end", end);
    if (!first || !last) return;
    begin = append_vectors(pb, several, lanes, first, last, totals, out);
    end = qn__pb_use(pb, last);
  }
  append_loop(pb, several, begin, end, totals, out);
  qn__several_give_results(pb, several, totals, out);
}

static qn__several_place_t place_in(const qn__ir_stmt_t* stmt, qn__several_place_t place) {
  if (stmt->kind == QN__STMT_IF) return place;
  if (stmt->kind != QN__STMT_LOOP) {
    place.has_threads = true;
    return place;
  }
  place.has_threads |= qn__is_block_loop(stmt) || qn__is_thread_loop(stmt);
  place.has_threads |= stmt->loop.kind == QN_LOOP_VECTOR;
  place.is_at_top = false;
  return place;
}

static void lower_block(qn__pass_builder_t* pb, qn__ir_block_t* block, qn__several_place_t place) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(pb);) {
    qn__several_place_t inner_place = place_in(stmt, place);
    QN__EACH_BLOCK(stmt, inner) lower_block(pb, inner, inner_place);
    if (stmt->kind == QN__STMT_REDUCE) {
      lower(pb, stmt, place, block);
    } else {
      qn__block_append(block, stmt);
    }
  }
}

static int64_t count_scans(qn__ir_block_t* block) {
  int64_t count = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    count += stmt->kind == QN__STMT_REDUCE && qn__several_is_scan(stmt->several->kind);
    QN__EACH_BLOCK(stmt, inner) count += count_scans(inner);
  }
  return count;
}

static void lower_function(qn__pass_builder_t* pb) {
  qn__ir_block_t* body = &pb->function->body;
  lower_block(pb, body, (qn__several_place_t){.is_at_top = true, .scan_count = count_scans(body)});
}

static bool is_several(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_REDUCE;
}

static bool is_needed(qn__ir_body_t* body) {
  return qn__body_any(body, is_several);
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_several) ? "a reduction of several values" : NULL;
}

const qn__pass_t qn__pass_lower_several = {
    .name = "lower_several",
    .doc = "replaces reductions of several values by loops",
    .run = lower_function,
    .post = "none is left",
    .check = check,
    .is_needed = is_needed,
    .is_alone = true,
};
