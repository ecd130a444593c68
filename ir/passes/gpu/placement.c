// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/placement.c: compares the costs of a thread, a block and a warp for an iteration.
//
// Costs are estimated in instructions of a thread:
//   - An access costs 1 if adjacent threads access one element or adjacent elements, and SCATTERED
//     if each thread accesses another line of memory. This decides most often. Rows are contiguous
//     for threads that share an iteration, columns for threads with an iteration each.
//   - Work that the threads of a block cannot share counts for each of them.
//   - Each exchange costs extra.
// An extent that is not constant counts as ASSUMED_TRIPS.
#include "ir/passes/gpu/placement.h"

#include "ir/passes/accesses.h"

#define ASSUMED_TRIPS 1024.0
#define SCATTERED 12.0
#define WARP_EXCHANGE 12.0  // for each thread: shuffles
#define EXCHANGE 24.0       // for each thread: shuffles, shared memory, two barriers
#define WANTED 16384.0      // threads that keep a device busy
#define LONG_ROW 512        // longer rows get a block, not a warp
#define SMALLEST_SHARE 0.5  // of the work must be shared among the threads

typedef struct work {
  const qn__lanes_t* lanes;  // NULL: every access counts one
  double total;
} work_t;

static double trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end) {
  int64_t count = qn__const_trips(begin, end);
  return count < 0 ? ASSUMED_TRIPS : (double)count;
}

static double reach(const work_t* self, const qn__ir_buffer_t* buffer,
                    qn__ir_expr_t* const* indices) {
  if (!self->lanes || qn__buf_root(buffer)->scope == QN__SCOPE_LOCAL) {
    return 1;
  }
  return qn__lanes_reach(self->lanes, buffer, indices) == QN__REACH_SCATTERED ? SCATTERED : 1;
}

typedef struct walk {
  work_t* work;
  double weight;
} walk_t;

static bool add_slot(void* context, qn__ir_expr_t** slot) {
  walk_t* self = context;
  qn__ir_expr_t* expr = *slot;
  walk_t inner = *self;
  switch (expr->kind) {
    case QN__EXPR_LOAD:
      // Indices cost nothing: they become parts of addresses.
      self->work->total += self->weight * reach(self->work, expr->load.buffer, expr->load.indices);
      return true;
    case QN__EXPR_REDUCE:
      inner.weight *= trips(expr->reduce.begin, expr->reduce.end);
      self->work->total += inner.weight;
      break;
    case QN__EXPR_OP: {
      qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
      bool is_function = rule == QN__RULE_FLOAT || rule == QN__RULE_SCALE;
      self->work->total += self->weight * (is_function ? 8 : 1);
      break;
    }
    case QN__EXPR_CAST:
    case QN__EXPR_COND:
      self->work->total += self->weight;
      break;
    default:
      break;
  }
  return qn__expr_each_child(expr, add_slot, &inner);
}

static void add_block(work_t* work, qn__ir_block_t* block, double weight) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    walk_t walk = {work, weight};
    if (stmt->kind == QN__STMT_STORE) {
      work->total += weight * reach(work, stmt->store.buffer, stmt->store.indices);
      (void)add_slot(&walk, &stmt->store.value);
    } else {
      (void)qn__stmt_each_expr(stmt, add_slot, &walk);
    }
    if (stmt->kind == QN__STMT_ATOMIC) work->total += 8 * weight;
    double inner = weight;
    if (stmt->kind == QN__STMT_LOOP) inner *= trips(stmt->loop.begin, stmt->loop.end);
    if (stmt->kind == QN__STMT_WHILE) inner *= 16;
    QN__EACH_BLOCK(stmt, nested) add_block(work, nested, inner);
  }
}

// ---- the costs of threads that share an iteration

typedef struct shared_work {
  qn__pass_builder_t* pb;
  double shared;  // divided among the threads
  double each;    // done by every thread
  double exchanges;
  int64_t longest;  // most iterations of a shared loop; INT64_MAX: not constant
  double weight;
} shared_work_t;

static void note_trips(shared_work_t* self, int64_t count) {
  if (count < 0) count = INT64_MAX;
  if (count > self->longest) self->longest = count;
}

static bool shared_slot(void* context, qn__ir_expr_t** slot) {
  shared_work_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (qn__is_cooperative_reduce(expr)) {
    qn__lanes_t* lanes = qn__pb_lanes(self->pb);
    if (!lanes) return false;
    qn__lanes_enter(lanes, expr->reduce.reduce_var, NULL);
    for (const qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      qn__lanes_let(lanes, let);
    }
    work_t work = {lanes, 0};
    walk_t walk = {&work, self->weight};
    (void)add_slot(&walk, slot);
    self->shared += work.total;
    self->exchanges += self->weight;
    note_trips(self, qn__const_trips(expr->reduce.begin, expr->reduce.end));
    return true;
  }
  if (expr->kind == QN__EXPR_REDUCE) {
    work_t work = {NULL, 0};
    walk_t walk = {&work, self->weight};
    (void)add_slot(&walk, slot);
    self->each += work.total;
    return true;
  }
  if (expr->kind == QN__EXPR_OP || expr->kind == QN__EXPR_LOAD) self->each += self->weight;
  if (expr->kind == QN__EXPR_LOAD) return true;
  return qn__expr_each_child(expr, shared_slot, self);
}

static void shared_loop(shared_work_t* self, qn__ir_stmt_t* stmt) {
  qn__lanes_t* lanes = qn__pb_lanes(self->pb);
  if (!lanes) return;
  // Assumes that the innermost loop of a perfect nest counts fastest, which is nearly always true.
  qn__ir_stmt_t* inner = stmt;
  double weight = self->weight * trips(stmt->loop.begin, stmt->loop.end);
  int64_t all = qn__const_trips(stmt->loop.begin, stmt->loop.end);
  while (inner->loop.body.first && !inner->loop.body.first->next &&
         qn__is_independent_loop(inner->loop.body.first)) {
    inner = inner->loop.body.first;
    weight *= trips(inner->loop.begin, inner->loop.end);
    int64_t count = qn__const_trips(inner->loop.begin, inner->loop.end);
    all = count < 0 || all < 0 || __builtin_mul_overflow(all, count, &all) ? -1 : all;
  }
  qn__lanes_enter(lanes, inner->loop.var, &inner->loop.body);
  work_t work = {lanes, 0};
  add_block(&work, &inner->loop.body, weight);
  self->shared += work.total + weight;
  self->exchanges += self->weight / 2;  // it may need a barrier
  note_trips(self, all);
}

static void shared_block(shared_work_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__is_cooperative_loop(stmt)) {
      shared_loop(self, stmt);
      continue;
    }
    self->each += self->weight;
    (void)qn__stmt_each_expr(stmt, shared_slot, self);
    double outer = self->weight;
    if (stmt->kind == QN__STMT_LOOP) self->weight *= trips(stmt->loop.begin, stmt->loop.end);
    if (stmt->kind == QN__STMT_WHILE) self->weight *= 16;
    QN__EACH_BLOCK(stmt, inner) shared_block(self, inner);
    self->weight = outer;
  }
}

// ---- may a warp do it?

static bool needs_a_block(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC
             ? stmt->alloc.buffer->scope == QN__SCOPE_LOCAL
             : stmt->kind == QN__STMT_ATOMIC || stmt->kind == QN__STMT_WHILE;
}

// Counts how often threads may store to an element of a buffer. A shared loop gives every element
// to one thread. A serial loop around a shared one counts twice, unless its iterations are
// independent: it may give one element to different threads.
static uint32_t count_stores(qn__pass_builder_t* pb, qn__ir_block_t* block,
                             const qn__ir_buffer_t* root) {
  uint32_t count = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_shared = qn__is_cooperative_loop(stmt);
    qn__ir_accesses_t access =
        is_shared ? qn__accesses_of_stmt(pb->arena, stmt) : qn__accesses_of_own(pb->arena, stmt);
    for (const qn__ir_buffer_set_t* each = access.writes; each; each = each->next) {
      count += each->root == root;
    }
    if (is_shared) continue;
    bool is_round = stmt->kind == QN__STMT_LOOP && !qn__is_independent_loop(stmt) &&
                    qn__block_any(&stmt->loop.body, qn__is_cooperative_loop);
    uint32_t max_inner = 0;  // the program takes one of two branches
    QN__EACH_BLOCK(stmt, nested) {
      uint32_t inner = count_stores(pb, nested, root);
      if (inner > max_inner) max_inner = inner;
    }
    count += is_round ? 2 * max_inner : max_inner;
  }
  return count;
}

// Returns true if no written element is accessed again: a warp then needs no barrier.
static bool fits_a_warp(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  if (qn__block_any(block, needs_a_block)) return false;
  qn__ir_accesses_t access = qn__accesses_of_block(pb->arena, block);
  if (qn__buffer_sets_meet(access.reads, access.writes)) return false;
  for (const qn__ir_buffer_set_t* w = access.writes; w; w = w->next) {
    if (count_stores(pb, block, w->root) > 1) return false;
  }
  return true;
}

static int64_t local_bytes(qn__ir_block_t* block) {
  uint64_t bytes = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_LOCAL) {
      uint64_t size = qn_dtype_size_bytes(stmt->alloc.buffer->dtype);
      for (uint32_t d = 0; d < stmt->alloc.buffer->rank; ++d) {
        int64_t extent = 1;
        (void)qn__expr_const_int(stmt->alloc.buffer->shape[d], &extent);
        size *= (uint64_t)extent;
      }
      bytes += size;
    }
    QN__EACH_BLOCK(stmt, inner) bytes += (uint64_t)local_bytes(inner);
  }
  return (int64_t)bytes;
}

static bool is_of_block(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.is_of_block;
}

static double busy(double threads) {
  return threads >= WANTED || threads < 1 ? 1 : WANTED / threads;
}

qn__placement_t qn__place_nest(qn__pass_builder_t* pb, qn__nest_t* nest) {
  const qn__placement_t single = {QN__PLACE_THREAD, 0};
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes || !qn__mark_cooperative(pb, &nest->body, false)) return single;
  if (local_bytes(&nest->body) > qn__shared_limit(pb)) return single;
  int64_t iterations = qn__nest_trips(nest);
  // The cost of a thread for each iteration.
  qn__lanes_enter(lanes, qn__nest_fastest(nest)->loop.var, &nest->lets);
  qn__lanes_add(lanes, &nest->body);
  work_t work = {lanes, 0};
  add_block(&work, &nest->body, 1);
  // The cost of a block or a warp for each iteration.
  shared_work_t coop = {.pb = pb, .weight = 1};
  shared_block(&coop, &nest->body);
  bool has_choice = !qn__block_any(&nest->body, is_of_block);
  bool is_small =
      coop.longest < pb->warp_size || coop.shared < SMALLEST_SHARE * (coop.shared + coop.each);
  if (is_small && has_choice) return single;
  double threads = pb->threads;
  bool is_short = coop.longest <= LONG_ROW;
  bool is_warp = is_short && pb->threads >= pb->warp_size && fits_a_warp(pb, &nest->body) &&
                 qn__mark_cooperative(pb, &nest->body, true);
  if (is_warp) {
    threads = pb->warp_size;
  } else if (coop.longest < (int64_t)pb->threads) {
    threads = pb->warp_size;
    while (threads < (double)coop.longest && threads < pb->threads) threads *= 2;
  }
  assert(threads >= pb->warp_size || pb->threads < pb->warp_size);
  double exchange = is_warp ? WARP_EXCHANGE : EXCHANGE;
  double cost_single = work.total;
  double cost_shared = coop.shared + threads * (coop.each + exchange * coop.exchanges);
  if (iterations >= 0) {
    cost_single *= busy((double)iterations);
    cost_shared *= busy((double)iterations * threads);
  }
  if (cost_shared >= cost_single && has_choice) return single;
  if (is_warp) return (qn__placement_t){QN__PLACE_WARP, pb->threads};
  (void)qn__mark_cooperative(pb, &nest->body, false);
  return (qn__placement_t){QN__PLACE_BLOCK, (int64_t)threads};
}
