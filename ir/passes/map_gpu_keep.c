// ir/passes/map_gpu_keep.c: rows that are reduced and used again stay with the threads of a team.
//
//   let top = max c in 0..n { x[c] };               let kept[c] = x[c] for all c;
//   let sum = sum c in 0..n { exp(x[c] - top) };    becomes    let top = max c { kept[c] };
//   for c in 0..n { y[c] = exp(x[c] - top) / sum; }            let kept_1[c] = exp(kept[c] - top);
//                                                              ... y[c] = kept_1[c] / sum
// A thread meets the same elements in each of them: what it computed for them once lies in an array
// of its own, which unrolled loops keep in registers. Nobody meets anybody for that. An array has
// 16 elements: rows of any length have both forms, behind `n & 3 == 0 && n <= 4096`. Sums are added
// up in the order that they have without (map_gpu_spread.c).
//
// What is kept is the largest part of a summand that later reductions or loops over the same range
// compute too, from what nobody writes. Reductions and loops without such a part stay as they are,
// and a sum of floats that would have other lanes. Only where a target has lanes (map_gpu_wide.c):
// elsewhere memory is near enough. Not in warps, whose rows are short. Thread rule: one thread per
// body. Read next: map_gpu_spread.c.
#include "ir/passes/map_gpu_team.h"

enum { kept_elements = 16 };  // of a thread, in each array

typedef struct keep {
  qn__gmap_team_t* team;
  qn__ir_block_t* block;
  qn__ir_stmt_t* stmt;      // whose summand is looked at
  qn__ir_expr_t* reduce;    // of it
  qn__ir_stmt_t* previous;  // in front of `stmt`
} keep_t;

// ---- the range

static bool is_spread(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_REDUCE && expr->reduce.lane_count == QN__GMAP_SPREAD;
}

static bool is_row(const qn__gmap_team_t* team, const qn__ir_expr_t* begin,
                   const qn__ir_expr_t* end) {
  return team->row.lanes > 0 && qn__expr_is_int(begin, 0) && qn__expr_equal(end, team->row.end);
}

// In another order they are another value.
static bool is_float_sum(const qn__ir_expr_t* reduce) {
  return reduce->reduce.reduce_kind == QN_REDUCE_SUM && qn__dtype_is_float(reduce->dtype);
}

static bool is_no_lane(const qn__ir_stmt_t* stmt) {
  return stmt->kind != QN__STMT_LET && stmt->kind != QN__STMT_STORE && stmt->kind != QN__STMT_IF;
}

static bool is_row_loop(const keep_t* self, qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count == QN__GMAP_SPREAD &&
         is_row(self->team, stmt->loop.begin, stmt->loop.end) &&
         !qn__gmap_any_stmt(&stmt->loop.body, is_no_lane);
}

// The first reduction that is spread in lanes gives the range, and its first sum of floats the
// lanes.
static bool find_row(void* context, qn__ir_expr_t** slot) {
  keep_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (!is_spread(expr)) return qn__expr_each_child(expr, find_row, self);
  if (self->team->row.lanes > 0 &&
      (!is_float_sum(expr) || !is_row(self->team, expr->reduce.begin, expr->reduce.end))) {
    return true;
  }
  qn__gmap_t* map = self->team->map;
  int64_t threads, length;
  if (!qn__expr_is_int(expr->reduce.begin, 0) || !qn__gmap_is_pure(map, expr->reduce.end) ||
      !qn__expr_const_int(self->team->count, &threads)) {
    return true;
  }
  for (qn__ir_stmt_t* stmt = self->block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET && qn__gmap_uses_var(expr->reduce.end, stmt->let.var)) {
      return true;
    }
  }
  int64_t lanes = qn__gmap_reduce_lane_count(map, expr, self->team->count);
  if (lanes <= 1) return true;
  qn__gmap_row_t row = {.end = expr->reduce.end, .lanes = lanes, .threads = threads};
  row.rounds = kept_elements / lanes;
  if (qn__expr_const_int(expr->reduce.end, &length)) {
    if (length <= 0 || length > kept_elements * threads || length % lanes != 0) return true;
    row.rounds = (length + lanes * threads - 1) / (lanes * threads);
  }
  self->team->row = row;
  return !is_float_sum(expr);
}

static bool is_simple(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_STORE || stmt->kind == QN__STMT_LOOP;
}

// ---- what is kept

typedef struct contents {
  const keep_t* keep;
  bool has_load;
  bool is_wrong;
} contents_t;

static bool is_kept(const qn__gmap_team_t* team, const qn__ir_buffer_t* buffer) {
  for (uint32_t i = 0; i < team->row.kept_count; ++i) {
    if (team->row.kept[i] == buffer) return true;
  }
  return false;
}

static bool find_kept(void* context, qn__ir_expr_t** slot) {
  const qn__gmap_team_t* team = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD && is_kept(team, expr->load.buffer)) return false;
  return qn__expr_each_child(*slot, find_kept, context);
}

static bool has_kept(qn__gmap_team_t* team, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE && is_kept(team, stmt->store.buffer)) return true;
    if (!qn__stmt_each_expr(stmt, find_kept, team)) return true;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (has_kept(team, blocks[i])) return true;
    }
  }
  return false;
}

bool qn__gmap_is_kept(qn__gmap_team_t* team, qn__ir_block_t* block, qn__ir_expr_t* reduce) {
  if (team->row.lanes == 0) return false;
  return reduce ? !find_kept(team, &reduce) : has_kept(team, block);
}

// A spread reduction over the row whose threads may have the row's lanes.
static bool can_take(const keep_t* self, qn__ir_expr_t* reduce) {
  qn__gmap_team_t* team = self->team;
  if (!is_row(team, reduce->reduce.begin, reduce->reduce.end)) return false;
  return !is_float_sum(reduce) || !find_kept(team, &reduce) ||
         qn__gmap_reduce_lane_count(team->map, reduce, team->count) == team->row.lanes;
}

static bool look_into(void* context, qn__ir_expr_t** slot) {
  contents_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) self->is_wrong = true;
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    bool is_constant = root->scope == QN__SCOPE_CONST ||
                       (root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN);
    if (!is_constant && !is_kept(self->keep->team, root)) self->is_wrong = true;
    // What is kept already costs nothing.
    self->has_load = true;
  }
  return !self->is_wrong && qn__expr_each_child(*slot, look_into, self);
}

static bool can_keep(const keep_t* self, qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_LOAD && is_kept(self->team, expr->load.buffer)) return false;
  if (expr->dtype == QN_DTYPE_BOOL || expr->dtype == QN_DTYPE_I64) return false;
  if (!qn__gmap_uses_var(expr, self->reduce->reduce.reduce_var)) return false;
  contents_t contents = {self, false, false};
  (void)look_into(&contents, &expr);
  return contents.has_load && !contents.is_wrong && !qn__expr_facts(expr).has_cross_lane;
}

// Occurrences of a part of one summand elsewhere: with the other one's variable.
typedef struct other {
  keep_t* keep;
  const qn__ir_expr_t* part;
  qn__ir_expr_t* pattern;  // for the range at hand
  qn__ir_var_t* var;
  qn__ir_buffer_t* buffer;  // replaces them; NULL: they are only counted
  uint32_t count;
} other_t;

static qn__ir_expr_t* load_kept(qn__gmap_t* map, qn__ir_buffer_t* buffer, qn__ir_var_t* var) {
  qn__ir_expr_t* load = qn__expr_new(map->arena, QN__EXPR_LOAD, buffer->dtype, buffer->loc);
  if (!load) return NULL;
  load->load.buffer = buffer;
  load->load.indices = qn__arena_alloc_array(map->arena, 1, sizeof *load->load.indices);
  if (!load->load.indices) return NULL;
  load->load.indices[0] = qn__gmap_use(map, var);
  return load->load.indices[0] ? load : NULL;
}

static bool visit_use(void* context, qn__ir_expr_t** slot) {
  other_t* self = context;
  if (!qn__expr_equal(*slot, self->pattern)) return qn__expr_each_child(*slot, visit_use, self);
  ++self->count;
  if (!self->buffer) return true;
  qn__ir_expr_t* load = load_kept(self->keep->team->map, self->buffer, self->var);
  if (load) *slot = load;
  return load != NULL;
}

static bool set_pattern(other_t* self, qn__ir_var_t* var) {
  qn__gmap_t* map = self->keep->team->map;
  qn__ir_expr_t* use = qn__gmap_use(map, var);
  self->var = var;
  self->pattern =
      use ? qn__expr_replace(map->arena, self->part, self->keep->reduce->reduce.reduce_var, use)
          : NULL;
  return self->pattern != NULL;
}

static bool visit_block(other_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!qn__stmt_each_expr(stmt, visit_use, self)) return false;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (!visit_block(self, blocks[i])) return false;
    }
  }
  return true;
}

static bool visit_reduces(void* context, qn__ir_expr_t** slot) {
  other_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (!is_spread(expr)) return qn__expr_each_child(expr, visit_reduces, self);
  if (!can_take(self->keep, expr)) return true;
  if (!set_pattern(self, expr->reduce.reduce_var)) return false;
  return visit_block(self, &expr->reduce.lets) && visit_use(self, &expr->reduce.value);
}

static bool visit_stmts(other_t* self, qn__ir_stmt_t* first) {
  for (qn__ir_stmt_t* stmt = first; stmt; stmt = stmt->next) {
    if (is_row_loop(self->keep, stmt)) {
      if (!set_pattern(self, stmt->loop.var) || !visit_block(self, &stmt->loop.body)) return false;
    } else if (stmt->kind != QN__STMT_LOOP && !qn__stmt_each_expr(stmt, visit_reduces, self)) {
      return false;
    }
  }
  return true;
}

// for c in 0..n { kept[c] = part }, in front of the statement.
static bool add_loop(keep_t* self, const qn__ir_expr_t* part, qn__ir_buffer_t* buffer) {
  qn__gmap_t* map = self->team->map;
  const qn__ir_expr_t* reduce = self->reduce;
  qn__ir_var_t* var =
      qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, reduce->reduce.reduce_var->name);
  qn__ir_expr_t* use = qn__gmap_use(map, var);
  qn__ir_stmt_t* loop = qn__gmap_loop(map, QN_LOOP_PARALLEL, var, qn__gmap_int(map, 0),
                                      qn__gmap_copy(map, reduce->reduce.end));
  if (!use || !loop) return false;
  qn__ir_stmt_t* store = qn__gmap_store(
      map, buffer, qn__expr_replace(map->arena, part, reduce->reduce.reduce_var, use));
  if (!store) return false;
  store->store.indices[0] = use;
  loop->loop.lane_count = QN__GMAP_SPREAD;
  loop->loop.body = qn__block_of(store);
  qn__ir_stmt_t* alloc = qn__stmt_new(map->arena, QN__STMT_ALLOC, buffer->loc);
  if (!alloc) return false;
  alloc->alloc.buffer = buffer;
  alloc->next = loop;
  loop->next = self->stmt;
  *(self->previous ? &self->previous->next : &self->block->first) = alloc;
  self->previous = loop;
  return true;
}

static bool keep_part(keep_t* self, const qn__ir_expr_t* part) {
  qn__gmap_t* map = self->team->map;
  qn__gmap_row_t* row = &self->team->row;
  qn__ir_buffer_t* buffer = qn__gmap_buffer(map, QN__SCOPE_LOCAL, part->dtype, "kept", 1);
  if (!buffer) return false;
  buffer->shape = qn__arena_alloc_array(map->arena, 1, sizeof *buffer->shape);
  if (!buffer->shape) return false;
  buffer->shape[0] = qn__gmap_int(map, row->rounds * row->lanes);
  qn__ir_expr_t* copy = qn__gmap_copy(map, part);
  if (!buffer->shape[0] || !copy || !add_loop(self, copy, buffer)) return false;
  other_t other = {.keep = self, .part = copy, .buffer = buffer};
  row->kept[row->kept_count++] = buffer;
  return visit_stmts(&other, self->stmt);
}

// The largest parts of the summand first; only what is evaluated whatever the values are.
static bool try_part(void* context, qn__ir_expr_t** slot) {
  keep_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (self->team->row.kept_count == QN__GMAP_MAX_KEPT) return true;
  if (can_keep(self, expr)) {
    other_t other = {.keep = self, .part = expr};
    if (!visit_stmts(&other, self->stmt->next)) return false;
    if (other.count > 0) return keep_part(self, expr);
  }
  if (qn__expr_is_lazy(expr)) return try_part(self, &expr->args[0]);
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return true;
  return qn__expr_each_child(expr, try_part, self);
}

static bool try_reduce(void* context, qn__ir_expr_t** slot) {
  keep_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (!is_spread(expr)) return qn__expr_each_child(expr, try_reduce, self);
  if (!can_take(self, expr)) return true;
  self->reduce = expr;
  return expr->reduce.lets.first ? true : try_part(self, &expr->reduce.value);
}

// ---- all

bool qn__gmap_keep(qn__gmap_team_t* team, qn__ir_block_t* block, qn__ir_block_t* out_kept,
                   qn__ir_expr_t** out_condition) {
  qn__gmap_t* map = team->map;
  *out_condition = NULL;
  team->row = (qn__gmap_row_t){.lanes = 0};
  if (map->options->access_bytes == 0 || map->options->is_checked || team->is_warp ||
      team->axes[0] || team->axes[1] || team->axes[2]) {
    return false;
  }
  keep_t self = {.team = team, .block = block};
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!is_simple(stmt)) return false;
  }
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_LOOP && !qn__stmt_each_expr(stmt, find_row, &self)) break;
  }
  if (team->row.lanes == 0) return false;
  if (!qn__block_replace(map->arena, block, NULL, NULL, out_kept)) return false;
  self.block = out_kept;
  for (qn__ir_stmt_t* stmt = out_kept->first; stmt; stmt = stmt->next) {
    self.stmt = stmt;
    if (stmt->kind != QN__STMT_LOOP && !qn__stmt_each_expr(stmt, try_reduce, &self)) break;
    self.previous = stmt;
  }
  if (team->row.kept_count == 0 || qn__gmap_stopped(map)) {
    team->row.lanes = 0;
    return false;
  }
  const qn__ir_expr_t* end = team->row.end;
  int64_t length;
  if (qn__expr_const_int(end, &length)) return true;
  qn__ir_expr_t* fits =
      qn__gmap_op(map, QN_OP_LE, qn__gmap_copy(map, end),
                  qn__gmap_int(map, team->row.rounds * team->row.lanes * team->row.threads));
  *out_condition =
      qn__gmap_op(map, QN_OP_LOGIC_AND, qn__gmap_is_whole(map, end, team->row.lanes), fits);
  return *out_condition != NULL;
}

// ---- the spread

typedef struct place {
  const qn__gmap_team_t* team;
  const qn__ir_expr_t* first;  // of the round's elements in an array
  qn__ir_var_t* lane;
} place_t;

static bool set_place(const place_t* self, const qn__ir_buffer_t* buffer, qn__ir_expr_t** indices) {
  if (!is_kept(self->team, buffer)) return true;
  qn__gmap_t* map = self->team->map;
  indices[0] =
      qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, self->first), qn__gmap_use(map, self->lane));
  return indices[0] != NULL;
}

static bool place_slot(void* context, qn__ir_expr_t** slot) {
  place_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD && is_kept(self->team, expr->load.buffer)) {
    return set_place(self, expr->load.buffer, expr->load.indices);
  }
  return qn__expr_each_child(*slot, place_slot, self);
}

static bool place_block(place_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!qn__stmt_each_expr(stmt, place_slot, self)) return false;
    if (stmt->kind == QN__STMT_STORE && !set_place(self, stmt->store.buffer, stmt->store.indices)) {
      return false;
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (!place_block(self, blocks[i])) return false;
    }
  }
  return true;
}

// Round `k` of the thread: k * T + t.
static qn__ir_expr_t* round_position(const qn__gmap_team_t* team, qn__ir_expr_t* k) {
  qn__gmap_t* map = team->map;
  qn__ir_expr_t* first = qn__gmap_op(map, QN_OP_MUL, k, qn__gmap_int(map, team->row.threads));
  return qn__gmap_op(map, QN_OP_ADD, first, qn__gmap_use(map, team->thread));
}

// Is there such a round? NULL: there always is.
static qn__ir_expr_t* has_round(const qn__gmap_team_t* team, const qn__ir_expr_t* position,
                                int64_t rounds) {
  qn__gmap_t* map = team->map;
  const qn__gmap_row_t* row = &team->row;
  int64_t length;
  if (qn__expr_const_int(row->end, &length) && rounds * row->threads * row->lanes <= length) {
    return NULL;
  }
  qn__ir_expr_t* groups =
      qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_copy(map, row->end), qn__gmap_int(map, row->lanes));
  return qn__gmap_op(map, QN_OP_LT, qn__gmap_copy(map, position), groups);
}

static qn__ir_expr_t* neutral_of(qn__gmap_t* map, const qn__ir_expr_t* reduce) {
  qn__ir_scalar_t neutral = qn__reduce_neutral(reduce->reduce.reduce_kind, reduce->dtype);
  return qn__dtype_is_float(reduce->dtype) ? qn__expr_float(map->arena, reduce->dtype, neutral.f)
                                           : qn__expr_int(map->arena, reduce->dtype, neutral.i);
}

static qn__ir_expr_t* join(qn__gmap_t* map, qn_reduce_kind_t kind, qn__ir_expr_t* all,
                           qn__ir_expr_t* more) {
  if (!all || !more) return more;
  qn_op_t op = kind == QN_REDUCE_MIN ? QN_OP_MIN : kind == QN_REDUCE_MAX ? QN_OP_MAX : QN_OP_ADD;
  return qn__expr_op(map->arena, op, all, more, NULL);
}

qn__ir_expr_t* qn__gmap_kept_reduce(qn__gmap_team_t* team, const qn__ir_expr_t* reduce) {
  qn__gmap_t* map = team->map;
  const qn__gmap_row_t* row = &team->row;
  qn__ir_expr_t* all = NULL;
  for (int64_t k = 0; k < row->rounds; ++k) {
    qn__ir_expr_t* position = round_position(team, qn__gmap_int(map, k));
    qn__ir_var_t* unused = qn__gmap_var(map, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
    qn__ir_expr_t* outer =
        position ? qn__gmap_lanes_reduce(map, reduce, unused, position, row->lanes) : NULL;
    if (!outer) return NULL;
    qn__ir_expr_t* each = outer->reduce.value;
    place_t place = {team, qn__gmap_int(map, k * row->lanes), each->reduce.reduce_var};
    if (!place.first || !place_block(&place, &each->reduce.lets) ||
        !place_slot(&place, &each->reduce.value)) {
      return NULL;
    }
    qn__ir_expr_t* condition = has_round(team, position, k + 1);
    if (condition) {
      qn__ir_expr_t* choice = qn__expr_new(map->arena, QN__EXPR_COND, reduce->dtype, reduce->loc);
      if (!choice) return NULL;
      choice->args[0] = condition;
      choice->args[1] = each;
      choice->args[2] = neutral_of(map, reduce);
      if (!choice->args[2]) return NULL;
      each = choice;
    }
    all = join(map, reduce->reduce.reduce_kind, all, each);
    if (!all) return NULL;
  }
  return all;
}

// for lane in 0..lanes { kept[...] = 0 } for each array that the loop fills: a register of which
// some threads have no value would be in use wherever that could be read.
static void clear_places(qn__gmap_team_t* team, const qn__ir_stmt_t* lanes, qn__ir_block_t* out) {
  qn__gmap_t* map = team->map;
  for (const qn__ir_stmt_t* stmt = lanes->loop.body.first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_STORE || !is_kept(team, stmt->store.buffer)) continue;
    qn_dtype_t dtype = stmt->store.buffer->dtype;
    qn__ir_expr_t* zero = qn__dtype_is_float(dtype) ? qn__expr_float(map->arena, dtype, 0.0)
                                                    : qn__expr_int(map->arena, dtype, 0);
    qn__ir_var_t* lane = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "lane");
    qn__ir_expr_t* use = qn__gmap_use(map, lane);
    qn__ir_stmt_t* loop = qn__gmap_loop(map, QN_LOOP_UNROLL, lane, qn__gmap_int(map, 0),
                                        qn__gmap_int(map, team->row.lanes));
    qn__ir_stmt_t* store = qn__gmap_store(map, stmt->store.buffer, zero);
    if (!use || !loop || !store) return;
    store->store.indices[0] =
        qn__expr_replace(map->arena, stmt->store.indices[0], lanes->loop.var, use);
    if (!store->store.indices[0]) return;
    loop->loop.body = qn__block_of(store);
    qn__block_append(out, loop);
  }
}

void qn__gmap_kept_loop(qn__gmap_team_t* team, qn__ir_block_t* out, qn__gmap_nest_t* nest) {
  qn__gmap_t* map = team->map;
  const qn__gmap_row_t* row = &team->row;
  qn__ir_block_t body = {NULL, NULL};
  qn__ir_var_t* k = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__ir_stmt_t* rounds =
      qn__gmap_loop(map, QN_LOOP_UNROLL, k, qn__gmap_int(map, 0), qn__gmap_int(map, row->rounds));
  if (!rounds) return;
  qn__ir_var_t* at = qn__gmap_let(map, &body, "at", round_position(team, qn__gmap_use(map, k)));
  qn__ir_expr_t* use = at ? qn__gmap_use(map, at) : NULL;
  qn__ir_stmt_t* lanes = use ? qn__gmap_lanes_loop(map, nest, at, row->lanes) : NULL;
  if (!lanes) return;
  place_t place = {team,
                   qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, k), qn__gmap_int(map, row->lanes)),
                   lanes->loop.var};
  if (!place.first || !place_block(&place, &lanes->loop.body)) return;
  qn__ir_expr_t* condition = has_round(team, use, row->rounds);
  qn__ir_stmt_t* inner = lanes;
  if (condition) {
    inner = qn__gmap_if(map, condition);
    if (!inner) return;
    inner->if_.then_block = qn__block_of(lanes);
    clear_places(team, lanes, &inner->if_.else_block);
  }
  qn__block_append(&body, inner);
  rounds->loop.body = body;
  qn__block_append(out, rounds);
}
