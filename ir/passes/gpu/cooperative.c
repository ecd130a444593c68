// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/cooperative.c: the pass `cooperative` adds the thread loops of each block, and
// divides the work among the threads.
//
// The content of a launch is written for one thread. When the threads of a block (or of a warp) run
// it together,
//   - they divide cooperative loops and reductions among them (cooperative_split.c);
//   - all of them compute values and conditions, and store to their own local buffers;
//   - the first of them stores to other memory and runs atomics;
//   - thread loops of the program that contain barriers define the number of threads.
// In launches of warps, several warps share a block. Spare warps of the last block repeat the last
// iteration without storing, so that all threads of the block reach each exchange.
//
// Postcondition: unfinished launches are of kind THREADS. They end in one nest of thread loops, in
// which `role` says which threads run a statement, and which lacks only barriers. No loop or
// reduction is marked.
#include "ir/passes/gpu/cooperative.h"

// ---- the threads that run a statement

static void run_block(qn__coop_t* coop, qn__ir_block_t* block, qn__ir_block_t* out);

// Appends an `if` for the first thread. In launches of warps, it also tests that the warp has an
// iteration.
static void for_first(qn__coop_t* coop, qn__ir_block_t body, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_expr_t* condition = qn__pb_op_int(pb, QN_OP_EQ, qn__pb_use(pb, coop->thread), 0);
  if (coop->is_used) {
    condition = qn__pb_op(pb, QN_OP_LOGIC_AND, condition, qn__pb_use(pb, coop->is_used));
  }
  qn__ir_stmt_t* test = qn__pb_if(pb, condition, body);
  if (!test) return;
  test->role = QN__ROLE_FIRST;
  qn__block_append(out, test);
}

static void by_first(qn__coop_t* coop, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__ir_block_t alone = qn__block_of(stmt);
  qn__block_serialize(&alone);
  for_first(coop, alone, out);
}

static void by_all(qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__ir_block_t alone = qn__block_of(stmt);
  qn__block_serialize(&alone);
  qn__block_splice(out, &alone);
}

// ---- control flow

typedef struct content {
  bool is_divided;   // cooperative loops or reductions, or synchronized thread loops
  bool has_private;  // stores to local buffers, its own included
  bool has_memory;   // stores to other memory, or atomics
} content_t;

static bool note_write(void* context, const qn__ir_ref_t* ref) {
  content_t* self = context;
  if (ref->kind != QN__REF_STORE && ref->kind != QN__REF_ATOMIC) return true;
  bool is_local = qn__buf_root(*ref->buffer)->scope == QN__SCOPE_LOCAL;
  self->has_private |= is_local;
  self->has_memory |= !is_local;
  return true;
}

static bool is_divided(const qn__ir_stmt_t* stmt) {
  return qn__is_cooperative_loop(stmt) || qn__threads_synchronize(stmt);
}

static content_t look_into(qn__ir_stmt_t* stmt) {
  qn__ir_block_t alone = qn__block_of(stmt);
  content_t content = {.is_divided = qn__block_any(&alone, is_divided) ||
                                     qn__block_any_expr(&alone, qn__is_cooperative_reduce)};
  (void)qn__block_each_ref(&alone, note_write, &content);
  return content;
}

// Runs the statements of a branch or of a loop's rounds, one after the other.
static void run_nested(qn__coop_t* coop, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  if (!qn__coop_split_own(coop, stmt, out)) return;
  assert(!qn__is_block_loop(stmt) && !qn__threads_synchronize(stmt));
  if (stmt->kind == QN__STMT_LOOP) {
    stmt->loop.is_independent = false;
    if (stmt->loop.kind != QN_LOOP_UNROLL) stmt->loop.kind = QN_LOOP_SERIAL;
  }
  QN__EACH_BLOCK(stmt, nested) {
    qn__ir_block_t inner = qn__block_take(nested);
    run_block(coop, &inner, nested);
  }
  qn__block_append(out, stmt);
}

// Replaces a nest of synchronized thread loops by its body, with the variables of the block's
// thread loops. An `if` around the body (constant true if the nest is never empty) marks code that
// has the program's own barriers.
static void run_threads(qn__coop_t* coop, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_block_t body = qn__block_of(stmt), lets = {NULL, NULL};
  qn__ir_expr_t* runs = NULL;  // the same for all threads
  while (body.first && body.first == body.last && qn__is_thread_loop(body.first)) {
    qn__ir_stmt_t* loop = body.first;
    if (qn__const_trips(loop->loop.begin, loop->loop.end) <= 0) {
      qn__ir_expr_t* each = qn__pb_op(pb, QN_OP_LT, qn__pb_copy(pb, loop->loop.begin),
                                      qn__pb_copy(pb, loop->loop.end));
      runs = runs ? qn__pb_op(pb, QN_OP_LOGIC_AND, runs, each) : each;
    }
    assert(coop->axis_vars[loop->loop.kind - QN_LOOP_THREAD_X]);  // qn__coop_init adopted the nest
    qn__pb_let_var(pb, &lets, loop->loop.var,
                   qn__pb_use(pb, coop->axis_vars[loop->loop.kind - QN_LOOP_THREAD_X]));
    body = loop->loop.body;
  }
  qn__block_serialize(&body);
  qn__block_splice(&lets, &body);
  if (!runs) runs = qn__expr_int(pb->arena, QN_DTYPE_BOOL, 1);
  qn__ir_stmt_t* test = qn__pb_if(pb, runs, lets);
  if (!test) return;
  test->role = QN__ROLE_DIVIDE;
  qn__block_append(out, test);
}

// ---- statements

// Runs an atomic in the first thread, which passes the old value to the others through shared
// memory.
static void run_atomic(qn__coop_t* coop, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = coop->pb;
  qn__ir_var_t* result = stmt->atomic.result;
  if (!qn__coop_split_own(coop, stmt, out)) return;
  if (!result) {
    by_first(coop, stmt, out);
    return;
  }
  qn__ir_buffer_t* cell =
      qn__pb_alloc(pb, &coop->head, QN__SCOPE_SHARED, result->dtype, result->name, -1, -1);
  qn__ir_var_t* old = qn__pb_var(pb, QN__VAR_ATOMIC, result->dtype, result->name);
  qn__ir_block_t body = qn__block_of(stmt);
  stmt->atomic.result = old;
  qn__pb_append(&body, qn__pb_store(pb, cell, NULL, NULL, qn__pb_use(pb, old)));
  for_first(coop, body, out);
  qn__pb_let_var(pb, out, result, qn__pb_load(pb, cell, NULL, NULL));
}

static void run_stmt(qn__coop_t* coop, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  switch (stmt->kind) {
    case QN__STMT_ALLOC:
      if (stmt->alloc.buffer->row_lanes > 0) qn__coop_row_declare(coop, stmt->alloc.buffer);
      // Fall through.
    case QN__STMT_LET:
    case QN__STMT_ASSERT:
      if (qn__coop_split_own(coop, stmt, out)) qn__block_append(out, stmt);
      return;
    case QN__STMT_STORE:
      if (!qn__coop_split_own(coop, stmt, out)) return;
      if (qn__buf_root(stmt->store.buffer)->scope == QN__SCOPE_LOCAL) {
        by_all(stmt, out);
      } else {
        by_first(coop, stmt, out);
      }
      return;
    case QN__STMT_ATOMIC:
      run_atomic(coop, stmt, out);
      return;
    case QN__STMT_BARRIER:
      qn__block_append(out, stmt);
      return;
    default:
      break;
  }
  if (qn__is_cooperative_loop(stmt)) {
    if (qn__coop_split_own(coop, stmt, out)) qn__coop_split_loop(coop, out, stmt);
    return;
  }
  if (qn__threads_synchronize(stmt)) {
    run_threads(coop, stmt, out);
    return;
  }
  content_t content = look_into(stmt);
  if (!content.is_divided && !content.has_memory) {
    by_all(stmt, out);
  } else if (!content.is_divided && !content.has_private) {
    by_first(coop, stmt, out);
  } else {
    run_nested(coop, stmt, out);
  }
}

static void run_block(qn__coop_t* coop, qn__ir_block_t* block, qn__ir_block_t* out) {
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(block)) && !qn__pb_stopped(coop->pb);) {
    run_stmt(coop, stmt, out);
  }
}

// ---- launches

// Divides the region among the threads; the lets before it stay unchanged.
static void run_region(qn__coop_t* coop, qn__ir_stmt_t* launch, qn__ir_block_t* content,
                       qn__ir_block_t* region) {
  bool has_steps = launch->loop.launch->has_steps;
  assert(!has_steps || (content->first == content->last && content->first->kind == QN__STMT_LOOP));
  qn__ir_block_t* out = has_steps ? &content->first->loop.body : content;
  qn__coop_number(coop, out);
  run_block(coop, region, out);
  qn__launch_add_head(launch, &coop->head);
}

static void cooperate_in_block(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  qn__ir_block_t region = qn__launch_take_region(launch);
  qn__ir_block_t content = qn__launch_take(launch);
  qn__coop_t coop;
  if (!qn__coop_init(&coop, pb, &region, launch->loop.launch->threads)) return;
  run_region(&coop, launch, &content, &region);
  qn__ir_stmt_t* loops = qn__pb_stopped(pb) ? NULL : qn__coop_loops(&coop, &content);
  if (loops) qn__launch_add_threads(launch, loops);
}

static void cooperate_in_warps(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  int64_t warps = launch->loop.launch->threads / pb->warp_size;
  assert(warps > 0 && !launch->loop.launch->has_steps);  // the host knows the count of iterations
  qn__ir_block_t region = qn__launch_take_region(launch);
  qn__ir_block_t content = qn__launch_take(launch), body = {NULL, NULL};
  qn__ir_expr_t* extent = launch->loop.end;
  qn__ir_var_t* at = launch->loop.var;
  qn__ir_var_t* block = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_var_t* t = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__coop_t coop = {.pb = pb, .is_warp = true, .count = qn__pb_int(pb, pb->warp_size)};
  qn__ir_expr_t* first = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, block), warps);
  qn__ir_expr_t* own = qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_use(pb, t), pb->warp_size);
  qn__ir_var_t* wanted = qn__pb_let(pb, &body, "wanted", qn__pb_op(pb, QN_OP_ADD, first, own));
  qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_SUB, qn__pb_copy(pb, extent), 1);
  qn__pb_let_var(pb, &body, at, qn__pb_op(pb, QN_OP_MIN, qn__pb_use(pb, wanted), last));
  int64_t constant;
  if (!(qn__expr_const_int(extent, &constant) && constant % warps == 0)) {
    coop.is_used =
        qn__pb_let(pb, &body, "is_used",
                   qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, wanted), qn__pb_copy(pb, extent)));
  }
  coop.thread = qn__pb_let(pb, &body, "lane",
                           qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, t), pb->warp_size));
  if (!block || !t || !coop.thread || qn__pb_stopped(pb)) return;
  run_region(&coop, launch, &content, &region);
  if (qn__pb_stopped(pb)) return;
  qn__block_splice(&body, &content);
  launch->loop.var = block;
  launch->loop.end = qn__pb_op_int(pb, QN_OP_CEILDIV, extent, warps);
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_THREAD_X, t, qn__pb_int(pb, 0),
                                    qn__pb_int(pb, warps * pb->warp_size));
  if (!loop) return;
  loop->loop.body = body;
  launch->loop.launch->is_warps = true;
  qn__launch_add_threads(launch, loop);
}

static void cooperate(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  if (launch->loop.launch->kind == QN__LAUNCH_WARPS) {
    cooperate_in_warps(pb, launch);
  } else {
    cooperate_in_block(pb, launch);
  }
}

static void cooperate_function(qn__pass_builder_t* pb) {
  qn__launch_each(pb, cooperate);
}

// ---- postcondition

static bool is_left(const qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_LOOP && stmt->loop.launch) {
    return stmt->loop.launch->kind != QN__LAUNCH_THREADS;
  }
  return qn__is_cooperative_loop(stmt) || qn__is_independent_loop(stmt);
}

static const char* check(qn__ir_func_t* function) {
  bool is_wrong = qn__block_any(&function->body, is_left) ||
                  qn__block_any_expr(&function->body, qn__is_cooperative_reduce);
  return is_wrong ? "a mark or a launch without threads" : NULL;
}

const qn__pass_t qn__pass_cooperative = {
    .name = "cooperative",
    .doc = "gives blocks their threads, and threads their work",
    .run = cooperate_function,
    .post = "unfinished launches have their threads; no loop is marked",
    .check = check,
};
