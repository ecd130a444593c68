// ir/passes/map_gpu_tile_write.c: writes a product as blocks that each have a tile of the result.
//
//   block.x block in 0..batch * ceildiv(M, 64) * ceildiv(N, 64) {
//     alloc a, b in shared;
//     thread.x t in 0..256 {
//       alloc acc: [4, 4] in local;                       // 0 everywhere
//       for round in 0..ceildiv(K, 16) {
//         let a_0 = A[min(row, M - 1), min(k, K - 1)]; ...  // each thread some elements
//         barrier; a[k, row] = a_0; ... barrier;
//         for k in 0..16 { acc[m, n] = acc[m, n] + a[k, m] * b[k, n]; ... }
//       }
//       if row < M { if column < N { ... C[row, column] = acc[m, n]; } } ...
//     }
//   }
//
// 1. What lies outside of the matrices is not branched around where a tile is filled: the last line
//    is read again. A thread adds up nothing where its first line lies outside; of one that lies
//    across the edge the summand sees the last line's place again, and what comes of it is never
//    stored. So nothing is evaluated that the program does not. The last round of a reduction ends
//    early.
// 2. Everything that names an element of `acc` is written out, so that no code generator has to
//    unroll anything to keep it in registers.
// 3. Threads bring elements in the direction in which an operand lies in memory. In shared memory
//    it always lies across the step, for the sums of a thread are neighbours there.
// 4. The loads of a round stand in front of the barrier behind the round before, so that warps
//    which are done wait for memory while others compute.
// Thread rule: one thread per body. Read next: map_gpu_launch.c.
#include "ir/passes/map_gpu_tile.h"

// A line of the result that a thread has, or one that it brings: what the side's loops stand for.
typedef struct place {
  qn__var_t* at;  // in the side's index space
  qn__expr_t* now[qn__gmap_max_nest];
} place_t;

typedef struct write {
  qn__tile_t* tile;
  qn__gmap_t* map;
  qn__var_t* t;
  qn__var_t* first[qn__tile_sides];    // line of the block's tile
  qn__expr_t* extent[qn__tile_sides];  // of all lines: a literal or a variable
  qn__var_t* own[qn__tile_sides];      // of the thread's group, within the tile
  bool is_exact[qn__tile_sides];       // no tile reaches beyond
  place_t places[qn__tile_sides][qn__tile_max_outputs];
  qn__expr_t* begin;  // of the reduction; a literal or a variable
  qn__expr_t* steps;  // of the reduction: a literal or a variable
  bool has_even_steps;
  qn__buf_t* acc;
} write_t;

// ---- nodes

static qn__expr_t* add_int(qn__gmap_t* map, qn__expr_t* a, int64_t b) {
  return qn__gmap_op(map, QN_OP_ADD, a, qn__gmap_int(map, b));
}
static qn__expr_t* by_int(qn__gmap_t* map, qn_op_t op, qn__var_t* var, int64_t b) {
  return qn__gmap_op(map, op, qn__gmap_use(map, var), qn__gmap_int(map, b));
}

// A value of a name, or a literal: cheap to copy.
static qn__expr_t* named(qn__gmap_t* map, qn__block_t* out, const char* name, qn__expr_t* value) {
  if (!value || value->kind == QN__EXPR_INT) return value;
  return qn__gmap_use(map, qn__gmap_let(map, out, name, value));
}

static qn__buf_t* allocate(qn__gmap_t* map, qn__block_t* out, qn__scope_t scope, qn_dtype_t dtype,
                           const char* name, int64_t rows, int64_t columns) {
  qn__buf_t* buffer = qn__gmap_buffer(map, scope, dtype, name, 2);
  qn__stmt_t* alloc = qn__stmt_new(map->arena, QN__STMT_ALLOC, (qn__loc_t){0, 0});
  if (!buffer || !alloc) return NULL;
  buffer->shape[0] = qn__gmap_int(map, rows);
  buffer->shape[1] = qn__gmap_int(map, columns);
  alloc->alloc.buffer = buffer;
  if (!buffer->shape[0] || !buffer->shape[1]) return NULL;
  qn__block_append(out, alloc);
  return buffer;
}

static qn__expr_t** two(qn__gmap_t* map, qn__expr_t* a, qn__expr_t* b) {
  qn__expr_t** indices = qn__arena_alloc_array(map->arena, 2, sizeof *indices);
  if (!indices || !a || !b) return NULL;
  indices[0] = a;
  indices[1] = b;
  return indices;
}

static void store(qn__gmap_t* map, qn__block_t* out, qn__buf_t* buffer, qn__expr_t* a,
                  qn__expr_t* b, qn__expr_t* value) {
  qn__stmt_t* stmt = qn__stmt_new(map->arena, QN__STMT_STORE, (qn__loc_t){0, 0});
  qn__expr_t** indices = two(map, a, b);
  if (!stmt || !indices || !value) return;
  stmt->store.buffer = buffer;
  stmt->store.indices = indices;
  stmt->store.value = value;
  qn__block_append(out, stmt);
}

static qn__expr_t* load(qn__gmap_t* map, qn__buf_t* buffer, qn__expr_t* a, qn__expr_t* b) {
  qn__expr_t** indices = two(map, a, b);
  qn__expr_t* expr = buffer && indices
                         ? qn__expr_new(map->arena, QN__EXPR_LOAD, buffer->dtype, (qn__loc_t){0, 0})
                         : NULL;
  if (!expr) return NULL;
  expr->load.buffer = buffer;
  expr->load.indices = indices;
  return expr;
}

static qn__expr_t* load_acc(const write_t* w, int64_t m, int64_t n) {
  return load(w->map, w->acc, qn__gmap_int(w->map, m), qn__gmap_int(w->map, n));
}

// ---- what names stand for

static qn__expr_t* now_of(qn__subst_t* subst, qn__var_t* var) {
  const qn__tile_t* tile = subst->self;
  int name = qn__tile_find(tile, var);
  return name < 0 ? NULL : tile->names[name].now;
}

static qn__expr_t* copy_now(const write_t* w, const qn__expr_t* expr) {
  qn__subst_t subst = {.on_var = now_of, .arena = w->map->arena, .self = w->tile};
  return expr ? qn__expr_clone(&subst, expr) : NULL;
}

static void write_let(write_t* w, qn__block_t* out, qn__tile_name_t* name) {
  qn__expr_t* value = copy_now(w, name->let->let.value);
  name->now = qn__gmap_use(w->map, qn__gmap_let(w->map, out, name->var->name, value));
}

// Copies of the lets among `is_needed` that depend on something in `any`, and on nothing in `none`.
static void write_lets(write_t* w, qn__block_t* out, const bool* is_needed, uint32_t any,
                       uint32_t none) {
  qn__tile_t* tile = w->tile;
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    qn__tile_name_t* name = &tile->names[i];
    if (!name->let || !is_needed[i] || (name->mask & none)) continue;
    if ((name->mask & any) || any == 0) write_let(w, out, name);
  }
}

static uint32_t inner_mask(const qn__tile_t* tile) {
  return tile->side_dims[QN__TILE_ROW] | tile->side_dims[QN__TILE_COLUMN] | QN__TILE_STEP;
}

// The loops in `dims` at `index`, a variable of their index space.
static void write_place(write_t* w, qn__block_t* out, uint32_t dims, qn__var_t* index,
                        qn__expr_t** out_now) {
  qn__gmap_t* map = w->map;
  qn__gmap_nest_t* nest = w->tile->nest;
  uint32_t left = dims;
  qn__expr_t* rest = qn__gmap_use(map, index);
  for (uint32_t p = nest->count; p-- > 0;) {
    uint32_t d = nest->order[p];
    if (!(dims >> d & 1)) continue;
    left &= ~(1U << d);
    const qn__stmt_t* loop = nest->loops[d];
    qn__expr_t* value = rest;
    if (left) {
      qn__expr_t* extent = qn__gmap_extent(map, loop);
      value = qn__gmap_op(map, QN_OP_FLOORMOD, rest, extent);
      qn__expr_t* quotient =
          qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_copy(map, rest), qn__gmap_copy(map, extent));
      rest = named(map, out, "rest", quotient);
    }
    value = qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, loop->loop.begin), value);
    qn__expr_t* use = named(map, out, loop->loop.var->name, value);
    if (!use) return;
    out_now[d] = use;
  }
}

static void set_now(write_t* w, uint32_t dims, qn__expr_t* const* now) {
  for (uint32_t d = 0; d < w->tile->nest->count; ++d) {
    if (dims >> d & 1) w->tile->names[d].now = now[d];
  }
}

// ---- the block's tile, the thread's part of it

static qn__expr_t* at_most(qn__gmap_t* map, qn__expr_t* value, const qn__expr_t* extent) {
  return qn__gmap_op(map, QN_OP_MIN, value, add_int(map, qn__gmap_copy(map, extent), -1));
}

static qn__expr_t* extent_of(write_t* w, uint32_t dims) {
  qn__expr_t* all = qn__gmap_int(w->map, 1);
  for (uint32_t d = 0; d < w->tile->nest->count; ++d) {
    if (!(dims >> d & 1)) continue;
    all = qn__gmap_op(w->map, QN_OP_MUL, all, qn__gmap_extent(w->map, w->tile->nest->loops[d]));
  }
  return all;
}

static qn__expr_t* tiles_along(write_t* w, qn__tile_side_t side, qn__expr_t* extent) {
  return qn__gmap_op(w->map, QN_OP_CEILDIV, extent,
                     qn__gmap_int(w->map, qn__tile_extent(w->tile, side)));
}

// The lines of output `m` within the block's tile begin at own + offset.
static int64_t offset_of(const qn__tile_t* tile, qn__tile_side_t side, int64_t m) {
  int64_t group = qn__tile_group(tile, side);
  return m / group * group * tile->shape.lines[side] + m % group;
}

// Does the summand name a loop of this side, beside what is in the tiles?
static bool names_side(const qn__tile_t* tile, qn__tile_side_t side) {
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    if (tile->is_needed[i] && (tile->names[i].mask & tile->side_dims[side])) return true;
  }
  return false;
}

static void write_outputs(write_t* w, qn__block_t* out, qn__tile_side_t side) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  bool is_clamped = !w->is_exact[side] && names_side(tile, side);
  for (int64_t m = 0; m < tile->shape.outputs[side]; ++m) {
    place_t* place = &w->places[side][m];
    qn__expr_t* line = qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, w->first[side]),
                                   qn__gmap_use(map, w->own[side]));
    place->at = qn__gmap_let(map, out, side == QN__TILE_ROW ? "row" : "column",
                             add_int(map, line, offset_of(tile, side, m)));
    qn__var_t* at = place->at;
    if (is_clamped) {
      at = qn__gmap_let(map, out, "at", at_most(map, qn__gmap_use(map, at), w->extent[side]));
    }
    if (!at) return;
    write_place(w, out, tile->side_dims[side], at, place->now);
  }
}

static void write_heads(write_t* w, qn__block_t* out, qn__var_t* block) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__var_t* rest = block;
  for (int s = qn__tile_sides; s-- > 0;) {
    qn__tile_side_t side = (qn__tile_side_t)s;
    bool is_row = side == QN__TILE_ROW;
    w->extent[s] =
        named(map, out, is_row ? "rows" : "columns", extent_of(w, tile->side_dims[side]));
    int64_t constant;
    w->is_exact[s] = w->extent[s] && qn__expr_const_int(w->extent[s], &constant) &&
                     constant % qn__tile_extent(tile, side) == 0;
    qn__expr_t* count = named(map, out, is_row ? "tiles_down" : "tiles_across",
                              tiles_along(w, side, qn__gmap_copy(map, w->extent[s])));
    qn__expr_t* at = qn__gmap_use(map, rest);
    if (!is_row || qn__tile_batch(tile)) {
      at = qn__gmap_op(map, QN_OP_FLOORMOD, at, qn__gmap_copy(map, count));
      qn__expr_t* quotient = qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_use(map, rest), count);
      rest = qn__gmap_let(map, out, is_row ? "batch" : "rest", quotient);
    }
    w->first[s] = qn__gmap_let(
        map, out, is_row ? "first_row" : "first_column",
        qn__gmap_op(map, QN_OP_MUL, at, qn__gmap_int(map, qn__tile_extent(tile, side))));
  }
  if (!rest || qn__gmap_stopped(map)) return;
  if (qn__tile_batch(tile)) {
    qn__expr_t* now[qn__gmap_max_nest] = {NULL};
    write_place(w, out, qn__tile_batch(tile), rest, now);
    set_now(w, qn__tile_batch(tile), now);
  }
  bool runs_down = tile->shape.runs_down;
  int64_t fastest = tile->shape.lines[runs_down ? QN__TILE_ROW : QN__TILE_COLUMN];
  qn_op_t down = runs_down ? QN_OP_FLOORMOD : QN_OP_FLOORDIV;
  qn_op_t across = runs_down ? QN_OP_FLOORDIV : QN_OP_FLOORMOD;
  w->own[QN__TILE_ROW] =
      qn__gmap_let(map, out, "down",
                   qn__gmap_op(map, QN_OP_MUL, by_int(map, down, w->t, fastest),
                               qn__gmap_int(map, qn__tile_group(tile, QN__TILE_ROW))));
  w->own[QN__TILE_COLUMN] =
      qn__gmap_let(map, out, "across",
                   qn__gmap_op(map, QN_OP_MUL, by_int(map, across, w->t, fastest),
                               qn__gmap_int(map, qn__tile_group(tile, QN__TILE_COLUMN))));
  write_outputs(w, out, QN__TILE_ROW);
  write_outputs(w, out, QN__TILE_COLUMN);
}

// Lets that are the same for the whole block, and the bounds of the reduction.
static void write_bounds(write_t* w, qn__block_t* out) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  bool is_needed[qn__tile_max_names] = {false};
  qn__tile_close(tile, tile->reduce->reduce.begin, is_needed);
  qn__tile_close(tile, tile->reduce->reduce.end, is_needed);
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    is_needed[i] |= tile->is_needed[i];
    for (uint32_t o = 0; o < tile->operand_count; ++o) {
      is_needed[i] |= tile->operands[o].is_needed[i];
    }
  }
  write_lets(w, out, is_needed, 0, inner_mask(tile) | QN__TILE_FIXED);
  w->begin = named(map, out, "begin", copy_now(w, tile->reduce->reduce.begin));
  qn__expr_t* end = named(map, out, "end", copy_now(w, tile->reduce->reduce.end));
  if (!w->begin || !end) return;
  int64_t first, last, count;
  if (qn__expr_const_int(w->begin, &first) && qn__expr_const_int(end, &last) &&
      !__builtin_sub_overflow(last, first, &count)) {
    w->steps = qn__gmap_int(map, count > 0 ? count : 0);
    w->has_even_steps = count > 0 && count % tile->shape.depth == 0;
    return;
  }
  qn__expr_t* extent = qn__gmap_op(map, QN_OP_SUB, end, qn__gmap_copy(map, w->begin));
  w->steps = named(map, out, "steps", qn__gmap_op(map, QN_OP_MAX, extent, qn__gmap_int(map, 0)));
}

static void write_zeros(write_t* w, qn__block_t* out) {
  qn__gmap_t* map = w->map;
  const qn__tile_t* tile = w->tile;
  const qn__expr_t* reduce = tile->reduce;
  w->acc = allocate(map, out, QN__SCOPE_LOCAL, reduce->dtype, "acc",
                    tile->shape.outputs[QN__TILE_ROW], tile->shape.outputs[QN__TILE_COLUMN]);
  qn__scalar_t neutral = qn__reduce_neutral(reduce->reduce.reduce_kind, reduce->dtype);
  for (int64_t m = 0; m < tile->shape.outputs[QN__TILE_ROW]; ++m) {
    for (int64_t n = 0; n < tile->shape.outputs[QN__TILE_COLUMN]; ++n) {
      qn__expr_t* value = qn__dtype_is_float(reduce->dtype)
                              ? qn__expr_float(map->arena, reduce->dtype, neutral.f)
                              : qn__expr_int(map->arena, reduce->dtype, neutral.i);
      if (!w->acc || !value) return;
      store(map, out, w->acc, qn__gmap_int(map, m), qn__gmap_int(map, n), value);
    }
  }
}

// ---- filling tiles

// Where a thread's element of an operand lies within the tile: `step` and `line` begin there, and
// move by so much from one element to the next.
typedef struct stride {
  qn__var_t* step;
  qn__var_t* line;
  int64_t step_by;
  int64_t line_by;
} stride_t;

static stride_t write_stride(write_t* w, qn__block_t* out, const qn__tile_operand_t* operand) {
  qn__gmap_t* map = w->map;
  const qn__tile_t* tile = w->tile;
  bool is_along = operand->runs_along_step;
  int64_t fast = is_along ? tile->shape.depth : qn__tile_extent(tile, operand->side);
  stride_t stride = {NULL, NULL, 0, 0};
  qn__expr_t* inner = by_int(map, QN_OP_FLOORMOD, w->t, fast);
  qn__expr_t* outer = by_int(map, QN_OP_FLOORDIV, w->t, fast);
  stride.step = qn__gmap_let(map, out, "step", is_along ? inner : outer);
  stride.line = qn__gmap_let(map, out, "line", is_along ? outer : inner);
  *(is_along ? &stride.line_by : &stride.step_by) = tile->shape.threads / fast;
  return stride;
}

// The operand's value for element `round` of this thread.
static qn__var_t* write_element(write_t* w, qn__block_t* out, qn__tile_operand_t* operand,
                                const stride_t* stride, qn__var_t* done, int64_t round) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__tile_side_t side = operand->side;
  // Of line and step one moves; the other is what it was for the element before.
  if (round == 0 || stride->line_by != 0) {
    qn__expr_t* line =
        qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, w->first[side]),
                    add_int(map, qn__gmap_use(map, stride->line), round * stride->line_by));
    if (!w->is_exact[side]) line = at_most(map, line, w->extent[side]);
    qn__var_t* at = qn__gmap_let(map, out, "at", line);
    if (!at) return NULL;
    qn__expr_t* now[qn__gmap_max_nest] = {NULL};
    write_place(w, out, tile->side_dims[side], at, now);
    set_now(w, tile->side_dims[side], now);
  }
  if (round == 0 || stride->step_by != 0) {
    qn__expr_t* step =
        qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, done),
                    add_int(map, qn__gmap_use(map, stride->step), round * stride->step_by));
    if (!w->has_even_steps) step = at_most(map, step, w->steps);
    step = qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, w->begin), step);
    tile->names[tile->step].now = named(map, out, tile->names[tile->step].var->name, step);
  }
  if (qn__gmap_stopped(map)) return NULL;
  write_lets(w, out, operand->is_needed, inner_mask(tile), 0);
  return qn__gmap_let(map, out, side == QN__TILE_ROW ? "a" : "b", copy_now(w, operand->value));
}

static void write_barrier(qn__gmap_t* map, qn__block_t* out) {
  qn__gmap_append(out, qn__stmt_new(map->arena, QN__STMT_BARRIER, (qn__loc_t){0, 0}));
}

static void fill_tiles(write_t* w, qn__block_t* out, const stride_t* strides, qn__var_t* done) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__var_t* elements[qn__tile_max_operands][qn__tile_max_rounds] = {{NULL}};
  int64_t rounds[qn__tile_max_operands];
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    qn__tile_operand_t* operand = &tile->operands[o];
    rounds[o] = tile->shape.depth * qn__tile_extent(tile, operand->side) / tile->shape.threads;
    for (int64_t r = 0; r < rounds[o]; ++r) {
      elements[o][r] = write_element(w, out, operand, &strides[o], done, r);
    }
  }
  write_barrier(map, out);
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    for (int64_t r = 0; r < rounds[o]; ++r) {
      store(map, out, tile->operands[o].tile,
            add_int(map, qn__gmap_use(map, strides[o].step), r * strides[o].step_by),
            add_int(map, qn__gmap_use(map, strides[o].line), r * strides[o].line_by),
            qn__gmap_use(map, elements[o][r]));
    }
  }
  write_barrier(map, out);
}

// ---- sums

static qn__expr_t* add_up(write_t* w, qn__expr_t* sum, qn__expr_t* term) {
  static const qn_op_t ops[] = {
      [QN_REDUCE_SUM] = QN_OP_ADD,
      [QN_REDUCE_PROD] = QN_OP_MUL,
      [QN_REDUCE_MIN] = QN_OP_MIN,
      [QN_REDUCE_MAX] = QN_OP_MAX,
  };
  qn_reduce_kind_t kind = w->tile->reduce->reduce.reduce_kind;
  if (!sum || !term) return NULL;
  bool is_fused = w->map->options->has_fma && kind == QN_REDUCE_SUM &&
                  (sum->dtype == QN_DTYPE_F32 || sum->dtype == QN_DTYPE_F64) &&
                  term->kind == QN__EXPR_OP && term->op == QN_OP_MUL;
  if (is_fused) {
    return qn__expr_op(w->map->arena, QN_OP_FMA, term->args[0], term->args[1], sum);
  }
  return qn__expr_op(w->map->arena, ops[kind], sum, term, NULL);
}

// The sums of a thread for step `k` of the tile.
static void write_step(write_t* w, qn__block_t* out, qn__var_t* done, qn__var_t* k) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__var_t* elements[qn__tile_max_operands][qn__tile_max_outputs] = {{NULL}};
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    const qn__tile_operand_t* operand = &tile->operands[o];
    for (int64_t m = 0; m < tile->shape.outputs[operand->side]; ++m) {
      qn__expr_t* line =
          add_int(map, qn__gmap_use(map, w->own[operand->side]), offset_of(tile, operand->side, m));
      elements[o][m] = qn__gmap_let(map, out, operand->side == QN__TILE_ROW ? "a" : "b",
                                    load(map, operand->tile, qn__gmap_use(map, k), line));
    }
  }
  if (tile->is_needed[tile->step]) {
    qn__expr_t* step = qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, done), qn__gmap_use(map, k));
    step = qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, w->begin), step);
    tile->names[tile->step].now = named(map, out, tile->names[tile->step].var->name, step);
  }
  uint32_t both = tile->side_dims[QN__TILE_ROW] | tile->side_dims[QN__TILE_COLUMN];
  // Lets of the reduction are copied in order, for each sum if they depend on its place; operands
  // are no part of their masks any more, so all of them are.
  for (int64_t m = 0; m < tile->shape.outputs[QN__TILE_ROW]; ++m) {
    set_now(w, tile->side_dims[QN__TILE_ROW], w->places[QN__TILE_ROW][m].now);
    for (int64_t n = 0; n < tile->shape.outputs[QN__TILE_COLUMN]; ++n) {
      set_now(w, tile->side_dims[QN__TILE_COLUMN], w->places[QN__TILE_COLUMN][n].now);
      for (uint32_t o = 0; o < tile->operand_count; ++o) {
        const qn__tile_operand_t* operand = &tile->operands[o];
        tile->names[operand->name].now =
            qn__gmap_use(map, elements[o][operand->side == QN__TILE_ROW ? m : n]);
      }
      write_lets(w, out, tile->is_needed, both | QN__TILE_STEP, 0);
      store(map, out, w->acc, qn__gmap_int(map, m), qn__gmap_int(map, n),
            add_up(w, load_acc(w, m, n), copy_now(w, tile->reduce->reduce.value)));
    }
  }
}

static void write_steps(write_t* w, qn__block_t* out, qn__var_t* done, qn_loop_kind_t kind,
                        qn__expr_t* count) {
  qn__var_t* k = qn__gmap_var(w->map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__stmt_t* loop = qn__gmap_loop(w->map, kind, k, qn__gmap_int(w->map, 0), count);
  if (!loop) return;
  write_step(w, &loop->loop.body, done, k);
  qn__block_append(out, loop);
}

// The steps that a round has in shared memory: all of them, or fewer in the last one.
static void write_sums(write_t* w, qn__block_t* out, qn__var_t* done) {
  qn__gmap_t* map = w->map;
  int64_t depth = w->tile->shape.depth;
  qn_loop_kind_t kind = w->tile->shape.is_unrolled ? QN_LOOP_UNROLL : QN_LOOP_SERIAL;
  if (w->has_even_steps) {
    write_steps(w, out, done, kind, qn__gmap_int(map, depth));
    return;
  }
  qn__var_t* left = qn__gmap_let(
      map, out, "left",
      qn__gmap_op(map, QN_OP_SUB, qn__gmap_copy(map, w->steps), qn__gmap_use(map, done)));
  if (!w->tile->shape.is_unrolled) {
    write_steps(w, out, done, kind, by_int(map, QN_OP_MIN, left, depth));
    return;
  }
  qn__stmt_t* test = qn__gmap_if(map, by_int(map, QN_OP_GE, left, depth));
  if (!test) return;
  write_steps(w, &test->if_.then_block, done, kind, qn__gmap_int(map, depth));
  write_steps(w, &test->if_.else_block, done, QN_LOOP_SERIAL, qn__gmap_use(map, left));
  qn__block_append(out, test);
}

// Where the body goes for a line that may lie outside: `out`, or the arm of a test.
static qn__block_t* inside(write_t* w, qn__block_t* out, qn__tile_side_t side, int64_t m) {
  if (w->is_exact[side]) return out;
  qn__gmap_t* map = w->map;
  qn__expr_t* at = qn__gmap_use(map, w->places[side][m].at);
  qn__stmt_t* test =
      qn__gmap_if(map, qn__gmap_op(map, QN_OP_LT, at, qn__gmap_copy(map, w->extent[side])));
  if (!test) return NULL;
  qn__block_append(out, test);
  return &test->if_.then_block;
}

static void write_rounds(write_t* w, qn__block_t* out) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  stride_t strides[qn__tile_max_operands];
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    strides[o] = write_stride(w, out, &tile->operands[o]);
  }
  qn__var_t* round = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "round");
  qn__expr_t* rounds = qn__gmap_op(map, QN_OP_CEILDIV, qn__gmap_copy(map, w->steps),
                                   qn__gmap_int(map, tile->shape.depth));
  qn__stmt_t* loop = qn__gmap_loop(map, QN_LOOP_SERIAL, round, qn__gmap_int(map, 0), rounds);
  if (!loop) return;
  qn__block_t* body = &loop->loop.body;
  qn__var_t* done =
      qn__gmap_let(map, body, "done", by_int(map, QN_OP_MUL, round, tile->shape.depth));
  if (!done) return;
  fill_tiles(w, body, strides, done);
  // A thread whose first line lies outside has nothing to store.
  qn__block_t* sums = body;
  for (int s = 0; s < qn__tile_sides && sums; ++s) sums = inside(w, sums, (qn__tile_side_t)s, 0);
  if (!sums) return;
  write_sums(w, sums, done);
  qn__block_append(out, loop);
}

// ---- results

static void write_results(write_t* w, qn__block_t* out) {
  qn__tile_t* tile = w->tile;
  qn__tile_name_t* total = &tile->names[tile->name_count - 1];
  for (int64_t m = 0; m < tile->shape.outputs[QN__TILE_ROW]; ++m) {
    set_now(w, tile->side_dims[QN__TILE_ROW], w->places[QN__TILE_ROW][m].now);
    qn__block_t* rows = inside(w, out, QN__TILE_ROW, m);
    for (int64_t n = 0; rows && n < tile->shape.outputs[QN__TILE_COLUMN]; ++n) {
      set_now(w, tile->side_dims[QN__TILE_COLUMN], w->places[QN__TILE_COLUMN][n].now);
      qn__block_t* columns = inside(w, rows, QN__TILE_COLUMN, n);
      if (!columns) return;
      for (qn__stmt_t* let = tile->nest->lets.first; let; let = let->next) {
        write_let(w, columns, &tile->names[qn__tile_find(tile, let->let.var)]);
      }
      total->now = load_acc(w, m, n);
      qn__subst_t subst = {.on_var = now_of, .arena = w->map->arena, .self = tile};
      qn__block_t body = {NULL, NULL};
      if (!total->now || !qn__block_clone(&subst, &tile->nest->body, &body)) return;
      qn__block_splice(columns, &body);
    }
  }
}

// ---- all

void qn__tile_write(qn__tile_t* tile, qn__gmap_unit_t* unit) {
  qn__gmap_t* map = tile->map;
  write_t* w = QN__ARENA_NEW(map->arena, write_t);
  if (!w) return;
  *w = (write_t){.tile = tile, .map = map};
  for (uint32_t i = 0; i < tile->name_count; ++i) tile->names[i].now = NULL;
  w->t = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__var_t* block = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  qn__block_t level = {NULL, NULL}, body = {NULL, NULL};
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    qn__tile_operand_t* operand = &tile->operands[o];
    operand->tile = allocate(map, &level, QN__SCOPE_SHARED, operand->value->dtype,
                             operand->side == QN__TILE_ROW ? "rows" : "columns", tile->shape.depth,
                             qn__tile_pitch(tile, operand));
  }
  if (qn__gmap_stopped(map)) return;
  write_heads(w, &body, block);
  if (qn__gmap_stopped(map)) return;
  write_bounds(w, &body);
  write_zeros(w, &body);
  if (qn__gmap_stopped(map)) return;
  write_rounds(w, &body);
  if (qn__gmap_stopped(map)) return;
  write_results(w, &body);
  qn__expr_t* blocks = extent_of(w, qn__tile_batch(tile));
  for (int s = 0; s < qn__tile_sides; ++s) {
    qn__expr_t* along = tiles_along(w, (qn__tile_side_t)s, extent_of(w, tile->side_dims[s]));
    blocks = qn__gmap_op(map, QN_OP_MUL, blocks, along);
  }
  if (qn__gmap_stopped(map)) return;
  qn__gmap_finish(map, unit, block, blocks, &level,
                  qn__gmap_threads(map, w->t, tile->shape.threads, &body));
}
