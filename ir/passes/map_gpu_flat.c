// ir/passes/map_gpu_flat.c: a nest of independent iterations, one for each thread, or a few.
//
//   block.x block in 0..ceildiv(E, 1024) { thread.x t in 0..256 { unroll k in 0..4 {
//     let at = block * 1024 + k * 256 + t; if at < E { ... } } } }
//
// Several iterations for a thread pay where the body is short and bound by memory: the loads of all
// are under way at once, and what is computed for each block and thread is shared. For that nothing
// may branch between them: all blocks but the last take a copy of the loop without the test, behind
// `if block < E // 1024`. Threads step by the block's size, so that neighbours stay neighbours in
// memory. Where only the device knows the extent a fixed grid steps through it. A target with wide
// accesses gets consecutive iterations instead (map_gpu_wide.c). Thread rule: one thread per body.
// Read next: map_gpu_wide.c.
#include "ir/passes/cost.h"
#include "ir/passes/map_gpu.h"

#define MAX_COST 40.0  // of a body that is bound by memory

enum {
  elements_per_thread = 4,
  blocks_per_core = 8,  // of a grid of fixed size
  assumed_cores = 32,
};

static int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

static bool is_long(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP || stmt->kind == QN__STMT_WHILE ||
         stmt->kind == QN__STMT_ATOMIC || stmt->kind == QN__STMT_ALLOC;
}

int64_t qn__gmap_busy_threads(const qn__gmap_t* map) {
  int64_t cores = map->options->multiprocessors > 0 ? map->options->multiprocessors : assumed_cores;
  return cores * (int64_t)map->threads;
}

// Iterations for a thread; `out_is_lanes`: they are consecutive.
static int64_t elements(qn__gmap_t* map, qn__gmap_nest_t* nest, int64_t extent,
                        bool* out_is_lanes) {
  *out_is_lanes = false;
  if (qn__gmap_any_stmt(&nest->body, is_long)) return 1;
  qn__cost_model_t model = {.options = map->options};
  double cost = qn__cost_block(&model, &nest->body);
  if (cost > MAX_COST) return 1;
  int64_t lanes = qn__gmap_lane_count(map, nest, extent, cost);
  *out_is_lanes = lanes > 1;
  if (lanes > 1) return lanes;
  // A grid that is known to be short is better spread than deep.
  if (extent >= 0 && extent < elements_per_thread * qn__gmap_busy_threads(map)) return 1;
  return elements_per_thread;
}

static qn__ir_block_t guarded(qn__gmap_t* map, qn__ir_var_t* index, const qn__ir_expr_t* extent,
                              qn__gmap_nest_t* nest) {
  qn__ir_block_t inner = {NULL, NULL};
  qn__ir_expr_t* use = qn__gmap_use(map, index);
  qn__gmap_nest_place(map, nest, use, &inner);
  qn__block_splice(&inner, &nest->body);
  if (!extent) return inner;
  qn__ir_stmt_t* test = qn__gmap_if(
      map, qn__gmap_op(map, QN_OP_LT, qn__gmap_use(map, index), qn__gmap_copy(map, extent)));
  if (!test) return inner;
  test->if_.then_block = inner;
  return qn__block_of(test);
}

// position = block * (threads * per_thread) + k * threads + t
static qn__ir_expr_t* position(qn__gmap_t* map, qn__ir_var_t* block, qn__ir_var_t* k,
                               qn__ir_var_t* t, int64_t threads, int64_t per_thread) {
  qn__ir_expr_t* at = qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, block),
                                  qn__gmap_int(map, threads * per_thread));
  if (k) {
    at = qn__gmap_op(map, QN_OP_ADD, at,
                     qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, k), qn__gmap_int(map, threads)));
  }
  return qn__gmap_op(map, QN_OP_ADD, at, qn__gmap_use(map, t));
}

// unroll k in 0..per_thread { lets and body }, with variables of its own.
static qn__ir_stmt_t* untested_loop(qn__gmap_t* map, const qn__ir_block_t* body, qn__ir_var_t* k,
                                    int64_t per_thread) {
  qn__ir_var_t* other = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__ir_expr_t* use = other ? qn__gmap_use(map, other) : NULL;
  qn__ir_stmt_t* loop = qn__gmap_loop(map, QN_LOOP_UNROLL, other, qn__gmap_int(map, 0),
                                      qn__gmap_int(map, per_thread));
  if (!use || !loop) return NULL;
  return qn__block_replace(map->arena, body, k, use, &loop->loop.body) ? loop : NULL;
}

// `per_thread` iterations for thread `t` of block `block`, as many apart as a block has threads.
static qn__ir_block_t strided_body(qn__gmap_t* map, qn__gmap_nest_t* nest, qn__ir_var_t* block,
                                   qn__ir_var_t* t, const qn__ir_expr_t* extent, int64_t threads,
                                   int64_t per_thread) {
  qn__ir_block_t none = {NULL, NULL}, body = none;
  int64_t constant = -1;
  (void)qn__expr_const_int(extent, &constant);
  qn__ir_var_t* k = per_thread > 1 ? qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k") : NULL;
  qn__ir_var_t* at =
      qn__gmap_let(map, &body, "at", position(map, block, k, t, threads, per_thread));
  bool is_exact = constant > 0 && constant % (threads * per_thread) == 0;
  qn__ir_block_t inner = guarded(map, at, is_exact ? NULL : extent, nest);
  qn__ir_stmt_t* untested = NULL;
  if (k && !is_exact) {
    // The test is the block's one statement. What is in it may be read, not moved: it is cloned.
    qn__ir_block_t plain = body;
    qn__ir_stmt_t* let = body.last;
    if (!let || !inner.first) return none;
    let->next = inner.first->if_.then_block.first;
    if (inner.first->if_.then_block.last) plain.last = inner.first->if_.then_block.last;
    untested = untested_loop(map, &plain, k, per_thread);
    let->next = NULL;
    if (!untested) return none;
  }
  qn__block_splice(&body, &inner);
  if (k) {
    qn__ir_stmt_t* loop = qn__gmap_loop(map, untested ? QN_LOOP_SERIAL : QN_LOOP_UNROLL, k,
                                        qn__gmap_int(map, 0), qn__gmap_int(map, per_thread));
    if (!loop) return none;
    loop->loop.body = body;
    body = qn__block_of(loop);
  }
  if (untested) {
    qn__ir_expr_t* full = qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_copy(map, extent),
                                      qn__gmap_int(map, threads * per_thread));
    qn__ir_stmt_t* test =
        qn__gmap_if(map, qn__gmap_op(map, QN_OP_LT, qn__gmap_use(map, block), full));
    if (!test) return none;
    test->if_.then_block = qn__block_of(untested);
    test->if_.else_block = body;
    body = qn__block_of(test);
  }
  return body;
}

// Lanes for each thread where that is right, else iterations that lie apart.
static qn__ir_block_t lanes_body(qn__gmap_t* map, qn__gmap_nest_t* nest, qn__ir_var_t* block,
                                 qn__ir_var_t* t, const qn__ir_expr_t* extent, int64_t threads,
                                 int64_t count) {
  qn__ir_block_t body = {NULL, NULL};
  qn__ir_expr_t* first =
      qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, block), qn__gmap_int(map, threads));
  qn__ir_var_t* at =
      qn__gmap_let(map, &body, "at", qn__gmap_op(map, QN_OP_ADD, first, qn__gmap_use(map, t)));
  qn__ir_expr_t* condition;
  qn__ir_block_t lanes = qn__gmap_lanes_body(map, nest, at, extent, threads, count, &condition);
  qn__block_splice(&body, &lanes);
  if (!condition) return body;
  qn__ir_stmt_t* test = qn__gmap_if(map, condition);
  if (!test) return body;
  test->if_.then_block = body;
  test->if_.else_block = strided_body(map, nest, block, t, extent, threads, count);
  return qn__block_of(test);
}

static void known_grid(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest) {
  qn__ir_expr_t* extent = qn__gmap_nest_extent(map, nest);
  if (!extent) return;
  int64_t constant = -1;
  int64_t threads = map->threads;
  if (qn__expr_const_int(extent, &constant) && constant < threads) {
    int64_t wanted = round_up(constant > 0 ? constant : 1, map->warp_size);
    if (wanted < threads) threads = wanted;
  }
  bool is_lanes;
  int64_t per_thread = elements(map, nest, constant, &is_lanes);
  qn__ir_var_t* block = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_var_t* t = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  if (!block || !t) return;
  qn__ir_block_t body = is_lanes ? lanes_body(map, nest, block, t, extent, threads, per_thread)
                                 : strided_body(map, nest, block, t, extent, threads, per_thread);
  if (qn__gmap_stopped(map)) return;
  qn__ir_expr_t* grid =
      qn__gmap_op(map, QN_OP_CEILDIV, extent, qn__gmap_int(map, threads * per_thread));
  qn__gmap_finish(map, unit, block, grid, NULL, qn__gmap_threads(map, t, threads, &body));
}

int64_t qn__gmap_fixed_grid(const qn__gmap_t* map) {
  int64_t cores = map->options->multiprocessors > 0 ? map->options->multiprocessors : assumed_cores;
  return cores * blocks_per_core;
}

// for k in 0..ceildiv(E - position, all threads) { let at = position + k * all threads; ... }
static void fixed_grid(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest) {
  int64_t grid = qn__gmap_fixed_grid(map);
  int64_t threads = map->threads;
  qn__ir_var_t* block = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_var_t* t = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__ir_var_t* k = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__ir_block_t body = {NULL, NULL};
  qn__ir_var_t* first =
      qn__gmap_let(map, &body, "first", position(map, block, NULL, t, threads, 1));
  qn__ir_expr_t* left =
      qn__gmap_op(map, QN_OP_SUB, qn__gmap_nest_extent(map, nest), qn__gmap_use(map, first));
  qn__ir_stmt_t* loop =
      qn__gmap_loop(map, QN_LOOP_SERIAL, k, qn__gmap_int(map, 0),
                    qn__gmap_op(map, QN_OP_CEILDIV, left, qn__gmap_int(map, grid * threads)));
  if (!loop) return;
  qn__ir_expr_t* step =
      qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, k), qn__gmap_int(map, grid * threads));
  qn__ir_var_t* at = qn__gmap_let(map, &loop->loop.body, "at",
                                  qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, first), step));
  qn__ir_block_t inner = guarded(map, at, NULL, nest);
  qn__block_splice(&loop->loop.body, &inner);
  qn__block_append(&body, loop);
  qn__gmap_finish(map, unit, block, qn__gmap_int(map, grid), NULL,
                  qn__gmap_threads(map, t, threads, &body));
}

void qn__gmap_flat(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest) {
  qn__gmap_serialise(&nest->body);
  if (qn__gmap_nest_is_host(nest)) {
    known_grid(map, unit, nest);
  } else {
    fixed_grid(map, unit, nest);
  }
}
