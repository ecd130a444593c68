// ir/passes/map_gpu_threads.c: thread loops one inside the other become a perfect nest.
//
// What stands between two thread loops is done by one thread for all those of the inner loop. In a
// perfect nest each of them computes its lets and asserts, the first one does the stores, and
// barriers keep what the others see as it was. Thread rule: one thread per body. Read next:
// map_gpu_launch.c.
#include "ir/passes/map_gpu_team.h"

static bool holds_threads(qn__ir_stmt_t* stmt) {
  if (qn__gmap_is_thread(stmt)) return true;
  qn__ir_block_t* blocks[2];
  size_t count = qn__stmt_blocks(stmt, blocks);
  for (size_t i = 0; i < count; ++i) {
    if (qn__gmap_any_stmt(blocks[i], qn__gmap_is_thread)) return true;
  }
  return false;
}

// Every thread may do it for itself.
static bool is_repeatable(const qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_ALLOC) {
    return stmt->alloc.buffer->scope == QN__SCOPE_CONST ||
           stmt->alloc.buffer->scope == QN__SCOPE_VIEW;
  }
  return stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_ASSERT;
}

static bool is_store(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_STORE || (stmt->kind == QN__STMT_ATOMIC && !stmt->atomic.result);
}

static bool reads_what(qn__gmap_access_t reader, qn__gmap_access_t writer) {
  for (const qn__gmap_roots_t* r = reader.reads; r; r = r->next) {
    for (const qn__gmap_roots_t* w = writer.writes; w; w = w->next) {
      if (w->root == r->root) return true;
    }
  }
  return false;
}

typedef struct beside {
  qn__ir_stmt_t* inner;
  bool needs_barrier;
} beside_t;

// False: what is beside the inner loop cannot move into it. `inner` NULL: there is none.
static bool look_beside(qn__gmap_t* map, qn__ir_stmt_t* loop, beside_t* out) {
  *out = (beside_t){NULL, false};
  for (qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
    if (!holds_threads(stmt)) continue;
    if (out->inner || !qn__gmap_is_thread(stmt)) return false;
    out->inner = stmt;
  }
  if (!out->inner) return true;
  qn__gmap_access_t inside = qn__gmap_access_of_stmt(map, out->inner);
  bool is_behind = false;
  for (qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
    if (stmt == out->inner) {
      is_behind = true;
      continue;
    }
    if (!is_repeatable(stmt) && !is_store(stmt)) return false;
    if (is_behind || is_store(stmt) || reads_what(qn__gmap_access_of_own(map, stmt), inside)) {
      out->needs_barrier = true;
    }
    if (stmt->kind == QN__STMT_LET && (qn__gmap_uses_var(out->inner->loop.begin, stmt->let.var) ||
                                       qn__gmap_uses_var(out->inner->loop.end, stmt->let.var))) {
      return false;
    }
  }
  return true;
}

static void add_barrier(qn__gmap_t* map, qn__ir_block_t* out) {
  qn__gmap_append(out, qn__stmt_new(map->arena, QN__STMT_BARRIER, (qn__ir_loc_t){0, 0}));
}

// Appends a statement of the outer loop; stores are done by the first thread of the inner loops.
static void add_beside(qn__gmap_t* map, qn__ir_stmt_t* stmt, qn__ir_stmt_t* inner,
                       const qn__ir_stmt_t* innermost, qn__ir_block_t* out) {
  stmt->next = NULL;
  if (!is_store(stmt)) {
    qn__block_append(out, stmt);
    return;
  }
  qn__ir_expr_t* is_first = NULL;
  for (qn__ir_stmt_t* loop = inner;; loop = loop->loop.body.first) {
    qn__ir_expr_t* each = qn__gmap_op(map, QN_OP_EQ, qn__gmap_use(map, loop->loop.var),
                                      qn__gmap_copy(map, loop->loop.begin));
    is_first = is_first ? qn__gmap_op(map, QN_OP_LOGIC_AND, is_first, each) : each;
    if (loop == innermost) break;
  }
  qn__ir_stmt_t* test = qn__gmap_if(map, is_first);
  if (!test) return;
  test->if_.then_block = qn__block_of(stmt);
  // Between two such stores, and before what reads them.
  qn__block_append(out, test);
}

qn__ir_stmt_t* qn__gmap_straighten_threads(qn__gmap_t* map, qn__ir_stmt_t* loop) {
  beside_t beside;
  if (!look_beside(map, loop, &beside)) return NULL;
  if (!beside.inner) return loop;
  // Threads that do not meet may be run by striding: there is no barrier among them.
  if (beside.needs_barrier && qn__gmap_is_free(beside.inner)) return NULL;
  qn__ir_stmt_t* innermost = qn__gmap_straighten_threads(map, beside.inner);
  if (!innermost || qn__gmap_stopped(map)) return NULL;
  qn__ir_block_t before = {NULL, NULL}, behind = {NULL, NULL};
  bool is_behind = false;
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = next) {
    next = stmt->next;
    if (stmt == beside.inner) {
      is_behind = true;
      if (beside.needs_barrier && before.first) add_barrier(map, &before);
      if (beside.needs_barrier && next) add_barrier(map, &behind);
      continue;
    }
    bool was_store = is_store(stmt);
    add_beside(map, stmt, beside.inner, innermost, is_behind ? &behind : &before);
    if (was_store) add_barrier(map, is_behind ? &behind : &before);
  }
  loop->loop.body = qn__block_of(beside.inner);
  qn__block_splice(&before, &innermost->loop.body);
  qn__block_splice(&before, &behind);
  innermost->loop.body = before;
  return innermost;
}
