// SPDX-License-Identifier: Apache-2.0
// ir/passes/scan_tiles.c: the tiles of a scan, whose steps lower_scan.c describes.
#include "ir/passes/scan_tiles.h"

#include "ir/passes/gpu/launch.h"

enum {
  longest_run = 8,
  most_bytes = 16384,  // of shared memory, so that an SM has several blocks
};

void qn__scan_append_body(qn__pass_builder_t* pb, qn__ir_several_t* several, qn__ir_var_t* at,
                          qn__ir_block_t* out) {
  qn__pb_let_var(pb, out, several->var, qn__pb_use(pb, at));
  qn__block_splice(out, &several->body);
}

// Returns about the bytes of shared memory of a tile, for one byte of values.
static int64_t tile_bytes(int64_t threads, int64_t run) {
  return threads * (run + 3);
}

void qn__scan_choose_size(qn__scan_tiles_t* tiles, int64_t trips) {
  int64_t bytes = 0, warp = tiles->pb->warp_size, limit = qn__shared_limit(tiles->pb);
  // All scans of a launch have their memory at once.
  limit = limit / tiles->scan_count < most_bytes ? limit / tiles->scan_count : most_bytes;
  for (uint32_t i = 0; i < tiles->several->count; ++i) {
    bytes += (int64_t)qn_dtype_size_bytes(tiles->several->values[i]->dtype);
  }
  tiles->run = longest_run;
  while (tiles->run > 1 && bytes * tile_bytes(tiles->threads, tiles->run) > limit) {
    tiles->run /= 2;
  }
  while (tiles->threads > warp && bytes * tile_bytes(tiles->threads, tiles->run) > limit) {
    tiles->threads /= 2;
  }
  while (trips >= 0 && tiles->threads > warp && tiles->threads / 2 * tiles->run >= trips) {
    tiles->threads /= 2;
  }
  while (trips >= 0 && tiles->run > 1 && tiles->threads * (tiles->run / 2) >= trips) {
    tiles->run /= 2;
  }
  tiles->groups = 1;
  while (tiles->groups * tiles->groups < tiles->threads) tiles->groups *= 2;
  tiles->size = tiles->threads / tiles->groups;
}

static void copy_elements(const qn__scan_tiles_t* tiles, qn__ir_buffer_t* const* to,
                          const qn__ir_expr_t* to_at, qn__ir_buffer_t* const* from,
                          const qn__ir_expr_t* from_at, qn__ir_block_t* out) {
  qn__several_copy(tiles->pb, tiles->several->count, to, to_at, from, from_at, out);
}

// Appends `into[] = what the combiner makes of into[] and with[at]`.
static void merge_element(const qn__scan_tiles_t* tiles, qn__ir_buffer_t* const* into,
                          qn__ir_buffer_t* const* with, const qn__ir_expr_t* at,
                          qn__ir_block_t* out) {
  qn__several_exprs_t right;
  qn__several_load(tiles->pb, with, tiles->several->count, at, right);
  qn__several_merge(tiles->pb, tiles->several, into, NULL, right, out);
}

// Returns elements [row, column] of buffers. False without memory.
static bool load_at(const qn__scan_tiles_t* tiles, qn__ir_buffer_t* const* buffers,
                    const qn__ir_expr_t* row, const qn__ir_expr_t* column,
                    qn__ir_expr_t** out_loads) {
  qn__pass_builder_t* pb = tiles->pb;
  if (!row || !column) return false;
  for (uint32_t i = 0; i < tiles->several->count; ++i) {
    out_loads[i] = qn__pb_load(pb, buffers[i], qn__pb_copy(pb, row), qn__pb_copy(pb, column));
  }
  return !qn__pb_stopped(pb);
}

// Appends stores of values to elements [row, column] of buffers.
static void store_at(const qn__scan_tiles_t* tiles, qn__ir_buffer_t* const* buffers,
                     const qn__ir_expr_t* row, const qn__ir_expr_t* column,
                     qn__ir_expr_t* const* values, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  for (uint32_t i = 0; i < tiles->several->count && row && column; ++i) {
    qn__pb_append(out, qn__pb_store(pb, buffers[i], qn__pb_copy(pb, row), qn__pb_copy(pb, column),
                                    values[i]));
  }
}

// Returns the row and the column of element `at` of buffers that have `columns` of the range, and
// one more.
static qn__ir_expr_t* row_of(const qn__scan_tiles_t* tiles, qn__ir_var_t* at, int64_t columns) {
  return qn__pb_op_int(tiles->pb, QN_OP_FLOORDIV, qn__pb_use(tiles->pb, at), columns);
}

static qn__ir_expr_t* column_of(const qn__scan_tiles_t* tiles, qn__ir_var_t* at, int64_t columns) {
  return qn__pb_op_int(tiles->pb, QN_OP_FLOORMOD, qn__pb_use(tiles->pb, at), columns);
}

// Appends a loop, and returns its body.
static qn__ir_block_t* append_loop(const qn__scan_tiles_t* tiles, qn_loop_kind_t kind,
                                   const char* name, qn__ir_expr_t* begin, qn__ir_expr_t* end,
                                   qn__ir_block_t* out, qn__ir_var_t** out_var) {
  qn__pass_builder_t* pb = tiles->pb;
  *out_var = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, name);
  qn__ir_stmt_t* loop = qn__pb_loop(pb, kind, *out_var, begin, end);
  if (!loop) return NULL;
  loop->loop.is_of_block = kind == QN_LOOP_PARALLEL;
  qn__block_append(out, loop);
  return &loop->loop.body;
}

static qn__ir_block_t* append_parallel(const qn__scan_tiles_t* tiles, const char* name,
                                       int64_t count, qn__ir_block_t* out, qn__ir_var_t** out_var) {
  return append_loop(tiles, QN_LOOP_PARALLEL, name, qn__pb_int(tiles->pb, 0),
                     qn__pb_int(tiles->pb, count), out, out_var);
}

// Appends a loop over the runs of a group from `from` on, and returns its body.
static qn__ir_block_t* append_group(const qn__scan_tiles_t* tiles, int64_t from,
                                    qn__ir_block_t* out, qn__ir_var_t** out_i) {
  qn__pass_builder_t* pb = tiles->pb;
  return append_loop(tiles, QN_LOOP_SERIAL, "i", qn__pb_int(pb, from), qn__pb_int(pb, tiles->size),
                     out, out_i);
}

// Appends step 1.
static void compute_values(const qn__scan_tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_var_t* e;
  qn__several_vars_t values;
  qn__several_exprs_t uses;
  qn__ir_block_t* body = append_parallel(tiles, "e", tiles->threads * tiles->run, out, &e);
  if (!body) return;
  qn__ir_expr_t* at = qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, tiles->base), qn__pb_use(pb, e));
  qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_SUB, qn__pb_use(pb, tiles->end), 1);
  if (!qn__several_values(pb, tiles->several, qn__pb_op(pb, QN_OP_MIN, at, last), body, values)) {
    return;
  }
  qn__several_use(pb, values, tiles->several->count, uses);
  store_at(tiles, tiles->values, row_of(tiles, e, tiles->run), column_of(tiles, e, tiles->run),
           uses, body);
}

// Appends step 2.
static void combine_runs(const qn__scan_tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  uint32_t count = tiles->several->count;
  qn__ir_var_t *run, *i;
  qn__several_buffers_t totals;
  qn__several_exprs_t uses;
  qn__ir_block_t* body = append_parallel(tiles, "run", tiles->threads, out, &run);
  if (!body || !qn__several_declare(pb, tiles->several, -1, body, totals) ||
      !load_at(tiles, tiles->values, qn__pb_use(pb, run), qn__pb_int(pb, 0), uses)) {
    return;
  }
  qn__several_store(pb, totals, count, NULL, uses, body);
  qn__ir_block_t* step = append_loop(tiles, QN_LOOP_SERIAL, "i", qn__pb_int(pb, 1),
                                     qn__pb_int(pb, tiles->run), body, &i);
  if (!step || !load_at(tiles, tiles->values, qn__pb_use(pb, run), qn__pb_use(pb, i), uses)) return;
  qn__several_merge(pb, tiles->several, totals, NULL, uses, step);
  if (tiles->has_body) {
    qn__several_load(pb, totals, count, NULL, uses);
    store_at(tiles, tiles->values, qn__pb_use(pb, run), qn__pb_use(pb, i), uses, step);
  }
  qn__several_load(pb, totals, count, NULL, uses);
  store_at(tiles, tiles->runs, row_of(tiles, run, tiles->size), column_of(tiles, run, tiles->size),
           uses, body);
}

// Appends step 3.
static void combine_groups(const qn__scan_tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_var_t *group, *i;
  qn__several_buffers_t totals;
  qn__several_exprs_t loads;
  qn__ir_block_t* body = append_parallel(tiles, "group", tiles->groups, out, &group);
  if (!body || !qn__several_declare(pb, tiles->several, -1, body, totals) ||
      !load_at(tiles, tiles->runs, qn__pb_use(pb, group), qn__pb_int(pb, 0), loads)) {
    return;
  }
  qn__several_store(pb, totals, tiles->several->count, NULL, loads, body);
  qn__ir_block_t* step = append_group(tiles, 1, body, &i);
  if (!step || !load_at(tiles, tiles->runs, qn__pb_use(pb, group), qn__pb_use(pb, i), loads)) {
    return;
  }
  qn__several_merge(pb, tiles->several, totals, NULL, loads, step);
  copy_elements(tiles, tiles->sums, qn__pb_use(pb, group), totals, NULL, body);
}

// Appends step 4.
static void begin_runs(const qn__scan_tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  uint32_t count = tiles->several->count;
  qn__ir_var_t *group, *before, *i;
  qn__several_buffers_t totals;
  qn__several_vars_t own;
  qn__several_exprs_t loads, uses;
  qn__ir_block_t* body = append_parallel(tiles, "group", tiles->groups, out, &group);
  if (!body || !qn__several_declare(pb, tiles->several, -1, body, totals)) return;
  copy_elements(tiles, totals, NULL, tiles->carried, NULL, body);
  qn__ir_block_t* step = append_loop(tiles, QN_LOOP_SERIAL, "before", qn__pb_int(pb, 0),
                                     qn__pb_use(pb, group), body, &before);
  if (!step) return;
  merge_element(tiles, totals, tiles->sums, qn__pb_use(pb, before), step);
  step = append_group(tiles, 0, body, &i);
  if (!step || !load_at(tiles, tiles->runs, qn__pb_use(pb, group), qn__pb_use(pb, i), loads)) {
    return;
  }
  for (uint32_t v = 0; v < count; ++v) {
    if (!(own[v] = qn__pb_let(pb, step, "own", loads[v]))) return;
  }
  qn__several_load(pb, totals, count, NULL, uses);
  store_at(tiles, tiles->runs, qn__pb_use(pb, group), qn__pb_use(pb, i), uses, step);
  qn__several_use(pb, own, count, uses);
  qn__several_merge(pb, tiles->several, totals, NULL, uses, step);
  copy_elements(tiles, tiles->ends, qn__pb_use(pb, group), totals, NULL, body);
}

// Appends the results of element [row, column]: what its run begins with and the values up to it,
// or before it, make. `totals` has the beginning.
static void append_results(const qn__scan_tiles_t* tiles, qn__ir_var_t* row, qn__ir_var_t* column,
                           qn__ir_buffer_t* const* totals, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__several_exprs_t loads;
  if (tiles->several->kind != QN__SEVERAL_EXCLUSIVE_SCAN) {
    if (!load_at(tiles, tiles->values, qn__pb_use(pb, row), qn__pb_use(pb, column), loads)) return;
    qn__several_merge(pb, tiles->several, totals, NULL, loads, out);
  } else {
    qn__ir_block_t then = {NULL, NULL};
    qn__ir_expr_t* before = qn__pb_op_int(pb, QN_OP_SUB, qn__pb_use(pb, column), 1);
    if (!load_at(tiles, tiles->values, qn__pb_use(pb, row), before, loads)) return;
    qn__several_merge(pb, tiles->several, totals, NULL, loads, &then);
    qn__ir_expr_t* has_any = qn__pb_op_int(pb, QN_OP_GT, qn__pb_use(pb, column), 0);
    qn__pb_append(out, qn__pb_if(pb, has_any, then));
  }
  qn__several_give_results(pb, tiles->several, totals, out);
}

// Appends step 5.
static void run_body(const qn__scan_tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_var_t* e;
  qn__several_buffers_t totals;
  qn__several_exprs_t loads;
  qn__ir_block_t* body = append_parallel(tiles, "e", tiles->threads * tiles->run, out, &e);
  if (!body) return;
  qn__ir_var_t* at = qn__pb_let(
      pb, body, "at", qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, tiles->base), qn__pb_use(pb, e)));
  if (!at) return;
  qn__ir_stmt_t* guard =
      qn__pb_if(pb, qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, at), qn__pb_use(pb, tiles->end)),
                (qn__ir_block_t){NULL, NULL});
  if (!guard) return;
  qn__block_append(body, guard);
  qn__ir_block_t* inside = &guard->if_.then_block;
  qn__ir_var_t* row = qn__pb_let(pb, inside, "run", row_of(tiles, e, tiles->run));
  qn__ir_var_t* column = qn__pb_let(pb, inside, "i", column_of(tiles, e, tiles->run));
  if (!row || !column || !qn__several_declare(pb, tiles->several, -1, inside, totals) ||
      !load_at(tiles, tiles->runs, row_of(tiles, row, tiles->size),
               column_of(tiles, row, tiles->size), loads)) {
    return;
  }
  qn__several_store(pb, totals, tiles->several->count, NULL, loads, inside);
  append_results(tiles, row, column, totals, inside);
  qn__scan_append_body(pb, tiles->several, at, inside);
}

// Appends the result of the tile to that of those before it.
static void carry_sums(const qn__scan_tiles_t* tiles, qn__ir_var_t* tile, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_var_t* group;
  qn__ir_block_t first = {NULL, NULL}, other = {NULL, NULL};
  copy_elements(tiles, tiles->carried, NULL, tiles->sums, qn__pb_int(pb, 0), &first);
  merge_element(tiles, tiles->carried, tiles->sums, qn__pb_int(pb, 0), &other);
  qn__ir_stmt_t* choice =
      qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_EQ, qn__pb_use(pb, tile), 0), first);
  if (!choice) return;
  choice->if_.else_block = other;
  qn__block_append(out, choice);
  qn__ir_block_t* step = append_loop(tiles, QN_LOOP_SERIAL, "group", qn__pb_int(pb, 1),
                                     qn__pb_int(pb, tiles->groups), out, &group);
  if (step) merge_element(tiles, tiles->carried, tiles->sums, qn__pb_use(pb, group), step);
}

// Declares arrays of rank 2 with a column that is not used: so threads with adjacent rows do not
// access one bank of shared memory.
static bool declare_rows(const qn__scan_tiles_t* tiles, int64_t rows, int64_t columns,
                         qn__ir_block_t* out, qn__ir_buffer_t** out_buffers) {
  const qn__ir_several_t* several = tiles->several;
  for (uint32_t i = 0; i < several->count; ++i) {
    out_buffers[i] = qn__pb_alloc(tiles->pb, out, QN__SCOPE_LOCAL, several->values[i]->dtype,
                                  several->results[i]->name, rows, columns + 1);
    if (!out_buffers[i]) return false;
  }
  return true;
}

static bool declare_tile(qn__scan_tiles_t* tiles, qn__ir_block_t* out) {
  return declare_rows(tiles, tiles->threads, tiles->run, out, tiles->values) &&
         declare_rows(tiles, tiles->groups, tiles->size, out, tiles->runs) &&
         qn__several_declare(tiles->pb, tiles->several, tiles->groups, out, tiles->sums) &&
         qn__several_declare(tiles->pb, tiles->several, tiles->groups, out, tiles->ends);
}

void qn__scan_append_tiles(qn__scan_tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  int64_t size = tiles->threads * tiles->run;
  if (!declare_tile(tiles, out)) return;
  qn__ir_expr_t* extent =
      qn__pb_range(pb, qn__pb_use(pb, tiles->begin), qn__pb_use(pb, tiles->end));
  qn__ir_var_t* tile;
  qn__ir_block_t* body = append_loop(tiles, QN_LOOP_SERIAL, "tile", qn__pb_int(pb, 0),
                                     qn__pb_op_int(pb, QN_OP_CEILDIV, extent, size), out, &tile);
  if (!body) return;
  qn__ir_expr_t* offset = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, tile), size);
  tiles->base =
      qn__pb_let(pb, body, "base", qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, tiles->begin), offset));
  if (!tiles->base) return;
  compute_values(tiles, body);
  combine_runs(tiles, body);
  combine_groups(tiles, body);
  if (!tiles->has_body) {
    carry_sums(tiles, tile, body);
    return;
  }
  begin_runs(tiles, body);
  run_body(tiles, body);
  copy_elements(tiles, tiles->carried, NULL, tiles->ends, qn__pb_int(pb, tiles->groups - 1), body);
}
