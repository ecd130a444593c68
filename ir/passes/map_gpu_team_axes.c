// ir/passes/map_gpu_team_axes.c: the threads of a team: those of the exact thread loops that are
// found in its piece, which must agree, or so many as were asked for; their loops, their number.
// Not here: what each of them does (map_gpu_team.c). Thread rule: one thread per body. Read next:
// map_gpu_team.c.
#include "ir/passes/map_gpu_team.h"

static bool same_nest(const qn__ir_stmt_t* a, const qn__ir_stmt_t* const axes[3]) {
  const qn__ir_stmt_t* mine = axes[a->loop.kind - QN_LOOP_THREAD_X];
  return mine && qn__expr_equal(a->loop.begin, mine->loop.begin) &&
         qn__expr_equal(a->loop.end, mine->loop.end);
}

static bool adopt_nest(qn__gmap_team_t* team, qn__ir_stmt_t* outermost) {
  qn__gmap_t* map = team->map;
  qn__ir_stmt_t* innermost = qn__gmap_straighten_threads(map, outermost);
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
  for (qn__ir_stmt_t* loop = outermost;; loop = loop->loop.body.first) {
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

static bool find_exact(qn__gmap_team_t* team, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__gmap_is_exact(stmt)) {
      if (!adopt_nest(team, stmt)) return false;
      continue;
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (!find_exact(team, blocks[i])) return false;
    }
  }
  return true;
}

// Threads along an axis. Where a nest may be empty there is one all the same, for what else stands
// at the block level; the nest itself is tested (map_gpu_team.c).
static qn__ir_expr_t* axis_extent(qn__gmap_t* map, const qn__ir_stmt_t* axis) {
  qn__ir_expr_t* extent = qn__gmap_extent(map, axis);
  int64_t constant;
  if (extent && qn__expr_const_int(extent, &constant)) {
    return constant > 0 ? extent : qn__gmap_int(map, 1);
  }
  if (!extent) return NULL;
  if (qn__expr_is_int(axis->loop.begin, 0)) extent = qn__gmap_copy(map, axis->loop.end);
  return qn__gmap_op(map, QN_OP_MAX, extent, qn__gmap_int(map, 1));
}

bool qn__gmap_team_init(qn__gmap_team_t* team, qn__gmap_t* map, qn__ir_block_t* block,
                        int64_t threads) {
  *team = (qn__gmap_team_t){.map = map};
  if (!find_exact(team, block)) return false;
  qn__ir_expr_t* count = NULL;
  for (int i = 0; i < 3; ++i) {
    if (!team->axes[i]) continue;
    team->axis_vars[i] =
        qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, team->axes[i]->loop.var->name);
    qn__ir_expr_t* extent = axis_extent(map, team->axes[i]);
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

bool qn__gmap_is_never_empty(const qn__ir_stmt_t* loop) {
  return qn__gmap_trips(loop->loop.begin, loop->loop.end) > 0;
}

static qn__ir_expr_t* axis_end(qn__gmap_t* map, const qn__ir_stmt_t* axis) {
  if (qn__gmap_is_never_empty(axis)) return qn__gmap_copy(map, axis->loop.end);
  return qn__gmap_op(map, QN_OP_ADD, axis_extent(map, axis), qn__gmap_copy(map, axis->loop.begin));
}

qn__ir_stmt_t* qn__gmap_team_loops(qn__gmap_team_t* team, qn__ir_block_t* body) {
  static const qn_loop_kind_t kinds[3] = {QN_LOOP_THREAD_X, QN_LOOP_THREAD_Y, QN_LOOP_THREAD_Z};
  qn__gmap_t* map = team->map;
  qn__ir_stmt_t* inner = NULL;
  for (int i = 0; i < 3; ++i) {
    if (!team->axis_vars[i]) continue;
    const qn__ir_stmt_t* axis = team->axes[i];
    qn__ir_expr_t* begin = axis ? qn__gmap_copy(map, axis->loop.begin) : qn__gmap_int(map, 0);
    qn__ir_expr_t* end = axis ? axis_end(map, axis) : qn__gmap_copy(map, team->count);
    qn__ir_stmt_t* loop = qn__gmap_loop(map, kinds[i], team->axis_vars[i], begin, end);
    if (!loop) return NULL;
    loop->loop.body = inner ? qn__block_of(inner) : *body;
    inner = loop;
  }
  return inner;
}

void qn__gmap_team_number(qn__gmap_team_t* team, qn__ir_block_t* out) {
  qn__gmap_t* map = team->map;
  if (team->thread) return;
  qn__ir_expr_t* value = NULL;
  for (int i = 2; i >= 0; --i) {
    if (!team->axis_vars[i]) continue;
    qn__ir_expr_t* place = qn__gmap_use(map, team->axis_vars[i]);
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
