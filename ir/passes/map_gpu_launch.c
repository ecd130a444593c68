// ir/passes/map_gpu_launch.c: gives a unit its block loops and its thread loops.
//
// Explicit block and thread loops keep their shape where their block level holds one nest of thread
// loops and what comes before it; any other block level is run by a team (map_gpu_team.c), which
// makes one nest of it. Thread rule: one thread per body. Read next: map_gpu_flat.c.
#include "ir/passes/map_gpu_team.h"

// ---- finishing

// Around the work of a thread: the conditions that only the device knows.
static qn__ir_block_t add_guards(qn__gmap_t* map, const qn__gmap_unit_t* unit,
                                 qn__ir_block_t body) {
  for (const qn__gmap_guard_t* guard = unit->guards; guard; guard = guard->outer) {
    qn__ir_var_t* var = guard->var;
    for (const qn__gmap_alias_t* alias = unit->aliases; alias; alias = alias->next) {
      if (alias->from == guard->var) var = alias->to;
    }
    qn__ir_expr_t* condition = qn__gmap_use(map, var);
    if (guard->is_negated && condition) {
      condition = qn__expr_op(map->arena, QN_OP_LOGIC_NOT, condition, NULL, NULL);
    }
    qn__ir_stmt_t* test = qn__gmap_if(map, condition);
    if (!test) return body;
    test->if_.then_block = body;
    body = qn__block_of(test);
  }
  return body;
}

static void fill_anchor(qn__gmap_unit_t* unit, const qn__ir_stmt_t* loop) {
  qn__ir_stmt_t* next = unit->anchor->next;
  *unit->anchor = *loop;
  unit->anchor->next = next;
}

qn__ir_stmt_t* qn__gmap_threads(qn__gmap_t* map, qn__ir_var_t* t, int64_t count,
                                qn__ir_block_t* body) {
  qn__ir_stmt_t* loop =
      qn__gmap_loop(map, QN_LOOP_THREAD_X, t, qn__gmap_int(map, 0), qn__gmap_int(map, count));
  if (loop) loop->loop.body = *body;
  return loop;
}

// The guards stand inside of the innermost thread loop of a perfect nest.
static void guard_threads(qn__gmap_t* map, const qn__gmap_unit_t* unit, qn__ir_stmt_t* threads) {
  while (threads->loop.body.first && threads->loop.body.first == threads->loop.body.last &&
         qn__gmap_is_thread(threads->loop.body.first)) {
    threads = threads->loop.body.first;
  }
  threads->loop.body = add_guards(map, unit, threads->loop.body);
}

void qn__gmap_finish(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__ir_var_t* block_var,
                     qn__ir_expr_t* block_extent, qn__ir_block_t* level, qn__ir_stmt_t* threads) {
  qn__ir_stmt_t* blocks =
      qn__gmap_loop(map, QN_LOOP_BLOCK_X, block_var, qn__gmap_int(map, 0), block_extent);
  if (!threads || !blocks) return;
  guard_threads(map, unit, threads);
  qn__block_splice(&blocks->loop.body, &unit->prologue);
  if (level) qn__block_splice(&blocks->loop.body, level);
  qn__block_append(&blocks->loop.body, threads);
  fill_anchor(unit, blocks);
}

// ---- groups

static void group_unit(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  qn__ir_block_t stmts = unit->prologue;
  unit->prologue = (qn__ir_block_t){NULL, NULL};
  // What guards need stays at the block level.
  if (unit->guards) {
    unit->prologue = stmts;
    stmts = (qn__ir_block_t){NULL, NULL};
  }
  qn__block_splice(&stmts, &unit->stmts);
  qn__ir_var_t* block = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  if (!qn__gmap_plan(map, &stmts, false)) {
    qn__gmap_serialise(&stmts);
    qn__ir_var_t* t = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t");
    qn__gmap_finish(map, unit, block, qn__gmap_int(map, 1), NULL,
                    qn__gmap_threads(map, t, 1, &stmts));
    return;
  }
  qn__gmap_team_t team;
  if (!qn__gmap_team_init(&team, map, &stmts, map->threads)) return;
  qn__ir_block_t body = {NULL, NULL};
  qn__gmap_team_run(&team, &stmts, &body);
  if (qn__gmap_stopped(map)) return;
  qn__gmap_finish(map, unit, block, qn__gmap_int(map, 1), &team.level,
                  qn__gmap_team_loops(&team, &body));
}

// ---- explicit loops

static bool is_block_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_block(stmt->loop.kind);
}

// Moves what stands between block loops (lets, asserts, tables, views) into the innermost one.
// Returns the innermost loop.
static qn__ir_stmt_t* straighten_blocks(qn__ir_stmt_t* outermost) {
  qn__ir_stmt_t* loop = outermost;
  qn__ir_block_t moved = {NULL, NULL};
  for (;;) {
    qn__ir_stmt_t* inner = NULL;
    for (qn__ir_stmt_t* stmt = loop->loop.body.first; stmt && !inner; stmt = stmt->next) {
      if (is_block_loop(stmt)) inner = stmt;
    }
    if (!inner) break;
    qn__ir_block_t body = loop->loop.body;
    loop->loop.body = (qn__ir_block_t){NULL, NULL};
    qn__ir_stmt_t* next;
    for (qn__ir_stmt_t* stmt = body.first; stmt; stmt = next) {
      next = stmt->next;
      stmt->next = NULL;
      if (stmt != inner) qn__block_append(&moved, stmt);
    }
    loop->loop.body = qn__block_of(inner);
    loop = inner;
  }
  qn__block_splice(&moved, &loop->loop.body);
  loop->loop.body = moved;
  return loop;
}

static bool is_pure_slot(void* map, qn__ir_expr_t** slot) {
  return qn__gmap_is_pure(map, *slot);
}

// At the block level only what all threads may do at once, then one nest of thread loops.
static bool is_canonical(qn__gmap_t* map, const qn__ir_block_t* level) {
  for (qn__ir_stmt_t* stmt = level->first; stmt; stmt = stmt->next) {
    if (qn__gmap_is_thread(stmt)) return stmt->next == NULL;
    bool is_plain = stmt->kind == QN__STMT_LET && qn__gmap_is_pure(map, stmt->let.value);
    if (stmt->kind == QN__STMT_ALLOC) {
      is_plain = stmt->alloc.buffer->scope != QN__SCOPE_LOCAL &&
                 qn__stmt_each_expr(stmt, is_pure_slot, map);
    }
    if (!is_plain) return false;
  }
  return false;
}

// Threads for a block level without exact thread loops: as many as its largest nest has.
static int64_t max_threads(const qn__gmap_t* map, qn__ir_block_t* block) {
  int64_t most = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    int64_t count = 1;
    const qn__ir_stmt_t* loop = stmt;
    while (loop && qn__gmap_is_thread(loop) && count > 0) {
      int64_t begin, end, extent;
      bool is_known = qn__expr_const_int(loop->loop.begin, &begin) &&
                      qn__expr_const_int(loop->loop.end, &end) &&
                      !__builtin_sub_overflow(end, begin, &extent) && extent > 0 &&
                      !__builtin_mul_overflow(count, extent, &count);
      if (!is_known) count = map->threads;
      if (!is_known) break;
      loop = loop->loop.body.first;
    }
    if (qn__gmap_is_thread(stmt) && count > most) most = count;
    qn__ir_block_t* blocks[2];
    size_t block_count = qn__gmap_is_thread(stmt) ? 0 : qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < block_count; ++i) {
      int64_t inner = max_threads(map, blocks[i]);
      if (inner > most) most = inner;
    }
  }
  return most > (int64_t)map->max_threads ? (int64_t)map->max_threads : most;
}

// Any other block level: its statements become those of a team.
static void team_level(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__ir_block_t* level) {
  qn__ir_block_t lets = {NULL, NULL};
  while (level->first && level->first->kind == QN__STMT_LET &&
         qn__gmap_is_pure(map, level->first->let.value)) {
    qn__ir_stmt_t* let = level->first;
    level->first = let->next;
    if (!level->first) level->last = NULL;
    let->next = NULL;
    qn__block_append(&lets, let);
  }
  bool has_work = qn__gmap_plan(map, level, false);
  int64_t threads = max_threads(map, level);
  if (threads == 0) threads = has_work ? (int64_t)map->threads : 1;
  qn__gmap_team_t team;
  if (!qn__gmap_team_init(&team, map, level, threads)) return;
  qn__ir_block_t body = {NULL, NULL};
  qn__gmap_team_run(&team, level, &body);
  qn__ir_stmt_t* loops = qn__gmap_stopped(map) ? NULL : qn__gmap_team_loops(&team, &body);
  if (!loops) return;
  guard_threads(map, unit, loops);
  *level = lets;
  qn__block_splice(level, &team.level);
  qn__block_append(level, loops);
}

static void explicit_unit(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  qn__ir_stmt_t* outermost = unit->stmts.first;
  if (qn__gmap_is_thread(outermost)) {
    qn__ir_stmt_t* block =
        qn__gmap_loop(map, QN_LOOP_BLOCK_X, qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block"),
                      qn__gmap_int(map, 0), qn__gmap_int(map, 1));
    if (!block) return;
    block->loop.body = unit->stmts;
    outermost = block;
  }
  qn__ir_block_t* level = &straighten_blocks(outermost)->loop.body;
  qn__ir_stmt_t* innermost = NULL;
  if (is_canonical(map, level)) innermost = qn__gmap_straighten_threads(map, level->last);
  if (innermost) {
    qn__gmap_serialise(&innermost->loop.body);
    for (qn__ir_stmt_t* loop = level->last; loop; loop = loop->loop.body.first) {
      loop->loop.lane_count = 0;
      if (loop == innermost) break;
    }
    innermost->loop.body = add_guards(map, unit, innermost->loop.body);
  } else {
    team_level(map, unit, level);
    if (qn__gmap_stopped(map)) return;
  }
  qn__block_splice(&unit->prologue, level);
  *level = unit->prologue;
  fill_anchor(unit, outermost);
}

// ---- a loop over independent iterations

// A block for each iteration, or for every so many-th.
static void block_each(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest,
                       int64_t threads) {
  qn__gmap_team_t team;
  if (!qn__gmap_team_init(&team, map, &nest->body, threads)) return;
  qn__ir_var_t* block = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_expr_t* extent = qn__gmap_nest_extent(map, nest);
  qn__ir_block_t body = {NULL, NULL};
  if (qn__gmap_nest_is_host(nest)) {
    qn__ir_expr_t* at = qn__gmap_use(map, block);
    if (!at) return;
    qn__gmap_nest_place(map, nest, at, &body);
    qn__gmap_team_run(&team, &nest->body, &body);
  } else {
    int64_t grid = qn__gmap_fixed_grid(map);
    qn__ir_var_t* k = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
    qn__ir_expr_t* left = qn__gmap_op(map, QN_OP_SUB, extent, qn__gmap_use(map, block));
    qn__ir_stmt_t* loop =
        qn__gmap_loop(map, QN_LOOP_SERIAL, k, qn__gmap_int(map, 0),
                      qn__gmap_op(map, QN_OP_CEILDIV, left, qn__gmap_int(map, grid)));
    qn__ir_expr_t* step =
        qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, k), qn__gmap_int(map, grid));
    qn__ir_var_t* at =
        loop ? qn__gmap_let(map, &loop->loop.body, "at",
                            qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, block), step))
             : NULL;
    qn__ir_expr_t* use = qn__gmap_use(map, at);
    if (!use) return;
    qn__gmap_nest_place(map, nest, use, &loop->loop.body);
    qn__gmap_team_run(&team, &nest->body, &loop->loop.body);
    // What one iteration shares the next one uses again.
    qn__gmap_barrier(&team, &loop->loop.body);
    qn__block_append(&body, loop);
    extent = qn__gmap_int(map, grid);
  }
  if (qn__gmap_stopped(map)) return;
  qn__gmap_finish(map, unit, block, extent, &team.level, qn__gmap_team_loops(&team, &body));
}

// A warp for each iteration, several to a block. The last block's spare warps repeat the last
// iteration, so that all threads of the block come to each exchange, but store nothing.
static void warp_each(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest,
                      int64_t threads) {
  int64_t warps = threads / map->warp_size;
  qn__ir_var_t* block = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__ir_var_t* t = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__ir_expr_t* extent = qn__gmap_nest_extent(map, nest);
  qn__ir_block_t body = {NULL, NULL};
  qn__ir_expr_t* first =
      qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, block), qn__gmap_int(map, warps));
  qn__ir_expr_t* own =
      qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_use(map, t), qn__gmap_int(map, map->warp_size));
  qn__ir_var_t* wanted =
      qn__gmap_let(map, &body, "wanted", qn__gmap_op(map, QN_OP_ADD, first, own));
  qn__ir_expr_t* last =
      qn__gmap_op(map, QN_OP_SUB, qn__gmap_copy(map, extent), qn__gmap_int(map, 1));
  qn__ir_var_t* at =
      qn__gmap_let(map, &body, "at", qn__gmap_op(map, QN_OP_MIN, qn__gmap_use(map, wanted), last));
  qn__gmap_team_t team = {.map = map, .is_warp = true, .count = qn__gmap_int(map, map->warp_size)};
  int64_t constant;
  if (!(extent && qn__expr_const_int(extent, &constant) && constant % warps == 0)) {
    team.is_used = qn__gmap_let(
        map, &body, "is_used",
        qn__gmap_op(map, QN_OP_LT, qn__gmap_use(map, wanted), qn__gmap_copy(map, extent)));
  }
  team.thread = qn__gmap_let(
      map, &body, "lane",
      qn__gmap_op(map, QN_OP_FLOORMOD, qn__gmap_use(map, t), qn__gmap_int(map, map->warp_size)));
  qn__ir_expr_t* use = qn__gmap_use(map, at);
  if (!use || !team.thread || qn__gmap_stopped(map)) return;
  qn__gmap_nest_place(map, nest, use, &body);
  qn__gmap_team_run(&team, &nest->body, &body);
  if (qn__gmap_stopped(map)) return;
  qn__ir_expr_t* grid = qn__gmap_op(map, QN_OP_CEILDIV, extent, qn__gmap_int(map, warps));
  qn__gmap_finish(map, unit, block, grid, &team.level,
                  qn__gmap_threads(map, t, warps * map->warp_size, &body));
}

static void free_unit(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  qn__ir_stmt_t* loop = unit->stmts.first;
  bool is_exact = qn__gmap_any_stmt(&loop->loop.body, qn__gmap_is_exact);
  qn__gmap_nest_t nest;
  qn__gmap_nest_open(map, loop, &nest);
  if (qn__gmap_stopped(map)) return;
  if (!is_exact && qn__gmap_tile(map, unit, &nest)) return;
  qn__gmap_choice_t choice = {QN__GMAP_BLOCK, map->threads};
  if (is_exact) {
    (void)qn__gmap_plan(map, &nest.body, false);
  } else {
    choice = qn__gmap_choose(map, &nest);
  }
  if (choice.way == QN__GMAP_WARP && !qn__gmap_nest_is_host(&nest)) {
    (void)qn__gmap_plan(map, &nest.body, false);
    choice.way = QN__GMAP_BLOCK;
  }
  switch (choice.way) {
    case QN__GMAP_FLAT:
      qn__gmap_flat(map, unit, &nest);
      return;
    case QN__GMAP_BLOCK:
      block_each(map, unit, &nest, choice.threads);
      return;
    case QN__GMAP_WARP:
      warp_each(map, unit, &nest, choice.threads);
      return;
  }
}

void qn__gmap_launch(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  switch (unit->kind) {
    case QN__GMAP_GROUP:
      group_unit(map, unit);
      return;
    case QN__GMAP_FREE:
      free_unit(map, unit);
      return;
    case QN__GMAP_EXPLICIT:
      explicit_unit(map, unit);
      return;
  }
}
