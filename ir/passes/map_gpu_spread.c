// ir/passes/map_gpu_spread.c: reductions and loops over the threads of a team.
//
//   sum j in a..b { f(j) }  becomes   let own = sum k in 0..ceildiv(b - a - t, T) {
//                                       let j = a + k * T + t; f(j) };
//                                     let total = block_sum(own);
//   for j in a..b { S }     becomes   for k in 0..ceildiv(b - a - t, T) {
//                                       let j = a + k * T + t; S }
// so that neighbouring threads touch neighbouring elements, or neighbouring groups of them where
// the target has wide accesses (map_gpu_wide.c). Thread rule: one thread per body. Read next:
// map_gpu_sync.c.
#include "ir/passes/map_gpu_team.h"

// ceildiv(extent - t, T): the iterations of this thread. `extent` is consumed.
static qn__ir_expr_t* share(qn__gmap_team_t* team, qn__ir_expr_t* extent) {
  qn__gmap_t* map = team->map;
  int64_t constant, threads;
  if (extent && qn__expr_const_int(extent, &constant) && constant >= 0 &&
      qn__expr_const_int(team->count, &threads) && threads > 0 && constant % threads == 0) {
    return qn__gmap_int(map, constant / threads);
  }
  qn__ir_expr_t* left = qn__gmap_op(map, QN_OP_SUB, extent, qn__gmap_use(map, team->thread));
  return qn__gmap_op(map, QN_OP_CEILDIV, left, qn__gmap_copy(map, team->count));
}

// k * T + t
static qn__ir_expr_t* position(qn__gmap_team_t* team, qn__ir_var_t* k) {
  qn__gmap_t* map = team->map;
  qn__ir_expr_t* first =
      qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, k), qn__gmap_copy(map, team->count));
  return qn__gmap_op(map, QN_OP_ADD, first, qn__gmap_use(map, team->thread));
}

static qn_op_t exchange_of(const qn__gmap_team_t* team, qn_reduce_kind_t kind) {
  switch (kind) {
    case QN_REDUCE_MIN:
      return team->is_warp ? QN_OP_WARP_MIN : QN_OP_BLOCK_MIN;
    case QN_REDUCE_MAX:
      return team->is_warp ? QN_OP_WARP_MAX : QN_OP_BLOCK_MAX;
    default:
      return team->is_warp ? QN_OP_WARP_SUM : QN_OP_BLOCK_SUM;
  }
}

// The same in lanes (map_gpu_wide.c), or where rows may have any length a choice of both.
static qn__ir_expr_t* in_lanes(qn__gmap_team_t* team, const qn__ir_expr_t* length,
                               qn__ir_expr_t* lanes, qn__ir_expr_t* single, int64_t count) {
  qn__gmap_t* map = team->map;
  if (!lanes || !single) return NULL;
  lanes->reduce.end = share(
      team, qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_copy(map, length), qn__gmap_int(map, count)));
  qn__ir_expr_t* condition = qn__gmap_is_whole(map, length, count);
  if (!condition) return lanes;
  qn__ir_expr_t* choice = qn__expr_new(map->arena, QN__EXPR_COND, single->dtype, single->loc);
  if (!choice) return NULL;
  choice->args[0] = condition;
  choice->args[1] = lanes;
  choice->args[2] = single;
  return choice;
}

// let own = ...; let total = block_sum(own);
static bool exchange(qn__gmap_team_t* team, qn__ir_block_t* out, qn__ir_expr_t** slot,
                     qn__ir_expr_t* part, qn_reduce_kind_t kind) {
  qn__gmap_t* map = team->map;
  qn__ir_expr_t* value = qn__gmap_use(map, qn__gmap_let(map, out, "own", part));
  if (!value) return false;
  value = qn__expr_op(map->arena, exchange_of(team, kind), value, NULL, NULL);
  qn__ir_expr_t* use = qn__gmap_use(map, qn__gmap_let(map, out, "total", value));
  if (use) *slot = use;
  return use != NULL;
}

static bool spread_reduce(qn__gmap_team_t* team, qn__ir_block_t* out, qn__ir_expr_t** slot) {
  qn__gmap_t* map = team->map;
  qn__ir_expr_t* reduce = *slot;
  reduce->reduce.lane_count = 0;
  if (qn__gmap_is_kept(team, NULL, reduce)) {
    qn__ir_expr_t* kept = qn__gmap_kept_reduce(team, reduce);
    return kept && exchange(team, out, slot, kept, reduce->reduce.reduce_kind);
  }
  qn__ir_expr_t* begin = reduce->reduce.begin;
  qn__ir_expr_t* extent = qn__gmap_reduce_extent(map, reduce);
  int64_t lanes = qn__gmap_reduce_lane_count(map, reduce, team->count);
  qn__ir_expr_t* wide = NULL;
  qn__ir_expr_t* length = qn__gmap_copy(map, extent);
  if (lanes > 1) {
    qn__ir_var_t* step = qn__gmap_var(map, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
    wide = qn__gmap_lanes_reduce(map, reduce, step, position(team, step), lanes);
    if (!wide) return false;
  }
  qn__ir_var_t* k = qn__gmap_var(map, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
  qn__ir_block_t lets = {NULL, NULL};
  qn__gmap_let_var(map, &lets, reduce->reduce.reduce_var,
                   qn__gmap_op(map, QN_OP_ADD, begin, position(team, k)));
  qn__block_splice(&lets, &reduce->reduce.lets);
  reduce->reduce.lets = lets;
  reduce->reduce.reduce_var = k;
  reduce->reduce.begin = qn__gmap_int(map, 0);
  reduce->reduce.end = share(team, extent);
  if (!k || !reduce->reduce.begin || !reduce->reduce.end) return false;
  qn_reduce_kind_t kind = reduce->reduce.reduce_kind;
  if (wide) reduce = in_lanes(team, length, wide, reduce, lanes);
  return reduce && exchange(team, out, slot, reduce, kind);
}

typedef struct spread {
  qn__gmap_team_t* team;
  qn__ir_block_t* out;
} spread_t;

static bool spread_slot(void* context, qn__ir_expr_t** slot) {
  spread_t* self = context;
  if ((*slot)->kind == QN__EXPR_REDUCE && (*slot)->reduce.lane_count == QN__GMAP_SPREAD) {
    return spread_reduce(self->team, self->out, slot);
  }
  return qn__expr_each_child(*slot, spread_slot, self);
}

bool qn__gmap_spread_expr(qn__gmap_team_t* team, qn__ir_block_t* out, qn__ir_expr_t** slot) {
  spread_t self = {team, out};
  return spread_slot(&self, slot);
}

// for k in 0..ceildiv(E // 4 - t, T) { let at = k * T + t; vector lane in 0..4 { ... } }
static qn__ir_stmt_t* lanes_rounds(qn__gmap_team_t* team, qn__gmap_nest_t* nest,
                                   const qn__ir_expr_t* extent, int64_t count) {
  qn__gmap_t* map = team->map;
  qn__ir_var_t* k = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__ir_expr_t* groups =
      qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_copy(map, extent), qn__gmap_int(map, count));
  qn__ir_stmt_t* loop =
      qn__gmap_loop(map, QN_LOOP_SERIAL, k, qn__gmap_int(map, 0), share(team, groups));
  if (!loop) return NULL;
  qn__ir_var_t* at = qn__gmap_let(map, &loop->loop.body, "at", position(team, k));
  qn__ir_stmt_t* lanes = at ? qn__gmap_lanes_loop(map, nest, at, count) : NULL;
  if (!lanes) return NULL;
  qn__block_append(&loop->loop.body, lanes);
  return loop;
}

static qn__ir_stmt_t* rounds(qn__gmap_team_t* team, qn__gmap_nest_t* nest, qn__ir_expr_t* extent) {
  qn__gmap_t* map = team->map;
  qn__ir_var_t* k = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__ir_stmt_t* loop =
      qn__gmap_loop(map, QN_LOOP_SERIAL, k, qn__gmap_int(map, 0), share(team, extent));
  if (!loop) return NULL;
  qn__ir_expr_t* at = position(team, k);
  if (nest->count > 1) at = qn__gmap_use(map, qn__gmap_let(map, &loop->loop.body, "at", at));
  if (!at) return NULL;
  qn__gmap_nest_place(map, nest, at, &loop->loop.body);
  qn__block_splice(&loop->loop.body, &nest->body);
  return loop;
}

void qn__gmap_spread_loop(qn__gmap_team_t* team, qn__ir_block_t* out, qn__ir_stmt_t* stmt) {
  qn__gmap_t* map = team->map;
  qn__gmap_nest_t nest;
  bool is_kept = qn__gmap_is_kept(team, &stmt->loop.body, NULL);
  qn__gmap_nest_open(map, stmt, &nest);
  if (qn__gmap_stopped(map)) return;
  qn__gmap_serialise(&nest.body);
  if (is_kept) {
    qn__gmap_kept_loop(team, out, &nest);
    return;
  }
  qn__ir_expr_t* extent = qn__gmap_nest_extent(map, &nest);
  int64_t lanes = qn__gmap_team_lane_count(map, &nest, team->count);
  qn__ir_stmt_t* work = NULL;
  qn__ir_expr_t* condition = NULL;
  if (lanes > 1 && extent) {
    const qn__ir_stmt_t* fastest = nest.loops[nest.order[nest.count - 1]];
    condition = qn__gmap_is_whole(map, qn__gmap_extent(map, fastest), lanes);
    work = lanes_rounds(team, &nest, extent, lanes);
    if (!work) return;
  }
  if (!work) {
    work = rounds(team, &nest, extent);
  } else if (condition) {
    qn__ir_stmt_t* choice = qn__gmap_if(map, condition);
    qn__ir_stmt_t* single = rounds(team, &nest, extent);
    if (!choice || !single) return;
    choice->if_.then_block = qn__block_of(work);
    choice->if_.else_block = qn__block_of(single);
    work = choice;
  }
  if (!work) return;
  if (!team->is_used) {
    qn__block_append(out, work);
    return;
  }
  qn__ir_stmt_t* test = qn__gmap_if(map, qn__gmap_use(map, team->is_used));
  if (!test) return;
  test->if_.then_block = qn__block_of(work);
  qn__block_append(out, test);
}
