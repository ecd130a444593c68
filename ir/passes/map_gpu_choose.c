// ir/passes/map_gpu_choose.c: one thread for an iteration, or a block, or a warp?
//
// What an iteration costs is estimated for both ways, in instructions of a thread. An access costs
// one where the threads that run side by side touch one element or neighbouring ones, and
// `scattered` where each opens a line of memory of its own: this is what decides most often. (Rows
// are contiguous for the threads of a team, columns for those of a flat grid.) A team pays for what
// it cannot spread as many times as it has threads, and for each exchange. Nothing here looks at
// the values of a call; extents that are not constant count as long. Thread rule: one thread per
// body. Read next: map_gpu_flat.c.
#include "ir/passes/map_gpu_team.h"

#define ASSUMED_TRIPS 1024.0
#define SCATTERED 12.0
#define WARP_EXCHANGE 12.0  // of a thread: shuffles
#define EXCHANGE 24.0       // of a thread: shuffles, shared memory, two barriers
#define WANTED 16384.0      // threads that keep a device busy
#define LONG_ROW 512        // from here on a block, not a warp, has an iteration
#define SMALLEST_SHARE 0.5  // of the work that must be spread

typedef struct work {
  const qn__lanes_t* lanes;  // NULL: every access counts one
  double total;
} work_t;

static double trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end) {
  int64_t count = qn__gmap_trips(begin, end);
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
      // Indices fold into addresses.
      self->work->total += self->weight * reach(self->work, expr->load.buffer, expr->load.indices);
      return true;
    case QN__EXPR_REDUCE:
      inner.weight *= trips(expr->reduce.begin, expr->reduce.end);
      self->work->total += inner.weight;
      break;
    case QN__EXPR_OP:
      self->work->total += self->weight * (qn__op_info(expr->op)->rule == QN__RULE_FLOAT ? 8 : 1);
      break;
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
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) add_block(work, blocks[i], inner);
  }
}

// ---- a team's costs

typedef struct team_work {
  qn__gmap_t* map;
  double spread;    // divided among the threads
  double together;  // done by each
  double exchanges;
  int64_t longest;  // constant trips of what is spread; INT64_MAX: not constant
  double weight;
} team_work_t;

static void note_trips(team_work_t* self, int64_t count) {
  if (count < 0) count = INT64_MAX;
  if (count > self->longest) self->longest = count;
}

static bool team_slot(void* context, qn__ir_expr_t** slot) {
  team_work_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE && expr->reduce.lane_count == QN__GMAP_SPREAD) {
    qn__lanes_t* lanes = qn__gmap_lanes(self->map);
    if (!lanes) return false;
    qn__lanes_enter(lanes, expr->reduce.reduce_var, NULL);
    for (const qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      qn__lanes_let(lanes, let);
    }
    work_t work = {lanes, 0};
    walk_t walk = {&work, self->weight};
    (void)add_slot(&walk, slot);
    self->spread += work.total;
    self->exchanges += self->weight;
    note_trips(self, qn__gmap_trips(expr->reduce.begin, expr->reduce.end));
    return true;
  }
  if (expr->kind == QN__EXPR_REDUCE) {
    work_t work = {NULL, 0};
    walk_t walk = {&work, self->weight};
    (void)add_slot(&walk, slot);
    self->together += work.total;
    return true;
  }
  if (expr->kind == QN__EXPR_OP || expr->kind == QN__EXPR_LOAD) self->together += self->weight;
  if (expr->kind == QN__EXPR_LOAD) return true;
  return qn__expr_each_child(expr, team_slot, self);
}

static void spread_loop_work(team_work_t* self, qn__ir_stmt_t* stmt) {
  qn__lanes_t* lanes = qn__gmap_lanes(self->map);
  if (!lanes) return;
  // The innermost loop of a perfect nest counts fastest, or near enough.
  qn__ir_stmt_t* inner = stmt;
  double weight = self->weight * trips(stmt->loop.begin, stmt->loop.end);
  int64_t all = qn__gmap_trips(stmt->loop.begin, stmt->loop.end);
  while (inner->loop.body.first && !inner->loop.body.first->next &&
         qn__gmap_is_free(inner->loop.body.first)) {
    inner = inner->loop.body.first;
    weight *= trips(inner->loop.begin, inner->loop.end);
    int64_t count = qn__gmap_trips(inner->loop.begin, inner->loop.end);
    all = count < 0 || all < 0 || __builtin_mul_overflow(all, count, &all) ? -1 : all;
  }
  qn__lanes_enter(lanes, inner->loop.var, &inner->loop.body);
  work_t work = {lanes, 0};
  add_block(&work, &inner->loop.body, weight);
  self->spread += work.total + weight;
  self->exchanges += self->weight / 2;  // it may need a barrier
  note_trips(self, all);
}

static void team_block(team_work_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD) {
      spread_loop_work(self, stmt);
      continue;
    }
    self->together += self->weight;
    (void)qn__stmt_each_expr(stmt, team_slot, self);
    double outer = self->weight;
    if (stmt->kind == QN__STMT_LOOP) self->weight *= trips(stmt->loop.begin, stmt->loop.end);
    if (stmt->kind == QN__STMT_WHILE) self->weight *= 16;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) team_block(self, blocks[i]);
    self->weight = outer;
  }
}

// ---- may a warp do it?

static bool is_spread_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD;
}

static bool needs_a_block(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC
             ? stmt->alloc.buffer->scope == QN__SCOPE_LOCAL
             : stmt->kind == QN__STMT_ATOMIC || stmt->kind == QN__STMT_WHILE;
}

// How often threads come to store to a buffer. A loop that is spread gives every element to one
// thread. One that all go through in rounds, with such a loop inside, counts twice: its rounds may
// give an element to different threads, unless they are independent.
static uint32_t count_stores(qn__gmap_t* map, qn__ir_block_t* block, const qn__ir_buffer_t* root) {
  uint32_t count = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_spread = is_spread_loop(stmt);
    qn__gmap_access_t access =
        is_spread ? qn__gmap_access_of_stmt(map, stmt) : qn__gmap_access_of_own(map, stmt);
    for (const qn__gmap_roots_t* each = access.writes; each; each = each->next) {
      count += each->root == root;
    }
    if (is_spread) continue;
    bool is_round = stmt->kind == QN__STMT_LOOP && !qn__gmap_is_free(stmt) &&
                    qn__gmap_any_stmt(&stmt->loop.body, is_spread_loop);
    qn__ir_block_t* blocks[2];
    size_t block_count = qn__stmt_blocks(stmt, blocks);
    uint32_t most = 0;  // of two branches one is taken
    for (size_t i = 0; i < block_count; ++i) {
      uint32_t inner = count_stores(map, blocks[i], root);
      if (inner > most) most = inner;
    }
    count += is_round ? 2 * most : most;
  }
  return count;
}

// Nothing that is written is read or written again: warps of a block never meet.
static bool fits_a_warp(qn__gmap_t* map, qn__ir_block_t* block) {
  if (qn__gmap_any_stmt(block, needs_a_block)) return false;
  qn__gmap_access_t access = qn__gmap_access_of_block(map, block);
  for (const qn__gmap_roots_t* w = access.writes; w; w = w->next) {
    for (const qn__gmap_roots_t* r = access.reads; r; r = r->next) {
      if (r->root == w->root) return false;
    }
    if (count_stores(map, block, w->root) > 1) return false;
  }
  return true;
}

static uint32_t local_bytes(qn__ir_block_t* block) {
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
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) bytes += local_bytes(blocks[i]);
  }
  return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static double busy(double threads) {
  return threads >= WANTED || threads < 1 ? 1 : WANTED / threads;
}

qn__gmap_choice_t qn__gmap_choose(qn__gmap_t* map, qn__gmap_nest_t* nest) {
  qn__gmap_choice_t flat = {QN__GMAP_FLAT, 0};
  qn__lanes_t* lanes = qn__gmap_lanes(map);
  if (!lanes || !qn__gmap_plan(map, &nest->body, false)) return flat;
  uint32_t limit = map->options->max_shared_bytes ? map->options->max_shared_bytes : 16384;
  if (local_bytes(&nest->body) > limit) return flat;
  int64_t iterations = 1;
  for (uint32_t i = 0; i < nest->count; ++i) {
    int64_t count = qn__gmap_trips(nest->loops[i]->loop.begin, nest->loops[i]->loop.end);
    if (count < 0 || __builtin_mul_overflow(iterations, count, &iterations)) {
      iterations = -1;
      break;
    }
  }
  // One thread each.
  qn__lanes_enter(lanes, nest->loops[nest->order[nest->count - 1]]->loop.var, &nest->lets);
  qn__lanes_add(lanes, &nest->body);
  work_t work = {lanes, 0};
  add_block(&work, &nest->body, 1);
  // A team each.
  team_work_t team = {.map = map, .weight = 1};
  team_block(&team, &nest->body);
  if (team.longest < map->warp_size ||
      team.spread < SMALLEST_SHARE * (team.spread + team.together)) {
    return flat;
  }
  double threads = map->threads;
  bool is_short = team.longest <= LONG_ROW;
  bool is_warp = is_short && map->threads >= map->warp_size && fits_a_warp(map, &nest->body) &&
                 qn__gmap_plan(map, &nest->body, true);
  if (is_warp) {
    threads = map->warp_size;
  } else if (team.longest < (int64_t)map->threads) {
    threads = map->warp_size;
    while (threads < (double)team.longest && threads < map->threads) threads *= 2;
  }
  double exchange = is_warp ? WARP_EXCHANGE : EXCHANGE;
  double cost_flat = work.total;
  double cost_team = team.spread + threads * (team.together + exchange * team.exchanges);
  if (iterations >= 0) {
    cost_flat *= busy((double)iterations);
    cost_team *= busy((double)iterations * threads);
  }
  if (cost_team >= cost_flat) return flat;
  if (is_warp) return (qn__gmap_choice_t){QN__GMAP_WARP, map->threads};
  (void)qn__gmap_plan(map, &nest->body, false);
  return (qn__gmap_choice_t){QN__GMAP_BLOCK, (int64_t)threads};
}
