// ir/passes/map_gpu_launch.c: gives a unit its block loops and its thread loops.
//
// Explicit block and thread loops keep their shape where their block level holds one nest of thread
// loops and what comes before it; any other block level is run by a team (map_gpu_team.c), which
// makes one nest of it. Thread rule: one thread per body. Read next: map_gpu_flat.c.
#include "ir/passes/map_gpu.h"

// ---- finishing

// Around the work of a thread: the conditions that only the device knows.
static qn__block_t add_guards(qn__gmap_t* map, const qn__gmap_unit_t* unit, qn__block_t body) {
  for (const qn__gmap_guard_t* guard = unit->guards; guard; guard = guard->outer) {
    qn__var_t* var = guard->var;
    for (const qn__gmap_alias_t* alias = unit->aliases; alias; alias = alias->next) {
      if (alias->from == guard->var) var = alias->to;
    }
    qn__expr_t* condition = qn__gmap_use(map, var);
    if (guard->is_negated && condition) {
      condition = qn__expr_op(map->arena, QN_OP_LOGIC_NOT, condition, NULL, NULL);
    }
    qn__stmt_t* test = qn__gmap_if(map, condition);
    if (!test) return body;
    test->if_.then_block = body;
    body = qn__block_of(test);
  }
  return body;
}

static void fill_anchor(qn__gmap_unit_t* unit, const qn__stmt_t* loop) {
  qn__stmt_t* next = unit->anchor->next;
  *unit->anchor = *loop;
  unit->anchor->next = next;
}

void qn__gmap_finish(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__var_t* block_var,
                     qn__expr_t* block_extent, qn__block_t* shared, qn__var_t* thread_var,
                     qn__expr_t* thread_extent, qn__block_t* body) {
  qn__stmt_t* threads =
      qn__gmap_loop(map, QN_LOOP_THREAD_X, thread_var, qn__gmap_int(map, 0), thread_extent);
  qn__stmt_t* blocks =
      qn__gmap_loop(map, QN_LOOP_BLOCK_X, block_var, qn__gmap_int(map, 0), block_extent);
  if (!threads || !blocks) return;
  threads->loop.body = add_guards(map, unit, *body);
  qn__block_splice(&blocks->loop.body, &unit->prologue);
  if (shared) qn__block_splice(&blocks->loop.body, shared);
  qn__block_append(&blocks->loop.body, threads);
  fill_anchor(unit, blocks);
}

// ---- one thread

static void one_thread(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  qn__gmap_serialise(&unit->stmts);
  qn__block_t body = unit->prologue;
  unit->prologue = (qn__block_t){NULL, NULL};
  qn__block_splice(&body, &unit->stmts);
  qn__gmap_finish(map, unit, qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block"),
                  qn__gmap_int(map, 1), NULL, qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t"),
                  qn__gmap_int(map, 1), &body);
}

// ---- explicit loops

static bool is_block_loop(const qn__stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_block(stmt->loop.kind);
}
static bool is_thread_loop(const qn__stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind);
}
static bool is_exact_loop(const qn__stmt_t* stmt) {
  return is_thread_loop(stmt) && !qn__gmap_is_free(stmt);
}

// Moves what stands between block loops (lets, asserts, tables, views) into the innermost one.
// Returns the innermost loop.
static qn__stmt_t* straighten_blocks(qn__stmt_t* outermost) {
  qn__stmt_t* loop = outermost;
  qn__block_t moved = {NULL, NULL};
  for (;;) {
    qn__stmt_t* inner = NULL;
    for (qn__stmt_t* stmt = loop->loop.body.first; stmt && !inner; stmt = stmt->next) {
      if (is_block_loop(stmt)) inner = stmt;
    }
    if (!inner) break;
    qn__block_t body = loop->loop.body;
    loop->loop.body = (qn__block_t){NULL, NULL};
    qn__stmt_t* next;
    for (qn__stmt_t* stmt = body.first; stmt; stmt = next) {
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

// Moves pure lets between thread loops into the innermost. NULL: something else is between them.
static qn__stmt_t* straighten_threads(const qn__gmap_t* map, qn__stmt_t* outermost) {
  qn__stmt_t* loop = outermost;
  for (;;) {
    qn__stmt_t* inner = NULL;
    bool has_others = false;
    for (qn__stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
      qn__block_t alone = {stmt, stmt};
      qn__stmt_t* next = stmt->next;
      stmt->next = NULL;
      bool has_threads = qn__gmap_any_stmt(&alone, is_thread_loop);
      stmt->next = next;
      if (!has_threads) {
        has_others =
            has_others || stmt->kind != QN__STMT_LET || !qn__gmap_is_pure(map, stmt->let.value);
        continue;
      }
      if (inner || !is_thread_loop(stmt)) return NULL;
      inner = stmt;
      if (stmt->next) has_others = true;
    }
    if (!inner) return loop;
    if (has_others) return NULL;
    qn__block_t lets = {NULL, NULL};
    qn__stmt_t* next;
    for (qn__stmt_t* stmt = loop->loop.body.first; stmt != inner; stmt = next) {
      next = stmt->next;
      stmt->next = NULL;
      qn__block_append(&lets, stmt);
    }
    loop->loop.body = qn__block_of(inner);
    qn__block_splice(&lets, &inner->loop.body);
    inner->loop.body = lets;
    loop = inner;
  }
}

// At the block level only what all threads may do at once, then one nest of thread loops.
static bool is_canonical(const qn__gmap_t* map, const qn__block_t* level) {
  for (const qn__stmt_t* stmt = level->first; stmt; stmt = stmt->next) {
    if (is_thread_loop(stmt)) return stmt->next == NULL;
    bool is_plain = stmt->kind == QN__STMT_LET && qn__gmap_is_pure(map, stmt->let.value);
    if (stmt->kind == QN__STMT_ALLOC) is_plain = stmt->alloc.buffer->scope != QN__SCOPE_LOCAL;
    if (!is_plain) return false;
  }
  return false;
}

static void explicit_unit(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  qn__stmt_t* outermost = unit->stmts.first;
  if (is_thread_loop(outermost)) {
    qn__stmt_t* block =
        qn__gmap_loop(map, QN_LOOP_BLOCK_X, qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block"),
                      qn__gmap_int(map, 0), qn__gmap_int(map, 1));
    if (!block) return;
    block->loop.body = unit->stmts;
    outermost = block;
  }
  qn__stmt_t* block = straighten_blocks(outermost);
  qn__block_t* level = &block->loop.body;
  qn__stmt_t* innermost = NULL;
  if (is_canonical(map, level)) innermost = straighten_threads(map, level->last);
  if (innermost) {
    qn__gmap_serialise(&innermost->loop.body);
    innermost->loop.body = add_guards(map, unit, innermost->loop.body);
    for (qn__stmt_t* loop = level->last; loop; loop = loop->loop.body.first) {
      loop->loop.lane_count = 0;
      if (loop == innermost) break;
    }
    qn__block_splice(&unit->prologue, level);
    *level = unit->prologue;
  } else {
    qn__gmap_refuse(map, "statements beside its thread loops");
  }
  fill_anchor(unit, outermost);
}

// ---- a loop over independent iterations

static void free_unit(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  qn__stmt_t* loop = unit->stmts.first;
  if (qn__gmap_any_stmt(&loop->loop.body, is_exact_loop)) {
    qn__gmap_refuse(map, "threads that meet inside of a parallel loop");
    return;
  }
  qn__gmap_nest_t nest;
  qn__gmap_nest_open(map, loop, &nest);
  if (!qn__gmap_stopped(map)) qn__gmap_flat(map, unit, &nest);
}

void qn__gmap_launch(qn__gmap_t* map, qn__gmap_unit_t* unit) {
  switch (unit->kind) {
    case QN__GMAP_GROUP:
      one_thread(map, unit);
      return;
    case QN__GMAP_FREE:
      free_unit(map, unit);
      return;
    case QN__GMAP_EXPLICIT:
      explicit_unit(map, unit);
      return;
  }
}
