// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/cooperative_rows.c: divides loops and reductions over a row that the threads of a
// block hold in registers.
//
// The pass `reuse` writes a row as a shared buffer. A thread has `row_lanes` adjacent elements in
// each of a few rounds: round k of thread t begins at (k * T + t) * row_lanes. Its part is a local
// array that unrolled loops index by constants. So no thread waits for another.
#include "ir/passes/gpu/cooperative.h"

#include "ir/passes/gpu/wide.h"

static bool is_row(const qn__ir_buffer_t* buffer) {
  return buffer->row_lanes > 0;
}

static bool find_row(void* found, const qn__ir_ref_t* ref) {
  const qn__ir_buffer_t** row = found;
  if (is_row(*ref->buffer)) *row = *ref->buffer;
  return !*row;
}

const qn__ir_buffer_t* qn__coop_row(qn__ir_block_t* body, qn__ir_expr_t* reduce) {
  const qn__ir_buffer_t* row = NULL;
  if (reduce) {
    (void)qn__expr_each_ref(reduce, find_row, &row);
  } else {
    (void)qn__block_each_ref(body, find_row, &row);
  }
  return row;
}

static int64_t threads_of(const qn__coop_t* coop) {
  int64_t threads = 1;
  bool is_constant = qn__expr_const_int(coop->count, &threads);
  assert(is_constant);
  (void)is_constant;
  return threads;
}

// Returns the rounds of a thread. Valid before and after the buffer is made local.
static int64_t rounds_of(const qn__ir_buffer_t* row) {
  assert(row->shape[0]->int_value % row->row_lanes == 0);
  return row->shape[0]->int_value / row->row_lanes;
}

void qn__coop_row_declare(qn__coop_t* coop, qn__ir_buffer_t* row) {
  assert(row->scope == QN__SCOPE_SHARED && row->shape[0]->kind == QN__EXPR_INT);
  row->scope = QN__SCOPE_LOCAL;
  row->shape[0] = qn__pb_int(coop->pb, row->shape[0]->int_value / threads_of(coop));
}

typedef struct row_place {
  qn__coop_t* coop;
  const qn__ir_expr_t* first;  // of the round's elements in an array
  qn__ir_var_t* lane;
} row_place_t;

static bool set_place(void* context, const qn__ir_ref_t* ref) {
  const row_place_t* self = context;
  if (!is_row(*ref->buffer)) return true;
  assert((*ref->buffer)->scope == QN__SCOPE_LOCAL);  // qn__coop_row_declare came before
  qn__pass_builder_t* pb = self->coop->pb;
  qn__ir_expr_t* index =
      qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, self->first), qn__pb_use(pb, self->lane));
  if (index) (*ref->indices)[0] = index;
  return index != NULL;
}

// Returns the thread's group of adjacent elements in round `k`: k * T + t.
static qn__ir_expr_t* group_at(const qn__coop_t* coop, qn__ir_expr_t* k) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_expr_t* first = qn__pb_op(pb, QN_OP_MUL, k, qn__pb_copy(pb, coop->count));
  return qn__pb_op(pb, QN_OP_ADD, first, qn__pb_use(pb, coop->thread));
}

// Returns the condition that the row 0..end contains that group. NULL: it always contains the
// groups of the first `rounds` rounds.
static qn__ir_expr_t* has_group(const qn__coop_t* coop, const qn__ir_buffer_t* row,
                                const qn__ir_expr_t* end, const qn__ir_expr_t* group,
                                int64_t rounds) {
  qn__pass_builder_t* pb = coop->pb;
  int64_t length, elements = rounds * threads_of(coop) * row->row_lanes;
  if (qn__expr_const_int(end, &length) && elements <= length) return NULL;
  qn__ir_expr_t* groups = qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, end), row->row_lanes);
  return qn__pb_op(pb, QN_OP_LT, qn__pb_copy(pb, group), groups);
}

qn__ir_expr_t* qn__coop_row_reduce(qn__coop_t* coop, const qn__ir_buffer_t* row,
                                   const qn__ir_expr_t* reduce) {
  qn__pass_builder_t* pb = coop->pb;
  qn_reduce_kind_t kind = reduce->reduce.reduce_kind;
  qn__ir_expr_t* all = NULL;
  for (int64_t k = 0; k < rounds_of(row); ++k) {
    qn__ir_expr_t* group = group_at(coop, qn__pb_int(pb, k));
    qn__ir_var_t* unused = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
    qn__ir_expr_t* outer =
        group ? qn__wide_reduce(pb, reduce, unused, group, row->row_lanes) : NULL;
    if (!outer) return NULL;
    qn__ir_expr_t* each = outer->reduce.value;
    row_place_t place = {coop, qn__pb_int(pb, k * row->row_lanes), each->reduce.reduce_var};
    if (!place.first || !qn__expr_each_ref(each, set_place, &place)) {
      return NULL;
    }
    qn__ir_expr_t* condition = has_group(coop, row, reduce->reduce.end, group, k + 1);
    if (condition) {
      each = qn__pb_cond(pb, condition, each, qn__pb_neutral(pb, kind, reduce->dtype));
    }
    if (!each) return NULL;
    all = all ? qn__expr_op(pb->arena, qn__reduce_op(kind), all, each, NULL) : each;
    if (!all) return NULL;
  }
  return all;
}

// Appends `for lane in 0..lanes { row[...] = 0 }` for each row that the loop fills. Otherwise the
// registers of a thread without a value stay live in all code that might read one.
static void clear_rows(qn__coop_t* coop, const qn__ir_stmt_t* lanes, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = coop->pb;
  for (const qn__ir_stmt_t* stmt = lanes->loop.body.first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_STORE || !is_row(stmt->store.buffer)) continue;
    qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_UNROLL, "lane",
                                            qn__pb_int(pb, stmt->store.buffer->row_lanes));
    qn__ir_expr_t* use = loop ? qn__pb_use(pb, loop->loop.var) : NULL;
    if (!use) return;
    qn__ir_expr_t* index =
        qn__expr_replace(pb->arena, stmt->store.indices[0], lanes->loop.var, use);
    qn__pb_append(&loop->loop.body, qn__pb_store(pb, stmt->store.buffer, index, NULL,
                                                 qn__pb_zero(pb, stmt->store.buffer->dtype)));
    qn__block_append(out, loop);
  }
}

qn__ir_stmt_t* qn__coop_row_loop(qn__coop_t* coop, const qn__ir_buffer_t* row, qn__nest_t* nest) {
  qn__pass_builder_t* pb = coop->pb;
  assert(nest->count == 1);
  qn__ir_stmt_t* rounds =
      qn__pb_count_loop(pb, QN_LOOP_UNROLL, "k", qn__pb_int(pb, rounds_of(row)));
  if (!rounds) return NULL;
  qn__ir_var_t* k = rounds->loop.var;
  qn__ir_block_t* body = &rounds->loop.body;
  qn__ir_var_t* at = qn__pb_let(pb, body, "at", group_at(coop, qn__pb_use(pb, k)));
  qn__ir_expr_t* use = qn__pb_use(pb, at);
  qn__ir_stmt_t* lanes = use ? qn__wide_loop(pb, nest, at, row->row_lanes) : NULL;
  if (!lanes) return NULL;
  row_place_t place = {coop, qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, k), row->row_lanes),
                       lanes->loop.var};
  if (!place.first || !qn__block_each_ref(&lanes->loop.body, set_place, &place)) return NULL;
  qn__ir_expr_t* condition = has_group(coop, row, nest->loops[0]->loop.end, use, rounds_of(row));
  qn__ir_stmt_t* inner = lanes;
  if (condition) {
    inner = qn__pb_if(pb, condition, qn__block_of(lanes));
    if (!inner) return NULL;
    clear_rows(coop, lanes, &inner->if_.else_block);
  }
  qn__block_append(body, inner);
  return rounds;
}
