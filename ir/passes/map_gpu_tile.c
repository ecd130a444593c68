// ir/passes/map_gpu_tile.c: recognises a product written as a sum: C[i, j] = sum k { A[i, k] *
// B[k, j] } and its like.
//
// 1. A perfect nest of independent loops whose extents the host knows, around lets, stores and
//    branches that hold one reduction, which every iteration computes.
// 2. The loops fall into three sets: *rows* (what the first operand depends on and the second does
//    not), *columns* (the other way round) and the *batch*: the rest. Several loops of one set are
//    one index space, so that a weight in pieces, or rows in a batch, are found too.
// 3. An *operand* is a largest part of the summand that reads memory and depends on one side
//    alone. So a conversion, a scale of the row or a gather is done as the tile is filled, once for
//    a tile instead of once for each product.
// 4. What an operand reads is read early, and by other threads: nothing in the nest may write it,
//    and it must be read unconditionally. Checked builds keep every access where it was, so that an
//    error tells the iteration: no tiles there.
// 5. Every sum is added up in the order of the reduction.
// Nothing is changed before all is known. Thread rule: one thread per body. Read next:
// map_gpu_tile_size.c, then map_gpu_tile_write.c.
#include "ir/passes/map_gpu_tile.h"

int qn__tile_find(const qn__tile_t* tile, const qn__ir_var_t* var) {
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    if (tile->names[i].var == var) return (int)i;
  }
  return -1;
}

static bool add_name(qn__tile_t* tile, qn__ir_var_t* var, qn__ir_stmt_t* let, uint32_t mask) {
  // One place stays free for the reduction's value, and one for each operand.
  if (tile->name_count + qn__tile_max_operands + 1 >= qn__tile_max_names) return false;
  tile->names[tile->name_count++] = (qn__tile_name_t){.var = var, .let = let, .mask = mask};
  return true;
}

typedef struct closure {
  const qn__tile_t* tile;
  bool* is_needed;
} closure_t;

static bool need_slot(void* context, qn__ir_expr_t** slot) {
  closure_t* self = context;
  if ((*slot)->kind == QN__EXPR_VAR) {
    int name = qn__tile_find(self->tile, (*slot)->var);
    if (name >= 0) self->is_needed[name] = true;
  }
  return qn__expr_each_child(*slot, need_slot, self);
}

void qn__tile_close(const qn__tile_t* tile, qn__ir_expr_t* expr, bool* is_needed) {
  closure_t self = {tile, is_needed};
  (void)need_slot(&self, &expr);
  for (uint32_t i = tile->name_count; i-- > 0;) {
    qn__ir_stmt_t* let = tile->names[i].let;
    if (is_needed[i] && let) (void)need_slot(&self, &let->let.value);
  }
}

// ---- what a value depends on

typedef struct join {
  const qn__tile_t* tile;
  uint32_t mask;
} join_t;

static bool join_slot(void* context, qn__ir_expr_t** slot) {
  join_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) {
    int name = qn__tile_find(self->tile, expr->var);
    if (name >= 0) self->mask |= self->tile->names[name].mask;
  }
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    bool is_memory = root->scope == QN__SCOPE_PARAM || root->scope == QN__SCOPE_GLOBAL ||
                     root->scope == QN__SCOPE_CONST;
    bool is_read_only = is_memory && !self->tile->map->lanes.is_stored[root->id];
    self->mask |= is_read_only ? QN__TILE_LOADS : QN__TILE_FIXED;
  }
  if (expr->kind == QN__EXPR_REDUCE || qn__expr_is_exchange(expr)) self->mask |= QN__TILE_FIXED;
  return qn__expr_each_child(*slot, join_slot, self);
}

static uint32_t mask_of(const qn__tile_t* tile, qn__ir_expr_t* expr) {
  join_t join = {tile, 0};
  (void)join_slot(&join, &expr);
  return join.mask;
}

// ---- the one reduction

typedef struct find {
  uint32_t count;         // of reductions anywhere in the body
  bool is_lazy;           // where the walk is
  bool is_top;            // in a let or a store of the body itself
  qn__ir_expr_t** found;  // the one that every iteration computes
} find_t;

static bool is_lazy_child(const qn__ir_expr_t* parent, uint32_t child) {
  return child > 0 && qn__expr_is_lazy(parent);
}

typedef struct child {
  void* self;
  void (*visit)(void* self, qn__ir_expr_t** slot, bool is_lazy);
  const qn__ir_expr_t* parent;
  uint32_t number;
} child_t;

static bool each_child(void* context, qn__ir_expr_t** slot) {
  child_t* child = context;
  child->visit(child->self, slot, is_lazy_child(child->parent, child->number++));
  return true;
}

static void find_reduce(void* context, qn__ir_expr_t** slot, bool is_lazy) {
  find_t* self = context;
  bool was_lazy = self->is_lazy;
  self->is_lazy |= is_lazy;
  if ((*slot)->kind == QN__EXPR_REDUCE) {
    ++self->count;
    if (self->is_top && !self->is_lazy) self->found = slot;
  }
  child_t child = {self, find_reduce, *slot, 0};
  (void)qn__expr_each_child(*slot, each_child, &child);
  self->is_lazy = was_lazy;
}

static bool find_slot(void* self, qn__ir_expr_t** slot) {
  find_reduce(self, slot, false);
  return true;
}

// False: a statement that no tile may hold.
static bool find_in_block(find_t* self, qn__ir_block_t* block, bool is_top) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_LET && stmt->kind != QN__STMT_STORE && stmt->kind != QN__STMT_IF) {
      return false;
    }
    self->is_top = is_top && stmt->kind != QN__STMT_IF;
    (void)qn__stmt_each_expr(stmt, find_slot, self);
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (!find_in_block(self, blocks[i], false)) return false;
    }
  }
  return true;
}

// ---- names

static bool add_lets(qn__tile_t* tile, const qn__ir_stmt_t* first, uint32_t mask) {
  for (const qn__ir_stmt_t* stmt = first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_LET) continue;
    qn__ir_stmt_t* let = (qn__ir_stmt_t*)(uintptr_t)stmt;
    if (!add_name(tile, let->let.var, let, mask | mask_of(tile, let->let.value))) return false;
  }
  return true;
}

static bool add_names(qn__tile_t* tile) {
  qn__gmap_nest_t* nest = tile->nest;
  qn__ir_expr_t* reduce = tile->reduce;
  for (uint32_t d = 0; d < nest->count; ++d) {
    if (!add_name(tile, nest->loops[d]->loop.var, NULL, 1U << d)) return false;
  }
  // Lets behind the reduction cannot be needed by it; they are only copied with the body.
  if (!add_lets(tile, nest->lets.first, 0) || !add_lets(tile, nest->body.first, 0)) return false;
  tile->step = tile->name_count;
  return add_name(tile, reduce->reduce.reduce_var, NULL, QN__TILE_STEP) &&
         add_lets(tile, reduce->reduce.lets.first, QN__TILE_STEP);
}

// ---- rows and columns

typedef struct loads {
  const qn__tile_t* tile;
  uint32_t first;   // loops of the first operand
  uint32_t second;  // loops of one that has others and misses some
} loads_t;

static bool add_load(void* context, qn__ir_expr_t** slot) {
  loads_t* self = context;
  if ((*slot)->kind == QN__EXPR_LOAD) {
    uint32_t mask = mask_of(self->tile, *slot);
    uint32_t dims = mask & QN__TILE_DIMS;
    if ((mask & QN__TILE_STEP) && dims) {
      if (!self->first) self->first = dims;
      if (!self->second && (dims & ~self->first) && (self->first & ~dims)) self->second = dims;
    }
  }
  return qn__expr_each_child(*slot, add_load, self);
}

static bool find_sides(qn__tile_t* tile) {
  qn__ir_expr_t* reduce = tile->reduce;
  loads_t loads = {tile, 0, 0};
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    (void)add_load(&loads, &let->let.value);
  }
  (void)add_load(&loads, &reduce->reduce.value);
  if (!loads.second) return false;
  uint32_t a = loads.first & ~loads.second, b = loads.second & ~loads.first;
  // Neighbouring threads are neighbours in a row of the result.
  uint32_t fastest = 1U << tile->nest->order[tile->nest->count - 1];
  if (!(fastest & (a | b))) return false;
  tile->side_dims[QN__TILE_ROW] = fastest & b ? a : b;
  tile->side_dims[QN__TILE_COLUMN] = fastest & b ? b : a;
  return true;
}

// ---- operands

typedef struct collect {
  qn__tile_t* tile;
  bool is_lazy;
  bool has_failed;
} collect_t;

static bool note_operand(qn__tile_t* tile, qn__ir_expr_t** slot, qn__tile_side_t side) {
  uint32_t operand = 0;
  while (operand < tile->operand_count && !qn__expr_equal(tile->operands[operand].value, *slot)) {
    ++operand;
  }
  if (operand == qn__tile_max_operands || tile->slot_count == qn__tile_max_slots) return false;
  if (operand == tile->operand_count) {
    tile->operands[tile->operand_count++] = (qn__tile_operand_t){.value = *slot, .side = side};
  }
  tile->slots[tile->slot_count++] = (qn__tile_slot_t){slot, operand};
  return true;
}

static void collect(void* context, qn__ir_expr_t** slot, bool is_lazy) {
  collect_t* self = context;
  qn__tile_t* tile = self->tile;
  uint32_t mask = mask_of(tile, *slot);
  if (!(mask & QN__TILE_LOADS) || self->has_failed) return;
  bool has_rows = mask & tile->side_dims[QN__TILE_ROW];
  bool has_columns = mask & tile->side_dims[QN__TILE_COLUMN];
  if (!has_rows && !has_columns) return;  // the same for a whole block: it stays
  bool was_lazy = self->is_lazy;
  self->is_lazy |= is_lazy;
  if (has_rows && has_columns) {
    // A variable that depends on both sides is a let whose value is looked at as well, if it is one
    // of the reduction's.
    bool is_outer = (*slot)->kind == QN__EXPR_VAR && !(mask & QN__TILE_STEP);
    if ((*slot)->kind == QN__EXPR_LOAD || is_outer) self->has_failed = true;
    child_t child = {self, collect, *slot, 0};
    (void)qn__expr_each_child(*slot, each_child, &child);
  } else {
    qn__tile_side_t side = has_rows ? QN__TILE_ROW : QN__TILE_COLUMN;
    if (self->is_lazy || !note_operand(tile, slot, side)) self->has_failed = true;
  }
  self->is_lazy = was_lazy;
}

static bool find_operands(qn__tile_t* tile) {
  qn__ir_expr_t* reduce = tile->reduce;
  uint32_t both = tile->side_dims[QN__TILE_ROW] | tile->side_dims[QN__TILE_COLUMN];
  if (mask_of(tile, reduce->reduce.value) & QN__TILE_FIXED) return false;
  uint32_t bounds = mask_of(tile, reduce->reduce.begin) | mask_of(tile, reduce->reduce.end);
  if (bounds & (both | QN__TILE_FIXED)) return false;
  collect_t self = {tile, false, false};
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    uint32_t mask = mask_of(tile, let->let.value);
    if (mask & QN__TILE_FIXED) return false;
    // One of a single side is part of the operands that use it.
    bool is_mixed = (mask & tile->side_dims[QN__TILE_ROW]) != 0 &&
                    (mask & tile->side_dims[QN__TILE_COLUMN]) != 0;
    if (is_mixed) collect(&self, &let->let.value, false);
  }
  collect(&self, &reduce->reduce.value, false);
  bool has_side[qn__tile_sides] = {false, false};
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    qn__tile_operand_t* operand = &tile->operands[o];
    qn__tile_close(tile, operand->value, operand->is_needed);
    for (uint32_t i = 0; i < tile->name_count; ++i) {
      if (operand->is_needed[i] && (tile->names[i].mask & QN__TILE_FIXED)) return false;
    }
    has_side[operand->side] |= (mask_of(tile, operand->value) & QN__TILE_STEP) != 0;
  }
  return !self.has_failed && has_side[QN__TILE_ROW] && has_side[QN__TILE_COLUMN];
}

// ---- along which way an operand lies in memory

typedef struct reach {
  const qn__lanes_t* lanes;
  uint32_t contiguous;
} reach_t;

static bool count_contiguous(void* context, qn__ir_expr_t** slot) {
  reach_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD &&
      qn__lanes_reach(self->lanes, expr->load.buffer, expr->load.indices) == QN__REACH_CONTIGUOUS) {
    ++self->contiguous;
  }
  return qn__expr_each_child(*slot, count_contiguous, self);
}

static uint32_t contiguous_along(qn__tile_t* tile, qn__tile_operand_t* operand, qn__ir_var_t* var) {
  qn__lanes_t* lanes = qn__gmap_lanes(tile->map);
  if (!lanes) return 0;
  qn__lanes_enter(lanes, var, NULL);
  reach_t reach = {lanes, 0};
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    qn__ir_stmt_t* let = tile->names[i].let;
    if (!let || !operand->is_needed[i]) continue;
    qn__lanes_let(lanes, let);
    (void)count_contiguous(&reach, &let->let.value);
  }
  (void)count_contiguous(&reach, &operand->value);
  return reach.contiguous;
}

static void find_direction(qn__tile_t* tile, qn__tile_operand_t* operand) {
  qn__gmap_nest_t* nest = tile->nest;
  uint32_t across = 0;
  for (uint32_t p = nest->count; p-- > 0;) {
    if (!(tile->side_dims[operand->side] >> nest->order[p] & 1)) continue;
    across = contiguous_along(tile, operand, nest->loops[nest->order[p]]->loop.var);
    break;
  }
  uint32_t along = contiguous_along(tile, operand, tile->names[tile->step].var);
  operand->runs_along_step = along > across;
}

// ---- all

// From here on the summand has variables for its operands, and the body one for the reduction.
static bool commit(qn__tile_t* tile) {
  qn__gmap_t* map = tile->map;
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    qn__tile_operand_t* operand = &tile->operands[o];
    const char* name = operand->side == QN__TILE_ROW ? "a" : "b";
    qn__ir_var_t* var = qn__gmap_var(map, QN__VAR_LET, operand->value->dtype, name);
    operand->name = tile->name_count;
    if (!var) return false;
    tile->names[tile->name_count++] = (qn__tile_name_t){.var = var};
  }
  for (uint32_t s = 0; s < tile->slot_count; ++s) {
    qn__tile_operand_t* operand = &tile->operands[tile->slots[s].operand];
    qn__ir_expr_t* use = qn__gmap_use(map, tile->names[operand->name].var);
    if (!use) return false;
    *tile->slots[s].slot = use;
  }
  qn__tile_close(tile, tile->reduce->reduce.value, tile->is_needed);
  qn__ir_var_t* total = qn__gmap_var(map, QN__VAR_LET, tile->reduce->dtype, "total");
  qn__ir_expr_t* use = qn__gmap_use(map, total);
  if (!use) return false;
  tile->names[tile->name_count++] = (qn__tile_name_t){.var = total};
  *tile->slot = use;
  qn__gmap_serialise(&tile->nest->body);
  return true;
}

// ---- a launch for each shape

// The same statements, for a block of another launch.
static qn__ir_block_t share(qn__gmap_t* map, const qn__ir_block_t* block) {
  qn__ir_block_t out = {NULL, NULL};
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    qn__ir_stmt_t* same = qn__stmt_new(map->arena, stmt->kind, stmt->loc);
    if (!same) break;
    *same = *stmt;
    same->next = NULL;
    qn__block_append(&out, same);
  }
  return out;
}

// Everything that the launch declares is its own, also what is imported.
static qn__ir_block_t write_variant(qn__tile_t* tile, const qn__gmap_unit_t* unit,
                                    const qn__tile_shape_t* shape) {
  qn__gmap_t* map = tile->map;
  qn__ir_block_t out = {NULL, NULL};
  qn__gmap_unit_t own = *unit;
  own.anchor = qn__stmt_new(map->arena, QN__STMT_LOOP, (qn__ir_loc_t){0, 0});
  own.prologue = share(map, &unit->prologue);
  if (!own.anchor) return out;
  tile->shape = *shape;
  qn__tile_write(tile, &own);
  if (qn__gmap_stopped(map)) return out;
  qn__ir_block_t launch = qn__block_of(own.anchor);
  qn__ir_subst_t subst = {.arena = map->arena};
  (void)qn__block_clone(&subst, &launch, &out);
  return out;
}

static qn__ir_expr_t* lines_of(qn__tile_t* tile, qn__tile_side_t side) {
  qn__ir_expr_t* all = qn__gmap_int(tile->map, 1);
  for (uint32_t d = 0; d < tile->nest->count; ++d) {
    if (!(tile->side_dims[side] >> d & 1)) continue;
    all = qn__gmap_op(tile->map, QN_OP_MUL, all, qn__gmap_extent(tile->map, tile->nest->loops[d]));
  }
  return all;
}

// Where both sides have the same lines, one test says it all.
static bool is_known(qn__tile_t* tile, uint32_t variant) {
  const qn__ir_expr_t* lines = lines_of(tile, tile->variants[variant].side);
  for (uint32_t v = 0; lines && v < variant; ++v) {
    const qn__ir_expr_t* other = lines_of(tile, tile->variants[v].side);
    if (other && qn__expr_equal(lines, other)) return true;
  }
  return false;
}

// if rows <= 16 { one launch } else { the other }: the host chooses at the call.
static void write_all(qn__tile_t* tile, qn__gmap_unit_t* unit) {
  qn__gmap_t* map = tile->map;
  qn__tile_shape_t shape = tile->shape;
  qn__ir_block_t launches[qn__tile_max_variants];
  while (tile->variant_count > 0 && is_known(tile, tile->variant_count - 1)) --tile->variant_count;
  for (uint32_t v = 0; v < tile->variant_count; ++v) {
    launches[v] = write_variant(tile, unit, &tile->variants[v].shape);
  }
  tile->shape = shape;
  if (qn__gmap_stopped(map)) return;
  qn__tile_write(tile, unit);
  for (uint32_t v = tile->variant_count; v-- > 0 && !qn__gmap_stopped(map);) {
    const qn__tile_variant_t* variant = &tile->variants[v];
    qn__ir_expr_t* is_few =
        qn__gmap_op(map, QN_OP_LE, lines_of(tile, variant->side), qn__gmap_int(map, variant->most));
    qn__ir_stmt_t* other = qn__stmt_new(map->arena, QN__STMT_LOOP, (qn__ir_loc_t){0, 0});
    qn__ir_stmt_t* test = qn__gmap_if(map, is_few);
    if (!other || !test) return;
    qn__ir_stmt_t* next = unit->anchor->next;
    *other = *unit->anchor;
    test->if_.then_block = launches[v];
    test->if_.else_block = qn__block_of(other);
    test->if_.is_choice = true;
    *unit->anchor = *test;
    unit->anchor->next = next;
  }
}

bool qn__gmap_tile(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest) {
  if (map->options->is_checked || nest->count < 2 || !qn__gmap_nest_is_host(nest)) return false;
  find_t find = {0};
  if (!find_in_block(&find, &nest->body, true) || find.count != 1 || !find.found) return false;
  qn__lanes_t* lanes = qn__gmap_lanes(map);
  qn__tile_t* tile = QN__ARENA_NEW(map->arena, qn__tile_t);
  if (!lanes || !tile) return false;
  *tile = (qn__tile_t){.map = map, .nest = nest, .slot = find.found, .reduce = *find.found};
  qn__lanes_enter(lanes, nest->loops[0]->loop.var, &nest->body);  // what is stored
  if (!add_names(tile) || !find_sides(tile) || !find_operands(tile)) return false;
  for (uint32_t o = 0; o < tile->operand_count; ++o) find_direction(tile, &tile->operands[o]);
  if (qn__gmap_stopped(map) || !qn__tile_choose(tile)) return false;
  if (commit(tile)) write_all(tile, unit);
  return true;
}
