// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tile.c: the pass `tile` gives each block a tile of the result of a product.
//
// A block computes a tile of rows by columns. Its threads load the operands for some steps of the
// reduction into shared memory, where each value is used for a whole row or column of the tile.
// products.c recognises products, tile_size.c chooses the tile, tile_write.c writes the code. If
// the extent of a side is known only at the call, the host chooses between launches for few lines
// and for many. Checked builds have no tiles, so that an error names the iteration of an access.
//
// Postcondition: every launch of kind ITERATIONS that is a product, and large enough for tiles, is
// finished. All other launches are unchanged.
#include "ir/passes/gpu/tile.h"

// Copies the lists of a launch, but not the statements in them.
static qn__ir_block_t copy_lists(qn__pass_builder_t* pb, const qn__ir_block_t* block) {
  qn__ir_block_t out = {NULL, NULL};
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    qn__ir_stmt_t* same = qn__stmt_new(pb->arena, stmt->kind, stmt->loc);
    if (!same) break;
    *same = *stmt;
    same->next = NULL;
    if (stmt->kind == QN__STMT_IF) same->if_.then_block = copy_lists(pb, &stmt->if_.then_block);
    if (qn__is_block_loop(stmt)) same->loop.body = copy_lists(pb, &stmt->loop.body);
    qn__block_append(&out, same);
  }
  return out;
}

// Writes the launch of one shape beside `launch`, with its own declarations.
static qn__ir_block_t write_variant(qn__tile_t* tile, qn__ir_stmt_t* launch,
                                    const qn__tile_shape_t* shape) {
  qn__pass_builder_t* pb = tile->product.pb;
  qn__ir_block_t out = {NULL, NULL};
  qn__ir_stmt_t* next = launch->next;
  launch->next = NULL;
  qn__ir_block_t alone = {launch, launch};
  qn__ir_block_t own = copy_lists(pb, &alone);
  launch->next = next;
  qn__launch_t* record = QN__ARENA_NEW(pb->arena, qn__launch_t);
  if (qn__pb_stopped(pb)) return out;
  *record = *launch->loop.launch;
  own.first->loop.launch = record;
  tile->shape = *shape;
  qn__tile_write(tile, own.first);
  if (qn__pb_stopped(pb)) return out;
  qn__ir_subst_t subst = {.arena = pb->arena};
  (void)qn__block_clone(&subst, &own, &out);
  return out;
}

// Returns what the host compares: the lines of a side, or the tiles of the shape for all extents.
static qn__ir_expr_t* lines_of(const qn__tile_t* tile, uint32_t variant) {
  const qn__product_t* product = &tile->product;
  if (tile->variants[variant].max_tiles == 0) {
    return qn__product_extent(product, product->side_dims[tile->variants[variant].side]);
  }
  qn__ir_expr_t* tiles = qn__product_extent(product, qn__product_batch(product));
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__ir_expr_t* lines = qn__product_extent(product, product->side_dims[s]);
    lines = qn__pb_op_int(product->pb, QN_OP_CEILDIV, lines,
                          qn__tile_extent(tile, (qn__product_side_t)s));
    tiles = qn__pb_op(product->pb, QN_OP_MUL, tiles, lines);
  }
  return tiles;
}

// Returns true if an earlier variant has the same test, as for a square matrix.
static bool is_repeated(const qn__tile_t* tile, uint32_t variant) {
  const qn__ir_expr_t* lines = lines_of(tile, variant);
  for (uint32_t v = 0; lines && v < variant; ++v) {
    const qn__ir_expr_t* other = lines_of(tile, v);
    if (other && qn__expr_equal(lines, other)) return true;
  }
  return false;
}

static void remove_variant(qn__tile_t* tile, uint32_t variant) {
  --tile->variant_count;
  for (uint32_t v = variant; v < tile->variant_count; ++v)
    tile->variants[v] = tile->variants[v + 1];
}

// Writes `if rows <= 16 { one launch } else { another }`: the host chooses at the call.
static void write_all(qn__tile_t* tile, qn__ir_stmt_t* launch) {
  qn__pass_builder_t* pb = tile->product.pb;
  qn__tile_shape_t shape = tile->shape;
  qn__ir_block_t launches[qn__tile_max_variants];
  assert(tile->variant_count <= qn__tile_max_variants);
  for (uint32_t v = tile->variant_count; v-- > 0;) {
    if (is_repeated(tile, v)) remove_variant(tile, v);
  }
  for (uint32_t v = 0; v < tile->variant_count; ++v) {
    launches[v] = write_variant(tile, launch, &tile->variants[v].shape);
  }
  tile->shape = shape;
  if (qn__pb_stopped(pb)) return;
  qn__tile_write(tile, launch);
  for (uint32_t v = tile->variant_count; v-- > 0 && !qn__pb_stopped(pb);) {
    const qn__tile_variant_t* variant = &tile->variants[v];
    int64_t most = variant->max_tiles ? variant->max_tiles : variant->max_lines;
    qn__ir_expr_t* is_few = qn__pb_op_int(pb, QN_OP_LE, lines_of(tile, v), most);
    qn__ir_stmt_t* other = qn__stmt_new(pb->arena, QN__STMT_LOOP, (qn__ir_loc_t){0, 0});
    qn__ir_stmt_t* test = qn__pb_if(pb, is_few, launches[v]);
    if (!other || !test) return;
    qn__ir_stmt_t* next = launch->next;
    assert(launch->kind == QN__STMT_IF || !launch->loop.launch);  // qn__tile_write finished it
    *other = *launch;
    test->if_.else_block = qn__block_of(other);
    test->if_.is_choice = true;
    *launch = *test;
    launch->next = next;
  }
}

static bool try_tile(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_stmt_t* launch) {
  qn__tile_t* tile = QN__ARENA_NEW(pb->arena, qn__tile_t);
  if (!tile || !qn__host_knows_nest(nest) || !qn__product_find(pb, nest, &tile->product) ||
      !qn__tile_choose(tile)) {
    return false;
  }
  if (qn__product_replace(&tile->product)) write_all(tile, launch);
  return true;
}

static void tile_launch(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  if (launch->loop.launch->kind != QN__LAUNCH_ITERATIONS || pb->options->is_checked) return;
  qn__ir_block_t content = qn__launch_take(launch);
  qn__ir_stmt_t* loop = content.first;
  assert(qn__is_independent_loop(loop) && !loop->next);  // partition
  bool is_tiled = false;
  if (!qn__block_any(&loop->loop.body, qn__threads_synchronize)) {
    qn__nest_t nest;
    qn__nest_open(pb, loop, &nest);
    is_tiled = !qn__pb_stopped(pb) && try_tile(pb, &nest, launch);
    if (!is_tiled) qn__nest_close(&nest);
  }
  if (!is_tiled) qn__launch_put(launch, &content);
}

static void tile_function(qn__pass_builder_t* pb) {
  qn__launch_each(pb, tile_launch);
}

// Returns true for a choice whose first branch is not one finished launch.
static bool is_bad_choice(const qn__ir_stmt_t* stmt) {
  if (stmt->kind != QN__STMT_IF || !stmt->if_.is_choice) return false;
  const qn__ir_stmt_t* first = stmt->if_.then_block.first;
  return !first || first->next || !qn__is_block_loop(first) || first->loop.launch;
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_bad_choice) ? "a choice between unfinished launches"
                                                       : NULL;
}

const qn__pass_t qn__pass_tile = {
    .name = "tile",
    .doc = "gives each block a tile of the result of a product",
    .run = tile_function,
    .post = "launches that are large products are finished",
    .check = check,
};
