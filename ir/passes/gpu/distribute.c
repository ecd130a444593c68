// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/distribute.c: the pass `distribute` assigns the iterations of each launch to
// blocks, warps or threads.
//
//   parallel i in 0..n { body }   becomes one of
//   block.x block in 0..ceildiv(n, 256) { thread.x t in 0..256 { ... body } }   a thread each
//   block.x block in 0..n { let i = block; body }                               a block each
//   block.x at in 0..n { let i = at; body }                                     a warp each
// placement.c chooses. The second and third form are still written for one thread, with marks on
// the code that threads will share. If only the device knows n, a grid of fixed size steps through
// the range. Launches of statements, and of block loops of the program, become the second form too.
// Thread loops of the program stay unchanged if there are no other statements beside them.
//
// Postcondition: every launch is finished, or of kind BLOCKS or WARPS with loops and reductions
// that are marked as cooperative.
#include "ir/passes/gpu/distribute.h"

#include "ir/passes/gpu/placement.h"
#include "ir/passes/gpu/threads.h"

// Records that the threads of each block run the content together.
static void make_cooperative(qn__ir_stmt_t* launch, qn__launch_kind_t kind, int64_t threads) {
  assert(threads > 0 && !launch->loop.launch->has_steps);
  launch->loop.launch->kind = kind;
  launch->loop.launch->threads = threads;
}

// ---- statements

static void distribute_statements(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  qn__ir_block_t content = qn__launch_take(launch);
  if (qn__mark_cooperative(pb, &content, false)) {
    qn__launch_put(launch, &content);
    make_cooperative(launch, QN__LAUNCH_BLOCKS, pb->threads);
    return;
  }
  qn__block_serialize(&content);
  qn__ir_var_t* t = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__launch_finish_x(pb, launch, t, 1, &content);
}

// ---- loops that the program wrote

static bool is_pure_slot(void* pb, qn__ir_expr_t** slot) {
  return qn__pb_is_pure(pb, *slot);
}

// Returns true if the block level has only pure declarations before one nest of thread loops.
static bool is_canonical(qn__pass_builder_t* pb, const qn__ir_block_t* level) {
  for (qn__ir_stmt_t* stmt = level->first; stmt; stmt = stmt->next) {
    if (qn__is_thread_loop(stmt)) return stmt->next == NULL;
    bool is_plain = stmt->kind == QN__STMT_LET && qn__pb_is_pure(pb, stmt->let.value);
    if (stmt->kind == QN__STMT_ALLOC) {
      is_plain = stmt->alloc.buffer->scope != QN__SCOPE_LOCAL &&
                 qn__stmt_each_expr(stmt, is_pure_slot, pb);
    }
    if (!is_plain) return false;
  }
  return false;
}

// Returns the threads of the largest nest of thread loops in the block; 0: it has none.
static int64_t count_threads(const qn__pass_builder_t* pb, qn__ir_block_t* block) {
  int64_t max_count = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    int64_t count = 1;
    const qn__ir_stmt_t* loop = stmt;
    while (loop && qn__is_thread_loop(loop)) {
      int64_t extent = qn__const_trips(loop->loop.begin, loop->loop.end);
      if (extent <= 0 || __builtin_mul_overflow(count, extent, &count)) {
        count = pb->threads;
        break;
      }
      loop = loop->loop.body.first;
    }
    if (qn__is_thread_loop(stmt)) {
      if (count > max_count) max_count = count;
      continue;
    }
    QN__EACH_BLOCK(stmt, nested) {
      int64_t inner = count_threads(pb, nested);
      if (inner > max_count) max_count = inner;
    }
  }
  return max_count > (int64_t)pb->max_threads ? (int64_t)pb->max_threads : max_count;
}

// Keeps the thread loops of the program. Returns false if the block level is not canonical.
static bool keep_threads(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__ir_block_t* content) {
  if (!is_canonical(pb, content)) return false;
  qn__ir_stmt_t* threads = content->last;
  qn__ir_stmt_t* innermost = qn__threads_straighten(pb, threads);
  if (!innermost) return false;
  qn__block_serialize(&innermost->loop.body);
  for (qn__ir_stmt_t* loop = threads;; loop = loop->loop.body.first) {
    loop->loop.is_independent = false;
    if (loop == innermost) break;
  }
  uint32_t count = qn__block_count(content) - 1;
  if (count > 0) {
    (void)qn__block_cut(content, count);
    qn__launch_add_head(launch, content);
  }
  qn__launch_finish(launch, threads);
  return true;
}

static void distribute_loops(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  qn__ir_block_t content = qn__launch_take(launch);
  if (keep_threads(pb, launch, &content) || qn__pb_stopped(pb)) return;
  uint32_t lets = 0;
  for (qn__ir_stmt_t* stmt = content.first;
       stmt && stmt->kind == QN__STMT_LET && qn__pb_is_pure(pb, stmt->let.value);
       stmt = stmt->next) {
    ++lets;
  }
  qn__ir_block_t rest = qn__block_cut(&content, lets);
  qn__launch_add_head(launch, &content);
  bool has_work = qn__mark_cooperative(pb, &rest, false);
  int64_t threads = count_threads(pb, &rest);
  if (threads == 0) threads = has_work ? (int64_t)pb->threads : 1;
  qn__launch_put(launch, &rest);
  make_cooperative(launch, QN__LAUNCH_BLOCKS, threads);
}

// ---- independent iterations

// Appends lets that name iteration `at`, and the nest's body, to `out`.
static void place_iteration(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__nest_t* nest,
                            qn__ir_var_t* at, qn__ir_block_t* out) {
  qn__ir_expr_t* use = qn__pb_use(pb, at);
  if (!use) return;
  qn__nest_place(pb, nest, use, out);
  launch->loop.launch->lead_count = qn__block_count(out);
  qn__block_splice(out, &nest->body);
}

// Assigns each iteration to a block or a warp.
static void place_each(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__nest_t* nest,
                       qn__launch_kind_t kind) {
  qn__ir_block_t content = {NULL, NULL};
  launch->loop.end = qn__nest_extent(pb, nest);
  if (kind == QN__LAUNCH_WARPS) launch->loop.var->name = "at";
  place_iteration(pb, launch, nest, launch->loop.var, &content);
  qn__launch_put(launch, &content);
}

// Assigns every G-th iteration to one block:
//   for k in 0..ceildiv(n - block, G) { let at = block + k * G; ... }
static void place_steps(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__nest_t* nest) {
  int64_t grid = qn__fixed_grid(pb);
  qn__ir_var_t* block = launch->loop.var;
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, qn__nest_extent(pb, nest), qn__pb_use(pb, block));
  qn__ir_stmt_t* loop =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "k", qn__pb_op_int(pb, QN_OP_CEILDIV, left, grid));
  if (!loop) return;
  qn__ir_expr_t* step = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), grid);
  qn__ir_var_t* at =
      qn__pb_let(pb, &loop->loop.body, "at", qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, block), step));
  place_iteration(pb, launch, nest, at, &loop->loop.body);
  launch->loop.launch->has_steps = true;
  launch->loop.end = qn__pb_int(pb, grid);
  qn__ir_block_t content = qn__block_of(loop);
  qn__launch_put(launch, &content);
}

static void distribute_iterations(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  qn__ir_block_t content = qn__launch_take(launch);
  qn__ir_stmt_t* loop = content.first;
  assert(qn__is_independent_loop(loop) && !loop->next);  // partition
  bool has_threads = qn__block_any(&loop->loop.body, qn__threads_synchronize);
  qn__nest_t nest;
  qn__nest_open(pb, loop, &nest);
  if (qn__pb_stopped(pb)) return;
  qn__placement_t placement = {QN__PLACE_BLOCK, pb->threads};
  if (has_threads) {
    (void)qn__mark_cooperative(pb, &nest.body, false);
  } else {
    placement = qn__place_nest(pb, &nest);
  }
  bool is_host = qn__host_knows_nest(&nest);
  if (placement.place == QN__PLACE_WARP && !is_host) {
    (void)qn__mark_cooperative(pb, &nest.body, false);
    placement.place = QN__PLACE_BLOCK;
  }
  if (placement.place == QN__PLACE_THREAD) {
    qn__distribute_flat(pb, launch, &nest);
    return;
  }
  bool is_warp = placement.place == QN__PLACE_WARP;
  assert(!is_warp || placement.threads >= pb->warp_size);  // at least one warp
  make_cooperative(launch, is_warp ? QN__LAUNCH_WARPS : QN__LAUNCH_BLOCKS, placement.threads);
  if (is_host) {
    place_each(pb, launch, &nest, launch->loop.launch->kind);
  } else {
    place_steps(pb, launch, &nest);
  }
}

// ---- the pass

static void distribute_launch(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  switch (launch->loop.launch->kind) {
    case QN__LAUNCH_STATEMENTS:
      distribute_statements(pb, launch);
      return;
    case QN__LAUNCH_ITERATIONS:
      distribute_iterations(pb, launch);
      return;
    case QN__LAUNCH_LOOPS:
      distribute_loops(pb, launch);
      return;
    case QN__LAUNCH_BLOCKS:
    case QN__LAUNCH_WARPS:
    case QN__LAUNCH_THREADS:
      break;
  }
  (void)QN_NEVER(true);
}

static void distribute_function(qn__pass_builder_t* pb) {
  qn__launch_each(pb, distribute_launch);
}

static bool is_undistributed(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.launch &&
         stmt->loop.launch->kind != QN__LAUNCH_BLOCKS &&
         stmt->loop.launch->kind != QN__LAUNCH_WARPS;
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_undistributed) ? "a launch that is not distributed"
                                                          : NULL;
}

const qn__pass_t qn__pass_distribute = {
    .name = "distribute",
    .doc = "gives iterations to blocks, warps or threads",
    .run = distribute_function,
    .post = "launches are finished, or their threads cooperate on marked loops and reductions",
    .check = check,
};
