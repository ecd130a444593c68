// ir/passes/map_gpu_team.c: rewrites a piece of the program, written for one thread, for a team.
//
// 1. qn__gmap_plan (map_gpu_team_plan.c) has marked loops and reductions that are spread. 2. Local
// buffers that spread code writes to become shared. 3. One walk gives every statement to all
// threads, or to the leader, with barriers where they must meet. The rules stand in
// map_gpu_team.h. Thread rule: one thread per body. Read next: map_gpu_spread.c.
#include "ir/passes/map_gpu_team.h"

// ---- local buffers that become shared

static void share_buffer(qn__ir_buffer_t* buffer) {
  buffer = qn__buf_root_mutable(buffer);
  if (buffer->scope == QN__SCOPE_LOCAL) buffer->user = buffer;
}

// Marks what spread code writes to, and what atomics do.
static void find_shared(qn__ir_block_t* block, bool is_spread) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE && is_spread) share_buffer(stmt->store.buffer);
    if (stmt->kind == QN__STMT_ATOMIC) share_buffer(stmt->atomic.buffer);
    bool is_inside = is_spread || qn__gmap_is_exact(stmt) ||
                     (stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD);
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) find_shared(blocks[i], is_inside);
  }
}

// What the spread code declares itself stays its own.
static void keep_private(qn__ir_block_t* block, bool is_spread) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_ALLOC && is_spread) stmt->alloc.buffer->user = NULL;
    bool is_inside = is_spread || qn__gmap_is_exact(stmt) ||
                     (stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD);
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) keep_private(blocks[i], is_inside);
  }
}

// Moves shared buffers to the block level.
static void move_shared(qn__gmap_team_t* team, qn__ir_block_t* block) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) move_shared(team, blocks[i]);
    qn__ir_buffer_t* buffer = stmt->kind == QN__STMT_ALLOC ? stmt->alloc.buffer : NULL;
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

// ---- statements

static void run_block(qn__gmap_team_t* team, qn__ir_block_t* block, qn__ir_block_t* out);

// `if` the thread is the leader, of a warp that has work.
static qn__ir_stmt_t* for_leader(qn__gmap_team_t* team) {
  qn__gmap_t* map = team->map;
  qn__ir_expr_t* condition =
      qn__gmap_op(map, QN_OP_EQ, qn__gmap_use(map, team->thread), qn__gmap_int(map, 0));
  if (team->is_used) {
    condition = qn__gmap_op(map, QN_OP_LOGIC_AND, condition, qn__gmap_use(map, team->is_used));
  }
  return qn__gmap_if(map, condition);
}

static void by_leader(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__ir_block_t alone = qn__block_of(stmt);
  qn__gmap_serialise(&alone);
  qn__gmap_sync(team, out, qn__gmap_access_of_stmt(team->map, stmt), true);
  qn__ir_stmt_t* test = for_leader(team);
  if (!test) return;
  test->if_.then_block = alone;
  qn__block_append(out, test);
}

static void by_all(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__ir_block_t alone = qn__block_of(stmt);
  qn__gmap_serialise(&alone);
  qn__gmap_sync(team, out, qn__gmap_access_of_stmt(team->map, stmt), false);
  qn__block_append(out, stmt);
}

static bool spread_own(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out);

typedef struct own {
  qn__gmap_team_t* team;
  qn__ir_block_t* out;
} own_t;

static bool own_slot(void* context, qn__ir_expr_t** slot) {
  own_t* self = context;
  return qn__gmap_spread_expr(self->team, self->out, slot);
}

// Spreads the reductions in the statement's own expressions.
static bool spread_own(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
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

static bool find_spread(void* found, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE && (*slot)->reduce.lane_count == QN__GMAP_SPREAD) {
    *(bool*)found = true;
  }
  return !*(bool*)found && qn__expr_each_child(*slot, find_spread, found);
}

static void look_into(content_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, find_spread, &self->has_spread);
    if (stmt->kind == QN__STMT_LOOP &&
        (stmt->loop.lane_count == QN__GMAP_SPREAD || qn__gmap_is_exact(stmt))) {
      self->has_spread = true;
    }
    const qn__ir_buffer_t* target = NULL;
    if (stmt->kind == QN__STMT_STORE) target = qn__buf_root(stmt->store.buffer);
    if (stmt->kind == QN__STMT_ATOMIC) target = qn__buf_root(stmt->atomic.buffer);
    if (target && target->scope != QN__SCOPE_LOCAL) self->has_memory = true;
    if (target && target->scope == QN__SCOPE_LOCAL) self->has_private = true;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) look_into(self, blocks[i]);
  }
}

static void run_if(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  if (!spread_own(team, stmt, out)) return;
  qn__gmap_sync_t before = team->sync;
  qn__ir_block_t then_block = stmt->if_.then_block, else_block = stmt->if_.else_block;
  stmt->if_.then_block = stmt->if_.else_block = (qn__ir_block_t){NULL, NULL};
  run_block(team, &then_block, &stmt->if_.then_block);
  qn__gmap_sync_t after = team->sync;
  team->sync = before;
  run_block(team, &else_block, &stmt->if_.else_block);
  team->sync = qn__gmap_sync_join(team->map, after, team->sync);
  qn__block_append(out, stmt);
}

// A loop that all threads run together, `for` or `while`.
static void run_rounds(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* body,
                       qn__ir_block_t* out) {
  if (!spread_own(team, stmt, out)) return;
  if (stmt->kind == QN__STMT_LOOP) {
    stmt->loop.lane_count = 0;
    if (stmt->loop.kind != QN_LOOP_UNROLL) stmt->loop.kind = QN_LOOP_SERIAL;
  }
  qn__gmap_sync_t before = team->sync;
  bool has_writes = qn__gmap_access_of_block(team->map, body).writes != NULL;
  qn__ir_block_t inner = *body;
  *body = (qn__ir_block_t){NULL, NULL};
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

static void run_exact(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__gmap_t* map = team->map;
  qn__ir_block_t alone = qn__block_of(stmt);
  // Behind it nothing is known of where its threads met last.
  qn__gmap_access_t access = qn__gmap_access_of_block(map, &alone);
  qn__gmap_sync(team, out, access, false);
  qn__ir_block_t body = alone, lets = {NULL, NULL};
  qn__ir_expr_t* runs = NULL;  // the same for all threads
  while (body.first && body.first == body.last && qn__gmap_is_thread(body.first)) {
    qn__ir_stmt_t* loop = body.first;
    if (!qn__gmap_is_never_empty(loop)) {
      qn__ir_expr_t* each = qn__gmap_op(map, QN_OP_LT, qn__gmap_copy(map, loop->loop.begin),
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
  qn__ir_stmt_t* test = qn__gmap_if(map, runs);
  if (!test) return;
  test->if_.then_block = lets;
  qn__block_append(out, test);
}

// The leader's old value reaches the others through shared memory.
static void run_atomic(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__gmap_t* map = team->map;
  qn__ir_var_t* result = stmt->atomic.result;
  if (!spread_own(team, stmt, out)) return;
  if (!result) {
    by_leader(team, stmt, out);
    return;
  }
  qn__ir_buffer_t* cell =
      qn__gmap_cell(map, &team->level, QN__SCOPE_SHARED, result->dtype, result->name);
  qn__ir_var_t* old = qn__gmap_var(map, QN__VAR_ATOMIC, result->dtype, result->name);
  if (!cell || !old) return;
  stmt->atomic.result = old;
  qn__gmap_access_t access = qn__gmap_access_of_stmt(map, stmt);
  qn__ir_stmt_t* store = qn__gmap_store(map, cell, qn__gmap_use(map, old));
  qn__ir_stmt_t* test = for_leader(team);
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
  qn__ir_block_t let = {NULL, NULL};
  qn__gmap_let_var(map, &let, result, qn__gmap_load(map, cell));
  if (let.first) by_all(team, let.first, out);
}

static void run_store(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
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

static void run_stmt(qn__gmap_team_t* team, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
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
    qn__ir_block_t alone = qn__block_of(stmt);
    qn__gmap_sync(team, out, qn__gmap_access_of_block(team->map, &alone), false);
    qn__gmap_spread_loop(team, out, stmt);
    return;
  }
  if (qn__gmap_is_exact(stmt)) {
    run_exact(team, stmt, out);
    return;
  }
  content_t content = {false, false, false};
  qn__ir_block_t alone = qn__block_of(stmt);
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

static void run_block(qn__gmap_team_t* team, qn__ir_block_t* block, qn__ir_block_t* out) {
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt && !qn__gmap_stopped(team->map); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    run_stmt(team, stmt, out);
  }
}

void qn__gmap_team_run(qn__gmap_team_t* team, qn__ir_block_t* block, qn__ir_block_t* out) {
  qn__gmap_team_number(team, out);
  find_shared(block, false);
  keep_private(block, false);
  move_shared(team, block);
  qn__ir_block_t kept;
  qn__ir_expr_t* condition;
  if (!qn__gmap_keep(team, block, &kept, &condition)) {
    run_block(team, block, out);
  } else if (!condition) {
    run_block(team, &kept, out);
  } else {
    qn__ir_stmt_t* choice = qn__gmap_if(team->map, condition);
    if (!choice) return;
    qn__gmap_sync_t before = team->sync;
    run_block(team, &kept, &choice->if_.then_block);
    qn__gmap_sync_t after = team->sync;
    team->sync = before;
    team->row.lanes = 0;
    run_block(team, block, &choice->if_.else_block);
    team->sync = qn__gmap_sync_join(team->map, after, team->sync);
    qn__block_append(out, choice);
  }
}
