// ir/passes/map_gpu_team.c: rewrites a piece of the program, written for one thread, for a team.
//
// 1. qn__gmap_plan marks loops and reductions that are spread. 2. Local buffers that spread code
// writes to become shared. 3. One walk gives every statement to all threads, or to the leader, with
// barriers where they must meet. The rules stand in map_gpu_team.h. Thread rule: one thread per
// body. Read next: map_gpu_spread.c.
#include "ir/passes/map_gpu_team.h"

enum {
  shortest_reduction = 16,  // that is spread
  shortest_outer = 32,      // of a loop that is spread though there is more to spread inside
};

// ---- 1. the plan

static bool is_thread_loop(const qn__stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind);
}

static bool is_exact_loop(const qn__stmt_t* stmt) {
  return is_thread_loop(stmt) && !qn__gmap_is_free(stmt);
}

// A constant count of iterations; -1: unknown.
static int64_t trips(const qn__expr_t* begin, const qn__expr_t* end) {
  int64_t first, last, extent;
  if (!qn__expr_const_int(begin, &first) || !qn__expr_const_int(end, &last)) return -1;
  if (__builtin_sub_overflow(last, first, &extent)) return -1;
  return extent > 0 ? extent : 0;
}

typedef struct plan {
  qn__gmap_t* map;
  bool is_warp;
  bool has_work;
  uint32_t depth;  // of control flow
} plan_t;

static bool plan_slot(void* context, qn__expr_t** slot) {
  plan_t* self = context;
  qn__expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    int64_t count = trips(expr->reduce.begin, expr->reduce.end);
    bool is_spread = expr->reduce.reduce_kind != QN_REDUCE_PROD &&
                     (count < 0 || count >= shortest_reduction) &&
                     !(self->is_warp && self->depth > 0);
    expr->reduce.lane_count = is_spread ? QN__GMAP_SPREAD : 0;
    self->has_work = self->has_work || is_spread;
    return true;  // what is inside belongs to one thread
  }
  bool is_lazy =
      expr->kind == QN__EXPR_COND ||
      (expr->kind == QN__EXPR_OP && (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR));
  if (is_lazy) return plan_slot(self, &expr->args[0]);
  return qn__expr_each_child(expr, plan_slot, self);
}

static bool find_reduce(void* found, qn__expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) *(bool*)found = true;
  return !*(bool*)found && qn__expr_each_child(*slot, find_reduce, found);
}

// Is there more to spread inside than the loop itself is worth?
static bool has_inner_work(qn__block_t* block) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_found = false;
    (void)qn__stmt_each_expr(stmt, find_reduce, &is_found);
    if (is_found || qn__gmap_is_free(stmt)) return true;
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (has_inner_work(blocks[i])) return true;
    }
  }
  return false;
}

static bool is_spread_loop(const qn__stmt_t* stmt, qn__block_t* body) {
  if (!qn__gmap_is_free(stmt) || qn__gmap_any_stmt(body, is_exact_loop)) return false;
  int64_t count = trips(stmt->loop.begin, stmt->loop.end);
  if (count < 0 || count >= shortest_outer) return true;
  // A perfect nest is spread as a whole.
  const qn__stmt_t* only = body->first;
  bool is_perfect = only && !only->next && qn__gmap_is_free(only);
  return is_perfect || !has_inner_work(body);
}

static void plan_block(plan_t* self, qn__block_t* block) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_WHILE && stmt->kind != QN__STMT_ALLOC) {
      (void)qn__stmt_each_expr(stmt, plan_slot, self);
    }
    if (stmt->kind == QN__STMT_LOOP && is_spread_loop(stmt, &stmt->loop.body)) {
      stmt->loop.lane_count = QN__GMAP_SPREAD;
      self->has_work = true;
      continue;
    }
    if (is_exact_loop(stmt)) {
      self->has_work = true;
      continue;
    }
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    ++self->depth;
    for (size_t i = 0; i < count; ++i) plan_block(self, blocks[i]);
    --self->depth;
  }
}

bool qn__gmap_plan(qn__gmap_t* map, qn__block_t* block, bool is_warp) {
  plan_t self = {map, is_warp, false, 0};
  plan_block(&self, block);
  return self.has_work;
}

// ---- the team's threads

static bool same_nest(const qn__stmt_t* a, const qn__stmt_t* const axes[3]) {
  const qn__stmt_t* mine = axes[a->loop.kind - QN_LOOP_THREAD_X];
  return mine && qn__expr_equal(a->loop.begin, mine->loop.begin) &&
         qn__expr_equal(a->loop.end, mine->loop.end);
}

static bool adopt_nest(qn__gmap_team_t* team, qn__stmt_t* outermost) {
  qn__gmap_t* map = team->map;
  qn__stmt_t* innermost = qn__gmap_straighten_threads(map, outermost);
  if (!innermost) {
    qn__gmap_refuse(map,
                    "threads of '%s' meet inside of another thread loop, beside which there are "
                    "other statements; move them into the inner loop",
                    outermost->loop.var->name);
    return false;
  }
  bool is_first = !team->axes[0] && !team->axes[1] && !team->axes[2];
  uint32_t count = 0, mine = 0;
  for (int i = 0; i < 3; ++i) mine += team->axes[i] != NULL;
  for (qn__stmt_t* loop = outermost;; loop = loop->loop.body.first) {
    ++count;
    if (is_first) {
      team->axes[loop->loop.kind - QN_LOOP_THREAD_X] = loop;
    } else if (!same_nest(loop, team->axes)) {
      count = 99;
      break;
    }
    if (loop == innermost) break;
  }
  if (is_first || count == mine) return true;
  qn__gmap_refuse(map,
                  "thread loops of one block whose threads meet have different extents: '%s' is "
                  "not like the first of them",
                  outermost->loop.var->name);
  return false;
}

static bool find_exact(qn__gmap_team_t* team, qn__block_t* block) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (is_exact_loop(stmt)) {
      if (!adopt_nest(team, stmt)) return false;
      continue;
    }
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (!find_exact(team, blocks[i])) return false;
    }
  }
  return true;
}

// Threads along an axis. Where a nest may be empty there is one all the same, for what else stands
// at the block level; the nest itself is tested (run_exact).
static qn__expr_t* axis_extent(qn__gmap_t* map, const qn__stmt_t* axis) {
  qn__expr_t* extent = qn__gmap_extent(map, axis);
  int64_t constant;
  if (extent && qn__expr_const_int(extent, &constant)) {
    return constant > 0 ? extent : qn__gmap_int(map, 1);
  }
  qn__expr_t* plain = qn__gmap_op(map, QN_OP_SUB, qn__gmap_copy(map, axis->loop.end),
                                  qn__gmap_copy(map, axis->loop.begin));
  return extent ? qn__gmap_op(map, QN_OP_MAX, plain, qn__gmap_int(map, 1)) : NULL;
}

bool qn__gmap_team_init(qn__gmap_team_t* team, qn__gmap_t* map, qn__block_t* block,
                        int64_t threads) {
  *team = (qn__gmap_team_t){.map = map};
  if (!find_exact(team, block)) return false;
  qn__expr_t* count = NULL;
  for (int i = 0; i < 3; ++i) {
    if (!team->axes[i]) continue;
    team->axis_vars[i] =
        qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, team->axes[i]->loop.var->name);
    qn__expr_t* extent = axis_extent(map, team->axes[i]);
    count = count ? qn__gmap_op(map, QN_OP_MUL, count, extent) : extent;
  }
  int64_t constant;
  if (count && qn__expr_const_int(count, &constant) && constant > (int64_t)map->max_threads) {
    qn__gmap_refuse(map, "a block of %lld threads that meet; the target has at most %u",
                    (long long)constant, map->max_threads);
    return false;
  }
  team->count = count ? count : qn__gmap_int(map, threads);
  if (!count) team->axis_vars[0] = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  return !qn__gmap_stopped(map);
}

static bool is_never_empty(const qn__stmt_t* loop) {
  return trips(loop->loop.begin, loop->loop.end) > 0;
}

static qn__expr_t* axis_end(qn__gmap_t* map, const qn__stmt_t* axis) {
  if (is_never_empty(axis)) return qn__gmap_copy(map, axis->loop.end);
  return qn__gmap_op(map, QN_OP_ADD, axis_extent(map, axis), qn__gmap_copy(map, axis->loop.begin));
}

qn__stmt_t* qn__gmap_team_loops(qn__gmap_team_t* team, qn__block_t* body) {
  static const qn_loop_kind_t kinds[3] = {QN_LOOP_THREAD_X, QN_LOOP_THREAD_Y, QN_LOOP_THREAD_Z};
  qn__gmap_t* map = team->map;
  qn__stmt_t* inner = NULL;
  for (int i = 0; i < 3; ++i) {
    if (!team->axis_vars[i]) continue;
    const qn__stmt_t* axis = team->axes[i];
    qn__expr_t* begin = axis ? qn__gmap_copy(map, axis->loop.begin) : qn__gmap_int(map, 0);
    qn__expr_t* end = axis ? axis_end(map, axis) : qn__gmap_copy(map, team->count);
    qn__stmt_t* loop = qn__gmap_loop(map, kinds[i], team->axis_vars[i], begin, end);
    if (!loop) return NULL;
    loop->loop.body = inner ? qn__block_of(inner) : *body;
    inner = loop;
  }
  return inner;
}

// The number of the thread: x counts fastest.
static void number_threads(qn__gmap_team_t* team, qn__block_t* out) {
  qn__gmap_t* map = team->map;
  if (team->thread) return;
  qn__expr_t* value = NULL;
  for (int i = 2; i >= 0; --i) {
    if (!team->axis_vars[i]) continue;
    qn__expr_t* place = qn__gmap_use(map, team->axis_vars[i]);
    if (team->axes[i]) {
      place = qn__gmap_op(map, QN_OP_SUB, place, qn__gmap_copy(map, team->axes[i]->loop.begin));
      if (value) value = qn__gmap_op(map, QN_OP_MUL, value, axis_extent(map, team->axes[i]));
    }
    value = value ? qn__gmap_op(map, QN_OP_ADD, value, place) : place;
  }
  if (value && value->kind == QN__EXPR_VAR) {
    team->thread = value->var;
  } else {
    team->thread = qn__gmap_let(map, out, "thread", value);
  }
}

// ---- 2. local buffers that become shared

static void share_buffer(qn__buf_t* buffer) {
  buffer = qn__buf_root_mutable(buffer);
  if (buffer->scope == QN__SCOPE_LOCAL) buffer->user = buffer;
}

// Marks what spread code writes to, and what atomics do.
static void find_shared(qn__block_t* block, bool is_spread) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE && is_spread) share_buffer(stmt->store.buffer);
    if (stmt->kind == QN__STMT_ATOMIC) share_buffer(stmt->atomic.buffer);
    bool is_inside = is_spread || is_exact_loop(stmt) ||
                     (stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD);
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) find_shared(blocks[i], is_inside);
  }
}

// What the spread code declares itself stays its own.
static void keep_private(qn__block_t* block, bool is_spread) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_ALLOC && is_spread) stmt->alloc.buffer->user = NULL;
    bool is_inside = is_spread || is_exact_loop(stmt) ||
                     (stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD);
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) keep_private(blocks[i], is_inside);
  }
}

// Moves shared buffers to the block level.
static void move_shared(qn__gmap_team_t* team, qn__block_t* block) {
  qn__block_t result = {NULL, NULL};
  qn__stmt_t* next;
  for (qn__stmt_t* stmt = block->first; stmt; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) move_shared(team, blocks[i]);
    qn__buf_t* buffer = stmt->kind == QN__STMT_ALLOC ? stmt->alloc.buffer : NULL;
    if (buffer && buffer->scope == QN__SCOPE_LOCAL && buffer->user) {
      buffer->user = NULL;
      buffer->scope = QN__SCOPE_SHARED;
    }
    if (buffer && buffer->scope == QN__SCOPE_SHARED) {
      qn__block_append(&team->level, stmt);
    } else {
      qn__block_append(&result, stmt);
    }
  }
  *block = result;
}

// ---- 3. statements

static void run_block(qn__gmap_team_t* team, qn__block_t* block, qn__block_t* out);

// `if` the thread is the leader, of a warp that has work.
static qn__stmt_t* for_leader(qn__gmap_team_t* team) {
  qn__gmap_t* map = team->map;
  qn__expr_t* condition =
      qn__gmap_op(map, QN_OP_EQ, qn__gmap_use(map, team->thread), qn__gmap_int(map, 0));
  if (team->is_used) {
    condition = qn__gmap_op(map, QN_OP_LOGIC_AND, condition, qn__gmap_use(map, team->is_used));
  }
  return qn__gmap_if(map, condition);
}

static void by_leader(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  qn__block_t alone = qn__block_of(stmt);
  qn__gmap_serialise(&alone);
  qn__gmap_sync(team, out, qn__gmap_access_of_stmt(team->map, stmt), true);
  qn__stmt_t* test = for_leader(team);
  if (!test) return;
  test->if_.then_block = alone;
  qn__block_append(out, test);
}

static void by_all(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  qn__block_t alone = qn__block_of(stmt);
  qn__gmap_serialise(&alone);
  qn__gmap_sync(team, out, qn__gmap_access_of_stmt(team->map, stmt), false);
  qn__block_append(out, stmt);
}

static bool spread_own(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out);

typedef struct own {
  qn__gmap_team_t* team;
  qn__block_t* out;
} own_t;

static bool own_slot(void* context, qn__expr_t** slot) {
  own_t* self = context;
  return qn__gmap_spread_expr(self->team, self->out, slot);
}

// Spreads the reductions in the statement's own expressions.
static bool spread_own(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  own_t own = {team, out};
  qn__gmap_access_t access = qn__gmap_access_of_own(team->map, stmt);
  access.writes = NULL;  // what the statement stores it stores later
  qn__gmap_sync(team, out, access, false);
  return qn__stmt_each_expr(stmt, own_slot, &own);
}

// ---- what is inside of a statement

typedef struct content {
  bool has_spread;   // loops or reductions that are spread, or exact thread loops
  bool has_private;  // stores to local buffers, its own too
  bool has_memory;   // stores to other memory, or atomics
} content_t;

static bool find_spread(void* found, qn__expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE && (*slot)->reduce.lane_count == QN__GMAP_SPREAD) {
    *(bool*)found = true;
  }
  return !*(bool*)found && qn__expr_each_child(*slot, find_spread, found);
}

static void look_into(content_t* self, qn__block_t* block) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, find_spread, &self->has_spread);
    if (stmt->kind == QN__STMT_LOOP &&
        (stmt->loop.lane_count == QN__GMAP_SPREAD || is_exact_loop(stmt))) {
      self->has_spread = true;
    }
    const qn__buf_t* target = NULL;
    if (stmt->kind == QN__STMT_STORE) target = qn__buf_root(stmt->store.buffer);
    if (stmt->kind == QN__STMT_ATOMIC) target = qn__buf_root(stmt->atomic.buffer);
    if (target && target->scope != QN__SCOPE_LOCAL) self->has_memory = true;
    if (target && target->scope == QN__SCOPE_LOCAL) self->has_private = true;
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) look_into(self, blocks[i]);
  }
}

static void run_if(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  if (!spread_own(team, stmt, out)) return;
  qn__gmap_sync_t before = team->sync;
  qn__block_t then_block = stmt->if_.then_block, else_block = stmt->if_.else_block;
  stmt->if_.then_block = stmt->if_.else_block = (qn__block_t){NULL, NULL};
  run_block(team, &then_block, &stmt->if_.then_block);
  qn__gmap_sync_t after = team->sync;
  team->sync = before;
  run_block(team, &else_block, &stmt->if_.else_block);
  team->sync = qn__gmap_sync_join(team->map, after, team->sync);
  qn__block_append(out, stmt);
}

// A loop that all threads run together, `for` or `while`.
static void run_rounds(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* body,
                       qn__block_t* out) {
  if (!spread_own(team, stmt, out)) return;
  if (stmt->kind == QN__STMT_LOOP) {
    stmt->loop.lane_count = 0;
    if (stmt->loop.kind != QN_LOOP_UNROLL) stmt->loop.kind = QN_LOOP_SERIAL;
  }
  qn__gmap_sync_t before = team->sync;
  bool has_writes = qn__gmap_access_of_block(team->map, body).writes != NULL;
  qn__block_t inner = *body;
  *body = (qn__block_t){NULL, NULL};
  run_block(team, &inner, body);
  if (has_writes && !team->is_warp) {
    qn__gmap_barrier(team, body);
    if (stmt->kind == QN__STMT_WHILE) {
      team->sync.by_all = qn__gmap_access_of_own(team->map, stmt);  // the condition, once more
    }
  }
  team->sync = qn__gmap_sync_join(team->map, before, team->sync);
  qn__block_append(out, stmt);
}

static void run_exact(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  qn__gmap_t* map = team->map;
  qn__block_t alone = qn__block_of(stmt);
  // Behind it nothing is known of where its threads met last.
  qn__gmap_access_t access = qn__gmap_access_of_block(map, &alone);
  qn__gmap_sync(team, out, access, false);
  qn__block_t body = alone, lets = {NULL, NULL};
  qn__expr_t* runs = NULL;  // the same for all threads
  while (body.first && body.first == body.last && is_thread_loop(body.first)) {
    qn__stmt_t* loop = body.first;
    if (!is_never_empty(loop)) {
      qn__expr_t* each = qn__gmap_op(map, QN_OP_LT, qn__gmap_copy(map, loop->loop.begin),
                                     qn__gmap_copy(map, loop->loop.end));
      runs = runs ? qn__gmap_op(map, QN_OP_LOGIC_AND, runs, each) : each;
    }
    qn__gmap_let_var(map, &lets, loop->loop.var,
                     qn__gmap_use(map, team->axis_vars[loop->loop.kind - QN_LOOP_THREAD_X]));
    body = loop->loop.body;
  }
  qn__gmap_serialise(&body);
  qn__block_splice(&lets, &body);
  if (!runs) {
    qn__block_splice(out, &lets);
    return;
  }
  qn__stmt_t* test = qn__gmap_if(map, runs);
  if (!test) return;
  test->if_.then_block = lets;
  qn__block_append(out, test);
}

// The leader's old value reaches the others through shared memory.
static void run_atomic(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  qn__gmap_t* map = team->map;
  qn__var_t* result = stmt->atomic.result;
  if (!spread_own(team, stmt, out)) return;
  if (!result) {
    by_leader(team, stmt, out);
    return;
  }
  qn__buf_t* cell = qn__gmap_cell(map, &team->level, QN__SCOPE_SHARED, result->dtype, result->name);
  qn__var_t* old = qn__gmap_var(map, QN__VAR_ATOMIC, result->dtype, result->name);
  if (!cell || !old) return;
  stmt->atomic.result = old;
  qn__gmap_access_t access = qn__gmap_access_of_stmt(map, stmt);
  qn__stmt_t* store = qn__gmap_store(map, cell, qn__gmap_use(map, old));
  qn__stmt_t* test = for_leader(team);
  if (!store || !test) return;
  qn__gmap_roots_t cell_root = {cell, access.writes};
  qn__gmap_roots_t* node = QN__ARENA_NEW(map->arena, qn__gmap_roots_t);
  if (!node) return;
  *node = cell_root;
  access.writes = node;
  qn__gmap_sync(team, out, access, true);
  qn__block_append(&test->if_.then_block, stmt);
  qn__block_append(&test->if_.then_block, store);
  qn__block_append(out, test);
  qn__block_t let = {NULL, NULL};
  qn__gmap_let_var(map, &let, result, qn__gmap_load(map, cell));
  if (let.first) by_all(team, let.first, out);
}

static void run_store(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  bool is_private = qn__buf_root(stmt->store.buffer)->scope == QN__SCOPE_LOCAL;
  bool has_spread = false;
  (void)qn__stmt_each_expr(stmt, find_spread, &has_spread);
  if (has_spread && !spread_own(team, stmt, out)) return;
  if (is_private) {
    by_all(team, stmt, out);
  } else {
    by_leader(team, stmt, out);
  }
}

static void run_stmt(qn__gmap_team_t* team, qn__stmt_t* stmt, qn__block_t* out) {
  switch (stmt->kind) {
    case QN__STMT_LET:
    case QN__STMT_ASSERT:
    case QN__STMT_ALLOC:
      if (spread_own(team, stmt, out)) qn__block_append(out, stmt);
      return;
    case QN__STMT_STORE:
      run_store(team, stmt, out);
      return;
    case QN__STMT_ATOMIC:
      run_atomic(team, stmt, out);
      return;
    case QN__STMT_BARRIER:
      qn__gmap_barrier(team, out);
      return;
    default:
      break;
  }
  if (stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD) {
    if (!spread_own(team, stmt, out)) return;
    qn__block_t alone = qn__block_of(stmt);
    qn__gmap_sync(team, out, qn__gmap_access_of_block(team->map, &alone), false);
    qn__gmap_spread_loop(team, out, stmt);
    return;
  }
  if (is_exact_loop(stmt)) {
    run_exact(team, stmt, out);
    return;
  }
  content_t content = {false, false, false};
  qn__block_t alone = qn__block_of(stmt);
  look_into(&content, &alone);
  if (!content.has_spread && !content.has_memory) {
    by_all(team, stmt, out);
  } else if (!content.has_spread && !content.has_private) {
    by_leader(team, stmt, out);
  } else if (stmt->kind == QN__STMT_IF) {
    run_if(team, stmt, out);
  } else if (stmt->kind == QN__STMT_WHILE) {
    run_rounds(team, stmt, &stmt->while_.body, out);
  } else {
    run_rounds(team, stmt, &stmt->loop.body, out);
  }
}

static void run_block(qn__gmap_team_t* team, qn__block_t* block, qn__block_t* out) {
  qn__stmt_t* next;
  for (qn__stmt_t* stmt = block->first; stmt && !qn__gmap_stopped(team->map); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    run_stmt(team, stmt, out);
  }
}

void qn__gmap_team_run(qn__gmap_team_t* team, qn__block_t* block, qn__block_t* out) {
  number_threads(team, out);
  find_shared(block, false);
  keep_private(block, false);
  move_shared(team, block);
  run_block(team, block, out);
}
