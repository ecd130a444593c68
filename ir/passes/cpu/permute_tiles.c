// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/permute_tiles.c: writes a nest of copies in tiles.
//
// With p the loop along which loads are contiguous, q the one along which stores are, and tiles of
// 16 x 16:
//
//   parallel block in 0..blocks {                        // of nearly equal parts of q
//     for tile_p in 0..ceildiv(lines of p, 16) { for tile_q in 0..ceildiv(lines of the block, 16) {
//       alloc tile: f32[16, 16] in local;
//       for j in 0..16 { vector i in 0..16 { tile[i, j] = a[q + j, p + i]; } }
//       for i in 0..16 { vector j in 0..16 { b[p + i, q + j] = tile[i, j]; } }
//     } }
//     for p in the rest { for q in the rest { b[p, q] = a[q, p]; } }
//   }
//
// 1. The code generator turns the first pair of loops into loads of vectors and shuffles.
// 2. A last tile that is not full begins earlier, and computes some elements again. Where that is
//    wrong, because the nest reads what it stores to, these elements are left to the loops as they
//    were. So are all if p is shorter than a tile. If q is, vectors run along p.
// 3. A block has many rows of the source, each of which is read from begin to end, and stores some
//    lines of a row of the result one after another. (Measured with 4096 x 4096 of f32 on a Zen 4:
//    blocks of 4 tiles take 1.4 times as long as blocks of 16.)
#include "ir/passes/cpu/permute.h"
#include "ir/passes/products_write.h"

// Tiles of a block along q, and fewer where there would be less than `min_blocks`.
enum { tiles_of_block = 16, min_tiles = 8, min_blocks = 4 };

typedef struct copy_tiles {
  qn__permute_t* permute;
  qn__pass_builder_t* pb;
  qn__ir_expr_t *begin[2], *end[2], *count[2];  // of p and q: cheap to copy
  bool can_repeat;                              // elements may be computed twice
} copy_tiles_t;

enum { P, Q };

static qn__ir_expr_t* copy(const copy_tiles_t* t, const qn__ir_expr_t* expr) {
  return qn__pb_copy(t->pb, expr);
}

static qn__ir_expr_t* sum(const copy_tiles_t* t, const qn__ir_expr_t* a, qn__ir_expr_t* b) {
  return qn__pb_op(t->pb, QN_OP_ADD, copy(t, a), b);
}

static qn__ir_stmt_t* loop_of(const copy_tiles_t* t, int side) {
  const qn__permute_t* permute = t->permute;
  return permute->nest->loops[side == P ? permute->turn : permute->line];
}

// ---- copies of the body

typedef struct tile_place {
  const copy_tiles_t* tiles;
  qn__ir_expr_t* now[2];           // values of p and q
  qn__ir_buffer_t* const* turned;  // by access: the tile that has it; NULL: as it is
  qn__ir_expr_t* at[2];            // indices of a tile
} tile_place_t;

static qn__ir_expr_t* replace_var(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  const tile_place_t* place = subst->self;
  for (int side = 0; side < 2; ++side) {
    if (var == loop_of(place->tiles, side)->loop.var) {
      return qn__pb_copy(place->tiles->pb, place->now[side]);
    }
  }
  return NULL;
}

// Appends a copy of the lets and the body at a place.
static void write_body(const tile_place_t* place, qn__ir_block_t* out) {
  const copy_tiles_t* t = place->tiles;
  qn__permute_t* permute = t->permute;
  qn__ir_expr_t* loads[qn__permute_max_accesses];
  for (uint32_t i = 0; i < permute->count && place->turned; ++i) {
    qn__permute_access_t* access = &permute->accesses[i];
    if (!access->is_turned) continue;
    loads[i] = *access->slot;
    *access->slot =
        qn__pb_load(t->pb, place->turned[i], copy(t, place->at[P]), copy(t, place->at[Q]));
    if (!*access->slot) return;
  }
  qn__ir_subst_t subst = {
      .on_var = replace_var, .arena = t->pb->arena, .self = (void*)(uintptr_t)place};
  // The lets and the body are one block here, so that copies of the lets serve the body.
  qn__ir_block_t all = permute->nest->body;
  if (permute->nest->lets.first) {
    all.first = permute->nest->lets.first;
    permute->nest->lets.last->next = permute->nest->body.first;
  }
  (void)qn__block_clone(&subst, &all, out);
  if (permute->nest->lets.first) permute->nest->lets.last->next = NULL;
  for (uint32_t i = 0; i < permute->count && place->turned; ++i) {
    if (permute->accesses[i].is_turned) *permute->accesses[i].slot = loads[i];
  }
}

// ---- a tile

static void write_tile(const copy_tiles_t* t, qn__ir_block_t* out,
                       const qn__ir_expr_t* const first[2]) {
  qn__permute_t* permute = t->permute;
  qn__pass_builder_t* pb = t->pb;
  qn__ir_buffer_t* turned[qn__permute_max_accesses] = {NULL};
  for (uint32_t i = 0; i < permute->count; ++i) {
    const qn__permute_access_t* access = &permute->accesses[i];
    if (!access->is_turned) continue;
    turned[i] = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, access->buffer->dtype, "tile", permute->size,
                             permute->size);
    qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "j", qn__pb_int(pb, permute->size));
    qn__ir_stmt_t* along =
        qn__pb_count_loop(pb, QN_LOOP_VECTOR, "i", qn__pb_int(pb, permute->size));
    if (!down || !along || !turned[i]) return;
    qn__ir_var_t *p = along->loop.var, *q = down->loop.var;
    tile_place_t place = {.tiles = t};
    place.now[P] = sum(t, first[P], qn__pb_use(pb, p));
    place.now[Q] = sum(t, first[Q], qn__pb_use(pb, q));
    qn__ir_subst_t subst = {.on_var = replace_var, .arena = pb->arena, .self = &place};
    qn__ir_expr_t* value = qn__expr_clone(&subst, *access->slot);
    qn__pb_append(&along->loop.body,
                  qn__pb_store(pb, turned[i], qn__pb_use(pb, p), qn__pb_use(pb, q), value));
    down->loop.is_transposed = true;
    qn__block_append(&down->loop.body, along);
    qn__block_append(out, down);
  }
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "i", qn__pb_int(pb, permute->size));
  qn__ir_stmt_t* along = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "j", qn__pb_int(pb, permute->size));
  if (!down || !along) return;
  tile_place_t place = {.tiles = t, .turned = turned};
  place.at[P] = qn__pb_use(pb, down->loop.var);
  place.at[Q] = qn__pb_use(pb, along->loop.var);
  place.now[P] = sum(t, first[P], copy(t, place.at[P]));
  place.now[Q] = sum(t, first[Q], copy(t, place.at[Q]));
  if (qn__pb_stopped(pb)) return;
  write_body(&place, &along->loop.body);
  qn__block_append(&down->loop.body, along);
  qn__block_append(out, down);
}

// ---- a block

// Returns the loop over tiles from `first` on, and sets the variable of the tile's first line. The
// last tile of `lines` begins earlier if it may.
static qn__ir_stmt_t* write_steps(const copy_tiles_t* t, const char* name,
                                  const qn__ir_expr_t* tiles, const qn__ir_expr_t* first,
                                  const qn__ir_expr_t* lines, qn__ir_expr_t** out_first) {
  qn__pass_builder_t* pb = t->pb;
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, name, copy(t, tiles));
  if (!loop) return NULL;
  int64_t size = t->permute->size;
  qn__ir_expr_t* at = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), size);
  if (t->can_repeat) {
    at = qn__pb_op(pb, QN_OP_MIN, at, qn__pb_op_int(pb, QN_OP_SUB, copy(t, lines), size));
  }
  *out_first = qn__pb_named(pb, &loop->loop.body, "first", sum(t, first, at));
  return *out_first ? loop : NULL;
}

// Returns the number of tiles for `lines`: none if they are fewer than a tile's.
static qn__ir_expr_t* tiles_of(const copy_tiles_t* t, const qn__ir_expr_t* lines) {
  int64_t size = t->permute->size;
  qn__ir_expr_t* tiles = qn__pb_op_int(t->pb, QN_OP_FLOORDIV, copy(t, lines), size);
  if (!t->can_repeat) return tiles;
  qn__ir_expr_t* all = qn__pb_op_int(t->pb, QN_OP_CEILDIV, copy(t, lines), size);
  qn__ir_expr_t* has_one = qn__pb_op_int(t->pb, QN_OP_GE, copy(t, lines), size);
  return qn__pb_cond(t->pb, has_one, all, qn__pb_int(t->pb, 0));
}

// Returns the line after those of the tiles.
static qn__ir_expr_t* after_tiles(const copy_tiles_t* t, const qn__ir_expr_t* first,
                                  const qn__ir_expr_t* tiles, const qn__ir_expr_t* lines) {
  qn__ir_expr_t* done = qn__pb_op_int(t->pb, QN_OP_MUL, copy(t, tiles), t->permute->size);
  return sum(t, first, qn__pb_op(t->pb, QN_OP_MIN, done, copy(t, lines)));
}

// Appends the nest as it was, over ranges of p and q, the loop `outer` outside.
static qn__ir_stmt_t* write_plain(const copy_tiles_t* t, int outer, qn__ir_expr_t* const begin[2],
                                  qn__ir_expr_t* const end[2]) {
  qn__pass_builder_t* pb = t->pb;
  qn__ir_stmt_t* loops[2];
  tile_place_t place = {.tiles = t};
  for (int side = 0; side < 2; ++side) {
    qn__ir_var_t* var =
        qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, loop_of(t, side)->loop.var->name);
    loops[side] = qn__pb_loop(pb, QN_LOOP_PARALLEL, var, copy(t, begin[side]), copy(t, end[side]));
    place.now[side] = qn__pb_use(pb, var);
  }
  if (qn__pb_stopped(pb) || !loops[P] || !loops[Q]) return NULL;
  write_body(&place, &loops[!outer]->loop.body);
  qn__block_append(&loops[outer]->loop.body, loops[!outer]);
  return loops[outer];
}

// Appends the tiles of the lines of q from `first` to `limit`, and what they leave.
static void write_block(const copy_tiles_t* t, qn__ir_block_t* out, qn__ir_expr_t* first,
                        qn__ir_expr_t* limit) {
  qn__pass_builder_t* pb = t->pb;
  qn__ir_expr_t* lines =
      qn__pb_named(pb, out, "lines", qn__pb_op(pb, QN_OP_SUB, copy(t, limit), copy(t, first)));
  if (!lines) return;
  qn__ir_expr_t* tiles_p = qn__pb_named(pb, out, "tiles_p", tiles_of(t, t->count[P]));
  qn__ir_expr_t* tiles_q = qn__pb_named(pb, out, "tiles_q", tiles_of(t, lines));
  if (!tiles_p || !tiles_q) return;
  qn__ir_expr_t* at[2];
  qn__ir_stmt_t* down = write_steps(t, "tile_p", tiles_p, t->begin[P], t->count[P], &at[P]);
  qn__ir_stmt_t* across = write_steps(t, "tile_q", tiles_q, first, lines, &at[Q]);
  if (!across || !down) return;
  write_tile(t, &across->loop.body, (const qn__ir_expr_t* const*)at);
  qn__block_append(&down->loop.body, across);
  qn__block_append(out, down);
  // Lines of p with tiles have the rest of q left, others all of it.
  qn__ir_expr_t* done_p =
      qn__pb_named(pb, out, "done_p", after_tiles(t, t->begin[P], tiles_p, t->count[P]));
  qn__ir_expr_t* done_q = qn__pb_named(pb, out, "done_q", after_tiles(t, first, tiles_q, lines));
  if (!done_p || !done_q) return;
  qn__ir_expr_t* begin[2] = {t->begin[P], done_q};
  qn__ir_expr_t* end[2] = {done_p, limit};
  // A block is no shorter than a tile, so that tiles that may repeat elements leave nothing.
  if (!t->can_repeat) qn__pb_append(out, write_plain(t, P, begin, end));
  begin[P] = done_p;
  begin[Q] = first;
  end[P] = t->end[P];
  qn__pb_append(out, write_plain(t, P, begin, end));
}

// ---- the nest

// Returns true if computing an element twice is right: the nest reads nothing that it stores to.
static bool may_repeat(const qn__permute_t* permute) {
  for (uint32_t i = 0; i < permute->count; ++i) {
    if (permute->accesses[i].slot && permute->accesses[i].is_stored_to) return false;
  }
  return true;
}

// Returns the first line of a block: the first `extra` blocks have one line more than `base`.
static qn__ir_expr_t* block_begin(const copy_tiles_t* t, qn__ir_expr_t* block,
                                  const qn__ir_expr_t* base, const qn__ir_expr_t* extra) {
  qn__pass_builder_t* pb = t->pb;
  qn__ir_expr_t* longer = qn__pb_op(pb, QN_OP_MIN, copy(t, block), copy(t, extra));
  qn__ir_expr_t* lines = qn__pb_op(pb, QN_OP_MUL, block, copy(t, base));
  return sum(t, t->begin[Q], qn__pb_op(pb, QN_OP_ADD, lines, longer));
}

// Appends the blocks of q. None is shorter than a tile, unless all of q is.
static void write_blocks(const copy_tiles_t* t, qn_loop_kind_t kind, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = t->pb;
  int64_t size = t->permute->size;
  const qn__ir_expr_t* count = t->count[Q];
  qn__ir_expr_t* blocks = qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(t, count), size * tiles_of_block);
  qn__ir_expr_t* small = qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(t, count), size * min_tiles);
  small = qn__pb_op_int(pb, QN_OP_MIN, small, min_blocks);
  blocks = qn__pb_op_int(pb, QN_OP_MAX, qn__pb_op(pb, QN_OP_MAX, blocks, small), 1);
  blocks = qn__pb_named(pb, out, "blocks", blocks);
  if (!blocks) return;
  qn__ir_expr_t* base =
      qn__pb_named(pb, out, "base", qn__pb_op(pb, QN_OP_FLOORDIV, copy(t, count), copy(t, blocks)));
  qn__ir_expr_t* extra = qn__pb_named(
      pb, out, "extra", qn__pb_op(pb, QN_OP_FLOORMOD, copy(t, count), copy(t, blocks)));
  qn__ir_stmt_t* block = qn__pb_count_loop(pb, kind, "block", blocks);
  if (!block || !base || !extra) return;
  qn__ir_block_t* body = &block->loop.body;
  qn__ir_expr_t* own = qn__pb_use(pb, block->loop.var);
  qn__ir_expr_t* next = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, block->loop.var), 1);
  qn__ir_expr_t* first = qn__pb_named(pb, body, "first", block_begin(t, own, base, extra));
  qn__ir_expr_t* limit = qn__pb_named(pb, body, "limit", block_begin(t, next, base, extra));
  if (!first || !limit) return;
  write_block(t, body, first, limit);
  qn__block_append(out, block);
}

// Appends the nest for few lines of q: vectors along p, whose stores are apart.
static void write_narrow(const copy_tiles_t* t, qn_loop_kind_t kind, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = t->pb;
  int64_t size = t->permute->size;
  qn__ir_expr_t* chunks = qn__pb_named(
      pb, out, "chunks", qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(t, t->count[P]), size));
  if (!chunks) return;
  qn__ir_stmt_t* chunk = qn__pb_count_loop(pb, kind, "chunk", copy(t, chunks));
  qn__ir_var_t* q = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, loop_of(t, Q)->loop.var->name);
  qn__ir_stmt_t* across =
      qn__pb_loop(pb, QN_LOOP_SERIAL, q, copy(t, t->begin[Q]), copy(t, t->end[Q]));
  qn__ir_stmt_t* along = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "i", qn__pb_int(pb, size));
  if (!chunk || !across || !along) return;
  qn__ir_expr_t* shift = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, chunk->loop.var), size);
  qn__ir_expr_t* first = qn__pb_named(pb, &chunk->loop.body, "first", sum(t, t->begin[P], shift));
  if (!first) return;
  tile_place_t place = {.tiles = t};
  place.now[P] = sum(t, first, qn__pb_use(pb, along->loop.var));
  place.now[Q] = qn__pb_use(pb, q);
  if (qn__pb_stopped(pb)) return;
  write_body(&place, &along->loop.body);
  qn__block_append(&across->loop.body, along);
  qn__block_append(&chunk->loop.body, across);
  qn__block_append(out, chunk);
  qn__ir_expr_t* begin[2] = {
      sum(t, t->begin[P], qn__pb_op_int(pb, QN_OP_MUL, copy(t, chunks), size)), t->begin[Q]};
  if (!begin[P]) return;
  qn__ir_stmt_t* rest = write_plain(t, P, begin, t->end);
  if (rest) {
    qn__ir_stmt_t* inner = rest->loop.body.first;
    rest->loop.kind = inner->loop.kind = QN_LOOP_SERIAL;
    rest->loop.is_rare = inner->loop.is_rare = true;
  }
  qn__pb_append(out, rest);
}

void qn__permute_write_tiles(qn__permute_t* permute, qn_loop_kind_t kind, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = permute->pb;
  const qn__nest_t* nest = permute->nest;
  copy_tiles_t t = {.permute = permute, .pb = pb, .can_repeat = may_repeat(permute)};
  for (int side = 0; side < 2; ++side) {
    const qn__ir_stmt_t* loop = loop_of(&t, side);
    t.begin[side] = qn__pb_named(pb, out, "begin", copy(&t, loop->loop.begin));
    t.end[side] = qn__pb_named(pb, out, "end", copy(&t, loop->loop.end));
    if (!t.begin[side] || !t.end[side]) return;
    t.count[side] = qn__pb_named(pb, out, "count", qn__pb_range(pb, t.begin[side], t.end[side]));
    if (!t.count[side]) return;
  }
  // The other loops stay around the blocks, the first of them as the launch.
  qn__ir_block_t* at = out;
  for (uint32_t d = 0; d < nest->count; ++d) {
    if (d == permute->turn || d == permute->line) continue;
    nest->loops[d]->loop.kind = at == out ? kind : QN_LOOP_PARALLEL;
    qn__block_append(at, nest->loops[d]);
    at = &nest->loops[d]->loop.body;
  }
  qn_loop_kind_t own = at == out ? kind : QN_LOOP_PARALLEL;
  qn__ir_block_t narrow = {NULL, NULL}, blocks = {NULL, NULL};
  write_blocks(&t, own, &blocks);
  if (t.count[Q]->kind == QN__EXPR_INT) {
    qn__block_splice(at, &blocks);
    return;
  }
  write_narrow(&t, own, &narrow);
  qn__ir_expr_t* is_narrow = qn__pb_op_int(pb, QN_OP_LT, copy(&t, t.count[Q]), permute->size);
  qn__ir_stmt_t* choice = qn__pb_if(pb, is_narrow, narrow);
  if (!choice) return;
  choice->if_.else_block = blocks;
  qn__block_append(at, choice);
}
