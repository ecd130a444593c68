// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/distribute_flat.c: assigns one iteration of a nest, or a few, to each thread.
//
//   block.x block in 0..ceildiv(E, 1024) { thread.x t in 0..256 { unroll k in 0..4 {
//     let at = block * 1024 + k * 256 + t; if at < E { ... } } } }
//
// A thread has several iterations if the body is short and limited by memory. The loads of all are
// then in flight at once, and they share the values computed for each block and thread. This works
// only without a branch between them. So all blocks but the last run a copy of the loop without the
// test, under `if block < E // 1024`. The iterations of a thread are as far apart as the block has
// threads, so that adjacent threads access adjacent elements. A target with wide accesses gets
// consecutive iterations instead (wide.c). If only the device knows the extent, a grid of fixed
// size steps through it.
#include "ir/passes/cost.h"
#include "ir/passes/gpu/distribute.h"
#include "ir/passes/gpu/wide.h"

#define MAX_COST 40.0  // of a body that is limited by memory

enum { elements_per_thread = 4 };

static int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

static bool is_long(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP || stmt->kind == QN__STMT_WHILE ||
         stmt->kind == QN__STMT_ATOMIC || stmt->kind == QN__STMT_FENCE ||
         stmt->kind == QN__STMT_ALLOC;
}

// Returns the iterations of a thread; `out_is_lanes`: they are consecutive.
static int64_t elements(qn__pass_builder_t* pb, qn__nest_t* nest, int64_t extent,
                        bool* out_is_lanes) {
  *out_is_lanes = false;
  if (qn__block_any(&nest->body, is_long)) return 1;
  qn__cost_model_t model = {.options = pb->options};
  double cost = qn__cost_block(&model, &nest->body);
  if (cost > MAX_COST) return 1;
  int64_t lanes = qn__wide_nest_lanes(pb, nest, extent, cost);
  *out_is_lanes = lanes > 1;
  if (lanes > 1) return lanes;
  // In a short grid, more threads are better than long threads.
  if (extent >= 0 && extent < elements_per_thread * qn__busy_threads(pb)) return 1;
  return elements_per_thread;
}

static qn__ir_block_t guarded(qn__pass_builder_t* pb, qn__ir_var_t* index,
                              const qn__ir_expr_t* extent, qn__nest_t* nest) {
  qn__ir_block_t inner = {NULL, NULL};
  qn__ir_expr_t* use = qn__pb_use(pb, index);
  qn__nest_place(pb, nest, use, &inner);
  qn__block_splice(&inner, &nest->body);
  if (!extent) return inner;
  qn__ir_expr_t* is_inside =
      qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, index), qn__pb_copy(pb, extent));
  qn__ir_stmt_t* test = qn__pb_if(pb, is_inside, inner);
  return test ? qn__block_of(test) : inner;
}

// Returns block * (threads * per_thread) + k * threads + t.
static qn__ir_expr_t* position(qn__pass_builder_t* pb, qn__ir_var_t* block, qn__ir_var_t* k,
                               qn__ir_var_t* t, int64_t threads, int64_t per_thread) {
  qn__ir_expr_t* at = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, block), threads * per_thread);
  if (k) {
    at = qn__pb_op(pb, QN_OP_ADD, at, qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, k), threads));
  }
  return qn__pb_op(pb, QN_OP_ADD, at, qn__pb_use(pb, t));
}

// Returns `unroll k in 0..per_thread { lets and body }`, with its own variables.
static qn__ir_stmt_t* untested_loop(qn__pass_builder_t* pb, const qn__ir_block_t* lets,
                                    const qn__ir_block_t* body, qn__ir_var_t* k,
                                    int64_t per_thread) {
  const qn__ir_block_t* blocks[] = {lets, body};
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_UNROLL, "k", qn__pb_int(pb, per_thread));
  qn__ir_expr_t* use = loop ? qn__pb_use(pb, loop->loop.var) : NULL;
  if (!use) return NULL;
  return qn__blocks_replace(pb->arena, blocks, 2, k, use, &loop->loop.body) ? loop : NULL;
}

// Returns `per_thread` iterations of thread `t` of block `block`, `threads` apart.
static qn__ir_block_t strided_body(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_var_t* block,
                                   qn__ir_var_t* t, const qn__ir_expr_t* extent, int64_t threads,
                                   int64_t per_thread) {
  qn__ir_block_t none = {NULL, NULL}, body = none;
  int64_t constant = -1;
  (void)qn__expr_const_int(extent, &constant);
  qn__ir_var_t* k = per_thread > 1 ? qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "k") : NULL;
  qn__ir_var_t* at = qn__pb_let(pb, &body, "at", position(pb, block, k, t, threads, per_thread));
  bool is_exact = constant > 0 && constant % (threads * per_thread) == 0;
  qn__ir_block_t inner = guarded(pb, at, is_exact ? NULL : extent, nest);
  qn__ir_stmt_t* untested = NULL;
  if (k && !is_exact) {
    // The test is the only statement of the block. Its body is also used below, so it is cloned.
    if (qn__pb_stopped(pb)) return none;
    assert(inner.first == inner.last && inner.first->kind == QN__STMT_IF);
    untested = untested_loop(pb, &body, &inner.first->if_.then_block, k, per_thread);
    if (!untested) return none;
  }
  qn__block_splice(&body, &inner);
  if (k) {
    qn__ir_stmt_t* loop = qn__pb_loop(pb, untested ? QN_LOOP_SERIAL : QN_LOOP_UNROLL, k,
                                      qn__pb_int(pb, 0), qn__pb_int(pb, per_thread));
    if (!loop) return none;
    loop->loop.body = body;
    body = qn__block_of(loop);
  }
  if (untested) {
    qn__ir_expr_t* full =
        qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, extent), threads * per_thread);
    qn__ir_expr_t* is_full = qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, block), full);
    qn__ir_stmt_t* test = qn__pb_if(pb, is_full, qn__block_of(untested));
    if (!test) return none;
    test->if_.else_block = body;
    body = qn__block_of(test);
  }
  return body;
}

// Returns lanes for each thread. If only some row lengths allow lanes, a test chooses between them
// and strided iterations.
static qn__ir_block_t lanes_body(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_var_t* block,
                                 qn__ir_var_t* t, const qn__ir_expr_t* extent, int64_t threads,
                                 int64_t count) {
  qn__ir_block_t body = {NULL, NULL};
  qn__ir_expr_t* first = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, block), threads);
  qn__ir_var_t* at =
      qn__pb_let(pb, &body, "at", qn__pb_op(pb, QN_OP_ADD, first, qn__pb_use(pb, t)));
  qn__ir_expr_t* condition;
  qn__ir_block_t lanes = qn__wide_body(pb, nest, at, extent, threads, count, &condition);
  qn__block_splice(&body, &lanes);
  if (!condition) return body;
  qn__ir_stmt_t* test = qn__pb_if(pb, condition, body);
  if (!test) return body;
  test->if_.else_block = strided_body(pb, nest, block, t, extent, threads, count);
  return qn__block_of(test);
}

static void known_grid(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__nest_t* nest) {
  qn__ir_expr_t* extent = qn__nest_extent(pb, nest);
  if (!extent) return;
  int64_t constant = -1;
  int64_t threads = pb->threads;
  if (qn__expr_const_int(extent, &constant) && constant < threads) {
    int64_t wanted = round_up(constant > 0 ? constant : 1, pb->warp_size);
    if (wanted < threads) threads = wanted;
  }
  bool is_lanes;
  int64_t per_thread = elements(pb, nest, constant, &is_lanes);
  qn__ir_var_t* block = launch->loop.var;
  qn__ir_var_t* t = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  if (!t) return;
  assert(threads > 0 && per_thread > 0);
  qn__ir_block_t body = is_lanes ? lanes_body(pb, nest, block, t, extent, threads, per_thread)
                                 : strided_body(pb, nest, block, t, extent, threads, per_thread);
  if (qn__pb_stopped(pb)) return;
  launch->loop.end = qn__pb_op_int(pb, QN_OP_CEILDIV, extent, threads * per_thread);
  qn__launch_finish_x(pb, launch, t, threads, &body);
}

// Writes a grid of fixed size:
//   for k in 0..ceildiv(E - position, all threads) { let at = position + k * all threads; ... }
static void fixed_grid(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__nest_t* nest) {
  int64_t grid = qn__fixed_grid(pb);
  int64_t threads = pb->threads;
  qn__ir_var_t* block = launch->loop.var;
  qn__ir_var_t* t = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__ir_block_t body = {NULL, NULL};
  qn__ir_var_t* first = qn__pb_let(pb, &body, "first", position(pb, block, NULL, t, threads, 1));
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, qn__nest_extent(pb, nest), qn__pb_use(pb, first));
  qn__ir_expr_t* rounds = qn__pb_op_int(pb, QN_OP_CEILDIV, left, grid * threads);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "k", rounds);
  if (!loop) return;
  qn__ir_expr_t* step =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), grid * threads);
  qn__ir_var_t* at =
      qn__pb_let(pb, &loop->loop.body, "at", qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, first), step));
  qn__ir_block_t inner = guarded(pb, at, NULL, nest);
  qn__block_splice(&loop->loop.body, &inner);
  qn__block_append(&body, loop);
  launch->loop.end = qn__pb_int(pb, grid);
  qn__launch_finish_x(pb, launch, t, threads, &body);
}

void qn__distribute_flat(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__nest_t* nest) {
  qn__block_serialize(&nest->body);
  if (qn__host_knows_nest(nest)) {
    known_grid(pb, launch, nest);
  } else {
    fixed_grid(pb, launch, nest);
  }
}
