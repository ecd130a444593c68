// ir/passes/map_gpu_spread.c: reductions and loops over the threads of a team.
//
//   sum j in a..b { f(j) }  becomes   let own = sum k in 0..ceildiv(b - a - t, T) {
//                                       let j = a + k * T + t; f(j) };
//                                     let total = block_sum(own);
//   for j in a..b { S }     becomes   for k in 0..ceildiv(b - a - t, T) {
//                                       let j = a + k * T + t; S }
// so that neighbouring threads touch neighbouring elements. Thread rule: one thread per body.
// Read next: map_gpu_sync.c.
#include "ir/passes/map_gpu_team.h"

// ceildiv(extent - t, T): the iterations of this thread. `extent` is consumed.
static qn__expr_t* share(qn__gmap_team_t* team, qn__expr_t* extent) {
  qn__gmap_t* map = team->map;
  int64_t constant, threads;
  if (extent && qn__expr_const_int(extent, &constant) && constant >= 0 &&
      qn__expr_const_int(team->count, &threads) && threads > 0 && constant % threads == 0) {
    return qn__gmap_int(map, constant / threads);
  }
  qn__expr_t* left = qn__gmap_op(map, QN_OP_SUB, extent, qn__gmap_use(map, team->thread));
  return qn__gmap_op(map, QN_OP_CEILDIV, left, qn__gmap_copy(map, team->count));
}

// k * T + t
static qn__expr_t* position(qn__gmap_team_t* team, qn__var_t* k) {
  qn__gmap_t* map = team->map;
  qn__expr_t* first =
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

static bool spread_reduce(qn__gmap_team_t* team, qn__block_t* out, qn__expr_t** slot) {
  qn__gmap_t* map = team->map;
  qn__expr_t* reduce = *slot;
  reduce->reduce.lane_count = 0;
  qn__expr_t* begin = reduce->reduce.begin;
  qn__expr_t* extent = qn__gmap_op(map, QN_OP_SUB, reduce->reduce.end, qn__gmap_copy(map, begin));
  qn__var_t* k = qn__gmap_var(map, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
  qn__block_t lets = {NULL, NULL};
  qn__gmap_let_var(map, &lets, reduce->reduce.reduce_var,
                   qn__gmap_op(map, QN_OP_ADD, begin, position(team, k)));
  qn__block_splice(&lets, &reduce->reduce.lets);
  reduce->reduce.lets = lets;
  reduce->reduce.reduce_var = k;
  reduce->reduce.begin = qn__gmap_int(map, 0);
  reduce->reduce.end = share(team, extent);
  if (!k || !reduce->reduce.begin || !reduce->reduce.end) return false;
  qn__var_t* own = qn__gmap_let(map, out, "own", reduce);
  qn__expr_t* value = qn__gmap_use(map, own);
  if (!value) return false;
  value = qn__expr_op(map->arena, exchange_of(team, reduce->reduce.reduce_kind), value, NULL, NULL);
  qn__expr_t* use = qn__gmap_use(map, qn__gmap_let(map, out, "total", value));
  if (use) *slot = use;
  return use != NULL;
}

typedef struct spread {
  qn__gmap_team_t* team;
  qn__block_t* out;
} spread_t;

static bool spread_slot(void* context, qn__expr_t** slot) {
  spread_t* self = context;
  if ((*slot)->kind == QN__EXPR_REDUCE && (*slot)->reduce.lane_count == QN__GMAP_SPREAD) {
    return spread_reduce(self->team, self->out, slot);
  }
  return qn__expr_each_child(*slot, spread_slot, self);
}

bool qn__gmap_spread_expr(qn__gmap_team_t* team, qn__block_t* out, qn__expr_t** slot) {
  spread_t self = {team, out};
  return spread_slot(&self, slot);
}

void qn__gmap_spread_loop(qn__gmap_team_t* team, qn__block_t* out, qn__stmt_t* stmt) {
  qn__gmap_t* map = team->map;
  qn__gmap_nest_t nest;
  qn__gmap_nest_open(map, stmt, &nest);
  if (qn__gmap_stopped(map)) return;
  qn__gmap_serialise(&nest.body);
  qn__expr_t* extent = qn__gmap_nest_extent(map, &nest);
  qn__var_t* k = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__stmt_t* loop =
      qn__gmap_loop(map, QN_LOOP_SERIAL, k, qn__gmap_int(map, 0), share(team, extent));
  if (!loop) return;
  qn__expr_t* at = position(team, k);
  if (nest.count > 1) at = qn__gmap_use(map, qn__gmap_let(map, &loop->loop.body, "at", at));
  if (!at) return;
  qn__gmap_nest_place(map, &nest, at, &loop->loop.body);
  qn__block_splice(&loop->loop.body, &nest.body);
  if (!team->is_used) {
    qn__block_append(out, loop);
    return;
  }
  qn__stmt_t* test = qn__gmap_if(map, qn__gmap_use(map, team->is_used));
  if (!test) return;
  test->if_.then_block = qn__block_of(loop);
  qn__block_append(out, test);
}
