// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/launch.c: visits launches and replaces their parts (launch.h).
#include "ir/passes/gpu/launch.h"

enum {
  assumed_cores = 32,
  blocks_per_core = 8,  // of a grid of fixed size
  assumed_shared_bytes = 16384,
};

// ---- expressions that the host can compute

// `user` of a variable that the host computes.
static char host_mark;

void qn__host_mark(qn__ir_var_t* var) {
  var->user = &host_mark;
}

static bool host_knows(void* self, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  qn__dtype_class_t class = qn__dtype_class(expr->dtype);
  if (class == QN__CLASS_FLOAT || class == QN__CLASS_NONE) return false;
  switch (expr->kind) {
    case QN__EXPR_VAR:
      return expr->var->kind == QN__VAR_SYMBOL || expr->var->kind == QN__VAR_SCALAR ||
             expr->var->user == &host_mark;
    case QN__EXPR_LOAD:
    case QN__EXPR_REDUCE:
    case QN__EXPR_FLOAT:
    case QN__EXPR_BITCAST:
      return false;
    case QN__EXPR_OP:
      // The host computes in i64.
      if (qn__expr_is_exchange(expr) || expr->args[0]->dtype == QN_DTYPE_U64) return false;
      break;
    default:
      break;
  }
  return qn__expr_each_child(*slot, host_knows, self);
}

bool qn__host_knows(qn__ir_expr_t* expr) {
  return host_knows(NULL, &expr);
}

bool qn__host_knows_nest(const qn__nest_t* nest) {
  for (uint32_t i = 0; i < nest->count; ++i) {
    if (!qn__host_knows(nest->loops[i]->loop.begin) || !qn__host_knows(nest->loops[i]->loop.end)) {
      return false;
    }
  }
  return true;
}

// ---- walking

static void each_in_block(qn__pass_builder_t* pb, qn__ir_block_t* block,
                          void (*fn)(qn__pass_builder_t* pb, qn__ir_stmt_t* launch)) {
  for (qn__ir_stmt_t* stmt = block->first; stmt && !qn__pb_stopped(pb); stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET) qn__host_mark(stmt->let.var);
    if (qn__is_block_loop(stmt)) {
      if (stmt->loop.launch) fn(pb, stmt);
      continue;
    }
    if (stmt->kind == QN__STMT_LOOP) qn__host_mark(stmt->loop.var);
    QN__EACH_BLOCK(stmt, inner) each_in_block(pb, inner, fn);
  }
}

void qn__launch_each(qn__pass_builder_t* pb,
                     void (*fn)(qn__pass_builder_t* pb, qn__ir_stmt_t* launch)) {
  each_in_block(pb, &pb->function->body, fn);
}

// ---- parts of a launch

// Returns the body of the innermost block loop.
static qn__ir_block_t* level_of(qn__ir_stmt_t* launch) {
  assert(qn__is_block_loop(launch));
  while (launch->loop.body.first && qn__is_block_loop(launch->loop.body.first)) {
    launch = launch->loop.body.first;
  }
  return &launch->loop.body;
}

qn__ir_block_t qn__block_cut(qn__ir_block_t* block, uint32_t count) {
  if (count == 0) return qn__block_take(block);
  qn__ir_stmt_t* last = block->first;
  for (uint32_t i = 1; i < count && last; ++i) last = last->next;
  assert(last);
  qn__ir_block_t rest = {last->next, last->next ? block->last : NULL};
  last->next = NULL;
  block->last = last;
  return rest;
}

static qn__ir_block_t cut_head(qn__ir_stmt_t* launch) {
  assert(launch->loop.launch &&
         launch->loop.launch->head_count <= qn__block_count(level_of(launch)));
  return qn__block_cut(level_of(launch), launch->loop.launch->head_count);
}

// Returns the innermost of the guards that begin at `stmt`.
static qn__ir_stmt_t* innermost_guard(const qn__ir_stmt_t* launch, qn__ir_stmt_t* stmt) {
  for (uint32_t i = 1; i < launch->loop.launch->guard_count; ++i) {
    assert(stmt->kind == QN__STMT_IF && !stmt->next);
    stmt = stmt->if_.then_block.first;
  }
  assert(stmt->kind == QN__STMT_IF && !stmt->next && !stmt->if_.else_block.first);
  return stmt;
}

qn__ir_block_t qn__launch_take(qn__ir_stmt_t* launch) {
  qn__ir_block_t rest = cut_head(launch);
  if (launch->loop.launch->guard_count == 0) return rest;
  assert(rest.first);  // the guards
  qn__ir_block_t* inner = &innermost_guard(launch, rest.first)->if_.then_block;
  qn__ir_block_t content = qn__block_take(inner);
  qn__block_splice(level_of(launch), &rest);
  return content;
}

void qn__launch_put(qn__ir_stmt_t* launch, qn__ir_block_t* content) {
  if (launch->loop.launch->guard_count == 0) {
    qn__block_splice(level_of(launch), content);
    return;
  }
  qn__ir_block_t guards = cut_head(launch);
  qn__block_splice(&innermost_guard(launch, guards.first)->if_.then_block, content);
  qn__block_splice(level_of(launch), &guards);
}

// Returns the block that ends with the region.
static qn__ir_block_t* region_block(const qn__ir_stmt_t* launch, qn__ir_block_t* content) {
  if (!launch->loop.launch->has_steps) return content;
  assert(content->first && content->first->kind == QN__STMT_LOOP && !content->first->next);
  return &content->first->loop.body;
}

qn__ir_block_t qn__launch_take_region(qn__ir_stmt_t* launch) {
  assert(launch->loop.launch->kind == QN__LAUNCH_BLOCKS ||
         launch->loop.launch->kind == QN__LAUNCH_WARPS);
  qn__ir_block_t content = qn__launch_take(launch);
  qn__ir_block_t region =
      qn__block_cut(region_block(launch, &content), launch->loop.launch->lead_count);
  qn__launch_put(launch, &content);
  return region;
}

void qn__launch_put_region(qn__ir_stmt_t* launch, qn__ir_block_t* region) {
  qn__ir_block_t content = qn__launch_take(launch);
  qn__block_splice(region_block(launch, &content), region);
  qn__launch_put(launch, &content);
}

void qn__launch_add_head(qn__ir_stmt_t* launch, qn__ir_block_t* block) {
  uint32_t count = qn__block_count(block);
  qn__ir_block_t rest = cut_head(launch);
  qn__block_splice(level_of(launch), block);
  qn__block_splice(level_of(launch), &rest);
  launch->loop.launch->head_count += count;
}

static qn__ir_stmt_t* innermost_threads(qn__ir_stmt_t* threads) {
  while (threads->loop.body.first && threads->loop.body.first == threads->loop.body.last &&
         qn__is_thread_loop(threads->loop.body.first)) {
    threads = threads->loop.body.first;
  }
  return threads;
}

qn__ir_stmt_t* qn__launch_threads(qn__ir_stmt_t* launch) {
  assert(launch->loop.launch->kind == QN__LAUNCH_THREADS);
  return innermost_threads(level_of(launch)->last);
}

void qn__launch_add_threads(qn__ir_stmt_t* launch, qn__ir_stmt_t* threads) {
  assert(qn__is_thread_loop(threads) && launch->loop.launch->kind != QN__LAUNCH_THREADS);
  qn__ir_block_t guards = cut_head(launch);
  if (launch->loop.launch->guard_count > 0) {
    qn__ir_stmt_t* innermost = innermost_threads(threads);
    innermost_guard(launch, guards.first)->if_.then_block = innermost->loop.body;
    innermost->loop.body = guards;
  } else {
    assert(!guards.first);  // the content was taken
  }
  qn__block_append(level_of(launch), threads);
  launch->loop.launch->kind = QN__LAUNCH_THREADS;
}

void qn__launch_finish(qn__ir_stmt_t* launch, qn__ir_stmt_t* threads) {
  if (!threads) return;
  qn__launch_add_threads(launch, threads);
  launch->loop.launch = NULL;
}

void qn__launch_finish_x(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__ir_var_t* t,
                         int64_t count, qn__ir_block_t* body) {
  qn__ir_stmt_t* loop =
      qn__pb_loop(pb, QN_LOOP_THREAD_X, t, qn__pb_int(pb, 0), qn__pb_int(pb, count));
  if (!loop) return;
  loop->loop.body = *body;
  qn__launch_finish(launch, loop);
}

// ---- the size of the device

int64_t qn__cores(const qn__pass_builder_t* pb) {
  return pb->options->multiprocessors > 0 ? pb->options->multiprocessors : assumed_cores;
}

int64_t qn__busy_threads(const qn__pass_builder_t* pb) {
  return qn__cores(pb) * (int64_t)pb->threads;
}

int64_t qn__fixed_grid(const qn__pass_builder_t* pb) {
  return qn__cores(pb) * blocks_per_core;
}

int64_t qn__shared_limit(const qn__pass_builder_t* pb) {
  return pb->options->max_shared_bytes ? pb->options->max_shared_bytes : assumed_shared_bytes;
}
